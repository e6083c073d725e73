//! How the backups go that this node makes by its schedule, for `/metrics`.
//!
//! Not here: the schedule itself (crate `dendra`, `backup/schedule.rs`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shared by the schedule, which sets it, and the admin plane, which shows it.
#[derive(Debug, Default)]
pub struct BackupGauge {
    /// When the newest good backup began, in wall milliseconds; before the first one, when the
    /// schedule began. 0 = there is no schedule.
    since_ms: AtomicU64,
    made: AtomicU64,
    failed: AtomicU64,
    kept: AtomicU64,
}

/// The counts of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackupCounts {
    /// Seconds since the last good backup.
    pub(crate) age_s: u64,
    pub(crate) made: u64,
    pub(crate) failed: u64,
    /// Good ones behind which old ones could not be removed.
    pub(crate) kept: u64,
}

impl BackupGauge {
    /// A schedule begins; the newest good backup is of `since_ms`, or there is none since then.
    pub fn scheduled(&self, since_ms: u64) {
        self.since_ms.store(since_ms.max(1), Relaxed);
    }

    /// A backup that began at `began_ms` is good.
    pub fn made(&self, began_ms: u64) {
        self.since_ms.store(began_ms.max(1), Relaxed);
        self.made.fetch_add(1, Relaxed);
    }

    /// One failed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Old ones could not be removed behind a good one.
    pub fn kept(&self) {
        self.kept.fetch_add(1, Relaxed);
    }

    /// `None` without a schedule.
    pub(crate) fn read(&self, now_ms: u64) -> Option<BackupCounts> {
        let since_ms = self.since_ms.load(Relaxed);
        (since_ms > 0).then(|| BackupCounts {
            age_s: now_ms.saturating_sub(since_ms) / 1_000,
            made: self.made.load(Relaxed),
            failed: self.failed.load(Relaxed),
            kept: self.kept.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_counts_from_the_last_good_backup_and_a_failure_leaves_it() {
        let gauge = BackupGauge::default();
        assert_eq!(gauge.read(9_000), None);
        gauge.scheduled(1_000);
        gauge.failed();
        let mut counts = BackupCounts {
            age_s: 8,
            failed: 1,
            ..BackupCounts::default()
        };
        assert_eq!(gauge.read(9_000), Some(counts));
        gauge.made(8_000);
        gauge.kept();
        (counts.age_s, counts.made, counts.kept) = (1, 1, 1);
        assert_eq!(gauge.read(9_999), Some(counts));
    }
}
