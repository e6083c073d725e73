//! One `dendra bench` as a process, and the figures of its `run.json`.
//!
//! ```text
//! Bench::new(place, url, folder) ─► .with("--rate 20000 …") ─► .run() ─► Figures
//!                                                            ╲► .while_running(work)
//! ```
//!
//! Invariants
//! 1. A run that is void (exit 6), or found no rate (exit 1), gives figures with the reason; any
//!    other failure is an error. A record of an earlier run is never taken for this one's.
//! 2. Every run has a seed of its own, counted from 1 by the task.
//! 3. A void run is made again, `ATTEMPTS` times in all, and counted. The generator alone says
//!    that a run is void, and the server's figures do not count: none is chosen among several.
//!
//! Not here: the meaning of the fields.
//! See: docs/lab/run-json.md.

use super::place::{Place, Side};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// How often a run is made while its generator does not have its core.
const ATTEMPTS: u32 = 4;

/// A run to be made.
pub(super) struct Bench<'a> {
    place: &'a Place,
    words: Vec<OsString>,
    is_shown: bool,
    folder: PathBuf,
    attempts: u32,
    /// Done in front of each attempt.
    before: Option<Box<dyn Fn() + 'a>>,
}

/// The figures of a run's measured phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Planned requests a second; zero in a closed loop.
    pub(super) planned_rate: f64,
    /// Requests a second that did as asked while the load lasted; late answers are not in it.
    pub(super) goodput: f64,
    /// Requests that were answered, however.
    pub(super) answered: f64,
    /// Share of the planned ones.
    pub(super) refused: f64,
    /// Failed, timed out, broken, never sent: share of the planned ones.
    pub(super) lost: f64,
    /// Share of the ok ones that found no record.
    pub(super) missed: f64,
    /// Response time from the planned instant: p50, p99, p99.9, longest; microseconds.
    pub(super) p50_us: f64,
    /// p99
    pub(super) p99_us: f64,
    /// p99.9
    pub(super) p999_us: f64,
    /// Longest.
    pub(super) max_us: f64,
    /// 99th percentile of requests that were refused.
    pub(super) refused_p99_us: f64,
    /// CPU of the generator for a request it sent, microseconds.
    pub(super) generator_cpu_us: f64,
    /// Share of its time in which the busiest thread of the generator had something to do.
    pub(super) generator_share: f64,
    /// p99.9 of how much later than planned requests left although they could have; microseconds.
    pub(super) lag_p999_us: f64,
    /// Length of the phase, seconds.
    pub(super) length_s: f64,
    /// Knee of `--find-max`, requests a second.
    pub(super) knee: Option<f64>,
    /// The answer of `--find-max` in words.
    pub(super) knee_words: String,
    /// Why it must not be used.
    pub(super) invalid: Option<String>,
}

impl<'a> Bench<'a> {
    /// A run against `url`, recorded in `folder`.
    pub(super) fn new(place: &'a Place, url: &str, folder: &Path) -> Bench<'a> {
        Bench {
            place,
            words: vec!["bench".into(), url.into(), "--out".into(), folder.into()],
            is_shown: false,
            folder: folder.to_owned(),
            attempts: ATTEMPTS,
            before: None,
        }
    }

    /// The work that is done in front of each attempt.
    pub(super) fn behind(mut self, before: impl Fn() + 'a) -> Bench<'a> {
        self.before = Some(Box::new(before));
        self
    }

    /// More flags, parted by spaces.
    pub(super) fn with(mut self, flags: &str) -> Bench<'a> {
        self.words
            .extend(flags.split_ascii_whitespace().map(OsString::from));
        self
    }

    /// One more flag, taken as it is.
    pub(super) fn word(mut self, word: &str) -> Bench<'a> {
        self.words.push(word.into());
        self
    }

    /// Shows the output on the terminal as well.
    pub(super) fn shown(mut self) -> Bench<'a> {
        self.is_shown = true;
        self
    }

    /// How often it is made at most. That is once where its figures are not looked at, and where a
    /// generator that works without a rest is wanted.
    pub(super) fn attempts(mut self, attempts: u32) -> Bench<'a> {
        self.attempts = attempts;
        self
    }

    /// Runs it to its end.
    pub(super) fn run(self) -> Result<Figures, String> {
        self.while_running(|| Ok(())).map(|(figures, ())| figures)
    }

    /// Runs it to its end, and does `work` at the same time, from the moment it was started. The
    /// figures that `work` reads there count from the beginning of the run whose figures are
    /// returned.
    pub(super) fn while_running<T>(
        self,
        mut work: impl FnMut() -> Result<T, String>,
    ) -> Result<(Figures, T), String> {
        let mut made = self.once(&mut work)?;
        for _ in 1..self.attempts {
            if made.0.invalid.is_none() {
                break;
            }
            self.place.repeats();
            made = self.once(&mut work)?;
        }
        Ok(made)
    }

    fn once<T>(
        &self,
        work: &mut impl FnMut() -> Result<T, String>,
    ) -> Result<(Figures, T), String> {
        if let Some(before) = &self.before {
            before();
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .map_err(|e| format!("{}: {e}", self.folder.display()))?;
        }
        let mut command = self.place.generator(&self.place.binary);
        // The same keys again would find the blocks that the run before has left in memory.
        let seed = self.place.next_seed().to_string();
        command
            .args(&self.words)
            .args(["--seed", &seed])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if self.is_shown {
                Stdio::inherit()
            } else {
                Stdio::piped()
            });
        let child = self.place.spawn(Side::Generator, &mut command)?;
        let worked = work();
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        let worked = worked?;
        // 1: no rate held the objective, which is a figure; anything else that failed left no
        // record.
        let is_told = matches!(output.status.code(), Some(0 | 1 | 6))
            && self.folder.join("run.json").is_file();
        if !is_told {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "`dendra bench` ended with {}: {}",
                output.status,
                said.trim()
            ));
        }
        let record = record(&self.folder)?;
        if let Some(commit) = record["tool"]["commit"].as_str() {
            self.place.saw_commit(commit);
        }
        Ok((Figures::of(&record), worked))
    }
}

