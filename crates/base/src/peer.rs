//! The nouns of every question and every answer between members of a cluster.
//!
//! ```text
//! Ask      Clock        the member's time, and its readiness to write       no key, no disk
//!          Read         the newest cell of a key                            `known`: not needed again
//!          Write        keep this cell unless you have a newer one          answered when durable
//!          Prepare      promise to accept nothing below this ballot         durable before the answer
//!          Accept       accept this proposal unless promised to a higher    durable before the answer
//!          Page         the member's records of this range                  a part of a scan
//!          Load         the member's records of these partitions            a new owner's page
//!          Compare      which of these ranges that we share differ          fingerprints of them
//!          List         the member's records of a range that both share     values stay at home
//!          Foreground   how many rounds clients had there, and how long     no key, no disk
//!          Changes      keys of a range that were written, by number        no disk; may wait
//! Answer   one per question, or why there is none
//! ```
//!
//! Invariants
//! 1. A `Stamp` travels with every question: the fence of a later topology refuses the old one.
//! 2. Keys are raw user keys. A member's other records (promises, hints) never travel under a key
//!    of their own.
//! 3. A refusal is an answer that does not count; it never means "absent".
//! 4. Every question may arrive twice, late and out of order and then does no harm. So there is
//!    none that hands a whole operation over: applied again after a later write, it would undo
//!    that.
//!
//! Not here: bytes (crate `wire`), the choice of peers and times (crate `node`).
//! See: docs/protocol.md.

use crate::{Cell, CellId, Space, Stop, Version};
use bytes::Bytes;

pub use crate::condition::Condition;

/// A client's operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The newest cell. The server of the client judges the conditions of reads.
    Get,
    /// Store a value.
    Put {
        /// The client's bytes.
        value: Bytes,
        /// Wall milliseconds after which the value is gone; `None` = never.
        expiry_ms: Option<u64>,
        /// The condition on the current value.
        condition: Condition,
    },
    /// Store the fact that there is no value.
    Delete {
        /// The condition on the current value.
        condition: Condition,
    },
    /// Give the value another end.
    Touch {
        /// Wall milliseconds after which the value is gone.
        expiry_ms: u64,
        /// The condition on the current value: `Present`, `Matches` or `MatchesOneOf`.
        condition: Condition,
    },
}

impl Operation {
    /// The condition of a write; a read has none here.
    pub fn condition(&self) -> Condition {
        match self {
            Operation::Get => Condition::None,
            Operation::Put { condition, .. }
            | Operation::Delete { condition }
            | Operation::Touch { condition, .. } => condition.clone(),
        }
    }
}

/// The order of rival proposals for one key: clock first, then origin. Unique, because an origin
/// never uses a clock value twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// Hybrid clock of the proposer.
    pub hlc: u64,
    /// The proposer: member and lane, as in versions.
    pub origin: u32,
}

impl Ballot {
    /// Below every ballot that was ever used.
    pub const ZERO: Ballot = Ballot { hlc: 0, origin: 0 };
}

/// How many authors a proposal remembers: far more than rivals get through between two attempts of
/// one of them.
pub const ANCESTORS_MAX: usize = 64;

/// A cell that a coordinator proposes as the next one, and its ballot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Under which it was accepted.
    pub ballot: Ballot,
    /// Under which it was proposed first: names the proposal for ever, also when others finish it.
    /// Rivals on one base propose the same version, perhaps of the same value; only this tells them
    /// apart.
    pub author: Ballot,
    /// Authors of the version that it builds on, of the one before that, and so on. They go as far
    /// as they are known and young; at most `ANCESTORS_MAX`. A late coordinator learns from it
    /// whether its own proposal won.
    pub ancestors: Vec<Ballot>,
    /// The cell, with the version that it will have.
    pub cell: Cell,
}

/// A member's last accepted proposal, for a coordinator that it outbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Version of the accepted proposal. It may never be chosen; those that it builds on were.
    pub version: Version,
    /// Ballots of the authors of the versions before this one, as in the proposal.
    pub ancestors: Vec<Ballot>,
}

/// The head of every question: where it belongs and until when its answer is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The cluster's id.
    pub cluster: u64,
    /// The topology by which the asker chose the peer.
    pub epoch: u64,
    /// Milliseconds left for the answer to be of use, when the question was sent.
    pub left_ms: u32,
}

