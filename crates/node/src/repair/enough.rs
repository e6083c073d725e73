//! Which owners a repair still has to walk.
//!
//! ```text
//! partition 17, three copies     h3 (damaged, this member)   h1   h2
//!   enough                                                   h1 and h2
//!   h2 lost, a loss accepted                                 h1
//! ```
//!
//! Invariants
//! 1. Without an accepted loss the walked owners meet each majority of the `w` owners. This holds
//!    for each number of copies `w` of which this member keeps records. That is each number from
//!    two on: a client may choose it, and the factor was another one before it was raised or
//!    lowered.
//! 2. A member is given up only while a plan takes it away, and while it does not answer; or for
//!    one span, while it is damaged between its keys. An operator has accepted either.
//! 3. When all other owners up to the replication factor are given up, no walk is enough.
//!
//! Not here: the walks (`mod.rs`), which loss can be accepted (`loss.rs`).

use crate::desk::Desk;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::MemberId;
use std::collections::BTreeSet;

/// The members that an operator gave up for a span.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GivenUp {
    /// Members that a plan takes away, while they do not answer.
    pub(super) lost: BTreeSet<MemberId>,
    /// Members that are damaged between the span's keys.
    pub(super) damaged: BTreeSet<MemberIndex>,
}

/// Members of which a walk is missing; empty = enough were walked.
pub(super) fn missing(
    desk: &Desk,
    walked: &BTreeSet<MemberIndex>,
    without: &GivenUp,
) -> BTreeSet<MemberIndex> {
    let mut missing = BTreeSet::new();
    for partition in desk.ring().all() {
        missing.append(&mut missing_in(desk, partition, walked, without));
    }
    missing
}

/// Owners of one partition that are still missing.
pub(super) fn missing_in(
    desk: &Desk,
    partition: Partition,
    walked: &BTreeSet<MemberIndex>,
    without: &GivenUp,
) -> BTreeSet<MemberIndex> {
    let mut missing = BTreeSet::new();
    let Some(place) = place(desk, partition) else {
        return missing;
    };
    let is_given_up = |member: &MemberIndex| {
        let id = desk.layout.id_of(*member);
        let is_lost = id.is_some_and(|id| without.lost.contains(&id)) && is_lost(desk, *member);
        is_lost || without.damaged.contains(member)
    };
    let row = desk.ring().owners(partition);
    let stored = row.iter().position(|owner| *owner == desk.me);
    let factor = usize::from(desk.topology.copies());
    // Of a record with one copy there is no other owner.
    for copies in (place + 1).max(2)..=row.len() {
        // A further owner that is about to take an earlier place of the same row is one member. The
        // owner that leaves that place is another one.
        let own = stored.filter(|at| *at < copies).unwrap_or(place);
        let others = (0..copies).filter(|at| *at != own).map(|at| row[at]);
        let kept = others.clone().filter(|other| !is_given_up(other));
        let has_left = kept.clone().next().is_some();
        let has_all_left = has_left && kept.clone().all(|other| walked.contains(&other));
        let count = others.clone().filter(|other| walked.contains(other));
        if count.count() < copies.div_ceil(2) && !has_all_left {
            let is_wanted = |other: &MemberIndex| !walked.contains(other);
            match has_left {
                true => missing.extend(kept.filter(is_wanted)),
                // Those with fewer copies than the factor are lost, and more owners are left.
                false if copies < factor => {}
                false => missing.extend(others.filter(is_wanted)),
            }
        }
    }
    missing
}

/// Does a plan take the member away, and does it not answer?
pub(super) fn is_lost(desk: &Desk, member: MemberIndex) -> bool {
    desk.layout.leaves(member) && !desk.health.is_up(member)
}

/// Are there records that this member alone keeps, of the usual number of copies?
pub(super) fn has_the_only_copies(desk: &Desk) -> bool {
    let mut all = desk.ring().all();
    desk.topology.copies() == 1 && all.any(|partition| place(desk, partition) == Some(0))
}

/// At which place this member is an owner of the partition, of any number of copies.
fn place(desk: &Desk, partition: Partition) -> Option<usize> {
    let arriving = desk.layout.arriving(partition);
    let twin = arriving.filter(|twin| twin.member == desk.me);
    let row = desk.ring().owners(partition);
    let stored = row.iter().position(|owner| *owner == desk.me);
    twin.map(|twin| usize::from(twin.place)).or(stored)
}
