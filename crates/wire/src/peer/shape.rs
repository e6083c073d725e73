//! The common parts of all frames: their least size, their kinds, and the ways to be none.
//!
//! Invariants
//! 1. A kind's number never changes its meaning; questions are below 0x40, answers below 0x80.
//!
//! Not here: writing and reading frames (`frame.rs`).
//! See: docs/peer.md.

use super::seal::PLAIN_BYTES;
use crate::limits::PEER_FRAME_BYTES_MAX;
use std::fmt;

/// Bytes in front of the body.
pub(super) const HEADER_BYTES: usize = 4 + 1 + 1 + 2 + 8;
/// The shortest frame.
pub(super) const FRAME_BYTES_MIN: usize = HEADER_BYTES + PLAIN_BYTES;

pub(super) mod kind {
    pub(crate) const CLOCK: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const WRITE: u8 = 0x03;
    pub(crate) const PREPARE: u8 = 0x04;
    pub(crate) const ACCEPT: u8 = 0x05;
    pub(crate) const PAGE: u8 = 0x06;
    pub(crate) const LOAD: u8 = 0x07;
    pub(crate) const COMPARE: u8 = 0x08;
    pub(crate) const LIST: u8 = 0x09;
    pub(crate) const FOREGROUND: u8 = 0x0a;
    pub(crate) const CHANGES: u8 = 0x0b;
    pub(crate) const CLOCK_IS: u8 = 0x41;
    pub(crate) const CELL: u8 = 0x42;
    pub(crate) const SAME: u8 = 0x43;
    pub(crate) const WRITTEN: u8 = 0x44;
    pub(crate) const PROMISED: u8 = 0x45;
    pub(crate) const ACCEPTED: u8 = 0x46;
    pub(crate) const OUTBID: u8 = 0x47;
    pub(crate) const PAGE_IS: u8 = 0x48;
    pub(crate) const LOADED: u8 = 0x49;
    pub(crate) const COMPARED: u8 = 0x4a;
    pub(crate) const LISTED: u8 = 0x4b;
    pub(crate) const FOREGROUND_IS: u8 = 0x4c;
    pub(crate) const CHANGES_ARE: u8 = 0x4d;
    pub(crate) const CHANGES_GONE: u8 = 0x4e;
    pub(crate) const REFUSED: u8 = 0x4f;
    pub(crate) const PROOF: u8 = 0x81;
    pub(crate) const FAREWELL: u8 = 0x82;
    pub(crate) const PROBE: u8 = 0x83;
    pub(crate) const ALIVE: u8 = 0x84;
    pub(crate) const HAIL: u8 = 0x85;
    pub(crate) const WELCOME: u8 = 0x86;
    pub(crate) const WITHDRAW: u8 = 0x87;
    pub(crate) const STEWARD: u8 = 0x88;
    pub(crate) const ENROL: u8 = 0x89;
    pub(crate) const ENROLMENT: u8 = 0x8a;
}

/// Bytes that are no frame of this protocol. The link is of no use after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A length that no frame has.
    Length(u32),
    /// The checksum does not match.
    Checksum,
    /// A kind that this version does not know.
    Kind(u8),
    /// The body does not fit its kind; the wrong part.
    Body(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Length(length) => write!(
                f,
                "a frame says that it is {length} bytes long; frames have {FRAME_BYTES_MIN} to {PEER_FRAME_BYTES_MAX}"
            ),
            Malformed::Checksum => f.write_str("a frame fails its checksum"),
            Malformed::Kind(kind) => write!(f, "a frame has the unknown kind {kind:#04x}"),
            Malformed::Body(part) => write!(f, "a frame's body is wrong: {part}"),
        }
    }
}

impl std::error::Error for Malformed {}
