//! A process of a changing cluster starts. It starts on the folder of a member, or on an empty one:
//! then it asks members until the newest epoch names it.
//!
//! Invariants
//! 1. A folder that the newest epoch it knows does not name never starts again.
//! 2. The first epoch of a folder is durable before its own record.
//!
//! Not here: the steward's later life (`home.rs`), whether a joiner may come in (crate
//! `ownership`, `steward/`).
//! See: crates/server/src/disk/notes.rs, crates/server/src/member/join.rs.

use super::super::state::{Happening, World};
use super::home::LOOK_US;
use super::notes::{LOSSES_KEY, epochs, note, one_by_one};
use crate::check::Rule;
use crate::machines::{MachineStanding, TownMachine, node_of, url};
use crate::member::{Clock, SimulatedMember};
use crate::store::{Disk, Fate, Store, StoreWrite};
use bytes::Bytes;
use dendra_base::{ClusterVersions, Key, Space};
use dendra_node::step::Event;
use dendra_ownership::Member as Listed;
use dendra_ownership::epoch::chain::{ChainPeer, VoteNote};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::membership::identity::{
    FolderMembership, OWN_KEY, OwnNote, VOTE_KEY, epoch_key,
};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::AcceptedLoss;
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest};
use dendra_ownership::steward::step::StewardEvent;
use dendra_ownership::steward::{Steward, StewardStart};
use dendra_wire::peer::{self, Message, Seal};
use std::sync::Arc;

/// Between two questions of a joiner.
const KNOCK_US: u64 = 250_000;
/// Epochs of which a start knows the history.
const HISTORY: usize = 64;
/// A start that could not read or write its folder is tried again after this.
const AGAIN_US: u64 = 300_000;

/// Why a process does not run after a start.
pub(in crate::world) enum NoStart {
    /// The start is tried again.
    Later,
    /// The folder is none of a member.
    Ended(String),
}

