//! The operator: joins, leaves, replacements, weights, addresses, cancels, and the driver of plans.
//!
//! Invariants
//! 1. Every proposal is made by a legal function of a record that its proposer has.

use crate::world::World;
use dendra_ownership::epoch::chain::ChainEvent;
use dendra_ownership::epoch::drive::next_step;
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_ownership::ring::plan::{MovePlan, WantedMember, WantedMembers, plan, replacement};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::topology::Member;
use std::sync::Arc;

const SIDE_BY_SIDE: usize = 2;
/// More members than this do not join.
const MEMBERS_MAX: usize = 6;

fn now(record: &EpochRecord) -> WantedMembers {
    let members = record.members().iter().map(|member| WantedMember {
        id: member.id,
        weight: member.place.weight,
        zone: member.place.zone.clone(),
    });
    WantedMembers {
        members: members.collect(),
        replication_factor: record.replication_factor(),
        lost: Vec::new(),
    }
}

impl World {
    /// A driver at `member` looks at the plan, and the operator sometimes at the cluster.
    pub(crate) fn drive(&mut self, member: MemberId) {
        let Some((record, is_busy)) = self.state(member) else {
            return;
        };
        if is_busy && self.prng.chance(9, 10) {
            return;
        }
        let next = match record.plan() {
            Some(_) => self.carry_on(&record),
            None if self.is_calm => None,
            None => self.change(member, &record),
        };
        if let Some(record) = next {
            self.propose(member, record);
        }
    }

    fn propose(&mut self, member: MemberId, record: EpochRecord) {
        self.event(member, ChainEvent::Propose { record });
    }

    fn carry_on(&mut self, record: &Arc<EpochRecord>) -> Option<EpochRecord> {
        let is_stuck = {
            let owners = record.owners();
            let mut moving = owners.all().filter_map(|p| owners.moving(p));
            moving.any(|m| m.to.is_some_and(|to| self.is_lost(to)))
        };
        let is_wish = !self.is_calm && self.prng.chance(1, 25);
        if (is_stuck || is_wish) && record.plan().is_some_and(|plan| !plan.is_cancelled) {
            self.counts.cancels += 1;
            return record.cancelled().ok();
        }
        self.shrinks(record);
        next_step(record, &self.arrived, SIDE_BY_SIDE)
    }

    fn change(&mut self, member: MemberId, record: &Arc<EpochRecord>) -> Option<EpochRecord> {
        if let Some(unknown) = record.members().iter().find(|member| member.node == 0) {
            return record
                .enrolled(&[(unknown.id, self.node_of(unknown.id))])
                .ok();
        }
        let lost: Vec<MemberId> = self.lost_of(record);
        let new = record.owners().next();
        let mut wanted = now(record);
        let count = wanted.members.len();
        let draw = self.prng.below(6);
        let made: MovePlan = match draw {
            _ if !lost.is_empty() => replacement(record.owners(), lost[0], new, &lost).ok()?,
            0 | 1 if count < MEMBERS_MAX => {
                wanted.members.push(WantedMember {
                    id: new,
                    weight: 1,
                    zone: String::new(),
                });
                plan(record.owners(), &now(record), &wanted).ok()?
            }
            2 | 3 if count > 3 => {
                let at = self.prng.below(count as u64) as usize;
                wanted.members.remove(at);
                plan(record.owners(), &now(record), &wanted).ok()?
            }
            4 => {
                let at = self.prng.below(count as u64) as usize;
                let old = record.members()[at].id;
                replacement(record.owners(), old, new, &[]).ok()?
            }
            5 if self.prng.chance(1, 2) => {
                wanted.replication_factor = 3 + (record.replication_factor() % 2);
                plan(record.owners(), &now(record), &wanted).ok()?
            }
            _ => {
                let id = record.members()[self.prng.below(count as u64) as usize].id;
                let url = format!("http://m{}-{}:1", id.0, self.prng.below(1 << 20));
                return if self.prng.chance(1, 2) {
                    record.readdressed(id, &url).ok()
                } else {
                    record.rekeyed().ok()
                };
            }
        };
        match (made.joins.len(), made.leaves.len()) {
            (1, 0) => self.counts.joins += 1,
            (0, 1) => self.counts.leaves += 1,
            (1, 1) => self.counts.replacements += 1,
            _ => {}
        }
        let mut newcomers = Vec::new();
        for id in made.joins.clone() {
            newcomers.push(EpochMember {
                id,
                node: u128::from(self.prng.next_u64()) << 32 | u128::from(id.0 + 1),
                status: MemberStatus::Joining,
                place: Member::new(&format!("http://m{}:1", id.0)).expect("an address"),
            });
        }
        let new = NewPlan {
            author: member,
            moves: made,
            newcomers,
            shares: Vec::new(),
            replication_factor: wanted.replication_factor,
        };
        record.planned(&new).ok()
    }
}
