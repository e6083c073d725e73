//! Stages `Write` and `Lingering`: the cell goes to all owners, and owners confirm that it is
//! durable.
//!
//! ```text
//! Begin     ─ too few owners have room, as their clocks said ─► told: 507, not applied
//! Write     ─ `ack` confirmations ─────────► told: Stored, Deleted ─► Lingering
//!           ─ `ack` cannot be reached ─────► told: NotEnough, unknown ─► Lingering
//! Lingering ─ all answered, or the deadline ─► hints for owners that did not confirm ─► Settled
//! ```
//!
//! Invariants
//! 1. All owners are asked at once, but for 4 and 5. The own copy counts like any other, after this
//!    member's own sync.
//! 2. Once a question with the cell left, a failure means "unknown". No question leaves while too
//!    few owners have links.
//! 3. A hint never counts as a confirmation.
//! 4. An owner that said beside its clock that its disk is full counts as one that refused: it is
//!    not asked.
//! 5. An owner that said that it is behind is spared while the others can confirm the write. It is
//!    asked as soon as they cannot, or are late, and at most once. The own copy is not spared: no
//!    hint would be kept for it.
//!
//! Not here: hints (`hints/`), the version (`clock.rs`, `paxos.rs`).
//! See: docs/protocol.md.

use super::stage::{Clocking, Stage, Writing};
use super::{Intent, Op, is_written};
use crate::admission::RefusedBy;
use crate::desk::{Desk, Turn};
use crate::hints;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::tally::{Tally, Verdict};
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, Kind, Known};

impl Op {
    /// Sends the cell of a plain write, if enough owners have links and room. `clocks` is the round
    /// that led to it.
    pub(super) fn write_plain(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        cell: Cell,
        clocks: &Clocking,
    ) -> Stage {
        let answered = clocks.tally.good();
        let full = clocks.pressed.full;
        if self.all_places().without(full).len() < self.quorum.ack() {
            let refusal = RefusedBy::DiskFull;
            self.tell(turn, Outcome::Overloaded { refusal }, answered, None);
            return Stage::Settled(None);
        }
        // The links may be others than at the beginning.
        if let Some(stage) = self.check_links(desk, turn, full, answered) {
            return stage;
        }
        let mut tally = self.begin_round();
        for place in full.iter() {
            // The readiness that the owner told beside its clock is its answer to the write.
            tally.ask(place);
            tally.answer(place);
            tally.refuse(place, Refused::DiskFull);
        }
        let spared = self.spared(desk, tally.unasked(), clocks.pressed.behind);
        self.send_cell(desk, turn, tally, cell, spared)
    }

    /// The owners to spare: other members that are behind, as many as the write can do without.
    fn spared(&self, desk: &Desk, unasked: Places, behind: Places) -> Places {
        let owners = self.owners(desk);
        let is_up = |place: &u8| desk.health.is_up(owners[usize::from(*place)]);
        let own = self.own_place(desk).map_or(Places::NONE, Places::only);
        let mut spared = Places::NONE;
        for place in behind.without(own).iter().filter(is_up) {
            let others = unasked.without(spared).without(Places::only(place));
            if others.iter().filter(is_up).count() >= usize::from(self.quorum.ack()) {
                spared.insert(place);
            }
        }
        spared
    }

    /// Sends the cell of a conditional write to all owners. It goes out even with too few links:
    /// the accepted proposal is counted on.
    pub(super) fn send_write(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, cell: Cell) -> Stage {
        let tally = self.begin_round();
        self.send_cell(desk, turn, tally, cell, Places::NONE)
    }

