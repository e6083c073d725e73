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

use crate::event_loop::thread::{EventLoop, Target};
use crate::lanes::page::Page;
use crate::lanes::work::StoreWork;
use crate::measure::metrics::RefusalCause;
use crate::member::agent::AgentWorld;
use dendra_base::Now;
use dendra_base::peer::Readiness;
use dendra_base::{Cell, CellRef, Key, Kind, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{Engine, Error, Guard, Lookup};
use dendra_node::step::{Effect, Event, StoreFailure, StoreTicket};
use dendra_node::{Admission, Class, RefusedBy};
use dendra_watch::{WatchEvent, WatchId, WatchToken};

impl AgentWorld for EventLoop {
    fn refresh(&self) {
        EventLoop::refresh(self);
    }

    fn now(&self) -> Now {
        EventLoop::now(self)
    }

    fn readiness(&self) -> Readiness {
        EventLoop::readiness(self)
    }

    fn is_contended(&self) -> bool {
        EventLoop::refresh(self);
        self.delay.is_crowded(self.now_us())
    }

    fn is_strained(&self) -> bool {
        EventLoop::is_strained(self)
    }

    fn commit_at_once(&self) -> bool {
        EventLoop::commit_at_once(self)
    }

    fn carry_out(&self, order: Effect) -> Option<Event> {
        carry_out(self, order)
    }

    fn cancel(&self, tickets: Vec<StoreTicket>) -> Vec<Event> {
        self.cancel_orders(tickets)
    }

    fn tell_watch(
        &self,
        watch: WatchId,
        events: Vec<WatchEvent>,
        token: Option<WatchToken>,
        is_over: bool,
    ) {
        self.watches().told(watch, events, token, is_over);
    }

    fn engine(&self) -> &Engine {
        &self.parts.store.engine
    }
}

/// Begins an order; `Some` when it is done already.
fn carry_out(lane: &EventLoop, effect: Effect) -> Option<Event> {
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
            let offered = lane.offer_order(target, deadline_us, StoreWork::Page(Box::new(page)));
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
            let offered =
                lane.offer_order(Target::Node(ticket), deadline_us, StoreWork::Survey(look));
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
        | Effect::Told { .. }
        | Effect::Reply { .. }
        | Effect::Withdraw { .. }
        | Effect::Cancel { .. }
        | Effect::Learn { .. }
        | Effect::Loaded { .. }
        | Effect::Repaired { .. }
        | Effect::RepairWaits { .. }
        | Effect::Ask { .. } => unreachable!("the agent carries these out itself"),
    }
}

fn read(lane: &EventLoop, ticket: StoreTicket, key: Key, deadline_us: u64) -> Option<Event> {
    let looked = lane
        .parts
        .store
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
    let offered = lane.offer_order(Target::Node(ticket), deadline_us, StoreWork::Get(key));
    lane.metrics().note_order(offered);
    offered.err().map(|_| Event::Read {
        ticket,
        result: Err(StoreFailure::Busy),
    })
}

fn intact(key: &Key, cell: Cell) -> Result<Cell, StoreFailure> {
    if cell.as_ref().is_intact(key.as_stored()) {
        Ok(cell)
    } else {
        Err(StoreFailure::Damaged)
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
    if let Admission::Refused {
        refusal: RefusedBy::DiskFull,
    } = lane.admit(class)
    {
        return fail(StoreFailure::DiskFull);
    }
    let target = Target::Node(ticket);
    let pushed = lane.push_order_in_line(target, key, cell, guard);
    lane.metrics().note_order(pushed);
    match pushed {
        Ok(()) => None,
        Err(RefusalCause::Disk) => fail(StoreFailure::DiskFull),
        Err(_) => fail(StoreFailure::Busy),
    }
}

/// A note of the clock: its record is only there so that a log write comes, and carries the
/// ceiling.
pub(crate) fn cover(lane: &EventLoop, hlc: u64) {
    lane.parts.store.engine.raise_hlc_ceiling(hlc);
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
