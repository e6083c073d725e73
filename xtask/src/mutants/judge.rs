//! The tests that judge a mutant: those that reach its function, the quickest first.
//!
//! ```text
//! built files of tests ─► each test by itself, without a mutant ─► how long it takes,
//!                                                                  which switches it reaches
//! a mutant ─► the tests that reach its switch, until one notices ─► caught, missed, not reached
//! ```
//!
//! Invariants
//! 1. Without a mutant every test holds, or no mutant is judged.
//! 2. A test draws the same values in each run. Code that it does not reach without a mutant, it
//!    does not reach with a mutant of another function.
//! 3. A test has noticed a mutant when it takes far more of the processor than without it, or more
//!    memory than the machine should give. So has one that does not end. A busy machine alone makes
//!    no test notice.
//!
//! Not here: which mutants are judged (`mod.rs`).

use super::at_once::at_once;
use crate::built::BuiltTest;
use crate::planted::finders::build;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Files of tests of the simulator that judge as well: they find mutants that the own tests of a
/// crate miss.
const SIM: [&str; 1] = ["seeds"];

/// Shorter searches than `make test` does: most mutants show at once, and some never do.
const SHORT: [(&str, &str); 7] = [
    ("PROPTEST_CASES", "64"),
    ("PROPTEST_RNG_SEED", "1"),
    // Else a case that a mutant failed would judge all others, too.
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1"),
    ("DENDRA_TWIN_SEEDS", "200"),
    ("DENDRA_CHAIN_SEEDS", "200"),
    ("DENDRA_STEWARD_SEEDS", "60"),
    ("DENDRA_SIM_SEEDS", "40"),
];

/// A test that takes more of the processor without a mutant judges none.
const LONG: Duration = Duration::from_secs(10);

/// A test may take as much more of the processor than without a mutant, and this much in any case.
const SLOWER: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(5);

/// A test that waits for ever is given up after so many times that.
const IDLE: u32 = 8;

/// Memory of one test, in KiB: a changed loop may ask for more than there is.
const MEMORY_KIB: u64 = 4 << 20;

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The fate of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This test notices it.
    Caught {
        by: String,
    },
    Missed,
    /// No test calls its function.
    NotReached,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Caught { by } => write!(f, "caught by {by}"),
            Verdict::Missed => f.write_str("MISSED"),
            Verdict::NotReached => f.write_str("NOT REACHED"),
        }
    }
}

/// The tests that judge.
pub(super) struct Judges {
    copy: PathBuf,
    /// The quickest first.
    tests: Vec<Test>,
}

/// One test, as its run without a mutant shows it.
struct Test {
    id: TestId,
    took: Duration,
    /// The mutants of the functions that it calls.
    reaches: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
struct TestId {
    file: BuiltTest,
    name: String,
}

impl fmt::Display for TestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BuiltTest {
            package, target, ..
        } = &self.file;
        write!(f, "{package} {target} {}", self.name)
    }
}

/// How a test ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Held,
    Failed,
    /// It took more of the processor, or of time, than it may.
    TooLong,
}

impl Judges {
    /// Builds the tests of `packages`, and runs each once without a mutant.
    pub(super) fn build(copy: &Path, packages: &BTreeSet<&str>) -> Result<Judges, String> {
        let mut options = vec!["--lib", "--package", "dendra-sim"];
        let mut targets = BTreeSet::from(SIM.map(str::to_owned));
        for package in packages {
            options.extend(["--package", package]);
            targets.extend(targets_of(copy, package)?);
        }
        for target in &targets {
            options.extend(["--test", target]);
        }
        let mut ids = Vec::new();
        for file in build(copy, &options)? {
            // The simulator has files of the same names for its own checkers.
            let is_sim = file.package == "dendra-sim";
            if !is_sim || SIM.contains(&file.target.as_str()) {
                ids.extend(tests_of(&file)?);
            }
        }
        let tests = Mutex::new(Vec::new());
        at_once(|at| {
            let Some(id) = ids.get(at) else {
                return Ok(false);
            };
            let notes = copy.join(format!("reached-{at}"));
            if let Some((took, reaches)) = first_run(copy, id, &notes)? {
                let id = id.clone();
                let test = Test { id, took, reaches };
                tests.lock().expect("no holder panics").push(test);
            } else {
                println!("{id} takes too long to judge");
            }
            Ok(true)
        })?;
        let mut tests = tests.into_inner().expect("no holder panics");
        tests.sort_by_key(|test| test.took);
        let copy = copy.to_owned();
        Ok(Judges { copy, tests })
    }

    /// Which test notices the mutant `number`, if any?
    pub(super) fn judge(&self, number: u32) -> Result<Verdict, String> {
        let mut verdict = Verdict::NotReached;
        for test in &self.tests {
            if !test.reaches.contains(&number) {
                continue;
            }
            let patience = test.took * SLOWER + PATIENCE;
            if run(&self.copy, &test.id, number, patience, None)? != Ended::Held {
                let by = test.id.to_string();
                return Ok(Verdict::Caught { by });
            }
            verdict = Verdict::Missed;
        }
        Ok(verdict)
    }
}

