//! Profiles of the running node: which code its threads run in, and which code they wait in.
//!
//! ```text
//! register(Kind) ── each thread, once ─► roster: thread, kind, bounds of its stack
//!
//! cpu    one timer a thread on its own CPU clock ─┐
//! wall   a tick of the capturing thread, to all  ─┴► SIGPROF in that thread
//!          handler: program counter, frame pointers within the bounds ─► slots.rs
//!          capturing thread, every 50 ms: slots ─► counted stacks ─► after the end: names ─► folded
//! ```
//!
//! Invariants
//! 1. Off costs nothing: no timer, no handler, no memory; a registered thread holds a few words.
//! 2. One capture of each clock at a time in a process; a second one is refused with a sentence.
//! 3. The handler touches the stack of its own thread and preallocated slots, nothing else: it does not
//!    allocate, lock, unwind or call into the C library.
//!
//! Not here: flame graphs (`crates/flame`), the routes (`routes.rs`), allocations and locks.
//! See: docs/lab/profiles.md.

mod elf;
mod roster;
pub(crate) mod routes;
mod sampler;
mod slots;
mod symbols;

pub(crate) use roster::{Kind, register};

use dendra_flame::Stacks;
use sampler::Sampler;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Samples a second and thread: not a divisor of what other timers beat, so that it does not run in
/// step with them.
const SAMPLES_PER_SECOND: u32 = 97;
/// How often the slots are emptied: a thousandth of them fills between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Different stacks of one capture that are counted; the rest is counted as lost.
const STACKS_MAX: usize = 1 << 16;

/// What a capture follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Clock {
    /// CPU time of each thread: where it works.
    Cpu,
    /// Wall time: where it works or waits.
    Wall,
}

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Another capture runs.
    Busy,
    /// The system did not give what it takes.
    System(std::io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Busy => f.write_str(
                "Another profile of this kind is being taken from this process; ask again when it has ended.",
            ),
            Refused::System(error) => write!(f, "The profile could not be started: {error}."),
        }
    }
}

/// What a capture brought.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Kind of thread first, then from the outermost to the innermost function.
    pub(crate) stacks: Stacks,
    /// Samples that found no room.
    pub(crate) lost: u64,
}

static IS_BUSY: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Only one at a time of each clock: freed when dropped, also by a panic.
#[derive(Debug)]
struct Turn(Clock);

impl Turn {
    fn take(clock: Clock) -> Option<Turn> {
        let was_busy = IS_BUSY[clock as usize].swap(true, Ordering::AcqRel);
        (!was_busy).then_some(Turn(clock))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IS_BUSY[self.0 as usize].store(false, Ordering::Release);
    }
}

/// Samples all registered threads for `length` and names what was seen. Blocks for as long.
///
/// # Errors
/// See [`Refused`].
pub(crate) fn capture(clock: Clock, length: Duration) -> Result<Profile, Refused> {
    let _turn = Turn::take(clock).ok_or(Refused::Busy)?;
    let mut counts: HashMap<Vec<usize>, u64> = HashMap::new();
    let mut lost = 0;
    let sampler = Sampler::start(clock, SAMPLES_PER_SECOND).map_err(Refused::System)?;
    let until = Instant::now() + length;
    let period = Duration::from_secs(1) / SAMPLES_PER_SECOND;
    let pause = match clock {
        Clock::Cpu => LOOK,
        Clock::Wall => period,
    };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(pause.min(left));
        if clock == Clock::Wall {
            sampler.tick();
        }
        sampler.drain(|frames| count(&mut counts, frames, &mut lost));
    }
    let without_room = sampler.stop(|frames| count(&mut counts, frames, &mut lost));
    lost += without_room;
    Ok(Profile {
        stacks: symbols::name(&counts),
        lost,
    })
}

fn count(counts: &mut HashMap<Vec<usize>, u64>, frames: &[usize], lost: &mut u64) {
    if let Some(seen) = counts.get_mut(frames) {
        *seen += 1;
    } else if counts.len() < STACKS_MAX {
        counts.insert(frames.to_vec(), 1);
    } else {
        *lost += 1;
    }
}

#[cfg(test)]
mod tests;