    /// Sends the cell to all owners that are not asked yet, but those that are spared.
    fn send_cell(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut tally: Tally,
        cell: Cell,
        spared: Places,
    ) -> Stage {
        let mut patience_us = 0;
        for place in tally.unasked().without(spared).iter() {
            let member = self.owners(desk)[usize::from(place)];
            patience_us = patience_us.max(desk.health.patience_us(member));
            tally.ask(place);
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
        if !spared.is_empty() {
            let now_us = turn.now.mono_us;
            let half_us = self.deadline_us.saturating_sub(now_us) / 2;
            self.alarm_us = now_us + patience_us.min(half_us);
        }
        Stage::Write(Writing {
            tally,
            cell,
            spared,
            is_at_new_owner: false,
        })
    }

    /// The others cannot confirm the write, or are late: owners that are behind are asked, too.
    pub(super) fn ask_spared(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut writing: Writing,
    ) -> Stage {
        let spared = std::mem::take(&mut writing.spared);
        for place in spared.iter() {
            desk.rounds.hedged();
            writing.tally.ask(place);
            self.ask(desk, turn, place, write(&self.key, &writing.cell));
        }
        Stage::Write(writing)
    }

    /// The outcome of a write that enough owners hold.
    fn stored(&self, cell: &Cell) -> Outcome {
        let (version, expiry_ms) = (cell.version, cell.expiry_ms);
        match (cell.kind, &self.intent) {
            (Kind::Value, Intent::Conditional(it)) if it.is_touch => {
                Outcome::Touched { version, expiry_ms }
            }
            (Kind::Value, _) => Outcome::Stored { version },
            (Kind::Tombstone, _) => Outcome::Deleted { version },
        }
    }

    /// An owner confirmed, or did not.
    pub(super) fn write_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut writing: Writing,
        place: u8,
        answer: &Answer,
    ) -> Stage {
        count_confirmation(&mut writing.tally, place, answer);
        let expected = writing.tally.hoped_for().len();
        if expected < self.quorum.ack() && !writing.spared.is_empty() {
            return self.ask_spared(desk, turn, writing);
        }
        let is_told = match writing.tally.verdict(self.quorum.ack()) {
            Verdict::Met => {
                let outcome = self.stored(&writing.cell);
                self.tell(turn, outcome, writing.tally.good(), None);
                true
            }
            // All that answered had no room, and others may say the same: perhaps the cell is
            // nowhere.
            Verdict::Lost if writing.tally.is_full_so_far() && self.is_plain() => false,
            Verdict::Lost => {
                self.fail_write(desk, turn, &writing);
                true
            }
            Verdict::Pending => false,
        };
        if is_told {
            return self.linger(desk, turn, writing);
        }
        Stage::Write(writing)
    }

    /// Tells the client that too few owners confirmed: any of the others may have the cell, or get
    /// it yet.
    pub(super) fn fail_write(&mut self, desk: &Desk, turn: &mut Turn<'_>, writing: &Writing) {
        let answered = writing.tally.good();
        // No owner has room, so none took it. An accepted proposal is there all the same.
        if writing.tally.is_full() && self.is_plain() {
            let refusal = RefusedBy::DiskFull;
            return self.tell(turn, Outcome::Overloaded { refusal }, answered, None);
        }
        let shortfall = (answered.len(), self.quorum.ack());
        let refused = self.reason(desk, Some(&writing.tally));
        self.tell_shortfall(desk, turn, shortfall, refused, Known::Unknown, answered);
    }

    /// The outcome was told, and an owner confirmed, or did not.
    pub(super) fn late_write_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut writing: Writing,
        place: u8,
        answer: &Answer,
    ) -> Stage {
        count_confirmation(&mut writing.tally, place, answer);
        self.linger(desk, turn, writing)
    }

    /// Waits for the owners that may still answer.
    fn linger(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, writing: Writing) -> Stage {
        if writing.tally.pending().is_empty() {
            return self.stop_lingering(desk, turn, writing);
        }
        Stage::Lingering(writing)
    }

    /// No owner will answer any more: those that did not confirm a write that was stored get a
    /// hint.
    pub(super) fn stop_lingering(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        writing: Writing,
    ) -> Stage {
        let Writing {
            tally,
            cell,
            is_at_new_owner,
            ..
        } = writing;
        if tally.verdict(self.quorum.ack()) == Verdict::Met {
            for place in tally.all().without(tally.good()).iter() {
                let member = match self.twin_at(desk, place) {
                    Some(_) if is_at_new_owner => continue,
                    // The old owner is about to lose the position, and may be lost for good. Then a
                    // hint of each write would be kept for it.
                    Some(new_owner) => new_owner,
                    None => self.owners(desk)[usize::from(place)],
                };
                if member != desk.me {
                    hints::keep(desk, turn, member, &self.key, &cell);
                }
            }
        }
        Stage::Settled(None)
    }
}

fn count_confirmation(tally: &mut Tally, place: u8, answer: &Answer) {
    if is_written(answer) {
        tally.count(place);
    }
}

/// The question that asks to keep a cell.
pub(crate) fn write(key: &bytes::Bytes, cell: &Cell) -> Ask {
    Ask::Write {
        key: key.clone(),
        cell: cell.clone(),
    }
}
