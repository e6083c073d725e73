//! Which of a thread's many amounts are looked at: allocated bytes, waited nanoseconds.
//!
//! ```text
//! amounts  ──16──64──────────4096──8──────►
//! marks    ─────────────×──────────────────   exponential gaps, `mean` apart
//! ```
//!
//! An amount with a mark in it is a sample. An amount `a` has one with probability `1 −
//! e^(−a/mean)`, independent of the amounts before it. Each sample stands for the inverse of that
//! many amounts of its size.
//!
//! Invariants
//! 1. No allocation, no lock, no panic: it runs inside the allocator.
//! 2. Estimates are unbiased for every mixture of sizes; a large amount is always seen.
//!
//! Not here: counting amounts (`alloc.rs`, `lock.rs`).

use std::cell::Cell;

/// The marks of one thread.
#[derive(Debug)]
pub(crate) struct Stride {
    /// Amount until the next mark; negative once it is passed.
    left: Cell<i64>,
    /// State of the generator; zero before the first use.
    state: Cell<u64>,
}

impl Stride {
    pub(crate) const fn new() -> Stride {
        Stride {
            left: Cell::new(0),
            state: Cell::new(0),
        }
    }

    /// Moves on by `amount`; is there a mark in it? Marks are `mean` apart on average.
    #[inline]
    pub(crate) fn passes(&self, amount: u64, mean: u64) -> bool {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        let left = self.left.get().saturating_sub(amount);
        self.left.set(left);
        left < 0 && self.next_mark(left, mean)
    }

    #[cold]
    fn next_mark(&self, left: i64, mean: u64) -> bool {
        if self.state.get() == 0 {
            // Threads differ by where their stride lies. The first mark was not drawn yet.
            self.state.set(std::ptr::from_ref(self) as u64 | 1);
            let left = left.saturating_add(self.gap(mean));
            self.left.set(left);
            if left >= 0 {
                return false;
            }
        }
        // Exponential gaps have no memory: the part after the mark starts anew.
        self.left.set(self.gap(mean));
        true
    }

    fn gap(&self, mean: u64) -> i64 {
        // splitmix64.
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let unit = ((z >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-unit.ln() * mean as f64) as i64
    }

    /// How far the next mark is.
    pub(crate) fn left(&self) -> i64 {
        self.left.get()
    }
}

/// How many amounts like `amount` a sample of it stands for.
pub(crate) fn weight(amount: u64, mean: u64) -> f64 {
    let share = amount.max(1) as f64 / mean as f64;
    1.0 / -(-share).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_right_for_small_large_and_mixed_amounts() {
        const MEAN: u64 = 1 << 12;
        let stride = Stride::new();
        let mut real = [0u64; 3];
        let mut estimated = [0f64; 3];
        for n in 0..600_000usize {
            let which = n % 3;
            let amount = [16, 700, 9_000][which];
            real[which] += amount;
            if stride.passes(amount, MEAN) {
                estimated[which] += amount as f64 * weight(amount, MEAN);
            }
        }
        for (real, estimated) in real.into_iter().zip(estimated) {
            let ratio = estimated / real as f64;
            assert!((0.85..1.15).contains(&ratio), "{real} as {estimated}");
        }
    }

    #[test]
    fn an_amount_far_above_the_mean_is_always_seen_and_counts_once() {
        let stride = Stride::new();
        assert!((0..1000).all(|_| stride.passes(1 << 30, 1 << 12)));
        assert!((weight(1 << 30, 1 << 12) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_first_amount_of_a_thread_is_a_sample_no_more_often_than_others() {
        let seen = (0..1000)
            .map(|_| Box::new(Stride::new()))
            .collect::<Vec<_>>()
            .iter()
            .filter(|stride| stride.passes(16, 1 << 12))
            .count();
        assert!(seen < 50, "{seen} of 1000");
    }
}
