//! An import on a disk in memory: crashes, failures, and pages that come twice, late or too early.

use super::*;
use crate::legal;
use dendra_base::Kind;
use dendra_engine::vfs::Wait;
use dendra_engine::vfs::faulty::{Call, CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Identity, Lookup, Options};
use proptest::prelude::*;
use std::sync::Arc;

const HLC: u64 = 1 << 57;

proptest! {
    #[test]
    fn any_legal_note_of_a_restore_is_read_as_it_was_written(
        is_finished: bool, id: u128, hlc: u64, pages: u64, changes: u64,
        successors in proptest::option::of(0..u32::MAX),
        position in proptest::option::of(legal::raw_key()),
    ) {
        let state = RestoreState {
            id,
            is_finished,
            hlc,
            successors,
            pages,
            position: position.unwrap_or_default(),
            changes,
        };
        prop_assert_eq!(RestoreState::decode(changes, &state.encode()), Some(state));
    }
}

fn engine(vfs: &MemVfs) -> Engine {
    let identity = Identity { node: 7, origin: 7 };
    let options = Options::for_memory(16 << 20, 64 << 10);
    Engine::open(Arc::new(vfs.clone()), options, identity).expect("it opens")
}

/// Commits on the caller's thread, as the log thread does on its own.
fn with_road<R>(engine: &Engine, import: &Import, then: impl FnOnce(&CommitPath<'_>) -> R) -> R {
    std::thread::scope(|threads| {
        let ring = || {
            threads.spawn(|| {
                let mut done = Vec::new();
                engine.commit(&mut done).expect("the disk works");
                for (token, outcome) in done {
                    assert_eq!(token, TOKEN);
                    import.wrote(outcome);
                }
            });
        };
        then(&CommitPath {
            engine,
            ring: &ring,
            is_poisoned: &|| false,
            wall_ms: 1,
        })
    })
}

/// Begins a restore in a cluster, of the backup 1.
fn begun(import: &Import, road: &CommitPath<'_>) -> RestoreState {
    let state = import.begin(road, 1, HLC, Numbering::Raised, || Ok(()));
    state.expect("it is empty")
}

fn record(raw: &'static [u8], hlc: u64) -> (&'static [u8], CellRef<'static>) {
    let version = Version {
        hlc,
        origin: 3,
        rmw: 9,
    };
    let key = Key::user(raw);
    (raw, CellRef::value(key.as_stored(), version, b"value"))
}

/// A page of restore 1.
fn page<'a>(
    number: u64,
    behind: &'a [u8],
    records: &'a [(&'static [u8], CellRef<'static>)],
) -> KeptPage<'a> {
    KeptPage {
        restore: 1,
        number,
        behind,
        position: records.last().expect("there is one").0,
        records,
    }
}

fn found(engine: &Engine, raw: &[u8]) -> bool {
    let found = engine.get(Key::user(raw).as_stored(), Wait::Block, |_| ());
    found.expect("it reads") == Lookup::Cell(())
}

