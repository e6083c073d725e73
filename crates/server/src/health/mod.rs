//! Is the node well? The list of all findings, and the judgement of its state.
//!
//! ```text
//! NodeFacts ─► judge ─► HealthFinding ─┬─► /v0/health ─► dendra health
//!                                      ├─► dendra_finding{kind, severity}
//!                                      └─► log: WARN when it begins, INFO when it is over
//! ```
//!
//! Invariants
//! 1. A kind has one row, in `finding.rs`: its word, its severity, and the way out.
//! 2. A fact that the node does not know leads to no finding.
//!
//! Not here: where the facts come from (`health_watch.rs`).
//! See: docs/health.md.

mod facts;
mod finding;
mod log;
mod trends;

pub(crate) use facts::{CertificateFact, DamageFacts, MemberFacts, NodeFacts, disk_full, judge};
pub(crate) use finding::HealthFinding;
pub use finding::{HealthKind, Severity};
pub(crate) use trends::HealthCounts;

use dendra_engine::DiskStats;
use log::FindingLog;
use std::sync::Mutex;
use trends::{HealthTrends, TrendWindows};

/// The part of a node's health that needs a memory: trends, and the lines of the log.
#[derive(Debug, Default)]
pub(crate) struct HealthMemory(Mutex<(TrendWindows, FindingLog)>);

impl HealthMemory {
    /// How numbers have changed up to `now_us`.
    pub(crate) fn trends(&self, now_us: u64, counts: &HealthCounts) -> HealthTrends {
        let memory = self.0.lock().expect("no holder panics");
        memory.0.trends(now_us, counts)
    }

    /// Keeps these numbers, and writes the changes of the findings to the log.
    pub(crate) fn note(
        &self,
        (now_us, wall_ms): (u64, u64),
        counts: HealthCounts,
        findings: &[HealthFinding],
    ) {
        let mut memory = self.0.lock().expect("no holder panics");
        memory.0.note(now_us, counts);
        memory.1.look(now_us, wall_ms, findings);
    }

    /// Writes a full disk to the log, unless that was said.
    pub(crate) fn note_disk(&self, (now_us, wall_ms): (u64, u64), disk: DiskStats) {
        if let Some(sentence) = disk_full(disk) {
            let finding = HealthFinding::new(HealthKind::DiskFull, "", "", sentence);
            let mut memory = self.0.lock().expect("no holder panics");
            memory.1.see(now_us, wall_ms, &[finding]);
        }
    }

    /// Since when the finding is there, in milliseconds since 1970. `None` = no look of the log has
    /// seen it yet.
    pub(crate) fn since_ms(&self, finding: &HealthFinding) -> Option<u64> {
        let memory = self.0.lock().expect("no holder panics");
        memory.1.since_ms(finding)
    }
}
