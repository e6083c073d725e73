//! The delay of a write by its size: as many bytes as others, as long a wait.
//!
//! ```text
//! pressure ─► admit: us, for a write of the mean size ─► us · bytes / mean ─► the write's own delay
//! ```
//!
//! Pressure comes of bytes. A delay that is the same for each write holds values of 100 bytes back
//! as much as those of a MiB. With it, four clients with large values left ten thousand small
//! writes a second no room. Over all writes the factor is 1 on average, so that the delays together
//! are what they are for equal sizes.
//!
//! Invariants
//! 1. Writes of one size wait as long as `admit` says.
//! 2. No delay is longer than `DELAY_US_MAX`, that of writes above the mean `DELAY_US_MAX_LARGE`.
//!
//! Not here: the delay at a level (`mod.rs`); writes without a delay while large ones leave them
//! the reserve (`line.rs`).
//! See: docs/overload.md, "Pressure of the engine".

use super::WriteSize;
use crate::limits::{
    DELAY_MEAN_WRITES, DELAY_US_MAX, DELAY_US_MAX_LARGE, DELAY_US_MIN, DELAY_WRITE_BYTES_MIN,
    LARGE_FACTOR,
};

/// The sizes of the last writes that were let in on one loop.
#[derive(Debug, Default)]
pub struct WriteSizes {
    /// Bytes; 0 before the first write.
    mean: f64,
    /// Writes that the mean is made of, at most `DELAY_MEAN_WRITES`.
    writes: f64,
}

impl WriteSizes {
    /// A write of `bytes` was let in.
    pub fn note(&mut self, bytes: u64) {
        self.writes = (self.writes + 1.0).min(DELAY_MEAN_WRITES);
        self.mean += (counted(bytes) - self.mean) / self.writes;
    }

    /// Is a write of `bytes` large beside the others? Where all are of one size none is.
    pub fn is_large(&self, bytes: u64) -> bool {
        self.mean > 0.0 && counted(bytes) > LARGE_FACTOR * self.mean
    }

    /// A write of `bytes` beside the others.
    pub fn size_of(&self, bytes: u64) -> WriteSize {
        let is_large = self.is_large(bytes);
        WriteSize { bytes, is_large }
    }

    /// The delay of a write of `bytes` where one of the mean size waits for `us`; 0 where a timer
    /// would make more of it.
    pub fn delay_us(&self, us: u64, bytes: u64) -> u64 {
        let bytes = counted(bytes);
        let factor = if self.mean > 0.0 {
            bytes / self.mean
        } else {
            1.0
        };
        let most = if factor > 1.0 {
            DELAY_US_MAX_LARGE
        } else {
            DELAY_US_MAX
        };
        match (us as f64 * factor) as u64 {
            ..DELAY_US_MIN => 0,
            own_us => own_us.min(most),
        }
    }
}

/// A record of few bytes has a key, a version and a place in the log all the same.
fn counted(bytes: u64) -> f64 {
    bytes.max(DELAY_WRITE_BYTES_MIN) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(writes: impl IntoIterator<Item = u64>) -> WriteSizes {
        let mut sizes = WriteSizes::default();
        for bytes in writes {
            sizes.note(bytes);
        }
        sizes
    }

    #[test]
    fn writes_of_one_size_wait_for_what_the_level_says() {
        for bytes in [0, 1_000, 8 << 20] {
            let sizes = after([bytes; 1_000]);
            for us in [1_000, 25_000, DELAY_US_MAX] {
                assert_eq!(sizes.delay_us(us, bytes), us);
            }
        }
        assert_eq!(WriteSizes::default().delay_us(25_000, 1 << 20), 25_000);
    }

    #[test]
    fn a_small_write_waits_little_beside_large_ones_and_their_waits_follow_the_bytes() {
        // 250 small writes for each large one.
        let mixed = (0..10_000).map(|n| if n % 251 == 0 { 1_000_000 } else { 1_000 });
        let sizes = after(mixed);
        let (small, large) = (
            sizes.delay_us(20_000, 1_000),
            sizes.delay_us(20_000, 1_000_000),
        );
        assert!((2_000..8_000).contains(&small), "{small}");
        assert_eq!(large, DELAY_US_MAX_LARGE);
        assert_eq!(sizes.delay_us(1_000, 1_000), 0, "a fifth of a millisecond");
        let large = sizes.delay_us(1_000, 1_000_000);
        assert!((100_000..DELAY_US_MAX_LARGE).contains(&large), "{large}");
    }

    #[test]
    fn over_all_writes_the_delays_are_those_of_equal_sizes() {
        let bytes = |n: u64| 1_000 + (n * 7_919) % 9_000;
        let sizes = after((0..100_000).map(bytes));
        let sum: u64 = (0..10_000).map(|n| sizes.delay_us(20_000, bytes(n))).sum();
        let mean = sum / 10_000;
        assert!((18_000..22_000).contains(&mean), "{mean}");
    }

    #[test]
    fn one_large_write_among_small_ones_changes_little_for_them() {
        let mut sizes = after([1_000; 10_000]);
        let before = sizes.delay_us(50_000, 1_000);
        sizes.note(8 << 20);
        assert!(sizes.delay_us(50_000, 1_000) < before);
        for _ in 0..20_000 {
            sizes.note(1_000);
        }
        assert!(sizes.delay_us(50_000, 1_000) > before * 9 / 10);
    }
}
