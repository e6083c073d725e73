//! Profiles of the running node: which code its threads run in, wait in, allocate in, and contend
//! in.
//!
//! ```text
//! register(ThreadKind) ── each thread, once ─► roster: thread, kind, bounds of its stack
//!
//! cpu    one timer a thread on its own CPU clock ─┐
//! wall   a tick of the capturing thread, to all  ─┴► SIGPROF in that thread ─┐
//! alloc  the allocator, every 512 KiB of a thread ───────────────────────────┤
//! lock   a lock that was not free, every 100 µs that a thread waited ────────┴► frame pointers ─► slots.rs
//!        waits that go on when the capture ends: waiting.rs ──────────────────► counted stacks
//!          capturing thread, every 10 or 50 ms: slots ─► counted stacks ─► after the end: names ─► folded
//! ```
//!
//! Invariants
//! 1. Off is nearly free: no timer, no handler, no slots. A registered thread holds a kilobyte. An
//!    allocation loads one pointer that is null. A thread that has to wait for a lock notes since
//!    when, and where.
//! 2. One capture of each measure at a time in a process; a second one is refused with a sentence.
//! 3. Handler and hooks touch only the stack of their own thread and preallocated slots: they do
//!    not allocate, lock or unwind.
//!
//! Not here: flame graphs (`crates/flame`), the routes (`admin/profile.rs`).
//! See: docs/lab/profiles.md.

mod alloc;
mod elf;
mod frames;
mod lock;
mod measure;
mod roster;
mod sampler;
mod slots;
mod stack;
mod stride;
mod symbols;
mod waiting;

pub use alloc::SampledAlloc;
pub(crate) use lock::{Lock, watched};
pub(crate) use measure::{Measure, Unit};
pub(crate) use roster::{ThreadKind, register};

use dendra_flame::Stacks;
use sampler::Sampler;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Samples a second and thread: not a divisor of other timers' rates, so that it does not run in
/// step with them.
const SAMPLES_PER_SECOND: u32 = 97;
/// How often the slots of timers are emptied: a thousandth of them fills between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// How often the slots of hooks are emptied: their samples come as fast as memory is asked for and
/// locks are waited for.
const LOOK_HOOKS: Duration = Duration::from_millis(10);
/// Different stacks of one capture that are counted; the rest is counted as lost.
const STACKS_MAX: usize = 1 << 16;

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum NoProfile {
    /// Another capture runs.
    Busy,
    /// The program runs on an allocator that does not tell.
    Unwatched,
    /// The system refused a resource.
    System(std::io::Error),
}

impl fmt::Display for NoProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoProfile::Busy => f.write_str(
                "Another profile of this kind is being taken from this process; ask again when it has ended.",
            ),
            NoProfile::Unwatched => f.write_str(
                "This program does not watch its allocator, so there is no profile of allocations; the binary dendra does.",
            ),
            NoProfile::System(error) => write!(f, "The profile could not be taken: {error}."),
        }
    }
}

/// The result of a capture.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    /// Kind of thread first, then from the outermost to the innermost function.
    pub(crate) stacks: Stacks,
    /// Samples that found no room.
    pub(crate) lost: u64,
}

static IS_BUSY: [AtomicBool; Measure::ALL.len()] =
    [const { AtomicBool::new(false) }; Measure::ALL.len()];

/// Only one at a time of each measure: freed when dropped, also by a panic.
#[derive(Debug)]
struct CaptureTurn(Measure);

impl CaptureTurn {
    fn take(measure: Measure) -> Option<CaptureTurn> {
        let was_busy = IS_BUSY[measure as usize].swap(true, Ordering::AcqRel);
        // Only now: a turn that is made and not taken would end the one that is under way.
        (!was_busy).then(|| CaptureTurn(measure))
    }
}

impl Drop for CaptureTurn {
    fn drop(&mut self) {
        IS_BUSY[self.0 as usize].store(false, Ordering::Release);
    }
}

/// Samples all registered threads for `length` and names the functions seen. It counts in `unit`,
/// which is one of the measure's. Blocks for as long.
///
/// # Errors
/// See [`NoProfile`].
pub(crate) fn capture(
    measure: Measure,
    unit: Unit,
    length: Duration,
) -> Result<Profile, NoProfile> {
    let until = Instant::now() + length;
    let mut left = || until.saturating_duration_since(Instant::now());
    capture_while(measure, unit, &mut left)
}

/// Captures until `left` says that no time is left; it is asked again after at most as long as it
/// said.
fn capture_while(
    measure: Measure,
    unit: Unit,
    left: &mut dyn FnMut() -> Duration,
) -> Result<Profile, NoProfile> {
    let _turn = CaptureTurn::take(measure).ok_or(NoProfile::Busy)?;
    if measure == Measure::Lock {
        lock::forget_waits();
    }
    let sampler = Sampler::start(measure, SAMPLES_PER_SECOND).map_err(NoProfile::System)?;
    if measure == Measure::Alloc && !alloc::is_watched() {
        return Err(NoProfile::Unwatched);
    }
    let mut tally = SampleTally {
        measure,
        unit,
        counts: HashMap::new(),
        lost: 0,
    };
    let period = Duration::from_secs(1) / SAMPLES_PER_SECOND;
    let pause = match measure {
        Measure::Cpu => LOOK,
        Measure::Wall => period,
        Measure::Alloc | Measure::Lock => LOOK_HOOKS,
    };
    loop {
        let left = left();
        if left.is_zero() {
            break;
        }
        std::thread::sleep(pause.min(left));
        if measure == Measure::Wall {
            sampler.tick();
        }
        sampler.drain(|frames, amount| tally.add(frames, amount));
    }
    if measure == Measure::Lock {
        lock::take_waits(|frames, amount| tally.add(frames, amount));
    }
    let without_room = sampler.stop(|frames, amount| tally.add(frames, amount));
    let counts = tally.counts.into_iter();
    let counts = counts.map(|(frames, count)| (frames, count.round() as u64));
    Ok(Profile {
        stacks: symbols::name(&counts.collect(), measure).map_err(NoProfile::System)?,
        lost: tally.lost + without_room,
    })
}

/// The amount that one sample of `measure` with `amount` stands for, in `unit`.
fn estimate(measure: Measure, unit: Unit, amount: u64) -> f64 {
    let weight = match measure {
        Measure::Cpu | Measure::Wall => 1.0,
        Measure::Alloc => stride::weight(amount, alloc::BYTES_PER_SAMPLE),
        Measure::Lock => stride::weight(amount, lock::NS_PER_SAMPLE),
    };
    match unit {
        Unit::Samples | Unit::Objects | Unit::Waits => weight,
        Unit::Bytes => amount as f64 * weight,
        Unit::Us => amount as f64 / 1e3 * weight,
    }
}

/// The stacks of a capture and the amounts that they stand for.
struct SampleTally {
    measure: Measure,
    unit: Unit,
    counts: HashMap<Vec<usize>, f64>,
    lost: u64,
}

impl SampleTally {
    fn add(&mut self, frames: &[usize], amount: u64) {
        let count = estimate(self.measure, self.unit, amount);
        if let Some(seen) = self.counts.get_mut(frames) {
            *seen += count;
        } else if self.counts.len() < STACKS_MAX {
            self.counts.insert(frames.to_vec(), count);
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests;
