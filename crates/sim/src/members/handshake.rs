//! Handshakes and links: the steps of two processes, and the frames between them.
//!
//! ```text
//! Hello ─► HelloBack ─► Hail ─► HailBack ─► note ─► Probe ─► note ─► Alive ─► link
//!            asker                asker       asker   acceptor         asker
//! link: a question and its answer each 60 ms, until a side ends, is silent, or is replaced
//! ```
//!
//! Invariants
//! 1. A step needs both processes, and hosts that reach each other. Without the process the
//!    connection is closed; without the host its asker gets no answer for `LINK_OPEN_TIMEOUT_US`.
//! 2. A frame counts only if its life is the admitted one at the side that gets it.
//!
//! Not here: processes (`mod.rs`), the rules (crate `ownership`, `membership/`).
//! See: docs/peer.md, section "Handshake".

use super::process::{Dial, DialStep, MemberLink, MemberProcess};
use super::{MemberHappening, MemberWorld, index};
use dendra_ownership::limits::LINK_OPEN_TIMEOUT_US;
use dendra_ownership::membership::{Maker, MemberEffect, MemberEvent, NoLink, NoteFor};

/// Between two questions over a link.
const TALK_US: u64 = 60_000;
/// A link is lost when its other side has been silent for this long.
const SILENT_US: u64 = 3_000_000;
/// All processes are of the first epoch.
const EPOCH: u64 = 1;

impl MemberWorld {
    fn is_cut(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.processes[a].host, self.processes[b].host);
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    pub(super) fn try_link(&mut self, process: usize, lane: u16, to: usize) {
        let it = &mut self.processes[process];
        let is_there = it.links.contains_key(&(lane, to));
        if it.is_alive && !is_there && it.dialing.insert((lane, to)) {
            self.dial(process, lane, to, false);
        }
    }

    pub(super) fn dial(&mut self, asker: usize, lane: u16, to: usize, is_question: bool) {
        if self.processes[asker].is_alive {
            self.next(Dial {
                asker,
                lane,
                to,
                acceptor: asker,
                is_question,
                began_us: self.schedule.now_us(),
                step: DialStep::Hello,
            });
        }
    }

    fn next(&mut self, dial: Dial) {
        let delay_us = 10 + self.prng.below(self.plan.delay_us);
        self.schedule.after(delay_us, MemberHappening::Step(dial));
    }

    /// The asker gets no further answer.
    fn fall_silent(&mut self, dial: Dial) {
        let at_us = dial.began_us + LINK_OPEN_TIMEOUT_US;
        let step = DialStep::Silent;
        self.schedule
            .at(at_us, MemberHappening::Step(Dial { step, ..dial }));
    }

    /// No process is there: the host of the acceptor ends the connection.
    pub(super) fn be_closed(&mut self, dial: Dial) {
        let step = DialStep::Closed;
        self.next(Dial { step, ..dial });
    }

