//! The waiting half of a thread of the driver: until the next instant, until something comes, or
//! both.
//!
//! ```text
//! answers tell when they came ─► sleep to the instant, whatever comes; look now and then      one wake a request
//! they do not                 ─► poll: an answer or the instant, which is first               two
//! no connection is free       ─► poll: an answer                                              one
//! and many requests are due   ─► sleep for a moment, look                                     none an answer
//! either                      ─► spin the last microseconds
//! the plan says so            ─► poll without a rest
//! ```
//!
//! Invariants
//! 1. No part waits for an answer that is slept through. A request does not, for there are free
//!    connections; beyond the knee it waits for one anyway, and for `NAP_NS_BEYOND` more. Nor does
//!    the second half of an operation, or of a request that is longer than the socket. Nor does the
//!    server, for answers so short fit the socket. An answer that ends with the connection has no
//!    stamp, and is not slept through.
//! 2. An instant at which a request can leave is never slept through.
//!
//! Not here: the use of the bytes that came (`receive.rs`).

use super::looks::EVENTS;
use super::{DriverWorker, system};
use crate::driver::plan::{DriveError, Idle};
use crate::limits::{
    NAP_IN_FLIGHT_MIN, NAP_NS_BEYOND, SLEPT_ANSWER_BYTES_MAX, SLEPT_ANSWERS_MAX, SLEPT_NS_MAX,
    SPIN_NS,
};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;

/// A gap shorter than this is not worth a sleep, which costs about as much.
const SLEEP_NS_MIN: u64 = 3_000;

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / SECOND_NS) as i64,
        tv_nsec: (ns % SECOND_NS) as i64,
    }
}

/// Sleeps for so long. A signal ends a sleep: then only the next look is early.
fn doze(ns: u64) -> Result<(), DriveError> {
    match nanosleep(&timespec(ns)) {
        NanosleepRelativeResult::Err(errno) => Err(system(errno)),
        _ => Ok(()),
    }
}

/// Do requests wait for a connection at each target? `waiting` and `free`: how many, by target.
fn is_beyond(waiting: impl Iterator<Item = usize>, free: impl Iterator<Item = usize>) -> bool {
    waiting
        .zip(free)
        .all(|(waiting, free)| waiting > 0 && free == 0)
}

