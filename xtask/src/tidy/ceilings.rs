//! Ceilings: how large a crate, a struct and a page may be, and which folders still lean on each
//! other.
//!
//! ```text
//! | crate | lines |            code that is not compiled for tests alone, without comments and blanks
//! | struct | fields |          more than FIELDS_MAX; a row goes, or its number falls, with the code
//! | folder | and folder |      two top-level modules of a crate that import each other; a row goes
//! | page | words |             more than WORDS_MAX; `all` for the sum
//! the newest commit            a subject of SUBJECT_MAX; a body when more than PLAIN_LINES changed
//! ```
//!
//! Invariants
//! 1. The tables stand in a decision record: who raises a number says why.
//! 2. Exceptions only shrink: a row that nothing needs any more is a finding.
//! 3. Of commits the newest alone is judged: its message can still be amended.
//!
//! Not here: lines of one file (`rules/`), circles among files (`circles.rs`).
//! See: docs/decisions/0049-ceilings.md.

use super::circles;
use super::finding::Finding;
use super::tree::Tree;
use crate::source::{Source, item_end, line_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const RULE: &str = "ceilings";
const RECORD: &str = "docs/decisions/0049-ceilings.md";
const FIELDS_MAX: usize = 15;
const WORDS_MAX: usize = 3_000;
const SUBJECT_MAX: usize = 72;
/// Changed lines up to which a subject may say all.
const PLAIN_LINES: usize = 60;
/// The row of tests among those of the crates, and that of all pages.
const TESTS: &str = "tests";
const ALL: &str = "all";

/// Findings above a ceiling, and rows that nothing needs.
pub(crate) fn check(root: &Path, tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let record = tree.text(RECORD).unwrap_or("");
    let mut findings = crates(record, sources);
    findings.extend(structs(record, sources));
    findings.extend(folders(record, sources));
    findings.extend(pages(record, tree));
    findings.extend(newest(root).iter().flat_map(messages));
    findings
}

/// Rows of the table below `| first | second |`: both cells, backticks taken off, and the line.
fn rows<'a>(record: &'a str, first: &str, second: &str) -> BTreeMap<Vec<&'a str>, usize> {
    let head = format!("| {first} | {second} |");
    let lines = record.lines().enumerate();
    let below = lines.skip_while(|(_, line)| *line != head).skip(2);
    let table = below.take_while(|(_, line)| line.starts_with('|'));
    let cells = |(at, line): (usize, &'a str)| {
        let cells = line.trim_matches('|').split('|');
        let cells = cells.map(|cell| cell.trim().trim_matches('`'));
        (cells.collect(), at + 1)
    };
    table.map(cells).collect()
}

/// Rows whose second cells are numbers, by their first cells.
fn numbers<'a>(record: &'a str, first: &str, second: &str) -> BTreeMap<&'a str, (usize, usize)> {
    let rows = rows(record, first, second);
    let number = |(cells, line): (Vec<&'a str>, usize)| {
        let number = cells.get(1)?.replace(',', "").parse().ok()?;
        Some((cells[0], (number, line)))
    };
    rows.into_iter().filter_map(number).collect()
}

fn in_record(line: usize, message: String) -> Finding {
    Finding::new(RECORD, line, RULE, message)
}

fn crates(record: &str, sources: &[Source]) -> Vec<Finding> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        let code = source.code.lines().zip(&source.is_test);
        let code = code.filter(|(line, _)| !line.trim().is_empty());
        let (tests, product): (Vec<_>, Vec<_>) = code.partition(|(_, is_test)| **is_test);
        *lines.entry(TESTS).or_default() += tests.len();
        *lines.entry(source.crate_folder()).or_default() += product.len();
    }
    let ceilings = numbers(record, "crate", "lines");
    let mut findings = Vec::new();
    for (name, count) in lines.into_iter().filter(|(_, count)| *count > 0) {
        match ceilings.get(name) {
            Some((most, _)) if count <= *most => {}
            Some((most, line)) => findings.push(in_record(
                *line,
                format!("{name} has {count} lines of code, {most} is its ceiling: take some away"),
            )),
            None => findings.push(in_record(
                1,
                format!("{name} has {count} lines of code and no row in the table of crates"),
            )),
        }
    }
    findings
}

fn structs(record: &str, sources: &[Source]) -> Vec<Finding> {
    let mut rows = numbers(record, "struct", "fields");
    let mut findings = Vec::new();
    for source in sources {
        for (name, line, fields) in fields(source) {
            if fields <= FIELDS_MAX {
                continue;
            }
            let key = format!("{} {name}", source.crate_folder());
            let message = match rows.remove(key.as_str()) {
                Some((listed, _)) if listed == fields => continue,
                Some((listed, row)) if listed > fields => {
                    findings.push(in_record(
                        row,
                        format!("`{key}` has {fields} fields: say so"),
                    ));
                    continue;
                }
                _ => format!("`{name}` has {fields} fields, more than {FIELDS_MAX}: divide it"),
            };
            findings.push(Finding::new(&source.path, line + 1, RULE, message));
        }
    }
    let gone = rows.into_iter();
    findings.extend(gone.map(|(key, (_, row))| {
        in_record(
            row,
            format!("`{key}` has no more than {FIELDS_MAX} fields: take it out"),
        )
    }));
    findings
}

