//! Orders of the node to the own store, carried out by the engine.
//!
//! ```text
//! Read   ─► engine, Wait::Never ─► the event at once │ would block: store pool ─► event later
//! Write  ─► the loop's batch    ─► event after its commit
//! Page, Survey ─► store pool    ─► event later
//! Cover  ─► ceiling raised, a note written with it: the commit that carries both is the event
//! ```
//!
//! Invariants
//! 1. Every order gets exactly one event.
//! 2. Reads see committed writes only, because the memtable does.
//! 3. A value that fails its checksum is `Damaged`: never absent, never passed on.
//!
//! Not here: the machines that order (crate `node`).
//! See: docs/protocol.md, "Rules".

use crate::admin::metrics::Refused;
use crate::disk::store_pool::{PoolAnswer, Work};
use crate::event_loop::thread::{EventLoop, Target};
use dendra_base::{Cell, CellRef, Key, Kind, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{
    Cursor, Direction, Engine, Error, Flow, Guard, Lookup, Progress, Show, WriteOutcome,
};
use dendra_node::compare::survey::{Survey, Surveyed, Surveying};
use dendra_node::step::{Effect, Event, StoreFailure, StoreOutcome, StoreTicket};
use dendra_node::{Class, Entry, Refusal};
use std::ops::Bound;

/// Begins an order; `Some` when it is done already.
pub(crate) fn carry_out(lane: &EventLoop, effect: Effect) -> Option<Event> {
    match effect {
        Effect::Read {
            ticket,
            key,
            deadline_us,
        } => read(lane, ticket, key, deadline_us),
        Effect::Write {
            ticket,
            key,
            cell,
            guard,
        } => write(lane, ticket, &key, &cell, guard),
        Effect::Page {
            ticket,
            start,
            end,
            is_reverse,
            bytes,
            deadline_us,
        } => {
            let page = Page {
                start,
                end,
                is_reverse,
                bytes: bytes as usize,
            };
            let target = Target::Node(ticket);
            let offered = lane.offer_order(target, deadline_us, Work::Page(Box::new(page)));
            lane.metrics().note_order(offered);
            offered.err().map(|_| Event::Paged {
                ticket,
                result: Err(StoreFailure::Busy),
            })
        }
        Effect::Survey {
            ticket,
            look,
            deadline_us,
        } => {
            let offered = lane.offer_order(Target::Node(ticket), deadline_us, Work::Survey(look));
            lane.metrics().note_order(offered);
            offered.err().map(|_| Event::Surveyed {
                ticket,
                result: Err(StoreFailure::Busy),
            })
        }
        Effect::Cover { hlc } => {
            cover(lane, hlc);
            None
        }
        Effect::Outcome { .. }
        | Effect::Scanned { .. }
        | Effect::Reply { .. }
        | Effect::Withdraw { .. }
        | Effect::Cancel { .. }
        | Effect::Learn { .. }
        | Effect::Loaded { .. }
        | Effect::Repaired { .. }
        | Effect::Ask { .. } => unreachable!("the agent carries these out itself"),
    }
}

fn read(lane: &EventLoop, ticket: StoreTicket, key: Key, deadline_us: u64) -> Option<Event> {
    let looked = lane
        .shared
        .engine
        .get(key.as_stored(), Wait::Never, |cell| {
            intact(&key, cell.to_owned())
        });
    let result = match looked {
        Ok(Lookup::Cell(cell)) => cell.map(Some),
        Ok(Lookup::Nothing) => Ok(None),
        Ok(Lookup::WouldBlock) => return pooled(lane, ticket, key, deadline_us),
        Err(error) if error.would_block() => return pooled(lane, ticket, key, deadline_us),
        Err(error) => {
            tracing::error!(%error, "a read for a peer failed");
            Err(match error {
                Error::Damaged { .. } => StoreFailure::Damaged,
                _ => StoreFailure::NotApplied,
            })
        }
    };
    if result == Err(StoreFailure::Damaged) {
        lane.metrics().damaged.add(1);
    }
    lane.metrics().note_order(Ok(()));
    Some(Event::Read { ticket, result })
}

fn pooled(lane: &EventLoop, ticket: StoreTicket, key: Key, deadline_us: u64) -> Option<Event> {
    let offered = lane.offer_order(Target::Node(ticket), deadline_us, Work::Get(key));
    lane.metrics().note_order(offered);
    offered.err().map(|_| Event::Read {
        ticket,
        result: Err(StoreFailure::Busy),
    })
}

fn intact(key: &Key, cell: Cell) -> Result<Cell, StoreFailure> {
    match cell.as_ref().is_intact(key.as_stored()) {
        true => Ok(cell),
        false => Err(StoreFailure::Damaged),
    }
}

fn write(
    lane: &EventLoop,
    ticket: StoreTicket,
    key: &Key,
    cell: &Cell,
    guard: Guard,
) -> Option<Event> {
    let fail = |failure| {
        Some(Event::Wrote {
            ticket,
            result: Err(failure),
        })
    };
    if lane.is_poisoned() {
        return fail(StoreFailure::Poisoned);
    }
    let class = match cell.kind {
        Kind::Value => Class::Write,
        Kind::Tombstone => Class::Delete,
    };
    // Behind an engine that has to catch up it waits in line.
    if let Entry::Refused {
        refusal: Refusal::DiskFull,
    } = lane.admit(class)
    {
        return fail(StoreFailure::DiskFull);
    }
    let target = Target::Node(ticket);
    let pushed = lane.push_order_in_line(target, key, cell, guard);
    lane.metrics().note_order(pushed);
    match pushed {
        Ok(()) => None,
        Err(Refused::Disk) => fail(StoreFailure::DiskFull),
        Err(_) => fail(StoreFailure::Busy),
    }
}

/// A note of the clock: its record is only there so that a log write comes, and carries the ceiling.
pub(crate) fn cover(lane: &EventLoop, hlc: u64) {
    lane.shared.engine.raise_hlc_ceiling(hlc);
    let key = Key::new(Space::Meta, b"clock");
    let version = Version {
        hlc,
        origin: 0,
        rmw: 0,
    };
    let cell = CellRef::value(key.as_stored(), version, b"");
    let pushed = lane.push_order(Target::Cover(hlc), key.as_stored(), &cell, Guard::Newest);
    if pushed.is_err() {
        // The log's queue is full, so a commit is under way that began before the ceiling was
        // raised. The node polls, and the next write of any connection carries it.
        lane.cover_later(hlc);
    }
}

/// The outcome of a write, in the node's words.
pub(crate) fn wrote(ticket: StoreTicket, outcome: WriteOutcome) -> Event {
    let result = match outcome {
        WriteOutcome::Applied { version } => Ok(StoreOutcome::Applied { version }),
        WriteOutcome::GuardFailed { current } => Ok(StoreOutcome::GuardFailed { current }),
        WriteOutcome::NotApplied => Err(StoreFailure::NotApplied),
        WriteOutcome::NoRoom => Err(StoreFailure::DiskFull),
    };
    Event::Wrote { ticket, result }
}

/// The event for an order that was cancelled before it was begun.
pub(crate) fn cancelled(ticket: StoreTicket, kind: Cancelled) -> Event {
    let why = StoreFailure::Late;
    match kind {
        Cancelled::Read => Event::Read {
            ticket,
            result: Err(why),
        },
        Cancelled::Page => Event::Paged {
            ticket,
            result: Err(why),
        },
        Cancelled::Survey => Event::Surveyed {
            ticket,
            result: Err(why),
        },
        Cancelled::Write => Event::Wrote {
            ticket,
            result: Err(why),
        },
    }
}

/// Which kind of order was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// Of one key.
    Read,
    /// Of a range.
    Page,
    /// At a range.
    Survey,
    /// That stood in line for the log.
    Write,
}

