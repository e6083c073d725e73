//! The lines in front of one loop, and the real machines that decide in them.
//!
//! ```text
//! request ─► run queue ─ no line stands ─────────────────────────────► served
//!                 │      a line stands: Line ─ call ─► run queue ─► served, refused, or its client has gone
//! probe ──────────┘ its wait is the delay of the loop
//! served ─► pause by pressure ─► Gate ─► the node                 engine stopped: WriteLine of clients
//! order of the node ─► Gate ─► batch ─► log's queue               no room: WriteLine of orders
//!                                                                 room again: LineTurns of both lines
//! ```
//!
//! It drives them as the server's loop does (`event_loop/delay.rs` and `event_loop/thread/log.rs`
//! there), so that a run shows their faults and not its own.
//!
//! Invariants
//! 1. Every entry of the run queue is taken once, in the order in which it came.
//! 2. A request is in `asking` until it is begun, refused or dropped.
//! 3. A permit is held from the begin of an operation or order to its outcome.
//!
//! Not here: time, clients and the node (`world/doors.rs`); the ledgers of the checks
//! (`ledgers.rs`).

mod ledgers;
pub(crate) mod memtables;

use crate::check::Rule;
use crate::overload::{Crowd, DoorBounds};
use crate::pending::PendingWrite;
use dendra_base::Pressure;
use dendra_node::admission::line::{BatchState, WritePlace};
use dendra_node::standing::{AddressGroup, Called, LineChange, STANDING_US, TURN};
use dendra_node::step::{Event, StoreTicket};
use dendra_node::{
    Class, Gate, Line, LineOf, LineTurns, LocalGate, LocalPermit, WriteLine, WriteRoom, WriteSize,
    WriteSizes,
};
use ledgers::{ByteShares, LineGaps, LogPath, SourceTurns};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// The least time between two probes, as in the server.
const PROBE_US: u64 = 1_000;
/// One part in so many of the bytes in line is for orders that are not large, as in the server.
const ORDERS_SMALL_SHARE: usize = 8;
/// From one part in so many on a member is behind, as in the server.
const ORDERS_BEHIND_SHARE: usize = 2;

type DoorPermit = LocalPermit<Rc<LocalGate<Arc<Gate>>>, Arc<Gate>>;

/// The gates of a member, which its loops share.
#[derive(Debug)]
pub(crate) struct MemberGates {
    requests: Arc<Gate>,
    orders: Arc<Gate>,
}

impl MemberGates {
    pub(crate) fn new(bounds: &DoorBounds) -> MemberGates {
        MemberGates {
            requests: Arc::new(Gate::new(bounds.requests_max)),
            orders: Arc::new(Gate::new(bounds.orders_max)),
        }
    }
}

/// An entry of a loop's run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEntry {
    /// A request that is there to be read.
    Asked(u64),
    /// One that stood in line.
    Called(u64, Called),
    /// One whose pause, or whose wait for the engine, is over.
    Again(u64),
    /// The probe of the delay.
    Probe,
    /// The porter of the line.
    Porter,
    /// A happening of the member, by its number.
    Event(u64),
}

/// A request that is not begun.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) source: AddressGroup,
    pub(crate) class: Class,
    /// Bytes of the value.
    pub(crate) bytes: u64,
    pub(crate) deadline_us: u64,
    /// What the node is told.
    pub(crate) begin: Event,
    /// True when the request's pause is behind it.
    pub(crate) has_paused: bool,
    /// True when the request went out of the clients' line for the engine.
    pub(crate) is_called: bool,
    /// True when the request is in the run queue, and looks there whether it goes out of that line.
    pub(crate) is_woken: bool,
    /// True when the request stood in the loop's line.
    pub(crate) has_stood: bool,
}

/// The fate of an order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OrderFate {
    /// In the batch, or in line.
    Taken,
    /// There is no room for it.
    Busy,
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorCounts {
    /// Times at which a line began.
    pub lines: u64,
    /// Requests that were begun.
    pub begun: u64,
    /// Requests that were refused before.
    pub refused: u64,
    /// Requests that were not begun because their client had gone.
    pub gone: u64,
    /// Orders that waited in line.
    pub waited: u64,
    /// Orders that were refused.
    pub busy: u64,
    /// Writes of clients that waited for the engine.
    pub stopped: u64,
}

