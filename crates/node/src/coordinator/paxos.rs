//! Stages `Prepare` and `Accept`: the owners of a key agree on the cell that follows one version.
//!
//! ```text
//! Prepare ─ a majority promised ─► base = the newest stored copy that they showed
//!    a proposal above the base was accepted ─► Accept, with it ─► WriteBack(Finish) ─► Prepare
//!    the own proposal has won ───────────────► Write
//!    the condition fails ────────────────────► (WriteBack(Refuse)) ─► told: ConditionFailed
//!    the condition holds ────────────────────► Accept, with the proposal that follows the base
//! Accept  ─ a majority accepted ─► Write ─ `ack` confirmations ─► told: Stored, Deleted
//! outbid  ─► Waiting(BackOff), for a drawn time ─► Prepare under a higher ballot
//! ```
//!
//! Invariants
//! 1. Rivals on one base propose the same version. Exception: a restore raised the least successor
//!    number, and a rival of an earlier epoch proposes a lower version. Rivals without a base
//!    propose one each. Once a majority accepted one proposal, every later proposer proposes it,
//!    too: it finishes the proposal of the highest ballot that it sees. The author's ballot tells
//!    which rival won.
//! 2. Once a question with the own proposal left, this operation makes no other proposal, unless
//!    its version went to a rival for certain. While neither is certain, the outcome is "unknown".
//! 3. A ballot is used once, and leaves only once a ceiling above it is durable.
//! 4. A write on a value that has ended needs a majority of the owners' wall clocks that agree with
//!    the own one. Else a clock that is ahead at a start would give a lock away.
//! 5. The versions that a stage saw are noted (`remember`) before the next ballot is drawn.
//!
//! Not here: a proposer's memory, and which one won (`proposer.rs`); an acceptor's record
//! (`replica/protocol.rs`); the queue in front (`queue.rs`); the last round (`write.rs`).
//! See: docs/protocol.md; Lamport, "The Part-Time Parliament"; Burke, Cheng, Lloyd, "Gryff", 2020.

use super::copies::Copies;
use super::proposer::{OwnProposal, Promises, ProposalFate, Proposer, is_plain, version_behind};
use super::stage::{Accepting, Clocking, Goal, Preparing, Stage, WaitFor};
use super::{Intent, Op};
use crate::desk::{Desk, Turn};
use crate::limits::{BACK_OFF_OWN_US_MAX, BACK_OFF_US_MAX, BACK_OFF_US_MIN};
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use crate::purpose::Purpose;
use crate::tally::{Tally, Verdict};
use crate::walls::Walls;
use dendra_base::peer::{Answer, Ask, Ballot, Proposal, Refused};
use dendra_base::{Cell, Version};
use dendra_ownership::member::MemberIndex;

/// Can the promises prove which ballot chose the stored version that they show, and so which write
/// stored it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseProof {
    Proven,
    Open,
}

impl Op {
    fn proposer(&self) -> &Proposer {
        match &self.intent {
            Intent::Conditional(proposer) => proposer,
            Intent::Get(..) | Intent::Look(..) | Intent::Write(_) => {
                panic!("only conditional writes come here")
            }
        }
    }

    fn proposer_mut(&mut self) -> &mut Proposer {
        match &mut self.intent {
            Intent::Conditional(proposer) => proposer,
            Intent::Get(..) | Intent::Look(..) | Intent::Write(_) => {
                panic!("only conditional writes come here")
            }
        }
    }

    /// A conditional write takes note of the newest of these copies.
    pub(super) fn saw(&mut self, copies: &Copies) {
        if let Intent::Conditional(proposer) = &mut self.intent {
            proposer.saw(copies.version());
        }
    }

    /// A new ballot, and promises for it. `before` is the round that led to it.
    pub(super) fn prepare(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, before: Tally) -> Stage {
        let ballot = Ballot {
            hlc: desk.tick(turn),
            origin: desk.origin,
        };
        let proposer = self.proposer_mut();
        proposer.before = desk.write_queues.came();
        proposer.ballot = ballot;
        proposer.is_outbid = false;
        self.questions = 0;
        self.send_when_covered(desk, turn, Clocking::new(before))
    }

