//! A dated report: markdown with the machine, the command and tables.
//!
//! Invariants
//! 1. The head has the facts that a reader needs to repeat it: machine, kernel, cores, commit,
//!    command.
//!
//! Not here: the figures.
//! See: docs/lab/README.md.

use super::place::Place;
use super::proc::MachineClock;
use jiff::Timestamp;
use procfs::{CpuInfo, Current, Meminfo};
use std::fmt::{Display, Write};
use std::fs;
use std::path::PathBuf;

/// Stands for the row that is known when the first run has named it.
const COMMIT: &str = "| commit | as the runs say |";

/// Stands for the row that is known at the end.
const OTHERS: &str = "| other programs | at the end |";

/// A report that grows, and is shown on stdout while it does.
pub(super) struct Report {
    text: String,
    begun: MachineClock,
}

impl Report {
    /// With its title, the question, and facts about the place.
    pub(super) fn new(
        place: &Place,
        title: &str,
        question: &str,
        facts: &[(&str, String)],
    ) -> Result<Report, String> {
        let mut report = Report {
            text: String::new(),
            begun: MachineClock::now()?,
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
        report.line(COMMIT);
        report.line(OTHERS);
        for (name, fact) in facts {
            report.line(format_args!("| {name} | {fact} |"));
        }
        let mut words = vec![format!("make {}", place.name)];
        let seconds = place.options.seconds.map(|s| format!("--seconds {s}"));
        let own = place.options.own.iter();
        let own = own.map(|(word, value)| format!("{word} {value}"));
        let given: Vec<String> = seconds.into_iter().chain(own).collect();
        if !given.is_empty() {
            words.push(format!("LAB=\"{}\"", given.join(" ")));
        }
        report.line(format_args!("| command | `{}` |", words.join(" ")));
        Ok(report)
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
        let folder = folder(place);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let path = folder.join(format!("{}-{name}.md", date(place)));
        let commit = format!("| commit | {} |", place.commit());
        let cores = self.begun.elsewhere(0.0)?.others;
        let others = format!(
            "| other programs | used {cores:.2} cores on average: below 0.1 the machine was quiet |\n| void runs | {} were made again |",
            place.repeated()
        );
        let text = self.text.trim_end().replacen(COMMIT, &commit, 1);
        let text = format!("{}\n", text.replacen(OTHERS, &others, 1));
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("\nThe report is {}.", path.display());
        Ok(path)
    }
}

/// Where reports go.
pub(super) fn folder(place: &Place) -> PathBuf {
    match &place.options.out {
        Some(folder) => folder.clone(),
        None => place.root.join("docs/lab"),
    }
}

/// The day of the report.
pub(super) fn date(place: &Place) -> String {
    match &place.options.date {
        Some(date) => date.clone(),
        None => now("%Y-%m-%d"),
    }
}

/// The time in UTC, in the form that strftime(3) describes.
pub(super) fn now(form: &str) -> String {
    Timestamp::now().strftime(form).to_string()
}

pub(super) fn file(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn machine() -> String {
    let cpus = CpuInfo::current().ok();
    let count = cpus.as_ref().map_or(0, CpuInfo::num_cores);
    let model = cpus.as_ref().and_then(|cpus| cpus.model_name(0));
    let bytes = Meminfo::current().map_or(0, |memory| memory.mem_total);
    format!(
        "{}, {count} cores, {:.0} GiB",
        model.unwrap_or("unknown processor"),
        bytes as f64 / f64::from(1 << 30)
    )
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
