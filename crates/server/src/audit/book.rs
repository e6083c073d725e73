//! The file of the audit log, and those that were put aside.
//!
//! ```text
//! write ─► what was lost before, as a line ─► the line ─┬─ in the file
//!                                                       └─ no room ─► cut off what is there of it, counted
//! FILE is full:  FILE.keep goes, FILE.2 ─► FILE.3, FILE.1 ─► FILE.2, FILE ─► FILE.1, a new FILE
//! ```
//!
//! Invariants
//! 1. A file consists of whole lines: of one that did not fit no byte stays.
//! 2. Files are put aside by renaming: a reader finds a line in one of them.
//! 3. The first failure is said in the node's log, and then the first success.
//!
//! Not here: the content of a line (`mod.rs`).
//! See: docs/operating.md, section "The audit log".

use crate::clock;
use crate::limits;
use crate::settings::AuditSettings;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A moment as RFC 3339 has it.
pub(super) fn when(wall_ms: u64) -> String {
    let ms = i64::try_from(wall_ms).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => wall_ms.to_string(),
    }
}

/// The line for so many events that are not in the log.
fn to_gap(event: &str, count: u64) -> String {
    let line = serde_json::json!({ "at": when(clock::wall_ms()), "event": event, "count": count });
    format!("{line}\n")
}

/// Counters of the log.
#[derive(Debug, Default)]
pub(crate) struct AuditGauges {
    /// Lines that are in the file.
    pub(crate) written: AtomicU64,
    /// Events that are not: the queue was full, or the disk took no line.
    pub(crate) lost: AtomicU64,
    /// Failed logins beyond `AUDIT_FAILURES_PER_SECOND` or `AUDIT_FLOOD_PER_SECOND`.
    pub(crate) left_out: AtomicU64,
    /// Files that were put aside.
    pub(crate) rotated: AtomicU64,
}

/// Where lines go.
pub(super) trait AuditDisk {
    /// Bytes of the file.
    fn len(&self) -> u64;
    /// All of `line`, or no byte of it.
    fn append(&mut self, line: &[u8]) -> io::Result<()>;
    /// Puts the file aside and begins a new one.
    fn rotate(&mut self) -> io::Result<()>;
    /// Makes appended lines durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Goes on in the file that has the name now.
    fn follow(&mut self) -> io::Result<()>;
}

/// See the module.
pub(super) struct Book<D> {
    disk: D,
    file_bytes: u64,
    gauges: Arc<AuditGauges>,
    /// How many lost lines, and lines left out, the log tells of already.
    lost_said: u64,
    left_out_said: u64,
    is_dirty: bool,
    looked: Instant,
    is_failing: bool,
}

impl<D: AuditDisk> Book<D> {
    pub(super) fn new(disk: D, file_bytes: u64, gauges: Arc<AuditGauges>) -> Book<D> {
        Book {
            disk,
            file_bytes,
            gauges,
            lost_said: 0,
            left_out_said: 0,
            is_dirty: false,
            looked: Instant::now(),
            is_failing: false,
        }
    }

