//! The way of a read to its block: filter and index of one partition, one object in memory.
//!
//! ```text
//! Table ── partition ─► pinned guide              no look-up, no count of references
//!                  └──► guide in the cache        when the share for pinned ones is used up
//!                  └──► filter and index on disk  they lie side by side
//! ```
//!
//! Invariants
//! 1. A pinned guide lives as long as its table. Its bytes are taken from the cache's share before
//!    and given back after: `PinnedShare` never holds more than its bound.
//! 2. A guide in memory was complete and its checksums held.
//! 3. Only a pinned guide has shortcuts to cached blocks: it is there as long as they are.
//!
//! Not here: eviction of those that are not pinned (`cache.rs`).
//! See: docs/decisions/0012-guides-and-tags.md, docs/overload.md.

use super::block::{Block, Shortcuts};
use super::filter::Filter;
use super::index::Index;
use super::share::Pin;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Filter and index of one partition.
#[derive(Debug)]
pub(crate) struct Guide {
    /// `None` when the table has no filters.
    pub(super) filter: Option<Filter>,
    pub(super) index: Index,
    /// Bytes of the share for guides that their tables hold, when this is one of them.
    pub(super) pin: Option<Pin>,
    /// Did the last read that could tell find its block by a shortcut? Then the next one asks that
    /// first.
    is_at_hand: AtomicBool,
}

impl Guide {
    /// A guide of these parts, neither pinned nor cached yet.
    pub(super) fn new(filter: Option<Filter>, index: Index) -> Guide {
        Guide {
            filter,
            index,
            pin: None,
            is_at_hand: AtomicBool::new(false),
        }
    }

    /// Are blocks of this partition mostly found by shortcuts?
    pub(super) fn is_at_hand(&self) -> bool {
        self.is_at_hand.load(Ordering::Relaxed)
    }

    /// Notes the state that a read met. Mostly it is the same as the one before, and then no note
    /// is written.
    pub(super) fn note_at_hand(&self, is_at_hand: bool) {
        if self.is_at_hand() != is_at_hand {
            self.is_at_hand.store(is_at_hand, Ordering::Relaxed);
        }
    }

    /// Makes entry `entry` lead to `block`, which was found in the cache.
    /// Requires: the table holds this guide.
    pub(super) fn lead_to(self: &Arc<Guide>, entry: usize, block: &Arc<Block>) {
        let place = &block.signpost.place;
        // A block has one place for life. Most calls end here, and touch no count that others
        // share.
        if place.get().is_some() {
            return;
        }
        let keeper: Weak<Guide> = Arc::downgrade(self);
        if place.set((keeper, entry)).is_ok() {
            self.index.shortcut(entry).lead_to(block);
        }
    }

    /// Memory it holds.
    pub(crate) fn charge(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::charge);
        filter + self.index.charge() + size_of::<Guide>()
    }

    /// A guide of about `bytes` bytes, for tests of the cache.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: usize) -> Guide {
        Guide::new(Some(Filter::of_bytes(bytes)), Index::empty())
    }
}

impl Shortcuts for Guide {
    fn take_down(&self, entry: usize, block: &Block) {
        self.index.shortcut(entry).take_down(block);
    }
}

/// A guide, wherever it is kept.
pub(super) enum GuideRef<'t> {
    /// In the table.
    Pinned(&'t Arc<Guide>),
    /// In the cache, or with the caller alone.
    Shared(Arc<Guide>),
}

impl Deref for GuideRef<'_> {
    type Target = Guide;

    fn deref(&self) -> &Guide {
        match self {
            GuideRef::Pinned(guide) => guide,
            GuideRef::Shared(guide) => guide,
        }
    }
}
