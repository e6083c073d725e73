//! One event loop: a thread, the connections that live on it, and their writes as one batch.
//!
//! ```text
//! mailbox ─► pump ─┬─ Connection ─► one task
//!                  ├─ Written    ─► ticket ─► seat of the connection, woken when its last one is in
//!                  ├─ Answered   ─► ticket ─► seat
//!                  └─ Drain, Poisoned, Stop ─► all seats
//! connection ─► push_write ─► batch ─► committer, once per turn ─► submit (sync) or try_commit (os)
//! sweep, every 100 ms ─► seats whose deadline passed
//! ```
//!
//! Invariants
//! 1. Nothing here waits for a disk or a lock that is held across one.
//! 2. A write that was pushed has a ticket until its outcome came, even when its connection is
//!    gone. A result for a round that is over is dropped in silence.
//! 3. All writes of one turn of the loop are one submission.
//! 4. Requests waiting and bytes held are counted here and never exceed this loop's share.
//!
//! Not here: HTTP (`connection/`), accepting (`listener.rs`), committing with durability `sync`
//! (`wal_thread.rs`).
//! See: docs/overload.md.

mod log;

use crate::clock::{self, ClockReading};
use crate::disk::work::{PoolAnswer, StoreJob, StoreWork};
use crate::disk::{orders, wal_thread};
use crate::event_loop::delay::{self, Delay};
use crate::event_loop::giving_way::{self, GivingWay};
use crate::event_loop::mailbox::LoopEvent;
use crate::event_loop::shared::{LoopHandle, Phase, Shared};
use crate::front::desk::{FrontDesk, FrontJob, FrontWork};
use crate::limits;
use crate::measure::metrics::{LoopMetrics, OpLabel, RefusalCause};
use crate::measure::profile;
use crate::measure::stages::{SampleDraw, Watch};
use crate::peers::{Agent, routes};
use crate::tls::ByteStream;
use crate::waiting::connection_gate::ConnectionPlace;
use crate::waiting::room::Rooms;
use crate::waiting::seat::{LocalBell, Seat, WakeReason};
use crate::waiting::source_requests::{RequestPermit, SourceGate};
use crate::waiting::unproven::Unproven;
use dendra_base::Key;
use dendra_base::Now;
use dendra_base::peer::Readiness;
use dendra_engine::{Batch, Guard, Pressure, WriteOutcome};
use dendra_node::step::{Event, StoreTicket};
use dendra_node::{
    Admission, Class, Gate, LineTurns, LocalGate, WriteLine, WriteRoom, WriteSize, WriteSizes,
};
use dendra_ownership::{Layout, MemberIndex, Topology};
use dendra_wire::KeyBuf;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use tokio::net::TcpStream;

/// The owner of an expected event. Its room in the gate comes back with it.
struct Ticket {
    target: Target,
    _permit: RequestPermit,
}

/// The receiver of a result.
pub(crate) enum Target {
    /// A connection of this loop.
    Seat {
        seat: Rc<Seat>,
        round: u32,
        place: u32,
    },
    /// The loop's node, under the node's own mark.
    Node(StoreTicket),
    /// The loop's node: a clock ceiling is durable.
    Cover(u64),
}

impl Target {
    /// The next place of the seat, in its round now.
    fn of(seat: &Rc<Seat>) -> Target {
        Target::Seat {
            seat: Rc::clone(seat),
            round: seat.round(),
            place: seat.next_place(),
        }
    }
}

