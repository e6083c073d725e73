//! Messages between members: late, lost, twice, out of order, one way only.
//!
//! ```text
//! Effect::Ask    ─► a frame ─ delay, loss ─► Event::Asked  at the same loop of the peer
//! Effect::Reply  ─► a frame  ─ delay, loss ─► Event::Answered at the loop that asked
//! ```
//!
//! Invariants
//! 1. An answer reaches the life of the member that asked, or none: its connection ended with it.
//! 2. A question may reach any life of the member that was asked.
//! 3. Every message is a frame of the real wire: a message that it cannot carry does not arrive.
//!
//! Not here: the frames of links in the real world (crates `wire`, `server`).

use super::names::{key_name, value_bytes};
use super::state::{Envelope, Happening, World};
use crate::check::Rule;
use dendra_base::peer::{Answer, Ask, Stamp};
use dendra_base::{CellRef, Key, Version};
use dendra_node::step::{AskId, Asker, Event};
use dendra_wire::limits::PEER_WITHDRAW_IDS_MAX;
use dendra_wire::peer::{self, Message, Question, Seal};
use std::collections::BTreeSet;

const LANE_BITS: u32 = 8;
const MACHINE_SHIFT: u32 = 48;

/// The number of a link: the machine at its other end, its life, the loop.
fn link_of(from: usize, incarnation: u64, lane: usize) -> u64 {
    (from as u64) << MACHINE_SHIFT | incarnation << LANE_BITS | lane as u64
}

/// The number in a value that no operation wrote.
const STRANGE_VALUE: u32 = u32::MAX;

