//! The node's notes at a start: is this the folder of this member, and which start is it?
//!
//! ```text
//! engine is open ─► read "self", "epoch/…", "vote" ─► go on, or exit 3 ─► write "self", durable ─► FolderHome
//!   no epoch    --cluster founds one, --join asks a member for one (`peers/join.rs`)
//!   an epoch    the folder knows its cluster; a list of `--cluster` is not looked at
//! ```
//!
//! Invariants
//! 1. The raised number of starts is in the log before a socket is opened, as durable as the
//!    settings make any write. No peer is told a number that could come back.
//! 2. A node without a cluster writes nothing.
//!
//! Not here: the rules and the bytes (crate `node`), notes of a running node (`peers/notes.rs`).
//! See: docs/format/notes.md.

use crate::disk::versions::VersionClock;
use crate::settings::ClusterSettings;
use dendra_base::{CellRef, ClusterVersion, ClusterVersions, Key, Kind, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Error, Flow, Guard, Lookup, Progress, Show, WriteOutcome,
};
use dendra_node::Topology;
use dendra_node::limits::{EPOCH_PAGE_RECORDS_MAX, HISTORY_ENTRIES_MAX};
use dendra_node::membership::identity::{
    self, FolderContent, FolderMembership, LOSSES_KEY, OWN_KEY, OwnNote, Peer, THROTTLE_KEY,
    VOTE_KEY,
};
use dendra_node::ring::table::MemberId;
use dendra_node::steward::face::AcceptedLoss;
use dendra_node::steward::messages::ThrottleOrder;
use dendra_node::topology::chain::VoteNote;
use dendra_node::topology::record::{BadRecord, EpochRecord};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;

/// Bits of a clock value below its milliseconds.
const HLC_COUNTER_BITS: u32 = 16;

/// How much of the folder is looked at per step when asking whether it holds a record.
const LOOK_BYTES: usize = 64 << 10;

/// Why a node cannot start on its folder: a sentence.
type NoteFault = String;

/// The state of a folder at a start.
#[derive(Debug)]
pub(crate) enum FolderHome {
    /// Of a node by itself, with its address or without: the number of starts.
    Alone(u64),
    /// Of a member of a cluster.
    Member(Box<FolderMember>),
    /// Empty, of a process that wants to become a member.
    Joins,
}

/// The records of a member's folder at a start.
#[derive(Debug)]
pub(crate) struct FolderMember {
    /// Which start this is.
    pub(crate) boot: u64,
    /// The member's number.
    pub(crate) id: MemberId,
    /// The topology that the cluster was founded with, in a line, or its digest.
    pub(crate) founding: String,
    /// Epochs that are known here, the newest last, and when each was learnt.
    pub(crate) records: Vec<(EpochRecord, u64)>,
    /// The newest epoch that the folder has taken part in.
    pub(crate) fence: u64,
    /// The last vote.
    pub(crate) vote: Option<VoteNote>,
    /// How fast members load, as an operator ordered last.
    pub(crate) throttle: Option<ThrottleOrder>,
    /// Losses that operators accepted at this member, the oldest first.
    pub(crate) losses: Vec<AcceptedLoss>,
}

