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

/// Longest key as stored: the client's key behind its space byte.
pub const STORED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// Largest value unless the operator says otherwise: one request then holds a small, known share
/// of the body gate.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// The most an operator may allow with `--value-bytes-max`: a value must fit in one log segment
/// together with its header.
pub const VALUE_BYTES_MAX_LIMIT: usize = 8 << 20;

const _: () = assert!(VALUE_BYTES_MAX_DEFAULT <= VALUE_BYTES_MAX_LIMIT);
