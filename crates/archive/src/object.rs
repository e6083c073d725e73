//! One file of a checkpoint, as a backup keeps it: compressed in frames, each with a checksum.
//!
//! ```text
//! "DNDRBKUP" format u32 frame bytes u32 │ frame … frame │ index │ footer          little-endian
//! index    for each frame: stored length u32, its top bit = not compressed; xxh3-64 of the stored bytes
//! footer   content bytes u64, frames u32, zero u32, xxh3-128 of the content, xxh3-64 of index and
//!          the footer so far, "DNDROBJ1"
//! ```
//!
//! encrypted: "DNDRSOBJ" in front, and the key's id u64, 32 bytes of salt behind the head. Each
//! frame is a sealed chunk, its first byte 1 = zstd, 0 = not compressed. Then a sealed chunk with
//! all stored lengths and the footer's first 32 bytes, its length u32, zero u32, "DNDRSEND"
//!
//! Invariants
//! 1. The seed of a frame's checksum is its number: frames that changed places are noticed.
//! 2. Any frame can be read by itself: a restore needs no room for a copy.
//! 3. An encrypted object opens under its own name alone, frame by frame in their places.
//! 4. An object whose footer is whole and fits the length of its file was written to its end.
//!
//! Not here: names and places of objects (crate `dendra`), sealing (`seal.rs`).
//! See: docs/format/backup.md.

use crate::seal::{self, BackupKey, ChunkKey, SALT_BYTES, SealedPart, TAG_BYTES};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_64_with_seed};

const MAGIC: [u8; 8] = *b"DNDRBKUP";
const MAGIC_SEALED: [u8; 8] = *b"DNDRSOBJ";
const END_MAGIC: [u8; 8] = *b"DNDROBJ1";
const END_MAGIC_SEALED: [u8; 8] = *b"DNDRSEND";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 16;
/// The head, the key's id, the salt.
const SEALED_HEAD_BYTES: usize = HEAD_BYTES + 8 + SALT_BYTES;
/// After the sealed end: its length, zero, magic.
const TRAILER_BYTES: usize = 16;
/// The part of the footer that a sealed end has: its own checksum is needless there.
const SEALED_FOOTER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 12;
const FOOTER_BYTES: usize = 48;
/// Content of one frame: a scan decodes it once, and a checksum of it names a small spot.
const FRAME_BYTES: usize = 256 << 10;
/// Content of one frame that a reader has memory for.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Set in a stored length: the frame is the content itself.
const PLAIN: u32 = 1 << 31;
/// The fastest level: tables are compressed already, and the rest is in their indexes.
const LEVEL: i32 = 1;
/// Frames of an object: a table has a value of the largest size more than it should.
const FRAMES_MAX: u32 = 1 << 20;
/// Bytes of a stored frame beside its content: those that sealing adds, and those that zstd adds to
/// little.
const STORED_MORE_MAX: usize = 1 << 10;

fn magic(key: Option<&BackupKey>) -> [u8; 8] {
    if key.is_some() { MAGIC_SEALED } else { MAGIC }
}

/// The content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSum {
    /// Length of the content.
    pub bytes: u64,
    /// Length of the object's own file.
    pub stored_bytes: u64,
    /// XXH3-128 of the content.
    pub checksum: u128,
}

/// The bytes of a file, wherever it is.
pub trait StoredBytes: Send + Sync {
    /// Length of the object in bytes.
    ///
    /// # Errors
    /// It cannot be told.
    fn len(&self) -> io::Result<u64>;

    /// Is there no byte in it?
    ///
    /// # Errors
    /// Its length cannot be told.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// There are fewer bytes, or they cannot be read.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl StoredBytes for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, offset)
    }
}

/// Bytes in memory.
impl StoredBytes for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.as_slice().len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let bytes = rest.and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Writes an object.
pub struct ObjectWriter<W> {
    draft: W,
    form: FrameForm,
    hash: Xxh3Default,
    compressor: zstd::bulk::Compressor<'static>,
    frame: Vec<u8>,
    index: Vec<u8>,
    frames: u32,
    bytes: u64,
    stored_bytes: u64,
}

/// How frames are kept.
enum FrameForm {
    Plain,
    Sealed {
        chunks: Box<ChunkKey>,
        head: Vec<u8>,
    },
}

