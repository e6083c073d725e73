//! One client's operation at its coordinator: the stages that it goes through, and the outcome in
//! the end.
//!
//! ```text
//! any          Begin ─┬─ links to enough owners ─────► the first question, as below
//!                     ├─ too few, others expected ───► Links ─ a link comes up ─► Begin
//!                     └─ a write of the key is ahead ► Queue ─ its turn comes ──► Begin
//! GET          Read ─┬─ a majority holds the newest ─► shown ─► (Mending)
//!                    └─ too few hold it ─► WriteBack ► shown
//! PUT, DELETE  Clock ─► (Cover) ─┬─► Write ──────────► stored ─► Lingering
//!                                └─ too few have room ► refused
//! conditional  (Cover) ─► Prepare ─┬─ the condition holds ─► Accept ─► Write ─► stored
//!                 ▲                ├─ it fails ─► (WriteBack) ─► refused
//!                 │                └─ a rival's proposal is open ─► Accept ─► WriteBack ─┐
//!                 ├──────────────────────────────────────────────────────────────────────┘
//!                 └─ BackOff ◄─ outbid
//! told         Lingering, Mending ─ all answered, or the deadline ─► Settled
//!
//! files        epochs.rs, half.rs; links.rs, queue.rs; read.rs; clock.rs, write.rs; paxos.rs with proposer.rs
//! ```
//!
//! A stage (`stage.rs`) owns the data that is valid in it. A function that works on a stage takes
//! it and returns the next one. So no set of a round that is over can be read, and no path leaves
//! an operation without a stage.
//!
//! Invariants
//! 1. One outcome, at the latest at the first `Tick` at or after the deadline.
//! 2. One version for ever: a cell that was sent under a version is never sent under another one.
//! 3. An answer counts in the round that asked for it, once per place.
//! 4. `Known::NotApplied` is said only while no question that can change the key has left.
//!
//! Not here: the answers of a member (`replica/`), questions on their way (`desk.rs`).
//! See: docs/protocol.md.

pub(crate) mod clock;
pub(crate) mod copies;
pub(crate) mod epochs;
pub(crate) mod half;
pub(crate) mod links;
pub(crate) mod paxos;
pub(crate) mod proposer;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod scan;
pub(crate) mod stage;
pub(crate) mod write;

use crate::account::ReadAccount;
use crate::admission::RefusedBy;
use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::{TRY_QUESTIONS_MAX, WRITE_QUESTIONS_MAX};
use crate::outcome::Outcome;
use crate::places::Places;
use crate::purpose::{OpId, Purpose};
use crate::step::{ClientTicket, Effect};
use crate::tally::Tally;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Refused};
use dendra_base::{Cell, Key, Kind, Known, Quorum, Version, cell};
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_watch::Looked;
use half::{Half, TWIN_PLACE, is_for_twin};
use proposer::Proposer;
use stage::{Stage, WaitFor};

/// The client's wish.
#[derive(Debug)]
pub(crate) enum Intent {
    /// To read; with the account of it, where the client wants one.
    Get(Breadth, Option<Box<ReadAccount>>),
    /// To read for watches, and what was found.
    Look(Breadth, Looked),
    /// To store this cell without a condition: a value, or the tombstone of a deletion. Its version
    /// is zero until stage `Clock` is over.
    Write(Cell),
    /// A write under a condition on the stored record.
    Conditional(Box<Proposer>),
}

