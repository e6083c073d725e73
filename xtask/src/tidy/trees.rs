//! One shape for module trees: a module with parts is `name/mod.rs`, its tests are `name/tests.rs`.
//!
//! ```text
//! name.rs                     a module without parts; short tests inside
//! name/mod.rs, name/part.rs   a module with parts
//! name/mod.rs, name/tests.rs  a module with long tests
//! ```
//!
//! Invariants
//! 1. Every crate has this one shape; no list excepts one.
//!
//! Not here: where files of `tests/` stand, which cargo decides.
//! See: docs/style.md.

use super::finding::Finding;
use super::tree::Tree;

const RULE: &str = "trees";

/// Modules of another shape.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in &tree.paths {
        let Some((folder, name)) = path.split_once("/src/") else {
            continue;
        };
        let Some(stem) = name.strip_suffix(".rs") else {
            continue;
        };
        let message = if tree
            .paths
            .binary_search(&format!("{folder}/src/{stem}/"))
            .is_ok()
        {
            format!("has parts: move it to {stem}/mod.rs")
        } else if let Some(tested) = stem.strip_suffix("_tests") {
            format!("move it to {tested}/tests.rs, and {tested}.rs to {tested}/mod.rs")
        } else {
            continue;
        };
        findings.push(Finding::new(path, 0, RULE, message));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> Vec<String> {
        let mut paths: Vec<String> = files.iter().map(|path| (*path).to_owned()).collect();
        for file in files {
            let folders = file.match_indices('/');
            paths.extend(folders.map(|(at, _)| file[..=at].to_owned()));
        }
        paths.sort();
        paths.dedup();
        let texts = Vec::new();
        let findings = check(&Tree { texts, paths });
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_beside_the_folder_of_its_parts_is_found() {
        let good = [
            "crates/x/src/lib.rs",
            "crates/x/src/a/mod.rs",
            "crates/x/src/a/b.rs",
        ];
        assert_eq!(found(&good), [""; 0]);
        let bad = found(&["crates/x/src/a.rs", "crates/x/src/a/b.rs"]);
        assert_eq!(
            bad,
            ["crates/x/src/a.rs:0: [trees] has parts: move it to a/mod.rs"]
        );
    }

    #[test]
    fn tests_beside_their_module_are_found() {
        assert_eq!(
            found(&["crates/x/src/a/tests.rs", "crates/x/tests/a_tests.rs"]),
            [""; 0]
        );
        assert_eq!(found(&["crates/x/src/a_tests.rs"]).len(), 1);
    }
}
