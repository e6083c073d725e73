//! Load generators of others: how each is found or installed, run, and read.
//!
//! ```text
//! wrk   Debian's package               closed loop, percentiles by a script's `done`
//! oha   cargo install oha              -q RATE --latency-correction, JSON
//! k6    go install go.k6.io/k6@latest  constant-arrival-rate, JSON by handleSummary
//! ```
//!
//! Invariants
//! 1. Programs are installed into `target/lab/tools`, except Debian's packages; no other folder is
//!    changed.
//! 2. A tool that cannot be had is named with the package that would install it.
//!
//! Not here: the comparison (`check.rs`).

use super::place::{Place, Side, find, output, version};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// Will Glozer's, version 4: a closed loop.
    Wrk,
    /// hatoo's.
    Oha,
    /// Grafana's.
    K6,
}

/// The order for the program.
#[derive(Clone, Debug)]
pub(super) struct Order<'a> {
    pub(super) url: &'a str,
    /// Requests a second; wrk sends as many as it can.
    pub(super) rate: u32,
    pub(super) seconds: u32,
    pub(super) connections: u32,
}

/// The figures that it printed. Microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) requests: f64,
    /// Requests a second.
    pub(super) rate: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

/// A tool that is installed.
pub(super) struct Installed {
    pub(super) tool: Tool,
    program: PathBuf,
    /// How it came here, and its version.
    pub(super) words: String,
}

const WRK_SCRIPT: &str = "\
done = function(summary, latency, requests)
  io.write(string.format('LAB %d %d %f %f %f\\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
";

const K6_SCRIPT: &str = "\
import http from 'k6/http';
const n = (name) => Number(__ENV[name]);
export const options = {
  discardResponseBodies: true,
  summaryTrendStats: ['med', 'p(99)', 'p(99.9)', 'max'],
  scenarios: { lab: { executor: 'constant-arrival-rate', rate: n('LAB_RATE'), timeUnit: '1s',
    duration: n('LAB_SECONDS') + 's', preAllocatedVUs: n('LAB_USERS'), maxVUs: n('LAB_USERS') } },
};
export default function () { http.get(__ENV.LAB_URL); }
export function handleSummary(data) { return { stdout: JSON.stringify(data.metrics) }; }
";

impl Tool {
    /// Name of the tool.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tool::Wrk => "wrk",
            Tool::Oha => "oha",
            Tool::K6 => "k6",
        }
    }

    fn recipe(self, tools: &Path) -> (Command, &'static str) {
        match self {
            Tool::Wrk => {
                let mut apt = Command::new("apt-get");
                apt.args(["install", "--yes", "--no-install-recommends", "wrk"]);
                (apt, "apt-get install wrk")
            }
            Tool::Oha => {
                let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
                let mut cargo = Command::new(cargo);
                cargo
                    .args(["install", "oha", "--locked", "--root"])
                    .arg(tools);
                (cargo, "cargo install oha --locked")
            }
            Tool::K6 => {
                let mut go = Command::new("go");
                go.args(["install", "go.k6.io/k6@latest"])
                    .env("GOBIN", tools.join("bin"));
                (
                    go,
                    "go install go.k6.io/k6@latest, through the Go module proxy",
                )
            }
        }
    }

    /// Finds it, or installs it.
    pub(super) fn installed(self, place: &Place) -> Result<Installed, String> {
        let tools = place.root.join("target/lab/tools");
        let bin = [tools.join("bin")];
        let name = self.name();
        let (mut command, recipe) = self.recipe(&tools);
        let found = find(name, &bin);
        let is_ours = found
            .as_ref()
            .is_none_or(|program| program.starts_with(&tools));
        let way = if is_ours { recipe } else { "was here" };
        let program = match found {
            Some(program) => program,
            None => {
                println!("{name} is not here: {recipe}");
                output(&mut command)
                    .map_err(|why| format!("{name} cannot be had by `{recipe}`: {why}"))?;
                find(name, &bin)
                    .ok_or_else(|| format!("`{recipe}` left no program called {name}"))?
            }
        };
        let argument = match self {
            Tool::Wrk => "-v",
            Tool::Oha => "--version",
            Tool::K6 => "version",
        };
        let words = format!("{} ({way})", version(&program, argument));
        Ok(Installed {
            tool: self,
            program,
            words,
        })
    }
}

/// A tool that runs.
pub(super) struct Running {
    tool: Tool,
    child: Child,
    seconds: u32,
}

