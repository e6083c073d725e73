//! Spans of lost records that the node has restored.
//!
//! Not here: finding them (`scrub.rs`), repairing them (crate `node`).
//! See: docs/protocol.md, "Damage".

use dendra_engine::Engine;

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
