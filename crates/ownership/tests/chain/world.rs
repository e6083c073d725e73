//! A made-up world around chains. Its network loses, repeats and turns messages round. Its disks
//! lose notes that were not synced. Its members crash, are cut off, and are lost for ever.
//!
//! ```text
//! foul   messages lost, late, twice; crashes; cuts; operators with different plans    FOUL_US
//! calm   all members are back, plans are carried on                                     to the end
//! ```
//!
//! Invariants
//! 1. The seed alone decides what happens.
//! 2. In calm weather every plan ends, and every member reaches the newest epoch.

use crate::checks::Checks;
use crate::data::{Operation, Purpose, Question, loading};
use crate::faults::Planted;
use dendra_base::Prng;
use dendra_ownership::epoch::chain::{Chain, ChainEffect, ChainEvent, ChainMessage, ChainNote};
use dendra_ownership::epoch::chain::{ChainPeer, FenceVerdict, VoteNote};
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::{EpochMember, EpochRecord, MemberStatus};
use dendra_ownership::limits::{EPOCH_PAGE_RECORDS_MAX, EPOCH_VOTE_US};
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::{MemberId, OwnerTable};
use dendra_ownership::topology::Member;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const FOUL_US: u64 = 12_000_000;
const END_US: u64 = 120_000_000;
const PARTITIONS: u16 = 3;
const TICK_US: u64 = EPOCH_VOTE_US / 2;

#[derive(Clone, Debug)]
enum Letter {
    Chain(ChainMessage),
    Ask(u64, Partition, u64, Question),
    /// `None`: refused.
    Answer(u64, Option<u64>),
}

#[derive(Clone, Debug)]
enum Happening {
    Deliver(MemberId, MemberId, Letter),
    Synced(MemberId, u64),
    /// The disk says that it has synced up to this ticket, and has not.
    LiedSynced(MemberId, u64),
    Tick(MemberId),
    Start(MemberId),
    Drive,
    Operation,
    Trouble,
}

#[derive(Default)]
struct Disk {
    epochs: BTreeMap<u64, Arc<EpochRecord>>,
    vote: Option<VoteNote>,
    numbers: BTreeMap<Partition, u64>,
}

struct Machine {
    peer: ChainPeer,
    chain: Option<Chain>,
    disk: Disk,
    /// Notes that a crash may lose.
    unsynced: VecDeque<(u64, ChainNote)>,
    /// Which start this is: a sync of an earlier one does not count.
    life: u64,
    is_lost: bool,
    knows_removal: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub epochs: u64,
    pub joins: u64,
    pub leaves: u64,
    pub replacements: u64,
    pub cancels: u64,
    pub removed_told: u64,
    pub rivals: u64,
    pub crashes: u64,
    pub stale: u64,
    pub pages: u64,
    pub writes: u64,
    pub reads: u64,
    pub loads: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.epochs += other.epochs;
        self.joins += other.joins;
        self.leaves += other.leaves;
        self.replacements += other.replacements;
        self.cancels += other.cancels;
        self.removed_told += other.removed_told;
        self.rivals += other.rivals;
        self.crashes += other.crashes;
        self.stale += other.stale;
        self.pages += other.pages;
        self.writes += other.writes;
        self.reads += other.reads;
        self.loads += other.loads;
    }
}

pub(crate) struct Run {
    pub broken: Option<String>,
    pub counts: Counts,
    pub log: Vec<String>,
}

pub(crate) struct World {
    pub prng: Prng,
    pub planted: Option<Planted>,
    pub is_calm: bool,
    pub arrived: Vec<MoveArrived>,
    pub counts: Counts,
    checks: Checks,
    now_us: u64,
    sequence: u64,
    future: BTreeMap<(u64, u64), Happening>,
    machines: BTreeMap<MemberId, Machine>,
    /// Members on the other side of a cut, and until when.
    cut: (Vec<MemberId>, u64),
    loss_of_100: u64,
    operations: BTreeMap<u64, Operation>,
    acknowledged: BTreeMap<Partition, u64>,
    next_number: u64,
    /// The log of events, when it is wanted.
    log: Option<Vec<String>>,
}

