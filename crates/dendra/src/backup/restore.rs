//! `dendra restore`: a backup into an empty node or cluster.
//!
//! ```text
//! standing of all members ─► begin: their clocks above everything ─► page, page … to each ─► finish
//!        ▲                                                             │ a member lacks some of it
//!        └──────── another round, behind the lowest position ──────────┘
//! ```
//!
//! Invariants
//! 1. Each member keeps the records that it owns, says up to where they are durable, and takes no
//!    page behind a missing one.
//! 2. The id of a restore follows from backup and prefix: the same command goes on where it was.
//! 3. Nothing is written before every member was asked and every one is empty, or has this restore.
//! 4. A member that starts again in the middle ends no restore: the next round sends what it lacks.
//!    Rounds that bring nothing forward are bounded by `STANDSTILLS_MAX`.
//! 5. The table of tokens is left out unless it is asked for: a token that was revoked since then
//!    would open again.
//!
//! Not here: how pages travel (`sending.rs`), a node's work on a page (crate `server`).
//! See: docs/format/backup.md, docs/operating.md.

use super::archive::MergedWalk;
use super::nodes::{
    AdminNode, EpochPatience, NodePlace, PageRefusal, RestoreStanding, missing_members,
};
use super::repository::Repository;
use super::sending::{self, PageSource, RoundEnd, repeat, unreadable};
use super::take::join_all;
use crate::cli::AccessArgs;
use crate::console::{Console, show_key};
use crate::exit::Failure;
use dendra_archive::manifest::BackupManifest;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// Rounds in a row that begin where the one before them began.
const STANDSTILLS_MAX: u32 = 5;

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

/// A restore that is under way.
struct Undertaking<'a> {
    repository: &'a Arc<Repository>,
    manifest: &'a BackupManifest,
    nodes: &'a [AdminNode],
    order: &'a RestoreOrder<'a>,
    console: Console,
    id: u128,
    /// What all rounds wrote, and up to which key it is counted.
    restored: Restored,
    counted: Vec<u8>,
}

/// Restores the backup `manifest`.
pub(crate) async fn restore(
    repository: Arc<Repository>,
    manifest: BackupManifest,
    order: &RestoreOrder<'_>,
    console: Console,
) -> Result<Restored, Failure> {
    let nodes = AdminNode::all(order.admin, order.access, console)?;
    let mut undertaking = Undertaking {
        repository: &repository,
        manifest: &manifest,
        nodes: &nodes,
        order,
        console,
        id: restore_id(&manifest, order),
        restored: Restored::default(),
        counted: Vec::new(),
    };
    // Where the last round began, and how many began there.
    let mut began: (Option<Vec<u8>>, u32) = (None, 0);
    loop {
        let Some((behind, members)) = undertaking.begin().await? else {
            // Behind the first round it was this command that had finished it.
            undertaking.restored.was_done = began.0.is_none();
            return Ok(undertaking.restored);
        };
        began = match began {
            (Some(last), count) if last == behind => (Some(last), count + 1),
            _ => (Some(behind.clone()), 1),
        };
        nodes.iter().for_each(AdminNode::await_restarts);
        match undertaking.round(behind.clone(), &members).await {
            Ok(()) => return Ok(undertaking.restored),
            Err(RoundEnd::Failed(failure)) => return Err(failure),
            Err(RoundEnd::Behind(failure)) if began.1 >= STANDSTILLS_MAX => {
                let (rounds, at) = (began.1, show_position(&behind));
                let sentence = format!(
                    "{}; {rounds} tries in a row began {at} and brought nothing forward",
                    failure.sentence
                );
                return Err(repeat(Failure::new(failure.exit, sentence)));
            }
            Err(RoundEnd::Behind(failure)) => {
                let reason = failure.sentence;
                console.note(&format!("{reason}; sending again what is missing"));
            }
        }
    }
}

fn show_position(behind: &[u8]) -> String {
    match behind.is_empty() {
        true => "at the first key".to_owned(),
        false => format!("behind {}", show_key(behind)),
    }
}

impl<'a> Undertaking<'a> {
    /// Asks all members where they stand, and begins or goes on: behind which key, and the members
    /// that are not finished. `None` when all are.
    async fn begin(&self) -> Result<Option<(Vec<u8>, Vec<&'a AdminNode>)>, Failure> {
        let (id, order, nodes) = (self.id, self.order, self.nodes);
        let patience = EpochPatience::new();
        let standings = loop {
            let standings = join_all(nodes.iter().map(AdminNode::standing)).await;
            let standings: Vec<RestoreStanding> =
                standings.into_iter().collect::<Result<_, _>>()?;
            let places: Vec<&NodePlace> = standings.iter().map(|it| &it.place).collect();
            if !patience.asks_again(&places).await {
                break standings;
            }
        };
        check(&standings, self.manifest, id)?;
        let open = MergedWalk::open(self.repository, self.manifest, &order.prefix, b"");
        let hlc = self.manifest.hlc.max(open.map_err(unreadable)?.hlc());
        let begun = join_all(nodes.iter().map(|node| node.begin(id, hlc))).await;
        let begun: Vec<RestoreStanding> = begun.into_iter().collect::<Result<_, _>>()?;
        let positions: Vec<&[u8]> = begun
            .iter()
            .filter_map(|it| it.restore.as_ref())
            .filter(|(_, is_finished, _)| !is_finished)
            .map(|(_, _, position)| position.as_slice())
            .collect();
        let Some(behind) = positions.iter().min().map(|it| it.to_vec()) else {
            return Ok(None);
        };
        if !behind.is_empty() {
            let note = format!("going on {}", show_position(&behind));
            self.console.note(&note);
        }
        let open = nodes.iter().zip(&begun);
        let open = open
            .filter(|(_, it)| it.restore.as_ref().is_none_or(|(_, is_done, _)| !is_done))
            .map(|(node, _)| node);
        Ok(Some((behind, open.collect())))
    }

    /// Sends everything behind `behind` to `members`, and ends the restore.
    async fn round(&mut self, behind: Vec<u8>, members: &[&AdminNode]) -> Result<(), RoundEnd> {
        let (id, order) = (self.id, self.order);
        let walk = MergedWalk::open(self.repository, self.manifest, &order.prefix, &behind);
        let source = PageSource {
            walk: walk.map_err(unreadable)?,
            id,
            behind,
            with_tokens: order.with_tokens,
            counted: std::mem::take(&mut self.counted),
        };
        let pace = order.bytes_per_second;
        let (sent, ended) = sending::send(source, members, pace, self.console).await;
        self.counted = sent.counted;
        self.restored.values += sent.values;
        self.restored.tombstones += sent.tombstones;
        self.restored.bytes += sent.bytes;
        let position = ended?;
        let finished = join_all(self.nodes.iter().map(|node| node.finish(id, &position))).await;
        finished.into_iter().collect::<Result<(), PageRefusal>>()?;
        Ok(())
    }
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
