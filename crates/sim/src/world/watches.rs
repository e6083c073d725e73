//! Clients that watch keys: they go on elsewhere with their tokens, and read slowly at times.
//!
//! ```text
//! look ─┬─ its member is away, or it wants to ─► WatchOpen at another one, from its token
//!       └─ all is well
//! Told ─► what it knows of each key ─► WatchMore, perhaps much later
//! rest ─► each watcher that is live knows what the last reads showed; then all are closed
//! ```
//!
//! Invariants
//! 1. What a client of a member that is gone was told counts no less.
//!
//! Not here: what a member tells (crates `node`, `watch`).
//! See: docs/promises.md.

use super::names::{key_name, value_number};
use super::state::{Happening, RunPhase, World};
use crate::check::Rule;
use crate::history::{ClientEnd, Wish};
use crate::plan::{KeyClass, RunPlan};
use crate::watchers::{OpenWatch, Watchers, WatchingClient};
use dendra_base::Prng;
use dendra_node::step::Event;
use dendra_watch::{From, Span, WatchEvent, WatchToken};

/// How often a client sees whether its watch goes on.
const LOOK_US: u64 = 200_000;
const HEARTBEAT_US: u64 = 2_000_000;
/// The longest time that a slow reader takes.
const SLOW_US: u64 = 1_500_000;

/// The watchers of a plan, with draws of their own.
pub(super) fn watchers(plan: &RunPlan) -> Watchers {
    let mut prng = Prng::named(plan.seed, "watchers");
    let keys = plan.shape.keys.len() as u64;
    let mut span = || match prng.below(3) {
        0 => Span::of_key(&key_name(prng.below(keys) as usize)),
        1 => Span {
            start: key_name(prng.below(keys) as usize),
            end: None,
        },
        _ => Span::of_prefix(b"key-"),
    };
    let count = plan.watches.map_or(0, |it| it.clients);
    let spans = (0..count).map(|_| span()).collect();
    Watchers::new(prng, spans)
}

