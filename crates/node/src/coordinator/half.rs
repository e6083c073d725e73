//! A position that moves has two owners, and both are asked. Here is the name of the new one in
//! questions, and the answer of the one that came first.
//!
//! Invariants
//! 1. A half is of the round under way: the next question to the position forgets it.
//!
//! Not here: how the two answers become one (`epochs.rs`).

use crate::limits::MEMBERS_MAX;
use dendra_base::peer::{Answer, Ask};

/// Names the new owner of the position that moves in a question's purpose: no place is as large.
pub(crate) const TWIN_PLACE: u8 = MEMBERS_MAX as u8;

/// The answer of one of the two owners, until the other one has answered, too.
#[derive(Debug)]
pub(crate) struct Half {
    /// Of the new owner?
    pub(super) is_twin: bool,
    pub(super) answer: Answer,
}

/// Is this question for both owners of a position that moves?
pub(crate) fn is_for_twin(ask: &Ask) -> bool {
    match ask {
        Ask::Read { .. } | Ask::Write { .. } | Ask::Prepare { .. } | Ask::Accept { .. } => true,
        // Clocks are asked by probes (`clock.rs`).
        Ask::Clock
        | Ask::Page { .. }
        | Ask::Load { .. }
        | Ask::Compare { .. }
        | Ask::List { .. }
        | Ask::Foreground => false,
    }
}
