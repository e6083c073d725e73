//! Bits that turn over on a node's disk: `dendra dev rot`.
//!
//! ```text
//! each table of at least TABLE_BYTES_MIN ─► FLIPS_MAX bits in its middle half
//! ```
//!
//! Invariants
//! 1. Only tables are touched, and of each only data blocks: where records of clients are.
//! 2. No length changes, and a node that runs notices the bytes alone.
//!
//! Not here: how damage is found and repaired (crates `engine` and `node`).
//! See: docs/cli.md.

use dendra_base::Prng;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Smaller tables hold notes of the node beside little else: no other member has those.
const TABLE_BYTES_MIN: u64 = 32 << 10;
/// Bits of one table.
const FLIPS_MAX: u64 = 3;

/// Flips bits of the tables in `folder`; says how many.
pub(super) fn flip_bits(folder: &Path) -> io::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut prng = Prng::new(now.map_or(0, |now| now.as_nanos() as u64));
    let (mut tables, mut bits) = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|ending| ending != "tbl") {
            continue;
        }
        let file = match std::fs::File::options().read(true).write(true).open(&path) {
            // A compaction has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let len = file.metadata()?.len();
        if len < TABLE_BYTES_MIN {
            continue;
        }
        for _ in 0..FLIPS_MAX {
            let at = len / 4 + prng.below(len / 2);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            byte[0] ^= 1 << prng.below(8);
            file.write_all_at(&byte, at)?;
            bits += 1;
        }
        file.sync_all()?;
        tables += 1;
    }
    if tables == 0 {
        let few = TABLE_BYTES_MIN >> 10;
        return Err(io::Error::other(format!(
            "no table of {few} KiB is there yet: write more, or stop the node, which flushes"
        )));
    }
    Ok(format!("{bits} bits of {tables} tables were flipped"))
}
