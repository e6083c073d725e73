//! Reads: the newest of enough copies, held by enough owners before it is shown.
//!
//! ```text
//! own copy, if there is one ─► the best others, who need not send what the own copy is ─► `ack` answers
//!     late, refused, damaged ─► the next ones
//! newest held by a majority ─► outcome
//!                     else  ─► WRITE to whoever should hold it and does not ─► a majority holds it ─► outcome
//! ```
//!
//! Invariants
//! 1. A strict read shows a version only when a majority holds it durably: no later read sees less.
//! 2. A damaged copy is no answer. It is written over only with what a majority of answers came to: with
//!    less, the copy would forget a version that it once confirmed.
//! 3. What is written back is what was read, its version included. It goes to the copies that the
//!    record should have, and to those that are older; it makes no further ones.
//! 4. Whether a value is expired is judged once, here, by the own wall clock.
//!
//! Not here: conditions of reads (whoever speaks to the client judges the returned cell).
//! See: docs/consistency.md.

use super::{Fate, Op, Stage, is_damaged, is_written, write::write};
use crate::desk::{Desk, Purpose, Turn};
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Cell, Kind};

impl Op {
    pub(crate) fn begin_read(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::Read);
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
                self.fail(turn, Known::NotApplied);
                return Fate::Over;
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
                    self.known = cell.as_ref().map(|cell| cell.version);
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
        if self.good.len() >= self.reads_needed() {
            return self.conclude_read(desk, turn);
        }
        self.ask_more(desk, turn)
    }

    /// Takes a copy into account: the newest stays.
    pub(crate) fn take_copy(&mut self, place: u8, copy: Option<Cell>) {
        let Some(copy) = copy else {
            return;
        };
        match &self.cell {
            Some(best) if best.version == copy.version => {
                self.holders.insert(place);
            }
            Some(best) if !is_newer(&copy, best) => {
                self.older.insert(place);
            }
            _ => {
                self.older = self.older.or(self.holders);
                self.holders = Places::NONE;
                self.holders.insert(place);
                self.cell = Some(copy);
            }
        }
    }

    /// The copy at `place` is the same as the own one.
    fn take_same(&mut self, place: u8) {
        if self.cell.as_ref().map(|best| best.version) == self.known {
            self.holders.insert(place);
        } else {
            self.older.insert(place);
        }
    }

    /// How many of the first owners should hold the newest cell.
    fn span(&self) -> u8 {
        let copies = self.cell.as_ref().map_or(0, |cell| cell.copies);
        copies.clamp(1, self.quorum.from())
    }

    /// Do enough owners hold the newest cell?
    pub(crate) fn is_held(&self) -> bool {
        let span = self.span();
        self.holders.and(Places::first(span)).len() > span / 2
    }

    /// Enough copies were seen.
    fn conclude_read(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if self.cell.is_none() {
            return self.show(turn);
        }
        if self.good.len() >= self.majority() {
            self.mend(desk, turn);
        }
        if is_planted(Bug::SkipWriteBack) {
            return self.show(turn);
        }
        // Below the default level nobody waits, and at it only until a majority holds the cell; but
        // whoever was seen to be behind is brought up.
        if !self.is_strict() || self.is_held() {
            self.bring_up(desk, turn, self.behind());
            return self.show(turn);
        }
        self.write_back(desk, turn)
    }

    /// Owners that showed an older cell, or nothing where they should hold the newest.
    fn behind(&self) -> Places {
        let empty = self.good.and(Places::first(self.span()));
        empty.without(self.holders).or(self.older)
    }

    /// Writes the newest cell over damaged copies; nobody waits for it.
    fn mend(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.bring_up(desk, turn, self.damaged);
        self.damaged = Places::NONE;
    }

    fn bring_up(&self, desk: &mut Desk, turn: &mut Turn<'_>, places: Places) {
        let Some(cell) = &self.cell else {
            return;
        };
        for place in places.iter() {
            let member = self.owners(desk)[usize::from(place)];
            let ask = write(&self.key, cell);
            desk.ask(turn, member, Purpose::Nobody, ask, self.deadline_us);
        }
    }

    /// Writes the newest cell to those who should hold it and do not.
    pub(crate) fn write_back(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::WriteBack);
        if is_planted(Bug::WriteBackUnderNewVersion) {
            let hlc = desk.tick(turn);
            let cell = self.cell.as_mut().expect("something was read");
            (cell.version.hlc, cell.version.origin) = (hlc, desk.origin);
            self.holders = Places::NONE;
        }
        let cell = self.cell.clone().expect("something was read");
        let wanted = Places::first(self.span()).or(self.older);
        for place in wanted.without(self.holders).iter() {
            self.ask(desk, turn, place, write(&self.key, &cell));
        }
        Fate::Goes
    }

    /// An owner holds what was written back, or does not.
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
        if self.is_held() {
            return self.settle_held(desk, turn);
        }
        let reachable = self
            .holders
            .or(self.pending)
            .and(Places::first(self.span()));
        if reachable.len() <= self.span() / 2 {
            let known = self.known_if_failed();
            self.fail(turn, known);
            return Fate::Over;
        }
        Fate::Goes
    }

    fn settle_held(&mut self, _desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        match &self.paxos {
            Some(_) => self.tell_condition_failed(turn),
            None => self.show(turn),
        }
    }

    /// Tells the client what was read.
    fn show(&mut self, turn: &mut Turn<'_>) -> Fate {
        self.good = self.good.or(self.holders);
        let cell = self.cell.take();
        let live = cell.filter(|cell| cell.as_ref().is_live(turn.now.wall_ms));
        let outcome = match &live {
            Some(cell) => Outcome::Found {
                version: cell.version,
                expiry_ms: cell.expiry_ms,
            },
            None => Outcome::Missing,
        };
        self.tell(turn, outcome, live);
        Fate::Over
    }
}

fn is_newer(copy: &Cell, best: &Cell) -> bool {
    if is_planted(Bug::TombstoneLoses) && copy.kind != best.kind {
        return best.kind == Kind::Tombstone;
    }
    copy.version > best.version
}
