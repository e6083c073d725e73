//! Which members get which partitions: the cheapest table in which each member has its share.
//!
//! ```text
//! 1. every partition takes its cheapest members                  no member depends on another
//! 2. a member with too much passes a partition on, along the     h1 ─17─► h4 ─203─► h2
//!    cheapest chain of passes that ends where there is room
//! ```
//!
//! Step 2 is the successive shortest path method for transport problems. Its table is the cheapest
//! of all that keep the bounds, in any order of the steps. One new member changes few costs, so the
//! cheapest table changes little; there is no history to remember.
//!
//! Invariants
//! 1. Every partition keeps its number of members, all of them allowed, and the rounds over the
//!    zones.
//! 2. A member outside its bounds came closer to them or stayed, and no member left its bounds.
//!
//! Not here: the bounds (`shares.rs`), the costs (`costs.rs`).
//! See: Ahuja, Magnanti and Orlin, "Network Flows", 1993, section 9.7.

use std::ops::RangeInclusive;

/// A set of members, one bit each.
pub(super) type Members = u128;

const _: () = assert!(crate::limits::MEMBERS_MAX <= 128, "a bit for each member");

const NOBODY: usize = usize::MAX;

/// The members in a set, smallest first.
pub(super) fn each(mut members: Members) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let member = members.trailing_zeros() as usize;
        (members != 0).then(|| {
            members &= members - 1;
            member
        })
    })
}

/// The costs and bounds to choose from.
pub(super) struct Problem<'a> {
    /// By member, then by partition.
    pub(super) costs: &'a [Vec<i64>],
    /// By member.
    pub(super) zones: &'a [usize],
    /// By partition: the members that may have it.
    pub(super) allowed: &'a [Members],
    /// By member: how many partitions it should have.
    pub(super) bounds: &'a [RangeInclusive<usize>],
    /// Members per partition.
    pub(super) copies: usize,
}

/// The cheapest way to pass a partition on from one member to another.
#[derive(Clone, Copy)]
struct PartitionPass {
    cost: i64,
    partition: usize,
}

const NO_PASS: PartitionPass = PartitionPass {
    cost: i64::MAX,
    partition: usize::MAX,
};

struct PassChoice<'a> {
    problem: &'a Problem<'a>,
    chosen: Vec<Members>,
    /// By member: its partitions.
    held: Vec<Vec<usize>>,
    /// From member `i` to member `j`, at `i * members + j`.
    passes: Vec<PartitionPass>,
}

/// Which members get each partition.
pub(super) fn choose(problem: &Problem<'_>) -> Vec<Members> {
    let mut choice = PassChoice::natural(problem);
    // Every chain brings one member one step closer, so there are not more of them than copies. The
    // bound is for chains that had to be cut.
    let chains_max = 2 * problem.copies * problem.allowed.len();
    for _ in 0..chains_max {
        let chain = choice.cheapest_chain(BrokenBound::TooMuch);
        let Some(chain) = chain.or_else(|| choice.cheapest_chain(BrokenBound::TooLittle)) else {
            break;
        };
        choice.apply(&chain);
    }
    choice.chosen
}

/// The cheapest members of `allowed`, dealt in rounds over the zones.
pub(super) fn dealt(
    allowed: Members,
    taken: Members,
    costs: &[Vec<i64>],
    zones: &[usize],
    partition: usize,
) -> Vec<usize> {
    let mut order: Vec<usize> = each(allowed & !taken).collect();
    order.sort_by_key(|&member| (costs[member][partition], member));
    let mut rounds = vec![0; zones.len()];
    for member in each(taken) {
        rounds[zones[member]] += 1;
    }
    let mut keyed: Vec<(usize, usize)> = order
        .into_iter()
        .map(|member| {
            let round = &mut rounds[zones[member]];
            *round += 1;
            (*round, member)
        })
        .collect();
    keyed.sort_by_key(|(round, _)| *round);
    keyed.into_iter().map(|(_, member)| member).collect()
}

/// Which bound does not hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BrokenBound {
    TooMuch,
    TooLittle,
}

