//! Checkpoints that a backup reads: hard links to the tables of one moment, held for a while.
//!
//! ```text
//! make ─► DATA/checkpoints/<id>/ ─► read … read ─► release
//!              │ not read for CHECKPOINT_LEASE, or the disk is full ─► removed
//!              └ left by a process that ended ─► removed at the next start
//! ```
//!
//! Invariants
//! 1. A checkpoint keeps replaced tables on the disk, so none outlives its reader by more than
//!    `CHECKPOINT_LEASE`, and there are at most `CHECKPOINTS_MAX`.
//! 2. Its files never change: a table is immutable, and no other file is shared with the live
//!    folder.
//! 3. Two files with one content name have the same bytes.
//! 4. The first half of an id names the process that made the checkpoint. So one that is gone is
//!    told from one that ended with its process. Why the last `GONE_MAX` went is remembered.
//!
//! Not here: HTTP (`admin/backup.rs`), the content of a checkpoint (crate `engine`).
//! See: docs/format/backup.md, docs/overload.md.

use crate::clock;
use crate::limits::{CHECKPOINT_LEASE, CHECKPOINT_READ_BYTES_MAX, CHECKPOINTS_MAX};
use dendra_engine::vfs::os::OsVfs;
use dendra_engine::vfs::{Vfs, Wait};
use dendra_engine::{Engine, Error, MarkOrder, Marked};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use xxhash_rust::xxh3::Xxh3Default;

/// The folder inside the data folder. The engine looks at plain files only.
const FOLDER: &str = "checkpoints";

/// The end of a table is its footer, its properties and most of its index. With node and name they
/// tell it from every other file.
const TAIL_BYTES: u64 = 4 << 10;

/// Checkpoints whose end is remembered: readers ask soon.
const GONE_MAX: usize = 64;

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointFile {
    /// Name of the file, as in the data folder.
    pub(crate) name: String,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Names its content: equal names, equal bytes.
    pub(crate) content: u128,
}

/// One checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    /// Random.
    pub(crate) id: u128,
    /// In order of their names.
    pub(crate) files: Vec<CheckpointFile>,
    /// The part that an incremental backup takes instead of them; `None` if it was not asked for.
    pub(crate) increment: Option<Increment>,
    touched_us: u64,
}

/// The tables that brought new records since an earlier checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Increment {
    /// The mark of this checkpoint; `None` = none can be given now.
    pub(crate) mark: Option<u128>,
    /// The mark of the earlier checkpoint; `None` = none of those asked for holds.
    pub(crate) since: Option<u128>,
    /// In the order in which they were written.
    pub(crate) files: Vec<CheckpointFile>,
}

/// Why there is no checkpoint, or no part of it.
#[derive(Debug)]
pub(crate) enum NoCheckpoint {
    /// Others hold as many as there may be.
    TooMany,
    /// The checkpoint was there, or may have been, and is no more.
    Gone(CheckpointEnd),
    /// The checkpoint has no such file or offset.
    NoSuchPart,
    /// The disk or the engine failed.
    Failed(String),
}

/// The end of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointEnd {
    /// Another process made it: the node was started again since then.
    Process,
    /// The checkpoint was not read for `CHECKPOINT_LEASE`.
    Lease,
    /// The disk was full.
    DiskFull,
    /// The reader released the checkpoint, or it never was.
    Released,
}

/// Checkpoints of one node.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    root: PathBuf,
    /// Random: the first half of each id.
    process: u64,
    held: Mutex<HeldCheckpoints>,
}

#[derive(Debug, Default)]
struct HeldCheckpoints {
    list: Vec<Checkpoint>,
    /// Ended checkpoints that were not released, the last one first.
    gone: VecDeque<(u128, CheckpointEnd)>,
    /// Places taken by those that are being made.
    making: usize,
}

