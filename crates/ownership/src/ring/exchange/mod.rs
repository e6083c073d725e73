//! The fewest copies that bring a table within its bounds.
//!
//! ```text
//! 1. every partition keeps its owners               no copy moves
//! 2. free places are filled                         where most is missing
//! 3. while there is a cheaper circle: take it       h1 ─17─► h4 ─203─► h2, h1 has one less
//! ```
//!
//! A table is a flow from partitions through their zones to members. A step outside a bound costs
//! far more than a copy, and costs are convex. So a table without a cheaper circle of passes is one
//! of the cheapest there are (Klein's method). A table within all bounds exists, so the cheapest
//! one is within all bounds, and of those it moves the fewest copies. Of several such tables the
//! chosen one has its members nearest to their shares: it leaves the least to the next change.
//!
//! A circle goes over members only, each pass by the best partition for it. Two passes of one
//! partition may forbid each other. Then the circle is parted into two circles, one of which is
//! cheaper.
//!
//! Invariants
//! 1. Every partition has `copies` owners after step 2, and keeps them.
//! 2. Each circle that is taken makes the table cheaper, so that the steps come to an end.
//! 3. Ties are broken by a fixed hash: the same input gives the same table everywhere.
//!
//! Not here: the bounds (`quotas.rs`), positions and their order (`plan/`).
//! See: Ahuja, Magnanti and Orlin, "Network Flows", 1993, sections 9.6 and 14.3.

mod passes;

use super::choice::{Members, each};
use super::quotas::ONE;
use super::shares::Rounds;
use passes::{BestPasses, Handover};
use std::ops::RangeInclusive;

/// The cost of a copy that moves: more than all members together can be off their shares within
/// their bounds.
const MOVED: i64 = 1 << 26;
/// The cost of one step outside a bound: more than all copies of a table.
const OUTSIDE: i64 = MOVED << 22;
/// A member's distance from its share is squared in quarters of a partition.
const QUARTER: u64 = ONE / 4;

/// The owners to keep, and the bounds.
pub(super) struct FlowProblem<'a> {
    /// By partition: the owners that need not move. At most `copies`.
    pub(super) kept: &'a [Members],
    /// By member.
    pub(super) zones: &'a [usize],
    /// How many copies of a partition a zone may have.
    pub(super) rounds: &'a Rounds,
    /// By member: how many partitions it should have.
    pub(super) bounds: &'a [RangeInclusive<usize>],
    /// By member: its share, for the first filling.
    pub(super) quotas: &'a [u64],
    /// Members per partition.
    pub(super) copies: usize,
}

/// One step of a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircleStep {
    /// `giver` passes the partition on to `taker`.
    Pass {
        giver: usize,
        taker: usize,
        partition: usize,
    },
    /// The member that got one more keeps it, and the other one has one less.
    Load { more: usize, less: usize },
}

struct Exchange<'a> {
    problem: &'a FlowProblem<'a>,
    sets: Vec<Members>,
    /// By member: how many partitions it has.
    held: Vec<usize>,
    /// Copies of partition `p` in zone `z`, at `p * zones_len + z`.
    in_zone: Vec<u8>,
    zones_len: usize,
    /// From member `i` to member `j`, at `i * members + j`.
    passes: Vec<BestPasses>,
}

/// The owners of each partition: within all bounds, with as few new ones as there can be.
pub(super) fn fewest(problem: &FlowProblem<'_>) -> Vec<Members> {
    let mut exchange = Exchange::kept(problem);
    exchange.fill();
    exchange.offer_all();
    while let Some(circle) = exchange.cheaper_circle() {
        let is_cheaper = exchange.take(&circle);
        assert!(is_cheaper, "a part of a cheaper circle is cheaper");
    }
    exchange.sets
}

