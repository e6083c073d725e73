//! A walk of another member's copies: read page by page, and written to the own store.
//!
//! ```text
//! parts: records of the protocol, records of clients; whole spaces, or a span of keys in each
//! Load(part, start) ─ Loaded ─► LOAD_WRITES_MAX writes at a time ─► all durable ─► the next page
//!   record of the protocol ─► joined with the own one         record of a client ─► newest wins
//! ```
//!
//! Invariants
//! 1. A page is over when each of its records is durable here; a page of which a write failed is
//!    asked for again.
//! 2. One page at a time, `LOAD_WRITES_MAX` writes at a time.
//! 3. No record is written that the source cannot have meant: a cell that fails its checksum, or a
//!    record that cannot be read, ends the walk.
//!
//! Not here: which sources are walked, and when enough are (`loader.rs`, `repair/`), the answers
//! of a source (`replica/`).
//! See: docs/protocol.md, "Changes of members", "Damage".

use crate::desk::{Desk, Order, Turn};
use crate::ledger::NEVER;
use crate::limits::{LOAD_ASK_US, LOAD_WRITES_MAX, REPAIR_PAGE_BYTES};
use crate::plausible;
use crate::purpose::{Purpose, Recipient, Requester, WalkId, Walker};
use crate::replica::job::{IfLost, ProtocolQuestion};
use crate::replica::protocol;
use crate::replica::record::Record;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, Guard, Key, Space};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use std::collections::VecDeque;

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    /// No step yet: an answer or a write is awaited.
    Waits,
    /// The source did not answer, and may do so later.
    Refused,
    /// The source's copies cannot be read.
    Unreadable,
    /// A page is over: `bytes` of it, whole or not. The last one of the walk?
    Page {
        bytes: u64,
        is_whole: bool,
        is_last: bool,
    },
}

/// A source, from the first page to the last.
#[derive(Debug)]
pub(crate) struct SourceWalk {
    pub(crate) id: WalkId,
    pub(crate) source: MemberIndex,
    pub(crate) partitions: Vec<Partition>,
    /// The part under way, from where it goes on, and those after it.
    parts: VecDeque<WalkPart>,
    /// Where the page under way goes on; `None` = it ends the part.
    next: Option<Bytes>,
    /// Records of the page that are not written yet.
    records: Vec<(Bytes, Cell)>,
    /// Records that are being written.
    writing: usize,
    /// A page is asked for.
    is_asking: bool,
    /// When it was asked for.
    asked_us: u64,
    /// How many bytes of the source a page covers.
    page_bytes: u32,
    /// A record of the page could not be written.
    has_failed: bool,
    /// Bytes of the page under way.
    bytes: u64,
}

impl SourceWalk {
    /// A walk that has asked no question yet. Requires: at least one part.
    pub(crate) fn new(
        id: WalkId,
        source: MemberIndex,
        partitions: Vec<Partition>,
        parts: VecDeque<WalkPart>,
    ) -> SourceWalk {
        SourceWalk {
            id,
            source,
            partitions,
            parts,
            next: None,
            records: Vec::new(),
            writing: 0,
            is_asking: false,
            asked_us: 0,
            page_bytes: REPAIR_PAGE_BYTES,
            has_failed: false,
            bytes: 0,
        }
    }

