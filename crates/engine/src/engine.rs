//! The engine: routes reads to a view, writes to the log, background work to its jobs.
//!
//! ```text
//!             submit ─► queue ─► commit ─► log, active memtable
//! get, scan ◄─ View { active, sealed…, tree }
//!             maintain(Flush)    spare log segments, sealed memtable ─► table of level 0
//!             maintain(Compact)  tables ─► tables of the next level; removal of replaced files
//! ```
//!
//! Invariants
//! 1. Locks are taken in the order log, lane, manifest, view; none is held while a caller's code
//!    runs.
//! 2. A view never loses a record: a memtable leaves it in the same step in which its table joins.
//! 3. No thread, clock, socket or randomness: time is an argument, threads are the caller's.
//!
//! Not here: policy of commits (`commit.rs`), of compaction (`compact`), of recovery
//! (`recover.rs`).
//! See: ARCHITECTURE.md, docs/decisions/0003-engine-owns-no-thread.md.

use crate::batch::{Batch, NotTaken, WriteOutcome};
use crate::cache::BlockCache;
use crate::commit::{Log, Settled};
use crate::compact::run::{AgeHorizon, NONE_ENDED_MS};
use crate::damage::{Damage, DamagedTable};
use crate::explain::{CellFacts, Explained, ReadTrace, Untraced};
use crate::foreign::{Foreign, IsForeign};
use crate::garbage::Garbage;
use crate::hole::{self, state::Holes};
use crate::identity::Identity;
use crate::kept::{Kept, MarkOrder, Marked};
use crate::lanes::{Lanes, Maintained, Maintenance};
use crate::memtable::Memtable;
use crate::observer::WriteObserver;
use crate::options::Options;
use crate::pressure::{self, PressureParts, SEALED_MAX};
use crate::queue::{CommitQueue, Submitted};
use crate::room::DiskRoom;
use crate::scan::{Cursor, Flow, Progress};
use crate::scrub::state::Scrub;
use crate::segments::Segments;
use crate::stats::{Counters, DiskStats, Stats};
use crate::tree::Level;
use crate::tree::edit::{Edit, Folder};
use crate::tree::manifest::{self, Manifest};
use crate::vfs::{FolderLock, Ownership, Vfs, Wait};
use crate::view::{Lookup, Sealed, View};
use crate::waits::hold;
use crate::wal::{LogWriter, Spare};
use crate::{Error, Result, recover};
use arc_swap::ArcSwap;
use dendra_base::{CellRef, Durability, Pressure, Version};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};

/// The manifest and its content, changed together.
pub(crate) struct ManifestState {
    pub(crate) manifest: Manifest,
    pub(crate) folder: Folder,
}

/// One data folder. Shared by reference between all threads.
pub struct Engine {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) options: Options,
    identity: Identity,
    pub(crate) cache: Arc<BlockCache>,
    view: ArcSwap<View>,
    view_change: Mutex<()>,
    queue: CommitQueue,
    /// Bytes of batches that were submitted, until their writes are in the memtable or refused.
    submitted_bytes: AtomicUsize,
    log: Mutex<Log>,
    pub(crate) segments: Segments,
    pub(crate) ledger: Mutex<ManifestState>,
    pub(crate) lanes: Lanes,
    pub(crate) garbage: Garbage,
    pub(crate) damage: Damage,
    pub(crate) scrub: Scrub,
    next_file: AtomicU64,
    hlc_floor: u64,
    pub(crate) hlc_ceiling: AtomicU64,
    purge_horizon: Mutex<Version>,
    pub(crate) ages: Ages,
    /// Values that end until then have ended for everybody: `set_ended_ms`.
    ended_ms: AtomicU64,
    pub(crate) foreign: Foreign,
    pub(crate) holes: Holes,
    pub(crate) kept: Kept,
    /// The age horizon rose: records that it covers may be in the active memtable.
    pub(crate) wants_seal: AtomicBool,
    pub(crate) room: DiskRoom,
    poison: OnceLock<String>,
    /// Why the folder is not this engine's any more.
    lost: OnceLock<String>,
    pub(crate) counters: Counters,
    /// Held until the engine is dropped: one process per folder.
    lock: Box<dyn FolderLock>,
}

/// Bytes of log per byte of memtable at which a memtable is sealed although it is not full. Small
/// writes one by one, each with a batch head of its own, stay below it.
const LOG_PER_MEMTABLE_MAX: u64 = 8;

