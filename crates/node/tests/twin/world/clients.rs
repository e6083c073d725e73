//! Clients of the twin: their requests, their answers, and the meaning of these for the search.
//!
//! Not here: the search (`history.rs`), members and messages (`world.rs`).

use super::{Run, Waiting, What, World};
use crate::history::{Did, Entry, Wanted};
use bytes::Bytes;
use dendra_base::peer::{Condition, Operation};
use dendra_base::{Cell, Quorum, Version};
use dendra_node::step::Event;
use dendra_node::{Known, Outcome};

/// A value that many clients write: the bytes must not tell which client wins a duel.
const COMMON: &[u8] = b"mine";

impl World {
    pub(super) fn next(&mut self, client: usize) {
        if self.clients[client].left == 0 {
            return;
        }
        if let Some(again) = self.rest(client) {
            return self.later(again, What::Next { client });
        }
        let is_last = self.acts.is_some() && self.clients[client].left == 1;
        let site = if is_last {
            self.any_site()
        } else {
            self.prng.below(self.doors) as usize
        };
        if self.sites[site].node.is_none() {
            let delay = 100 + self.prng.below(400);
            self.later(delay, What::Next { client });
            return;
        }
        self.clients[client].left -= 1;
        let operation = if is_last {
            Operation::Get
        } else {
            self.draw(client)
        };
        let longest_us = self.patience_us(site);
        let deadline = self.now + self.patience + self.prng.below(longest_us);
        self.clients[client].waiting = Some(Waiting {
            site,
            start: self.now,
            deadline,
            operation: operation.clone(),
            life: self.sites[site].life,
            least: self.sites[site].layout.least_successor(),
        });
        let (ack, from) = self.draw_quorum(&operation);
        let quorum = Quorum::new(ack, from, self.topology.len());
        let quorum = quorum.expect("as many copies as there can be");
        let event = Event::Begin {
            client: client as u64,
            key: self.key.clone(),
            operation,
            quorum,
            deadline_us: deadline,
        };
        self.step(site, event);
    }

    /// How many answers of how many owners. With one owner more, so many that a majority of the
    /// others is among them.
    fn draw_quorum(&mut self, operation: &Operation) -> (u32, u32) {
        let is_plain = operation.condition() == Condition::None;
        if self.is_wide && is_plain && self.prng.chance(1, 2) {
            (self.copies / 2 + 2, self.copies + 1)
        } else {
            (self.ack, self.copies)
        }
    }

    fn draw(&mut self, client: usize) -> Operation {
        let is_restored = self.epochs.as_ref().is_some_and(|it| it.is_restored);
        if self.acts.is_some() || is_restored {
            return self.draw_forgetting(client);
        }
        let seen = self.clients[client].seen;
        let condition = match self.prng.below(20) {
            0..8 => return Operation::Get,
            8..14 => Condition::None,
            14 => Condition::Present,
            15..17 => Condition::Absent,
            17 => seen.map_or(Condition::Absent, Condition::Differs),
            18 => seen.map_or(Condition::Absent, |seen| self.seen_here_or_last(seen)),
            _ => seen.map_or(Condition::Absent, Condition::Matches),
        };
        let value = self.draw_value(3);
        match self.prng.below(8) {
            0 => Operation::Delete { condition },
            1 => put(value, Some(1), condition),
            _ => put(value, None, condition),
        }
    }

    /// One of `common_in` is the same as others, and the rest are new.
    fn draw_value(&mut self, common_in: u64) -> Bytes {
        self.values += 1;
        if self.prng.chance(1, common_in) {
            Bytes::from_static(COMMON)
        } else {
            Bytes::from(self.values.to_be_bytes().to_vec())
        }
    }

    /// Creations, changes of the version that was seen last, and deletes.
    fn draw_forgetting(&mut self, client: usize) -> Operation {
        let seen = if self.prng.chance(1, 2) {
            self.clients[client].seen
        } else {
            self.clients.iter().filter_map(|client| client.seen).max()
        };
        let condition = match self.prng.below(20) {
            0..5 => return Operation::Get,
            5..9 => Condition::None,
            9 => Condition::Present,
            10..14 => Condition::Absent,
            14 => seen.map_or(Condition::Absent, Condition::Differs),
            _ => seen.map_or(Condition::Absent, Condition::Matches),
        };
        let value = self.draw_value(16);
        // A store that forgets has to have something to forget.
        match self.prng.below(12) {
            0..4 if condition != Condition::Absent => Operation::Delete { condition },
            4 => put(value, Some(1), condition),
            _ => put(value, None, condition),
        }
    }

    /// The version that this client saw last, or the newest one that any client saw.
    fn seen_here_or_last(&self, seen: Version) -> Condition {
        let newest = self.clients.iter().filter_map(|client| client.seen).max();
        match newest {
            Some(newest) if newest != seen => Condition::matches_one_of(&[seen, newest]),
            _ => Condition::Matches(seen),
        }
    }

