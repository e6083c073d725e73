//! Golden scripts: conversations between members, written down so that a person can follow them.
//!
//! ```text
//! tests/scripts/*.txt     # what this shows
//!                         > a command                 below it: everything that happened because of it
//! DENDRA_BLESS=1 cargo test -p dendra-node --test conversations        writes down what happens now
//! ```
//!
//! Messages wait until they are delivered; stores work at once unless they are held. Versions are
//! called v1, v2 … in the order in which they appear (v1.1 follows v1), ballots b1, b2 …. `purge`
//! makes as if a key had never been, everywhere. `fade` leaves a tombstone of a value's version.
//! `room` tells the contents of hints, and `press` tells a member the pressure of its store.
//! `stall` lets reads wait, and `hang-up` takes a client away. `watch` begins one; its client takes
//! all events.
//!
//! Invariants
//! 1. A script that differs from the run fails, with both sides.
//!
//! Not here: searching (`twin`), frames, files.
//! See: docs/protocol.md.

#[path = "../../../base/tests/scripts/mod.rs"]
mod scripts;
#[path = "../support/mod.rs"]
mod support;
mod words;

use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Ballot, Condition, Operation, Range, Readiness, Stamp};
use dendra_base::{Cell, CellRef, Guard, Key, Kind, Quorum, Space, Version};
use dendra_node::step::{AskId, Asker, Effect, Event, StoreFailure, StoreOutcome, StoreTicket};
use dendra_node::{HintRoom, Hlc, Node, NodeConfig};
use dendra_ownership::{Layout, MemberIndex, Ring, Topology};
use dendra_watch::{ChangeLog, From, Span};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

enum Message {
    Ask(AskId, Stamp, Ask),
    Answer(AskId, Answer),
    Withdraw(Vec<AskId>),
}

struct Sent {
    from: usize,
    to: usize,
    message: Message,
}

struct Site {
    node: Option<Node>,
    store: BTreeMap<Vec<u8>, (Cell, bool)>,
    is_held: bool,
    /// Has its disk no room for values?
    is_full: bool,
    held: Vec<(StoreTicket, Key, Cell, Guard)>,
    /// Do reads wait?
    is_stalled: bool,
    stalled: Vec<(StoreTicket, Key)>,
    ahead_ms: i64,
    ceiling: u64,
    lives: u64,
    hints: Arc<HintRoom>,
    changes: Arc<ChangeLog>,
    /// A change was noted in this step.
    has_noted: bool,
}

struct Stage {
    topology: Arc<Topology>,
    ring: Arc<Ring>,
    sites: Vec<Site>,
    sent: Vec<Sent>,
    now_us: u64,
    clients: u64,
    /// Each the first of its line: its followers have a larger `rmw`.
    versions: Vec<Version>,
    ballots: Vec<Ballot>,
    log: String,
}

/// The wall clock at the beginning.
const WALL_MS: u64 = 1_700_000_000_000;

/// When a value ends that the words ask for.
fn expiry_ms(words: &[&str]) -> Option<u64> {
    if words.contains(&"expired") {
        return Some(1);
    }
    words
        .contains(&"half-an-hour")
        .then_some(WALL_MS + 30 * 60_000)
}

fn name(site: usize) -> char {
    char::from(b'a' + u8::try_from(site).expect("few members"))
}

