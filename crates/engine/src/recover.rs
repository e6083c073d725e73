//! Opening a folder: from the state that a crash left to one that is durable and ready to serve.
//!
//! ```text
//! CURRENT ─► manifest ─► folder state ─► open every live table
//!                                   └──► replay log segments ≥ floor ─► tables of level 0
//! new log segment, new manifest with all of it, CURRENT ─► only now: remove files that are not named
//! ```
//!
//! Where room is short, segment by segment: tables, new manifest, its room is given back.
//!
//! Invariants
//! 1. No file is removed before the new manifest is in force.
//! 2. Records recovered from the log are in a synced table before any request is served. So a page
//!    cache that lied about an old log cannot take them back.
//! 3. A folder that is newer, foreign, locked or damaged is refused with the file's name; it is
//!    left as it was found.
//!
//! Not here: telling a torn log tail from damage (`wal`).
//! See: docs/format/folder.md.

use crate::batch::LogRecord;
use crate::cache::BlockCache;
use crate::compact::run::{MergeJob, NONE_ENDED_MS};
use crate::hole::Hole;
use crate::identity::Identity;
use crate::kept;
use crate::kept::note::{KEPT, KEPT_NEW, KeptNote, KeptTable};
use crate::memtable::{Inserter, Memtable};
use crate::options::Options;
use crate::scrub::note::{SCRUB, SCRUB_NEW};
use crate::table::{self, Table};
use crate::touched::{self, ReplayedTouch};
use crate::tree::Tree;
use crate::tree::edit::{Fact, Folder};
use crate::tree::manifest::{self, Manifest};
use crate::vfs::Vfs;
use crate::view::View;
use crate::wal::{LogItem, Lsn, Spare};
use crate::{Error, Result, wal};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A folder that is ready to serve.
pub(crate) struct Recovered {
    pub(crate) folder: Folder,
    pub(crate) tree: Tree,
    pub(crate) manifest: Manifest,
    pub(crate) identity: Identity,
    /// First file id that was never used.
    pub(crate) next_file: u64,
    /// The segment to write to.
    pub(crate) spare: Spare,
    /// Where the log that was replayed ends.
    pub(crate) log_end: Lsn,
    /// The tables that are kept for backups.
    pub(crate) kept: KeptNote,
}

/// Names that a start which was interrupted may leave beside manifests and log segments.
const OTHER_NAMES: [&str; 8] = [
    "LOCK",
    "CURRENT.new",
    wal::NEW_SEGMENT,
    SCRUB,
    SCRUB_NEW,
    KEPT,
    KEPT_NEW,
    "lost+found",
];

/// The records of the log, turned into tables.
struct Replayed {
    tables: Vec<Arc<Table>>,
    /// So many of them are in the folder's state.
    installed: usize,
    next_segment: u64,
    end: Lsn,
    hlc: u64,
}

impl Replayed {
    fn install_in(&mut self, folder: &mut Folder) {
        install(&self.tables, &mut self.installed, folder);
    }
}

fn install(tables: &[Arc<Table>], installed: &mut usize, folder: &mut Folder) {
    let new = tables[*installed..].iter();
    folder.levels[0].extend(new.map(|table| table.meta().clone()));
    *installed = tables.len();
}

/// Opens or creates the folder behind `vfs`.
pub(crate) fn open(vfs: &dyn Vfs, options: &Options, proposed: Identity) -> Result<Recovered> {
    let opened = open_with_room(vfs, options, proposed);
    opened.map_err(|error| if error.is_no_space() { Error::Folder {
        reason: format!(
            "the disk of {} is too full for a start ({error}): what the log holds must become tables first, {} MiB of it at a time; \
             make so much room, or give the folder a larger disk; nothing is lost",
            vfs.describe(),
            (2 * options.segment_bytes).div_ceil(1 << 20)
        ),
    } } else { error })
}

