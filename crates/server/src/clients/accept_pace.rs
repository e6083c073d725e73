//! How fast connections are accepted: values without a clock.
//!
//! ```text
//!                        pause     behind so many, or eight times as many that had gone    backlog
//! loops have time        1 ms      32                                                      4,096
//! near their target      40 ms     32                                                      32
//! beyond it              50 ms     8                                                       8
//! one had given up in the backlog: 32 for a second more
//! ```
//!
//! Invariants
//! 1. A storm is taken in pieces; the nearer the loops are to their target, the longer the pause
//!    after each.
//! 2. The backlog is short while a loop is near its target, and for [`STALE_FOR`] after a
//!    connection that had given up in it.
//! 3. Beyond the target a connection that is accepted has waited for two pauses at most: the
//!    backlog holds no more than a piece.
//!
//! Not here: sockets (`listener.rs`), how near the loops are (`event_loop/delay.rs`).
//! See: docs/overload.md.

use crate::limits;
use dendra_node::standing::Crowding;
use std::time::{Duration, Instant};

/// Behind connections that waited for so long in the backlog, clients may have given up. A client
/// that closed its sending side behind its request counts as gone no sooner.
const STALE: Duration = limits::CLIENT_LOOK;
/// A backlog in which one had given up is kept short for so long: the next ones are fresh then.
const STALE_FOR: Duration = Duration::from_secs(1);
/// One that is handed over costs as much as so many that are found to be gone.
const LIVE_COSTS: u32 = 8;

/// How many connections the kernel keeps for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backlog {
    Long,
    /// Few: those beyond are dropped, and an accepted client has not waited for long.
    Short,
    /// So many as one piece has beyond the target.
    Piece,
}

impl Backlog {
    pub(super) fn len(self) -> u32 {
        match self {
            Backlog::Long => limits::BACKLOG,
            Backlog::Short => limits::BACKLOG_NEAR,
            Backlog::Piece => limits::ACCEPTS_IN_A_ROW_BEYOND,
        }
    }
}

/// Pace of one listening socket.
pub(super) struct AcceptPace {
    backlog: Backlog,
    in_a_row: u32,
    /// When one was found to be gone.
    gone_at: Option<Instant>,
    /// Since when there was always one more.
    busy_since: Instant,
}

impl AcceptPace {
    pub(super) fn new(now: Instant) -> AcceptPace {
        AcceptPace {
            backlog: Backlog::Long,
            in_a_row: 0,
            gone_at: None,
            busy_since: now,
        }
    }

    /// Is the backlog short?
    pub(super) fn is_short(&self) -> bool {
        self.backlog != Backlog::Long
    }

    /// The new backlog, if it changes.
    pub(super) fn backlog(&mut self, now: Instant, crowding: Crowding) -> Option<Backlog> {
        let is_stale = self.gone_at.is_some_and(|at| now - at < STALE_FOR);
        let backlog = match crowding {
            Crowding::None if !is_stale => Backlog::Long,
            Crowding::None | Crowding::Near => Backlog::Short,
            Crowding::Beyond => Backlog::Piece,
        };
        let changes = backlog != self.backlog;
        self.backlog = backlog;
        changes.then_some(backlog)
    }

    /// How long to wait before the next one, if a piece has been accepted.
    pub(super) fn pause(&mut self, crowding: Crowding) -> Option<Duration> {
        let piece = match crowding {
            Crowding::None | Crowding::Near => limits::ACCEPTS_IN_A_ROW,
            Crowding::Beyond => limits::ACCEPTS_IN_A_ROW_BEYOND,
        };
        if self.in_a_row < piece * LIVE_COSTS {
            return None;
        }
        self.in_a_row = 0;
        Some(match crowding {
            Crowding::None => limits::ACCEPT_PAUSE,
            Crowding::Near => limits::ACCEPT_PAUSE_NEAR,
            Crowding::Beyond => limits::ACCEPT_PAUSE_BEYOND,
        })
    }

    /// The backlog was empty until `now`.
    pub(super) fn rested(&mut self, now: Instant) {
        self.in_a_row = 0;
        self.busy_since = now;
    }

    /// One was accepted: is it handed to a loop? Not when its client `is_gone`.
    pub(super) fn takes(&mut self, now: Instant, is_gone: impl FnOnce() -> bool) -> bool {
        if now - self.busy_since > STALE && is_gone() {
            self.in_a_row += 1;
            self.gone_at = Some(now);
            return false;
        }
        self.in_a_row += LIVE_COSTS;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are handed over, or found to be gone, until the first pause, and that.
    fn piece(crowding: Crowding, is_gone: bool) -> (u32, Duration) {
        let now = Instant::now();
        let mut pace = AcceptPace::new(now);
        let late = now + STALE + Duration::from_millis(1);
        for accepted in 0..10_000 {
            if let Some(pause) = pace.pause(crowding) {
                assert_eq!(pace.pause(crowding), None, "the next piece begins");
                return (accepted, pause);
            }
            assert_eq!(pace.takes(late, || is_gone), !is_gone);
        }
        panic!("10,000 in a row");
    }

    #[test]
    fn a_storm_is_taken_in_pieces_with_a_pause_that_grows_with_the_delay() {
        let (row, beyond) = (limits::ACCEPTS_IN_A_ROW, limits::ACCEPTS_IN_A_ROW_BEYOND);
        for (crowding, row, pause) in [
            (Crowding::None, row, limits::ACCEPT_PAUSE),
            (Crowding::Near, row, limits::ACCEPT_PAUSE_NEAR),
            (Crowding::Beyond, beyond, limits::ACCEPT_PAUSE_BEYOND),
        ] {
            assert_eq!(piece(crowding, false), (row, pause));
        }
        let gone = (beyond * LIVE_COSTS, limits::ACCEPT_PAUSE_BEYOND);
        assert_eq!(piece(Crowding::Beyond, true), gone);
    }

    #[test]
    fn connections_that_come_one_by_one_wait_for_no_pause() {
        let mut now = Instant::now();
        let mut pace = AcceptPace::new(now);
        for _ in 0..1_000 {
            assert_eq!(pace.pause(Crowding::Beyond), None);
            now += Duration::from_millis(1);
            pace.rested(now);
            assert!(pace.takes(now, || true), "a fresh one is not looked at");
        }
    }

    #[test]
    fn the_backlog_is_short_near_the_target_and_a_second_behind_one_that_gave_up() {
        let start = Instant::now();
        let mut pace = AcceptPace::new(start);
        assert_eq!(pace.backlog(start, Crowding::None), None);
        assert_eq!(pace.backlog(start, Crowding::Near), Some(Backlog::Short));
        assert_eq!(pace.backlog(start, Crowding::Beyond), Some(Backlog::Piece));
        assert_eq!(pace.backlog(start, Crowding::Beyond), None);
        assert!(pace.is_short());
        assert_eq!(pace.backlog(start, Crowding::None), Some(Backlog::Long));
        let late = start + STALE + Duration::from_millis(1);
        assert!(!pace.takes(late, || true));
        assert_eq!(pace.backlog(late, Crowding::None), Some(Backlog::Short));
        let nearly = late + STALE_FOR - Duration::from_millis(1);
        assert_eq!(pace.backlog(nearly, Crowding::None), None);
        let over = late + STALE_FOR;
        assert_eq!(pace.backlog(over, Crowding::None), Some(Backlog::Long));
    }
}
