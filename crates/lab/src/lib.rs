//! The lab: load that tells the truth about any HTTP store, and the record of its answers.
//!
//! ```text
//! schedule ─► driver ─► recorder ─► run.json ─► summary, page, compare
//! ```
//!
//! Invariants
//! 1. Every planned request is accounted for exactly once; none leaves the picture.
//!
//! Not here: the content of requests (`dendra_base::workload`), the command line (crate `dendra`).
//! See: docs/lab/run-json.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod address;
pub mod ammo;
pub mod driver;
pub mod experiment;
pub mod limits;
pub mod machine;
pub mod recorder;
pub mod report;
pub mod run;
pub mod sampler;
pub mod schedule;
pub mod search;
pub mod slo;
pub mod source;
pub mod summary;
pub mod template;
pub mod verdict;

pub use run::Run;
