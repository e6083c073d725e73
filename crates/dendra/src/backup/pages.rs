//! Pages of a restore, as they are made of a backup, and as a member takes them.
//!
//! ```text
//! objects ─► MergedWalk ─► PageSource ─► page, page … ─┬─► sending.rs: to the members
//!                                                      └─► verify.rs: to a PageTaker, which keeps none
//! ```
//!
//! Invariants
//! 1. A verify gets the pages of a restore of the same part, byte for byte.
//! 2. A `PageTaker` refuses each page that a member refuses for its content: it has the same
//!    decoder, and asks for the same clock value and the same beginning.
//!
//! Not here: the merge (`archive.rs`), bytes of pages (crate `wire`), a member's room, owners and
//! settings (crate `server`, `admin/backup.rs`).
//! See: docs/format/backup.md.

use super::archive::{Disagreement, MergedWalk};
use super::repository::Repository;
use bytes::Bytes;
use dendra_archive::manifest::BackupManifest;
use dendra_base::{Cell, Key, Kind};
use dendra_wire::restore::{RestorePage, RestorePageWriter, clock_above};
use dendra_wire::route::is_tokens;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// The records of a backup that come back.
#[derive(Clone, Debug)]
pub(crate) struct RestoredPart {
    /// Prefix of their keys; empty: all.
    pub(crate) prefix: Vec<u8>,
    /// Does the table of tokens come back, too?
    pub(crate) with_tokens: bool,
}

impl RestoredPart {
    /// Names the restore of this part of a backup.
    pub(crate) fn restore_id(&self, manifest: &BackupManifest) -> u128 {
        let mut hash = Xxh3Default::new();
        hash.update(manifest.id.as_bytes());
        hash.update(if self.with_tokens {
            b"\0tokens\0"
        } else {
            b"\0"
        });
        hash.update(&self.prefix);
        hash.digest128()
    }
}

/// One page, and its content.
pub(crate) struct SourcePage {
    pub(crate) number: u64,
    pub(crate) bytes: Bytes,
    pub(crate) position: Vec<u8>,
    /// Records that an earlier round counted are not among these.
    pub(crate) values: u64,
    pub(crate) tombstones: u64,
    pub(crate) counted_bytes: u64,
    /// Keys of the page on which nodes of the backup differ.
    pub(crate) disagreements: Vec<Disagreement>,
}

/// The end of the backup's records.
#[derive(Debug)]
pub(crate) struct SourceEnd {
    /// Where the last page ends.
    pub(crate) position: Vec<u8>,
    /// The backup has a table of tokens, and it is in no page.
    pub(crate) left_tokens_out: bool,
}

/// The pages of one round. Reads the backup: for a thread that may wait.
pub(crate) struct PageSource {
    walk: MergedWalk,
    id: u128,
    hlc: u64,
    with_tokens: bool,
    counted: Vec<u8>,
    /// Number of the next page.
    number: u64,
    behind: Vec<u8>,
    left_tokens_out: bool,
}

impl PageSource {
    /// The pages of a part of a backup, after the key `behind` if it is not empty. Records up to
    /// the key `counted` were counted in an earlier round.
    ///
    /// # Errors
    /// The backup cannot be read: a sentence.
    pub(crate) fn open(
        repository: &Arc<Repository>,
        manifest: &BackupManifest,
        part: &RestoredPart,
        behind: &[u8],
        counted: Vec<u8>,
    ) -> Result<PageSource, String> {
        if manifest.nodes.is_empty() {
            return Err("its manifest names no node".to_owned());
        }
        let walk = MergedWalk::open(repository, manifest, &part.prefix, behind)?;
        Ok(PageSource {
            id: part.restore_id(manifest),
            hlc: manifest.hlc.max(walk.hlc()),
            with_tokens: part.with_tokens,
            counted,
            number: 0,
            behind: behind.to_vec(),
            left_tokens_out: false,
            walk,
        })
    }

    /// The clock value that a restore begins with: no record has a larger one.
    pub(crate) fn hlc(&self) -> u64 {
        self.hlc
    }

    /// Records up to this key were counted in an earlier round.
    pub(crate) fn counted(&self) -> &[u8] {
        &self.counted
    }

    /// The most records that the pages have.
    pub(crate) fn records(&self) -> u64 {
        self.walk.records()
    }

    /// The next page; `None` behind the last one.
    ///
    /// # Errors
    /// The backup cannot be read: a sentence.
    pub(crate) fn next_page(&mut self) -> Result<Option<SourcePage>, String> {
        let mut writer = RestorePageWriter::new(self.id, self.number, &self.behind);
        let (mut values, mut tombstones, mut counted_bytes) = (0, 0, 0);
        let mut disagreements = Vec::new();
        while !writer.is_full() {
            let Some((key, cell)) = self.walk.next()? else {
                break;
            };
            let found = std::mem::take(&mut self.walk.disagreements);
            if !self.with_tokens && is_tokens(Key::user(&key).as_stored()) {
                self.left_tokens_out = true;
                continue;
            }
            disagreements.extend(found);
            if key > self.counted {
                count(&cell, &mut values, &mut tombstones);
                counted_bytes += (key.len() + cell.as_ref().encoded_len()) as u64;
            }
            writer.push(&key, &cell.as_ref());
        }
        if writer.is_empty() {
            return Ok(None);
        }
        self.behind.clear();
        self.behind.extend_from_slice(writer.position());
        self.number += 1;
        Ok(Some(SourcePage {
            number: self.number - 1,
            position: self.behind.clone(),
            bytes: writer.finish(),
            values,
            tombstones,
            counted_bytes,
            disagreements,
        }))
    }

    /// Where the pages that were made end.
    pub(crate) fn end(self) -> SourceEnd {
        SourceEnd {
            position: self.behind,
            left_tokens_out: self.left_tokens_out,
        }
    }
}

fn count(cell: &Cell, values: &mut u64, tombstones: &mut u64) {
    match cell.kind {
        Kind::Value => *values += 1,
        Kind::Tombstone => *tombstones += 1,
    }
}

/// Takes pages as a member does that owns every key, and keeps none.
pub(crate) struct PageTaker {
    id: u128,
    hlc: u64,
    /// Everything up to this key was taken.
    taken: Vec<u8>,
}

impl PageTaker {
    /// A member in which the restore of these pages begins.
    pub(crate) fn of(source: &PageSource) -> PageTaker {
        PageTaker {
            id: source.id,
            hlc: source.hlc,
            taken: source.behind.clone(),
        }
    }

    /// Takes a page, or says why a member refuses it. The next one may come in either case.
    pub(crate) fn take<'a>(&mut self, page: &'a SourcePage) -> Result<RestorePage<'a>, String> {
        let behind = std::mem::replace(&mut self.taken, page.position.clone());
        let read = RestorePage::decode(&page.bytes).map_err(|bad| bad.to_string())?;
        if read.restore != self.id {
            return Err(format!("it is of restore {:032x}", read.restore));
        }
        if read.behind > behind.as_slice() {
            return Err("pages in front of it are missing".to_owned());
        }
        match clock_above(&read.records, self.hlc) {
            None => Ok(read),
            Some(hlc) => Err(format!(
                "a version's clock is {hlc:x}, and a restore begins with {:x} as the largest",
                self.hlc
            )),
        }
    }
}
