//! Reading the log back: all acknowledged writes, or an error that names the loss.
//!
//! ```text
//!   good batches ──────────► p, the first bad spot     D = largest synced_upto of any valid head
//!   D <= p, a part of the batch at p is zeros   torn tail: the write was not whole, stop there
//!   D <= p, every sector of it was written      damage: a write that was whole has changed
//!   D >  p                                      damage: acknowledged writes are unreadable
//! ```
//!
//! Invariants
//! 1. A record is visited only from a batch whose checksum holds, in log order, without a gap.
//! 2. Every segment is read to its end, so that D is known also behind a bad spot.
//! 3. The end of a file is no end of the log: a file has its head and the length that it names, and
//!    the one behind an end mark is there. All else is damage.
//! 4. Any bytes at all are read without a panic.
//!
//! Not here: the meaning of records, and their flush after a recovery (`engine.rs`).

use super::{
    BATCH_HEAD_BYTES, BatchHead, BatchMark, FIRST_BATCH_AT, Lsn, NoHead, NotAStart, SECTOR_BYTES,
    SEGMENT_BYTES_MIN, SEGMENT_HEAD_BYTES, SegmentHead, SegmentStart, padded, parse_segment_name,
    seeded_crc, segment_name,
};
use crate::batch::{LogRecord, RECORD_HEAD_BYTES};
use crate::vfs::{Vfs, Wait};
use crate::{Error, Result, vfs};

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// End of the last batch that was visited. The writer continues its history from here.
    pub end: Lsn,
    /// The first id that no file uses and that is not below the first needed one.
    pub next_segment: u64,
    /// The largest clock that any head promised not to be exceeded; 0 without a head.
    pub hlc_ceiling: u64,
    /// Batches visited, seals included.
    pub batches: u64,
    /// Records visited.
    pub records: u64,
    /// Segments read: those with an id at or above the first needed one.
    pub segments: u64,
    /// How the log ends.
    pub tail: Tail,
}

/// How a log ends that is not damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Only zeros behind the last batch.
    Clean,
    /// An unacknowledged write did not reach the disk whole. It was ignored.
    Torn {
        /// Segment file.
        file: String,
        /// Where the first bad spot is.
        offset: u64,
        /// The expected bytes and the found ones, as a sentence.
        reason: String,
    },
}

