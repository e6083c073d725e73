//! Comparisons among the nodes of a small cluster, over stores that differ in every way.
//!
//! Invariants
//! 1. After comparisons of any stores each owner of a record holds its newest version, and the
//!    highest promise.
//! 2. Of equal members each record is read once by both, and little is sent.
//!
//! Not here: the cluster (`world.rs`); clients, crashes and clocks beside it (crate `sim`).

mod looks;
#[path = "../support/mod.rs"]
mod support;
mod world;

use dendra_base::{Cell, CellRef, Key, Prng, Space};
use dendra_node::compare::shared::SharedRecords;
use dendra_node::limits::{COMPARE_AGAIN_US, COMPARE_BUSY_US, COMPARE_GRAIN, COMPARE_TRIES_MAX};
use dendra_node::step::Event;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::{Layout, MemberIndex};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use world::{
    Cluster, FORGET_EVERY_US, SECOND_US, WALL_MS, owners, promise, promised, record, size,
    topology, two_alike, two_with, version,
};

#[test]
fn of_equal_members_each_record_is_read_once_and_little_is_sent() {
    const RECORDS: u64 = 100_000;
    let mut cluster = Cluster::new(3, 3, u64::MAX);
    let mut total = 0;
    for number in 0..RECORDS {
        let mut both = vec![record(number, 5 + number % 7, 3, number % 11 == 0)];
        both.extend((number % 10 == 0).then(|| promise(number, 8)));
        for (key, cell) in both {
            total += size(&key, &cell);
            for site in 0..3 {
                cluster.put(site, key.clone(), cell.clone());
            }
        }
    }
    cluster.connect();
    cluster.run(10 * SECOND_US);
    assert_eq!(cluster.reports(), [], "nothing differs");
    let mut moved = 0;
    for (a, b) in cluster.pairs() {
        assert!(cluster.is_full(a, b), "{a} knows of {b}");
    }
    for site in &cluster.sites {
        // Each member takes part in two comparisons.
        assert_eq!(site.comparisons.read_bytes(), 2 * total);
        moved += site.comparisons.moved_bytes();
    }
    let compared = 3 * total;
    println!("{} bytes compared, {} sent", compared, cluster.crossed);
    assert!(cluster.crossed as u64 * 1_000 < compared);
    let said = moved as f64 / cluster.crossed as f64;
    assert!((0.8..1.25).contains(&said), "the count is right: {said}");
}

#[test]
fn an_empty_member_gets_everything_and_one_lost_record_costs_little() {
    for is_empty in [true, false] {
        let mut cluster = Cluster::new(3, 3, u64::MAX);
        for number in 0..20_000 {
            let (key, cell) = record(number, 5, 3, false);
            let is_lost = is_empty || number == 12_345;
            for site in 0..3 {
                if site > 0 || !is_lost {
                    cluster.put(site, key.clone(), cell.clone());
                }
            }
        }
        cluster.connect();
        cluster.run(60 * SECOND_US);
        assert_eq!(cluster.sites[0].store, cluster.sites[1].store);
        let gained: u64 = cluster.reports().iter().map(|r| r.sent + r.fetched).sum();
        // Two pairs may repair the same record at once.
        let wanted = if is_empty { 20_000 } else { 1 };
        assert!((wanted..=2 * wanted).contains(&gained), "{gained}");
        if !is_empty {
            assert!(cluster.crossed < 12_000, "{} bytes", cluster.crossed);
        }
    }
}

#[test]
fn no_more_bytes_a_second_than_it_was_told() {
    let (mut cluster, total) = two_alike(0..10_000, 100_000);
    let needed_us = total * 10;
    cluster.connect();
    cluster.run(2 * SECOND_US + needed_us * 9 / 10);
    assert!(!cluster.is_full(0, 1));
    cluster.run(5 * SECOND_US + needed_us);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
}

/// Is a comparison of these records faster than the operator said? Beside it, whether one that
/// would take four intervals of the horizons at that speed has ended after one.
fn is_hastened(record: impl Fn(u64) -> (Key, Cell)) -> (bool, bool) {
    const TOLD: u64 = 5_000;
    let (mut cluster, total) = two_with(0..20_000, TOLD, record);
    let as_told_us = total * 1_000_000 / TOLD;
    assert!(as_told_us > 4 * FORGET_EVERY_US);
    cluster.connect();
    cluster.run(5 * SECOND_US + FORGET_EVERY_US);
    let speeds = cluster.sites.iter().map(|site| site.comparisons.speed());
    (speeds.max() > Some(TOLD), cluster.is_full(0, 1))
}

