//! Checkpoints since a mark: a chain of them holds all that the folder held at each. Merges and
//! crashes in between make no difference.
//!
//! ```text
//! checkpoint ─► all tables      writes, merges, starts ─► checkpoint since ─► a few tables more ─► …
//!                    └───────────────── the union, read as one ─────────────────────┘ = the twin
//! ```
//!
//! Invariants
//! 1. The repository of this file is a dumb one: bytes by name, and the mark of its newest backup.
//!
//! Not here: the command that does the same over the admin port (crate `dendra`).

mod support;

use dendra_base::{CellRef, Direction, Prng, Version};
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{
    Cursor, Engine, Error, Flow, Maintained, Maintenance, MarkOrder, Marked, Options, Progress,
    Show, Snapshot,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use support::steps::write;
use support::{IDENTITY, World};

/// The files that earlier checkpoints left elsewhere.
#[derive(Clone, Default)]
struct Shelf {
    files: BTreeMap<String, Vec<u8>>,
    kept: Vec<String>,
    mark: u128,
    made: u64,
}

/// How a checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    Full,
    Since { bytes: usize },
}

impl Shelf {
    /// A checkpoint of `engine`, copied here. The files of a failed one stay away.
    fn take(&mut self, vfs: &MemVfs, engine: &Engine, now_ms: u64) -> Result<Lists, Error> {
        self.made += 1;
        let path = PathBuf::from(format!("checkpoint-{}", self.made));
        let target = MemVfs::new();
        let order = MarkOrder {
            since: vec![self.mark],
            mark: (u128::from(self.made) << 64) + u128::from(vfs.operations()) + 1,
        };
        let marked = engine.checkpoint_since(&target, &path, now_ms, &order)?;
        let linked = vfs.linked_folder(&path).unwrap_or_default();
        let bytes_of = |folder: &MemVfs, name: &String| {
            let bytes = folder.file_bytes(name).expect("it is listed");
            (name.clone(), bytes)
        };
        let mark = marked.as_ref().map_or(0, |_| order.mark);
        let lists = match marked {
            Some(Marked {
                since: Some(_),
                tables,
                ..
            }) => {
                let more: Vec<_> = tables.iter().map(|it| bytes_of(&linked, it)).collect();
                let bytes = more.iter().map(|(_, bytes)| bytes.len()).sum();
                self.files.extend(more);
                self.kept.extend(tables);
                Lists::Since { bytes }
            }
            _ => {
                let of_target = target.names().into_iter();
                let own = of_target.filter(|name| name != "LOCK" && !name.starts_with("wal-"));
                self.files = own.map(|name| bytes_of(&target, &name)).collect();
                let tables = linked.names();
                self.files
                    .extend(tables.iter().map(|it| bytes_of(&linked, it)));
                self.kept.clear();
                Lists::Full
            }
        };
        self.mark = mark;
        Ok(lists)
    }

    fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// The newest version of each key, and its value if it lives.
    fn records(&self, now_ms: u64) -> BTreeMap<Vec<u8>, (Version, Option<Vec<u8>>)> {
        let folder = MemVfs::new();
        for (name, bytes) in &self.files {
            folder.install(name, bytes);
        }
        let snapshot = Snapshot::open_with(&folder, &self.kept).expect("all of it is there");
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = Cursor::new(all.0, all.1, Direction::Forward, Show::All);
        let mut found = BTreeMap::new();
        let mut visit = |key: &[u8], cell: CellRef<'_>| {
            assert!(cell.is_intact(key));
            let value = cell.is_live(now_ms).then(|| cell.value.to_vec());
            found.insert(key.to_vec(), (cell.version, value));
            Flow::Continue
        };
        while snapshot
            .scan(&mut cursor, 1 << 20, &mut visit)
            .expect("nothing is damaged")
            == Progress::More
        {}
        found
    }

    /// It shows the records of the twin: each live value, and none of the dead.
    fn check(&self, world: &World) {
        let found = self.records(world.now_ms);
        for (key, known) in &world.twin {
            let live = known.is_live(world.now_ms);
            let expected = live.then(|| (known.version, known.value.clone()));
            let shown = found.get(key).filter(|(_, value)| value.is_some());
            assert_eq!(shown.cloned(), expected, "{}", key.escape_ascii());
        }
    }
}