/// Visits every record of the segments from `first_needed` on, oldest first.
///
/// `salt` is the number given to the writer. The caller flushes the visited records to a table. It
/// makes a later segment the first needed one before any append. No segment at all is an empty log.
///
/// Errors: [`Error::Damaged`] when acknowledged writes cannot be read, a needed segment is missing,
/// or a segment belongs to another folder. [`Error::Unusable`] when it was written by a newer
/// program. Any error of `visit`. Records may have been visited before an error is found.
pub fn recover(
    vfs: &dyn Vfs,
    salt: u64,
    first_needed: u64,
    mut visit: impl FnMut(LogRecord<'_>) -> Result<()>,
) -> Result<Recovery> {
    recover_by_segment(vfs, salt, first_needed, |seen| match seen {
        LogItem::Record(record) => visit(record),
        LogItem::EndOfSegment { .. } => Ok(()),
    })
}

/// The items that [`recover_by_segment`] shows.
pub(crate) enum LogItem<'a> {
    /// A record.
    Record(LogRecord<'a>),
    /// All records of a segment were shown, and the segment `next` is there.
    EndOfSegment {
        /// The one after it.
        next: u64,
    },
}

/// Recovers like [`recover`], for a caller that removes the log's segments one by one.
pub(crate) fn recover_by_segment(
    vfs: &dyn Vfs,
    salt: u64,
    first_needed: u64,
    mut visit: impl FnMut(LogItem<'_>) -> Result<()>,
) -> Result<Recovery> {
    let names = vfs.list().map_err(|e| Error::io("list the folder", e))?;
    let mut segments: Vec<u64> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    segments.sort_unstable();
    let next_segment = segments
        .last()
        .map_or(first_needed, |last| first_needed.max(last + 1));
    segments.retain(|&segment| segment >= first_needed);
    check_complete(&segments, first_needed)?;

    let mut walk = RecoveryWalk::new(salt, first_needed);
    for (&segment, next) in segments.iter().zip(1..) {
        let whole = Segment::read(vfs, segment)?;
        walk.segment(&whole, &mut |record| visit(LogItem::Record(record)))?;
        drop(whole);
        if let Some(&next) = segments.get(next) {
            visit(LogItem::EndOfSegment { next })?;
        }
    }
    if let Some(last) = segments.last().filter(|last| walk.goes_on_in > **last) {
        return Err(Error::damaged(
            segment_name(walk.goes_on_in),
            0,
            format!(
                "this log segment is missing, and {} says that the log goes on in it: {BRING_BACK}",
                segment_name(*last)
            ),
        ));
    }
    walk.finish(next_segment, segments.len() as u64)
}

/// Does the log go on behind this segment, as far as its heads tell?
///
/// # Errors
/// When it cannot be read or is not a whole segment.
pub(crate) fn goes_on(vfs: &dyn Vfs, segment: u64) -> Result<bool> {
    let whole = Segment::read(vfs, segment)?;
    let mut walk = RecoveryWalk::new(whole.checked_head()?.salt, segment);
    walk.attest_behind(&whole, FIRST_BATCH_AT);
    Ok(walk.goes_on_in > segment)
}

/// The damaged places of the log, by file. At each a batch should start and none does, although the
/// log says that this place was synced. For `dendra check`: [`recover`] refuses at the first one. A
/// segment that cannot be read is left to `recover`'s error.
pub(crate) fn damaged_spots(
    vfs: &dyn Vfs,
    salt: u64,
    first_needed: u64,
) -> Result<Vec<(String, Vec<(u64, String)>)>> {
    let names = vfs.list().map_err(|e| Error::io("list the folder", e))?;
    let mut ids: Vec<u64> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    ids.retain(|&id| id >= first_needed);
    ids.sort_unstable();
    let mut walk = RecoveryWalk::new(salt, first_needed);
    let mut by_file = Vec::new();
    for &id in &ids {
        if let Ok(segment) = Segment::read(vfs, id) {
            walk.attest_behind(&segment, FIRST_BATCH_AT);
        }
    }
    for &id in &ids {
        if let Ok(segment) = Segment::read(vfs, id) {
            let spots = segment.damaged_spots(salt, walk.attested);
            by_file.push((segment.name, spots));
        }
    }
    Ok(by_file)
}

/// Names are durable before a segment is used, so that a missing one was taken away.
fn check_complete(segments: &[u64], first_needed: u64) -> Result<()> {
    for (expected, &found) in (first_needed..).zip(segments) {
        if expected != found {
            return Err(Error::damaged(
                segment_name(expected),
                0,
                format!(
                    "this log segment is missing while {} exists: {BRING_BACK}",
                    segment_name(found)
                ),
            ));
        }
    }
    Ok(())
}

/// The state of one recovery.
struct RecoveryWalk {
    salt: u64,
    end: Lsn,
    stop: Option<Halted>,
    /// The largest `synced_upto` so far: D.
    attested: Lsn,
    /// The segment behind the last end mark; 0 = no end mark was seen.
    goes_on_in: u64,
    hlc_ceiling: u64,
    batches: u64,
    records: u64,
}

/// Where good batches end.
struct Halted {
    file: String,
    offset: usize,
    /// `None`: zeros, or the end of the file.
    bad: Option<Bad>,
}

/// A spot at which something stands that is no batch.
struct Bad {
    reason: String,
    /// Can a write that did not reach the disk whole have left this?
    can_be_torn: bool,
}

impl Bad {
    fn torn(reason: String) -> Bad {
        Bad {
            reason,
            can_be_torn: true,
        }
    }

    fn damaged(reason: String) -> Bad {
        Bad {
            reason,
            can_be_torn: false,
        }
    }
}

impl RecoveryWalk {
    fn new(salt: u64, first_needed: u64) -> RecoveryWalk {
        RecoveryWalk {
            salt,
            end: Lsn::new(first_needed, 0),
            stop: None,
            attested: Lsn::default(),
            goes_on_in: 0,
            hlc_ceiling: 0,
            batches: 0,
            records: 0,
        }
    }

    fn segment(
        &mut self,
        segment: &Segment,
        visit: &mut impl FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let head = segment.checked_head()?;
        if head.salt != self.salt {
            return Err(Error::damaged(
                &segment.name,
                0,
                "this log segment was written in another folder: move the file back where it belongs",
            ));
        }
        let is_next = match segment.start(self.salt) {
            Ok(start) => self.takes_over(segment, &start)?,
            Err(no_start) => self.stands_without_start(segment, &no_start)?,
        };
        let mut at = FIRST_BATCH_AT;
        if is_next {
            at = self.visit_batches(segment, visit)?;
        }
        self.attest_behind(segment, at);
        Ok(())
    }

    /// Does the segment continue the history that was visited so far?
    fn takes_over(&mut self, segment: &Segment, start: &SegmentStart) -> Result<bool> {
        self.attested = self.attested.max(start.synced_upto);
        if self.stop.is_none() || self.ends_at(start.previous_end) {
            self.stop = None;
            self.end = Lsn::new(segment.id, FIRST_BATCH_AT);
            return Ok(true);
        }
        if start.previous_end < self.end {
            return Err(Error::damaged(
                &segment.name,
                SEGMENT_HEAD_BYTES as u64,
                format!(
                    "this log segment continues at {}, the one in front of it goes on to {}: files of two histories are mixed",
                    start.previous_end, self.end
                ),
            ));
        }
        Ok(false)
    }

    /// Does the segment in front end at `previous_end`? With its end mark gone, it still does: no
    /// record was in that.
    fn ends_at(&self, previous_end: Lsn) -> bool {
        let is_same_segment = previous_end.segment() == self.end.segment();
        let missing = previous_end.offset().checked_sub(self.end.offset());
        is_same_segment && missing.is_some_and(|it| it == 0 || it == BATCH_HEAD_BYTES as u64)
    }

    /// A segment without a start was never used, lost its first sector with the power, or is
    /// damaged.
    fn stands_without_start(&mut self, segment: &Segment, no_start: &NotAStart) -> Result<bool> {
        let reason = match no_start {
            NotAStart::Zeros => None,
            NotAStart::Bad => Some("the segment's start does not match its checksum"),
        };
        // The start and the head of the first batch share a disk sector: losing one and keeping
        // the other is no power loss.
        let first = segment.spot_at(FIRST_BATCH_AT, self.salt);
        if let Spot::Batch(_) = first {
            return Err(Error::damaged(
                &segment.name,
                SEGMENT_HEAD_BYTES as u64,
                format!(
                    "{}, and a whole batch stands behind it: {WAY_OUT}",
                    reason.unwrap_or("the segment's start is zeros")
                ),
            ));
        }
        let is_clean = self.stop.as_ref().is_none_or(|stop| stop.bad.is_none());
        let follows = segment.id == self.end.segment() + 1 || self.stop.is_none();
        if is_clean && follows && (reason.is_some() || self.stop.is_none()) {
            // The name of this file says more than the clean end of the one in front of it.
            let is_damaged = matches!(&first, Spot::Bad(bad) if !bad.can_be_torn);
            self.stop = Some(Halted {
                file: segment.name.clone(),
                offset: SEGMENT_HEAD_BYTES,
                bad: reason.map(|reason| Bad {
                    reason: reason.to_owned(),
                    can_be_torn: !is_damaged,
                }),
            });
        }
        Ok(false)
    }

    fn visit_batches(
        &mut self,
        segment: &Segment,
        visit: &mut impl FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<usize> {
        let mut batches = segment.batches_salted(self.salt);
        for batch in &mut batches {
            self.attested = self.attested.max(batch.synced_upto);
            self.hlc_ceiling = self.hlc_ceiling.max(batch.hlc_ceiling);
            if batch.is_end {
                self.goes_on_in = segment.id + 1;
            }
            self.batches += 1;
            self.records += u64::from(batch.count);
            for record in batch.records() {
                visit(record.map_err(|reason| {
                    Error::damaged(&segment.name, batch.offset as u64, reason)
                })?)?;
            }
            self.end = batch.end_lsn;
        }
        let at = batches.at;
        let bad = match segment.spot_at(at, self.salt) {
            Spot::Bad(bad) => Some(bad),
            Spot::Batch(_) | Spot::Zeros | Spot::EndOfFile => None,
        };
        self.stop = Some(Halted {
            file: segment.name.clone(),
            offset: at,
            bad,
        });
        Ok(at)
    }

    /// Reads only the heads behind a bad spot. A valid head vouches for its length, so that the
    /// records behind it are skipped and not taken for heads.
    fn attest_behind(&mut self, segment: &Segment, from: usize) {
        let mut at = from;
        while at + BATCH_HEAD_BYTES <= segment.bytes.len() {
            let lsn = Lsn::new(segment.id, at);
            at += BATCH_HEAD_BYTES;
            if let Some(head) =
                BatchHead::decode(&segment.bytes[at - BATCH_HEAD_BYTES..], self.salt, lsn)
            {
                self.attested = self.attested.max(head.synced_upto);
                self.hlc_ceiling = self.hlc_ceiling.max(head.hlc_ceiling);
                if head.mark == BatchMark::End {
                    self.goes_on_in = segment.id + 1;
                }
                at = at.saturating_add(padded(head.body_len as usize));
            }
        }
    }

    fn finish(self, next_segment: u64, segments: u64) -> Result<Recovery> {
        if let Some(stop) = &self.stop
            && self.attested > self.end
        {
            return Err(Error::damaged(
                &stop.file,
                stop.offset as u64,
                format!(
                    "{}, but the log says that everything up to {} was synced: acknowledged writes are lost here; {WAY_OUT}",
                    stop.bad
                        .as_ref()
                        .map_or("the log ends in zeros", |bad| &bad.reason),
                    self.attested
                ),
            ));
        }
        if let Some(Halted {
            file,
            offset,
            bad: Some(bad),
        }) = &self.stop
            && !bad.can_be_torn
        {
            return Err(Error::damaged(
                file,
                *offset as u64,
                format!(
                    "{}, and no part of it is missing, so that this is no write that a crash cut short: acknowledged writes may be lost here; {WAY_OUT}",
                    bad.reason
                ),
            ));
        }
        let tail = match self.stop {
            Some(Halted {
                file,
                offset,
                bad: Some(bad),
            }) => Tail::Torn {
                file,
                offset: offset as u64,
                reason: bad.reason,
            },
            _ => Tail::Clean,
        };
        Ok(Recovery {
            end: self.end,
            next_segment,
            hlc_ceiling: self.hlc_ceiling,
            batches: self.batches,
            records: self.records,
            segments,
            tail,
        })
    }
}

const BRING_BACK: &str =
    "bring the file back, or restore the folder from a backup or from its replicas";
const WAY_OUT: &str = "restore the folder from a backup or from its replicas (`dendra dump` shows what can still be read)";

/// The bytes of one segment, in memory.
pub struct Segment {
    id: u64,
    name: String,
    /// Bytes of the file, without those behind the length in its head.
    bytes: Vec<u8>,
}

impl Segment {
    /// Reads the segment with this id.
    pub fn read(vfs: &dyn Vfs, id: u64) -> Result<Segment> {
        let name = segment_name(id);
        let bytes = read_whole(vfs, &name)?;
        Segment::from_bytes(id, bytes)
    }

    /// A segment whose bytes came from elsewhere.
    pub fn from_bytes(id: u64, mut bytes: Vec<u8>) -> Result<Segment> {
        let name = segment_name(id);
        if let Ok(head) = SegmentHead::decode(&bytes, id) {
            bytes.truncate(usize::try_from(head.bytes).unwrap_or(usize::MAX));
        }
        if bytes.len() > u32::MAX as usize {
            return Err(Error::damaged(
                name,
                u64::from(u32::MAX),
                format!("{} bytes are more than a segment can have", bytes.len()),
            ));
        }
        Ok(Segment { id, name, bytes })
    }

    /// Batches of the segment, checked with the salt in its own head. Without a valid head and
    /// start there are none, and the end says why.
    pub fn batches(&self) -> Batches<'_> {
        let (salt, end) = match self.head() {
            Ok(head) => match self.start(head.salt) {
                Ok(_) => return self.batches_salted(head.salt),
                Err(NotAStart::Zeros) => (head.salt, SegmentEnd::Zeros),
                Err(NotAStart::Bad) => {
                    let reason = "the segment's start does not match its checksum".to_owned();
                    (head.salt, SegmentEnd::Bad { reason })
                }
            },
            Err(NoHead::Bad { reason }) => (0, SegmentEnd::Bad { reason }),
            Err(NoHead::Newer { format }) => {
                let reason = self.too_new(format).to_string();
                (0, SegmentEnd::Bad { reason })
            }
        };
        Batches {
            segment: self,
            salt,
            at: 0,
            end: Some(end),
        }
    }

    fn batches_salted(&self, salt: u64) -> Batches<'_> {
        Batches {
            segment: self,
            salt,
            at: FIRST_BATCH_AT,
            end: None,
        }
    }

    fn head(&self) -> std::result::Result<SegmentHead, NoHead> {
        SegmentHead::decode(&self.bytes, self.id)
    }

    fn start(&self, salt: u64) -> std::result::Result<SegmentStart, NotAStart> {
        let behind = self.bytes.get(SEGMENT_HEAD_BYTES..).unwrap_or_default();
        SegmentStart::decode(behind, salt, self.id)
    }

    /// The head of a file that is a whole segment: it has a head, and the length that this names.
    pub(super) fn checked_head(&self) -> Result<SegmentHead> {
        let len = self.bytes.len() as u64;
        match self.head() {
            Ok(head) if len >= head.bytes && len >= SEGMENT_BYTES_MIN as u64 => Ok(head),
            Ok(head) => Err(Error::damaged(&self.name, len, cut(len, head.bytes))),
            Err(NoHead::Newer { format }) => Err(self.too_new(format)),
            Err(NoHead::Bad { reason }) => {
                let reason = format!("{reason}; {WAY_OUT}");
                Err(Error::damaged(&self.name, 0, reason))
            }
        }
    }

    /// A head, and zeros to the end?
    pub(super) fn is_unused(&self) -> bool {
        self.checked_head().is_ok() && self.bytes[SEGMENT_HEAD_BYTES..].iter().all(|&b| b == 0)
    }

    fn too_new(&self, format: u32) -> Error {
        Error::Unusable {
            reason: format!(
                "{} has log format {format}, this program reads up to {}: start the newer program that wrote it",
                self.name,
                super::FORMAT
            ),
        }
    }

    /// Spots in front of `synced` at which neither a batch stands nor this segment has ended.
    fn damaged_spots(&self, salt: u64, synced: Lsn) -> Vec<(u64, String)> {
        let mut spots = Vec::new();
        if let Err(Error::Damaged { offset, reason, .. }) = self.checked_head() {
            spots.push((offset, reason));
        } else if let Err(NotAStart::Bad) = self.start(salt) {
            let reason = "the segment's start does not match its checksum".to_owned();
            spots.push((SEGMENT_HEAD_BYTES as u64, reason));
        }
        let mut at = FIRST_BATCH_AT;
        loop {
            let is_attested = Lsn::new(self.id, at) < synced;
            let reason = match self.spot_at(at, salt) {
                Spot::Batch(batch) => {
                    at = usize::try_from(batch.end_lsn.offset()).expect("32 bits fit");
                    continue;
                }
                Spot::EndOfFile => break,
                Spot::Bad(bad) if is_attested || !bad.can_be_torn => bad.reason,
                Spot::Bad(_) | Spot::Zeros if !is_attested => break,
                Spot::Bad(bad) => bad.reason,
                Spot::Zeros => format!("no batch starts at byte {at}, there are zeros"),
            };
            // Zeros up to the end are room that was never used: the next segment goes on.
            let Some(next) = self.head_behind(at, salt) else {
                if self.bytes[at..].iter().any(|&b| b != 0) {
                    spots.push((at as u64, reason));
                }
                break;
            };
            spots.push((at as u64, reason));
            at = next;
        }
        spots
    }

    /// The next place after `at` where the head of a batch stands.
    fn head_behind(&self, at: usize, salt: u64) -> Option<usize> {
        let starts = (at + BATCH_HEAD_BYTES..self.bytes.len()).step_by(BATCH_HEAD_BYTES);
        starts.into_iter().find(|&start| {
            BatchHead::decode(&self.bytes[start..], salt, Lsn::new(self.id, start)).is_some()
        })
    }

    /// The item at `offset`.
    fn spot_at(&self, offset: usize, salt: u64) -> Spot<'_> {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        if rest.is_empty() {
            return Spot::EndOfFile;
        }
        let lsn = Lsn::new(self.id, offset);
        let Some(head) = BatchHead::decode(rest, salt, lsn) else {
            let head_len = rest.len().min(BATCH_HEAD_BYTES);
            if rest[..head_len].iter().all(|&b| b == 0) {
                return Spot::Zeros;
            }
            let reason = format!("no batch starts at byte {offset}");
            // A head lies in one sector, and a sector is written whole or not at all. Without
            // records behind it, it was a seal, or the batch was cut short right behind its head:
            // no record is lost with it.
            let behind = rest.get(head_len..).unwrap_or_default();
            let has_records = behind.iter().take(RECORD_HEAD_BYTES).any(|&b| b != 0);
            return Spot::Bad(if has_records {
                Bad::damaged(reason)
            } else {
                Bad::torn(reason)
            });
        };
        let body_len = head.body_len as usize;
        let Some(body) = rest[BATCH_HEAD_BYTES..].get(..body_len) else {
            return Spot::Bad(Bad::damaged(format!(
                "a batch of {body_len} bytes is announced, the file has {} left",
                rest.len() - BATCH_HEAD_BYTES
            )));
        };
        let found = seeded_crc(salt, lsn, body);
        if found != head.body_crc {
            let reason = format!(
                "the checksum of {body_len} bytes of records is {found:08x}, written was {:08x}",
                head.body_crc
            );
            return Spot::Bad(Bad {
                reason,
                can_be_torn: lacks_a_part(body, offset + BATCH_HEAD_BYTES),
            });
        }
        let next = (offset + BATCH_HEAD_BYTES + padded(body_len)).min(self.bytes.len());
        Spot::Batch(BatchView {
            offset,
            lsn,
            end_lsn: Lsn::new(self.id, next),
            synced_upto: head.synced_upto,
            hlc_ceiling: head.hlc_ceiling,
            count: head.records,
            is_end: head.mark == BatchMark::End,
            body,
        })
    }
}

