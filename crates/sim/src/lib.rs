//! A made-up world around real hearts: scheduler, network, disks, clocks, clients, and checkers.
//!
//! ```text
//! draws/       seed, world ─► plan/: cluster, weather, wishes, faults, deeds of an operator, crowds
//! changes.rs, overload.rs  deeds and crowds as values; door/: the lines in front of one loop
//! schedule.rs  what happens next
//! world/       lets it happen; member.rs, decider.rs: one member and what decides in it
//! members/     several processes that say to be one member, with a checker of its own
//! store/       the engine on a disk that crashes, or a map
//! planted.rs   bugs of the shell, to see whether they are found
//! trace.rs     lines, printed or hashed
//! history.rs   the answers to clients; passed.rs: the time that most clocks have passed
//! check/       the rules for it
//! runner.rs    many seeds, failures and how to repeat them; shrink.rs makes them small
//! limits.rs    bounds, with their reasons
//! ```
//!
//! Invariants
//! 1. A seed is a run, byte for byte, on every machine: one thread, no clock, no foreign
//!    randomness.
//! 2. The checked parts are real: the engine, and the node's decisions. Only the shells are made
//!    up.
//!
//! Not here: sockets, threads, HTTP (crate `server`).
//! See: docs/verification.md, ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod changes;
pub mod check;
pub mod decider;
pub mod door;
pub mod draws;
pub mod history;
pub mod limits;
mod machines;
mod member;
pub mod members;
pub mod overload;
mod passed;
mod pending;
pub mod plan;
pub mod planted;
mod process_steward;
pub mod real;
pub mod runner;
pub mod schedule;
pub mod shrink;
pub mod store;
pub mod trace;
mod watchers;
pub mod world;
