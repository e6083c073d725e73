//! Looks of an operator over stores that differ: their counts are right, and no record changes.
//!
//! Invariants
//! 1. After a look each store is as before, but for the test's own puts.
//!
//! Not here: repairs (`main.rs`), the cluster (`world.rs`).

use super::begin_epoch;
use super::world::{Cluster, SECOND_US, promise, record, topology, two_alike, version};
use dendra_base::{Cell, CellRef, Key};
use dendra_node::limits::{COMPARE_TRIES_MAX, LOOK_AGAIN_US, LOOK_EXAMPLES_MAX};
use dendra_node::step::Event;
use dendra_node::{CopyDifference, LookOrder, LookReport, PairState};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::{Layout, MemberIndex};
use std::collections::BTreeMap;

fn look(cluster: &mut Cluster, at: usize, with: &[usize]) {
    let order = Some(LookOrder {
        id: 7,
        peers: with.iter().map(|at| MemberIndex(*at as u8)).collect(),
        bytes_per_second: u64::MAX,
    });
    cluster.waiting.push_back((at, Event::Look { order }));
}

fn report(cluster: &mut Cluster, at: usize) -> LookReport {
    let report = cluster.sites[at].node.take_look().expect("there is news");
    assert_eq!(report.id, 7);
    report
}

/// The counts with one peer, in the order of `CopyDifference::ALL`.
fn counts(report: &LookReport, pair: usize) -> [u64; 6] {
    CopyDifference::ALL.map(|kind| report.pairs[pair].count(kind))
}

fn stores(cluster: &Cluster) -> Vec<BTreeMap<Key, Cell>> {
    let sites = cluster.sites.iter();
    sites.map(|site| site.store.clone()).collect()
}

/// Three members with the same records, that compare none by themselves.
fn three_alike(records: u64) -> Cluster {
    let mut cluster = Cluster::new(3, 3, 0);
    for number in 0..records {
        for site in 0..3 {
            let (key, cell) = record(number, 5, 3, number % 9 == 0);
            cluster.put(site, key, cell);
        }
    }
    cluster.connect();
    cluster
}

#[test]
fn a_look_counts_each_way_to_differ_and_changes_nothing() {
    let mut cluster = three_alike(5_000);
    let mut put = |site, (key, cell)| cluster.put(site, key, cell);
    put(0, record(10, 9, 3, false));
    for number in 1_000..1_200 {
        put(1, record(number, 9, 3, true));
    }
    put(1, record(5_001, 5, 3, false));
    (6_000..6_003).for_each(|number| put(0, record(number, 5, 3, false)));
    let (key, _) = record(50, 5, 3, false);
    let mut other = CellRef::value(key.as_stored(), version(5), b"of one version").to_owned();
    other.copies = 3;
    put(1, (key, other));
    put(0, promise(7, 9));
    put(0, promise(8, 9));
    put(1, promise(8, 10));
    let before = stores(&cluster);
    look(&mut cluster, 0, &[1, 2]);
    cluster.run(60 * SECOND_US);
    let found = report(&mut cluster, 0);
    assert!(found.is_over);
    assert_eq!(counts(&found, 0), [1, 200, 1, 3, 1, 2]);
    assert_eq!(counts(&found, 1), [1, 0, 0, 3, 0, 2]);
    for pair in &found.pairs {
        assert_eq!((pair.state, pair.left_out), (PairState::Compared, 0));
        assert!(pair.bytes > 0);
    }
    let (key, _) = record(10, 9, 3, false);
    let first = (key.raw(), CopyDifference::NewerHere);
    let examples = &found.pairs[0].examples;
    assert_eq!((&examples[0].0[..], examples[0].1), first);
    assert_eq!(examples.len(), LOOK_EXAMPLES_MAX);
    assert_eq!(found.pairs[1].examples.len(), 6);

    look(&mut cluster, 1, &[0]);
    cluster.run(120 * SECOND_US);
    let back = report(&mut cluster, 1);
    assert_eq!(counts(&back, 0), [200, 1, 3, 1, 1, 2]);
    assert_eq!(stores(&cluster), before);
    assert_eq!(cluster.reports(), []);
    assert!(
        cluster
            .pairs()
            .iter()
            .all(|(a, b)| !cluster.is_full(*a, *b))
    );
    assert!(cluster.sites[0].node.take_look().is_none(), "it was told");
}

