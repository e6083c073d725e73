//! One member's copies: answers to questions of peers, and of the own coordinator.
//!
//! ```text
//! Clock            the hybrid clock, at once
//! Foreground       the rounds of this member's clients, at once
//! Changes          feed.rs: the last writes, at once or when there are some
//! Read             Effect::Read  ─► Cell | Same
//! Write            Effect::Write ─► Written, once this or a newer version is durable
//! Page             Effect::Page  ─► Page
//! Compare, List    ranges.rs: Effect::Survey ─► Compared │ Effect::Page ─► Listed
//! Prepare, Accept  protocol.rs: record ─► stored cell ─► guarded write ─► Promised | Accepted | Outbid
//! ```
//!
//! Invariants
//! 1. Each answer tells only durable state, and a refusal is no statement about the key.
//! 2. A question is refused before any work if it is of another cluster or an older topology. So it
//!    is if its time is over, or if this member does not own the key.
//! 3. A cell of a peer that is longer than this member keeps, or that fails its checksum, is
//!    refused.
//! 4. The clock is not below any version that is stored here. It observes a version before the
//!    store gets it, even one far ahead of the wall clock. No version is refused for its time.
//!
//! Not here: which answers are enough (`coordinator/`), the store itself (the world).
//! See: docs/protocol.md.

pub(crate) mod feed;
pub(crate) mod job;
pub(crate) mod protocol;
pub(crate) mod ranges;
pub(crate) mod record;

use crate::desk::{Desk, EarlyAsk, Order, Turn, refused};
use crate::limits::SCAN_PAGE_BYTES_MAX;
use crate::plausible;
use crate::purpose::{Purpose, Recipient, Requester};
use crate::step::{Asker, Effect, Paged, StoreFailure, StoreOutcome};
use bytes::Bytes;
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_base::peer::{Answer, Ask, Range, Refused, Stamp};
use dendra_base::{Cell, CellId, Guard, Key};
use dendra_ownership::ring::Partition;
use dendra_watch::{FeedQuestion, Span};
use job::ProtocolQuestion;

/// A peer asks.
pub(crate) fn asked(desk: &mut Desk, turn: &mut Turn<'_>, asker: Asker, stamp: Stamp, ask: Ask) {
    let requester = Requester {
        to: Recipient::Peer(asker),
        epoch: stamp.epoch,
        partition: partition(desk, &ask),
    };
    if !plausible::is_ask(&ask) {
        desk.reply(turn, requester, Answer::Refused(Refused::ClockApart));
        return;
    }
    let deadline_us = turn.now.mono_us + u64::from(stamp.left_ms) * 1_000;
    match check(desk, requester, stamp, &ask) {
        Ok(()) => begin(desk, turn, requester, ask, deadline_us),
        // The asker knows a later epoch, in which this member may be an owner.
        Err(Refused::NotOwner | Refused::Stale { .. }) if stamp.epoch > desk.layout.epoch() => {
            desk.learn(turn, asker.member, stamp.epoch);
            let early = EarlyAsk {
                asker,
                stamp,
                ask,
                due_us: deadline_us,
            };
            if desk.keep_early(early).is_some() {
                desk.reply(turn, requester, Answer::Refused(Refused::Busy));
            }
        }
        Err(why) => desk.reply(turn, requester, Answer::Refused(why)),
    }
}

/// A machine of this node asks its own member.
pub(crate) fn asked_by_own(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    purpose: Purpose,
    ask: Ask,
    deadline_us: u64,
) {
    let requester = Requester {
        to: Recipient::Own(purpose),
        epoch: desk.layout.epoch(),
        partition: partition(desk, &ask),
    };
    match desk.stale(requester.epoch, requester.partition) {
        Some(why) => desk.reply(turn, requester, Answer::Refused(why)),
        None => begin(desk, turn, requester, ask, deadline_us),
    }
}

/// The partition of the question's key; `None` = it is about all.
fn partition(desk: &Desk, ask: &Ask) -> Option<Partition> {
    match ask {
        Ask::Read { key, .. }
        | Ask::Write { key, .. }
        | Ask::Prepare { key, .. }
        | Ask::Accept { key, .. } => Some(desk.ring().partition(key)),
        Ask::Clock
        | Ask::Page { .. }
        | Ask::Load { .. }
        | Ask::Compare { .. }
        | Ask::List { .. }
        | Ask::Foreground
        | Ask::Changes { .. } => None,
    }
}