impl World {
    pub(crate) fn run(planted: Option<Planted>, seed: u64) -> Run {
        World::run_with_log(planted, seed, None)
    }

    /// The same run, with its last lines.
    pub(crate) fn log_of(planted: Option<Planted>, seed: u64) -> Vec<String> {
        World::run_with_log(planted, seed, Some(Vec::new())).log
    }

    fn run_with_log(planted: Option<Planted>, seed: u64, log: Option<Vec<String>>) -> Run {
        let mut prng = Prng::named(seed, "chain of epochs");
        let count = 3 + prng.below(3) as u32;
        let mut world = World {
            planted,
            is_calm: false,
            arrived: Vec::new(),
            counts: Counts::default(),
            checks: Checks::default(),
            now_us: 0,
            sequence: 0,
            future: BTreeMap::new(),
            machines: BTreeMap::new(),
            cut: (Vec::new(), 0),
            loss_of_100: [0, 2, 10, 25][prng.below(4) as usize],
            operations: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            next_number: 1,
            log,
            prng,
        };
        world.found(count);
        world.at(0, Happening::Drive);
        world.at(1_000, Happening::Operation);
        world.at(200_000, Happening::Trouble);
        world.go_on();
        world.counts.epochs = world.checks.newest().epoch();
        Run {
            broken: world.checks.broken,
            counts: world.counts,
            log: world.log.unwrap_or_default(),
        }
    }

    fn found(&mut self, count: u32) {
        let ids: Vec<MemberId> = (0..count).map(MemberId).collect();
        let row = |partition: u16| {
            let at = |i: u32| MemberId((u32::from(partition) + i) % count);
            (0..3).map(at).collect()
        };
        let rows = (0..PARTITIONS).map(row).collect();
        let owners = OwnerTable::of_owners(count, ids.clone(), rows).expect("a table");
        let is_enrolled = self.prng.chance(3, 4);
        let members = ids.iter().map(|id| EpochMember {
            id: *id,
            node: if is_enrolled { self.node_of(*id) } else { 0 },
            status: MemberStatus::Member,
            place: Member::new(&format!("http://m{}:1", id.0)).expect("an address"),
        });
        let first = EpochRecord::first("twin", members.collect(), 3, owners);
        let first = Arc::new(first.expect("a record"));
        self.checks.chain.insert(1, Arc::clone(&first));
        for id in ids {
            self.add(id, self.node_of(id), &first);
        }
    }

    /// The folder of a founder.
    pub(crate) fn node_of(&self, id: MemberId) -> u128 {
        u128::from(id.0) + 1_000
    }

    fn add(&mut self, id: MemberId, node: u128, record: &Arc<EpochRecord>) {
        let machine = Machine {
            peer: ChainPeer { member: id, node },
            chain: None,
            disk: Disk {
                epochs: BTreeMap::from([(record.epoch(), Arc::clone(record))]),
                ..Disk::default()
            },
            unsynced: VecDeque::new(),
            life: 0,
            is_lost: false,
            knows_removal: false,
        };
        self.machines.insert(id, machine);
        self.start(id);
    }

    fn at(&mut self, after_us: u64, happening: Happening) {
        self.sequence += 1;
        let key = (self.now_us + after_us, self.sequence);
        self.future.insert(key, happening);
    }