    pub(super) fn send_prepare(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Stage {
        let mut tally = self.begin_round();
        let ballot = self.proposer().ballot;
        for place in self.all_places().iter() {
            let key = self.key.clone();
            tally.ask(place);
            self.ask(desk, turn, place, Ask::Prepare { key, ballot });
        }
        Stage::Prepare(Preparing {
            ballot,
            tally,
            copies: Copies::default(),
            promises: Promises::above(desk.layout.horizons().spent()),
        })
    }

    /// An owner promised, or did not.
    pub(super) fn prepare_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut preparing: Preparing,
        place: u8,
        answer: Answer,
    ) -> Stage {
        let Answer::Promised { stored, accepted } = answer else {
            return self.not_served(desk, turn, Stage::Prepare(preparing), &answer);
        };
        preparing.tally.count(place);
        preparing.copies.take(place, stored, turn.now.wall_ms);
        if self.twin_at(desk, place).is_some() {
            preparing.copies.doubt(place);
        }
        if preparing.copies.is_disputed() {
            let version = preparing.copies.version();
            desk.disputes.noticed(turn.now.mono_us, &self.key, version);
        }
        preparing.promises.add(accepted);
        match preparing.tally.verdict(self.majority()) {
            Verdict::Met => self.decide(desk, turn, preparing),
            Verdict::Pending | Verdict::Lost => Stage::Prepare(preparing),
        }
    }

    /// An owner refused to promise or to accept, in this stage.
    fn not_served(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        stage: Stage,
        answer: &Answer,
    ) -> Stage {
        if let Answer::Outbid { promised, line } = answer {
            desk.follow(promised.hlc);
            let proposer = self.proposer_mut();
            proposer.is_outbid = true;
            match proposer.fate_by_outbid(line.as_ref()) {
                ProposalFate::Won => return self.write_own(desk, turn),
                ProposalFate::Lost => {
                    proposer.own = None;
                    return self.back_off(desk, turn, &stage);
                }
                ProposalFate::Unknown => {}
            }
            // The other owners may still promise or accept. But this write does not wait long for
            // owners that may never answer.
            self.alarm_us = self.alarm_us.min(turn.now.mono_us + BACK_OFF_US_MIN);
        }
        let verdict = stage.tally().map(|tally| tally.verdict(self.majority()));
        if verdict != Some(Verdict::Lost) {
            return stage;
        }
        if self.proposer().is_outbid {
            return self.back_off(desk, turn, &stage);
        }
        self.fail_or_wait(desk, turn, stage)
    }

    /// Rests, so that a rival can finish. `stage` is given up.
    pub(super) fn back_off(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        stage: &Stage,
    ) -> Stage {
        self.remember(stage);
        self.begin_round();
        let proposer = self.proposer_mut();
        let pause_us = BACK_OFF_US_MIN << proposer.attempt.min(16);
        proposer.attempt += 1;
        let longest_us = match proposer.own {
            Some(_) => BACK_OFF_OWN_US_MAX,
            None => BACK_OFF_US_MAX,
        };
        let pause_us = desk.prng.below(pause_us.min(longest_us));
        self.alarm_us = turn.now.mono_us + 1 + pause_us;
        Stage::Waiting(WaitFor::BackOff)
    }

    /// A stage with copies is given up: their version is noted before the next ballot is drawn.
    pub(super) fn remember(&mut self, stage: &Stage) {
        match stage {
            Stage::Prepare(preparing) => self.saw(&preparing.copies),
            Stage::WriteBack(back) => self.saw(&back.copies),
            // The base of `Accept` was noted by `decide`; a read has no memory.
            Stage::Accept(_)
            | Stage::Waiting(_)
            | Stage::Clock(_)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Lingering(_)
            | Stage::Read(_)
            | Stage::Mending(_)
            | Stage::Settled(_) => {}
        }
    }

    /// Not proven if an owner promised before it accepted `base`. It may have accepted it under a
    /// higher ballot than it promised. Another owner, which did not accept it, may have shown the
    /// stored version later.
    fn proof_of(&self, base: Version, holders: Places) -> BaseProof {
        if holders.len() >= self.majority() || base <= self.proposer().seen {
            BaseProof::Proven
        } else {
            BaseProof::Open
        }
    }

    /// A majority promised. The newest copy that they showed is the base. It decides the next step,
    /// with the proposals that they accepted and the fate of the own proposal.
    fn decide(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, preparing: Preparing) -> Stage {
        let base = preparing.copies.version();
        // Before the base counts as seen: it must have been seen before the promises were asked
        // for.
        let proof = self.proof_of(base, preparing.copies.holders());
        self.proposer_mut().saw(base);
        // A proposal that a majority accepted is the one of the highest ballot, or an ancestor of
        // it.
        let promises = &preparing.promises;
        let open = promises
            .highest(|_| true)
            .filter(|last| last.cell.version > base);
        if let Some(open) = open {
            return self.propose(desk, turn, open.clone());
        }
        match self.proposer().own.clone() {
            Some(own) => self.judge_own(desk, turn, preparing, &own, proof),
            None => self.judge_condition(desk, turn, preparing, proof),
        }
    }

