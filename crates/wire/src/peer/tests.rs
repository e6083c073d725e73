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
use crate::legal;
use crate::limits::{PEER_FRAME_BYTES_MAX, PEER_SENTENCE_BYTES_MAX, PEER_WITHDRAW_IDS_MAX};
use bytes::Bytes;
use dendra_base::peer::{
    ANCESTORS_MAX, Answer, Ask, Ballot, COMPARE_RANGES_MAX, Change, FeedCursor, Foreground,
    Lineage, Proposal, Range, RangePrint, Readiness, Refused, Stamp,
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

/// Where the parts of a message come from.
struct Parts {
    key: BoxedStrategy<Bytes>,
    bound: BoxedStrategy<Bytes>,
    cell: BoxedStrategy<Cell>,
    records: BoxedStrategy<Vec<(Bytes, Cell)>>,
    ranges: usize,
}

impl Parts {
    /// Of messages that a test cuts at each byte.
    fn short() -> Parts {
        let records = prop::collection::vec((any_bytes(1..40), any_cell()), 0..6);
        Parts {
            key: any_bytes(1..40).boxed(),
            bound: any_bytes(0..40).boxed(),
            cell: any_cell().boxed(),
            records: records.boxed(),
            ranges: 8,
        }
    }

    /// Of every message that a member may send.
    fn legal() -> Parts {
        let shown = (legal::raw_key(), legal::shown_cell());
        let records = prop_oneof![
            3 => legal::records(0..=5),
            1 => prop::collection::vec(shown, 0..=5),
        ];
        let shared = |(key, cell)| (Bytes::from(key), cell);
        Parts {
            key: legal::raw_key().prop_map(Bytes::from).boxed(),
            bound: legal::bound().prop_map(Bytes::from).boxed(),
            cell: legal::cell().boxed(),
            records: records
                .prop_map(move |records| records.into_iter().map(shared).collect())
                .boxed(),
            ranges: COMPARE_RANGES_MAX,
        }
    }

    fn key(&self) -> BoxedStrategy<Bytes> {
        self.key.clone()
    }

    fn bound(&self) -> BoxedStrategy<Bytes> {
        self.bound.clone()
    }

    fn cell(&self) -> BoxedStrategy<Cell> {
        self.cell.clone()
    }

    fn records(&self) -> BoxedStrategy<Vec<(Bytes, Cell)>> {
        self.records.clone()
    }
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

fn any_proposal(parts: &Parts) -> impl Strategy<Value = Proposal> + use<> {
    let parts = (any_ballot(), any_ballot(), any_ancestors(), parts.cell());
    parts.prop_map(|(ballot, author, ancestors, cell)| Proposal {
        ballot,
        author,
        ancestors,
        cell,
    })
}

fn any_range(parts: &Parts) -> impl Strategy<Value = Range> + use<> {
    let parts = (
        parts.bound(),
        prop::option::of(parts.bound()),
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

fn any_ask(parts: &Parts) -> impl Strategy<Value = Ask> + use<> {
    let key = || parts.key();
    prop_oneof![
        Just(Ask::Clock),
        Just(Ask::Foreground),
        (key(), prop::option::of((any_version(), any::<u64>()))).prop_map(|(key, known)| {
            let known = known.map(|(version, digest)| CellId { version, digest });
            Ask::Read { key, known }
        }),
        (key(), parts.cell()).prop_map(|(key, cell)| Ask::Write { key, cell }),
        (key(), any_ballot()).prop_map(|(key, ballot)| Ask::Prepare { key, ballot }),
        (key(), any_proposal(parts)).prop_map(|(key, proposal)| Ask::Accept { key, proposal }),
        (any_range(parts), any::<u32>()).prop_map(|(range, bytes)| Ask::Page { range, bytes }),
        (any::<bool>(), parts.bound(), any_bytes(0..40), any::<u32>()).prop_map(
            |(is_user, start, partitions, bytes)| Ask::Load {
                space: shared_space(is_user),
                start,
                partitions,
                bytes,
            }
        ),
        (
            any::<bool>(),
            parts.bound(),
            prop::collection::vec(any_range_print(parts), 0..=parts.ranges),
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
            parts.bound(),
            prop::option::of(parts.bound()),
            any::<u32>()
        )
            .prop_map(|(is_user, start, end, bytes)| Ask::List {
                space: shared_space(is_user),
                start,
                end,
                bytes,
            }),
        (
            prop::option::of(any_feed_cursor()),
            parts.bound(),
            prop::option::of(parts.bound()),
            any::<bool>()
        )
            .prop_map(|(cursor, start, end, waits)| Ask::Changes {
                cursor,
                start,
                end,
                waits,
            }),
    ]
}

fn any_feed_cursor() -> impl Strategy<Value = FeedCursor> {
    any::<(u64, u64)>().prop_map(|(life, next)| FeedCursor { life, next })
}

fn any_changes(parts: &Parts) -> impl Strategy<Value = Vec<Change>> + use<> {
    let change = (any::<u64>(), parts.key(), any_version());
    let change = change.prop_map(|(number, key, version)| Change {
        number,
        key,
        version,
    });
    prop::collection::vec(change, 0..20)
}

fn shared_space(is_user: bool) -> Space {
    if is_user {
        Space::User
    } else {
        Space::Protocol
    }
}

fn any_range_print(parts: &Parts) -> impl Strategy<Value = RangePrint> + use<> {
    let parts = (prop::option::of(parts.bound()), any::<u64>());
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

fn any_answer(parts: &Parts) -> impl Strategy<Value = Answer> + use<> {
    let records = || parts.records();
    let cell = || prop::option::of(parts.cell());
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
        (any_feed_cursor(), any_changes(parts), any::<bool>()).prop_map(
            |(cursor, changes, is_end)| Answer::Changes {
                cursor,
                changes,
                is_end,
            }
        ),
        any_feed_cursor().prop_map(|end| Answer::ChangesGone { end }),
        (cell(), prop::option::of(any_proposal(parts)))
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
        (records(), prop::option::of(parts.bound()))
            .prop_map(|(records, next)| Answer::Loaded { records, next }),
        (records(), prop::option::of(parts.bound()))
            .prop_map(|(records, next)| Answer::Listed { records, next }),
        (
            any::<u16>(),
            prop::collection::vec(any::<u16>(), 0..=parts.ranges)
        )
            .prop_map(|(looked, differing)| Answer::Compared { looked, differing }),
        (records(), prop::option::of(any_range(parts)))
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

fn any_message(parts: &Parts) -> impl Strategy<Value = Message> + use<> {
    prop_oneof![
        4 => (any::<u64>(), any::<u32>(), any::<(u64, u64, u32)>(), any_ask(parts)).prop_map(
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
        4 => (any::<u64>(), any_answer(parts))
            .prop_map(|(id, answer)| Message::Answer { id, answer }),
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
    encode_under(out, &mut Seal::plain(), message);
}

fn encode_under(out: &mut Vec<u8>, seal: &mut Seal, message: &Message) {
    match message {
        Message::Ask(question) => encode_ask(out, seal, question),
        Message::Answer { id, answer } => encode_answer(out, seal, *id, answer),
        Message::Proof(proof) => encode_proof(out, proof),
        Message::Farewell(sentence) => encode_farewell(out, seal, sentence),
        Message::Probe { id } => encode_probe(out, seal, *id),
        Message::Alive { id } => encode_alive(out, seal, *id),
        Message::Hail => encode_hail(out, seal),
        Message::Welcome => encode_welcome(out, seal),
        Message::Withdraw { ids } => encode_withdraw(out, seal, ids),
        Message::Steward { id, body } => encode_steward(out, seal, *id, body),
        Message::Enrol(body) => encode_enrol(out, seal, body),
        Message::Enrolment(body) => encode_enrolment(out, seal, body),
    }
}

/// Of messages that a test cuts at each byte.
fn short_message() -> impl Strategy<Value = Message> {
    any_message(&Parts::short())
}

/// Of every message that a member may send, the longest ones too.
fn all_messages() -> impl Strategy<Value = Message> {
    let body = || legal::small_value();
    let sentence = "\\PC{0,300}".prop_filter("it is not cut", |sentence| {
        sentence.len() <= PEER_SENTENCE_BYTES_MAX
    });
    let partitions = (
        legal::bound(),
        legal::bytes_of(0..=2_048_usize),
        any::<u32>(),
    );
    prop_oneof![
        8 => any_message(&Parts::legal()),
        1 => sentence.prop_map(Message::Farewell),
        1 => prop::collection::vec(any::<u64>(), 1..=PEER_WITHDRAW_IDS_MAX)
            .prop_map(|ids| Message::Withdraw { ids }),
        1 => (any::<u64>(), legal::value()).prop_map(|(id, body)| Message::Steward { id, body }),
        1 => body().prop_map(Message::Enrol),
        1 => body().prop_map(Message::Enrolment),
        1 => (any::<bool>(), partitions).prop_map(|(is_user, (start, partitions, bytes))| {
            Message::Ask(Question {
                id: 1,
                sent_ms: 2,
                stamp: Stamp { cluster: 3, epoch: 4, left_ms: 5 },
                ask: Ask::Load {
                    space: shared_space(is_user),
                    start: start.into(),
                    partitions: partitions.into(),
                    bytes,
                },
            })
        }),
    ]
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
    #![proptest_config(legal::cases(192))]

    #[test]
    fn any_legal_message_is_read_as_it_was_sent(
        messages in prop::collection::vec(all_messages(), 1..4), is_keyed: bool,
    ) {
        let keys = SessionKeys::new(is_keyed.then_some(&b"secret"[..]), "asker", "acceptor");
        let (mut sender, mut receiver) = (keys.of_link(Role::Asker), keys.of_link(Role::Asker));
        let mut sent = Vec::new();
        for message in &messages {
            encode_under(&mut sent, &mut sender, message);
        }
        let mut left = Bytes::from(sent);
        for message in &messages {
            let len = frame_len(&left).expect("a legal length").expect("it is whole");
            let frame = left.split_to(len);
            let read = match message {
                // Its frame has no key.
                Message::Proof(_) => decode(&frame, &mut Seal::plain()),
                _ => decode(&frame, &mut receiver),
            };
            // Not by `assert_eq`: a large value would be printed.
            prop_assert!(read.as_ref() == Ok(message), "{:?}", read.map(|_| ()));
        }
    }
}

proptest! {
    #[test]
    fn a_batch_of_messages_reads_back(messages in prop::collection::vec(short_message(), 0..6)) {
        let mut out = Vec::new();
        for message in &messages {
            encode(&mut out, message);
        }
        prop_assert_eq!(frames(out.into()), Ok((messages, 0)));
    }

    #[test]
    fn a_message_cut_at_any_byte_is_not_there_yet(message in short_message()) {
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
    fn a_flipped_bit_is_refused(
        message in short_message(), at: prop::sample::Index, bit in 0u8..8,
    ) {
        let mut out = Vec::new();
        encode(&mut out, &message);
        let at = at.index(out.len());
        out[at] ^= 1 << bit;
        prop_assert!(decode(&out.into(), &mut Seal::plain()).is_err());
    }

    /// Damage that a checksum cannot see, as from a peer that is wrong itself.
    #[test]
    fn a_wrong_body_under_a_right_checksum_never_panics(
        message in short_message(), at: prop::sample::Index, byte: u8, cut in 0usize..12,
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
    let most = dendra_base::limits::WRAPPED_VALUE_BYTES_MAX;
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
