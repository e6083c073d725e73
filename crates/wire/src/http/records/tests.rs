//! Records read back in every framing.

use super::*;
use crate::client::{ScanOutcome, scan_end as read_scan_end};
use crate::http::response::{ScanEnd, scan_end};
use crate::http::{ChunkDecoder, ChunkItem};
use crate::legal;
use proptest::prelude::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The chunks of a body that is whole.
fn chunks(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut decoder = ChunkDecoder::new(u64::MAX);
    let mut rest = bytes;
    let mut chunks = Vec::new();
    loop {
        match decoder.decode(rest).expect("our own chunks are sound") {
            ChunkItem::Data { start, end } => {
                chunks.push(rest[start..end].to_vec());
                rest = &rest[end..];
            }
            ChunkItem::End { consumed } => {
                assert_eq!(consumed, rest.len());
                return chunks;
            }
            ChunkItem::More { .. } => panic!("the body is whole"),
        }
    }
}

fn encode(framing: Framing, show: ShownPart, pairs: &Pairs) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in pairs {
        record(&mut out, framing, show, key, value);
    }
    scan_end(&mut out, framing, ScanEnd::Complete);
    out
}

proptest! {
    #[test]
    fn a_record_is_never_longer_than_said_and_little_shorter(
        key in prop::collection::vec(any::<u8>(), 1..40),
        text in "[\\x00-\\x7f\\u{e9}]{0,200}",
        is_text in any::<bool>(),
        place in 0usize..6,
    ) {
        let framing = [Framing::Plain, Framing::Ndjson, Framing::Records][place % 3];
        let show = [ShownPart::KeysAndValues, ShownPart::KeysOnly][place / 3];
        let value = if is_text {
            text.into_bytes()
        } else {
            key.iter().rev().map(|byte| byte | 0x80).collect()
        };
        let mut out = Vec::new();
        record(&mut out, framing, show, &key, &value);
        let most = record_len_max(framing, show, &key, &value);
        prop_assert!(out.len() <= most, "{} > {most}", out.len());
        prop_assert!(most <= out.len() + 60, "{most} for {}", out.len());
        let is_drawn_as_text = framing != Framing::Ndjson;
        if is_drawn_as_text {
            let digits = out.iter().position(|&byte| byte == b'\r').expect("a size line");
            prop_assert_eq!(most - out.len(), 16 - digits, "exact but for the digits");
        }
    }
}

#[test]
fn each_framing_is_drawn_once() {
    let pairs: Pairs = vec![
        (b"a\"\n".to_vec(), b"v\x01".to_vec()),
        (b"b".to_vec(), vec![0xff]),
    ];
    let end = b"0\r\nDendra-Scan: complete\r\n\r\n";
    let table: [(Framing, ShownPart, &[&[u8]]); 5] = [
        (
            Framing::Plain,
            ShownPart::KeysAndValues,
            &[b"6\r\n", b"a\"\n\nv\x01", b"\r\n3\r\n", b"b\n\xff", b"\r\n"],
        ),
        (
            Framing::Ndjson,
            ShownPart::KeysAndValues,
            &[
                b"22\r\n",
                br#"{"key":"a\"\n","value":"v\u0001"}"#,
                b"\n\r\n2c\r\n",
                br#"{"key_base64":"Yg==","value_base64":"/w=="}"#,
                b"\n\r\n",
            ],
        ),
        (
            Framing::Records,
            ShownPart::KeysAndValues,
            &[
                b"d\r\n\0\0\0\x03\0\0\0\x02a\"\nv\x01\r\n",
                b"a\r\n\0\0\0\x01\0\0\0\x01b\xff\r\n",
                b"8\r\n\xff\xff\xff\xff\xff\xff\xff\xff\r\n",
            ],
        ),
        (
            Framing::Plain,
            ShownPart::KeysOnly,
            &[b"4\r\n", b"a\"\n\n", b"\r\n2\r\n", b"b\n", b"\r\n"],
        ),
        (
            Framing::Ndjson,
            ShownPart::KeysOnly,
            &[
                b"10\r\n",
                br#"{"key":"a\"\n"}"#,
                b"\n\r\nc\r\n",
                br#"{"key":"b"}"#,
                b"\n\r\n",
            ],
        ),
    ];
    for (framing, show, parts) in table {
        let expected = [parts.concat().as_slice(), end].concat();
        let bytes = encode(framing, show, &pairs);
        assert_eq!(
            bytes.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{framing:?} {show:?}"
        );
    }
}