    fn go_on(&mut self) {
        while let Some(((time_us, _), happening)) = self.future.pop_first() {
            self.now_us = time_us;
            if self.checks.broken.is_some() {
                return;
            }
            if time_us >= FOUL_US && !self.is_calm {
                self.calm();
            }
            if self.is_calm && self.is_at_rest() {
                return;
            }
            if time_us > END_US {
                let newest = self.checks.newest();
                let plan = newest.plan().is_some();
                let epoch = newest.epoch();
                let why = format!("no end in calm weather: epoch {epoch}, a plan {plan}");
                self.checks.fail(why);
                return;
            }
            self.happen(happening);
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.cut = (Vec::new(), 0);
        let ids: Vec<MemberId> = self.machines.keys().copied().collect();
        for id in ids {
            self.start(id);
        }
    }

    fn is_at_rest(&self) -> bool {
        let newest = self.checks.newest();
        let is_there = |machine: &Machine| {
            let is_member = newest.is_member(machine.peer.member, machine.peer.node);
            let chain = machine.chain.as_ref();
            machine.is_lost
                || if is_member {
                    chain.is_some_and(|chain| chain.record() == newest)
                } else {
                    machine.knows_removal
                }
        };
        newest.plan().is_none() && self.machines.values().all(is_there)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deliver(from, to, letter) => self.deliver(from, to, letter),
            Happening::Synced(id, life) => self.synced(id, life),
            Happening::LiedSynced(id, ticket) => {
                self.event(id, ChainEvent::Persisted { ticket });
            }
            Happening::Tick(id) => {
                self.at(TICK_US, Happening::Tick(id));
                self.event(id, ChainEvent::Tick);
                self.load(id);
            }
            Happening::Start(id) => self.start(id),
            Happening::Drive => {
                let pause_us = 50_000 + self.prng.below(250_000);
                self.at(pause_us, Happening::Drive);
                let id = self.anyone();
                self.drive(id);
            }
            Happening::Operation => {
                let pause_us = 20_000 + self.prng.below(60_000);
                self.at(pause_us, Happening::Operation);
                let id = self.anyone();
                self.operate(id);
            }
            Happening::Trouble => {
                if !self.is_calm {
                    let pause_us = 100_000 + self.prng.below(1_500_000);
                    self.at(pause_us, Happening::Trouble);
                    self.trouble();
                }
            }
        }
    }

    fn anyone(&mut self) -> MemberId {
        let at = self.prng.below(self.machines.len() as u64) as usize;
        let id = self.machines.keys().nth(at);
        *id.expect("there are machines")
    }

    fn trouble(&mut self) {
        let id = self.anyone();
        match self.prng.below(10) {
            0..6 => {
                self.crash(id);
                let rest_us = match self.prng.below(5) {
                    0 => 6_000_000,
                    _ => 20_000 + self.prng.below(800_000),
                };
                self.at(rest_us, Happening::Start(id));
            }
            6..9 => {
                let ids: Vec<MemberId> = self.machines.keys().copied().collect();
                let side = ids.into_iter().filter(|_| self.prng.chance(1, 3)).collect();
                self.cut = (side, self.now_us + 200_000 + self.prng.below(2_500_000));
            }
            _ => {
                let newest = Arc::clone(self.checks.newest());
                let is_voter = newest.voters().contains(&id);
                let is_alone = self
                    .machines
                    .values()
                    .any(|machine| machine.is_lost && newest.member(machine.peer.member).is_some());
                if is_voter && !is_alone && newest.voters().len() >= 3 {
                    self.crash(id);
                    if let Some(machine) = self.machines.get_mut(&id) {
                        machine.is_lost = true;
                    }
                }
            }
        }
    }

    pub(crate) fn is_lost(&self, id: MemberId) -> bool {
        self.machines
            .get(&id)
            .is_some_and(|machine| machine.is_lost)
    }

    pub(crate) fn lost_of(&self, record: &EpochRecord) -> Vec<MemberId> {
        let ids = record.members().iter().map(|member| member.id);
        ids.filter(|id| self.is_lost(*id)).collect()
    }

    /// The newest epoch of a member that runs and was not removed, and whether it is proposing.
    pub(crate) fn state(&self, id: MemberId) -> Option<(Arc<EpochRecord>, bool)> {
        let chain = self.machines.get(&id)?.chain.as_ref()?;
        let state = (Arc::clone(chain.record()), chain.is_proposing());
        (!chain.is_removed()).then_some(state)
    }

