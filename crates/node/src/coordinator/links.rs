//! Stage `Waiting` for links: too few owners can be asked, and the missing ones are expected back.
//!
//! ```text
//! Begin, or a round failed ─► links to enough owners ────────────► go on, or the failure stands
//!                          ─► enough, with those expected back ──► Waiting(Links)
//!                          ─► too few ───────────────────────────► told: Unreachable
//! Waiting(Links) ─ a link comes up, or is not expected any more ─► Begin
//!                ─ deadline ─────────────────────────────────────► told: Unreachable
//! any round      ─ the link of an owner that was asked in vain comes up ─► it is asked again
//! ```
//!
//! Invariants
//! 1. An operation waits only while no question of its own that changes the key has left. So it may
//!    begin anew, and is applied at most once.
//! 2. An owner that is asked again gets the same question. A cell keeps its version, a ballot and a
//!    proposal keep the operation's own ballot.
//! 3. A wait ends at the deadline, or `LINK_GRACE_US` after the last news of a missing owner.
//!
//! Not here: which owners are expected back (`health.rs`).
//! See: docs/protocol.md.

use super::stage::{Stage, WaitFor};
use super::write::write;
use super::{Intent, Op};
use crate::desk::{Desk, Turn};
use crate::health::Links;
use crate::outcome::Outcome;
use crate::places::Places;
use dendra_base::Known;
use dendra_base::peer::Ask;
use dendra_ownership::member::MemberIndex;

impl Op {
    /// How many owners have to answer, in the round of the operation that needs the most.
    fn owners_needed(&self) -> u8 {
        match self.intent {
            Intent::Get(..) | Intent::Look(..) | Intent::Write(_) => self.quorum.ack(),
            Intent::Conditional(_) => self.quorum.ack().max(self.majority()),
        }
    }

    /// Are there links to as many owners as have to answer? Those at `full` would refuse, and are
    /// left out.
    fn links(&self, desk: &Desk, turn: &Turn<'_>, full: Places) -> Links {
        let (now_us, needed) = (turn.now.mono_us, self.owners_needed());
        let owners = self.owners(desk);
        if full.is_empty() {
            return desk.health.links(owners, needed, now_us);
        }
        let others = self.all_places().without(full);
        let others: Vec<MemberIndex> = others.iter().map(|at| owners[usize::from(at)]).collect();
        desk.health.links(&others, needed, now_us)
    }

    /// Where an operation goes for which there are too few links; `None` when there are enough. The
    /// owners at `answered` did so far.
    ///
    /// Requires: no question that changes the key has left.
    pub(super) fn check_links(
        &mut self,
        desk: &Desk,
        turn: &mut Turn<'_>,
        full: Places,
        answered: Places,
    ) -> Option<Stage> {
        match self.links(desk, turn, full) {
            Links::Enough => None,
            Links::Awaited { until_us, .. } => Some(self.await_links(until_us)),
            Links::Lacking { up, missing } => {
                self.tell_unreachable(turn, up, missing, answered);
                Some(Stage::Settled(None))
            }
        }
    }

    /// The round of this stage failed. If that may be for a link which is expected back, it is
    /// waited for.
    pub(super) fn fail_or_wait(&mut self, desk: &Desk, turn: &mut Turn<'_>, stage: Stage) -> Stage {
        let known = self.known_if_failed(&stage);
        match self.links(desk, turn, Places::NONE) {
            Links::Awaited { until_us, .. } if known == Known::NotApplied => {
                self.remember(&stage);
                self.await_links(until_us)
            }
            Links::Awaited { .. } | Links::Enough | Links::Lacking { .. } => {
                self.fail(desk, turn, &stage, known);
                Stage::Settled(None)
            }
        }
    }

