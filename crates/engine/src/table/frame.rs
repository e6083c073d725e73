//! Frames: how any block lies in the file.
//!
//! ```text
//! | payload … | tag u8 | uncompressed length u32 | crc32 u32 |            little-endian
//!   tag    kind × 16 + compression      kinds 1 data, 2 filter, 3 index, 4 top, 5 properties
//!                                       compression 0 none, 1 lz4 block, 2 zstd
//!   crc32  over: table id u64, file offset of the payload u64, payload, tag, uncompressed length
//! ```
//!
//! Invariants
//! 1. The checksum is seeded with the table and the place, so a stale or misplaced block is found.
//! 2. No byte is decompressed, and no length is used, before the checksum held.
//!
//! Not here: the content of a payload.
//! See: docs/format/table.md.

use super::BLOCK_BYTES_MAX;
use crate::options::Compression;
use lz4_flex::block::CompressTable;
use std::cell::RefCell;

/// Bytes behind each payload.
pub(super) const TRAILER_BYTES: usize = 1 + 4 + 4;
/// zstd's own default: about twice lz4's saving at a third of its speed.
const ZSTD_LEVEL: i32 = 3;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Data = 1,
    Filter = 2,
    Index = 3,
    Top = 4,
    Properties = 5,
}

impl FrameKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            FrameKind::Data => "data block",
            FrameKind::Filter => "filter partition",
            FrameKind::Index => "index partition",
            FrameKind::Top => "top index",
            FrameKind::Properties => "properties",
        }
    }
}

/// Where a frame lies in its file: payload and trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    /// Offset of the payload.
    pub(super) offset: u64,
    /// Length of payload and trailer.
    pub(super) bytes: u32,
}

impl Handle {
    /// Where the next frame starts.
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }

    /// Can this be a frame inside the first `limit` bytes of a file?
    pub(super) fn fits(self, limit: u64) -> bool {
        let bytes = self.bytes as usize;
        (TRAILER_BYTES + 1..=BLOCK_BYTES_MAX + TRAILER_BYTES).contains(&bytes)
            && self.end() <= limit
    }
}

fn crc(id: u64, offset: u64, checked: &[u8]) -> u32 {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&id.to_le_bytes());
    seed[8..].copy_from_slice(&offset.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seed);
    hasher.update(checked);
    hasher.finalize()
}

/// Compresses payloads one after the other, with buffers that live as long as the writer.
pub(super) struct Compressor {
    choice: Compression,
    lz4: CompressTable,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
}

impl Compressor {
    pub(super) fn new(choice: Compression) -> Compressor {
        Compressor {
            choice,
            lz4: CompressTable::default(),
            zstd: None,
            buffer: Vec::new(),
        }
    }

    /// The compression id and the bytes to store. Raw when compression saves less than an eighth,
    /// or fails: raw bytes are always right.
    fn compress<'a>(&'a mut self, payload: &'a [u8]) -> (u8, &'a [u8]) {
        let worth = payload.len() - payload.len() / 8;
        let (id, len) = match self.choice {
            Compression::None => return (0, payload),
            Compression::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(payload.len());
                if self.buffer.len() < bound {
                    self.buffer.resize(bound, 0);
                }
                let len = lz4_flex::block::compress_into_with_table(
                    payload,
                    &mut self.buffer,
                    &mut self.lz4,
                );
                (1, len.ok())
            }
            Compression::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                let bound = zstd::zstd_safe::compress_bound(payload.len());
                if self.buffer.len() < bound {
                    self.buffer.resize(bound, 0);
                }
                let len = self
                    .zstd
                    .as_mut()
                    .and_then(|z| z.compress_to_buffer(payload, &mut self.buffer[..]).ok());
                (2, len)
            }
        };
        match len {
            Some(len) if len <= worth => (id, &self.buffer[..len]),
            _ => (0, payload),
        }
    }
}

/// Appends `payload` as a frame to `out`, which continues the file at `offset`.
pub(super) fn seal(
    out: &mut Vec<u8>,
    compressor: Option<&mut Compressor>,
    kind: FrameKind,
    id: u64,
    offset: u64,
    payload: &[u8],
) -> Handle {
    assert!(
        !payload.is_empty() && payload.len() <= BLOCK_BYTES_MAX,
        "a block of {} bytes is outside 1 ..= {BLOCK_BYTES_MAX}",
        payload.len()
    );
    let (compression, stored) = match compressor {
        Some(compressor) => compressor.compress(payload),
        None => (0, payload),
    };
    let start = out.len();
    out.extend_from_slice(stored);
    out.push((kind as u8) << 4 | compression);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = crc(id, offset, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
    Handle {
        offset,
        bytes: (out.len() - start) as u32,
    }
}

thread_local! {
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Checks the frame that lies at `offset` of table `id` and returns its payload, uncompressed. The
/// error names the reason when it is not the frame that was written there.
pub(super) fn open(
    frame: &[u8],
    kind: FrameKind,
    id: u64,
    offset: u64,
) -> Result<Box<[u8]>, String> {
    let Some((checked, stored_crc)) = frame.split_last_chunk::<4>() else {
        return Err(format!("a {} is cut off", kind.as_str()));
    };
    let expected = u32::from_le_bytes(*stored_crc);
    let found = crc(id, offset, checked);
    if expected != found {
        return Err(format!(
            "checksum of a {} is {found:08x}, written was {expected:08x}",
            kind.as_str()
        ));
    }
    let Some((checked, len)) = checked.split_last_chunk::<4>() else {
        return Err(format!("a {} is cut off", kind.as_str()));
    };
    let len = u32::from_le_bytes(*len) as usize;
    let Some((&tag, payload)) = checked.split_last() else {
        return Err(format!("a {} is cut off", kind.as_str()));
    };
    if tag >> 4 != kind as u8 {
        return Err(format!(
            "expected a {}, found a block of kind {}",
            kind.as_str(),
            tag >> 4
        ));
    }
    if len > BLOCK_BYTES_MAX {
        return Err(format!(
            "a {} of {len} bytes is above the limit of {BLOCK_BYTES_MAX}",
            kind.as_str()
        ));
    }
    decompress(tag & 15, payload, len)
}

fn decompress(compression: u8, payload: &[u8], len: usize) -> Result<Box<[u8]>, String> {
    let mut out;
    let done = match compression {
        0 => {
            out = payload.to_vec();
            Ok(payload.len())
        }
        1 => {
            out = vec![0; len];
            lz4_flex::block::decompress_into(payload, &mut out).map_err(|e| e.to_string())
        }
        2 => {
            out = vec![0; len];
            ZSTD.with_borrow_mut(|zstd| {
                if zstd.is_none() {
                    *zstd = Some(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?);
                }
                let zstd = zstd.as_mut().expect("just made");
                zstd.decompress_to_buffer(payload, &mut out[..])
                    .map_err(|e| e.to_string())
            })
        }
        other => return Err(format!("compression {other} is not known to this program")),
    };
    match done {
        Ok(n) if n == len => Ok(out.into_boxed_slice()),
        Ok(n) => Err(format!("a block has {n} bytes, its trailer says {len}")),
        Err(e) => Err(format!("a block cannot be decompressed: {e}")),
    }
}
