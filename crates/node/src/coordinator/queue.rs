//! How a conditional write waits for another one of its key that was begun at the same event loop.
//!
//! ```text
//! New ── nobody is ahead ─► Ahead ── told ─► its verdict, for those behind
//!     ── else ────────────► Waits ── judged, or ahead in its turn
//!                                 ── nothing moves ─► Beside
//! ```
//!
//! Invariants
//! 1. A verdict is for those who came before the promises on which it rests were asked for: at that moment, or
//!    later, the record was as it says, and they were under way.
//! 2. A verdict only refuses. A write whose condition holds asks for promises of its own.
//! 3. Of what expires, and of fewer copies than a majority, there is no verdict for others.
//!
//! Not here: the queues (`turns.rs`).
//! See: docs/protocol.md.

use super::{Fate, Op, Stage};
use crate::desk::{Desk, Turn};
use crate::outcome::Outcome;
use crate::planted::{Bug, is_planted};
use crate::turns::{Passed, Verdict};

/// Where a conditional write stands among those of its key and loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    New,
    Waits,
    Ahead,
    /// Nothing moved for long, or the write is over.
    Beside,
}

impl Op {
    /// May it begin? Plain operations may, and a conditional write whose turn it is.
    pub(super) fn is_its_turn(&mut self, desk: &mut Desk, turn: &Turn<'_>) -> bool {
        let Some(paxos) = &mut self.paxos else {
            return true;
        };
        if paxos.standing != Standing::New {
            return true;
        }
        let now_us = turn.now.mono_us;
        if desk.turns.join(&self.key, self.id, now_us) {
            paxos.standing = Standing::Ahead;
            return true;
        }
        paxos.standing = Standing::Waits;
        self.stage = Stage::Queue;
        self.alarm_us = desk.turns.patience_us(&self.key);
        false
    }

    /// It waited long: does anything move?
    pub(super) fn wait_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let patience_us = desk.turns.patience_us(&self.key);
        if patience_us > turn.now.mono_us {
            self.alarm_us = patience_us;
            return Fate::Goes;
        }
        desk.turns.leave(&self.key, self.id);
        self.stand(Standing::Beside);
        self.begin(desk, turn)
    }

    /// Its turn has come.
    pub(crate) fn go_ahead(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.stand(Standing::Ahead);
        self.begin(desk, turn)
    }

    fn stand(&mut self, standing: Standing) {
        if let Some(paxos) = &mut self.paxos {
            paxos.standing = standing;
        }
    }

    /// It was told, or is over: whoever waits behind it goes on.
    pub(crate) fn leave_queue(&mut self, desk: &mut Desk) {
        let Some(paxos) = &self.paxos else {
            return;
        };
        match paxos.standing {
            Standing::Waits => desk.turns.leave(&self.key, self.id),
            Standing::Ahead => {
                let passed = Passed {
                    key: self.key.clone(),
                    verdict: self.verdict(),
                };
                desk.turns.passed.push_back(passed);
            }
            Standing::New | Standing::Beside => return,
        }
        self.stand(Standing::Beside);
    }

    /// What this operation knows about the record at a moment when those who came before some number waited.
    fn verdict(&self) -> Option<Verdict> {
        let is_stored = match self.told? {
            Outcome::Stored { .. } | Outcome::Deleted { .. } => true,
            Outcome::ConditionFailed { .. } => false,
            _ => return None,
        };
        let before = self.paxos.as_ref()?.before(is_stored)?;
        if is_stored && self.cell.is_none() {
            return None;
        }
        let expires = |cell: &dendra_base::Cell| cell.expiry_ms.is_some();
        if !self.is_strict() || self.cell.as_ref().is_some_and(expires) {
            return None;
        }
        Some(Verdict {
            cell: self.cell.clone(),
            before,
            quorum: self.quorum,
            good: self.good,
        })
    }

    /// Refuses it if its condition does not hold of what the operation ahead left or found.
    pub(crate) fn judge(&mut self, turn: &mut Turn<'_>, verdict: &Verdict, came: u64) -> Fate {
        let is_late = came >= verdict.before && !is_planted(Bug::JudgeLateComers);
        if is_late || self.quorum != verdict.quorum {
            return Fate::Goes;
        }
        let live = verdict
            .cell
            .as_ref()
            .filter(|cell| cell.as_ref().is_live(turn.now.wall_ms))
            .map(|cell| cell.version);
        let paxos = self.paxos.as_mut().expect("only conditional writes wait");
        if paxos.condition().holds(live) {
            return Fate::Goes;
        }
        // Out of the queue it goes with this answer.
        paxos.standing = Standing::Beside;
        self.cell = verdict.cell.clone();
        self.good = verdict.good;
        self.tell_condition_failed(turn)
    }
}
