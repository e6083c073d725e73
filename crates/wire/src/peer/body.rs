//! The bodies of questions and answers.
//!
//! ```text
//! key, bytes   | length u32 | bytes |             version  16 bytes, big-endian
//! cell         | length u32 | as docs/format/cell.md |        option   | 0 or 1 | then it |
//! ancestors    | count u8 | ballots of the authors before it |
//! proposal     ballot, ballot of its author, ancestors, cell
//! line         version, ancestors
//! range        | start | option of end | bits: 1 reverse, 2 keys only |
//! cursor       life u64, number u64 of the next change
//! ranges       | count u16 | option of end, fingerprint u64 | … |
//! ```
//!
//! Invariants
//! 1. Every enum that is encoded here is matched without a wildcard: a new variant does not compile
//!    before it has bytes.
//! 2. Keys are 1 to `KEY_BYTES_MAX` bytes, bounds of ranges one byte longer at most (the smallest
//!    key after a key), values at most `WRAPPED_VALUE_BYTES_MAX`.
//!
//! Not here: lengths and checksums of frames (`frame.rs`).
//! See: docs/peer.md, section "Bodies".

use super::shape::{Malformed, kind};
use bytes::Bytes;
use dendra_base::limits::{BOUND_BYTES_MAX, KEY_BYTES_MAX, WRAPPED_VALUE_BYTES_MAX};
use dendra_base::peer::{
    ANCESTORS_MAX, Answer, Ask, Ballot, COMPARE_RANGES_MAX, Change, FeedCursor, Foreground,
    Lineage, Proposal, Range, RangePrint, Readiness, Refused,
};
use dendra_base::{Cell, CellId, CellRef, Space, Version};

/// A bit for each of the most partitions that a cluster can have.
const PARTITION_BITS_MAX: usize = 16_384 / 8;

type BodyResult<T> = Result<T, Malformed>;

