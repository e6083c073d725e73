//! A place for a repository: named, immutable files, each there as a whole or not at all.
//!
//! ```text
//! draft ─► written on this machine ─► publish: under its name, durable ─► open, list, remove
//! ```
//!
//! Invariants
//! 1. A name stands for all bytes of a file, durably: a file that was not written to its end has no
//!    name.
//! 2. A use of the place ends when the place is dropped.
//!
//! Not here: names (`repository.rs`), bytes (crate `archive`), the places (`folder.rs`, `s3/`).

use crate::exit::Failure;
pub(crate) use dendra_archive::object::StoredBytes;
use dendra_archive::seal::random;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that marks a repository.
pub(crate) const MARK: &str = "dendra-backups";
/// Bytes of a file that are asked for at once.
const PART_BYTES: usize = 4 << 20;

/// How many use a repository at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryUse {
    /// Others may read and add, and this use changes no file.
    Read,
    /// Others may read and add.
    Shared,
    /// No other use runs: files may be removed.
    Alone,
}

/// A file on this machine that has no name in the place yet; removed when dropped.
#[derive(Debug)]
pub(crate) struct FileDraft {
    pub(crate) file: File,
    pub(super) path: PathBuf,
}

impl FileDraft {
    /// A new one in `folder`. Its name is drawn: processes of two containers, or machines, that
    /// share the folder may have the same number.
    pub(crate) fn new(folder: &Path, stem: &str) -> io::Result<FileDraft> {
        let drawn = u128::from_be_bytes(random()?);
        let path = folder.join(format!("{stem}-{drawn:032x}"));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(FileDraft { file, path })
    }

    /// One without a name in the folder, so that a killed process leaves no file there.
    pub(crate) fn unnamed(folder: &Path, stem: &str) -> io::Result<FileDraft> {
        let draft = FileDraft::new(folder, stem)?;
        std::fs::remove_file(&draft.path)?;
        Ok(draft)
    }
}

impl Write for FileDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        // It is gone when it was published; the next prune removes one that stays.
        drop(std::fs::remove_file(&self.path));
    }
}

/// A file as a list names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredName {
    /// With its folders: `objects/ab/ab…`.
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// See the module.
pub(crate) trait BackupPlace: fmt::Debug + Send + Sync {
    /// Where it is, for messages.
    fn name(&self) -> String;

    /// The file with this name.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoredBytes>>;

    /// A file to be written.
    fn draft(&self) -> io::Result<FileDraft>;

    /// Gives a draft its name. An older file of that name is replaced.
    fn publish(&self, draft: FileDraft, name: &str) -> io::Result<()>;

    /// All files in and below a folder.
    fn list(&self, folder: &str) -> io::Result<Vec<StoredName>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes the files that killed backups left under no name. Requires: no other process uses
    /// the place.
    fn tidy(&self) -> io::Result<()>;

    /// Does this use of the place still count? A long pause may have ended it.
    fn check_use(&self) -> io::Result<()>;
}

/// The whole file with this name, if it has at most `bytes_max` bytes.
pub(crate) fn read(place: &dyn BackupPlace, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = place.open(name)?;
    let length = file.len()?;
    if length > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{name} has {length} bytes, more than {bytes_max}"),
        ));
    }
    read_in_parts(&*file, length as usize)
}

/// The first `length` bytes of a file, in parts: object storage gives no more in one answer.
fn read_in_parts(file: &dyn StoredBytes, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut offset = 0;
    for part in bytes.chunks_mut(PART_BYTES) {
        file.read_exact_at(part, offset)?;
        offset += part.len() as u64;
    }
    Ok(bytes)
}

/// A place that is to be there, and is not.
pub(crate) fn no_repository(name: &str) -> Failure {
    Failure::usage(format!(
        "{name} is no folder of backups: name one that `dendra backup` wrote. Is it mounted?"
    ))
}

/// Why a place cannot be used so.
pub(super) fn in_use(name: &str, share: RepositoryUse) -> String {
    match share {
        RepositoryUse::Read | RepositoryUse::Shared => {
            format!("{name}: `dendra backup prune` runs; try again when it is done")
        }
        RepositoryUse::Alone => {
            format!("{name}: a backup, a list, a verify or a restore runs; prune when it is done")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a place that answers with no more than 16 MiB, as object storage does.
    struct Distant(Vec<u8>);

    impl StoredBytes for Distant {
        fn len(&self) -> io::Result<u64> {
            StoredBytes::len(&self.0)
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            if buf.len() > 16 << 20 {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            StoredBytes::read_exact_at(&self.0, buf, offset)
        }
    }

    #[test]
    fn a_file_is_read_however_long_it_is() {
        for length in [0, 1, PART_BYTES, PART_BYTES + 1, (16 << 20) + 1] {
            let file = Distant((0..length).map(|at| (at % 251) as u8).collect());
            let read = read_in_parts(&file, length).expect("it is whole");
            assert!(read == file.0, "{length}");
        }
    }
}
