//! A copy of the crates in which functions are switches: a workspace of its own below `target`.
//!
//! ```text
//! target/planted/Cargo.toml      that of the root, its members those of CRATES, without lints
//!             Cargo.lock         the root's
//!             docs               ─► the root's, which sources include
//!             crates/…           copies; changed ones as they were merged
//! ```
//!
//! Invariants
//! 1. A file whose text stays is not written: the artefacts built of it stay good.
//! 2. The copy builds into the root's `target`, beside the product, under other names: a copied
//!    crate has no binaries.
//!
//! Not here: the changes (`merge.rs`).

use super::merge::Merged;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The crates in which bugs are planted, and those that they need.
const CRATES: [&str; 7] = [
    "base",
    "engine",
    "ownership",
    "watch",
    "node",
    "wire",
    "sim",
];

/// The switch of the copy.
const SWITCH: &str = r#"
/// Bugs that are planted in this copy.
pub mod planted {
    use std::sync::OnceLock;

    /// The bug that is switched on for this process: `DENDRA_PLANTED`; 0 = none.
    pub fn bug() -> u32 {
        static BUG: OnceLock<u32> = OnceLock::new();
        *BUG.get_or_init(|| {
            let number = std::env::var("DENDRA_PLANTED");
            number.map_or(0, |number| number.parse().expect("DENDRA_PLANTED is a number"))
        })
    }
}
"#;

/// Writes the copy of the workspace at `root`; its folder.
pub(super) fn write(root: &Path, merged: &Merged) -> Result<PathBuf, String> {
    let to = root.join("target/planted");
    let is_copied = |path: &&String| CRATES.iter().any(|name| path.starts_with(&prefix(name)));
    if let Some(other) = merged.keys().find(|path| !is_copied(path)) {
        return Err(format!(
            "{other} is in no copied crate: CRATES of xtask/src/planted/copy.rs lists them"
        ));
    }
    let failed = |error: io::Error| format!("{}: {error}", to.display());
    let mut kept = BTreeSet::new();
    for name in CRATES {
        copy_folder(root, &to, &prefix(name), merged, &mut kept).map_err(failed)?;
        remove_others(&to, &prefix(name), &kept).map_err(failed)?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml")).map_err(failed)?;
    write_if_changed(&to.join("Cargo.toml"), workspace(&manifest)?.as_bytes()).map_err(failed)?;
    let lock = fs::read(root.join("Cargo.lock")).map_err(failed)?;
    write_if_changed(&to.join("Cargo.lock"), &lock).map_err(failed)?;
    let docs = to.join("docs");
    if !docs.exists() {
        std::os::unix::fs::symlink(root.join("docs"), docs).map_err(failed)?;
    }
    Ok(to)
}

fn prefix(name: &str) -> String {
    format!("crates/{name}/")
}

fn copy_folder(
    root: &Path,
    to: &Path,
    folder: &str,
    merged: &Merged,
    kept: &mut BTreeSet<String>,
) -> io::Result<()> {
    fs::create_dir_all(to.join(folder))?;
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}{name}");
        if entry.file_type()?.is_dir() {
            copy_folder(root, to, &format!("{path}/"), merged, kept)?;
            continue;
        }
        let text = match merged.get(&path) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(entry.path())?,
        };
        let text = match path.as_str() {
            "crates/base/src/lib.rs" => [text, SWITCH.as_bytes().to_vec()].concat(),
            _ if path.ends_with("/Cargo.toml") => without_binaries(&text),
            _ => text,
        };
        write_if_changed(&to.join(&path), &text)?;
        kept.insert(path);
    }
    Ok(())
}

/// Files that the tree no longer has go from the copy as well.
fn remove_others(to: &Path, folder: &str, kept: &BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(to.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            remove_others(to, &format!("{path}/"), kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_if_changed(path: &Path, text: &[u8]) -> io::Result<()> {
    match fs::read(path) {
        Ok(before) if before == text => Ok(()),
        _ => fs::write(path, text),
    }
}

/// A binary of the copy would take the place of the product's.
fn without_binaries(manifest: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(manifest);
    text.replacen("[package]\n", "[package]\nautobins = false\n", 1)
        .into_bytes()
}

/// The root's manifest as that of the copy.
fn workspace(manifest: &str) -> Result<String, String> {
    let failed = |error: toml::de::Error| format!("Cargo.toml: {error}");
    let mut manifest: toml::Table = manifest.parse().map_err(failed)?;
    let workspace = manifest
        .get_mut("workspace")
        .and_then(toml::Value::as_table_mut);
    let workspace = workspace.ok_or("Cargo.toml has no workspace")?;
    let members: Vec<String> = CRATES.iter().map(|name| format!("crates/{name}")).collect();
    workspace.insert("members".to_owned(), members.into());
    workspace.remove("default-members");
    workspace.remove("exclude");
    // Code after a planted `return` is not reached, and the copy is not read.
    let quiet: toml::Table = [("warnings".to_owned(), "allow".into())]
        .into_iter()
        .collect();
    let lints: toml::Table = [("rust".to_owned(), quiet.into())].into_iter().collect();
    workspace.insert("lints".to_owned(), lints.into());
    Ok(manifest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_a_workspace_of_its_own() {
        let text = "[workspace]\nmembers = [\"studies\"]\nexclude = [\"fuzz\"]\n\
                    [workspace.lints.rust]\nunsafe_code = \"deny\"\n[profile.dev]\nopt-level = 1\n";
        let copy: toml::Table = workspace(text)
            .expect("it is a manifest")
            .parse()
            .expect("so is the copy");
        let members = copy["workspace"]["members"].as_array().expect("a list");
        assert_eq!(members.len(), CRATES.len());
        assert!(copy["workspace"].get("exclude").is_none());
        assert_eq!(copy["profile"]["dev"]["opt-level"].as_integer(), Some(1));
        assert!(
            copy["workspace"]["lints"]["rust"]
                .get("unsafe_code")
                .is_none()
        );
    }
}