/// Structs outside of tests: name, zero-based line, number of fields.
fn fields(source: &Source) -> Vec<(&str, usize, usize)> {
    let code = &source.code;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("struct ") {
        let line = line_of(code, at);
        let is_test = source.is_test.get(line).is_some_and(|is| *is);
        let is_word = code[..at]
            .chars()
            .next_back()
            .is_none_or(char::is_whitespace);
        let rest = &code[at + "struct ".len()..];
        let length = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let end = item_end(code, at);
        if is_test || !is_word || !code[at..end].contains('{') {
            continue;
        }
        let open = at + code[at..end].find('{').unwrap_or(0) + 1;
        found.push((&rest[..length], line, parts(&code[open..end])));
    }
    found
}

/// Parts that commas divide, outside of all brackets. Attributes hold operators: `<` opens nothing
/// in them.
fn parts(inside: &str) -> usize {
    let (mut depth, mut parts, mut is_empty, mut before) = (0usize, 0, true, ' ');
    let mut squares = 0usize;
    for c in inside.chars() {
        match c {
            '[' if squares > 0 || before == '#' => squares += 1,
            ']' if squares > 0 => squares -= 1,
            _ if squares > 0 => {}
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts += usize::from(!is_empty);
                is_empty = true;
            }
            _ => {}
        }
        is_empty &= c.is_whitespace() || c == ',' || c == '#' || squares > 0 || before == '#';
        before = c;
    }
    parts + usize::from(!is_empty)
}

fn folders(record: &str, sources: &[Source]) -> Vec<Finding> {
    let mut rows = rows(record, "folder", "and folder");
    let mut findings = Vec::new();
    let pairs = circles::folder_pairs(sources);
    for (pair, (path, line)) in &pairs {
        if rows
            .remove(&vec![pair.0.as_str(), pair.1.as_str()])
            .is_none()
        {
            let message = format!(
                "{} and {} import each other: move down what both need",
                pair.0, pair.1
            );
            findings.push(Finding::new(path, line + 1, RULE, message));
        }
    }
    let gone = rows.into_iter();
    findings.extend(gone.map(|(pair, row)| {
        in_record(
            row,
            format!(
                "{} import each other no more: take the row out",
                pair.join(" and ")
            ),
        )
    }));
    findings
}

fn pages(record: &str, tree: &Tree) -> Vec<Finding> {
    let mut rows = numbers(record, "page", "words");
    let most = rows.remove(ALL);
    let mut findings = Vec::new();
    let mut sum = 0;
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let words = text.split_whitespace().count();
        sum += words;
        let row = rows.remove(path.as_str());
        let ceiling = row.map_or(WORDS_MAX, |(ceiling, _)| ceiling);
        if words > ceiling {
            let message = format!("{words} words, {ceiling} is the ceiling: shorten or divide it");
            findings.push(Finding::new(path, 1, RULE, message));
        } else if let Some((_, line)) = row.filter(|_| words <= WORDS_MAX) {
            findings.push(in_record(line, format!("{path} needs no row any more")));
        }
    }
    let gone = rows.into_iter();
    findings.extend(gone.map(|(path, (_, line))| in_record(line, format!("no page is {path}"))));
    if let Some((most, line)) = most.filter(|(most, _)| sum > *most) {
        let message = format!("all pages have {sum} words, {most} is their ceiling");
        findings.push(in_record(line, message));
    }
    findings
}

/// A commit: its subject, has it a body, and how many lines it changed.
struct Commit {
    short: String,
    subject: String,
    has_body: bool,
    changed: usize,
}

/// The newest commit; `None` without git, or in a tree without history.
fn newest(root: &Path) -> Option<Commit> {
    let arguments = ["log", "-1", "--shortstat", "--format=%h%x01%s%x01%b%x01"];
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .ok()?;
    commit(&String::from_utf8_lossy(&output.stdout))
}

fn commit(text: &str) -> Option<Commit> {
    let mut parts = text.split('\u{1}');
    let (short, subject, body, stat) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let counts = stat.split(',').skip(1);
    let count = |part: &str| part.split_whitespace().next()?.parse::<usize>().ok();
    Some(Commit {
        short: short.to_owned(),
        subject: subject.to_owned(),
        has_body: !body.trim().is_empty(),
        changed: counts.filter_map(count).sum(),
    })
}

