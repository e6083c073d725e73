//! A client's operation in a cluster: begun with the loop's node, answered from its outcome.
//!
//! ```text
//! request ─► quorum, condition ─► permit, ticket ─► Begin ─► … ─► Finished ─► status, ETag, receipt
//!               │ below the default level: 400       │ gate full: 503
//! ```
//!
//! Invariants
//! 1. Operations of one connection wait together unless two name the same key: then the second one
//!    begins when the first is answered. Answers leave in the order of the requests.
//! 2. Every operation ends: the node keeps deadlines, and the seat's own stands a little behind.
//!
//! Not here: operations of a node by itself (`requests.rs`).
//! See: docs/api.md, docs/protocol.md.

use crate::connection::{Connection, End};
use crate::lane::Lane;
use crate::limits;
use crate::metrics::{Op, Refused, Share};
use crate::requests::answer_read;
use crate::room::Room;
use crate::stages::{Stage, Watch};
use crate::status::{self, Terms};
use bytes::Bytes;
use dendra_base::peer::{Answer, Condition, Operation, Range, Refused as RefusedBy};
use dendra_base::{BadQuorum, Cell, Consistency};
use dendra_node::step::{ClientTicket, Event};
use dendra_node::{Known, MemberIndex, Outcome};
use dendra_wire::Refusal;
use dendra_wire::route::Entity;

/// What the node came to.
#[derive(Debug)]
pub(crate) enum Finished {
    /// An operation on a key.
    Operation {
        /// Which outcome.
        outcome: Outcome,
        /// Replicas that answered.
        acks: u8,
        /// Of a read.
        cell: Option<Cell>,
    },
    /// A page of a scan.
    Page {
        /// Live records.
        records: Vec<(Bytes, Cell)>,
        /// What is still to come.
        rest: Option<Range>,
        /// Why the scan stops here.
        failure: Option<Outcome>,
    },
    /// The answer to a peer that asked over plain HTTP.
    Reply(Answer),
}

/// An operation whose outcome is not there yet.
#[derive(Debug)]
pub(crate) struct PendingOperation {
    entity: Entity,
    terms: Terms,
    op: Op,
    key: Bytes,
    began_ns: u64,
    deadline_us: u64,
    watch: Watch,
    /// How the node names it.
    pub(crate) client: ClientTicket,
    /// For the value that the node works on.
    pub(crate) room: Vec<Room>,
}

