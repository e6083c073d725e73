//! Walks the entries of a block, forward or backward.
//!
//! ```text
//! forward    one key buffer: each entry keeps `shared` bytes of it and appends its suffix
//! backward   one restart interval at a time is decoded, then given out from its end
//! ```
//!
//! Invariants
//! 1. Each entry is decoded once per pass, in both directions.
//! 2. Buffers are reused from block to block: a scan allocates only while its keys grow longer.
//!
//! Not here: which block comes next (`iter.rs`).
//! See: docs/format/table.md.

use super::block::{Block, BlockResult, malformed};
use dendra_base::Direction;
use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

/// An entry of the restart interval that a backward cursor walks.
struct IntervalEntry {
    key: Range<usize>,
    value: Range<usize>,
}

/// A position in a block, moving in one direction. Its buffers are reused from block to block.
pub(super) struct BlockCursor {
    block: Option<Arc<Block>>,
    direction: Direction,
    /// Forward: the current key. Backward: all keys of the current restart interval.
    keys: Vec<u8>,
    /// Forward: where the current value lies, and the next entry.
    value: Option<Range<usize>>,
    next: usize,
    /// Backward: the current entry is the last of these; `interval` is the restart they start at.
    steps: Vec<IntervalEntry>,
    interval: usize,
}

impl BlockCursor {
    /// A cursor that stands nowhere.
    pub(super) fn new() -> BlockCursor {
        BlockCursor {
            block: None,
            direction: Direction::Forward,
            keys: Vec::new(),
            value: None,
            next: 0,
            steps: Vec::new(),
            interval: 0,
        }
    }

    /// Stands nowhere, and holds no block.
    pub(super) fn clear(&mut self) {
        self.block = None;
        self.value = None;
        self.steps.clear();
    }

    /// Moves into `block`, to the first entry inside `bound` seen in `direction`.
    pub(super) fn seek(
        &mut self,
        block: Arc<Block>,
        bound: Bound<&[u8]>,
        direction: Direction,
    ) -> BlockResult<()> {
        self.clear();
        self.direction = direction;
        let done = match direction {
            Direction::Forward => self.seek_forward(&block, bound),
            Direction::Backward => self.seek_backward(&block, bound),
        };
        if done.is_err() {
            self.clear();
        } else {
            self.block = Some(block);
        }
        done
    }

    /// The entry it stands on.
    pub(super) fn current(&self) -> Option<(&[u8], &[u8])> {
        let block = self.block.as_ref()?;
        match self.direction {
            Direction::Forward => {
                let value = self.value.clone()?;
                Some((&self.keys, block.slice(value)))
            }
            Direction::Backward => {
                let step = self.steps.last()?;
                Some((
                    &self.keys[step.key.clone()],
                    block.slice(step.value.clone()),
                ))
            }
        }
    }

    /// Moves on. Requires: `current` is `Some`.
    pub(super) fn advance(&mut self) -> BlockResult<()> {
        let Some(block) = self.block.take() else {
            return Ok(());
        };
        let done = match self.direction {
            Direction::Forward => self.step_forward(&block),
            Direction::Backward => {
                self.steps.pop();
                self.fill_backward(&block)
            }
        };
        if done.is_err() {
            self.clear();
        } else {
            self.block = Some(block);
        }
        done
    }

    fn seek_forward(&mut self, block: &Block, bound: Bound<&[u8]>) -> BlockResult<()> {
        let (target, skips_equal) = match bound {
            Bound::Unbounded => (&[][..], false),
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        let before = block.partition_point(|key| key <= target)?;
        self.next = block.restart(before.saturating_sub(1));
        self.keys.clear();
        self.step_forward(block)?;
        while self.value.is_some() {
            match self.keys.as_slice().cmp(target) {
                Ordering::Less => self.step_forward(block)?,
                Ordering::Equal if skips_equal => self.step_forward(block)?,
                Ordering::Equal | Ordering::Greater => break,
            }
        }
        Ok(())
    }

    fn step_forward(&mut self, block: &Block) -> BlockResult<()> {
        if self.next >= block.entries_end() {
            self.value = None;
            return Ok(());
        }
        let entry = block.entry(self.next)?;
        if entry.shared > self.keys.len() {
            return malformed(self.next, "an entry shares more than the key before has");
        }
        self.keys.truncate(entry.shared);
        self.keys
            .extend_from_slice(block.slice(entry.suffix.clone()));
        self.value = Some(entry.value());
        self.next = entry.value_end;
        Ok(())
    }

    fn seek_backward(&mut self, block: &Block, bound: Bound<&[u8]>) -> BlockResult<()> {
        let (target, skips_equal) = match bound {
            Bound::Unbounded => {
                self.interval = block.restarts();
                return self.fill_backward(block);
            }
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
        };
        self.interval = block.partition_point(|key| key <= target)?;
        self.fill_backward(block)?;
        while let Some(step) = self.steps.last() {
            match self.keys[step.key.clone()].cmp(target) {
                Ordering::Less => break,
                Ordering::Equal if !skips_equal => break,
                Ordering::Equal | Ordering::Greater => {
                    self.steps.pop();
                    self.fill_backward(block)?;
                }
            }
        }
        Ok(())
    }

    /// When the interval is used up, decodes the one before it.
    fn fill_backward(&mut self, block: &Block) -> BlockResult<()> {
        if !self.steps.is_empty() || self.interval == 0 {
            return Ok(());
        }
        self.interval -= 1;
        self.keys.clear();
        let mut at = block.restart(self.interval);
        let end = block.interval_end(self.interval);
        let mut before = 0..0;
        while at < end {
            let entry = block.entry(at)?;
            if entry.shared > before.len() {
                return malformed(at, "an entry shares more than the key before has");
            }
            let start = self.keys.len();
            self.keys
                .extend_from_within(before.start..before.start + entry.shared);
            self.keys
                .extend_from_slice(block.slice(entry.suffix.clone()));
            before = start..self.keys.len();
            self.steps.push(IntervalEntry {
                key: before.clone(),
                value: entry.value(),
            });
            at = entry.value_end;
        }
        Ok(())
    }
}
