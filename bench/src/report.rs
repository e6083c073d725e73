//! The report: markdown for people, and every window as CSV for whoever doubts it.
//!
//! ```text
//! head (machine, kernel, commit, command) ─► goals of all rows ─► each row: series, goals, notes
//! ```
//!
//! Invariants
//! 1. A goal that is missed is written as plainly as one that is kept.
//! 2. Every window is in the CSV, quiet or not.
//!
//! Not here: measuring of any kind.
//! See: docs/lab/README.md.

use crate::Result;
use crate::rows::{Bound, Goal, Row, Series};
use crate::stats::Spread;
use crate::window::Window;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where and how a run was made.
pub(crate) struct Setting {
    /// `YYYY-MM-DD`.
    pub(crate) date: String,
    /// The command line.
    pub(crate) command: String,
    /// Further lines, each a name and a value.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Setting {
    /// Looks around. `date` overrides the clock; `folder` is where servers keep their data.
    pub(crate) fn here(date: Option<String>, folder: &Path) -> Result<Setting> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let model = cpu_info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model.map_or("unknown", |rest| rest.trim_start_matches(['\t', ' ', ':']));
        let cores = crate::server::cores()?.len();
        let memory = read("/proc/meminfo");
        let memory_kib: f64 = memory
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemTotal:")?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .unwrap_or(0.0);
        let date = match date {
            Some(date) => date,
            None => today(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
        };
        let congestion = read("/proc/sys/net/ipv4/tcp_congestion_control");
        let facts = vec![
            (
                "machine",
                format!(
                    "{model}, {cores} cores, {:.0} GiB",
                    memory_kib / f64::from(1 << 20)
                ),
            ),
            (
                "kernel",
                format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            ),
            ("TCP congestion control", congestion.trim().to_owned()),
            ("data on", disk_of(folder, &read("/proc/mounts"))),
            ("commit", commit()),
            ("nginx", first_line("nginx", "-v")),
            ("redis", first_line("redis-server", "--version")),
        ];
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        Ok(Setting {
            date,
            command,
            facts,
        })
    }
}

/// The file system that holds `folder`: type and options.
fn disk_of(folder: &Path, mounts: &str) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mount = |line: &str| -> Option<(usize, String)> {
        let mut fields = line.split_whitespace();
        let (_device, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        folder.starts_with(at).then(|| {
            (
                at.len(),
                format!("{kind} ({})", fields.next().unwrap_or("")),
            )
        })
    };
    let deepest = mounts
        .lines()
        .filter_map(mount)
        .max_by_key(|(length, _)| *length);
    deepest.map_or_else(|| "unknown".to_owned(), |(_, what)| what)
}

fn commit() -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"]) == Some(String::new());
    if is_clean {
        commit
    } else {
        format!("{commit}, with local changes")
    }
}

fn first_line(program: &str, flag: &str) -> String {
    let Ok(path) = crate::server::find(program) else {
        return "not installed".to_owned();
    };
    let Ok(output) = Command::new(path).arg(flag).output() else {
        return "unknown".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text)
        .lines()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}

/// The civil date of a Unix time (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn today(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The whole report as markdown.
pub(crate) fn markdown(setting: &Setting, rows: &[Row]) -> Result<String> {
    let mut out = String::new();
    writeln!(out, "# One node beside its yardsticks, {}\n", setting.date)?;
    writeln!(
        out,
        "How it is measured and how to read it: [README](README.md).\n"
    )?;
    writeln!(out, "| | |\n|---|---|")?;
    for (name, value) in &setting.facts {
        writeln!(out, "| {name} | {value} |")?;
    }
    writeln!(out, "| command | `{}` |\n", setting.command)?;
    writeln!(out, "## Goals\n")?;
    writeln!(
        out,
        "Median of the rounds, smallest and largest in brackets.\n"
    )?;
    writeln!(
        out,
        "| row | compared | measured | goal | verdict |\n|---|---|---|---|---|"
    )?;
    for (row, goal) in rows
        .iter()
        .flat_map(|row| row.goals.iter().map(move |goal| (row, goal)))
    {
        if goal.bound != Bound::Shown {
            writeln!(out, "| {} {}", row.name, goal_cells(goal))?;
        }
    }
    for row in rows.iter().filter(|row| row.failure.is_some()) {
        writeln!(out, "| {} | | | | **not measured** |", row.name)?;
    }
    for row in rows {
        write_row(&mut out, row)?;
    }
    Ok(out)
}

