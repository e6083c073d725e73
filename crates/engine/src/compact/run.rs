//! One flush or compaction as a job that is run slice by slice.
//!
//! ```text
//! memtable, or input tables ─► Merge (newest cell per key) ─► purge? ─► table, table, … of the output level
//! ```
//!
//! Invariants
//! 1. A slice reads about its budget and returns; no code outside sees the outputs before `finish`.
//! 2. Outputs are re-read and compared with their digest before they may replace the inputs.
//! 3. An abandoned job leaves only files that no manifest names.
//! 4. Nothing is taken of a value by the clock of the moment: `Purge::ended_ms` says what has
//!    ended.
//!
//! Not here: the choice (`pick/`), the manifest (`engine.rs`).

use super::pick::{Plan, PlanReason};
use crate::foreign::{ForeignJob, ForeignRecords, Leaving};
use crate::hole::state::DropOrders;
use crate::memtable::Memtable;
use crate::merge::Merge;
use crate::options::{Compression, Options};
use crate::source::Source;
use crate::table::{
    self, KeySpan, LevelIter, MendIter, ReadMode, Table, TableIter, TableMeta, TableOptions,
    TableWriter,
};
use crate::tree::Tree;
use crate::vfs::{Vfs, Wait};
use crate::{Error, Result};
use dendra_base::{CellRef, Direction, Kind, Space, Version};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// No value has ended.
pub(crate) const NONE_ENDED_MS: u64 = 0;

/// The cells that may be dropped, fixed when the job starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purge {
    /// All replicas have confirmed tombstones and expired cells at or below this version. Neither a
    /// memtable nor the log holds an older version.
    pub horizon: Version,
    /// Horizon of a cluster, by age.
    pub ages: AgeHorizon,
    /// Neither a memtable nor the log holds a client's record of an older version.
    pub log_min: Version,
    /// Oldest version of any record in a memtable or the log: neither holds an older one.
    pub log_min_of_all: Version,
    /// Values that end until then have ended: `Engine::set_ended_ms`.
    pub ended_ms: u64,
}

impl Purge {
    /// No record may be dropped.
    fn nothing(ended_ms: u64) -> Purge {
        Purge {
            horizon: Version::ZERO,
            ages: AgeHorizon::default(),
            log_min: Version::ZERO,
            log_min_of_all: Version::ZERO,
            ended_ms,
        }
    }

    fn allows(&self, key: &[u8], cell: &CellRef<'_>) -> bool {
        let is_dead = !cell.is_live(self.ended_ms);
        if is_dead && cell.version <= self.horizon {
            return true;
        }
        // Of one folder alone: no other one has an older copy of it.
        let own = [Space::Hint, Space::Meta].map(|space| Some(space.byte()));
        if own.contains(&key.first().copied()) {
            let is_member = self.ages.copies > 0;
            return is_member && is_dead && cell.version <= self.log_min_of_all;
        }
        if !self.ages.covers(cell) {
            return false;
        }
        match key.first() {
            Some(byte) if *byte == Space::User.byte() => {
                is_dead && cell.copies >= self.ages.copies && cell.version <= self.log_min
            }
            // A promise is needed as long as a proposal may come that it forbids. A record that the
            // log brings back is older than each one that is made from now on.
            Some(byte) => *byte == Space::Protocol.byte(),
            None => false,
        }
    }
}

/// Up to which age the members of a cluster may forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgeHorizon {
    /// A clock value; 0 = no record is forgotten.
    pub clock: u64,
    /// Deletes of records with fewer copies stay: an owner that does not hold them may hold an
    /// older value with more copies.
    pub copies: u8,
}

impl AgeHorizon {
    /// Is the cell, by its age, of those that may be forgotten? Its version is looked at as well:
    /// a record of the protocol may be written anew under a later one.
    fn covers(&self, cell: &CellRef<'_>) -> bool {
        self.clock > 0 && cell.age() <= self.clock && cell.version.hlc <= self.clock
    }
}

/// A flush or compaction that is under way.
pub(crate) struct MergeJob {
    plan: Plan,
    tree: Arc<Tree>,
    merge: Merge,
    purge: Purge,
    /// Records of other folders: they are left out.
    foreign: Option<ForeignRecords>,
    /// Files made by this job that hold a foreign record which waits.
    foreign_waiting: BTreeSet<u64>,
    /// How many foreign records were left out.
    foreign_gone: u64,
    /// Records that a lost block may have hidden: the same.
    dropping: Option<DropOrders>,
    /// Newer records that stay where they are: what they hide is left out.
    hiding: Option<Hiding>,
    options: TableOptions,
    table_bytes: u64,
    /// The table being written.
    writer: Option<TableWriter>,
    /// Ids of all files made, also of those that were given up.
    made: Vec<u64>,
    metas: Vec<TableMeta>,
    read_bytes: u64,
}

