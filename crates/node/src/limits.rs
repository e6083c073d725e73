//! The numbers behind the node's decisions, each with its reason.
//!
//! Invariants
//! 1. Relations between the numbers are asserted at compile time.
//!
//! Not here: sizes that all crates share (crate `base`), queues and buffers of the server.
//! See: docs/overload.md.

use dendra_ownership::limits::MEMBERS_MAX;

/// Two wall clocks further apart than this do not agree. Generous beside any working clock
/// synchronisation, small beside the ends of values that a wrong clock would shift.
pub const WALL_APART_MS_MAX: u64 = 60_000;

/// The reading of another member's wall clock counts for so long. A corrected clock is asked again
/// long before; the clock of a member that is gone says nothing any more.
pub const WALL_FRESH_US: u64 = 10_000_000;

/// A store takes the bytes of a value so long after its end at the earliest, by the clocks of most
/// members. Coordinators whose clocks agree may be two minutes apart; the rest is for a node by
/// itself, which knows no other clock than its own.
pub const ENDED_MARGIN_MS: u64 = 3_600_000;

/// And only once the own wall clock has run side by side with the monotonic one for so long. A
/// machine that starts with a wrong clock sets it in the first minutes.
pub const CLOCK_EVEN_US: u64 = 3_600_000_000;

/// Between two looks, half a second apart, a clock that is adjusted and not set moves by less.
pub const CLOCK_STEP_MS_MAX: u64 = 1_000;

/// How often each other member is asked for its wall clock, unless a write has asked it already.
pub const WALL_EXCHANGE_US: u64 = 1_000_000;

/// How often other members are asked for their wall clocks while the own wall clock agrees with no
/// majority: it heals as soon as it was put right.
pub const WALL_EXCHANGE_DOUBTED_US: u64 = 200_000;

/// The clock's ceiling is persisted this far ahead of the wall clock. A restart may find the clock
/// this much ahead of the wall. A step costs nothing: it is in the header of the next log write.
pub const CEILING_STEP_MS: u64 = 3_000;

/// The next step is asked for when less than this is left: time for a slow disk to write it.
pub const CEILING_LEFT_MS_MIN: u64 = CEILING_STEP_MS / 2;

/// A clock that is ahead of the wall counts by ones: 2^16 of them make a millisecond. So its
/// ceiling need not be far. Crash after crash leads away from the wall clock by `CEILING_STEP_MS`
/// and by this much for each crash, which is less than a start takes.
pub const CEILING_COUNT_MS: u64 = 100;

/// Disputed records that are remembered at once. More of them are counted, and seen again later.
pub const DISPUTES_MAX: usize = 64;
/// How long a record that was seen so is not looked at again: its settlement is under way.
pub const DISPUTE_PAUSE_US: u64 = 1_000_000;
/// How long a read that sees it waits for owners that have not answered.
pub const DISPUTE_PATIENCE_US: u64 = 100_000;
/// Deadline of the write that settles it.
pub const DISPUTE_TIMEOUT_US: u64 = 5_000_000;

/// Pressure below this delays no request: the engine's buffers are there to be used.
pub const DELAY_LEVEL_MIN: f64 = 0.5;

/// The longest delay, just below the stop. Ten writes a second from each connection give
/// compaction room, and a write still ends far inside its default deadline of a second.
pub const DELAY_US_MAX: u64 = 100_000;

/// Longest delay of a write that is larger than the mean of those before it. A body that did not
/// come with its head is unread meanwhile, and its deadline does not run; for one that did, this is
/// still far inside the default deadline.
pub const DELAY_US_MAX_LARGE: u64 = 400_000;

/// A shorter delay is none: timers have a resolution of a millisecond.
pub const DELAY_US_MIN: u64 = 500;

/// The mean size of writes follows so many of them: one large value among them moves it little.
pub const DELAY_MEAN_WRITES: f64 = 4_096.0;

