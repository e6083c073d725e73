//! The files `REFUSED` and `DOUBTED`: what other members said about a folder, for its later starts.
//!
//! ```text
//! Stop, Refused ─► REFUSED.new, synced ─► REFUSED ─► every later start ends with exit code 3
//! Stop, Doubted ─► DOUBTED.new, synced ─► DOUBTED ─► a later start is not counted, and needs all others' word
//!                                                    └─ all let it in ─► removed
//! ```
//!
//! Invariants
//! 1. A refused folder stays refused: its number of starts would catch up with the noted one. That
//!    of a doubted folder does not rise.
//!
//! Not here: which refusal leads here (crate `ownership`, `membership/refusal.rs`).
//! See: docs/format/folder.md, docs/operating.md, section "When a member's folder is lost".

use dendra_engine::vfs::{Vfs, Wait, read_exact_at};
use dendra_ownership::membership::{Disowned, FolderVerdict};
use std::io;

/// The file that keeps a folder from being started.
pub(crate) const MARK_NAME: &str = "REFUSED";
/// Name of the mark until it is whole.
pub(crate) const MARK_NAME_NEW: &str = "REFUSED.new";
/// The file of a folder that some members refused, and not a majority.
pub(crate) const DOUBT_NAME: &str = "DOUBTED";
/// Name of the doubt until it is whole.
pub(crate) const DOUBT_NAME_NEW: &str = "DOUBTED.new";
/// Bytes that are read of a longer file in its place.
const MARK_BYTES_MAX: usize = 4096;

const REFUSED_ADVICE: &str = "No node starts on this folder any more. docs/operating.md says what to do when a member's \
                              folder is lost. Remove this file only when the other members have lost more than this \
                              folder has forgotten.";
const DOUBTED_ADVICE: &str = "A start on this folder asks all other members again, and serves only when all of them let \
                              it in. docs/operating.md says what to do until then. Do not remove this file: it keeps the \
                              starts of an old image from being counted.";

/// Leaves the verdict in the folder for every later start.
pub(crate) fn mark(vfs: &dyn Vfs, why: &Disowned) -> io::Result<()> {
    let (name, new, advice) = match why.folder {
        FolderVerdict::Usable => return Ok(()),
        FolderVerdict::Doubted => (DOUBT_NAME, DOUBT_NAME_NEW, DOUBTED_ADVICE),
        FolderVerdict::Refused => (MARK_NAME, MARK_NAME_NEW, REFUSED_ADVICE),
    };
    let text = format!("{}\n\n{advice}\n", why.sentence);
    if has(vfs, new)? {
        vfs.remove(new)?;
    }
    let file = vfs.create(new)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync()?;
    vfs.rename(new, name)?;
    vfs.sync_folder()
}

/// Why no node may start on the folder, if that was left in it.
pub(crate) fn marked(vfs: &dyn Vfs) -> io::Result<Option<String>> {
    if !has(vfs, MARK_NAME)? {
        return Ok(None);
    }
    let file = vfs.open(MARK_NAME)?;
    let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
    let mut text = vec![0; len.min(MARK_BYTES_MAX)];
    read_exact_at(&*file, &mut text, 0, Wait::Block)?;
    let text = String::from_utf8_lossy(&text);
    let sentence = text.lines().next().unwrap_or_default();
    Ok(Some(format!(
        "no node may start on it, as its file {MARK_NAME} says: {sentence}"
    )))
}

/// Was the folder doubted at an earlier start?
pub(crate) fn is_doubted(vfs: &dyn Vfs) -> io::Result<bool> {
    has(vfs, DOUBT_NAME)
}

/// All other members let the folder in.
pub(crate) fn trust(vfs: &dyn Vfs) -> io::Result<()> {
    if has(vfs, DOUBT_NAME)? {
        vfs.remove(DOUBT_NAME)?;
        vfs.sync_folder()?;
    }
    Ok(())
}

fn has(vfs: &dyn Vfs, name: &str) -> io::Result<bool> {
    Ok(vfs.list()?.iter().any(|found| found == name))
}
