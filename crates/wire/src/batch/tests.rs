//! Items of batches: read as they were written, and refused alone.

use super::*;
use crate::Condition;
use crate::http::lines::{BatchEnd, batch_end, wrap_chunk};
use crate::http::response::{self, Found, Receipt, Style};
use crate::http::{ChunkDecoder, ChunkItem, Limits, Parsed, parse_head};
use crate::legal;
use crate::{Known, Route, route};
use dendra_base::{Consistency, Durability, Version};
use proptest::prelude::*;
use serde_json::Value;

const RULES: RequestRules = RequestRules {
    nodes: 3,
    replication_factor: 3,
    key_bytes_max: KEY_BYTES_MAX,
    value_bytes_max: dendra_base::limits::VALUE_BYTES_MAX_LIMIT as u64,
};

fn of(items: LineFraming) -> BatchTerms {
    BatchTerms {
        items,
        answers: items,
        quorum: Quorum::usual(3, 3),
        wants_current: false,
        timeout_ms: 1_000,
    }
}

/// An item that was read, or its refusal.
type ReadItem = Result<(Entity, Vec<u8>, Vec<u8>), String>;

/// Reads a body that comes in pieces of `piece` bytes.
fn read(batch: &BatchTerms, body: &[u8], piece: usize) -> Result<Vec<ReadItem>, String> {
    let (mut key, mut value) = (KeyBuf::new(), Vec::new());
    let (mut text, mut searched, mut items) = (Vec::new(), 0, Vec::new());
    let mut pieces = body.chunks(piece);
    let mut is_all = false;
    loop {
        let split = split_item(batch.items, &text, &mut searched, is_all);
        match split.map_err(|refusal| refusal.to_string())? {
            Piece::Incomplete if is_all => return Ok(items),
            Piece::Incomplete => match pieces.next() {
                Some(piece) => text.extend_from_slice(piece),
                None => is_all = true,
            },
            Piece::Blank(len) => drop(text.drain(..len)),
            Piece::End => return Ok(items),
            Piece::Item(len) => {
                let parsed = parse_item(batch, &RULES, &text[..len], &mut key, &mut value);
                items.push(match parsed {
                    Ok(entity) => Ok((entity, key.raw().to_vec(), value.clone())),
                    Err(refusal) => Err(refusal.at_item(items.len() + 1).to_string()),
                });
                drop(text.drain(..len));
            }
        }
    }
}

fn line(text: &str) -> ReadItem {
    let items = read(&of(LineFraming::Ndjson), text.as_bytes(), 4096);
    items.expect("a line ends").pop().expect("there is a line")
}

fn refusal(text: &str) -> String {
    match line(text) {
        Err(sentence) => sentence,
        Ok(item) => panic!("{text}: {item:?}"),
    }
}

#[derive(Clone, Debug)]
struct Drawn {
    op: EntityOp,
    key: Vec<u8>,
    /// The value of a put with its metadata, as it is stored.
    stored: Vec<u8>,
    ttl_s: Option<u32>,
    tag: Option<(bool, Option<Version>)>,
}

