//! Stages `Read`, `Mending` and `WriteBack`: the newest copy, shown once enough owners hold it.
//!
//! ```text
//! Read ─► own copy, if this member is an owner ─► the best other owners, until `ack` have answered
//!         an owner is late, refuses or has damage ─► the next owner is asked, too
//! enough answered ─► a majority holds the newest ─► told: Found, Missing
//!                    else ─► WriteBack: the newest to owners that should hold it ─► held ─► told
//! damage ─► enough other owners answered ─► written over after the outcome (Mending)
//!           no owner is left to ask ──────► written over first: a mended copy is an answer
//! ```
//!
//! Invariants
//! 1. A strict read shows a version only when a majority holds it durably. So no later read shows
//!    an older one.
//! 2. A damaged copy is no answer. It is overwritten only if the intact answers include at least
//!    one member of every possible majority. This holds for two sets: all owners that are
//!    addressed, and those that the newest record was written to. With fewer, the copy could lose a
//!    version.
//! 3. A write-back keeps the version that was read. It goes to the copies that the record should
//!    have, and to owners that are behind. A read at the default level brings a record with fewer
//!    copies to a majority of all owners before it shows it. Other reads make no further copies.
//! 4. Whether a value has expired is judged once, here, by this member's wall clock.
//! 5. If copies of one version differ, all owners are asked, and one of the cells is chosen.
//!
//! Not here: conditions of reads: the server judges the cell that is shown (crate `server`).
//! See: docs/protocol.md.

use super::copies::{Copies, Rivalry};
use super::stage::{Fetching, Goal, Stage, WritingBack};
use super::write::write;
use super::{Breadth, Intent, Op, is_damaged, is_written};
use crate::account::{CopyFacts, WriteBack};
use crate::desk::{Desk, Turn};
use crate::limits::DISPUTE_PATIENCE_US;
use crate::outcome::Outcome;
use crate::places::Places;
use crate::purpose::Purpose;
use crate::tally::Verdict;
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Cell, Now};
use dendra_watch::LookFound;

impl Op {
    pub(super) fn begin_read(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        breadth: Breadth,
    ) -> Stage {
        let mut fetching = Fetching {
            tally: self.begin_round(),
            copies: Copies::default(),
            damaged: Places::NONE,
            known: None,
        };
        let owners = self.owners(desk);
        if let Some(account) = self.account() {
            account.begin(turn.now.mono_us, owners);
        }
        // A position that moves shows its copy and does not count as its holder.
        let own_place = self
            .own_place(desk)
            .filter(|at| self.twin_at(desk, *at).is_none());
        match (breadth, own_place) {
            (Breadth::All, _) => {
                self.ask_copies(desk, turn, &mut fetching, self.all_places());
                self.alarm_us = turn.now.mono_us + DISPUTE_PATIENCE_US;
                Stage::Read(fetching)
            }
            (Breadth::Enough, Some(place)) => {
                self.alarm_us = turn.now.mono_us + desk.health.patience_us(desk.me);
                self.ask_copies(desk, turn, &mut fetching, Places::only(place));
                Stage::Read(fetching)
            }
            (Breadth::Enough, None) => self.ask_more(desk, turn, fetching),
        }
    }

    fn ask_copies(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        fetching: &mut Fetching,
        places: Places,
    ) {
        for place in places.iter() {
            fetching.tally.ask(place);
            if let Some(account) = self.account() {
                account.asked(place, turn.now.mono_us);
            }
            let key = self.key.clone();
            // The two owners of a position that moves show whole cells, which are compared here.
            let known = fetching.known;
            let known = known.filter(|_| self.twin_at(desk, place).is_none());
            self.ask(desk, turn, place, Ask::Read { key, known });
        }
    }

    /// How many owners have to show their copies.
    fn reads_needed(&self) -> u8 {
        self.quorum.ack()
    }

    fn is_wide(&self) -> bool {
        match self.intent {
            Intent::Get(breadth, _) | Intent::Look(breadth, _) => breadth == Breadth::All,
            Intent::Write(_) | Intent::Conditional(_) => false,
        }
    }