impl From<&Work> for Cancelled {
    fn from(work: &Work) -> Cancelled {
        match work {
            Work::Get(_) => Cancelled::Read,
            Work::Page(_) | Work::Chunk(_) => Cancelled::Page,
            Work::Survey(_) => Cancelled::Survey,
        }
    }
}

/// The store pool's answer, in the node's words.
pub(crate) fn answered(ticket: StoreTicket, answer: PoolAnswer) -> Event {
    let failed = |failure| Event::Read {
        ticket,
        result: Err(failure),
    };
    match answer {
        PoolAnswer::Cell(cell) => Event::Read {
            ticket,
            result: Ok(cell.map(|cell| *cell)),
        },
        PoolAnswer::Page(page) => Event::Paged {
            ticket,
            result: page,
        },
        PoolAnswer::Surveyed(result) => Event::Surveyed { ticket, result },
        PoolAnswer::Damaged => failed(StoreFailure::Damaged),
        PoolAnswer::Late => failed(StoreFailure::Late),
        PoolAnswer::Failed | PoolAnswer::Chunk(_) | PoolAnswer::ChunkFailed(..) => {
            failed(StoreFailure::NotApplied)
        }
    }
}

/// A part of a space to be read.
#[derive(Debug)]
pub(crate) struct Page {
    start: Key,
    end: Option<Key>,
    is_reverse: bool,
    bytes: usize,
}