/// A range of user keys, the part of a scan that is still to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// First raw key, inclusive. For a reverse scan too: the range is the same, walked backwards.
    pub start: Bytes,
    /// End, exclusive; `None` = no end.
    pub end: Option<Bytes>,
    /// From the end towards the start.
    pub is_reverse: bool,
    /// Leave the values at home: cells come with empty values and the checksum of the full one.
    pub is_keys_only: bool,
}

/// A question to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The member's hybrid clock, at least its wall clock.
    Clock,
    /// The newest cell of `key`, tombstones included.
    Read {
        /// Raw user key.
        key: Bytes,
        /// Answer `Same` when this is the newest cell. A version is not enough: two copies under
        /// one version with other bytes would never be noticed.
        known: Option<CellId>,
    },
    /// Keep `cell` unless a newer one is there; answer when this or a newer one is durable.
    Write {
        /// Raw user key.
        key: Bytes,
        /// With its version, which never changes.
        cell: Cell,
    },
    /// Promise to refuse every ballot below this one.
    Prepare {
        /// Raw user key.
        key: Bytes,
        /// The proposer's.
        ballot: Ballot,
    },
    /// Accept a proposal unless a higher ballot was promised.
    Accept {
        /// Raw user key.
        key: Bytes,
        /// Ballot and cell.
        proposal: Proposal,
    },
    /// Cells of `range` in the order of the walk, tombstones included, up to `bytes` of them.
    Page {
        /// The part that is still to come.
        range: Range,
        /// How many bytes of keys and values the answer may have; at least one record comes.
        bytes: u32,
    },
    /// Records of some partitions in the order of their keys, for a member that becomes an owner
    /// of them. The answer has all that this member confirmed as an owner before the asker's epoch.
    Load {
        /// `User` or `Protocol`.
        space: Space,
        /// Raw key: from this one on.
        start: Bytes,
        /// A bit for each partition, the lowest bit of the first byte first; none beyond the end.
        partitions: Bytes,
        /// How many bytes of keys and values to look at; at least one record.
        bytes: u32,
    },
    /// Which of these ranges differ, of the records of which both members are owners? Without
    /// ranges it is news: all that both share was compared, and no difference is left.
    Compare {
        /// `User` or `Protocol`.
        space: Space,
        /// Raw key: the first range begins here, each other one where the one before ends.
        start: Bytes,
        /// At most `COMPARE_RANGES_MAX`.
        ranges: Vec<RangePrint>,
        /// The asker's wall clock: a value that has ended by then counts as deleted.
        now_ms: u64,
    },
    /// Records of a range that both members may own, in the order of their keys.
    List {
        /// `User` or `Protocol`.
        space: Space,
        /// Raw key: from this one on.
        start: Bytes,
        /// Raw key, exclusive; `None` = to the end of the space.
        end: Option<Bytes>,
        /// How many bytes of keys and values to look at; at least one record.
        bytes: u32,
    },
    /// How clients of this member fare: a member that loads copies gives way to them.
    Foreground,
    /// The keys of a range that were written at this member, from a place in its changes on.
    Changes {
        /// From where on; `None` = where is the end?
        cursor: Option<FeedCursor>,
        /// Raw key: from this one on.
        start: Bytes,
        /// Raw key, exclusive; `None` = no end.
        end: Option<Bytes>,
        /// Answer when there are some, or a moment later. Else at once.
        waits: bool,
    },
}

/// A place in the changes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedCursor {
    /// The life of its changes.
    pub life: u64,
    /// The number of the next change.
    pub next: u64,
}

/// A key that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Number in the life of the member's changes.
    pub number: u64,
    /// Raw key.
    pub key: Bytes,
    /// The version that was written, at least.
    pub version: Version,
}

/// Rounds of clients' operations that a member coordinated since its process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreground {
    /// How many.
    pub rounds: u64,
    /// How long they took, all together; microseconds.
    pub sum_us: u64,
}

/// Ranges that one question compares: 1 MiB of small records, and 32 KiB of question with long keys
/// as their bounds.
pub const COMPARE_RANGES_MAX: usize = 256;

/// The fingerprint of a range of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePrint {
    /// Raw key, exclusive; `None` = to the end of the space.
    pub end: Option<Bytes>,
    /// Fingerprint of the keys in the range and their records.
    pub print: u64,
}

