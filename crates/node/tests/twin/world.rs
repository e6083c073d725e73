//! A small made-up world around real nodes: a lossy network, stores that are lists, clocks that are
//! wrong, crashes, damage. Everything is drawn from one seed.
//!
//! ```text
//! client ─ Begin ─► Node ─ Effect ─► network: lost, repeated, late     ─► Node
//!                                    store:   reads what is committed; commits after a while
//!                                    crash:   what was not committed is lost, or not
//! ```
//!
//! Not here: files, frames, many keys: the large simulator has them. This one is for quick answers.

use crate::history::{Did, Entry, States, Wanted};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Stamp};
use dendra_base::{Cell, Key, Prng, Version};
use dendra_node::step::{
    AskId, Asker, Effect, Event, Now, StoreFailure, StoreGuard, StoreOutcome, StoreTicket,
};
use dendra_node::{
    HintRoom, Hlc, Known, MemberIndex, Node, NodeConfig, Outcome, Quorum, Ring, Topology,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Everything that is common to all seeds.
pub struct Ground {
    /// Topologies, and how many of ten seeds get each.
    clusters: Vec<(u64, Arc<Topology>, Arc<Ring>)>,
}

impl Ground {
    pub fn new() -> Ground {
        let cluster = |often: u64, members: usize, copies: u8| {
            let urls = (0..members).map(|at| format!("http://h{at}:1"));
            let members = urls.map(|url| url.parse().expect("a member"));
            let topology = Topology::new("twin", members.collect(), copies).expect("a topology");
            let ring = Ring::new(&topology);
            (often, Arc::new(topology), Arc::new(ring))
        };
        Ground {
            clusters: vec![
                cluster(5, 3, 3),
                cluster(2, 4, 3),
                cluster(1, 2, 1),
                cluster(1, 3, 2),
                cluster(1, 5, 5),
            ],
        }
    }

    fn draw(&self, prng: &mut Prng) -> (Arc<Topology>, Arc<Ring>) {
        let mut number = prng.below(self.clusters.iter().map(|(often, _, _)| often).sum());
        for (often, topology, ring) in &self.clusters {
            if number < *often {
                return (Arc::clone(topology), Arc::clone(ring));
            }
            number -= often;
        }
        unreachable!("the number is below the sum")
    }
}

/// How the world treats its nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Nothing is lost, late, wrong or down.
    Fair,
    /// Anything that is drawn.
    Foul,
}

/// What a run showed.
pub struct Run {
    pub entries: Vec<Entry>,
    pub states: States,
    /// A rule that was broken in plain sight: one outcome each, in time, versions used once.
    pub broken: Option<String>,
    pub events: u64,
    pub outcomes: u64,
    pub unknown: u64,
    /// Operations that failed and changed nothing.
    pub failed: u64,
}

enum What {
    Page {
        site: usize,
        life: u32,
        ticket: StoreTicket,
        start: Key,
        end: Option<Key>,
    },
    Deliver {
        to: usize,
        event: Box<Event>,
    },
    Commit {
        site: usize,
        life: u32,
        ticket: StoreTicket,
        key: Key,
        cell: Cell,
        guard: StoreGuard,
    },
    Read {
        site: usize,
        life: u32,
        ticket: StoreTicket,
        key: Key,
    },
    Covered {
        site: usize,
        life: u32,
        hlc: u64,
    },
    Wake {
        site: usize,
        life: u32,
    },
    Next {
        client: usize,
    },
    Crash {
        site: usize,
    },
    Restart {
        site: usize,
    },
    Damage {
        site: usize,
    },
}

struct Stored {
    key: Key,
    cell: Cell,
    is_damaged: bool,
}

struct Site {
    node: Option<Node>,
    life: u32,
    hlc: Arc<Hlc>,
    ceiling: u64,
    skew_ms: i64,
    store: Vec<Stored>,
    wake_us: u64,
}

/// What a client waits for.
struct Waiting {
    site: usize,
    start: u64,
    deadline: u64,
    operation: Operation,
    life: u32,
}

#[derive(Default)]
struct Client {
    left: u32,
    waiting: Option<Waiting>,
    /// The live version that it saw last.
    seen: Option<Version>,
}