/// Checks that the folder is the one of this member, and counts the start.
pub(crate) fn start(
    engine: &Engine,
    versions: &VersionClock,
    cluster: Option<&ClusterSettings>,
    wall_ms: u64,
) -> Result<FolderHome, NoteFault> {
    let key = own_key();
    let remembered = read(engine, &key)?;
    let Some(cluster) = cluster else {
        return OwnNote::start_alone(remembered.as_ref())
            .map(|()| FolderHome::Alone(0))
            .map_err(|stranger| stranger.to_string());
    };
    let node = engine.identity().node;
    let fence = remembered.as_ref().map_or(0, |own| own.home.fence);
    let records = epochs(engine, fence)?;
    let vote = vote(engine)?;
    check_version(&records, vote.as_ref())?;
    if let (Some(own), Some((newest, _))) = (&remembered, records.last()) {
        let name = cluster.is_named.then(|| cluster.topology.name());
        let url = Some(cluster.member().url.as_str());
        let (own, id) = own
            .resume(node, newest, name, url)
            .map_err(|stranger| stranger.to_string())?;
        say_what_is_known(cluster, newest, id);
        let (fence, epoch) = (own.home.fence, newest.epoch());
        if epoch < fence {
            tracing::error!(
                epoch,
                fence,
                "the newest epochs that this folder has taken part in cannot be read: it serves once it has learnt them from \
                 the other members; if it does not within a minute, replace the member (dendra serve --join … --replace …), \
                 or, where it is the only one, give the order dendra cluster accept-loss"
            );
        }
        write(engine, versions, &key, &own, wall_ms)?;
        return Ok(FolderHome::Member(Box::new(FolderMember {
            boot: own.boot,
            id,
            founding: own.home.topology,
            fence: own.home.fence,
            vote,
            throttle: throttle(engine)?,
            losses: losses(engine)?,
            records,
        })));
    }
    if let Some(own) = remembered.as_ref().filter(|own| own.home.fence > 1) {
        return Err(format!(
            "no record of an epoch of the cluster {} can be read any more, and the folder has taken part in epoch {}: replace \
             the member (dendra serve --join … --self {} --replace {}, on an empty folder)",
            own.home.cluster, own.home.fence, own.home.url, own.home.url
        ));
    }
    let content = content(engine).map_err(|error| error.to_string())?;
    if let Some(join) = &cluster.join {
        return match (remembered, content) {
            (None, FolderContent::Empty) => Ok(FolderHome::Joins),
            (None, FolderContent::Records) => Err(format!(
                "the folder holds records of a node without a cluster, which the members of the cluster at {} would not find: \
                 join with an empty folder, and load the records through the cluster (dendra scan | dendra load)",
                join.host
            )),
            (Some(own), _) => Err(format!(
                "the folder is that of {}, which ran before and knows no epoch of a cluster: start it as before, or join \
                 with an empty folder, and load the records through the cluster (dendra scan | dendra load)",
                own.home.url
            )),
        };
    }
    let own = OwnNote::start(
        remembered.as_ref(),
        node,
        &cluster.topology,
        cluster.me,
        content,
    )
    .map_err(|stranger| stranger.to_string())?;
    if cluster.is_single {
        write(engine, versions, &key, &own, wall_ms)?;
        return Ok(FolderHome::Alone(own.boot));
    }
    say_what_is_founded(&cluster.topology);
    let newest = ClusterVersions::OWN.newest;
    let first = EpochRecord::founded(&cluster.topology).in_version(newest);
    let id = MemberId(u32::from(cluster.me.0));
    keep(engine, versions, own, id, first, wall_ms)
}

/// A cluster with fewer members than copies is possible, and perhaps not meant.
fn say_what_is_founded(topology: &Topology) {
    let (asked, copies) = (topology.replication_factor(), topology.copies());
    if copies < asked {
        tracing::warn!(
            replication_factor = asked,
            copies,
            "the cluster that is founded here has fewer members than --replication-factor says: so many copies a record has, \
             until there are more members"
        );
    }
}

/// Notes that the folder is the member `id` of the cluster with this epoch, which it joins.
pub(crate) fn joined(
    engine: &Engine,
    versions: &VersionClock,
    (id, record): (MemberId, EpochRecord),
    founding: String,
    wall_ms: u64,
) -> Result<FolderHome, NoteFault> {
    let url = record.member(id).map(|member| member.place.url.clone());
    check_version(std::slice::from_ref(&(record.clone(), wall_ms)), None)?;
    let own = OwnNote {
        node: engine.identity().node,
        boot: 1,
        home: FolderMembership {
            cluster: record.name().to_owned(),
            url: url.ok_or("the epoch that it was told does not name it")?,
            fence: record.epoch(),
            topology: founding,
        },
    };
    keep(engine, versions, own, id, record, wall_ms)
}

