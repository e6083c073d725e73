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
use std::time::Instant;

/// Stands for the row that is known when the first run has named it.
const COMMIT: &str = "| commit | as the runs say |";

/// Stands for the row that is known at the end.
const OTHERS: &str = "| other programs | at the end |";

/// A report that grows, and is shown on stdout while it does.
pub(super) struct Report {
    text: String,
    begun: Use,
}

/// What the machine had used at some moment, in ticks.
struct Use {
    busy: f64,
    ours: f64,
    at: Instant,
}

impl Use {
    fn now() -> Use {
        // user nice system idle iowait irq softirq steal
        let text = file("/proc/stat");
        let all = text
            .lines()
            .next()
            .unwrap_or("")
            .split_ascii_whitespace()
            .skip(1);
        let all: Vec<f64> = all.filter_map(|ticks| ticks.parse().ok()).take(8).collect();
        let idle = all.get(3).unwrap_or(&0.0) + all.get(4).unwrap_or(&0.0);
        Use {
            busy: all.iter().sum::<f64>() - idle,
            ours: own_ticks(&file("/proc/self/stat")).unwrap_or(0.0),
            at: Instant::now(),
        }
    }

    /// Cores that neither this process nor its children used since then. Children that still run count as others.
    fn cores_of_others(&self) -> f64 {
        let now = Use::now();
        let ticks = (now.busy - self.busy) - (now.ours - self.ours);
        (ticks / 100.0 / (now.at - self.at).as_secs_f64().max(0.1)).max(0.0)
    }
}

/// Ticks of a process and of its children that ended: fields 14 to 17.
fn own_ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_ascii_whitespace().skip(11).take(4);
    Some(fields.filter_map(|field| field.parse::<f64>().ok()).sum())
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
            begun: Use::now(),
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
        let folder = folder(place);
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let path = folder.join(format!("{}-{name}.md", date(place)));
        let commit = format!("| commit | {} |", place.commit());
        let cores = self.begun.cores_of_others();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_and_that_of_children_are_four_fields() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 1000 200 30 4 20 0";
        assert_eq!(own_ticks(stat), Some(1234.0));
        assert_eq!(own_ticks(""), None);
    }
}