#[test]
fn metadata_of_an_item_is_checked() {
    let table = [
        (
            r#"{"op":"get","key":"k","content_type":"a/b"}"#,
            "metadata goes with a put only",
        ),
        (r#"{"key":"k","value":"v","meta":"x"}"#, "meta is an object"),
        (
            r#"{"key":"k","value":"v","meta":{"a":{"b":"c"}}}"#,
            "a string or a whole number",
        ),
        (
            r#"{"key":"k","value":"v","meta":{"a":1}}"#,
            "the content in meta is a string",
        ),
        (
            r#"{"key":"k","value":"v","meta":{"a b":"1"}}"#,
            "`a b` is no name",
        ),
        (
            r#"{"key":"k","value":"v","meta":{"a":"x\r\nY: z"}}"#,
            "control byte",
        ),
        (
            r#"{"key":"k","value":"v","content_type":"a/b\r\nY: z"}"#,
            "control byte",
        ),
        (
            r#"{"key":"k","value":"v","meta":{},"meta":{}}"#,
            "more than once",
        ),
        (
            r#"{"key":"k","value":"v","meta":{"a":"1","A":"2"}}"#,
            "more than once",
        ),
        (
            r#"{"key":"k","value":"v","meta":{"a":"1"}"#,
            "a comma is missing",
        ),
    ];
    for (text, part) in table {
        let sentence = refusal(text);
        assert!(sentence.contains(part), "{text}: {sentence}");
    }
    let many: Vec<_> = (0..40).map(|n| format!("\"n{n}\":\"\"")).collect();
    let many = format!(
        "{{\"key\":\"k\",\"value\":\"v\",\"meta\":{{{}}}}}",
        many.join(",")
    );
    assert!(refusal(&many).contains("at most 32 entries"));
    // A record that says that its value is wrapped, and is not, or on a get.
    let mut record = Vec::new();
    let broken = [&meta::MAGIC[..], b"broken"].concat();
    SentItem::put_stored(b"k", &broken).encode_into(LineFraming::Records, &mut record);
    let read_back = read(&of(LineFraming::Records), &record, 64).expect("it is whole");
    let sentence = read_back[0].as_ref().expect_err("it is refused");
    assert!(sentence.contains("begins as a wrapped one"), "{sentence}");
    record[0] = 1;
    let read_back = read(&of(LineFraming::Records), &record, 64).expect("it is whole");
    assert!(read_back[0].is_err());
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let tag = (any::<bool>(), prop::option::of(legal::version()));
    (
        prop::sample::select(&OPS[..]),
        legal::raw_key(),
        (legal::value(), meta::tests::meta()),
        prop::option::of(1..=TTL_S_MAX),
        prop::option::of(tag),
    )
        .prop_map(|(op, key, (value, meta), ttl_s, tag)| {
            let (is_put, is_touch) = (op == EntityOp::Put, op == EntityOp::Touch);
            Drawn {
                op,
                key,
                stored: match meta::wrap(&meta, &value) {
                    _ if !is_put => Vec::new(),
                    Some(stored) => stored,
                    None => value.to_vec(),
                },
                ttl_s: ttl_s.filter(|_| is_put).or(is_touch.then_some(TTL_S_MAX)),
                tag: tag.filter(|(is_match, _)| *is_match || !is_touch),
            }
        })
        .prop_filter("the cluster's own keys", |it| {
            !it.key.starts_with(&RESERVED)
        })
        // The largest value with metadata goes in a request of its own.
        .prop_filter("more than a batch", |it| {
            it.stored.len() as u64 <= BATCH_BYTES_MAX
        })
}

impl Drawn {
    fn condition(&self) -> Condition {
        match self.tag {
            None if self.op == EntityOp::Touch => Condition::Present,
            None => Condition::None,
            Some((true, None)) => Condition::Present,
            Some((false, None)) => Condition::Absent,
            Some((true, Some(version))) => Condition::Matches(version),
            Some((false, Some(version))) => Condition::Differs(version),
        }
    }

    fn encode_into(&self, framing: LineFraming, out: &mut Vec<u8>) {
        let tag = self.tag.map(|(is_match, version)| {
            let text = version.map_or("*".to_owned(), |version| version.to_string());
            (is_match, text)
        });
        let tag = |wanted| match &tag {
            Some((is_match, text)) if *is_match == wanted => Some(text.as_str()),
            _ => None,
        };
        let item = SentItem {
            op: self.op,
            key: &self.key,
            value: &self.stored,
            is_stored: SentItem::put_stored(&self.key, &self.stored).is_stored,
            ttl_s: self.ttl_s,
            if_match: tag(true),
            if_none_match: tag(false),
        };
        item.encode_into(framing, out);
    }
}

proptest! {
    #![proptest_config(legal::cases(128))]

    #[test]
    fn any_legal_item_of_a_batch_is_read_as_it_was_written(
        items in prop::collection::vec(drawn(), 0..4),
        piece in 1..9_000_usize,
    ) {
        for framing in [LineFraming::Ndjson, LineFraming::Records] {
            let mut body = Vec::new();
            for item in &items {
                item.encode_into(framing, &mut body);
            }
            let read = read(&of(framing), &body, piece);
            let read = read.map_err(TestCaseError::fail)?;
            prop_assert_eq!(read.len(), items.len());
            for (item, read) in items.iter().zip(read) {
                let (entity, key, value) = read.map_err(TestCaseError::fail)?;
                prop_assert_eq!(
                    (entity.op, entity.condition, entity.ttl_s),
                    (item.op, item.condition(), item.ttl_s)
                );
                prop_assert!(key == item.key && value == item.stored);
            }
        }
    }

    #[test]
    fn any_legal_line_of_a_batch_is_read_as_it_was_sent(
        version in legal::version(),
        expiry_ms in prop::option::of(any::<u64>()),
        value in legal::value(),
    ) {
        let receipt = RECEIPT;
        let found = Found { version, expiry_ms, receipt };
        let mut out = Vec::new();
        response::value(&mut out, style(LineFraming::Ndjson), &found, &value);
        let line: Value = serde_json::from_slice(&out).expect("a line is an object");
        prop_assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1);
        let shown = match (&line["value"], &line["value_base64"]) {
            (Value::String(text), Value::Null) => text.clone().into_bytes(),
            (Value::Null, Value::String(text)) => STANDARD.decode(text).expect("base64"),
            other => panic!("{other:?}"),
        };
        prop_assert!(shown == value);
        let tag = version.to_string();
        prop_assert_eq!(line["version"].as_str(), Some(tag.as_str()));
        prop_assert_eq!(line["expires_ms"].as_u64(), expiry_ms);
        let mut record = Vec::new();
        response::value(&mut record, style(LineFraming::Records), &found, &value);
        let (object, shown) = split_record(&record);
        prop_assert!(shown == value);
        prop_assert_eq!(&object["version"], &line["version"]);
    }

    #[test]
    fn a_line_shows_the_metadata_of_its_value(
        meta in meta::tests::meta(), value in legal::small_value(),
    ) {
        let found = Found { version: Version::MAX, expiry_ms: None, receipt: RECEIPT };
        let stored = meta::wrap(&meta, &value).unwrap_or(value.to_vec());
        let mut out = Vec::new();
        response::value(&mut out, style(LineFraming::Ndjson), &found, &stored);
        let shown: Value = serde_json::from_slice(&out).expect("a line is an object");
        prop_assert_eq!(shown["content_type"].as_str(), meta.as_meta().content_type());
        for (name, content) in meta.as_meta().named() {
            prop_assert_eq!(shown["meta"][name].as_str(), Some(content));
        }
        // The same fields are an item, which stores the same bytes.
        let mut fields = shown.as_object().expect("an object").clone();
        fields.retain(|name, _| !["status", "version", "receipt"].contains(&name.as_str()));
        fields.insert("key".to_owned(), "k".into());
        let item = line(&Value::Object(fields).to_string());
        prop_assert_eq!(item.map(|(_, _, read)| read), Ok(stored));
    }

    /// The twin is a reader of any JSON.
    #[test]
    fn a_line_means_what_another_reader_of_json_says(text in prop_oneof![
        "\\{\"key\":\"(a|\\\\u00e9|\\\\ud83d\\\\ude00|\\\\ud83d|\\\\/|\\\\n|\\\\q|é){1,4}\", *\"value\":\"[a-c]?\"[,}]{0,2}",
        "\\{ ?\"(key|value|ttl|op)\" ?:(\"a\"|\"\"|01?|-1|null|\\[\\]|1e2)[,}]",
        "[\\{\\}\",:a-z0-9\\\\ ]{0,24}",
    ]) {
        let twin: Option<serde_json::Map<String, Value>> = serde_json::from_str(&text).ok();
        let item = read(&of(LineFraming::Ndjson), text.as_bytes(), 7);
        let item = item.map_err(TestCaseError::fail)?.pop();
        if let Some(Ok((_, key, value))) = item {
            let twin = twin.expect("the other reader takes it, too");
            prop_assert_eq!(twin["key"].as_str().map(str::as_bytes), Some(&key[..]));
            prop_assert_eq!(twin["value"].as_str().map(str::as_bytes), Some(&value[..]));
        }
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..64), piece in 1..8_usize) {
        for framing in [LineFraming::Ndjson, LineFraming::Records] {
            let _ = read(&of(framing), &body, piece);
        }
    }
}

