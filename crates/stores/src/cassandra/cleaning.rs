//! The cleaner of the list of keys: it takes out keys whose record was deleted or has expired.
//!
//! ```text
//! a deletion leaves a mark ──────┐
//! a scan finds a key, no record ─┼─► bounded queue ─► no mark yet: one over nothing, IF version = null
//! the walk through partitions ───┘                      └─► DELETE from `keys` at the mark's stamp
//! ```
//!
//! A removal must never hide the listing of a record that is there. A mark is a row of `records`
//! with a version and no value. A light-weight transaction writes it, so it has a place in the one
//! order of all writes of its key:
//!
//! * A create that looked before the mark expects no row, or the record that the mark replaced. Its
//!   transaction fails. It looks again, and sees the mark.
//! * A create that sees the mark has a version above it. It lists the key with the stamp of that
//!   version, before its transaction over the mark. A removal carries the stamp of its mark. That
//!   is earlier, and in Cassandra the later timestamp wins. So no such removal hides this listing,
//!   at whatever time it arrives and however often it is repeated.
//! * A mark is written where no row is, or over the record that is deleted by it.
//! * A create that finds no row takes its stamp from its own clock. The last mark of its key is
//!   then `MARK_TTL` old at least: a mark stays for so long, and so does each row that was written
//!   over another one. So the stamp is later, while clocks of front doors differ by less than
//!   `MARK_TTL`. A create that looked before such a mark fails, while no request takes as long.
//!
//! Invariants
//! 1. Every removal carries the stamp of a mark that was chosen for its key.
//! 2. At most `DEAD_KEYS_MAX` removals wait. The walk finds again what had no room.
//! 3. The walk writes nothing where a record is, live or expired.
//!
//! Not here: the deletion's own mark (`mod.rs`), stamps (`listing.rs`).
//! See: docs/stores.md.

use super::answers::{changed, rows, version_of};
use super::listing::{VersionSource, bucket_of, stamp_us};
use super::sections::Sections;
use super::session::CqlServers;
use super::statements::CqlOrder;
use crate::store::{OuterFailure, StoreUpkeep};
use bytes::Bytes;
use dendra_base::Version;
use scylla::statement::Consistency as CqlLevel;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long a mark stays: clocks differ by less, and no request takes as long.
pub(super) const MARK_TTL: Duration = Duration::from_secs(3_600);
/// Removals that wait.
const DEAD_KEYS_MAX: usize = 4_096;
/// Keys of one partition that the walk looks at together; so many a second, where all have records.
const WALK_KEYS: usize = 64;
/// Removals at once. Each is a transaction of its own key, and a plain write.
const REMOVALS_AT_ONCE: usize = 8;
/// The longest that one removal, or one look of the walk, takes.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// A key in the list that has no record.
#[derive(Clone, Debug)]
pub(super) struct DeadKey {
    pub(super) key: Bytes,
    /// The mark that was seen; `None` = there is no row.
    pub(super) mark: Option<Version>,
}

/// Where the walk goes on.
#[derive(Debug)]
struct WalkPlace {
    /// Partitions that it has been to.
    turn: usize,
    /// From this key on.
    start: Vec<u8>,
}

/// What the cleaner shares with the store: servers, versions, sections.
type SharedParts<'a> = (
    &'a Arc<CqlServers>,
    &'a Arc<VersionSource>,
    &'a Arc<Sections>,
);

/// The cleaner of one front door.
pub(super) struct Cleaner {
    servers: Arc<CqlServers>,
    versions: Arc<VersionSource>,
    sections: Arc<Sections>,
    dead: Mutex<VecDeque<DeadKey>>,
    /// Held by one upkeep at a time, across its questions.
    walk: tokio::sync::Mutex<WalkPlace>,
}

impl Cleaner {
    /// Front doors begin their walks at different places: `drawn`.
    pub(super) fn new((servers, versions, sections): SharedParts<'_>, drawn: u32) -> Cleaner {
        Cleaner {
            servers: Arc::clone(servers),
            versions: Arc::clone(versions),
            sections: Arc::clone(sections),
            dead: Mutex::default(),
            walk: tokio::sync::Mutex::new(WalkPlace {
                turn: drawn as usize,
                start: Vec::new(),
            }),
        }
    }

    /// Notes a key that has no record, if there is room.
    pub(super) fn offer(&self, key: &Bytes, mark: Option<Version>) {
        let mut dead = self.dead.lock().expect("no holder panics");
        if dead.len() < DEAD_KEYS_MAX {
            let key = key.clone();
            dead.push_back(DeadKey { key, mark });
        }
    }

    fn take(&self, most: usize) -> Vec<DeadKey> {
        let mut dead = self.dead.lock().expect("no holder panics");
        let most = dead.len().min(most);
        dead.drain(..most).collect()
    }