impl DoorCounts {
    /// Adds those of another loop or run.
    pub fn add(&mut self, other: DoorCounts) {
        self.lines += other.lines;
        self.begun += other.begun;
        self.refused += other.refused;
        self.gone += other.gone;
        self.waited += other.waited;
        self.busy += other.busy;
        self.stopped += other.stopped;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneDoor {
    bounds: DoorBounds,
    run: VecDeque<RunEntry>,
    /// Entries of the member in it.
    pub(crate) events: usize,
    /// Is the taking of the next entry in the schedule?
    pub(crate) is_due: bool,
    line: Line<u64>,
    is_porter_rung: bool,
    /// When the probe was rung that waits now, and when the next sample is due.
    rung_us: Option<u64>,
    due_us: u64,
    pub(crate) asking: BTreeMap<u64, Asking>,
    requests: Rc<LocalGate<Arc<Gate>>>,
    permits: BTreeMap<u64, DoorPermit>,
    orders: Rc<LocalGate<Arc<Gate>>>,
    order_permits: BTreeMap<StoreTicket, DoorPermit>,
    write_sizes: WriteSizes,
    order_sizes: WriteSizes,
    client_line: WriteLine<u64>,
    client_places: BTreeMap<u64, WritePlace>,
    order_line: WriteLine<PendingWrite>,
    order_line_bytes: usize,
    line_turns: LineTurns,
    gaps: LineGaps,
    batch: Vec<PendingWrite>,
    batch_bytes: usize,
    turns: SourceTurns,
    shares: ByteShares,
    pub(crate) counts: DoorCounts,
    /// Time that was spent on requests while the crowd asked, and the part of it whose clients got
    /// what they asked for.
    pub(crate) spent_us: u64,
    pub(crate) useful_us: u64,
    /// Spent on refusals of a full gate.
    pub(crate) unspent_us: u64,
}

/// The size of an order as the ledger counts it.
fn counted(size: WriteSize) -> u64 {
    size.bytes.max(dendra_node::limits::DELAY_WRITE_BYTES_MIN)
}

impl LaneDoor {
    /// Door of a loop of a member that starts.
    pub(crate) fn new(overload: &Crowd, gates: &MemberGates, lanes: usize) -> LaneDoor {
        let door_in = |gate: &Arc<Gate>| Rc::new(LocalGate::new(Arc::clone(gate), lanes));
        LaneDoor {
            bounds: overload.bounds,
            run: VecDeque::new(),
            events: 0,
            is_due: false,
            line: Line::new(overload.target_us),
            is_porter_rung: false,
            rung_us: None,
            due_us: 0,
            asking: BTreeMap::new(),
            requests: door_in(&gates.requests),
            permits: BTreeMap::new(),
            orders: door_in(&gates.orders),
            order_permits: BTreeMap::new(),
            write_sizes: WriteSizes::default(),
            order_sizes: WriteSizes::default(),
            client_line: WriteLine::default(),
            client_places: BTreeMap::new(),
            order_line: WriteLine::default(),
            order_line_bytes: 0,
            line_turns: LineTurns::new(overload.bounds.turn_bytes),
            gaps: LineGaps::new(overload.bounds.turn_bytes),
            batch: Vec::new(),
            batch_bytes: 0,
            turns: SourceTurns::default(),
            shares: ByteShares::default(),
            counts: DoorCounts::default(),
            spent_us: 0,
            useful_us: 0,
            unspent_us: 0,
        }
    }

    // The run queue.

    pub(crate) fn push(&mut self, entry: RunEntry) {
        self.events += usize::from(matches!(entry, RunEntry::Event(_)));
        self.run.push_back(entry);
    }

    pub(crate) fn pop(&mut self) -> Option<RunEntry> {
        let entry = self.run.pop_front()?;
        self.events -= usize::from(matches!(entry, RunEntry::Event(_)));
        Some(entry)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.run.is_empty()
    }

    // The delay of the loop, and its line.

    pub(crate) fn is_standing(&self) -> bool {
        self.line.is_standing()
    }

    /// Bytes were read: looks whether it is time for a probe, or whether one is late.
    pub(crate) fn look(&mut self, now_us: u64) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = now_us + STANDING_US;
        match self.rung_us {
            None => {
                self.rung_us = Some(now_us);
                self.push(RunEntry::Probe);
            }
            Some(rung_us) => self.sample(now_us, now_us.saturating_sub(rung_us)),
        }
    }

    /// The probe has its turn.
    pub(crate) fn probe(&mut self, now_us: u64) {
        if let Some(rung_us) = self.rung_us.take() {
            self.due_us = now_us + PROBE_US;
            self.sample(now_us, now_us.saturating_sub(rung_us));
        }
    }

    fn sample(&mut self, now_us: u64, lag_us: u64) {
        if self.line.sample(now_us, lag_us) == Some(LineChange::Begins) {
            self.counts.lines += 1;
            self.ring_porter();
        }
    }

    /// A request stands in line.
    pub(crate) fn stand(&mut self, now_us: u64, ticket: u64) {
        if let Some(asking) = self.asking.get_mut(&ticket) {
            asking.has_stood = true;
            self.line.join(now_us, asking.source, ticket);
            self.turns.join(asking.source);
            self.ring_porter();
        }
    }

    pub(crate) fn ring_porter(&mut self) {
        if !self.is_porter_rung {
            self.is_porter_rung = true;
            self.push(RunEntry::Porter);
        }
    }

    /// The porter has its turn: calls requests out of the line. The first rule that this breaks.
    pub(crate) fn call(&mut self, now_us: u64) -> Result<(), String> {
        self.is_porter_rung = false;
        if !self.line.is_standing() {
            return Ok(());
        }
        let mut called = Vec::new();
        let turns = TURN.min(self.line.len());
        self.line.call(now_us, &mut called);
        let mut fair = Ok(());
        for (number, (ticket, what)) in called.into_iter().enumerate() {
            if let Some(asking) = self.asking.get(&ticket) {
                let is_turn = number < turns;
                let seen = if is_turn {
                    self.turns.turn(asking.source)
                } else {
                    self.turns.leave(asking.source);
                    Ok(())
                };
                fair = fair.and(seen);
            }
            self.push(RunEntry::Called(ticket, what));
        }
        if self.line.is_standing() && !self.line.is_empty() {
            self.ring_porter();
        }
        fair
    }

    /// Does it tell members that it is behind, also when its store is not?
    pub(crate) fn is_behind(&self, now_us: u64) -> bool {
        let most = self.bounds.order_bytes_max;
        self.order_line_bytes >= most / ORDERS_BEHIND_SHARE
            || self.orders.used() >= self.bounds.orders_max
            || self.line.is_standing()
                && self.line.crowding(now_us) == dendra_node::standing::Crowding::Beyond
    }

    // Operations of clients.

    /// Room for one operation.
    pub(crate) fn hold(&mut self, ticket: u64) -> bool {
        let permit = LocalGate::offer(Rc::clone(&self.requests), 1);
        permit.is_some_and(|permit| self.permits.insert(ticket, permit).is_none())
    }

    /// The operation is over; was it begun?
    pub(crate) fn release(&mut self, ticket: u64) -> bool {
        self.permits.remove(&ticket).is_some()
    }

    /// Operations that are begun and not over, as this shell counts them.
    pub(crate) fn operations(&self) -> u64 {
        self.permits.len() as u64
    }

    /// The pause of a write of `bytes` where one of the mean size waits for `us`.
    pub(crate) fn pause_us(&self, us: u64, bytes: u64, pressure: Pressure) -> u64 {
        let (size, room) = (self.write_sizes.size_of(bytes), WriteRoom::of(pressure));
        let is_left_to_it =
            self.client_line.leaves_room(size, room) || self.order_line.leaves_room(size, room);
        if is_left_to_it {
            0
        } else {
            self.write_sizes.delay_us(us, bytes)
        }
    }

    pub(crate) fn note_write(&mut self, bytes: u64) {
        self.write_sizes.note(bytes);
    }

    /// A client's write waits for an engine that is not behind.
    pub(crate) fn wait_for_engine(&mut self, ticket: u64, bytes: u64) {
        let size = self.write_sizes.size_of(bytes);
        let place = self.client_line.join(size, ticket);
        self.client_places.insert(ticket, place);
        self.counts.stopped += 1;
    }

    /// Takes a request out of the line for the engine; `false` when it did not wait.
    pub(crate) fn forgo_engine(&mut self, ticket: u64) -> bool {
        let place = self.client_places.remove(&ticket);
        place.is_some_and(|place| self.client_line.leave(place).is_some())
    }

    /// Wakes the first client whose write waits, if it may go: `true` when it is in the run queue
    /// from now on.
    pub(crate) fn wake_client(&mut self, room: WriteRoom) -> bool {
        let Some((_, &ticket)) = self.client_line.next(room) else {
            return false;
        };
        let is_order_ready = self.is_order_ready(room);
        let wakes = self.line_turns.may_go(LineOf::Clients, is_order_ready)
            && self
                .asking
                .get_mut(&ticket)
                .is_some_and(|asking| !std::mem::replace(&mut asking.is_woken, true));
        if wakes {
            self.push(RunEntry::Again(ticket));
        }
        wakes
    }

    /// A request was woken. If it waits in line it goes now, or waits on: is it in line no longer?
    /// And the rule that this breaks.
    pub(crate) fn go_client(&mut self, ticket: u64, room: WriteRoom) -> (bool, Result<(), String>) {
        let Some(asking) = self.asking.get_mut(&ticket) else {
            return (true, Ok(()));
        };
        asking.is_woken = false;
        let bytes = asking.bytes;
        let Some(place) = self.client_places.get(&ticket).copied() else {
            return (true, Ok(()));
        };
        let is_order_ready = self.is_order_ready(room);
        let is_next = self.client_line.next(room).is_some_and(|it| it.0 == place);
        if !is_next || !self.line_turns.may_go(LineOf::Clients, is_order_ready) {
            return (false, Ok(()));
        }
        if let Some(called) = self.asking.get_mut(&ticket) {
            called.is_called = true;
        }
        self.client_line.go(place);
        self.client_places.remove(&ticket);
        self.line_turns.went(LineOf::Clients, bytes, is_order_ready);
        let counted = bytes.max(dendra_node::limits::DELAY_WRITE_BYTES_MIN);
        let fair = self.gaps.went(LineOf::Clients, counted, is_order_ready);
        (true, fair)
    }

    /// May the order go that is next in line, were there no clients? The batch has room for it at
    /// the next commit.
    fn is_order_ready(&self, room: WriteRoom) -> bool {
        self.order_line.next(room).is_some()
    }

    /// May the client's write go that is next in line, were there no orders?
    fn is_client_ready(&self, room: WriteRoom) -> bool {
        self.client_line.next(room).is_some()
    }

    // Orders of the node.

    /// A write to the own store.
    pub(crate) fn order(
        &mut self,
        ticket: StoreTicket,
        pending: PendingWrite,
        room: WriteRoom,
    ) -> (OrderFate, Result<(), (Rule, String)>) {
        let value_bytes = pending.write.cell.value.len() as u64;
        self.order_sizes.note(value_bytes);
        let size = self.order_sizes.size_of(value_bytes);
        let bytes = pending.bytes();
        let may_pass =
            room != WriteRoom::Stopped && self.order_line.may_pass(size, room, self.batch_state());
        let is_client_ready = self.is_client_ready(room);
        let is_passing = may_pass
            && self.has_batch_room(bytes)
            && self.line_turns.may_go(LineOf::Orders, is_client_ready);
        let waiting = self.order_line_bytes;
        if !is_passing && waiting > 0 && waiting + bytes > self.order_bytes_max(size) {
            self.counts.busy += 1;
            return (OrderFate::Busy, Ok(()));
        }
        let Some(permit) = LocalGate::offer(Rc::clone(&self.orders), 1) else {
            self.counts.busy += 1;
            return (OrderFate::Busy, Ok(()));
        };
        self.order_permits.insert(ticket, permit);
        if is_passing {
            self.order_line.passed(size);
            let fair = self.note_order(size, LogPath::PastLine, is_client_ready);
            self.put(pending);
            return (OrderFate::Taken, fair);
        }
        self.counts.waited += 1;
        self.order_line_bytes += bytes;
        self.shares.join(counted(size));
        let _place = self.order_line.join(size, pending);
        (OrderFate::Taken, Ok(()))
    }

    fn order_bytes_max(&self, size: WriteSize) -> usize {
        let most = self.bounds.order_bytes_max;
        if size.is_large {
            most - most / ORDERS_SMALL_SHARE
        } else {
            most
        }
    }

    /// An order goes: the rule that this breaks.
    fn note_order(
        &mut self,
        size: WriteSize,
        path: LogPath,
        is_client_ready: bool,
    ) -> Result<(), (Rule, String)> {
        let counted = counted(size);
        self.line_turns
            .went(LineOf::Orders, size.bytes, is_client_ready);
        let starved = self.gaps.went(LineOf::Orders, counted, is_client_ready);
        let fair = self.shares.go(counted, path);
        fair.map_err(|what| (Rule::Unfair, what))
            .and(starved.map_err(|what| (Rule::Starved, what)))
    }

    /// The first order in line goes into the batch, if it may go and there is room for it.
    pub(crate) fn push_order(&mut self, room: WriteRoom) -> Option<Result<(), (Rule, String)>> {
        let (place, waiting) = self.order_line.next(room)?;
        let (bytes, value_bytes) = (waiting.bytes(), waiting.write.cell.value.len() as u64);
        let is_client_ready = self.is_client_ready(room);
        if !self.has_batch_room(bytes) || !self.line_turns.may_go(LineOf::Orders, is_client_ready) {
            return None;
        }
        let size = WriteSize {
            bytes: value_bytes,
            is_large: false,
        };
        let order = self.order_line.go(place)?;
        let fair = self.note_order(size, LogPath::FromLine, is_client_ready);
        self.shares.leave(counted(size));
        self.order_line_bytes -= bytes;
        self.put(order);
        Some(fair)
    }

    /// Takes orders that wait out of the line: those that the node does not want any more.
    pub(crate) fn cancel(&mut self, is_named: impl Fn(&PendingWrite) -> bool) -> Vec<PendingWrite> {
        let named = self.order_line.iter().filter(|(_, it)| is_named(it));
        let places: Vec<WritePlace> = named.map(|(place, _)| place).collect();
        let mut taken = Vec::new();
        for place in places {
            if let Some(order) = self.order_line.leave(place) {
                self.order_line_bytes -= order.bytes();
                let bytes = order.write.cell.value.len() as u64;
                let size = WriteSize {
                    bytes,
                    is_large: false,
                };
                self.shares.take_back(counted(size));
                taken.push(order);
            }
        }
        taken
    }

    /// The order has its result.
    pub(crate) fn release_order(&mut self, ticket: StoreTicket) {
        self.order_permits.remove(&ticket);
    }

    /// Orders that have no result.
    pub(crate) fn orders(&self) -> u64 {
        self.order_permits.len() as u64
    }

    /// Bytes of the batch, of which the memtables will hear.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    fn put(&mut self, pending: PendingWrite) {
        self.batch_bytes += pending.bytes();
        self.batch.push(pending);
    }

