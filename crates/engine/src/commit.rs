//! Group commit: everything queued becomes one log write, one sync, and then visible.
//!
//! ```text
//! event loops ─ submit ─► queue ─┐ taken whole
//!                                ▼
//!                             pending ─ guards ─► log write ─► sync ─► memtable ─► outcomes
//! ```
//!
//! Invariants
//! 1. Order in the log is order of visibility, and guards are judged in that order: conditional and
//!    plain writes of a key are linearizable together.
//! 2. No write is visible, and no outcome is given, before the bytes are as durable as promised.
//! 3. After a failed log write or sync no byte more is written, ever (`Poisoned`).
//! 4. A write that its writer placed (`Guard::If(Condition::None)`) is newer than every write in
//!    front of it in the log whose guard held. Otherwise it would vanish after a condition that
//!    never saw it.
//! 5. Every token handed in comes back exactly once, unless the engine is poisoned.
//!
//! There is no timer: a batch is all that arrived while the last one was being synced.
//!
//! Not here: the bytes of the log (`wal`), the calls of `commit` (the server).
//! See: docs/decisions/0006-group-commit-and-synced-upto.md,
//! docs/decisions/0008-guards-in-commit-order.md.

use crate::batch::{
    Batch, BatchWrite, LogRecord, WriteOutcome, patch_encoded, patch_touch, patch_version,
};
use crate::cache::BlockCache;
use crate::memtable::Inserter;
use crate::observer::WriteObserver;
use crate::segments::OldestVersions;
use crate::touched::{self, Current, Touched};
use crate::vfs::Wait;
use crate::view::{Lookup, View};
use crate::wal::LogWriter;
use crate::{Error, Result};
use dendra_base::{CellRef, Condition, Guard, Space, Touch, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The writing side of one engine, behind its lock.
pub(crate) struct Log {
    pub(crate) writer: LogWriter,
    pub(crate) inserter: Inserter,
    /// Segment that was in use when the active memtable was made.
    pub(crate) active_since: u64,
    /// Taken from the queue and not yet written.
    pub(crate) pending: Batch,
    /// Bytes of `pending` when it was taken from the queue.
    pub(crate) taken_bytes: usize,
    /// One per op of `pending`, while a commit runs.
    outcomes: Vec<WriteOutcome>,
    /// What the touches of `pending` become, by their place; only those that are written.
    touched: BTreeMap<usize, Touched>,
    /// Touches of `pending` that are applied without a record: the key has their version already.
    void: BTreeSet<usize>,
    /// Most bytes of touched values in one commit.
    touched_bytes_max: usize,
    /// The newest version that was given to a write whose guard held, or raised because of one.
    fence: Version,
    pub(crate) observer: Option<Arc<dyn WriteObserver>>,
}

/// Can the pending batch be written now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Yes; outcomes are known.
    Ready,
    /// A guard needs the disk, and the caller must not wait.
    WouldBlock,
}

impl Log {
    pub(crate) fn new(writer: LogWriter, inserter: Inserter, touched_bytes_max: usize) -> Log {
        Log {
            active_since: writer.segment(),
            writer,
            inserter,
            pending: Batch::new(),
            taken_bytes: 0,
            outcomes: Vec::new(),
            touched: BTreeMap::new(),
            void: BTreeSet::new(),
            touched_bytes_max,
            // Versions of this process are above all of the processes before it.
            fence: Version::ZERO,
            observer: None,
        }
    }

    /// Decides each pending write and drops those whose guard fails from the batch's bytes.
    pub(crate) fn settle(
        &mut self,
        view: &View,
        cache: &BlockCache,
        wait: Wait,
    ) -> Result<Settled> {
        self.outcomes.clear();
        self.touched.clear();
        self.void.clear();
        if self.pending.ops.iter().all(is_unconditional) {
            for index in 0..self.pending.ops.len() {
                let op = self.pending.ops[index].clone();
                let proposed = pending_cell(&self.pending.bytes, &op).version;
                let version = self.placed(&op.guard, proposed);
                if version != proposed {
                    patch_version(&mut self.pending.bytes, op.start, version);
                }
                self.outcomes.push(WriteOutcome::Applied { version });
            }
            return Ok(Settled::Ready);
        }
        self.settle_guarded(view, cache, wait)
    }

    /// The version of a write without a condition, from the one its writer proposed.
    fn placed(&mut self, guard: &Guard, proposed: Version) -> Version {
        if *guard == Guard::Newest || proposed > self.fence {
            return proposed;
        }
        self.fence = self.fence.successor();
        self.fence
    }

