//! Writing the log: one append is one write, and a failure is final.
//!
//! ```text
//!   durable            written          free                  kept for a seal and the end mark
//!   ───────────────────┬────────────────┬─────────────────────┬───────────
//!                 synced_lsn          end_lsn               room() = 0
//! ```
//!
//! Invariants
//! 1. `synced_lsn <= end_lsn`; it moves only after a sync that began when those bytes were written.
//! 2. After the first error every later call fails: the state of the disk is unknown.
//! 3. A roll writes an end mark, and so leaves its file dirty: it is synced before the current one.
//! 4. A write ends where a page ends, with zeros behind the batch. So a page that the system's
//!    cache lacks is replaced whole. To change a part of it, the system would have to read it
//!    first, and the append would wait for the disk.
//!
//! Not here: group commit, and the choice between syncing inline and elsewhere (`engine.rs`).

use super::{
    BATCH_HEAD_BYTES, BatchHead, BatchMark, FIRST_BATCH_AT, Lsn, SegmentHead, SegmentStart, Spare,
    padded, seeded_crc, segment_name,
};
use crate::vfs::File;
use crate::{Error, Result};
use std::io;
use std::sync::Arc;

/// The unit that the system's cache holds or lacks as a whole. Where pages are larger, the first
/// write to a page that was dropped from the cache waits for the disk. There is no other
/// difference.
pub(crate) const PAGE_BYTES: usize = 4 << 10;

/// Where a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where it starts.
    pub lsn: Lsn,
    /// Where the next one will start; durable once `synced_lsn` is here.
    pub end_lsn: Lsn,
    /// Bytes written to the file: head and records.
    pub bytes: usize,
}

/// The log's end, in the one process that owns the folder.
pub struct LogWriter {
    head: SegmentHead,
    file: Arc<dyn File>,
    capacity: usize,
    /// Offset at which the next batch starts.
    at: usize,
    /// End of the last batch that holds records.
    data_end: Lsn,
    /// `synced_upto` in the last head that was written.
    attested: Lsn,
    synced: Lsn,
    hlc_ceiling: u64,
    /// Earlier segments with unsynced bytes, oldest first.
    dirty: Vec<(u64, Arc<dyn File>)>,
    buffer: Vec<u8>,
    failure: Option<String>,
}

/// A sync that can run without holding the writer.
pub struct Unsynced {
    files: Vec<(u64, Arc<dyn File>)>,
    upto: Lsn,
}

impl Unsynced {
    /// Runs the sync. Hand the result to [`LogWriter::finish_sync`], error or not.
    pub fn run(&self) -> Result<()> {
        for (segment, file) in &self.files {
            file.sync()
                .map_err(|e| Error::io(format!("sync {}", segment_name(*segment)), e))?;
        }
        Ok(())
    }

    /// The end of the part that is durable when it succeeds.
    pub fn upto(&self) -> Lsn {
        self.upto
    }
}

impl LogWriter {
    /// Takes `spare` into use as the first segment of this process.
    ///
    /// `previous_end` is `Recovery::end`: everything before it is durable elsewhere or torn.
    /// `hlc_ceiling` is the promise of the next heads.
    pub fn start(spare: Spare, previous_end: Lsn, hlc_ceiling: u64) -> Result<LogWriter> {
        let mut writer = LogWriter {
            head: spare.head,
            file: spare.file,
            capacity: spare.capacity,
            at: FIRST_BATCH_AT,
            data_end: previous_end,
            attested: previous_end,
            synced: previous_end,
            hlc_ceiling,
            dirty: Vec::new(),
            buffer: Vec::new(),
            failure: None,
        };
        writer.write_start(previous_end)?;
        Ok(writer)
    }

    /// Goes on in `spare`. Its id must follow the current one. The next sync also syncs the
    /// unsynced part of the old segment, which holds its end mark at least.
    pub fn roll(&mut self, spare: Spare) -> Result<()> {
        assert_eq!(
            spare.segment(),
            self.segment() + 1,
            "segments are used in the order of their ids"
        );
        self.write_batch(&[], 0, BatchMark::End)?;
        let previous_end = self.end_lsn();
        let old = std::mem::replace(&mut self.file, spare.file);
        self.dirty.push((self.segment(), old));
        self.head = spare.head;
        self.capacity = spare.capacity;
        self.at = FIRST_BATCH_AT;
        self.write_start(previous_end)
    }

    /// Appends one batch of `count` records with one write. Not durable before a sync.
    ///
    /// Requires: `records.len() <= self.room()`, at least one record.
    pub fn append(&mut self, records: &[u8], count: u32, hlc_ceiling: u64) -> Result<Appended> {
        assert!(count > 0, "a batch without records is a seal");
        assert!(
            records.len() <= self.room(),
            "a batch of {} bytes was put into {} bytes of room",
            records.len(),
            self.room()
        );
        self.hlc_ceiling = self.hlc_ceiling.max(hlc_ceiling);
        let appended = self.write_batch(records, count, BatchMark::Plain)?;
        self.data_end = appended.end_lsn;
        Ok(appended)
    }

