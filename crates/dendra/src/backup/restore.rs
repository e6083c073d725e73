//! `dendra restore`: a backup into an empty node or cluster.
//!
//! ```text
//! standing of all members ─► begin: their clocks above everything ─► page, page … to each ─► settle ─► raise ─► finish
//!        ▲                                                             │ a member lacks some of it  │         │
//!        └──────── another round, behind the lowest position ──────────┴───────────────────────────┴─────────┘
//! ```
//!
//! Invariants
//! 1. Each member keeps the records that it owns, and says up to where they are durable. It takes
//!    no page after a missing one.
//! 2. The id of a restore follows from backup and prefix: the same command goes on where it was.
//! 3. No record is written before every member was asked and every one is empty, or has this
//!    restore.
//! 4. A member that starts again in the middle ends no restore: the next round sends the records
//!    that it lacks. Rounds without progress are bounded by `STANDSTILLS_MAX`.
//! 5. No member is told to let clients in before every one has settled: has all of its records in
//!    tables, where the others find them.
//! 6. Nor before an epoch of the cluster has raised its least successor number. It is then above
//!    those of all records and of the cluster that was backed up, by a drawn amount. So no
//!    conditional write here gets the version of one there. A command that goes on keeps the number
//!    that is raised.
//! 7. The table of tokens is left out unless it is asked for: a token that was revoked since then
//!    would open again.
//!
//! Not here: how pages are made (`pages.rs`) and travel (`sending.rs`), a node's work on a page
//! (crate `server`).
//! See: docs/format/backup.md, docs/operating.md.

use super::key;
use super::nodes::{
    AdminNode, EpochPatience, NodePlace, PageRefusal, RestoreStanding, missing_members,
};
use super::pages::{PageSource, RestoredPart};
use super::repository::Repository;
use super::sending::{self, RoundEnd, repeat, unreadable};
use crate::access::AccessArgs;
use crate::console::{Console, show_key};
use crate::exit::{Exit, Failure};
use crate::runtime::join_all;
use dendra_archive::manifest::BackupManifest;
use dendra_base::LeastSuccessor;
use std::sync::Arc;

/// Rounds in a row that begin where the one before them began.
const STANDSTILLS_MAX: u32 = 5;

/// The order.
pub(crate) struct RestoreOrder<'a> {
    pub(crate) admin: &'a str,
    pub(crate) access: &'a AccessArgs,
    pub(crate) part: RestoredPart,
    pub(crate) bytes_per_second: Option<u64>,
}

/// The records that a restore wrote, from where it began or went on.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) values: u64,
    pub(crate) tombstones: u64,
    pub(crate) bytes: u64,
    /// The backup has a table of tokens, which the members did not get.
    pub(crate) left_tokens_out: bool,
    /// True when the restore was complete already.
    pub(crate) was_done: bool,
}

/// Members that have not ended the restore.
struct OpenMembers<'a> {
    /// The lowest of their positions.
    behind: Vec<u8>,
    nodes: Vec<&'a AdminNode>,
}