/// The tables above one that is written anew alone: a newer record there hides one of it.
struct Hiding {
    tables: Vec<u64>,
    merge: Merge,
}

impl Hiding {
    fn of(
        plan: &Plan,
        tree: &Arc<Tree>,
        options: &Options,
        aside: &BTreeSet<u64>,
    ) -> Result<Hiding> {
        let mut inputs = tree.tables().filter(|(_, t)| plan.inputs == [t.meta().id]);
        let (level, table) = inputs.next().expect("the plan is of this tree");
        let range = table.meta();
        let is_above = |other: &&Arc<Table>| {
            let other = other.meta();
            let overlaps = other.smallest <= range.largest && range.smallest <= other.largest;
            overlaps && other.id != range.id && !aside.contains(&other.id)
        };
        let ahead = ReadMode::Ahead(options.ahead_bytes);
        let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
        let mut tables = Vec::new();
        for upper in tree.levels.iter().take(level).skip(1) {
            let upper: Vec<_> = upper.tables.iter().filter(is_above).cloned().collect();
            if !upper.is_empty() {
                tables.extend(upper.iter().map(|t| t.meta().id));
                sources.push(Box::new(LevelIter::new(upper, ahead.clone())));
            }
        }
        // So many windows are in the memory of jobs. Those with the most deletes hide the most.
        let windows = options.level0_inputs_max.saturating_sub(sources.len());
        let mut level0: Vec<_> = tree.levels[0].tables.iter().filter(is_above).collect();
        level0.sort_by_key(|t| std::cmp::Reverse((t.meta().tombstones, t.meta().id)));
        for upper in level0.into_iter().take(windows.max(1)) {
            tables.push(upper.meta().id);
            sources.push(Box::new(TableIter::new(Arc::clone(upper), ahead.clone())));
        }
        let mut merge = Merge::new(sources);
        merge.seek(Bound::Included(&range.smallest), Direction::Forward)?;
        Ok(Hiding { tables, merge })
    }

    /// Is there a newer record of `key`? Keys are asked for in rising order.
    fn hides(&mut self, key: &[u8], cell: &CellRef<'_>) -> Result<bool> {
        while let Some((above, newest)) = self.merge.current() {
            match above.cmp(key) {
                Ordering::Less => self.merge.advance()?,
                Ordering::Equal => return Ok(newest.is_newer_than(cell)),
                Ordering::Greater => break,
            }
        }
        Ok(false)
    }
}

impl MergeJob {
    /// Prepares the flush of a sealed memtable into one table of level 0.
    pub(crate) fn flush(
        memtable: &Arc<Memtable>,
        tree: Arc<Tree>,
        options: &Options,
        ended_ms: u64,
    ) -> Result<MergeJob> {
        let mut merge = Merge::new(vec![Box::new(memtable.iter())]);
        merge.seek(Bound::Unbounded, Direction::Forward)?;
        let plan = Plan {
            inputs: Vec::new(),
            level: 0,
            is_move: false,
            reason: PlanReason::Flush,
        };
        Ok(MergeJob {
            options: table_options(options, false),
            table_bytes: u64::MAX,
            plan,
            tree,
            merge,
            purge: Purge::nothing(ended_ms),
            foreign: None,
            foreign_waiting: BTreeSet::new(),
            foreign_gone: 0,
            dropping: None,
            hiding: None,
            writer: None,
            made: Vec::new(),
            metas: Vec::new(),
            read_bytes: 0,
        })
    }

    /// Prepares `plan` over `tree`.
    pub(crate) fn compact(
        plan: Plan,
        tree: Arc<Tree>,
        options: &Options,
        purge: Purge,
    ) -> Result<MergeJob> {
        let mut sources: Vec<Box<dyn Source + Send>> = Vec::new();
        for (number, level) in tree.levels.iter().enumerate() {
            let inputs = level
                .tables
                .iter()
                .filter(|t| plan.inputs.contains(&t.meta().id))
                .cloned();
            if number == 0 {
                for table in inputs {
                    sources.push(Box::new(TableIter::new(
                        table,
                        ReadMode::Ahead(options.ahead_bytes),
                    )));
                }
            } else {
                sources.push(Box::new(LevelIter::new(
                    inputs.collect::<Vec<_>>(),
                    ReadMode::Ahead(options.ahead_bytes),
                )));
            }
        }
        let mut merge = Merge::new(sources);
        merge.seek(Bound::Unbounded, Direction::Forward)?;
        let is_deepest = plan.level >= tree.deepest();
        Ok(MergeJob {
            options: table_options(options, is_deepest),
            // Level 0 counts tables, and one must not become many.
            table_bytes: match plan.level {
                0 => u64::MAX,
                _ => options.table_bytes as u64,
            },
            plan,
            tree,
            merge,
            purge,
            foreign: None,
            foreign_waiting: BTreeSet::new(),
            foreign_gone: 0,
            dropping: None,
            hiding: None,
            writer: None,
            made: Vec::new(),
            metas: Vec::new(),
            read_bytes: 0,
        })
    }

