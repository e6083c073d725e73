//! Faults that the search must find.
//!
//! Invariants
//! 1. None of them touches the source of the product: each is a weaker rule, or this world lies.

use dendra_node::ring::table::MemberId;
use dendra_node::topology::chain::{ChainPeer, ChainRules};
use dendra_node::topology::record::{EpochRecord, MemberStatus};
use dendra_node::topology::succession::succeeds;
use dendra_node::topology::why_not::WhyNot;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// An owner changes without an epoch in which both count.
    SwitchWithoutJointPhase,
    /// Questions of older epochs are answered.
    NoFence,
    /// An epoch is used before it is durable: a crash forgets the fence.
    FenceNotDurable,
    /// Promises and acceptances are reported durable, and a crash forgets them.
    VoteNotDurable,
    /// What is proposed is taken for chosen.
    LearnerTrustsProposals,
    /// Removed members stay voters.
    RemovedMemberVotes,
    /// A member adopts an epoch without the one before.
    EpochSkipped,
    /// A position is settled before its new owner has loaded.
    SettledUnloaded,
    /// A new owner loads from one other owner.
    LoadedFromOne,
    /// The new owner does not count while its position moves.
    OldOwnersAlone,
}

/// Each with the seeds that find it at the latest.
pub const ALL: [(Planted, u64); 10] = [
    (Planted::SwitchWithoutJointPhase, 3_000),
    (Planted::NoFence, 3_000),
    (Planted::FenceNotDurable, 3_000),
    (Planted::VoteNotDurable, 3_000),
    (Planted::LearnerTrustsProposals, 3_000),
    (Planted::RemovedMemberVotes, 3_000),
    (Planted::EpochSkipped, 3_000),
    (Planted::SettledUnloaded, 3_000),
    (Planted::LoadedFromOne, 3_000),
    (Planted::OldOwnersAlone, 3_000),
];

pub fn rules(planted: Option<Planted>) -> ChainRules {
    let right = ChainRules::default();
    match planted {
        Some(Planted::SwitchWithoutJointPhase) => ChainRules {
            succeeds: without_joint_phase,
            ..right
        },
        Some(Planted::EpochSkipped) => ChainRules {
            succeeds: any_later,
            ..right
        },
        Some(Planted::RemovedMemberVotes) => ChainRules {
            voters: removed_too,
            ..right
        },
        _ => right,
    }
}

fn without_joint_phase(before: &EpochRecord, after: &EpochRecord) -> Result<(), WhyNot> {
    match succeeds(before, after) {
        Err(WhyNot::NoJointPhase { .. }) => Ok(()),
        judged => judged,
    }
}

fn any_later(before: &EpochRecord, after: &EpochRecord) -> Result<(), WhyNot> {
    match succeeds(before, after) {
        Err(WhyNot::Epoch { .. }) if after.epoch() > before.epoch() => Ok(()),
        judged => judged,
    }
}

fn removed_too(record: &EpochRecord) -> Vec<ChainPeer> {
    let members = record.members().iter();
    let members = members.filter(|member| member.status != MemberStatus::Joining);
    let members = members.map(|member| (member.id, member.node));
    let removed = record.removed().iter().map(|gone| (gone.id, gone.node));
    let all = members.chain(removed);
    all.map(|(member, node): (MemberId, u128)| ChainPeer { member, node })
        .collect()
}

/// Begins and settles the next move of the plan in one epoch.
pub fn switched(record: &EpochRecord) -> Option<EpochRecord> {
    let plan = record.plan().filter(|plan| !plan.is_cancelled)?;
    let next = plan.left().first()?;
    let begun = record.moved(&[], 1).ok()?;
    let settled = begun.moved(&[next.partition], 0).ok()?;
    Some(relabelled(&settled, record))
}

/// The same record as if it followed `before`.
fn relabelled(record: &EpochRecord, before: &EpochRecord) -> EpochRecord {
    let mut bytes = record.encode();
    bytes[9..17].copy_from_slice(&(before.epoch() + 1).to_le_bytes());
    bytes[17..33].copy_from_slice(&before.digest().to_le_bytes());
    let body = bytes.len() - 8;
    let mut hasher = SipHasher13::new_with_key(b"dendra epochs  1");
    hasher.write(&bytes[..body]);
    bytes.truncate(body);
    bytes.extend_from_slice(&hasher.finish().to_le_bytes());
    EpochRecord::decode(&bytes).expect("the record keeps its invariants")
}
