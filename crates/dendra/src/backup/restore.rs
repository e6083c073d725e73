//! `dendra restore`: a backup into an empty node or cluster.
//!
//! ```text
//! standing of all members ─► begin: their clocks above everything ─► page, page … to each ─► finish
//! ```
//!
//! Invariants
//! 1. Each member keeps the records that it owns, says up to where they are durable, and takes no
//!    page behind a missing one.
//! 2. The id of a restore follows from backup and prefix: the same command goes on where it was.
//! 3. Nothing is written before every member was asked and every one is empty, or has this restore.
//! 4. The table of tokens is left out unless it is asked for: a token that was revoked since then
//!    would open again.
//!
//! Not here: a node's work on a page (crate `server`).
//! See: docs/format/backup.md, docs/operating.md.

use super::archive::MergedWalk;
use super::manifest::BackupManifest;
use super::nodes::{AdminNode, EpochPatience, NodePlace, RestoreStanding, missing_members};
use super::pace::TransferPace;
use super::progress;
use super::repository::Repository;
use super::take::join_all;
use crate::cli::AccessArgs;
use crate::console::{Console, show_key};
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use dendra_base::{Cell, Key, Kind};
use dendra_wire::restore::RestorePageWriter;
use dendra_wire::route::is_tokens;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::Xxh3Default;

/// Pages that are read ahead of the members.
const PAGES_WAITING: usize = 4;

/// The order.
pub(crate) struct RestoreOrder<'a> {
    pub(crate) admin: &'a str,
    pub(crate) access: &'a AccessArgs,
    pub(crate) prefix: Vec<u8>,
    /// Does the table of tokens come back, too?
    pub(crate) with_tokens: bool,
    pub(crate) bytes_per_second: Option<u64>,
}

/// The records that a restore wrote, from where it began or went on.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) values: u64,
    pub(crate) tombstones: u64,
    pub(crate) bytes: u64,
    /// It was complete already.
    pub(crate) was_done: bool,
}

/// One page, and its content.
struct SentPage {
    bytes: Bytes,
    values: u64,
    tombstones: u64,
}

/// Restores the backup `manifest`.
pub(crate) async fn restore(
    repository: Arc<Repository>,
    manifest: BackupManifest,
    order: &RestoreOrder<'_>,
    console: Console,
) -> Result<Restored, Failure> {
    let nodes = AdminNode::all(order.admin, order.access, console)?;
    let id = restore_id(&manifest, order);
    let patience = EpochPatience::new();
    let standings = loop {
        let standings = join_all(nodes.iter().map(AdminNode::standing)).await;
        let standings: Vec<RestoreStanding> = standings.into_iter().collect::<Result<_, _>>()?;
        let places: Vec<&NodePlace> = standings.iter().map(|it| &it.place).collect();
        if !patience.asks_again(&places).await {
            break standings;
        }
    };
    check(&standings, &manifest, id)?;
    let open = MergedWalk::open(&repository, &manifest, &order.prefix, b"");
    let hlc = manifest.hlc.max(open.map_err(unreadable)?.hlc());
    let begun = join_all(nodes.iter().map(|node| node.begin(id, hlc))).await;
    let begun: Vec<RestoreStanding> = begun.into_iter().collect::<Result<_, _>>()?;
    let positions: Vec<&[u8]> = begun
        .iter()
        .filter_map(|it| it.restore.as_ref())
        .filter(|(_, is_finished, _)| !is_finished)
        .map(|(_, _, position)| position.as_slice())
        .collect();
    let Some(behind) = positions.iter().min().map(|it| it.to_vec()) else {
        return Ok(Restored {
            was_done: true,
            ..Restored::default()
        });
    };
    if !behind.is_empty() {
        console.note(&format!("going on behind {}", show_key(&behind)));
    }
    let open: Vec<&AdminNode> = nodes
        .iter()
        .zip(&begun)
        .filter(|(_, it)| it.restore.as_ref().is_none_or(|(_, is_done, _)| !is_done))
        .map(|(node, _)| node)
        .collect();
    let walk = MergedWalk::open(&repository, &manifest, &order.prefix, &behind);
    let walk = walk.map_err(unreadable)?;
    let (restored, position) = send(walk, id, behind, &open, order, console).await?;
    let finished = join_all(nodes.iter().map(|node| node.finish(id, &position))).await;
    let finished: Result<(), Failure> = finished.into_iter().collect();
    finished.map_err(repeat)?;
    drop(repository);
    Ok(restored)
}

fn restore_id(manifest: &BackupManifest, order: &RestoreOrder<'_>) -> u128 {
    let mut hash = Xxh3Default::new();
    hash.update(manifest.id.as_bytes());
    hash.update(match order.with_tokens {
        true => b"\0tokens\0",
        false => b"\0",
    });
    hash.update(&order.prefix);
    hash.digest128()
}

