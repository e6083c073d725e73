//! Operations of a cluster of one member: its store is the only copy and judges the condition.
//!
//! Invariants
//! 1. No other member can write: the store's commit order is the order of all writes.
//! 2. A failure before the log changed nothing; one of the log leaves the outcome unknown.
//!
//! Not here: a single copy in a larger cluster. That is a register with one replica, like any other
//! number of copies: members come and go, messages repeat, and the store alone would not see it.
//! See: docs/protocol.md.

use super::{Fate, Intent, Op, Stage};
use crate::admission::Refusal;
use crate::desk::{Desk, Order, Turn};
use crate::outcome::{Known, Outcome};
use crate::step::{StoreFailure, StoreOutcome};
use dendra_base::{Guard, Key, Version};

impl Op {
    pub(crate) fn begin_only(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if self.intent == Intent::Get {
            return self.begin_read(desk, turn);
        }
        let version = Version {
            hlc: desk.tick(turn),
            origin: desk.origin,
            rmw: 0,
        };
        if let Some(paxos) = self.paxos.take() {
            let (condition, value) = paxos.into_parts();
            self.cell = Some(value);
            self.only_condition = condition;
        }
        self.cell
            .as_mut()
            .expect("a write carries its cell")
            .version = version;
        self.send_when_covered(desk, turn)
    }

    /// Orders the write, under its condition.
    pub(crate) fn send_only(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.stage = Stage::Only;
        let cell = self.cell.take().expect("a write carries its cell");
        let guard = Guard::If(self.only_condition);
        let order = Order::Only { op: self.id };
        desk.write(turn, order, Key::user(&self.key), cell, guard);
        Fate::Goes
    }

    /// The store wrote, or did not.
    pub(crate) fn only_wrote(
        &mut self,
        turn: &mut Turn<'_>,
        result: Result<StoreOutcome, StoreFailure>,
    ) -> Fate {
        let outcome = match (result, self.intent) {
            (Ok(StoreOutcome::Applied { version }), Intent::Delete) => Outcome::Deleted { version },
            (Ok(StoreOutcome::Applied { version }), _) => Outcome::Stored { version },
            (Ok(StoreOutcome::GuardFailed { current }), _) => Outcome::ConditionFailed { current },
            (Err(failure), _) => self.only_failed(failure),
        };
        if result.is_ok() {
            self.good.insert(0);
        }
        self.tell(turn, outcome, None);
        Fate::Over
    }

    fn only_failed(&self, failure: StoreFailure) -> Outcome {
        let refusal = match failure {
            StoreFailure::Busy => Refusal::Requests,
            StoreFailure::DiskFull => Refusal::DiskFull,
            StoreFailure::Late => return Outcome::DeadlinePassed,
            StoreFailure::Damaged | StoreFailure::NotApplied | StoreFailure::Poisoned => {
                let known = match failure {
                    StoreFailure::Poisoned => Known::Unknown,
                    _ => Known::NotApplied,
                };
                return Outcome::NotEnough {
                    got: 0,
                    needed: 1,
                    from: 1,
                    known,
                    refused: None,
                };
            }
        };
        Outcome::Overloaded { refusal }
    }
}