/// How many copies a read looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breadth {
    /// The copies of as many owners as have to answer.
    Enough,
    /// The copies of all owners, at once: copies of one version were seen to differ.
    All,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Op {
    /// Entry of the operation in the node's ledger. Zero until the ledger gave it one, before the
    /// first question.
    pub(crate) id: OpId,
    /// The client that gets the outcome. `None` once it was told, when the client hung up, and for
    /// operations of this node.
    pub(crate) client: Option<ClientTicket>,
    /// Wish of the client. Unchanged in every stage, with two exceptions. A plain write's cell gets
    /// its version in `Clock`. A proposer notes the versions and ballots that it sees.
    pub(crate) intent: Intent,
    /// How many owners are addressed, and how many have to answer. A tally has as many places.
    pub(crate) quorum: Quorum,
    /// Partition of the key. Its owners in the ring's order are the places of all tallies.
    pub(crate) partition: Partition,
    /// Raw user key.
    pub(crate) key: Bytes,
    /// When the outcome has to be told, on the monotonic clock.
    pub(crate) deadline_us: u64,
    /// Where the operation is, with all that is valid only there.
    pub(crate) stage: Stage,
    /// Counts rounds of questions. A question carries the number, so that an answer to an earlier
    /// round is known as such. It wraps: an answer would have to be 256 rounds late.
    pub(crate) round: u8,
    /// When the round, or the wait, began.
    pub(crate) since_us: u64,
    /// When to act although no answer came; `NEVER` = at the deadline. In stage `Waiting` the end
    /// of the wait. In `Clock` and `Read` the time at which further owners are asked. In `Prepare`
    /// and `Accept` the time at which a rival that outbid this write is let through. Every round of
    /// questions begins without an alarm.
    pub(crate) alarm_us: u64,
    /// Questions to other members in this try: since it began, waited for links, or drew a ballot.
    /// `is_frugal` compares it with the bound when the entry goes.
    pub(crate) questions: u32,
    /// How often the link of an owner came up that the operation went without.
    pub(crate) links_back: u32,
    /// Owners that know a later epoch: their answers are open until this member knows it, too.
    pub(crate) stale: Places,
    /// The answer of one of the two owners of a position that moves, in the round under way.
    pub(crate) half: Option<Half>,
}

impl Op {
    pub(crate) fn new(
        client: Option<ClientTicket>,
        key: Bytes,
        partition: Partition,
        operation: Operation,
        quorum: Quorum,
        deadline_us: u64,
    ) -> Op {
        let condition = operation.condition();
        let of_write = |cell| match &condition {
            Condition::None => Intent::Write(cell),
            Condition::Present
            | Condition::Absent
            | Condition::Matches(_)
            | Condition::Differs(_)
            | Condition::MatchesOneOf(_)
            | Condition::DiffersFromAll(_) => {
                Intent::Conditional(Box::new(Proposer::new(condition.clone(), cell)))
            }
        };
        let intent = match operation {
            Operation::Get => Intent::Get(Breadth::Enough, None),
            Operation::Put {
                value, expiry_ms, ..
            } => of_write(entering(&key, Kind::Value, value, expiry_ms, quorum)),
            Operation::Delete { .. } => {
                of_write(entering(&key, Kind::Tombstone, Bytes::new(), None, quorum))
            }
            Operation::Touch { expiry_ms, .. } => {
                let end = Some(expiry_ms);
                let empty = entering(&key, Kind::Value, Bytes::new(), end, quorum);
                Intent::Conditional(Box::new(Proposer::of_touch(condition, empty)))
            }
        };
        Op {
            id: 0,
            client,
            intent,
            quorum,
            partition,
            key,
            deadline_us,
            stage: Stage::Waiting(WaitFor::Begin),
            round: 0,
            since_us: 0,
            alarm_us: NEVER,
            questions: 0,
            links_back: 0,
            stale: Places::NONE,
            half: None,
        }
    }

    /// A read of watches: they are told of tombstones and of ended values, too.
    pub(crate) fn of_look(
        key: Bytes,
        partition: Partition,
        breadth: Breadth,
        quorum: Quorum,
        deadline_us: u64,
    ) -> Op {
        let mut op = Op::new(None, key, partition, Operation::Get, quorum, deadline_us);
        op.intent = Intent::Look(breadth, None);
        op
    }

    /// Works on the stage: `work` takes it, and returns the next one.
    pub(crate) fn work(&mut self, work: impl FnOnce(&mut Op, Stage) -> Stage) {
        let stage = std::mem::replace(&mut self.stage, Stage::Settled(None));
        self.stage = work(self, stage);
    }

