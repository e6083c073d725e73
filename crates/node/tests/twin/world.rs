//! A small made-up world around real nodes: a lossy network, stores that are lists, clocks that are
//! wrong, crashes, damage. Everything is drawn from one seed.
//!
//! ```text
//! client ─ Begin ─► Node ─ Effect ─► network: lost, repeated, late     ─► Node
//!                                    store:   reads what is committed; commits after a while
//!                                    crash:   what was not committed is lost, or not
//! ```
//!
//! Not here: wishes and answers of clients (`world/clients.rs`), stores (`world/store.rs`), acts of
//! a world that forgets (`world/acts.rs`). Files, frames and many keys are in the large simulator.
//! This one is for quick answers.

mod acts;
mod clients;
mod epochs;
mod store;

use crate::history::{Entry, States};
use crate::support;
use acts::Acts;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask, Operation, Stamp};
use dendra_base::{Cell, Guard, Key, LeastSuccessor, Prng, Version};
use dendra_node::compare::survey::Survey;
use dendra_node::step::{AskId, Asker, Effect, Event, StoreTicket};
use dendra_node::{CompareConfig, HintRoom, Hlc, Node, NodeConfig};
use dendra_ownership::{Fence, Layout, MemberIndex, Ring, Topology};
use epochs::Epochs;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use store::{Stored, commit, look, page, survey};

/// Everything that is common to all seeds.
pub(crate) struct Ground {
    clusters: Vec<Cluster>,
    /// Those in which positions can move: more members than copies.
    moving: Vec<Cluster>,
    /// Those in which a record may have more copies than the others.
    wide: Vec<Cluster>,
}

/// How many of ten seeds get this cluster.
type Cluster = (u64, Arc<Topology>, Arc<Ring>);

impl Ground {
    pub(crate) fn new() -> Ground {
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
            moving: vec![
                cluster(4, 5, 3),
                cluster(3, 4, 3),
                cluster(2, 4, 2),
                cluster(1, 3, 1),
            ],
            wide: vec![
                cluster(5, 4, 3),
                cluster(2, 5, 3),
                cluster(2, 3, 2),
                cluster(1, 2, 1),
            ],
        }
    }

    fn draw(&self, weather: Weather, prng: &mut Prng) -> (Arc<Topology>, Arc<Ring>) {
        let clusters = match weather {
            Weather::Fair | Weather::Foul | Weather::Forgetting | Weather::Restored => {
                &self.clusters
            }
            Weather::Moving => &self.moving,
            Weather::Wide => &self.wide,
        };
        let mut number = prng.below(clusters.iter().map(|(often, _, _)| often).sum());
        for (often, topology, ring) in clusters {
            if number < *often {
                return (Arc::clone(topology), Arc::clone(ring));
            }
            number -= often;
        }
        unreachable!("the number is below the sum")
    }
}

/// How the world treats its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// No message is lost or late, no clock is wrong, and no member is down.
    Fair,
    /// Anything that is drawn.
    Foul,
    /// The same, while positions of the key move from member to member.
    Moving,
    /// Anything that is drawn, while horizons rise and stores purge what they allow.
    Forgetting,
    /// Anything that is drawn, while the least successor number of conditional writes rises.
    Restored,
    /// As `Forgetting`, and every second plain operation is one of one owner more than the others.
    Wide,
}

impl Weather {
    fn forgets(self) -> bool {
        matches!(self, Weather::Forgetting | Weather::Wide)
    }
}

/// The findings of a run.
pub(crate) struct Run {
    pub entries: Vec<Entry>,
    pub states: States,
    /// A rule that was broken in plain sight: one outcome each, in time, versions used once.
    pub broken: Option<String>,
    pub events: u64,
    pub outcomes: u64,
    pub unknown: u64,
    /// Operations that failed and changed no record.
    pub failed: u64,
    /// Plans that moved a position, or were cancelled; or horizons that rose.
    pub plans_ended: u64,
    /// Records that stores forgot.
    pub purged: u64,
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
        guard: Guard,
    },
    Read {
        site: usize,
        life: u32,
        ticket: StoreTicket,
        key: Key,
    },
    Survey {
        site: usize,
        life: u32,
        ticket: StoreTicket,
        look: Box<Survey>,
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
    /// The oracle chooses the next epoch.
    Choose,
    /// The link between two members goes down.
    Flap,
    /// A member learns the epochs up to this one.
    Adopt {
        site: usize,
        life: u32,
        epoch: u64,
    },
}

struct Site {
    node: Option<Node>,
    life: u32,
    hlc: Arc<Hlc>,
    ceiling: u64,
    skew_ms: i64,
    store: Vec<Stored>,
    /// Promises that compactions have purged, and that a start may find in the log.
    log: Vec<Stored>,
    wake_us: u64,
    /// Of the epoch that is durable here.
    layout: Arc<Layout>,
    fence: Arc<Fence>,
}

