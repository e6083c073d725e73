//! The parts of a space that a walk still has to compare.
//!
//! Not here: the order in which they are compared (`walk.rs`), second looks (`look.rs`).
//! See: docs/protocol.md, "Comparing copies".

use bytes::Bytes;

/// A part of a space: raw keys, the end exclusive; `None` = to the end of the space.
#[derive(Clone, Debug)]
pub(super) struct SpacePart {
    pub(super) start: Bytes,
    pub(super) end: Option<Bytes>,
}

impl SpacePart {
    /// Is there something from `start` on?
    pub(super) fn has_behind(&self, start: &Bytes) -> bool {
        self.end.as_ref().is_none_or(|end| start < end)
    }
}

/// An entry of a walk's stack.
#[derive(Clone, Debug)]
pub(super) enum CompareWork {
    /// Compare it in ranges of so many records.
    Span { part: SpacePart, grain: u32 },
    /// Records of the part differ: exchange them.
    Exchange { part: SpacePart },
    /// The own copies cannot be read here.
    Hop { part: SpacePart },
}
