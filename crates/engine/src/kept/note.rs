//! Which tables are kept for backups, and since when, in a file of its own.
#![doc = include_str!("../../../../docs/format/kept.md")]
//!
//! Invariants
//! 1. A file that is missing, cannot be read, or names another manifest than the one in force keeps
//!    no table. A backup then moves, of all tables, those that it lacks.
//!
//! Not here: which tables are kept (`mod.rs`).

use crate::frame::{self, Frame};
use crate::vfs::{Vfs, Wait, read_exact_at};
use crate::{Error, Result};

/// The file.
pub(crate) const KEPT: &str = "KEPT";
/// The next one, on its way.
pub(crate) const KEPT_NEW: &str = "KEPT.new";
const MAGIC: &[u8; 8] = b"DENDRAKP";
const FORMAT: u32 = 1;
/// Longer than any that was written: marks and tables are bounded.
const BYTES_MAX: u64 = 1 << 20;

/// A moment: a backup can be told of the tables written since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Random, and given once.
    pub(crate) id: u128,
    /// The mark that the same backups had before; 0 = none.
    pub(crate) since: u128,
    /// The number of the first kept table after it.
    pub(crate) position: u64,
}

/// A table that a flush or an ingest installed, or was about to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptTable {
    pub(crate) id: u64,
    pub(crate) bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptNote {
    /// The manifest in force when it was written.
    pub(crate) manifest: u64,
    /// The number of the first table.
    pub(crate) first: u64,
    /// In the order in which they were given. Without one no table is kept.
    pub(crate) marks: Vec<Mark>,
    /// In the order in which they were installed, numbered from `first` on.
    pub(crate) tables: Vec<KeptTable>,
}

impl KeptNote {
    fn encode(&self) -> Vec<u8> {
        let mut payload = MAGIC.to_vec();
        payload.extend_from_slice(&FORMAT.to_le_bytes());
        let count = |len: usize| u32::try_from(len).expect("both lists are bounded");
        payload.extend_from_slice(&count(self.marks.len()).to_le_bytes());
        payload.extend_from_slice(&self.manifest.to_le_bytes());
        payload.extend_from_slice(&self.first.to_le_bytes());
        for mark in &self.marks {
            payload.extend_from_slice(&mark.id.to_le_bytes());
            payload.extend_from_slice(&mark.since.to_le_bytes());
            payload.extend_from_slice(&mark.position.to_le_bytes());
        }
        for table in &self.tables {
            payload.extend_from_slice(&table.id.to_le_bytes());
            payload.extend_from_slice(&table.bytes.to_le_bytes());
        }
        let mut bytes = Vec::new();
        frame::encode_into(&mut bytes, 0, 0, &payload);
        bytes
    }

    /// Reads the bytes of the file; `None` when they are not such a note.
    pub(crate) fn decode(bytes: &[u8]) -> Option<KeptNote> {
        let Frame::Complete { payload, .. } = frame::decode(bytes, 0, 0) else {
            return None;
        };
        let rest = payload.strip_prefix(MAGIC)?;
        let mut rest = rest.strip_prefix(&FORMAT.to_le_bytes())?;
        let marks = u32::from_le_bytes(take(&mut rest)?);
        let mut note = KeptNote {
            manifest: u64::from_le_bytes(take(&mut rest)?),
            first: u64::from_le_bytes(take(&mut rest)?),
            ..KeptNote::default()
        };
        for _ in 0..marks {
            note.marks.push(Mark {
                id: u128::from_le_bytes(take(&mut rest)?),
                since: u128::from_le_bytes(take(&mut rest)?),
                position: u64::from_le_bytes(take(&mut rest)?),
            });
        }
        while !rest.is_empty() {
            note.tables.push(KeptTable {
                id: u64::from_le_bytes(take(&mut rest)?),
                bytes: u64::from_le_bytes(take(&mut rest)?),
            });
        }
        let end = note.first.checked_add(note.tables.len() as u64)?;
        let is_inside = |mark: &Mark| (note.first..=end).contains(&mark.position);
        note.marks.iter().all(is_inside).then_some(note)
    }
}