pub struct World {
    now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<What>>,
    prng: Prng,
    topology: Arc<Topology>,
    ring: Arc<Ring>,
    sites: Vec<Site>,
    clients: Vec<Client>,
    ack: u32,
    copies: u32,
    /// The shortest deadline.
    patience: u64,
    /// Clients speak to so many members.
    doors: u64,
    loss: u64,
    repeat: u64,
    tail: u64,
    slow_store: u64,
    key: Bytes,
    values: u32,
    run: Run,
    /// Writes whose outcome nobody knows: the entry, its bytes, and whether it leaves a live value.
    unknown: Vec<(usize, Option<Bytes>, bool)>,
    /// Versions that were read, and the bytes that were read under them.
    shown: Vec<(Version, Bytes)>,
    effects: Vec<Effect>,
    written: Vec<(Version, u64)>,
}

/// A value that many clients write: who wins a duel must not be told by the bytes.
const COMMON: &[u8] = b"mine";

impl World {
    pub fn run(ground: &Ground, seed: u64, weather: Weather) -> Run {
        let mut world = World::new(ground, seed, weather);
        while let Some(Reverse((at, _, index))) = world.queue.pop() {
            world.now = at;
            let what = world.events[index].take().expect("an event happens once");
            world.happen(what);
            world.run.events += 1;
            if world.run.events > 50_000 || world.is_over() {
                break;
            }
        }
        world.finish()
    }

    fn new(ground: &Ground, seed: u64, weather: Weather) -> World {
        let mut prng = Prng::new(seed);
        let (topology, ring) = ground.draw(&mut prng);
        let copies = u32::from(topology.copies());
        let is_foul = weather == Weather::Foul;
        let foul = |drawn: u64| if is_foul { drawn } else { 0 };
        let skew_ms = foul([0, 0, 2, 20, 200][prng.below(5) as usize]);
        let sites = (0..topology.members().len()).map(|_| Site {
            node: None,
            life: 0,
            hlc: Arc::new(Hlc::new(0, 0)),
            ceiling: 0,
            skew_ms: prng.below(2 * skew_ms + 1) as i64 - skew_ms as i64,
            store: Vec::new(),
            wake_us: u64::MAX,
        });
        let sites = sites.collect();
        let doors = 1 + prng.below(topology.members().len() as u64);
        let mut world = World {
            now: 1_000_000,
            sequence: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            topology,
            ring,
            sites,
            clients: (0..3)
                .map(|_| Client {
                    left: 5,
                    ..Client::default()
                })
                .collect(),
            ack: (copies / 2 + 1 + u32::from(prng.chance(1, 20))).min(copies),
            copies,
            patience: if is_foul { 3_000 } else { 1_000_000 },
            doors,
            loss: foul([0, 0, 20, 100][prng.below(4) as usize]),
            repeat: foul([0, 30][prng.below(2) as usize]),
            tail: foul([0, 50, 200, 500][prng.below(4) as usize]),
            slow_store: foul([0, 100][prng.below(2) as usize]),
            key: Bytes::from(format!("k{}", prng.below(8))),
            values: 0,
            run: Run {
                entries: Vec::new(),
                states: States::new(),
                broken: None,
                events: 0,
                outcomes: 0,
                unknown: 0,
                failed: 0,
            },
            unknown: Vec::new(),
            shown: Vec::new(),
            effects: Vec::new(),
            written: Vec::new(),
            prng,
        };
        for site in 0..world.sites.len() {
            world.start(site);
        }
        for client in 0..world.clients.len() {
            let delay = world.prng.below(600);
            world.later(delay, What::Next { client });
        }
        if is_foul && world.prng.chance(1, 2) {
            for _ in 0..1 + world.prng.below(3) {
                let (site, delay) = (world.any_site(), world.prng.below(12_000));
                world.later(delay, What::Crash { site });
            }
        }
        if is_foul && copies > 2 && world.prng.chance(1, 4) {
            // One unlucky member loses copies, never two: the others must be able to tell.
            let site = world.any_site();
            for _ in 0..2 {
                let delay = world.prng.below(12_000);
                world.later(delay, What::Damage { site });
            }
        }
        world
    }

    fn any_site(&mut self) -> usize {
        self.prng.below(self.sites.len() as u64) as usize
    }