/// Copies that any table within the bounds has to move. Members below their bounds lack some;
/// members above them and free places pass some on. The larger number counts, zone by zone, with
/// the demands of its rounds.
pub(super) fn necessary(problem: &FlowProblem<'_>) -> usize {
    let kept = Exchange::kept(problem);
    let load = |member: usize| kept.held[member];
    let (mut arrive, mut leave) = (0, 0);
    for zone in 0..kept.zones_len {
        let (mut under, mut over, mut lack, mut excess) = (0, 0, 0, 0);
        for member in (0..kept.held.len()).filter(|m| problem.zones[*m] == zone) {
            under += problem.bounds[member].start().saturating_sub(load(member));
            over += load(member).saturating_sub(*problem.bounds[member].end());
        }
        for partition in 0..kept.sets.len() {
            let count = usize::from(kept.in_zone[partition * kept.zones_len + zone]);
            lack += problem.rounds.least(zone).saturating_sub(count);
            excess += count.saturating_sub(problem.rounds.most(zone));
        }
        arrive += under.max(lack);
        leave += over.max(excess);
    }
    let free: usize = problem
        .kept
        .iter()
        .map(|kept_by| problem.copies - kept_by.count_ones() as usize)
        .sum();
    arrive.max(leave + free)
}

/// How far `count` is outside.
fn outside(count: usize, least: usize, most: usize) -> i64 {
    (least.saturating_sub(count) + count.saturating_sub(most)) as i64
}

/// A place among equals that no order of names or numbers decides.
fn mixed(partition: usize, member: usize) -> u32 {
    let seed = (partition as u64) << 8 | member as u64;
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits ^ bits >> 29) as u32
}