fn goal_cells(goal: &Goal) -> String {
    let measured = goal.spread().map_or_else(|| "nothing".to_owned(), show);
    let bound = match goal.bound {
        Bound::AtMost(bound) => format!("at most {bound}"),
        Bound::Below(bound) => format!("below {bound}"),
        Bound::Above(bound) => format!("above {bound}"),
        Bound::Shown => "shown only".to_owned(),
    };
    let verdict = match goal.is_met() {
        Some(true) => "**kept**",
        Some(false) => "**missed**",
        None => "",
    };
    format!("| {} | {measured} | {bound} | {verdict} |", goal.what)
}

fn show(spread: Spread) -> String {
    let digits = match spread.median.abs() {
        ..10.0 => 2,
        ..1000.0 => 1,
        _ => 0,
    };
    let Spread { median, min, max } = spread;
    format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
}

fn write_row(out: &mut String, row: &Row) -> Result<()> {
    writeln!(out, "\n## `{}`\n\n{}\n", row.name, row.question)?;
    if let Some(failure) = &row.failure {
        writeln!(out, "```\n{failure}\n```")?;
    }
    if !row.series.is_empty() {
        writeln!(
            out,
            "| | CPU µs a request | 1000 instructions | 1000 cycles | requests/s | p50 µs | p99 µs | p99.9 µs | generator | quiet windows |\n\
             |---|---|---|---|---|---|---|---|---|---|"
        )?;
        for series in &row.series {
            write_series(out, series)?;
        }
    }
    if !row.goals.is_empty() {
        writeln!(
            out,
            "\n| compared | measured | goal | verdict |\n|---|---|---|---|"
        )?;
        for goal in &row.goals {
            writeln!(out, "{}", goal_cells(goal))?;
        }
    }
    write_threads(out, row)?;
    if !row.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &row.notes {
        writeln!(out, "* {}", note.replace('\n', " / "))?;
    }
    Ok(())
}

fn write_series(out: &mut String, series: &Series) -> Result<()> {
    let spread = |figure: &dyn Fn(&Window) -> f64| {
        Spread::of(series.windows.iter().map(figure)).map_or_else(|| "nothing".to_owned(), show)
    };
    let counted = |figure: &dyn Fn(&Window) -> Option<f64>| {
        let values: Option<Vec<f64>> = series.windows.iter().map(figure).collect();
        let spread = values.and_then(Spread::of);
        spread.map_or_else(|| "not counted".to_owned(), show)
    };
    let quiet = series
        .windows
        .iter()
        .filter(|window| window.is_quiet())
        .count();
    let bound = series
        .windows
        .iter()
        .filter(|window| window.is_generator_bound())
        .count();
    let generator = Spread::of(
        series
            .windows
            .iter()
            .map(|window| 100.0 * window.generator_share),
    );
    let is_open = series.windows.iter().any(|window| window.lag_us > 0.0);
    let generator = match generator {
        // In an open loop what counts is by how much the generator itself was late.
        Some(_) if is_open => format!("p99.9 late {} µs", spread(&|window| window.lag_us)),
        Some(share) if bound > 0 => {
            format!("{:.0} %, **the bottleneck** in {bound}", share.median)
        }
        Some(share) => format!("{:.0} %", share.median),
        None => String::new(),
    };
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {} | {} | {generator} | {quiet} of {} |",
        series.name,
        spread(&|window| window.cpu_us),
        counted(&|window| window.kinstructions),
        counted(&|window| window.kcycles),
        spread(&|window| window.rate),
        spread(&|window| window.latency_us[0]),
        spread(&|window| window.latency_us[1]),
        spread(&|window| window.latency_us[2]),
        series.windows.len(),
    )?;
    Ok(())
}

