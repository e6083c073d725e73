//! Which position a new owner of a partition takes, so that first owners are spread as well.
//!
//! ```text
//! owners      17: h3 h1 h7   ─►  17: h3 h9 h7        h9 comes, h1 goes: h9 has position 1
//! evened      the same number of copies, other partitions:
//!             h1 passes 203 on instead of 17, where it is first        17: h3 h1 h7   203: h9 h4 h2
//!             two new owners change places
//! ```
//!
//! Owners keep their positions, so that the first owners of a record with fewer copies stay. So the
//! first owners can only be evened by moves that a plan has anyway: there is a best effort, and no
//! bound.
//!
//! Invariants
//! 1. No change adds a copy, or breaks the demands of zones or shares on all copies.
//! 2. Every exchange makes the table more even, and each look at one has a bound.
//!
//! Not here: how many copies move, and between which members (`exchange/`).

use super::wanted::{CopyLevel, Owners};
use crate::ring::choice::{Members, each};
use crate::ring::quotas::ONE;
use crate::ring::shares::Rounds;
use crate::ring::table::MemberId;

/// Exchanges that are tried for one change in one pass.
const LOOKS_MAX: usize = 64;
/// Passes over all changes.
const PASSES_MAX: usize = 4;
/// The cost of one zone too much, or one too few, among the first owners. A member that is four
/// partitions off its share costs as much.
const ZONE: i64 = 4096;
/// A member's distance from its share is squared in sixteenths of a partition.
const SIXTEENTH: i64 = (ONE / 16) as i64;

/// A position that gets another owner, by its place among [`Owners`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewOwner {
    pub(super) position: usize,
    pub(super) to: usize,
}

/// By partition: the changes of its positions.
pub(super) struct NewOwners(Vec<Vec<NewOwner>>);

impl NewOwners {
    /// In the order of the positions.
    pub(super) fn of(&self, partition: usize) -> &[NewOwner] {
        &self.0[partition]
    }
}

/// The partitions before and after.
pub(super) struct Rows<'a> {
    pub(super) owners: &'a Owners,
    /// By partition: its owners, without positions that are taken away.
    pub(super) before: &'a [Vec<MemberId>],
    /// By partition: those of them that can stay.
    pub(super) kept: &'a [Members],
    /// By partition: its owners afterwards.
    pub(super) sets: &'a [Members],
    pub(super) rounds: &'a Rounds,
    pub(super) copies: usize,
}

/// Gives each new owner a position that its partition has free, then evens the first owners.
pub(super) fn positions(rows: &Rows<'_>) -> NewOwners {
    let mut evening = Balancing::new(rows);
    if rows.copies > 1 {
        evening.run();
    }
    for changes in &mut evening.changes {
        changes.sort_by_key(|change| change.position);
    }
    NewOwners(evening.changes)
}

struct Balancing<'a> {
    rows: &'a Rows<'a>,
    /// By partition: its owners in their order, afterwards.
    after: Vec<Vec<usize>>,
    changes: Vec<Vec<NewOwner>>,
    /// For 1, 2, … copies, below the number of all copies.
    levels: Vec<CopyLevel>,
    /// By level, by member: how many partitions it is among the first owners of.
    loads: Vec<Vec<i64>>,
}