#[test]
fn deletes_that_wait_for_a_horizon_hasten_the_comparison_and_values_do_not() {
    let clock = WALL_MS << 16;
    let of = |is_dead| is_hastened(move |number| record(number, clock, 2, is_dead));
    assert_eq!([of(true), of(false)], [(true, true), (false, false)]);
    let noted = |age| {
        move |number| {
            let (key, mut cell) = promise(number, clock);
            (cell.version.rmw, cell.born) = (1, age);
            (key, cell)
        }
    };
    assert!(is_hastened(noted(clock)).0, "a promise with an age");
    assert!(!is_hastened(noted(0)).0);
}

/// They stay for ever, and so would the haste.
#[test]
fn deletes_that_no_horizon_takes_do_not_hasten_the_comparison() {
    let clock = WALL_MS << 16;
    let of_one_copy = |number| record(number, clock, 1, true);
    assert!(!is_hastened(of_one_copy).0, "fewer copies than the factor");
    // A conditional delete without the ballot that chose it.
    let without_age = |number| {
        let (key, mut cell) = record(number, clock, 2, true);
        cell.version.rmw = 1;
        assert_eq!((cell.born, cell.as_ref().age()), (0, u64::MAX));
        (key, cell)
    };
    assert!(!is_hastened(without_age).0);
    let ended = |copies| {
        move |number| {
            let (key, mut cell) = record(number, clock, copies, false);
            cell.expiry_ms = Some(1);
            (key, cell)
        }
    };
    assert!(!is_hastened(ended(1)).0);
    assert!(is_hastened(ended(2)).0, "a horizon takes those");
}

/// A new epoch with the same members begins at the first two.
fn begin_epoch(cluster: &mut Cluster) {
    let founded = EpochRecord::founded(cluster.layout.topology());
    let ids = founded.members().iter().map(|member| member.id);
    let nodes: Vec<_> = ids.map(|id| (id, u128::from(id.0) + 1)).collect();
    let enrolled = founded.enrolled(&nodes).expect("all are new");
    let layout = Arc::new(Layout::of_record(&enrolled).expect("it has its members"));
    for at in 0..2 {
        let layout = Arc::clone(&layout);
        cluster.waiting.push_back((at, Event::Layout { layout }));
    }
}

#[test]
fn a_look_for_a_comparison_that_was_given_up_does_not_count() {
    let (mut cluster, total) = two_alike(0..100, u64::MAX);
    cluster.are_looks_slow = true;
    cluster.connect();
    cluster.run(4 * SECOND_US);
    begin_epoch(&mut cluster);
    cluster.run(8 * SECOND_US);
    assert_eq!(cluster.looked.len(), 2, "one of each epoch");
    let (at, late) = cluster.looked.pop_front().expect("there are two");
    cluster.waiting.push_back((at, late));
    cluster.run(9 * SECOND_US);
    assert_eq!(cluster.sites[at].comparisons.read_bytes(), 0);
    cluster.are_looks_slow = false;
    cluster.waiting.append(&mut cluster.looked);
    cluster.run(10 * SECOND_US);
    assert_eq!(cluster.sites[at].comparisons.read_bytes(), total);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
}

#[test]
fn a_comparison_begins_anew_with_a_new_epoch() {
    let (mut cluster, total) = two_alike(1..10_000, 100_000);
    let needed_us = total * 10;
    cluster.connect();
    cluster.run(needed_us / 2);
    // Half of the keys are compared. One of them differs from now on, and a new epoch begins.
    let (key, cell) = record(0, 5, 2, false);
    cluster.put(1, key.clone(), cell.clone());
    begin_epoch(&mut cluster);
    cluster.run(2 * SECOND_US + needed_us * 13 / 10);
    assert!(!cluster.is_full(0, 1) && !cluster.is_full(1, 0));
    cluster.run(5 * SECOND_US + needed_us * 16 / 10);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
    assert_eq!(cluster.sites[0].store.get(&key), Some(&cell));
}