/// One event loop, seen from its own thread.
pub(crate) struct EventLoop {
    pub(crate) shared: Arc<Shared>,
    index: usize,
    hooks: &'static LoopHooks,
    tick: Cell<ClockReading>,
    draw: SampleDraw,
    /// Seats of all connections of the loop.
    seats: RefCell<Slab<Rc<Seat>>>,
    /// Tickets of all results that other threads owe to the loop.
    tickets: RefCell<Slab<Ticket>>,
    /// The writes of this turn, until they are submitted together.
    batch: RefCell<Batch>,
    batch_bytes_max: usize,
    commit_due: LocalBell,
    /// Scratch space for the outcomes of a commit that this loop makes itself.
    done: RefCell<Vec<(u64, WriteOutcome)>>,
    /// Scratch space for events, by loop.
    groups: RefCell<Vec<Vec<LoopEvent>>>,
    pressure: Cell<Pressure>,
    write_sizes: RefCell<WriteSizes>,
    requests: Rc<SourceGate>,
    /// Room for orders of the node: peers do not pass the clients' gate.
    orders: Rc<LocalGate<Arc<Gate>>>,
    pub(crate) bytes: Rc<Rooms>,
    pub(crate) scan_bytes: Rc<Rooms>,
    pub(crate) value_bytes: Rc<Rooms>,
    /// Unwanted bytes that may still be read before the next sweep.
    discard_left: Cell<usize>,
    /// Orders of the node that wait for room in this loop's batch, and their bytes.
    order_line: RefCell<WriteLine<WaitingOrder>>,
    order_line_bytes: Cell<usize>,
    /// The sizes of the last orders that came, those that wait included.
    order_sizes: RefCell<WriteSizes>,
    /// Writes of clients that wait for room in this loop's batch, or until the engine is behind no
    /// longer.
    log_line: RefCell<WriteLine<Rc<Seat>>>,
    /// Which of the two lines goes, when a write of each may.
    turns: RefCell<LineTurns>,
    /// The first client was called, and its write comes next.
    is_called: Cell<bool>,
    spare_inputs: RefCell<Vec<Vec<u8>>>,
    spare_outputs: RefCell<Vec<Vec<u8>>>,
    /// The node of this loop, in a cluster of more than one.
    agent: Option<Rc<Agent>>,
    /// A clock ceiling that is still to be noted: the log's queue had no room for it.
    uncovered: Cell<Option<u64>>,
    /// The settings that decide about requests.
    routes: Cell<dendra_wire::RequestRules>,
    /// The key of the request that is looked at: one buffer for all connections of the loop.
    pub(crate) key: RefCell<KeyBuf>,
    is_draining: Cell<bool>,
    is_poisoned: Cell<bool>,
    /// Connections in the middle of their TLS handshake.
    pub(crate) handshakes: Unproven,
    /// Connections beyond the gate whose other side is not known to be a member.
    pub(crate) beyond: Unproven,
    /// How long requests wait for this loop.
    pub(crate) delay: Rc<Delay>,
    /// Reads that come after those of other connections.
    pub(crate) giving_way: Rc<GivingWay>,
    /// Sockets that are to be closed; each is a connection of the gate until then.
    ended_sockets: RefCell<Vec<(ByteStream, ConnectionGuard)>>,
    close_due: LocalBell,
    /// Rung when the loop should end.
    ended: LocalBell,
}

/// The most bytes of a record besides its value: its key, and the cell's other fields.
const RECORD_HEAD_BYTES_MAX: usize = dendra_base::limits::STORED_KEY_BYTES_MAX + 128;
/// Room that is given back at once is free.
const NO_SOURCE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Spare buffers kept for reuse; more than this many are never in use at once without waiting.
const SPARES_MAX: usize = 16;

/// A write of the node that waits for room in the batch; its ticket is taken.
struct WaitingOrder {
    slot: u32,
    key: Key,
    cell: dendra_base::Cell,
    guard: Guard,
}

impl WaitingOrder {
    fn bytes(&self) -> usize {
        RECORD_HEAD_BYTES_MAX + self.cell.value.len()
    }
}

