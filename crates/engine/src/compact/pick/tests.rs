//! Drawn levels and the plans that are picked for them.

use super::*;
use dendra_base::{Prng, Version};

fn table(id: u64, smallest: &str, largest: &str, bytes: u64) -> TableMeta {
    TableMeta {
        id,
        bytes,
        digest: 0,
        records: 100,
        tombstones: 0,
        expiring: 0,
        smallest: smallest.as_bytes().to_vec(),
        largest: largest.as_bytes().to_vec(),
        version_min: Version::ZERO,
        version_max: Version::MAX,
    }
}

fn options() -> Options {
    Options {
        level0_tables_trigger: 2,
        level1_bytes: 100,
        level_fanout: 10,
        ..Options::for_tests()
    }
}

/// Levels as drawn, padded to the full depth.
fn picked(drawn: &[Vec<TableMeta>]) -> Option<Plan> {
    let mut levels: Vec<Vec<&TableMeta>> = drawn.iter().map(|l| l.iter().collect()).collect();
    levels.resize(crate::tree::LEVELS_MAX, Vec::new());
    pick(&levels, &options())
}

#[test]
fn nothing_is_picked_while_every_level_is_within_its_target() {
    assert_eq!(picked(&[]), None);
    assert_eq!(
        picked(&[vec![table(1, "a", "z", 50)], vec![table(2, "a", "z", 99)]]),
        None
    );
}

#[test]
fn a_full_level_0_goes_down_with_what_it_overlaps() {
    let plan = picked(&[
        vec![table(9, "d", "f", 50), table(8, "e", "h", 50)],
        vec![
            table(1, "a", "c", 10),
            table(2, "d", "d", 10),
            table(3, "g", "k", 10),
            table(4, "l", "z", 10),
        ],
    ]);
    let plan = plan.expect("level 0 has reached its trigger");
    assert_eq!(plan.inputs, [8, 9, 2, 3]);
    assert_eq!((plan.level, plan.is_move), (1, false));
    assert_eq!(plan.reason, PlanReason::Level0Full { tables: 2 });
}

#[test]
fn whole_tables_of_level_0_that_overlap_nothing_are_moved_together() {
    const WHOLE: u64 = 4 << 10;
    assert_eq!(WHOLE * 2, options().table_bytes as u64);
    let mut levels = [
        vec![
            table(9, "a", "b", WHOLE),
            table(8, "c", "e", WHOLE),
            table(7, "d", "f", WHOLE),
            table(6, "m", "n", WHOLE),
            table(5, "x", "y", WHOLE),
            table(4, "z", "z", WHOLE - 1),
        ],
        vec![table(1, "k", "m", 10)],
    ];
    let plan = picked(&levels).expect("level 0 is over its trigger");
    assert_eq!(
        plan.inputs,
        [5, 9],
        "8 overlaps 7, 6 overlaps 1, 4 is small"
    );
    assert_eq!((plan.level, plan.is_move), (1, true));
    levels[0][0].tombstones = 1;
    levels[0][4].expiring = 1;
    let plan = picked(&levels).expect("level 0 is over its trigger");
    assert!(!plan.is_move, "a rewrite of 5 and 9 may drop something");
}

#[test]
fn a_full_level_gives_the_table_that_rewrites_least() {
    let plan = picked(&[
        vec![],
        vec![table(1, "a", "c", 60), table(2, "d", "f", 60)],
        vec![table(3, "a", "b", 500), table(4, "d", "e", 100)],
    ]);
    assert_eq!(plan.expect("level 1 is over its target").inputs, [2, 4]);
}

#[test]
fn a_clean_table_without_overlap_is_moved_and_one_with_tombstones_is_rewritten() {
    let mut levels = [vec![], vec![table(1, "a", "c", 60), table(2, "d", "f", 60)]];
    assert!(picked(&levels).expect("level 1 is over its target").is_move);
    for table in &mut levels[1] {
        table.tombstones = 1;
    }
    assert!(!picked(&levels).expect("level 1 is over its target").is_move);
}

#[test]
fn a_table_of_tombstones_goes_down_when_nothing_else_is_urgent() {
    let mut dead = table(1, "a", "c", 10);
    dead.tombstones = 80;
    let plan = picked(&[vec![], vec![dead], vec![table(2, "a", "z", 10)]]);
    let plan = plan.expect("garbage is collected");
    assert_eq!(plan.reason, PlanReason::Garbage { level: 1 });
    assert_eq!(plan.inputs, [1, 2]);
}

