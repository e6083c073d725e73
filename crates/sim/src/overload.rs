//! The crowd of a run: clients in front of loops that cannot serve them all.
//!
//! ```text
//! Crowd ─┬─ LoopCosts, DoorBounds   what a loop spends on each work, and every bound of a member
//!           └─ Habit                   one for each client: from where, what, how patient
//! ```
//!
//! Invariants
//! 1. The crowd asks up to `Crowd::until_us` and no longer: what is wrong later is a remainder.
//!
//! Not here: the draws of a seed (`draws/crowd.rs`), the loop (`door/`), its world
//! (`world/doors.rs`). See: docs/overload.md.

/// The crowd of a run, and the members in front of which it stands.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The processor time of a loop for each of its works.
    pub costs: LoopCosts,
    /// The bounds of a member and of each of its loops.
    pub bounds: DoorBounds,
    /// `--queue-delay-target-ms`, in microseconds.
    pub target_us: u64,
    /// Bytes that a log takes in a millisecond, beside its sync.
    pub log_bytes_per_ms: u64,
    /// Bytes that a flush takes in a millisecond.
    pub flush_bytes_per_ms: u64,
    /// The clients of the crowd.
    pub habits: Vec<Habit>,
    /// When the crowd begins to ask.
    pub from_us: u64,
    /// When it ends.
    pub until_us: u64,
}

/// The processor time that a loop spends, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct LoopCosts {
    /// For a request that is carried out.
    pub request_us: u64,
    /// For one that is refused.
    pub refusal_us: u64,
    /// For one whose client has gone.
    pub gone_us: u64,
    /// For a frame of a member, or an answer of the own store.
    pub event_us: u64,
}

/// The bounds of a member. The server has the same ones under these names in its `limits.rs` or in
/// its options.
#[derive(Clone, Copy, Debug)]
pub struct DoorBounds {
    /// Connections of a member that have asked something.
    pub connections_max: usize,
    /// Operations of clients at a member, all loops together.
    pub requests_max: u64,
    /// Writes of nodes at a member's store, all loops together.
    pub orders_max: u64,
    /// Bytes of those that wait in one loop's line.
    pub order_bytes_max: usize,
    /// Writes and bytes of one loop's batch.
    pub batch_len_max: usize,
    /// See there.
    pub batch_bytes_max: usize,
    /// Writes and bytes of the log's queue.
    pub log_len_max: usize,
    /// See there.
    pub log_bytes_max: usize,
    /// A turn of orders or of clients in line.
    pub turn_bytes: u32,
    /// The memtables' room.
    pub memory_bytes: u64,
    /// Frames and answers of the store that wait in one loop's run queue.
    pub events_max: usize,
}

/// One client of the crowd. It has one connection, and asks again when it was told or gave up.
#[derive(Clone, Debug)]
pub struct Habit {
    /// From which address.
    pub source: u32,
    /// Which member it asks.
    pub member: usize,
    /// What it asks for.
    pub work: HabitWork,
    /// Length of its values.
    pub value_bytes: usize,
    /// How long it gives the member.
    pub timeout_us: u64,
    /// How long it waits until it hangs up.
    pub patience_us: u64,
    /// How long it rests at most before it asks again.
    pub think_us: u64,
    /// When it asks first.
    pub from_us: u64,
    /// True when the client has its address for itself. It waits for as long as the usual deadline:
    /// it is answered again and again.
    pub is_lone: bool,
}

/// The wishes of a client of the crowd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HabitWork {
    /// The client reads.
    Reads,
    /// The client writes.
    Writes,
    /// Both, and some deletes.
    Mixed,
}

impl Crowd {
    /// Addresses that ask.
    pub fn sources(&self) -> usize {
        let mut sources: Vec<u32> = self.habits.iter().map(|habit| habit.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources.len()
    }
}
