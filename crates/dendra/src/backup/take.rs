//! `dendra backup DESTINATION`: one backup of a running node or cluster.
//!
//! ```text
//! began ─► a checkpoint on every node ─► cut ─► lists: full, or since the backup before
//!       ─► files that the repository lacks ─► manifest ─► release
//! ```
//!
//! Invariants
//! 1. Every write that a majority had acknowledged before `began` is in the checkpoint of at least
//!    one node. All members have one, but for fewer than half of the copies (`--allow-missing`).
//! 2. A write that began after `cut` is in none.
//! 3. The manifest is written after everything that it names is durable; until then an interrupted
//!    backup has left objects, and the next one takes them.
//!
//! Not here: which of the two lists (`increment.rs`), the content of a checkpoint (crate `engine`),
//! how it is read back (`archive.rs`).
//! See: docs/format/backup.md.

use super::increment::{self, Lists};
use super::lease::held_while;
use super::naming;
use super::nodes::{
    AdminNode, EpochPatience, HeldCheckpoint, HeldFile, NodePlace, missing_members,
};
use super::pace::TransferPace;
use super::place::RepositoryUse;
use super::progress;
use super::repository::{NewObject, Repository};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::runtime::join_all;
use bytes::Bytes;
use dendra_archive::manifest::{BackupFile, BackupManifest, BackupNode};
use dendra_archive::object::ObjectSum;
use dendra_archive::seal::BackupKey;
use indicatif::ProgressBar;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// The bytes of one request.
const PART_BYTES: u64 = 1 << 20;
/// Parts that wait for the destination, of one node.
const PARTS_WAITING: usize = 4;
/// While one file is copied the next ones are begun: a slow sync holds up no other file.
const FILES_AT_ONCE: usize = 2;

/// The order.
pub(crate) struct TakeOrder<'a> {
    pub(crate) destination: &'a Path,
    pub(crate) key: Option<&'a BackupKey>,
    pub(crate) nodes: &'a [AdminNode],
    pub(crate) bytes_per_second: Option<u64>,
    pub(crate) allow_missing: bool,
    /// Is a new repository made where none is?
    pub(crate) may_found: bool,
}

/// Wall milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Counts of one backup.
#[derive(Default)]
struct Moved {
    bytes: Cell<u64>,
    stored_bytes: Cell<u64>,
}

/// State that all copies share.
struct CopyWork {
    repository: Arc<Repository>,
    pace: TransferPace,
    bar: ProgressBar,
    moved: Moved,
}

/// A backup that was taken.
pub(crate) struct Taken {
    pub(crate) manifest: BackupManifest,
    /// Why all tables of all nodes are in it anew; `None`: it goes on from the backup before.
    pub(crate) full_because: Option<String>,
    /// A sentence, if the repository has a backup with a later time than this machine.
    pub(crate) clock_is_behind: Option<String>,
}

/// Takes a backup.
pub(crate) async fn take(order: &TakeOrder<'_>, console: Console) -> Result<Taken, Failure> {
    let (path, key) = (order.destination, order.key.cloned());
    let repository = Arc::new(if order.may_found {
        Repository::create(path, key)?
    } else {
        Repository::open(path, RepositoryUse::Shared, key)?
    });
    let ids = repository.ids().map_err(|e| destination(&repository, &e))?;
    let former = increment::former(&repository, &ids);
    let marks = increment::marks(&former);
    let began_ms = now_ms();
    let name = naming::above(&ids, began_ms)?;
    let patience = EpochPatience::new();
    let held = loop {
        let held = checkpoints(order.nodes, &marks, order.allow_missing, console).await?;
        let places: Vec<&NodePlace> = held.iter().map(|(_, it)| &it.place).collect();
        if !patience.asks_again(&places).await {
            break held;
        }
        release(&held).await;
    };
    // A node whose clock is ahead ends values by its own clock.
    let clocks = held.iter().map(|(_, it)| it.wall_ms);
    let cut_ms = clocks.fold(now_ms(), u64::max);
    let copied = async {
        let checkpoints: Vec<&HeldCheckpoint> = held.iter().map(|(_, it)| it).collect();
        check_members(&checkpoints, order.allow_missing, console)?;
        let lists = increment::lists(former, &checkpoints);
        let lists = with_all_objects(lists, &repository, &held).await?;
        copy(&held, lists, repository, order, console).await
    }
    .await;
    let (nodes, full_because, work) = match copied {
        Ok(copied) => copied,
        Err(failure) => {
            release(&held).await;
            return Err(failure);
        }
    };
    release(&held).await;
    let manifest = BackupManifest {
        id: name.id,
        began_ms,
        cut_ms,
        hlc: held.iter().map(|(_, it)| it.hlc).max().unwrap_or(0),
        cluster: held[0].1.place.cluster.clone(),
        nodes,
        moved_bytes: work.moved.bytes.get(),
        moved_stored_bytes: work.moved.stored_bytes.get(),
    };
    let added = work.repository.add(&manifest);
    added.map_err(|e| destination(&work.repository, &e))?;
    work.bar.finish_and_clear();
    Ok(Taken {
        manifest,
        full_because,
        clock_is_behind: name.clock_is_behind,
    })
}

