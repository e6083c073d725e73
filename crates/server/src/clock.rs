//! The only caller of the operating system's clocks.
//!
//! ```text
//! monotonic_ns   deadlines (as µs) and latencies  never goes back
//! wall_ms        versions, expiry                 may step; the hybrid clock does not follow it back
//! ```
//!
//! Invariants
//! 1. Nothing else in this crate, and nothing in `engine` or `node`, reads a clock.
//! 2. A `Tick` is one reading of both, handed down to all that happens in one turn of a loop.
//!
//! Not here: timers (the runtime's, used by the sweep of a lane), the hybrid clock (crate `node`).

use rustix::time::{ClockId, clock_gettime};

/// Both clocks, read once for a turn of an event loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    /// Nanoseconds since some fixed point; never goes back.
    pub(crate) monotonic_ns: u64,
    /// Wall milliseconds since 1970.
    pub(crate) wall_ms: u64,
}

/// Reads both clocks.
pub(crate) fn tick() -> Tick {
    Tick {
        monotonic_ns: monotonic_ns(),
        wall_ms: wall_ms(),
    }
}

/// Microseconds since some fixed point; never goes back.
pub(crate) fn monotonic_us() -> u64 {
    monotonic_ns() / 1_000
}

/// The same in nanoseconds: enough for 584 years.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Wall milliseconds since 1970. The coarse clock: it lags at most one tick of the kernel (4 ms) and
/// costs a quarter of the exact one; the hybrid clock orders what falls into one reading.
pub(crate) fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back_and_the_wall_clock_is_in_this_century() {
        let before = tick();
        let after = tick();
        assert!(after.monotonic_ns >= before.monotonic_ns);
        assert!(before.wall_ms > 1_700_000_000_000);
    }
}
