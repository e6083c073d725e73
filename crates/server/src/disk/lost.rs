//! Names for spans of lost records, as node and engine call them.
//!
//! Not here: finding them (`scrub.rs`), repairing them (crate `node`).
//! See: docs/protocol.md, "Damage".

use dendra_engine::{DamagedSpan, Engine};

/// A number for a span, the same whenever it is asked for.
pub(crate) fn mark(span: &DamagedSpan) -> u64 {
    span.table << 32 | span.offset & u64::from(u32::MAX)
}

/// The node has restored the records of a span that were lost.
pub(crate) fn repaired(engine: &Engine, id: u64) {
    for span in engine.damaged_spans() {
        if mark(&span) == id {
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
