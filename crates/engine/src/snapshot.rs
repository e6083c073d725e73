//! Reads a checkpoint: the tables that its manifest lists, without a log and without a write.
//!
//! ```text
//! CURRENT ─► manifest ─► tables ─┬─► scan       the log of a checkpoint is empty, and is not looked at
//! kept tables, as one finds them ┘
//! ```
//!
//! Invariants
//! 1. No file is written to the folder, and no lock is taken: the folder may be a backup.
//!
//! Not here: making a checkpoint (`Engine::checkpoint`), a folder that a node ran on (`check`).
//! See: docs/format/backup.md.

use crate::cache::BlockCache;
use crate::identity::Identity;
use crate::memtable::Memtable;
use crate::recover;
use crate::scan::{Cursor, Flow, Progress};
use crate::table::Table;
use crate::tree::manifest;
use crate::vfs::Vfs;
use crate::view::View;
use crate::{Error, Result};
use dendra_base::CellRef;
use std::sync::Arc;

/// Memory of the blocks and guides of one snapshot: scans keep little of the data that they read.
const CACHE_BYTES: usize = 8 << 20;

/// The records of one checkpoint.
pub struct Snapshot {
    view: View,
    cache: Arc<BlockCache>,
    identity: Identity,
    hlc: u64,
}

impl Snapshot {
    /// Opens the checkpoint in the folder behind `vfs`.
    ///
    /// # Errors
    /// The folder is not a checkpoint, is damaged, or cannot be read.
    pub fn open(vfs: &dyn Vfs) -> Result<Snapshot> {
        Snapshot::open_with(vfs, &[])
    }

    /// Opens a checkpoint with more tables, which its manifest does not name: those that the node's
    /// flushes wrote since. Of each key the newest record counts, wherever it is.
    ///
    /// # Errors
    /// As those of `open`.
    pub fn open_with(vfs: &dyn Vfs, kept: &[String]) -> Result<Snapshot> {
        let names = vfs
            .list()
            .map_err(|e| Error::io("listing the checkpoint", e))?;
        let Some(named) = manifest::current(vfs, &names)? else {
            return Err(Error::damaged(manifest::CURRENT, 0, "it is missing"));
        };
        let folder = manifest::replay(vfs, named.id, named.bytes)?;
        let tree = recover::open_tables(vfs, &folder, &names)?;
        let kept = kept.iter().map(|name| Table::open_kept(vfs, name));
        let kept = kept.map(|table| Ok((0, Arc::new(table?))));
        let tree = tree.replace(&[], kept.collect::<Result<_>>()?);
        let identity = folder.identity.expect("replay sets it");
        let hlc = folder.hlc_ceiling.max(recover::newest_hlc(&tree));
        let cache = Arc::new(BlockCache::new(CACHE_BYTES));
        cache.make_room(tree.pinned_bytes());
        let (active, _) = Memtable::new(1 << 10);
        Ok(Snapshot {
            view: View {
                active,
                sealed: Vec::new(),
                tree: Arc::new(tree),
                holes: folder.holes.into(),
            },
            cache,
            identity,
            hlc,
        })
    }

    /// The folder that the checkpoint was made of.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The largest clock value that its node may have used.
    pub fn hlc(&self) -> u64 {
        self.hlc
    }

    /// Live records and tombstones of its tables, older copies of a key included.
    pub fn records(&self) -> u64 {
        self.view.tree.tables().map(|(_, t)| t.meta().records).sum()
    }

    /// Scans like [`crate::Engine::scan`].
    ///
    /// # Errors
    /// A table is damaged or cannot be read.
    pub fn scan(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        visit: impl FnMut(&[u8], CellRef<'_>) -> Flow,
    ) -> Result<Progress> {
        let sources = self.view.sources(&self.cache, cursor.fill());
        cursor.run(sources, &self.view.holes, budget_bytes, visit)
    }
}
