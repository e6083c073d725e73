//! etcd as a store: linearizable reads, and writes under a revision that was seen.
//!
//! ```text
//! read        range, linearizable or serializable ─► kv: envelope, mod_revision = version
//! write       put, deleterange                    ─► revision of the header = version
//! condition   range ─► judge ─► txn: mod_revision as seen? put │ delete, else range ─► judge …
//! ttl         lease/grant, a minute longer, for all that end within a minute ─► put with the lease
//! page        range with a limit that follows the length of records
//!   reverse   count_only, a few times ─► where the last page begins ─► range, turned round here
//! upkeep      kv/compaction at a revision of long ago, if that was asked for; is there much history?
//! ```
//!
//! Invariants
//! 1. A version is a revision of this cluster, and the cluster's id: it never repeats.
//! 2. The envelope says when a record expires; the lease only takes its room back.
//! 3. An answer with a page is at most `PAGE_ANSWER_BYTES_MAX` long, or has one record.
//! 4. No range asks etcd for an order: it would read all records of the range to sort them.
//!
//! Not here: connections (`gateway.rs`), which lease (`leases.rs`), which revision (`history.rs`),
//! the search for the last page (`tail.rs`).
//! See: docs/stores.md.

mod gateway;
mod history;
mod leases;
mod tail;

