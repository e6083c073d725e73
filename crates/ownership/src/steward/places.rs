//! The index of each member that this process has known since it started.
//!
//! Invariants
//! 1. An index has one member at a time. That of a removed member is kept until another member gets
//!    it: messages that are still sent to the removed one go there.
//!
//! Not here: which index a member gets (`layout.rs`).

use crate::layout::Layout;
use crate::member::MemberIndex;
use crate::ring::table::MemberId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PeerPlaces {
    by_id: BTreeMap<MemberId, MemberIndex>,
}

impl PeerPlaces {
    /// The members of a layout.
    pub fn note(&mut self, layout: &Layout) {
        for member in layout.members() {
            if let Some(id) = layout.id_of(member) {
                self.by_id.retain(|_, place| *place != member);
                self.by_id.insert(id, member);
            }
        }
    }

    /// The index of a member.
    pub fn of(&self, id: MemberId) -> Option<MemberIndex> {
        self.by_id.get(&id).copied()
    }
}
