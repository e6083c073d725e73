//! The generator against servers that misbehave in known ways.
//!
//! ```text
//! scripted(answer)   one thread a connection; answer(n) is what the n-th request of all gets
//! ```
//!
//! Invariants
//! 1. A server thread ends when its connection does.
//!
//! Not here: real servers.
//! See: load.rs.

use super::*;
use crate::keys::{KEY_BYTES, VALUE_BYTES};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that answers the n-th request with `answer(n, id)`.
fn scripted(answer: impl Fn(u64, u64) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let answer = Arc::new(answer);
    let count = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            std::thread::spawn(move || {
                talk(stream, |id| {
                    answer(count.fetch_add(1, Ordering::Relaxed), id)
                })
            });
        }
    });
    address
}

/// Answers one connection until it ends.
fn talk(stream: std::io::Result<TcpStream>, answer: impl Fn(u64) -> Vec<u8>) -> Option<()> {
    let mut stream = stream.ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut id, mut body_bytes) = (0, 0);
        loop {
            let mut line = String::new();
            reader
                .read_line(&mut line)
                .ok()
                .filter(|bytes| *bytes > 0)?;
            if let Some((_, rest)) = line.split_once("id=key-") {
                id = rest.get(..KEY_BYTES - 4)?.parse().ok()?;
            }
            if let Some(length) = line.strip_prefix("Content-Length: ") {
                body_bytes = length.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; body_bytes]).ok()?;
        stream.write_all(&answer(id)).ok()?;
    }
}

fn plain(status: u16, body: &[u8]) -> Vec<u8> {
    let mut out = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    out.push_str(std::str::from_utf8(body).expect("values are letters"));
    out.into_bytes()
}

fn value_of(id: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    Values::new().write(id, &mut value);
    value
}

fn workload(address: SocketAddr, keys: Keys, put_percent: u64) -> Workload {
    Workload {
        address,
        protocol: Protocol::Http,
        keys,
        put_percent,
        values: Stored::Yes,
        connections: 4,
        depth: 1,
        seed: 1,
    }
}

const SHORT: Duration = Duration::from_millis(50);
const KEYS: Keys = Keys::Uniform { count: 10 };

#[test]
fn good_answers_are_counted() {
    let address = scripted(|_, id| plain(200, &value_of(id)));
    let mut load = Load::connect(workload(address, KEYS, 0)).expect("it listens");
    let tally = load.closed(SHORT).expect("every answer is right");
    assert!(tally.answers > 0);
    assert_eq!(tally.answers, tally.latency_ns.len());
    assert!(tally.elapsed >= SHORT);
    load.drain().expect("nothing stays in flight");
}

#[test]
fn one_wrong_value_ends_the_run() {
    let address = scripted(|n, id| plain(200, &value_of(if n == 20 { id + 2 } else { id })));
    let mut load = Load::connect(workload(address, KEYS, 0)).expect("it listens");
    let error = load
        .closed(Duration::from_secs(10))
        .err()
        .expect("the 21st answer is wrong");
    assert!(error.to_string().contains("another value"), "{error}");
}

#[test]
fn one_refusal_in_a_measured_window_ends_the_run() {
    let address = scripted(|n, _| plain(if n == 20 { 503 } else { 201 }, b""));
    let mut load = Load::connect(workload(address, KEYS, 100)).expect("it listens");
    let error = load
        .closed(Duration::from_secs(10))
        .err()
        .expect("the 21st is refused");
    assert!(error.to_string().contains("503"), "{error}");
}

#[test]
fn a_loader_repeats_what_was_refused_until_every_key_is_stored() {
    let address = scripted(|n, _| plain(if n % 3 == 0 { 503 } else { 201 }, b""));
    let keys = Keys::EachOnce { count: 100 };
    let deep = Workload {
        depth: 4,
        ..workload(address, keys, 100)
    };
    let mut load = Load::connect(deep).expect("it listens");
    let tally = load
        .until_done(&mut |_| ())
        .expect("refusals are no errors");
    assert_eq!(tally.answers, 100);
    assert!(tally.refused >= 49, "{} refusals", tally.refused);
}

#[test]
fn an_absent_key_must_be_absent() {
    let keys = Keys::Absent { count: 10 };
    let address = scripted(|_, _| plain(404, b"not-found: no such key"));
    let mut load = Load::connect(workload(address, keys, 0)).expect("it listens");
    assert!(load.closed(SHORT).expect("404 is right").answers > 0);
    let address = scripted(|_, id| plain(200, &value_of(id)));
    let mut load = Load::connect(workload(address, keys, 0)).expect("it listens");
    // The first answer ends it; on a busy machine that may take longer than a short window.
    assert!(load.closed(Duration::from_secs(10)).is_err());
}

/// The proof that an open loop hides nothing: 300 ms of silence at 1,000 requests a second delay
/// 300 requests, not only the four that were in flight.
#[test]
fn a_frozen_server_shows_in_every_request_that_was_due() {
    let address = scripted(move |n, id| {
        if (100..104).contains(&n) {
            std::thread::sleep(Duration::from_millis(300));
        }
        plain(200, &value_of(id))
    });
    let mut load = Load::connect(workload(address, KEYS, 0)).expect("it listens");
    let tally = load
        .open(1000.0, Duration::from_millis(600))
        .expect("it recovers");
    assert_eq!(tally.answers, 600, "what was planned is what was sent");
    let slow = tally.latency_ns.count_between(100_000_000, 60_000_000_000);
    assert!(slow >= 150, "{slow} requests saw more than 100 ms");
}

#[test]
fn a_pause_of_the_generator_is_not_the_silence_of_the_server() {
    let start = Instant::now();
    let mut silence = Silence::new(start);
    let paused = start + Duration::from_secs(60);
    silence
        .look(paused, false)
        .expect("nobody looked for a minute");
    let mut now = paused;
    // Looking all the time, ten seconds are ten seconds.
    let outcome = (0..200).try_for_each(|_| {
        now += Duration::from_millis(60);
        silence.look(now, false)
    });
    assert!(outcome.is_err(), "{:?} of silence", now - paused);
    assert!(now - paused < Duration::from_secs(12));
    silence.look(now, true).expect("it was heard");
    silence
        .look(now + LOOK_MAX, false)
        .expect("and counts from there");
}
