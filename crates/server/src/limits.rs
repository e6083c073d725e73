//! Every bound of the server that is not another crate's, each with its reason.
//!
//! Invariants
//! 1. Every queue, buffer and loop of this crate names its bound here or in `Settings`.
//! 2. Relations between bounds are asserted at compile time.
//!
//! Not here: sizes that all crates share (crate `base`, `limits.rs`), bounds of the engine's own
//! queues (crate `engine`, `options.rs`).
//! See: docs/overload.md.

use std::time::Duration;

/// Threads of the store pool for reads of one key, and as many for scans. They are enough to keep a
/// disk of queue depth 4 busy while two cores serve.
pub const WORKERS_DEFAULT: usize = 4;
/// More threads than any disk has use for.
pub const WORKERS_MAX: usize = 256;
/// Jobs waiting for the store pool. At 100 µs a read and four workers, 1024 jobs are 25 ms of work,
/// well inside the default deadline of a request.
pub const STORE_QUEUE_LEN_MAX_DEFAULT: usize = 1024;
/// A queue beyond this is longer than the longest deadline.
pub const STORE_QUEUE_LEN_MAX_LIMIT: usize = 1 << 16;
/// Scans may take this share of the queue (a half), so that point reads always find room.
pub const SCAN_QUEUE_SHARE: usize = 2;
/// The engine's memory: fits the smallest machine that is worth a database.
pub const MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// Long enough for every deadline in flight at its default, short enough for an orchestrator's 30
/// s.
pub const DRAIN_MS_DEFAULT: u64 = 5_000;
/// Connections at once: an idle one costs about a kilobyte here and a few in the kernel.
pub const CONNECTIONS_MAX_DEFAULT: usize = 16_384;
/// Descriptors kept for the engine, the admin plane and the process itself when the system's limit
/// is lower than `connections_max`.
pub const DESCRIPTORS_RESERVED: usize = 1_024;
/// An address gets no further place among the clients' connections when it has so many times as
/// many as are free. So one address leaves a seventeenth of the gate to others, where two leave a
/// thirty-third; and a gate of sixteen may be one address's.
pub const ADDRESS_SHARE_OF_FREE: u64 = 16;
/// Requests that wait for the log or the store pool at once; as many as the log's queue takes.
pub const REQUESTS_INFLIGHT_MAX_DEFAULT: usize = 4_096;
/// Watches of clients, all loops together: an idle one costs some kilobytes.
pub const WATCHES_MAX_DEFAULT: usize = 10_000;
/// Bodies arriving and large answers leaving, together: a quarter of the default memory.
pub const BODY_BYTES_INFLIGHT_MAX_DEFAULT: usize = 64 << 20;
/// Event loops: their number travels in eight bits of a write's token.
pub const LOOPS_MAX: usize = 255;

/// One read from a socket; also the longest run of pipelined requests parsed in one go.
pub const READ_BYTES_MAX: usize = 64 << 10;
/// Answers are written out once this much waits: a pipelined burst is one write, and a burst of
/// large values does not pile up.
pub const ANSWER_BYTES_FLUSH: usize = 64 << 10;
/// Writes of one connection that may wait for one commit: keeps a single pipelining client from
/// taking the whole gate.
pub const PIPELINED_WRITES_MAX: usize = 256;
/// Writes of one loop that wait for room in the log's queue before new ones are refused. Half of
/// the log's own queue, so that a waiting batch fits as soon as the queue is empty.
pub const LANE_BATCH_LEN_MAX: usize = 2_048;
/// With durability `os` a loop writes a batch of so many bytes to the log itself: 0.2 ms. The log's
/// own thread writes a longer one.
pub const INLINE_COMMIT_BYTES_MAX: u64 = 256 << 10;
/// One chunk of a scan: large enough to be one write, small enough for ten thousand readers.
pub const SCAN_CHUNK_BYTES: usize = 64 << 10;
/// Scans may hold this share of the room for bytes (a half), so that values always find some.
pub const SCAN_BYTES_SHARE: usize = 2;
/// So many times as much may stand in line for that room. A scan that waits holds no memory, and
/// clients that scan again as soon as they are refused cost more than those that wait.
pub const SCAN_LINE_ROOMS: usize = 16;
/// Values of more than 4 KiB, with a body of their own, that a member has begun to write, all loops
/// together. Owners on slow machines store as much within a part of a request's deadline. On fast
/// machines it is more than a network takes in the time of a write. The largest value fits.
pub const MEMBER_VALUE_BYTES_MAX: usize = dendra_base::limits::WRAPPED_VALUE_BYTES_MAX;
/// The bytes that one scan job may look at before it goes back to the end of the queue: about a
/// millisecond of decoding. So a scan over tombstones does not hold a worker.
pub const SCAN_LOOK_BYTES: usize = 256 << 10;
/// Chunks or pages that one request counts: 16 MiB of records of a node alone, some tens of
/// milliseconds. Its answer says where the next request goes on.
pub const COUNT_PAGES_MAX: usize = 64;