/// Functions of the modules above an event loop. The loop calls them, and imports none of them.
pub(crate) struct LoopHooks {
    /// Starts the task of one connection.
    pub(crate) serve: fn(ConnectionGuard, Rc<Seat>, IpAddr, TcpStream),
    /// Starts the turns of the loop's agent.
    pub(crate) turns: fn(&Rc<EventLoop>, Rc<Agent>),
    /// Starts the link to a member.
    pub(crate) link: fn(&Rc<EventLoop>, &Rc<Agent>, MemberIndex),
    /// Looks after the loop's agent, once per sweep.
    pub(crate) sweep: fn(&Rc<EventLoop>, &Rc<Agent>),
    /// Begins the work that a node has once, on its first loop.
    pub(crate) begin: fn(&Rc<EventLoop>),
}

/// Starts the event loop `index` of `shared`, under `hooks`.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    index: usize,
    hooks: &'static LoopHooks,
) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name(format!("loop-{index}"))
        .spawn(move || {
            let _seat = profile::register(profile::ThreadKind::Loop);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(run(Rc::new(EventLoop::new(shared, index, hooks)))),
                Err(error) => {
                    tracing::error!(%error, "an event loop could not start");
                    wal_thread::poison(&shared, "an event loop could not start");
                }
            }
        })
}

async fn run(lane: Rc<EventLoop>) {
    tokio::task::spawn_local(pump(Rc::clone(&lane)));
    tokio::task::spawn_local(commit_when_due(Rc::clone(&lane)));
    tokio::task::spawn_local(close_when_due(Rc::clone(&lane)));
    tokio::task::spawn_local(sweep(Rc::clone(&lane)));
    tokio::task::spawn_local(delay::probe(Rc::clone(&lane.delay)));
    tokio::task::spawn_local(delay::porter(Rc::clone(&lane.delay)));
    tokio::task::spawn_local(giving_way::porter(Rc::clone(&lane.giving_way)));
    if let Some(agent) = lane.agent() {
        for member in agent.others() {
            (lane.hooks.link)(&lane, &agent, member);
        }
        (lane.hooks.turns)(&lane, agent);
    }
    lane.ended.rung().await;
    // They hold the loop that holds them.
    drop(lane.ended_sockets.take());
}

async fn pump(lane: Rc<EventLoop>) {
    let mut events = Vec::with_capacity(64);
    let mut newcomers = Vec::new();
    loop {
        lane.handle().mailbox.wait().await;
        lane.handle().mailbox.take(&mut events);
        lane.refresh();
        for event in events.drain(..) {
            match event {
                LoopEvent::Connection(stream, place) => newcomers.push((stream, place)),
                event => lane.handle_event(event),
            }
        }
        in_turns(
            newcomers.drain(..),
            limits::CONNECTIONS_A_TURN,
            |(stream, place)| {
                lane.take_connection(stream, place);
            },
        )
        .await;
    }
}

/// Gives `take` all `items`, a few at a time: other tasks have a turn in between.
async fn in_turns<T>(items: impl Iterator<Item = T>, few: usize, mut take: impl FnMut(T)) {
    for (n, item) in items.enumerate() {
        if n > 0 && n % few == 0 {
            tokio::task::yield_now().await;
        }
        take(item);
    }
}

async fn commit_when_due(lane: Rc<EventLoop>) {
    loop {
        lane.commit_due.rung().await;
        lane.commit();
        lane.call_those_in_line();
    }
}

/// Closes a few sockets at a time: ten thousand at once are a tenth of a second of work, which
/// requests do not wait for.
async fn close_when_due(lane: Rc<EventLoop>) {
    loop {
        lane.close_due.rung().await;
        while !lane.ended_sockets.borrow().is_empty() {
            let few = {
                let mut sockets = lane.ended_sockets.borrow_mut();
                let left = sockets.len().saturating_sub(limits::CLOSES_A_TURN);
                sockets.split_off(left)
            };
            drop(few);
            tokio::task::yield_now().await;
        }
    }
}

