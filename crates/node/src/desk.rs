//! State that all parts of a node share: clock, table of owners, open questions and open orders.
//!
//! ```text
//! ask(member, question) ─► another member: Effect::Ask, and an entry of `asks`
//!                       ─► this member: `outbox`, from where node/ routes it to the replica
//! read, write, order    ─► the own store: an effect, and an entry of `orders`
//! inbox ◄─ answers of the own replica, and refusals of questions that never left
//! ```
//!
//! Invariants
//! 1. An answer that names no entry is dropped: it is late, repeated, or of an earlier life.
//! 2. `outbox` is empty between two steps.
//! 3. Open questions to each peer, and open orders, are bounded. At the bound the desk refuses a
//!    question itself.
//!
//! Not here: the meaning of an answer (`coordinator/`), the answer to a question (`replica/`).
//! See: docs/overload.md.

use crate::compare::progress::Comparisons;
use crate::compare::shared::SharedRecords;
use crate::config::NodeConfig;
use crate::disputes::Disputes;
use crate::feeds::Feeds;
use crate::foreground::ForegroundSeat;
use crate::health::Health;
use crate::hints::room::{HintRoom, Keeping};
use crate::hlc::Hlc;
use crate::ledger::Ledger;
use crate::limits::{EARLY_ASKS_MAX, EPOCH_LEARN_US, ORDERS_MAX, PEER_ASKS_MAX, REPLICA_JOBS_MAX};
use crate::purpose::{OpId, Purpose, Recipient, Requester, WalkId};
use crate::replica::job::ProtocolJob;
use crate::rounds::RoundStats;
use crate::step::{AskId, Asker, Effect, StoreFailure, StoreTicket};
use crate::walls::Walls;
use crate::write_queues::WriteQueues;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Range, Readiness, Refused, Stamp};
use dendra_base::{Cell, CellId, Guard, Key, Prng};
use dendra_ownership::layout::{Fence, Layout};
use dendra_ownership::limits::MEMBERS_MAX;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::{Partition, Ring};
use dendra_ownership::topology::Topology;
use std::collections::VecDeque;
use std::sync::Arc;

/// One step: the time, and the effects that it orders.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// A question that has no answer yet.
#[derive(Debug)]
pub(crate) struct OpenAsk {
    pub(crate) member: MemberIndex,
    pub(crate) purpose: Purpose,
    pub(crate) sent_us: u64,
}

/// A question to the own replica that is not routed yet.
#[derive(Debug)]
pub(crate) struct OwnAsk {
    pub(crate) purpose: Purpose,
    pub(crate) ask: Ask,
    pub(crate) deadline_us: u64,
    /// How many effects there were before it. The effects of this question go there: a world sees
    /// effects in the order in which they were asked for.
    pub(crate) at: usize,
}

/// A peer's question that waits until this member has learnt its epoch.
#[derive(Debug)]
pub(crate) struct EarlyAsk {
    pub(crate) asker: Asker,
    pub(crate) stamp: Stamp,
    pub(crate) ask: Ask,
    pub(crate) due_us: u64,
}

/// An order to the own store that is not done yet.
#[derive(Debug)]
pub(crate) enum Order {
    /// A copy is read.
    Read {
        requester: Requester,
        known: Option<CellId>,
    },
    /// A copy is written.
    Write { requester: Requester },
    /// A promise or an acceptance is under way.
    Protocol(Box<ProtocolJob>),
    /// A part of a range is read for a scan.
    Page { requester: Requester, range: Range },
    /// A hint is kept.
    HintKept(Box<Keeping>),
    /// A hint is deleted.
    HintGone { bytes: u64 },
    /// A part of the hints is read.
    HintPage { walk: u32 },
    /// A hint of a removed member is deleted.
    OrphanGone { bytes: u64 },
    /// A part of the hints is read, for those of removed members.
    OrphanPage { pass: u32 },
    /// A part of a space is read for a new owner.
    LoadPage {
        requester: Requester,
        partitions: Bytes,
    },
    /// A record that was loaded is written.
    Loaded { walk: WalkId },
    /// Ranges of a peer are looked at.
    Survey {
        requester: Requester,
        prints: Vec<u64>,
    },
    /// A part of a range is listed for a peer.
    ListPage {
        requester: Requester,
        shared: Arc<SharedRecords>,
    },
    /// The own copies of a part of a space are looked at.
    OwnSurvey { walk: u64 },
    /// The own records of a range that differs are read.
    OwnPage { walk: u64 },
    /// A record that a peer had is written.
    Fetched { walk: u64, slot: u32 },
}