/// The purpose for which the key of an object is derived.
fn purpose(content: u128) -> [u8; 23] {
    let mut purpose = *b"object.................";
    purpose[7..].copy_from_slice(&content.to_be_bytes());
    purpose
}

impl<W> fmt::Debug for ObjectWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectWriter({} bytes)", self.bytes)
    }
}

impl<W: Write> ObjectWriter<W> {
    /// Begins an object in an empty file.
    ///
    /// # Errors
    /// It cannot be written, or the system has no randomness.
    pub fn new(
        mut draft: W,
        key: Option<&BackupKey>,
        content: u128,
    ) -> io::Result<ObjectWriter<W>> {
        let mut head = magic(key).to_vec();
        head.extend_from_slice(&FORMAT.to_le_bytes());
        head.extend_from_slice(&(FRAME_BYTES as u32).to_le_bytes());
        let chunks = match key {
            None => None,
            Some(key) => {
                let salt: [u8; SALT_BYTES] = seal::random()?;
                head.extend_from_slice(&key.id().to_le_bytes());
                head.extend_from_slice(&salt);
                Some(Box::new(key.chunks(&salt, &purpose(content))))
            }
        };
        draft.write_all(&head)?;
        Ok(ObjectWriter {
            draft,
            stored_bytes: head.len() as u64,
            form: match chunks {
                None => FrameForm::Plain,
                Some(chunks) => FrameForm::Sealed { chunks, head },
            },
            hash: Xxh3Default::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
            frame: Vec::with_capacity(FRAME_BYTES),
            index: Vec::new(),
            frames: 0,
            bytes: 0,
        })
    }

    /// Adds content.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn push(&mut self, mut content: &[u8]) -> io::Result<()> {
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
        let stored = if is_plain { &self.frame } else { &compressed };
        let length = match &self.form {
            FrameForm::Plain => {
                self.draft.write_all(stored)?;
                let length = u32::try_from(stored.len()).expect("a frame is small");
                let flag = if is_plain { PLAIN } else { 0 };
                let checksum = xxh3_64_with_seed(stored, u64::from(self.frames));
                self.index.extend_from_slice(&(length | flag).to_le_bytes());
                self.index.extend_from_slice(&checksum.to_le_bytes());
                length
            }
            FrameForm::Sealed { chunks, head } => {
                let mut chunk = Vec::with_capacity(1 + stored.len() + TAG_BYTES);
                chunk.push(u8::from(!is_plain));
                chunk.extend_from_slice(stored);
                chunks.seal(SealedPart::Part(u64::from(self.frames)), head, &mut chunk);
                self.draft.write_all(&chunk)?;
                let length = u32::try_from(chunk.len()).expect("a frame is small");
                self.index.extend_from_slice(&length.to_le_bytes());
                length
            }
        };
        self.stored_bytes += u64::from(length);
        self.frames += 1;
        self.frame.clear();
        Ok(())
    }

    /// Writes the end. The draft has to be made durable, and named.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<(ObjectSum, W)> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        let checksum = self.hash.digest128();
        let mut end = std::mem::take(&mut self.index);
        end.extend_from_slice(&self.bytes.to_le_bytes());
        end.extend_from_slice(&self.frames.to_le_bytes());
        end.extend_from_slice(&0u32.to_le_bytes());
        end.extend_from_slice(&checksum.to_le_bytes());
        match &self.form {
            FrameForm::Plain => {
                end.extend_from_slice(&xxh3_64(&end).to_le_bytes());
                end.extend_from_slice(&END_MAGIC);
            }
            FrameForm::Sealed { chunks, head } => {
                chunks.seal(SealedPart::End(u64::from(self.frames)), head, &mut end);
                let length = u32::try_from(end.len()).expect("an index is small");
                end.extend_from_slice(&length.to_le_bytes());
                end.extend_from_slice(&0u32.to_le_bytes());
                end.extend_from_slice(&END_MAGIC_SEALED);
            }
        }
        self.draft.write_all(&end)?;
        let sum = ObjectSum {
            bytes: self.bytes,
            stored_bytes: self.stored_bytes + end.len() as u64,
            checksum,
        };
        Ok((sum, self.draft))
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

/// The buffers for reading frames, one after the other.
pub struct FrameScratch {
    stored: Vec<u8>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl fmt::Debug for FrameScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameScratch")
    }
}

