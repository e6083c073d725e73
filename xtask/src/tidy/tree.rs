//! The files of the workspace, as text.
//!
//! Invariants
//! 1. The tree is walked in sorted order, so that two runs print the same.
//!
//! Not here: one Rust file as the rules see it (`source.rs`).

use std::path::Path;

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

/// Folders that git ignores.
pub(super) const SKIPPED: [&str; 6] = [
    "target",
    "data",
    "runs",
    "node_modules",
    "corpus",
    "artifacts",
];

/// Folders whose files are listed and not read: bytes of released formats.
const LISTED: [&str; 1] = ["fixtures"];

/// Reads the files below `root`.
pub(super) fn read_tree(root: &Path) -> std::io::Result<Tree> {
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
            // A folder in a clone, a file in a worktree: no file of ours either way.
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
