//! Epochs of small clusters whose members are h1, h2 and so on.

use dendra_ownership::epoch::drive::{MoveArrived, next_step};
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_ownership::ring::plan::{MovePlan, WantedMember, WantedMembers, plan, replacement};
use dendra_ownership::ring::table::{MemberId, Move, Moving};
use dendra_ownership::{Member, Partition, Topology};

/// All positions of a plan move at once.
pub(crate) const AT_ONCE: usize = 256;

/// The first epoch of a cluster with so many copies of a record; its members have no folders yet.
pub(crate) fn founded(members: u32, copies: u8) -> EpochRecord {
    let places = (0..members).map(|at| place(MemberId(at)));
    let topology = Topology::new("dendra", places.collect(), copies).expect("a topology");
    EpochRecord::founded(&topology)
}

/// The epoch after `founded` in which all members are let in.
pub(crate) fn let_in(founded: &EpochRecord) -> EpochRecord {
    let ids = founded.members().iter().map(|member| member.id);
    let nodes: Vec<_> = ids.map(|id| (id, folder(id))).collect();
    founded.enrolled(&nodes).expect("all are new")
}

/// The epoch in which so many members are let in.
pub(crate) fn enrolled(members: u32, copies: u8) -> EpochRecord {
    let_in(&founded(members, copies))
}

fn place(id: MemberId) -> Member {
    Member::new(&format!("http://h{}:1", id.0 + 1)).expect("an address")
}

/// The id of the member's folder.
fn folder(id: MemberId) -> u128 {
    u128::from(id.0) + 1
}

/// The plan of `moves`, and no more.
fn new_plan(record: &EpochRecord, moves: MovePlan) -> NewPlan {
    NewPlan {
        author: MemberId(0),
        moves,
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: record.replication_factor(),
    }
}

/// A member that is about to join.
fn newcomer(id: MemberId) -> EpochMember {
    EpochMember {
        id,
        node: folder(id),
        status: MemberStatus::Joining,
        place: place(id),
    }
}

/// The epoch after that of the plan: its first positions move.
fn begun(record: &EpochRecord, new: &NewPlan) -> EpochRecord {
    let planned = record.planned(new).expect("nothing else is under way");
    next_step(&planned, &[], AT_ONCE).expect("the plan begins")
}

/// The epoch in which these positions move at once.
pub(crate) fn moving(record: &EpochRecord, moves: Vec<Move>) -> EpochRecord {
    let plan = MovePlan {
        table: record.owners().digest(),
        copies: None,
        joins: Vec::new(),
        leaves: Vec::new(),
        necessary: moves.len(),
        rounds: vec![moves],
    };
    begun(record, &new_plan(record, plan))
}

/// The move of a partition's owner at this place to another member.
pub(crate) fn move_to(record: &EpochRecord, at: Partition, place: u8, to: MemberId) -> Move {
    let moving = Moving {
        position: place,
        from: Some(record.owners().owners(at)[usize::from(place)]),
        to: Some(to),
    };
    Move {
        partition: at,
        moving,
    }
}

/// The epoch in which these positions are added, for so many copies.
pub(crate) fn adding(record: &EpochRecord, copies: u8, moves: Vec<Move>) -> EpochRecord {
    let plan = MovePlan {
        table: record.owners().digest(),
        copies: Some(copies),
        joins: Vec::new(),
        leaves: Vec::new(),
        necessary: moves.len(),
        rounds: vec![moves],
    };
    let mut new = new_plan(record, plan);
    new.replication_factor = copies;
    begun(record, &new)
}

/// A position that a partition gets beside those that it has.
pub(crate) fn add(at: Partition, place: u8, to: MemberId) -> Move {
    let moving = Moving {
        position: place,
        from: None,
        to: Some(to),
    };
    Move {
        partition: at,
        moving,
    }
}

/// The epoch in which a new member takes all positions of `old`, which `lost` says is lost or not.
pub(crate) fn replacing(record: &EpochRecord, old: MemberId, lost: &[MemberId]) -> EpochRecord {
    let id = record.owners().next();
    let moves = replacement(record.owners(), old, id, lost).expect("a plan");
    let mut new = new_plan(record, moves);
    new.newcomers = vec![newcomer(id)];
    begun(record, &new)
}

/// These members share the partitions evenly, with so many copies of each.
fn shared_by(members: impl IntoIterator<Item = MemberId>, copies: u8) -> WantedMembers {
    let member = |id| WantedMember {
        id,
        weight: 1,
        zone: String::new(),
    };
    WantedMembers {
        members: members.into_iter().map(member).collect(),
        replication_factor: copies,
        lost: Vec::new(),
    }
}

fn ids(record: &EpochRecord) -> Vec<MemberId> {
    record.members().iter().map(|member| member.id).collect()
}

/// The epoch with the plan by which one more member joins; no position moves yet.
pub(crate) fn joining(record: &EpochRecord) -> EpochRecord {
    let (id, copies) = (record.owners().next(), record.replication_factor());
    let now = shared_by(ids(record), copies);
    let after = shared_by(ids(record).into_iter().chain([id]), copies);
    let moves = plan(record.owners(), &now, &after).expect("a plan");
    let mut new = new_plan(record, moves);
    new.newcomers = vec![newcomer(id)];
    record.planned(&new).expect("nothing else is under way")
}

/// The epoch in which the positions of these members move to those that stay.
pub(crate) fn leaving(record: &EpochRecord, leaves: &[MemberId]) -> EpochRecord {
    let copies = record.replication_factor();
    let now = shared_by(ids(record), copies);
    let stay = ids(record).into_iter().filter(|id| !leaves.contains(id));
    let after = shared_by(stay, copies);
    let moves = plan(record.owners(), &now, &after).expect("a plan");
    begun(record, &new_plan(record, moves))
}

/// The last epoch of a plan by which records have `copies` copies.
pub(crate) fn with_copies(record: &EpochRecord, copies: u8) -> EpochRecord {
    let (now, after) = (record.replication_factor(), copies);
    let [now, after] = [now, after].map(|copies| shared_by(ids(record), copies));
    let moves = plan(record.owners(), &now, &after).expect("a plan");
    let mut new = new_plan(record, moves);
    new.replication_factor = copies;
    let mut record = record.planned(&new).expect("nothing else is under way");
    while record.plan().is_some() {
        record = arrived(&record, AT_ONCE);
    }
    record
}

/// The epoch after `record` once all that moves has arrived; then so many positions move.
pub(crate) fn arrived(record: &EpochRecord, side_by_side: usize) -> EpochRecord {
    let plan = record.plan().expect("a plan is under way").id;
    let steps = record.owners().all().filter_map(|at| record.moving(at));
    let arrived: Vec<_> = steps.map(|step| MoveArrived { plan, step }).collect();
    next_step(record, &arrived, side_by_side).expect("the plan goes on")
}
