//! Watches over real sockets: the state, its changes, tokens that go on, and how a watch ends.
//!
//! Invariants
//! 1. A claim about what does not come is made by an event that comes behind it.
//!
//! Not here: the machine (crate `watch`), parameters and bytes one by one (crate `wire`).
//! See: docs/watch.md.

mod support;

use dendra_base::Durability;
use dendra_engine::vfs::mem::MemVfs;
use dendra_server::Server;
use dendra_server::settings::RootToken;
use dendra_watch::limits::PAGES_MAX;
use dendra_wire::rights::{Grant, TokenRole, TokenTable, hash_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use support::watcher::Watcher;
use support::{Client, Node, PATIENCE};

fn put_all(client: &mut Client, records: &[(&str, &str)]) {
    for (key, value) in records {
        assert_eq!(client.put(key, value.as_bytes()).status, 201);
    }
}

#[test]
fn the_state_comes_first_and_then_each_change() {
    let node = Node::start();
    let addr = node.running().addr();
    let mut client = node.client();
    put_all(
        &mut client,
        &[("a/1", "one"), ("a/2", "two"), ("b", "other")],
    );
    client.delete("a/2");
    let mut watch = Watcher::open(addr, "prefix=a/");
    watch.expect(&[("put", "a/1", "one"), ("live", "", "")]);
    let etag = client.put("a/3", b"three").etag().to_owned();
    let event = watch.next().expect("a change");
    assert_eq!(event["version"], etag.trim_matches('"'));
    assert!(event["token"].is_string());
    put_all(&mut client, &[("b", "not seen"), ("a/3", "later")]);
    client.delete("a/1");
    watch.expect(&[("put", "a/3", "later"), ("delete", "a/1", "")]);
}

#[test]
fn a_watch_is_of_a_key_or_of_a_range_alone() {
    let node = Node::start();
    let addr = node.running().addr();
    let mut client = node.client();
    put_all(&mut client, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut of_key = Watcher::open(addr, "id=b");
    let mut of_range = Watcher::open(addr, "start=a&end=c&values=false");
    of_key.expect(&[("put", "b", "1"), ("live", "", "")]);
    of_range.expect(&[("put", "a", ""), ("put", "b", ""), ("live", "", "")]);
    put_all(
        &mut client,
        &[("a", "2"), ("c", "2"), ("b0", "2"), ("b", "2")],
    );
    of_key.expect(&[("put", "b", "2")]);
    let mut seen = [of_range.shown().1, of_range.shown().1, of_range.shown().1];
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b", "b0"]);
}

#[test]
fn from_now_on_there_is_no_state() {
    let node = Node::start();
    let mut client = node.client();
    put_all(&mut client, &[("a", "before")]);
    let mut watch = Watcher::open(node.running().addr(), "prefix=a&from=now");
    watch.expect(&[("live", "", "")]);
    put_all(&mut client, &[("a2", "after")]);
    watch.expect(&[("put", "a2", "after")]);
}

#[test]
fn a_token_goes_on_where_the_watch_had_ended() {
    let node = Node::start();
    let addr = node.running().addr();
    let mut client = node.client();
    put_all(&mut client, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut watch = Watcher::open(addr, "prefix=a");
    watch.expect(&[("put", "a", "1"), ("live", "", "")]);
    put_all(&mut client, &[("a", "2")]);
    watch.expect(&[("put", "a", "2")]);
    let token = watch.token();
    drop(watch);
    put_all(
        &mut client,
        &[("a", "3"), ("a9", "new"), ("b", "2"), ("a7", "short")],
    );
    client.delete("a7");
    client.delete("a");
    let mut again = Watcher::open(addr, &format!("prefix=a&from={token}"));
    let mut seen = BTreeMap::new();
    while seen.len() < 3 {
        let (kind, key, value) = again.shown();
        if kind != "live" {
            seen.insert(key, (kind, value));
        }
    }
    let state = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
    assert_eq!(seen["a"], state("delete", ""));
    assert_eq!(seen["a7"], state("delete", ""));
    assert_eq!(seen["a9"], state("put", "new"));
    // Nothing is told twice behind a token that covers it.
    let token = again.token();
    let mut third = Watcher::open(addr, &format!("prefix=a&from={token}"));
    put_all(&mut client, &[("az", "last")]);
    let first = loop {
        match third.shown() {
            (kind, ..) if kind == "live" => {}
            other => break other,
        }
    };
    assert_eq!(first.1, "az");
}

#[test]
fn a_value_that_ends_is_an_event() {
    let node = Node::start();
    let mut client = node.client();
    let mut watch = Watcher::open(node.running().addr(), "prefix=a");
    watch.expect(&[("live", "", "")]);
    let stored = client.ask("PUT", "/v0/entity?id=a&ttl=1", "", b"soon gone");
    assert_eq!(stored.status, 201);
    let put = watch.next().expect("it is there");
    let expire = watch.next().expect("it ends");
    assert!(put["expires_ms"].is_u64());
    assert_eq!(expire["event"], "expire");
    assert_eq!(
        (&expire["key"], &expire["version"]),
        (&put["key"], &put["version"])
    );
}

#[test]
fn a_key_of_any_bytes_is_shown() {
    let node = Node::start();
    let mut client = node.client();
    put_all(&mut client, &[("%ff%00", "\u{1F980}\n\"")]);
    let mut watch = Watcher::open(node.running().addr(), "prefix=%ff");
    let event = watch.next().expect("its state");
    assert_eq!(event["key_base64"], "/wA=");
    assert_eq!(event["value"], "\u{1F980}\n\"");
    watch.expect(&[("live", "", "")]);
    assert_eq!(client.put("%ff%0a", b"\xff").status, 201);
    let event = watch.next().expect("a change");
    assert_eq!(
        (&event["key_base64"], &event["value_base64"]),
        (&"/wo=".into(), &"/w==".into())
    );
}

#[test]
fn a_browser_goes_on_by_its_last_event_id() {
    let node = Node::start();
    let addr = node.running().addr();
    let mut client = node.client();
    put_all(&mut client, &[("a", "1")]);
    let accept = "Accept: text/event-stream\r\n";
    let mut watch = Watcher::ask(addr, "prefix=a", accept).expect("it is served");
    watch.expect(&[("put", "a", "1"), ("live", "", "")]);
    let id = watch.token();
    drop(watch);
    put_all(&mut client, &[("a2", "2")]);
    let lines = format!("{accept}Last-Event-ID: {id}\r\n");
    let mut client_again = node.client();
    let head = format!("GET /v0/watch?prefix=a HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    client_again.send(head.as_bytes());
    let answer = client_again.read_head();
    assert_eq!(answer.header("Content-Type"), Some("text/event-stream"));
    let mut text = String::new();
    while !text.contains("event: put\n") {
        let chunk = client_again.read_chunk().expect("the watch goes on");
        text.push_str(std::str::from_utf8(&chunk).expect("JSON is UTF-8"));
    }
    assert!(
        !text.contains("\"a\""),
        "what was told is not told again: {text}"
    );
    assert!(
        text.contains("data: {\"event\":\"put\",\"key\":\"a2\""),
        "{text}"
    );
    assert!(text.contains("\n\n") && text.contains("id: "), "{text}");
}

#[test]
fn an_idle_watch_is_kept_and_told_that_it_lives() {
    let node = Node::with(|settings| {
        settings.timeouts.idle = Duration::from_millis(50);
        settings.timeouts.head = Duration::from_millis(50);
        settings.timeouts.write = Duration::from_millis(50);
    });
    let lines = "Dendra-Timeout-Ms: 50\r\n";
    let addr = node.running().addr();
    // The first request may come late on a busy machine.
    let mut watch = loop {
        match Watcher::ask(addr, "id=k&heartbeat_s=1", lines) {
            Ok(watch) => break watch,
            Err(refused) => assert_eq!(refused.status, 503),
        }
    };
    assert_eq!(watch.next().expect("the state")["event"], "live");
    for _ in 0..2 {
        let beat = watch.next().expect("it goes on");
        assert_eq!(beat["event"], "heartbeat");
        assert!(beat["token"].is_string());
    }
}

#[test]
fn a_wrong_request_is_refused_and_named() {
    let (node, other) = (Node::start(), Node::start());
    let addr = node.running().addr();
    let token = Watcher::open(other.running().addr(), "id=k").token();
    for (query, status, code) in [
        (format!("id=k&from={token}"), 400, "bad-from: "),
        ("id=k&from=AAAA".to_owned(), 400, "bad-from: "),
        ("id=k&from=later".to_owned(), 400, "bad-from: "),
        (
            "id=k&heartbeat_s=0".to_owned(),
            400,
            "bad-number: heartbeat_s",
        ),
        ("prefix=a&end=b".to_owned(), 400, "bad-range: "),
        (String::new(), 400, "missing-parameter: "),
    ] {
        let Err(answer) = Watcher::ask(addr, &query, "") else {
            panic!("{query} is served");
        };
        assert_eq!(answer.status, status, "{query}");
        assert!(
            answer.text().starts_with(code),
            "{query}: {}",
            answer.text()
        );
    }
    let mut client = node.client();
    client.send(b"GET /v0/watch?id=k HTTP/1.0\r\n\r\n");
    assert_eq!(client.read("GET").status, 505);
}

#[test]
fn more_watches_than_there_may_be_are_refused() {
    let node = Node::with(|settings| settings.watches_max = 1);
    let addr = node.running().addr();
    let mut watch = Watcher::open(addr, "id=k");
    watch.expect(&[("live", "", "")]);
    let Err(refused) = Watcher::ask(addr, "id=k", "") else {
        panic!("there is no room");
    };
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(node.metric("dendra_watches "), 1.0);
    drop(watch);
    // Its client hung up while nothing changed.
    node.wait_for_metric("dendra_watches ", 0.0);
    Watcher::open(addr, "id=k").expect(&[("live", "", "")]);
    assert_eq!(node.metric("dendra_watch_events_total"), 2.0);
}

#[test]
fn a_client_that_sent_more_and_leaves_is_noticed() {
    let node = Node::start();
    let mut client = node.client();
    client
        .send(b"GET /v0/watch?id=k HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v0/status HTTP/1.1\r\n");
    assert_eq!(client.read_head().status, 200);
    node.wait_for_metric("dendra_watches ", 1.0);
    drop(client);
    node.wait_for_metric("dendra_watches ", 0.0);
}

#[test]
fn a_node_that_stops_ends_its_watches_with_a_token_and_the_next_one_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let running = Server::start(support::settings(&folder)).expect("the node starts");
    let mut client = Client::connect(running.addr());
    put_all(&mut client, &[("a", "1"), ("a2", "1")]);
    let mut watch = Watcher::open(running.addr(), "prefix=a");
    watch.expect(&[("put", "a", "1"), ("put", "a2", "1"), ("live", "", "")]);
    let told = watch.token();
    let stop = std::thread::spawn(move || running.stop().expect("the node stops"));
    let last = watch.next().expect("a last line");
    assert_eq!(
        (&last["event"], &last["reason"]),
        (&"end".into(), &"draining".into())
    );
    assert_eq!(last["token"], told.as_str());
    assert!(watch.next().is_none());
    assert!(watch.client.is_closed());
    stop.join().expect("it stops");
    let running = Server::start(support::settings(&folder)).expect("it starts again");
    let mut client = Client::connect(running.addr());
    client.delete("a2");
    // Its changes are not those of the process before it. Its records come from the disk.
    let mut again = Watcher::open(running.addr(), &format!("prefix=a&from={told}"));
    again.expect(&[("reset", "", ""), ("put", "a", "1"), ("live", "", "")]);
    put_all(&mut client, &[("a3", "3")]);
    again.expect(&[("put", "a3", "3")]);
    drop((again, client));
    running.stop().expect("it stops");
}

/// The last state of each key, and the greatest version; versions rise.
fn note(states: &mut BTreeMap<String, Value>, event: &Value) {
    let key = event["key"].as_str().unwrap_or_default().to_owned();
    if key.is_empty() {
        return;
    }
    let version = |event: &Value| event["version"].as_str().expect("a version").to_owned();
    if let Some(before) = states.insert(key, event.clone()) {
        assert!(
            version(&before) <= version(event),
            "{before} and then {event}"
        );
    }
}

#[test]
fn a_reader_that_is_too_slow_is_ended_and_its_token_goes_on() {
    let node = Node::with(|settings| {
        settings.durability = Durability::Os;
        settings.timeouts.write = PATIENCE;
    });
    let addr = node.running().addr();
    let mut watch = Watcher::open(addr, "prefix=k");
    watch.expect(&[("live", "", "")]);
    let mut client = node.client();
    // More than all buffers of the sockets take.
    let large = vec![b'v'; 256 << 10];
    for number in 0..64 {
        assert_eq!(client.put(&format!("k{:05}", number), &large).status, 201);
    }
    let keys = 64 + 10_000;
    for first in (64..keys).step_by(1_000) {
        let lines = (first..(first + 1_000).min(keys))
            .map(|number| format!("{{\"key\":\"k{number:05}\",\"value\":\"{number}\"}}\n"));
        let (_, lines) = client.batch("", lines.collect::<String>().as_bytes());
        assert!(lines.iter().all(|line| line["status"] == 201));
    }
    let mut states = BTreeMap::new();
    let end = loop {
        let event = watch.next().expect("a last line comes first");
        if event["event"] == "end" {
            break event;
        }
        note(&mut states, &event);
    };
    assert_eq!(end["reason"], "slow-reader");
    assert!(states.len() < keys, "it was ended before all was told");
    let token = end["token"].as_str().expect("it can go on");
    let mut again = Watcher::open(addr, &format!("prefix=k&from={token}"));
    while states.len() < keys {
        let event = again.next().expect("it goes on");
        assert_ne!(event["event"], "reset");
        note(&mut states, &event);
    }
}

#[test]
fn of_many_writers_the_last_state_of_each_key_is_seen() {
    const WRITERS: usize = 4;
    let node = Node::with(|settings| settings.loops = Some(2));
    let addr = node.running().addr();
    let mut watch = Watcher::open(addr, "prefix=k");
    watch.expect(&[("live", "", "")]);
    let write = move |writer: usize| {
        let mut client = Client::connect(addr);
        for number in 0..100 {
            let key = format!("k{}", number % 7);
            let value = format!("{writer}/{number}");
            if number % 10 == 9 {
                assert_eq!(client.delete(&key).status, 202);
            } else {
                assert_eq!(client.put(&key, value.as_bytes()).status, 201);
            }
        }
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| std::thread::spawn(move || write(writer)))
        .collect();
    for writer in writers {
        writer.join().expect("it writes");
    }
    let mut client = node.client();
    assert_eq!(client.put("k-last", b"").status, 201);
    let mut states = BTreeMap::new();
    while !states.contains_key("k-last") {
        note(&mut states, &watch.next().expect("it goes on"));
    }
    for number in 0..7 {
        let key = format!("k{number}");
        let read = client.value(&key);
        let seen = &states[&key];
        if read.status == 200 {
            assert_eq!(seen["value"], read.text());
            assert_eq!(seen["version"], read.etag().trim_matches('"'));
        } else {
            assert_eq!((read.status, &seen["event"]), (404, &"delete".into()));
        }
    }
}

fn token(letter: &str) -> String {
    format!("dendra_{}", letter.repeat(43))
}

fn bearer(letter: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(letter))
}

fn set_table(client: &mut Client, condition: &str, grants: &[Grant]) -> String {
    let add = |table: TokenTable, grant: &Grant| table.with(grant.clone()).expect("new");
    let table = grants.iter().fold(TokenTable::default(), add).to_text();
    let lines = format!("{}{condition}\r\n", bearer("r"));
    let answer = client.ask("PUT", "/v0/tokens", &lines, table.as_bytes());
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.etag().to_owned()
}

#[test]
fn a_token_that_is_revoked_ends_the_watch_that_it_had_opened() {
    let root = RootToken::new(format!("{}\n", token("r")).as_bytes()).expect("a token");
    let node = Node::with(|settings| settings.root_token = Some(root));
    let addr = node.running().addr();
    let mut client = node.client();
    let before = node.running().border().now().token_changes;
    let hash = hash_of(token("a").as_bytes()).expect("a token");
    let reader = Grant::of_token("reader", TokenRole::Read, b"a/", hash);
    let etag = set_table(&mut client, "If-None-Match: *", &[reader]);
    let border = node.running().border();
    assert!(border.wait(PATIENCE, |state| state.token_changes > before));
    for (query, lines, status) in [
        ("prefix=a/", String::new(), 401),
        ("prefix=a", bearer("a"), 403),
        ("id=b", bearer("a"), 403),
    ] {
        let Err(answer) = Watcher::ask(addr, query, &lines) else {
            panic!("{query} is served");
        };
        assert_eq!(answer.status, status, "{query}");
    }
    let mut watch = Watcher::ask(addr, "prefix=a/", &bearer("a")).expect("its right");
    watch.expect(&[("live", "", "")]);
    let told = watch.token();
    let condition = format!("If-Match: {etag}");
    let changes = node.running().border().now().token_changes;
    set_table(&mut client, &condition, &[]);
    assert!(border.wait(PATIENCE, |state| state.token_changes > changes));
    let stored = client.ask("PUT", "/v0/entity?id=a/1", &bearer("r"), b"secret");
    assert_eq!(stored.status, 201);
    let end = watch.next().expect("a last line");
    assert_eq!(
        (&end["event"], &end["reason"]),
        (&"end".into(), &"unauthenticated".into())
    );
    assert_eq!(end["token"], told.as_str());
    assert!(watch.next().is_none());
}

/// More of them than pages of a loop are under way at a time: each page is given back.
#[test]
fn a_damaged_range_ends_each_of_many_watches_and_no_other_one() {
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    let mut client = node.client();
    for n in 0..200 {
        assert_eq!(client.put(&format!("k{n:03}"), &[b'v'; 3_000]).status, 201);
    }
    node.stop();
    let names = disk.names();
    let table = names.iter().find(|name| name.ends_with(".tbl"));
    let table = table.expect("the stop made a table");
    disk.flip_bit(table, 8 * 8);
    let node = Node::on(Arc::new(disk), |settings| settings.loops = Some(1));
    let addr = node.running().addr();
    for _ in 0..2 * PAGES_MAX {
        let mut watch = Watcher::open(addr, "prefix=k");
        let last = loop {
            let event = watch.next().expect("it ends with a line");
            if event["event"] == "end" {
                break event;
            }
        };
        assert_eq!(last["reason"], "damaged", "{last}");
    }
    let mut client = node.client();
    assert_eq!(client.put("z", b"whole").status, 201);
    let mut watch = Watcher::open(addr, "prefix=z");
    watch.expect(&[("put", "z", "whole"), ("live", "", "")]);
}
