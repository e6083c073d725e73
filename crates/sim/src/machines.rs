//! The machines of a changing cluster, as its operator knows them, and the epochs that were chosen.
//!
//! Invariants
//! 1. A machine is a folder; its number is never used again. A member has a number of the chain.
//!
//! Not here: the process on a machine (`member.rs`), the events of its life (`world/town/`).

use crate::changes::Changes;
use crate::check::losses::{LeftCell, TakenLoss};
use crate::plan::RunPlan;
use dendra_base::LeastSuccessor;
use dendra_ownership::Layout;
use dendra_ownership::Member as Listed;
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::ring::table::{MemberId, OwnerTable};
use dendra_ownership::steward::face::AcceptedLoss;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The standing of a machine in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineStanding {
    /// A founder, or a process that was let in.
    Member(MemberId),
    /// A process that asks to be let in, in the place of a member perhaps.
    Joins { replaces: Option<usize> },
    /// A process that was removed, or gave up: it never starts again.
    Ended,
}

/// A machine as the operator knows it.
#[derive(Clone, Debug)]
pub(crate) struct TownMachine {
    pub(crate) url: String,
    pub(crate) standing: MachineStanding,
    /// Number of the member, once it has one, for ever.
    pub(crate) id: Option<MemberId>,
    /// True when the disk is lost for good, and the member with it.
    pub(crate) is_wiped: bool,
    /// A process in its place was ordered.
    pub(crate) is_superseded: bool,
    /// Starts so far, by its own notes.
    pub(crate) starts: u64,
    /// Is the file `DOUBTED` in its folder?
    pub(crate) is_doubted: bool,
    /// Notes of the machine about others, by node.
    pub(crate) notes: BTreeMap<u128, Peer>,
}

impl TownMachine {
    pub(crate) fn new(url: String, standing: MachineStanding) -> TownMachine {
        let id = match &standing {
            MachineStanding::Member(id) => Some(*id),
            MachineStanding::Joins { .. } | MachineStanding::Ended => None,
        };
        TownMachine {
            url,
            standing,
            id,
            is_wiped: false,
            is_superseded: false,
            starts: 0,
            is_doubted: false,
            notes: BTreeMap::new(),
        }
    }
}

/// A loss as a member has shown it to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownLoss {
    /// The damaged member.
    pub(crate) machine: usize,
    /// The plan under way there.
    pub(crate) plan: Option<u64>,
    pub(crate) ranges: Vec<WalkPart>,
    /// Addresses of the lost members.
    pub(crate) lost: Vec<String>,
}

/// A loss by which a machine repairs.
pub(crate) struct LossInForce {
    pub(crate) machine: usize,
    pub(crate) loss: AcceptedLoss,
    /// When it came into force, or its machine started last. The repair asks owners later.
    pub(crate) from_us: u64,
    /// The newest cell of each key at the owners that were left then.
    pub(crate) left: BTreeMap<usize, Option<LeftCell>>,
}

/// Losses as the operator and the checkers know them.
#[derive(Default)]
pub(crate) struct LossLedger {
    /// By the id that confirms it.
    pub(crate) shown: BTreeMap<u64, ShownLoss>,
    /// The operator still thinks about these.
    pub(crate) waiting: BTreeSet<u64>,
    /// Losses that the operator has confirmed.
    pub(crate) confirmed: BTreeSet<u64>,
    /// Noted, or in force without a note.
    pub(crate) in_force: Vec<LossInForce>,
    /// Keys of which something that was told may be gone.
    pub(crate) taken: Vec<TakenLoss>,
}