/// The horizon of ages, and the tables that were there when it rose.
#[derive(Default)]
pub(crate) struct Ages {
    now: Mutex<(AgeHorizon, u64)>,
}

impl Ages {
    /// Did the clock value rise?
    fn raise(&self, to: AgeHorizon, first_new: u64) -> bool {
        let mut now = hold(&self.now);
        let has_risen = to.clock > now.0.clock;
        if has_risen {
            *now = (to, first_new);
        } else {
            // Fewer copies are enough only for the next horizon.
            now.0.copies = to.copies.max(now.0.copies);
        }
        has_risen
    }

    fn now(&self) -> AgeHorizon {
        hold(&self.now).0
    }

    /// The clock value, and the first id of a table that was made since.
    pub(crate) fn of_tables(&self) -> (u64, u64) {
        let now = hold(&self.now);
        (now.0.clock, now.1)
    }
}

impl Engine {
    /// Opens or creates the folder, replays the log, and returns ready to serve. `proposed` becomes
    /// the identity of a new folder. No clock is needed: what the log holds goes into tables as it
    /// is, values that have ended too.
    pub fn open(vfs: Arc<dyn Vfs>, options: Options, proposed: Identity) -> Result<Engine> {
        options
            .check()
            .map_err(|bad| Error::Unusable { reason: bad.reason })?;
        let lock = lock_folder(&*vfs)?;
        let cache = Arc::new(BlockCache::new(options.split().cache));
        let opened = recover::open(&*vfs, &options, proposed)?;
        let (memtable, inserter) = Memtable::new(options.memtable_bytes);
        let writer = LogWriter::start(opened.spare, opened.log_end, opened.folder.hlc_ceiling)?;
        cache.make_room(opened.tree.pinned_bytes());
        let view = View {
            active: memtable,
            sealed: Vec::new(),
            tree: Arc::new(opened.tree),
            holes: opened.folder.holes.clone().into(),
        };
        let holes = Holes::default();
        view.holes.iter().for_each(|hole| holes.begin(hole));
        Ok(Engine {
            identity: opened.identity,
            cache,
            view: ArcSwap::from_pointee(view),
            view_change: Mutex::new(()),
            queue: CommitQueue::new(options.commit_queue_len_max, options.commit_queue_bytes_max),
            submitted_bytes: AtomicUsize::new(0),
            log: Mutex::new(Log::new(writer, inserter, options.memtable_bytes)),
            segments: Segments::new(opened.folder.log_floor, opened.identity.log_salt()),
            hlc_floor: opened.folder.hlc_ceiling,
            hlc_ceiling: AtomicU64::new(opened.folder.hlc_ceiling),
            ledger: Mutex::new(ManifestState {
                manifest: opened.manifest,
                folder: opened.folder,
            }),
            lanes: Lanes::default(),
            garbage: Garbage::default(),
            damage: Damage::default(),
            scrub: Scrub::default(),
            next_file: AtomicU64::new(opened.next_file),
            purge_horizon: Mutex::new(Version::ZERO),
            ages: Ages::default(),
            ended_ms: AtomicU64::new(NONE_ENDED_MS),
            foreign: Foreign::default(),
            holes,
            kept: Kept::new(opened.kept),
            wants_seal: AtomicBool::new(false),
            room: DiskRoom::default(),
            poison: OnceLock::new(),
            lost: OnceLock::new(),
            counters: Counters::default(),
            lock,
            vfs,
            options,
        })
    }

    /// The owner of this folder.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The settings it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The hybrid clock must start above this: the largest clock value that may have been used.
    pub fn hlc_floor(&self) -> u64 {
        self.hlc_floor
    }

    /// Raises the ceiling that the next commit writes into the log: clock values up to `hlc` may be
    /// used once that commit is durable.
    pub fn raise_hlc_ceiling(&self, hlc: u64) {
        self.hlc_ceiling.fetch_max(hlc, Ordering::AcqRel);
    }

    /// Tombstones and expired cells up to `horizon` may be purged: every replica of their keys has
    /// confirmed them, and no older cell will ever be written. A node that holds the only copy of
    /// everything says `Version::MAX`. Until it is told, the engine purges no cell.
    pub fn raise_purge_horizon(&self, horizon: Version) {
        let mut current = hold(&self.purge_horizon);
        *current = horizon.max(*current);
    }

