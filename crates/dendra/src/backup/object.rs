//! One file of a checkpoint, as a backup keeps it: compressed in frames, each with a checksum.
//!
//! ```text
//! "DNDRBKUP" format u32 frame bytes u32 │ frame … frame │ index │ footer          little-endian
//! index    for each frame: stored length u32, its top bit = not compressed; xxh3-64 of the stored bytes
//! footer   content bytes u64, frames u32, zero u32, xxh3-128 of the content, xxh3-64 of index and the
//!          footer so far, "DNDROBJ1"
//! ```
//!
//! Invariants
//! 1. The seed of a frame's checksum is its number: frames that changed places are noticed.
//! 2. Any frame can be read by itself: a restore needs no room for a copy.
//! 3. An object whose footer is whole and fits the length of its file was written to its end.
//!
//! Not here: names and places of objects (`repository.rs`).
//! See: docs/format/backup.md.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_64_with_seed};

const MAGIC: [u8; 8] = *b"DNDRBKUP";
const END_MAGIC: [u8; 8] = *b"DNDROBJ1";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 12;
const FOOTER_BYTES: usize = 48;
/// Content of one frame: a scan decodes it once, and a checksum of it names a small spot.
const FRAME_BYTES: usize = 256 << 10;
/// Set in a stored length: the frame is the content itself.
const PLAIN: u32 = 1 << 31;
/// The fastest level: tables are compressed already, and the rest is in their indexes.
const LEVEL: i32 = 1;
/// Frames of an object: a table has a value of the largest size more than it should.
const FRAMES_MAX: u32 = 1 << 20;

/// The content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectSum {
    /// Length of the content.
    pub(crate) bytes: u64,
    /// Length of the object's own file.
    pub(crate) stored_bytes: u64,
    /// XXH3-128 of the content.
    pub(crate) checksum: u128,
}

/// Writes an object.
pub(crate) struct ObjectWriter {
    file: File,
    hash: Xxh3Default,
    compressor: zstd::bulk::Compressor<'static>,
    frame: Vec<u8>,
    index: Vec<u8>,
    frames: u32,
    bytes: u64,
    stored_bytes: u64,
}

impl ObjectWriter {
    /// Begins an object in an empty file.
    pub(crate) fn new(mut file: File) -> io::Result<ObjectWriter> {
        file.write_all(&MAGIC)?;
        file.write_all(&FORMAT.to_le_bytes())?;
        file.write_all(&(FRAME_BYTES as u32).to_le_bytes())?;
        Ok(ObjectWriter {
            file,
            hash: Xxh3Default::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            frame: Vec::with_capacity(FRAME_BYTES),
            index: Vec::new(),
            frames: 0,
            bytes: 0,
            stored_bytes: HEAD_BYTES as u64,
        })
    }

