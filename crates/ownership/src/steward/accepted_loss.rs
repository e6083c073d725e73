//! Losses that operators accepted at this member, as the folder remembers them.
//!
//! Invariants
//! 1. Bytes that are cut, longer, or of another format are no note: no part of them is taken.
//!
//! Not here: the order (`losses.rs`).
//! See: docs/format/notes.md.

use super::codec::{ended, member, put_text, put_u64, take, text, u64_of};
use super::draft_id::DraftId;
use crate::limits::{LOSS_BLOCKS_MAX, LOSSES_KEPT_MAX, MEMBERS_MAX};
use crate::ring::table::MemberId;

/// The format of the note in a folder.
const FORMAT: u8 = 1;

/// A loss that an operator has accepted at this member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// The id that was confirmed.
    pub id: DraftId,
    /// Milliseconds since 1970.
    pub accepted_ms: u64,
    /// The newest epoch then.
    pub epoch: u64,
    /// The plan that took the lost members away: `PlanUnderWay::id`.
    pub plan: u64,
    /// In how many partitions.
    pub partitions: u16,
    /// The lost members: numbers and addresses.
    pub without: Vec<(MemberId, String)>,
    /// Marks of the damaged blocks.
    pub blocks: Vec<u64>,
}

impl AcceptedLoss {
    /// All of them as the bytes of a note.
    pub fn encode_all(losses: &[AcceptedLoss]) -> Vec<u8> {
        let count = |count: usize| u16::try_from(count).expect("LOSSES_KEPT_MAX, LOSS_BLOCKS_MAX");
        let mut out = vec![FORMAT];
        out.extend_from_slice(&count(losses.len()).to_le_bytes());
        for loss in losses {
            for number in [loss.id.0, loss.accepted_ms, loss.epoch, loss.plan] {
                put_u64(&mut out, number);
            }
            out.extend_from_slice(&loss.partitions.to_le_bytes());
            out.extend_from_slice(&count(loss.without.len()).to_le_bytes());
            for (id, url) in &loss.without {
                out.extend_from_slice(&id.0.to_le_bytes());
                put_text(&mut out, url);
            }
            out.extend_from_slice(&count(loss.blocks.len()).to_le_bytes());
            for block in &loss.blocks {
                put_u64(&mut out, *block);
            }
        }
        out
    }

    /// Reads the bytes of [`AcceptedLoss::encode_all`]; `None` when they are no such bytes.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<AcceptedLoss>> {
        let mut rest = bytes;
        let [FORMAT] = take(&mut rest).ok()? else {
            return None;
        };
        let count = |from: &mut &[u8], most: usize| {
            let count = usize::from(u16::from_le_bytes(take(from).ok()?));
            (count <= most).then_some(count)
        };
        let mut losses = Vec::new();
        for _ in 0..count(&mut rest, LOSSES_KEPT_MAX)? {
            let id = DraftId(u64_of(&mut rest).ok()?);
            let (accepted_ms, epoch) = (u64_of(&mut rest).ok()?, u64_of(&mut rest).ok()?);
            let plan = u64_of(&mut rest).ok()?;
            let partitions = u16::from_le_bytes(take(&mut rest).ok()?);
            let (mut without, mut blocks) = (Vec::new(), Vec::new());
            for _ in 0..count(&mut rest, MEMBERS_MAX)? {
                without.push((member(&mut rest).ok()?, text(&mut rest).ok()?));
            }
            for _ in 0..count(&mut rest, LOSS_BLOCKS_MAX)? {
                blocks.push(u64_of(&mut rest).ok()?);
            }
            losses.push(AcceptedLoss {
                id,
                accepted_ms,
                epoch,
                plan,
                partitions,
                without,
                blocks,
            });
        }
        ended(rest).ok()?;
        Some(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_loss() -> impl Strategy<Value = AcceptedLoss> {
        let without = ("http://[a-z0-9.]{1,253}:[0-9]{1,5}", any::<u32>());
        let without = without.prop_map(|(url, id)| (MemberId(id), url));
        (
            any::<[u64; 4]>(),
            any::<u16>(),
            prop::collection::vec(without, 0..4),
            prop_oneof![
                prop::collection::vec(any::<u64>(), 0..9),
                prop::collection::vec(any::<u64>(), LOSS_BLOCKS_MAX),
            ],
        )
            .prop_map(
                |([id, accepted_ms, epoch, plan], partitions, without, blocks)| AcceptedLoss {
                    id: DraftId(id),
                    accepted_ms,
                    epoch,
                    plan,
                    partitions,
                    without,
                    blocks,
                },
            )
    }

    proptest! {
        #[test]
        fn any_legal_note_of_losses_is_read_as_it_was_written(
            losses in prop::collection::vec(any_loss(), 0..=LOSSES_KEPT_MAX),
        ) {
            let bytes = AcceptedLoss::encode_all(&losses);
            prop_assert_eq!(AcceptedLoss::decode_all(&bytes), Some(losses));
        }
    }

    #[test]
    fn accepted_losses_are_read_as_they_were_written() {
        let loss = |id| AcceptedLoss {
            id: DraftId(id),
            accepted_ms: 1_700_000_000_000,
            epoch: 9,
            plan: 8,
            partitions: 256,
            without: vec![(MemberId(1), "http://h2:1".to_owned())],
            blocks: vec![7, u64::MAX],
        };
        let losses = [loss(1), loss(2)];
        let bytes = AcceptedLoss::encode_all(&losses);
        assert_eq!(
            AcceptedLoss::decode_all(&bytes).as_deref(),
            Some(&losses[..])
        );
        for end in 0..bytes.len() {
            assert_eq!(AcceptedLoss::decode_all(&bytes[..end]), None, "{end} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(AcceptedLoss::decode_all(&longer), None);
        let later = [&[FORMAT + 1], &bytes[1..]].concat();
        assert_eq!(AcceptedLoss::decode_all(&later), None);
    }
}