    /// The first question, or a reason to wait for it. `wait` is the wait that is over.
    pub(crate) fn begin(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, wait: WaitFor) -> Stage {
        if let Some(stage) = self.wait_in_queue(desk, turn) {
            return stage;
        }
        if let Some(stage) = self.check_wall(desk, turn, wait) {
            return stage;
        }
        if let Some(stage) = self.check_links(desk, turn, Places::NONE, Places::NONE) {
            return stage;
        }
        match self.intent {
            Intent::Get(breadth, _) | Intent::Look(breadth, _) => {
                self.begin_read(desk, turn, breadth)
            }
            Intent::Write(_) => self.begin_clock(desk),
            Intent::Conditional(_) => self.prepare(desk, turn, self.new_tally()),
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
    ) {
        if let Answer::Refused(Refused::Stale { epoch }) = answer {
            return self.stale_answered(desk, turn, place, round, epoch);
        }
        if matches!(self.stage, Stage::Clock(_)) {
            self.clock_answered(desk, turn, place, &answer);
            return;
        }
        let is_this_round = round == self.round;
        if !is_this_round {
            return;
        }
        let Some((place, answer)) = self.paired(desk, place, answer) else {
            return;
        };
        let Some(tally) = self.stage.tally_mut() else {
            return;
        };
        if !tally.answer(place) {
            return;
        }
        if let Answer::Refused(why) = answer {
            tally.refuse(place, why);
        }
        self.work(|op, stage| match stage {
            Stage::Read(fetching) => op.read_answered(desk, turn, fetching, place, answer),
            Stage::Mending(fetching) => op.mending_answered(desk, turn, fetching, place, answer),
            Stage::WriteBack(back) => op.write_back_answered(desk, turn, back, place, &answer),
            Stage::Write(writing) => op.write_answered(desk, turn, writing, place, &answer),
            Stage::Lingering(writing) => {
                op.late_write_answered(desk, turn, writing, place, &answer)
            }
            Stage::Prepare(preparing) => op.prepare_answered(desk, turn, preparing, place, answer),
            Stage::Accept(accepting) => op.accept_answered(desk, turn, accepting, place, &answer),
            // A promise of the round before may come late: it was noted, and no longer decides.
            Stage::Waiting(_) | Stage::Clock(_) | Stage::Cover(_) | Stage::Settled(_) => stage,
        });
    }

    /// The alarm rang, or the deadline passed.
    pub(crate) fn due(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if turn.now.mono_us >= self.deadline_us {
            self.work(|op, stage| op.deadline_passed(desk, turn, stage));
            return;
        }
        if turn.now.mono_us < self.alarm_us {
            return;
        }
        self.alarm_us = NEVER;
        self.work(|op, stage| match stage {
            Stage::Waiting(WaitFor::Links) => op.begin(desk, turn, WaitFor::Links),
            Stage::Waiting(WaitFor::Queue) => op.wait_on(desk, turn),
            Stage::Waiting(WaitFor::BackOff) => op.prepare(desk, turn, op.new_tally()),
            Stage::Clock(clocking) => op.hedge_clocks(desk, turn, clocking),
            Stage::Read(fetching) => op.hedge(desk, turn, fetching),
            Stage::Prepare(_) | Stage::Accept(_) => op.back_off(desk, turn, &stage),
            Stage::Write(writing) => op.ask_spared(desk, turn, writing),
            Stage::Waiting(WaitFor::Begin)
            | Stage::Cover(_)
            | Stage::Lingering(_)
            | Stage::Mending(_)
            | Stage::WriteBack(_)
            | Stage::Settled(_) => stage,
        });
    }

    fn deadline_passed(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, stage: Stage) -> Stage {
        match stage {
            Stage::Lingering(writing) => return self.stop_lingering(desk, turn, writing),
            Stage::Mending(_) | Stage::Settled(_) => {}
            Stage::Waiting(WaitFor::Links) => self.refuse_for_links(desk, turn),
            Stage::Waiting(WaitFor::Begin) => {
                self.tell(turn, Outcome::DeadlinePassed, Places::NONE, None)
            }
            Stage::Clock(clocking) if clocking.tally.asked().is_empty() => {
                self.tell(turn, Outcome::DeadlinePassed, Places::NONE, None);
            }
            Stage::Waiting(WaitFor::Queue | WaitFor::BackOff)
            | Stage::Clock(_)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Read(_)
            | Stage::WriteBack(_)
            | Stage::Prepare(_)
            | Stage::Accept(_) => {
                let known = self.known_if_failed(&stage);
                self.fail(desk, turn, &stage, known);
            }
        }
        Stage::Settled(None)
    }

    /// The client hung up: it ends unless it has sent something of its own that changes the key.
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>) {
        let may_be_stored = self.known_if_failed(&self.stage) == Known::Unknown;
        if may_be_stored {
            return;
        }
        self.tell(turn, Outcome::Abandoned, self.stage.answered(), None);
        self.stage = Stage::Settled(None);
    }