    /// Removes what waits, then walks on, for about `left`.
    pub(super) async fn clean(
        self: Arc<Self>,
        left: Duration,
    ) -> Result<StoreUpkeep, OuterFailure> {
        let end = Instant::now() + left;
        let mut upkeep = StoreUpkeep::default();
        let mut walk = self.walk.lock().await;
        let mut walks = 0;
        loop {
            let mut dead = self.take(WALK_KEYS);
            if dead.is_empty() {
                // Go on at once only where there is much to remove.
                if walks > 0 {
                    return Ok(upkeep);
                }
                dead = self.walk_on(&mut walk).await?;
                walks += usize::from(2 * dead.len() < WALK_KEYS);
            }
            upkeep.keys_cleaned += self.remove(dead).await?;
            if end <= Instant::now() {
                return Ok(upkeep);
            }
        }
    }

    /// Looks at the next keys of the list; returns those without a record.
    async fn walk_on(&self, walk: &mut WalkPlace) -> Result<Vec<DeadKey>, OuterFailure> {
        let until = Instant::now() + STEP_TIMEOUT;
        let (section, bucket) = self.sections.partition(walk.turn);
        let values = (
            vec![section],
            vec![bucket],
            &walk.start[..],
            WALK_KEYS as i32,
        );
        let asked = self
            .servers
            .ask(CqlOrder::Keys, CqlLevel::One, values, until);
        let listed = rows::<(i32, i16, Vec<u8>)>(asked.await?)?;
        let keys: Vec<Bytes> = listed.into_iter().map(|(_, _, key)| key.into()).collect();
        let mut dead = Vec::new();
        if !keys.is_empty() {
            let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            // One copy may lack the newest: a mark is written by a transaction, which sees it.
            let marks = self
                .servers
                .ask(CqlOrder::ShowMarks, CqlLevel::One, (wanted,), until);
            let mut shown = BTreeMap::new();
            for (key, version, written_us) in
                rows::<(Vec<u8>, Option<Vec<u8>>, Option<i64>)>(marks.await?)?
            {
                shown.insert(key, (version, written_us));
            }
            for key in &keys {
                let mark = match shown.remove(&key[..]) {
                    None | Some((None, None)) => None,
                    // Another program wrote this row. The walk skips it, else it would stop here.
                    Some((Some(version), None)) => match version_of(&version) {
                        Ok(version) => Some(version),
                        Err(_) => continue,
                    },
                    Some((_, Some(_))) => continue,
                };
                let key = key.clone();
                dead.push(DeadKey { key, mark });
            }
        }
        match keys.last() {
            Some(last) if keys.len() == WALK_KEYS => {
                walk.start = [&last[..], &[0]].concat();
            }
            _ => {
                walk.turn = (walk.turn + 1) % self.sections.partitions();
                walk.start.clear();
            }
        }
        Ok(dead)
    }

    /// Removes keys from the list, if they still have no record; returns how many.
    async fn remove(self: &Arc<Self>, dead: Vec<DeadKey>) -> Result<u64, OuterFailure> {
        let mut dead = dead.into_iter();
        let (mut under_way, mut removed) = (JoinSet::new(), 0);
        loop {
            let room = REMOVALS_AT_ONCE - under_way.len();
            for DeadKey { key, mark } in dead.by_ref().take(room) {
                let cleaner = Arc::clone(self);
                under_way.spawn(async move { cleaner.remove_one(&key, mark).await });
            }
            match under_way.join_next().await {
                None => return Ok(removed),
                Some(Ok(was_removed)) => removed += u64::from(was_removed?),
                Some(Err(panic)) => return Err(OuterFailure::Failed(panic.to_string())),
            }
        }
    }

    async fn remove_one(&self, key: &Bytes, mark: Option<Version>) -> Result<bool, OuterFailure> {
        let until = Instant::now() + STEP_TIMEOUT;
        let mark = match mark {
            Some(mark) => mark,
            None => {
                let new_mark = self.versions.above(None);
                let values = (
                    MARK_TTL.as_secs() as i32,
                    &new_mark.to_bytes()[..],
                    &key[..],
                );
                let asked = self.servers.change(CqlOrder::MarkAbsence, values, until);
                if !changed(asked.await?)? {
                    // There is a record now, or another mark: the walk comes again.
                    return Ok(false);
                }
                new_mark
            }
        };
        let (mut sections, bucket) = (self.sections.of_key(key), bucket_of(key));
        if sections.len() > 1 {
            let values = (&sections, bucket, &key[..]);
            let asked = self
                .servers
                .ask(CqlOrder::Listed, CqlLevel::Quorum, values, until);
            let listed = rows::<(i32,)>(asked.await?)?;
            sections = listed.into_iter().map(|(section,)| section).collect();
        }
        if sections.is_empty() {
            return Ok(false);
        }
        let values = (stamp_us(mark), sections, bucket, &key[..]);
        let asked = self
            .servers
            .ask(CqlOrder::Unlist, CqlLevel::Quorum, values, until);
        asked.await.map(|_| true)
    }
}
