//! The second round of a write: the cell to all owners, and who confirmed that it is durable.
//!
//! ```text
//! Write ── `ack` confirmations ─► Stored, Deleted ─► lingers until all answered, or the deadline
//!       ── cannot be reached ───► NotEnough, unknown
//! over  ── owners without a confirmation ─► a hint for each
//! ```
//!
//! Invariants
//! 1. All owners are asked at once; the own copy counts like any other, after its own sync.
//! 2. After the first question left, failure means "unknown". None leaves when there are no links for enough of them.
//! 3. A hint never counts.
//!
//! Not here: hints (`hints.rs`), the version (`clock.rs`, `paxos.rs`).
//! See: docs/protocol.md.

use super::{Fate, Intent, Op, Stage, is_written};
use crate::desk::{Desk, Turn};
use crate::hints;
use crate::ledger::NEVER;
use crate::outcome::{Known, Outcome};
use crate::planted::{Bug, is_planted};
use dendra_base::Cell;
use dendra_base::peer::{Answer, Ask};

impl Op {
    /// Sends the cell to all owners.
    pub(crate) fn send_write(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        // The links may be others than at the beginning. What was accepted already counts on being written.
        if self.paxos.is_none()
            && let Some(fate) = self.check_links(desk, turn)
        {
            return fate;
        }
        self.begin_round(Stage::Write);
        if is_planted(Bug::HiddenRetryUnderNewVersion) && self.paxos.is_none() {
            self.alarm_us = turn.now.mono_us / 2 + self.deadline_us / 2;
        }
        self.send_cell(desk, turn);
        if is_planted(Bug::AckBeforeDurable)
            && let Some(place) = self.own_place(desk)
        {
            self.good.insert(place);
        }
        Fate::Goes
    }

    /// Sends the cell to all owners, in this round.
    pub(crate) fn send_cell(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let cell = self.cell.clone().expect("a write carries its cell");
        for place in self.everybody().iter() {
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
    }

    /// An owner confirmed, or did not.
    pub(crate) fn write_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: &Answer,
    ) -> Fate {
        if is_written(answer) || is_planted(Bug::HintCountsAsAck) {
            self.good.insert(place);
        }
        if !self.is_settled {
            if self.good.len() >= self.quorum.ack() {
                let outcome = self.stored();
                self.tell(turn, outcome, None);
            } else if !self.can_reach(self.quorum.ack()) && !self.is_perhaps_nowhere() {
                self.fail(desk, turn, Known::Unknown);
            }
        }
        if self.pending.is_empty() {
            return self.stop_lingering(desk, turn);
        }
        Fate::Goes
    }

    /// Had everybody who answered no room, and are there others to hear? Then it may be that nobody took it.
    fn is_perhaps_nowhere(&self) -> bool {
        let is_so_far = self.full == self.asked.without(self.pending);
        !self.pending.is_empty() && is_so_far && self.paxos.is_none()
    }

    /// The outcome of a write that enough owners hold.
    pub(crate) fn stored(&self) -> Outcome {
        let version = self
            .cell
            .as_ref()
            .map(|cell| cell.version)
            .unwrap_or_default();
        match self.intent {
            Intent::Delete => Outcome::Deleted { version },
            Intent::Put | Intent::Get => Outcome::Stored { version },
        }
    }

    /// Nobody else will answer: whoever did not confirm a write that was stored gets a hint.
    pub(crate) fn stop_lingering(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let is_stored = self.good.len() >= self.quorum.ack();
        if let Some(cell) = self.cell.take().filter(|_| is_stored) {
            for place in self.everybody().without(self.good).iter() {
                let member = self.owners(desk)[usize::from(place)];
                if member != desk.me {
                    hints::keep(desk, turn, member, &self.key, &cell);
                }
            }
        }
        Fate::Over
    }

    /// Only as a planted bug: the same value once more, under a version of its own.
    pub(crate) fn retry_secretly(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if is_planted(Bug::HiddenRetryUnderNewVersion) && !self.is_settled {
            let hlc = desk.tick(turn);
            self.cell
                .as_mut()
                .expect("a write carries its cell")
                .version
                .hlc = hlc;
            self.send_write(desk, turn);
            self.alarm_us = NEVER;
        }
        Fate::Goes
    }
}

/// The question that asks to keep a cell.
pub(crate) fn write(key: &bytes::Bytes, cell: &Cell) -> Ask {
    Ask::Write {
        key: key.clone(),
        cell: cell.clone(),
    }
}
