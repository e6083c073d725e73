//! Tidy: the rules of the house that no compiler knows.
//!
//! ```text
//! files on disk ─► Source (code apart from comments) ─► rules.rs      one file at a time
//! cargo metadata + table of ARCHITECTURE.md ──────────► imports.rs    who may import whom
//! *.md, `See:` lines, limits.rs ──────────────────────► documents.rs  do documents tell the truth
//! Source of engine, node, server ─────────────────────► merge_rule.rs one comparison of copies
//! ```
//!
//! Invariants
//! 1. Every finding names a file, a line, the rule, and the way out.
//! 2. Rules are pure functions of text: each has a sample in its tests that it must find.
//! 3. The tree is walked in sorted order, so that two runs print the same.
//!
//! Not here: what rustc and clippy check (`Cargo.toml`, `clippy.toml`).
//! See: docs/style.md.

mod documents;
mod imports;
mod merge_rule;
mod rules;
mod source;

use source::Source;
use std::fmt;
use std::path::Path;

/// One broken rule.
#[derive(Debug)]
pub(crate) struct Finding {
    path: String,
    /// One-based; 0 when the finding is about the file as a whole.
    line: usize,
    rule: &'static str,
    message: String,
}

impl Finding {
    fn new(
        path: impl Into<String>,
        line: usize,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Finding {
        Finding {
            path: path.into(),
            line,
            rule,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

/// The files of the workspace, as text.
pub(crate) struct Tree {
    /// Path from the root and content, sorted by path. Files that are not UTF-8 are not listed.
    pub(crate) texts: Vec<(String, String)>,
    /// Every path, sorted; folders end in `/`.
    pub(crate) paths: Vec<String>,
}

impl Tree {
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let at = self
            .texts
            .binary_search_by(|(p, _)| p.as_str().cmp(path))
            .ok()?;
        Some(&self.texts[at].1)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let is = |p: &str| self.paths.binary_search_by(|q| q.as_str().cmp(p)).is_ok();
        is(path) || is(&format!("{path}/"))
    }
}

/// Checks the tree at `root` and prints what it finds; true when nothing is wrong.
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
    findings.extend(documents::check(&tree, &sources));
    findings.extend(merge_rule::check(&sources));

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

/// Folders that git ignores.
const SKIPPED: [&str; 6] = [
    "target",
    "data",
    "runs",
    "node_modules",
    "corpus",
    "artifacts",
];

/// Folders whose files are listed and not read: bytes of released formats.
const LISTED: [&str; 1] = ["fixtures"];

fn read_tree(root: &Path) -> std::io::Result<Tree> {
    let mut tree = Tree {
        texts: Vec::new(),
        paths: Vec::new(),
    };
    read_folder(root, "", &mut tree)?;
    tree.texts.sort();
    tree.paths.sort();
    Ok(tree)
}

fn read_folder(folder: &Path, prefix: &str, tree: &mut Tree) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        let path = format!("{prefix}{name}");
        if name == ".git" {
            // A folder in a clone, a file in a worktree: nothing of ours either way.
        } else if kind.is_dir() {
            tree.paths.push(format!("{path}/"));
            if !SKIPPED.contains(&name.as_str()) {
                read_folder(&entry.path(), &format!("{path}/"), tree)?;
            }
        } else if kind.is_file() {
            let is_listed = path.split('/').any(|part| LISTED.contains(&part));
            if is_listed {
                // Its name is enough.
            } else if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
                tree.texts.push((path.clone(), text));
            }
            tree.paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_file_line_rule_and_way_out() {
        let finding = Finding::new("a/b.rs", 3, "names", "call it something else");
        assert_eq!(
            finding.to_string(),
            "a/b.rs:3: [names] call it something else"
        );
    }

    #[test]
    fn a_tree_knows_files_and_folders() {
        let tree = Tree {
            texts: vec![("docs/a.md".to_owned(), "x".to_owned())],
            paths: vec!["docs/".to_owned(), "docs/a.md".to_owned()],
        };
        assert!(tree.has("docs") && tree.has("docs/") && tree.has("docs/a.md"));
        assert!(!tree.has("docs/b.md"));
        assert_eq!(tree.text("docs/a.md"), Some("x"));
    }
}
