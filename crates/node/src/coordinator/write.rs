//! The second round of a write: the cell to all owners, and who confirmed that it is durable.
//!
//! ```text
//! clocks said who is full ── too few others ─► 507, not applied: nothing was sent
//! Write ── `ack` confirmations ─► Stored, Deleted ─► lingers until all answered, or the deadline
//!       ── cannot be reached ───► NotEnough, unknown
//! over  ── owners without a confirmation ─► a hint for each
//! ```
//!
//! Invariants
//! 1. All owners are asked at once; the own copy counts like any other, after its own sync.
//! 2. After the first question left, failure means "unknown". None leaves when there are no links for enough of them.
//! 3. A hint never counts.
//! 4. An owner that said beside its clock that its disk is full counts as one that refused: it is
//!    not asked.
//! 5. An owner that said that it is behind is spared while the others can confirm the write. It is
//!    asked as soon as they cannot, or are late, and at most once. The own copy is not spared: no
//!    hint would be kept for it.
//!
//! Not here: hints (`hints.rs`), the version (`clock.rs`, `paxos.rs`).
//! See: docs/protocol.md.

use super::{Fate, Intent, Op, Stage, is_written};
use crate::admission::Refusal;
use crate::desk::{Desk, Turn};
use crate::hints;
use crate::ledger::NEVER;
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use dendra_base::Cell;
use dendra_base::peer::{Answer, Ask, Refused};

impl Op {
    /// Sends the cell to all owners.
    pub(crate) fn send_write(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        // The links may be others than at the beginning. What was accepted already counts on being written.
        let full = self.told_full();
        if self.paxos.is_none() {
            if self.everybody().without(full).len() < self.quorum.ack() {
                let refusal = Refusal::DiskFull;
                self.tell(turn, Outcome::Overloaded { refusal }, None);
                return Fate::Over;
            }
            if let Some(fate) = self.check_links_without(desk, turn, full) {
                return fate;
            }
        }
        self.begin_round(Stage::Write);
        self.count_full(full);
        self.spare(desk);
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
        let wanted = self.everybody().without(self.asked).without(self.spared);
        let mut patience_us = 0;
        for place in wanted.iter() {
            let member = self.owners(desk)[usize::from(place)];
            patience_us = patience_us.max(desk.health.patience_us(member));
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
        if !self.spared.is_empty() {
            let now_us = turn.now.mono_us;
            let half_us = self.deadline_us.saturating_sub(now_us) / 2;
            self.alarm_us = now_us + patience_us.min(half_us);
        }
    }

    /// Owners that said beside their clocks that they have no room for this.
    fn told_full(&self) -> Places {
        match self.paxos.is_some() || is_planted(Bug::FullIsAsked) {
            true => Places::NONE,
            false => self.pressed_full,
        }
    }

    /// What these owners said beside their clocks counts as their answer to the write.
    fn count_full(&mut self, full: Places) {
        self.asked = self.asked.or(full);
        self.full = self.full.or(full);
        self.refused = full.iter().last().map(|place| (place, Refused::DiskFull));
    }

    /// Leaves out the other members that are behind, as many as the write can do without.
    fn spare(&mut self, desk: &Desk) {
        if self.paxos.is_some() {
            return;
        }
        let own = self.own_place(desk).map_or(Places::NONE, Places::only);
        let behind = self.pressed_behind.without(own);
        for place in behind.iter() {
            let left = self.everybody().without(self.asked).without(self.spared);
            let member = self.owners(desk)[usize::from(place)];
            let others = left.without(Places::only(place));
            let linked = others
                .iter()
                .filter(|at| desk.health.is_up(self.owners(desk)[usize::from(*at)]));
            if linked.count() >= usize::from(self.quorum.ack()) && desk.health.is_up(member) {
                self.spared.insert(place);
            }
        }
    }

    /// The others cannot confirm the write, or are late: those that are behind are asked, too.
    pub(crate) fn ask_spared(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let spared = std::mem::take(&mut self.spared);
        if self.is_settled || is_planted(Bug::SparedForGood) {
            return Fate::Goes;
        }
        let Some(cell) = self.cell.clone() else {
            return Fate::Goes;
        };
        for place in spared.iter() {
            desk.rounds.hedged();
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
        Fate::Goes
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
        let expected = self.good.or(self.pending).len();
        if !self.is_settled && expected < self.quorum.ack() && !self.spared.is_empty() {
            return self.ask_spared(desk, turn);
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
