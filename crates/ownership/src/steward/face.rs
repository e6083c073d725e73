//! The operator's face of the steward: orders and their answers, as plain values.
//!
//! ```text
//! Status                         ─► Status     members, epoch, the plan under way with its progress
//! Plan(wish)                     ─► Planned    the moves that it would make; nothing happens
//! Apply(id of a plan)            ─► Done       the epoch with which the plan began
//! Cancel, Readdress, Rekey       ─► Done
//! Restored                       ─► Done       conditional writes give other versions from now on
//! Finalize                       ─► Done       releases before this one cannot start any more
//! Throttle                       ─► Done       all members that can be reached are told
//! AcceptLoss(member)             ─► Loss       what may be lost; nothing happens
//! AcceptLoss(member, its id)     ─► Done       the asked member repairs without lost owners, or goes
//!                                              on behind epochs that it cannot read
//! History                        ─► History
//! any                            ─► Declined   a sentence with the way out, and a code
//! ```
//!
//! Invariants
//! 1. An order gets exactly one answer, at the latest `CLUSTER_ORDER_US` later.
//! 2. Members are named by their addresses; any spelling of one is right in an order, and answers
//!    have the normalised one.
//!
//! Not here: JSON and options (crates `server` and `dendra`), carrying orders out (`mod.rs`).

use super::declined::Declined;
use crate::epoch::record::{EpochChange, MemberStatus};
use crate::loss::WalkPart;
use crate::ring::table::MemberId;

use dendra_base::{ClusterVersion, ClusterVersions, LeastSuccessor};

pub use super::accepted_loss::AcceptedLoss;
pub use super::draft_id::DraftId;

/// The orders that an operator can give to any member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// How the cluster is.
    Status,
    /// Tell the moves of a plan. No move begins.
    Plan(PlanWish),
    /// Begin a plan that this member made.
    Apply {
        /// Id of the draft, as the plan said.
        draft: DraftId,
    },
    /// Stop the plan under way: moving positions stay with their old owners.
    Cancel,
    /// A member has another address from now on.
    Readdress {
        /// Address until now.
        from: String,
        /// Next address.
        to: String,
    },
    /// The cluster has the next generation of secrets.
    Rekey,
    /// The newest version that the asked member knows is in force, if all members know it.
    Finalize,
    /// A backup is restored: conditional writes give successor numbers from `least` on. `dendra
    /// restore` orders it, before any member lets clients in.
    Restored {
        /// Above the one in force.
        least: LeastSuccessor,
    },
    /// Members load at most about so many bytes a second, each, until they are told otherwise.
    Throttle {
        /// At least 1.
        bytes_per_second: u64,
    },
    /// Repair the damage of the asked member although owners of the records are lost. Or go on
    /// although it cannot read its newest epochs and no other member has them.
    AcceptLoss {
        /// The address of the asked member.
        member: String,
        /// The id in the answer without it. The possible loss is still the same. `None` = tell it.
        confirm: Option<DraftId>,
    },
    /// The newest epochs that this member knows.
    History {
        /// At most so many.
        entries: usize,
    },
}

/// The changes that an operator wants from one plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanWish {
    /// Members that leave.
    pub remove: Vec<String>,
    /// Members with new shares; 0 = it shall hold no records.
    pub weights: Vec<(String, u16)>,
    /// Members in other zones; empty = itself alone.
    pub zones: Vec<(String, String)>,
    /// Copies of a record from the end of the plan on.
    pub replication_factor: Option<u8>,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAnswer {
    /// To `Status`.
    Status(Box<ClusterStatus>),
    /// To `Plan`.
    Planned(Box<PlanDraft>),
    /// The order is done, and durable at a majority of the voters.
    Done {
        /// The epoch that did it; for `Throttle` the newest epoch.
        epoch: u64,
    },
    /// To `AcceptLoss` without a confirmation.
    Loss(Box<LossDraft>),
    /// To `History`.
    History {
        /// The newest epoch first.
        epochs: Vec<HistoryEntry>,
        /// Losses that were accepted at the asked member, the newest first.
        losses: Vec<AcceptedLoss>,
    },
    /// The order is not done.
    Declined(Declined),
}

/// The effects of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDraft {
    /// `Apply` names it.
    pub id: DraftId,
    /// The epoch that it was made for: it cannot be applied in another one.
    pub epoch: u64,
    /// Copies of a record at its end.
    pub replication_factor: u8,
    /// Addresses of members that leave.
    pub leaves: Vec<String>,
    /// The moves, in their order.
    pub steps: Vec<DraftStep>,
    /// A bound from below on the copies of any plan for the wish.
    pub necessary: usize,
    /// Bytes to be copied, as far as members have told how much they hold.
    pub bytes: Option<u64>,
    /// How long the copies take at least when each member loads as fast as it may.
    pub seconds: Option<u64>,
}

/// A move of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftStep {
    /// Partition to which this belongs.
    pub partition: u16,
    /// Which position, counted from 0.
    pub position: u8,
    /// Address of the owner until now; `None` when the position is new.
    pub from: Option<String>,
    /// Address of the next owner; `None` when the position is taken away.
    pub to: Option<String>,
    /// About how many bytes.
    pub bytes: Option<u64>,
}

/// Damage that can be repaired only without lost owners, and the cost of that repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossDraft {
    /// The confirmation names it.
    pub id: DraftId,
    /// The newest epoch.
    pub epoch: u64,
    /// Address of the damaged member.
    pub member: String,
    /// Addresses of the lost owners.
    pub lost: Vec<String>,
    /// Addresses of the owners from which the ranges are filled.
    pub sources: Vec<String>,
    /// The partitions with copies at a lost owner.
    pub partitions: Vec<u16>,
    /// How many partitions the cluster has.
    pub of_partitions: u16,
    /// Between which keys records are lost.
    pub ranges: Vec<WalkPart>,
    /// Further damaged blocks: the order is given again for them.
    pub further: usize,
    /// Epochs that the member cannot read, and goes on after. Then there are no sources,
    /// partitions and ranges, and `lost` are members that the last of these epochs takes out.
    pub epochs: Option<LostEpochs>,
}

