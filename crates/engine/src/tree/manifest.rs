#![doc = include_str!("../../../../docs/format/manifest.md")]
//!
//! Invariants
//! 1. An edit is durable before anything that depends on it happens: files that it makes needless
//!    are removed only afterwards.
//! 2. `CURRENT` names a manifest that was complete and durable before it was named, and how long it
//!    was then. It follows each edit: a manifest that ends before is damaged.
//! 3. A manifest is never appended to by a later process: every open writes a new one.
//! 4. A tail that cannot be read behind that length is an edit that nothing depends on.
//!
//! Not here: the meaning of edits (`edit.rs`), opening of tables (`recover.rs`).

use super::edit::{Edit, Folder};
use crate::frame::{self, Frame};
use crate::vfs::{File, Vfs, Wait, read_exact_at};
use crate::{Error, Result};
use std::sync::Arc;

/// The file that names the manifest in force.
pub(crate) const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";
/// The format this program writes, and the newest it reads.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"DENDRAMF";
/// A manifest longer than this, and twice as long as it began, is rewritten as one snapshot.
const REWRITE_BYTES: u64 = 4 << 20;
/// On a small disk it is one that takes more than one part in so many of it.
const DISK_PARTS: u64 = 64;
/// No manifest of this size was ever written: a length beyond it is damage.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// Name of manifest `id`.
pub fn file_name(id: u64) -> String {
    format!("manifest-{id:016x}")
}

/// Id of the manifest called `name`.
pub(crate) fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-")?;
    (digits.len() == 16)
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The manifest being written.
pub(crate) struct Manifest {
    id: u64,
    file: Arc<dyn File>,
    end: u64,
    /// The length that `CURRENT` names, as far as is known.
    named: u64,
    /// Where its first snapshot ends.
    snapshot_end: u64,
    buffer: Vec<u8>,
}

impl Manifest {
    /// Writes manifest `id` that starts with `snapshot`, makes it durable, and only then names it
    /// in `CURRENT`.
    pub(crate) fn create(vfs: &dyn Vfs, id: u64, snapshot: &Edit) -> Result<Manifest> {
        let name = file_name(id);
        let file = vfs
            .create(&name)
            .map_err(|e| Error::io(format!("creating {name}"), e))?;
        let mut manifest = Manifest {
            id,
            file,
            end: 0,
            named: 0,
            snapshot_end: 0,
            buffer: Vec::new(),
        };
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&FORMAT.to_le_bytes());
        manifest.write(&head)?;
        manifest.append_unnamed(snapshot)?;
        manifest.snapshot_end = manifest.end;
        vfs.sync_folder()
            .map_err(|e| Error::io("syncing the folder", e))?;
        name_current(vfs, id, manifest.end)?;
        manifest.named = manifest.end;
        Ok(manifest)
    }

    fn write(&mut self, payload: &[u8]) -> Result<()> {
        self.buffer.clear();
        frame::encode_into(&mut self.buffer, self.id, self.end, payload);
        self.file
            .write_at(&self.buffer, self.end)
            .map_err(|e| Error::io(format!("writing {}", file_name(self.id)), e))?;
        self.end += self.buffer.len() as u64;
        Ok(())
    }

    /// Appends `edit`, makes it durable, and then notes in `CURRENT` that it must be there. After
    /// `Io` the manifest has not changed: a half-written edit is torn, and the next one overwrites
    /// it. After `Poisoned` the state of the disk is unknown.
    pub(crate) fn append(&mut self, vfs: &dyn Vfs, edit: &Edit) -> Result<()> {
        self.append_unnamed(edit)?;
        match name_current(vfs, self.id, self.end) {
            // The edit is in force. CURRENT names fewer bytes, which is true, until the next edit.
            Err(error) if error.is_no_space() => Ok(()),
            Err(error) => Err(Error::Poisoned {
                reason: error.to_string(),
            }),
            Ok(()) => {
                self.named = self.end;
                Ok(())
            }
        }
    }

    /// Is this what `CURRENT` must say?
    pub(crate) fn is_named_by(&self, named: Named) -> bool {
        // The last naming may have failed when it was done.
        named.id == self.id && (named.bytes == self.named || named.bytes == self.end)
    }

    fn append_unnamed(&mut self, edit: &Edit) -> Result<()> {
        let mut payload = Vec::new();
        edit.encode(&mut payload);
        self.write(&payload)?;
        self.file.sync().map_err(|e| Error::Poisoned {
            reason: format!("syncing {} failed: {e}", file_name(self.id)),
        })
    }

    /// Id of the manifest.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Should a new manifest replace this one, on a disk of `total_bytes`? 0 = it is not known.
    pub(crate) fn is_long(&self, total_bytes: u64) -> bool {
        let most = match total_bytes {
            0 => REWRITE_BYTES,
            total => REWRITE_BYTES.min(total / DISK_PARTS),
        };
        self.end > most.max(2 * self.snapshot_end)
    }
}

