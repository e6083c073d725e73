//! The steward of one process: its events, and how its effects are carried out.
//!
//! ```text
//! frames, links, loops, orders, time ─► events ─► step ─► effects, in their order
//!                                          ▲                 │ Persist: nothing goes on before it
//!                                          └── Persisted ────┘ is durable
//! ```
//!
//! Invariants
//! 1. Effects are carried out in their order. A note is durable before anything behind it is done.
//! 2. The fence rises before a loop gets the layout of its epoch.
//! 3. A note that cannot be written is tried again until it is.
//!
//! Not here: decisions (crate `ownership`, `steward/`), starts (`start.rs`), the bytes of notes
//! (`notes.rs`).
//! See: crates/server/src/peers/home.rs, which does the same in the real world.

use super::super::state::{Envelope, Happening, World};
use super::notes::{epochs, note, one_by_one};
use crate::check::Rule;
use crate::machines::node_of;
use crate::pending::{PendingWrite, Waiter};
use crate::process_steward::{ProcessSteward, StewardNote};
use dendra_base::ClusterVersions;
use dendra_node::step::{Effect, Event};
use dendra_ownership::epoch::chain::{ChainMessage, ChainNote, ChainPeer};
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::limits::EPOCH_PAGE_RECORDS_MAX;
use dendra_ownership::membership::identity::{VOTE_KEY, epoch_key};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::messages::StewardMessage;
use dendra_ownership::steward::step::{StewardEffect, StewardEvent};
use dendra_ownership::{Layout, Partition};
use dendra_wire::peer::{self, Seal};
use std::sync::Arc;

/// Between two looks of a steward at the time, as in the server.
pub(super) const LOOK_US: u64 = 100_000;
/// Between two tries to write a note.
const NOTE_AGAIN_US: u64 = 250_000;
/// Links from a removed member are closed after this.
const CLOSE_US: u64 = 3_000_000;
/// Loops learn an epoch within this of each other.
const ADOPT_US: u64 = 5_000;
/// The gauges are told each so many looks.
const GAUGE_LOOKS: u64 = 10;

