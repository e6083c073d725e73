//! How fast comparisons go: as the operator says, and faster while much waits for them.
//!
//! ```text
//! told by the operator ───────────────────────────────────────────────┐
//! deletes, ended values and promises of the last walk with each peer ─┴─► bytes a second
//! ```
//!
//! Each step of the horizons waits for a full comparison, and a deleted record stays for six steps.
//! So it is compared, too. At a fixed speed, a cluster that deletes enough makes each comparison
//! longer than the one before. Its folders grow for ever. Here the speed follows the number of
//! waiting bytes.
//!
//! Invariants
//! 1. Never slower than told, and at most [`COMPARE_HASTE_MAX`] times as fast. 0 compares no
//!    records.
//! 2. Where little waits, the speed is the one that was told: live records, however many, do not
//!    raise it. Nor do deletes that no step ever takes: of fewer copies than the replication
//!    factor, for example.
//!
//! Not here: the pauses that make the speed (`mod.rs`); horizons (`forgetting.rs`).
//! See: docs/operating.md, "Copies that differ".

use crate::limits::COMPARE_HASTE_MAX;
use dendra_ownership::member::MemberIndex;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(super) struct Haste {
    told: u64,
    /// The waiting records should be compared in half of this; 0 = never faster than told.
    within_us: u64,
    /// Bytes that waited in the last walk with each peer that this member leads.
    waiting: BTreeMap<MemberIndex, u64>,
}

impl Haste {
    pub(super) fn new(told: u64, within_us: u64) -> Haste {
        Haste {
            told,
            within_us,
            waiting: BTreeMap::new(),
        }
    }

    /// Is anything compared?
    pub(super) fn is_on(&self) -> bool {
        self.told > 0
    }

    /// Keeps the peers that this member leads.
    pub(super) fn keep(&mut self, led: impl Fn(MemberIndex) -> bool) {
        self.waiting.retain(|peer, _| led(*peer));
    }

    /// The walk under way with `peer` has found so much so far.
    pub(super) fn sees(&mut self, peer: MemberIndex, waiting: u64) {
        let known = self.waiting.entry(peer).or_default();
        *known = waiting.max(*known);
    }

    /// The walk with `peer` is over: it found so much.
    pub(super) fn found(&mut self, peer: MemberIndex, waiting: u64) {
        self.waiting.insert(peer, waiting);
    }

    /// How many bytes a second to compare now.
    pub(super) fn bytes_per_second(&self) -> u64 {
        let waiting: u64 = self.waiting.values().sum();
        let wanted = waiting
            .saturating_mul(2_000_000)
            .checked_div(self.within_us)
            .unwrap_or(0);
        let most = self.told.saturating_mul(COMPARE_HASTE_MAX);
        self.told.max(wanted.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MemberIndex = MemberIndex(1);
    const OTHER: MemberIndex = MemberIndex(2);

    #[test]
    fn what_waits_hastens_up_to_a_bound_and_live_records_do_not() {
        let mut haste = Haste::new(1_000, 10_000_000);
        assert_eq!(haste.bytes_per_second(), 1_000);
        haste.found(PEER, 4_000);
        assert_eq!(haste.bytes_per_second(), 1_000, "as told is enough");
        haste.found(PEER, 20_000);
        haste.found(OTHER, 5_000);
        assert_eq!(haste.bytes_per_second(), 5_000, "in half of the time");
        haste.sees(PEER, 7_000);
        assert_eq!(haste.bytes_per_second(), 5_000, "the walk has only begun");
        haste.sees(PEER, 25_000);
        assert_eq!(haste.bytes_per_second(), 6_000);
        haste.found(PEER, u64::MAX / 2);
        assert_eq!(haste.bytes_per_second(), 1_000 * COMPARE_HASTE_MAX);
        haste.keep(|peer| peer == OTHER);
        assert_eq!(haste.bytes_per_second(), 1_000);
    }

    #[test]
    fn what_is_off_stays_off() {
        let mut off = Haste::new(0, 10_000_000);
        off.found(PEER, 1 << 40);
        assert!(!off.is_on());
        assert_eq!(off.bytes_per_second(), 0);
        let mut without_horizons = Haste::new(1_000, 0);
        without_horizons.found(PEER, 1 << 40);
        assert_eq!(without_horizons.bytes_per_second(), 1_000);
    }

    /// Keys come and go at one rate. A walk reads all that waits; a step needs a walk and at least
    /// the interval; six steps later it is gone.
    fn waiting_after(steps: usize, told: u64, rate: f64, within_s: f64) -> f64 {
        let mut haste = Haste::new(told, (within_s * 1e6) as u64);
        let mut lengths = [within_s; 6];
        for _ in 0..steps {
            let waiting: f64 = lengths.iter().sum::<f64>() * rate;
            haste.found(PEER, waiting as u64);
            let walk_s = waiting / haste.bytes_per_second() as f64;
            lengths.rotate_right(1);
            lengths[0] = walk_s.max(within_s);
        }
        lengths.iter().sum::<f64>() * rate
    }

    #[test]
    fn keys_that_come_and_go_take_a_bounded_space() {
        let (told, within_s) = (2e6 as u64, 5.0);
        for rate in [1e5, 5e5, 2e6] {
            let least = 6.0 * within_s * rate;
            let waiting = waiting_after(200, told, rate, within_s);
            assert!(waiting <= 1.01 * least, "{rate}: {waiting} of {least}");
        }
        // At the speed that was told each walk is longer than the one before.
        let mut lengths = [within_s; 6];
        for _ in 0..200 {
            let waiting = lengths.iter().sum::<f64>() * 5e5;
            lengths.rotate_right(1);
            lengths[0] = waiting / told as f64;
        }
        assert!(lengths[0] > 1_000.0 * within_s);
    }
}
