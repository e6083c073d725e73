//! The tests that judge a mutant: those of its crate, the quickest first, then the simulator.
//!
//! Invariants
//! 1. Without a mutant every test holds, or nothing is judged.
//! 2. A test that takes far more of the processor than without the mutant, or more memory than the
//!    machine should give, has noticed it; so has one that does not end. A busy machine alone makes
//!    no test notice.
//!
//! Not here: which mutants are judged (`mod.rs`).

use crate::planted::finders::{BuiltTest, build};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The engine's tests that take seconds. Its crash tests take minutes.
const ENGINE: [&str; 11] = [
    "damage",
    "door",
    "extent",
    "folder",
    "full_disk",
    "log",
    "model",
    "order",
    "promises",
    "scrub",
    "space",
];

/// Shorter searches than `make test` does: most mutants show at once, and some never do.
const SHORT: [(&str, &str); 4] = [
    ("PROPTEST_CASES", "64"),
    ("DENDRA_TWIN_SEEDS", "1500"),
    ("DENDRA_CHAIN_SEEDS", "500"),
    // The simulator judges what the own tests of a crate miss.
    ("DENDRA_SIM_SEEDS", "150"),
];

/// A test that takes as long as all others of its crate.
const LONG: &str = "chains_of_changes_copy";

/// A test may take as much more of the processor than without a mutant, and this much in any case.
const SLOWER: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// A test that waits for ever is given up after so many times that.
const IDLE: u32 = 8;

/// Memory of one test, in KiB: a changed loop may ask for more than there is.
const MEMORY_KIB: u64 = 4 << 20;

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// These tests notice it.
    Caught {
        by: String,
    },
    Missed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Caught { by } => write!(f, "caught by {by}"),
            Verdict::Missed => f.write_str("MISSED"),
        }
    }
}

/// The built tests and how long they take.
pub(super) struct Judges {
    copy: PathBuf,
    tests: Vec<(BuiltTest, Duration)>,
}

impl Judges {
    /// Builds the tests of `packages`, and runs each once without a mutant.
    pub(super) fn build(copy: &Path, packages: &BTreeSet<&str>) -> Result<Judges, String> {
        let mut options = vec!["--package", "dendra-sim", "--test", "seeds", "--lib"];
        let mut targets = BTreeSet::new();
        for package in packages {
            options.extend(["--package", package]);
            targets.extend(targets_of(copy, package)?);
        }
        for target in &targets {
            options.extend(["--test", target]);
        }
        let mut judges = Judges {
            copy: copy.to_owned(),
            tests: Vec::new(),
        };
        for test in build(copy, &options)? {
            let started = Instant::now();
            if !judges.holds(&test, 0, Duration::from_secs(900))? {
                return Err(format!(
                    "{} {} fails without a mutant",
                    test.package, test.target
                ));
            }
            judges.tests.push((test, started.elapsed()));
        }
        let is_sim = |test: &BuiltTest| test.package == "dendra-sim";
        judges
            .tests
            .sort_by_key(|(test, took)| (is_sim(test), *took));
        Ok(judges)
    }

    /// Which tests notice the mutant `number` of `package`, if any?
    pub(super) fn judge(&self, package: &str, number: u32) -> Result<Verdict, String> {
        for (test, took) in &self.tests {
            let is_judge = test.package == package || test.target == "seeds";
            if is_judge && !self.holds(test, number, *took * SLOWER + PATIENCE)? {
                let by = format!("{} {}", test.package, test.target);
                return Ok(Verdict::Caught { by });
            }
        }
        Ok(Verdict::Missed)
    }

    fn holds(&self, test: &BuiltTest, number: u32, patience: Duration) -> Result<bool, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", test.path.display());
        let folder = test.package.trim_start_matches("dendra-");
        let mut command = Command::new("sh");
        let seconds = patience.as_secs();
        let limits = format!("ulimit -v {MEMORY_KIB}; ulimit -t {seconds}; exec \"$0\" \"$@\"");
        command
            .args(["-c", &limits])
            .arg(&test.path)
            .current_dir(self.copy.join("crates").join(folder))
            .env("DENDRA_PLANTED", number.to_string())
            .envs(SHORT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if test.target == "seeds" {
            command.arg("a_fixed_set");
        } else {
            command.args(["--skip", LONG]);
        }
        let mut child = command.spawn().map_err(failed)?;
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status.success());
            }
            if started.elapsed() > patience * IDLE {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The files of tests of a package that judge.
fn targets_of(copy: &Path, package: &str) -> Result<Vec<String>, String> {
    if package == "dendra-engine" {
        return Ok(ENGINE.map(str::to_owned).to_vec());
    }
    let folder = package.trim_start_matches("dendra-");
    let folder = copy.join("crates").join(folder).join("tests");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_target = path.extension().is_some_and(|end| end == "rs");
        if is_target || path.join("main.rs").exists() {
            let name = path.file_stem().unwrap_or_default();
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(targets)
}
