//! Everything that must hold, as one list of steps behind three doors.
//!
//! ```text
//! format   cargo fmt --check                                             check  test
//! tidy     the rules in `tidy/`                                          check  test
//! lints    cargo clippy, warnings are errors                             check  test
//! units    tests inside of crates, and the fixed seeds of the simulator  check
//! tests    cargo test of the whole workspace, in two lanes (`lanes.rs`),        test
//!          one with those that wait for timers; then those that judge times
//! drivers  cargo clippy of the drivers of other engines, which are in no default build  prove
//! docs     cargo doc, warnings are errors                                              prove
//! length   what `make test` leaves out: tests that are ignored as "at length",         prove
//!          documents' examples, drivers of other engines, more seeds
//! planted  a copy with planted bugs, one at a time: tests must notice each             prove
//! build    cargo build --release of the binary; its time is printed                    prove
//! run      `make run`, a PUT, a GET, SIGTERM                                           prove
//! ```
//!
//! Invariants
//! 1. A failed step does not hide the ones after it; the run fails when any step failed.
//! 2. The last line of a run with tests is their count: `tests: N passed, N failed, N skipped`.
//!    Above it stand the names of the failed tests, for a reader of the log's end.
//! 3. A run whose tests did not all finish counts at least one failure.
//! 4. Each test runs behind `test` or `prove`.
//!
//! Not here: the rules of tidy; the steps of a hosted service around this (`.ci/run`).
//! See: CONTRIBUTING.md.

mod lanes;

use crate::built::{self, BuiltTest};
use crate::{make_run, planted, tidy};
use lanes::Job;
use std::fmt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How one step ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Held,
    Failed,
    /// The tool is not installed on this machine.
    Skipped,
}

/// Tests as `cargo test` reports them, summed over all its binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    /// Tests at length: the only ones that may be ignored.
    ignored: u64,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, 0 skipped",
            self.passed, self.failed
        )?;
        match self.ignored {
            0 => Ok(()),
            left => write!(f, " ({left} left to `make prove`)"),
        }
    }
}

/// Every step, in the order in which they run.
const STEPS: [&str; 11] = [
    "format", "tidy", "lints", "units", "tests", "drivers", "docs", "length", "planted", "build",
    "run",
];

/// Some steps under one name, and how long they may take on two cores; printed beside the time
/// that they took.
struct Door {
    name: &'static str,
    steps: &'static [&'static str],
    budget: Duration,
}

const DOORS: [Door; 3] = [
    Door {
        name: "check",
        steps: &["format", "tidy", "lints", "units"],
        budget: Duration::from_secs(3 * 60),
    },
    Door {
        name: "test",
        steps: &["format", "tidy", "lints", "tests"],
        budget: Duration::from_secs(12 * 60),
    },
    Door {
        name: "prove",
        steps: &["drivers", "docs", "length", "planted", "build", "run"],
        budget: Duration::from_secs(24 * 60),
    },
];

