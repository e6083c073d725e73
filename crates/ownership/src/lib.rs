//! Who is a member, and who owns which key: as plain values and plain functions, driven from
//! outside.
//!
//! ```text
//! member.rs     MemberIndex        members by number
//! topology/     Topology, Member   the table that all nodes of a cluster agree on
//! ring/         Ring, Partition    which members own which key
//! epoch/        EpochRecord        the topology when members change, and the votes about it
//! layout.rs     Layout, Fence      members and owners of one epoch, with positions that move
//! sources.rs    Sources            which owners a new owner must load from
//! membership/   Membership         which process may be which member; a start until it is ready
//! steward/      Steward            changes of the members: orders, plans, epochs, for a process
//! confirmed.rs  Confirmed          a member's word that horizons may rise
//! loss.rs       RepairLoss         a loss that an operator can accept
//! limits.rs                        the numbers of the above, with their reasons
//! ```
//!
//! Invariants
//! 1. No I/O, no clock, no randomness, no thread: time is an argument.
//! 2. Values that exist are valid: a `Topology` has been checked.
//!
//! Not here: operations of clients, copies and their repair (crate `node`), bytes on disk (crate
//! `engine`), worlds (crates `server`, `sim`).
//! See: docs/protocol.md, ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod confirmed;
pub mod epoch;
pub mod layout;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
pub mod limits;
pub mod loss;
pub mod member;
pub mod membership;
pub mod ring;
pub mod sources;
pub mod steward;
pub mod topology;

pub use layout::{Fence, Layout, Twin};
pub use member::MemberIndex;
pub use membership::Membership;
pub use ring::{Partition, Ring};
pub use steward::Steward;
pub use topology::{BadMember, BadTopology, Member, Topology};
