//! Makes a patch of the changes of sources that are not committed, and takes these back.
//!
//! ```text
//! git diff -- crates/*/src ─► NAME.patch of crates/sim/planted ─► git apply --reverse
//! ```
//!
//! Invariants
//! 1. A change is taken back only when the patch that holds it is on the disk.
//! 2. A patch that is recorded anew keeps its sentence and its finders.
//!
//! Not here: looking for finders (`cargo xtask planted --search`).

use super::patch::{Plant, halves};
use super::patches::{FOLDER, stale};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The files that patches change. A pattern without `**` names folders, and git finds no file in
/// them.
const SOURCES: &str = ":(glob)crates/*/src/**";

/// Lines around a change: as few as make its place the only one.
const AROUND: [&str; 7] = ["-U1", "-U2", "-U3", "-U5", "-U8", "-U12", "-U20"];

pub(crate) fn record(root: &Path, name: &str) -> Result<(), String> {
    let path = root.join(FOLDER).join(format!("{name}.patch"));
    let head = match fs::read_to_string(&path) {
        Ok(before) => {
            let (_, diff) = halves(&before);
            before[..before.len() - diff.len()].to_owned()
        }
        Err(_) => "A sentence: which actor does what against which rule.\n\n".to_owned(),
    };
    let committed = |file: &str| git(root, &["show", &format!("HEAD:{file}")]).ok();
    let diff = |around: &&str| {
        let diff = git(root, &["diff", "HEAD", around, "--", SOURCES])?;
        Ok::<_, String>(format!("{head}{}", without_index(&diff)))
    };
    let mut text = String::new();
    for around in &AROUND {
        text = diff(around)?;
        let plant = Plant::parse(name, &text)?;
        let is_placed = plant.files.iter().all(|file| {
            let of_file = committed(&file.path).unwrap_or_default();
            file.is_placed(&of_file.lines().collect::<Vec<_>>())
        });
        if is_placed {
            break;
        }
    }
    let texts = std::iter::once((name.to_owned(), text.clone()));
    if let Some(why) = stale(texts, committed).into_iter().next() {
        return Err(why);
    }
    fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
    git(root, &["apply", "--reverse", &path.to_string_lossy()])?;
    println!(
        "{} holds the changes, and the sources are as they were;\n\
         write its sentence, then: cargo xtask planted --search {name}",
        path.display()
    );
    Ok(())
}

/// Names of blobs would change with every commit.
fn without_index(diff: &str) -> String {
    let lines = diff.lines();
    let lines = lines.filter(|line| !line.starts_with("index ") && !line.starts_with("diff "));
    lines.map(|line| format!("{line}\n")).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output();
    let output = output.map_err(|error| format!("git does not start: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("git {}: {}", arguments.join(" "), said.trim()))
    }
}
