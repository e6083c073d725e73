//! PLACEHOLDER in memory with the final face; replaced by the real engine.

use crate::batch::{Batch, Guard, Outcome, Record};
use crate::options::Options;
use crate::vfs::{Vfs, Wait};
use crate::{Error, Result};
use dendra_base::{CellRef, Version};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, RwLock};

/// Who this folder belongs to; made once, when the folder is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Random and never reused: a wiped folder is another member.
    pub node: u128,
    /// Short form of the above that goes into versions.
    pub origin: u32,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<R> {
    /// The key's newest cell, possibly a tombstone or an expired value, as the visitor returned it.
    Cell(R),
    /// The key never was, or its tombstone is purged.
    Nothing,
    /// The disk would have to be asked: ask again with `Wait::Block`, on another thread.
    WouldBlock,
}

/// Which cells a scan shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Values that are live at this wall time.
    Live {
        /// Wall milliseconds.
        now_ms: u64,
    },
    /// Everything, tombstones and expired values included.
    All,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Smallest key first.
    Forward,
    /// Largest key first.
    Backward,
}

/// Where a scan is: a position, not a snapshot. It pins neither memory nor files.
#[derive(Clone, Debug)]
pub struct Cursor {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    direction: Direction,
    show: Show,
    is_done: bool,
}

impl Cursor {
    /// Scans stored keys in `start ..= / ..< end` in `direction`.
    pub fn new(
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
        direction: Direction,
        show: Show,
    ) -> Cursor {
        Cursor {
            start,
            end,
            direction,
            show,
            is_done: false,
        }
    }
}

/// What a visitor of a scan wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next record.
    Continue,
    /// Stop after this record; the cursor stands behind it.
    Pause,
}

/// Is there more to scan?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The cursor can go on.
    More,
    /// The range is exhausted.
    Done,
}

/// Why a batch was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The commit queue is full: try again later.
    QueueFull,
}

/// Does somebody have to start a commit?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The queue was empty: wake whoever commits.
    First,
    /// Others are waiting already: a commit is on its way.
    Behind,
}

/// How close the engine is to a limit: a value, never a hidden sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// 0.0 = calm, 1.0 = at the limit. Admission delays or refuses as it grows.
    pub level: f64,
    /// Set when new values must be refused.
    pub stop: Option<Stop>,
}

/// Why new values must be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sealed memtables wait for a flush (503).
    MemtablesFull,
    /// Level 0 has too many tables (503).
    CompactionBehind,
    /// The disk is full (507); deletes go on.
    DiskFull,
}

/// Background work comes in two kinds, so that a flush never waits behind a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Log segments ahead of use, flushes of sealed memtables, removal of old logs.
    Flush,
    /// Compactions and removal of replaced tables.
    Compact,
}

/// What one slice of background work did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintained {
    /// Nothing to do: come back after the next commit, or in a second.
    Idle,
    /// A slice is done and more is waiting.
    More,
}

/// Counters and gauges of one engine.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Tables and bytes per level.
    pub levels: Vec<(usize, u64)>,
    /// Bytes in the active and the sealed memtables.
    pub memtable_bytes: u64,
    /// Sealed memtables waiting for a flush.
    pub memtables_sealed: usize,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Cached blocks found / not found.
    pub cache_hits: u64,
    /// Blocks that had to be read.
    pub cache_misses: u64,
    /// `Wait::Never` reads that the kernel refused.
    pub reads_would_block: u64,
    /// Filters that said "absent".
    pub filter_negatives: u64,
    /// Commits (one log write each).
    pub commits: u64,
    /// Writes in those commits.
    pub commit_writes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// `fdatasync` calls on the log.
    pub log_syncs: u64,
    /// Log segments on disk.
    pub log_segments: usize,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes written by flushes.
    pub flush_bytes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Bytes read by compactions.
    pub compaction_read_bytes: u64,
    /// Bytes written by compactions.
    pub compaction_write_bytes: u64,
    /// Damaged blocks met by reads.
    pub damaged_reads: u64,
    /// Room on the disk at the last look.
    pub disk_free_bytes: u64,
}

struct State {
    queue: Batch,
    options: Options,
}

/// One data folder. Shared by reference between all threads.
pub struct Engine {
    identity: Identity,
    data: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    state: Mutex<State>,
}

impl Engine {
    /// Opens or creates the folder, replays the log, and returns ready to serve. `proposed` becomes
    /// the identity of a new folder.
    pub fn open(
        _vfs: Arc<dyn Vfs>,
        options: Options,
        proposed: Identity,
        _now_ms: u64,
    ) -> Result<Engine> {
        options
            .check()
            .map_err(|reason| Error::Unusable { reason })?;
        Ok(Engine {
            identity: proposed,
            data: RwLock::new(BTreeMap::new()),
            state: Mutex::new(State {
                queue: Batch::new(),
                options,
            }),
        })
    }

    /// Who this folder belongs to.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The hybrid clock must start above this: the largest clock value that may have been used.
    pub fn hlc_floor(&self) -> u64 {
        0
    }

    /// Raises the ceiling that the next commit writes into the log: clock values up to `hlc` may be
    /// used once that commit is durable.
    pub fn raise_hlc_ceiling(&self, _hlc: u64) {}

