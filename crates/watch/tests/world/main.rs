//! Watches in a small cluster, by chance: writes that stop anywhere, members that begin anew, links
//! that are cut, owners that move, readers that are slow, clients that go on elsewhere.
//!
//! Checked on each event: a key's states rise (W1) and were confirmed (W3). Checked when all is
//! quiet: each client is live and knows what a read shows, with deletions and ends (W2, W4, W6).
//!
//! ```text
//! DENDRA_WATCH_FIRST=17 DENDRA_WATCH_SEEDS=1 DENDRA_WATCH_TRACE=1     shows the steps of one seed
//! ```

mod client;
mod model;

use client::Client;
use dendra_base::{Now, Prng};
use dendra_watch::{Fed, Hub, LookFound, Passed, Span, WatchEvent, Work};
use model::{Cluster, KEYS, WRITE_US_MAX, key, pick};
use std::fmt::Write as _;

const HEARTBEAT_US: u64 = 300_000;

/// An order of a hub, perhaps with its answer: that was found when the order came.
enum Open {
    Ask(Work, Option<Fed>),
    Look(Work, Option<Option<LookFound>>),
    Page(Work, Option<Passed>),
}

/// A node, with the clients that are connected to it.
struct Server {
    hub: Hub,
    links: Vec<bool>,
    open: Vec<Open>,
    /// By the id of its watch.
    clients: Vec<(u64, usize)>,
}

struct World {
    seed: u64,
    prng: Prng,
    now: Now,
    cluster: Cluster,
    servers: Vec<Server>,
    clients: Vec<Client>,
    ids: u64,
    /// Kinds of faults: with more of them owners move more often.
    faults: u64,
    trace: String,
}

/// What happened in a run.
#[derive(Default, Debug)]
struct Counts {
    events: usize,
    resets: usize,
    resumed: usize,
}

impl World {
    fn new(seed: u64, has_faults: bool) -> World {
        let mut prng = Prng::named(seed, "watch");
        let members = 3 + pick(&mut prng, 3);
        let copies = [1, 3, 3, members.min(5)][pick(&mut prng, 4)];
        // Few changes are remembered: cursors get lost.
        let changes_bytes = if has_faults { 4_000 } else { 1 << 20 };
        let cluster = Cluster::new((members, copies), changes_bytes, &mut prng);
        let server = || Server {
            hub: Hub::new(cluster.owners(), WRITE_US_MAX),
            links: vec![false; members],
            open: Vec::new(),
            clients: Vec::new(),
        };
        let mut world = World {
            seed,
            servers: vec![server(), server()],
            now: Now {
                mono_us: 1_000_000,
                wall_ms: 1_700_000_000_000,
                wall_part_us: 0,
            },
            clients: Vec::new(),
            ids: 0,
            faults: 6 + 6 * (seed % 3),
            trace: String::new(),
            cluster,
            prng,
        };
        for server in 0..2 {
            for member in 0..members {
                world.link(server, member, true);
            }
        }
        world
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if std::env::var_os("DENDRA_WATCH_TRACE").is_some() {
            let _ = writeln!(self.trace, "{} {}", self.now.mono_us / 1_000, what());
        }
    }

    fn pass_time(&mut self, us: u64) {
        self.now.mono_us += us;
        self.now.wall_ms = 1_700_000_000_000 + self.now.mono_us / 1_000;
    }

    fn link(&mut self, server: usize, member: usize, is_up: bool) {
        self.note(|| format!("link {server}-{member} {is_up}"));
        let mut work = Vec::new();
        let at = &mut self.servers[server];
        at.links[member] = is_up;
        // Answers over a lost link do not come.
        at.open.retain(|open| {
            !matches!(open, Open::Ask(Work::Ask { source, .. }, _) if source.0 as usize == member)
        });
        let source = dendra_watch::FeedId(u32::try_from(member).unwrap_or(0));
        at.hub.link(self.now, source, is_up, &mut work);
        self.take(server, work);
    }

    /// Takes orders. Half of the answers are found at once, and told later.
    fn take(&mut self, server: usize, work: Vec<Work>) {
        for work in work {
            let is_early = self.prng.chance(1, 2);
            let open = match &work {
                Work::Ask {
                    source, question, ..
                } => {
                    let early = is_early.then(|| self.cluster.feed(self.now, *source, question));
                    Open::Ask(work, early.flatten())
                }
                Work::Look { key, is_wide } => {
                    let early = is_early.then(|| self.cluster.look(&mut self.prng, key, *is_wide));
                    Open::Look(work, early)
                }
                Work::Page { span, .. } => {
                    let early = is_early.then(|| self.cluster.page(&mut self.prng, span));
                    Open::Page(work, early)
                }
                Work::Tell {
                    watch,
                    events,
                    token,
                    is_over,
                } => {
                    self.told(server, *watch, events.clone(), token.clone(), *is_over);
                    continue;
                }
            };
            self.servers[server].open.push(open);
        }
    }