impl World<'_> {
    pub(super) fn begin_watches(&mut self) {
        for watcher in 0..self.watchers.len() {
            let at_us = self.watchers.prng.below(self.plan.shape.chaos_us);
            self.schedule.at(at_us, Happening::Watch { watcher });
        }
    }

    /// A client sees whether its watch goes on.
    pub(super) fn look_at_watch(&mut self, watcher: usize) {
        if matches!(self.phase, RunPhase::Rest | RunPhase::Over) {
            return;
        }
        let open = self.watchers.clients[watcher].open;
        let goes_on = open.filter(|it| {
            let member = &self.members[it.member];
            member.is_running()
                && member.incarnation == it.incarnation
                && self.cluster().contains(&it.member)
        });
        let wants_to_go = self.phase == RunPhase::Chaos && self.watchers.prng.chance(1, 12);
        if goes_on.is_none() || wants_to_go {
            self.watchers.clients[watcher].open = None;
            if let Some(left) = goes_on {
                let watch = left.number;
                self.give(left.member, left.lane, Event::WatchClose { watch });
            }
            self.watch_elsewhere(watcher);
        }
        self.schedule.after(LOOK_US, Happening::Watch { watcher });
    }

    fn watch_elsewhere(&mut self, watcher: usize) {
        let now_us = self.now_us();
        let can = |at: &usize| {
            let member = &self.members[*at];
            member.is_running() && member.paused_until_us <= now_us && !member.lanes.is_empty()
        };
        let running: Vec<usize> = self.cluster().into_iter().filter(can).collect();
        if running.is_empty() {
            return;
        }
        let prng = &mut self.watchers.prng;
        let member = running[prng.below(running.len() as u64) as usize];
        let lane = prng.below(self.members[member].lanes.len() as u64) as usize;
        self.watchers.opened += 1;
        let number = self.watchers.opened;
        let client = &mut self.watchers.clients[watcher];
        client.open = Some(OpenWatch {
            member,
            incarnation: self.members[member].incarnation,
            lane,
            number,
        });
        let from = match &client.token {
            Some(token) => From::Token(token.clone()),
            None => {
                client.known.clear();
                client.is_live = false;
                From::State
            }
        };
        let open = Event::WatchOpen {
            watch: number,
            span: client.span.clone(),
            from,
            heartbeat_us: HEARTBEAT_US,
        };
        self.give(member, lane, open);
        self.give(member, lane, Event::WatchMore { watch: number });
    }

    /// A member tells events.
    pub(super) fn watch_is_told(
        &mut self,
        (member, lane, number): (usize, usize, u64),
        events: &[WatchEvent],
        token: Option<WatchToken>,
        is_over: bool,
    ) {
        let incarnation = self.members[member].incarnation;
        let teller = OpenWatch {
            member,
            incarnation,
            lane,
            number,
        };
        self.watchers.events += events.len() as u64;
        let mut clients = self.watchers.clients.iter_mut();
        let Some(client) = clients.find(|client| client.open == Some(teller)) else {
            return;
        };
        let wrong: Vec<String> = events
            .iter()
            .filter_map(|it| client.take(it, value_number).err())
            .collect();
        client.token = token.or(client.token.take());
        if is_over {
            client.open = None;
        } else {
            let prng = &mut self.watchers.prng;
            let is_slow = self.phase == RunPhase::Chaos && prng.chance(1, 8);
            let pause_us = prng.below(if is_slow { SLOW_US } else { 2_000 });
            self.give_later(member, lane, pause_us, Event::WatchMore { watch: number });
        }
        if !self.has_lost_records() {
            for what in wrong {
                self.violate(Rule::Watch, what);
            }
        }
    }

    /// An operator accepted that records are lost: keys go back then.
    fn has_lost_records(&self) -> bool {
        let town = self.town.as_ref();
        town.is_some_and(|town| !town.loss.taken.is_empty())
    }

    /// The last reads are done: each watcher knows what they showed. Then all of them leave.
    pub(super) fn judge_watches(&mut self) {
        let clients = std::mem::take(&mut self.watchers.clients);
        let is_whole = self.cluster().iter().all(|&at| {
            let member = &self.members[at];
            member.is_running() && !member.is_rotten && !member.is_lost
        });
        for client in &clients {
            if let Some(open) = client.open
                && self.members[open.member].incarnation == open.incarnation
                && self.members[open.member].is_running()
            {
                let watch = open.number;
                self.give(open.member, open.lane, Event::WatchClose { watch });
            }
            if is_whole && !self.has_lost_records() {
                self.judge_watch(client);
            }
        }
    }

    fn judge_watch(&mut self, client: &WatchingClient) {
        if client.open.is_none() || !client.is_live {
            let what = format!(
                "the watch of {:?} is not live: {:?}",
                client.span, client.open
            );
            return self.violate(Rule::Watch, what);
        }
        for (key, class) in self.plan.shape.keys.iter().enumerate() {
            let name = key_name(key);
            if *class != KeyClass::Strong || !client.span.has(&name) {
                continue;
            }
            let reads = self.history.iter().rev().filter(|op| op.key == key);
            let mut reads = reads.filter(|op| op.wish == Wish::Get && op.begun_us >= self.reads_us);
            let shown = match reads.find(|op| op.is_done()).map(|op| op.end) {
                Some(ClientEnd::Found(seen)) => Some((seen.version, seen.value)),
                Some(ClientEnd::Missing(_)) => None,
                _ => continue,
            };
            let known = client.known.get(&name).copied();
            if known != shown {
                let what =
                    format!("a watcher knows {known:?} of key {key}, a read shows {shown:?}");
                self.violate(Rule::Watch, what);
            }
        }
        let not_applied = self.history.iter().find(|op| {
            let told = (key_name(op.key), op.number);
            op.end == ClientEnd::NotApplied && client.told.contains(&told)
        });
        if let Some(op) = not_applied {
            let what = format!("a watcher was told what was not applied: {op:?}");
            self.violate(Rule::Watch, what);
        }
    }
}
