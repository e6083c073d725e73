//! The rules that need one file only.
//!
//! ```text
//! header    a module says what it is for; above 60 lines also its invariants and what is not here
//! length    a file of more than 800 lines of code is two files
//! pure      base, engine, node and wire have no clock, thread, socket, file or randomness
//! bounded   no queue without a bound
//! names     nothing is a manager, a helper or a util; nothing is called get_something
//! leftover  no marks of unfinished work, no lint silenced without its reason
//! unsafe    only in the modules listed here, each block with its proof
//! machine   no path of a single machine
//! ```
//!
//! Invariants
//! 1. A rule looks at code, or at comments, and says which: words in strings break no rule of code.
//! 2. Test code and examples may read clocks, files and threads; no other rule is waived for them.
//!
//! Not here: rules about several files (`imports.rs`, `documents.rs`).
//! See: docs/style.md.

use super::finding::Finding;
use crate::source::{Source, has_word, line_of};

/// Lines of code above which a file is reported as too long.
pub(crate) const LINES_MAX: usize = 800;
/// Lines of code from which a file is listed, so that growth is noticed.
pub(crate) const LINES_LISTED: usize = 500;
/// Lines of code up to which one sentence is header enough.
const LINES_SMALL: usize = 60;
/// Lines above an `unsafe` in which its proof must stand.
const PROOF_LINES: usize = 12;

/// Crates that are plain functions of their arguments, and the one file that may touch the disk.
const PURE: [&str; 6] = [
    "crates/base",
    "crates/engine",
    "crates/ownership",
    "crates/watch",
    "crates/node",
    "crates/wire",
];
const DISK: &str = "crates/engine/src/vfs/os.rs";

/// Names that a pure crate must not use, and the way it takes instead.
const IMPURE: [(&str, &str); 21] = [
    ("Instant::now", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("UNIX_EPOCH", "time is an argument"),
    ("thread::spawn", "the caller owns the threads"),
    ("thread::sleep", "the caller owns the threads"),
    ("thread::Builder", "the caller owns the threads"),
    ("std::net", "sockets live in crates/server"),
    ("TcpStream", "sockets live in crates/server"),
    ("TcpListener", "sockets live in crates/server"),
    ("UdpSocket", "sockets live in crates/server"),
    ("std::fs", "files come through the Vfs trait"),
    ("fs::", "files come through the Vfs trait"),
    ("tokio", "the event loop lives in crates/server"),
    ("rand::", "randomness is a seeded Prng argument"),
    ("getrandom", "randomness is a seeded Prng argument"),
    ("RandomState", "randomness is a seeded Prng argument"),
    ("env::var", "settings are arguments"),
    ("process::exit", "the caller decides when the process ends"),
    ("process::abort", "the caller decides when the process ends"),
    (
        "println!",
        "a library answers its caller, it does not print",
    ),
    (
        "eprintln!",
        "a library answers its caller, it does not print",
    ),
];

/// The modules in which `unsafe` is allowed: a file, or a folder that ends in `/`.
const UNSAFE: [&str; 5] = [
    "crates/dendra/src/output.rs",
    "crates/engine/src/memtable/",
    "crates/engine/src/vfs/os.rs",
    "crates/server/src/disk/large.rs",
    "crates/server/src/measure/profile/",
];

const ENDINGS: [&str; 7] = [
    "Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Inner",
];
const MODULES: [&str; 8] = [
    "manager", "helper", "helpers", "util", "utils", "common", "inner", "misc",
];

/// Everything wrong with one Rust file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(header(source));
    findings.extend(length(source));
    findings.extend(pure(source));
    findings.extend(bounded(source));
    findings.extend(names(source));
    findings.extend(leftovers(source));
    findings.extend(unsafe_code(source));
    findings
}

fn header(source: &Source) -> Vec<Finding> {
    if source.is_test_file() {
        return Vec::new();
    }
    let lack = |message: &str| Finding::new(&source.path, 1, "header", message);
    let header: Vec<&str> = source
        .text
        .lines()
        .skip_while(|line| line.trim().is_empty())
        .take_while(|line| line.starts_with("//!") || line.starts_with("#![doc"))
        .collect();
    if header.is_empty() {
        return vec![lack("the first line is `//!` and one sentence of purpose")];
    }
    let is_included = header.iter().any(|line| line.starts_with("#![doc"));
    if source.code_lines() <= LINES_SMALL || is_included {
        return Vec::new();
    }
    let part = |start: &str| {
        header
            .iter()
            .position(|line| line.trim_start_matches("//!").trim().starts_with(start))
    };
    let mut findings = Vec::new();
    match part("Invariants") {
        None => findings.push(lack("the header lacks `Invariants` and a numbered list")),
        Some(at)
            if !header
                .get(at + 1)
                .is_some_and(|line| line.starts_with("//! 1. ")) =>
        {
            findings.push(lack(
                "`Invariants` is followed by a list that starts with `1. `",
            ));
        }
        Some(_) => {}
    }
    match (part("Invariants"), part("Not here")) {
        (_, None) => {
            findings.push(lack(
                "the header lacks `Not here:`: what is left out, and where it is",
            ));
        }
        (Some(invariants), Some(absent)) if absent < invariants => {
            findings.push(lack("`Not here:` stands after `Invariants`"));
        }
        _ => {}
    }
    findings
}

fn length(source: &Source) -> Option<Finding> {
    let lines = source.code_lines();
    (lines > LINES_MAX).then(|| {
        let message = format!("{lines} lines of code, at most {LINES_MAX}: this is two files");
        Finding::new(&source.path, 0, "length", message)
    })
}