/// From this share of the memtables' room on large writes wait: the rest is for the others. Of
/// three memtables of 32 MiB it is 8 MiB: as long as one is flushed, 40,000 writes a second of a
/// kilobyte.
pub const RESERVE_SHARE: f64 = 0.92;

/// Orders and clients that wait for the engine's room take turns of so many bytes: 64 writes of a
/// kilobyte are a batch, and a client waits for a millisecond of them.
pub const LINE_TURN_BYTES: u32 = 64 << 10;

/// A write of more than so many times the mean size is large.
pub const LARGE_FACTOR: f64 = 2.0;

/// A smaller write counts as one of so many bytes.
pub const DELAY_WRITE_BYTES_MIN: u64 = 128;

/// Each event loop takes room from a node's gate in pieces of `limit / (loops * this)`. It keeps at
/// most two pieces unused: at most a quarter of the limit is idle in the wrong place.
pub const LEASES_PER_LOOP: u64 = 8;

/// `Retry-After` when a gate was full or the engine was behind: the smallest value that the header
/// can tell. Both pass in milliseconds.
pub const RETRY_AFTER_S_BUSY: u32 = 1;

/// `Retry-After` when the disk was full: the operator has to make room.
pub const RETRY_AFTER_S_DISK_FULL: u32 = 30;

/// A later epoch that another member knows is asked for again after this time.
pub const EPOCH_LEARN_US: u64 = 20_000;

/// Questions that wait until this loop has learnt their epoch. That takes a round trip and a sync.
pub const EARLY_ASKS_MAX: usize = 1_024;

/// Bytes of an owner's store that one question of a new owner covers.
pub const LOAD_PAGE_BYTES: u32 = 256 << 10;

/// Bytes of an owner's store that one question covers while the load has at most one page under
/// way: a source works on it for a millisecond.
pub const LOAD_PAGE_BYTES_NARROW: u32 = 64 << 10;

/// A load of one page behind the other, without a rest: the unit of a load's width.
pub const PACE_WIDTH_ONE: u32 = 64;

/// The narrowest load: it rests for seven eighths of the time. A copy that is missing has to come
/// back however many clients ask.
pub const PACE_WIDTH_MIN: u32 = PACE_WIDTH_ONE / 8;

/// The widest load: a page of each of four sources. More sources than that would fill the processor
/// of the member that loads.
pub const PACE_WIDTH_MAX: u32 = 4 * PACE_WIDTH_ONE;

/// How long a load goes on between two looks at how clients fare.
pub const PACE_LOADING_US: u64 = 400_000;

/// How long a load goes on between two looks when no client asked: the next one waits for so long
/// at most until the load gives way.
pub const PACE_LOADING_US_IDLE: u64 = 1_000_000;

/// How long a load lets clients alone to see how they fare without it: a fifth of the time.
pub const PACE_CLEAN_US: u64 = 100_000;

/// The longest rest behind a page.
pub const PACE_REST_US_MAX: u64 = 1_000_000;

/// Rounds of clients on each side of a judgement: a mean of fewer says little.
pub const PACE_ROUNDS_MIN: u64 = 32;

/// How long a load waits for the foregrounds of the members.
pub const FOREGROUND_ASK_US: u64 = 200_000;

/// For how long one round counts at most: the default deadline of a request.
pub const FOREGROUND_ROUND_US_MAX: u64 = 1_000_000;

/// A load that fell behind its bound in bytes a second may catch up for so long.
pub const LOAD_CATCH_UP_US: u64 = 100_000;

/// The bytes that the source of a repair reads for one page: few blocks behind the span. So damage
/// of its own elsewhere seldom stands in the way.
pub const REPAIR_PAGE_BYTES: u32 = 32 << 10;

/// Between two tries of a repair for which owners are missing.
pub const REPAIR_PAUSE_US: u64 = 1_000_000;

