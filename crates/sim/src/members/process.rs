//! The nouns of the world: a folder, a process on it, a try of the process to open a link.
//!
//! ```text
//! commit ─► under way ─ its time ─► in the folder, and reported
//!                     └ the process ends ─► in the folder or not, and not reported
//! ```
//!
//! Invariants
//! 1. Of two notes about one member the one that was decided later stays.
//! 2. A folder is genuine if its member was never started on another one in its place.
//!
//! Not here: the events of its life (`mod.rs`).

use dendra_base::Prng;
use dendra_ownership::Membership;
use dendra_ownership::membership::PeerNote;
use dendra_ownership::membership::identity::Peer;
use std::collections::{BTreeMap, BTreeSet};

/// A folder of a member.
#[derive(Clone, Debug)]
pub(super) struct MemberFolder {
    pub(super) member: usize,
    pub(super) node: u128,
    /// Starts so far.
    pub(super) boot: u64,
    /// No clock value at or above it was used.
    pub(super) ceiling: u64,
    /// By member, with the number of the decision.
    pub(super) notes: Vec<Option<(u64, Peer)>>,
    /// Is the file `REFUSED` in it?
    pub(super) is_refused: bool,
    /// Is the file `DOUBTED` in it?
    pub(super) is_doubted: bool,
    pub(super) is_genuine: bool,
}

impl MemberFolder {
    pub(super) fn new(member: usize, node: u128, members: usize) -> MemberFolder {
        MemberFolder {
            member,
            node,
            boot: 0,
            ceiling: 1,
            notes: vec![None; members],
            is_refused: false,
            is_doubted: false,
            is_genuine: true,
        }
    }

    pub(super) fn take(&mut self, commit: &FolderCommit) {
        match commit {
            FolderCommit::Ceiling(value) => self.ceiling = self.ceiling.max(*value),
            FolderCommit::Note { note, number, .. } => {
                let known = &mut self.notes[note.member.at()];
                if known.is_none_or(|(before, _)| before < *number) {
                    *known = Some((*number, note.peer));
                }
            }
        }
    }
}

/// Something that a process makes durable.
#[derive(Clone, Debug)]
pub(super) enum FolderCommit {
    Ceiling(u64),
    Note {
        note: PeerNote,
        number: u64,
        /// The handshake that goes on after it.
        then: Option<Dial>,
    },
}

/// An own link of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberLink {
    pub(super) to: usize,
    pub(super) number: u64,
    /// Since when the other side does not answer.
    pub(super) silent_us: Option<u64>,
}

/// A process that says to be a member.
pub(super) struct MemberProcess {
    pub(super) folder: usize,
    pub(super) member: usize,
    /// Host of the member, or another one for a copy beside it.
    pub(super) host: usize,
    pub(super) claim: Peer,
    pub(super) machine: Membership,
    pub(super) is_alive: bool,
    pub(super) is_open: bool,
    /// Did its door open although not all own event loops had tried?
    pub(super) is_late: bool,
    pub(super) is_ready: bool,
    pub(super) clock: u64,
    /// By own event loop and member.
    pub(super) links: BTreeMap<(u16, usize), MemberLink>,
    /// Tries under way.
    pub(super) dialing: BTreeSet<(u16, usize)>,
    /// First tries that are over.
    pub(super) tried: BTreeSet<(u16, usize)>,
    /// Event loops of members with an admitted link to this process.
    pub(super) accepted: BTreeSet<(u16, usize)>,
    /// Members that admit its start.
    pub(super) hosts: BTreeSet<usize>,
    /// Members that answered its start last with a refusal that counts.
    pub(super) refused_by: BTreeSet<usize>,
    /// Members that were asked before.
    pub(super) asked: BTreeSet<usize>,
    /// By own event loop and member, since the last sweep.
    pub(super) confirmed: BTreeMap<(u16, usize), u64>,
    pub(super) commits: BTreeMap<u64, FolderCommit>,
}

impl MemberProcess {
    /// The part of the commits under way that is in the folder at its end.
    pub(super) fn end(&mut self, folder: &mut MemberFolder, prng: &mut Prng) {
        self.is_alive = false;
        self.is_open = false;
        self.links.clear();
        for commit in std::mem::take(&mut self.commits).values() {
            if prng.chance(1, 2) {
                folder.take(commit);
            }
        }
    }

    /// Handshakes that go on after its commits.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Dial> {
        let commits = self.commits.values();
        commits.filter_map(|commit| match commit {
            FolderCommit::Note { then, .. } => then.as_ref(),
            FolderCommit::Ceiling(_) => None,
        })
    }

    /// The processes of a member to which its links lead.
    pub(super) fn linked_to(&self, member: usize) -> impl Iterator<Item = usize> {
        let links = self.links.iter();
        links.filter_map(move |((_, to), link)| (*to == member).then_some(link.to))
    }
}

/// A try to open a link, or the question of a start.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    pub(super) asker: usize,
    pub(super) lane: u16,
    pub(super) to: usize,
    pub(super) acceptor: usize,
    pub(super) is_question: bool,
    pub(super) began_us: u64,
    pub(super) step: DialStep,
}

#[derive(Clone, Debug)]
pub(super) enum DialStep {
    Hello,
    HelloBack,
    Hail,
    HailBack(Option<String>),
    Probe,
    Alive,
    Forged,
    Closed,
    Silent,
}

/// The knowledge of the member with one genuine folder about one other, as the world saw it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sightings {
    /// The process that was admitted last.
    pub(super) admitted: Option<Peer>,
    /// The process of the last frame that counted.
    pub(super) counted: Option<Peer>,
    /// When a clock value was confirmed to it, and in which life.
    pub(super) confirmed: Vec<(u64, u64, u64)>,
}
