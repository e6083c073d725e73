//! Scans: chunks made by the store pool, pulled by the client's socket.
//!
//! ```text
//! loop: job ─► worker: cursor ─► out, about 64 KiB of records ─► loop: write all of it ─► next job
//!       ▲                                                              │
//!       └──────────────── only when the client took the last one ◄─────┘
//! ```
//!
//! Invariants
//! 1. A scan holds one chunk and a cursor, which pins nothing: memory does not depend on the answer
//!    or on the reader. Room for the chunk was taken before it is made, and is held until the socket
//!    has it; a record that is larger waits for room of its own size.
//! 2. The head is sent with the first record or with the end, so that a failure before has a status.
//! 3. The trailer says `complete` exactly when nothing of the range is left out.
//!
//! Not here: framing (crate `wire`, `http::records`), merging (crate `engine`).
//! See: docs/api.md, section "Many keys".

use crate::connection::{Connection, End};
use crate::limits;
use crate::metrics::{Op, Refused, Share};
use crate::stages::Watch;
use crate::status::{self, Terms};
use crate::store_pool::{PoolAnswer, Work};
use dendra_base::Quorum;
use dendra_engine::{Cursor, Direction, Engine, Flow, Progress, Show as Cells};
use dendra_node::{Class, Entry, Known, Outcome};
use dendra_wire::Refusal;
use dendra_wire::http::records::{self, Show};
use dendra_wire::http::response::{self, ScanEnd, Style};
use dendra_wire::http::{Connection as Persistence, Framing};
use dendra_wire::route::{self, Scan as Query};
use std::ops::Bound;
use std::time::Duration;

/// Where a scan stands between two chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    /// There may be more.
    Open,
    /// The range is exhausted.
    Complete,
    /// There is more, but the limit is reached: the key to go on from.
    Cut(Vec<u8>),
    /// The record at this key is damaged.
    Damaged(Vec<u8>),
}

/// A scan as it travels between its connection and the store pool.
#[derive(Debug)]
pub(crate) struct Scan {
    cursor: Cursor,
    framing: Framing,
    show: Show,
    direction: Direction,
    left: Option<u64>,
    out: Vec<u8>,
    /// Bytes of `out` that room was taken for.
    room: usize,
    /// The next record alone needs this much; 0 when it is not known to need more than a chunk.
    needs: usize,
    /// Stored key of the last record shown.
    last_key: Vec<u8>,
    stand: Stand,
}

