//! The fence: which questions a member still answers after the owners have changed.
//!
//! ```text
//! asked 7, fence 9   partition changed in 6: admit       in 8 or 9: stale, the asker learns 9
//! asked 9, fence 9   admit
//! asked 9, fence 7   behind: the member learns 9 first
//! ```
//!
//! The newest durable record is the fence. A member answers a question of epoch 9 only once the
//! record of epoch 9 is durable in its folder. After a restart it therefore refuses the same
//! questions as before. The member's own note repeats the number behind the record: a folder that
//! loses the record to a damaged block still knows the number.
//!
//! Invariants
//! 1. The fence only rises, also over crashes.
//! 2. Two coordinators of different epochs get answers from one member for one partition only if
//!    its owners, and its moves, are equal in both epochs.
//!
//! Not here: that the asker is a member (`Chain::knows`).

use crate::epoch::record::EpochRecord;
use crate::ring::Partition;

/// May a question be answered?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceVerdict {
    /// The question may be answered.
    Admit,
    /// The partition has changed since. The asker adopts this epoch, and repeats the same phase
    /// with the same version.
    Stale {
        /// The fence.
        epoch: u64,
    },
    /// This member has to learn the asker's epoch first. The answer does not count.
    Behind {
        /// The fence.
        epoch: u64,
    },
    /// This member was removed: it answers no question any more.
    Removed,
}

/// The newest durable epoch, and when each partition changed.
#[derive(Clone, Debug)]
pub struct EpochFence {
    epoch: u64,
    /// For each partition the last epoch in which its row changed, as far as this process has seen
    /// it: the epoch of the start otherwise. That refuses more than it has to, never less.
    changed: Vec<u64>,
}

impl EpochFence {
    /// Fence of the record that a member finds in its folder.
    pub fn at(record: &EpochRecord) -> EpochFence {
        EpochFence {
            epoch: record.epoch(),
            changed: vec![record.epoch(); usize::from(record.partitions())],
        }
    }

    /// `after` is durable; it is later than `before`.
    pub fn advance(&mut self, before: &EpochRecord, after: &EpochRecord) {
        // Behind a hole no record tells which rows changed.
        if before.epoch() + 1 != after.epoch() {
            *self = EpochFence::at(after);
            return;
        }
        let (old, new) = (before.owners(), after.owners());
        for (partition, changed) in old.all().zip(&mut self.changed) {
            let is_same = old.owners(partition) == new.owners(partition)
                && old.moving(partition) == new.moving(partition);
            if !is_same {
                *changed = after.epoch();
            }
        }
        self.epoch = after.epoch();
    }

    /// The newest durable epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// May a question of epoch `asked` about `partition` be answered?
    pub fn admits(&self, partition: Partition, asked: u64) -> FenceVerdict {
        let epoch = self.epoch;
        if asked > epoch {
            return FenceVerdict::Behind { epoch };
        }
        match self.changed.get(partition.at()) {
            Some(changed) if *changed <= asked => FenceVerdict::Admit,
            _ => FenceVerdict::Stale { epoch },
        }
    }
}
