//! Chains of changes of members, drawn from a seed. The tests of plans and their figures
//! (`examples/ring_figures.rs`) use the same ones.

use super::{
    Member, MovePlan, NoPlan, OwnerTable, Topology, WantedMember, WantedMembers, plan, replacement,
};
use dendra_base::Prng;

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Join,
    Leave,
    Replace,
    Reweigh,
    Rezone,
    Copies,
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind::Join,
    Kind::Leave,
    Kind::Replace,
    Kind::Reweigh,
    Kind::Rezone,
    Kind::Copies,
];

/// The properties in which the members of a chain may differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Weights are 1 to this.
    pub(crate) weight_max: u16,
    /// Zones are drawn from so many; 0 for none.
    pub(crate) zones: u64,
}

/// A cluster in the middle of its life.
pub(crate) struct Chain {
    pub(crate) table: OwnerTable,
    pub(crate) now: WantedMembers,
    shape: Shape,
    prng: Prng,
}

/// A change that was made.
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) plan: MovePlan,
    pub(crate) before: OwnerTable,
}

fn zone(shape: Shape, prng: &mut Prng) -> String {
    match shape.zones {
        0 => String::new(),
        zones => format!("z{}", prng.below(zones)),
    }
}

impl Chain {
    /// Founds a cluster of 256 partitions.
    pub(crate) fn new(seed: u64, members: usize, copies: u8, shape: Shape) -> Chain {
        Chain::of(256, seed, members, copies, shape)
    }

    /// Founds a cluster.
    pub(crate) fn of(
        partitions: u16,
        seed: u64,
        members: usize,
        copies: u8,
        shape: Shape,
    ) -> Chain {
        let mut prng = Prng::new(seed);
        let member = |number: usize| Member {
            url: format!("http://node{number}.c{seed}:8080"),
            weight: 1 + prng.below(u64::from(shape.weight_max)) as u16,
            zone: zone(shape, &mut prng),
        };
        let list: Vec<Member> = (0..members).map(member).collect();
        let topology = Topology::new(&format!("c{seed}"), list, copies).expect("a topology");
        let topology = topology.with_partitions(partitions).expect("a number");
        Chain {
            table: OwnerTable::first(&topology),
            now: WantedMembers::of(&topology, &OwnerTable::founders(&topology)),
            shape,
            prng,
        }
    }

    /// Makes a change of this kind, unless it is refused.
    pub(crate) fn make(&mut self, kind: Kind) -> Result<Step, NoPlan> {
        let (mut wanted, new) = (self.now.clone(), self.table.next());
        let count = wanted.members.len() as u64;
        let at = self.prng.below(count) as usize;
        let old = wanted.members[at].id;
        let weight = 1 + self.prng.below(u64::from(self.shape.weight_max)) as u16;
        let zone = zone(self.shape, &mut self.prng);
        match kind {
            Kind::Join => wanted.members.push(WantedMember {
                id: new,
                weight,
                zone,
            }),
            Kind::Leave => {
                wanted.members.remove(at);
            }
            Kind::Replace => wanted.members[at].id = new,
            Kind::Reweigh => wanted.members[at].weight = weight,
            Kind::Rezone => wanted.members[at].zone = zone,
            Kind::Copies => wanted.replication_factor = 1 + self.prng.below(5) as u8,
        }
        let plan = match kind {
            Kind::Replace => replacement(&self.table, old, new, &[])?,
            _ => plan(&self.table, &self.now, &wanted)?,
        };
        let after = plan.outcome(&self.table)?;
        let before = std::mem::replace(&mut self.table, after);
        self.now = wanted;
        Ok(Step { kind, plan, before })
    }

    /// Makes a change of a drawn kind; refused ones are drawn again.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            let kind = KINDS[self.prng.below(KINDS.len() as u64) as usize];
            if let Ok(step) = self.make(kind) {
                return step;
            }
        }
    }
}
