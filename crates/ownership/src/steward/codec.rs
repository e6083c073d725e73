//! The bytes of the messages of stewards, as the body of a frame.
//!
//! | kind | message | body |
//! |---:|---|---|
//! | 1, 2 | Prepare, Accepted | epoch 8, ballot |
//! | 3 | Outbid | epoch 8, ballot |
//! | 4 | Promise | epoch 8, ballot, 0, or 1 and ballot and record |
//! | 5 | Accept | ballot, record |
//! | 6 | Chosen | count 2, records |
//! | 7, 8 | At, Learn | epoch 8 |
//! | 9 | Removed | record |
//! | 16 | Progress | epoch 8, stored 8, loaded 8, rate 8, release, 1 = disk full, count 4, moves, horizon, count 1, numbers of members that it reaches (4 each) |
//! | 17 | Throttle | bytes a second 8, when it was ordered 8 |
//! | 32 | EnrolRequest | cluster, node 16, address, weight 2, zone, replaced address |
//! | 33 | Enrolled | number 4, record |
//! | 34, 35 | Wait, Refused | sentence |
//!
//! A ballot is its round (8) and the number of the proposer (4). A record is its length (4) and
//! bytes, a text its length (2) and UTF-8. A move is the plan (8), partition (2), position (1), old
//! and new owner (4 each, `ffffffff` = none). A horizon is 0 and the clock (8) of a member that
//! confirms the epoch, or the reason why it does not. Reasons: 1 = operations under way, 2 = hints,
//! 3 = damage, 4 = a comparison with a member (4), 5 = strays, 6 = a restore, 7 = not known yet.
//! Integers are little-endian.
//!
//! Invariants
//! 1. Reading makes no more than the bytes hold.
//!
//! Not here: the frame with its checksum (crate `wire`), records (`epoch/record/codec.rs`).
//! See: docs/peer.md.

use super::messages::{
    EnrolAnswer, EnrolRequest, ForgetNews, LoadGauges, MemberProgress, StewardMessage,
    ThrottleOrder,
};
use crate::confirmed::{Confirmed, HeldBack};
use crate::epoch::chain::{AcceptedRecord, ChainMessage, EpochBallot};
use crate::epoch::drive::MoveArrived;
use crate::epoch::record::EpochRecord;
use crate::limits::{EPOCH_PAGE_RECORDS_MAX, MEMBERS_MAX, RELEASE_BYTES_MAX};
use crate::ring::Partition;
use crate::ring::table::{MemberId, Move, Moving};
use crate::topology::Member;
use dendra_base::clock::CLOCK_END;
use std::sync::Arc;

const PREPARE: u8 = 1;
const ACCEPTED: u8 = 2;
const OUTBID: u8 = 3;
const PROMISE: u8 = 4;
const ACCEPT: u8 = 5;
const CHOSEN: u8 = 6;
const AT: u8 = 7;
const LEARN: u8 = 8;
const REMOVED: u8 = 9;
const PROGRESS: u8 = 16;
const THROTTLE: u8 = 17;
const ENROL: u8 = 32;
const ENROLLED: u8 = 33;
const WAIT: u8 = 34;
const REFUSED: u8 = 35;

/// In place of a member's number: there is none.
const NONE: u32 = u32::MAX;
const CONFIRMED: u8 = 0;
const UNDER_WAY: u8 = 1;
const HINTS: u8 = 2;
const DAMAGE: u8 = 3;
const COMPARISON: u8 = 4;
const STRAYS: u8 = 5;
const RESTORE: u8 = 6;
const UNTOLD: u8 = 7;
const MOVE_BYTES: usize = 8 + 2 + 1 + 4 + 4;
const SENTENCE_BYTES_MAX: usize = 4_096;

/// A value of this page that cannot be read.
pub(super) type Unreadable = &'static str;

