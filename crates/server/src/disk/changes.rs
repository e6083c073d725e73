//! Changes of this node, for watches: each commit is noted, and loops that wait for one are told.
//!
//! ```text
//! commit ─► written: a client's key? ─► ChangeLog (crate watch)
//!        ─► shown ─► LoopEvent::Changed to the loops that found no change
//! ```
//!
//! Invariants
//! 1. While no node asks for changes, nothing is noted and no loop is told.
//!
//! Not here: who asks (`event_loop/`, crate `node`).

use super::store::OwnStore;
use crate::lanes::lane::Loops;
use crate::lanes::mailbox::LoopEvent;
use crate::random::random;
use dendra_base::{Space, Version};
use dendra_engine::WriteObserver;
use dendra_watch::ChangeLog;
use dendra_watch::limits::CHANGES_BYTES_DEFAULT;
use std::sync::Arc;

/// See the module.
struct NotedWrites {
    changes: Arc<ChangeLog>,
    lanes: Arc<Loops>,
}

/// Changes of this process: none is noted yet.
pub(crate) fn new_log() -> std::io::Result<Arc<ChangeLog>> {
    let life = u64::from_le_bytes(random::<8>()?);
    Ok(Arc::new(ChangeLog::new(life, CHANGES_BYTES_DEFAULT)))
}

/// Notes the writes of an engine in `changes`.
pub(crate) fn observer(changes: &Arc<ChangeLog>, lanes: &Arc<Loops>) -> Arc<dyn WriteObserver> {
    Arc::new(NotedWrites {
        changes: Arc::clone(changes),
        lanes: Arc::clone(lanes),
    })
}

/// Records came that no commit brought: watches that followed this process begin anew.
pub(crate) fn forget(store: &OwnStore) {
    store.changes.forget();
    tell(&store.changes, &store.lanes);
}

/// Tells the loops that wait for a change.
fn tell(changes: &ChangeLog, lanes: &Loops) {
    for lane in changes.take_waiting() {
        lanes[lane].mailbox.post(LoopEvent::Changed);
    }
}

impl WriteObserver for NotedWrites {
    fn is_wanted(&self) -> bool {
        self.changes.is_noted()
    }

    fn written(&self, stored_key: &[u8], version: Version) {
        if let Some((space, raw_key)) = stored_key.split_first()
            && *space == Space::User.byte()
        {
            self.changes.note(raw_key, version);
        }
    }

    fn shown(&self) {
        tell(&self.changes, &self.lanes);
    }
}
