//! The signal, its handler, and the timers that send it.
//!
//! ```text
//! start   slots published ─► handler installed ─► cpu: one timer a thread
//! SIGPROF ─► handler, in the sampled thread:
//!            pc ─ fp ─► [fp+8] return, [fp] next fp, while sp ≤ fp < end of stack and fp grows
//! stop    timers deleted ─► slots unpublished ─► handlers that still run are waited for ─► last drain
//! ```
//!
//! Invariants
//! 1. The walk reads only between the stack pointer and the end of the own stack, which is mapped while
//!    the thread runs; frame pointers must be aligned and grow, so it ends.
//! 2. Slots are freed only after the last handler that could see them has left: `INSIDE` counts them, and
//!    both sides are sequentially consistent.
//! 3. The handler stays installed after the first capture: a late signal finds no slots and returns,
//!    where the default action would end the process.
//!
//! Not here: names of addresses (`symbols.rs`).
//! See: signal-safety(7), timer_create(2).

#![expect(
    unsafe_code,
    reason = "a signal handler that reads the registers and the stack of its thread"
)]

use super::Clock;
use super::roster::{self, ROSTER};
use super::slots::{FRAMES_MAX, Slots};
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The slots of the capture that runs, by its clock; null when none does.
static SLOTS: [AtomicPtr<Slots>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
/// Handlers between their first and their last look at the slots.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// A running capture: stops when dropped.
pub(crate) struct Sampler {
    timers: Vec<libc::timer_t>,
    clock: Clock,
    /// Owned: made by `Box::into_raw`, given back in `close`.
    slots: *mut Slots,
}

impl Sampler {
    /// Samples every thread on the roster from now on. Requires: no other sampler of this clock lives.
    pub(crate) fn start(clock: Clock, per_second: u32) -> io::Result<Sampler> {
        install()?;
        let slots = Box::into_raw(Box::new(Slots::new()));
        let before = SLOTS[clock as usize].swap(slots, Ordering::SeqCst);
        assert!(
            before.is_null(),
            "there is one capture of a clock at a time"
        );
        let mut sampler = Sampler {
            timers: Vec::new(),
            clock,
            slots,
        };
        if clock == Clock::Cpu {
            let roster = ROSTER.lock().expect("no holder panics");
            for thread in roster.iter() {
                sampler.timers.push(timer(*thread, per_second)?);
            }
        }
        Ok(sampler)
    }

    /// One sample of every thread on the roster.
    pub(crate) fn tick(&self) {
        let roster = ROSTER.lock().expect("no holder panics");
        for thread in roster.iter() {
            // SAFETY: plain numbers. The thread lives: it leaves the roster, under this lock, before it ends.
            // A failure can only mean a full signal queue, and then a sample is missing.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *thread, libc::SIGPROF) };
        }
    }

    /// Hands out what was sampled since the last time.
    pub(crate) fn drain(&self, take: impl FnMut(&[usize])) {
        // SAFETY: `slots` lives until `close`, which takes the sampler.
        unsafe { &*self.slots }.drain(take);
    }

    /// Ends the capture, hands out the rest, and says how many samples found no room.
    pub(crate) fn stop(mut self, take: impl FnMut(&[usize])) -> u64 {
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
        SLOTS[self.clock as usize].store(std::ptr::null_mut(), Ordering::SeqCst);
        while INSIDE.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        let slots = std::mem::replace(&mut self.slots, std::ptr::null_mut());
        // SAFETY: from `Box::into_raw` in `start` and nulled above, so it is taken back once. No handler holds
        // it: each adds to INSIDE before it loads SLOTS, so one that loaded the old pointer was waited for,
        // and one that comes later loads null.
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
    // Interrupted calls go on by themselves where the kernel can; no second stack: the bounds are of the first.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is whole, and the handler is async-signal-safe by its own argument.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A timer on the CPU clock of `thread` that signals this thread.
fn timer(thread: libc::pid_t, per_second: u32) -> io::Result<libc::timer_t> {
    // The clock of another thread of this process: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED below the inverted id, as
    // pthread_getcpuclockid(3) makes it.
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
    INSIDE.fetch_add(1, Ordering::SeqCst);
    // SAFETY: with SA_SIGINFO the second argument describes the signal, valid until we return.
    let is_timer = !info.is_null() && unsafe { (*info).si_code } == libc::SI_TIMER;
    let clock = if is_timer { Clock::Cpu } else { Clock::Wall };
    let slots = SLOTS[clock as usize].load(Ordering::SeqCst);
    let own = roster::own();
    if !slots.is_null() && !context.is_null() && own.stack_end != 0 {
        // SAFETY: with SA_SIGINFO the third argument is the interrupted context, valid until we return.
        let (pc, fp, sp) = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
        let mut frames = [0; FRAMES_MAX];
        let length = walk(&mut frames, own, pc, fp, sp);
        // SAFETY: not null, and not freed while INSIDE counts us: see `Sampler::close`.
        unsafe { &*slots }.leave(&frames[..length]);
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
}

/// Fills `frames` with the kind of thread, the program counter and the return addresses.
fn walk(
    frames: &mut [usize; FRAMES_MAX],
    own: roster::Own,
    pc: usize,
    mut fp: usize,
    mut floor: usize,
) -> usize {
    const WORD: usize = size_of::<usize>();
    frames[0] = own.kind as usize;
    frames[1] = pc;
    let mut length = 2;
    while length < FRAMES_MAX {
        let is_inside = fp >= floor
            && fp
                .checked_add(2 * WORD)
                .is_some_and(|end| end <= own.stack_end);
        if !is_inside || !fp.is_multiple_of(WORD) {
            break;
        }
        // SAFETY: `floor` is the stack pointer or lies above it, and `stack_end` is where this thread's stack
        // ends: the words between them are mapped and belong to this thread, which is standing still in this
        // handler. What they hold may be anything; it is used as a number, and checked before the next read.
        let (next, back) = unsafe {
            let frame = fp as *const usize;
            (frame.read_volatile(), frame.add(1).read_volatile())
        };
        if back < 4096 {
            break;
        }
        frames[length] = back;
        length += 1;
        floor = fp + WORD;
        fp = next;
    }
    length
}

/// How many timers this process has, as the kernel lists them; none when it does not say.
#[cfg(test)]
pub(crate) fn timers_of_this_process() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/timers").ok()?;
    Some(text.lines().filter(|line| line.starts_with("ID:")).count())
}