const RECEIPT: Receipt = Receipt {
    acks: 2,
    from: 3,
    level: Consistency::Linearizable,
    durability: Durability::Sync,
};

fn style(line: LineFraming) -> Style {
    Style {
        line: Some(line),
        ..Style::CLOSING
    }
}

fn split_record(record: &[u8]) -> (Value, &[u8]) {
    let (lengths, rest) = record.split_first_chunk::<8>().expect("two lengths");
    let [object, value] = [0, 4]
        .map(|at| u32::from_be_bytes(lengths[at..at + 4].try_into().expect("four bytes")) as usize);
    assert_eq!(rest.len(), object + value);
    let (object, value) = rest.split_at(object);
    (serde_json::from_slice(object).expect("an object"), value)
}

#[test]
fn the_lines_of_a_scan_are_a_batch() {
    let (entity, key, value) = line("{\"key\":\"a\",\"value\":\"1\"}\r\n").expect("it is an item");
    assert_eq!(
        (entity.op, &key[..], &value[..]),
        (EntityOp::Put, &b"a"[..], &b"1"[..])
    );
    let text = "{\"key_base64\":\"/w==\",\"value_base64\":\"AA==\"}";
    let (_, key, value) = line(text).expect("it is an item, without a line end, too");
    assert_eq!((&key[..], &value[..]), (&b"\xff"[..], &b"\0"[..]));
    let mut record = Vec::new();
    SentItem::put(b"k", b"v").encode_into(LineFraming::Records, &mut record);
    record.extend_from_slice(&[0xff; 8]);
    record.extend_from_slice(b"behind the end");
    let items = read(&of(LineFraming::Records), &record, 3).expect("records");
    assert_eq!(items.len(), 1);
    assert_eq!(record[..10], [0, 0, 0, 1, 0, 0, 0, 1, b'k', b'v']);
}

