//! One member's part in the chain of epochs: it votes for the next one, learns the chosen ones, and
//! keeps the fence.
//!
//! ```text
//! Propose ─► own promise durable ─► Prepare ─ majority ─► Accept ─ majority ─► chosen
//!    ▲                                 └── outbid, late ── rest ──┘               │
//!    └── a higher ballot, EPOCH_BALLOTS_MAX times                                 ▼
//! At, Learn, Chosen ─────────────────────────► checked ─► note durable ─► adopted = the fence
//! ```
//!
//! Why no epoch has two values. For epoch `e + 1` the voters are those that the record of `e`
//! names. By induction there is one record of `e`, so all members agree on the voters of `e + 1`.
//! They run one instance of Paxos for it (Lamport, "Paxos Made Simple", 2001, section 2.2):
//!
//! * A voter notes a promise or an acceptance durably before it answers. It has one number and one
//!   folder, and a lost folder never comes back under that number, so it never forgets a vote.
//! * Two ballots are never equal: see [`EpochBallot`].
//! * Of a majority of promises, a proposer takes the value that was accepted under the highest
//!   ballot. It takes its own only if there is none. Let `v` be chosen under ballot `b`: a majority
//!   accepted it. Every later ballot has a majority of promises, which has a voter in common with
//!   that one. This voter accepted `v` before it promised, else it would have refused `b`. By
//!   induction over the ballots above `b`, it tells `v`, and no other value is proposed.
//!
//! Why no member skips an epoch. A member votes for epoch `e + 1` only while its newest durable
//! record is that of `e`. It checks that the value follows that record: number, digest, one legal
//! change. It adopts `e + 1` only as the successor of `e`, digest included. So the records of each
//! member are of one chain.
//!
//! A folder can lose records to a damaged block, and other members drop old steps of the horizons.
//! Then no page begins right after the newest record that is left. The member takes the first
//! record of the page as it is, if the floor of the horizons rose in between ([`overtakes`]). That
//! record was chosen, and it carries the whole state. Only a page that answers its own question
//! counts: the member that sends it has no earlier epoch. A record that is merely announced may lie
//! after epochs that its sender has. Until the member has caught up with its notes it has no vote,
//! and keeps the vote that it noted.
//!
//! Where this member is the only voter, no other member can tell it which records it lost. But then
//! its own acceptance is a majority: the record in its vote was chosen, and it takes that one.
//!
//! Why changes of the voters are safe, of any number at a time. Configurations never overlap. The
//! voters of `e + 1` vote only once `e` is chosen. A vote for `e + 2` needs the record of `e + 1`.
//! Raft's bug with single-server changes (Ongaro, 2015) needs two configurations that are both
//! in use before either is committed. Here the one before is always chosen first.
//!
//! Invariants
//! 1. A message tells only durable state: promises, acceptances, and the epoch in which a question
//!    is answered.
//! 2. Only voters of the own newest epoch are counted, each once, by number and folder.
//! 3. A record is learnt from a member that says it is chosen, never from a proposal.
//! 4. A member that was removed never votes again. It may still hand on the epochs that it knows.
//! 5. At most `CHAIN_NOTES_MAX` notes are under way, the two of an epoch counted as one; an event
//!    that would need more is dropped.
//! 6. A member whose newest record is older than an epoch of its notes does not vote. It forgets no
//!    vote for an epoch that it has yet to reach.
//! 7. An epoch counts once its record and then the member's own note of it are durable. So a folder
//!    that loses the record knows that it had one.
//!
//! Not here: which step comes next (`drive.rs`), which record may follow (`succession.rs`), links.
//! Time is the argument `now_us`, jitter comes from the seed. Test: crates/ownership/tests/chain.
//! See: docs/decisions/0025-epochs-by-our-own-paxos.md.

mod fence;
mod messages;
mod note;
mod proposal;
mod proposer;

pub use fence::{EpochFence, FenceVerdict};
pub use messages::{AcceptedRecord, ChainEffect, ChainEvent, ChainMessage};
pub use messages::{ChainNote, ChainPeer, EpochBallot, VoteNote};

use super::record::{EpochChange, EpochRecord, MemberStatus};
use super::succession::{overtakes, succeeds};
use crate::limits::{CHAIN_NOTES_MAX, EPOCH_GOSSIP_US, EPOCH_PAGE_RECORDS_MAX, MEMBERS_MAX};
use crate::ring::Partition;
use crate::ring::table::MemberId;
use dendra_base::Prng;
use proposal::EpochProposal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The members that choose the epoch after this one.
fn voters(record: &EpochRecord) -> Vec<ChainPeer> {
    let members = record.members().iter();
    let voters = members.filter(|member| member.status != MemberStatus::Joining);
    let peer = voters.map(|member| ChainPeer {
        member: member.id,
        node: member.node,
    });
    peer.collect()
}

