//! Stage `Clock`: a coordinator asks owners for their clocks, and makes the version of a write.
//!
//! ```text
//! Begin ─► unclocked ─ Tick ─► one probe to each peer, for all operations of the turn
//! probe's answer ─► counts for each operation of the probe that addresses the owner
//! owner late, or refused ─► unclocked again: the next probe asks the owners that are left
//! enough owners answered ─► version = (largest clock + 1, origin, 0) ─► (Cover) ─► Write
//! ```
//!
//! Invariants
//! 1. A probe serves only operations that began before it was sent. A later one may follow a write
//!    that was acknowledged after the owner had answered.
//! 2. If this member is an owner, its own clock answers when the probe is sent.
//! 3. The node follows every hybrid clock that an owner shows. The answer counts only if the
//!    owner's wall clock is within a minute of this member's. So a member with a wrong wall clock
//!    finds no majority, and writes no record.
//! 4. A version, or a ballot, leaves this member only once a ceiling above it is durable: stage
//!    `Cover`.
//! 5. Of each clock that answers, the readiness of its owner for the write is noted (`write.rs`).
//! 6. An operation in stage `Clock` has asked enough owners for a majority, or is in `unclocked`.
//!
//! Not here: the clock (`hlc.rs`), which wall clocks agree (`walls.rs`).
//! See: docs/protocol.md.

use super::half::{Half, TWIN_PLACE};
use super::stage::{Clocking, Stage, WaitFor};
use super::{Intent, Op};
use crate::desk::{Desk, Turn};
use crate::ledger::{Ledger, NEVER};
use crate::limits::CLOCK_PATIENCE_US_MIN;
use crate::places::Places;
use crate::purpose::{OpId, Purpose};
use crate::tally::Verdict;
use crate::walls::Walls;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Known, Version};
use dendra_ownership::member::MemberIndex;

/// A clock question to some peers, for many operations at once.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) ops: Vec<OpId>,
    /// Answers that may still come.
    pub(crate) open: u8,
}

/// Probes under way, and their spare lists.
pub(crate) struct Probes {
    pub(crate) open: Ledger<Probe>,
    spare: Vec<Vec<OpId>>,
}

impl Probes {
    pub(crate) fn new(first: u64) -> Probes {
        Probes {
            open: Ledger::new(first),
            spare: Vec::new(),
        }
    }

    /// Keeps the list of a probe that is over.
    pub(crate) fn recycle(&mut self, mut ops: Vec<OpId>) {
        ops.clear();
        if self.spare.len() < 16 {
            self.spare.push(ops);
        }
    }
}

/// Sends one probe for all operations that wait for one. Own answers come back in the desk's inbox.
pub(crate) fn send_probe(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    probes: &mut Probes,
    ops: &mut Ledger<Op>,
) {
    if desk.unclocked.is_empty() {
        return;
    }
    let mut waiting =
        std::mem::replace(&mut desk.unclocked, probes.spare.pop().unwrap_or_default());
    let mut peers = Places::NONE;
    let mut deadline_us = turn.now.mono_us;
    waiting.retain(|id| {
        let Some(op) = ops
            .find_mut(*id)
            .filter(|op| matches!(op.stage, Stage::Clock(_)))
        else {
            return false;
        };
        op.choose_clocks(desk, turn, &mut peers);
        deadline_us = deadline_us.max(op.deadline_us);
        let due_us = op.due_us();
        ops.set_due(*id, due_us);
        true
    });
    if waiting.is_empty() || peers.is_empty() {
        probes.recycle(waiting);
        return;
    }
    let probe = Probe {
        ops: waiting,
        open: peers.len(),
    };
    let probe = probes.open.insert(probe, deadline_us);
    for member in peers.iter().map(MemberIndex) {
        let purpose = Purpose::Probe { probe, member };
        desk.ask(turn, member, purpose, Ask::Clock, deadline_us);
    }
}

impl Op {
    /// Is this a write, and does the own wall clock agree with no majority? Then no owner is asked.
    /// `wait` is the wait that is over.
    pub(crate) fn check_wall(
        &mut self,
        desk: &Desk,
        turn: &mut Turn<'_>,
        wait: WaitFor,
    ) -> Option<Stage> {
        let is_read = matches!(self.intent, Intent::Get(..) | Intent::Look(..));
        if is_read || !desk.walls.is_doubted(turn.now) {
            return None;
        }
        self.fail(desk, turn, &Stage::Waiting(wait), Known::NotApplied);
        Some(Stage::Settled(None))
    }