    /// Adds content.
    pub(crate) fn push(&mut self, mut content: &[u8]) -> io::Result<()> {
        while !content.is_empty() {
            let room = FRAME_BYTES - self.frame.len();
            let (now, later) = content.split_at(room.min(content.len()));
            self.frame.extend_from_slice(now);
            content = later;
            if self.frame.len() == FRAME_BYTES {
                self.end_frame()?;
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.hash.update(&self.frame);
        self.bytes += self.frame.len() as u64;
        let compressed = self.compressor.compress(&self.frame)?;
        // A frame that saves less than a sixteenth costs more when it is read.
        let is_plain = compressed.len() > self.frame.len() - self.frame.len() / 16;
        let stored = match is_plain {
            true => &self.frame,
            false => &compressed,
        };
        self.file.write_all(stored)?;
        let length = u32::try_from(stored.len()).expect("a frame is small");
        let flag = if is_plain { PLAIN } else { 0 };
        let checksum = xxh3_64_with_seed(stored, u64::from(self.frames));
        self.index.extend_from_slice(&(length | flag).to_le_bytes());
        self.index.extend_from_slice(&checksum.to_le_bytes());
        self.stored_bytes += u64::from(length);
        self.frames += 1;
        self.frame.clear();
        Ok(())
    }

    /// Writes the end, and makes all of it durable.
    pub(crate) fn finish(mut self) -> io::Result<ObjectSum> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        let checksum = self.hash.digest128();
        let mut end = std::mem::take(&mut self.index);
        end.extend_from_slice(&self.bytes.to_le_bytes());
        end.extend_from_slice(&self.frames.to_le_bytes());
        end.extend_from_slice(&0u32.to_le_bytes());
        end.extend_from_slice(&checksum.to_le_bytes());
        end.extend_from_slice(&xxh3_64(&end).to_le_bytes());
        end.extend_from_slice(&END_MAGIC);
        self.file.write_all(&end)?;
        self.file.sync_all()?;
        Ok(ObjectSum {
            bytes: self.bytes,
            stored_bytes: self.stored_bytes + end.len() as u64,
            checksum,
        })
    }
}

fn damaged(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

struct IndexEntry {
    offset: u64,
    length: u32,
    is_plain: bool,
    checksum: u64,
}

/// Reads an object, frame by frame.
pub(crate) struct ObjectReader {
    file: File,
    index: Vec<IndexEntry>,
    sum: ObjectSum,
    frame_bytes: u64,
}

impl ObjectReader {
    /// Opens the object at `path`. An error of kind `InvalidData` names the damage.
    pub(crate) fn open(path: &Path) -> io::Result<ObjectReader> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let least = (HEAD_BYTES + FOOTER_BYTES) as u64;
        if length < least {
            return Err(damaged(format!("it was cut to {length} bytes")));
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)?;
        let format = u32::from_le_bytes(fixed(&head[8..12]));
        let frame_bytes = u64::from(u32::from_le_bytes(fixed(&head[12..16])));
        if head[..8] != MAGIC || frame_bytes == 0 || frame_bytes > 64 << 20 {
            return Err(damaged("its first bytes are not those of an object"));
        }
        if format != FORMAT {
            return Err(damaged(format!(
                "it has format {format}, and this program reads {FORMAT}: use a newer one"
            )));
        }
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, length - FOOTER_BYTES as u64)?;
        let frames = u32::from_le_bytes(fixed(&footer[8..12]));
        let index_bytes = u64::from(frames) * ENTRY_BYTES as u64;
        if footer[40..] != END_MAGIC || frames > FRAMES_MAX || least + index_bytes > length {
            return Err(damaged("its end is missing: it was cut, or never written"));
        }
        let index_offset = length - FOOTER_BYTES as u64 - index_bytes;
        let mut end = vec![0; index_bytes as usize];
        file.read_exact_at(&mut end, index_offset)?;
        end.extend_from_slice(&footer[..32]);
        if xxh3_64(&end) != u64::from_le_bytes(fixed(&footer[32..40])) {
            return Err(damaged("the checksum of its index does not hold"));
        }
        let mut offset = HEAD_BYTES as u64;
        let mut index = Vec::with_capacity(frames as usize);
        for entry in end[..index_bytes as usize].chunks_exact(ENTRY_BYTES) {
            let length = u32::from_le_bytes(fixed(&entry[..4]));
            index.push(IndexEntry {
                offset,
                length: length & !PLAIN,
                is_plain: length & PLAIN != 0,
                checksum: u64::from_le_bytes(fixed(&entry[4..])),
            });
            offset += u64::from(length & !PLAIN);
        }
        let bytes = u64::from_le_bytes(fixed(&footer[..8]));
        if offset != index_offset || bytes.div_ceil(frame_bytes) != u64::from(frames) {
            return Err(damaged("its frames do not fill it: bytes are missing"));
        }
        Ok(ObjectReader {
            file,
            index,
            frame_bytes,
            sum: ObjectSum {
                bytes,
                stored_bytes: length,
                checksum: u128::from_le_bytes(fixed(&footer[16..32])),
            },
        })
    }

    /// The content, as its end tells it.
    pub(crate) fn sum(&self) -> ObjectSum {
        self.sum
    }

