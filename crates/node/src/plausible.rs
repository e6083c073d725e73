//! Is every clock value of a message one that a clock can show?
//!
//! Invariants
//! 1. No message brings a value at or behind `CLOCK_END` into this member's clock or store. A clock
//!    that followed one such value would leave all clocks without a next one.
//!
//! Not here: how far values are from the wall clock, which is no reason to refuse one (`hlc.rs`).
//! See: docs/protocol.md, rule 6.

use crate::hlc::CLOCK_END;
use dendra_base::peer::{Answer, Ask, Ballot, Proposal};
use dendra_base::{Cell, Version};

fn is_clock(hlc: u64) -> bool {
    hlc < CLOCK_END
}

fn is_version(version: Version) -> bool {
    is_clock(version.hlc)
}

fn is_cell(cell: &Cell) -> bool {
    is_version(cell.version)
}

pub(crate) fn is_ballot(ballot: Ballot) -> bool {
    is_clock(ballot.hlc)
}

fn is_proposal(proposal: &Proposal) -> bool {
    is_ballot(proposal.ballot) && is_cell(&proposal.cell)
}

/// Are all clock values of this question plausible?
pub(crate) fn is_ask(ask: &Ask) -> bool {
    match ask {
        Ask::Clock
        | Ask::Read { .. }
        | Ask::Page { .. }
        | Ask::Load { .. }
        | Ask::Compare { .. }
        | Ask::List { .. }
        | Ask::Foreground => true,
        Ask::Write { cell, .. } => is_cell(cell),
        Ask::Prepare { ballot, .. } => is_ballot(*ballot),
        Ask::Accept { proposal, .. } => is_proposal(proposal),
    }
}

/// Are all clock values of this answer plausible?
pub(crate) fn is_answer(answer: &Answer) -> bool {
    match answer {
        Answer::Clock { hlc, kept, .. } => is_clock(*hlc) && is_clock(*kept),
        Answer::Cell(cell) => cell.as_ref().is_none_or(is_cell),
        Answer::Written(version) => is_version(*version),
        Answer::Promised { stored, accepted } => {
            stored.as_ref().is_none_or(is_cell) && accepted.iter().all(is_proposal)
        }
        Answer::Outbid { promised, line } => {
            is_ballot(*promised) && line.as_ref().is_none_or(|line| is_version(line.version))
        }
        Answer::Page { records, .. }
        | Answer::Loaded { records, .. }
        | Answer::Listed { records, .. } => records.iter().all(|(_, cell)| is_cell(cell)),
        Answer::Compared { .. }
        | Answer::Foreground(_)
        | Answer::Same
        | Answer::Accepted
        | Answer::Refused(_) => true,
    }
}
