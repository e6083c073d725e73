//! Members of a changing cluster judge each other's claims, as in `members/`, and with epochs that
//! differ: one was away while the members changed, and comes back.
//!
//! ```text
//! start ─► asks each other member ─┬─ all that answer let it in ─► it runs
//!                                  └─ refused ─► it ends: doubted, or for ever
//! link  ─► both sides judge the other's hello ─► notes ─► up
//!                                  └─ refused ─► the same
//! ```
//!
//! Only in plans that say so (`Changes::meets`).
//!
//! Invariants
//! 1. A note is durable at once: what a crash leaves of notes is the matter of `members/`.
//! 2. No process that the newest epoch names ends by a refusal.
//! 3. No member that knows folders by an epoch says of one that it is another one, if the process
//!    knows a newer epoch.
//!
//! Not here: the rules (crate `ownership`, `membership/`).
//! See: docs/peer.md, docs/protocol.md, "How an old folder is recognised".

use super::super::state::{Happening, World};
use crate::check::Rule;
use crate::machines::{MachineStanding, node_of};
use crate::process_steward::Claimant;
use crate::store::Crash;
use dendra_ownership::epoch::record::{EpochRecord, KnownFolder};
use dendra_ownership::membership::identity::{OF_AN_EPOCH, Peer};
use dendra_ownership::membership::{
    Disowned, FolderVerdict, Maker, MemberEffect, MemberEvent, NoLink, Rejected,
};
use dendra_ownership::{Layout, MemberIndex, Membership, Steward};
use std::sync::Arc;

/// A process that ended on a doubted folder is started again after this.
const AGAIN_US: u64 = 2_000_000;

/// The answer to a hello and a hail.
enum HailAnswer {
    Welcome(MemberIndex),
    Refused(Rejected),
    /// The member learns first, or knows no such member.
    NotNow,
}

fn note_of(record: &EpochRecord, layout: &Layout, at: MemberIndex, noted: &[Peer]) -> Option<Peer> {
    let node = layout.id_of(at).and_then(|id| record.member(id))?.node;
    let noted = noted.iter().find(|noted| noted.node == node).copied();
    noted.or((node != 0).then(|| Peer::unseen(node)))
}