/// The changing cluster, seen from outside.
pub(crate) struct Town {
    pub(crate) first: Arc<EpochRecord>,
    pub(crate) machines: Vec<TownMachine>,
    by_id: BTreeMap<MemberId, usize>,
    /// Epochs that are durable somewhere.
    pub(crate) chosen: BTreeMap<u64, Arc<EpochRecord>>,
    /// Layout of the newest epoch.
    pub(crate) newest: Arc<Layout>,
    /// Loads that ended: the move, and for which epoch.
    pub(crate) loads: Vec<(MoveArrived, u64)>,
    /// Orders without an answer: at which machine, and when it is due.
    pub(crate) orders: BTreeMap<u64, (usize, u64)>,
    /// Orders to begin a plan that was read: for which epoch it was made.
    pub(crate) reads: BTreeMap<u64, u64>,
    pub(crate) tickets: u64,
    /// When the weather got calm.
    pub(crate) calm_us: Option<u64>,
    /// Plans that began and ended.
    pub(crate) plans: (u64, u64),
    /// The member that is away while others change, and until when.
    pub(crate) laggard: Option<(usize, u64)>,
    /// Epochs that raised the horizons.
    pub(crate) risen: u64,
    pub(crate) loss: LossLedger,
}

pub(crate) fn url(machine: usize) -> String {
    format!("http://10.0.0.{}:8080", machine + 1)
}

pub(crate) fn node_of(machine: usize) -> u128 {
    machine as u128 + 1
}

impl Town {
    /// The founders of a plan's cluster.
    pub(crate) fn found(plan: &RunPlan, changes: &Changes) -> Town {
        let (count, copies) = (plan.shape.members as u32, plan.shape.copies as u32);
        let ids: Vec<MemberId> = (0..count).map(MemberId).collect();
        let row = |partition: u16| -> Vec<MemberId> {
            let owner = |at| MemberId((u32::from(partition) + at) % count);
            (0..copies).map(owner).collect()
        };
        let rows = (0..changes.partitions).map(row).collect();
        let owners = OwnerTable::of_owners(count, ids.clone(), rows).expect("a table");
        let members = ids.iter().map(|id| EpochMember {
            id: *id,
            node: 0,
            status: MemberStatus::Member,
            place: Listed::new(&url(id.0 as usize)).expect("an address"),
        });
        let first = EpochRecord::first("sim", members.collect(), copies as u8, owners);
        let first = first.expect("a record of few members");
        let machine = |at: usize| {
            let standing = MachineStanding::Member(MemberId(at as u32));
            TownMachine::new(url(at), standing)
        };
        Town {
            newest: Arc::new(Layout::of_record(&first).expect("a record has its members")),
            by_id: ids.iter().map(|id| (*id, id.0 as usize)).collect(),
            machines: (0..count as usize).map(machine).collect(),
            chosen: BTreeMap::new(),
            first: Arc::new(first),
            loads: Vec::new(),
            orders: BTreeMap::new(),
            reads: BTreeMap::new(),
            tickets: 0,
            calm_us: None,
            plans: (0, 0),
            laggard: None,
            risen: 0,
            loss: LossLedger::default(),
        }
    }

    /// The least successor numbers of all epochs.
    pub(crate) fn leasts(&self) -> Vec<LeastSuccessor> {
        let mut leasts = vec![LeastSuccessor::default()];
        leasts.extend(self.chosen.values().map(|it| it.least_successor()));
        leasts.dedup();
        leasts
    }

    /// The machine of a member.
    pub(crate) fn machine_of(&self, id: MemberId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The newest epoch.
    pub(crate) fn record(&self) -> &Arc<EpochRecord> {
        let newest = self.chosen.last_key_value();
        newest.map_or(&self.first, |(_, record)| record)
    }

    /// A machine is this member from now on.
    pub(crate) fn let_in(&mut self, machine: usize, id: MemberId) {
        self.by_id.insert(id, machine);
        self.machines[machine].standing = MachineStanding::Member(id);
        self.machines[machine].id = Some(id);
    }

    /// Members of the newest epoch, as machines.
    pub(crate) fn members(&self) -> Vec<usize> {
        let members = self.record().members().iter();
        members.filter_map(|m| self.machine_of(m.id)).collect()
    }
}