impl<'a> PassChoice<'a> {
    fn natural(problem: &'a Problem<'a>) -> PassChoice<'a> {
        let members = problem.costs.len();
        let mut held = vec![Vec::new(); members];
        let mut chosen = Vec::with_capacity(problem.allowed.len());
        for (partition, &allowed) in problem.allowed.iter().enumerate() {
            let order = dealt(allowed, 0, problem.costs, problem.zones, partition);
            let mut set = 0;
            for &member in &order[..problem.copies] {
                set |= 1 << member;
                held[member].push(partition);
            }
            chosen.push(set);
        }
        let mut choice = PassChoice {
            problem,
            chosen,
            held,
            passes: vec![NO_PASS; members * members],
        };
        let is_needed = (0..members).any(|member| choice.has(member, BrokenBound::TooMuch))
            || (0..members).any(|member| choice.has(member, BrokenBound::TooLittle));
        if is_needed {
            for partition in 0..problem.allowed.len() {
                choice.offer(partition);
            }
        }
        choice
    }

    fn has(&self, member: usize, wrong: BrokenBound) -> bool {
        let (held, bounds) = (self.held[member].len(), &self.problem.bounds[member]);
        match wrong {
            BrokenBound::TooMuch => held > *bounds.end(),
            BrokenBound::TooLittle => held < *bounds.start(),
        }
    }

    /// Members that `giver` may pass the partition on to.
    fn takers(&self, partition: usize, giver: usize) -> Members {
        let zones = self.problem.zones;
        let set = self.chosen[partition];
        let count = |zone: usize| each(set).filter(|&member| zones[member] == zone).count();
        let last = each(set).map(|member| count(zones[member])).max();
        let last = last.expect("a partition has a member");
        let free = self.problem.allowed[partition] & !set;
        let is_last = count(zones[giver]) == last;
        let mut takers = 0;
        for taker in each(free) {
            let is_same = zones[taker] == zones[giver];
            if is_same || (is_last && count(zones[taker]) + 1 == last) {
                takers |= 1 << taker;
            }
        }
        takers
    }

    /// Considers the partition for the cheapest passes of its owners.
    fn offer(&mut self, partition: usize) {
        let members = self.held.len();
        for giver in each(self.chosen[partition]) {
            for taker in each(self.takers(partition, giver)) {
                let cost = self.cost(partition, giver, taker);
                let pass = &mut self.passes[giver * members + taker];
                if (cost, partition) < (pass.cost, pass.partition) {
                    *pass = PartitionPass { cost, partition };
                }
            }
        }
    }

    fn cost(&self, partition: usize, giver: usize, taker: usize) -> i64 {
        self.problem.costs[taker][partition] - self.problem.costs[giver][partition]
    }

    /// Finds the passes of `giver` anew that went by the partition.
    fn withdraw(&mut self, partition: usize, giver: usize) {
        let members = self.held.len();
        let stale = (0..members)
            .filter(|taker| self.passes[giver * members + taker].partition == partition)
            .fold(0, |stale: Members, taker| stale | 1 << taker);
        if stale == 0 {
            return;
        }
        for taker in each(stale) {
            self.passes[giver * members + taker] = NO_PASS;
        }
        for i in 0..self.held[giver].len() {
            let other = self.held[giver][i];
            for taker in each(self.takers(other, giver) & stale) {
                let cost = self.cost(other, giver, taker);
                let pass = &mut self.passes[giver * members + taker];
                if (cost, other) < (pass.cost, pass.partition) {
                    *pass = PartitionPass {
                        cost,
                        partition: other,
                    };
                }
            }
        }
    }

    /// From members with something wrong to a member with room, or from members that can spare one
    /// to a member that lacks one.
    fn cheapest_chain(&self, wrong: BrokenBound) -> Option<Vec<usize>> {
        let members = self.held.len();
        if !(0..members).any(|member| self.has(member, wrong)) {
            return None;
        }
        let is_start = |member: usize| match wrong {
            BrokenBound::TooMuch => self.has(member, BrokenBound::TooMuch),
            BrokenBound::TooLittle => {
                self.held[member].len() > *self.problem.bounds[member].start()
            }
        };
        let is_end = |member: usize| match wrong {
            BrokenBound::TooMuch => self.held[member].len() < *self.problem.bounds[member].end(),
            BrokenBound::TooLittle => self.has(member, BrokenBound::TooLittle),
        };
        let mut cost = vec![i64::MAX; members];
        let mut before = vec![NOBODY; members];
        let mut changed: Members = 0;
        for member in (0..members).filter(|&member| is_start(member)) {
            cost[member] = 0;
            changed |= 1 << member;
        }
        // Bellman and Ford. Passes that undo earlier ones have negative costs, and no circle of
        // passes is negative as long as the table is the cheapest. The bound is for circles that
        // were cut.
        for _ in 0..members {
            if changed == 0 {
                break;
            }
            for giver in each(std::mem::take(&mut changed)) {
                let passes = &self.passes[giver * members..][..members];
                for (taker, pass) in passes.iter().enumerate() {
                    if pass.partition != NO_PASS.partition && cost[giver] + pass.cost < cost[taker]
                    {
                        cost[taker] = cost[giver] + pass.cost;
                        before[taker] = giver;
                        changed |= 1 << taker;
                    }
                }
            }
        }
        let ends = (0..members).filter(|&member| is_end(member) && before[member] != NOBODY);
        let end = ends.min_by_key(|&member| (cost[member], member))?;
        let mut chain = vec![end];
        let mut at = end;
        while before[at] != NOBODY {
            at = before[at];
            if chain.contains(&at) {
                return None;
            }
            chain.push(at);
        }
        chain.reverse();
        Some(chain)
    }

    /// Passes along the chain. Two passes of one partition may forbid each other by their zones:
    /// then the chain ends early, and the next one begins where it did.
    fn apply(&mut self, chain: &[usize]) {
        let members = self.held.len();
        let planned: Vec<(usize, usize, usize)> = chain
            .windows(2)
            .map(|step| {
                let pass = self.passes[step[0] * members + step[1]];
                (pass.partition, step[0], step[1])
            })
            .collect();
        for (partition, giver, taker) in planned {
            if self.takers(partition, giver) >> taker & 1 == 0 {
                return;
            }
            let before = self.chosen[partition];
            self.chosen[partition] = before & !(1 << giver) | 1 << taker;
            self.held[giver].retain(|&held| held != partition);
            self.held[taker].push(partition);
            for member in each(before) {
                self.withdraw(partition, member);
            }
            self.offer(partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTITIONS: usize = 5;
    const MEMBERS: usize = 4;

    /// All tables, one partition after the other: the cost of the cheapest that keeps the bounds.
    fn cheapest(problem: &Problem<'_>, table: &mut Vec<Members>) -> Option<i64> {
        if table.len() == problem.allowed.len() {
            let load = |member: usize| table.iter().filter(|set| **set >> member & 1 == 1).count();
            let is_kept = (0..MEMBERS).all(|member| problem.bounds[member].contains(&load(member)));
            return is_kept.then(|| total(problem, table));
        }
        let mut best = None;
        for set in 0..(1 as Members) << MEMBERS {
            let is_legal = |set: Members| {
                let mut zones: Vec<usize> = each(set).map(|member| problem.zones[member]).collect();
                zones.sort_unstable();
                zones.dedup();
                zones.len() == problem.copies
            };
            if set.count_ones() as usize == problem.copies && is_legal(set) {
                table.push(set);
                let cost = cheapest(problem, table);
                table.pop();
                best = [best, cost].into_iter().flatten().min();
            }
        }
        best
    }

    fn total(problem: &Problem<'_>, table: &[Members]) -> i64 {
        let of = |(partition, set): (usize, &Members)| -> i64 {
            each(*set)
                .map(|member| problem.costs[member][partition])
                .sum()
        };
        table.iter().enumerate().map(of).sum()
    }

    proptest! {
        #[test]
        fn no_table_within_the_bounds_is_cheaper(
            costs in proptest::collection::vec(
                proptest::collection::vec(0i64..1000, PARTITIONS),
                MEMBERS,
            ),
            copies in 1usize..3, is_paired: bool, slack in 0usize..2,
        ) {
            let zones: &[usize] = if is_paired { &[0, 0, 1, 2] } else { &[0, 1, 2, 3] };
            let share = PARTITIONS * copies / MEMBERS;
            let problem = Problem {
                costs: &costs,
                zones,
                allowed: &[(1 << MEMBERS) - 1; PARTITIONS],
                bounds: &vec![share.saturating_sub(slack)..=share + 1; MEMBERS],
                copies,
            };
            let chosen = choose(&problem);
            let best = cheapest(&problem, &mut Vec::new()).expect("there is one");
            prop_assert_eq!(total(&problem, &chosen), best);
            for member in 0..MEMBERS {
                let load = chosen.iter().filter(|set| **set >> member & 1 == 1).count();
                prop_assert!(problem.bounds[member].contains(&load));
            }
        }
    }
}