/// The rest of a frame's body.
pub(super) struct BodyRest<'a> {
    frame: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> BodyRest<'a> {
    /// Over `frame[at..end]`.
    pub(super) fn new(frame: &'a Bytes, at: usize, end: usize) -> BodyRest<'a> {
        assert!(at <= end && end <= frame.len(), "a frame has its header");
        BodyRest { frame, at, end }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.end
    }

    fn left(&self) -> usize {
        self.end - self.at
    }

    fn take(&mut self, len: usize, part: &'static str) -> BodyResult<&'a [u8]> {
        if len > self.left() {
            return Err(Malformed::Body(part));
        }
        let taken = &self.frame[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, part: &'static str) -> BodyResult<[u8; N]> {
        let taken = self.take(N, part)?;
        taken.try_into().map_err(|_| Malformed::Body(part))
    }

    fn u8(&mut self, part: &'static str) -> BodyResult<u8> {
        Ok(self.array::<1>(part)?[0])
    }

    fn u16(&mut self, part: &'static str) -> BodyResult<u16> {
        Ok(u16::from_le_bytes(self.array(part)?))
    }

    pub(super) fn u32(&mut self, part: &'static str) -> BodyResult<u32> {
        Ok(u32::from_le_bytes(self.array(part)?))
    }

    pub(super) fn u64(&mut self, part: &'static str) -> BodyResult<u64> {
        Ok(u64::from_le_bytes(self.array(part)?))
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.frame[self.at..self.end];
        self.at = self.end;
        rest
    }

    /// Rest of the body as a slice that shares the frame's memory.
    pub(super) fn rest_of_frame(&mut self) -> Bytes {
        let rest = self.frame.slice(self.at..self.end);
        self.at = self.end;
        rest
    }

    /// A slice of the frame that shares its memory.
    fn shared(&mut self, len_max: usize, part: &'static str) -> BodyResult<Bytes> {
        let len = self.u32(part)? as usize;
        if len > len_max {
            return Err(Malformed::Body(part));
        }
        let start = self.at;
        self.take(len, part)?;
        Ok(self.frame.slice(start..start + len))
    }

    fn key(&mut self) -> BodyResult<Bytes> {
        let key = self.shared(KEY_BYTES_MAX, "key")?;
        if key.is_empty() {
            return Err(Malformed::Body("empty key"));
        }
        Ok(key)
    }

    /// The space of records that owners give to each other.
    fn shared_space(&mut self) -> BodyResult<Space> {
        match Space::from_byte(self.u8("space")?) {
            Some(space @ (Space::User | Space::Protocol)) => Ok(space),
            Some(Space::Meta | Space::Hint) | None => Err(Malformed::Body("space")),
        }
    }

    /// Records of a page, each at least as long as an empty cell behind a key.
    fn records(&mut self, value_bytes_max: usize) -> BodyResult<Vec<(Bytes, Cell)>> {
        let len = self.u32("records")? as usize;
        if len > self.left() / RECORD_BYTES_MIN {
            return Err(Malformed::Body("records"));
        }
        let mut records = Vec::with_capacity(len);
        for _ in 0..len {
            records.push((self.key()?, self.cell_of(value_bytes_max)?));
        }
        Ok(records)
    }

    fn feed_cursor(&mut self) -> BodyResult<FeedCursor> {
        Ok(FeedCursor {
            life: self.u64("life")?,
            next: self.u64("next")?,
        })
    }

    fn changes(&mut self) -> BodyResult<Vec<Change>> {
        let len = self.u32("changes")? as usize;
        if len > self.left() / CHANGE_BYTES_MIN {
            return Err(Malformed::Body("changes"));
        }
        let mut changes = Vec::with_capacity(len);
        for _ in 0..len {
            changes.push(Change {
                number: self.u64("number")?,
                version: self.version()?,
                key: self.key()?,
            });
        }
        Ok(changes)
    }

    fn bool(&mut self, part: &'static str) -> BodyResult<bool> {
        match self.u8(part)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Body(part)),
        }
    }

    /// Ranges of a comparison.
    fn range_prints(&mut self) -> BodyResult<Vec<RangePrint>> {
        let count = usize::from(self.u16("ranges")?);
        if count > COMPARE_RANGES_MAX {
            return Err(Malformed::Body("ranges"));
        }
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push(RangePrint {
                end: self.option(BodyRest::bound)?,
                print: self.u64("fingerprint")?,
            });
        }
        Ok(ranges)
    }

    /// Numbers of ranges.
    fn range_numbers(&mut self) -> BodyResult<Vec<u16>> {
        let count = usize::from(self.u16("ranges")?);
        if count > COMPARE_RANGES_MAX {
            return Err(Malformed::Body("ranges"));
        }
        (0..count).map(|_| self.u16("range")).collect()
    }

    /// A bound of a range of raw keys.
    fn bound(&mut self) -> BodyResult<Bytes> {
        self.shared(BOUND_BYTES_MAX, "bound")
    }

    fn version(&mut self) -> BodyResult<Version> {
        Ok(Version::from_bytes(self.array("version")?))
    }

    fn cell_id(&mut self) -> BodyResult<CellId> {
        Ok(CellId {
            version: self.version()?,
            digest: self.u64("digest")?,
        })
    }

    fn ballot(&mut self) -> BodyResult<Ballot> {
        Ok(Ballot {
            hlc: self.u64("ballot")?,
            origin: self.u32("ballot")?,
        })
    }

    fn option<T>(
        &mut self,
        some: impl FnOnce(&mut Self) -> BodyResult<T>,
    ) -> BodyResult<Option<T>> {
        match self.u8("option")? {
            0 => Ok(None),
            1 => some(self).map(Some),
            _ => Err(Malformed::Body("option")),
        }
    }

    fn cell(&mut self) -> BodyResult<Cell> {
        self.cell_of(WRAPPED_VALUE_BYTES_MAX)
    }

    /// A cell whose value has at most `value_bytes_max` bytes.
    fn cell_of(&mut self, value_bytes_max: usize) -> BodyResult<Cell> {
        let encoded = self.shared(value_bytes_max + CELL_BYTES_BESIDE, "cell")?;
        let cell = CellRef::decode(&encoded).ok_or(Malformed::Body("cell"))?;
        if cell.value.len() > value_bytes_max {
            return Err(Malformed::Body("value"));
        }
        Ok(Cell {
            version: cell.version,
            kind: cell.kind,
            copies: cell.copies,
            expiry_ms: cell.expiry_ms,
            born: cell.born,
            checksum: cell.checksum,
            // The value is the end of an encoded cell.
            value: encoded.slice(encoded.len() - cell.value.len()..),
        })
    }

    fn proposal(&mut self) -> BodyResult<Proposal> {
        Ok(Proposal {
            ballot: self.ballot()?,
            author: self.ballot()?,
            ancestors: self.ancestors()?,
            cell: self.cell()?,
        })
    }

    fn ancestors(&mut self) -> BodyResult<Vec<Ballot>> {
        let count = usize::from(self.u8("ancestors")?);
        if count > ANCESTORS_MAX {
            return Err(Malformed::Body("ancestors"));
        }
        (0..count).map(|_| self.ballot()).collect()
    }

    fn line(&mut self) -> BodyResult<Lineage> {
        Ok(Lineage {
            version: self.version()?,
            ancestors: self.ancestors()?,
        })
    }

    fn range(&mut self) -> BodyResult<Range> {
        let start = self.shared(BOUND_BYTES_MAX, "start")?;
        let end = self.option(|cursor| cursor.shared(BOUND_BYTES_MAX, "end"))?;
        let bits = self.u8("range")?;
        if bits & !(RANGE_REVERSE | RANGE_KEYS_ONLY) != 0 {
            return Err(Malformed::Body("range"));
        }
        Ok(Range {
            start,
            end,
            is_reverse: bits & RANGE_REVERSE != 0,
            is_keys_only: bits & RANGE_KEYS_ONLY != 0,
        })
    }
}

