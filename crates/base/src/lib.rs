//! The nouns that every other crate of Dendra shares: keys, cells, versions, seeded randomness.
//!
//! ```text
//! key.rs      Space, Key        bytes that name a record, behind one byte that names its space
//! version.rs  Version           the one order in which two copies of a record are compared
//! cell.rs     Cell, CellRef     a record of a key: version, kind, copies, expiry, checksum, value
//! touch.rs    Touch             a cell that has the value of an earlier version, and not its bytes
//! condition.rs Condition, Guard the rules under which a write happens
//! peer.rs     Ask, Answer       questions and answers of members of a cluster
//! quorum.rs   Quorum            how many copies, how many answers, and their promise
//! receipt.rs  Durability, Known the achievement of an operation, or the state after a failure
//! clock.rs    Now               time as the world tells it, and values of hybrid clocks
//! pressure.rs Pressure, Stop    how close an engine is to a limit
//! direction.rs Direction        of a walk over keys
//! hex.rs                        hexadecimal digits
//! release.rs  ClusterVersion    what a release knows, and what a cluster uses of it
//! prng.rs     Prng              seeded randomness for tests, simulation and workloads
//! workload/   Workload          the requests of clients, as a seeded value
//! limits.rs                     sizes that all crates agree on
//! ```
//!
//! Invariants
//! 1. No code here does I/O, reads a clock, or draws from the operating system's randomness.
//! 2. A type lives here only when at least two crates need it.
//!
//! Not here: policy of any kind; formats of whole files (crate `engine`) or of messages (crate
//! `wire`).
//! See: ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod cell;
pub mod clock;
pub mod condition;
pub mod direction;
pub mod hex;
pub mod key;
pub mod limits;
pub mod peer;
pub mod pressure;
pub mod prng;
pub mod quorum;
pub mod receipt;
pub mod release;
pub mod touch;
pub mod version;
pub mod workload;

pub use cell::{Cell, CellId, CellRef, Kind};
pub use clock::Now;
pub use condition::{Condition, Guard};
pub use direction::Direction;
pub use key::{Key, Space};
pub use pressure::{Pressure, Stop};
pub use prng::Prng;
pub use quorum::{BadQuorum, Consistency, Quorum};
pub use receipt::{Durability, Known};
pub use release::{ClusterVersion, ClusterVersions};
pub use touch::Touch;
pub use version::{LeastSuccessor, Version};
pub use workload::Workload;
