//! Background work, one bounded slice at a time: flushes, compactions, removal of files.
//!
//! ```text
//! Flush     spare segments ─► oldest sealed memtable ─► table of level 0 ─► old segments removed
//! Compact   pick ─► job … ─► install ─► replaced tables removed when no reader holds them
//! ```
//!
//! Invariants
//! 1. Each lane runs at most one job; the lanes do not wait for each other except to install.
//! 2. A file is removed only after the manifest that does not name it is durable.
//! 3. An error gives the job up and leaves the folder as it was. The next call starts anew, and
//!    without a table that failed two jobs (`damage.rs`).
//!
//! Not here: when slices run, and how far apart (the server's maintenance threads), the steps of
//! holes (`hole/tend.rs`), what is done where the disk is short of room (`room/`).
//! See: docs/overload.md.

use crate::compact::pick::{Plan, PlanReason, pick, pick_foreign, pick_purge, pick_settle};
use crate::compact::run::{MergeJob, Purge};
use crate::engine::Engine;
use crate::kept::{MarkOrder, Marked};
use crate::lanes::{CompactJob, Maintained, Quiet};
use crate::pressure::SEALED_MAX;
use crate::recover::replacement;
use crate::room::InRoom;
use crate::table::{self, Table, TableMeta};
use crate::tree::Tree;
use crate::tree::edit::{Edit, Fact};
use crate::tree::manifest::Manifest;
use crate::vfs::Vfs;
use crate::waits::hold;
use crate::{Error, Result, wal};
use dendra_base::{Durability, Version};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long no write must have come before level 0 is settled. Longer than pauses between requests,
/// shorter than an operator's patience.
const QUIET_MS: u64 = 10_000;

impl Engine {
    pub(crate) fn maintain_flush(&self, now_ms: u64, budget_bytes: usize) -> Result<Maintained> {
        self.look_at_disk()?;
        self.keep_less_on_a_full_disk()?;
        // A flush frees memory and, soon after, log segments: it goes before making new ones.
        let did_flush = match self.step_flush(now_ms, budget_bytes) {
            Err(error) if self.give_spare_for(&error)? => true,
            flushed => flushed?,
        };
        let floor = hold(&self.ledger).folder.log_floor;
        let removed = self.segments.remove_below(&*self.vfs, floor);
        if matches!(removed, Ok(true)) {
            self.forget_log_below(floor);
        }
        if self.options.durability == Durability::Os {
            self.sync_log_behind()?;
        }
        let did_prepare = self.prepare_segment()?;
        // Only now: a file that stays must not keep the log from going on.
        let more = removed? || did_flush || did_prepare;
        let more = self.seal_if_wanted()? || more;
        let more = self.seal_for_room(now_ms)? || more;
        Ok(if more {
            Maintained::More
        } else {
            Maintained::Idle
        })
    }

    /// Seals the active memtable because a caller waits for its content, and not for its size.
    fn seal_if_wanted(&self) -> Result<bool> {
        let (order, round) = (self.foreign.wants_seal(), self.holes.wants_seal());
        let is_ordered = order.is_some() || round.is_some();
        let is_wanted = is_ordered || self.wants_seal.load(Ordering::Acquire);
        if !is_wanted || self.view().sealed.len() >= SEALED_MAX {
            return Ok(false);
        }
        self.wants_seal.store(false, Ordering::Release);
        let log_floor = self.seal_and_roll().inspect_err(|error| {
            self.wants_seal.store(true, Ordering::Release);
            self.note_full_disk(error);
        })?;
        if let Some(order) = order {
            self.foreign.sealed(order, log_floor);
        }
        if let Some(round) = round {
            self.holes.sealed(round, log_floor);
        }
        Ok(true)
    }

