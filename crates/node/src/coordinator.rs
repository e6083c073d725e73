//! One client's operation, from its beginning to its outcome and a little longer.
//!
//! ```text
//! GET            Read ──────────────────────────────► outcome        held by a write quorum
//!                  └─► WriteBack ───────────────────► outcome
//! PUT, DELETE    Clock ─► (Cover) ─► Write ─────────► outcome ─► lingers for the late ones
//!                  └─ too few have room ────────────► outcome
//! conditional    (Queue) ─► Prepare ─► Accept ─► Write ────────► outcome        paxos.rs
//! any            (Links) in front, and again when a round failed before anything of its own that changes the key had left
//! ```
//!
//! Invariants
//! 1. One outcome, at the latest at the first `Tick` at or after the deadline.
//! 2. One version for ever: what was sent under a version is never sent again under another one.
//! 3. An answer counts in the round that asked for it, once per place.
//! 4. `Known::NotApplied` is said only while no question that can change the key has left.
//!
//! Not here: what a member answers (`replica.rs`), who asks whom over what (`desk.rs`).
//! See: docs/protocol.md.

pub(crate) mod clock;
pub(crate) mod links;
pub(crate) mod paxos;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod write;

use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::{TRY_QUESTIONS_MAX, WRITE_QUESTIONS_MAX};
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use crate::purpose::{OpId, Purpose};
use crate::ring::Partition;
use crate::step::{ClientTicket, Effect};
use crate::{admission::Refusal, member::MemberIndex};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Refused};
use dendra_base::{Cell, CellId, Key, Kind, Quorum, Version, cell};

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing was asked yet.
    Begin,
    /// Too few owners have links, and those that are missing may be back soon.
    Links,
    /// Clocks are asked.
    Clock,
    /// The version, or the ballot, waits for its ceiling.
    Cover,
    /// The cell is on its way to its owners.
    Write,
    /// Copies are asked for.
    Read,
    /// What was read is on its way to those who lack it.
    WriteBack,
    /// Another conditional write of the key is ahead.
    Queue,
    /// Promises are asked for.
    Prepare,
    /// A proposal is on its way.
    Accept,
    /// Somebody else's proposal is being finished.
    Finish,
    /// A proposer rests.
    BackOff,
}

/// Does an operation go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has something to wait for.
    Goes,
    /// It is over; its entry can go.
    Over,
}

/// What the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Get,
    Put,
    Delete,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) id: OpId,
    /// What was told, or would have been if somebody waited for it.
    pub(crate) told: Option<Outcome>,
    /// `None` once the outcome was told, or nobody waits for it.
    pub(crate) client: Option<ClientTicket>,
    /// Was the outcome settled? Then the operation only lingers.
    pub(crate) is_settled: bool,
    pub(crate) intent: Intent,
    pub(crate) stage: Stage,
    pub(crate) round: u8,
    pub(crate) quorum: Quorum,
    pub(crate) partition: Partition,
    pub(crate) key: Bytes,
    pub(crate) deadline_us: u64,
    /// When the stage began.
    pub(crate) since_us: u64,
    /// When to do something although nobody answered.
    pub(crate) alarm_us: u64,
    /// Asked in this round.
    pub(crate) asked: Places,
    /// Asked in this round, without an answer.
    pub(crate) pending: Places,
    /// Answered in this round so that it counts.
    pub(crate) good: Places,
    /// Hold the newest cell.
    pub(crate) holders: Places,
    /// Hold something that fails its checksum.
    pub(crate) damaged: Places,
    /// Hold an older cell.
    pub(crate) older: Places,
    /// Refused in this round, having no room on their disks, when they were asked for the only time.
    pub(crate) full: Places,
    /// Were asked more than once in this round: what one refusal says is not true of the other time.
    pub(crate) again: Places,
    /// Said beside their clocks that their disks are full: a value, or a deletion, too, would be
    /// refused there.
    pub(crate) pressed_full: Places,
    /// Said beside their clocks that a write would wait there.
    pub(crate) pressed_behind: Places,
    /// Are behind, and not asked for a write as long as the others can confirm it.
    pub(crate) spared: Places,
    /// Questions to other members in this try: since it began, waited for links, or asked for
    /// promises again.
    pub(crate) questions: u32,
    /// Owners whose link came up meanwhile, and that were asked for it.
    pub(crate) links_back: u32,
    /// Who refused last, and why.
    pub(crate) refused: Option<(u8, Refused)>,
    /// What is written, or the newest of what was read.
    pub(crate) cell: Option<Cell>,
    /// The own copy, once it was read.
    pub(crate) known: Option<CellId>,
    /// Cells that came under the version of `cell` and are not the same, and who holds them.
    pub(crate) rivals: Vec<(Cell, Places)>,
    /// Asks every owner at once, to see all copies.
    pub(crate) is_wide: bool,
    pub(crate) paxos: Option<Box<paxos::Paxos>>,
}

