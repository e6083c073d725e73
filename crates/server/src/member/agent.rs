//! One event loop's node and its queues. Events wait here until the turn ends; then the node
//! decides about all of them, and its effects are carried out.
//!
//! ```text
//! post(event) ─► queue ─┐ end of turn (or due_us): step … step, Tick, step …
//!                       └► effects ─┬─ Outcome, Scanned ─► the client's seat
//!                                   ├─ Ask, Reply       ─► conduits, flushed when the round is over
//!                                   └─ Read, Write, …   ─► store.rs; an answer given at once is the next event
//! round: turn ─► connections send the turn's results ─► turn, for events that came meanwhile ─► flush
//! others wait for the loop: a turn ends behind EVENTS_A_TURN, and they go first
//! ```
//!
//! Invariants
//! 1. The node is stepped in one place (`turn`), never inside of another step.
//! 2. A round looks for news once, and never waits.
//! 3. A question for which there is no link, or no room, is answered here at once: `Busy`.
//! 4. While others wait for the loop, a turn decides `EVENTS_A_TURN` events. Then clients are
//!    called. Links are not read while `EVENTS_WAITING_MAX` wait.
//!
//! Not here: the meaning of the events (crate `node`), how a link carries questions
//! (`own_link.rs`), the peers that ask (`askers.rs`).
//! See: docs/overload.md.

use super::askers::{Askers, IncomingLink};
use super::cluster::Cluster;
use super::conduit::Conduit;
use super::links::count;
use super::own_link::{Link, Outbox};
use crate::disk::lost;
use crate::limits;
use crate::measure::metrics::LoopMetrics;
use crate::settings::Settings;
use crate::waiting::finished::Finished;
use crate::waiting::seat::{LocalBell, Seat};
use crate::waiting::source_requests::RequestPermit;
use crate::waiting::unproven::Unproven;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Readiness, Refused, Stamp};
use dendra_engine::Engine;
use dendra_node::step::{ClientTicket, Effect, Event, LostSpan, StoreTicket};
use dendra_node::{CompareConfig, CompareReport, Node, NodeConfig};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::limits::{
    LOAD_BYTES_PER_SECOND_DEFAULT, LOAD_PATIENCE_US_DEFAULT, MEMBERS_MAX,
};
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::step::StewardEvent;
use dendra_ownership::{Layout, MemberIndex};
use dendra_watch::{ChangeLog, WatchEvent, WatchId, WatchToken};
use dendra_wire::peer::{Question, Seal};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The world of an agent: the parts of its event loop that a turn needs.
pub(crate) trait AgentWorld {
    /// Reads the clocks.
    fn refresh(&self);
    /// Both clocks as of the last `refresh`.
    fn now(&self) -> Now;
    /// How the store takes writes.
    fn readiness(&self) -> Readiness;
    /// Do others wait for the loop?
    fn is_contended(&self) -> bool;
    /// Does the store have so much to catch up with that work that can wait does so?
    fn is_strained(&self) -> bool;
    /// Commits the writes of the turn, if the loop commits itself. `true` when outcomes came of it.
    fn commit_at_once(&self) -> bool;
    /// Begins an order to the store; `Some` when it is done already.
    fn carry_out(&self, order: Effect) -> Option<Event>;
    /// Takes orders back that have not begun; returns the events that answer them.
    fn cancel(&self, tickets: Vec<StoreTicket>) -> Vec<Event>;
    /// Gives the client of a watch its events.
    fn tell_watch(
        &self,
        watch: WatchId,
        events: Vec<WatchEvent>,
        token: Option<WatchToken>,
        is_over: bool,
    );
    /// The own store.
    fn engine(&self) -> &Engine;
}

/// A client's operation or scan that the node works on.
struct WaitingClient {
    seat: Rc<Seat>,
    round: u32,
    place: u32,
    _permit: RequestPermit,
}

/// See the module.
pub(crate) struct Agent {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) lane: usize,
    node: RefCell<Node>,
    /// Members and owners as this loop knows them.
    layout: RefCell<Arc<Layout>>,
    events: RefCell<VecDeque<Event>>,
    /// Rung when there are events.
    bell: Rc<LocalBell>,
    /// Own links, by member.
    links: RefCell<Vec<Option<Link>>>,
    /// Peers that ask this loop.
    pub(crate) askers: Rc<Askers>,
    clients: RefCell<Slab<WaitingClient>>,
    /// The upper half of a ticket: one that is late names no client that came into the same place.
    tickets_so_far: Cell<u32>,
    outbox: Outbox,
    probes_so_far: Cell<u64>,
    /// The last state of the store that the node was told: `Event::Pressed`.
    pressed: Cell<(Readiness, bool)>,
    /// Did the own clock agree with no majority in the last sweep? Of the first loop only.
    is_doubted: Cell<bool>,
    /// By member: see `take_confirmed`.
    confirmed: Vec<Cell<u64>>,
    /// Links that peers, or strangers, are opening.
    pub(crate) unproven: Unproven,
}

