//! How many bytes of a table a range of keys takes, by the parts of it in memory.
//!
//! ```text
//! partitions   |  0  |  1  |  2  |  3  |      of about a mebibyte of data each
//! range              [......]                 counts 1: those of which the top index knows that they are inside
//! all keys     [......................]       counts the file
//! ```
//!
//! Invariants
//! 1. No byte is read from the disk.
//! 2. It is never more than the range takes, and less by two partitions of each table at most.
//!
//! Not here: ranges over all tables and memtables (`engine.rs`).
//! See: docs/format/table.md.

use super::Table;

impl Table {
    /// Bytes of its file that records in `from..to` take, rounded down to partitions.
    pub(crate) fn bytes_between(&self, from: &[u8], to: &[u8]) -> u64 {
        let (smallest, largest) = (&*self.meta.smallest, &*self.meta.largest);
        if largest < from || to <= smallest {
            return 0;
        }
        if from <= smallest && largest < to {
            return self.meta.bytes;
        }
        let start_of = |partition: usize| {
            if partition < self.top.len() {
                self.top.data(partition).start
            } else {
                self.meta.bytes
            }
        };
        // The partition that holds `from` counts when it begins there.
        let first = if from <= smallest {
            0
        } else {
            self.top.lower_bound(from) + 1
        };
        // The one that holds `to` does not count.
        let end = self.top.lower_bound(to);
        start_of(end).saturating_sub(start_of(first))
    }
}
