//! The loop's writes: one batch a turn, orders and clients that wait for room in it, and outcomes.
//!
//! ```text
//! client's write ─► room? ─► batch ─► commit ─► log's queue ─► log thread ─► outcome ─► seat
//!                     └─ no: in line, by the client's deadline                  └─► node
//! node's order ───► room? ─► batch            no: in line, ORDERS_WAITING_BYTES_MAX of them
//! both lines wait ─► turns of bytes (crate `node`, `admission/turns.rs`)
//! ```
//!
//! Invariants
//! 1. A write that waits in line comes before each later one of its size. Of different sizes those
//!    that wait get equal bytes (crate `node`, `admission/line.rs`). So do orders, in their line.
//! 2. A ticket is taken before its write enters the batch, and given back with the outcome.
//! 3. Two orders of one key may reach the log in any order. `Guard::Newest` keeps the newer version
//!    in each of them. A condition is judged in the log, against the cell in front of it there. An
//!    order that was overtaken fails, and its machine reads again (promises, hints). Orders of
//!    other loops for the same key were never in line here, so that no machine counts on an order
//!    between two of them. One that needs it waits for the first one's event.
//! 4. Neither line starves the other. A client in its turn is woken, and goes when it is polled, if
//!    the engine still has room for it. Until then orders wait, those that come now, too.
//!    `commit_due` is rung when they may go on.
//!
//! Not here: the log thread (`disk/wal_thread.rs`), the turn that commits (`mod.rs`).
//! See: docs/overload.md.

use super::{EventLoop, Target};
use crate::disk::orders::Cancelled;
use crate::disk::{orders, wal_thread};
use crate::event_loop::write_lines::{RECORD_HEAD_BYTES_MAX, WaitingOrder};
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::waiting::seat::Seat;
use dendra_base::{CellRef, Key, Touch};
use dendra_engine::{Batch, Durability, Guard, Submitted, WriteOutcome};
use dendra_node::admission::line::WritePlace;
use dendra_node::step::{Event, StoreTicket};
use dendra_node::{LineOf, WriteLine, WriteRoom, WriteSize};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;

/// A place in the line for the log, left when dropped.
struct LogPlace<'a> {
    lane: &'a EventLoop,
    place: WritePlace,
}

impl Drop for LogPlace<'_> {
    fn drop(&mut self) {
        let _seat = self.lane.lines.clients.borrow_mut().leave(self.place);
        self.lane.call_next_in_line();
    }
}

/// Can the engine ever store such a record?
fn check(stored_key: &[u8], cell: &CellRef<'_>) -> Result<(), RefusalCause> {
    Batch::check(stored_key, cell).map_err(|unfit| {
        tracing::warn!(%unfit, "refused a record");
        RefusalCause::Unfit
    })
}

/// The room that a record takes in a batch, or a little more.
fn record_bytes(stored_key: &[u8], cell: &CellRef<'_>) -> usize {
    stored_key.len() + cell.encoded_len() + 64
}

/// The write of `seat` waits in `line` from now on. A small one that joins in the reserve may let a
/// large one in front of it go, which nothing else would wake.
fn join(
    line: &mut WriteLine<Rc<Seat>>,
    size: WriteSize,
    seat: &Rc<Seat>,
    room: WriteRoom,
) -> WritePlace {
    let place = line.join(size, Rc::clone(seat));
    call_first(line, room);
    place
}

/// Wakes the connection whose write goes next, if one may go.
fn call_first(line: &WriteLine<Rc<Seat>>, room: WriteRoom) {
    if let Some((_, seat)) = line.next(room) {
        seat.wake();
    }
}

impl EventLoop {
    /// Puts a write into this turn's batch; its outcome comes to `seat`, in the order of the
    /// pushes.
    pub(crate) fn push_write(
        &self,
        seat: &Rc<Seat>,
        stored_key: &[u8],
        cell: &CellRef<'_>,
        guard: Guard,
    ) -> Result<(), RefusalCause> {
        self.make_batch_room(stored_key, cell)?;
        let permit = self
            .rooms
            .hold_request(seat)
            .ok_or(RefusalCause::Requests)?;
        let target = Target::Seat {
            seat: Rc::clone(seat),
            round: seat.round(),
            place: seat.expect(),
        };
        self.push(self.waiters.ticket(target, permit), stored_key, cell, guard);
        Ok(())
    }