/// Where a server with several kinds of threads spends its CPU.
fn write_threads(out: &mut String, row: &Row) -> Result<()> {
    for series in &row.series {
        let names: BTreeSet<&String> = series
            .windows
            .iter()
            .flat_map(|window| window.cpu_us_by_name.keys())
            .collect();
        if names.len() < 2 {
            continue;
        }
        let parts = names.iter().filter_map(|name| {
            let of = |window: &Window| window.cpu_us_by_name.get(*name).copied().unwrap_or(0.0);
            let median = Spread::of(series.windows.iter().map(of))?.median;
            (median >= 0.005).then(|| format!("{name} {median:.2}"))
        });
        let parts: Vec<String> = parts.collect();
        writeln!(
            out,
            "\nCPU µs a request of {}, by thread: {}.",
            series.name,
            parts.join(", ")
        )?;
    }
    Ok(())
}

/// Every window of every row.
pub(crate) fn csv(rows: &[Row]) -> Result<String> {
    let mut out = String::from(
        "row,variant,round,requests_per_s,cpu_us,kinstructions,kcycles,p50_us,p99_us,p99.9_us,generator_lag_us,\
         generator_share,other_share,steal_share\n",
    );
    let counted = |figure: Option<f64>| figure.map_or_else(String::new, |k| format!("{k:.3}"));
    for row in rows {
        for series in &row.series {
            for (round, window) in series.windows.iter().enumerate() {
                let [p50, p99, p999] = window.latency_us;
                writeln!(
                    out,
                    "{},{},{},{:.0},{:.3},{},{},{p50:.1},{p99:.1},{p999:.1},{:.1},{:.3},{:.3},{:.3}",
                    row.name,
                    series.name,
                    round + 1,
                    window.rate,
                    window.cpu_us,
                    counted(window.kinstructions),
                    counted(window.kcycles),
                    window.lag_us,
                    window.generator_share,
                    window.other_share,
                    window.steal_share,
                )?;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil_dates() {
        assert_eq!(today(0), "1970-01-01");
        assert_eq!(today(951_782_400), "2000-02-29");
        assert_eq!(today(1_795_305_600), "2026-11-22");
        assert_eq!(today(1_795_305_599), "2026-11-21");
    }

    #[test]
    fn the_disk_is_the_deepest_mount_above_the_folder() {
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /no tmpfs rw 0 0\ntmpfs /no/such tmpfs ro 0 0\n";
        assert_eq!(disk_of(Path::new("/no/such/folder"), mounts), "tmpfs (ro)");
        assert_eq!(disk_of(Path::new("/nothing"), mounts), "ext4 (rw)");
    }

    #[test]
    fn a_row_that_failed_is_in_the_report_with_its_reason() {
        let setting = Setting {
            date: "2026-11-21".to_owned(),
            command: "rows".to_owned(),
            facts: Vec::new(),
        };
        let rows = [Row::failed(
            "get",
            &std::io::Error::other("the server went away"),
        )];
        let text = markdown(&setting, &rows).expect("writing to a string");
        assert!(text.contains("| get | | | | **not measured** |"));
        assert!(text.contains("the server went away"));
    }

    #[test]
    fn a_missed_goal_says_so() {
        let goal = |bound| Goal {
            what: "a / b".to_owned(),
            values: vec![1.5],
            bound,
        };
        assert!(goal_cells(&goal(Bound::AtMost(1.4))).contains("**missed**"));
        assert!(goal_cells(&goal(Bound::AtMost(1.5))).contains("**kept**"));
        assert!(!goal_cells(&goal(Bound::Shown)).contains("**"));
    }
}
