//! A folder in memory that can lose power: a page cache over a stable store.
//!
//! ```text
//! call            cache (reads see it)       stable (it surely survives)
//! write_at        changed                    unchanged; remembered as an unsynced write
//! sync            unchanged                  this file's bytes and length
//! create, rename  changed                    unchanged; remembered as an unsynced entry
//! sync_folder     unchanged                  all names
//!
//! power loss = stable + any subset of the unsynced entries (a rename is atomic)
//!                     + per 512-byte sector any of the states it went through since the last sync
//!                     + per file any of the lengths it went through
//! ```
//!
//! Invariants
//! 1. `operations` counts every call that changes something; the same calls give the same count.
//! 2. From the operation of `crash_at` on every call fails, and no file changes any more.
//! 3. An image is a folder of its own: its changes do not touch the one it came from.
//! 4. Zeros take no memory, and copies share pages until one of them writes.
//!
//! Not here: errors of a living disk (`faulty.rs`).
//! See: docs/format/folder.md.

use super::os::check_name;
use super::{DiskSpace, File, FolderLock, Ownership, Vfs, Wait};
use dendra_base::Prng;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
const NEVER: u64 = u64::MAX;
/// Room of a folder without a limit.
const CAPACITY_BYTES_DEFAULT: u64 = 1 << 40;

/// A folder in memory. A clone is another handle to the same folder.
#[derive(Clone, Default)]
pub struct MemVfs {
    shared: Arc<MemDisk>,
}

struct MemDisk {
    folder: Mutex<MemFolder>,
    operations: AtomicU64,
    crash_at: AtomicU64,
    capacity_bytes: AtomicU64,
    is_locked: AtomicBool,
    /// Why it is not its holder's any more.
    lost: Mutex<Option<String>>,
    would_block: Mutex<Option<(Prng, u64)>>,
    links: Mutex<BTreeMap<PathBuf, MemVfs>>,
}

impl Default for MemDisk {
    fn default() -> MemDisk {
        MemDisk {
            folder: Mutex::default(),
            operations: AtomicU64::new(0),
            crash_at: AtomicU64::new(NEVER),
            capacity_bytes: AtomicU64::new(CAPACITY_BYTES_DEFAULT),
            is_locked: AtomicBool::new(false),
            lost: Mutex::default(),
            would_block: Mutex::default(),
            links: Mutex::default(),
        }
    }
}

#[derive(Default)]
struct MemFolder {
    names: Names,
    stable: Names,
    /// Entries since the last `sync_folder`, in order.
    unsynced: Vec<FolderChange>,
}

type Names = BTreeMap<String, Arc<Inode>>;

#[derive(Clone)]
enum FolderChange {
    Created(String, Arc<Inode>),
    Renamed(String, String, Arc<Inode>),
    Removed(String, Arc<Inode>),
}

#[derive(Default)]
struct Inode {
    content: Mutex<FileContent>,
}

/// How many of the unsynced bytes survive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Survives {
    Nothing,
    Everything,
    Drawn,
}

impl Survives {
    fn draw(prng: &mut Prng) -> Survives {
        match prng.below(8) {
            0 => Survives::Nothing,
            1 => Survives::Everything,
            _ => Survives::Drawn,
        }
    }

    /// One of `0 ..= last`, often one of the ends.
    fn pick(self, last: usize, prng: &mut Prng) -> usize {
        match self {
            Survives::Nothing => 0,
            Survives::Everything => last,
            Survives::Drawn => match prng.below(4) {
                0 => 0,
                1 => last,
                _ => prng.below(last as u64 + 1) as usize,
            },
        }
    }
}

impl MemVfs {
    /// An empty folder with plenty of room.
    pub fn new() -> MemVfs {
        MemVfs::default()
    }

