//! The one door for people and for continuous integration: `cargo xtask <task>`.
//!
//! ```text
//! ci      what must hold, by door or step       what `make check`, `make test`, `make prove` run
//! tidy    the rules of the house that no compiler knows            seconds
//! planted bugs that patches put in, each of which a test must notice   a minute or two
//! sim     seeds of the simulator, any of its options behind it      what `make soak` runs
//! outgrow-cassandra   a Cassandra and a front door                what `make outgrow-cassandra` runs
//! report-look     pages of the lab in a real browser                seconds
//! ```
//!
//! Invariants
//! 1. Every task works from a fresh clone: beside cargo it needs only programs that cargo can
//!    fetch.
//! 2. Exit 0 means that everything held; 1 that something did not; 2 that the task is unknown.
//!
//! Not here: how the product is built or run (`Makefile`), the demonstration and the
//! release as files (`scripts/`), measurements (`studies/`).
//! See: CONTRIBUTING.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

mod built;
mod ci;
mod look;
mod make_run;
mod outgrow;
mod planted;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  ci check|test|prove|STEP…   a door, or some of format, tidy, lints, units, tests, docs, length,
          planted, build, run
  tidy    import table, module headers, file lengths, banned calls, links
  planted [NAME…]: do the tests notice each planted bug; --search, --reseed, --record
  sim     [--seed N [--trace]] [--seeds N] [--minutes N] [--from N]: the cluster in a made-up world
  outgrow-cassandra  a Cassandra with a front door, until Ctrl-C
  report-look [PAGE…]   pages of the lab in a headless chromium, and pictures of them
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let held = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["ci", ..] => ci::run(&root, &arguments[1..]),
        ["tidy"] => tidy::run(&root),
        ["planted", ..] => planted::run(&root, &arguments[1..]),
        ["outgrow-cassandra"] => outgrow::run(&root),
        ["sim", ..] => ci::simulate(&root, &arguments[1..]),
        ["report-look", ..] => look::run(&root, &arguments[1..]),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            true
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The folder of the workspace: the parent of this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("this crate lives one folder below the workspace")
        .to_owned()
}
