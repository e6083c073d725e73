//! The node's notes at a start: is this the folder of this member, and which start is it?
//!
//! ```text
//! engine is open ─► read "self", "epoch/…", "vote" ─► go on, or exit 3 ─► write "self", durable ─► FolderHome
//!   no epoch    --cluster founds one, --join asks a member for one (`member/join.rs`)
//!   an epoch    the folder knows its cluster; a list of `--cluster` is not looked at
//! ```
//!
//! Invariants
//! 1. The raised number of starts is in the log before a socket is opened, as durable as the
//!    settings make any write. No peer is told a number that could come back.
//! 2. A node without a cluster writes nothing.
//!
//! Not here: the rules and the bytes (crate `ownership`), records of epochs (`epochs.rs`), notes of
//! a running node (`peers/notes.rs`).
//! See: docs/format/notes.md.

use crate::disk::epochs;
use crate::disk::versions::VersionClock;
use crate::settings::ClusterSettings;
use dendra_base::{CellRef, ClusterVersion, ClusterVersions, Key, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Error, Flow, Guard, Lookup, Show, WriteOutcome,
};
use dendra_ownership::Topology;
use dendra_ownership::epoch::chain::VoteNote;
use dendra_ownership::epoch::record::{BadRecord, EpochRecord};
use dendra_ownership::membership::identity::{
    self, FolderContent, FolderMembership, LOSSES_KEY, OWN_KEY, OwnNote, Peer, THROTTLE_KEY,
    VOTE_KEY,
};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::AcceptedLoss;
use dendra_ownership::steward::messages::ThrottleOrder;
use std::ops::Bound;

/// Why a node cannot start on its folder: a sentence.
type NoteFault = String;

/// The state of a folder at a start.
#[derive(Debug)]
pub(crate) enum FolderHome {
    /// Note of a node by itself, with its address or without: the number of starts.
    Alone(u64),
    /// Note of a member of a cluster.
    Member(Box<FolderMember>),
    /// Empty, of a process that wants to become a member.
    Joins,
}

/// The records of a member's folder at a start.
#[derive(Debug)]
pub(crate) struct FolderMember {
    /// Which start this is.
    pub(crate) boot: u64,
    /// A member refused the folder at an earlier start.
    pub(crate) is_doubted: bool,
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

/// Checks that the folder is the one of this member, and counts the start, unless another member
/// refused the folder at an earlier one.
pub(crate) fn start(
    engine: &Engine,
    versions: &VersionClock,
    cluster: Option<&ClusterSettings>,
    is_doubted: bool,
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
    let records = epochs::newest(engine, fence).map_err(|unread| unread.to_string())?;
    let vote = vote(engine)?;
    check_version(&records, vote.as_ref())?;
    if let (Some(own), Some((newest, _))) = (&remembered, records.last()) {
        let name = cluster.is_named.then(|| cluster.topology.name());
        let url = Some(cluster.member().url.as_str());
        let (own, id) = own
            .resume(node, newest, name, url)
            .map_err(|stranger| stranger.to_string())?;
        let own = if is_doubted { own.not_counted() } else { own };
        say_what_is_known(cluster, newest, id);
        let (own_fence, epoch) = (own.home.fence, newest.epoch());
        if epoch < own_fence {
            tracing::error!(
                epoch,
                fence = own_fence,
                "the newest epochs that this folder has taken part in cannot be read: it serves once it has learnt them from \
                 the other members; if it does not within a minute, replace the member (dendra serve --join … --replace …), \
                 or, where it is the only one, give the order dendra cluster accept-loss"
            );
        }
        write(engine, versions, &key, &own, wall_ms)?;
        return Ok(FolderHome::Member(Box::new(FolderMember {
            boot: own.boot,
            is_doubted,
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
    let key = epochs::key(record.epoch());
    let version = versions.next(engine, wall_ms);
    put(engine, &key, version, &record.encode(), wall_ms)
        .map_err(|reason| format!("the epoch could not be noted: {reason}"))?;
    write(engine, versions, &own_key(), &own, wall_ms)?;
    Ok(FolderHome::Member(Box::new(FolderMember {
        boot: own.boot,
        // No member can have refused a folder without an epoch.
        is_doubted: false,
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

/// Where the own note is.
pub(crate) fn own_key() -> Key {
    Key::new(Space::Meta, OWN_KEY)
}

/// Where the vote for the next epoch is.
pub(crate) fn vote_key() -> Key {
    Key::new(Space::Meta, VOTE_KEY)
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
    /// Note that cannot be read: its bytes are damaged, or another release wrote them.
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
    let found = find(engine, &peer_key(id), |cell| Peer::decode(cell.value));
    match found.map_err(|error| error.to_string())? {
        FoundNote::Read(peer) => Ok(Some(peer)),
        FoundNote::Absent => Ok(None),
        FoundNote::Unreadable => Err(format!(
            "the note about {url} is damaged or of another release; run `dendra check` on the \
             folder and restore it from a copy"
        )),
    }
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
    engine.scan(&mut cursor, epochs::LOOK_BYTES, |_, _| {
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
        let engine = Engine::open(Arc::new(vfs.clone()), options, identity).expect("it opens");
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
        starts_of(start(&engine, &versions, cluster, false, WALL_MS)?)
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
            let home = start(&engine, &versions, None, false, WALL_MS).expect("it starts");
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
    fn a_folder_in_which_a_later_version_is_in_force_is_refused_and_stays_as_it_is() {
        let vfs = MemVfs::new();
        let me = cluster("h1:1");
        assert_eq!(start_of(&vfs, Some(&me)), Ok(1));
        let newest = ClusterVersions::OWN.newest;
        let in_version = |version: ClusterVersion| {
            let (engine, versions) = opened(&vfs);
            let records = epochs::newest(&engine, 0).expect("they can be read");
            let (first, _) = records.first().expect("it was founded");
            let next = first.finalized(version).expect("a later one");
            let at = versions.next(&engine, WALL_MS);
            put(&engine, &epochs::key(2), at, &next.encode(), WALL_MS).expect("there is room");
        };
        in_version(ClusterVersion(newest.0 + 1));
        for _ in 0..2 {
            let refused = start_of(&vfs, Some(&me)).expect_err("it does not know the version");
            let words = format!("version {} of the cluster dendra is in force", newest.0 + 1);
            assert!(refused.starts_with(&words), "{refused}");
            assert!(refused.contains("The folder is good"), "{refused}");
        }
        // No start was counted.
        let (engine, _) = opened(&vfs);
        assert_eq!(starts(&engine), Ok(1));
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