/// The epoch is durable before the own record: a folder with the second one knows the first.
fn keep(
    engine: &Engine,
    versions: &VersionClock,
    own: OwnNote,
    id: MemberId,
    record: EpochRecord,
    wall_ms: u64,
) -> Result<FolderHome, NoteFault> {
    let key = epoch_key(record.epoch());
    let version = versions.next(engine, wall_ms);
    put(engine, &key, version, &record.encode(), wall_ms)
        .map_err(|reason| format!("the epoch could not be noted: {reason}"))?;
    write(engine, versions, &own_key(), &own, wall_ms)?;
    Ok(FolderHome::Member(Box::new(FolderMember {
        boot: own.boot,
        id,
        founding: own.home.topology,
        fence: own.home.fence,
        records: vec![(record, wall_ms)],
        // In a folder with damaged epochs.
        vote: vote(engine)?,
        throttle: throttle(engine)?,
        losses: losses(engine)?,
    })))
}

/// Does this release know the version in force, and the one that is being chosen?
fn check_version(records: &[(EpochRecord, u64)], vote: Option<&VoteNote>) -> Result<(), NoteFault> {
    let accepted = vote.and_then(|vote| vote.accepted.as_ref());
    let accepted = accepted.map(|it| &*it.record);
    let newest = records.last().map(|(record, _)| record);
    for record in newest.into_iter().chain(accepted) {
        let (version, known) = (record.in_force(), ClusterVersions::OWN);
        if version > known.newest {
            return Err(outdated(record.name(), version));
        }
        if version < known.oldest {
            return Err(format!(
                "version {version} of the cluster {} is in force, and this release knows {known}: start all members with the \
                 release before it, run dendra cluster finalize, and go on from there",
                record.name()
            ));
        }
    }
    Ok(())
}

/// Why a process cannot be a member: a sentence.
pub(crate) fn outdated(cluster: &str, version: ClusterVersion) -> NoteFault {
    format!(
        "version {version} of the cluster {cluster} is in force, and this release ({}) knows {}: start this member with a \
         release that knows it. The folder is good, and older releases cannot use it any more",
        env!("CARGO_PKG_VERSION"),
        ClusterVersions::OWN
    )
}

/// The list of `--cluster` only founds a cluster, and `--join` is for an empty folder.
fn say_what_is_known(cluster: &ClusterSettings, newest: &EpochRecord, id: MemberId) {
    if cluster.join.is_some() {
        tracing::info!(
            member = %id,
            cluster = newest.name(),
            epoch = newest.epoch(),
            "the folder is a member's already: --join is not looked at"
        );
    }
    let mut listed: Vec<&str> = cluster.topology.members().iter().map(|m| &*m.url).collect();
    let mut known: Vec<&str> = newest.members().iter().map(|m| &*m.place.url).collect();
    listed.sort_unstable();
    known.sort_unstable();
    known.dedup();
    if listed != known && listed.len() > 1 {
        tracing::info!(
            epoch = newest.epoch(),
            members = known.join(","),
            "the folder knows an epoch with other members than the list of --cluster, which only founds a cluster: it goes on \
             with that epoch"
        );
    }
}

/// Where the record of an epoch is.
pub(crate) fn epoch_key(epoch: u64) -> Key {
    Key::new(Space::Meta, &identity::epoch_key(epoch))
}

/// Where the own note is.
pub(crate) fn own_key() -> Key {
    Key::new(Space::Meta, OWN_KEY)
}

/// Where the vote for the next epoch is.
pub(crate) fn vote_key() -> Key {
    Key::new(Space::Meta, VOTE_KEY)
}

