//! The real node as a decider: the subject of the simulator's runs.
//!
//! Invariants
//! 1. The origin of a loop is its member's plus its number, as in the server.
//!
//! Not here: decisions (crate `node`).

use crate::decider::{Decider, DeciderSetup};
use dendra_base::Now;
use dendra_node::step::{Effect, Event};
use dendra_node::{
    CompareConfig, Comparisons, EndedValues, Foregrounds, HintRoom, Node, NodeConfig, Walls,
};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::{MemberIndex, Partition};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Operations of clients that a loop takes: more than there are clients.
const OPERATIONS_MAX: usize = 64;

/// Longer than any operation of a plan, and than those that members begin themselves.
const REPAIR_WAIT_US: u64 = 6_000_000;

/// Runs last for seconds. So the margin covers how far a reading of another clock may run ahead of
/// it, and no coordinator's own error: the checker knows the clocks of all members.
const ENDED_MARGIN_MS: u64 = 100;
const CLOCK_EVEN_US: u64 = 200_000;

struct RealNode {
    node: Node,
    hints: Arc<HintRoom>,
    comparisons: Arc<Comparisons>,
    walls: Arc<Walls>,
    ended: EndedValues,
}

impl Decider for RealNode {
    fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.node.step(now, event, effects);
    }

    fn due_us(&self) -> Option<u64> {
        self.node.due_us()
    }

    fn leftovers(&self) -> Option<String> {
        let operations = self.node.operations();
        let orphans = self.node.orphans();
        let wasteful = self.node.rounds().wasteful();
        if operations > 0 {
            return Some(format!("{operations} operations"));
        }
        if orphans > 0 {
            return Some(format!(
                "{orphans} questions and orders without an operation"
            ));
        }
        (wasteful > 0).then(|| format!("{wasteful} operations in mind that asked too much"))
    }

    fn hints(&self) -> Option<(u64, u64)> {
        Some((self.hints.bytes(), self.hints.dropped()))
    }

    fn loaded_bytes(&self) -> u64 {
        self.node.loaded_bytes()
    }

    fn ended_ms(&mut self, now: Now) -> u64 {
        self.ended.until_ms(now, Some(&self.walls))
    }

    fn compared_us(&self, peer: MemberIndex) -> Option<u64> {
        self.comparisons.full_us(peer)
    }

    fn repairs(&self, peer: MemberIndex) -> u64 {
        let shared = &self.comparisons;
        shared.sent(peer) + shared.fetched(peer) + shared.promises()
    }

    fn compared_bytes(&self) -> u64 {
        self.comparisons.read_bytes()
    }

    fn confirms(&self) -> Option<Result<Confirmed, HeldBack>> {
        Some(self.node.confirms())
    }

    fn foreign_in(&self, epoch: u64) -> BTreeSet<Partition> {
        self.comparisons.foreign_in(epoch)
    }

    fn loss(&self, now: Now) -> Result<RepairLoss, NoLoss> {
        self.node.loss(now)
    }

    fn dropped_strays(&self) {
        self.comparisons.dropped_strays();
    }
}

/// One node per loop.
pub fn nodes(setup: &DeciderSetup) -> Vec<Box<dyn Decider>> {
    let hints = Arc::new(HintRoom::new(setup.hint_bytes));
    let comparisons = Arc::<Comparisons>::default();
    let foregrounds = Arc::<Foregrounds>::default();
    let walls = Arc::new(Walls::new(
        setup.me,
        usize::from(setup.layout.topology().live()),
    ));
    let node = |lane: usize| {
        Node::new(NodeConfig {
            layout: Arc::clone(&setup.layout),
            fence: Arc::clone(&setup.fence),
            me: setup.me,
            origin: setup.origin + lane as u32,
            hlc: Arc::clone(&setup.hlc),
            walls: Arc::clone(&walls),
            seed: setup.seed.wrapping_add(lane as u64),
            operations_max: OPERATIONS_MAX,
            value_bytes_max: dendra_base::limits::VALUE_BYTES_MAX_DEFAULT,
            hints: Arc::clone(&hints),
            is_keeper: lane == 0,
            is_watch: lane == 0,
            load_bytes_per_second: setup.load_bytes_per_second,
            load_patience_us: setup.load_patience_us,
            compare: CompareConfig {
                progress: Arc::clone(&comparisons),
                bytes_per_second: setup.compare_bytes_per_second,
                pause_us: setup.compare_pause_us,
            },
            foregrounds: Arc::clone(&foregrounds),
            changes: Arc::clone(&setup.changes),
            lane,
            // Plans with horizons compare without a bound.
            forget_every_us: 0,
            repair_wait_us: REPAIR_WAIT_US,
        })
    };
    (0..setup.lanes)
        .map(|lane| {
            let real = RealNode {
                node: node(lane),
                hints: Arc::clone(&hints),
                comparisons: Arc::clone(&comparisons),
                walls: Arc::clone(&walls),
                ended: EndedValues::with(ENDED_MARGIN_MS, CLOCK_EVEN_US),
            };
            Box::new(real) as Box<dyn Decider>
        })
        .collect()
}