    /// Bytes of records that still fit the current segment as one batch.
    pub fn room(&self) -> usize {
        // One head for that batch, one for the seal that may follow, one for the end mark.
        self.capacity.saturating_sub(self.at + 3 * BATCH_HEAD_BYTES)
    }

    /// Attests the durable part with an empty batch, so that damage to the last acknowledged batch
    /// is told from a torn tail. When a head attests it already, it writes no batch and returns
    /// `false`. The seal itself is not synced: call `sync` after it.
    pub fn seal(&mut self) -> Result<bool> {
        self.check_sound()?;
        let has_news = self.synced > self.attested && self.attested < self.data_end;
        // The end mark needs a head, too.
        if !has_news || self.at + 2 * BATCH_HEAD_BYTES > self.capacity {
            return Ok(false);
        }
        self.write_batch(&[], 0, BatchMark::Plain)?;
        Ok(true)
    }

    /// Makes everything appended so far durable.
    pub fn sync(&mut self) -> Result<()> {
        let unsynced = self.begin_sync()?;
        let result = unsynced.run();
        self.finish_sync(&unsynced, result)
    }

    /// The part that has to be synced, for a caller that does not hold the writer meanwhile.
    /// Appends may go on; one sync at a time.
    pub fn begin_sync(&mut self) -> Result<Unsynced> {
        self.check_sound()?;
        let mut files = self.dirty.clone();
        files.push((self.segment(), Arc::clone(&self.file)));
        Ok(Unsynced {
            files,
            upto: self.end_lsn(),
        })
    }

    /// Takes note of the result of a sync, and returns it.
    pub fn finish_sync(&mut self, unsynced: &Unsynced, result: Result<()>) -> Result<()> {
        self.check_sound()?;
        match result {
            Ok(()) => {
                self.synced = self.synced.max(unsynced.upto);
                // A segment that was rolled away meanwhile is whole only if the sync saw its end.
                self.dirty
                    .retain(|(segment, _)| *segment >= unsynced.upto.segment());
                Ok(())
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    /// Forgets dirty segments below `segment`: their records are durable in tables, and no record
    /// has to be recovered from them any more.
    pub fn forget_below(&mut self, segment: u64) {
        self.dirty.retain(|(dirty, _)| *dirty >= segment);
    }

    /// Id of the segment in use.
    pub fn segment(&self) -> u64 {
        self.head.segment
    }

    /// Where the next batch will start.
    pub fn end_lsn(&self) -> Lsn {
        Lsn::new(self.segment(), self.at)
    }

    /// Everything in front of this is durable.
    pub fn synced_lsn(&self) -> Lsn {
        self.synced
    }

    /// The largest clock that any head promises not to be exceeded.
    pub fn hlc_ceiling(&self) -> u64 {
        self.hlc_ceiling
    }

    /// Writes the segment's start, and the head in front of it as it is there: pages are written
    /// whole.
    fn write_start(&mut self, previous_end: Lsn) -> Result<()> {
        let start = SegmentStart {
            previous_end,
            synced_upto: self.synced,
        };
        let mut page = self.head.encode().to_vec();
        page.extend_from_slice(&start.encode(self.head.salt, self.segment()));
        page.resize(self.page_end(page.len()), 0);
        let written = self.file.write_at(&page, 0);
        self.attested = self.synced;
        self.note(written, "write the start of")
    }

    fn write_batch(&mut self, records: &[u8], count: u32, mark: BatchMark) -> Result<Appended> {
        self.check_sound()?;
        let (lsn, salt) = (self.end_lsn(), self.head.salt);
        let head = BatchHead {
            body_crc: seeded_crc(salt, lsn, records),
            body_len: u32::try_from(records.len()).expect("a batch fits a segment"),
            records: count,
            mark,
            lsn,
            synced_upto: self.synced,
            hlc_ceiling: self.hlc_ceiling,
        };
        let bytes = BATCH_HEAD_BYTES + records.len();
        let whole = self.page_end(self.at + bytes) - self.at;
        let mut framed = std::mem::take(&mut self.buffer);
        framed.clear();
        // Exactly: its size counts towards the bound of commits.
        framed.reserve_exact(whole);
        framed.extend_from_slice(&head.encode(salt));
        framed.extend_from_slice(records);
        framed.resize(whole, 0);
        let written = self.file.write_at(&framed, lsn.offset());
        self.buffer = framed;
        self.note(written, "append to")?;
        self.at += BATCH_HEAD_BYTES + padded(records.len());
        self.attested = self.synced;
        Ok(Appended {
            lsn,
            end_lsn: self.end_lsn(),
            bytes,
        })
    }

    /// Where the page that ends the first `bytes` of the segment ends.
    fn page_end(&self, bytes: usize) -> usize {
        bytes
            .next_multiple_of(PAGE_BYTES)
            .min(self.capacity)
            .max(bytes)
    }

    fn note(&mut self, written: io::Result<()>, what: &str) -> Result<()> {
        written.map_err(|e| {
            let name = segment_name(self.segment());
            self.poison(Error::io(format!("{what} {name}"), e))
        })
    }

    fn poison(&mut self, error: Error) -> Error {
        self.failure = Some(error.to_string());
        error
    }

    fn check_sound(&self) -> Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned {
                reason: reason.clone(),
            }),
        }
    }
}