impl FrameScratch {
    /// An empty one.
    ///
    /// # Errors
    /// There is no memory for a decompressor.
    pub fn new() -> io::Result<FrameScratch> {
        Ok(FrameScratch {
            stored: Vec::new(),
            decompressor: zstd::bulk::Decompressor::new()?,
        })
    }
}

/// Reads an object, frame by frame.
pub struct ObjectReader {
    file: Box<dyn StoredBytes>,
    form: FrameForm,
    index: Vec<IndexEntry>,
    sum: ObjectSum,
    frame_bytes: u64,
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectReader({:?})", self.sum)
    }
}

impl ObjectReader {
    /// Opens the object with this content.
    ///
    /// # Errors
    /// One of kind `InvalidData` names the damage.
    pub fn open(
        file: Box<dyn StoredBytes>,
        key: Option<&BackupKey>,
        content: u128,
    ) -> io::Result<ObjectReader> {
        let length = file.len()?;
        let least = match key {
            None => HEAD_BYTES + FOOTER_BYTES,
            Some(_) => SEALED_HEAD_BYTES + SEALED_FOOTER_BYTES + TAG_BYTES + TRAILER_BYTES,
        };
        if length < least as u64 {
            return Err(damaged(format!("it was cut to {length} bytes")));
        }
        let mut head = vec![
            0;
            if key.is_some() {
                SEALED_HEAD_BYTES
            } else {
                HEAD_BYTES
            }
        ];
        // The end first: bytes that are fetched from afar come with those before them.
        let (end, frames, end_offset) = match key {
            None => plain_end(&*file, length)?,
            Some(_) => sealed_end(&*file, length)?,
        };
        file.read_exact_at(&mut head, 0)?;
        let format = u32::from_le_bytes(fixed(&head[8..12]));
        let frame_bytes = u64::from(u32::from_le_bytes(fixed(&head[12..16])));
        if head[..8] != magic(key) || frame_bytes == 0 || frame_bytes > FRAME_BYTES_MAX {
            return Err(damaged("its first bytes are not those of an object"));
        }
        if format != FORMAT {
            return Err(damaged(format!(
                "it has format {format}, and format {FORMAT} was expected: use a newer program, or copy it anew"
            )));
        }
        let (form, end) = match key {
            None => (FrameForm::Plain, end),
            Some(key) => {
                let salt = fixed(&head[SEALED_HEAD_BYTES - SALT_BYTES..]);
                let chunks = Box::new(key.chunks(&salt, &purpose(content)));
                let mut sealed = end;
                let opened = chunks.open(SealedPart::End(u64::from(frames)), &head, &mut sealed);
                let opened_bytes = opened.map(|plain| plain.len()).ok_or_else(|| {
                    damaged("its end does not open with the key: it was changed, or is another object's")
                })?;
                sealed.truncate(opened_bytes);
                (FrameForm::Sealed { chunks, head }, sealed)
            }
        };
        let head_bytes = match &form {
            FrameForm::Plain => HEAD_BYTES,
            FrameForm::Sealed { head: bound, .. } => bound.len(),
        };
        let (entries, footer) = end.split_at(end.len() - SEALED_FOOTER_BYTES);
        let mut offset = head_bytes as u64;
        let mut index = Vec::with_capacity(frames as usize);
        let entry_bytes = if key.is_some() { 4 } else { ENTRY_BYTES };
        for entry in entries.chunks_exact(entry_bytes) {
            let framed = u32::from_le_bytes(fixed(&entry[..4]));
            index.push(match form {
                FrameForm::Plain => IndexEntry {
                    offset,
                    length: framed & !PLAIN,
                    is_plain: framed & PLAIN != 0,
                    checksum: u64::from_le_bytes(fixed(&entry[4..])),
                },
                // Its chunk says the rest.
                FrameForm::Sealed { .. } => IndexEntry {
                    offset,
                    length: framed,
                    is_plain: false,
                    checksum: 0,
                },
            });
            offset += u64::from(framed & !PLAIN);
        }
        let bytes = u64::from_le_bytes(fixed(&footer[..8]));
        let counted = u32::from_le_bytes(fixed(&footer[8..12]));
        if offset != end_offset
            || counted != frames
            || index.len() != frames as usize
            || bytes.div_ceil(frame_bytes) != u64::from(frames)
        {
            return Err(damaged("its frames do not fill it: bytes are missing"));
        }
        Ok(ObjectReader {
            form,
            index,
            frame_bytes,
            sum: ObjectSum {
                bytes,
                stored_bytes: length,
                checksum: u128::from_le_bytes(fixed(&footer[16..32])),
            },
            file,
        })
    }

