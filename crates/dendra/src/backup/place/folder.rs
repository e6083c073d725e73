//! A folder of this machine's file system.
//!
//! ```text
//! LOCK              flock: shared by backups, verify and restore; exclusive for prune
//! objects/new-…     drafts: written, synced, then renamed, folder synced
//! ```
//!
//! Invariants
//! 1. A file is synced before it has its name, and its folder afterwards.
//! 2. Nothing is made, listed or removed once the path leads to another folder than at the
//!    beginning: a share that was unmounted leaves its mount point.
//!
//! Not here: names (`repository.rs`), bytes (crate `archive`).

use super::shelf::{BackupPlace, FileDraft, MARK, RepositoryUse, StoredBytes, StoredName};
use super::shelf::{in_use, no_repository};
use crate::exit::{Exit, Failure};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LOCK: &str = "LOCK";
const FOLDERS: [&str; 2] = ["objects", "backups"];

/// See the module; locked until it is dropped.
#[derive(Debug)]
pub(crate) struct FolderPlace {
    path: PathBuf,
    /// The folder that the path led to, by device and inode.
    folder: (u64, u64),
    _lock: Option<File>,
}

fn folder_at(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl FolderPlace {
    /// A new repository in a folder that is empty or missing. It has no lock yet, and no mark,
    /// unless another backup began in it at the same moment.
    pub(crate) fn found(path: &Path) -> Result<FolderPlace, Failure> {
        let failed = |e: io::Error| Failure::output(&path.display().to_string(), &e);
        fs::create_dir_all(path).map_err(failed)?;
        for other in fs::read_dir(path).map_err(failed)? {
            let name = other.map_err(failed)?.file_name();
            // Of a beginning that was killed, and of a file system of its own.
            let mut known = FOLDERS.iter().chain(&[LOCK, MARK, "lost+found"]);
            if !known.any(|known| *known == name) {
                return Err(Failure::usage(format!(
                    "{} holds {} and is no folder of backups: name another one, or an empty one",
                    path.display(),
                    name.display()
                )));
            }
        }
        for folder in FOLDERS {
            fs::create_dir_all(path.join(folder)).map_err(failed)?;
        }
        Ok(FolderPlace {
            path: path.to_owned(),
            folder: folder_at(path).map_err(failed)?,
            _lock: None,
        })
    }

    /// Is there a repository at `path`?
    pub(crate) fn is_there(path: &Path) -> bool {
        path.join(MARK).is_file()
    }

    /// The repository at `path`, locked.
    pub(crate) fn open(path: &Path, share: RepositoryUse) -> Result<FolderPlace, Failure> {
        let name = path.display();
        if !FolderPlace::is_there(path) {
            return Err(no_repository(&name.to_string()));
        }
        let away = |e: io::Error| Failure::new(Exit::FAILURE, format!("{name} is away ({e})"));
        let folder = File::open(path).map_err(away)?;
        let is = folder.metadata().map_err(away)?;
        // In this folder, wherever the path leads to meanwhile.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = openat(&folder, LOCK, flags, Mode::from_raw_mode(0o666))
            .map(File::from)
            // A medium that cannot be written to is not changed by others, either.
            .or_else(|_| File::open(path.join(MARK)))
            .map_err(|e| Failure::new(Exit::FAILURE, format!("{name} cannot be locked ({e})")))?;
        let how = match share {
            RepositoryUse::Read | RepositoryUse::Shared => FlockOperation::NonBlockingLockShared,
            RepositoryUse::Alone => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&lock, how) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Failure::new(
                    Exit::UNAVAILABLE,
                    in_use(&name.to_string(), share),
                ));
            }
            Err(e) => {
                let sentence = format!("{name} cannot be locked ({e})");
                return Err(Failure::new(Exit::FAILURE, sentence));
            }
        }
        Ok(FolderPlace {
            path: path.to_owned(),
            folder: (is.dev(), is.ino()),
            _lock: Some(lock),
        })
    }

    /// Does the path lead to the same folder as at the beginning?
    fn check_folder(&self) -> io::Result<()> {
        if folder_at(&self.path).is_ok_and(|now| now == self.folder) {
            return Ok(());
        }
        let sentence = "the folder of before is no longer there: was it unmounted or renamed?";
        Err(io::Error::new(io::ErrorKind::NotFound, sentence))
    }
}

