//! The best ways to pass a partition on from one member to another.
//!
//! ```text
//! offered ─► among the `room` best? ─► kept in order ─► best()
//!                  └ no: it is found when the kept ones are used up, by a look at all
//! ```
//!
//! One look at all partitions serves as many passes as there is room for. Looking for each pass
//! took eight seconds for 16,384 partitions on three members. Many members have many pairs with few
//! passes each, so that there is less room for each pair then.
//!
//! Invariants
//! 1. No pass that is left out is better than one that is kept.
//!
//! Not here: the cost of a pass (`mod.rs`).

/// A pass: its cost, and the partition after its place among equals. The smallest is the best.
pub(super) type Handover = (i64, u32, usize);

pub(super) const NO_HANDOVER: Handover = (i64::MAX, u32::MAX, usize::MAX);

const ROOM_MAX: usize = 64;
const ROOM_MIN: usize = 4;
const ROOM_OF_ALL: usize = 256;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct BestPasses {
    room: usize,
    /// The best one last.
    kept: Vec<Handover>,
    /// There are passes that are not kept.
    are_more: bool,
}

impl BestPasses {
    /// None yet, between two of so many members.
    pub(super) fn between(members: usize) -> BestPasses {
        BestPasses {
            room: (ROOM_OF_ALL / members.max(1)).clamp(ROOM_MIN, ROOM_MAX),
            kept: Vec::new(),
            are_more: false,
        }
    }

    /// Takes the best of all that there are.
    pub(super) fn choose(&mut self, mut all: Vec<Handover>) {
        self.are_more = all.len() > self.room;
        if self.are_more {
            all.select_nth_unstable(self.room);
            all.truncate(self.room);
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        self.kept = all;
    }

    pub(super) fn best(&self) -> Handover {
        self.kept.last().copied().unwrap_or(NO_HANDOVER)
    }

    /// Keeps the pass if it is one of the best. One that is kept already is not kept twice.
    pub(super) fn offer(&mut self, pass: Handover) {
        if self.are_more && self.kept.first().is_none_or(|worst| pass > *worst) {
            return;
        }
        let Err(at) = self.kept.binary_search_by(|other| pass.cmp(other)) else {
            return;
        };
        self.kept.insert(at, pass);
        if self.kept.len() > self.room {
            self.kept.remove(0);
            self.are_more = true;
        }
    }

    pub(super) fn withdraw(&mut self, partition: usize) {
        self.kept.retain(|pass| pass.2 != partition);
    }

    /// Is the best one among those that are not kept?
    pub(super) fn are_used_up(&self) -> bool {
        self.kept.is_empty() && self.are_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_all_is_found_until_none_is_left() {
        let all: Vec<Handover> = (0..300)
            .map(|p| ((p * 7 % 10) as i64, p as u32, p))
            .collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        let mut left = all.clone();
        let mut passes = BestPasses::between(3);
        all.iter().for_each(|pass| passes.offer(*pass));
        all.iter().for_each(|pass| passes.offer(*pass));
        for expected in sorted {
            if passes.are_used_up() {
                passes.choose(left.clone());
            }
            assert_eq!(passes.best(), expected);
            passes.withdraw(expected.2);
            left.retain(|pass| *pass != expected);
        }
        assert!(!passes.are_used_up());
        assert_eq!(passes.best(), NO_HANDOVER);
    }

    #[test]
    fn a_pass_that_is_worse_than_one_left_out_is_left_out_too() {
        let mut passes = BestPasses::between(3);
        passes.choose((0..100).map(|p| (p as i64, 0, p)).collect());
        (0..ROOM_MAX - 1).for_each(|p| passes.withdraw(p));
        passes.offer((80, 0, 200));
        passes.withdraw(ROOM_MAX - 1);
        assert!(passes.are_used_up(), "64 comes before 80");
    }
}
