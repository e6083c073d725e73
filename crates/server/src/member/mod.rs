//! The own member of a cluster: its node on each loop, what its loops share, and its identity.
//!
//! ```text
//! agent.rs     one loop's node: Event ─► turn ─► Effect       cluster.rs   state of all loops
//! own_link.rs  a way of questions to a peer: conduit.rs with frames, pool.rs over plain HTTP
//! askers.rs    the peers that ask a loop                      session.rs   those over plain HTTP
//! own.rs       which member this is                          epochs.rs    the newest epoch
//! links.rs     secrets, sessions, counters of links         upkeep.rs    hints, comparisons, repairs
//! handshake.rs the asker's half of a handshake                carrier.rs   over plain HTTP
//! hello_maker.rs   which process made a hello                 secrets.rs   the secrets that are valid
//! join.rs      a process asks to become a member
//! door.rs      the ways to the steward, orders.rs: orders of operators, plan_watch.rs: plans that wait
//! former.rs    members that do not know their move yet        looks.rs     looks for copies that differ
//! owners.rs    the cluster as threads of the disk know it
//! strangers.rs warnings about processes that are not let in
//! link_log.rs  one line of the log for an event of a peer, however many loops see it
//! ```
//!
//! Invariants
//! 1. No event loop is known here: an agent reaches its loop through `AgentWorld`.
//!
//! Not here: links as tasks of a loop (`peers/`), decisions (crates `node` and `ownership`).
//! See: docs/peer.md.

pub(crate) mod agent;
pub(crate) mod askers;
pub(crate) mod carrier;
pub(crate) mod cluster;
pub(crate) mod conduit;
pub(crate) mod door;
pub(crate) mod epochs;
pub(crate) mod former;
pub(crate) mod handshake;
pub(crate) mod hello_maker;
pub(crate) mod join;
pub(crate) mod link_log;
pub(crate) mod links;
pub(crate) mod looks;
pub(crate) mod orders;
pub(crate) mod own;
pub(crate) mod own_link;
mod owners;
pub(crate) mod plan_watch;
pub(crate) mod pool;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod strangers;
pub(crate) mod upkeep;

pub(crate) use agent::Agent;
pub(crate) use cluster::{Cluster, StartGate, routes};
pub(crate) use join::join;
pub(crate) use links::PeerGauges;
pub(crate) use looks::{LookSeen, LookState};
pub(crate) use orders::{NoSteward, Orders};
