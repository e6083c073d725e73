//! The writes of one loop that wait for room in its batch: clients', and orders of its node.
//!
//! Invariants
//! 1. `order_bytes` is the sum of the orders that wait.
//!
//! Not here: when a write may go (`thread/log.rs`), the order within a line and the turns of two
//! (crate `node`, `admission/`). See: docs/overload.md, "Large and small writes".

use crate::waiting::seat::Seat;
use dendra_base::Key;
use dendra_engine::Guard;
use dendra_node::admission::line::WritePlace;
use dendra_node::{LineOf, LineTurns, WriteLine, WriteRoom, WriteSize, WriteSizes};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The most bytes of a record besides its value: its key, and the cell's other fields.
pub(super) const RECORD_HEAD_BYTES_MAX: usize = dendra_base::limits::STORED_KEY_BYTES_MAX + 128;

/// A write of the node that waits for room in the batch; its ticket is taken.
pub(super) struct WaitingOrder {
    pub(super) slot: u32,
    pub(super) key: Key,
    pub(super) cell: dendra_base::Cell,
    pub(super) guard: Guard,
}

impl WaitingOrder {
    /// The room that it takes in a batch, or a little more.
    pub(super) fn bytes(&self) -> usize {
        RECORD_HEAD_BYTES_MAX + self.cell.value.len()
    }
}

/// See the module.
pub(super) struct WriteLines {
    /// The sizes of the last writes of clients.
    pub(super) client_sizes: RefCell<WriteSizes>,
    /// Writes of clients that wait for room in this loop's batch, or until the engine is behind no
    /// longer.
    pub(super) clients: RefCell<WriteLine<Rc<Seat>>>,
    /// The first client was called, and its write comes next.
    pub(super) is_called: Cell<bool>,
    /// The sizes of the last orders that came, those that wait included.
    order_sizes: RefCell<WriteSizes>,
    /// Orders of the node that wait for room in this loop's batch.
    pub(super) orders: RefCell<WriteLine<WaitingOrder>>,
    order_bytes: Cell<usize>,
    /// Which of the two lines goes, when a write of each may.
    turns: RefCell<LineTurns>,
}

impl Default for WriteLines {
    fn default() -> WriteLines {
        WriteLines {
            client_sizes: RefCell::default(),
            clients: RefCell::default(),
            is_called: Cell::new(false),
            order_sizes: RefCell::default(),
            orders: RefCell::default(),
            order_bytes: Cell::new(0),
            turns: RefCell::new(LineTurns::new(dendra_node::limits::LINE_TURN_BYTES)),
        }
    }
}

impl WriteLines {
    /// The delay of a write of `bytes` where one of the mean size waits for `us`. Large writes that
    /// wait leave the reserve to the others: it bounds those, and only they make up the mean by
    /// then.
    pub(super) fn delay_us(&self, us: u64, bytes: u64, room: WriteRoom) -> u64 {
        let sizes = self.client_sizes.borrow();
        let size = sizes.size_of(bytes);
        let is_left_to_it = self.clients.borrow().leaves_room(size, room)
            || self.orders.borrow().leaves_room(size, room);
        if is_left_to_it {
            0
        } else {
            sizes.delay_us(us, bytes)
        }
    }

    /// The size of a client's write with a value of `bytes`, beside those of the last time.
    pub(super) fn size_of_write(&self, bytes: usize) -> WriteSize {
        self.client_sizes.borrow().size_of(bytes as u64)
    }

    /// The size of an order that has just come, beside those before it.
    pub(super) fn size_of_order(&self, bytes: usize) -> WriteSize {
        let mut sizes = self.order_sizes.borrow_mut();
        sizes.note(bytes as u64);
        sizes.size_of(bytes as u64)
    }

    /// Bytes of the orders that wait.
    pub(super) fn order_bytes(&self) -> usize {
        self.order_bytes.get()
    }

    /// An order waits from now on.
    pub(super) fn join_orders(&self, size: WriteSize, order: WaitingOrder) {
        self.order_bytes.set(self.order_bytes.get() + order.bytes());
        let _place = self.orders.borrow_mut().join(size, order);
    }

    /// An order that was taken out of the line.
    pub(super) fn note_order_left(&self, order: &WaitingOrder) {
        self.order_bytes.set(self.order_bytes.get() - order.bytes());
    }

    /// The orders that wait under one of `slots` leave the line. Requires: `slots` are sorted.
    pub(super) fn cancel_orders(&self, slots: &[u32]) -> Vec<WaitingOrder> {
        let mut line = self.orders.borrow_mut();
        let is_named = |order: &WaitingOrder| slots.binary_search(&order.slot).is_ok();
        let named = line.iter().filter(|(_, order)| is_named(order));
        let places: Vec<WritePlace> = named.map(|(place, _)| place).collect();
        let left = places.into_iter().filter_map(|place| line.leave(place));
        left.inspect(|order| self.note_order_left(order)).collect()
    }

    /// May the order go that is next in line, were there no clients? The batch has room for it at
    /// the next commit.
    pub(super) fn is_order_ready(&self, room: impl FnOnce() -> WriteRoom) -> bool {
        let line = self.orders.borrow();
        !line.is_empty() && line.next(room()).is_some()
    }

    /// May the client's write go that is next in line, were there no orders? The batch has room for
    /// it at the next commit.
    pub(super) fn is_client_ready(&self, room: impl FnOnce() -> WriteRoom) -> bool {
        let line = self.clients.borrow();
        !line.is_empty() && line.next(room()).is_some()
    }

    /// Is it the turn of this line?
    pub(super) fn is_turn_of(&self, line: LineOf, is_other_ready: bool) -> bool {
        self.turns.borrow().may_go(line, is_other_ready)
    }

    /// A write of this line went.
    pub(super) fn note_gone(&self, line: LineOf, bytes: u64, is_other_ready: bool) {
        let mut turns = self.turns.borrow_mut();
        turns.went(line, bytes, is_other_ready);
    }
}
