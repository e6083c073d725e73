//! The door in front of an engine of others, which a map in memory plays here.
//!
//! ```text
//! the test ── HTTP ─► a front door ─► desk ─► DumbStore: holds operations up, and fails, when told
//! ```
//!
//! Invariants
//! 1. The contract is that of docs/api.md: the same requests as of a node, and the same answers.
//!
//! Not here: real engines (crate `dendra`, `tests/outgrow/`).
//! See: docs/stores.md.

mod support;

use dendra_base::Known;
use dendra_server::settings::{RootToken, Settings};
use dendra_server::{Server, StoreFiles, StorePapers};
use dendra_stores::{DumbStore, OuterFailure};
use dendra_wire::rights::{Grant, Quota, TokenRole, TokenTable, hash_of};
use std::sync::Arc;
use std::time::Instant;
use support::{Client, Node, PATIENCE, rest, settings};

fn front(copies: u8, change: impl FnOnce(&mut Settings)) -> (Node, Arc<DumbStore>) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut settings = settings(&folder);
    settings.data = folder.path().join("untouched");
    change(&mut settings);
    let store = Arc::new(DumbStore::new(copies));
    let papers = StorePapers::open(StoreFiles::default()).expect("there are no files");
    let running = Server::start_front(settings, Arc::clone(&store) as _, papers);
    let running = running.expect("it starts");
    let node = Node {
        running: Some(running),
        folder,
    };
    (node, store)
}

const RECEIPT: &str = "acks=2/3; level=linearizable; durability=os";

#[test]
fn one_key_has_the_contract_of_a_node() {
    let (node, store) = front(3, |_| {});
    let mut client = node.client();
    assert_eq!(client.value("k").status, 404);
    let put = client.put("k", b"one");
    assert_eq!(
        (put.status, put.header("Dendra-Receipt")),
        (201, Some(RECEIPT))
    );
    let got = client.value("k");
    assert_eq!((got.status, &got.body[..]), (200, &b"one"[..]));
    assert_eq!(got.header("Dendra-Receipt"), Some(RECEIPT));
    assert_eq!(got.etag(), put.etag());
    let head = client.ask("HEAD", "/v0/entity?id=k", "", b"");
    assert_eq!(head.header("Content-Length"), Some("3"));
    let weak = client.get("/v0/entity?id=k&ack=1");
    let receipt = "acks=1/3; level=eventual; durability=os";
    assert_eq!(weak.header("Dendra-Receipt"), Some(receipt));
    let weak = client.ask("PUT", "/v0/entity?id=k&ack=1&from=1", "", b"two");
    assert_eq!(weak.header("Dendra-Receipt"), Some(RECEIPT));
    assert_eq!(client.delete("k").status, 202);
    assert_eq!(client.delete("k").status, 202);
    assert_eq!(client.value("k").status, 404);
    assert!(store.is_empty());
    assert!(!node.folder.path().join("untouched").exists());
    node.stop();
}

#[test]
fn metadata_is_kept_by_a_store_that_knows_none() {
    let (node, store) = front(3, |_| {});
    let mut client = node.client();
    let lines = "Content-Type: text/css\r\nDendra-Meta-owner: ada\r\n";
    let mut put = |lines: &str, value: &[u8]| client.ask("PUT", "/v0/entity?id=k", lines, value);
    for value in [b"a{}".to_vec(), vec![b'v'; 100_000]] {
        assert_eq!(put(lines, &value).status, 201);
        let refused = put(
            "If-None-Match: *\r\nPrefer: return=representation\r\n",
            b"2",
        );
        assert_eq!(refused.status, 412);
        assert!(refused.body == value, "{} bytes", value.len());
        assert_eq!(refused.header("Content-Type"), Some("text/css"));
        assert_eq!(refused.header("Dendra-Meta-owner"), Some("ada"));
    }
    let scanned = client.ask(
        "GET",
        "/v0/entities",
        "Accept: application/x-ndjson\r\n",
        b"",
    );
    let scanned = scanned.lines();
    assert_eq!(scanned[0]["content_type"], "text/css");
    assert_eq!(scanned[0]["meta"]["owner"], "ada");
    assert_eq!(store.len(), 1);
}

