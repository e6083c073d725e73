//! Measurements with the release binary: `make bench`, the check of the instrument, the yardsticks,
//! the studies.
//!
//! ```text
//! place.rs   folders, cores, programs          store/     one way to start, load, stop (proc.rs: /proc)
//! run.rs     one `dendra bench`, its figures   report.rs  a dated report under docs/lab (goals.rs, stats.rs)
//!
//! first.rs         make bench               PUT and GET of a fresh node, one page
//! check.rs         make lab-check           beside wrk, oha, k6 (foreign.rs); a frozen server
//! cluster.rs       make study-cluster       what a hop and a quorum cost
//! members.rs       make study-members       members come and go; a cluster at rest; 20 members
//! engines.rs       make study-engines       YCSB A to F, beside etcd and Cassandra
//! overload/        make study-overload      beyond the knee of a share of a core (share.rs)
//! yardsticks/      make yardsticks          beside nginx, redis, hyper (hyper_map.rs), the floor (echo.rs)
//! ```
//!
//! Invariants
//! 1. Servers and generators run on different cores where there are two.
//! 2. Every process that was started is gone at the end, and was ended by its id.
//! 3. Figures come from `run.json` and `/proc`; none is typed in.
//!
//! Not here: measuring itself (`crates/lab`). The product does not depend on this package.
//! See: docs/lab/README.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

mod check;
mod cluster;
mod cost;
mod counters;
mod delays;
mod echo;
mod engines;
mod first;
mod foreign;
mod goals;
mod hyper_map;
mod members;
mod overload;
mod place;
mod proc;
mod report;
mod run;
mod share;
mod stats;
mod store;
mod tables;
mod yardsticks;

use place::{Held, Options, Place};
use std::path::Path;
use std::process::ExitCode;

// As in the product: hyper must not lose to an allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: dendra-studies <task> [--seconds N] [--binary FILE] [--out FOLDER] [--date YYYY-MM-DD]

  bench               PUT and GET of a fresh node, as pages in runs/
  lab-check           the instrument beside wrk, oha and k6; report under docs/lab
  study-cluster       what a hop and a quorum cost; report under docs/lab
  study-members       members come and go, copies are compared, 3 to 20 members; report under docs/lab
      [--keys N] [--compare-keys N] [--members N] [--parts idle,replace,night,join,compare,scale]
  study-engines       YCSB A to F: three members, etcd, Cassandra; report under docs/lab
      [--keys N] [--connections N] [--stores members,etcd,cassandra] [--workloads a,b,…] [--paxos v1|v2]
  study-overload      beyond the knee of a share of a core, as root; report under docs/lab
      [--share 0.25|off] [--connections N,…] [--timeouts 100ms,…] [--parts NAME,…] [--rounds N]
  yardsticks          beside nginx, redis, hyper and the floor; report under docs/lab
      [--rows get,put-os,put-sync,tail,big] [--rounds N] [--connections N] [--keys N]
      [--big-keys N] [--serve OPTION,…]
";

/// A task, and the options that only it has.
type Task = (fn(&Place) -> Held, &'static [&'static str]);

fn task(name: &str) -> Option<Task> {
    Some(match name {
        "bench" => (first::run, &[]),
        "lab-check" => (check::run, &[]),
        "study-cluster" => (cluster::run, &[]),
        "study-members" => (members::run, &members::OPTIONS),
        "study-engines" => (engines::run, &engines::OPTIONS),
        "study-overload" => (overload::run, &overload::OPTIONS),
        "yardsticks" => (yardsticks::run, &yardsticks::OPTIONS),
        _ => return None,
    })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, words)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    let held = match (name.as_str(), words) {
        ("help" | "--help" | "-h", _) => {
            print!("{USAGE}");
            Ok(true)
        }
        // The two servers of the yardsticks that are ours.
        ("echo", [status, body_bytes]) => echo::serve(status, body_bytes).map(|()| true),
        ("hyper-map", []) => hyper_map::serve().map(|()| true),
        _ => match task(name) {
            Some(task) => run(name, words, task),
            None => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
        },
    };
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("{name}: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a task; true when its claims held.
fn run(name: &str, words: &[String], (task, own): Task) -> Held {
    let options = Options::parse(words, own)?;
    let place = Place::prepare(&root(), name, options)?;
    let held = task(&place)?;
    place.leave(held);
    Ok(held)
}

/// The folder of the workspace: the parent of this package's.
fn root() -> std::path::PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent();
    root.expect("this package lives one folder below the workspace")
        .to_owned()
}
