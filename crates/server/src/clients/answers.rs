//! From the end of an operation to the bytes of its answer, for all backends.
//!
//! ```text
//! Finished ─┬─ a read: condition judged ─► 200 │ 304 │ 404 │ 412, the value checked
//!           ├─ a write                  ─► 201 │ 202 │ 412, with the current value where it is wanted
//!           └─ a failure                ─► the backend's sentence, or that of `waiting/status.rs`
//! nothing came in time                  ─► 504
//! ```
//!
//! Invariants
//! 1. A value leaves only if it matches its checksum, and if there is room for it.
//!
//! Not here: the table from outcomes to statuses (`waiting/status.rs`), how an operation ends
//! (`backend.rs`).
//! See: docs/api.md.

use crate::clients::backend::Backend;
use crate::event_loop::handover::PendingOperation;
use crate::event_loop::thread::EventLoop;
use crate::limits;
use crate::measure::metrics::{CapacityShare, OpLabel, RefusalCause};
use crate::waiting::finished::Finished;
use crate::waiting::status::{self, AnswerTerms};
use dendra_base::{Cell, CellRef, Key, Kind, Version};
use dendra_node::{Known, Outcome};
use dendra_wire::{Condition, Refusal};

/// Where an answer is formed, and for which backend.
pub(crate) struct Answers<'a> {
    pub(crate) lane: &'a EventLoop,
    pub(crate) backend: &'a Backend,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Answers<'_> {
    /// Forms the answer to an operation on a key; returns its status. `None` when it did not end in
    /// time.
    pub(crate) fn answer(&mut self, pending: &PendingOperation, finished: Option<Finished>) -> u16 {
        let mut terms = pending.terms;
        let Some(Finished::Outcome {
            outcome,
            acks,
            cell,
        }) = finished
        else {
            return self.fail(pending.op, &terms, finished.as_ref());
        };
        terms.receipt.acks = acks;
        match outcome {
            // Conditions of reads are judged here, on the newest cell that the backend knows.
            Outcome::Found { .. } | Outcome::Missing | Outcome::Unchanged { .. } => {
                let stored = Key::user(&pending.held.key);
                let cell = cell.as_ref().map(Cell::as_ref);
                let (lane, condition) = (self.lane, &pending.condition);
                show(lane, self.out, condition, &terms, stored.as_stored(), cell)
            }
            Outcome::Stored { version } if pending.op == OpLabel::Delete => {
                status::write(self.out, &terms, &Outcome::Deleted { version }, b"")
            }
            Outcome::Stored { version } if pending.op == OpLabel::Touch => {
                let expiry_ms = pending.held.expiry_ms;
                status::write(
                    self.out,
                    &terms,
                    &Outcome::Touched { version, expiry_ms },
                    b"",
                )
            }
            // A touch of a key without a live value is a 404, with or without `If-Match`.
            Outcome::ConditionFailed { current: None } if pending.op == OpLabel::Touch => {
                status::write(self.out, &terms, &Outcome::Missing, b"")
            }
            Outcome::ConditionFailed {
                current: Some(version),
            } if pending.wants_current => {
                let stored = Key::user(&pending.held.key);
                let cell = cell.as_ref().map(Cell::as_ref).filter(|cell| {
                    cell.version == version
                        && has_room(self.lane, cell)
                        && cell.is_intact(stored.as_stored())
                });
                match cell {
                    Some(cell) => status::write_current(self.out, &terms, cell),
                    None => status::write(self.out, &terms, &outcome, b""),
                }
            }
            outcome => self.fail_with(pending.op, &terms, &outcome),
        }
    }

    /// Forms the answer of a request that failed; returns its status.
    pub(crate) fn fail(
        &mut self,
        op: OpLabel,
        terms: &AnswerTerms,
        finished: Option<&Finished>,
    ) -> u16 {
        match finished {
            Some(Finished::Outcome { outcome, .. } | Finished::Account { outcome, .. }) => {
                self.fail_with(op, terms, outcome)
            }
            Some(Finished::Refused(refused)) => {
                if let Some(share) = CapacityShare::of(op) {
                    self.lane.metrics().refuse(share, *refused);
                }
                status::write_refusal(self.out, terms.style, &status::refused(*refused))
            }
            Some(Finished::Told(refusal)) => status::write_refusal(self.out, terms.style, refusal),
            Some(Finished::Damaged) => {
                self.lane.metrics().damaged.add(1);
                status::write_refusal(self.out, terms.style, &Refusal::damaged())
            }
            Some(Finished::Failed | Finished::Chunk(_) | Finished::ChunkFailed(..)) => {
                status::write_refusal(self.out, terms.style, &status::failed())
            }
            Some(Finished::Page { .. } | Finished::Reply(_) | Finished::Explained(_)) | None => {
                let known = match op {
                    OpLabel::Put | OpLabel::Delete | OpLabel::Touch => Known::Unknown,
                    OpLabel::Get | OpLabel::Scan | OpLabel::Status | OpLabel::Other => {
                        Known::NotApplied
                    }
                };
                status::write(self.out, terms, &terms.not_enough(known), b"")
            }
        }
    }

    fn fail_with(&mut self, op: OpLabel, terms: &AnswerTerms, outcome: &Outcome) -> u16 {
        if let Some(cause) = cause_of(outcome)
            && let Some(share) = CapacityShare::of(op)
        {
            self.lane.metrics().refuse(share, cause);
        }
        match self.backend.explain(outcome) {
            Some(refusal) => status::write_refusal(self.out, terms.style, &refusal),
            None => status::write(self.out, terms, outcome, b""),
        }
    }
}