impl Order {
    /// Gets its answer, if a peer or a machine of this node asked for it.
    fn requester(&self) -> Option<Requester> {
        match self {
            Order::Read { requester, .. }
            | Order::Write { requester }
            | Order::Page { requester, .. }
            | Order::LoadPage { requester, .. }
            | Order::Survey { requester, .. }
            | Order::ListPage { requester, .. } => Some(*requester),
            Order::Protocol(job) => Some(job.requester()),
            Order::HintKept(_)
            | Order::HintGone { .. }
            | Order::HintPage { .. }
            | Order::OrphanGone { .. }
            | Order::OrphanPage { .. }
            | Order::OwnSurvey { .. }
            | Order::OwnPage { .. }
            | Order::Fetched { .. }
            | Order::Loaded { .. } => None,
        }
    }

    /// Forgets the requester: its answer is of no use any more.
    fn forget_requester(&mut self) {
        let unneeded = Recipient::Own(Purpose::Unneeded);
        match self {
            Order::Read { requester, .. }
            | Order::Write { requester }
            | Order::Page { requester, .. }
            | Order::LoadPage { requester, .. }
            | Order::Survey { requester, .. }
            | Order::ListPage { requester, .. } => requester.to = unneeded,
            Order::Protocol(job) => job.forget_requester(),
            Order::HintKept(_)
            | Order::HintGone { .. }
            | Order::HintPage { .. }
            | Order::OrphanGone { .. }
            | Order::OrphanPage { .. }
            | Order::OwnSurvey { .. }
            | Order::OwnPage { .. }
            | Order::Fetched { .. }
            | Order::Loaded { .. } => {}
        }
    }
}

/// See the module.
pub(crate) struct Desk {
    pub(crate) layout: Arc<Layout>,
    /// Topology of the layout.
    pub(crate) topology: Arc<Topology>,
    /// See `shared_with`: of this layout, at most one a member.
    shared: Vec<(MemberIndex, Arc<SharedRecords>)>,
    pub(crate) fence: Arc<Fence>,
    /// Peers' questions of epochs that are not known here, about keys that this member does not own
    /// in its own epoch. At most `EARLY_ASKS_MAX`.
    pub(crate) early: VecDeque<EarlyAsk>,
    /// The epoch that was last asked for, and when.
    learning: (u64, u64),
    pub(crate) me: MemberIndex,
    pub(crate) origin: u32,
    pub(crate) hlc: Arc<Hlc>,
    pub(crate) walls: Arc<Walls>,
    pub(crate) hints: Arc<HintRoom>,
    pub(crate) comparisons: Arc<Comparisons>,
    pub(crate) foreground: ForegroundSeat,
    /// This member's changes, and who waits for more of them.
    pub(crate) feeds: Feeds,
    pub(crate) value_bytes_max: usize,
    /// The own store's answer to a write at this time; `Event::Pressed` sets it.
    pub(crate) readiness: Readiness,
    /// The own store has so much to catch up with that loads rest; set with `readiness`.
    pub(crate) is_strained: bool,
    pub(crate) disputes: Disputes,
    pub(crate) prng: Prng,
    pub(crate) health: Health,
    pub(crate) rounds: RoundStats,
    pub(crate) asks: Ledger<OpenAsk>,
    pub(crate) orders: Ledger<Order>,
    pub(crate) inbox: VecDeque<(Purpose, Answer)>,
    /// Questions to the own replica, until `node/` routes them: right after the call that asked
    /// them.
    pub(crate) outbox: VecDeque<OwnAsk>,
    pub(crate) write_queues: WriteQueues,
    /// Operations that ask for clocks with the next probe.
    pub(crate) unclocked: Vec<OpId>,
    /// Operations with a version that waits for its ceiling.
    pub(crate) uncovered: Vec<OpId>,
    open_asks: Vec<u32>,
}

impl Desk {
    pub(crate) fn new(config: NodeConfig) -> Desk {
        let members = config.layout.topology().members().len();
        let floor = config.layout.horizons().floor();
        let followed = config.hlc.observe(floor);
        debug_assert_eq!(followed, Ok(()), "a floor is a value of clocks");
        let mut prng = Prng::named(config.seed, "node");
        Desk {
            me: config.me,
            origin: config.origin,
            hlc: config.hlc,
            walls: config.walls,
            hints: config.hints,
            comparisons: config.compare.progress,
            foreground: ForegroundSeat::new(config.foregrounds),
            feeds: Feeds::new(config.changes, config.lane),
            value_bytes_max: config.value_bytes_max,
            readiness: Readiness::default(),
            is_strained: false,
            disputes: Disputes::default(),
            health: Health::new(members),
            rounds: RoundStats::default(),
            asks: Ledger::new(prng.next_u64()),
            orders: Ledger::new(prng.next_u64()),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            write_queues: WriteQueues::default(),
            unclocked: Vec::new(),
            uncovered: Vec::new(),
            open_asks: vec![0; MEMBERS_MAX],
            prng,
            topology: Arc::clone(config.layout.topology()),
            shared: Vec::new(),
            layout: config.layout,
            fence: config.fence,
            early: VecDeque::new(),
            learning: (0, 0),
        }
    }

