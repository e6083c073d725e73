//! Records of epochs in the folder: read at a start, and for other members that lack them.
//!
//! ```text
//! epoch/1 … epoch/41  [damaged block]  epoch/77 … epoch/80
//!   └ read             └ its end is searched, and each epoch in it tried: a newer table may have it
//! ```
//!
//! Invariants
//! 1. A damaged record, or block, hides no other record. The damaged ones are learnt anew from
//!    other members.
//! 2. A record of a later release is an error and never a gap.
//!
//! Not here: the bytes of a record (crate `ownership`, `epoch/record/`), other notes (`notes.rs`).
//! See: docs/format/notes.md.

use dendra_base::{CellRef, Key, Kind, Space};
use dendra_engine::vfs::Wait;
use dendra_engine::{Cursor, Direction, Engine, Error, Flow, Lookup, Progress, Show};
use dendra_ownership::epoch::record::{BadRecord, EpochRecord};
use dendra_ownership::limits::{EPOCH_PAGE_RECORDS_MAX, HISTORY_ENTRIES_MAX};
use dendra_ownership::membership::identity;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;

/// How much of the folder is looked at per step of a walk.
pub(super) const LOOK_BYTES: usize = 64 << 10;

/// Bits of a clock value below its milliseconds.
const HLC_COUNTER_BITS: u32 = 16;

/// Where the record of an epoch is.
pub(crate) fn key(epoch: u64) -> Key {
    Key::new(Space::Meta, &identity::epoch_key(epoch))
}

/// The newest epochs of the folder that can be read, the newest last. Those after them are learnt
/// anew from the other members. `fence` was the newest at the start before this one.
pub(super) fn newest(engine: &Engine, fence: u64) -> Result<Vec<(EpochRecord, u64)>, EpochsUnread> {
    let first = fence.saturating_sub(HISTORY_ENTRIES_MAX as u64);
    let end = fence + HISTORY_ENTRIES_MAX as u64;
    let bounds = (usize::MAX, HISTORY_ENTRIES_MAX);
    let (found, is_damaged) = around_damage(engine, first, bounds, end)?;
    if is_damaged {
        say_damaged();
    }
    Ok(found.into())
}

/// Epochs from `first` on for another member, as many as one page has; `known` is the newest here.
/// A page of the engine may touch a damaged block after the last of them. The repair of that block
/// may wait for the very plan that the other member votes for once it knows these epochs.
pub(crate) fn to_send(
    engine: &Engine,
    first: u64,
    known: u64,
) -> Result<VecDeque<(EpochRecord, u64)>, EpochsUnread> {
    let most = EPOCH_PAGE_RECORDS_MAX;
    let (found, _) = around_damage(engine, first, (most, most), known + 1)?;
    Ok(found)
}

/// Epochs from `from` on that can be read: the first `most`, and of these about the last `kept`. Is
/// a block damaged that may hold some? Where none after it can be read, each one in front of `end`
/// is tried.
fn around_damage(
    engine: &Engine,
    mut from: u64,
    (most, kept): (usize, usize),
    end: u64,
) -> Result<(VecDeque<(EpochRecord, u64)>, bool), EpochsUnread> {
    let mut found = VecDeque::new();
    let mut is_damaged = false;
    while found.len() < most {
        let bounds = (most - found.len(), kept);
        match read_epochs(engine, &mut from, bounds, &mut found) {
            Ok(()) => break,
            Err(EpochsUnread::Store(Error::Damaged { .. })) => {
                is_damaged = true;
                let behind = behind_damage(engine, from)?;
                // A newer table may hold records between the first and the last key of the block.
                // Behind the newest one the next epoch that can be read may be any number.
                let tried = end.max(from.saturating_add(HISTORY_ENTRIES_MAX as u64));
                let last = behind.map_or(end, |behind| behind.min(tried));
                for epoch in from..last {
                    found.extend(one_epoch(engine, epoch)?);
                }
                let Some(behind) = behind else { break };
                from = behind;
            }
            Err(other) => return Err(other),
        }
    }
    found.truncate(most);
    Ok((found, is_damaged))
}

/// The first epoch from which on the folder can be read again, where the block with epoch `damaged`
/// cannot; `None` = no later one. Old steps of the horizons are dropped, so that the next record
/// may be far away. The stride doubles until a read succeeds. Then the end of the block is searched
/// by halves.
fn behind_damage(engine: &Engine, damaged: u64) -> Result<Option<u64>, EpochsUnread> {
    let is_readable = |from: u64| {
        let mut from = from;
        match read_epochs(engine, &mut from, (1, 1), &mut VecDeque::new()) {
            Ok(()) => Ok(true),
            Err(EpochsUnread::Store(Error::Damaged { .. })) => Ok(false),
            Err(other) => Err(other),
        }
    };
    let (mut low, mut stride) = (damaged, 1u64);
    let mut high = loop {
        let Some(next) = damaged.checked_add(stride) else {
            return Ok(None);
        };
        if is_readable(next)? {
            break next;
        }
        low = next;
        let Some(twice) = stride.checked_mul(2) else {
            return Ok(None);
        };
        stride = twice;
    };
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if is_readable(middle)? {
            high = middle
        } else {
            low = middle
        }
    }
    Ok(Some(high))
}

/// The record of one epoch, if it is there and can be read.
fn one_epoch(engine: &Engine, epoch: u64) -> Result<Option<(EpochRecord, u64)>, EpochsUnread> {
    let key = key(epoch);
    let read = engine.get(key.as_stored(), Wait::Block, |cell| {
        let record = read_epoch(key.as_stored(), &cell)?;
        Ok(record.map(|record| (record, cell.version.hlc >> HLC_COUNTER_BITS)))
    });
    match read {
        Ok(Lookup::Cell(found)) => found.map_err(EpochsUnread::LaterRelease),
        Ok(Lookup::Nothing) | Err(Error::Damaged { .. }) => Ok(None),
        Ok(Lookup::WouldBlock) => unreachable!("a read that may wait does not give up"),
        Err(other) => Err(EpochsUnread::Store(other)),
    }
}

