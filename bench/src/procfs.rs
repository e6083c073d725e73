//! What the kernel says about processes and cores: CPU time, memory, steal.
//!
//! ```text
//! /proc/PID/task/TID/schedstat   CPU time of one thread, ns; the first of three numbers
//! /proc/PID/stat                 utime + stime of all threads, ended ones too, in ticks of 10 ms
//! /proc/PID/status               VmRSS, VmHWM
//! /proc/stat                     busy, idle and stolen ticks of every core
//! ```
//!
//! Invariants
//! 1. Times are sums since the start of their process: only differences mean something.
//! 2. A thread that ended between two snapshots is missing from `schedstat`; `cpu_between` then
//!    falls back on the coarser sum of the process.
//! 3. A running thread is booked at the kernel's ticks, at most 4 ms late: 0.2 % of a window of 2 s.
//!
//! Not here: what the numbers are divided by (`window.rs`).
//! See: proc(5).

use crate::Result;
use std::collections::BTreeMap;
use std::fs;

const NS_PER_S: u64 = 1_000_000_000;

/// CPU time of one process so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuSnapshot {
    threads: BTreeMap<u32, (String, u64)>,
    process_ns: u64,
}

impl CpuSnapshot {
    /// Of the process `pid`, now.
    pub(crate) fn of(pid: u32) -> Result<CpuSnapshot> {
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let path = entry?.path();
            let Some(tid) = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok())
            else {
                continue;
            };
            // A thread may end between the listing and the reading.
            let (Ok(name), Ok(schedstat)) = (
                fs::read_to_string(path.join("comm")),
                fs::read_to_string(path.join("schedstat")),
            ) else {
                continue;
            };
            threads.insert(tid, (name.trim().to_owned(), first_number(&schedstat)?));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let ns_per_tick = NS_PER_S / rustix::param::clock_ticks_per_second();
        Ok(CpuSnapshot {
            threads,
            process_ns: process_ticks(&stat)? * ns_per_tick,
        })
    }
}

/// CPU time of a process between two snapshots.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuUse {
    /// Nanoseconds of all threads.
    pub(crate) total_ns: u64,
    /// Nanoseconds by name of thread, digits at the end of the name taken off.
    pub(crate) by_name: BTreeMap<String, u64>,
}

/// What `later` has more than `earlier`.
pub(crate) fn cpu_between(earlier: &CpuSnapshot, later: &CpuSnapshot) -> CpuUse {
    let mut by_name = BTreeMap::new();
    let mut total_ns = 0;
    for (tid, (name, ns)) in &later.threads {
        let before = earlier.threads.get(tid).map_or(0, |(_, before)| *before);
        let spent = ns.saturating_sub(before);
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        *by_name.entry(kind.to_owned()).or_default() += spent;
        total_ns += spent;
    }
    if earlier
        .threads
        .keys()
        .any(|tid| !later.threads.contains_key(tid))
    {
        let process_ns = later.process_ns.saturating_sub(earlier.process_ns);
        if process_ns > total_ns {
            by_name.insert("ended threads".to_owned(), process_ns - total_ns);
            total_ns = process_ns;
        }
    }
    CpuUse { total_ns, by_name }
}

/// CPU time of the calling thread so far, in nanoseconds.
pub(crate) fn own_thread_ns() -> Result<u64> {
    first_number(&fs::read_to_string("/proc/thread-self/schedstat")?)
}

fn first_number(text: &str) -> Result<u64> {
    let first = text.split_whitespace().next().unwrap_or_default();
    first
        .parse()
        .map_err(|_| format!("`{}` does not start with a number", text.trim()).into())
}

/// utime + stime: fields 14 and 15 of proc(5), counted behind the name, which may hold spaces.
fn process_ticks(stat: &str) -> Result<u64> {
    let ticks = || {
        let (_, behind_name) = stat.rsplit_once(')')?;
        let mut fields = behind_name.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        Some(user + system)
    };
    ticks().ok_or_else(|| format!("`{}` is no line of /proc/PID/stat", stat.trim()).into())
}

