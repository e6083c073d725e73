//! Damaged tables: every answer is right or an error, and no call panics.
//!
//! Not here: failing disks (`vfs/faulty.rs`), damage to logs and manifests.

use super::*;
use crate::Error;
use crate::table::block::{Block, put_varint};
use crate::table::cursor::BlockCursor;
use crate::table::filter::Filter;
use crate::table::footer::{FOOTER_BYTES, Footer};
use crate::table::frame::{self, FrameKind, Handle};

const ID: u64 = 7;

/// Several blocks and partitions in about two kilobytes.
fn small(compression: Compression) -> (Folder, TableMeta, Model) {
    let options = TableOptions {
        block_bytes: 256,
        partition_bytes: 600,
        filter_bits_per_key: 10,
        compression,
    };
    let model = draw_model(11, 20, 40);
    let folder = Folder::default();
    let meta = write(&folder, ID, &options, &model);
    (folder, meta, model)
}

/// Asks everything. `Err` names the first question that was answered wrongly; errors are answers.
fn ask_everything(table: &Arc<Table>, model: &Model) -> Result<(), String> {
    let cache = BlockCache::new(1 << 20);
    for (key, cell) in model {
        for (key, wanted) in [
            (key.clone(), Some(cell)),
            ([key.as_slice(), b"!"].concat(), None),
        ] {
            let hash = key_hash(&key);
            // The third read may take a shortcut.
            for first in [First::Filter, First::Block, First::Block] {
                match table.get(&cache, &key, hash, Version::ZERO, first, Wait::Block) {
                    Ok(found) => {
                        if found.as_ref().map(FoundCell::cell) != wanted.map(Cell::as_ref) {
                            return Err(format!("get {}: {found:?}", key.escape_ascii()));
                        }
                    }
                    Err(e) => check_error(&e)?,
                }
            }
        }
    }
    let forward: Vec<_> = model.iter().collect();
    let backward: Vec<_> = model.iter().rev().collect();
    for (direction, wanted) in [
        (Direction::Forward, forward),
        (Direction::Backward, backward),
    ] {
        let mut iter = TableIter::new(Arc::clone(table), ReadMode::Ahead(1 << 10));
        let mut seen = 0;
        let mut done = iter.seek(Bound::Unbounded, direction);
        while let (Ok(()), Some((key, cell))) = (&done, iter.current()) {
            let Some((k, c)) = wanted.get(seen) else {
                return Err(format!("{direction:?}: too many records"));
            };
            if key != k.as_slice() || cell != c.as_ref() {
                return Err(format!("{direction:?}: {}", key.escape_ascii()));
            }
            seen += 1;
            done = iter.advance();
        }
        match done {
            Ok(()) if seen != wanted.len() => return Err(format!("{direction:?}: cut off")),
            Ok(()) => {}
            Err(e) => check_error(&e)?,
        }
    }
    Ok(())
}

fn check_error(error: &Error) -> Result<(), String> {
    match error {
        Error::Damaged { file, .. } if *file == file_name(ID) => Ok(()),
        other => Err(format!("damage is reported as {other:?}")),
    }
}

#[test]
fn every_flipped_bit_gives_right_answers_or_errors() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (folder, meta, model) = small(compression);
        let name = file_name(ID);
        let open = Arc::new(Table::open(&folder, meta.clone()).expect("just written"));
        for at in 0..folder.bytes(&name).len() {
            for bit in 0..8 {
                let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 1 << bit;
                folder.tamper(&name, flip);
                let broken = |reason| panic!("{compression:?}, byte {at}, bit {bit}: {reason}");
                match Table::open(&folder, meta.clone()) {
                    Ok(table) => {
                        ask_everything(&Arc::new(table), &model).unwrap_or_else(broken);
                    }
                    Err(e) => check_error(&e).unwrap_or_else(broken),
                }
                ask_everything(&open, &model).unwrap_or_else(broken);
                // Without the manifest's digest too: each bit is under some checksum.
                if let Ok(table) = Table::open_unknown(&folder, &name) {
                    assert!(
                        table.verify(|_, _| Ok(())).is_err(),
                        "{compression:?}, byte {at}, bit {bit}: not seen"
                    );
                }
                folder.tamper(&name, flip);
            }
        }
        open.verify(|_, _| Ok(())).expect("every bit is back");
    }
}

