//! The lab: load that tells the truth about any HTTP store, and the record of what was seen.
//!
//! ```text
//! schedule ─► driver ─► recorder ─► run.json ─► summary, page, compare
//! ```
//!
//! Invariants
//! 1. Every planned request is accounted for exactly once; none leaves the picture.
//!
//! Not here: what a request asks for (`dendra_base::workload`), the command line (crate `dendra`).
//! See: docs/lab/run-json.md.

pub mod report;
pub mod run;

pub use run::Run;
