//! Which members own which keys, as far as watches need it.

/// A member, by the id that no other member of the cluster ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId(pub u32);

/// The owners of one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedOwners {
    epoch: u64,
    members: Vec<FeedId>,
    rows: Vec<Vec<FeedId>>,
}

impl FeedOwners {
    /// Owners of an epoch: all members, and the owners of each partition.
    pub fn new(
        epoch: u64,
        mut members: Vec<FeedId>,
        rows: impl IntoIterator<Item = Vec<FeedId>>,
    ) -> FeedOwners {
        members.sort_unstable();
        let sorted = |mut row: Vec<FeedId>| {
            row.sort_unstable();
            row
        };
        let mut rows: Vec<Vec<FeedId>> = rows.into_iter().map(sorted).collect();
        rows.sort_unstable();
        rows.dedup();
        FeedOwners {
            epoch,
            members,
            rows,
        }
    }

    /// A node by itself.
    pub fn alone(source: FeedId) -> FeedOwners {
        FeedOwners::new(0, vec![source], [vec![source]])
    }

    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// All members, in the order of their ids.
    pub fn members(&self) -> &[FeedId] {
        &self.members
    }

    /// Is one of these members in every majority of the owners of each key?
    pub fn meet_every_majority(&self, counts: impl Fn(FeedId) -> bool) -> bool {
        self.rows.iter().all(|row| {
            let majority = row.len() / 2 + 1;
            let counted = row.iter().filter(|source| counts(**source)).count();
            counted + majority > row.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_owners_two_meet_every_majority() {
        let of = |ids: &[u32]| ids.iter().copied().map(FeedId).collect::<Vec<_>>();
        let owners = FeedOwners::new(1, of(&[3, 1, 2, 4]), [of(&[1, 2, 3]), of(&[4, 3, 2])]);
        let met = |ids: &[u32]| owners.meet_every_majority(|source| ids.contains(&source.0));
        assert!(met(&[2, 3]) && met(&[1, 2, 4]) && met(&[1, 2, 3, 4]));
        assert!(!met(&[1, 4]) && !met(&[1, 2]) && !met(&[]));
        assert!(FeedOwners::alone(FeedId(7)).meet_every_majority(|source| source == FeedId(7)));
        assert!(!FeedOwners::alone(FeedId(7)).meet_every_majority(|_| false));
    }
}
