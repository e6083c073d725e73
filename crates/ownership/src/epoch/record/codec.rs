//! The bytes of an epoch's record.
//!
#![doc = include_str!("../../../../../docs/format/epochs.md")]

use super::horizons::{FLOORS, Horizons};
use super::narrowing::Narrowing;
use super::{BadRecord, EpochChange, EpochMember, EpochRecord, MemberStatus};
use super::{PlanUnderWay, RemovedMember};
use crate::limits::{CLUSTER_NAME_BYTES_MAX, HOST_BYTES_MAX, PLAN_MOVES_MAX};
use crate::limits::{REMOVED_MEMBERS_MAX, TABLE_MEMBERS_MAX, ZONE_BYTES_MAX};
use crate::ring::Partition;
use crate::ring::table::{MemberId, Move, Moving, OwnerTable, TABLE_BYTES_MAX};
use crate::topology::Member;
use dendra_base::limits::VALUE_BYTES_MAX_LIMIT;
use dendra_base::{ClusterVersion, LeastSuccessor};
use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use std::hash::Hasher;

/// A record says its format first.
const FORMAT: u8 = 1;
/// In place of a member of a move: there is none.
const NONE: u8 = 0xff;
const CHECKSUM_BYTES: usize = 8;
/// `http://`, a host in brackets, a colon and a port.
const URL_BYTES_MAX: usize = HOST_BYTES_MAX + 15;
const HEAD_BYTES_MAX: usize =
    1 + 2 + 8 * FLOORS + NARROWING_BYTES + 4 + 8 + 8 + 16 + 1 + 1 + 4 + 1 + CLUSTER_NAME_BYTES_MAX;
const NARROWING_BYTES: usize = 8 + 1 + 1 + 1;
const MEMBER_BYTES_MAX: usize = 4 + 16 + 1 + 2 + 2 + URL_BYTES_MAX + 1 + ZONE_BYTES_MAX;
const REMOVED_BYTES: usize = 4 + 16 + 8;
const PLAN_HEAD_BYTES: usize = 1 + 8 + 4 + 1 + 1 + 8 + 4 + 4;
const MOVE_BYTES: usize = 2 + 1 + 1 + 1;
pub(crate) const RECORD_BYTES_MAX: usize = HEAD_BYTES_MAX
    + 1
    + MEMBER_BYTES_MAX * TABLE_MEMBERS_MAX
    + 2
    + REMOVED_BYTES * REMOVED_MEMBERS_MAX
    + 4
    + TABLE_BYTES_MAX
    + PLAN_HEAD_BYTES
    + MOVE_BYTES * PLAN_MOVES_MAX
    + CHECKSUM_BYTES;

const _: () = assert!(
    RECORD_BYTES_MAX < VALUE_BYTES_MAX_LIMIT / 2,
    "the largest record fits in one record of the folder, also as a proposal, and in one frame"
);
const _: () =
    assert!(REMOVED_MEMBERS_MAX <= u16::MAX as usize && TABLE_MEMBERS_MAX < NONE as usize);

const CHANGES: [EpochChange; 11] = [
    EpochChange::Founded,
    EpochChange::Enrolled,
    EpochChange::Planned,
    EpochChange::Moved,
    EpochChange::Cancelled,
    EpochChange::Finished,
    EpochChange::Readdressed,
    EpochChange::Rekeyed,
    EpochChange::Finalized,
    EpochChange::Forgot,
    EpochChange::Restored,
];
const STATUSES: [MemberStatus; 3] = [
    MemberStatus::Joining,
    MemberStatus::Member,
    MemberStatus::Leaving,
];

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(b"dendra epochs  1");
    hasher.write(bytes);
    hasher.finish()
}

fn code<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let at = all.iter().position(|other| other == one);
    at.expect("the list names every variant") as u8
}