#[test]
fn a_write_under_way_is_no_difference_and_a_copy_that_stays_behind_is_one() {
    let mut cluster = three_alike(100);
    for number in 10..14 {
        let (key, cell) = record(number, 7, 3, false);
        cluster.put(0, key, cell);
    }
    look(&mut cluster, 0, &[1]);
    cluster.run(2 * SECOND_US);
    let first = report(&mut cluster, 0);
    assert!(!first.is_over, "it looks twice");
    assert_eq!(counts(&first, 0), [0; 6]);
    // It arrives, another one overtakes it, the lagging copy gets an earlier one, or none.
    for (site, number, hlc) in [(1, 10, 7), (1, 11, 8), (0, 12, 9), (1, 12, 8), (0, 13, 9)] {
        let (key, cell) = record(number, hlc, 3, false);
        cluster.put(site, key, cell);
    }
    cluster.run(2 * SECOND_US + LOOK_AGAIN_US);
    let second = report(&mut cluster, 0);
    assert!(second.is_over);
    assert_eq!(counts(&second, 0), [1, 0, 0, 0, 0, 0]);
    let (key, _) = record(13, 9, 3, false);
    assert_eq!(second.pairs[0].examples[0].0, key.raw());
}

#[test]
fn more_differences_than_memory_for_suspects_are_all_counted() {
    const RECORDS: u64 = 100_000;
    let mut cluster = Cluster::new(2, 2, 0);
    for number in 0..RECORDS {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(1, key, cell);
    }
    cluster.connect();
    look(&mut cluster, 0, &[1]);
    cluster.run(600 * SECOND_US);
    let found = report(&mut cluster, 0);
    assert!(found.is_over);
    assert_eq!(counts(&found, 0), [0, 0, RECORDS, 0, 0, 0]);
    assert!(cluster.sites[0].store.is_empty());
}