    /// Puts a touch into this turn's batch, like `push_write`.
    pub(crate) fn push_touch(
        &self,
        seat: &Rc<Seat>,
        stored_key: &[u8],
        touch: &Touch,
        guard: Guard,
    ) -> Result<(), RefusalCause> {
        self.make_batch_room(stored_key, &touch.with(b""))?;
        let permit = self
            .rooms
            .hold_request(seat)
            .ok_or(RefusalCause::Requests)?;
        let target = Target::Seat {
            seat: Rc::clone(seat),
            round: seat.round(),
            place: seat.expect(),
        };
        let token = wal_thread::token(self.index, self.waiters.ticket(target, permit));
        let mut batch = self.batch.batch.borrow_mut();
        batch
            .push_touch(token, stored_key, touch, guard, self.wall_ms())
            .expect("checked before there was a ticket");
        self.batch.due.ring();
        Ok(())
    }

    /// Puts an order of the node into this turn's batch; `target` gets the result.
    pub(crate) fn push_order(
        &self,
        target: Target,
        stored_key: &[u8],
        cell: &CellRef<'_>,
        guard: Guard,
    ) -> Result<(), RefusalCause> {
        // Clients in line are not in front of it: in a cluster each of their writes becomes an
        // order itself when it is called.
        check(stored_key, cell)?;
        if !self.find_batch_room(record_bytes(stored_key, cell)) {
            return Err(RefusalCause::LogQueue);
        }
        let permit = self.rooms.hold_order().ok_or(RefusalCause::Requests)?;
        self.push(self.waiters.ticket(target, permit), stored_key, cell, guard);
        Ok(())
    }

    /// Pushes like `push_order`, but an order waits if the log's queue is full or the engine has no
    /// room for it. A write that reached its owners is not refused because many came at the same
    /// time.
    pub(crate) fn push_order_in_line(
        &self,
        target: Target,
        key: &Key,
        cell: &dendra_base::Cell,
        guard: Guard,
    ) -> Result<(), RefusalCause> {
        let record_bytes = RECORD_HEAD_BYTES_MAX + cell.value.len();
        let size = self.lines.size_of_order(cell.value.len());
        let may_pass = self.may_order_pass(size) && self.find_batch_room(record_bytes);
        // Not in the turn of a client: orders that come all the time would let none have it.
        let is_client_ready = self.is_client_ready();
        if may_pass && self.lines.is_turn_of(LineOf::Orders, is_client_ready) {
            self.lines.orders.borrow_mut().passed(size);
            self.lines
                .note_gone(LineOf::Orders, size.bytes, is_client_ready);
            return self.push_order(target, key.as_stored(), &cell.as_ref(), guard);
        }
        let waiting = self.lines.order_bytes();
        if waiting > 0 && waiting + record_bytes > self.order_bytes_max(size) {
            return Err(RefusalCause::LogQueue);
        }
        check(key.as_stored(), &cell.as_ref())?;
        let permit = self.rooms.hold_order().ok_or(RefusalCause::Requests)?;
        let order = WaitingOrder {
            slot: self.waiters.ticket(target, permit),
            key: key.clone(),
            cell: cell.clone(),
            guard,
        };
        self.lines.join_orders(size, order);
        // In the reserve a small one may let a large one in front of it go.
        self.call_those_in_line();
        Ok(())
    }

    /// May an order that comes now go in front of those that wait?
    fn may_order_pass(&self, size: WriteSize) -> bool {
        if size.is_large {
            self.pressure.set(self.parts.store.engine.pressure());
        }
        let room = self.write_room();
        let line = self.lines.orders.borrow();
        room != WriteRoom::Stopped && line.may_pass(size, room, self.batch.state())
    }

    /// The bytes in line up to which an order of this size joins it.
    fn order_bytes_max(&self, size: WriteSize) -> usize {
        let most = limits::ORDERS_WAITING_BYTES_MAX / self.parts.lanes.len();
        if size.is_large {
            most - most / limits::ORDERS_SMALL_SHARE
        } else {
            most
        }
    }

