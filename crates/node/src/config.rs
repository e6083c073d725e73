//! The settings that a world gives a node when it makes one.
//!
//! Invariants
//! 1. All loops of a member share one `hlc`, one `walls`, one `hints`, one `compare.progress`,
//!    one `foregrounds`, one `changes` and one `fence`.
//! 2. Every loop has an `origin` and a `seed` of its own; one loop is the keeper, and one is the
//!    watch.
//!
//! Not here: the names of a server's options (crate `dendra`).
//! See: docs/protocol.md.

use crate::compare::progress::Comparisons;
use crate::foreground::Foregrounds;
use crate::hints::room::HintRoom;
use crate::hlc::Hlc;
use crate::walls::Walls;
use dendra_ownership::layout::{Fence, Layout};
use dendra_ownership::member::MemberIndex;
use dendra_watch::ChangeLog;
use std::sync::Arc;

/// The parts and settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Members and owners.
    pub layout: Arc<Layout>,
    /// The newest durable epoch; all loops of the member share it.
    pub fence: Arc<Fence>,
    /// Which member this is.
    pub me: MemberIndex,
    /// Names this member and this loop in versions and ballots; never used by another one.
    pub origin: u32,
    /// The clock that all loops of the member share.
    pub hlc: Arc<Hlc>,
    /// The last readings of all members' wall clocks; all loops of the member share them.
    pub walls: Arc<Walls>,
    /// Room for hints that all loops of the member share.
    pub hints: Arc<HintRoom>,
    /// Is this loop the keeper? It delivers hints, loads positions that move to this member,
    /// compares copies and repairs. Exactly one loop of a member is.
    pub is_keeper: bool,
    /// How many bytes a second this member loads as a new owner, about.
    pub load_bytes_per_second: u64,
    /// How long the old owner of a position may be away before this member loads from the others.
    pub load_patience_us: u64,
    /// Comparisons of copies.
    pub compare: CompareConfig,
    /// The rounds of clients' operations; all loops of the member share it.
    pub foregrounds: Arc<Foregrounds>,
    /// The last writes of this member; all loops of it share them.
    pub changes: Arc<ChangeLog>,
    /// The number of this loop: whom to tell of a change that it waits for.
    pub lane: usize,
    /// The interval of horizons, which wait for comparisons; 0 = there are none.
    pub forget_every_us: u64,
    /// How long this member waits before it repairs records that it has lost: no operation that is
    /// under way lasts longer.
    pub repair_wait_us: u64,
    /// Is this loop the watch? It asks the other members for their wall clocks. Exactly one loop
    /// of a member is.
    pub is_watch: bool,
    /// For jitter and for ids: another one at each start, so that no id comes twice.
    pub seed: u64,
    /// Operations of clients under way at once.
    pub operations_max: usize,
    /// Longest value that this member keeps, with its metadata.
    pub value_bytes_max: usize,
}

/// How copies are compared with other members.
#[derive(Clone, Debug, Default)]
pub struct CompareConfig {
    /// How far they are; all loops of the member share it.
    pub progress: Arc<Comparisons>,
    /// How many bytes of keys and cells a second the keeper compares, about; 0 = it compares no
    /// records.
    pub bytes_per_second: u64,
    /// How long it rests between two comparisons with one member.
    pub pause_us: u64,
}