impl Installed {
    /// Starts it on the generator's core.
    pub(super) fn start(&self, place: &Place, order: &Order<'_>) -> Result<Running, String> {
        let mut command = Command::new(&self.program);
        let count = |n: u32| n.to_string();
        match self.tool {
            Tool::Wrk => {
                let script = place.folder.join("done.lua");
                fs::write(&script, WRK_SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
                command.args(["-t", "1", "-c", &count(order.connections)]);
                command.args([
                    "-d",
                    &format!("{}s", order.seconds),
                    "--timeout",
                    "10s",
                    "-s",
                ]);
                command.arg(&script).arg(order.url);
            }
            Tool::Oha => {
                command.args([
                    "--no-tui",
                    "--output-format",
                    "json",
                    "--latency-correction",
                ]);
                command.args([
                    "--disable-compression",
                    "-q",
                    &count(order.rate),
                    "-c",
                    &count(order.connections),
                ]);
                command.args(["-n", &count(order.rate * order.seconds), order.url]);
            }
            Tool::K6 => {
                let script = place.folder.join("rate.js");
                fs::write(&script, K6_SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
                command
                    .args(["run", "--quiet", "--no-usage-report"])
                    .arg(&script);
                command
                    .env("LAB_URL", order.url)
                    .env("LAB_RATE", count(order.rate));
                command
                    .env("LAB_SECONDS", count(order.seconds))
                    .env("LAB_USERS", count(order.connections));
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = place.spawn(Side::Generator, &mut command)?;
        Ok(Running {
            tool: self.tool,
            child,
            seconds: order.seconds,
        })
    }

    /// Runs it to its end.
    pub(super) fn run(&self, place: &Place, order: &Order<'_>) -> Result<Said, String> {
        self.start(place, order)?.finish()
    }
}

impl Running {
    /// Waits for its end and reads its output.
    pub(super) fn finish(self) -> Result<Said, String> {
        let name = self.tool.name();
        let output = self.child.wait_with_output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "{name} ended with {}: {}",
                output.status,
                said.trim()
            ));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let said = match self.tool {
            Tool::Wrk => wrk(&text),
            Tool::Oha => oha(&text),
            Tool::K6 => k6(&text, self.seconds),
        };
        said.ok_or_else(|| format!("{name} printed nothing that can be read: {}", text.trim()))
    }
}

fn wrk(text: &str) -> Option<Said> {
    let line = text.lines().find_map(|line| line.strip_prefix("LAB "))?;
    let numbers: Vec<f64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [requests, length_us, p50_us, p99_us, p999_us] = numbers[..] else {
        return None;
    };
    let rate = requests / (length_us / 1e6);
    Some(Said {
        requests,
        rate,
        p50_us,
        p99_us,
        p999_us,
    })
}

fn oha(text: &str) -> Option<Said> {
    let json: Value = serde_json::from_str(text).ok()?;
    let at = |name: &str| json["latencyPercentiles"][name].as_f64().map(|s| s * 1e6);
    let rate = json["summary"]["requestsPerSec"].as_f64()?;
    let total_s = json["summary"]["total"].as_f64()?;
    Some(Said {
        requests: (rate * total_s).round(),
        rate,
        p50_us: at("p50")?,
        p99_us: at("p99")?,
        p999_us: at("p99.9")?,
    })
}

fn k6(text: &str, seconds: u32) -> Option<Said> {
    let json: Value = serde_json::from_str(text.trim()).ok()?;
    // From the instant at which the iteration began by the plan: a user was ready for each.
    let at = |name: &str| {
        json["iteration_duration"]["values"][name]
            .as_f64()
            .map(|ms| ms * 1e3)
    };
    let requests = json["http_reqs"]["values"]["count"].as_f64()?;
    Some(Said {
        requests,
        rate: requests / f64::from(seconds),
        p50_us: at("med")?,
        p99_us: at("p(99)")?,
        p999_us: at("p(99.9)")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_tool_prints_is_read() {
        let said = wrk("Running 1s test\n\nLAB 5000 2000000 100.0 200.5 300.0\n")
            .expect("the line is there");
        assert_eq!((said.rate, said.p99_us), (2500.0, 200.5));
        let text = r#"{"summary":{"total":2.0,"requestsPerSec":50.0},
            "latencyPercentiles":{"p50":0.001,"p99":0.002,"p99.9":0.003}}"#;
        let said = oha(text).expect("it is its JSON");
        assert_eq!((said.requests, said.p999_us), (100.0, 3000.0));
        let text = r#"{"http_reqs":{"values":{"count":20}},
            "iteration_duration":{"values":{"med":1.5,"p(99)":2,"p(99.9)":3,"max":4}}}"#;
        let said = k6(text, 10).expect("it is its JSON");
        assert_eq!((said.rate, said.p50_us), (2.0, 1500.0));
        assert_eq!(wrk("no such line"), None);
        assert_eq!(oha("{}"), None);
        assert_eq!(k6("", 1), None);
    }
}
