//! The waiting half of a thread of the driver: until the next instant, until something comes, or both.
//!
//! ```text
//! answers tell when they came ─► look once ─► sleep to the instant, whatever comes      one wake a request
//! they do not                 ─► poll: an answer or the instant, which is first         two
//! no connection is free       ─► poll: an answer                                        one
//! either                      ─► spin the last microseconds
//! ```
//!
//! Invariants
//! 1. Nobody waits for an answer that is slept through: not a request, for there are free connections; not the second
//!    half of an operation; not the server, for answers so short fit the socket.
//! 2. An instant at which a request can leave is never slept through.
//!
//! Not here: what is done with what came (`receive.rs`).

use super::{Worker, system};
use crate::driver::DriveError;
use crate::limits::{SLEPT_ANSWER_BYTES_MAX, SLEPT_NS_MAX, SPIN_NS};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};

const SECOND_NS: u64 = 1_000_000_000;

/// A gap shorter than this is not worth a sleep, which costs about as much.
const SLEEP_NS_MIN: u64 = 3_000;

/// Events that one poll takes.
pub(super) const EVENTS: usize = 256;

/// When the sockets were looked at.
#[derive(Default)]
pub(super) struct Looks {
    /// The last time.
    last_ns: u64,
    /// The time before: what came earlier was seen then.
    before_ns: u64,
    /// Nothing was left at the last look, and nobody slept since.
    is_fresh: bool,
}

impl Looks {
    /// What is read now did not come before this.
    pub(super) fn since_ns(&self) -> u64 {
        self.before_ns
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / SECOND_NS) as i64,
        tv_nsec: (ns % SECOND_NS) as i64,
    }
}

impl Worker<'_> {
    /// Sleeps until something happens or shortly before the next instant, and spins the rest.
    pub(super) fn wait(
        &mut self,
        events: &mut Vec<Event>,
        next_ns: Option<u64>,
        sweep_at_ns: u64,
    ) -> Result<(), DriveError> {
        let now_ns = self.now_ns();
        // What becomes due while no connection is free waits for an answer anyway.
        let next_ns = next_ns.filter(|_| self.free.iter().any(|free| !free.is_empty()));
        let until_ns = next_ns.map_or(sweep_at_ns, |next_ns| next_ns.min(sweep_at_ns));
        let sleep_ns = until_ns.saturating_sub(now_ns + SPIN_NS);
        let sleep_ns = if sleep_ns < SLEEP_NS_MIN { 0 } else { sleep_ns };
        if sleep_ns > 0 && self.may_sleep_through(sleep_ns) {
            if !self.looks.is_fresh {
                self.look(events, now_ns, 0)?;
            } else {
                events.clear();
            }
            if events.is_empty() {
                self.looks.is_fresh = false;
                // A signal ends a sleep: then the next look is early, and nothing else.
                if let NanosleepRelativeResult::Err(errno) = nanosleep(&timespec(sleep_ns)) {
                    return Err(system(errno));
                }
            }
        } else {
            self.look(events, now_ns, sleep_ns)?;
        }
        let Some(next_ns) = next_ns.filter(|_| events.is_empty()) else {
            return Ok(());
        };
        let begin_ns = self.now_ns();
        // Twice the usual rest: a sleep that was not worth it is spun away as well.
        if next_ns > begin_ns && next_ns - begin_ns <= SPIN_NS + SLEEP_NS_MIN {
            let mut at_ns = begin_ns;
            while at_ns < next_ns {
                std::hint::spin_loop();
                at_ns = self.now_ns();
            }
            self.spun_ns += at_ns - begin_ns;
        }
        Ok(())
    }

    /// Does nobody miss what comes meanwhile?
    fn may_sleep_through(&self, sleep_ns: u64) -> bool {
        let has_room = || {
            let targets = self.queues.iter().zip(&self.free);
            targets
                .clone()
                .all(|(queue, free)| queue.is_empty() && !free.is_empty())
        };
        // A stamp is that of the last byte: with several answers in one read it would be that of the last one.
        self.is_stamped
            && self.plan.pipeline == 1
            && sleep_ns <= SLEPT_NS_MAX
            && self.answer_bytes_max <= SLEPT_ANSWER_BYTES_MAX
            && !self.has_second_halves
            && has_room()
    }

    fn look(
        &mut self,
        events: &mut Vec<Event>,
        now_ns: u64,
        wait_ns: u64,
    ) -> Result<(), DriveError> {
        self.looks.before_ns = self.looks.last_ns;
        self.looks.last_ns = now_ns;
        self.poll(events, wait_ns)?;
        self.looks.is_fresh = events.len() < EVENTS;
        Ok(())
    }

    /// What happened to sockets, at once or within this time.
    pub(super) fn poll(&self, events: &mut Vec<Event>, wait_ns: u64) -> Result<(), DriveError> {
        events.clear();
        let timeout = timespec(wait_ns);
        let buffer = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(system(errno)),
        }
    }
}
