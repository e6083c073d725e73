//! Everything that is legal, for the tests of pairs of encoder and decoder: strategies of proptest.
//!
//! ```text
//! raw_key    1 to 1,024 bytes: any bytes, text, digests, one byte repeated
//! value      0 bytes to 8 MiB: mostly a few dozen, one of a few hundred is large
//! cell       values and tombstones, with and without expiry and ballot, any version and copies
//! records    rising keys with their cells: none, one, or some
//! ```
//!
//! Invariants
//! 1. A strategy leaves out nothing that a client, a member or the engine may write.
//! 2. A value's checksum holds under its stored key, but for `shown_cell`.
//! 3. PROPTEST_CASES wins over the number of cases that a test names.
//!
//! Each crate's tests include this file by its path: it knows `dendra_base` and proptest alone.
//! Not here: strategies of one crate's own types, which stand beside their tests.
//! See: docs/verification.md, "Encoders and decoders".

#![allow(
    dead_code,
    reason = "each crate that includes this file needs a part of it"
)]
#![allow(unreachable_pub, reason = "included as a private module everywhere")]

use bytes::Bytes;
use dendra_base::limits::{
    KEY_BYTES_MAX, KEY_LABEL_BYTES, STORED_VALUE_BYTES_MAX, VALUE_BYTES_MAX_LIMIT,
};
use dendra_base::{Cell, CellRef, Key, Space, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The first clock value that no version of a client or a member has.
const HLC_END: u64 = 1 << 63;

/// As many cases as PROPTEST_CASES says, `normal` where it is not set.
pub fn cases(normal: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(normal),
    }
}

/// `len` bytes that repeat `pattern`.
fn repeated(pattern: &[u8], len: usize) -> Vec<u8> {
    pattern.iter().copied().cycle().take(len).collect()
}

/// Any key of a client.
pub fn raw_key() -> impl Strategy<Value = Vec<u8>> {
    let pattern = prop::collection::vec(any::<u8>(), 1..6);
    let low = prop::collection::vec(prop::sample::select(&b"\x00\x01a/\xfe\xff"[..]), 1..6);
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 1..=24),
        2 => low,
        1 => "[0-9a-f]{64}".prop_map(String::into_bytes),
        1 => "/registry/[a-z]{1,9}/[a-z0-9-]{1,40}".prop_map(String::into_bytes),
        1 => "\\PC{1,40}".prop_map(String::into_bytes),
        2 => (pattern, 1..=KEY_BYTES_MAX).prop_map(|(pattern, len)| repeated(&pattern, len)),
        1 => prop::sample::select(&[0x00, b'0', b'a', 0xff][..])
            .prop_map(|byte| vec![byte; KEY_BYTES_MAX]),
    ]
}

/// Any bound of a range: a key, the smallest key behind a key, or nothing in front of it.
pub fn bound() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        3 => raw_key(),
        2 => raw_key().prop_map(|mut key| {
            key.push(0);
            key
        }),
    ]
}

/// Any bytes of these lengths: noise, zeros, or one short pattern.
pub fn bytes_of(len: impl Strategy<Value = usize>) -> impl Strategy<Value = Vec<u8>> {
    let pattern = prop::collection::vec(any::<u8>(), 1..5);
    (len, any::<u64>(), prop::option::of(pattern)).prop_map(|(len, seed, pattern)| {
        if let Some(pattern) = pattern {
            return repeated(&pattern, len);
        }
        let mut prng = dendra_base::Prng::new(seed);
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&prng.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    })
}

/// Any value of a client: one of some hundred is large, and a few have the largest size.
pub fn value() -> impl Strategy<Value = Bytes> {
    let len = prop_oneof![
        60 => Just(0),
        400 => 1..=80_usize,
        100 => 0..=5_000_usize,
        3 => 0..=VALUE_BYTES_MAX_LIMIT,
        1 => Just(VALUE_BYTES_MAX_LIMIT),
    ];
    bytes_of(len).prop_map(Bytes::from)
}

/// A value of at most some kilobytes, where a test has many of them.
pub fn small_value() -> impl Strategy<Value = Bytes> {
    let len = prop_oneof![1 => Just(0), 8 => 1..=80_usize, 1 => 0..=5_000_usize];
    bytes_of(len).prop_map(Bytes::from)
}

/// Any value of the engine: hints and promises hold a whole cell, and a little beside it.
pub fn stored_value() -> impl Strategy<Value = Bytes> {
    let len = prop_oneof![
        3 => VALUE_BYTES_MAX_LIMIT..=STORED_VALUE_BYTES_MAX,
        1 => Just(STORED_VALUE_BYTES_MAX),
    ];
    prop_oneof![999 => value(), 1 => bytes_of(len).prop_map(Bytes::from)]
}

