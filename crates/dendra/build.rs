//! Which commit the binary is built from, for `--version`-like facts in `run.json`.
//!
//! ```text
//! BUILD_COMMIT in the environment ─► as it is      git is there ─► HEAD, `+` when the sources differ from it
//! neither                          ─► unknown
//! ```
//!
//! Invariants
//! 1. The build never fails for want of git, and asks again when a source, the manifest or HEAD
//!    changed.
//! 2. No variable here begins with `DENDRA_`: `cargo run` hands them on, and a program that is
//!    started refuses options that it does not know.
//!
//! Not here: printing it (`src/bench/`).

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new("../..");
    println!("cargo:rerun-if-env-changed=BUILD_COMMIT");
    for source in ["crates", "Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    // In a worktree these are elsewhere, and git knows where; a file that is not there would run
    // this always.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(root, &["rev-parse", "--git-path", name]);
        let path = path.map(|path| root.join(PathBuf::from(path)));
        if let Some(path) = path.filter(|path| path.is_file()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let said = std::env::var("BUILD_COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty());
    let commit = said
        .or_else(|| commit(root))
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=BUILT_FROM_COMMIT={commit}");
}

fn commit(root: &Path) -> Option<String> {
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(
        root,
        &[
            "status",
            "--porcelain",
            "--",
            "crates",
            "Cargo.toml",
            "Cargo.lock",
        ],
    )?;
    let mark = if changes.is_empty() { "" } else { "+" };
    Some(format!("{commit}{mark}"))
}

/// What git prints; nothing when it is not there or this is no checkout.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