impl<'a> Exchange<'a> {
    fn kept(problem: &'a FlowProblem<'a>) -> Exchange<'a> {
        let members = problem.zones.len();
        let zones_len = problem.zones.iter().max().map_or(0, |most| most + 1);
        let mut exchange = Exchange {
            problem,
            sets: vec![0; problem.kept.len()],
            held: vec![0; members],
            in_zone: vec![0; problem.kept.len() * zones_len],
            zones_len,
            passes: vec![BestPasses::between(members); members * members],
        };
        for (partition, kept) in problem.kept.iter().enumerate() {
            for member in each(*kept) {
                exchange.give(partition, member);
            }
        }
        exchange
    }

    fn give(&mut self, partition: usize, taker: usize) {
        self.sets[partition] |= 1 << taker;
        self.held[taker] += 1;
        self.in_zone[partition * self.zones_len + self.problem.zones[taker]] += 1;
    }

    fn take_back(&mut self, partition: usize, giver: usize) {
        self.sets[partition] &= !(1 << giver);
        self.held[giver] -= 1;
        self.in_zone[partition * self.zones_len + self.problem.zones[giver]] -= 1;
    }

    /// The cost of the zone's copies of the partition, with `change` more of them.
    fn zone_cost(&self, partition: usize, zone: usize, change: isize) -> i64 {
        let count = usize::from(self.in_zone[partition * self.zones_len + zone]);
        let rounds = self.problem.rounds;
        let count = count.saturating_add_signed(change);
        OUTSIDE * outside(count, rounds.least(zone), rounds.most(zone))
    }

    /// The cost of the member's load, with `change` more partitions.
    fn load_cost(&self, member: usize, change: isize) -> i64 {
        let bounds = &self.problem.bounds[member];
        let load = self.held[member].saturating_add_signed(change);
        let off = (4 * load as i64) - (self.problem.quotas[member] / QUARTER) as i64;
        OUTSIDE * outside(load, *bounds.start(), *bounds.end()) + off * off
    }

    /// Steps 1 and 2 of the module: the member with the smallest part of its share gets a free
    /// place.
    fn fill(&mut self) {
        let members = self.held.len();
        for partition in 0..self.sets.len() {
            while (self.sets[partition].count_ones() as usize) < self.problem.copies {
                let free = (0..members).filter(|m| self.sets[partition] >> m & 1 == 0);
                let taker = free.min_by_key(|&member| {
                    let zone = self.problem.zones[member];
                    let zone_cost =
                        self.zone_cost(partition, zone, 1) - self.zone_cost(partition, zone, 0);
                    let load_cost = self.load_cost(member, 1) - self.load_cost(member, 0);
                    let load = (self.held[member] as u64) << 40;
                    let part = load / self.problem.quotas[member].max(1);
                    (zone_cost + load_cost, part, mixed(partition, member))
                });
                self.give(
                    partition,
                    taker.expect("there are not more copies than members"),
                );
            }
        }
    }

    fn offer_all(&mut self) {
        for partition in 0..self.sets.len() {
            self.offer(partition);
        }
    }

    fn has(&self, partition: usize, member: usize) -> bool {
        self.sets[partition] >> member & 1 == 1
    }

    /// How much more the table costs when the giver passes the partition on. Requires: the giver
    /// has it and the taker has it not.
    fn pass_cost(&self, partition: usize, giver: usize, taker: usize) -> i64 {
        let is_kept = |member: usize| (self.problem.kept[partition] >> member & 1) as i64;
        let (from, to) = (self.problem.zones[giver], self.problem.zones[taker]);
        let moved = MOVED * (is_kept(giver) - is_kept(taker));
        if from == to {
            return moved;
        }
        let leaves = self.zone_cost(partition, from, -1) - self.zone_cost(partition, from, 0);
        let comes = self.zone_cost(partition, to, 1) - self.zone_cost(partition, to, 0);
        moved + leaves + comes
    }

    /// The pass of the partition, as it is compared with others.
    fn pass(&self, partition: usize, giver: usize, taker: usize) -> Handover {
        let cost = self.pass_cost(partition, giver, taker);
        (cost, mixed(partition, taker), partition)
    }

    /// Considers the partition for the best passes of its owners.
    fn offer(&mut self, partition: usize) {
        for giver in each(self.sets[partition]) {
            for taker in 0..self.held.len() {
                if !self.has(partition, taker) {
                    let pass = self.pass(partition, giver, taker);
                    self.passes[giver * self.held.len() + taker].offer(pass);
                }
            }
        }
    }

    /// The partition is none of the best passes of `giver` any more.
    fn withdraw(&mut self, partition: usize, giver: usize) {
        let members = self.held.len();
        for taker in 0..members {
            let passes = &mut self.passes[giver * members + taker];
            passes.withdraw(partition);
            if passes.are_used_up() {
                let partitions = 0..self.sets.len();
                let can = partitions.filter(|p| self.has(*p, giver) && !self.has(*p, taker));
                let all = can.map(|p| self.pass(p, giver, taker)).collect();
                self.passes[giver * members + taker].choose(all);
            }
        }
    }

    /// A circle of passes that makes the table cheaper (Bellman and Ford; the last node stands for
    /// changes of loads).
    fn cheaper_circle(&self) -> Option<Vec<CircleStep>> {
        let members = self.held.len();
        let nodes = members + 1;
        let mut cost = vec![0i64; nodes];
        let mut before = vec![usize::MAX; nodes];
        let less: Vec<i64> = (0..members)
            .map(|m| match self.held[m] {
                0 => i64::MAX,
                _ => self.load_cost(m, -1) - self.load_cost(m, 0),
            })
            .collect();
        let more: Vec<i64> = (0..members)
            .map(|m| self.load_cost(m, 1) - self.load_cost(m, 0))
            .collect();
        let mut changed: Vec<bool> = vec![true; nodes];
        for _ in 0..=nodes {
            let mut is_changed = false;
            for from in 0..nodes {
                if !std::mem::replace(&mut changed[from], false) {
                    continue;
                }
                for to in (0..nodes).filter(|to| *to != from) {
                    let step = match (from == members, to == members) {
                        (true, _) => less[to],
                        (_, true) => more[from],
                        _ => self.passes[from * members + to].best().0,
                    };
                    if step != i64::MAX && cost[from] + step < cost[to] {
                        cost[to] = cost[from] + step;
                        before[to] = from;
                        changed[to] = true;
                        is_changed = true;
                    }
                }
            }
            if let Some(circle) = circle_in(&before) {
                return Some(self.steps(&circle));
            }
            if !is_changed {
                return None;
            }
        }
        None
    }

    /// The steps of a circle of nodes, each to the next and the last to the first.
    fn steps(&self, circle: &[usize]) -> Vec<CircleStep> {
        let members = self.held.len();
        let len = circle.len();
        let mut steps = Vec::with_capacity(len);
        for (at, &node) in circle.iter().enumerate() {
            let next = circle[(at + 1) % len];
            if node == members {
                let more = circle[(at + len - 1) % len];
                steps.push(CircleStep::Load { more, less: next });
            } else if next != members {
                let partition = self.passes[node * members + next].best().2;
                steps.push(CircleStep::Pass {
                    giver: node,
                    taker: next,
                    partition,
                });
            }
        }
        steps
    }

    /// Takes the circle, or the part of it that makes the table cheaper.
    fn take(&mut self, circle: &[CircleStep]) -> bool {
        if let Some(cost) = self.try_all(circle) {
            if cost < 0 {
                self.refresh(circle);
                return true;
            }
            self.undo(circle);
        }
        for (i, first) in circle.iter().enumerate() {
            for (j, second) in circle.iter().enumerate().skip(i + 1) {
                let Some((cross, back)) = parted(*first, *second) else {
                    continue;
                };
                let outer = circle[..i].iter().copied().chain(cross);
                let outer: Vec<CircleStep> = outer.chain(circle[j + 1..].iter().copied()).collect();
                let inner = back.into_iter().chain(circle[i + 1..j].iter().copied());
                let inner: Vec<CircleStep> = inner.collect();
                if self.take(&outer) || self.take(&inner) {
                    return true;
                }
            }
        }
        false
    }

    /// Takes all passes, and returns their cost; `None` leaves everything as it was.
    fn try_all(&mut self, circle: &[CircleStep]) -> Option<i64> {
        let mut cost = 0;
        for step in circle {
            if let CircleStep::Load { more, less } = *step
                && more != less
            {
                cost += self.load_cost(more, 1) - self.load_cost(more, 0);
                cost += self.load_cost(less, -1) - self.load_cost(less, 0);
            }
        }
        for (at, step) in circle.iter().enumerate() {
            let CircleStep::Pass {
                giver,
                taker,
                partition,
            } = *step
            else {
                continue;
            };
            if !self.has(partition, giver) || self.has(partition, taker) {
                self.undo(&circle[..at]);
                return None;
            }
            cost += self.pass_cost(partition, giver, taker);
            self.take_back(partition, giver);
            self.give(partition, taker);
        }
        Some(cost)
    }

    fn undo(&mut self, circle: &[CircleStep]) {
        for step in circle.iter().rev() {
            if let CircleStep::Pass {
                giver,
                taker,
                partition,
            } = *step
            {
                self.take_back(partition, taker);
                self.give(partition, giver);
            }
        }
    }

    /// Brings the best passes up to date after the partitions of the circle changed hands.
    fn refresh(&mut self, circle: &[CircleStep]) {
        let mut partitions: Vec<usize> = circle
            .iter()
            .filter_map(|step| match step {
                CircleStep::Pass { partition, .. } => Some(*partition),
                CircleStep::Load { .. } => None,
            })
            .collect();
        partitions.sort_unstable();
        partitions.dedup();
        for partition in partitions {
            let mut givers = self.sets[partition];
            for step in circle {
                if let CircleStep::Pass { giver, .. } = step {
                    givers |= 1 << giver;
                }
            }
            for giver in each(givers) {
                self.withdraw(partition, giver);
            }
            self.offer(partition);
        }
    }
}

