//! The numbers behind changes of the members, each with its reason.
//!
//! Invariants
//! 1. Relations between the numbers are asserted at compile time.
//!
//! Not here: the numbers of operations and copies (crate `node`).
//! See: docs/overload.md.

/// While a member confirms writes, the others note it so often: an image that is older is refused,
/// whichever members died.
pub const PEER_NOTE_PAUSE_US: u64 = 1_000_000;
/// Starts of a member that another one may have missed. A member that starts once a second, and is
/// never met, takes twelve days for them. A claim further ahead is a lie or damage.
pub const STARTS_AHEAD_MAX: u64 = 1 << 20;

/// From the first packet of a link to the end of its handshake. A start waits so long for members
/// that do not answer.
pub const LINK_OPEN_TIMEOUT_US: u64 = 1_000_000;

/// A process that is told `still-there` ends after this time. A member notices within three seconds
/// that an earlier process has gone; this is several times as long.
pub const TWIN_PATIENCE_US: u64 = 10_000_000;

/// The largest cluster: each member keeps connections to all others. With 256 partitions each of a
/// hundred members is the first owner of two or three.
pub const MEMBERS_MAX: usize = 100;

/// The most members that a table of owners names: those of a full cluster that leave, and as many
/// that come in their place.
pub const TABLE_MEMBERS_MAX: usize = 2 * MEMBERS_MAX;

/// Members that a cluster can remove in its life, each refused for ever: one a day for eleven
/// years. They take 112 KiB of the record of each epoch.
pub const REMOVED_MEMBERS_MAX: usize = 4_096;

/// Moves of one plan: sixteen positions of each of 16384 partitions. They take 1.3 MB of the record
/// of each epoch while the plan is under way.
pub const PLAN_MOVES_MAX: usize = 1 << 18;

/// Notes of the chain of epochs that one member has under way to its disk. Beyond it messages are
/// dropped, and their senders repeat them: a member has one vote for one epoch at a time.
pub const CHAIN_NOTES_MAX: usize = 64;

/// Damaged blocks of which one order accepts the loss: so many are shown to an operator at once.
/// The order is given again for more.
pub const LOSS_BLOCKS_MAX: usize = 256;

/// Accepted losses that a member remembers: 34 KiB of its folder.
pub const LOSSES_KEPT_MAX: usize = 16;

/// Epochs in one message to a member that is behind.
pub const EPOCH_PAGE_RECORDS_MAX: usize = 32;

/// Bytes of one such message, but never less than one record: two of the largest records.
pub const EPOCH_PAGE_BYTES_MAX: usize = 8 << 20;

/// How often a member tells another one its epoch. A member that was away learns within this time
/// that it is behind; one behind a lossy link asks again.
pub const EPOCH_GOSSIP_US: u64 = 1_000_000;

/// How long the old owner of a position may be away before the new one loads from the others,
/// unless told otherwise. Behind a refusal a new owner rests for a hundredth of it.
pub const LOAD_PATIENCE_US_DEFAULT: u64 = 10_000_000;

/// How many bytes a second a new owner loads unless told otherwise.
pub const LOAD_BYTES_PER_SECOND_DEFAULT: u64 = 64 << 20;

/// How long a proposal of an epoch waits for votes: two syncs of a slow disk and two round trips.
pub const EPOCH_VOTE_US: u64 = 500_000;

/// Ballots of one proposal. Each lasts longer than the one before; with the last the proposer gives
/// up, and the next tick of its driver reads the state again.
pub const EPOCH_BALLOTS_MAX: u32 = 8;

/// Positions that move at once: as many as a cluster has partitions by default. One walk of a
/// source passes all data of that source and serves all of them, so each source is read once. A
/// write to a moving position goes to one more owner.
pub const MOVES_SIDE_BY_SIDE: usize = 256;

/// How long a member waits for each one in front of it before it carries a plan on itself. A
/// proposal takes a fraction of it.
pub const STEWARD_TURN_US: u64 = 2_000_000;