impl<'a> OpenMembers<'a> {
    /// Open members of `nodes`, by their answers to the begin; `None` when all have ended.
    fn of(nodes: &'a [AdminNode], begun: &[RestoreStanding]) -> Option<OpenMembers<'a>> {
        let (mut behind, mut open) = (None, Vec::new());
        for (node, standing) in nodes.iter().zip(begun) {
            let position = match &standing.restore {
                Some((_, true, _)) => continue,
                Some((_, false, position)) => position.as_slice(),
                None => b"",
            };
            behind = Some(behind.map_or(position, |least: &[u8]| least.min(position)));
            open.push(node);
        }
        Some(OpenMembers {
            behind: behind?.to_vec(),
            nodes: open,
        })
    }
}

/// A restore that is under way.
struct Undertaking<'a> {
    repository: &'a Arc<Repository>,
    manifest: &'a BackupManifest,
    nodes: &'a [AdminNode],
    order: &'a RestoreOrder<'a>,
    console: Console,
    id: u128,
    /// The records that all rounds wrote, and up to which key they are counted.
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
        id: order.part.restore_id(&manifest),
        restored: Restored::default(),
        counted: Vec::new(),
    };
    // Where the last round began, and how many began there.
    let mut began: (Option<Vec<u8>>, u32) = (None, 0);
    loop {
        let Some(open) = undertaking.begin().await? else {
            // After the first round it was this command that had finished it.
            undertaking.restored.was_done = began.0.is_none();
            return Ok(undertaking.restored);
        };
        began = match began {
            (Some(last), count) if last == open.behind => (Some(last), count + 1),
            _ => (Some(open.behind.clone()), 1),
        };
        nodes.iter().for_each(AdminNode::await_restarts);
        match undertaking.round(&open).await {
            Ok(()) => return Ok(undertaking.restored),
            Err(RoundEnd::Failed(failure)) => return Err(failure),
            Err(RoundEnd::Behind(failure)) if began.1 >= STANDSTILLS_MAX => {
                let (rounds, at) = (began.1, show_position(&open.behind));
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
    if behind.is_empty() {
        "at the first key".to_owned()
    } else {
        format!("behind {}", show_key(behind))
    }
}

impl<'a> Undertaking<'a> {
    /// Asks all members where they stand, and begins or goes on. `None` when all have ended.
    async fn begin(&self) -> Result<Option<OpenMembers<'a>>, Failure> {
        let (id, nodes) = (self.id, self.nodes);
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
        let hlc = self.pages(b"", Vec::new()).map_err(unreadable)?.hlc();
        let begun = join_all(nodes.iter().map(|node| node.begin(id, hlc))).await;
        let begun: Vec<RestoreStanding> = begun.into_iter().collect::<Result<_, _>>()?;
        let Some(open) = OpenMembers::of(nodes, &begun) else {
            return Ok(None);
        };
        if !open.behind.is_empty() {
            let note = format!("going on {}", show_position(&open.behind));
            self.console.note(&note);
        }
        Ok(Some(open))
    }

    /// The pages after the key `behind`.
    fn pages(&self, behind: &[u8], counted: Vec<u8>) -> Result<PageSource, String> {
        let part = &self.order.part;
        PageSource::open(self.repository, self.manifest, part, behind, counted)
    }

    /// Sends everything that they lack to the members that are open, and ends the restore.
    async fn round(&mut self, open: &OpenMembers<'_>) -> Result<(), RoundEnd> {
        let counted = std::mem::take(&mut self.counted);
        let source = self.pages(&open.behind, counted).map_err(unreadable)?;
        let pace = self.order.bytes_per_second;
        let (sent, ended) = sending::send(source, &open.nodes, pace, self.console).await;
        self.counted = sent.counted;
        self.restored.values += sent.values;
        self.restored.tombstones += sent.tombstones;
        self.restored.bytes += sent.bytes;
        let source_at_end = ended?;
        self.restored.left_tokens_out = source_at_end.left_tokens_out;
        self.end(open, &source_at_end.position).await?;
        Ok(())
    }

    /// Lets clients in, once every member has settled.
    async fn end(&self, open: &OpenMembers<'_>, position: &[u8]) -> Result<(), PageRefusal> {
        let id = self.id;
        let settled = join_all(open.nodes.iter().map(|node| node.settle(id, position)));
        settled.await.into_iter().collect::<Result<(), _>>()?;
        let least = self.raise(open).await?;
        let ended = join_all(
            open.nodes
                .iter()
                .map(|node| node.finish(id, position, least)),
        );
        ended.await.into_iter().collect()
    }

    /// The least successor number of the cluster, raised unless it is; `None` for a node by itself.
    /// A run of this command before may have raised it.
    ///
    /// Requires: all members have settled, so that each tells the numbers of all its records.
    async fn raise(&self, open: &OpenMembers<'_>) -> Result<Option<LeastSuccessor>, PageRefusal> {
        for _ in 0..STANDSTILLS_MAX {
            let standings = join_all(self.nodes.iter().map(AdminNode::standing)).await;
            let standings: Result<Vec<RestoreStanding>, Failure> = standings.into_iter().collect();
            let standings = standings.map_err(PageRefusal::Failed)?;
            let known = standings.iter().map(|it| it.successors);
            let Some(numbers) = known.collect::<Option<Vec<u32>>>() else {
                return Ok(None);
            };
            let of_backup = self.manifest.cluster.as_ref().map(|it| it.least_successor);
            let largest = numbers.into_iter().chain(of_backup).max().unwrap_or(0);
            let places = standings.iter().filter_map(|it| it.place.cluster.as_ref());
            let least = places.map(|cluster| cluster.least_successor).max();
            let least = LeastSuccessor::new(least.unwrap_or(0)).unwrap_or(LeastSuccessor::MAX);
            if least.is_behind(largest) {
                return Ok(Some(least));
            }
            if least == LeastSuccessor::MAX {
                self.console.note(&format!(
                    "records of this backup have successor numbers up to {largest}, and a cluster \
                     cannot begin above them: let no client use an ETag of before"
                ));
                return Ok(Some(least));
            }
            let chance = u32::from_le_bytes(key::random().map_err(PageRefusal::Failed)?);
            let wanted = LeastSuccessor::behind(largest, chance % LeastSuccessor::CHANCES);
            let Some(node) = open.nodes.first() else {
                return Ok(None);
            };
            // Each member ends once it knows that epoch. Refused: another command raised it.
            if node.raise(self.id, wanted).await? {
                return Ok(Some(wanted));
            }
        }
        let sentence = "the cluster's least successor number was not raised; repeat the command";
        Err(PageRefusal::Failed(Failure::new(
            Exit::FAILURE,
            sentence.to_owned(),
        )))
    }
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
                    "{url} holds records, tombstones of some, or tokens: a restore needs empty folders, and tokens are made behind it"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
