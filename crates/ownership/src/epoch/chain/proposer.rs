//! The proposer: takes a record of this member on its way to being chosen.
//!
//! ```text
//! Promises ─ majority ─► Acceptances ─ majority ─► chosen: adopted, and told to old and new members
//!    │ outbid, or EPOCH_VOTE_US and a little are over
//!    └─► Resting, a drawn time ─► Promises under a higher ballot
//! ```
//!
//! Invariants
//! 1. Under one ballot one record is sent: the one accepted under the highest ballot among the
//!    promises, else the own one.
//! 2. The own promise is durable before the ballot leaves.
//! 3. A proposal ends when any record of its epoch is chosen, or after `EPOCH_BALLOTS_MAX` ballots.
//!
//! Not here: promises and acceptances of this member for others (`chain/`).

use super::messages::{AcceptedRecord, ChainEffect, ChainMessage, EpochBallot};
use super::proposal::{EpochProposal, ProposalStage};
use super::{Chain, OnceDurable};
use crate::epoch::record::EpochRecord;
use crate::epoch::succession::succeeds;
use crate::epoch::why_not::WhyNot;
use crate::limits::{EPOCH_BALLOTS_MAX, EPOCH_VOTE_US};
use crate::ring::table::MemberId;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Chain {
    pub(super) fn propose(&mut self, now_us: u64, record: EpochRecord, out: &mut Vec<ChainEffect>) {
        let member = self.me.member;
        let has_vote = self.is_voter(self.me) && self.missing().is_none();
        let judged = if has_vote && !self.is_removed() {
            succeeds(&self.record, &record)
        } else {
            Err(WhyNot::NoVoter { member })
        };
        if let Err(why) = judged {
            out.push(ChainEffect::Refused { why });
            return;
        }
        let own = Arc::new(record);
        self.proposal = Some(EpochProposal {
            sent: Arc::clone(&own),
            own,
            ballot: EpochBallot::ZERO,
            stage: ProposalStage::Resting,
            votes: BTreeSet::new(),
            found: None,
            round: 0,
            ballots: 0,
            due_us: now_us,
        });
        self.tick_proposal(now_us, out);
    }

    /// Begins with a higher ballot when the time of the last one is over.
    pub(super) fn tick_proposal(&mut self, now_us: u64, out: &mut Vec<ChainEffect>) {
        let Some(proposal) = &mut self.proposal else {
            return;
        };
        if now_us < proposal.due_us {
            return;
        }
        if proposal.ballots == EPOCH_BALLOTS_MAX {
            self.proposal = None;
            let epoch = self.vote.epoch;
            out.push(ChainEffect::GaveUp { epoch });
            return;
        }
        let round = self.vote.promised.round.max(proposal.round);
        let ballot = EpochBallot {
            round: round.saturating_add(1),
            member: self.me.member,
        };
        proposal.ballots += 1;
        proposal.ballot = ballot;
        proposal.stage = ProposalStage::Promises;
        proposal.votes.clear();
        proposal.found = None;
        let wait_us = EPOCH_VOTE_US * u64::from(proposal.ballots);
        proposal.due_us = now_us + wait_us + self.prng.below(EPOCH_VOTE_US);
        self.cast(ballot, None, OnceDurable::Promised(ballot), out);
    }

    pub(super) fn own_promise(
        &mut self,
        now_us: u64,
        ballot: EpochBallot,
        out: &mut Vec<ChainEffect>,
    ) {
        let is_current = self.proposal.as_ref().is_some_and(|p| p.ballot == ballot);
        if !is_current {
            return;
        }
        let epoch = self.vote.epoch;
        self.send_to_voters(&ChainMessage::Prepare { epoch, ballot }, out);
        let accepted = self.vote.accepted.clone();
        self.promised(now_us, self.me.member, ballot, accepted, out);
    }

    pub(super) fn own_acceptance(&mut self, ballot: EpochBallot, out: &mut Vec<ChainEffect>) {
        self.accepted(self.me.member, ballot, out);
    }

    pub(super) fn promised(
        &mut self,
        now_us: u64,
        from: MemberId,
        ballot: EpochBallot,
        accepted: Option<AcceptedRecord>,
        out: &mut Vec<ChainEffect>,
    ) {
        let proposal = self.proposal.as_mut();
        let stage = ProposalStage::Promises;
        let proposal = proposal.filter(|p| p.ballot == ballot && p.stage == stage);
        let Some(proposal) = proposal else { return };
        proposal.votes.insert(from);
        let highest = proposal.found.as_ref().map(|found| found.ballot);
        if let Some(accepted) = accepted.filter(|accepted| Some(accepted.ballot) > highest) {
            proposal.found = Some(accepted);
        }
        if 2 * proposal.votes.len() <= self.voters.len() {
            return;
        }
        let found = proposal.found.as_ref();
        let record = Arc::clone(found.map_or(&proposal.own, |found| &found.record));
        proposal.stage = ProposalStage::Acceptances;
        proposal.sent = Arc::clone(&record);
        proposal.votes.clear();
        proposal.due_us = proposal.due_us.max(now_us + EPOCH_VOTE_US);
        let message = ChainMessage::Accept {
            ballot,
            record: Arc::clone(&record),
        };
        self.send_to_voters(&message, out);
        if self.vote.promised <= ballot {
            let then = OnceDurable::Accepted(ballot);
            self.cast(ballot, Some(record), then, out);
        }
    }

    pub(super) fn accepted(
        &mut self,
        from: MemberId,
        ballot: EpochBallot,
        out: &mut Vec<ChainEffect>,
    ) {
        let proposal = self.proposal.as_mut();
        let stage = ProposalStage::Acceptances;
        let proposal = proposal.filter(|p| p.ballot == ballot && p.stage == stage);
        let Some(proposal) = proposal else { return };
        proposal.votes.insert(from);
        let votes = proposal.votes.len();
        if !self.is_majority(votes) || self.newest.epoch() != self.record.epoch() {
            return;
        }
        let Some(chosen) = self.proposal.take() else {
            return;
        };
        self.announce(&chosen.sent, out);
        // Without room for the note the member learns the epoch from another one, like every other.
        self.take(chosen.sent, out);
    }

    pub(super) fn outbid(&mut self, now_us: u64, promised: EpochBallot) {
        let Some(proposal) = &mut self.proposal else {
            return;
        };
        proposal.round = proposal.round.max(promised.round);
        if promised > proposal.ballot && proposal.stage != ProposalStage::Resting {
            proposal.stage = ProposalStage::Resting;
            let wait_us = EPOCH_VOTE_US * u64::from(proposal.ballots) / 4;
            proposal.due_us = now_us + self.prng.below(wait_us.max(1));
        }
    }

    fn send_to_voters(&self, message: &ChainMessage, out: &mut Vec<ChainEffect>) {
        let voters = self.voters.iter().map(|voter| voter.member);
        for to in voters.filter(|to| *to != self.me.member) {
            let message = message.clone();
            out.push(ChainEffect::Send { to, message });
        }
    }

    /// Tells the members of the old epoch and those of the new one.
    fn announce(&self, record: &Arc<EpochRecord>, out: &mut Vec<ChainEffect>) {
        let old = self.record.members().iter();
        let members: BTreeSet<MemberId> = old.chain(record.members()).map(|m| m.id).collect();
        for to in members.into_iter().filter(|to| *to != self.me.member) {
            let records = vec![Arc::clone(record)];
            let message = ChainMessage::Chosen { records };
            out.push(ChainEffect::Send { to, message });
        }
    }
}
