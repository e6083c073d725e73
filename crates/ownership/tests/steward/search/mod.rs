//! A search for schedules in which changes of the members get stuck or go wrong. The network loses
//! and turns round messages, and disks lose notes. Members crash, hang and are lost. Operators
//! order at random, and joiners come at any moment.
//!
//! ```text
//! foul   losses, crashes, orders, joiners             FOUL_US
//! calm   all members are back, nothing new is ordered    until every plan has ended
//! ```
//!
//! Invariants
//! 1. The seed alone decides what happens.
//! 2. In calm weather plans end, members agree, and members that were removed end.
//!
//! Not here: the rules of each epoch (`checks.rs`), the drawn faults and orders (`weather.rs`).

mod checks;
mod weather;

use crate::town::url;
use dendra_base::Now;
use dendra_base::{ClusterVersions, Prng};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::epoch::chain::{ChainMessage, ChainNote, ChainPeer, VoteNote};
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus};
use dendra_ownership::limits::{EPOCH_VOTE_US, LOAD_BYTES_PER_SECOND_DEFAULT};
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::{MemberId, OwnerTable};
use dendra_ownership::steward::StewardStart;
use dendra_ownership::steward::face::ClusterOrder;
use dendra_ownership::steward::messages::{EnrolRequest, StewardMessage};
use dendra_ownership::steward::step::{StewardEffect, StewardEvent};
use dendra_ownership::{Member, Steward};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const FOUL_US: u64 = 20_000_000;
const END_US: u64 = 200_000_000;
const PARTITIONS: u16 = 8;
const TICK_US: u64 = EPOCH_VOTE_US / 4;
const FORGET_EVERY_US: u64 = 700_000;

/// The fault that is planted on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StewardFault {
    /// Loops say at once that they have loaded all that moves.
    LoadedUnread,
    /// No member tells how it does.
    NoProgress,
    /// Loops say at once that they confirm an epoch.
    ConfirmedUnseen,
}

/// Each fault, and within how many seeds it is found.
const FAULTS: [(StewardFault, u64); 3] = [
    (StewardFault::ConfirmedUnseen, 20),
    (StewardFault::LoadedUnread, 20),
    (StewardFault::NoProgress, 20),
];

#[derive(Debug)]
enum Coming {
    Letter(MemberId, MemberId, StewardMessage),
    Synced(MemberId, u64),
    Loaded(MemberId, u64, u64, Partition),
    Seen(MemberId, MemberId, bool),
    Tick(MemberId),
    Start(MemberId),
    Joiner(u64),
    Order,
    Trouble,
}

struct Machine {
    peer: ChainPeer,
    steward: Option<Steward>,
    epochs: BTreeMap<u64, Arc<EpochRecord>>,
    vote: Option<VoteNote>,
    unsynced: VecDeque<(u64, ChainNote)>,
    life: u64,
    /// The last epoch that its loops confirmed, and their clock when they first did.
    confirmed: (u64, u64),
    is_lost: bool,
    has_ended: bool,
}

/// Events that a long search must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Plan,
    Join,
    Removal,
    Replacement,
    Cancel,
    Crash,
    Refusal,
    Rise,
}

const REACHED: [Reached; 8] = [
    Reached::Plan,
    Reached::Join,
    Reached::Removal,
    Reached::Replacement,
    Reached::Cancel,
    Reached::Crash,
    Reached::Refusal,
    Reached::Rise,
];

struct Search {
    prng: Prng,
    fault: Option<StewardFault>,
    now_us: u64,
    sequence: u64,
    future: BTreeMap<(u64, u64), Coming>,
    machines: BTreeMap<MemberId, Machine>,
    joiners: BTreeMap<u64, EnrolRequest>,
    chosen: BTreeMap<u64, Arc<EpochRecord>>,
    /// Loads that ended: the move, and from which epoch on its new owner was walking.
    loads: Vec<(MoveArrived, u64)>,
    orders: BTreeMap<u64, (MemberId, u64)>,
    tickets: u64,
    drafts: Vec<(MemberId, ClusterOrder)>,
    loss_of_100: u64,
    is_calm: bool,
    broken: Option<String>,
    reached: Vec<Reached>,
}

