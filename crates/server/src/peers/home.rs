//! The steward's home: a task of the first event loop, which gives it all events and carries out
//! all its effects.
//!
//! ```text
//! door.rs, orders.rs, time ─► step ─► Send          own links of the first loop
//!                                   ─► Persist       log, durable ─► Persisted
//!                                   ─► SendEpochs    read in a thread that may wait ─► a link
//!                                   ─► Adopt         fence, `Cluster`, then every loop's mailbox
//!                                   ─► AcceptLoss    log, durable ─► the first loop
//!                                   ─► DropStrays    engine, in the background ─► compared once more
//!                                   ─► Answer, EnrolAnswer, Throttle, Removed
//! ```
//!
//! Invariants
//! 1. Effects are carried out in their order. A note is durable before anything after it is done.
//! 2. The fence rises before a loop gets the layout of its epoch.
//! 3. A note that cannot be written is tried again until it is. Without it the member takes no part
//!    in changes, and everything else goes on.
//!
//! Not here: decisions (crate `ownership`, `steward/`).
//! See: docs/protocol.md, "Changes of members".

use super::horizons::HorizonWatch;
use super::notes::write_durably;
use crate::disk::{epochs, notes};
use crate::event_loop::thread::EventLoop;
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::member::agent::Agent;
use crate::member::door::StewardCall;
use crate::member::orders::OrderCall;
use crate::member::plan_watch::PlanWatch;
use dendra_base::{CellRef, Key};
use dendra_engine::Stop;
use dendra_node::step::Event;
use dendra_ownership::Steward;
use dendra_ownership::confirmed::HeldBack;
use dendra_ownership::epoch::chain::{ChainMessage, ChainNote};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::membership::{Disowned, FolderVerdict};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{AcceptedLoss, ClusterAnswer, ClusterOrder};
use dendra_ownership::steward::messages::{EnrolAnswer, StewardMessage};
use dendra_ownership::steward::places::PeerPlaces;
use dendra_ownership::steward::step::{StewardEffect, StewardEvent};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Begins the steward's life on the first loop, at most once.
pub(crate) fn settle(lane: &Rc<EventLoop>) {
    let Some(agent) = lane.agent() else {
        return;
    };
    if let Some(resident) = agent.cluster.take_resident() {
        let home = StewardHome {
            lane: Rc::clone(lane),
            agent,
            steward: resident.steward,
            places: PeerPlaces::default(),
            answers: HashMap::new(),
            enrolments: HashMap::new(),
            tickets: 0,
            gauged_us: 0,
            horizons: HorizonWatch::new(lane.now_us()),
            lag: EpochLag::default(),
            plan: PlanWatch::default(),
        };
        tokio::task::spawn_local(home.live(resident.calls, resident.ordered));
    }
}

/// See the module.
struct StewardHome {
    lane: Rc<EventLoop>,
    agent: Rc<Agent>,
    steward: Steward,
    places: PeerPlaces,
    answers: HashMap<u64, oneshot::Sender<ClusterAnswer>>,
    enrolments: HashMap<u64, oneshot::Sender<EnrolAnswer>>,
    tickets: u64,
    gauged_us: u64,
    horizons: HorizonWatch,
    lag: EpochLag,
    plan: PlanWatch,
}

/// Since when the own epoch is behind that of another member.
#[derive(Debug, Default)]
struct EpochLag {
    /// The own epoch, and when it was first seen to be behind. An epoch that rises lags no more.
    since: Option<(u64, u64)>,
}

impl EpochLag {
    /// The epoch that is lacked, if this is no passing matter; else 0.
    fn look(&mut self, now_us: u64, steward: &Steward) -> u64 {
        let (own, told) = (steward.record().epoch(), steward.newest_told());
        if own >= told {
            self.since = None;
            return steward.missing().unwrap_or(0);
        }
        let before = self.since.filter(|(epoch, _)| *epoch == own);
        let (_, since_us) = *self.since.insert(before.unwrap_or((own, now_us)));
        if now_us >= since_us + limits::EPOCH_PATIENCE_US {
            told
        } else {
            steward.missing().unwrap_or(0)
        }
    }
}

