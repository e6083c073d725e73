//! All that goes into a steward and comes out of it.
//!
//! ```text
//!            Received Reached     Persisted    Loaded Gauged       Ordered Enrol        Tick
//! world ───► other members        the log      loops, the store    operator, joiner     time
//!                                              (Forgets: the loops; Damaged: the first one)
//! world ◄─── Send SendEpochs      Persist      Adopt Throttle …    Answer EnrolAnswer   Removed Outdated …
//! ```
//!
//! Invariants
//! 1. Every `Ordered` gets one `Answer`, at the latest with the first `Tick` after
//!    `CLUSTER_ORDER_US`. Every `Enrol` gets one `EnrolAnswer`, in the same step.
//! 2. `Persist` effects are made durable in their order, each reported by `Persisted`.
//! 3. Before any loop gets the layout of an `Adopt`, the world raises the fence with it.
//!
//! Not here: the meaning of the events (`mod.rs`), bytes (`codec.rs`).

use super::face::{AcceptedLoss, ClusterAnswer, ClusterOrder};
use super::messages::{EnrolAnswer, EnrolRequest, ForgetNews, StewardMessage};
use crate::epoch::chain::{ChainNote, ChainPeer};
use crate::epoch::record::EpochRecord;
use crate::layout::Layout;
use crate::loss::WalkPart;
use crate::loss::{NoLoss, RepairLoss};
use crate::ring::Partition;
use crate::ring::table::MemberId;
use dendra_base::{ClusterVersion, ClusterVersions};
use std::sync::Arc;

/// The world's mark for an order or a request.
pub type OrderTicket = u64;

/// The events that a steward takes.
#[derive(Clone, Debug)]
pub enum StewardEvent {
    /// A message came over an authenticated link.
    Received {
        /// The member at its other end, and its folder.
        from: ChainPeer,
        /// The message.
        message: StewardMessage,
    },
    /// A link to a member came up, or the last one went down.
    Reached {
        /// The member, and its folder.
        peer: ChainPeer,
        /// Which of the two.
        is_up: bool,
        /// The versions that its process knows, as its handshake said.
        versions: ClusterVersions,
    },
    /// The note is durable, and all earlier ones.
    Persisted {
        /// Ticket of the note.
        ticket: u64,
    },
    /// `Effect::Loaded` of the loop that loads.
    Loaded {
        /// Epoch that the loop named.
        epoch: u64,
        /// Partitions that the loop named.
        partitions: Vec<Partition>,
    },
    /// `Effect::Learn` of a loop: another member knows a later epoch.
    Ahead {
        /// Member that knows the later epoch.
        member: MemberId,
        /// The epoch.
        epoch: u64,
    },
    /// The bytes that this process's store holds, and that its loops have loaded. Each second or
    /// so.
    Gauged {
        /// Bytes of clients' records.
        stored_bytes: u64,
        /// Bytes loaded since the process started.
        loaded_bytes: u64,
    },
    /// The disk of this process has no room for values, or has some again. As often as `Gauged`.
    DiskLooked {
        /// Has it none?
        is_full: bool,
    },
    /// Whether the loops of this process confirm the newest epoch that was adopted. As often as
    /// `Gauged`.
    Forgets {
        /// `Node::confirms` of the first loop, members by their numbers.
        news: ForgetNews,
    },
    /// `Node::loss` of the first loop, right before an order to accept it.
    Damaged {
        /// Loss that the loop found, or why there is none.
        loss: Result<RepairLoss, NoLoss>,
    },
    /// An operator orders.
    Ordered {
        /// Comes back with the answer.
        ticket: OrderTicket,
        /// The order.
        order: ClusterOrder,
    },
    /// A process asks to become a member. Its proof of the secret held.
    Enrol {
        /// Comes back with the answer.
        ticket: OrderTicket,
        /// The request.
        request: EnrolRequest,
    },
    /// Time has passed. Several times in each `EPOCH_VOTE_US`.
    Tick,
}

/// The effects that a steward orders.
#[derive(Clone, Debug, PartialEq)]
pub enum StewardEffect {
    /// Send a message, if there is a link. It may be lost.
    Send {
        /// To this member, removed ones included.
        to: MemberId,
        /// The message.
        message: StewardMessage,
    },
    /// Send `ChainMessage::Chosen` with the stored epochs from this one on: at most
    /// `EPOCH_PAGE_RECORDS_MAX` records, and no second one beyond `EPOCH_PAGE_BYTES_MAX` bytes.
    SendEpochs {
        /// To this member.
        to: MemberId,
        /// The first epoch.
        from: u64,
    },
    /// Make the note durable, after all earlier ones, then report the ticket.
    Persist {
        /// Rises by one from note to note.
        ticket: u64,
        /// The note.
        note: ChainNote,
    },
    /// This epoch is durable here. Advance the fence with the layout, then give it to all loops;
    /// open links to new members, close those to removed ones a little later.
    Adopt {
        /// The record.
        record: Arc<EpochRecord>,
        /// Layout of the epoch: members that stay keep their indexes.
        layout: Arc<Layout>,
    },
    /// The record of this epoch is needed no more: it only raised horizons, and all members have
    /// gone on since. The folder may keep it.
    DropEpoch {
        /// The epoch.
        epoch: u64,
    },
    /// This epoch is durable here and has no layout in this process: it must be started again.
    NoLayout {
        /// The epoch.
        epoch: u64,
    },
    /// Answer an operator.
    Answer {
        /// Ticket of the order.
        ticket: OrderTicket,
        /// The answer.
        answer: ClusterAnswer,
    },
    /// Answer a joiner.
    EnrolAnswer {
        /// Ticket of the request.
        ticket: OrderTicket,
        /// The answer.
        answer: EnrolAnswer,
    },
    /// Load at most about so many bytes a second from now on.
    Throttle {
        /// At least 1.
        bytes_per_second: u64,
    },
    /// Note all of `Steward::losses`, then tell the first loop that this one was accepted.
    AcceptLoss {
        /// The loss.
        loss: AcceptedLoss,
        /// Ranges of the loss, for the log.
        ranges: Vec<WalkPart>,
    },
    /// Drop all records of clients of which this member is no owner in this layout. Their owners
    /// hold them, and have compared them in this epoch. To be given up when a later epoch is
    /// adopted.
    DropStrays {
        /// Layout of the newest epoch.
        layout: Arc<Layout>,
    },
    /// This member was removed, for ever, and the members that stay can go on without it: end the
    /// process, and mark its folder.
    Removed {
        /// By this epoch, or an earlier one.
        epoch: u64,
    },
    /// A version is in force that this process does not know: end the process. Its folder is good
    /// for a later release.
    Outdated {
        /// The version.
        version: ClusterVersion,
    },
    /// Another member has another record of an epoch that is known here: an operator has to look.
    Diverged {
        /// The other member.
        from: MemberId,
        /// The epoch.
        epoch: u64,
    },
}