impl World<'_> {
    /// Is the machine one of a member, as far as its operator knows?
    pub(in crate::world) fn is_startable(&self, member: usize) -> bool {
        self.town
            .as_ref()
            .is_none_or(|town| matches!(town.machines[member].standing, MachineStanding::Member(_)))
    }

    /// The steward of a process that starts, where members change.
    pub(in crate::world) fn steward_of(
        &mut self,
        member: usize,
        store: &mut Store,
        wall_ms: u64,
    ) -> Result<Option<Steward>, NoStart> {
        if self.town.is_none() {
            return Ok(None);
        }
        self.resume(member, store, wall_ms).map(Some)
    }

    fn resume(
        &mut self,
        member: usize,
        store: &mut Store,
        wall_ms: u64,
    ) -> Result<Steward, NoStart> {
        let town = self.town.as_ref().expect("members change");
        let (first, node) = (Arc::clone(&town.first), node_of(member));
        let url = town.machines[member].url.clone();
        let stored = match read(store, OWN_KEY)? {
            Some(bytes) => OwnNote::decode(&bytes).ok_or(NoStart::Later)?,
            None => found(store, &first, node, &url, wall_ms)?,
        };
        let mut records = epochs(store, 0, usize::MAX);
        if records.is_none() && self.members[member].is_scrubbed {
            records = one_by_one(store, 0, stored.home.fence);
        }
        let records = records.ok_or(NoStart::Later)?;
        let newest = records.last().ok_or(NoStart::Later)?;
        let resumed = stored.resume(node, newest, Some("sim"), None);
        let (own, id) = resumed.map_err(|why| NoStart::Ended(why.to_string()))?;
        let vote = match read(store, VOTE_KEY)? {
            Some(bytes) => Some(VoteNote::decode(&bytes).map_err(|_| NoStart::Later)?),
            None => None,
        };
        let hlc = store.hlc_floor() + 1;
        keep(store, &[note(OWN_KEY, &own.encode(), hlc, 0)], wall_ms)?;
        let changes = self.plan.changes.as_ref().expect("members change");
        let known = records.len().saturating_sub(HISTORY);
        let steward = Steward::open(StewardStart {
            me: ChainPeer { member: id, node },
            records: records
                .into_iter()
                .skip(known)
                .map(|r| (r, wall_ms))
                .collect(),
            fence: own.home.fence,
            vote,
            release: "sim".to_owned(),
            versions: ClusterVersions::OWN,
            load_bytes_per_second: changes.load_bytes_per_second,
            side_by_side: changes.side_by_side,
            forget_every_us: changes.forget_every_us,
            replace_patience_us: 0,
            seed: self.prng.next_u64(),
        });
        let mut steward = steward.map_err(|bad| NoStart::Ended(bad.to_string()))?;
        if changes.loss.is_some()
            && let Some(bytes) = read(store, LOSSES_KEY)?
        {
            let losses = AcceptedLoss::decode_all(&bytes).ok_or(NoStart::Later)?;
            steward.resume_losses(losses);
        }
        let record = Arc::clone(steward.record());
        // The note may have reached the disk although the process was not told.
        self.check_epoch(member, &record);
        Ok(steward)
    }

    /// A start led to no process.
    pub(in crate::world) fn no_start(&mut self, member: usize, incarnation: u64, why: NoStart) {
        match why {
            // As where the folder does not open: damage that is found at the start was detected.
            NoStart::Later if self.members[member].is_rotten => {
                self.members[member].is_lost = true;
            }
            NoStart::Later => {
                let start = Happening::Start {
                    member,
                    incarnation,
                };
                self.schedule.after(AGAIN_US, start);
            }
            NoStart::Ended(why) => {
                let at_us = self.now_us();
                self.trace
                    .line(at_us, || format!("m{member} never starts again: {why}"));
                self.has_ended(member);
            }
        }
    }

    /// Begins without links, as the server's agents do.
    pub(in crate::world) fn begin_without_links(&mut self, member: usize) {
        let own = self.index_at(member, 0, member);
        for lane in 0..self.members[member].lanes.len() {
            let layout = Arc::clone(&self.lane(member, lane).layout);
            for place in layout.members().filter(|place| Some(*place) != own) {
                let down = Event::Link {
                    member: place,
                    is_up: false,
                };
                self.give(member, lane, down);
            }
        }
    }

    pub(in crate::world) fn first_look(&mut self, member: usize) {
        let incarnation = self.members[member].incarnation;
        let look = Happening::Look {
            member,
            incarnation,
        };
        let delay_us = self.prng.below(LOOK_US);
        self.schedule.after(delay_us, look);
    }

    /// A process was told that it was removed.
    pub(in crate::world) fn end_for_ever(&mut self, member: usize) {
        self.has_ended(member);
        self.crash(member, crate::store::Crash::Killed, 0);
    }

    fn has_ended(&mut self, member: usize) {
        let newest = self.town.as_ref().map(|town| Arc::clone(town.record()));
        let node = node_of(member);
        let is_member = newest.is_some_and(|r| r.members().iter().any(|m| m.node == node));
        if is_member {
            let what = format!("m{member} ends for ever, and is a member");
            self.violate(Rule::Epochs, what);
        }
        if let Some(town) = &mut self.town {
            town.machines[member].standing = MachineStanding::Ended;
        }
    }

    /// A further machine with an empty disk, at a new address.
    pub(super) fn add_machine(&mut self, replaces: Option<usize>) -> Option<usize> {
        self.add_machine_at(replaces, None)
    }

    /// Adds a machine at this address.
    pub(super) fn add_machine_at(
        &mut self,
        replaces: Option<usize>,
        address: Option<String>,
    ) -> Option<usize> {
        let shape = &self.plan.shape;
        let at = self.members.len();
        if at >= crate::changes::MACHINES_MAX {
            return None;
        }
        let clock = Clock::new(at, shape.skew_ms[at], shape.drift_ppm[at]);
        self.members
            .push(SimulatedMember::new(clock, Disk::new(shape.store)));
        if let Some(town) = &mut self.town {
            let standing = MachineStanding::Joins { replaces };
            let url = address.unwrap_or_else(|| url(at));
            town.machines.push(TownMachine::new(url, standing));
        }
        self.schedule.after(1, Happening::Knock { joiner: at });
        Some(at)
    }

    /// A joiner asks a member.
    pub(in crate::world) fn knocks(&mut self, joiner: usize) {
        let Some(town) = &self.town else {
            return;
        };
        let machine = &town.machines[joiner];
        let MachineStanding::Joins { replaces } = &machine.standing else {
            return;
        };
        let request = EnrolRequest {
            cluster: "sim".to_owned(),
            node: node_of(joiner),
            place: Listed::new(&machine.url).expect("an address"),
            replaces: replaces.map(|of| self.url_of(of)),
        };
        let hosts: Vec<usize> = (0..self.members.len())
            .filter(|&at| self.members[at].home.is_some())
            .collect();
        self.schedule.after(KNOCK_US, Happening::Knock { joiner });
        if hosts.is_empty() {
            return;
        }
        let host = hosts[self.prng.below(hosts.len() as u64) as usize];
        let mut frame = Vec::new();
        peer::encode_enrol(&mut frame, &mut Seal::plain(), &request.encode());
        let delay_us = self.letter_delay_us();
        let knocked = Happening::Knocked {
            joiner,
            host,
            frame: frame.into(),
        };
        self.schedule.after(delay_us, knocked);
    }

    fn letter_delay_us(&mut self) -> u64 {
        let shape = &self.plan.shape;
        shape.delay_min_us + self.prng.below(shape.delay_spread_us)
    }

    /// A joiner's question arrives.
    pub(in crate::world) fn knocked(&mut self, joiner: usize, host: usize, frame: &Bytes) {
        let Ok(Message::Enrol(body)) = peer::decode(frame, &mut Seal::plain()) else {
            return self.violate(Rule::WrongValue, "a joiner's question cannot be read");
        };
        let Ok(request) = EnrolRequest::decode(&body) else {
            return self.violate(Rule::WrongValue, "a joiner's question cannot be read");
        };
        let ticket = joiner as u64;
        self.tell_steward(host, StewardEvent::Enrol { ticket, request });
    }

    pub(super) fn answer_joiner(&mut self, joiner: usize, answer: &EnrolAnswer) {
        let mut frame = Vec::new();
        peer::encode_enrolment(&mut frame, &mut Seal::plain(), &answer.encode());
        let delay_us = self.letter_delay_us();
        let answered = Happening::Answered {
            joiner,
            frame: frame.into(),
        };
        self.schedule.after(delay_us, answered);
    }

    /// A joiner is answered.
    pub(in crate::world) fn joiner_hears(&mut self, joiner: usize, frame: &Bytes) {
        let is_waiting = self.town.as_ref().is_some_and(|town| {
            matches!(
                town.machines[joiner].standing,
                MachineStanding::Joins { .. }
            )
        });
        let Ok(Message::Enrolment(body)) = peer::decode(frame, &mut Seal::plain()) else {
            return self.violate(Rule::WrongValue, "a joiner's answer cannot be read");
        };
        let Ok(answer) = EnrolAnswer::decode(&body) else {
            return self.violate(Rule::WrongValue, "a joiner's answer cannot be read");
        };
        let at_us = self.now_us();
        self.trace
            .line(at_us, || format!("m{joiner} is answered {answer:?}"));
        match answer {
            EnrolAnswer::Enrolled { member, record } if is_waiting => {
                self.settle(joiner, member, &record);
            }
            EnrolAnswer::Refused { .. } if is_waiting => self.joiner_is_refused(joiner),
            _ => {}
        }
    }

    /// The operator tries again, unless the member that was to be replaced is back or gone. Nor
    /// does it if the plan that took the joiner in was cancelled before the joiner knew of it.
    fn joiner_is_refused(&mut self, joiner: usize) {
        let is_isolated = self.cuts.iter().any(|(cut, _)| World::is_isolation(*cut));
        let Some(town) = &mut self.town else {
            return;
        };
        let MachineStanding::Joins { replaces } = town.machines[joiner].standing else {
            return;
        };
        let node = node_of(joiner);
        let mut removed = town.record().removed().iter();
        let is_removed = removed.any(|gone| gone.node == node);
        let is_in_vain = replaces.is_some_and(|of| {
            let is_back = self.members[of].is_running() && !is_isolated;
            let id = town.machines[of].id;
            is_back || id.is_none_or(|id| town.record().member(id).is_none())
        });
        if is_removed || is_in_vain {
            town.machines[joiner].standing = MachineStanding::Ended;
        }
    }

    /// The folder of a joiner is this member's.
    fn settle(&mut self, joiner: usize, id: MemberId, record: &Arc<EpochRecord>) {
        let now_us = self.now_us();
        let it = &self.members[joiner];
        let wall_ms = it.clock.now(now_us).wall_ms;
        let identity = self.identity(joiner);
        let Ok(mut store) = Store::open(&it.disk, &self.plan.shape, identity) else {
            return self.violate(Rule::Lost, "an empty folder does not open");
        };
        let url = record.member(id).map(|member| member.place.url.clone());
        let own = own(node_of(joiner), &url.unwrap_or_default(), record, 0);
        let hlc = store.hlc_floor() + 1;
        let first = note(&epoch_key(record.epoch()), &record.encode(), hlc, 0);
        let own = note(OWN_KEY, &own.encode(), hlc + 1, 0);
        let kept = keep(&mut store, &[first], wall_ms);
        let kept = kept.and_then(|()| keep(&mut store, &[own], wall_ms));
        let disk = store.crash(crate::store::Crash::Killed, &[], wall_ms, &mut self.prng);
        self.members[joiner].disk = disk;
        if kept.is_err() {
            return;
        }
        if let Some(town) = &mut self.town {
            town.let_in(joiner, id);
        }
        let incarnation = self.members[joiner].incarnation;
        let start = Happening::Start {
            member: joiner,
            incarnation,
        };
        self.schedule.after(1_000, start);
    }
}