enum Spot<'a> {
    Batch(BatchView<'a>),
    Zeros,
    EndOfFile,
    Bad(Bad),
}

/// Is a part of `body`, which starts at `offset` in its file, missing? Segments are zero-filled and
/// written once, so a part that did not reach the disk is zeros. It is a sector's whole share of
/// the body, or its end after a call that failed.
fn lacks_a_part(body: &[u8], offset: usize) -> bool {
    let first = body.len().min(SECTOR_BYTES - offset % SECTOR_BYTES);
    let (first, rest) = body.split_at(first);
    let is_zeros = |part: &[u8]| part.iter().all(|&b| b == 0);
    body.last() == Some(&0) || is_zeros(first) || rest.chunks(SECTOR_BYTES).any(is_zeros)
}

/// One batch that was read back; its checksum holds.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    /// Where it starts in its segment, in bytes.
    pub offset: usize,
    /// Position of the batch in the log.
    pub lsn: Lsn,
    /// Where the next batch starts.
    pub end_lsn: Lsn,
    /// Everything in front of this was durable when the batch was written.
    pub synced_upto: Lsn,
    /// The clock promised not to be exceeded.
    pub hlc_ceiling: u64,
    /// Number of records; 0 for a seal.
    pub count: u32,
    /// The log goes on in the next segment.
    pub is_end: bool,
    /// The records' bytes.
    pub body: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The records in order. An error says why the bytes are not `count` records; it comes last.
    pub fn records(
        &self,
    ) -> impl Iterator<Item = std::result::Result<LogRecord<'a>, String>> + use<'a> {
        let (mut rest, mut left, count) = (self.body, self.count, self.count);
        let mut has_failed = false;
        std::iter::from_fn(move || {
            if has_failed || (left == 0 && rest.is_empty()) {
                return None;
            }
            match LogRecord::split(rest).filter(|_| left > 0) {
                Some((record, behind)) => {
                    (rest, left) = (behind, left - 1);
                    Some(Ok(record))
                }
                None => {
                    has_failed = true;
                    Some(Err(format!(
                        "a batch of {count} records has a valid checksum, but {left} records are missing with {} bytes left: this is a bug, keep the file and report it",
                        rest.len()
                    )))
                }
            }
        })
    }
}