/// How long a member must have been missed before another one may take its place. A process that
/// starts again, or a link that was cut for a moment, is back before that.
pub const REPLACE_PATIENCE_US: u64 = 10_000_000;

/// How long the disk of a member may be full before the plan that moves copies to it is stopped. An
/// operator has this time to make room.
pub const FULL_DISK_PATIENCE_US: u64 = 10_000_000;

/// A step of the horizons is late when there was none for twice its interval and this. Each step
/// waits for comparisons of all members with each other, and for news that go each few seconds.
pub const FORGET_LATE_US: u64 = 60_000_000;

/// How many records of epochs that only raised horizons a folder keeps behind the newest one. One
/// is needed: each member had the epoch before a step durable when that step was chosen.
pub const HORIZON_EPOCHS_KEPT: u64 = 8;

/// How long a plan may take still is told from so many loaded bytes on, or from this part of all
/// its bytes on.
pub const ETA_BYTES_MIN: u64 = 1 << 20;
/// See [`ETA_BYTES_MIN`].
pub const ETA_FRACTION: u64 = 64;

/// For so long nothing was loaded, and no epoch was adopted: no time is told.
pub const ETA_QUIET_US: u64 = 5_000_000;

/// For so long nothing was loaded, and no epoch was adopted: the plan waits, also if no reason is
/// known.
pub const PLAN_QUIET_US: u64 = 30_000_000;

/// How often members tell each other how far they are while a plan runs.
pub const PROGRESS_US: u64 = 1_000_000;

/// How often members tell each other how far they are, at rest.
pub const PROGRESS_REST_US: u64 = 5_000_000;

/// How long the first members wait for the folders of founders that have not come yet, before they
/// record those that have.
pub const ENROL_PATIENCE_US: u64 = 10_000_000;

/// Orders of operators and joiners that wait for their epoch at one member. One takes well below a
/// second; beyond it an order is declined.
pub const CLUSTER_ORDERS_MAX: usize = 16;

/// How long an order waits for its epoch.
pub const CLUSTER_ORDER_US: u64 = 30_000_000;

/// Plans that one member keeps until one is applied; the oldest is forgotten first.
pub const CLUSTER_DRAFTS_MAX: usize = 16;

/// Epochs of which a member keeps a line in memory. The folder keeps them all, but for old ones
/// that only raised horizons.
pub const HISTORY_ENTRIES_MAX: usize = 1_024;

/// Longest name of a release in a member's progress.
pub const RELEASE_BYTES_MAX: usize = 64;

/// Longest name of a cluster: it stands in every description of a topology.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;

/// Longest name of a zone.
pub const ZONE_BYTES_MAX: usize = 64;

/// Longest host of a member's URL: the longest name that the name system knows.
pub const HOST_BYTES_MAX: usize = 253;

/// Behind a start of this process, a member to which no link came up in this time does not answer.
/// A link is tried several times until then.
pub const LINKS_SETTLE_US: u64 = 10_000_000;
// The news of another member that still reaches the lost one is from before its loss was noticed.
const _: () = assert!(REPLACE_PATIENCE_US > PROGRESS_REST_US + LINK_OPEN_TIMEOUT_US);
const _: () = assert!(TWIN_PATIENCE_US > 3 * LINK_OPEN_TIMEOUT_US);
const _: () = assert!(
    EPOCH_PAGE_RECORDS_MAX <= CHAIN_NOTES_MAX,
    "a page of epochs fits in the notes under way"
);
const _: () = assert!(
    STEWARD_TURN_US > 2 * EPOCH_VOTE_US && CLUSTER_ORDER_US > 4 * STEWARD_TURN_US,
    "an order outlives the turns of a few members that are gone"
);
const _: () = assert!(
    MEMBERS_MAX <= u8::MAX as usize,
    "a member's index is one byte"
);
