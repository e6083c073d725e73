//! Troubles, operators and joiners of a search, drawn at any moment.
//!
//! Invariants
//! 1. At most one member is lost at a time, and only while no other change is under way.
//! 2. Every order is answered once, unless its member crashed.

use super::{Coming, Reached, Search, TICK_US, node_of};
use crate::town::url;
use dendra_ownership::Member;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::limits::CLUSTER_ORDER_US;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder, PlanWish};
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest};
use dendra_ownership::steward::step::StewardEvent;

impl Search {
    fn anyone(&mut self) -> MemberId {
        let at = self.prng.below(self.machines.len() as u64) as usize;
        *self.machines.keys().nth(at).expect("there are machines")
    }

    pub(super) fn trouble(&mut self) {
        if self.is_calm {
            return;
        }
        let pause_us = 200_000 + self.prng.below(2_000_000);
        self.at(pause_us, Coming::Trouble);
        let id = self.anyone();
        match self.prng.below(8) {
            0..6 => {
                self.crash(id);
                let rest_us = 20_000 + self.prng.below(3_000_000);
                self.at(rest_us, Coming::Start(id));
            }
            _ => {
                let newest = self.newest();
                let is_settled = newest.members().iter().all(|member| member.node != 0);
                // With a change under way the members that stay could be too few without it.
                let is_quiet = newest.plan().is_none()
                    && self.orders.is_empty()
                    && self.joiners.is_empty()
                    && newest.voters().len() >= 3;
                let is_only = !self.has_lost(&newest);
                if newest.voters().contains(&id) && is_only && is_settled && is_quiet {
                    self.drafts.clear();
                    self.crash(id);
                    if let Some(machine) = self.machines.get_mut(&id) {
                        machine.is_lost = true;
                    }
                    let number = 1_000 + self.prng.below(1_000);
                    let replaces = newest.member(id).map(|member| member.place.url.clone());
                    self.new_joiner(number, replaces);
                }
            }
        }
    }

    fn has_lost(&self, record: &EpochRecord) -> bool {
        let mut members = record.members().iter();
        members.any(|member| self.machines.get(&member.id).is_some_and(|m| m.is_lost))
    }

    fn new_joiner(&mut self, number: u64, replaces: Option<String>) {
        if self.joiners.contains_key(&number) {
            return;
        }
        let request = EnrolRequest {
            cluster: "search".to_owned(),
            node: node_of(number),
            place: Member::new(&url(number as u32)).expect("an address"),
            replaces,
        };
        self.joiners.insert(number, request);
        self.at(10_000, Coming::Joiner(number));
    }

    pub(super) fn join(&mut self, number: u64) {
        let Some(request) = self.joiners.get(&number).cloned() else {
            return;
        };
        self.at(300_000, Coming::Joiner(number));
        let host = self.anyone();
        self.tickets += 1;
        let ticket = self.tickets;
        self.tell(host, StewardEvent::Enrol { ticket, request });
    }

    pub(super) fn enrolled(&mut self, answer: EnrolAnswer) {
        match answer {
            EnrolAnswer::Enrolled { member, record } => {
                let node = record.member(member).map(|member| member.node);
                self.joiners.retain(|_, request| Some(request.node) != node);
                if !self.machines.contains_key(&member) {
                    self.reached.push(Reached::Join);
                    self.settle(member, node.unwrap_or_default(), &record);
                }
            }
            EnrolAnswer::Refused { .. } => self.reached.push(Reached::Refusal),
            EnrolAnswer::Wait { .. } => {}
        }
    }

    pub(super) fn order(&mut self) {
        let pause_us = 300_000 + self.prng.below(2_500_000);
        self.at(pause_us, Coming::Order);
        let newest = self.newest();
        let id = self.anyone();
        if self.is_calm {
            // No new orders, but a plan that waits for a member that is lost for ever is cancelled.
            let nodes: Vec<u128> = newest.members().iter().map(|member| member.node).collect();
            self.joiners
                .retain(|_, request| nodes.contains(&request.node));
            let moving = newest.owners().all().filter_map(|p| newest.moving(p));
            let mut targets = moving.filter_map(|step| step.moving.to);
            if targets.any(|to| self.machines.get(&to).is_none_or(|m| m.is_lost)) {
                self.place(id, ClusterOrder::Cancel);
            }
            return;
        }
        if self.has_lost(&newest) {
            // Its replacement first: a further change could leave no majority.
            return;
        }
        if let Some((maker, draft)) = self.drafts.pop() {
            return self.place(maker, draft);
        }
        let members = newest.members();
        let one = &members[self.prng.below(members.len() as u64) as usize];
        let one = one.place.url.clone();
        let wish = PlanWish::default();
        let order = match self.prng.below(10) {
            0..3 => ClusterOrder::Plan(PlanWish {
                remove: vec![one],
                ..wish
            }),
            3 => ClusterOrder::Plan(PlanWish {
                weights: vec![(one, 1 + self.prng.below(3) as u16)],
                ..wish
            }),
            4 => ClusterOrder::Plan(PlanWish {
                replication_factor: Some(2 + self.prng.below(3) as u8),
                ..wish
            }),
            5 => ClusterOrder::Cancel,
            6 => ClusterOrder::Rekey,
            7 => {
                let to = format!("http://x{}:1", self.prng.below(1 << 30));
                ClusterOrder::Readdress { from: one, to }
            }
            _ => {
                let number = 100 + self.prng.below(900);
                if members.len() < 7 {
                    self.new_joiner(number, None);
                }
                return;
            }
        };
        self.place(id, order);
    }

    fn place(&mut self, id: MemberId, order: ClusterOrder) {
        if self.machines[&id].steward.is_none() {
            return;
        }
        self.tickets += 1;
        let ticket = self.tickets;
        let due_us = self.now_us + CLUSTER_ORDER_US + 4 * TICK_US;
        self.orders.insert(ticket, (id, due_us));
        self.tell(id, StewardEvent::Ordered { ticket, order });
    }

    pub(super) fn answered(&mut self, id: MemberId, ticket: u64, answer: ClusterAnswer) {
        if self.orders.remove(&ticket).is_none() {
            self.fail(format!("{id} answers order {ticket} twice"));
        }
        match answer {
            ClusterAnswer::Planned(draft) => {
                let draft = draft.id;
                self.drafts.push((id, ClusterOrder::Apply { draft }));
            }
            ClusterAnswer::Declined(why) => {
                self.reached.push(Reached::Refusal);
                assert!(!why.code().is_empty() && why.to_string().len() > 20);
            }
            _ => {}
        }
    }
}
