//! How long a frame was on its way, without a common clock.
//!
//! ```text
//! asker's clock    ──s1────────s2────────────────s3──►      sent, as the frame says
//! own clock        ─────r1─────────r2─────────────────────────r3──►    read here
//! r − s              d         d + a little       d + 9 s: held up in the network, in a buffer,
//!                    └ the smallest so far is "no delay"        or because one of us was stopped
//! ```
//!
//! Invariants
//! 1. An age is never larger than the true one by more than the drift allowed for: work is not
//!    dropped without reason.
//! 2. An age is smaller than the true one by at most the smallest delay that was seen, and a
//!    4096th of the time since.
//!
//! Not here: the fate of late work (crate `server`). Time is an argument.
//! See: docs/peer.md, section "Late work".

/// The clocks of two machines run apart by less than one part in this many: 244 ppm, where
/// quartz has 100 at worst.
const DRIFT_ONE_IN: u64 = 4096;

/// The difference between the asker's clock and ours, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameAge {
    /// The smallest difference seen and when, allowing for drift since.
    floor: Option<Floor>,
}

#[derive(Clone, Copy, Debug)]
struct Floor {
    ahead_ms: u32,
    at_ms: u64,
}

impl FrameAge {
    /// Milliseconds that a frame took which was sent at `sent_ms` of the asker's clock and read at
    /// `now_ms` of ours.
    pub fn of(&mut self, sent_ms: u32, now_ms: u64) -> u32 {
        let ahead_ms = (now_ms as u32).wrapping_sub(sent_ms);
        if let Some(floor) = self.floor {
            let drift_ms = now_ms.saturating_sub(floor.at_ms) / DRIFT_ONE_IN;
            let floor_ms = floor.ahead_ms.wrapping_add(drift_ms as u32);
            let late_ms = ahead_ms.wrapping_sub(floor_ms);
            // Differences are modulo 2^32: the upper half is "earlier than ever before".
            if late_ms <= u32::MAX / 2 {
                return late_ms;
            }
        }
        self.floor = Some(Floor {
            ahead_ms,
            at_ms: now_ms,
        });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_that_was_held_up_is_that_old() {
        let mut age = FrameAge::default();
        assert_eq!(age.of(5_000, 100_000), 0);
        assert_eq!(age.of(5_100, 100_103), 3);
        assert_eq!(age.of(5_200, 109_200), 9_000 - 2);
        assert_eq!(age.of(14_300, 109_300), 0);
    }

    #[test]
    fn a_faster_way_becomes_the_measure() {
        let mut age = FrameAge::default();
        assert_eq!(age.of(0, 50), 0);
        assert_eq!(age.of(10, 30), 0);
        assert_eq!(age.of(20, 60), 20);
    }

    #[test]
    fn the_asker_clock_may_wrap_around() {
        let mut age = FrameAge::default();
        assert_eq!(age.of(u32::MAX - 5, 1_000), 0);
        assert_eq!(age.of(5, 1_011), 0);
        assert_eq!(age.of(6, 2_012), 1_000);
    }

    proptest! {
        #[test]
        fn a_drifting_clock_makes_nothing_old(
            steps in prop::collection::vec((0u64..5_000_000, 0u64..40), 1..50), origin: u32,
        ) {
            let mut age = FrameAge::default();
            let mut true_ms = 0u64;
            for (step, delay) in steps {
                true_ms += step;
                // The asker's clock is 100 ppm slow.
                let sent = origin.wrapping_add((true_ms - true_ms / 10_000) as u32);
                let late = age.of(sent, true_ms + delay);
                prop_assert!(u64::from(late) <= delay + 1, "{late} > {delay}");
            }
        }
    }
}
