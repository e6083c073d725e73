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

/// Largest value as stored. A hint and an accepted proposal are values that hold a cell with the
/// largest value of a client, and up to a KiB of heads, ballots and ancestors.
pub const STORED_VALUE_BYTES_MAX: usize = VALUE_BYTES_MAX_LIMIT + (1 << 10);

const _: () = assert!(VALUE_BYTES_MAX_DEFAULT <= VALUE_BYTES_MAX_LIMIT);