impl StewardMessage {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            StewardMessage::Chain(message) => put_chain(&mut out, message),
            StewardMessage::Progress(progress) => put_progress(&mut out, progress),
            StewardMessage::Throttle(order) => {
                out.push(THROTTLE);
                out.extend_from_slice(&order.encode());
            }
        }
        out
    }

    /// Reads the bytes of [`StewardMessage::encode`].
    ///
    /// # Errors
    /// The part that is missing or wrong.
    pub fn decode(bytes: &[u8]) -> Result<StewardMessage, &'static str> {
        let mut rest = bytes;
        let [kind] = take(&mut rest)?;
        let message = match kind {
            PROGRESS => StewardMessage::Progress(progress(&mut rest)?),
            THROTTLE => StewardMessage::Throttle(throttle(&mut rest)?),
            kind => StewardMessage::Chain(chain(kind, &mut rest)?),
        };
        ended(rest).map(|()| message)
    }
}

impl ThrottleOrder {
    /// The order as bytes, for a message and for a note.
    pub fn encode(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.bytes_per_second.to_le_bytes());
        out[8..].copy_from_slice(&self.ordered_ms.to_le_bytes());
        out
    }

    /// Reads the bytes of [`ThrottleOrder::encode`].
    pub fn decode(bytes: &[u8]) -> Option<ThrottleOrder> {
        let mut rest = bytes;
        let order = throttle(&mut rest).ok()?;
        rest.is_empty().then_some(order)
    }
}

fn throttle(rest: &mut &[u8]) -> Result<ThrottleOrder, Unreadable> {
    Ok(ThrottleOrder {
        bytes_per_second: u64_of(rest)?.max(1),
        ordered_ms: u64_of(rest)?,
    })
}

impl EnrolRequest {
    /// The request as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![ENROL];
        put_text(&mut out, &self.cluster);
        out.extend_from_slice(&self.node.to_le_bytes());
        put_text(&mut out, &self.place.url);
        out.extend_from_slice(&self.place.weight.to_le_bytes());
        put_text(&mut out, &self.place.zone);
        put_text(&mut out, self.replaces.as_deref().unwrap_or_default());
        out
    }

    /// Reads the bytes of [`EnrolRequest::encode`].
    ///
    /// # Errors
    /// The part that is missing or wrong.
    pub fn decode(bytes: &[u8]) -> Result<EnrolRequest, &'static str> {
        let mut rest = bytes;
        let [ENROL] = take(&mut rest)? else {
            return Err("a request to join");
        };
        let request = EnrolRequest {
            cluster: text(&mut rest)?,
            node: u128::from_le_bytes(take(&mut rest)?),
            place: Member {
                url: text(&mut rest)?,
                weight: u16::from_le_bytes(take(&mut rest)?),
                zone: text(&mut rest)?,
            },
            replaces: Some(text(&mut rest)?).filter(|url| !url.is_empty()),
        };
        ended(rest).map(|()| request)
    }
}

impl EnrolAnswer {
    /// The answer as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            EnrolAnswer::Enrolled { member, record } => {
                out.push(ENROLLED);
                out.extend_from_slice(&member.0.to_le_bytes());
                put_record(&mut out, record);
            }
            EnrolAnswer::Wait { why } => {
                out.push(WAIT);
                put_text(&mut out, why);
            }
            EnrolAnswer::Refused { why } => {
                out.push(REFUSED);
                put_text(&mut out, why);
            }
        }
        out
    }

    /// Reads the bytes of [`EnrolAnswer::encode`].
    ///
    /// # Errors
    /// The part that is missing or wrong.
    pub fn decode(bytes: &[u8]) -> Result<EnrolAnswer, &'static str> {
        let mut rest = bytes;
        let [kind] = take(&mut rest)?;
        let answer = match kind {
            ENROLLED => EnrolAnswer::Enrolled {
                member: member(&mut rest)?,
                record: record(&mut rest)?,
            },
            WAIT => EnrolAnswer::Wait {
                why: text(&mut rest)?,
            },
            REFUSED => EnrolAnswer::Refused {
                why: text(&mut rest)?,
            },
            _ => return Err("the kind"),
        };
        ended(rest).map(|()| answer)
    }
}