    fn wanted(&mut self, condition: &Condition) -> Wanted {
        let mut number = |version| self.run.states.number(version, true);
        match condition {
            Condition::None => Wanted::Anything,
            Condition::Present => Wanted::Live,
            Condition::Absent => Wanted::Dead,
            Condition::Matches(version) => Wanted::Is(number(*version)),
            Condition::Differs(version) => Wanted::IsNot(number(*version)),
            Condition::MatchesOneOf(versions) => {
                Wanted::Either(number(versions[0]), number(versions[1]))
            }
            Condition::DiffersFromAll(_) => unreachable!("the clients draw none"),
        }
    }

    /// An operation ended for its client: with an outcome, or because its member died.
    pub(super) fn end(&mut self, client: usize, told: Option<(Outcome, Option<Cell>)>) {
        let waiting = self.clients[client].waiting.take().expect("it waits");
        let pause = if self.acts.is_some() { 2_000 } else { 600 };
        let delay = self.prng.below(pause);
        self.later(delay, What::Next { client });
        let (start, mut end) = (waiting.start, self.now);
        if told.is_some() {
            self.run.outcomes += 1;
            if self.now > waiting.deadline + 200 {
                self.broke(format!(
                    "an outcome came {} us late",
                    self.now - waiting.deadline
                ));
            }
        }
        let _ = waiting.life;
        let condition = waiting.operation.condition();
        let wanted = self.wanted(&condition);
        let (is_live, bytes) = match &waiting.operation {
            Operation::Put {
                value, expiry_ms, ..
            } => (expiry_ms.is_none(), Some(value.clone())),
            _ => (false, None),
        };
        let did = match told {
            Some((Outcome::Found { version, .. }, cell)) => {
                let bytes = cell.expect("a value was found").value;
                self.shown.push((version, bytes));
                self.clients[client].seen = Some(version);
                let state = self.run.states.number(version, true);
                Did::Saw {
                    wanted: Wanted::Is(state),
                    failed: None,
                }
            }
            Some((Outcome::Missing, _)) => Did::Saw {
                wanted: Wanted::Dead,
                failed: None,
            },
            Some((Outcome::Stored { version } | Outcome::Deleted { version }, _)) => {
                if self.written.iter().any(|(other, _)| *other == version) {
                    self.broke(format!("two writes were stored under {version}"));
                }
                self.written.push((version, self.now));
                let is_low = version.successor_number() < waiting.least.number();
                if matches!(condition, Condition::Matches(_)) && is_low {
                    self.broke(format!(
                        "{version} has a lower number than {}",
                        waiting.least
                    ));
                }
                if is_live {
                    self.clients[client].seen = Some(version);
                }
                let to = vec![self.run.states.number(version, is_live)];
                Did::Write { wanted, to }
            }
            Some((Outcome::ConditionFailed { current }, _)) => {
                let state = current.map(|version| self.run.states.number(version, true));
                Did::Saw {
                    wanted: state.map_or(Wanted::Dead, Wanted::Is),
                    failed: Some(wanted),
                }
            }
            Some((outcome, _)) if outcome.known() == Some(Known::NotApplied) => {
                self.run.failed += 1;
                return;
            }
            Some(_) | None if waiting.operation == Operation::Get => return,
            Some(_) | None => {
                self.run.unknown += 1;
                end = u64::MAX;
                self.unknown.push((self.run.entries.len(), bytes, is_live));
                Did::Write {
                    wanted,
                    to: Vec::new(),
                }
            }
        };
        self.run.entries.push(Entry { start, end, did });
    }

    pub(super) fn broke(&mut self, what: String) {
        self.run.broken.get_or_insert(what);
    }

    /// Gives unknown writes the versions that they may have had.
    pub(super) fn finish(mut self) -> Run {
        self.run.plans_ended = self.epochs.as_ref().map_or(0, |epochs| epochs.ended);
        for client in 0..self.clients.len() {
            if let Some(waiting) = &self.clients[client].waiting {
                let late = self.now.saturating_sub(waiting.deadline);
                self.broke(format!(
                    "client {client} was told nothing, {late} us after its deadline"
                ));
                self.end(client, None);
            }
        }
        for (entry, bytes, is_live) in std::mem::take(&mut self.unknown) {
            let mut states = vec![self.run.states.unseen(is_live)];
            let known = |version: &Version| self.written.iter().any(|(other, _)| other == version);
            let shown = |version: &Version| self.shown.iter().find(|(other, _)| other == version);
            for version in self.run.states.versions().filter(|v| !known(v)) {
                let may_be_its =
                    shown(version).is_none_or(|(_, shown)| bytes.as_ref() == Some(shown));
                if is_live && may_be_its {
                    states.extend(self.run.states.find(*version));
                }
            }
            if let Did::Write { to, .. } = &mut self.run.entries[entry].did {
                *to = states;
            }
        }
        self.run.entries.sort_by_key(|entry| entry.start);
        self.run
    }
}

fn put(value: Bytes, expiry_ms: Option<u64>, condition: Condition) -> Operation {
    Operation::Put {
        value,
        expiry_ms,
        condition,
    }
}