impl Search {
    fn run(fault: Option<StewardFault>, seed: u64) -> (Option<String>, Vec<Reached>) {
        let mut prng = Prng::named(seed, "stewards");
        let count = 3 + prng.below(3) as u32;
        let mut search = Search {
            fault,
            now_us: 0,
            sequence: 0,
            future: BTreeMap::new(),
            machines: BTreeMap::new(),
            joiners: BTreeMap::new(),
            chosen: BTreeMap::new(),
            loads: Vec::new(),
            orders: BTreeMap::new(),
            tickets: 0,
            drafts: Vec::new(),
            loss_of_100: [0, 3, 12][prng.below(3) as usize],
            is_calm: false,
            broken: None,
            reached: Vec::new(),
            prng,
        };
        search.found(count);
        search.at(1_000_000, Coming::Order);
        search.at(500_000, Coming::Trouble);
        search.go_on();
        (search.broken, search.reached)
    }

    fn found(&mut self, count: u32) {
        let ids: Vec<MemberId> = (0..count).map(MemberId).collect();
        let row = |p: u16| {
            (0..3)
                .map(|i| MemberId((u32::from(p) + i) % count))
                .collect()
        };
        let rows = (0..PARTITIONS).map(row).collect();
        let owners = OwnerTable::of_owners(count, ids.clone(), rows).expect("a table");
        let members = ids.iter().map(|id| EpochMember {
            id: *id,
            node: 0,
            status: MemberStatus::Member,
            place: Member::new(&url(id.0)).expect("an address"),
        });
        let first = EpochRecord::first("search", members.collect(), 3, owners);
        let first = first.expect("a record");
        let first = Arc::new(first);
        self.chosen.insert(1, Arc::clone(&first));
        for id in ids {
            self.settle(id, node_of(u64::from(id.0)), &first);
        }
    }

    fn settle(&mut self, member: MemberId, node: u128, record: &Arc<EpochRecord>) {
        let machine = Machine {
            peer: ChainPeer { member, node },
            steward: None,
            epochs: BTreeMap::from([(record.epoch(), Arc::clone(record))]),
            vote: None,
            unsynced: VecDeque::new(),
            life: 0,
            confirmed: (0, 0),
            is_lost: false,
            has_ended: false,
        };
        self.machines.insert(member, machine);
        self.at(self.prng.clone().below(TICK_US), Coming::Tick(member));
        self.start(member);
    }

    fn at(&mut self, after_us: u64, coming: Coming) {
        self.sequence += 1;
        self.future
            .insert((self.now_us + after_us, self.sequence), coming);
    }

    fn fail(&mut self, why: String) {
        self.broken
            .get_or_insert(format!("{} us: {why}", self.now_us));
    }

    fn go_on(&mut self) {
        while let Some(((at_us, _), coming)) = self.future.pop_first() {
            self.now_us = at_us;
            if self.broken.is_some() {
                return;
            }
            if at_us >= FOUL_US && !self.is_calm {
                self.is_calm = true;
                let ids: Vec<MemberId> = self.machines.keys().copied().collect();
                ids.into_iter().for_each(|id| self.start(id));
                // A position that moves to a lost member does not arrive.
                self.at(1_000_000, Coming::Order);
            }
            if self.is_calm && self.is_at_rest() {
                return;
            }
            if at_us > END_US {
                let newest = self.newest();
                let why = format!(
                    "no end in calm weather: epoch {} {:?}, a plan {:?}",
                    newest.epoch(),
                    newest.change(),
                    newest
                        .plan()
                        .map(|plan| (plan.id, plan.begun, plan.moves.len()))
                );
                return self.fail(why);
            }
            let late = self.orders.iter().find(|(_, (_, due_us))| at_us > *due_us);
            if let Some((ticket, (member, _))) = late {
                let why = format!("order {ticket} at {member} has no answer");
                return self.fail(why);
            }
            self.come(coming);
        }
    }