/// Reads of connections that give way, called at once: about a tenth of a millisecond of work.
/// Behind them the loop looks at its sockets, which costs a hundredth of it.
pub const CALLS_A_TURN: usize = 4;
/// Calls at once when the first of them has waited for this long: turns of the loop are long then.
pub const CALLS_A_TURN_LATE: usize = 32;
/// See `CALLS_A_TURN_LATE`.
pub const WAY_WAIT_US: u64 = 5_000;
/// TLS handshakes that are begun at once: one takes some tenths of a millisecond, most of it for
/// one signature.
pub const HANDSHAKES_A_TURN: usize = 1;
/// Handshakes at once when the first of them has waited for `WAY_WAIT_US`.
pub const HANDSHAKES_A_TURN_LATE: usize = 4;
/// So many bytes, read or written, are the work of one call out of a loop's line. To copy them and
/// to check them takes about as long as a small request. While others wait, a connection reads so
/// many of a body in a row, and writes no further answer after so many.
pub const WORK_OF_A_CALL: usize = 64 << 10;
/// A request counts as so many bytes of work beside its own. It is an estimate: one of many that
/// came together needs no call of the system, and takes an eighth of one that came alone.
pub const WORK_OF_A_REQUEST: usize = WORK_OF_A_CALL / 8;
/// One read of a body while no other work waits: a part of a millisecond.
pub const BODY_READ_BYTES_MAX: usize = 256 << 10;
/// New connections that a loop takes in a row, before other work has its turn.
pub const CONNECTIONS_A_TURN: usize = 8;

/// While a loop is near its capacity, chunks of scans get this share of one processor (a quarter).
/// Behind each chunk, scans rest for three times as long as it took.
pub const SCAN_TIME_SHARE: u64 = 4;
/// But for no longer than this: a scan goes on, however long a chunk took on a slow disk.
pub const SCAN_REST_MAX: Duration = Duration::from_millis(100);

/// A body that arrives slower than this (after `Timeouts::body`) is given up.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 64 << 10;
/// While others wait for room, a body or an answer that holds some must move at the least rate over
/// this time. Else it gives its room back.
pub const TURNOVER_TIME: Duration = Duration::from_secs(1);
/// However large, no body may take longer.
pub const BODY_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// A body that is to be dropped is read up to this much to keep the connection.
pub const DISCARD_BYTES_MAX: usize = 16 << 20;
/// Unwanted bytes that a loop reads between two sweeps, 40 MiB a second: wanted bytes come first.
pub const DISCARD_BYTES_PER_SWEEP: usize = 4 << 20;
/// Behind a request that was refused and closes, this much is read: enough for any header that a
/// browser sends.
pub const LINGER_BYTES_MAX: usize = 64 << 10;
/// A read of fewer bytes behind it counts as so many: that is at most 64 reads.
pub const LINGER_READ_BYTES_LEAST: usize = 1 << 10;
/// After an answer that ends a connection: how long to wait for the client to have read it.
pub const LINGER: Duration = Duration::from_secs(2);
/// Deadlines of connections are looked at this often: no timer per request.
pub const SWEEP: Duration = Duration::from_millis(100);
/// A quiet log is sealed after this.
pub const SEAL_AFTER: Duration = Duration::from_millis(10);
/// One slice of background work.
pub const MAINTAIN_SLICE_BYTES: usize = 1 << 20;
/// The node looks this often whether its data folder is still its own. So long it may acknowledge
/// writes into a folder that was taken away; a look is four system calls and a read of 50 bytes.
pub const FOLDER_LOOK: Duration = Duration::from_secs(1);
/// Background work looks around this often without being woken.
pub const MAINTAIN_IDLE: Duration = Duration::from_millis(500);
/// Longest pause between two slices of compaction while no write waits for it.
pub const MAINTAIN_PAUSE_MAX: Duration = Duration::from_millis(20);

