//! An operation while owners change: positions with two owners, and the step to a later epoch.
//!
//! ```text
//! ask(place) ─► the owner ─┬─► both confirmed, promised or accepted ─► the position did
//!            └► its twin ──┘   one refused ─────────────────────────► the position did not
//! Stale from an owner ─► its answer stays open ─► this member learns the epoch ─► adopt
//! adopt ─ other owners ──► the same phase begins anew, under the same version
//!       ─ the same ones ─► owners that refused are asked again, under the epoch that they know
//! ```
//!
//! Invariants
//! 1. A position that moves counts for a write, a promise or an acceptance once both of its owners
//!    do. So it does for clocks and copies: the next epoch may have begun, in which the new owner
//!    confirms without the old one. A copy counts as held only after a write to both.
//! 2. A plain write keeps its version in every epoch, a conditional one its proposal.
//! 3. A round has the owners of one epoch: when they change, the next round begins.
//!
//! Not here: the answers of an owner (`replica/`), layouts (crate `ownership`).
//! See: docs/protocol.md, "Changes of members".

use super::half::{Half, TWIN_PLACE};
use super::stage::{Goal, Stage, WaitFor};
use super::{Intent, Op};
use crate::desk::{Desk, Turn};
use crate::places::Places;
use dendra_base::Cell;
use dendra_base::peer::{Answer, Refused};
use dendra_ownership::layout::{Layout, Twin};
use dendra_ownership::member::MemberIndex;

impl Op {
    pub(super) fn twin(&self, desk: &Desk) -> Option<Twin> {
        let twin = desk.layout.twin(self.partition);
        twin.filter(|twin| twin.place < self.quorum.from())
    }

    /// The new owner of the position `place`, if that moves.
    pub(crate) fn twin_at(&self, desk: &Desk, place: u8) -> Option<MemberIndex> {
        let twin = self.twin(desk).filter(|twin| twin.place == place);
        twin.map(|twin| twin.member)
    }

    /// The place of which `member` is an owner, the old or the new one.
    pub(super) fn place_or_twin_of(&self, desk: &Desk, member: MemberIndex) -> Option<u8> {
        let twin = self.twin(desk).filter(|twin| twin.member == member);
        self.place_of(desk, member).or(twin.map(|twin| twin.place))
    }

    /// Where a member's clock counts: its place, or that of a twin.
    pub(crate) fn clock_place_of(&self, desk: &Desk, member: MemberIndex) -> Option<u8> {
        let twin = self.twin(desk).filter(|twin| twin.member == member);
        self.place_of(desk, member).or(twin.map(|_| TWIN_PLACE))
    }

    /// An answer in this round, of an owner or of a twin: the answer of the position, once it is
    /// known.
    pub(super) fn paired(
        &mut self,
        desk: &Desk,
        place: u8,
        answer: Answer,
    ) -> Option<(u8, Answer)> {
        let is_twin = place == TWIN_PLACE;
        let Some(twin) = self.twin(desk) else {
            return (!is_twin).then_some((place, answer));
        };
        match &self.stage {
            Stage::Read(_)
            | Stage::Mending(_)
            | Stage::Write(_)
            | Stage::Lingering(_)
            | Stage::WriteBack(_)
            | Stage::Prepare(_)
            | Stage::Accept(_) => {}
            Stage::Waiting(_) | Stage::Clock(_) | Stage::Cover(_) | Stage::Settled(_) => {
                return None;
            }
        }
        if !(is_twin || place == twin.place) {
            return (!is_twin).then_some((place, answer));
        }
        if let (Stage::Write(writing) | Stage::Lingering(writing), Answer::Written(_)) =
            (&mut self.stage, &answer)
        {
            writing.is_at_new_owner |= is_twin;
        }
        match self.half.take() {
            Some(half) if half.is_twin != is_twin => {
                let (of_old, of_twin) = if is_twin {
                    (half.answer, answer)
                } else {
                    (answer, half.answer)
                };
                Some((twin.place, self.joined(of_old, of_twin)))
            }
            _ => {
                self.half = Some(Half { is_twin, answer });
                None
            }
        }
    }