impl DriverWorker<'_> {
    /// Sleeps until something happens or shortly before the next instant, and spins the rest.
    pub(super) fn wait(
        &mut self,
        events: &mut Vec<Event>,
        next_ns: Option<u64>,
        sweep_at_ns: u64,
    ) -> Result<(), DriveError> {
        let now_ns = self.now_ns();
        if self.plan.idle == Idle::Spin {
            self.look(events, now_ns, 0)?;
            if events.is_empty() {
                self.spun_ns += self.now_ns() - now_ns;
            }
            return Ok(());
        }
        if self.may_nap() {
            self.look(events, now_ns, 0)?;
            if events.is_empty() {
                doze(NAP_NS_BEYOND)?;
            }
            return Ok(());
        }
        // A request that becomes due while no connection is free waits for an answer anyway; one
        // that is due already is behind its plan.
        let is_free = self.free.iter().any(|free| !free.is_empty());
        let next_ns = next_ns.filter(|&next_ns| is_free || next_ns <= now_ns);
        // A sweep may be late, an instant may not.
        let until_ns = next_ns
            .filter(|&next_ns| next_ns <= sweep_at_ns + SLEPT_NS_MAX)
            .unwrap_or(sweep_at_ns);
        let gap_ns = until_ns.saturating_sub(now_ns);
        let misses_nothing = self.may_sleep_through();
        let spin_ns = match next_ns {
            Some(next_ns) if next_ns == until_ns && misses_nothing => self.lateness.spin_ns(),
            Some(next_ns) if next_ns == until_ns => SPIN_NS,
            _ => 0,
        };
        let sleep_ns = gap_ns.saturating_sub(spin_ns);
        let sleep_ns = if sleep_ns < SLEEP_NS_MIN { 0 } else { sleep_ns };
        if sleep_ns == 0 && gap_ns >= SPIN_NS + SLEEP_NS_MIN {
            self.lateness.doubt();
        }
        let asleep_ns = if misses_nothing && gap_ns <= SLEPT_NS_MAX {
            events.clear();
            if self.must_look(until_ns) {
                self.look(events, now_ns, 0)?;
            }
            let asleep_ns = self.now_ns();
            if events.is_empty() && sleep_ns > 0 {
                doze(sleep_ns)?;
            }
            asleep_ns
        } else {
            self.look(events, now_ns, sleep_ns)?;
            now_ns
        };
        let Some(next_ns) = next_ns.filter(|_| events.is_empty()) else {
            return Ok(());
        };
        let begin_ns = self.now_ns();
        if misses_nothing && sleep_ns > 0 {
            self.lateness.learn(begin_ns - asleep_ns, sleep_ns);
        }
        // More than the usual rest: a sleep that was not worth it is spun away as well.
        if next_ns > begin_ns && next_ns - begin_ns <= spin_ns + SLEEP_NS_MIN {
            let mut at_ns = begin_ns;
            while at_ns < next_ns {
                std::hint::spin_loop();
                at_ns = self.now_ns();
            }
            self.spun_ns += at_ns - begin_ns;
        }
        Ok(())
    }

    /// May answers that come meanwhile wait?
    fn may_sleep_through(&self) -> bool {
        let mut targets = self.queues.iter().zip(&self.free);
        self.may_answers_wait() && targets.all(|(queue, free)| queue.is_empty() && !free.is_empty())
    }

    /// May answers wait for a moment, because requests wait for a connection for much longer?
    fn may_nap(&self) -> bool {
        self.in_flight >= NAP_IN_FLIGHT_MIN
            && self.may_answers_wait()
            && is_beyond(
                self.queues.iter().map(VecDeque::len),
                self.free.iter().map(VecDeque::len),
            )
    }

    /// Only the time of the reader depends on when they are read.
    fn may_answers_wait(&self) -> bool {
        // A stamp is that of the last byte: with several answers in one read it would be that of
        // the last one.
        self.is_stamped
            && self.plan.pipeline == 1
            && self.answer_bytes_max <= SLEPT_ANSWER_BYTES_MAX
            && !self.reads_at_once
    }

    /// Would answers be slept through for too long, or too many of them?
    fn must_look(&self, until_ns: u64) -> bool {
        self.looks.is_partial
            || until_ns > self.looks.last_ns + SLEPT_NS_MAX
            || self.planned - self.looks.planned >= SLEPT_ANSWERS_MAX
    }

    /// Reads the bytes that came, before anything is judged by the time: an answer that was slept
    /// through may have come in time.
    pub(super) fn catch_up(
        &mut self,
        events: &mut Vec<Event>,
        buffer: &mut [u8],
    ) -> Result<(), DriveError> {
        // Each look shows different connections; those that are ready again may wait.
        for _ in 0..=self.connections.len() / EVENTS {
            self.look(events, self.now_ns(), 0)?;
            self.take_events(events, buffer);
            if !self.looks.is_partial {
                break;
            }
        }
        Ok(())
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
        self.looks.planned = self.planned;
        self.looks.is_partial = events.len() == EVENTS;
        Ok(())
    }

    /// The events of sockets, at once or within this time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_wait_where_requests_wait_for_a_connection_of_each_target() {
        let is_beyond = |waiting: &[usize], free: &[usize]| {
            is_beyond(waiting.iter().copied(), free.iter().copied())
        };
        assert!(is_beyond(&[1], &[0]));
        assert!(is_beyond(&[5, 1], &[0, 0]));
        assert!(
            !is_beyond(&[0], &[0]),
            "the next answer frees a connection for no request"
        );
        assert!(!is_beyond(&[5, 0], &[0, 3]));
        assert!(!is_beyond(&[5, 1], &[0, 1]));
    }
}
