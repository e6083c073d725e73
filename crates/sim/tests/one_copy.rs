//! The world and its checkers with a decider that is trivially right, and with shells that are not.
//!
//! One member, one copy: the store's own order is the order. Only the shell can go wrong.

use dendra_base::Now;
use dendra_base::peer::{Condition, Operation};
use dendra_base::{CellRef, Guard, Key, Quorum, Version};
use dendra_node::step::{Effect, Event, StoreFailure, StoreOutcome};
use dendra_node::{Hlc, Known, Outcome, RefusedBy};
use dendra_sim::check::Rule;
use dendra_sim::decider::{Decider, DeciderSetup};
use dendra_sim::plan::{KeyClass, RunPlan};
use dendra_sim::planted::ShellBug;
use dendra_sim::trace::Tracing;
use dendra_sim::world::{RunReport, RunSetup, run};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every operation is one order to the own store.
struct OneCopy {
    hlc: Arc<Hlc>,
    origin: u32,
    open: BTreeMap<u64, Waiting>,
}

struct Waiting {
    deadline_us: u64,
    quorum: Quorum,
    /// A write, and whether it stores a value.
    write: Option<bool>,
}

impl OneCopy {
    fn deliver(setup: &DeciderSetup) -> Vec<Box<dyn Decider>> {
        let lane = |lane: usize| {
            Box::new(OneCopy {
                hlc: Arc::clone(&setup.hlc),
                origin: setup.origin + lane as u32,
                open: BTreeMap::new(),
            })
        };
        (0..setup.lanes)
            .map(|index| lane(index) as Box<dyn Decider>)
            .collect()
    }

    fn end(
        &mut self,
        client: u64,
        outcome: Outcome,
        cell: Option<dendra_base::Cell>,
        effects: &mut Vec<Effect>,
    ) {
        if self.open.remove(&client).is_some() {
            effects.push(Effect::Outcome {
                client,
                outcome,
                acks: 1,
                cell,
                account: None,
            });
        }
    }
}

impl Decider for OneCopy {
    fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Begin {
                client,
                key,
                operation,
                quorum,
                deadline_us,
            } => {
                let stored = Key::user(&key);
                let waiting = |write| Waiting {
                    deadline_us,
                    quorum,
                    write,
                };
                let (value, expiry_ms, condition) = match operation {
                    Operation::Get => {
                        self.open.insert(client, waiting(None));
                        effects.push(Effect::Read {
                            ticket: client,
                            key: stored,
                            deadline_us,
                        });
                        return;
                    }
                    Operation::Put {
                        value,
                        expiry_ms,
                        condition,
                    } => (Some(value), expiry_ms, condition),
                    Operation::Delete { condition } => (None, None, condition),
                    Operation::Touch { .. } => unreachable!("no client of this world touches"),
                };
                self.open.insert(client, waiting(Some(value.is_some())));
                let version = Version {
                    hlc: self.hlc.tick(now.wall_ms),
                    origin: self.origin,
                    rmw: 0,
                };
                // The write waits for its own ceiling, or it stands under one that is durable.
                if let Some(hlc) = self.hlc.needs_ceiling(now.wall_ms) {
                    effects.push(Effect::Cover { hlc });
                }
                let mut cell = match &value {
                    Some(value) => CellRef::value(stored.as_stored(), version, value).to_owned(),
                    None => CellRef::tombstone(stored.as_stored(), version).to_owned(),
                };
                cell.expiry_ms = expiry_ms;
                let guard = Guard::If(condition);
                let _: Condition = condition;
                effects.push(Effect::Write {
                    ticket: client,
                    key: stored,
                    cell,
                    guard,
                });
            }
            Event::Read { ticket, result } => {
                let outcome = match &result {
                    Ok(Some(cell)) if cell.as_ref().is_live(now.wall_ms) => Outcome::Found {
                        version: cell.version,
                        expiry_ms: cell.expiry_ms,
                    },
                    Ok(_) => Outcome::Missing,
                    Err(_) => Outcome::DeadlinePassed,
                };
                self.end(ticket, outcome, result.ok().flatten(), effects);
            }
            Event::Wrote { ticket, result } => {
                let Some(waiting) = self.open.get(&ticket) else {
                    return;
                };
                let is_put = waiting.write == Some(true);
                let outcome = match result {
                    Ok(StoreOutcome::Applied { version }) if is_put => Outcome::Stored { version },
                    Ok(StoreOutcome::Applied { version }) => Outcome::Deleted { version },
                    Ok(StoreOutcome::GuardFailed { current }) => {
                        Outcome::ConditionFailed { current }
                    }
                    Err(StoreFailure::Poisoned) => return,
                    Err(_) => Outcome::Overloaded {
                        refusal: RefusedBy::Requests,
                    },
                };
                self.end(ticket, outcome, None, effects);
            }
            Event::Tick => {
                let late: Vec<u64> = self
                    .open
                    .iter()
                    .filter(|(_, waiting)| waiting.deadline_us <= now.mono_us)
                    .map(|(client, _)| *client)
                    .collect();
                for client in late {
                    let waiting = &self.open[&client];
                    let outcome = Outcome::NotEnough {
                        got: 0,
                        needed: waiting.quorum.ack(),
                        from: waiting.quorum.from(),
                        known: Known::Unknown,
                        refused: None,
                    };
                    self.end(client, outcome, None, effects);
                }
            }
            Event::Covered { hlc } => self.hlc.cover(hlc),
            Event::Gone { .. }
            | Event::Scan { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::Link { .. }
            | Event::Alive { .. }
            | Event::Paged { .. }
            | Event::Surveyed { .. }
            | Event::Layout { .. }
            | Event::Lost { .. }
            | Event::Look { .. }
            | Event::WatchOpen { .. }
            | Event::WatchMore { .. }
            | Event::WatchClose { .. }
            | Event::Changed
            | Event::Throttle { .. }
            | Event::AcceptLoss { .. }
            | Event::Pressed { .. }
            | Event::Withdrawn { .. } => {}
            Event::Explain { .. } => unreachable!("no client of this world explains"),
        }
    }

    fn due_us(&self) -> Option<u64> {
        self.open.values().map(|waiting| waiting.deadline_us).min()
    }

    fn leftovers(&self) -> Option<String> {
        (!self.open.is_empty()).then(|| format!("{} operations", self.open.len()))
    }
}

