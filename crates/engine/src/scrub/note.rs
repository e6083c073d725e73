//! Where a scrub stands, in a file of its own: a restart goes on there.
#![doc = include_str!("../../../../docs/format/scrub.md")]
//!
//! Invariants
//! 1. A file that is missing or cannot be read is no error: the scrub begins anew.
//!
//! Not here: the scrub (`mod.rs`).

use crate::frame::{self, Frame};
use crate::vfs::{Vfs, Wait, read_exact_at};
use crate::{Error, Result};

/// The file.
pub(crate) const SCRUB: &str = "SCRUB";
/// The next one, on its way.
pub(crate) const SCRUB_NEW: &str = "SCRUB.new";
const MAGIC: &[u8; 8] = b"DENDRASC";
const FORMAT: u32 = 1;
/// Longer than any that was written: a tree has fewer tables.
const BYTES_MAX: u64 = 16 << 20;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScrubNote {
    /// When the pass under way began, in wall milliseconds.
    pub(crate) began_ms: u64,
    /// The pass looks at tables up to this id; 0 = no pass is under way.
    pub(crate) limit: u64,
    /// The next table to look at, and its next part.
    pub(crate) next: (u64, u64),
    /// When the last whole pass began and ended; 0 = there was none.
    pub(crate) full_ms: (u64, u64),
    /// Tables of which damage is known or suspected, rising.
    pub(crate) suspects: Vec<u64>,
}

impl ScrubNote {
    fn encode(&self) -> Vec<u8> {
        let mut payload = MAGIC.to_vec();
        payload.extend_from_slice(&FORMAT.to_le_bytes());
        let (table, part) = self.next;
        let (full_began_ms, full_ended_ms) = self.full_ms;
        let numbers = [
            self.began_ms,
            self.limit,
            table,
            part,
            full_began_ms,
            full_ended_ms,
        ];
        for number in numbers.iter().chain(&self.suspects) {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        let mut bytes = Vec::new();
        frame::encode_into(&mut bytes, 0, 0, &payload);
        bytes
    }

    /// Reads the bytes of the file; `None` when they are not such a note.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ScrubNote> {
        let Frame::Complete { payload, .. } = frame::decode(bytes, 0, 0) else {
            return None;
        };
        let rest = payload.strip_prefix(MAGIC)?;
        let rest = rest.strip_prefix(&FORMAT.to_le_bytes())?;
        let (numbers, odd) = rest.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next();
        let note = ScrubNote {
            began_ms: next()?,
            limit: next()?,
            next: (next()?, next()?),
            full_ms: (next()?, next()?),
            suspects: Vec::new(),
        };
        odd.is_empty().then(|| ScrubNote {
            suspects: numbers.collect(),
            ..note
        })
    }
}

/// The note in the folder's file; the default when it has none.
pub(crate) fn load(vfs: &dyn Vfs) -> ScrubNote {
    let read = || {
        let file = vfs.open(SCRUB).ok()?;
        let len = file.len().ok().filter(|len| *len <= BYTES_MAX)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        read_exact_at(&*file, &mut bytes, 0, Wait::Block).ok()?;
        ScrubNote::decode(&bytes)
    };
    read().unwrap_or_default()
}

/// Puts `note` in the place of the folder's file.
pub(crate) fn save(vfs: &dyn Vfs, note: &ScrubNote) -> Result<()> {
    let failed = |what: &'static str| move |e| Error::io(what, e);
    match vfs.remove(SCRUB_NEW) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(failed("removing SCRUB.new")(e));
        }
        _ => {}
    }
    let file = vfs
        .create(SCRUB_NEW)
        .map_err(failed("creating SCRUB.new"))?;
    file.write_at(&note.encode(), 0)
        .map_err(failed("writing SCRUB.new"))?;
    // A power cut may take the name back, or empty the file. That costs only a pass: the synced
    // note is one or the other.
    file.sync().map_err(failed("syncing SCRUB.new"))?;
    vfs.rename(SCRUB_NEW, SCRUB)
        .map_err(failed("renaming SCRUB.new to SCRUB"))?;
    vfs.sync_folder().map_err(failed("syncing the folder"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::mem::MemVfs;
    use proptest::prelude::*;

    fn note() -> ScrubNote {
        ScrubNote {
            began_ms: 1,
            limit: 9,
            next: (4, 2),
            full_ms: (5, 6),
            suspects: vec![3, 8],
        }
    }

    #[test]
    fn a_note_reads_back_and_damage_to_it_begins_anew() {
        let vfs = MemVfs::new();
        assert_eq!(load(&vfs), ScrubNote::default());
        for suspects in [Vec::new(), vec![3, 8]] {
            let note = ScrubNote { suspects, ..note() };
            save(&vfs, &note).expect("memory does not fail");
            assert_eq!(load(&vfs), note);
        }
        vfs.flip_bit(SCRUB, 8 * 30);
        assert_eq!(load(&vfs), ScrubNote::default());
    }

    proptest! {
        #[test]
        fn any_legal_note_of_a_scrub_is_read_as_it_was_written(
            numbers: [u64; 6], suspects in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let [began_ms, limit, table, part, began, ended] = numbers;
            let note = ScrubNote {
                began_ms,
                limit,
                next: (table, part),
                full_ms: (began, ended),
                suspects,
            };
            prop_assert_eq!(ScrubNote::decode(&note.encode()), Some(note));
        }
    }

    #[test]
    fn no_bytes_are_read_as_a_note_that_was_not_written() {
        let whole = note().encode();
        for at in 0..whole.len() {
            assert_eq!(ScrubNote::decode(&whole[..at]), None);
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert_eq!(ScrubNote::decode(&flipped), None, "byte {at}");
        }
    }
}
