//! The steward: one member's part in changing the members, for a whole process.
//!
//! ```text
//! operator, joiner ─► order ─► draft ─► proposal ─┐
//! loops ─► loaded ─► arrivals ─► next step ───────┤
//! loops, others ─► confirmed ─► horizons rise ────┴─► Chain ─► chosen, durable ─► Adopt: fence, loops
//! others ─► progress, votes, epochs ──────────────────┘            └─► orders answered, history
//!
//! which member carries a plan on: its author; when that one is not reached, the voters by number,
//! each after `STEWARD_TURN_US` for every one in front of it that is
//! ```
//!
//! How a world drives it: `open` with the folder's records, then `step` for each event, with time
//! as an argument. Effects are carried out in their order. The event loops of the process get their
//! layouts from `Adopt` alone. Their `Effect::Loaded` comes back as `StewardEvent::Loaded`. A
//! process that is no member yet has no steward. It asks a member with `EnrolRequest` until it is
//! told `Enrolled`, and opens its steward with that record.
//!
//! Invariants
//! 1. The newest record, and the news that members repeat each second, are all that a plan needs to
//!    go on. Any voter can carry it on, also after all members were killed at once.
//! 2. One order or one step of a plan is proposed at a time; orders go first.
//! 3. A member that adopts its own removal hands on that epoch until a majority of the next voters
//!    has it. Without that majority the cluster could need the removed one's vote.
//! 4. Orders, drafts, history and reports are bounded.
//! 5. No record of a version that this process does not know is voted for, adopted or handed on.
//!
//! Not here: votes and records (`epoch/`), operations while positions move, and copying (crate
//! `node`), links and notes (crate `server`).
//! Test: crates/ownership/tests/steward. See: docs/protocol.md, "Changes of members".

mod accepted_loss;
mod arrivals;
mod codec;
pub mod declined;
mod draft;
mod draft_id;
mod driving;
pub mod face;
mod history;
mod loads;
mod losses;
mod lost_epochs;
pub mod messages;
mod ordering;
mod orders;
mod peers;
pub mod places;
mod rising;
mod status;
pub mod step;
mod waiting;

use crate::epoch::chain::{Chain, ChainEffect, ChainEvent, ChainMessage};
use crate::epoch::chain::{ChainPeer, VoteNote};
use crate::epoch::record::{EpochChange, EpochRecord};
use crate::layout::Layout;
use crate::loss::{NoLoss, RepairLoss};
use crate::ring::table::BadTable;
use accepted_loss::AcceptedLoss;
use arrivals::Arrivals;
use dendra_base::ClusterVersions;
use dendra_base::Now;
use draft::Draft;
use history::History;
use loads::PlanLoads;
use messages::{ForgetNews, LoadGauges, StewardMessage, ThrottleOrder};
use orders::PendingOrder;
use peers::{PeerSights, full_since};
use std::collections::VecDeque;
use std::sync::Arc;
use step::{StewardEffect, StewardEvent};

/// The folder, records and settings that a steward begins with.
#[derive(Debug)]
pub struct StewardStart {
    /// This member and its folder.
    pub me: ChainPeer,
    /// Epochs of the folder, the newest last, with the wall clock (milliseconds since 1970) at
    /// which each was learnt. At least one.
    pub records: Vec<(EpochRecord, u64)>,
    /// The newest epoch that the folder has taken part in, as its own note says. The record of it
    /// may be one that cannot be read any more.
    pub fence: u64,
    /// The last vote of the folder.
    pub vote: Option<VoteNote>,
    /// Release of this process, for the others; at most `RELEASE_BYTES_MAX` bytes.
    pub release: String,
    /// The versions that this process knows: `ClusterVersions::OWN`, except in tests.
    pub versions: ClusterVersions,
    /// How many bytes a second this process loads, until it is told otherwise.
    pub load_bytes_per_second: u64,
    /// Positions that move at once: `MOVES_SIDE_BY_SIDE`.
    pub side_by_side: usize,
    /// This member proposes to raise the horizons at most this often; 0 = never.
    pub forget_every_us: u64,
    /// A member must be missed for so long before it can be replaced: `REPLACE_PATIENCE_US`.
    pub replace_patience_us: u64,
    /// For jitter: another one at each start.
    pub seed: u64,
}

/// The own rate of loading.
#[derive(Debug, Default)]
struct LoadMeter {
    gauges: Option<LoadGauges>,
    measured_us: u64,
}

