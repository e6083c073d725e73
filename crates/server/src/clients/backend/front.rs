//! An engine of others as a backend: operations go to its desk.
//!
//! ```text
//! request ─► quorum: what the engine can promise ─► permit, ticket ─► desk ─► … ─► seat
//!               │ more answers than a majority: 501        │ full: 503
//! ```
//!
//! Invariants
//! 1. Operations of one connection wait together unless two name the same key: then the second one
//!    begins when the first is answered.
//! 2. An operation of a client that has gone is not begun any more; one under way is waited for.
//!
//! Not here: the desk (`front/desk.rs`), scans (`front_scan.rs`).
//! See: docs/stores.md.

use super::front_scan::{self, FrontWalk};
use crate::event_loop::handover::{Held, KeyRequest, PendingOperation};
use crate::event_loop::thread::EventLoop;
use crate::exchange::socket::{ConnectionEnd, HangUpReaction, Socket};
use crate::front::desk::{FrontDesk, FrontWork, not_offered};
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::measure::stages::RequestStage;
use crate::waiting::finished::Finished;
use crate::waiting::seat::{WaitLimit, WakeReason};
use crate::waiting::status::AnswerTerms;
use bytes::Bytes;
use dendra_base::{BadQuorum, Condition, Consistency, Quorum};
use dendra_node::Outcome;
use dendra_stores::{PointRead, RecordWrite};
use dendra_wire::http::response::Style;
use dendra_wire::route::{Entity, Scan as Query};
use dendra_wire::{EntityOp, Refusal};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// An engine of others, as one loop asks it.
#[derive(Clone)]
pub(crate) struct FrontBackend {
    pub(super) desk: Arc<FrontDesk>,
}

impl FrontBackend {
    /// The engine behind `desk`.
    pub(crate) fn new(desk: &Arc<FrontDesk>) -> FrontBackend {
        FrontBackend {
            desk: Arc::clone(desk),
        }
    }

    fn majority(&self) -> u8 {
        self.desk.shape.copies / 2 + 1
    }

    /// Can the engine keep the promises that this operation asks for?
    pub(crate) fn check(&self, entity: &Entity, terms: &AnswerTerms) -> Result<(), Refusal> {
        let (ack, from) = (entity.quorum.ack(), entity.quorum.from());
        if ack > self.majority() {
            return Err(not_offered(format!(
                "{} tells of a majority of its {} copies and of no more, so ack={ack} cannot be promised",
                self.desk.shape.engine, self.desk.shape.copies
            )));
        }
        let level = entity
            .quorum
            .level(self.desk.shape.copies, self.desk.shape.copies);
        let is_write = !matches!(entity.op, EntityOp::Get | EntityOp::Head);
        if is_write && entity.condition != Condition::None && level != Consistency::Linearizable {
            return Err(Refusal::new(
                400,
                BadQuorum::CODE,
                format!(
                    "a condition needs a majority of all copies: ack={ack} from={from} does not ask one; leave both away",
                ),
            ));
        }
        debug_assert!(terms.receipt.from <= self.desk.shape.copies);
        Ok(())
    }

    /// The terms of an operation on a key. The engine writes to a majority at every level.
    pub(crate) fn terms(&self, lane: &EventLoop, style: Style, entity: &Entity) -> AnswerTerms {
        let shape = &self.desk.shape;
        let quorum = match entity.op {
            EntityOp::Get | EntityOp::Head => entity.quorum,
            EntityOp::Put | EntityOp::Delete | EntityOp::Touch => {
                Quorum::usual(shape.copies, shape.copies)
            }
        };
        AnswerTerms::new(style, quorum, shape.durability, &lane.routes())
    }

    /// The terms of the answer to a scan.
    pub(crate) fn scan_terms(&self, lane: &EventLoop, style: Style) -> AnswerTerms {
        let shape = &self.desk.shape;
        let quorum = Quorum::usual(shape.copies, shape.copies);
        let mut terms = AnswerTerms::new(style, quorum, shape.durability, &lane.routes());
        terms.receipt.level = shape.scan_level;
        terms
    }