    fn newest(&self) -> Arc<EpochRecord> {
        Arc::clone(self.chosen.last_key_value().expect("a first epoch").1)
    }

    fn is_at_rest(&self) -> bool {
        let newest = self.newest();
        let is_there = |machine: &Machine| {
            machine.is_lost
                || if newest.is_member(machine.peer.member, machine.peer.node) {
                    let steward = machine.steward.as_ref();
                    steward.is_some_and(|steward| *steward.record() == newest)
                } else {
                    machine.has_ended
                }
        };
        newest.plan().is_none() && self.orders.is_empty() && self.machines.values().all(is_there)
    }

    fn come(&mut self, coming: Coming) {
        match coming {
            Coming::Letter(from, to, message) => {
                let peer = self.machines[&from].peer;
                let from = peer;
                self.tell(to, StewardEvent::Received { from, message });
            }
            Coming::Synced(id, life) => {
                let Some(machine) = self.machines.get_mut(&id) else {
                    return;
                };
                if machine.life != life || machine.steward.is_none() {
                    return;
                }
                if let Some((ticket, note)) = machine.unsynced.pop_front() {
                    keep(machine, note);
                    self.tell(id, StewardEvent::Persisted { ticket });
                }
            }
            Coming::Loaded(id, life, epoch, partition) => self.loaded(id, life, epoch, partition),
            Coming::Seen(id, other, is_up) => {
                let peer = self.machines[&other].peer;
                let is_so = self.machines[&other].steward.is_some() == is_up;
                if is_so {
                    self.tell(
                        id,
                        StewardEvent::Reached {
                            peer,
                            is_up,
                            versions: ClusterVersions::OWN,
                        },
                    );
                }
            }
            Coming::Tick(id) => {
                self.at(TICK_US, Coming::Tick(id));
                self.confirm(id);
                self.tell(id, StewardEvent::Tick);
            }
            Coming::Start(id) => self.start(id),
            Coming::Joiner(number) => self.join(number),
            Coming::Order => self.order(),
            Coming::Trouble => self.trouble(),
        }
    }

    fn loaded(&mut self, id: MemberId, life: u64, epoch: u64, partition: Partition) {
        let machine = &self.machines[&id];
        let Some(steward) = machine.steward.as_ref().filter(|_| machine.life == life) else {
            return;
        };
        let record = Arc::clone(steward.record());
        let step = record
            .moving(partition)
            .filter(|step| step.moving.to == Some(id));
        if let (Some(step), Some(plan)) = (step, record.plan().map(|plan| plan.id)) {
            self.loads.push((MoveArrived { plan, step }, epoch));
        }
        let partitions = vec![partition];
        self.tell(id, StewardEvent::Loaded { epoch, partitions });
    }

    /// The loops confirm the epoch, sooner or later, or say what holds them back.
    fn confirm(&mut self, id: MemberId) {
        let clock = (1 << 59) + self.now_us * 16 + self.prng.below(1_000);
        let is_soon = self.prng.chance(1, 3);
        let fault = self.fault;
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        let Some(epoch) = machine.steward.as_ref().map(|it| it.record().epoch()) else {
            return;
        };
        if is_soon && machine.confirmed.0 != epoch {
            machine.confirmed = (epoch, clock);
        }
        let is_unseen = fault == Some(StewardFault::ConfirmedUnseen);
        let news = if machine.confirmed.0 == epoch || is_unseen {
            Ok(Confirmed { epoch, clock })
        } else {
            Err(HeldBack::UnderWay)
        };
        self.tell(id, StewardEvent::Forgets { news });
    }

