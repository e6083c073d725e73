//! Numbers of keys, values and tickets, and the bytes that stand for them.
//!
//! Invariants
//! 1. Bytes that no client wrote have no number.
//!
//! Not here: which of them a run uses (`plan/mod.rs`).

use bytes::Bytes;
use dendra_node::step::ClientTicket;

/// Bytes of the value with this number.
pub(crate) fn value_bytes(number: u32, len: usize) -> Bytes {
    let head = number.to_be_bytes();
    let filler = (4..len).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8);
    head.into_iter().chain(filler).collect()
}

/// The number in a value; `None` when the bytes were never a client's.
pub(crate) fn value_number(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*bytes.first_chunk()?);
    (value_bytes(number, bytes.len()) == bytes).then_some(number)
}

/// The name of a key.
pub(crate) fn key_name(key: usize) -> Bytes {
    Bytes::from(format!("key-{key:02}"))
}

/// The number of a key with this name.
pub(crate) fn key_number(name: &Bytes) -> Option<usize> {
    let number = std::str::from_utf8(name.strip_prefix(b"key-")?).ok()?;
    let number = number.parse().ok()?;
    (key_name(number) == *name).then_some(number)
}

/// Tickets of scans; those of operations are below.
pub(super) const SCAN_TICKET: ClientTicket = 1 << 32;

/// The scan of a ticket, if it is one's.
pub(super) fn scan_of(ticket: ClientTicket) -> Option<usize> {
    ticket.checked_sub(SCAN_TICKET).map(|scan| scan as usize)
}
