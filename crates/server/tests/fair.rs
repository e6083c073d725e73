//! One source's large requests, a storm of handshakes and a long line beside clients that ask for
//! little: each has its turns, and what waited for longer than its deadline is refused.
//!
//! ```text
//! a crowd ─► the loop's line stands
//! large values, handshakes ────────┐
//! small requests of another source ┴─► one loop: how many of the small ones are served meanwhile?
//! ```
//!
//! Invariants
//! 1. Order and counts are compared, and no time.
//!
//! Not here: the order among small requests (`standing.rs`).
//! See: docs/overload.md, "When the processor is what runs out".

mod support;

use dendra_engine::Durability;
use dendra_engine::vfs::mem::MemVfs;
use dendra_server::settings::TlsSettings;
use rustix::net::{RecvFlags, recv};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::certs::{Authority, MEMBER, Sealed};
use support::crowd::{self, CLIENTS, TARGET, answers, ask, holds_once, overload};
use support::{Client, Node, PATIENCE};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const SMALL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const LARGE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// One loop on a disk in memory, with the line of any delay.
fn one_loop() -> Node {
    Node::on(Arc::new(MemVfs::new()), |settings| {
        settings.loops = Some(1);
        settings.queue_delay_target = TARGET;
        settings.durability = Durability::Os;
        settings.memory_bytes = 512 << 20;
    })
}

fn from(source: Ipv4Addr, count: usize, node: &Node) -> Vec<Client> {
    let addr = node.running().addr();
    let connect = |_| Client::connect_from(source, addr);
    (0..count).map(connect).collect()
}

fn put(id: &str, bytes: usize) -> String {
    let head = format!("PUT /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n");
    let body = "v".repeat(bytes);
    format!("{head}Dendra-Timeout-Ms: 60000\r\nContent-Length: {bytes}\r\n\r\n{body}")
}

/// Of so many connections each asks for one large value.
const SIDE: usize = 60;

#[test]
fn a_source_of_large_values_leaves_one_of_small_requests_its_turns() {
    let node = one_loop();
    for (id, bytes) in [("k", 1), ("long", 256 << 10)] {
        assert_eq!(node.client().put(id, &vec![b'v'; bytes]).status, 201);
    }
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let (mut large, mut small) = (from(LARGE, SIDE, &node), from(SMALL, SIDE, &node));
    // A version is given when a write is begun.
    let long = "GET /v0/entity?id=long HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let version = |client: &mut Client| client.read("PUT").header("ETag").map(str::to_owned);
    holds_once(|| {
        overload(&node, &mut crowd);
        ask(&mut crowd);
        for (large, small) in large.iter_mut().zip(&mut small) {
            large.send([&put("c", 1), long].concat().as_bytes());
            small.send(put("c", 1).as_bytes());
        }
        let last = small.iter_mut().filter_map(version).max();
        let mut in_front = 0;
        for one in &mut large {
            let begun = version(one);
            in_front += usize::from(begun.is_some() && begun < last);
            one.read("GET");
        }
        answers(&mut crowd);
        println!("{in_front} of {SIDE} large ones in front of the last small one");
        3 * in_front < 2 * SIDE
    });
}

/// Strangers that begin a handshake at once.
const SHAKING: usize = 200;

#[test]
fn a_client_that_works_is_answered_in_the_midst_of_a_storm_of_handshakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = Authority::new(folder.path());
    let pair = ca.sign("node", MEMBER);
    let node = Node::with(|settings| {
        settings.loops = Some(1);
        settings.queue_delay_target = Duration::ZERO;
        settings.tls = Some(TlsSettings::new(&pair.cert, &pair.key));
    });
    let (addr, config) = (node.running().addr(), ca.client(None));
    let mut works = Sealed::connect(addr, &config);
    let answer = |works: &mut Sealed| {
        let n = works.0.read(&mut [0; 4_096]).expect("an answer");
        assert!(n > 0, "the connection goes on");
    };
    let get = "GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n\r\n";
    works.send(get).expect("the node reads");
    answer(&mut works);
    let mut hello = Vec::new();
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let mut stranger = ClientConnection::new(Arc::clone(&config), name).expect("a client");
    stranger.write_tls(&mut hello).expect("a client's hello");
    let connect = |_| TcpStream::connect(addr).expect("it listens");
    let admin = node.running().admin_addr().expect("there is one");
    let all = format!("dendra_connections {}\n", SHAKING + 1);
    holds_once(|| {
        let mut storm: Vec<_> = (0..SHAKING).map(connect).collect();
        let until = Instant::now() + PATIENCE;
        let metrics = || Sealed::ask(admin, &config, "GET /metrics").expect("a page");
        while !metrics().contains(&all) {
            assert!(Instant::now() < until, "the loop does not have them");
            support::rest();
        }
        let (before, behind) = storm.split_at_mut(SHAKING / 2);
        let send = |one: &mut TcpStream| one.write_all(&hello).expect("the node reads");
        before.iter_mut().for_each(send);
        works.send(get).expect("the node reads");
        behind.iter_mut().for_each(send);
        answer(&mut works);
        let is_answered = |one: &&TcpStream| {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            recv(one, &mut [0_u8; 1][..], flags).is_ok()
        };
        let answered = storm.iter().filter(is_answered).count();
        println!("{answered} of {SHAKING} handshakes were answered in front of it");
        drop(storm);
        answered < SHAKING / 4
    });
}

#[test]
fn a_request_that_stood_in_line_for_longer_than_its_deadline_is_not_begun() {
    let node = crowd::node(TARGET);
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let mut client = node.client();
    let get = b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 1\r\n\r\n";
    holds_once(|| {
        overload(&node, &mut crowd);
        let (before, behind) = crowd.split_at_mut(CLIENTS / 2);
        ask(before);
        client.send(get);
        ask(behind);
        let answer = client.read("GET");
        answers(&mut crowd);
        answer.status == 503 && answer.text().starts_with("deadline-in-queue")
    });
    assert!(node.metric("dendra_refused_total{by=\"deadline\"}") > 0.0);
}

/// Counts warnings of an overload.
struct Said(Arc<AtomicUsize>);

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_warning = *metadata.level() == Level::WARN;
        is_warning && metadata.target() == "dendra_server::lanes::overload"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_says_that_requests_stand_in_line() {
    let said = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(Said(Arc::clone(&said))).expect("the only one");
    let node = crowd::node(TARGET);
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    overload(&node, &mut crowd);
    // Nodes of other tests may have said it, too.
    assert!(said.load(Ordering::SeqCst) > 0);
}