/// The step that waits until a note is durable.
#[derive(Debug)]
enum OnceDurable {
    Reply(MemberId, ChainMessage),
    /// The own promise to the own ballot.
    Promised(EpochBallot),
    /// The own acceptance of the own proposal.
    Accepted(EpochBallot),
    Adopt(Arc<EpochRecord>),
    Removed(u64),
}

/// The chain of epochs as one member knows it.
#[derive(Debug)]
pub struct Chain {
    me: ChainPeer,
    /// The newest durable epoch.
    record: Arc<EpochRecord>,
    voters: Vec<ChainPeer>,
    fence: EpochFence,
    /// The newest epoch with a note under way to the disk; that of `record` when none is.
    newest: Arc<EpochRecord>,
    vote: VoteNote,
    /// The vote of the folder for a later epoch than the next one: valid until that one is next.
    vote_ahead: Option<VoteNote>,
    /// The newest epoch that the folder has taken part in, as its notes say.
    noted: u64,
    /// Members that were asked for the epochs after `newest`, and the epoch that each told of: at
    /// most `MEMBERS_MAX`, each until its page comes.
    asked: BTreeMap<MemberId, u64>,
    proposal: Option<EpochProposal>,
    ticket: u64,
    waiting: VecDeque<(u64, OnceDurable)>,
    gossip_due_us: u64,
    /// Counts the members that were told the epoch.
    told: usize,
    prng: Prng,
}

impl Chain {
    /// The chain that the folder of `me` remembers. `record` is its newest epoch that can be read,
    /// `noted` the newest one that it has taken part in, and `vote` its last vote. A new member
    /// begins with the epoch that names it as joining.
    pub fn open(
        me: ChainPeer,
        (record, noted): (EpochRecord, u64),
        vote: Option<VoteNote>,
        seed: u64,
    ) -> Chain {
        let next = record.epoch() + 1;
        let removed = vote.as_ref().map_or(0, |vote| vote.removed);
        // A vote for an epoch needs the record of the one before.
        let voted = vote.as_ref().map_or(0, |vote| vote.epoch.saturating_sub(1));
        let vote_ahead = vote.clone().filter(|vote| vote.epoch > next);
        let vote = vote.filter(|vote| vote.epoch == next);
        let record = Arc::new(record);
        let mut chain = Chain {
            me,
            voters: voters(&record),
            fence: EpochFence::at(&record),
            newest: Arc::clone(&record),
            record,
            vote: vote.unwrap_or_else(|| VoteNote::none(next)),
            vote_ahead,
            noted: noted.max(voted),
            asked: BTreeMap::new(),
            proposal: None,
            ticket: 0,
            waiting: VecDeque::new(),
            gossip_due_us: 0,
            told: 0,
            prng: Prng::new(seed),
        };
        chain.vote.removed = removed;
        if removed == 0 && !chain.counts_me() {
            chain.vote.removed = chain.record.epoch();
        }
        chain
    }

    /// The newest durable epoch.
    pub fn record(&self) -> &Arc<EpochRecord> {
        &self.record
    }

    /// The newest epoch that this member has taken part in, while its newest record is older: the
    /// later ones of its folder cannot be read.
    pub fn missing(&self) -> Option<u64> {
        (self.record.epoch() < self.noted).then_some(self.noted)
    }

    /// Was this member removed?
    pub fn is_removed(&self) -> bool {
        self.vote.removed != 0
    }

    /// Is a proposal of this member under way?
    pub fn is_proposing(&self) -> bool {
        self.proposal.is_some()
    }

    /// Is a next epoch on its way: proposed by this member, or chosen and not durable here yet?
    pub fn is_busy(&self) -> bool {
        self.is_proposing() || self.newest.epoch() > self.record.epoch()
    }

    /// Is this a member, as far as is known here? Questions of others are refused.
    pub fn knows(&self, peer: ChainPeer) -> bool {
        self.record.is_member(peer.member, peer.node)
    }

    /// May a question of epoch `asked` about `partition` be answered? See [`EpochFence`].
    pub fn admits(&self, partition: Partition, asked: u64) -> FenceVerdict {
        match self.is_removed() {
            true => FenceVerdict::Removed,
            false if asked < self.noted && self.missing().is_some() => {
                let epoch = self.noted;
                FenceVerdict::Stale { epoch }
            }
            false => self.fence.admits(partition, asked),
        }
    }

