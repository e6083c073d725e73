//! The driver: sends requests at the times of the plan, and never waits for an answer to do so.
//!
//! ```text
//! DriverPlan ──► thread 0: requests 0, T, 2T, …     own epoll, own connections, own recorder
//!           ╲──► thread 1: requests 1, T+1, …       ──► merged ──► Drive
//!
//! due ──► queue of its target ──► free connection ──► written ──► answer
//!         latency counts from here   service from here ┘
//! ```
//!
//! Invariants
//! 1. In an open loop, the time and the target of a request were fixed before the first one was
//!    sent.
//! 2. A request that finds no connection waits, bounded in number and time, and counts. The order
//!    in which they are served is the plan's ([`QueueOrder`]).
//! 3. All threads share one time zero, after all connections were made.
//!
//! Not here: the meaning of the figures (`verdict.rs`, `experiment/`).
//! See: docs/lab/run-json.md.

mod answer;
mod arrival;
mod connection;
mod patience;
mod plan;
mod sealed;
mod worker;

pub use plan::{
    ArrivalProcess, DriveError, DriverPlan, DriverTarget, Idle, QueueOrder, RunProgress, StopFlag,
};
pub use sealed::TlsTarget;

use crate::recorder::PhaseRecord;
use plan::ThreadRecord;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};
use worker::DriverWorker;

/// The record of the driver.
#[derive(Debug)]
pub struct Drive {
    /// Phase by phase, all threads together.
    pub phases: Vec<PhaseRecord>,
    /// True when the drive was stopped before the plan ended.
    pub is_cut: bool,
    /// The first thing that went wrong with a connection, as a clause.
    pub trouble: Option<String>,
    /// The first answer that refused: its status, and its text.
    pub refusal: Option<String>,
    /// Number after the last request that was planned.
    pub next_index: u64,
    /// Numbers of requests that failed, if the plan keeps them.
    pub failures: Vec<u64>,
    /// Wall time from time zero, seconds.
    pub length_s: f64,
}

impl DriverPlan {
    /// Runs it. `tick` is called about ten times a second on the calling thread.
    ///
    /// # Errors
    /// See [`DriveError`]. A failure after time zero is counted, not returned.
    pub fn drive(
        &self,
        stop: &StopFlag,
        progress: &RunProgress,
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
                        let made = DriverWorker::connected(self, number, threads);
                        if made.is_err() {
                            failed.store(true, Relaxed);
                        }
                        ready.wait();
                        go.wait();
                        let start = *zero.get_or_init(Instant::now);
                        // One thread without connections: then none runs.
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
                // The threads that did start wait at a barrier that will never fill: the process is
                // out of threads, and ends.
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

impl Drive {
    fn add(&mut self, seen: ThreadRecord) {
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
