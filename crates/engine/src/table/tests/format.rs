//! Files of released formats stay readable, and today's writer still writes format 1.
//!
//! `DENDRA_BLESS=1` writes the files anew: only for a format that was never released.

use super::*;
use std::fs;
use std::path::Path;

const ID: u64 = 0x1234;

fn fixtures() -> [(&'static str, Compression, u64); 3] {
    [
        ("table-format-1.tbl", Compression::Lz4, LZ4_DIGEST),
        ("table-format-1-zstd.tbl", Compression::Zstd, ZSTD_DIGEST),
        ("table-format-1-raw.tbl", Compression::None, RAW_DIGEST),
    ]
}

const LZ4_DIGEST: u64 = 0xce14_15bb_edc5_8785;
const ZSTD_DIGEST: u64 = 0xfd14_242b_dfb3_6400;
const RAW_DIGEST: u64 = 0x04bf_bb2a_4ff1_d2bc;

fn options(compression: Compression) -> TableOptions {
    TableOptions {
        block_bytes: 512,
        partition_bytes: 2048,
        filter_bits_per_key: 10,
        compression,
    }
}

fn records() -> Model {
    draw_model(0xf0_0001, 60, 90)
}

#[test]
fn tables_of_format_1_are_read() {
    for (name, compression, digest) in fixtures() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        let folder = Folder::default();
        if std::env::var_os("DENDRA_BLESS").is_some() {
            write(&folder, ID, &options(compression), &records());
            fs::write(&path, folder.bytes(&file_name(ID))).expect("the fixture is written");
        }
        let bytes = fs::read(&path).expect("the fixture is part of the repository");
        folder.put(&file_name(ID), bytes);
        let table = Table::open_unknown(&folder, &file_name(ID)).expect("format 1");
        assert_eq!(
            table.meta().digest,
            digest,
            "{name} is not the file of the release: {:#018x}",
            table.meta().digest
        );
        table.verify(|_, _| Ok(())).expect("format 1");
        let table = Arc::new(table);
        let mut iter = TableIter::new(Arc::clone(&table), ReadMode::Ahead(1 << 10));
        iter.seek(Bound::Unbounded, Direction::Forward)
            .expect("format 1");
        let found: Model = collect(&mut iter).expect("format 1").into_iter().collect();
        assert_eq!(found, records());
        let cache = BlockCache::new(1 << 20);
        for (key, cell) in &records() {
            assert_eq!(get(&table, &cache, key, Version::ZERO).as_ref(), Some(cell));
        }
    }
}

/// The digest of the same records by today's writer, where a block holds records of one space only:
/// other bytes of the same format.
const WRITTEN_DIGEST: u64 = 0x38e1_56df_517a_35d3;

#[test]
fn the_writer_still_writes_format_1() {
    // Uncompressed, because compressors may find better matches in a later release.
    let folder = Folder::default();
    let meta = write(&folder, ID, &options(Compression::None), &records());
    assert_eq!(meta.digest, WRITTEN_DIGEST, "{:#018x}", meta.digest);
}