/// The cause under which an operation that ended so counts as refused.
fn cause_of(outcome: &Outcome) -> Option<RefusalCause> {
    match outcome {
        Outcome::Overloaded { refusal } => Some((*refusal).into()),
        Outcome::DeadlinePassed => Some(RefusalCause::Deadline),
        Outcome::Abandoned => Some(RefusalCause::Abandoned),
        _ => None,
    }
}

/// Forms the answer to GET or HEAD from the key's newest cell; returns its status.
pub(crate) fn show(
    lane: &EventLoop,
    out: &mut Vec<u8>,
    condition: &Condition,
    terms: &AnswerTerms,
    stored_key: &[u8],
    cell: Option<CellRef<'_>>,
) -> u16 {
    let cell = cell.filter(|cell| cell.is_live(lane.wall_ms()));
    let current = cell.map(|cell| cell.version);
    if !condition.holds(current) {
        return answer_condition(out, condition, terms, current, cell);
    }
    let Some(cell) = cell else {
        return status::write(out, terms, &Outcome::Missing, b"");
    };
    debug_assert_eq!(cell.kind, Kind::Value);
    if !cell.is_intact(stored_key) {
        lane.metrics().damaged.add(1);
        tracing::error!(version = %cell.version, "a value does not match its checksum");
        return status::write_refusal(out, terms.style, &Refusal::damaged());
    }
    if !has_room(lane, &cell) {
        lane.metrics()
            .refuse(CapacityShare::Points, RefusalCause::Bytes);
        return status::write_refusal(out, terms.style, &status::refused(RefusalCause::Bytes));
    }
    let found = Outcome::Found {
        version: cell.version,
        expiry_ms: cell.expiry_ms,
    };
    status::write(out, terms, &found, cell.value)
}

fn has_room(lane: &EventLoop, cell: &CellRef<'_>) -> bool {
    cell.value.len() <= limits::UNCOUNTED_BYTES_MAX || lane.rooms.has_room_for(cell.value.len())
}

/// The answer to a read with a condition that does not hold: nothing new for the client, or not the
/// version that it knows.
fn answer_condition(
    out: &mut Vec<u8>,
    condition: &Condition,
    terms: &AnswerTerms,
    current: Option<Version>,
    cell: Option<CellRef<'_>>,
) -> u16 {
    let outcome = match (condition, current) {
        (
            Condition::Absent | Condition::Differs(_) | Condition::DiffersFromAll(_),
            Some(version),
        ) => Outcome::Unchanged { version },
        (_, None) => Outcome::Missing,
        _ => Outcome::ConditionFailed { current },
    };
    status::write(out, terms, &outcome, cell.map_or(b"", |cell| cell.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_node::RefusedBy;

    #[test]
    fn an_operation_that_was_not_begun_counts_under_its_cause() {
        let refusal = RefusedBy::EngineBehind;
        for (outcome, cause) in [
            (Outcome::DeadlinePassed, Some(RefusalCause::Deadline)),
            (Outcome::Abandoned, Some(RefusalCause::Abandoned)),
            (Outcome::Overloaded { refusal }, Some(RefusalCause::Engine)),
            (Outcome::Missing, None),
        ] {
            assert_eq!(cause_of(&outcome), cause, "{outcome:?}");
        }
    }
}
