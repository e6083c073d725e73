//! Sizes that all crates agree on, each with its reason.
//!
//! Invariants
//! 1. Every number that another crate repeats on the wire or on disk is named here once.
//!
//! Not here: bounds of one crate's queues (that crate's own `limits.rs`).
//! See: docs/overload.md.

/// Longest key a client may name, in bytes. Fits a stack buffer, and a URL of 3 KiB when every
/// byte is percent-encoded.
pub const KEY_BYTES_MAX: usize = 1024;

/// Longest bound of a range of keys: the smallest key after a key has one byte more.
pub const BOUND_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// Bytes that a member's own records have in front of a client's key: which member a hint is for.
pub const KEY_LABEL_BYTES: usize = 8;

/// Longest key as stored: the client's key behind its space byte, and in a hint its member's label.
pub const STORED_KEY_BYTES_MAX: usize = 1 + KEY_LABEL_BYTES + KEY_BYTES_MAX;

/// Largest value unless the operator says otherwise: one request then holds a small, known share
/// of the body gate.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// The most an operator may allow with `--value-bytes-max`: a value must fit in one log segment
/// together with its header.
pub const VALUE_BYTES_MAX_LIMIT: usize = 8 << 20;

/// Metadata of one value: its names and contents together, as a client sends them. A quarter of the
/// head of a request.
pub const META_BYTES_MAX: usize = 4 << 10;

/// Entries of it, the content type included: half of the header lines of a request.
pub const META_LEN_MAX: usize = 32;

/// Bytes that metadata adds to a value: a head of 7 bytes, and for each entry two lengths of 2.
pub const WRAPPER_BYTES_MAX: usize = 7 + 4 * META_LEN_MAX + META_BYTES_MAX;

/// Largest value of a client with its metadata, as the records of clients hold it.
pub const WRAPPED_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX_LIMIT + WRAPPER_BYTES_MAX;

/// Largest value as stored. A hint and an accepted proposal are values that hold a cell with the
/// largest wrapped value of a client, and up to a KiB of heads, ballots and ancestors.
pub const STORED_VALUE_BYTES_MAX: usize = WRAPPED_VALUE_BYTES_MAX + (1 << 10);

const _: () = assert!(VALUE_BYTES_MAX_DEFAULT <= VALUE_BYTES_MAX_LIMIT);
