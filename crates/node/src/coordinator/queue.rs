//! Stage `Waiting` in a queue: conditional writes of one key, begun at one loop, go one after the
//! other.
//!
//! ```text
//! New ── the queue is empty ─► Ahead ── its outcome is told ─► a precedent for those behind
//!     ── else ───────────────► Waits ── refused by the precedent, or Ahead in its turn
//!                                    ── nothing moves for QUEUE_STILL_US_MAX ─► Beside
//! ```
//!
//! Invariants
//! 1. A precedent is for writes that came before the promises on which it rests were asked for. At
//!    that moment, or later, the record was as it says, and those writes were under way.
//! 2. A precedent only refuses. If its condition holds, a write asks for promises of its own.
//! 3. A cell that expires makes no precedent, nor does a quorum below a majority.
//!
//! Not here: the queues (`write_queues.rs`), promises (`paxos.rs`).
//! See: docs/protocol.md.

use super::stage::{Stage, WaitFor};
use super::{Intent, Op};
use crate::desk::{Desk, Turn};
use crate::places::Places;
use crate::tally::Verdict;
use crate::write_queues::{PassedWrite, Precedent, QueueStanding};
use dendra_base::Cell;

impl Op {
    /// Puts a conditional write into the queue of its key; `None` when it is ahead. Other
    /// operations have no queue.
    pub(super) fn wait_in_queue(&mut self, desk: &mut Desk, turn: &Turn<'_>) -> Option<Stage> {
        let Intent::Conditional(proposer) = &mut self.intent else {
            return None;
        };
        if proposer.standing != QueueStanding::New {
            return None;
        }
        if desk.write_queues.join(&self.key, self.id, turn.now.mono_us) {
            proposer.standing = QueueStanding::Ahead;
            return None;
        }
        proposer.standing = QueueStanding::Waits;
        self.alarm_us = desk.write_queues.patience_us(&self.key);
        Some(Stage::Waiting(WaitFor::Queue))
    }

    /// Goes on alone after a long wait, unless a write of the queue ended since.
    pub(super) fn wait_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Stage {
        let patience_us = desk.write_queues.patience_us(&self.key);
        if patience_us > turn.now.mono_us {
            self.alarm_us = patience_us;
            return Stage::Waiting(WaitFor::Queue);
        }
        desk.write_queues.leave(&self.key, self.id);
        self.stand(QueueStanding::Beside);
        self.begin(desk, turn, WaitFor::Queue)
    }

    /// Begins, for its turn has come.
    pub(crate) fn go_ahead(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.stand(QueueStanding::Ahead);
        self.work(|op, _| op.begin(desk, turn, WaitFor::Queue));
    }

    fn stand(&mut self, standing: QueueStanding) {
        if let Intent::Conditional(proposer) = &mut self.intent {
            proposer.standing = standing;
        }
    }

    /// Leaves the queue after its outcome was told: the writes that wait behind it go on.
    pub(crate) fn leave_queue(&mut self, desk: &mut Desk) {
        let Intent::Conditional(proposer) = &self.intent else {
            return;
        };
        match proposer.standing {
            QueueStanding::Waits => desk.write_queues.leave(&self.key, self.id),
            QueueStanding::Ahead => {
                let passed = PassedWrite {
                    key: self.key.clone(),
                    precedent: self.take_precedent(),
                };
                desk.write_queues.passed.push_back(passed);
            }
            QueueStanding::New | QueueStanding::Beside => return,
        }
        self.stand(QueueStanding::Beside);
    }

    /// The precedent for the writes behind: the refusal of this one, or the cell that it stored.
    fn take_precedent(&mut self) -> Option<Precedent> {
        match &mut self.stage {
            Stage::Settled(precedent) => precedent.take(),
            Stage::Lingering(writing) => {
                if writing.tally.verdict(self.quorum.ack()) != Verdict::Met {
                    return None;
                }
                let Intent::Conditional(proposer) = &self.intent else {
                    return None;
                };
                let before = proposer.own.as_ref()?.before;
                let (cell, good) = (writing.cell.clone(), writing.tally.good());
                self.precedent(Some(cell), before, good)
            }
            Stage::Waiting(_)
            | Stage::Clock(_)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Read(_)
            | Stage::Mending(_)
            | Stage::WriteBack(_)
            | Stage::Prepare(_)
            | Stage::Accept(_) => None,
        }
    }

    /// The cell that a majority at `good` holds, for writes of the same quorum that came before
    /// number `before`.
    pub(super) fn precedent(
        &self,
        cell: Option<Cell>,
        before: u64,
        good: Places,
    ) -> Option<Precedent> {
        let expires = cell.as_ref().is_some_and(|cell| cell.expiry_ms.is_some());
        (self.is_strict() && !expires).then_some(Precedent {
            cell,
            before,
            quorum: self.quorum,
            good,
        })
    }

    /// Refuses it if its condition does not hold of the cell that the operation ahead left or
    /// found.
    pub(crate) fn share_verdict(&mut self, turn: &mut Turn<'_>, precedent: &Precedent, came: u64) {
        let is_late = came >= precedent.before;
        if is_late || self.quorum != precedent.quorum {
            return;
        }
        let live = precedent
            .cell
            .as_ref()
            .filter(|cell| cell.as_ref().is_live(turn.now.wall_ms))
            .map(|cell| cell.version);
        let Intent::Conditional(proposer) = &mut self.intent else {
            return;
        };
        if proposer.condition.holds(live) {
            return;
        }
        // The node has taken it out of the queue already.
        proposer.standing = QueueStanding::Beside;
        let cell = precedent.cell.as_ref();
        self.tell_condition_failed(turn, cell, precedent.good);
        self.stage = Stage::Settled(None);
    }
}