use crate::clock::wall_ms;
use crate::dial::StoreAccess;
use crate::envelope;
use crate::place::StorePlace;
use crate::store::{
    Doing, OuterFailure, OuterStore, PageRead, PointRead, RecordWrite, ShownPage, StoreShape,
    StoreUpkeep, WriteEnd, rest_behind,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use dendra_base::peer::Range;
use dendra_base::{Cell, Condition, Consistency, Durability, Known, Version};
use gateway::{Gateway, GatewayAsk, NoJson, Resend};
use history::{HistoryState, HistoryTail, HistoryWatch, OldestSearch};
use leases::{BothClocks, LeasePool, seconds_for};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tail::{TailSearch, TailStep, depth_of};

/// Longest answer of one record: etcd takes at most 1.5 MiB by default, and base64 makes a third
/// more of it.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longest answer of a page: longer ones are asked for again with half the records.
const PAGE_ANSWER_BYTES_MAX: usize = 512 << 10;
/// Records of one page.
const PAGE_RECORDS_MAX: usize = 1_024;
const PAGE_RECORDS_FIRST: usize = 16;
/// How often the oldest revision is looked for, in one question mostly.
const HISTORY_LOOK_EVERY: Duration = Duration::from_secs(60);
/// The least time for all questions of an upkeep.
const UPKEEP_TIMEOUT: Duration = Duration::from_secs(5);
/// In etcd's answer about a revision that it does not have any more.
const COMPACTED: &str = "has been compacted";
/// The longest that the first look at the cluster takes.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// An etcd cluster, or the part of it below a prefix.
pub(crate) struct EtcdStore {
    gateway: Gateway,
    prefix: Vec<u8>,
    copies: AtomicU8,
    /// How many records fitted into the last pages.
    page_records: AtomicUsize,
    /// How many bytes of its end told where the last page of a reverse scan began. A hint.
    tail_depth: AtomicUsize,
    leases: Mutex<LeasePool>,
    /// Held by one upkeep at a time, across its questions.
    history: tokio::sync::Mutex<HistoryUpkeep>,
    /// Where the steady clock of leases and revisions begins.
    began: Instant,
}

/// The upkeep's own memory.
struct HistoryUpkeep {
    /// `None` = this front door compacts nothing.
    tail: Option<HistoryTail>,
    watch: HistoryWatch,
    looked_at: Option<Duration>,
}

/// A record as it was seen, or its absence.
struct SeenRecord {
    /// 0 = there is none.
    revision: u64,
    /// `None` = there is none, or it has expired.
    live: Option<Cell>,
}

impl EtcdStore {
    /// Store at `place`; no server is connected yet.
    pub(crate) fn new(place: &StorePlace, access: &StoreAccess) -> EtcdStore {
        EtcdStore {
            gateway: Gateway::new(&place.servers, access),
            prefix: format!("{}/", place.part).into_bytes(),
            copies: AtomicU8::new(1),
            page_records: AtomicUsize::new(PAGE_RECORDS_FIRST),
            tail_depth: AtomicUsize::new(0),
            leases: Mutex::default(),
            history: tokio::sync::Mutex::new(HistoryUpkeep {
                tail: place.compact_after.map(HistoryTail::new),
                watch: HistoryWatch::default(),
                looked_at: None,
            }),
            began: Instant::now(),
        }
    }

    fn copies(&self) -> u8 {
        self.copies.load(Ordering::Relaxed)
    }

    fn key(&self, key: &[u8]) -> String {
        BASE64.encode([&self.prefix[..], key].concat())
    }

    /// After the last key of ours.
    fn end(&self) -> String {
        let mut end = self.prefix.clone();
        *end.last_mut().expect("it ends in a slash") += 1;
        BASE64.encode(end)
    }

    async fn ask(
        &self,
        path: &str,
        body: &Value,
        repeat: Resend,
        until: Instant,
    ) -> Result<Value, OuterFailure> {
        let question = GatewayAsk {
            path,
            body,
            repeat,
            bytes_max: ANSWER_BYTES_MAX,
            until,
            token: None,
        };
        self.gateway.ask(question).await.map_err(failure)
    }

    /// The record of a key and value that etcd shows.
    fn cell(&self, shown: &Value, header: &Value) -> Result<Cell, OuterFailure> {
        let version = Version {
            hlc: number(&shown["mod_revision"])?,
            origin: origin(header)?,
            rmw: 0,
        };
        let value = bytes_of(&shown["value"])?;
        envelope::unseal(value, version, self.copies()).ok_or_else(|| {
            let key = bytes_of(&shown["key"]).unwrap_or_default();
            OuterFailure::Damaged(format!(
                "revision {} of the key {} below the prefix was not written by a front door, or was changed",
                version.hlc,
                key.escape_ascii()
            ))
        })
    }

    /// The record that a range of one key shows.
    fn seen(&self, range: &Value, header: &Value) -> Result<SeenRecord, OuterFailure> {
        let Some(shown) = range["kvs"].get(0) else {
            return Ok(SeenRecord {
                revision: 0,
                live: None,
            });
        };
        let cell = self.cell(shown, header)?;
        Ok(SeenRecord {
            revision: cell.version.hlc,
            live: Some(cell).filter(|cell| cell.as_ref().is_live(wall_ms())),
        })
    }

    async fn show_key(
        &self,
        key: &[u8],
        level: Consistency,
        until: Instant,
    ) -> Result<(Value, Value), OuterFailure> {
        let is_serializable = level == Consistency::Eventual;
        let body = json!({"key": self.key(key), "serializable": is_serializable});
        let mut range = self.ask("kv/range", &body, Resend::Freely, until).await?;
        let header = range["header"].take();
        Ok((range, header))
    }

    async fn write_plainly(
        &self,
        write: &RecordWrite,
        until: Instant,
    ) -> Result<Version, OuterFailure> {
        let answer = match &write.value {
            None => {
                let body = json!({"key": self.key(&write.key)});
                let asked = self.ask("kv/deleterange", &body, Resend::Never, until);
                asked.await?
            }
            Some(value) => {
                let mut lease = self.lease(write, until).await?;
                loop {
                    let body = self.put(write, value, lease.id);
                    match self.ask_with_lease("kv/put", &body, lease, until).await? {
                        Some(answer) => break answer,
                        None => lease = self.grant(write, until).await?,
                    }
                }
            }
        };
        told(version_of(&answer["header"]))
    }

    fn put(&self, write: &RecordWrite, value: &[u8], lease: u64) -> Value {
        let sealed = envelope::seal(&write.key, value, write.expiry_ms);
        json!({
            "key": self.key(&write.key),
            "value": BASE64.encode(sealed),
            "lease": lease.to_string(),
        })
    }

    /// A lease that outlives the record: one that it shares, or its own.
    async fn lease(&self, write: &RecordWrite, until: Instant) -> Result<UsedLease, OuterFailure> {
        let Some(expiry_ms) = write.expiry_ms else {
            return Ok(UsedLease::NONE);
        };
        let now = self.now();
        let left_ms = expiry_ms.saturating_sub(now.wall_ms);
        let shared = self.pool(|leases| leases.find(now, left_ms));
        match shared {
            Some(id) => Ok(UsedLease {
                id,
                is_shared: true,
            }),
            None => self.grant(write, until).await,
        }
    }

    /// A new lease, which later records share.
    async fn grant(&self, write: &RecordWrite, until: Instant) -> Result<UsedLease, OuterFailure> {
        let Some(expiry_ms) = write.expiry_ms else {
            return Ok(UsedLease::NONE);
        };
        // It ends later than this clock says: etcd counts from its answer.
        let now = self.now();
        let ttl_s = seconds_for(expiry_ms.saturating_sub(now.wall_ms));
        let body = json!({"TTL": ttl_s.to_string()});
        // A lease that was granted and is not used ends by itself.
        let asked = self
            .ask("lease/grant", &body, Resend::Freely, until)
            .await?;
        let id = number(&asked["ID"])?;
        // etcd may grant less than was asked for: that lease is for this record alone.
        if number(&asked["TTL"])? >= ttl_s {
            self.pool(|leases| leases.keep(now, ttl_s, id));
        }
        Ok(UsedLease {
            id,
            is_shared: false,
        })
    }

    /// Never held across a question.
    fn pool<T>(&self, work: impl FnOnce(&mut LeasePool) -> T) -> T {
        work(&mut self.leases.lock().expect("no holder panics"))
    }

    fn now(&self) -> BothClocks {
        let steady = self.began.elapsed().as_millis();
        BothClocks {
            steady_ms: u64::try_from(steady).unwrap_or(u64::MAX),
            wall_ms: wall_ms(),
        }
    }

    /// Sends a write; `None` when etcd does not know the shared lease, and has written nothing.
    async fn ask_with_lease(
        &self,
        path: &str,
        body: &Value,
        lease: UsedLease,
        until: Instant,
    ) -> Result<Option<Value>, OuterFailure> {
        let question = GatewayAsk {
            path,
            body,
            repeat: Resend::Never,
            bytes_max: ANSWER_BYTES_MAX,
            until,
            token: None,
        };
        match self.gateway.ask(question).await {
            Ok(answer) => Ok(Some(answer)),
            Err(NoJson::NoLease(_)) if lease.is_shared => {
                self.pool(|leases| leases.forget(lease.id));
                Ok(None)
            }
            Err(no_answer) => Err(failure(no_answer)),
        }
    }

    /// Writes over the record that was seen, until that one is there.
    async fn write_over(
        &self,
        write: &RecordWrite,
        until: Instant,
    ) -> Result<WriteEnd, OuterFailure> {
        let mut seen = match write.condition {
            // Most that create find no record: the first look is the try itself.
            Condition::Absent => SeenRecord {
                revision: 0,
                live: None,
            },
            _ => {
                let level = Consistency::Linearizable;
                let (range, header) = self.show_key(&write.key, level, until).await?;
                self.seen(&range, &header)?
            }
        };
        let mut lease = None;
        loop {
            let current = seen.live.as_ref().map(|cell| cell.version);
            if !write.condition.holds(current) {
                return Ok(WriteEnd::Refused(seen.live));
            }
            let success = match &write.value {
                None => json!({"requestDeleteRange": {"key": self.key(&write.key)}}),
                Some(value) => {
                    let used = match lease {
                        Some(used) => used,
                        None => self.lease(write, until).await?,
                    };
                    lease = Some(used);
                    json!({"requestPut": self.put(write, value, used.id)})
                }
            };
            let body = json!({
                "compare": [{
                    "key": self.key(&write.key),
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": seen.revision.to_string(),
                }],
                "success": [success],
                "failure": [{"requestRange": {"key": self.key(&write.key)}}],
            });
            let used = lease.unwrap_or(UsedLease::NONE);
            let asked = self.ask_with_lease("kv/txn", &body, used, until).await?;
            let Some(answer) = asked else {
                lease = Some(self.grant(write, until).await?);
                continue;
            };
            if answer["succeeded"].as_bool() == Some(true) {
                return told(version_of(&answer["header"])).map(WriteEnd::Applied);
            }
            let range = &answer["responses"][0]["response_range"];
            seen = self.seen(range, &answer["header"])?;
        }
    }

    async fn shape(&self) -> Result<StoreShape, OuterFailure> {
        let until = Instant::now() + OPEN_TIMEOUT;
        let (path, body) = ("cluster/member/list", json!({}));
        let answer = self.ask(path, &body, Resend::Freely, until).await?;
        let members = answer["members"].as_array().map_or(&[][..], Vec::as_slice);
        let votes = |member: &&Value| member["isLearner"].as_bool() != Some(true);
        let voters = members.iter().filter(votes).count();
        let copies = u8::try_from(voters).ok().filter(|copies| *copies > 0);
        let copies =
            copies.ok_or_else(|| OuterFailure::Failed(format!("{voters} members vote")))?;
        self.copies.store(copies, Ordering::Relaxed);
        // A server without a majority knows its members too. This asks for one.
        let shown = self.show_key(b"\0", Consistency::Linearizable, until);
        shown.await?;
        Ok(StoreShape {
            engine: "etcd",
            copies,
            durability: Durability::Sync,
            scan_level: Consistency::Linearizable,
        })
    }

    /// Compacts what is old enough, and looks now and then whether the history grows.
    async fn keep_history(&self, left: Duration) -> Result<StoreUpkeep, OuterFailure> {
        let (now, until) = (
            self.began.elapsed(),
            Instant::now() + left.max(UPKEEP_TIMEOUT),
        );
        let mut upkeep = StoreUpkeep::default();
        let mut history = self.history.lock().await;
        let is_looked_at = history
            .looked_at
            .is_some_and(|at| now.saturating_sub(at) < HISTORY_LOOK_EVERY);
        let is_due = history.tail.as_ref().is_some_and(|tail| tail.is_due(now));
        if is_looked_at && !is_due {
            return Ok(upkeep);
        }
        let level = Consistency::Linearizable;
        let (_, header) = self.show_key(b"\0", level, until).await?;
        let newest = number(&header["revision"])?;
        // It was the newest no earlier than it is noted.
        let seen_at = self.began.elapsed();
        let old = history.tail.as_mut().filter(|_| is_due);
        if let Some(old) = old.and_then(|tail| tail.note(seen_at, newest)) {
            self.compact(old, until).await?;
        }
        if is_looked_at {
            return Ok(upkeep);
        }
        history.looked_at = Some(seen_at);
        let mut search = OldestSearch::new(history.watch.oldest(), newest);
        while let Some(revision) = search.next() {
            search.note(self.is_readable(revision, until).await?);
        }
        let oldest = search.end();
        let revisions = newest - oldest + 1;
        upkeep.revisions_kept = Some(revisions);
        let remedy = "start its servers with --auto-compaction-mode periodic \
            --auto-compaction-retention 1h, or add ?compact-after=1h to --store (docs/stores.md)";
        match history.watch.note(seen_at, oldest, newest) {
            HistoryState::Fine => {}
            HistoryState::NeverCompacted => tracing::warn!(
                revisions,
                "etcd was never compacted: it keeps every value that was ever written, until its \
                 space is full; {remedy}"
            ),
            HistoryState::Grows => tracing::warn!(
                revisions,
                "etcd has not been compacted for hours, and keeps every value that was written \
                 since; {remedy}"
            ),
        }
        Ok(upkeep)
    }

    /// Has etcd forget the revisions before this one. Another front door, or etcd itself, may have
    /// come first.
    async fn compact(&self, revision: u64, until: Instant) -> Result<(), OuterFailure> {
        let body = json!({"revision": revision.to_string()});
        let asked = self.ask("kv/compaction", &body, Resend::Freely, until);
        match asked.await {
            Err(OuterFailure::Failed(why)) if why.contains(COMPACTED) => Ok(()),
            answered => answered.map(drop),
        }
    }

    /// Does etcd still have this revision?
    async fn is_readable(&self, revision: u64, until: Instant) -> Result<bool, OuterFailure> {
        let body = json!({
            "key": self.key(b"\0"),
            "revision": revision.to_string(),
            "count_only": true,
        });
        match self.ask("kv/range", &body, Resend::Freely, until).await {
            Ok(_) => Ok(true),
            Err(OuterFailure::Failed(why)) if why.contains(COMPACTED) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Up to `records_max` records from `start` on; `None` when they make too long an answer.
    async fn range(
        &self,
        start: &[u8],
        end: &str,
        records_max: usize,
        until: Instant,
    ) -> Result<Option<Value>, OuterFailure> {
        let body = json!({
            "key": self.key(start),
            "range_end": end,
            "limit": records_max.to_string(),
        });
        let bytes_max = match records_max {
            1 => ANSWER_BYTES_MAX,
            _ => PAGE_ANSWER_BYTES_MAX,
        };
        let asked = self.gateway.ask(GatewayAsk {
            path: "kv/range",
            body: &body,
            repeat: Resend::Freely,
            bytes_max,
            until,
            token: None,
        });
        match asked.await {
            Ok(answer) => Ok(Some(answer)),
            Err(NoJson::TooLong) if records_max > 1 => Ok(None),
            Err(no_answer) => Err(failure(no_answer)),
        }
    }

    /// How many keys there are from `start` on.
    async fn count(&self, start: &[u8], end: &str, until: Instant) -> Result<u64, OuterFailure> {
        let body = json!({"key": self.key(start), "range_end": end, "count_only": true});
        let answer = self.ask("kv/range", &body, Resend::Freely, until).await?;
        match &answer["count"] {
            // It leaves zeros away.
            Value::Null => Ok(0),
            count => number(count),
        }
    }

    /// The first page of a range: etcd's answer, and how many records were asked for.
    async fn first_page(
        &self,
        range: &Range,
        end: &str,
        mut records_max: usize,
        until: Instant,
    ) -> Result<(Value, usize), OuterFailure> {
        loop {
            match self.range(&range.start, end, records_max, until).await? {
                Some(answer) => return Ok((answer, records_max)),
                None => records_max = (records_max / 4).max(1),
            }
        }
    }

    /// The last page of a range, as `first_page`, and whether the range has more before it.
    async fn last_page(
        &self,
        range: &Range,
        end: &str,
        mut records_max: usize,
        until: Instant,
    ) -> Result<(Value, usize, bool), OuterFailure> {
        let depth = self.tail_depth.load(Ordering::Relaxed);
        let mut search = TailSearch::new(&range.start, range.end.as_deref(), depth);
        loop {
            let count = self.count(search.from(), end, until).await?;
            match search.step(count, records_max as u64) {
                TailStep::Again => continue,
                TailStep::Nothing => return Ok((Value::Null, records_max, false)),
                TailStep::Read => {}
            }
            match self.range(search.from(), end, records_max, until).await? {
                None => records_max = (records_max / 4).max(1),
                // More keys came than were counted: these would not be the last ones.
                Some(answer) if answer["more"].as_bool() == Some(true) => {}
                // All of them have gone meanwhile, and there may be others before them.
                Some(answer) if answer["kvs"].get(0).is_none() && !search.is_whole() => {}
                Some(answer) => return Ok((answer, records_max, !search.is_whole())),
            }
        }
    }

    async fn show(&self, page: PageRead) -> Result<ShownPage, OuterFailure> {
        let until = Instant::now() + page.left;
        let range = &page.range;
        let end = match &range.end {
            Some(end) => self.key(end),
            None => self.end(),
        };
        let usual = self.page_records.load(Ordering::Relaxed);
        let most = usual.min(page.records_max).max(1);
        let (mut answer, mut records_max, has_more);
        if range.is_reverse {
            (answer, records_max, has_more) = self.last_page(range, &end, most, until).await?;
        } else {
            (answer, records_max) = self.first_page(range, &end, most, until).await?;
            has_more = answer["more"].as_bool() == Some(true);
        }
        let mut kvs = match answer["kvs"].take() {
            Value::Array(kvs) => kvs,
            _ => Vec::new(),
        };
        if range.is_reverse {
            kvs.reverse();
        }
        let (now_ms, mut bytes) = (wall_ms(), 0);
        let (mut records, mut first, mut last) = (Vec::new(), None, None);
        for shown in &kvs {
            let mut key = bytes_of(&shown["key"])?;
            let key = Bytes::from(key.split_off(self.prefix.len().min(key.len())));
            let mut cell = self.cell(shown, &answer["header"])?;
            bytes += key.len() + cell.value.len();
            first.get_or_insert_with(|| key.clone());
            last = Some(key.clone());
            if cell.as_ref().is_live(now_ms) {
                if range.is_keys_only {
                    cell.value = Bytes::new();
                }
                records.push((key, cell));
            }
        }
        if let (true, Some(largest), Some(smallest)) = (range.is_reverse, &first, &last) {
            let depth = depth_of(smallest, largest);
            self.tail_depth.store(depth, Ordering::Relaxed);
        }
        // A page that was to be short is no measure of longer ones, unless it was too long.
        if most == usual || records_max < most {
            if bytes < page.bytes_max / 2 {
                records_max *= 2;
            }
            let next = records_max.min(PAGE_RECORDS_MAX);
            self.page_records.store(next, Ordering::Relaxed);
        }
        let rest = last.filter(|_| has_more);
        Ok(ShownPage {
            records,
            rest: rest.map(|key| rest_behind(range, &key)),
        })
    }
}

impl OuterStore for EtcdStore {
    fn open(&self) -> Doing<'_, StoreShape> {
        Box::pin(self.shape())
    }

    fn look(&self, left: Duration) -> Doing<'_, ()> {
        Box::pin(async move {
            let until = Instant::now() + left;
            let looked = self.show_key(b"\0", Consistency::Linearizable, until);
            looked.await.map(drop)
        })
    }

    fn tend(&self, left: Duration) -> Doing<'_, StoreUpkeep> {
        Box::pin(self.keep_history(left))
    }

    fn read(&self, read: PointRead) -> Doing<'_, Option<Cell>> {
        Box::pin(async move {
            let until = Instant::now() + read.left;
            let (range, header) = self.show_key(&read.key, read.level, until).await?;
            let shown = range["kvs"].get(0);
            shown.map(|shown| self.cell(shown, &header)).transpose()
        })
    }

    fn write(&self, write: RecordWrite) -> Doing<'_, WriteEnd> {
        Box::pin(async move {
            let until = Instant::now() + write.left;
            match write.condition {
                Condition::None => {
                    let written = self.write_plainly(&write, until).await;
                    written.map(WriteEnd::Applied)
                }
                _ => self.write_over(&write, until).await,
            }
        })
    }

    fn page(&self, page: PageRead) -> Doing<'_, ShownPage> {
        Box::pin(self.show(page))
    }
}

