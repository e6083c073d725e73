//! Do the documents tell the truth? Links, paths and bounds that they name must exist.
//!
//! ```text
//! [text](docs/style.md#names)          in *.md          the file is there, and the heading, too
//! `crates/engine/src/wal/mod.rs`       in *.md          the path is there (`*` matches anything)
//! //! See: docs/format/wal.md          in module heads  the path is there
//! pub const QUEUE_LEN_MAX: usize       in limits.rs     docs/overload.md names it
//! Refusal::new(400, "bad-range", …)    in crates/       docs/api.md names the code word
//! a sentence                           in *.md          at most 100 columns a line
//! docs/operating.md#damage             below deploy/    the file is there, and the heading, too
//! ```
//!
//! Invariants
//! 1. Paths in documents start at the root of the workspace; links start at their own folder.
//! 2. A path is taken for one only when it starts with a folder of the workspace.
//!
//! Not here: whether the sentences are true; that takes a reader.
//! See: docs/style.md.

use super::finding::Finding;
use super::tree::{SKIPPED, Tree};
use crate::source::{Source, has_word, line_of};

const API: &str = "docs/api.md";
const OVERLOAD: &str = "docs/overload.md";
/// Dated measurements: a study writes them, and its lines stay as they are.
const MEASUREMENTS: &str = "docs/lab/20";
/// Columns of a line of prose, so that a diff of a paragraph can be read.
const COLUMNS_MAX: usize = 100;
/// Files for operators, which name sheets of the runbook.
const SHIPPED: &str = "deploy/";
/// A path in a document begins with one of these.
const STARTS: [&str; 10] = [
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "fuzz/",
    "studies/",
    "xtask/",
    ".ci/",
    ".githooks/",
    ".github/",
];

/// Everything that the documents name and that is not there.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        if path.ends_with(".md") {
            findings.extend(links(tree, path, text));
            findings.extend(paths(tree, path, text));
            if !path.starts_with(MEASUREMENTS) {
                findings.extend(widths(path, text));
            }
        } else if path.starts_with(SHIPPED) {
            findings.extend(headings(tree, path, text));
        }
    }
    let api = tree.text(API).unwrap_or("");
    for source in sources {
        findings.extend(see_lines(tree, source));
        if source.path.starts_with("crates/") && !source.is_test_file() {
            findings.extend(code_words(source, api));
        }
        if source.path.ends_with("/limits.rs") {
            let overload = tree.text(OVERLOAD).unwrap_or("");
            findings.extend(bounds(source, overload));
        }
    }
    findings
}

/// Relative links of a document, as `[text](target)`.
fn links(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shown = without_code(text);
    for (at, _) in shown.match_indices("](") {
        let rest = &shown[at + 2..];
        let Some(end) = rest.find(')') else {
            continue;
        };
        let target = &rest[..end];
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let mut missing = |message: String| {
            findings.push(Finding::new(
                path,
                line_of(&shown, at) + 1,
                "links",
                message,
            ));
        };
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() {
            path.to_owned()
        } else {
            joined(path, file)
        };
        if !tree.has(&file) {
            missing(format!("`{target}` leads nowhere"));
        } else if !anchor.is_empty()
            && !tree
                .text(&file)
                .is_some_and(|target_text| anchors(target_text).any(|a| a == anchor))
        {
            missing(format!("`{file}` has no heading `#{anchor}`"));
        }
    }
    findings
}

/// Headings that a file for operators names, as `docs/operating.md#damage`.
fn headings(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric() && !"/._-#".contains(c));
        for named in words.filter(|word| word.starts_with("docs/")) {
            let named = named.trim_end_matches('.');
            let (file, anchor) = named.split_once('#').unwrap_or((named, ""));
            let page = tree.text(file);
            let is_there = match anchor {
                "" => tree.has(file),
                _ => page.is_some_and(|page| anchors(page).any(|a| a == anchor)),
            };
            if !is_there {
                let message = format!("`{named}` leads nowhere");
                findings.push(Finding::new(path, at + 1, "links", message));
            }
        }
    }
    findings
}

/// Paths in back quotes and in code blocks.
fn paths(tree: &Tree, path: &str, text: &str) -> Vec<Finding> {
    let is_part = |c: char| c.is_alphanumeric() || "/._-*".contains(c);
    let mut findings = Vec::new();
    for start in STARTS {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| is_part(c) || c == '<') || matches!(before, Some('(' | '[')) {
                continue; // A part of a longer path, or of a link, which has its own rule.
            }
            let rest = &text[at..];
            let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let after = rest[end..].chars().next();
            let named = rest[..end].trim_end_matches('.');
            if matches!(after, Some('{' | '<')) || named.contains("NNNN") || is_made(named) {
                continue; // A pattern for people, or what a tool makes.
            }
            if !exists(tree, named) {
                let message = format!("`{named}` does not exist");
                findings.push(Finding::new(path, line_of(text, at) + 1, "paths", message));
            }
        }
    }
    findings
}

