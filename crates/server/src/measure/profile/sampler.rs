//! Captures: where samples come from. Signals and the timers that send them, and hooks in our own
//! code.
//!
//! ```text
//! start   slots published ─► cpu, wall: handler installed ─► cpu: one timer a thread
//! SIGPROF ─► handler, in the sampled thread:
//!            its registers, its stack ─► slots
//! hook    (allocator, lock) is_on? ─► amount, own stack ─► slots
//! stop    waits that go on ─► timers deleted ─► slots unpublished ─► handlers and hooks that still run are waited for ─► last drain
//! ```
//!
//! Invariants
//! 1. Off, a hook is one load of a null pointer, and there is no timer.
//! 2. Slots are freed only after the last handler or hook that could see them has left: `INSIDE`
//!    counts them, and both sides are sequentially consistent.
//! 3. The handler stays installed after the first capture: a late signal finds no slots and
//!    returns, where the default action would end the process.
//!
//! Not here: the walk (`stack.rs`), names of addresses (`symbols.rs`).
//! See: signal-safety(7), timer_create(2).

#![expect(
    unsafe_code,
    reason = "a signal handler that reads the registers and the stack of its thread"
)]

use super::frames::FRAMES_MAX;
use super::measure::Measure;
use super::roster::{self, ROSTER};
use super::slots::Slots;
use super::stack;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The slots of the capture that runs, by its measure; null when none does.
static SLOTS: [AtomicPtr<Slots>; Measure::ALL.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; Measure::ALL.len()];
/// Handlers and hooks between their first and their last look at the slots.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A running capture: stops when dropped.
pub(crate) struct Sampler {
    timers: Vec<libc::timer_t>,
    measure: Measure,
    /// Owned: made by `Box::into_raw`, given back in `close`.
    slots: *mut Slots,
}

impl Sampler {
    /// Samples every thread on the roster from now on. Requires: no other sampler of this measure
    /// lives.
    pub(crate) fn start(measure: Measure, per_second: u32) -> io::Result<Sampler> {
        if matches!(measure, Measure::Cpu | Measure::Wall) {
            install()?;
        }
        let slots = Box::into_raw(Box::new(Slots::new()));
        let before = SLOTS[measure as usize].swap(slots, Ordering::SeqCst);
        assert!(
            before.is_null(),
            "there is one capture of a measure at a time"
        );
        let mut sampler = Sampler {
            timers: Vec::new(),
            measure,
            slots,
        };
        if measure == Measure::Cpu {
            let roster = ROSTER.lock().expect("no holder panics");
            for member in roster.iter() {
                sampler.timers.push(timer(member.thread, per_second)?);
            }
        }
        Ok(sampler)
    }

    /// One sample of every thread on the roster.
    pub(crate) fn tick(&self) {
        let roster = ROSTER.lock().expect("no holder panics");
        for member in roster.iter() {
            // SAFETY: plain numbers. The thread lives: it leaves the roster, under this lock,
            // before it ends. A failure can only mean a full signal queue, and then a sample is
            // missing.
            unsafe {
                libc::syscall(
                    libc::SYS_tgkill,
                    libc::getpid(),
                    member.thread,
                    libc::SIGPROF,
                )
            };
        }
    }

    /// Hands out the samples since the last call.
    pub(crate) fn drain(&self, take: impl FnMut(&[usize], u64)) {
        // SAFETY: `slots` lives until `close`, which takes the sampler.
        unsafe { &*self.slots }.drain(take);
    }

    /// Ends the capture, hands out the rest, and says how many samples found no room.
    pub(crate) fn stop(mut self, take: impl FnMut(&[usize], u64)) -> u64 {
        let Some(slots) = self.close() else {
            return 0;
        };
        slots.drain(take);
        slots.lost()
    }