    /// Orders in line go into the batch, as far as it has room and it is their turn.
    fn push_orders_in_line(&self) {
        while let Some(order) = self.take_order_in_line() {
            self.lines.note_order_left(&order);
            self.push(
                order.slot,
                order.key.as_stored(),
                &order.cell.as_ref(),
                order.guard,
            );
        }
    }

    /// The order that goes next, if it may go and the batch has room for it.
    fn take_order_in_line(&self) -> Option<WaitingOrder> {
        let mut line = self.lines.orders.borrow_mut();
        if line.is_empty() {
            return None;
        }
        // As it is this moment: the bytes of those that went before count.
        self.pressure.set(self.parts.store.engine.pressure());
        let (place, first) = line.next(self.write_room())?;
        let is_client_ready = self.is_client_ready();
        if !self.lines.is_turn_of(LineOf::Orders, is_client_ready)
            || !self.batch.has_room(first.bytes())
        {
            return None;
        }
        let order = line.go(place)?;
        self.lines.note_gone(
            LineOf::Orders,
            order.cell.value.len() as u64,
            is_client_ready,
        );
        Some(order)
    }

    fn is_order_ready(&self) -> bool {
        self.lines.is_order_ready(|| self.write_room())
    }

    fn is_client_ready(&self) -> bool {
        self.lines.is_client_ready(|| self.write_room())
    }

    /// Takes back orders of the node that have not begun: reads in the store queue, writes in line.
    /// Returns the events that answer them.
    pub(crate) fn cancel_orders(&self, mut tickets: Vec<StoreTicket>) -> Vec<Event> {
        tickets.sort_unstable();
        let is_told = |ticket: &StoreTicket| tickets.binary_search(ticket).is_ok();
        let is_wanted = |target: &Target| matches!(target, Target::Node(it) if is_told(it));
        let open = self.waiters.tickets.borrow();
        let wanted = open.iter().filter(|(_, ticket)| is_wanted(&ticket.target));
        let slots: Vec<u32> = wanted.map(|(slot, _)| slot as u32).collect();
        drop(open);
        let orders = self.lines.cancel_orders(&slots);
        let named = orders.iter().map(|order| (order.slot, Cancelled::Write));
        let mut taken: Vec<(u32, Cancelled)> = named.collect();
        let jobs = self.parts.store.pool.take_back(self.index, &slots);
        taken.extend(
            jobs.iter()
                .map(|job| (job.slot, Cancelled::from(&job.work))),
        );
        self.metrics().cancelled.add(taken.len() as u64);
        let event = |(slot, kind)| match self.waiters.take_ticket(slot).target {
            Target::Node(ticket) => Some(orders::cancelled(ticket, kind)),
            Target::Seat { .. } | Target::Cover(_) | Target::Watch(_) => None,
        };
        taken.into_iter().filter_map(event).collect()
    }

    fn push(&self, slot: u32, stored_key: &[u8], cell: &CellRef<'_>, guard: Guard) {
        let token = wal_thread::token(self.index, slot);
        let mut batch = self.batch.batch.borrow_mut();
        batch
            .push(token, stored_key, cell, guard, self.wall_ms())
            .expect("checked before there was a ticket");
        self.batch.due.ring();
    }

    /// Waits until `until_us` for room in the batch, and for an engine that is not behind. Returns
    /// `true` when both are there for the write that is pushed next.
    pub(crate) async fn wait_for_log(
        &self,
        seat: &Rc<Seat>,
        value_len: usize,
        until_us: u64,
    ) -> bool {
        let bytes = value_len + RECORD_HEAD_BYTES_MAX;
        let size = self.lines.size_of_write(value_len);
        let room = self.write_room();
        let place = join(&mut self.lines.clients.borrow_mut(), size, seat, room);
        let in_line = LogPlace { lane: self, place };
        seat.arm(until_us);
        let is_there = poll_fn(|cx| {
            let is_next = self.is_next_in_log_line(place, size)
                && self
                    .lines
                    .is_turn_of(LineOf::Clients, self.is_order_ready());
            if is_next && self.find_batch_room(bytes) {
                self.lines
                    .note_gone(LineOf::Clients, size.bytes, self.is_order_ready());
                let _seat = self.lines.clients.borrow_mut().go(place);
                return Poll::Ready(true);
            }
            if seat.is_late() || self.is_poisoned() {
                return Poll::Ready(false);
            }
            if !is_next {
                // What orders waited for it may go on.
                self.call_orders_in_line();
            }
            seat.register(cx);
            Poll::Pending
        })
        .await;
        drop(in_line);
        self.lines.is_called.set(is_there);
        is_there
    }

