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
use crate::plan::link_bit;
use dendra_base::peer::{Answer, Ask, Stamp};
use dendra_base::{CellRef, Key, Version};
use dendra_node::MemberIndex;
use dendra_node::step::{AskId, Asker, Event};
use dendra_wire::limits::PEER_WITHDRAW_IDS_MAX;
use dendra_wire::peer::{self, Message, Question, Seal};

const LANE_BITS: u32 = 8;

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
        if self.prng.chance(1, 2) {
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
        for ids in ids.chunks(PEER_WITHDRAW_IDS_MAX) {
            let mut frame = Vec::new();
            peer::encode_withdraw(&mut frame, &mut Seal::plain(), ids);
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
        let mut frame = Vec::new();
        peer::encode_answer(&mut frame, &mut Seal::plain(), asker.id, answer);
        self.send(Envelope {
            from,
            to: asker.member.at(),
            lane: (asker.link & ((1 << LANE_BITS) - 1)) as usize,
            incarnation: asker.link >> LANE_BITS,
            frame: frame.into(),
        });
    }

    fn send(&mut self, envelope: Envelope) {
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
        let member = MemberIndex(from as u8);
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
                let link = incarnation << LANE_BITS | lane as u64;
                let asker = Asker {
                    member,
                    link,
                    id: question.id,
                };
                self.question_arrives(to, asker, question);
            }
            Message::Answer { id, answer } => {
                if self.members[to].incarnation == incarnation {
                    self.hears(to, from, &answer);
                    self.give(to, lane, Event::Answered { member, id, answer });
                }
            }
            Message::Withdraw { ids } => {
                let link = incarnation << LANE_BITS | lane as u64;
                let lanes = self.members[to].lanes.len();
                // As in `question_arrives`: the same loop, where there are as many.
                let lane = lane % lanes;
                self.give(to, lane, Event::Withdrawn { member, link, ids });
            }
            other => self.violate(
                Rule::WrongValue,
                format!("{other:?} is no message of a node"),
            ),
        }
    }

    /// As the server does it: the known time on the way is taken off the time left.
    fn question_arrives(&mut self, to: usize, asker: Asker, question: Question) {
        let now_us = self.now_us();
        let it = &mut self.members[to];
        let now_ms = it.clock.now(now_us).mono_us / 1_000;
        let age = it.ages.entry((asker.member.at(), asker.link)).or_default();
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
        self.cuts
            .iter()
            .any(|(_, links)| links & link_bit(from, to) != 0)
    }

    fn is_connected(&self, a: usize, b: usize) -> bool {
        let runs = |member: usize| self.members[member].is_running();
        runs(a) && runs(b) && !self.is_cut(a, b) && !self.is_cut(b, a)
    }

    /// Every member notices within a drawn time which links changed: surely when one came up, and
    /// mostly when one went down.
    pub(super) fn links_changed(&mut self) {
        for member in 0..self.members.len() {
            for peer in 0..self.members.len() {
                let it = &self.members[member];
                if member == peer || !it.is_running() {
                    continue;
                }
                let was_up = it.links_up >> peer & 1 == 1;
                let is_up = self.is_connected(member, peer);
                if was_up == is_up || (!is_up && self.prng.chance(1, 3)) {
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
        let (was_up, incarnation) = (it.links_up >> peer & 1 == 1, it.incarnation);
        // Meanwhile it may have changed again; the last change is noticed.
        if was_up == is_up || (is_up && !self.is_connected(member, peer)) {
            return;
        }
        if is_up && self.meets() && !self.recognises(member, peer) {
            if self.members[member].incarnation == incarnation {
                self.notice_later(member, peer);
            }
            return;
        }
        self.members[member].links_up ^= 1 << peer;
        if !is_up {
            self.parts(member, peer);
        }
        for lane in 0..self.members[member].lanes.len() {
            let member_of = MemberIndex(peer as u8);
            self.give(
                member,
                lane,
                Event::Link {
                    member: member_of,
                    is_up,
                },
            );
        }
        if is_up && self.members[peer].is_running() {
            // A member to which it is linked hears of it.
            for lane in 0..self.members[peer].lanes.len() {
                let member = MemberIndex(member as u8);
                self.give(peer, lane, Event::Heard { member });
            }
        }
        if !is_up && self.is_connected(member, peer) {
            // The cut was shorter than its notice: a link is made anew.
            self.notice_later(member, peer);
        }
    }

    fn notice_later(&mut self, member: usize, peer: usize) {
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
