//! Builds of later steps, made while tests wait for timers: the cores have time then.
//!
//! ```text
//! tests    a test command ─┐ all of them run tests
//!          a test command ─┴───────► nice cargo …, nice cargo …, one after the other
//! planted, build            ◄─────── their own command, which finds all of it built
//! ```
//!
//! Invariants
//! 1. A build has the lowest priority: a test that can run gets the core.
//! 2. No build begins before all test commands have started their first binary. Until then they
//!    need cargo's lock of the target folder, and would wait for the build.
//! 3. A step does not rely on a build ahead: it runs its own command, and that one decides. An
//!    error here is an error there, with the same words.
//!
//! Not here: which builds, and the commands of the tests (`ci.rs`).

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The lowest priority of POSIX: beside a test that can run it has 15 parts of 1039 of a core.
const LOWEST: [&str; 2] = ["-n", "19"];

/// Kept by a test command until its first test runs, and dropped then, or when it ends.
pub(crate) type Starting = Sender<()>;

/// How one build ended.
pub(crate) struct Built {
    /// Its program and arguments.
    command: String,
    took: Duration,
    /// Why the step must do it again.
    failed: Option<String>,
}

/// A gate for builds; it opens when the sender and all its clones are dropped.
pub(crate) fn gate() -> (Starting, Receiver<()>) {
    channel()
}

/// Waits for the gate, then runs the builds one after the other; one that fails stops no other.
pub(crate) fn build(gate: Receiver<()>, builds: impl FnOnce() -> Vec<Command>) -> Vec<Built> {
    // An error says that all test commands have begun: none sends.
    while gate.recv().is_ok() {}
    builds().into_iter().map(|command| run(&command)).collect()
}

fn run(command: &Command) -> Built {
    let started = Instant::now();
    let mut lowest = at_lowest_priority(command);
    lowest.stdin(Stdio::null()).stdout(Stdio::null());
    // Cargo says a warning or an error again in the step itself.
    let failed = match lowest.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(error) => Some(format!("nice does not start: {error}")),
    };
    Built {
        command: words(command),
        took: started.elapsed(),
        failed,
    }
}

impl Built {
    /// A line of the log.
    pub(crate) fn line(&self) -> String {
        let command: String = self.command.chars().take(60).collect();
        let ended = match &self.failed {
            None => String::new(),
            Some(why) => format!("; {why}: its step says more"),
        };
        format!("ahead {:7.1} s  {command}{ended}", self.took.as_secs_f64())
    }
}

fn words(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command.get_args();
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let words: Vec<String> = std::iter::once(program).chain(arguments).collect();
    words.join(" ")
}

/// The same command behind `nice`.
fn at_lowest_priority(command: &Command) -> Command {
    let mut lowest = Command::new("nice");
    lowest
        .args(LOWEST)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => lowest.env(name, value),
            None => lowest.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        lowest.current_dir(folder);
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_build_has_the_lowest_priority_and_the_folder_and_variables_of_its_command() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = shell("echo \"$A $(nice)\" > said");
        command.current_dir(folder.path()).env("A", "a value");
        let (starting, gate) = gate();
        drop(starting);
        let built = build(gate, || vec![command]);
        assert_eq!(built[0].failed, None);
        let said = fs::read_to_string(folder.path().join("said")).expect("it ran there");
        assert_eq!(said, "a value 19\n");
    }

    #[test]
    fn builds_begin_when_the_last_test_command_has_begun() {
        let (first, gate) = gate();
        let second = first.clone();
        let (asked, was_asked) = channel();
        std::thread::scope(|threads| {
            let built = threads.spawn(move || {
                build(gate, || {
                    asked.send(()).expect("the test waits for it");
                    vec![shell("true")]
                })
            });
            drop(first);
            let early = was_asked.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "one has not begun");
            drop(second);
            assert_eq!(built.join().expect("no panic").len(), 1);
        });
        assert_eq!(was_asked.try_recv(), Ok(()));
    }

    #[test]
    fn a_build_that_fails_is_named_and_stops_no_other() {
        let (starting, gate) = gate();
        drop(starting);
        let built = build(gate, || vec![shell("exit 3"), shell("exit 0")]);
        assert!(built[0].line().contains("sh -c exit 3; exit status: 3"));
        assert_eq!(built[1].failed, None);
    }
}