    fn later(&mut self, delay: u64, what: What) {
        self.sequence += 1;
        let index = self.events.len();
        self.events.push(Some(what));
        self.queue
            .push(Reverse((self.now + delay, self.sequence, index)));
    }

    fn is_over(&self) -> bool {
        self.clients
            .iter()
            .all(|c| c.left == 0 && c.waiting.is_none())
    }

    fn wall_ms(&self, site: usize) -> u64 {
        (1_700_000_000_000 + self.now / 1_000).saturating_add_signed(self.sites[site].skew_ms)
    }

    fn start(&mut self, site: usize) {
        let wall_ms = self.wall_ms(site);
        let seed = self.prng.next_u64();
        let at = &mut self.sites[site];
        let newest = at.store.iter().map(|stored| stored.cell.version.hlc).max();
        at.life += 1;
        at.wake_us = u64::MAX;
        at.hlc = Arc::new(Hlc::new(at.ceiling.max(newest.unwrap_or(0)), wall_ms));
        at.node = Some(Node::new(NodeConfig {
            topology: Arc::clone(&self.topology),
            ring: Arc::clone(&self.ring),
            me: MemberIndex(site as u8),
            origin: site as u32 + 1,
            hlc: Arc::clone(&at.hlc),
            hints: Arc::new(HintRoom::new(1 << 20)),
            is_keeper: true,
            seed,
            operations_max: 64,
        }));
        self.wake(site, self.now);
    }

    fn wake(&mut self, site: usize, at_us: u64) {
        let at_us = at_us.max(self.now);
        if at_us < self.sites[site].wake_us {
            self.sites[site].wake_us = at_us;
            let life = self.sites[site].life;
            self.later(at_us - self.now, What::Wake { site, life });
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Deliver { to, event } => self.step(to, *event),
            What::Wake { site, life } => {
                if self.sites[site].life == life && self.sites[site].wake_us <= self.now {
                    self.sites[site].wake_us = u64::MAX;
                    self.step(site, Event::Tick);
                }
            }
            What::Read {
                site,
                life,
                ticket,
                key,
            } => {
                if self.sites[site].life == life {
                    let result = self.look(site, &key);
                    self.step(site, Event::Read { ticket, result });
                }
            }
            What::Commit {
                site,
                life,
                ticket,
                key,
                cell,
                guard,
            } => {
                let is_old = self.sites[site].life != life;
                // What a crash caught on its way to the disk is there, or not.
                if is_old && self.prng.chance(1, 2) {
                    return;
                }
                let outcome = commit(&mut self.sites[site].store, key, cell, guard);
                if !is_old {
                    self.step(
                        site,
                        Event::Wrote {
                            ticket,
                            result: Ok(outcome),
                        },
                    );
                }
            }
            What::Page {
                site,
                life,
                ticket,
                start,
                end,
            } => {
                if self.sites[site].life == life {
                    let is_in = |key: &Key| {
                        *key >= start
                            && key.as_stored()[0] == start.as_stored()[0]
                            && end.as_ref().is_none_or(|end| key < end)
                    };
                    let stored = self.sites[site].store.iter().filter(|s| is_in(&s.key));
                    let mut cells: Vec<_> =
                        stored.map(|s| (s.key.clone(), s.cell.clone())).collect();
                    cells.sort_by(|a, b| a.0.cmp(&b.0));
                    let result = Ok((cells, None));
                    self.step(site, Event::Paged { ticket, result });
                }
            }
            What::Covered { site, life, hlc } => {
                self.sites[site].ceiling = self.sites[site].ceiling.max(hlc);
                if self.sites[site].life == life {
                    self.step(site, Event::Covered { hlc });
                }
            }
            What::Next { client } => self.next(client),
            What::Crash { site } => self.crash(site),
            What::Restart { site } => {
                self.start(site);
                self.tell_links(site, true);
            }
            What::Damage { site } => {
                for stored in &mut self.sites[site].store {
                    stored.is_damaged |= stored.key.raw() == self.key;
                }
            }
        }
    }

    fn crash(&mut self, site: usize) {
        if self.sites[site].node.take().is_none() {
            return;
        }
        self.sites[site].life += 1;
        for client in 0..self.clients.len() {
            if self.clients[client]
                .waiting
                .as_ref()
                .is_some_and(|w| w.site == site)
            {
                self.end(client, None);
            }
        }
        if self.prng.chance(1, 2) {
            self.tell_links(site, false);
        }
        let pause = 200 + self.prng.below(8_000);
        self.later(pause, What::Restart { site });
    }