    fn close(&mut self) -> Option<Box<Slots>> {
        for timer in self.timers.drain(..) {
            // SAFETY: made by `timer` and deleted once, here.
            unsafe { libc::timer_delete(timer) };
        }
        if self.slots.is_null() {
            return None;
        }
        SLOTS[self.measure as usize].store(std::ptr::null_mut(), Ordering::SeqCst);
        while INSIDE.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        let slots = std::mem::replace(&mut self.slots, std::ptr::null_mut());
        // SAFETY: from `Box::into_raw` in `start` and nulled above, so it is taken back once. No
        // handler or hook holds it: each adds to INSIDE before it loads SLOTS. So one that loaded
        // the old pointer was waited for, and one that comes later loads null.
        Some(unsafe { Box::from_raw(slots) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.close());
    }
}

fn install() -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    action.sa_sigaction = handler as usize;
    // Interrupted calls go on by themselves where the kernel can; no second stack: the bounds are
    // of the first.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is whole, and the handler is async-signal-safe by its own argument.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A timer on the CPU clock of `thread` that signals this thread.
fn timer(thread: libc::pid_t, per_second: u32) -> io::Result<libc::timer_t> {
    // The clock of another thread of this process: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED below the
    // inverted id, as pthread_getcpuclockid(3) makes it.
    let clock = (!thread << 3) | 6;
    // SAFETY: all zeroes is a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = libc::SIGPROF;
    event.sigev_notify_thread_id = thread;
    let mut timer: libc::timer_t = std::ptr::null_mut();
    // SAFETY: the event is whole and both pointers are valid for the call.
    if unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let period = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(1_000_000_000 / per_second),
    };
    let setting = libc::itimerspec {
        it_interval: period,
        it_value: period,
    };
    // SAFETY: the timer was made above; the old setting is not asked for.
    if unsafe { libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut()) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: made above, deleted once.
        unsafe { libc::timer_delete(timer) };
        return Err(error);
    }
    Ok(timer)
}

/// Program counter, frame pointer and stack pointer at the interruption.
#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> (usize, usize, usize) {
    let of = |register: libc::c_int| context.uc_mcontext.gregs[register as usize] as usize;
    (of(libc::REG_RIP), of(libc::REG_RBP), of(libc::REG_RSP))
}

/// Program counter, frame pointer and stack pointer at the interruption.
#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> (usize, usize, usize) {
    let machine = &context.uc_mcontext;
    (
        machine.pc as usize,
        machine.regs[29] as usize,
        machine.sp as usize,
    )
}

/// Runs in the sampled thread, between any two of its instructions.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the second argument describes the signal, valid until we return.
    let is_timer = !info.is_null() && unsafe { (*info).si_code } == libc::SI_TIMER;
    let measure = if is_timer {
        Measure::Cpu
    } else {
        Measure::Wall
    };
    let own = roster::own();
    if context.is_null() || own.stack_end == 0 {
        return;
    }
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context, valid until we return.
    let (pc, fp, sp) = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
    in_capture(measure, |slots| {
        let mut frames = [0; FRAMES_MAX];
        let length = stack::walk(&mut frames, own, pc, fp, sp);
        slots.leave(&frames[..length], 1);
    });
}

/// Does a capture of `measure` run? One load.
#[inline(always)]
pub(crate) fn is_on(measure: Measure) -> bool {
    !SLOTS[measure as usize].load(Ordering::Relaxed).is_null()
}

/// Gives `leave` the slots of the capture of `measure`, when one runs; it does not end before
/// `leave` does. Does not allocate, lock or panic if `leave` does not.
#[inline(always)]
pub(crate) fn in_capture(measure: Measure, leave: impl FnOnce(&Slots)) {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let slots = SLOTS[measure as usize].load(Ordering::SeqCst);
    if !slots.is_null() {
        // SAFETY: not null, and not freed while INSIDE counts us: see `Sampler::close`.
        leave(unsafe { &*slots });
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// Leaves `amount` and the caller's stack in the capture of `measure`, when one runs and the
/// calling thread is on the roster. Does not allocate, lock or panic.
#[inline(never)]
pub(crate) fn leave_here(measure: Measure, amount: u64) {
    let own = roster::own();
    if own.stack_end == 0 {
        return;
    }
    let mut frames = [0; FRAMES_MAX];
    let length = stack::walk_here(&mut frames, own);
    in_capture(measure, |slots| slots.leave(&frames[..length], amount));
}

/// How many timers this process has, as the kernel lists them; none when it does not say.
#[cfg(test)]
pub(crate) fn timers_of_this_process() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/timers").ok()?;
    Some(text.lines().filter(|line| line.starts_with("ID:")).count())
}