/// Disjoint tables of one level, drawn.
fn drawn_level(prng: &mut Prng, next_id: &mut u64) -> Vec<TableMeta> {
    let mut at = 0;
    let mut tables = Vec::new();
    for _ in 0..prng.below(8) {
        let smallest = at + prng.below(50);
        let largest = smallest + prng.below(50);
        at = largest + 1;
        *next_id += 1;
        let name = |n: u64| format!("{n:06}");
        tables.push(table(
            *next_id,
            &name(smallest),
            &name(largest),
            1 + prng.below(300),
        ));
    }
    tables
}

#[test]
fn every_plan_keeps_its_output_level_disjoint_and_repeats() {
    let (mut plans, mut moves) = (0, 0);
    for seed in 0..2000 {
        let mut prng = Prng::new(seed);
        let mut id = 0;
        let mut levels: Vec<Vec<TableMeta>> =
            (0..4).map(|_| drawn_level(&mut prng, &mut id)).collect();
        if prng.below(2) == 0 {
            for table in &mut levels[0] {
                table.bytes += 8 << 10;
            }
        }
        let plan = picked(&levels);
        assert_eq!(
            plan,
            picked(&levels),
            "seed {seed}: the same levels give the same plan"
        );
        let Some(plan) = plan else { continue };
        plans += 1;
        let inputs: Vec<&TableMeta> = levels
            .iter()
            .flatten()
            .filter(|t| plan.inputs.contains(&t.id))
            .collect();
        assert_eq!(
            inputs.len(),
            plan.inputs.len(),
            "seed {seed}: inputs exist, once each"
        );
        let smallest = inputs
            .iter()
            .map(|t| &t.smallest)
            .min()
            .expect("a plan has inputs");
        let largest = inputs
            .iter()
            .map(|t| &t.largest)
            .max()
            .expect("a plan has inputs");
        let from_above = levels[plan.level - 1]
            .iter()
            .filter(|t| plan.inputs.contains(&t.id));
        assert!(from_above.count() > 0, "seed {seed}: something goes down");
        if plan.is_move {
            moves += u32::from(inputs.len() > 1);
            let apart = inputs.iter().enumerate().all(|(at, table)| {
                let others = &inputs[at + 1..];
                let others = others.iter();
                others
                    .into_iter()
                    .all(|it| it.largest < table.smallest || table.largest < it.smallest)
            });
            assert!(apart, "seed {seed}: moved tables do not overlap");
        }
        // Outputs hold only keys of inputs. So a table left in the output level may lie between two
        // inputs' keys only if no input spans it.
        for other in levels.get(plan.level).into_iter().flatten() {
            let spans = |t: &&TableMeta| t.smallest <= other.largest && other.smallest <= t.largest;
            let is_hit = inputs.iter().any(spans);
            assert!(
                !is_hit || plan.inputs.contains(&other.id),
                "seed {seed}: table {} overlaps the inputs {smallest:?}..{largest:?}",
                other.id
            );
        }
    }
    assert!(plans > 500, "most drawn trees need work: {plans}");
    assert!(moves > 50, "{moves}");
}

#[test]
fn a_crowded_level_0_gives_its_oldest_twelve() {
    let level0 = (1..=20).rev().map(|id| table(id, "a", "z", 50));
    let plan = picked(&[level0.collect()]).expect("level 0 is far over its trigger");
    assert_eq!(plan.inputs, (1..=12).collect::<Vec<u64>>());
}

fn purged(drawn: &[Vec<TableMeta>], horizon: u64) -> Option<Plan> {
    let levels: Vec<Vec<&TableMeta>> = drawn.iter().map(|l| l.iter().collect()).collect();
    let horizon = Version {
        hlc: horizon,
        ..Version::ZERO
    };
    pick_purge(&levels, horizon, 0)
}

#[test]
fn a_table_of_deletes_is_rewritten_in_place_only_when_all_of_them_will_go() {
    let with_versions = |table: TableMeta, min, max| TableMeta {
        tombstones: 60,
        version_min: Version {
            hlc: min,
            ..Version::ZERO
        },
        version_max: Version {
            hlc: max,
            ..Version::ZERO
        },
        ..table
    };
    let deepest = with_versions(table(1, "d", "f", 50), 10, 20);
    let levels = |above: TableMeta| [vec![above], vec![], vec![deepest.clone()]];
    let newer = with_versions(table(2, "e", "z", 50), 21, 30);
    let older = with_versions(table(3, "e", "z", 50), 20, 30);
    let elsewhere = with_versions(table(4, "g", "z", 50), 1, 30);
    let plan = purged(&levels(newer.clone()), 20).expect("all of them will go");
    assert_eq!((plan.inputs, plan.level), (vec![1], 2));
    assert_eq!(purged(&levels(newer), 19), None, "one is above the horizon");
    assert_eq!(purged(&levels(older), 20), None, "one may hide something");
    assert!(purged(&levels(elsewhere), 20).is_some());
    let few = TableMeta {
        tombstones: 50,
        ..deepest.clone()
    };
    assert_eq!(purged(&[vec![], vec![few]], 20), None, "half is not most");
    assert_eq!(
        purged(&[vec![deepest]], 20),
        None,
        "level 0 has its own trigger"
    );
}

