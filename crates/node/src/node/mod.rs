//! One member of the cluster as one event loop sees it: only events go in, and only effects come
//! out.
//!
//! ```text
//! Begin, Scan, Gone ───► coordinator: one `Op` per client's operation, one `ScanOp` per page
//! Asked ───────────────► replica
//! Withdrawn ───────────► desk: which orders?   ─► Cancel
//! Answered, Link ──────► desk: which question? ─► coordinator, hints
//! Surveyed ────────────► desk: which order?    ─► compare, replica
//! desk's outbox ───────► replica: questions of this node's machines to its own copies
//! Alive ───────────────► health
//! Read, Wrote, Paged ──► desk: which order?    ─► coordinator, replica, hints, loader, compare
//! Pressed ─────────────► desk: told with the next clocks
//! WatchOpen, -More ────► watching: the hub's orders become questions, operations and scans
//! Changed ─────────────► replica: questions about changes that are held
//! Covered ─────────────► operations in stage `Cover`
//! Layout ──────────────► all machines: a later epoch
//! Lost, AcceptLoss ────► repair
//! Throttle ────────────► loader
//! Tick ────────────────► clients that hung up, alarms and deadlines, late questions, the probe
//!                        for operations that wait for clocks, the ceiling
//! ```
//!
//! Invariants
//! 1. This file only routes: the meaning of an event is decided where it arrives.
//! 2. A step ends with an empty inbox and an empty outbox, and takes time from its argument alone.
//!
//! Not here: a world (crates `server`, `sim`).
//! See: step.rs, docs/protocol.md.

mod watches;

use crate::compare::Comparer;
use crate::compare::findings::LookReport;
use crate::compare::progress::CompareReport;
use crate::config::NodeConfig;
use crate::coordinator::clock::{Probes, send_probe};
use crate::coordinator::scan::{ScanOp, Scanning, WatchedKeys};
use crate::coordinator::stage::{Stage, WaitFor};
use crate::coordinator::{Breadth, Intent, Op};
use crate::desk::{Desk, Order, Turn};
use crate::forgetting::Forgetting;
use crate::health::PeerHealth;
use crate::hints::{self, Keeper};
use crate::ledger::{Ledger, NEVER};
use crate::limits::{
    COVER_POLL_US, DISPUTE_TIMEOUT_US, OPERATIONS_MAX, SCANS_MAX, WALL_EXCHANGE_DOUBTED_US,
    WALL_EXCHANGE_US,
};
use crate::loader::Loader;
use crate::plausible;
use crate::purpose::{OpId, Purpose, Walker};
use crate::repair::Repairer;
use crate::replica;
use crate::rounds::RoundStats;
use crate::step::{AskId, ClientTicket, Effect, Event, StoreFailure, StoreOutcome, StoreTicket};
use crate::watching::{self, HubAnswer, Watching};
use crate::write_queues::PassedWrite;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Operation, Refused};
use dendra_base::{Cell, Quorum, Version};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::layout::Layout;
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::member::MemberIndex;
use std::sync::Arc;

/// One member, as one event loop sees it.
pub struct Node {
    desk: Desk,
    ops: Ledger<Op>,
    probes: Probes,
    scans: Ledger<ScanOp>,
    keeper: Keeper,
    loader: Loader,
    comparer: Comparer,
    repairer: Repairer,
    forgetting: Forgetting,
    watching: Watching,
    operations_max: usize,
    /// Spare memory for the ids of due entries; empty between two ticks.
    late: Vec<u64>,
    /// Clients that hung up since the last tick.
    gone: Vec<ClientTicket>,
    /// When to look whether a ceiling is durable; `NEVER` when no operation waits for one.
    cover_us: u64,
    exchange: WallExchange,
}

/// When the other members are asked for their wall clocks.
struct WallExchange {
    /// Does this loop ask them?
    is_watch: bool,
    /// When next; `NEVER` while there is no link, and on loops that are not the watch.
    due_us: u64,
}