    /// The write that was called does not come.
    pub(crate) fn forgo_log(&self) {
        self.lines.is_called.set(false);
        self.call_next_in_line();
    }

    /// A client's write went, or left the line. Orders go on when its connection has had its turn
    /// on the loop: before, they would take the room that it was called for.
    fn call_next_in_line(&self) {
        self.call_orders_in_line();
        self.call_first_in_log_line();
    }

    fn call_orders_in_line(&self) {
        if !self.lines.orders.borrow().is_empty() {
            self.batch.due.ring();
        }
    }

    fn call_first_in_log_line(&self) {
        let line = self.lines.clients.borrow();
        if !line.is_empty()
            && self
                .lines
                .is_turn_of(LineOf::Clients, self.is_order_ready())
        {
            call_first(&line, self.write_room());
        }
    }

    fn is_next_in_log_line(&self, place: WritePlace, size: WriteSize) -> bool {
        let room = self.room_for(size);
        let line = self.lines.clients.borrow();
        let next = line.next(room);
        next.is_some_and(|(next, _)| next == place)
    }

    /// There may be room, or an engine that is not behind.
    pub(super) fn call_those_in_line(&self) {
        self.push_orders_in_line();
        self.call_first_in_log_line();
    }

    /// The engine's room for writes. While there is not room for all, this loop is told when there
    /// is more of it.
    fn write_room(&self) -> WriteRoom {
        let room = WriteRoom::of(self.pressure.get());
        if room == WriteRoom::Open {
            return room;
        }
        // The flag first: if they catch up after this look, they find it.
        self.handle()
            .waits_for_engine
            .store(true, Ordering::Release);
        self.pressure.set(self.parts.store.engine.pressure());
        WriteRoom::of(self.pressure.get())
    }

    /// Room at this moment for a large write: the bytes in front of it count, those in this loop's
    /// batch, too.
    fn room_for(&self, size: WriteSize) -> WriteRoom {
        if size.is_large {
            self.commit();
            self.pressure.set(self.parts.store.engine.pressure());
        }
        self.write_room()
    }

    fn find_batch_room(&self, record_bytes: usize) -> bool {
        self.batch.has_room(record_bytes) || {
            // The batch goes now.
            self.commit();
            self.batch.has_room(record_bytes)
        }
    }

    fn make_batch_room(&self, stored_key: &[u8], cell: &CellRef<'_>) -> Result<(), RefusalCause> {
        let is_called = self.lines.is_called.take();
        let size = self.lines.size_of_write(cell.value.len());
        check(stored_key, cell)?;
        // When the log's queue is full, too, the client waits or is refused.
        if (is_called || self.may_pass(size))
            && self.find_batch_room(record_bytes(stored_key, cell))
        {
            if !is_called {
                self.lines.clients.borrow_mut().passed(size);
            }
            return Ok(());
        }
        let is_by_engine = match self.write_room() {
            WriteRoom::Open => false,
            WriteRoom::Reserve => size.is_large,
            WriteRoom::Stopped => true,
        };
        Err(if is_by_engine {
            RefusalCause::Engine
        } else {
            RefusalCause::LogQueue
        })
    }

    /// May a write that comes now go in front of those that wait?
    fn may_pass(&self, size: WriteSize) -> bool {
        let batch = self.batch.state();
        let room = self.room_for(size);
        self.lines.clients.borrow().may_pass(size, room, batch)
    }

    /// Commits this turn's batch here and now, if this loop commits itself. The outcomes of the
    /// writes are told before it returns, unless other writes are in front of them, or they are
    /// many bytes. `false` when there was no batch to commit, or no room in the log's queue.
    pub(crate) fn commit_at_once(&self) -> bool {
        if self.parts.settings.durability != Durability::Os || self.batch.is_empty() {
            return false;
        }
        self.commit();
        self.batch.is_empty()
    }