/// Full lists in the place of some that name an object which is gone or cut.
async fn with_all_objects(
    lists: Lists,
    repository: &Arc<Repository>,
    held: &[(&AdminNode, HeldCheckpoint)],
) -> Result<Lists, Failure> {
    let Lists::Since(nodes) = &lists else {
        return Ok(lists);
    };
    let held: Vec<_> = held.iter().map(|(node, it)| (*node, it)).collect();
    let are_there = held_while(&held, increment::are_there(repository, nodes)).await;
    if are_there.map_err(|e| destination(repository, &e))? {
        Ok(lists)
    } else {
        Ok(Lists::Full(
            "the backup before lacks some of its objects".to_owned(),
        ))
    }
}

/// Makes a checkpoint on each node, all at once: the cut is as short as the slowest one.
async fn checkpoints<'a>(
    nodes: &'a [AdminNode],
    since: &[u128],
    allow_missing: bool,
    console: Console,
) -> Result<Vec<(&'a AdminNode, HeldCheckpoint)>, Failure> {
    let made = join_all(nodes.iter().map(|node| node.checkpoint(since))).await;
    let mut held = Vec::new();
    let mut failure = None;
    for (node, answer) in nodes.iter().zip(made) {
        match answer {
            Ok(checkpoint) => held.push((node, checkpoint)),
            Err(why) if allow_missing => console.note(&format!("left out: {}", why.sentence)),
            Err(why) => failure = Some(why),
        }
    }
    match failure {
        None if !held.is_empty() => Ok(held),
        failure => {
            release(&held).await;
            Err(failure.unwrap_or_else(|| {
                Failure::new(Exit::UNAVAILABLE, "no node could make a checkpoint")
            }))
        }
    }
}

async fn release(held: &[(&AdminNode, HeldCheckpoint)]) {
    join_all(held.iter().map(|(node, it)| node.release(&it.id))).await;
}

/// Are enough members there that every acknowledged write is in one of the checkpoints?
pub(super) fn check_members(
    checkpoints: &[&HeldCheckpoint],
    allow_missing: bool,
    console: Console,
) -> Result<(), Failure> {
    let places: Vec<&NodePlace> = checkpoints.iter().map(|it| &it.place).collect();
    let missing = missing_members(&places)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(", ");
    if !allow_missing {
        return Err(Failure::usage(format!(
            "--admin does not name all members: {list} are missing. Name their admin ports, too; \
             --allow-missing goes without some, if they are away"
        )));
    }
    let copies = places[0]
        .cluster
        .as_ref()
        .map_or(1, |it| it.replication_factor);
    let most = copies.saturating_sub(1) / 2;
    if missing.len() as u64 > most {
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "{} members are missing ({list}), and with {copies} copies at most {most} may be: \
                 acknowledged writes could be on the missing ones alone",
                missing.len()
            ),
        ));
    }
    console.note(&format!(
        "without {list}: writes that asked for fewer copies than a majority may be missing"
    ));
    Ok(())
}

fn destination(repository: &Repository, error: &io::Error) -> Failure {
    let name = repository.name();
    let way_out = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "it is full: make room, or prune, and run the same command again: it goes on where it was"
        }
        _ => "run the same command again when it is there: it goes on where it was",
    };
    Failure::new(Exit::FAILURE, format!("{name}: {error}; {way_out}"))
}

/// The files of a checkpoint that such a list takes.
fn listed<'a>(lists: &Lists, held: &'a HeldCheckpoint) -> &'a [HeldFile] {
    match (lists, &held.increment) {
        (Lists::Since(_), Some(increment)) => &increment.files,
        _ => &held.files,
    }
}

/// Copies the files that the repository lacks, of each checkpoint, with their checksums: the nodes
/// of the manifest, and why their lists are full.
async fn copy(
    held: &[(&AdminNode, HeldCheckpoint)],
    lists: Lists,
    repository: Arc<Repository>,
    order: &TakeOrder<'_>,
    console: Console,
) -> Result<(Vec<BackupNode>, Option<String>, CopyWork), Failure> {
    let bytes = held.iter().flat_map(|(_, it)| listed(&lists, it));
    let bar = progress::bar(bytes.map(|file| file.bytes).sum(), console);
    let work = CopyWork {
        repository,
        pace: TransferPace::new(order.bytes_per_second),
        bar,
        moved: Moved::default(),
    };
    let copies = held.iter().map(|(node, it)| {
        let copy = copy_node(node, it, listed(&lists, it), &work);
        // The destination may take longer for one file than the node waits for the next read.
        async move { held_while(&[(*node, it)], copy).await }
    });
    let copies = join_all(copies).await;
    let copied: Result<Vec<_>, Failure> = copies.into_iter().collect();
    if copied.is_err() {
        work.bar.abandon();
    }
    let files = copied?;
    let held = held.iter().map(|(_, it)| it);
    let (nodes, full_because) = match lists {
        Lists::Full(why) => {
            let nodes = held
                .zip(files)
                .map(|(it, files)| backup_node(it, files, Vec::new()));
            (nodes.collect(), Some(why))
        }
        Lists::Since(former) => {
            let nodes = held.zip(files).zip(former).map(|((it, new), former)| {
                let kept = former.kept.into_iter().chain(new);
                backup_node(it, former.files, kept.collect())
            });
            (nodes.collect(), None)
        }
    };
    Ok((nodes, full_because, work))
}