    fn crash(&mut self, id: MemberId) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.steward.take().is_none() {
            return;
        }
        self.reached.push(Reached::Crash);
        let survive = self.prng.below(machine.unsynced.len() as u64 + 1);
        for _ in 0..survive {
            if let Some((_, note)) = machine.unsynced.pop_front() {
                keep(machine, note);
            }
        }
        machine.unsynced.clear();
        self.orders.retain(|_, (member, _)| *member != id);
        self.drafts.retain(|(member, _)| *member != id);
        self.see(id, false);
    }

    /// The others notice sooner or later that a member came or went.
    fn see(&mut self, id: MemberId, is_up: bool) {
        let others: Vec<MemberId> = self.machines.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != id) {
            let delay_us = self.prng.below(800_000);
            self.at(delay_us, Coming::Seen(other, id, is_up));
            if is_up && self.machines[&other].steward.is_some() {
                self.at(delay_us, Coming::Seen(id, other, true));
            }
        }
    }

    fn start(&mut self, id: MemberId) {
        let seed = self.prng.next_u64();
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.is_lost || machine.has_ended || machine.steward.is_some() {
            return;
        }
        machine.life += 1;
        let records = machine.epochs.values();
        let start = StewardStart {
            me: machine.peer,
            records: records.map(|r| (EpochRecord::clone(r), 0)).collect(),
            fence: 0,
            vote: machine.vote.clone(),
            release: "1".to_owned(),
            versions: ClusterVersions::OWN,
            load_bytes_per_second: LOAD_BYTES_PER_SECOND_DEFAULT,
            side_by_side: 2,
            forget_every_us: FORGET_EVERY_US,
            replace_patience_us: 0,
            seed,
        };
        let steward = Steward::open(start).expect("a layout");
        let record = Arc::clone(steward.record());
        machine.steward = Some(steward);
        // A note may have reached the disk in the crash, before the member had reported it.
        self.check(id, &record);
        self.see(id, true);
        self.load(id);
    }

    fn tell(&mut self, id: MemberId, event: StewardEvent) {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: 1_700_000_000_000 + self.now_us / 1_000,
            wall_part_us: 0,
        };
        let machine = self.machines.get_mut(&id);
        let Some(steward) = machine.and_then(|machine| machine.steward.as_mut()) else {
            return;
        };
        let mut effects = Vec::new();
        steward.step(now, event, &mut effects);
        for effect in effects {
            self.effect(id, effect);
        }
    }

    fn effect(&mut self, id: MemberId, effect: StewardEffect) {
        let machine = self.machines.get_mut(&id).expect("it acted");
        let life = machine.life;
        match effect {
            StewardEffect::Send { to, message } => self.post(id, to, message),
            StewardEffect::SendEpochs { to, from } => {
                let records = machine.epochs.range(from..).take(8);
                let records: Vec<_> = records.map(|(_, record)| Arc::clone(record)).collect();
                if records.first().is_some_and(|record| record.epoch() == from) {
                    let message = StewardMessage::Chain(ChainMessage::Chosen { records });
                    self.post(id, to, message);
                }
            }
            StewardEffect::Persist { ticket, note } => {
                // One write with the record in front of it.
                if let (ChainNote::Fence(_), Some(last)) = (&note, machine.unsynced.back_mut()) {
                    last.0 = ticket;
                    return;
                }
                machine.unsynced.push_back((ticket, note));
                let sync_us = 500 + self.prng.below(20_000);
                self.at(sync_us, Coming::Synced(id, life));
            }
            StewardEffect::Adopt { record, layout } => {
                assert_eq!(record.epoch(), layout.epoch());
                self.check(id, &record);
                self.load(id);
            }
            StewardEffect::Answer { ticket, answer } => self.answered(id, ticket, answer),
            StewardEffect::EnrolAnswer { answer, .. } => self.enrolled(answer),
            StewardEffect::Removed { .. } => {
                machine.has_ended = true;
                machine.steward = None;
                self.orders.retain(|_, (member, _)| *member != id);
                self.drafts.retain(|(member, _)| *member != id);
                self.see(id, false);
            }
            StewardEffect::Diverged { from, epoch } => {
                self.fail(format!("{id} and {from} differ in epoch {epoch}"));
            }
            StewardEffect::NoLayout { epoch } => self.fail(format!("no layout of {epoch}")),
            StewardEffect::DropEpoch { epoch } => drop(machine.epochs.remove(&epoch)),
            StewardEffect::Throttle { .. }
            | StewardEffect::AcceptLoss { .. }
            | StewardEffect::DropStrays { .. } => {}
            StewardEffect::Outdated { version } => panic!("{id}: all know version {version}"),
        }
    }

    fn post(&mut self, from: MemberId, to: MemberId, message: StewardMessage) {
        let is_progress = matches!(message, StewardMessage::Progress(_));
        if is_progress && self.fault == Some(StewardFault::NoProgress) {
            return;
        }
        if !self.machines.contains_key(&to) {
            return;
        }
        let is_lost = !self.is_calm && self.prng.below(100) < self.loss_of_100;
        if is_lost {
            return;
        }
        let is_late = !self.is_calm && self.prng.chance(1, 20);
        let delay_us = 200 + self.prng.below(if is_late { 2_000_000 } else { 8_000 });
        self.at(delay_us, Coming::Letter(from, to, message));
    }

    /// Loops load the positions that move to the member, each position for itself.
    fn load(&mut self, id: MemberId) {
        let machine = &self.machines[&id];
        let Some(steward) = &machine.steward else {
            return;
        };
        let (life, record) = (machine.life, Arc::clone(steward.record()));
        for partition in record.owners().all() {
            let step = record.moving(partition);
            let Some(step) = step.filter(|step| step.moving.to == Some(id)) else {
                continue;
            };
            if self.fault == Some(StewardFault::LoadedUnread) {
                let (epoch, partitions) = (record.epoch(), vec![step.partition]);
                self.tell(id, StewardEvent::Loaded { epoch, partitions });
                continue;
            }
            let walk_us = 5_000 + self.prng.below(800_000);
            self.at(walk_us, Coming::Loaded(id, life, record.epoch(), partition));
        }
    }
}

