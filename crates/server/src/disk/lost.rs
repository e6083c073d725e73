//! Spans of lost records: those that the node has restored, and those whose repair waits.
//!
//! ```text
//! node, loop 0: Repaired    ─► engine.repaired       log line
//!               RepairWaits ─► engine.repair_waits   WaitingRepairs ─► status, metrics, log (scrub.rs)
//! ```
//!
//! Not here: finding them (`scrub.rs`), repairing them (crate `node`).
//! See: docs/protocol.md, "Damage".

use dendra_engine::Engine;
use dendra_ownership::ring::table::MemberId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The node has restored the records of a span that were lost.
pub(crate) fn repaired(engine: &Engine, id: u64) {
    for span in engine.damaged_spans() {
        if span.id == id {
            let (file, offset) = (span.file(), span.offset);
            tracing::info!(
                file,
                offset,
                "the records of a damaged block are here again"
            );
            engine.repaired(&span);
        }
    }
}

/// By the id of a lost span: the members for which its repair waits.
#[derive(Debug, Default)]
pub(crate) struct WaitingRepairs(Mutex<BTreeMap<u64, BTreeSet<MemberId>>>);

impl WaitingRepairs {
    /// The repair of a span waits for these members; for none = it waits no more.
    pub(crate) fn told(&self, engine: &Engine, id: u64, of: BTreeSet<MemberId>) {
        let spans = engine.damaged_spans();
        for span in spans.iter().filter(|span| span.id == id) {
            if of.is_empty() {
                engine.repair_goes_on(span);
            } else {
                engine.repair_waits(span);
            }
        }
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|known, _| spans.iter().any(|span| span.id == *known));
        if of.is_empty() {
            waiting.remove(&id);
        } else {
            waiting.insert(id, of);
        }
    }

    /// For how many of the spans that are lost now the repair waits for each member.
    pub(crate) fn by_member(&self, engine: &Engine) -> BTreeMap<MemberId, u64> {
        let spans: BTreeSet<u64> = engine.damaged_spans().iter().map(|span| span.id).collect();
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        let lost = waiting.iter().filter(|(id, _)| spans.contains(id));
        for member in lost.flat_map(|(_, of)| of) {
            *counts.entry(*member).or_insert(0) += 1;
        }
        counts
    }
}