impl StewardHome {
    async fn live(
        mut self,
        mut calls: tokio::sync::mpsc::Receiver<StewardCall>,
        mut ordered: tokio::sync::mpsc::Receiver<OrderCall>,
    ) {
        self.places.note(self.steward.layout());
        if let Some(order) = self.steward.throttled() {
            let bytes_per_second = order.bytes_per_second;
            self.agent.post(Event::Throttle { bytes_per_second });
        }
        for loss in self.steward.losses_in_force() {
            self.agent.post(Event::from(loss));
        }
        let cluster = Arc::clone(&self.agent.cluster);
        let mut ticks = tokio::time::interval(limits::SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while let Some(event) = cluster.steward.door.next_sure() {
                self.step(event).await;
            }
            // All senders live as long as the cluster.
            tokio::select! {
                () = cluster.steward.door.rung() => {}
                Some(call) = calls.recv() => match call {
                    StewardCall::Tell(event) => self.step(event).await,
                    StewardCall::Enrol(request, answer) => {
                        let ticket = self.ticket();
                        self.enrolments.insert(ticket, answer);
                        self.step(StewardEvent::Enrol { ticket, request }).await;
                    }
                },
                Some(OrderCall { order, answer }) = ordered.recv() => {
                    if matches!(order, ClusterOrder::AcceptLoss { .. }) {
                        let loss = self.agent.loss(self.lane.now());
                        self.step(StewardEvent::Damaged { loss }).await;
                    }
                    let ticket = self.ticket();
                    self.answers.insert(ticket, answer);
                    self.step(StewardEvent::Ordered { ticket, order }).await;
                }
                _ = ticks.tick() => {
                    if let Some(event) = cluster.upkeep.looks.next(self.lane.now_us()) {
                        self.agent.post(event);
                    }
                    self.gauge().await;
                    self.step(StewardEvent::Tick).await;
                }
            }
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// About once a second.
    async fn gauge(&mut self) {
        self.lane.refresh();
        if self.lane.now_us() < self.gauged_us + limits::GAUGE_US {
            return;
        }
        self.gauged_us = self.lane.now_us();
        let stats = self.lane.parts.store.engine.stats();
        let event = StewardEvent::Gauged {
            // As loads count: before compression.
            stored_bytes: stats.table_raw_bytes + stats.memtable_bytes,
            loaded_bytes: self.agent.loaded_bytes(),
        };
        self.step(event).await;
        self.look_at_epochs();
        let is_full = self.is_disk_full();
        self.step(StewardEvent::DiskLooked { is_full }).await;
        self.horizons
            .look_at_strays(&self.lane, &self.agent.cluster);
        let layout = self.agent.cluster.layout();
        let news = match self.agent.confirms() {
            // A page may bring a record that is older than a delete of now.
            _ if self.lane.parts.store.import.is_under_way() => Some(Err(HeldBack::Restore)),
            Ok(confirmed) => Some(Ok(confirmed)),
            // The place of a member that was removed has no number.
            Err(held) => held.rename(|peer| layout.id_of(peer)).map(Err),
        };
        if let Some(news) = news {
            self.step(StewardEvent::Forgets { news }).await;
        }
        let state = self.steward.horizons(self.lane.now());
        let held = state.held.len() as u64;
        self.agent
            .cluster
            .upkeep
            .horizon_held
            .store(held, Ordering::Relaxed);
        self.horizons.warn(self.lane.now_us(), &state);
        let wait = self.steward.plan_wait(self.lane.now());
        self.plan.look(self.lane.now_us(), wait.as_ref());
        self.agent.cluster.plan_waits(wait);
        self.agent.cluster.run_releases(self.steward.releases());
    }

    fn look_at_epochs(&mut self) {
        let lacked = self.lag.look(self.lane.now_us(), &self.steward);
        let before = &self.agent.cluster.epochs.lacked;
        if before.swap(lacked, Ordering::Relaxed) == 0 && lacked > 0 {
            let epoch = self.steward.record().epoch();
            tracing::error!(
                epoch,
                lacked,
                "this member does not learn the newest epoch, and is not ready: look at the other members' logs; if it stays \
                 so, replace this member, or, where it is the only one, give the order dendra cluster accept-loss"
            );
        }
    }

    fn is_disk_full(&self) -> bool {
        let stop = self.lane.parts.store.engine.pressure().stop;
        matches!(stop, Some(Stop::DiskFull | Stop::DiskAndMemoryFull))
    }

    async fn step(&mut self, event: StewardEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(next) = events.pop_front() {
            self.lane.refresh();
            let mut effects = Vec::new();
            self.steward.step(self.lane.now(), next, &mut effects);
            for effect in effects {
                events.extend(self.carry_out(effect).await);
            }
        }
    }

    /// The next event for the steward, if there is one.
    async fn carry_out(&mut self, effect: StewardEffect) -> Option<StewardEvent> {
        match effect {
            StewardEffect::Send { to, message } => self.send(to, &message),
            StewardEffect::SendEpochs { to, from } => self.send_epochs(to, from),
            StewardEffect::Persist { ticket, note } => {
                self.persist(&note).await;
                return Some(StewardEvent::Persisted { ticket });
            }
            StewardEffect::Adopt { record, layout } => {
                let (epoch, change) = (record.epoch(), record.change());
                tracing::info!(epoch, ?change, "an epoch of the cluster is adopted");
                if let Some(why) = self.steward.why_stopped() {
                    tracing::warn!(epoch, why, "the plan under way is stopped");
                }
                // Positions may come back: records that are loaded from now on stay.
                self.lane.parts.store.engine.keep_foreign();
                self.horizons.adopted(self.lane.now_us(), change);
                self.agent
                    .cluster
                    .adopt(&self.lane.parts.store.engine, &record, &layout);
                self.places.note(self.steward.layout());
                for lane in self.lane.parts.lanes.iter() {
                    lane.mailbox.post(LoopEvent::Adopt(Arc::clone(&layout)));
                }
            }
            StewardEffect::DropEpoch { epoch } => self.drop_epoch(epoch).await,
            StewardEffect::NoLayout { epoch } => tracing::error!(
                epoch,
                "the cluster has more members than this process has places for: start this member again"
            ),
            StewardEffect::Answer { ticket, answer } => {
                let waiting = self.answers.remove(&ticket);
                // An operator that has gone wants no answer.
                drop(waiting.map(|waiting| waiting.send(answer)));
            }
            StewardEffect::EnrolAnswer { ticket, answer } => {
                let waiting = self.enrolments.remove(&ticket);
                drop(waiting.map(|waiting| waiting.send(answer)));
            }
            StewardEffect::Throttle { bytes_per_second } => {
                self.agent.post(Event::Throttle { bytes_per_second });
                if let Some(order) = self.steward.throttled()
                    && let Err(reason) = self.write(&notes::throttle_key(), &order.encode()).await
                {
                    tracing::warn!(
                        reason,
                        "the order to load slower or faster could not be noted: it ends with this process"
                    );
                }
            }
            StewardEffect::AcceptLoss { loss, ranges } => {
                self.accept_loss(&loss, &ranges).await;
            }
            StewardEffect::DropStrays { layout } => {
                let cluster = &self.agent.cluster;
                self.horizons.drop_strays(&self.lane, cluster, layout);
            }
            StewardEffect::Removed { epoch } => {
                let cluster = &self.agent.cluster;
                let why = if self.is_disk_full() {
                    " (its disk is full, which stops a plan that moves copies to it)"
                } else {
                    ""
                };
                let sentence = format!(
                    "{} was removed from the cluster {} by epoch {epoch} or an earlier one{why}: its folder never comes back; \
                     join with an empty one",
                    cluster.own_url(),
                    cluster.topology().name()
                );
                tracing::error!(sentence, "the node stops");
                let folder = FolderVerdict::Refused;
                self.lane.parts.disown(Disowned { sentence, folder });
            }
            StewardEffect::Outdated { version } => {
                let cluster = &self.agent.cluster;
                let sentence = notes::outdated(cluster.topology().name(), version);
                tracing::error!(sentence, "the node stops");
                let folder = FolderVerdict::Usable;
                self.lane.parts.disown(Disowned { sentence, folder });
            }
            StewardEffect::Diverged { from, epoch } => tracing::error!(
                %from,
                epoch,
                "another member has another record of this epoch: one of the two folders is damaged, or two clusters have one \
                 name; look at both"
            ),
        }
        None
    }

    /// An operator accepted a loss. It is noted before the repair goes by it.
    async fn accept_loss(&self, loss: &AcceptedLoss, ranges: &[WalkPart]) {
        let bytes = AcceptedLoss::encode_all(self.steward.losses());
        if let Err(reason) = self.write(&notes::losses_key(), &bytes).await {
            tracing::warn!(
                reason,
                "an accepted loss could not be noted: behind a restart the order is given again"
            );
        }
        let urls = loss.without.iter().map(|(_, url)| url.as_str());
        let without = urls.collect::<Vec<_>>().join(" ");
        let (id, epoch, partitions) = (loss.id, loss.epoch, loss.partitions);
        tracing::warn!(
            %id,
            epoch,
            without,
            partitions,
            "an operator accepted a loss: these ranges are repaired without lost members"
        );
        for range in ranges {
            let (space, from) = (range.space, range.start.escape_ascii());
            let to = range
                .last
                .as_deref()
                .map(|last| last.escape_ascii().to_string());
            let to = to.unwrap_or_else(|| "the end".to_owned());
            tracing::warn!(%id, ?space, %from, to, "records of this range may be lost");
        }
        let accepted = &self.agent.cluster.steward.losses_accepted;
        accepted.fetch_add(1, Ordering::Relaxed);
        self.agent.post(Event::from(loss));
    }

    fn send(&self, to: MemberId, message: &StewardMessage) {
        if let Some(place) = self.places.of(to) {
            let body = message.encode();
            let now_us = self.lane.now_us();
            self.agent.send_steward(place, &body, now_us);
        }
    }

    /// Reads epochs of the folder in a thread that may wait, and sends them.
    fn send_epochs(&self, to: MemberId, from: u64) {
        let Some(place) = self.places.of(to) else {
            return;
        };
        let (store, agent, lane) = (
            Arc::clone(&self.lane.parts.store),
            Rc::clone(&self.agent),
            Rc::clone(&self.lane),
        );
        let known = self.steward.record().epoch();
        tokio::task::spawn_local(async move {
            let reading = move || epochs::to_send(&store.engine, from, known);
            let found = match tokio::task::spawn_blocking(reading).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "epochs of the folder cannot be read");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "epochs of the folder cannot be read");
                    return;
                }
            };
            let records = found.into_iter().map(|(record, _)| record);
            let Some(page) = ChainMessage::page(records) else {
                return;
            };
            let message = StewardMessage::Chain(page);
            lane.refresh();
            agent.send_steward(place, &message.encode(), lane.now_us());
        });
    }

    /// Returns when the note is durable.
    async fn persist(&self, note: &ChainNote) {
        let (key, bytes) = match note {
            ChainNote::Epoch(record) => (epochs::key(record.epoch()), record.encode()),
            ChainNote::Fence(record) => {
                let own = self.agent.cluster.own_note(record);
                (notes::own_key(), own.encode())
            }
            ChainNote::Vote(vote) => (notes::vote_key(), vote.encode()),
        };
        let mut is_said = false;
        while let Err(reason) = self.write(&key, &bytes).await {
            if !std::mem::replace(&mut is_said, true) {
                tracing::warn!(reason, "a note about the members cannot be written yet");
            }
            tokio::time::sleep(limits::LINK_PAUSE_MAX).await;
        }
    }

    /// The folder needs the record of this epoch no more. One that stays costs its place.
    async fn drop_epoch(&self, epoch: u64) {
        let key = epochs::key(epoch);
        let version = self.agent.cluster.note_version(self.agent.lane);
        let gone = CellRef::tombstone(key.as_stored(), version);
        if let Err(reason) = write_durably(&self.lane, &key, &gone).await {
            tracing::debug!(epoch, reason, "the record of an old epoch stays");
        }
    }

    async fn write(&self, key: &Key, bytes: &[u8]) -> Result<(), String> {
        let version = self.agent.cluster.note_version(self.agent.lane);
        let cell = CellRef::value(key.as_stored(), version, bytes);
        write_durably(&self.lane, key, &cell).await
    }
}
