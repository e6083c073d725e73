//! Files of one folder: the only door between the engine and a disk.
//!
//! ```text
//! os.rs      the real folder
//! mem/       a folder in memory that can crash: unsynced writes and folder entries survive or not
//! faulty.rs  a wrapper that fails, fills, lies or corrupts at the n-th call
//! ```
//!
//! Invariants
//! 1. One flat folder; names are plain file names, never paths.
//! 2. Written bytes are durable after `sync`; a created, renamed or removed name after
//!    `sync_folder`.
//! 3. Offsets and lengths are explicit: there is no file position.
//! 4. Calls go to the folder that was opened, not to another one that has its name since.
//!
//! Not here: formats, checksums, caching.
//! See: docs/format/folder.md.

pub mod faulty;
pub mod mem;
pub mod os;

pub use faulty::FaultyVfs;
pub use mem::MemVfs;
pub use os::OsVfs;

use std::io;
use std::sync::Arc;

/// May a read wait for the disk?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait as long as the disk takes.
    Block,
    /// Answer `WouldBlock` when the bytes are not in memory.
    Never,
}

/// Room on the disk that holds the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Size of the disk.
    pub total_bytes: u64,
}

/// One open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "nobody asks a file whether it is empty"
)]
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    /// With `Wait::Never`, an error of kind `WouldBlock` says that the disk would have to be asked.
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize>;
    /// Reads like `read_at`, waiting; asks the disk itself where it can, and leaves the page cache
    /// as it was.
    fn read_past_cache(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset, Wait::Block)
    }
    /// Writes all of `buf` at `offset`, growing the file when needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable, the length included.
    fn sync(&self) -> io::Result<()>;
    /// Asks for written bytes to go to the disk soon; a hint without a promise.
    fn start_writeback(&self, offset: u64, len: u64);
    /// Says that the bytes will not be read again soon; a hint.
    fn forget_cached(&self);
    /// Current length in bytes.
    fn len(&self) -> io::Result<u64>;
}

/// What has become of a folder that this process locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The lock is the one that was taken, under its name.
    Held,
    /// The lock file was gone, and is there and locked again.
    Renewed,
    /// The lock file is another one, gone, locked by another process, or cannot be written any
    /// more.
    Lost {
        /// What happened, as a sentence.
        reason: String,
    },
}

/// The lock of a folder, held until it is dropped.
pub trait FolderLock: Send + Sync {
    /// Is the folder under its name still this process's? Asks the system each time.
    fn ownership(&self) -> io::Result<Ownership>;
}

/// One folder.
pub trait Vfs: Send + Sync {
    /// Creates a file that must not exist yet; open for reading and writing.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// All names, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames atomically, replacing `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_folder(&self) -> io::Result<()>;
    /// Takes the folder for this process; held until the returned guard is dropped.
    /// An error of kind `WouldBlock` says that another process holds it.
    fn lock(&self) -> io::Result<Box<dyn FolderLock>>;
    /// Room on the disk.
    fn room(&self) -> io::Result<DiskSpace>;
    /// Makes `name` appear in the new folder `target` too (a hard link; a copy where links fail).
    fn link_into(&self, name: &str, target: &std::path::Path) -> io::Result<()>;
    /// Where the folder is, for messages.
    fn describe(&self) -> String;
}

/// A file as the disk has it: every read goes past the caches.
pub(crate) struct PastCache<'a>(pub(crate) &'a dyn File);

impl File for PastCache<'_> {
    fn read_at(&self, buf: &mut [u8], offset: u64, _: Wait) -> io::Result<usize> {
        self.0.read_past_cache(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.0.start_writeback(offset, len);
    }

    fn forget_cached(&self) {
        self.0.forget_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

/// Reads exactly `buf.len()` bytes at `offset`; `UnexpectedEof` when the file ends before.
pub fn read_exact_at(file: &dyn File, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64, wait) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