    pub(super) fn step(&mut self, mut dial: Dial) {
        let (asker, to) = (dial.asker, dial.to);
        if !self.processes[asker].is_alive {
            return;
        }
        if matches!(dial.step, DialStep::Hello) {
            if self.prng.chance(self.plan.forged_permille, 1_000) {
                return self.next(Dial {
                    step: DialStep::Forged,
                    ..dial
                });
            }
            match self.address[to] {
                Some(acceptor) => dial.acceptor = acceptor,
                None => return self.be_closed(dial),
            }
        }
        let acceptor = dial.acceptor;
        let is_answered = matches!(
            dial.step,
            DialStep::Silent | DialStep::Closed | DialStep::Forged
        );
        if !is_answered && self.is_cut(asker, acceptor) {
            return self.fall_silent(dial);
        }
        if !is_answered && !self.processes[acceptor].is_alive {
            return self.be_closed(dial);
        }
        let url = self.topology.member(index(to)).url.clone();
        match dial.step.clone() {
            DialStep::Hello => {
                dial.step = DialStep::HelloBack;
                self.next(dial);
            }
            DialStep::HelloBack => match self.hail(asker, acceptor) {
                None => {
                    dial.step = DialStep::Hail;
                    self.next(dial);
                }
                Some(said) => self.no_link(&dial, NoLink::NotAdmitted(said)),
            },
            DialStep::Hail => {
                dial.step = DialStep::HailBack(self.hail(acceptor, asker));
                self.next(dial);
            }
            DialStep::HailBack(Some(said)) => {
                let why = NoLink::of_farewell(&url, &said, Maker::Member, EPOCH);
                self.no_link(&dial, why);
            }
            DialStep::HailBack(None) if dial.is_question => {
                let it = &mut self.processes[asker];
                it.hosts.insert(to);
                it.refused_by.remove(&to);
                let answer = Ok(self.plan.loops);
                let member = index(to);
                self.tell(asker, MemberEvent::StartAnswered { member, answer });
            }
            DialStep::HailBack(None) => {
                dial.step = DialStep::Probe;
                self.claim(asker, acceptor, dial);
            }
            DialStep::Probe => {
                dial.step = DialStep::Alive;
                self.claim(acceptor, asker, dial);
            }
            DialStep::Alive => self.link_up(&dial),
            DialStep::Forged => {
                let said = "other-node epoch=1 others=2: a stranger says so";
                let why = NoLink::of_farewell(&url, said, Maker::Anyone, EPOCH);
                self.no_link(&dial, why);
            }
            DialStep::Closed => self.no_link(&dial, NoLink::from("it closed the connection")),
            DialStep::Silent => self.no_link(&dial, NoLink::from("it did not answer in time")),
        }
    }

    /// `by` gets the hello of a process: why it refuses it.
    fn hail(&mut self, by: usize, process: usize) -> Option<String> {
        let it = &self.processes[process];
        let (member, claim) = (index(it.member), it.claim);
        match self.tell(by, MemberEvent::Hailed { member, claim }).pop() {
            Some(MemberEffect::Reject(rejected)) => {
                self.judge_reject(by, process, rejected.code);
                Some(rejected.to_string())
            }
            _ => {
                self.judge_welcome(by, process);
                None
            }
        }
    }

    /// `by` has a process admitted, and the handshake goes on after that.
    fn claim(&mut self, by: usize, process: usize, dial: Dial) {
        let it = &self.processes[process];
        let (member, claim) = (index(it.member), it.claim);
        let rest = self.tell(by, MemberEvent::Claimed { member, claim });
        self.go_on(by, dial, rest);
    }

    pub(super) fn go_on(&mut self, by: usize, dial: Dial, effects: Vec<MemberEffect>) {
        let is_asker = by == dial.asker;
        let process = if is_asker { dial.acceptor } else { dial.asker };
        for effect in effects {
            match effect {
                MemberEffect::WriteNote(note) => {
                    self.begins_to_count(process);
                    let waits = note.purpose == NoteFor::Claim;
                    self.write_note(by, note, waits.then(|| dial.clone()));
                }
                MemberEffect::Admit { life, .. } => {
                    self.judge_admit(by, process, life);
                    if !is_asker {
                        self.accept(by, process, dial.lane);
                    }
                    self.next(dial.clone());
                }
                MemberEffect::Reject(rejected) if is_asker => {
                    self.no_link(&dial, NoLink::ForNow(rejected.to_string()));
                }
                MemberEffect::Reject(rejected) => {
                    let step = DialStep::HailBack(Some(rejected.to_string()));
                    self.next(Dial {
                        step,
                        ..dial.clone()
                    });
                }
                other => unreachable!("a claim leads to {other:?}"),
            }
        }
    }

    /// A link of a process is admitted: it can be dialled now.
    fn accept(&mut self, by: usize, process: usize, lane: u16) {
        let to = self.processes[process].member;
        self.processes[by].accepted.insert((lane, to));
        let member = index(to);
        self.tell(by, MemberEvent::Heard { member, lane });
        for each in 0..self.plan.loops {
            let again = MemberHappening::Try {
                process: by,
                lane: each,
                to,
            };
            self.schedule.after(1, again);
        }
    }

