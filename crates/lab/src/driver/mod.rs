//! The driver: sends what the plan says when the plan says it, and never waits for an answer to do so.
//!
//! ```text
//! Plan ──► thread 0: requests 0, T, 2T, …     own epoll, own connections, own recorder
//!     ╲──► thread 1: requests 1, T+1, …       ──► merged ──► Drive
//!
//! due ──► queue of its target ──► free connection ──► written ──► answer
//!         latency counts from here   service from here ┘
//! ```
//!
//! Invariants
//! 1. In an open loop, when and to whom a request goes was fixed before the first one was sent.
//! 2. A request that finds no connection waits, bounded in number and time, and counts. The order in which
//!    they are served is the plan's ([`QueueOrder`]).
//! 3. All threads share one time zero, after all connections were made.
//!
//! Not here: what the figures mean (`verdict.rs`, `experiment/`).
//! See: docs/lab/run-json.md.

mod answer;
mod arrival;
mod connection;
mod patience;
mod worker;

use crate::recorder::PhaseRecord;
use crate::schedule::{Instants, Slope, Spacing};
use crate::source::Source;
use crate::template::Templates;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};
use worker::Worker;

/// A server, as the driver needs it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where to connect to.
    pub socket: SocketAddr,
    /// What to send.
    pub templates: Templates,
}

/// What decides when a request is due.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Stages, phase by phase.
    Open(Spacing),
    /// These instants, nanoseconds, in order.
    Recorded(Arc<[u64]>),
    /// The answer to the one before, until this many were planned or the time is over.
    Closed(Option<u64>),
}

/// Which request gets a connection that becomes free while several wait for one.
///
/// The target sees the same either way: as many clients as there are connections, each of which asks again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The one that has waited longest, as in a pool of connections: nothing is late that need not be.
    OldestFirst,
    /// The one that became due last. Beyond saturation those that wait for longer are clients that found no place; in
    /// the other order each request would wait for its timeout here, and its time would say nothing of the target.
    NewestFirst,
}

/// How a thread waits while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It sleeps until something comes or is due.
    Sleep,
    /// It looks again at once: no answer of a target has to wake it. The time counts as spun.
    Spin,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Phases without a gap between them. In a closed loop only their lengths count.
    pub phases: Vec<Vec<Slope>>,
    /// When.
    pub pace: Pace,
    /// What.
    pub source: Source,
    /// Number of the first request: the runs of a search go on where the one before ended.
    pub first_index: u64,
    /// Whom.
    pub targets: Vec<Asked>,
    /// Connections, all targets together.
    pub connections: u32,
    /// Threads.
    pub threads: u32,
    /// Requests in flight on one connection.
    pub pipeline: u32,
    /// From the planned instant until a request is given up.
    pub timeout: Duration,
    /// Who gets a free connection.
    pub order: QueueOrder,
    /// How threads wait.
    pub idle: Idle,
    /// A request that left later than this although it could have, missed its instant.
    pub lag_limit_us: f64,
    /// Seed of the schedule.
    pub seed: u64,
    /// Keep the numbers of requests that did not do what was asked, up to a million of them.
    pub keeps_failures: bool,
}

/// How it goes, readable at any time.
#[derive(Debug, Default)]
pub struct Progress {
    /// Due so far.
    pub planned: AtomicU64,
    /// Whole answers so far.
    pub answered: AtomicU64,
    /// Refused, failed, broken, timed out.
    pub errors: AtomicU64,
}

/// Two words to a running driver.
#[derive(Debug, Default)]
pub struct StopFlag {
    /// End now; what is in flight may finish.
    pub is_asked: AtomicBool,
}

impl StopFlag {
    /// Was it asked for?
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Relaxed)
    }

    /// Asks for it.
    pub fn ask(&self) {
        self.is_asked.store(true, Relaxed);
    }
}

/// What the driver saw.
#[derive(Debug)]
pub struct Drive {
    /// Phase by phase, all threads together.
    pub phases: Vec<PhaseRecord>,
    /// It was stopped before the plan ended.
    pub is_cut: bool,
    /// The first thing that went wrong with a connection, as a clause.
    pub trouble: Option<String>,
    /// The first answer that refused: its status, and what it said.
    pub refusal: Option<String>,
    /// Number behind the last request that was planned.
    pub next_index: u64,
    /// Numbers of requests that did not do what was asked, if the plan keeps them.
    pub failures: Vec<u64>,
    /// Wall time from time zero, seconds.
    pub length_s: f64,
}

/// Why nothing could be driven.
#[derive(Debug)]
pub enum DriveError {
    /// Not one connection to this target could be made.
    Down {
        /// Which.
        target: usize,
        /// What the system said.
        reason: String,
    },
    /// The system refused what the driver needs itself.
    System(std::io::Error),
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveError::Down { reason, .. } => f.write_str(reason),
            DriveError::System(e) => write!(
                f,
                "the generator cannot start ({e}); raise `ulimit -n`, or use fewer connections"
            ),
        }
    }
}

