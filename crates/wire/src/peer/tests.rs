//! Frames against arbitrary messages, arbitrary cuts and arbitrary damage.
//!
//! Invariants
//! 1. An encoded frame reads back equal, with any bytes in front and behind.
//! 2. Every strict prefix is "not yet" or refused, every flipped bit is refused.
//! 3. Keys and values of a decoded frame share its memory.
//!
//! Not here: hellos (`hello.rs`), proofs (`proof.rs`).
//! See: docs/peer.md.

use super::*;
use crate::limits::{PEER_FRAME_BYTES_MAX, PEER_SENTENCE_BYTES_MAX, PEER_WITHDRAW_IDS_MAX};
use bytes::Bytes;
use dendra_base::peer::{
    ANCESTORS_MAX, Answer, Ask, Ballot, COMPARE_RANGES_MAX, Foreground, Lineage, Proposal, Range,
    RangePrint, Readiness, Refused, Stamp,
};
use dendra_base::{Cell, CellId, CellRef, Space, Version};
use proptest::prelude::*;

fn any_bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), len).prop_map(Bytes::from)
}

fn any_version() -> impl Strategy<Value = Version> {
    (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(hlc, origin, rmw)| Version {
        hlc,
        origin,
        rmw,
    })
}

fn any_cell() -> impl Strategy<Value = Cell> {
    let parts = (
        any_version(),
        any_bytes(0..60),
        any::<Option<u64>>(),
        any::<u8>(),
        any::<bool>(),
    );
    parts.prop_map(|(version, value, expiry_ms, copies, is_dead)| {
        let mut cell = if is_dead {
            CellRef::tombstone(b"\x10k", version).to_owned()
        } else {
            let mut cell = CellRef::value(b"\x10k", version, &value).to_owned();
            cell.expiry_ms = expiry_ms;
            cell
        };
        cell.copies = copies;
        cell
    })
}

fn any_ballot() -> impl Strategy<Value = Ballot> {
    (any::<u64>(), any::<u32>()).prop_map(|(hlc, origin)| Ballot { hlc, origin })
}

fn any_ancestors() -> impl Strategy<Value = Vec<Ballot>> {
    prop::collection::vec(any_ballot(), 0..=ANCESTORS_MAX)
}

fn any_proposal() -> impl Strategy<Value = Proposal> {
    let parts = (any_ballot(), any_ballot(), any_ancestors(), any_cell());
    parts.prop_map(|(ballot, author, ancestors, cell)| Proposal {
        ballot,
        author,
        ancestors,
        cell,
    })
}

fn any_range() -> impl Strategy<Value = Range> {
    let parts = (
        any_bytes(0..20),
        prop::option::of(any_bytes(0..20)),
        any::<bool>(),
        any::<bool>(),
    );
    parts.prop_map(|(start, end, is_reverse, is_keys_only)| Range {
        start,
        end,
        is_reverse,
        is_keys_only,
    })
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let key = || any_bytes(1..40);
    prop_oneof![
        Just(Ask::Clock),
        Just(Ask::Foreground),
        (key(), prop::option::of((any_version(), any::<u64>()))).prop_map(|(key, known)| {
            let known = known.map(|(version, digest)| CellId { version, digest });
            Ask::Read { key, known }
        }),
        (key(), any_cell()).prop_map(|(key, cell)| Ask::Write { key, cell }),
        (key(), any_ballot()).prop_map(|(key, ballot)| Ask::Prepare { key, ballot }),
        (key(), any_proposal()).prop_map(|(key, proposal)| Ask::Accept { key, proposal }),
        (any_range(), any::<u32>()).prop_map(|(range, bytes)| Ask::Page { range, bytes }),
        (
            any::<bool>(),
            any_bytes(0..40),
            any_bytes(0..40),
            any::<u32>()
        )
            .prop_map(|(is_user, start, partitions, bytes)| Ask::Load {
                space: shared_space(is_user),
                start,
                partitions,
                bytes,
            }),
        (
            any::<bool>(),
            any_bytes(0..40),
            prop::collection::vec(any_range_print(), 0..9),
            any::<u64>()
        )
            .prop_map(|(is_user, start, ranges, now_ms)| Ask::Compare {
                space: shared_space(is_user),
                start,
                ranges,
                now_ms,
            }),
        (
            any::<bool>(),
            any_bytes(0..40),
            prop::option::of(any_bytes(0..40)),
            any::<u32>()
        )
            .prop_map(|(is_user, start, end, bytes)| Ask::List {
                space: shared_space(is_user),
                start,
                end,
                bytes,
            }),
    ]
}

fn shared_space(is_user: bool) -> Space {
    if is_user {
        Space::User
    } else {
        Space::Protocol
    }
}

