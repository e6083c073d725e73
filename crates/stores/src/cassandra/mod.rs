//! Cassandra as a store: every write is a light-weight transaction over the version that was seen.
//!
//! ```text
//! records   key ─► version, value (an envelope)            a partition for each key
//! keys      section, bucket, key                           some partitions, sorted: for scans
//! splits    split ─► section, bounds                       which partitions, a log
//! home      one ─► dc                                      whose replicas decide, of one row
//!
//! read      SELECT at SERIAL, or ONE
//! write     SELECT at SERIAL ─► judge ─► into `keys`, when there is no record
//!             ─► UPDATE … IF version = seen, or null; a deletion leaves a mark: a version, no value
//!             └─ not applied: from the begin
//! page      some keys of each partition ─► as far as all of them are known ─► their records
//! upkeep    keys without a record leave the list (`cleaning.rs`); full partitions get others beside
//!             them (`sections.rs`)
//! ```
//!
//! Invariants
//! 1. No plain write touches `records`: a light-weight transaction beside one is not linearizable.
//! 2. A key stands in `keys` before its record is there, and as long as it is. No removal from
//!    `keys` hides the listing of a later write: `cleaning.rs` has the argument.
//! 3. A version is this front door's clock and a number drawn at its start: it never repeats.
//! 4. All front doors of a keyspace let the same replicas decide: those of one data centre, or all.
//!
//! Not here: connections, frames and the search for servers (the crate `scylla`), how it is asked
//! (`session.rs`), statements (`statements.rs`), partitions and stamps (`listing.rs`).
//! See: docs/stores.md.

mod answers;
mod cleaning;
mod failures;
mod listing;
mod routes;
mod sections;
mod session;
mod statements;

use crate::clock::wall_ms;
use crate::dial::StoreAccess;
use crate::envelope;
use crate::place::StorePlace;
use crate::store::{
    Doing, OuterFailure, OuterStore, PageRead, PointRead, RecordWrite, ShownPage, StoreShape,
    StoreUpkeep, WriteEnd, rest_behind,
};
use answers::{changed, first, foreign, is_applied, rows, version_of};
use bytes::Bytes;
use cleaning::{Cleaner, MARK_TTL};
use dendra_base::peer::Range;
use dendra_base::{Cell, Consistency, Durability, Known, Version};
use listing::{BUCKETS, VersionSource, bucket_of, keys_of_each, merge, stamp_us};
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency as CqlLevel;
use scylla::value::Row;
use sections::{PARTITION_KEYS_USUAL, Sections};
use session::CqlServers;
use statements::CqlOrder;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Records that are read together at first, and at most; and about how many bytes of them.
const RECORDS_A_READ: usize = 4;
const RECORDS_A_READ_MAX: usize = 64;
const READ_BYTES: usize = 256 << 10;
/// Reads of several records at once, of all scans. Long values after short ones make an answer of
/// up to `RECORDS_A_READ_MAX` values, which the crate takes whole.
const READS_OF_RECORDS_MAX: usize = 8;
/// Records outlive their expiry by so much: clocks of front doors differ. Those that were written
/// over a row do so by `MARK_TTL`, as the argument in `cleaning.rs` needs it.
const TTL_SPARE: Duration = Duration::from_secs(60);
const TTL_S_MAX: u64 = 20 * 365 * 86_400;
/// The longest that the first look at the servers takes.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for all servers to know new tables, and how often they are asked.
const AGREEMENT: Duration = Duration::from_secs(10);
const AGREEMENT_LOOK: Duration = Duration::from_millis(100);
/// Records for which a page is made that comes after an empty one: much was deleted there.
const RECORDS_BEHIND_NONE: usize = 1_000;
/// The tables, and their columns. Where a removal from `keys` is forgotten before all copies know
/// it, a key without a record comes back: the cleaner takes it out again. So an hour is enough, and
/// scans pass over fewer removals.
const TABLES: [(&str, &str); 4] = [
    (
        "records",
        "(key blob PRIMARY KEY, version blob, value blob)",
    ),
    (
        "keys",
        "(section int, bucket smallint, key blob, PRIMARY KEY ((section, bucket), key)) \
         WITH gc_grace_seconds = 3600 AND compaction = {'class': 'SizeTieredCompactionStrategy', \
         'tombstone_compaction_interval': '3600', 'unchecked_tombstone_compaction': 'true'}",
    ),
    (
        "splits",
        "(one tinyint, split int, section int, bounds frozen<list<blob>>, made_ms bigint, \
         PRIMARY KEY (one, split))",
    ),
    ("home", "(one tinyint PRIMARY KEY, dc text)"),
];

