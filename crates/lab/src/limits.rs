//! Bounds of the lab, each with its reason.

/// Requests of one target and one thread that are due and wait for a connection. More are given up
/// at once and counted as unsent: 16 bytes each, so this is 16 MiB, ten seconds at 100,000/s.
pub const BACKLOG_LEN_MAX: usize = 1 << 20;

/// Connections of one run.
pub const CONNECTIONS_MAX: u32 = 16_384;

/// Threads of one run.
pub const THREADS_MAX: u32 = 64;

/// Requests in flight on one connection.
pub const PIPELINE_MAX: u32 = 1024;

/// Longest head of an answer is the wire crate's bound; one read takes so much from a socket.
pub const READ_BYTES: usize = 64 << 10;

/// Largest value that a workload writes: the store's own largest default, eight times.
pub const VALUE_BYTES_MAX: u32 = 8 << 20;

/// Bytes of a body that is chunked; more is a broken answer.
pub const ANSWER_BYTES_MAX: u64 = 1 << 40;

/// Rows of one ammo file or access log; they are held in memory.
pub const AMMO_ROWS_MAX: usize = 20_000_000;

/// Planned requests a second.
pub const RATE_MAX: f64 = 10_000_000.0;

/// Longest phase, seconds: a day.
pub const DURATION_S_MAX: f64 = 86_400.0;

/// Stages of a schedule.
pub const STAGES_MAX: usize = 100_000;

/// A sleeping thread wakes at least this often, to see Ctrl-C and timeouts. Milliseconds.
pub const NAP_MS_MAX: u64 = 20;

/// How long before an instant the generator stops sleeping and spins at least, nanoseconds. A timer
/// of a machine of its own is late by this.
pub const SPIN_NS: u64 = 4_000;

/// How long before an instant the generator spins at most, nanoseconds: virtual machines wake a
/// thread tens of microseconds late, and the generator learns how many.
pub const SPIN_NS_MAX: u64 = 60_000;

/// A generator whose answers tell when they came sleeps through them for at most this long,
/// nanoseconds. An answer that is longer than the socket waits no longer for its reader. Slower
/// plans wake for every answer, and can afford it.
pub const SLEPT_NS_MAX: u64 = 1_000_000;

/// After so many requests it looks at the answers, so that reading them takes a few microseconds in
/// front of no instant.
pub const SLEPT_ANSWERS_MAX: u64 = 8;

/// Once an answer was longer than this, none is slept through: the kernel's default takes 64 KiB
/// unread.
pub const SLEPT_ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Beyond the knee, where requests are due and no connection is free, the generator looks for
/// answers so often, nanoseconds. No answer wakes it: a server on another core would pay for the
/// wake.
pub const NAP_NS_BEYOND: u64 = 50_000;

/// So many requests in flight at least: a server has work for longer than such a nap.
pub const NAP_IN_FLIGHT_MIN: u64 = 64;

/// A request that left later than this, with a connection free, missed its instant: microseconds.
pub const SEND_LAG_LIMIT_US: f64 = 1_000.0;

/// Share of requests that may miss their instant before the run is void.
pub const MISSED_SHARE_MAX: f64 = 0.01;

/// Share of a processor above which a thread of the generator counts as saturated.
pub const BUSY_SHARE_MAX: f64 = 0.95;

/// Wait before the second attempt to connect; doubles up to the next one. Milliseconds.
pub const RECONNECT_MS_MIN: u64 = 5;

/// Longest wait between two attempts to connect, milliseconds.
pub const RECONNECT_MS_MAX: u64 = 500;

/// The calm rate of `--overload` as a share of the rate that is multiplied. At the knee itself a
/// neighbour on the machine is enough for a queue, and no second would ever be normal again.
pub const CALM_SHARE: f64 = 0.9;

/// Connections that one thread makes again in a second, after timeouts. So a target with more than
/// it can do is not kept busy with them, and the system does not run out of ports.
pub const RECONNECTS_PER_SECOND_MAX: u64 = 1_000;

/// How long the first connections may take, milliseconds: a first packet that was lost is sent
/// again after 1, 3 and 7 s.
pub const CONNECT_MS_MAX: u64 = 10_000;

/// The first connections that one thread opens at once; the next ones follow as these are open.
pub const OPENING_MAX: usize = 128;

/// After Ctrl-C, answers of requests in flight are awaited this long, milliseconds.
pub const CUT_GRACE_MS: u64 = 500;

/// Longest answer of an admin port that is read, bytes.
pub const ADMIN_BYTES_MAX: usize = 64 << 20;
