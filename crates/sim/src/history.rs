//! The wishes of clients and the answers that they got: all that a checker may look at.
//!
//! ```text
//! begun_us ├──────────── operation ────────────┤ ended_us      the point at which it took effect
//!                                                              lies somewhere between
//! begun_us ├──────────── Unknown ─────────────── …             or never, or later
//! ```
//!
//! Invariants
//! 1. A value is written by one operation only and carries its number: bytes name their writer.
//! 2. `ended_us` is when the client was told. If the member crashed, the operation has `Unknown`
//!    and the time of the crash.
//!
//! Not here: how values become bytes (`world/names.rs`), the rules (`check/`).

use bytes::Bytes;
use dendra_base::Version;

/// A value by the number of the operation that wrote it, counted from 1.
pub type ValueId = u32;

/// A value that a client saw, and the version by which conditions name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenValue {
    /// Version as in the `ETag`.
    pub version: Version,
    /// The value that was read or written under it.
    pub value: ValueId,
}

/// The condition of a write, in the words of a client that saw values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenCondition {
    /// None.
    Any,
    /// There is a value.
    Present,
    /// There is none.
    Absent,
    /// The value is this one.
    Matches(SeenValue),
    /// The value is not this one.
    Differs(SeenValue),
}

/// The wish of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The value.
    Get,
    /// To store a value.
    Put {
        /// Which.
        value: ValueId,
        /// The condition.
        base: SeenCondition,
    },
    /// A deletion: there shall be no value.
    Delete {
        /// The condition.
        base: SeenCondition,
    },
    /// Another end for the value that the client saw last, if it is still there.
    Touch {
        /// The value, as the client saw it.
        seen: SeenValue,
    },
}

impl Wish {
    /// The value of the key when the wish is done: `None` = no record. Meaningless for a read.
    pub fn leaves(&self) -> Option<ValueId> {
        match self {
            Wish::Put { value, .. } => Some(*value),
            Wish::Touch { seen } => Some(seen.value),
            Wish::Get | Wish::Delete { .. } => None,
        }
    }

    /// The condition; a read has none.
    pub fn base(&self) -> SeenCondition {
        match self {
            Wish::Get => SeenCondition::Any,
            Wish::Put { base, .. } | Wish::Delete { base } => *base,
            Wish::Touch { seen } => SeenCondition::Matches(*seen),
        }
    }

    /// Does it want to change something?
    pub fn is_write(&self) -> bool {
        !matches!(self, Wish::Get)
    }
}

/// The answer that a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// A value.
    Found(SeenValue),
    /// There is none; the tombstone's version, if one was told.
    Missing(Option<Version>),
    /// Stored or deleted.
    Written(Version),
    /// The condition did not hold.
    Refused {
        /// The live value's version, if there is one.
        current: Option<Version>,
    },
    /// The record did not change and will not.
    NotApplied,
    /// The outcome is unknown.
    Unknown,
}

/// How much an operation promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Promise 2 of docs/promises.md.
    Linearizable,
    /// Promise 7.
    Eventual,
}

/// One operation of one client.
#[derive(Clone, Debug)]
pub struct ClientOp {
    /// Number of the operation, from 1; a put's value has the same.
    pub number: u32,
    /// The client.
    pub client: usize,
    /// Which key, by number.
    pub key: usize,
    /// The wish.
    pub wish: Wish,
    /// Answers that were asked for.
    pub ack: u8,
    /// Copies that were addressed.
    pub from: u8,
    /// The promise of its level.
    pub promise: Promise,
    /// Values of this key end by themselves: an absent record is never wrong.
    pub is_fleeting: bool,
    /// When the value that it writes is gone, by wall clocks.
    pub expiry_ms: Option<u64>,
    /// The member's wall clock at the begin and at the end.
    pub wall_ms: (u64, u64),
    /// The time that the clocks of a majority of the members had passed at its end, or at any time
    /// before, by the last readings of them that any member may have had: values that end until
    /// then may have left their bytes.
    pub passed_ms: u64,
    /// The member that was asked.
    pub member: usize,
    /// When it began.
    pub begun_us: u64,
    /// When the client was told.
    pub ended_us: u64,
    /// The answer that the client got.
    pub end: ClientEnd,
}

/// One page of a scan.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// The rest of the scan began here …
    pub start: Bytes,
    /// … up to here, exclusive.
    pub end: Option<Bytes>,
    /// When it was asked for.
    pub asked_us: u64,
    /// When it was shown.
    pub shown_us: u64,
    /// Keys and their values, in the order in which they were shown.
    pub records: Vec<(usize, SeenValue)>,
    /// The rest after it; `None` = there is none.
    pub rest: Option<(Bytes, Option<Bytes>)>,
    /// `false`: too few members answered.
    pub is_complete: bool,
}

/// A walk over a range of keys.
#[derive(Clone, Debug)]
pub struct ClientScan {
    /// The member that was asked.
    pub member: usize,
    /// From the end towards the start.
    pub is_reverse: bool,
    /// The pages that were shown.
    pub pages: Vec<ScanPage>,
}

impl ClientOp {
    /// Is the end certain to have happened?
    pub fn is_done(&self) -> bool {
        !matches!(self.end, ClientEnd::NotApplied | ClientEnd::Unknown)
    }
}
