//! The driver's orders, and the words that go to and fro while it carries them out.
//!
//! Invariants
//! 1. The instants of an open loop depend on the plan alone, and not on answers.
//!
//! Not here: doing it (`mod.rs`, `worker/`).

use super::sealed::TlsTarget;
use crate::recorder::{PhaseRecord, Redirects};
use crate::schedule::{Instants, Slope, Spacing};
use crate::source::RequestSource;
use crate::template::Templates;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A server, as the driver needs it.
#[derive(Clone, Debug)]
pub struct DriverTarget {
    /// Where to connect to.
    pub socket: SocketAddr,
    /// The bytes to send.
    pub templates: Templates,
    /// How it is sealed; `None` = clear text.
    pub tls: Option<TlsTarget>,
}

/// The rule by which a request is due.
#[derive(Clone, Debug)]
pub enum ArrivalProcess {
    /// Stages, phase by phase.
    Open(Spacing),
    /// Requests are due at these instants, nanoseconds, in order.
    Recorded(Arc<[u64]>),
    /// The answer to the one before, until this many were planned or the time is over.
    Closed(Option<u64>),
}

/// Which request gets a connection that becomes free while several wait for one.
///
/// The target sees the same either way: as many clients as there are connections, each of which
/// asks again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The one that has waited longest, as in a pool of connections: no request is late that need
    /// not be.
    OldestFirst,
    /// The one that became due last. Beyond saturation those that wait for longer are clients that
    /// found no place. In the other order each request would wait for its timeout here, and its
    /// time would be no measure of the target.
    NewestFirst,
}

/// How a thread waits while there is no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The thread sleeps until something comes or is due.
    Sleep,
    /// The thread looks again at once: no answer of a target has to wake it. The time counts as
    /// spun.
    Spin,
}

/// The orders to the driver.
#[derive(Clone, Debug)]
pub struct DriverPlan {
    /// Phases without a gap between them. In a closed loop only their lengths count.
    pub phases: Vec<Vec<Slope>>,
    /// When.
    pub pace: ArrivalProcess,
    /// The requests.
    pub source: RequestSource,
    /// Number of the first request: the runs of a search go on where the one before ended.
    pub first_index: u64,
    /// The targets.
    pub targets: Vec<DriverTarget>,
    /// Connections, all targets together.
    pub connections: u32,
    /// Threads.
    pub threads: u32,
    /// Requests in flight on one connection.
    pub pipeline: u32,
    /// From the planned instant until a request is given up.
    pub timeout: Duration,
    /// Which request gets a free connection.
    pub order: QueueOrder,
    /// How threads wait.
    pub idle: Idle,
    /// A request that left later than this although it could have, missed its instant.
    pub lag_limit_us: f64,
    /// Seed of the schedule.
    pub seed: u64,
    /// Keep the numbers of requests that failed, up to a million of them.
    pub keeps_failures: bool,
    /// What a redirect means.
    pub redirects: Redirects,
}

/// How it goes, readable at any time.
#[derive(Debug, Default)]
pub struct RunProgress {
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
    /// End now; requests in flight may finish.
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

/// Why no load could be driven.
#[derive(Debug)]
pub enum DriveError {
    /// Not one connection to this target could be made.
    Down {
        /// Which.
        target: usize,
        /// The system's error.
        reason: String,
    },
    /// The system refused a resource that the driver needs itself.
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
pub(super) enum Dues {
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

impl DriverPlan {
    /// The instants at which the phases end, nanoseconds.
    pub fn ends_ns(&self) -> Vec<u64> {
        let mut at_s = 0.0;
        let ends = self.phases.iter().map(|stages| {
            at_s += stages.iter().map(|stage| stage.length_s).sum::<f64>();
            (at_s * 1e9).round() as u64
        });
        ends.collect()
    }

    /// The instants of an open loop.
    pub(super) fn dues(&self) -> Option<Dues> {
        match &self.pace {
            ArrivalProcess::Open(spacing) => {
                let stages = self.phases.iter().flatten().copied().collect();
                Some(Dues::Shape(Instants::new(stages, *spacing, self.seed)))
            }
            ArrivalProcess::Recorded(list) => {
                let end_ns = self.ends_ns().last().copied().unwrap_or(0);
                Some(Dues::Recorded(list.clone(), 0, end_ns))
            }
            ArrivalProcess::Closed(_) => None,
        }
    }

    /// All instants of an open loop, in order, for `--record`. None in a closed one.
    pub fn instants(&self) -> Option<impl Iterator<Item = u64>> {
        self.dues()
    }
}

/// The record of one thread.
pub(super) struct ThreadRecord {
    pub(super) phases: Vec<PhaseRecord>,
    pub(super) is_cut: bool,
    pub(super) trouble: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) next_index: u64,
    pub(super) failures: Vec<u64>,
}