    /// Takes one event, and appends the effects to `out`.
    pub fn step(&mut self, now_us: u64, event: ChainEvent, out: &mut Vec<ChainEffect>) {
        match event {
            ChainEvent::Propose { record } => self.propose(now_us, record, out),
            ChainEvent::Received { from, message } => self.received(now_us, from, message, out),
            ChainEvent::Persisted { ticket } => {
                while self.waiting.front().is_some_and(|(due, _)| *due <= ticket) {
                    if let Some((_, then)) = self.waiting.pop_front() {
                        self.durable(now_us, then, out);
                    }
                }
            }
            ChainEvent::TakeAccepted => {
                if let Some(record) = self.accepted_alone() {
                    self.take(record, out);
                }
            }
            ChainEvent::Tick => {
                if let Some(record) = self.chosen_alone() {
                    self.take(record, out);
                }
                self.gossip(now_us, out);
                self.tick_proposal(now_us, out);
            }
        }
    }

    fn durable(&mut self, now_us: u64, then: OnceDurable, out: &mut Vec<ChainEffect>) {
        match then {
            OnceDurable::Reply(to, message) => out.push(ChainEffect::Send { to, message }),
            OnceDurable::Promised(ballot) => self.own_promise(now_us, ballot, out),
            OnceDurable::Accepted(ballot) => self.own_acceptance(ballot, out),
            OnceDurable::Adopt(record) => self.adopt(record, out),
            OnceDurable::Removed(epoch) => out.push(ChainEffect::Removed { epoch }),
        }
    }

    fn received(
        &mut self,
        now_us: u64,
        from: ChainPeer,
        message: ChainMessage,
        out: &mut Vec<ChainEffect>,
    ) {
        let is_gone = self.record.is_removed(from.member, from.node);
        if is_gone && !self.is_voter(from) {
            let record = Arc::clone(&self.record);
            let removed = ChainMessage::Removed { record };
            out.push(send(from, removed));
            return;
        }
        match message {
            ChainMessage::Prepare { epoch, ballot } => {
                if self.takes_part(from, epoch, out) {
                    self.asked_to_promise(from, ballot, out);
                }
            }
            ChainMessage::Accept { ballot, record } => {
                let follows = |chain: &Chain| succeeds(&chain.record, &record);
                if self.takes_part(from, record.epoch(), out) && follows(self).is_ok() {
                    self.asked_to_accept(from, ballot, record, out);
                }
            }
            ChainMessage::Promise {
                epoch,
                ballot,
                accepted,
            } if epoch == self.vote.epoch && self.is_voter(from) => {
                self.promised(now_us, from.member, ballot, accepted, out);
            }
            ChainMessage::Accepted { epoch, ballot }
                if epoch == self.vote.epoch && self.is_voter(from) =>
            {
                self.accepted(from.member, ballot, out);
            }
            ChainMessage::Outbid { epoch, promised }
                if epoch == self.vote.epoch && self.is_voter(from) =>
            {
                self.outbid(now_us, promised);
            }
            // Votes for another epoch, or of a member that has none.
            ChainMessage::Promise { .. }
            | ChainMessage::Accepted { .. }
            | ChainMessage::Outbid { .. } => {}
            ChainMessage::Chosen { records } => self.learn(from, records, out),
            ChainMessage::At { epoch } => self.compare(from, epoch, out),
            ChainMessage::Learn { from: first } => {
                if (1..=self.record.epoch()).contains(&first) {
                    let to = from.member;
                    out.push(ChainEffect::SendEpochs { to, from: first });
                }
            }
            ChainMessage::Removed { record } => self.told_removed(&record, out),
        }
    }

    /// Does this member vote for `epoch` now, asked by `from`? If one of the two is behind, it
    /// learns.
    fn takes_part(&mut self, from: ChainPeer, epoch: u64, out: &mut Vec<ChainEffect>) -> bool {
        self.compare(from, epoch.saturating_sub(1), out);
        let is_steady = self.newest.epoch() == self.record.epoch();
        let is_voter = self.is_voter(from) && self.is_voter(self.me);
        let is_whole = self.missing().is_none() && !self.is_removed();
        epoch == self.vote.epoch && is_steady && is_voter && is_whole
    }

    fn is_voter(&self, peer: ChainPeer) -> bool {
        let mut voters = self.voters.iter();
        voters.any(|v| v.member == peer.member && (v.node == 0 || v.node == peer.node))
    }

