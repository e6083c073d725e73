//! The node's notes at a start: is this the folder of this member, and which start is it?
//!
//! ```text
//! engine is open ─► read "self" ─► Own::start: go on, or exit 3 ─► write "self", durable ─► number of starts
//! ```
//!
//! Invariants
//! 1. The raised number of starts is in the log, as durable as the settings make any write, before a
//!    socket is opened: no peer hears a number that could come back.
//! 2. A node without a cluster writes nothing.
//!
//! Not here: the rules and the bytes (crate `node`), notes of a running node (`peers/notes.rs`).
//! See: docs/format/notes.md.

use crate::disk::versions::Versions;
use crate::settings::ClusterSettings;
use dendra_base::{CellRef, Key, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{
    Batch, Cursor, Direction, Engine, Error, Flow, Guard, Lookup, Show, WriteOutcome,
};
use dendra_node::membership::identity::{self, Content, OWN_KEY, Own, Peer};
use std::ops::Bound;

/// How much of the folder is looked at per step when asking whether it holds a record.
const LOOK_BYTES: usize = 64 << 10;

/// Why a node cannot start on its folder: a sentence.
type Reason = String;

/// Checks that the folder is the one of this member, counts the start, and returns its number; 0
/// without a cluster.
pub(crate) fn start(
    engine: &Engine,
    versions: &Versions,
    cluster: Option<&ClusterSettings>,
    wall_ms: u64,
) -> Result<u64, Reason> {
    let key = Key::new(Space::Meta, OWN_KEY);
    let remembered = read(engine, &key)?;
    let Some(cluster) = cluster else {
        return Own::start_alone(remembered.as_ref())
            .map(|()| 0)
            .map_err(|stranger| stranger.to_string());
    };
    let content = content(engine).map_err(|error| error.to_string())?;
    let node = engine.identity().node;
    let own = Own::start(
        remembered.as_ref(),
        node,
        &cluster.topology,
        cluster.me,
        content,
    )
    .map_err(|stranger| stranger.to_string())?;
    write(engine, versions, &key, &own, wall_ms)?;
    Ok(own.boot)
}

/// The number of the last start that is in the folder; 0 if there is none.
pub(crate) fn starts(engine: &Engine) -> Result<u64, Reason> {
    let remembered = read(engine, &Key::new(Space::Meta, OWN_KEY))?;
    Ok(remembered.map_or(0, |own| own.boot))
}

/// The note about the member at `url`.
pub(crate) fn peer(engine: &Engine, url: &str) -> Result<Option<Peer>, Reason> {
    let key = peer_key(url);
    let found = engine.get(key.as_stored(), Wait::Block, |cell| {
        cell.is_intact(key.as_stored())
            .then(|| Peer::decode(cell.value))
            .flatten()
    });
    match found.map_err(|error| error.to_string())? {
        Lookup::Cell(Some(peer)) => Ok(Some(peer)),
        Lookup::Cell(None) => Err(format!(
            "the note about {url} is damaged or of another release; run `dendra check` on the \
             folder and restore it from a copy"
        )),
        Lookup::Nothing => Ok(None),
        Lookup::WouldBlock => unreachable!("a read that may wait does not give up"),
    }
}

/// Where that note is.
pub(crate) fn peer_key(url: &str) -> Key {
    Key::new(Space::Meta, &identity::peer_key(url))
}

fn read(engine: &Engine, key: &Key) -> Result<Option<Own>, Reason> {
    let found = engine.get(key.as_stored(), Wait::Block, |cell| {
        cell.is_intact(key.as_stored())
            .then(|| Own::decode(cell.value))
            .flatten()
    });
    match found.map_err(|error| error.to_string())? {
        Lookup::Cell(Some(own)) => Ok(Some(own)),
        Lookup::Cell(None) => Err(
            "the node's notes are damaged or of another release; run `dendra check` on the folder and restore it from a copy"
                .to_owned(),
        ),
        Lookup::Nothing => Ok(None),
        Lookup::WouldBlock => unreachable!("a read that may wait does not give up"),
    }
}

/// Does the folder hold anything of clients, tombstones included?
fn content(engine: &Engine) -> Result<Content, Error> {
    let mut cursor = Cursor::new(
        Bound::Included(vec![Space::User.byte()]),
        Bound::Excluded(vec![Space::User.byte() + 1]),
        Direction::Forward,
        Show::All,
    );
    let mut content = Content::Empty;
    engine.scan(&mut cursor, LOOK_BYTES, |_, _| {
        content = Content::Records;
        Flow::Pause
    })?;
    Ok(content)
}

fn write(
    engine: &Engine,
    versions: &Versions,
    key: &Key,
    own: &Own,
    wall_ms: u64,
) -> Result<(), Reason> {
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

    fn opened(vfs: &MemVfs) -> (Engine, Versions) {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        let engine =
            Engine::open(Arc::new(vfs.clone()), options, identity, WALL_MS).expect("it opens");
        let versions = Versions::above(&engine, None, WALL_MS);
        (engine, versions)
    }

    fn cluster(me: &str) -> ClusterSettings {
        let members = ["h1:1", "h2:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), 3).expect("two members");
        ClusterSettings::new(topology, me).expect("a member")
    }

    fn start_of(vfs: &MemVfs, cluster: Option<&ClusterSettings>) -> Result<u64, Reason> {
        let (engine, versions) = opened(vfs);
        start(&engine, &versions, cluster, WALL_MS)
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
            assert_eq!(start(&engine, &versions, None, WALL_MS), Ok(0));
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