#[test]
fn every_truncation_is_found() {
    let (folder, meta, _) = small(Compression::Lz4);
    let whole = folder.bytes(&file_name(ID));
    for len in 0..whole.len() {
        folder.put(&file_name(ID), whole[..len].to_vec());
        let error = Table::open(&folder, meta.clone()).expect_err("cut off");
        check_error(&error).expect("a truncated file is damaged");
    }
}

/// All frames of a table with their kinds.
fn frames(table: &Table) -> Vec<(FrameKind, Handle)> {
    let mut out = vec![
        (FrameKind::Top, table.footer.top),
        (FrameKind::Properties, table.footer.properties),
    ];
    for i in 0..table.top.len() {
        let partition = table.top.partition(i);
        out.push((FrameKind::Index, partition.index));
        out.extend(partition.filter.map(|handle| (FrameKind::Filter, handle)));
        let index = table.read_index(i, Wait::Block).expect("whole");
        for entry in 0..index.len() {
            out.push((FrameKind::Data, index.block(entry).0));
        }
    }
    out
}

/// The spots that a scrub finds in all parts of a table.
fn scrub(table: &Table) -> Vec<Flaw> {
    let (mut read, mut spots) = (ScrubRead::default(), Vec::new());
    for part in 0..table.scrub_parts() {
        let scrubbed = table.scrub_part(part, &mut read, &mut spots);
        scrubbed.expect("memory does not fail");
    }
    spots
}

/// Offset and reason of each damage that a check finds.
fn check(table: &Table) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let on_damage = |error| match error {
        Error::Damaged { offset, reason, .. } => {
            found.push((offset, reason));
            Ok(())
        }
        other => Err(other),
    };
    let checked = table.verify_all(|_, _| Ok(()), on_damage);
    checked.expect("memory does not fail");
    found
}

fn mend(table: &Arc<Table>, repaired: Vec<KeySpan>) -> crate::Result<Vec<(Vec<u8>, Cell)>> {
    let mut iter = MendIter::new(Arc::clone(table), repaired);
    iter.seek(Bound::Unbounded, Direction::Forward)?;
    collect(&mut iter)
}

/// Both tell the same; a mend shows each record that is not lost, and needs all spans.
fn assert_seen_alike(table: &Arc<Table>, model: &Model, what: &str) -> Vec<Flaw> {
    let spots = scrub(table);
    let told = |flaw: &Flaw| (flaw.offset, flaw.reason.clone());
    let told: Vec<(u64, String)> = spots.iter().map(told).collect();
    assert_eq!(check(table), told, "{what}");
    let spans: Vec<KeySpan> = spots.iter().filter_map(|flaw| flaw.span.clone()).collect();
    assert_eq!(
        mend(table, Vec::new()).is_err(),
        !spans.is_empty(),
        "{what}"
    );
    let mended = mend(table, spans.clone()).expect("all that is lost is repaired");
    let is_lost = |key: &Vec<u8>| {
        let mut spans = spans.iter();
        spans.any(|span| (&span.first..=&span.last).contains(&key))
    };
    let kept = model.iter().filter(|(key, _)| !is_lost(key));
    let kept: Vec<_> = kept.map(|(k, c)| (k.clone(), c.clone())).collect();
    assert_eq!(mended, kept, "{what}");
    spots
}