/// Why a segment has no further batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentEnd {
    /// The rest was never used, as far as its first bytes tell.
    Zeros,
    /// The file ends.
    EndOfFile,
    /// Neither a batch nor zeros.
    Bad {
        /// The expected bytes and the found ones, as a sentence.
        reason: String,
    },
}

/// The batches of one segment, up to the first spot that is none.
pub struct Batches<'a> {
    segment: &'a Segment,
    salt: u64,
    at: usize,
    end: Option<SegmentEnd>,
}

impl Batches<'_> {
    /// Where the next batch would start, in bytes.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Why the iteration ended. Requires: `next` returned `None`.
    pub fn end(self) -> SegmentEnd {
        self.end.expect("asked after the last batch")
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = BatchView<'a>;

    fn next(&mut self) -> Option<BatchView<'a>> {
        if self.end.is_some() {
            return None;
        }
        let end = match self.segment.spot_at(self.at, self.salt) {
            Spot::Batch(batch) => {
                self.at = usize::try_from(batch.end_lsn.offset()).expect("32 bits fit");
                return Some(batch);
            }
            Spot::Zeros => SegmentEnd::Zeros,
            Spot::EndOfFile => match self.segment.checked_head() {
                Err(Error::Damaged { reason, .. }) => SegmentEnd::Bad { reason },
                _ => SegmentEnd::EndOfFile,
            },
            Spot::Bad(bad) => SegmentEnd::Bad { reason: bad.reason },
        };
        self.end = Some(end);
        None
    }
}

fn cut(found: u64, expected: u64) -> String {
    format!(
        "the file has {found} bytes, and this log segment has {expected} from its first moment: it was cut; {WAY_OUT}"
    )
}

fn read_whole(vfs: &dyn Vfs, name: &str) -> Result<Vec<u8>> {
    let read = || {
        let file = vfs.open(name)?;
        let len = usize::try_from(file.len()?).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; len];
        vfs::read_exact_at(&*file, &mut bytes, 0, Wait::Block)?;
        Ok(bytes)
    };
    read().map_err(|e: std::io::Error| Error::io(format!("read {name}"), e))
}