    /// From now on the files may hold this many bytes together; zeros count.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let capacity = &self.shared.capacity_bytes;
        capacity.store(capacity_bytes, Ordering::Relaxed);
    }

    /// `permille` of 1000 reads with `Wait::Never` answer `WouldBlock`, drawn from `seed`.
    pub fn set_would_block(&self, permille: u64, seed: u64) {
        *held(&self.shared.would_block) = Some((Prng::named(seed, "would block"), permille));
    }

    /// From now on the holder of the lock is told that the folder is lost, for this reason.
    pub fn lose(&self, reason: &str) {
        *held(&self.shared.lost) = Some(reason.to_owned());
    }

    /// Operations so far that changed, or tried to change, something.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::Relaxed)
    }

    /// The power fails at the operation with this number (the first is 0). It does not happen, or a
    /// write happens in part, and every later call fails. The images tell the content of the disk
    /// then.
    pub fn crash_at(&self, operation: u64) {
        self.shared.crash_at.store(operation, Ordering::Relaxed);
    }

    /// Did the power fail?
    pub fn has_crashed(&self) -> bool {
        self.operations() > self.shared.crash_at.load(Ordering::Relaxed)
    }

    /// A folder as it may be found after a power loss now.
    pub fn crash_image(&self, prng: &mut Prng) -> MemVfs {
        let survives = Survives::draw(prng);
        let folder = held(&self.shared.folder);
        let mut surviving = folder.stable.clone();
        for entry in &folder.unsynced {
            if survives.pick(1, prng) == 1 {
                entry.apply(&mut surviving);
            }
        }
        // One file may survive under two names: its content is drawn once.
        let mut drawn: BTreeMap<*const Inode, Arc<Inode>> = BTreeMap::new();
        let names: Names = surviving
            .iter()
            .map(|(name, inode)| {
                let image = drawn
                    .entry(Arc::as_ptr(inode))
                    .or_insert_with(|| Inode::new(held(&inode.content).image(survives, prng)));
                (name.clone(), Arc::clone(image))
            })
            .collect();
        MemVfs::from_folder(MemFolder {
            stable: names.clone(),
            names,
            unsynced: Vec::new(),
        })
    }

    /// The folder as the next process finds it after `kill -9`: all writes are seen, and unsynced
    /// bytes still are unsynced.
    pub fn process_crash_image(&self) -> MemVfs {
        let folder = held(&self.shared.folder);
        let mut copies: BTreeMap<*const Inode, Arc<Inode>> = BTreeMap::new();
        let mut copy = |inode: &Arc<Inode>| {
            let entry = copies.entry(Arc::as_ptr(inode));
            Arc::clone(entry.or_insert_with(|| Inode::new(held(&inode.content).clone())))
        };
        let mut copy_names = |names: &Names| -> Names {
            let copied = names
                .iter()
                .map(|(name, inode)| (name.clone(), copy(inode)));
            copied.collect()
        };
        let names = copy_names(&folder.names);
        let stable = copy_names(&folder.stable);
        let unsynced = folder.unsynced.iter().map(|e| e.with(&mut copy)).collect();
        MemVfs::from_folder(MemFolder {
            names,
            stable,
            unsynced,
        })
    }

    /// All bytes of a file, as reads see them; `None` without that name.
    pub fn file_bytes(&self, name: &str) -> Option<Vec<u8>> {
        let folder = held(&self.shared.folder);
        let content = held(&folder.names.get(name)?.content);
        let mut bytes = vec![0; content.len as usize];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        held(&self.shared.folder).names.keys().cloned().collect()
    }

    /// Puts a durable file into the folder, replacing one of that name; not an operation.
    pub fn install(&self, name: &str, bytes: &[u8]) {
        let mut content = FileContent::default();
        content.write(bytes, 0);
        content.sync();
        let inode = Inode::new(content);
        let mut folder = held(&self.shared.folder);
        folder.names.insert(name.to_owned(), Arc::clone(&inode));
        folder.stable.insert(name.to_owned(), inode);
    }

    /// Turns one bit of a file over, in the cache and on the disk. Requires: the bit is inside.
    pub fn flip_bit(&self, name: &str, bit: u64) {
        let folder = held(&self.shared.folder);
        let inode = folder.names.get(name).expect("the file to rot exists");
        let mut content = held(&inode.content);
        assert!(
            bit / 8 < content.len,
            "bit {bit} is behind the end of {name}"
        );
        content.flip(bit);
    }

    /// The folder that `link_into` made at `target`.
    pub fn linked_folder(&self, target: &Path) -> Option<MemVfs> {
        held(&self.shared.links).get(target).cloned()
    }

    fn from_folder(folder: MemFolder) -> MemVfs {
        MemVfs {
            shared: Arc::new(MemDisk {
                folder: Mutex::new(folder),
                ..MemDisk::default()
            }),
        }
    }

    fn used_bytes(&self) -> u64 {
        let folder = held(&self.shared.folder);
        let lens = folder.names.values().map(|inode| held(&inode.content).len);
        lens.sum()
    }
}