    /// Asks as many more owners as answers are missing, the best first.
    fn ask_more(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, mut fetching: Fetching) -> Stage {
        let needed = self.reads_needed();
        let mut patience_us = 0;
        while fetching.tally.hoped_for().len() < needed {
            let owners = self.owners(desk);
            let cost = |place: &u8| {
                let is_moving = self.twin_at(desk, *place).is_some();
                let member = owners[usize::from(*place)];
                (is_moving, desk.health.read_cost(member, turn.now.mono_us))
            };
            let Some(place) = fetching.tally.unasked().iter().min_by_key(cost) else {
                return self.mend_to_answer(desk, turn, fetching);
            };
            patience_us = patience_us.max(desk.health.patience_us(owners[usize::from(place)]));
            self.ask_copies(desk, turn, &mut fetching, Places::only(place));
        }
        if patience_us > 0 {
            self.alarm_us = turn.now.mono_us + patience_us;
        }
        Stage::Read(fetching)
    }

    /// An owner is late: all others are asked, too.
    pub(super) fn hedge(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut fetching: Fetching,
    ) -> Stage {
        let waits_for_all = self.is_wide() || fetching.copies.is_disputed();
        if waits_for_all && fetching.tally.verdict(self.reads_needed()) == Verdict::Met {
            // An owner that has not answered does not count in the choice.
            self.settle_rivals(desk, turn, &mut fetching.copies);
            return self.conclude_read(desk, turn, fetching);
        }
        let others = fetching.tally.unasked();
        for _ in others.iter() {
            desk.rounds.hedged();
        }
        self.ask_copies(desk, turn, &mut fetching, others);
        Stage::Read(fetching)
    }