    /// The frame with the byte at `offset`, and where that frame begins.
    pub(crate) fn frame_at(&self, offset: u64) -> io::Result<(u64, Vec<u8>)> {
        let number = offset / self.frame_bytes;
        let begins = number * self.frame_bytes;
        Ok((begins, self.frame(number as usize)?))
    }

    fn frame(&self, number: usize) -> io::Result<Vec<u8>> {
        let entry = &self.index[number];
        let spot = || format!("frame {number} at byte {}", entry.offset);
        let mut stored = vec![0; entry.length as usize];
        self.file.read_exact_at(&mut stored, entry.offset)?;
        if xxh3_64_with_seed(&stored, number as u64) != entry.checksum {
            return Err(damaged(format!("{} does not hold its checksum", spot())));
        }
        let left = self.sum.bytes - number as u64 * self.frame_bytes;
        let expected = left.min(self.frame_bytes) as usize;
        let content = match entry.is_plain {
            true => stored,
            false => zstd::bulk::decompress(&stored, expected)
                .map_err(|e| damaged(format!("{} cannot be decompressed: {e}", spot())))?,
        };
        match content.len() == expected {
            true => Ok(content),
            false => Err(damaged(format!("{} has another length", spot()))),
        }
    }

    /// Reads everything and compares it with the end. Shows how much was read.
    pub(crate) fn verify(&self, mut read: impl FnMut(u64)) -> io::Result<()> {
        let mut hash = Xxh3Default::new();
        for number in 0..self.index.len() {
            let content = self.frame(number)?;
            hash.update(&content);
            read(content.len() as u64);
        }
        match hash.digest128() == self.sum.checksum {
            true => Ok(()),
            false => Err(damaged("the checksum of its content does not hold")),
        }
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller cut N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Prng;

    /// Half of it can be compressed.
    fn content(bytes: usize) -> Vec<u8> {
        let mut prng = Prng::new(9);
        let draw = |at: usize| match at / FRAME_BYTES % 2 {
            0 => (prng.next_u64() & 0xff) as u8,
            _ => (at % 7) as u8,
        };
        (0..bytes).map(draw).collect()
    }

    fn written(path: &Path, content: &[u8]) -> ObjectSum {
        let file = File::create(path).expect("a file");
        let mut writer = ObjectWriter::new(file).expect("there is room");
        for part in content.chunks(100_003) {
            writer.push(part).expect("there is room");
        }
        writer.finish().expect("there is room")
    }

    #[test]
    fn an_object_is_read_as_it_was_written_whatever_its_length() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        for bytes in [0, 1, FRAME_BYTES, 2 * FRAME_BYTES + 17] {
            let content = content(bytes);
            let sum = written(&path, &content);
            let reader = ObjectReader::open(&path).expect("it is whole");
            assert_eq!(reader.sum(), sum);
            assert_eq!(sum.bytes, bytes as u64);
            let mut seen = 0;
            reader.verify(|bytes| seen += bytes).expect("it is whole");
            assert_eq!(seen, bytes as u64);
            let mut read = Vec::new();
            while read.len() < bytes {
                let (begins, frame) = reader.frame_at(read.len() as u64).expect("whole");
                assert_eq!(begins, read.len() as u64);
                read.extend(frame);
            }
            assert!(read == content);
        }
    }

    #[test]
    fn each_flipped_byte_and_each_cut_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        let content: Vec<u8> = content(2 * FRAME_BYTES + 900);
        written(&path, &content);
        let whole = std::fs::read(&path).expect("it is there");
        let notices = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("there is room");
            ObjectReader::open(&path)
                .and_then(|reader| reader.verify(|_| ()))
                .is_err()
        };
        assert!(!notices(&whole));
        let spots = (0..whole.len()).step_by(whole.len() / 60).chain(
            // Every byte of head and end.
            (0..HEAD_BYTES).chain(whole.len() - FOOTER_BYTES - 3 * ENTRY_BYTES..whole.len()),
        );
        for at in spots {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert!(notices(&flipped), "byte {at}");
            assert!(notices(&whole[..at]), "cut to {at}");
        }
    }
}