#[test]
fn a_restore_goes_on_behind_a_crash_where_its_note_says() {
    let vfs = MemVfs::new();
    let store = engine(&vfs);
    let (first, second) = ([record(b"a", HLC), record(b"b", 5)], [record(b"c", 6)]);
    let import = Import::open(&store).expect("nothing is there");
    assert!(!import.is_under_way());
    with_road(&store, &import, |road| {
        let state = begun(&import, road);
        assert_eq!((state.pages, state.position.len()), (0, 0));
        import.page(road, &page(0, b"", &first)).expect("room");
        assert_eq!(import.state().expect("under way").position, b"b");
        import.page(road, &page(1, b"b", &second)).expect("room");
        assert_eq!(import.state().expect("under way").position, b"b");
    });
    let crashed = vfs.crash_image(&mut dendra_base::Prng::new(3));
    let store = engine(&crashed);
    assert!(found(&store, b"a") && found(&store, b"b") && !found(&store, b"c"));
    let import = Import::open(&store).expect("the note is whole");
    assert!(import.is_under_way(), "the flag comes back with the note");
    with_road(&store, &import, |road| {
        let third = [record(b"d", 7)];
        let late = import.page(road, &page(2, b"c", &third));
        assert_eq!(late, Err(NotImported::Gap), "the second page is gone");
        assert_eq!(import.finish(road, 1, b"c"), Err(NotImported::Gap));
        let again = import.begin(road, 1, HLC, Numbering::Raised, || {
            Err("not again".to_owned())
        });
        assert_eq!(again.expect("it goes on").position, b"b");
        let other = import.begin(road, 2, HLC, Numbering::Raised, || Ok(()));
        assert_eq!(other, Err(NotImported::Another(1)));
        import.page(road, &page(0, b"b", &second)).expect("room");
        import.finish(road, 1, b"c").expect("there is room");
        import.finish(road, 1, b"c").expect("once is enough");
        let late = import.page(road, &page(1, b"c", &third));
        assert_eq!(late, Err(NotImported::NoneSuch));
        let other = import.begin(road, 2, HLC, Numbering::Raised, || Ok(()));
        assert_eq!(other, Err(NotImported::NotEmpty));
    });
    assert!(found(&store, b"c") && !import.is_under_way());
    let stored = first[0].1.to_owned();
    let read = store.get(Key::user(b"a").as_stored(), Wait::Block, |cell| {
        cell.to_owned()
    });
    assert_eq!(read.expect("it reads"), Lookup::Cell(stored));
}

#[test]
fn the_note_has_the_largest_successor_number_of_what_is_durable_or_more() {
    let vfs = MemVfs::new();
    let store = engine(&vfs);
    let numbered = |raw, rmw| {
        let (raw, mut cell) = record(raw, 7);
        cell.version.rmw = rmw;
        (raw, cell)
    };
    // The upper byte is a part of a clock.
    let first = [numbered(b"a", 3), numbered(b"b", 0xab00_0009)];
    let second = [numbered(b"c", 800), numbered(b"d", 4)];
    let import = Import::open(&store).expect("nothing is there");
    with_road(&store, &import, |road| {
        let begun = import.begin(road, 1, HLC, Numbering::Raised, || Ok(()));
        assert_eq!(begun.expect("it is empty").successors, Some(0));
        import.page(road, &page(0, b"", &first)).expect("room");
        assert_eq!(import.state().expect("under way").successors, Some(9));
    });
    let crashed = vfs.crash_image(&mut dendra_base::Prng::new(3));
    let store = engine(&crashed);
    let import = Import::open(&store).expect("the note is whole");
    with_road(&store, &import, |road| {
        let again = import.begin(road, 1, HLC, Numbering::Kept, || Ok(()));
        assert_eq!(again.expect("it goes on").successors, Some(9));
        import.page(road, &page(0, b"b", &second)).expect("room");
        let settled = import.settle(road, 1, b"d").expect("room");
        assert_eq!(settled.successors, Some(800));
        let finished = import.finish(road, 1, b"d").expect("room");
        assert_eq!(finished.successors, Some(800));
    });
    let import = Import::open(&store).expect("the note is whole");
    assert_eq!(import.state().expect("there").successors, Some(800));
    // A node by itself keeps none.
    let alone = engine(&MemVfs::new());
    let import = Import::open(&alone).expect("nothing is there");
    with_road(&alone, &import, |road| {
        let begun = import.begin(road, 1, HLC, Numbering::Kept, || Ok(()));
        begun.expect("it is empty");
        import.page(road, &page(0, b"", &second)).expect("room");
        let finished = import.finish(road, 1, b"d").expect("room");
        assert_eq!(finished.successors, None);
    });
}