/// Epochs that the folder of a lone member has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostEpochs {
    /// The first of them.
    pub first: u64,
    /// The last one: the member accepted it, and takes it.
    pub last: u64,
}

/// How the cluster is, as one member knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: String,
    /// The newest epoch that is durable at this member.
    pub epoch: u64,
    /// The member that was asked.
    pub asked: MemberId,
    /// Copies of a record.
    pub replication_factor: u8,
    /// Partitions of the key space.
    pub partitions: u16,
    /// Generation of the secrets.
    pub secrets: u32,
    /// The version in force.
    pub version: ClusterVersion,
    /// By number.
    pub members: Vec<MemberState>,
    /// How many members were removed so far.
    pub removed: usize,
    /// The plan under way.
    pub plan: Option<PlanState>,
    /// Up to when deletes and ended values are purged.
    pub horizons: HorizonState,
    /// Why a plan, or the enrolment of founders, does not go on; `None` when neither is held up.
    pub waits: Option<PlanWait>,
    /// How many bytes a second the member that was asked loads at most.
    pub load_bytes_per_second_max: u64,
}

/// Up to when the cluster purges deletes and ended values, and which members hold that back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HorizonState {
    /// The asked member proposes to raise them at most this often; 0 = never.
    pub every_us: u64,
    /// The newest floor, in milliseconds since 1970; `None` = they have not risen yet.
    pub floor_ms: Option<u64>,
    /// Values that were deleted, or had ended, up to this time are purged; milliseconds since 1970.
    pub purge_ms: Option<u64>,
    /// Steps of the horizons until a lowered replication factor gives copies back; 0 = none waits.
    pub narrowing_steps_left: u8,
    /// The next step is late: the last one was long ago for this interval.
    pub is_late: bool,
    /// The members that do not confirm the newest epoch yet.
    pub held: Vec<HorizonHeld>,
}

/// Why a member holds the horizons back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HorizonHeld {
    /// Number of the member: two members have one address while one is replaced in its place.
    pub member: MemberId,
    /// Address of the member.
    pub url: String,
    /// One word for programs.
    pub code: &'static str,
    /// Half a sentence, with the member as its subject.
    pub why: String,
}

/// A member, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Number of the member, for ever.
    pub id: MemberId,
    /// Address of the member.
    pub url: String,
    /// Share of the member.
    pub weight: u16,
    /// Zone of the member; empty = itself alone.
    pub zone: String,
    /// How far it has come in its life.
    pub status: MemberStatus,
    /// The id of its folder; 0 = a founder that was not enrolled yet.
    pub node: u128,
    /// Is there a link to it, from the member that was asked?
    pub is_up: bool,
    /// The newest epoch that it told of.
    pub epoch: Option<u64>,
    /// Positions that it owns.
    pub positions: usize,
    /// Positions that are moving to it.
    pub arriving: usize,
    /// The release that it runs.
    pub release: Option<String>,
    /// The versions that this release knows.
    pub versions: Option<ClusterVersions>,
    /// Bytes of clients' records that it holds.
    pub stored_bytes: Option<u64>,
    /// Bytes that it loaded as a new owner since its process started.
    pub loaded_bytes: Option<u64>,
    /// Bytes that it loads each second.
    pub load_bytes_per_second: Option<u64>,
    /// True when the member's disk has no room for values.
    pub is_disk_full: bool,
    /// Is a backup being restored there? `None` until it told about this epoch, and before
    /// `ClusterVersion::HORIZONS` is in force.
    pub is_restoring: Option<bool>,
}

/// How far the plan under way is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanState {
    /// Id of the plan: the epoch that began with it.
    pub id: u64,
    /// The member that proposed it.
    pub author: MemberId,
    /// True when the plan was stopped: it ends with the next epoch.
    pub is_cancelled: bool,
    /// Copies of a record when it has ended.
    pub replication_factor: u8,
    /// All its moves.
    pub moves: usize,
    /// Moves that are done.
    pub done: usize,
    /// Positions that move now.
    pub moving: usize,
    /// About how many bytes are still to be copied.
    pub bytes_left: Option<u64>,
    /// Bytes that all members together load each second.
    pub bytes_per_second: u64,
    /// Milliseconds since 1970 when this member learnt of it.
    pub since_ms: u64,
    /// How long it may still take, from the bytes that are left and their rate, or else from the
    /// moves that were done so far.
    pub seconds_left: Option<u64>,
}

/// Something in a cluster waits for members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanWait {
    /// Addresses of those members.
    pub members: Vec<String>,
    /// A sentence that names them, with the way out.
    pub why: String,
    /// Is the reason known? Else it is only known that nothing moves.
    pub is_explained: bool,
}

/// One epoch of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Number of the epoch.
    pub epoch: u64,
    /// The change from the one before.
    pub change: EpochChange,
    /// Milliseconds since 1970 when this member learnt it.
    pub learnt_ms: u64,
    /// The plan that was under way, or ended with it.
    pub plan: Option<u64>,
    /// Addresses of members that came.
    pub came: Vec<String>,
    /// Addresses of members that were removed.
    pub went: Vec<String>,
    /// Positions that began to move.
    pub begun: usize,
    /// Positions that arrived.
    pub settled: usize,
    /// Why the plan was stopped without an order, as far as this member knows.
    pub why: Option<String>,
}