    /// Prepares to write one table of `tree` anew, without the damaged blocks in `repaired`. No
    /// record is purged.
    pub(crate) fn mend(
        plan: Plan,
        tree: Arc<Tree>,
        options: &Options,
        repaired: Vec<KeySpan>,
        ended_ms: u64,
    ) -> Result<MergeJob> {
        let mut inputs = tree.tables().filter(|(_, t)| plan.inputs == [t.meta().id]);
        let (level, table) = inputs.next().expect("the plan is of this tree");
        let mut merge = Merge::new(vec![Box::new(MendIter::new(Arc::clone(table), repaired))]);
        merge.seek(Bound::Unbounded, Direction::Forward)?;
        let is_deepest = level >= tree.deepest();
        drop(inputs);
        Ok(MergeJob {
            options: table_options(options, is_deepest),
            // Level 0 counts tables, and one must not become many.
            table_bytes: match level {
                0 => u64::MAX,
                _ => options.table_bytes as u64,
            },
            plan,
            tree,
            merge,
            purge: Purge::nothing(ended_ms),
            foreign: None,
            foreign_waiting: BTreeSet::new(),
            foreign_gone: 0,
            dropping: None,
            hiding: None,
            writer: None,
            made: Vec::new(),
            metas: Vec::new(),
            read_bytes: 0,
        })
    }

    /// Prepares to write one table of `tree` anew where it is, without the records that newer ones
    /// in the tables above hide. It needs no more room than what stays. `aside` = tables that no
    /// job reads.
    pub(crate) fn reclaim(
        plan: Plan,
        tree: Arc<Tree>,
        options: &Options,
        purge: Purge,
        aside: &BTreeSet<u64>,
    ) -> Result<MergeJob> {
        let hiding = Hiding::of(&plan, &tree, options, aside)?;
        let mut job = MergeJob::compact(plan, tree, options, purge)?;
        job.hiding = Some(hiding);
        Ok(job)
    }

    /// Every table that it reads.
    pub(crate) fn reads(&self) -> Vec<u64> {
        let above = self.hiding.iter().flat_map(|hiding| &hiding.tables);
        above.chain(&self.plan.inputs).copied().collect()
    }

