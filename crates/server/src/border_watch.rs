//! Changes at the border of a node, counted, for threads that wait for one.
//!
//! ```text
//! a table of tokens was read, certificates were read ─► note ─► counts, and those that wait look again
//! ```
//!
//! Invariants
//! 1. Waiting for a change is free where no task waits.
//!
//! Not here: the border itself (`border.rs`).

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Counts of the changes at the border since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorderState {
    /// The table of tokens was read.
    pub token_looks: u64,
    /// Readings that found another table of tokens.
    pub token_changes: u64,
    /// Certificates and keys were read again, and are in force.
    pub files_taken: u64,
    /// Certificates and keys were read again, and are of no use.
    pub files_refused: u64,
}

/// Wakes threads that wait for a change at the border.
#[derive(Debug, Default)]
pub struct BorderWatch {
    state: Mutex<BorderState>,
    told: Condvar,
}

impl BorderWatch {
    pub(crate) fn note(&self, change: impl FnOnce(&mut BorderState)) {
        change(&mut self.state.lock().expect("no holder panics"));
        self.told.notify_all();
    }

    /// The counts now.
    pub fn now(&self) -> BorderState {
        *self.state.lock().expect("no holder panics")
    }

    /// Waits until `is_so`, and says whether it came to that within `at_most`.
    pub fn wait(&self, at_most: Duration, is_so: impl Fn(&BorderState) -> bool) -> bool {
        let state = self.state.lock().expect("no holder panics");
        let waited = self
            .told
            .wait_timeout_while(state, at_most, |state| !is_so(state));
        let (_state, timeout) = waited.expect("no holder panics");
        !timeout.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_wait_ends_with_what_it_waits_for_or_with_its_time() {
        let watch = Arc::new(BorderWatch::default());
        let other = Arc::clone(&watch);
        let noting = std::thread::spawn(move || other.note(|state| state.token_changes += 1));
        assert!(watch.wait(Duration::from_secs(60), |state| state.token_changes == 1));
        noting.join().expect("it notes");
        assert!(!watch.wait(Duration::ZERO, |state| state.token_changes == 2));
        assert_eq!(watch.now().token_changes, 1);
    }
}