impl World<'_> {
    pub(super) fn home(&mut self, member: usize) -> Option<&mut ProcessSteward> {
        self.members[member].home.as_mut()
    }

    /// Tells a process's steward something.
    pub(in crate::world) fn tell_steward(&mut self, member: usize, event: StewardEvent) {
        if let Some(home) = self.home(member) {
            home.events.push_back(event);
            self.steward_works(member);
        }
    }

    fn steward_works(&mut self, member: usize) {
        let incarnation = self.members[member].incarnation;
        let now = self.members[member].clock.now(self.schedule.now_us());
        let at_us = self.schedule.now_us();
        while self.members[member].incarnation == incarnation {
            let Some(home) = self.members[member].home.as_mut() else {
                return;
            };
            if home.is_at_work || home.note.is_some() {
                return;
            }
            if let Some(effect) = home.effects.pop_front() {
                home.is_at_work = true;
                self.trace
                    .line(at_us, || format!("m{member} steward  -> {effect:?}"));
                self.steward_wants(member, effect);
                if let Some(rested) = self.home(member) {
                    rested.is_at_work = false;
                }
                continue;
            }
            let next = home.follow_ups.pop_front();
            let Some(event) = next.or_else(|| home.events.pop_front()) else {
                return;
            };
            self.trace
                .line(at_us, || format!("m{member} steward {event:?}"));
            let mut effects = Vec::new();
            home.steward.step(now, event, &mut effects);
            home.effects.extend(effects);
        }
    }

    fn steward_wants(&mut self, member: usize, effect: StewardEffect) {
        match effect {
            StewardEffect::Send { to, message } => self.send_steward(member, to, &message),
            StewardEffect::SendEpochs { to, from } => {
                let it = &self.members[member];
                let (store, known) = (it.store.as_ref(), it.home.as_ref());
                let known = known.map_or(0, |home| home.record.epoch());
                let found = store.and_then(|store| {
                    let found = epochs(store, from, EPOCH_PAGE_RECORDS_MAX);
                    let is_damaged = found.is_none() && it.is_scrubbed;
                    found.or_else(|| one_by_one(store, from, known).filter(|_| is_damaged))
                });
                if let Some(page) = found.and_then(ChainMessage::page) {
                    self.send_steward(member, to, &StewardMessage::Chain(page));
                }
            }
            StewardEffect::Persist { ticket, note } => self.persist(member, ticket, &note),
            StewardEffect::Adopt { record, layout } => self.adopt_epoch(member, &record, layout),
            StewardEffect::NoLayout { epoch } => {
                let what = format!("m{member} has no layout of epoch {epoch}");
                self.violate(Rule::Epochs, what);
            }
            StewardEffect::Answer { ticket, answer } => self.order_ends(member, ticket, answer),
            StewardEffect::EnrolAnswer { ticket, answer } => {
                self.answer_joiner(ticket as usize, &answer);
            }
            StewardEffect::Throttle { bytes_per_second } => {
                self.give_later(member, 0, 0, Event::Throttle { bytes_per_second });
            }
            StewardEffect::AcceptLoss { loss, ranges } => self.note_loss(member, loss, ranges),
            // A folder may keep it.
            StewardEffect::DropEpoch { .. } => {}
            StewardEffect::DropStrays { layout } => self.drop_strays(member, layout),
            StewardEffect::Removed { .. } => self.end_later(member),
            StewardEffect::Outdated { version } => {
                let what =
                    format!("m{member} does not know version {version}, and all run one release");
                self.violate(Rule::Epochs, what);
            }
            StewardEffect::Diverged { from, epoch } => {
                let what = format!("m{member} and {from} differ in epoch {epoch}");
                self.violate(Rule::Epochs, what);
            }
        }
    }

    fn send_steward(&mut self, member: usize, to: MemberId, message: &StewardMessage) {
        let town = self.town.as_ref();
        let Some(peer) = town.and_then(|town| town.machine_of(to)) else {
            return;
        };
        if !self.members[member].links_up.contains(&peer) {
            return;
        }
        let mut frame = Vec::new();
        peer::encode_steward(&mut frame, &mut Seal::plain(), 0, &message.encode());
        let incarnation = self.members[member].incarnation;
        self.send(Envelope {
            from: member,
            to: peer,
            lane: 0,
            incarnation,
            frame: frame.into(),
        });
    }

    /// A steward's message arrives.
    pub(in crate::world) fn steward_hears(&mut self, to: usize, from: usize, body: &[u8]) {
        let Ok(message) = StewardMessage::decode(body) else {
            let what = format!("a message of m{from}'s steward cannot be read");
            self.violate(Rule::WrongValue, what);
            return;
        };
        let id = self.town.as_ref().and_then(|town| town.machines[from].id);
        let home = self.members[to].home.as_ref();
        // The place of a member that was removed is empty for a while.
        let known = id.filter(|id| home.is_some_and(|home| home.layout.index_of(*id).is_some()));
        if let Some(member) = known {
            let node = node_of(from);
            let sender = ChainPeer { member, node };
            self.tell_steward(
                to,
                StewardEvent::Received {
                    from: sender,
                    message,
                },
            );
        }
    }

    /// The own link to a member came up or went down.
    pub(in crate::world) fn steward_sees(&mut self, member: usize, peer: usize, is_up: bool) {
        let id = self.town.as_ref().and_then(|town| town.machines[peer].id);
        if let Some(id) = id {
            let node = node_of(peer);
            let reached = ChainPeer { member: id, node };
            let versions = ClusterVersions::OWN;
            let event = StewardEvent::Reached {
                peer: reached,
                is_up,
                versions,
            };
            self.tell_steward(member, event);
        }
    }

    /// A loop's word for the steward of its process.
    pub(in crate::world) fn loop_says(&mut self, member: usize, lane: usize, effect: Effect) {
        match effect {
            Effect::Learn { member: at, epoch } => {
                let id = self.members[member].lanes[lane].layout.id_of(at);
                if let Some(id) = id {
                    let ahead = StewardEvent::Ahead { member: id, epoch };
                    self.tell_steward(member, ahead);
                }
            }
            Effect::Loaded { epoch, partitions } => {
                self.note_loads(member, epoch, &partitions);
                self.tell_steward(member, StewardEvent::Loaded { epoch, partitions });
            }
            _ => {}
        }
    }

    fn note_loads(&mut self, member: usize, epoch: u64, partitions: &[Partition]) {
        let Some(home) = &self.members[member].home else {
            return;
        };
        let record = &home.record;
        let Some(plan) = record.plan().map(|plan| plan.id) else {
            return;
        };
        let id = home.steward.me().member;
        let steps = partitions.iter().filter_map(|p| record.moving(*p));
        let steps = steps.filter(|step| step.moving.to == Some(id));
        let loads: Vec<_> = steps
            .map(|step| (MoveArrived { plan, step }, epoch))
            .collect();
        if let Some(town) = &mut self.town {
            town.loads.extend(loads);
        }
    }

    /// Time passes.
    pub(in crate::world) fn steward_looks(&mut self, member: usize) {
        let loaded_bytes = self.members[member].lanes[0].decider.loaded_bytes();
        if let Some(home) = self.home(member) {
            home.looks += 1;
            if home.looks % GAUGE_LOOKS == 1 {
                let gauged = StewardEvent::Gauged {
                    stored_bytes: 1 << 12,
                    loaded_bytes,
                };
                self.tell_steward(member, gauged);
            }
        }
        self.tell_horizons(member);
        self.tell_steward(member, StewardEvent::Tick);
        let incarnation = self.members[member].incarnation;
        let look = Happening::Look {
            member,
            incarnation,
        };
        self.schedule.after(LOOK_US, look);
    }

    fn persist(&mut self, member: usize, ticket: u64, wanted: &ChainNote) {
        let wall_ms = self.members[member].clock.now(self.now_us()).wall_ms;
        let Some(home) = self.home(member) else {
            return;
        };
        // No folder of a town loses records of epochs, so its own note stays that of the start.
        if matches!(wanted, ChainNote::Fence(_)) {
            home.follow_ups
                .push_back(StewardEvent::Persisted { ticket });
            return;
        }
        let hlc = home.hlc.tick(wall_ms);
        let origin = home.origin;
        let write = match wanted {
            ChainNote::Epoch(record) | ChainNote::Fence(record) => {
                note(&epoch_key(record.epoch()), &record.encode(), hlc, origin)
            }
            ChainNote::Vote(vote) => note(VOTE_KEY, &vote.encode(), hlc, origin),
        };
        home.note = Some((StewardNote::Chain(ticket), write));
        self.write_note_of_steward(member);
    }

    pub(in crate::world) fn write_note_of_steward(&mut self, member: usize) {
        let it = &mut self.members[member];
        let note = it.home.as_ref().and_then(|home| home.note.clone());
        let (Some((_, write)), Some(store)) = (note, it.store.as_mut()) else {
            return;
        };
        store.raise_hlc_ceiling(write.cell.version.hlc);
        it.queue.push(PendingWrite {
            lane: 0,
            waiter: Waiter::Steward,
            write,
        });
        self.begin_commit(member);
    }

    /// The note of a steward is durable, or could not be written.
    pub(in crate::world) fn note_ends(&mut self, member: usize, is_written: bool) {
        let incarnation = self.members[member].incarnation;
        let Some(home) = self.home(member) else {
            return;
        };
        let is_of_loss = matches!(home.note, Some((StewardNote::Loss(_), _)));
        // A loss that cannot be noted is in force until the process ends.
        if !is_written && !is_of_loss {
            let again = Happening::NoteAgain {
                member,
                incarnation,
            };
            self.schedule.after(NOTE_AGAIN_US, again);
            return;
        }
        match home.note.take() {
            None => return,
            Some((StewardNote::Chain(ticket), _)) => home
                .follow_ups
                .push_back(StewardEvent::Persisted { ticket }),
            Some((StewardNote::Loss(loss), _)) => self.loss_begins(member, &loss),
        }
        self.steward_works(member);
    }

    /// An epoch is durable: the fence rises, and then the loops learn of it.
    fn adopt_epoch(&mut self, member: usize, record: &Arc<EpochRecord>, layout: Arc<Layout>) {
        let Some(home) = self.home(member) else {
            return;
        };
        home.fence.advance(&layout);
        let hlc = Arc::clone(&home.hlc);
        let before = std::mem::replace(&mut home.record, Arc::clone(record));
        let was = std::mem::replace(&mut home.layout, Arc::clone(&layout));
        home.places.note(&layout);
        self.claimant_adopts(member, &was, record);
        self.check_epoch(member, record);
        self.raise_horizon(member, &hlc, &layout);
        let incarnation = self.members[member].incarnation;
        for lane in 0..self.members[member].lanes.len() {
            let earliest_us = self.now_us() + self.prng.below(ADOPT_US);
            let it = self.lane(member, lane);
            it.adopts_us = it.adopts_us.max(earliest_us);
            let at_us = it.adopts_us;
            let layout = Arc::clone(&layout);
            let adopt = Happening::Adopt {
                member,
                lane,
                incarnation,
                layout,
            };
            self.schedule.at(at_us, adopt);
        }
        let ids = before.members().iter().map(|one| one.id);
        for gone in ids.filter(|id| record.member(*id).is_none()) {
            let close = Happening::Close {
                member,
                gone,
                incarnation,
            };
            self.schedule.after(CLOSE_US, close);
        }
        self.links_changed();
    }

    /// Links from and to a member that was removed are closed.
    pub(in crate::world) fn close_links(&mut self, member: usize, gone: MemberId) {
        let Some(home) = self.home(member) else {
            return;
        };
        home.closed.insert(gone);
        let peer = self.town.as_ref().and_then(|town| town.machine_of(gone));
        let Some(peer) = peer else {
            return;
        };
        if self.members[member].links_up.remove(&peer) {
            self.claim_parts(member, peer);
            self.steward_sees(member, peer, false);
        }
        if self.members[peer].is_running() {
            let incarnation = self.members[peer].incarnation;
            let (other, here) = (peer, member);
            let lost = Happening::Notice {
                member: other,
                peer: here,
                is_up: false,
                incarnation,
            };
            self.schedule.after(1, lost);
        }
    }
}
