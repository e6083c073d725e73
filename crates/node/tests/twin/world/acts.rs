//! Acts of a world that forgets: a burst of operations, and then quiet while horizons rise.
//!
//! ```text
//! act      troubles are drawn ─► a few operations ─► quiet for up to nine epochs ─► the next act
//! trouble  deaf     answers to one coordinator are lost, most of them or all confirmations: its
//!                   operations last until their deadlines
//!          narrow   proposals reach few acceptors          thin    writes reach few owners
//!          slow     writes of one store take epochs        covers  one clock waits for its ceiling
//!          late     proposals and writes come epochs later
//! last     quiet, and each client reads, through any member
//! ```
//!
//! Troubles last through the quiet after their operations: horizons must wait for the leftovers of
//! an earlier act. Links go down and come up at any time, so that hints are delivered, and a
//! comparison whose frame was lost is repeated.
//!
//! Not here: which epoch is chosen (`epochs.rs`), which records may go (`store.rs`).

use super::store::purge;
use super::{What, World};
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Prng, Space};
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;

/// How often a compaction meets a record that may go, in eighths.
#[derive(Clone, Copy, Default)]
struct Taste {
    records: u64,
    promises: u64,
}

/// Which answers a coordinator does not get.
#[derive(Clone, Copy)]
enum Deaf {
    /// Four of five.
    Most,
    /// Those that confirm a write or accept a proposal.
    Confirmations,
}

/// See the module.
pub(super) struct Acts {
    /// Operations that may begin in this act.
    begins: u32,
    /// Clients rest until the chain has this epoch, or until this time.
    quiet: Option<(u64, u64)>,
    is_last: bool,
    tastes: Vec<Taste>,
    deaf: Option<(usize, Deaf)>,
    slow_store: Option<usize>,
    slow_covers: Option<usize>,
    /// Of 1,000 proposals, writes, and both.
    narrow: u64,
    thin: u64,
    late: u64,
    /// Of the whole run: the longest time until a member hears of an epoch, between two
    /// comparisons, and between two links that go down.
    late_us: u64,
    pub(super) compare_pause_us: u64,
    flap_us: u64,
}

impl Acts {
    pub(super) fn draw(prng: &mut Prng, members: usize) -> Acts {
        let mut one_of = |of: [u64; 3]| of[prng.below(3) as usize];
        Acts {
            begins: 0,
            quiet: None,
            is_last: false,
            tastes: vec![Taste::default(); members],
            deaf: None,
            slow_store: None,
            slow_covers: None,
            narrow: 0,
            thin: 0,
            late: 0,
            late_us: one_of([800, 2_000, 8_000]),
            compare_pause_us: one_of([300, 1_000, 2_000]),
            flap_us: one_of([10_000, 40_000, 120_000]),
        }
    }

    pub(super) fn late_us(&self) -> u64 {
        self.late_us
    }

    /// The troubles of the next act.
    fn begin(&mut self, prng: &mut Prng) {
        let members = self.tastes.len() as u64;
        for taste in &mut self.tastes {
            let eighths = [0, 1, 8, 8];
            taste.records = eighths[prng.below(4) as usize];
            taste.promises = eighths[prng.below(4) as usize];
        }
        let mut some_site = |often: u64| {
            let site = prng.below(members) as usize;
            prng.chance(often, 12).then_some(site)
        };
        let deaf = some_site(5);
        self.slow_store = some_site(3);
        self.slow_covers = some_site(2);
        let how = [Deaf::Most, Deaf::Confirmations][prng.below(2) as usize];
        self.deaf = deaf.map(|site| (site, how));
        let mut of_1_000 = |of: [u64; 4]| of[prng.below(4) as usize];
        self.narrow = of_1_000([0, 0, 300, 700]);
        self.thin = of_1_000([0, 0, 100, 400]);
        self.late = of_1_000([0, 0, 30, 150]);
        self.begins = 1 + prng.below(5) as u32;
    }
}

impl World {
    /// Does a client rest, and how long until it looks again? Else it begins an operation.
    pub(super) fn rest(&mut self, client: usize) -> Option<u64> {
        const AGAIN_US: u64 = 1_000;
        let is_last = self.clients[client].left == 1;
        let are_others_ready = self.clients.iter().all(|client| client.left <= 1);
        let epoch = self.epochs.as_ref()?.last().epoch();
        let acts = self.acts.as_mut()?;
        if let Some((quiet_epoch, quiet_us)) = acts.quiet {
            if epoch < quiet_epoch && self.now < quiet_us {
                return Some(AGAIN_US);
            }
            acts.quiet = None;
            acts.begin(&mut self.prng);
            if acts.is_last {
                (acts.deaf, acts.narrow, acts.thin, acts.late) = (None, 0, 0, 0);
            } else if self.prng.chance(1, 8) {
                let site = self.any_site();
                let delay = self.prng.below(20_000);
                self.later(delay, What::Crash { site });
            }
            return Some(AGAIN_US);
        }
        if acts.is_last {
            return None;
        }
        let epochs = match (is_last, acts.begins) {
            (true, _) if !are_others_ready => return Some(AGAIN_US),
            (true, _) => {
                acts.is_last = true;
                8
            }
            (false, 0) => self.prng.below(10),
            (false, _) => {
                acts.begins -= 1;
                return None;
            }
        };
        let longest_us = 20_000 * (epochs + 1);
        acts.quiet = Some((epoch + epochs, self.now + longest_us));
        Some(AGAIN_US)
    }