    /// The own proposal was sent under an earlier ballot, and the promises show none above their
    /// base. Has it won? If it has lost, the condition is judged anew.
    fn judge_own(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        preparing: Preparing,
        own: &OwnProposal,
        proof: BaseProof,
    ) -> Stage {
        let Preparing {
            tally,
            copies,
            promises,
            ballot: _,
        } = &preparing;
        let base = copies.version();
        // Between the two a rival on nothing has a version, and one of an earlier epoch, in which
        // the least successor number was lower.
        let is_as_it_was = base <= own.base;
        if own.version > base && is_as_it_was {
            // No owner of a majority accepted it, and nothing newer came: it is proposed again.
            let proposal = self.proposer().proposal(own);
            return self.propose(desk, turn, proposal);
        }
        if proof == BaseProof::Open {
            // The next promises are given after its acceptance.
            return self.prepare(desk, turn, preparing.tally);
        }
        let answered = tally.good();
        let is_everywhere = copies.holders().len() >= self.majority();
        let is_covered = base != Version::ZERO && is_plain(base);
        let fate = match promises.fate(own, base) {
            ProposalFate::Unknown if is_covered && !is_everywhere => {
                // The version above it has to be held first: then the promises tell the fate of
                // the own proposal.
                let (held, goal) = (preparing.copies, Goal::Finish);
                return self.write_back(desk, turn, answered, held, Places::NONE, goal);
            }
            ProposalFate::Unknown if is_covered && promises.is_last(own) => {
                // No other proposal was accepted instead: a majority decides, below the version
                // above it.
                let proposal = self.proposer().proposal(own);
                return self.propose(desk, turn, proposal);
            }
            ProposalFate::Unknown if is_covered => promises.fate_below(own),
            fate => fate,
        };
        match fate {
            ProposalFate::Won => self.write_own(desk, turn),
            ProposalFate::Lost => {
                // Its version is a rival's, for ever: the own proposal never happened.
                self.proposer_mut().own = None;
                self.judge_condition(desk, turn, preparing, proof)
            }
            ProposalFate::Unknown => {
                let (got, from) = (answered.len(), self.quorum.from());
                self.tell(turn, Outcome::Overtaken { got, from }, answered, None);
                Stage::Settled(None)
            }
        }
    }

    /// No proposal of this operation can be chosen. If the condition holds of the base, a proposal
    /// follows it; otherwise the client is refused.
    fn judge_condition(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        preparing: Preparing,
        proof: BaseProof,
    ) -> Stage {
        let Preparing {
            ballot,
            tally,
            copies,
            promises,
        } = preparing;
        let base = copies.version();
        let live = copies.live_version(turn.now.wall_ms);
        if !self.proposer().condition.holds(live) {
            let is_settled = copies.best().is_none() || self.is_held(desk, &copies);
            if is_settled {
                let answered = tally.good().or(copies.holders());
                return self.refuse_condition(turn, copies, answered);
            }
            let answered = tally.good();
            return self.write_back(desk, turn, answered, copies, Places::NONE, Goal::Refuse);
        }
        let has_ended = copies.best().is_some_and(|it| it.expiry_ms.is_some()) && live.is_none();
        if has_ended && let Some(stage) = self.check_end(desk, turn, tally.good()) {
            return stage;
        }
        if proof == BaseProof::Open && !is_plain(base) {
            // A proposal names the author of its base: the next promises tell it.
            return self.prepare(desk, turn, tally);
        }
        let proposer = self.proposer_mut();
        if proposer.is_touch {
            proposer.take_value(copies.best().expect("the condition wants a live value"));
        }
        let own = OwnProposal {
            author: ballot,
            ancestors: promises.line_of(base, ballot),
            before: proposer.before,
            version: version_behind(
                base,
                ballot,
                desk.layout.horizons().void(),
                desk.layout.least_successor(),
            ),
            base,
        };
        let proposal = proposer.proposal(&own);
        proposer.own = Some(own);
        self.propose(desk, turn, proposal)
    }