fn any_range_print() -> impl Strategy<Value = RangePrint> {
    let parts = (prop::option::of(any_bytes(0..40)), any::<u64>());
    parts.prop_map(|(end, print)| RangePrint { end, print })
}

fn any_readiness() -> impl Strategy<Value = Readiness> {
    prop::sample::select(vec![
        Readiness::Ready,
        Readiness::Behind,
        Readiness::DiskFull,
        Readiness::DiskAndMemoryFull,
    ])
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let records = || prop::collection::vec((any_bytes(1..40), any_cell()), 0..6);
    let cell = || prop::option::of(any_cell());
    prop_oneof![
        (any::<(u64, u64, u64)>(), any_readiness()).prop_map(
            |((hlc, wall_ms, kept), readiness)| Answer::Clock {
                hlc,
                wall_ms,
                kept,
                readiness,
            }
        ),
        cell().prop_map(Answer::Cell),
        Just(Answer::Same),
        any::<(u64, u64)>()
            .prop_map(|(rounds, sum_us)| Answer::Foreground(Foreground { rounds, sum_us })),
        any_version().prop_map(Answer::Written),
        (cell(), prop::option::of(any_proposal()))
            .prop_map(|(stored, accepted)| Answer::Promised { stored, accepted }),
        Just(Answer::Accepted),
        (
            any_ballot(),
            prop::option::of((any_version(), any_ancestors()))
        )
            .prop_map(|(promised, line)| Answer::Outbid {
                promised,
                line: line.map(|(version, ancestors)| Lineage { version, ancestors }),
            }),
        (records(), prop::option::of(any_bytes(1..40)))
            .prop_map(|(records, next)| Answer::Loaded { records, next }),
        (records(), prop::option::of(any_bytes(0..40)))
            .prop_map(|(records, next)| Answer::Listed { records, next }),
        (any::<u16>(), prop::collection::vec(any::<u16>(), 0..9))
            .prop_map(|(looked, differing)| Answer::Compared { looked, differing }),
        (records(), prop::option::of(any_range()))
            .prop_map(|(records, rest)| Answer::Page { records, rest }),
        any::<u64>().prop_map(|epoch| Answer::Refused(Refused::Stale { epoch })),
        prop::sample::select(vec![
            Refused::Foreign,
            Refused::NotOwner,
            Refused::Busy,
            Refused::DiskFull,
            Refused::Damaged,
            Refused::Late,
            Refused::ClockApart,
            Refused::Stopping,
            Refused::Unfit,
        ])
        .prop_map(Answer::Refused),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => (any::<u64>(), any::<u32>(), any::<(u64, u64, u32)>(), any_ask()).prop_map(
            |(id, sent_ms, (cluster, epoch, left_ms), ask)| Message::Ask(Question {
                id,
                sent_ms,
                stamp: Stamp {
                    cluster,
                    epoch,
                    left_ms
                },
                ask
            })
        ),
        4 => (any::<u64>(), any_answer()).prop_map(|(id, answer)| Message::Answer { id, answer }),
        1 => any::<[u8; 32]>().prop_map(|proof| Message::Proof(Proof::from(proof))),
        1 => "\\PC{0,40}".prop_map(Message::Farewell),
        1 => any::<u64>().prop_map(|id| Message::Probe { id }),
        1 => any::<u64>().prop_map(|id| Message::Alive { id }),
        1 => Just(Message::Hail),
        1 => Just(Message::Welcome),
        1 => prop::collection::vec(any::<u64>(), 1..9).prop_map(|ids| Message::Withdraw { ids }),
        1 => (any::<u64>(), prop::collection::vec(any::<u8>(), 0..99))
            .prop_map(|(id, body)| Message::Steward { id, body: body.into() }),
        1 => prop::collection::vec(any::<u8>(), 0..99).prop_map(|body| Message::Enrol(body.into())),
        1 => prop::collection::vec(any::<u8>(), 0..99)
            .prop_map(|body| Message::Enrolment(body.into())),
    ]
}

fn encode(out: &mut Vec<u8>, message: &Message) {
    match message {
        Message::Ask(question) => encode_ask(out, &mut Seal::plain(), question),
        Message::Answer { id, answer } => encode_answer(out, &mut Seal::plain(), *id, answer),
        Message::Proof(proof) => encode_proof(out, proof),
        Message::Farewell(sentence) => encode_farewell(out, &mut Seal::plain(), sentence),
        Message::Probe { id } => encode_probe(out, &mut Seal::plain(), *id),
        Message::Alive { id } => encode_alive(out, &mut Seal::plain(), *id),
        Message::Hail => encode_hail(out, &mut Seal::plain()),
        Message::Welcome => encode_welcome(out, &mut Seal::plain()),
        Message::Withdraw { ids } => encode_withdraw(out, &mut Seal::plain(), ids),
        Message::Steward { id, body } => encode_steward(out, &mut Seal::plain(), *id, body),
        Message::Enrol(body) => encode_enrol(out, &mut Seal::plain(), body),
        Message::Enrolment(body) => encode_enrolment(out, &mut Seal::plain(), body),
    }
}