/// Why the epochs of a folder could not be read.
#[derive(Debug)]
pub(crate) enum EpochsUnread {
    /// The engine says so.
    Store(Error),
    /// One of them has the format of a later release: the sentence.
    LaterRelease(String),
}

impl std::error::Error for EpochsUnread {}

impl fmt::Display for EpochsUnread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EpochsUnread::Store(error) => error.fmt(f),
            EpochsUnread::LaterRelease(sentence) => f.write_str(sentence),
        }
    }
}

/// The record of an epoch; `None` where it is damaged, or was dropped.
///
/// # Errors
/// The sentence about a format of a later release.
fn read_epoch(key: &[u8], cell: &CellRef<'_>) -> Result<Option<EpochRecord>, String> {
    if cell.kind == Kind::Tombstone {
        return Ok(None);
    }
    let record = cell.is_intact(key).then(|| EpochRecord::decode(cell.value));
    match record {
        Some(Ok(record)) => Ok(Some(record)),
        Some(Err(bad @ BadRecord::Format { .. })) => Err(bad.to_string()),
        Some(Err(_)) | None => {
            say_damaged();
            Ok(None)
        }
    }
}

fn say_damaged() {
    tracing::error!(
        "records of epochs are damaged: those behind the newest one that can be read are learnt \
         anew from the other members"
    );
}

/// Reads epochs from `from` on, at most `most` of them, and keeps the last `kept`. `from` moves
/// after each one that was read, also when a later one cannot be.
fn read_epochs(
    engine: &Engine,
    from: &mut u64,
    (most, kept): (usize, usize),
    found: &mut VecDeque<(EpochRecord, u64)>,
) -> Result<(), EpochsUnread> {
    let mut after = identity::EPOCH_PREFIX.to_vec();
    if let Some(last) = after.last_mut() {
        *last += 1;
    }
    let mut cursor = Cursor::new(
        Bound::Included(key(*from).as_stored().to_vec()),
        Bound::Excluded(Key::new(Space::Meta, &after).as_stored().to_vec()),
        Direction::Forward,
        Show::All,
    );
    let mut seen = 0;
    let mut later = None;
    let mut progress = Progress::More;
    while progress == Progress::More && seen < most {
        let look = |key: &[u8], cell: CellRef<'_>| {
            seen += 1;
            if let Some(epoch) = key.last_chunk() {
                *from = u64::from_be_bytes(*epoch).saturating_add(1);
            }
            match read_epoch(key, &cell) {
                Ok(Some(record)) => {
                    while found.len() >= kept {
                        found.pop_front();
                    }
                    found.push_back((record, cell.version.hlc >> HLC_COUNTER_BITS));
                }
                Ok(None) => {}
                Err(sentence) => {
                    later = Some(sentence);
                    return Flow::Pause;
                }
            }
            if seen < most {
                Flow::Continue
            } else {
                Flow::Pause
            }
        };
        progress = engine
            .scan(&mut cursor, LOOK_BYTES, look)
            .map_err(EpochsUnread::Store)?;
        if let Some(sentence) = later.take() {
            return Err(EpochsUnread::LaterRelease(sentence));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Version;
    use dendra_engine::vfs::mem::MemVfs;
    use dendra_engine::{Batch, Guard, Identity, Options};
    use dendra_ownership::{Member, Topology};
    use std::sync::Arc;

    fn opened(vfs: &MemVfs) -> Engine {
        let identity = Identity { node: 7, origin: 7 };
        let options = Options::for_memory(16 << 20, 64 << 10);
        Engine::open(Arc::new(vfs.clone()), options, identity).expect("it opens")
    }

    /// The cell is in a table of its own.
    fn put(vfs: &MemVfs, key: &Key, hlc: u64, bytes: &[u8]) {
        let engine = opened(vfs);
        let version = Version {
            hlc,
            ..Version::ZERO
        };
        let cell = CellRef::value(key.as_stored(), version, bytes);
        let mut batch = Batch::new();
        batch
            .push(0, key.as_stored(), &cell, Guard::Newest, 1)
            .expect("the record fits");
        engine.submit(&mut batch).expect("there is room");
        engine.commit(&mut Vec::new()).expect("it is written");
        engine.close(1).expect("it is in a table");
    }

    #[test]
    fn epochs_are_sent_from_a_folder_with_a_damaged_block_of_clients() {
        let vfs = MemVfs::new();
        let members = ["h1:1", "h2:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), 3).expect("two members");
        let first = EpochRecord::founded(&topology);
        put(&vfs, &key(1), 1, &first.encode());
        put(&vfs, &Key::user(b"k"), 2, b"v");
        let names = vfs.names().into_iter();
        let of_clients = names.filter(|name| name.ends_with(".tbl")).max();
        vfs.flip_bit(&of_clients.expect("two tables"), 8 * 4);
        let engine = opened(&vfs);
        let page = read_epochs(&engine, &mut 0, (8, 8), &mut VecDeque::new());
        assert!(matches!(
            page,
            Err(EpochsUnread::Store(Error::Damaged { .. }))
        ));
        let sent = to_send(&engine, 0, 1).expect("the notes are whole");
        let epochs: Vec<u64> = sent.iter().map(|(record, _)| record.epoch()).collect();
        assert_eq!(epochs, [1]);
    }
}