/// Lines of prose that are too long. Tables, code blocks, and lines without a space to break them
/// at are as long as they must be.
fn widths(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_block = false;
    for (at, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let is_fence = content.starts_with("```");
        in_block ^= is_fence;
        if is_fence || in_block || content.starts_with('|') {
            continue;
        }
        let columns = line.chars().count();
        let content = content.trim_start_matches(['*', '-', ' ']);
        let start = columns - content.chars().count();
        let kept = content
            .chars()
            .take((COLUMNS_MAX + 1).saturating_sub(start));
        if columns > COLUMNS_MAX && kept.into_iter().any(|c| c == ' ') {
            let message = format!("{columns} columns: break the line at {COLUMNS_MAX}");
            findings.push(Finding::new(path, at + 1, "width", message));
        }
    }
    findings
}

/// Paths that a module's header points to.
fn see_lines(tree: &Tree, source: &Source) -> Vec<Finding> {
    let is_part = |c: char| c.is_alphanumeric() || "/._-*".contains(c);
    let mut findings = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        for word in comment.split(|c: char| !is_part(c)) {
            let word = word.trim_end_matches('.');
            let is_path = word.starts_with("docs/") || word.starts_with("crates/");
            let is_document =
                comment.starts_with('!') && word.ends_with(".md") && !word.contains('*');
            let is_there = exists(tree, word) || (!is_path && is_document_somewhere(tree, word));
            if word.starts_with("../") || !(is_path || is_document) || is_there {
                continue;
            }
            let message = format!("`{word}` does not exist");
            findings.push(Finding::new(&source.path, at + 1, "paths", message));
        }
    }
    findings
}

/// Code words of refusals that the contract does not name.
fn code_words(source: &Source, api: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for call in ["Refusal::new(", "Refusal::bad("] {
        for (at, _) in source.code.match_indices(call) {
            // The first argument that is a string, if it comes before the call's next one.
            let mut quoted = source.text[at..].splitn(3, '"').skip(1);
            let (Some(word), Some(_)) = (quoted.next(), quoted.next()) else {
                continue;
            };
            let is_word = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            if is_word && !api.contains(&format!("`{word}`")) {
                let message = format!("`{word}` is a code word that {API} does not name");
                let line = line_of(&source.text, at) + 1;
                findings.push(Finding::new(&source.path, line, "contract", message));
            }
        }
    }
    findings
}

/// Bounds that the document about overload does not explain.
fn bounds(source: &Source, overload: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.code.lines().enumerate() {
        let Some((_, rest)) = line.split_once("const ") else {
            continue;
        };
        let name = rest.split(':').next().unwrap_or("").trim();
        if name.contains("_MAX") && !has_word(overload, name) {
            let message = format!("`{name}` is a bound that {OVERLOAD} does not explain");
            findings.push(Finding::new(&source.path, at + 1, "bounds", message));
        }
    }
    findings
}

/// Is there a document of this name in any folder? Headers name a neighbour's page like that.
fn is_document_somewhere(tree: &Tree, name: &str) -> bool {
    let ending = format!("/{name}");
    tree.paths.iter().any(|path| path.ends_with(&ending))
}

/// Is it below a folder that a tool makes and git ignores?
fn is_made(named: &str) -> bool {
    let mut parts = named.split('/');
    parts.any(|part| SKIPPED.contains(&part))
}

fn exists(tree: &Tree, named: &str) -> bool {
    match named.split_once('*') {
        None => tree.has(named),
        Some((before, after)) => {
            let after = after.rsplit('*').next().unwrap_or("");
            tree.paths.iter().any(|path| {
                path.starts_with(before)
                    && path
                        .trim_end_matches('/')
                        .ends_with(after.trim_end_matches('/'))
            })
        }
    }
}

/// The path that `target` names when written in the document at `path`.
fn joined(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The text with code blocks and code spans blanked: text that looks like a link there is none.
fn without_code(text: &str) -> String {
    let mut in_block = false;
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || in_block {
            in_block ^= is_fence;
            out.push('\n');
            continue;
        }
        for (n, part) in line.split('`').enumerate() {
            if n % 2 == 0 || line.matches('`').count() % 2 == 1 {
                out.push_str(part);
            }
        }
        if !out.ends_with('\n') && line.ends_with('\n') {
            out.push('\n');
        }
    }
    out
}