    /// Submits this turn's batch. With durability `os` a batch of few bytes is committed here and
    /// now. The log's own thread writes larger ones, which would hold up the requests of this loop.
    pub(super) fn commit(&self) {
        let mut batch = self.batch.batch.borrow_mut();
        if batch.is_empty() {
            return;
        }
        let (count, bytes) = (batch.len(), batch.bytes().len() as u64);
        let submitted = self.parts.store.engine.submit(&mut batch);
        drop(batch);
        match submitted {
            Ok(submitted) => {
                self.call_those_in_line();
                self.parts.store.poke.note_bytes(bytes);
                let is_quick = self.parts.settings.durability == Durability::Os
                    && bytes <= limits::INLINE_COMMIT_BYTES_MAX;
                match submitted {
                    Submitted::First if is_quick => self.commit_inline(count),
                    Submitted::First => self.parts.store.bell.ring(),
                    Submitted::Behind => {}
                }
            }
            Err(_full) => {
                // The flag first: the commit that the ring asks for then finds it.
                self.handle().waits_for_queue.store(true, Ordering::Release);
                self.parts.store.bell.ring();
            }
        }
        self.pressure.set(self.parts.store.engine.pressure());
    }

    fn commit_inline(&self, count: usize) {
        let mut done = self.batch.done.borrow_mut();
        match self.parts.store.engine.try_commit(&mut done) {
            Ok(true) if done.len() >= count => self.parts.store.bell.note_commit(),
            // Something older went first, or the log is busy: its own thread does the rest.
            Ok(true | false) => self.parts.store.bell.ring(),
            Err(error) if error.is_final() => {
                wal_thread::poison(&self.parts.store, &error.to_string());
            }
            Err(error) => {
                tracing::debug!(%error, "the log has no room; the log's own thread tries again");
                self.parts.store.bell.ring();
            }
        }
        let mut groups = self.batch.groups.borrow_mut();
        wal_thread::deliver(&self.parts.store, &mut done, &mut groups, Some(self.index));
        for event in groups[self.index].drain(..) {
            if let LoopEvent::Written { token, outcome } = event {
                self.take_outcome(wal_thread::token_slot(token), outcome);
            }
        }
    }

    pub(super) fn take_outcome(&self, slot: u32, outcome: WriteOutcome) {
        match self.waiters.take_ticket(slot).target {
            Target::Seat { seat, round, place } if round == seat.round() => {
                seat.put(place, outcome.into());
            }
            Target::Seat { .. } => {}
            Target::Node(ticket) => self.member.tell_node(orders::wrote(ticket, outcome)),
            Target::Watch(_) => unreachable!("watches do not write"),
            Target::Cover(hlc) => match outcome {
                WriteOutcome::Applied { .. } => self.member.tell_node(Event::Covered { hlc }),
                _ => self.cover_later(hlc),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_loop::thread::waiting_writes::Wakes;
    use dendra_node::admission::line::BatchState;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    /// A connection that waits, and how often it was woken.
    fn waiting() -> (Rc<Seat>, Arc<Wakes>) {
        let (seat, wakes) = (Rc::new(Seat::default()), Arc::<Wakes>::default());
        let waker = Waker::from(Arc::clone(&wakes));
        seat.register(&Context::from_waker(&waker));
        (seat, wakes)
    }

    #[test]
    fn a_small_write_that_joins_in_the_reserve_wakes_the_large_one_that_may_go_now() {
        let size = |bytes, is_large| WriteSize { bytes, is_large };
        let (large, small) = (size(1 << 20, true), size(1_000, false));
        let mut line = WriteLine::default();
        let ((first, first_wakes), (second, _)) = (waiting(), waiting());
        join(&mut line, large, &first, WriteRoom::Reserve);
        while line.may_pass(small, WriteRoom::Reserve, BatchState::Empty) {
            line.passed(small);
        }
        assert_eq!(first_wakes.0.load(Ordering::Relaxed), 0, "it may not go");
        join(&mut line, small, &second, WriteRoom::Reserve);
        assert_eq!(first_wakes.0.load(Ordering::Relaxed), 1);
    }
}
