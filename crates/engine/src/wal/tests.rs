use super::*;
use crate::batch::{Batch, LogRecord};
use crate::legal;
use crate::vfs::faulty::{Call, CallFailure, FaultyVfs, Repeat};
use crate::vfs::mem::MemVfs;
use crate::vfs::{File, Vfs};
use crate::{Error, Result};
use dendra_base::{CellRef, Guard, Prng, Version};
use proptest::prelude::*;
use std::io;
use std::sync::Arc;

const SALT: u64 = 0x5eed_5a17;
const SEGMENT_BYTES: usize = 4 << 10;

/// One batch of `count` records whose keys say which batch and which record they are.
fn batch(number: u64, count: u64, value_len: usize) -> Batch {
    let mut batch = Batch::new();
    for i in 0..count {
        let key = format!("{number}/{i}").into_bytes();
        let value = vec![b'v'; value_len];
        let version = Version {
            hlc: number,
            origin: 1,
            rmw: 0,
        };
        let cell = CellRef::value(&key, version, &value);
        batch
            .push(i, &key, &cell, Guard::Newest, 0)
            .expect("the record fits");
    }
    batch
}

/// A log under test, and the keys in it.
struct Log {
    vfs: MemVfs,
    writer: LogWriter,
    next_batch: u64,
    written: Vec<Vec<u8>>,
    /// How many of `written` were synced.
    durable: usize,
}

impl Log {
    fn start(vfs: &MemVfs) -> Log {
        let spare = prepare(vfs, SALT, 1, SEGMENT_BYTES).expect("there is room");
        Log {
            vfs: vfs.clone(),
            writer: LogWriter::start(spare, Lsn::default(), 0).expect("the disk is well"),
            next_batch: 0,
            written: Vec::new(),
            durable: 0,
        }
    }

    fn append(&mut self, count: u64, value_len: usize) -> Result<()> {
        let batch = batch(self.next_batch, count, value_len);
        if batch.bytes().len() > self.writer.room() {
            self.roll()?;
        }
        let count = u32::try_from(count).expect("few records");
        self.writer.append(batch.bytes(), count, self.next_batch)?;
        for key in keys(batch.bytes()) {
            self.written.push(key);
        }
        self.next_batch += 1;
        Ok(())
    }

    fn roll(&mut self) -> Result<()> {
        let spare = prepare(&self.vfs, SALT, self.writer.segment() + 1, SEGMENT_BYTES)?;
        self.writer.roll(spare)
    }

    fn sync(&mut self) -> Result<()> {
        self.writer.sync()?;
        self.durable = self.written.len();
        Ok(())
    }
}

fn keys(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while let Some((record, rest)) = LogRecord::split(bytes) {
        keys.push(record.stored_key.to_vec());
        bytes = rest;
    }
    keys
}

/// Keys and values, as recovery visits them.
fn recovered(vfs: &MemVfs) -> Result<(Vec<Vec<u8>>, Recovery)> {
    let mut keys = Vec::new();
    let recovery = recover(vfs, SALT, 1, |record| {
        let cell = record.cell().expect("a record that was written");
        assert!(cell.is_intact(record.stored_key), "an invented record");
        keys.push(record.stored_key.to_vec());
        Ok(())
    })?;
    Ok((keys, recovery))
}

fn damage(vfs: &MemVfs) -> (String, u64, String) {
    match recovered(vfs) {
        Err(Error::Damaged {
            file,
            offset,
            reason,
        }) => (file, offset, reason),
        other => panic!("expected damage, found {other:?}"),
    }
}

/// Two full segments and one in use; everything is synced and sealed.
fn sealed_log() -> Log {
    let mut log = Log::start(&MemVfs::new());
    while log.writer.segment() < 3 {
        log.append(2, 300).expect("the disk is well");
        log.sync().expect("the disk is well");
    }
    log.append(1, 10).expect("the disk is well");
    log.sync().expect("the disk is well");
    assert!(log.writer.seal().expect("the disk is well"));
    log.sync().expect("the disk is well");
    log
}