    fn step_flush(&self, now_ms: u64, budget_bytes: usize) -> Result<bool> {
        let mut slot = hold(&self.lanes.flush);
        if slot.is_none() {
            let view = self.view();
            let Some(oldest) = view.sealed.last() else {
                return Ok(false);
            };
            let (tree, ended_ms) = (view.tree.clone(), self.ended_by(now_ms));
            let mut job = MergeJob::flush(&oldest.memtable, tree, &self.options, ended_ms)?;
            // Older records of its keys may be in a memtable, or in any table.
            self.leave_out(&mut job, None);
            *slot = Some(job);
        }
        let job = slot.as_mut().expect("set above");
        let result = match job.step(&*self.vfs, budget_bytes, &mut || self.next_file_id()) {
            Ok(false) => return Ok(true),
            Ok(true) => self.install_flush(job),
            Err(error) => Err(error),
        };
        self.end_job(slot.take().expect("it ran"), result)
    }

    fn install_flush(&self, job: &MergeJob) -> Result<()> {
        let added = job.finish(&*self.vfs)?;
        let view = self.view();
        let flushed = view
            .sealed
            .last()
            .expect("only this lane removes sealed memtables");
        let mut facts = replacement(0, &[], &added);
        facts.push(Fact::LogFloor {
            segment: flushed.log_floor_after,
        });
        // Removed segments take their promise about the clock with them. A purge takes the newest
        // version that tells how far the clock was used.
        let used = added.iter().map(|t| t.meta().version_max.hlc).max();
        let ceiling = self.hlc_ceiling.load(Ordering::Acquire);
        facts.push(Fact::HlcCeiling {
            hlc: ceiling.max(used.unwrap_or(0)),
        });
        let bytes: u64 = added.iter().map(|t| t.meta().bytes).sum();
        self.install(Edit { facts }, |next| {
            next.sealed.pop();
            let placed = added.iter().map(|t| (0, t.clone())).collect();
            next.tree = Arc::new(next.tree.replace(&[], placed));
        })?;
        self.note_made(job, &added);
        self.counters.flushes.add(1);
        self.counters.flush_bytes.add(bytes);
        Ok(())
    }

    /// Ends a job: its files stay when it was installed, and go when it was not.
    fn end_job(&self, job: MergeJob, result: Result<()>) -> Result<bool> {
        if let Err(error) = result {
            // After a final error the manifest on disk may name them: the next start decides.
            if !error.is_final() {
                for name in job.abandon() {
                    self.garbage.add(name);
                }
            }
            self.note_full_disk(&error);
            return Err(error);
        }
        Ok(true)
    }

    pub(crate) fn maintain_compact(&self, now_ms: u64, budget_bytes: usize) -> Result<Maintained> {
        let collected = self.garbage.collect(&*self.vfs, &self.kept);
        self.look_at_disk()?;
        if self.step_compact(now_ms, budget_bytes)? {
            // A file that cannot be removed is reported when there is no other work.
            return Ok(Maintained::More);
        }
        let more = collected?;
        Ok(if more {
            Maintained::More
        } else {
            Maintained::Idle
        })
    }

    fn step_compact(&self, now_ms: u64, budget_bytes: usize) -> Result<bool> {
        let mut slot = hold(&self.lanes.compact);
        if slot.is_none() {
            if self.tend_holes().inspect_err(|e| self.note_full_disk(e))? {
                return Ok(true);
            }
            match self.choose_job(now_ms)? {
                Chosen::Nothing => return Ok(false),
                Chosen::Moved => return Ok(true),
                Chosen::Job(job) => *slot = Some(*job),
            }
        }
        let job = slot.as_mut().expect("set above");
        let result = match job
            .merge
            .step(&*self.vfs, budget_bytes, &mut || self.next_file_id())
        {
            Ok(false) => match self.is_out_of_room(job) {
                Some(error) => Err(error),
                None => return Ok(true),
            },
            Ok(true) => self.install_compaction(job, now_ms),
            Err(error) => {
                self.damage.note_job(&error, &job.merge.reads());
                Err(error)
            }
        };
        let CompactJob { merge, reclaim } = slot.take().expect("it ran");
        let ended = self.end_job(merge, result);
        match (ended, reclaim) {
            (Err(error), Some(reclaim)) if error.is_no_space() => {
                // It was a try, and what stays of the table is too much. Others may give more back.
                self.note_reclaimed(&reclaim, &[], now_ms);
                Ok(true)
            }
            (ended, _) => ended,
        }
    }