    fn settle_guarded(&mut self, view: &View, cache: &BlockCache, wait: Wait) -> Result<Settled> {
        // Cells that earlier writes of this same batch will leave, by key, and whose they are.
        let mut ahead: BTreeMap<Vec<u8>, (Current, usize)> = BTreeMap::new();
        for index in 0..self.pending.ops.len() {
            let op = self.pending.ops[index].clone();
            let (record, _) = pending_record(&self.pending.bytes, &op);
            let key = record.stored_key.to_vec();
            if op.is_touch {
                let in_front = ahead.get(&key).copied();
                let Some(outcome) = self.settle_touch(index, in_front, view, cache, wait)? else {
                    return Ok(Settled::WouldBlock);
                };
                if let Some(touched) = self.touched.get(&index) {
                    let written = Current::of(&touched.cell(), op.now_ms);
                    ahead.insert(key, (written, index));
                }
                self.outcomes.push(outcome);
                continue;
            }
            let cell = record.cell().expect("a batch holds encoded cells");
            let mut written = Current::of(&cell, op.now_ms);
            let outcome = if is_unconditional(&op) {
                written.version = self.placed(&op.guard, written.version);
                WriteOutcome::Applied {
                    version: written.version,
                }
            } else {
                // Damage is noted by reads, scrubs and compactions.
                let pass = |_: &Error| {};
                let current = |found: CellRef<'_>| Current::of(&found, op.now_ms);
                let looked_up = view.get(cache, &key, wait, pass, current);
                let stored = match looked_up {
                    Ok(Lookup::Cell(found)) => Some(found),
                    Ok(Lookup::Nothing) => None,
                    Ok(Lookup::WouldBlock) => return Ok(Settled::WouldBlock),
                    Err(Error::Damaged { .. } | Error::Io { .. }) => {
                        self.outcomes.push(WriteOutcome::NotApplied);
                        continue;
                    }
                    Err(e) => return Err(e),
                };
                let in_front = ahead.get(&key).map(|it| it.0);
                let newest = in_front.into_iter().chain(stored);
                let newest = newest.reduce(Current::newest);
                let outcome = outcome_of(&op.guard, newest, &mut written.version);
                if let WriteOutcome::Applied { version } = outcome {
                    self.fence = self.fence.max(version);
                }
                outcome
            };
            if let WriteOutcome::Applied { version } = outcome {
                patch_version(&mut self.pending.bytes, op.start, version);
                let newest = ahead.entry(key).or_insert((written, index));
                if written.version.is_newer_than(newest.0.version) {
                    *newest = (written, index);
                }
            }
            self.outcomes.push(outcome);
        }
        Ok(Settled::Ready)
    }

    /// Decides the touch at `index`; `None` when its value needs the disk, and the caller must not
    /// wait. `in_front` is the newest cell that earlier writes of the batch leave.
    fn settle_touch(
        &mut self,
        index: usize,
        in_front: Option<(Current, usize)>,
        view: &View,
        cache: &BlockCache,
        wait: Wait,
    ) -> Result<Option<WriteOutcome>> {
        let op = self.pending.ops[index].clone();
        let (record, _) = pending_record(&self.pending.bytes, &op);
        let touch = record.touch().expect("its writer said that it is one");
        let look = |stored: CellRef<'_>| touched::look(record.stored_key, &touch, &op, &stored);
        let pass = |_: &Error| {};
        let stored = match view.get(cache, record.stored_key, wait, pass, look) {
            Ok(Lookup::Cell(found)) => Some(found),
            Ok(Lookup::Nothing) => None,
            Ok(Lookup::WouldBlock) => return Ok(None),
            Err(Error::Damaged { .. } | Error::Io { .. }) => {
                return Ok(Some(WriteOutcome::NotApplied));
            }
            Err(e) => return Err(e),
        };
        let is_behind = |current: &Current| {
            let stored = stored.as_ref().map(|found| found.current.version);
            stored.is_none_or(|stored| current.version.is_newer_than(stored))
        };
        let found = match in_front.filter(|(current, _)| is_behind(current)) {
            Some((_, at)) => Some(look(self.cell_ahead(at))),
            None => stored,
        };
        let Some(found) = found else {
            return Ok(Some(WriteOutcome::GuardFailed { current: None }));
        };
        let (mut version, live) = (touch.version, found.current.is_live);
        let live = live.then_some(found.current.version);
        match &op.guard {
            Guard::Newest if !version.is_newer_than(found.current.version) => {
                self.void.insert(index);
                return Ok(Some(WriteOutcome::Applied { version }));
            }
            Guard::Newest if !found.is_wanted => {
                return Ok(Some(WriteOutcome::GuardFailed { current: live }));
            }
            Guard::If(condition) if live.is_none() || !condition.holds(live) => {
                return Ok(Some(WriteOutcome::GuardFailed { current: live }));
            }
            Guard::Newest | Guard::If(_) => {}
        }
        let Some(mut touched) = found.touched else {
            // The value fails its checksum.
            return Ok(Some(WriteOutcome::NotApplied));
        };
        let bytes = self.touched.values().map(Touched::bytes).sum::<usize>();
        if bytes > 0 && bytes + touched.bytes() > self.touched_bytes_max {
            return Ok(Some(WriteOutcome::Crowded));
        }
        if let Guard::If(_) = op.guard {
            if !version.is_newer_than(found.current.version) {
                version = found.current.version.successor();
            }
            self.fence = self.fence.max(version);
        }
        let written = Touch {
            version,
            of: found.current.version,
            checksum: touched.cell().checksum,
            ..touch
        };
        patch_touch(&mut self.pending.bytes, op.start, &written);
        patch_encoded(&mut touched.encoded, version);
        self.touched.insert(index, touched);
        Ok(Some(WriteOutcome::Applied { version }))
    }

