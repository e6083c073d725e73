//! The nouns between a connection and a backend.
//!
//! ```text
//! connection ─► KeyRequest ─► backend ─► Begun ─┬─ Held ─► PendingOperation ─► … its end
//!                                               └─ shown, ended
//! connection ─► ChunkTerms ─► backend ─► ScanChunk, or NoChunk
//! ```
//!
//! Invariants
//! 1. An operation holds its room until it ends: `Held` gives it back when dropped.
//!
//! Not here: the work of a backend (`clients/backend.rs`), the end of an operation
//! (`waiting/finished.rs`).

use crate::limits;
use crate::measure::metrics::{OpLabel, RefusalCause};
use crate::measure::stages::Watch;
use crate::waiting::finished::Finished;
use crate::waiting::room::{Room, Rooms};
use crate::waiting::seat::Seat;
use crate::waiting::status::AnswerTerms;
use bytes::Bytes;
use dendra_wire::Condition;
use dendra_wire::route::Entity;
use std::net::IpAddr;
use std::rc::Rc;

/// A value that a client sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SentValue<'a> {
    /// None: a read or a deletion.
    None,
    /// The value stands in the input, after its head.
    Unread(&'a [u8]),
    /// The value came by itself.
    Whole(&'a Bytes),
}

impl SentValue<'_> {
    /// The value for a backend that keeps it, with room in `rooms` if it has none yet.
    pub(crate) fn keep(
        self,
        rooms: &Rc<Rooms>,
        source: IpAddr,
        room: &mut Vec<Room>,
    ) -> Result<Bytes, RefusalCause> {
        let value = match self {
            SentValue::None => Bytes::new(),
            SentValue::Unread(value) => Bytes::copy_from_slice(value),
            SentValue::Whole(value) => value.clone(),
        };
        if room.is_empty() && value.len() > limits::UNCOUNTED_BYTES_MAX {
            let held = rooms.offer(source, value.len());
            room.push(held.ok_or(RefusalCause::Bytes)?);
        }
        Ok(value)
    }
}

/// An operation on one key, as a connection asks for it.
pub(crate) struct KeyRequest<'a> {
    /// Where its end is waited for.
    pub(crate) seat: &'a Rc<Seat>,
    /// The client's address.
    pub(crate) source: IpAddr,
    pub(crate) entity: &'a Entity,
    pub(crate) stored_key: &'a [u8],
    pub(crate) value: SentValue<'a>,
    /// Room that is held for the value already. A backend that keeps the value takes it.
    pub(crate) room: &'a mut Vec<Room>,
    pub(crate) deadline_us: u64,
}

/// The resources that an operation holds until it ends.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The client's key, where the backend or the answer needs it.
    pub(crate) key: Bytes,
    /// Under which the backend knows the operation.
    pub(crate) number: u64,
    /// The new end of a value that a node by itself touches.
    pub(crate) expiry_ms: Option<u64>,
    /// For a value that the backend keeps.
    _room: Vec<Room>,
}

impl Held {
    /// The resources of an operation on `key`; the backend knows it by `number`.
    pub(crate) fn new(key: Bytes, number: u64, room: Vec<Room>) -> Held {
        Held {
            key,
            number,
            expiry_ms: None,
            _room: room,
        }
    }
}

impl Held {
    /// Nothing but the new end of a value.
    pub(crate) fn until(expiry_ms: u64) -> Held {
        Held {
            expiry_ms: Some(expiry_ms),
            ..Held::default()
        }
    }
}

/// An operation that waits for its end.
#[derive(Debug)]
pub(crate) struct PendingOperation {
    pub(crate) op: OpLabel,
    pub(crate) terms: AnswerTerms,
    pub(crate) condition: Condition,
    /// Is the current value wanted when the condition of a write does not hold?
    pub(crate) wants_current: bool,
    pub(crate) began_ns: u64,
    pub(crate) deadline_us: u64,
    pub(crate) watch: Watch,
    pub(crate) held: Held,
}

/// The state of an operation that was begun.
pub(crate) enum Begun<R> {
    /// A read: its answer is shown.
    Shown(R),
    /// The operation ended at once.
    Ended(Finished),
    /// The operation's end comes to the seat.
    Waits(Held),
    /// A read that would wait for the disk. Nothing was begun: `resume` does, when nothing is in
    /// front of it.
    Blocks(Held),
}

/// The circumstances of the next chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkTerms {
    /// Nothing of the answer is sent yet.
    pub(crate) is_first: bool,
    /// When its client asked: for the first one with the request, for another one by taking the one
    /// in front of it.
    pub(crate) asked_us: u64,
    pub(crate) deadline_us: u64,
    pub(crate) watch: Watch,
}

/// A chunk of a scan.
#[derive(Debug)]
pub(crate) struct ScanChunk {
    /// The buffer that was given, with records after its earlier content.
    pub(crate) out: Vec<u8>,
    /// How many records are in it, or were counted for it.
    pub(crate) records: u64,
    /// The scan ends after it.
    pub(crate) end: Option<WalkEnd>,
    /// May the head of the answer leave with it? Until then a failure has a status.
    pub(crate) may_open: bool,
}

/// How a scan ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    /// The range is exhausted.
    Complete,
    /// The limit is reached: the key to go on from.
    Limited(Vec<u8>),
    /// The scan cannot go on now: the key to go on from.
    Stopped(Vec<u8>),
}

/// Why there is no next chunk.
#[derive(Debug)]
pub(crate) enum NoChunk {
    /// The backend ended the scan; `None` when it did not say so in time.
    Ended(Option<Box<Finished>>),
    /// The client has gone.
    Gone,
}

impl NoChunk {
    /// The backend ended the scan, and said how.
    pub(crate) fn ended(finished: Finished) -> NoChunk {
        NoChunk::Ended(Some(Box::new(finished)))
    }
}
