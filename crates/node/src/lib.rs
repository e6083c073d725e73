//! One member's decisions in a cluster: plain values and plain functions, driven from outside.
//!
//! ```text
//! hlc.rs        Hlc                clock values that never go back, below a persisted ceiling
//! walls.rs      Walls              which members' wall clocks agree
//! ended.rs      EndedValues        up to when values have ended for everybody
//! plausible.rs                     whether a message's clock values are a clock's
//! admission/    Gate, admit        which requests enter, which wait a little, which are refused
//! standing/     Line               which request is begun next when the processor is short
//! stacks/       AddressStacks      those requests by the address that they came from
//! outcome.rs    Outcome            the results that a client can get
//! step.rs       Event, Effect      the events that a node takes, and the effects that it orders
//! config.rs     NodeConfig         the settings that a world gives a node when it makes one
//! node/         Node               which machine an event is for
//! coordinator/                     reads, writes, conditions: from the beginning to the outcome
//! write_queues.rs WriteQueues      conditional writes of one key, one after the other
//! disputes.rs   Disputes           two copies under one version that differ: noticed and settled
//! replica/                         how a member answers for its own copies
//! desk.rs, ledger.rs, places.rs    open questions and orders, and where they are kept
//! tally.rs      Tally, Verdict     a round of questions to owners, counted
//! purpose.rs    Purpose, Requester which machine asks a question, and where its answer goes
//! loader.rs     Loader             copies of positions that move to this member (arriving.rs: how far)
//! pace/         LoadPace           how many pages of a load clients can bear
//! feeds.rs      Feeds              questions about this member's changes that wait for some
//! foreground.rs Foregrounds        how clients of all loops fare
//! compare/                         copies of two members, compared and repaired
//! repair/       Repairer           records that this member has lost, from the other owners
//! walk.rs       SourceWalk         the copies of another member, page by page
//! watching.rs   Watching           watches of this loop's clients: a hub, and its orders carried out
//! forgetting.rs Forgetting         does this member confirm its epoch, so that horizons may rise?
//! hints/        Keeper, HintRoom   writes kept for members that did not confirm them
//! account.rs    ReadAccount        how a read was found, for a client that asks
//! health.rs     Health             which peer to ask first, and when to ask another one
//! rounds.rs     RoundStats         how long each round took, for the metrics
//! limits.rs                        the numbers of the above, with their reasons
//! ```
//!
//! Invariants
//! 1. No I/O, no clock, no randomness, no thread: time is an argument.
//! 2. Values that exist are valid: a `Topology` has been checked, a `Permit` was paid for.
//!
//! Not here: bytes on disk (crate `engine`), bytes on the wire and status codes (crates `wire`,
//! `server`), worlds (crates `server`, `sim`).
//! See: docs/protocol.md, docs/overload.md, ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod account;
pub mod admission;
mod arriving;
pub mod compare;
pub mod config;
mod coordinator;
mod desk;
mod disputes;
mod ended;
mod feeds;
pub mod foreground;
pub mod forgetting;
mod health;
pub mod hints;
pub mod hlc;
mod ledger;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
pub mod limits;
mod loader;
pub mod node;
pub mod outcome;
mod pace;
mod places;
mod plausible;
mod purpose;
pub mod repair;
mod replica;
pub mod rounds;
mod stacks;
pub mod standing;
pub mod step;
mod tally;
mod walk;
pub mod walls;
mod watching;
mod write_queues;

pub use admission::{
    Admission, Class, Gate, LineOf, LineTurns, LocalGate, LocalPermit, Permit, RefusedBy,
    WriteLine, WriteRoom, WriteSize, WriteSizes, admit,
};
pub use compare::findings::{CopyDifference, LookOrder, LookReport, PairLook, PairState};
pub use compare::progress::{CompareReport, Comparisons};
pub use config::{CompareConfig, NodeConfig};
pub use ended::EndedValues;
pub use foreground::Foregrounds;
pub use health::PeerHealth;
pub use hints::HintRoom;
pub use hlc::{Hlc, Implausible};
pub use node::Node;
pub use outcome::{Known, Outcome};
pub use rounds::{Round, RoundStats};
pub use standing::Line;
pub use walls::Walls;
