//! A node whose tables lie on a disk of a known time: for studies of the requests that wait for it.
//!
//! ```text
//! cargo run --release -p dendra-server --example slow_disk -- FOLDER --disk-us 1000 [--workers N] [--queue N] [--memory BYTES]
//!
//! read of a table   may not wait  ─► WouldBlock, always: the kernel's page cache is not asked
//!                   may wait      ─► the disk's time, then the bytes
//! all else          as on the folder itself
//! ```
//!
//! Invariants
//! 1. Reads of several threads wait side by side: the disk has no queue of its own.
//! 2. Ports are the system's choice, and are told as `dendra serve` tells them.
//!
//! Not here: disks that fail (`FaultyVfs` of the engine).
//! See: docs/lab/README.md.

use dendra_engine::vfs::{DiskSpace, File, FolderLock, OsVfs, Vfs, Wait};
use dendra_server::{Server, Settings};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A folder with slow tables.
struct SlowVfs {
    folder: OsVfs,
    disk: Duration,
}

struct SlowFile {
    file: Arc<dyn File>,
    disk: Duration,
}

impl SlowVfs {
    fn slowed(&self, name: &str, file: Arc<dyn File>) -> Arc<dyn File> {
        if !name.ends_with(".tbl") {
            return file;
        }
        Arc::new(SlowFile {
            file,
            disk: self.disk,
        })
    }
}

impl Vfs for SlowVfs {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.slowed(name, self.folder.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.slowed(name, self.folder.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_folder()
    }

    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        self.folder.lock()
    }

    fn room(&self) -> io::Result<DiskSpace> {
        self.folder.room()
    }

    fn link_into(&self, name: &str, target: &Path) -> io::Result<()> {
        self.folder.link_into(name, target)
    }

    fn describe(&self) -> String {
        self.folder.describe()
    }
}

impl File for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        if wait == Wait::Never {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        std::thread::sleep(self.disk);
        self.file.read_at(buf, offset, wait)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn start_writeback(&self, offset: u64, len: u64) {
        self.file.start_writeback(offset, len);
    }

    fn forget_cached(&self) {
        self.file.forget_cached();
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

/// Settings and the disk's time from the command line.
fn parse(mut words: impl Iterator<Item = String>) -> Result<(Settings, Duration), String> {
    let mut settings = Settings::new(words.next().ok_or("the first word is the data folder")?);
    settings.listen = vec![([127, 0, 0, 1], 0).into()];
    settings.admin = Some(([127, 0, 0, 1], 0).into());
    let mut disk = Duration::from_millis(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} has no value"))?;
        let number: u32 = value.parse().map_err(|e| format!("{name} {value}: {e}"))?;
        match name.as_str() {
            "--disk-us" => disk = Duration::from_micros(number.into()),
            "--workers" => settings.workers = number as usize,
            "--queue" => settings.queue = number as usize,
            "--memory" => settings.memory_bytes = number as usize,
            _ => {
                return Err(format!(
                    "{name} is not known; options are --disk-us, --workers, --queue, --memory"
                ));
            }
        }
    }
    Ok((settings, disk))
}

fn main() -> Result<(), String> {
    let (settings, disk) = parse(std::env::args().skip(1))?;
    let folder = OsVfs::open(&settings.data).map_err(|e| e.to_string())?;
    let running = Server::start_on(settings, Arc::new(SlowVfs { folder, disk }));
    let running = running.map_err(|e| e.to_string())?;
    let admin = running.admin_addr().ok_or("there is an admin plane")?;
    eprintln!(
        "listening on http://{} admin on http://{admin}",
        running.addr()
    );
    // Until it is killed: nothing in it is worth keeping.
    loop {
        std::thread::park();
    }
}