/// Flags, copies, version, checksum and expiry in front of a value.
const CELL_BYTES_BESIDE: usize = 64;
/// A record of the protocol has ballots beside the value that it accepted.
const PROTOCOL_BYTES_BESIDE: usize = 4_096;
const RANGE_REVERSE: u8 = 1;
const RANGE_KEYS_ONLY: u8 = 2;
/// Key length, key, cell length, cell: the least that a record of a page takes.
const RECORD_BYTES_MIN: usize = 4 + 1 + 4 + 26;

/// Number, version, key length, key: the least that a change takes.
const CHANGE_BYTES_MIN: usize = 8 + 16 + 4 + 1;

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("keys and values are bounded by the limits");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("ranges of a comparison are few");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_cell(out: &mut Vec<u8>, cell: &Cell) {
    let cell = cell.as_ref();
    let len = u32::try_from(cell.encoded_len()).expect("values are bounded by the limits");
    out.extend_from_slice(&len.to_le_bytes());
    cell.encode(out);
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0),
        Some(value) => {
            out.push(1);
            put(out, value);
        }
    }
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.to_bytes());
}

fn put_cell_id(out: &mut Vec<u8>, id: CellId) {
    put_version(out, id.version);
    out.extend_from_slice(&id.digest.to_le_bytes());
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.extend_from_slice(&ballot.hlc.to_le_bytes());
    out.extend_from_slice(&ballot.origin.to_le_bytes());
}

fn put_proposal(out: &mut Vec<u8>, proposal: &Proposal) {
    put_ballot(out, proposal.ballot);
    put_ballot(out, proposal.author);
    put_ancestors(out, &proposal.ancestors);
    put_cell(out, &proposal.cell);
}

fn put_ancestors(out: &mut Vec<u8>, ancestors: &[Ballot]) {
    let known = &ancestors[..ancestors.len().min(ANCESTORS_MAX)];
    out.push(known.len() as u8);
    for ancestor in known {
        put_ballot(out, *ancestor);
    }
}

fn put_line(out: &mut Vec<u8>, line: &Lineage) {
    put_version(out, line.version);
    put_ancestors(out, &line.ancestors);
}

fn put_range(out: &mut Vec<u8>, range: &Range) {
    put_bytes(out, &range.start);
    put_option(out, range.end.as_ref(), |out, end| put_bytes(out, end));
    let reverse = if range.is_reverse { RANGE_REVERSE } else { 0 };
    let keys_only = if range.is_keys_only {
        RANGE_KEYS_ONLY
    } else {
        0
    };
    out.push(reverse | keys_only);
}

