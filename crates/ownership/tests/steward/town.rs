//! A made-up world of stewards in which everything arrives at once and in order: for scripts.
//!
//! Invariants
//! 1. No chance: a script gives the same run for ever.
//! 2. A member that was stopped gets no message; its folder stays.

use dendra_base::Now;
use dendra_base::{ClusterVersion, ClusterVersions};
use dendra_ownership::confirmed::{Confirmed, HeldBack};
use dendra_ownership::epoch::chain::{ChainMessage, ChainNote, ChainPeer, VoteNote};
use dendra_ownership::epoch::record::{EpochRecord, MemberStatus};
use dendra_ownership::limits::{
    EPOCH_VOTE_US, LOAD_BYTES_PER_SECOND_DEFAULT, MOVES_SIDE_BY_SIDE, REPLACE_PATIENCE_US,
};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::StewardStart;
use dendra_ownership::steward::face::{
    AcceptedLoss, ClusterAnswer, ClusterOrder, ClusterStatus, PlanDraft, PlanWish,
};
use dendra_ownership::steward::messages::{
    EnrolAnswer, EnrolRequest, StewardMessage, ThrottleOrder,
};
use dendra_ownership::steward::step::{StewardEffect, StewardEvent};
use dendra_ownership::{Member, Steward, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeBounds;
use std::sync::Arc;

const TICK_US: u64 = EPOCH_VOTE_US / 5;

pub(crate) struct House {
    pub peer: ChainPeer,
    pub steward: Option<Steward>,
    epochs: BTreeMap<u64, Arc<EpochRecord>>,
    /// The newest epoch that it has adopted, as its own note says.
    fence: u64,
    vote: Option<VoteNote>,
    pub was_removed: bool,
    pub throttle: Option<u64>,
    /// Losses that its loops were told of.
    pub accepted: Vec<AcceptedLoss>,
    /// The versions that its process knows.
    pub versions: ClusterVersions,
    /// The version for which it is too old.
    pub outdated: Option<ClusterVersion>,
    /// How often it raises horizons at most; 0 = never.
    pub forget_every_us: u64,
    /// Epochs in which it was told to drop what other members own.
    pub dropped: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Town {
    pub now_us: u64,
    pub houses: BTreeMap<MemberId, House>,
    letters: VecDeque<(MemberId, MemberId, StewardMessage)>,
    /// Members that get no letter.
    pub letters_lost: Vec<MemberId>,
    /// Pairs of members between which there is no link.
    cuts: Vec<(MemberId, MemberId)>,
    /// Do letters with chosen epochs get lost?
    pub is_chosen_lost: bool,
    answers: BTreeMap<u64, ClusterAnswer>,
    enrolled: BTreeMap<u64, EnrolAnswer>,
    tickets: u64,
    /// Do members load?
    pub is_loading: bool,
    /// Members that have proposed an epoch.
    pub proposers: BTreeSet<MemberId>,
    /// Pairs: a member that told its progress, and the member that it told.
    pub told: BTreeSet<(MemberId, MemberId)>,
}

pub(crate) fn url(number: u32) -> String {
    format!("http://h{number}:8080")
}

pub(crate) fn node(number: u32) -> u128 {
    (1 << 100) + u128::from(number) * 0x101 + 1
}

impl House {
    /// Whose records the folder holds.
    pub(crate) fn epochs(&self) -> Vec<u64> {
        self.epochs.keys().copied().collect()
    }

    /// Of the record of an epoch in the folder.
    pub(crate) fn digest_of(&self, epoch: u64) -> Option<u128> {
        self.epochs.get(&epoch).map(|record| record.digest())
    }

    /// A block rots: the records of these epochs cannot be read any more.
    pub(crate) fn lose_epochs(&mut self, lost: impl RangeBounds<u64>) {
        self.epochs.retain(|epoch, _| !lost.contains(epoch));
    }
}

impl Town {
    pub(crate) fn found(count: u32, copies: u8) -> Town {
        let members = (0..count).map(|n| Member::new(&url(n)).expect("an address"));
        let topology = Topology::new("town", members.collect(), copies).expect("a topology");
        let first = EpochRecord::founded(&topology);
        let mut town = Town {
            is_loading: true,
            ..Town::default()
        };
        for number in 0..count {
            town.settle(MemberId(number), node(number), &first);
        }
        for number in 0..count {
            town.start(MemberId(number));
        }
        town.pass(2_000_000);
        town
    }

    /// A cluster whose members raise horizons each second, if they may.
    pub(crate) fn forgetting(count: u32) -> Town {
        let mut town = Town::found(count, 3);
        for number in 0..count {
            town.stop(MemberId(number));
            let house = town.houses.get_mut(&MemberId(number)).expect("a house");
            house.forget_every_us = 1_000_000;
            town.start(MemberId(number));
        }
        town.pass(2_000_000);
        town
    }

    fn settle(&mut self, member: MemberId, node: u128, record: &EpochRecord) {
        let house = House {
            peer: ChainPeer { member, node },
            steward: None,
            epochs: BTreeMap::from([(record.epoch(), Arc::new(record.clone()))]),
            fence: 0,
            vote: None,
            was_removed: false,
            throttle: None,
            accepted: Vec::new(),
            versions: ClusterVersions::OWN,
            outdated: None,
            forget_every_us: 0,
            dropped: Vec::new(),
        };
        self.houses.insert(member, house);
    }

    pub(crate) fn start(&mut self, member: MemberId) {
        let house = self.houses.get_mut(&member).expect("a house");
        let records = house.epochs.values();
        let start = StewardStart {
            me: house.peer,
            records: records.map(|r| (EpochRecord::clone(r), 0)).collect(),
            fence: house.fence,
            vote: house.vote.clone(),
            release: "1.0.0".to_owned(),
            versions: house.versions,
            load_bytes_per_second: LOAD_BYTES_PER_SECOND_DEFAULT,
            side_by_side: MOVES_SIDE_BY_SIDE,
            forget_every_us: house.forget_every_us,
            replace_patience_us: REPLACE_PATIENCE_US,
            seed: u64::from(member.0),
        };
        let steward = Steward::open(start).expect("a layout");
        house.fence = house.fence.max(steward.record().epoch());
        house.steward = Some(steward);
        self.links(member, true);
        let up: Vec<MemberId> = self.up().filter(|other| *other != member).collect();
        for other in up {
            let House { peer, versions, .. } = self.houses[&other];
            let is_up = true;
            self.tell(
                member,
                StewardEvent::Reached {
                    peer,
                    is_up,
                    versions,
                },
            );
        }
        let stored_bytes = 1 << 20;
        let loaded_bytes = 0;
        self.tell(
            member,
            StewardEvent::Gauged {
                stored_bytes,
                loaded_bytes,
            },
        );
        self.load(member);
    }

    pub(crate) fn stop(&mut self, member: MemberId) {
        self.houses.get_mut(&member).expect("a house").steward = None;
        self.links(member, false);
    }

    fn links(&mut self, member: MemberId, is_up: bool) {
        let House { peer, versions, .. } = self.houses[&member];
        let others: Vec<MemberId> = self.up().filter(|other| *other != member).collect();
        for other in others {
            self.tell(
                other,
                StewardEvent::Reached {
                    peer,
                    is_up,
                    versions,
                },
            );
        }
    }

    /// The link between two members is cut, and both notice.
    pub(crate) fn cut(&mut self, one: u32, other: u32) {
        let (one, other) = (MemberId(one), MemberId(other));
        for (from, to) in [(one, other), (other, one)] {
            self.cuts.push((from, to));
            let House { peer, versions, .. } = self.houses[&to];
            let event = StewardEvent::Reached {
                peer,
                is_up: false,
                versions,
            };
            self.tell(from, event);
        }
    }

    pub(crate) fn up(&self) -> impl Iterator<Item = MemberId> + use<'_> {
        let houses = self.houses.iter();
        houses.filter_map(|(id, house)| house.steward.as_ref().map(|_| *id))
    }

    pub(crate) fn steward(&self, number: u32) -> &Steward {
        self.houses[&MemberId(number)]
            .steward
            .as_ref()
            .expect("it runs")
    }

    pub(crate) fn resume_throttle(&mut self, number: u32, order: ThrottleOrder) {
        let house = self.houses.get_mut(&MemberId(number));
        let steward = house.and_then(|house| house.steward.as_mut());
        steward.expect("it runs").resume_throttle(order);
    }

    pub(crate) fn record(&self, number: u32) -> &Arc<EpochRecord> {
        self.steward(number).record()
    }

    fn now(&self) -> Now {
        Now {
            mono_us: self.now_us,
            wall_ms: 1_700_000_000_000 + self.now_us / 1_000,
            wall_part_us: 0,
        }
    }

    pub(crate) fn tell(&mut self, member: MemberId, event: StewardEvent) {
        let now = self.now();
        let Some(steward) = self
            .houses
            .get_mut(&member)
            .and_then(|h| h.steward.as_mut())
        else {
            return;
        };
        let mut effects = Vec::new();
        steward.step(now, event, &mut effects);
        for effect in effects {
            self.effect(member, effect);
        }
    }

    fn effect(&mut self, member: MemberId, effect: StewardEffect) {
        let house = self.houses.get_mut(&member).expect("it acted");
        match effect {
            StewardEffect::Send { to, message } => {
                match &message {
                    StewardMessage::Chain(ChainMessage::Prepare { .. }) => {
                        self.proposers.insert(member);
                    }
                    StewardMessage::Progress(_) => {
                        self.told.insert((member, to));
                    }
                    _ => {}
                }
                // As it would travel.
                let message = StewardMessage::decode(&message.encode()).expect("own bytes");
                self.letters.push_back((member, to, message));
            }
            StewardEffect::SendEpochs { to, from } => {
                let records = house.epochs.range(from..).take(4);
                let records: Vec<_> = records.map(|(_, record)| Arc::clone(record)).collect();
                let message = StewardMessage::Chain(ChainMessage::Chosen { records });
                self.letters.push_back((member, to, message));
            }
            StewardEffect::Persist { ticket, note } => {
                match note {
                    ChainNote::Epoch(record) => {
                        house.epochs.insert(record.epoch(), record);
                    }
                    ChainNote::Fence(record) => house.fence = record.epoch(),
                    ChainNote::Vote(vote) => house.vote = Some(vote),
                }
                self.tell(member, StewardEvent::Persisted { ticket });
            }
            StewardEffect::Adopt { .. } => self.load(member),
            StewardEffect::Answer { ticket, answer } => {
                let before = self.answers.insert(ticket, answer);
                assert_eq!(before, None, "an order is answered once");
            }
            StewardEffect::EnrolAnswer { ticket, answer } => {
                let answer = EnrolAnswer::decode(&answer.encode()).expect("own bytes");
                self.enrolled.insert(ticket, answer);
            }
            StewardEffect::Removed { .. } => {
                house.was_removed = true;
                house.steward = None;
            }
            StewardEffect::Outdated { version } => {
                house.outdated = Some(version);
                house.steward = None;
            }
            StewardEffect::DropEpoch { epoch } => drop(house.epochs.remove(&epoch)),
            StewardEffect::DropStrays { layout } => house.dropped.push(layout.epoch()),
            StewardEffect::Throttle { bytes_per_second } => {
                house.throttle = Some(bytes_per_second);
            }
            StewardEffect::AcceptLoss { loss, .. } => house.accepted.push(loss),
            other => panic!("{member}: {other:?}"),
        }
    }

    /// The loops of a member say whether they confirm its epoch.
    pub(crate) fn forgets(&mut self, number: u32, held: Option<HeldBack<MemberId>>, clock: u64) {
        let epoch = self.record(number).epoch();
        let news = match held {
            Some(held) => Err(held),
            None => Ok(Confirmed { epoch, clock }),
        };
        self.tell(MemberId(number), StewardEvent::Forgets { news });
        self.deliver();
    }

    /// All that moves to the member arrives at once.
    pub(crate) fn load(&mut self, member: MemberId) {
        let Some(steward) = self.houses[&member].steward.as_ref() else {
            return;
        };
        if !self.is_loading {
            return;
        }
        let record = Arc::clone(steward.record());
        let is_its = |p: &_| {
            record
                .moving(*p)
                .is_some_and(|step| step.moving.to == Some(member))
        };
        let partitions: Vec<_> = record.owners().all().filter(is_its).collect();
        let epoch = record.epoch();
        if !partitions.is_empty() {
            self.tell(member, StewardEvent::Loaded { epoch, partitions });
        }
    }

    fn deliver(&mut self) {
        let mut count = 0;
        while let Some((from, to, message)) = self.letters.pop_front() {
            let is_chosen = |message: &StewardMessage| {
                matches!(message, StewardMessage::Chain(ChainMessage::Chosen { .. }))
            };
            if self.cuts.contains(&(from, to)) {
                continue;
            }
            if self.letters_lost.contains(&to) || (self.is_chosen_lost && is_chosen(&message)) {
                continue;
            }
            let from = self.houses[&from].peer;
            self.tell(to, StewardEvent::Received { from, message });
            count += 1;
            assert!(count < 100_000, "messages without an end");
        }
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, us: u64) {
        let until_us = self.now_us + us;
        self.deliver();
        while self.now_us < until_us {
            self.now_us += TICK_US;
            let members: Vec<MemberId> = self.up().collect();
            for member in members {
                self.tell(member, StewardEvent::Tick);
                self.deliver();
            }
        }
    }

    pub(crate) fn order(&mut self, number: u32, order: ClusterOrder) -> Option<ClusterAnswer> {
        self.tickets += 1;
        let ticket = self.tickets;
        self.tell(MemberId(number), StewardEvent::Ordered { ticket, order });
        self.deliver();
        self.answers.remove(&ticket)
    }

    /// The sentence with which an order is declined, after its code.
    pub(crate) fn declined(&mut self, number: u32, order: ClusterOrder) -> String {
        match self.order(number, order) {
            Some(ClusterAnswer::Declined(why)) => format!("{}: {why}", why.code()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn done(&mut self, number: u32, order: ClusterOrder) -> u64 {
        match self.order(number, order) {
            Some(ClusterAnswer::Done { epoch }) => epoch,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn plan(&mut self, number: u32, wish: PlanWish) -> PlanDraft {
        match self.order(number, ClusterOrder::Plan(wish)) {
            Some(ClusterAnswer::Planned(draft)) => *draft,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn status(&mut self, number: u32) -> ClusterStatus {
        match self.order(number, ClusterOrder::Status) {
            Some(ClusterAnswer::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn enrol(&mut self, host: u32, request: EnrolRequest) -> EnrolAnswer {
        self.tickets += 1;
        let ticket = self.tickets;
        let request = EnrolRequest::decode(&request.encode()).expect("own bytes");
        self.tell(MemberId(host), StewardEvent::Enrol { ticket, request });
        self.deliver();
        self.enrolled.remove(&ticket).expect("an answer at once")
    }

    /// A process with an empty folder asks until it is a member, and starts.
    pub(crate) fn join(&mut self, host: u32, request: &EnrolRequest) -> MemberId {
        for _ in 0..80 {
            match self.enrol(host, request.clone()) {
                EnrolAnswer::Enrolled { member, record } => {
                    let own = record.member(member).expect("it is named");
                    assert_eq!(
                        (own.node, own.status),
                        (request.node, MemberStatus::Joining)
                    );
                    self.settle(member, request.node, &record);
                    self.start(member);
                    return member;
                }
                EnrolAnswer::Wait { .. } => self.pass(200_000),
                refused @ EnrolAnswer::Refused { .. } => panic!("{refused:?}"),
            }
        }
        panic!("it waits for ever");
    }
}

pub(crate) fn joiner(number: u32) -> EnrolRequest {
    EnrolRequest {
        cluster: "town".to_owned(),
        node: node(number),
        place: Member::new(&url(number)).expect("an address"),
        replaces: None,
    }
}
