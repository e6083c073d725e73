//! The stages of an operation: each owns the data that is valid in it.
//!
//! ```text
//! stage      of                   its data: valid from its first question until the next stage
//! Waiting    any                  nothing; the operation's alarm says until when
//! Clock      PUT, DELETE          which clocks answered, and which owners are full or behind
//! Cover      writes               the same, of the round that led to the version or the ballot
//! Write      writes               the cell, and which owners confirmed it; no outcome was told
//! Lingering  writes               the same, behind the outcome: late owners get no hint
//! Read       GET                  copies, and which owners cannot show theirs
//! Mending    GET                  the same, behind the outcome: damaged copies are written over
//! WriteBack  GET, conditional     the cell, its holders, and the goal once enough hold it
//! Prepare    conditional          promises, and the stored copies that came with them
//! Accept     conditional          a proposal, and which owners accepted it
//! Settled    any                  the precedent, for conditional writes behind it
//! ```
//!
//! Invariants
//! 1. An operation has one outcome. It was told exactly in `Lingering`, `Mending` and `Settled`.
//! 2. A tally counts one round: the next round, also of the same stage, begins with a new one.
//!
//! Not here: the ways from one stage to the next (the other files of `coordinator/`).
//! See: docs/protocol.md.

use super::copies::Copies;
use super::proposer::Promises;
use crate::places::Places;
use crate::rounds::Round;
use crate::tally::Tally;
use crate::write_queues::Precedent;
use dendra_base::peer::{Ballot, Proposal, Readiness};
use dendra_base::{Cell, CellId, Kind};

/// See the module.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No question is open.
    Waiting(WaitFor),
    /// Clocks are asked.
    Clock(Clocking),
    /// The version, or the ballot, waits until a ceiling above it is durable.
    Cover(Clocking),
    /// The cell is on its way to its owners.
    Write(Writing),
    /// The outcome of a write was told, and owners that have not answered may still do.
    Lingering(Writing),
    /// Copies are asked for.
    Read(Fetching),
    /// The outcome of a read was told. Damaged copies wait until enough answers tell the right
    /// cell.
    Mending(Fetching),
    /// A cell that some owners hold is on its way to others.
    WriteBack(WritingBack),
    /// Promises are asked for.
    Prepare(Preparing),
    /// A proposal is on its way to its acceptors.
    Accept(Accepting),
    /// The outcome was told, and no step is left: the entry goes.
    Settled(Option<Precedent>),
}

/// The event for which an operation without an open question waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// For its first question, which it asks in the same step.
    Begin,
    /// For links: too few owners have one, and those that are missing are expected back.
    Links,
    /// For another conditional write of the key, begun at the same loop.
    Queue,
    /// For a drawn pause to end, so that a rival can finish.
    BackOff,
}

/// A version, or a ballot, on its way.
#[derive(Debug)]
pub(crate) struct Clocking {
    /// Good: in stage `Clock`, owners with clocks that count. In stage `Cover` it is the tally of
    /// the round that led to the version or the ballot; a failure there is told by it.
    pub(crate) tally: Tally,
    /// Readiness that owners told beside their clocks; empty for conditional writes.
    pub(crate) pressed: Pressed,
}

/// Owners that told beside their clocks that they would not begin a write at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressed {
    /// Owners with full disks: they would refuse this cell.
    pub(crate) full: Places,
    /// The write would wait there, or be refused as `Busy`.
    pub(crate) behind: Places,
}

/// A cell on its way to its owners.
#[derive(Debug)]
pub(crate) struct Writing {
    /// Good: owners that hold the cell, or a newer one, durably.
    pub(crate) tally: Tally,
    /// With its version: the one of this operation for ever.
    pub(crate) cell: Cell,
    /// Owners that are behind, and are not asked as long as the others can confirm the cell. In
    /// stage `Write` alone: after the outcome they get a hint.
    pub(crate) spared: Places,
    /// The new owner of the position that moves holds the cell, whether or not the old one does.
    pub(crate) is_at_new_owner: bool,
}

/// Copies on their way here.
#[derive(Debug)]
pub(crate) struct Fetching {
    /// Good: owners that showed their copy, or said that they have none.
    pub(crate) tally: Tally,
    pub(crate) copies: Copies,
    /// Owners with a copy that fails its checksum and was not overwritten yet.
    pub(crate) damaged: Places,
    /// The own copy, once this member's store read it. Questions to other owners name it, so that
    /// they need not send the same bytes.
    pub(crate) known: Option<CellId>,
}

/// A cell that some owners hold, on its way to others.
#[derive(Debug)]
pub(crate) struct WritingBack {
    /// Good: owners that confirmed the cell in this round.
    pub(crate) tally: Tally,
    /// Owners that answered the round before so that it counted. They are answers to the client,
    /// too.
    pub(crate) answered: Places,
    /// `best` is the cell that is written. Owners that confirm it join its holders.
    pub(crate) copies: Copies,
    /// Owners with a copy that failed its checksum in the round before; none for conditional
    /// writes.
    pub(crate) damaged: Places,
    pub(crate) goal: Goal,
}

