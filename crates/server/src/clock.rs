//! The only caller of the operating system's clocks.
//!
//! ```text
//! monotonic_ns   deadlines (as µs) and latencies  never goes back
//! wall_ms        versions, expiry                 may step; the hybrid clock does not follow it back
//! ```
//!
//! Invariants
//! 1. Nothing else in this crate, and nothing in `engine` or `node`, reads a clock.
//! 2. A `ClockReading` is a reading of both, handed down to all that happens in one turn of a loop.
//! 3. `ClockReading::later` reads the wall clock again as soon as its last reading is `WALL_LAG_NS`
//!    old. Between two readings the wall clock goes on with the monotonic one.
//!
//! Not here: timers (the runtime's, used by the sweep of a lane), the hybrid clock (crate `node`).

use dendra_base::Now;
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Both clocks, read once for a turn of an event loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    /// Nanoseconds since some fixed point; never goes back.
    pub(crate) monotonic_ns: u64,
    /// Wall microseconds since 1970, when they were read.
    wall_us: u64,
    /// `monotonic_ns` at that reading.
    wall_read_ns: u64,
}

/// A reading of the wall clock is good for so long. The two clocks part by no more than a
/// microsecond in it. A loop comes by a hundred times in a millisecond.
const WALL_LAG_NS: u64 = 1_000_000;

impl ClockReading {
    /// Wall milliseconds since 1970.
    pub(crate) fn wall_ms(self) -> u64 {
        self.wall_now_us() / 1_000
    }

    /// The time as a node wants it.
    pub(crate) fn now(self) -> Now {
        let wall_us = self.wall_now_us();
        Now {
            mono_us: self.monotonic_ns / 1_000,
            wall_ms: wall_us / 1_000,
            wall_part_us: u16::try_from(wall_us % 1_000).expect("it is below a thousand"),
        }
    }

    fn wall_now_us(self) -> u64 {
        self.wall_us + self.monotonic_ns.saturating_sub(self.wall_read_ns) / 1_000
    }

    /// This reading after the monotonic clock was read again.
    pub(crate) fn at(self, monotonic_ns: u64) -> ClockReading {
        ClockReading {
            monotonic_ns,
            ..self
        }
    }

    /// The clocks now.
    pub(crate) fn later(self) -> ClockReading {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.wall_read_ns) < WALL_LAG_NS {
            self.at(now_ns)
        } else {
            ClockReading {
                monotonic_ns: now_ns,
                wall_us: wall_us(),
                wall_read_ns: now_ns,
            }
        }
    }
}

/// Reads both clocks.
pub(crate) fn tick() -> ClockReading {
    let now_ns = monotonic_ns();
    ClockReading {
        monotonic_ns: now_ns,
        wall_us: wall_us(),
        wall_read_ns: now_ns,
    }
}

/// Reads both clocks for a node.
pub(crate) fn now() -> Now {
    tick().now()
}

/// Microseconds since some fixed point; never goes back.
pub(crate) fn monotonic_us() -> u64 {
    monotonic_ns() / 1_000
}

/// Reads the monotonic clock in nanoseconds: enough for 584 years.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Wall milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    wall_us() / 1_000
}

/// Wall microseconds since 1970, by the exact clock. The coarse one costs a quarter, but stands
/// still for 4 ms: two members of a machine could give a later write the smaller version. It is
/// asked of the C library, as `std` does, so that a test can bend it.
fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |since| {
        since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back_and_the_wall_clock_is_in_this_century() {
        let before = tick();
        let after = tick();
        assert!(after.monotonic_ns >= before.monotonic_ns);
        assert!(before.wall_ms() > 1_700_000_000_000);
    }

    #[test]
    fn the_wall_clock_is_read_again_when_its_reading_is_old_and_not_before() {
        let now = tick();
        let before = ClockReading { wall_us: 1, ..now };
        let soon = before.later();
        let gone_us = (soon.monotonic_ns - now.monotonic_ns) / 1_000;
        if soon.monotonic_ns - now.monotonic_ns < WALL_LAG_NS {
            assert_eq!(
                soon.wall_now_us(),
                1 + gone_us,
                "a good reading is kept, and goes on"
            );
        }
        let old = ClockReading {
            wall_read_ns: now.monotonic_ns - WALL_LAG_NS,
            ..before
        };
        assert!(old.later().wall_ms() >= now.wall_ms());
    }

    #[test]
    fn two_loops_that_read_the_clocks_one_after_the_other_agree_which_was_first() {
        let (mut here, mut there) = (tick(), tick());
        let mut last_us = 0;
        for _ in 0..200 {
            // Far more than the clocks part in a millisecond, and far less than the way of an
            // answer.
            let begun_us = monotonic_us();
            while monotonic_us() < begun_us + 20 {
                std::hint::spin_loop();
            }
            (here, there) = (there.later(), here);
            assert!(here.wall_now_us() > last_us);
            last_us = here.wall_now_us();
        }
    }
}