fn put_feed_cursor(out: &mut Vec<u8>, cursor: FeedCursor) {
    out.extend_from_slice(&cursor.life.to_le_bytes());
    out.extend_from_slice(&cursor.next.to_le_bytes());
}

/// The kind of a question's frame.
pub(super) fn kind_of_ask(ask: &Ask) -> u8 {
    match ask {
        Ask::Clock => kind::CLOCK,
        Ask::Read { .. } => kind::READ,
        Ask::Write { .. } => kind::WRITE,
        Ask::Prepare { .. } => kind::PREPARE,
        Ask::Accept { .. } => kind::ACCEPT,
        Ask::Page { .. } => kind::PAGE,
        Ask::Load { .. } => kind::LOAD,
        Ask::Compare { .. } => kind::COMPARE,
        Ask::List { .. } => kind::LIST,
        Ask::Foreground => kind::FOREGROUND,
        Ask::Changes { .. } => kind::CHANGES,
    }
}

/// The kind of an answer's frame.
pub(super) fn kind_of_answer(answer: &Answer) -> u8 {
    match answer {
        Answer::Clock { .. } => kind::CLOCK_IS,
        Answer::Cell(_) => kind::CELL,
        Answer::Same => kind::SAME,
        Answer::Written(_) => kind::WRITTEN,
        Answer::Promised { .. } => kind::PROMISED,
        Answer::Accepted => kind::ACCEPTED,
        Answer::Outbid { .. } => kind::OUTBID,
        Answer::Page { .. } => kind::PAGE_IS,
        Answer::Loaded { .. } => kind::LOADED,
        Answer::Compared { .. } => kind::COMPARED,
        Answer::Listed { .. } => kind::LISTED,
        Answer::Foreground(_) => kind::FOREGROUND_IS,
        Answer::Changes { .. } => kind::CHANGES_ARE,
        Answer::ChangesGone { .. } => kind::CHANGES_GONE,
        Answer::Refused(_) => kind::REFUSED,
    }
}