#[test]
fn each_fault_is_its_item_s_alone_and_names_its_place() {
    let faults = [
        (
            "nonsense",
            "bad-item: item 2: the line is not a JSON object",
        ),
        (
            "{\"op\":\"put\"}",
            "missing-parameter: item 2: the item has no key",
        ),
        (
            "{\"key\":\"k\"}",
            "missing-parameter: item 2: a put has a value",
        ),
        (
            "{\"op\":\"get\",\"key\":\"k\",\"value\":\"\"}",
            "bad-item: item 2: only a put",
        ),
        (
            "{\"op\":\"scan\",\"key\":\"k\"}",
            "bad-choice: item 2: op is put, get, delete or touch",
        ),
        (
            "{\"op\":1,\"key\":\"k\"}",
            "bad-item: item 2: op is a string",
        ),
        (
            "{\"key\":\"\",\"value\":\"\"}",
            "empty-parameter: item 2: the key is empty",
        ),
        (
            "{\"key\":1,\"value\":\"\"}",
            "bad-item: item 2: key is a string",
        ),
        (
            "{\"key\":\"k\",\"key_base64\":\"aw==\",\"value\":\"\"}",
            "repeated-parameter: item 2",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"value\":\"\"}",
            "repeated-parameter: item 2: value",
        ),
        (
            "{\"key_base64\":\"a\",\"value\":\"\"}",
            "bad-item: item 2: key_base64 is not base64",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"ttl\":0}",
            "bad-number: item 2: ttl is 1 to",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"ttl\":\"9\"}",
            "bad-number: item 2: ttl: `9`",
        ),
        (
            "{\"op\":\"get\",\"key\":\"k\",\"ttl\":9}",
            "unknown-parameter: item 2: ttl goes with",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"TTL\":9}",
            "unknown-parameter: item 2: an item has no",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"ack\":4}",
            "bad-quorum: item 2: ack=4",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"if-match\":\"x\"}",
            "bad-condition: item 2: this entity",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\",\"if-match\":\"*\",\"if-none-match\":\"*\"}",
            "bad-condition: item 2: give If-Match or If-None-Match, not both",
        ),
        (
            "{\"key\":\"k\",\"value\":\"\"} x",
            "bad-item: item 2: there is more behind the object",
        ),
        (
            "{\"key\":\"k\",\"value\":{}}",
            "bad-item: item 2: value is a string",
        ),
        (
            "{\"key\":\"k\",\"value\":[]}",
            "bad-item: item 2: a string or a whole number",
        ),
        (
            "{\"key\":\"\\ud800\",\"value\":\"\"}",
            "bad-item: item 2: a string holds \\u",
        ),
        (
            "{\"key_base64\":\"/////////////////////w==\",\"value\":\"\"}",
            "reserved-key: item 2",
        ),
    ];
    for (fault, wanted) in faults {
        let body = format!(
            "{{\"key\":\"a\",\"value\":\"\"}}\n\n{fault}\n{{\"key\":\"b\",\"value\":\"\"}}\n"
        );
        let items = read(&of(LineFraming::Ndjson), body.as_bytes(), 5).expect(fault);
        assert_eq!(items.len(), 3, "{fault}");
        assert!(items[0].is_ok() && items[2].is_ok(), "{fault}");
        let sentence = items[1].as_ref().expect_err(fault);
        assert!(sentence.starts_with(wanted), "{fault}: {sentence}");
    }
    let long = format!("{{\"key\":\"{}\",\"value\":\"\"}}", "k".repeat(1025));
    assert!(refusal(&long).starts_with("key-too-long: item 1"));
}

