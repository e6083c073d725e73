//! A member's answers about ranges that it shares with a peer: fingerprints, and lists.
//!
//! ```text
//! Compare   Effect::Survey of the asker's ranges ─► Compared: which differ
//! List      Effect::Page ─► Listed: the records that both may own, without values
//! ```
//!
//! Invariants
//! 1. Each question is one bounded job of the store, even if the asker wants more:
//!    `COMPARE_ANSWER_BYTES` and `COMPARE_LIST_BYTES`.
//! 2. Asker and owner know the same epoch: they share the same records.
//!
//! Not here: when members compare, and which ranges (`compare/mod.rs`).
//! See: docs/protocol.md, "Comparing copies".

use super::record::Record;
use crate::compare::shared::SharedRecords;
use crate::compare::survey::{RangesBy, Survey, Surveyed};
use crate::desk::{Desk, Order, Turn, refused};
use crate::limits::{COMPARE_ANSWER_BYTES, COMPARE_LIST_BYTES};
use crate::purpose::{Recipient, Requester};
use crate::step::{Effect, Paged, StoreFailure};
use bytes::Bytes;
use dendra_base::peer::{Answer, RangePrint, Refused};
use dendra_base::{Cell, Key, Space};
use std::sync::Arc;

/// The records that this member shares with the peer that asks; a machine of this node does not ask
/// itself.
fn shared(desk: &mut Desk, requester: Requester) -> Option<Arc<SharedRecords>> {
    match requester.to {
        Recipient::Own(_) => None,
        Recipient::Peer(asker) => Some(desk.shared_with(asker.member)),
    }
}

/// Which of these ranges differ?
pub(super) fn compare(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    start: Key,
    ranges: Vec<RangePrint>,
    now_ms: u64,
    deadline_us: u64,
) {
    let Some(last) = ranges.last() else {
        if let Recipient::Peer(asker) = requester.to {
            let epoch = desk.layout.epoch();
            desk.comparisons
                .note_full(asker.member, turn.now.mono_us, epoch);
        }
        let (looked, differing) = (0, Vec::new());
        return desk.reply(turn, requester, Answer::Compared { looked, differing });
    };
    let Some(shared) = shared(desk, requester) else {
        return desk.reply(turn, requester, Answer::Refused(Refused::NotOwner));
    };
    let space = Space::from_byte(start.as_stored()[0]).unwrap_or(Space::User);
    let look = Survey {
        end: last.end.as_ref().map(|end| Key::new(space, end)),
        start,
        shared,
        now_ms,
        by: RangesBy::Ends(ranges.iter().map(|range| range.end.clone()).collect()),
        bytes_max: COMPARE_ANSWER_BYTES,
    };
    let prints = ranges.iter().map(|range| range.print).collect();
    let ticket = desk.order(Order::Survey { requester, prints });
    turn.effects.push(Effect::Survey {
        ticket,
        look: Box::new(look),
        deadline_us,
    });
}

/// The store looked at the ranges of a peer.
pub(crate) fn surveyed(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    prints: &[u64],
    result: Result<Surveyed, StoreFailure>,
) {
    let answer = match result {
        Err(failure) => Answer::Refused(refused(failure)),
        Ok(seen) => {
            desk.comparisons.add_read(seen.bytes);
            desk.comparisons
                .note_strays(&seen.strays, desk.layout.epoch());
            let pairs = (0u16..).zip(prints.iter().zip(&seen.ranges));
            let differing = pairs.filter(|(_, (asked, own))| **asked != own.print);
            let mut differing: Vec<u16> = differing.map(|(at, _)| at).collect();
            let mut looked = u16::try_from(seen.ranges.len()).expect("as many as were asked for");
            if looked == 0 {
                // So much in one range: the asker holds something else.
                differing.push(0);
                looked = 1;
            }
            Answer::Compared { looked, differing }
        }
    };
    desk.reply(turn, requester, answer);
}

/// Lists the records of a range for a peer.
pub(super) fn list(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    start: Key,
    end: Option<Key>,
    bytes: u32,
    deadline_us: u64,
) {
    let Some(shared) = shared(desk, requester) else {
        return desk.reply(turn, requester, Answer::Refused(Refused::NotOwner));
    };
    let ticket = desk.order(Order::ListPage { requester, shared });
    turn.effects.push(Effect::Page {
        ticket,
        start,
        end,
        is_reverse: false,
        bytes: bytes.min(COMPARE_LIST_BYTES),
        deadline_us,
    });
}

/// The store read a part of a range for a peer.
pub(crate) fn listed(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    shared: &SharedRecords,
    result: Paged,
) {
    let answer = match result {
        Err(failure) => Answer::Refused(refused(failure)),
        Ok((cells, next)) => {
            let read = cells.iter().map(|(key, cell)| size(key, cell)).sum();
            desk.comparisons.add_read(read);
            let cells = cells.into_iter();
            let records = cells.filter_map(|(key, cell)| listed_as(shared, &key, cell));
            match records.collect::<Option<Vec<_>>>() {
                Some(records) => Answer::Listed {
                    records,
                    next: next.map(|next| Bytes::copy_from_slice(next.raw())),
                },
                None => Answer::Refused(Refused::Damaged),
            }
        }
    };
    desk.reply(turn, requester, answer);
}

/// Bytes of a key and its cell.
pub(crate) fn size(key: &Key, cell: &Cell) -> u64 {
    (key.as_stored().len() + cell.as_ref().encoded_len()) as u64
}

/// A record as it is listed: `None` = not for this peer, `Some(None)` = not to be read.
fn listed_as(shared: &SharedRecords, key: &Key, mut cell: Cell) -> Option<Option<(Bytes, Cell)>> {
    let raw = Bytes::copy_from_slice(key.raw());
    if !shared.may_have(&raw, shared.copies_of(&cell.as_ref())) {
        return None;
    }
    if key.as_stored()[0] != Space::Protocol.byte() {
        cell.value = Bytes::new();
        return Some(Some((raw, cell)));
    }
    let Some(record) = Record::decode(&cell.value) else {
        return Some(None);
    };
    let bare = Record {
        accepted: None,
        ..record
    };
    let bare = bare.to_cell(key, None, cell.version.origin);
    Some(Some((raw, bare)))
}