impl Node {
    /// A node without any knowledge yet.
    ///
    /// # Panics
    /// When `me` is not of the topology.
    pub fn new(config: NodeConfig) -> Node {
        assert!(
            config.layout.topology().has(config.me),
            "a node is a member of its topology"
        );
        let operations_max = config.operations_max.min(OPERATIONS_MAX);
        let (is_watch, keeper) = (config.is_watch, Keeper::new(config.is_keeper));
        let loader = Loader::new(&config);
        let comparer = Comparer::new(&config);
        let repairer = Repairer::new(&config);
        let mut desk = Desk::new(config);
        let mut first = || desk.prng.next_u64();
        Node {
            ops: Ledger::new(first()),
            probes: Probes::new(first()),
            scans: Ledger::new(first()),
            desk,
            keeper,
            loader,
            comparer,
            repairer,
            forgetting: Forgetting::default(),
            watching: Watching::new(),
            operations_max,
            late: Vec::new(),
            gone: Vec::new(),
            cover_us: NEVER,
            exchange: WallExchange {
                is_watch,
                due_us: NEVER,
            },
        }
    }

    /// Takes one event, and appends the effects that the node orders.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        let mut turn = Turn { now, effects };
        let turn = &mut turn;
        match event {
            Event::Begin {
                client,
                key,
                operation,
                quorum,
                deadline_us,
            } => self.begin(turn, client, key, operation, quorum, deadline_us),
            Event::Explain {
                client,
                key,
                quorum,
                deadline_us,
            } => self.explain(turn, client, key, quorum, deadline_us),
            Event::Scan {
                client,
                range,
                bytes,
                deadline_us,
            } => self.scan(turn, ScanOp::new(client, range, bytes, deadline_us)),
            Event::Gone { client } => self.gone.push(client),
            Event::Asked { asker, stamp, ask } => {
                replica::asked(&mut self.desk, turn, asker, stamp, ask);
            }
            Event::Withdrawn { member, link, ids } => {
                self.desk.withdrawn(turn, member, link, ids);
            }
            Event::Answered { member, id, answer } => self.answered(turn, member, id, answer),
            Event::Link { member, is_up } => {
                self.desk.set_link(turn, member, is_up);
                if is_up {
                    if self.exchange.is_watch {
                        self.exchange.due_us = turn.now.mono_us;
                    }
                    self.keeper.link_up(&mut self.desk, turn, member);
                    self.comparer.link_up(turn, member);
                    self.loader.link_up(member);
                    self.link_up(turn, member);
                }
                if !self.watching.is_empty() {
                    let layout = &self.desk.layout;
                    self.watching.link(turn.now, layout, member, is_up);
                }
            }
            Event::Alive { member } => self.desk.health.alive(member, turn.now.mono_us),
            Event::Read { ticket, result } => self.read(turn, ticket, result),
            Event::Wrote { ticket, result } => self.wrote(turn, ticket, result),
            Event::Paged { ticket, result } => match self.desk.orders.remove(ticket) {
                Some(Order::Page { requester, range }) => {
                    replica::paged(&mut self.desk, turn, requester, range, result);
                }
                Some(Order::HintPage { walk }) => {
                    self.keeper.paged(&mut self.desk, turn, walk, result);
                }
                Some(Order::OrphanPage { pass }) => {
                    self.keeper.orphans_paged(&self.desk, turn, pass, result);
                }
                Some(Order::LoadPage {
                    requester,
                    partitions,
                }) => replica::load_paged(&mut self.desk, turn, requester, &partitions, result),
                Some(Order::ListPage { requester, shared }) => {
                    replica::ranges::listed(&mut self.desk, turn, requester, &shared, result);
                }
                Some(Order::OwnPage { walk }) => {
                    self.comparer.paged(&mut self.desk, turn, walk, result);
                }
                _ => {}
            },
            Event::Surveyed { ticket, result } => match self.desk.orders.remove(ticket) {
                Some(Order::Survey { requester, prints }) => {
                    replica::ranges::surveyed(&mut self.desk, turn, requester, &prints, result);
                }
                Some(Order::OwnSurvey { walk }) => {
                    self.comparer.surveyed(&mut self.desk, turn, walk, result);
                }
                _ => {}
            },
            Event::Covered { hlc } => {
                self.desk.hlc.cover(hlc);
                self.send_covered(turn);
            }
            Event::Layout { layout } => self.adopt(turn, layout),
            Event::Lost { spans } => self.repairer.lost(&mut self.desk, turn, spans),
            Event::AcceptLoss { blocks, without } => {
                self.repairer
                    .accept_loss(&mut self.desk, turn, &blocks, &without);
            }
            Event::Look { order } => self.comparer.look(turn, order),
            Event::WatchOpen {
                watch,
                span,
                from,
                heartbeat_us,
            } => {
                let (me, health) = (self.desk.me, &self.desk.health);
                self.watching.open(
                    turn.now,
                    &self.desk.layout,
                    |member| member == me || health.is_up(member),
                    (watch, span, &from, heartbeat_us),
                );
            }
            Event::WatchMore { watch } => self.watching.more(turn.now, watch),
            Event::WatchClose { watch } => self.watching.close(watch),
            Event::Changed => replica::feed::look_again(&mut self.desk, turn),
            Event::Throttle { bytes_per_second } => self.loader.throttle(bytes_per_second),
            Event::Pressed {
                readiness,
                is_strained,
            } => (self.desk.readiness, self.desk.is_strained) = (readiness, is_strained),
            Event::Tick => self.tick(turn),
        }
        self.empty_inbox(turn);
        self.settle_disputes(turn);
        self.serve_watches(turn);
        self.forgetting.look(&self.desk, &self.ops);
        debug_assert!(
            self.desk.outbox.is_empty(),
            "only operations and scans ask it"
        );
    }

    /// When the next `Tick` is wanted at the latest, on the monotonic clock.
    pub fn due_us(&self) -> Option<u64> {
        let due_us = self
            .ops
            .due_us()
            .min(self.desk.asks.due_us())
            .min(self.probes.open.due_us())
            .min(self.scans.due_us())
            .min(self.keeper.due_us())
            .min(self.loader.due_us())
            .min(self.comparer.due_us())
            .min(self.repairer.due_us())
            .min(self.desk.feeds.due_us())
            .min(self.watching.due_us().unwrap_or(NEVER))
            .min(self.cover_us)
            .min(self.exchange.due_us);
        (due_us != NEVER).then_some(due_us)
    }

    /// Operations under way, those included that only linger or mend after their outcome.
    pub fn operations(&self) -> usize {
        self.ops.len()
    }

    /// Questions and orders that are open although their operation or scan has ended.
    pub fn orphans(&self) -> usize {
        let is_orphan = |purpose: &Purpose| match purpose {
            Purpose::Op { op, .. } => self.ops.find(*op).is_none(),
            Purpose::Page { scan, .. } => self.scans.find(*scan).is_none(),
            Purpose::Probe { .. }
            | Purpose::Hint { .. }
            | Purpose::Load { .. }
            | Purpose::Foreground { .. }
            | Purpose::Feed { .. }
            | Purpose::Compare { .. }
            | Purpose::Unneeded => false,
        };
        self.desk.purposes().filter(is_orphan).count()
    }

    /// How long the rounds of operations took so far.
    pub fn rounds(&self) -> &RoundStats {
        &self.desk.rounds
    }

    /// Records of which two copies under one version were seen to differ, since the last time this
    /// was asked.
    pub fn take_disputes(&mut self) -> Vec<(Bytes, Version)> {
        self.desk.disputes.take_seen()
    }

    /// How many such sightings there were.
    pub fn disputes(&self) -> u64 {
        self.desk.disputes.so_far()
    }

    /// Comparisons that found something or failed, since the last time this was asked.
    pub fn take_comparisons(&mut self) -> Vec<CompareReport> {
        self.comparer.take_reports()
    }

    /// The findings of an operator's look, if they are more than at the last call.
    pub fn take_look(&mut self) -> Option<LookReport> {
        self.comparer.take_look()
    }

    /// Does this member confirm its epoch, so that horizons may rise? To be asked of its keeper.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn confirms(&self) -> Result<Confirmed, HeldBack> {
        let is_busy = self.loader.is_busy() || self.repairer.is_busy();
        self.forgetting.confirms(&self.desk, is_busy)
    }

    /// The loss without which damage of this member cannot be repaired. To be asked of its keeper.
    ///
    /// # Errors
    /// Why there is no loss to accept.
    pub fn loss(&self, now: Now) -> Result<RepairLoss, NoLoss> {
        self.repairer.loss(&self.desk, now.mono_us)
    }

    /// Bytes that this loop loaded as a new owner so far.
    pub fn loaded_bytes(&self) -> u64 {
        self.loader.loaded_bytes()
    }

    /// How another member does, as this loop sees it.
    pub fn health(&self, member: MemberIndex) -> PeerHealth {
        self.desk.health.of(member)
    }

    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        client: ClientTicket,
        key: Bytes,
        operation: Operation,
        quorum: Quorum,
        deadline_us: u64,
    ) {
        if self.ops.len() >= self.operations_max {
            turn.effects.push(Op::overloaded(client));
            return;
        }
        let partition = self.desk.ring().partition(&key);
        let op = Op::new(Some(client), key, partition, operation, quorum, deadline_us);
        self.enter(turn, op);
    }

    fn explain(
        &mut self,
        turn: &mut Turn<'_>,
        client: ClientTicket,
        key: Bytes,
        quorum: Quorum,
        deadline_us: u64,
    ) {
        if self.ops.len() >= self.operations_max {
            turn.effects.push(Op::overloaded(client));
            return;
        }
        let partition = self.desk.ring().partition(&key);
        let read = Operation::Get;
        let mut op = Op::new(Some(client), key, partition, read, quorum, deadline_us);
        op.intent = Intent::Get(Breadth::Enough, Some(Box::default()));
        self.enter(turn, op);
    }

    /// Gives an operation its entry, and begins it unless its time is over.
    fn enter(&mut self, turn: &mut Turn<'_>, new: Op) {
        let deadline_us = new.deadline_us;
        let id = self.ops.insert(new, deadline_us);
        self.with_op(turn, id, |op, desk, turn| {
            op.id = id;
            op.since_us = turn.now.mono_us;
            if op.is_too_wide(desk) {
                return op.adopt(desk, turn, &desk.layout.clone());
            }
            if turn.now.mono_us >= deadline_us {
                return op.due(desk, turn);
            }
            op.work(|op, _| op.begin(desk, turn, WaitFor::Begin));
        });
    }

    /// Begins the operations that end disputes. No client waits for them. A dispute for which there
    /// is no room now is found again later.
    fn settle_disputes(&mut self, turn: &mut Turn<'_>) {
        while let Some(todo) = self.desk.disputes.next() {
            if self.ops.len() >= self.operations_max {
                continue;
            }
            let quorum = self.usual_quorum();
            let deadline_us = turn.now.mono_us + DISPUTE_TIMEOUT_US;
            let (key, operation) = todo.operation();
            let partition = self.desk.ring().partition(&key);
            let mut op = Op::new(None, key, partition, operation, quorum, deadline_us);
            if let Intent::Get(breadth, _) = &mut op.intent {
                *breadth = Breadth::All;
            }
            self.enter(turn, op);
        }
    }

    /// The quorum of an operation at the default level.
    fn usual_quorum(&self) -> Quorum {
        let topology = &self.desk.topology;
        Quorum::usual(topology.replication_factor(), topology.live())
    }

    /// This member knows a later epoch: operations and scans go on in it.
    fn adopt(&mut self, turn: &mut Turn<'_>, layout: Arc<Layout>) {
        if layout.epoch() <= self.desk.layout.epoch() {
            return;
        }
        let before = self.desk.set_layout(turn, layout);
        self.forgetting.adopt(&self.desk, &self.ops);
        let ops: Vec<OpId> = self.ops.iter().map(|(id, _)| id).collect();
        for id in ops {
            self.with_op(turn, id, |op, desk, turn| op.adopt(desk, turn, &before));
        }
        // The answers that came are of the owners before.
        let scans: Vec<u64> = self.scans.iter().map(|(id, _)| id).collect();
        for id in scans {
            self.with_scan(turn, id, |scan, desk, turn| {
                scan.ask(desk, turn);
                Scanning::Continues
            });
        }
        for early in std::mem::take(&mut self.desk.early) {
            replica::asked(&mut self.desk, turn, early.asker, early.stamp, early.ask);
        }
        self.keeper.adopt(&mut self.desk, turn, before.topology());
        self.loader.adopt(&mut self.desk, turn);
        self.comparer.adopt(turn);
        self.repairer.adopt(&mut self.desk, turn);
        if !self.watching.is_empty() {
            let Desk {
                me,
                health,
                layout: now,
                ..
            } = &self.desk;
            let is_up = |member| member == *me || health.is_up(member);
            self.watching.adopt(turn.now, (&before, now), is_up);
        }
    }

    /// The link to `member` is back. Operations that wait for links see whether there are enough
    /// now, and those that asked the member in vain ask it again.
    fn link_up(&mut self, turn: &mut Turn<'_>, member: MemberIndex) {
        let ops = self.ops.iter();
        let without = ops.filter_map(|(id, op)| op.should_ask(&self.desk, member).then_some(id));
        for id in without.collect::<Vec<_>>() {
            self.with_op(turn, id, |op, desk, turn| op.link_up(desk, turn, member));
        }
        let scans = self.scans.iter();
        let waiting = scans.filter_map(|(id, scan)| scan.should_ask(member).then_some(id));
        for id in waiting.collect::<Vec<_>>() {
            self.with_scan(turn, id, |scan, desk, turn| {
                scan.link_up(desk, turn, member);
                Scanning::Continues
            });
        }
    }

    /// Works on an operation, if it is still there, and sees to its entry afterwards.
    fn with_op(
        &mut self,
        turn: &mut Turn<'_>,
        id: OpId,
        work: impl FnOnce(&mut Op, &mut Desk, &mut Turn<'_>),
    ) {
        let Some(op) = self.ops.find_mut(id) else {
            return;
        };
        let now_us = turn.now.mono_us;
        let (kind, round, was_told) = (op.stage.round(), op.round, op.stage.is_told());
        let is_clients = op.client.is_some();
        work(op, &mut self.desk, turn);
        let is_told = op.stage.is_told();
        let is_left = (kind, round) != (op.stage.round(), op.round) || is_told;
        if is_left && !was_told {
            if let Some(kind) = kind {
                let took_us = now_us.saturating_sub(op.since_us);
                self.desk.rounds.note(kind, took_us);
                if is_clients && kind.waits_for_members() {
                    self.desk.foreground.add(took_us);
                }
            }
            op.since_us = now_us;
        }
        if is_told {
            op.leave_queue(&mut self.desk);
            if let Intent::Look(_, looked) = &mut op.intent
                && !was_told
            {
                let answer = HubAnswer::Looked(op.key.clone(), looked.take());
                self.watching.note(answer);
            }
        }
        if matches!(op.stage, Stage::Settled(_)) {
            if !op.is_frugal(&self.desk) {
                self.desk.rounds.note_wasteful();
            }
            self.ops.forget(id);
        } else {
            let due_us = op.due_us();
            self.ops.set_due(id, due_us);
        }
        self.ask_own(turn);
    }

    /// Routes the questions to the own replica. The effects of each question are placed where the
    /// question stood.
    fn ask_own(&mut self, turn: &mut Turn<'_>) {
        let mut earlier = 0;
        while let Some(own) = self.desk.outbox.pop_front() {
            let before = turn.effects.len();
            replica::asked_by_own(&mut self.desk, turn, own.purpose, own.ask, own.deadline_us);
            let made = turn.effects.len() - before;
            turn.effects[own.at + earlier..].rotate_right(made);
            earlier += made;
        }
    }

    /// Ends the operations and scans of clients that hung up, as far as they may end, and withdraws
    /// their questions. All of one turn are handled together: one look at the open entries serves
    /// any number of them.
    fn abandon(&mut self, turn: &mut Turn<'_>) {
        if self.gone.is_empty() {
            return;
        }
        let mut gone = std::mem::take(&mut self.gone);
        gone.sort_unstable();
        let is_gone = |client: Option<ClientTicket>| {
            client.is_some_and(|client| gone.binary_search(&client).is_ok())
        };
        let ops = self.ops.iter();
        let mut ops: Vec<OpId> = ops
            .filter_map(|(id, op)| is_gone(op.client).then_some(id))
            .collect();
        ops.retain(|id| {
            self.with_op(turn, *id, |op, _, turn| op.abandon(turn));
            self.ops.find(*id).is_none()
        });
        let scans = self.scans.iter();
        let scans: Vec<u64> = scans
            .filter_map(|(id, scan)| is_gone(scan.client).then_some(id))
            .collect();
        for id in &scans {
            self.with_scan(turn, *id, |scan, _, turn| scan.abandon(turn));
        }
        if !ops.is_empty() || !scans.is_empty() {
            self.desk.withdraw(turn, &ops, &scans);
        }
        gone.clear();
        self.gone = gone;
    }

    fn answered(&mut self, turn: &mut Turn<'_>, member: MemberIndex, id: AskId, answer: Answer) {
        let Some(purpose) = self.desk.answered(turn, member, id) else {
            return;
        };
        if !plausible::is_answer(&answer) {
            self.route(turn, purpose, Answer::Refused(Refused::ClockApart));
            return;
        }
        if let Answer::Clock {
            hlc,
            wall_ms,
            readiness,
            ..
        } = answer
        {
            self.desk.follow(hlc);
            self.desk.walls.note(member, wall_ms, turn.now);
            self.desk.health.told(member, readiness, turn.now.mono_us);
        }
        self.route(turn, purpose, answer);
    }

    /// Asks each other member for its wall clock, unless it was told a moment ago.
    fn exchange_walls(&mut self, turn: &mut Turn<'_>) {
        if turn.now.mono_us < self.exchange.due_us {
            return;
        }
        let pause_us = if self.desk.walls.is_doubted(turn.now) {
            WALL_EXCHANGE_DOUBTED_US
        } else {
            WALL_EXCHANGE_US
        };
        self.exchange.due_us = NEVER;
        for member in (0..self.desk.topology.len()).map(MemberIndex) {
            if member == self.desk.me || !self.desk.health.is_up(member) {
                continue;
            }
            self.exchange.due_us = turn.now.mono_us + pause_us;
            let age_us = self.desk.walls.age_us(member, turn.now);
            if age_us.is_none_or(|age_us| age_us >= pause_us / 2) {
                let deadline_us = turn.now.mono_us + WALL_EXCHANGE_US;
                self.desk
                    .ask(turn, member, Purpose::Unneeded, Ask::Clock, deadline_us);
            }
        }
    }

    fn read(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: StoreTicket,
        result: Result<Option<Cell>, StoreFailure>,
    ) {
        match self.desk.orders.remove(ticket) {
            Some(Order::Read { requester, known }) => {
                replica::read(&mut self.desk, turn, requester, known, result);
            }
            Some(Order::Protocol(job)) => {
                replica::protocol::read(&mut self.desk, turn, job, result);
            }
            Some(Order::HintKept(keeping)) => hints::found(&mut self.desk, turn, keeping, result),
            _ => {}
        }
    }

    fn wrote(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: StoreTicket,
        result: Result<StoreOutcome, StoreFailure>,
    ) {
        match self.desk.orders.remove(ticket) {
            Some(Order::Write { requester }) => {
                replica::wrote(&mut self.desk, turn, requester, result);
            }
            Some(Order::Protocol(job)) => {
                replica::protocol::wrote(&mut self.desk, turn, job, result);
            }
            Some(Order::HintKept(keeping)) => hints::kept(&mut self.desk, turn, keeping, result),
            Some(Order::HintGone { bytes }) => hints::gone(&self.desk, bytes, result),
            Some(Order::OrphanGone { bytes }) => {
                self.keeper.orphan_gone(&self.desk, turn, bytes, result);
            }
            Some(Order::Loaded { walk }) => {
                let (desk, is_written) = (&mut self.desk, result.is_ok());
                match walk.of {
                    Walker::Loader => self.loader.wrote(desk, turn, walk, is_written),
                    Walker::Repairer => self.repairer.wrote(desk, turn, walk, is_written),
                }
            }
            Some(Order::Fetched { walk, slot }) => {
                self.comparer
                    .wrote(&mut self.desk, turn, walk, slot, result.is_ok());
            }
            _ => {}
        }
    }

    fn scan(&mut self, turn: &mut Turn<'_>, new: ScanOp) {
        let (due_us, is_full) = (new.due_us(), self.scans.len() >= SCANS_MAX);
        let id = self.scans.insert(new, due_us);
        self.with_scan(turn, id, |scan, desk, turn| {
            scan.id = id;
            if is_full || turn.now.mono_us >= due_us {
                return scan.refuse(turn);
            }
            scan.ask(desk, turn);
            Scanning::Continues
        });
    }

    /// Works on a scan, if it is still there, and sees to its entry afterwards.
    fn with_scan(
        &mut self,
        turn: &mut Turn<'_>,
        id: u64,
        work: impl FnOnce(&mut ScanOp, &mut Desk, &mut Turn<'_>) -> Scanning,
    ) {
        let Some(scan) = self.scans.find_mut(id) else {
            return;
        };
        match work(scan, &mut self.desk, turn) {
            Scanning::Continues => {
                let due_us = scan.due_us();
                self.scans.set_due(id, due_us);
            }
            Scanning::Over => {
                if let Some(keys) = scan.keys.take() {
                    let WatchedKeys {
                        watch,
                        page,
                        passed,
                        ..
                    } = *keys;
                    self.watching.note(HubAnswer::Passed(watch, page, passed));
                }
                self.scans.forget(id);
            }
        }
        self.ask_own(turn);
    }

    fn empty_inbox(&mut self, turn: &mut Turn<'_>) {
        loop {
            while let Some((purpose, answer)) = self.desk.inbox.pop_front() {
                self.route(turn, purpose, answer);
            }
            match self.desk.write_queues.passed.pop_front() {
                Some(passed) => self.pass(turn, &passed),
                None => return,
            }
        }
    }

    /// A conditional write got its outcome. Its precedent judges those behind it, and the next one
    /// goes ahead.
    fn pass(&mut self, turn: &mut Turn<'_>, passed: &PassedWrite) {
        let now_us = turn.now.mono_us;
        let mut waiting = self.desk.write_queues.behind(&passed.key);
        if let Some(precedent) = &passed.precedent {
            waiting.retain(|waiting| {
                self.with_op(turn, waiting.op, |op, _, turn| {
                    op.share_verdict(turn, precedent, waiting.came);
                });
                self.ops.find(waiting.op).is_some()
            });
        }
        if let Some(next) = waiting.pop_front() {
            let key = &passed.key;
            self.desk.write_queues.go_ahead(key, waiting, now_us);
            self.with_op(turn, next.op, |op, desk, turn| op.go_ahead(desk, turn));
        }
    }

    fn route(&mut self, turn: &mut Turn<'_>, purpose: Purpose, answer: Answer) {
        match purpose {
            Purpose::Op { op, place, round } => {
                self.with_op(turn, op, |op, desk, turn| {
                    op.answered(desk, turn, place, round, answer);
                });
            }
            Purpose::Probe { probe, member } => {
                self.probe_answered(turn, probe, member, &answer);
            }
            Purpose::Hint { walk, slot } => {
                self.keeper
                    .delivered(&mut self.desk, turn, walk, slot, &answer);
            }
            Purpose::Page {
                scan,
                member,
                round,
            } => self.with_scan(turn, scan, |scan, desk, turn| {
                scan.answered(desk, turn, member, round, answer)
            }),
            Purpose::Load { walk } => match walk.of {
                Walker::Loader => self.loader.answered(&mut self.desk, turn, walk, answer),
                Walker::Repairer => self.repairer.answered(&mut self.desk, turn, walk, answer),
            },
            Purpose::Foreground { look, member } => {
                self.loader
                    .foreground(&mut self.desk, turn, (look, member), &answer);
            }
            Purpose::Feed { source, question } => {
                let fed = watching::fed_of(answer);
                self.watching.note(HubAnswer::Fed(source, question, fed));
            }
            Purpose::Compare { walk, slot } => {
                self.comparer
                    .answered(&mut self.desk, turn, walk, slot, answer);
            }
            Purpose::Unneeded => {}
        }
    }

    /// A member's clock counts for all operations of the probe.
    fn probe_answered(
        &mut self,
        turn: &mut Turn<'_>,
        probe: u64,
        member: MemberIndex,
        answer: &Answer,
    ) {
        let Some(open) = self.probes.open.find_mut(probe) else {
            return;
        };
        open.open -= 1;
        let is_over = open.open == 0;
        let ops = std::mem::take(&mut open.ops);
        for id in &ops {
            self.with_op(turn, *id, |op, desk, turn| {
                if let Some(place) = op.clock_place_of(desk, member) {
                    let round = op.round;
                    match answer {
                        Answer::Refused(Refused::Stale { .. }) => {
                            op.answered(desk, turn, place, round, answer.clone());
                        }
                        answer => op.clock_answered(desk, turn, place, answer),
                    }
                }
            });
        }
        if is_over {
            self.probes.open.remove(probe);
            self.probes.recycle(ops);
        } else if let Some(left) = self.probes.open.find_mut(probe) {
            left.ops = ops;
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_>) {
        self.abandon(turn);
        let mut late = std::mem::take(&mut self.late);
        self.probes.open.late(turn.now.mono_us, &mut late);
        for id in late.drain(..) {
            if let Some(probe) = self.probes.open.remove(id) {
                self.probes.recycle(probe.ops);
            }
        }
        self.ops.late(turn.now.mono_us, &mut late);
        for id in late.drain(..) {
            self.with_op(turn, id, |op, desk, turn| op.due(desk, turn));
        }
        self.scans.late(turn.now.mono_us, &mut late);
        for id in late.drain(..) {
            self.with_scan(turn, id, |scan, desk, turn| scan.due(desk, turn));
        }
        // Questions after operations: an operation that is over need not look for another owner to
        // ask.
        self.desk.asks.late(turn.now.mono_us, &mut late);
        for id in late.drain(..) {
            self.desk.give_up(turn, id);
        }
        self.late = late;
        self.keeper.tick(&mut self.desk, turn);
        self.loader.tick(&mut self.desk, turn);
        self.comparer.tick(&mut self.desk, turn);
        self.repairer.tick(&mut self.desk, turn);
        let now_us = turn.now.mono_us;
        if self.desk.feeds.due_us() <= now_us {
            replica::feed::look_again(&mut self.desk, turn);
        }
        self.watching.tick(turn.now);
        self.desk.early.retain(|early| now_us < early.due_us);
        self.exchange_walls(turn);
        // A peer that takes no question counts as an answer: then other owners are asked, until
        // none is left.
        while !self.desk.unclocked.is_empty() {
            send_probe(&mut self.desk, turn, &mut self.probes, &mut self.ops);
            self.empty_inbox(turn);
        }
        if let Some(hlc) = self.desk.hlc.needs_ceiling(turn.now.wall_ms) {
            turn.effects.push(Effect::Cover { hlc });
        }
        self.send_covered(turn);
    }

    /// Operations go on that waited for a ceiling which is durable now.
    fn send_covered(&mut self, turn: &mut Turn<'_>) {
        let waiting = std::mem::take(&mut self.desk.uncovered);
        for id in waiting {
            self.with_op(turn, id, |op, desk, turn| {
                op.work(|op, stage| match stage {
                    Stage::Cover(before) => op.send_when_covered(desk, turn, before),
                    other => other,
                });
            });
        }
        self.cover_us = if self.desk.uncovered.is_empty() {
            NEVER
        } else {
            turn.now.mono_us + COVER_POLL_US
        };
    }
}
