//! The start of a process as a member: from its first question to the moment at which it is ready.
//!
//! ```text
//! New ─ StartAsked ─► Asking ─ all have answered ─► Linking ─ tried, or 2 s ─► Opening ─ linked, or 1 s ─► Ready
//!                       │ Ask each other member    OpenLinks                 OpenDoor                    Ready
//!                       ├─ all have answered, one with a refusal ─────────────────► Stopped
//!                       └─ still-there for `TWIN_PATIENCE_US` ────────────────────► Stopped
//! tried    each own event loop has tried to link to each member that admits this process
//! linked   each event loop of those members has opened its link
//! ```
//!
//! Invariants
//! 1. No member notes this start before all members that can be asked admit it. A member that had
//!    noted an image would refuse the true folder.
//! 2. The door opens for no process that an asked member refuses. On a doubted folder it opens only
//!    when all members that are known here admit the process.
//! 3. A ready process reaches the members that admit it from each event loop, and is reached by
//!    each of theirs. Or it has waited as long as a handshake may take. So members can be restarted
//!    one after the other.
//! 4. A member that does not answer delays a start by `LINK_OPEN_TIMEOUT_US` at most. Members that
//!    start together do not wait for each other.
//! 5. A wait remembers at most the event loops of each member, which the handshake bounds.
//!
//! Not here: sockets, and the pause between two questions (crate `server`).
//! See: docs/peer.md, section "Handshake".

use super::refusal::{Disowned, FolderRefusal, NoLink, OwnEpoch};
use super::step::{MemberEffect, WaitEnd};
use crate::limits::{LINK_OPEN_TIMEOUT_US, TWIN_PATIENCE_US};
use crate::member::MemberIndex;
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
enum StartStage {
    #[default]
    New,
    /// Members that have not answered, and since when each is asked.
    Asking(BTreeMap<MemberIndex, u64>),
    /// Until then.
    Linking(u64),
    /// Until then.
    Opening(u64),
    Ready,
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub(super) struct MemberStart {
    stage: StartStage,
    /// Own event loops.
    loops: usize,
    /// A member refused this folder at an earlier start.
    is_doubted: bool,
    /// Members that refuse this process.
    refused: BTreeMap<MemberIndex, FolderRefusal>,
    /// Members without a verdict: they could not be asked, or settings keep the two apart.
    silent: BTreeSet<MemberIndex>,
    /// Members that admit this process, and how many event loops they have.
    hosts: BTreeMap<MemberIndex, u16>,
    /// By member: own event loops that have tried once to link to it.
    tried: BTreeMap<MemberIndex, BTreeSet<u16>>,
    /// By member: its event loops that opened a link.
    heard: BTreeMap<MemberIndex, BTreeSet<u16>>,
}

impl MemberStart {
    pub(super) fn new(loops: u16, is_doubted: bool) -> MemberStart {
        MemberStart {
            stage: StartStage::New,
            loops: usize::from(loops),
            is_doubted,
            refused: BTreeMap::new(),
            silent: BTreeSet::new(),
            hosts: BTreeMap::new(),
            tried: BTreeMap::new(),
            heard: BTreeMap::new(),
        }
    }

    /// When the current wait is given up.
    pub(super) fn due_us(&self) -> Option<u64> {
        match self.stage {
            StartStage::Linking(until_us) | StartStage::Opening(until_us) => Some(until_us),
            _ => None,
        }
    }

    /// Asks all these members.
    pub(super) fn ask(
        &mut self,
        now_us: u64,
        members: impl Iterator<Item = MemberIndex>,
        effects: &mut Vec<MemberEffect>,
    ) {
        let asked: BTreeMap<_, _> = members.map(|member| (member, now_us)).collect();
        effects.extend(asked.keys().map(|&member| MemberEffect::Ask { member }));
        self.stage = StartStage::Asking(asked);
        self.go_on(now_us, effects);
    }