/// The longest pause before a source is asked again that is damaged in the same keys.
pub const REPAIR_GAP_PAUSE_US_MAX: u64 = 30_000_000;

/// How long no owner that a repair needs can be read before it is said to wait.
pub const REPAIR_STUCK_US: u64 = 10_000_000;

/// How long after damage was found its repair begins. It is the longest time limit of a client, a
/// minute, and a twelfth of it for clocks that run at different speeds.
pub const REPAIR_WAIT_US_DEFAULT: u64 = 65_000_000;

/// Loaded records that a new owner writes at once: other questions to this member need room, too.
pub const LOAD_WRITES_MAX: usize = 64;

/// How long a new owner waits for one page.
pub const LOAD_ASK_US: u64 = 5_000_000;

/// How many bytes of keys and cells a second a member compares with others unless told otherwise: a
/// gigabyte in eight minutes.
pub const COMPARE_BYTES_PER_SECOND_DEFAULT: u64 = 2 << 20;

/// While deletes wait for comparisons, these go so many times as fast at most.
pub const COMPARE_HASTE_MAX: u64 = 16;

/// Between the end of one comparison with a member and the next one with it.
pub const COMPARE_PAUSE_US_DEFAULT: u64 = 60_000_000;

/// Pause behind a comparison that left something out, and behind a link that came up: hints go
/// first.
pub const COMPARE_AGAIN_US: u64 = 2_000_000;

/// Keys and cells of one look at the own copies.
pub const COMPARE_PAGE_BYTES: u64 = 1 << 20;

/// Records of a range that two members compare at first. Larger ones make fewer bytes of a
/// comparison without a difference, smaller ones make fewer of one with some.
pub const COMPARE_GRAIN: u32 = 1_024;

/// Records of a range that is not split again: its records are listed.
pub const COMPARE_GRAIN_LAST: u32 = 32;

/// Keys and cells of a range, for any number of records.
pub const COMPARE_RANGE_BYTES: u64 = 256 << 10;

/// Keys and cells that a member looks at for one question of a peer. Between the same keys it may
/// hold several times as many as the peer.
pub const COMPARE_ANSWER_BYTES: u64 = 4 * COMPARE_PAGE_BYTES;

/// Keys and cells of a page of records that are listed, and of the own ones beside them.
pub const COMPARE_LIST_BYTES: u32 = 256 << 10;

/// Repairs of a comparison under way at once.
pub const COMPARE_STEPS_MAX: usize = 32;

/// How long a comparison waits for one answer of a peer.
pub const COMPARE_ASK_US: u64 = 5_000_000;

/// How long a comparison rests when the peer or the own store is busy, and how often it asks again
/// before it is given up.
pub const COMPARE_BUSY_US: u64 = 500_000;
/// See [`COMPARE_BUSY_US`].
pub const COMPARE_TRIES_MAX: u32 = 8;

/// A plain write that is younger is not a difference: it may be under way to its owners. Longer
/// than the deadlines that clients use.
pub const COMPARE_YOUNG_MS: u64 = 2_000;

/// Between the two looks at a record that an operator's look finds to differ.
pub const LOOK_AGAIN_US: u64 = COMPARE_YOUNG_MS * 1_000;

/// Memory of records that wait for their second look, about.
pub const LOOK_SUSPECT_BYTES: usize = 4 << 20;

/// Keys of records that differ in the report of a look, for each pair of members.
pub const LOOK_EXAMPLES_MAX: usize = 16;

/// How often horizons rise at most unless told otherwise. A deleted value gives its space back
/// behind six of these steps: in an hour. A step costs an epoch, and operations under way repeat
/// one round.
pub const FORGET_EVERY_US_DEFAULT: u64 = 600_000_000;

/// Operations of clients that one loop has under way: more than the request gate lets in.
pub const OPERATIONS_MAX: usize = 16_384;

