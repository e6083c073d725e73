//! Watches of a real cluster, against the history of its writers, while members are killed.
//!
//! ```text
//! writers    each on keys of its own, at any member; a request that breaks is of unknown outcome
//! watchers   each at any member, going on with its token wherever it broke off
//! meanwhile  one member after the other is killed and started again
//! at last    each key is written once more: every watcher comes to know that, and nothing else
//! ```
//!
//! Invariants
//! 1. No step back: versions of a key rise. No invention: a value is one that was sent under this
//!    key and not refused. No gap: the last state is told.
//! 2. `DENDRA_WATCH_WRITES` is how many writes there are: 4,000, and 10⁶ at length.
//!
//! Not here: watches of one node (crate `server`, `tests/watch.rs`), drawn faults (crate `sim`).

use crate::support;
use crate::support::cluster::{Cluster, NODES};
use crate::support::http::Client;
use dendra_base::{Prng, Version};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

const WRITERS: u64 = 4;
const WATCHERS: u64 = 4;
/// Keys of one writer.
const KEYS: u64 = 12;
const LAST: &str = "last";

/// By key: the values that were sent and not refused.
type Sent = Mutex<BTreeMap<String, BTreeSet<String>>>;

fn writes() -> u64 {
    let text = std::env::var("DENDRA_WATCH_WRITES").ok();
    text.map_or(4_000, |text| text.parse().expect("a number"))
}

/// A connection to any member that takes one.
fn connect(addresses: &[SocketAddr], prng: &mut Prng) -> Client {
    loop {
        let at = prng.below(addresses.len() as u64) as usize;
        if let Ok(client) = Client::open(addresses[at]) {
            return client;
        }
        support::rest();
    }
}

fn write(
    addresses: &[SocketAddr],
    writer: u64,
    (sent, done): (&Sent, &AtomicU64),
    prng: &mut Prng,
) {
    let mut client = connect(addresses, prng);
    let mut number = 0;
    while done.fetch_add(1, Ordering::SeqCst) < writes() {
        let key = format!("w{writer}-{:02}", prng.below(KEYS));
        number += 1;
        let value = format!("{writer}-{number}");
        let is_delete = prng.chance(1, 4);
        let (method, body) = if is_delete {
            ("DELETE", "")
        } else {
            ("PUT", &value[..])
        };
        if !is_delete {
            let mut sent = sent.lock().expect("no writer panics");
            sent.entry(key.clone()).or_default().insert(value.clone());
        }
        match client.ask(method, &key, &[], body.as_bytes()) {
            None => client = connect(addresses, prng),
            Some(answer) if answer.receipt.contains("not-applied") => {
                let mut sent = sent.lock().expect("no writer panics");
                sent.get_mut(&key).map(|values| values.remove(&value));
            }
            Some(_) => {}
        }
    }
    // Until it is acknowledged.
    for key in 0..KEYS {
        let key = format!("w{writer}-{key:02}");
        let mut sent_last = sent.lock().expect("no writer panics");
        sent_last
            .entry(key.clone())
            .or_default()
            .insert(LAST.to_owned());
        drop(sent_last);
        while !matches!(client.ask("PUT", &key, &[], LAST.as_bytes()), Some(it) if it.status == 201)
        {
            client = connect(addresses, prng);
        }
    }
}

/// The lines of one watch, until the connection breaks.
struct Lines {
    reader: BufReader<TcpStream>,
    rest: Vec<u8>,
}

impl Lines {
    fn open(address: SocketAddr, token: Option<&str>) -> Option<Lines> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream
            .set_read_timeout(Some(support::http::PATIENCE))
            .ok()?;
        let from = token.map_or(String::new(), |token| format!("&from={token}"));
        let head = format!(
            "GET /v0/watch?prefix=w&heartbeat_s=1{from} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let is_ok = line.starts_with("HTTP/1.1 200");
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        is_ok.then_some(Lines {
            reader,
            rest: Vec::new(),
        })
    }

    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line is an object"));
            }
            let mut size = String::new();
            self.reader.read_line(&mut size).ok()?;
            let len = usize::from_str_radix(size.trim_end(), 16).ok()?;
            let mut chunk = vec![0; len + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            if len == 0 {
                return None;
            }
            self.rest.extend_from_slice(&chunk[..len]);
        }
    }
}

/// What a watcher saw in all.
#[derive(Default)]
struct Seen {
    known: BTreeMap<String, String>,
    newest: BTreeMap<String, Version>,
    values: BTreeSet<(String, String)>,
    events: u64,
    resumed: u64,
    resets: u64,
}