impl Scan {
    fn new(query: &Query, now_ms: u64, out: Vec<u8>) -> Scan {
        let direction = query.direction;
        Scan {
            cursor: Cursor::new(
                Bound::Included(query.start.clone()),
                Bound::Excluded(query.end.clone()),
                direction,
                Cells::Live { now_ms },
            ),
            framing: query.framing,
            show: query.show,
            direction,
            left: query.limit,
            out,
            room: limits::SCAN_CHUNK_BYTES,
            needs: 0,
            last_key: Vec::new(),
            stand: Stand::Open,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Scan {
        let query = Query {
            start: vec![0x10],
            end: vec![0x11],
            direction: Direction::Forward,
            limit: None,
            show: Show::KeysAndValues,
            scope: route::Scope::Local,
            framing: Framing::Plain,
            timeout_ms: 1_000,
        };
        Scan::new(&query, 0, Vec::new())
    }

    /// Appends records to `out` until a chunk is full, the range ends, or enough was looked at.
    pub(crate) fn fill(&mut self, engine: &Engine) -> Result<(), dendra_engine::Error> {
        let Scan {
            cursor,
            framing,
            show,
            direction,
            left,
            out,
            room,
            needs,
            last_key,
            stand,
        } = self;
        let begin = out.len();
        *needs = 0;
        let progress = engine.scan(cursor, limits::SCAN_LOOK_BYTES, |key, cell| {
            if *left == Some(0) {
                *stand = Stand::Cut(resume_key(*direction, key, last_key));
                return Flow::Pause;
            }
            if !cell.is_intact(key) {
                *stand = Stand::Damaged(key[1..].to_vec());
                return Flow::Pause;
            }
            let len = records::record_len_max(*framing, *show, &key[1..], cell.value);
            if out.len() + len > *room {
                if out.len() == begin {
                    *needs = begin + len;
                }
                return Flow::Stay;
            }
            if out.capacity() < out.len() + len {
                let capacity = (out.len() + len).max((2 * out.capacity()).min(*room));
                out.reserve_exact(capacity - out.len());
            }
            records::record(out, *framing, *show, &key[1..], cell.value);
            last_key.clear();
            last_key.extend_from_slice(key);
            if let Some(left) = left {
                *left -= 1;
            }
            if out.len() >= limits::SCAN_CHUNK_BYTES {
                Flow::Pause
            } else {
                Flow::Continue
            }
        })?;
        if progress == Progress::Done && *stand == Stand::Open {
            *stand = Stand::Complete;
        }
        Ok(())
    }

    /// The client's key from which to go on when the scan is cut here.
    fn next_key(&self) -> Vec<u8> {
        let mut next = self.last_key.get(1..).unwrap_or_default().to_vec();
        if self.direction == Direction::Forward {
            next.push(0);
        }
        next
    }
}

/// `start=` of a forward scan that goes on with `key`; `end=`, exclusive, of a backward one that
/// has shown `last_key`.
fn resume_key(direction: Direction, key: &[u8], last_key: &[u8]) -> Vec<u8> {
    match direction {
        Direction::Forward => key[1..].to_vec(),
        Direction::Backward => last_key[1..].to_vec(),
    }
}

/// A scan that was asked for.
#[derive(Debug)]
pub(crate) struct PendingScan {
    pub(crate) query: Query,
    pub(crate) style: Style,
    pub(crate) began_ns: u64,
    pub(crate) deadline_us: u64,
    watch: Watch,
}

impl PendingScan {
    /// A scan that arrived at `now_ns`.
    pub(crate) fn new(query: Query, style: Style, now_ns: u64, watch: Watch) -> PendingScan {
        let deadline_us = now_ns / 1_000 + u64::from(query.timeout_ms) * 1_000;
        PendingScan {
            query,
            style,
            began_ns: now_ns,
            deadline_us,
            watch,
        }
    }

    /// Does it ask for the keys of the whole cluster?
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.query.scope == route::Scope::Cluster
    }
}

/// What came instead of a chunk.
enum Missing {
    Refused(Refused),
    Late,
    TooSlow,
    Damaged,
    Failed,
    /// The client has gone.
    Gone,
}

impl Connection {
    /// Answers a scan from its head to its trailer.
    pub(crate) async fn stream(&mut self, pending: PendingScan) -> Result<(), End> {
        self.flush().await?;
        let _held = self.hold_input();
        let durability = self.lane.shared.settings.durability;
        let terms = Terms::new(pending.style, Quorum::ONE, durability, &self.lane.routes);
        let mut out = self.lane.output_buffer();
        response::scan_head(&mut out, terms.style, pending.query.framing, terms.receipt);
        let head_len = out.len();
        let mut scan = Box::new(Scan::new(&pending.query, self.lane.wall_ms(), out));
        if pending.query.is_empty() {
            scan.stand = Stand::Complete;
        }
        while scan.stand == Stand::Open && scan.out.len() == head_len {
            scan = match self.chunk(scan, pending.deadline_us, pending.watch).await {
                Ok(scan) => scan,
                Err((Missing::Gone, _)) => return Err(End::HungUp),
                Err((missing, _)) => {
                    self.answer_missing(&terms, &pending, missing);
                    return Ok(());
                }
            };
        }
        if matches!(scan.stand, Stand::Damaged(_)) && scan.out.len() == head_len {
            self.answer_missing(&terms, &pending, Missing::Damaged);
            return Ok(());
        }
        self.lane.finish_since(Op::Scan, 200, pending.began_ns);
        self.stream_on(scan, pending.watch).await
    }