    /// Should this operation ask `member` now that its link is back? It should if it waits for
    /// links, or asked that member in vain in the round under way.
    pub(crate) fn should_ask(&self, desk: &Desk, member: MemberIndex) -> bool {
        let Some(place) = self.place_or_twin_of(desk, member) else {
            return false;
        };
        match &self.stage {
            Stage::Waiting(WaitFor::Links) => true,
            Stage::Clock(clocking) => clocking.tally.is_counted_out(place),
            Stage::Write(writing) | Stage::Lingering(writing) => {
                writing.tally.is_counted_out(place)
            }
            Stage::Prepare(preparing) => preparing.tally.is_counted_out(place),
            Stage::Accept(accepting) => accepting.tally.is_counted_out(place),
            // A damaged copy is an answer in this sense: asked again, the owner would say the same.
            Stage::Read(fetching) => {
                fetching.tally.is_counted_out(place) && !fetching.damaged.has(place)
            }
            Stage::WriteBack(back) => back.tally.is_counted_out(place) && !back.damaged.has(place),
            Stage::Waiting(WaitFor::Begin | WaitFor::Queue | WaitFor::BackOff)
            | Stage::Cover(_)
            | Stage::Mending(_)
            | Stage::Settled(_) => false,
        }
    }

    /// The link to `member` is back, and this operation should ask it: it gets the question that
    /// the other owners got.
    pub(crate) fn link_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, member: MemberIndex) {
        let Some(place) = self.place_or_twin_of(desk, member) else {
            return;
        };
        self.links_back += 1;
        self.ask_anew(desk, turn, place);
    }

    /// Asks the owner at `place` the question that the others got in this round.
    pub(crate) fn ask_anew(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, place: u8) {
        let key = self.key.clone();
        self.work(|op, mut stage| {
            let ask = match &mut stage {
                Stage::Waiting(WaitFor::Links) => return op.begin(desk, turn, WaitFor::Links),
                Stage::Clock(clocking) => {
                    clocking.tally.unask(place);
                    desk.unclocked.push(op.id);
                    return stage;
                }
                Stage::Read(fetching) => {
                    fetching.tally.ask(place);
                    if let Some(account) = op.account() {
                        account.asked(place, turn.now.mono_us);
                    }
                    let known = fetching.known;
                    let known = known.filter(|_| op.twin_at(desk, place).is_none());
                    Ask::Read { key, known }
                }
                Stage::Prepare(preparing) => {
                    preparing.tally.ask(place);
                    let ballot = preparing.ballot;
                    Ask::Prepare { key, ballot }
                }
                Stage::Accept(accepting) => {
                    accepting.tally.ask(place);
                    let proposal = accepting.proposal.clone();
                    Ask::Accept { key, proposal }
                }
                // It may have stored it the first time.
                Stage::Write(writing) | Stage::Lingering(writing) => {
                    writing.tally.ask_again(place);
                    write(&key, &writing.cell)
                }
                Stage::WriteBack(back) => {
                    let Some(cell) = back.copies.best() else {
                        return stage;
                    };
                    back.tally.ask_again(place);
                    write(&key, cell)
                }
                Stage::Waiting(WaitFor::Begin | WaitFor::Queue | WaitFor::BackOff)
                | Stage::Cover(_)
                | Stage::Mending(_)
                | Stage::Settled(_) => return stage,
            };
            op.ask(desk, turn, place, ask);
            stage
        });
    }

    /// Waits for links. A read begins anew after it; a conditional write keeps its memory
    /// (`proposer.rs`).
    fn await_links(&mut self, until_us: u64) -> Stage {
        self.begin_round();
        self.questions = 0;
        self.alarm_us = until_us;
        Stage::Waiting(WaitFor::Links)
    }

    /// The time is over while links are missing.
    pub(super) fn refuse_for_links(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        match self.links(desk, turn, Places::NONE) {
            Links::Awaited { up, missing, .. } | Links::Lacking { up, missing } => {
                self.tell_unreachable(turn, up, missing, Places::NONE);
            }
            // They came up in this very step: too late to be asked.
            Links::Enough => {
                self.fail(
                    desk,
                    turn,
                    &Stage::Waiting(WaitFor::Links),
                    Known::NotApplied,
                );
            }
        }
    }

    fn tell_unreachable(
        &mut self,
        turn: &mut Turn<'_>,
        up: u8,
        missing: MemberIndex,
        answered: Places,
    ) {
        let outcome = Outcome::Unreachable {
            up,
            needed: self.owners_needed(),
            from: self.quorum.from(),
            missing,
        };
        self.tell(turn, outcome, answered, None);
    }
}