#[test]
fn a_check_and_a_scrub_and_a_mend_see_the_same_damage() {
    let (folder, meta, model) = small(Compression::None);
    let table = Arc::new(Table::open(&folder, meta).expect("just written"));
    assert_eq!(assert_seen_alike(&table, &model, "whole"), []);
    for (kind, handle) in frames(&table) {
        let what = format!("{} at {}", kind.as_str(), handle.offset);
        let flip = |bytes: &mut Vec<u8>| bytes[handle.offset as usize + 1] ^= 4;
        folder.tamper(&file_name(ID), flip);
        if matches!(kind, FrameKind::Top | FrameKind::Properties) {
            // A check reads them when it opens the table.
            let spots = scrub(&table);
            assert_eq!(spots.len(), 1, "{what}");
            assert_eq!(spots[0].span, None, "{what}");
        } else {
            let spots = assert_seen_alike(&table, &model, &what);
            assert_eq!(spots.len(), 1, "{what}");
            assert_eq!(spots[0].offset, handle.offset, "{what}");
            assert_eq!(spots[0].span.is_none(), kind == FrameKind::Filter, "{what}");
        }
        folder.tamper(&file_name(ID), flip);
    }
}

#[test]
fn a_filter_that_hides_a_key_and_a_wrong_bound_cost_no_record() {
    let (folder, meta, model) = small(Compression::None);
    let table = Arc::new(Table::open(&folder, meta.clone()).expect("just written"));
    let whole = folder.bytes(&file_name(ID));
    let filter = table.top.partition(0).filter.expect("it has filters");
    folder.tamper(&file_name(ID), |bytes| {
        let line = filter.offset as usize..filter.end() as usize - frame::TRAILER_BYTES - 1;
        bytes[line].fill(0);
        reseal(bytes, filter);
    });
    let spots = assert_seen_alike(&table, &model, "filter");
    let blocks = table.read_index(0, Wait::Block).expect("whole").len();
    assert_eq!(spots.len(), blocks, "one for each block of the partition");
    for spot in spots {
        assert_eq!(spot.span, None);
        assert_eq!(spot.reason, "a key does not pass its own filter");
    }

    folder.put(&file_name(ID), whole);
    let older = (0..table.top.len())
        .map(|i| table.top.partition(i).version_max)
        .find(|version| *version != meta.version_max)
        .expect("one partition has the newest version");
    folder.tamper(&file_name(ID), |bytes| {
        let top = table.footer.top;
        let frame = &mut bytes[top.offset as usize..top.end() as usize];
        let mut places = frame.windows(16);
        let at = places.position(|part| part == older.to_bytes());
        frame[at.expect("it is listed") + 15] ^= 1;
        reseal(bytes, top);
    });
    let table = Arc::new(Table::open(&folder, meta).expect("the top index is sound"));
    let spots = assert_seen_alike(&table, &model, "top index");
    assert_eq!(spots.len(), 1);
    assert_eq!(spots[0].reason, "the top index has another newest version");
}

/// The rest of a partition is lost where its index cannot be followed.
#[test]
fn an_index_that_skips_a_block_is_damage_to_all() {
    let (folder, meta, model) = small(Compression::None);
    let table = Arc::new(Table::open(&folder, meta).expect("just written"));
    let at = (0..table.top.len())
        .find(|i| table.read_index(*i, Wait::Block).expect("whole").len() > 1)
        .expect("a partition of two blocks");
    let index = table.read_index(at, Wait::Block).expect("whole");
    let (first, _) = index.block(0);
    let handle = table.top.partition(at).index;
    folder.tamper(&file_name(ID), |bytes| {
        // The length of the first block, as the index has it.
        let mut written = Vec::new();
        put_varint(&mut written, first.offset);
        let length = written.len();
        put_varint(&mut written, u64::from(first.bytes));
        let frame = &mut bytes[handle.offset as usize..handle.end() as usize];
        let mut places = frame.windows(written.len());
        let place = places
            .position(|part| part == written)
            .expect("it is listed");
        frame[place + length] ^= 1;
        reseal(bytes, handle);
    });
    let spots = assert_seen_alike(&table, &model, "index");
    assert_eq!(spots.len(), 2, "the block, and the rest: {spots:?}");
    assert_eq!(spots[1].reason, "the index has no block that starts here");
    let (block, rest) = (spots[0].span.as_ref(), spots[1].span.as_ref());
    let (block, rest) = block.zip(rest).expect("records are lost");
    assert!(block.last < rest.first);
    assert_eq!(rest.last, table.top.key(at));
}

