//! The bytes of a table of owners.
//!
#![doc = include_str!("../../../../../docs/format/owners.md")]

use super::{BadTable, MemberId, Moving, OwnerRow, OwnerTable, PARTITIONS_MAX};
use crate::limits::{MEMBERS_MAX, TABLE_MEMBERS_MAX};
use dendra_base::limits::VALUE_BYTES_MAX_LIMIT;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

const FORMAT: u8 = 1;
/// In place of a position: none moves. In place of a member: there is none.
const NONE: u8 = 0xff;
const CHECKSUM_BYTES: usize = 8;
/// Format, next number, number of members, number of partitions.
const HEAD_BYTES: usize = 1 + 4 + 1 + 2;
/// Number of owners, the moving position, its new owner.
const ROW_BYTES_MAX: usize = 1 + MEMBERS_MAX + 2;
pub(crate) const BYTES_MAX: usize =
    HEAD_BYTES + 4 * TABLE_MEMBERS_MAX + PARTITIONS_MAX * ROW_BYTES_MAX + CHECKSUM_BYTES;

const _: () = assert!(TABLE_MEMBERS_MAX < NONE as usize);
const _: () = assert!(
    BYTES_MAX < VALUE_BYTES_MAX_LIMIT,
    "the largest table fits in one record, and so in one frame between members"
);

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(b"dendra owners  1");
    hasher.write(bytes);
    hasher.finish()
}

impl OwnerTable {
    /// The table as bytes: equal tables have equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let place = |member: MemberId| {
            let at = self.members.binary_search(&member);
            let at = at.expect("an owner is a member of the table");
            u8::try_from(at).expect("a table has at most TABLE_MEMBERS_MAX members")
        };
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.next.to_le_bytes());
        out.push(self.members.len() as u8);
        for member in &self.members {
            out.extend_from_slice(&member.0.to_le_bytes());
        }
        out.extend_from_slice(&self.partitions().to_le_bytes());
        for row in &self.rows {
            out.push(row.owners.len() as u8);
            out.extend(row.owners.iter().map(|owner| place(*owner)));
            match row.moving {
                None => out.push(NONE),
                Some(moving) => out.extend([moving.position, moving.to.map_or(NONE, place)]),
            }
        }
        out.extend_from_slice(&checksum(&out).to_le_bytes());
        out
    }

    /// Reads the bytes of [`OwnerTable::encode`].
    ///
    /// # Errors
    /// When the bytes are no table that holds its invariants.
    pub fn decode(bytes: &[u8]) -> Result<OwnerTable, BadTable> {
        let format = *bytes.first().ok_or(BadTable::Length)?;
        if format != FORMAT {
            return Err(BadTable::Format { format });
        }
        let (body, sum) = bytes.split_last_chunk().ok_or(BadTable::Length)?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return Err(BadTable::Checksum);
        }
        let mut rest = body.get(1..).ok_or(BadTable::Length)?;
        let next = u32::from_le_bytes(take(&mut rest)?);
        let [count] = take(&mut rest)?;
        if !(1..=TABLE_MEMBERS_MAX).contains(&usize::from(count)) {
            return Err(BadTable::Members);
        }
        let mut members = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            members.push(MemberId(u32::from_le_bytes(take(&mut rest)?)));
        }
        let partitions = u16::from_le_bytes(take(&mut rest)?);
        if usize::from(partitions) > PARTITIONS_MAX {
            let partitions = usize::from(partitions);
            return Err(BadTable::Partitions { partitions });
        }
        let mut rows = Vec::with_capacity(usize::from(partitions));
        for partition in 0..partitions {
            rows.push(row(&mut rest, partition, &members)?);
        }
        if !rest.is_empty() {
            return Err(BadTable::Length);
        }
        let table = OwnerTable {
            next,
            members,
            rows,
        };
        table.checked()
    }

    /// The checksum of the bytes: names the table that a plan was made for.
    pub fn digest(&self) -> u64 {
        checksum(&self.encode())
    }
}

fn row(rest: &mut &[u8], partition: u16, members: &[MemberId]) -> Result<OwnerRow, BadTable> {
    let [count] = take(rest)?;
    if !(1..=MEMBERS_MAX).contains(&usize::from(count)) {
        return Err(BadTable::Owners { partition });
    }
    let mut owners = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let [at] = take(rest)?;
        let owner = members.get(usize::from(at));
        owners.push(*owner.ok_or(BadTable::Owners { partition })?);
    }
    let [position] = take(rest)?;
    if position == NONE {
        let moving = None;
        return Ok(OwnerRow { owners, moving });
    }
    let to = match take(rest)? {
        [NONE] => None,
        [at] => Some(
            *members
                .get(usize::from(at))
                .ok_or(BadTable::Moving { partition })?,
        ),
    };
    let moving = Some(Moving {
        position,
        from: owners.get(usize::from(position)).copied(),
        to,
    });
    Ok(OwnerRow { owners, moving })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadTable> {
    let (head, rest) = bytes.split_first_chunk().ok_or(BadTable::Length)?;
    *bytes = rest;
    Ok(*head)
}