/// Reads the `run.json` in `folder`.
pub(super) fn record(folder: &Path) -> Result<Value, String> {
    let path = folder.join("run.json");
    let text = fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}

impl Figures {
    /// Figures of a record.
    pub(super) fn of(run: &Value) -> Figures {
        let none = Vec::new();
        let phases = run["phases"].as_array().unwrap_or(&none);
        let is_measured = |phase: &&Value| phase["kind"] == "measure";
        let is_other = |phase: &&Value| phase["kind"] != "preload" && phase["kind"] != "warmup";
        let phase = phases
            .iter()
            .find(is_measured)
            .or_else(|| phases.iter().rev().find(is_other))
            .unwrap_or(&Value::Null);
        let counts = &phase["counts"];
        let count = |name: &str| counts[name].as_f64().unwrap_or(0.0);
        let planned = count("planned").max(1.0);
        let length_s = phase["length_s"].as_f64().unwrap_or(0.0).max(1e-9);
        // Of several operations the slowest counts.
        let ops = phase["ops"].as_array().map_or(&[][..], Vec::as_slice);
        let slowest = |time: &dyn Fn(&Value) -> &Value| {
            let times = ops.iter().filter_map(|op| time(op).as_f64());
            times.fold(0.0, f64::max)
        };
        let time = |of: &str, name: &str| slowest(&|op| &op[of]["percentiles_us"][name]);
        let generator = &phase["generator"];
        let reason = run["verdict"]["reason"].as_str();
        Figures {
            planned_rate: phase["rate"].as_f64().unwrap_or(0.0),
            goodput: done_in_time(phase).unwrap_or(count("ok") / length_s),
            answered: count("answered"),
            refused: count("refused") / planned,
            lost: (count("failed") + count("timeouts") + count("broken") + count("unsent"))
                / planned,
            missed: count("misses") / count("ok").max(1.0),
            p50_us: time("response", "p50"),
            p99_us: time("response", "p99"),
            p999_us: time("response", "p99.9"),
            max_us: slowest(&|op| &op["response"]["max_us"]),
            refused_p99_us: time("refused", "p99"),
            generator_cpu_us: generator["cpu_us_per_request"].as_f64().unwrap_or(0.0),
            generator_share: generator["busiest_share"].as_f64().unwrap_or(0.0),
            lag_p999_us: generator["send_lag"]["percentiles_us"]["p99.9"]
                .as_f64()
                .unwrap_or(0.0),
            length_s,
            knee: run["search"]["knee_low"].as_f64(),
            knee_words: run["search"]["sentence"].as_str().unwrap_or("").to_owned(),
            invalid: reason.map(str::to_owned),
        }
    }

    /// The mark beside figures that must not be used.
    pub(super) fn mark(&self) -> &'static str {
        if self.invalid.is_some() {
            " **invalid**"
        } else {
            ""
        }
    }
}

/// Requests that did as asked in the whole seconds of a phase, a second.
fn done_in_time(phase: &Value) -> Option<f64> {
    let whole = phase["length_s"].as_f64()?.floor() as usize;
    let rows = phase["ops"]
        .as_array()?
        .iter()
        .filter_map(|op| op["seconds"].as_array());
    let ok = rows
        .flat_map(|rows| rows.iter().take(whole))
        .filter_map(|row| row["ok"].as_f64());
    let ok: f64 = ok.sum();
    (whole > 0).then(|| ok / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_measured_phase() {
        let run = serde_json::json!({"verdict": {"verdict": "valid"}, "phases": [
            {"kind": "preload", "counts": {"planned": 9, "ok": 9}, "ops": []},
            {"kind": "measure", "rate": 50.0, "length_s": 2.0,
             "counts": {"planned": 100, "ok": 60, "answered": 90, "refused": 30, "timeouts": 10, "misses": 6},
             "ops": [
                {"seconds": [{"ok": 20}, {"ok": 30}, {"ok": 10}],
                 "response": {"max_us": 4.0, "percentiles_us": {"p50": 1.5, "p99": 2.5, "p99.9": 3.5}}},
                {"response": {"max_us": 3.0, "percentiles_us": {"p50": 1.0, "p99": 2.0, "p99.9": 3.0}}},
             ],
             "generator": {"cpu_us_per_request": 2.0, "busiest_share": 0.5}}]});
        let figures = Figures::of(&run);
        assert_eq!(
            (figures.goodput, figures.refused, figures.lost),
            (25.0, 0.3, 0.1)
        );
        assert_eq!(
            (figures.p50_us, figures.p999_us, figures.max_us),
            (1.5, 3.5, 4.0)
        );
        assert_eq!((figures.missed, figures.generator_cpu_us), (0.1, 2.0));
        assert_eq!(figures.generator_share, 0.5);
        assert_eq!(figures.invalid, None);
        assert_eq!(Figures::of(&Value::Null).goodput, 0.0);
    }
}