/// Questions to one peer that are open on one loop: half as many as there may be operations, each
/// with one question to each owner. Beyond that the peer is not keeping up.
pub const PEER_ASKS_MAX: u32 = 8_192;

/// Questions of all peers that one loop works on. A store that is slower than its peers ask answers
/// `Busy`, and the others do the work.
pub const REPLICA_JOBS_MAX: usize = 16_384;

/// Open orders of one loop to its own store: those of peers, of operations, and of their later
/// work. Beyond it the own store counts as not answering.
pub const ORDERS_MAX: usize = 65_536;

/// How often a promise or an acceptance is tried again because another one for the same key came in
/// between. Each try that fails means that another write got through.
pub const PROTOCOL_TRIES_MAX: u8 = 8;

/// The first pause of a proposer that was outbid is drawn below this, about a round trip.
pub const BACK_OFF_US_MIN: u64 = 1_000;

/// Pauses double up to this: far inside a deadline of a second.
pub const BACK_OFF_US_MAX: u64 = 64_000;

/// How long a proposal remembers an author, by the clock values of both. A coordinator rests for
/// less between two attempts, even when it stalls. So a key without rivals keeps a record without
/// names.
pub const ANCESTOR_AGE_MS: u64 = 10_000;

/// The longest pause of a write that has a proposal under way. Rivals that get through meanwhile
/// push its name out of the ancestors that their proposals remember.
pub const BACK_OFF_OWN_US_MAX: u64 = 4_000;

/// How long a conditional write waits behind another one of its key while nothing moves there. It
/// is far above the time of a write with healthy members, and far inside a deadline of a second.
/// Then it leaves the queue and runs beside the other one, as writes of other coordinators do.
pub const QUEUE_STILL_US_MAX: u64 = 100_000;

/// Questions that a plain write puts to one owner: its clock, and the value. Each once.
pub const WRITE_QUESTIONS_MAX: u32 = 2;

/// Questions that a read, or one try of a conditional write, puts to one owner. For a read they are
/// a copy and two writes of the newest cell. For a write they are a promise, an acceptance and the
/// value.
pub const TRY_QUESTIONS_MAX: u32 = 3;

/// The shortest and the longest patience before a read asks another member. They are a round trip
/// in a rack with one sync in front, and a tenth of the smallest deadline that clients use.
pub const HEDGE_US_MIN: u64 = 1_000;
/// See [`HEDGE_US_MIN`].
pub const HEDGE_US_MAX: u64 = 50_000;

/// How long the word of a member counts that it is behind: it tells it again beside each clock, and
/// members exchange clocks once in half of that.
pub const READINESS_FRESH_US: u64 = 2 * WALL_EXCHANGE_US;

/// The shortest patience before a write asks further members for the time. It is longer than that
/// of a read: a clock needs no disk, so a member that is later than this is stopped, not slow. In a
/// healthy cluster no timer should ring.
pub const CLOCK_PATIENCE_US_MIN: u64 = 5_000;

/// A lost link is expected back for so long, and operations that need its member wait. A
/// reset connection, or the restart of its neighbour, is over by then. Half of the default deadline
/// is left. From then on operations are refused at once.
pub const LINK_GRACE_US: u64 = 500_000;

/// How often a version that waits for its ceiling looks whether another loop had it persisted.
pub const COVER_POLL_US: u64 = 1_000;

/// Bytes of a member's hints unless the operator says otherwise: some minutes of writes for one
/// absent member. Beyond it repair by reads takes longer, and nothing is lost.
pub const HINT_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// One page of a walk through hints: many small ones, or one of the largest.
pub const HINT_PAGE_BYTES_MAX: u32 = 256 << 10;

/// Deliveries of hints at once: a member that comes back has other things to do.
pub const HINT_WINDOW_MAX: usize = 32;

/// How much longer a member rests than it deletes hints of removed members. No client waits for
/// these deletes, and all of them fall due at once: they get a sixteenth of the time.
pub const HINT_ORPHANS_REST: u64 = 15;