    fn crash(&mut self, id: MemberId) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.chain.take().is_none() {
            return;
        }
        self.counts.crashes += 1;
        // Some of the notes that were not synced may have reached the disk, in its order.
        let survive = self.prng.below(machine.unsynced.len() as u64 + 1);
        for _ in 0..survive {
            if let Some((_, note)) = machine.unsynced.pop_front() {
                keep(&mut machine.disk, note);
            }
        }
        machine.unsynced.clear();
        if self.planted == Some(Planted::VoteNotDurable) {
            machine.disk.vote = None;
        }
        self.operations.retain(|_, operation| operation.asker != id);
    }

    fn start(&mut self, id: MemberId) {
        let seed = self.prng.next_u64();
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.is_lost || machine.chain.is_some() {
            return;
        }
        let (_, record) = machine.disk.epochs.last_key_value().expect("a first epoch");
        let (record, vote) = (EpochRecord::clone(record), machine.disk.vote.clone());
        // A note may have reached the disk in the crash, before the member had reported it.
        let known = Arc::new(record.clone());
        if !self.checks.chain.contains_key(&known.epoch()) {
            self.checks.adopted(id, known.epoch() - 1, &known);
        }
        let chain = Chain::open(machine.peer, (record, 0), vote, seed);
        machine.knows_removal |= chain.is_removed();
        machine.chain = Some(chain);
        machine.life += 1;
        let is_first = machine.life == 1;
        if is_first {
            let phase_us = self.prng.below(TICK_US);
            self.at(phase_us, Happening::Tick(id));
        }
    }

    pub(crate) fn event(&mut self, id: MemberId, event: ChainEvent) {
        let now_us = self.now_us;
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        let Some(chain) = machine.chain.as_mut() else {
            return;
        };
        let before = chain.record().epoch();
        let mut effects = Vec::new();
        chain.step(now_us, event, &mut effects);
        let mut epoch = before;
        for effect in effects {
            self.effect(id, effect, &mut epoch);
        }
    }

    fn effect(&mut self, id: MemberId, effect: ChainEffect, epoch: &mut u64) {
        let machine = self.machines.get_mut(&id).expect("it has acted");
        let peer = machine.peer;
        if let Some(log) = &mut self.log {
            let short = match &effect {
                ChainEffect::Adopted { record } => {
                    let (epoch, change) = (record.epoch(), record.change());
                    let rows = record.owners().all().map(|p| {
                        let owners = record.owners();
                        format!("{:?} {:?}", owners.owners(p), owners.moving(p))
                    });
                    let rows: Vec<String> = rows.collect();
                    format!("adopts {epoch} {change:?} {rows:?}")
                }
                other => format!("{other:?}").chars().take(160).collect(),
            };
            log.push(format!("{:>9} {}: {short}", self.now_us, peer.member));
        }
        match effect {
            ChainEffect::Persist { ticket, note } => {
                let life = machine.life;
                // One write with the record in front of it.
                if let (ChainNote::Fence(_), Some(last)) = (&note, machine.unsynced.back_mut()) {
                    last.0 = ticket;
                    if self.planted == Some(Planted::FenceNotDurable) {
                        self.at(0, Happening::LiedSynced(id, ticket));
                    }
                    return;
                }
                machine.unsynced.push_back((ticket, note));
                let sync_us = 500 + self.prng.below(20_000);
                self.at(sync_us, Happening::Synced(id, life));
            }
            ChainEffect::Send { to, message } => {
                if matches!(message, ChainMessage::Outbid { .. }) {
                    self.counts.rivals += 1;
                }
                self.checks.sent(peer, &message);
                self.post(id, to, Letter::Chain(message));
            }
            ChainEffect::SendEpochs { to, from } => {
                self.counts.pages += 1;
                let stored = machine.disk.epochs.range(from..);
                let page = stored.take(EPOCH_PAGE_RECORDS_MAX);
                let records: Vec<_> = page.map(|(_, record)| Arc::clone(record)).collect();
                if records.first().is_some_and(|record| record.epoch() >= from) {
                    self.post(id, to, Letter::Chain(ChainMessage::Chosen { records }));
                }
            }
            ChainEffect::Adopted { record } => {
                self.checks.adopted(peer.member, *epoch, &record);
                *epoch = record.epoch();
                for member in record.with(MemberStatus::Joining) {
                    if !self.machines.contains_key(&member.id) {
                        self.add(member.id, member.node, &record);
                    }
                }
                self.load(id);
            }
            ChainEffect::Removed { .. } => {
                machine.knows_removal = true;
                self.counts.removed_told += 1;
            }
            ChainEffect::Diverged { from, epoch } => {
                let why = format!("{} and {from} differ in epoch {epoch}", peer.member);
                self.checks.fail(why);
            }
            ChainEffect::Refused { .. } | ChainEffect::GaveUp { .. } => {}
        }
    }

    fn synced(&mut self, id: MemberId, life: u64) {
        let Some(machine) = self.machines.get_mut(&id) else {
            return;
        };
        if machine.life != life || machine.chain.is_none() {
            return;
        }
        let Some((ticket, note)) = machine.unsynced.pop_front() else {
            return;
        };
        keep(&mut machine.disk, note);
        self.event(id, ChainEvent::Persisted { ticket });
    }

    fn post(&mut self, from: MemberId, to: MemberId, letter: Letter) {
        let (side, until_us) = &self.cut;
        let is_cut = self.now_us < *until_us && side.contains(&from) != side.contains(&to);
        let copies = if self.is_calm {
            1
        } else if is_cut || self.prng.below(100) < self.loss_of_100 {
            0
        } else {
            1 + u32::from(self.prng.chance(1, 20))
        };
        for _ in 0..copies {
            let late = !self.is_calm && self.prng.chance(1, 15);
            let delay_us = 200 + self.prng.below(if late { 3_000_000 } else { 10_000 });
            let letter = letter.clone();
            self.at(delay_us, Happening::Deliver(from, to, letter));
        }
    }

    fn deliver(&mut self, from: MemberId, to: MemberId, letter: Letter) {
        let Some(sender) = self.machines.get(&from).map(|machine| machine.peer) else {
            return;
        };
        match letter {
            Letter::Chain(message) => {
                let learnt = match &message {
                    ChainMessage::Accept { record, .. } => Some(Arc::clone(record)),
                    _ => None,
                };
                let received = |message| ChainEvent::Received {
                    from: sender,
                    message,
                };
                self.event(to, received(message));
                if let Some(record) = learnt
                    && self.planted == Some(Planted::LearnerTrustsProposals)
                {
                    let records = vec![record];
                    self.event(to, received(ChainMessage::Chosen { records }));
                }
            }
            Letter::Ask(number, partition, epoch, question) => {
                self.asked(sender, to, (number, partition, epoch, question));
            }
            Letter::Answer(number, value) => self.answered(from, number, value),
        }
    }

    fn asked(&mut self, asker: ChainPeer, to: MemberId, ask: (u64, Partition, u64, Question)) {
        let (number, partition, epoch, question) = ask;
        let Some(machine) = self.machines.get_mut(&to) else {
            return;
        };
        let Some(chain) = &machine.chain else { return };
        let verdict = chain.admits(partition, epoch);
        let is_fenced = self.planted != Some(Planted::NoFence);
        let is_admitted = verdict == FenceVerdict::Admit
            || (!is_fenced && matches!(verdict, FenceVerdict::Stale { .. }));
        let answer = if is_admitted && chain.knows(asker) {
            let kept = machine.disk.numbers.entry(partition).or_default();
            if let Question::Write(value) = question {
                *kept = (*kept).max(value);
            }
            let value = *kept;
            if is_fenced {
                self.checks.admitted(to, partition, epoch);
            }
            Some(value)
        } else {
            self.counts.stale += u64::from(matches!(verdict, FenceVerdict::Stale { .. }));
            None
        };
        self.post(to, asker.member, Letter::Answer(number, answer));
    }

    fn answered(&mut self, by: MemberId, number: u64, value: Option<u64>) {
        let Some(operation) = self.operations.get_mut(&number) else {
            return;
        };
        let Some(value) = value else { return };
        let Some(largest) = operation.answered(by, value) else {
            return;
        };
        let Some(operation) = self.operations.remove(&number) else {
            return;
        };
        let partition = operation.partition;
        match operation.purpose {
            Purpose::Write(value) => {
                self.counts.writes += 1;
                let acknowledged = self.acknowledged.entry(partition).or_default();
                *acknowledged = (*acknowledged).max(value);
            }
            Purpose::Read(floor) => {
                self.counts.reads += 1;
                if largest < floor {
                    let (asker, epoch) = (operation.asker, operation.epoch);
                    self.checks.fail(format!(
                        "{asker} reads {largest} of partition {} in epoch {epoch}, and {floor} was \
                         acknowledged",
                        partition.0
                    ));
                }
            }
            Purpose::Load(report) => {
                self.counts.loads += 1;
                if let Some(machine) = self.machines.get_mut(&operation.asker) {
                    let kept = machine.disk.numbers.entry(partition).or_default();
                    *kept = (*kept).max(largest);
                }
                self.arrived.push(report);
            }
        }
    }

    fn begin(&mut self, asker: MemberId, record: &EpochRecord, partition: Partition, why: Purpose) {
        self.sequence += 1;
        let number = self.sequence;
        let operation = Operation::new(asker, partition, record, why, self.planted);
        let (question, asked) = (operation.question(), operation.asked());
        self.operations.insert(number, operation);
        for to in asked {
            let letter = Letter::Ask(number, partition, record.epoch(), question);
            self.post(asker, to, letter);
        }
    }

    fn operate(&mut self, id: MemberId) {
        // A member that was removed and does not know it serves clients as before.
        let Some((record, _)) = self.state(id) else {
            return;
        };
        let partition = Partition(self.prng.below(u64::from(PARTITIONS)) as u16);
        let purpose = if self.prng.chance(1, 2) {
            self.next_number += 1;
            Purpose::Write(self.next_number)
        } else {
            let floor = self.acknowledged.get(&partition).copied();
            Purpose::Read(floor.unwrap_or(0))
        };
        self.begin(id, &record, partition, purpose);
    }

    /// Loads the partitions that move to this member.
    fn load(&mut self, id: MemberId) {
        let Some((record, _)) = self.state(id) else {
            return;
        };
        for report in loading(&record, id) {
            if self.arrived.contains(&report) {
                continue;
            }
            if self.planted == Some(Planted::SettledUnloaded) {
                self.arrived.push(report);
                continue;
            }
            let partition = report.step.partition;
            self.begin(id, &record, partition, Purpose::Load(report));
        }
    }

    /// Positions that are taken away have arrived once a majority of the owners has the epoch.
    pub(crate) fn shrinks(&mut self, record: &EpochRecord) {
        let Some(plan) = record.plan() else { return };
        for partition in record.owners().all() {
            let step = record.moving(partition);
            let Some(step) = step.filter(|step| step.moving.to.is_none()) else {
                continue;
            };
            let owners = record.owners().owners(partition);
            let has = |id: &&MemberId| {
                let chain = self.machines.get(id).and_then(|m| m.chain.as_ref());
                chain.is_some_and(|chain| chain.record().epoch() >= record.epoch())
            };
            let report = MoveArrived {
                plan: plan.id,
                step,
            };
            let fenced = owners.iter().filter(has).count();
            if 2 * fenced > owners.len() && !self.arrived.contains(&report) {
                self.arrived.push(report);
            }
        }
    }
}

fn keep(disk: &mut Disk, note: ChainNote) {
    match note {
        ChainNote::Epoch(record) => {
            disk.epochs.insert(record.epoch(), record);
        }
        // No disk here loses the record alone.
        ChainNote::Fence(_) => {}
        ChainNote::Vote(vote) => disk.vote = Some(vote),
    }
}