fn pure(source: &Source) -> Vec<Finding> {
    let is_shell = source.path == DISK || source.path.contains("/examples/");
    if !PURE.contains(&source.crate_folder()) || is_shell || source.is_test_file() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        if source.is_test[at] {
            continue;
        }
        for (word, instead) in IMPURE {
            if has_word(line, word) {
                let message = format!("`{word}` in a pure crate: {instead}");
                findings.push(Finding::new(&source.path, at + 1, "pure", message));
            }
        }
        for word in nested_std_imports(line) {
            let message = format!("`std::{word}` in a pure crate: the shell owns it");
            findings.push(Finding::new(&source.path, at + 1, "pure", message));
        }
    }
    findings
}

/// `use std::{fs, net}`: the spelling that hides a banned module from a search for its path.
fn nested_std_imports(line: &str) -> impl Iterator<Item = &'static str> {
    let list = line.split_once("std::{").map_or("", |(_, list)| list);
    ["fs", "net"]
        .into_iter()
        .filter(move |word| has_word(list, word))
}

/// Calls that make a queue which grows until the memory is gone.
const UNBOUNDED: [&str; 4] = [
    "mpsc::channel()",
    "mpsc::channel::<",
    "unbounded_channel(",
    "unbounded(",
];

fn bounded(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        let is_one = UNBOUNDED.iter().any(|call| has_word(line, call));
        if is_one && !source.is_test[at] {
            let message = "a queue without a bound: give it one, and name it in limits.rs";
            findings.push(Finding::new(&source.path, at + 1, "bounded", message));
        }
    }
    findings
}

fn names(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let file = source.path.rsplit('/').next().unwrap_or("");
    let stem = file.trim_end_matches(".rs");
    let folder = source.path.rsplit('/').nth(1).unwrap_or("");
    if MODULES.contains(&stem) || MODULES.contains(&folder) {
        let message = "name the file after what it holds";
        findings.push(Finding::new(&source.path, 0, "names", message));
    }
    for (at, line) in source.code.lines().enumerate() {
        let mut finding = |message: String| {
            findings.push(Finding::new(&source.path, at + 1, "names", message));
        };
        for keyword in ["struct", "enum", "trait", "type"] {
            if let Some(name) = declared(line, keyword)
                && ENDINGS.iter().any(|ending| name.ends_with(ending))
            {
                finding(format!("`{name}` says nothing: name it after what it does"));
            }
        }
        if let Some(name) = declared(line, "mod")
            && MODULES.contains(&name)
        {
            finding(format!(
                "`mod {name}` is a drawer: name it after what it holds"
            ));
        }
        if let Some(name) = declared(line, "fn")
            && let Some(rest) = name.strip_prefix("get_")
        {
            finding(format!("`{name}`: call it `{rest}`"));
        }
    }
    findings
}

/// The name that `keyword` declares on this line.
pub(crate) fn declared<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (at, _) = line
        .match_indices(keyword)
        .find(|(at, _)| !line[..*at].chars().next_back().is_some_and(is_name))?;
    let rest = line[at + keyword.len()..].strip_prefix(' ')?;
    let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
    (end > 0).then_some(&rest[..end])
}

/// Marks of unfinished work, spelled so that this file is not full of them itself.
const LEFTOVERS: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("HA", "CK"),
];

/// The one reason to ignore a test: `make prove` runs those that are.
const AT_LENGTH: &str = "#[ignore = \"at length\"]";

fn leftovers(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        for mark in LEFTOVERS {
            if has_word(line, mark) {
                let message = format!("`{mark}`: finish it, or write it into an issue");
                findings.push(Finding::new(&source.path, at + 1, "leftover", message));
            }
        }
    }
    let code_marks = [
        ("dbg!", "remove it"),
        ("todo!", "write it"),
        ("unimplemented!", "write it"),
    ];
    for (at, line) in source.code.lines().enumerate() {
        for (mark, way_out) in code_marks {
            if has_word(line, mark) {
                let message = format!("`{mark}`: {way_out}");
                findings.push(Finding::new(&source.path, at + 1, "leftover", message));
            }
        }
        let is_whole = || {
            source
                .text
                .lines()
                .nth(at)
                .is_some_and(|it| it.trim() == AT_LENGTH)
        };
        if line.contains("#[ignore") && !is_whole() {
            let message = format!("a test runs, or `make prove` runs it: {AT_LENGTH}");
            findings.push(Finding::new(&source.path, at + 1, "leftover", message));
        }
    }
    findings
}

fn unsafe_code(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_allowed = UNSAFE.iter().any(|place| {
        source.path == *place || (place.ends_with('/') && source.path.starts_with(place))
    });
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, line) in source.code.lines().enumerate() {
        if !has_word(line, "unsafe") {
            continue;
        }
        if !is_allowed {
            let message = "`unsafe` outside the modules that tidy lists: use a safe way";
            findings.push(Finding::new(&source.path, at + 1, "unsafe", message));
            continue;
        }
        let above = &lines[at.saturating_sub(PROOF_LINES)..=at];
        let has_proof = above
            .iter()
            .any(|text| text.contains("SAFETY:") || text.contains("# Safety"));
        if !has_proof {
            let message = "`unsafe` without a `// SAFETY:` proof above it";
            findings.push(Finding::new(&source.path, at + 1, "unsafe", message));
        }
    }
    findings
}

/// Paths of one machine that must not be committed, spelled so that this file holds none itself.
const MACHINE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// Absolute paths of a single machine, in any text file.
pub(crate) fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in MACHINE {
        for (at, _) in text.match_indices(place) {
            // `a/work/b` and `https://x/home/` are not absolute paths of a machine.
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "._-/}*".contains(c)) {
                continue;
            }
            let message = format!("`{place}` is a path of one machine");
            findings.push(Finding::new(
                path,
                line_of(text, at) + 1,
                "machine",
                message,
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