#[test]
fn what_cannot_be_read_is_left_out_and_the_rest_is_compared() {
    // 0 leads 2, and 1 leads 0: damage at one that leads, and at one that answers.
    for damaged in [0, 1] {
        let mut cluster = Cluster::new(3, 3, u64::MAX);
        for number in 0..30_000 {
            let (key, cell) = record(number, 5, 3, false);
            for site in 0..3 {
                let lacks = site == 2 && [10, 10_000, 29_000].contains(&number);
                if !lacks {
                    cluster.put(site, key.clone(), cell.clone());
                }
            }
        }
        let (bad, _) = record(10_000, 5, 3, false);
        cluster.sites[damaged].damaged.insert(bad.clone());
        cluster.connect();
        cluster.run(20 * SECOND_US);
        let peers = (0..3).filter(|peer| *peer != damaged);
        for peer in peers {
            assert!(!cluster.is_full(damaged, peer), "{damaged} and {peer}");
        }
        let others: Vec<usize> = (0..3).filter(|at| *at != damaged).collect();
        assert!(cluster.is_full(others[0], others[1]));
        assert_eq!(cluster.sites[2].store.len(), 30_000);
        assert!(cluster.reports().iter().any(|report| report.left_out > 0));
        // Mended by a member: then it counts.
        cluster.sites[damaged].damaged.clear();
        cluster.run(40 * SECOND_US);
        assert!(cluster.pairs().iter().all(|(a, b)| cluster.is_full(*a, *b)));
    }
}

#[test]
fn damage_at_the_member_that_answers_hides_one_range() {
    const DAMAGED: u64 = 10_000;
    // Further away than one range has records.
    let grain = u64::from(COMPARE_GRAIN);
    let lacking = [10, DAMAGED - grain - 1, DAMAGED + grain + 1, 29_000];
    // Of two members 1 asks and 0 answers.
    let mut cluster = Cluster::new(2, 2, u64::MAX);
    for number in 0..30_000 {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(0, key.clone(), cell.clone());
        if !lacking.contains(&number) {
            cluster.put(1, key, cell);
        }
    }
    let (bad, _) = record(DAMAGED, 5, 2, false);
    cluster.sites[0].damaged.insert(bad);
    cluster.connect();
    cluster.run(20 * SECOND_US);
    for number in lacking {
        let (key, _) = record(number, 5, 2, false);
        assert!(cluster.sites[1].store.contains_key(&key), "{number}");
    }
}

#[test]
fn damage_at_the_member_that_asks_hides_one_page() {
    const LACKING: [u64; 2] = [15_000, 29_000];
    let mut cluster = Cluster::new(2, 2, u64::MAX);
    for number in 0..30_000 {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(1, key.clone(), cell.clone());
        if !LACKING.contains(&number) {
            cluster.put(0, key, cell);
        }
    }
    let (bad, _) = record(10, 5, 2, false);
    cluster.sites[1].damaged.insert(bad);
    cluster.connect();
    cluster.run(20 * SECOND_US);
    for number in LACKING {
        let (key, _) = record(number, 5, 2, false);
        assert!(cluster.sites[0].store.contains_key(&key), "{number}");
    }
    assert!(!cluster.is_full(0, 1) && !cluster.is_full(1, 0));
}

#[test]
fn a_store_that_is_busy_is_asked_again() {
    for busy in 0..2 {
        let (mut cluster, total) = two_alike(0..1_000, u64::MAX);
        cluster.sites[busy].busy = COMPARE_TRIES_MAX;
        cluster.connect();
        let tries_us = u64::from(COMPARE_TRIES_MAX + 1) * COMPARE_BUSY_US;
        cluster.run(SECOND_US + COMPARE_AGAIN_US + tries_us);
        assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0), "{busy}");
        let read = cluster.sites[busy].comparisons.read_bytes();
        assert_eq!(read, total, "{busy}");
    }
}

#[test]
fn the_bytes_of_a_repair_count_once() {
    for holder in 0..2 {
        let mut cluster = Cluster::new(2, 2, u64::MAX);
        let mut total = 0;
        for number in 0..50 {
            let (key, _) = record(number, 5, 2, false);
            let value = [b'v'; 10_000];
            let mut cell = CellRef::value(key.as_stored(), version(5), &value).to_owned();
            cell.copies = 2;
            total += size(&key, &cell);
            cluster.put(holder, key, cell);
        }
        cluster.connect();
        cluster.run(10 * SECOND_US);
        assert!(cluster.sites[0].store == cluster.sites[1].store, "{holder}");
        let sites = cluster.sites.iter();
        let moved: u64 = sites.map(|site| site.comparisons.moved_bytes()).sum();
        assert!(
            (total * 9 / 10..total * 11 / 10).contains(&moved),
            "{moved} of {total}, {holder}"
        );
    }
}

