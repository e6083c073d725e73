//! The options of a node: one table, four places, and which place won.
//!
//! ```text
//! flag  >  environment DENDRA_*  >  file (--config FILE, DENDRA_CONFIG)  >  default
//!
//! units.rs   256MiB, 250ms
//! table.rs   every option once: key, kind, default, help
//! cluster.rs which cluster, which member
//! settings.rs the server's settings, and its refusals
//! file.rs    TOML text -> raw settings with their lines
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

mod backups;
pub(crate) mod cluster;
mod file;
mod parse;
mod print;
mod settings;
mod source;
pub(crate) mod table;
pub(crate) mod units;

use parse::parse;
pub(crate) use source::ValueSource;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use table::{Fallback, OPTIONS, OptionValue};

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

/// One option with its effective value.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The option's name.
    pub(crate) key: &'static str,
    /// The value in force.
    pub(crate) value: OptionValue,
    /// The place that set it.
    pub(crate) source: ValueSource,
}

/// All options, in the table's order.
#[derive(Clone, Debug)]
pub(crate) struct Effective {
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
        let mut problems = Vec::new();
        let mut found: Vec<Vec<(OptionValue, ValueSource)>> = vec![Vec::new(); OPTIONS.len()];
        self.take_flags(&mut found, &mut problems);
        self.take_environment(&mut found, &mut problems);
        if let Some((path, text)) = &self.file {
            file::take(path, text, &mut found, &mut problems);
        }
        let effective = Effective::decide(found);
        if problems.is_empty() {
            problems.extend(effective.contradictions());
            problems.extend(effective.cluster().err());
        }
        if problems.is_empty() {
            problems.extend(effective.refusal());
        }
        if problems.is_empty() {
            Ok(effective)
        } else {
            Err(Problems(problems))
        }
    }

    fn take_flags(
        &self,
        found: &mut [Vec<(OptionValue, ValueSource)>],
        problems: &mut Vec<String>,
    ) {
        for (i, spec) in OPTIONS.iter().enumerate() {
            for (_, text) in self.flags.iter().filter(|(key, _)| *key == spec.key) {
                match parse(spec.kind, text) {
                    Ok(value) => found[i].push((value, ValueSource::Flag)),
                    Err(rest) => problems.push(format!("--{}: {rest}", spec.key)),
                }
            }
        }
    }

    fn take_environment(
        &self,
        found: &mut [Vec<(OptionValue, ValueSource)>],
        problems: &mut Vec<String>,
    ) {
        for (variable, text) in &self.environment {
            // A variable that is set but empty is left behind by `${NAME:-}`: not set.
            let Some(name) = variable.to_str().filter(|name| name.starts_with("DENDRA_")) else {
                continue;
            };
            if text.is_empty() || OTHER_VARIABLES.contains(&name) {
                continue;
            }
            let Some(i) = OPTIONS.iter().position(|spec| spec.variable() == name) else {
                problems.push(unknown_variable(name));
                continue;
            };
            match parse(OPTIONS[i].kind, OsStr::new(text)) {
                Ok(value) => found[i].push((value, ValueSource::Environment(name.to_owned()))),
                Err(rest) => problems.push(format!("{name}: {rest}")),
            }
        }
    }
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<String> = OPTIONS.iter().map(table::Spec::variable).collect();
    let meant = table::closest(name, known.iter().map(String::as_str));
    let hint = meant.map_or_else(
        || "unset it, or see `dendra config print` for the options".to_owned(),
        |meant| format!("did you mean {meant}?"),
    );
    format!("{name}: there is no such option; {hint}")
}

impl Effective {
    /// The strongest place per option; places were pushed from strongest to weakest.
    fn decide(found: Vec<Vec<(OptionValue, ValueSource)>>) -> Effective {
        let mut settings: Vec<Setting> = Vec::with_capacity(OPTIONS.len());
        for (spec, candidates) in OPTIONS.iter().zip(found) {
            let strongest = candidates.into_iter().next();
            let (value, source) = strongest.unwrap_or_else(|| {
                let earlier = |key: &str| value_of(&settings, key).clone();
                let value = match spec.fallback {
                    Fallback::Fixed(text) => parse(spec.kind, OsStr::new(text))
                        .expect("a test parses every fixed default"),
                    Fallback::Derived { of, .. } => of(&earlier),
                };
                (value, ValueSource::Default)
            });
            settings.push(Setting {
                key: spec.key,
                value,
                source,
            });
        }
        Effective { settings }
    }

    /// Values that are fine alone and impossible together.
    fn contradictions(&self) -> Option<String> {
        let (memory, memtable) = (self.number("memory"), self.number("memtable"));
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

    /// All options, in the table's order.
    pub(crate) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// One option. Requires: `key` is in the table.
    pub(crate) fn setting(&self, key: &str) -> &Setting {
        self.settings
            .iter()
            .find(|setting| setting.key == key)
            .expect("callers name options of the table")
    }

    /// A count or a number of bytes. Requires: the option is one.
    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.setting(key).value {
            OptionValue::Count(n) | OptionValue::Bytes(n) => n,
            _ => panic!("{key} is not a number"),
        }
    }

    /// As `number`, for counts of things in memory.
    pub(crate) fn size(&self, key: &str) -> usize {
        usize::try_from(self.number(key)).unwrap_or(usize::MAX)
    }
}

fn value_of<'a>(settings: &'a [Setting], key: &str) -> &'a OptionValue {
    let found = settings.iter().find(|setting| setting.key == key);
    &found.expect("a default derives from earlier options").value
}

#[cfg(test)]
mod tests;