fn own(node: u128, url: &str, record: &EpochRecord, boot: u64) -> OwnNote {
    OwnNote {
        node,
        boot,
        home: FolderMembership {
            cluster: record.name().to_owned(),
            url: url.to_owned(),
            fence: record.epoch(),
            topology: "digest=0".to_owned(),
        },
    }
}

/// A founder's folder is new.
fn found(
    store: &mut Store,
    first: &EpochRecord,
    node: u128,
    url: &str,
    wall_ms: u64,
) -> Result<OwnNote, NoStart> {
    let own = own(node, url, first, 0);
    let hlc = store.hlc_floor() + 1;
    let epoch = note(&epoch_key(first.epoch()), &first.encode(), hlc, 0);
    keep(store, &[epoch], wall_ms)?;
    keep(store, &[note(OWN_KEY, &own.encode(), hlc + 1, 0)], wall_ms)?;
    Ok(own)
}

fn keep(store: &mut Store, writes: &[StoreWrite], wall_ms: u64) -> Result<(), NoStart> {
    for write in writes {
        store.raise_hlc_ceiling(write.cell.version.hlc);
    }
    let (fate, results) = store.commit(writes, wall_ms);
    let is_kept = fate == Fate::Alive && results.iter().all(Result::is_ok);
    is_kept.then_some(()).ok_or(NoStart::Later)
}

fn read(store: &Store, key: &[u8]) -> Result<Option<Bytes>, NoStart> {
    let found = store.read(&Key::new(Space::Meta, key));
    let found = found.map_err(|_| NoStart::Later)?;
    Ok(found.map(|cell| cell.value))
}