/// How long a test takes without a mutant, and which mutants it reaches; `None` if it is too long
/// to judge.
fn first_run(
    copy: &Path,
    id: &TestId,
    notes: &Path,
) -> Result<Option<(Duration, BTreeSet<u32>)>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", notes.display());
    fs::write(notes, "").map_err(failed)?;
    let started = Instant::now();
    let ended = run(copy, id, 0, LONG, Some(notes))?;
    let took = started.elapsed();
    let numbers = fs::read_to_string(notes).map_err(failed)?;
    fs::remove_file(notes).map_err(failed)?;
    let numbers: Result<BTreeSet<u32>, _> = numbers.lines().map(str::parse).collect();
    let numbers = numbers.map_err(|error| format!("{}: {error}", notes.display()))?;
    match ended {
        Ended::Held => Ok(Some((took, numbers))),
        Ended::TooLong => Ok(None),
        Ended::Failed => Err(format!("{id} fails without a mutant")),
    }
}

/// Runs a test with the mutant `number`; it notes in the file `notes` which mutants it reaches.
fn run(
    copy: &Path,
    id: &TestId,
    number: u32,
    patience: Duration,
    notes: Option<&Path>,
) -> Result<Ended, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", id.file.path.display());
    let folder = id.file.package.trim_start_matches("dendra-");
    let seconds = patience.as_secs();
    let limits = format!("ulimit -v {MEMORY_KIB}; ulimit -t {seconds}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &limits])
        .arg(&id.file.path)
        .args(["--exact", &id.name])
        .current_dir(copy.join("crates").join(folder))
        .env("DENDRA_PLANTED", number.to_string())
        .envs(notes.map(|notes| ("DENDRA_REACHED", notes)))
        .envs(SHORT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    // Looks, not the time: both processes may have been stopped for a while.
    for _ in 0..(patience * IDLE).as_millis() / LOOK.as_millis() {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return ended(status).ok_or_else(|| format!("{id} does not start"));
        }
        std::thread::sleep(LOOK);
    }
    child.kill().map_err(failed)?;
    child.wait().map_err(failed)?;
    Ok(Ended::TooLong)
}

/// The meaning of a test's status; `None` if the shell could not start it.
fn ended(status: ExitStatus) -> Option<Ended> {
    const NOT_STARTED: [i32; 2] = [126, 127];
    /// SIGXCPU, and SIGKILL where that is not enough.
    const USED_UP: [i32; 2] = [24, 9];
    let is_used_up = |signal| USED_UP.contains(&signal);
    match (status.code(), status.signal()) {
        (Some(0), _) => Some(Ended::Held),
        (Some(code), _) if NOT_STARTED.contains(&code) => None,
        (_, Some(signal)) if is_used_up(signal) => Some(Ended::TooLong),
        _ => Some(Ended::Failed),
    }
}

/// The tests in a built file.
fn tests_of(file: &BuiltTest) -> Result<Vec<TestId>, String> {
    let failed = |why: &dyn fmt::Display| format!("{}: {why}", file.path.display());
    let mut command = Command::new(&file.path);
    let listed = command.args(["--list", "--format", "terse"]).output();
    let listed = listed.map_err(|error| failed(&error))?;
    if !listed.status.success() {
        return Err(failed(&"it lists no tests"));
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let test = |name: &str| TestId {
        file: file.clone(),
        name: name.to_owned(),
    };
    Ok(names.map(test).collect())
}

/// The files of tests of a package.
fn targets_of(copy: &Path, package: &str) -> Result<Vec<String>, String> {
    let folder = package.trim_start_matches("dendra-");
    let folder = copy.join("crates").join(folder).join("tests");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_target = path.extension().is_some_and(|end| end == "rs");
        if is_target || path.join("main.rs").exists() {
            let name = path.file_stem().unwrap_or_default();
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_script(script: &str) -> Option<Ended> {
        let status = Command::new("sh").args(["-c", script]).status();
        ended(status.expect("there is a shell"))
    }

    #[test]
    fn a_status_tells_how_a_test_ended() {
        assert_eq!(of_script("exit 0"), Some(Ended::Held));
        assert_eq!(of_script("exit 101"), Some(Ended::Failed));
        assert_eq!(of_script("kill -ABRT $$"), Some(Ended::Failed));
        assert_eq!(of_script("kill -XCPU $$"), Some(Ended::TooLong));
        assert_eq!(of_script("exec ./no-such-test"), None);
    }

    #[test]
    fn the_processor_time_of_a_test_is_limited() {
        let endless = "ulimit -t 1; while :; do :; done";
        assert_eq!(of_script(endless), Some(Ended::TooLong));
    }
}