/// The next step once enough owners hold the cell that is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Show the cell to the client of a read.
    Show,
    /// A conditional write is refused: its condition does not hold of it.
    Refuse,
    /// A conditional write asks for promises again. It is a rival's proposal, or a plain write
    /// above the own one.
    Finish,
}

/// Promises on their way here.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// The ballot of this attempt: owners promise to accept no lower one.
    pub(crate) ballot: Ballot,
    /// Good: owners that promised.
    pub(crate) tally: Tally,
    /// Stored copies, as those owners show them: the newest is the base.
    pub(crate) copies: Copies,
    /// Proposals that those owners accepted earlier.
    pub(crate) promises: Promises,
}

/// A proposal on its way to its acceptors.
#[derive(Debug)]
pub(crate) struct Accepting {
    /// Good: owners that accepted.
    pub(crate) tally: Tally,
    /// The own one, or a rival's that has to be finished first; under the own ballot.
    pub(crate) proposal: Proposal,
}

impl Clocking {
    /// A round before its first answer.
    pub(crate) fn new(tally: Tally) -> Clocking {
        Clocking {
            tally,
            pressed: Pressed::default(),
        }
    }
}

impl Pressed {
    /// The owner at `place` told its readiness for a write of this kind. A full disk takes
    /// deletions while memory lasts.
    pub(crate) fn note(&mut self, place: u8, readiness: Readiness, kind: Kind) {
        match (readiness, kind) {
            (Readiness::Behind, _) => {
                self.behind.insert(place);
            }
            (Readiness::DiskFull, Kind::Value) | (Readiness::DiskAndMemoryFull, _) => {
                self.full.insert(place);
            }
            (Readiness::Ready, _) | (Readiness::DiskFull, Kind::Tombstone) => {}
        }
    }
}

impl Stage {
    /// Round as it is measured; `None` where the client does not wait.
    pub(crate) fn round(&self) -> Option<Round> {
        Some(match self {
            Stage::Waiting(WaitFor::Links) => Round::Links,
            Stage::Waiting(WaitFor::Queue) => Round::Queue,
            Stage::Waiting(WaitFor::BackOff) => Round::BackOff,
            Stage::Clock(_) => Round::Clock,
            Stage::Cover(_) => Round::Cover,
            Stage::Write(_) => Round::Write,
            Stage::Read(_) => Round::Read,
            Stage::WriteBack(back) if back.goal == Goal::Finish => Round::Finish,
            Stage::WriteBack(_) => Round::WriteBack,
            Stage::Prepare(_) => Round::Prepare,
            Stage::Accept(_) => Round::Accept,
            Stage::Waiting(WaitFor::Begin)
            | Stage::Lingering(_)
            | Stage::Mending(_)
            | Stage::Settled(_) => return None,
        })
    }

    /// Was the outcome told?
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Stage::Lingering(_) | Stage::Mending(_) | Stage::Settled(_) => true,
            Stage::Waiting(_)
            | Stage::Clock(_)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Read(_)
            | Stage::WriteBack(_)
            | Stage::Prepare(_)
            | Stage::Accept(_) => false,
        }
    }

    /// The round of questions under way, or the last one.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        match self {
            Stage::Clock(clocking) | Stage::Cover(clocking) => Some(&clocking.tally),
            Stage::Write(writing) | Stage::Lingering(writing) => Some(&writing.tally),
            Stage::Read(fetching) | Stage::Mending(fetching) => Some(&fetching.tally),
            Stage::WriteBack(back) => Some(&back.tally),
            Stage::Prepare(preparing) => Some(&preparing.tally),
            Stage::Accept(accepting) => Some(&accepting.tally),
            Stage::Waiting(_) | Stage::Settled(_) => None,
        }
    }

    /// The tally of the stage, to count an answer.
    pub(crate) fn tally_mut(&mut self) -> Option<&mut Tally> {
        match self {
            Stage::Clock(clocking) | Stage::Cover(clocking) => Some(&mut clocking.tally),
            Stage::Write(writing) | Stage::Lingering(writing) => Some(&mut writing.tally),
            Stage::Read(fetching) | Stage::Mending(fetching) => Some(&mut fetching.tally),
            Stage::WriteBack(back) => Some(&mut back.tally),
            Stage::Prepare(preparing) => Some(&mut preparing.tally),
            Stage::Accept(accepting) => Some(&mut accepting.tally),
            Stage::Waiting(_) | Stage::Settled(_) => None,
        }
    }

    /// Owners that answered so that it counts for the client: `acks=` of a receipt.
    pub(crate) fn answered(&self) -> Places {
        match self {
            Stage::WriteBack(back) => back.answered,
            Stage::Waiting(_)
            | Stage::Clock(_)
            | Stage::Cover(_)
            | Stage::Write(_)
            | Stage::Lingering(_)
            | Stage::Read(_)
            | Stage::Mending(_)
            | Stage::Prepare(_)
            | Stage::Accept(_)
            | Stage::Settled(_) => self.tally().map_or(Places::NONE, Tally::good),
        }
    }
}
