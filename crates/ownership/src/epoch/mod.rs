//! Epochs: the topology of a cluster whose members change, one after the other.
//!
//! ```text
//! record/         EpochRecord   all that the members agree on in one epoch
//! succession.rs   succeeds      which epoch may follow which
//! chain/          Chain         a member's part in choosing the next one, and its fence
//! drive.rs        next_step     from a plan under way to the next epoch
//! ```
//!
//! Not here: which moves a plan has (`ring/plan/`), orders and their answers (`steward/`).
//! See: docs/protocol.md, "Changes of members", docs/format/epochs.md.

pub mod chain;
pub mod drive;
pub mod record;
pub mod succession;
pub mod why_not;