    fn batch_state(&self) -> BatchState {
        if self.batch.is_empty() {
            BatchState::Empty
        } else {
            BatchState::Begun
        }
    }

    fn has_batch_room(&self, bytes: usize) -> bool {
        self.batch.is_empty()
            || (self.batch.len() < self.bounds.batch_len_max
                && self.batch_bytes + bytes <= self.bounds.batch_bytes_max)
    }

    /// The batch, if the log's queue with so many writes and bytes has room for it.
    pub(crate) fn take_batch(&mut self, len: usize, bytes: usize) -> Option<Vec<PendingWrite>> {
        let fits = len == 0
            || (len + self.batch.len() <= self.bounds.log_len_max
                && bytes + self.batch_bytes <= self.bounds.log_bytes_max);
        if self.batch.is_empty() || !fits {
            return None;
        }
        self.batch_bytes = 0;
        Some(std::mem::take(&mut self.batch))
    }

    /// Where the loop holds more than it may.
    pub(crate) fn beyond_bounds(&self) -> Option<String> {
        let bounds = &self.bounds;
        let line_bytes: usize = self.order_line.iter().map(|(_, it)| it.bytes()).sum();
        let is_one = self.order_line.len() <= 1;
        let rows = [
            ("requests in line", self.line.len(), self.asking.len()),
            (
                "requests that are not begun",
                self.asking.len(),
                bounds.connections_max,
            ),
            ("events", self.events, bounds.events_max),
            (
                "bytes of orders in line",
                line_bytes,
                if is_one {
                    usize::MAX
                } else {
                    bounds.order_bytes_max
                },
            ),
            (
                "writes of a batch",
                self.batch.len(),
                bounds.batch_len_max.max(1),
            ),
            (
                "writes in line for the engine",
                self.client_line.len(),
                self.asking.len(),
            ),
        ];
        rows.iter()
            .find(|(_, is, most)| is > most)
            .map(|(what, is, most)| format!("{is} {what}, and {most} is the bound"))
    }

    /// What is left of an overload. Hints that are delivered are orders, too.
    pub(crate) fn remains(&self) -> Option<String> {
        first_left(&[
            ("requests", self.asking.len() as u64),
            ("operations", self.operations()),
            ("room of operations", self.requests.used()),
            ("lines", u64::from(self.line.is_standing())),
        ])
    }

    /// What is left when nothing is going on at all.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let left = first_left(&[
            ("orders", self.orders()),
            ("room of orders", self.orders.used()),
            ("orders in line", self.order_line.len() as u64),
            ("bytes of orders in line", self.order_line_bytes as u64),
            ("writes of a batch", self.batch.len() as u64),
            (
                "writes in line for the engine",
                self.client_line.len() as u64,
            ),
        ]);
        self.remains().or(left)
    }
}

fn first_left(rows: &[(&str, u64)]) -> Option<String> {
    rows.iter()
        .find(|(_, is)| *is > 0)
        .map(|(what, is)| format!("{is} {what}"))
}
