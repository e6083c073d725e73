//! The first round of a write: what time is it with a majority?
//!
//! ```text
//! operations of one turn ─► unclocked ─ Tick ─► one probe, one question to each peer
//!                                               every answer counts for all operations of the probe
//! a quorum of answers ─► version = (max + 1, origin, 0) ─ covered? ─► Write
//! ```
//!
//! Invariants
//! 1. A probe serves only operations that began before it was sent: a later one may follow a write
//!    that was acknowledged after the answer was given.
//! 2. The own clock answers when the probe is sent, if this member is an owner.
//! 3. A clock that is more than a minute away from the own one is no answer. A member whose clock is wrong
//!    finds no majority that agrees with it, and leaves nothing behind that others would have to refuse.
//! 4. A version leaves this member only once its ceiling is durable.
//!
//! Not here: the clock (`hlc.rs`).
//! See: docs/consistency.md.

use super::{Fate, Op, Stage};
use crate::desk::{Desk, OpId, Purpose, Turn};
use crate::ledger::Ledger;
use crate::limits::HLC_AHEAD_MS_MAX;
use crate::member::MemberIndex;
use crate::outcome::Known;
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use dendra_base::Version;
use dendra_base::peer::{Answer, Ask};

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
    let own_hlc = desk.hlc.shown(turn.now.wall_ms);
    let mut peers = Places::NONE;
    let mut deadline_us = turn.now.mono_us;
    waiting.retain(|id| {
        let Some(op) = ops.find_mut(*id).filter(|op| op.stage == Stage::Clock) else {
            return false;
        };
        op.asked = op.everybody();
        op.pending = op.everybody();
        for member in op.owners(desk).iter().filter(|member| **member != desk.me) {
            peers.insert(member.0);
        }
        if let Some(place) = op.own_place(desk) {
            let (op, round) = (op.id, op.round);
            let purpose = Purpose::Op { op, place, round };
            let answer = Answer::Clock { hlc: own_hlc };
            desk.inbox.push_back((purpose, answer));
        }
        deadline_us = deadline_us.max(op.deadline_us);
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

/// Is this clock near enough to the own one? Of two that are far apart either may be the wrong one:
/// what is too far ahead is not followed, and who is too far behind would refuse our version anyway.
fn is_believed(desk: &Desk, turn: &Turn<'_>, hlc: u64) -> bool {
    let ms = |hlc: u64| {
        Version {
            hlc,
            ..Version::ZERO
        }
        .wall_ms()
    };
    let is_behind = ms(hlc) + HLC_AHEAD_MS_MAX < ms(desk.hlc.shown(turn.now.wall_ms));
    !is_behind && desk.hlc.observe(hlc, turn.now.wall_ms).is_ok()
}

impl Op {
    pub(crate) fn begin_clock(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::Clock);
        // Unsafe, and no build of ours but one that is measured beside the others: see Cargo.toml.
        if cfg!(feature = "one-phase") || is_planted(Bug::SkipClockRound) {
            return self.set_version(desk, turn);
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
        if let Answer::Clock { hlc } = answer {
            let is_own = self.own_place(desk) == Some(place);
            if is_own || is_believed(desk, turn, *hlc) {
                self.good.insert(place);
            }
        }
        let needed = self.clocks_needed();
        if self.good.len() >= needed {
            return self.set_version(desk, turn);
        }
        if !self.can_reach(needed) {
            self.fail(turn, Known::NotApplied);
            return Fate::Over;
        }
        Fate::Goes
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
        if desk.topology.len() == 1 {
            return self.send_only(desk, turn);
        }
        self.send_write(desk, turn)
    }
}