fn options() -> Options {
    let mut options = Options::for_tests();
    options.memtable_bytes = 8 << 10;
    options.value_bytes_max = 8 << 10;
    options.level0_tables_trigger = 2;
    options.level1_bytes = 16 << 10;
    options
}

fn open(vfs: &MemVfs, options: &Options) -> Engine {
    let vfs = Arc::new(vfs.clone());
    let engine = Engine::open(vfs, options.clone(), IDENTITY).expect("the folder opens");
    engine.raise_purge_horizon(Version::MAX);
    engine
}

fn put(engine: &Engine, n: u64, hlc: u64) {
    let key = format!("\x10key-{n:05}").into_bytes();
    let mut value = vec![0; 100];
    Prng::new(hlc).fill(&mut value);
    write(engine, &key, hlc, Some(&value));
}

/// Flushes and merges until no work is left, also that of a quiet store.
fn settle(engine: &Engine, now_ms: u64) {
    engine.close(now_ms).expect("the disk works");
    let all = [Maintenance::Flush, Maintenance::Compact];
    for late_ms in [0, 20_000, 40_000] {
        let work = |lane| {
            let done = engine.maintain(lane, now_ms + late_ms, 1 << 20);
            done.expect("the disk works")
        };
        while all.map(work) != [Maintained::Idle; 2] {}
    }
}

fn work(world: &mut World, prng: &mut Prng) -> Result<(), Error> {
    for _ in 0..1 + prng.below(12) {
        world.step_writes(1 + prng.below(16))?;
        if prng.chance(1, 2) {
            world.maintain(Maintenance::Flush, 1 + prng.below(16 << 10) as usize)?;
        }
        if prng.chance(2, 3) {
            world.maintain(Maintenance::Compact, 1 + prng.below(48 << 10) as usize)?;
        }
    }
    Ok(())
}

#[test]
fn each_checkpoint_of_a_chain_shows_what_the_folder_held() {
    let (mut since, mut full, mut purged) = (0, 0, 0);
    // Seed 111 once purged the touched value of a touch that was still in the log.
    for seed in (0..24).chain([111]) {
        let mut prng = Prng::named(seed, "chain");
        let vfs = MemVfs::new();
        let mut world = World::new(Arc::new(vfs.clone()), options(), seed);
        let mut shelf = Shelf::default();
        for _ in 0..25 {
            work(&mut world, &mut prng).expect("the disk works");
            if prng.chance(1, 4) {
                // A start: a clean one, or after a kill.
                if prng.chance(1, 2) {
                    world.engine.close(world.now_ms).expect("the disk works");
                }
                drop(world.engine);
                world.engine = open(&vfs, &options());
            }
            let lists = shelf.take(&vfs, &world.engine, world.now_ms);
            match lists.expect("the disk works") {
                Lists::Since { .. } => since += 1,
                Lists::Full => full += 1,
            }
            shelf.check(&world);
        }
        let held = world.twin.len();
        purged += held.saturating_sub(world.engine.stats().table_records as usize);
    }
    assert!(since > 400 && purged > 0, "{since}, {full}, {purged}");
}

#[test]
fn one_in_a_hundred_that_changes_moves_little_behind_all_merges() {
    let vfs = MemVfs::new();
    let mut options = options();
    options.kept_bytes_min = 1 << 20;
    let engine = open(&vfs, &options);
    let (keys, mut hlc) = (5_000, 1 << 20);
    for n in 0..keys {
        hlc += 1;
        put(&engine, n * 7 % keys, hlc);
        if n % 50 == 0 {
            engine
                .maintain(Maintenance::Flush, 1, 1 << 20)
                .expect("it works");
        }
    }
    settle(&engine, 1);
    let mut shelf = Shelf::default();
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
    let all = shelf.bytes();
    let before = engine.stats().compaction_write_bytes;
    let mut prng = Prng::new(3);
    for round in 0..5 {
        for _ in 0..keys / 100 {
            hlc += 1;
            put(&engine, prng.below(keys), hlc);
        }
        settle(&engine, 100_000 * (round + 1));
        let lists = shelf.take(&vfs, &engine, 1).expect("the disk works");
        let Lists::Since { bytes } = lists else {
            panic!("round {round}: a full list");
        };
        assert!(bytes * 100 <= 3 * all, "{bytes} of {all} moved");
    }
    let merged = engine.stats().compaction_write_bytes - before;
    assert!(merged as usize > all / 4, "{merged} of {all} were merged");
    assert_eq!(shelf.records(1).len() as u64, keys);
    let newest = shelf
        .records(1)
        .values()
        .map(|(version, _)| version.hlc)
        .max();
    assert_eq!(newest, Some(hlc));
}

