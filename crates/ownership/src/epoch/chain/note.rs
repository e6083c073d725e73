//! The bytes of a member's vote for the next epoch.
//!
//! ```text
//! format 1 | epoch 8 | round 8, member 4 | removed 8 | 0, or 1, round 8, member 4, record … | checksum 8
//! ```
//!
//! Invariants
//! 1. Equal notes have equal bytes.
//! 2. An accepted record is of the epoch that the note is for, under a ballot that is not above the
//!    promise.
//!
//! Not here: the bytes of the record (`record/codec.rs`).
//! See: docs/format/epochs.md.

use super::messages::{AcceptedRecord, EpochBallot, VoteNote};
use crate::epoch::record::{BadRecord, EpochRecord};
use crate::ring::table::MemberId;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::Arc;

const FORMAT: u8 = 1;

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(b"dendra vote    1");
    hasher.write(bytes);
    hasher.finish()
}

impl VoteNote {
    /// The note as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.epoch.to_le_bytes());
        put_ballot(&mut out, self.promised);
        out.extend_from_slice(&self.removed.to_le_bytes());
        out.push(u8::from(self.accepted.is_some()));
        if let Some(accepted) = &self.accepted {
            put_ballot(&mut out, accepted.ballot);
            out.extend_from_slice(&accepted.record.encode());
        }
        out.extend_from_slice(&checksum(&out).to_le_bytes());
        out
    }

    /// Reads the bytes of [`VoteNote::encode`].
    ///
    /// # Errors
    /// When the bytes are no note that holds its invariants.
    pub fn decode(bytes: &[u8]) -> Result<VoteNote, BadRecord> {
        let format = *bytes.first().ok_or(BadRecord::Length)?;
        if format != FORMAT {
            return Err(BadRecord::Format { format });
        }
        let (body, sum) = bytes.split_last_chunk().ok_or(BadRecord::Length)?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return Err(BadRecord::Checksum);
        }
        let mut rest = body.get(1..).ok_or(BadRecord::Length)?;
        let epoch = u64::from_le_bytes(take(&mut rest)?);
        let promised = ballot(&mut rest)?;
        let removed = u64::from_le_bytes(take(&mut rest)?);
        let accepted = match take(&mut rest)? {
            [0] if rest.is_empty() => None,
            [0] => return Err(BadRecord::Length),
            [1] => Some(AcceptedRecord {
                ballot: ballot(&mut rest)?,
                record: Arc::new(EpochRecord::decode(rest)?),
            }),
            _ => return Err(BadRecord::Field { field: "vote" }),
        };
        let is_fit = |a: &AcceptedRecord| a.ballot <= promised && a.record.epoch() == epoch;
        if !accepted.as_ref().is_none_or(is_fit) {
            return Err(BadRecord::Field { field: "vote" });
        }
        Ok(VoteNote {
            epoch,
            promised,
            accepted,
            removed,
        })
    }
}

fn put_ballot(out: &mut Vec<u8>, ballot: EpochBallot) {
    out.extend_from_slice(&ballot.round.to_le_bytes());
    out.extend_from_slice(&ballot.member.0.to_le_bytes());
}

fn ballot(rest: &mut &[u8]) -> Result<EpochBallot, BadRecord> {
    Ok(EpochBallot {
        round: u64::from_le_bytes(take(rest)?),
        member: MemberId(u32::from_le_bytes(take(rest)?)),
    })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadRecord> {
    let (head, rest) = bytes.split_first_chunk().ok_or(BadRecord::Length)?;
    *bytes = rest;
    Ok(*head)
}
