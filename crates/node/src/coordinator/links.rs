//! Too few owners can be asked: a link that was lost a moment ago is waited for, any other is not.
//!
//! ```text
//! begin, or a round failed before anything of its own that changes the key had left ─► links?
//!     enough  ─► go on, or the failure stands
//!     too few, enough with those that are expected ─► Links ─ link up ─► begin
//!                                                           └ no longer expected, deadline ─► Unreachable
//!     too few ─► Unreachable
//! link up during a round that goes without its member ─► that one is asked, too
//! ```
//!
//! Invariants
//! 1. An operation waits only while nothing of its own that changes the key has left: it begins anew, and is applied at most once.
//! 2. Who is asked once more is asked the same: the cell under its one version, the ballot under its own.
//! 3. It waits no longer than its deadline, nor than somebody is expected: `LINK_GRACE_US` behind the last news.
//!
//! Not here: who is expected (`health.rs`).
//! See: docs/protocol.md.

use super::write::write;
use super::{Fate, Intent, Op, Stage};
use crate::desk::{Desk, Turn};
use crate::health::Links;
use crate::member::MemberIndex;
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use dendra_base::peer::Ask;

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

    /// As `check_links`, of the owners that are not at `full`: those would refuse.
    pub(super) fn check_links_without(
        &mut self,
        desk: &Desk,
        turn: &mut Turn<'_>,
        full: Places,
    ) -> Option<Fate> {
        if full.is_empty() {
            return self.check_links(desk, turn);
        }
        let places = self.everybody().without(full);
        let members: Vec<MemberIndex> = places
            .iter()
            .map(|place| self.owners(desk)[usize::from(place)])
            .collect();
        let needed = self.owners_needed();
        let links = desk.health.links(&members, needed, turn.now.mono_us);
        self.go_by_links(turn, links)
    }

    /// What becomes of an operation for which there are too few links; `None` when there are enough. Requires: nothing
    /// that changes the key has left.
    pub(super) fn check_links(&mut self, desk: &Desk, turn: &mut Turn<'_>) -> Option<Fate> {
        let links = self.links(desk, turn);
        self.go_by_links(turn, links)
    }

    fn go_by_links(&mut self, turn: &mut Turn<'_>, links: Links) -> Option<Fate> {
        match links {
            Links::Enough => None,
            Links::Awaited { until_us, .. } => Some(self.await_links(until_us)),
            Links::Lacking { up, missing } => {
                self.tell_unreachable(turn, up, missing);
                Some(Fate::Over)
            }
        }
    }

    /// A round failed. If that may be for a link which is expected back, it is waited for.
    pub(super) fn fail_or_wait(&mut self, desk: &Desk, turn: &mut Turn<'_>) -> Fate {
        let known = self.known_if_failed();
        match self.links(desk, turn) {
            Links::Awaited { until_us, .. } if known == Known::NotApplied => {
                self.await_links(until_us)
            }
            _ => {
                self.fail(desk, turn, known);
                Fate::Over
            }
        }
    }

    /// Does this operation go without a member to which a link has come up? It does if it waits for links, or asked that
    /// one in the round under way and got no answer that counts.
    pub(crate) fn goes_without(&self, desk: &Desk, member: MemberIndex) -> bool {
        let Some(place) = self.place_of(desk, member) else {
            return false;
        };
        // Who answered the round before what is written back now has not confirmed it by that.
        let confirmed = match self.stage {
            Stage::WriteBack | Stage::Finish => self.holders,
            _ => self.good,
        };
        let is_done = self.pending.or(confirmed).or(self.damaged).has(place);
        let is_counted_out = self.asked.has(place) && !is_done;
        match self.stage {
            Stage::Links => true,
            Stage::Clock | Stage::Read => is_counted_out && !self.is_settled,
            Stage::Prepare | Stage::Accept | Stage::Write | Stage::WriteBack | Stage::Finish => {
                is_counted_out
            }
            Stage::Begin | Stage::Queue | Stage::Cover | Stage::BackOff => false,
        }
    }

    /// A link to a member that this operation goes without has come up: it is asked what the others were asked.
    pub(crate) fn go_on_with(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        member: MemberIndex,
    ) -> Fate {
        let Some(place) = self.place_of(desk, member) else {
            return Fate::Goes;
        };
        self.links_back += 1;
        let key = self.key.clone();
        let ask = match (self.stage, &self.paxos, &self.cell) {
            (Stage::Links, ..) => return self.begin(desk, turn),
            (Stage::Clock, ..) => {
                self.asked.remove(place);
                desk.unclocked.push(self.id);
                return Fate::Goes;
            }
            (Stage::Read, ..) => {
                let known = self.known;
                Ask::Read { key, known }
            }
            (Stage::Prepare, Some(paxos), _) => {
                let ballot = paxos.ballot();
                Ask::Prepare { key, ballot }
            }
            (Stage::Accept, Some(paxos), _) => match paxos.proposal() {
                Some(proposal) => Ask::Accept { key, proposal },
                None => return Fate::Goes,
            },
            (Stage::Write | Stage::WriteBack | Stage::Finish, _, Some(cell)) => {
                // It may have stored it the first time.
                self.again.insert(place);
                self.full.remove(place);
                write(&key, cell)
            }
            _ => return Fate::Goes,
        };
        self.ask(desk, turn, place, ask);
        Fate::Goes
    }

    fn await_links(&mut self, until_us: u64) -> Fate {
        self.begin_round(Stage::Links);
        self.questions = 0;
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
            // They came up in this very step: too late to be asked.
            Links::Enough => self.fail(desk, turn, Known::NotApplied),
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
