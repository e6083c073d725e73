//! The thread that commits: everything queued, one log write, one sync, outcomes to their loops.
//!
//! ```text
//! loop ─► engine.submit ─► First? ring ─► commit ─► outcomes grouped by loop ─► one post per loop
//!                                         │ quiet for 10 ms ─► seal
//!                                         │ no room         ─► the outcomes say so
//!                                         └ poisoned        ─► tell all loops, end
//! ```
//!
//! Invariants
//! 1. No timer in front of a commit: writes that arrive during a sync are the next batch.
//! 2. A queued write is answered by its outcome. When the disk has no room for the next log segment
//!    the outcome is `NoRoom` (507, not applied). Later values are refused by `engine.pressure`
//!    before they are read.
//! 3. After `Poisoned` no write is committed any more.
//!
//! Not here: commits that an event loop makes itself with durability `os` (`thread/mod.rs`; it uses
//! `deliver` from here).
//! See: docs/overload.md, crate `engine`.

use crate::disk::bell::Woken;
use crate::disk::import::IMPORT_LANE;
use crate::disk::store::OwnStore;
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::measure::profile;
use crate::phase::Phase;
use dendra_engine::{Error, WriteOutcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread sleeps when no write was committed since the last seal; a loop's own commits
/// (durability `os`) are attested at this rhythm.
const QUIET: Duration = Duration::from_millis(250);

/// Bits of a token that hold the slot; the loop's index stands above them.
const TOKEN_LANE_SHIFT: u32 = 32;

/// The mark of one write: which loop waits, and where.
pub(crate) fn token(lane: usize, slot: u32) -> u64 {
    (lane as u64) << TOKEN_LANE_SHIFT | u64::from(slot)
}

/// The loop of a token.
pub(crate) fn token_lane(token: u64) -> usize {
    (token >> TOKEN_LANE_SHIFT) as usize
}

/// The slot of a token.
pub(crate) fn token_slot(token: u64) -> u32 {
    token as u32
}

/// Hands outcomes to the loops that wait for them: one post, so at most one wake, per loop.
/// `groups` is scratch space with one entry per loop. Outcomes of loop `own` stay in `groups`.
pub(crate) fn deliver(
    store: &OwnStore,
    done: &mut Vec<(u64, WriteOutcome)>,
    groups: &mut [Vec<LoopEvent>],
    own: Option<usize>,
) {
    for (token, outcome) in done.drain(..) {
        if token_lane(token) == IMPORT_LANE {
            store.import.wrote(outcome);
            continue;
        }
        groups[token_lane(token)].push(LoopEvent::Written { token, outcome });
    }
    for (lane, group) in groups.iter_mut().enumerate() {
        let handle = &store.lanes[lane];
        if Some(lane) == own {
            continue;
        }
        if handle.waits_for_queue.swap(false, Ordering::AcqRel) {
            group.push(LoopEvent::QueueFree);
        }
        if !group.is_empty() {
            handle.mailbox.post_all(group.drain(..));
        }
    }
}

/// Starts the thread.
pub(crate) fn spawn(store: &Arc<OwnStore>) -> std::io::Result<JoinHandle<()>> {
    let store = Arc::clone(store);
    std::thread::Builder::new()
        .name("wal".to_owned())
        .spawn(move || {
            let _seat = profile::register(profile::ThreadKind::Wal);
            commit_until_closed(&store);
        })
}

fn commit_until_closed(store: &OwnStore) {
    let mut done = Vec::with_capacity(1024);
    let mut groups: Vec<Vec<LoopEvent>> = store.lanes.iter().map(|_| Vec::new()).collect();
    let mut wait = QUIET;
    loop {
        let woken = store.bell.wait(wait);
        if matches!(woken, Woken::Quiet) {
            if !seal(store) {
                return;
            }
            wait = QUIET;
            continue;
        }
        wait = match commit_all(store, &mut done, &mut groups) {
            Ok(()) => {
                store.bell.note_commit();
                limits::SEAL_AFTER
            }
            Err(error) if error.is_final() => {
                poison(store, &error.to_string());
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the log cannot go on: the queued writes are refused");
                limits::SEAL_AFTER
            }
        };
        if matches!(woken, Woken::Closed) {
            seal(store);
            return;
        }
    }
}

/// Commits until no write is left. Once is not always enough with durability `os`. A commit that an
/// event loop began and could not finish goes first, and alone, while others queue behind it.
fn commit_all(
    store: &OwnStore,
    done: &mut Vec<(u64, WriteOutcome)>,
    groups: &mut [Vec<LoopEvent>],
) -> Result<(), Error> {
    loop {
        let result = store.engine.commit(done);
        let was_empty = done.is_empty();
        deliver(store, done, groups, None);
        if result.is_err() || was_empty {
            return result;
        }
    }
}

/// Attests the committed writes; false when the log failed.
fn seal(store: &OwnStore) -> bool {
    if !store.bell.take_unsealed() {
        return true;
    }
    match store.engine.seal() {
        Ok(()) => true,
        Err(error) if error.is_final() => {
            poison(store, &error.to_string());
            false
        }
        Err(error) => {
            tracing::warn!(%error, "the log could not be sealed; the next commit attests instead");
            true
        }
    }
}

/// The durable state is unknown, or the folder is lost: tells all threads, and leaves the rest to a
/// restart.
pub(crate) fn poison(store: &OwnStore, reason: &str) {
    if store.phase.turn(Phase::Poisoned) {
        let what = match store.engine.lost() {
            Some(_) => {
                "the data folder is lost: no write is acknowledged any more, the process stops"
            }
            None => "the log failed: nothing more is written, the process stops",
        };
        tracing::error!(reason, "{what}");
        store.lanes.post_to_all(|| LoopEvent::Poisoned);
        // Kept for a watcher that is not there yet.
        store.phase.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_loop_and_its_slot() {
        for (lane, slot) in [(0, 0), (254, u32::MAX), (3, 77)] {
            let token = token(lane, slot);
            assert_eq!((token_lane(token), token_slot(token)), (lane, slot));
        }
    }
}