    /// Sends chunk after chunk, then the trailer.
    async fn stream_on(&mut self, mut scan: Box<Scan>, watch: Watch) -> Result<(), End> {
        loop {
            self.unsent.add(Op::Scan, watch);
            self.lane.reuse_output(std::mem::take(&mut self.out));
            self.out = std::mem::take(&mut scan.out);
            match &scan.stand {
                Stand::Open => {}
                Stand::Complete => {
                    response::scan_end(&mut self.out, scan.framing, ScanEnd::Complete);
                    return Ok(());
                }
                Stand::Cut(next) => {
                    response::scan_end(&mut self.out, scan.framing, ScanEnd::Limited { next });
                    return Ok(());
                }
                Stand::Damaged(next) => {
                    self.lane.metrics().damaged.add(1);
                    tracing::error!("a scan met a record that does not match its checksum");
                    response::scan_end(&mut self.out, scan.framing, ScanEnd::Stopped { next });
                    return Ok(());
                }
            }
            self.flush().await?;
            if self.lane.is_draining() {
                self.is_closing = true;
                self.cut(&scan);
                return Ok(());
            }
            scan.out = self.lane.output_buffer();
            let deadline_us = self.deadline_us(self.lane.shared.settings.timeouts.write);
            scan = match self.next_chunk(scan, deadline_us, watch).await {
                Ok(scan) => scan,
                Err(Some(scan)) => {
                    self.cut(&scan);
                    return Ok(());
                }
                // The worker was lost together with the scan, or the client has gone: it sees no trailer.
                Err(None) => return Err(End::Done),
            };
        }
    }

    fn cut(&mut self, scan: &Scan) {
        let next = scan.next_key();
        response::scan_end(
            &mut self.out,
            scan.framing,
            ScanEnd::Stopped { next: &next },
        );
    }

    /// One more chunk of a scan whose head is sent: waits for room in the pool instead of refusing.
    async fn next_chunk(
        &mut self,
        mut scan: Box<Scan>,
        deadline_us: u64,
        watch: Watch,
    ) -> Result<Box<Scan>, Option<Box<Scan>>> {
        loop {
            if let Entry::Delayed { us } = self.lane.admit(Class::Scan) {
                tokio::time::sleep(Duration::from_micros(us)).await;
                self.lane.refresh();
            }
            scan = match self.chunk(scan, deadline_us, watch).await {
                Ok(scan) => return Ok(scan),
                Err((Missing::Refused(_), Some(scan))) if self.lane.now_us() < deadline_us => {
                    // The next look of the sweep is soon enough, and is no timer of our own.
                    self.seat.arm(0);
                    self.seat.deadline().await;
                    self.lane.refresh();
                    scan
                }
                Err((_, scan)) => return Err(scan),
            };
        }
    }

    /// Has the store pool fill the scan's buffer once, when there is room for what comes.
    async fn chunk(
        &mut self,
        mut scan: Box<Scan>,
        deadline_us: u64,
        watch: Watch,
    ) -> Result<Box<Scan>, (Missing, Option<Box<Scan>>)> {
        loop {
            let wanted = scan.needs.max(limits::SCAN_CHUNK_BYTES);
            if !self.has_scan_room(wanted) && !self.wait_for_scan_room(wanted, deadline_us).await {
                return Err((Missing::Refused(Refused::Bytes), Some(scan)));
            }
            if self.expect_client().is_err() {
                return Err((Missing::Gone, None));
            }
            // What is more than all the room there is, is let in alone.
            scan.room = wanted;
            scan = self.fill_once(scan, deadline_us, watch).await?;
            if scan.needs == 0 {
                return Ok(scan);
            }
        }
    }

