//! Bounds of watches, and how long they wait.

/// Bytes of changes that a member remembers.
pub const CHANGES_BYTES_DEFAULT: usize = 8 << 20;
/// Cost of a change beside its key.
pub const CHANGE_BYTES: usize = 64;
/// A member remembers changes for so long after the last question about them.
pub const CHANGES_KEPT_US: u64 = 600_000_000;
/// Bytes of keys in one answer of a feed, about.
pub const FEED_BYTES: usize = 64 << 10;
/// Changes that are looked at for one answer of a feed.
pub const FEED_LOOKED_MAX: u64 = 2_048;
/// Pages of watches under way at a time; others wait.
pub const PAGES_MAX: usize = 4;
/// No feed is asked for more changes while so many keys wait for a look.
pub const READY_KEYS_MAX: usize = 1_024;
/// A member holds a question about changes for so long when there is none yet.
pub const FEED_WAIT_US: u64 = 500_000;
/// A question without an answer is asked again after this time.
pub const FEED_TIMEOUT_US: u64 = 2_000_000;
/// A member that refused is asked again after this time.
pub const FEED_AGAIN_US: u64 = 50_000;
/// Dirty keys of one watch: with more of them its reader is too slow.
pub const DIRTY_MAX: usize = 8_192;
/// Dirty keys of all watches of a hub: with more of them some watches end.
pub const DIRTY_KEYS_MAX: usize = 131_072;
/// So many are left then.
pub const DIRTY_KEYS_KEPT: usize = 98_304;
/// A pass over the range asks for its next page while the watch has fewer dirty keys.
pub const PASS_DIRTY: usize = 256;
/// Looks under way at a time.
pub const LOOKS_MAX: usize = 64;
/// Bytes of events for one client at a time, about.
pub const BATCH_BYTES: usize = 64 << 10;
/// A look that failed, or that was too old, is repeated after this time, and then after twice as
/// long, up to `LOOK_AGAIN_US_MAX`.
pub const LOOK_AGAIN_US: u64 = 1_000;
/// From this try on a look asks all owners.
pub const WIDE_FROM_TRY: u32 = 2;
/// See `LOOK_AGAIN_US`.
pub const LOOK_AGAIN_US_MAX: u64 = 1_000_000;
/// How long a write may be under way, unless the world says less: all operations have a deadline,
/// and none is as long. Later a write that was not acknowledged will never be.
pub const WRITE_US_DEFAULT: u64 = 90_000_000;
/// Keys of which a watch remembers what it told last.
pub const TOLD_MAX: usize = 512;
/// Bytes of keys whose values end, for one watch. Later ends are found by another pass.
pub const ENDS_BYTES: usize = 32 << 10;
/// Wall clocks of members are as far apart at most, or their members take no part.
pub const CLOCKS_APART_MS: u64 = 60_000;
/// A token is of use for so long. Later a merge may have taken the bytes of values that have ended,
/// and a watch would not see which.
pub const TOKEN_AGE_MS_MAX: u64 = 1_800_000;
/// The next pass for ends begins so long before the first of them.
pub const ENDS_AHEAD_MS: u64 = 2_000;