impl Op {
    pub(crate) fn new(
        client: ClientTicket,
        key: Bytes,
        partition: Partition,
        operation: Operation,
        quorum: Quorum,
        deadline_us: u64,
    ) -> Op {
        let condition = operation.condition();
        let (intent, cell) = match operation {
            Operation::Get => (Intent::Get, None),
            Operation::Put {
                value, expiry_ms, ..
            } => (
                Intent::Put,
                Some(entering(&key, Kind::Value, value, expiry_ms, quorum)),
            ),
            Operation::Delete { .. } => (
                Intent::Delete,
                Some(entering(&key, Kind::Tombstone, Bytes::new(), None, quorum)),
            ),
        };
        // A conditional write keeps its value apart: its cell is the base that it builds on.
        let (cell, paxos) = match (cell, condition) {
            (cell, Condition::None) => (cell, None),
            (None, _) => (None, None),
            (Some(value), condition) => {
                let paxos = paxos::Paxos::new(condition, value);
                (None, Some(Box::new(paxos)))
            }
        };
        Op {
            id: 0,
            told: None,
            client: Some(client),
            is_settled: false,
            intent,
            stage: Stage::Begin,
            round: 0,
            quorum,
            partition,
            key,
            deadline_us,
            since_us: 0,
            alarm_us: NEVER,
            asked: Places::NONE,
            pending: Places::NONE,
            good: Places::NONE,
            holders: Places::NONE,
            damaged: Places::NONE,
            older: Places::NONE,
            full: Places::NONE,
            again: Places::NONE,
            pressed_full: Places::NONE,
            pressed_behind: Places::NONE,
            spared: Places::NONE,
            questions: 0,
            links_back: 0,
            refused: None,
            cell,
            known: None,
            rivals: Vec::new(),
            is_wide: false,
            paxos,
        }
    }

    /// The first questions.
    pub(crate) fn begin(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if !self.is_its_turn(desk, turn) {
            return Fate::Goes;
        }
        if let Some(fate) = self.check_wall(desk, turn) {
            return fate;
        }
        if let Some(fate) = self.check_links(desk, turn) {
            return fate;
        }
        match (self.intent, self.paxos.is_some()) {
            (Intent::Get, _) => self.begin_read(desk, turn),
            (_, true) => self.prepare(desk, turn),
            (_, false) => self.begin_clock(desk, turn),
        }
    }