#[test]
fn a_record_above_the_clock_of_the_restore_is_refused_and_a_page_again_changes_nothing() {
    let store = engine(&MemVfs::new());
    let import = Import::open(&store).expect("nothing is there");
    with_road(&store, &import, |road| {
        begun(&import, road);
        let newer = import.page(road, &page(0, b"", &[record(b"a", HLC + 1)]));
        assert!(matches!(newer, Err(NotImported::Wrong(_))), "{newer:?}");
        let records = [record(b"b", HLC)];
        import.page(road, &page(0, b"", &records)).expect("room");
        import.page(road, &page(0, b"", &records)).expect("there");
        // Another one, from another place, overlaps it: the rest of it is taken.
        let wider = [record(b"a2", HLC), record(b"b", HLC), record(b"c", HLC)];
        import.page(road, &page(0, b"a", &wider)).expect("room");
        import.finish(road, 1, b"c").expect("room");
    });
    assert!(!found(&store, b"a2") && found(&store, b"b") && found(&store, b"c"));
    assert!(import.state().expect("there").is_finished);
    assert!(!is_empty(&store).expect("it reads"));
}

#[test]
fn a_full_disk_keeps_what_was_taken_and_the_same_page_is_taken_later() {
    let vfs = MemVfs::new();
    let store = engine(&vfs);
    let import = Import::open(&store).expect("nothing is there");
    let look = || {
        store
            .maintain(dendra_engine::Maintenance::Flush, 1, 1)
            .expect("the disk works");
    };
    with_road(&store, &import, |road| {
        begun(&import, road);
        let (first, second) = ([record(b"a", 1)], [record(b"b", 2)]);
        import.page(road, &page(0, b"", &first)).expect("room");
        // A page of which this node keeps no record is taken, too.
        let nothing = KeptPage {
            position: b"a5",
            records: &[],
            ..page(1, b"a", &first)
        };
        import.page(road, &nothing).expect("room");
        let used: u64 = vfs.names().iter().fold(0, |sum, name| {
            sum + vfs.file_bytes(name).map_or(0, |bytes| bytes.len() as u64)
        });
        // Less than the reserve, and enough for a table.
        vfs.set_capacity(used + store.options().reserve_bytes - 1);
        look();
        let full = import.page(road, &page(2, b"a5", &second));
        assert_eq!(full, Err(NotImported::DiskFull));
        vfs.set_capacity(u64::MAX);
        look();
        import.page(road, &page(2, b"a5", &second)).expect("room");
        import.finish(road, 1, b"b").expect("room");
    });
    assert!(found(&store, b"a") && found(&store, b"b"));
}

#[test]
fn a_disk_that_fails_takes_back_what_was_not_noted_and_the_end_is_refused() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let identity = Identity { node: 7, origin: 7 };
    let options = Options::for_memory(16 << 20, 64 << 10);
    let store = Engine::open(Arc::new(vfs.clone()), options, identity).expect("it opens");
    let import = Import::open(&store).expect("nothing is there");
    let (first, second) = ([record(b"a", 1)], [record(b"b", 2)]);
    with_road(&store, &import, |road| {
        begun(&import, road);
        import.page(road, &page(0, b"", &first)).expect("room");
        import.page(road, &page(1, b"a", &second)).expect("room");
        vfs.fail(
            Call::Write,
            vfs.calls().of(Call::Write),
            CallFailure::NoSpace,
            Repeat::Once,
        );
        assert_eq!(import.finish(road, 1, b"b"), Err(NotImported::DiskFull));
        assert_eq!(import.finish(road, 1, b"b"), Err(NotImported::Gap));
        let late = import.page(road, &page(2, b"b", &[record(b"c", 3)]));
        assert_eq!(late, Err(NotImported::Gap));
        // The next look finds room.
        let looked = store.maintain(dendra_engine::Maintenance::Flush, 1, 1);
        looked.expect("the disk works");
        import.page(road, &page(1, b"a", &second)).expect("room");
        import.finish(road, 1, b"b").expect("room");
    });
    assert!(found(&store, b"a") && found(&store, b"b"));
}

