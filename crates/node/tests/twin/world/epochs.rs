//! Epochs of the twin: an oracle chooses them one after the other, and members learn them late.
//!
//! ```text
//! founded ─► enrolled ─► planned: one position of the key's partition moves ─► moved ─► moved ─► finished ─┐
//!                          ▲                                  └─► cancelled ─► finished                     │
//!                          └────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! In a cluster that is restored into, the least successor number rises instead, a little each
//! time. So rivals meet, and lines of proposals reach over the numbers that were left out.
//!
//! Not here: how members agree on an epoch (crate `ownership`, `tests/chain`).

use super::{What, World};
use dendra_base::{LeastSuccessor, Prng};
use dendra_node::Node;
use dendra_node::step::Event;
use dendra_ownership::confirmed::{Confirmed, next_floor};
use dendra_ownership::epoch::drive::{MoveArrived, next_step};
use dendra_ownership::epoch::record::{EpochRecord, NewPlan};
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::plan::MovePlan;
use dendra_ownership::ring::table::{MemberId, Move, Moving};
use dendra_ownership::{Layout, Topology};
use std::sync::Arc;

/// The chain, and the reports to the oracle.
pub(super) struct Epochs {
    records: Vec<EpochRecord>,
    arrived: Vec<MoveArrived>,
    /// Plans that ended.
    pub(super) ended: u64,
    /// The confirmation of the last epoch by each member; `None` where positions move.
    confirmed: Option<Vec<Option<Confirmed>>>,
    /// The least successor number rises.
    pub(super) is_restored: bool,
}

impl Epochs {
    pub(super) fn founded(topology: &Topology) -> Epochs {
        let first = EpochRecord::founded(topology);
        let node = |id: MemberId| (id, u128::from(id.0) + 1);
        let nodes: Vec<_> = first
            .members()
            .iter()
            .map(|member| node(member.id))
            .collect();
        let second = first.enrolled(&nodes).expect("founders are enrolled once");
        Epochs {
            records: vec![first, second],
            arrived: Vec::new(),
            ended: 0,
            confirmed: None,
            is_restored: false,
        }
    }

    /// Of a cluster that backups are restored into, again and again, while clients work.
    pub(super) fn restored(topology: &Topology) -> Epochs {
        let mut epochs = Epochs::founded(topology);
        epochs.is_restored = true;
        epochs
    }

    /// Of a cluster that forgets.
    pub(super) fn forgetting(topology: &Topology) -> Epochs {
        let mut epochs = Epochs::founded(topology);
        epochs.confirmed = Some(vec![None; topology.members().len()]);
        epochs
    }

    /// The horizons rise, once all members have confirmed the last epoch.
    fn forgot(&mut self) -> Option<EpochRecord> {
        let last = self.records.last().expect("a chain has a first epoch");
        let confirmed = self.confirmed.as_ref()?.iter().copied();
        let floor = next_floor(last.epoch(), last.horizons().floor(), confirmed)?;
        let next = last.forgot(floor);
        self.ended += 1;
        Some(next.expect("no plan is under way"))
    }

    pub(super) fn last(&self) -> &EpochRecord {
        self.records.last().expect("a chain has a first epoch")
    }

    fn of(&self, epoch: u64) -> &EpochRecord {
        &self.records[usize::try_from(epoch).expect("few epochs") - 1]
    }

    pub(super) fn first_layout(&self) -> Layout {
        self.layout_at_start(self.last().epoch())
    }

    pub(super) fn layout_at_start(&self, epoch: u64) -> Layout {
        Layout::of_record(self.of(epoch)).expect("a record has its members")
    }

    /// The record after the last one, if the oracle wants one now.
    fn next(&self, prng: &mut Prng, partition: Partition) -> Option<EpochRecord> {
        if self.confirmed.is_some() {
            return None;
        }
        let last = self.last();
        if self.is_restored {
            let number = last.least_successor().number() + 1 + prng.below(4) as u32;
            return last.restored(LeastSuccessor::new(number)?).ok();
        }
        let Some(plan) = last.plan() else {
            return planned(last, prng, partition);
        };
        if !plan.is_cancelled && prng.chance(1, 30) {
            return last.cancelled().ok();
        }
        next_step(last, &self.arrived, 1)
    }
}