/// The request that a client waits for.
struct Waiting {
    site: usize,
    start: u64,
    deadline: u64,
    operation: Operation,
    life: u32,
    /// At its member when it began.
    least: LeastSuccessor,
}

#[derive(Default)]
struct Client {
    left: u32,
    waiting: Option<Waiting>,
    /// The live version that it saw last.
    seen: Option<Version>,
}

pub(crate) struct World {
    now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<What>>,
    prng: Prng,
    topology: Arc<Topology>,
    sites: Vec<Site>,
    clients: Vec<Client>,
    ack: u32,
    copies: u32,
    is_wide: bool,
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
    /// Writes of unknown outcome: the entry, its bytes, and whether it leaves a live value.
    unknown: Vec<(usize, Option<Bytes>, bool)>,
    /// Versions that were read, and the bytes that were read under them.
    shown: Vec<(Version, Bytes)>,
    epochs: Option<Epochs>,
    /// Of a world that forgets.
    acts: Option<Acts>,
    effects: Vec<Effect>,
    written: Vec<(Version, u64)>,
}

impl World {
    pub(crate) fn run(ground: &Ground, seed: u64, weather: Weather) -> Run {
        let mut world = World::new(ground, seed, weather);
        // Comparisons go on for as long as the run does.
        let events_max = match weather {
            Weather::Forgetting | Weather::Wide => 500_000,
            Weather::Fair | Weather::Foul | Weather::Moving | Weather::Restored => 50_000,
        };
        while let Some(Reverse((at, _, index))) = world.queue.pop() {
            world.now = at;
            let what = world.events[index].take().expect("an event happens once");
            world.happen(what);
            world.run.events += 1;
            if world.run.events > events_max || world.is_over() {
                break;
            }
        }
        world.finish()
    }