#[test]
fn a_page_waits_for_the_one_in_front_of_it() {
    let store = engine(&MemVfs::new());
    let import = Import::open(&store).expect("nothing is there");
    let (first, second) = ([record(b"a", 1)], [record(b"b", 2)]);
    with_road(&store, &import, |road| {
        begun(&import, road);
    });
    std::thread::scope(|threads| {
        let (import, store, second) = (&import, &store, &second);
        // It asks whether the log failed before it waits, and holds the desk from there on.
        let (asks, asked) = std::sync::mpsc::channel();
        let later = threads.spawn(move || {
            with_road(store, import, |road| {
                let is_poisoned = || {
                    asks.send(()).expect("it is listened to");
                    false
                };
                let road = CommitPath {
                    is_poisoned: &is_poisoned,
                    ..*road
                };
                import.page(&road, &page(1, b"a", second))
            })
        });
        asked.recv().expect("it waits");
        with_road(store, import, |road| {
            import.page(road, &page(0, b"", &first))
        })
        .expect("room");
        later.join().expect("no panic").expect("it has waited");
    });
    with_road(&store, &import, |road| import.finish(road, 1, b"b")).expect("room");
    assert!(found(&store, b"a") && found(&store, b"b"));
}

#[test]
fn a_page_that_waits_ends_when_the_log_fails() {
    let store = engine(&MemVfs::new());
    let import = Import::open(&store).expect("nothing is there");
    with_road(&store, &import, |road| {
        begun(&import, road);
        let road = CommitPath {
            is_poisoned: &|| true,
            ..*road
        };
        let early = import.page(&road, &page(1, b"a", &[record(b"b", 2)]));
        assert_eq!(early, Err(NotImported::Busy));
    });
}

#[test]
fn what_has_settled_is_there_for_peers_and_outlives_a_crash_and_clients_wait_for_the_end() {
    let vfs = MemVfs::new();
    let store = engine(&vfs);
    let import = Import::open(&store).expect("nothing is there");
    let (first, second) = ([record(b"a", 1)], [record(b"b", 2)]);
    with_road(&store, &import, |road| {
        assert_eq!(import.settle(road, 1, b""), Err(NotImported::NoneSuch));
        begun(&import, road);
        import.page(road, &page(0, b"", &first)).expect("room");
        import.page(road, &page(1, b"a", &second)).expect("room");
        assert!(!found(&store, b"b"), "its table is open");
        assert_eq!(import.settle(road, 1, b"c"), Err(NotImported::Gap));
        assert_eq!(import.settle(road, 2, b"b"), Err(NotImported::NoneSuch));
        let settled = import.settle(road, 1, b"b").expect("room");
        assert_eq!(
            (settled.is_finished, &*settled.position),
            (false, &b"b"[..])
        );
        let again = import.settle(road, 1, b"b").expect("room");
        assert_eq!(again, settled, "nothing is written a second time");
    });
    assert!(found(&store, b"a") && found(&store, b"b"));
    assert!(import.is_under_way(), "clients wait");
    let progress = import.progress().expect("it is under way");
    assert_eq!((progress.records, progress.bytes), (2, 12));
    assert_eq!(progress.position, b"b");

    let crashed = vfs.crash_image(&mut dendra_base::Prng::new(5));
    let store = engine(&crashed);
    assert!(found(&store, b"a") && found(&store, b"b"));
    let import = Import::open(&store).expect("the note is whole");
    assert!(import.is_under_way());
    with_road(&store, &import, |road| {
        // No page has to be sent again: the step, or the end, is enough.
        import.settle(road, 1, b"b").expect("it is settled");
        let finished = import.finish(road, 1, b"b").expect("room");
        assert!(finished.is_finished && !import.is_under_way());
        let late = import.settle(road, 1, b"b").expect("it has ended");
        assert_eq!(late, finished);
    });
    assert_eq!(import.progress(), None);
}