/// A plan that moves one position of the partition to a member that owns none of it.
fn planned(last: &EpochRecord, prng: &mut Prng, partition: Partition) -> Option<EpochRecord> {
    let owners = last.owners().owners(partition);
    let others = last
        .owners()
        .members()
        .iter()
        .filter(|id| !owners.contains(id));
    let others: Vec<MemberId> = others.copied().collect();
    let position = prng.below(owners.len() as u64) as usize;
    let to = others[prng.below(others.len() as u64) as usize];
    let moving = Moving {
        position: position as u8,
        from: Some(owners[position]),
        to: Some(to),
    };
    let moves = MovePlan {
        table: last.owners().digest(),
        copies: None,
        joins: Vec::new(),
        leaves: Vec::new(),
        rounds: vec![vec![Move { partition, moving }]],
        necessary: 1,
    };
    let new = NewPlan {
        author: MemberId(0),
        moves,
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: last.replication_factor(),
    };
    Some(last.planned(&new).expect("a plan for the last epoch"))
}

impl World {
    /// The oracle chooses an epoch, or waits for a report.
    pub(super) fn choose(&mut self) {
        let longest = if self.acts.is_some() { 300 } else { 1_500 };
        let delay = 100 + self.prng.below(longest);
        self.later(delay, What::Choose);
        self.look_at_members();
        let partition = self.sites[0].layout.ring().partition(&self.key);
        let Some(epochs) = &mut self.epochs else {
            return;
        };
        let forgot = epochs.forgot();
        let Some(next) = forgot.or_else(|| epochs.next(&mut self.prng, partition)) else {
            return;
        };
        let epoch = next.epoch();
        epochs.ended += u64::from(next.plan().is_none());
        epochs.records.push(next);
        for site in 0..self.sites.len() {
            let late = match &self.acts {
                Some(acts) => acts.late_us(),
                None => 8_000,
            };
            let delay = match self.prng.below(10) {
                0..5 => self.prng.below(400),
                5..8 => self.prng.below(late),
                // It learns of it from a question, or with a later epoch.
                _ => continue,
            };
            let life = self.sites[site].life;
            self.later(delay, What::Adopt { site, life, epoch });
        }
    }

    /// The confirmations of the members are told, and some stores compact.
    fn look_at_members(&mut self) {
        let Some(confirmed) = self.epochs.as_mut().and_then(|it| it.confirmed.as_mut()) else {
            return;
        };
        for (site, confirmed) in self.sites.iter().zip(confirmed) {
            let news = site.node.as_ref().map(Node::confirms);
            if let Some(Ok(news)) = news {
                *confirmed = Some(news);
            }
        }
        for site in 0..self.sites.len() {
            self.compact(site);
        }
    }

    /// `site` heard that `from` knows a later epoch.
    pub(super) fn learn(&mut self, site: usize, from: usize) {
        let (life, epoch) = (self.sites[site].life, self.sites[from].layout.epoch());
        let delay = 50 + self.prng.below(600);
        self.later(delay, What::Adopt { site, life, epoch });
    }

    pub(super) fn loaded(&mut self, epoch: u64, partitions: &[Partition]) {
        if let Some(epochs) = &mut self.epochs {
            let record = epochs.of(epoch);
            let plan = record.plan().map(|plan| plan.id);
            let steps = partitions
                .iter()
                .filter_map(|partition| record.moving(*partition));
            let arrived = steps.filter_map(|step| plan.map(|plan| MoveArrived { plan, step }));
            let arrived: Vec<MoveArrived> = arrived.collect();
            epochs.arrived.extend(arrived);
        }
    }

    /// The epochs up to this one are durable at the member.
    pub(super) fn adopt(&mut self, site: usize, life: u32, epoch: u64) {
        let Some(epochs) = &self.epochs else {
            return;
        };
        let at = &mut self.sites[site];
        if at.life != life || at.node.is_none() || at.layout.epoch() >= epoch {
            return;
        }
        let mut layout = Layout::clone(&at.layout);
        for next in layout.epoch() + 1..=epoch {
            layout = layout
                .next(epochs.of(next))
                .expect("a record has its members");
        }
        at.layout = Arc::new(layout);
        at.fence.advance(&at.layout);
        let layout = Arc::clone(&at.layout);
        self.step(site, Event::Layout { layout });
    }
}