fn put_chain(out: &mut Vec<u8>, message: &ChainMessage) {
    let ballot_of = |to: &mut Vec<u8>, kind, epoch, ballot| {
        to.push(kind);
        put_u64(to, epoch);
        put_ballot(to, ballot);
    };
    match message {
        ChainMessage::Prepare { epoch, ballot } => ballot_of(out, PREPARE, *epoch, *ballot),
        ChainMessage::Accepted { epoch, ballot } => ballot_of(out, ACCEPTED, *epoch, *ballot),
        ChainMessage::Outbid { epoch, promised } => ballot_of(out, OUTBID, *epoch, *promised),
        ChainMessage::Promise {
            epoch,
            ballot,
            accepted,
        } => {
            ballot_of(out, PROMISE, *epoch, *ballot);
            out.push(u8::from(accepted.is_some()));
            if let Some(accepted) = accepted {
                put_ballot(out, accepted.ballot);
                put_record(out, &accepted.record);
            }
        }
        ChainMessage::Accept { ballot, record } => {
            out.push(ACCEPT);
            put_ballot(out, *ballot);
            put_record(out, record);
        }
        ChainMessage::Chosen { records } => {
            out.push(CHOSEN);
            out.extend_from_slice(&(records.len() as u16).to_le_bytes());
            for record in records {
                put_record(out, record);
            }
        }
        ChainMessage::At { epoch } => {
            out.push(AT);
            put_u64(out, *epoch);
        }
        ChainMessage::Learn { from } => {
            out.push(LEARN);
            put_u64(out, *from);
        }
        ChainMessage::Removed { record } => {
            out.push(REMOVED);
            put_record(out, record);
        }
    }
}

fn chain(kind: u8, rest: &mut &[u8]) -> Result<ChainMessage, Unreadable> {
    Ok(match kind {
        PREPARE => ChainMessage::Prepare {
            epoch: u64_of(rest)?,
            ballot: ballot(rest)?,
        },
        ACCEPTED => ChainMessage::Accepted {
            epoch: u64_of(rest)?,
            ballot: ballot(rest)?,
        },
        OUTBID => ChainMessage::Outbid {
            epoch: u64_of(rest)?,
            promised: ballot(rest)?,
        },
        PROMISE => ChainMessage::Promise {
            epoch: u64_of(rest)?,
            ballot: ballot(rest)?,
            accepted: match take(rest)? {
                [0] => None,
                [1] => Some(AcceptedRecord {
                    ballot: ballot(rest)?,
                    record: record(rest)?,
                }),
                _ => return Err("a promise"),
            },
        },
        ACCEPT => ChainMessage::Accept {
            ballot: ballot(rest)?,
            record: record(rest)?,
        },
        CHOSEN => {
            let count = usize::from(u16::from_le_bytes(take(rest)?));
            if count > EPOCH_PAGE_RECORDS_MAX {
                return Err("the number of epochs");
            }
            let records = (0..count).map(|_| record(rest));
            let records = records.collect::<Result<_, _>>()?;
            ChainMessage::Chosen { records }
        }
        AT => ChainMessage::At {
            epoch: u64_of(rest)?,
        },
        LEARN => ChainMessage::Learn {
            from: u64_of(rest)?,
        },
        REMOVED => ChainMessage::Removed {
            record: record(rest)?,
        },
        _ => return Err("the kind"),
    })
}

fn put_progress(out: &mut Vec<u8>, progress: &MemberProgress) {
    out.push(PROGRESS);
    put_u64(out, progress.epoch);
    put_u64(out, progress.gauges.stored_bytes);
    put_u64(out, progress.gauges.loaded_bytes);
    put_u64(out, progress.gauges.bytes_per_second);
    put_text(out, &progress.release);
    out.push(u8::from(progress.is_disk_full));
    out.extend_from_slice(&(progress.arrived.len() as u32).to_le_bytes());
    let id = |member: Option<MemberId>| member.map_or(NONE, |member| member.0).to_le_bytes();
    for MoveArrived { plan, step } in &progress.arrived {
        put_u64(out, *plan);
        out.extend_from_slice(&step.partition.0.to_le_bytes());
        out.push(step.moving.position);
        out.extend_from_slice(&id(step.moving.from));
        out.extend_from_slice(&id(step.moving.to));
    }
    put_forgets(out, progress.forgets);
    out.push(progress.reaches.len() as u8);
    for member in &progress.reaches {
        out.extend_from_slice(&member.0.to_le_bytes());
    }
}

