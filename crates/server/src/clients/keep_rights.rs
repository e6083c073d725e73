//! The table of tokens, read again and again as any record: a change is in force everywhere within
//! a second.
//!
//! ```text
//! each TOKENS_LOOK, on the first loop: a read at the default level ─┬─ a table ─► in force
//!                                                                   └─ none, or not a table ─► the old one stays
//! ```
//!
//! Invariants
//! 1. It is an operation as a client's, under the same gates: no second way to the records.
//! 2. It ends within `TOKENS_DEADLINE`, so that the next one sees a change.
//!
//! Not here: the content of a table (`rights/`).
//! See: docs/api.md, section "Tokens".

use crate::audit::{AuditEvent, AuditKind};
use crate::clients::backend::Backend;
use crate::event_loop::handover::{Begun, Held, KeyRequest, PendingOperation, SentValue};
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::measure::metrics::OpLabel;
use crate::rights::Rights;
use crate::waiting::finished::Finished;
use crate::waiting::seat::{Seat, WaitLimit};
use crate::waiting::status::AnswerTerms;
use dendra_base::{CellRef, Quorum};
use dendra_node::Outcome;
use dendra_wire::http::response::Style;
use dendra_wire::meta::MetaBuf;
use dendra_wire::rights::TokenTable;
use dendra_wire::route::Entity;
use dendra_wire::{Condition, EntityOp, KeyBuf};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

/// Keeps the table of this node fresh, on the loop that is asked to.
pub(crate) fn keep_rights(lane: &Rc<EventLoop>) {
    let lane = Rc::clone(lane);
    tokio::task::spawn_local(async move {
        let Some(rights) = lane.parts.border.rights.clone() else {
            return;
        };
        let backend = Backend::of(&lane);
        let mut last_sentence = String::new();
        loop {
            lane.refresh();
            let sentence = match look(&lane, &backend, &rights).await {
                Ok(()) => String::new(),
                Err(sentence) => sentence,
            };
            if sentence != last_sentence && !sentence.is_empty() {
                tracing::warn!(
                    sentence,
                    "the tokens could not be read: those in force stay"
                );
            }
            last_sentence = sentence;
            tokio::time::sleep(limits::TOKENS_LOOK).await;
        }
    });
}

async fn look(lane: &Rc<EventLoop>, backend: &Backend, rights: &Rights) -> Result<(), String> {
    // One for each look: a late answer is dropped with it.
    let seat = Rc::new(Seat::default());
    let reading = read(lane, backend, &seat);
    let read = tokio::time::timeout(limits::TOKENS_DEADLINE, reading).await;
    seat.next_round();
    let text = read.map_err(|_| "no answer in time".to_owned())??;
    let table = match text {
        None => TokenTable::default(),
        Some(text) => TokenTable::parse(&text)?,
    };
    let change = rights.set_table(table);
    if let (Some(change), Some(audit)) = (&change, &lane.parts.border.audit) {
        let mut event = AuditEvent::new(AuditKind::TokensInForce, "the tokens changed");
        event.tokens = change.clone().named();
        audit.note(event);
    }
    lane.parts.border.watch.note(|state| {
        state.token_looks += 1;
        state.token_changes += u64::from(change.is_some());
    });
    Ok(())
}

/// The record of the table, if there is one.
async fn read(
    lane: &Rc<EventLoop>,
    backend: &Backend,
    seat: &Rc<Seat>,
) -> Result<Option<Vec<u8>>, String> {
    let mut key = KeyBuf::new();
    key.set_tokens();
    let routes = &lane.routes();
    let entity = Entity {
        op: EntityOp::Get,
        quorum: Quorum::usual(routes.replication_factor, routes.nodes),
        condition: Condition::None,
        wants_current: false,
        ttl_s: None,
        meta: MetaBuf::default(),
        timeout_ms: limits::TOKENS_DEADLINE.as_millis() as u32,
        wait_s: None,
    };
    let deadline_us = lane.now_us() + limits::TOKENS_DEADLINE.as_micros() as u64;
    let request = KeyRequest {
        seat,
        source: IpAddr::V4(Ipv4Addr::LOCALHOST),
        entity: &entity,
        stored_key: key.as_stored(),
        value: SentValue::None,
        room: &mut Vec::new(),
        deadline_us,
    };
    let mut watch = lane.watch();
    let wall_ms = lane.wall_ms();
    let live = move |cell: CellRef<'_>| cell.is_live(wall_ms).then(|| cell.value.to_vec());
    let begun = backend.begin(lane, request, &mut watch, |cell| cell.and_then(live));
    let begun = begun.map_err(|refused| format!("refused: {}", refused.as_str()))?;
    let pending = |held: Held| PendingOperation {
        op: OpLabel::Get,
        terms: AnswerTerms::new(
            Style::CLOSING,
            entity.quorum,
            lane.parts.settings.durability,
            routes,
        ),
        condition: Condition::None,
        wants_current: false,
        began_ns: lane.now_ns(),
        deadline_us,
        watch,
        held,
    };
    // Held until the end: it is the room of the operation.
    let _held = match begun {
        Begun::Shown(value) => return Ok(value),
        Begun::Ended(finished) => return value_of(finished, live),
        Begun::Waits(held) => pending(held),
        Begun::Blocks(held) => {
            let mut read = pending(held);
            let resumed = backend.resume(lane, seat, &mut read);
            resumed.map_err(|refused| format!("refused: {}", refused.as_str()))?;
            read
        }
    };
    let waited = seat.all(WaitLimit::Deadline).await;
    waited.map_err(|_due| "no answer in time".to_owned())?;
    let finished = seat.take(0).ok_or("no outcome")?;
    value_of(finished, live)
}

fn value_of(
    finished: Finished,
    live: impl Fn(CellRef<'_>) -> Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, String> {
    match finished {
        Finished::Outcome {
            outcome: Outcome::Found { .. } | Outcome::Missing,
            cell,
            ..
        } => Ok(cell.as_ref().and_then(|cell| live(cell.as_ref()))),
        Finished::Outcome { outcome, .. } => Err(sentence_of(&outcome)),
        Finished::Refused(refused) => Err(format!("refused: {}", refused.as_str())),
        Finished::Damaged => Err("the record is damaged".to_owned()),
        _ => Err("the read failed".to_owned()),
    }
}

/// Why the read has no answer, for the log.
fn sentence_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Unreachable {
            up, needed, from, ..
        } => format!(
            "{up} of {from} members with a copy of them can be reached from here, and {needed} \
             have to answer"
        ),
        Outcome::NotEnough {
            got, needed, from, ..
        } => format!("{got} of {from} members with a copy of them answered, and {needed} have to"),
        Outcome::Overloaded { refusal } => format!("refused: {}", refusal.as_str()),
        _ => "no answer in time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_ownership::MemberIndex;

    #[test]
    fn a_read_without_an_answer_is_logged_as_a_sentence() {
        let apart = Outcome::Unreachable {
            up: 1,
            needed: 2,
            from: 3,
            missing: MemberIndex(1),
        };
        assert_eq!(
            sentence_of(&apart),
            "1 of 3 members with a copy of them can be reached from here, and 2 have to answer"
        );
    }
}