    pub(crate) fn begin_clock(&mut self, desk: &mut Desk) -> Stage {
        let tally = self.begin_round();
        desk.unclocked.push(self.id);
        Stage::Clock(Clocking::new(tally))
    }

    /// Asks the own clock, and adds to `peers` the members that the probe has to ask: as many as
    /// are missing, the best first. Only in stage `Clock`.
    fn choose_clocks(&mut self, desk: &mut Desk, turn: &Turn<'_>, peers: &mut Places) {
        let (owners, needed) = (self.owners(desk), self.clocks_needed());
        let own_place = self.own_place(desk);
        // A position that moves shows two clocks. It may have moved on already, and then its new
        // owner alone knows the newest one.
        let twin = self.twin(desk);
        let twin_at = |place: u8| twin.filter(|twin| twin.place == place);
        let Stage::Clock(Clocking { tally, .. }) = &mut self.stage else {
            return;
        };
        let mut chosen = Places::NONE;
        if tally.asked().is_empty() {
            if let Some(place) = own_place {
                tally.ask(place);
                chosen.insert(place);
            }
            let members = desk.topology.len();
            let mut patience_us = CLOCK_PATIENCE_US_MIN;
            while tally.asked().len() < needed {
                // Of equal costs the owner that this probe asks anyway wins, else the next one in
                // the member list. So each member asks one, and is asked by one.
                let cost = |place: &u8| {
                    let member = owners[usize::from(*place)];
                    let distance = (member.0 + members - desk.me.0) % members;
                    let is_new = !peers.has(member.0);
                    let cost = desk.health.cost(member);
                    (twin_at(*place).is_some(), cost, is_new, distance)
                };
                let best = tally.unasked().iter().min_by_key(cost);
                let best = best.expect("clocks are wanted of at most all owners");
                let member = owners[usize::from(best)];
                patience_us = patience_us.max(desk.health.patience_us(member));
                peers.insert(member.0);
                self.questions += 1;
                tally.ask(best);
                chosen.insert(best);
            }
            self.alarm_us = if tally.unasked().is_empty() {
                NEVER
            } else {
                turn.now.mono_us + patience_us
            };
        } else {
            // An owner was late, or refused.
            for place in tally.unasked().iter() {
                if own_place != Some(place) {
                    peers.insert(owners[usize::from(place)].0);
                    self.questions += 1;
                }
                tally.ask(place);
                chosen.insert(place);
            }
            self.alarm_us = NEVER;
        }
        let asked_twin = chosen.iter().find_map(twin_at);
        if let Some(asked) = asked_twin {
            self.half = None;
            if asked.member != desk.me {
                peers.insert(asked.member.0);
            }
        }
        let is_twin = asked_twin.is_some_and(|asked| asked.member == desk.me);
        let own_place = own_place.filter(|place| chosen.has(*place));
        for place in own_place.into_iter().chain(is_twin.then_some(TWIN_PLACE)) {
            let (op, round) = (self.id, self.round);
            let purpose = Purpose::Op { op, place, round };
            let answer = desk.clock(turn);
            desk.inbox.push_back((purpose, answer));
        }
    }

    /// A clock is late: all other owners are asked, too, and later operations ask others first.
    pub(crate) fn hedge_clocks(
        &mut self,
        desk: &mut Desk,
        turn: &Turn<'_>,
        clocking: Clocking,
    ) -> Stage {
        for place in clocking.tally.pending().iter() {
            let member = self.owners(desk)[usize::from(place)];
            desk.health.late(member, self.since_us, turn.now.mono_us);
        }
        for _ in clocking.tally.unasked().iter() {
            desk.rounds.hedged();
        }
        desk.unclocked.push(self.id);
        Stage::Clock(clocking)
    }

