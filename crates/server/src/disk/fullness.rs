//! Says that the disk is full, and that it has room again: once at each change.
//!
//! ```text
//! room ── full ──► said at once ── room for ROOM_LASTS ──► said
//! ```
//!
//! Invariants
//! 1. A disk that is full again before the end was said is no news.
//!
//! Not here: when it is full (crate `engine`, `room/`), who asks (`maintenance.rs`).
//! See: docs/operating.md, section "A full disk".

use dendra_engine::DiskStats;
use std::time::Duration;

/// Room that lasts so long is the end of a full disk.
const ROOM_LASTS: Duration = Duration::from_secs(5);

/// A change that an operator should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskNews {
    Full,
    Room,
}

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    is_said: bool,
    /// Since when there is room again.
    room_since_us: Option<u64>,
}

impl Fullness {
    /// Looks at the disk, and writes a line to the log if it has changed.
    pub(crate) fn look(&mut self, disk: DiskStats, now_us: u64) {
        match self.news(disk.is_full, now_us) {
            Some(DiskNews::Full) => tracing::warn!(
                free_bytes = disk.free_bytes,
                total_bytes = disk.total_bytes,
                reserve_bytes = disk.reserve_bytes,
                "the disk is full: new values are refused, reads and deletes go on; delete, or make room"
            ),
            Some(DiskNews::Room) => tracing::warn!(
                free_bytes = disk.free_bytes,
                total_bytes = disk.total_bytes,
                reserve_bytes = disk.reserve_bytes,
                "the disk has room again: new values are taken"
            ),
            None => {}
        }
    }

    fn news(&mut self, is_full: bool, now_us: u64) -> Option<DiskNews> {
        if is_full {
            self.room_since_us = None;
            let was_said = std::mem::replace(&mut self.is_said, true);
            return (!was_said).then_some(DiskNews::Full);
        }
        let since_us = *self.room_since_us.get_or_insert(now_us);
        let lasts = now_us.saturating_sub(since_us) >= ROOM_LASTS.as_micros() as u64;
        if !(self.is_said && lasts) {
            return None;
        }
        self.is_said = false;
        Some(DiskNews::Room)
    }
}

/// A full disk in a sentence, for health and status; `None` when it is not.
pub(crate) fn sentence(disk: DiskStats) -> Option<String> {
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    disk.is_full.then(|| {
        format!(
            "the disk is full: {} of {} are free, and the reserve is {}; new values are refused",
            mib(disk.free_bytes),
            mib(disk.total_bytes),
            mib(disk.reserve_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_said_once_and_flapping_is_not() {
        const S: u64 = 1_000_000;
        let mut fullness = Fullness::default();
        assert_eq!(fullness.news(false, S), None, "nobody waits for that");
        assert_eq!(fullness.news(false, 100 * S), None);
        assert_eq!(fullness.news(true, 101 * S), Some(DiskNews::Full));
        assert_eq!(fullness.news(true, 102 * S), None);
        assert_eq!(fullness.news(false, 103 * S), None);
        assert_eq!(fullness.news(true, 104 * S), None, "it flaps");
        assert_eq!(fullness.news(false, 105 * S), None);
        assert_eq!(fullness.news(false, 110 * S), Some(DiskNews::Room));
        assert_eq!(fullness.news(false, 120 * S), None);
        assert_eq!(fullness.news(true, 121 * S), Some(DiskNews::Full));
    }

    #[test]
    fn the_sentence_has_all_three_numbers() {
        let mut disk = DiskStats {
            free_bytes: 3 << 20,
            total_bytes: 64 << 20,
            reserve_bytes: 12 << 20,
            used_bytes: 0,
            is_full: false,
        };
        assert_eq!(sentence(disk), None);
        disk.is_full = true;
        let said = sentence(disk).expect("it is full");
        assert!(
            said.contains("3.0 MiB of 64.0 MiB are free, and the reserve is 12.0 MiB"),
            "{said}"
        );
    }
}