fn open_with_room(vfs: &dyn Vfs, options: &Options, proposed: Identity) -> Result<Recovered> {
    let mut names = vfs
        .list()
        .map_err(|e| Error::io("listing the data folder", e))?;
    let room = vfs
        .room()
        .map_err(|e| Error::io("asking for room on the disk", e))?;
    let is_short = room.free_bytes < options.reserve_bytes;
    if is_short {
        give_spares_back(vfs, &mut names)?;
    }
    let named = manifest::current(vfs, &names)?;
    let named_id = named.map(|named| named.id);
    let mut kept = kept::of_folder(vfs, &names, named_id);
    if is_short {
        kept::note::remove(vfs)?;
        kept = KeptNote::default();
    }
    let mut folder = match named {
        Some(named) => manifest::replay(vfs, named.id, named.bytes)?,
        None => {
            let folder = new_folder(vfs, &names, proposed)?;
            if let Some(reason) = options.too_small(room.free_bytes) {
                let reason = format!("the disk of {} is too small: {reason}", vfs.describe());
                return Err(Error::Folder { reason });
            }
            folder
        }
    };
    let identity = folder.identity.expect("replay and new_folder set it");
    let mut tree = open_tables(vfs, &folder, &names)?;
    check_log_start(&folder, &names)?;
    let mut next_file = first_unused_id(&names)?;
    let first_needed = first_needed_segment(&folder, &names);
    let log = LogRecovery {
        vfs,
        options,
        salt: identity.log_salt(),
        first_needed,
        tree: Arc::new(tree.clone()),
        holes: folder.holes.clone().into(),
    };
    let mut replayed = if is_short {
        log.replay_in_stages(named_id, &mut folder, &mut next_file)?
    } else {
        log.replay(&mut next_file, |_, _| Ok(()))?
    };
    let segment = replayed.next_segment;
    // Where room is short, one that holds a single batch will do: the next one has the usual size.
    let segment_bytes = if is_short {
        options.segment_bytes_min()
    } else {
        options.segment_bytes
    };
    let spare = wal::prepare(vfs, identity.log_salt(), segment, segment_bytes)?;
    replayed.install_in(&mut folder);
    let from_log = replayed.tables.iter().map(|table| KeptTable {
        id: table.meta().id,
        bytes: table.meta().bytes,
    });
    kept.tables.extend(from_log);
    tree = tree.replace(&[], replayed.tables.into_iter().map(|t| (0, t)).collect());
    folder.log_floor = segment;
    folder.hlc_ceiling = folder.hlc_ceiling.max(replayed.hlc).max(newest_hlc(&tree));
    let manifest = Manifest::create(vfs, next_file, &folder.snapshot())?;
    next_file += 1;
    let kept = keep_on(vfs, kept, manifest.id())?;
    remove_unnamed(vfs, &folder, Some(manifest.id()), &kept)?;
    Ok(Recovered {
        folder,
        tree,
        manifest,
        identity,
        next_file,
        spare,
        log_end: replayed.end,
        kept,
    })
}

/// Goes on keeping tables under the manifest of this start. The note on the disk until then names
/// the manifest before: a crash in between keeps no table.
fn keep_on(vfs: &dyn Vfs, mut kept: KeptNote, manifest: u64) -> Result<KeptNote> {
    if kept.marks.is_empty() {
        return Ok(KeptNote::default());
    }
    kept.manifest = manifest;
    match kept::note::save(vfs, &kept) {
        Ok(()) => Ok(kept),
        Err(_) => kept::note::remove(vfs).map(|()| KeptNote::default()),
    }
}

/// Removes log segments that were made ahead of use and never used. With their room a start on a
/// full disk turns the log into tables. Only the last ones can be such, and they hold only zeros.
fn give_spares_back(vfs: &dyn Vfs, names: &mut Vec<String>) -> Result<()> {
    if let Some(at) = names.iter().position(|name| name == wal::NEW_SEGMENT) {
        let name = names.remove(at);
        vfs.remove(&name)
            .map_err(|e| Error::io(format!("removing the unfinished {name}"), e))?;
    }
    let mut segments: Vec<u64> = names
        .iter()
        .filter_map(|name| wal::parse_segment_name(name))
        .collect();
    segments.sort_unstable();
    // The first one stays: the manifest may name it, used or not.
    while segments.len() > 1 {
        let Some(last) = segments.pop() else {
            break;
        };
        let before = *segments.last().expect("one is left");
        // An unused one behind an end mark: the power was lost when the log went on in it.
        if !wal::is_unused(vfs, last)? || wal::goes_on(vfs, before)? {
            break;
        }
        let name = wal::segment_name(last);
        vfs.remove(&name)
            .map_err(|e| Error::io(format!("removing the unused {name}"), e))?;
        names.retain(|other| *other != name);
    }
    Ok(())
}