/// The two passes that part a circle in two when it passes one partition on twice. One goes from
/// the first giver to the last taker, one from the last giver to the first taker. A pass to oneself
/// is none.
fn parted(
    first: CircleStep,
    second: CircleStep,
) -> Option<(Option<CircleStep>, Option<CircleStep>)> {
    match (first, second) {
        (
            CircleStep::Pass {
                giver,
                taker,
                partition,
            },
            CircleStep::Pass {
                giver: giver_after,
                taker: taker_after,
                partition: again,
            },
        ) if partition == again => {
            let pass = |from, to| {
                (from != to).then_some(CircleStep::Pass {
                    giver: from,
                    taker: to,
                    partition,
                })
            };
            Some((pass(giver, taker_after), pass(giver_after, taker)))
        }
        _ => None,
    }
}

/// A circle among the nodes that each came to be reached from `before`, in the order of the steps.
fn circle_in(before: &[usize]) -> Option<Vec<usize>> {
    let mut seen = vec![usize::MAX; before.len()];
    for start in 0..before.len() {
        let mut at = start;
        while at != usize::MAX && seen[at] == usize::MAX {
            seen[at] = start;
            at = before[at];
        }
        if at != usize::MAX && seen[at] == start {
            let mut circle = vec![at];
            let mut next = before[at];
            while next != at {
                circle.push(next);
                next = before[next];
            }
            circle.reverse();
            return Some(circle);
        }
    }
    None
}

#[cfg(test)]
mod tests;