    /// May the record have changed if the operation fails in this stage?
    pub(crate) fn known_if_failed(&self, stage: &Stage) -> Known {
        let may_be_stored = match &self.intent {
            Intent::Get(..) | Intent::Look(..) => false,
            Intent::Conditional(proposer) => proposer.may_be_chosen(),
            Intent::Write(_) => matches!(stage, Stage::Write(_)),
        };
        if may_be_stored {
            Known::Unknown
        } else {
            Known::NotApplied
        }
    }

    /// Tells the client that too few answered the round of this stage.
    pub(crate) fn fail(&mut self, desk: &Desk, turn: &mut Turn<'_>, stage: &Stage, known: Known) {
        if let Stage::Write(writing) = stage {
            return self.fail_write(desk, turn, writing);
        }
        let shortfall = self.shortfall(desk, stage);
        let refused = if matches!(stage, Stage::Waiting(WaitFor::Begin)) {
            // No owner was asked: only a wrong clock ends an operation here.
            Some((desk.me, Refused::ClockApart))
        } else {
            self.reason(desk, stage.tally())
        };
        self.tell_shortfall(desk, turn, shortfall, refused, known, stage.answered());
    }

    /// Why a round failed, as the member that refused says.
    pub(crate) fn reason(
        &self,
        desk: &Desk,
        tally: Option<&Tally>,
    ) -> Option<(MemberIndex, Refused)> {
        let (place, why) = tally?.reason()?;
        Some((self.owners(desk)[usize::from(place)], why))
    }

    /// Tells the client how many answered, how many had to, and the refusal that explains it.
    pub(crate) fn tell_shortfall(
        &mut self,
        desk: &Desk,
        turn: &mut Turn<'_>,
        (got, needed): (u8, u8),
        refused: Option<(MemberIndex, Refused)>,
        known: Known,
        answered: Places,
    ) {
        let refused = match refused {
            // Of clocks that are apart this one is the wrong one.
            Some((_, Refused::ClockApart)) if desk.walls.is_doubted(turn.now) => {
                Some((desk.me, Refused::ClockApart))
            }
            refused => refused,
        };
        let outcome = Outcome::NotEnough {
            got,
            needed,
            from: self.quorum.from(),
            known,
            refused,
        };
        self.tell(turn, outcome, answered, None);
    }

    /// How many owners answered the round of this stage, and how many have to.
    fn shortfall(&self, desk: &Desk, stage: &Stage) -> (u8, u8) {
        let needed = match stage {
            Stage::Clock(_) => self.clocks_needed(),
            Stage::Waiting(WaitFor::Queue | WaitFor::BackOff)
            | Stage::Prepare(_)
            | Stage::Accept(_) => self.majority(),
            Stage::WriteBack(back) if !self.is_held(desk, &back.copies) => {
                return self.held(desk, &back.copies);
            }
            Stage::Waiting(WaitFor::Begin | WaitFor::Links)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Lingering(_)
            | Stage::Read(_)
            | Stage::Mending(_)
            | Stage::WriteBack(_)
            | Stage::Settled(_) => self.quorum.ack(),
        };
        (stage.answered().len(), needed)
    }

