//! The imports that each crate may have: the table in ARCHITECTURE.md, held against cargo's
//! metadata.
//!
//! ```text
//! | crate           | imports | from outside  | must never know |       the table's columns
//! | `crates/engine` | base    | bytes, libc   | sockets         |       `any` = not restricted
//! | `crates/dendra` | server; in tests: sim | any |               |       sim: for its tests only
//! ```
//!
//! Invariants
//! 1. The table in the document is the table that is checked: there is no second copy.
//! 2. Every member of the workspace has a row, every row has a member.
//! 3. Dependencies of tests obey the table for crates of ours and are free from outside.
//!
//! Not here: calls that a pure crate must not make through the standard library (`rules/`).
//! See: ARCHITECTURE.md, docs/decisions/0010-dependencies.md.

use super::finding::Finding;
use super::tree::Tree;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const RULE: &str = "imports";
const DOCUMENT: &str = "ARCHITECTURE.md";
const HEAD: &str = "| crate | imports | from outside |";
/// In front of the crates that only tests may import.
const IN_TESTS: &str = "; in tests: ";

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    folder: String,
    ours: BTreeSet<String>,
    /// The crates that its tests may import beside `ours`.
    ours_in_tests: BTreeSet<String>,
    /// `None` = any.
    outside: Option<BTreeSet<String>>,
    line: usize,
}

/// One dependency of a member, as cargo sees it.
#[derive(Debug)]
struct Edge {
    /// Folder of the member that imports.
    from: String,
    /// Package name of the import.
    to: String,
    /// Folder of the import, when it is a member.
    to_folder: Option<String>,
    is_for_tests: bool,
}

/// Asks cargo for the workspace at `root` and holds it against the table.
pub(crate) fn check_workspace(root: &Path, tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.text(DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 0, RULE, "the document is missing")];
    };
    let rows = match rows(document) {
        Ok(rows) => rows,
        Err(finding) => return vec![finding],
    };
    match members_and_edges(root) {
        Ok((members, edges)) => check(&rows, &members, &edges),
        Err(reason) => vec![Finding::new("Cargo.toml", 0, RULE, reason)],
    }
}

fn check(rows: &[Row], members: &BTreeSet<String>, edges: &[Edge]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        if !rows.iter().any(|row| row.folder == *member) {
            let message = format!("`{member}` has no row in the import table");
            findings.push(Finding::new(DOCUMENT, 0, RULE, message));
        }
    }
    for row in rows {
        if !members.contains(&row.folder) {
            let message = format!(
                "`{}` has a row but is no member of the workspace",
                row.folder
            );
            findings.push(Finding::new(DOCUMENT, row.line, RULE, message));
        }
    }
    for edge in edges {
        let Some(row) = rows.iter().find(|row| row.folder == edge.from) else {
            continue;
        };
        let is_allowed = match (&edge.to_folder, &row.outside) {
            (Some(folder), _) => {
                let name = folder.rsplit('/').next().unwrap_or(folder);
                let is_for_tests = edge.is_for_tests && row.ours_in_tests.contains(name);
                row.ours.contains(name) || is_for_tests || *folder == edge.from
            }
            (None, None) => true,
            (None, Some(outside)) => edge.is_for_tests || outside.contains(&edge.to),
        };
        if !is_allowed {
            let message = format!(
                "{} may not import {}: a new edge needs a decision record and a row in {DOCUMENT}",
                edge.from, edge.to
            );
            findings.push(Finding::new(
                format!("{}/Cargo.toml", edge.from),
                0,
                RULE,
                message,
            ));
        }
    }
    findings
}

/// Reads the table out of the document.
fn rows(document: &str) -> Result<Vec<Row>, Finding> {
    let mut lines = document.lines().enumerate();
    if !lines.any(|(_, line)| line.starts_with(HEAD)) {
        return Err(Finding::new(
            DOCUMENT,
            0,
            RULE,
            format!("no table that starts `{HEAD}`"),
        ));
    }
    let mut rows = Vec::new();
    for (at, line) in lines.skip(1) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", folder, ours, outside, ..] = cells.as_slice() else {
            break;
        };
        let (ours, in_tests) = ours.split_once(IN_TESTS).unwrap_or((ours, ""));
        rows.push(Row {
            folder: folder.trim_matches('`').to_owned(),
            ours: names(ours),
            ours_in_tests: names(in_tests),
            outside: (*outside != "any").then(|| names(outside)),
            line: at + 1,
        });
    }
    Ok(rows)
}

fn names(cell: &str) -> BTreeSet<String> {
    let words = cell.split([',', ' ']).map(|word| word.trim_matches('`'));
    words
        .filter(|word| !word.is_empty() && *word != "nothing")
        .map(str::to_owned)
        .collect()
}

