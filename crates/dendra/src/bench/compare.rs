//! `dendra bench compare`: runs from their folders, a verdict to stdout, a page to a file.
//!
//! ```text
//! RUN = folder with run.json | run.json | folder of such folders ─► sides ─┬─ text on stdout
//!                                                                          └─ page in --out
//! ```
//!
//! Invariants
//! 1. One run that cannot be read ends it before anything is written: a comparison has all its
//!    sides.
//! 2. A folder of runs is one side in the order of the names inside.
//!
//! Not here: figures, judgement, drawing (crate `lab`).
//! See: docs/lab/run-json.md.

use super::flags::Compare;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use dendra_lab::report::{Side, render_sides, say_sides, sides};
use dendra_lab::run::Run;
use std::path::{Path, PathBuf};

/// Compares.
pub(super) fn compare(args: &Compare, console: Console) -> ExitResult {
    let mut groups = Vec::new();
    let mut seen = Vec::new();
    for path in &args.runs {
        // A missing path is told when it is read.
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        if seen.contains(&place) {
            return Err(Failure::usage(format!(
                "{} is named twice; a run compared with itself says nothing",
                path.display()
            )));
        }
        seen.push(place);
        groups.push(Group::read(path)?);
    }
    let sides = grouped(groups);
    if sides.len() < 2 {
        return Err(Failure::usage(
            "that is one run; give two or more to compare",
        ));
    }
    let page = render_sides(&sides);
    std::fs::write(&args.out, page)
        .map_err(|e| Failure::output(&args.out.display().to_string(), &e))?;
    console.note(&format!("the page is {}", args.out.display()));
    ops::print(say_sides(&sides).as_bytes())?;
    let useless = |side: &&Side| !side.runs.iter().any(|run| run.verdict.is_valid());
    match sides.iter().find(useless) {
        None => Ok(Exit::OK),
        Some(side) => Err(Failure::new(
            Exit::INVALID,
            format!(
                "{} has no valid run; its figures must not be used",
                side.name
            ),
        )),
    }
}

/// The runs of one argument.
struct Group {
    name: String,
    runs: Vec<Run>,
    is_folder_of_runs: bool,
}

impl Group {
    fn read(path: &Path) -> Result<Group, Failure> {
        let below = if path.is_dir() && !path.join("run.json").is_file() {
            runs_below(path)
                .map_err(|e| unreadable(path, &format!("the folder cannot be read ({e})")))?
        } else {
            Vec::new()
        };
        let is_folder_of_runs = !below.is_empty();
        let paths = if is_folder_of_runs {
            below
        } else {
            vec![path.to_owned()]
        };
        let read = |run: &PathBuf| Run::read(run).map_err(|e| unreadable(run, &e.to_string()));
        Ok(Group {
            name: path.display().to_string(),
            runs: paths.iter().map(read).collect::<Result<_, _>>()?,
            is_folder_of_runs,
        })
    }
}

/// Folders below `path` that hold a `run.json`, sorted by name.
fn runs_below(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let below = entry?.path();
        if below.join("run.json").is_file() {
            found.push(below);
        }
    }
    found.sort();
    Ok(found)
}

/// One argument, one side, as soon as one of them is a folder of runs; else by the commands that
/// they ran.
fn grouped(groups: Vec<Group>) -> Vec<Side> {
    if groups.iter().any(|group| group.is_folder_of_runs) {
        let side = |group: Group| Side {
            name: group.name,
            runs: group.runs,
        };
        return groups.into_iter().map(side).collect();
    }
    let runs: Vec<Run> = groups.into_iter().flat_map(|group| group.runs).collect();
    sides(&runs)
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("{}: {why}", path.display()))
}
