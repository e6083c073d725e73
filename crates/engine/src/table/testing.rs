//! A folder in memory for the tests of tables: no crashes, no faults, files open to tampering.
//!
//! Invariants
//! 1. `tamper` changes the bytes of later reads, through files that are already open too.
//!
//! Not here: crashing and failing disks (`vfs/mem/`, `vfs/faulty.rs`).
//! See: docs/format/folder.md.

use crate::vfs::{DiskSpace, File, FolderLock, Vfs, Wait};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Files by name.
#[derive(Default)]
pub(crate) struct Folder {
    files: Mutex<BTreeMap<String, Arc<Bytes>>>,
    is_cold: Arc<AtomicBool>,
}

#[derive(Default)]
struct Bytes {
    bytes: Mutex<Vec<u8>>,
    is_cold: Arc<AtomicBool>,
}

impl Folder {
    /// Puts `bytes` under `name`.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let file = Arc::new(Bytes {
            bytes: Mutex::new(bytes),
            is_cold: Arc::clone(&self.is_cold),
        });
        let mut files = self.files.lock().expect("no holder panics");
        files.insert(name.to_owned(), file);
    }

    /// All bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.file(name).expect("the test made the file");
        let bytes = file.bytes.lock().expect("no holder panics");
        bytes.clone()
    }

    /// Changes a file behind its readers' backs.
    pub(crate) fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let file = self.file(name).expect("the test made the file");
        change(&mut file.bytes.lock().expect("no holder panics"));
    }

    /// While cold, reads with `Wait::Never` would block.
    pub(crate) fn set_cold(&self, is_cold: bool) {
        self.is_cold.store(is_cold, Ordering::Relaxed);
    }

    fn file(&self, name: &str) -> io::Result<Arc<Bytes>> {
        let files = self.files.lock().expect("no holder panics");
        files
            .get(name)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl File for Bytes {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        if wait == Wait::Never && self.is_cold.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = self.bytes.lock().expect("no holder panics");
        let start = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let len = buf.len().min(bytes.len() - start);
        buf[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock().expect("no holder panics");
        let start = usize::try_from(offset).expect("tests write small files");
        let len = bytes.len().max(start + buf.len());
        bytes.resize(len, 0);
        bytes[start..start + buf.len()].copy_from_slice(buf);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn start_writeback(&self, _offset: u64, _len: u64) {}
    fn forget_cached(&self) {}
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().expect("no holder panics").len() as u64)
    }
}

impl Vfs for Folder {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        if self.file(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.put(name, Vec::new());
        self.open(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.file(name).map(|file| file as Arc<dyn File>)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        let files = self.files.lock().expect("no holder panics");
        Ok(files.keys().cloned().collect())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        let mut files = self.files.lock().expect("no holder panics");
        files
            .remove(name)
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn room(&self) -> io::Result<DiskSpace> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn link_into(&self, _name: &str, _target: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn describe(&self) -> String {
        "a folder of a test".to_owned()
    }
}