fn name_current(vfs: &dyn Vfs, id: u64, bytes: u64) -> Result<()> {
    let failed = |what: &'static str| move |e| Error::io(what, e);
    let file = match vfs.create(CURRENT_NEW) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            vfs.remove(CURRENT_NEW)
                .map_err(failed("removing CURRENT.new"))?;
            vfs.create(CURRENT_NEW)
        }
        other => other,
    }
    .map_err(failed("creating CURRENT.new"))?;
    let line = Named { id, bytes }.line();
    file.write_at(line.as_bytes(), 0)
        .map_err(failed("writing CURRENT.new"))?;
    file.sync().map_err(failed("syncing CURRENT.new"))?;
    vfs.rename(CURRENT_NEW, CURRENT)
        .map_err(failed("renaming CURRENT.new to CURRENT"))?;
    vfs.sync_folder().map_err(failed("syncing the folder"))
}

/// The manifest that `CURRENT` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Id of the manifest.
    pub(crate) id: u64,
    /// How many bytes of it were durable at least when it was named.
    pub(crate) bytes: u64,
}

impl Named {
    fn line(self) -> String {
        let text = format!("{} {}", file_name(self.id), self.bytes);
        format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
    }

    fn parse(line: &[u8]) -> Option<Named> {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.split(' ');
        let named = Named {
            id: id_of(words.next()?)?,
            bytes: words.next()?.parse().ok()?,
        };
        (named.line().as_bytes() == line).then_some(named)
    }
}

/// The manifest that `CURRENT` names; `None` when there is no `CURRENT`.
pub(crate) fn current(vfs: &dyn Vfs, names: &[String]) -> Result<Option<Named>> {
    if !names.iter().any(|n| n == CURRENT) {
        return Ok(None);
    }
    let file = vfs
        .open(CURRENT)
        .map_err(|e| Error::io("opening CURRENT", e))?;
    let len = file.len().map_err(|e| Error::io("reading CURRENT", e))?;
    let mut bytes = vec![0; usize::try_from(len.min(256)).expect("at most 256")];
    read_exact_at(&*file, &mut bytes, 0, Wait::Block)
        .map_err(|e| Error::io("reading CURRENT", e))?;
    let damaged = || {
        let reason = "it must hold one line, a manifest's name, its length and a checksum; restore the folder from a copy, \
             or write the line of the newest manifest that `dendra dump` can read";
        Error::damaged(CURRENT, 0, reason)
    };
    Named::parse(&bytes).map(Some).ok_or_else(damaged)
}

/// One entry met while reading a manifest.
#[derive(Debug)]
pub(crate) enum ManifestEntry {
    /// An edit that was written whole.
    Edit(Edit),
    /// The rest is torn or damaged: why.
    Broken(String),
}