impl MemDisk {
    /// Counts an operation that changes something; an error once the power is gone.
    fn operation(&self) -> io::Result<()> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        if number >= self.crash_at.load(Ordering::Relaxed) {
            return Err(power_lost());
        }
        Ok(())
    }

    /// An error once the power is gone.
    fn check_power(&self) -> io::Result<()> {
        if self.operations.load(Ordering::Relaxed) > self.crash_at.load(Ordering::Relaxed) {
            return Err(power_lost());
        }
        Ok(())
    }
}

fn power_lost() -> io::Error {
    io::Error::other("power lost")
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic happens under this lock")
}

impl Vfs for MemVfs {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.shared.operation()?;
        check_name(name)?;
        let mut folder = held(&self.shared.folder);
        if folder.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = Arc::new(Inode::default());
        folder.enter(FolderChange::Created(name.to_owned(), Arc::clone(&inode)));
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.shared.check_power()?;
        Ok(self.file(held(&self.shared.folder).find(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.shared.check_power()?;
        Ok(self.names())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shared.operation()?;
        let mut folder = held(&self.shared.folder);
        let inode = folder.find(name)?;
        folder.enter(FolderChange::Removed(name.to_owned(), inode));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.operation()?;
        check_name(to)?;
        let mut folder = held(&self.shared.folder);
        let inode = folder.find(from)?;
        folder.enter(FolderChange::Renamed(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.shared.operation()?;
        let mut folder = held(&self.shared.folder);
        folder.stable = folder.names.clone();
        folder.unsynced.clear();
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        self.shared.check_power()?;
        if self.shared.is_locked.swap(true, Ordering::Acquire) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Locked(Arc::clone(&self.shared))))
    }

    fn room(&self) -> io::Result<DiskSpace> {
        self.shared.check_power()?;
        let total_bytes = self.shared.capacity_bytes.load(Ordering::Relaxed);
        Ok(DiskSpace {
            free_bytes: total_bytes.saturating_sub(self.used_bytes()),
            total_bytes,
        })
    }

    fn link_into(&self, name: &str, target: &Path) -> io::Result<()> {
        self.shared.operation()?;
        let inode = held(&self.shared.folder).find(name)?;
        let mut links = held(&self.shared.links);
        let linked = links.entry(target.to_owned()).or_default();
        let mut folder = held(&linked.shared.folder);
        if folder.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        folder.names.insert(name.to_owned(), Arc::clone(&inode));
        folder.stable.insert(name.to_owned(), inode);
        Ok(())
    }

    fn describe(&self) -> String {
        "a folder in memory".to_owned()
    }
}

impl MemVfs {
    fn file(&self, inode: Arc<Inode>) -> Arc<dyn File> {
        Arc::new(MemFile {
            vfs: self.clone(),
            inode,
        })
    }
}

struct Locked(Arc<MemDisk>);

impl FolderLock for Locked {
    fn ownership(&self) -> io::Result<Ownership> {
        self.0.check_power()?;
        let lost = held(&self.0.lost).clone();
        Ok(lost.map_or(Ownership::Held, |reason| Ownership::Lost { reason }))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.is_locked.store(false, Ordering::Release);
    }
}

impl MemFolder {
    fn find(&self, name: &str) -> io::Result<Arc<Inode>> {
        let inode = self.names.get(name).map(Arc::clone);
        inode.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn enter(&mut self, entry: FolderChange) {
        entry.apply(&mut self.names);
        self.unsynced.push(entry);
    }
}

impl FolderChange {
    /// The entry's effect on `names`, also when entries in front of it did not survive.
    fn apply(&self, names: &mut Names) {
        let mut remove_if_same = |name: &String, inode: &Arc<Inode>| {
            if names
                .get(name)
                .is_some_and(|found| Arc::ptr_eq(found, inode))
            {
                names.remove(name);
            }
        };
        match self {
            FolderChange::Created(name, inode) => {
                names.insert(name.clone(), Arc::clone(inode));
            }
            FolderChange::Renamed(from, to, inode) => {
                remove_if_same(from, inode);
                names.insert(to.clone(), Arc::clone(inode));
            }
            FolderChange::Removed(name, inode) => remove_if_same(name, inode),
        }
    }

    fn with(&self, copy: &mut impl FnMut(&Arc<Inode>) -> Arc<Inode>) -> FolderChange {
        match self {
            FolderChange::Created(name, inode) => FolderChange::Created(name.clone(), copy(inode)),
            FolderChange::Renamed(from, to, inode) => {
                FolderChange::Renamed(from.clone(), to.clone(), copy(inode))
            }
            FolderChange::Removed(name, inode) => FolderChange::Removed(name.clone(), copy(inode)),
        }
    }
}

impl Inode {
    fn new(content: FileContent) -> Arc<Inode> {
        Arc::new(Inode {
            content: Mutex::new(content),
        })
    }
}

struct MemFile {
    vfs: MemVfs,
    inode: Arc<Inode>,
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        let shared = &self.vfs.shared;
        shared.check_power()?;
        if wait == Wait::Never
            && let Some((prng, permille)) = &mut *held(&shared.would_block)
            && prng.chance(*permille, 1000)
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(held(&self.inode.content).read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let shared = &self.vfs.shared;
        let number = shared.operations.fetch_add(1, Ordering::Relaxed);
        let crash_at = shared.crash_at.load(Ordering::Relaxed);
        if number == crash_at {
            held(&self.inode.content).write_in_part(buf, offset, number);
        }
        if number >= crash_at {
            return Err(power_lost());
        }
        let len = held(&self.inode.content).len;
        let growth = (offset + buf.len() as u64).saturating_sub(len);
        let capacity = shared.capacity_bytes.load(Ordering::Relaxed);
        if growth > 0
            && capacity != CAPACITY_BYTES_DEFAULT
            && self.vfs.used_bytes() + growth > capacity
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        held(&self.inode.content).write(buf, offset);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.vfs.shared.operation()?;
        held(&self.inode.content).sync();
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) {}

    fn forget_cached(&self) {}

    fn len(&self) -> io::Result<u64> {
        self.vfs.shared.check_power()?;
        Ok(held(&self.inode.content).len)
    }
}

/// The bytes of one file: `None` is a page of zeros.
type Pages = Vec<Option<Arc<[u8; PAGE_BYTES]>>>;

#[derive(Clone, Default)]
struct FileContent {
    pages: Pages,
    len: u64,
    stable_pages: Pages,
    stable_len: u64,
    /// Writes since the last sync, in order.
    unsynced: Vec<UnsyncedWrite>,
}

#[derive(Clone)]
struct UnsyncedWrite {
    offset: u64,
    bytes: Arc<[u8]>,
}

impl FileContent {
    fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (page, inside, part) in pieces(offset, len, PAGE_BYTES) {
            let out = &mut buf[part.clone()];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(bytes) => out.copy_from_slice(&bytes[inside..inside + part.len()]),
                None => out.fill(0),
            }
        }
        len
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        put(&mut self.pages, bytes, offset);
        self.len = self.len.max(offset + bytes.len() as u64);
        self.unsynced.push(UnsyncedWrite {
            offset,
            bytes: bytes.into(),
        });
    }

    /// A write during which the power fails: any of its sectors may have made it.
    fn write_in_part(&mut self, bytes: &[u8], offset: u64, seed: u64) {
        let mut prng = Prng::named(seed, "torn write");
        for (_, _, part) in pieces(offset, bytes.len(), SECTOR_BYTES) {
            if prng.chance(1, 2) {
                let at = offset + part.start as u64;
                self.write(&bytes[part], at);
            }
        }
    }

    fn sync(&mut self) {
        let count = self.pages.len();
        self.stable_pages.resize(count, None);
        for write in self.unsynced.drain(..) {
            for (page, _, _) in pieces(write.offset, write.bytes.len(), PAGE_BYTES) {
                self.stable_pages[page].clone_from(&self.pages[page]);
            }
        }
        self.stable_len = self.len;
    }

    fn flip(&mut self, bit: u64) {
        let (page, byte) = (
            (bit / 8) as usize / PAGE_BYTES,
            (bit / 8) as usize % PAGE_BYTES,
        );
        for pages in [&mut self.pages, &mut self.stable_pages] {
            if let Some(page) = pages.get_mut(page) {
                let bytes = page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                Arc::make_mut(bytes)[byte] ^= 1 << (bit % 8);
            }
        }
    }

    /// The possible content of the disk after a power loss.
    fn image(&self, survives: Survives, prng: &mut Prng) -> FileContent {
        if self.unsynced.is_empty() || survives == Survives::Nothing {
            return FileContent::durable(self.stable_pages.clone(), self.stable_len);
        }
        // How often each sector was written; a cut says how many of those writes it shows.
        let mut cuts: BTreeMap<u64, usize> = BTreeMap::new();
        let mut lens = vec![self.stable_len];
        for write in &self.unsynced {
            for sector in write.sectors() {
                *cuts.entry(sector).or_default() += 1;
            }
            let longest = lens[lens.len() - 1];
            if write.end() > longest {
                lens.push(write.end());
            }
        }
        for cut in cuts.values_mut() {
            *cut = survives.pick(*cut, prng);
        }
        let mut pages = self.stable_pages.clone();
        for write in &self.unsynced {
            for (sector, _, part) in pieces(write.offset, write.bytes.len(), SECTOR_BYTES) {
                let cut = cuts
                    .get_mut(&(sector as u64))
                    .expect("every sector was counted");
                if *cut > 0 {
                    *cut -= 1;
                    let at = write.offset + part.start as u64;
                    put(&mut pages, &write.bytes[part], at);
                }
            }
        }
        let len = lens[survives.pick(lens.len() - 1, prng)];
        FileContent::durable(pages, len)
    }

    /// A file of `len` bytes without any history.
    fn durable(mut pages: Pages, len: u64) -> FileContent {
        let len_usize = len as usize;
        pages.resize(len_usize.div_ceil(PAGE_BYTES), None);
        if let Some(Some(last)) = pages.last_mut()
            && !len_usize.is_multiple_of(PAGE_BYTES)
        {
            // Old bytes of a longer file must not come back when this one grows.
            Arc::make_mut(last)[len_usize % PAGE_BYTES..].fill(0);
        }
        FileContent {
            stable_pages: pages.clone(),
            pages,
            len,
            stable_len: len,
            unsynced: Vec::new(),
        }
    }
}

impl UnsyncedWrite {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn sectors(&self) -> impl Iterator<Item = u64> {
        self.offset / SECTOR_BYTES as u64..self.end().div_ceil(SECTOR_BYTES as u64)
    }
}

fn put(pages: &mut Pages, bytes: &[u8], offset: u64) {
    let end = offset as usize + bytes.len();
    if pages.len() < end.div_ceil(PAGE_BYTES) {
        pages.resize(end.div_ceil(PAGE_BYTES), None);
    }
    for (page, inside, part) in pieces(offset, bytes.len(), PAGE_BYTES) {
        let bytes = &bytes[part];
        let page = &mut pages[page];
        if page.is_none() && bytes.iter().all(|&b| b == 0) {
            continue;
        }
        let page = page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
        Arc::make_mut(page)[inside..inside + bytes.len()].copy_from_slice(bytes);
    }
}

/// Cuts `len` bytes at `offset` at multiples of `unit`: number of the unit, start inside it, and
/// the part of the `len` bytes.
fn pieces(
    offset: u64,
    len: usize,
    unit: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset as usize + done;
        let size = (unit - at % unit).min(len - done);
        let part = done..done + size;
        done += size;
        Some((at / unit, at % unit, part))
    })
}

#[cfg(test)]
mod tests;