impl World<'_> {
    pub(super) fn ask(
        &mut self,
        from: usize,
        lane: usize,
        to: usize,
        id: AskId,
        stamp: Stamp,
        ask: Ask,
    ) {
        let it = &self.members[from];
        let sent_ms = (it.clock.now(self.now_us()).mono_us / 1_000) as u32;
        let incarnation = it.incarnation;
        let mut frame = Vec::new();
        let question = Question {
            id,
            sent_ms,
            stamp,
            ask,
        };
        if !self.is_calm() && self.prng.chance(self.plan.shape.stranger_permille, 1_000) {
            self.send_strange(from, to, lane, incarnation, &question);
        }
        peer::encode_ask(&mut frame, &mut Seal::plain(), &question);
        self.send(Envelope {
            from,
            to,
            lane,
            incarnation,
            frame: frame.into(),
        });
    }

    /// A write that must not be taken: of an older topology, or of another cluster. No client wrote
    /// its value, so a read that sees it is a broken promise.
    fn send_strange(
        &mut self,
        from: usize,
        to: usize,
        lane: usize,
        incarnation: u64,
        like: &Question,
    ) {
        let key = key_name(self.prng.below(self.plan.shape.keys.len() as u64) as usize);
        let version = Version {
            hlc: (self.members[to].clock.now(self.now_us()).wall_ms + 1) << 16,
            origin: u32::MAX,
            rmw: 0,
        };
        let value = value_bytes(STRANGE_VALUE, 8);
        let stored = Key::user(&key);
        let mut cell = CellRef::value(stored.as_stored(), version, &value).to_owned();
        cell.copies = self.plan.shape.copies as u8;
        let mut question = Question {
            id: u64::MAX - self.schedule.count(),
            ask: Ask::Write { key, cell },
            ..like.clone()
        };
        // Where owners change, a question of the epoch before may be a good one.
        if self.prng.chance(1, 2) && self.town.is_none() {
            question.stamp.epoch -= 1
        } else {
            question.stamp.cluster ^= 1
        }
        let mut frame = Vec::new();
        peer::encode_ask(&mut frame, &mut Seal::plain(), &question);
        self.send(Envelope {
            from,
            to,
            lane,
            incarnation,
            frame: frame.into(),
        });
    }

    pub(super) fn withdraw(&mut self, from: usize, lane: usize, to: usize, ids: &[AskId]) {
        let incarnation = self.members[from].incarnation;
        for some in ids.chunks(PEER_WITHDRAW_IDS_MAX) {
            let mut frame = Vec::new();
            peer::encode_withdraw(&mut frame, &mut Seal::plain(), some);
            self.send(Envelope {
                from,
                to,
                lane,
                incarnation,
                frame: frame.into(),
            });
        }
    }

    pub(super) fn reply(&mut self, from: usize, asker: Asker, answer: &Answer) {
        if let Answer::Written(version) = answer {
            let it = &mut self.members[from];
            it.confirmed = it.confirmed.max(version.hlc);
        }
        let mut frame = Vec::new();
        peer::encode_answer(&mut frame, &mut Seal::plain(), asker.id, answer);
        self.send(Envelope {
            from,
            to: (asker.link >> MACHINE_SHIFT) as usize,
            lane: (asker.link & ((1 << LANE_BITS) - 1)) as usize,
            incarnation: (asker.link & ((1 << MACHINE_SHIFT) - 1)) >> LANE_BITS,
            frame: frame.into(),
        });
    }

    pub(super) fn send(&mut self, envelope: Envelope) {
        let is_cut = self.is_cut(envelope.from, envelope.to);
        let shape = &self.plan.shape;
        let is_calm = self.is_calm();
        let is_lost = !is_calm && self.prng.chance(shape.loss_permille, 1_000);
        if is_cut || is_lost {
            self.trace
                .line(self.schedule.now_us(), || format!("lost {envelope:?}"));
            return;
        }
        let times = if !is_calm && self.prng.chance(shape.repeat_permille, 1_000) {
            2
        } else {
            1
        };
        for _ in 0..times {
            let mut delay_us = shape.delay_min_us + self.prng.below(shape.delay_spread_us);
            let (permille, tail_us) = shape.tail;
            if !is_calm && self.prng.chance(permille, 1_000) {
                delay_us += self.prng.below(tail_us);
            }
            self.schedule
                .after(delay_us, Happening::Arrive(envelope.clone()));
        }
    }

    pub(super) fn message_arrives(&mut self, envelope: Envelope) {
        let Envelope {
            from,
            to,
            lane,
            incarnation,
            frame,
        } = envelope;
        let Some(member) = self.place_of(to, from) else {
            return;
        };
        let message = match peer::decode(&frame, &mut Seal::plain()) {
            Ok(message) => message,
            Err(malformed) => {
                self.violate(
                    Rule::WrongValue,
                    format!("a frame of m{from} is {malformed:?}"),
                );
                return;
            }
        };
        match message {
            Message::Ask(question) => {
                let link = link_of(from, incarnation, lane);
                let asker = Asker {
                    member,
                    link,
                    id: question.id,
                };
                self.question_arrives(to, from, asker, question);
            }
            Message::Answer { id, answer } => {
                if self.members[to].incarnation == incarnation {
                    self.hears(to, from, &answer);
                    self.give(to, lane, Event::Answered { member, id, answer });
                }
            }
            Message::Withdraw { ids } => {
                let link = link_of(from, incarnation, lane);
                let lanes = self.members[to].lanes.len();
                // As in `question_arrives`: the same loop, where there are as many.
                let lane = lane % lanes;
                self.give(to, lane, Event::Withdrawn { member, link, ids });
            }
            Message::Steward { body, .. } => self.steward_hears(to, from, &body),
            other => self.violate(
                Rule::WrongValue,
                format!("{other:?} is no message of a node"),
            ),
        }
    }

    /// Delivers a question as the server does: the time on the way is taken off the time left, as
    /// far as it is known.
    fn question_arrives(&mut self, to: usize, from: usize, asker: Asker, question: Question) {
        let now_us = self.now_us();
        let it = &mut self.members[to];
        let now_ms = it.clock.now(now_us).mono_us / 1_000;
        let age = it.ages.entry((from, asker.link)).or_default();
        let age_ms = age.of(question.sent_ms, now_ms);
        let mut stamp = question.stamp;
        stamp.left_ms = stamp.left_ms.saturating_sub(age_ms);
        let lane = (asker.link & ((1 << LANE_BITS) - 1)) as usize % it.lanes.len();
        self.give(
            to,
            lane,
            Event::Asked {
                asker,
                stamp,
                ask: question.ask,
            },
        );
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.iter().any(|(_, links)| links.has(from, to))
    }

    pub(super) fn is_connected(&self, a: usize, b: usize) -> bool {
        let runs = |member: usize| self.members[member].is_running();
        runs(a) && runs(b) && !self.is_cut(a, b) && !self.is_cut(b, a)
    }

    /// Every member notices within a drawn time which links changed: surely when one came up, and
    /// mostly when one went down.
    pub(super) fn links_changed(&mut self) {
        let running = (0..self.members.len()).filter(|&at| self.members[at].is_running());
        let running: Vec<usize> = running.collect();
        for &member in &running {
            let linked = &self.members[member].links_up;
            let peers: BTreeSet<usize> = running.iter().chain(linked).copied().collect();
            for peer in peers.into_iter().filter(|&peer| peer != member) {
                let it = &self.members[member];
                let was_up = it.links_up.contains(&peer);
                let is_up = self.is_connected(member, peer);
                let is_known = was_up == is_up;
                // A steward is told in any case: an operator waits for it.
                if is_known || (!is_up && self.prng.chance(1, 3) && self.town.is_none()) {
                    continue;
                }
                let incarnation = it.incarnation;
                let delay_us = self.prng.below(50_000);
                let notice = Happening::Notice {
                    member,
                    peer,
                    is_up,
                    incarnation,
                };
                self.schedule.after(delay_us, notice);
            }
        }
    }

    pub(super) fn notice(&mut self, member: usize, peer: usize, is_up: bool) {
        let it = &self.members[member];
        let (was_up, incarnation) = (it.links_up.contains(&peer), it.incarnation);
        // Meanwhile it may have changed again; the last state is noticed.
        if was_up == is_up || (is_up && !self.is_connected(member, peer)) {
            return;
        }
        if is_up && self.has_image() && !self.recognises(member, peer) {
            if self.members[member].incarnation == incarnation {
                self.notice_later(member, peer);
            }
            return;
        }
        if is_up && !self.shakes_hands(member, peer) {
            return;
        }
        let links = &mut self.members[member].links_up;
        if is_up {
            links.insert(peer);
        } else {
            links.remove(&peer);
        }
        if !is_up {
            self.parts(member, peer);
            self.claim_parts(member, peer);
        }
        for lane in 0..self.members[member].lanes.len() {
            if let Some(member_of) = self.index_at(member, lane, peer) {
                self.give(
                    member,
                    lane,
                    Event::Link {
                        member: member_of,
                        is_up,
                    },
                );
            }
        }
        self.steward_sees(member, peer, is_up);
        if is_up && self.members[peer].is_running() {
            // A member to which it is linked hears of it.
            for lane in 0..self.members[peer].lanes.len() {
                if let Some(member) = self.index_at(peer, lane, member) {
                    self.give(peer, lane, Event::Alive { member });
                }
            }
        }
        if !is_up && self.is_connected(member, peer) {
            // The cut was shorter than its notice: a link is made anew.
            self.notice_later(member, peer);
        }
    }

    pub(super) fn notice_later(&mut self, member: usize, peer: usize) {
        let incarnation = self.members[member].incarnation;
        let delay_us = self.prng.below(50_000);
        let again = Happening::Notice {
            member,
            peer,
            is_up: true,
            incarnation,
        };
        self.schedule.after(delay_us, again);
    }
}
