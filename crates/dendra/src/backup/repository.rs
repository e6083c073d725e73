//! A folder of backups.
//!
//! ```text
//! DESTINATION/dendra-backups              marks the folder as ours
//! DESTINATION/LOCK                        shared by backups, verify and restore; alone for prune
//! DESTINATION/objects/<2 digits>/<32>     files of checkpoints by the name of their content
//! DESTINATION/objects/new-<process>-<n>   on its way: written, synced, then renamed
//! DESTINATION/backups/<id>.json           one manifest for each backup, written last
//! ```
//!
//! Invariants
//! 1. A name stands for whole, synced content: content that was not written to its end has no name
//!    of ours.
//! 2. A manifest is there only when everything that it names is.
//!
//! Not here: the bytes of objects (`object.rs`) and manifests (`manifest.rs`).
//! See: docs/format/backup.md.

use super::manifest::BackupManifest;
use super::object::{ObjectReader, ObjectSum, ObjectWriter};
use crate::exit::{Exit, Failure};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MARK: &str = "dendra-backups";
const MARK_TEXT: &str = "backups of Dendra, format 1: see `dendra backup list`\n";
const LOCK: &str = "LOCK";

/// How many use a repository at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryUse {
    /// Others may read and add.
    Shared,
    /// Nothing else runs: files may be removed.
    Alone,
}

/// An open repository, locked until it is dropped.
#[derive(Debug)]
pub(crate) struct Repository {
    path: PathBuf,
    _lock: File,
    next_new: AtomicU64,
}

impl Repository {
    /// Opens the repository at `path`, or makes one in a folder that is empty or missing.
    pub(crate) fn create(path: &Path) -> Result<Repository, Failure> {
        let failed = |e: io::Error| Failure::output(&path.display().to_string(), &e);
        fs::create_dir_all(path).map_err(failed)?;
        if !path.join(MARK).exists() {
            let others = fs::read_dir(path).map_err(failed)?;
            for other in others {
                let name = other.map_err(failed)?.file_name();
                // Of a beginning that was killed, and of a file system of its own.
                let is_known = ["objects", "backups", LOCK, "lost+found"]
                    .iter()
                    .any(|known| *known == name);
                if !is_known {
                    return Err(Failure::usage(format!(
                        "{} holds {} and is no folder of backups: name another one, or an empty one",
                        path.display(),
                        name.display()
                    )));
                }
            }
            for folder in ["objects", "backups"] {
                fs::create_dir_all(path.join(folder)).map_err(failed)?;
            }
            // Two backups may begin at once.
            let mark = path.join(format!("objects/new-mark-{}", std::process::id()));
            fs::write(&mark, MARK_TEXT).map_err(failed)?;
            File::open(&mark)
                .and_then(|file| file.sync_all())
                .map_err(failed)?;
            fs::rename(&mark, path.join(MARK)).map_err(failed)?;
            sync_folder(path).map_err(failed)?;
        }
        Repository::open(path, RepositoryUse::Shared)
    }