/// The bytes of tables that a scrub reads a second: 100 GiB in seven hours, for half a percent of
/// one core.
pub const SCRUB_BYTES_PER_SECOND_DEFAULT: u64 = 4 << 20;
/// A pass of a scrub over all tables begins a day after the one before it, at the earliest.
pub const SCRUB_EVERY_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);
/// One slice of a scrub.
pub const SCRUB_SLICE_BYTES: u64 = 1 << 20;
/// Between two looks whether there is something to scrub.
pub const SCRUB_IDLE: Duration = Duration::from_secs(1);
/// Between two lines of the log about repairs that wait for other members.
pub const SCRUB_WAITS_PAUSE: Duration = Duration::from_secs(60);
/// While the engine is behind, a scrub rests for so long between two slices.
pub const SCRUB_BUSY_PAUSE: Duration = Duration::from_secs(2);

/// Pieces of memory from this size on are mapped: a block with a value of a mebibyte that was
/// compressed is one, too.
pub const LARGE_BYTES: usize = 512 << 10;
/// The freed pieces that are kept, for all threads together. For each thread that reads or sends
/// values of a mebibyte it has room for a few of them. It also fits one block with the largest
/// value.
pub const LARGE_KEPT_BYTES_MAX: usize = 16 << 20;

/// A buffer or value up to this size is not counted: it is part of the cost of a connection.
pub const UNCOUNTED_BYTES_MAX: usize = 4 << 10;
/// Whether the client of a watch has gone is looked at so often where bytes of it are unread.
pub const WATCH_LOOK: Duration = Duration::from_secs(1);
/// While a stop waits for requests in flight it looks this often.
pub const DRAIN_LOOK: Duration = Duration::from_millis(2);
/// After the log failed: time for the loops to write `outcome=unknown` to the clients that wait.
pub const POISON_GRACE: Duration = Duration::from_millis(100);

/// `Retry-After` of a refused client, in seconds: the smallest value that the header can tell.
pub const RETRY_AFTER_S: u32 = 1;
/// So many different seconds are told to clients that are refused in a row.
pub const RETRY_AFTER_SPREAD_S: u32 = 3;
/// `Retry-After` in seconds when the disk is full: the operator has to make room.
pub const RETRY_AFTER_DISK_FULL_S: u32 = 30;
/// So many different seconds are told to clients that are refused in a row on a full disk.
pub const RETRY_AFTER_DISK_FULL_SPREAD_S: u32 = 16;

