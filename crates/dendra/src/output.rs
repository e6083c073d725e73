//! Where the data of a command goes: stdout, or a file that may be there already.
//!
//! ```text
//! before main: is stdout open? ─► stdout(): the stream, or the failure
//! write(path): follow the links ─► a file beside the one they lead to ─► its mode, its owner ─► rename
//!                                   └─ the owner cannot be kept, or it is no usual file ─► written in place
//! ```
//!
//! Invariants
//! 1. Data that did not go anywhere is a failure. The standard library opens `/dev/null` in the
//!    place of a closed stdout, and writes to it succeed: so it is looked at before `main`.
//! 2. A file that is replaced stays what it was: the name stays a link, the mode and the owner are
//!    the old ones.
//! 3. A reader of a usual file finds the old content or the new one.
//!
//! Not here: files that are never overwritten (`token.rs`, `backup/key.rs`), a backup's objects
//! (`backup/place/`), the folder of a run (`bench/`).
//! See: docs/cli.md, "Files and streams".

use crate::exit::Failure;
use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Links that the system follows at most.
const LINKS_MAX: usize = 40;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the system calls each function of this section once before `main`. This one asks the
// kernel about a descriptor and stores a flag: it needs nothing that the runtime sets up later.
#[used]
#[allow(unsafe_code, reason = "`main` is too late to see a closed stdout")]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_ok();
    WAS_CLOSED.store(!is_open, Ordering::Relaxed);
}

/// The stream for data.
///
/// # Errors
/// It was closed when the process began.
pub(crate) fn stdout() -> Result<StdoutLock<'static>, Failure> {
    if WAS_CLOSED.load(Ordering::Relaxed) {
        return Err(Failure::output("stdout", &io::Error::other("it is closed")));
    }
    Ok(io::stdout().lock())
}

/// Writes all of `bytes` to stdout.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = stdout()?;
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|e| Failure::output("stdout", &e))
}

/// Prints what the command line's parser has to say: help and versions are data.
pub(crate) fn print_help(said: &clap::Error) -> Result<(), Failure> {
    drop(stdout()?);
    said.print()
        .and_then(|()| io::stdout().lock().flush())
        .map_err(|e| Failure::output("stdout", &e))
}

/// Finds out before the work whether `path` can be written after it.
pub(crate) fn can_write(path: &Path) -> Result<(), Failure> {
    let found = target_of(path).and_then(|target| {
        if fs::metadata(folder_of(&target))?.is_dir() {
            Ok(())
        } else {
            Err(ErrorKind::NotADirectory.into())
        }
    });
    found.map_err(|e| Failure::output(&path.display().to_string(), &e))
}

/// Makes `bytes` the content of `path`; a file that is not there gets the mode that the umask
/// leaves.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write(path, bytes, None).map_err(|e| Failure::output(&path.display().to_string(), &e))
}

/// Makes `bytes` the content of `path`. A file that is not there gets `mode`, in spite of any
/// umask.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let target = target_of(path)?;
    let before = match fs::metadata(&target) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A pipe or a device cannot be renamed over.
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return fs::write(&target, bytes);
    }
    let mut name = target.clone().into_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let beside = PathBuf::from(name);
    let replaced = replace(&target, &beside, bytes, before.as_ref(), mode);
    if !matches!(replaced, Ok(Replaced::Whole)) {
        remove(&beside)?;
    }
    match replaced? {
        Replaced::Whole => Ok(()),
        Replaced::NotOurs => fs::write(&target, bytes),
    }
}

enum Replaced {
    Whole,
    /// Another user owns the file, and we may not make one that this user owns: nothing is done.
    NotOurs,
}

fn replace(
    target: &Path,
    beside: &Path,
    bytes: &[u8],
    before: Option<&Metadata>,
    mode: Option<u32>,
) -> io::Result<Replaced> {
    // Of a process with this number that was killed.
    remove(beside)?;
    let mode = before.map(|before| before.mode() & 0o7777).or(mode);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        // Until it has its own.
        .mode(if mode.is_some() { 0o600 } else { 0o666 })
        .open(beside)?;
    if let Some(before) = before {
        let own = file.metadata()?;
        let (user, group) = (before.uid(), before.gid());
        if (own.uid(), own.gid()) != (user, group)
            && std::os::unix::fs::fchown(&file, Some(user), Some(group)).is_err()
        {
            return Ok(Replaced::NotOurs);
        }
    }
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, target)?;
    Ok(Replaced::Whole)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The file that `path` names behind all links, there or not.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..=LINKS_MAX {
        match fs::read_link(&target) {
            // From the link's folder, unless it begins at the root.
            Ok(link) => target = folder_of(&target).join(link),
            // It is no link, or not there.
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("its links lead in a circle"))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    #[test]
    fn a_file_that_is_replaced_stays_what_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).expect("a folder");
        fs::write(at("real/file"), "old").expect("written");
        fs::set_permissions(at("real/file"), Permissions::from_mode(0o640)).expect("ours");
        symlink("real/file", at("link")).expect("a link");
        symlink(at("link"), at("second")).expect("a link");
        for (name, mode) in [("real/file", None), ("link", Some(0o600)), ("second", None)] {
            write(&at(name), name.as_bytes(), mode).expect("written");
            assert_eq!(fs::read(at("real/file")).expect("there"), name.as_bytes());
            assert_eq!(mode_of(&at("real/file")), 0o640, "{name}");
        }
        for link in ["link", "second"] {
            assert!(fs::symlink_metadata(at(link)).expect("there").is_symlink());
        }
        let left = fs::read_dir(at("real")).expect("a folder").count();
        assert_eq!(left, 1, "nothing stays beside it");
    }

    #[test]
    fn the_owner_stays() {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: root alone gives files away");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "old").expect("written");
        std::os::unix::fs::chown(&path, Some(1_234), Some(4_321)).expect("root may");
        write(&path, b"new", Some(0o600)).expect("written");
        let found = fs::metadata(&path).expect("there");
        assert_eq!((found.uid(), found.gid()), (1_234, 4_321));
        assert_eq!(fs::read(&path).expect("there"), b"new");
    }

    #[test]
    fn a_file_that_is_not_there_is_made_where_its_links_lead() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        symlink("new", at("link")).expect("a link");
        write(&at("link"), b"v", Some(0o604)).expect("written");
        assert_eq!(fs::read(at("new")).expect("there"), b"v");
        assert_eq!(mode_of(&at("new")), 0o604, "in spite of the umask");
        symlink("one", at("two")).expect("a link");
        symlink("two", at("one")).expect("a link");
        assert!(write(&at("one"), b"v", None).is_err(), "a circle");
        assert!(can_write(&at("link")).is_ok());
        symlink("nowhere/file", at("lost")).expect("a link");
        assert!(can_write(&at("lost")).is_err());
        assert!(write(&at("lost"), b"v", None).is_err());
    }

    #[test]
    fn a_device_is_written_to() {
        write(Path::new("/dev/null"), b"v", None).expect("it takes all");
        let found = fs::metadata("/dev/null").expect("there");
        assert!(!found.is_file());
    }
}
