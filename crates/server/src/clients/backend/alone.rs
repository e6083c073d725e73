//! A node alone: operations go straight to its own store.
//!
//! ```text
//! read   engine, Wait::Never ─► shown │ would block ─► store pool ─► seat
//! write  the loop's batch ─► log ─► seat
//! scan   job ─► store pool: chunk ─► the connection sends it ─► next job
//! ```
//!
//! Invariants
//! 1. No allocation between the begin of a read that need not wait and its shown answer.
//! 2. A read that waits for the store pool waits alone: the writes in front of it are done.
//! 3. A scan holds one chunk and a cursor, which pins no memory: use of memory does not depend on
//!    the answer or on the reader. Room for the chunk was taken before it is made; a record that is
//!    larger waits for room of its own size.
//!
//! Not here: members of a cluster (`peers/`), the bytes of answers (`answers.rs`).
//! See: docs/api.md, docs/overload.md.

use crate::event_loop::handover::{
    Begun, ChunkTerms, Held, KeyRequest, NoChunk, PendingOperation, ScanChunk, SentValue, WalkEnd,
};
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::lanes::work::StoreWork;
use crate::limits;
use crate::measure::metrics::{OpLabel, RefusalCause};
use crate::measure::stages::{RequestStage, Watch};
use crate::waiting::finished::Finished;
use crate::waiting::scan_job::{ScanJob, ScanStand};
use crate::waiting::seat::{Seat, WaitLimit, WakeReason};
use crate::waiting::status::AnswerTerms;
use bytes::Bytes;
use dendra_base::{CellRef, Key, Quorum, Touch, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{Error, Guard, Lookup};
use dendra_node::{Admission, Class};
use dendra_wire::EntityOp;
use dendra_wire::http::response::Style;
use dendra_wire::route::Scan as Query;
use std::rc::Rc;
use std::time::Duration;

/// The own store as a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone;

impl Alone {
    /// Writes commit in the order of their pushes. A read sees committed writes only, and so waits
    /// for those in front.
    pub(crate) fn joins(self, op: EntityOp) -> bool {
        matches!(op, EntityOp::Put | EntityOp::Delete | EntityOp::Touch)
    }

    /// The terms of the answer to a scan.
    pub(crate) fn scan_terms(self, lane: &EventLoop, style: Style) -> AnswerTerms {
        let durability = lane.parts.settings.durability;
        AnswerTerms::new(style, Quorum::ONE, durability, &lane.routes())
    }

    /// Begins an operation. A read that need not wait calls `show` with the newest cell.
    #[inline]
    pub(crate) fn begin<R>(
        self,
        lane: &EventLoop,
        request: KeyRequest<'_>,
        watch: &mut Watch,
        show: impl FnMut(Option<CellRef<'_>>) -> R,
    ) -> Result<Begun<R>, RefusalCause> {
        match request.entity.op {
            EntityOp::Get | EntityOp::Head => Ok(read(lane, request.stored_key, watch, show)),
            EntityOp::Put => write(lane, &request, OpLabel::Put, watch),
            EntityOp::Delete => write(lane, &request, OpLabel::Delete, watch),
            EntityOp::Touch => touch(lane, &request, watch),
        }
    }

    /// Gives a read to the store pool.
    pub(crate) fn resume(
        self,
        lane: &EventLoop,
        seat: &Rc<Seat>,
        read: &mut PendingOperation,
    ) -> Result<(), RefusalCause> {
        read.watch.restart();
        let work = StoreWork::Get(Key::user(&read.held.key));
        let offered = lane.offer(seat, read.deadline_us, read.watch, work);
        let slot = offered.map_err(|(refused, _)| refused)?;
        read.held.number = slot.into();
        Ok(())
    }

    /// Waits for the log, or for the store pool.
    pub(crate) async fn wait(
        self,
        socket: &mut Socket,
        pending: &[PendingOperation],
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        if let [read] = pending
            && read.op == OpLabel::Get
        {
            return socket
                .pooled(read.held.number as u32, read.deadline_us)
                .await;
        }
        let last_us = pending.iter().map(|write| write.deadline_us).max();
        socket.seat().arm(last_us.unwrap_or(u64::MAX));
        let waited = socket.seat().all(WaitLimit::DeadlineOrPoison).await;
        socket.lane().refresh();
        Ok(waited)
    }

    /// Notes how long an operation has waited: for a read the worker has.
    pub(crate) fn note_wait(self, lane: &EventLoop, pending: &mut PendingOperation) {
        match pending.op {
            OpLabel::Get => pending.watch.restart(),
            op => pending
                .watch
                .lap(&lane.metrics().stages, op, RequestStage::WalWait),
        }
    }
}

fn read<R>(
    lane: &EventLoop,
    stored_key: &[u8],
    watch: &mut Watch,
    mut show: impl FnMut(Option<CellRef<'_>>) -> R,
) -> Begun<R> {
    let stages = &lane.metrics().stages;
    let looked = lane
        .parts
        .store
        .engine
        .get(stored_key, Wait::Never, |cell| {
            watch.lap(stages, OpLabel::Get, RequestStage::Engine);
            show(Some(cell))
        });
    match looked {
        Ok(Lookup::Cell(shown)) => Begun::Shown(shown),
        Ok(Lookup::Nothing) => {
            watch.lap(stages, OpLabel::Get, RequestStage::Engine);
            Begun::Shown(show(None))
        }
        Ok(Lookup::WouldBlock) => Begun::Blocks(held(stored_key)),
        Err(error) if error.would_block() => Begun::Blocks(held(stored_key)),
        Err(error) => {
            tracing::error!(%error, "a read failed");
            Begun::Ended(match error {
                Error::Damaged { .. } => Finished::Damaged,
                _ => Finished::Failed,
            })
        }
    }
}

fn held(stored_key: &[u8]) -> Held {
    Held::new(Bytes::copy_from_slice(&stored_key[1..]), 0, Vec::new())
}

/// Puts a write into the loop's batch.
fn write<R>(
    lane: &EventLoop,
    request: &KeyRequest<'_>,
    op: OpLabel,
    watch: &mut Watch,
) -> Result<Begun<R>, RefusalCause> {
    let KeyRequest {
        entity, stored_key, ..
    } = request;
    let versions = &lane.parts.store.versions;
    let version = versions.next(&lane.parts.store.engine, lane.wall_ms());
    let mut cell = match request.value {
        SentValue::Unread(value) => CellRef::value(stored_key, version, value),
        SentValue::Whole(value) => CellRef::value(stored_key, version, value),
        SentValue::None => CellRef::tombstone(stored_key, version),
    };
    cell.copies = entity.quorum.from();
    cell.expiry_ms = entity
        .ttl_s
        .map(|seconds| lane.wall_ms() + u64::from(seconds) * 1_000);
    lane.push_write(
        request.seat,
        stored_key,
        &cell,
        Guard::If(entity.condition.clone()),
    )?;
    watch.lap(&lane.metrics().stages, op, RequestStage::Engine);
    Ok(Begun::Waits(Held::default()))
}

/// Puts a touch into the loop's batch: the commit finds its value.
fn touch<R>(
    lane: &EventLoop,
    request: &KeyRequest<'_>,
    watch: &mut Watch,
) -> Result<Begun<R>, RefusalCause> {
    let KeyRequest {
        entity, stored_key, ..
    } = request;
    let store = &lane.parts.store;
    let seconds = entity.ttl_s.expect("a touch without one is refused");
    let touch = Touch {
        version: store.versions.next(&store.engine, lane.wall_ms()),
        copies: entity.quorum.from(),
        expiry_ms: lane.wall_ms() + u64::from(seconds) * 1_000,
        born: 0,
        checksum: 0,
        of: Version::ZERO,
    };
    lane.push_touch(
        request.seat,
        stored_key,
        &touch,
        Guard::If(entity.condition.clone()),
    )?;
    watch.lap(&lane.metrics().stages, OpLabel::Touch, RequestStage::Engine);
    Ok(Begun::Waits(Held::until(touch.expiry_ms)))
}

/// A scan of the own store between two chunks.
pub(crate) struct StoreWalk {
    /// `None` while a worker has it, and when it was lost there.
    scan: Option<Box<ScanJob>>,
}

impl StoreWalk {
    /// A scan of the records that live at `now_ms`.
    pub(crate) fn new(query: &Query, now_ms: u64) -> StoreWalk {
        StoreWalk {
            scan: Some(Box::new(ScanJob::new(query, now_ms))),
        }
    }

    /// Where it goes on, in the client's words.
    pub(crate) fn next_key(&self) -> Option<Vec<u8>> {
        self.scan.as_ref().map(|scan| scan.next_key())
    }

    /// The next chunk, behind the earlier content of `out`.
    pub(crate) async fn next(
        &mut self,
        socket: &mut Socket,
        out: Vec<u8>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        let Some(idle) = &mut self.scan else {
            return Err(NoChunk::Ended(None));
        };
        idle.out = out;
        if idle.stand == ScanStand::Open
            && let Err(no_chunk) = self.make(socket, turn).await
        {
            return self.cut(turn, no_chunk);
        }
        let Some(scan) = &mut self.scan else {
            return Err(NoChunk::Ended(None));
        };
        let records = std::mem::take(&mut scan.shown);
        let end = match &scan.stand {
            ScanStand::Open => None,
            ScanStand::Complete => Some(WalkEnd::Complete),
            ScanStand::Cut(next) => Some(WalkEnd::Limited(next.clone())),
            ScanStand::Damaged(_) if turn.is_first && records == 0 => {
                return Err(NoChunk::ended(Finished::Damaged));
            }
            ScanStand::Damaged(next) => {
                socket.lane().metrics().damaged.add(1);
                tracing::error!("a scan met a record that does not match its checksum");
                Some(WalkEnd::Stopped(next.clone()))
            }
        };
        Ok(ScanChunk {
            out: std::mem::take(&mut scan.out),
            records,
            may_open: records > 0 || end.is_some(),
            end,
        })
    }

    /// Records that were made before a failure are sent: the key to go on from is behind them.
    fn cut(&mut self, turn: ChunkTerms, no_chunk: NoChunk) -> Result<ScanChunk, NoChunk> {
        match &mut self.scan {
            Some(scan) if !turn.is_first && scan.shown > 0 => Ok(ScanChunk {
                out: std::mem::take(&mut scan.out),
                records: std::mem::take(&mut scan.shown),
                may_open: true,
                end: Some(WalkEnd::Stopped(scan.next_key())),
            }),
            _ => Err(no_chunk),
        }
    }

    /// Makes a chunk. When the head is sent it waits for room in the pool instead of refusing.
    async fn make(&mut self, socket: &mut Socket, turn: ChunkTerms) -> Result<(), NoChunk> {
        let lane = Rc::clone(socket.lane());
        loop {
            if !turn.is_first
                && let Admission::Delayed { us } = lane.admit(Class::Scan)
            {
                tokio::time::sleep(Duration::from_micros(us)).await;
                lane.refresh();
            }
            match self.fill(socket, turn).await {
                Err(NoChunk::Ended(Some(ended)))
                    if matches!(*ended, Finished::Refused(_))
                        && !turn.is_first
                        && self.scan.is_some()
                        && lane.now_us() < turn.deadline_us =>
                {
                    // The next look of the sweep is soon enough, and is no timer of our own.
                    socket.seat().arm(0);
                    socket.seat().deadline().await;
                    lane.refresh();
                }
                done => return done,
            }
        }
    }

    /// Has the store pool fill the scan's buffer, when there is room for the chunk.
    async fn fill(&mut self, socket: &mut Socket, turn: ChunkTerms) -> Result<(), NoChunk> {
        loop {
            let Some(mut scan) = self.scan.take() else {
                return Err(NoChunk::Ended(None));
            };
            let wanted = scan.needs.max(limits::SCAN_CHUNK_BYTES);
            if !socket.has_scan_room(wanted)
                && !socket.wait_for_scan_room(wanted, turn.deadline_us).await
            {
                self.scan = Some(scan);
                return Err(NoChunk::ended(Finished::Refused(RefusalCause::Bytes)));
            }
            if socket.has_given_up(turn.asked_us) {
                let abandoned = u64::from(turn.is_first);
                socket.lane().metrics().abandoned.add(abandoned);
                return Err(NoChunk::Gone);
            }
            // A chunk larger than all the room there is, is let in alone.
            scan.room = wanted;
            self.fill_once(socket, scan, turn).await?;
            if self.scan.as_ref().is_none_or(|filled| filled.needs == 0) {
                return Ok(());
            }
        }
    }

    async fn fill_once(
        &mut self,
        socket: &mut Socket,
        scan: Box<ScanJob>,
        turn: ChunkTerms,
    ) -> Result<(), NoChunk> {
        let mut watch = turn.watch;
        watch.restart();
        let lane = Rc::clone(socket.lane());
        let work = StoreWork::Chunk(scan);
        let slot = match lane.offer(socket.seat(), turn.deadline_us, watch, work) {
            Ok(slot) => slot,
            Err((refused, work)) => {
                if let StoreWork::Chunk(refused_scan) = work {
                    self.scan = Some(refused_scan);
                }
                return Err(NoChunk::ended(Finished::Refused(refused)));
            }
        };
        let waited = socket.pooled(slot, turn.deadline_us).await;
        // A wait that ended early leaves the place empty, which says the same.
        let _waited = waited.map_err(|_gone| NoChunk::Gone)?;
        let finished = socket.seat().take(0);
        socket.seat().next_round();
        match finished {
            Some(Finished::Chunk(filled)) => {
                self.scan = Some(filled);
                Ok(())
            }
            Some(Finished::ChunkFailed(filled, is_damaged)) => {
                self.scan = Some(filled);
                Err(NoChunk::ended(if is_damaged {
                    Finished::Damaged
                } else {
                    Finished::Failed
                }))
            }
            ended => Err(NoChunk::Ended(ended.map(Box::new))),
        }
    }
}