/// Runs checkpoints among writes until it is done or the power fails.
fn crashing(world: &mut World, vfs: &MemVfs, shelf: &mut Shelf) -> Result<(), Error> {
    let mut prng = Prng::named(4, "crashing");
    for _ in 0..8 {
        work(world, &mut prng)?;
        shelf.take(vfs, &world.engine, world.now_ms)?;
    }
    Ok(())
}

#[test]
fn a_chain_goes_on_behind_a_power_loss_at_every_operation() {
    let vfs = MemVfs::new();
    let mut world = World::new(Arc::new(vfs.clone()), options(), 1);
    crashing(&mut world, &vfs, &mut Shelf::default()).expect("the power holds");
    let (mut since, mut full) = (0, 0);
    for operation in 30..vfs.operations() {
        let vfs = MemVfs::new();
        vfs.crash_at(operation);
        let Ok(mut world) = World::try_new(Arc::new(vfs.clone()), options(), 1) else {
            continue;
        };
        let mut shelf = Shelf::default();
        crashing(&mut world, &vfs, &mut shelf).expect_err("the power fails before the end");
        for draw in 0..3 {
            println!("operation {operation}, draw {draw}");
            let image = match draw {
                0 => vfs.process_crash_image(),
                _ => vfs.crash_image(&mut Prng::new(operation * 3 + draw)),
            };
            let engine = open(&image, &options());
            let mut shelf = shelf.clone();
            shelf.made += 100;
            match shelf.take(&image, &engine, world.now_ms).expect("it works") {
                Lists::Since { .. } => since += 1,
                Lists::Full => full += 1,
            }
            let shown = shelf.records(world.now_ms);
            for key in world.twin.keys() {
                let held = world.seen(&engine, key);
                let shown = shown.get(key).cloned();
                let shown = shown.and_then(|(version, value)| Some((version, value?)));
                assert_eq!(shown, held, "{}", key.escape_ascii());
            }
            // And once more, after merges.
            settle(&engine, world.now_ms);
            let again = shelf.take(&image, &engine, world.now_ms).expect("it works");
            assert!(matches!(again, Lists::Since { .. }), "{again:?}");
        }
    }
    // A start that is not whole voids the mark: it is made anew in a few operations only.
    assert!(since > 9 * full, "{since} went on, {full} began anew");
}

#[test]
fn too_much_ends_the_mark_and_gives_the_room_back() {
    let vfs = MemVfs::new();
    let mut options = options();
    options.kept_bytes_min = 30 << 10;
    let engine = open(&vfs, &options);
    let mut shelf = Shelf::default();
    put(&engine, 1, 1);
    shelf.take(&vfs, &engine, 1).expect("the disk works");
    for hlc in 2..1_000 {
        put(&engine, hlc % 40, hlc);
        if hlc % 50 == 0 {
            settle(&engine, 1);
        }
        let stats = engine.stats();
        assert!(stats.kept_bytes <= 30 << 10, "{}", stats.kept_bytes);
    }
    settle(&engine, 1);
    assert_eq!(engine.stats().kept_tables, 0);
    let tables = vfs.names().iter().filter(|it| it.ends_with(".tbl")).count();
    let live: usize = engine.stats().levels.iter().map(|level| level.0).sum();
    assert_eq!(tables, live, "no file is left");
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
}

/// A folder with a mark, and a table after it that a merge has replaced.
fn with_a_replaced_table(vfs: &MemVfs, options: &Options) -> (Engine, Shelf) {
    let engine = open(vfs, options);
    let mut shelf = Shelf::default();
    put(&engine, 1, 1);
    shelf.take(vfs, &engine, 1).expect("the disk works");
    for hlc in 2..5 {
        put(&engine, 1, hlc);
        settle(&engine, 100_000 * hlc);
    }
    assert_eq!(engine.stats().kept_tables, 3);
    (engine, shelf)
}

#[test]
fn a_full_disk_gets_the_room_first() {
    let vfs = MemVfs::new();
    let mut options = options();
    options.reserve_bytes = 1 << 20;
    let (engine, mut shelf) = with_a_replaced_table(&vfs, &options);
    vfs.set_capacity(100);
    for lane in [Maintenance::Flush, Maintenance::Compact] {
        engine.maintain(lane, 1, 1 << 20).ok();
    }
    assert_eq!(engine.stats().kept_tables, 0);
    let tables = vfs.names().iter().filter(|it| it.ends_with(".tbl")).count();
    assert_eq!(tables, 1);
    vfs.set_capacity(u64::MAX / 2);
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
}

