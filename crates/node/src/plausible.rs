//! Is every clock value of a message one that a clock can show?
//!
//! Invariants
//! 1. No message brings a value at or after `CLOCK_END` into this member's clock or store. A clock
//!    that followed one such value would leave all clocks without a next one.
//!
//! Not here: how far values are from the wall clock, which is no reason to refuse one (`hlc.rs`).
//! See: docs/protocol.md, rule 6.

use dendra_base::clock::CLOCK_END;
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
        | Ask::Foreground
        | Ask::Changes { .. } => true,
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
        Answer::Changes { changes, .. } => changes.iter().all(|it| is_version(it.version)),
        Answer::Compared { .. }
        | Answer::ChangesGone { .. }
        | Answer::Foreground(_)
        | Answer::Same
        | Answer::Accepted
        | Answer::Refused(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use dendra_base::peer::{Lineage, Readiness};
    use dendra_base::{CellRef, Key};

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            origin: 1,
            rmw: 0,
        }
    }

    fn ballot(hlc: u64) -> Ballot {
        Ballot { hlc, origin: 1 }
    }

    fn cell(hlc: u64) -> Cell {
        let key = Key::user(b"k");
        CellRef::value(key.as_stored(), version(hlc), b"v").to_owned()
    }

    /// Questions and answers with the clock value in one place each.
    fn with(hlc: u64) -> (Vec<Ask>, Vec<Answer>) {
        let key = Bytes::from_static(b"k");
        let proposal = |of_ballot, of_cell| Proposal {
            ballot: ballot(of_ballot),
            author: ballot(1),
            ancestors: Vec::new(),
            cell: cell(of_cell),
        };
        let clock = |hlc, kept| Answer::Clock {
            hlc,
            wall_ms: 1,
            kept,
            readiness: Readiness::Ready,
        };
        let promised = |stored, accepted| Answer::Promised { stored, accepted };
        let records = || vec![(key.clone(), cell(hlc))];
        let asks = vec![
            Ask::Write {
                key: key.clone(),
                cell: cell(hlc),
            },
            Ask::Prepare {
                key: key.clone(),
                ballot: ballot(hlc),
            },
            Ask::Accept {
                key: key.clone(),
                proposal: proposal(hlc, 1),
            },
            Ask::Accept {
                key: key.clone(),
                proposal: proposal(1, hlc),
            },
        ];
        let answers = vec![
            clock(hlc, 1),
            clock(1, hlc),
            Answer::Cell(Some(cell(hlc))),
            Answer::Written(version(hlc)),
            promised(Some(cell(hlc)), None),
            promised(None, Some(proposal(hlc, 1))),
            promised(None, Some(proposal(1, hlc))),
            Answer::Outbid {
                promised: ballot(hlc),
                line: None,
            },
            Answer::Outbid {
                promised: ballot(1),
                line: Some(Lineage {
                    version: version(hlc),
                    ancestors: Vec::new(),
                }),
            },
            Answer::Listed {
                records: records(),
                next: None,
            },
            Answer::Loaded {
                records: records(),
                next: None,
            },
        ];
        (asks, answers)
    }

    #[test]
    fn a_clock_value_that_no_clock_shows_is_seen_wherever_it_stands() {
        for (hlc, expected) in [(CLOCK_END - 1, true), (CLOCK_END, false)] {
            let (asks, answers) = with(hlc);
            for ask in asks {
                assert_eq!(is_ask(&ask), expected, "{ask:?}");
            }
            for answer in answers {
                assert_eq!(is_answer(&answer), expected, "{answer:?}");
            }
        }
    }
}