fn site(word: &str) -> usize {
    usize::from(word.as_bytes()[0] - b'a')
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Stage {
    fn new(members: usize, copies: u8) -> Stage {
        let urls = (0..members).map(|at| format!("http://{}:1", name(at)));
        let urls = urls.map(|url| url.parse().expect("a member"));
        let topology = Topology::new("script", urls.collect(), copies).expect("a topology");
        let ring = Arc::new(Ring::new(&topology));
        let site = |_| Site {
            node: None,
            store: BTreeMap::new(),
            is_held: false,
            is_full: false,
            held: Vec::new(),
            is_stalled: false,
            stalled: Vec::new(),
            ahead_ms: 0,
            ceiling: 0,
            lives: 0,
            hints: Arc::new(HintRoom::new(1 << 20)),
            changes: Arc::new(ChangeLog::new(0, 1 << 20)),
            has_noted: false,
        };
        let mut stage = Stage {
            topology: Arc::new(topology),
            ring,
            sites: (0..members).map(site).collect(),
            sent: Vec::new(),
            now_us: 1_000_000,
            clients: 0,
            versions: Vec::new(),
            ballots: Vec::new(),
            log: String::new(),
        };
        for at in 0..members {
            stage.start(at);
        }
        stage
    }

    fn start(&mut self, at: usize) {
        let now = self.now(at);
        let here = &mut self.sites[at];
        here.lives += 1;
        here.hints = Arc::new(HintRoom::new(1 << 20));
        here.changes = Arc::new(ChangeLog::new(here.lives * 1_000, 1 << 20));
        let layout = Arc::new(Layout::of_ring(&self.topology, &self.ring));
        let me = MemberIndex(u8::try_from(at).expect("few members"));
        let hlc = Arc::new(Hlc::new(here.ceiling, now.wall_ms));
        here.node = Some(Node::new(NodeConfig {
            origin: u32::try_from(at).expect("few members") + 1,
            hints: Arc::clone(&here.hints),
            changes: Arc::clone(&here.changes),
            is_keeper: true,
            seed: here.lives * 100 + at as u64,
            operations_max: 100,
            ..support::config(&layout, me, hlc)
        }));
        self.step(at, Event::Tick);
    }

    fn now(&self, at: usize) -> Now {
        let wall_ms = WALL_MS + self.now_us / 1_000;
        Now {
            mono_us: self.now_us,
            wall_ms: wall_ms.saturating_add_signed(self.sites[at].ahead_ms),
            wall_part_us: 0,
        }
    }

    fn step(&mut self, at: usize, event: Event) {
        let now = self.now(at);
        let mut events = vec![event, Event::Tick];
        while !events.is_empty() {
            let Some(node) = self.sites[at].node.as_mut() else {
                return;
            };
            let mut effects = Vec::new();
            node.step(now, events.remove(0), &mut effects);
            for effect in effects {
                if let Some(event) = self.execute(at, effect) {
                    events.push(event);
                    events.push(Event::Tick);
                }
            }
            if std::mem::take(&mut self.sites[at].has_noted)
                && !self.sites[at].changes.take_waiting().is_empty()
            {
                events.extend([Event::Changed, Event::Tick]);
            }
        }
    }

    fn execute(&mut self, at: usize, effect: Effect) -> Option<Event> {
        let me = name(at);
        match effect {
            Effect::Cover { hlc } => {
                self.sites[at].ceiling = hlc;
                return Some(Event::Covered { hlc });
            }
            Effect::Outcome {
                client,
                outcome,
                acks,
                cell,
                ..
            } => {
                let outcome = self.outcome(&outcome);
                let value = cell.map(|cell| format!(" {:?}", text(&cell.value)));
                let value = value.unwrap_or_default();
                self.line(&format!(
                    "{me}: client {client}: {outcome}{value}, {acks} answered"
                ));
            }
            Effect::Scanned {
                client,
                records,
                rest,
                failure,
            } => {
                let shown = records
                    .iter()
                    .map(|(key, cell)| format!(" {}={}", text(key), text(&cell.value)));
                let shown: String = shown.collect();
                let rest = rest.map_or("the end".to_owned(), |rest| {
                    if rest.is_reverse {
                        format!("down from {}", text(&rest.end.unwrap_or_default()))
                    } else {
                        format!("on from {}", text(&rest.start))
                    }
                });
                let end = match failure {
                    None => String::new(),
                    Some(failure) => format!(", {}", self.outcome(&failure)),
                };
                self.line(&format!("{me}: client {client}: page{shown}, {rest}{end}"));
            }
            Effect::Told {
                watch,
                events,
                token,
                ..
            } => {
                for event in &events {
                    let event = self.event(event);
                    self.line(&format!("{me}: watch {watch}: {event}"));
                }
                if token.is_none() {
                    self.line(&format!("{me}: watch {watch} has no token yet"));
                }
                return Some(Event::WatchMore { watch });
            }
            Effect::Reply { asker, answer } => {
                let to = asker.member.at();
                self.send(at, to, Message::Answer(asker.id, answer));
            }
            Effect::Ask {
                member,
                id,
                stamp,
                ask,
            } => {
                self.send(at, member.at(), Message::Ask(id, stamp, ask));
            }
            Effect::Withdraw { member, ids } => {
                self.send(at, member.at(), Message::Withdraw(ids));
            }
            Effect::Cancel { tickets } => return self.cancel(at, &tickets),
            Effect::Learn { member, epoch } => {
                self.line(&format!(
                    "{me} learns epoch {epoch} from {}",
                    name(member.at())
                ));
            }
            Effect::Loaded { epoch, partitions } => {
                let count = partitions.len();
                self.line(&format!(
                    "{me} has loaded {count} partitions in epoch {epoch}"
                ));
            }
            Effect::Repaired { id } => self.line(&format!("{me} has repaired span {id}")),
            Effect::RepairWaits { id, of } => {
                self.line(&format!("{me}: the repair of span {id} waits for {of:?}"));
            }
            Effect::Read { ticket, key, .. } if self.sites[at].is_stalled => {
                self.line(&format!("{me}: store waits with {}", text(key.raw())));
                self.sites[at].stalled.push((ticket, key));
            }
            Effect::Read { ticket, key, .. } => {
                let result = match self.sites[at].store.get(key.as_stored()) {
                    Some((_, true)) => Err(StoreFailure::Damaged),
                    found => Ok(found.map(|(cell, _)| cell.clone())),
                };
                return Some(Event::Read { ticket, result });
            }
            Effect::Write {
                ticket,
                key,
                cell,
                guard,
            } => {
                if self.sites[at].is_full && cell.kind == Kind::Value {
                    let result = Err(StoreFailure::DiskFull);
                    return Some(Event::Wrote { ticket, result });
                }
                if self.sites[at].is_held {
                    let what = self.record(&key, &cell);
                    self.line(&format!("{me}: store holds {what}"));
                    self.sites[at].held.push((ticket, key, cell, guard));
                    return None;
                }
                return Some(self.commit(at, ticket, key, cell, guard));
            }
            Effect::Survey { .. } => unreachable!("nothing is compared here"),
            Effect::Page {
                ticket,
                start,
                end,
                is_reverse,
                ..
            } => {
                let (low, high) = if is_reverse {
                    (end.as_ref().map(Key::as_stored), Some(start.as_stored()))
                } else {
                    (Some(start.as_stored()), end.as_ref().map(Key::as_stored))
                };
                let space = start.as_stored()[0];
                let inside = |key: &[u8]| {
                    key[0] == space
                        && low.is_none_or(|low| key >= low)
                        && high.is_none_or(|high| key < high)
                };
                let found = self.sites[at].store.iter().filter(|(key, _)| inside(key));
                let mut cells: Vec<(Key, Cell)> = found
                    .map(|(key, (cell, _))| {
                        let space = Space::from_byte(key[0]).expect("a space");
                        (Key::new(space, &key[1..]), cell.clone())
                    })
                    .collect();
                if is_reverse {
                    cells.reverse();
                }
                // Two records a page, so that there is a rest to talk about.
                let rest = match (is_reverse, cells.len() > 2) {
                    (false, true) => Some(cells[2].0.clone()),
                    (true, true) => Some(cells[1].0.clone()),
                    _ => None,
                };
                cells.truncate(2);
                return Some(Event::Paged {
                    ticket,
                    result: Ok((cells, rest)),
                });
            }
        }
        None
    }

    fn commit(
        &mut self,
        at: usize,
        ticket: StoreTicket,
        key: Key,
        mut cell: Cell,
        guard: Guard,
    ) -> Event {
        let what = self.record(&key, &cell);
        let store = &mut self.sites[at].store;
        let before = store.get(key.as_stored()).map(|(cell, _)| cell.clone());
        if let (Guard::If(_), Some(before)) = (&guard, &before) {
            cell.version = cell.version.max(before.version.successor());
        }
        let version = cell.version;
        let live = before
            .as_ref()
            .filter(|cell| cell.kind == Kind::Value)
            .map(|cell| cell.version);
        let holds = match guard {
            Guard::Newest => true,
            Guard::If(condition) => condition.holds(live),
        };
        let is_newest = before.is_none_or(|before| !before.is_newer_than(&cell));
        let (result, word) = match (holds, is_newest) {
            (false, _) => (StoreOutcome::GuardFailed { current: live }, "refuses"),
            (true, true) => (StoreOutcome::Applied { version }, "has"),
            (true, false) => (StoreOutcome::Applied { version }, "has newer than"),
        };
        if holds && key.as_stored()[0] == Space::User.byte() {
            self.sites[at].changes.note(key.raw(), version);
            self.sites[at].has_noted = true;
        }
        let store = &mut self.sites[at].store;
        if holds && is_newest {
            store.insert(key.as_stored().to_vec(), (cell, false));
        }
        self.line(&format!("{}: store {word} {what}", name(at)));
        Event::Wrote {
            ticket,
            result: Ok(result),
        }
    }

    /// Takes the first of these orders back that waits here: a script cancels one at a time.
    fn cancel(&mut self, at: usize, tickets: &[StoreTicket]) -> Option<Event> {
        let here = &mut self.sites[at];
        let late = StoreFailure::Late;
        let is_it = |ticket: &StoreTicket| tickets.contains(ticket);
        if let Some(found) = here.stalled.iter().position(|(ticket, _)| is_it(ticket)) {
            let (ticket, key) = here.stalled.remove(found);
            self.line(&format!("{}: store gives {} up", name(at), text(key.raw())));
            let result = Err(late);
            return Some(Event::Read { ticket, result });
        }
        if let Some(found) = here.held.iter().position(|(ticket, ..)| is_it(ticket)) {
            let (ticket, key, cell, _) = here.held.remove(found);
            let what = self.record(&key, &cell);
            self.line(&format!("{}: store gives up {what}", name(at)));
            let result = Err(late);
            return Some(Event::Wrote { ticket, result });
        }
        self.line(&format!("{}: store has begun", name(at)));
        None
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let what = match &message {
            Message::Ask(_, _, ask) => self.ask(ask),
            Message::Answer(_, answer) => self.answer(answer),
            Message::Withdraw(ids) => match ids.len() {
                1 => "never mind".to_owned(),
                several => format!("never mind {several} questions"),
            },
        };
        self.line(&format!("{} -> {}: {what}", name(from), name(to)));
        self.sent.push(Sent { from, to, message });
    }

    fn deliver(&mut self, sent: Sent) {
        let member = MemberIndex(u8::try_from(sent.from).expect("few members"));
        let event = match sent.message {
            Message::Ask(id, stamp, ask) => {
                let asker = Asker {
                    member,
                    link: 0,
                    id,
                };
                Event::Asked { asker, stamp, ask }
            }
            Message::Answer(id, answer) => Event::Answered { member, id, answer },
            Message::Withdraw(ids) => Event::Withdrawn {
                member,
                link: 0,
                ids,
            },
        };
        self.step(sent.to, event);
    }

    // Commands.

    fn command(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["get", "at", at, key, rest @ ..] => self.begin(at, key, Operation::Get, rest),
            ["put", "at", at, key, value, rest @ ..] => {
                let put = Operation::Put {
                    value: Bytes::from((*value).to_owned()),
                    expiry_ms: expiry_ms(rest),
                    condition: self.condition(rest),
                };
                self.begin(at, key, put, rest);
            }
            ["delete", "at", at, key, rest @ ..] => {
                let condition = self.condition(rest);
                self.begin(at, key, Operation::Delete { condition }, rest);
            }
            ["touch", "at", at, key, rest @ ..] => {
                let touch = Operation::Touch {
                    expiry_ms: expiry_ms(rest).expect("a touch has an end"),
                    condition: match self.condition(rest) {
                        Condition::None => Condition::Present,
                        condition => condition,
                    },
                };
                self.begin(at, key, touch, rest);
            }
            ["scan", "at", at, start, rest @ ..] => {
                let range = Range {
                    start: Bytes::from((*start).to_owned()),
                    end: rest
                        .first()
                        .filter(|w| **w != "reverse")
                        .map(|end| Bytes::from((*end).to_owned())),
                    is_reverse: rest.contains(&"reverse"),
                    is_keys_only: false,
                };
                self.clients += 1;
                let event = Event::Scan {
                    client: self.clients,
                    range,
                    bytes: 1 << 16,
                    deadline_us: self.now_us + 1_000_000,
                };
                self.step(site(at), event);
            }
            ["watch", "at", at, prefix, rest @ ..] => {
                self.clients += 1;
                let watch = self.clients;
                let open = Event::WatchOpen {
                    watch,
                    span: Span::of_prefix(prefix.as_bytes()),
                    from: match rest {
                        ["now"] => From::Now,
                        _ => From::State,
                    },
                    heartbeat_us: 5_000_000,
                };
                self.step(site(at), open);
                self.step(site(at), Event::WatchMore { watch });
            }
            ["unwatch", "at", at, watch] => {
                let watch = watch.parse().expect("a number");
                self.step(site(at), Event::WatchClose { watch });
            }
            ["deliver"] => {
                while !self.sent.is_empty() {
                    let next = self.sent.remove(0);
                    self.deliver(next);
                }
            }
            ["deliver", link] => self
                .take(link)
                .into_iter()
                .for_each(|sent| self.deliver(sent)),
            ["drop", link] => drop(self.take(link)),
            ["repeat", link] => {
                for sent in self.take(link) {
                    let again = Sent {
                        message: match &sent.message {
                            Message::Ask(id, stamp, ask) => Message::Ask(*id, *stamp, ask.clone()),
                            Message::Answer(id, answer) => Message::Answer(*id, answer.clone()),
                            Message::Withdraw(ids) => Message::Withdraw(ids.clone()),
                        },
                        ..sent
                    };
                    self.sent.push(again);
                    self.deliver(sent);
                }
            }
            ["advance", ms] => {
                let ms: u64 = ms.trim_end_matches("ms").parse().expect("milliseconds");
                self.now_us += ms * 1_000;
                for at in 0..self.sites.len() {
                    self.step(at, Event::Tick);
                }
            }
            ["link", at, to, state] => {
                let member = MemberIndex(u8::try_from(site(to)).expect("few members"));
                let is_up = *state == "up";
                self.step(site(at), Event::Link { member, is_up });
            }
            ["hear", at, of] => {
                let member = MemberIndex(u8::try_from(site(of)).expect("few members"));
                self.step(site(at), Event::Alive { member });
            }
            ["fill", at] => self.sites[site(at)].is_full = true,
            ["empty", at] => self.sites[site(at)].is_full = false,
            ["press", at, word] => {
                let readiness = match *word {
                    "ready" => Readiness::Ready,
                    "behind" => Readiness::Behind,
                    "full" => Readiness::DiskFull,
                    "full-of-all" => Readiness::DiskAndMemoryFull,
                    other => panic!("what is {other:?}?"),
                };
                let pressed = Event::Pressed {
                    readiness,
                    is_strained: false,
                };
                self.step(site(at), pressed);
            }
            ["hold", at] => self.sites[site(at)].is_held = true,
            ["stall", at] => self.sites[site(at)].is_stalled = true,
            ["hang-up", at, client] => {
                let client = client.parse().expect("a number");
                self.step(site(at), Event::Gone { client });
            }
            ["release", at] => {
                self.sites[site(at)].is_stalled = false;
                for (ticket, key) in std::mem::take(&mut self.sites[site(at)].stalled) {
                    let found = self.sites[site(at)].store.get(key.as_stored());
                    let result = Ok(found.map(|(cell, _)| cell.clone()));
                    self.step(site(at), Event::Read { ticket, result });
                }
                self.sites[site(at)].is_held = false;
                for (ticket, key, cell, guard) in std::mem::take(&mut self.sites[site(at)].held) {
                    let event = self.commit(site(at), ticket, key, cell, guard);
                    self.step(site(at), event);
                }
            }
            ["crash", at] => {
                let here = &mut self.sites[site(at)];
                (here.node, here.is_held) = (None, false);
                here.held.clear();
            }
            ["start", at] => self.start(site(at)),
            ["damage", at, key] => {
                let stored = Key::user(key.as_bytes());
                let found = self.sites[site(at)].store.get_mut(stored.as_stored());
                found.expect("the key is there").1 = true;
            }
            ["forge", at, key, value] => {
                let stored = Key::user(key.as_bytes());
                let found = self.sites[site(at)].store.get_mut(stored.as_stored());
                let cell = &mut found.expect("the key is there").0;
                cell.value = Bytes::from((*value).to_owned());
                cell.checksum = dendra_base::cell::checksum(stored.as_stored(), &cell.value);
            }
            ["fade", at, key] => {
                let stored = Key::user(key.as_bytes());
                let found = self.sites[site(at)].store.get_mut(stored.as_stored());
                let cell = &mut found.expect("the key is there").0;
                let gone = CellRef::tombstone(stored.as_stored(), cell.version);
                *cell = Cell {
                    copies: cell.copies,
                    born: cell.born,
                    ..gone.to_owned()
                };
            }
            ["purge", key] => {
                for here in &mut self.sites {
                    here.store
                        .retain(|stored, _| stored[1..] != *key.as_bytes());
                }
            }
            ["room", at] => {
                let bytes = self.sites[site(at)].hints.bytes();
                self.line(&format!("{at}: hints hold {bytes} bytes"));
            }
            ["clock", at, ms] => {
                self.sites[site(at)].ahead_ms =
                    ms.trim_end_matches("ms").parse().expect("milliseconds");
            }
            ["ask", link, "epoch", epoch, "read", key] => self.ask_raw(link, epoch, 1, key),
            ["ask", link, "late", "read", key] => self.ask_raw(link, "1", 0, key),
            ["store", at] => {
                let records: Vec<(Key, Cell, bool)> = self.sites[site(at)]
                    .store
                    .iter()
                    .map(|(key, (cell, damaged))| {
                        let space = Space::from_byte(key[0]).expect("a space");
                        (Key::new(space, &key[1..]), cell.clone(), *damaged)
                    })
                    .collect();
                for (key, cell, is_damaged) in records {
                    let what = self.record(&key, &cell);
                    let damaged = if is_damaged { ", damaged" } else { "" };
                    self.line(&format!("{at}: {what}{damaged}"));
                }
            }
            _ => panic!("what is {line:?}?"),
        }
    }

    fn ask_raw(&mut self, link: &str, epoch: &str, left_ms: u32, key: &str) {
        let (from, to) = link.split_once("->").expect("a link");
        let stamp = Stamp {
            cluster: self.topology.id(),
            epoch: epoch.parse().expect("a number"),
            left_ms,
        };
        let asker = Asker {
            member: MemberIndex(u8::try_from(site(from)).expect("few members")),
            link: 0,
            id: 1,
        };
        let (key, known) = (Bytes::from(key.to_owned()), None);
        let ask = Ask::Read { key, known };
        self.step(site(to), Event::Asked { asker, stamp, ask });
    }

    fn condition(&self, words: &[&str]) -> Condition {
        let version = |word: &&str| {
            let (number, rmw) = word[1..].split_once('.').unwrap_or((&word[1..], "0"));
            let number: usize = number.parse().expect("a version's number");
            let first = self.versions[number - 1];
            let steps: u32 = rmw.parse().expect("a successor's number");
            let rmw = first.rmw + steps;
            Version { rmw, ..first }
        };
        match words
            .iter()
            .skip_while(|word| !word.starts_with("if-"))
            .collect::<Vec<_>>()[..]
        {
            [] => Condition::None,
            [&"if-absent", ..] => Condition::Absent,
            [&"if-present", ..] => Condition::Present,
            [&"if-is", v, ..] => Condition::Matches(version(v)),
            [&"if-is-not", v, ..] => Condition::Differs(version(v)),
            ref other => panic!("what is {other:?}?"),
        }
    }

    fn begin(&mut self, at: &str, key: &str, operation: Operation, rest: &[&str]) {
        let (ack, from) = rest[0].split_once('/').expect("ack/from");
        let number = |word: &str| word.parse().expect("a number");
        let quorum = Quorum::new(number(ack), number(from), self.topology.len());
        self.clients += 1;
        let event = Event::Begin {
            client: self.clients,
            key: Bytes::from(key.to_owned()),
            operation,
            quorum: quorum.expect("a possible quorum"),
            deadline_us: self.now_us + 1_000_000,
        };
        if rest.last() == Some(&"and") {
            // The turn of the loop goes on.
            let (now, mut effects) = (self.now(site(at)), Vec::new());
            let node = self.sites[site(at)]
                .node
                .as_mut()
                .expect("the member lives");
            node.step(now, event, &mut effects);
            assert!(effects.is_empty(), "questions wait for the end of the turn");
            return;
        }
        self.step(site(at), event);
    }

    /// Takes the messages that wait on a link, as `a->b`, `a->*` or `*->b`.
    fn take(&mut self, link: &str) -> Vec<Sent> {
        let (from, to) = link.split_once("->").expect("a link");
        let is_it = |word: &str, at: usize| word == "*" || site(word) == at;
        let (taken, left) = std::mem::take(&mut self.sent)
            .into_iter()
            .partition(|sent| is_it(from, sent.from) && is_it(to, sent.to));
        self.sent = left;
        taken
    }
}

/// Carries out the commands of one script, of which the first makes the members.
fn player() -> impl FnMut(&str, &mut String) {
    let mut stage: Option<Stage> = None;
    move |command, out| {
        let words: Vec<&str> = command.split_whitespace().collect();
        if let ["members", members, rest @ ..] = words.as_slice() {
            let copies = rest
                .last()
                .map_or(3, |copies| copies.parse().expect("a number"));
            let new = Stage::new(members.parse().expect("a number"), copies);
            let row = new.ring.owners(new.ring.partition(b"k"));
            let row: Vec<String> = row.iter().map(|m| name(m.at()).to_string()).collect();
            writeln!(out, "owners of k: {}", row.join(" ")).expect("a string takes everything");
            stage = Some(new);
            return;
        }
        let stage = stage.as_mut().expect("a script begins with `members`");
        stage.command(command);
        out.push_str(&std::mem::take(&mut stage.log));
    }
}

#[test]
fn conversations_are_what_the_scripts_say() {
    scripts::check("tests/scripts", 10, player);
}
