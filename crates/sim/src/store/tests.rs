use super::*;
use crate::plan::RunPlan;
use dendra_base::peer::Condition;
use dendra_base::{CellRef, Guard};

fn draw_write(prng: &mut Prng) -> StoreWrite {
    let key = Key::user(format!("k{}", prng.below(6)).as_bytes());
    let version = |prng: &mut Prng| Version {
        hlc: 1 + prng.below(40),
        origin: prng.below(2) as u32,
        rmw: 0,
    };
    let own = version(prng);
    // One version, one content: as it is everywhere outside of this test.
    let mut cell = match own.hlc % 4 {
        0 => CellRef::tombstone(key.as_stored(), own).to_owned(),
        _ => CellRef::value(key.as_stored(), own, b"v").to_owned(),
    };
    if own.hlc % 4 == 1 {
        cell.expiry_ms = Some(own.hlc);
    }
    let guard = match prng.below(8) {
        0..3 => Guard::Newest,
        3 => Guard::If(Condition::Present),
        4 => Guard::If(Condition::Absent),
        5 => Guard::If(Condition::Differs(version(prng))),
        6 => Guard::If(Condition::Matches(version(prng))),
        _ => Guard::If(Condition::Absent),
    };
    StoreWrite { key, cell, guard }
}

#[test]
fn the_map_and_the_engine_agree() {
    let shape = RunPlan::draw(1).shape;
    let identity = Identity { node: 1, origin: 1 };
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let open = |kind| Store::open(&Disk::new(kind), &shape, identity).expect("a new folder");
        let mut map = open(StoreKind::Map);
        let mut engine = open(StoreKind::Engine);
        for now_ms in 0..60 {
            let count = 1 + prng.below(3);
            // One write per key and commit: inside of one batch the engine's rules are its own.
            let mut writes: Vec<StoreWrite> = (0..count).map(|_| draw_write(&mut prng)).collect();
            writes.sort_by(|a, b| a.key.cmp(&b.key));
            writes.dedup_by(|a, b| a.key == b.key);
            let expected = map.commit(&writes, now_ms);
            assert_eq!(
                engine.commit(&writes, now_ms),
                expected,
                "seed {seed}: {writes:?}"
            );
            engine.maintain(1 << 20, now_ms, now_ms);
            for number in 0..6 {
                let key = Key::user(format!("k{number}").as_bytes());
                assert_eq!(engine.read(&key), map.read(&key), "seed {seed}: {writes:?}");
            }
        }
        for is_reverse in [false, true] {
            let pages = |store: &Store| {
                let mut all = Vec::new();
                let mut range = PageRange {
                    start: if is_reverse {
                        Key::user(b"k5")
                    } else {
                        Key::user(b"k1")
                    },
                    end: Some(if is_reverse {
                        Key::user(b"k1")
                    } else {
                        Key::user(b"k5")
                    }),
                    is_reverse,
                    bytes: 70,
                };
                loop {
                    let (records, rest) = store.page(&range).expect("nothing is damaged");
                    all.extend(records);
                    match rest {
                        Some(rest) => range.start = rest,
                        None => return all,
                    }
                }
            };
            assert_eq!(pages(&engine), pages(&map), "seed {seed}");
        }
    }
}

#[test]
fn a_commit_survives_every_crash_and_a_damaged_cell_is_an_error() {
    let shape = RunPlan::draw(1).shape;
    let identity = Identity { node: 1, origin: 1 };
    for kind in [StoreKind::Map, StoreKind::Engine] {
        for how in [Crash::PowerLoss, Crash::Killed] {
            let mut prng = Prng::new(7);
            let key = Key::user(b"k");
            let version = Version {
                hlc: 9,
                origin: 1,
                rmw: 0,
            };
            let cell = CellRef::value(key.as_stored(), version, b"v").to_owned();
            let write = StoreWrite {
                key: key.clone(),
                cell: cell.clone(),
                guard: Guard::Newest,
            };
            let mut store = Store::open(&Disk::new(kind), &shape, identity).expect("a new folder");
            store.raise_hlc_ceiling(77);
            let (fate, _) = store.commit(&[write], 1);
            assert_eq!(fate, Fate::Alive);
            let disk = store.crash(how, &[], 1, &mut prng);
            let mut store = Store::open(&disk, &shape, identity).expect("it opens after a crash");
            assert_eq!(store.read(&key), Ok(Some(cell)));
            assert!(store.hlc_floor() >= 77, "{kind:?}");
            let mut is_damaged = false;
            for _ in 0..200 {
                store.rot(&mut prng);
                is_damaged |= store.read(&key) == Err(StoreFailure::Damaged);
            }
            assert!(is_damaged || kind == StoreKind::Engine);
        }
    }
}

#[test]
fn while_reads_fail_nothing_is_known_and_nothing_is_absent() {
    let shape = RunPlan::draw(1).shape;
    let identity = Identity { node: 1, origin: 1 };
    for kind in [StoreKind::Map, StoreKind::Engine] {
        let mut store = Store::open(&Disk::new(kind), &shape, identity).expect("a new folder");
        let keys: Vec<Key> = (0..200)
            .map(|number| Key::user(format!("k{number}").as_bytes()))
            .collect();
        for (hlc, key) in (1..).zip(&keys) {
            let version = Version {
                hlc,
                origin: 1,
                rmw: 0,
            };
            let cell = CellRef::value(key.as_stored(), version, &[7; 40]).to_owned();
            let (key, guard) = (key.clone(), Guard::Newest);
            store.commit(&[StoreWrite { key, cell, guard }], 1);
            store.maintain(1 << 20, 1, 1);
        }
        // Writes of an earlier life are not in memory any more.
        let disk = store.crash(Crash::Killed, &[], 1, &mut Prng::new(7));
        let mut store = Store::open(&disk, &shape, identity).expect("a folder");
        store.fail_reads(true);
        let failed = keys.iter().filter(|key| match store.read(key) {
            Ok(cell) => {
                assert!(cell.is_some(), "{kind:?}: {key:?} is said not to be there");
                false
            }
            Err(failure) => failure == StoreFailure::Damaged,
        });
        assert!(
            failed.count() > 0,
            "{kind:?}: every read is answered from memory"
        );
        store.heal();
        let is_there = |key: &Key| matches!(store.read(key), Ok(Some(_)));
        assert!(keys.iter().all(is_there), "{kind:?}");
    }
}
