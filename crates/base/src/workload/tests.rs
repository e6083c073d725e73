//! Frequencies against theory, and that a request depends only on its number.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn workload(name: &str, keys: u64) -> Workload {
    Workload::named(name, keys, 7).expect("the name is known")
}

#[test]
fn every_name_is_a_workload_that_makes_sense() {
    for name in Workload::NAMES {
        assert_eq!(workload(name, 10).check(), Ok(()), "{name}");
    }
    assert_eq!(Workload::named("ycsb-g", 10, 0), None);
}

#[test]
fn a_seed_gives_the_same_requests_for_ever() {
    let requests: Vec<(RequestKind, u64)> = (0..4)
        .map(|i| workload("ycsb-d", 1000).request(i))
        .map(|request| (request.operation, request.key))
        .collect();
    let expected = [
        (RequestKind::Get, 714),
        (RequestKind::Get, 972),
        (RequestKind::Get, 30),
        (RequestKind::Get, 954),
    ];
    assert_eq!(requests, expected);
}

#[test]
fn shares_of_operations_are_those_of_ycsb() {
    let count = 20_000u64;
    for (name, op, share) in [
        ("ycsb-a", RequestKind::Put, 0.5),
        ("ycsb-b", RequestKind::Put, 0.05),
        ("ycsb-c", RequestKind::Get, 1.0),
        ("ycsb-d", RequestKind::Insert, 0.05),
        ("ycsb-e", RequestKind::Scan, 0.95),
        ("ycsb-f", RequestKind::ReadModifyWrite, 0.5),
    ] {
        let workload = workload(name, 1000);
        let hits = (0..count).filter(|&i| workload.request(i).operation == op);
        let seen = hits.count() as f64 / count as f64;
        // Four standard deviations of the widest, a share of one half.
        assert!((seen - share).abs() < 0.0142, "{name}: {seen} for {share}");
    }
}

