//! Membership: which process may be which member, told by one value for each member process.
//!
//! ```text
//! a process says to be member m:
//!     Unknown ─ Hailed ─► Welcome ─ Claimed ─► note being written ─ NoteWritten ─► Admitted ─ LinkUp ─► linked
//!        ▲         │                    │                                             │              │
//!        └─ Reject ┴────────────────────┘       a later life is admitted, no link: ───┘   LinkDown ──┘
//! mod.rs           Membership    the rules of a conversation
//! identity/        OwnNote, judge records, and the rules of a claim
//! acquaintance.rs  Acquaintance  one peer: its noted process, links, confirmations
//! refusal.rs       NoLink        the meaning of a refusal for the process that is refused
//! start.rs         MemberStart   from the first question until the node is ready
//! step.rs          MemberEvent, MemberEffect: all that goes in and out
//! ```
//!
//! Invariants
//! 1. At most one process counts as a member. Frames of another life than the admitted one are
//!    dropped. No other process is admitted while links to the admitted one are up.
//! 2. A process is admitted only when the note about it is durable. A restart here forgets no
//!    process that counted, and no start that was noted.
//! 3. A claim is judged before its note is begun: a process that is refused leaves no note.
//! 4. Highest confirmations are noted each second while they rise, at the loss of the last link,
//!    and at a stop. So the first member that is asked recognises an image, also after restarts.
//! 5. A refusal ends this process only if a member made it, and no newer epoch contradicts it
//!    (`refusal.rs`). `still-there` ends it only after `TWIN_PATIENCE_US` without another answer,
//!    and leaves its folder alone.
//! 6. A note about another folder than the newest epoch names counts as none.
//!
//! Not here: sockets, timers, the log, the metrics (crate `server`, `peers/`); frames, hellos and
//! proofs (crate `wire`).
//! See: docs/peer.md, docs/protocol.md, section "How an old folder is recognised".

mod acquaintance;
pub mod identity;
mod refusal;
mod start;
mod step;

use crate::limits::TWIN_PATIENCE_US;
use crate::member::MemberIndex;
use crate::topology::Topology;
use acquaintance::Acquaintance;
use identity::{ClaimVerdict, Peer};
use refusal::OwnEpoch;
pub use refusal::{Disowned, FolderRefusal, FolderVerdict, Maker, NoLink, Rejected, STILL_THERE};
use start::MemberStart;
use std::collections::BTreeMap;
use std::sync::Arc;
pub use step::{MemberEffect, MemberEvent, NoteFor, PeerNote, WaitEnd};

/// Another member, seen from this process.
#[derive(Debug)]
struct OtherMember {
    met: Acquaintance,
    /// Why the last try to open a link failed, if settings are the reason.
    shut_out: Option<String>,
    /// Word of the member against this folder, if its last answer was one.
    refused: Option<FolderRefusal>,
    /// By own event loop: since when it is told `still-there` only.
    still_there_us: BTreeMap<u16, u64>,
}

