//! The kernel's figures of processes and cores: CPU time, memory, the machine.
//!
//! ```text
//! /proc/PID/task/TID/schedstat   CPU time of one thread, ns
//! /proc/PID/stat                 of all threads, ended ones too, in ticks of 10 ms
//! /proc/PID/status               VmRSS, VmHWM
//! /proc/stat                     busy and stolen ticks of all cores
//! ```
//!
//! Invariants
//! 1. Times are sums since the start of their process: only differences mean something.
//! 2. A thread that ended between two clocks has no `schedstat` any more. The sum of the process,
//!    which has it, then counts.
//! 3. A running thread is booked at the kernel's ticks, at most 4 ms late: 0.2 % of 2 s.
//!
//! Not here: the divisors of the numbers.
//! See: proc(5).

use procfs::process::{ClearRefs, Process, Task};
use procfs::{CurrentSI, KernelStats, ProcResult};
use std::collections::BTreeMap;
use std::time::Instant;

const NS_PER_S: f64 = 1e9;

/// The CPU time that the threads of a process had spent at some moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// By number of the thread: its name without the number at its end, and nanoseconds.
    threads: BTreeMap<i32, (String, u64)>,
    process_s: f64,
}

impl Clock {
    /// Clock of the process `id`, now; without threads when there is no such process.
    pub(crate) fn of(id: u32) -> Clock {
        let read = || -> ProcResult<Clock> {
            let process = open(id)?;
            let stat = process.stat()?;
            let ticks = stat.utime + stat.stime;
            // A thread that ended meanwhile has no files.
            let spent = |task: Task| -> Option<(i32, (String, u64))> {
                let is_number = |c: char| c.is_ascii_digit() || c == '-';
                let name = task.stat().ok()?.comm;
                let name = name.trim_end_matches(is_number).to_owned();
                Some((task.tid, (name, task.schedstat().ok()?.sum_exec_runtime)))
            };
            Ok(Clock {
                threads: process.tasks()?.flatten().filter_map(spent).collect(),
                process_s: ticks as f64 / procfs::ticks_per_second() as f64,
            })
        };
        read().unwrap_or_default()
    }

    /// Seconds since `earlier` by name of thread.
    pub(crate) fn since(&self, earlier: &Clock) -> BTreeMap<String, f64> {
        let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
        let mut sum_s = 0.0;
        for (thread, (name, ns)) in &self.threads {
            let before = earlier.threads.get(thread).map_or(0, |(_, before)| *before);
            let spent_s = ns.saturating_sub(before) as f64 / NS_PER_S;
            *by_name.entry(name.clone()).or_default() += spent_s;
            sum_s += spent_s;
        }
        let is_gone = |thread: &i32| !self.threads.contains_key(thread);
        let process_s = self.process_s - earlier.process_s;
        if earlier.threads.keys().any(is_gone) && process_s > sum_s {
            by_name.insert("ended threads".to_owned(), process_s - sum_s);
        }
        by_name
    }
}

fn open(id: u32) -> ProcResult<Process> {
    Process::new(i32::try_from(id).map_err(|_| "no id of a process")?)
}

/// Resident memory of a process, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Now.
    pub(crate) now: u64,
    /// The most since its start, or since [`forget_peak`].
    pub(crate) peak: u64,
}

/// Resident memory of the process `id`.
pub(crate) fn resident(id: u32) -> Result<Resident, String> {
    let status = open(id).and_then(|process| process.status());
    let status = status.map_err(|e| format!("the memory of process {id}: {e}"))?;
    let bytes = |kib: Option<u64>| kib.map(|kib| kib * 1024);
    match (bytes(status.vmrss), bytes(status.vmhwm)) {
        (Some(now), Some(peak)) => Ok(Resident { now, peak }),
        _ => Err(format!("process {id} has ended: it has no memory")),
    }
}