/// The newest epochs of the folder that can be read, the newest last. Those after them are learnt
/// anew from the other members. `fence` was the newest at the start before this one.
fn epochs(engine: &Engine, fence: u64) -> Result<Vec<(EpochRecord, u64)>, NoteFault> {
    let first = fence.saturating_sub(HISTORY_ENTRIES_MAX as u64);
    let end = fence + HISTORY_ENTRIES_MAX as u64;
    let bounds = (usize::MAX, HISTORY_ENTRIES_MAX);
    let (found, is_damaged) = epochs_around_damage(engine, first, bounds, end)?;
    if is_damaged {
        say_damaged();
    }
    Ok(found.into())
}

/// Epochs from `first` on for another member, as many as one page has; `known` is the newest here.
/// A page of the engine may touch a damaged block after the last of them. The repair of that block
/// may wait for the very plan that the other member votes for once it knows these epochs.
pub(crate) fn epochs_to_send(
    engine: &Engine,
    first: u64,
    known: u64,
) -> Result<VecDeque<(EpochRecord, u64)>, NoteFault> {
    let most = EPOCH_PAGE_RECORDS_MAX;
    let (found, _) = epochs_around_damage(engine, first, (most, most), known + 1)?;
    Ok(found)
}

/// Epochs from `from` on that can be read: the first `most`, and of these about the last `kept`. Is
/// a block damaged that may hold some? Where none after it can be read, each one in front of `end`
/// is tried.
fn epochs_around_damage(
    engine: &Engine,
    mut from: u64,
    (most, kept): (usize, usize),
    end: u64,
) -> Result<(VecDeque<(EpochRecord, u64)>, bool), NoteFault> {
    let mut found = VecDeque::new();
    let mut is_damaged = false;
    while found.len() < most {
        let bounds = (most - found.len(), kept);
        match read_epochs(engine, &mut from, bounds, &mut found) {
            Ok(()) => break,
            Err(EpochsUnread::Store(Error::Damaged { .. })) => {
                is_damaged = true;
                let behind = behind_damage(engine, from)?;
                // A newer table may hold records between the first and the last key of the block.
                // Behind the newest one the next epoch that can be read may be any number.
                let tried = end.max(from.saturating_add(HISTORY_ENTRIES_MAX as u64));
                let last = behind.map_or(end, |behind| behind.min(tried));
                for epoch in from..last {
                    found.extend(one_epoch(engine, epoch)?);
                }
                let Some(behind) = behind else { break };
                from = behind;
            }
            Err(other) => return Err(other.to_string()),
        }
    }
    found.truncate(most);
    Ok((found, is_damaged))
}

/// The first epoch from which on the folder can be read again, where the block with epoch `damaged`
/// cannot; `None` = no later one. Old steps of the horizons are dropped, so that the next record
/// may be far away. The stride doubles until a read succeeds. Then the end of the block is searched
/// by halves.
fn behind_damage(engine: &Engine, damaged: u64) -> Result<Option<u64>, NoteFault> {
    let is_readable = |from: u64| {
        let mut from = from;
        match read_epochs(engine, &mut from, (1, 1), &mut VecDeque::new()) {
            Ok(()) => Ok(true),
            Err(EpochsUnread::Store(Error::Damaged { .. })) => Ok(false),
            Err(other) => Err(other.to_string()),
        }
    };
    let (mut low, mut stride) = (damaged, 1u64);
    let mut high = loop {
        let Some(next) = damaged.checked_add(stride) else {
            return Ok(None);
        };
        if is_readable(next)? {
            break next;
        }
        low = next;
        let Some(twice) = stride.checked_mul(2) else {
            return Ok(None);
        };
        stride = twice;
    };
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if is_readable(middle)? {
            high = middle
        } else {
            low = middle
        }
    }
    Ok(Some(high))
}