/// A folder without `CURRENT` is new, unless something in it says otherwise.
pub(crate) fn new_folder(vfs: &dyn Vfs, names: &[String], proposed: Identity) -> Result<Folder> {
    let holds_data = names.iter().find(|n| table::id_of_file_name(n).is_some());
    let mut witness = holds_data;
    for name in names {
        if let Some(segment) = wal::parse_segment_name(name)
            && wal::holds_data(vfs, segment)?
        {
            witness = Some(name);
        }
    }
    if let Some(name) = witness {
        return Err(Error::damaged(
            manifest::CURRENT,
            0,
            format!("it is missing although {name} holds data; restore the folder from a copy"),
        ));
    }
    let is_ours = |n: &str| {
        manifest::id_of(n).is_some()
            || wal::parse_segment_name(n).is_some()
            || OTHER_NAMES.contains(&n)
    };
    if let Some(name) = names.iter().find(|n| !is_ours(n)) {
        return Err(Error::Folder {
            reason: format!(
                "{} is not empty and not a Dendra folder (it holds {name}): choose another folder",
                vfs.describe()
            ),
        });
    }
    let mut folder = Folder::new();
    folder.identity = Some(proposed);
    Ok(folder)
}

pub(crate) fn open_tables(vfs: &dyn Vfs, folder: &Folder, names: &[String]) -> Result<Tree> {
    let present: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut opened = Vec::new();
    for (level, metas) in folder.levels.iter().enumerate() {
        for meta in metas {
            let name = table::file_name(meta.id);
            if !present.contains(name.as_str()) {
                return Err(Error::damaged(
                    name,
                    0,
                    "the manifest lists it and it is not there; restore the folder from a copy",
                ));
            }
            opened.push((level, Arc::new(Table::open(vfs, meta.clone())?)));
        }
    }
    check_disjoint(&opened)?;
    Ok(Tree::new().replace(&[], opened))
}

/// A folder that was never served needs none of the segments that an interrupted start left.
fn first_needed_segment(folder: &Folder, names: &[String]) -> u64 {
    if folder.log_floor > 0 {
        return folder.log_floor;
    }
    let left = names
        .iter()
        .filter_map(|n| wal::parse_segment_name(n))
        .max();
    left.unwrap_or(0) + 1
}

/// The first needed segment existed before the manifest named it.
pub(crate) fn check_log_start(folder: &Folder, names: &[String]) -> Result<()> {
    let name = wal::segment_name(folder.log_floor);
    if folder.log_floor > 0 && !names.contains(&name) {
        return Err(Error::damaged(
            name,
            0,
            "the manifest needs this log segment and it is not there; restore the folder from a copy",
        ));
    }
    Ok(())
}

/// A manifest that was damaged in a way its checksums cannot see must not become a panic.
pub(crate) fn check_disjoint(opened: &[(usize, Arc<Table>)]) -> Result<()> {
    let mut ranges: Vec<_> = opened
        .iter()
        .filter(|(level, _)| *level > 0)
        .map(|(level, t)| (*level, &t.meta().smallest, &t.meta().largest, t.meta().id))
        .collect();
    ranges.sort();
    for pair in ranges.windows(2) {
        if pair[0].0 == pair[1].0 && pair[0].2 >= pair[1].1 {
            return Err(Error::damaged(
                table::file_name(pair[1].3),
                0,
                format!(
                    "it overlaps {} in level {}",
                    table::file_name(pair[0].3),
                    pair[0].0
                ),
            ));
        }
    }
    Ok(())
}

fn first_unused_id(names: &[String]) -> Result<u64> {
    let id_of = |n: &String| table::id_of_file_name(n).or(manifest::id_of(n));
    let last = names.iter().filter_map(|n| Some((id_of(n)?, n))).max();
    // Half of all ids are out of reach of any engine, and leave the next ones room to count.
    match last {
        Some((id, name)) if id > u64::MAX / 2 => Err(Error::Unusable {
            reason: format!("{name} is not a file that this folder made: move it away"),
        }),
        last => Ok(last.map_or(1, |(id, _)| id + 1)),
    }
}