fn reaches(rest: &mut &[u8]) -> Result<Vec<MemberId>, Unreadable> {
    let [count] = take(rest)?;
    if usize::from(count) > MEMBERS_MAX {
        return Err("the number of members that it reaches");
    }
    let members = (0..count).map(|_| member(rest));
    members.collect()
}

fn put_forgets(out: &mut Vec<u8>, news: Option<ForgetNews>) {
    let Some(news) = news else {
        return out.push(UNTOLD);
    };
    match news {
        Ok(confirmed) => {
            out.push(CONFIRMED);
            put_u64(out, confirmed.clock);
        }
        Err(HeldBack::UnderWay) => out.push(UNDER_WAY),
        Err(HeldBack::Hints) => out.push(HINTS),
        Err(HeldBack::Damage) => out.push(DAMAGE),
        Err(HeldBack::Comparison(peer)) => {
            out.push(COMPARISON);
            out.extend_from_slice(&peer.0.to_le_bytes());
        }
        Err(HeldBack::Strays) => out.push(STRAYS),
        Err(HeldBack::Restore) => out.push(RESTORE),
    }
}

fn forgets(rest: &mut &[u8], epoch: u64) -> Result<Option<ForgetNews>, Unreadable> {
    Ok(Some(match take(rest)? {
        [UNTOLD] => return Ok(None),
        [CONFIRMED] => Ok(Confirmed {
            epoch,
            clock: match u64_of(rest)? {
                clock if clock < CLOCK_END => clock,
                _ => return Err("the clock of a confirmation"),
            },
        }),
        [UNDER_WAY] => Err(HeldBack::UnderWay),
        [HINTS] => Err(HeldBack::Hints),
        [DAMAGE] => Err(HeldBack::Damage),
        [COMPARISON] => Err(HeldBack::Comparison(member(rest)?)),
        [STRAYS] => Err(HeldBack::Strays),
        [RESTORE] => Err(HeldBack::Restore),
        _ => return Err("what holds horizons back"),
    }))
}

fn progress(rest: &mut &[u8]) -> Result<MemberProgress, Unreadable> {
    let epoch = u64_of(rest)?;
    let gauges = LoadGauges {
        stored_bytes: u64_of(rest)?,
        loaded_bytes: u64_of(rest)?,
        bytes_per_second: u64_of(rest)?,
    };
    let release = text(rest)?;
    if release.len() > RELEASE_BYTES_MAX {
        return Err("the release");
    }
    let is_disk_full = match take(rest)? {
        [0] => false,
        [1] => true,
        _ => return Err("whether its disk is full"),
    };
    let count = u32::from_le_bytes(take(rest)?) as usize;
    if count > rest.len() / MOVE_BYTES {
        return Err("the number of moves");
    }
    let mut arrived = Vec::with_capacity(count);
    for _ in 0..count {
        let plan = u64_of(rest)?;
        let partition = Partition(u16::from_le_bytes(take(rest)?));
        let [position] = take(rest)?;
        let mut end = || Ok::<_, Unreadable>(Some(member(rest)?).filter(|id| id.0 != NONE));
        let moving = Moving {
            position,
            from: end()?,
            to: end()?,
        };
        let step = Move { partition, moving };
        arrived.push(MoveArrived { plan, step });
    }
    let forgets = forgets(rest, epoch)?;
    let reaches = reaches(rest)?;
    Ok(MemberProgress {
        forgets,
        reaches,
        epoch,
        arrived,
        gauges,
        release,
        is_disk_full,
    })
}

pub(super) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_ballot(out: &mut Vec<u8>, ballot: EpochBallot) {
    put_u64(out, ballot.round);
    out.extend_from_slice(&ballot.member.0.to_le_bytes());
}