    /// Values that end at `ended_ms` or before have ended for everybody: no clock that counts takes
    /// one of them for alive. From now on merges may take their bytes, and horizons their records.
    /// The caller knows it by more than one clock, or by a margin. A later word counts, also a
    /// smaller one. Until it is told, the engine takes nothing of a value.
    ///
    /// The bytes of a value to which the log still refers stay all the same. Its memtable is sealed
    /// now, so that they may go soon.
    pub fn set_ended_ms(&self, ended_ms: u64) {
        self.ended_ms.store(ended_ms, Ordering::Relaxed);
        if self.view.load().active.referred_end_ms() <= ended_ms {
            self.wants_seal.store(true, Ordering::Release);
        }
    }

    /// What `set_ended_ms` was told last.
    pub fn ended_ms(&self) -> u64 {
        self.ended_ms.load(Ordering::Relaxed)
    }

    /// Returns `ended_ms`, and nothing beyond the clock of the caller that asks for the work, nor
    /// the end of a value to which the log still refers (`touched.rs`).
    pub(crate) fn ended_by(&self, now_ms: u64) -> u64 {
        let referred_ms = self.view.load().referred_end_ms();
        self.ended_ms()
            .min(now_ms)
            .min(referred_ms.saturating_sub(1))
    }

    /// Raises the horizon of a cluster's member, by the ages of cells (`Cell::age`). All owners
    /// have confirmed each cell of an age up to `clock`, and none of them will come again. Deletes
    /// of records with fewer than `copies` copies stay. Records of the protocol go by their age,
    /// too, and deletes of hints and notes at any age: no other folder has them.
    ///
    /// Memtables are flushed soon: a delete goes only from a table, and not while the log holds an
    /// older record.
    pub fn raise_age_horizon(&self, clock: u64, copies: u8) {
        let first_new = self.next_file.load(Ordering::Acquire);
        if self.ages.raise(AgeHorizon { clock, copies }, first_new) {
            self.wants_seal.store(true, Ordering::Release);
        }
    }

    /// Leaves out the records that `is_foreign` names, from all tables: each one that is there is
    /// written anew in the background. No delete is written for them. So a folder that gets such a
    /// record again later has it as if for the first time. Replaces the order before.
    ///
    /// At no moment of it a record shows that a delete, or a value that ends, hid before.
    pub fn drop_foreign(&self, is_foreign: Arc<IsForeign>) {
        self.foreign.begin(is_foreign);
        // A list of tables since an earlier moment would bring back the records that go now.
        self.kept.end_soon();
    }

    /// Ends that order, done or not. Records that are committed from now on stay.
    pub fn keep_foreign(&self) {
        self.foreign.end();
    }

    /// How many tables and memtables may still hold foreign records; `None` without an order.
    pub fn foreign_left(&self) -> Option<usize> {
        let log_floor = hold(&self.ledger).folder.log_floor;
        let view = self.view();
        self.foreign.left(
            log_floor,
            view.tree.tables().map(|(_, table)| table.meta().id),
        )
    }

    pub(crate) fn age_horizon(&self) -> AgeHorizon {
        self.ages.now()
    }

    pub(crate) fn purge_horizon(&self) -> Version {
        *hold(&self.purge_horizon)
    }