/// The lease of one write.
#[derive(Clone, Copy)]
struct UsedLease {
    /// 0 = none.
    id: u64,
    /// True when it was granted for another record: etcd may have lost it since.
    is_shared: bool,
}

impl UsedLease {
    const NONE: UsedLease = UsedLease {
        id: 0,
        is_shared: false,
    };
}

/// What an answer that did not come means for a record.
fn failure(no_answer: NoJson) -> OuterFailure {
    match no_answer {
        NoJson::OuterFailure(failure) => failure,
        NoJson::TooLong => OuterFailure::Damaged("etcd's answer has no end".to_owned()),
        NoJson::Stranger(why) | NoJson::NoLease(why) => OuterFailure::Failed(why),
    }
}

/// An answer without a part that it must have: its write was carried out all the same.
fn told(version: Result<Version, OuterFailure>) -> Result<Version, OuterFailure> {
    version.map_err(|failure| OuterFailure::Unanswered(Known::Unknown, failure.to_string()))
}

/// etcd writes 64-bit numbers as text.
fn number(value: &Value) -> Result<u64, OuterFailure> {
    let read = value.as_str().and_then(|text| text.parse().ok());
    read.ok_or_else(|| OuterFailure::Failed(format!("etcd answers {value} for a number")))
}

fn bytes_of(value: &Value) -> Result<Vec<u8>, OuterFailure> {
    let text = value.as_str().unwrap_or_default();
    let read = BASE64.decode(text);
    read.map_err(|_| OuterFailure::Failed("etcd's answer is not base64".to_owned()))
}

/// The cluster's id in half its length: revisions of another cluster are other versions.
fn origin(header: &Value) -> Result<u32, OuterFailure> {
    let id = number(&header["cluster_id"])?;
    Ok((id ^ (id >> 32)) as u32)
}

fn version_of(header: &Value) -> Result<Version, OuterFailure> {
    Ok(Version {
        hlc: number(&header["revision"])?,
        origin: origin(header)?,
        rmw: 0,
    })
}
