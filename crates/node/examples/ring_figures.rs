//! Prints the table of the decision on placement: what a change of members moves beyond its share, for clusters
//! of 2 to 100 members and every number of partitions.
//!
//! ```text
//! cargo run --release -p dendra-node --example ring_figures            all sizes: some minutes
//! cargo run --release -p dendra-node --example ring_figures 256        one number of partitions
//! ```
//!
//! Invariants
//! 1. The same figures on every machine: names of clusters are numbered, and nothing else is drawn.
//!
//! Not here: the bounds that hold, which are tests (`src/ring/tests.rs`).
//! See: docs/decisions/0014-balanced-rendezvous.md.

use clusters::{topology, url};
use dendra_node::topology::PARTITIONS;
use dendra_node::{Member, MemberIndex, Ring, Topology};
use std::io::{self, Write};

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

/// Average and worst over some clusters of what joins and leaves move beyond the share, in per cent of the share.
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

fn main() -> io::Result<()> {
    let only: Option<u16> = std::env::args()
        .nth(1)
        .map(|text| text.parse().expect("a number of partitions"));
    let wanted = |partitions: &u16| only.is_none_or(|only| only == *partitions);
    let mut out = io::stdout().lock();
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
