//! A proposal of this member, from its first ballot to its end.

use super::messages::{AcceptedRecord, EpochBallot};
use crate::epoch::record::EpochRecord;
use crate::ring::table::MemberId;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProposalStage {
    Promises,
    Acceptances,
    Resting,
}

/// A proposal of this member.
#[derive(Debug)]
pub(super) struct EpochProposal {
    pub(super) own: Arc<EpochRecord>,
    pub(super) ballot: EpochBallot,
    pub(super) stage: ProposalStage,
    /// Members that have promised, or accepted, in this stage.
    pub(super) votes: BTreeSet<MemberId>,
    /// The highest acceptance among the promises.
    pub(super) found: Option<AcceptedRecord>,
    /// The record that is sent. Valid from the stage of acceptances on.
    pub(super) sent: Arc<EpochRecord>,
    /// The highest round that any answer named.
    pub(super) round: u64,
    pub(super) ballots: u32,
    pub(super) due_us: u64,
}