    /// Opens the repository at `path`.
    pub(crate) fn open(path: &Path, share: RepositoryUse) -> Result<Repository, Failure> {
        let name = path.display();
        if !path.join(MARK).is_file() {
            return Err(Failure::usage(format!(
                "{name} is no folder of backups: name one that `dendra backup` wrote"
            )));
        }
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))
            // A medium that cannot be written to is not changed by others, either.
            .or_else(|_| File::open(path.join(MARK)))
            .map_err(|e| Failure::new(Exit::FAILURE, format!("{name} cannot be locked ({e})")))?;
        let how = match share {
            RepositoryUse::Shared => FlockOperation::NonBlockingLockShared,
            RepositoryUse::Alone => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&lock, how) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Failure::new(
                    Exit::UNAVAILABLE,
                    match share {
                        RepositoryUse::Shared => {
                            format!("{name}: `dendra backup prune` runs; try again when it is done")
                        }
                        RepositoryUse::Alone => format!(
                            "{name}: a backup, a verify or a restore runs; prune when it is done"
                        ),
                    },
                ));
            }
            Err(e) => {
                return Err(Failure::new(
                    Exit::FAILURE,
                    format!("{name} cannot be locked ({e})"),
                ));
            }
        }
        Ok(Repository {
            path: path.to_owned(),
            _lock: lock,
            next_new: AtomicU64::new(0),
        })
    }

    /// Where it is, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    // Objects.

    /// Where the object with this content is, or would be.
    pub(crate) fn object(&self, content: u128) -> PathBuf {
        let name = format!("{content:032x}");
        self.path.join("objects").join(&name[..2]).join(name)
    }

    /// The content of this object, if it is there and has its end.
    pub(crate) fn sum(&self, content: u128) -> io::Result<Option<ObjectSum>> {
        match ObjectReader::open(&self.object(content)) {
            Ok(reader) => Ok(Some(reader.sum())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            // It is written anew.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Begins an object; it has no name yet.
    pub(crate) fn begin(&self) -> io::Result<NewObject> {
        let number = self.next_new.fetch_add(1, Ordering::Relaxed);
        let name = format!("new-{}-{number}", std::process::id());
        let path = self.path.join("objects").join(name);
        // One of a killed process that had this number.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = File::create_new(&path)?;
        let temporary = Temporary(path);
        Ok(NewObject {
            writer: ObjectWriter::new(file)?,
            temporary,
        })
    }

    /// Gives an object its name, durably.
    pub(crate) fn publish(&self, new: NewObject, content: u128) -> io::Result<ObjectSum> {
        let sum = new.writer.finish()?;
        let place = self.object(content);
        let folder = place.parent().expect("objects are in folders");
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
            sync_folder(&self.path.join("objects"))?;
        }
        fs::rename(&new.temporary.0, &place)?;
        sync_folder(folder)?;
        Ok(sum)
    }

    /// All objects, and names that no whole object has.
    pub(crate) fn objects(&self) -> io::Result<(BTreeSet<u128>, Vec<PathBuf>)> {
        let (mut objects, mut others) = (BTreeSet::new(), Vec::new());
        for entry in fs::read_dir(self.path.join("objects"))? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                others.push(entry.path());
                continue;
            }
            for object in fs::read_dir(entry.path())? {
                let name = object?.file_name();
                let name = name.to_string_lossy();
                if let Ok(content) = u128::from_str_radix(&name, 16) {
                    objects.insert(content);
                }
            }
        }
        Ok((objects, others))
    }

    // Manifests.

    fn manifest_path(&self, id: &str) -> PathBuf {
        self.path.join("backups").join(format!("{id}.json"))
    }

    /// Names of all backups, oldest first.
    pub(crate) fn ids(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.path.join("backups"))? {
            let name = entry?.file_name();
            if let Some(id) = name.to_string_lossy().strip_suffix(".json") {
                ids.push(id.to_owned());
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Reads the manifest of a backup.
    pub(crate) fn manifest(&self, id: &str) -> Result<BackupManifest, Failure> {
        let path = self.manifest_path(id);
        let text = fs::read(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::NOT_FOUND,
                format!(
                    "{} has no backup {id}: see `dendra backup list`",
                    self.name()
                ),
            ),
            _ => Failure::new(Exit::FAILURE, format!("{} ({e})", path.display())),
        })?;
        BackupManifest::decode(&text)
            .map_err(|why| Failure::new(Exit::FAILURE, format!("{}: {why}", path.display())))
    }

    /// Writes the manifest of a backup, durably: from now on it counts.
    pub(crate) fn add(&self, manifest: &BackupManifest) -> io::Result<()> {
        let folder = self.path.join("backups");
        let new = folder.join(format!("new-{}", manifest.id));
        let temporary = Temporary(new.clone());
        fs::write(&new, manifest.encode())?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.manifest_path(&manifest.id))?;
        sync_folder(&folder)?;
        // The name is gone, so it removes nothing.
        drop(temporary);
        Ok(())
    }

    /// Removes backups. Their objects stay until `remove_object`.
    pub(crate) fn remove(&self, ids: &[String]) -> io::Result<()> {
        for id in ids {
            fs::remove_file(self.manifest_path(id))?;
        }
        sync_folder(&self.path.join("backups"))
    }

    /// Removes an object: how many bytes that frees.
    pub(crate) fn remove_object(&self, content: u128) -> io::Result<u64> {
        let path = self.object(content);
        let bytes = fs::metadata(&path)?.len();
        fs::remove_file(path)?;
        Ok(bytes)
    }
}

/// An object that is being written.
pub(crate) struct NewObject {
    pub(crate) writer: ObjectWriter,
    temporary: Temporary,
}

/// Removed when dropped, unless it was renamed before.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A file that stays is removed by the next prune.
        drop(fs::remove_file(&self.0));
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
