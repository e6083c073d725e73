//! Everything that must hold before a change is merged, as one list of steps.
//!
//! ```text
//! format   cargo fmt --check
//! tidy     the rules in `tidy/`
//! lints    cargo clippy, warnings are errors
//! deny     licences and duplicate versions, as `deny.toml` says; lints have fetched the crates
//! docs     cargo doc, warnings are errors
//! tests    cargo test of the whole workspace, those that wait for timers beside the others;
//!          then of the drivers of other engines; counted
//! planted  a copy with planted bugs, one at a time: tests must notice each
//! build    cargo build --release of the binary; its time is printed
//! run      `make run`, a PUT, a GET, SIGTERM
//! ```
//!
//! Invariants
//! 1. A failed step does not hide the ones after it; the run fails when any step failed.
//! 2. The last line of a run with tests is their count: `tests: N passed, N failed, N skipped`.
//!    Above it stand the names of the failed tests, for a reader of the log's end.
//! 3. A run whose tests did not all finish counts at least one failure.
//!
//! Not here: the rules of tidy; what a hosted service does around this (`.ci/run`).
//! See: CONTRIBUTING.md.

use crate::{deny, make_run, planted, tidy};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the whole run may take on two cores from nothing; printed beside what it took.
const BUDGET: Duration = Duration::from_secs(35 * 60);

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
    skipped: u64,
}

/// Every step, in the order in which they run.
const STEPS: [&str; 9] = [
    "format", "tidy", "lints", "deny", "docs", "tests", "planted", "build", "run",
];

/// Runs every step, or those that `only` names, and prints a summary and the count of tests. True
/// when everything held.
pub(crate) fn run(root: &Path, only: &[String]) -> bool {
    let Some(steps) = chosen(only) else {
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
            "deny" => ended(deny::run(root)),
            "docs" => ended(succeeds(
                cargo(root, &DOCS).env("RUSTDOCFLAGS", "-D warnings"),
            )),
            "tests" => {
                let all = all_tests(root, &mut count, &mut names);
                let drivers = tests(root, &DRIVER_TESTS, &mut count, &mut names);
                ended(all && drivers)
            }
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
    let verdict = if took > BUDGET {
        "OVER the budget of"
    } else {
        "budget"
    };
    println!(
        "{:8} {:7.1} s  {verdict} {} s",
        "all",
        took.as_secs_f64(),
        BUDGET.as_secs()
    );
    for name in &names {
        println!("failed: {name}");
    }
    if steps.contains(&"tests") {
        println!(
            "tests: {} passed, {} failed, {} skipped",
            count.passed, count.failed, count.skipped
        );
    }
    report.iter().all(|(_, ended, _)| *ended != Ended::Failed)
}

/// The steps that `only` names, in their own order; every step when it names none.
fn chosen(only: &[String]) -> Option<Vec<&'static str>> {
    if let Some(unknown) = only.iter().find(|name| !STEPS.contains(&name.as_str())) {
        eprintln!("`{unknown}` is no step; there are {}", STEPS.join(", "));
        return None;
    }
    let is_chosen = |step: &&str| only.is_empty() || only.iter().any(|name| name == step);
    Some(STEPS.into_iter().filter(is_chosen).collect())
}

const LINTS: [&str; 8] = [
    "clippy",
    "--workspace",
    "--all-targets",
    // Drivers of other engines are in no default build.
    "--features",
    "dendra/etcd,dendra/cassandra",
    "--",
    "-D",
    "warnings",
];
const DOCS: [&str; 5] = [
    "doc",
    "--workspace",
    "--no-deps",
    // As for the lints, which have looked at the crates that these need.
    "--features",
    "dendra/etcd,dendra/cassandra",
];
const TESTS: [&str; 3] = ["test", "--workspace", "--no-fail-fast"];
/// Tests that wait minutes for timers of a cluster and need little of a core: they run beside all
/// others.
const WAITING: [&str; 9] = [
    "test",
    "--workspace",
    "--no-fail-fast",
    "--test",
    "forget",
    "--test",
    "loss",
    "--test",
    "rot",
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

/// Runs the tests of the workspace, those that wait beside the others: their output comes last.
fn all_tests(root: &Path, count: &mut Count, names: &mut Vec<String>) -> bool {
    if !succeeds(&mut test_command(
        root,
        &[&TESTS[..], &["--no-run"]].concat(),
    )) {
        return failed_without_result("cargo test --no-run", count, names);
    }
    let waiting = &[&WAITING[..], &["--", "--list"]].concat();
    let listed = match test_command(root, waiting).output() {
        Ok(listed) if listed.status.success() => listed.stdout,
        _ => return failed_without_result("cargo test -- --list", count, names),
    };
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let skips = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let skips = skips.flat_map(|name| ["--skip", name]);
    let others: Vec<&str> = TESTS
        .into_iter()
        .chain(["--", "--exact"])
        .chain(skips)
        .collect();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| test_command(root, &WAITING).output());
        let others = tests(root, &others, count, names);
        let Ok(Ok(waited)) = waiting.join() else {
            return failed_without_result("cargo test of those that wait", count, names);
        };
        eprint!("{}", String::from_utf8_lossy(&waited.stderr));
        let failed_before = count.failed;
        for line in String::from_utf8_lossy(&waited.stdout).lines() {
            println!("{line}");
            see_line(line, count, names);
        }
        let held = waited.status.success();
        if !held && count.failed == failed_before {
            failed_without_result("cargo test of those that wait", count, names);
        }
        others && held
    })
}

