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
//!
//! Not here: the loop's parts (`buffers.rs`, `loop_clock.rs`, `loop_rooms.rs`, `turn_batch.rs`,
//! `write_lines.rs`), HTTP (`connection/`), accepting (`listener.rs`), committing with durability
//! `sync` (`wal_thread.rs`).
//! See: docs/overload.md.

mod log;
mod watches;

use crate::clock;
use crate::disk::{orders, wal_thread};
use crate::event_loop::buffers::Buffers;
use crate::event_loop::delay::{self, Delay};
use crate::event_loop::giving_way::{self, GivingWay};
use crate::event_loop::loop_clock::LoopClock;
use crate::event_loop::loop_rooms::{LoopRooms, NO_SOURCE};
use crate::event_loop::parts::NodeParts;
use crate::event_loop::turn_batch::TurnBatch;
use crate::event_loop::watches::{LoopWatches, WatchRead};
use crate::event_loop::write_lines::WriteLines;
use crate::front::desk::{FrontDesk, FrontJob, FrontWork};
use crate::lanes::lane::LoopHandle;
use crate::lanes::mailbox::LoopEvent;
use crate::lanes::work::{PoolAnswer, StoreJob, StoreWork};
use crate::limits;
use crate::measure::metrics::{LoopMetrics, OpLabel, RefusalCause};
use crate::measure::profile;
use crate::measure::stages::Watch;
use crate::member::{Agent, routes};
use crate::phase::Phase;
use crate::tls::ByteStream;
use crate::waiting::connection_gate::ConnectionPlace;
use crate::waiting::seat::{LocalBell, Seat, WakeReason};
use crate::waiting::source_requests::RequestPermit;
use dendra_base::Now;
use dendra_base::peer::Readiness;
use dendra_engine::Pressure;
use dendra_node::step::{Event, StoreTicket};
use dendra_node::{Admission, Class, WriteRoom};
use dendra_ownership::{Layout, MemberIndex, Topology};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
    /// The watches of a node alone.
    Watch(WatchRead),
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
    pub(crate) parts: NodeParts,
    index: usize,
    hooks: &'static LoopHooks,
    clock: LoopClock,
    waiters: Waiters,
    batch: TurnBatch,
    lines: WriteLines,
    pressure: Cell<Pressure>,
    pub(crate) rooms: LoopRooms,
    pub(crate) buffers: Buffers,
    member: LoopMember,
    /// How long requests wait for this loop.
    pub(crate) delay: Rc<Delay>,
    /// Reads that come after those of other connections.
    pub(crate) giving_way: Rc<GivingWay>,
    closing: ClosingSockets,
    stage: LoopStage,
}

/// The receivers of results of other threads.
#[derive(Default)]
struct Waiters {
    /// Seats of all connections of the loop.
    seats: RefCell<Slab<Rc<Seat>>>,
    /// Tickets of all results that other threads owe to the loop.
    tickets: RefCell<Slab<Ticket>>,
    /// The watches of clients.
    watches: LoopWatches,
}

impl Waiters {
    fn ticket(&self, target: Target, permit: RequestPermit) -> u32 {
        let ticket = Ticket {
            target,
            _permit: permit,
        };
        let slot = self.tickets.borrow_mut().insert(ticket);
        u32::try_from(slot).expect("tickets are bounded by the request gate")
    }

    fn take_ticket(&self, slot: u32) -> Ticket {
        self.tickets.borrow_mut().remove(slot as usize)
    }

    fn tell_all(&self, due: WakeReason) {
        for (_, seat) in self.seats.borrow().iter() {
            seat.tell(due);
        }
    }
}

/// The loop's part of a member.
struct LoopMember {
    /// The node of this loop, in a cluster of more than one.
    agent: Option<Rc<Agent>>,
    /// A clock ceiling that is still to be noted: the log's queue had no room for it.
    uncovered: Cell<Option<u64>>,
    /// The settings that decide about requests.
    routes: Cell<dendra_wire::RequestRules>,
}

impl LoopMember {
    fn new(parts: &NodeParts, index: usize) -> LoopMember {
        let settings = &parts.settings;
        let topology = parts.cluster.as_ref().map(|cluster| cluster.topology());
        let topology = topology.as_deref();
        let copies = parts.front.as_ref().map_or(1, |desk| desk.shape.copies);
        LoopMember {
            agent: parts.cluster.as_ref().map(|cluster| {
                let changes = &parts.store.changes;
                let now_us = clock::monotonic_us();
                Rc::new(Agent::new(cluster, index, settings, changes, now_us))
            }),
            uncovered: Cell::new(None),
            routes: Cell::new(dendra_wire::RequestRules {
                nodes: topology.map_or(copies, Topology::live),
                replication_factor: topology.map_or(copies, Topology::replication_factor),
                key_bytes_max: dendra_base::limits::KEY_BYTES_MAX,
                value_bytes_max: settings.value_bytes_max as u64,
            }),
        }
    }

