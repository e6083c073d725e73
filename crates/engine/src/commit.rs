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

use crate::batch::{Batch, BatchWrite, LogRecord, WriteOutcome, patch_version};
use crate::cache::BlockCache;
use crate::memtable::Inserter;
use crate::segments::OldestVersions;
use crate::vfs::Wait;
use crate::view::{Lookup, View};
use crate::wal::LogWriter;
use crate::{Error, Result};
use dendra_base::{CellRef, Condition, Guard, Space, Version};
use std::collections::BTreeMap;

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
    /// The newest version that was given to a write whose guard held, or raised because of one.
    fence: Version,
}

/// Can the pending batch be written now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Yes; outcomes are known.
    Ready,
    /// A guard needs the disk, and the caller must not wait.
    WouldBlock,
}

/// A key's newest cell, as far as a guard needs it.
#[derive(Clone, Copy)]
struct Current {
    version: Version,
    is_live: bool,
}

impl Current {
    fn of(cell: &CellRef<'_>, now_ms: u64) -> Current {
        Current {
            version: cell.version,
            is_live: cell.is_live(now_ms),
        }
    }

    /// The one that stays; this one when both have the same version.
    fn newest(self, other: Current) -> Current {
        if other.version.is_newer_than(self.version) {
            other
        } else {
            self
        }
    }
}

impl Log {
    pub(crate) fn new(writer: LogWriter, inserter: Inserter) -> Log {
        Log {
            active_since: writer.segment(),
            writer,
            inserter,
            pending: Batch::new(),
            taken_bytes: 0,
            outcomes: Vec::new(),
            // Versions of this process are above all of the processes before it.
            fence: Version::ZERO,
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
        if self.pending.ops.iter().all(|op| is_unconditional(op.guard)) {
            for index in 0..self.pending.ops.len() {
                let op = self.pending.ops[index];
                let proposed = pending_cell(&self.pending.bytes, &op).version;
                let version = self.placed(op.guard, proposed);
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
    fn placed(&mut self, guard: Guard, proposed: Version) -> Version {
        if guard == Guard::Newest || proposed > self.fence {
            return proposed;
        }
        self.fence = self.fence.successor();
        self.fence
    }

    fn settle_guarded(&mut self, view: &View, cache: &BlockCache, wait: Wait) -> Result<Settled> {
        // Cells that earlier writes of this same batch will leave, by key.
        let mut ahead: BTreeMap<Vec<u8>, Current> = BTreeMap::new();
        for index in 0..self.pending.ops.len() {
            let op = self.pending.ops[index];
            let (record, _) = pending_record(&self.pending.bytes, &op);
            let key = record.stored_key.to_vec();
            let cell = record.cell().expect("a batch holds encoded cells");
            let mut written = Current::of(&cell, op.now_ms);
            let outcome = if is_unconditional(op.guard) {
                written.version = self.placed(op.guard, written.version);
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
                let newest = ahead.get(&key).copied().into_iter().chain(stored);
                let newest = newest.reduce(Current::newest);
                let outcome = outcome_of(op.guard, newest, &mut written.version);
                if let WriteOutcome::Applied { version } = outcome {
                    self.fence = self.fence.max(version);
                }
                outcome
            };
            if let WriteOutcome::Applied { version } = outcome {
                patch_version(&mut self.pending.bytes, op.start, version);
                let newest = ahead.entry(key).or_insert(written);
                *newest = newest.newest(written);
            }
            self.outcomes.push(outcome);
        }
        Ok(Settled::Ready)
    }

    /// The records to write: those whose guard held. Forgets the bytes of the others.
    pub(crate) fn drop_refused(&mut self) -> u32 {
        let is_applied = |o: &WriteOutcome| matches!(o, WriteOutcome::Applied { .. });
        let applied = self.outcomes.iter().filter(|o| is_applied(o)).count();
        if applied < self.outcomes.len() {
            let mut kept = Vec::with_capacity(self.pending.bytes.len());
            for (op, outcome) in self.pending.ops.iter().zip(&self.outcomes) {
                if is_applied(outcome) {
                    let (_, rest) = pending_record(&self.pending.bytes, op);
                    let end = self.pending.bytes.len() - rest.len();
                    kept.extend_from_slice(&self.pending.bytes[op.start..end]);
                }
            }
            self.pending.bytes = kept;
        }
        u32::try_from(applied).expect("the commit queue holds fewer than 2^32 writes")
    }

    /// Oldest versions among the records to write.
    pub(crate) fn oldest(&self) -> OldestVersions {
        let mut oldest = OldestVersions {
            of_all: Version::MAX,
            of_users: Version::MAX,
        };
        let mut rest: &[u8] = &self.pending.bytes;
        while let Some((record, behind)) = LogRecord::split(rest) {
            let cell = record.cell().expect("a batch holds encoded cells");
            oldest.of_all = oldest.of_all.min(cell.version);
            if record.stored_key.first() == Some(&Space::User.byte()) {
                oldest.of_users = oldest.of_users.min(cell.version);
            }
            rest = behind;
        }
        oldest
    }

    /// Makes the written records visible.
    pub(crate) fn publish(&mut self) {
        let mut rest: &[u8] = &self.pending.bytes;
        while let Some((record, behind)) = LogRecord::split(rest) {
            self.inserter.insert(record.stored_key, record.encoded_cell);
            rest = behind;
        }
        assert!(rest.is_empty(), "a batch is a sequence of whole records");
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
fn is_unconditional(guard: Guard) -> bool {
    matches!(guard, Guard::Newest | Guard::If(Condition::None))
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
fn outcome_of(guard: Guard, current: Option<Current>, version: &mut Version) -> WriteOutcome {
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
                Guard::If(Condition::Absent),
                current(5, false),
                &mut version
            ),
            applied
        );
        assert_eq!(
            outcome_of(Guard::If(Condition::Absent), None, &mut version),
            applied
        );
        assert_eq!(
            outcome_of(
                Guard::If(Condition::Present),
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
                Guard::If(Condition::Matches(base)),
                current(5, false),
                &mut version
            ),
            refused
        );
        assert_eq!(
            outcome_of(
                Guard::If(Condition::Matches(base)),
                current(5, true),
                &mut version
            ),
            applied
        );
        assert_eq!(
            outcome_of(
                Guard::If(Condition::Differs(base)),
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
            Guard::If(Condition::Absent),
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
            Guard::If(Condition::Absent),
            current(9, false),
            &mut version,
        );
        assert_eq!(version, base.successor());
    }
}