pub(super) fn put_ask(out: &mut Vec<u8>, ask: &Ask) {
    match ask {
        Ask::Clock | Ask::Foreground => {}
        Ask::Read { key, known } => {
            put_bytes(out, key);
            put_option(out, *known, put_cell_id);
        }
        Ask::Write { key, cell } => {
            put_bytes(out, key);
            put_cell(out, cell);
        }
        Ask::Prepare { key, ballot } => {
            put_bytes(out, key);
            put_ballot(out, *ballot);
        }
        Ask::Accept { key, proposal } => {
            put_bytes(out, key);
            put_proposal(out, proposal);
        }
        Ask::Page { range, bytes } => {
            put_range(out, range);
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        Ask::Load {
            space,
            start,
            partitions,
            bytes,
        } => {
            out.push(space.byte());
            put_bytes(out, start);
            put_bytes(out, partitions);
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        Ask::Compare {
            space,
            start,
            ranges,
            now_ms,
        } => {
            out.push(space.byte());
            put_bytes(out, start);
            out.extend_from_slice(&now_ms.to_le_bytes());
            put_count(out, ranges.len());
            for range in ranges {
                put_option(out, range.end.as_ref(), |out, end| put_bytes(out, end));
                out.extend_from_slice(&range.print.to_le_bytes());
            }
        }
        Ask::List {
            space,
            start,
            end,
            bytes,
        } => {
            out.push(space.byte());
            put_bytes(out, start);
            put_option(out, end.as_ref(), |out, end| put_bytes(out, end));
            out.extend_from_slice(&bytes.to_le_bytes());
        }
        Ask::Changes {
            cursor,
            start,
            end,
            waits,
        } => {
            put_option(out, *cursor, put_feed_cursor);
            put_bytes(out, start);
            put_option(out, end.as_ref(), |out, end| put_bytes(out, end));
            out.push(u8::from(*waits));
        }
    }
}

pub(super) fn take_ask(kind: u8, cursor: &mut BodyRest<'_>) -> BodyResult<Ask> {
    Ok(match kind {
        kind::CLOCK => Ask::Clock,
        kind::FOREGROUND => Ask::Foreground,
        kind::READ => Ask::Read {
            key: cursor.key()?,
            known: cursor.option(BodyRest::cell_id)?,
        },
        kind::WRITE => Ask::Write {
            key: cursor.key()?,
            cell: cursor.cell()?,
        },
        kind::PREPARE => Ask::Prepare {
            key: cursor.key()?,
            ballot: cursor.ballot()?,
        },
        kind::ACCEPT => Ask::Accept {
            key: cursor.key()?,
            proposal: cursor.proposal()?,
        },
        kind::PAGE => Ask::Page {
            range: cursor.range()?,
            bytes: cursor.u32("bytes")?,
        },
        kind::LOAD => Ask::Load {
            space: cursor.shared_space()?,
            start: cursor.bound()?,
            partitions: cursor.shared(PARTITION_BITS_MAX, "partitions")?,
            bytes: cursor.u32("bytes")?,
        },
        kind::COMPARE => {
            let (space, start) = (cursor.shared_space()?, cursor.bound()?);
            Ask::Compare {
                space,
                start,
                now_ms: cursor.u64("now")?,
                ranges: cursor.range_prints()?,
            }
        }
        kind::LIST => Ask::List {
            space: cursor.shared_space()?,
            start: cursor.bound()?,
            end: cursor.option(BodyRest::bound)?,
            bytes: cursor.u32("bytes")?,
        },
        kind::CHANGES => Ask::Changes {
            cursor: cursor.option(BodyRest::feed_cursor)?,
            start: cursor.bound()?,
            end: cursor.option(BodyRest::bound)?,
            waits: cursor.bool("waits")?,
        },
        other => return Err(Malformed::Kind(other)),
    })
}

fn put_records(out: &mut Vec<u8>, records: &[(Bytes, Cell)]) {
    let len = u32::try_from(records.len()).expect("a page is bounded by its bytes");
    out.extend_from_slice(&len.to_le_bytes());
    for (key, cell) in records {
        put_bytes(out, key);
        put_cell(out, cell);
    }
}

pub(super) fn put_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Clock {
            hlc,
            wall_ms,
            kept,
            readiness,
        } => {
            out.extend_from_slice(&hlc.to_le_bytes());
            out.extend_from_slice(&wall_ms.to_le_bytes());
            out.extend_from_slice(&kept.to_le_bytes());
            out.push(match readiness {
                Readiness::Ready => 0,
                Readiness::Behind => 1,
                Readiness::DiskFull => 2,
                Readiness::DiskAndMemoryFull => 3,
            });
        }
        Answer::Cell(cell) => put_option(out, cell.as_ref(), put_cell),
        Answer::Same | Answer::Accepted => {}
        Answer::Written(version) => put_version(out, *version),
        Answer::Promised { stored, accepted } => {
            put_option(out, stored.as_ref(), put_cell);
            put_option(out, accepted.as_ref(), put_proposal);
        }
        Answer::Outbid { promised, line } => {
            put_ballot(out, *promised);
            put_option(out, line.as_ref(), put_line);
        }
        Answer::Page { records, rest } => {
            put_records(out, records);
            put_option(out, rest.as_ref(), put_range);
        }
        Answer::Loaded { records, next } | Answer::Listed { records, next } => {
            put_records(out, records);
            put_option(out, next.as_ref(), |out, next| put_bytes(out, next));
        }
        Answer::Compared { looked, differing } => {
            out.extend_from_slice(&looked.to_le_bytes());
            put_count(out, differing.len());
            for range in differing {
                out.extend_from_slice(&range.to_le_bytes());
            }
        }
        Answer::Foreground(Foreground { rounds, sum_us }) => {
            out.extend_from_slice(&rounds.to_le_bytes());
            out.extend_from_slice(&sum_us.to_le_bytes());
        }
        Answer::Changes {
            cursor,
            changes,
            is_end,
        } => {
            put_feed_cursor(out, *cursor);
            let len = u32::try_from(changes.len()).expect("a page is bounded by its bytes");
            out.extend_from_slice(&len.to_le_bytes());
            for change in changes {
                out.extend_from_slice(&change.number.to_le_bytes());
                put_version(out, change.version);
                put_bytes(out, &change.key);
            }
            out.push(u8::from(*is_end));
        }
        Answer::ChangesGone { end } => put_feed_cursor(out, *end),
        Answer::Refused(refused) => match refused {
            Refused::Stale { epoch } => {
                out.push(0);
                out.extend_from_slice(&epoch.to_le_bytes());
            }
            Refused::Foreign => out.push(1),
            Refused::NotOwner => out.push(2),
            Refused::Busy => out.push(3),
            Refused::DiskFull => out.push(4),
            Refused::Damaged => out.push(5),
            Refused::Late => out.push(6),
            Refused::ClockApart => out.push(7),
            Refused::Stopping => out.push(8),
            Refused::Unfit => out.push(9),
        },
    }
}

