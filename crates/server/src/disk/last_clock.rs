//! Where the hybrid clock ended at a clean stop, so that the next start need not begin at its
//! ceiling.
//!
//! ```text
//! stop   all loops ended, folder closed ─► CLOCK.new, synced ─► CLOCK, folder synced
//! start  read ─► removed, folder synced ─► is it of the start before this one? ─► the clock goes on there
//! ```
//!
//! Invariants
//! 1. No life has used a value above the one in the file. Before a life that goes on from it hands
//!    out a value, the file is gone, durably.
//! 2. A file that is of another start, damaged, or cannot be removed counts as none: the clock
//!    begins above its ceiling.
//!
//! Not here: the ceiling (crate `engine`), the clock (crate `node`).
//! See: docs/format/folder.md.

use dendra_base::cell;
use dendra_engine::vfs::{Vfs, Wait, read_exact_at};
use std::io;

/// The file.
pub(crate) const NAME: &str = "CLOCK";
/// The next one, on its way.
pub(crate) const NAME_NEW: &str = "CLOCK.new";

/// One line: clock and number of starts as 16 hexadecimal digits each, and the checksum of both.
const BYTES: usize = 16 + 1 + 16 + 1 + 16 + 1;

fn encode(last: u64, starts: u64) -> String {
    let said = format!("{last:016x} {starts:016x}");
    let checksum = cell::checksum(NAME.as_bytes(), said.as_bytes());
    format!("{said} {checksum:016x}\n")
}

fn decode(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    let mut word = || u64::from_str_radix(words.next()?, 16).ok();
    let (last, starts) = (word()?, word()?);
    (encode(last, starts) == text).then_some((last, starts))
}

/// Leaves the last value of the clock in the folder of the start numbered `starts`.
pub(crate) fn leave(vfs: &dyn Vfs, last: u64, starts: u64) -> io::Result<()> {
    if vfs.list()?.iter().any(|name| name == NAME_NEW) {
        vfs.remove(NAME_NEW)?;
    }
    let file = vfs.create(NAME_NEW)?;
    file.write_at(encode(last, starts).as_bytes(), 0)?;
    file.sync()?;
    vfs.rename(NAME_NEW, NAME)?;
    vfs.sync_folder()
}

/// Takes the value out of the folder, if it was left by the start numbered `starts`.
pub(crate) fn take(vfs: &dyn Vfs, starts: u64) -> io::Result<Option<u64>> {
    if !vfs.list()?.iter().any(|name| name == NAME) {
        return Ok(None);
    }
    let file = vfs.open(NAME)?;
    let mut text = vec![0; BYTES];
    let is_whole = file.len()? == BYTES as u64;
    if is_whole {
        read_exact_at(&*file, &mut text, 0, Wait::Block)?;
    }
    drop(file);
    vfs.remove(NAME)?;
    vfs.sync_folder()?;
    let said = std::str::from_utf8(&text).ok().and_then(decode);
    Ok(said
        .filter(|(_, of)| is_whole && *of == starts)
        .map(|(last, _)| last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_engine::vfs::MemVfs;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_clock_is_read_as_it_was_left(last: u64, starts: u64) {
            prop_assert_eq!(decode(&encode(last, starts)), Some((last, starts)));
        }
    }

    #[test]
    fn a_clock_is_taken_once_and_only_by_the_next_start() {
        let vfs = MemVfs::new();
        assert_eq!(take(&vfs, 7).expect("an empty folder"), None);
        leave(&vfs, 0x123, 7).expect("room");
        assert_eq!(take(&vfs, 7).expect("it is there"), Some(0x123));
        assert_eq!(take(&vfs, 7).expect("it is gone"), None);
        leave(&vfs, 0x124, 7).expect("room");
        assert_eq!(take(&vfs, 8).expect("of another start"), None);
        assert_eq!(take(&vfs, 7).expect("gone all the same"), None);
        leave(&vfs, 1, 1).expect("room");
        leave(&vfs, 2, 2).expect("in its place");
        assert_eq!(take(&vfs, 2).expect("it is there"), Some(2));
    }

    #[test]
    fn a_damaged_clock_is_none() {
        let whole = encode(u64::MAX, 3);
        assert_eq!(whole.len(), BYTES);
        assert_eq!(decode(&whole), Some((u64::MAX, 3)));
        for at in 0..BYTES {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).expect("one bit of ASCII");
            assert_eq!(decode(&text), None, "byte {at}");
        }
        assert_eq!(decode(""), None);
    }
}
