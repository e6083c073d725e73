//! Bounds of the bytes that one request may make this crate look at, each with its reason.
//!
//! Invariants
//! 1. Every loop over client bytes ends at one of these numbers.
//!
//! Not here: sizes of keys and values (`dendra_base::limits`), queues and deadlines' enforcement
//! (crate `server`).
//! See: docs/overload.md.

use dendra_base::limits::{META_BYTES_MAX, META_LEN_MAX, VALUE_BYTES_MAX_LIMIT, WRAPPER_BYTES_MAX};

/// The body of a batch.
pub const BATCH_BYTES_MAX: u64 = 8 << 20;

/// Items of a batch.
pub const BATCH_ITEMS_MAX: usize = 1_000;

/// Bytes of a request head, request line and all header lines together. Browsers and proxies stay
/// below 8 KiB; twice that leaves room for cookies that another site set on this host.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a request target. A scan names at most two keys, three bytes for each of theirs.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Header lines of a request. curl sends 3, a browser about 15.
pub const HEADERS_LEN_MAX: usize = 64;

/// The head of a successful answer about one key is shorter than this, with any numbers: room that
/// a write buffer reserves at once.
pub const ANSWER_HEAD_BYTES_MAX: usize = 512;

/// Header lines of an answer or of a trailer that our client reads.
pub const ANSWER_HEADERS_LEN_MAX: usize = 64;

/// One chunk-size line, extensions included, without its line end.
pub const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Chunk extensions of one whole body: without this bound a client could send a gigabyte of
/// extensions around a body of one byte.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 4 * 1024;

/// Trailer section of one body.
pub const TRAILER_BYTES_MAX: usize = 4 * 1024;

/// Trailer lines of one body.
pub const TRAILER_LINES_MAX: usize = 16;

/// Versions in one condition: a client that merges the caches of a dozen others stays below it.
pub const CONDITION_VERSIONS_MAX: usize = 16;

/// Deadline of a request that names none, in milliseconds.
pub const TIMEOUT_MS_DEFAULT: u32 = 1_000;

/// The longest deadline a request may name, in milliseconds.
pub const TIMEOUT_MS_MAX: u32 = 60_000;

/// How often a watch tells its client something, in seconds, unless the client says otherwise.
/// Proxies close connections that are silent for a minute.
pub const HEARTBEAT_S_DEFAULT: u32 = 15;

/// The longest time between two events of a watch that a client may ask for, in seconds.
pub const HEARTBEAT_S_MAX: u32 = 300;

/// Longest time that a GET waits for another state of its key, in seconds.
pub const WAIT_S_MAX: u32 = 300;

/// The longest time to live, in seconds: 100 years, so that `now + ttl` stays far from every
/// overflow.
pub const TTL_S_MAX: u32 = 100 * 365 * 24 * 60 * 60;

/// Longest prefix of a client's text that an error sentence repeats.
pub const ECHO_BYTES_MAX: usize = 40;

/// One frame between members. A promise may carry two cells, each with the largest value; the rest
/// is room for keys, metadata and numbers.
pub const PEER_FRAME_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX_LIMIT + 64 * 1024;

/// Questions that one frame withdraws: 8 KiB. More of them go in further frames.
pub const PEER_WITHDRAW_IDS_MAX: usize = 1024;

/// The line by which a member introduces itself: a description of the topology of 4 KiB, every byte
/// percent-encoded, fits with everything else.
pub const PEER_HELLO_BYTES_MAX: usize = 14 * 1024;

/// The sentence with which a member ends a link.
pub const PEER_SENTENCE_BYTES_MAX: usize = 1024;

/// Tokens of one cluster: a few for each program that uses it.
pub const TOKENS_MAX: usize = 256;

/// The table of them.
pub const TOKENS_BYTES_MAX: usize = 64 * 1024;

/// The name of a token.
pub const TOKEN_ID_BYTES_MAX: usize = 64;

/// A name in a certificate that a line of that table is for: a URI of SPIFFE fits.
pub const CERTIFICATE_NAME_BYTES_MAX: usize = 128;

/// Names that are read of one certificate.
pub const CERTIFICATE_NAMES_MAX: usize = 8;

const _: () = assert!(PEER_HELLO_BYTES_MAX + 1024 < HEAD_BYTES_MAX);
const _: () = assert!(TARGET_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(TARGET_BYTES_MAX > 2 * 3 * dendra_base::limits::KEY_BYTES_MAX);
const _: () = assert!(CHUNK_LINE_BYTES_MAX <= CHUNK_EXTENSION_BYTES_MAX);
const _: () = assert!(
    META_BYTES_MAX <= HEAD_BYTES_MAX / 4 && META_LEN_MAX <= HEADERS_LEN_MAX / 2,
    "a request, and an answer that our client reads, has room for the rest of its head"
);
const _: () = assert!(
    2 * WRAPPER_BYTES_MAX < 16 * 1024,
    "a frame has room for keys, too"
);
const _: () = assert!(META_LEN_MAX <= ANSWER_HEADERS_LEN_MAX / 2);
const _: () = assert!(TIMEOUT_MS_DEFAULT <= TIMEOUT_MS_MAX);
