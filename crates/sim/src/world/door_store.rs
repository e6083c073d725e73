//! The log of a member behind its doors, the lines in front of it, and its memory.
//!
//! ```text
//! order ─► room? ─► batch ─► log's queue ─► sync: time for its bytes ─► memtables ─► flush
//!            └─ no: line ◄─── room again: turns of orders and of clients in line
//! ```
//!
//! Invariants
//! 1. Bytes on their way count in the pressure.
//!
//! Not here: requests (`doors.rs`), the lines of one loop (`door/`).
//! See: docs/overload.md.

use super::state::{Happening, World};
use crate::check::Rule;
use crate::door::memtables::Memtables;
use crate::door::{LaneDoor, OrderFate};
use crate::pending::{PendingWrite, Waiter};
use dendra_base::Pressure;
use dendra_node::WriteRoom;
use dendra_node::step::{Event, StoreFailure, StoreTicket};

/// A flush writes slices of so long.
const FLUSH_SLICE_US: u64 = 5_000;

impl World<'_> {
    /// The pressure of the made-up engine: bytes on their way count.
    pub(super) fn pressure(&self, member: usize) -> Pressure {
        let it = &self.members[member];
        let Some(tables) = &it.memtables else {
            return Pressure {
                level: 0.0,
                memory: 0.0,
                stop: None,
            };
        };
        let lanes = it.lanes.iter().filter_map(|lane| lane.door.as_deref());
        let batches: usize = lanes.map(LaneDoor::batch_bytes).sum();
        let log = it.queue.iter().chain(&it.in_flight);
        let log: usize = log.map(PendingWrite::bytes).sum();
        tables.pressure((batches + log) as u64)
    }

    pub(super) fn write_room(&self, member: usize) -> WriteRoom {
        WriteRoom::of(self.pressure(member))
    }

    /// A write to the own store: to the batch of the loop, into its line, or refused.
    pub(super) fn order(&mut self, member: usize, lane: usize, pending: PendingWrite) {
        let Waiter::Loop(ticket) = pending.waiter else {
            self.members[member].queue.push(pending);
            return;
        };
        let room = self.write_room(member);
        let Some(door) = self.door(member, lane) else {
            return;
        };
        let (ordered, fair) = door.order(ticket, pending, room);
        self.judge_order(member, lane, fair);
        match ordered {
            OrderFate::Taken => self.push_orders(member, lane),
            OrderFate::Busy => {
                let result = Err(StoreFailure::Busy);
                self.give_later(member, lane, 0, Event::Wrote { ticket, result });
            }
        }
    }

    /// Orders in line go into the batch, as far as there is room and it is their turn.
    fn push_orders(&mut self, member: usize, lane: usize) {
        loop {
            let room = self.write_room(member);
            let pushed = self.door(member, lane).and_then(|it| it.push_order(room));
            let Some(fair) = pushed else {
                return;
            };
            self.judge_order(member, lane, fair);
        }
    }

    /// An order went: the first rule that this breaks.
    pub(super) fn judge_order(
        &mut self,
        member: usize,
        lane: usize,
        fair: Result<(), (Rule, String)>,
    ) {
        if let Err((rule, what)) = fair {
            self.judge_fair(rule, member, lane, Err(what));
        }
    }

    /// Orders that are not begun are taken back.
    pub(super) fn cancel_orders(&mut self, member: usize, lane: usize, tickets: &[StoreTicket]) {
        let is_named = |pending: &PendingWrite| match pending.waiter {
            Waiter::Loop(ticket) => tickets.contains(&ticket),
            Waiter::Nobody | Waiter::Steward => false,
        };
        let taken = self.door(member, lane).map(|it| it.cancel(is_named));
        for pending in taken.into_iter().flatten() {
            if let Waiter::Loop(ticket) = pending.waiter {
                if let Some(door) = self.door(member, lane) {
                    door.release_order(ticket);
                }
                let result = Err(StoreFailure::Late);
                self.give_later(member, lane, 0, Event::Wrote { ticket, result });
            }
        }
    }

    /// The batches of the loops go to the log's queue, as far as it has room; those that wait for
    /// room in a batch, or for an engine that is not behind, go on.
    pub(super) fn submit(&mut self, member: usize) {
        if self.crowd().is_none() {
            return;
        }
        for lane in 0..self.members[member].lanes.len() {
            loop {
                self.push_orders(member, lane);
                let it = &mut self.members[member];
                let len = it.queue.len();
                let bytes: usize = it.queue.iter().map(PendingWrite::bytes).sum();
                let door = it.lanes[lane].door.as_deref_mut();
                let Some(batch) = door.and_then(|door| door.take_batch(len, bytes)) else {
                    break;
                };
                it.queue.extend(batch);
            }
            self.call_client(member, lane);
        }
        self.begin_commit(member);
    }

    /// Wakes the client whose write goes next, if the engine has room for it.
    pub(super) fn call_client(&mut self, member: usize, lane: usize) {
        let room = self.write_room(member);
        let is_called = self
            .door(member, lane)
            .is_some_and(|it| it.wake_client(room));
        if is_called {
            self.see_to_run(member, lane);
        }
    }

    /// The longer a commit takes for its bytes.
    pub(super) fn log_us(&self, member: usize) -> u64 {
        let it = &self.members[member];
        let bytes: usize = it.in_flight.iter().map(PendingWrite::bytes).sum();
        self.crowd().map_or(0, |overload| {
            bytes as u64 * 1_000 / overload.log_bytes_per_ms * it.slow_times
        })
    }

    /// Writes are durable: they are in memory until a flush.
    pub(super) fn note_durable(&mut self, member: usize, bytes: u64) {
        if let Some(tables) = &mut self.members[member].memtables {
            tables.add(bytes);
        }
        self.flush(member);
    }

    fn flush(&mut self, member: usize) {
        let tables = self.members[member].memtables.as_mut();
        if tables.is_some_and(Memtables::begins_flush) {
            self.flush_later(member);
        }
    }

    fn flush_later(&mut self, member: usize) {
        let incarnation = self.members[member].incarnation;
        let next = Happening::Flushed {
            member,
            incarnation,
        };
        self.schedule.after(FLUSH_SLICE_US, next);
    }

    /// A slice of a flush is written.
    pub(super) fn flushed(&mut self, member: usize) {
        let per_ms = self.crowd().map_or(0, |it| it.flush_bytes_per_ms);
        let it = &mut self.members[member];
        let bytes = per_ms * (FLUSH_SLICE_US / 1_000) / it.slow_times;
        let tables = it.memtables.as_mut();
        if tables.is_some_and(|tables| tables.flush(bytes.max(1))) {
            self.flush(member);
            self.submit(member);
        } else {
            self.flush_later(member);
        }
    }
}
