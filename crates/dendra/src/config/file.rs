//! A file of options: flat TOML, every setting with the line it stands on.
//!
//! ```text
//! listen = "0.0.0.0:8080"      text, as after a flag
//! memory = "1GiB"              or a number of bytes: memory = 1073741824
//! cluster = ["http://h1:8080", "http://h2:8080"]     or one text with commas
//! ```
//!
//! Invariants
//! 1. Every problem names `file:line`; one bad line does not hide the next.
//!
//! Not here: the values of an option (`options.rs`), precedence (`mod.rs`).
//! See: docs/cli.md.

use super::options::{ValueKind, args, closest, keys};
use super::source::{GivenOptions, ValueSource};
use clap::Arg;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// More text than any set of options needs; a wrong path (a device, a data file) ends here.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of the file, or a sentence.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let name = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|e| {
            format!(
                "{name}: the file of options cannot be read ({e}); check --config and DENDRA_CONFIG"
            )
        })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!(
            "{name}: has more than {FILE_BYTES_MAX} bytes, so it is not a file of options"
        ));
    }
    Ok(text)
}

/// Adds the options of `text`.
pub(super) fn take(path: &Path, text: &str, found: &mut GivenOptions) {
    let name = path.display();
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let what = error.message().lines().next().unwrap_or("is not TOML");
        found.problems.push(format!("{name}:{line}: {what}"));
    }
    if !errors.is_empty() {
        return;
    }
    let mut entries: Vec<_> = document.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let line = line_at(text, key.span().start);
        let is_meant = |arg: &&Arg| arg.get_long() == Some(key.get_ref());
        let Some(arg) = args().find(is_meant) else {
            let unknown = unknown_key(&name.to_string(), line, key.get_ref());
            found.problems.push(unknown);
            continue;
        };
        let flag = arg.get_long().expect("it is the one that was looked for");
        let place = format!("{name}:{line}: {flag}");
        let path = path.to_owned();
        match raw_text(arg, value.get_ref()) {
            Ok(raw) => found.take(
                flag,
                OsStr::new(&raw),
                &place,
                ValueSource::File { path, line },
            ),
            Err(rest) => found.problems.push(format!("{place}: {rest}")),
        }
    }
}

fn unknown_key(name: &str, line: usize, key: &str) -> String {
    let hint = closest(key, keys()).map_or_else(
        || {
            let keys: Vec<&str> = keys().collect();
            format!("the options are {}", keys.join(", "))
        },
        |meant| format!("did you mean {meant}?"),
    );
    format!("{name}:{line}: unknown key {key:?}; {hint}")
}

/// The value as it would stand after a flag, when its TOML type fits the option.
fn raw_text(arg: &Arg, value: &DeValue<'_>) -> Result<String, String> {
    let holds = ValueKind::of(arg);
    match value {
        DeValue::Array(entries) if holds == ValueKind::List => {
            let texts: Option<Vec<&str>> = entries
                .iter()
                .map(|entry| match entry.get_ref() {
                    DeValue::String(text) => Some(text.as_ref()),
                    _ => None,
                })
                .collect();
            let texts = texts.filter(|texts| !texts.is_empty());
            texts
                .map(|texts| texts.join(","))
                .ok_or_else(|| "is a list of something else; write [\"…\", \"…\"]".to_owned())
        }
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if matches!(holds, ValueKind::Count | ValueKind::Size) => {
            i128::from_str_radix(number.as_str(), number.radix())
                .map(|n| n.to_string())
                .map_err(|_| format!("{} is out of range", number.as_str()))
        }
        other => Err(format!(
            "is {}; write {}",
            match other {
                DeValue::Boolean(_) => "a boolean",
                DeValue::Integer(_) => "a number",
                DeValue::Float(_) => "a decimal number",
                DeValue::Datetime(_) => "a date",
                DeValue::Array(_) => "a list",
                DeValue::Table(_) => "a table",
                DeValue::String(_) => "text",
            },
            match holds {
                ValueKind::Size => "a size like \"256MiB\" or a number of bytes",
                ValueKind::Count => "a number",
                ValueKind::List => "text in quotes, or a list of texts",
                ValueKind::Text => "text in quotes",
            }
        )),
    }
}

/// The line, counted from 1, of the byte at `offset`.
fn line_at(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