impl LoadMeter {
    fn gauged(&mut self, now_us: u64, stored_bytes: u64, loaded_bytes: u64) {
        let before = self.gauges.unwrap_or_default();
        let took_us = now_us.saturating_sub(self.measured_us).max(1);
        let news = loaded_bytes.saturating_sub(before.loaded_bytes);
        let rate = news.saturating_mul(1_000_000) / took_us;
        let bytes_per_second = match self.gauges {
            Some(_) => u64::midpoint(before.bytes_per_second, rate),
            None => 0,
        };
        self.gauges = Some(LoadGauges {
            stored_bytes,
            loaded_bytes,
            bytes_per_second,
        });
        self.measured_us = now_us;
    }
}

/// See the module.
#[derive(Debug)]
pub struct Steward {
    me: ChainPeer,
    chain: Chain,
    /// The newest durable epoch, as of the last `adopted`.
    last: Arc<EpochRecord>,
    layout: Arc<Layout>,
    arrivals: Arrivals,
    peers: PeerSights,
    orders: VecDeque<PendingOrder>,
    drafts: VecDeque<Draft>,
    history: History,
    release: String,
    versions: ClusterVersions,
    load_bytes_per_second: u64,
    /// The last throttle order of an operator. A member that joins or comes back later is told it.
    throttled: Option<ThrottleOrder>,
    side_by_side: usize,
    meter: LoadMeter,
    loads: PlanLoads,
    /// The own disk is full since then.
    full_since_us: Option<u64>,
    progress_due_us: u64,
    /// An epoch, and since when (microseconds) this member could propose the next one.
    wish_since: Option<(u64, u64)>,
    /// Founders without a folder are waited for since then.
    unenrolled_since_us: Option<u64>,
    forget_every_us: u64,
    replace_patience_us: u64,
    /// The first event came then: members that were never reached are missed since.
    began_us: Option<u64>,
    /// The own loops' last news about horizons, and the epoch in which they were told.
    own_forgets: Option<(u64, ForgetNews)>,
    /// The horizons rose at this time, as far as this process has seen.
    risen_us: Option<u64>,
    /// Since when the newest epoch is known here, on the monotonic clock; `None` until that is
    /// asked.
    epoch_since_us: Option<u64>,
    /// In which epoch the own strays were dropped; 0 = in none.
    strays_epoch: u64,
    /// The loss that the first loop told last.
    loss: Result<RepairLoss, NoLoss>,
    /// Losses that were accepted here, the oldest first.
    losses: Vec<AcceptedLoss>,
    /// An input of `go_on` has changed.
    is_news: bool,
    /// This epoch, or an earlier one, removed this member.
    gone: Option<u64>,
    is_gone_told: bool,
}

