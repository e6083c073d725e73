//! Bytes that are almost a manifest or an object: refused, or read for the facts that they hold.
//!
//! ```text
//! whole file ─► a few drawn changes ─► its checksums made right again, or not ─► decode, read all
//! ```
//!
//! Invariants
//! 1. No call panics, and no frame is longer than its object says, or than a mebibyte.
//! 2. A file that is read as whole encodes to the bytes it was read from. Content that is verified
//!    has the checksum of its end.
//! 3. A restore reads frame by frame: each frame by itself is the one that was written, or an
//!    error.
//! 4. Changes behind right checksums reach the fields: some of them are accepted, some refused.
//!
//! Not here: the search for other inputs (`fuzz/`), each single byte (tests of the modules).

use dendra_archive::manifest::{BackupCluster, BackupFile, BackupManifest, BackupNode};
use dendra_archive::object::{FrameScratch, ObjectReader, ObjectWriter};
use dendra_archive::seal::BackupKey;
use dendra_base::Prng;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

const ROUNDS: u64 = 4_000;
const CONTENT: u128 = 7;

fn manifest() -> BackupManifest {
    let file = |number: u64| BackupFile {
        name: format!("{number:016x}.tbl"),
        bytes: number << 20,
        object: u128::from(number) << 64,
        checksum: u128::from(number) << 65,
    };
    let node = |number: u64| BackupNode {
        url: format!("http://h{number}:1"),
        node: u128::from(number),
        hlc: number,
        files: (1..3).map(file).collect(),
        kept: (3..5).map(file).collect(),
        mark: Some(u128::from(number) << 66),
    };
    BackupManifest {
        id: "20260102T030405Z-00c0ffee".to_owned(),
        began_ms: 1,
        cut_ms: 2,
        hlc: u64::MAX,
        cluster: Some(BackupCluster {
            name: "dendra".to_owned(),
            epoch: 1,
            replication_factor: 3,
            members: (1..4).map(|number| format!("http://h{number}:1")).collect(),
            least_successor: 70_000,
        }),
        nodes: (1..3).map(node).collect(),
        moved_bytes: 34,
        moved_stored_bytes: 99,
    }
}

/// Pieces that are put in: they reach other branches than single bytes.
const PIECES: [&[u8]; 14] = [
    b"null",
    b"18446744073709551615",
    b"-1",
    b"1e99",
    b"\"\"",
    b"\"ffffffffffffffffffffffffffffffff\"",
    b"\"fffffffffffffffffffffffffffffffff\"",
    b"[]",
    b"{}",
    b"[[[[[[[[[[[[[[[[",
    b"\\u0000",
    b"\\u001b[2J",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
];

fn change(prng: &mut Prng, bytes: &mut Vec<u8>) {
    for _ in 0..=prng.below(3) {
        let at = prng.below(bytes.len() as u64 + 1) as usize;
        let length = (prng.below(12) as usize).min(bytes.len() - at);
        match prng.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << prng.below(8),
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let copied = bytes[at..at + length].to_vec();
                let to = prng.below(bytes.len() as u64 + 1) as usize;
                drop(bytes.splice(to..to, copied));
            }
            _ => {
                let piece = PIECES[prng.below(PIECES.len() as u64) as usize];
                drop(bytes.splice(at..at + length, piece.iter().copied()));
            }
        }
    }
}

#[test]
fn a_manifest_that_was_changed_is_refused_or_read_for_what_it_says() {
    let whole = manifest().encode();
    let last = whole.len() - "checksum \n".len() - 32;
    let (mut read, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut prng = Prng::named(seed, "manifest");
        let mut changed = whole.clone();
        change(&mut prng, &mut changed);
        assert!(changed == whole || BackupManifest::decode(&changed).is_err());
        // Behind a checksum that fits.
        let mut changed = whole[..last].to_vec();
        change(&mut prng, &mut changed);
        if changed.last() != Some(&b'\n') {
            changed.push(b'\n');
        }
        let checksum = xxh3_128(&changed);
        changed.extend_from_slice(format!("checksum {checksum:032x}\n").as_bytes());
        match BackupManifest::decode(&changed) {
            Err(_) => refused += 1,
            Ok(manifest) => {
                read += 1;
                assert_eq!(
                    BackupManifest::decode(&manifest.encode()),
                    Ok(manifest.clone())
                );
                assert!(manifest.missing().len() <= 8);
                let most = manifest.files().map(|(_, file)| file.bytes).max();
                assert!(manifest.bytes() >= most.unwrap_or(0));
            }
        }
    }
    assert!(
        read > 100 && refused > 100,
        "{read} read, {refused} refused"
    );
}

