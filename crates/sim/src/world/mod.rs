//! The world: takes the next happening, lets it happen, and writes down the answers to clients.
//!
//! ```text
//! mod.rs       happenings, effects, the log of each member
//! state.rs     the parts of a run
//! names.rs     numbers of keys, values and tickets, as bytes
//! network.rs   messages, links
//! clients.rs   the wishes of clients and their answers
//! scans.rs     walks over many keys
//! meeting.rs   identities: starts, notes, images of disks
//! overload.rs  slow processors: mailboxes, and refusals there
//! doors.rs     crowds in front of loops, and the log and memory behind them; door_rules.rs
//! faults.rs    crashes, restarts, cuts, clocks, damage
//! seasons/     a soak of deletes: one world for simulated years
//! town/        members that come and go: stewards, the operator
//! watches.rs   clients that watch keys
//! ending.rs    calm, liveness, the last reads, the verdict
//! sums.rs      the numbers of runs
//! ```
//!
//! Invariants
//! 1. A member that is paused or down takes part in nothing.
//! 2. Every draw comes from the plan's seed, in the order of happenings.
//!
//! Not here: the rules (`check/`), decisions (crate `node`).
//! See: docs/verification.md.

mod clients;
mod door_rules;
mod door_store;
mod doors;
mod ending;
mod faults;
mod meeting;
mod names;
mod network;
mod overload;
mod scans;
pub mod seasons;
mod state;
mod sums;
mod town;
mod watches;

use crate::check::{Rule, Violation};
use crate::history::ClientOp;
use crate::limits::BEHIND_LEN;
use crate::member::MemberLoop;
use crate::pending::{PendingWrite, Waiter};
use crate::plan::RunPlan;
use crate::planted::ShellBug;
use crate::store::{Crash, Fate, PageRange, Store, StoreWrite};
use dendra_base::Now;
use dendra_base::peer::Readiness;
use dendra_base::{CellRef, Key, Space, Version};
use dendra_node::step::{Effect, Event, StoreFailure, StoreOutcome, StoreTicket};
pub use state::RunSetup;
use state::{Happening, RunPhase, World};
use std::collections::BTreeSet;
pub use sums::RunSums;

/// The bytes that a slice of a scrub reads, about.
const SCRUB_BYTES: u64 = 4 << 10;
/// Between two of them.
const SCRUB_PAUSE_US: u64 = 100_000;

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The answers that clients got.
    pub history: Vec<ClientOp>,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// The numbers of the run.
    pub sums: RunSums,
    /// The last least successor number.
    pub raised: u32,
    /// Stores may purge something in the end.
    pub purges: bool,
    /// A lowered replication factor gave copies back.
    pub narrows: bool,
    /// Bytes that were read to compare them, in the last life of each member.
    pub compared_bytes: u64,
    /// The longest time in which a client of a crowd with an address for itself got nothing, while
    /// others did.
    pub unanswered_us: u64,
    /// The least share of the time which a loop spent on reads of a crowd that went to clients that
    /// got an answer, in hundredths.
    pub useful_percent: Option<u64>,
    /// Hash of the trace; 0 when it was off.
    pub hash: u64,
}

/// Runs `plan` to its end.
pub fn run(plan: &RunPlan, setup: RunSetup) -> RunReport {
    let mut world = World::new(plan, setup);
    world.begin();
    while let Some(happening) = world.schedule.take() {
        world.happen(happening);
        if world.phase == RunPhase::Over || !world.violations.is_empty() {
            break;
        }
        if world.schedule.count() > plan.happenings_max() {
            let what = format!(
                "{} happenings and no end, in {:?}",
                plan.happenings_max(),
                world.phase
            );
            world.violate(Rule::NotAvailable, what);
        }
    }
    world.check_promises();
    let purges = world.newest().horizons().purge() > 0;
    let loss = world.town.as_ref().map(|town| &town.loss);
    let losses = loss.map_or((0, 0), |loss| {
        let ids: BTreeSet<u64> = loss.in_force.iter().map(|it| it.loss.id.0).collect();
        (ids.len() as u64, loss.taken.len() as u64)
    });
    let narrows = world.newest().narrowing().given_back().is_some();
    let compared_bytes = world.compared_bytes();
    let doors = world.door_counts();
    let (unanswered_us, useful_percent) = (world.unanswered_us, world.useful_percent);
    RunReport {
        sums: RunSums {
            operations: world.history.len() as u64,
            happenings: world.schedule.count(),
            plans: world.town.as_ref().map_or((0, 0), |town| town.plans),
            risen: world.town.as_ref().map_or(0, |town| town.risen),
            losses,
            watch_events: world.watchers.events,
            doors,
            searches: world.searches,
        },
        history: world.history,
        violations: world.violations,
        raised: match &world.town {
            Some(town) => town.record().least_successor().number(),
            None => 0,
        },
        purges,
        narrows,
        compared_bytes,
        unanswered_us,
        useful_percent,
        hash: world.trace.hash(),
    }
}

