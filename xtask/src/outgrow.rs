//! `make outgrow-cassandra`: a server of Cassandra with a front door, to try the README with.
//!
//! ```text
//! Cassandra, 127.0.90.1:9042 ◄── dendra serve --store cassandra://… , 127.0.0.1:8080, until Ctrl-C
//! ```
//!
//! Invariants
//! 1. The records are gone at the end: the server's folder is a temporary one.
//!
//! Not here: fetching its jars (`make outgrow-setup`).
//! See: docs/stores.md.

#[path = "../../crates/dendra/tests/support/cassandra.rs"]
#[allow(dead_code, reason = "tests kill servers, too")]
mod cassandra;

use cassandra::{Cassandra, QUICK};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The third number of its address: tests use others.
const BLOCK: u8 = 90;

/// The binary that make has built, where cargo was told to build: two folders above this program.
fn door(root: &Path) -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.ancestors().nth(2).map(Path::to_path_buf);
    let target = target.unwrap_or_else(|| root.join("target"));
    target.join("release/dendra")
}

/// Serves until the front door ends. True when it ended by a signal or an order.
pub(crate) fn run(root: &Path) -> bool {
    eprintln!("Cassandra starts: this takes half a minute");
    // The second variant of Paxos: the one to take for a front door.
    let variant = "paxos_variant: v2\n";
    let Some(cassandra) = Cassandra::start_with(BLOCK, 1, &QUICK, variant) else {
        return false;
    };
    let store = cassandra.store("dendra", 1);
    eprintln!("in front of {store}; the records are gone at the end");
    let mut front = Command::new(door(root));
    // It names the jars; the front door would take it for an option that it does not know.
    let front = front.env_remove("DENDRA_CASSANDRA");
    let front = front.args(["serve", "--store", &store]).status();
    match front {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("dendra does not start: {error}");
            false
        }
    }
}
