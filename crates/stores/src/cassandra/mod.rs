//! Cassandra as a store: every write is a light-weight transaction over the version that was seen.
//!
//! ```text
//! records   key ─► version, value (an envelope)            a partition for each key
//! keys      bucket, key                                    BUCKETS partitions, sorted: for scans
//! home      one ─► dc                                      whose replicas decide, of one row
//!
//! read      SELECT at SERIAL, or ONE
//! write     SELECT at SERIAL ─► judge ─► into `keys`, when there is no record
//!             ─► UPDATE … IF version = seen, or null │ DELETE … IF version = seen
//!             └─ not applied: from the begin
//! page      some keys of each bucket ─► as far as all buckets are known ─► their records
//! ```
//!
//! Invariants
//! 1. No plain write touches `records`: a light-weight transaction beside one is not linearizable.
//! 2. A key stands in `keys` before its record is there, and stays: a removal could overtake the
//!    write that comes next.
//! 3. A version is this front door's clock and a number drawn at its start: it never repeats.
//! 4. All front doors of a keyspace let the same replicas decide: those of one data centre, or all.
//!
//! Not here: connections, frames and the search for servers (the crate `scylla`), how it is asked
//! (`session.rs`), statements (`statements.rs`).
//! See: docs/stores.md.

mod failures;
mod routes;
mod session;
mod statements;

use crate::clock::wall_ms;
use crate::dial::StoreAccess;
use crate::envelope;
use crate::place::StorePlace;
use crate::store::{
    Doing, OuterFailure, OuterStore, PageRead, PointRead, RecordWrite, ShownPage, StoreShape,
    WriteEnd, rest_behind,
};
use bytes::Bytes;
use dendra_base::{Cell, Consistency, Durability, Key, Known, Version, cell::checksum};
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency as CqlLevel;
use scylla::value::{CqlValue, Row};
use session::CqlServers;
use statements::CqlOrder;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Partitions of the list of keys. Stored: another number would lose keys.
const BUCKETS: i16 = 64;
/// Keys of each bucket that a page looks at, at most and at least. With 4 of each about 48 keys are
/// known to be the first ones, with 8 about 180, with 16 about 540.
const KEYS_A_BUCKET: usize = 16;
const KEYS_A_BUCKET_MIN: usize = 4;
/// Records that are read together at first, and at most; and about how many bytes of them.
const RECORDS_A_READ: usize = 4;
const RECORDS_A_READ_MAX: usize = 64;
const READ_BYTES: usize = 256 << 10;
/// Reads of several records at once, of all scans. Long values after short ones make an answer of
/// up to `RECORDS_A_READ_MAX` values, which the crate takes whole.
const READS_OF_RECORDS_MAX: usize = 8;
/// Records outlive their expiry by so much: clocks of front doors differ.
const TTL_SPARE_S: u64 = 60;
const TTL_S_MAX: u64 = 20 * 365 * 86_400;
/// The longest that the first look at the servers takes.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for all servers to know new tables, and how often they are asked.
const AGREEMENT: Duration = Duration::from_secs(10);
const AGREEMENT_LOOK: Duration = Duration::from_millis(100);
/// The tables, and their columns.
const TABLES: [(&str, &str); 3] = [
    (
        "records",
        "(key blob PRIMARY KEY, version blob, value blob)",
    ),
    (
        "keys",
        "(bucket smallint, key blob, PRIMARY KEY (bucket, key))",
    ),
    ("home", "(one tinyint PRIMARY KEY, dc text)"),
];

/// A keyspace of Cassandra.
pub(crate) struct CassandraStore {
    servers: CqlServers,
    /// The data centre whose replicas decide; `None` = those of all.
    home: Option<String>,
    keyspace: String,
    /// All buckets, as a value.
    buckets: Vec<i16>,
    reads_of_records: Semaphore,
    copies: AtomicU8,
    clock: AtomicU64,
    origin: u32,
}

/// Key, version and value of a row of `records`.
type ShownRow = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

fn bucket_of(key: &[u8]) -> i16 {
    (checksum(Key::user(key).as_stored(), b"") % BUCKETS as u64) as i16
}

