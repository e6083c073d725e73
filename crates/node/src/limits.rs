//! The numbers behind the node's decisions, each with its reason.
//!
//! Invariants
//! 1. Relations between the numbers are asserted at compile time.
//!
//! Not here: sizes that all crates share (crate `base`), queues and buffers of the server.
//! See: docs/overload.md.

/// A clock value further ahead of the own wall clock than this is not believed. Generous beside any
/// working clock synchronisation, small beside the years that one broken clock could cost.
pub const HLC_AHEAD_MS_MAX: u64 = 60_000;

/// The clock's ceiling is persisted this far ahead of use. A restart may find the clock this much
/// ahead of the wall; a step costs nothing, since it rides in the header of the next log write.
pub const CEILING_STEP_MS: u64 = 3_000;

/// The next step is asked for when less than this is left: time for a slow disk to write it.
pub const CEILING_LEFT_MS_MIN: u64 = CEILING_STEP_MS / 2;

/// Pressure below this delays nobody: the engine's buffers are there to be used.
pub const DELAY_LEVEL_MIN: f64 = 0.5;

/// The longest delay, just below the stop. Ten writes a second from each connection give
/// compaction room, and a write still ends far inside its default deadline of a second.
pub const DELAY_US_MAX: u64 = 100_000;

/// Each event loop takes room from a node's gate in pieces of `limit / (loops * this)`, and keeps at
/// most two pieces unused: at most a quarter of the limit is ever idle in the wrong place.
pub const LEASES_PER_LOOP: u64 = 8;

/// What a client is told to wait when a gate was full or the engine was behind: the smallest that
/// the header can say; both pass in milliseconds.
pub const RETRY_AFTER_S_BUSY: u32 = 1;

/// What a client is told to wait when the disk was full: somebody has to make room.
pub const RETRY_AFTER_S_DISK_FULL: u32 = 30;

/// The largest cluster: everybody keeps a connection to everybody, and 256 partitions give each of
/// a hundred members two or three to be the first owner of.
pub const MEMBERS_MAX: usize = 100;

/// Longest name of a cluster: it stands in every description of a topology.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;

/// Longest name of a zone.
pub const ZONE_BYTES_MAX: usize = 64;

/// Longest host of a member's URL: the longest name that the name system knows.
pub const HOST_BYTES_MAX: usize = 253;

const _: () = assert!(CEILING_LEFT_MS_MIN < CEILING_STEP_MS);
const _: () = assert!(
    CEILING_STEP_MS < HLC_AHEAD_MS_MAX,
    "a node that just restarted must still be believed by the others"
);
const _: () = assert!(
    MEMBERS_MAX <= u8::MAX as usize,
    "a member's index is one byte"
);
const _: () = assert!(DELAY_LEVEL_MIN >= 0.0 && DELAY_LEVEL_MIN < 1.0);
const _: () = assert!(
    LEASES_PER_LOOP >= 2,
    "idle leases must leave room for a request"
);