impl Steward {
    /// Steward of a process that starts.
    ///
    /// # Errors
    /// When the newest record has no layout.
    ///
    /// # Panics
    /// Without a record.
    pub fn open(start: StewardStart) -> Result<Steward, BadTable> {
        let mut history = History::default();
        for (at, (record, learnt_ms)) in start.records.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &start.records[before].0);
            let before = before.filter(|before| before.epoch() + 1 == record.epoch());
            history.learnt(before, record, *learnt_ms, None);
        }
        let mut records = start.records;
        let layout = {
            let (last, _) = records.last().expect("a folder has a first epoch");
            let layout = Layout::of_record(last)?;
            Arc::new(layout.behind(records.iter().map(|(record, _)| record)))
        };
        let (record, _) = records.pop().expect("it was there");
        let arrivals = Arrivals::of(&record);
        let newest = (record, start.fence);
        let chain = Chain::open(start.me, newest, start.vote, start.seed);
        Ok(Steward {
            gone: chain.is_removed().then(|| chain.record().epoch()),
            last: Arc::clone(chain.record()),
            me: start.me,
            chain,
            layout,
            arrivals,
            peers: PeerSights::default(),
            orders: VecDeque::new(),
            drafts: VecDeque::new(),
            history,
            release: start.release,
            versions: start.versions,
            load_bytes_per_second: start.load_bytes_per_second.max(1),
            throttled: None,
            side_by_side: start.side_by_side.max(1),
            meter: LoadMeter::default(),
            full_since_us: None,
            loads: PlanLoads::default(),
            progress_due_us: 0,
            wish_since: None,
            unenrolled_since_us: None,
            forget_every_us: start.forget_every_us,
            replace_patience_us: start.replace_patience_us,
            began_us: None,
            own_forgets: None,
            risen_us: None,
            epoch_since_us: None,
            strays_epoch: 0,
            loss: Err(NoLoss::NoDamage),
            losses: Vec::new(),
            is_news: true,
            is_gone_told: false,
        })
    }

    /// The newest durable epoch.
    pub fn record(&self) -> &Arc<EpochRecord> {
        self.chain.record()
    }

    /// Why the newest epoch stopped a plan without an order, as far as this member knows.
    pub fn why_stopped(&self) -> Option<&str> {
        self.history.newest_why()
    }

    /// Layout of the newest epoch.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The newest epoch that this member has taken part in, while its newest record is older: the
    /// later ones of its folder cannot be read. Until it has learnt them it answers no question of
    /// an older epoch and does not vote.
    pub fn missing(&self) -> Option<u64> {
        self.chain.missing()
    }

    /// The newest epoch that another member told of.
    pub fn newest_told(&self) -> u64 {
        self.arrivals.newest_told()
    }

    /// This member and its folder.
    pub fn me(&self) -> ChainPeer {
        self.me
    }

    /// The plan under way.
    fn plan_id(&self) -> Option<u64> {
        self.record().plan().map(|plan| plan.id)
    }

    /// Is this a member, as far as is known here?
    pub fn knows(&self, peer: ChainPeer) -> bool {
        self.chain.knows(peer)
    }

    /// Takes one event, and appends the effects to `out`.
    pub fn step(&mut self, now: Now, event: StewardEvent, out: &mut Vec<StewardEffect>) {
        self.began_us.get_or_insert(now.mono_us);
        match event {
            StewardEvent::Received { from, message } => self.received(now, from, message, out),
            StewardEvent::Reached {
                peer,
                is_up,
                versions,
            } => {
                let record = Arc::clone(self.record());
                self.peers
                    .reached(&record, peer, is_up, versions, now.mono_us);
                self.is_news = true;
                // A member that comes later was not told.
                if let Some(order) = self.throttled.filter(|_| is_up) {
                    let (to, message) = (peer.member, StewardMessage::Throttle(order));
                    out.push(StewardEffect::Send { to, message });
                }
            }
            StewardEvent::Persisted { ticket } => {
                self.tell_chain(now, ChainEvent::Persisted { ticket }, out);
            }
            StewardEvent::Loaded { epoch, partitions } => {
                let (record, me) = (Arc::clone(self.record()), self.me.member);
                self.arrivals.loaded(&record, me, epoch, &partitions);
                self.is_news = true;
                self.report(out);
            }
            StewardEvent::Ahead { member, epoch } => {
                let other = self.record().member(member);
                if let Some(node) = other.map(|other| other.node) {
                    let from = ChainPeer { member, node };
                    let message = ChainMessage::At { epoch };
                    self.tell_chain(now, ChainEvent::Received { from, message }, out);
                }
            }
            StewardEvent::Gauged {
                stored_bytes,
                loaded_bytes,
            } => {
                self.meter.gauged(now.mono_us, stored_bytes, loaded_bytes);
                let count = (self.me.member, loaded_bytes);
                self.loads.told(self.plan_id(), count, now.mono_us);
            }
            StewardEvent::Forgets { news } => self.forgets(now, news, out),
            StewardEvent::DiskLooked { is_full } => {
                self.full_since_us = full_since(self.full_since_us, is_full, now.mono_us);
            }
            StewardEvent::Damaged { loss } => self.loss = loss,
            StewardEvent::Ordered { ticket, order } => self.ordered(now, ticket, order, out),
            StewardEvent::Enrol { ticket, request } => {
                let answer = self.enrol(now, &request);
                out.push(StewardEffect::EnrolAnswer { ticket, answer });
            }
            StewardEvent::Tick => {
                self.is_news = true;
                self.tell_chain(now, ChainEvent::Tick, out);
                self.tell_progress(now, out);
            }
        }
        if std::mem::take(&mut self.is_news) {
            self.go_on(now, out);
        }
    }

    fn received(
        &mut self,
        now: Now,
        from: ChainPeer,
        message: StewardMessage,
        out: &mut Vec<StewardEffect>,
    ) {
        let record = Arc::clone(self.record());
        self.peers.seen(&record, from);
        if let Some(version) = message
            .cluster_version()
            .filter(|v| *v > self.versions.newest)
        {
            out.push(StewardEffect::Outdated { version });
            return;
        }
        match message {
            StewardMessage::Chain(message) => {
                let epoch = match &message {
                    ChainMessage::At { epoch } => Some(*epoch),
                    ChainMessage::Removed { record: newest } => Some(newest.epoch()),
                    _ => None,
                };
                if let Some(epoch) = epoch.filter(|_| self.knows(from)) {
                    self.arrivals.told(from.member, epoch);
                    self.is_news = true;
                }
                self.tell_chain(now, ChainEvent::Received { from, message }, out);
            }
            StewardMessage::Progress(progress) => {
                // The chain compares epochs, and answers a member that was removed.
                let at = ChainMessage::At {
                    epoch: progress.epoch,
                };
                self.tell_chain(now, ChainEvent::Received { from, message: at }, out);
                if self.knows(from) {
                    self.arrivals.told(from.member, progress.epoch);
                    self.peers.told(&record, from, &progress, now.mono_us);
                    let loaded_bytes = progress.gauges.loaded_bytes;
                    let count = (from.member, loaded_bytes);
                    self.loads.told(self.plan_id(), count, now.mono_us);
                    let newest = Arc::clone(self.record());
                    self.arrivals.report(&newest, from.member, progress.arrived);
                    self.is_news = true;
                }
            }
            StewardMessage::Throttle(order) => {
                if self.knows(from) {
                    self.throttle(order, out);
                }
            }
        }
    }

    /// The last order to load slower or faster that this member knows: to be noted in the folder.
    pub fn throttled(&self) -> Option<ThrottleOrder> {
        self.throttled
    }

    /// The order that the folder knows. Before the first event.
    pub fn resume_throttle(&mut self, order: ThrottleOrder) {
        self.load_bytes_per_second = order.bytes_per_second.max(1);
        self.throttled = Some(order);
    }

    /// An earlier order than the known one is of a member that was away.
    fn throttle(&mut self, order: ThrottleOrder, out: &mut Vec<StewardEffect>) {
        if self.throttled < Some(order) {
            self.resume_throttle(order);
            let bytes_per_second = self.load_bytes_per_second;
            out.push(StewardEffect::Throttle { bytes_per_second });
        }
    }

    // The chain.

    fn tell_chain(&mut self, now: Now, event: ChainEvent, out: &mut Vec<StewardEffect>) {
        let mut effects = Vec::new();
        self.chain.step(now.mono_us, event, &mut effects);
        for effect in effects {
            self.chain_effect(now, effect, out);
        }
    }

    fn chain_effect(&mut self, now: Now, effect: ChainEffect, out: &mut Vec<StewardEffect>) {
        match effect {
            ChainEffect::Persist { ticket, note } => {
                out.push(StewardEffect::Persist { ticket, note });
            }
            ChainEffect::Send { to, message } => out.push(StewardEffect::Send {
                to,
                message: StewardMessage::Chain(message),
            }),
            ChainEffect::SendEpochs { to, from } => {
                out.push(StewardEffect::SendEpochs { to, from });
            }
            ChainEffect::Adopted { record } => self.adopted(now, &record, out),
            // A step that came too late: the next look proposes another one.
            ChainEffect::Refused { .. } => self.is_news = true,
            ChainEffect::GaveUp { .. } => {
                if let Some(order) = self.orders.front_mut() {
                    order.proposed = None;
                }
                self.is_news = true;
            }
            ChainEffect::Diverged { from, epoch } => {
                out.push(StewardEffect::Diverged { from, epoch });
            }
            ChainEffect::Removed { epoch } => {
                self.gone = Some(epoch);
                self.is_news = true;
            }
        }
    }

    fn adopted(&mut self, now: Now, record: &Arc<EpochRecord>, out: &mut Vec<StewardEffect>) {
        let before = std::mem::replace(&mut self.last, Arc::clone(record));
        let why = self.why_cancelled(&before, record);
        let follows = before.epoch() + 1 == record.epoch();
        let known = follows.then_some(&*before);
        let over = self.history.learnt(known, record, now.wall_ms, why);
        self.arrivals.adopt(&before, record);
        self.peers.adopt(&before, record);
        self.is_news = true;
        self.wish_since = None;
        self.epoch_since_us = Some(now.mono_us);
        if record.change() == EpochChange::Forgot {
            self.risen_us = Some(now.mono_us);
        }
        if record.member(self.me.member).is_some() {
            match self.layout.next(record) {
                Ok(layout) => {
                    self.layout = Arc::new(layout);
                    out.push(StewardEffect::Adopt {
                        record: Arc::clone(record),
                        layout: Arc::clone(&self.layout),
                    });
                }
                Err(_) => out.push(StewardEffect::NoLayout {
                    epoch: record.epoch(),
                }),
            }
        }
        out.extend(
            over.into_iter()
                .map(|epoch| StewardEffect::DropEpoch { epoch }),
        );
        self.settle_orders(record, out);
        self.report(out);
        let gone = before.members().iter();
        for member in gone.filter(|member| record.member(member.id).is_none()) {
            // It waits for a majority of the members that stay.
            self.send_progress(member.id, out);
        }
    }
}
