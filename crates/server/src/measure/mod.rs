//! What a node counts and times about itself, and its profiles: below all that is measured.
//!
//! ```text
//! metrics.rs   counters of a loop, of threads and of peers     tally.rs    histograms, and labels
//! stages.rs    parts of a request's life, sampled              profile/    CPU, wall, memory, locks
//! ```
//!
//! Not here: pages and names (`admin/`).
//! See: docs/operating.md, docs/lab/profiles.md.

pub(crate) mod metrics;
pub(crate) mod profile;
pub(crate) mod stages;
pub(crate) mod tally;