/// The shortest rest between two lots of such deletes: at most 1,600 a second, where a member keeps
/// up to 250,000 hints of a kilobyte. An idle store takes 30,000 a second.
pub const HINT_ORPHANS_REST_US_MIN: u64 = 20_000;

/// How often a hint is tried again because another one for the same key and member came in between.
/// Each try that fails means that another loop of this member got through; without more tries the
/// hint is dropped.
pub const HINT_TRIES_MAX: u8 = 4;

/// Between two looks for hints of members that have links: hints that were refused, or answered
/// late.
pub const HINT_PAUSE_US: u64 = 10_000_000;

/// How long the delivery of one hint may take.
pub const HINT_TIMEOUT_US: u64 = 5_000_000;

/// Scans of clients under way on one loop, each with a page of every member in memory.
pub const SCANS_MAX: usize = 32;

/// The largest page that a member makes for another one, even if that one asks for more.
pub const SCAN_PAGE_BYTES_MAX: u32 = 1 << 20;

/// So many sources are remembered that were called in a round of the requests in line, or charged,
/// and do not wait now: as many as there are connections.
pub const ROUND_SOURCES_MAX: usize = 16_384;

/// Questions about changes that one loop holds until there are some: one of each loop of all
/// members, and more.
pub const HELD_FEEDS_MAX: usize = 4_096;

/// How long a watch waits for the state of a key, and for a page of keys. Then it asks again.
pub const WATCH_READ_TIMEOUT_US: u64 = 5_000_000;

/// How long a page of a watch waits for the answers of members, when the page before was of no use
/// without them.
pub const WATCH_PATIENCE_US: u64 = 1_000_000;

/// Bytes of keys in one page of a watch, about, for each member.
pub const WATCH_PAGE_BYTES: u32 = 64 << 10;

/// How long a scan waits for the answers of members that it can do without.
pub const SCAN_PATIENCE_US: u64 = 50_000;

const _: () = assert!(BACK_OFF_US_MIN <= BACK_OFF_US_MAX && HEDGE_US_MIN <= HEDGE_US_MAX);
const _: () = assert!(CLOCK_PATIENCE_US_MIN <= HEDGE_US_MAX);
const _: () = assert!(
    OPERATIONS_MAX < 1 << 20
        && REPLICA_JOBS_MAX < ORDERS_MAX
        && ORDERS_MAX + REPLICA_JOBS_MAX < 1 << 20
        && MEMBERS_MAX * (PEER_ASKS_MAX as usize) < 1 << 20,
    "a ledger's slots have 20 bits"
);
const _: () = assert!(COMPARE_RANGE_BYTES <= COMPARE_PAGE_BYTES);
const _: () = assert!(COMPARE_GRAIN_LAST < COMPARE_GRAIN);
const _: () = assert!(
    ENDED_MARGIN_MS > 3 * WALL_APART_MS_MAX,
    "no coordinator that writes takes a value for alive whose bytes are gone"
);
const _: () = assert!(CEILING_LEFT_MS_MIN < CEILING_STEP_MS);
const _: () = assert!(CEILING_COUNT_MS >= 2 && CEILING_COUNT_MS < CEILING_LEFT_MS_MIN);
const _: () = assert!(
    WALL_EXCHANGE_DOUBTED_US < WALL_EXCHANGE_US && 4 * WALL_EXCHANGE_US < WALL_FRESH_US,
    "some answers may be lost before a clock is unknown"
);
const _: () = assert!(DELAY_LEVEL_MIN >= 0.0 && DELAY_LEVEL_MIN < 1.0);
const _: () = assert!(RESERVE_SHARE > 0.5 && RESERVE_SHARE < 1.0);
const _: () = assert!(
    LEASES_PER_LOOP >= 2,
    "idle leases must leave room for a request"
);