fn members_and_edges(root: &Path) -> Result<(BTreeSet<String>, Vec<Edge>), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {}", said.trim()));
    }
    let metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    parse(&metadata).ok_or_else(|| "cargo metadata has another shape than expected".to_owned())
}

/// Picks members and their dependencies out of cargo's answer.
fn parse(metadata: &Value) -> Option<(BTreeSet<String>, Vec<Edge>)> {
    let root = metadata["workspace_root"].as_str()?;
    let inside = |path: &str| Some(path.strip_prefix(root)?.trim_start_matches('/').to_owned());
    let mut members = BTreeSet::new();
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array()? {
        let manifest = package["manifest_path"].as_str()?;
        let from = inside(manifest.strip_suffix("/Cargo.toml")?)?;
        for dependency in package["dependencies"].as_array()? {
            edges.push(Edge {
                from: from.clone(),
                to: dependency["name"].as_str()?.to_owned(),
                to_folder: dependency["path"].as_str().and_then(inside),
                is_for_tests: dependency["kind"].as_str() == Some("dev"),
            });
        }
        members.insert(from);
    }
    Some((members, edges))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
text
| crate | imports | from outside | must never know |
|---|---|---|---|
| `crates/base` | nothing | `bytes` | anything |
| `crates/engine` | base | `libc`, `bytes` | sockets |
| `crates/dendra` | base, engine; in tests: sim, lab | any | |
| `xtask` | nothing | any | |

more text
| not | a | row | |
";

    fn edge(from: &str, to: &str, to_folder: Option<&str>, is_for_tests: bool) -> Edge {
        Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            to_folder: to_folder.map(str::to_owned),
            is_for_tests,
        }
    }

    fn broken(edges: &[Edge]) -> Vec<String> {
        let rows = rows(TABLE).expect("the sample has a table");
        let members = rows.iter().map(|row| row.folder.clone()).collect();
        check(&rows, &members, edges)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn the_table_reads_from_the_document() {
        let rows = rows(TABLE).expect("the sample has a table");
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[1].folder, "crates/engine");
        assert_eq!(rows[1].ours, names("base"));
        assert_eq!(rows[1].outside, Some(names("bytes libc")));
        assert_eq!(rows[2].outside, None);
        assert_eq!(rows[2].ours, names("base engine"));
        assert_eq!(rows[2].ours_in_tests, names("sim lab"));
        assert_eq!(rows[1].ours_in_tests, BTreeSet::new());
        assert_eq!(rows[0].ours, BTreeSet::new());
    }

    #[test]
    fn a_document_without_the_table_is_found() {
        assert!(rows("no table here\n").is_err());
    }

    #[test]
    fn edges_of_the_table_hold() {
        let edges = [
            edge("crates/engine", "dendra-base", Some("crates/base"), false),
            edge("crates/engine", "libc", None, false),
            edge("crates/engine", "proptest", None, true),
            edge("crates/dendra", "dendra-sim", Some("crates/sim"), true),
            edge("xtask", "serde_json", None, false),
        ];
        assert_eq!(broken(&edges), [""; 0]);
    }

    #[test]
    fn an_edge_that_the_table_lacks_is_found() {
        for wrong in [
            edge("crates/base", "dendra-engine", Some("crates/engine"), false),
            edge("crates/base", "dendra-engine", Some("crates/engine"), true),
            edge("crates/engine", "tokio", None, false),
            edge("crates/dendra", "dendra-sim", Some("crates/sim"), false),
            edge("crates/engine", "dendra-sim", Some("crates/sim"), true),
        ] {
            assert_eq!(broken(&[wrong]).len(), 1);
        }
    }

    #[test]
    fn a_member_without_a_row_and_a_row_without_a_member_are_found() {
        let rows = rows(TABLE).expect("the sample has a table");
        let members = ["crates/base", "crates/engine", "crates/new"];
        let members = members.into_iter().map(str::to_owned).collect();
        let findings = check(&rows, &members, &[]);
        assert_eq!(findings.len(), 3);
        assert!(findings[0].message.contains("crates/new"));
        assert!(findings[1].message.contains("crates/dendra"));
        assert!(findings[2].message.contains("xtask"));
    }

    #[test]
    fn cargo_metadata_is_understood() {
        let metadata = serde_json::json!({
            "workspace_root": "/r",
            "packages": [{
                "manifest_path": "/r/crates/engine/Cargo.toml",
                "dependencies": [
                    { "name": "dendra-base", "path": "/r/crates/base", "kind": null },
                    { "name": "proptest", "kind": "dev" },
                ],
            }],
        });
        let (members, edges) = parse(&metadata).expect("the sample has cargo's shape");
        assert_eq!(members.into_iter().collect::<Vec<_>>(), ["crates/engine"]);
        assert_eq!(edges[0].to_folder.as_deref(), Some("crates/base"));
        assert!(edges[1].is_for_tests && !edges[0].is_for_tests);
    }
}