    /// The cell that the write at `at` leaves, which was settled before.
    fn cell_ahead(&self, at: usize) -> CellRef<'_> {
        match self.touched.get(&at) {
            Some(touched) => touched.cell(),
            None => pending_cell(&self.pending.bytes, &self.pending.ops[at]),
        }
    }

    /// The records to write: those whose guard held. Forgets the bytes of the others.
    pub(crate) fn drop_refused(&mut self) -> u32 {
        let void = &self.void;
        let is_written = |(index, outcome): (usize, &WriteOutcome)| {
            matches!(outcome, WriteOutcome::Applied { .. }) && !void.contains(&index)
        };
        let outcomes = self.outcomes.iter().enumerate();
        let applied = outcomes.clone().filter(|it| is_written(*it)).count();
        if applied < self.outcomes.len() {
            let mut kept = Vec::with_capacity(self.pending.bytes.len());
            for (op, outcome) in self.pending.ops.iter().zip(outcomes) {
                if is_written(outcome) {
                    let (_, rest) = pending_record(&self.pending.bytes, op);
                    let end = self.pending.bytes.len() - rest.len();
                    kept.extend_from_slice(&self.pending.bytes[op.start..end]);
                }
            }
            self.pending.bytes = kept;
        }
        u32::try_from(applied).expect("the commit queue holds fewer than 2^32 writes")
    }

    /// Oldest versions among the records to write. A touch counts below its own: the cell that it
    /// became has to stay in a table, or a replay looks for its value in vain.
    pub(crate) fn oldest(&self) -> OldestVersions {
        let mut oldest = OldestVersions {
            of_all: Version::MAX,
            of_users: Version::MAX,
        };
        let mut rest: &[u8] = &self.pending.bytes;
        while let Some((record, behind)) = LogRecord::split(rest) {
            let mut written = record.version().expect("a batch holds encoded cells");
            if record.touch().is_some() {
                written = written.predecessor();
            }
            oldest.of_all = oldest.of_all.min(written);
            if record.stored_key.first() == Some(&Space::User.byte()) {
                oldest.of_users = oldest.of_users.min(written);
            }
            rest = behind;
        }
        oldest
    }

    /// Makes the written records visible.
    pub(crate) fn publish(&mut self) {
        let mut rest: &[u8] = &self.pending.bytes;
        let mut touched = std::mem::take(&mut self.touched).into_values();
        while let Some((record, behind)) = LogRecord::split(rest) {
            if record.touch().is_some() {
                let whole = touched
                    .next()
                    .expect("each touch that is written has its cell");
                self.inserter.refer_to(whole.end_ms);
                self.inserter.insert(record.stored_key, &whole.encoded);
            } else {
                self.inserter.insert(record.stored_key, record.encoded_cell);
            }
            rest = behind;
        }
        assert!(rest.is_empty(), "a batch is a sequence of whole records");
    }

    /// Shows the written records to the observer, if it wants to see them.
    pub(crate) fn show(&self) {
        let Some(observer) = self.observer.as_ref().filter(|it| it.is_wanted()) else {
            return;
        };
        let mut rest: &[u8] = &self.pending.bytes;
        while let Some((record, behind)) = LogRecord::split(rest) {
            let version = record.version().expect("a batch holds encoded cells");
            observer.written(record.stored_key, version);
            rest = behind;
        }
        observer.shown();
    }

    /// Hands every token back with its outcome, and forgets the batch.
    pub(crate) fn report(&mut self, done: &mut Vec<(u64, WriteOutcome)>) {
        assert_eq!(
            self.outcomes.len(),
            self.pending.ops.len(),
            "one outcome per write"
        );
        let tokens = self.pending.ops.iter().map(|op| op.token);
        done.extend(tokens.zip(self.outcomes.drain(..)));
        self.pending.clear();
    }

    /// Hands every token back because of `error`: no record of the batch was written.
    pub(crate) fn give_up(&mut self, error: &Error, done: &mut Vec<(u64, WriteOutcome)>) {
        let outcome = if error.is_no_space() {
            WriteOutcome::NoRoom
        } else {
            WriteOutcome::NotApplied
        };
        done.extend(self.pending.ops.iter().map(|op| (op.token, outcome)));
        self.outcomes.clear();
        self.pending.clear();
    }
}