    /// Writes a line, or counts it as lost.
    pub(super) fn write(&mut self, line: &str) {
        let done = self.make_room(line.len()).and_then(|()| {
            self.say_gaps()?;
            self.disk.append(line.as_bytes())
        });
        match done {
            Ok(()) => {
                self.gauges.written.fetch_add(1, Ordering::Relaxed);
                self.is_dirty = true;
            }
            Err(_) => {
                self.gauges.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.tell(done);
    }

    /// Says in the node's log when the disk takes no line, and when it does again.
    fn tell(&mut self, done: io::Result<()>) {
        match done {
            Ok(()) if self.is_failing => {
                let lost = self.gauges.lost.load(Ordering::Relaxed);
                tracing::warn!(lost, "the audit log is written again");
            }
            Err(error) if !self.is_failing => {
                tracing::error!(%error, "the audit log cannot be written: its lines are lost and counted");
                self.is_failing = true;
                return;
            }
            Ok(()) | Err(_) => return,
        }
        self.is_failing = false;
    }

    fn make_room(&mut self, line_bytes: usize) -> io::Result<()> {
        if self.disk.len() == 0 || self.disk.len() + line_bytes as u64 <= self.file_bytes {
            return Ok(());
        }
        self.disk.rotate()?;
        self.gauges.rotated.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes how many are missing here.
    fn say_gaps(&mut self) -> io::Result<()> {
        let gaps: [(&str, &AtomicU64, &mut u64); 2] = [
            ("lost", &self.gauges.lost, &mut self.lost_said),
            ("left-out", &self.gauges.left_out, &mut self.left_out_said),
        ];
        for (event, gauge, said) in gaps {
            let count = gauge.load(Ordering::Relaxed);
            if count > *said {
                let line = to_gap(event, count - *said);
                self.disk.append(line.as_bytes())?;
                *said = count;
            }
        }
        Ok(())
    }

    /// Syncs the lines written so far, and goes on in a new file if the old one was moved away:
    /// each `AUDIT_SYNC`.
    pub(super) fn look(&mut self) {
        if self.looked.elapsed() < limits::AUDIT_SYNC {
            return;
        }
        self.looked = Instant::now();
        let synced = if std::mem::take(&mut self.is_dirty) {
            self.disk.sync()
        } else {
            Ok(())
        };
        if let Err(error) = synced.and_then(|()| self.disk.follow()) {
            self.tell(Err(error));
        }
    }

    /// No line comes any more.
    pub(super) fn end(mut self) {
        if let Err(error) = self.say_gaps().and_then(|()| self.disk.sync()) {
            self.tell(Err(error));
        }
    }
}

/// A file of the system.
pub(super) struct OsBook {
    path: PathBuf,
    keep: u32,
    file: File,
    len: u64,
}

impl OsBook {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn open(settings: &AuditSettings) -> Result<OsBook, String> {
        let (file, len) = open(&settings.path).map_err(|error| {
            format!(
                "the audit log, {}, cannot be opened ({error}): check its path and rights",
                settings.path.display()
            )
        })?;
        Ok(OsBook {
            path: settings.path.clone(),
            keep: settings.keep,
            file,
            len,
        })
    }

    fn aside(&self, n: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        // A pipe without a reader would hold the start.
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        let sentence = "it is no plain file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    let mut len = found.len();
    // A process that was killed, or a power cut, may have left half of a line.
    if len > 0 && !ends_with_line_feed(path, len)? {
        (&file).write_all(b"\n")?;
        len += 1;
    }
    Ok((file, len))
}

fn ends_with_line_feed(path: &Path, len: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, len - 1)?;
    Ok(last == *b"\n")
}

/// A file that is missing is no failure here.
fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl AuditDisk for OsBook {
    fn len(&self) -> u64 {
        self.len
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        match self.file.write_all(line) {
            Ok(()) => {
                self.len += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.file.set_len(self.len)?;
                Err(error)
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.keep == 0 {
            self.file.set_len(0)?;
            self.len = 0;
            return Ok(());
        }
        for n in (1..self.keep).rev() {
            unless_missing(std::fs::rename(self.aside(n), self.aside(n + 1)))?;
        }
        unless_missing(std::fs::rename(&self.path, self.aside(1)))?;
        (self.file, self.len) = open(&self.path)?;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn follow(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_there = match std::fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            (self.file, self.len) = open(&self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use std::sync::{Mutex, MutexGuard};

    /// A disk with so much room, which fills up in the middle of a line.
    #[derive(Clone)]
    pub(in crate::audit) struct FillingDisk {
        state: Arc<Mutex<(Vec<u8>, usize)>>,
    }

    impl FillingDisk {
        pub(in crate::audit) fn new(room: usize) -> FillingDisk {
            FillingDisk {
                state: Arc::new(Mutex::new((Vec::new(), room))),
            }
        }

        fn state(&self) -> MutexGuard<'_, (Vec<u8>, usize)> {
            self.state.lock().expect("no holder panics")
        }

        pub(in crate::audit) fn text(&self) -> String {
            String::from_utf8(self.state().0.clone()).expect("UTF-8")
        }

        pub(in crate::audit) fn make_room(&self) {
            self.state().1 = usize::MAX;
        }

        /// No line is written until that is dropped.
        pub(in crate::audit) fn hold(&self) -> impl Drop {
            self.state()
        }
    }

    impl AuditDisk for FillingDisk {
        fn len(&self) -> u64 {
            self.state().0.len() as u64
        }

        fn append(&mut self, line: &[u8]) -> io::Result<()> {
            let mut state = self.state();
            let (bytes, room) = &mut *state;
            if bytes.len() + line.len() > *room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            bytes.extend_from_slice(line);
            Ok(())
        }

        fn rotate(&mut self) -> io::Result<()> {
            self.state().0.clear();
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn follow(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(folder: &Path, keep: u32) -> Book<OsBook> {
        let settings = AuditSettings {
            path: folder.join("audit"),
            file_bytes: 30,
            keep,
        };
        let disk = OsBook::open(&settings).expect("a folder");
        Book::new(disk, settings.file_bytes, Arc::default())
    }

    fn read(folder: &Path, name: &str) -> Option<String> {
        std::fs::read_to_string(folder.join(name)).ok()
    }

    #[test]
    fn a_full_file_is_put_aside_and_so_many_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let mut it = book(at, 2);
        for n in 0..8 {
            it.write(&format!("a line of 14 {n}\n"));
        }
        it.end();
        let line = |n| format!("a line of 14 {n}\n");
        assert_eq!(read(at, "audit"), Some(line(6) + &line(7)));
        assert_eq!(read(at, "audit.1"), Some(line(4) + &line(5)));
        assert_eq!(read(at, "audit.2"), Some(line(2) + &line(3)));
        assert_eq!(read(at, "audit.3"), None);
        let none = tempfile::tempdir().expect("a folder");
        let mut it = book(none.path(), 0);
        for n in 0..3 {
            it.write(&line(n));
        }
        assert_eq!(read(none.path(), "audit"), Some(line(2)));
        assert_eq!(read(none.path(), "audit.1"), None);
    }

    #[test]
    fn a_half_line_of_a_process_that_was_killed_stays_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("audit"), "half").expect("written");
        let mut it = book(folder.path(), 2);
        it.write("whole\n");
        assert_eq!(
            read(folder.path(), "audit"),
            Some("half\nwhole\n".to_owned())
        );
    }

    #[test]
    fn a_file_that_another_program_moved_away_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path();
        let mut it = book(at, 2);
        it.write("one\n");
        std::fs::rename(at.join("audit"), at.join("moved")).expect("it is there");
        it.disk.follow().expect("a new file");
        it.write("two\n");
        assert_eq!(read(at, "moved"), Some("one\n".to_owned()));
        assert_eq!(read(at, "audit"), Some("two\n".to_owned()));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for path in [folder.path().to_owned(), folder.path().join("no/where")] {
            let settings = AuditSettings {
                path,
                file_bytes: 1,
                keep: 0,
            };
            let refused = OsBook::open(&settings).err().expect("no file");
            assert!(refused.contains("cannot be opened"), "{refused}");
        }
        let device = AuditSettings {
            path: "/dev/null".into(),
            file_bytes: 1,
            keep: 0,
        };
        let refused = OsBook::open(&device).err().expect("no file");
        assert!(refused.contains("no plain file"), "{refused}");
    }
}
