//! Prints the cost of the topology by the number of members. The costs are bytes of a record, time
//! of a plan, the epochs of a change, and the bytes that the folder keeps of them.
//!
//! ```text
//! cargo run --release -p dendra-node --example scale_figures
//! founded(n) ─► one joins: plan ─► planned, moved …, finished     bytes and times of each step
//! ```
//!
//! Invariants
//! 1. Bytes and counts are the same on every machine; times are of this one.
//! 2. Moves arrive at once: there are as many epochs as steps of `MOVES_SIDE_BY_SIDE`.
//!
//! Not here: processes, links, memory (`make study-members`), moves beyond the share
//! (crate `ownership`, `ring_figures.rs`).
//! See: docs/scale.md.

use dendra_ownership::epoch::drive::{MoveArrived, next_step};
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_ownership::limits::MOVES_SIDE_BY_SIDE;
use dendra_ownership::ring::plan::{WantedMember, WantedMembers, plan};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::{Layout, Member, Topology};
use std::io::{self, Write};
use std::time::{Duration, Instant};

const SIZES: [u8; 7] = [3, 5, 10, 20, 50, 75, 99];
const PARTITIONS: [u16; 3] = [256, 1_024, 16_384];

fn place(number: u32) -> Member {
    Member::new(&format!("http://node{number}.example.com:8080")).expect("an address")
}

/// Members with folders, three copies.
fn founded(members: u8, partitions: u16) -> EpochRecord {
    let all = (0..u32::from(members)).map(place).collect();
    let topology = Topology::new("figures", all, 3).expect("members");
    let topology = topology.with_partitions(partitions).expect("a number");
    let first = EpochRecord::founded(&topology);
    let nodes = first
        .members()
        .iter()
        .map(|m| (m.id, u128::from(m.id.0) + 1));
    let nodes: Vec<(MemberId, u128)> = nodes.collect();
    first.enrolled(&nodes).expect("they have none yet")
}

fn wanted(record: &EpochRecord) -> WantedMembers {
    let member = |member: &EpochMember| WantedMember {
        id: member.id,
        weight: member.place.weight,
        zone: member.place.zone.clone(),
    };
    WantedMembers {
        members: record.members().iter().map(member).collect(),
        replication_factor: record.replication_factor(),
        lost: Vec::new(),
    }
}

/// The result and the time that it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One more member joins: a row of the table.
fn join(members: u8, partitions: u16) -> String {
    let record = founded(members, partitions);
    let at_rest = record.encode().len();
    let (_, reading) = timed(|| EpochRecord::decode(&record.encode()).expect("own bytes"));
    let (layout, laying) = timed(|| Layout::of_record(&record).expect("it has one"));
    let id = record.owners().next();
    let now = wanted(&record);
    let mut after = now.clone();
    after.members.push(WantedMember {
        id,
        weight: 1,
        zone: String::new(),
    });
    let (moves, planning) = timed(|| plan(record.owners(), &now, &after).expect("a plan"));
    let copied = moves.copied();
    let new = NewPlan {
        author: MemberId(0),
        moves,
        newcomers: vec![EpochMember {
            id,
            node: u128::from(id.0) + 1,
            status: MemberStatus::Joining,
            place: place(id.0),
        }],
        shares: Vec::new(),
        replication_factor: 3,
    };
    let mut newest = record.planned(&new).expect("nothing else is under way");
    let largest = newest.encode().len();
    let (mut epochs, mut kept) = (1, largest);
    let (mut layout, mut adopting) = (layout, Duration::ZERO);
    loop {
        let (next, took) = timed(|| layout.next(&newest).expect("there is room"));
        layout = next;
        adopting = adopting.max(took);
        let Some(under_way) = newest.plan().map(|plan| plan.id) else {
            break;
        };
        let arrived = newest.owners().all().filter_map(|partition| {
            let step = newest.moving(partition)?;
            Some(MoveArrived {
                plan: under_way,
                step,
            })
        });
        let arrived: Vec<MoveArrived> = arrived.collect();
        let next = next_step(&newest, &arrived, MOVES_SIDE_BY_SIDE);
        newest = next.expect("all have arrived");
        epochs += 1;
        kept += newest.encode().len();
    }
    format!(
        "| {members} | {partitions} | {at_rest} | {largest} | {:.2} | {:.2} | {:.2} | {:.1} | {copied} | {epochs} | {:.0} |",
        ms(reading),
        ms(laying),
        ms(adopting),
        ms(planning),
        kept as f64 / 1024.0
    )
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| members | partitions | record at rest, bytes | record of the plan, bytes | to read, ms | layout, ms | next layout, ms | plan, ms | copies | epochs | kept, KiB |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    for partitions in PARTITIONS {
        for members in SIZES {
            writeln!(out, "{}", join(members, partitions))?;
        }
    }
    Ok(())
}