#[test]
fn a_block_of_another_table_or_another_place_is_found() {
    let (folder, meta, _) = small(Compression::None);
    let table = Table::open(&folder, meta.clone()).expect("just written");
    // The same records under another id: every byte of a payload is the same.
    let other = Folder::default();
    let options = TableOptions {
        block_bytes: 256,
        partition_bytes: 600,
        filter_bits_per_key: 10,
        compression: Compression::None,
    };
    write(&other, ID + 1, &options, &draw_model(11, 20, 40));
    let (mine, stale) = (
        folder.bytes(&file_name(ID)),
        other.bytes(&file_name(ID + 1)),
    );
    assert_eq!(mine.len(), stale.len());
    for (kind, handle) in frames(&table) {
        let place = handle.offset as usize..handle.end() as usize;
        let mut bytes = mine.clone();
        bytes[place.clone()].copy_from_slice(&stale[place.clone()]);
        folder.put(&file_name(ID), bytes);
        let verified = Table::open(&folder, meta.clone()).and_then(|t| t.verify(|_, _| Ok(())));
        check_error(&verified.expect_err("a stale block")).expect("a stale block is damage");

        let moved = Handle {
            offset: handle.offset + 1,
            ..handle
        };
        let opened = frame::open(&mine[place], kind, ID, moved.offset);
        opened.expect_err("the place is part of the checksum");
    }
}

#[test]
fn a_table_of_a_newer_format_or_algorithm_names_the_way_out() {
    for (at, value, wanted) in [(52, 2, "table format 2"), (41, 9, "digest 9")] {
        let (folder, meta, _) = small(Compression::Lz4);
        folder.tamper(&file_name(ID), |bytes| {
            let footer = bytes.len() - FOOTER_BYTES;
            bytes[footer + at] = value;
            reseal_footer(&mut bytes[footer..]);
        });
        let error = Table::open(&folder, meta).expect_err("not of this program");
        assert!(matches!(&error, Error::Unusable { .. }), "{error:?}");
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(
            error.to_string().contains("open the folder with"),
            "{error}"
        );
    }
}

#[test]
fn a_table_that_is_not_the_manifests_is_refused() {
    let (folder, meta, _) = small(Compression::Lz4);
    let lie = TableMeta {
        records: meta.records + 1,
        ..meta.clone()
    };
    let error = Table::open(&folder, lie).expect_err("another table");
    assert!(error.to_string().contains("records"), "{error}");
    let lie = TableMeta {
        digest: meta.digest ^ 1,
        ..meta
    };
    let table = Table::open(&folder, lie).expect("the digest is not read at open");
    let error = table.verify(|_, _| Ok(())).expect_err("another digest");
    assert!(error.to_string().contains("digest"), "{error}");
}

fn reseal_footer(footer: &mut [u8]) {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&footer[..48]);
    hasher.update(&footer[52..]);
    footer[48..52].copy_from_slice(&hasher.finalize().to_le_bytes());
}

fn reseal(bytes: &mut [u8], handle: Handle) {
    let frame = &mut bytes[handle.offset as usize..handle.end() as usize];
    let (checked, crc) = frame.split_at_mut(handle.bytes as usize - 4);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&ID.to_le_bytes());
    hasher.update(&handle.offset.to_le_bytes());
    hasher.update(checked);
    crc.copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// Asks everything and wants only an end: bytes with valid checksums may mean anything.
