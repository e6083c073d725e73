//! The counts of the processor for a server: instructions and cycles of all its threads.
//!
//! ```text
//! open on every thread of PID, threads born later inherited ─► sum at the end of the window
//! ```
//!
//! Time on a shared machine is mostly weather: a neighbour on the other half of a core makes the
//! same request take twice as long. The number of instructions stays the same within a percent.
//!
//! Invariants
//! 1. User and kernel mode both count, as they do in CPU time.
//! 2. A machine without counters, or one that does not give them to this user, has no figure:
//!    never a zero.
//! 3. A counter that had to share the hardware is scaled by the share of the time it had.
//!
//! Not here: the divisors of the numbers (`window.rs`).
//! See: perf_event_open(2), /proc/sys/kernel/perf_event_paranoid.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use std::fs;

/// Counters of every thread of one process, running since they were opened.
pub(crate) struct Counters {
    instructions: Vec<Counter>,
    cycles: Vec<Counter>,
}

/// The counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) instructions: f64,
    pub(crate) cycles: f64,
}

impl Counters {
    /// Starts counting for the process `pid`; none when the machine does not let us.
    pub(crate) fn of(pid: u32) -> Option<Counters> {
        let mut counters = Counters {
            instructions: Vec::new(),
            cycles: Vec::new(),
        };
        for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            let tid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            counters
                .instructions
                .push(started(Hardware::INSTRUCTIONS, tid)?);
            counters.cycles.push(started(Hardware::CPU_CYCLES, tid)?);
        }
        Some(counters)
    }

    /// The counts so far.
    pub(crate) fn read(&mut self) -> Option<Counted> {
        Some(Counted {
            instructions: sum(&mut self.instructions)?,
            cycles: sum(&mut self.cycles)?,
        })
    }
}

/// A running counter of the thread `tid` and of those that it starts. None too for a thread that
/// ended meanwhile: its part is then missing, and a figure with a hole is no figure.
fn started(event: Hardware, tid: i32) -> Option<Counter> {
    let mut counter = Builder::new(event)
        .observe_pid(tid)
        .any_cpu()
        .exclude_kernel(false)
        .inherit(true)
        .build()
        .ok()?;
    counter.enable().ok()?;
    Some(counter)
}

fn sum(counters: &mut [Counter]) -> Option<f64> {
    let mut sum = 0.0;
    for counter in counters {
        let read = counter.read_full().ok()?;
        let enabled = read.time_enabled()?.as_secs_f64();
        let running = read.time_running()?.as_secs_f64();
        // A thread that slept for the whole window was never given the hardware.
        if running > 0.0 {
            sum += read.count() as f64 * enabled / running;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_of_this_process_is_counted_where_the_machine_counts_at_all() {
        let Some(mut counters) = Counters::of(std::process::id()) else {
            eprintln!("skipped: this machine gives no hardware counters to this user");
            return;
        };
        let before = counters.read().expect("they were just opened");
        for i in 0..1_000_000_u64 {
            black_box(i);
        }
        let after = counters.read().expect("they were just opened");
        assert!(after.instructions - before.instructions >= 1_000_000.0);
    }

    #[test]
    fn a_process_that_is_not_there_has_no_figure() {
        assert!(Counters::of(u32::MAX).is_none());
    }
}