    fn new(ground: &Ground, seed: u64, weather: Weather) -> World {
        let mut prng = Prng::new(seed);
        let (topology, ring) = ground.draw(weather, &mut prng);
        let copies = u32::from(topology.copies());
        let is_foul = weather != Weather::Fair;
        let is_moving = matches!(weather, Weather::Moving | Weather::Restored);
        let foul = |drawn: u64| if is_foul { drawn } else { 0 };
        let epochs = match weather {
            Weather::Moving => Some(Epochs::founded(&topology)),
            Weather::Restored => Some(Epochs::restored(&topology)),
            Weather::Forgetting | Weather::Wide => Some(Epochs::forgetting(&topology)),
            Weather::Fair | Weather::Foul => None,
        };
        let members = topology.members().len();
        let acts = weather.forgets().then(|| Acts::draw(&mut prng, members));
        let layout = match &epochs {
            Some(epochs) => epochs.first_layout(),
            None => Layout::of_ring(&topology, &ring),
        };
        let layout = Arc::new(layout);
        let skew_ms = foul([0, 0, 2, 20, 200][prng.below(5) as usize]);
        let sites = (0..topology.members().len()).map(|_| Site {
            node: None,
            life: 0,
            hlc: Arc::new(Hlc::new(0, 0)),
            ceiling: 0,
            skew_ms: prng.below(2 * skew_ms + 1) as i64 - skew_ms as i64,
            store: Vec::new(),
            log: Vec::new(),
            wake_us: u64::MAX,
            layout: Arc::clone(&layout),
            fence: Arc::new(Fence::at(&layout)),
        });
        let sites = sites.collect();
        let doors = 1 + prng.below(topology.members().len() as u64);
        let mut world = World {
            now: 1_000_000,
            sequence: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            topology,
            sites,
            clients: (0..3)
                .map(|_| Client {
                    left: match weather {
                        Weather::Moving | Weather::Restored => 9,
                        Weather::Forgetting | Weather::Wide => 12,
                        Weather::Fair | Weather::Foul => 5,
                    },
                    ..Client::default()
                })
                .collect(),
            ack: (copies / 2 + 1 + u32::from(prng.chance(1, 20))).min(copies),
            copies,
            is_wide: weather == Weather::Wide,
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
                plans_ended: 0,
                purged: 0,
            },
            unknown: Vec::new(),
            shown: Vec::new(),
            epochs,
            acts,
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
        if is_moving || world.acts.is_some() {
            world.later(0, What::Choose);
        }
        world.flap();
        // A damaged copy holds horizons back until it is written over.
        let is_damaging = world.acts.is_none() || world.prng.chance(1, 4);
        if is_foul && is_damaging && copies > 2 && world.prng.chance(1, 4) {
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
        self.read_log(site);
        let wall_ms = self.wall_ms(site);
        let seed = self.prng.next_u64();
        let at = &mut self.sites[site];
        let newest = at.store.iter().map(|stored| stored.cell.version.hlc).max();
        at.life += 1;
        at.wake_us = u64::MAX;
        at.hlc = Arc::new(Hlc::new(at.ceiling.max(newest.unwrap_or(0)), wall_ms));
        if let Some(epochs) = &self.epochs {
            at.layout = Arc::new(epochs.layout_at_start(at.layout.epoch()));
            at.fence = Arc::new(Fence::at(&at.layout));
        }
        let me = MemberIndex(site as u8);
        at.node = Some(Node::new(NodeConfig {
            fence: Arc::clone(&at.fence),
            origin: site as u32 + 1,
            hints: Arc::new(HintRoom::new(1 << 20)),
            is_keeper: true,
            load_patience_us: 2_000,
            compare: CompareConfig {
                bytes_per_second: if self.acts.is_some() { 1 << 40 } else { 0 },
                pause_us: self.acts.as_ref().map_or(200, |acts| acts.compare_pause_us),
                ..CompareConfig::default()
            },
            repair_wait_us: 2_000,
            seed,
            operations_max: 64,
            ..support::config(&at.layout, me, Arc::clone(&at.hlc))
        }));
        if self.acts.is_some() {
            // Comparisons begin after a link that came up.
            for member in (0..self.sites.len()).filter(|member| *member != site) {
                let member = MemberIndex(member as u8);
                let event = Box::new(Event::Link {
                    member,
                    is_up: true,
                });
                self.later(1, What::Deliver { to: site, event });
            }
        }
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
                    let result = look(&self.sites[site].store, &key);
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
                // A write that a crash caught on its way to the disk is there, or not. While
                // members forget, it is not once they have counted what is there.
                let is_counted = self.acts.is_some() && self.sites[site].node.is_some();
                if is_old && (self.prng.chance(1, 2) || is_counted) {
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
                    let cells = page(&self.sites[site].store, &start, end.as_ref());
                    let result = Ok((cells, None));
                    self.step(site, Event::Paged { ticket, result });
                }
            }
            What::Survey {
                site,
                life,
                ticket,
                look,
            } => {
                if self.sites[site].life == life {
                    let result = survey(&self.sites[site].store, &look);
                    self.step(site, Event::Surveyed { ticket, result });
                }
            }
            What::Covered { site, life, hlc } => {
                self.sites[site].ceiling = self.sites[site].ceiling.max(hlc);
                if self.sites[site].life == life {
                    self.step(site, Event::Covered { hlc });
                }
            }
            What::Next { client } => self.next(client),
            What::Choose => self.choose(),
            What::Flap => self.flap(),
            What::Adopt { site, life, epoch } => self.adopt(site, life, epoch),
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

    /// One event, and all effects of it.
    fn step(&mut self, site: usize, event: Event) {
        let now = Now {
            mono_us: self.now,
            wall_ms: self.wall_ms(site),
            wall_part_us: 0,
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
            Effect::Withdraw { .. } | Effect::Cancel { .. } => {}
            Effect::Learn { member, .. } => self.learn(site, member.at()),
            Effect::Loaded { epoch, partitions } => self.loaded(epoch, &partitions),
            // No store of this world drops damaged records.
            Effect::Repaired { .. } | Effect::RepairWaits { .. } => {}
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
                let delay = self.store_delay() + self.write_late_us(site);
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
                let delay = self.store_delay() + self.cover_late_us(site);
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
            Effect::Survey { ticket, look, .. } => {
                let delay = self.store_delay();
                let what = What::Survey {
                    site,
                    life,
                    ticket,
                    look,
                };
                self.later(delay, what);
            }
            other @ (Effect::Scanned { .. } | Effect::Told { .. }) => {
                self.broke(format!("{other:?} was not asked for"))
            }
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
        if self.loses_ask(ask) {
            return;
        }
        for delay in self.ways() {
            let delay = delay + self.ask_late_us(ask);
            let ask = ask.clone();
            let event = Box::new(Event::Asked { asker, stamp, ask });
            self.later(delay, What::Deliver { to: to.at(), event });
        }
    }

    fn send_answer(&mut self, from: usize, asker: Asker, answer: &Answer) {
        let member = MemberIndex(from as u8);
        if self.loses_answer(asker.member.at(), answer) {
            return;
        }
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
            *delay = if self.prng.chance(self.tail, 1_000) {
                200 + self.prng.below(8_000)
            } else {
                30 + self.prng.below(120)
            };
        }
        delays.into_iter().take(times)
    }
}
