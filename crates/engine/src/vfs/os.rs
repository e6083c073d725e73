//! A real folder on a Linux file system.
//!
//! ```text
//! File            system call                          when it cannot
//! read_at Block   pread
//! read_at Never   preadv2 RWF_NOWAIT                   pread, for ever, and counted
//! read_past_cache pread of an O_DIRECT descriptor      pread, and DONTNEED of pages that were not cached
//! write_at        pwrite until all is written
//! sync            fdatasync
//! start_writeback sync_file_range WRITE                nothing: a hint
//! forget_cached   posix_fadvise DONTNEED               nothing: a hint
//! lock            flock on the folder and on LOCK      WouldBlock; LOCK alone where folders have none
//! ownership       stat of the folder's name and LOCK   the error, or what was lost
//! link_into       link                                 copy and fsync
//! ```
//!
//! Invariants
//! 1. A name that could leave the folder is refused before any system call. Calls start from the
//!    opened folder: one that has taken its name is never touched.
//! 2. Only the owner can read the files made here: folders 0700, files 0600.
//! 3. A `Wait::Never` read is whole, or at the end of the file, or `WouldBlock`; never in between.
//!
//! Not here: retries. A failed sync has lost data already, and the engine stops on it.
//! See: docs/format/folder.md.

#![expect(
    unsafe_code,
    reason = "sync_file_range has no safe wrapper in the crates we use"
)]

use super::{DiskSpace, File, FolderLock, Ownership, Vfs, Wait};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The file that is locked with the folder: file systems without locks on folders have it alone.
pub const LOCK_NAME: &str = "LOCK";

/// Offsets, lengths and addresses of reads past the cache are multiples of this: a page, and no
/// less than a sector of any disk.
const DIRECT_BYTES: usize = 4096;

/// A folder of the operating system.
pub struct OsVfs {
    path: PathBuf,
    folder: fs::File,
    nowait: Arc<Nowait>,
}

/// Does this system answer reads that must not wait?
#[derive(Default)]
struct Nowait {
    is_unsupported: AtomicBool,
    reads_blocking: AtomicU64,
}

impl OsVfs {
    /// Opens the folder `dir` and makes it when it is missing, readable by its owner only.
    pub fn open(dir: &Path) -> io::Result<OsVfs> {
        make_folder(dir)?;
        let path = dir.canonicalize()?;
        let folder = fs::File::open(&path)?;
        if !folder.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(OsVfs {
            path,
            folder,
            nowait: Arc::default(),
        })
    }

    /// `Wait::Never` reads that waited after all, because the kernel, the file system or a sandbox
    /// refuses `RWF_NOWAIT`. Zero where it works.
    pub fn reads_blocking(&self) -> u64 {
        self.nowait.reads_blocking.load(Ordering::Relaxed)
    }

    /// Locks the folder as it is, for a reader: no file is made.
    ///
    /// # Errors
    /// As those of [`Vfs::lock`].
    pub fn lock_as_it_is(&self) -> io::Result<Box<dyn Send + Sync>> {
        let folder = lock_descriptor(&self.folder)?;
        let lock = match open_at(&self.folder, LOCK_NAME, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => Some(flocked(file)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(not_a_lock(e)),
        };
        Ok(Box::new((folder, lock)))
    }

    /// A file made in a folder that has lost its name would be lost with it.
    fn check_place(&self) -> io::Result<()> {
        match lost_name(&self.path, &self.folder)? {
            None => Ok(()),
            Some(reason) => Err(io::Error::new(io::ErrorKind::NotFound, reason)),
        }
    }

    fn file(&self, file: fs::File) -> Arc<dyn File> {
        Arc::new(OsFile {
            file,
            nowait: Arc::clone(&self.nowait),
        })
    }
}

/// The obstacle to the lock, with the way out where there is one.
fn not_a_lock(error: io::Error) -> io::Error {
    let way_out = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: mount it for writing, or copy the folder to one that is"
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not write there: give it the folder, or run as its owner"
        }
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => {
            "LOCK is not a plain file: move it away, a start makes a new one"
        }
        // A pipe that no process reads.
        _ if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            "LOCK is not a plain file: move it away, a start makes a new one"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {way_out}"))
}

fn open_at(folder: &fs::File, name: &str, flags: OFlags) -> io::Result<fs::File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, mode)?;
    Ok(file.into())
}