#[test]
fn what_was_appended_is_recovered_in_order() -> Result<()> {
    let log = sealed_log();
    let (keys, recovery) = recovered(&log.vfs)?;
    assert_eq!(keys, log.written);
    assert_eq!(recovery.records, log.written.len() as u64);
    assert_eq!(recovery.end, log.writer.end_lsn());
    assert_eq!(recovery.next_segment, 4);
    assert_eq!(recovery.segments, 3);
    assert_eq!(recovery.hlc_ceiling, log.next_batch - 1);
    assert_eq!(recovery.tail, Tail::Clean);
    Ok(())
}

/// A file that the system's cache has lost: it holds the pages that were written whole since.
struct Forgotten {
    file: Arc<dyn File>,
    held: std::sync::Mutex<std::collections::BTreeSet<u64>>,
}

impl File for Forgotten {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: crate::vfs::Wait) -> io::Result<usize> {
        self.file.read_at(buf, offset, wait)
    }
    /// A page that is not held would have to be read before a part of it is changed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        const PAGE: u64 = 4 << 10;
        let end = offset + buf.len() as u64;
        let mut held = self.held.lock().expect("no holder panics");
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let is_whole = offset <= page * PAGE && end >= (page + 1) * PAGE;
            assert!(
                is_whole || held.contains(&page),
                "bytes {offset}..{end} need page {page}"
            );
            held.insert(page);
        }
        self.file.write_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn start_writeback(&self, offset: u64, len: u64) {
        self.file.start_writeback(offset, len);
    }
    fn forget_cached(&self) {
        self.file.forget_cached();
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

#[test]
fn nobody_reads_a_page_in_order_to_append() -> Result<()> {
    let vfs = MemVfs::new();
    let forgotten = |segment| -> Result<Spare> {
        let mut spare = prepare(&vfs, SALT, segment, 64 << 10)?;
        let file = Arc::clone(&spare.file);
        spare.file = Arc::new(Forgotten {
            file,
            held: std::sync::Mutex::default(),
        });
        Ok(spare)
    };
    let mut writer = LogWriter::start(forgotten(1)?, Lsn::default(), 0)?;
    let mut prng = Prng::new(7);
    for number in 0..300 {
        let batch = batch(
            number,
            1,
            usize::try_from(prng.below(9_000)).expect("small"),
        );
        if batch.bytes().len() > writer.room() {
            writer.roll(forgotten(writer.segment() + 1)?)?;
        }
        writer.append(batch.bytes(), 1, number)?;
        if prng.below(4) == 0 {
            writer.sync()?;
            writer.seal()?;
        }
    }
    assert!(writer.segment() > 10);
    assert_eq!(recovered(&vfs)?.0.len(), 300);
    Ok(())
}

#[test]
fn an_empty_folder_is_an_empty_log() -> Result<()> {
    let (keys, recovery) = recovered(&MemVfs::new())?;
    assert!(keys.is_empty());
    assert_eq!((recovery.segments, recovery.next_segment), (0, 1));
    Ok(())
}

#[test]
fn a_spare_that_was_never_used_is_no_damage() -> Result<()> {
    let log = sealed_log();
    prepare(&log.vfs, SALT, 4, SEGMENT_BYTES)?;
    let (keys, recovery) = recovered(&log.vfs)?;
    assert_eq!(keys, log.written);
    assert_eq!(recovery.next_segment, 5);
    assert_eq!(recovery.tail, Tail::Clean);
    Ok(())
}

#[test]
fn every_shorter_file_is_damage() -> Result<()> {
    let log = sealed_log();
    prepare(&log.vfs, SALT, 4, SEGMENT_BYTES)?;
    for name in log.vfs.names() {
        let whole = log.vfs.file_bytes(&name).expect("it is listed");
        for len in (0..whole.len()).step_by(BATCH_ALIGNMENT) {
            for len in [len, len + 1] {
                log.vfs.install(&name, &whole[..len]);
                let (file, _, reason) = damage(&log.vfs);
                assert_eq!(file, name, "{len}");
                assert!(reason.contains(&format!("has {len} bytes")), "{reason}");
                assert!(reason.contains("restore the folder"), "{reason}");
                let spots = damaged_spots(&log.vfs, SALT, 1)?;
                assert!(
                    spots
                        .iter()
                        .any(|(file, at)| *file == name && !at.is_empty())
                );
                let id = parse_segment_name(&name).expect("a segment");
                assert!(matches!(
                    drained(&Segment::read(&log.vfs, id)?),
                    SegmentEnd::Bad { .. } | SegmentEnd::Zeros
                ));
            }
        }
        // Bytes behind the end are not ours.
        log.vfs.install(&name, &[&whole[..], b"rubbish"].concat());
        assert_eq!(recovered(&log.vfs)?.0, log.written);
        log.vfs.install(&name, &whole);
    }
    assert_eq!(recovered(&log.vfs)?.0, log.written);
    Ok(())
}

#[test]
fn zeros_from_a_border_of_batches_on_are_damage_where_a_later_head_knows() -> Result<()> {
    let log = sealed_log();
    let mut unknown = 0;
    for id in 1..=3 {
        let name = segment_name(id);
        let whole = log.vfs.file_bytes(&name).expect("it is listed");
        for at in (0..whole.len()).step_by(BATCH_ALIGNMENT) {
            let mut emptied = whole.clone();
            emptied[at..].fill(0);
            log.vfs.install(&name, &emptied);
            match recovered(&log.vfs) {
                Ok((keys, _)) if keys == log.written => {}
                // The last segment alone: no head behind that border is left to know of it.
                Ok((keys, _)) if id == 3 && at > 0 => {
                    assert_eq!(keys[..], log.written[..keys.len()]);
                    unknown += 1;
                }
                Err(Error::Damaged { .. }) => {}
                other => panic!("{name} from {at}: {other:?}"),
            }
        }
        log.vfs.install(&name, &whole);
    }
    assert!(unknown > 0);
    Ok(())
}

#[test]
fn swapped_segments_and_those_of_other_folders_are_damage() -> Result<()> {
    let log = sealed_log();
    prepare(&log.vfs, SALT, 4, SEGMENT_BYTES)?;
    prepare(&log.vfs, SALT, 5, SEGMENT_BYTES)?;
    let bytes = |id| log.vfs.file_bytes(&segment_name(id)).expect("it exists");
    for (one, other) in [(1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (4, 5)] {
        let (first, second) = (bytes(one), bytes(other));
        log.vfs.install(&segment_name(one), &second);
        log.vfs.install(&segment_name(other), &first);
        assert_eq!(damage(&log.vfs).0, segment_name(one));
        log.vfs.install(&segment_name(one), &first);
        // The head of another one, before a body that is right.
        let mut mixed = first.clone();
        mixed[..SEGMENT_HEAD_BYTES].copy_from_slice(&second[..SEGMENT_HEAD_BYTES]);
        log.vfs.install(&segment_name(other), &second);
        log.vfs.install(&segment_name(one), &mixed);
        assert_eq!(damage(&log.vfs).0, segment_name(one));
        log.vfs.install(&segment_name(one), &first);
    }
    let elsewhere = MemVfs::new();
    for id in [1, 4] {
        prepare(&elsewhere, SALT + 1, id, SEGMENT_BYTES)?;
        let own = bytes(id);
        let foreign = elsewhere.file_bytes(&segment_name(id)).expect("made");
        log.vfs.install(&segment_name(id), &foreign);
        assert!(damage(&log.vfs).2.contains("another folder"));
        log.vfs.install(&segment_name(id), &own);
    }
    assert_eq!(recovered(&log.vfs)?.0, log.written);
    Ok(())
}

#[test]
fn the_last_segment_cannot_be_taken_away_once_a_batch_in_it_was_synced() -> Result<()> {
    let log = sealed_log();
    log.vfs.remove(&segment_name(3)).expect("it exists");
    let (file, _, reason) = damage(&log.vfs);
    assert_eq!(file, segment_name(3));
    assert!(reason.contains("goes on in it"), "{reason}");
    // Spares may go: nothing is in them.
    let log = sealed_log();
    prepare(&log.vfs, SALT, 4, SEGMENT_BYTES)?;
    assert!(goes_on(&log.vfs, 2)?);
    assert!(!goes_on(&log.vfs, 3)?);
    log.vfs.remove(&segment_name(4)).expect("it exists");
    assert_eq!(recovered(&log.vfs)?.0, log.written);
    Ok(())
}

#[test]
fn a_power_loss_while_a_segment_is_made_leaves_a_whole_one_or_none() -> Result<()> {
    let operations = {
        let log = sealed_log();
        let before = log.vfs.operations();
        prepare(&log.vfs, SALT, 4, 3 << 20)?;
        log.vfs.operations() - before
    };
    let mut prng = Prng::new(38);
    let (mut with, mut without) = (0, 0);
    for nth in 0..=operations {
        let log = sealed_log();
        log.vfs.crash_at(log.vfs.operations() + nth);
        let _power = prepare(&log.vfs, SALT, 4, 3 << 20);
        for _ in 0..20 {
            let image = log.vfs.crash_image(&mut prng);
            assert_eq!(recovered(&image)?.0, log.written);
            match image.file_bytes(&segment_name(4)) {
                Some(bytes) => with += u64::from(bytes.len() == 3 << 20),
                None => without += 1,
            }
            let next = recovered(&image)?.1.next_segment;
            prepare(&image, SALT, next, SEGMENT_BYTES)?;
            assert!(!image.names().contains(&NEW_SEGMENT.to_owned()));
        }
    }
    assert!(with > 0 && without > 0, "{with} {without}");
    Ok(())
}

#[test]
fn every_flipped_bit_of_a_sealed_log_is_harmless_or_damage() {
    let log = sealed_log();
    let (mut harmless, mut damaged) = (0, 0);
    for name in log.vfs.names() {
        for bit in 0..SEGMENT_BYTES as u64 * 8 {
            log.vfs.flip_bit(&name, bit);
            match recovered(&log.vfs) {
                Ok((keys, _)) => {
                    assert_eq!(keys, log.written, "{name} bit {bit}");
                    harmless += 1;
                }
                Err(Error::Damaged { .. }) => damaged += 1,
                Err(other) => panic!("{name} bit {bit}: {other}"),
            }
            log.vfs.flip_bit(&name, bit);
        }
    }
    let written_bits = log.written.len() as u64 * 300 * 8;
    assert!(
        damaged > written_bits * 9 / 10,
        "{damaged} of {written_bits}"
    );
    assert!(harmless > 0);
}

#[test]
fn every_zeroed_sector_in_front_of_the_last_seal_is_harmless_or_damage() {
    let log = sealed_log();
    let seal = log.writer.end_lsn().offset() - BATCH_HEAD_BYTES as u64;
    let last = (segment_name(3), seal as usize / 512);
    for name in log.vfs.names() {
        let bytes = log.vfs.file_bytes(&name).expect("it is listed");
        for sector in 0..bytes.len() / 512 {
            let mut rotten = bytes.clone();
            rotten[sector * 512..(sector + 1) * 512].fill(0);
            log.vfs.install(&name, &rotten);
            match recovered(&log.vfs) {
                // A fault that takes the seal away with the batch in front of it leaves no witness.
                Ok((keys, _)) if (name.clone(), sector) == last => {
                    assert_eq!(keys[..], log.written[..keys.len()]);
                }
                Ok((keys, _)) => assert_eq!(keys, log.written, "{name} sector {sector}"),
                Err(error) => assert!(matches!(error, Error::Damaged { .. }), "{error}"),
            }
        }
        log.vfs.install(&name, &bytes);
    }
}

#[test]
fn damage_names_the_file_and_the_place() {
    let log = sealed_log();
    log.vfs
        .flip_bit(&segment_name(2), (FIRST_BATCH_AT as u64 + 64 + 10) * 8);
    let (file, offset, reason) = damage(&log.vfs);
    assert_eq!((file.as_str(), offset), (segment_name(2).as_str(), 128));
    assert!(
        reason.contains("acknowledged writes are lost here"),
        "{reason}"
    );
}

#[test]
fn a_segment_that_was_taken_away_is_damage() -> Result<()> {
    for missing in [1, 2] {
        let log = sealed_log();
        let name = segment_name(missing);
        log.vfs.remove(&name).expect("it exists");
        assert_eq!(damage(&log.vfs).0, name);
    }
    Ok(())
}

#[test]
fn a_flip_in_a_segment_head_is_damage_also_without_a_seal() -> Result<()> {
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 10)?;
    log.sync()?;
    log.vfs.flip_bit(&segment_name(1), 100);
    assert_eq!(damage(&log.vfs).1, 0);
    Ok(())
}

#[test]
fn the_seal_attests_what_the_sectors_do_not() -> Result<()> {
    for has_seal in [false, true] {
        let mut log = Log::start(&MemVfs::new());
        log.append(3, 900)?;
        log.sync()?;
        if has_seal {
            assert!(log.writer.seal()?);
            assert!(!log.writer.seal()?, "one seal says it all");
            log.sync()?;
            assert!(!log.writer.seal()?, "a seal needs no seal");
        }
        // A write that was cut short leaves a sector of zeros.
        let mut bytes = log.vfs.file_bytes(&segment_name(1)).expect("it exists");
        bytes[1024..1536].fill(0);
        log.vfs.install(&segment_name(1), &bytes);
        if has_seal {
            assert_eq!(damage(&log.vfs).1, 128);
        } else {
            let (keys, recovery) = recovered(&log.vfs)?;
            assert!(keys.is_empty());
            assert!(matches!(recovery.tail, Tail::Torn { offset: 128, .. }));
        }
    }
    Ok(())
}

#[test]
fn a_flipped_bit_in_the_newest_batch_is_damage_before_its_seal_is_there() -> Result<()> {
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 100)?;
    log.append(3, 900)?;
    log.sync()?;
    let (mut harmless, mut damaged) = (0, 0);
    for bit in 0..log.writer.end_lsn().offset() * 8 {
        log.vfs.flip_bit(&segment_name(1), bit);
        match recovered(&log.vfs) {
            Ok((keys, _)) => {
                assert_eq!(keys, log.written, "bit {bit}");
                harmless += 1;
            }
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(other) => panic!("bit {bit}: {other}"),
        }
        let is_told = !damaged_spots(&log.vfs, SALT, 1)?[0].1.is_empty();
        assert_eq!(is_told, recovered(&log.vfs).is_err(), "bit {bit}");
        log.vfs.flip_bit(&segment_name(1), bit);
    }
    assert!(harmless < 2 * 64 * 8, "{harmless} flips are in padding");
    assert!(damaged > (3 * 900 + 100) * 8);
    Ok(())
}

