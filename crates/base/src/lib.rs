//! The nouns that every other crate of Dendra shares: keys, cells, versions, seeded randomness.
//!
//! ```text
//! key.rs      Space, Key        bytes that name a record, behind one byte that names its space
//! version.rs  Version           the one order in which two copies of a record are compared
//! cell.rs     Cell, CellRef     what a key holds: version, kind, copies, expiry, checksum, value
//! peer.rs     Ask, Answer       what members of a cluster say to each other
//! quorum.rs   Quorum            how many copies, how many answers, and what that promises
//! prng.rs     Prng              seeded randomness for tests, simulation and workloads
//! workload.rs Workload          what clients do, as a seeded value
//! limits.rs                     sizes that all crates agree on
//! ```
//!
//! Invariants
//! 1. Nothing here does I/O, reads a clock, or draws from the operating system's randomness.
//! 2. A type lives here only when at least two crates need it.
//!
//! Not here: policy of any kind; formats of whole files (crate `engine`) or of messages (crate
//! `wire`).
//! See: ARCHITECTURE.md.

pub mod cell;
pub mod key;
pub mod limits;
pub mod peer;
pub mod prng;
pub mod quorum;
pub mod version;
pub mod workload;

pub use cell::{Cell, CellId, CellRef, Kind};
pub use key::{Key, Space};
pub use prng::Prng;
pub use quorum::{BadQuorum, Consistency, Quorum};
pub use version::Version;
pub use workload::Workload;