fn backup_node(held: &HeldCheckpoint, files: Vec<BackupFile>, kept: Vec<BackupFile>) -> BackupNode {
    BackupNode {
        url: held.place.url.clone(),
        node: held.node,
        hlc: held.hlc,
        files,
        kept,
        mark: held.increment.as_ref().and_then(|it| it.mark),
    }
}

/// Copies the files of one node, some at once.
async fn copy_node(
    node: &AdminNode,
    held: &HeldCheckpoint,
    files: &[HeldFile],
    work: &CopyWork,
) -> Result<Vec<BackupFile>, Failure> {
    let next = Cell::new(0);
    let done: Vec<Cell<Option<BackupFile>>> = files.iter().map(|_| Cell::new(None)).collect();
    let run = || async {
        while let Some(file) = files.get(next.get()) {
            let at = next.replace(next.get() + 1);
            let sum = copy_file(node, &held.id, file, work).await?;
            done[at].set(Some(BackupFile {
                name: file.name.clone(),
                bytes: file.bytes,
                object: file.content,
                checksum: sum.checksum,
            }));
        }
        Ok(())
    };
    let runs = join_all((0..FILES_AT_ONCE).map(|_| run())).await;
    runs.into_iter().collect::<Result<(), Failure>>()?;
    Ok(done
        .into_iter()
        .map(|file| file.take().expect("all were copied"))
        .collect())
}

async fn copy_file(
    node: &AdminNode,
    checkpoint: &str,
    file: &HeldFile,
    work: &CopyWork,
) -> Result<ObjectSum, Failure> {
    let failed = |e: io::Error| destination(&work.repository, &e);
    let there = work.repository.sum_beside(file.content).await;
    if let Some(sum) = there.map_err(failed)?.filter(|it| it.bytes == file.bytes) {
        work.bar.inc(file.bytes);
        return Ok(sum);
    }
    let new = work.repository.begin(file.content).map_err(failed)?;
    let (parts, arriving) = mpsc::channel(PARTS_WAITING);
    let repository = Arc::clone(&work.repository);
    let written = tokio::task::spawn_blocking(move || write(&repository, new, arriving));
    let mut offset = 0;
    while offset < file.bytes {
        let bytes = work.pace.most(PART_BYTES).min(file.bytes - offset);
        work.pace.take(bytes).await;
        let part = node.part(checkpoint, &file.name, offset, bytes).await?;
        if parts.send(part).await.is_err() {
            // The writer has failed, and says why below.
            break;
        }
        offset += bytes;
        work.bar.inc(bytes);
    }
    let is_whole = offset == file.bytes;
    // Without its last part an object is not given a name.
    let sent = if is_whole {
        parts.send(Bytes::new()).await
    } else {
        Ok(())
    };
    drop(parts);
    let sum = match written.await {
        Ok(Ok(Some(sum))) if sent.is_ok() => sum,
        Ok(Err(e)) => return Err(failed(e)),
        _ => {
            let sentence = format!("{}: {} was not copied", work.repository.name(), file.name);
            return Err(Failure::new(Exit::FAILURE, sentence));
        }
    };
    // The content that the destination tells, not the one that it was given.
    let read = work.repository.sum_beside(file.content).await;
    match read.map_err(failed)? {
        Some(read) if read == sum && sum.bytes == file.bytes => {}
        _ => {
            return Err(failed(io::Error::other(format!(
                "{} was written and is not what was written: the destination loses data",
                work.repository.object_name(file.content)
            ))));
        }
    }
    let moved = &work.moved;
    moved.bytes.set(moved.bytes.get() + sum.bytes);
    moved
        .stored_bytes
        .set(moved.stored_bytes.get() + sum.stored_bytes);
    Ok(sum)
}

/// Writes one object on a thread that may wait. `None` when its parts ended early.
fn write(
    repository: &Repository,
    mut new: NewObject,
    mut parts: mpsc::Receiver<Bytes>,
) -> io::Result<Option<ObjectSum>> {
    while let Some(part) = parts.blocking_recv() {
        if part.is_empty() {
            return repository.publish(new).map(Some);
        }
        new.writer.push(&part)?;
    }
    Ok(None)
}
