//! `make yardsticks`: the cost of a request to Dendra, beside servers that do less, in one run.
//!
//! ```text
//! round 1   A B C    round 2   B C A    round 3   C A B      every round sees the same weather
//!
//! paired.rs   get, put-os, put-sync    CPU for a request beside echo, nginx, hyper, redis
//! tail.rs     tail                     p99.9 while flushes and compactions run
//! big.rs      big                      ten million keys with 256 MiB
//! row.rs      variants in turn, round after round     window.rs   one measurement
//! ```
//!
//! Invariants
//! 1. All variants of a row run in turn in every round, each round starting with another one.
//! 2. A goal is judged by the median of the ratios of the rounds, never by figures of two rounds.
//! 3. A yardstick that is not installed is named in the notes of the row.
//! 4. The task fails when a row could not be measured, with any verdicts.
//!
//! Not here: the servers (`node.rs`, `echo.rs`, `hyper_map.rs`), the generator (`crates/lab`).
//! See: docs/lab/README.md.

mod big;
mod paired;
mod row;
mod tail;
mod window;

use crate::goals::Goals;
use crate::place::{Held, Place, find, version};
use crate::report::{self, Report};
use row::{CSV_HEAD, Plan, Row};
use std::fs;
use std::path::Path;

/// Options of this task.
pub(super) const OPTIONS: [&str; 6] = [
    "--rows",
    "--rounds",
    "--connections",
    "--keys",
    "--big-keys",
    "--serve",
];

/// A row: measures, and leaves its findings in the row.
type Measure = fn(&Plan<'_>, &mut Row) -> Result<(), String>;

const ROWS: [(&str, &str, Measure); 5] = [
    ("get", paired::GET, paired::get),
    ("put-os", paired::PUT_OS, paired::put_os),
    ("put-sync", paired::PUT_SYNC, paired::put_sync),
    ("tail", tail::QUESTION, tail::tail),
    ("big", big::QUESTION, big::big),
];

/// Measures the rows that were asked for.
pub(super) fn run(place: &Place) -> Held {
    let plan = Plan::of(place)?;
    let named = place.options.own.get("--rows");
    let mut chosen = Vec::new();
    match named {
        None => chosen.extend(ROWS),
        Some(names) => {
            for name in names.split(',') {
                let row = ROWS.iter().find(|it| it.0 == name);
                let all = ROWS.map(|it| it.0).join(", ");
                chosen.push(*row.ok_or_else(|| format!("--rows {name}: there are {all}"))?);
            }
        }
    }
    let facts = [
        ("data on", disk_of(&place.folder)),
        (
            "TCP congestion control",
            report::file("/proc/sys/net/ipv4/tcp_congestion_control"),
        ),
        ("dendra", version(&place.binary, "--version")),
        ("nginx", installed("nginx", "-v")),
        ("redis", installed("redis-server", "--version")),
    ];
    let question = "What does a request cost one node, beside servers that do less?";
    let title = "One node beside its yardsticks";
    let mut report = Report::new(place, title, question, &facts)?;
    let mut goals = Goals::default();
    let mut csv = String::from(CSV_HEAD);
    let mut failed = 0;
    for (name, asks, measure) in chosen {
        let mut row = Row::new(name);
        report.line(format_args!("\n## `{name}`\n\n{asks}"));
        let measured = measure(&plan, &mut row);
        row.show(&mut report);
        row.write_csv(&mut csv);
        for (what, values, bound) in row.goals {
            goals.add(format!("`{name}`: {what}"), values, bound);
        }
        if let Err(sentence) = measured {
            failed += 1;
            report.line(format_args!(
                "\n**Not measured**: {}",
                sentence.replace('\n', " / ")
            ));
        }
    }
    goals.show(&mut report);
    let path = report.write(place, "one-node")?.with_extension("csv");
    fs::write(&path, csv).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(failed == 0)
}

fn installed(name: &str, flag: &str) -> String {
    let program = find(name, &[]);
    program.map_or_else(
        || "not installed".to_owned(),
        |program| version(&program, flag),
    )
}

/// The type of the file system that holds `folder`.
fn disk_of(folder: &Path) -> String {
    let mounts = procfs::mounts().unwrap_or_default();
    let above = mounts
        .iter()
        .filter(|mount| folder.starts_with(&mount.fs_file));
    let deepest = above.max_by_key(|mount| mount.fs_file.len());
    deepest.map_or_else(|| "unknown".to_owned(), |mount| mount.fs_vfstype.clone())
}