fn messages(commit: &Commit) -> Vec<Finding> {
    let find = |message| Finding::new(format!("commit {}", commit.short), 1, RULE, message);
    let mut findings = Vec::new();
    let length = commit.subject.chars().count();
    if length > SUBJECT_MAX {
        let message = format!("a subject of {length} characters, at most {SUBJECT_MAX}: amend it");
        findings.push(find(message));
    }
    if !commit.has_body && commit.changed > PLAIN_LINES {
        let changed = commit.changed;
        let message = format!("{changed} changed lines and no body that says why: amend it");
        findings.push(find(message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_crate_above_its_ceiling_or_without_one_is_found() {
        let source = Source::new("crates/a/src/lib.rs", "// words\n\nfn a() {}\nfn b() {}\n");
        let test = Source::new("crates/a/tests/a.rs", "fn t() {}\n");
        let sources = [source, test];
        let record = |a: &str| format!("| crate | lines |\n|---|--:|\n{a}| tests | 1 |\n\n");
        assert_eq!(crates(&record("| crates/a | 2 |\n"), &sources).len(), 0);
        let above = said(crates(&record("| crates/a | 1 |\n"), &sources));
        assert_eq!(above.len(), 1);
        assert!(above[0].contains("0049-ceilings.md:3: [ceilings] crates/a has 2 lines"));
        assert_eq!(crates(&record(""), &sources).len(), 1);
    }

    #[test]
    fn a_struct_of_sixteen_fields_is_found_and_its_row_only_shrinks() {
        let of = |count: usize| {
            let fields: String = (0..count)
                .map(|n| format!("    #[arg(max(1, 1 << 16))]\n    f{n}: Map<(u8, u8), Box<dyn Fn(A, B) -> C>>,\n"))
                .collect();
            let text = format!("struct Small(u8, u8);\npub struct Wide<A> {{\n{fields}}}\n");
            [Source::new("crates/a/src/lib.rs", &text)]
        };
        let record = |fields: usize| {
            format!("| struct | fields |\n|---|--:|\n| `crates/a Wide` | {fields} |\n")
        };
        assert_eq!(structs("", &of(15)).len(), 0);
        assert_eq!(structs("", &of(16)).len(), 1);
        assert_eq!(structs(&record(16), &of(16)).len(), 0);
        let more = said(structs(&record(16), &of(17)));
        assert!(more[0].starts_with("crates/a/src/lib.rs:2:"), "{more:?}");
        let fewer = said(structs(&record(18), &of(17)));
        assert!(fewer[0].contains("has 17 fields: say so"), "{fewer:?}");
        let none = said(structs(&record(18), &of(15)));
        assert!(none[0].contains("take it out"), "{none:?}");
    }

    #[test]
    fn two_folders_that_import_each_other_are_found_unless_listed() {
        let sources = [
            Source::new("crates/a/src/lib.rs", "mod x;\nmod y;\n"),
            Source::new("crates/a/src/x/mod.rs", "mod p;\nmod q;\n"),
            Source::new("crates/a/src/x/p.rs", "use crate::y::r::R;\nstruct P;\n"),
            Source::new("crates/a/src/x/q.rs", "struct Q;\n"),
            Source::new("crates/a/src/y/mod.rs", "mod r;\nmod s;\n"),
            Source::new("crates/a/src/y/r.rs", "struct R;\n"),
            Source::new("crates/a/src/y/s.rs", "use crate::x::q::Q;\nstruct S;\n"),
        ];
        let found = said(folders("", &sources));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a/x and a/y"), "{found:?}");
        let record = "| folder | and folder |\n|---|---|\n| a/x | a/y |\n";
        assert_eq!(folders(record, &sources).len(), 0);
        let gone = said(folders(record, &sources[..4]));
        assert!(gone[0].contains("take the row out"), "{gone:?}");
    }

    #[test]
    fn pages_have_ceilings_one_by_one_and_together() {
        let page = |words: usize| "w ".repeat(words);
        let tree = Tree {
            texts: vec![
                ("docs/a.md".to_owned(), page(10)),
                ("docs/b.md".to_owned(), page(WORDS_MAX + 1)),
            ],
            paths: Vec::new(),
        };
        let found = said(pages("", &tree));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("docs/b.md:1:"), "{found:?}");
        let record = |rows: &str| format!("| page | words |\n|---|--:|\n{rows}");
        assert_eq!(pages(&record("| docs/b.md | 4,000 |\n"), &tree).len(), 0);
        let rows = "| docs/a.md | 4,000 |\n| docs/b.md | 4,000 |\n| docs/c.md | 4,000 |\n";
        assert_eq!(pages(&record(rows), &tree).len(), 2);
        let rows = "| docs/b.md | 4,000 |\n| all | 3,000 |\n";
        assert_eq!(pages(&record(rows), &tree).len(), 1);
    }

    #[test]
    fn a_long_subject_and_a_large_change_without_a_body_are_found() {
        let of = |subject: &str, body: &str, changed: usize| {
            let stat = format!("\n 2 files changed, {changed} insertions(+), 1 deletion(-)\n");
            let text = format!("abc\u{1}{subject}\u{1}{body}\u{1}{stat}");
            messages(&commit(&text).expect("a commit")).len()
        };
        let why = "Because.\n";
        assert_eq!([of("a: b", "", 3), of("a: b", why, 900)], [0, 0]);
        assert_eq!(of(&"a".repeat(72), why, 3), 0);
        assert_eq!(of("a: b", "\n", 900), 1);
        assert_eq!(of(&"a".repeat(73), why, 3), 1);
    }
}
