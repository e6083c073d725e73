//! Prints the tables of the decisions on placement. One has the moves of a change of members beyond
//! its share, for clusters of 2 to 100 members and every number of partitions. The other has the
//! moves of a plan between two stored tables.
//!
//! ```text
//! cargo run --release -p dendra-ownership --example ring_figures        all sizes: some minutes
//!     … ring_figures 256                       one number of partitions
//!     … ring_figures plans                     plans, 256 partitions
//!     … ring_figures again leave 100 256 200   one plan, 200 times: leave, join, copies, reweigh
//! ```
//!
//! Invariants
//! 1. The same figures on every machine: names of clusters are numbered, and nothing else is drawn.
//!
//! Not here: the bounds that hold, which are tests (`src/ring/tests/`).
//! See: docs/decisions/0014-balanced-rendezvous.md, docs/decisions/0024-tables-are-stored.md.

use chains::{Chain, KINDS, Kind, Shape};
use clusters::{topology, url};
use dendra_ownership::ring::plan::{
    MovePlan, NoPlan, WantedMember, WantedMembers, plan, replacement,
};
use dendra_ownership::ring::table::{MemberId, OwnerTable};
use dendra_ownership::topology::PARTITIONS;
use dendra_ownership::{Member, MemberIndex, Ring, Topology};
use std::collections::BTreeMap;
use std::io::{self, StdoutLock, Write};

#[path = "../src/ring/tests/chains.rs"]
mod chains;
#[path = "../src/ring/tests/clusters.rs"]
mod clusters;

/// Members before one more joins.
const SIZES: [usize; 14] = [2, 3, 4, 5, 6, 7, 8, 9, 11, 14, 19, 29, 49, 99];

/// The members among the first `copies` owners of each partition, by name.
fn owners<'a>(topology: &'a Topology, ring: &'a Ring, copies: usize) -> Vec<Vec<&'a str>> {
    let of = |partition| {
        let first = ring.owners(partition).iter().take(copies);
        first
            .map(|owner| topology.member(*owner).url.as_str())
            .collect()
    };
    ring.all().map(of).collect()
}

/// The moves of joins and leaves beyond the share, in per cent of the share: average and worst over
/// some clusters.
fn extra(members: usize, partitions: u16, copies: u8) -> (f64, f64) {
    let seeds = if members > 20 { 3 } else { 24 };
    let of = |seed: u64| {
        let leaves = (seed as usize * 7 + members) % (members + 1);
        let with = topology(seed, 0..=members, partitions);
        let others = (0..=members).filter(|number| *number != leaves);
        let without = topology(seed, others, partitions);
        let (large, small) = (Ring::new(&with), Ring::new(&without));
        let it = with.index_of(&url(seed, leaves)).expect("a member");
        let before = owners(&without, &small, usize::from(copies));
        let after = owners(&with, &large, usize::from(copies));
        let arrives = |(had, has): (&Vec<&str>, &Vec<&str>)| {
            has.iter().filter(|owner| !had.contains(owner)).count()
        };
        let moved: usize = before.iter().zip(&after).map(arrives).sum();
        let share = large.share(it, copies).expect("it is balanced");
        100.0 * (moved as f64 / share - 1.0)
    };
    let all: Vec<f64> = (0..seeds).map(of).collect();
    let average = all.iter().sum::<f64>() / all.len() as f64;
    (average, all.iter().copied().fold(f64::MIN, f64::max))
}

/// How far the worst member is from its share, in per cent of the share.
fn off(members: usize, partitions: u16) -> f64 {
    let topology = topology(1, 0..members, partitions);
    let ring = Ring::new(&topology);
    let off = |member| {
        let share = ring.share(member, 3).expect("it is balanced");
        100.0 * (ring.load(member, 3) as f64 / share - 1.0).abs()
    };
    (0..topology.len())
        .map(MemberIndex)
        .map(off)
        .fold(0.0, f64::max)
}

/// Clusters that are looked at for each figure on plans.
const CHAINS: u64 = 8;

/// A sum and a maximum.
#[derive(Default)]
struct Part {
    sum: f64,
    most: f64,
    count: usize,
}

impl Part {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.most = self.most.max(value);
        self.count += 1;
    }

    /// The average and the most, in per cent above 1.
    fn beyond(&self) -> (f64, f64) {
        let average = self.sum / self.count as f64;
        (100.0 * (average - 1.0), 100.0 * (self.most - 1.0))
    }
}

/// How far the worst member's number of partitions, among the first `copies` owners, is from the
/// average, in partitions. Requires: all weights are equal, and there are no zones.
fn apart(table: &OwnerTable, copies: u8) -> f64 {
    let members = table.members();
    let average = f64::from(table.partitions()) * f64::from(copies) / members.len() as f64;
    let off = |member: &MemberId| (table.load(*member, copies) as f64 - average).abs();
    members.iter().map(off).fold(0.0, f64::max)
}

