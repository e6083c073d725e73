//! The claims about the table, each with its figure.

use super::*;
use clusters::{topology, url};
use plan::{MovePlan, NoPlan, WantedMember, WantedMembers, plan, replacement};
use proptest::prelude::*;
use table::OwnerTable;

pub(super) mod chains;
mod clusters;

/// Copies that a change of members moves.
fn moved(before: (&Topology, &Ring), after: (&Topology, &Ring)) -> usize {
    after.1.arrivals(after.0, before).iter().sum()
}

#[test]
fn what_arrives_is_what_was_not_there() {
    let (two, four) = (topology(1, 0..2, 256), topology(1, 0..4, 256));
    let (small, large) = (Ring::new(&two), Ring::new(&four));
    assert_eq!(large.arrivals(&four, (&four, &large)), [0; 4]);
    let arrivals = large.arrivals(&four, (&two, &small));
    let kept: usize = (0..2).map(|i| large.load(MemberIndex(i), 3)).sum();
    // Two members hold everything before; they keep the copies that they still own.
    assert_eq!(arrivals[..2], [0, 0]);
    assert_eq!(arrivals[2] + arrivals[3] + kept, 768);
    // And the other way, two get everything that they did not keep.
    assert_eq!(moved((&four, &large), (&two, &small)), 512 - kept);
}

/// How far the worst member is from its share, in units of the tolerance.
fn worst_load(topology: &Topology, ring: &Ring, copies: u8) -> f64 {
    let off = |i| {
        let share = ring.share(MemberIndex(i), copies).expect("it is balanced");
        let load = ring.load(MemberIndex(i), copies) as f64;
        (load - share).abs() / (share * TOLERANCE).max(1.0)
    };
    (0..topology.len()).map(off).fold(0.0, f64::max)
}

#[test]
fn every_member_has_its_share_in_clusters_of_2_to_100() {
    let mut worst = [0f64; 3];
    for n in 2..=100 {
        let topology = topology(n as u64, 0..n, 256);
        let ring = Ring::new(&topology);
        for copies in 1..=topology.copies() {
            let off = worst_load(&topology, &ring, copies);
            worst[usize::from(copies) - 1] = worst[usize::from(copies) - 1].max(off);
        }
    }
    println!("worst load, in units of 5 % or one partition, for 1, 2, 3 copies: {worst:.2?}");
    assert!(worst.iter().all(|off| *off <= 1.0 + 1e-9), "{worst:?}");
}

/// How far the worst of ten members is from its share by hashing alone, averaged over clusters.
fn uneven(costs_of: impl Fn(&[u8; 16], &Member) -> Vec<i64>) -> f64 {
    const CLUSTERS: u64 = 24;
    let of = |seed| {
        let topology = topology(seed, 0..10, 256);
        let members = topology.members().iter();
        let costs: Vec<Vec<i64>> = members.map(|m| costs_of(&topology.hash_key(), m)).collect();
        let chosen = choose(&Problem {
            costs: &costs,
            zones: &zones(topology.members()),
            allowed: &[(1 << 10) - 1; 256],
            bounds: &vec![0..=256; 10],
            copies: 3,
        });
        let load = |member: usize| chosen.iter().filter(|set| **set >> member & 1 == 1).count();
        (0..10)
            .map(|member| (load(member) as f64 / 76.8 - 1.0).abs())
            .fold(0.0, f64::max)
    };
    100.0 * (0..CLUSTERS).map(of).sum::<f64>() / CLUSTERS as f64
}

#[test]
fn even_scores_leave_less_to_correct() {
    let free = uneven(|key, member| {
        let hash = |partition: u16| {
            let mut hasher = SipHasher13::new_with_key(key);
            hasher.write(&partition.to_be_bytes());
            hasher.write(member.url.as_bytes());
            (hasher.finish() >> 2) as i64
        };
        (0..256).map(hash).collect()
    });
    let even = uneven(|key, member| costs::costs(key, member, 256));
    println!(
        "ten members, 256 partitions, by hashing alone: {free:.0} % off the share, {even:.0} % with even scores"
    );
    assert!(even < 0.75 * free, "{free} {even}");
}

/// The copies that adding and removing a member move beyond its share, in per cent of the share. It
/// tells the average and the worst over `seeds` names of clusters.
fn extra(n: usize, partitions: u16, seeds: u64) -> (f64, f64) {
    let (mut sum, mut worst) = (0.0, 0f64);
    for seed in 0..seeds {
        let leaves = (seed as usize * 7 + n) % (n + 1);
        let with = topology(seed, 0..=n, partitions);
        let without = topology(seed, (0..=n).filter(|i| *i != leaves), partitions);
        let (large, small) = (Ring::new(&with), Ring::new(&without));
        let it = with.index_of(&url(seed, leaves)).expect("a member");
        let share = large.share(it, 3).expect("it is balanced");
        let joins = moved((&without, &small), (&with, &large)) as f64;
        let parts = moved((&with, &large), (&without, &small)) as f64;
        // Copies are counted where they arrive: below three members, one that leaves moves none.
        assert!(joins == parts || n < 3, "what came must go");
        let extra = 100.0 * (joins / share - 1.0);
        sum += extra;
        worst = worst.max(extra);
    }
    (sum / seeds as f64, worst)
}

