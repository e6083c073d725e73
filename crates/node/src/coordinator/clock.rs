//! The first round of a write: what time is it with a majority?
//!
//! ```text
//! operations of one turn ─► unclocked ─ Tick ─► one probe, to as many peers as a majority lacks;
//!     late, refused ─► everybody else            every answer counts for all operations of the probe
//! a quorum of answers ─► version = (max + 1, origin, 0) ─ covered? ─► Write
//! ```
//!
//! Invariants
//! 1. A probe serves only operations that began before it was sent: a later one may follow a write
//!    that was acknowledged after the answer was given.
//! 2. The own clock answers when the probe is sent, if this member is an owner.
//! 3. Every hybrid clock that answers is followed. It counts only if the wall clock beside it is within a minute of
//!    the own one of this turn: a member whose wall clock is wrong finds no majority, and writes nothing.
//! 4. A version leaves this member only once its ceiling is durable.
//! 5. What owners would say to the write is noted of every clock that answers (`write.rs`).
//! 6. An operation that waits for clocks has asked enough owners for a majority, or is in
//!    `unclocked`.
//!
//! Not here: the clock (`hlc.rs`), which wall clocks agree (`walls.rs`).
//! See: docs/protocol.md.

use super::{Fate, Intent, Op, Stage};
use crate::desk::{Desk, Turn};
use crate::hlc;
use crate::ledger::{Ledger, NEVER};
use crate::limits::{CLOCK_PATIENCE_US_MIN, WALL_APART_MS_MAX};
use crate::member::MemberIndex;
use crate::outcome::Known;
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use crate::purpose::{OpId, Purpose};
use crate::walls::Walls;
use dendra_base::Version;
use dendra_base::peer::{Answer, Ask, Readiness, Refused};

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
        let Some(op) = ops.find_mut(*id).filter(|op| op.stage == Stage::Clock) else {
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
    let first = probes.open.iter().map(|(id, _)| id).next();
    if let Some(id) = first.filter(|_| is_planted(Bug::ProbeServesLaterOperations)) {
        let under_way = probes.open.find_mut(id).expect("it was found a moment ago");
        under_way.ops.append(&mut waiting);
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

/// Does the member that answered agree about the time? Of two wall clocks that are far apart either may be the wrong one:
/// a majority tells.
fn is_near(desk: &Desk, turn: &Turn<'_>, hlc: u64, wall_ms: u64) -> bool {
    if is_planted(Bug::JudgeByHybridClock) {
        let ahead_ms = hlc::ahead_ms(hlc, turn.now.wall_ms);
        let behind_ms = hlc::ahead_ms(desk.hlc.last(), hlc >> hlc::COUNTER_BITS);
        return ahead_ms.max(behind_ms) <= WALL_APART_MS_MAX;
    }
    Walls::agrees(wall_ms, turn.now)
}

impl Op {
    /// Is this a write, and does the own wall clock agree with no majority? Then nothing is asked.
    pub(crate) fn check_wall(&mut self, desk: &Desk, turn: &mut Turn<'_>) -> Option<Fate> {
        let is_write = self.intent != Intent::Get;
        if !is_write || is_planted(Bug::WriteWithWrongClock) || !desk.walls.is_doubted(turn.now) {
            return None;
        }
        self.fail(desk, turn, Known::NotApplied);
        Some(Fate::Over)
    }

    pub(crate) fn begin_clock(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::Clock);
        self.pressed_full = Places::NONE;
        self.pressed_behind = Places::NONE;
        // Unsafe, and no build of ours but one that is measured beside the others: see Cargo.toml.
        if cfg!(feature = "one-phase") || is_planted(Bug::SkipClockRound) {
            return self.set_version(desk, turn);
        }
        desk.unclocked.push(self.id);
        Fate::Goes
    }

    /// Asks the own clock, and adds to `peers` who is asked by the probe: as many as are missing, the best first.
    fn choose_clocks(&mut self, desk: &mut Desk, turn: &Turn<'_>, peers: &mut Places) {
        if !self.asked.is_empty() {
            // Somebody was late, or refused.
            self.ask_clocks(desk, self.everybody().without(self.asked), peers);
            self.alarm_us = NEVER;
            return;
        }
        if let Some(place) = self.own_place(desk) {
            let (op, round) = (self.id, self.round);
            let purpose = Purpose::Op { op, place, round };
            let answer = desk.clock(turn);
            desk.inbox.push_back((purpose, answer));
            self.asked.insert(place);
            self.pending.insert(place);
        }
        let members = desk.topology.len();
        let mut patience_us = CLOCK_PATIENCE_US_MIN;
        while self.asked.len() < self.clocks_needed() {
            let owners = self.owners(desk);
            // Of equals the one that this probe asks anyway, and else the next one in the list of members: so
            // everybody has one that it asks, and one that asks it.
            let cost = |place: &u8| {
                let member = owners[usize::from(*place)];
                let distance = (member.0 + members - desk.me.0) % members;
                (desk.health.cost(member), !peers.has(member.0), distance)
            };
            let fresh = self.everybody().without(self.asked);
            let best = fresh.iter().min_by_key(cost);
            let best = best.expect("clocks are wanted of at most all owners");
            patience_us = patience_us.max(desk.health.patience_us(owners[usize::from(best)]));
            self.ask_clocks(desk, Places::only(best), peers);
        }
        self.alarm_us = match self.asked == self.everybody() {
            true => NEVER,
            false => turn.now.mono_us + patience_us,
        };
    }

    /// Adds the owners at `places` to those who are asked.
    fn ask_clocks(&mut self, desk: &Desk, places: Places, peers: &mut Places) {
        for place in places.iter() {
            peers.insert(self.owners(desk)[usize::from(place)].0);
            self.questions += 1;
        }
        self.asked = self.asked.or(places);
        self.pending = self.pending.or(places);
    }

    /// A clock is late: everybody else is asked, too, and later operations ask others first.
    pub(crate) fn hedge_clocks(&mut self, desk: &mut Desk, turn: &Turn<'_>) -> Fate {
        for place in self.pending.iter() {
            let member = self.owners(desk)[usize::from(place)];
            desk.health.late(member, self.since_us, turn.now.mono_us);
        }
        for _ in self.everybody().without(self.asked).iter() {
            desk.rounds.hedged();
        }
        desk.unclocked.push(self.id);
        Fate::Goes
    }

    /// The owner at `place` showed its clock, or refused.
    pub(crate) fn clock_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: &Answer,
    ) -> Fate {
        if self.stage != Stage::Clock || !self.pending.has(place) {
            return Fate::Goes;
        }
        self.pending.remove(place);
        if let Answer::Clock {
            hlc,
            wall_ms,
            readiness,
            ..
        } = answer
        {
            self.note_readiness(place, *readiness);
            let is_own = self.own_place(desk) == Some(place);
            if is_own || is_near(desk, turn, *hlc, *wall_ms) {
                self.good.insert(place);
            } else {
                self.refused = Some((place, Refused::ClockApart));
            }
        } else if let Answer::Refused(why) = answer {
            self.refused.get_or_insert((place, *why));
        }
        let needed = self.clocks_needed();
        if self.good.len() >= needed {
            return self.set_version(desk, turn);
        }
        if !self.can_reach(needed) {
            return self.fail_or_wait(desk, turn);
        }
        if self.good.or(self.pending).len() < needed {
            desk.unclocked.push(self.id);
        }
        Fate::Goes
    }

    /// What the owner at `place` would say to this write. A full disk takes deletions while memory
    /// lasts.
    fn note_readiness(&mut self, place: u8, readiness: Readiness) {
        match (readiness, self.intent) {
            (Readiness::Behind, _) => {
                self.pressed_behind.insert(place);
            }
            (Readiness::DiskFull, Intent::Put) | (Readiness::DiskAndMemoryFull, _) => {
                self.pressed_full.insert(place);
            }
            (Readiness::Ready | Readiness::DiskFull, _) => {}
        }
    }

    /// Clocks that must be seen.
    pub(crate) fn clocks_needed(&self) -> u8 {
        if is_planted(Bug::ClockFromMinority) {
            return 1;
        }
        self.quorum.ack().min(self.majority())
    }

    /// Enough clocks were seen: the desk's clock is past all of them.
    fn set_version(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let version = Version {
            hlc: desk.tick(turn),
            origin: desk.origin,
            rmw: 0,
        };
        let cell = self.cell.as_mut().expect("a write carries its cell");
        cell.version = version;
        self.send_when_covered(desk, turn)
    }

    /// Goes on with the version or the ballot, once it may leave this member.
    pub(crate) fn send_when_covered(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let hlc = match (&self.paxos, &self.cell) {
            (Some(paxos), _) => paxos.ballot().hlc,
            (None, Some(cell)) => cell.version.hlc,
            (None, None) => 0,
        };
        if !desk.hlc.is_covered(hlc) {
            self.stage = Stage::Cover;
            desk.uncovered.push(self.id);
            return Fate::Goes;
        }
        if self.paxos.is_some() {
            return self.send_prepare(desk, turn);
        }
        self.send_write(desk, turn)
    }
}