/// Requests of one connection that are answered in a row while others wait for the loop.
pub const REQUESTS_A_TURN: usize = 32;
/// Sockets of connections that have ended, which a loop closes in a row while others wait: 7 us
/// each.
pub const CLOSES_A_TURN: usize = 4;
/// How long a request may wait before its loop begins, in milliseconds. Clients do not notice it; a
/// process waits for less than this for a processor that it shares.
pub const QUEUE_DELAY_TARGET_MS_DEFAULT: u64 = 30;
/// The longest that may be asked for.
pub const QUEUE_DELAY_TARGET_MS_MAX: u64 = 10_000;
/// So many connections are accepted in a row, then none for `ACCEPT_PAUSE`: a storm of them leaves
/// the loops time.
pub const ACCEPTS_IN_A_ROW: u32 = 32;
/// Connections accepted in a row while the delay of a loop is above its target. Pauses are short,
/// so that a client does not wait for long in front of the loop.
pub const ACCEPTS_IN_A_ROW_BEYOND: u32 = 8;
/// See `ACCEPTS_IN_A_ROW`.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
/// Pause in accepting while the delay of a loop is above half its target: those that are there go
/// first.
pub const ACCEPT_PAUSE_NEAR: Duration = Duration::from_millis(40);
/// And while it is above it.
pub const ACCEPT_PAUSE_BEYOND: Duration = Duration::from_millis(50);
/// Connections that wait in the kernel while accepting pauses; the kernel caps it by its own limit.
pub const BACKLOG: u32 = 4_096;
/// Backlog while the delay of a loop is above half its target. The kernel drops those beyond it.
/// Above the target it keeps no more than a piece.
pub const BACKLOG_NEAR: u32 = 32;

/// Messages and requests that wait for the steward: a page of each member of a full cluster. Beyond
/// it they are dropped, and their senders repeat them.
pub const STEWARD_CALLS_MAX: usize = 256;

/// How often the steward is told how much the store holds.
pub const GAUGE_US: u64 = 1_000_000;

/// A member whose newest epoch stays behind that of another one for so long is not ready. Learning
/// a page of epochs takes two messages and a sync; members tell their epochs each second.
pub const EPOCH_PATIENCE_US: u64 = 5_000_000;

/// A plan that waits for the same members for so long is said in the log.
pub const PLAN_WAIT_US: u64 = 10_000_000;

/// How long horizons may be held back before the log says so, and how often it says so again.
pub const HORIZON_PATIENCE_US: u64 = 24 * 3_600 * 1_000_000;

/// Links of a member that was removed stay open for so long: its removal has to reach it.
pub const REMOVED_LINGER: Duration = Duration::from_secs(3);

/// How long a joiner waits for an answer.
pub const JOIN_ASK_TIMEOUT: Duration = Duration::from_secs(3);

/// Orders of operators that wait for the steward: a few people and a script.
pub const ORDERS_OF_OPERATORS_MAX: usize = 16;

/// A look for copies that differ ends when its client has not asked for it for so long.
pub const LOOK_PATIENCE_US: u64 = 30_000_000;

/// Body of an operator's order: a hundred members with their addresses, twice.
pub const ORDER_BYTES_MAX: usize = 64 << 10;

/// Memory of the own engine of a front door: it holds notes about itself.
pub const FRONT_ENGINE_BYTES: usize = 16 << 20;
/// Longest value of the own engine of a front door.
pub const FRONT_ENGINE_VALUE_BYTES: usize = 64 << 10;
/// Looks at the engine behind a front door that fail one after the other before requests that need
/// a majority are refused at once.
pub const FRONT_LOOKS_FAILED: u32 = 2;

/// Between two lines of the log about one reason why a peer is not reached.
pub const LINK_LINE_EVERY: Duration = Duration::from_secs(60);
/// Reasons of one peer that are remembered for that.
pub const LINK_REASONS_MAX: usize = 8;

/// Admin connections at once: a scraper, a few people, a probe.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// From the first byte of an admin request to the end of its head.
pub const ADMIN_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an admin connection lasts: longer than the longest profile. A client that comes back
/// connects again.
pub const ADMIN_CONNECTION_TIME: Duration = Duration::from_secs(120);
/// For the answer that is under way when that is over.
pub const ADMIN_LAST_ANSWER_TIME: Duration = Duration::from_secs(PROFILE_SECONDS_MAX + 10);
/// The longest profile: a minute of samples shows functions that the first ten seconds did not.
pub const PROFILE_SECONDS_MAX: u64 = 60;

