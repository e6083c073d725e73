//! When a thread of the driver looked at its sockets, and how late its sleeps end.
//!
//! Not here: looking and sleeping (`wait.rs`).

use crate::limits::{SPIN_NS, SPIN_NS_MAX};

/// Events that one poll takes.
pub(super) const EVENTS: usize = 256;

/// When the sockets were looked at.
#[derive(Default)]
pub(super) struct Looks {
    /// The last time.
    pub(super) last_ns: u64,
    /// The look before: bytes that came earlier were seen then.
    pub(super) before_ns: u64,
    /// Requests that were planned then.
    pub(super) planned: u64,
    /// Was anything left then?
    pub(super) is_partial: bool,
}

impl Looks {
    /// Bytes that are read now did not come before this.
    pub(super) fn since_ns(&self) -> u64 {
        self.before_ns
    }
}

/// How late this machine wakes a thread: its sleeps are shorter by this.
pub(super) struct Lateness {
    ns: u64,
}

impl Lateness {
    /// Lateness of a machine that was not met yet.
    pub(super) fn new() -> Lateness {
        Lateness { ns: SPIN_NS }
    }

    /// The time to spin at the end of a sleep.
    pub(super) fn spin_ns(&self) -> u64 {
        self.ns
    }

    /// A sleep was to take `asked_ns`. Follows the value that three of four sleeps stay below.
    pub(super) fn learn(&mut self, slept_ns: u64, asked_ns: u64) {
        let is_later = slept_ns.saturating_sub(asked_ns) > self.ns;
        self.ns = if is_later {
            self.ns + 3 * LATENESS_STEP_NS
        } else {
            self.ns.saturating_sub(LATENESS_STEP_NS)
        };
        self.ns = self.ns.clamp(SPIN_NS, SPIN_NS_MAX);
    }

    /// There was time to sleep, and the learned lateness left none. A machine that was busy for a
    /// while is tried again.
    pub(super) fn doubt(&mut self) {
        self.ns = self.ns.saturating_sub(LATENESS_STEP_NS / 10).max(SPIN_NS);
    }
}

/// Small beside the variation of a wake: a few hundred sleeps find the place.
const LATENESS_STEP_NS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_shorter_by_what_three_of_four_are_late() {
        let mut lateness = Lateness::new();
        // Late by 20 to 40 microseconds, evenly, in an order that a seed cannot spoil.
        for n in 0..4000 {
            lateness.learn(100_000 + 20_000 + (n * 7_919) % 20_000, 100_000);
        }
        assert!(
            (33_000..37_000).contains(&lateness.spin_ns()),
            "{}",
            lateness.spin_ns()
        );
        // A lateness that leaves no time to sleep is doubted until it does.
        (0..1000).for_each(|_| lateness.doubt());
        assert!(lateness.spin_ns() < 20_000);
        // A machine that is later than that is not waited for by spinning, and one that is never
        // late is not either.
        (0..4000).for_each(|_| lateness.learn(1_000_000, 100_000));
        assert_eq!(lateness.spin_ns(), SPIN_NS_MAX);
        (0..4000).for_each(|_| lateness.learn(100_000, 100_000));
        assert_eq!(lateness.spin_ns(), SPIN_NS);
    }
}
