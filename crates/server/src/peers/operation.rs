//! A member of a cluster as a backend: operations are begun with the loop's node.
//!
//! ```text
//! request ─► quorum, condition ─► permit, ticket ─► Begin ─► … ─► Outcome ─► seat
//!               │ below the default level: 400       │ gate full: 503
//! ```
//!
//! Invariants
//! 1. Operations of one connection wait together unless two name the same key: then the second one
//!    begins when the first is answered. Answers leave in the order of the requests.
//! 2. Every operation ends: the node keeps deadlines, and the seat's own comes a little later.
//!
//! Not here: operations of a node alone (`clients/backend/alone.rs`), scans (`scan.rs`).
//! See: docs/api.md, docs/protocol.md.

use super::scan::{self, ClusterWalk};
use super::waiting;
use crate::event_loop::handover::{Held, KeyRequest, PendingOperation};
use crate::event_loop::thread::EventLoop;
use crate::event_loop::watches::WatchTerms;
use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::measure::metrics::RefusalCause;
use crate::measure::stages::RequestStage;
use crate::member::Agent;
use crate::waiting::seat::WakeReason;
use crate::waiting::status::AnswerTerms;
use bytes::Bytes;
use dendra_base::peer::{Condition, Operation, Refused as RefusedBy};
use dendra_base::{BadQuorum, Consistency, Quorum};
use dendra_node::step::Event;
use dendra_node::{Admission, Class, Outcome, RefusedBy as NodeRefusal};
use dendra_watch::WatchId;
use dendra_wire::http::response::Style;
use dendra_wire::route::{Entity, Scan as Query};
use dendra_wire::{EntityOp, Refusal};
use std::rc::Rc;

/// The cluster as a backend, through the node of one loop.
#[derive(Clone)]
pub(crate) struct ClusterBackend {
    pub(super) agent: Rc<Agent>,
}

impl ClusterBackend {
    /// The cluster as `agent` reaches it.
    pub(crate) fn new(agent: Rc<Agent>) -> ClusterBackend {
        ClusterBackend { agent }
    }

    /// What the tokens of watches are sealed with: the cluster's id.
    pub(crate) fn watch_seal(&self) -> u64 {
        self.agent.cluster.topology().id()
    }

    /// A client watches a span.
    pub(crate) fn watch_open(&self, watch: WatchId, terms: WatchTerms) {
        let WatchTerms {
            span,
            from,
            heartbeat_us,
        } = terms;
        self.agent.post(Event::WatchOpen {
            watch,
            span,
            from,
            heartbeat_us,
        });
    }

    /// The client of a watch takes more events.
    pub(crate) fn watch_more(&self, watch: WatchId) {
        self.agent.post(Event::WatchMore { watch });
    }

    /// The client of a watch is gone.
    pub(crate) fn watch_close(&self, watch: WatchId) {
        self.agent.post(Event::WatchClose { watch });
    }

    /// A full disk keeps no member from asking the others: its own copy is refused where it would
    /// be written.
    pub(crate) fn admit(&self, class: Class, admission: Admission) -> Admission {
        match admission {
            Admission::Refused {
                refusal: NodeRefusal::DiskFull,
            } if class == Class::Write => Admission::Granted,
            admission => admission,
        }
    }

    /// A condition is judged by a majority of all copies, or not at all.
    pub(crate) fn check(&self, entity: &Entity, terms: &AnswerTerms) -> Result<(), Refusal> {
        if matches!(entity.op, EntityOp::Get | EntityOp::Head)
            || entity.condition == Condition::None
            || terms.receipt.level == Consistency::Linearizable
        {
            return Ok(());
        }
        Err(Refusal::new(
            400,
            BadQuorum::CODE,
            format!(
                "a condition needs a majority of all copies: ack={} from={} does not ask one; leave both away",
                entity.quorum.ack(),
                entity.quorum.from()
            ),
        ))
    }

    /// Operations on other keys go on beside each other.
    pub(crate) fn joins(&self, raw_key: &[u8], waiting: &[PendingOperation]) -> bool {
        !waiting.iter().any(|waiting| waiting.held.key == raw_key)
    }

    /// The terms of the answer to a scan.
    pub(crate) fn scan_terms(&self, lane: &EventLoop, style: Style) -> AnswerTerms {
        let routes = &lane.routes();
        let quorum = Quorum::usual(routes.replication_factor, routes.nodes);
        let durability = lane.parts.settings.durability;
        AnswerTerms::new(style, quorum, durability, routes).of_scan(routes.nodes)
    }

