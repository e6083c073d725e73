//! Time as the world tells it, and the range of the values of hybrid clocks.
//!
//! ```text
//! clock value   | milliseconds since 1970 | COUNTER_BITS: microseconds, and a counter |
//! ```
//!
//! Invariants
//! 1. Every value of a clock is between `CLOCK_MIN` and `CLOCK_END`; 0 stands for no value.
//!
//! Not here: a clock (crate `node`, `hlc.rs`), reading one (crate `server`).

/// Time as the world tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds of a clock that never goes back; its zero is anywhere.
    pub mono_us: u64,
    /// Milliseconds since 1970 as this member believes; may jump both ways.
    pub wall_ms: u64,
    /// Microseconds of that millisecond, 0 to 999. They order versions that two members of one
    /// machine make within the same millisecond.
    pub wall_part_us: u16,
}

/// Bits below the milliseconds: microseconds, and a counter. Counting goes on through all of them.
pub const COUNTER_BITS: u32 = 16;

/// The first millisecond that a hybrid clock shows: in November 2004.
pub const WALL_MS_MIN: u64 = 1 << 40;

/// The last one, in the year 3084. A wall clock that shows a later time does not move the clock.
pub const WALL_MS_MAX: u64 = 1 << 45;

/// The smallest value of any clock.
pub const CLOCK_MIN: u64 = WALL_MS_MIN << COUNTER_BITS;

/// No clock shows this value, or a larger one: a sender that does is no member of the cluster.
pub const CLOCK_END: u64 = WALL_MS_MAX << (COUNTER_BITS + 1);

/// A clock value as milliseconds since 1970; `None` for 0, which stands for no value.
pub fn date_ms(hlc: u64) -> Option<u64> {
    (hlc > 0).then_some(hlc >> COUNTER_BITS)
}