/// Plans of two members without the second one, in the order of their seeds.
fn plans() -> impl Iterator<Item = RunPlan> {
    (0..)
        .map(RunPlan::draw)
        .filter(|plan| plan.shape.members == 2)
        .filter_map(|mut plan| {
            plan.shape.copies = 1;
            plan.without_last_member()
        })
        .map(|mut plan| {
            // One copy is the majority of one: every level is the default.
            plan.shape.keys.fill(KeyClass::Strong);
            plan.scans.clear();
            for planned in plan.clients.iter_mut().flatten() {
                planned.quorum = None;
                planned.ttl_ms = None;
            }
            plan
        })
}

fn run_with(plan: &RunPlan, bug: Option<ShellBug>) -> RunReport {
    let setup = RunSetup {
        make_deciders: OneCopy::deliver,
        bug,
        tracing: Tracing::Hashed,
    };
    run(plan, setup)
}

#[test]
fn one_copy_keeps_every_promise() {
    for plan in plans().take(150) {
        let report = run_with(&plan, None);
        assert!(
            report.violations.is_empty(),
            "seed {}: {:?}",
            plan.seed,
            report.violations
        );
    }
}

#[test]
fn a_seed_is_a_run_byte_for_byte() {
    for plan in plans().take(40) {
        let (first, second) = (run_with(&plan, None), run_with(&plan, None));
        assert_eq!(first.hash, second.hash, "seed {}", plan.seed);
        assert!(
            first.sums.happenings > 100,
            "seed {} does nothing",
            plan.seed
        );
    }
}

#[test]
fn shells_that_break_a_rule_are_found() {
    let expected = [
        (ShellBug::DirtyRead, 400),
        (ShellBug::AnswerBeforeSync, 400),
        (ShellBug::OldImage, 400),
        (ShellBug::GuardIgnored, 400),
    ];
    for (bug, seeds) in expected {
        let found = plans().take(seeds).find_map(|plan| {
            let report = run_with(&plan, Some(bug));
            Some((plan.seed, report.violations.first()?.rule))
        });
        let (seed, rule): (u64, Rule) =
            found.unwrap_or_else(|| panic!("{bug:?} is not found in {seeds} seeds"));
        println!("{bug:?}: seed {seed}, {rule:?}");
    }
}