    /// An answer to a question of this operation.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        round: u8,
        answer: Answer,
    ) -> Fate {
        if round != self.round || !self.pending.has(place) {
            return Fate::Goes;
        }
        self.pending.remove(place);
        if let Answer::Refused(why) = answer {
            self.refused = Some((place, why));
            if why == Refused::DiskFull && !self.again.has(place) {
                self.full.insert(place);
            }
        }
        match self.stage {
            Stage::Read => self.read_answered(desk, turn, place, answer),
            Stage::WriteBack | Stage::Finish => {
                self.write_back_answered(desk, turn, place, &answer)
            }
            Stage::Write => self.write_answered(desk, turn, place, &answer),
            Stage::Prepare => self.prepare_answered(desk, turn, place, answer),
            Stage::Accept => self.accept_answered(desk, turn, place, &answer),
            Stage::Begin
            | Stage::Links
            | Stage::Clock
            | Stage::Cover
            | Stage::Queue
            | Stage::BackOff => Fate::Goes,
        }
    }

    /// The alarm rang, or the deadline passed.
    pub(crate) fn due(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        if turn.now.mono_us >= self.deadline_us {
            return self.deadline_passed(desk, turn);
        }
        if turn.now.mono_us < self.alarm_us {
            return Fate::Goes;
        }
        self.alarm_us = NEVER;
        match self.stage {
            Stage::Links => self.begin(desk, turn),
            Stage::Queue => self.wait_on(desk, turn),
            Stage::Clock => self.hedge_clocks(desk, turn),
            Stage::Read => self.hedge(desk, turn),
            Stage::BackOff => self.prepare(desk, turn),
            Stage::Prepare | Stage::Accept => self.back_off(desk, turn),
            Stage::Write if is_planted(Bug::HiddenRetryUnderNewVersion) => {
                self.retry_secretly(desk, turn)
            }
            Stage::Write => self.ask_spared(desk, turn),
            _ => Fate::Goes,
        }
    }

    fn deadline_passed(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        match self.stage {
            Stage::Write if self.is_settled => return self.stop_lingering(desk, turn),
            Stage::Links => self.refuse_for_links(desk, turn),
            Stage::Begin | Stage::Clock if self.good.is_empty() && self.asked.is_empty() => {
                self.tell(turn, Outcome::DeadlinePassed, None);
            }
            _ => {
                let known = self.known_if_failed();
                self.fail(desk, turn, known);
            }
        }
        Fate::Over
    }

    /// The client hung up: it ends unless it has sent something of its own that changes the key.
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>) -> Fate {
        let is_applied = self.known_if_failed() == Known::Unknown;
        if is_applied && !is_planted(Bug::AbandonedWriteEnds) {
            return Fate::Goes;
        }
        self.tell(turn, Outcome::Abandoned, None);
        Fate::Over
    }

    /// What a failure now would mean for the record.
    pub(crate) fn known_if_failed(&self) -> Known {
        let may_be_stored = match (&self.paxos, self.intent) {
            (_, Intent::Get) => false,
            (Some(paxos), _) => paxos.may_be_chosen(),
            (None, _) => self.stage == Stage::Write,
        };
        if may_be_stored {
            Known::Unknown
        } else {
            Known::NotApplied
        }
    }

    /// Tells the client that too few answered.
    pub(crate) fn fail(&mut self, desk: &Desk, turn: &mut Turn<'_>, known: Known) {
        let (got, needed) = self.shortfall(desk);
        let owners = self.owners(desk);
        // Who refused explains more than who said nothing.
        let silent = self.pending.iter().next();
        let refused = self.refused.or(silent.map(|place| (place, Refused::Late)));
        let mut refused = refused.map(|(place, why)| (owners[usize::from(place)], why));
        let is_about_time = self.stage == Stage::Begin
            || self
                .refused
                .is_some_and(|(_, why)| why == Refused::ClockApart);
        if is_about_time && desk.walls.is_doubted(turn.now) {
            // Of clocks that are apart this one is the wrong one.
            refused = Some((desk.me, Refused::ClockApart));
        }
        let outcome = match self.stage {
            // Whoever has no room did not take it: nobody did. What was accepted is there all the same.
            Stage::Write if self.full == self.everybody() && self.paxos.is_none() => {
                Outcome::Overloaded {
                    refusal: Refusal::DiskFull,
                }
            }
            _ => Outcome::NotEnough {
                got,
                needed,
                from: self.quorum.from(),
                known,
                refused,
            },
        };
        self.tell(turn, outcome, None);
    }

    /// How many answered the round under way, and how many have to.
    fn shortfall(&self, desk: &Desk) -> (u8, u8) {
        let needed = match self.stage {
            Stage::Clock => self.clocks_needed(),
            Stage::Queue | Stage::Prepare | Stage::Accept | Stage::BackOff => self.majority(),
            Stage::WriteBack | Stage::Finish if !self.is_held(desk) => return self.held(desk),
            _ => self.quorum.ack(),
        };
        (self.good.len(), needed)
    }

    /// Tells the client, once.
    pub(crate) fn tell(&mut self, turn: &mut Turn<'_>, outcome: Outcome, cell: Option<Cell>) {
        self.is_settled = true;
        self.told = Some(outcome);
        if let Some(client) = self.client.take() {
            turn.effects.push(Effect::Outcome {
                client,
                outcome,
                acks: self.good.len(),
                cell,
            });
        }
    }

    /// When to look at this operation again.
    pub(crate) fn due_us(&self) -> u64 {
        self.deadline_us.min(self.alarm_us)
    }

    /// The owners that the operation addresses.
    pub(crate) fn owners<'a>(&self, desk: &'a Desk) -> &'a [MemberIndex] {
        &desk.ring.owners(self.partition)[..usize::from(self.quorum.from())]
    }

    /// Where this member stands among the owners.
    pub(crate) fn own_place(&self, desk: &Desk) -> Option<u8> {
        self.place_of(desk, desk.me)
    }

    /// Where a member stands among the owners.
    pub(crate) fn place_of(&self, desk: &Desk, member: MemberIndex) -> Option<u8> {
        let at = self
            .owners(desk)
            .iter()
            .position(|owner| *owner == member)?;
        Some(u8::try_from(at).expect("a topology has at most MEMBERS_MAX members"))
    }

    /// All places that the operation addresses.
    pub(crate) fn everybody(&self) -> Places {
        Places::first(self.quorum.from())
    }

    /// More than a half of the owners.
    pub(crate) fn majority(&self) -> u8 {
        self.quorum.from() / 2 + 1
    }

    /// Does a quorum of this operation meet every other one?
    pub(crate) fn is_strict(&self) -> bool {
        self.quorum.ack() >= self.majority()
    }

    /// Begins a round of questions: earlier ones count no more.
    pub(crate) fn begin_round(&mut self, stage: Stage) {
        self.stage = stage;
        self.round = self.round.wrapping_add(1);
        self.asked = Places::NONE;
        self.pending = Places::NONE;
        self.good = Places::NONE;
        self.full = Places::NONE;
        self.again = Places::NONE;
        self.spared = Places::NONE;
        self.refused = None;
        self.alarm_us = NEVER;
    }

    /// Asks the owner at `place`, in this round.
    pub(crate) fn ask(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, place: u8, ask: Ask) {
        self.asked.insert(place);
        self.pending.insert(place);
        let member = self.owners(desk)[usize::from(place)];
        let purpose = Purpose::Op {
            op: self.id,
            place,
            round: self.round,
        };
        self.questions += u32::from(member != desk.me);
        desk.ask(turn, member, purpose, ask, self.deadline_us);
    }

    /// Did this try ask no more than a client's request may cost?
    pub(crate) fn is_frugal(&self, desk: &Desk) -> bool {
        let of_owner = match (self.intent, &self.paxos) {
            (Intent::Get, _) | (_, Some(_)) => TRY_QUESTIONS_MAX,
            (Intent::Put | Intent::Delete, None) => WRITE_QUESTIONS_MAX,
        };
        let others = self.quorum.from() - u8::from(self.own_place(desk).is_some());
        self.questions <= of_owner * u32::from(others) + self.links_back
    }

    /// Can `needed` good answers still come together?
    pub(crate) fn can_reach(&self, needed: u8) -> bool {
        let open = self.everybody().without(self.asked).or(self.pending);
        self.good.or(open).len() >= needed
    }

    /// Refuses the operation at the door.
    pub(crate) fn overloaded(client: ClientTicket) -> Effect {
        Effect::Outcome {
            client,
            outcome: Outcome::Overloaded {
                refusal: Refusal::Requests,
            },
            acks: 0,
            cell: None,
        }
    }
}

/// A cell as it enters the system: its version comes later.
fn entering(key: &[u8], kind: Kind, value: Bytes, expiry_ms: Option<u64>, quorum: Quorum) -> Cell {
    Cell {
        version: Version::ZERO,
        kind,
        copies: quorum.from(),
        expiry_ms,
        checksum: cell::checksum(Key::user(key).as_stored(), &value),
        value,
    }
}

/// Is this answer the confirmation of a write?
pub(crate) fn is_written(answer: &Answer) -> bool {
    matches!(answer, Answer::Written(_))
}

/// Does this refusal say that the copy is damaged?
pub(crate) fn is_damaged(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refused::Damaged))
}