impl BackupPlace for FolderPlace {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredBytes>> {
        Ok(Box::new(File::open(self.path.join(name))?))
    }

    fn draft(&self) -> io::Result<FileDraft> {
        self.check_folder()?;
        FileDraft::new(&self.path.join("objects"), "new")
    }

    fn publish(&self, draft: FileDraft, name: &str) -> io::Result<()> {
        draft.file.sync_all()?;
        self.check_folder()?;
        let place = self.path.join(name);
        let folder = place.parent().unwrap_or(&self.path);
        if !folder.is_dir() {
            // One level: where `objects` itself is away, nothing is made.
            match fs::create_dir(folder) {
                // By another backup, at the same moment.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            sync_folder(folder.parent().unwrap_or(&self.path))?;
        }
        fs::rename(&draft.path, &place)?;
        sync_folder(folder)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredName>> {
        self.check_folder()?;
        let mut found = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(below) = folders.pop() {
            for entry in fs::read_dir(self.path.join(&below))? {
                let entry = entry?;
                let name = format!("{below}/{}", entry.file_name().to_string_lossy());
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    folders.push(name)
                } else {
                    found.push(StoredName {
                        name,
                        bytes: metadata.len(),
                    })
                }
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_folder()?;
        fs::remove_file(self.path.join(name))?;
        if name.starts_with("backups/") {
            sync_folder(&self.path.join("backups"))
        } else {
            Ok(())
        }
    }

    fn tidy(&self) -> io::Result<()> {
        self.check_folder()?;
        for entry in fs::read_dir(self.path.join("objects"))? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn check_use(&self) -> io::Result<()> {
        self.check_folder()
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn drafts_of_two_processes_that_are_alike_do_not_meet() {
        let folder = tempfile::tempdir().expect("a folder");
        let places = [(); 2].map(|()| FolderPlace::found(folder.path()).expect("it is empty"));
        let drafts = places.each_ref().map(|place| place.draft());
        for (number, (place, draft)) in places.iter().zip(drafts).enumerate() {
            let mut draft = draft.expect("a draft");
            draft.file.write_all(&[number as u8]).expect("written");
            place
                .publish(draft, &format!("objects/{number}"))
                .expect("published");
        }
        let read = |name| fs::read(folder.path().join(name)).expect("it is there");
        assert_eq!((read("objects/0"), read("objects/1")), (vec![0], vec![1]));
    }

    #[test]
    fn nothing_is_made_listed_or_removed_where_the_folder_was_exchanged() {
        let outer = tempfile::tempdir().expect("a folder");
        let (path, away) = (outer.path().join("share"), outer.path().join("away"));
        let place = FolderPlace::found(&path).expect("it is empty");
        let begun = place.draft().expect("a draft");
        fs::rename(&path, &away).expect("renamed");
        // Nothing is there; a mount point; a mount point with folders of before.
        for folders in [None, Some(&[][..]), Some(&FOLDERS[..])] {
            for folder in folders.into_iter().flatten() {
                fs::create_dir_all(path.join(folder)).expect("made");
            }
            if folders.is_some() {
                fs::create_dir_all(&path).expect("made");
            }
            let refused = [
                place.draft().map(drop),
                place.list("objects").map(drop),
                place.remove("backups/any"),
                place.tidy(),
                place.check_use(),
            ];
            assert!(refused.iter().all(Result::is_err), "{refused:?}");
        }
        let refused = place.publish(begun, "objects/ab/ab");
        let said = refused.expect_err("it would be elsewhere").to_string();
        assert!(said.contains("unmounted"), "{said}");
        let made = fs::read_dir(path.join("objects"))
            .expect("a folder")
            .count();
        assert_eq!(made, 0);
    }

    #[test]
    fn a_repository_that_another_backup_founds_meanwhile_is_no_other_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let founded = FolderPlace::found(folder.path()).expect("it is empty");
        let mut mark = founded.draft().expect("a draft");
        mark.file.write_all(b"ours").expect("written");
        founded.publish(mark, MARK).expect("published");
        // This one had looked for the mark a moment before it was there.
        FolderPlace::found(folder.path()).expect("all in it is ours");
        fs::write(folder.path().join("thesis.txt"), "ten years").expect("written");
        let refused = FolderPlace::found(folder.path()).expect_err("it holds another file");
        assert!(refused.sentence.contains("holds"), "{}", refused.sentence);
    }
}