/// Levels as drawn, padded to the full depth.
fn padded(drawn: &[Vec<TableMeta>]) -> Vec<Vec<&TableMeta>> {
    let mut levels: Vec<Vec<&TableMeta>> = drawn.iter().map(|l| l.iter().collect()).collect();
    levels.resize(crate::tree::LEVELS_MAX, Vec::new());
    levels
}

fn newest_at(mut table: TableMeta, hlc: u64) -> TableMeta {
    table.version_max = Version {
        hlc,
        ..Version::ZERO
    };
    table
}

#[test]
fn the_table_of_which_deletes_hide_most_is_written_anew_once_for_them() {
    let mut deletes = newest_at(table(9, "a", "m", 10), 50);
    deletes.tombstones = 100;
    let drawn = [
        vec![deletes],
        vec![newest_at(table(1, "n", "z", 900), 40)],
        vec![
            newest_at(table(2, "a", "f", 100), 20),
            newest_at(table(3, "g", "k", 300), 20),
            newest_at(table(4, "o", "p", 300), 20),
        ],
    ];
    let mut levels = padded(&drawn);
    let picked = scarce::pick_reclaim(&levels, |_, _| true).expect("deletes are above 2 and 3");
    assert_eq!(picked.plan.inputs, [3]);
    assert_eq!((picked.plan.level, picked.plan.is_move), (2, false));
    assert_eq!(picked.newest_above, drawn[0][0].version_max);
    let next = scarce::pick_reclaim(&levels, |table, _| table.id != 3);
    assert_eq!(
        next.expect("there is another").plan.inputs,
        [4],
        "overwrites"
    );
    levels[0].clear();
    levels[1].clear();
    assert_eq!(scarce::pick_reclaim(&levels, |_, _| true), None);
    let mut expiring = table(5, "q", "r", 10);
    expiring.expiring = 2;
    levels[2].push(&expiring);
    let picked = scarce::pick_reclaim(&levels, |_, _| true).expect("values may have ended");
    assert_eq!(picked.plan.inputs, [5]);
}

#[test]
fn tables_of_level_0_are_written_anew_for_newer_ones_alone() {
    let mut old = newest_at(table(3, "a", "z", 500), 10);
    old.version_min = Version {
        hlc: 5,
        ..Version::ZERO
    };
    let mut deletes = newest_at(table(2, "a", "z", 20), 30);
    deletes.version_min = Version {
        hlc: 20,
        ..Version::ZERO
    };
    deletes.tombstones = 100;
    let drawn = [vec![deletes, old]];
    let levels = padded(&drawn);
    let picked = scarce::pick_reclaim(&levels, |_, _| true).expect("the older one is hidden");
    assert_eq!(picked.plan.inputs, [3]);
    assert_eq!(picked.newest_above.hlc, 30);
    assert_eq!(scarce::pick_reclaim(&levels, |t, _| t.id == 2), None);
}

#[test]
fn without_room_for_all_of_level_0_less_of_it_goes() {
    let drawn = [
        vec![
            table(9, "a", "z", 30),
            table(8, "a", "z", 10),
            table(7, "a", "c", 50),
        ],
        vec![table(1, "a", "b", 40), table(2, "d", "z", 50)],
    ];
    let levels = padded(&drawn);
    let options = options();
    let whole = pick(&levels, &options).expect("level 0 is over its trigger");
    assert_eq!(scarce::room_for(&levels, &whole), 180);
    let plan = scarce::pick_level0_within(&levels, &options, 90).expect("the oldest goes down");
    assert_eq!((plan.inputs, plan.level), (vec![7, 1], 1));
    let plan = scarce::pick_level0_within(&levels, &options, 89).expect("the smallest become one");
    assert_eq!((plan.inputs, plan.level), (vec![8, 9], 0));
    assert_eq!(scarce::pick_level0_within(&levels, &options, 39), None);
    let moved = Plan {
        is_move: true,
        ..whole
    };
    assert_eq!(scarce::room_for(&levels, &moved), 0);
}