    /// Shows the newest cell of `stored_key` to `visit`.
    pub fn get<R>(
        &self,
        stored_key: &[u8],
        _wait: Wait,
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> Result<Lookup<R>> {
        let data = self.data.read().expect("no holder panics");
        Ok(match data.get(stored_key) {
            Some(bytes) => Lookup::Cell(visit(CellRef::decode(bytes).expect("we encoded it"))),
            None => Lookup::Nothing,
        })
    }

    /// Shows records from `cursor` on to `visit` until it pauses, the range ends, or about
    /// `budget_bytes` were looked at (live or not). Blocks on the disk: not for event loops.
    pub fn scan(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        mut visit: impl FnMut(&[u8], CellRef<'_>) -> Flow,
    ) -> Result<Progress> {
        let data = self.data.read().expect("no holder panics");
        let mut seen = 0;
        loop {
            if cursor.is_done {
                return Ok(Progress::Done);
            }
            let range = (
                cursor.start.as_ref().map(|k| k.as_slice()),
                cursor.end.as_ref().map(|k| k.as_slice()),
            );
            let empty = match range {
                (
                    Bound::Included(a) | Bound::Excluded(a),
                    Bound::Included(b) | Bound::Excluded(b),
                ) => {
                    a >= b && !(a == b && matches!(range, (Bound::Included(_), Bound::Included(_))))
                }
                _ => false,
            };
            let next = if empty {
                None
            } else {
                let mut it = data.range::<[u8], _>(range);
                match cursor.direction {
                    Direction::Forward => it.next(),
                    Direction::Backward => it.next_back(),
                }
            };
            let Some((key, bytes)) = next else {
                cursor.is_done = true;
                continue;
            };
            let bound = Bound::Excluded(key.clone());
            match cursor.direction {
                Direction::Forward => cursor.start = bound,
                Direction::Backward => cursor.end = bound,
            }
            let cell = CellRef::decode(bytes).expect("we encoded it");
            seen += key.len() + bytes.len();
            let shown = match cursor.show {
                Show::All => true,
                Show::Live { now_ms } => cell.is_live(now_ms),
            };
            if shown && visit(key, cell) == Flow::Pause || seen >= budget_bytes {
                return Ok(Progress::More);
            }
        }
    }

    /// Moves `batch` into the commit queue; it is empty afterwards, or untouched when refused.
    pub fn submit(&self, batch: &mut Batch) -> std::result::Result<Submitted, Refused> {
        let mut state = self.state.lock().expect("no holder panics");
        if state.queue.len() + batch.len() > state.options.commit_queue_len_max
            || state.queue.bytes().len() + batch.bytes().len()
                > state.options.commit_queue_bytes_max
        {
            return Err(Refused::QueueFull);
        }
        let first = state.queue.is_empty();
        state.queue.append(batch);
        Ok(if first {
            Submitted::First
        } else {
            Submitted::Behind
        })
    }

    /// Commits everything queued: one log write, one sync if so configured, then visible. Appends
    /// `(token, outcome)` per write to `done`. Blocks on the disk. An `Err` is `Poisoned`, or leaves
    /// the queue for a later commit (no log segment could be made: disk full).
    pub fn commit(&self, done: &mut Vec<(u64, Outcome)>) -> Result<()> {
        let batch = std::mem::take(&mut self.state.lock().expect("no holder panics").queue);
        let mut data = self.data.write().expect("no holder panics");
        for op in &batch.ops {
            let (record, _) = Record::split(&batch.bytes[op.start..]).expect("we encoded it");
            let mut cell = record.cell().expect("we encoded it").to_owned();
            let current = data
                .get(record.stored_key)
                .map(|b| CellRef::decode(b).expect("ours").to_owned());
            let live = current
                .as_ref()
                .filter(|c| c.as_ref().is_live(op.now_ms))
                .map(|c| c.version);
            let holds = match op.guard {
                Guard::None => true,
                Guard::Present => live.is_some(),
                Guard::Absent => live.is_none(),
                Guard::Matches(v) => live == Some(v),
                Guard::Differs(v) => live != Some(v),
            };
            if !holds {
                done.push((op.token, Outcome::GuardFailed { current: live }));
                continue;
            }
            let base = current.map_or(Version::ZERO, |c| c.version);
            if op.guard != Guard::None && cell.version <= base {
                cell.version = base.successor();
            }
            if cell.version > base {
                let mut bytes = Vec::new();
                cell.as_ref().encode(&mut bytes);
                data.insert(record.stored_key.to_vec(), bytes);
            }
            done.push((
                op.token,
                Outcome::Applied {
                    version: cell.version,
                },
            ));
        }
        Ok(())
    }

    /// As `commit`, for an event loop and `Durability::Os` only: `Ok(false)` when it would have to
    /// wait (another commit runs, the next log segment is not ready, a guard needs the disk): then
    /// wake whoever calls `commit`.
    pub fn try_commit(&self, done: &mut Vec<(u64, Outcome)>) -> Result<bool> {
        self.commit(done).map(|()| true)
    }

    /// Attests the last batch, so that later damage to it is told from a torn tail. Call about 10 ms
    /// after the last commit when nothing is queued; costs nothing when there is nothing to attest.
    pub fn seal(&self) -> Result<()> {
        Ok(())
    }

    /// One slice of background work of about `budget_bytes`. One caller per lane at a time.
    pub fn maintain(&self, _lane: Lane, _now_ms: u64, _budget_bytes: usize) -> Result<Maintained> {
        Ok(Maintained::Idle)
    }

    /// How close to a limit.
    pub fn pressure(&self) -> Pressure {
        Pressure {
            level: 0.0,
            stop: None,
        }
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Flushes what is in memory and syncs, so that the next open has nothing to replay. The
    /// caller has stopped submitting.
    pub fn close(&self, _now_ms: u64) -> Result<()> {
        Ok(())
    }

    /// A copy of the folder as of now in the new folder `target`, made of hard links.
    pub fn checkpoint(&self, _target: &std::path::Path, _now_ms: u64) -> Result<()> {
        Ok(())
    }
}