    /// Why it serves no watch.
    pub(crate) fn no_watch(&self) -> Refusal {
        not_offered(format!(
            "{} tells this front door of no changes: ask again for what you need, or scan",
            self.desk.shape.engine
        ))
    }

    /// Why it explains no read.
    pub(crate) fn no_explanation(&self) -> Refusal {
        not_offered(format!(
            "explain=1 is not offered here: {} does not tell this front door how it finds a record",
            self.desk.shape.engine
        ))
    }

    /// Operations on other keys go on beside each other.
    pub(crate) fn joins(&self, raw_key: &[u8], waiting: &[PendingOperation]) -> bool {
        !waiting.iter().any(|waiting| waiting.held.key == raw_key)
    }

    /// Begins an operation; its end comes to the seat.
    pub(crate) fn begin(
        &self,
        lane: &EventLoop,
        request: KeyRequest<'_>,
    ) -> Result<Held, RefusalCause> {
        let KeyRequest {
            seat,
            source,
            entity,
            stored_key,
            value,
            room,
            deadline_us,
        } = request;
        let value = value.keep(&lane.rooms.bytes, source, room)?;
        let key = Bytes::copy_from_slice(&stored_key[1..]);
        let left = Duration::ZERO;
        let write = |bytes| RecordWrite {
            key: key.clone(),
            value: bytes,
            expiry_ms: entity
                .ttl_s
                .map(|seconds| lane.wall_ms() + u64::from(seconds) * 1_000),
            condition: entity.condition.clone(),
            left,
        };
        let copies = self.desk.shape.copies;
        let work = match entity.op {
            EntityOp::Get | EntityOp::Head => FrontWork::Read(PointRead {
                key: key.clone(),
                level: entity.quorum.level(copies, copies),
                left,
            }),
            EntityOp::Delete => FrontWork::Write(write(None)),
            EntityOp::Put => FrontWork::Write(write(Some(value))),
            EntityOp::Touch => FrontWork::Touch(write(None)),
        };
        let slot = lane.offer_front(&self.desk, seat, deadline_us, work)?;
        Ok(Held::new(key, slot.into(), std::mem::take(room)))
    }

    /// Waits for the ends of everything in `pending`. When the client has gone, operations that
    /// wait at the desk are taken back.
    pub(crate) async fn wait(
        &self,
        socket: &mut Socket,
        pending: &[PendingOperation],
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        let (lane, seat) = (Rc::clone(socket.lane()), Rc::clone(socket.seat()));
        let last_us = pending.iter().map(|waiting| waiting.deadline_us).max();
        let grace_us = limits::OUTCOME_GRACE.as_micros() as u64;
        let last_us = last_us.unwrap_or(u64::MAX).saturating_add(grace_us);
        let abandon = || {
            for (place, waiting) in pending.iter().enumerate() {
                let slot = waiting.held.number as u32;
                if !seat.has(place) && lane.withdraw_front(&self.desk, slot) {
                    lane.metrics().hung_up.add(1);
                    seat.put(
                        place as u32,
                        Finished::Outcome {
                            outcome: Outcome::Abandoned,
                            acks: 0,
                            cell: None,
                        },
                    );
                }
            }
            HangUpReaction::KeepWaiting
        };
        socket.watch(last_us, WaitLimit::Deadline, abandon).await
    }

    /// Notes how long an operation has waited.
    pub(crate) fn note_wait(&self, lane: &EventLoop, pending: &mut PendingOperation) {
        let stages = &lane.metrics().stages;
        let stage = RequestStage::ReplicaWait;
        pending.watch.lap(stages, pending.op, stage);
    }

    /// Begins a scan.
    pub(crate) fn walk(&self, query: &Query) -> FrontWalk {
        front_scan::walk(Arc::clone(&self.desk), query)
    }
}