fn survive(folder: &Folder) {
    let Ok(table) = Table::open_unknown(folder, &file_name(ID)) else {
        return;
    };
    let table = Arc::new(table);
    // Errors are as good as answers here: it is enough that there is no panic and an end.
    let _ = table.verify(|_, _| Ok(()));
    let _ = scrub(&table);
    let _ = mend(&table, Vec::new());
    let _ = describe(folder, &file_name(ID), &mut Vec::new(), 10);
    let cache = Arc::new(BlockCache::new(1 << 20));
    for key in draw_model(11, 20, 40).keys() {
        for first in [First::Filter, First::Block] {
            let hash = key_hash(key);
            let _ = table.get(&cache, key, hash, Version::ZERO, first, Wait::Block);
        }
        for reading in [
            ReadMode::Cached(Arc::clone(&cache), FillCache::Yes),
            ReadMode::Ahead(1 << 10),
        ] {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut iter = TableIter::new(Arc::clone(&table), reading.clone());
                let mut done = iter.seek(Bound::Included(key), direction);
                while done.is_ok() && iter.current().is_some() {
                    done = iter.advance();
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damage_under_a_valid_checksum_does_not_panic(
        seed in any::<u64>(),
        changes in 1usize..6,
        lz4 in any::<bool>(),
    ) {
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        let (folder, meta, _) = small(compression);
        let table = Table::open(&folder, meta).expect("just written");
        let frames = frames(&table);
        let mut prng = Prng::new(seed);
        folder.tamper(&file_name(ID), |bytes| {
            for _ in 0..changes {
                let (_, handle) = frames[prng.below(frames.len() as u64) as usize];
                // The compression and the uncompressed length may change too.
                let at = handle.offset + prng.below(u64::from(handle.bytes) - 4);
                bytes[at as usize] = prng.next_u64() as u8;
                reseal(bytes, handle);
            }
            if prng.chance(1, 8) {
                let footer = bytes.len() - FOOTER_BYTES;
                bytes[footer + prng.below(48) as usize] = prng.next_u64() as u8;
                reseal_footer(&mut bytes[footer..]);
            }
        });
        survive(&folder);
    }

    #[test]
    fn arbitrary_bytes_are_no_table(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let folder = Folder::default();
        folder.put(&file_name(ID), bytes);
        let error = Table::open_unknown(&folder, &file_name(ID)).expect_err("not a table");
        check_error(&error).expect("damage");
    }

    #[test]
    fn arbitrary_bytes_as_a_footer_do_not_panic(bytes in any::<[u8; 32]>()) {
        let mut footer = [0; FOOTER_BYTES];
        footer[..32].copy_from_slice(&bytes);
        footer[52] = bytes[0] & 1;
        footer[56..].copy_from_slice(b"DENDRTBL");
        reseal_footer(&mut footer);
        let _ = Footer::decode(&footer);
    }

    #[test]
    fn arbitrary_bytes_as_a_block_do_not_panic(
        mut bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..200),
        restarts in prop::collection::vec(0u32..60, 0..5),
        target in prop::collection::vec(0u8..6, 0..6),
    ) {
        let mut restarts = restarts;
        restarts.sort();
        restarts.insert(0, 0);
        restarts.dedup();
        for restart in &restarts {
            bytes.extend_from_slice(&restart.to_le_bytes());
        }
        bytes.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
        let Ok(block) = Block::parse(bytes.into()) else {
            return Ok(());
        };
        let block = Arc::new(block);
        let _ = block.find(&target);
        let _ = block.find_tagged(&target, key_hash(&target));
        for i in 0..block.restarts() {
            let _ = block.nth(i);
        }
        for direction in [Direction::Forward, Direction::Backward] {
            for bound in [Bound::Unbounded, Bound::Included(target.as_slice())] {
                let mut cursor = BlockCursor::new();
                let mut done = cursor.seek(Arc::clone(&block), bound, direction);
                while done.is_ok() && cursor.current().is_some() {
                    done = cursor.advance();
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_as_a_filter_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        hash in any::<u64>(),
    ) {
        if let Ok(filter) = Filter::parse(&bytes) {
            filter.may_hold(hash);
        }
    }
}