    fn tell_node(&self, event: Event) {
        let agent = self.agent.as_ref();
        agent.expect("only a node gives orders").post(event);
    }
}

/// Sockets that are to be closed; each is a connection of the gate until then.
#[derive(Default)]
struct ClosingSockets {
    sockets: RefCell<Vec<(ByteStream, ConnectionGuard)>>,
    due: LocalBell,
}

/// How far the loop is on its way to its end.
#[derive(Default)]
struct LoopStage {
    is_draining: Cell<bool>,
    is_poisoned: Cell<bool>,
    /// Rung when the loop should end.
    ended: LocalBell,
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

/// Starts the event loop `index` of a node, under `hooks`.
pub(crate) fn spawn(
    parts: &NodeParts,
    index: usize,
    hooks: &'static LoopHooks,
) -> std::io::Result<JoinHandle<()>> {
    let (parts, store) = (parts.clone(), Arc::clone(&parts.store));
    std::thread::Builder::new()
        .name(format!("loop-{index}"))
        .spawn(move || {
            let _seat = profile::register(profile::ThreadKind::Loop);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build_local(tokio::runtime::LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(run(Rc::new(EventLoop::new(parts, index, hooks)))),
                Err(error) => {
                    tracing::error!(%error, "an event loop could not start");
                    wal_thread::poison(&store, "an event loop could not start");
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
    lane.stage.ended.rung().await;
    // They hold the loop that holds them.
    drop(lane.closing.sockets.take());
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
        lane.batch.due.rung().await;
        lane.commit();
        lane.call_those_in_line();
    }
}

/// Closes a few sockets at a time: ten thousand at once are a tenth of a second of work, which
/// requests do not wait for.
async fn close_when_due(lane: Rc<EventLoop>) {
    loop {
        lane.closing.due.rung().await;
        while !lane.closing.sockets.borrow().is_empty() {
            let few = {
                let mut sockets = lane.closing.sockets.borrow_mut();
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
        lane.handle().sweeps.fetch_add(1, Ordering::Relaxed);
        lane.pressure.set(lane.parts.store.engine.pressure());
        let (metrics, rooms) = (lane.metrics(), &lane.rooms);
        metrics.requests_held.set(rooms.requests.used());
        metrics.bytes_held.set(rooms.bytes.used());
        metrics.bytes_waiting.set(rooms.bytes_waiting());
        let log_line = lane.lines.clients.borrow().len();
        metrics.log_line.set(log_line as u64);
        let order_line = lane.lines.orders.borrow().len();
        metrics.order_line.set(order_line as u64);
        rooms.sweep();
        if lane.index == 0 {
            lane.parts.store.changes.rest(lane.now_us());
        }
        lane.call_those_in_line();
        let now_us = lane.now_us();
        lane.delay.sweep(now_us);
        for (_, seat) in lane.waiters.seats.borrow().iter() {
            seat.check_deadline(now_us);
        }
        if let Some(agent) = &lane.member.agent {
            (lane.hooks.sweep)(&lane, agent);
        }
    }
}

impl EventLoop {
    fn new(parts: NodeParts, index: usize, hooks: &'static LoopHooks) -> EventLoop {
        let options = parts.settings.engine_options();
        let giving_way = Rc::default();
        EventLoop {
            index,
            hooks,
            clock: LoopClock::new(index),
            waiters: Waiters::default(),
            batch: TurnBatch::new(options.commit_queue_bytes_max / 2, parts.lanes.len()),
            lines: WriteLines::default(),
            pressure: Cell::new(parts.store.engine.pressure()),
            rooms: LoopRooms::new(&parts),
            buffers: Buffers::default(),
            member: LoopMember::new(&parts, index),
            delay: Rc::new(Delay::new(
                parts.settings.queue_delay_target,
                &parts.lanes,
                index,
                &giving_way,
            )),
            giving_way,
            closing: ClosingSockets::default(),
            stage: LoopStage::default(),
            parts,
        }
    }

    /// This loop as the other threads see it.
    pub(crate) fn handle(&self) -> &LoopHandle {
        &self.parts.lanes[self.index]
    }

    /// This loop's counters.
    pub(crate) fn metrics(&self) -> &LoopMetrics {
        &self.handle().metrics
    }

    /// Reads the clocks for the rest of this turn, the wall clock at most once a millisecond.
    pub(crate) fn refresh(&self) {
        self.clock.refresh();
    }

    /// Microseconds as of the last `refresh`.
    pub(crate) fn now_us(&self) -> u64 {
        self.clock.reading().monotonic_ns / 1_000
    }

    /// Both clocks as of the last `refresh`.
    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Wall milliseconds as of the last `refresh`.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.clock.reading().wall_ms()
    }

    /// The watch of the next request: running for about one in sixteen.
    pub(crate) fn watch(&self) -> Watch {
        self.clock.watch()
    }

    /// Counts a request that was answered without a wait. Start = the clock reading at the end of
    /// the previous request, so that each request costs one reading.
    pub(crate) fn finish(&self, op: OpLabel, status: u16) {
        let began_ns = self.now_ns();
        self.finish_since(op, status, began_ns);
    }

    /// Counts a request that began at `began_ns` and is answered now.
    pub(crate) fn finish_since(&self, op: OpLabel, status: u16, began_ns: u64) {
        let took_ns = self.clock.took_ns(began_ns);
        self.metrics().note(op, status, took_ns);
    }

    /// Notes a request that began at `began_ns` and whose answer begins now.
    pub(crate) fn note_head_since(&self, op: OpLabel, status: u16, began_ns: u64) {
        let took_ns = self.clock.took_ns(began_ns);
        self.metrics().note_head(op, status, took_ns);
    }

    /// Nanoseconds as of the last `refresh` or `finish`.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.reading().monotonic_ns
    }

    /// Should connections end as soon as their current request is answered?
    pub(crate) fn is_draining(&self) -> bool {
        self.stage.is_draining.get()
    }

    /// Did the log fail? Then no write is taken any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.stage.is_poisoned.get()
    }

    fn handle_event(self: &Rc<EventLoop>, event: LoopEvent) {
        match event {
            LoopEvent::Connection(stream, place) => self.take_connection(stream, place),
            LoopEvent::Written { token, outcome } => {
                self.take_outcome(wal_thread::token_slot(token), outcome);
            }
            LoopEvent::Answered { slot, answer } => self.take_answer(slot, answer),
            LoopEvent::QueueFree => {
                self.batch.due.ring();
                self.call_those_in_line();
            }
            LoopEvent::Changed => match self.member.agent {
                Some(_) => self.member.tell_node(Event::Changed),
                None => self.take_changes(),
            },
            LoopEvent::Lost(spans) => Agent::lose(self.member.agent.as_deref(), spans),
            LoopEvent::Drain => {
                self.stage.is_draining.set(true);
                self.waiters.tell_all(WakeReason::Drain);
            }
            LoopEvent::Adopt(layout) => self.adopt(&layout),
            LoopEvent::Begin => (self.hooks.begin)(self),
            LoopEvent::Poisoned => {
                self.stage.is_poisoned.set(true);
                self.waiters.tell_all(WakeReason::Poisoned);
            }
            LoopEvent::Stop => {
                self.stage.ended.ring();
            }
        }
    }

    /// A later epoch: the loop's node gets it, and new members get links.
    fn adopt(self: &Rc<EventLoop>, layout: &Arc<Layout>) {
        let Some(agent) = self.agent() else { return };
        let known = &self.member.routes;
        known.set(routes(layout, known.get()));
        for member in agent.adopt(layout) {
            (self.hooks.link)(self, &agent, member);
        }
    }

    /// The settings for requests, in the cluster as it is now.
    pub(crate) fn routes(&self) -> dendra_wire::RequestRules {
        self.member.routes.get()
    }

    fn take_connection(self: &Rc<EventLoop>, stream: std::net::TcpStream, place: ConnectionPlace) {
        self.metrics().accepted.add(1);
        // A socket that is gone already has no address; it is found out at the first read.
        let source = stream.peer_addr().map_or(NO_SOURCE, |addr| addr.ip());
        match TcpStream::from_std(stream) {
            Ok(stream) if !self.stage.is_draining.get() => {
                let seat = Rc::new(Seat::of(self.rooms.requests.source(source)));
                let number = self.waiters.seats.borrow_mut().insert(Rc::clone(&seat));
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
        let closing = &self.closing;
        if !closing.sockets.borrow().is_empty() || self.delay.is_crowded(self.now_us()) {
            closing.sockets.borrow_mut().push((stream, guard));
            closing.due.ring();
        }
    }

    fn note_ended(&self) {
        self.handle().connections.fetch_sub(1, Ordering::SeqCst);
        self.parts.entrance.note_ended();
    }

    // Gates.

    /// The effect of the engine's pressure on a new request of `class`.
    pub(crate) fn admit(&self, class: Class) -> Admission {
        dendra_node::admit(self.pressure.get(), class)
    }

    /// The delay of a write of `bytes` where one of the mean size waits for `us`; an unknown size
    /// counts as the mean.
    pub(crate) fn delay_us(&self, us: u64, bytes: Option<u64>) -> u64 {
        let Some(bytes) = bytes else { return us };
        let room = WriteRoom::of(self.pressure.get());
        self.lines.delay_us(us, bytes, room)
    }

    /// A client's write of `bytes` is let in.
    pub(crate) fn note_write_size(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.lines.client_sizes.borrow_mut().note(bytes);
        }
    }

    /// This loop's answer to a member's write that reached it now: the same one as in
    /// `peers/store.rs`.
    pub(crate) fn readiness(&self) -> Readiness {
        let most = limits::ORDERS_WAITING_BYTES_MAX / self.parts.lanes.len();
        let is_behind = self.lines.order_bytes() >= most / limits::ORDERS_BEHIND_SHARE
            || self.parts.budgets.orders.used() >= self.parts.budgets.orders.limit()
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
        self.rooms.bytes.is_crowded()
    }

    /// May one more request of a client wait for the log or the store pool? A loop that has few
    /// takes a body that may find room later, unless the address has its share.
    pub(crate) fn has_request_room(&self, seat: &Seat) -> bool {
        if seat
            .source()
            .is_some_and(|source| self.rooms.requests.is_at_share(source))
        {
            return false;
        }
        self.parts.budgets.requests.used() < self.parts.budgets.requests.limit()
            || self.rooms.requests.used()
                < self.parts.budgets.requests.limit() / self.parts.lanes.len() as u64 / 8
    }

    /// The node of this loop, in a cluster of more than one.
    pub(crate) fn agent(&self) -> Option<Rc<Agent>> {
        self.member.agent.clone()
    }

    /// Has a clock ceiling noted at the next sweep.
    pub(crate) fn cover_later(&self, hlc: u64) {
        let uncovered = &self.member.uncovered;
        let most = uncovered.get().map_or(hlc, |other| other.max(hlc));
        uncovered.set(Some(most));
    }

    /// The clock ceiling that is to be noted now, if any.
    pub(crate) fn take_uncovered(&self) -> Option<u64> {
        self.member.uncovered.take()
    }

    /// The watches of this loop's clients.
    pub(crate) fn watches(&self) -> &LoopWatches {
        &self.waiters.watches
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
        let Some(permit) = self.rooms.hold_request(seat) else {
            return Err((RefusalCause::Requests, work));
        };
        let slot = self.waiters.ticket(Target::of(seat), permit);
        self.queue(slot, deadline_us, watch, work)?;
        seat.expect();
        Ok(slot)
    }

    /// Takes the job under `slot` out of the store pool's queue: `false` when a worker has begun
    /// it.
    pub(crate) fn withdraw(&self, slot: u32) -> bool {
        let is_out = !self
            .parts
            .store
            .pool
            .take_back(self.index, &[slot])
            .is_empty();
        if is_out {
            self.waiters.take_ticket(slot);
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
        let permit = self
            .rooms
            .hold_request(seat)
            .ok_or(RefusalCause::Requests)?;
        let slot = self.waiters.ticket(Target::of(seat), permit);
        let offered = desk.offer(FrontJob {
            lane: self.index,
            slot,
            deadline_us,
            work,
        });
        if !offered {
            self.waiters.take_ticket(slot);
            return Err(RefusalCause::StoreQueue);
        }
        seat.expect();
        Ok(slot)
    }

    /// Takes the operation under `slot` back from the desk: `false` when it has begun.
    pub(crate) fn withdraw_front(&self, desk: &FrontDesk, slot: u32) -> bool {
        let is_out = desk.take_back(self.index, slot);
        if is_out {
            self.waiters.take_ticket(slot);
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
        let permit = self.rooms.hold_order().ok_or(RefusalCause::Requests)?;
        let slot = self.waiters.ticket(target, permit);
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
        match self.parts.store.pool.offer(job) {
            Ok(()) => {
                self.metrics().pooled.add(1);
                Ok(())
            }
            Err(job) => {
                self.waiters.take_ticket(slot);
                Err((RefusalCause::StoreQueue, job.work))
            }
        }
    }

    fn take_answer(self: &Rc<EventLoop>, slot: u32, answer: PoolAnswer) {
        match self.waiters.take_ticket(slot).target {
            Target::Seat { seat, round, place } if round == seat.round() => {
                seat.put(place, answer.into());
            }
            Target::Seat { .. } | Target::Cover(_) => {}
            Target::Watch(read) => self.take_watch_read(read, answer),
            Target::Node(ticket) => self.member.tell_node(orders::answered(ticket, answer)),
        }
    }

    /// The phase of the node.
    pub(crate) fn phase(&self) -> Phase {
        self.parts.phase.now()
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
        let seat = self.lane.waiters.seats.borrow_mut().remove(self.number);
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