    /// The owner at `place` showed its clock, or refused. Counts only in stage `Clock`. Of a
    /// position that moves both owners have to.
    pub(crate) fn clock_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: &Answer,
    ) {
        if !matches!(self.stage, Stage::Clock(_)) {
            return;
        }
        let is_twin = place == TWIN_PLACE;
        let place = match self.twin(desk) {
            None if is_twin => return,
            Some(twin) if is_twin || twin.place == place => {
                let Some(half) = self.half.take().filter(|half| half.is_twin != is_twin) else {
                    let answer = answer.clone();
                    self.half = Some(Half { is_twin, answer });
                    return;
                };
                if let (Intent::Write(cell), Stage::Clock(clocking)) =
                    (&self.intent, &mut self.stage)
                    && let Answer::Clock { readiness, .. } = half.answer
                {
                    clocking.pressed.note(twin.place, readiness, cell.kind);
                }
                let counts = match half.answer {
                    Answer::Clock { wall_ms, .. } => Walls::agrees(wall_ms, turn.now),
                    _ => false,
                };
                // The one that does not count decides.
                let answer = if counts { answer.clone() } else { half.answer };
                return self.place_clocked(desk, turn, twin.place, false, &answer);
            }
            _ => place,
        };
        let is_own = self.own_place(desk) == Some(place);
        self.place_clocked(desk, turn, place, is_own, answer);
    }

    /// The position `place` showed its clock, or refused.
    fn place_clocked(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        is_own: bool,
        answer: &Answer,
    ) {
        let Stage::Clock(Clocking { tally, pressed }) = &mut self.stage else {
            return;
        };
        if !tally.answer(place) {
            return;
        }
        match answer {
            Answer::Clock {
                wall_ms,
                readiness,
                hlc: _,
                kept: _,
            } => {
                if let Intent::Write(cell) = &self.intent {
                    pressed.note(place, *readiness, cell.kind);
                }
                // Of two wall clocks that are far apart either may be wrong: a majority tells.
                if is_own || Walls::agrees(*wall_ms, turn.now) {
                    tally.count(place);
                } else {
                    tally.refuse(place, Refused::ClockApart);
                }
            }
            // The first refusal is the one to name, unless clocks are apart.
            Answer::Refused(why) if tally.refused().is_none() => tally.refuse(place, *why),
            Answer::Refused(_)
            | Answer::Cell(_)
            | Answer::Same
            | Answer::Written(_)
            | Answer::Promised { .. }
            | Answer::Accepted
            | Answer::Outbid { .. }
            | Answer::Page { .. }
            | Answer::Loaded { .. }
            | Answer::Compared { .. }
            | Answer::Listed { .. }
            | Answer::Foreground(_)
            | Answer::Changes { .. }
            | Answer::ChangesGone { .. } => {}
        }
        let needed = self.clocks_needed();
        self.work(|op, stage| match stage {
            Stage::Clock(clocking) => match clocking.tally.verdict(needed) {
                Verdict::Met => op.set_version(desk, turn, clocking),
                Verdict::Lost => op.fail_or_wait(desk, turn, Stage::Clock(clocking)),
                Verdict::Pending => {
                    if clocking.tally.hoped_for().len() < needed {
                        desk.unclocked.push(op.id);
                    }
                    Stage::Clock(clocking)
                }
            },
            other => other,
        });
    }

    /// Clocks that must be seen.
    pub(crate) fn clocks_needed(&self) -> u8 {
        self.quorum.ack().min(self.majority())
    }

    /// Enough clocks were seen: the desk's clock is past all of them.
    fn set_version(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, clocks: Clocking) -> Stage {
        if let Intent::Write(cell) = &mut self.intent {
            cell.version = Version {
                hlc: desk.tick(turn),
                origin: desk.origin,
                rmw: 0,
            };
        }
        self.send_when_covered(desk, turn, clocks)
    }

    /// Goes on with the version or the ballot, once it may leave this member. `before` is the round
    /// that led to it.
    pub(crate) fn send_when_covered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        before: Clocking,
    ) -> Stage {
        let hlc = match &self.intent {
            Intent::Get(..) | Intent::Look(..) => 0,
            Intent::Write(cell) => cell.version.hlc,
            Intent::Conditional(proposer) => proposer.ballot.hlc,
        };
        if !desk.hlc.is_covered(hlc) {
            desk.uncovered.push(self.id);
            return Stage::Cover(before);
        }
        match &self.intent {
            // A read has no version, and so does not wait.
            Intent::Get(breadth, _) | Intent::Look(breadth, _) => {
                let breadth = *breadth;
                self.begin_read(desk, turn, breadth)
            }
            Intent::Write(cell) => {
                let cell = cell.clone();
                self.write_plain(desk, turn, cell, &before)
            }
            Intent::Conditional(_) => self.send_prepare(desk, turn),
        }
    }
}