/// The rows of an answer; none, where it has no rows at all.
fn rows<R>(answer: QueryResult) -> Result<Vec<R>, OuterFailure>
where
    R: for<'a> DeserializeRow<'a, 'a>,
{
    if !answer.is_rows() {
        return Ok(Vec::new());
    }
    let strange = |error: &dyn std::error::Error| {
        OuterFailure::Failed(format!("gives rows of another shape: {error}"))
    };
    let answer = answer.into_rows_result().map_err(|error| strange(&error))?;
    let rows = answer.rows::<R>().map_err(|error| strange(&error))?;
    rows.collect::<Result<_, _>>()
        .map_err(|error| strange(&error))
}

fn first<R>(answer: QueryResult) -> Result<Option<R>, OuterFailure>
where
    R: for<'a> DeserializeRow<'a, 'a>,
{
    Ok(rows(answer)?.into_iter().next())
}

impl CassandraStore {
    /// Store at `place`; no server is connected yet.
    pub(crate) fn new(place: &StorePlace, access: &StoreAccess) -> CassandraStore {
        CassandraStore {
            servers: CqlServers::new(place, access),
            home: place.home.clone(),
            keyspace: place.part.clone(),
            buckets: (0..BUCKETS).collect(),
            reads_of_records: Semaphore::new(READS_OF_RECORDS_MAX),
            copies: AtomicU8::new(1),
            clock: AtomicU64::new(0),
            // Zero stands for "no member" in a version.
            origin: (RandomState::new().hash_one(place.part.as_str()) as u32).max(1),
        }
    }

