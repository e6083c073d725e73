//! How close the engine is to a limit: a pure function of counts, never a hidden sleep.
//!
//! ```text
//! memtables  0 ───── calm ───── 60 % ═══ rising ═══ 100 % of three memtables
//! level 0    0 ───── calm ──── trigger ══ rising ══ stop
//! disk       free < reserve ─► stop new values     until free ≥ 9/8 of it (`room/`)
//! ```
//!
//! Invariants
//! 1. The level rises smoothly: admission can slow writes down long before it must refuse them.
//! 2. Deletes are never stopped by a full disk: they make room.
//!
//! Not here: admission (crate `node`).
//! See: docs/overload.md.

use crate::options::Options;
use dendra_base::{Pressure, Stop};

/// Memtables that may wait for their flush.
pub(crate) const SEALED_MAX: usize = 2;
/// Share of the memtables' room from which on writes slow down.
const CALM_SHARE: f64 = 0.6;

/// The parts of the pressure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PressureParts {
    /// With those of submitted batches, which will be in a memtable soon.
    pub(crate) memtable_bytes: usize,
    pub(crate) memtables_sealed: usize,
    pub(crate) active_bytes: usize,
    pub(crate) level0_tables: usize,
    pub(crate) is_disk_full: bool,
    /// The disk has no room for the next compaction.
    pub(crate) is_cramped: bool,
}

pub(crate) fn of(counts: PressureParts, options: &Options) -> Pressure {
    let room = (options.memtable_bytes * (SEALED_MAX + 1)) as f64;
    let used = counts.memtable_bytes as f64 / room;
    let memory = (used - CALM_SHARE) / (1.0 - CALM_SHARE);
    let behind = counts
        .level0_tables
        .saturating_sub(options.level0_tables_trigger) as f64
        / (options.level0_tables_stop - options.level0_tables_trigger) as f64;
    let is_memory_full =
        counts.memtables_sealed >= SEALED_MAX && counts.active_bytes >= options.memtable_bytes;
    let is_behind = counts.level0_tables >= options.level0_tables_stop;
    // Without room for a compaction level 0 never catches up by itself.
    let is_disk_full = counts.is_disk_full || (is_behind && counts.is_cramped);
    // Deletes go on when the disk is full, and no write goes on when memory is. The full disk is
    // named all the same: an operator can mend it.
    let stop = match (is_disk_full, is_memory_full) {
        (true, true) => Some(Stop::DiskAndMemoryFull),
        (true, false) => Some(Stop::DiskFull),
        (false, true) => Some(Stop::MemtablesFull),
        (false, false) if is_behind => Some(Stop::CompactionBehind),
        (false, false) => None,
    };
    Pressure {
        level: memory.max(behind).clamp(0.0, 1.0),
        memory: used,
        stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(memtables: f64, sealed: usize, level0_tables: usize) -> Pressure {
        let options = Options::for_tests();
        let memtable_bytes = (options.memtable_bytes as f64 * memtables) as usize;
        let active_bytes = memtable_bytes - sealed * options.memtable_bytes;
        let counts = PressureParts {
            memtable_bytes,
            memtables_sealed: sealed,
            active_bytes,
            level0_tables,
            is_disk_full: false,
            is_cramped: false,
        };
        of(counts, &options)
    }

    #[test]
    fn pressure_rises_smoothly_before_it_stops() {
        let calm = pressure(1.0, 0, 0);
        assert_eq!((calm.level, calm.stop), (0.0, None));
        assert!((0.33..0.34).contains(&calm.memory), "{calm:?}");
        let half = pressure(2.4, 2, 0);
        assert!(half.level > 0.4 && half.level < 0.6, "{half:?}");
        assert_eq!(half.stop, None);
        assert_eq!(pressure(3.0, 2, 0).stop, Some(Stop::MemtablesFull));
        assert_eq!(pressure(0.0, 0, 12).stop, Some(Stop::CompactionBehind));
        assert!(pressure(0.0, 0, 7).level > 0.3);
    }

    #[test]
    fn a_full_disk_lets_deletes_go_on_only_while_memory_lasts() {
        let options = Options::for_tests();
        let counts = |active_bytes| PressureParts {
            memtable_bytes: 2 * options.memtable_bytes + active_bytes,
            memtables_sealed: SEALED_MAX,
            active_bytes,
            level0_tables: 0,
            is_disk_full: true,
            is_cramped: false,
        };
        assert_eq!(of(counts(0), &options).stop, Some(Stop::DiskFull));
        let full = counts(options.memtable_bytes);
        assert_eq!(of(full, &options).stop, Some(Stop::DiskAndMemoryFull));
        let room = PressureParts {
            is_disk_full: false,
            ..counts(options.memtable_bytes)
        };
        assert_eq!(of(room, &options).stop, Some(Stop::MemtablesFull));
    }

    #[test]
    fn level_0_that_has_no_room_to_go_down_is_a_full_disk() {
        let options = Options::for_tests();
        let counts = |is_cramped| PressureParts {
            memtable_bytes: 0,
            memtables_sealed: 0,
            active_bytes: 0,
            level0_tables: options.level0_tables_stop,
            is_disk_full: false,
            is_cramped,
        };
        assert_eq!(of(counts(true), &options).stop, Some(Stop::DiskFull));
        let behind = Some(Stop::CompactionBehind);
        assert_eq!(of(counts(false), &options).stop, behind);
    }
}
