//! A folder whose disk is alive and not to be trusted: it fails, fills, lies, rots and misses.
//!
//! ```text
//! fail            the n-th call of a kind ends in EIO or ENOSPC; a write that fails is half done
//! lie             sync and sync_folder say yes and do nothing
//! rot             reads of one file see one bit turned over
//! misdirect       the n-th write lands elsewhere in its file and says yes
//! ```
//!
//! Invariants
//! 1. Calls are counted per kind and altogether from 0, failed ones included, so that a test can
//!    fail each call of a workload in turn.
//! 2. Without an order every call goes through unchanged.
//!
//! Not here: power loss (`mem/`); wrap a `MemVfs` to have both.

use super::{DiskSpace, File, FolderLock, Vfs, Wait};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// A kind of call that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `Vfs::create`.
    Create,
    /// `Vfs::open`.
    Open,
    /// `File::read_at`.
    Read,
    /// `File::write_at`.
    Write,
    /// `File::sync`.
    Sync,
    /// `Vfs::sync_folder`.
    SyncFolder,
    /// `Vfs::rename`.
    Rename,
    /// `Vfs::remove`.
    Remove,
    /// `Vfs::list`.
    List,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 9] = [
        Call::Create,
        Call::Open,
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::SyncFolder,
        Call::Rename,
        Call::Remove,
        Call::List,
    ];
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// `EIO`: the device gave up.
    Io,
    /// `ENOSPC`: no room.
    NoSpace,
}

/// How often a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Only that call.
    Once,
    /// The call and all after it.
    Onwards,
}

/// Calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    by_kind: [u64; Call::ALL.len()],
}

impl Calls {
    /// Calls of one kind.
    pub fn of(&self, call: Call) -> u64 {
        self.by_kind[call as usize]
    }

    /// Calls of all kinds.
    pub fn all(&self) -> u64 {
        self.by_kind.iter().sum()
    }
}

#[derive(Clone, Copy)]
struct FaultOrder {
    /// `None`: counted over all kinds.
    call: Option<Call>,
    nth: u64,
    failure: CallFailure,
    repeat: Repeat,
}

#[derive(Default)]
struct FaultyState {
    calls: Calls,
    orders: Vec<FaultOrder>,
    is_lying: bool,
    /// File name and bit.
    rotten: Vec<(String, u64)>,
    /// Number of the write and where it lands instead.
    misdirected: Option<(u64, u64)>,
}

/// A wrapper around another folder. A clone is another handle to the same wrapper.
#[derive(Clone)]
pub struct FaultyVfs {
    below: Arc<dyn Vfs>,
    state: Arc<Mutex<FaultyState>>,
}

impl FaultyVfs {
    /// Wraps `below`; no call fails yet.
    pub fn new(below: Arc<dyn Vfs>) -> FaultyVfs {
        FaultyVfs {
            below,
            state: Arc::default(),
        }
    }

    /// The `nth` call of kind `call`, counted from 0 since the beginning, fails.
    pub fn fail(&self, call: Call, nth: u64, failure: CallFailure, repeat: Repeat) {
        self.order(Some(call), nth, failure, repeat);
    }

    /// The `nth` call of any kind, counted from 0 since the beginning, fails.
    pub fn fail_any(&self, nth: u64, failure: CallFailure, repeat: Repeat) {
        self.order(None, nth, failure, repeat);
    }

    /// From now on every sync says yes and does no work.
    pub fn lie_about_syncs(&self) {
        self.held().is_lying = true;
    }

    /// Reads of file `name` see this bit turned over; the file below stays as it is.
    pub fn rot(&self, name: &str, bit: u64) {
        self.held().rotten.push((name.to_owned(), bit));
    }

    /// The `nth` write, counted from 0 since the beginning, lands at `offset` of its file instead.
    pub fn misdirect_write(&self, nth: u64, offset: u64) {
        self.held().misdirected = Some((nth, offset));
    }