/// A keyspace of Cassandra.
pub(crate) struct CassandraStore {
    servers: Arc<CqlServers>,
    /// The data centre whose replicas decide; `None` = those of all.
    home: Option<String>,
    keyspace: String,
    sections: Arc<Sections>,
    versions: Arc<VersionSource>,
    cleaner: Arc<Cleaner>,
    reads_of_records: Semaphore,
    copies: AtomicU8,
}

/// Key, version and value of a row of `records`.
type ShownRow = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// A row of `records`.
struct SeenRow {
    /// `None` = there is no row.
    version: Option<Version>,
    /// `None` = there is no row, or a mark.
    cell: Option<Cell>,
}

impl CassandraStore {
    /// Store at `place`; no server is connected yet.
    pub(crate) fn new(place: &StorePlace, access: &StoreAccess) -> CassandraStore {
        // Zero stands for "no member" in a version.
        let origin = (RandomState::new().hash_one(place.part.as_str()) as u32).max(1);
        let servers = Arc::new(CqlServers::new(place, access));
        let versions = Arc::new(VersionSource::new(origin));
        let partition_keys = place.partition_keys.unwrap_or(PARTITION_KEYS_USUAL);
        let sections = Arc::new(Sections::new(&servers, partition_keys));
        let shared = (&servers, &versions, &sections);
        CassandraStore {
            cleaner: Arc::new(Cleaner::new(shared, origin)),
            servers,
            home: place.home.clone(),
            keyspace: place.part.clone(),
            sections,
            versions,
            reads_of_records: Semaphore::new(READS_OF_RECORDS_MAX),
            copies: AtomicU8::new(1),
        }
    }

    /// Sends a text at the level `ONE`, to the server that every front door would ask.
    async fn ask_one(
        &self,
        text: &str,
        values: impl SerializeRow + Sync,
        until: Instant,
    ) -> Result<QueryResult, OuterFailure> {
        let asked = self
            .servers
            .ask_one_for_all(text, CqlLevel::One, values, until);
        asked.await
    }

    /// A light-weight transaction: was it applied?
    async fn change(
        &self,
        order: CqlOrder,
        values: impl SerializeRow + Sync,
        until: Instant,
    ) -> Result<bool, OuterFailure> {
        let answer = self.servers.change(order, values, until).await?;
        changed(answer)
    }

