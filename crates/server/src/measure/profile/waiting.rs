//! A wait that still goes on, where others can see it: up to when it was counted, and at which
//! stack.
//!
//! ```text
//! waiter    begin(now, stack) ─► uncounted since ──────────────────► end ─► since when it is uncounted
//! capture                             claim(until): since = until ─► the part before, and its stack
//! ```
//!
//! Invariants
//! 1. Every moment of a wait is handed out once: `claim` moves `since` on by compare-and-swap,
//!    `end` takes it away.
//! 2. A stack comes with its own wait: a claim that the end of the wait overtook gives no stack.
//! 3. The waiter never waits for a reader, and takes no lock.
//!
//! Not here: the waits themselves (`lock.rs`), the place of each thread's state (`roster.rs`).

use super::frames::{Frames, KeptStack};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The wait of one thread. Requires: only this thread calls `begin` and `end`, and its clock goes
/// on between two waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Zero: it does not wait.
    since_ns: AtomicU64,
    stack: KeptStack,
}

impl Waiting {
    /// The thread waits from now on.
    pub(crate) fn begin(&self, now_ns: u64, stack: &[usize]) {
        // A reader that took a word of this stack for one of the stack before finds the `end`
        // between them.
        fence(Ordering::Release);
        self.stack.keep(stack);
        self.since_ns.store(now_ns, Ordering::Release);
    }

    /// The wait is over: since when it is uncounted.
    pub(crate) fn end(&self) -> u64 {
        self.since_ns.swap(0, Ordering::AcqRel)
    }

    /// Takes the part of a wait up to `until_ns` that is uncounted, and the length of its stack.
    pub(crate) fn claim(&self, until_ns: u64, stack: &mut Frames) -> Option<(u64, usize)> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        if since_ns == 0 || since_ns >= until_ns {
            return None;
        }
        let length = self.stack.copy_to(stack);
        fence(Ordering::Acquire);
        self.since_ns
            .compare_exchange(since_ns, until_ns, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some((until_ns - since_ns, length))
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::FRAMES_MAX;
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_wait_is_handed_out_part_by_part_and_each_part_once() {
        let (waiting, mut stack) = (Waiting::default(), [0; FRAMES_MAX]);
        assert_eq!(waiting.claim(5, &mut stack), None, "nobody waits");
        waiting.begin(10, &[1, 2, 3]);
        assert_eq!(waiting.claim(10, &mut stack), None, "an empty part");
        assert_eq!(waiting.claim(14, &mut stack), Some((4, 3)));
        assert_eq!(stack[..3], [1, 2, 3]);
        assert_eq!(waiting.claim(14, &mut stack), None, "it was handed out");
        assert_eq!(waiting.claim(15, &mut stack), Some((1, 3)));
        assert_eq!(waiting.end(), 15);
        assert_eq!(waiting.claim(20, &mut stack), None, "the wait is over");
        assert_eq!(waiting.end(), 0);
    }

    #[test]
    fn a_waiter_and_who_looks_count_each_moment_once_and_tear_no_stack() {
        // Time is a number that every look at it moves on.
        let now = AtomicU64::new(1);
        let tick = || now.fetch_add(1, Ordering::SeqCst);
        let (waiting, is_enough) = (Waiting::default(), AtomicBool::new(false));
        let mut claimed = 0;
        let (waited, counted) = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (mut waited, mut counted) = (0, 0);
                while !is_enough.load(Ordering::Relaxed) {
                    let began = tick();
                    waiting.begin(began, &[began as usize; 32]);
                    if began % 64 < 4 {
                        std::thread::yield_now();
                    }
                    let since = waiting.end();
                    let ended = tick();
                    waited += ended - began;
                    counted += ended - since;
                }
                (waited, counted)
            });
            let (mut parts, mut is_torn, mut stack) = (0, false, [0; FRAMES_MAX]);
            while parts < 1_000 && !is_torn {
                if let Some((part, length)) = waiting.claim(tick(), &mut stack) {
                    is_torn = length != 32 || stack[..32] != [stack[0]; 32];
                    claimed += part;
                    parts += 1;
                }
            }
            is_enough.store(true, Ordering::Relaxed);
            assert!(!is_torn, "{stack:?}");
            waiter.join().expect("it only counts")
        });
        assert_eq!(counted + claimed, waited);
    }
}