fn put_record(out: &mut Vec<u8>, record: &EpochRecord) {
    let bytes = record.encode();
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&bytes);
}

/// Sentences are cut; addresses, names and zones are shorter.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut len = text.len().min(SENTENCE_BYTES_MAX);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

pub(super) fn u64_of(rest: &mut &[u8]) -> Result<u64, Unreadable> {
    Ok(u64::from_le_bytes(take(rest)?))
}

pub(super) fn member(rest: &mut &[u8]) -> Result<MemberId, Unreadable> {
    Ok(MemberId(u32::from_le_bytes(take(rest)?)))
}

fn ballot(rest: &mut &[u8]) -> Result<EpochBallot, Unreadable> {
    Ok(EpochBallot {
        round: u64_of(rest)?,
        member: member(rest)?,
    })
}

fn record(rest: &mut &[u8]) -> Result<Arc<EpochRecord>, Unreadable> {
    let length = u32::from_le_bytes(take(rest)?) as usize;
    let record = EpochRecord::decode(part(rest, length)?);
    record.map(Arc::new).map_err(|_| "the record of an epoch")
}

pub(super) fn text(rest: &mut &[u8]) -> Result<String, Unreadable> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let text = std::str::from_utf8(part(rest, length)?);
    text.map(str::to_owned).map_err(|_| "a text")
}

fn part<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Unreadable> {
    let (head, tail) = rest.split_at_checked(length).ok_or("the length")?;
    *rest = tail;
    Ok(head)
}

pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    let (head, rest) = bytes.split_first_chunk().ok_or("the length")?;
    *bytes = rest;
    Ok(*head)
}