async fn sweep(lane: Rc<EventLoop>) {
    let mut interval = tokio::time::interval(limits::SWEEP);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        lane.refresh();
        lane.pressure.set(lane.shared.engine.pressure());
        lane.metrics().requests_held.set(lane.requests.used());
        lane.metrics().bytes_held.set(lane.bytes.used());
        lane.metrics()
            .bytes_waiting
            .set(lane.bytes.waiting() + lane.scan_bytes.waiting() + lane.value_bytes.waiting());
        let in_line = lane.log_line.borrow().len();
        lane.metrics().log_line.set(in_line as u64);
        let in_line = lane.order_line.borrow().len();
        lane.metrics().order_line.set(in_line as u64);
        lane.discard_left.set(limits::DISCARD_BYTES_PER_SWEEP);
        lane.bytes.sweep();
        lane.scan_bytes.sweep();
        lane.value_bytes.sweep();
        lane.call_those_in_line();
        let now_us = lane.now_us();
        lane.delay.sweep(now_us);
        for (_, seat) in lane.seats.borrow().iter() {
            seat.check_deadline(now_us);
        }
        if let Some(agent) = &lane.agent {
            (lane.hooks.sweep)(&lane, agent);
        }
    }
}

impl EventLoop {
    fn new(shared: Arc<Shared>, index: usize, hooks: &'static LoopHooks) -> EventLoop {
        let loops = shared.lanes.len();
        let settings = &shared.settings;
        let options = settings.engine_options();
        let topology = shared.cluster.as_ref().map(|cluster| cluster.topology());
        let topology = topology.as_deref();
        let copies = shared.front.as_ref().map_or(1, |desk| desk.shape.copies);
        let giving_way = Rc::default();
        let local = |gate: &Arc<Gate>| Rc::new(LocalGate::new(Arc::clone(gate), loops));
        EventLoop {
            index,
            hooks,
            tick: Cell::new(clock::tick()),
            draw: SampleDraw::new(index),
            seats: RefCell::default(),
            tickets: RefCell::default(),
            batch: RefCell::default(),
            batch_bytes_max: options.commit_queue_bytes_max / 2,
            commit_due: LocalBell::default(),
            done: RefCell::default(),
            groups: RefCell::new((0..loops).map(|_| Vec::new()).collect()),
            pressure: Cell::new(shared.engine.pressure()),
            write_sizes: RefCell::default(),
            requests: Rc::new(SourceGate::new(local(&shared.requests), loops)),
            orders: local(&shared.orders),
            bytes: Rc::new(Rooms::new(&shared.bytes, loops)),
            scan_bytes: Rc::new(Rooms::new(&shared.scan_bytes, loops)),
            value_bytes: Rc::new(Rooms::new(&shared.value_bytes, loops)),
            discard_left: Cell::new(limits::DISCARD_BYTES_PER_SWEEP),
            order_line: RefCell::default(),
            order_line_bytes: Cell::new(0),
            order_sizes: RefCell::default(),
            log_line: RefCell::default(),
            turns: RefCell::new(LineTurns::new(dendra_node::limits::LINE_TURN_BYTES)),
            is_called: Cell::new(false),
            agent: shared.cluster.as_ref().map(|cluster| {
                Rc::new(Agent::new(cluster, index, settings, clock::monotonic_us()))
            }),
            uncovered: Cell::new(None),
            routes: Cell::new(dendra_wire::RequestRules {
                nodes: topology.map_or(copies, Topology::live),
                replication_factor: topology.map_or(copies, Topology::replication_factor),
                key_bytes_max: dendra_base::limits::KEY_BYTES_MAX,
                value_bytes_max: settings.value_bytes_max as u64,
            }),
            key: RefCell::default(),
            spare_inputs: RefCell::default(),
            spare_outputs: RefCell::default(),
            is_draining: Cell::new(false),
            is_poisoned: Cell::new(false),
            handshakes: Unproven::new(limits::HANDSHAKES_MAX, loops, &shared.handshakes),
            beyond: Unproven::new(
                limits::CONNECTIONS_BEYOND_UNPROVEN_MAX,
                loops,
                &Arc::default(),
            ),
            delay: Rc::new(Delay::new(&shared, index, &giving_way)),
            giving_way,
            ended_sockets: RefCell::default(),
            close_due: LocalBell::default(),
            ended: LocalBell::default(),
            shared,
        }
    }