/// Frames of a buffer up to the first that is not whole.
fn frames(mut buffer: Bytes) -> Result<(Vec<Message>, usize), Malformed> {
    let mut messages = Vec::new();
    while let Some(len) = frame_len(&buffer)?.filter(|len| *len <= buffer.len()) {
        messages.push(decode(&buffer.split_to(len), &mut Seal::plain())?);
    }
    Ok((messages, buffer.len()))
}

proptest! {
    #[test]
    fn a_batch_of_messages_reads_back(messages in prop::collection::vec(any_message(), 0..6)) {
        let mut out = Vec::new();
        for message in &messages {
            encode(&mut out, message);
        }
        prop_assert_eq!(frames(out.into()), Ok((messages, 0)));
    }

    #[test]
    fn a_message_cut_at_any_byte_is_not_there_yet(message in any_message()) {
        let mut out = Vec::new();
        encode(&mut out, &message);
        let whole = Bytes::from(out);
        for len in 0..whole.len() {
            let cut = whole.slice(..len);
            prop_assert_eq!(frames(cut.clone()), Ok((Vec::new(), len)));
            prop_assert!(decode(&cut, &mut Seal::plain()).is_err());
        }
    }

    #[test]
    fn a_flipped_bit_is_refused(message in any_message(), at: prop::sample::Index, bit in 0u8..8) {
        let mut out = Vec::new();
        encode(&mut out, &message);
        let at = at.index(out.len());
        out[at] ^= 1 << bit;
        prop_assert!(decode(&out.into(), &mut Seal::plain()).is_err());
    }

    /// Damage that a checksum cannot see, as from a peer that is wrong itself.
    #[test]
    fn a_wrong_body_under_a_right_checksum_never_panics(
        message in any_message(), at: prop::sample::Index, byte: u8, cut in 0usize..12,
    ) {
        let mut out = Vec::new();
        encode(&mut out, &message);
        out.truncate(out.len() - 8);
        let at = 4 + at.index(out.len() - 4);
        out[at] = byte;
        out.truncate(out.len().saturating_sub(cut).max(16));
        let len = out.len() as u32 + 8;
        out[..4].copy_from_slice(&len.to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        if let Ok(other) = decode(&out.clone().into(), &mut Seal::plain()) {
            // A farewell may hold bytes that are not UTF-8: their replacement is longer.
            if !matches!(other, Message::Farewell(_)) {
                let mut again = Vec::new();
                encode(&mut again, &other);
                // Marks that no message of the kind has do not come back.
                prop_assert!(again.len() == out.len());
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((_, left)) = frames(bytes.clone().into()) {
            prop_assert!(left <= bytes.len());
        }
    }
}

#[test]
fn a_length_beyond_every_frame_is_refused_before_it_is_waited_for() {
    for length in [0, 23, PEER_FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        assert_eq!(
            frame_len(&length.to_le_bytes()),
            Err(Malformed::Length(length))
        );
    }
    let longest = PEER_FRAME_BYTES_MAX as u32;
    assert_eq!(
        frame_len(&longest.to_le_bytes()),
        Ok(Some(PEER_FRAME_BYTES_MAX))
    );
    assert_eq!(frame_len(&[0; 3]), Ok(None));
}

#[test]
fn keys_and_values_are_slices_of_the_frame() {
    let cell = CellRef::value(b"\x10key", Version::ZERO, &[7; 100]).to_owned();
    let mut out = Vec::new();
    encode_ask(
        &mut out,
        &mut Seal::plain(),
        &Question {
            id: 1,
            sent_ms: 2,
            stamp: Stamp {
                cluster: 3,
                epoch: 4,
                left_ms: 5,
            },
            ask: Ask::Write {
                key: Bytes::from_static(b"key"),
                cell,
            },
        },
    );
    let frame = Bytes::from(out);
    let Ok(Message::Ask(Question {
        ask: Ask::Write { key, cell },
        ..
    })) = decode(&frame, &mut Seal::plain())
    else {
        panic!("it is a write");
    };
    let within = |part: &Bytes| frame.as_ptr_range().contains(&part.as_ptr());
    assert!(within(&key) && within(&cell.value));
}

#[test]
fn a_key_or_value_beyond_the_limits_is_refused() {
    let question = |ask| {
        let mut out = Vec::new();
        let stamp = Stamp {
            cluster: 3,
            epoch: 4,
            left_ms: 5,
        };
        encode_ask(
            &mut out,
            &mut Seal::plain(),
            &Question {
                id: 1,
                sent_ms: 2,
                stamp,
                ask,
            },
        );
        decode(&out.into(), &mut Seal::plain())
    };
    let read = |len| {
        question(Ask::Read {
            key: vec![b'k'; len].into(),
            known: None,
        })
    };
    assert!(read(1024).is_ok());
    assert_eq!(read(1025), Err(Malformed::Body("key")));
    assert_eq!(read(0), Err(Malformed::Body("empty key")));
    let write = |len| {
        let mut cell = CellRef::value(b"\x10k", Version::ZERO, b"").to_owned();
        cell.value = vec![b'v'; len].into();
        question(Ask::Write {
            key: Bytes::from_static(b"k"),
            cell,
        })
    };
    let most = dendra_base::limits::VALUE_BYTES_MAX_LIMIT;
    assert!(write(most).is_ok());
    assert_eq!(write(most + 1), Err(Malformed::Body("value")));
}

#[test]
fn a_withdrawal_has_some_ids_and_not_too_many() {
    let withdrawal = |bytes: usize| {
        let mut out = Vec::new();
        encode_withdraw(&mut out, &mut Seal::plain(), &[7]);
        out.truncate(16);
        out.resize(16 + bytes, 1);
        out[..4].copy_from_slice(&(16 + bytes as u32 + 8).to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        decode(&out.into(), &mut Seal::plain())
    };
    let most = 8 * PEER_WITHDRAW_IDS_MAX;
    for bytes in [8, most] {
        let Ok(Message::Withdraw { ids }) = withdrawal(bytes) else {
            panic!("{bytes} bytes of ids");
        };
        assert_eq!(ids.len(), bytes / 8);
    }
    for bytes in [0, 7, 9, most + 8] {
        assert_eq!(withdrawal(bytes), Err(Malformed::Body("withdrawal")));
    }
}

#[test]
fn a_page_of_many_records_in_few_bytes_is_refused_before_room_is_made() {
    let mut out = Vec::new();
    encode_answer(
        &mut out,
        &mut Seal::plain(),
        1,
        &Answer::Page {
            records: Vec::new(),
            rest: None,
        },
    );
    out.truncate(out.len() - 8);
    out[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(
        decode(&out.into(), &mut Seal::plain()),
        Err(Malformed::Body("records"))
    );
}

#[test]
fn a_load_goes_on_behind_the_longest_key() {
    // The smallest key after one of 1,024 bytes has 1,025.
    let start = Bytes::from_static(&[0xff; 1025]);
    let question = Question {
        id: 1,
        sent_ms: 2,
        stamp: Stamp {
            cluster: 3,
            epoch: 4,
            left_ms: 5,
        },
        ask: Ask::Load {
            space: Space::User,
            start,
            partitions: Bytes::new(),
            bytes: 6,
        },
    };
    let mut out = Vec::new();
    encode_ask(&mut out, &mut Seal::plain(), &question);
    let read = decode(&out.into(), &mut Seal::plain());
    assert!(read.is_ok(), "{read:?}");
}

#[test]
fn a_comparison_has_as_many_ranges_as_may_be_and_no_more() {
    let compare = |count: usize| {
        let end = Some(Bytes::from_static(&[0xff; 1025]));
        let range = RangePrint { end, print: 7 };
        let ask = Ask::Compare {
            space: Space::User,
            start: Bytes::new(),
            ranges: vec![range; count],
            now_ms: 5,
        };
        let stamp = Stamp {
            cluster: 3,
            epoch: 4,
            left_ms: 5,
        };
        let (id, sent_ms) = (1, 2);
        let question = Question {
            id,
            sent_ms,
            stamp,
            ask,
        };
        let mut out = Vec::new();
        encode_ask(&mut out, &mut Seal::plain(), &question);
        decode(&out.into(), &mut Seal::plain())
    };
    assert!(compare(COMPARE_RANGES_MAX).is_ok());
    assert_eq!(
        compare(COMPARE_RANGES_MAX + 1),
        Err(Malformed::Body("ranges"))
    );
}

#[test]
fn a_long_farewell_is_cut_between_characters() {
    let mut out = Vec::new();
    encode_farewell(
        &mut out,
        &mut Seal::plain(),
        &"ä".repeat(PEER_SENTENCE_BYTES_MAX),
    );
    let Ok(Message::Farewell(sentence)) = decode(&out.into(), &mut Seal::plain()) else {
        panic!("it is a farewell");
    };
    assert_eq!(sentence, "ä".repeat(PEER_SENTENCE_BYTES_MAX / 2));
}
