//! Work on a few threads.
//!
//! Not here: the work (`mod.rs`, `judge.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// Tests that run at once.
const AT_ONCE: usize = 2;

/// Calls `work` with 0, 1 and so on, some calls at once, until no work is left (`false`). An error
/// ends the thread that had it.
pub(super) fn at_once(work: impl Fn(usize) -> Result<bool, String> + Sync) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let one_thread = || -> Result<(), String> {
        while work(next.fetch_add(1, Ordering::Relaxed))? {}
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(one_thread));
        let ended = threads.map(|thread| thread.join().expect("no work panics"));
        ended.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    #[test]
    fn all_work_is_done_and_an_error_is_told() {
        let done = Mutex::new(BTreeSet::new());
        let work = |at: usize| {
            done.lock().expect("no holder panics").insert(at);
            Ok(at < 9)
        };
        assert_eq!(at_once(work), Ok(()));
        let done = done.into_inner().expect("no holder panics");
        assert!(done.is_superset(&(0..=9).collect()), "{done:?}");
        let failing = |at: usize| {
            if at < 9 {
                Ok(true)
            } else {
                Err(at.to_string())
            }
        };
        assert!(at_once(failing).is_err());
    }
}
