//! Epochs of small clusters, for tests of one node.

use dendra_node::ring::plan::MovePlan;
use dendra_node::ring::table::{MemberId, Move};
use dendra_node::topology::drive::next_step;
use dendra_node::topology::record::{EpochRecord, NewPlan};
use dendra_node::{Member, Topology};

/// The epoch in which `members` are let in. Their names are h1, h2 and so on.
pub(crate) fn enrolled(members: u32, copies: u8) -> EpochRecord {
    let named = (1..=members).map(|at| Member::new(&format!("h{at}:1")).expect("an address"));
    let topology = Topology::new("dendra", named.collect(), copies).expect("a topology");
    let nodes: Vec<_> = (0..members)
        .map(|at| (MemberId(at), u128::from(at) + 1))
        .collect();
    let founded = EpochRecord::founded(&topology);
    founded.enrolled(&nodes).expect("all are new")
}

/// The epoch behind `record` in which a position moves.
pub(crate) fn moving(record: &EpochRecord, step: Move) -> EpochRecord {
    let plan = NewPlan {
        author: MemberId(0),
        moves: MovePlan {
            table: record.owners().digest(),
            copies: None,
            joins: Vec::new(),
            leaves: Vec::new(),
            rounds: vec![vec![step]],
            necessary: 1,
        },
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: record.owners().copies(),
    };
    let planned = record.planned(&plan).expect("a plan for this epoch");
    next_step(&planned, &[], 1).expect("the plan begins")
}