/// The ranges of docs/cli.md, section "A cluster".
#[test]
fn a_member_moves_its_share_and_at_most_a_tenth_more() {
    let ranges = [
        (256u16, 6, (2..=8).collect::<Vec<usize>>()),
        (1024, 2, (2..=19).collect()),
        (4096, 1, vec![2, 9, 19, 29, 39, 49]),
        (16384, 1, vec![99]),
    ];
    for (partitions, seeds, steps) in ranges {
        let figures: Vec<(usize, (f64, f64))> = steps
            .iter()
            .map(|&n| (n, extra(n, partitions, seeds)))
            .collect();
        let average = figures
            .iter()
            .map(|(_, (a, _))| a)
            .fold(f64::MIN, |a, b| a.max(*b));
        let worst = figures
            .iter()
            .map(|(_, (_, w))| w)
            .fold(f64::MIN, |a, b| a.max(*b));
        let last = steps.last().expect("a step") + 1;
        println!(
            "{partitions} partitions, up to {last} members: at most {average:.1} % beyond the share on average, {worst:.1} % in the worst case"
        );
        assert!(average <= 10.0, "{partitions}: {figures:?}");
        assert!(worst <= 15.0, "{partitions}: {figures:?}");
    }
}

/// The tables of released versions: another table under the same layout would lose records.
#[test]
fn the_table_is_the_same_for_ever() {
    let list = [
        "h1:1;zone=a",
        "h2:1;zone=a;weight=3",
        "h3:1;zone=b",
        "h4:1;zone=b",
        "h5:1;zone=c",
        "h6:1",
    ];
    let members = list.iter().map(|text| text.parse().expect("a member"));
    let topology = Topology::new("dendra", members.collect(), 3).expect("a topology");
    let ring = Ring::new(&topology);
    let mut hasher = SipHasher13::new();
    for partition in ring.all() {
        ring.owners(partition)
            .iter()
            .for_each(|member| hasher.write(&[member.0]));
    }
    let keys: Vec<u16> = ["a", "b", "key"]
        .map(|key| ring.partition(key.as_bytes()).0)
        .to_vec();
    assert_eq!(
        (hasher.finish(), keys),
        (7_434_928_531_326_695_767, vec![56, 55, 149])
    );
}

#[test]
fn keys_are_spread_over_all_partitions() {
    let ring = Ring::new(&topology(1, 0..3, 256));
    let mut counts = vec![0u32; 256];
    for i in 0..25_600 {
        counts[ring.partition(format!("user/{i}").as_bytes()).at()] += 1;
    }
    // A hundred each on average, ten the standard deviation.
    assert!(
        counts.iter().all(|count| (50..160).contains(count)),
        "{counts:?}"
    );
}

fn zone_counts(topology: &Topology, owners: &[MemberIndex]) -> Vec<usize> {
    let zones = zones(topology.members());
    let mut counts = vec![0; zones.iter().max().expect("a member") + 1];
    for owner in owners {
        counts[zones[owner.at()]] += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn zones_and_weights_are_kept_for_any_list(
        drawn in proptest::collection::vec((1u16..6, 0usize..6), 1..14), rf in 1u8..6, name in "[a-z]{1,8}",
    ) {
        let member = |(i, (weight, zone)): (usize, &(u16, usize))| Member {
            url: format!("http://h{i}:1"),
            weight: *weight,
            zone: ["", "", "a", "b", "c", "d"][*zone].to_owned(),
        };
        let list: Vec<Member> = drawn.iter().enumerate().map(member).collect();
        let topology = Topology::new(&name, list.clone(), rf).expect("a topology");
        let ring = Ring::new(&topology);
        let turned: Vec<Member> = list.into_iter().rev().collect();
        let other = Topology::new(&name, turned, rf).expect("a topology");
        prop_assert_eq!(&Ring::new(&other), &ring);
        let members: Vec<_> = (0..topology.len()).map(MemberIndex).collect();
        let sizes = zone_counts(&topology, &members);
        for partition in ring.all() {
            let row = ring.owners(partition);
            let mut sorted = row.to_vec();
            sorted.sort();
            prop_assert!(sorted.into_iter().eq((0..topology.len()).map(MemberIndex)));
            for copies in 1..=row.len() {
                let counts = zone_counts(&topology, &row[..copies]);
                let most = counts.iter().max().expect("a zone") - 1;
                // No zone has a second copy before every zone that can has a first.
                let mut zones = counts.iter().zip(&sizes);
                let is_even = zones.all(|(count, size)| *count >= most.min(*size));
                prop_assert!(is_even, "{copies} copies: {counts:?} of {sizes:?}");
            }
        }
        let copies = topology.copies();
        let off = worst_load(&topology, &ring, copies);
        prop_assert!(off <= 1.0 + 1e-9, "{copies} copies: {off}");
    }
}