/// A condition is judged by a majority of all copies, or not at all.
pub(crate) fn check_condition(entity: &Entity, terms: &Terms) -> Result<(), Refusal> {
    if entity.condition == Condition::None || terms.receipt.level == Consistency::Linearizable {
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

impl Connection {
    /// Does an operation on this key wait already?
    pub(crate) fn is_operating_on(&self, raw_key: &[u8]) -> bool {
        self.operations.iter().any(|waiting| waiting.key == raw_key)
    }

    /// Begins an operation; its outcome comes to the seat.
    pub(crate) fn begin(
        &mut self,
        entity: &Entity,
        terms: Terms,
        stored_key: &[u8],
        operation: Operation,
        watch: Watch,
    ) -> Result<(), Refused> {
        let agent = self
            .lane
            .agent()
            .expect("a node by itself never comes here");
        let permit = self.lane.hold_request().ok_or(Refused::Requests)?;
        let op = match operation {
            Operation::Get => Op::Get,
            Operation::Put { .. } => Op::Put,
            Operation::Delete { .. } => Op::Delete,
        };
        let key = Bytes::copy_from_slice(&stored_key[1..]);
        let deadline_us = self.lane.now_us() + u64::from(entity.timeout_ms) * 1_000;
        let client = agent.ticket(&self.seat, permit);
        agent.post(Event::Begin {
            client,
            key: key.clone(),
            operation,
            quorum: entity.quorum,
            deadline_us,
        });
        self.operations.push(PendingOperation {
            entity: *entity,
            terms,
            op,
            key,
            began_ns: self.lane.now_ns(),
            deadline_us,
            watch,
            client,
            room: Vec::new(),
        });
        Ok(())
    }

    /// Waits for the outcomes of everything in `operations`, and forms the answers.
    pub(crate) async fn wait_for_operations(&mut self) -> Result<(), End> {
        let _held = self.hold_input();
        let latest = self.operations.iter().map(|waiting| waiting.deadline_us);
        let latest = latest.max().unwrap_or(u64::MAX);
        let last_us = latest.saturating_add(limits::OUTCOME_GRACE.as_micros() as u64);
        let waited = self.wait_for_node(None, last_us).await;
        let now_ns = self.lane.now_ns();
        let Connection {
            lane,
            seat,
            out,
            operations,
            unsent,
            ..
        } = self;
        let stages = &lane.metrics().stages;
        for (place, mut waiting) in operations.drain(..).enumerate() {
            waiting.watch.lap(stages, waiting.op, Stage::ReplicaWait);
            let status = match seat.take_finished(place) {
                Some(Finished::Operation {
                    outcome,
                    acks,
                    cell,
                }) => {
                    let mut terms = waiting.terms;
                    terms.receipt.acks = acks;
                    answer(lane, out, &waiting, &terms, &outcome, cell.as_ref())
                }
                Some(Finished::Page { .. } | Finished::Reply(_)) | None => {
                    let known = match waiting.op {
                        Op::Get => Known::NotApplied,
                        _ => Known::Unknown,
                    };
                    let outcome = waiting.terms.not_enough(known);
                    status::write(out, &waiting.terms, &outcome, b"")
                }
            };
            waiting.watch.lap(stages, waiting.op, Stage::Form);
            unsent.add(waiting.op, waiting.watch);
            let took_ns = now_ns.saturating_sub(waiting.began_ns);
            lane.metrics().note(waiting.op, status, took_ns);
        }
        self.end_wait(waited);
        Ok(())
    }
}

fn answer(
    lane: &Lane,
    out: &mut Vec<u8>,
    waiting: &PendingOperation,
    terms: &Terms,
    outcome: &Outcome,
    cell: Option<&Cell>,
) -> u16 {
    match outcome {
        // Conditions of reads are judged here, on what a majority knows.
        Outcome::Found { .. } | Outcome::Missing | Outcome::Unchanged { .. } => {
            let stored = dendra_base::Key::user(&waiting.key);
            let cell = cell.map(Cell::as_ref);
            answer_read(lane, out, &waiting.entity, terms, stored.as_stored(), cell)
        }
        Outcome::ConditionFailed {
            current: Some(version),
        } if waiting.entity.wants_current => {
            let stored = dendra_base::Key::user(&waiting.key);
            let cell = cell.map(Cell::as_ref).filter(|cell| {
                let has_room = cell.value.len() <= limits::UNCOUNTED_BYTES_MAX
                    || lane.has_room_for(cell.value.len());
                cell.version == *version && has_room && cell.is_intact(stored.as_stored())
            });
            match cell {
                Some(cell) => status::write_current(out, terms, cell),
                None => refuse(lane, out, waiting.op, terms, outcome),
            }
        }
        failure => refuse(lane, out, waiting.op, terms, failure),
    }
}

/// Forms the answer of what was not done, with the members that were in the way.
pub(super) fn refuse(
    lane: &Lane,
    out: &mut Vec<u8>,
    op: Op,
    terms: &Terms,
    failure: &Outcome,
) -> u16 {
    let cluster = lane.shared.cluster.as_deref();
    let url = |member: &MemberIndex| cluster.map(|cluster| cluster.url(*member));
    let refusal = match failure {
        Outcome::Overloaded { refusal } => {
            if let Some(share) = Share::of(op) {
                lane.metrics().refuse(share, (*refusal).into());
            }
            return status::write(out, terms, failure, b"");
        }
        Outcome::Unreachable {
            up,
            needed,
            from,
            missing,
        } => Refusal::unreachable(*up, *needed, *from, url(missing)),
        Outcome::NotEnough {
            got,
            needed,
            from,
            known,
            refused: Some((by, why)),
        } => {
            let is_own = cluster.is_some_and(|cluster| cluster.me == *by);
            let words = match why {
                RefusedBy::ClockApart if is_own => OWN_CLOCK,
                why => words(*why),
            };
            let why = format!("{} {words}", url(by).unwrap_or("a member"));
            Refusal::too_few_answers(*got, *needed, *from, *known).because(&why)
        }
        _ => return status::write(out, terms, failure, b""),
    };
    status::write_refusal(out, terms.style, &refusal)
}

/// The same of the member that was asked, behind its name.
const OWN_CLOCK: &str = "has a clock that no majority of the members agrees with: set it right";

/// Why a member did not do it, behind its name.
fn words(why: RefusedBy) -> &'static str {
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
