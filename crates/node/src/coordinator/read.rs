//! Reads: the newest of enough copies, held by enough owners before it is shown.
//!
//! ```text
//! own copy, if there is one ─► the best others, who need not send what the own copy is ─► `ack` answers
//!     late, refused, damaged ─► the next ones
//! newest held by a majority ─► outcome
//!                     else  ─► WRITE to whoever should hold it and does not ─► a majority holds it ─► outcome
//! damaged ─ enough others answered ─► WRITE the newest over it, behind the outcome
//!                   nobody else left ─► and in front of it: a copy that was mended is an answer
//! ```
//!
//! Invariants
//! 1. A strict read shows a version only when a majority holds it durably: no later read sees less.
//! 2. A damaged copy is no answer. It is written over only with what so many others came to that one of
//!    them has whatever a majority once confirmed: with less, the copy would forget a version.
//! 3. What is written back is what was read, its version included. It goes to the copies that the
//!    record should have, and to those that are older. A read at the default level brings a record with fewer copies to a
//!    majority of all before it shows it; others make no further ones.
//! 4. Whether a value is expired is judged once, here, by the own wall clock.
//! 5. Copies of one version that are not the same are noticed, and one of them is chosen when all owners that answer have.
//!
//! Not here: conditions of reads (whoever speaks to the client judges the returned cell).
//! See: docs/protocol.md.

use super::{Fate, Op, Stage, is_damaged, is_written, write::write};
use crate::desk::{Desk, Turn};
use crate::disputes::{choose, is_alike};
use crate::limits::DISPUTE_PATIENCE_US;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use crate::purpose::Purpose;
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Cell, Kind};

