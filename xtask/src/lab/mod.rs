//! Measurements with the release binary: `make bench`, the check of the instrument, the studies.
//!
//! ```text
//! place.rs   folders, cores, programs          node.rs    servers as processes
//! run.rs     one `dendra bench`, its figures   report.rs  a dated report under docs/lab
//!
//! first.rs         make bench               PUT and GET of a fresh node, one page
//! check.rs         make lab-check           beside wrk, oha, k6 (foreign.rs); a frozen server
//! others.rs        make lab-others          nginx and redis behind webdis, by templates
//! pool.rs          make study-pool          workers and queue of the store pool
//! connections.rs   make study-connections   1 to 1024 connections
//! cluster.rs       make study-cluster       what a hop and a quorum cost
//! overload.rs      make study-overload      beyond the knee of a share of a core (share.rs)
//! ```
//!
//! Invariants
//! 1. Servers and generators run on different cores where there are two.
//! 2. Every process that was started is gone at the end, and was ended by its id.
//! 3. Figures come from `run.json` and `/proc`; nothing is typed in.
//!
//! Not here: measuring itself (`crates/lab`), rows beside nginx and redis (`bench/`).
//! See: docs/lab/README.md.

mod check;
mod cluster;
mod connections;
mod cost;
mod delays;
mod first;
mod foreign;
mod node;
mod others;
mod overload;
mod place;
mod pool;
mod report;
mod run;
mod share;

use place::{Options, Place};
use std::path::Path;

/// What a task of the lab returns: did what it shows hold? The error is a sentence.
type Held = Result<bool, String>;

/// Runs the task `name` of the lab; true when what it has to show held.
pub(crate) fn run(root: &Path, name: &str, arguments: &[String]) -> bool {
    let task: fn(&Place) -> Held = match name {
        "bench" => first::run,
        "lab-check" => check::run,
        "lab-others" => others::run,
        "study-pool" => pool::run,
        "study-cluster" => cluster::run,
        "study-overload" => overload::run,
        _ => connections::run,
    };
    let own: &[&str] = match name {
        "study-overload" => &overload::OPTIONS,
        _ => &[],
    };
    let held = Options::parse(arguments, own)
        .and_then(|options| Place::prepare(root, name, options))
        .and_then(|place| {
            let held = task(&place)?;
            place.leave(held);
            Ok(held)
        });
    held.unwrap_or_else(|sentence| {
        eprintln!("{name}: {sentence}");
        false
    })
}