impl World<'_> {
    fn now_us(&self) -> u64 {
        self.schedule.now_us()
    }

    fn has_bug(&self, bug: ShellBug) -> bool {
        self.setup.bug == Some(bug)
    }

    fn violate(&mut self, rule: Rule, what: impl Into<String>) {
        let violation = Violation::new(rule, what);
        self.trace
            .line(self.schedule.now_us(), || format!("VIOLATION {violation}"));
        self.violations.push(violation);
    }

    /// The member to which the happening belongs, and its life; `None` = the world's own.
    fn owner(happening: &Happening) -> Option<(usize, Option<u64>)> {
        match happening {
            Happening::Turn {
                member,
                incarnation,
                ..
            }
            | Happening::Give {
                member,
                incarnation,
                ..
            }
            | Happening::Waited {
                member,
                incarnation,
                ..
            }
            | Happening::Commit {
                member,
                incarnation,
            }
            | Happening::Slice {
                member,
                incarnation,
            }
            | Happening::Scrub {
                member,
                incarnation,
            }
            | Happening::Sweep {
                member,
                incarnation,
            }
            | Happening::Notice {
                member,
                incarnation,
                ..
            }
            | Happening::Adopt {
                member,
                incarnation,
                ..
            }
            | Happening::Look {
                member,
                incarnation,
            }
            | Happening::NoteAgain {
                member,
                incarnation,
            }
            | Happening::Close {
                member,
                incarnation,
                ..
            }
            | Happening::LinkAgain {
                member,
                incarnation,
                ..
            }
            | Happening::End {
                member,
                incarnation,
            }
            | Happening::EndDoubted {
                member,
                incarnation,
            }
            | Happening::Asked {
                member,
                incarnation,
                ..
            }
            | Happening::Run {
                member,
                incarnation,
                ..
            }
            | Happening::SweepDoor {
                member,
                incarnation,
                ..
            }
            | Happening::Again {
                member,
                incarnation,
                ..
            }
            | Happening::Flushed {
                member,
                incarnation,
            } => Some((*member, Some(*incarnation))),
            Happening::Arrive(envelope) => Some((envelope.to, None)),
            Happening::Knocked { host, .. } => Some((*host, None)),
            _ => None,
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some((member, incarnation)) = World::owner(&happening) {
            let it = &self.members[member];
            if !it.is_running() || incarnation.is_some_and(|i| i != it.incarnation) {
                return;
            }
            if it.paused_until_us > self.now_us() {
                self.schedule.at(it.paused_until_us, happening);
                return;
            }
        }
        if let Some(happening) = self.has_time_for(happening) {
            self.happen_now(happening);
        }
    }

    fn happen_now(&mut self, happening: Happening) {
        match happening {
            Happening::Waited { happening, .. } => self.happen(*happening),
            Happening::Begin { client } => self.client_begins(client),
            Happening::Scan { scan } => self.scan_begins(scan),
            Happening::Watch { watcher } => self.look_at_watch(watcher),
            Happening::HangUp { number } => self.client_hangs_up(number),
            Happening::Arrive(envelope) => self.message_arrives(envelope),
            Happening::Turn { member, lane, .. } => self.turn(member, lane),
            Happening::Asked {
                member,
                lane,
                client,
                begin,
                ..
            } => self.asked(member, lane, client, *begin),
            Happening::Run { member, lane, .. } => self.run_entry(member, lane),
            Happening::SweepDoor { member, lane, .. } => self.sweep_door(member, lane),
            Happening::Again {
                member,
                lane,
                ticket,
                ..
            } => self.again(member, lane, ticket),
            Happening::Flushed { member, .. } => self.flushed(member),
            Happening::Give {
                member,
                lane,
                event,
                ..
            } => self.give(member, lane, *event),
            Happening::Commit { member, .. } => self.commit(member),
            Happening::Slice { member, .. } => self.slice(member),
            Happening::Scrub { member, .. } => self.scrub(member),
            Happening::Notice {
                member,
                peer,
                is_up,
                ..
            } => self.notice(member, peer, is_up),
            Happening::Fault { number } => self.fault_begins(number),
            Happening::Over { number } => self.fault_ends(number),
            Happening::Start {
                member,
                incarnation,
            } => self.start(member, incarnation),
            Happening::Image => self.take_image(),
            Happening::Restart { member } => self.restart(member),
            Happening::Restore => self.restore(),
            Happening::Sweep {
                member,
                incarnation,
            } => self.sweep(member, incarnation),
            Happening::Adopt {
                member,
                lane,
                layout,
                ..
            } => self.lane_adopts(member, lane, &layout),
            Happening::Look { member, .. } => self.steward_looks(member),
            Happening::NoteAgain { member, .. } => self.write_note_of_steward(member),
            Happening::Close { member, gone, .. } => self.close_links(member, gone),
            Happening::LinkAgain { member, peer, .. } => self.link_again(member, peer),
            Happening::End { member, .. } => self.end_for_ever(member),
            Happening::EndDoubted { member, .. } => self.end_doubted(member),
            Happening::Knock { joiner } => self.knocks(joiner),
            Happening::Knocked {
                joiner,
                host,
                frame,
            } => self.knocked(joiner, host, &frame),
            Happening::Answered { joiner, frame } => self.joiner_hears(joiner, &frame),
            Happening::Deed { number } => self.deed(number),
            Happening::Loss(step) => self.loss_step(step),
            Happening::Apply {
                member,
                draft,
                epoch,
            } => self.applies(member, draft, epoch),
            Happening::Operator => self.operator_looks(),
            Happening::Phase(phase) => self.enter(phase),
        }
    }

    /// Gives a loop an event now, carries out its effects, and sees to its next turn.
    fn give(&mut self, member: usize, lane: usize, event: Event) {
        let now = self.members[member].clock.now(self.now_us());
        self.trace.line(self.schedule.now_us(), || {
            format!("m{member}.{lane} {event:?}")
        });
        let is_tick = matches!(event, Event::Tick);
        if let Event::Begin {
            client,
            deadline_us,
            ..
        }
        | Event::Scan {
            client,
            deadline_us,
            ..
        } = &event
            && let Some(open) = self.members[member].lanes[lane].open.get_mut(client)
        {
            open.deadline_us = *deadline_us;
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.tell_readiness(member, lane, now, &mut effects);
        self.members[member].lanes[lane]
            .decider
            .step(now, event, &mut effects);
        let incarnation = self.members[member].incarnation;
        for effect in effects.drain(..) {
            if self.members[member].incarnation != incarnation {
                break;
            }
            self.trace.line(self.schedule.now_us(), || {
                format!("m{member}.{lane}   -> {effect:?}")
            });
            self.carry_out(member, lane, effect);
        }
        self.effects = effects;
        if self.members[member].incarnation == incarnation {
            self.submit(member);
            self.see_to_turn(member, lane, is_tick);
        }
    }

    /// Tells a loop the readiness of its store, when that is news.
    fn tell_readiness(&mut self, member: usize, lane: usize, now: Now, effects: &mut Vec<Effect>) {
        let pressure = self.pressure(member);
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let is_behind = match &it.lanes[lane].door {
            Some(door) => pressure.stop.is_some() || door.is_behind(now_us),
            None => it.queue.len() >= BEHIND_LEN || it.lanes[lane].waiting >= BEHIND_LEN,
        };
        let readiness = match it.store.as_ref().map(Store::readiness) {
            None | Some(Readiness::Ready) if is_behind => Readiness::Behind,
            readiness => readiness.unwrap_or_default(),
        };
        let is_strained =
            it.store.as_ref().is_some_and(Store::is_strained) || pressure.is_strained();
        let lane_of = &mut it.lanes[lane];
        if lane_of.pressed == (readiness, is_strained) {
            return;
        }
        lane_of.pressed = (readiness, is_strained);
        let event = Event::Pressed {
            readiness,
            is_strained,
        };
        self.trace.line(self.schedule.now_us(), || {
            format!("m{member}.{lane} {event:?}")
        });
        lane_of.decider.step(now, event, effects);
    }

    fn see_to_turn(&mut self, member: usize, lane: usize, was_tick: bool) {
        let now_us = self.now_us();
        let it = &self.members[member];
        let due = it.lanes[lane].decider.due_us();
        let due = due.map(|due_us| it.clock.when(due_us, now_us));
        let end = (!was_tick).then(|| now_us + self.prng.below(self.plan.shape.turn_us + 1));
        let current = self.members[member].lanes[lane].turn_us;
        let next = [due, end, current].into_iter().flatten().min();
        if next != current {
            self.members[member].lanes[lane].turn_us = next;
            let at_us = next.expect("it differs from the current one, and is not later");
            let incarnation = self.members[member].incarnation;
            self.schedule.at(
                at_us,
                Happening::Turn {
                    member,
                    lane,
                    incarnation,
                },
            );
        }
    }

    fn turn(&mut self, member: usize, lane: usize) {
        let it = &mut self.members[member];
        // A turn that was put off by an earlier one, or by a pause, finds another time noted.
        if it.lanes[lane]
            .turn_us
            .is_none_or(|turn_us| turn_us > self.schedule.now_us())
        {
            return;
        }
        it.lanes[lane].turn_us = None;
        self.give(member, lane, Event::Tick);
        self.check_deadlines(member, lane);
    }

    fn carry_out(&mut self, member: usize, lane: usize, effect: Effect) {
        match effect {
            Effect::Outcome {
                client,
                outcome,
                cell,
                ..
            } => {
                self.client_is_told(member, lane, client, outcome, cell);
            }
            Effect::Scanned {
                client,
                records,
                rest,
                failure,
            } => {
                self.client_is_shown(member, lane, client, records, rest, failure.is_none());
            }
            Effect::Told {
                watch,
                events,
                token,
                is_over,
            } => self.watch_is_told((member, lane, watch), &events, token, is_over),
            Effect::Reply { asker, answer } => self.reply(member, asker, &answer),
            Effect::Ask {
                member: peer,
                id,
                stamp,
                ask,
            } => {
                if let Some(peer) = self.machine_at(member, lane, peer) {
                    self.ask(member, lane, peer, id, stamp, ask);
                }
            }
            Effect::Withdraw { member: peer, ids } => {
                if let Some(peer) = self.machine_at(member, lane, peer) {
                    self.withdraw(member, lane, peer, &ids);
                }
            }
            effect @ (Effect::Learn { .. } | Effect::Loaded { .. }) => {
                self.loop_says(member, lane, effect);
            }
            Effect::Repaired { id } => self.repaired(member, id),
            Effect::RepairWaits { id, of } => {
                if let Some(store) = &self.members[member].store {
                    store.repair_waits(id, !of.is_empty());
                }
            }
            // Without a door every order is begun as soon as it is given.
            Effect::Cancel { tickets } => self.cancel_orders(member, lane, &tickets),
            Effect::Read {
                ticket,
                key,
                deadline_us,
            } => {
                let read = |world: &World<'_>| world.read_store(member, &key);
                self.answer_later(member, lane, deadline_us, read, |result| Event::Read {
                    ticket,
                    result,
                });
            }
            Effect::Page {
                ticket,
                start,
                end,
                is_reverse,
                bytes,
                deadline_us,
            } => {
                let range = PageRange {
                    start,
                    end,
                    is_reverse,
                    bytes,
                };
                let read = |store: &Store| store.page(&range);
                let read = |world: &World<'_>| world.of_store(member, read);
                self.answer_later(member, lane, deadline_us, read, |result| Event::Paged {
                    ticket,
                    result,
                });
            }
            Effect::Survey {
                ticket,
                look,
                deadline_us,
            } => {
                let look_at = |store: &Store| store.look(&look);
                let look_at = |world: &World<'_>| world.of_store(member, look_at);
                self.answer_later(member, lane, deadline_us, look_at, |result| {
                    Event::Surveyed { ticket, result }
                });
            }
            Effect::Write {
                ticket,
                key,
                cell,
                guard,
            } => {
                self.write(member, lane, ticket, StoreWrite { key, cell, guard });
            }
            Effect::Cover { hlc } => {
                self.members[member].covers.push((lane, hlc));
                self.begin_commit(member);
            }
        }
    }

    fn repaired(&mut self, member: usize, id: u64) {
        self.repair_ends(member, id);
        if let Some(store) = &self.members[member].store {
            store.repaired(id);
        }
    }

    /// What the store of a member says; one that is down says `Busy`.
    fn of_store<T>(
        &self,
        member: usize,
        ask: impl FnOnce(&Store) -> Result<T, StoreFailure>,
    ) -> Result<T, StoreFailure> {
        let store = self.members[member].store.as_ref();
        store.map_or(Err(StoreFailure::Busy), ask)
    }

    /// A write waits for the next commit.
    fn write(&mut self, member: usize, lane: usize, ticket: StoreTicket, write: StoreWrite) {
        if self.has_bug(ShellBug::AnswerBeforeSync) {
            let version = write.cell.version;
            let result = Ok(StoreOutcome::Applied { version });
            self.give_later(member, lane, 0, Event::Wrote { ticket, result });
            self.members[member].queue.push(PendingWrite {
                lane,
                waiter: Waiter::Nobody,
                write,
            });
        } else {
            let pending = PendingWrite {
                lane,
                waiter: Waiter::Loop(ticket),
                write,
            };
            if self.plan.overload.is_some() {
                return self.order(member, lane, pending);
            }
            self.members[member].queue.push(pending);
        }
        self.begin_commit(member);
    }

    fn give_later(&mut self, member: usize, lane: usize, delay_us: u64, event: Event) {
        let incarnation = self.members[member].incarnation;
        let event = Box::new(event);
        self.schedule.after(
            delay_us,
            Happening::Give {
                member,
                lane,
                incarnation,
                event,
            },
        );
    }

    /// The store answers a read: with the state of now or of later, after a drawn time.
    fn answer_later<T>(
        &mut self,
        member: usize,
        lane: usize,
        deadline_us: u64,
        read: impl Fn(&World<'_>) -> Result<T, StoreFailure>,
        event: impl FnOnce(Result<T, StoreFailure>) -> Event,
    ) {
        let read_us = self.plan.shape.read_us * self.members[member].slow_times;
        let delay_us = if self.prng.chance(1, 3) {
            self.prng.below(read_us + 1)
        } else {
            0
        };
        let now_us = self.now_us();
        let is_late = self.members[member].clock.now(now_us).mono_us >= deadline_us;
        let result = if is_late {
            Err(StoreFailure::Late)
        } else {
            read(self)
        };
        self.give_later(member, lane, delay_us, event(result));
    }

    fn read_store(
        &self,
        member: usize,
        key: &Key,
    ) -> Result<Option<dendra_base::Cell>, StoreFailure> {
        let it = &self.members[member];
        let Some(store) = &it.store else {
            return Err(StoreFailure::Busy);
        };
        let durable = match store.read(key) {
            Err(StoreFailure::Damaged) if self.has_bug(ShellBug::DamagedIsAbsent) => Ok(None),
            durable => durable,
        };
        if !self.has_bug(ShellBug::DirtyRead) {
            return durable;
        }
        let dirty = it.undurable(key);
        Ok(durable?
            .into_iter()
            .chain(dirty)
            .max_by_key(|cell| cell.version))
    }

    fn begin_commit(&mut self, member: usize) {
        let it = &mut self.members[member];
        if it.is_committing || !it.has_writes() {
            return;
        }
        it.is_committing = true;
        it.in_flight = std::mem::take(&mut it.queue);
        it.covers_in_flight = std::mem::take(&mut it.covers);
        if let Some((_, hlc)) = it.covers_in_flight.iter().max_by_key(|(_, hlc)| *hlc) {
            // As the server's: a note of its own, so that there is something to write.
            let key = Key::new(Space::Meta, b"clock ceiling");
            let version = Version {
                hlc: *hlc,
                origin: 0,
                rmw: 0,
            };
            let cell = CellRef::value(key.as_stored(), version, b"").to_owned();
            let guard = dendra_base::Guard::Newest;
            let write = StoreWrite { key, cell, guard };
            it.in_flight.push(PendingWrite {
                lane: 0,
                waiter: Waiter::Nobody,
                write,
            });
        }
        let sync_us = self.plan.shape.sync_us * it.slow_times;
        let incarnation = it.incarnation;
        let delay_us = 10 + self.prng.below(sync_us) + self.log_us(member);
        self.schedule.after(
            delay_us,
            Happening::Commit {
                member,
                incarnation,
            },
        );
    }

    fn commit(&mut self, member: usize) {
        let now_us = self.now_us();
        let is_unguarded = self.has_bug(ShellBug::GuardIgnored);
        let it = &mut self.members[member];
        it.is_committing = false;
        let now_ms = it.clock.now(now_us).wall_ms;
        let mut writes = it.writes_in_flight();
        if is_unguarded {
            writes
                .iter_mut()
                .for_each(|w| w.guard = dendra_base::Guard::Newest);
        }
        let store = it.store.as_mut().expect("a happening of a running member");
        for (_, hlc) in &it.covers_in_flight {
            store.raise_hlc_ceiling(*hlc);
        }
        let (fate, results) = store.commit(&writes, now_ms);
        if fate == Fate::Dead {
            self.ends_by_its_disk(member);
            return;
        }
        let done = std::mem::take(&mut it.in_flight);
        let bytes: usize = done.iter().map(PendingWrite::bytes).sum();
        let covered = std::mem::take(&mut it.covers_in_flight);
        let incarnation = it.incarnation;
        for (lane, hlc) in covered {
            self.give(member, lane, Event::Covered { hlc });
        }
        self.note_changes(member, done.iter().zip(&results));
        for (pending, result) in done.into_iter().zip(results) {
            if result.is_ok() && self.town.is_some() {
                self.members[member].note_delete(&pending.write);
            }
            match pending.waiter {
                Waiter::Nobody => {}
                Waiter::Loop(ticket) => {
                    let lane = pending.lane;
                    let event = Event::Wrote { ticket, result };
                    if let Some(door) = self.door(member, lane) {
                        door.release_order(ticket);
                        self.give_later(member, lane, 0, event);
                    } else {
                        self.give(member, lane, event);
                    }
                }
                Waiter::Steward => self.note_ends(member, result.is_ok()),
            }
        }
        debug_assert_eq!(
            self.members[member].incarnation, incarnation,
            "giving ends no life"
        );
        self.note_durable(member, bytes as u64);
        let delay_us = self.prng.below(2 * self.plan.shape.sync_us + 1);
        self.schedule.after(
            delay_us,
            Happening::Slice {
                member,
                incarnation,
            },
        );
        self.submit(member);
        self.begin_commit(member);
    }

    /// Notes what clients' keys were written, and tells the loops that wait for that.
    fn note_changes<'r>(
        &mut self,
        member: usize,
        done: impl Iterator<Item = (&'r PendingWrite, &'r Result<StoreOutcome, StoreFailure>)>,
    ) {
        let Some(changes) = self.watchers.changes.get(&member).cloned() else {
            return;
        };
        for (pending, result) in done {
            let stored_key = pending.write.key.as_stored();
            if let Ok(StoreOutcome::Applied { version }) = result
                && stored_key[0] == Space::User.byte()
            {
                changes.note(pending.write.key.raw(), *version);
            }
        }
        for lane in changes.take_waiting() {
            self.give_later(member, lane, 0, Event::Changed);
        }
    }

    fn slice(&mut self, member: usize) {
        let budget_bytes = 1 + self.prng.below(16 << 10) as usize;
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let now = it.clock.now(now_us);
        let ended_ms = it.ended_ms(now);
        let store = it.store.as_mut().expect("a happening of a running member");
        if store.maintain(budget_bytes, now.wall_ms, ended_ms) == Fate::Dead {
            self.ends_by_its_disk(member);
        }
    }

    /// A slice of a scrub, and the fate of the damage. Draws nothing: runs without damage are not
    /// changed by it.
    fn scrub(&mut self, member: usize) {
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let now = it.clock.now(now_us);
        let ended_ms = it.ended_ms(now);
        let store = it.store.as_mut().expect("a happening of a running member");
        let is_dead = store.scrub(SCRUB_BYTES, now.wall_ms) == Fate::Dead
            || store.maintain(SCRUB_BYTES as usize, now.wall_ms, ended_ms) == Fate::Dead;
        if is_dead {
            self.ends_by_its_disk(member);
            return;
        }
        let spans = store.lost_spans();
        if spans != it.lost {
            it.lost.clone_from(&spans);
            self.give(member, 0, Event::Lost { spans });
        }
        self.scrub_later(member);
    }

    pub(crate) fn scrub_later(&mut self, member: usize) {
        let incarnation = self.members[member].incarnation;
        let next = Happening::Scrub {
            member,
            incarnation,
        };
        self.schedule.after(SCRUB_PAUSE_US, next);
    }

    /// The power failed at an operation of the disk, or the log is unsure: either way the process
    /// is no more.
    fn ends_by_its_disk(&mut self, member: usize) {
        let how = if self.prng.chance(1, 4) {
            Crash::Killed
        } else {
            Crash::PowerLoss
        };
        let down_us = 1_000 + self.prng.below(500_000);
        self.crash(member, how, down_us);
    }

    fn lane(&mut self, member: usize, lane: usize) -> &mut MemberLoop {
        &mut self.members[member].lanes[lane]
    }
}