/// A test binary that aborts or does not compile reports nothing: that is a failure, too.
fn failed_without_result(what: &str, count: &mut Count, names: &mut Vec<String>) -> bool {
    count.failed += 1;
    names.push(format!("{what}, without a result"));
    false
}

fn test_command(root: &Path, command: &[&str]) -> Command {
    let mut command = cargo(root, command);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    command
}

/// Notes what a line of the output says.
fn see_line(line: &str, count: &mut Count, names: &mut Vec<String>) {
    names.extend(parse_failed(line).map(str::to_owned));
    if let Some(result) = parse_result(line) {
        count.passed += result.passed;
        count.failed += result.failed;
        count.skipped += result.skipped;
    }
}

/// Runs tests, showing their output as it comes and adding up the results.
fn tests(root: &Path, command: &[&str], count: &mut Count, names: &mut Vec<String>) -> bool {
    let failed_before = count.failed;
    let outcome = streamed(test_command(root, command), |line| {
        see_line(line, count, names)
    });
    let held = match outcome {
        Ok(success) => success,
        Err(error) => {
            eprintln!("the tests did not run: {error}");
            false
        }
    };
    if !held && count.failed == failed_before {
        failed_without_result(&format!("cargo {}", command.join(" ")), count, names);
    }
    held && count.failed == failed_before
}

/// Runs `command` with its standard output passed through line by line; true when it succeeded.
fn streamed(mut command: Command, mut see: impl FnMut(&str)) -> std::io::Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child
        .stdout
        .take()
        .expect("the output was asked for as a pipe");
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let mut shown = std::io::stdout().lock();
    while output.read_until(b'\n', &mut line)? > 0 {
        shown.write_all(&line)?;
        see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
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
            ("ignored", Ok(n)) => count.skipped = n,
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
        assert_eq!(chosen(&[]), Some(STEPS.to_vec()));
        assert_eq!(chosen(&names(&["run", "tidy"])), Some(vec!["tidy", "run"]));
        assert_eq!(chosen(&names(&["tidy", "lint"])), None);
    }

    /// They are skipped by their names beside the others: another test of such a name would never
    /// run.
    #[test]
    fn no_other_test_has_the_name_of_one_that_waits() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = Vec::new();
        for folder in ["crates", "studies", "xtask"] {
            read_sources(&root.join(folder), &mut sources);
        }
        for name in ["forget", "loss", "rot"] {
            let file = root.join(format!("crates/dendra/tests/{name}.rs"));
            let text = std::fs::read_to_string(file).expect("a test of the binary");
            let tests: Vec<&str> = text.split("#[test]\nfn ").skip(1).collect();
            assert!(!tests.is_empty(), "{name}");
            for test in tests {
                let (test, _) = test.split_once('(').expect("a function");
                let head = format!("fn {test}(");
                let count = sources.iter().filter(|it| it.contains(&head)).count();
                assert_eq!(count, 1, "{test}");
            }
        }
    }

    fn read_sources(folder: &Path, sources: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                read_sources(&path, sources);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources.push(std::fs::read_to_string(path).expect("a source"));
            }
        }
    }

    #[test]
    fn a_result_line_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(
            parse_result(line),
            Some(Count {
                passed: 12,
                failed: 3,
                skipped: 1
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
                skipped: 0
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
