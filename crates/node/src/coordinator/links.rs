//! Too few owners can be asked: a link that was lost a moment ago is waited for, any other is not.
//!
//! ```text
//! begin, or a round failed before anything that changes the key had left ─► links?
//!     enough  ─► go on; the failure stands, unless one of them came up during the round
//!     too few, enough with those that are expected ─► Links ─ link up ─► begin
//!                                                           └ no longer expected, deadline ─► Unreachable
//!     too few ─► Unreachable
//! ```
//!
//! Invariants
//! 1. An operation waits only while nothing that changes the key has left: it begins anew, and is applied at most once.
//! 2. It waits no longer than its deadline, nor than somebody is expected: `LINK_GRACE_US` behind the last news.
//!
//! Not here: who is expected (`health.rs`).
//! See: docs/consistency.md.

use super::{Fate, Intent, Op, Stage};
use crate::desk::{Desk, Turn};
use crate::health::Links;
use crate::ledger::NEVER;
use crate::member::MemberIndex;
use crate::outcome::{Known, Outcome};
use crate::places::Places;

impl Op {
    /// Owners that have to answer the whole operation.
    fn owners_needed(&self) -> u8 {
        match self.paxos {
            Some(_) => self.quorum.ack().max(self.majority()),
            None => self.quorum.ack(),
        }
    }

    fn links(&self, desk: &Desk, turn: &Turn<'_>) -> Links {
        let now_us = turn.now.mono_us;
        let needed = self.owners_needed();
        desk.health.links(self.owners(desk), needed, now_us)
    }

    /// What becomes of an operation for which there are too few links; `None` when there are enough. Requires: nothing
    /// that changes the key has left.
    pub(super) fn check_links(&mut self, desk: &Desk, turn: &mut Turn<'_>) -> Option<Fate> {
        match self.links(desk, turn) {
            Links::Enough => None,
            Links::Awaited { until_us, .. } => Some(self.await_links(until_us)),
            Links::Lacking { up, missing } => {
                self.tell_unreachable(turn, up, missing);
                Some(Fate::Over)
            }
        }
    }

    /// A round failed. If that may be for a link which is expected back, it is waited for; one that came up during the
    /// round, when its member had been passed over, is used.
    pub(super) fn fail_or_wait(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let known = self.known_if_failed();
        let now = match known {
            Known::NotApplied => Some(self.links(desk, turn)),
            Known::Unknown => None,
        };
        match now {
            Some(Links::Awaited { until_us, .. }) => self.await_links(until_us),
            Some(Links::Enough) if desk.health.came_up(self.owners(desk), self.since_us) => {
                self.await_links(NEVER);
                self.begin(desk, turn)
            }
            _ => {
                self.fail(desk, turn, known);
                Fate::Over
            }
        }
    }

    fn await_links(&mut self, until_us: u64) -> Fate {
        self.begin_round(Stage::Links);
        if self.intent == Intent::Get {
            // It reads anew.
            self.cell = None;
            self.known = None;
        }
        self.holders = Places::NONE;
        self.older = Places::NONE;
        self.damaged = Places::NONE;
        self.alarm_us = until_us;
        Fate::Goes
    }

    /// The time is over while links are missing.
    pub(super) fn refuse_for_links(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        match self.links(desk, turn) {
            Links::Awaited { up, missing, .. } | Links::Lacking { up, missing } => {
                self.tell_unreachable(turn, up, missing);
            }
            // They came up in this very step.
            Links::Enough => self.tell(turn, Outcome::DeadlinePassed, None),
        }
    }

    fn tell_unreachable(&mut self, turn: &mut Turn<'_>, up: u8, missing: MemberIndex) {
        let outcome = Outcome::Unreachable {
            up,
            needed: self.owners_needed(),
            from: self.quorum.from(),
            missing,
        };
        self.tell(turn, outcome, None);
    }
}