/// Runs the steps that `only` names, one by one or by their door, and prints a summary and the
/// count of tests. True when everything held.
pub(crate) fn run(root: &Path, only: &[String]) -> bool {
    let Some((steps, budget)) = chosen(only) else {
        return false;
    };
    let started = Instant::now();
    let mut count = Count::default();
    let mut names = Vec::new();
    let mut report = Vec::new();
    for step in &steps {
        println!("\n== {step}");
        let step_started = Instant::now();
        let ended = match *step {
            "format" => tool(root, "rustfmt", &["fmt", "--all", "--check"]),
            "tidy" => ended(tidy::run(root)),
            "lints" => tool(root, "clippy", &LINTS),
            "drivers" => tool(root, "clippy", &DRIVER_LINTS),
            "docs" => ended(
                [&DOCS[..], &DRIVER_DOCS]
                    .into_iter()
                    .all(|docs| succeeds(cargo(root, docs).env("RUSTDOCFLAGS", "-D warnings"))),
            ),
            "units" => ended(units(root, &mut count, &mut names)),
            "tests" => ended(tests(root, &mut count, &mut names)),
            "length" => ended(length(root, &mut count, &mut names)),
            "planted" => ended(planted::run(root, &[])),
            "build" => ended(succeeds(&mut cargo(root, &BUILD))),
            _ => ended(serves(root)),
        };
        report.push((*step, ended, step_started.elapsed()));
    }

    println!("\n== summary");
    for (step, ended, took) in &report {
        let word = match ended {
            Ended::Held => "held",
            Ended::Failed => "FAILED",
            Ended::Skipped => "skipped: the tool is not installed (rustup component add)",
        };
        println!("{step:8} {:7.1} s  {word}", took.as_secs_f64());
    }
    let took = started.elapsed();
    let verdict = budget.map(|budget| {
        let word = if took > budget { "OVER the" } else { "in the" };
        format!("{word} budget of {} s", budget.as_secs())
    });
    let verdict = verdict.unwrap_or_default();
    println!("{:8} {:7.1} s  {verdict}", "all", took.as_secs_f64());
    for name in &names {
        println!("failed: {name}");
    }
    if steps.iter().any(|step| COUNTED.contains(step)) {
        println!("tests: {count}");
    }
    report.iter().all(|(_, ended, _)| *ended != Ended::Failed)
}

/// The steps that `only` names, in their own order, and their budget if they are a door's.
fn chosen(only: &[String]) -> Option<(Vec<&'static str>, Option<Duration>)> {
    if let [name] = only
        && let Some(door) = DOORS.iter().find(|door| door.name == name)
    {
        return Some((door.steps.to_vec(), Some(door.budget)));
    }
    let unknown = only.iter().find(|name| !STEPS.contains(&name.as_str()));
    if let Some(unknown) = unknown
        .map(String::as_str)
        .or(only.is_empty().then_some(""))
    {
        let doors = DOORS.map(|door| door.name).join(", ");
        let steps = STEPS.join(", ");
        eprintln!("`{unknown}` is neither a door ({doors}) nor a step ({steps})");
        return None;
    }
    let is_chosen = |step: &&str| only.iter().any(|name| name == step);
    Some((STEPS.into_iter().filter(is_chosen).collect(), None))
}

/// Steps whose tests are counted.
const COUNTED: [&str; 3] = ["units", "tests", "length"];

const LINTS: [&str; 6] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--",
    "-D",
    "warnings",
];
const DRIVER_LINTS: [&str; 13] = [
    "clippy",
    "--package",
    "dendra-stores",
    "--package",
    "dendra",
    "--lib",
    "--test",
    "outgrow",
    "--features",
    "dendra/etcd,dendra/cassandra",
    "--",
    "-D",
    "warnings",
];
const DOCS: [&str; 3] = ["doc", "--workspace", "--no-deps"];
const DRIVER_DOCS: [&str; 6] = [
    "doc",
    "--package",
    "dendra-stores",
    "--no-deps",
    "--features",
    "etcd,cassandra",
];
/// Files of tests that wait for timers of a cluster and need little of a core, the longest first.
const WAITING: [&str; 17] = [
    "cluster",
    "clusters",
    "forget",
    "commands",
    "round_trips",
    "increments",
    "serving",
    "line_and_links",
    "loss",
    "rot",
    "restore",
    "slow_connections",
    "backup",
    "trouble",
    "lack",
    "backup_places",
    "dev",
];
/// Files of tests that judge times of a thousandth of a second, or how much of a processor is left:
/// these run one test at a time, while no other test runs.
const JUDGING_TIME: [&str; 2] = ["truth", "standing"];
const DOC_TESTS: [&str; 3] = ["test", "--workspace", "--doc"];
const UNITS: [&str; 4] = ["test", "--workspace", "--lib", "--bins"];
const FIXED_SEEDS: [&str; 5] = ["test", "--package", "dendra-sim", "--test", "seeds"];
/// Seeds of each of the simulator's seasons: the same ones for each commit. The hosted workflow
/// draws fresh ones at night.
const SEARCHES: [&[&str]; 6] = [
    &["--from", "0", "--seeds", "3000"],
    &["--expiring", "--from", "0", "--seeds", "300"],
    &["--watched", "--from", "0", "--seeds", "200"],
    &["--lagging", "--from", "0", "--seeds", "300"],
    &["--overloaded", "--from", "0", "--seeds", "100"],
    &["--rotten", "--from", "0", "--seeds", "150"],
];
const DRIVER_TESTS: [&str; 5] = [
    "test",
    "--package",
    "dendra-stores",
    "--features",
    "etcd,cassandra",
];
const SIMULATE: [&str; 5] = ["run", "--release", "--package", "dendra-sim", "--"];
const BUILD: [&str; 4] = ["build", "--release", "--package", "dendra"];