/// The process's memory before now does not count for its peak any more.
pub(crate) fn forget_peak(id: u32) -> Result<(), String> {
    let cleared = open(id).and_then(|process| process.clear_refs(ClearRefs::PeakRSS));
    cleared.map_err(|e| format!("the peak of memory of process {id}: {e}"))
}

/// The CPU time that the machine had used at some moment, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    busy: f64,
    steal: f64,
    /// CPU time of this process, and of its children that have ended.
    ours: f64,
    at: Instant,
}

/// Cores that were used since some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elsewhere {
    /// By other programs, the kernel's own threads included.
    pub(crate) others: f64,
    /// By the host of a virtual machine.
    pub(crate) steal: f64,
}

impl MachineClock {
    pub(crate) fn now() -> Result<MachineClock, String> {
        let read = || -> ProcResult<MachineClock> {
            let total = KernelStats::current()?.total;
            let or_none = |ticks: Option<u64>| ticks.unwrap_or(0);
            let interrupts = or_none(total.irq) + or_none(total.softirq);
            let own = Process::myself()?.stat()?;
            let children = (own.cutime + own.cstime) as f64;
            Ok(MachineClock {
                busy: (total.user + total.nice + total.system + interrupts) as f64,
                steal: or_none(total.steal) as f64,
                ours: (own.utime + own.stime) as f64 + children,
                at: Instant::now(),
            })
        };
        read().map_err(|e| format!("the use of this machine: {e}"))
    }

    /// The CPU time since then of other processes: not this one, nor its children that have ended,
    /// nor servers that have used `servers_s` seconds. Other children that still run count as
    /// others.
    pub(crate) fn elsewhere(&self, servers_s: f64) -> Result<Elsewhere, String> {
        let now = MachineClock::now()?;
        let seconds = (now.at - self.at).as_secs_f64().max(0.1);
        let ticks = procfs::ticks_per_second() as f64;
        let others_s = ((now.busy - self.busy) - (now.ours - self.ours)) / ticks - servers_s;
        Ok(Elsewhere {
            others: (others_s / seconds).max(0.0),
            steal: (now.steal - self.steal) / ticks / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(threads: &[(i32, &str, u64)], process_s: f64) -> Clock {
        let threads = threads.iter();
        let threads = threads.map(|&(id, name, ms)| (id, (name.to_owned(), ms * 1_000_000)));
        Clock {
            threads: threads.collect(),
            process_s,
        }
    }

    #[test]
    fn threads_of_one_kind_are_one_line_and_new_threads_count_in_full() {
        let before = clock(&[(1, "loop", 100), (2, "loop", 100)], 0.0);
        let after = clock(&[(1, "loop", 150), (2, "loop", 170), (3, "wal", 5)], 0.0);
        let used = after.since(&before);
        assert_eq!(used.len(), 2);
        assert!((used["loop"] - 0.120).abs() < 1e-9 && (used["wal"] - 0.005).abs() < 1e-9);
    }

    #[test]
    fn an_ended_thread_makes_the_sum_of_the_process_count() {
        let before = clock(&[(1, "main", 100), (2, "flush", 10)], 0.0);
        let after = clock(&[(1, "main", 150)], 0.09);
        let used = after.since(&before);
        assert!((used["ended threads"] - 0.04).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_threads_memory_and_a_machine() {
        let id = std::process::id();
        let begun = (Clock::of(id), MachineClock::now().expect("there is /proc"));
        // The kernel books the time of a running thread at its ticks, not at every nanosecond.
        let start = Instant::now();
        while Clock::of(id).since(&begun.0).values().sum::<f64>() == 0.0 {
            assert!(
                start.elapsed().as_secs() < 10,
                "ten seconds of work were not booked"
            );
        }
        let memory = resident(id).expect("this process runs");
        assert!(memory.now > 0 && memory.peak >= memory.now);
        assert!(begun.1.elsewhere(0.0).expect("there is /proc").steal >= 0.0);
        assert!(Clock::of(u32::MAX).threads.is_empty() && resident(u32::MAX).is_err());
    }
}
