//! The file `REFUSED`: it keeps a folder from being started that another member refused.
//!
//! ```text
//! Stop, for ever ─► REFUSED.new, synced ─► REFUSED ─► every later start ends with exit code 3
//! ```
//!
//! Invariants
//! 1. A refused folder stays refused: its number of starts would catch up with the noted one.
//!
//! Not here: which refusal leads here (crate `node`, `membership/refusal.rs`).
//! See: docs/operating.md, section "When a member's folder is lost".

use dendra_engine::vfs::{Vfs, Wait, read_exact_at};
use std::io;

/// The file that keeps a folder from being started.
pub(crate) const MARK_NAME: &str = "REFUSED";
/// Its name until it is whole.
pub(crate) const MARK_NAME_NEW: &str = "REFUSED.new";
/// Bytes that are read of a longer file in its place.
const MARK_BYTES_MAX: usize = 4096;

/// Leaves `sentence` in the folder for every later start.
pub(crate) fn mark(vfs: &dyn Vfs, sentence: &str) -> io::Result<()> {
    let text = format!(
        "{sentence}\n\nNo node starts on this folder any more. docs/operating.md says what to do when a member's folder is \
         lost. Remove this file only when the other members have lost more than this folder has forgotten.\n"
    );
    if vfs.list()?.iter().any(|name| name == MARK_NAME_NEW) {
        vfs.remove(MARK_NAME_NEW)?;
    }
    let file = vfs.create(MARK_NAME_NEW)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync()?;
    vfs.rename(MARK_NAME_NEW, MARK_NAME)?;
    vfs.sync_folder()
}

/// Why no node may start on the folder, if that was left in it.
pub(crate) fn marked(vfs: &dyn Vfs) -> io::Result<Option<String>> {
    if !vfs.list()?.iter().any(|name| name == MARK_NAME) {
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