/// The record of one epoch, if it is there and can be read.
fn one_epoch(engine: &Engine, epoch: u64) -> Result<Option<(EpochRecord, u64)>, NoteFault> {
    let key = epoch_key(epoch);
    let read = engine.get(key.as_stored(), Wait::Block, |cell| {
        let record = read_epoch(key.as_stored(), &cell)?;
        Ok(record.map(|record| (record, cell.version.hlc >> HLC_COUNTER_BITS)))
    });
    match read {
        Ok(Lookup::Cell(found)) => found,
        Ok(Lookup::Nothing) | Err(Error::Damaged { .. }) => Ok(None),
        Ok(Lookup::WouldBlock) => unreachable!("a read that may wait does not give up"),
        Err(other) => Err(other.to_string()),
    }
}

/// Why the epochs of a folder could not be read.
#[derive(Debug)]
enum EpochsUnread {
    /// The engine says so.
    Store(Error),
    /// One of them has the format of a later release: the sentence.
    LaterRelease(String),
}

impl fmt::Display for EpochsUnread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsUnread::Store(error) => error.fmt(f),
            EpochsUnread::LaterRelease(sentence) => f.write_str(sentence),
        }
    }
}

/// The record of an epoch; `None` where it is damaged, or was dropped.
///
/// # Errors
/// The sentence about a format of a later release.
fn read_epoch(key: &[u8], cell: &CellRef<'_>) -> Result<Option<EpochRecord>, String> {
    if cell.kind == Kind::Tombstone {
        return Ok(None);
    }
    let record = cell.is_intact(key).then(|| EpochRecord::decode(cell.value));
    match record {
        Some(Ok(record)) => Ok(Some(record)),
        Some(Err(bad @ BadRecord::Format { .. })) => Err(bad.to_string()),
        Some(Err(_)) | None => {
            say_damaged();
            Ok(None)
        }
    }
}

fn say_damaged() {
    tracing::error!(
        "records of epochs are damaged: those behind the newest one that can be read are learnt \
         anew from the other members"
    );
}

/// Reads epochs from `from` on, at most `most` of them, and keeps the last `kept`. `from` moves
/// after each one that was read, also when a later one cannot be.
fn read_epochs(
    engine: &Engine,
    from: &mut u64,
    (most, kept): (usize, usize),
    found: &mut VecDeque<(EpochRecord, u64)>,
) -> Result<(), EpochsUnread> {
    let mut after = identity::EPOCH_PREFIX.to_vec();
    if let Some(last) = after.last_mut() {
        *last += 1;
    }
    let mut cursor = Cursor::new(
        Bound::Included(epoch_key(*from).as_stored().to_vec()),
        Bound::Excluded(Key::new(Space::Meta, &after).as_stored().to_vec()),
        Direction::Forward,
        Show::All,
    );
    let mut seen = 0;
    let mut later = None;
    let mut progress = Progress::More;
    while progress == Progress::More && seen < most {
        let look = |key: &[u8], cell: CellRef<'_>| {
            seen += 1;
            if let Some(epoch) = key.last_chunk() {
                *from = u64::from_be_bytes(*epoch).saturating_add(1);
            }
            match read_epoch(key, &cell) {
                Ok(Some(record)) => {
                    while found.len() >= kept {
                        found.pop_front();
                    }
                    found.push_back((record, cell.version.hlc >> HLC_COUNTER_BITS));
                }
                Ok(None) => {}
                Err(sentence) => {
                    later = Some(sentence);
                    return Flow::Pause;
                }
            }
            if seen < most {
                Flow::Continue
            } else {
                Flow::Pause
            }
        };
        progress = engine
            .scan(&mut cursor, LOOK_BYTES, look)
            .map_err(EpochsUnread::Store)?;
        if let Some(sentence) = later.take() {
            return Err(EpochsUnread::LaterRelease(sentence));
        }
    }
    Ok(())
}