pub(super) fn take_answer(kind: u8, cursor: &mut BodyRest<'_>) -> BodyResult<Answer> {
    Ok(match kind {
        kind::CLOCK_IS => Answer::Clock {
            hlc: cursor.u64("hlc")?,
            wall_ms: cursor.u64("wall")?,
            kept: cursor.u64("kept")?,
            readiness: match cursor.u8("readiness")? {
                0 => Readiness::Ready,
                1 => Readiness::Behind,
                2 => Readiness::DiskFull,
                3 => Readiness::DiskAndMemoryFull,
                _ => return Err(Malformed::Body("readiness")),
            },
        },
        kind::CELL => Answer::Cell(cursor.option(BodyRest::cell)?),
        kind::SAME => Answer::Same,
        kind::WRITTEN => Answer::Written(cursor.version()?),
        kind::PROMISED => Answer::Promised {
            stored: cursor.option(BodyRest::cell)?,
            accepted: cursor.option(BodyRest::proposal)?,
        },
        kind::ACCEPTED => Answer::Accepted,
        kind::OUTBID => Answer::Outbid {
            promised: cursor.ballot()?,
            line: cursor.option(BodyRest::line)?,
        },
        kind::PAGE_IS => Answer::Page {
            records: cursor.records(WRAPPED_VALUE_BYTES_MAX)?,
            rest: cursor.option(BodyRest::range)?,
        },
        kind::LOADED => Answer::Loaded {
            records: cursor.records(WRAPPED_VALUE_BYTES_MAX + PROTOCOL_BYTES_BESIDE)?,
            next: cursor.option(BodyRest::bound)?,
        },
        kind::COMPARED => Answer::Compared {
            looked: cursor.u16("looked")?,
            differing: cursor.range_numbers()?,
        },
        kind::LISTED => Answer::Listed {
            records: cursor.records(WRAPPED_VALUE_BYTES_MAX)?,
            next: cursor.option(BodyRest::bound)?,
        },
        kind::FOREGROUND_IS => Answer::Foreground(Foreground {
            rounds: cursor.u64("rounds")?,
            sum_us: cursor.u64("sum")?,
        }),
        kind::CHANGES_ARE => Answer::Changes {
            cursor: cursor.feed_cursor()?,
            changes: cursor.changes()?,
            is_end: cursor.bool("end")?,
        },
        kind::CHANGES_GONE => Answer::ChangesGone {
            end: cursor.feed_cursor()?,
        },
        kind::REFUSED => Answer::Refused(match cursor.u8("refused")? {
            0 => Refused::Stale {
                epoch: cursor.u64("epoch")?,
            },
            1 => Refused::Foreign,
            2 => Refused::NotOwner,
            3 => Refused::Busy,
            4 => Refused::DiskFull,
            5 => Refused::Damaged,
            6 => Refused::Late,
            7 => Refused::ClockApart,
            8 => Refused::Stopping,
            9 => Refused::Unfit,
            _ => return Err(Malformed::Body("refused")),
        }),
        other => return Err(Malformed::Kind(other)),
    })
}