fn flocked(file: fs::File) -> io::Result<fs::File> {
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// The lock of the folder itself, which goes with no name. `None`: this file system has none, as
/// NFS, where an exclusive lock needs a descriptor that can be written.
fn lock_descriptor(folder: &fs::File) -> io::Result<Option<fs::File>> {
    let own = open_at(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    match flocked(own) {
        Ok(own) => Ok(Some(own)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
        Err(_) => Ok(None),
    }
}

fn lock_file(folder: &fs::File) -> io::Result<fs::File> {
    // A pipe of that name would be waited for without end.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
    let file = open_at(folder, LOCK_NAME, flags).map_err(not_a_lock)?;
    if !file.metadata()?.is_file() {
        return Err(not_a_lock(io::ErrorKind::InvalidInput.into()));
    }
    flocked(file)
}

/// Device and inode.
fn identity_of(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Why `path` is not the name of the open `folder` any more.
fn lost_name(path: &Path, folder: &fs::File) -> io::Result<Option<String>> {
    let own = identity_of(&rustix::fs::fstat(folder)?);
    let at = path.display();
    let gone = || format!("the data folder {at} is gone: it was removed, moved or unmounted");
    match rustix::fs::stat(path) {
        Ok(stat) if identity_of(&stat) == own => Ok(None),
        Ok(_) => Ok(Some(format!(
            "the data folder {at} is another one now: it was replaced, or a disk was mounted or unmounted there"
        ))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(Some(gone())),
        Err(e) => Err(e.into()),
    }
}

/// See [`Vfs::lock`].
struct OsLock {
    path: PathBuf,
    folder: fs::File,
    /// Holds the lock of the folder itself, where there is such a lock.
    _own: Option<fs::File>,
    file: Mutex<fs::File>,
}

impl FolderLock for OsLock {
    fn ownership(&self) -> io::Result<Ownership> {
        let lost = |reason: String| Ok(Ownership::Lost { reason });
        if let Some(reason) = lost_name(&self.path, &self.folder)? {
            return lost(reason);
        }
        let at = self.path.display();
        let flags = rustix::fs::fstatvfs(&self.folder)?.f_flag;
        if flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return lost(format!(
                "the file system of the data folder {at} has become read-only"
            ));
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let held = identity_of(&rustix::fs::fstat(&*file)?);
        match rustix::fs::statat(&self.folder, LOCK_NAME, AtFlags::empty()) {
            Ok(stat) if identity_of(&stat) == held => return Ok(Ownership::Held),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        match lock_file(&self.folder) {
            Ok(again) => *file = again,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return lost(format!(
                    "the file {LOCK_NAME} of the data folder {at} was replaced, and another process holds the new one"
                ));
            }
            Err(e) => return Err(e),
        }
        Ok(Ownership::Renewed)
    }
}

impl Vfs for OsVfs {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        self.check_place()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Ok(self.file(open_at(&self.folder, name, flags)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        Ok(self.file(open_at(&self.folder, name, OFlags::RDONLY)?))
    }

    /// Plain files only: a folder such as `lost+found` and a name that is not UTF-8 cannot be ours.
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.folder)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let stat = rustix::fs::statat(&self.folder, entry.file_name(), flags)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            if kind == FileType::RegularFile
                && let Ok(name) = entry.file_name().to_str()
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        Ok(rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        Ok(rustix::fs::renameat(&self.folder, from, &self.folder, to)?)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        let own = lock_descriptor(&self.folder)?;
        let file = lock_file(&self.folder)?;
        // Between the opening and the lock, another folder may have come in its place.
        self.check_place()?;
        Ok(Box::new(OsLock {
            path: self.path.clone(),
            folder: self.folder.try_clone()?,
            _own: own,
            file: Mutex::new(file),
        }))
    }

    fn room(&self) -> io::Result<DiskSpace> {
        let stat = rustix::fs::fstatvfs(&self.folder)?;
        Ok(DiskSpace {
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    /// The new name is durable when this returns: a checkpoint has no other moment to be synced.
    fn link_into(&self, name: &str, target: &Path) -> io::Result<()> {
        check_name(name)?;
        make_folder(target)?;
        let to = target.join(name);
        match rustix::fs::linkat(&self.folder, name, rustix::fs::CWD, &to, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {
                copy_synced(open_at(&self.folder, name, OFlags::RDONLY)?, &to)?;
            }
            Err(e) => return Err(e.into()),
        }
        fs::File::open(target)?.sync_all()
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// Makes `dir` and its missing parents, and makes their names durable.
fn make_folder(dir: &Path) -> io::Result<()> {
    let mut missing: Vec<&Path> = dir
        .ancestors()
        .filter(|p| !p.as_os_str().is_empty())
        .take_while(|p| !p.exists())
        .collect();
    while let Some(path) = missing.pop() {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn copy_synced(mut source: fs::File, to: &Path) -> io::Result<()> {
    let mut copy = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    io::copy(&mut source, &mut copy)?;
    copy.sync_all()
}

/// Refuses a name that is not a plain file name.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let is_plain =
        !name.is_empty() && name != "." && !name.contains("..") && !name.contains(['/', '\0']);
    if is_plain {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{name:?} is not a plain file name: no '/', no '..'"),
    ))
}

struct OsFile {
    file: fs::File,
    nowait: Arc<Nowait>,
}

impl OsFile {
    /// Reads until `buf` is full or the file ends; waits.
    fn read_waiting(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Reads from the disk itself: the kernel's cache is not asked and stays as it is. `None`: this
    /// file system has no such reads.
    fn read_direct(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            // The name may be gone already; the file is not.
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let Ok(direct) = opened else {
            return Ok(None);
        };
        let start = offset - offset % DIRECT_BYTES as u64;
        let skip = (offset - start) as usize;
        let wanted = (skip + buf.len()).next_multiple_of(DIRECT_BYTES);
        let mut room = vec![0; wanted + DIRECT_BYTES];
        let at = room.as_ptr().align_offset(DIRECT_BYTES);
        let Some(aligned) = room.get_mut(at..at + wanted) else {
            return Ok(None);
        };
        let mut done = 0;
        while done < wanted {
            match direct.read_at(&mut aligned[done..], start + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Ok(None),
                Err(e) => return Err(e),
            }
            if !done.is_multiple_of(DIRECT_BYTES) {
                // The file ends here.
                break;
            }
        }
        let len = buf.len().min(done.saturating_sub(skip));
        buf[..len].copy_from_slice(&aligned[skip..skip + len]);
        Ok(Some(len))
    }

    /// Reads bytes that are in memory, whole or not at all. `None`: this system cannot say.
    fn read_cached(&self, buf: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        let asked = buf.len();
        let done = loop {
            let slices = &mut [IoSliceMut::new(buf)];
            match rustix::io::preadv2(&self.file, slices, offset, ReadWriteFlags::NOWAIT) {
                Ok(done) => break done,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS) => return None,
                Err(e) => return Some(Err(e.into())),
            }
        };
        if done == asked {
            return Some(Ok(done));
        }
        // Short: either the file ends here, or the next page is not in memory.
        let len = match self.len() {
            Ok(len) => len,
            Err(e) => return Some(Err(e)),
        };
        if offset + done as u64 >= len {
            return Some(Ok(done));
        }
        Some(Err(io::ErrorKind::WouldBlock.into()))
    }
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        if wait == Wait::Block {
            return self.read_waiting(buf, offset);
        }
        if !self.nowait.is_unsupported.load(Ordering::Relaxed) {
            match self.read_cached(buf, offset) {
                Some(result) => return result,
                None => self.nowait.is_unsupported.store(true, Ordering::Relaxed),
            }
        }
        self.nowait.reads_blocking.fetch_add(1, Ordering::Relaxed);
        self.read_waiting(buf, offset)
    }

    fn read_past_cache(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(done) = self.read_direct(buf, offset)? {
            return Ok(done);
        }
        let is_cached = matches!(self.read_cached(buf, offset), Some(Ok(_)));
        let done = self.read_waiting(buf, offset)?;
        if !is_cached {
            let len = std::num::NonZeroU64::new(done as u64);
            // A hint: a system that does not take it keeps the pages, which is right too.
            let _hint = rustix::fs::fadvise(&self.file, offset, len, rustix::fs::Advice::DontNeed);
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return;
        };
        // SAFETY: the descriptor is open for as long as `self.file` lives, and the call reads and
        // writes no memory of this process. Its result is a hint's: a later `sync` tells the truth.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                offset,
                len,
                libc::SYNC_FILE_RANGE_WRITE,
            );
        }
    }

    fn forget_cached(&self) {
        // A hint: a system that does not take it keeps the pages, which is right too.
        let _hint = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder() -> (tempfile::TempDir, OsVfs) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let vfs = OsVfs::open(&dir.path().join("data/node")).expect("a new folder");
        (dir, vfs)
    }

    #[test]
    fn what_is_written_reads_back() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let file = vfs.create("a")?;
        file.write_at(b"world", 6)?;
        file.write_at(b"hello ", 0)?;
        file.sync()?;
        vfs.sync_folder()?;
        let mut buf = [0; 20];
        for wait in [Wait::Block, Wait::Never] {
            assert_eq!(vfs.open("a")?.read_at(&mut buf, 0, wait)?, 11);
            assert_eq!(&buf[..11], b"hello world");
        }
        assert_eq!(file.len()?, 11);
        assert!(vfs.create("a").is_err());
        assert!(vfs.room()?.free_bytes <= vfs.room()?.total_bytes);
        Ok(())
    }

    #[test]
    fn a_read_behind_the_end_is_empty() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let file = vfs.create("a")?;
        file.write_at(b"abc", 0)?;
        for wait in [Wait::Block, Wait::Never] {
            assert_eq!(file.read_at(&mut [0; 8], 3, wait)?, 0);
            assert_eq!(file.read_at(&mut [0; 8], 300, wait)?, 0);
        }
        Ok(())
    }

    #[test]
    fn a_read_that_must_not_wait_is_whole_or_refused() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let file = vfs.create("a")?;
        let len = 4 << 20;
        file.write_at(&vec![7; len], 0)?;
        file.sync()?;
        let mut buf = vec![0; len];
        // First no page is in memory, then the first half. A system may keep all pages: both
        // answers are right, half an answer is not.
        for kept in [0, len as u64 / 2] {
            file.read_at(&mut buf, 0, Wait::Block)?;
            let raw = fs::File::open(vfs.path.join("a"))?;
            rustix::fs::fadvise(&raw, kept, None, rustix::fs::Advice::DontNeed)?;
            match file.read_at(&mut buf, 0, Wait::Never) {
                Ok(n) => assert_eq!(n, len),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(file.read_at(&mut buf, 0, Wait::Block)?, len);
        assert!(buf.iter().all(|&b| b == 7));
        Ok(())
    }

    #[test]
    fn reads_wait_where_the_system_cannot_say() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let file = vfs.create("a")?;
        file.write_at(b"abc", 0)?;
        vfs.nowait.is_unsupported.store(true, Ordering::Relaxed);
        assert_eq!(file.read_at(&mut [0; 3], 0, Wait::Never)?, 3);
        assert_eq!(vfs.reads_blocking(), 1);
        Ok(())
    }

    #[test]
    fn a_folder_is_locked_once() -> io::Result<()> {
        let (dir, vfs) = folder();
        let guard = vfs.lock()?;
        let other = OsVfs::open(&dir.path().join("data/node"))?;
        let refused = other.lock().err().expect("the folder is taken");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        other.lock()?;
        Ok(())
    }

    fn is_lost(lock: &dyn FolderLock, because: &str) {
        match lock.ownership().expect("the system answers") {
            Ownership::Lost { reason } => assert!(reason.contains(because), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lock_outlives_its_file_and_gets_it_back() -> io::Result<()> {
        let (dir, vfs) = folder();
        let guard = vfs.lock()?;
        let other = OsVfs::open(&dir.path().join("data/node"))?;
        for replaced in [false, true] {
            assert_eq!(guard.ownership()?, Ownership::Held);
            fs::remove_file(vfs.path.join(LOCK_NAME))?;
            if replaced {
                fs::write(vfs.path.join(LOCK_NAME), b"")?;
            }
            let refused = other.lock().err().expect("the folder itself is locked");
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            let refused = other.lock_as_it_is().err().expect("for readers, too");
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(guard.ownership()?, Ownership::Renewed);
        }
        assert_eq!(guard.ownership()?, Ownership::Held);
        Ok(())
    }

    #[test]
    fn a_lock_file_that_another_process_holds_is_a_lost_folder() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let guard = vfs.lock()?;
        fs::remove_file(vfs.path.join(LOCK_NAME))?;
        // As on a file system without locks of folders.
        let _stranger = lock_file(&vfs.folder)?;
        is_lost(&*guard, "another process holds the new one");
        Ok(())
    }

    #[test]
    fn a_folder_that_is_removed_or_replaced_is_lost_and_a_new_one_is_left_alone() -> io::Result<()>
    {
        for replaced in [false, true] {
            let (dir, vfs) = folder();
            let guard = vfs.lock()?;
            vfs.create("a")?;
            let moved = dir.path().join("moved");
            fs::rename(&vfs.path, &moved)?;
            if replaced {
                fs::create_dir(&vfs.path)?;
                fs::write(vfs.path.join("a"), b"of another node")?;
                is_lost(&*guard, "is another one now");
            } else {
                is_lost(&*guard, "is gone");
            }
            assert!(vfs.create("b").is_err());
            vfs.rename("a", "c")?;
            vfs.remove("c")?;
            assert_eq!(vfs.list()?, [LOCK_NAME]);
            if replaced {
                assert_eq!(fs::read(vfs.path.join("a"))?, b"of another node");
                fs::remove_dir_all(&vfs.path)?;
            }
            fs::rename(&moved, &vfs.path)?;
            assert_eq!(guard.ownership()?, Ownership::Held);
            fs::remove_dir_all(&vfs.path)?;
            is_lost(&*guard, "is gone");
        }
        Ok(())
    }

    #[test]
    fn a_reader_locks_a_folder_without_making_a_file() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let guard = vfs.lock_as_it_is()?;
        assert!(vfs.list()?.is_empty());
        assert!(vfs.lock().is_err());
        drop(guard);
        drop(vfs.lock()?);
        assert_eq!(vfs.list()?, [LOCK_NAME]);
        vfs.lock_as_it_is()?;
        Ok(())
    }

    #[test]
    fn names_stay_inside_the_folder() {
        let (_dir, vfs) = folder();
        for name in ["", ".", "..", "../a", "a/b", "/a", "a\0b", "x..y"] {
            let error = vfs.create(name).err().expect("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
            assert!(vfs.open(name).is_err());
            assert!(vfs.remove(name).is_err());
            assert!(vfs.rename("a", name).is_err());
        }
    }

    #[test]
    fn a_folder_named_from_here_is_made_too() -> io::Result<()> {
        let dir = tempfile::tempdir_in(".")?;
        fs::remove_dir(dir.path())?;
        let name = dir.path().file_name().expect("a temporary name");
        let vfs = OsVfs::open(Path::new(name))?;
        vfs.create("a")?;
        assert!(dir.path().join("a").exists());
        Ok(())
    }

    #[test]
    fn only_the_owner_can_read() -> io::Result<()> {
        let (_dir, vfs) = folder();
        vfs.create("a")?;
        let mode = |path: &Path| fs::metadata(path).map(|m| m.permissions().mode() & 0o777);
        assert_eq!(mode(&vfs.path)?, 0o700);
        assert_eq!(mode(&vfs.path.join("a"))?, 0o600);
        Ok(())
    }

    #[test]
    fn a_link_has_the_same_bytes_and_survives_its_origin() -> io::Result<()> {
        let (dir, vfs) = folder();
        vfs.create("a")?.write_at(b"abc", 0)?;
        let target = dir.path().join("checkpoint/1");
        vfs.link_into("a", &target)?;
        vfs.remove("a")?;
        assert_eq!(fs::read(target.join("a"))?, b"abc");
        fs::write(dir.path().join("b"), b"def")?;
        let source = fs::File::open(dir.path().join("b"))?;
        copy_synced(source, &target.join("b"))?;
        assert_eq!(OsVfs::open(&target)?.list()?, ["a", "b"]);
        Ok(())
    }

    #[test]
    fn a_rename_replaces_and_a_list_is_sorted() -> io::Result<()> {
        let (_dir, vfs) = folder();
        for name in ["c", "a", "b"] {
            vfs.create(name)?.write_at(name.as_bytes(), 0)?;
        }
        fs::create_dir(vfs.path.join("lost+found"))?;
        vfs.rename("c", "a")?;
        assert_eq!(vfs.list()?, ["a", "b"]);
        let mut byte = [0];
        vfs.open("a")?.read_at(&mut byte, 0, Wait::Block)?;
        assert_eq!(&byte, b"c");
        Ok(())
    }

    #[test]
    fn hints_do_no_harm() -> io::Result<()> {
        let (_dir, vfs) = folder();
        let file = vfs.create("a")?;
        file.write_at(&[1; 9000], 0)?;
        file.start_writeback(0, 9000);
        file.start_writeback(u64::MAX, 1);
        file.forget_cached();
        assert_eq!(file.len()?, 9000);
        Ok(())
    }
}