/// The vote for the next epoch.
fn vote(engine: &Engine) -> Result<Option<VoteNote>, NoteFault> {
    let decode = |cell: &CellRef<'_>| Some(VoteNote::decode(cell.value));
    match find(engine, &vote_key(), decode).map_err(|error| error.to_string())? {
        FoundNote::Read(Ok(vote)) => Ok(Some(vote)),
        FoundNote::Read(Err(bad @ BadRecord::Format { .. })) => Err(bad.to_string()),
        FoundNote::Read(Err(_)) | FoundNote::Unreadable => Err(
            "the vote of this member for the next epoch is damaged, and a member must not forget a vote: \
             replace the member (dendra serve --join … --replace …)"
                .to_owned(),
        ),
        FoundNote::Absent => Ok(None),
    }
}

/// Where the last order to load slower or faster is.
pub(crate) fn throttle_key() -> Key {
    Key::new(Space::Meta, THROTTLE_KEY)
}

/// How fast members load, as an operator ordered last. An order that is damaged is none: the others
/// tell theirs.
fn throttle(engine: &Engine) -> Result<Option<ThrottleOrder>, NoteFault> {
    read_if_intact(engine, &throttle_key(), ThrottleOrder::decode)
}

/// Where accepted losses are.
pub(crate) fn losses_key() -> Key {
    Key::new(Space::Meta, LOSSES_KEY)
}

/// The losses that operators accepted here. Of a note that is damaged, or of a later release, none:
/// the order is given again.
fn losses(engine: &Engine) -> Result<Vec<AcceptedLoss>, NoteFault> {
    let found = read_if_intact(engine, &losses_key(), AcceptedLoss::decode_all)?;
    Ok(found.unwrap_or_default())
}

/// A note as the folder has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundNote<T> {
    Absent,
    /// Its bytes are damaged, or another release wrote them.
    Unreadable,
    Read(T),
}

