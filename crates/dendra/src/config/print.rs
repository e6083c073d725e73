//! `dendra config print`: each effective value and the place that set it.
//!
//! ```text
//! memory = "256MiB"            # file dendra.toml:3
//! {"memory": {"value": 268435456, "source": "file", "from": "dendra.toml:3"}, …}
//! ```
//!
//! Invariants
//! 1. The text form is itself a file that `--config` accepts, with the same meaning.
//! 2. The JSON form has numbers where the option is one, sizes in bytes.
//!
//! Not here: deciding (`mod.rs`).
//! See: docs/cli.md.

use super::value::PrintedValue;
use super::{Effective, Setting, ValueSource};
use serde_json::{Map, json};

fn to_json(setting: &Setting) -> serde_json::Value {
    let value = match &setting.printed {
        PrintedValue::Count(number) | PrintedValue::Size(number) => json!(number),
        PrintedValue::Text(text) => json!(text),
    };
    match &setting.source {
        ValueSource::Flag => {
            json!({"value": value, "source": "flag", "from": format!("--{}", setting.key)})
        }
        ValueSource::Environment(name) => {
            json!({"value": value, "source": "environment", "from": name})
        }
        ValueSource::File { path, line } => {
            json!({"value": value, "source": "file", "from": format!("{}:{line}", path.display())})
        }
        ValueSource::Default => json!({"value": value, "source": "default"}),
    }
}

impl Effective {
    /// One line per option, valid TOML, the source as a comment.
    pub(crate) fn to_toml(&self) -> String {
        let lines: Vec<(String, String)> = self
            .settings
            .iter()
            .map(|setting| {
                let line = format!("{} = {}", setting.key, setting.printed.to_toml());
                (line, setting.source.to_string())
            })
            .collect();
        let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
        lines
            .iter()
            .map(|(line, source)| format!("{line:width$}  # {source}\n"))
            .collect()
    }

    /// One object, keyed by option.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let entries: Map<String, serde_json::Value> = self
            .settings
            .iter()
            .map(|setting| (setting.key.to_owned(), to_json(setting)))
            .collect();
        serde_json::Value::Object(entries)
    }
}