/// Is there no cell to look up before the write is applied?
fn is_unconditional(op: &BatchWrite) -> bool {
    !op.is_touch && matches!(op.guard, Guard::Newest | Guard::If(Condition::None))
}

fn pending_record<'a>(bytes: &'a [u8], op: &BatchWrite) -> (LogRecord<'a>, &'a [u8]) {
    LogRecord::split(&bytes[op.start..]).expect("a batch is a sequence of whole records")
}

fn pending_cell<'a>(bytes: &'a [u8], op: &BatchWrite) -> CellRef<'a> {
    pending_record(bytes, op)
        .0
        .cell()
        .expect("a batch holds encoded cells")
}

/// Does `guard` hold of `current`? A write that passes must become the newest: `version` is raised
/// above the version that it builds on.
fn outcome_of(guard: &Guard, current: Option<Current>, version: &mut Version) -> WriteOutcome {
    let live = current.filter(|c| c.is_live).map(|c| c.version);
    let holds = match guard {
        Guard::Newest => true,
        Guard::If(condition) => condition.holds(live),
    };
    if !holds {
        return WriteOutcome::GuardFailed { current: live };
    }
    if let Some(base) = current.map(|c| c.version).filter(|base| *version <= *base) {
        *version = base.successor();
    }
    WriteOutcome::Applied { version: *version }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(hlc: u64, is_live: bool) -> Option<Current> {
        Some(Current {
            version: Version {
                hlc,
                origin: 1,
                rmw: 0,
            },
            is_live,
        })
    }

    #[test]
    fn guards_see_tombstones_and_expired_values_as_absent() {
        let mut version = Version {
            hlc: 9,
            origin: 1,
            rmw: 0,
        };
        let applied = WriteOutcome::Applied { version };
        let refused = WriteOutcome::GuardFailed { current: None };
        assert_eq!(
            outcome_of(
                &Guard::If(Condition::Absent),
                current(5, false),
                &mut version
            ),
            applied
        );
        assert_eq!(
            outcome_of(&Guard::If(Condition::Absent), None, &mut version),
            applied
        );
        assert_eq!(
            outcome_of(
                &Guard::If(Condition::Present),
                current(5, false),
                &mut version
            ),
            refused
        );
        let base = Version {
            hlc: 5,
            origin: 1,
            rmw: 0,
        };
        assert_eq!(
            outcome_of(
                &Guard::If(Condition::Matches(base)),
                current(5, false),
                &mut version
            ),
            refused
        );
        assert_eq!(
            outcome_of(
                &Guard::If(Condition::Matches(base)),
                current(5, true),
                &mut version
            ),
            applied
        );
        assert_eq!(
            outcome_of(
                &Guard::If(Condition::Differs(base)),
                current(5, true),
                &mut version
            ),
            WriteOutcome::GuardFailed {
                current: Some(base)
            }
        );
    }

    #[test]
    fn a_write_that_passes_its_guard_becomes_the_newest() {
        let base = Version {
            hlc: 9,
            origin: 1,
            rmw: 0,
        };
        let mut version = Version {
            hlc: 3,
            origin: 1,
            rmw: 0,
        };
        let outcome = outcome_of(
            &Guard::If(Condition::Absent),
            current(9, false),
            &mut version,
        );
        assert_eq!(
            outcome,
            WriteOutcome::Applied {
                version: base.successor()
            }
        );
        assert!(version > base);
        // The same version twice names one write: a second one must differ.
        let mut version = base;
        outcome_of(
            &Guard::If(Condition::Absent),
            current(9, false),
            &mut version,
        );
        assert_eq!(version, base.successor());
    }
}