/// Checkpoints that backups hold at once: each keeps replaced tables on the disk.
pub const CHECKPOINTS_MAX: usize = 4;
/// A checkpoint that is not read for so long is removed: the backup that made it was killed. Longer
/// than a backup waits for a slow destination, or for its own throttle.
pub const CHECKPOINT_LEASE: Duration = Duration::from_secs(60);
/// One part of a checkpoint's file: the memory that a request holds.
pub const CHECKPOINT_READ_BYTES_MAX: usize = 1 << 20;
/// Threads that read checkpoints.
pub const CHECKPOINT_READERS: usize = 2;
/// Parts of checkpoints that wait for these threads. The asker of one more waits for a place.
pub const CHECKPOINT_READS_MAX: usize = 4;
/// Pages of a restore in memory at once, in bytes: one is written, others arrive or wait behind it.
pub const RESTORE_PAGES_BYTES_MAX: usize = dendra_wire::restore::PAGES_AT_ONCE_BYTES;
/// How long a page waits for those in front of it: they come over other connections.
pub const RESTORE_ORDER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a page waits for flushes, compactions and room in the log's queue before it is refused.
pub const RESTORE_PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Records that a restore has sent are made durable at least this often: a crash loses no more of
/// its work.
pub const RESTORE_DURABLE_EVERY: Duration = Duration::from_secs(5);
/// While it waits it looks this often.
pub const RESTORE_LOOK: Duration = Duration::from_millis(5);

/// Shortest secret of a cluster. One listener on one handshake tries some millions a second: eight
/// letters fall in hours, sixteen random bytes never.
pub const SECRET_BYTES_MIN: usize = 16;
/// Largest secret of a cluster: a longer file is something else.
pub const SECRET_BYTES_MAX: usize = 4 << 10;
/// Secrets of a cluster that are valid at once: the old one and the new one, while it is changed.
pub const SECRETS_MAX: usize = 2;
/// How often the file of the secret is read again.
pub const SECRET_FILE_LOOK: Duration = Duration::from_secs(1);

/// Operations of clients that one loop's node has under way: the request gate lets in fewer.
pub const NODE_OPERATIONS_MAX: usize = 16_384;
/// Orders of nodes to the store that wait for the log or the store pool at once, all loops
/// together. It is twice the bound for clients, because each write of a client is one on every
/// owner.
pub const ORDERS_INFLIGHT_MAX: usize = 8_192;
/// Values of such orders that wait for room in the log's queue, all loops together. It is half a
/// second of a disk that syncs 64 MiB a second. The node's deadlines go on meanwhile.
pub const ORDERS_WAITING_BYTES_MAX: usize = 32 << 20;
/// One part in so many of that is for orders that are not large. So a few megabytes of large ones
/// do not make a member refuse a write of a kilobyte as busy.
pub const ORDERS_SMALL_SHARE: usize = 8;
/// How often a connection checks whether its client is still there, while the node works on its
/// operation. The answer usually comes long before, and a check costs no system call.
pub const CLIENT_LOOK: Duration = SWEEP;
/// A loop tells the other members that it is behind when its orders fill more than one part in so
/// many of their bound. The orders that they have sent by then still fit.
pub const ORDERS_BEHIND_SHARE: usize = 2;
/// One read from a link, and its buffer while frames are short.
pub const LINK_READ_BYTES: usize = 64 << 10;
/// The bytes that are read of one link before the loop's other tasks have a turn: a quarter of a
/// millisecond of checking and decoding.
pub const LINK_BYTES_A_TURN: usize = 256 << 10;
/// Events of members and of the store that a loop's node decides in a row while others wait for the
/// loop. They take a millisecond, as much as a call of clients out of their line takes.
pub const EVENTS_A_TURN: usize = 256;
/// Links are not read while so many wait for the node.
pub const EVENTS_WAITING_MAX: usize = 1_024;
/// Frames that wait for one link: a promise with two of the largest cells fits. Beyond it questions
/// are refused here, and values beyond a half of it.
pub const LINK_OUT_BYTES_MAX: usize = 33 << 20;
/// When this much waits for a peer that asks, no more of its questions is read.
pub const LINK_OUT_BYTES_PAUSE: usize = 1 << 20;
/// From the first packet of a link to the end of its handshake.
pub const LINK_OPEN_TIMEOUT: Duration =
    Duration::from_micros(dendra_ownership::limits::LINK_OPEN_TIMEOUT_US);