#[test]
fn a_segment_of_another_folder_is_refused() {
    let log = sealed_log();
    let result = recover(&log.vfs, SALT + 1, 1, |_| Ok(()));
    let error = result.expect_err("another salt");
    assert!(error.to_string().contains("another folder"), "{error}");
}

/// The part of the first segment from `lsn` to the end of its sector did not reach the disk.
fn lose_sector_of(log: &Log, lsn: Lsn) {
    let name = segment_name(1);
    let mut bytes = log.vfs.file_bytes(&name).expect("it exists");
    let from = lsn.offset() as usize;
    bytes[from..(from + 1).next_multiple_of(SECTOR_BYTES)].fill(0);
    log.vfs.install(&name, &bytes);
}

#[test]
fn a_value_that_looks_like_a_batch_is_not_taken_for_one() -> Result<()> {
    // The forger knows everything but the salt, and the batch around the forgery is torn.
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 10)?;
    let at = log.writer.end_lsn();
    let lsn = Lsn::new(1, at.offset() as usize + 512);
    let forged = BatchHead {
        body_crc: 0,
        body_len: 0,
        records: 0,
        mark: BatchMark::Plain,
        lsn,
        synced_upto: lsn,
        hlc_ceiling: u64::MAX,
    };
    let mut records = vec![7; 1024];
    records[512 - BATCH_HEAD_BYTES..512].copy_from_slice(&forged.encode(SALT + 1));
    log.writer.append(&records, 1, 0)?;
    lose_sector_of(&log, at);
    let (keys, recovery) = recovered(&log.vfs)?;
    assert_eq!(keys.len(), 1);
    assert_eq!(recovery.hlc_ceiling, 0);
    Ok(())
}