#[test]
fn a_manifest_with_control_characters_in_a_name_is_refused() {
    let mut hostile = manifest();
    hostile.nodes[0].url = "http://h1:1\u{1b}[2J".to_owned();
    assert!(BackupManifest::decode(&hostile.encode()).is_err());
}

#[test]
fn sizes_that_no_disk_has_make_no_sum_that_is_small() {
    let mut hostile = manifest();
    hostile.nodes[1].files[0].bytes = u64::MAX - 1;
    let read = BackupManifest::decode(&hostile.encode()).expect("sizes are numbers");
    assert_eq!(read.bytes(), u64::MAX);
}

fn object(prng: &mut Prng, key: Option<&BackupKey>) -> Vec<u8> {
    let mut writer = ObjectWriter::new(Vec::new(), key, CONTENT).expect("memory");
    for part in 0..prng.below(4) {
        let bytes: Vec<u8> = (0..prng.below(9_000) * 30)
            .map(|at| match part % 2 {
                0 => (at % 7) as u8,
                _ => prng.next_u64() as u8,
            })
            .collect();
        writer.push(&bytes).expect("memory");
    }
    writer.finish().expect("memory").1
}

/// Makes the checksums of all frames and of the index right, where there is an end to be found.
fn mend(bytes: &mut [u8]) -> Option<()> {
    let footer = bytes.len().checked_sub(48)?;
    let frames = u32::from_le_bytes(bytes[footer + 8..footer + 12].try_into().ok()?) as usize;
    let index = footer.checked_sub(frames.checked_mul(12)?)?;
    let mut offset = 16;
    for frame in 0..frames {
        let entry = index + 12 * frame;
        let length = u32::from_le_bytes(bytes[entry..entry + 4].try_into().ok()?) & !(1 << 31);
        let stored = bytes.get(offset..offset + length as usize);
        offset += length as usize;
        let checksum = xxh3_64_with_seed(stored.unwrap_or_default(), frame as u64);
        bytes[entry + 4..entry + 12].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = xxh3_64(&bytes[index..footer + 32]);
    bytes[footer + 32..footer + 40].copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

fn open(bytes: Vec<u8>, key: Option<&BackupKey>) -> Option<ObjectReader> {
    ObjectReader::open(Box::new(bytes), key, CONTENT).ok()
}

/// Reads all of it as a restore does, without the checksum of the whole content.
fn frames(reader: &ObjectReader) -> Option<Vec<u8>> {
    let (mut scratch, mut frame) = (FrameScratch::new().expect("memory"), Vec::new());
    let (mut content, mut at) = (Vec::new(), 0);
    while at < reader.sum().bytes {
        match reader.frame_at(at, &mut scratch, &mut frame) {
            Ok(begins) => assert_eq!(begins, at),
            Err(_) => {
                assert!(reader.verify(|_| ()).is_err());
                return None;
            }
        }
        assert!(!frame.is_empty() && frame.len() <= 1 << 20);
        content.extend_from_slice(&frame);
        at += frame.len() as u64;
    }
    assert_eq!(content.len() as u64, reader.sum().bytes);
    Some(content)
}

/// Reads all of it; the content, if it is whole.
fn read(bytes: Vec<u8>, key: Option<&BackupKey>) -> Option<Vec<u8>> {
    let reader = open(bytes, key)?;
    let content = frames(&reader)?;
    let is_whole = reader.verify(|_| ()).is_ok();
    assert_eq!(is_whole, xxh3_128(&content) == reader.sum().checksum);
    is_whole.then_some(content)
}

#[test]
fn an_object_that_was_changed_is_refused_or_read_for_what_it_says() {
    let (mut read_well, mut refused) = (0, 0);
    for seed in 0..ROUNDS / 20 {
        let mut prng = Prng::named(seed, "object");
        let whole = object(&mut prng, None);
        let content = read(whole.clone(), None).expect("it was written so");
        for _ in 0..20 {
            let mut changed = whole.clone();
            // Most of it is content: head, index and footer have their share of the changes.
            match prng.below(3) {
                0 => change(&mut prng, &mut changed),
                1 => {
                    let at = changed.len() - 1 - prng.below(84.min(changed.len() as u64)) as usize;
                    changed[at] ^= 1 << prng.below(8);
                }
                _ => changed[prng.below(16) as usize] ^= 1 << prng.below(8),
            }
            let unmended = open(changed.clone(), None).and_then(|it| frames(&it));
            assert!(unmended.is_none_or(|it| it == content), "seed {seed}");
            let mended = mend(&mut changed);
            match mended.and_then(|()| read(changed, None)) {
                Some(_) => read_well += 1,
                None => refused += 1,
            }
        }
    }
    assert!(refused > 100, "{read_well} read, {refused} refused");
}

#[test]
fn a_sealed_file_that_was_changed_never_opens() {
    let key = BackupKey::new([7; 32]);
    for seed in 0..ROUNDS / 40 {
        let mut prng = Prng::named(seed, "sealed");
        let whole = object(&mut prng, Some(&key));
        let content = read(whole.clone(), Some(&key)).expect("it was written so");
        let sealed = manifest().seal(&key).expect("randomness");
        for _ in 0..10 {
            let mut changed = whole.clone();
            change(&mut prng, &mut changed);
            let opened = open(changed, Some(&key)).and_then(|it| frames(&it));
            assert!(opened.is_none_or(|it| it == content), "seed {seed}");
            let mut changed = sealed.clone();
            change(&mut prng, &mut changed);
            let opened = BackupManifest::open(&changed, &key, &manifest().id);
            assert!(changed == sealed || opened.is_err(), "seed {seed}");
        }
    }
}

/// Where the first frame begins, and the bytes in front of the content of a sealed one and behind
/// it.
const HEADS: [(usize, usize); 2] = [(16, 0), (56, 1 + 16)];
/// Content of a frame, as it is written.
const FRAME: usize = 256 << 10;

#[test]
fn frames_that_changed_places_are_errors_one_by_one() {
    let key = BackupKey::new([7; 32]);
    let mut prng = Prng::new(3);
    let content: Vec<u8> = (0..2 * FRAME).map(|_| prng.next_u64() as u8).collect();
    for ((head, more), key) in HEADS.into_iter().zip([None, Some(&key)]) {
        let mut writer = ObjectWriter::new(Vec::new(), key, CONTENT).expect("memory");
        writer.push(&content).expect("memory");
        let mut stored = writer.finish().expect("memory").1;
        let length = FRAME + more;
        let (first, second) = stored[head..head + 2 * length].split_at_mut(length);
        first.swap_with_slice(second);
        let reader = open(stored, key).expect("its end is whole");
        let (mut scratch, mut frame) = (FrameScratch::new().expect("memory"), Vec::new());
        for at in [0, FRAME as u64] {
            assert!(reader.frame_at(at, &mut scratch, &mut frame).is_err());
        }
    }
}

/// An object with one frame that is not compressed and as long as its head says; all checksums
/// hold.
fn one_frame(length: u32) -> Vec<u8> {
    let content = vec![5; length as usize];
    let mut bytes = b"DNDRBKUP\x01\x00\x00\x00".to_vec();
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&content);
    bytes.extend_from_slice(&(length | 1 << 31).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&u64::from(length).to_le_bytes());
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&xxh3_128(&content).to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(b"DNDROBJ1");
    mend(&mut bytes).expect("it has an end");
    bytes
}

#[test]
fn a_frame_above_a_mebibyte_is_refused_before_memory_is_taken_for_it() {
    assert!(read(one_frame(1 << 20), None).is_some_and(|it| it.len() == 1 << 20));
    assert!(open(one_frame((1 << 20) + 1), None).is_none());
}
