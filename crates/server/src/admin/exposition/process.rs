//! Metrics of the process, by the names that all exporters give them.
//!
//! ```text
//! /proc/self/stat   CPU time, memory, ticks from the machine's start to the process's ─┐
//! /proc/stat        when the machine started                                          ├─► process_…
//! /proc/self/fd, RLIMIT_NOFILE   open files and their bound                            ─┘
//! ```
//!
//! Invariants
//! 1. A number that the system does not tell is left out: it is never shown as zero.
//!
//! Not here: names and help texts (`table.rs`).
//! See: proc_pid_stat(5); the client libraries of Prometheus, "process metrics".

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Numbers of the process that runs this.
#[derive(Debug)]
pub(super) struct OwnProcess {
    pub(super) cpu_s: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    /// When it started, since 1970.
    pub(super) start_s: Option<f64>,
    /// Open files and sockets.
    pub(super) open_files: Option<u64>,
    pub(super) open_files_max: Option<u64>,
}

/// The parts of `/proc/self/stat` that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    /// From the machine's start to the process's.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl ProcessStat {
    /// Parses the line of the file. `None` = it has another form.
    fn parse(line: &str) -> Option<ProcessStat> {
        // The second field is the program's name in parentheses, which may hold any letter.
        let (_, rest) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1, and `rest` begins with its third field.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            cpu_ticks: number(14)?.checked_add(number(15)?)?,
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

/// When the machine started, in seconds since 1970, of the text of `/proc/stat`.
fn boot_s(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// A file of the system, or nothing where it does not tell.
fn told(path: &str) -> Option<String> {
    let read = std::fs::read_to_string(path);
    read.inspect_err(|error| tracing::debug!(path, %error, "the system does not tell"))
        .ok()
}

impl OwnProcess {
    /// The numbers now.
    pub(super) fn look() -> OwnProcess {
        let stat = told("/proc/self/stat").and_then(|line| ProcessStat::parse(&line));
        let boot_s = told("/proc/stat").and_then(|text| boot_s(&text));
        let open = std::fs::read_dir("/proc/self/fd").ok();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        OwnProcess {
            cpu_s: stat.map(|stat| seconds(stat.cpu_ticks)),
            resident_bytes: stat.map(|stat| stat.resident_pages * page_size() as u64),
            virtual_bytes: stat.map(|stat| stat.virtual_bytes),
            start_s: boot_s.and_then(|boot_s| Some(boot_s as f64 + seconds(stat?.start_ticks))),
            // One of them is that of this look.
            open_files: open.map(|open| open.count().saturating_sub(1) as u64),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_parentheses_and_blanks_in_its_name_is_read() {
        let line =
            "7 (a) b (c)) S 1 7 7 0 -1 4194560 5 0 0 0 120 34 0 0 20 0 9 0 4711 8192 3 1 1\n";
        let stat = ProcessStat {
            cpu_ticks: 154,
            start_ticks: 4_711,
            virtual_bytes: 8_192,
            resident_pages: 3,
        };
        assert_eq!(ProcessStat::parse(line), Some(stat));
        assert_eq!(ProcessStat::parse("7 (a) S 1 7"), None);
        assert_eq!(
            boot_s("cpu 1 2\nbtime 1700000000\nx 1\n"),
            Some(1_700_000_000)
        );
    }

    #[test]
    fn the_numbers_of_the_process_are_true() {
        let process = OwnProcess::look();
        let now_s = crate::clock::wall_ms() as f64 / 1e3;
        let age_s = now_s - process.start_s.expect("the system tells");
        assert!((-2.0..86_400.0).contains(&age_s), "{age_s}");
        assert!(process.cpu_s >= Some(0.0));
        let resident = process.resident_bytes;
        assert!(resident > Some(1_000_000) && resident < process.virtual_bytes);
        // The three of every program.
        assert!(process.open_files >= Some(3));
        assert!(process.open_files < process.open_files_max);
    }
}
