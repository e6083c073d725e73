//! The log through its public face: on a real disk, over several lives, and as released.

mod crashing;

use crashing::{Crashes, crash_everywhere};
use dendra_base::{CellRef, Prng, Version};
use dendra_engine::formats::wal::{self, LogWriter, Lsn, Recovery};
use dendra_engine::vfs::faulty::{CallFailure, FaultyVfs, Repeat};
use dendra_engine::vfs::{MemVfs, OsVfs, Vfs};
use dendra_engine::{Batch, Error, Guard, Result};
use std::sync::Arc;

const SALT: u64 = 0xda7a;
const SEGMENT_BYTES: usize = 2 << 10;

fn one(number: u64, value_len: usize) -> Batch {
    let key = number.to_be_bytes();
    let value: Vec<u8> = (0..value_len)
        .map(|i| (number as usize + i) as u8)
        .collect();
    let version = Version {
        hlc: number,
        origin: 1,
        rmw: 0,
    };
    let mut batch = Batch::new();
    batch
        .push(
            number,
            &key,
            &CellRef::value(&key, version, &value),
            Guard::Newest,
            0,
        )
        .expect("the record fits");
    batch
}

/// Numbers of the batches in the log, in order.
fn read(vfs: &dyn Vfs) -> Result<(Vec<u64>, Recovery)> {
    let mut numbers = Vec::new();
    let recovery = wal::recover(vfs, SALT, 1, |record| {
        let cell = record.cell().expect("a record that was written");
        assert!(cell.is_intact(record.stored_key), "an invented record");
        let key = record.stored_key.try_into().expect("eight bytes");
        numbers.push(u64::from_be_bytes(key));
        Ok(())
    })?;
    Ok((numbers, recovery))
}

/// The writes that one life of a process acknowledged.
#[derive(Default)]
struct Life {
    appended: u64,
    synced: u64,
}

/// Goes on after the batches of the folder: `count` more batches, some syncs, rolls and seals.
fn live(vfs: &dyn Vfs, count: u64, life: &mut Life) -> Result<()> {
    let (numbers, recovery) = read(vfs)?;
    let first = numbers.len() as u64;
    (life.appended, life.synced) = (first, first.min(life.synced));
    let spare = wal::prepare(vfs, SALT, recovery.next_segment, SEGMENT_BYTES)?;
    let mut writer = LogWriter::start(spare, recovery.end, recovery.hlc_ceiling)?;
    let mut prng = Prng::new(first);
    for number in first..first + count {
        let batch = one(number, 10 + prng.below(600) as usize);
        if batch.bytes().len() > writer.room() {
            let next = writer.segment() + 1;
            writer.roll(wal::prepare(vfs, SALT, next, SEGMENT_BYTES)?)?;
        }
        // Counted before: a write that fails may still be on disk.
        life.appended = number + 1;
        writer.append(batch.bytes(), 1, number)?;
        if prng.chance(1, 2) {
            writer.sync()?;
            life.synced = number + 1;
        }
        if prng.chance(1, 4) {
            writer.seal()?;
        }
    }
    writer.sync()?;
    life.synced = life.appended;
    Ok(())
}

