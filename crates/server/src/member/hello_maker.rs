//! Which process made a hello, as this member sees it.

use dendra_ownership::MemberIndex;
use dendra_ownership::membership::Rejected;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelloMaker {
    /// A member of the newest epoch.
    Member(MemberIndex),
    /// A member that was removed; the refusal is for it, once it has proven that it was one.
    Removed(Rejected),
    /// A process that wants to become a member.
    Joiner,
}

impl HelloMaker {
    /// The member, if it is one.
    pub(crate) fn member(&self) -> Option<MemberIndex> {
        match self {
            HelloMaker::Member(member) => Some(*member),
            HelloMaker::Removed(_) | HelloMaker::Joiner => None,
        }
    }
}