#[test]
fn ranges_that_differ_beside_each_other_are_listed_together_and_lists_count() {
    let mut cluster = Cluster::new(2, 2, u64::MAX);
    let mut listed = 0;
    for number in 0..20_000 {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(0, key.clone(), cell.clone());
        if number % 40 == 0 {
            continue;
        }
        listed += (key.raw().len() + 40) as u64;
        cluster.put(1, key, cell);
    }
    cluster.connect();
    cluster.run(20 * SECOND_US);
    assert!(cluster.sites[0].store == cluster.sites[1].store);
    let sites = cluster.sites.iter();
    let moved: u64 = sites.map(|site| site.comparisons.moved_bytes()).sum();
    assert!(moved > listed / 2, "{moved} of {listed}");
    // One for each page, not for each range.
    assert!(cluster.lists <= 10, "{}", cluster.lists);
}

#[test]
fn a_repair_that_fails_is_tried_again_and_the_comparison_is_not_full_before() {
    let mut cluster = Cluster::new(2, 2, u64::MAX);
    for number in 0..100 {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(usize::from(number % 2 == 0), key, cell);
    }
    cluster.sites[0].fails = 3;
    cluster.sites[1].fails = 3;
    cluster.connect();
    cluster.run(4 * SECOND_US);
    let failed: u64 = cluster.reports().iter().map(|report| report.failed).sum();
    assert_eq!(failed, 6);
    assert!(!cluster.is_full(0, 1) && !cluster.is_full(1, 0));
    cluster.run(20 * SECOND_US);
    assert_eq!(cluster.sites[0].store, cluster.sites[1].store);
    assert!(cluster.is_full(0, 1) && cluster.is_full(1, 0));
}

#[test]
fn a_newer_record_of_fewer_copies_goes_to_each_owner_of_an_older_one() {
    const KEYS: u64 = 60;
    let first = EpochRecord::founded(&topology(5, 3));
    let layout = Layout::of_record(&first).expect("its members");
    let mut cluster = Cluster::laid_out(layout, 1 << 30);
    cluster.put_fewer_copies(KEYS);
    cluster.connect();
    cluster.run(300 * SECOND_US);
    for number in 0..KEYS {
        let (key, newer) = record(number, 9, 3, number % 2 == 0);
        for (place, at) in owners(&cluster.layout, &key).into_iter().enumerate() {
            let cell = &cluster.sites[at].store[&key];
            assert_eq!(cell.version, newer.version, "{key:?} at place {place}");
            assert_eq!(cell.kind, newer.kind);
            // A further owner holds it as the owner that it is.
            assert!(place < 3 || cell.copies == 5, "{key:?}: {cell:?}");
        }
    }
    let pairs = cluster.pairs();
    assert!(pairs.iter().all(|(a, b)| cluster.is_full(*a, *b)));
}

#[test]
fn the_bytes_of_a_newer_record_of_fewer_copies_count_once() {
    let first = EpochRecord::founded(&topology(5, 3));
    let layout = Layout::of_record(&first).expect("its members");
    let mut cluster = Cluster::laid_out(layout, u64::MAX);
    for number in 0..60 {
        let (key, old) = record(number, 5, 5, false);
        (0..5).for_each(|at| cluster.put(at, key.clone(), old.clone()));
        let value = [b'v'; 10_000];
        let mut newer = CellRef::value(key.as_stored(), version(9), &value).to_owned();
        newer.copies = 3;
        // The last of the first owners holds it: some further owners ask it, others are sent it.
        let holder = owners(&cluster.layout, &key)[2];
        cluster.put(holder, key, newer);
    }
    cluster.connect();
    cluster.run(300 * SECOND_US);
    let moved: u64 = cluster
        .sites
        .iter()
        .map(|site| site.comparisons.moved_bytes())
        .sum();
    let said = moved as f64 / cluster.crossed as f64;
    assert!(
        (0.8..1.25).contains(&said),
        "{moved} of {}",
        cluster.crossed
    );
}

#[test]
fn two_owners_beyond_the_factor_share_nothing() {
    let first = EpochRecord::founded(&topology(5, 3));
    let layout = Layout::of_record(&first).expect("its members");
    for number in 0..60 {
        let (key, _) = record(number, 5, 5, false);
        let owners = owners(&layout, &key);
        for (a, b) in [(0, 1), (0, 3), (2, 4), (3, 4)] {
            let [one, other] = [a, b].map(|place| MemberIndex(owners[place] as u8));
            let shared = SharedRecords::of(&layout, one, other);
            assert_eq!(shared.has(key.raw(), 5), a < 3, "{a} and {b}");
        }
    }
}