    /// The next job of the compact lane; a move is done at once.
    fn choose_job(&self, now_ms: u64) -> Result<Chosen> {
        // Asked for before the view is taken: records flushed in between are in its tables.
        let horizon = self.purge_horizon().min(self.segments.version_min());
        let purge = Purge {
            horizon,
            ages: self.age_horizon(),
            log_min: self.segments.user_version_min(),
            log_min_of_all: self.segments.version_min(),
            ended_ms: self.ended_by(now_ms),
        };
        let ended_ms = purge.ended_ms;
        // On a full disk the merge does not wait for writes to rest.
        let is_quiet = self.is_quiet(now_ms) || self.room.is_full();
        let log_floor = hold(&self.ledger).folder.log_floor;
        let flushed = self.foreign.flushed(log_floor);
        let view = self.view();
        let mended = self.mend_plan(&view.tree, &view.holes);
        let mended = mended.or_else(|| self.drop_plan(&view.tree, &view.holes));
        let (tree, options) = (view.tree.clone(), &self.options);
        let (job, reclaim) = if let Some((plan, spans)) = mended {
            (MergeJob::mend(plan, tree, options, spans, ended_ms), None)
        } else {
            let aside = self.damage.set_aside();
            let mut levels = levels_of(&view.tree);
            levels[0].retain(|meta| !aside.contains(&meta.id));
            let plan = self.next_plan(&view.tree, horizon, is_quiet, flushed.is_some());
            match self.in_room(&levels, plan, now_ms) {
                None => return Ok(Chosen::Nothing),
                Some(InRoom::Plan(plan)) if plan.is_move => {
                    let moved = self.install_move(&plan);
                    return moved
                        .inspect_err(|e| self.note_full_disk(e))
                        .map(|()| Chosen::Moved);
                }
                Some(InRoom::Plan(plan)) => (MergeJob::compact(plan, tree, options, purge), None),
                Some(InRoom::Reclaim(reclaim)) => {
                    let reclaims =
                        MergeJob::reclaim(reclaim.plan.clone(), tree, options, purge, &aside);
                    (reclaims, Some(reclaim))
                }
            }
        };
        let live: Vec<u64> = view.tree.tables().map(|(_, t)| t.meta().id).collect();
        let mut merge = job.inspect_err(|e| self.damage.note_job(e, &live))?;
        self.leave_out(&mut merge, flushed);
        Ok(Chosen::Job(Box::new(CompactJob { merge, reclaim })))
    }

    /// Did no write come for a while? A clock that was set back begins anew.
    pub(crate) fn is_quiet(&self, now_ms: u64) -> bool {
        let now = Quiet {
            commits: self.counters.commits.value(),
            since_ms: now_ms,
        };
        let mut quiet = hold(&self.lanes.quiet);
        let before = quiet.filter(|q| q.commits == now.commits && q.since_ms <= now_ms);
        let since = before.unwrap_or(now);
        *quiet = Some(since);
        now_ms - since.since_ms >= QUIET_MS
    }

    fn next_plan(
        &self,
        tree: &Tree,
        horizon: Version,
        is_quiet: bool,
        is_foreign_flushed: bool,
    ) -> Option<Plan> {
        let aside = self.damage.set_aside();
        let is_aside = |table: &Arc<Table>| aside.contains(&table.meta().id);
        let in_the_way = tree.tables().find(|(n, t)| *n > 0 && is_aside(t));
        if let Some((level, table)) = in_the_way {
            return Some(Plan {
                inputs: vec![table.meta().id],
                level: 0,
                is_move: true,
                reason: PlanReason::Damaged { level },
            });
        }
        let mut levels = levels_of(tree);
        let all_of_level0 = levels[0].clone();
        levels[0].retain(|meta| !aside.contains(&meta.id));
        let plan = pick(&levels, &self.options)
            .or_else(|| pick_foreign(&levels, |it| is_foreign_flushed && self.foreign.wants(it)));
        let plan = plan.or_else(|| {
            if is_quiet {
                pick_settle(&levels, &self.options)
            } else {
                None
            }
        });
        plan.or_else(|| {
            // A table that is set aside may hold an older cell than a delete that would go.
            levels[0] = all_of_level0;
            pick_purge(&levels, horizon, 0).or_else(|| {
                let (clock, first_new) = self.ages.of_tables();
                let newest_of_tables = Version {
                    hlc: clock,
                    origin: u32::MAX,
                    rmw: u32::MAX,
                };
                pick_purge(&levels, newest_of_tables, first_new)
            })
        })
    }