#[test]
fn a_start_on_a_full_disk_keeps_nothing() {
    let vfs = MemVfs::new();
    let (engine, mut shelf) = with_a_replaced_table(&vfs, &options());
    drop(engine);
    let mut short = options();
    short.reserve_bytes = u64::MAX / 2;
    let engine = open(&vfs, &short);
    assert_eq!(engine.stats().kept_tables, 0);
    assert!(!vfs.names().contains(&"KEPT".to_owned()));
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
}

#[test]
fn a_start_of_a_release_that_keeps_nothing_ends_the_mark() {
    let vfs = MemVfs::new();
    let engine = open(&vfs, &options());
    let mut shelf = Shelf::default();
    put(&engine, 1, 1);
    shelf.take(&vfs, &engine, 1).expect("the disk works");
    drop(engine);
    // Such a release neither reads nor removes the file.
    let note = vfs.file_bytes("KEPT").expect("there is a mark");
    let other = vfs.process_crash_image();
    dendra_engine::vfs::Vfs::remove(&other, "KEPT").expect("it is there");
    let engine = open(&other, &options());
    put(&engine, 2, 9);
    engine.close(1).expect("the disk works");
    drop(engine);
    other.install("KEPT", &note);
    let engine = open(&other, &options());
    assert_eq!(shelf.take(&other, &engine, 1).ok(), Some(Lists::Full));
    let held = engine.stats().table_records;
    assert_eq!(shelf.records(1).len() as u64, held);
}

#[test]
fn an_older_image_of_the_folder_knows_no_later_mark() {
    let vfs = MemVfs::new();
    let (engine, mut shelf) = with_a_replaced_table(&vfs, &options());
    let image = vfs.process_crash_image();
    let lists = shelf.take(&vfs, &engine, 1).expect("the disk works");
    assert!(matches!(lists, Lists::Since { .. }));
    drop(engine);
    let engine = open(&image, &options());
    put(&engine, 1, 9);
    assert_eq!(shelf.take(&image, &engine, 1).ok(), Some(Lists::Full));
}

#[test]
fn a_drop_of_foreign_records_ends_the_mark_and_gives_none_until_it_is_done() {
    let vfs = MemVfs::new();
    let (engine, mut shelf) = with_a_replaced_table(&vfs, &options());
    engine.drop_foreign(Arc::new(|_, _| true));
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
    assert_eq!(shelf.mark, 0);
    settle(&engine, 1);
    engine.keep_foreign();
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
    assert_eq!(shelf.records(1).len(), 0, "nothing comes back");
    assert!(shelf.mark > 0);
    // The order is over before its drop is, or began: the mark from before is void all the same.
    put(&engine, 1, 10);
    engine.drop_foreign(Arc::new(|_, _| true));
    engine.keep_foreign();
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
}

#[test]
fn a_mended_table_ends_the_mark() {
    let vfs = MemVfs::new();
    let engine = open(&vfs, &options());
    let mut shelf = Shelf::default();
    for n in 0..40 {
        put(&engine, n, n + 1);
    }
    settle(&engine, 1);
    shelf.take(&vfs, &engine, 1).expect("the disk works");
    let names = vfs.names();
    let table = names.iter().find(|name| name.ends_with(".tbl"));
    vfs.flip_bit(table.expect("there is one"), 8);
    let scrub = || engine.scrub(1, 1_000, 1 << 20).expect("the disk works");
    while scrub().state == Maintained::More {}
    let spans = engine.damaged_spans();
    assert_eq!(spans.len(), 1);
    // Another owner has the same records, or newer ones.
    for n in 0..40 {
        put(&engine, n, n + 100);
    }
    engine.repaired(&spans[0]);
    let lists = shelf.take(&vfs, &engine, 1).expect("the disk works");
    assert!(matches!(lists, Lists::Since { .. }), "it is not mended yet");
    settle(&engine, 1);
    assert_eq!(engine.stats().scrub.spots_mended, 1);
    assert_eq!(shelf.take(&vfs, &engine, 1).ok(), Some(Lists::Full));
    assert_eq!(shelf.records(1).len(), 40);
}