    /// The disk is well again; its earlier faults stay done.
    pub fn heal(&self) {
        let mut state = self.held();
        *state = FaultyState {
            calls: state.calls,
            ..FaultyState::default()
        };
    }

    /// Calls so far, failed ones included.
    pub fn calls(&self) -> Calls {
        self.held().calls
    }

    fn order(&self, call: Option<Call>, nth: u64, failure: CallFailure, repeat: Repeat) {
        self.held().orders.push(FaultOrder {
            call,
            nth,
            failure,
            repeat,
        });
    }

    fn held(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().expect("no panic happens under this lock")
    }

    /// Counts a call, and fails it when it is its turn.
    fn check(&self, call: Call) -> io::Result<()> {
        let mut state = self.held();
        let (nth_all, nth_kind) = (state.calls.all(), state.calls.of(call));
        state.calls.by_kind[call as usize] += 1;
        let failing = state.orders.iter().find(|order| {
            let nth = match order.call {
                None => nth_all,
                Some(kind) if kind == call => nth_kind,
                Some(_) => return false,
            };
            nth == order.nth || (nth > order.nth && order.repeat == Repeat::Onwards)
        });
        match failing.map(|order| order.failure) {
            None => Ok(()),
            Some(CallFailure::Io) => Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(CallFailure::NoSpace) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        }
    }

    fn file(&self, name: &str, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultyFile {
            vfs: self.clone(),
            name: name.to_owned(),
            below,
        })
    }
}

impl Vfs for FaultyVfs {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check(Call::Create)?;
        Ok(self.file(name, self.below.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.check(Call::Open)?;
        Ok(self.file(name, self.below.open(name)?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.check(Call::List)?;
        self.below.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check(Call::Remove)?;
        self.below.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(Call::Rename)?;
        self.below.rename(from, to)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.check(Call::SyncFolder)?;
        if self.held().is_lying {
            return Ok(());
        }
        self.below.sync_folder()
    }

    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        self.below.lock()
    }

    fn room(&self) -> io::Result<DiskSpace> {
        self.below.room()
    }

    fn link_into(&self, name: &str, target: &Path) -> io::Result<()> {
        self.check(Call::Create)?;
        self.below.link_into(name, target)
    }

    fn describe(&self) -> String {
        format!("{}, on a faulty disk", self.below.describe())
    }
}

/// A file knows the name it was opened under; `rot` goes by that name.
struct FaultyFile {
    vfs: FaultyVfs,
    name: String,
    below: Arc<dyn File>,
}

impl File for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        self.vfs.check(Call::Read)?;
        let n = self.below.read_at(buf, offset, wait)?;
        for (name, bit) in &self.vfs.held().rotten {
            let at = (bit / 8).checked_sub(offset).map(|at| at as usize);
            if let Some(at) = at.filter(|&at| at < n && *name == self.name) {
                buf[at] ^= 1 << (bit % 8);
            }
        }
        Ok(n)
    }