    fn install_move(&self, plan: &Plan) -> Result<()> {
        let view = self.view();
        let moved: Vec<Arc<Table>> = view
            .tree
            .tables()
            .filter(|(_, t)| plan.inputs.contains(&t.meta().id))
            .map(|(_, t)| t.clone())
            .collect();
        self.install_tables(plan, &moved)?;
        self.counters.compactions.add(1);
        Ok(())
    }

    /// Records that the job is to leave out. Requires: its inputs are fixed, after `flushed`
    /// (`Foreign::flushed`).
    fn leave_out(&self, job: &mut MergeJob, flushed: Option<u64>) {
        let copies = self.age_horizon().copies;
        let dropping = self.holes.now(&self.view().holes, copies);
        job.leave_out(self.foreign.now(flushed, &self.cache), dropping);
    }

    fn note_made(&self, job: &MergeJob, added: &[Arc<Table>]) {
        let ids = added.iter().map(|table| table.meta().id);
        self.foreign
            .made(job.left_out(), &job.of_foreign(), ids.clone());
        self.holes.made(job.dropping(), ids);
    }

    fn install_compaction(&self, job: &CompactJob, now_ms: u64) -> Result<()> {
        let CompactJob {
            merge: job,
            reclaim,
        } = job;
        let added = job.finish(&*self.vfs)?;
        let plan = job.plan();
        if matches!(plan.reason, PlanReason::Mend { .. }) {
            // An earlier backup has the damage, and all tables are needed to be rid of it.
            self.kept.end_soon();
        }
        let replaced: Vec<Arc<Table>> = self
            .view()
            .tree
            .tables()
            .filter(|(_, t)| plan.inputs.contains(&t.meta().id))
            .map(|(_, t)| t.clone())
            .collect();
        self.install_tables(plan, &added)?;
        self.note_made(job, &added);
        if let Some(reclaim) = reclaim {
            let made: Vec<u64> = added.iter().map(|table| table.meta().id).collect();
            self.note_reclaimed(reclaim, &made, now_ms);
        }
        let spots = self.damage.forget(&plan.inputs);
        self.scrub.mended(spots);
        for table in replaced {
            self.garbage.add_table(table);
        }
        let bytes: u64 = added.iter().map(|t| t.meta().bytes).sum();
        self.counters.compactions.add(1);
        self.counters.compaction_read_bytes.add(job.read_bytes());
        self.counters.compaction_write_bytes.add(bytes);
        Ok(())
    }

    fn install_tables(&self, plan: &Plan, added: &[Arc<Table>]) -> Result<()> {
        let facts = replacement(plan.level, &plan.inputs, added);
        self.install(Edit { facts }, |view| {
            let added = added.iter().map(|t| (plan.level, t.clone())).collect();
            view.tree = Arc::new(view.tree.replace(&plan.inputs, added));
        })
    }

    /// Commits no write, since the outcomes belong to the caller of `commit`. It brings every
    /// committed write into tables.
    pub(crate) fn flush_all(&self, now_ms: u64) -> Result<()> {
        // At most two memtables may wait: make room for the one to be sealed.
        while self.step_flush(now_ms, usize::MAX)? {}
        self.seal_and_roll()?;
        while self.step_flush(now_ms, usize::MAX)? {}
        let floor = hold(&self.ledger).folder.log_floor;
        self.segments.remove_below(&*self.vfs, floor)?;
        Ok(())
    }