impl EpochRecord {
    /// The record as bytes: equal records have equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.push(FORMAT);
        out.extend_from_slice(&self.in_force.0.to_le_bytes());
        for floor in self.horizons.floors {
            out.extend_from_slice(&floor.to_le_bytes());
        }
        let narrowing = &self.narrowing;
        out.extend_from_slice(&narrowing.age.to_le_bytes());
        out.extend([narrowing.copies, narrowing.before, narrowing.steps_left]);
        out.extend_from_slice(&self.least_successor.number().to_le_bytes());
        out.extend_from_slice(&self.cluster().to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.previous.to_le_bytes());
        out.push(code(&CHANGES, &self.change));
        out.push(self.replication_factor);
        out.extend_from_slice(&self.secrets.to_le_bytes());
        out.push(self.name.len() as u8);
        out.extend_from_slice(self.name.as_bytes());
        out.push(self.members.len() as u8);
        for member in &self.members {
            out.extend_from_slice(&member.id.0.to_le_bytes());
            out.extend_from_slice(&member.node.to_le_bytes());
            out.push(code(&STATUSES, &member.status));
            out.extend_from_slice(&member.place.weight.to_le_bytes());
            out.extend_from_slice(&(member.place.url.len() as u16).to_le_bytes());
            out.extend_from_slice(member.place.url.as_bytes());
            out.push(member.place.zone.len() as u8);
            out.extend_from_slice(member.place.zone.as_bytes());
        }
        out.extend_from_slice(&(self.removed.len() as u16).to_le_bytes());
        for removed in &self.removed {
            out.extend_from_slice(&removed.id.0.to_le_bytes());
            out.extend_from_slice(&removed.node.to_le_bytes());
            out.extend_from_slice(&removed.epoch.to_le_bytes());
        }
        let owners = self.owners.encode();
        out.extend_from_slice(&(owners.len() as u32).to_le_bytes());
        out.extend_from_slice(&owners);
        out.push(u8::from(self.plan.is_some()));
        if let Some(plan) = &self.plan {
            self.encode_plan(plan, &mut out);
        }
        out.extend_from_slice(&checksum(&out).to_le_bytes());
        debug_assert!(out.len() <= RECORD_BYTES_MAX);
        out
    }

    fn encode_plan(&self, plan: &PlanUnderWay, out: &mut Vec<u8>) {
        let place = |member: Option<MemberId>| {
            let Some(member) = member else { return NONE };
            let at = self.members.binary_search_by_key(&member, |m| m.id);
            at.expect("a move names members of its record") as u8
        };
        out.extend_from_slice(&plan.id.to_le_bytes());
        out.extend_from_slice(&plan.author.0.to_le_bytes());
        out.push(u8::from(plan.is_cancelled));
        out.push(plan.replication_factor);
        out.extend_from_slice(&plan.target.to_le_bytes());
        out.extend_from_slice(&(plan.begun as u32).to_le_bytes());
        out.extend_from_slice(&(plan.moves.len() as u32).to_le_bytes());
        for step in &plan.moves {
            out.extend_from_slice(&step.partition.0.to_le_bytes());
            out.push(step.moving.position);
            out.extend([place(step.moving.from), place(step.moving.to)]);
        }
    }

    /// Reads the bytes of [`EpochRecord::encode`].
    ///
    /// # Errors
    /// When the bytes are no record that holds its invariants.
    pub fn decode(bytes: &[u8]) -> Result<EpochRecord, BadRecord> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BadRecord::Length);
        }
        // Every format ends with the checksum: damage is not taken for a later one.
        let (body, sum) = bytes.split_last_chunk().ok_or(BadRecord::Length)?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return Err(BadRecord::Checksum);
        }
        let format = *body.first().ok_or(BadRecord::Length)?;
        if format != FORMAT {
            return Err(BadRecord::Format { format });
        }
        let mut rest = body.get(1..).ok_or(BadRecord::Length)?;
        let in_force = ClusterVersion(u16::from_le_bytes(take(&mut rest)?));
        let mut horizons = Horizons::default();
        for floor in &mut horizons.floors {
            *floor = u64::from_le_bytes(take(&mut rest)?);
        }
        let age = u64::from_le_bytes(take(&mut rest)?);
        let [copies, before, steps_left] = take(&mut rest)?;
        let narrowing = Narrowing {
            age,
            copies,
            before,
            steps_left,
        };
        let least_successor = LeastSuccessor::new(u32::from_le_bytes(take(&mut rest)?));
        let field = "least successor number";
        let least_successor = least_successor.ok_or(BadRecord::Field { field })?;
        let cluster = u64::from_le_bytes(take(&mut rest)?);
        let epoch = u64::from_le_bytes(take(&mut rest)?);
        let previous = u128::from_le_bytes(take(&mut rest)?);
        let change = one_of(&CHANGES, &mut rest, "change")?;
        let [replication_factor] = take(&mut rest)?;
        let secrets = u32::from_le_bytes(take(&mut rest)?);
        let [length] = take(&mut rest)?;
        let name = text(&mut rest, usize::from(length), "name")?;
        let [count] = take(&mut rest)?;
        let mut members = Vec::with_capacity(usize::from(count).min(TABLE_MEMBERS_MAX));
        for _ in 0..count {
            members.push(member(&mut rest)?);
        }
        let removed_count = u16::from_le_bytes(take(&mut rest)?);
        if usize::from(removed_count) > REMOVED_MEMBERS_MAX {
            return Err(BadRecord::Removed);
        }
        let mut removed = Vec::new();
        for _ in 0..removed_count {
            removed.push(RemovedMember {
                id: MemberId(u32::from_le_bytes(take(&mut rest)?)),
                node: u128::from_le_bytes(take(&mut rest)?),
                epoch: u64::from_le_bytes(take(&mut rest)?),
            });
        }
        let owners_length = u32::from_le_bytes(take(&mut rest)?);
        let owners = OwnerTable::decode(part(&mut rest, owners_length as usize)?)?;
        let plan = match take(&mut rest)? {
            [0] => None,
            [1] => Some(plan(&mut rest, &members)?),
            _ => return Err(BadRecord::Field { field: "plan" }),
        };
        if !rest.is_empty() {
            return Err(BadRecord::Length);
        }
        let record = EpochRecord {
            name,
            epoch,
            previous,
            change,
            members,
            removed,
            replication_factor,
            owners,
            plan,
            secrets,
            in_force,
            horizons,
            narrowing,
            least_successor,
        };
        if record.cluster() != cluster {
            return Err(BadRecord::Field { field: "cluster" });
        }
        record.checked()
    }

    /// Names the record in the one that follows it: 128 bits of its bytes.
    pub fn digest(&self) -> u128 {
        let mut hasher = SipHasher13Wide::new_with_key(b"dendra chain   1");
        hasher.write(&self.encode());
        hasher.finish128().as_u128().max(1)
    }
}

