//! Builds of later steps, made while tests wait for timers: the cores have time then.
//!
//! ```text
//! tests    a test command ─┐ all of them run tests
//!          a test command ─┴───────► chrt cargo …, chrt cargo …, one after the other
//! planted, build            ◄─────── their own command, which finds all of it built
//! ```
//!
//! Invariants
//! 1. A build is of the class SCHED_IDLE: a test that can run gets the core at once. A nice build
//!    might keep it to the end of its slice, 3 ms, and some tests look at less.
//! 2. No build begins before all test commands have started their first binary. Until then they
//!    need cargo's lock of the target folder, and would wait for the build.
//! 3. All builds have ended after `LONGEST`.
//! 4. A step does not rely on a build ahead: it runs its own command, and that one decides. An
//!    error here is an error there, with the same words.
//!
//! Not here: which builds, and the commands of the tests (`ci.rs`).

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Of util-linux. Without it nothing is built ahead, and the steps take longer.
const LOWEST: [&str; 3] = ["chrt", "-i", "0"];

/// All builds end after this time, and the steps go on from there: beside other programs that keep
/// all cores busy they would hardly go on. On two quiet cores they need about 12 minutes.
const LONGEST: Duration = Duration::from_secs(15 * 60);

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
    let started = Instant::now();
    let run = |command: Command| run(&command, LONGEST.saturating_sub(started.elapsed()));
    builds().into_iter().map(run).collect()
}

fn run(command: &Command, longest: Duration) -> Built {
    let started = Instant::now();
    let mut lowest = at_lowest_priority(command, longest);
    lowest.stdin(Stdio::null()).stdout(Stdio::null());
    // Cargo says a warning or an error again in the step itself.
    let failed = match lowest.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(error) => Some(format!("timeout does not start: {error}")),
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
            Some(why) => format!("; {why}: its step does it again"),
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

/// The same command behind `chrt`, ended after `longest` with all that it started.
fn at_lowest_priority(command: &Command, longest: Duration) -> Command {
    // No time at all would mean none to `timeout`.
    let seconds = longest.as_secs().max(1).to_string();
    let mut lowest = Command::new("timeout");
    lowest
        .args(["-k", "5", &seconds])
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
        let mut command = shell("echo \"$A $(cut -d ' ' -f 41 /proc/$$/stat)\" > said");
        command.current_dir(folder.path()).env("A", "a value");
        let (starting, gate) = gate();
        drop(starting);
        let built = build(gate, || vec![command]);
        assert_eq!(built[0].failed, None);
        let said = fs::read_to_string(folder.path().join("said")).expect("it ran there");
        let idle = 5;
        assert_eq!(said, format!("a value {idle}\n"));
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
    fn a_build_that_takes_too_long_is_ended() {
        let built = run(&shell("exec tail -f /dev/null"), Duration::ZERO);
        assert!(built.failed.is_some());
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
