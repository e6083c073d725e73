//! Messages between stewards, and the questions of a process that wants to become a member.
//!
//! ```text
//! Chain(…)                 votes, epochs: `epoch/chain/messages.rs`
//! Progress                 each second while a plan runs, else each five: arrivals, bytes held, confirmations
//! Throttle                 an operator's word, handed on once
//! EnrolRequest ─► EnrolAnswer    a conversation of its own, before the joiner is a member
//! ```
//!
//! Invariants
//! 1. Every message may be lost, or arrive twice, late and out of order.
//! 2. `MemberProgress::epoch` is durable at the sender.
//!
//! Not here: bytes (`codec.rs`), links (crate `server`).

use crate::confirmed::{Confirmed, HeldBack};
use crate::epoch::chain::ChainMessage;
use crate::epoch::drive::MoveArrived;
use crate::epoch::record::EpochRecord;
use crate::ring::table::MemberId;
use crate::topology::Member;
use dendra_base::ClusterVersion;
use std::sync::Arc;

/// From one member's steward to another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StewardMessage {
    /// About the chain of epochs.
    Chain(ChainMessage),
    /// How the sender does.
    Progress(MemberProgress),
    /// Load at most so many bytes a second.
    Throttle(ThrottleOrder),
}

/// An order of an operator to load slower or faster. Of two orders the later one holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThrottleOrder {
    /// When it was given: milliseconds since 1970 of the member that got it.
    pub ordered_ms: u64,
    /// At least 1.
    pub bytes_per_second: u64,
}

impl StewardMessage {
    /// The newest version of a cluster in its records, if it has any.
    pub fn cluster_version(&self) -> Option<ClusterVersion> {
        let StewardMessage::Chain(message) = self else {
            return None;
        };
        match message {
            ChainMessage::Accept { record, .. } | ChainMessage::Removed { record } => {
                Some(record.in_force())
            }
            ChainMessage::Promise { accepted, .. } => {
                accepted.as_ref().map(|it| it.record.in_force())
            }
            ChainMessage::Chosen { records } => records.iter().map(|r| r.in_force()).max(),
            _ => None,
        }
    }
}

/// How a member does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberProgress {
    /// Newest durable epoch of the member.
    pub epoch: u64,
    /// Moves to it that have arrived and are not settled.
    pub arrived: Vec<MoveArrived>,
    /// The bytes that its store holds and loads.
    pub gauges: LoadGauges,
    /// Release of the member; at most `RELEASE_BYTES_MAX` bytes.
    pub release: String,
    /// True when the member's disk has no room for values.
    pub is_disk_full: bool,
    /// Does it confirm this epoch? `None` while its loops have not told.
    pub forgets: Option<ForgetNews>,
    /// The members to which the sender has a link.
    pub reaches: Vec<MemberId>,
}

/// A member's confirmation of an epoch, so that horizons may rise, or the reason why it has none.
pub type ForgetNews = Result<Confirmed, HeldBack<MemberId>>;

/// The bytes that a member's store holds and loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadGauges {
    /// Bytes of records in its store, before compression.
    pub stored_bytes: u64,
    /// Bytes loaded as a new owner since the process started.
    pub loaded_bytes: u64,
    /// Bytes loaded each second.
    pub bytes_per_second: u64,
}

/// A process asks to become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolRequest {
    /// The cluster that it wants to join; empty = whichever this is.
    pub cluster: String,
    /// The id of its folder.
    pub node: u128,
    /// Address, share and zone of the process.
    pub place: Member,
    /// The address of the lost member that it replaces.
    pub replaces: Option<String>,
}

/// The answer. A process that has to wait asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnrolAnswer {
    /// The folder is this member's: the newest epoch names it.
    Enrolled {
        /// Number of the member.
        member: MemberId,
        /// The newest epoch.
        record: Arc<EpochRecord>,
    },
    /// Not yet.
    Wait {
        /// The reason, as a sentence.
        why: String,
    },
    /// Not so, unless something is changed.
    Refused {
        /// Why, and the way out: a sentence.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::chain::{AcceptedRecord, EpochBallot};
    use crate::topology::Topology;

    #[test]
    fn each_message_with_a_record_tells_the_version_of_the_cluster() {
        let listed = vec!["http://h0:1".parse().expect("an address")];
        let topology = Topology::new("versions", listed, 1).expect("a member");
        let version = ClusterVersion(7);
        let record = Arc::new(EpochRecord::founded(&topology).in_version(version));
        let epoch = record.epoch();
        let ballot = EpochBallot {
            round: 1,
            member: MemberId(0),
        };
        let of = |message| StewardMessage::Chain(message).cluster_version();
        let accepted = |record| ChainMessage::Promise {
            epoch,
            ballot,
            accepted: record,
        };
        let with = [
            ChainMessage::Accept {
                ballot,
                record: Arc::clone(&record),
            },
            ChainMessage::Removed {
                record: Arc::clone(&record),
            },
            accepted(Some(AcceptedRecord {
                ballot,
                record: Arc::clone(&record),
            })),
            ChainMessage::Chosen {
                records: vec![record],
            },
        ];
        for message in with {
            assert_eq!(of(message.clone()), Some(version), "{message:?}");
        }
        assert_eq!(of(accepted(None)), None);
        assert_eq!(of(ChainMessage::At { epoch }), None);
    }
}
