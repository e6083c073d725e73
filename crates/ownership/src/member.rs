//! Members by number.
//!
//! Invariants
//! 1. A number is a place in the sorted member list of one topology, dense from 0, and has no
//!    meaning in another one.
//!
//! Not here: the list itself (`topology/`), a member's persistent identity
//! (`membership/identity/`).

use std::fmt;

/// A member's place in the sorted list of its topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u8);

impl MemberIndex {
    /// For indexing.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for MemberIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