/// Reads manifest `id`, showing each edit with its offset. A broken tail is shown, not an error.
/// Returns where the whole edits end.
pub(crate) fn read(
    vfs: &dyn Vfs,
    id: u64,
    mut visit: impl FnMut(u64, ManifestEntry) -> Result<()>,
) -> Result<u64> {
    let name = file_name(id);
    let damaged = |offset: u64, reason: String| Error::damaged(name.clone(), offset, reason);
    let file = vfs.open(&name).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => damaged(
            0,
            "CURRENT names it and it is not there: bring the file back, or restore the folder from a copy".to_owned(),
        ),
        _ => Error::io(format!("opening {name}"), e),
    })?;
    let len = file
        .len()
        .map_err(|e| Error::io(format!("reading {name}"), e))?;
    if len > MANIFEST_BYTES_MAX {
        return Err(damaged(
            0,
            format!("{len} bytes are more than any manifest has"),
        ));
    }
    let mut bytes = vec![0; usize::try_from(len).expect("at most 1 GiB")];
    read_exact_at(&*file, &mut bytes, 0, Wait::Block)
        .map_err(|e| Error::io(format!("reading {name}"), e))?;
    let mut at = 0;
    let mut is_first = true;
    loop {
        let (payload, next) = match frame::decode(&bytes, id, at) {
            Frame::Complete {
                payload,
                next_offset,
            } => (payload, next_offset),
            Frame::End if !is_first => return Ok(at),
            Frame::End => return Err(damaged(0, "it is empty".to_owned())),
            Frame::Bad { reason } if is_first => return Err(damaged(0, reason)),
            Frame::Bad { reason } => {
                return visit(at, ManifestEntry::Broken(reason)).map(|()| at);
            }
        };
        if is_first {
            check_head(&name, payload)?;
            is_first = false;
        } else {
            let edit = Edit::decode(payload).map_err(|reason| damaged(at, reason))?;
            visit(at, ManifestEntry::Edit(edit))?;
        }
        at = next;
    }
}

fn check_head(name: &str, payload: &[u8]) -> Result<()> {
    let format = payload
        .strip_prefix(MAGIC)
        .and_then(|rest| Some(u32::from_le_bytes(*rest.first_chunk()?)));
    match format {
        Some(FORMAT) => Ok(()),
        Some(other) => Err(Error::Unusable {
            reason: format!(
                "{name} has folder format {other} and this program reads format {FORMAT}: use the newer Dendra that wrote it"
            ),
        }),
        None => Err(Error::damaged(
            name,
            0,
            "it does not start as a manifest does",
        )),
    }
}

/// The folder as manifest `id` describes it, of which `bytes_min` bytes must be there.
pub fn replay(vfs: &dyn Vfs, id: u64, bytes_min: u64) -> Result<Folder> {
    let mut folder = Folder::new();
    let end = read(vfs, id, |offset, entry| {
        if let ManifestEntry::Edit(edit) = entry {
            folder
                .apply(edit)
                .map_err(|reason| Error::damaged(file_name(id), offset, reason))?;
        }
        Ok(())
    })?;
    if end < bytes_min {
        return Err(Error::damaged(
            file_name(id),
            end,
            format!(
                "its whole edits end here, and CURRENT says that {bytes_min} bytes of it were synced: it was cut or is an older copy; \
                 restore the folder from a copy"
            ),
        ));
    }
    if folder.identity.is_none() {
        return Err(Error::damaged(
            file_name(id),
            0,
            "it does not name the folder's owner",
        ));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_line_of_current_is_read_as_it_was_written(id: u64, bytes: u64) {
            let line = Named { id, bytes }.line();
            let read = Named::parse(line.as_bytes()).expect("it was written");
            prop_assert_eq!((read.id, read.bytes), (id, bytes));
            for end in 0..line.len() {
                prop_assert!(Named::parse(&line.as_bytes()[..end]).is_none());
            }
        }
    }
}