#[test]
fn zipfian_frequencies_follow_theory() {
    for exponent in [0.5, 0.99, 1.0, 1.5] {
        let (len, draws) = (1000u64, 200_000u32);
        let mut prng = Prng::new(3);
        let mut seen = vec![0u32; 1000];
        for _ in 0..draws {
            seen[usize::try_from(zipf_rank(&mut prng, len, exponent)).expect("below 1000")] += 1;
        }
        let sum: f64 = (1..=len).map(|k| (k as f64).powf(-exponent)).sum();
        // Chi-squared over all ranks, expected value 999, standard deviation 45.
        let chi: f64 = (1..=len)
            .zip(&seen)
            .map(|(k, &count)| {
                let expected = f64::from(draws) * (k as f64).powf(-exponent) / sum;
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum();
        assert!((800.0..1200.0).contains(&chi), "exponent {exponent}: {chi}");
    }
}

#[test]
fn the_popular_keys_lie_scattered_and_the_latest_lie_at_the_end() {
    let popular = |name: &str| {
        let workload = workload(name, 10_000);
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for i in 0..5000 {
            let request = workload.request(i);
            if request.operation == RequestKind::Get {
                *seen.entry(request.key).or_default() += 1;
            }
        }
        let mut keys: Vec<(u32, u64)> = seen.into_iter().map(|(key, n)| (n, key)).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.into_iter()
            .take(5)
            .map(|(_, key)| key)
            .collect::<Vec<_>>()
    };
    let scattered = popular("ycsb-c");
    assert!(scattered.iter().any(|&key| key > 2000), "{scattered:?}");
    let latest = popular("ycsb-d");
    assert!(latest.iter().all(|&key| key > 9000), "{latest:?}");
}

#[test]
fn a_hot_spot_gets_its_share() {
    let mut workload = workload("get", 1000);
    workload.distribution = Distribution::Hotspot {
        keys: 0.1,
        requests: 0.9,
    };
    let hot: HashSet<u64> = (0..100).map(|rank| shuffled(rank, 1000, 7)).collect();
    let hits = (0..10_000).filter(|&i| hot.contains(&workload.request(i).key));
    let share = hits.count() as f64 / 10_000.0;
    assert!((share - 0.9).abs() < 0.012, "{share}");
}

#[test]
fn inserts_join_without_gaps_and_only_once() {
    let workload = workload("ycsb-d", 100);
    let mut inserted: Vec<u64> = (0..10_000)
        .map(|i| workload.request(i))
        .filter(|request| request.operation == RequestKind::Insert)
        .map(|request| request.key)
        .collect();
    inserted.sort_unstable();
    assert_eq!(inserted, (100..600).collect::<Vec<u64>>());
    assert_eq!(workload.records_before(10_000), 600);
}

#[test]
fn a_miss_lies_between_the_stored_keys() {
    for order in [KeyOrder::Hashed, KeyOrder::Ordered] {
        let mut workload = workload("get", 1000);
        workload.miss_ratio = 0.5;
        workload.order = order;
        let bytes = |number: u64| {
            let mut out = Vec::new();
            workload.key_into(number, &mut out);
            assert_eq!(out.len(), KEY_BYTES);
            out
        };
        let stored: HashSet<Vec<u8>> = (0..1000).map(bytes).collect();
        assert_eq!(stored.len(), 1000);
        let last = stored.iter().max().expect("there are some");
        let asked: Vec<Vec<u8>> = (0..4000).map(|i| bytes(workload.request(i).key)).collect();
        let missing: Vec<_> = asked.iter().filter(|key| !stored.contains(*key)).collect();
        assert!((1850..2150).contains(&missing.len()), "{}", missing.len());
        let inside = missing.iter().filter(|key| *key < &last).count();
        assert!(inside > 1700, "{order:?}: {inside}");
    }
}

#[test]
fn half_of_lognormal_sizes_are_below_the_median() {
    let mut workload = workload("put", 10);
    workload.sizes = Sizes::LogNormal {
        median: 1000,
        sigma: 1.0,
        max: 100_000,
    };
    let sizes: Vec<u32> = (0..10_000)
        .map(|i| workload.request(i).value_bytes)
        .collect();
    let below = sizes.iter().filter(|&&bytes| bytes < 1000).count();
    assert!((4800..5200).contains(&below), "{below}");
    // One standard deviation above the median: 84.1 %.
    let below = sizes.iter().filter(|&&bytes| bytes < 2718).count();
    assert!((8250..8570).contains(&below), "{below}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let edits: [fn(&mut Workload); 5] = [
        |w| w.mix = [0.0; OPERATIONS],
        |w| w.keys = 0,
        |w| w.miss_ratio = 1.5,
        |w| w.distribution = Distribution::Zipfian { exponent: 0.0 },
        |w| w.sizes = Sizes::Uniform { min: 2, max: 1 },
    ];
    for edit in edits {
        let mut workload = workload("get", 10);
        edit(&mut workload);
        assert!(workload.check().is_err(), "{workload:?}");
    }
}

proptest! {
    #[test]
    fn shuffling_is_a_bijection(len in 1u64..500, seed: u64) {
        let all: HashSet<u64> = (0..len).map(|i| shuffled(i, len, seed)).collect();
        prop_assert_eq!(all.len() as u64, len);
        prop_assert!(all.iter().all(|&i| i < len));
    }

    #[test]
    fn every_key_is_in_range_whatever_the_workload(
        name in prop::sample::select(&Workload::NAMES[..]),
        keys in 1u64..5000,
        seed: u64,
        index in 0u64..1_000_000_000,
    ) {
        let workload = Workload::named(name, keys, seed).expect("the name is known");
        let request = workload.request(index);
        prop_assert_eq!(request, workload.clone().request(index));
        let limit = if request.operation == RequestKind::Insert {
            workload.records_before(index + BLOCK)
        } else {
            workload.records_before(index)
        };
        prop_assert!(request.key < limit, "{:?}", request);
    }

    #[test]
    fn the_integral_and_its_inverse_agree(x in 1f64..1e6, exponent in 0.01f64..1.5) {
        let back = power_integral_inverse(power_integral(x, exponent), exponent);
        prop_assert!((back / x - 1.0).abs() < 1e-9, "{x} -> {back}");
    }
}
