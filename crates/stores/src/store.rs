//! The trait that every driver implements, and the nouns between it and the front door.
//!
//! ```text
//! open  ─► StoreShape            how many copies, what a receipt may say
//! look  ─► ()                    it answers
//! read  ─► Option<Cell>          the newest, live or expired
//! write ─► WriteEnd              stored under a version, or refused by its condition
//! page  ─► ShownPage             records of a range, and the rest of it
//! tend  ─► StoreUpkeep           the driver's own work, again and again
//! ```
//!
//! Invariants
//! 1. Versions of live records never repeat, for any key of the store.
//! 2. A condition is judged at the moment at which the engine takes the write.
//! 3. A page holds at most a few times `bytes_max`, or one record.
//! 4. A future that is dropped may have changed the record: its caller says `unknown`.
//!
//! Not here: deadlines (the front door drops a future whose time is over).

use bytes::Bytes;
use dendra_base::peer::Range;
use dendra_base::{Cell, Condition, Consistency, Durability, Known, Version};
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// Work under way.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, OuterFailure>> + Send + 'a>>;

/// An engine behind the front door.
pub trait OuterStore: Send + Sync + 'static {
    /// Connects, and returns the properties of the engine. Called once, on the runtime of all later
    /// calls.
    fn open(&self) -> Doing<'_, StoreShape>;

    /// Does a majority of the servers answer? Changes no record.
    fn look(&self, left: Duration) -> Doing<'_, ()>;

    /// Does a part of the work that no client asks for, such as clearing away what deletions left.
    /// Called again and again, never twice at once; ends soon after `left`.
    fn tend(&self, left: Duration) -> Doing<'_, StoreUpkeep>;

    /// Reads one key.
    fn read(&self, read: PointRead) -> Doing<'_, Option<Cell>>;

    /// Writes or deletes one key.
    fn write(&self, write: RecordWrite) -> Doing<'_, WriteEnd>;

    /// Reads live records of a range, in its direction.
    fn page(&self, page: PageRead) -> Doing<'_, ShownPage>;
}

/// The properties of an engine, as receipts need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreShape {
    /// Name of the engine, for people.
    pub engine: &'static str,
    /// Copies of each record.
    pub copies: u8,
    /// When it acknowledges a write.
    pub durability: Durability,
    /// The level of each page of a scan.
    pub scan_level: Consistency,
}

/// The result of one call of [`OuterStore::tend`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUpkeep {
    /// Keys without a record that were taken out of the list for scans.
    pub keys_cleaned: u64,
    /// Revisions that the engine keeps; `None` = it has none, or it was not asked this time.
    pub revisions_kept: Option<u64>,
}

/// A read of one key.
#[derive(Clone, Debug)]
pub struct PointRead {
    /// The client's key.
    pub key: Bytes,
    /// Must it see every write that was acknowledged before?
    pub level: Consistency,
    /// How long the answer is of use.
    pub left: Duration,
}

/// A write of one key.
#[derive(Clone, Debug)]
pub struct RecordWrite {
    /// The client's key.
    pub key: Bytes,
    /// `None` = a deletion.
    pub value: Option<Bytes>,
    /// Wall milliseconds after which the value is gone.
    pub expiry_ms: Option<u64>,
    /// Under which it happens.
    pub condition: Condition,
    /// How long the answer is of use.
    pub left: Duration,
}

/// A part of a range.
#[derive(Clone, Debug)]
pub struct PageRead {
    /// The part of the range that is still to come.
    pub range: Range,
    /// How many bytes of records are enough.
    pub bytes_max: usize,
    /// How many records are enough; a page may have more.
    pub records_max: usize,
    /// How long the answer is of use.
    pub left: Duration,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// Stored or deleted, under this version.
    Applied(Version),
    /// The condition did not hold for this live record, or for none.
    Refused(Option<Cell>),
}

/// Records of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPage {
    /// Live records.
    pub records: Vec<(Bytes, Cell)>,
    /// The part that is still to come.
    pub rest: Option<Range>,
}

/// Why a store did not do it; each with a sentence behind its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OuterFailure {
    /// No server of the engine took the question: the record did not change.
    Unreachable(String),
    /// No answer came, or one that does not say how it ended.
    Unanswered(Known, String),
    /// The engine has too much to do: the record did not change.
    Busy(String),
    /// The engine has no room: the record did not change.
    Full(String),
    /// The engine takes no value of this length: the record did not change.
    TooLarge(String),
    /// A record is not one that a front door wrote, or was changed.
    Damaged(String),
    /// Anything else: the record did not change.
    Failed(String),
}

impl fmt::Display for OuterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OuterFailure::Unreachable(why)
            | OuterFailure::Unanswered(_, why)
            | OuterFailure::Busy(why)
            | OuterFailure::Full(why)
            | OuterFailure::TooLarge(why)
            | OuterFailure::Damaged(why)
            | OuterFailure::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for OuterFailure {}

/// The part of `range` after the record `last`, in its direction.
pub(crate) fn rest_behind(range: &Range, last: &[u8]) -> Range {
    let mut rest = range.clone();
    if range.is_reverse {
        rest.end = Some(Bytes::copy_from_slice(last))
    } else {
        let mut start = last.to_vec();
        start.push(0);
        rest.start = start.into();
    }
    rest
}