impl OtherMember {
    fn of_note(note: Option<Peer>) -> OtherMember {
        OtherMember {
            met: Acquaintance::of_note(note),
            shut_out: None,
            refused: None,
            still_there_us: BTreeMap::new(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Membership {
    topology: Arc<Topology>,
    me: MemberIndex,
    /// By member.
    others: Vec<OtherMember>,
    start: MemberStart,
}

impl Membership {
    /// Members of a process with `loops` event loops that has these notes about the members. Is its
    /// folder doubted since an earlier start?
    pub fn new(
        topology: &Arc<Topology>,
        me: MemberIndex,
        (loops, is_doubted): (u16, bool),
        notes: impl IntoIterator<Item = Option<Peer>>,
    ) -> Membership {
        let others = notes.into_iter().map(OtherMember::of_note);
        let others: Vec<OtherMember> = others.collect();
        assert_eq!(others.len(), usize::from(topology.len()), "a note each");
        Membership {
            topology: Arc::clone(topology),
            me,
            others,
            start: MemberStart::new(loops, is_doubted),
        }
    }

    /// The members of a later epoch. `fresh` are the places of members that this process did not
    /// know, each with the note about its member. `folders` are the node ids that the epoch names,
    /// by member. Gives the places with another admitted life than before.
    pub fn adopt(
        &mut self,
        topology: &Arc<Topology>,
        fresh: impl IntoIterator<Item = (MemberIndex, Option<Peer>)>,
        folders: impl IntoIterator<Item = (MemberIndex, u128)>,
    ) -> Vec<MemberIndex> {
        self.topology = Arc::clone(topology);
        while self.others.len() < usize::from(topology.len()) {
            self.others.push(OtherMember::of_note(None));
        }
        let mut renewed = Vec::new();
        for (member, note) in fresh {
            self.others[member.at()] = OtherMember::of_note(note);
            renewed.push(member);
        }
        for (member, node) in folders {
            if self.others[member.at()].met.is_of_another_folder(node) {
                self.others[member.at()] = OtherMember::of_note(Some(Peer::unseen(node)));
                renewed.push(member);
            }
        }
        renewed
    }

    /// The admitted life of a member; 0 = there was none.
    pub fn life(&self, member: MemberIndex) -> u64 {
        self.others[member.at()].met.life()
    }

    /// When a `Tick` is due.
    pub fn due_us(&self) -> Option<u64> {
        self.start.due_us()
    }

    /// Why this process is not ready although others are. It has no links to a majority, and a
    /// member that answers does not admit it, or is not admitted. A process that reaches no other
    /// one may be the first to start.
    pub fn shut_out(&self) -> Option<String> {
        let linked = self.live().filter(|(_, other)| other.met.is_linked());
        if 1 + linked.count() > usize::from(self.topology.live()) / 2 {
            return None;
        }
        let found = self
            .live()
            .find_map(|(member, other)| Some((self.url(member), other.shut_out.as_ref()?)));
        found.map(|(url, why)| format!("shut out: no link to {url}: {why}"))
    }

    /// Takes one event in, at this moment of the monotonic clock.
    pub fn step(&mut self, now_us: u64, event: MemberEvent, effects: &mut Vec<MemberEffect>) {
        match event {
            MemberEvent::Hailed { member, claim } => {
                let effect = self.objection(member, claim);
                effects.push(effect.map_or(MemberEffect::Welcome, MemberEffect::Reject));
            }
            MemberEvent::Claimed { member, claim } => self.claimed(member, claim, effects),
            MemberEvent::NoteWritten(PeerNote {
                member,
                peer,
                purpose,
            }) => {
                let met = &mut self.others[member.at()].met;
                match purpose {
                    NoteFor::Clock => met.noted(peer),
                    NoteFor::Claim => {
                        met.remember(peer);
                        let life = met.life();
                        effects.push(MemberEffect::Admit { member, life });
                    }
                }
            }
            MemberEvent::LinkUp {
                member,
                lane,
                claim,
            } => self.link_up(member, lane, claim, effects),
            MemberEvent::LinkDown { member, confirmed } => {
                let met = &mut self.others[member.at()].met;
                met.unlinked(confirmed);
                let news = met.unnoted();
                effects.extend(news.map(|peer| MemberEffect::WriteNote(of_clock(member, peer))));
            }
            MemberEvent::Confirmed { member, clock } => {
                let news = self.others[member.at()].met.rose(clock, now_us);
                effects.extend(news.map(|peer| MemberEffect::WriteNote(of_clock(member, peer))));
            }
            MemberEvent::NoLink { member, lane, why } => {
                self.no_link(now_us, member, lane, why, effects);
            }
            MemberEvent::Tried { member, lane } => self.start.tried(now_us, member, lane, effects),
            MemberEvent::Heard { member, lane } => self.start.heard(now_us, member, lane, effects),
            MemberEvent::StartAsked => {
                let me = self.me;
                let members = self.live().map(|(member, _)| member);
                let members: Vec<MemberIndex> = members.filter(|&m| m != me).collect();
                self.start.ask(now_us, members.into_iter(), effects);
            }
            MemberEvent::StartAnswered { member, answer } => {
                if let Err(NoLink::NotAdmitted(reason)) = &answer {
                    self.others[member.at()].shut_out = Some(reason.clone());
                }
                self.start
                    .answered(now_us, &self.topology, member, answer, effects);
            }
            MemberEvent::Tick => self.start.go_on(now_us, effects),
            MemberEvent::Stopping => {
                let news = self.live().filter_map(|(member, other)| {
                    let peer = other.met.unnoted_at_stop()?;
                    Some(MemberEffect::WriteNote(of_clock(member, peer)))
                });
                effects.extend(news);
            }
        }
    }

    /// Members of the topology, by their places.
    fn live(&self) -> impl Iterator<Item = (MemberIndex, &OtherMember)> {
        let members = (0..self.topology.len()).map(MemberIndex).zip(&self.others);
        members.filter(|(member, _)| self.topology.has(*member))
    }

    fn url(&self, member: MemberIndex) -> &str {
        &self.topology.member(member).url
    }

    /// Why a process with this claim is not the member.
    fn objection(&self, member: MemberIndex, claim: Peer) -> Option<Rejected> {
        let (us, them) = (self.url(self.me), self.url(member));
        let met = &self.others[member.at()].met;
        if met.is_linked_to_another(claim) {
            let sentence = format!(
                "{us} has links to another process that is {them}: two must not be one member; \
                 when that one has ended, this one is let in"
            );
            return Some(self.rejected(STILL_THERE, sentence));
        }
        match met.judge(them, claim) {
            ClaimVerdict::Known | ClaimVerdict::Learn(_) => None,
            ClaimVerdict::Refuse(reason) => Some(self.rejected(reason.code(), reason.to_string())),
        }
    }

    fn rejected(&self, code: &'static str, sentence: String) -> Rejected {
        let OwnEpoch { epoch, others } = OwnEpoch::of(&self.topology);
        Rejected {
            code,
            epoch,
            others,
            sentence,
        }
    }

    /// The refusal of a folder that the newest epoch names as removed.
    pub fn removed(&self, sentence: String) -> Rejected {
        Rejected {
            others: u16::from(self.topology.live()),
            ..self.rejected(identity::REMOVED, sentence)
        }
    }

    fn claimed(&mut self, member: MemberIndex, claim: Peer, effects: &mut Vec<MemberEffect>) {
        if let Some(rejected) = self.objection(member, claim) {
            effects.push(MemberEffect::Reject(rejected));
            return;
        }
        let url = &self.topology.member(member).url;
        let met = &mut self.others[member.at()].met;
        let ClaimVerdict::Learn(peer) = met.claim(url, claim) else {
            // No objection and no news: it is known.
            let life = met.life();
            return effects.push(MemberEffect::Admit { member, life });
        };
        effects.push(MemberEffect::WriteNote(PeerNote {
            member,
            peer,
            purpose: NoteFor::Claim,
        }));
    }

    fn link_up(
        &mut self,
        member: MemberIndex,
        lane: u16,
        claim: Peer,
        effects: &mut Vec<MemberEffect>,
    ) {
        // A later process may have been admitted since this one was.
        if let Some(rejected) = self.objection(member, claim) {
            effects.push(MemberEffect::Reject(rejected));
            return;
        }
        let other = &mut self.others[member.at()];
        assert_eq!(other.met.life(), claim.life, "a link to an admitted life");
        other.met.linked(claim);
        other.shut_out = None;
        other.refused = None;
        other.still_there_us.remove(&lane);
    }

    fn no_link(
        &mut self,
        now_us: u64,
        member: MemberIndex,
        lane: u16,
        why: NoLink,
        effects: &mut Vec<MemberEffect>,
    ) {
        let other = &mut self.others[member.at()];
        (other.shut_out, other.refused) = match &why {
            NoLink::NotAdmitted(reason) => (Some(reason.clone()), None),
            NoLink::Refused(refusal) => (None, Some(refusal.clone())),
            NoLink::ForNow(_) | NoLink::StillThere(_) => (None, None),
        };
        let since_us = match why {
            NoLink::StillThere(_) => *other.still_there_us.entry(lane).or_insert(now_us),
            _ => {
                other.still_there_us.remove(&lane);
                now_us
            }
        };
        let stop = match why {
            NoLink::Refused(_) => {
                let refusals = self.live().filter_map(|(_, one)| one.refused.as_ref());
                let refusals: Vec<&FolderRefusal> = refusals.collect();
                Disowned::by(&refusals, OwnEpoch::of(&self.topology))
            }
            NoLink::StillThere(sentence) if now_us.saturating_sub(since_us) > TWIN_PATIENCE_US => {
                Disowned::beside_another(sentence)
            }
            _ => return,
        };
        effects.push(MemberEffect::Stop(stop));
    }
}

fn of_clock(member: MemberIndex, peer: Peer) -> PeerNote {
    PeerNote {
        member,
        peer,
        purpose: NoteFor::Clock,
    }
}
