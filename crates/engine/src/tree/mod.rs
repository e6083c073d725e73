//! The tables that are live right now, level by level: an immutable value that readers share.
//!
//! ```text
//! level 0   [k….z] [a….p] [c….x]      tables overlap; each came from one memtable
//! level 1   [a…f] [g…m] [n…z]         tables are disjoint and sorted by key
//! level n   [a…b] [c…d] … [y…z]
//! ```
//!
//! Invariants
//! 1. From level 1 on, tables of a level are sorted and disjoint.
//! 2. No reader depends on the order of levels: versions alone decide which cell is newest.
//! 3. `apply` is pure: the same tree and edit give the same tree. It refuses an edit that does not
//!    fit.
//!
//! Not here: the record of edits on disk (`manifest.rs`), the choice of compactions (`compact`).
//! See: docs/format/manifest.md.

pub(crate) mod edit;
pub(crate) mod manifest;

use crate::table::Table;
use dendra_base::Version;
use std::sync::Arc;

/// One level.
#[derive(Clone)]
pub(crate) struct Level {
    /// Level 0: newest first. Deeper: sorted by key.
    pub tables: Arc<[Arc<Table>]>,
}

impl Level {
    /// Bytes of all its tables.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|t| t.meta().bytes).sum()
    }

    /// The table of a sorted level whose range could hold `stored_key`.
    #[inline]
    pub(crate) fn candidate(&self, stored_key: &[u8]) -> Option<&Arc<Table>> {
        // Most levels of most trees: that is seen without a search.
        if self.tables.is_empty() {
            return None;
        }
        let at = self
            .tables
            .partition_point(|t| t.meta().largest.as_slice() < stored_key);
        self.tables
            .get(at)
            .filter(|t| t.meta().smallest.as_slice() <= stored_key)
    }
}

/// All live tables.
#[derive(Clone)]
pub(crate) struct Tree {
    /// Level 0 first; trailing levels may be empty.
    pub levels: Vec<Level>,
}

/// Depth that no data set of today's disks reaches with the smallest fan-out.
pub(crate) const LEVELS_MAX: usize = 10;

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// An empty tree.
    pub(crate) fn new() -> Tree {
        Tree {
            levels: vec![
                Level {
                    tables: Arc::new([])
                };
                LEVELS_MAX
            ],
        }
    }

    /// This tree without `removed` and with `added` tables.
    pub(crate) fn replace(&self, removed: &[u64], added: Vec<(usize, Arc<Table>)>) -> Tree {
        let mut levels: Vec<Vec<Arc<Table>>> = self
            .levels
            .iter()
            .map(|level| level.tables.to_vec())
            .collect();
        for tables in &mut levels {
            tables.retain(|t| !removed.contains(&t.meta().id));
        }
        for (level, table) in added {
            levels[level].push(table);
        }
        levels[0].sort_by_key(|t| std::cmp::Reverse((t.meta().version_max, t.meta().id)));
        for tables in &mut levels[1..] {
            tables.sort_by(|a, b| a.meta().smallest.cmp(&b.meta().smallest));
            for pair in tables.windows(2) {
                assert!(
                    pair[0].meta().largest < pair[1].meta().smallest,
                    "tables {:016x} and {:016x} of one level overlap",
                    pair[0].meta().id,
                    pair[1].meta().id
                );
            }
        }
        let level = |tables: Vec<Arc<Table>>| Level {
            tables: tables.into(),
        };
        Tree {
            levels: levels.into_iter().map(level).collect(),
        }
    }

    /// Every table with its level.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(n, level)| level.tables.iter().map(move |t| (n, t)))
    }

    /// Memory that open tables hold for themselves.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.tables().map(|(_, t)| t.pinned_bytes()).sum()
    }

    /// The deepest level that holds anything.
    pub(crate) fn deepest(&self) -> usize {
        self.levels
            .iter()
            .rposition(|l| !l.tables.is_empty())
            .unwrap_or(0)
    }

    /// Level 0, and the levels below it down to the deepest that holds anything.
    pub(crate) fn levels_in_use(&self) -> (&Level, &[Level]) {
        let (level0, sorted) = self.levels[..=self.deepest()]
            .split_first()
            .expect("level 0 is always there");
        (level0, sorted)
    }

    /// Could a table outside `inputs` hold an older cell of `stored_key` than `version`?
    pub(crate) fn may_hold_older(
        &self,
        inputs: &[u64],
        stored_key: &[u8],
        version: Version,
    ) -> bool {
        let mut others = self.others_with_older(inputs, stored_key, version);
        others.next().is_some()
    }

    /// The tables outside `inputs` that could, by their ranges of keys and versions.
    pub(crate) fn others_with_older<'a>(
        &'a self,
        inputs: &'a [u64],
        stored_key: &'a [u8],
        version: Version,
    ) -> impl Iterator<Item = &'a Arc<Table>> {
        let (level0, sorted) = self.levels.split_first().expect("a tree has levels");
        let in_sorted = sorted
            .iter()
            .filter_map(move |level| level.candidate(stored_key));
        level0.tables.iter().chain(in_sorted).filter(move |table| {
            let meta = table.meta();
            meta.version_min < version && meta.holds_key(stored_key) && !inputs.contains(&meta.id)
        })
    }
}
