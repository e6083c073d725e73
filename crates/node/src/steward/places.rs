//! Where a process has its members: the indexes of all that it has known since it started.
//!
//! Invariants
//! 1. A place has one member at a time. The place of a member that was removed is kept until
//!    another member gets it: what is still said to the removed one goes there.
//!
//! Not here: which place a member gets (`layout.rs`).

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

    /// The place of a member.
    pub fn of(&self, id: MemberId) -> Option<MemberIndex> {
        self.by_id.get(&id).copied()
    }
}
