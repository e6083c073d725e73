//! A cluster with members that change: machines that come and go, and the steward of each process.
//!
//! ```text
//! mod.rs       who is which machine; members, links and layouts of each process
//! home.rs      the steward of a process, as `crates/server/src/peers/home.rs` drives it
//! horizons.rs  what a process confirms, purges and drops
//! claims.rs    members judge each other's claims, each by its own epoch
//! start.rs     a process starts on its folder, or asks until it is a member
//! operator.rs  deeds: orders, wiped disks, members that are away
//! notes.rs     epochs and accepted losses in a folder
//! losses.rs    a member is lost beside damage of another one, and that loss is accepted
//! judge.rs     what must hold of epochs, and of copies while positions move
//! ```
//!
//! A machine is a folder and the process on it, if there is one. Its number is a place in
//! `World::members` and never used again. A member has a number of the chain. The places of members
//! differ from one process to another, as they do in the real world.
//!
//! Invariants
//! 1. Steward messages, epochs and enrolments travel as frames of the real wire.
//! 2. A loop learns an epoch after the fence of its process, and loops learn it at different times.
//!
//! Not here: decisions (crate `ownership`, `steward/`, `topology/`), the plan (`changes.rs`).
//! See: docs/protocol.md, "Changes of members".

mod claims;
mod home;
mod horizons;
mod judge;
mod losses;
mod notes;
mod operator;
mod start;

use super::state::{Happening, World};
use crate::machines::node_of;
use dendra_node::step::Event;
use dendra_ownership::epoch::record::{EpochRecord, KnownFolder};
use dendra_ownership::{Layout, MemberIndex};
use std::sync::Arc;

/// A process that was refused a link tries again after this.
const LINK_AGAIN_US: u64 = 250_000;

impl World<'_> {
    /// Members of the cluster, as machines.
    pub(super) fn cluster(&self) -> Vec<usize> {
        match &self.town {
            None => (0..self.members.len()).collect(),
            Some(town) => town.members(),
        }
    }

    /// Members and owners of the newest epoch.
    pub(super) fn newest(&self) -> &Arc<Layout> {
        self.town.as_ref().map_or(&self.layout, |town| &town.newest)
    }

    /// The owners of a key in their order, as machines.
    pub(super) fn owners_in(
        &self,
        layout: &Layout,
        partition: dendra_ownership::Partition,
    ) -> Vec<usize> {
        let owners = layout.ring().owners(partition).iter();
        let machine = |owner: &MemberIndex| self.machine_in(layout, *owner);
        owners.filter_map(machine).collect()
    }

    /// The machine at a place of a layout.
    pub(super) fn machine_in(&self, layout: &Layout, member: MemberIndex) -> Option<usize> {
        match &self.town {
            None => Some(member.at()),
            Some(town) => town.machine_of(layout.id_of(member)?),
        }
    }

    /// The machine at a place, as a loop has it.
    pub(super) fn machine_at(
        &self,
        member: usize,
        lane: usize,
        place: MemberIndex,
    ) -> Option<usize> {
        self.machine_in(&self.members[member].lanes[lane].layout, place)
    }

    /// At which place a loop has a machine.
    pub(super) fn index_at(&self, member: usize, lane: usize, other: usize) -> Option<MemberIndex> {
        match &self.town {
            None => Some(MemberIndex(other as u8)),
            Some(town) => {
                let id = town.machines[other].id?;
                self.members[member].lanes[lane].layout.index_of(id)
            }
        }
    }

    /// At which place a process has a machine that has an accepted link to it.
    pub(super) fn place_of(&self, member: usize, other: usize) -> Option<MemberIndex> {
        match &self.town {
            None => Some(MemberIndex(other as u8)),
            Some(town) => {
                let id = town.machines[other].id?;
                let home = self.members[member].home.as_ref()?;
                home.accepts(id)
            }
        }
    }

    /// May this link come up, as far as members change? Both sides judge the other's hello.
    pub(super) fn shakes_hands(&mut self, member: usize, peer: usize) -> bool {
        match self.judges_claims(member, peer) {
            Some(true) => return true,
            Some(false) => {
                self.link_later(member, peer);
                return false;
            }
            None => {}
        }
        let Some(town) = &self.town else {
            return true;
        };
        let (asker, acceptor) = (&self.members[member].home, &self.members[peer].home);
        let (Some(asker), Some(acceptor)) = (asker, acceptor) else {
            return false;
        };
        let visitor =
            |record: &EpochRecord, of: usize| record.folder(node_of(of), &town.machines[of].url, 0);
        let is_its = |found: KnownFolder, of: usize| match found {
            KnownFolder::Member(id) => town.machines[of].id == Some(id),
            _ => false,
        };
        let there = visitor(&acceptor.record, member);
        let here = visitor(&asker.record, peer);
        if is_its(there, member) && is_its(here, peer) {
            return true;
        }
        if matches!(there, KnownFolder::Removed { .. }) && is_its(here, peer) {
            // It believes a member that it would admit.
            self.end_later(member);
            return false;
        }
        self.link_later(member, peer);
        false
    }

    fn link_later(&mut self, member: usize, peer: usize) {
        let incarnation = self.members[member].incarnation;
        let home = self.members[member].home.as_mut();
        if home.is_some_and(|home| home.begins_pause(peer)) {
            let again = Happening::LinkAgain {
                member,
                peer,
                incarnation,
            };
            self.schedule.after(LINK_AGAIN_US, again);
        }
    }

    /// The pause after a refused link is over.
    pub(super) fn link_again(&mut self, member: usize, peer: usize) {
        if let Some(home) = &mut self.members[member].home {
            home.ends_pause(peer);
        }
        self.notice(member, peer, true);
    }

    pub(super) fn end_later(&mut self, member: usize) {
        let incarnation = self.members[member].incarnation;
        let end = Happening::End {
            member,
            incarnation,
        };
        self.schedule.after(0, end);
    }

    /// A loop gets the layout of an epoch.
    pub(super) fn lane_adopts(&mut self, member: usize, lane: usize, layout: &Arc<Layout>) {
        let before = Arc::clone(&self.lane(member, lane).layout);
        if layout.epoch() <= before.epoch() {
            return;
        }
        self.lane(member, lane).layout = Arc::clone(layout);
        let layout_event = Event::Layout {
            layout: Arc::clone(layout),
        };
        self.give(member, lane, layout_event);
        // Links to members that the loop did not know.
        let linked: Vec<MemberIndex> = layout
            .members()
            .filter(|place| before.id_of(*place) != layout.id_of(*place))
            .filter(|place| {
                let machine = self.machine_in(layout, *place);
                machine.is_some_and(|at| self.members[member].links_up.contains(&at))
            })
            .collect();
        for place in linked {
            let up = Event::Link {
                member: place,
                is_up: true,
            };
            self.give(member, lane, up);
        }
    }
}