/// Links of askers that have not proven yet that they know the secret, all loops together. A member
/// proves it within a round trip. Ten thousand strangers a second that hold on leave it fifty
/// milliseconds.
pub const LINKS_UNPROVEN_MAX: usize = 512;
/// Connections of a member beyond `connections_max`, all loops together. Only members may ask on
/// them. A link has a place among the clients' connections until it has proven itself, and a full
/// gate must not lock it out.
pub const CONNECTIONS_BEYOND_MAX: usize = 2 * LINKS_UNPROVEN_MAX;
/// Connections beyond the gate that have not asked as a member does. With the links without a proof
/// they are fewer than there are places, so that the oldest ends while the listener still accepts.
pub const CONNECTIONS_BEYOND_UNPROVEN_MAX: usize = LINKS_UNPROVEN_MAX / 2;
/// TLS handshakes under way, all loops together. A client's takes a round trip or two. With a
/// hundred a second that hold on, each has some seconds; with ten thousand, some tens of
/// milliseconds.
pub const HANDSHAKES_MAX: usize = 512;
/// How often a node looks for findings about its health.
pub const HEALTH_LOOK: Duration = Duration::from_secs(1);
/// How often the files of certificates and keys are looked at.
pub const TLS_FILES_LOOK: Duration = Duration::from_secs(1);
/// Unknown tokens from one address within `LOGIN_WINDOW`: a program with a wrong token is told so
/// ten times.
pub const LOGIN_FAILURES_MAX: u32 = 10;
/// See `LOGIN_FAILURES_MAX`.
pub const LOGIN_WINDOW: Duration = Duration::from_secs(60);
/// Addresses for which unknown tokens are counted: 64 KiB.
pub const LOGIN_ADDRESSES_MAX: usize = 1_024;
/// Some bytes of a quota are known only after they were used. A client waits at most this long
/// until they are paid back.
pub const QUOTA_DEBT: Duration = Duration::from_secs(60);
/// Between two looks at the bytes that the keys of a token with a quota take.
pub const STORED_LOOK: Duration = Duration::from_secs(2);
/// Events that wait for the audit log: ten seconds of failed logins.
pub const AUDIT_QUEUE_LEN_MAX: usize = 1_024;
/// Failed logins that the audit log takes a second; those beyond are counted there.
pub const AUDIT_FAILURES_PER_SECOND: u64 = 100;
/// Failed logins that the audit log takes a second in the long run: with lines of 170 bytes files
/// of the usual size last four days.
pub const AUDIT_FLOOD_PER_SECOND: u64 = 2;
/// So much of the long run's share may come at once: a thousand lines.
pub const AUDIT_FLOOD_BURST: Duration = Duration::from_secs(500);
/// Lines of the log about processes that ask to be let in without a proof, a second.
pub const STRANGER_LINES_PER_SECOND: u64 = 1;
/// So much of them may come at once: ten lines.
pub const STRANGER_LINES_BURST: Duration = Duration::from_secs(10);
/// How often the audit log is synced.
pub const AUDIT_SYNC: Duration = Duration::from_secs(1);
/// Between two readings of the table of tokens: a change is in force everywhere within a second.
pub const TOKENS_LOOK: Duration = Duration::from_millis(300);
/// Time that one reading may take.
pub const TOKENS_DEADLINE: Duration = Duration::from_millis(600);
/// The first pause before a lost link is opened again, and the longest one. Each is stretched or
/// cut by up to a half. A member that comes back is asked again within 400 ms. One that stays away
/// costs each loop of the others four packets a second.
pub const LINK_PAUSE_MIN: Duration = Duration::from_millis(20);
/// See `LINK_PAUSE_MIN`.
pub const LINK_PAUSE_MAX: Duration = Duration::from_millis(250);
/// Sweeps without a byte after which a link is probed.
pub const LINK_PROBE_SWEEPS: u32 = 2;
/// Sweeps without a byte, probes in between, after which a link is lost: three seconds. The node
/// asks around a slow peer long before; this is for one that is gone without a word.
pub const LINK_SILENT_SWEEPS_MAX: u32 = 30;
/// Connections of one loop to one peer over plain HTTP. Each carries one question at a time: at a
/// millisecond for each these are 32,000 a second.
pub const HTTP_CONNECTIONS_MAX: usize = 32;
/// Sweeps after which an unused one of them is closed: ten seconds, well before servers and
/// intermediaries close it from their side.
pub const HTTP_IDLE_SWEEPS_MAX: u32 = 100;
/// Hellos over plain HTTP that wait for their token to come back. It comes within milliseconds, and
/// strangers can send a thousand hellos before a peer's is pushed out.
pub const SESSIONS_UNPROVEN_MAX: usize = 1_024;
/// The node ends every operation at its deadline; the seat waits this much longer for it.
pub const OUTCOME_GRACE: Duration = Duration::from_millis(200);
/// Threads on which the driver of a front door runs: they wait for sockets, and pack and unpack.
pub const FRONT_THREADS: usize = 2;
/// Operations that an engine of others carries out at once for one front door.
pub const FRONT_UNDER_WAY_MAX: usize = 256;
/// A page of a scan of an engine of others, but for one longer record.
pub const FRONT_PAGE_BYTES_MAX: usize = 4 * SCAN_PAGE_BYTES;
/// How often a front door looks whether its engine answers: a quorum read of a key each time.
pub const FRONT_LOOK_EVERY: Duration = Duration::from_secs(1);
/// An engine that takes longer for that is away: an election of etcd takes a second or two.
pub const FRONT_LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a front door gives its driver time for work that no client asks for, and how much.
pub const FRONT_TEND_EVERY: Duration = Duration::from_secs(1);
/// A driver that takes longer for a part of it begins again.
pub const FRONT_TEND_TIMEOUT: Duration = Duration::from_secs(10);
/// A login is a line; a longer file is something else.
pub const STORE_LOGIN_BYTES_MAX: u64 = 1 << 10;
/// How long a stop waits for the driver's threads.
pub const FRONT_STOP: Duration = Duration::from_secs(1);

