//! Tidy: the rules of the house that no compiler knows.
//!
//! ```text
//! files on disk ─► Source (code apart from comments) ─► rules/        one file at a time
//! cargo metadata + table of ARCHITECTURE.md ──────────► imports.rs    who may import whom
//! `use` lines of all files of a crate ────────────────► circles.rs    which file needs which
//! paths of all files ──────────────────────────────────► trees.rs      one shape of module trees
//! all lines ───────────────────────────────────────────► width.rs      100 columns
//! *.md, `See:` lines, limits.rs ──────────────────────► documents.rs  do documents tell the truth
//! Source of engine, node, server ─────────────────────► merge_rule.rs one comparison of copies
//! Source of every crate ──────────────────────────────► vocabulary.rs one name, one type
//! first lines of `///` docs ───────────────────────────► openers.rs   a doc names its noun at once
//! crates/sim/planted/*.patch, Source of the product ──► planted.rs    bugs are patches that apply
//! tables of a record, Source, *.md, git ──────────────► ceilings.rs  sizes that do not grow
//! tables of docs/verification.md, Source of every crate ► codecs.rs   pairs have their tests
//! ```
//!
//! Invariants
//! 1. Every finding names a file, a line, the rule, and the way out.
//! 2. Rules are pure functions of text: each has a sample in its tests that it must find.
//! 3. The tree is walked in sorted order, so that two runs print the same.
//!
//! Not here: the checks of rustc and clippy (`Cargo.toml`, `clippy.toml`).
//! See: docs/style.md.

mod ceilings;
mod circles;
mod codecs;
mod documents;
mod finding;
mod imports;
mod merge_rule;
mod openers;
mod planted;
mod rules;
mod tree;
mod trees;
mod vocabulary;
mod width;

use crate::source::Source;
use std::path::Path;
use tree::read_tree;

/// Checks the tree at `root` and prints the findings; true when there are none.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match read_tree(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!(
                "tidy: the files of {} cannot be read: {error}",
                root.display()
            );
            return false;
        }
    };
    let mut sources: Vec<Source> = tree
        .texts
        .iter()
        .filter(|(path, _)| path.ends_with(".rs"))
        .map(|(path, text)| Source::new(path, text))
        .collect();

    let test_modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let is_one = |module: &String| {
            let rest = source.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if test_modules.iter().any(is_one) {
            source.mark_as_test();
        }
    }

    let mut findings = Vec::new();
    let mut long = Vec::new();
    for source in &sources {
        findings.extend(rules::check(source));
        let lines = source.code_lines();
        if (rules::LINES_LISTED..=rules::LINES_MAX).contains(&lines) {
            long.push(format!("{} ({lines})", source.path));
        }
    }
    for (path, text) in &tree.texts {
        findings.extend(rules::machine_paths(path, text));
    }
    findings.extend(imports::check_workspace(root, &tree));
    findings.extend(circles::check(&sources));
    findings.extend(trees::check(&tree));
    findings.extend(width::check(&sources));
    findings.extend(documents::check(&tree, &sources));
    findings.extend(merge_rule::check(&sources));
    findings.extend(vocabulary::check(&sources));
    findings.extend(openers::check(&sources));
    findings.extend(planted::check(&tree, &sources));
    findings.extend(codecs::check(&tree, &sources));
    findings.extend(ceilings::check(root, &tree, &sources));

    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        println!("{finding}");
    }
    if !long.is_empty() {
        println!("long files, not yet too long: {}", long.join(", "));
    }
    println!(
        "tidy: {} files, {} findings",
        tree.texts.len(),
        findings.len()
    );
    findings.is_empty()
}
