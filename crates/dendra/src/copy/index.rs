//! The record of the copied keys, on disk: for each key the version at FROM and the one at TO.
//!
//! ```text
//! file     entry, entry, …                          sorted by key
//! entry    | u16 key | u16 from | u16 to | u64 expiry | key | from tag | to tag |    big-endian
//! ```
//!
//! Invariants
//! 1. An index is read and written in one pass, in order: memory is one entry.
//! 2. Bytes after the length that `state.rs` knows are cut off before a resumed round appends.
//!
//! Not here: where a round is (`state.rs`).
//! See: docs/moving.md.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

const HEAD_BYTES: usize = 14;

/// One copied record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedKey {
    pub(super) key: Vec<u8>,
    /// The version at FROM that was copied.
    pub(super) from_tag: String,
    /// The version at TO that the copy wrote; empty = TO gives none.
    pub(super) to_tag: String,
    /// Unix milliseconds; 0 = the record stays.
    pub(super) expires_ms: u64,
}

/// Entries in order.
pub(super) struct IndexReader {
    file: Option<BufReader<File>>,
    left: u64,
}

impl IndexReader {
    /// The first `bytes` of the file; no file at all is an empty index when `bytes` is 0.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<IndexReader> {
        let file = match bytes {
            0 => None,
            _ => Some(BufReader::with_capacity(256 << 10, File::open(path)?)),
        };
        Ok(IndexReader { file, left: bytes })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<CopiedKey>> {
        let Some(file) = self.file.as_mut().filter(|_| self.left > 0) else {
            return Ok(None);
        };
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head)?;
        let len = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
        let mut expiry = [0; 8];
        expiry.copy_from_slice(&head[6..]);
        let mut part = |length: usize| {
            let mut bytes = vec![0; length];
            file.read_exact(&mut bytes).map(|()| bytes)
        };
        let (key, from, to) = (part(len(0))?, part(len(2))?, part(len(4))?);
        let taken = (HEAD_BYTES + key.len() + from.len() + to.len()) as u64;
        self.left = self
            .left
            .checked_sub(taken)
            .ok_or_else(|| io::Error::other("it ends inside an entry"))?;
        let text = |bytes| String::from_utf8(bytes).map_err(io::Error::other);
        Ok(Some(CopiedKey {
            key,
            from_tag: text(from)?,
            to_tag: text(to)?,
            expires_ms: u64::from_be_bytes(expiry),
        }))
    }
}

/// Appends entries.
pub(super) struct IndexWriter {
    file: BufWriter<File>,
    bytes: u64,
}

impl IndexWriter {
    /// Goes on after the first `bytes` of the file.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<IndexWriter> {
        let mut options = File::options();
        let mut file = options
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.len() < bytes {
            return Err(io::Error::other("it is shorter than the copy has written"));
        }
        file.set_len(bytes)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(bytes))?;
        Ok(IndexWriter {
            file: BufWriter::with_capacity(256 << 10, file),
            bytes,
        })
    }

    pub(super) fn append(&mut self, entry: &CopiedKey) -> io::Result<()> {
        let parts = [
            &entry.key[..],
            entry.from_tag.as_bytes(),
            entry.to_tag.as_bytes(),
        ];
        for part in parts {
            let len = u16::try_from(part.len())
                .map_err(|_| io::Error::other("a key or an ETag has more than 65535 bytes"))?;
            self.file.write_all(&len.to_be_bytes())?;
        }
        self.file.write_all(&entry.expires_ms.to_be_bytes())?;
        for part in parts {
            self.file.write_all(part)?;
            self.bytes += part.len() as u64;
        }
        self.bytes += HEAD_BYTES as u64;
        Ok(())
    }

    /// Makes all of it durable; returns the length.
    pub(super) fn sync(&mut self) -> io::Result<u64> {
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(legal::cases(64))]

        #[test]
        fn any_legal_index_is_read_as_it_was_written(
            entries in prop::collection::vec(
                (legal::raw_key(), "\\PC{0,80}", "\\PC{0,80}", any::<u64>()), 0..5,
            ),
        ) {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("index");
            let mut writer = IndexWriter::open(&path, 0)?;
            let mut wanted = Vec::new();
            for (key, from_tag, to_tag, expires_ms) in entries {
                let entry = CopiedKey { key, from_tag, to_tag, expires_ms };
                writer.append(&entry)?;
                wanted.push(entry);
            }
            // Without `sync`, which takes milliseconds.
            writer.file.flush()?;
            let mut reader = IndexReader::open(&path, writer.bytes)?;
            for entry in wanted {
                prop_assert_eq!(reader.next()?, Some(entry));
            }
            prop_assert_eq!(reader.next()?, None);
        }
    }

    fn entry(key: &[u8], expires_ms: u64) -> CopiedKey {
        CopiedKey {
            key: key.to_vec(),
            from_tag: "\"1-1-0\"".to_owned(),
            to_tag: String::new(),
            expires_ms,
        }
    }

    #[test]
    fn a_torn_end_is_cut_off_and_the_rest_comes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("index");
        let mut writer = IndexWriter::open(&path, 0).expect("a new file");
        writer.append(&entry(b"a\xff", 7)).expect("written");
        let known = writer.sync().expect("synced");
        writer.append(&entry(b"torn", 0)).expect("written");
        writer.sync().expect("synced");
        let mut writer = IndexWriter::open(&path, known).expect("it is there");
        writer.append(&entry(b"b", 0)).expect("written");
        let bytes = writer.sync().expect("synced");
        let mut reader = IndexReader::open(&path, bytes).expect("it is there");
        assert_eq!(reader.next().expect("read"), Some(entry(b"a\xff", 7)));
        assert_eq!(reader.next().expect("read"), Some(entry(b"b", 0)));
        assert_eq!(reader.next().expect("read"), None);
        assert!(IndexWriter::open(&path, bytes + 1).is_err());
    }
}