#[cfg(test)]
impl Page {
    /// Of nothing.
    pub(crate) fn for_tests() -> Page {
        Page {
            start: Key::user(b""),
            end: None,
            is_reverse: false,
            bytes: 1,
        }
    }
}

/// Looks at a part of a space, from the disk.
pub(crate) fn look(engine: &Engine, look: &Survey) -> Result<Surveyed, StoreFailure> {
    let start = look.start.as_stored().to_vec();
    let behind_space = vec![start[0] + 1];
    let end = look.end.as_ref().map(|end| end.as_stored().to_vec());
    let end = end.unwrap_or(behind_space);
    let mut looker = look.begin();
    if start < end {
        let (low, high) = (Bound::Included(start), Bound::Excluded(end));
        let mut cursor = Cursor::new(low, high, Direction::Forward, Show::All);
        let scanned = engine.scan(&mut cursor, usize::MAX, |key, cell| {
            match looker.visit(key, cell) {
                Surveying::Goes => Flow::Continue,
                Surveying::Enough => Flow::Pause,
            }
        });
        scanned.map_err(|error| unread(&error, "a comparison"))?;
    }
    looker.finish().ok_or(StoreFailure::Damaged)
}

fn unread(error: &Error, what: &str) -> StoreFailure {
    tracing::error!(%error, "{what} could not read a part of the store");
    match error {
        Error::Damaged { .. } => StoreFailure::Damaged,
        _ => StoreFailure::NotApplied,
    }
}

/// Records of a page, and where to go on.
pub(crate) type Paged = Result<(Vec<(Key, Cell)>, Option<Key>), StoreFailure>;

impl Page {
    /// Reads it from the disk.
    pub(crate) fn fill(&self, engine: &Engine) -> Paged {
        let space = self.start.as_stored()[0];
        let behind_space = vec![space + 1];
        let (low, high, direction) = match self.is_reverse {
            false => {
                let end = self.end.as_ref().map(|end| end.as_stored().to_vec());
                let start = self.start.as_stored().to_vec();
                (start, end.unwrap_or(behind_space), Direction::Forward)
            }
            true => {
                let end = self.end.as_ref().map(|end| end.as_stored().to_vec());
                let start = self.start.as_stored().to_vec();
                (end.unwrap_or(vec![space]), start, Direction::Backward)
            }
        };
        if low >= high {
            return Ok((Vec::new(), None));
        }
        let mut cursor = Cursor::new(
            Bound::Included(low),
            Bound::Excluded(high),
            direction,
            Show::All,
        );
        let mut records: Vec<(Key, Cell)> = Vec::new();
        let mut held = 0;
        let mut is_damaged = false;
        let progress = engine.scan(&mut cursor, usize::MAX, |key, cell| {
            if !cell.is_intact(key) {
                is_damaged = true;
                return Flow::Pause;
            }
            held += key.len() + cell.value.len();
            let space =
                Space::from_byte(key[0]).expect("a page stays within the space of its start");
            records.push((Key::new(space, &key[1..]), cell.to_owned()));
            match held >= self.bytes {
                true => Flow::Pause,
                false => Flow::Continue,
            }
        });
        match progress {
            _ if is_damaged => Err(StoreFailure::Damaged),
            Ok(Progress::Done) => Ok((records, None)),
            Ok(Progress::More) => {
                let last = records.last().map(|(key, _)| key.clone());
                let next = last.map(|key| match self.is_reverse {
                    true => key,
                    false => {
                        let mut raw = key.raw().to_vec();
                        raw.push(0);
                        Key::new(
                            Space::from_byte(space).expect("the start has a space"),
                            &raw,
                        )
                    }
                });
                Ok((records, next))
            }
            Err(error) => Err(unread(&error, "a page for a peer")),
        }
    }
}
