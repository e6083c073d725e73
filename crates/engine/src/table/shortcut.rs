//! From an index entry straight to its block, as long as the cache holds it.
//!
//! ```text
//! pinned guide ─► place ── shortcut (weak) ──► block ◄── cache
//!                   ▲                            │
//!                   └───────── signpost ─────────┘    the cache lets the block go: it is taken down
//! ```
//!
//! Invariants
//! 1. A shortcut keeps no block alive: a block that the cache lets go is gone with its last reader.
//! 2. It leads to the block of its own place or nowhere. Blocks never change, so a block that left
//!    the cache under a reader's hands is as good as one that stays.
//! 3. The cache sees as much as it can count: of the reads between two visits of its hand, the
//!    first `NOTED_READS` take the long way.
//! 4. A shortcut to a block that is gone holds its header (about 230 bytes) until the next one.
//!    Only a race between setting it and the eviction leaves such a pointer.
//!
//! Not here: the cache (`cache.rs`), which guides are pinned (`reader.rs`), the signpost of a block
//! (`block.rs`).
//! See: docs/decisions/0017-shortcuts-to-cached-blocks.md.

use super::block::Block;
use arc_swap::ArcSwapWeak;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The cache counts the reads of a block to two, and takes one away each time its hand comes by.
const NOTED_READS: u8 = 2;

/// The way from a place in an index to its block.
#[derive(Debug)]
pub(super) struct Shortcut(ArcSwapWeak<Block>);

impl Default for Shortcut {
    fn default() -> Shortcut {
        Shortcut(ArcSwapWeak::new(Weak::new()))
    }
}

impl Shortcut {
    /// The block, when it is at hand and the cache need not hear of this read.
    pub(super) fn block(&self) -> Option<Arc<Block>> {
        let block = self.0.load().upgrade()?;
        let noted = &block.signpost.noted;
        let count = noted.load(Ordering::Relaxed);
        if count < NOTED_READS {
            // Two readers at once may count as one: then the cache sees one more.
            noted.store(count + 1, Ordering::Relaxed);
            return None;
        }
        Some(block)
    }

    /// Leads to `block` from now on.
    pub(super) fn lead_to(&self, block: &Arc<Block>) {
        self.0.store(Arc::downgrade(block));
    }

    /// Leads nowhere from now on, if it leads to `block`.
    pub(super) fn take_down(&self, block: &Block) {
        let current = self.0.load();
        if std::ptr::eq(current.as_ptr(), block) {
            self.0.compare_and_swap(&*current, Weak::new());
        }
    }

    /// Where it leads, without counting as a read.
    #[cfg(test)]
    pub(super) fn end(&self) -> Weak<Block> {
        self.0.load_full()
    }
}

impl Block {
    /// The hand of the cache comes by: it looks at the counts, and wants to count again.
    pub(crate) fn count_again(&self) {
        if self.signpost.noted.load(Ordering::Relaxed) > 0 {
            self.signpost.noted.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the shortcut away: the cache lets this block go.
    pub(crate) fn take_down_signpost(&self) {
        let Some((keeper, entry)) = self.signpost.place.get() else {
            return;
        };
        if let Some(keeper) = keeper.upgrade() {
            keeper.take_down(*entry, self);
        }
    }
}
