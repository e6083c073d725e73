//! The bytes that each member has loaded for the plan under way.
//!
//! ```text
//! told   plan –: 700, 700   plan 5: 740, 790   new process: 20, 60    plan –: 60    plan 9: 75
//! loaded         –                   40,  90               20, 60            –             15
//! ```
//!
//! Invariants
//! 1. A member tells all bytes since its process started. The last count of before a plan is the
//!    plan's beginning, or else the first count in it.
//! 2. A count that falls is that of a new process, which loads its positions from their beginnings.
//!
//! Not here: bytes a second (`LoadMeter`), the bytes that a move copies (`draft.rs`).

use crate::ring::table::MemberId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct LoadCount {
    before: u64,
    now: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PlanLoads {
    plan: Option<u64>,
    by_member: BTreeMap<MemberId, LoadCount>,
    /// When a count rose last.
    risen_us: u64,
}

impl PlanLoads {
    /// `member` told its count while this plan was under way.
    pub(super) fn told(
        &mut self,
        plan: Option<u64>,
        (member, loaded_bytes): (MemberId, u64),
        now_us: u64,
    ) {
        if self.plan != plan {
            self.plan = plan;
            for count in self.by_member.values_mut() {
                count.before = count.now;
            }
        }
        let count = self.by_member.entry(member).or_insert(LoadCount {
            before: loaded_bytes,
            now: loaded_bytes,
        });
        if loaded_bytes < count.now {
            count.before = 0;
        }
        if loaded_bytes > count.now {
            self.risen_us = now_us;
        }
        count.now = loaded_bytes;
    }

    /// When a count rose last; 0 = never.
    pub(super) fn risen_us(&self) -> u64 {
        self.risen_us
    }

    /// Bytes that `member` has loaded for `plan`, as far as it told.
    pub(super) fn loaded(&self, plan: u64, member: MemberId) -> u64 {
        let count = self.by_member.get(&member);
        let count = count.filter(|_| self.plan == Some(plan));
        count.map_or(0, |count| count.now - count.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_counts_from_the_last_news_before_it_and_a_new_process_from_nothing() {
        let (mut loads, member) = (PlanLoads::default(), MemberId(4));
        loads.told(None, (member, 700), 1);
        assert_eq!(loads.loaded(5, member), 0, "no news in the plan");
        let told = [(740, 40), (790, 90), (20, 20), (60, 60)];
        for (count, loaded) in told {
            loads.told(Some(5), (member, count), 1);
            assert_eq!(loads.loaded(5, member), loaded, "at {count}");
        }
        assert_eq!(loads.loaded(5, MemberId(3)), 0, "it told nothing");
        loads.told(None, (member, 60), 1);
        loads.told(Some(9), (member, 75), 1);
        assert_eq!(loads.loaded(9, member), 15);
        assert_eq!(loads.loaded(5, member), 0, "that plan is over");
        loads.told(Some(9), (MemberId(3), 500), 1);
        loads.told(Some(9), (MemberId(3), 530), 1);
        assert_eq!(loads.loaded(9, MemberId(3)), 30);
    }
}
