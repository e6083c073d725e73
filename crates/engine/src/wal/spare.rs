//! Segments made ahead of use, so that an append never waits for the file system.
//!
//! ```text
//! prepare ─► zeros, synced, with its name synced ─► Spare ─► the writer rolls into it
//! ```
//!
//! Invariants
//! 1. A spare is durable, and holds only zeros.
//! 2. A file that holds anything else is never replaced.
//!
//! Not here: when a spare is made (`segments.rs`), its first bytes (`writer.rs`).

use super::reader::read_whole;
use super::{BATCH_ALIGNMENT, SEGMENT_BYTES_MIN, SEGMENT_ID_MAX, segment_name};
use crate::vfs::{File, Vfs};
use crate::{Error, Result};
use std::io;
use std::sync::Arc;

/// Zeros are written in pieces of this size: a spare must not need its own size in memory.
const ZERO_PIECE_BYTES: usize = 1 << 20;

/// A segment made ahead of time: all zeros, durable, not yet in use.
pub struct Spare {
    pub(super) segment: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) capacity: usize,
}

impl Spare {
    /// Its id.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Its size in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity
    }
}

/// Makes segment `segment` of `segment_bytes` zeros, durable with its name.
///
/// A file of that name that holds only zeros, left by an attempt that failed, is replaced. One that
/// holds anything else is an error. After an error no file is left, unless removing it failed too.
/// A full disk is an [`Error::Io`] with `is_no_space`.
pub fn prepare(vfs: &dyn Vfs, segment: u64, segment_bytes: usize) -> Result<Spare> {
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
    let file = match vfs.create(&name) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove_unused(vfs, &name)?;
            vfs.create(&name)
        }
        other => other,
    }
    .map_err(|e| Error::io(format!("create {name}"), e))?;
    let filled = fill(vfs, &*file, &name, segment_bytes);
    if let Err(error) = filled {
        // The first error is the one that matters; a file that stays is replaced next time.
        let _already_failing = vfs.remove(&name);
        return Err(error);
    }
    Ok(Spare {
        segment,
        file,
        capacity: segment_bytes - segment_bytes % BATCH_ALIGNMENT,
    })
}

fn fill(vfs: &dyn Vfs, file: &dyn File, name: &str, segment_bytes: usize) -> Result<()> {
    let zeros = vec![0; segment_bytes.min(ZERO_PIECE_BYTES)];
    let mut at = 0;
    while at < segment_bytes {
        let piece = zeros.len().min(segment_bytes - at);
        file.write_at(&zeros[..piece], at as u64)
            .map_err(|e| Error::io(format!("fill {name} with zeros"), e))?;
        at += piece;
    }
    file.sync()
        .map_err(|e| Error::io(format!("sync the zeros of {name}"), e))?;
    // Appends replace whole pages. The system keeps the zeros in large pages, and walks all of one
    // at every sync of a small part. Without them appends make small pages of their own.
    file.forget_cached();
    vfs.sync_folder()
        .map_err(|e| Error::io(format!("sync the folder for {name}"), e))
}

/// Was this segment made ahead of use, and never used?
///
/// # Errors
/// When it cannot be read.
pub(crate) fn is_unused(vfs: &dyn Vfs, segment: u64) -> Result<bool> {
    let bytes = read_whole(vfs, &segment_name(segment))?;
    Ok(bytes.iter().all(|&b| b == 0))
}

fn remove_unused(vfs: &dyn Vfs, name: &str) -> Result<()> {
    let bytes = read_whole(vfs, name)?;
    if let Some(used) = bytes.iter().position(|&b| b != 0) {
        return Err(Error::damaged(
            name,
            used as u64,
            "a log segment that should be new holds data; move the file away if nothing needs it",
        ));
    }
    vfs.remove(name)
        .map_err(|e| Error::io(format!("remove the unused {name}"), e))
}