#[test]
fn a_batch_has_the_contract_of_a_node() {
    let (node, store) = front(3, |_| {});
    let mut client = node.client();
    let body = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n{\"op\":\"get\",\"key\":\"a\"}\n\
        {\"key\":\"a\",\"value\":\"3\",\"if-none-match\":\"*\"}\n{\"op\":\"delete\",\"key\":\"a\"}\n\
        {\"op\":\"get\",\"key\":\"a\"}\n{\"op\":\"get\",\"key\":\"b\",\"ack\":3}\n{\"op\":\"get\",\"key\":\"b\"}\n";
    let (answer, lines) = client.batch("", body);
    assert_eq!(answer.trailer.as_deref(), Some("complete; items=8"));
    let statuses: Vec<_> = lines
        .iter()
        .filter_map(|line| line["status"].as_u64())
        .collect();
    assert_eq!(statuses, [201, 201, 200, 412, 202, 404, 501, 200]);
    assert_eq!(lines[0]["receipt"], RECEIPT);
    assert_eq!(lines[7]["value"], "2");
    assert_eq!(lines[6]["error"], "not-offered");
    assert_eq!(store.len(), 1);
}

#[test]
fn conditions_are_judged_by_the_store() {
    let (node, _store) = front(1, |_| {});
    let mut client = node.client();
    let mut put = |condition: &str, value: &[u8]| {
        let condition = format!("{condition}\r\n");
        client.ask("PUT", "/v0/entity?id=k", &condition, value)
    };
    assert_eq!(put("If-Match: *", b"0").status, 412);
    let one = put("If-None-Match: *", b"1");
    assert_eq!(one.status, 201);
    let refused = put("If-None-Match: *\r\nPrefer: return=representation", b"2");
    assert_eq!((refused.status, &refused.body[..]), (412, &b"1"[..]));
    assert_eq!(refused.etag(), one.etag());
    let two = put(&format!("If-Match: {}", one.etag()), b"2");
    assert_eq!(two.status, 201);
    assert_eq!(put(&format!("If-Match: {}", one.etag()), b"3").status, 412);
    assert_eq!(
        put(&format!("If-None-Match: {}", two.etag()), b"3").status,
        412
    );
    let unchanged = format!("If-None-Match: {}\r\n", two.etag());
    let unchanged = client.ask("GET", "/v0/entity?id=k", &unchanged, b"");
    assert_eq!(unchanged.status, 304);
    let delete = format!("If-Match: {}\r\n", two.etag());
    let deleted = client.ask("DELETE", "/v0/entity?id=k", &delete, b"");
    assert_eq!(deleted.status, 202);
}

#[test]
fn a_record_with_a_time_to_live_says_so_and_ends() {
    let (node, store) = front(1, |_| {});
    let mut client = node.client();
    client.ask("PUT", "/v0/entity?id=k&ttl=1", "", b"v");
    assert!(client.value("k").header("Dendra-Expires").is_some());
    let deadline = Instant::now() + PATIENCE;
    while client.value("k").status == 200 {
        assert!(Instant::now() < deadline, "it stays");
    }
    assert_eq!(store.len(), 1, "the store still has it");
    let again = client.ask("PUT", "/v0/entity?id=k", "If-None-Match: *\r\n", b"w");
    assert_eq!(again.status, 201);
}

#[test]
fn a_touch_writes_the_value_that_is_there_with_another_end() {
    let (node, _store) = front(3, |_| {});
    let mut client = node.client();
    let touch = |client: &mut Client, headers: &str| {
        client.ask("POST", "/v0/touch?id=k&ttl=60", headers, b"")
    };
    assert_eq!(touch(&mut client, "").status, 404);
    let one = client.put("k", b"v").etag().to_owned();
    let touched = touch(&mut client, &format!("If-Match: {one}\r\n"));
    assert_eq!((touched.status, touched.body.len()), (200, 0));
    assert_eq!(touched.header("Dendra-Receipt"), Some(RECEIPT));
    let seen = client.value("k");
    assert_eq!((seen.etag(), &seen.body[..]), (touched.etag(), &b"v"[..]));
    assert_eq!(
        seen.header("Dendra-Expires"),
        touched.header("Dendra-Expires")
    );
    let late = touch(&mut client, &format!("If-Match: {one}\r\n"));
    assert_eq!((late.status, late.etag()), (412, touched.etag()));
    client.delete("k");
    assert_eq!(touch(&mut client, "If-Match: *\r\n").status, 404);
    // The engine still has the row of a value that has ended.
    let ends = client.ask("PUT", "/v0/entity?id=k&ttl=1", "", b"v");
    assert_eq!(ends.status, 201);
    while client.value("k").status != 404 {
        rest();
    }
    for headers in ["", "If-Match: *\r\n", &format!("If-Match: {one}\r\n")] {
        assert_eq!(touch(&mut client, headers).status, 404, "{headers}");
    }
}

#[test]
fn a_scan_goes_through_all_pages_in_both_directions() {
    let (node, _store) = front(1, |_| {});
    let mut client = node.client();
    let value = vec![b'v'; 10_000];
    let keys: Vec<String> = (100..200).map(|n| format!("k{n}")).collect();
    for key in &keys {
        assert_eq!(client.put(key, &value).status, 201);
    }
    let scan = |client: &mut Client, how: &str| {
        let answer = client.get(&format!("/v0/entities?prefix=k&keys-only=true{how}"));
        (answer.text(), answer.trailer.expect("an end"))
    };
    let all = keys
        .iter()
        .map(|key| format!("{key}\n"))
        .collect::<String>();
    assert_eq!(scan(&mut client, ""), (all, "complete".to_owned()));
    let back = keys.iter().rev().map(|key| format!("{key}\n"));
    let back = back.collect::<String>();
    assert_eq!(
        scan(&mut client, "&reverse=true"),
        (back, "complete".to_owned())
    );
    let (some, end) = scan(&mut client, "&limit=30");
    assert_eq!(
        (some.lines().count(), end.as_str()),
        (30, "stopped; next=k130")
    );
    let count = client.get("/v0/count?start=k110&end=k200").text();
    assert_eq!(count, "{\"count\":90,\"complete\":true}\n");
    let local = client.get("/v0/entities?prefix=k&scope=local");
    assert_eq!(local.status, 501, "{}", local.text());
}

#[test]
fn what_the_store_cannot_promise_is_refused() {
    let (node, _store) = front(3, |_| {});
    let mut client = node.client();
    let all = client.ask("PUT", "/v0/entity?id=k&ack=3", "", b"v");
    assert_eq!(all.status, 501);
    assert!(all.text().starts_with("not-offered: "), "{}", all.text());
    let many = client.ask("PUT", "/v0/entity?id=k&ack=4&from=4", "", b"v");
    assert!(many.text().starts_with("bad-quorum: "), "{}", many.text());
    let weak = client.ask("PUT", "/v0/entity?id=k&ack=1", "If-Match: *\r\n", b"v");
    assert!(weak.text().starts_with("bad-quorum: "), "{}", weak.text());
    let explained = client.get("/v0/entity?id=k&explain=1");
    assert_eq!(explained.status, 501);
    let sentence = explained.text();
    assert!(sentence.starts_with("not-offered: explain=1"), "{sentence}");
    let copy = node.admin().ask("POST", "/v0/checkpoints", "", b"");
    assert_eq!(copy.status, 501, "{}", copy.text());
    assert!(
        node.admin()
            .get("/v0/status")
            .text()
            .contains("\"copies\": 3")
    );
}

#[test]
fn a_quota_that_a_front_door_cannot_count_is_refused() {
    let token = format!("dendra_{}", "r".repeat(43));
    let (node, store) = front(1, |settings| {
        settings.root_token = RootToken::new(token.as_bytes());
    });
    let mut client = node.client();
    let hash = hash_of(token.as_bytes()).expect("a token");
    let mut put = |quota: Quota| {
        let mut grant = Grant::of_token("app", TokenRole::Write, b"", hash);
        grant.quota = quota;
        let table = TokenTable::default().with(grant).expect("new").to_text();
        let head = format!("Authorization: Bearer {token}\r\nIf-None-Match: *\r\n");
        client.ask("PUT", "/v0/tokens", &head, table.as_bytes())
    };
    let refused = put(Quota {
        stored_bytes: Some(1_000),
        ..Quota::NONE
    });
    assert_eq!(refused.status, 501, "{}", refused.text());
    assert!(
        refused.text().contains("cannot count"),
        "{}",
        refused.text()
    );
    assert!(store.is_empty());
    let taken = put(Quota {
        requests_per_second: Some(1_000),
        ..Quota::NONE
    });
    assert_eq!(taken.status, 201, "{}", taken.text());
}

#[test]
fn a_deadline_that_passes_under_way_leaves_a_write_open_and_not_a_read() {
    let (node, store) = front(3, |_| {});
    store.hold();
    let mut client = node.client();
    let hurry = "Dendra-Timeout-Ms: 50\r\n";
    let write = client.ask("PUT", "/v0/entity?id=k", hurry, b"v");
    let receipt = write.header("Dendra-Receipt");
    assert_eq!(
        (write.status, receipt),
        (504, Some("acks=0/3; outcome=unknown"))
    );
    let read = client.ask("GET", "/v0/entity?id=k", hurry, b"");
    let receipt = read.header("Dendra-Receipt");
    assert_eq!(
        (read.status, receipt),
        (504, Some("acks=0/3; outcome=not-applied"))
    );
}

#[test]
fn a_full_desk_refuses_and_what_its_client_left_is_never_begun() {
    use dendra_server::limits::FRONT_UNDER_WAY_MAX;
    let (node, store) = front(1, |settings| {
        settings.queue = 1;
        settings.loops = Some(1);
    });
    store.hold();
    let put = |id: &str| {
        let mut client = node.client();
        let head = format!("PUT /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n");
        let rest = "Dendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv";
        client.send(format!("{head}{rest}").as_bytes());
        client
    };
    let queued = |n: usize| {
        let line = format!("\"queued\": {n}");
        wait_until(|| node.admin().get("/v0/status").text().contains(&line));
    };
    let mut busy: Vec<Client> = Vec::new();
    for n in 0..FRONT_UNDER_WAY_MAX {
        busy.push(put(&format!("under-way-{n}")));
        wait_until(|| store.asked() == n + 1);
    }
    // The dispatcher has no room for another one: it stays at the desk.
    let left = put("left");
    queued(1);
    let metrics = node.admin().get("/metrics").text();
    let full = format!("\ndendra_front_under_way {FRONT_UNDER_WAY_MAX}\n");
    assert!(metrics.contains(&full), "{metrics}");
    assert!(metrics.contains("\ndendra_front_queued 1\n"), "{metrics}");
    let refused = put("refused").read("PUT");
    let receipt = refused.header("Dendra-Receipt");
    assert_eq!(
        (refused.status, receipt),
        (503, Some("outcome=not-applied"))
    );
    drop(left);
    queued(0);
    store.let_on(FRONT_UNDER_WAY_MAX + 1);
    for client in &mut busy {
        assert_eq!(client.read("PUT").status, 201);
    }
    assert_eq!(
        (store.len(), store.asked()),
        (FRONT_UNDER_WAY_MAX, FRONT_UNDER_WAY_MAX)
    );
}

#[test]
fn a_failure_of_the_store_is_told_as_what_it_is() {
    let (node, store) = front(3, |_| {});
    let mut client = node.client();
    let told = || "told to".to_owned();
    let cases = [
        (
            OuterFailure::Unreachable(told()),
            504,
            "outcome=not-applied",
        ),
        (
            OuterFailure::Unanswered(Known::Unknown, told()),
            504,
            "acks=0/3; outcome=unknown",
        ),
        (OuterFailure::Busy(told()), 503, "outcome=not-applied"),
        (OuterFailure::Full(told()), 507, "outcome=not-applied"),
        (OuterFailure::Failed(told()), 500, "outcome=not-applied"),
    ];
    for (failure, status, receipt) in cases {
        store.fail_with(Some(failure.clone()));
        let put = client.put("k", b"v");
        let told = (put.status, put.header("Dendra-Receipt"));
        assert_eq!(told, (status, Some(receipt)), "{failure:?}");
        assert!(put.text().contains("told to"), "{}", put.text());
    }
    store.fail_with(Some(OuterFailure::TooLarge(told())));
    assert_eq!(client.put("k", b"v").status, 413);
    store.fail_with(Some(OuterFailure::Damaged(told())));
    assert_eq!(client.value("k").status, 500);
    assert_eq!(client.get("/v0/entities?start=a").status, 500);
    store.fail_with(None);
    assert_eq!(client.value("k").status, 404);
}

#[test]
fn a_front_door_is_ready_while_its_store_answers() {
    let (node, store) = front(3, |_| {});
    let ready = || {
        let answer = node.admin().get("/readyz");
        (answer.status, answer.text())
    };
    assert_eq!(ready(), (200, "serving\n".to_owned()));
    store.fail_with(Some(OuterFailure::Unreachable(
        "no server answers".to_owned(),
    )));
    wait_until(|| ready() == (503, "map does not answer: no server answers\n".to_owned()));
    let metrics = node.admin().get("/metrics").text();
    assert!(metrics.contains("\ndendra_front_answers 0\n"), "{metrics}");
    assert!(metrics.contains("\ndendra_ready 0\n"), "{metrics}");
    let status = node.admin().get("/v0/status").text();
    assert!(
        status.contains("\"silence\": \"no server answers\""),
        "{status}"
    );
    // No operation that needs a majority is begun any more: held up, it would take its time.
    store.hold();
    let mut client = node.client();
    let hurry = "Dendra-Timeout-Ms: 60000\r\n";
    wait_until(|| {
        let mut client = node.client();
        let late = client.ask("PUT", "/v0/entity?id=k", "Dendra-Timeout-Ms: 100\r\n", b"v");
        late.header("Dendra-Receipt") == Some("acks=0/3; outcome=not-applied")
    });
    for method in ["PUT", "DELETE", "GET"] {
        let before = store.asked();
        let refused = client.ask(method, "/v0/entity?id=k", hurry, b"");
        let receipt = refused.header("Dendra-Receipt");
        let told = (refused.status, receipt);
        assert_eq!(told, (504, Some("acks=0/3; outcome=not-applied")));
        assert_eq!(store.asked(), before, "{method} was begun");
    }
    store.fail_with(None);
    wait_until(|| ready().0 == 200);
}

#[test]
fn times_of_the_store_are_counted_by_kind() {
    let (node, _store) = front(1, |_| {});
    let mut client = node.client();
    for _ in 0..3 {
        assert_eq!(client.put("k", b"v").status, 201);
    }
    assert_eq!(client.value("k").status, 200);
    assert_eq!(client.get("/v0/entities?start=a").status, 200);
    let metrics = node.admin().get("/metrics").text();
    for (kind, count) in [("write", 3), ("read", 1), ("page", 1)] {
        let line = format!("\ndendra_front_seconds_count{{kind=\"{kind}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    assert!(
        metrics.contains("\ndendra_front_under_way 0\n"),
        "{metrics}"
    );
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it does not come");
        rest();
    }
}
