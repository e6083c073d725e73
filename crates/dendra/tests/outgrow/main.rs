//! The door in front of real engines of others: the contract, faults, and histories.
//!
//! ```text
//! clients ─► front door 1, front door 2 ─► etcd: one server, or three of which one is killed
//!                                       └► Cassandra: the same
//! all that clients were told ─► the simulator's checker of linearizability
//! dendra conform ─► a front door ─► either       dendra copy: node ─► Cassandra ─► etcd ─► cluster
//! ```
//!
//! Invariants
//! 1. A front door stores no records: two of them answer as one.
//! 2. Versions are the engine's own: the checker that trusts them is for our clusters alone.
//! 3. In a build without a driver, or on a machine without the engine, a test says that it was
//!    skipped.
//!
//! Not here: the queue between door and driver (crate `server`, `tests/front.rs`).
//! See: docs/stores.md.

#[cfg(feature = "cassandra")]
mod cassandra;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "etcd", feature = "cassandra"))]
mod house;
#[path = "../support/mod.rs"]
mod support;

#[cfg(not(feature = "etcd"))]
#[test]
fn a_build_without_the_driver_says_which_build_has_it() {
    eprintln!("SKIPPED: tests with a real etcd are in a build with `--features etcd`");
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "--store", "etcd://127.0.0.1:1/p", "--data"];
    let mut command = support::dendra(arguments);
    let run = support::run(command.arg(folder.path()));
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--features etcd"), "{}", run.stderr);
}

#[test]
fn a_store_goes_with_no_cluster() {
    let mut command = support::dendra([
        "serve",
        "--store",
        "etcd://127.0.0.1:1/p",
        "--cluster",
        "http://127.0.0.1:1",
        "--self",
        "http://127.0.0.1:1",
    ]);
    let run = support::run(&mut command);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    let sentence = "store and cluster do not go together";
    assert!(run.stderr.contains(sentence), "{}", run.stderr);
}