    fn tell_links(&mut self, site: usize, is_up: bool) {
        for to in (0..self.sites.len()).filter(|to| *to != site) {
            let delay = self.prng.below(300);
            let member = MemberIndex(site as u8);
            let event = Box::new(Event::Link { member, is_up });
            self.later(delay, What::Deliver { to, event });
        }
    }

    fn look(&self, site: usize, key: &Key) -> Result<Option<Cell>, StoreFailure> {
        let found = self.sites[site]
            .store
            .iter()
            .find(|stored| stored.key == *key);
        match found {
            Some(stored) if stored.is_damaged => Err(StoreFailure::Damaged),
            found => Ok(found.map(|stored| stored.cell.clone())),
        }
    }

    /// One event, and all effects of it.
    fn step(&mut self, site: usize, event: Event) {
        let now = Now {
            mono_us: self.now,
            wall_ms: self.wall_ms(site),
        };
        let Some(node) = self.sites[site].node.as_mut() else {
            return;
        };
        let is_tick = matches!(event, Event::Tick);
        let mut effects = std::mem::take(&mut self.effects);
        node.step(now, event, &mut effects);
        let due = node.due_us();
        for effect in effects.drain(..) {
            self.execute(site, effect);
        }
        self.effects = effects;
        // The turn of a loop ends soon after something happened; then only time wakes it.
        if !is_tick {
            let turn_end = self.now + self.prng.below(30);
            self.wake(site, turn_end);
        } else if let Some(due) = due {
            self.wake(site, due);
        }
    }

    fn execute(&mut self, site: usize, effect: Effect) {
        let life = self.sites[site].life;
        match effect {
            Effect::Outcome {
                client,
                outcome,
                cell,
                ..
            } => {
                let client = client as usize;
                if self.clients[client].waiting.is_none() {
                    self.broke(format!(
                        "client {client} was told {outcome:?} without asking"
                    ));
                    return;
                }
                self.end(client, Some((outcome, cell)));
            }
            Effect::Ask {
                member,
                id,
                stamp,
                ask,
            } => self.send_ask(site, member, id, stamp, &ask),
            Effect::Reply { asker, answer } => self.send_answer(site, asker, &answer),
            Effect::Read { ticket, key, .. } => {
                let delay = if self.prng.chance(1, 5) {
                    self.store_delay()
                } else {
                    0
                };
                self.later(
                    delay,
                    What::Read {
                        site,
                        life,
                        ticket,
                        key,
                    },
                );
            }
            Effect::Write {
                ticket,
                key,
                cell,
                guard,
            } => {
                let delay = self.store_delay();
                self.later(
                    delay,
                    What::Commit {
                        site,
                        life,
                        ticket,
                        key,
                        cell,
                        guard,
                    },
                );
            }
            Effect::Cover { hlc } => {
                let delay = self.store_delay();
                self.later(delay, What::Covered { site, life, hlc });
            }
            Effect::Page {
                ticket, start, end, ..
            } => {
                let delay = self.store_delay();
                self.later(
                    delay,
                    What::Page {
                        site,
                        life,
                        ticket,
                        start,
                        end,
                    },
                );
            }
            other @ Effect::Scanned { .. } => self.broke(format!("nobody wanted {other:?}")),
        }
    }

    fn store_delay(&mut self) -> u64 {
        if self.prng.chance(self.slow_store, 1_000) {
            return 500 + self.prng.below(8_000);
        }
        20 + self.prng.below(150)
    }

    fn send_ask(&mut self, from: usize, to: MemberIndex, id: AskId, stamp: Stamp, ask: &Ask) {
        let asker = Asker {
            member: MemberIndex(from as u8),
            link: 0,
            id,
        };
        for delay in self.ways() {
            let ask = ask.clone();
            let event = Box::new(Event::Asked { asker, stamp, ask });
            self.later(delay, What::Deliver { to: to.at(), event });
        }
    }

    fn send_answer(&mut self, from: usize, asker: Asker, answer: &Answer) {
        let member = MemberIndex(from as u8);
        for delay in self.ways() {
            let (id, answer) = (asker.id, answer.clone());
            let event = Box::new(Event::Answered { member, id, answer });
            self.later(
                delay,
                What::Deliver {
                    to: asker.member.at(),
                    event,
                },
            );
        }
    }