    /// A store compacts, as it likes to.
    pub(super) fn compact(&mut self, site: usize) {
        let now_ms = self.wall_ms(site);
        let Some(acts) = self.acts.as_ref().filter(|_| self.prng.chance(1, 2)) else {
            return;
        };
        let (taste, prng) = (acts.tastes[site], &mut self.prng);
        let at = &mut self.sites[site];
        let meets = |space| match space {
            Space::Protocol => prng.chance(taste.promises, 8),
            _ => prng.chance(taste.records, 8),
        };
        let horizons = at.layout.horizons();
        let copies = at.layout.copies_to_purge();
        let (store, log) = (&mut at.store, &mut at.log);
        self.run.purged += purge(store, log, horizons, copies, now_ms, meets);
    }

    /// A store starts: its log brings some promises up again that compactions have purged.
    pub(super) fn read_log(&mut self, site: usize) {
        let prng = &mut self.prng;
        let at = &mut self.sites[site];
        let log = at.log.drain(..);
        at.store.extend(log.filter(|_| prng.chance(1, 2)));
    }

    /// Is this question lost by a trouble of the act?
    pub(super) fn loses_ask(&mut self, ask: &Ask) -> bool {
        let Some(acts) = &self.acts else {
            return false;
        };
        let of_1_000 = match ask {
            Ask::Accept { .. } => acts.narrow,
            Ask::Write { .. } => acts.thin,
            _ => 0,
        };
        of_1_000 > 0 && self.prng.chance(of_1_000, 1_000)
    }

    /// Is this answer lost by a trouble of the act?
    pub(super) fn loses_answer(&mut self, to: usize, answer: &Answer) -> bool {
        let deaf = self.acts.as_ref().and_then(|acts| acts.deaf);
        let Some((_, how)) = deaf.filter(|(site, _)| *site == to) else {
            return false;
        };
        let is_confirmation = matches!(answer, Answer::Written(_) | Answer::Accepted);
        match how {
            Deaf::Confirmations => is_confirmation,
            Deaf::Most => {
                let is_of_operation = matches!(
                    answer,
                    Answer::Cell(_)
                        | Answer::Same
                        | Answer::Promised { .. }
                        | Answer::Outbid { .. }
                );
                (is_confirmation || is_of_operation) && self.prng.chance(4, 5)
            }
        }
    }

    /// How long an operation at this member may last at most.
    pub(super) fn patience_us(&mut self, site: usize) -> u64 {
        let Some(acts) = &self.acts else {
            return 20_000;
        };
        let is_deaf = acts.deaf.is_some_and(|(deaf, _)| deaf == site);
        if self.prng.chance(if is_deaf { 2 } else { 1 }, 3) {
            400_000
        } else {
            20_000
        }
    }

    /// How much longer a question, a write, or the ceiling of a clock takes in this act.
    pub(super) fn ask_late_us(&mut self, ask: &Ask) -> u64 {
        let is_change = matches!(ask, Ask::Accept { .. } | Ask::Write { .. });
        let late = self.acts.as_ref().map_or(0, |acts| acts.late);
        if is_change && late > 0 && self.prng.chance(late, 1_000) {
            self.prng.below(300_000)
        } else {
            0
        }
    }

    pub(super) fn write_late_us(&mut self, site: usize) -> u64 {
        let slow = self.acts.as_ref().and_then(|acts| acts.slow_store);
        if slow == Some(site) && self.prng.chance(1, 4) {
            self.prng.below(250_000)
        } else {
            0
        }
    }

    pub(super) fn cover_late_us(&mut self, site: usize) -> u64 {
        let slow = self.acts.as_ref().and_then(|acts| acts.slow_covers);
        if slow == Some(site) && self.prng.chance(1, 2) {
            self.prng.below(250_000)
        } else {
            0
        }
    }

    /// The link between two members goes down, and comes up after a while.
    pub(super) fn flap(&mut self) {
        let Some(flap_us) = self.acts.as_ref().map(|acts| acts.flap_us) else {
            return;
        };
        let next = 1_000 + self.prng.below(2 * flap_us);
        self.later(next, What::Flap);
        let (a, b) = (self.any_site(), self.any_site());
        if a == b {
            return;
        }
        let down_us = 50 + self.prng.below(3_000);
        for (to, member) in [(a, b), (b, a)] {
            let member = MemberIndex(member as u8);
            for (delay, is_up) in [(0, false), (down_us, true)] {
                let event = Box::new(Event::Link { member, is_up });
                let jitter = self.prng.below(50);
                self.later(delay + jitter, What::Deliver { to, event });
            }
        }
    }
}