impl Agent {
    /// The agent of loop `lane`.
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        lane: usize,
        settings: &Settings,
        changes: &Arc<ChangeLog>,
        now_us: u64,
    ) -> Agent {
        let value_bytes_max = settings.wrapped_value_bytes_max();
        let layout = cluster.layout();
        let node = Node::new(NodeConfig {
            layout: Arc::clone(&layout),
            fence: Arc::clone(&cluster.epochs.fence),
            me: cluster.own.me,
            origin: cluster.own.origin(lane),
            hlc: Arc::clone(&cluster.hlc),
            walls: Arc::clone(&cluster.walls),
            hints: Arc::clone(&cluster.upkeep.hints),
            is_keeper: lane == 0,
            is_watch: lane == 0,
            load_bytes_per_second: LOAD_BYTES_PER_SECOND_DEFAULT,
            load_patience_us: LOAD_PATIENCE_US_DEFAULT,
            compare: CompareConfig {
                progress: Arc::clone(&cluster.upkeep.comparisons),
                bytes_per_second: cluster.upkeep.compare_bytes_per_second,
                pause_us: cluster.upkeep.compare_pause_us(),
            },
            foregrounds: Arc::clone(&cluster.upkeep.foregrounds),
            changes: Arc::clone(changes),
            lane,
            forget_every_us: cluster.upkeep.forget_every_us,
            repair_wait_us: dendra_node::limits::REPAIR_WAIT_US_DEFAULT,
            seed: now_us ^ (u64::from(cluster.own.origin(lane)) << 32),
            operations_max: limits::NODE_OPERATIONS_MAX,
            value_bytes_max,
        });
        let bell = Rc::new(LocalBell::default());
        let agent = Agent {
            cluster: Arc::clone(cluster),
            lane,
            node: RefCell::new(node),
            layout: RefCell::new(layout),
            events: RefCell::default(),
            outbox: Outbox::new(&bell),
            bell,
            links: RefCell::new(vec![None; MEMBERS_MAX]),
            askers: Rc::default(),
            clients: RefCell::default(),
            tickets_so_far: Cell::new(0),
            probes_so_far: Cell::new(0),
            pressed: Cell::default(),
            is_doubted: Cell::new(false),
            confirmed: vec![Cell::new(0); MEMBERS_MAX],
            unproven: Unproven::new(
                limits::LINKS_UNPROVEN_MAX,
                usize::from(cluster.own.loops),
                &cluster.links.unproven,
            ),
        };
        for member in agent.others() {
            agent.post(Event::Link {
                member,
                is_up: false,
            });
        }
        agent
    }

    /// All members but this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        let me = self.cluster.own.me;
        let members: Vec<MemberIndex> = self.layout.borrow().members().collect();
        members.into_iter().filter(move |member| *member != me)
    }

    /// The number of a member, as this loop knows it.
    pub(crate) fn id_of(&self, member: MemberIndex) -> Option<MemberId> {
        self.layout.borrow().id_of(member)
    }

    /// Members and owners of a later epoch: the members that are new here. Links to those that were
    /// removed are closed a little later, so that their removal reaches them.
    pub(crate) fn adopt(self: &Rc<Agent>, layout: &Arc<Layout>) -> Vec<MemberIndex> {
        if layout.epoch() <= self.layout.borrow().epoch() {
            return Vec::new();
        }
        let before = self.layout.replace(Arc::clone(layout));
        let mut fresh = Vec::new();
        for member in (0..MEMBERS_MAX as u8).map(MemberIndex) {
            let (was, is) = (before.id_of(member), layout.id_of(member));
            match (was, is) {
                // A link to a member that moves ends when that one is started anew.
                (Some(was), Some(is)) if was == is => continue,
                (Some(was), Some(_)) => self.close_links(member, was),
                (Some(was), None) => {
                    let agent = Rc::clone(self);
                    tokio::task::spawn_local(async move {
                        tokio::time::sleep(limits::REMOVED_LINGER).await;
                        agent.close_links(member, was);
                    });
                }
                (None, _) => {}
            }
            if is.is_some() {
                fresh.push(member);
            }
        }
        self.post(Event::Layout {
            layout: Arc::clone(layout),
        });
        fresh
    }

    /// Closes the links from and to a member, unless its place is another member's by now.
    fn close_links(&self, member: MemberIndex, id: MemberId) {
        self.askers.close(member, id);
        let is_anothers = self.id_of(member).is_some_and(|now| now != id);
        if !is_anothers && let Some(link) = &self.links.borrow()[member.at()] {
            link.close();
        }
    }

    /// Sends a message of the steward, if there is a link with room for it.
    pub(crate) fn send_steward(&self, member: MemberIndex, body: &[u8], now_us: u64) {
        let links = self.links.borrow();
        let has_room = |link: &&Link| link.waiting() < limits::LINK_OUT_BYTES_MAX;
        if let Some(link) = links[member.at()].as_ref().filter(has_room) {
            link.tell(&self.outbox, body, now_us);
        }
    }

    /// Bytes that this loop loaded as a new owner.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.node.borrow().loaded_bytes()
    }

    /// A peer answered a question of this loop.
    pub(crate) fn answered(&self, member: MemberIndex, id: u64, answer: Answer) {
        count(&self.cluster.links.peers[member.at()].answers);
        // The clock value that it keeps counts as confirmed, for every member that it confirms
        // writes to.
        let kept = match &answer {
            Answer::Written(version) => version.hlc,
            Answer::Clock { kept, .. } => *kept,
            _ => 0,
        };
        let confirmed = &self.confirmed[member.at()];
        confirmed.set(confirmed.get().max(kept));
        self.post(Event::Answered { member, id, answer });
    }

    /// The largest clock value of a version that a peer confirmed to this loop since the last time
    /// this was asked.
    pub(crate) fn take_confirmed(&self, member: MemberIndex) -> u64 {
        self.confirmed[member.at()].take()
    }

    /// Does this member confirm its epoch? Of the first loop, which keeps hints and compares.
    pub(crate) fn confirms(&self) -> Result<Confirmed, HeldBack> {
        self.node.borrow().confirms()
    }

    /// The loss without which damage of this member cannot be repaired. Of the first loop.
    pub(crate) fn loss(&self, now: Now) -> Result<RepairLoss, NoLoss> {
        self.node.borrow().loss(now)
    }

    /// Tells the node of a member, if this is one, between which keys its folder has lost records.
    pub(crate) fn lose(agent: Option<&Agent>, spans: Vec<LostSpan>) {
        if let Some(agent) = agent {
            agent.post(Event::Lost { spans });
        }
    }

    /// Tells the node something when the turn ends.
    pub(crate) fn post(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
        self.bell.ring();
    }

    /// Puts frames into a link that is flushed when the round ends.
    pub(crate) fn send(&self, conduit: &Rc<Conduit>, encode: impl FnOnce(&mut Vec<u8>, &mut Seal)) {
        self.outbox.put(conduit, encode);
    }

    // Links.

    /// The own link to `member` is up.
    pub(crate) fn put_link(&self, member: MemberIndex, link: Link) {
        self.links.borrow_mut()[member.at()] = Some(link);
        self.post(Event::Link {
            member,
            is_up: true,
        });
    }

    /// The own link to `member` is lost.
    pub(crate) fn drop_link(&self, member: MemberIndex) {
        let link = self.links.borrow_mut()[member.at()].take();
        if let Some(link) = link {
            link.close();
        }
        self.post(Event::Link {
            member,
            is_up: false,
        });
    }

    /// A peer's loop `lane` opened a link: its number. Replaces the one it had.
    pub(crate) fn put_incoming(
        &self,
        member: MemberIndex,
        lane: u16,
        conduit: &Rc<Conduit>,
    ) -> u64 {
        self.askers.put(IncomingLink {
            member,
            id: self.id_of(member),
            lane,
            conduit: Rc::clone(conduit),
        })
    }

    /// Looks after the own links: a quiet one is probed, a dead one closed.
    pub(crate) fn sweep(&self, now_us: u64) {
        if self.lane == 0 {
            self.look_at_clock();
        }
        let links: Vec<Link> = self.links.borrow().iter().flatten().cloned().collect();
        for link in links {
            let sweeps = link.sweep(now_us);
            if sweeps > limits::LINK_SILENT_SWEEPS_MAX {
                link.end("nothing came from it, although it was probed");
            } else if sweeps > limits::LINK_PROBE_SWEEPS {
                let id = self.probes_so_far.get();
                self.probes_so_far.set(id + 1);
                link.probe(&self.outbox, id, now_us);
            }
        }
    }

    /// Logs once that the own clock is wrong, and once that it is right again.
    fn look_at_clock(&self) {
        let wrong = self.cluster.wrong_clock();
        let was_doubted = self.is_doubted.replace(wrong.is_some());
        match (was_doubted, wrong) {
            (false, Some(why)) => tracing::warn!("{why}"),
            (true, None) => tracing::info!("the clock agrees with a majority again: writes go on"),
            _ => {}
        }
    }

    // Clients.

    /// A place for the outcome of the operation that `seat` is about to begin.
    pub(crate) fn ticket(&self, seat: &Rc<Seat>, permit: RequestPermit) -> ClientTicket {
        let client = WaitingClient {
            seat: Rc::clone(seat),
            round: seat.round(),
            place: seat.expect(),
            _permit: permit,
        };
        let place = self.clients.borrow_mut().insert(client) as u64;
        let number = self.tickets_so_far.get().wrapping_add(1);
        self.tickets_so_far.set(number);
        u64::from(number) << u32::BITS | place
    }

    fn finish(&self, client: ClientTicket, finished: Finished) {
        let place = client as u32;
        let waiting = self.clients.borrow_mut().remove(place as usize);
        if waiting.round == waiting.seat.round() {
            waiting.seat.put(waiting.place, finished);
        }
    }

    /// Operations and scans of clients that the node works on.
    pub(crate) fn operations(&self) -> usize {
        self.clients.borrow().len()
    }

    /// How long the node's rounds took, and how it sees the other members: once per sweep.
    pub(crate) fn show(&self, metrics: &LoopMetrics) {
        for (key, version) in self.node.borrow_mut().take_disputes() {
            let key = dendra_wire::percent::encode(&key);
            let version = format!("{version:?}");
            tracing::error!(
                key,
                version,
                "copies of a record have one version and different bytes: a majority of them or a rule decides; look for a program \
                 between the members, or for damaged memory"
            );
        }
        for report in self.node.borrow_mut().take_comparisons() {
            self.tell(&report);
        }
        if let Some(report) = self.node.borrow_mut().take_look() {
            self.cluster.upkeep.looks.note(report);
        }
        let node = self.node.borrow();
        metrics.disputes.set(node.disputes());
        metrics.rounds.set(node.rounds());
        for member in self.others() {
            metrics.peers.set(member, node.health(member));
        }
    }

    /// Logs the findings and repairs of a comparison.
    fn tell(&self, report: &CompareReport) {
        let CompareReport {
            peer,
            sent,
            fetched,
            promises,
            failed,
            left_out,
            took_us,
        } = *report;
        let (peer, seconds) = (self.cluster.url(peer), took_us / 1_000_000);
        if sent + fetched + promises > 0 {
            tracing::info!(
                peer,
                sent,
                fetched,
                promises,
                seconds,
                "a comparison found copies that differed, and repaired them"
            );
        }
        if failed + left_out > 0 {
            tracing::warn!(
                peer,
                failed,
                left_out,
                seconds,
                "a comparison is not complete: repairs failed, or damaged copies were left out; it is tried again"
            );
        }
    }

    // The turn.

    fn turn(&self, lane: &impl AgentWorld) {
        lane.refresh();
        let now = lane.now();
        let (readiness, is_strained) = (lane.readiness(), lane.is_strained());
        if self.pressed.replace((readiness, is_strained)) != (readiness, is_strained) {
            let pressed = Event::Pressed {
                readiness,
                is_strained,
            };
            self.events.borrow_mut().push_front(pressed);
        }
        let mut effects = Vec::new();
        let (mut has_ticked, mut stepped, mut is_over) = (false, 0, false);
        loop {
            is_over = is_over || (stepped == limits::EVENTS_A_TURN && lane.is_contended());
            let event = if is_over {
                None
            } else {
                self.events.borrow_mut().pop_front()
            };
            let event = match event {
                Some(event) => {
                    stepped = stepped % limits::EVENTS_A_TURN + 1;
                    event
                }
                None if !has_ticked => {
                    has_ticked = true;
                    Event::Tick
                }
                // The outcomes that the log tells at once belong to this turn, unless it is over.
                None if lane.commit_at_once() && !is_over => {
                    has_ticked = false;
                    continue;
                }
                None => break,
            };
            self.node.borrow_mut().step(now, event, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(lane, now, effect);
            }
        }
        if self.events.borrow().is_empty() {
            self.bell.still()
        } else {
            self.bell.ring()
        }
    }

    /// May links be read? Otherwise enough events wait already.
    pub(crate) fn has_event_room(&self) -> bool {
        self.events.borrow().len() < limits::EVENTS_WAITING_MAX
    }

    fn carry_out(&self, lane: &impl AgentWorld, now: Now, effect: Effect) {
        match effect {
            Effect::Outcome {
                client,
                outcome,
                acks,
                cell,
                account,
            } => self.finish(
                client,
                match account {
                    None => Finished::Outcome {
                        outcome,
                        acks,
                        cell,
                    },
                    Some(account) => Finished::Account {
                        outcome,
                        acks,
                        account,
                    },
                },
            ),
            Effect::Scanned {
                client,
                records,
                rest,
                failure,
            } => self.finish(
                client,
                Finished::Page {
                    records,
                    rest,
                    failure,
                },
            ),
            Effect::Told {
                watch,
                events,
                token,
                is_over,
            } => lane.tell_watch(watch, events, token, is_over),
            Effect::Reply { asker, answer } => self.askers.reply(&self.outbox, asker, answer),
            Effect::Ask {
                member,
                id,
                stamp,
                ask,
            } => self.ask(now, member, id, stamp, ask),
            Effect::Withdraw { member, ids } => self.withdraw(member, &ids),
            Effect::Learn { member, epoch } => {
                if let Some(member) = self.id_of(member) {
                    let event = StewardEvent::Ahead { member, epoch };
                    self.cluster.steward.door.tell(event);
                }
            }
            Effect::Loaded { epoch, partitions } => {
                let event = StewardEvent::Loaded { epoch, partitions };
                self.cluster.steward.door.tell_surely(event);
            }
            Effect::Repaired { id } => lost::repaired(lane.engine(), id),
            Effect::RepairWaits { id, of } => {
                self.cluster.upkeep.repairs.told(lane.engine(), id, of)
            }
            Effect::Cancel { tickets } => {
                let events = lane.cancel(tickets);
                self.events.borrow_mut().extend(events);
            }
            store => {
                if let Some(event) = lane.carry_out(store) {
                    self.events.borrow_mut().push_back(event);
                }
            }
        }
    }

    /// Tells a peer that this member does not wait for these answers any more.
    fn withdraw(&self, member: MemberIndex, ids: &[u64]) {
        if let Some(link) = &self.links.borrow()[member.at()] {
            link.withdraw(&self.outbox, ids);
        }
    }

    fn ask(&self, now: Now, member: MemberIndex, id: u64, stamp: Stamp, ask: Ask) {
        let gauges = &self.cluster.links.peers[member.at()];
        let links = self.links.borrow();
        let has_room = |link: &&Link| {
            // Small questions may still pass where values have no room any more.
            let room = match ask {
                Ask::Write { .. } | Ask::Accept { .. } => limits::LINK_OUT_BYTES_MAX / 2,
                _ => limits::LINK_OUT_BYTES_MAX,
            };
            link.waiting() < room
        };
        let Some(link) = links[member.at()].as_ref().filter(has_room) else {
            count(&gauges.refused);
            let answer = Answer::Refused(Refused::Busy);
            self.events
                .borrow_mut()
                .push_back(Event::Answered { member, id, answer });
            return;
        };
        count(&gauges.asks);
        let question = Question {
            id,
            sent_ms: (now.mono_us / 1_000) as u32,
            stamp,
            ask,
        };
        link.ask(&self.outbox, &question, now.mono_us);
    }
}