#[test]
fn an_unsynced_end_of_a_segment_hides_the_next_segment_and_is_no_damage() -> Result<()> {
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 10)?;
    log.sync()?;
    let bad = log.writer.end_lsn();
    log.append(1, 10)?;
    log.roll()?;
    log.append(1, 10)?;
    lose_sector_of(&log, bad);
    let (keys, recovery) = recovered(&log.vfs)?;
    assert_eq!(keys, log.written[..1]);
    assert_eq!(recovery.end, bad);
    // Once a sync has covered both, the same bad spot is damage.
    log.sync()?;
    log.append(1, 10)?;
    assert_eq!(damage(&log.vfs).1, bad.offset());
    Ok(())
}

#[test]
fn garbage_behind_the_end_of_a_rolled_segment_is_harmless() -> Result<()> {
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 10)?;
    log.sync()?;
    let end = log.writer.end_lsn();
    log.roll()?;
    log.append(1, 10)?;
    log.sync()?;
    // In the end mark, and behind it.
    for at in [end.offset() + 1, end.offset() + BATCH_HEAD_BYTES as u64 + 1] {
        log.vfs.flip_bit(&segment_name(1), at * 8);
        assert_eq!(recovered(&log.vfs)?.0, log.written, "{at}");
    }
    Ok(())
}

