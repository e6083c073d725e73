//! The options of a node: one table, four places, and which place won.
//!
//! ```text
//! flag  >  environment DENDRA_*  >  file (--config FILE, DENDRA_CONFIG)  >  default
//!
//! units.rs    256MiB, 250ms
//! options.rs  every option once: key, values, default, help
//! cluster.rs  which cluster, which member
//! settings.rs the server's settings, and its refusals
//! file.rs     TOML text -> texts of options with their lines
//! ```
//!
//! Invariants
//! 1. Every place is checked, also one that a stronger place overrides: a typo never waits for the
//!    day on which it counts.
//! 2. An unknown key or variable is an error; no option is ignored in silence.
//! 3. A problem is one sentence that begins with the place: `dendra.toml:3`, `DENDRA_MEMORY`,
//!    `--memory`.
//!
//! Not here: the effect of the options (crate `server`); options of client commands (`cli.rs`).
//! See: docs/cli.md.

pub(crate) mod cluster;
mod file;
pub(crate) mod options;
mod print;
mod settings;
mod source;
pub(crate) mod units;
mod value;

use clap::FromArgMatches;
use options::{NodeOptions, Size, keys, read, variable};
use source::GivenOptions;
pub(crate) use source::ValueSource;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use value::PrintedValue;

/// Variables that begin with `DENDRA_` and are no option of a node.
const OTHER_VARIABLES: [&str; 10] = [
    "DENDRA_ADMIN_URL",
    "DENDRA_ADMIN_URLS",
    "DENDRA_BACKUP_KEY_FILE",
    "DENDRA_CONFIG",
    "DENDRA_URL",
    "DENDRA_CA",
    "DENDRA_CERT",
    "DENDRA_KEY_FILE",
    "DENDRA_TOKEN",
    "DENDRA_TOKEN_FILE",
];

/// The value in force of one option, as texts.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The option's name.
    key: &'static str,
    printed: PrintedValue,
    /// The place that set it.
    pub(crate) source: ValueSource,
}

/// All options.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
    /// The values in force.
    pub(crate) options: NodeOptions,
    /// In the order of the help.
    settings: Vec<Setting>,
}

/// The faults of the options: one sentence each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// Everything that was said, before the precedence decides.
#[derive(Default)]
pub(crate) struct ConfigInputs {
    /// Flags by option key.
    pub(crate) flags: Vec<(&'static str, OsString)>,
    /// The whole environment; foreign variables are skipped.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The file's name and text.
    pub(crate) file: Option<(PathBuf, String)>,
}

impl ConfigInputs {
    /// Reads the process's environment and the file that `--config` or `DENDRA_CONFIG` names.
    pub(crate) fn gather(
        flags: Vec<(&'static str, OsString)>,
        config: Option<&Path>,
    ) -> Result<ConfigInputs, Problems> {
        let file = match config {
            Some(path) => Some((
                path.to_owned(),
                file::read(path).map_err(|sentence| Problems(vec![sentence]))?,
            )),
            None => None,
        };
        Ok(ConfigInputs {
            flags,
            environment: std::env::vars_os().collect(),
            file,
        })
    }

    /// Checks every place and decides.
    pub(crate) fn resolve(&self) -> Result<Effective, Problems> {
        let mut found = GivenOptions::default();
        for (key, text) in &self.flags {
            found.take(key, text, &format!("--{key}"), ValueSource::Flag);
        }
        self.take_environment(&mut found);
        if let Some((path, text)) = &self.file {
            file::take(path, text, &mut found);
        }
        if !found.problems.is_empty() {
            return Err(Problems(found.problems));
        }
        let effective = Effective::decide(&found.strongest);
        let mut problems: Vec<String> = effective.contradictions().into_iter().collect();
        problems.extend(effective.cluster().err());
        if problems.is_empty() {
            problems.extend(effective.refusal());
        }
        if problems.is_empty() {
            Ok(effective)
        } else {
            Err(Problems(problems))
        }
    }

    fn take_environment(&self, found: &mut GivenOptions) {
        for (name, text) in &self.environment {
            // A variable that is set but empty is left behind by `${NAME:-}`: not set.
            let Some(name) = name.to_str().filter(|name| name.starts_with("DENDRA_")) else {
                continue;
            };
            if text.is_empty() || OTHER_VARIABLES.contains(&name) {
                continue;
            }
            match keys().find(|key| variable(key) == name) {
                Some(key) => found.take(key, text, name, ValueSource::Environment(name.to_owned())),
                None => found.problems.push(unknown_variable(name)),
            }
        }
    }
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<String> = keys().map(variable).collect();
    let meant = options::closest(name, known.iter().map(String::as_str));
    let hint = meant.map_or_else(
        || "unset it, or see `dendra config print` for the options".to_owned(),
        |meant| format!("did you mean {meant}?"),
    );
    format!("{name}: there is no such option; {hint}")
}

impl Effective {
    fn decide(strongest: &HashMap<&'static str, (OsString, ValueSource)>) -> Effective {
        let texts = strongest.iter();
        let texts = texts.map(|(key, (text, _))| (*key, text.as_os_str()));
        let mut matches = read(texts.clone()).expect("each was read by itself");
        if !strongest.contains_key("memtable") {
            let Size(memory) = *matches.get_one("memory").expect("it has a default");
            let derived = (memory / 8).clamp(1 << 20, 64 << 20).to_string();
            let derived = ("memtable", OsStr::new(&derived));
            matches = read(texts.chain([derived])).expect("such a size is in its bounds");
        }
        let settings = options::args().map(|arg| {
            let key = arg.get_long().expect("each option has a flag");
            let source = strongest.get(key).map(|(_, source)| source.clone());
            Setting {
                key,
                printed: PrintedValue::of(&matches, arg.get_id()),
                source: source.unwrap_or(ValueSource::Default),
            }
        });
        Effective {
            settings: settings.collect(),
            options: NodeOptions::from_arg_matches(&matches).expect("each has a value"),
        }
    }

    /// Values that are fine alone and impossible together.
    fn contradictions(&self) -> Option<String> {
        let (memory, memtable) = (self.options.memory.0, self.memtable_bytes());
        (memtable.saturating_mul(4) > memory).then(|| {
            format!(
                "memtable = {} ({}) is more than a quarter of memory = {} ({}): three memtables and a cache must fit; raise memory or lower memtable",
                units::show_bytes(memtable),
                self.setting("memtable").source,
                units::show_bytes(memory),
                self.setting("memory").source,
            )
        })
    }

    /// The size that was given, or the one that follows from the memory.
    fn memtable_bytes(&self) -> u64 {
        self.options
            .memtable
            .expect("it is derived where it is not set")
            .0
    }

    /// One option. Requires: `key` is one.
    pub(crate) fn setting(&self, key: &str) -> &Setting {
        self.settings
            .iter()
            .find(|setting| setting.key == key)
            .expect("callers name options of the table")
    }
}

/// Number of things in memory.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
