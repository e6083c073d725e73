//! An operator's look for copies that differ, between the admin plane and the first loop.
//!
//! ```text
//! admin plane ─ begin ─► | one look | ─ next ─► steward's home ─ Event::Look ─► keeper
//!             ─ seen  ─►             ◄─ note ─ LookReport, once a sweep ────────┘
//!   not asked for LOOK_PATIENCE_US ─► Event::Look without an order: it ends
//! ```
//!
//! Invariants
//! 1. One look at a time. Its report stays until the next one begins.
//! 2. A look lasts no longer than its client asks for it.
//!
//! Not here: looking (crate `node`, `compare/look.rs`), bytes (`admin/cluster/look.rs`).
//! See: docs/operating.md, "Copies that differ".

use crate::limits::LOOK_PATIENCE_US;
use dendra_node::step::Event;
use dendra_node::{LookOrder, LookReport};
use dendra_ownership::MemberIndex;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LookOffice(Mutex<Option<LookDesk>>);

#[derive(Debug)]
struct LookDesk {
    seen: LookSeen,
    /// Not told to the keeper yet.
    order: Option<LookOrder>,
    asked_us: u64,
}

/// A look as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookSeen {
    pub(crate) state: LookState,
    pub(crate) report: LookReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookState {
    Running,
    Ended,
    /// The look's client did not ask for it any more.
    GivenUp,
}

impl LookOffice {
    /// Begins a look. `Err` = the id of the one under way.
    pub(crate) fn begin(
        &self,
        peers: Vec<MemberIndex>,
        bytes_per_second: u64,
        now_us: u64,
    ) -> Result<LookSeen, u64> {
        let mut desk = self.hold();
        let last = desk.as_ref().map(|desk| &desk.seen);
        if let Some(seen) = last.filter(|seen| seen.state == LookState::Running) {
            return Err(seen.report.id);
        }
        let order = LookOrder {
            // Of no earlier look, nor of one of an earlier process.
            id: last.map_or(0, |seen| seen.report.id + 1).max(now_us),
            peers,
            bytes_per_second,
        };
        let seen = LookSeen {
            state: LookState::Running,
            report: LookReport::of(&order),
        };
        *desk = Some(LookDesk {
            seen: seen.clone(),
            order: Some(order),
            asked_us: now_us,
        });
        Ok(seen)
    }

    /// How far the look is, for its client, which waits for it.
    pub(crate) fn seen(&self, id: u64, now_us: u64) -> Option<LookSeen> {
        let mut desk = self.hold();
        let desk = desk.as_mut().filter(|desk| desk.seen.report.id == id)?;
        desk.asked_us = now_us;
        Some(desk.seen.clone())
    }

    /// The next event for the keeper.
    pub(crate) fn next(&self, now_us: u64) -> Option<Event> {
        let mut desk = self.hold();
        let desk = desk.as_mut()?;
        let is_late = now_us >= desk.asked_us.saturating_add(LOOK_PATIENCE_US);
        if desk.seen.state == LookState::Running && is_late {
            desk.seen.state = LookState::GivenUp;
            desk.order = None;
            return Some(Event::Look { order: None });
        }
        let order = Some(desk.order.take()?);
        Some(Event::Look { order })
    }

    /// The keeper has found something.
    pub(crate) fn note(&self, report: LookReport) {
        let mut desk = self.hold();
        let running = desk.as_mut().filter(|held| {
            held.seen.state == LookState::Running && held.seen.report.id == report.id
        });
        if let Some(running) = running {
            running.seen.state = if report.is_over {
                LookState::Ended
            } else {
                LookState::Running
            };
            running.seen.report = report;
        }
    }

    fn hold(&self) -> MutexGuard<'_, Option<LookDesk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [MemberIndex; 1] = [MemberIndex(1)];

    #[test]
    fn a_look_is_told_once_and_stays_until_the_next_one() {
        let looks = LookOffice::default();
        assert_eq!(looks.seen(5, 5), None);
        let begun = looks
            .begin(PEERS.to_vec(), 9, 5)
            .expect("none is under way");
        let id = begun.report.id;
        assert_eq!(looks.begin(PEERS.to_vec(), 9, 6), Err(id));
        let told = |event| match event {
            Some(Event::Look { order }) => order.map(|order| order.id),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(looks.next(6)), Some(id));
        assert!(looks.next(7).is_none());
        let mut report = begun.report.clone();
        report.is_over = true;
        looks.note(report.clone());
        let ended = looks.seen(id, 8).expect("it is known");
        assert_eq!((ended.state, ended.report), (LookState::Ended, report));
        assert!(looks.next(8 + LOOK_PATIENCE_US).is_none(), "it has ended");
        let next = looks.begin(PEERS.to_vec(), 9, 5).expect("it has ended");
        assert!(next.report.id > id);
        assert_eq!(looks.seen(id, 9), None);
    }

    #[test]
    fn a_look_ends_when_its_client_does_not_ask_for_it() {
        let looks = LookOffice::default();
        let id = looks.begin(PEERS.to_vec(), 9, 5).expect("none").report.id;
        assert!(matches!(
            looks.next(5),
            Some(Event::Look { order: Some(_) })
        ));
        let asked_us = LOOK_PATIENCE_US;
        assert!(looks.seen(id, asked_us).is_some());
        assert!(looks.next(asked_us + LOOK_PATIENCE_US - 1).is_none());
        let late = looks.next(asked_us + LOOK_PATIENCE_US);
        assert!(matches!(late, Some(Event::Look { order: None })));
        let seen = looks.seen(id, asked_us).expect("it is known");
        assert_eq!(seen.state, LookState::GivenUp);
        looks.note(LookReport {
            is_over: true,
            ..seen.report.clone()
        });
        assert_eq!(looks.seen(id, asked_us), Some(seen), "it was cut");
    }
}
