//! A position that moves has two owners, and both are asked. This file has the place that stands
//! for the new owner in questions, and keeps the first answer until the second one comes.
//!
//! Invariants
//! 1. A half is of the round under way: the next question to the position forgets it.
//!
//! Not here: how the two answers become one (`epochs.rs`).

use dendra_base::peer::{Answer, Ask};
use dendra_ownership::limits::MEMBERS_MAX;

/// The place of the new owner in the purpose of a question. All places of owners are below it.
pub(crate) const TWIN_PLACE: u8 = MEMBERS_MAX as u8;

/// The answer of one of the two owners, until the other one has answered, too.
#[derive(Debug)]
pub(crate) struct Half {
    /// Is this the answer of the new owner?
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
        | Ask::Foreground
        | Ask::Changes { .. } => false,
    }
}