    /// A version above `seen`, and above all that this process has made.
    fn version_above(&self, seen: Option<Version>) -> Version {
        let least = (wall_ms() << 16).max(seen.map_or(0, |seen| seen.hlc + 1));
        let order = Ordering::Relaxed;
        let next = |last: u64| Some(least.max(last + 1));
        let last = self.clock.fetch_update(order, order, next);
        let last = last.expect("it always has a next one");
        Version {
            hlc: least.max(last + 1),
            origin: self.origin,
            rmw: 0,
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
        // The columns after the first one depend on the outcome, and on the engine.
        let said = first::<Row>(answer).ok().flatten();
        said.as_ref().and_then(is_applied).ok_or_else(|| {
            let sentence = "the answer does not say whether it was applied".to_owned();
            OuterFailure::Unanswered(Known::Unknown, sentence)
        })
    }

    /// The record in a row; a deletion leaves a row without one.
    fn cell(
        &self,
        version: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Result<Option<Cell>, OuterFailure> {
        let (Some(version), Some(value)) = (version, value) else {
            return Ok(None);
        };
        let version = <[u8; Version::BYTES]>::try_from(version.as_slice());
        let cell = version.ok().and_then(|version| {
            let copies = self.copies.load(Ordering::Relaxed);
            envelope::unseal(value, Version::from_bytes(version), copies)
        });
        let foreign = "a row of the table `records` was not written by a front door";
        cell.map(Some)
            .ok_or_else(|| OuterFailure::Damaged(foreign.to_owned()))
    }

    async fn show_key(
        &self,
        key: &Bytes,
        level: CqlLevel,
        until: Instant,
    ) -> Result<Option<Cell>, OuterFailure> {
        let asked = self.servers.ask(CqlOrder::Show, level, (&key[..],), until);
        match first(asked.await?)? {
            None => Ok(None),
            Some((version, value)) => self.cell(version, value),
        }
    }

    async fn write_over(
        &self,
        write: &RecordWrite,
        until: Instant,
    ) -> Result<WriteEnd, OuterFailure> {
        let key = &write.key[..];
        loop {
            let seen = self.show_key(&write.key, CqlLevel::Serial, until).await?;
            let seen_version = seen.as_ref().map(|cell| cell.version);
            let live = seen.filter(|cell| cell.as_ref().is_live(wall_ms()));
            let live_version = live.as_ref().map(|cell| cell.version);
            if !write.condition.holds(live_version) {
                return Ok(WriteEnd::Refused(live));
            }
            let version = self.version_above(seen_version);
            let (mine, ttl_s) = (version.to_bytes(), ttl_s(write.expiry_ms));
            let sealed = |value: &Bytes| envelope::seal(key, value, write.expiry_ms);
            let changed = match (&write.value, seen_version.map(|seen| seen.to_bytes())) {
                // There is no record to delete, as of the read just now.
                (None, None) => return Ok(WriteEnd::Applied(version)),
                (None, Some(seen)) => {
                    let values = (key, &seen[..]);
                    self.change(CqlOrder::Delete, values, until).await
                }
                (Some(value), Some(seen)) => {
                    let values = (ttl_s, &mine[..], sealed(value), key, &seen[..]);
                    self.change(CqlOrder::Replace, values, until).await
                }
                (Some(value), None) => {
                    self.list(key, until).await?;
                    let values = (ttl_s, &mine[..], sealed(value), key);
                    self.change(CqlOrder::Create, values, until).await
                }
            };
            match changed {
                Ok(true) => return Ok(WriteEnd::Applied(version)),
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
        write.value.as_ref()?;
        let looked = self.show_key(&write.key, CqlLevel::Serial, until).await;
        let cell = looked.ok().flatten()?;
        (cell.version == version).then_some(WriteEnd::Applied(version))
    }

    /// Notes a key for scans. Once more is as good as once.
    async fn list(&self, key: &[u8], until: Instant) -> Result<(), OuterFailure> {
        let values = (bucket_of(key), key);
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
            let text = format!("CREATE TABLE IF NOT EXISTS KS.{table} {columns}");
            self.ask_one(&text, (), until).await?;
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
        let ask = async |text, level, values: &[&str]| {
            let asked = self.servers.ask_one_for_all(text, level, values, until);
            asked.await
        };
        let select = "SELECT dc FROM KS.home WHERE one = 1";
        let level = self.servers.among(CqlLevel::Quorum);
        let mut noted = first::<(String,)>(ask(select, level, &[]).await?)?;
        if noted.is_none() {
            let insert = "INSERT INTO KS.home (one, dc) VALUES (1, ?) IF NOT EXISTS";
            let inserted = ask(insert, CqlLevel::Quorum, &[&own]).await?;
            // Otherwise another front door was the first one.
            let was_first = first::<Row>(inserted)?.as_ref().and_then(is_applied);
            if was_first != Some(true) {
                noted = first(ask(select, CqlLevel::Serial, &[]).await?)?;
            }
        }
        let noted = noted.map(|(dc,)| dc);
        match noted {
            Some(noted) if noted != own => {
                let (noted, own) = (asked_of(&noted), asked_of(&own));
                Err(OuterFailure::Failed(format!(
                    "the front doors of the keyspace {0} ask {noted}, and this one asks {own}: they \
                     would overwrite each other. Start this one alike, or see docs/stores.md on how \
                     to change all of them",
                    self.keyspace
                )))
            }
            _ => Ok(()),
        }
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

    /// The next keys of the range, in order, and whether there are more after them.
    async fn keys(
        &self,
        page: &PageRead,
        until: Instant,
    ) -> Result<(Vec<Bytes>, bool), OuterFailure> {
        let range = &page.range;
        let each = keys_a_bucket(page.records_max);
        let order = CqlOrder::keys(range.end.is_some(), range.is_reverse);
        let (buckets, start, limit) = (&self.buckets, &range.start[..], each as i32);
        let answer = match &range.end {
            Some(end) => {
                let values = (buckets, start, &end[..], limit);
                self.servers
                    .ask(order, CqlLevel::Quorum, values, until)
                    .await
            }
            None => {
                let values = (buckets, start, limit);
                self.servers
                    .ask(order, CqlLevel::Quorum, values, until)
                    .await
            }
        };
        let mut known: BTreeMap<i16, Vec<Bytes>> = BTreeMap::new();
        for (bucket, key) in rows::<(i16, Vec<u8>)>(answer?)? {
            known.entry(bucket).or_default().push(key.into());
        }
        Ok(merge(known, each, range.is_reverse))
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

    async fn show(&self, page: PageRead) -> Result<ShownPage, OuterFailure> {
        let until = Instant::now() + page.left;
        let (keys, has_more) = self.keys(&page, until).await?;
        let (now_ms, mut bytes) = (wall_ms(), 0);
        let mut records = Vec::new();
        let last = keys.last().cloned();
        let (mut left, mut most) = (&keys[..], RECORDS_A_READ);
        while !left.is_empty() {
            let wanted = page.records_max.saturating_sub(records.len()).max(1);
            let (some, others) = left.split_at(most.min(wanted).min(left.len()));
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
            let bytes_before = bytes;
            let mut found = BTreeMap::new();
            for (key, version, value) in shown {
                if let Some(cell) = self.cell(version, value)? {
                    found.insert(key, cell);
                }
            }
            for key in some {
                let cell = found.remove(&key[..]);
                let Some(mut cell) = cell.filter(|cell| cell.as_ref().is_live(now_ms)) else {
                    continue;
                };
                bytes += key.len() + cell.value.len();
                if page.range.is_keys_only {
                    cell.value = Bytes::new();
                }
                records.push((key.clone(), cell));
            }
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
        let rest = last.filter(|_| has_more);
        Ok(ShownPage {
            records,
            rest: rest.map(|last| rest_behind(&page.range, &last)),
        })
    }
}

/// How many keys of each bucket are looked at for a page of so many records.
fn keys_a_bucket(records: usize) -> usize {
    match records {
        0..=40 => KEYS_A_BUCKET_MIN,
        41..=150 => KEYS_A_BUCKET / 2,
        _ => KEYS_A_BUCKET,
    }
}

/// The keys up to the first end of a bucket that may have more than `each`, in order; and are there
/// more?
fn merge(known: BTreeMap<i16, Vec<Bytes>>, each: usize, is_reverse: bool) -> (Vec<Bytes>, bool) {
    let open = known.values().filter(|keys| keys.len() >= each);
    let ends = open.filter_map(|keys| keys.last().cloned());
    let horizon = if !is_reverse { ends.min() } else { ends.max() };
    let is_known = |key: &Bytes| match (&horizon, is_reverse) {
        (None, _) => true,
        (Some(horizon), false) => key <= horizon,
        (Some(horizon), true) => key >= horizon,
    };
    let mut keys: Vec<Bytes> = known.into_values().flatten().filter(is_known).collect();
    keys.sort_unstable();
    if is_reverse {
        keys.reverse();
    }
    (keys, horizon.is_some())
}

/// The servers that a note of `home` stands for.
fn asked_of(dc: &str) -> String {
    match dc {
        "" => "all data centres (no ?dc=)".to_owned(),
        dc => format!("the data centre {dc} (?dc={dc})"),
    }
}

/// How long Cassandra keeps a record: a little longer than clients see it; 0 = for ever.
fn ttl_s(expiry_ms: Option<u64>) -> i32 {
    let left_s = expiry_ms.map(|at| at.saturating_sub(wall_ms()).div_ceil(1_000) + TTL_SPARE_S);
    // It takes at most 20 years; a record that lasts longer is never taken away by itself.
    left_s.filter(|left_s| *left_s < TTL_S_MAX).unwrap_or(0) as i32
}

/// The first column of the answer to a light-weight transaction: was it applied?
fn is_applied(row: &Row) -> Option<bool> {
    match row.columns.first()? {
        Some(CqlValue::Boolean(is_applied)) => Some(*is_applied),
        _ => None,
    }
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
    fn a_page_ends_where_a_bucket_may_have_more() {
        let key = |n: usize| Bytes::from(format!("{n:04}"));
        // Bucket 0 has even keys and is cut; bucket 1 has odd ones, and all of them.
        let even: Vec<_> = (0..KEYS_A_BUCKET).map(|n| key(2 * n)).collect();
        let odd: Vec<_> = (0..5).map(|n| key(1_000 * n + 1)).collect();
        let known = BTreeMap::from([(0, even.clone()), (1, odd.clone())]);
        let (keys, has_more) = merge(known, KEYS_A_BUCKET, false);
        let mut expected = even;
        expected.insert(1, odd[0].clone());
        assert_eq!((keys, has_more), (expected, true));
        let known = BTreeMap::from([(1, odd.iter().rev().cloned().collect())]);
        let (keys, has_more) = merge(known, KEYS_A_BUCKET, true);
        let back: Vec<_> = odd.into_iter().rev().collect();
        assert_eq!((keys, has_more), (back, false));
    }

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