    /// This loop as the other threads see it.
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.shared.lanes[self.index]
    }

    /// This loop's counters.
    pub(crate) fn metrics(&self) -> &LoopMetrics {
        &self.handle().metrics
    }

    /// Reads the clocks for the rest of this turn, the wall clock at most once a millisecond.
    pub(crate) fn refresh(&self) {
        self.tick.set(self.tick.get().later());
    }

    /// Microseconds as of the last `refresh`.
    pub(crate) fn now_us(&self) -> u64 {
        self.tick.get().monotonic_ns / 1_000
    }

    /// Both clocks as of the last `refresh`.
    pub(crate) fn now(&self) -> Now {
        self.tick.get().now()
    }

    /// Wall milliseconds as of the last `refresh`.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.tick.get().wall_ms()
    }

    /// The watch of the next request: running for about one in sixteen.
    pub(crate) fn watch(&self) -> Watch {
        self.draw.watch()
    }

    /// Counts a request that was answered without a wait. Start = the clock reading at the end of
    /// the previous request, so that each request costs one reading.
    pub(crate) fn finish(&self, op: OpLabel, status: u16) {
        let began_ns = self.tick.get().monotonic_ns;
        self.finish_since(op, status, began_ns);
    }

    /// Counts a request that began at `began_ns` and is answered now.
    pub(crate) fn finish_since(&self, op: OpLabel, status: u16, began_ns: u64) {
        let now_ns = clock::monotonic_ns();
        let took_ns = now_ns.saturating_sub(began_ns);
        self.metrics().note(op, status, took_ns);
        self.tick.set(self.tick.get().at(now_ns));
    }

    /// Notes a request that began at `began_ns` and whose answer begins now.
    pub(crate) fn note_head_since(&self, op: OpLabel, status: u16, began_ns: u64) {
        let now_ns = clock::monotonic_ns();
        let took_ns = now_ns.saturating_sub(began_ns);
        self.metrics().note_head(op, status, took_ns);
        self.tick.set(self.tick.get().at(now_ns));
    }

    /// Nanoseconds as of the last `refresh` or `finish`.
    pub(crate) fn now_ns(&self) -> u64 {
        self.tick.get().monotonic_ns
    }

    /// Should connections end as soon as their current request is answered?
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Did the log fail? Then no write is taken any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned.get()
    }

    fn handle_event(self: &Rc<EventLoop>, event: LoopEvent) {
        match event {
            LoopEvent::Connection(stream, place) => self.take_connection(stream, place),
            LoopEvent::Written { token, outcome } => {
                self.take_outcome(wal_thread::token_slot(token), outcome);
            }
            LoopEvent::Answered { slot, answer } => self.take_answer(slot, answer),
            LoopEvent::QueueFree => {
                self.commit_due.ring();
                self.call_those_in_line();
            }
            LoopEvent::Lost(spans) => Agent::lose(self.agent.as_deref(), spans),
            LoopEvent::Drain => {
                self.is_draining.set(true);
                self.tell_all(WakeReason::Drain);
            }
            LoopEvent::Adopt(layout) => self.adopt(&layout),
            LoopEvent::Begin => (self.hooks.begin)(self),
            LoopEvent::Poisoned => {
                self.is_poisoned.set(true);
                self.tell_all(WakeReason::Poisoned);
            }
            LoopEvent::Stop => {
                self.ended.ring();
            }
        }
    }

    /// A later epoch: the loop's node gets it, and new members get links.
    fn adopt(self: &Rc<EventLoop>, layout: &Arc<Layout>) {
        let Some(agent) = self.agent() else { return };
        self.routes.set(routes(layout, self.routes.get()));
        for member in agent.adopt(layout) {
            (self.hooks.link)(self, &agent, member);
        }
    }

    /// The settings for requests, in the cluster as it is now.
    pub(crate) fn routes(&self) -> dendra_wire::RequestRules {
        self.routes.get()
    }

    fn tell_all(&self, due: WakeReason) {
        for (_, seat) in self.seats.borrow().iter() {
            seat.tell(due);
        }
    }

    fn take_connection(self: &Rc<EventLoop>, stream: std::net::TcpStream, place: ConnectionPlace) {
        self.metrics().accepted.add(1);
        // A socket that is gone already has no address; it is found out at the first read.
        let source = stream.peer_addr().map_or(NO_SOURCE, |addr| addr.ip());
        match TcpStream::from_std(stream) {
            Ok(stream) if !self.is_draining.get() => {
                let seat = Rc::new(Seat::of(self.requests.source(source)));
                let number = self.seats.borrow_mut().insert(Rc::clone(&seat));
                let lane = Rc::clone(self);
                let guard = ConnectionGuard {
                    lane,
                    number,
                    place: Some(place),
                };
                (self.hooks.serve)(guard, seat, source, stream);
            }
            Ok(_) => {
                drop(place);
                self.note_ended();
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be watched and is dropped");
                drop(place);
                self.note_ended();
            }
        }
    }

    /// Closes the socket of a connection that has ended: later, when others wait.
    pub(crate) fn close(&self, stream: ByteStream, guard: ConnectionGuard) {
        if !self.ended_sockets.borrow().is_empty() || self.delay.is_crowded(self.now_us()) {
            self.ended_sockets.borrow_mut().push((stream, guard));
            self.close_due.ring();
        }
    }

    fn note_ended(&self) {
        self.handle().connections.fetch_sub(1, Ordering::SeqCst);
        // The place in the gate was given back relaxed: not after this look at the flag.
        fence(Ordering::SeqCst);
        if self.shared.listener_waits.swap(false, Ordering::SeqCst) {
            self.shared.room.notify_waiters();
        }
    }

    // Gates.

    /// The effect of the engine's pressure on a new request of `class`.
    pub(crate) fn admit(&self, class: Class) -> Admission {
        dendra_node::admit(self.pressure.get(), class)
    }

    /// The delay of a write of `bytes` where one of the mean size waits for `us`; an unknown size
    /// counts as the mean. Large writes that wait leave the reserve to the others: it bounds those,
    /// and only they make up the mean by then.
    pub(crate) fn delay_us(&self, us: u64, bytes: Option<u64>) -> u64 {
        let Some(bytes) = bytes else { return us };
        let sizes = self.write_sizes.borrow();
        let (size, room) = (sizes.size_of(bytes), WriteRoom::of(self.pressure.get()));
        let is_left_to_it = self.log_line.borrow().leaves_room(size, room)
            || self.order_line.borrow().leaves_room(size, room);
        if is_left_to_it {
            0
        } else {
            sizes.delay_us(us, bytes)
        }
    }

    /// The size of a client's write with a value of `bytes`, beside those of the last time.
    fn size_of_write(&self, bytes: usize) -> WriteSize {
        self.write_sizes.borrow().size_of(bytes as u64)
    }

    /// A client's write of `bytes` is let in.
    pub(crate) fn note_write_size(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.write_sizes.borrow_mut().note(bytes);
        }
    }

    /// This loop's answer to a member's write that reached it now: the same one as in
    /// `peers/store.rs`.
    pub(crate) fn readiness(&self) -> Readiness {
        let most = limits::ORDERS_WAITING_BYTES_MAX / self.shared.lanes.len();
        let is_behind = self.order_line_bytes.get() >= most / limits::ORDERS_BEHIND_SHARE
            || self.shared.orders.used() >= self.shared.orders.limit()
            || self.delay.is_beyond();
        match Readiness::of(self.pressure.get().stop) {
            Readiness::Ready if is_behind => Readiness::Behind,
            readiness => readiness,
        }
    }

    /// Does the engine have so much to catch up with that work that can wait does so?
    pub(crate) fn is_strained(&self) -> bool {
        self.pressure.get().is_strained()
    }

    /// Is half of the node's room for bytes in use? Then connections get small buffers.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes.is_crowded()
    }

    /// Would `bytes` more fit now?
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes.offer(NO_SOURCE, bytes).is_some()
    }

    /// May this many unwanted bytes be read before the next sweep?
    pub(crate) fn may_discard(&self, bytes: usize) -> bool {
        let left = self.discard_left.get();
        self.discard_left.set(left.saturating_sub(bytes));
        left > 0
    }

    /// May one more request of a client wait for the log or the store pool? A loop that has few
    /// takes a body that may find room later, unless the address has its share.
    pub(crate) fn has_request_room(&self, seat: &Seat) -> bool {
        if seat
            .source()
            .is_some_and(|source| self.requests.is_at_share(source))
        {
            return false;
        }
        self.shared.requests.used() < self.shared.requests.limit()
            || self.requests.used()
                < self.shared.requests.limit() / self.shared.lanes.len() as u64 / 8
    }

    /// Room for one operation of a client that waits.
    pub(crate) fn hold_request(&self, seat: &Seat) -> Option<RequestPermit> {
        self.requests.offer(seat.source())
    }

    /// Room for an order of the node.
    fn hold_order(&self) -> Option<RequestPermit> {
        LocalGate::offer(Rc::clone(&self.orders), 1).map(RequestPermit::of_node)
    }

    /// The node of this loop, in a cluster of more than one.
    pub(crate) fn agent(&self) -> Option<Rc<Agent>> {
        self.agent.clone()
    }

    /// Has a clock ceiling noted at the next sweep.
    pub(crate) fn cover_later(&self, hlc: u64) {
        let most = self.uncovered.get().map_or(hlc, |other| other.max(hlc));
        self.uncovered.set(Some(most));
    }

    /// The clock ceiling that is to be noted now, if any.
    pub(crate) fn take_uncovered(&self) -> Option<u64> {
        self.uncovered.take()
    }

    fn ticket(&self, target: Target, permit: RequestPermit) -> u32 {
        let ticket = Ticket {
            target,
            _permit: permit,
        };
        let slot = self.tickets.borrow_mut().insert(ticket);
        u32::try_from(slot).expect("tickets are bounded by the request gate")
    }

    // Reads that would block.

    /// Gives `work` to the store pool, where it waits under the slot that is returned; its answer
    /// comes to `seat`.
    pub(crate) fn offer(
        &self,
        seat: &Rc<Seat>,
        deadline_us: u64,
        watch: Watch,
        work: StoreWork,
    ) -> Result<u32, (RefusalCause, StoreWork)> {
        let Some(permit) = self.hold_request(seat) else {
            return Err((RefusalCause::Requests, work));
        };
        let slot = self.ticket(Target::of(seat), permit);
        self.queue(slot, deadline_us, watch, work)?;
        seat.expect();
        Ok(slot)
    }

    /// Takes the job under `slot` out of the store pool's queue: `false` when a worker has begun
    /// it.
    pub(crate) fn withdraw(&self, slot: u32) -> bool {
        let is_out = !self.shared.pool.take_back(self.index, &[slot]).is_empty();
        if is_out {
            self.take_ticket(slot);
        }
        is_out
    }

    /// Gives `work` to the desk of an engine of others, where it waits under the slot that is
    /// returned; its answer comes to `seat`.
    pub(crate) fn offer_front(
        &self,
        desk: &FrontDesk,
        seat: &Rc<Seat>,
        deadline_us: u64,
        work: FrontWork,
    ) -> Result<u32, RefusalCause> {
        let permit = self.hold_request(seat).ok_or(RefusalCause::Requests)?;
        let slot = self.ticket(Target::of(seat), permit);
        let offered = desk.offer(FrontJob {
            lane: self.index,
            slot,
            deadline_us,
            work,
        });
        if !offered {
            self.take_ticket(slot);
            return Err(RefusalCause::StoreQueue);
        }
        seat.expect();
        Ok(slot)
    }

    /// Takes the operation under `slot` back from the desk: `false` when it has begun.
    pub(crate) fn withdraw_front(&self, desk: &FrontDesk, slot: u32) -> bool {
        let is_out = desk.take_back(self.index, slot);
        if is_out {
            self.take_ticket(slot);
        }
        is_out
    }

    /// Gives an order of the node to the store pool; `target` gets the answer.
    pub(crate) fn offer_order(
        &self,
        target: Target,
        deadline_us: u64,
        work: StoreWork,
    ) -> Result<(), RefusalCause> {
        let permit = self.hold_order().ok_or(RefusalCause::Requests)?;
        let slot = self.ticket(target, permit);
        self.queue(slot, deadline_us, Watch::OFF, work)
            .map_err(|(refused, _)| refused)
    }

    fn queue(
        &self,
        slot: u32,
        deadline_us: u64,
        watch: Watch,
        work: StoreWork,
    ) -> Result<(), (RefusalCause, StoreWork)> {
        let job = StoreJob {
            lane: self.index,
            slot,
            deadline_us,
            watch,
            work,
        };
        match self.shared.pool.offer(job) {
            Ok(()) => {
                self.metrics().pooled.add(1);
                Ok(())
            }
            Err(job) => {
                self.take_ticket(slot);
                Err((RefusalCause::StoreQueue, job.work))
            }
        }
    }

    fn take_answer(&self, slot: u32, answer: PoolAnswer) {
        match self.take_ticket(slot).target {
            Target::Seat { seat, round, place } if round == seat.round() => {
                seat.put(place, answer.into());
            }
            Target::Seat { .. } | Target::Cover(_) => {}
            Target::Node(ticket) => self.tell_node(orders::answered(ticket, answer)),
        }
    }

    fn tell_node(&self, event: Event) {
        let agent = self.agent.as_ref();
        agent.expect("only a node gives orders").post(event);
    }

    fn take_ticket(&self, slot: u32) -> Ticket {
        self.tickets.borrow_mut().remove(slot as usize)
    }

    // Buffers.

    /// A buffer of `READ_BYTES_MAX` initialised bytes to read into.
    pub(crate) fn input_buffer(&self) -> Vec<u8> {
        let spare = self.spare_inputs.borrow_mut().pop();
        spare.unwrap_or_else(|| vec![0; limits::READ_BYTES_MAX])
    }

    /// Takes a buffer of `input_buffer` back.
    pub(crate) fn reuse_input(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), limits::READ_BYTES_MAX);
        let mut spares = self.spare_inputs.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(buffer);
        }
    }

    /// An empty buffer to write answers into.
    pub(crate) fn output_buffer(&self) -> Vec<u8> {
        self.spare_outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer of `output_buffer` back, unless it grew large.
    pub(crate) fn reuse_output(&self, mut buffer: Vec<u8>) {
        let mut spares = self.spare_outputs.borrow_mut();
        if buffer.capacity() <= 2 * limits::ANSWER_BYTES_FLUSH && spares.len() < SPARES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// The phase of the node.
    pub(crate) fn phase(&self) -> Phase {
        self.shared.phase.now()
    }
}

/// Counts a connection at its loop while it lives. Its seat is cleared however the task ends.
pub(crate) struct ConnectionGuard {
    pub(crate) lane: Rc<EventLoop>,
    number: usize,
    /// `None` only while it is dropped.
    place: Option<ConnectionPlace>,
}

impl ConnectionGuard {
    /// Has it no place among the clients'? Then only a member may ask on it.
    pub(crate) fn is_beyond(&self) -> bool {
        self.place.as_ref().is_some_and(ConnectionPlace::is_beyond)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let seat = self.lane.seats.borrow_mut().remove(self.number);
        seat.next_round();
        // The listener that is told finds the place free.
        drop(self.place.take());
        self.lane.note_ended();
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting_writes;