    /// Begins an operation; its outcome comes to the seat.
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
        let condition = entity.condition.clone();
        let operation = match entity.op {
            EntityOp::Get | EntityOp::Head => Operation::Get,
            EntityOp::Delete => Operation::Delete { condition },
            EntityOp::Touch => Operation::Touch {
                expiry_ms: end_of(lane, entity).expect("a touch without one is refused"),
                condition,
            },
            EntityOp::Put => Operation::Put {
                value,
                expiry_ms: end_of(lane, entity),
                condition,
            },
        };
        let permit = lane
            .rooms
            .hold_request(seat)
            .ok_or(RefusalCause::Requests)?;
        let key = Bytes::copy_from_slice(&stored_key[1..]);
        let client = self.agent.ticket(seat, permit);
        self.agent.post(Event::Begin {
            client,
            key: key.clone(),
            operation,
            quorum: entity.quorum,
            deadline_us,
        });
        Ok(Held::new(key, client, std::mem::take(room)))
    }

    /// Waits for the outcomes of everything in `pending`. When the client has gone, the node is
    /// told of those that have not
    /// come, and they are waited for all the same.
    pub(crate) async fn wait(
        &self,
        socket: &mut Socket,
        pending: &[PendingOperation],
    ) -> Result<Result<(), WakeReason>, ConnectionEnd> {
        let last_us = pending.iter().map(|waiting| waiting.deadline_us).max();
        let clients = pending.iter().map(|waiting| waiting.held.number);
        waiting::wait(&self.agent, socket, clients, last_us.unwrap_or(u64::MAX)).await
    }

    /// Notes how long an operation has waited.
    pub(crate) fn note_wait(&self, lane: &EventLoop, pending: &mut PendingOperation) {
        let stages = &lane.metrics().stages;
        pending
            .watch
            .lap(stages, pending.op, RequestStage::ReplicaWait);
    }

    /// The sentence about an outcome that names the member that was in the way.
    pub(crate) fn explain(&self, failure: &Outcome) -> Option<Refusal> {
        let cluster = &self.agent.cluster;
        match failure {
            Outcome::Unreachable {
                up,
                needed,
                from,
                missing,
            } => {
                let url = cluster.url(*missing);
                Some(Refusal::unreachable(*up, *needed, *from, Some(&url)))
            }
            Outcome::NotEnough {
                got,
                needed,
                from,
                known,
                refused: Some((by, why)),
            } => {
                let words = match why {
                    RefusedBy::ClockApart if cluster.own.me == *by => OWN_CLOCK,
                    other => words(*other),
                };
                let sentence = format!("{} {words}", cluster.url(*by));
                Some(Refusal::too_few_answers(*got, *needed, *from, *known).because(&sentence))
            }
            _ => None,
        }
    }

    /// Begins a scan of the records of all members.
    pub(crate) fn walk(&self, query: &Query) -> ClusterWalk {
        scan::walk(Rc::clone(&self.agent), query)
    }
}

/// When a value with the request's time to live ends, by the own wall clock.
fn end_of(lane: &EventLoop, entity: &Entity) -> Option<u64> {
    let ttl_s = entity.ttl_s?;
    Some(lane.wall_ms() + u64::from(ttl_s) * 1_000)
}

/// Words for the wrong clock of the member that was asked, after its name.
const OWN_CLOCK: &str = "has a clock that no majority of the members agrees with: set it right";

/// Why a member did not do it, after its name.
pub(super) fn words(why: RefusedBy) -> &'static str {
    match why {
        RefusedBy::Stale { .. } => "has taken part in a later topology",
        RefusedBy::Foreign => "is of another cluster",
        RefusedBy::NotOwner => "keeps no copy of the key",
        RefusedBy::Busy => "is busy, or its link was lost",
        RefusedBy::DiskFull => "has no room on its disk",
        RefusedBy::Damaged => "has a damaged copy",
        RefusedBy::Late => "did not answer in time",
        RefusedBy::ClockApart => "and this member have clocks more than a minute apart",
        RefusedBy::Stopping => "stops",
        RefusedBy::Unfit => "takes no value of this length, or received it damaged",
    }
}
