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

    /// Seconds since the last good one, good ones and failed ones; `None` without a schedule.
    pub(crate) fn read(&self, now_ms: u64) -> Option<(u64, u64, u64)> {
        let since_ms = self.since_ms.load(Relaxed);
        let age_s = now_ms.saturating_sub(since_ms) / 1_000;
        (since_ms > 0).then(|| (age_s, self.made.load(Relaxed), self.failed.load(Relaxed)))
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
        assert_eq!(gauge.read(9_000), Some((8, 0, 1)));
        gauge.made(8_000);
        assert_eq!(gauge.read(9_999), Some((1, 1, 1)));
    }
}
