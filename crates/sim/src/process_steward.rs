//! The steward of a process, and the events that wait for it.
//!
//! Invariants
//! 1. Events that its own effects led to come before all others.
//!
//! Not here: how its effects are carried out (`world/town/home.rs`).

use crate::store::StoreWrite;
use dendra_node::Hlc;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::AcceptedLoss;
use dendra_ownership::steward::places::PeerPlaces;
use dendra_ownership::steward::step::{StewardEffect, StewardEvent};
use dendra_ownership::{Fence, Layout, MemberIndex, Membership, Steward, Topology};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// One process that says to be a member, for its life.
#[derive(Debug)]
pub(crate) struct Claimant {
    pub(crate) claim: Peer,
    pub(crate) membership: Membership,
}

/// The receiver that waits for a note.
#[derive(Clone, Debug)]
pub(crate) enum StewardNote {
    /// The steward, under this ticket.
    Chain(u64),
    /// The first loop.
    Loss(AcceptedLoss),
}

/// The steward, and the state around it that the server keeps in its home.
pub(crate) struct ProcessSteward {
    pub(crate) steward: Steward,
    /// The newest durable epoch of the process.
    pub(crate) record: Arc<EpochRecord>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) fence: Arc<Fence>,
    pub(crate) hlc: Arc<Hlc>,
    pub(crate) origin: u32,
    pub(crate) places: PeerPlaces,
    /// Removed members with links that were closed.
    pub(crate) closed: BTreeSet<MemberId>,
    /// Events that effects led to: the steward gets them before all others.
    pub(crate) follow_ups: VecDeque<StewardEvent>,
    pub(crate) events: VecDeque<StewardEvent>,
    pub(crate) effects: VecDeque<StewardEffect>,
    /// The note that is being written.
    pub(crate) note: Option<(StewardNote, StoreWrite)>,
    pub(crate) is_at_work: bool,
    pub(crate) looks: u64,
    /// Claim and notes of the process, where members judge claims.
    pub(crate) claimant: Option<Claimant>,
    /// Machines to which a refused link is tried again.
    pausing: BTreeSet<usize>,
}

impl ProcessSteward {
    pub(crate) fn new(steward: Steward, fence: Arc<Fence>, hlc: Arc<Hlc>, origin: u32) -> Self {
        let mut places = PeerPlaces::default();
        places.note(steward.layout());
        ProcessSteward {
            record: Arc::clone(steward.record()),
            layout: Arc::clone(steward.layout()),
            steward,
            fence,
            hlc,
            origin,
            places,
            closed: BTreeSet::new(),
            follow_ups: VecDeque::new(),
            events: VecDeque::new(),
            effects: VecDeque::new(),
            note: None,
            is_at_work: false,
            looks: 0,
            claimant: None,
            pausing: BTreeSet::new(),
        }
    }

    /// A link to this machine was refused: false when it is being tried again already.
    pub(crate) fn begins_pause(&mut self, machine: usize) -> bool {
        self.pausing.insert(machine)
    }

    pub(crate) fn ends_pause(&mut self, machine: usize) {
        self.pausing.remove(&machine);
    }

    /// Members and copies, as requests are read.
    pub(crate) fn topology(&self) -> &Topology {
        self.layout.topology()
    }

    /// The place of a member, if its link is accepted. That of a removed one is, until it is
    /// closed.
    pub(crate) fn accepts(&self, id: MemberId) -> Option<MemberIndex> {
        self.places.of(id).filter(|_| !self.closed.contains(&id))
    }
}