#[test]
fn a_comparison_rests_while_its_store_is_behind() {
    let mut cluster = Cluster::new(2, 2, u64::MAX);
    for number in 0..100 {
        let (key, cell) = record(number, 5, 2, false);
        cluster.put(0, key, cell);
    }
    let pressed = |readiness| Event::Pressed {
        readiness,
        is_strained: false,
    };
    for site in 0..2 {
        let behind = pressed(dendra_base::peer::Readiness::Behind);
        cluster.waiting.push_back((site, behind));
    }
    cluster.connect();
    cluster.run(30 * SECOND_US);
    assert_eq!(cluster.sites[1].store.len(), 0);
    for site in 0..2 {
        let ready = pressed(dendra_base::peer::Readiness::Ready);
        cluster.waiting.push_back((site, ready));
    }
    cluster.run(40 * SECOND_US);
    assert_eq!(cluster.sites[1].store.len(), 100);
}

/// Newest of each key, and the cell that each member should hold of it.
fn judge(cluster: &Cluster, before: &[BTreeMap<Key, Cell>]) -> Result<(), TestCaseError> {
    let keys: BTreeSet<&Key> = before.iter().flat_map(BTreeMap::keys).collect();
    for key in keys {
        let owners = cluster
            .layout
            .ring()
            .owners(cluster.layout.ring().partition(key.raw()));
        let cells = before.iter().filter_map(|store| store.get(key));
        if key.as_stored()[0] == Space::Protocol.byte() {
            let most = cells.map(promised).max().expect("one holds it");
            for owner in &owners[..usize::from(cluster.layout.topology().copies())] {
                let held = cluster.sites[owner.at()].store.get(key).map(promised);
                prop_assert_eq!(held, Some(most));
            }
            continue;
        }
        let newest = cells.max_by_key(|cell| cell.version).expect("one holds it");
        for owner in &owners[..usize::from(newest.copies).min(owners.len())] {
            let held = cluster.sites[owner.at()].store.get(key);
            prop_assert_eq!(held, Some(newest), "{:?} at {:?}", key, owner);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn afterwards_all_owners_hold_the_newest_and_the_highest(
        seed in any::<u64>(), members in 2usize..6, copies in 1u8..6, lost_after in 1u64..400,
        records in 1u64..3_000, differing_permille in 0u64..1_000,
    ) {
        let mut prng = Prng::new(seed);
        let copies = copies.min(members as u8);
        let mut cluster = Cluster::new(members, copies, u64::MAX);
        for number in 0..records {
            let key = 3 * number + prng.below(3);
            let of = copies + prng.below(members as u64 + 1 - u64::from(copies)) as u8;
            let ring = cluster.layout.ring();
            let raw = format!("key{key:09}");
            let owners = ring.owners(ring.partition(raw.as_bytes())).to_vec();
            let differs = prng.below(1_000) < differing_permille;
            for owner in &owners[..usize::from(of)] {
                let hlc = 5 + if differs { prng.below(3) } else { 0 };
                if !(differs && prng.chance(1, 3)) {
                    let (key, cell) = record(key, hlc, of, hlc == 6);
                    cluster.put(owner.at(), key, cell);
                }
            }
            for owner in &owners[..usize::from(copies)] {
                let hlc = 5 + if differs { prng.below(3) } else { 0 };
                if number % 5 == 0 && !(differs && prng.chance(1, 3)) {
                    let (key, cell) = promise(key, hlc);
                    cluster.put(owner.at(), key, cell);
                }
            }
        }
        let before: Vec<BTreeMap<Key, Cell>> =
            cluster.sites.iter().map(|site| site.store.clone()).collect();
        cluster.lost_after = lost_after;
        cluster.connect();
        cluster.run(60 * SECOND_US);
        cluster.link(0, 1, true);
        // A further owner takes records of first owners alone: these may get them only now.
        cluster.run(5_000 * SECOND_US);
        cluster.link(0, 1, true);
        cluster.run(15_000 * SECOND_US);
        judge(&cluster, &before)?;
        for (a, b) in cluster.pairs() {
            prop_assert!(cluster.is_full(a, b), "{} knows of {}", a, b);
        }
    }
}