/// Why a question has no answer. None of these says anything about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The asker's topology is older than the fence of this member: adopt `epoch`, ask again.
    Stale {
        /// The fence.
        epoch: u64,
    },
    /// Another cluster's question.
    Foreign,
    /// This member holds no copy of the key in the asker's epoch.
    NotOwner,
    /// A queue is full.
    Busy,
    /// No room on the disk for writes.
    DiskFull,
    /// The stored bytes do not match their checksum.
    Damaged,
    /// The time was over before the work was begun.
    Late,
    /// The wall clocks of the two are more than a minute apart, or a clock value is none that a
    /// clock shows.
    ClockApart,
    /// The member stops, or its log failed.
    Stopping,
    /// The cell's value is longer than this member takes, or the cell fails its checksum.
    Unfit,
}

/// A member's answer to a write that reached it now. It is told beside a clock, before any value
/// travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The member would begin the write at once.
    #[default]
    Ready,
    /// The write would wait there, or be refused as `Busy`.
    Behind,
    /// The member would refuse a value as `DiskFull`, and take a deletion.
    DiskFull,
    /// The member would refuse a deletion, too.
    DiskAndMemoryFull,
}

impl Readiness {
    /// Readiness of a member whose engine takes no values for this reason.
    pub fn of(stop: Option<Stop>) -> Readiness {
        match stop {
            None => Readiness::Ready,
            Some(Stop::MemtablesFull | Stop::CompactionBehind) => Readiness::Behind,
            Some(Stop::DiskFull) => Readiness::DiskFull,
            Some(Stop::DiskAndMemoryFull) => Readiness::DiskAndMemoryFull,
        }
    }
}

/// The answer to a question. The shape follows the question, or it is `Refused`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Clock`.
    Clock {
        /// Not below any version that is stored there.
        hlc: u64,
        /// Wall clock of the member, in milliseconds since 1970.
        wall_ms: u64,
        /// Largest clock value that may have been used, as the member's folder says: a later state
        /// of it says no less.
        kept: u64,
        /// The member's answer to a write now.
        readiness: Readiness,
    },
    /// To `Read`.
    Cell(Option<Cell>),
    /// To `Read`: the version that the asker knows is the newest here.
    Same,
    /// To `Write`: this version, the written one or a newer one, is durable.
    Written(Version),
    /// To `Prepare`: promised, durably.
    Promised {
        /// The newest cell.
        stored: Option<Cell>,
        /// The proposal accepted last. When `stored` is not older than it, its cell may have lost
        /// its value: only version and author count then.
        accepted: Option<Proposal>,
    },
    /// To `Accept`: accepted, durably.
    Accepted,
    /// To `Prepare` and `Accept`: a higher ballot was promised.
    Outbid {
        /// The promise.
        promised: Ballot,
        /// Last accepted proposal of the member, if there is one.
        line: Option<Lineage>,
    },
    /// To `Page`: records in the order of the walk, and where to go on if there is more.
    Page {
        /// Raw keys and their newest cells, tombstones included.
        records: Vec<(Bytes, Cell)>,
        /// The rest of the range; `None` when it was shown to its end.
        rest: Option<Range>,
    },
    /// To `Load`: records of those partitions, and where to go on if there is more.
    Loaded {
        /// Raw keys and their newest cells, tombstones included.
        records: Vec<(Bytes, Cell)>,
        /// Raw key of the space; `None` = this was its end.
        next: Option<Bytes>,
    },
    /// To `Compare`.
    Compared {
        /// How many of the ranges were looked at: the first ones, at least one.
        looked: u16,
        /// Which of those differ, by their numbers.
        differing: Vec<u16>,
    },
    /// To `List`: records that may be shared, and where to go on if there is more.
    Listed {
        /// Raw keys and their newest cells, tombstones included. Cells of clients come with empty
        /// values and the checksum of the full one, records of the protocol with the promise alone.
        records: Vec<(Bytes, Cell)>,
        /// Raw key; `None` = this was the end of the range.
        next: Option<Bytes>,
    },
    /// To `Foreground`.
    Foreground(Foreground),
    /// To `Changes`.
    Changes {
        /// Behind the changes that were looked at.
        cursor: FeedCursor,
        /// Changes of the range among them.
        changes: Vec<Change>,
        /// All changes so far were looked at.
        is_end: bool,
    },
    /// To `Changes`: those from the cursor on are not known any more.
    ChangesGone {
        /// Where the changes end now.
        end: FeedCursor,
    },
    /// There is no answer.
    Refused(Refused),
}