/// A write of a client, which another member sent.
fn write(engine: &Engine, raw: &[u8], hlc: u64, value: Option<&[u8]>) {
    let key = Key::user(raw);
    let version = Version {
        hlc,
        origin: 1,
        rmw: 0,
    };
    let cell = match value {
        Some(value) => CellRef::value(key.as_stored(), version, value),
        None => CellRef::tombstone(key.as_stored(), version),
    };
    let mut batch = Batch::new();
    let pushed = batch.push(0, key.as_stored(), &cell, Guard::Newest, 1);
    pushed.expect("it fits");
    engine.submit(&mut batch).expect("there is room");
    engine.commit(&mut Vec::new()).expect("the disk works");
}

#[test]
fn no_page_and_no_end_undoes_what_other_members_write_behind_settling() {
    let store = engine(&MemVfs::new());
    let import = Import::open(&store).expect("nothing is there");
    let records = [record(b"a", 1), record(b"b", 2), record(b"c", 3)];
    with_road(&store, &import, |road| {
        begun(&import, road);
        import.page(road, &page(0, b"", &records)).expect("room");
        import.settle(road, 1, b"c").expect("room");
        write(&store, b"a", HLC + 1, Some(b"newer"));
        write(&store, b"b", HLC + 2, None);
        let tables = store.stats().ingest_bytes;
        // A page that was on its way, and the steps of a command that is repeated.
        import.page(road, &page(0, b"", &records)).expect("there");
        import.settle(road, 1, b"c").expect("room");
        import.finish(road, 1, b"c").expect("room");
        assert_eq!(store.stats().ingest_bytes, tables, "no table came");
    });
    for kind in [
        dendra_engine::Maintenance::Flush,
        dendra_engine::Maintenance::Compact,
    ] {
        store.maintain(kind, 1, 1).expect("the disk works");
    }
    let kept = |raw: &[u8]| {
        let key = Key::user(raw);
        let read = store.get(key.as_stored(), Wait::Block, |cell| {
            (cell.kind, cell.value.to_vec())
        });
        read.expect("it reads")
    };
    assert_eq!(kept(b"a"), Lookup::Cell((Kind::Value, b"newer".to_vec())));
    assert_eq!(kept(b"b"), Lookup::Cell((Kind::Tombstone, Vec::new())));
    assert_eq!(kept(b"c"), Lookup::Cell((Kind::Value, b"value".to_vec())));
}

#[test]
fn a_disk_that_fails_behind_a_restart_takes_back_no_more_than_was_not_noted() {
    let vfs = FaultyVfs::new(Arc::new(MemVfs::new()));
    let open = || {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        Engine::open(Arc::new(vfs.clone()), options, identity).expect("it opens")
    };
    let store = open();
    let import = Import::open(&store).expect("nothing is there");
    let (first, second) = ([record(b"a", 1)], [record(b"b", 2)]);
    with_road(&store, &import, |road| {
        begun(&import, road);
        import.page(road, &page(0, b"", &first)).expect("room");
    });
    drop(store);
    let store = open();
    let import = Import::open(&store).expect("the note is whole");
    with_road(&store, &import, |road| {
        let next = vfs.calls().of(Call::Write);
        vfs.fail(Call::Write, next, CallFailure::NoSpace, Repeat::Once);
        let full = import.page(road, &page(0, b"a", &second));
        assert_eq!(full, Err(NotImported::DiskFull));
        let looked = store.maintain(dendra_engine::Maintenance::Flush, 1, 1);
        looked.expect("the disk works");
        assert_eq!(import.state().expect("under way").position, b"a");
        // From the noted position on, as the command goes on.
        import.page(road, &page(0, b"a", &second)).expect("room");
        import.finish(road, 1, b"b").expect("room");
    });
    assert!(found(&store, b"a") && found(&store, b"b"));
}