pub(crate) fn newest_hlc(tree: &Tree) -> u64 {
    tree.tables()
        .map(|(_, t)| t.meta().version_max.hlc)
        .max()
        .unwrap_or(0)
}

/// Memory of the blocks in which a replay looks up the values of touches.
const REPLAY_CACHE_BYTES: usize = 8 << 20;

/// Memtables of the usual size, each turned into a table as it fills.
struct Replay<'a> {
    vfs: &'a dyn Vfs,
    options: &'a Options,
    next_file: &'a mut u64,
    memtable: Arc<Memtable>,
    inserter: Inserter,
    /// The tables of the folder, and those that this replay made.
    tree: Arc<Tree>,
    holes: Arc<[Hole]>,
    /// Blocks in which values of touches were looked up.
    cache: Arc<BlockCache>,
    tables: Vec<Arc<Table>>,
    installed: usize,
    hlc: u64,
}

impl Replay<'_> {
    /// Puts a record into the memtable, a touch as the whole cell that it became before.
    fn insert(&mut self, record: &LogRecord<'_>) -> Result<()> {
        let Some(touch) = record.touch() else {
            self.inserter.insert(record.stored_key, record.encoded_cell);
            return Ok(());
        };
        let view = View {
            active: Arc::clone(&self.memtable),
            sealed: Vec::new(),
            tree: Arc::clone(&self.tree),
            holes: Arc::clone(&self.holes),
        };
        match touched::replay(&view, &self.cache, record.stored_key, &touch)? {
            ReplayedTouch::Void => {}
            ReplayedTouch::Whole(cell) | ReplayedTouch::Damaged(cell) => {
                self.inserter.insert(record.stored_key, &cell);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let (memtable, inserter) = Memtable::new(self.options.memtable_bytes);
        let full = std::mem::replace(&mut self.memtable, memtable);
        self.inserter = inserter;
        if full.is_empty() {
            return Ok(());
        }
        // No clock is looked at: right after a start of the machine it may be wrong by years.
        let mut job = MergeJob::flush(&full, Arc::new(Tree::new()), self.options, NONE_ENDED_MS)?;
        let mut next_id = || {
            *self.next_file += 1;
            *self.next_file - 1
        };
        while !job.step(self.vfs, usize::MAX, &mut next_id)? {}
        let made = job.finish(self.vfs)?;
        let placed = made.iter().map(|table| (0, Arc::clone(table))).collect();
        self.tree = Arc::new(self.tree.replace(&[], placed));
        self.tables.extend(made);
        Ok(())
    }
}

/// The log of a folder that is opened.
struct LogRecovery<'a> {
    vfs: &'a dyn Vfs,
    options: &'a Options,
    salt: u64,
    first_needed: u64,
    /// The folder's tables, where touches find values that the log no longer has.
    tree: Arc<Tree>,
    holes: Arc<[Hole]>,
}

