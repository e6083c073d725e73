//! When a client that was refused should come again.
//!
//! Invariants
//! 1. Clients that one thread refuses in a row are told different seconds, so that they do not come
//!    back together.

use crate::limits;
use std::cell::Cell;

/// `Retry-After` of a refusal that passes by itself.
pub(crate) fn retry_after_s() -> u32 {
    limits::RETRY_AFTER_S + next() % limits::RETRY_AFTER_SPREAD_S
}

/// `Retry-After` in seconds on a full disk: the operator has to make room.
pub(crate) fn disk_full_after_s() -> u32 {
    limits::RETRY_AFTER_DISK_FULL_S + next() % limits::RETRY_AFTER_DISK_FULL_SPREAD_S
}

fn next() -> u32 {
    thread_local! {
        static NEXT: Cell<u32> = const { Cell::new(0) };
    }
    let next = NEXT.get();
    NEXT.set(next.wrapping_add(1));
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_are_refused_in_a_row_come_again_at_different_times() {
        for (told, first, spread) in [
            (
                retry_after_s as fn() -> u32,
                limits::RETRY_AFTER_S,
                limits::RETRY_AFTER_SPREAD_S,
            ),
            (
                disk_full_after_s,
                limits::RETRY_AFTER_DISK_FULL_S,
                limits::RETRY_AFTER_DISK_FULL_SPREAD_S,
            ),
        ] {
            let mut all: Vec<_> = (0..2 * spread).map(|_| told()).collect();
            all.sort_unstable();
            let twice: Vec<_> = (first..first + spread).flat_map(|s| [s, s]).collect();
            assert_eq!(all, twice);
        }
    }
}