    /// The record in a row, or the mark.
    fn seen(
        &self,
        version: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Result<SeenRow, OuterFailure> {
        let Some(version) = version else {
            return Ok(SeenRow {
                version: None,
                cell: None,
            });
        };
        let version = version_of(&version)?;
        let copies = self.copies.load(Ordering::Relaxed);
        let cell = value.map(|value| envelope::unseal(value, version, copies).ok_or_else(foreign));
        Ok(SeenRow {
            version: Some(version),
            cell: cell.transpose()?,
        })
    }

    async fn see_key(
        &self,
        key: &Bytes,
        level: CqlLevel,
        until: Instant,
    ) -> Result<SeenRow, OuterFailure> {
        let asked = self.servers.ask(CqlOrder::Show, level, (&key[..],), until);
        let (version, value) = first(asked.await?)?.unwrap_or_default();
        self.seen(version, value)
    }

    async fn show_key(
        &self,
        key: &Bytes,
        level: CqlLevel,
        until: Instant,
    ) -> Result<Option<Cell>, OuterFailure> {
        self.see_key(key, level, until).await.map(|seen| seen.cell)
    }

    async fn write_over(
        &self,
        write: &RecordWrite,
        until: Instant,
    ) -> Result<WriteEnd, OuterFailure> {
        let key = &write.key[..];
        loop {
            let seen = self.see_key(&write.key, CqlLevel::Serial, until).await?;
            let (seen_version, has_record) = (seen.version, seen.cell.is_some());
            let live = seen.cell.filter(|cell| cell.as_ref().is_live(wall_ms()));
            let live_version = live.as_ref().map(|cell| cell.version);
            if !write.condition.holds(live_version) {
                return Ok(WriteEnd::Refused(live));
            }
            let version = self.versions.above(seen_version);
            let spare = seen_version.map_or(TTL_SPARE, |_| MARK_TTL);
            let (mine, ttl_s) = (version.to_bytes(), ttl_s(write.expiry_ms, spare));
            let sealed = |value: &Bytes| envelope::seal(key, value, write.expiry_ms);
            if write.value.is_some() && !has_record {
                self.list(key, stamp_us(version), until).await?;
            }
            let changed = match (&write.value, seen_version.map(Version::to_bytes)) {
                // There is no record to delete, as of the read just now.
                (None, _) if !has_record => return Ok(WriteEnd::Applied(version)),
                (None, before) => {
                    let before = before.as_ref().map(|bytes| &bytes[..]);
                    let values = (MARK_TTL.as_secs() as i32, &mine[..], key, before);
                    self.change(CqlOrder::Delete, values, until).await
                }
                (Some(value), Some(before)) => {
                    let values = (ttl_s, &mine[..], sealed(value), key, &before[..]);
                    self.change(CqlOrder::Replace, values, until).await
                }
                (Some(value), None) => {
                    let values = (ttl_s, &mine[..], sealed(value), key);
                    self.change(CqlOrder::Create, values, until).await
                }
            };
            match changed {
                Ok(true) => {
                    if write.value.is_none() {
                        self.cleaner.offer(&write.key, Some(version));
                    }
                    return Ok(WriteEnd::Applied(version));
                }
                Ok(false) => {}
                Err(OuterFailure::Unanswered(Known::Unknown, why)) => {
                    return self
                        .find(write, version, until)
                        .await
                        .ok_or(OuterFailure::Unanswered(Known::Unknown, why));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A write without an answer: a read that shows its version says that it was applied, and no
    /// read says that it was not.
    async fn find(
        &self,
        write: &RecordWrite,
        version: Version,
        until: Instant,
    ) -> Option<WriteEnd> {
        let looked = self.see_key(&write.key, CqlLevel::Serial, until).await;
        let seen = looked.ok()?.version?;
        (seen == version).then_some(WriteEnd::Applied(version))
    }

    /// Notes a key for scans. Once more is as good as once.
    async fn list(&self, key: &[u8], stamp_us: i64, until: Instant) -> Result<(), OuterFailure> {
        let section = self.sections.for_new(key, until).await?;
        let values = (section, bucket_of(key), key, stamp_us);
        let asked = self
            .servers
            .ask(CqlOrder::List, CqlLevel::Quorum, values, until);
        asked.await.map(drop)
    }

    async fn shape(&self) -> Result<StoreShape, OuterFailure> {
        let until = Instant::now() + OPEN_TIMEOUT;
        let text = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let asked = self.ask_one(text, (&self.keyspace,), until).await?;
        let replication = first::<(BTreeMap<String, String>,)>(asked)?.map(|(own,)| own);
        let replication = replication.ok_or_else(|| {
            OuterFailure::Failed(format!(
                "there is no keyspace {0}: CREATE KEYSPACE {0} WITH replication = \
                 {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}",
                self.keyspace
            ))
        })?;
        let home = self.home.as_deref();
        let copies = copies_of(&replication, home).ok_or_else(|| {
            let place = home.map_or(String::new(), |home| format!(" in the data centre {home}"));
            OuterFailure::Failed(format!(
                "the keyspace {} has no number of copies{place}: {replication:?}",
                self.keyspace
            ))
        })?;
        self.copies.store(copies, Ordering::Relaxed);
        self.make_tables(until).await?;
        self.check_home(until).await?;
        self.sections.look(Duration::ZERO, until).await?;
        let variant = self.said("paxos_variant", until).await;
        let is_second = variant.is_some_and(|variant| variant.starts_with("v2"));
        let outbids = &self.servers.do_reads_outbid;
        outbids.store(!is_second, Ordering::Relaxed);
        // An answer at SERIAL needs a majority: a store without one is not open.
        self.show_key(&Bytes::from_static(b"\0"), CqlLevel::Serial, until)
            .await?;
        Ok(StoreShape {
            engine: "cassandra",
            copies,
            durability: self.durability(until).await,
            scan_level: Consistency::Eventual,
        })
    }

    /// Makes the tables that are not there, and waits until all servers know them.
    async fn make_tables(&self, until: Instant) -> Result<(), OuterFailure> {
        let text = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let asked = self.ask_one(text, (&self.keyspace,), until).await?;
        let names = rows::<(String,)>(asked)?;
        let there = |table: &str| names.iter().any(|(name,)| name == table);
        let missing = TABLES.iter().filter(|(table, _)| !there(table));
        let mut is_new = false;
        for (table, columns) in missing {
            let create = format!("CREATE TABLE IF NOT EXISTS KS.{table} {columns}");
            self.ask_one(&create, (), until).await?;
            is_new = true;
        }
        if is_new {
            self.wait_for_agreement(until).await?;
        }
        Ok(())
    }

    /// Until all servers have the same tables, those of other data centres, too: one that does not
    /// know a table yet fails its writes. A server that is away has old ones, and is not waited for
    /// longer than `AGREEMENT`.
    async fn wait_for_agreement(&self, until: Instant) -> Result<(), OuterFailure> {
        let longest = Instant::now() + AGREEMENT;
        loop {
            let mut versions = Vec::new();
            for table in ["local", "peers"] {
                let text = format!("SELECT schema_version FROM system.{table}");
                let found = rows::<Row>(self.ask_one(&text, (), until).await?)?;
                versions.extend(found.into_iter().flat_map(|row| row.columns).flatten());
            }
            if versions.iter().all(|version| *version == versions[0]) {
                return Ok(());
            }
            if longest <= Instant::now() {
                tracing::warn!("not all servers of Cassandra know the new tables yet");
                return Ok(());
            }
            // No server tells when it has changed: drivers of Cassandra look again and again.
            tokio::time::sleep(AGREEMENT_LOOK).await;
        }
    }

    /// All front doors of a keyspace let the same replicas decide: the first one notes which.
    /// Transactions of one data centre and of all are blind to each other.
    async fn check_home(&self, until: Instant) -> Result<(), OuterFailure> {
        let own = self.home.clone().unwrap_or_default();
        let noted = self.note_once(own.clone(), until).await?;
        if noted == own {
            return Ok(());
        }
        let (noted, own) = (asked_of(&noted), asked_of(&own));
        Err(OuterFailure::Failed(format!(
            "the front doors of the keyspace {0} ask {noted}, and this one asks {own}: they \
             would overwrite each other. Start this one alike, or see docs/stores.md on how \
             to change all of them",
            self.keyspace
        )))
    }

    /// The data centre that the first front door of the keyspace noted: `own`, if that is this one.
    async fn note_once(&self, own: String, until: Instant) -> Result<String, OuterFailure> {
        let select = "SELECT dc FROM KS.home WHERE one = 1";
        let level = self.servers.among(CqlLevel::Quorum);
        let asked = self.servers.ask_one_for_all(select, level, (), until);
        if let Some((noted,)) = first::<(String,)>(asked.await?)? {
            return Ok(noted);
        }
        let insert = "INSERT INTO KS.home (one, dc) VALUES (1, ?) IF NOT EXISTS";
        let values = (&own,);
        let inserted = self
            .servers
            .ask_one_for_all(insert, CqlLevel::Quorum, values, until);
        // Otherwise another front door was the first one.
        let was_first = first::<Row>(inserted.await?)?.as_ref().and_then(is_applied);
        if was_first == Some(true) {
            return Ok(own);
        }
        let chosen = self
            .servers
            .ask_one_for_all(select, CqlLevel::Serial, (), until);
        Ok(first::<(String,)>(chosen.await?)?.map_or(own, |(noted,)| noted))
    }

    /// A setting of the server that is asked; an older one does not say.
    async fn said(&self, name: &str, until: Instant) -> Option<String> {
        let text = "SELECT value FROM system_views.settings WHERE name = ?";
        let asked = self.ask_one(text, (name,), until).await;
        match asked.and_then(first::<(Option<String>,)>) {
            Ok(said) => said?.0,
            Err(failure) => {
                tracing::warn!(%failure, name, "the servers do not say this setting: the worse is assumed");
                None
            }
        }
    }

    /// When the servers sync their logs.
    async fn durability(&self, until: Instant) -> Durability {
        match self.said("commitlog_sync", until).await.as_deref() {
            Some("batch" | "group") => Durability::Sync,
            _ => Durability::Os,
        }
    }

    /// The next keys of the range, in order, and the rest of it.
    async fn keys(
        &self,
        range: &Range,
        records: usize,
        until: Instant,
    ) -> Result<(Vec<Bytes>, Option<Range>), OuterFailure> {
        loop {
            let stretch = self.sections.at_begin(range);
            let (here, behind) = stretch.part_of(range);
            let each = keys_of_each(records, stretch.sections.len() * BUCKETS.len());
            let (looked, known) = tokio::join!(
                self.sections.look(Duration::ZERO, until),
                self.list_of(&stretch.sections, &here, each, until)
            );
            looked?;
            // Others may list the keys, as of the begin of this page.
            if self.sections.splits() != stretch.splits {
                continue;
            }
            let (keys, is_cut) = merge(known?, each, range.is_reverse);
            let rest = match keys.last() {
                Some(last) if is_cut => Some(rest_behind(range, last)),
                _ => behind,
            };
            return Ok((keys, rest));
        }
    }

    /// The first keys of a range that each partition of some sections lists.
    async fn list_of(
        &self,
        sections: &[i32],
        range: &Range,
        each: usize,
        until: Instant,
    ) -> Result<BTreeMap<(i32, i16), Vec<Bytes>>, OuterFailure> {
        let order = CqlOrder::keys(range.end.is_some(), range.is_reverse);
        let (start, limit, level) = (&range.start[..], each as i32, CqlLevel::Quorum);
        let answer = match &range.end {
            Some(end) => {
                let values = (sections, &BUCKETS[..], start, &end[..], limit);
                self.servers.ask(order, level, values, until).await
            }
            None => {
                let values = (sections, &BUCKETS[..], start, limit);
                self.servers.ask(order, level, values, until).await
            }
        };
        let mut known: BTreeMap<_, Vec<Bytes>> = BTreeMap::new();
        for (section, bucket, key) in rows::<(i32, i16, Vec<u8>)>(answer?)? {
            let partition = (section, bucket);
            known.entry(partition).or_default().push(key.into());
        }
        Ok(known)
    }

    /// The rows of some keys.
    async fn show_records(
        &self,
        keys: Vec<&[u8]>,
        until: Instant,
    ) -> Result<Vec<ShownRow>, OuterFailure> {
        let room = self.reads_of_records.acquire().await;
        let _room = room.expect("it is never closed");
        let asked = self
            .servers
            .ask(CqlOrder::ShowMany, CqlLevel::Quorum, (keys,), until);
        rows(asked.await?)
    }

    /// A page; where all keys have no record, the next ones, for half of its time.
    async fn show(&self, mut page: PageRead) -> Result<ShownPage, OuterFailure> {
        let begun = Instant::now();
        let mut keys_for = page.records_max;
        loop {
            let until = begun + page.left;
            let shown = self.show_some(&page, keys_for, until).await?;
            let is_late = begun.elapsed() > page.left / 2;
            match shown.rest {
                Some(rest) if shown.records.is_empty() && !is_late => page.range = rest,
                _ => return Ok(shown),
            }
            keys_for = keys_for.max(RECORDS_BEHIND_NONE);
        }
    }

    async fn show_some(
        &self,
        page: &PageRead,
        keys_for: usize,
        until: Instant,
    ) -> Result<ShownPage, OuterFailure> {
        let (keys, beyond) = self.keys(&page.range, keys_for, until).await?;
        let (now_ms, mut bytes) = (wall_ms(), 0);
        let mut records = Vec::new();
        let last = keys.last().cloned();
        let (mut left, mut most) = (&keys[..], RECORDS_A_READ);
        // Behind keys without records more of them are likely.
        let mut ahead = 1;
        while !left.is_empty() {
            let wanted = page.records_max.saturating_sub(records.len()).max(1);
            let (some, others) = left.split_at(most.min(wanted.max(ahead)).min(left.len()));
            let values: Vec<&[u8]> = some.iter().map(|key| &key[..]).collect();
            let shown = match self.show_records(values, until).await {
                // Values may be longer than those before them: an answer has a bound.
                Err(_) if some.len() > 1 => {
                    most = (some.len() / 4).max(1);
                    continue;
                }
                shown => shown?,
            };
            left = others;
            let (bytes_before, records_before) = (bytes, records.len());
            let mut found = BTreeMap::new();
            for (key, version, value) in shown {
                found.insert(key, self.seen(version, value)?);
            }
            for key in some {
                let seen = found.remove(&key[..]);
                let (mark, cell) = seen.map_or((None, None), |seen| (seen.version, seen.cell));
                let Some(mut cell) = cell else {
                    self.cleaner.offer(key, mark);
                    continue;
                };
                if !cell.as_ref().is_live(now_ms) {
                    continue;
                }
                bytes += key.len() + cell.value.len();
                if page.range.is_keys_only {
                    cell.value = Bytes::new();
                }
                records.push((key.clone(), cell));
            }
            ahead = if records.len() > records_before {
                1
            } else {
                (2 * ahead).min(RECORDS_A_READ_MAX)
            };
            let bytes_each = (bytes - bytes_before) / some.len();
            let next = READ_BYTES / bytes_each.max(1);
            most = next.clamp(1, (2 * most).min(RECORDS_A_READ_MAX));
            let behind = some.last();
            if (bytes >= page.bytes_max || records.len() >= page.records_max)
                && let Some(behind) = behind.filter(|behind| Some(*behind) != last.as_ref())
            {
                let rest = Some(rest_behind(&page.range, behind));
                return Ok(ShownPage { records, rest });
            }
        }
        Ok(ShownPage {
            records,
            rest: beyond,
        })
    }
}

/// The servers that a note of `home` stands for.
fn asked_of(dc: &str) -> String {
    match dc {
        "" => "all data centres (no ?dc=)".to_owned(),
        dc => format!("the data centre {dc} (?dc={dc})"),
    }
}

/// How long Cassandra keeps a record: a little longer than clients see it; 0 = for ever.
fn ttl_s(expiry_ms: Option<u64>, spare: Duration) -> i32 {
    let left_s = expiry_ms.map(|at| at.saturating_sub(wall_ms()).div_ceil(1_000));
    let left_s = left_s.map(|left_s| left_s.saturating_add(spare.as_secs()));
    // It takes at most 20 years; a record that lasts longer is never taken away by itself.
    left_s.filter(|left_s| *left_s < TTL_S_MAX).unwrap_or(0) as i32
}

/// The copies of a keyspace in its data centre `home`, or in all of them.
fn copies_of(replication: &BTreeMap<String, String>, home: Option<&str>) -> Option<u8> {
    let counts = |name: &str| name != "class" && home.is_none_or(|home| home == name);
    let numbers = replication.iter().filter(|(name, _)| counts(name));
    let numbers = numbers.map(|(_, number)| number.split('/').next()?.parse::<u32>().ok());
    let copies: u32 = numbers.collect::<Option<Vec<_>>>()?.into_iter().sum();
    u8::try_from(copies).ok().filter(|copies| *copies > 0)
}

impl OuterStore for CassandraStore {
    fn open(&self) -> Doing<'_, StoreShape> {
        Box::pin(self.shape())
    }

    fn look(&self, left: Duration) -> Doing<'_, ()> {
        Box::pin(async move {
            let key = Bytes::from_static(b"\0");
            let looked = self.show_key(&key, CqlLevel::Serial, Instant::now() + left);
            looked.await.map(drop)
        })
    }

    fn tend(&self, left: Duration) -> Doing<'_, StoreUpkeep> {
        Box::pin(async move {
            self.sections.grow().await?;
            Arc::clone(&self.cleaner).clean(left).await
        })
    }

    fn read(&self, read: PointRead) -> Doing<'_, Option<Cell>> {
        Box::pin(async move {
            let level = match read.level {
                Consistency::Linearizable => CqlLevel::Serial,
                Consistency::Eventual => CqlLevel::One,
            };
            self.show_key(&read.key, level, Instant::now() + read.left)
                .await
        })
    }

    fn write(&self, write: RecordWrite) -> Doing<'_, WriteEnd> {
        Box::pin(async move { self.write_over(&write, Instant::now() + write.left).await })
    }

    fn page(&self, page: PageRead) -> Doing<'_, ShownPage> {
        Box::pin(self.show(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copies_of_all_data_centres_count() {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let simple = map(&[("class", "S"), ("replication_factor", "3")]);
        assert_eq!(copies_of(&simple, None), Some(3));
        let two = map(&[("class", "N"), ("east", "3"), ("west", "2")]);
        assert_eq!(copies_of(&two, None), Some(5));
        assert_eq!(copies_of(&two, Some("west")), Some(2));
        assert_eq!(copies_of(&two, Some("north")), None);
        assert_eq!(copies_of(&simple, Some("west")), None);
        assert_eq!(copies_of(&map(&[("class", "Local")]), None), None);
    }
}