impl LogRecovery<'_> {
    /// Turns all of it into tables. `ended` is called for each segment that another one follows.
    fn replay(
        &self,
        next_file: &mut u64,
        mut ended: impl FnMut(&mut Replay<'_>, u64) -> Result<()>,
    ) -> Result<Replayed> {
        let options = self.options;
        let (memtable, inserter) = Memtable::new(options.memtable_bytes);
        let mut replay = Replay {
            vfs: self.vfs,
            options,
            next_file,
            memtable,
            inserter,
            tree: Arc::clone(&self.tree),
            holes: Arc::clone(&self.holes),
            cache: Arc::new(BlockCache::new(REPLAY_CACHE_BYTES)),
            tables: Vec::new(),
            installed: 0,
            hlc: 0,
        };
        let visit = |seen: LogItem<'_>| {
            let record = match seen {
                LogItem::Record(record) => record,
                LogItem::EndOfSegment { next } => return ended(&mut replay, next),
            };
            replay.hlc = replay.hlc.max(hlc_of(&record)?);
            replay.insert(&record)?;
            if replay.memtable.bytes() >= options.memtable_bytes {
                replay.flush()?;
            }
            Ok(())
        };
        let recovery = wal::recover_by_segment(self.vfs, self.salt, self.first_needed, visit)?;
        replay.flush()?;
        Ok(Replayed {
            hlc: replay.hlc.max(recovery.hlc_ceiling),
            tables: replay.tables,
            installed: replay.installed,
            next_segment: recovery.next_segment,
            end: recovery.end,
        })
    }

    /// Replays the log where room is short. A segment's records are in force as tables, and its
    /// room is given back, before the next one is read. All of the log is checked before anything
    /// is changed.
    fn replay_in_stages(
        &self,
        named: Option<u64>,
        folder: &mut Folder,
        next_file: &mut u64,
    ) -> Result<Replayed> {
        let mut hlc = 0;
        let checked = wal::recover(self.vfs, self.salt, self.first_needed, |record| {
            hlc = hlc.max(hlc_of(&record)?);
            Ok(())
        })?;
        folder.hlc_ceiling = folder.hlc_ceiling.max(hlc).max(checked.hlc_ceiling);
        // The files of a start that was interrupted take room, too.
        remove_unnamed(self.vfs, folder, named, &KeptNote::default())?;
        self.replay(next_file, |replay, next| {
            replay.flush()?;
            install(&replay.tables, &mut replay.installed, folder);
            folder.log_floor = next;
            let manifest = Manifest::create(self.vfs, *replay.next_file, &folder.snapshot())?;
            *replay.next_file += 1;
            remove_unnamed(self.vfs, folder, Some(manifest.id()), &KeptNote::default())
        })
    }
}

fn hlc_of(record: &LogRecord<'_>) -> Result<u64> {
    match record.version() {
        Some(version) => Ok(version.hlc),
        None => Err(Error::damaged("log", 0, "a record's cell cannot be read")),
    }
}

/// Removes files that the manifest in force, and the folder's state in it, do not need.
fn remove_unnamed(
    vfs: &dyn Vfs,
    folder: &Folder,
    manifest: Option<u64>,
    kept: &KeptNote,
) -> Result<()> {
    let live = folder.levels.iter().flatten().map(|m| m.id);
    let kept = kept.tables.iter().map(|table| table.id);
    let live: BTreeSet<u64> = live.chain(kept).collect();
    for name in vfs
        .list()
        .map_err(|e| Error::io("listing the data folder", e))?
    {
        let is_needless = if let Some(id) = table::id_of_file_name(&name) {
            !live.contains(&id)
        } else if let Some(id) = wal::parse_segment_name(&name) {
            id < folder.log_floor
        } else if let Some(id) = manifest::id_of(&name) {
            Some(id) != manifest
        } else {
            name == wal::NEW_SEGMENT
        };
        if is_needless {
            vfs.remove(&name)
                .map_err(|e| Error::io(format!("removing {name}"), e))?;
        }
    }
    Ok(())
}

/// The facts that make a flush or compaction true.
pub(crate) fn replacement(level: usize, removed: &[u64], added: &[Arc<Table>]) -> Vec<Fact> {
    let removed = removed.iter().map(|id| Fact::RemoveTable { id: *id });
    let added = added.iter().map(|t| Fact::AddTable {
        level,
        meta: t.meta().clone(),
    });
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::mem::MemVfs;

    fn prepared(segments: &[u64]) -> (MemVfs, Vec<String>) {
        let vfs = MemVfs::new();
        for segment in segments {
            wal::prepare(&vfs, 1, *segment, 4 << 10).expect("there is room");
        }
        let names = vfs.list().expect("the disk is well");
        (vfs, names)
    }

    #[test]
    fn unused_segments_are_given_back_but_the_first() {
        let (vfs, mut names) = prepared(&[3, 4, 5]);
        give_spares_back(&vfs, &mut names).expect("the disk is well");
        assert_eq!(names, [wal::segment_name(3)]);
        assert_eq!(vfs.list().expect("the disk is well"), names);
    }

    #[test]
    fn a_folder_that_was_never_served_begins_behind_the_segments_in_it() {
        let (_, names) = prepared(&[3, 4]);
        let mut folder = Folder::new();
        folder.log_floor = 0;
        assert_eq!(first_needed_segment(&folder, &names), 5);
        assert_eq!(first_needed_segment(&folder, &[]), 1);
        folder.log_floor = 4;
        assert_eq!(first_needed_segment(&folder, &names), 4);
    }
}