#[test]
fn a_cut_scan_has_no_end_mark_and_a_limited_one_has() {
    let trailer = b"0\r\nDendra-Scan: stopped; next=a%20b\r\n\r\n";
    let mut cut = Vec::new();
    scan_end(
        &mut cut,
        Framing::Records,
        ScanEnd::Stopped { next: b"a b" },
    );
    assert_eq!(cut, trailer);
    let mut limited = Vec::new();
    scan_end(
        &mut limited,
        Framing::Records,
        ScanEnd::Limited { next: b"a b" },
    );
    assert_eq!(
        limited,
        [b"8\r\n".as_slice(), &[0xff; 8], b"\r\n", trailer].concat()
    );
}

#[test]
fn impossible_lengths_are_bad() {
    for lengths in [
        [0, 1],
        [1025, 0],
        [1, dendra_base::limits::WRAPPED_VALUE_BYTES_MAX as u32 + 1],
        [u32::MAX, 1],
        [1, u32::MAX],
    ] {
        let bytes: Vec<u8> = lengths.iter().flat_map(|len| len.to_be_bytes()).collect();
        assert_eq!(decode_record(&bytes), Decoded::Bad, "{lengths:?}");
    }
}

/// One field of a line, as text or as base64.
fn field(line: &serde_json::Value, name: &str) -> Vec<u8> {
    match (&line[name], &line[format!("{name}_base64")]) {
        (serde_json::Value::String(text), serde_json::Value::Null) => text.clone().into_bytes(),
        (serde_json::Value::Null, serde_json::Value::String(text)) => {
            STANDARD.decode(text).expect("base64 reads back")
        }
        other => panic!("exactly one form of {name}: {other:?}"),
    }
}

fn any_pairs() -> impl Strategy<Value = Pairs> {
    let bytes = |min: usize| {
        prop_oneof![
            prop::collection::vec(any::<u8>(), min..20),
            prop::collection::vec(0u8..128, min..20),
            "\\PC{1,8}".prop_map(String::into_bytes),
        ]
    };
    prop::collection::vec((bytes(1), bytes(0)), 0..8)
}