impl<'a> Balancing<'a> {
    fn new(rows: &'a Rows<'a>) -> Balancing<'a> {
        let partitions = rows.before.len();
        let members = rows.owners.ids.len();
        let mut evening = Balancing {
            rows,
            after: Vec::with_capacity(partitions),
            changes: Vec::with_capacity(partitions),
            levels: (1..rows.copies)
                .map(|copies| CopyLevel::new(rows.owners, copies, partitions))
                .collect(),
            loads: vec![vec![0; members]; rows.copies - 1],
        };
        for (partition, before) in rows.before.iter().enumerate() {
            let mut new = each(rows.sets[partition] & !rows.kept[partition]);
            let (mut after, mut changes) = (Vec::with_capacity(rows.copies), Vec::new());
            for position in 0..rows.copies {
                let owner = before.get(position).and_then(|id| rows.owners.at(*id));
                let owner = owner.filter(|owner| rows.sets[partition] >> owner & 1 == 1);
                after.push(owner.unwrap_or_else(|| {
                    let to = new.next().expect("as many new owners as free positions");
                    changes.push(NewOwner { position, to });
                    to
                }));
            }
            for (level, loads) in evening.loads.iter_mut().enumerate() {
                for owner in &after[..=level] {
                    loads[*owner] += 1;
                }
            }
            evening.after.push(after);
            evening.changes.push(changes);
        }
        evening
    }

    fn run(&mut self) {
        for _ in 0..PASSES_MAX {
            let mut all = Vec::new();
            let mut quiet = vec![Vec::new(); self.rows.owners.ids.len()];
            for (partition, changes) in self.changes.iter().enumerate() {
                all.extend(changes.iter().map(|change| (partition, *change)));
                if changes.is_empty() {
                    for owner in &self.after[partition] {
                        quiet[*owner].push(partition);
                    }
                }
            }
            let mut is_better = false;
            for at in 0..all.len() {
                let change = all[at];
                is_better |= self.pass_another(change, at, &quiet);
                for other in all.iter().skip(at + 1).take(LOOKS_MAX) {
                    is_better |= self.change_places(change, *other);
                }
            }
            if !is_better {
                return;
            }
        }
    }

    /// Does the change still stand? Exchanges replace changes while a pass goes on.
    fn stands(&self, (partition, change): (usize, NewOwner)) -> bool {
        self.changes[partition].contains(&change)
    }

    /// The member that would have kept the position passes another partition on to the same taker.
    fn pass_another(
        &mut self,
        (partition, change): (usize, NewOwner),
        look: usize,
        quiet: &[Vec<usize>],
    ) -> bool {
        let before = self.rows.before[partition].get(change.position);
        let Some(giver) = before.and_then(|id| self.rows.owners.at(*id)) else {
            return false;
        };
        if !self.stands((partition, change)) {
            return false;
        }
        let others = &quiet[giver];
        for i in 0..others.len().min(LOOKS_MAX) {
            let other = others[(i + look) % others.len()];
            let place = self.after[other].iter().position(|owner| *owner == giver);
            let is_new = self.rows.kept[other] >> change.to & 1 == 0;
            let (true, true, Some(place)) = (self.changes[other].is_empty(), is_new, place) else {
                continue;
            };
            let cost =
                self.put(partition, change.position, giver) + self.put(other, place, change.to);
            if cost < 0 && self.is_spread(partition) && self.is_spread(other) {
                self.changes[partition].retain(|c| *c != change);
                self.changes[other].push(NewOwner {
                    position: place,
                    to: change.to,
                });
                return true;
            }
            self.put(other, place, giver);
            self.put(partition, change.position, change.to);
        }
        false
    }

    /// Two new owners take each other's positions.
    fn change_places(&mut self, first: (usize, NewOwner), second: (usize, NewOwner)) -> bool {
        let ((p, one), (q, two)) = (first, second);
        let is_free = |partition: usize, member: usize| {
            let is_kept = self.rows.kept[partition] >> member & 1 == 1;
            !is_kept && !self.after[partition].contains(&member)
        };
        let may = p == q || (is_free(p, two.to) && is_free(q, one.to));
        if !may || one.to == two.to || !self.stands(first) || !self.stands(second) {
            return false;
        }
        let cost = self.put(p, one.position, two.to) + self.put(q, two.position, one.to);
        if cost < 0 && self.is_spread(p) && self.is_spread(q) {
            for (partition, old, to) in [(p, one, two.to), (q, two, one.to)] {
                let change = self.changes[partition].iter_mut().find(|c| **c == old);
                change.expect("the change stands").to = to;
            }
            return true;
        }
        self.put(q, two.position, two.to);
        self.put(p, one.position, one.to);
        false
    }

    /// Gives the position to the member; how much less even the first owners are then.
    fn put(&mut self, partition: usize, position: usize, to: usize) -> i64 {
        let mut cost = -self.zone_cost(partition);
        let from = std::mem::replace(&mut self.after[partition][position], to);
        cost += self.zone_cost(partition);
        for level in position..self.levels.len() {
            cost -= self.off(level, from) + self.off(level, to);
            self.loads[level][from] -= 1;
            self.loads[level][to] += 1;
            cost += self.off(level, from) + self.off(level, to);
        }
        cost
    }

    /// How far the member is from its share of the first owners, squared.
    fn off(&self, level: usize, member: usize) -> i64 {
        let quota = self.levels[level].quotas[member] as i64 / SIXTEENTH;
        let off = self.loads[level][member] * 16 - quota;
        off * off
    }

    fn zone_cost(&self, partition: usize) -> i64 {
        let levels = self.levels.iter().enumerate();
        let cost =
            |(level, of): (usize, &CopyLevel)| self.outside(partition, level + 1, &of.rounds);
        ZONE * levels.map(cost).sum::<usize>() as i64
    }

    /// Are all copies of the partition in as many zones as can be?
    fn is_spread(&self, partition: usize) -> bool {
        self.outside(partition, self.rows.copies, self.rows.rounds) == 0
    }

    fn outside(&self, partition: usize, copies: usize, rounds: &Rounds) -> usize {
        let first = &self.after[partition][..copies];
        let zone_of = |owner: &usize| self.rows.owners.zones[*owner];
        let mut most_off = 0;
        for (at, owner) in first.iter().enumerate() {
            let zone = zone_of(owner);
            let before = first[..at].iter().filter(|o| zone_of(o) == zone).count();
            // A copy too many in one zone is a copy too few in another: one of them is enough.
            most_off += usize::from(before >= rounds.most(zone));
        }
        if rounds.last > 1 {
            for zone in 0..self.rows.owners.sizes.len() {
                let count = first.iter().filter(|o| zone_of(o) == zone).count();
                most_off += rounds.least(zone).saturating_sub(count);
            }
        }
        most_off
    }
}