    /// How long a message takes, as often as it arrives.
    fn ways(&mut self) -> impl Iterator<Item = u64> + use<> {
        let times = match (
            self.prng.chance(self.loss, 1_000),
            self.prng.chance(self.repeat, 1_000),
        ) {
            (true, _) => 0,
            (_, true) => 2,
            _ => 1,
        };
        let mut delays = [0; 2];
        for delay in &mut delays[..times] {
            *delay = match self.prng.chance(self.tail, 1_000) {
                true => 200 + self.prng.below(8_000),
                false => 30 + self.prng.below(120),
            };
        }
        delays.into_iter().take(times)
    }

    // Clients.

    fn next(&mut self, client: usize) {
        if self.clients[client].left == 0 {
            return;
        }
        let site = self.prng.below(self.doors) as usize;
        if self.sites[site].node.is_none() {
            let delay = 100 + self.prng.below(400);
            self.later(delay, What::Next { client });
            return;
        }
        self.clients[client].left -= 1;
        let operation = self.draw(client);
        let deadline = self.now + self.patience + self.prng.below(20_000);
        self.clients[client].waiting = Some(Waiting {
            site,
            start: self.now,
            deadline,
            operation: operation.clone(),
            life: self.sites[site].life,
        });
        let quorum = Quorum::new(self.ack, self.copies, self.topology.len());
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

    fn draw(&mut self, client: usize) -> Operation {
        let seen = self.clients[client].seen;
        let condition = match self.prng.below(20) {
            0..8 => return Operation::Get,
            8..14 => Condition::None,
            14 => Condition::Present,
            15..17 => Condition::Absent,
            17 => seen.map_or(Condition::Absent, Condition::Differs),
            _ => seen.map_or(Condition::Absent, Condition::Matches),
        };
        self.values += 1;
        let value = match self.prng.chance(1, 3) {
            true => Bytes::from_static(COMMON),
            false => Bytes::from(self.values.to_be_bytes().to_vec()),
        };
        match self.prng.below(8) {
            0 => Operation::Delete { condition },
            1 => Operation::Put {
                value,
                expiry_ms: Some(1),
                condition,
            },
            _ => Operation::Put {
                value,
                expiry_ms: None,
                condition,
            },
        }
    }

    fn wanted(&mut self, condition: Condition) -> Wanted {
        let mut number = |version| self.run.states.number(version, true);
        match condition {
            Condition::None => Wanted::Anything,
            Condition::Present => Wanted::Live,
            Condition::Absent => Wanted::Dead,
            Condition::Matches(version) => Wanted::Is(number(version)),
            Condition::Differs(version) => Wanted::IsNot(number(version)),
        }
    }

    /// An operation ended for its client: with an outcome, or because its member died.
    fn end(&mut self, client: usize, told: Option<(Outcome, Option<Cell>)>) {
        let waiting = self.clients[client].waiting.take().expect("it waits");
        let delay = self.prng.below(600);
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
        let wanted = self.wanted(condition);
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

    fn broke(&mut self, what: String) {
        self.run.broken.get_or_insert(what);
    }

    /// Gives unknown writes the versions that they may have had.
    fn finish(mut self) -> Run {
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

/// What a store does when a write's turn has come.
fn commit(store: &mut Vec<Stored>, key: Key, cell: Cell, guard: StoreGuard) -> StoreOutcome {
    let version = cell.version;
    let found = store.iter().position(|stored| stored.key == key);
    let current = found.map(|at| store[at].cell.version);
    let holds = match guard {
        StoreGuard::Newest => true,
        StoreGuard::Is(wanted) => wanted == current,
        StoreGuard::Only(_) => unreachable!("there is more than one member"),
    };
    if !holds {
        return StoreOutcome::GuardFailed { current };
    }
    match found {
        None => store.push(Stored {
            key,
            cell,
            is_damaged: false,
        }),
        Some(at) if version >= store[at].cell.version => {
            store[at] = Stored {
                key,
                cell,
                is_damaged: false,
            };
        }
        Some(_) => {}
    }
    StoreOutcome::Applied { version }
}
