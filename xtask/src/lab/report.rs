//! A dated report: markdown with the machine, the command and tables.
//!
//! Invariants
//! 1. The head says what a reader needs to repeat it: machine, kernel, cores, commit, command.
//!
//! Not here: the figures.
//! See: docs/lab/README.md.

use super::place::{Place, output};
use std::fmt::{Display, Write};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A report that grows, and is shown on stdout while it does.
pub(super) struct Report {
    text: String,
}

impl Report {
    /// With its title, the question, and facts about the place.
    pub(super) fn new(
        place: &Place,
        title: &str,
        question: &str,
        facts: &[(&str, String)],
    ) -> Report {
        let mut report = Report {
            text: String::new(),
        };
        report.line(format_args!("# {title}, {}\n", date(place)));
        report.line(format_args!("{question}\n"));
        report.line("| | |\n|---|---|");
        report.line(format_args!("| machine | {} |", machine()));
        report.line(format_args!(
            "| kernel | {} |",
            file("/proc/sys/kernel/osrelease")
        ));
        report.line(format_args!("| cores | {} |", place.sharing()));
        report.line(format_args!("| commit | {} |", commit(place)));
        for (name, fact) in facts {
            report.line(format_args!("| {name} | {fact} |"));
        }
        let mut words = vec![format!("make {}", place.name)];
        if let Some(seconds) = place.options.seconds {
            words.push(format!("LAB=\"--seconds {seconds}\""));
        }
        report.line(format_args!("| command | `{}` |", words.join(" ")));
        report
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: impl Display) {
        println!("{line}");
        writeln!(self.text, "{line}").expect("a string takes all text");
    }

    /// Adds the head of a table; the first column is text, the others are figures.
    pub(super) fn table(&mut self, heads: &[&str]) {
        self.line(format_args!("\n| {} |", heads.join(" | ")));
        self.line(format_args!(
            "|---|{}",
            "---:|".repeat(heads.len().saturating_sub(1))
        ));
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: &[String]) {
        self.line(format_args!("| {} |", cells.join(" | ")));
    }

    /// Writes the report; its path.
    pub(super) fn write(&self, place: &Place, name: &str) -> Result<PathBuf, String> {
        let folder = match &place.options.out {
            Some(folder) => folder.clone(),
            None => place.root.join("docs/lab"),
        };
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let path = folder.join(format!("{}-{name}.md", date(place)));
        let text = format!("{}\n", self.text.trim_end());
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("\nThe report is {}.", path.display());
        Ok(path)
    }
}

/// The day of the report.
pub(super) fn date(place: &Place) -> String {
    match &place.options.date {
        Some(date) => date.clone(),
        None => output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
            .map_or_else(|_| "undated".to_owned(), |text| text.trim().to_owned()),
    }
}

fn file(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn machine() -> String {
    let cpus = file("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| {
        rest.trim_start_matches(['\t', ' ', ':'])
    });
    let count = cpus
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let memory = file("/proc/meminfo");
    let kib: f64 = memory
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0.0);
    format!("{model}, {count} cores, {:.0} GiB", kib / 1024.0 / 1024.0)
}

fn commit(place: &Place) -> String {
    let git =
        |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(&place.root));
    let Ok(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let is_changed =
        git(&["status", "--porcelain", "--", "crates"]).is_ok_and(|text| !text.is_empty());
    format!("{}{}", commit.trim(), if is_changed { "+" } else { "" })
}

/// Microseconds as people read them.
pub(super) fn time(us: f64) -> String {
    match us {
        us if us <= 0.0 => "–".to_owned(),
        us if us < 100.0 => format!("{us:.1} µs"),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

/// A share in per cent.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p <= 0.0 => "0".to_owned(),
        p if p < 0.1 => format!("{p:.3} %"),
        p => format!("{p:.1} %"),
    }
}