pub(super) fn ended(rest: &[u8]) -> Result<(), Unreadable> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err("the length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PLAN_MOVES_MAX;
    use crate::topology::Topology;
    use proptest::prelude::*;

    fn any_ballot() -> impl Strategy<Value = EpochBallot> {
        let parts = (any::<u64>(), any_member());
        parts.prop_map(|(round, member)| EpochBallot { round, member })
    }

    fn any_member() -> impl Strategy<Value = MemberId> {
        (0..NONE).prop_map(MemberId)
    }

    fn any_record() -> impl Strategy<Value = Arc<EpochRecord>> {
        (1..5_u8, 1..4_u8, "[A-Za-z0-9._-]{1,64}").prop_map(|(members, copies, name)| {
            let member = |n| Member::new(&format!("http://h{n}:1")).expect("an address");
            let topology = Topology::new(&name, (0..members).map(member).collect(), copies);
            Arc::new(EpochRecord::founded(&topology.expect("a topology")))
        })
    }

    fn any_chain() -> impl Strategy<Value = ChainMessage> {
        let accepted = (any_ballot(), any_record());
        let accepted = accepted.prop_map(|(ballot, record)| AcceptedRecord { ballot, record });
        let at = || (any::<u64>(), any_ballot());
        prop_oneof![
            at().prop_map(|(epoch, ballot)| ChainMessage::Prepare { epoch, ballot }),
            at().prop_map(|(epoch, ballot)| ChainMessage::Accepted { epoch, ballot }),
            at().prop_map(|(epoch, promised)| ChainMessage::Outbid { epoch, promised }),
            (at(), prop::option::of(accepted)).prop_map(|((epoch, ballot), accepted)| {
                ChainMessage::Promise {
                    epoch,
                    ballot,
                    accepted,
                }
            }),
            (any_ballot(), any_record())
                .prop_map(|(ballot, record)| ChainMessage::Accept { ballot, record }),
            prop::collection::vec(any_record(), 0..=4)
                .prop_map(|records| ChainMessage::Chosen { records }),
            any_record().prop_map(|record| ChainMessage::Chosen {
                records: vec![record; EPOCH_PAGE_RECORDS_MAX],
            }),
            any::<u64>().prop_map(|epoch| ChainMessage::At { epoch }),
            any::<u64>().prop_map(|from| ChainMessage::Learn { from }),
            any_record().prop_map(|record| ChainMessage::Removed { record }),
        ]
    }

    fn any_arrived() -> impl Strategy<Value = MoveArrived> {
        let end = || prop::option::of(any_member());
        let parts = (any::<(u64, u16, u8)>(), end(), end());
        parts.prop_map(|((plan, partition, position), from, to)| {
            let moving = Moving { position, from, to };
            let partition = Partition(partition);
            let step = Move { partition, moving };
            MoveArrived { plan, step }
        })
    }

    fn any_news(epoch: u64) -> impl Strategy<Value = ForgetNews> {
        prop_oneof![
            (0..CLOCK_END).prop_map(move |clock| Ok(Confirmed { epoch, clock })),
            Just(Err(HeldBack::UnderWay)),
            Just(Err(HeldBack::Hints)),
            Just(Err(HeldBack::Damage)),
            any_member().prop_map(|peer| Err(HeldBack::Comparison(peer))),
            Just(Err(HeldBack::Strays)),
            Just(Err(HeldBack::Restore)),
        ]
    }

    fn any_progress() -> impl Strategy<Value = MemberProgress> {
        let arrived = prop_oneof![
            8 => prop::collection::vec(any_arrived(), 0..9),
            1 => any_arrived().prop_map(|step| vec![step; PLAN_MOVES_MAX / 64]),
        ];
        let reaches = prop::collection::vec(any_member(), 0..=MEMBERS_MAX);
        let facts = (any::<[u64; 3]>(), any::<bool>(), "[ -~]{0,64}");
        (any::<u64>(), facts, arrived, reaches).prop_flat_map(|(epoch, facts, arrived, reaches)| {
            prop::option::of(any_news(epoch)).prop_map(move |forgets| {
                let ([stored_bytes, loaded_bytes, bytes_per_second], is_disk_full, _) = facts;
                MemberProgress {
                    epoch,
                    arrived: arrived.clone(),
                    gauges: LoadGauges {
                        stored_bytes,
                        loaded_bytes,
                        bytes_per_second,
                    },
                    release: facts.2.clone(),
                    is_disk_full,
                    forgets,
                    reaches: reaches.clone(),
                }
            })
        })
    }

    fn any_order() -> impl Strategy<Value = ThrottleOrder> {
        (1..=u64::MAX, any::<u64>()).prop_map(|(bytes_per_second, ordered_ms)| ThrottleOrder {
            bytes_per_second,
            ordered_ms,
        })
    }

    fn any_url() -> impl Strategy<Value = String> {
        "http://[a-z0-9.]{1,253}:[0-9]{1,5}"
    }

    proptest! {
        #[test]
        fn any_legal_message_of_a_steward_is_read_as_it_was_sent(
            message in prop_oneof![
                any_chain().prop_map(StewardMessage::Chain),
                any_progress().prop_map(StewardMessage::Progress),
                any_order().prop_map(StewardMessage::Throttle),
            ],
        ) {
            prop_assert_eq!(StewardMessage::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn any_legal_order_is_read_from_its_note(order in any_order()) {
            prop_assert_eq!(ThrottleOrder::decode(&order.encode()), Some(order));
        }

        #[test]
        fn any_legal_request_to_join_is_read_as_it_was_sent(
            cluster in "[A-Za-z0-9._-]{0,64}", node: u128, url in any_url(), weight: u16,
            zone in "[A-Za-z0-9._-]{0,64}", replaces in prop::option::of(any_url()),
        ) {
            let place = Member { url, weight, zone };
            let request = EnrolRequest { cluster, node, place, replaces };
            prop_assert_eq!(EnrolRequest::decode(&request.encode()), Ok(request));
        }

        #[test]
        fn any_legal_answer_to_a_joiner_is_read_as_it_was_sent(
            member in any_member(), record in any_record(), why in "\\PC{0,300}",
        ) {
            for answer in [
                EnrolAnswer::Enrolled { member, record },
                EnrolAnswer::Wait { why: why.clone() },
                EnrolAnswer::Refused { why },
            ] {
                prop_assert_eq!(EnrolAnswer::decode(&answer.encode()), Ok(answer));
            }
        }
    }
}