/// Runs the turns of the loop's agent.
pub(crate) async fn run(lane: Rc<impl AgentWorld>, agent: Rc<Agent>) {
    let start = tokio::time::Instant::now();
    let start_us = crate::clock::monotonic_us();
    let sleep = tokio::time::sleep(limits::SWEEP);
    tokio::pin!(sleep);
    loop {
        let due_us = agent.node.borrow().due_us().unwrap_or(u64::MAX);
        // At least once per sweep, so that a far deadline needs no timer of its own.
        let at_us = due_us.min(lane.now().mono_us + limits::SWEEP.as_micros() as u64);
        let at = start + Duration::from_micros(at_us.saturating_sub(start_us));
        // A timer that rings too early costs one look; setting it anew each turn costs more.
        if sleep.is_elapsed() || at < sleep.deadline() {
            sleep.as_mut().reset(at);
        }
        tokio::select! {
            biased;
            () = agent.bell.rung() => {}
            () = &mut sleep => {}
        }
        agent.turn(&*lane);
        if !agent.outbox.is_empty() {
            // A write to a link wakes a thread at its other end: frames that are ready a moment
            // later go with it.
            tokio::task::yield_now().await;
            if !agent.events.borrow().is_empty() {
                agent.turn(&*lane);
            }
            agent.outbox.flush();
        }
        if !agent.events.borrow().is_empty() {
            // The others that wait for the loop go first.
            tokio::task::yield_now().await;
        }
    }
}