/// The anchors of a document's headings, as hosting sites make them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let files = [
            ("README.md", "# Quick start\n"),
            ("crates/engine/src/lib.rs", ""),
            ("docs/api.md", "## One key: `/v0/entity`\n"),
            ("docs/decisions/0001-a.md", ""),
        ];
        let mut paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        for folder in ["crates/", "crates/engine/", "crates/engine/src/", "docs/"] {
            paths.push(folder.to_owned());
        }
        paths.sort();
        let texts = files
            .iter()
            .map(|(p, t)| ((*p).to_owned(), (*t).to_owned()))
            .collect();
        Tree { texts, paths }
    }

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let good = "[a](api.md) [b](../README.md#quick-start) [c](https://x.org/y) [d](#e)\n# e\n\
                    ```\n[x](nowhere.md)\n```\n`[y](nowhere.md)`\n";
        let mut tree = tree();
        tree.texts.push(("docs/b.md".to_owned(), good.to_owned()));
        tree.texts.sort();
        tree.paths.push("docs/b.md".to_owned());
        tree.paths.sort();
        assert_eq!(lines(&links(&tree, "docs/b.md", good)), [0; 0]);
        let bad = "[a](nowhere.md)\n\n[b](../docs/api.md#no-such-heading)\n";
        assert_eq!(lines(&links(&tree, "docs/b.md", bad)), [1, 3]);
    }

    #[test]
    fn headings_that_files_for_operators_name_are_found() {
        let mut tree = tree();
        let page = "# Operating\n## A full disk\n".to_owned();
        tree.texts.push(("docs/operating.md".to_owned(), page));
        tree.texts.sort();
        tree.paths.push("docs/operating.md".to_owned());
        tree.paths.sort();
        let good = "runbook: docs/operating.md#a-full-disk\n# as docs/operating.md.\n";
        let found = |text| lines(&headings(&tree, "deploy/a.yaml", text));
        assert_eq!(found(good), [0; 0]);
        assert_eq!(
            found("a: 1\nb: docs/operating.md#gone\nc: docs/no.md\n"),
            [2, 3]
        );
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let good = "`crates/engine/src/lib.rs`, docs/decisions/*.md, docs/decisions/NNNN-x.md, \
                    `crates/{a,b}/x`, `docs/`, mydocs/none.md, fuzz/corpus/x\n";
        assert_eq!(lines(&paths(&tree(), "README.md", good)), [0; 0]);
        let bad = "`crates/engine/src/gone.rs`\ndocs/format/*.md\n";
        assert_eq!(lines(&paths(&tree(), "README.md", bad)), [1, 2]);
    }

    #[test]
    fn lines_of_prose_that_are_too_long_are_found() {
        let (word, long) = ("x".repeat(100), "word ".repeat(20) + "w");
        let good = format!(
            "{word}\n* [{word}]({word})\n| {long} |\n```\n{long}\n```\n{}\n",
            &long[..100]
        );
        assert_eq!(lines(&widths("README.md", &good)), [0; 0]);
        let umlauts = "ü".repeat(96) + " abc";
        assert_eq!(lines(&widths("README.md", &umlauts)), [0; 0]);
        let bad = format!("{long}\n\n* {long}\n```\n```\n  {}\n", &long[..99]);
        assert_eq!(lines(&widths("README.md", &bad)), [1, 3, 6]);
    }

    #[test]
    fn headers_that_point_nowhere_are_found() {
        let text = "//! See: docs/api.md, README.md, api.md.\n//! See: docs/gone.md\nlet a = \"docs/no.md\";\n";
        let source = Source::new("crates/engine/src/lib.rs", text);
        assert_eq!(lines(&see_lines(&tree(), &source)), [2]);
    }

    #[test]
    fn bounds_that_nobody_explains_are_found() {
        let text = "pub const QUEUE_LEN_MAX: usize = 1;\npub const BODY_MAX_BYTES: usize = 2;\nconst A: u8 = 1;\n";
        let source = Source::new("crates/engine/src/limits.rs", text);
        assert_eq!(
            lines(&bounds(&source, "`QUEUE_LEN_MAX` and BODY_MAX_BYTES")),
            [0; 0]
        );
        assert_eq!(lines(&bounds(&source, "OTHER_QUEUE_LEN_MAX")), [1, 2]);
    }

    #[test]
    fn code_words_that_the_contract_lacks_are_found() {
        let text = "fn a() { Refusal::new(\n 400,\n \"bad-key\", x) }\nfn b() { Refusal::bad(\"bad-range\", \"A.\") }\n";
        let source = Source::new("crates/wire/src/a.rs", text);
        assert_eq!(lines(&code_words(&source, "`bad-key` `bad-range`")), [0; 0]);
        assert_eq!(lines(&code_words(&source, "`bad-key`")), [4]);
        assert_eq!(lines(&code_words(&source, "bad-key `bad-range`")), [1]);
    }
}