    fn counts_me(&self) -> bool {
        self.record.is_member(self.me.member, self.me.node) || self.is_voter(self.me)
    }

    fn is_majority(&self, votes: usize) -> bool {
        2 * votes > self.voters.len()
    }

    fn asked_to_promise(
        &mut self,
        from: ChainPeer,
        ballot: EpochBallot,
        out: &mut Vec<ChainEffect>,
    ) {
        let epoch = self.vote.epoch;
        if ballot < self.vote.promised {
            let promised = self.vote.promised;
            out.push(send(from, ChainMessage::Outbid { epoch, promised }));
            return;
        }
        let promise = ChainMessage::Promise {
            epoch,
            ballot,
            accepted: self.vote.accepted.clone(),
        };
        self.cast(ballot, None, OnceDurable::Reply(from.member, promise), out);
    }

    fn asked_to_accept(
        &mut self,
        from: ChainPeer,
        ballot: EpochBallot,
        record: Arc<EpochRecord>,
        out: &mut Vec<ChainEffect>,
    ) {
        let epoch = self.vote.epoch;
        if ballot < self.vote.promised {
            let promised = self.vote.promised;
            out.push(send(from, ChainMessage::Outbid { epoch, promised }));
            return;
        }
        let accepted = ChainMessage::Accepted { epoch, ballot };
        let then = OnceDurable::Reply(from.member, accepted);
        self.cast(ballot, Some(record), then, out);
    }

    /// Votes: the promise, and the record if there is one. `false` when there is no room for a
    /// note.
    fn cast(
        &mut self,
        ballot: EpochBallot,
        record: Option<Arc<EpochRecord>>,
        then: OnceDurable,
        out: &mut Vec<ChainEffect>,
    ) -> bool {
        if self.waiting.len() >= CHAIN_NOTES_MAX {
            return false;
        }
        self.vote.promised = ballot;
        if let Some(record) = record {
            self.vote.accepted = Some(AcceptedRecord { ballot, record });
        }
        let note = ChainNote::Vote(self.vote.clone());
        self.persist(note, then, out);
        true
    }

    fn persist(&mut self, note: ChainNote, then: OnceDurable, out: &mut Vec<ChainEffect>) {
        self.ticket += 1;
        let ticket = self.ticket;
        self.waiting.push_back((ticket, then));
        out.push(ChainEffect::Persist { ticket, note });
    }

    /// Another member's newest epoch is `epoch`: the one that is behind learns.
    fn compare(&mut self, from: ChainPeer, epoch: u64, out: &mut Vec<ChainEffect>) {
        let (newest, durable) = (self.newest.epoch(), self.record.epoch());
        if epoch > newest {
            let from_epoch = newest + 1;
            if self.asked.len() < MEMBERS_MAX || self.asked.contains_key(&from.member) {
                self.asked.insert(from.member, epoch);
            }
            out.push(send(from, ChainMessage::Learn { from: from_epoch }));
        } else if epoch < durable {
            out.push(send(from, ChainMessage::At { epoch: durable }));
        }
    }

    fn gossip(&mut self, now_us: u64, out: &mut Vec<ChainEffect>) {
        if now_us < self.gossip_due_us {
            return;
        }
        self.gossip_due_us = now_us + EPOCH_GOSSIP_US;
        let members = self.record.members().iter().map(|member| member.id);
        let others: Vec<MemberId> = members.filter(|id| *id != self.me.member).collect();
        if others.is_empty() {
            return;
        }
        let to = others[self.told % others.len()];
        self.told = self.told.wrapping_add(1);
        let epoch = self.record.epoch();
        let message = ChainMessage::At { epoch };
        out.push(ChainEffect::Send { to, message });
    }