    /// Shows the newest cell of `stored_key` to `visit`.
    pub fn get<R>(
        &self,
        stored_key: &[u8],
        wait: Wait,
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> Result<Lookup<R>> {
        self.read(stored_key, wait, &mut Untraced, visit)
    }

    /// Reads like [`Engine::get`], and tells how. The explanation of a read that failed, or that
    /// would have had to wait, goes as far as the read came.
    pub fn explained<R>(
        &self,
        stored_key: &[u8],
        wait: Wait,
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> (Result<Lookup<R>>, Explained) {
        let mut explained = Explained::default();
        let mut newest = None;
        let found = self.read(stored_key, wait, &mut explained, |cell| {
            newest = Some(CellFacts::from(cell));
            visit(cell)
        });
        explained.settle(newest);
        (found, explained)
    }

    /// Reads, and tells `trace` how.
    #[inline]
    fn read<R>(
        &self,
        stored_key: &[u8],
        wait: Wait,
        trace: &mut impl ReadTrace,
        visit: impl FnOnce(CellRef<'_>) -> R,
    ) -> Result<Lookup<R>> {
        let pass = |error: &Error| self.note_failed_read(error);
        let view = self.view.load();
        let found = view.traced(&self.cache, stored_key, wait, pass, trace, visit);
        match &found {
            Ok(Lookup::WouldBlock) => self.counters.reads_would_block.add(1),
            Err(error) => self.note_failed_read(error),
            Ok(_) => {}
        }
        found
    }

    /// Shows records from `cursor` on to `visit` until it pauses, the range ends, or about
    /// `budget_bytes` were looked at (shown or not). Blocks on the disk: not for event loops.
    ///
    /// After an error `cursor` stands in front of what could not be read, and all in front of that
    /// was shown. The next call fails at once.
    pub fn scan(
        &self,
        cursor: &mut Cursor,
        budget_bytes: usize,
        visit: impl FnMut(&[u8], CellRef<'_>) -> Flow,
    ) -> Result<Progress> {
        let view = self.view.load();
        let sources = view.sources(&self.cache, cursor.fill());
        let holes = Arc::clone(&view.holes);
        drop(view);
        let progress = cursor.run(sources, &holes, budget_bytes, visit);
        if let Err(error) = &progress {
            self.note_failed_read(error);
        }
        progress
    }

    /// About how many bytes records with stored keys in `from..to` take, superseded ones and
    /// tombstones included. The answer may be too low, by two mebibytes of each table at most.
    /// Reads no disk; walks the range in memtables, which is some milliseconds for a full one.
    pub fn bytes_between(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        self.view.load().bytes_between(from, to)
    }

    fn note_failed_read(&self, error: &Error) {
        if let Error::Damaged { .. } = error {
            self.counters.damaged_reads.add(1);
            let view = self.view.load();
            // A hole was found by scrubs, and is no news about its table.
            if view.holes.is_empty() || !hole::is_error_of(&view.holes, error) {
                self.damage.note_read(error, &view.tree);
            }
        }
    }

    /// Live tables in which damage was met since the start, one spot of each.
    pub fn damaged_tables(&self) -> Vec<DamagedTable> {
        self.damage.list()
    }

    /// Moves `batch` into the commit queue; it is empty afterwards, or untouched when refused.
    pub fn submit(&self, batch: &mut Batch) -> std::result::Result<Submitted, NotTaken> {
        let bytes = batch.bytes().len();
        // Before the batch is there: the commit that takes it gives them back.
        self.submitted_bytes.fetch_add(bytes, Ordering::Relaxed);
        let submitted = self.queue.submit(batch);
        if submitted.is_err() {
            self.submitted_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        submitted
    }

    /// Commits everything queued: one log write, one sync if so configured, then visible. Appends
    /// `(token, outcome)` per write to `done`. Blocks on the disk.
    ///
    /// After `Poisoned` the outcomes of everything queued are unknown for ever. After any other
    /// error (no room for a log segment) no record was written, and every token was handed back as
    /// `NotApplied` or `NoRoom`.
    pub fn commit(&self, done: &mut Vec<(u64, WriteOutcome)>) -> Result<()> {
        self.commit_all(&mut hold(&self.log), Wait::Block, done)
            .map(|_| ())
    }

    /// Commits like `commit`, for an event loop and `Durability::Os` only. `Ok(false)` when it
    /// would have to wait: another commit runs, the next log segment is not ready, or a guard needs
    /// the disk. Then wake the thread that calls `commit`.
    pub fn try_commit(&self, done: &mut Vec<(u64, WriteOutcome)>) -> Result<bool> {
        assert_eq!(
            self.options.durability,
            Durability::Os,
            "a sync would block the event loop"
        );
        match self.log.try_lock() {
            Ok(mut log) => self.commit_all(&mut log, Wait::Never, done),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Poisoned(_)) => panic!("a thread panicked inside a commit"),
        }
    }

    /// A batch that an inline commit could not finish goes first and alone: together with the queue
    /// behind it, it may not fit a segment. The queue follows, so that no caller that was told
    /// `First` is left waiting.
    fn commit_all(
        &self,
        log: &mut Log,
        wait: Wait,
        done: &mut Vec<(u64, WriteOutcome)>,
    ) -> Result<bool> {
        let has_left_over = !log.pending.is_empty();
        let first = self.commit_held(log, wait, done);
        if !has_left_over || matches!(first, Ok(false)) {
            return first;
        }
        first.and(self.commit_held(log, wait, done))
    }

    fn commit_held(
        &self,
        log: &mut Log,
        wait: Wait,
        done: &mut Vec<(u64, WriteOutcome)>,
    ) -> Result<bool> {
        self.check_poison()?;
        if log.pending.is_empty() {
            self.queue.take(&mut log.pending);
            log.taken_bytes = log.pending.bytes().len();
        }
        if log.pending.is_empty() {
            return Ok(true);
        }
        if log.settle(&self.view.load(), &self.cache, wait)? == Settled::WouldBlock {
            return Ok(false);
        }
        if log.writer.room() < log.pending.bytes().len() {
            match self.next_segment(wait) {
                Ok(Some(spare)) => self.or_poison(log.writer.roll(spare))?,
                Ok(None) => return Ok(false),
                Err(error) => {
                    log.give_up(&error, done);
                    self.give_submitted_back(log);
                    return Err(error);
                }
            }
        }
        let count = log.drop_refused();
        if count > 0 {
            self.write(log, count)?;
        }
        log.report(done);
        self.give_submitted_back(log);
        self.seal_when_full(log);
        Ok(true)
    }

    fn give_submitted_back(&self, log: &mut Log) {
        let bytes = std::mem::take(&mut log.taken_bytes);
        self.submitted_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn write(&self, log: &mut Log, count: u32) -> Result<()> {
        let ceiling = self.hlc_ceiling.load(Ordering::Acquire);
        self.segments
            .note_written(log.writer.segment(), log.oldest());
        let Log {
            writer, pending, ..
        } = log;
        self.or_poison(writer.append(pending.bytes(), count, ceiling))?;
        if self.options.durability == Durability::Sync {
            self.or_poison(writer.sync())?;
            self.counters.log_syncs.add(1);
        }
        self.counters.commits.add(1);
        self.counters.commit_writes.add(u64::from(count));
        self.counters
            .log_bytes
            .add(log.pending.bytes().len() as u64);
        log.publish();
        log.show();
        Ok(())
    }

    /// From now on each commit is shown to `observer`. There is one at most, and it stays.
    pub fn observe(&self, observer: Arc<dyn WriteObserver>) {
        let before = hold(&self.log).observer.replace(observer);
        assert!(before.is_none(), "an engine has one observer");
    }

    /// The segment to go on in; `None` when none is ready and the caller must not wait.
    fn next_segment(&self, wait: Wait) -> Result<Option<Spare>> {
        match wait {
            Wait::Never => Ok(self.segments.take_ready()),
            Wait::Block => self.take_segment().map(Some),
        }
    }

    /// A segment to go on in, made here and now when none is ready.
    fn take_segment(&self) -> Result<Spare> {
        let made = self.segments.ready() == 0;
        let bytes = self.next_segment_bytes();
        let spare = self.segments.take(&*self.vfs, bytes)?;
        if made {
            self.room.took(bytes as u64, &self.options);
        }
        Ok(spare)
    }

    /// A failure after which the durable state is unknown.
    fn or_poison<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.poisoned_by(&error))
    }

    pub(crate) fn poisoned_by(&self, error: &Error) -> Error {
        let reason = match error {
            Error::Poisoned { reason } => reason.clone(),
            other => other.to_string(),
        };
        Error::Poisoned {
            reason: self.poison.get_or_init(|| reason).clone(),
        }
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        if let Some(reason) = self.lost() {
            return Err(Error::Lost {
                reason: reason.to_owned(),
            });
        }
        match self.poison.get() {
            Some(reason) => Err(Error::Poisoned {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    fn seal_when_full(&self, log: &mut Log) {
        let view = self.view.load();
        // Older writes that change no record lengthen the log and not the memtable.
        let log_bytes =
            (log.writer.segment() - log.active_since) * self.options.segment_bytes as u64;
        let log_bytes_max = LOG_PER_MEMTABLE_MAX * self.options.memtable_bytes as u64;
        let is_full = view.active.bytes() >= self.options.memtable_bytes;
        let is_long = log_bytes > log_bytes_max + self.options.segment_bytes as u64;
        if (is_full || is_long) && view.sealed.len() < SEALED_MAX {
            self.seal_memtable(log);
        }
    }

    fn seal_memtable(&self, log: &mut Log) {
        let (memtable, inserter) = Memtable::new(self.options.memtable_bytes);
        log.inserter = inserter;
        let log_floor_after = log.writer.segment();
        log.active_since = log_floor_after;
        self.change_view(|view| {
            let full = std::mem::replace(&mut view.active, memtable);
            view.sealed.insert(
                0,
                Sealed {
                    memtable: full,
                    log_floor_after,
                },
            );
        });
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Replaces the view in one step.
    pub(crate) fn change_view(&self, change: impl FnOnce(&mut View)) {
        let _held = hold(&self.view_change);
        let mut next = View::clone(&self.view.load());
        change(&mut next);
        let has_other_tables = !Arc::ptr_eq(&next.tree, &self.view.load().tree);
        if has_other_tables {
            self.cache.make_room(next.tree.pinned_bytes());
        }
        self.view.store(Arc::new(next));
    }

    /// Writes `edit` to the manifest, and then makes `change` to the view.
    pub(crate) fn install(&self, edit: Edit, change: impl FnOnce(&mut View)) -> Result<()> {
        self.check_poison()?;
        let mut ledger = hold(&self.ledger);
        self.keep_for_backups(&ledger, &edit)?;
        match ledger.manifest.append(&*self.vfs, &edit) {
            Err(error @ Error::Poisoned { .. }) => return Err(self.poisoned_by(&error)),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        ledger
            .folder
            .apply(edit)
            .expect("the engine makes only edits that fit");
        self.change_view(change);
        if ledger.manifest.is_long(self.room.total_bytes()) {
            self.rewrite_manifest(&mut ledger)?;
        }
        Ok(())
    }

    fn rewrite_manifest(&self, ledger: &mut ManifestState) -> Result<()> {
        let id = self.next_file_id();
        match Manifest::create(&*self.vfs, id, &ledger.folder.snapshot()) {
            Ok(next) => {
                let old = std::mem::replace(&mut ledger.manifest, next);
                self.garbage.add(manifest::file_name(old.id()));
                self.kept_follow(ledger);
                Ok(())
            }
            // No edit is lost: the old one goes on, and the next edit tries again.
            Err(error) if error.is_no_space() && self.is_in_force(&ledger.manifest) => {
                self.room.note_full();
                self.garbage.add(manifest::file_name(id));
                Ok(())
            }
            // CURRENT may name either: both hold the same, but only one may be written to.
            Err(error) => Err(self.poisoned_by(&error)),
        }
    }

    fn is_in_force(&self, manifest: &Manifest) -> bool {
        let named = |names: Vec<String>| manifest::current(&*self.vfs, &names).ok().flatten();
        let named = self.vfs.list().ok().and_then(named);
        named.is_some_and(|named| named.id == manifest.id())
    }

    pub(crate) fn next_file_id(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Attests the last batch, so that later damage to it is told from a torn tail. Call about 10
    /// ms after the last commit when no write is queued; free when there is no batch to attest.
    pub fn seal(&self) -> Result<()> {
        let mut log = hold(&self.log);
        self.check_poison()?;
        if self.or_poison(log.writer.seal())? {
            self.or_poison(log.writer.sync())?;
        }
        Ok(())
    }

    /// Syncs the log without holding up commits. With `Durability::Os`, a machine that loses power
    /// then takes little with it.
    pub(crate) fn sync_log_behind(&self) -> Result<bool> {
        let unsynced = {
            let mut log = hold(&self.log);
            if log.writer.synced_lsn() >= log.writer.end_lsn() {
                return Ok(false);
            }
            self.or_poison(log.writer.begin_sync())?
        };
        let result = unsynced.run();
        self.or_poison(hold(&self.log).writer.finish_sync(&unsynced, result))?;
        self.counters.log_syncs.add(1);
        Ok(true)
    }

    /// Looks whether the folder is still this engine's: under its name, locked by it, writable, and
    /// with the `CURRENT` that it wrote. Call it about once a second, not from an event loop.
    ///
    /// # Errors
    /// [`Error::Lost`] when it is not; it stays so, and no write is committed any more. Others: the
    /// system cannot say now.
    pub fn look_at_folder(&self) -> Result<Ownership> {
        self.check_poison()?;
        let ownership = self.lock.ownership();
        let ownership = ownership.map_err(|e| Error::io("looking at the data folder", e))?;
        if let Ownership::Lost { reason } = ownership {
            return Err(self.lose(reason));
        }
        // A commit of the manifest has the folder's word in its hands: the next look sees it.
        let ledger = match self.ledger.try_lock() {
            Ok(ledger) => ledger,
            Err(TryLockError::WouldBlock) => return Ok(ownership),
            Err(TryLockError::Poisoned(_)) => panic!("a thread panicked inside an edit"),
        };
        let names = [manifest::CURRENT.to_owned()];
        let named = manifest::current(&*self.vfs, &names)?;
        if named.is_none_or(|named| ledger.manifest.is_named_by(named)) {
            return Ok(ownership);
        }
        Err(self.lose(format!(
            "{} of the data folder {} is not the one that this process wrote: another copy of the folder is in its place",
            manifest::CURRENT,
            self.vfs.describe()
        )))
    }

    fn lose(&self, reason: String) -> Error {
        Error::Lost {
            reason: self.lost.get_or_init(|| reason).clone(),
        }
    }

    /// Why the folder is not this engine's any more, as far as a look at it has told.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// One slice of background work of about `budget_bytes`. A second caller of the same lane
    /// waits.
    ///
    /// An error leaves everything as it was: after `Poisoned` the process must stop, after others
    /// the work is tried again at a later call.
    pub fn maintain(
        &self,
        lane: Maintenance,
        now_ms: u64,
        budget_bytes: usize,
    ) -> Result<Maintained> {
        self.check_poison()?;
        match lane {
            Maintenance::Flush => self.maintain_flush(now_ms, budget_bytes),
            Maintenance::Compact => self.maintain_compact(now_ms, budget_bytes),
        }
    }

    /// How close to a limit.
    pub fn pressure(&self) -> Pressure {
        let view = self.view.load();
        let aside = self.damage.set_aside();
        let level0 = view.tree.levels[0].tables.iter();
        let counts = PressureParts {
            memtable_bytes: view.memtable_bytes() + self.submitted_bytes.load(Ordering::Relaxed),
            memtables_sealed: view.sealed.len(),
            active_bytes: view.active.bytes(),
            level0_tables: level0.filter(|t| !aside.contains(&t.meta().id)).count(),
            is_disk_full: self.room.is_full(),
            is_cramped: self.room.is_cramped(),
        };
        pressure::of(counts, &self.options)
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let view = self.view.load();
        let c = &self.counters;
        let cache = self.cache.counts();
        let (kept_tables, kept_bytes) = self.kept.size();
        Stats {
            levels: view
                .tree
                .levels
                .iter()
                .map(|l| (l.tables.len(), l.bytes()))
                .collect(),
            table_records: view.tree.tables().map(|(_, t)| t.meta().records).sum(),
            table_raw_bytes: view.tree.tables().map(|(_, t)| t.raw_bytes()).sum(),
            table_pinned_bytes: view.tree.pinned_bytes() as u64,
            memtable_bytes: view.memtable_bytes() as u64,
            memtables_sealed: view.sealed.len(),
            cache_bytes: self.cache.bytes(),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            filter_negatives: cache.filter_negatives,
            reads_would_block: c.reads_would_block.value(),
            commits: c.commits.value(),
            commit_writes: c.commit_writes.value(),
            log_bytes: c.log_bytes.value(),
            log_syncs: c.log_syncs.value(),
            log_segments: self.segments.on_disk(),
            flushes: c.flushes.value(),
            flush_bytes: c.flush_bytes.value(),
            ingest_bytes: c.ingest_bytes.value(),
            compactions: c.compactions.value(),
            compaction_read_bytes: c.compaction_read_bytes.value(),
            compaction_write_bytes: c.compaction_write_bytes.value(),
            kept_tables,
            kept_bytes,
            damaged_reads: c.damaged_reads.value(),
            tables_damaged: self.damage.list().len(),
            tables_set_aside: self.damage.set_aside().len(),
            scrub: self.scrub.stats(),
            disk: DiskStats {
                free_bytes: self.room.free_bytes(),
                total_bytes: self.room.total_bytes(),
                reserve_bytes: self.options.reserve_bytes,
                used_bytes: self.folder_bytes(&view),
                is_full: self.room.is_full(),
            },
        }
    }

    /// Flushes the memtables and syncs, so that the next open has no log to replay. The caller has
    /// stopped submitting.
    pub fn close(&self, now_ms: u64) -> Result<()> {
        self.flush_all(now_ms)
    }

    /// A copy of the folder as of now in the empty folder behind `target` (which is `path`), made
    /// of hard links. Blocks; writes go on meanwhile and may or may not be in it.
    pub fn checkpoint(&self, target: &dyn Vfs, path: &std::path::Path, now_ms: u64) -> Result<()> {
        self.flush_all(now_ms)?;
        self.link_into(target, path, None).map(|_| ())
    }

    /// Makes a checkpoint and a mark of this moment: until the mark is void, a later checkpoint can
    /// tell which tables brought new records since. `None` when no mark can be given now.
    ///
    /// # Errors
    /// As those of `checkpoint`; or the mark could not be noted.
    pub fn checkpoint_since(
        &self,
        target: &dyn Vfs,
        path: &std::path::Path,
        now_ms: u64,
        order: &MarkOrder,
    ) -> Result<Option<Marked>> {
        self.flush_all(now_ms)?;
        self.link_into(target, path, Some(order))
    }

    /// Seals the active memtable and goes on in a new log segment, so that a flush of everything
    /// sealed leaves no record in older segments.
    ///
    /// Returns the first segment that the log needs after that flush.
    pub(crate) fn seal_and_roll(&self) -> Result<u64> {
        let mut log = hold(&self.log);
        self.check_poison()?;
        if self.view.load().active.is_empty() {
            return Ok(log.active_since);
        }
        let spare = self.take_segment()?;
        self.or_poison(log.writer.roll(spare))?;
        self.seal_memtable(&mut log);
        Ok(log.active_since)
    }

    /// Seals the active memtable and stays in the log segment.
    pub(crate) fn seal_active(&self) {
        let mut log = hold(&self.log);
        if !self.view.load().active.is_empty() {
            self.seal_memtable(&mut log);
        }
    }

    /// Bytes of the folder, about: tables, kept ones included, and the log.
    fn folder_bytes(&self, view: &View) -> u64 {
        let tables = view.tree.levels.iter().map(Level::bytes).sum::<u64>();
        let live = view.tree.tables().map(|(_, table)| table.meta().id);
        let kept = self.kept.bytes_without(&live.collect());
        let log = (self.segments.on_disk() * self.options.segment_bytes) as u64;
        tables + kept + log
    }

    /// Segments below `floor` are gone: their unsynced bytes need no sync.
    pub(crate) fn forget_log_below(&self, floor: u64) {
        hold(&self.log).writer.forget_below(floor);
    }
}

fn lock_folder(vfs: &dyn Vfs) -> Result<Box<dyn FolderLock>> {
    vfs.lock().map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Folder {
            reason: format!(
                "{} is in use by another process: stop it first, or choose another folder",
                vfs.describe()
            ),
        },
        _ => Error::io("locking the data folder", e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guard;
    use crate::vfs::mem::MemVfs;

    fn opened() -> (MemVfs, Engine) {
        let vfs = MemVfs::new();
        let identity = Identity { node: 1, origin: 1 };
        let engine = Engine::open(Arc::new(vfs.clone()), Options::for_tests(), identity);
        (vfs, engine.expect("a new folder"))
    }

    fn put(engine: &Engine) -> Result<()> {
        let version = Version {
            hlc: 1,
            origin: 1,
            rmw: 0,
        };
        let cell = CellRef::value(b"\x10k", version, b"v");
        let mut batch = Batch::new();
        let pushed = batch.push(0, b"\x10k", &cell, Guard::Newest, 1);
        pushed.expect("the record fits");
        engine.submit(&mut batch).expect("the queue has room");
        engine.commit(&mut Vec::new())
    }

    #[test]
    fn a_lost_folder_gets_no_write_any_more() {
        let (vfs, engine) = opened();
        put(&engine).expect("the disk works");
        engine.close(1).expect("the disk works");
        assert!(matches!(engine.look_at_folder(), Ok(Ownership::Held)));
        vfs.lose("it was moved");
        assert!(engine.look_at_folder().is_err_and(|e| e.is_lost()));
        assert_eq!(engine.lost(), Some("it was moved"));
        let written = vfs.operations();
        assert!(put(&engine).is_err_and(|e| e.is_lost()));
        assert!(engine.seal().is_err_and(|e| e.is_lost()));
        let flushed = engine.maintain(Maintenance::Flush, 1, 1 << 20);
        assert!(flushed.is_err_and(|e| e.is_lost()));
        assert_eq!(vfs.operations(), written);
    }

    #[test]
    fn an_older_copy_in_the_place_of_the_folder_is_a_lost_one() {
        let (vfs, engine) = opened();
        let older = vfs.file_bytes(manifest::CURRENT).expect("it is open");
        put(&engine).expect("the disk works");
        engine.close(1).expect("the disk works");
        let now = vfs.file_bytes(manifest::CURRENT).expect("it is open");
        assert!(matches!(engine.look_at_folder(), Ok(Ownership::Held)));
        // Bytes that rot say nothing about the rest of the folder; the next edit replaces them.
        vfs.install(manifest::CURRENT, &now[1..]);
        assert!(engine.look_at_folder().is_err_and(|e| !e.is_final()));
        vfs.install(manifest::CURRENT, &now);
        put(&engine).expect("the folder is ours");
        vfs.install(manifest::CURRENT, &older);
        assert!(engine.look_at_folder().is_err_and(|e| e.is_lost()));
        assert!(put(&engine).is_err_and(|e| e.is_lost()));
    }
}
