//! Which owners a new owner must load from: the rule, for the loader and for the status.
//!
//! ```text
//! old owner reached                     ─► that one alone
//! old owner away for long, or damaged   ─► so many of the others that they meet each majority
//! ```
//!
//! Invariants
//! 1. A plan waits for a source in the status exactly if the loader of the new owner does.
//!
//! Not here: walks, patience (crate `node`, `loader.rs`), the sentence (`steward/waiting.rs`).
//! See: docs/protocol.md, "Changes of members".

use crate::layout::Layout;
use crate::member::MemberIndex;
use crate::ring::Partition;

/// The owner of a position that moves.
#[derive(Clone, Copy, Debug)]
pub struct OldOwner {
    /// The member.
    pub member: MemberIndex,
    /// Place of the position in its row, from 0 on.
    place: usize,
}

/// The owners of a partition of which a position moves to a member.
#[derive(Debug)]
pub struct Sources {
    /// `None` = the position is added.
    pub old: Option<OldOwner>,
    /// Owners of the other positions, in the order of their row.
    pub others: Vec<MemberIndex>,
    /// Members that may have been owners, while a lowered replication factor waits for its steps.
    pub former: Vec<MemberIndex>,
}

impl Sources {
    /// Sources for the position of `partition` that moves to `to`.
    pub fn of(layout: &Layout, to: MemberIndex, partition: Partition) -> Sources {
        let row = layout.ring().owners(partition);
        let copies = usize::from(layout.topology().copies()).min(row.len());
        let is_lowered = usize::from(layout.narrowing().copies_before()) > copies;
        let (row, further) = row.split_at(copies);
        let arriving = layout.arriving(partition);
        let old = arriving.filter(|twin| !twin.is_added).and_then(|twin| {
            let place = usize::from(twin.place);
            let member = *row.get(place)?;
            Some(OldOwner { member, place })
        });
        let is_old = |owner: &MemberIndex| old.is_some_and(|old| old.member == *owner);
        let others = row.iter().copied();
        let former = further.iter().copied();
        Sources {
            old,
            others: others
                .filter(|owner| !is_old(owner) && *owner != to)
                .collect(),
            former: former
                .filter(|member| is_lowered && *member != to)
                .collect(),
        }
    }

    /// The first owners of other positions whose walks are still missing, in the order of their
    /// row. `None` = enough are walked.
    ///
    /// `is_walked`: it was walked to its end. `is_given_up`: it is away for long, or damaged.
    /// `is_lost`: it is away for long, and the plan takes it away.
    ///
    /// Records may have fewer copies than the factor: as many as a client said, or as the factor
    /// was before it was raised. So the walked owners meet each majority of the first `w` owners,
    /// for each number `w` of copies. Owners that are away for long are left out. Where the
    /// position has an old owner, that one is among them from some number on: it confirmed, and is
    /// not asked.
    ///
    /// A lowered factor may wait for its steps. Then a record may be at any majority of the former
    /// number of owners alone. The plan took any position of a row away, and members may have
    /// joined since. So any other member may be a former owner, and each of them is walked.
    pub fn missing(
        &self,
        is_walked: impl Fn(&MemberIndex) -> bool,
        is_given_up: impl Fn(&MemberIndex) -> bool,
        is_lost: impl Fn(&MemberIndex) -> bool,
    ) -> Option<Vec<MemberIndex>> {
        let others = self.others.as_slice();
        let gone = usize::from(self.old.is_some());
        let all = others.len() + gone;
        let least = self.old.map_or(1, |old| old.place + 1).min(all);
        // So many of them are to be walked for records of fewer copies.
        let mut wanted: Option<usize> = None;
        for copies in least..=all {
            let first = &others[..copies - gone];
            let counts = |(at, other): &(usize, &MemberIndex)| {
                is_walked(other)
                    || (wanted.is_some_and(|so_far| *at < so_far) && !is_given_up(other))
            };
            let count = first.iter().enumerate().filter(counts).count();
            let mut left = first.iter().filter(|other| !is_walked(other));
            let may_be_passed_over = copies < all && left.all(&is_given_up);
            if count < copies.div_ceil(2) && !may_be_passed_over {
                wanted = Some(first.len());
            }
        }
        let former = self.former.iter();
        let former = former.filter(|member| !is_walked(member) && !is_lost(member));
        let missing = others[..wanted.unwrap_or(0)].iter().chain(former);
        let missing: Vec<MemberIndex> = missing.copied().collect();
        (wanted.is_some() || !missing.is_empty()).then_some(missing)
    }
}