fn member(rest: &mut &[u8]) -> Result<EpochMember, BadRecord> {
    let id = MemberId(u32::from_le_bytes(take(rest)?));
    let node = u128::from_le_bytes(take(rest)?);
    let status = one_of(&STATUSES, rest, "status")?;
    let weight = u16::from_le_bytes(take(rest)?);
    let url_length = u16::from_le_bytes(take(rest)?);
    let url = text(rest, usize::from(url_length), "address")?;
    let [zone_length] = take(rest)?;
    let zone = text(rest, usize::from(zone_length), "zone")?;
    Ok(EpochMember {
        id,
        node,
        status,
        place: Member { url, weight, zone },
    })
}

fn plan(rest: &mut &[u8], members: &[EpochMember]) -> Result<PlanUnderWay, BadRecord> {
    let place = |at: u8| match at {
        NONE => Ok(None),
        at => match members.get(usize::from(at)) {
            Some(member) => Ok(Some(member.id)),
            None => Err(BadRecord::Plan),
        },
    };
    let id = u64::from_le_bytes(take(rest)?);
    let author = MemberId(u32::from_le_bytes(take(rest)?));
    let is_cancelled = one_of(&[false, true], rest, "plan")?;
    let [replication_factor] = take(rest)?;
    let target = u64::from_le_bytes(take(rest)?);
    let begun = u32::from_le_bytes(take(rest)?) as usize;
    let count = u32::from_le_bytes(take(rest)?) as usize;
    if count > PLAN_MOVES_MAX || count * MOVE_BYTES > rest.len() {
        return Err(BadRecord::Plan);
    }
    let mut moves = Vec::with_capacity(count);
    for _ in 0..count {
        let partition = Partition(u16::from_le_bytes(take(rest)?));
        let [position, from, to] = take(rest)?;
        let moving = Moving {
            position,
            from: place(from)?,
            to: place(to)?,
        };
        moves.push(Move { partition, moving });
    }
    Ok(PlanUnderWay {
        id,
        author,
        is_cancelled,
        replication_factor,
        target,
        moves,
        begun,
    })
}

fn one_of<T: Copy>(all: &[T], rest: &mut &[u8], field: &'static str) -> Result<T, BadRecord> {
    let [code] = take(rest)?;
    let found = all.get(usize::from(code)).copied();
    found.ok_or(BadRecord::Field { field })
}

fn text(rest: &mut &[u8], length: usize, field: &'static str) -> Result<String, BadRecord> {
    let text = std::str::from_utf8(part(rest, length)?);
    text.map(str::to_owned)
        .map_err(|_| BadRecord::Field { field })
}

fn part<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], BadRecord> {
    let (head, tail) = rest.split_at_checked(length).ok_or(BadRecord::Length)?;
    *rest = tail;
    Ok(head)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadRecord> {
    let (head, rest) = bytes.split_first_chunk().ok_or(BadRecord::Length)?;
    *bytes = rest;
    Ok(*head)
}
