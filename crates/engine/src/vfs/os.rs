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
//! lock            flock on LOCK, exclusive, at once    WouldBlock
//! link_into       link                                 copy and fsync
//! ```
//!
//! Invariants
//! 1. A name that could leave the folder is refused before any system call.
//! 2. Only the owner can read the files made here: folders 0700, files 0600.
//! 3. A `Wait::Never` read is whole, or at the end of the file, or `WouldBlock`; never in between.
//!
//! Not here: retries. A failed sync has lost data already, and the engine stops on it.
//! See: docs/format/folder.md.

#![expect(
    unsafe_code,
    reason = "sync_file_range has no safe wrapper in the crates we use"
)]

use super::{DiskSpace, File, Vfs, Wait};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The file whose lock stands for the whole folder.
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

    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
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

impl Vfs for OsVfs {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path_of(name)?)?;
        Ok(self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.file(fs::File::open(self.path_of(name)?)?))
    }

    /// Plain files only: a folder such as `lost+found` and a name that is not UTF-8 cannot be ours.
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_of(from)?, self.path_of(to)?)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A pipe of that name would be waited for without end.
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(self.path_of(LOCK_NAME)?)
            .map_err(not_a_lock)?;
        if !file.metadata()?.is_file() {
            return Err(not_a_lock(io::ErrorKind::InvalidInput.into()));
        }
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
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
        let from = self.path_of(name)?;
        make_folder(target)?;
        let to = target.join(name);
        match fs::hard_link(&from, &to) {
            Ok(()) => {}
            Err(e) if cannot_link(&e) => copy_synced(&from, &to)?,
            Err(e) => return Err(e),
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

fn cannot_link(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK)
    )
}

fn copy_synced(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = fs::File::open(from)?;
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
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
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
        copy_synced(&dir.path().join("b"), &target.join("b"))?;
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