    /// `from` says that these epochs were chosen.
    fn learn(
        &mut self,
        from: ChainPeer,
        records: Vec<Arc<EpochRecord>>,
        out: &mut Vec<ChainEffect>,
    ) {
        let is_member = |record: &EpochRecord| record.is_member(from.member, from.node);
        // A member that joined while this one was away is named at the end of the page.
        let is_known = is_member(&self.newest) || records.last().is_some_and(|r| is_member(r));
        if !is_known || records.len() > EPOCH_PAGE_RECORDS_MAX {
            return;
        }
        // An epoch that the sender had not told of when it was asked is no answer, but news.
        let told = self.asked.get(&from.member).copied();
        let is_answer = told.is_some_and(|told| records.first().is_some_and(|r| r.epoch() <= told));
        if is_answer {
            self.asked.remove(&from.member);
        }
        for (at, record) in records.into_iter().enumerate() {
            let epoch = record.epoch();
            let is_other = epoch == self.newest.epoch() && record != self.newest;
            let is_next = epoch == self.newest.epoch() + 1;
            // The sender of an answer has no record in front of the first one. Another member may
            // have the one that is missing.
            let is_first = at == 0 && is_answer;
            let is_behind_hole = epoch > self.newest.epoch() + 1;
            if is_behind_hole && !(is_first && overtakes(&self.newest, &record)) {
                continue;
            }
            if is_other || (is_next && record.previous() != self.newest.digest()) {
                let from = from.member;
                out.push(ChainEffect::Diverged { from, epoch });
                return;
            }
            if epoch > self.newest.epoch() && !self.take(record, out) {
                return;
            }
        }
    }

    /// The record that this member accepted last, after epochs that its folder has lost, if it is
    /// the only voter of that record.
    pub fn accepted_alone(&self) -> Option<Arc<EpochRecord>> {
        self.missing().filter(|_| !self.is_removed())?;
        let vote = self.vote_ahead.as_ref().unwrap_or(&self.vote);
        let record = &vote.accepted.as_ref()?.record;
        let is_later = record.epoch() > self.newest.epoch();
        let is_alone = voters(record) == [self.me];
        (is_later && is_alone).then(|| Arc::clone(record))
    }

    /// The accepted record, if it was chosen for certain. The one before names the voters, and
    /// may be lost. `Finished` alone changes the voters: each other record has the same.
    fn chosen_alone(&self) -> Option<Arc<EpochRecord>> {
        let record = self.accepted_alone();
        record.filter(|record| record.change() != EpochChange::Finished)
    }

    /// A chosen record: adopted once it is durable. `false` when it does not follow, or there is no
    /// room for a note. Requires: one that is not the next epoch may be taken after a hole.
    fn take(&mut self, record: Arc<EpochRecord>, out: &mut Vec<ChainEffect>) -> bool {
        let is_full = self.waiting.len() >= CHAIN_NOTES_MAX;
        let is_next = record.epoch() == self.newest.epoch() + 1;
        if is_full || (is_next && succeeds(&self.newest, &record).is_err()) {
            return false;
        }
        self.newest = Arc::clone(&record);
        let note = ChainNote::Epoch(Arc::clone(&record));
        self.ticket += 1;
        let ticket = self.ticket;
        out.push(ChainEffect::Persist { ticket, note });
        // Behind the record: the note alone would make a lone member wait for an epoch that no
        // other one has.
        let fence = ChainNote::Fence(Arc::clone(&record));
        self.persist(fence, OnceDurable::Adopt(record), out);
        true
    }

    fn adopt(&mut self, record: Arc<EpochRecord>, out: &mut Vec<ChainEffect>) {
        self.fence.advance(&self.record, &record);
        self.record = record;
        self.voters = voters(&self.record);
        self.proposal = None;
        let removed = self.vote.removed;
        let next = self.record.epoch() + 1;
        let ahead = self.vote_ahead.take_if(|vote| vote.epoch <= next);
        let ahead = ahead.filter(|vote| vote.epoch == next);
        self.vote = ahead.unwrap_or_else(|| VoteNote::none(next));
        self.vote.removed = removed;
        out.push(ChainEffect::Adopted {
            record: Arc::clone(&self.record),
        });
        if removed == 0 && !self.counts_me() {
            let epoch = self.record.epoch();
            self.vote.removed = epoch;
            out.push(ChainEffect::Removed { epoch });
        }
    }

    /// Another member says that this one was removed, and shows the record.
    fn told_removed(&mut self, record: &EpochRecord, out: &mut Vec<ChainEffect>) {
        let is_ahead = record.name() == self.record.name() && record.epoch() > self.newest.epoch();
        let is_me = record.is_removed(self.me.member, self.me.node);
        let has_room = self.waiting.len() < CHAIN_NOTES_MAX;
        if !is_ahead || !is_me || !has_room || self.is_removed() {
            return;
        }
        let epoch = record.epoch();
        self.vote.removed = epoch;
        self.proposal = None;
        let note = ChainNote::Vote(self.vote.clone());
        self.persist(note, OnceDurable::Removed(epoch), out);
    }
}

fn send(to: ChainPeer, message: ChainMessage) -> ChainEffect {
    let to = to.member;
    ChainEffect::Send { to, message }
}

#[cfg(test)]
mod tests;
