//! Segments made ahead of use, so that an append never waits for the file system.
//!
//! ```text
//! prepare ─► wal.new: head, zeros, synced ─► its name, synced ─► Spare ─► the writer rolls into it
//! ```
//!
//! Invariants
//! 1. A spare is durable, and holds its head and zeros. It has its name only since it is whole.
//! 2. A file that holds anything else is never replaced.
//!
//! Not here: when a spare is made (`segments.rs`), its first bytes (`writer.rs`).

use super::{
    BATCH_ALIGNMENT, SEGMENT_BYTES_MIN, SEGMENT_HEAD_BYTES, SEGMENT_ID_MAX, Segment, SegmentHead,
    segment_name,
};
use crate::vfs::{File, Vfs};
use crate::{Error, Result};
use std::io;
use std::sync::Arc;

/// The name of a segment that is being made.
pub(crate) const NEW_SEGMENT: &str = "wal.new";

/// Zeros are written in pieces of this size: a spare must not need its own size in memory.
const ZERO_PIECE_BYTES: usize = 1 << 20;

/// A segment made ahead of time: a head and zeros, durable, not yet in use.
pub struct Spare {
    pub(super) head: SegmentHead,
    pub(super) file: Arc<dyn File>,
    pub(super) capacity: usize,
}

impl Spare {
    /// Id of the segment.
    pub fn segment(&self) -> u64 {
        self.head.segment
    }

    /// Size of the segment in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity
    }
}

/// Makes segment `segment` of `segment_bytes` for the folder with this `salt`: its head and zeros,
/// durable with its name.
///
/// A file of that name that was never used, left by an attempt that failed, is replaced. One that
/// holds anything else is an error. After an error no file is left, unless removing it failed too.
/// A full disk is an [`Error::Io`] with `is_no_space`.
pub fn prepare(vfs: &dyn Vfs, salt: u64, segment: u64, segment_bytes: usize) -> Result<Spare> {
    let in_range = (SEGMENT_BYTES_MIN..=u32::MAX as usize).contains(&segment_bytes)
        && segment <= SEGMENT_ID_MAX;
    if !in_range {
        return Err(Error::Unusable {
            reason: format!(
                "log segment {segment} of {segment_bytes} bytes is outside the format: ids up to {SEGMENT_ID_MAX}, {SEGMENT_BYTES_MIN} bytes to 4 GiB"
            ),
        });
    }
    let name = segment_name(segment);
    remove_unused(vfs, segment)?;
    let file = match vfs.create(NEW_SEGMENT) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove_new(vfs)?;
            vfs.create(NEW_SEGMENT)
        }
        other => other,
    }
    .map_err(|e| Error::io(format!("create {NEW_SEGMENT} for {name}"), e))?;
    let head = SegmentHead {
        segment,
        bytes: segment_bytes as u64,
        salt,
    };
    let made = fill(&*file, &name, &head).and_then(|()| {
        vfs.rename(NEW_SEGMENT, &name)
            .map_err(|e| Error::io(format!("rename {NEW_SEGMENT} to {name}"), e))
    });
    let made = made.map_err(|error| (error, NEW_SEGMENT)).and_then(|()| {
        vfs.sync_folder()
            .map_err(|e| (Error::io(format!("sync the folder for {name}"), e), &*name))
    });
    if let Err((error, left)) = made {
        // The first error is the one that matters; a file that stays is replaced next time.
        let _already_failing = vfs.remove(left);
        return Err(error);
    }
    Ok(Spare {
        head,
        file,
        capacity: segment_bytes - segment_bytes % BATCH_ALIGNMENT,
    })
}

fn fill(file: &dyn File, name: &str, head: &SegmentHead) -> Result<()> {
    let segment_bytes = usize::try_from(head.bytes).expect("a segment is smaller than 4 GiB");
    let mut piece = vec![0; segment_bytes.min(ZERO_PIECE_BYTES)];
    piece[..SEGMENT_HEAD_BYTES].copy_from_slice(&head.encode());
    let mut at = 0;
    while at < segment_bytes {
        let len = piece.len().min(segment_bytes - at);
        file.write_at(&piece[..len], at as u64)
            .map_err(|e| Error::io(format!("fill {name} with zeros"), e))?;
        piece[..SEGMENT_HEAD_BYTES].fill(0);
        at += len;
    }
    file.sync()
        .map_err(|e| Error::io(format!("sync the zeros of {name}"), e))?;
    // Appends replace whole pages. The system keeps the zeros in large pages, and walks all of one
    // at every sync of a small part. Without them appends make small pages of their own.
    file.forget_cached();
    Ok(())
}

/// Removes the file of an attempt that did not come to its end.
fn remove_new(vfs: &dyn Vfs) -> Result<()> {
    vfs.remove(NEW_SEGMENT)
        .map_err(|e| Error::io(format!("remove the unfinished {NEW_SEGMENT}"), e))
}

/// Was this segment made ahead of use, and never used?
///
/// # Errors
/// When it cannot be read.
pub(crate) fn is_unused(vfs: &dyn Vfs, segment: u64) -> Result<bool> {
    Ok(Segment::read(vfs, segment)?.is_unused())
}

/// Did this segment come into use?
///
/// # Errors
/// When it cannot be read, or is not a whole segment.
pub(crate) fn holds_data(vfs: &dyn Vfs, segment: u64) -> Result<bool> {
    let whole = Segment::read(vfs, segment)?;
    whole.checked_head()?;
    Ok(!whole.is_unused())
}

fn remove_unused(vfs: &dyn Vfs, segment: u64) -> Result<()> {
    let name = segment_name(segment);
    match vfs.open(&name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Error::io(format!("look for {name}"), e))?,
    };
    if !is_unused(vfs, segment)? {
        return Err(Error::damaged(
            name,
            0,
            "a log segment that should be new holds data; move the file away if nothing needs it",
        ));
    }
    vfs.remove(&name)
        .map_err(|e| Error::io(format!("remove the unused {name}"), e))
}
