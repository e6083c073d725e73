//! Sides of a comparison: a name, and the runs that repeat one measurement.
//!
//! ```text
//! runs ─► the same command, target, instrument, server version ─► one side
//!         all of them the same                                 ─► each run alone
//! ```
//!
//! Invariants
//! 1. The others are compared with the first side; sides come in the order of their first runs.
//!
//! Not here: the figures of a run (`difference.rs`).
//! See: docs/lab/run-json.md.

use super::page::title;
use crate::run::Run;

/// One thing that was measured, with its repeats.
#[derive(Clone, Debug)]
pub struct Side {
    /// The name in legends and tables.
    pub name: String,
    /// Runs of the side, in any order.
    pub runs: Vec<Run>,
}

/// Groups runs. Runs with the same command, apart from `--out` and `--seed`, target and version are
/// repeats of one side. When all are the same, each run is a side of its own.
pub fn sides(runs: &[Run]) -> Vec<Side> {
    let mut sides: Vec<(String, Side)> = Vec::new();
    for run in runs {
        let key = key(run);
        match sides.iter_mut().find(|(known, _)| *known == key) {
            Some((_, side)) => side.runs.push(run.clone()),
            None => sides.push((
                key,
                Side {
                    name: String::new(),
                    runs: vec![run.clone()],
                },
            )),
        }
    }
    let mut sides: Vec<Side> = sides.into_iter().map(|(_, side)| side).collect();
    if sides.len() == 1 {
        let of_one = std::mem::take(&mut sides[0].runs);
        let alone = |run| Side {
            name: String::new(),
            runs: vec![run],
        };
        sides = of_one.into_iter().map(alone).collect();
    }
    name(&mut sides);
    sides
}

/// Names sides by a letter and by the facts that tell them apart.
fn name(sides: &mut [Side]) {
    let facts: [fn(&Run) -> String; 4] = [
        title,
        |run| {
            run.tool
                .commit
                .as_ref()
                .map_or(String::new(), |commit| format!("commit {commit}"))
        },
        |run| {
            run.servers
                .first()
                .and_then(|s| s.status[0]["version"].as_str())
                .map_or(String::new(), |v| format!("server {v}"))
        },
        |run| {
            if run.is_cut {
                "cut short".to_owned()
            } else {
                String::new()
            }
        },
    ];
    let told: Vec<Vec<String>> = sides
        .iter()
        .map(|side| {
            facts
                .map(|fact| side.runs.first().map_or(String::new(), fact))
                .to_vec()
        })
        .collect();
    for (at, side) in sides.iter_mut().enumerate() {
        let mut words = vec![char::from(b'A' + (at % 26) as u8).to_string()];
        let differing = (0..facts.len())
            .filter(|fact| told.iter().any(|other| other[*fact] != told[at][*fact]));
        words.extend(
            differing
                .map(|fact| told[at][fact].clone())
                .filter(|word| !word.is_empty()),
        );
        side.name = words.join(", ");
    }
}

fn key(run: &Run) -> String {
    let mut words = Vec::new();
    let mut is_value = false;
    for word in &run.command {
        if is_value {
            is_value = false;
        } else if word == "--out" || word == "--seed" {
            is_value = true;
        } else if !word.starts_with("--out=") && !word.starts_with("--seed=") {
            words.push(word.as_str());
        }
    }
    let urls: Vec<&str> = run.targets.iter().map(|t| t.url.as_str()).collect();
    let versions = run
        .servers
        .iter()
        .map(|server| server.status[0]["version"].to_string());
    format!(
        "{words:?} {urls:?} {:?} {:?}",
        run.tool,
        versions.collect::<Vec<_>>()
    )
}