/// Ticks of all cores so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTicks {
    /// Neither idle nor waiting for the disk; what the hypervisor took is not in it.
    pub(crate) busy: u64,
    /// Taken by the hypervisor.
    pub(crate) steal: u64,
}

/// Of the whole machine, now.
pub(crate) fn machine_ticks() -> Result<MachineTicks> {
    parse_machine_ticks(&fs::read_to_string("/proc/stat")?)
}

fn parse_machine_ticks(text: &str) -> Result<MachineTicks> {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map_while(|f| f.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
        return Err(format!("`{line}` is no line of /proc/stat").into());
    };
    Ok(MachineTicks {
        busy: user + nice + system + irq + softirq,
        steal,
    })
}

/// Resident memory of a process in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Now.
    pub(crate) now: u64,
    /// The most it ever was.
    pub(crate) most: u64,
}

/// Of the process `pid`.
pub(crate) fn resident(pid: u32) -> Result<Resident> {
    parse_resident(&fs::read_to_string(format!("/proc/{pid}/status"))?)
}

fn parse_resident(status: &str) -> Result<Resident> {
    let bytes = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.ok_or_else(|| format!("/proc/PID/status has no {name}"))?;
        Ok(first_number(kib)? * 1024)
    };
    Ok(Resident {
        now: bytes("VmRSS:")?,
        most: bytes("VmHWM:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_a_name_with_spaces_and_brackets() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 0 0 0 70 9 0 0 20 0 1 0 5 0";
        assert_eq!(process_ticks(stat).expect("a full line"), 79);
        assert!(process_ticks("42 (a) S 1").is_err());
    }

    #[test]
    fn busy_leaves_out_idle_iowait_and_steal() {
        let text = "cpu  10 1 20 1000 500 2 3 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let ticks = parse_machine_ticks(text).expect("a full line");
        assert_eq!(ticks, MachineTicks { busy: 36, steal: 7 });
        assert!(parse_machine_ticks("cpu 1 2 3").is_err());
    }

    #[test]
    fn memory_is_in_bytes() {
        let resident = parse_resident("VmHWM:\t    2000 kB\nVmRSS:\t    1000 kB\n");
        let resident = resident.expect("both lines");
        assert_eq!((resident.now, resident.most), (1_024_000, 2_048_000));
    }

    fn snapshot(threads: &[(u32, &str, u64)], process_ns: u64) -> CpuSnapshot {
        let threads = threads
            .iter()
            .map(|(tid, name, ns)| (*tid, ((*name).to_owned(), *ns)));
        CpuSnapshot {
            threads: threads.collect(),
            process_ns,
        }
    }

    #[test]
    fn threads_of_one_kind_are_one_line_and_new_threads_count_in_full() {
        let before = snapshot(&[(1, "loop-0", 100), (2, "loop-1", 100)], 0);
        let after = snapshot(&[(1, "loop-0", 150), (2, "loop-1", 170), (3, "wal", 5)], 0);
        let used = cpu_between(&before, &after);
        assert_eq!(used.total_ns, 125);
        assert_eq!(used.by_name.get("loop"), Some(&120));
        assert_eq!(used.by_name.get("wal"), Some(&5));
    }

    #[test]
    fn an_ended_thread_makes_the_sum_of_the_process_count() {
        let before = snapshot(&[(1, "main", 100), (2, "flush", 10)], 0);
        let after = snapshot(&[(1, "main", 150)], 90);
        let used = cpu_between(&before, &after);
        assert_eq!(
            (used.total_ns, used.by_name.get("ended threads")),
            (90, Some(&40))
        );
    }

    #[test]
    fn this_thread_has_used_some_time() {
        // The kernel books the time of a running thread at its ticks, not at every nanosecond.
        let begin = std::time::Instant::now();
        while own_thread_ns().expect("the kernel keeps schedstat") == 0 {
            assert!(
                begin.elapsed().as_secs() < 10,
                "ten seconds of work were not booked"
            );
        }
        let own = CpuSnapshot::of(std::process::id()).expect("our own process");
        assert!(own.threads.values().any(|(_, ns)| *ns > 0));
    }
}