    /// Tells the client, if one still waits, and that the owners at `answered` did. The caller goes
    /// to a stage after the outcome.
    pub(crate) fn tell(
        &mut self,
        turn: &mut Turn<'_>,
        outcome: Outcome,
        answered: Places,
        cell: Option<Cell>,
    ) {
        if let Some(client) = self.client.take() {
            let mut account = match &mut self.intent {
                Intent::Get(_, account) => account.take(),
                Intent::Look(..) | Intent::Write(_) | Intent::Conditional(_) => None,
            };
            if let Some(account) = &mut account {
                account.end(turn.now.mono_us, answered);
            }
            turn.effects.push(Effect::Outcome {
                client,
                outcome,
                acks: answered.len(),
                cell,
                account,
            });
        }
    }

    /// The account of a read that its client wants explained.
    pub(crate) fn account(&mut self) -> Option<&mut ReadAccount> {
        match &mut self.intent {
            Intent::Get(_, account) => account.as_deref_mut(),
            Intent::Look(..) | Intent::Write(_) | Intent::Conditional(_) => None,
        }
    }

    /// When to look at this operation again.
    pub(crate) fn due_us(&self) -> u64 {
        self.deadline_us.min(self.alarm_us)
    }

    /// The owners that the operation addresses.
    pub(crate) fn owners<'a>(&self, desk: &'a Desk) -> &'a [MemberIndex] {
        &desk.ring().owners(self.partition)[..usize::from(self.quorum.from())]
    }

    /// Does the operation address more owners than there are members? Then members have left since
    /// its client named a number.
    pub(crate) fn is_too_wide(&self, desk: &Desk) -> bool {
        self.quorum.from() > desk.topology.live()
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
    pub(crate) fn all_places(&self) -> Places {
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

    /// Is it a write without a condition?
    pub(crate) fn is_plain(&self) -> bool {
        match self.intent {
            Intent::Write(_) => true,
            Intent::Get(..) | Intent::Look(..) | Intent::Conditional(_) => false,
        }
    }

    /// A round in which no owner was asked yet.
    pub(crate) fn new_tally(&self) -> Tally {
        Tally::new(self.quorum.from())
    }

    /// Begins a round, or a wait: answers to earlier rounds count no more.
    pub(crate) fn begin_round(&mut self) -> Tally {
        self.round = self.round.wrapping_add(1);
        self.alarm_us = NEVER;
        self.new_tally()
    }

    /// Asks the owner at `place`, which the caller notes in the tally of the round under way.
    pub(crate) fn ask(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, place: u8, ask: Ask) {
        let member = self.owners(desk)[usize::from(place)];
        let purpose = Purpose::Op {
            op: self.id,
            place,
            round: self.round,
        };
        self.questions += u32::from(member != desk.me);
        if let Some(twin) = self.twin_at(desk, place).filter(|_| is_for_twin(&ask)) {
            let of_twin = Purpose::Op {
                op: self.id,
                place: TWIN_PLACE,
                round: self.round,
            };
            self.half = None;
            desk.ask(turn, twin, of_twin, ask.clone(), self.deadline_us);
        }
        desk.ask(turn, member, purpose, ask, self.deadline_us);
    }

    /// Did this try ask no more than a client's request may cost?
    pub(crate) fn is_frugal(&self, desk: &Desk) -> bool {
        let of_owner = match self.intent {
            Intent::Get(..) | Intent::Look(..) | Intent::Conditional(_) => TRY_QUESTIONS_MAX,
            Intent::Write(_) => WRITE_QUESTIONS_MAX,
        };
        // Further owners change without a new try, so this member may have become one meanwhile.
        let is_stored = self.quorum.from() <= desk.topology.copies();
        let others = self.quorum.from() - u8::from(is_stored && self.own_place(desk).is_some());
        self.questions <= of_owner * u32::from(others) + self.links_back
    }

    /// Refuses the operation at the door.
    pub(crate) fn overloaded(client: ClientTicket) -> Effect {
        Effect::Outcome {
            client,
            outcome: Outcome::Overloaded {
                refusal: RefusedBy::Requests,
            },
            acks: 0,
            cell: None,
            account: None,
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
        born: 0,
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