/// One page of a scan over the cluster, and of each member's answer for it.
pub const SCAN_PAGE_BYTES: usize = 128 << 10;

const _: () = assert!(
    dendra_node::limits::REPAIR_WAIT_US_DEFAULT
        > 1_000 * dendra_wire::limits::TIMEOUT_MS_MAX as u64,
    "a repair begins when each operation is over that was under way when the damage was found"
);
const _: () = assert!(LARGE_KEPT_BYTES_MAX > dendra_base::limits::WRAPPED_VALUE_BYTES_MAX);
const _: () =
    assert!(CONNECTIONS_BEYOND_UNPROVEN_MAX + LINKS_UNPROVEN_MAX < CONNECTIONS_BEYOND_MAX);
const _: () = assert!(LINK_PROBE_SWEEPS < LINK_SILENT_SWEEPS_MAX);
const _: () = assert!(LINK_OUT_BYTES_MAX / 2 >= 2 * dendra_base::limits::WRAPPED_VALUE_BYTES_MAX);
const _: () = assert!(STORE_QUEUE_LEN_MAX_DEFAULT <= STORE_QUEUE_LEN_MAX_LIMIT);
const _: () = assert!(WORKERS_DEFAULT <= WORKERS_MAX);
const _: () = assert!(PIPELINED_WRITES_MAX < LANE_BATCH_LEN_MAX);
const _: () = assert!(SCAN_TIME_SHARE > 1);
const _: () = assert!(BODY_READ_BYTES_MAX >= WORK_OF_A_CALL);
const _: () = assert!(SCAN_CHUNK_BYTES <= SCAN_LOOK_BYTES);
const _: () = assert!(
    BODY_BYTES_INFLIGHT_MAX_DEFAULT >= 2 * dendra_base::limits::WRAPPED_VALUE_BYTES_MAX,
    "a value of the largest size must pass the gate"
);