impl std::error::Error for DriveError {}

/// Instants of one plan; every thread walks over all of them and takes its own.
#[derive(Clone, Debug)]
enum Dues {
    Shape(Instants),
    Recorded(Arc<[u64]>, usize, u64),
}

impl Iterator for Dues {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Dues::Shape(instants) => instants.next(),
            Dues::Recorded(list, at, end_ns) => {
                let due_ns = *list.get(*at)?;
                *at += 1;
                (due_ns < *end_ns).then_some(due_ns)
            }
        }
    }
}

impl Plan {
    /// The instants at which the phases end, nanoseconds.
    pub fn ends_ns(&self) -> Vec<u64> {
        let mut at_s = 0.0;
        let ends = self.phases.iter().map(|stages| {
            at_s += stages.iter().map(|stage| stage.length_s).sum::<f64>();
            (at_s * 1e9).round() as u64
        });
        ends.collect()
    }

    fn dues(&self) -> Option<Dues> {
        match &self.pace {
            Pace::Open(spacing) => {
                let stages = self.phases.iter().flatten().copied().collect();
                Some(Dues::Shape(Instants::new(stages, *spacing, self.seed)))
            }
            Pace::Recorded(list) => {
                let end_ns = self.ends_ns().last().copied().unwrap_or(0);
                Some(Dues::Recorded(list.clone(), 0, end_ns))
            }
            Pace::Closed(_) => None,
        }
    }

    /// All instants of an open loop, in order: what `--record` writes. None in a closed one.
    pub fn instants(&self) -> Option<impl Iterator<Item = u64>> {
        self.dues()
    }

    /// Runs it. `tick` is called about ten times a second on the calling thread.
    ///
    /// # Errors
    /// See [`DriveError`]. What goes wrong after time zero is counted, not returned.
    pub fn drive(
        &self,
        stop: &StopFlag,
        progress: &Progress,
        mut tick: impl FnMut(f64),
    ) -> Result<Drive, DriveError> {
        let threads = self.threads.min(self.connections).max(1);
        let ready = Barrier::new(threads as usize + 1);
        let go = Barrier::new(threads as usize + 1);
        let zero = OnceLock::new();
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            for number in 0..threads {
                let (ready, go, zero, failed) = (&ready, &go, &zero, &failed);
                let spawned = std::thread::Builder::new()
                    .name(format!("driver-{number}"))
                    .spawn_scoped(scope, move || {
                        let made = Worker::connected(self, number, threads);
                        if made.is_err() {
                            failed.store(true, Relaxed);
                        }
                        ready.wait();
                        go.wait();
                        let start = *zero.get_or_init(Instant::now);
                        // One thread without connections: then nobody runs.
                        match made {
                            Ok(worker) if !failed.load(Relaxed) => {
                                worker.run(start, stop, progress).map(Some)
                            }
                            Ok(_) => Ok(None),
                            Err(error) => Err(error),
                        }
                    });
                handles.push(spawned);
            }
            if handles.iter().any(Result::is_err) {
                // The threads that did start wait at a barrier that will never fill: the process is out
                // of threads, and ends.
                let error = handles.into_iter().find_map(Result::err);
                panic!("the system gave no thread: {error:?}");
            }
            ready.wait();
            let start = Instant::now() + Duration::from_millis(5);
            zero.get_or_init(|| start);
            go.wait();
            let handles: Vec<_> = handles.into_iter().flatten().collect();
            while !handles.iter().all(|handle| handle.is_finished()) {
                std::thread::park_timeout(Duration::from_millis(100));
                tick(start.elapsed().as_secs_f64());
            }
            let mut drive = Drive {
                phases: Vec::new(),
                is_cut: false,
                trouble: None,
                refusal: None,
                next_index: self.first_index,
                failures: Vec::new(),
                length_s: start.elapsed().as_secs_f64(),
            };
            let mut error = None;
            for handle in handles {
                match handle.join().expect("a driver thread does not panic") {
                    Ok(Some(seen)) => drive.add(seen),
                    Ok(None) => {}
                    Err(e) => error = Some(e),
                }
            }
            error.map_or(Ok(drive), Err)
        })
    }
}

/// What one thread saw.
struct Seen {
    phases: Vec<PhaseRecord>,
    is_cut: bool,
    trouble: Option<String>,
    refusal: Option<String>,
    next_index: u64,
    failures: Vec<u64>,
}

impl Drive {
    fn add(&mut self, seen: Seen) {
        if self.phases.is_empty() {
            self.phases = seen.phases;
        } else {
            for (ours, theirs) in self.phases.iter_mut().zip(&seen.phases) {
                ours.merge(theirs);
            }
        }
        self.is_cut |= seen.is_cut;
        self.trouble = self.trouble.take().or(seen.trouble);
        self.refusal = self.refusal.take().or(seen.refusal);
        self.failures.extend(seen.failures);
        self.next_index = self.next_index.max(seen.next_index);
    }
}