/// Any version that can be written down.
pub fn version() -> impl Strategy<Value = Version> {
    let edge = prop::sample::select(vec![Version::ZERO, Version::MAX]);
    let any = (any::<u64>(), any::<u32>(), any::<u32>());
    prop_oneof![
        1 => edge,
        9 => any.prop_map(|(hlc, origin, rmw)| Version { hlc, origin, rmw }),
    ]
}

/// Any version that a record can have.
pub fn stored_version() -> impl Strategy<Value = Version> {
    version().prop_map(|version| Version {
        hlc: version.hlc % HLC_END,
        ..version
    })
}

/// All of a cell but its value and checksum.
#[derive(Clone, Debug)]
struct CellFacts {
    version: Version,
    is_tombstone: bool,
    copies: u8,
    expiry_ms: Option<u64>,
    born: u64,
}

fn cell_facts() -> impl Strategy<Value = CellFacts> {
    let number = || prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()];
    let parts = (
        stored_version(),
        prop::bool::weighted(0.25),
        any::<u8>(),
        prop::option::of(number()),
        number(),
    );
    parts.prop_map(
        |(version, is_tombstone, copies, expiry_ms, born)| CellFacts {
            version,
            is_tombstone,
            copies,
            expiry_ms,
            born,
        },
    )
}

fn cell_under(stored_key: &[u8], facts: &CellFacts, value: &Bytes) -> Cell {
    let version = facts.version;
    let cell = if facts.is_tombstone {
        CellRef::tombstone(stored_key, version)
    } else {
        CellRef {
            expiry_ms: facts.expiry_ms,
            ..CellRef::value(stored_key, version, value)
        }
    };
    let cell = CellRef {
        copies: facts.copies,
        born: facts.born,
        ..cell
    };
    Cell {
        value: if facts.is_tombstone {
            Bytes::new()
        } else {
            value.clone()
        },
        ..CellRef { value: b"", ..cell }.to_owned()
    }
}

/// A key of `space` and any cell of it, with values of this strategy.
pub fn record_of(
    space: Space,
    value: impl Strategy<Value = Bytes>,
) -> impl Strategy<Value = (Vec<u8>, Cell)> {
    (raw_key(), cell_facts(), value).prop_map(move |(raw_key, facts, value)| {
        let cell = cell_under(Key::new(space, &raw_key).as_stored(), &facts, &value);
        (raw_key, cell)
    })
}

/// A key of any space as it is stored, and any cell of it, with values of this strategy.
pub fn stored_record_of(
    value: impl Strategy<Value = Bytes>,
) -> impl Strategy<Value = (Vec<u8>, Cell)> {
    let spaces = vec![Space::User, Space::Protocol, Space::Hint, Space::Meta];
    let space = prop::sample::select(spaces);
    let parts = (space, any::<[u8; KEY_LABEL_BYTES]>(), raw_key());
    (parts, cell_facts(), value).prop_map(|((space, label, raw_key), facts, value)| {
        let raw_key = match space {
            Space::Hint => [&label[..], &raw_key].concat(),
            Space::User | Space::Protocol | Space::Meta => raw_key,
        };
        let stored_key = Key::new(space, &raw_key).as_stored().to_vec();
        let cell = cell_under(&stored_key, &facts, &value);
        (stored_key, cell)
    })
}

/// Keys of all spaces as they are stored, with their cells, in order: at most one is large.
pub fn stored_records(count: RangeInclusive<usize>) -> impl Strategy<Value = Vec<(Vec<u8>, Cell)>> {
    let small = prop::collection::vec(stored_record_of(small_value()), count.clone());
    let large = stored_record_of(stored_value());
    let most = *count.end();
    (small, prop::option::weighted(0.3, large)).prop_map(move |(small, large)| {
        let all: BTreeMap<Vec<u8>, Cell> = large.into_iter().chain(small).collect();
        all.into_iter().take(most).collect()
    })
}

/// A client's key and any cell of it.
pub fn record() -> impl Strategy<Value = (Vec<u8>, Cell)> {
    record_of(Space::User, value())
}

/// Any cell, of a key that the test does not see.
pub fn cell() -> impl Strategy<Value = Cell> {
    record().prop_map(|(_, cell)| cell)
}

/// Any cell whose value stayed at home: its checksum is that of the whole value.
pub fn shown_cell() -> impl Strategy<Value = Cell> {
    (cell_facts(), small_value()).prop_map(|(facts, value)| Cell {
        value: Bytes::new(),
        ..cell_under(b"\x10k", &facts, &value)
    })
}

/// Clients' keys with their cells, in order: none, one or several, at most one of them large.
pub fn records(count: RangeInclusive<usize>) -> impl Strategy<Value = Vec<(Vec<u8>, Cell)>> {
    let small = prop::collection::vec(record_of(Space::User, small_value()), count.clone());
    let most = *count.end();
    (small, prop::option::weighted(0.3, record())).prop_map(move |(small, large)| {
        let all: BTreeMap<Vec<u8>, Cell> = small.into_iter().chain(large).collect();
        all.into_iter().take(most).collect()
    })
}
