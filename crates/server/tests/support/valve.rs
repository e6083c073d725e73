//! A folder whose reads, writes and syncs a test can hold back: the slow disk on command.
//!
//! ```text
//! reads held   Wait::Never ─► WouldBlock     Wait::Block ─► waits until they are let go, or panics
//! writes held                                long write  ─► waits until they are let go
//! syncs held                                 sync        ─► waits until they are let go
//! ```
//!
//! Only reads of tables are held.
//!
//! Not here: disks that fail (crate `engine`, `vfs/faulty.rs`).

use dendra_engine::vfs::{DiskSpace, File, FolderLock, Vfs, Wait};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

#[derive(Default)]
struct State {
    holds_reads: bool,
    /// Of at least so many bytes.
    holds_writes: Option<usize>,
    holds_syncs: bool,
    panics_reads: bool,
    waiting: usize,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, holds: impl Fn(&State) -> bool) {
        let mut state = self.state.lock().expect("no holder panics");
        if !holds(&state) {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |state| holds(state))
            .expect("no holder panics");
        state.waiting -= 1;
    }
}

/// The handle of the valve. It lets go when it is dropped. A node stops only then, also after an
/// assertion that fails. So a test drops it before its node.
pub(crate) struct Valve {
    gate: Arc<Gate>,
}

/// The folder behind the valve.
struct Valved {
    below: Arc<dyn Vfs>,
    gate: Arc<Gate>,
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Valve {
    /// The result of `start` for the folder `below` with a valve in front, and the handle. Dropped
    /// in this order, the handle goes first: `let (node, valve) = …`.
    pub(crate) fn before<T>(
        below: impl Vfs + 'static,
        start: impl FnOnce(Arc<dyn Vfs>) -> T,
    ) -> (T, Valve) {
        let gate = Arc::<Gate>::default();
        let folder = Valved {
            below: Arc::new(below),
            gate: Arc::clone(&gate),
        };
        (start(Arc::new(folder)), Valve { gate })
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.gate.state.lock().expect("no holder panics"));
        self.gate.changed.notify_all();
    }

    pub(crate) fn hold_reads(&self) {
        self.set(|state| state.holds_reads = true);
    }

    /// Reads that may wait panic from now on: a bug that is not written yet.
    pub(crate) fn panic_reads(&self) {
        self.set(|state| {
            state.holds_reads = true;
            state.panics_reads = true;
        });
    }

    pub(crate) fn hold_writes_from(&self, bytes: usize) {
        self.set(|state| state.holds_writes = Some(bytes));
    }

    pub(crate) fn hold_syncs(&self) {
        self.set(|state| state.holds_syncs = true);
    }

    pub(crate) fn let_go(&self) {
        self.set(|state| {
            state.holds_reads = false;
            state.panics_reads = false;
            state.holds_writes = None;
            state.holds_syncs = false;
        });
    }

    /// Waits until `n` calls stand in front of the valve.
    pub(crate) fn wait_for(&self, n: usize) {
        let state = self.gate.state.lock().expect("no holder panics");
        let timeout = super::PATIENCE;
        let (_state, timed_out) = self
            .gate
            .changed
            .wait_timeout_while(state, timeout, |state| state.waiting < n)
            .expect("no holder panics");
        assert!(!timed_out.timed_out(), "nobody came to the valve");
    }
}

struct Held {
    below: Arc<dyn File>,
    /// Reads of other files are never held: the node looks at its folder once a second.
    is_table: bool,
    gate: Arc<Gate>,
}

impl File for Held {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        let (holds, panics) = {
            let state = self.gate.state.lock().expect("no holder panics");
            let is_table = self.is_table;
            (
                is_table && state.holds_reads,
                is_table && state.panics_reads,
            )
        };
        if holds && wait == Wait::Never {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        assert!(!panics, "a test asked for this panic");
        self.gate.pass(|state| self.is_table && state.holds_reads);
        self.below.read_at(buf, offset, wait)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let is_held = |state: &State| state.holds_writes.is_some_and(|least| buf.len() >= least);
        self.gate.pass(is_held);
        self.below.write_at(buf, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.gate.pass(|state| state.holds_syncs);
        self.below.sync()
    }
    fn start_writeback(&self, offset: u64, len: u64) {
        self.below.start_writeback(offset, len);
    }
    fn forget_cached(&self) {
        self.below.forget_cached();
    }
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
}

impl Valved {
    fn wrap(&self, name: &str, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Held {
            below,
            is_table: name.ends_with(".tbl"),
            gate: Arc::clone(&self.gate),
        })
    }
}

impl Vfs for Valved {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.below.create(name).map(|file| self.wrap(name, file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.below.open(name).map(|file| self.wrap(name, file))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.below.list()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.below.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.below.sync_folder()
    }
    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        self.below.lock()
    }
    fn room(&self) -> io::Result<DiskSpace> {
        self.below.room()
    }
    fn link_into(&self, name: &str, target: &Path) -> io::Result<()> {
        self.below.link_into(name, target)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}
