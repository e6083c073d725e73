//! The two programs of the check.
//!
//! ```text
//! UPGRADE_FROM=COMMIT | the newest tag v* | FIRST ─► git worktree target/upgrade/from ─► bin/before
//! this tree, --features next-version                                                ─► bin/next
//! ```
//!
//! Invariants
//! 1. Both are built into the one target folder: their common parts are built once.
//!
//! Not here: the use of the builds (`mod.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release before, until there is a tag: a commit from which everything that is finalized can
/// be told.
const FIRST: &str = "565d4081477e58cfd55f51ecddc55915f0b3863b";

/// The two programs.
pub(super) struct Builds {
    pub(super) before: PathBuf,
    pub(super) next: PathBuf,
}

impl Builds {
    /// Builds both.
    pub(super) fn make(root: &Path, place: &Path) -> Result<Builds, String> {
        let (from, why) = from(root);
        let commit = git(
            root,
            &["rev-parse", "--verify", &format!("{from}^{{commit}}")],
        )?;
        println!("the release before is {from} ({commit}): {why}");
        let bin = place.join("bin");
        fs::create_dir_all(&bin).map_err(|e| format!("{}: {e}", bin.display()))?;
        let tree = place.join("from");
        check_out(root, &tree, &commit)?;
        let target = root.join("target");
        let before = bin.join("before");
        build(&tree, &target, &[], &before)?;
        let next = bin.join("next");
        let features = ["--features", "next-version"];
        build(root, &target, &features, &next)?;
        Ok(Builds { before, next })
    }
}

/// The commit of the release before, and the reason for it.
fn from(root: &Path) -> (String, &'static str) {
    if let Ok(named) = std::env::var("UPGRADE_FROM")
        && !named.is_empty()
    {
        return (named, "UPGRADE_FROM names it");
    }
    match git(root, &["describe", "--tags", "--abbrev=0", "--match", "v*"]) {
        Ok(tag) => (tag, "it is the newest tag"),
        Err(_) => (
            FIRST.to_owned(),
            "there is no release yet, so a commit stands for it (UPGRADE_FROM names another one)",
        ),
    }
}

/// A work tree of the commit; one that is there keeps its times, so that little is built again.
fn check_out(root: &Path, tree: &Path, commit: &str) -> Result<(), String> {
    if git(tree, &["rev-parse", "HEAD"]).is_ok_and(|head| head == commit) {
        return Ok(());
    }
    let name = tree.display().to_string();
    if tree.exists() {
        git(root, &["worktree", "remove", "--force", &name])?;
    }
    // One whose folder was removed by hand.
    git(root, &["worktree", "prune"])?;
    git(root, &["worktree", "add", "--detach", &name, commit]).map(|_| ())
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let ran = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .map_err(|e| format!("git does not start: {e}"))?;
    if ran.status.success() {
        Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    } else {
        Err(format!(
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&ran.stderr).trim()
        ))
    }
}

fn build(tree: &Path, target: &Path, features: &[&str], to: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--locked", "--package", "dendra"])
        .args(features)
        .env("CARGO_TARGET_DIR", target)
        // Of the task that runs this one: they would name its package.
        .env_remove("CARGO_MANIFEST_DIR")
        .current_dir(tree)
        .status()
        .map_err(|e| format!("cargo does not start: {e}"))?;
    if !built.success() {
        return Err(format!("{} cannot be built", tree.display()));
    }
    let made = target.join("debug/dendra");
    // A program that still runs cannot be written over.
    match fs::remove_file(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {e}", to.display()));
        }
        _ => {}
    }
    let copied = fs::copy(&made, to);
    copied.map_err(|e| format!("{}: {e}", made.display()))?;
    Ok(())
}