/// The note in `bytes`, encoded again; `None` when they are not one.
pub fn encoded_again(bytes: &[u8]) -> Option<Vec<u8>> {
    KeptNote::decode(bytes).map(|note| note.encode())
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// The note in the folder's file; the default when it has none.
pub(crate) fn load(vfs: &dyn Vfs) -> KeptNote {
    let read = || {
        let file = vfs.open(KEPT).ok()?;
        let len = file.len().ok().filter(|len| *len <= BYTES_MAX)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        read_exact_at(&*file, &mut bytes, 0, Wait::Block).ok()?;
        KeptNote::decode(&bytes)
    };
    read().unwrap_or_default()
}

/// Puts `note` in the place of the folder's file, durably.
pub(crate) fn save(vfs: &dyn Vfs, note: &KeptNote) -> Result<()> {
    let failed = |what: &'static str| move |e| Error::io(what, e);
    remove_if_there(vfs, KEPT_NEW)?;
    let file = vfs.create(KEPT_NEW).map_err(failed("creating KEPT.new"))?;
    file.write_at(&note.encode(), 0)
        .map_err(failed("writing KEPT.new"))?;
    file.sync().map_err(failed("syncing KEPT.new"))?;
    vfs.rename(KEPT_NEW, KEPT)
        .map_err(failed("renaming KEPT.new to KEPT"))?;
    vfs.sync_folder().map_err(failed("syncing the folder"))
}

/// Removes the file, durably: no table is kept.
pub(crate) fn remove(vfs: &dyn Vfs) -> Result<()> {
    remove_if_there(vfs, KEPT_NEW)?;
    remove_if_there(vfs, KEPT)?;
    vfs.sync_folder()
        .map_err(|e| Error::io("syncing the folder", e))
}

fn remove_if_there(vfs: &dyn Vfs, name: &str) -> Result<()> {
    match vfs.remove(name) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {name}"), e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::mem::MemVfs;
    use proptest::prelude::*;

    fn note() -> KeptNote {
        let mark = |id, since, position| Mark {
            id,
            since,
            position,
        };
        let table = |id| KeptTable { id, bytes: 10 * id };
        KeptNote {
            manifest: 9,
            first: 4,
            marks: vec![mark(u128::MAX, 0, 4), mark(7, u128::MAX, 6)],
            tables: vec![table(11), table(13)],
        }
    }

    #[test]
    fn a_note_reads_back_and_damage_to_it_keeps_nothing() {
        let vfs = MemVfs::new();
        assert_eq!(load(&vfs), KeptNote::default());
        for note in [KeptNote::default(), note()] {
            save(&vfs, &note).expect("memory does not fail");
            assert_eq!(load(&vfs), note);
        }
        vfs.flip_bit(KEPT, 8 * 30);
        assert_eq!(load(&vfs), KeptNote::default());
        remove(&vfs).expect("memory does not fail");
        assert_eq!(vfs.names(), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn any_legal_note_of_kept_tables_is_read_as_it_was_written(
            manifest: u64,
            first in prop_oneof![Just(0), 0..=u64::MAX - 9],
            tables in prop::collection::vec(any::<(u64, u64)>(), 0..9),
            marks in prop::collection::vec(
                (any::<(u128, u128)>(), any::<prop::sample::Index>()), 0..9,
            ),
        ) {
            let end = tables.len() + 1;
            let mark = |((id, since), at): ((u128, u128), prop::sample::Index)| Mark {
                id,
                since,
                position: first + at.index(end) as u64,
            };
            let table = |(id, bytes)| KeptTable { id, bytes };
            let note = KeptNote {
                manifest,
                first,
                marks: marks.into_iter().map(mark).collect(),
                tables: tables.into_iter().map(table).collect(),
            };
            let bytes = note.encode();
            prop_assert!(encoded_again(&bytes).as_ref() == Some(&bytes));
            prop_assert_eq!(KeptNote::decode(&bytes), Some(note));
        }
    }

    #[test]
    fn no_bytes_are_read_as_a_note_that_was_not_written() {
        let whole = note().encode();
        for at in 0..whole.len() {
            assert_eq!(KeptNote::decode(&whole[..at]), None);
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert_eq!(KeptNote::decode(&flipped), None, "byte {at}");
        }
        let outside = KeptNote { first: 5, ..note() };
        assert_eq!(KeptNote::decode(&outside.encode()), None);
    }
}