    /// Are records on their way to the store?
    pub(crate) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    /// Is a page under way: asked for, or with records that are not durable yet?
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_asking || self.writing > 0 || !self.records.is_empty()
    }

    /// The part that is not walked yet.
    pub(crate) fn left(&self) -> VecDeque<WalkPart> {
        self.parts.clone()
    }

    /// How many bytes of the source the next pages cover.
    pub(crate) fn set_page_bytes(&mut self, bytes: u32) {
        self.page_bytes = bytes;
    }

    /// When the page under way was asked for.
    pub(crate) fn asked_us(&self) -> u64 {
        self.asked_us
    }

    /// Asks for the next page, unless one is under way.
    pub(crate) fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Walked {
        if self.is_under_way() {
            return self.write_more(desk, turn);
        }
        let Some(part) = self.parts.front() else {
            return Walked::Waits;
        };
        self.is_asking = true;
        self.asked_us = turn.now.mono_us;
        let ask = Ask::Load {
            space: part.space,
            start: part.start.clone(),
            partitions: bits(&self.partitions),
            bytes: self.page_bytes,
        };
        let purpose = Purpose::Load { walk: self.id };
        let deadline_us = turn.now.mono_us + LOAD_ASK_US;
        desk.ask(turn, self.source, purpose, ask, deadline_us);
        Walked::Waits
    }

    /// An answer to a page, or of the own acceptor to a record.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        answer: Answer,
    ) -> Walked {
        if !self.is_asking {
            let is_kept = matches!(answer, Answer::Accepted);
            return self.wrote(desk, turn, is_kept);
        }
        self.is_asking = false;
        match answer {
            Answer::Loaded { records, next } => {
                let size = |(key, cell): &(Bytes, Cell)| (key.len() + cell.value.len()) as u64;
                self.bytes = records.iter().map(size).sum();
                self.records = records;
                self.next = next;
                self.stay_in_part();
                self.write_more(desk, turn)
            }
            Answer::Refused(Refused::Damaged) => Walked::Unreadable,
            _ => Walked::Refused,
        }
    }

    /// Drops the records of the page that lie after the part.
    fn stay_in_part(&mut self) {
        let last = self.parts.front().and_then(|part| part.last.as_ref());
        if let Some(last) = last {
            self.records.retain(|(key, _)| key <= last);
            self.next.take_if(|next| *next > *last);
        }
    }

    /// Does this member keep the record?
    fn is_wanted(&self, desk: &Desk, space: Space, key: &[u8], cell: &Cell) -> bool {
        let copies = match space {
            Space::User => {
                let copies = desk.layout.copies_of(&cell.as_ref());
                desk.topology.copies().max(copies)
            }
            _ => desk.topology.copies(),
        };
        match self.id.of {
            Walker::Loader => true,
            Walker::Repairer => desk
                .layout
                .owns(desk.me, desk.ring().partition(key), copies),
        }
    }

    /// Writes more records of the page; after the last one the page is over.
    fn write_more(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Walked {
        let Some(space) = self.parts.front().map(|part| part.space) else {
            return Walked::Waits;
        };
        while self.writing < LOAD_WRITES_MAX {
            let Some((raw, cell)) = self.records.pop() else {
                break;
            };
            if !self.is_wanted(desk, space, &raw, &cell) {
                continue;
            }
            if space == Space::Protocol {
                let record = Record::decode(&cell.value);
                let record = record.filter(|record| plausible::is_ballot(record.promised));
                let Some(record) = record else {
                    return Walked::Unreadable;
                };
                self.writing += 1;
                let requester = Requester {
                    to: Recipient::Own(Purpose::Load { walk: self.id }),
                    epoch: desk.layout.epoch().max(desk.fence.epoch()),
                    partition: None,
                };
                let if_lost = match self.id.of {
                    Walker::Loader => IfLost::Refuse,
                    Walker::Repairer => IfLost::WriteAnew,
                };
                let question = ProtocolQuestion::Adopt { record, if_lost };
                protocol::begin(desk, turn, requester, raw, question, NEVER);
            } else {
                let key = Key::user(&raw);
                if !cell.as_ref().is_intact(key.as_stored()) {
                    return Walked::Unreadable;
                }
                self.writing += 1;
                desk.follow(cell.version.hlc);
                let order = Order::Loaded { walk: self.id };
                desk.write(turn, order, key, cell, Guard::Newest);
            }
        }
        if self.writing == 0 && !self.is_asking {
            self.end_page()
        } else {
            Walked::Waits
        }
    }

    /// A record of the page is durable, or could not be written.
    pub(crate) fn wrote(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        is_written: bool,
    ) -> Walked {
        self.writing -= 1;
        if !is_written {
            // The page is asked for again: which of its records are missing is not kept.
            self.records.clear();
            self.has_failed = true;
        }
        self.write_more(desk, turn)
    }

    /// All records of the page are durable, or one is not.
    fn end_page(&mut self) -> Walked {
        let is_whole = !std::mem::take(&mut self.has_failed);
        let next = self.next.take();
        if is_whole {
            match (next, self.parts.front_mut()) {
                (Some(next), Some(part)) => part.start = next,
                _ => {
                    self.parts.pop_front();
                }
            }
        }
        Walked::Page {
            bytes: std::mem::take(&mut self.bytes),
            is_whole,
            is_last: self.parts.is_empty(),
        }
    }
}

/// A bit for each partition.
fn bits(partitions: &[Partition]) -> Bytes {
    let last = partitions.iter().map(|partition| partition.at()).max();
    let mut bits = vec![0u8; last.map_or(0, |last| last / 8 + 1)];
    for partition in partitions {
        bits[partition.at() / 8] |= 1 << (partition.at() % 8);
    }
    bits.into()
}
