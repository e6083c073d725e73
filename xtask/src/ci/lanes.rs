//! Test programs side by side: those that wait for timers beside those that need a core.
//!
//! ```text
//! two lanes    waiting, the longest first ─► then from the other queue
//! one lane     the others, as cargo lists them ─► then from the first queue
//! alone        one job after the other, when all lanes are empty
//! ```
//!
//! Invariants
//! 1. Every job runs once, whichever lane takes it.
//! 2. The output of a job is shown whole, when it has ended.
//!
//! Not here: which programs there are (`built.rs`), the meaning of their output (`mod.rs`).

use std::collections::VecDeque;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const NO_PANIC: &str = "no holder panics";

/// A command that runs tests.
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Command,
}

/// Runs all jobs; `see` is called for one ended job at a time.
pub(super) fn run(
    waiting: Vec<Job>,
    others: Vec<Job>,
    see: impl FnMut(&str, std::io::Result<Output>) + Send,
) {
    let queues = [waiting, others].map(|jobs| Mutex::new(VecDeque::from(jobs)));
    let take = |queue: &Mutex<VecDeque<Job>>| queue.lock().expect(NO_PANIC).pop_front();
    let see = Mutex::new(see);
    let lane = |own: usize| {
        while let Some(mut job) = take(&queues[own]).or_else(|| take(&queues[1 - own])) {
            let (output, took) = run_one(&mut job);
            let mut see = see.lock().expect(NO_PANIC);
            say(&job, took);
            (*see)(&job.name, output);
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| lane(0));
        threads.spawn(|| lane(0));
        lane(1);
    });
}

/// Runs one job after the other.
pub(super) fn run_alone(jobs: Vec<Job>, mut see: impl FnMut(&str, std::io::Result<Output>)) {
    for mut job in jobs {
        let (output, took) = run_one(&mut job);
        say(&job, took);
        see(&job.name, output);
    }
}

fn run_one(job: &mut Job) -> (std::io::Result<Output>, Duration) {
    let began = Instant::now();
    (job.command.output(), began.elapsed())
}

fn say(job: &Job, took: Duration) {
    println!("\n-- {}, {:.1} s", job.name, took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echoes(words: &[&str]) -> Vec<Job> {
        let job = |word: &&str| {
            let mut command = Command::new("echo");
            command.arg(word);
            Job {
                name: (*word).to_owned(),
                command,
            }
        };
        words.iter().map(job).collect()
    }

    #[test]
    fn every_job_runs_once_and_its_output_is_its_own() {
        for (waiting, others) in [
            (vec!["a", "b", "c"], vec!["d"]),
            (vec![], vec!["a", "b", "c", "d"]),
            (vec!["d", "c", "b", "a"], vec![]),
        ] {
            let mut seen = Vec::new();
            run(echoes(&waiting), echoes(&others), |name, output| {
                let output = output.expect("it starts");
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert_eq!(said, format!("{name}\n"));
                seen.push(name.to_owned());
            });
            seen.sort();
            assert_eq!(seen, ["a", "b", "c", "d"]);
        }
    }

    #[test]
    fn a_job_that_cannot_start_is_seen() {
        let command = Command::new("no-such-program-of-dendra");
        let name = "none".to_owned();
        let mut failed = 0;
        run(vec![Job { name, command }], Vec::new(), |_, output| {
            failed += usize::from(output.is_err());
        });
        assert_eq!(failed, 1);
    }
}
