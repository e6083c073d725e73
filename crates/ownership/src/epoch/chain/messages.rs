//! The nouns of the chain of epochs: messages between members, and their notes.
//!
//! ```text
//! Prepare ─► Promise | Outbid        At     ─► At | Learn
//! Accept  ─► Accepted | Outbid       Learn  ─► Chosen
//! Chosen, Removed: no answer
//! ```
//!
//! Invariants
//! 1. Every message may be lost, or arrive twice, late and out of order.
//! 2. `epoch` of a ballot's message is the epoch that is being chosen: one above the record of
//!    every member that takes part.
//!
//! Not here: bytes on the wire, which members may send which message (`chain/`).

use crate::epoch::record::EpochRecord;
use crate::epoch::why_not::WhyNot;
use crate::limits::{EPOCH_PAGE_BYTES_MAX, EPOCH_PAGE_RECORDS_MAX};
use crate::ring::table::MemberId;
use std::sync::Arc;

/// A member as a handshake shows it: its number, and the id of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainPeer {
    /// Number of the member.
    pub member: MemberId,
    /// The id of its folder; in a list of voters 0 = not known yet.
    pub node: u128,
}

/// The order of rival proposals for one epoch. Unique: a proposer promises its own ballot, durably,
/// before any other member gets it, and takes a higher one after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochBallot {
    /// Above every round that the proposer had promised.
    pub round: u64,
    /// The proposer.
    pub member: MemberId,
}

impl EpochBallot {
    /// Below every ballot that was ever used.
    pub const ZERO: EpochBallot = EpochBallot {
        round: 0,
        member: MemberId(0),
    };
}

/// A proposal that a member accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRecord {
    /// Under this ballot.
    pub ballot: EpochBallot,
    /// The value.
    pub record: Arc<EpochRecord>,
}

/// The messages of members about the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainMessage {
    /// Promise to accept no ballot below this one.
    Prepare {
        /// Being chosen.
        epoch: u64,
        /// Ballot of the sender.
        ballot: EpochBallot,
    },
    /// The promise is durable.
    Promise {
        /// Being chosen.
        epoch: u64,
        /// Ballot of the question.
        ballot: EpochBallot,
        /// The record that the sender accepted before.
        accepted: Option<AcceptedRecord>,
    },
    /// Accept this record unless promised to a higher ballot.
    Accept {
        /// Ballot of the sender.
        ballot: EpochBallot,
        /// The value; its epoch is the one being chosen.
        record: Arc<EpochRecord>,
    },
    /// The acceptance is durable.
    Accepted {
        /// Being chosen.
        epoch: u64,
        /// Ballot of the question.
        ballot: EpochBallot,
    },
    /// The sender promised to a higher ballot.
    Outbid {
        /// Being chosen.
        epoch: u64,
        /// Ballot of the promise.
        promised: EpochBallot,
    },
    /// Epochs that were chosen, one after the other.
    Chosen {
        /// In their order; at most `EPOCH_PAGE_RECORDS_MAX`.
        records: Vec<Arc<EpochRecord>>,
    },
    /// The newest epoch that the sender knows.
    At {
        /// Durable there.
        epoch: u64,
    },
    /// Send the chosen epochs from this one on.
    Learn {
        /// The first that the sender does not know.
        from: u64,
    },
    /// The receiver was removed: this chosen record names it.
    Removed {
        /// The newest record of the sender.
        record: Arc<EpochRecord>,
    },
}

impl ChainMessage {
    /// The page of stored epochs that `SendEpochs` asks for, of `records` in their order: as many
    /// as one message may have. `None` without a record.
    pub fn page(records: impl IntoIterator<Item = EpochRecord>) -> Option<ChainMessage> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for record in records.into_iter().take(EPOCH_PAGE_RECORDS_MAX) {
            bytes += record.encode().len();
            if !page.is_empty() && bytes > EPOCH_PAGE_BYTES_MAX {
                break;
            }
            page.push(Arc::new(record));
        }
        (!page.is_empty()).then_some(ChainMessage::Chosen { records: page })
    }
}

/// The events that a member's chain takes.
#[derive(Clone, Debug)]
pub enum ChainEvent {
    /// Let the cluster choose this record.
    Propose {
        /// Record that follows the newest one here.
        record: EpochRecord,
    },
    /// A message came over an authenticated link.
    Received {
        /// The member at its other end.
        from: ChainPeer,
        /// The message.
        message: ChainMessage,
    },
    /// The note is durable, and all earlier ones.
    Persisted {
        /// Ticket of the note.
        ticket: u64,
    },
    /// An operator says that the record of `Chain::accepted_alone` was chosen.
    TakeAccepted,
    /// Time has passed. Sent several times in each `EPOCH_VOTE_US`.
    Tick,
}

/// The effects that a member's chain orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainEffect {
    /// Make the note durable, after all earlier ones, then report the ticket.
    Persist {
        /// Rises by one from note to note.
        ticket: u64,
        /// The note.
        note: ChainNote,
    },
    /// Send a message. It may be lost.
    Send {
        /// To this member, removed ones included.
        to: MemberId,
        /// The message.
        message: ChainMessage,
    },
    /// Send `Chosen` with the stored epochs from this one on: at most `EPOCH_PAGE_RECORDS_MAX`
    /// records, and no second one beyond `EPOCH_PAGE_BYTES_MAX` bytes.
    SendEpochs {
        /// To this member.
        to: MemberId,
        /// The first epoch.
        from: u64,
    },
    /// This epoch is durable here, and the newest one from now on.
    Adopted {
        /// The record.
        record: Arc<EpochRecord>,
    },
    /// The proposal cannot be made.
    Refused {
        /// The reason.
        why: WhyNot,
    },
    /// The proposal found no majority in time. It may still be chosen.
    GaveUp {
        /// The epoch that it was for.
        epoch: u64,
    },
    /// Another member has another record of an epoch that is known here. Either one of the two
    /// folders is damaged, or two clusters have one name: an operator has to look.
    Diverged {
        /// The other member.
        from: MemberId,
        /// The epoch.
        epoch: u64,
    },
    /// This member was removed, for ever.
    Removed {
        /// By this epoch, or an earlier one.
        epoch: u64,
    },
}

/// The notes of a member in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainNote {
    /// A chosen epoch; one note for each epoch.
    Epoch(Arc<EpochRecord>),
    /// Behind the note of an epoch: the member's own note names it from now on, and the member's
    /// address in it.
    Fence(Arc<EpochRecord>),
    /// The member's vote for the next one; takes the place of the note before.
    Vote(VoteNote),
}

/// A member's promise and acceptance for one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteNote {
    /// Being chosen.
    pub epoch: u64,
    /// Ballot below which the member accepts nothing.
    pub promised: EpochBallot,
    /// The record that it accepted last.
    pub accepted: Option<AcceptedRecord>,
    /// The epoch by which it was told that it was removed; 0 = it was not.
    pub removed: u64,
}

impl VoteNote {
    /// Vote of a member that has made no promise.
    pub fn none(epoch: u64) -> VoteNote {
        VoteNote {
            epoch,
            promised: EpochBallot::ZERO,
            accepted: None,
            removed: 0,
        }
    }
}