#[test]
fn a_sync_covers_what_was_appended_before_it_began() -> Result<()> {
    let mut log = Log::start(&MemVfs::new());
    log.append(1, 10)?;
    let begun = log.writer.begin_sync()?;
    let result = begun.run();
    log.append(1, 10)?;
    log.roll()?;
    log.append(1, 10)?;
    log.writer.finish_sync(&begun, result)?;
    assert_eq!(log.writer.synced_lsn(), begun.upto());
    assert!(log.writer.synced_lsn() < log.writer.end_lsn());
    // The old segment got more bytes after that sync: the next one must not forget it.
    log.sync()?;
    for seed in 0..50 {
        let image = log.vfs.crash_image(&mut Prng::new(seed));
        assert_eq!(recovered(&image)?.0, log.written);
    }
    Ok(())
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_written() -> Result<()> {
    for call in [Call::Write, Call::Sync] {
        let below = MemVfs::new();
        let vfs = FaultyVfs::new(Arc::new(below.clone()));
        let spare = prepare(&vfs, SALT, 1, SEGMENT_BYTES)?;
        let mut writer = LogWriter::start(spare, Lsn::default(), 0)?;
        vfs.fail(call, vfs.calls().of(call), CallFailure::Io, Repeat::Once);
        let records = batch(0, 1, 1);
        let result = writer
            .append(records.bytes(), 1, 0)
            .and_then(|_| writer.sync());
        assert!(matches!(result, Err(Error::Io { .. })), "{call:?}");
        let operations = below.operations();
        for result in [
            writer.append(records.bytes(), 1, 0).map(drop),
            writer.sync(),
            writer.seal().map(drop),
        ] {
            assert!(matches!(result, Err(Error::Poisoned { .. })));
        }
        assert_eq!(below.operations(), operations);
    }
    Ok(())
}

#[test]
fn a_spare_that_failed_half_way_can_be_made_again() -> Result<()> {
    for call in [Call::Write, Call::Sync, Call::SyncFolder] {
        for is_left in [false, true] {
            let below = MemVfs::new();
            let vfs = FaultyVfs::new(Arc::new(below.clone()));
            vfs.fail(call, 0, CallFailure::NoSpace, Repeat::Once);
            if is_left {
                vfs.fail(Call::Remove, 0, CallFailure::Io, Repeat::Once);
            }
            let error = prepare(&vfs, SALT, 1, SEGMENT_BYTES)
                .err()
                .expect("it fails");
            assert!(error.is_no_space());
            assert_eq!(below.names().len(), usize::from(is_left));
            let spare = prepare(&vfs, SALT, 1, SEGMENT_BYTES)?;
            assert_eq!(spare.capacity_bytes(), SEGMENT_BYTES);
        }
    }
    Ok(())
}

#[test]
fn a_used_segment_is_never_made_new() {
    let log = sealed_log();
    let error = prepare(&log.vfs, SALT, 2, SEGMENT_BYTES)
        .err()
        .expect("in use");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(prepare(&log.vfs, SALT, SEGMENT_ID_MAX + 1, SEGMENT_BYTES).is_err());
    assert!(prepare(&log.vfs, SALT, 9, 64).is_err());
}

#[test]
fn a_newer_format_is_refused_with_the_way_out() {
    let log = sealed_log();
    let mut bytes = log.vfs.file_bytes(&segment_name(1)).expect("it exists");
    bytes[12] = 2;
    let crc = crc32fast::hash(&bytes[12..64]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    log.vfs.install(&segment_name(1), &bytes);
    let error = recovered(&log.vfs).expect_err("format 2");
    assert!(matches!(error, Error::Unusable { .. }));
    assert!(error.to_string().contains("newer program"), "{error}");
}

#[test]
fn a_tool_reads_batches_and_says_where_they_end() -> Result<()> {
    let log = sealed_log();
    let segment = Segment::read(&log.vfs, 3)?;
    let mut batches = segment.batches();
    let mut counts = Vec::new();
    for batch in &mut batches {
        assert_eq!(batch.lsn, Lsn::new(3, batch.offset));
        assert_eq!(
            batch.records().filter(|r| r.is_ok()).count() as u32,
            batch.count
        );
        counts.push(batch.count);
    }
    assert_eq!(counts, [2, 1, 0]);
    assert_eq!(batches.offset() as u64, log.writer.end_lsn().offset());
    assert_eq!(batches.end(), SegmentEnd::Zeros);
    let headless = Segment::from_bytes(3, vec![1; 100])?;
    assert!(matches!(drained(&headless), SegmentEnd::Bad { .. }));
    Ok(())
}

fn drained(segment: &Segment) -> SegmentEnd {
    let mut batches = segment.batches();
    batches.by_ref().for_each(drop);
    batches.end()
}

#[test]
fn only_exact_names_are_segments() {
    assert_eq!(parse_segment_name(&segment_name(0xabc)), Some(0xabc));
    for name in [
        "wal-1.log",
        "wal-00000000000000AB.log",
        "wal-0000000000000001.tmp",
        "wal-+000000000000001.log",
        "wal-ffffffffffffffff.log",
        "0000000000000001.tbl",
    ] {
        assert_eq!(parse_segment_name(name), None, "{name}");
    }
}

proptest! {
    #![proptest_config(legal::cases(96))]

    #[test]
    fn any_legal_log_is_read_as_it_was_written(
        batches in prop::collection::vec(
            (legal::stored_records(1..=5), any::<(bool, bool)>()), 0..5,
        ),
        salt: u64,
        ceiling: u64,
    ) {
        let vfs = MemVfs::new();
        let spare = |segment, bytes: usize| prepare(&vfs, salt, segment, bytes + SEGMENT_BYTES);
        let mut writer = LogWriter::start(spare(1, 0)?, Lsn::default(), ceiling)?;
        let mut wanted = Vec::new();
        for (records, (rolls, syncs)) in batches {
            let mut batch = Batch::new();
            for (key, cell) in &records {
                batch.push(0, key, &cell.as_ref(), Guard::Newest, 0).expect("it is legal");
            }
            if rolls || batch.bytes().len() > writer.room() {
                writer.roll(spare(writer.segment() + 1, batch.bytes().len())?)?;
            }
            writer.append(batch.bytes(), records.len() as u32, ceiling)?;
            if syncs {
                writer.sync()?;
                writer.seal()?;
            }
            wanted.extend(records);
        }
        let mut found = Vec::new();
        let recovery = recover(&vfs, salt, 1, |record| {
            let cell = record.cell().expect("a record that was written");
            found.push((record.stored_key.to_vec(), cell.to_owned()));
            Ok(())
        })?;
        prop_assert!(found == wanted);
        prop_assert_eq!(recovery.tail, Tail::Clean);
        prop_assert_eq!(recovery.end, writer.end_lsn());
        prop_assert!(wanted.is_empty() || recovery.hlc_ceiling == ceiling);
    }

    #[test]
    fn any_legal_heads_are_read_as_they_were_written(
        segment in 0..=SEGMENT_ID_MAX, numbers: [u64; 5], lens: [u32; 3], offset: u32, ends: bool,
    ) {
        let [previous_end, synced_upto, salt, hlc_ceiling, bytes] = numbers;
        let head = SegmentHead { segment, bytes, salt };
        prop_assert_eq!(SegmentHead::decode(&head.encode(), segment).ok(), Some(head));
        let start = SegmentStart {
            previous_end: Lsn(previous_end),
            synced_upto: Lsn(synced_upto),
        };
        let bytes = start.encode(salt, segment);
        prop_assert_eq!(SegmentStart::decode(&bytes, salt, segment).ok(), Some(start));
        prop_assert_eq!(parse_segment_name(&segment_name(segment)), Some(segment));
        let [body_crc, body_len, records] = lens;
        let lsn = Lsn::new(segment, offset as usize);
        let head = BatchHead {
            body_crc,
            body_len,
            records,
            mark: if ends { BatchMark::End } else { BatchMark::Plain },
            lsn,
            synced_upto: Lsn(synced_upto).min(lsn),
            hlc_ceiling,
        };
        prop_assert_eq!(BatchHead::decode(&head.encode(salt), salt, lsn), Some(head));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_read_without_a_panic_or_an_invented_record(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in 0usize..3000,
        has_head in any::<bool>(),
    ) {
        let log = sealed_log();
        let mut segment = log.vfs.file_bytes(&segment_name(2)).expect("it exists");
        let from = if has_head { SEGMENT_HEAD_BYTES + at } else { at };
        segment[from..from + bytes.len()].copy_from_slice(&bytes);
        log.vfs.install(&segment_name(2), &segment);
        if let Ok((keys, _)) = recovered(&log.vfs) {
            prop_assert_eq!(keys, log.written);
        }
        log.vfs.install(&segment_name(1), &bytes);
        let _whatever_it_is = recovered(&log.vfs);
        drained(&Segment::from_bytes(1, bytes)?);
    }

    #[test]
    fn a_power_loss_keeps_a_prefix_that_holds_everything_synced(
        steps in prop::collection::vec((0u8..8, 1u64..4, 0usize..900), 1..40),
        crash in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let run = |crash_at: Option<u64>| {
            let vfs = MemVfs::new();
            let mut log = Log::start(&vfs);
            vfs.crash_at(crash_at.unwrap_or(u64::MAX));
            let mut result = Ok(());
            for &(kind, count, value_len) in &steps {
                result = result.and_then(|()| match kind {
                    0 => log.roll(),
                    1 => log.writer.seal().map(drop),
                    2..=4 => log.sync(),
                    _ => log.append(count, value_len),
                });
            }
            (log, result)
        };
        let (whole, result) = run(None);
        prop_assert!(result.is_ok());
        let first = Log::start(&MemVfs::new()).vfs.operations();
        let span = usize::try_from(whole.vfs.operations() - first + 1).expect("few operations");
        let (log, _) = run(Some(first + crash.index(span) as u64));
        let mut prng = Prng::new(seed);
        for _ in 0..4 {
            let (keys, recovery) = recovered(&log.vfs.crash_image(&mut prng))?;
            prop_assert!(keys.len() >= log.durable, "{} of {}", keys.len(), log.durable);
            // The append that the crash cut short may be there in full.
            prop_assert_eq!(&keys[..], &whole.written[..keys.len()]);
            prop_assert!(recovery.end >= log.writer.synced_lsn() || log.durable == 0);
        }
        let (keys, _) = recovered(&log.vfs.process_crash_image())?;
        prop_assert!(keys.len() >= log.written.len());
    }
}