impl Seen {
    fn take(&mut self, event: &Value) {
        let text = |name: &str| event[name].as_str().map(str::to_owned);
        let kind = text("event").expect("each line has a kind");
        let Some(key) = text("key") else {
            if kind == "reset" {
                self.known.clear();
                self.resets += 1;
            }
            return;
        };
        self.events += 1;
        let version = text("version").expect("an event of a key has a version");
        let version: Version = version.parse().expect("a version");
        let newest = self.newest.entry(key.clone()).or_insert(version);
        assert!(version >= *newest, "{event} came behind {newest:?}");
        *newest = version;
        match &kind[..] {
            "put" => {
                let value = text("value").expect("values are shown");
                self.values.insert((key.clone(), value.clone()));
                self.known.insert(key, value);
            }
            "delete" => drop(self.known.remove(&key)),
            other => panic!("{other} was not asked for: {event}"),
        }
    }

    fn knows_the_end(&self) -> bool {
        let last = self.known.values().filter(|value| *value == LAST);
        last.count() as u64 == WRITERS * KEYS
    }
}

fn watch(addresses: &[SocketAddr], is_over: &AtomicBool, prng: &mut Prng) -> Seen {
    let mut seen = Seen::default();
    let mut token: Option<String> = None;
    let began = Instant::now();
    while !seen.knows_the_end() {
        assert!(
            !is_over.load(Ordering::SeqCst) || began.elapsed() < 4 * support::http::PATIENCE,
            "the watch never came to know the end"
        );
        let at = prng.below(addresses.len() as u64) as usize;
        let Some(mut lines) = Lines::open(addresses[at], token.as_deref()) else {
            support::rest();
            continue;
        };
        match token {
            Some(_) => seen.resumed += 1,
            None => seen.known.clear(),
        }
        // Some go on elsewhere although nothing broke.
        let mut left = 50 + prng.below(2_000);
        while let Some(event) = lines.next() {
            seen.take(&event);
            if event["event"] == "reset" {
                token = None;
            }
            if let Some(next) = event["token"].as_str() {
                token = Some(next.to_owned());
            }
            left -= 1;
            if seen.knows_the_end() || (left == 0 && token.is_some()) {
                break;
            }
            left = left.max(1);
        }
    }
    seen
}

#[test]
fn watchers_miss_nothing_and_invent_nothing_while_members_are_killed() {
    let mut cluster = Cluster::start_with_admin(&[]);
    cluster.wait_for_all_links();
    let addresses = cluster.listen.clone();
    let sent = Sent::default();
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut prng = Prng::new(41);
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let (addresses, sent, done, is_over) = (&addresses[..], &sent, &done, &is_over);
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let mut own = Prng::new(prng.next_u64());
                scope.spawn(move || watch(addresses, is_over, &mut own))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let mut own = Prng::new(prng.next_u64());
                scope.spawn(move || write(addresses, writer, (sent, done), &mut own))
            })
            .collect();
        let mut kills = 0;
        while done.load(Ordering::SeqCst) < writes() {
            let due = writes() * (kills + 1) / 5;
            if kills < 4 && done.load(Ordering::SeqCst) >= due {
                let index = prng.below(NODES as u64) as usize;
                cluster.kill(index);
                cluster.start_node(index);
                cluster.wait_until_usable(index);
                kills += 1;
            }
            support::rest();
        }
        for writer in writers {
            writer.join().expect("a writer ends");
        }
        is_over.store(true, Ordering::SeqCst);
        let watchers = watchers.into_iter();
        watchers
            .map(|it| it.join().expect("a watcher ends"))
            .collect()
    });
    let sent = sent.into_inner().expect("no writer panics");
    for seen in &seen {
        for (key, value) in &seen.values {
            assert!(sent[key].contains(value), "{value} was never {key}'s");
        }
        println!(
            "{} events, {} times elsewhere, {} resets",
            seen.events, seen.resumed, seen.resets
        );
    }
    let events: u64 = seen.iter().map(|seen| seen.events).sum();
    assert!(events > writes() / 2, "{events} events");
}

#[test]
fn a_read_that_waits_at_one_member_hears_of_writes_at_another() {
    let cluster = Cluster::start_with_admin(&[]);
    cluster.wait_for_all_links();
    let mut known = None;
    for round in 0..9 {
        let open = |at: usize| Client::open(cluster.listen[at % NODES]).expect("a member");
        let (mut reader, mut writer) = (open(round + 1), open(round));
        let unless = known.map(|tag| format!("If-None-Match: {tag}"));
        let lines: Vec<&str> = unless.as_deref().into_iter().collect();
        let target = "/v0/entity?id=k&wait_s=300";
        reader.send("GET", target, &lines, b"").expect("it is sent");
        // Whichever comes first: the answer is this write, or the test hangs.
        let value = format!("{round}");
        let written = writer.ask("PUT", "k", &[], value.as_bytes());
        let written = written.expect("an answer").etag;
        let answer = reader.read().expect("an answer");
        assert_eq!((answer.status, &answer.etag), (200, &written), "{answer:?}");
        assert_eq!(answer.body, value.as_bytes());
        assert!(answer.receipt.contains("level=linearizable"), "{answer:?}");
        known = written;
    }
}