/// Runs the simulator with the options of its own command line.
pub(crate) fn simulate(root: &Path, options: &[String]) -> bool {
    succeeds(cargo(root, &SIMULATE).args(options))
}

fn ended(held: bool) -> Ended {
    if held { Ended::Held } else { Ended::Failed }
}

/// Does the first command of the README serve?
fn serves(root: &Path) -> bool {
    let served = make_run::serves(root);
    if let Err(reason) = &served {
        println!("`make run` does not serve: {reason}");
    }
    served.is_ok()
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// Runs `command`, its output streamed through; a command that cannot start has failed.
fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("{:?} does not start: {error}", command.get_program());
            false
        }
    }
}

/// Runs a cargo subcommand that comes as a separate component. When it is missing, rustup is asked
/// for it once; a machine without rustup goes on without, and the summary says so.
fn tool(root: &Path, component: &str, arguments: &[&str]) -> Ended {
    let is_there = || {
        cargo(root, &[arguments[0], "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !is_there() {
        println!(
            "cargo {} is missing: asking rustup for {component}",
            arguments[0]
        );
        let added = Command::new("rustup")
            .args(["component", "add", component])
            .status();
        if !added.is_ok_and(|status| status.success()) || !is_there() {
            return Ended::Skipped;
        }
    }
    ended(succeeds(&mut cargo(root, arguments)))
}

/// Tests of one binary that run at once. Many of them wait for a cluster's timers rather than for a
/// core.
const TEST_THREADS: &str = "4";

/// Runs the tests of the workspace, adding up the results.
fn tests(root: &Path, count: &mut Count, names: &mut Vec<String>) -> bool {
    let built = match built::build(cargo(root, &["test", "--workspace"])) {
        Ok(built) => built,
        Err(reason) => {
            eprintln!("{reason}");
            return failed_without_result("cargo test --no-run", count, names);
        }
    };
    let (mut waiting, mut others, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for test in built {
        if JUDGING_TIME.contains(&test.target.as_str()) {
            let mut job = job_of(&test);
            job.command.env("RUST_TEST_THREADS", "1");
            alone.push(job);
            continue;
        }
        let place = WAITING.iter().position(|name| *name == test.target);
        match place {
            Some(place) => waiting.push((place, job_of(&test))),
            None => others.push(job_of(&test)),
        }
    }
    waiting.sort_by_key(|(place, _)| *place);
    let waiting = waiting.into_iter().map(|(_, job)| job).collect();
    let mut held = true;
    let mut see = |name: &str, output| held &= see_job(name, output, count, names);
    lanes::run(waiting, others, &mut see);
    lanes::run_alone(alone, &mut see);
    held
}

/// Runs the tests inside of crates, and the fixed seeds.
fn units(root: &Path, count: &mut Count, names: &mut Vec<String>) -> bool {
    let jobs = [&UNITS[..], &FIXED_SEEDS].map(|command| cargo_job(root, command));
    let mut held = true;
    let mut see = |name: &str, output| held &= see_job(name, output, count, names);
    lanes::run_alone(jobs.into(), &mut see);
    held
}

/// Runs what `tests` leaves out.
fn length(root: &Path, count: &mut Count, names: &mut Vec<String>) -> bool {
    let built = match built::build(cargo(root, &["test", "--workspace"])) {
        Ok(built) => built,
        Err(reason) => {
            eprintln!("{reason}");
            return failed_without_result("cargo test --no-run", count, names);
        }
    };
    let folder = built.first().and_then(|test| test.path.parent()?.parent());
    let simulator = folder.unwrap_or(root).join("dendra-sim");
    let (mut waiting, mut others) = (Vec::new(), Vec::new());
    for test in built {
        let mut job = job_of(&test);
        job.command.arg("--ignored");
        if WAITING.contains(&test.target.as_str()) {
            waiting.push(job);
        } else {
            others.push(job);
        }
    }
    let searches = SEARCHES.map(|search| search_job(&simulator, search));
    let [drivers, docs] = [&DRIVER_TESTS[..], &DOC_TESTS].map(|command| cargo_job(root, command));
    // The longest of all, which a core compiles for a while; and behind the searches what would
    // wait for the same lock of cargo.
    let first = [drivers].into_iter().chain(searches).chain([docs]);
    others.splice(..0, first);
    let mut held = true;
    let mut see = |name: &str, output| held &= see_job(name, output, count, names);
    lanes::run(waiting, others, &mut see);
    held
}

/// Runs the simulator that was built for its own tests: by itself cargo would build it with other
/// features of its libraries, which takes longer than any of the searches.
fn search_job(simulator: &Path, search: &[&str]) -> Job {
    let mut command = Command::new(simulator);
    command.args(search);
    Job {
        name: format!("dendra-sim {}", search.join(" ")),
        command,
    }
}

fn cargo_job(root: &Path, arguments: &[&str]) -> Job {
    Job {
        name: format!("cargo {}", arguments.join(" ")),
        command: with_threads(cargo(root, arguments)),
    }
}

/// Runs a built test as cargo does.
fn job_of(test: &BuiltTest) -> Job {
    let mut command = with_threads(Command::new(&test.path));
    command
        .current_dir(&test.folder)
        .env("CARGO_MANIFEST_DIR", &test.folder);
    Job {
        name: format!("{} {}", test.package, test.target),
        command,
    }
}

/// Shows the output of a job, and counts its tests; true when all held.
fn see_job(
    name: &str,
    output: std::io::Result<Output>,
    count: &mut Count,
    names: &mut Vec<String>,
) -> bool {
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("{name} does not start: {error}");
            return failed_without_result(name, count, names);
        }
    };
    let failed_before = count.failed;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        println!("{line}");
        see_line(line, count, names);
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let held = output.status.success();
    if !held && count.failed == failed_before {
        return failed_without_result(name, count, names);
    }
    held && count.failed == failed_before
}

/// A test binary that aborts or does not compile reports no result: that is a failure, too.
fn failed_without_result(what: &str, count: &mut Count, names: &mut Vec<String>) -> bool {
    count.failed += 1;
    names.push(format!("{what}, without a result"));
    false
}

fn with_threads(mut command: Command) -> Command {
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    command
}

/// Notes the facts in a line of the output.
fn see_line(line: &str, count: &mut Count, names: &mut Vec<String>) {
    names.extend(parse_failed(line).map(str::to_owned));
    if let Some(result) = parse_result(line) {
        count.passed += result.passed;
        count.failed += result.failed;
        count.ignored += result.ignored;
    }
}

/// The name in `test a::name ... FAILED`; a test that printed without a newline has its verdict on
/// a line without its name, and is counted only.
fn parse_failed(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    verdict.trim_end().ends_with("FAILED").then_some(name)
}

/// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; …`, wherever on the line it starts: a
/// test that printed without a newline stands in front of it.
fn parse_result(line: &str) -> Option<Count> {
    let (_, rest) = line.split_once("test result: ")?;
    let (_, numbers) = rest.split_once(". ")?;
    let mut count = Count::default();
    for part in numbers.split(';') {
        let mut words = part.split_whitespace();
        let (Some(number), Some(what)) = (words.next(), words.next()) else {
            continue;
        };
        match (what, number.parse()) {
            ("passed", Ok(n)) => count.passed = n,
            ("failed", Ok(n)) => count.failed = n,
            ("ignored", Ok(n)) => count.ignored = n,
            _ => {}
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name_and_run_in_their_own_order() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let some = Some((vec!["tidy", "run"], None));
        assert_eq!(chosen(&names(&["run", "tidy"])), some);
        assert_eq!(chosen(&names(&["tidy", "lint"])), None);
        assert_eq!(chosen(&[]), None);
        let check = chosen(&names(&["check"])).expect("a door");
        assert_eq!(check.0, ["format", "tidy", "lints", "units"]);
    }

    #[test]
    fn each_step_is_behind_a_door() {
        for step in STEPS {
            assert!(
                DOORS.iter().any(|door| door.steps.contains(&step)),
                "{step}"
            );
        }
        for door in &DOORS {
            assert!(
                door.steps.iter().all(|step| STEPS.contains(step)),
                "{}",
                door.name
            );
        }
    }

    /// A file with another name would no longer have its place.
    #[test]
    fn each_file_with_a_place_is_there() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for name in WAITING.iter().chain(&JUDGING_TIME) {
            let places = ["dendra", "lab", "server"].map(|it| {
                let tests = crates.join(it).join("tests");
                [tests.join(format!("{name}.rs")), tests.join(name)]
            });
            let count = places.iter().flatten().filter(|it| it.exists()).count();
            assert_eq!(count, 1, "{name}");
        }
    }

    #[test]
    fn a_job_without_a_result_is_a_failure() {
        use std::os::unix::process::ExitStatusExt;
        let ended = |status: i32, said: &str| {
            let (mut count, mut names) = (Count::default(), Vec::new());
            let output = Output {
                status: std::process::ExitStatus::from_raw(status),
                stdout: said.as_bytes().to_vec(),
                stderr: Vec::new(),
            };
            let held = see_job("a", Ok(output), &mut count, &mut names);
            (held, count.failed, names)
        };
        let good = "test result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(ended(0, good), (true, 0, vec![]));
        let aborted = vec!["a, without a result".to_owned()];
        assert_eq!(ended(9, "test b ... "), (false, 1, aborted));
        let bad = "test b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        assert_eq!(ended(101 << 8, bad), (false, 1, vec!["b".to_owned()]));
    }

    #[test]
    fn a_result_line_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(
            parse_result(line),
            Some(Count {
                passed: 12,
                failed: 3,
                ignored: 1
            })
        );
    }

    #[test]
    fn a_result_behind_stray_output_is_counted() {
        let line = "progress 100%test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(
            parse_result(line),
            Some(Count {
                passed: 2,
                failed: 0,
                ignored: 0
            })
        );
    }

    #[test]
    fn the_name_of_a_failed_test_is_read() {
        let failed = "test lane::tests::a_thing_is_so - should panic ... FAILED\n";
        assert_eq!(
            parse_failed(failed),
            Some("lane::tests::a_thing_is_so - should panic")
        );
        assert_eq!(parse_failed("test lane::a_thing_is_so ... ok\n"), None);
        assert_eq!(
            parse_failed("test result: FAILED. 1 passed; 1 failed"),
            None
        );
        assert_eq!(parse_failed("    lane::a_thing_is_so\n"), None);
    }

    #[test]
    fn other_lines_are_not_results() {
        assert_eq!(parse_result("test ring::a_test ... ok"), None);
        assert_eq!(parse_result("running 3 tests"), None);
    }

    #[test]
    fn a_command_that_cannot_start_has_failed() {
        assert!(!succeeds(&mut Command::new("no-such-program-of-dendra")));
    }
}