fn check(life: &Life, vfs: &dyn Vfs, what: &str) -> u64 {
    let (numbers, _) = read(vfs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = numbers.len() as u64;
    assert!(numbers.iter().copied().eq(0..found), "{what}: {numbers:?}");
    assert!(
        (life.synced..=life.appended).contains(&found),
        "{what}: {found} found, {} synced, {} appended",
        life.synced,
        life.appended
    );
    found
}

#[test]
fn a_log_survives_a_power_loss_at_every_operation_of_two_lives() {
    let crashes = Crashes {
        seed: 1,
        images: 8,
        stride: 1,
    };
    let workload = |vfs: &MemVfs| {
        let mut life = Life::default();
        // The error is the power; the writes acknowledged until then are in `life`.
        let _power = live(vfs, 12, &mut life).and_then(|()| live(vfs, 8, &mut life));
        life
    };
    let checked = crash_everywhere(crashes, workload, |life, image, what| {
        let found = check(life, &image, what);
        if what.ends_with("killed") {
            // The records that such a folder shows are not yet durable. The engine writes them to a
            // table before it appends, and this test does not.
            return;
        }
        // A third life goes on from there without a new first segment.
        let mut next = Life {
            appended: found,
            synced: found,
        };
        live(&image, 3, &mut next).unwrap_or_else(|error| panic!("{what}: {error}"));
        for seed in 0..3 {
            let again = image.crash_image(&mut Prng::new(seed));
            assert_eq!(check(&next, &again, what), found + 3, "{what}");
        }
    });
    assert!(checked > 500, "{checked}");
}

#[test]
fn every_failed_call_leaves_what_was_synced() {
    let count = |failure: Option<(u64, CallFailure, Repeat)>| {
        let below = MemVfs::new();
        let vfs = FaultyVfs::new(Arc::new(below.clone()));
        if let Some((nth, failure, repeat)) = failure {
            vfs.fail_any(nth, failure, repeat);
        }
        let mut life = Life::default();
        let result = live(&vfs, 12, &mut life);
        assert_eq!(result.is_ok(), failure.is_none(), "no failure is swallowed");
        for seed in 0..4 {
            let image = below.crash_image(&mut Prng::new(seed));
            check(&life, &image, &format!("{failure:?}, seed {seed}"));
        }
        vfs.calls().all()
    };
    for nth in 0..count(None) {
        for failure in [CallFailure::Io, CallFailure::NoSpace] {
            count(Some((nth, failure, Repeat::Once)));
            count(Some((nth, failure, Repeat::Onwards)));
        }
    }
}

#[test]
fn a_write_that_lands_elsewhere_is_damage_or_harmless() {
    let run = |misdirected: Option<(u64, u64)>| -> Result<(MemVfs, u64)> {
        let below = MemVfs::new();
        let vfs = FaultyVfs::new(Arc::new(below.clone()));
        if let Some((nth, offset)) = misdirected {
            vfs.misdirect_write(nth, offset);
        }
        let mut writer = LogWriter::start(
            wal::prepare(&vfs, SALT, 1, SEGMENT_BYTES)?,
            Lsn::default(),
            0,
        )?;
        for number in 0..12 {
            let batch = one(number, 100);
            if batch.bytes().len() > writer.room() {
                let next = writer.segment() + 1;
                writer.roll(wal::prepare(&vfs, SALT, next, SEGMENT_BYTES)?)?;
            }
            writer.append(batch.bytes(), 1, 0)?;
            writer.sync()?;
        }
        writer.seal()?;
        writer.sync()?;
        let writes = vfs.calls().of(dendra_engine::vfs::faulty::Call::Write);
        Ok((below, writes))
    };
    let (_, writes) = run(None).expect("nothing fails");
    let mut damaged = 0;
    // The last write is the seal: without it the last batch has no witness.
    for nth in 0..writes - 1 {
        for offset in (0..SEGMENT_BYTES as u64).step_by(192) {
            let (below, _) = run(Some((nth, offset))).expect("the disk says yes");
            match read(&below) {
                Ok((numbers, _)) => assert!(numbers.iter().copied().eq(0..12), "{nth} {offset}"),
                Err(Error::Damaged { .. }) => damaged += 1,
                Err(other) => panic!("{nth} {offset}: {other}"),
            }
        }
    }
    assert!(damaged > 50, "{damaged}");
}

#[test]
fn a_log_on_a_real_disk_reads_back() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let vfs = OsVfs::open(dir.path()).expect("the folder exists");
    let mut life = Life::default();
    live(&vfs, 10, &mut life)?;
    live(&vfs, 10, &mut life)?;
    assert_eq!(check(&life, &vfs, "real disk"), 20);
    Ok(())
}

/// A segment as format 1 was released. Every later program reads it and, as long as it writes
/// format 1, writes the same bytes.
#[test]
fn the_released_format_1_is_still_read_and_written() -> Result<()> {
    let released: &[u8] = include_bytes!("fixtures/wal-format-1.log");
    let vfs = MemVfs::new();
    let mut writer = LogWriter::start(wal::prepare(&vfs, SALT, 1, 1 << 10)?, Lsn::default(), 0)?;
    for number in 0..3 {
        writer.append(one(number, 20).bytes(), 1, number << 16)?;
        writer.sync()?;
    }
    writer.seal()?;
    writer.sync()?;
    let written = vfs.file_bytes(&wal::segment_name(1)).expect("it exists");
    if std::env::var_os("DENDRA_BLESS").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/wal-format-1.log"
        );
        std::fs::write(path, &written).expect("the fixture can be written");
    }
    vfs.install(&wal::segment_name(1), released);
    let (numbers, recovery) = read(&vfs)?;
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(recovery.hlc_ceiling, 2 << 16);
    assert_eq!(
        written, released,
        "format 1 changed: give the new one another number"
    );
    Ok(())
}