    /// Bytes of its output so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        let closed: u64 = self.metas.iter().map(|meta| meta.bytes).sum();
        closed + self.writer.as_ref().map_or(0, TableWriter::bytes_written)
    }

    /// Leaves these records out. Before the first step; the inputs are fixed.
    pub(crate) fn leave_out(
        &mut self,
        foreign: Option<ForeignRecords>,
        dropping: Option<DropOrders>,
    ) {
        self.foreign = foreign;
        self.dropping = dropping;
    }

    /// The foreign records that it leaves out.
    pub(crate) fn left_out(&self) -> Option<&ForeignRecords> {
        self.foreign.as_ref()
    }

    /// The fate of the foreign records.
    pub(crate) fn of_foreign(&self) -> ForeignJob<'_> {
        ForeignJob {
            inputs: &self.plan.inputs,
            waiting: &self.foreign_waiting,
            gone: self.foreign_gone,
            is_mend: matches!(self.plan.reason, PlanReason::Mend { .. }),
        }
    }

    /// The drops that it is a part of.
    pub(crate) fn dropping(&self) -> Option<&DropOrders> {
        self.dropping.as_ref()
    }

    /// The tables that it merges, and why.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of keys and values read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Works through about `budget_bytes` of input; true when the inputs are exhausted.
    /// `next_id` hands out table ids.
    pub(crate) fn step(
        &mut self,
        vfs: &dyn Vfs,
        budget_bytes: usize,
        next_id: &mut dyn FnMut() -> u64,
    ) -> Result<bool> {
        let mut seen = 0;
        while seen < budget_bytes {
            let Some((key, cell)) = self.merge.current() else {
                self.close_table()?;
                return Ok(true);
            };
            let bytes = key.len() + cell.encoded_len();
            seen += bytes;
            self.read_bytes += bytes as u64;
            let leaving = match &self.foreign {
                Some(foreign) => foreign.leaving(key, &cell, &self.plan.inputs, &self.tree)?,
                None => Leaving::Stays,
            };
            self.foreign_gone += u64::from(leaving == Leaving::Goes);
            let is_below = match &mut self.hiding {
                Some(hiding) => hiding.hides(key, &cell)?,
                None => false,
            };
            let is_hidden = self.dropping.as_mut().is_some_and(|it| it.has(key, &cell));
            let is_gone = leaving == Leaving::Goes || is_hidden || is_below;
            if !is_gone && !self.is_droppable(key, &cell) {
                if self.writer.is_none() {
                    let id = next_id();
                    self.writer = Some(TableWriter::create(vfs, id, &self.options)?);
                    self.made.push(id);
                }
                if leaving == Leaving::Waits {
                    let id = *self.made.last().expect("made above");
                    self.foreign_waiting.insert(id);
                }
                let writer = self.writer.as_mut().expect("made above");
                match ended_as_tombstone(&cell, self.purge.ended_ms, key) {
                    Some(tombstone) => writer.add(key, &tombstone)?,
                    None => writer.add(key, &cell)?,
                }
                if writer.bytes_written() >= self.table_bytes {
                    self.close_table()?;
                }
            }
            self.merge.advance()?;
        }
        Ok(false)
    }

    fn is_droppable(&self, key: &[u8], cell: &CellRef<'_>) -> bool {
        self.purge.allows(key, cell)
            && !self
                .tree
                .may_hold_older(&self.plan.inputs, key, cell.version)
    }

    fn close_table(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.metas.push(writer.finish()?);
        }
        Ok(())
    }

    /// Makes the outputs' names durable, re-reads them, and opens them.
    pub(crate) fn finish(&self, vfs: &dyn Vfs) -> Result<Vec<Arc<Table>>> {
        assert!(
            self.writer.is_none(),
            "the last table is closed before the job is finished"
        );
        open_outputs(vfs, &self.metas)
    }

    /// Names of the files made so far, for a job that is given up.
    pub(crate) fn abandon(self) -> Vec<String> {
        self.made.into_iter().map(table::file_name).collect()
    }
}

/// A value that has ended for everybody and must stay for its version needs its bytes no more.
fn ended_as_tombstone<'a>(cell: &CellRef<'a>, ended_ms: u64, key: &[u8]) -> Option<CellRef<'a>> {
    (cell.kind == Kind::Value && !cell.is_live(ended_ms)).then(|| CellRef {
        copies: cell.copies,
        born: cell.born,
        ..CellRef::tombstone(key, cell.version)
    })
}

/// Settings of tables written for the deepest level or another.
pub(crate) fn table_options(options: &Options, is_deepest: bool) -> TableOptions {
    let compression: Compression = if is_deepest {
        options.compression_deepest
    } else {
        options.compression
    };
    TableOptions {
        block_bytes: options.block_bytes,
        filter_bits_per_key: options.filter_bits_per_key,
        compression,
        ..TableOptions::default()
    }
}

/// The order of rule: bytes, file sync (done by the writer), folder sync, re-read; only then may
/// the manifest name them.
pub(crate) fn open_outputs(vfs: &dyn Vfs, metas: &[TableMeta]) -> Result<Vec<Arc<Table>>> {
    if metas.is_empty() {
        return Ok(Vec::new());
    }
    vfs.sync_folder()
        .map_err(|e| Error::io("syncing the folder", e))?;
    let open = |meta: &TableMeta| {
        check_digest(vfs, meta)?;
        Table::open(vfs, meta.clone()).map(Arc::new)
    };
    metas.iter().map(open).collect()
}

/// Compares the whole file with the digest that its writer computed.
pub(crate) fn check_digest(vfs: &dyn Vfs, meta: &TableMeta) -> Result<()> {
    let name = table::file_name(meta.id);
    let file = vfs
        .open(&name)
        .map_err(|e| Error::io(format!("opening {name}"), e))?;
    let mut hasher = xxhash_rust::xxh3::Xxh3Default::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        match file.read_at(&mut buffer, at, Wait::Block) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&buffer[..n]);
                at += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io(format!("reading {name}"), e)),
        }
    }
    if at != meta.bytes || hasher.digest() != meta.digest {
        return Err(Error::damaged(
            name,
            0,
            format!(
                "{at} bytes with digest {:016x} are on disk, {} bytes with {:016x} were written",
                hasher.digest(),
                meta.bytes,
                meta.digest
            ),
        ));
    }
    Ok(())
}