proptest! {
    #[test]
    fn plain_is_one_chunk_per_record(pairs in any_pairs()) {
        let chunks = chunks(&encode(Framing::Plain, ShownPart::KeysAndValues, &pairs));
        prop_assert_eq!(chunks.len(), pairs.len());
        for (chunk, (key, value)) in chunks.iter().zip(&pairs) {
            prop_assert_eq!(chunk, &[key.as_slice(), b"\n", value].concat());
            if !key.contains(&b'\n') {
                prop_assert_eq!(split_plain(chunk), Some((key.as_slice(), value.as_slice())));
            }
        }
    }

    #[test]
    fn ndjson_reads_back_with_another_parser(pairs in any_pairs()) {
        for show in [ShownPart::KeysAndValues, ShownPart::KeysOnly] {
            let chunks = chunks(&encode(Framing::Ndjson, show, &pairs));
            prop_assert_eq!(chunks.len(), pairs.len());
            for (chunk, (key, value)) in chunks.iter().zip(&pairs) {
                let (line_end, line) = chunk.split_last().expect("a chunk is not empty");
                prop_assert_eq!(*line_end, b'\n');
                prop_assert!(!line.contains(&b'\n'));
                let line = serde_json::from_slice(line).expect("a line is JSON");
                prop_assert_eq!(&field(&line, "key"), key);
                if show == ShownPart::KeysAndValues {
                    prop_assert_eq!(&field(&line, "value"), value);
                }
            }
        }
    }

    #[test]
    fn records_read_back(pairs in any_pairs()) {
        let body = chunks(&encode(Framing::Records, ShownPart::KeysAndValues, &pairs)).concat();
        let mut rest = body.as_slice();
        for (key, value) in &pairs {
            for len in 0..rest.len() {
                match decode_record(&rest[..len]) {
                    Decoded::Incomplete { wanted } => prop_assert!(wanted > len),
                    Decoded::Record { consumed, .. } => prop_assert!(consumed <= len),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            let consumed = 8 + key.len() + value.len();
            let expected = Decoded::Record { key, value, consumed };
            prop_assert_eq!(decode_record(rest), expected);
            rest = &rest[consumed..];
        }
        prop_assert_eq!(decode_record(rest), Decoded::End { consumed: rest.len() });
    }

    #[test]
    fn no_bytes_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        decode_record(&bytes);
    }
}

proptest! {
    #![proptest_config(legal::cases(96))]

    #[test]
    fn any_legal_scan_is_read_as_it_was_sent(
        records in legal::records(0..=4), metas in prop::collection::vec(meta::tests::meta(), 4),
        next in prop::option::of(legal::bound()), is_cut: bool,
    ) {
        for (framing, show) in [
            (Framing::Plain, ShownPart::KeysAndValues),
            (Framing::Ndjson, ShownPart::KeysAndValues),
            (Framing::Records, ShownPart::KeysAndValues),
            (Framing::Wrapped, ShownPart::KeysAndValues),
            (Framing::Plain, ShownPart::KeysOnly),
            (Framing::Ndjson, ShownPart::KeysOnly),
            (Framing::Records, ShownPart::KeysOnly),
        ] {
            let end = match &next {
                None => ScanEnd::Complete,
                Some(next) if is_cut => ScanEnd::Stopped { next },
                Some(next) => ScanEnd::Limited { next },
            };
            let mut out = Vec::new();
            for ((key, cell), meta) in records.iter().zip(&metas) {
                let before = out.len();
                let wrapped = meta::wrap(meta, &cell.value);
                let stored = wrapped.as_deref().unwrap_or(&cell.value);
                record(&mut out, framing, show, key, stored);
                prop_assert!(out.len() - before <= record_len_max(framing, show, key, stored));
            }
            scan_end(&mut out, framing, end);
            let mut decoder = ChunkDecoder::new(u64::MAX);
            let (mut rest, mut body) = (&out[..], Vec::new());
            let mut chunks = Vec::new();
            loop {
                match decoder.decode(rest).expect("our own chunks are sound") {
                    ChunkItem::Data { start, end } => {
                        chunks.push(rest[start..end].to_vec());
                        body.extend_from_slice(&rest[start..end]);
                        rest = &rest[end..];
                    }
                    ChunkItem::End { consumed } => {
                        prop_assert_eq!(consumed, rest.len());
                        break;
                    }
                    ChunkItem::More { .. } => return Err(TestCaseError::fail("it is whole")),
                }
            }
            let wanted_end = next.clone().map_or(ScanOutcome::Complete, |next| {
                ScanOutcome::Stopped { next }
            });
            let trailer = &rest[rest.len() - decoder.trailer_len()..];
            prop_assert_eq!(read_scan_end(trailer), Some(wanted_end));
            let has_marks = matches!(framing, Framing::Records | Framing::Wrapped);
            let is_marked = has_marks && !(is_cut && next.is_some());
            prop_assert_eq!(chunks.len(), records.len() + usize::from(is_marked));
            let mut records_left = &body[..];
            for (((key, cell), meta), chunk) in records.iter().zip(&metas).zip(&chunks) {
                let value = match show {
                    ShownPart::KeysAndValues => &cell.value[..],
                    ShownPart::KeysOnly | ShownPart::Number => b"",
                };
                match framing {
                    Framing::Plain => {
                        let (shown_key, behind) = chunk.split_at(key.len());
                        let wanted = Some((&b'\n', value));
                        prop_assert!(shown_key == key && behind.split_first() == wanted);
                        if !key.contains(&b'\n') {
                            prop_assert!(split_plain(chunk) == Some((key, value)));
                        }
                    }
                    Framing::Ndjson => {
                        let line = serde_json::from_slice(chunk)?;
                        prop_assert!(field(&line, "key") == *key);
                        let shows_value = show == ShownPart::KeysAndValues;
                        prop_assert!(!shows_value || field(&line, "value") == value);
                        let shown = if shows_value { meta.as_meta() } else { Meta::default() };
                        prop_assert_eq!(line["content_type"].as_str(), shown.content_type());
                        let named: Vec<_> = line["meta"].as_object().into_iter().flatten().collect();
                        prop_assert_eq!(named.len(), shown.named().count());
                        for (name, content) in shown.named() {
                            prop_assert_eq!(line["meta"][name].as_str(), Some(content));
                        }
                    }
                    Framing::Records => {
                        let consumed = 8 + key.len() + value.len();
                        let read = decode_record(records_left);
                        let wanted = Decoded::Record { key, value, consumed };
                        prop_assert!(read == wanted);
                        records_left = &records_left[consumed..];
                    }
                    Framing::Wrapped => {
                        let read = decode_record(records_left);
                        let Decoded::Record { key: read_key, value: stored, consumed } = read else {
                            return Err(TestCaseError::fail("a record is missing"));
                        };
                        prop_assert!(read_key == key);
                        prop_assert!(meta::unwrap(stored) == (meta.as_meta(), value));
                        records_left = &records_left[consumed..];
                    }
                }
            }
            if has_marks {
                let wanted = if is_marked {
                    Decoded::End { consumed: 8 }
                } else {
                    Decoded::Incomplete { wanted: 8 }
                };
                prop_assert_eq!(decode_record(records_left), wanted);
            }
        }
    }
}