    /// A copy came, or a refusal.
    pub(super) fn read_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut fetching: Fetching,
        place: u8,
        answer: Answer,
    ) -> Stage {
        self.take_copy(desk, turn.now, &mut fetching, place, answer);
        if self.is_wide() && !fetching.tally.pending().is_empty() {
            return Stage::Read(fetching);
        }
        match fetching.tally.verdict(self.reads_needed()) {
            Verdict::Met => self.conclude_read(desk, turn, fetching),
            Verdict::Pending | Verdict::Lost => self.ask_more(desk, turn, fetching),
        }
    }

    /// The client was told, and a copy came, or a refusal.
    pub(super) fn mending_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut fetching: Fetching,
        place: u8,
        answer: Answer,
    ) -> Stage {
        self.take_copy(desk, turn.now, &mut fetching, place, answer);
        self.mend_behind(desk, turn, fetching)
    }

    fn take_copy(
        &mut self,
        desk: &Desk,
        now: Now,
        fetching: &mut Fetching,
        place: u8,
        answer: Answer,
    ) {
        let own_place = self.own_place(desk);
        if let Some(account) = self.account() {
            account.answered(place, now.mono_us, &answer, own_place);
        }
        fetching.take(place, own_place == Some(place), answer, now.wall_ms);
        if self.twin_at(desk, place).is_some() {
            fetching.copies.doubt(place);
        }
    }

    /// No other owner is left to ask. A damaged copy answers once it is mended, if the other
    /// answers show the right cell.
    fn mend_to_answer(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        fetching: Fetching,
    ) -> Stage {
        let hoped_for = fetching.tally.hoped_for().or(fetching.damaged);
        if !fetching.damaged.is_empty() && hoped_for.len() >= self.reads_needed() {
            if !fetching.tally.pending().is_empty() {
                return Stage::Read(fetching);
            }
            let (good, damaged) = (fetching.tally.good(), fetching.damaged);
            let mendable = self.mendable(desk, &fetching.copies, good, damaged);
            if fetching.copies.best().is_some() && !mendable.is_empty() {
                return self.write_back_read(desk, turn, fetching);
            }
        }
        self.fail_or_wait(desk, turn, Stage::Read(fetching))
    }

    /// Decides between cells of one version, and has the decision written: `disputes.rs`.
    fn settle_rivals(&self, desk: &mut Desk, turn: &Turn<'_>, copies: &mut Copies) {
        let span = self.span(desk, copies);
        match copies.settle(span) {
            None => {}
            Some((cell, Rivalry::LeftOver)) => desk.disputes.restored(&self.key, cell.version),
            Some((cell, Rivalry::Content)) => {
                desk.disputes.decided(turn.now.mono_us, &self.key, cell);
            }
        }
    }

    /// How many of the first owners should hold the newest cell: as many as it was written for. For
    /// an answer that is told as linearizable it is all of them. The next such read may ask other
    /// owners, and must show the cell, too.
    fn span(&self, desk: &Desk, copies: &Copies) -> u8 {
        let from = self.quorum.from();
        let is_default = self.is_strict() && from == desk.topology.copies();
        if is_default {
            return from;
        }
        self.copies_of_newest(desk, copies)
    }

    /// Counts the addressed owners that the newest cell was written for.
    fn copies_of_newest(&self, desk: &Desk, copies: &Copies) -> u8 {
        let copies_of = |cell: &Cell| desk.layout.copies_of(&cell.as_ref());
        let wanted = copies.best().map_or(0, copies_of);
        wanted.clamp(1, self.quorum.from())
    }

    /// Do enough owners hold the newest cell? That is a majority of those that should. A majority
    /// of the owners of all copies will do, too. A record with fewer copies may have been brought
    /// up to it, while its first owner is down.
    pub(super) fn is_held(&self, desk: &Desk, copies: &Copies) -> bool {
        let (hold, must) = self.held(desk, copies);
        hold >= must || self.is_majority(desk, copies.holders())
    }

    /// Is this a majority of the owners that every read at the default level addresses?
    fn is_majority(&self, desk: &Desk, places: Places) -> bool {
        let copies = desk.topology.copies();
        self.quorum.from() <= copies && places.and(Places::first(copies)).len() >= self.majority()
    }

    /// How many of the owners that should hold the newest cell hold it, and how many must.
    pub(super) fn held(&self, desk: &Desk, copies: &Copies) -> (u8, u8) {
        let span = self.span(desk, copies);
        let holders = copies.holders().and(Places::first(span));
        (holders.len(), span / 2 + 1)
    }

    /// Enough copies were seen.
    fn conclude_read(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut fetching: Fetching,
    ) -> Stage {
        if fetching.copies.best().is_none() {
            return self.show_read(desk, turn, fetching);
        }
        if fetching.copies.is_disputed() {
            let others = fetching.tally.unasked();
            self.ask_copies(desk, turn, &mut fetching, others);
            if !fetching.tally.pending().is_empty() {
                self.alarm_us = turn.now.mono_us + DISPUTE_PATIENCE_US;
                return Stage::Read(fetching);
            }
            self.settle_rivals(desk, turn, &mut fetching.copies);
        }
        self.mend(desk, turn, &mut fetching);
        // Below the default level the client does not wait. At it, it waits only until a majority
        // holds the cell. An owner that was seen to be behind is brought up in any case.
        if !self.is_strict() || self.is_held(desk, &fetching.copies) {
            let behind = self.behind(desk, &fetching);
            self.bring_up(desk, turn, &fetching.copies, behind);
            return self.show_read(desk, turn, fetching);
        }
        self.write_back_read(desk, turn, fetching)
    }

    /// Owners that showed an older cell, or none where they should hold the newest.
    fn behind(&self, desk: &Desk, fetching: &Fetching) -> Places {
        let copies = &fetching.copies;
        let should = Places::first(self.span(desk, copies));
        let empty = fetching.tally.good().and(should);
        let behind = empty.without(copies.holders()).or(copies.behind());
        behind.and(self.reach(desk, copies, fetching.tally.good()))
    }

    /// The owners that may get the cell which was read, when those at `answered` have answered.
    ///
    /// An old cell goes to owners beyond the replication factor only if one of the first owners
    /// showed its copy, too. A delete above it may have come to the first owners alone. A cell
    /// whose further copies were given back goes to first owners alone.
    fn reach(&self, desk: &Desk, copies: &Copies, answered: Places) -> Places {
        let first = Places::first(desk.topology.copies());
        let floor = desk.layout.horizons().floor();
        let is_old = |cell: &Cell| cell.as_ref().age() <= floor;
        let is_narrow = answered.and(first).is_empty() && copies.best().is_some_and(is_old);
        let is_given_back = |cell: &Cell| desk.layout.copies_of(&cell.as_ref()) < cell.copies;
        if is_narrow || copies.best().is_some_and(is_given_back) {
            first
        } else {
            self.all_places()
        }
    }

    /// Damaged copies that may be written over. All others must have answered, and at least one of
    /// them must be in every possible majority. So it must be among as many owners as the newest
    /// cell was written for. Before the factor was raised, its key may have got a newer one with as
    /// few copies. While a lowered factor waits for its steps, a majority of the former number may
    /// have confirmed a newer one. A version that no other owner confirmed is lost with the damage.
    fn mendable(&self, desk: &Desk, copies: &Copies, answered: Places, damaged: Places) -> Places {
        let from = self.quorum.from();
        let meets_each_majority = |of: u8| {
            let majority = of / 2 + 1;
            answered.and(Places::first(of)).len() + majority > of
        };
        let is_sure = answered.or(damaged) == self.all_places()
            && meets_each_majority(from)
            && meets_each_majority(self.copies_of_newest(desk, copies))
            && meets_each_majority(desk.layout.narrowing().copies_before())
            && from >= desk.topology.copies();
        if is_sure { damaged } else { Places::NONE }
    }

    /// Writes the newest cell over damaged copies; the client does not wait for it.
    fn mend(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, fetching: &mut Fetching) {
        if !fetching.damaged.is_empty() {
            let (good, damaged) = (fetching.tally.good(), fetching.damaged);
            let sure = self.mendable(desk, &fetching.copies, good, damaged);
            self.bring_up(desk, turn, &fetching.copies, sure);
            fetching.damaged = fetching.damaged.without(sure);
        }
    }

    /// The client was told. A damaged copy is mended once enough others answered, or not at all.
    fn mend_behind(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut fetching: Fetching,
    ) -> Stage {
        self.mend(desk, turn, &mut fetching);
        if fetching.damaged.is_empty() || fetching.copies.best().is_none() {
            return Stage::Settled(None);
        }
        let others = fetching.tally.unasked();
        self.ask_copies(desk, turn, &mut fetching, others);
        if fetching.tally.pending().is_empty() {
            return Stage::Settled(None);
        }
        Stage::Mending(fetching)
    }

    fn bring_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, copies: &Copies, places: Places) {
        let own = self.own_place(desk).map_or(Places::NONE, Places::only);
        self.questions += u32::from(places.without(own).len());
        let Some(cell) = copies.best() else {
            return;
        };
        if let Some(account) = self.account() {
            account.written(places, WriteBack::Beside);
        }
        for place in places.iter() {
            let member = self.owners(desk)[usize::from(place)];
            let ask = write(&self.key, cell);
            if let Some(twin) = self.twin_at(desk, place) {
                desk.ask(turn, twin, Purpose::Unneeded, ask.clone(), self.deadline_us);
            }
            desk.ask(turn, member, Purpose::Unneeded, ask, self.deadline_us);
        }
    }

    /// Too few owners hold the cell that was read.
    fn write_back_read(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        fetching: Fetching,
    ) -> Stage {
        let Fetching {
            tally,
            copies,
            damaged,
            known: _,
        } = fetching;
        self.write_back(desk, turn, tally.good(), copies, damaged, Goal::Show)
    }

    /// Writes the newest cell to the owners that should hold it and do not, and over damaged
    /// copies. The owners at `answered` answered the round before: this round only adds to them.
    pub(super) fn write_back(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        answered: Places,
        copies: Copies,
        damaged: Places,
        goal: Goal,
    ) -> Stage {
        let mut tally = self.begin_round();
        if let Some(cell) = copies.best() {
            let mended = self.mendable(desk, &copies, answered, damaged);
            let wanted = Places::first(self.span(desk, &copies)).or(copies.behind());
            let wanted = wanted.and(self.reach(desk, &copies, answered));
            let wanted = wanted.without(damaged).or(mended);
            for place in wanted.without(copies.holders()).iter() {
                tally.ask(place);
                self.ask(desk, turn, place, write(&self.key, cell));
            }
            if let Some(account) = self.account() {
                account.written(tally.asked(), WriteBack::Awaited);
            }
        }
        Stage::WriteBack(WritingBack {
            tally,
            answered,
            copies,
            damaged,
            goal,
        })
    }

    /// An owner holds the cell that was written back, or does not.
    pub(super) fn write_back_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut back: WritingBack,
        place: u8,
        answer: &Answer,
    ) -> Stage {
        if is_written(answer) {
            back.tally.count(place);
            back.copies.hold(place);
            if let Some(account) = self.account() {
                account.written(Places::only(place), WriteBack::Confirmed);
            }
        }
        match self.verdict_of(desk, &back) {
            Verdict::Met => self.settle_held(desk, turn, back),
            Verdict::Pending => Stage::WriteBack(back),
            Verdict::Lost => self.fail_or_wait(desk, turn, Stage::WriteBack(back)),
        }
    }

    /// Do enough owners hold the cell that is written back, and have as many answered as the client
    /// asked for?
    fn verdict_of(&self, desk: &Desk, back: &WritingBack) -> Verdict {
        let holders = back.copies.holders();
        let has_answers = |stored: Places| match back.goal {
            Goal::Show => back.answered.or(stored).len() >= self.reads_needed(),
            Goal::Refuse | Goal::Finish => true,
        };
        if self.is_held(desk, &back.copies) && has_answers(holders) {
            return Verdict::Met;
        }
        let hoped_for = holders.or(back.tally.pending());
        let span = self.span(desk, &back.copies);
        let can_be_held = hoped_for.and(Places::first(span)).len() > span / 2
            || self.is_majority(desk, hoped_for);
        if can_be_held && has_answers(hoped_for) {
            return Verdict::Pending;
        }
        Verdict::Lost
    }

    fn settle_held(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, back: WritingBack) -> Stage {
        let answered = back.answered.or(back.copies.holders());
        match back.goal {
            Goal::Show => {
                self.show(turn, answered, back.copies.into_best());
                Stage::Settled(None)
            }
            Goal::Refuse => self.refuse_condition(turn, back.copies, answered),
            Goal::Finish => {
                self.saw(&back.copies);
                self.prepare(desk, turn, back.tally)
            }
        }
    }

    /// Tells the client the result of the read. Damaged copies are mended after the outcome.
    fn show_read(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, fetching: Fetching) -> Stage {
        let answered = fetching.tally.good().or(fetching.copies.holders());
        if fetching.damaged.is_empty() {
            self.show(turn, answered, fetching.copies.into_best());
            return Stage::Settled(None);
        }
        self.show(turn, answered, fetching.copies.best().cloned());
        self.mend_behind(desk, turn, fetching)
    }

    fn show(&mut self, turn: &mut Turn<'_>, answered: Places, cell: Option<Cell>) {
        if let Intent::Look(_, found) = &mut self.intent {
            let cell = cell.clone();
            let is_complete = answered == Places::first(self.quorum.from());
            *found = Some(LookFound { cell, is_complete });
        }
        if let Some(account) = self.account() {
            account.newest = cell.as_ref().map(CopyFacts::from);
        }
        let live = cell.filter(|cell| cell.as_ref().is_live(turn.now.wall_ms));
        let outcome = match &live {
            Some(shown) => Outcome::Found {
                version: shown.version,
                expiry_ms: shown.expiry_ms,
            },
            None => Outcome::Missing,
        };
        self.tell(turn, outcome, answered, live);
    }
}

impl Fetching {
    /// The owner at `place`, this member or another one, showed its copy or refused.
    fn take(&mut self, place: u8, is_own: bool, answer: Answer, wall_ms: u64) {
        match answer {
            Answer::Cell(cell) => {
                self.tally.count(place);
                if is_own {
                    self.known = cell.as_ref().map(Cell::id);
                }
                self.copies.take(place, cell, wall_ms);
            }
            Answer::Same => {
                self.tally.count(place);
                self.copies.take_same(place, self.known);
            }
            answer => {
                if is_damaged(&answer) {
                    self.damaged.insert(place);
                }
            }
        }
    }
}