/// Reads the note `key`; `decode` says `None` of bytes that it does not know.
pub(crate) fn find<T>(
    engine: &Engine,
    key: &Key,
    decode: impl FnOnce(&CellRef<'_>) -> Option<T>,
) -> Result<FoundNote<T>, Error> {
    let read = engine.get(key.as_stored(), Wait::Block, |cell| {
        let is_intact = cell.is_intact(key.as_stored());
        if is_intact { decode(&cell) } else { None }
    });
    Ok(match read? {
        Lookup::Cell(Some(note)) => FoundNote::Read(note),
        Lookup::Cell(None) => FoundNote::Unreadable,
        Lookup::Nothing => FoundNote::Absent,
        Lookup::WouldBlock => unreachable!("a read that may wait does not give up"),
    })
}

/// The note `key`; `None` if it is not there, is damaged, or `decode` does not know its form.
fn read_if_intact<T>(
    engine: &Engine,
    key: &Key,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, NoteFault> {
    match find(engine, key, |cell| decode(cell.value)) {
        Ok(FoundNote::Read(note)) => Ok(Some(note)),
        Ok(FoundNote::Absent | FoundNote::Unreadable) | Err(Error::Damaged { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The number of the last start that is in the folder; 0 if there is none.
pub(crate) fn starts(engine: &Engine) -> Result<u64, NoteFault> {
    let remembered = read(engine, &own_key())?;
    Ok(remembered.map_or(0, |own| own.boot))
}

/// The note about the member with this number, which is at `url`.
pub(crate) fn peer(engine: &Engine, id: MemberId, url: &str) -> Result<Option<Peer>, NoteFault> {
    let keys = [
        peer_key(id),
        Key::new(Space::Meta, &identity::peer_key_of_url(url)),
    ];
    for key in keys {
        let found = find(engine, &key, |cell| Peer::decode(cell.value));
        match found.map_err(|error| error.to_string())? {
            FoundNote::Read(peer) => return Ok(Some(peer)),
            FoundNote::Unreadable => {
                return Err(format!(
                    "the note about {url} is damaged or of another release; run `dendra check` on the \
                     folder and restore it from a copy"
                ));
            }
            FoundNote::Absent => {}
        }
    }
    Ok(None)
}

/// Where that note is.
pub(crate) fn peer_key(id: MemberId) -> Key {
    Key::new(Space::Meta, &identity::peer_key(id))
}

fn read(engine: &Engine, key: &Key) -> Result<Option<OwnNote>, NoteFault> {
    let found = find(engine, key, |cell| OwnNote::decode(cell.value));
    match found.map_err(|error| error.to_string())? {
        FoundNote::Read(own) => Ok(Some(own)),
        FoundNote::Unreadable => Err(
            "the node's notes are damaged or of another release; run `dendra check` on the folder and restore it from a copy"
                .to_owned(),
        ),
        FoundNote::Absent => Ok(None),
    }
}

/// Does the folder hold anything of clients, tombstones included?
fn content(engine: &Engine) -> Result<FolderContent, Error> {
    let mut cursor = Cursor::new(
        Bound::Included(vec![Space::User.byte()]),
        Bound::Excluded(vec![Space::User.byte() + 1]),
        Direction::Forward,
        Show::All,
    );
    let mut content = FolderContent::Empty;
    engine.scan(&mut cursor, LOOK_BYTES, |_, _| {
        content = FolderContent::Records;
        Flow::Pause
    })?;
    Ok(content)
}

fn write(
    engine: &Engine,
    versions: &VersionClock,
    key: &Key,
    own: &OwnNote,
    wall_ms: u64,
) -> Result<(), NoteFault> {
    let version = versions.next(engine, wall_ms);
    put(engine, key, version, &own.encode(), wall_ms)
        .map_err(|reason| format!("the start could not be noted: {reason}"))
}

/// Makes one note durable, here and now. Requires: no other thread commits.
pub(crate) fn put(
    engine: &Engine,
    key: &Key,
    version: Version,
    bytes: &[u8],
    wall_ms: u64,
) -> Result<(), String> {
    let cell = CellRef::value(key.as_stored(), version, bytes);
    let mut batch = Batch::new();
    batch
        .push(0, key.as_stored(), &cell, Guard::Newest, wall_ms)
        .map_err(|refused| refused.to_string())?;
    engine
        .submit(&mut batch)
        .map_err(|refused| refused.to_string())?;
    let mut done = Vec::new();
    engine
        .commit(&mut done)
        .map_err(|error| error.to_string())?;
    match done.last() {
        Some((0, WriteOutcome::Applied { .. })) => Ok(()),
        Some((0, WriteOutcome::NoRoom)) => Err("the disk is full; make room".to_owned()),
        other => Err(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Member, Topology};
    use dendra_base::Prng;
    use dendra_engine::vfs::mem::MemVfs;
    use dendra_engine::{Identity, Options};
    use std::sync::Arc;

    const WALL_MS: u64 = 1_700_000_000_000;

    fn opened(vfs: &MemVfs) -> (Engine, VersionClock) {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        let engine =
            Engine::open(Arc::new(vfs.clone()), options, identity, WALL_MS).expect("it opens");
        let versions = VersionClock::above(&engine, None, WALL_MS);
        (engine, versions)
    }

    fn cluster(me: &str) -> ClusterSettings {
        let members = ["h1:1", "h2:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), 3).expect("two members");
        ClusterSettings::new(topology, me).expect("a member")
    }

    fn start_of(vfs: &MemVfs, cluster: Option<&ClusterSettings>) -> Result<u64, NoteFault> {
        let (engine, versions) = opened(vfs);
        starts_of(start(&engine, &versions, cluster, WALL_MS)?)
    }

    fn starts_of(home: FolderHome) -> Result<u64, NoteFault> {
        match home {
            FolderHome::Alone(starts) => Ok(starts),
            FolderHome::Member(member) => Ok(member.boot),
            FolderHome::Joins => Err("it joins".to_owned()),
        }
    }

    #[test]
    fn every_start_has_a_higher_number_also_after_a_power_cut() {
        let mut vfs = MemVfs::new();
        let mut prng = Prng::new(1);
        let me = cluster("h1:1");
        for number in 1..=3 {
            assert_eq!(start_of(&vfs, Some(&me)), Ok(number));
            vfs = vfs.crash_image(&mut prng);
        }
        let refused = start_of(&vfs, Some(&cluster("h2:1"))).expect_err("another member");
        assert!(refused.contains("belongs to http://h1:1"), "{refused}");
        let refused = start_of(&vfs, None).expect_err("it has a home");
        assert!(refused.contains("no cluster is named"), "{refused}");
        assert_eq!(start_of(&vfs, Some(&me)), Ok(4));
    }

    #[test]
    fn a_folder_with_records_of_a_node_by_itself_is_no_member() {
        let vfs = MemVfs::new();
        {
            let (engine, versions) = opened(&vfs);
            let home = start(&engine, &versions, None, WALL_MS).expect("it starts");
            assert_eq!(starts_of(home), Ok(0));
            let key = Key::user(b"k");
            let version = versions.next(&engine, WALL_MS);
            let cell = CellRef::value(key.as_stored(), version, b"v");
            let mut batch = Batch::new();
            batch
                .push(0, key.as_stored(), &cell, Guard::Newest, WALL_MS)
                .expect("the record fits");
            engine.submit(&mut batch).expect("there is room");
            engine.commit(&mut Vec::new()).expect("it is written");
        }
        let refused = start_of(&vfs, Some(&cluster("h1:1"))).expect_err("it has records");
        assert!(refused.contains("holds records"), "{refused}");
        assert_eq!(start_of(&vfs, None), Ok(0));
    }

    #[test]
    fn epochs_are_sent_from_a_folder_with_a_damaged_block_of_clients() {
        let vfs = MemVfs::new();
        {
            let (engine, versions) = opened(&vfs);
            start(&engine, &versions, Some(&cluster("h1:1")), WALL_MS).expect("it starts");
            engine.close(WALL_MS).expect("the notes are in a table");
            let key = Key::user(b"k");
            let version = versions.next(&engine, WALL_MS);
            put(&engine, &key, version, b"v", WALL_MS).expect("it is written");
            engine.close(WALL_MS).expect("the record is in another one");
        }
        let tables = vfs
            .names()
            .into_iter()
            .filter(|name| name.ends_with(".tbl"));
        let of_clients = tables.max().expect("two tables");
        vfs.flip_bit(&of_clients, 8 * 4);
        let (engine, _) = opened(&vfs);
        let page = read_epochs(&engine, &mut 0, (8, 8), &mut VecDeque::new());
        assert!(matches!(
            page,
            Err(EpochsUnread::Store(Error::Damaged { .. }))
        ));
        let sent = epochs_to_send(&engine, 0, 1).expect("the notes are whole");
        let epochs: Vec<u64> = sent.iter().map(|(record, _)| record.epoch()).collect();
        assert_eq!(epochs, [1]);
    }

    #[test]
    fn notes_that_nobody_understands_are_no_new_folder() {
        let vfs = MemVfs::new();
        {
            let (engine, versions) = opened(&vfs);
            let key = Key::new(Space::Meta, OWN_KEY);
            let version = versions.next(&engine, WALL_MS);
            let cell = CellRef::value(key.as_stored(), version, b"\x02later");
            let mut batch = Batch::new();
            batch
                .push(0, key.as_stored(), &cell, Guard::Newest, WALL_MS)
                .expect("the record fits");
            engine.submit(&mut batch).expect("there is room");
            engine.commit(&mut Vec::new()).expect("it is written");
        }
        let refused = start_of(&vfs, Some(&cluster("h1:1"))).expect_err("another release");
        assert!(refused.contains("another release"), "{refused}");
    }
}