#[test]
fn a_condition_stands_with_and_without_quotes() {
    let version: Version = "000000000000001f-2-0".parse().expect("a version");
    for tag in ["000000000000001f-2-0", "\\\"000000000000001f-2-0\\\""] {
        let text = format!("{{\"op\":\"delete\",\"key\":\"k\",\"if-match\":\"{tag}\"}}");
        let (entity, ..) = line(&text).expect("it is an item");
        assert_eq!(entity.condition, Condition::Matches(version));
    }
    let list = r#"\"x\", W/\"000000000000001f-2-0\""#;
    for (name, wanted) in [
        ("if-match", Condition::matches_one_of(&[])),
        ("if-none-match", Condition::Differs(version)),
    ] {
        let text = format!("{{\"op\":\"delete\",\"key\":\"k\",\"{name}\":\"{list}\"}}");
        assert_eq!(line(&text).expect("it is an item").0.condition, wanted);
    }
}

#[test]
fn a_record_that_is_none_ends_the_batch() {
    let batch = of(LineFraming::Records);
    for (body, wanted) in [
        (
            &[4, 0, 0, 1, 0, 0, 0, 0, b'k'][..],
            "bad-item: a record's operation",
        ),
        (
            &[0, 16, 0, 1, 0, 0, 0, 0, b'k'],
            "bad-item: a record's options",
        ),
        (&[0, 0, 0, 1, 0, 0x80, 0, 1, b'k'], "batch-too-large"),
        (
            &[0, 0, 0, 1, 0, 0, 0, 2, b'k'],
            "bad-item: the body ends inside",
        ),
        (&[0, 7, 0], "bad-item: the body ends inside"),
    ] {
        let refusal = read(&batch, body, 2).expect_err(wanted);
        assert!(refusal.starts_with(wanted), "{refusal}");
    }
    let empty_key = [0, 0, 0, 0, 0, 0, 0, 1, b'v', 1, 0, 0, 1, 0, 0, 0, 0, b'k'];
    let items = read(&batch, &empty_key, 4).expect("both end");
    assert!(items[0].is_err() && items[1].is_ok(), "{items:?}");
}

#[test]
fn the_head_says_what_counts_for_all_items() {
    let ask = |line: &str, lines: &str| {
        let text = format!("{line} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
            panic!("{text:?} is not a head");
        };
        route(&head, &RULES, &mut KeyBuf::new()).map_err(|refusal| refusal.to_string())
    };
    let batch = |line, lines| match ask(line, lines) {
        Ok(Route::Batch(batch)) => batch,
        other => panic!("{other:?}"),
    };
    let records = "application/vnd.dendra.records";
    let usual = batch("POST /v0/batch", "Content-Length: 8388608\r\n");
    assert_eq!(usual, of(LineFraming::Ndjson));
    let all = batch(
        "POST /v0/batch?replicas=1/2",
        &format!(
            "Content-Type: {records}; x=y\r\nAccept: {records}\r\nDendra-Timeout-Ms: 7\r\nPrefer: return=representation\r\n"
        ),
    );
    assert_eq!(
        (all.items, all.answers),
        (LineFraming::Records, LineFraming::Records)
    );
    assert_eq!(
        (all.quorum.ack(), all.quorum.from(), all.timeout_ms),
        (1, 2, 7)
    );
    assert!(all.wants_current);
    for (line, lines, wanted) in [
        ("PUT /v0/batch", "", "method-not-allowed"),
        ("POST /v0/batch?id=k", "", "unknown-parameter"),
        ("POST /v0/batch?ack=4", "", "bad-quorum"),
        ("POST /v0/batch", "If-Match: *\r\n", "bad-condition"),
        ("POST /v0/batch", "Accept: image/png\r\n", "not-acceptable"),
        (
            "POST /v0/batch",
            "Content-Encoding: gzip\r\n",
            "content-coding",
        ),
        (
            "POST /v0/batch",
            "Content-Length: 8388609\r\n",
            "batch-too-large",
        ),
        ("POST /v0/batch", "Dendra-Timeout-Ms: 0\r\n", "bad-timeout"),
    ] {
        let refusal = ask(line, lines).expect_err(wanted);
        assert!(refusal.starts_with(wanted), "{line} {lines}: {refusal}");
    }
}