    /// A member of this topology has answered.
    pub(super) fn answered(
        &mut self,
        now_us: u64,
        topology: &Topology,
        member: MemberIndex,
        answer: Result<u16, NoLink>,
        effects: &mut Vec<MemberEffect>,
    ) {
        let StartStage::Asking(asked) = &mut self.stage else {
            return;
        };
        let Some(&since_us) = asked.get(&member) else {
            return;
        };
        match answer {
            Ok(loops) => {
                self.hosts.insert(member, loops);
            }
            // Also beside a refusal: it takes the word of a majority to refuse a folder for ever.
            Err(NoLink::StillThere(_)) if now_us.saturating_sub(since_us) <= TWIN_PATIENCE_US => {
                effects.push(MemberEffect::Ask { member });
                return;
            }
            // The refusals of others are the verdict.
            Err(NoLink::StillThere(_)) if !self.refused.is_empty() => {}
            Err(NoLink::StillThere(sentence)) => {
                return self.stop(Disowned::beside_another(sentence), effects);
            }
            Err(NoLink::Refused(refusal)) => {
                self.refused.insert(member, refusal);
            }
            Err(NoLink::ForNow(_) | NoLink::NotAdmitted(_)) => {
                self.silent.insert(member);
            }
        }
        asked.remove(&member);
        let is_over = asked.is_empty();
        match self.verdict(topology).filter(|_| is_over) {
            Some(why) => self.stop(why, effects),
            None => self.go_on(now_us, effects),
        }
    }

    fn stop(&mut self, why: Disowned, effects: &mut Vec<MemberEffect>) {
        self.stage = StartStage::Stopped;
        effects.push(MemberEffect::Stop(why));
    }

    /// Why the process ends in the place of opening its links, once all members have answered.
    fn verdict(&self, topology: &Topology) -> Option<Disowned> {
        if !self.refused.is_empty() {
            let refusals: Vec<&FolderRefusal> = self.refused.values().collect();
            return Some(Disowned::by(&refusals, OwnEpoch::of(topology)));
        }
        if !self.is_doubted || self.silent.is_empty() {
            return None;
        }
        let silent = self.silent.iter();
        let silent: Vec<String> = silent
            .map(|member| topology.member(*member).url.clone())
            .collect();
        Some(Disowned::still_doubted(&silent))
    }

    /// The first try of an own event loop is over.
    pub(super) fn tried(
        &mut self,
        now_us: u64,
        member: MemberIndex,
        lane: u16,
        effects: &mut Vec<MemberEffect>,
    ) {
        self.tried.entry(member).or_default().insert(lane);
        self.go_on(now_us, effects);
    }

    /// An event loop of a member has opened its link.
    pub(super) fn heard(
        &mut self,
        now_us: u64,
        member: MemberIndex,
        lane: u16,
        effects: &mut Vec<MemberEffect>,
    ) {
        self.heard.entry(member).or_default().insert(lane);
        self.go_on(now_us, effects);
    }

    /// Enters the next stage, if it has all that it needs or its wait is over.
    pub(super) fn go_on(&mut self, now_us: u64, effects: &mut Vec<MemberEffect>) {
        let count = |of: &BTreeMap<MemberIndex, BTreeSet<u16>>, member| {
            of.get(member).map_or(0, BTreeSet::len)
        };
        if let StartStage::Asking(asked) = &self.stage
            && asked.is_empty()
        {
            // A try takes as long as a handshake at most, and then threads have to be woken.
            self.stage = StartStage::Linking(now_us + 2 * LINK_OPEN_TIMEOUT_US);
            effects.push(MemberEffect::OpenLinks);
        }
        if let StartStage::Linking(until_us) = self.stage {
            let mut hosts = self.hosts.keys();
            let is_over = hosts.all(|member| count(&self.tried, member) >= self.loops);
            if let Some(wait) = WaitEnd::of(is_over, now_us >= until_us) {
                self.stage = StartStage::Opening(now_us + LINK_OPEN_TIMEOUT_US);
                effects.push(MemberEffect::OpenDoor(wait));
            }
        }
        if let StartStage::Opening(until_us) = self.stage {
            let mut hosts = self.hosts.iter();
            let is_over =
                hosts.all(|(member, loops)| count(&self.heard, member) >= usize::from(*loops));
            if let Some(wait) = WaitEnd::of(is_over, now_us >= until_us) {
                self.stage = StartStage::Ready;
                effects.push(MemberEffect::Ready(wait));
            }
        }
    }
}

impl WaitEnd {
    /// `None` = it goes on.
    fn of(is_over: bool, is_late: bool) -> Option<WaitEnd> {
        if is_over {
            Some(WaitEnd::Over)
        } else {
            is_late.then_some(WaitEnd::GivenUp)
        }
    }
}