    fn told(
        &mut self,
        server: usize,
        watch: u64,
        events: Vec<WatchEvent>,
        token: Option<dendra_watch::WatchToken>,
        is_over: bool,
    ) {
        self.note(|| format!("tell {watch} {events:?} {token:?}"));
        let clients = &mut self.servers[server].clients;
        let at = clients.iter().position(|(id, _)| *id == watch);
        let at = at.expect("a watch that was opened and not closed");
        let client = clients[at].1;
        if is_over {
            clients.swap_remove(at);
        }
        let confirmed = &self.cluster.confirmed;
        if let Err(why) = self.clients[client].told(events, token, confirmed) {
            self.fail(&format!("{why}, client {client}"));
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {}: {why}\n{}", self.seed, self.trace);
    }

    fn open(&mut self, server: usize, client: usize) {
        self.ids += 1;
        let id = self.ids;
        self.servers[server].clients.push((id, client));
        let from = self.clients[client].from();
        self.note(|| format!("open {id} at {server} of client {client} {from:?}"));
        let span = self.clients[client].span.clone();
        let mut work = Vec::new();
        let hub = &mut self.servers[server].hub;
        hub.open(self.now, id, span, &from, HEARTBEAT_US, &mut work);
        self.take(server, work);
    }

    fn is_connected(&self, client: usize) -> bool {
        let mut all = self.servers.iter().flat_map(|server| &server.clients);
        all.any(|(_, at)| *at == client)
    }

    fn more(&mut self, server: usize, at: usize) {
        let id = self.servers[server].clients[at].0;
        let mut work = Vec::new();
        self.servers[server].hub.more(self.now, id, &mut work);
        self.take(server, work);
    }

    fn tick(&mut self, server: usize) {
        let mut work = Vec::new();
        self.servers[server].hub.tick(self.now, &mut work);
        self.take(server, work);
    }

    /// One order is answered.
    fn answer(&mut self, server: usize, at: usize, is_late: bool) {
        let open = self.servers[server].open.swap_remove(at);
        let mut work = Vec::new();
        let hub = &mut self.servers[server].hub;
        match open {
            Open::Ask(order, early) => {
                let Work::Ask {
                    source,
                    id,
                    question,
                } = &order
                else {
                    return;
                };
                let is_linked = self.servers[server].links[source.0 as usize];
                let is_up = self.cluster.members[source.0 as usize].is_up;
                let fed = if !is_linked || !is_up {
                    Some(Fed::Failed)
                } else if is_late {
                    let last = || self.cluster.feed_at_last(self.now, *source, question);
                    Some(early.unwrap_or_else(last))
                } else {
                    early.or_else(|| self.cluster.feed(self.now, *source, question))
                };
                match fed {
                    None => self.servers[server].open.push(Open::Ask(order, None)),
                    Some(fed) => {
                        let hub = &mut self.servers[server].hub;
                        hub.fed(self.now, *source, *id, &fed, &mut work);
                        let (source, fed) = (*source, fed.clone());
                        self.note(|| format!("fed {server} {source:?} {fed:?}"));
                    }
                }
            }
            Open::Look(order, early) => {
                let Work::Look { key, is_wide } = &order else {
                    return;
                };
                let (cluster, prng) = (&mut self.cluster, &mut self.prng);
                let found = early.unwrap_or_else(|| cluster.look(prng, key, *is_wide));
                hub.looked(self.now, key, &found, &mut work);
                self.note(|| format!("looked {server} {key:?} {is_wide} {found:?}"));
            }
            Open::Page(order, early) => {
                let Work::Page {
                    watch, id, span, ..
                } = &order
                else {
                    return;
                };
                let passed = early.unwrap_or_else(|| self.cluster.page(&mut self.prng, span));
                hub.passed(self.now, (*watch, *id), &passed, &mut work);
                self.note(|| format!("passed {server} {watch} {span:?} {passed:?}"));
            }
        }
        self.take(server, work);
    }

    fn fault(&mut self) {
        let member = pick(&mut self.prng, self.cluster.members.len());
        let server = pick(&mut self.prng, 2);
        match self.prng.below(self.faults) {
            0 => {
                self.note(|| format!("restart {member}"));
                self.cluster.restart(member);
                for server in 0..2 {
                    let was_up = self.servers[server].links[member];
                    self.link(server, member, false);
                    self.link(server, member, was_up);
                }
            }
            1 | 2 => {
                let is_up = self.servers[server].links[member];
                self.link(server, member, !is_up);
            }
            3 => {
                let is_up = &mut self.cluster.members[member].is_up;
                *is_up = !*is_up;
                let is_up = *is_up;
                self.note(|| format!("member {member} up: {is_up}"));
            }
            4 | 6..=11 if self.cluster.members.iter().all(|member| member.is_up) => {
                self.cluster.move_row(&mut self.prng);
                let owners = self.cluster.owners();
                self.note(|| format!("moved {owners:?}"));
                for server in 0..2 {
                    let mut work = Vec::new();
                    let hub = &mut self.servers[server].hub;
                    hub.adopt(self.now, owners.clone(), &mut work);
                    self.take(server, work);
                }
            }
            _ => self.hang_up(server),
        }
    }

    fn hang_up(&mut self, server: usize) {
        if self.servers[server].clients.is_empty() {
            return;
        }
        let at = pick(&mut self.prng, self.servers[server].clients.len());
        let (id, client) = self.servers[server].clients.swap_remove(at);
        self.note(|| format!("client {client} leaves {server}"));
        let gone = &mut self.servers[server];
        gone.hub.close(id);
        let other = pick(&mut self.prng, 2);
        self.open(other, client);
    }

    fn step(&mut self, has_faults: bool) {
        let server = pick(&mut self.prng, 2);
        match self.prng.below(20) {
            0..=1 => {
                let us = self.prng.below(60_000);
                self.pass_time(us);
                self.tick(server);
            }
            2..=3 => self.cluster.begin_write(&mut self.prng, self.now),
            4..=8 => self.cluster.replicate(&mut self.prng, self.now),
            9..=15 => {
                let open = self.servers[server].open.len();
                if open > 0 {
                    let at = pick(&mut self.prng, open);
                    let is_late = self.prng.chance(1, 4);
                    self.answer(server, at, is_late);
                }
            }
            16..=17 => {
                let clients = self.servers[server].clients.len();
                if clients > 0 {
                    let at = pick(&mut self.prng, clients);
                    self.more(server, at);
                }
            }
            18 if has_faults && self.prng.chance(1, 4) => self.fault(),
            _ => {
                for client in 0..self.clients.len() {
                    if !self.is_connected(client) {
                        self.open(server, client);
                    }
                }
            }
        }
    }

    /// All is mended, and no write is under way: some seconds later each client knows the truth.
    fn settle(&mut self) {
        for member in 0..self.cluster.members.len() {
            self.cluster.members[member].is_up = true;
            for server in 0..2 {
                if !self.servers[server].links[member] {
                    self.link(server, member, true);
                }
            }
        }
        self.cluster.finish_writes(&mut self.prng, self.now);
        for round in 0..400 {
            self.pass_time(20_000);
            for server in 0..2 {
                self.tick(server);
                let open = self.servers[server].open.len();
                for at in (0..open).rev() {
                    self.answer(server, at, round % 25 == 0);
                }
                for at in (0..self.servers[server].clients.len()).rev() {
                    self.more(server, at);
                }
            }
            for client in 0..self.clients.len() {
                if !self.is_connected(client) {
                    self.open(0, client);
                }
            }
        }
    }

    fn judge(&mut self) {
        for number in 0..KEYS {
            let key = key(number);
            let truth = self.cluster.truth(&key);
            let live = truth.filter(|cell| cell.as_ref().is_live(self.now.wall_ms));
            for (at, client) in self.clients.iter().enumerate() {
                let wanted = live.as_ref().filter(|_| client.span.has(&key));
                let wanted = wanted.map(|cell| cell.version);
                let known = client.values.get(&key).copied();
                if !client.is_live {
                    self.fail(&format!("Live: client {at} waits"));
                }
                if known != wanted {
                    let resets = client.resets;
                    let of = format!("client {at} and {key:?}, after {resets} resets");
                    self.fail(&format!("W2: {of}: {known:?}, and a read {wanted:?}"));
                }
            }
        }
    }
}

fn run(seed: u64, counts: &mut Counts) {
    let has_faults = !seed.is_multiple_of(4);
    let mut world = World::new(seed, has_faults);
    for at in 0..4 {
        let span = match pick(&mut world.prng, 3) {
            0 => Span::of_prefix(b""),
            1 => Span::of_prefix(b"k0"),
            _ => Span::of_key(&key(3)),
        };
        world.clients.push(Client::new(span));
        world.open(at % 2, at);
    }
    for _ in 0..2_000 {
        world.step(has_faults);
    }
    world.settle();
    world.judge();
    for client in &world.clients {
        counts.events += client.events;
        counts.resets += client.resets;
        if !has_faults && client.resets > 0 {
            world.fail("Reset: there was no fault");
        }
    }
    counts.resumed += usize::try_from(world.ids).unwrap_or(0) - world.clients.len();
    for server in &mut world.servers {
        for (id, _) in server.clients.clone() {
            server.hub.close(id);
        }
        assert!(server.hub.is_empty() && server.hub.due_us().is_none());
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("DENDRA_WATCH_FIRST").unwrap_or(0);
    first..first + number("DENDRA_WATCH_SEEDS").unwrap_or(1_000)
}

#[test]
fn clients_of_watches_know_what_reads_show() {
    let mut counts = Counts::default();
    for seed in seeds() {
        run(seed, &mut counts);
    }
    println!("{counts:?}");
    assert!(counts.events > 0);
}