    fn read_past_cache(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset, Wait::Block)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let nth = self.vfs.calls().of(Call::Write);
        if let Err(error) = self.vfs.check(Call::Write) {
            // As a real disk does it; whether this half succeeds makes no difference.
            let _half = self.below.write_at(&buf[..buf.len() / 2], offset);
            return Err(error);
        }
        let misdirected = self.vfs.held().misdirected;
        match misdirected {
            Some((number, elsewhere)) if number == nth => self.below.write_at(buf, elsewhere),
            _ => self.below.write_at(buf, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.vfs.check(Call::Sync)?;
        if self.vfs.held().is_lying {
            return Ok(());
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::mem::MemVfs;
    use dendra_base::Prng;

    fn wrapped() -> (MemVfs, FaultyVfs) {
        let below = MemVfs::new();
        (below.clone(), FaultyVfs::new(Arc::new(below)))
    }

    /// One call of every kind; the error is the first one met.
    fn one_of_each(vfs: &FaultyVfs) -> io::Result<()> {
        let file = vfs.create("a")?;
        file.write_at(b"abcd", 0)?;
        file.sync()?;
        vfs.sync_folder()?;
        vfs.open("a")?.read_at(&mut [0; 4], 0, Wait::Block)?;
        vfs.rename("a", "b")?;
        vfs.list()?;
        vfs.remove("b")
    }

    #[test]
    fn every_call_can_be_failed_in_turn() {
        let (_, vfs) = wrapped();
        one_of_each(&vfs).expect("nothing was ordered");
        assert_eq!(vfs.calls().all(), 9);
        assert!(Call::ALL.iter().all(|&call| vfs.calls().of(call) == 1));
        for nth in 0..9 {
            let (_, vfs) = wrapped();
            vfs.fail_any(nth, CallFailure::Io, Repeat::Once);
            let error = one_of_each(&vfs).expect_err("one call was ordered to fail");
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            assert_eq!(vfs.calls().all(), nth + 1);
        }
        for call in Call::ALL {
            let (_, vfs) = wrapped();
            vfs.fail(call, 0, CallFailure::NoSpace, Repeat::Once);
            let error = one_of_each(&vfs).expect_err("one call was ordered to fail");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
    }

    #[test]
    fn a_failure_goes_on_or_does_not() -> io::Result<()> {
        for (repeat, still_fails) in [(Repeat::Once, false), (Repeat::Onwards, true)] {
            let (_, vfs) = wrapped();
            let file = vfs.create("a")?;
            vfs.fail(Call::Sync, 1, CallFailure::Io, repeat);
            file.sync()?;
            assert!(file.sync().is_err());
            assert_eq!(file.sync().is_err(), still_fails);
            vfs.heal();
            file.sync()?;
        }
        Ok(())
    }

    #[test]
    fn a_failed_write_is_half_done() -> io::Result<()> {
        let (below, vfs) = wrapped();
        let file = vfs.create("a")?;
        vfs.fail(Call::Write, 0, CallFailure::NoSpace, Repeat::Once);
        assert!(file.write_at(b"abcd", 0).is_err());
        assert_eq!(below.file_bytes("a").expect("it was created"), b"ab");
        Ok(())
    }

    #[test]
    fn a_lying_sync_keeps_nothing() -> io::Result<()> {
        let (below, vfs) = wrapped();
        let file = vfs.create("a")?;
        vfs.sync_folder()?;
        vfs.lie_about_syncs();
        file.write_at(b"abcd", 0)?;
        file.sync()?;
        let mut prng = Prng::new(1);
        let is_lost = |_| below.crash_image(&mut prng).file_bytes("a") != Some(b"abcd".to_vec());
        assert!((0..100).any(is_lost));
        Ok(())
    }

    #[test]
    fn a_rotten_bit_is_seen_by_every_read_of_that_file() -> io::Result<()> {
        let (below, vfs) = wrapped();
        below.install("a", b"abc");
        below.install("b", b"abc");
        vfs.rot("a", 8);
        let mut buf = [0; 2];
        vfs.open("a")?.read_at(&mut buf, 1, Wait::Block)?;
        assert_eq!(&buf, b"cc");
        vfs.open("b")?.read_at(&mut buf, 1, Wait::Block)?;
        assert_eq!(&buf, b"bc");
        Ok(())
    }

    #[test]
    fn a_misdirected_write_lands_elsewhere_and_says_yes() -> io::Result<()> {
        let (below, vfs) = wrapped();
        let file = vfs.create("a")?;
        vfs.misdirect_write(1, 4);
        file.write_at(b"abcd", 0)?;
        file.write_at(b"x", 0)?;
        assert_eq!(below.file_bytes("a").expect("it was created"), b"abcdx");
        Ok(())
    }
}