fn node_of(number: u64) -> u128 {
    (1 << 90) + u128::from(number) + 1
}

fn keep(machine: &mut Machine, note: ChainNote) {
    match note {
        ChainNote::Epoch(record) => {
            machine.epochs.insert(record.epoch(), record);
        }
        // No folder here loses the record alone.
        ChainNote::Fence(_) => {}
        ChainNote::Vote(vote) => machine.vote = Some(vote),
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_breaks_the_stewards() {
    let first = number("DENDRA_STEWARD_FIRST", 0);
    let seeds = number("DENDRA_STEWARD_SEEDS", 300);
    let mut all_reached = Vec::new();
    for seed in first..first + seeds {
        let (broken, reached) = Search::run(None, seed);
        if let Some(broken) = broken {
            panic!("seed {seed}:\n{broken}");
        }
        all_reached.extend(reached);
    }
    for wanted in REACHED {
        let times = all_reached.iter().filter(|it| **it == wanted).count();
        println!("{wanted:?}: {times} times");
        assert!(times as u64 >= seeds / 20, "{wanted:?}: {times} times");
    }
}

#[test]
#[ignore = "at length"]
fn planted_faults_are_found_by_few_seeds() {
    let mut missed = BTreeSet::new();
    for (fault, seeds) in FAULTS {
        let found = (0..seeds).find_map(|seed| Some((seed, Search::run(Some(fault), seed).0?)));
        match found {
            Some((seed, broken)) => println!("{fault:?}: seed {seed}: {broken}"),
            None => {
                missed.insert(format!("{fault:?}"));
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