impl Checkpoints {
    /// The checkpoints of the folder `data`. Removes those that a former process left.
    pub(crate) fn new(data: &Path) -> Checkpoints {
        let root = data.join(FOLDER);
        remove(&root);
        Checkpoints {
            root,
            process: RandomState::new().build_hasher().finish(),
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldCheckpoints> {
        self.held.lock().expect("no holder panics")
    }

    fn folder(&self, id: u128) -> PathBuf {
        self.root.join(format!("{id:032x}"))
    }

    /// Makes one, with a mark of its own if the asker names the marks that it has (or that it has
    /// none). Blocks on the disk: the memtables become tables first.
    pub(crate) fn make(
        &self,
        engine: &Engine,
        since: Option<Vec<u128>>,
    ) -> Result<Checkpoint, NoCheckpoint> {
        {
            let mut held = self.held();
            if held.list.len() + held.making >= CHECKPOINTS_MAX {
                return Err(NoCheckpoint::TooMany);
            }
            held.making += 1;
        }
        let made = self.make_one(engine, since);
        let mut held = self.held();
        held.making -= 1;
        match made {
            Ok(made) => {
                held.list.push(made.clone());
                Ok(made)
            }
            Err(reason) => Err(NoCheckpoint::Failed(reason)),
        }
    }

    fn make_one(&self, engine: &Engine, since: Option<Vec<u128>>) -> Result<Checkpoint, String> {
        let failed = |e: io::Error| e.to_string();
        let number = u64::from_le_bytes(crate::random::random().map_err(failed)?);
        let id = u128::from(self.process) << 64 | u128::from(number);
        let mark = u128::from_le_bytes(crate::random::random().map_err(failed)?);
        let order = since.map(|since| MarkOrder { since, mark });
        let folder = self.folder(id);
        let made = OsVfs::open(&folder)
            .map_err(|e| Error::io(format!("making {}", folder.display()), e))
            .and_then(|target| {
                let now_ms = clock::wall_ms();
                let marked = match &order {
                    Some(order) => engine.checkpoint_since(&target, &folder, now_ms, order)?,
                    None => engine.checkpoint(&target, &folder, now_ms).map(|()| None)?,
                };
                let files = describe(engine.identity().node, &target)?;
                Ok((files, order.map(|_| marked)))
            })
            .map_err(|e| e.to_string())
            .and_then(|(files, marked)| split(files, marked, mark));
        match made {
            Ok((files, increment)) => Ok(Checkpoint {
                id,
                files,
                increment,
                touched_us: clock::monotonic_us(),
            }),
            Err(error) => {
                remove(&folder);
                Err(error)
            }
        }
    }

    /// Up to `bytes` of a file from `offset` on, and a longer life for the checkpoint.
    pub(crate) fn read(
        &self,
        id: u128,
        name: &str,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, NoCheckpoint> {
        let file = {
            let mut held = self.held();
            let end = self.end_of(&held, id);
            let found = held.list.iter_mut().find(|one| one.id == id);
            let found = found.ok_or(NoCheckpoint::Gone(end))?;
            found.touched_us = clock::monotonic_us();
            let increment = found.increment.iter().flat_map(|it| &it.files);
            let mut files = found.files.iter().chain(increment);
            let file = files.find(|file| file.name == name);
            file.cloned().ok_or(NoCheckpoint::NoSuchPart)?
        };
        let left = file.bytes.checked_sub(offset);
        let left = left.ok_or(NoCheckpoint::NoSuchPart)?;
        let most = left.min(CHECKPOINT_READ_BYTES_MAX as u64) as usize;
        let mut out = vec![0; bytes.min(most)];
        let read = OsVfs::open(&self.folder(id))
            .and_then(|folder| folder.open(&file.name))
            .and_then(|file| {
                dendra_engine::vfs::read_exact_at(&*file, &mut out, offset, Wait::Block)
            });
        match read {
            Ok(()) => Ok(out),
            // Its lease ended between the look and the read.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(NoCheckpoint::Gone(self.end_of(&self.held(), id)))
            }
            Err(e) => Err(NoCheckpoint::Failed(format!("{} of {name}: {e}", offset))),
        }
    }

    /// Why a checkpoint that is not held is gone.
    fn end_of(&self, held: &HeldCheckpoints, id: u128) -> CheckpointEnd {
        let mut gone = held.gone.iter();
        let known = gone.find(|(one, _)| *one == id).map(|(_, end)| *end);
        known.unwrap_or(if (id >> 64) as u64 == self.process {
            CheckpointEnd::Released
        } else {
            CheckpointEnd::Process
        })
    }

    /// The reader is done.
    pub(crate) fn release(&self, id: u128) -> Result<(), NoCheckpoint> {
        let mut held = self.held();
        let before = held.list.len();
        held.list.retain(|one| one.id != id);
        if held.list.len() == before {
            return Err(NoCheckpoint::Gone(self.end_of(&held, id)));
        }
        drop(held);
        remove(&self.folder(id));
        Ok(())
    }

    /// Removes those that have not been read for a while; all of them when the disk is full.
    pub(crate) fn expire(&self, now_us: u64, is_disk_full: bool) {
        let lease_us = CHECKPOINT_LEASE.as_micros() as u64;
        let is_over =
            |one: &Checkpoint| is_disk_full || now_us.saturating_sub(one.touched_us) >= lease_us;
        let gone: Vec<u128> = {
            let mut held = self.held();
            let gone = held.list.iter().filter(|one| is_over(one));
            let gone: Vec<u128> = gone.map(|one| one.id).collect();
            held.list.retain(|one| !is_over(one));
            let end = if is_disk_full {
                CheckpointEnd::DiskFull
            } else {
                CheckpointEnd::Lease
            };
            for id in &gone {
                held.gone.push_front((*id, end));
            }
            held.gone.truncate(GONE_MAX);
            gone
        };
        for id in gone {
            tracing::warn!(
                id = format!("{id:032x}"),
                is_disk_full,
                "a checkpoint that no backup has released was removed"
            );
            remove(&self.folder(id));
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.held().list.len()
    }

    /// The node stops.
    pub(crate) fn clear(&self) {
        self.held().list.clear();
        remove(&self.root);
    }
}

/// Removes a folder of links. Files that stay are removed at the next start.
fn remove(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let folder = folder.display();
            tracing::error!(%error, %folder, "a checkpoint cannot be removed and takes room: remove the folder");
        }
    }
}

/// The files of a checkpoint, and those of the increment. A table that is live is in both. A list
/// that leaves one out would lose its records without a word.
fn split(
    files: Vec<CheckpointFile>,
    marked: Option<Option<Marked>>,
    mark: u128,
) -> Result<(Vec<CheckpointFile>, Option<Increment>), String> {
    let Some(Some(marked)) = marked else {
        return Ok((files, marked.map(|_| Increment::default())));
    };
    let named = |name: &String| {
        let file = files.iter().find(|file| file.name == *name).cloned();
        file.ok_or_else(|| format!("{name} is not in the checkpoint: begin the backup again"))
    };
    let increment = Increment {
        mark: Some(mark),
        since: marked.since,
        files: marked.tables.iter().map(named).collect::<Result<_, _>>()?,
    };
    let is_live = |file: &CheckpointFile| !marked.replaced.contains(&file.name);
    let files = files.into_iter().filter(is_live).collect();
    Ok((files, Some(increment)))
}

/// Files of the checkpoint, without the lock and the empty log.
fn describe(node: u128, checkpoint: &OsVfs) -> Result<Vec<CheckpointFile>, Error> {
    let failed = |e| Error::io("reading the checkpoint", e);
    let names = checkpoint.list().map_err(failed)?;
    let is_content = |name: &String| name != "LOCK" && !name.starts_with("wal-");
    names
        .into_iter()
        .filter(is_content)
        .map(|name| {
            let file = checkpoint.open(&name).map_err(failed)?;
            let bytes = file.len().map_err(failed)?;
            // Of everything but a table the whole is hashed: it is small.
            let from = if name.ends_with(".tbl") {
                bytes.saturating_sub(TAIL_BYTES)
            } else {
                0
            };
            let mut tail = vec![0; usize::try_from(bytes - from).expect("it fits memory")];
            dendra_engine::vfs::read_exact_at(&*file, &mut tail, from, Wait::Block)
                .map_err(failed)?;
            let mut hash = Xxh3Default::new();
            hash.update(&node.to_le_bytes());
            hash.update(name.as_bytes());
            hash.update(&bytes.to_le_bytes());
            hash.update(&tail);
            Ok(CheckpointFile {
                name,
                bytes,
                content: hash.digest128(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{CellRef, Key, Version};
    use dendra_engine::{Batch, Guard, Identity, Options, Snapshot};
    use std::sync::Arc;

    fn engine(data: &Path) -> Engine {
        let vfs = Arc::new(OsVfs::open(data).expect("a folder"));
        let identity = Identity { node: 5, origin: 5 };
        Engine::open(vfs, Options::for_memory(16 << 20, 64 << 10), identity).expect("it opens")
    }

    fn write(engine: &Engine, raw: &[u8], hlc: u64) {
        let key = Key::user(raw);
        let version = Version {
            hlc,
            origin: 5,
            rmw: 0,
        };
        let cell = CellRef::value(key.as_stored(), version, b"value");
        let mut batch = Batch::new();
        batch
            .push(0, key.as_stored(), &cell, Guard::Newest, 1)
            .expect("it fits");
        engine.submit(&mut batch).expect("the queue is empty");
        engine.commit(&mut Vec::new()).expect("the disk works");
    }

    fn end(why: NoCheckpoint) -> CheckpointEnd {
        match why {
            NoCheckpoint::Gone(end) => end,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_checkpoint_is_read_in_parts_and_unread_tables_keep_their_content_name() {
        let data = tempfile::tempdir().expect("a folder");
        let engine = engine(data.path());
        let checkpoints = Checkpoints::new(data.path());
        write(&engine, b"a", 1 << 60);
        let first = checkpoints.make(&engine, None).expect("there is room");
        write(&engine, b"b", 2 << 60);
        let second = checkpoints.make(&engine, None).expect("there is room");
        let tables = |one: &Checkpoint| -> Vec<CheckpointFile> {
            let files = one.files.iter().filter(|f| f.name.ends_with(".tbl"));
            files.cloned().collect()
        };
        assert_eq!(tables(&second)[..1], tables(&first)[..]);
        assert_eq!(tables(&second).len(), 2);
        let copy = tempfile::tempdir().expect("a folder");
        for file in &first.files {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < file.bytes {
                let part = checkpoints.read(first.id, &file.name, bytes.len() as u64, 100);
                bytes.extend(part.expect("it is held"));
            }
            std::fs::write(copy.path().join(&file.name), bytes).expect("there is room");
        }
        let copied = Snapshot::open(&OsVfs::open(copy.path()).expect("a folder"));
        assert_eq!(copied.expect("all files are there").records(), 1);
        let refused = checkpoints.read(first.id, "../LOCK", 0, 1);
        assert!(matches!(refused, Err(NoCheckpoint::NoSuchPart)));
        checkpoints.release(first.id).expect("it is held");
        let gone = checkpoints.read(first.id, "CURRENT", 0, 1);
        assert_eq!(gone.map_err(end), Err(CheckpointEnd::Released));
        let again = checkpoints.release(first.id);
        assert_eq!(again.map_err(end), Err(CheckpointEnd::Released));
        assert_eq!(checkpoints.len(), 1);
        // The node is started again: a reader of before learns that.
        let again = Checkpoints::new(data.path());
        let gone = again.read(second.id, "CURRENT", 0, 1);
        assert_eq!(gone.map_err(end), Err(CheckpointEnd::Process));
    }

    #[test]
    fn an_increment_names_what_was_written_since_the_mark_also_behind_a_merge() {
        let data = tempfile::tempdir().expect("a folder");
        let engine = engine(data.path());
        let checkpoints = Checkpoints::new(data.path());
        let make = |since| checkpoints.make(&engine, since).expect("there is room");
        write(&engine, b"a", 1 << 60);
        assert_eq!(make(None).increment, None);
        let first = make(Some(Vec::new())).increment.expect("it was asked for");
        assert_eq!((first.since, first.files.len()), (None, 0));
        write(&engine, b"a", 2 << 60);
        engine.close(1).expect("the disk works");
        for late_ms in [1, 20_000, 40_000] {
            let merge = || engine.maintain(dendra_engine::Maintenance::Compact, late_ms, 1 << 20);
            while merge().expect("the disk works") == dendra_engine::Maintained::More {}
        }
        let second = make(Some(vec![7, first.mark.expect("one is given")]));
        let tables = |files: &[CheckpointFile]| -> Vec<String> {
            let names = files.iter().map(|file| file.name.clone());
            names.filter(|name| name.ends_with(".tbl")).collect()
        };
        let live = tables(&second.files);
        let increment = second.increment.expect("it was asked for");
        assert_eq!(increment.since, first.mark);
        let [file] = &increment.files[..] else {
            panic!("one flush: {increment:?}");
        };
        assert_eq!(live.len(), 1);
        assert!(!live.contains(&file.name), "a merge replaced it");
        let part = checkpoints.read(second.id, &file.name, 0, 100);
        assert_eq!(part.expect("it is held").len(), 100);
        let third = make(Some(vec![7])).increment.expect("it was asked for");
        assert_eq!((third.since, third.files.len()), (None, 0));
        assert_ne!(third.mark, increment.mark);
    }

    #[test]
    fn a_table_that_is_not_there_is_not_left_out_of_an_increment() {
        let file = |number: u64| CheckpointFile {
            name: format!("{number:016x}.tbl"),
            bytes: 1,
            content: u128::from(number),
        };
        let marked = |tables: &[u64]| Marked {
            since: Some(7),
            tables: tables.iter().map(|it| file(*it).name).collect(),
            replaced: [file(2).name].into(),
        };
        let lists = |tables: &[u64]| split(vec![file(1), file(2)], Some(Some(marked(tables))), 9);
        let (files, increment) = lists(&[2]).expect("both are there");
        assert_eq!(files, [file(1)]);
        assert_eq!(increment.expect("there is one").files, [file(2)]);
        let why = lists(&[2, 3]).expect_err("its link is missing");
        assert!(why.contains(&file(3).name), "{why}");
    }

    #[test]
    fn nothing_is_held_for_ever_nor_beyond_the_bound_nor_on_a_full_disk() {
        let data = tempfile::tempdir().expect("a folder");
        let engine = engine(data.path());
        let checkpoints = Checkpoints::new(data.path());
        for _ in 0..CHECKPOINTS_MAX {
            checkpoints.make(&engine, None).expect("there is room");
        }
        let refused = checkpoints.make(&engine, None);
        assert!(matches!(refused, Err(NoCheckpoint::TooMany)));
        let ids: Vec<u128> = checkpoints.held().list.iter().map(|one| one.id).collect();
        let end_of = |at: usize| checkpoints.read(ids[at], "CURRENT", 0, 0).map_err(end);
        let lease_us = CHECKPOINT_LEASE.as_micros() as u64;
        let touched: Vec<u64> = {
            let held = checkpoints.held();
            held.list.iter().map(|one| one.touched_us).collect()
        };
        let (first_us, last_us) = (touched[0], touched[CHECKPOINTS_MAX - 1]);
        checkpoints.held().list[1].touched_us = last_us + 1;
        checkpoints.expire(first_us + lease_us - 1, false);
        assert_eq!(checkpoints.len(), CHECKPOINTS_MAX, "all were just made");
        checkpoints.expire(last_us + lease_us, false);
        assert_eq!(checkpoints.len(), 1, "the one that was read later");
        assert_eq!(end_of(0), Err(CheckpointEnd::Lease));
        checkpoints.expire(last_us, true);
        assert_eq!(checkpoints.len(), 0);
        assert_eq!(end_of(1), Err(CheckpointEnd::DiskFull));
        let left = std::fs::read_dir(data.path().join(FOLDER)).expect("the folder stays");
        assert_eq!(left.count(), 0);
        checkpoints.make(&engine, None).expect("there is room");
        drop(Checkpoints::new(data.path()));
        assert!(!data.path().join(FOLDER).exists(), "a start clears it");
    }
}