    fn link_up(&mut self, dial: &Dial) {
        let Dial {
            asker, lane, to, ..
        } = *dial;
        let up = MemberEvent::LinkUp {
            member: index(to),
            lane,
            claim: self.processes[dial.acceptor].claim,
        };
        if let Some(MemberEffect::Reject(rejected)) = self.tell(asker, up).pop() {
            return self.no_link(dial, NoLink::ForNow(rejected.to_string()));
        }
        self.numbers += 1;
        let number = self.numbers;
        let link = MemberLink {
            to: dial.acceptor,
            number,
            silent_us: None,
        };
        let it = &mut self.processes[asker];
        it.links.insert((lane, to), link);
        it.dialing.remove(&(lane, to));
        self.first_try_is_over(asker, lane, to);
        self.talk(asker, lane, to, number);
    }

    fn first_try_is_over(&mut self, process: usize, lane: u16, to: usize) {
        if self.processes[process].tried.insert((lane, to)) {
            let member = index(to);
            self.tell(process, MemberEvent::Tried { member, lane });
        }
    }

    fn no_link(&mut self, dial: &Dial, why: NoLink) {
        let Dial {
            asker, lane, to, ..
        } = *dial;
        let member = index(to);
        if dial.is_question {
            let it = &mut self.processes[asker];
            it.refused_by.remove(&to);
            if matches!(why, NoLink::Refused(_) | NoLink::StillThere(_)) {
                it.refused_by.insert(to);
            }
            let answer = Err(why);
            self.tell(asker, MemberEvent::StartAnswered { member, answer });
            return;
        }
        self.processes[asker].dialing.remove(&(lane, to));
        self.tell(asker, MemberEvent::NoLink { member, lane, why });
        if self.processes[asker].is_alive {
            self.first_try_is_over(asker, lane, to);
            self.try_later(asker, lane, to);
        }
    }

    fn try_later(&mut self, process: usize, lane: u16, to: usize) {
        let pause_us = 20_000 + self.prng.below(230_000);
        let again = MemberHappening::Try { process, lane, to };
        self.schedule.after(pause_us, again);
    }

    // Links.

    /// A question and its answer.
    pub(super) fn talk(&mut self, process: usize, lane: u16, to: usize, number: u64) {
        let now_us = self.schedule.now_us();
        let Some(link) = self.processes[process].links.get(&(lane, to)).copied() else {
            return;
        };
        if link.number != number {
            return;
        }
        let talk = MemberHappening::Talk {
            process,
            lane,
            to,
            number,
        };
        if self.is_cut(process, link.to) {
            let since_us = link.silent_us.unwrap_or(now_us);
            if now_us - since_us > SILENT_US {
                return self.lose(process, lane, to);
            }
            let kept = self.processes[process].links.get_mut(&(lane, to));
            kept.expect("it is there").silent_us = Some(since_us);
            self.schedule.after(TALK_US, talk);
            return;
        }
        let (us, them) = (&self.processes[process], &self.processes[link.to]);
        let is_current = |by: &MemberProcess, of: &MemberProcess| {
            by.machine.life(index(of.member)) == of.claim.life
        };
        // A side for which a later process is the member closes the link.
        if !them.is_alive || !is_current(them, us) || !is_current(us, them) {
            return self.lose(process, lane, to);
        }
        let kept = self.folders[them.folder].ceiling;
        let peer = &mut self.processes[link.to];
        peer.clock = (peer.clock + 1).max(now_us);
        let confirmed = if self.prng.chance(1, 2) || peer.clock >= kept {
            kept
        } else {
            peer.clock
        };
        self.judge_count(link.to, process, None);
        self.judge_count(process, link.to, Some(confirmed));
        let it = &mut self.processes[process];
        let highest = it.confirmed.entry((lane, to)).or_default();
        *highest = confirmed.max(*highest);
        let own_link = it.links.get_mut(&(lane, to));
        own_link.expect("it is there").silent_us = None;
        self.schedule.after(TALK_US, talk);
    }

    fn lose(&mut self, process: usize, lane: u16, to: usize) {
        let it = &mut self.processes[process];
        it.links.remove(&(lane, to));
        let confirmed = it.confirmed.remove(&(lane, to)).unwrap_or_default();
        let member = index(to);
        self.tell_and_note(process, MemberEvent::LinkDown { member, confirmed });
        self.try_later(process, lane, to);
    }
}
