//! Which threads are sampled, and how far each one's stack goes.
//!
//! Invariants
//! 1. A thread is on the roster exactly as long as its `RosterPlace` lives. A dead thread is never
//!    signalled: signals are sent, and seats given up, under the roster's lock.
//! 2. The handler reads only plain memory of its thread (`own`). It is set before the thread is on
//!    the roster.
//! 3. A thread that waits for a lock is seen by its place on the roster alone, without a signal.
//!
//! Not here: signals (`sampler.rs`).

#![expect(
    unsafe_code,
    reason = "asks the C library for the bounds of the own stack"
)]

use super::frames::FRAMES_MAX;
use super::waiting::Waiting;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// The purpose of a thread: the root of its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum ThreadKind {
    Loop,
    Worker,
    Wal,
    Flush,
    Compact,
    Scrub,
    Admin,
}

impl ThreadKind {
    const ALL: [ThreadKind; 7] = [
        ThreadKind::Loop,
        ThreadKind::Worker,
        ThreadKind::Wal,
        ThreadKind::Flush,
        ThreadKind::Compact,
        ThreadKind::Scrub,
        ThreadKind::Admin,
    ];

    /// Name of the kind, as in folded stacks.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ThreadKind::Loop => "loop",
            ThreadKind::Worker => "worker",
            ThreadKind::Wal => "wal",
            ThreadKind::Flush => "flush",
            ThreadKind::Compact => "compact",
            ThreadKind::Scrub => "scrub",
            ThreadKind::Admin => "admin",
        }
    }

    /// The kind with this number.
    pub(crate) fn of(number: usize) -> Option<ThreadKind> {
        ThreadKind::ALL
            .into_iter()
            .find(|kind| *kind as usize == number)
    }
}

/// The handler's data about its thread.
#[derive(Clone, Copy)]
pub(crate) struct OwnThread {
    pub(crate) kind: ThreadKind,
    /// One past the highest byte of the stack; zero for a thread that is not on the roster.
    pub(crate) stack_end: usize,
}

impl OwnThread {
    /// Entry of a thread that is not on the roster.
    const UNKNOWN: OwnThread = OwnThread {
        kind: ThreadKind::Admin,
        stack_end: 0,
    };
}

thread_local! {
    // `const` and without a destructor: reading it is a load, never an allocation.
    static OWN: Cell<OwnThread> = const { Cell::new(OwnThread::UNKNOWN) };
    // Not for signal handlers: it has a destructor.
    static WAITING: RefCell<Option<Arc<Waiting>>> = const { RefCell::new(None) };
}

/// The calling thread, as it registered. Async-signal-safe.
pub(crate) fn own() -> OwnThread {
    OWN.with(Cell::get)
}

/// Where the calling thread shows that it waits; none when it is not on the roster.
pub(crate) fn own_waiting() -> Option<Arc<Waiting>> {
    let own = WAITING.try_with(|waiting| waiting.borrow().clone());
    // A thread that ends has left the roster.
    own.unwrap_or_default()
}

/// A thread on the roster.
#[derive(Debug)]
pub(crate) struct RosterThread {
    /// Number of the thread, as the kernel knows it.
    pub(crate) thread: libc::pid_t,
    waiting: Arc<Waiting>,
}

/// The threads on the roster.
pub(crate) static ROSTER: Mutex<Vec<RosterThread>> = Mutex::new(Vec::new());

/// Takes the waits of threads up to `until_ns` that are not counted yet: their stacks, and how
/// long.
pub(crate) fn claim_waits(until_ns: u64, mut take: impl FnMut(&[usize], u64)) {
    let mut frames = [0; FRAMES_MAX];
    for member in ROSTER.lock().expect("no holder panics").iter() {
        if let Some((ns, length)) = member.waiting.claim(until_ns, &mut frames) {
            take(&frames[..length], ns);
        }
    }
}

/// A thread's place on the roster, given up when dropped, by the thread itself.
pub(crate) struct RosterPlace {
    thread: libc::pid_t,
    /// Keeps the place with the thread that took it.
    _own: PhantomData<*const ()>,
}

/// Lets the calling thread be sampled as `kind` for as long as the seat lives.
pub(crate) fn register(kind: ThreadKind) -> RosterPlace {
    // SAFETY: gettid has no preconditions and cannot fail.
    let thread = unsafe { libc::gettid() };
    // Without bounds the thread is counted by its kind alone: the walk ends before its first step.
    let stack_end = stack_end().unwrap_or(1);
    OWN.with(|own| own.set(OwnThread { kind, stack_end }));
    let waiting = Arc::new(Waiting::default());
    WAITING.set(Some(waiting.clone()));
    let member = RosterThread { thread, waiting };
    ROSTER.lock().expect("no holder panics").push(member);
    RosterPlace {
        thread,
        _own: PhantomData,
    }
}

impl Drop for RosterPlace {
    fn drop(&mut self) {
        WAITING.set(None);
        let mut roster = ROSTER.lock().expect("no holder panics");
        if let Some(at) = roster.iter().position(|one| one.thread == self.thread) {
            roster.swap_remove(at);
        }
    }
}

/// One past the highest byte of the calling thread's stack.
fn stack_end() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: pthread_self names a live thread, ours; the attributes are written when it returns
    // zero.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let mut low = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: the attributes were initialised by the call above; both results have room.
    let code =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size) };
    // SAFETY: initialised above, destroyed once.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (code == 0).then_some(low as usize + size)
}