/// A line for each answer, with the same facts as the answer by itself.
#[test]
fn each_answer_is_one_line() {
    let version: Version = "000000000000001f-2-0".parse().expect("a version");
    let found = Found {
        version,
        expiry_ms: Some(5),
        receipt: RECEIPT,
    };
    let style = style(LineFraming::Ndjson);
    let mut out = Vec::new();
    response::created(&mut out, style, version, RECEIPT);
    response::accepted(&mut out, style, version, RECEIPT);
    response::absent(&mut out, style, RECEIPT);
    response::not_modified(&mut out, style, &found, &[7; 7]);
    response::condition_failed(&mut out, style, Some(version));
    response::condition_failed(&mut out, style, None);
    response::condition_failed_with(&mut out, style, version, None, b"now");
    response::refusal(&mut out, style, &Refusal::overloaded("\"full\"", 3));
    response::refusal(
        &mut out,
        style,
        &Refusal::too_few_answers(1, 2, 3, Known::Unknown),
    );
    let receipt = "acks=2/3; level=linearizable; durability=sync";
    let tag = "000000000000001f-2-0";
    let wanted = format!(
        "{{\"status\":201,\"version\":\"{tag}\",\"receipt\":\"{receipt}\"}}
{{\"status\":202,\"version\":\"{tag}\",\"receipt\":\"{receipt}\"}}
{{\"status\":404,\"receipt\":\"{receipt}\"}}
{{\"status\":304,\"version\":\"{tag}\",\"receipt\":\"{receipt}\",\"expires_ms\":5}}
{{\"status\":412,\"version\":\"{tag}\",\"receipt\":\"outcome=not-applied\",\"error\":\"condition-failed\",\"message\":\"the record has this version\"}}
{{\"status\":412,\"receipt\":\"outcome=not-applied\",\"error\":\"condition-failed\",\"message\":\"there is no record\"}}
{{\"status\":412,\"version\":\"{tag}\",\"receipt\":\"outcome=not-applied\",\"error\":\"condition-failed\",\"message\":\"the record has this version\",\"value\":\"now\"}}
{{\"status\":503,\"receipt\":\"outcome=not-applied\",\"error\":\"overloaded\",\"message\":\"\\\"full\\\"\",\"retry_after\":3}}
{{\"status\":504,\"receipt\":\"acks=1/3; outcome=unknown\",\"error\":\"too-few-answers\",\"message\":\"1 of 3 replicas answered, 2 are needed\"}}
"
    );
    assert_eq!(String::from_utf8(out).expect("text"), wanted);
}

#[test]
fn lines_travel_in_chunks_that_end_with_the_number_of_items() {
    let mut out = b"head".to_vec();
    wrap_chunk(&mut out, 4);
    assert_eq!(
        out, b"head",
        "no chunk is empty: that would be the last one"
    );
    out.extend_from_slice(&[b'x'; 300]);
    wrap_chunk(&mut out, 4);
    batch_end(&mut out, LineFraming::Ndjson, BatchEnd::Stopped, 12);
    let mut decoder = ChunkDecoder::new(1_000);
    let mut rest = &out[4..];
    let mut data = Vec::new();
    loop {
        match decoder.decode(rest).expect("chunks") {
            ChunkItem::Data { start, end } => {
                data.extend_from_slice(&rest[start..end]);
                rest = &rest[end..];
            }
            ChunkItem::End { consumed } => {
                assert_eq!((consumed, data.len()), (rest.len(), 300));
                break;
            }
            ChunkItem::More { .. } => panic!("it is whole"),
        }
    }
    assert!(out.ends_with(b"0\r\nDendra-Batch: stopped; items=12\r\n\r\n"));
}