/// Clusters of equal members without zones that grow from 3 to 100 members, and shrink again.
fn growth(out: &mut StdoutLock<'_>) -> io::Result<()> {
    let even = Shape {
        weight_max: 1,
        zones: 0,
    };
    let mut bands: BTreeMap<usize, [Part; 4]> = BTreeMap::new();
    let band = |members: usize| {
        SIZES
            .into_iter()
            .map(|size| size + 1)
            .find(|most| members <= *most)
    };
    for seed in 0..CHAINS {
        let mut chain = Chain::new(seed, 3, 3, even);
        for members in 4..=100 {
            let step = chain.make(Kind::Join).expect("a member joins");
            let share = 768.0 / members as f64;
            let parts = bands.entry(band(members).expect("a size")).or_default();
            parts[0].add(step.plan.copied() as f64 / share);
            parts[2].add(apart(&chain.table, 3));
            parts[3].add(apart(&chain.table, 1));
        }
        for members in (4..=100).rev() {
            let step = chain.make(Kind::Leave).expect("a member leaves");
            let held = step.before.load(step.plan.leaves[0], 3);
            let parts = bands.entry(band(members).expect("a size")).or_default();
            parts[1].add(step.plan.copied() as f64 / held as f64);
            parts[2].add(apart(&chain.table, 3));
            parts[3].add(apart(&chain.table, 1));
        }
    }
    writeln!(
        out,
        "256 partitions, three copies, {CHAINS} clusters that grow from 3 members to 100, and shrink"
    )?;
    for (members, [joins, leaves, copies, first]) in bands {
        let (join, leave) = (joins.beyond(), leaves.beyond());
        writeln!(
            out,
            "up to {members:3} members: a join {:5.1} %, {:5.1} % beyond the share; a leave {:4.1} %, \
             {:4.1} % beyond what it held; worst member {:4.1} copies, {:4.1} first owners off",
            join.0, join.1, leave.0, leave.1, copies.most, first.most
        )?;
    }
    Ok(())
}

/// Chains of fifty drawn changes, held against the bound from below.
fn drawn(out: &mut StdoutLock<'_>) -> io::Result<()> {
    writeln!(
        out,
        "\nchains of 50 drawn changes: copies, and beyond the bound from below"
    )?;
    for (words, weight_max, zones) in [
        ("equal weights, no zones", 1, 0),
        ("weights 1 to 4, no zones", 4, 0),
        ("equal weights, 3 zones", 1, 3),
        ("weights 1 to 4, 8 zones", 4, 8),
    ] {
        let mut by_kind: BTreeMap<Kind, (usize, usize, usize)> = BTreeMap::new();
        for members in (2..=100).step_by(7) {
            let shape = Shape { weight_max, zones };
            let copies = 1 + (members % 5) as u8;
            let mut chain = Chain::new(members as u64, members, copies, shape);
            for _ in 0..50 {
                let step = chain.step();
                let sums = by_kind.entry(step.kind).or_default();
                sums.0 += 1;
                sums.1 += step.plan.copied();
                sums.2 += step.plan.necessary;
            }
        }
        for (kind, (count, copied, necessary)) in by_kind {
            let beyond = 100.0 * (copied as f64 / necessary.max(1) as f64 - 1.0);
            writeln!(
                out,
                "{words}: {count:3} of {kind:?}, {copied:6} copies, {beyond:4.1} %"
            )?;
        }
    }
    Ok(())
}

/// One plan, made again and again, so that its time can be taken from outside.
fn again(kind: &str, members: usize, partitions: u16, times: usize) -> Result<usize, NoPlan> {
    let shape = Shape {
        weight_max: 4,
        zones: 8,
    };
    let mut chain = Chain::of(partitions, 1, members, 3, shape);
    for _ in 0..10 {
        chain.step();
    }
    let kind = KINDS
        .into_iter()
        .find(|known| format!("{known:?}").eq_ignore_ascii_case(kind));
    let mut wanted = chain.now.clone();
    match kind.expect("a kind of change") {
        Kind::Join => wanted.members.push(WantedMember {
            id: chain.table.next(),
            ..wanted.members[0].clone()
        }),
        Kind::Copies => wanted.replication_factor = 5,
        Kind::Reweigh => wanted.members[0].weight *= 4,
        Kind::Rezone => wanted.members.iter_mut().for_each(|m| m.zone.clear()),
        Kind::Leave | Kind::Replace => {
            wanted.members.pop();
        }
    }
    let mut copied = 0;
    for _ in 0..times {
        copied = plan(&chain.table, &chain.now, &wanted)?.copied();
    }
    Ok(copied)
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    let mut out = io::stdout().lock();
    match args[..] {
        ["plans"] => growth(&mut out).and_then(|()| drawn(&mut out)),
        ["again", kind, members, partitions, times] => match again(
            kind,
            number(members),
            partitions.parse().expect("a number of partitions"),
            number(times),
        ) {
            Ok(copied) => writeln!(out, "{copied} copies"),
            Err(no) => writeln!(out, "{no}"),
        },
        [] => anew(&mut out, None),
        [partitions, ..] => anew(&mut out, Some(number(partitions))),
    }
}

/// The moves when the table is computed anew, for all numbers of partitions, or for one.
fn anew(out: &mut StdoutLock<'_>, only: Option<usize>) -> io::Result<()> {
    let wanted = |partitions: &u16| only.is_none_or(|only| only == usize::from(*partitions));
    for partitions in PARTITIONS.into_iter().filter(wanted) {
        writeln!(
            out,
            "{partitions} partitions: moved beyond the share, average and worst; load"
        )?;
        for members in SIZES {
            let three = extra(members, partitions, 3);
            let one = extra(members, partitions, 1);
            writeln!(
                out,
                "{:4} members: three copies {:4.0} %, {:4.0} %; one copy {:4.0} %, {:4.0} %; {:.1} % off the share",
                members + 1,
                three.0,
                three.1,
                one.0,
                one.1,
                off(members + 1, partitions)
            )?;
        }
    }
    Ok(())
}
