//! Says in the log when a finding begins, and when it is over: once at each change.
//!
//! ```text
//! seen ──► WARN with the sentence and the way out ── not seen for OVER_AFTER_US ──► INFO
//! ```
//!
//! Invariants
//! 1. A finding that comes back before its end was said is no news, and neither are other numbers
//!    in its sentence.
//!
//! Not here: when the log is looked at (`health_watch.rs`).

use super::finding::{HealthFinding, HealthKind};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A finding that was not seen for so long is over.
const OVER_AFTER_US: u64 = 5_000_000;

/// What a finding is about.
type FindingSubject = (HealthKind, String);

/// A finding that was said.
#[derive(Debug)]
struct SaidFinding {
    since_ms: u64,
    seen_us: u64,
}

/// The findings whose begin was said.
#[derive(Debug, Default)]
pub(super) struct FindingLog(BTreeMap<FindingSubject, SaidFinding>);

fn subject(finding: &HealthFinding) -> FindingSubject {
    (finding.kind, finding.of.clone())
}

impl FindingLog {
    /// Looks at all findings of now, and writes a line for each change.
    pub(super) fn look(&mut self, now_us: u64, wall_ms: u64, findings: &[HealthFinding]) {
        self.see(now_us, wall_ms, findings);
        for ((kind, of), lasted_ms) in self.over(now_us, wall_ms) {
            let (finding, seconds) = (kind.as_str(), lasted_ms / 1_000);
            tracing::info!(finding, of, seconds, "a finding is over");
        }
    }

    /// Writes a line for each of these that is new.
    pub(super) fn see(&mut self, now_us: u64, wall_ms: u64, findings: &[HealthFinding]) {
        for finding in self.begun(now_us, wall_ms, findings) {
            tracing::warn!(
                finding = finding.kind.as_str(),
                severity = finding.kind.severity().as_str(),
                of = finding.of,
                way_out = finding.way_out,
                "{}",
                finding.sentence
            );
        }
    }

    fn begun<'a>(
        &mut self,
        now_us: u64,
        wall_ms: u64,
        findings: &'a [HealthFinding],
    ) -> Vec<&'a HealthFinding> {
        let since = |finding: &&HealthFinding| {
            let said = self.0.entry(subject(finding));
            let is_new = matches!(said, Entry::Vacant(_));
            let said = said.or_insert(SaidFinding {
                since_ms: wall_ms,
                seen_us: now_us,
            });
            said.seen_us = now_us;
            is_new
        };
        findings.iter().filter(since).collect()
    }

    /// Findings that are over, and how long they lasted.
    fn over(&mut self, now_us: u64, wall_ms: u64) -> Vec<(FindingSubject, u64)> {
        let is_over =
            |_: &FindingSubject, said: &mut SaidFinding| now_us >= said.seen_us + OVER_AFTER_US;
        let over = self.0.extract_if(.., is_over);
        let lasted = |said: SaidFinding| wall_ms.saturating_sub(said.since_ms);
        over.map(|(of, said)| (of, lasted(said))).collect()
    }

    pub(super) fn since_ms(&self, finding: &HealthFinding) -> Option<u64> {
        Some(self.0.get(&subject(finding))?.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_said_when_it_begins_and_when_it_ends_and_not_between() {
        const S: u64 = 1_000_000;
        let finding = |of: &str, sentence: &str| HealthFinding {
            kind: HealthKind::MemberAway,
            of: of.to_owned(),
            sentence: sentence.to_owned(),
            way_out: String::new(),
        };
        let mut log = FindingLog::default();
        let (one, other) = (finding("h1", "for 1 s"), finding("h2", "for 1 s"));
        let first = [one.clone()];
        assert_eq!(log.begun(2 * S, 2_000, &first), [&one]);
        let both = [finding("h1", "for 2 s"), other.clone()];
        assert_eq!(log.begun(3 * S, 3_000, &both), [&other]);
        assert_eq!(log.since_ms(&one), Some(2_000));
        let second = [other.clone()];
        assert!(log.begun(7 * S, 7_000, &second).is_empty());
        assert!(log.over(7 * S, 7_000).is_empty(), "it may be back");
        let over = ((HealthKind::MemberAway, "h1".to_owned()), 6_000);
        assert_eq!(log.over(8 * S, 8_000), [over]);
        assert_eq!(log.since_ms(&one), None);
        assert_eq!(log.begun(9 * S, 9_000, &first), [&one]);
    }
}