    /// Asks a member, perhaps this one. Every question gets an answer in `inbox` or by
    /// `Event::Answered`, or none at all.
    pub(crate) fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        member: MemberIndex,
        purpose: Purpose,
        ask: Ask,
        deadline_us: u64,
    ) {
        if member == self.me {
            if self.orders.len() + self.outbox.len() >= ORDERS_MAX {
                self.refuse(purpose);
                return;
            }
            self.outbox.push_back(OwnAsk {
                purpose,
                ask,
                deadline_us,
                at: turn.effects.len(),
            });
            return;
        }
        let open = &mut self.open_asks[member.at()];
        if !self.health.is_up(member) || *open >= PEER_ASKS_MAX {
            self.refuse(purpose);
            return;
        }
        *open += 1;
        let sent_us = turn.now.mono_us;
        let entry = OpenAsk {
            member,
            purpose,
            sent_us,
        };
        let id = self.asks.insert(entry, deadline_us);
        let left_us = deadline_us.saturating_sub(sent_us);
        // Rounded up: zero means that the time is over.
        let left_ms = u32::try_from(left_us.div_ceil(1_000)).unwrap_or(u32::MAX);
        turn.effects.push(Effect::Ask {
            member,
            id,
            stamp: Stamp {
                cluster: self.topology.id(),
                epoch: self.topology.epoch(),
                left_ms,
            },
            ask,
        });
    }

    /// A question that does not leave is answered here.
    fn refuse(&mut self, purpose: Purpose) {
        let answer = Answer::Refused(Refused::Busy);
        self.inbox.push_back((purpose, answer));
    }

    /// The open question that an answer of `member` is for.
    pub(crate) fn answered(
        &mut self,
        turn: &Turn<'_>,
        member: MemberIndex,
        id: AskId,
    ) -> Option<Purpose> {
        self.asks.find(id).filter(|ask| ask.member == member)?;
        let ask = self.asks.remove(id)?;
        self.open_asks[ask.member.at()] -= 1;
        // A question about changes may be held: its time says nothing about the member.
        if !matches!(ask.purpose, Purpose::Feed { .. }) {
            self.health
                .answered(ask.member, ask.sent_us, turn.now.mono_us);
        }
        Some(ask.purpose)
    }

    /// Gives up a question that had no answer in its time.
    pub(crate) fn give_up(&mut self, turn: &Turn<'_>, id: AskId) {
        if let Some(ask) = self.asks.remove(id) {
            self.open_asks[ask.member.at()] -= 1;
            if !matches!(ask.purpose, Purpose::Feed { .. }) {
                self.health.late(ask.member, ask.sent_us, turn.now.mono_us);
            }
            self.inbox
                .push_back((ask.purpose, Answer::Refused(Refused::Late)));
        }
    }

    /// Gives up the open questions of operations and scans that ended early, and tells the peers
    /// that were asked.
    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, ops: &[OpId], scans: &[u64]) {
        let sorted = |ids: &[u64]| {
            let mut ids = ids.to_vec();
            ids.sort_unstable();
            ids
        };
        let (ops, scans) = (sorted(ops), sorted(scans));
        let is_over = |purpose: &Purpose| match purpose {
            Purpose::Op { op, .. } => ops.binary_search(op).is_ok(),
            Purpose::Page { scan, .. } => scans.binary_search(scan).is_ok(),
            Purpose::Probe { .. }
            | Purpose::Hint { .. }
            | Purpose::Load { .. }
            | Purpose::Foreground { .. }
            | Purpose::Feed { .. }
            | Purpose::Compare { .. }
            | Purpose::Unneeded => false,
        };
        let asks = self.asks.iter().filter(|(_, ask)| is_over(&ask.purpose));
        let mut asks: Vec<(MemberIndex, AskId)> = asks.map(|(id, ask)| (ask.member, id)).collect();
        let orders = self.orders.iter().filter(|(_, order)| {
            let to = order.requester().map(|requester| requester.to);
            matches!(to, Some(Recipient::Own(purpose)) if is_over(&purpose))
        });
        let tickets: Vec<StoreTicket> = orders.map(|(ticket, _)| ticket).collect();
        asks.sort_unstable();
        for of_member in asks.chunk_by(|(a, _), (b, _)| a == b) {
            let member = of_member[0].0;
            let ids: Vec<AskId> = of_member.iter().map(|(_, id)| *id).collect();
            for id in &ids {
                if let Some(ask) = self.asks.remove(*id) {
                    self.open_asks[member.at()] -= 1;
                    self.health.withdrawn(member, ask.sent_us, turn.now.mono_us);
                }
            }
            turn.effects.push(Effect::Withdraw { member, ids });
        }
        self.cancel(turn, tickets);
    }

    /// A peer does not need these answers any more. Store orders for them are cancelled where the
    /// store has not begun them, and no answer is sent.
    pub(crate) fn withdrawn(
        &mut self,
        turn: &mut Turn<'_>,
        member: MemberIndex,
        link: u64,
        mut ids: Vec<AskId>,
    ) {
        ids.sort_unstable();
        let is_its = |asker: &Asker| {
            (asker.member, asker.link) == (member, link) && ids.binary_search(&asker.id).is_ok()
        };
        let orders = self.orders.iter().filter(|(_, order)| {
            let to = order.requester().map(|requester| requester.to);
            matches!(to, Some(Recipient::Peer(asker)) if is_its(&asker))
        });
        let tickets: Vec<StoreTicket> = orders.map(|(ticket, _)| ticket).collect();
        for ticket in &tickets {
            if let Some(order) = self.orders.find_mut(*ticket) {
                order.forget_requester();
            }
        }
        self.cancel(turn, tickets);
    }

    fn cancel(&self, turn: &mut Turn<'_>, tickets: Vec<StoreTicket>) {
        if !tickets.is_empty() {
            turn.effects.push(Effect::Cancel { tickets });
        }
    }

    /// The purposes of all that is open for this node's machines: questions to peers, orders to the
    /// store.
    pub(crate) fn purposes(&self) -> impl Iterator<Item = Purpose> {
        let asks = self.asks.iter().map(|(_, ask)| ask.purpose);
        let orders = self
            .orders
            .iter()
            .filter_map(|(_, order)| match order.requester()?.to {
                Recipient::Own(purpose) => Some(purpose),
                Recipient::Peer(_) => None,
            });
        asks.chain(orders)
    }

    /// A link came up or went down. Questions over a lost link get no answer: they are refused.
    pub(crate) fn set_link(&mut self, turn: &Turn<'_>, member: MemberIndex, is_up: bool) {
        self.health.set_up(member, is_up, turn.now.mono_us);
        if is_up {
            return;
        }
        let lost: Vec<AskId> = self
            .asks
            .iter()
            .filter_map(|(id, ask)| (ask.member == member).then_some(id))
            .collect();
        for id in lost {
            if let Some(ask) = self.asks.remove(id) {
                self.open_asks[member.at()] -= 1;
                self.inbox
                    .push_back((ask.purpose, Answer::Refused(Refused::Busy)));
            }
        }
    }

    /// May another question of a peer open an order to the store?
    pub(crate) fn has_room(&self) -> bool {
        self.orders.len() < REPLICA_JOBS_MAX
    }

    /// Opens an order to the store.
    pub(crate) fn order(&mut self, order: Order) -> StoreTicket {
        self.orders.insert(order, crate::ledger::NEVER)
    }

    /// Reads a cell of the own store.
    pub(crate) fn read(&mut self, turn: &mut Turn<'_>, order: Order, key: Key, deadline_us: u64) {
        let ticket = self.order(order);
        turn.effects.push(Effect::Read {
            ticket,
            key,
            deadline_us,
        });
    }

    /// Writes a cell into the own store, if `guard` holds there.
    pub(crate) fn write(
        &mut self,
        turn: &mut Turn<'_>,
        order: Order,
        key: Key,
        cell: Cell,
        guard: Guard,
    ) {
        let ticket = self.order(order);
        turn.effects.push(Effect::Write {
            ticket,
            key,
            cell,
            guard,
        });
    }

    /// Gives an answer to its requester, unless the fence has passed the question. Then the
    /// partition has another owner, which may have loaded before the write that this answer tells
    /// of.
    pub(crate) fn reply(&mut self, turn: &mut Turn<'_>, requester: Requester, answer: Answer) {
        let answer = match self.stale(requester.epoch, requester.partition) {
            Some(why) => Answer::Refused(why),
            None => answer,
        };
        match requester.to {
            Recipient::Peer(asker) => turn.effects.push(Effect::Reply { asker, answer }),
            Recipient::Own(Purpose::Unneeded) => {}
            Recipient::Own(purpose) => self.inbox.push_back((purpose, answer)),
        }
    }

    /// The refusal of a question of this epoch, if the partition has other owners since.
    pub(crate) fn stale(&self, epoch: u64, partition: Option<Partition>) -> Option<Refused> {
        let is_stale = epoch < self.fence.changed(partition);
        // Never the asker's own epoch: the same question would come back at once.
        is_stale.then(|| Refused::Stale {
            epoch: self.fence.taken_part(),
        })
    }

    /// Another member knows a later epoch: the world is told, at most once in `EPOCH_LEARN_US` for
    /// the same epoch.
    pub(crate) fn learn(&mut self, turn: &mut Turn<'_>, member: MemberIndex, epoch: u64) {
        let (asked, due_us) = self.learning;
        let is_known = epoch <= self.layout.epoch();
        if is_known || (epoch <= asked && turn.now.mono_us < due_us) {
            return;
        }
        self.learning = (epoch, turn.now.mono_us + EPOCH_LEARN_US);
        turn.effects.push(Effect::Learn { member, epoch });
    }

    /// Keeps a peer's question until its epoch is known here; gives it back when there is no room.
    pub(crate) fn keep_early(&mut self, early: EarlyAsk) -> Option<EarlyAsk> {
        if self.early.len() >= EARLY_ASKS_MAX {
            return Some(early);
        }
        self.early.push_back(early);
        None
    }

    /// Owners of the epoch.
    pub(crate) fn ring(&self) -> &Ring {
        self.layout.ring()
    }

    /// The records that this member shares with `peer`. Each question of a comparison wants them,
    /// and to find them takes a look at every partition.
    pub(crate) fn shared_with(&mut self, peer: MemberIndex) -> Arc<SharedRecords> {
        if let Some((_, shared)) = self.shared.iter().find(|(member, _)| *member == peer) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(SharedRecords::seen_by(&self.layout, self.me, peer));
        self.shared.push((peer, Arc::clone(&shared)));
        shared
    }

    /// Takes over the members and owners of a later epoch. Returns those of the one before.
    pub(crate) fn set_layout(&mut self, turn: &Turn<'_>, layout: Arc<Layout>) -> Arc<Layout> {
        self.topology = Arc::clone(layout.topology());
        self.shared.clear();
        let before = std::mem::replace(&mut self.layout, layout);
        self.health.grow(self.topology.members().len());
        self.walls.set_members(usize::from(self.topology.live()));
        self.follow(self.layout.horizons().floor());
        for at in 0..self.topology.len() {
            let member = MemberIndex(at);
            if self.layout.id_of(member) != before.id_of(member) {
                // Another member, or none: links to it come up one day.
                self.set_link(turn, member, false);
                self.comparisons.forget(member);
            }
        }
        before
    }

    /// Takes note of a clock value that is a clock's (`plausible.rs` looked at it): later versions
    /// and ballots are larger.
    pub(crate) fn follow(&self, hlc: u64) {
        let followed = self.hlc.observe(hlc);
        debug_assert_eq!(followed, Ok(()), "messages are looked at before they count");
    }

    /// This member's clocks: no version that was stored here is later than `hlc`. The wall clock is
    /// told beside it and does not move it. So a wrong wall clock stays with its member until that
    /// member writes. The store's readiness for a write is told with them.
    pub(crate) fn clock(&self, turn: &Turn<'_>) -> Answer {
        Answer::Clock {
            hlc: self.hlc.last(),
            wall_ms: turn.now.wall_ms,
            kept: self.hlc.kept(),
            readiness: self.readiness,
        }
    }

    /// The next value of the clock, later than everything that was observed.
    pub(crate) fn tick(&self, turn: &Turn<'_>) -> u64 {
        self.hlc.tick_at(turn.now.wall_ms, turn.now.wall_part_us)
    }
}

/// A failure of the own store, in the words of an answer.
pub(crate) fn refused(failure: StoreFailure) -> Refused {
    match failure {
        StoreFailure::Busy | StoreFailure::NotApplied => Refused::Busy,
        StoreFailure::DiskFull => Refused::DiskFull,
        StoreFailure::Damaged => Refused::Damaged,
        StoreFailure::Late => Refused::Late,
        StoreFailure::Poisoned => Refused::Stopping,
    }
}