    /// The base has ended by the own wall clock, and a write may follow it. `None` once the clocks
    /// of a majority of the owners agree with the own one; those of a majority of all members where
    /// the only owner would judge alone. Those that are not known are asked, and the promises are
    /// asked for again.
    fn check_end(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        promised: Places,
    ) -> Option<Stage> {
        let topology = &desk.topology;
        let mut judges = Places::NONE;
        let needed = match self.owners(desk) {
            [_] => {
                for member in (0..topology.len()).filter(|at| topology.has(MemberIndex(*at))) {
                    judges.insert(member);
                }
                topology.live() / 2 + 1
            }
            owners => {
                for owner in owners {
                    judges.insert(owner.0);
                }
                self.majority()
            }
        };
        let (mut near, mut unknown) = (0, Places::NONE);
        for member in judges.iter().map(MemberIndex) {
            match desk.walls.ahead_ms(member, turn.now) {
                _ if member == desk.me => near += 1,
                Some(ahead_ms) => near += u8::from(Walls::is_near(ahead_ms)),
                None => {
                    unknown.insert(member.0);
                }
            }
        }
        if near >= needed {
            return None;
        }
        if near + unknown.len() < needed {
            let refused = Some((desk.me, Refused::ClockApart));
            let known = Known::NotApplied;
            self.tell_shortfall(desk, turn, (near, needed), refused, known, promised);
            return Some(Stage::Settled(None));
        }
        for member in unknown.iter().map(MemberIndex) {
            let purpose = Purpose::Unneeded;
            desk.ask(turn, member, purpose, Ask::Clock, self.deadline_us);
        }
        Some(self.back_off(desk, turn, &Stage::Waiting(WaitFor::BackOff)))
    }

    /// The own proposal was chosen: it is written, even below versions that were built on it since.
    fn write_own(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Stage {
        let proposer = self.proposer();
        let own = proposer.own.as_ref().expect("it won");
        let cell = Cell {
            version: own.version,
            born: proposer.ballot.hlc,
            ..proposer.value.clone()
        };
        self.send_write(desk, turn, cell)
    }

    /// Asks all owners to accept a proposal under the own ballot.
    fn propose(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, mut proposal: Proposal) -> Stage {
        let mut tally = self.begin_round();
        proposal.ballot = self.proposer().ballot;
        proposal.cell.born = proposal.ballot.hlc;
        for place in self.all_places().iter() {
            let (key, proposal) = (self.key.clone(), proposal.clone());
            tally.ask(place);
            self.ask(desk, turn, place, Ask::Accept { key, proposal });
        }
        Stage::Accept(Accepting { tally, proposal })
    }

    /// An owner accepted, or did not.
    pub(super) fn accept_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        mut accepting: Accepting,
        place: u8,
        answer: &Answer,
    ) -> Stage {
        if *answer != Answer::Accepted {
            return self.not_served(desk, turn, Stage::Accept(accepting), answer);
        }
        accepting.tally.count(place);
        if accepting.tally.verdict(self.majority()) != Verdict::Met {
            return Stage::Accept(accepting);
        }
        let Accepting { tally, proposal } = accepting;
        let own = self.proposer().own.as_ref();
        if own.is_some_and(|own| own.author == proposal.author) {
            return self.send_write(desk, turn, proposal.cell);
        }
        let copies = Copies::accepted(proposal.cell);
        let answered = tally.good();
        self.write_back(desk, turn, answered, copies, Places::NONE, Goal::Finish)
    }

    /// The condition does not hold of these copies, which a majority holds: the client is told, and
    /// the writes behind are judged by them.
    pub(super) fn refuse_condition(
        &mut self,
        turn: &mut Turn<'_>,
        copies: Copies,
        answered: Places,
    ) -> Stage {
        let cell = copies.into_best();
        self.tell_condition_failed(turn, cell.as_ref(), answered);
        let before = self.proposer().before;
        Stage::Settled(self.precedent(cell, before, answered))
    }

    /// Tells the client that the condition does not hold of `cell`.
    pub(super) fn tell_condition_failed(
        &mut self,
        turn: &mut Turn<'_>,
        cell: Option<&Cell>,
        answered: Places,
    ) {
        // A value may have expired since it was judged: then it is gone, and the condition that
        // wanted it gone failed a moment too early. Both are true at some point of the operation.
        let live = cell.filter(|cell| cell.as_ref().is_live(turn.now.wall_ms));
        let current = live.map(|shown| shown.version);
        let live = live.cloned();
        self.tell(turn, Outcome::ConditionFailed { current }, answered, live);
    }
}
