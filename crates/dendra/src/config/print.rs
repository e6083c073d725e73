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

use super::table::OptionValue;
use super::{Effective, Setting, ValueSource, units};
use serde_json::{Map, json};
use std::path::Path;

/// With commas, as the option reads them.
fn show_list<T: ToString>(list: &[T]) -> String {
    if list.is_empty() {
        return "off".to_owned();
    }
    let texts: Vec<String> = list.iter().map(T::to_string).collect();
    texts.join(",")
}

fn show_file(path: Option<&Path>) -> String {
    path.map_or_else(|| "off".to_owned(), |path| path.display().to_string())
}

impl OptionValue {
    /// As in a TOML file.
    fn to_toml(&self) -> String {
        let text = match self {
            OptionValue::Count(n) => return n.to_string(),
            OptionValue::Bytes(n) => units::show_bytes(*n),
            OptionValue::Addresses(addresses) => show_list(addresses),
            OptionValue::Folder(path) => path.display().to_string(),
            OptionValue::Choice(word) => (*word).to_owned(),
            OptionValue::Members(members) => show_list(members),
            OptionValue::Hosts(hosts) => show_list(hosts),
            OptionValue::Origins(origins) => show_list(origins),
            OptionValue::File(path) => show_file(path.as_deref()),
            OptionValue::Text(text) => text.clone(),
        };
        toml::Value::String(text).to_string()
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            OptionValue::Count(n) | OptionValue::Bytes(n) => json!(n),
            OptionValue::Addresses(addresses) => json!(show_list(addresses)),
            OptionValue::Folder(path) => json!(path.display().to_string()),
            OptionValue::Choice(word) => json!(word),
            OptionValue::Members(members) => json!(show_list(members)),
            OptionValue::Hosts(hosts) => json!(show_list(hosts)),
            OptionValue::Origins(origins) => json!(show_list(origins)),
            OptionValue::File(path) => json!(show_file(path.as_deref())),
            OptionValue::Text(text) => json!(text),
        }
    }
}

fn to_json(setting: &Setting) -> serde_json::Value {
    let value = setting.value.to_json();
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
            .settings()
            .iter()
            .map(|setting| {
                let line = format!("{} = {}", setting.key, setting.value.to_toml());
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
            .settings()
            .iter()
            .map(|setting| (setting.key.to_owned(), to_json(setting)))
            .collect();
        serde_json::Value::Object(entries)
    }
}