impl Op {
    pub(crate) fn begin_read(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::Read);
        if self.is_wide {
            for place in self.everybody().iter() {
                self.ask_copy(desk, turn, place);
            }
            self.alarm_us = turn.now.mono_us + DISPUTE_PATIENCE_US;
            return Fate::Goes;
        }
        match self.own_place(desk) {
            Some(place) => {
                self.alarm_us = turn.now.mono_us + desk.health.patience_us(desk.me);
                self.ask_copy(desk, turn, place);
                Fate::Goes
            }
            None => self.ask_more(desk, turn),
        }
    }

    fn ask_copy(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, place: u8) {
        let (key, known) = (self.key.clone(), self.known);
        self.ask(desk, turn, place, Ask::Read { key, known });
    }

    /// Answers that are wanted.
    fn reads_needed(&self) -> u8 {
        if is_planted(Bug::ReadOneOnly) {
            return 1;
        }
        self.quorum.ack()
    }

    /// Asks as many more owners as answers are missing, the best first.
    fn ask_more(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let needed = self.reads_needed();
        let mut patience_us = 0;
        while self.good.len() + self.pending.len() < needed {
            let owners = self.owners(desk);
            let cost = |place: &u8| desk.health.cost(owners[usize::from(*place)]);
            let fresh = self.everybody().without(self.asked);
            let Some(place) = fresh.iter().min_by_key(cost) else {
                return self.mend_to_answer(desk, turn);
            };
            patience_us = patience_us.max(desk.health.patience_us(owners[usize::from(place)]));
            self.ask_copy(desk, turn, place);
        }
        if patience_us > 0 {
            self.alarm_us = turn.now.mono_us + patience_us;
        }
        Fate::Goes
    }

    /// Somebody is late: everybody else is asked, too.
    pub(crate) fn hedge(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if (self.is_wide || !self.rivals.is_empty()) && self.good.len() >= self.reads_needed() {
            // An owner that is silent has no say.
            self.settle_rivals(desk, turn);
            return self.conclude_read(desk, turn);
        }
        for place in self.everybody().without(self.asked).iter() {
            desk.rounds.hedged();
            self.ask_copy(desk, turn, place);
        }
        Fate::Goes
    }

    /// A copy came, or a refusal.
    pub(crate) fn read_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: Answer,
    ) -> Fate {
        let is_own = self.own_place(desk) == Some(place);
        match answer {
            Answer::Cell(cell) => {
                self.good.insert(place);
                if is_own {
                    self.known = cell.as_ref().map(Cell::id);
                }
                self.take_copy(place, cell);
            }
            Answer::Same => {
                self.good.insert(place);
                self.take_same(place);
            }
            answer => {
                if is_damaged(&answer) {
                    self.damaged.insert(place);
                }
            }
        }
        if self.is_settled {
            return self.mend_behind(desk, turn);
        }
        if self.is_wide && !self.pending.is_empty() {
            return Fate::Goes;
        }
        if self.good.len() >= self.reads_needed() {
            return self.conclude_read(desk, turn);
        }
        self.ask_more(desk, turn)
    }

    /// Nobody else is left to ask. What is damaged answers once it is mended, if the others tell with what.
    fn mend_to_answer(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let hoped_for = self.good.or(self.pending).or(self.damaged);
        if !self.damaged.is_empty() && hoped_for.len() >= self.reads_needed() {
            if !self.pending.is_empty() {
                return Fate::Goes;
            }
            if self.cell.is_some() && !self.mendable(desk).is_empty() {
                return self.write_back(desk, turn, Stage::WriteBack);
            }
        }
        self.fail_or_wait(desk, turn)
    }

    /// Takes a copy into account: the newest stays.
    pub(crate) fn take_copy(&mut self, place: u8, copy: Option<Cell>) {
        let Some(copy) = copy else {
            return;
        };
        match &self.cell {
            Some(best) if is_alike(best, &copy) => {
                self.holders.insert(place);
            }
            Some(best) if best.version == copy.version => self.take_rival(place, copy),
            Some(best) if !is_newer(&copy, best) => {
                self.older.insert(place);
            }
            _ => {
                self.older = self.older.or(self.holders);
                for (_, holders) in self.rivals.drain(..) {
                    self.older = self.older.or(holders);
                }
                self.holders = Places::NONE;
                self.holders.insert(place);
                self.cell = Some(copy);
            }
        }
    }

    /// A copy came that has the version of the best one, and is another cell.
    fn take_rival(&mut self, place: u8, copy: Cell) {
        let mut rivals = self.rivals.iter_mut();
        match rivals.find(|(cell, _)| cell.id() == copy.id()) {
            Some((_, holders)) => {
                holders.insert(place);
            }
            None => self.rivals.push((copy, Places::only(place))),
        }
    }

    /// Decides between cells of one version, and has the decision written: `disputes.rs`.
    fn settle_rivals(&mut self, desk: &mut Desk, turn: &Turn<'_>) {
        if self.rivals.is_empty() {
            return;
        }
        let best = self.cell.take().expect("rivals are rivals of it");
        let span = Places::first(self.span(desk));
        let mut cells = std::mem::take(&mut self.rivals);
        cells.push((best, self.holders));
        let votes = cells
            .iter()
            .map(|(cell, holders)| (cell.id(), holders.and(span).len()));
        let chosen = choose(votes, span.len());
        let (cell, holders) = cells.swap_remove(chosen);
        for (_, others) in cells {
            self.older = self.older.or(others);
        }
        self.holders = holders;
        desk.disputes.decided(turn.now.mono_us, &self.key, &cell);
        self.cell = Some(cell);
    }

    /// The copy at `place` is the same as the own one.
    fn take_same(&mut self, place: u8) {
        let mut rivals = self.rivals.iter_mut();
        let version = self.known.map(|known| known.version);
        if let Some((_, holders)) = rivals.find(|(cell, _)| Some(cell.id()) == self.known) {
            holders.insert(place);
        } else if self.cell.as_ref().map(|best| best.version) == version {
            self.holders.insert(place);
        } else {
            self.older.insert(place);
        }
    }

    /// How many of the first owners should hold the newest cell: as many as it was written for, but all of them where
    /// the answer is told as linearizable. Otherwise the next such read, of others, would not show it.
    fn span(&self, desk: &Desk) -> u8 {
        let from = self.quorum.from();
        let is_default = self.is_strict() && from == desk.topology.copies();
        if is_default && !is_planted(Bug::ReadOfFewerCopies) {
            return from;
        }
        let copies = self.cell.as_ref().map_or(0, |cell| cell.copies);
        copies.clamp(1, from)
    }

    /// Do enough owners hold the newest cell? A majority of those who should, or of the owners of all copies: the one of
    /// a record with fewer copies may be down while others were brought up to it.
    pub(crate) fn is_held(&self, desk: &Desk) -> bool {
        let (hold, must) = self.held(desk);
        hold >= must || self.is_majority(desk, self.holders)
    }

    /// Is this a majority of the owners that every read at the default level addresses?
    fn is_majority(&self, desk: &Desk, places: Places) -> bool {
        let copies = desk.topology.copies();
        self.quorum.from() <= copies && places.and(Places::first(copies)).len() >= self.majority()
    }

    /// How many of those who should hold the newest cell do, and how many must.
    pub(crate) fn held(&self, desk: &Desk) -> (u8, u8) {
        let span = self.span(desk);
        (self.holders.and(Places::first(span)).len(), span / 2 + 1)
    }

    /// Enough copies were seen.
    fn conclude_read(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if self.cell.is_none() {
            return self.show(desk, turn);
        }
        if !self.rivals.is_empty() {
            for place in self.everybody().without(self.asked).iter() {
                self.ask_copy(desk, turn, place);
            }
            if !self.pending.is_empty() {
                self.alarm_us = turn.now.mono_us + DISPUTE_PATIENCE_US;
                return Fate::Goes;
            }
            self.settle_rivals(desk, turn);
        }
        self.mend(desk, turn);
        if is_planted(Bug::SkipWriteBack) {
            return self.show(desk, turn);
        }
        // Below the default level nobody waits, and at it only until a majority holds the cell; but
        // whoever was seen to be behind is brought up.
        if !self.is_strict() || self.is_held(desk) {
            self.bring_up(desk, turn, self.behind(desk));
            return self.show(desk, turn);
        }
        self.write_back(desk, turn, Stage::WriteBack)
    }

    /// Owners that showed an older cell, or nothing where they should hold the newest.
    fn behind(&self, desk: &Desk) -> Places {
        let empty = self.good.and(Places::first(self.span(desk)));
        empty.without(self.holders).or(self.older)
    }

    /// Damaged copies, once all others have answered and are so many that whatever a majority confirmed, one of
    /// them confirmed, too. What nobody else ever confirmed is lost with the damage.
    fn mendable(&self, desk: &Desk) -> Places {
        let from = self.quorum.from();
        let is_sure = self.good.or(self.damaged) == self.everybody()
            && self.good.len() + self.majority() > from
            && from >= desk.topology.copies();
        match is_sure {
            true => self.damaged,
            false => Places::NONE,
        }
    }

    /// Writes the newest cell over damaged copies; nobody waits for it.
    fn mend(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if !self.damaged.is_empty() {
            let sure = self.mendable(desk);
            self.bring_up(desk, turn, sure);
            self.damaged = self.damaged.without(sure);
        }
    }

    /// The client was told. What is damaged is mended once enough others answered, or not at all.
    fn mend_behind(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.mend(desk, turn);
        if self.damaged.is_empty() || self.cell.is_none() {
            return Fate::Over;
        }
        for place in self.everybody().without(self.asked).iter() {
            self.ask_copy(desk, turn, place);
        }
        match self.pending.is_empty() {
            true => Fate::Over,
            false => Fate::Goes,
        }
    }

    fn bring_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, places: Places) {
        let own = self.own_place(desk).map_or(Places::NONE, Places::only);
        self.questions += u32::from(places.without(own).len());
        let Some(cell) = &self.cell else {
            return;
        };
        for place in places.iter() {
            let member = self.owners(desk)[usize::from(place)];
            let ask = write(&self.key, cell);
            desk.ask(turn, member, Purpose::Nobody, ask, self.deadline_us);
        }
    }

    /// Writes the newest cell to those who should hold it and do not, and over what is damaged.
    pub(crate) fn write_back(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        stage: Stage,
    ) -> Fate {
        let answered = self.good;
        self.begin_round(stage);
        // Who answered has answered: this round only adds to them.
        self.good = answered;
        if is_planted(Bug::WriteBackUnderNewVersion) && stage == Stage::WriteBack {
            let hlc = desk.tick(turn);
            let cell = self.cell.as_mut().expect("something was read");
            (cell.version.hlc, cell.version.origin) = (hlc, desk.origin);
            self.holders = Places::NONE;
        }
        let cell = self.cell.clone().expect("something was read");
        let mended = self.mendable(desk);
        let wanted = Places::first(self.span(desk)).or(self.older);
        let wanted = wanted.without(self.damaged).or(mended);
        for place in wanted.without(self.holders).iter() {
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
        Fate::Goes
    }

    /// An owner holds what was written back, or what was finished for somebody else; or it does not.
    pub(crate) fn write_back_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: &Answer,
    ) -> Fate {
        if is_written(answer) {
            self.holders.insert(place);
        }
        if self.is_held(desk) && self.has_answers(self.holders) {
            return self.settle_held(desk, turn);
        }
        let open = self.holders.or(self.pending);
        let can_be_held = open.and(Places::first(self.span(desk))).len() > self.span(desk) / 2
            || self.is_majority(desk, open);
        if can_be_held && self.has_answers(open) {
            return Fate::Goes;
        }
        self.fail_or_wait(desk, turn)
    }

    /// Are there as many answers as the client asked for, once those who hold the cell have answered, too?
    fn has_answers(&self, holders: Places) -> bool {
        self.paxos.is_some() || self.good.or(holders).len() >= self.reads_needed()
    }

    fn settle_held(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        match (self.stage, &self.paxos) {
            (Stage::Finish, _) => self.prepare(desk, turn),
            (_, Some(_)) => self.tell_condition_failed(turn),
            (_, None) => self.show(desk, turn),
        }
    }

    /// Tells the client what was read.
    fn show(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.good = self.good.or(self.holders);
        let is_mending = self.stage == Stage::Read && !self.damaged.is_empty();
        let cell = match is_mending {
            true => self.cell.clone(),
            false => self.cell.take(),
        };
        let live = cell.filter(|cell| cell.as_ref().is_live(turn.now.wall_ms));
        let outcome = match &live {
            Some(cell) => Outcome::Found {
                version: cell.version,
                expiry_ms: cell.expiry_ms,
            },
            None => Outcome::Missing,
        };
        self.tell(turn, outcome, live);
        match is_mending {
            true => self.mend_behind(desk, turn),
            false => Fate::Over,
        }
    }
}

fn is_newer(copy: &Cell, best: &Cell) -> bool {
    if is_planted(Bug::TombstoneLoses) && copy.kind != best.kind {
        return best.kind == Kind::Tombstone;
    }
    copy.is_newer_than(best)
}