#[test]
fn a_newer_record_of_fewer_copies_is_found_from_both_sides() {
    const KEYS: u64 = 60;
    let first = EpochRecord::founded(&topology(5, 3));
    let layout = Layout::of_record(&first).expect("its members");
    let mut cluster = Cluster::laid_out(layout, 0);
    cluster.put_fewer_copies(KEYS);
    let before = stores(&cluster);
    cluster.connect();
    for at in 0..5 {
        let others: Vec<usize> = (0..5).filter(|other| *other != at).collect();
        look(&mut cluster, at, &others);
    }
    cluster.run(300 * SECOND_US);
    let mut all = [0; 6];
    for at in 0..5 {
        let found = report(&mut cluster, at);
        assert!(found.is_over);
        for pair in 0..4 {
            let counts = counts(&found, pair);
            all.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
    }
    // Each other owner holds an older one.
    assert_eq!(all, [4 * KEYS, 4 * KEYS, 0, 0, 0, 0]);
    assert_eq!(stores(&cluster), before);
}

#[test]
fn the_own_comparison_rests_meanwhile_and_goes_on_from_its_place() {
    let (mut cluster, total) = two_alike(0..60_000, 1_000_000);
    let needed_us = total;
    cluster.connect();
    cluster.run(2 * SECOND_US + needed_us / 2);
    let leader = match cluster.sites[1].comparisons.moved_bytes() {
        0 => 0,
        _ => 1,
    };
    let half = cluster.sites[leader].comparisons.read_bytes();
    assert!(half > 0 && half < total);
    look(&mut cluster, leader, &[1 - leader]);
    cluster.run(cluster.now_us + SECOND_US);
    let found = report(&mut cluster, leader);
    assert!(found.is_over);
    assert_eq!((counts(&found, 0), found.pairs[0].bytes), ([0; 6], total));
    assert!(!cluster.is_full(0, 1), "a look is no comparison");
    cluster.run(cluster.now_us + 2 * needed_us);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
    assert_eq!(cluster.sites[leader].comparisons.read_bytes(), 2 * total);
}

#[test]
fn a_look_that_is_wanted_no_more_ends_and_the_own_comparison_goes_on() {
    let (mut cluster, total) = two_alike(0..60_000, 1_000_000);
    cluster.connect();
    cluster.run(3 * SECOND_US);
    for leader in 0..2 {
        let order = Some(LookOrder {
            id: 7,
            peers: vec![MemberIndex(1 - leader as u8)],
            bytes_per_second: 1,
        });
        cluster.waiting.push_back((leader, Event::Look { order }));
    }
    cluster.run(20 * SECOND_US);
    assert!(!cluster.is_full(0, 1));
    for at in 0..2 {
        assert!(!report(&mut cluster, at).is_over);
        cluster.waiting.push_back((at, Event::Look { order: None }));
    }
    cluster.run(25 * SECOND_US + total);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
    assert!((0..2).all(|at| cluster.sites[at].node.take_look().is_none()));
}

#[test]
fn a_look_says_what_it_has_not_seen_and_begins_a_pair_anew_with_an_epoch() {
    let mut cluster = three_alike(4_000);
    cluster.link(0, 1, false);
    look(&mut cluster, 0, &[1, 2]);
    cluster.run(30 * SECOND_US);
    let found = report(&mut cluster, 0);
    assert!(found.is_over);
    let states = |found: &LookReport| [found.pairs[0].state, found.pairs[1].state];
    assert_eq!(states(&found), [PairState::Unreached, PairState::Compared]);

    cluster.link(0, 1, true);
    cluster.sites[0].busy = COMPARE_TRIES_MAX + 1;
    look(&mut cluster, 0, &[1, 2]);
    cluster.run(60 * SECOND_US);
    let found = report(&mut cluster, 0);
    assert_eq!(states(&found), [PairState::Unreached, PairState::Compared]);

    let (key, _) = record(100, 5, 3, false);
    cluster.sites[1].damaged.insert(key);
    look(&mut cluster, 0, &[1, 2]);
    cluster.run(90 * SECOND_US);
    let found = report(&mut cluster, 0);
    assert_eq!(states(&found), [PairState::Compared; 2]);
    assert!(found.pairs[0].left_out > 0 && found.pairs[1].left_out == 0);

    let (mut cluster, _) = two_alike(0..100, 0);
    cluster.are_looks_slow = true;
    cluster.connect();
    look(&mut cluster, 0, &[1]);
    cluster.run(4 * SECOND_US);
    begin_epoch(&mut cluster);
    cluster.run(8 * SECOND_US);
    assert_eq!(cluster.looked.len(), 2, "one of each epoch");
    cluster.are_looks_slow = false;
    cluster.waiting.append(&mut cluster.looked);
    cluster.run(12 * SECOND_US);
    assert!(report(&mut cluster, 0).is_over);
}

#[test]
fn what_one_member_may_have_purged_is_no_difference() {
    let first = EpochRecord::founded(&topology(3, 3));
    let mut epoch = first;
    for floor in 101..107 {
        epoch = epoch.forgot(floor).expect("horizons rise");
    }
    let layout = Layout::of_record(&epoch).expect("its members");
    let mut cluster = Cluster::laid_out(layout, 0);
    // Beside each other, so that one range has both.
    for (number, hlc) in [(1, 101), (2, 102)] {
        let (key, mut gone) = record(number, hlc, 3, true);
        gone.born = hlc;
        cluster.put(0, key, gone);
        let (key, noted) = promise(number, hlc);
        cluster.put(0, key, noted);
    }
    cluster.connect();
    look(&mut cluster, 0, &[1]);
    look(&mut cluster, 1, &[0]);
    cluster.run(60 * SECOND_US);
    let here = report(&mut cluster, 0);
    assert_eq!(counts(&here, 0), [0, 0, 0, 1, 0, 1]);
    assert_eq!(here.pairs[0].examples[0].0, record(2, 5, 3, true).0.raw());
    let there = report(&mut cluster, 1);
    assert_eq!(counts(&there, 0), [0, 0, 1, 0, 0, 1]);
}