/// May this question be answered here?
fn check(desk: &Desk, requester: Requester, stamp: Stamp, ask: &Ask) -> Result<(), Refused> {
    if stamp.cluster != desk.topology.id() {
        return Err(Refused::Foreign);
    }
    if let Some(why) = desk.stale(stamp.epoch, requester.partition) {
        return Err(why);
    }
    if stamp.left_ms == 0 {
        return Err(Refused::Late);
    }
    if !desk.has_room() {
        return Err(Refused::Busy);
    }
    let copies = desk.topology.copies();
    let owns = |held: u8| {
        let partition = requester.partition;
        partition.is_some_and(|partition| desk.layout.owns(desk.me, partition, held))
    };
    let is_owner = match ask {
        // A read may be as wide as the cluster, and a member that holds nothing says so.
        Ask::Clock | Ask::Read { .. } | Ask::Page { .. } | Ask::Foreground => true,
        Ask::Write { cell, .. } => owns(copies.max(desk.layout.copies_of(&cell.as_ref()))),
        Ask::Prepare { .. } | Ask::Accept { .. } => owns(copies),
        // A read behind the fence has all writes that were confirmed in front of it.
        Ask::Load { .. } => desk.fence.epoch() >= stamp.epoch,
        // Both know the same owners, or they do not compare.
        Ask::Compare { .. } | Ask::List { .. } if stamp.epoch != desk.layout.epoch() => {
            let epoch = desk.fence.epoch();
            return Err(Refused::Stale { epoch });
        }
        Ask::Compare { .. } | Ask::List { .. } => true,
        // As for `Load`: the watch counts all changes in front of its epoch as told.
        Ask::Changes { .. } => desk.fence.epoch() >= stamp.epoch,
    };
    if !is_owner {
        return Err(Refused::NotOwner);
    }
    match ask {
        Ask::Write { key, cell } if !is_fit(desk, key, cell) => Err(Refused::Unfit),
        Ask::Accept { key, proposal } if !is_fit(desk, key, &proposal.cell) => Err(Refused::Unfit),
        _ => Ok(()),
    }
}

/// May this cell be stored? Its maker has looked, but this is another process, with a bound of its
/// own.
pub(crate) fn is_fit(desk: &Desk, key: &[u8], cell: &Cell) -> bool {
    let stored_key = Key::user(key);
    cell.value.len() <= desk.value_bytes_max && cell.as_ref().is_intact(stored_key.as_stored())
}

/// Begins to answer a question that may be answered.
pub(crate) fn begin(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    ask: Ask,
    deadline_us: u64,
) {
    match ask {
        Ask::Clock => {
            let answer = desk.clock(turn);
            desk.reply(turn, requester, answer);
        }
        Ask::Foreground => {
            let answer = Answer::Foreground(desk.foreground.sum());
            desk.reply(turn, requester, answer);
        }
        Ask::Changes {
            cursor,
            start,
            end,
            waits,
        } => {
            let question = FeedQuestion {
                cursor,
                span: Span { start, end },
                waits,
            };
            feed::asked(desk, turn, requester, question);
        }
        Ask::Read { key, known } => {
            let order = Order::Read { requester, known };
            desk.read(turn, order, Key::user(&key), deadline_us);
        }
        Ask::Write { key, cell } => {
            desk.follow(cell.version.hlc);
            let order = Order::Write { requester };
            desk.write(turn, order, Key::user(&key), cell, Guard::Newest);
        }
        Ask::Prepare { key, ballot } => {
            let question = ProtocolQuestion::Prepare { ballot };
            protocol::begin(desk, turn, requester, key, question, deadline_us);
        }
        Ask::Accept { key, proposal } => {
            let question = ProtocolQuestion::Accept { proposal };
            protocol::begin(desk, turn, requester, key, question, deadline_us);
        }
        Ask::Page { range, bytes } => page(desk, turn, requester, range, bytes, deadline_us),
        Ask::Load {
            space,
            start,
            partitions,
            bytes,
        } => {
            let start = Key::new(space, &start);
            load_page(desk, turn, requester, start, partitions, bytes, deadline_us);
        }
        Ask::Compare {
            space,
            start,
            ranges,
            now_ms,
        } => {
            let start = Key::new(space, &start);
            ranges::compare(desk, turn, requester, start, ranges, now_ms, deadline_us);
        }
        Ask::List {
            space,
            start,
            end,
            bytes,
        } => {
            let start = Key::new(space, &start);
            let end = end.map(|end| Key::new(space, &end));
            ranges::list(desk, turn, requester, start, end, bytes, deadline_us);
        }
    }
}