    /// Links every live table into `target` and gives it a manifest and an empty log of its own.
    pub(crate) fn link_into(
        &self,
        target: &dyn Vfs,
        path: &std::path::Path,
        order: Option<&MarkOrder>,
    ) -> Result<Option<Marked>> {
        // Holding the ledger keeps every table it names on disk until all are linked.
        let ledger = hold(&self.ledger);
        let mut folder = ledger.folder.clone();
        let ids: BTreeSet<u64> = folder.levels.iter().flatten().map(|m| m.id).collect();
        for id in &ids {
            let name = table::file_name(*id);
            let linked = self.vfs.link_into(&name, path);
            linked.map_err(|e| Error::io(format!("linking {name} into {}", path.display()), e))?;
        }
        let mark = |wanted| self.mark(&ledger, wanted, &ids, path);
        let marked = order.map(mark).transpose()?.flatten();
        folder.log_floor = 1;
        let ceiling = self.hlc_ceiling.load(Ordering::Acquire);
        folder.hlc_ceiling = folder.hlc_ceiling.max(ceiling);
        let salt = self.identity().log_salt();
        wal::prepare(target, salt, folder.log_floor, self.options.segment_bytes)?;
        Manifest::create(target, self.next_file_id(), &folder.snapshot())?;
        Ok(marked)
    }
}

/// The choice of the compact lane.
enum Chosen {
    Nothing,
    /// Tables were moved as they are: there may be more.
    Moved,
    Job(Box<CompactJob>),
}

fn levels_of(tree: &Tree) -> Vec<Vec<&TableMeta>> {
    let levels = tree.levels.iter();
    let metas = levels.map(|level| level.tables.iter().map(|t| t.meta()).collect());
    metas.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::vfs::faulty::{Call, CallFailure, FaultyVfs, Repeat};
    use crate::vfs::mem::MemVfs;
    use crate::{Batch, Guard, Identity};
    use dendra_base::{CellRef, Version};

    fn with_one_record(vfs: &FaultyVfs) -> Engine {
        let identity = Identity { node: 1, origin: 1 };
        let vfs = Arc::new(vfs.clone());
        let engine = Engine::open(vfs, Options::for_tests(), identity).expect("a new folder");
        let version = Version {
            hlc: 1,
            origin: 1,
            rmw: 0,
        };
        let mut batch = Batch::new();
        let cell = CellRef::value(b"\x10k", version, b"v");
        batch
            .push(0, b"\x10k", &cell, Guard::Newest, 1)
            .expect("the record fits");
        engine.submit(&mut batch).expect("the queue is empty");
        engine.commit(&mut Vec::new()).expect("the disk works");
        engine
    }

    #[test]
    fn files_that_a_manifest_of_unknown_state_may_name_stay() {
        let (mut kept, mut dropped) = (0, 0);
        for nth in 0.. {
            let below = MemVfs::new();
            let vfs = FaultyVfs::new(Arc::new(below.clone()));
            let engine = with_one_record(&vfs);
            let sync = vfs.calls().of(Call::Sync) + nth;
            vfs.fail(Call::Sync, sync, CallFailure::Io, Repeat::Once);
            let tables = || below.names().iter().filter(|n| n.ends_with(".tbl")).count();
            match engine.close(1) {
                Ok(()) => break,
                Err(Error::Poisoned { .. }) => {
                    engine
                        .garbage
                        .collect(&vfs, &engine.kept)
                        .expect("removing works");
                    assert_eq!(tables(), 1, "sync {nth} is the manifest's");
                    kept += 1;
                }
                Err(_) => {
                    engine
                        .garbage
                        .collect(&vfs, &engine.kept)
                        .expect("removing works");
                    assert_eq!(tables(), 0, "sync {nth} leaves nothing behind");
                    dropped += 1;
                }
            }
        }
        assert!(kept > 0 && dropped > 0, "{kept} kept, {dropped} dropped");
    }
}
