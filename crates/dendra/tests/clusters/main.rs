//! Clusters of real processes, and their members that come, go and differ.
//!
//! One binary, for each one links all that the tests have in common.
//!
//! Not here: faults under load (`cluster.rs`), and tests that wait for minutes (`forget.rs`,
//! `loss.rs`, `rot.rs`).

mod changes;
mod clock;
mod explain;
mod grow;
mod heal;
mod health;
mod kill;
mod lagging;
mod looks;
mod members;
mod small_disk;
#[path = "../support/mod.rs"]
mod support;
mod watch;