    /// The content, as its end tells it.
    pub fn sum(&self) -> ObjectSum {
        self.sum
    }

    /// Puts the frame with the byte at `offset` into `content`: where that frame begins. Requires:
    /// `offset` is in the content.
    ///
    /// # Errors
    /// As those of `open`.
    pub fn frame_at(
        &self,
        offset: u64,
        scratch: &mut FrameScratch,
        content: &mut Vec<u8>,
    ) -> io::Result<u64> {
        let number = offset / self.frame_bytes;
        self.frame(number as usize, scratch, content)?;
        Ok(number * self.frame_bytes)
    }

    fn frame(
        &self,
        number: usize,
        scratch: &mut FrameScratch,
        content: &mut Vec<u8>,
    ) -> io::Result<()> {
        let entry = &self.index[number];
        let spot = || format!("frame {number} at byte {}", entry.offset);
        let left = self.sum.bytes - number as u64 * self.frame_bytes;
        let expected = left.min(self.frame_bytes) as usize;
        // A length that no frame has takes no memory: compressed or sealed, it is little longer.
        if entry.length as usize > expected + expected / 16 + STORED_MORE_MAX {
            return Err(damaged(format!("{} has another length", spot())));
        }
        let stored = &mut scratch.stored;
        // The former bytes are written over: none of them is read.
        stored.resize(entry.length as usize, 0);
        self.file.read_exact_at(stored, entry.offset)?;
        let (is_plain, stored) = match &self.form {
            FrameForm::Plain => {
                if xxh3_64_with_seed(stored, number as u64) != entry.checksum {
                    return Err(damaged(format!("{} does not hold its checksum", spot())));
                }
                (entry.is_plain, stored.as_slice())
            }
            FrameForm::Sealed { chunks, head } => {
                let opened = chunks.open(SealedPart::Part(number as u64), head, stored);
                let (first, rest) = opened
                    .and_then(|chunk| chunk.split_first())
                    .ok_or_else(|| damaged(format!("{} was changed: it does not open", spot())))?;
                (*first == 0, rest)
            }
        };
        content.clear();
        if is_plain {
            content.extend_from_slice(stored);
        } else {
            content.reserve_exact(expected);
            let opened = scratch.decompressor.decompress_to_buffer(stored, content);
            opened.map_err(|e| damaged(format!("{} cannot be decompressed: {e}", spot())))?;
        }
        if content.len() != expected {
            return Err(damaged(format!("{} has another length", spot())));
        }
        Ok(())
    }

    /// Reads everything and compares it with the end. Shows how much was read.
    ///
    /// # Errors
    /// As those of `open`.
    pub fn verify(&self, mut read: impl FnMut(u64)) -> io::Result<()> {
        let mut hash = Xxh3Default::new();
        let (mut scratch, mut content) = (FrameScratch::new()?, Vec::new());
        for number in 0..self.index.len() {
            self.frame(number, &mut scratch, &mut content)?;
            hash.update(&content);
            read(content.len() as u64);
        }
        if hash.digest128() != self.sum.checksum {
            return Err(damaged("the checksum of its content does not hold"));
        }
        Ok(())
    }
}

/// The index with the first part of the footer, the number of frames, and where the index begins.
fn plain_end(file: &dyn StoredBytes, length: u64) -> io::Result<(Vec<u8>, u32, u64)> {
    let mut footer = [0; FOOTER_BYTES];
    file.read_exact_at(&mut footer, length - FOOTER_BYTES as u64)?;
    let frames = u32::from_le_bytes(fixed(&footer[8..12]));
    let index_bytes = u64::from(frames) * ENTRY_BYTES as u64;
    let least = (HEAD_BYTES + FOOTER_BYTES) as u64;
    if footer[40..] != END_MAGIC || frames > FRAMES_MAX || least + index_bytes > length {
        return Err(damaged("its end is missing: it was cut, or never written"));
    }
    let offset = length - FOOTER_BYTES as u64 - index_bytes;
    let mut end = vec![0; index_bytes as usize];
    file.read_exact_at(&mut end, offset)?;
    end.extend_from_slice(&footer[..32]);
    if xxh3_64(&end) != u64::from_le_bytes(fixed(&footer[32..40])) {
        return Err(damaged("the checksum of its index does not hold"));
    }
    Ok((end, frames, offset))
}