    /// The position's answer, from those of its two owners.
    fn joined(&mut self, of_old: Answer, of_twin: Answer) -> Answer {
        match (of_old, of_twin) {
            (Answer::Written(a), Answer::Written(b)) => Answer::Written(a.min(b)),
            (Answer::Accepted, Answer::Accepted) => Answer::Accepted,
            (Answer::Cell(a), Answer::Cell(b)) => Answer::Cell(newer(a, b)),
            (
                Answer::Promised { stored, accepted },
                Answer::Promised {
                    stored: of_twin,
                    accepted: also,
                },
            ) => {
                if let Stage::Prepare(preparing) = &mut self.stage {
                    preparing.promises.add(also);
                }
                let stored = newer(stored, of_twin);
                Answer::Promised { stored, accepted }
            }
            // Of two that promised to others the higher promise counts.
            (
                Answer::Outbid { promised, line },
                Answer::Outbid {
                    promised: also,
                    line: other,
                },
            ) => {
                if also > promised {
                    Answer::Outbid {
                        promised: also,
                        line: other,
                    }
                } else {
                    Answer::Outbid { promised, line }
                }
            }
            (outbid @ Answer::Outbid { .. }, _) | (_, outbid @ Answer::Outbid { .. }) => outbid,
            (Answer::Refused(Refused::DiskFull), Answer::Refused(Refused::DiskFull)) => {
                Answer::Refused(Refused::DiskFull)
            }
            // One of the two may have stored it.
            (Answer::Refused(Refused::DiskFull), _) | (_, Answer::Refused(Refused::DiskFull)) => {
                Answer::Refused(Refused::Busy)
            }
            (refused @ Answer::Refused(_), _) | (_, refused @ Answer::Refused(_)) => refused,
            // Answers to other questions: they do not count.
            _ => Answer::Refused(Refused::Busy),
        }
    }

    /// An owner knows a later epoch than the question was asked in.
    pub(super) fn stale_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        round: u8,
        epoch: u64,
    ) {
        let place = match self.twin(desk) {
            Some(twin) if place == TWIN_PLACE => twin.place,
            _ => place,
        };
        let is_of_round = round == self.round || matches!(self.stage, Stage::Clock(_));
        let is_open = |tally: &mut crate::tally::Tally| tally.pending().has(place);
        if !is_of_round || !self.stage.tally_mut().is_some_and(is_open) {
            return;
        }
        self.stale.insert(place);
        if epoch <= desk.layout.epoch() {
            self.ask_stale(desk, turn);
        } else if let Some(owner) = self.owners(desk).get(usize::from(place)) {
            desk.learn(turn, *owner, epoch);
        }
    }

    /// Asks owners again that refused an older epoch.
    fn ask_stale(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let stale = std::mem::take(&mut self.stale);
        self.links_back += u32::from(stale.len());
        if matches!(self.stage, Stage::Clock(_)) {
            // The round begins anew, with all owners.
            self.questions = 0;
            return self.work(|op, _| op.begin_clock(desk));
        }
        for place in stale.iter() {
            self.ask_anew(desk, turn, place);
        }
    }

    /// This member has a later epoch; `before` is the one that it had.
    pub(crate) fn adopt(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, before: &Layout) {
        if self.is_too_wide(desk) {
            return self.work(|op, stage| op.end_too_wide(desk, turn, stage));
        }
        if desk.layout.changed(self.partition) <= before.epoch() {
            return self.ask_stale(desk, turn);
        }
        self.stale = Places::NONE;
        self.half = None;
        self.questions = 0;
        self.work(|op, stage| op.begin_anew(desk, turn, stage));
    }

    /// The key has other owners: the phase begins anew with them.
    fn begin_anew(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, stage: Stage) -> Stage {
        self.remember(&stage);
        match stage {
            // The owners are asked later, or no more.
            Stage::Waiting(_) | Stage::Cover(_) | Stage::Settled(_) => stage,
            Stage::Clock(_) => self.begin_clock(desk),
            Stage::Write(writing) => self.send_write(desk, turn, writing.cell),
            // The outcome was told. Comparisons bring the new owners up.
            Stage::Lingering(_) | Stage::Mending(_) => Stage::Settled(None),
            Stage::Read(_) => self.read_anew(desk, turn),
            Stage::WriteBack(back) => match back.goal {
                Goal::Show => self.read_anew(desk, turn),
                Goal::Refuse | Goal::Finish => self.prepare(desk, turn, back.tally),
            },
            Stage::Prepare(preparing) => self.prepare(desk, turn, preparing.tally),
            Stage::Accept(accepting) => self.prepare(desk, turn, accepting.tally),
        }
    }

    fn read_anew(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Stage {
        match self.intent {
            Intent::Get(breadth, _) | Intent::Look(breadth, _) => {
                self.begin_read(desk, turn, breadth)
            }
            Intent::Write(_) | Intent::Conditional(_) => Stage::Waiting(WaitFor::Begin),
        }
    }

    /// There are fewer members than the operation addresses.
    fn end_too_wide(&mut self, desk: &Desk, turn: &mut Turn<'_>, stage: Stage) -> Stage {
        let known = self.known_if_failed(&stage);
        let needed = self.quorum.ack();
        self.tell_shortfall(desk, turn, (0, needed), None, known, Places::NONE);
        Stage::Settled(None)
    }
}

/// Newer one of two copies of one record.
fn newer(a: Option<Cell>, b: Option<Cell>) -> Option<Cell> {
    match (a, b) {
        (Some(a), Some(b)) if b.is_newer_than(&a) => Some(b),
        (a, b) => a.or(b),
    }
}