/// Begins to read a part of a range.
fn page(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    range: Range,
    bytes: u32,
    deadline_us: u64,
) {
    let first = Key::user(&range.start);
    let (start, end) = if range.is_reverse {
        // No key of a client is as long: the walk begins below the end of the space.
        let last = || Key::user(&[0xff; KEY_BYTES_MAX + 1]);
        let from = range.end.as_ref().map_or_else(last, |end| Key::user(end));
        (from, Some(first))
    } else {
        (first, range.end.as_ref().map(|end| Key::user(end)))
    };
    let is_reverse = range.is_reverse;
    let ticket = desk.order(Order::Page { requester, range });
    turn.effects.push(Effect::Page {
        ticket,
        start,
        end,
        is_reverse,
        bytes: bytes.min(SCAN_PAGE_BYTES_MAX),
        deadline_us,
    });
}

/// Begins to read a part of a space for a new owner.
fn load_page(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    start: Key,
    partitions: Bytes,
    bytes: u32,
    deadline_us: u64,
) {
    let ticket = desk.order(Order::LoadPage {
        requester,
        partitions,
    });
    turn.effects.push(Effect::Page {
        ticket,
        start,
        end: None,
        is_reverse: false,
        bytes: bytes.min(SCAN_PAGE_BYTES_MAX),
        deadline_us,
    });
}

/// The store read a part of a space for a new owner: it gets the records of its partitions.
pub(crate) fn load_paged(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    partitions: &Bytes,
    result: Paged,
) {
    let answer = match result {
        Err(failure) => Answer::Refused(refused(failure)),
        Ok((cells, next)) => {
            let raw = |key: &Key| Bytes::copy_from_slice(key.raw());
            let is_wanted = |key: &Key| {
                let partition = desk.ring().partition(key.raw()).at();
                let byte = partitions.get(partition / 8).copied().unwrap_or(0);
                byte >> (partition % 8) & 1 == 1
            };
            let wanted = cells.into_iter().filter(|(key, _)| is_wanted(key));
            Answer::Loaded {
                records: wanted.map(|(key, cell)| (raw(&key), cell)).collect(),
                next: next.as_ref().map(raw),
            }
        }
    };
    desk.reply(turn, requester, answer);
}

/// The store read a part of a range.
pub(crate) fn paged(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    range: Range,
    result: Paged,
) {
    let answer = match result {
        Err(failure) => Answer::Refused(refused(failure)),
        Ok((cells, next)) => {
            let raw = |key: &Key| Bytes::copy_from_slice(key.raw());
            let record = |(key, mut cell): (Key, Cell)| {
                if range.is_keys_only {
                    cell.value = Bytes::new();
                }
                (raw(&key), cell)
            };
            let cells = cells.into_iter();
            let kept = cells.filter(|(key, cell)| {
                desk.layout.narrowing().given_back().is_none()
                    || !is_given_back(desk, desk.ring().partition(key.raw()), cell)
            });
            let records = kept.map(record).collect();
            let rest = next.map(|next| {
                if range.is_reverse {
                    Range {
                        end: Some(raw(&next)),
                        ..range.clone()
                    }
                } else {
                    Range {
                        start: raw(&next),
                        ..range.clone()
                    }
                }
            });
            Answer::Page { records, rest }
        }
    };
    desk.reply(turn, requester, answer);
}

/// Is this a copy that no reader sees any more? It may be older than a delete which is gone: the
/// drop of such copies takes one table after the other.
fn is_given_back(desk: &Desk, partition: Partition, cell: &Cell) -> bool {
    desk.layout.gives_back(desk.me, partition, &cell.as_ref())
}

/// The store read a copy.
pub(crate) fn read(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    known: Option<CellId>,
    result: Result<Option<Cell>, StoreFailure>,
) {
    let is_kept = |cell: &Cell| {
        let partition = requester.partition;
        !partition.is_some_and(|partition| is_given_back(desk, partition, cell))
    };
    let result = result.map(|cell| cell.filter(is_kept));
    let answer = match result {
        Err(failure) => Answer::Refused(refused(failure)),
        Ok(Some(cell)) if known == Some(cell.id()) => Answer::Same,
        Ok(cell) => Answer::Cell(cell),
    };
    desk.reply(turn, requester, answer);
}

/// The store wrote a copy.
pub(crate) fn wrote(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    result: Result<StoreOutcome, StoreFailure>,
) {
    let answer = match result {
        Ok(StoreOutcome::Applied { version }) => Answer::Written(version),
        // Cannot be: the write had no condition. If it is, the copy is not there.
        Ok(StoreOutcome::GuardFailed { .. }) => Answer::Refused(Refused::Busy),
        Err(failure) => Answer::Refused(refused(failure)),
    };
    desk.reply(turn, requester, answer);
}