/// The sealed end, the number of frames, and where the end begins.
fn sealed_end(file: &dyn StoredBytes, length: u64) -> io::Result<(Vec<u8>, u32, u64)> {
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, length - TRAILER_BYTES as u64)?;
    let end_bytes = u32::from_le_bytes(fixed(&trailer[..4]));
    let zero = u32::from_le_bytes(fixed(&trailer[4..8]));
    let rest = (SEALED_FOOTER_BYTES + TAG_BYTES) as u32;
    let frames = end_bytes.checked_sub(rest).filter(|it| it % 4 == 0);
    let offset = (length - TRAILER_BYTES as u64).checked_sub(u64::from(end_bytes));
    let offset = offset.filter(|offset| *offset >= SEALED_HEAD_BYTES as u64);
    let (Some(frames), Some(offset)) = (frames.map(|it| it / 4), offset) else {
        return Err(damaged("its end is missing: it was cut, or never written"));
    };
    if trailer[8..] != END_MAGIC_SEALED || zero != 0 || frames > FRAMES_MAX {
        return Err(damaged("its end is missing: it was cut, or never written"));
    }
    let mut end = vec![0; end_bytes as usize];
    file.read_exact_at(&mut end, offset)?;
    Ok((end, frames, offset))
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller cut N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use dendra_base::Prng;
    use proptest::prelude::*;
    use std::path::Path;

    /// Half of it can be compressed.
    fn content(bytes: usize) -> Vec<u8> {
        let mut prng = Prng::new(9);
        let draw = |at: usize| match at / FRAME_BYTES % 2 {
            0 => (prng.next_u64() & 0xff) as u8,
            _ => (at % 7) as u8,
        };
        (0..bytes).map(draw).collect()
    }

    const CONTENT: u128 = 7;

    fn keys() -> [Option<BackupKey>; 2] {
        [None, Some(BackupKey::new([7; 32]))]
    }

    fn written(path: &Path, content: &[u8], key: Option<&BackupKey>) -> ObjectSum {
        let mut writer = ObjectWriter::new(Vec::new(), key, CONTENT).expect("there is room");
        for part in content.chunks(100_003) {
            writer.push(part).expect("there is room");
        }
        let (sum, draft) = writer.finish().expect("there is room");
        std::fs::write(path, draft).expect("there is room");
        sum
    }

    fn open(path: &Path, key: Option<&BackupKey>, content: u128) -> io::Result<ObjectReader> {
        ObjectReader::open(Box::new(File::open(path)?), key, content)
    }

    #[test]
    fn an_object_is_read_as_it_was_written_whatever_its_length() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        let mut scratch = FrameScratch::new().expect("a decompressor");
        let mut frame = Vec::new();
        for key in keys() {
            for bytes in [0, 1, FRAME_BYTES, 2 * FRAME_BYTES + 17] {
                let content = content(bytes);
                let sum = written(&path, &content, key.as_ref());
                let length = std::fs::metadata(&path).expect("it is there").len();
                assert_eq!(sum.stored_bytes, length);
                let reader = open(&path, key.as_ref(), CONTENT).expect("it is whole");
                assert_eq!(reader.sum(), sum);
                assert_eq!(sum.bytes, bytes as u64);
                let mut seen = 0;
                reader.verify(|bytes| seen += bytes).expect("it is whole");
                assert_eq!(seen, bytes as u64);
                let mut read: Vec<u8> = Vec::new();
                while read.len() < bytes {
                    let at = read.len() as u64;
                    let begins = reader.frame_at(at, &mut scratch, &mut frame);
                    assert_eq!(begins.expect("whole"), at);
                    read.extend(&frame);
                }
                assert!(read == content);
            }
        }
    }

    proptest! {
        #![proptest_config(legal::cases(64))]

        #[test]
        fn any_legal_object_is_read_as_it_was_written(
            content in legal::bytes_of(prop_oneof![
                1 => Just(0),
                40 => 1..=3_000_usize,
                2 => (0..=4_usize, 0..=2_usize)
                    .prop_map(|(frames, more)| (frames * FRAME_BYTES + more).saturating_sub(1)),
                1 => 0..=9 * FRAME_BYTES,
            ]),
            part in 1..=400_000_usize,
            is_sealed: bool,
            name: u128,
        ) {
            let key = is_sealed.then(|| BackupKey::new([7; 32]));
            let mut writer = ObjectWriter::new(Vec::new(), key.as_ref(), name)?;
            for part in content.chunks(part) {
                writer.push(part)?;
            }
            let (sum, file) = writer.finish()?;
            let reader = ObjectReader::open(Box::new(file), key.as_ref(), name)?;
            prop_assert_eq!(reader.sum(), sum);
            prop_assert_eq!(sum.bytes, content.len() as u64);
            reader.verify(|_| ())?;
            let (mut scratch, mut frame) = (FrameScratch::new()?, Vec::new());
            let mut read = Vec::new();
            while read.len() < content.len() {
                reader.frame_at(read.len() as u64, &mut scratch, &mut frame)?;
                read.extend_from_slice(&frame);
            }
            prop_assert!(read == content);
        }
    }

    #[test]
    fn each_flipped_byte_and_each_cut_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        for key in keys() {
            let content: Vec<u8> = content(2 * FRAME_BYTES + 900);
            written(&path, &content, key.as_ref());
            let whole = std::fs::read(&path).expect("it is there");
            let notices = |bytes: &[u8]| {
                std::fs::write(&path, bytes).expect("there is room");
                open(&path, key.as_ref(), CONTENT)
                    .and_then(|reader| reader.verify(|_| ()))
                    .is_err()
            };
            assert!(!notices(&whole));
            let spots = (0..whole.len()).step_by(whole.len() / 60).chain(
                // Every byte of head and end.
                (0..SEALED_HEAD_BYTES)
                    .chain(whole.len() - FOOTER_BYTES - 3 * ENTRY_BYTES..whole.len()),
            );
            for at in spots {
                let mut flipped = whole.clone();
                flipped[at] ^= 1;
                // A plain head has no more than 16 bytes.
                assert!(notices(&flipped), "byte {at}");
                assert!(notices(&whole[..at]), "cut to {at}");
            }
        }
    }

    #[test]
    fn an_encrypted_object_tells_nothing_and_opens_under_its_own_name_and_key_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        let [_, key] = keys();
        let other = Some(BackupKey::new([8; 32]));
        let content = content(2 * FRAME_BYTES);
        written(&path, &content, key.as_ref());
        let stored = std::fs::read(&path).expect("it is there");
        let is_told = |part: &[u8]| stored.windows(part.len()).any(|it| it == part);
        assert!(!is_told(&content[..32]) && !is_told(&content[FRAME_BYTES..][..32]));
        assert!(open(&path, key.as_ref(), CONTENT).is_ok());
        assert!(open(&path, key.as_ref(), CONTENT + 1).is_err());
        assert!(open(&path, other.as_ref(), CONTENT).is_err());
        assert!(open(&path, None, CONTENT).is_err());
        // The same content again: another salt, and so other bytes.
        written(&path, &content, key.as_ref());
        assert!(std::fs::read(&path).expect("it is there") != stored);
        // A plain object in the place of an encrypted one.
        written(&path, &content, None);
        assert!(open(&path, key.as_ref(), CONTENT).is_err());
    }

    /// Frames of two objects under one key are not exchanged: each object has a key of its own.
    #[test]
    fn frames_that_changed_places_are_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("object");
        for key in keys() {
            // Two frames that are not compressed, of one length.
            let content: Vec<u8> = {
                let mut prng = Prng::new(3);
                (0..2 * FRAME_BYTES)
                    .map(|_| prng.next_u64() as u8)
                    .collect()
            };
            written(&path, &content, key.as_ref());
            let mut stored = std::fs::read(&path).expect("it is there");
            let (head, frame) = match key {
                None => (HEAD_BYTES, FRAME_BYTES),
                Some(_) => (SEALED_HEAD_BYTES, 1 + FRAME_BYTES + TAG_BYTES),
            };
            let (first, second) = stored[head..head + 2 * frame].split_at_mut(frame);
            first.swap_with_slice(second);
            std::fs::write(&path, &stored).expect("there is room");
            let reader = open(&path, key.as_ref(), CONTENT).expect("its end is whole");
            assert!(reader.verify(|_| ()).is_err());
        }
    }
}