    fn has_scan_room(&self, bytes: usize) -> bool {
        let bytes = bytes.min(self.lane.shared.bytes.limit() as usize);
        let room = self.out_room.as_ref();
        room.is_some_and(|(room, _)| room.bytes() >= bytes)
    }

    /// Waits for room in the share of scans, and then in all of it. Nothing is held while the first is waited for.
    pub(crate) async fn wait_for_scan_room(&mut self, bytes: usize, until_us: u64) -> bool {
        self.out_room = None;
        let (seat, source) = (&self.seat, self.source);
        let share = self
            .lane
            .scan_bytes
            .wait(seat, source, bytes, until_us)
            .await;
        self.lane.refresh();
        let Some(share) = share else {
            return false;
        };
        let room = self.lane.bytes.wait(seat, source, bytes, until_us).await;
        self.lane.refresh();
        self.out_room = room.map(|room| (room, share));
        self.out_room.is_some()
    }

    /// Has the store pool fill the scan's buffer once.
    async fn fill_once(
        &mut self,
        scan: Box<Scan>,
        deadline_us: u64,
        mut watch: Watch,
    ) -> Result<Box<Scan>, (Missing, Option<Box<Scan>>)> {
        watch.restart();
        let work = Work::Chunk(scan);
        let slot = match self.lane.offer(&self.seat, deadline_us, watch, work) {
            Ok(slot) => slot,
            Err((refused, Work::Chunk(scan))) => {
                return Err((Missing::Refused(refused), Some(scan)));
            }
            Err((refused, Work::Get(_) | Work::Page(_))) => {
                return Err((Missing::Refused(refused), None));
            }
        };
        let answer = self.pooled(slot, deadline_us).await;
        match answer.map_err(|_gone| (Missing::Gone, None))? {
            Ok(PoolAnswer::Chunk(scan)) => Ok(scan),
            Ok(PoolAnswer::ChunkFailed(scan, is_damaged)) if is_damaged => {
                Err((Missing::Damaged, Some(scan)))
            }
            Ok(PoolAnswer::ChunkFailed(scan, _)) => Err((Missing::Failed, Some(scan))),
            Ok(PoolAnswer::Late) => Err((Missing::Late, None)),
            Ok(PoolAnswer::Damaged) => Err((Missing::Damaged, None)),
            Ok(PoolAnswer::Failed | PoolAnswer::Cell(_) | PoolAnswer::Page(_)) => {
                Err((Missing::Failed, None))
            }
            Err(_) => Err((Missing::TooSlow, None)),
        }
    }

    fn answer_missing(&mut self, terms: &Terms, pending: &PendingScan, missing: Missing) {
        let out = &mut self.out;
        let metrics = self.lane.metrics();
        let status = match missing {
            Missing::Refused(refused) => {
                metrics.refuse(Share::Scans, refused);
                status::write_refusal(out, terms.style, &status::refused(refused))
            }
            Missing::Late => {
                metrics.refuse(Share::Scans, Refused::Deadline);
                status::write(out, terms, &Outcome::DeadlinePassed, b"")
            }
            Missing::TooSlow => {
                status::write(out, terms, &terms.not_enough(Known::NotApplied), b"")
            }
            Missing::Damaged => {
                metrics.damaged.add(1);
                status::write_refusal(out, terms.style, &Refusal::damaged())
            }
            Missing::Failed | Missing::Gone => {
                status::write_refusal(out, terms.style, &status::failed())
            }
        };
        self.lane.finish_since(Op::Scan, status, pending.began_ns);
        self.is_closing |= terms.style.connection == Persistence::Close;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_goes_on_behind_its_last_key_or_in_front_of_it() {
        let mut scan = Scan::for_tests();
        scan.last_key = b"\x10k".to_vec();
        assert_eq!(scan.next_key(), b"k\0");
        scan.direction = Direction::Backward;
        assert_eq!(scan.next_key(), b"k");
    }
}