fn unreadable(reason: String) -> Failure {
    Failure::new(
        Exit::FAILURE,
        format!("the backup cannot be read: {reason}; `dendra backup verify` shows all damage"),
    )
}

/// May this restore begin, or go on, on all of these?
fn check(
    standings: &[RestoreStanding],
    manifest: &BackupManifest,
    id: u128,
) -> Result<(), Failure> {
    let places: Vec<&NodePlace> = standings.iter().map(|it| &it.place).collect();
    let missing = missing_members(&places)?;
    if !missing.is_empty() {
        return Err(Failure::usage(format!(
            "--admin does not name all members: {} are missing, and a restore writes all of them",
            missing.join(", ")
        )));
    }
    for standing in standings {
        let url = &standing.place.url;
        if manifest.nodes.iter().any(|node| node.node == standing.node) {
            return Err(Failure::usage(format!(
                "{url} is a node that this backup is of, with the same folder: a restore makes another cluster, of new folders"
            )));
        }
        match &standing.restore {
            Some((other, _, _)) if *other == id => {}
            Some((_, false, _)) => {
                return Err(Failure::usage(format!(
                    "{url}: a restore of another backup or prefix is under way: repeat that command, or start with empty folders"
                )));
            }
            _ if !standing.is_empty => {
                return Err(Failure::usage(format!(
                    "{url} holds records, or tombstones of some: a restore needs empty folders"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

fn repeat(failure: Failure) -> Failure {
    let reason = failure.sentence;
    let sentence = format!("{reason}; repeat the command: it goes on where it was");
    Failure::new(failure.exit, sentence)
}

/// Sends all pages to all members; with the key where the last one ends.
async fn send(
    walk: MergedWalk,
    id: u128,
    behind: Vec<u8>,
    nodes: &[&AdminNode],
    order: &RestoreOrder<'_>,
    console: Console,
) -> Result<(Restored, Vec<u8>), Failure> {
    let bar = bar(walk.records(), console);
    let (pages, mut ready) = mpsc::channel(PAGES_WAITING);
    let with_tokens = order.with_tokens;
    let reading = tokio::task::spawn_blocking(move || read(walk, id, behind, with_tokens, &pages));
    let pace = TransferPace::new(order.bytes_per_second);
    let mut restored = Restored::default();
    while let Some(page) = ready.recv().await {
        pace.take(page.bytes.len() as u64).await;
        let sent = join_all(nodes.iter().map(|node| node.page(page.bytes.clone()))).await;
        if let Err(failure) = sent.into_iter().collect::<Result<(), Failure>>() {
            bar.abandon();
            return Err(repeat(failure));
        }
        restored.values += page.values;
        restored.tombstones += page.tombstones;
        restored.bytes += page.bytes.len() as u64;
        bar.inc(page.values + page.tombstones);
    }
    bar.finish_and_clear();
    match reading.await {
        Ok(Ok(position)) => Ok((restored, position)),
        Ok(Err(reason)) => Err(unreadable(reason)),
        Err(e) => Err(Failure::new(
            Exit::FAILURE,
            format!("the reader ended: {e}"),
        )),
    }
}

/// Reads the backup on a thread that may wait, and fills pages; where the last one ends.
fn read(
    mut walk: MergedWalk,
    id: u128,
    mut behind: Vec<u8>,
    with_tokens: bool,
    pages: &mpsc::Sender<SentPage>,
) -> Result<Vec<u8>, String> {
    for number in 0.. {
        let mut writer = RestorePageWriter::new(id, number, &behind);
        let (mut values, mut tombstones) = (0, 0);
        while !writer.is_full() {
            let Some((key, cell)) = walk.next()? else {
                break;
            };
            if !with_tokens && is_tokens(Key::user(&key).as_stored()) {
                continue;
            }
            count(&cell, &mut values, &mut tombstones);
            writer.push(&key, &cell.as_ref());
            if let Some(found) = walk.disagreements.pop() {
                let key = show_key(&found.raw_key);
                return Err(format!(
                    "its nodes hold different values of {key} under one version"
                ));
            }
        }
        if writer.is_empty() {
            break;
        }
        behind.clear();
        behind.extend_from_slice(writer.position());
        let page = SentPage {
            bytes: writer.finish().into(),
            values,
            tombstones,
        };
        if pages.blocking_send(page).is_err() {
            // The sender failed, and says why.
            break;
        }
    }
    Ok(behind)
}

fn count(cell: &Cell, values: &mut u64, tombstones: &mut u64) {
    match cell.kind {
        Kind::Value => *values += 1,
        Kind::Tombstone => *tombstones += 1,
    }
}

fn bar(records: u64, console: Console) -> ProgressBar {
    let bar = progress::bar(records, console);
    // Records of all nodes: how many keys they are is known at the end.
    let template = "{spinner} {pos} records of at most {len}, {per_sec}, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