impl World<'_> {
    pub(super) fn claims_are_judged(&self) -> bool {
        self.plan.changes.as_ref().is_some_and(|it| it.meets)
    }

    /// A start of a member with this steward.
    pub(in crate::world) fn claimant(
        &mut self,
        member: usize,
        steward: &Steward,
    ) -> Option<Claimant> {
        if !self.claims_are_judged() {
            return None;
        }
        let machine = &mut self.town.as_mut()?.machines[member];
        machine.starts += u64::from(!machine.is_doubted);
        let (record, layout) = (steward.record(), steward.layout());
        let me = layout.index_of(steward.me().member)?;
        let noted: Vec<Peer> = machine.notes.values().copied().collect();
        let places = (0..layout.topology().len()).map(MemberIndex);
        let notes = places.map(|at| note_of(record, layout, at, &noted));
        let how = (1, machine.is_doubted);
        let membership = Membership::new(layout.topology(), me, how, notes.collect::<Vec<_>>());
        let claim = Peer {
            node: node_of(member),
            boot: machine.starts,
            life: self.prng.next_u64().max(1),
            clock: 0,
        };
        Some(Claimant { claim, membership })
    }

    fn tell_claimant(&mut self, member: usize, event: MemberEvent) -> Vec<MemberEffect> {
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let mono_us = it.clock.now(now_us).mono_us;
        let mut effects = Vec::new();
        let home = it.home.as_mut();
        if let Some(claimant) = home.and_then(|home| home.claimant.as_mut()) {
            claimant.membership.step(mono_us, event, &mut effects);
        }
        effects
    }

    fn claim_of(&self, member: usize) -> Option<Peer> {
        let home = self.members[member].home.as_ref()?;
        Some(home.claimant.as_ref()?.claim)
    }

    fn epoch_of(&self, member: usize) -> u64 {
        let home = self.members[member].home.as_ref();
        home.map_or(0, |home| home.record.epoch())
    }

    /// Does a handshake with it get an answer now?
    fn answers(&self, member: usize) -> bool {
        let it = &self.members[member];
        it.home.is_some() && it.paused_until_us <= self.now_us()
    }

    /// `by` judges the hello of a process, and its claim.
    fn hails(&mut self, by: usize, of: usize) -> HailAnswer {
        let (Some(judge), Some(it)) = (&self.members[by].home, &self.members[of].home) else {
            return HailAnswer::NotNow;
        };
        let (Some(claimant), Some(me)) = (&it.claimant, &judge.claimant) else {
            return HailAnswer::NotNow;
        };
        let (claim, epoch) = (claimant.claim, it.record.epoch());
        let own = it.record.members().iter().find(|m| m.node == claim.node);
        let own = own.or_else(|| it.record.member(it.steward.me().member));
        let url = own.map_or_else(String::new, |own| own.place.url.clone());
        let index = match judge.record.folder(claim.node, &url, epoch) {
            KnownFolder::Member(id) => judge.layout.index_of(id),
            KnownFolder::Removed { .. } => {
                return HailAnswer::Refused(me.membership.removed("it was removed".to_owned()));
            }
            KnownFolder::Ahead | KnownFolder::Stranger => None,
        };
        let Some(index) = index else {
            return HailAnswer::NotNow;
        };
        let member = index;
        match self
            .tell_claimant(by, MemberEvent::Hailed { member, claim })
            .pop()
        {
            Some(MemberEffect::Reject(rejected)) => {
                self.judge_rejection(by, of, &rejected);
                HailAnswer::Refused(rejected)
            }
            _ => HailAnswer::Welcome(index),
        }
    }

    fn judge_rejection(&mut self, by: usize, of: usize, rejected: &Rejected) {
        let (ours, theirs) = (self.epoch_of(by), self.epoch_of(of));
        // The first epoch names no folders: notes tell which one is a founder's, and the process
        // that is refused knows better.
        let judges = ours > 1 && ours < theirs;
        if OF_AN_EPOCH.contains(&rejected.code) && judges {
            let code = rejected.code;
            let what = format!("m{by} at epoch {ours} refuses m{of} at epoch {theirs}: {code}");
            self.violate(Rule::Membership, what);
        }
    }

    fn no_link(&self, by: usize, of: usize, answer: HailAnswer) -> NoLink {
        match answer {
            HailAnswer::Refused(rejected) => {
                let (url, said) = (self.url_of(by), rejected.to_string());
                NoLink::of_farewell(&url, &said, Maker::Member, self.epoch_of(of))
            }
            HailAnswer::Welcome(_) | HailAnswer::NotNow => NoLink::from("it learns first"),
        }
    }

    /// A start asks all others, before the process has a link.
    pub(in crate::world) fn asks_members(&mut self, member: usize) {
        if self.claim_of(member).is_none() {
            return;
        }
        for effect in self.tell_claimant(member, MemberEvent::StartAsked) {
            let MemberEffect::Ask { member: place } = effect else {
                continue;
            };
            let home = self.members[member].home.as_ref();
            let layout = home.map(|home| Arc::clone(&home.layout));
            let peer = layout.and_then(|layout| self.machine_in(&layout, place));
            let mut answer = Err(NoLink::from("it cannot be asked"));
            if let Some(peer) = peer.filter(|&peer| self.is_connected(member, peer)) {
                // Links to the process before this one are lost at the latest now.
                self.notice(peer, member, false);
                if self.answers(peer) {
                    answer = match self.hails(peer, member) {
                        HailAnswer::Welcome(_) => Ok(1),
                        other => Err(self.no_link(peer, member, other)),
                    };
                }
            }
            // The link to another process of it is lost: it is no other one for long.
            if matches!(answer, Err(NoLink::StillThere(_))) {
                answer = Err(NoLink::from("it has another link"));
            }
            let answered = MemberEvent::StartAnswered {
                member: place,
                answer,
            };
            let effects = self.tell_claimant(member, answered);
            if self.obeys(member, effects) {
                return;
            }
        }
        if let Some(town) = &mut self.town {
            town.machines[member].is_doubted = false;
        }
    }

    /// Does the process end?
    fn obeys(&mut self, member: usize, effects: Vec<MemberEffect>) -> bool {
        let stop = effects.into_iter().find_map(|effect| match effect {
            MemberEffect::Stop(why) => Some(why),
            _ => None,
        });
        let Some(why) = stop else {
            return false;
        };
        self.disowned(member, &why);
        true
    }

    fn disowned(&mut self, member: usize, why: &Disowned) {
        let at_us = self.now_us();
        let sentence = why.sentence.clone();
        self.trace
            .line(at_us, || format!("m{member} has to end: {sentence}"));
        let node = node_of(member);
        let record = self.record();
        if record.members().iter().any(|it| it.node == node) {
            let what = format!("m{member} is a member, and has to end: {}", why.sentence);
            return self.violate(Rule::Membership, what);
        }
        if why.folder == FolderVerdict::Refused {
            return self.end_later(member);
        }
        if let Some(town) = &mut self.town {
            town.machines[member].is_doubted |= why.folder == FolderVerdict::Doubted;
        }
        let incarnation = self.members[member].incarnation;
        let end = Happening::EndDoubted {
            member,
            incarnation,
        };
        self.schedule.after(0, end);
    }

    /// A process ends on a doubted folder, and is started again.
    pub(in crate::world) fn end_doubted(&mut self, member: usize) {
        self.crash(member, Crash::Killed, AGAIN_US);
    }

    /// Is it a process that was removed, and that too few members can refuse: its operator reads
    /// why, and stops it?
    pub(super) fn is_doubted(&self, member: usize) -> bool {
        let town = self.town.as_ref().expect("members change");
        let machine = &town.machines[member];
        machine.is_doubted && matches!(machine.standing, MachineStanding::Member(_))
    }

    /// May a link of `member` to `peer` come up? `None` = claims are not judged here.
    pub(super) fn judges_claims(&mut self, member: usize, peer: usize) -> Option<bool> {
        let (ours, theirs) = (self.claim_of(member)?, self.claim_of(peer)?);
        if !self.answers(peer) {
            return Some(false);
        }
        // The asker judges first, and is silent about it.
        let HailAnswer::Welcome(at) = self.hails(member, peer) else {
            return Some(false);
        };
        let by = match self.hails(peer, member) {
            HailAnswer::Welcome(by) => by,
            answer => {
                let why = self.no_link(peer, member, answer);
                let lane = 0;
                let event = MemberEvent::NoLink {
                    member: at,
                    lane,
                    why,
                };
                let effects = self.tell_claimant(member, event);
                self.obeys(member, effects);
                return Some(false);
            }
        };
        let is_noted = self.notes_claim(member, at, theirs) && self.notes_claim(peer, by, ours);
        let up = MemberEvent::LinkUp {
            member: at,
            lane: 0,
            claim: theirs,
        };
        Some(is_noted && self.tell_claimant(member, up).is_empty())
    }

    fn notes_claim(&mut self, by: usize, member: MemberIndex, claim: Peer) -> bool {
        let effects = self.tell_claimant(by, MemberEvent::Claimed { member, claim });
        for effect in effects {
            match effect {
                MemberEffect::WriteNote(note) => {
                    let node = note.peer.node;
                    if let Some(town) = &mut self.town {
                        town.machines[by].notes.insert(node, note.peer);
                    }
                    self.tell_claimant(by, MemberEvent::NoteWritten(note));
                }
                MemberEffect::Admit { .. } => {}
                _ => return false,
            }
        }
        true
    }

    /// The own link to a machine is lost.
    pub(in crate::world) fn claim_parts(&mut self, member: usize, peer: usize) {
        let id = self.town.as_ref().and_then(|town| town.machines[peer].id);
        let home = self.members[member].home.as_ref();
        let at = home.and_then(|home| home.layout.index_of(id?));
        if let Some(at) = at {
            let down = MemberEvent::LinkDown {
                member: at,
                confirmed: 0,
            };
            self.tell_claimant(member, down);
        }
    }

    /// The process adopts an epoch.
    pub(super) fn claimant_adopts(&mut self, member: usize, before: &Layout, record: &EpochRecord) {
        let Some(home) = self.home(member) else {
            return;
        };
        let layout = Arc::clone(&home.layout);
        let Some(claimant) = &mut home.claimant else {
            return;
        };
        let fresh = layout
            .members()
            .filter(|at| layout.id_of(*at) != before.id_of(*at));
        let fresh = fresh.map(|at| (at, note_of(record, &layout, at, &[])));
        let node = |at| Some((at, record.member(layout.id_of(at)?)?.node));
        let folders = layout.members().filter_map(node);
        claimant.membership.adopt(layout.topology(), fresh, folders);
    }
}
