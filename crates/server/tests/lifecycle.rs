//! Starting and stopping: refused starts and their exit codes, the work that a stop waits for, and
//! the state afterwards.
//!
//! Invariants
//! 1. Work that a stop must not wait for takes ten minutes, longer than a test's patience. The time
//!    of a stop is printed, and no machine is too slow for it.
//!
//! Not here: signals, which need a process (crate `dendra`).
//! See: docs/api.md, section "Exit codes and signals".

mod support;

use dendra_engine::vfs::mem::MemVfs;
use dendra_server::{Phase, Running, Server, Settings, StartError};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::valve::Valve;
use support::{Node, PATIENCE, settings};

fn refused(settings: Settings) -> StartError {
    match Server::start(settings) {
        Err(error) => error,
        Ok(running) => panic!("{running:?} should not have started"),
    }
}

#[test]
fn settings_that_cannot_work_are_exit_2() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut bad = settings(&folder);
    bad.workers = 0;
    let error = refused(bad);
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().starts_with("workers = 0"), "{error}");
}

#[test]
fn a_folder_in_use_is_exit_3_and_says_so() {
    let node = Node::start();
    let error = refused(settings(&node.folder));
    assert_eq!(error.exit_code(), 3);
    let sentence = error.to_string();
    assert!(sentence.contains("in use by another process"), "{sentence}");
    let folder = node.folder.path().display().to_string();
    assert_eq!(sentence.matches(&folder).count(), 1, "{sentence}");
    assert_eq!(
        node.client().put("k", b"v").status,
        201,
        "the first is unharmed"
    );
}

#[test]
fn a_path_that_is_no_folder_is_exit_3() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").expect("a file can be written");
    let mut settings = settings(&folder);
    settings.data = file;
    assert_eq!(refused(settings).exit_code(), 3);
}

#[test]
fn an_address_in_use_is_exit_4_and_no_folder_is_touched() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut data_taken = settings(&folder);
    data_taken.data = folder.path().join("not-yet");
    data_taken.listen = vec![taken.local_addr().expect("it has an address")];
    let error = refused(data_taken);
    assert_eq!(error.exit_code(), 4);
    assert!(
        error.to_string().contains("is taken by another process"),
        "{error}"
    );
    let mut admin_taken = settings(&folder);
    admin_taken.admin = Some(taken.local_addr().expect("it has an address"));
    assert_eq!(refused(admin_taken).exit_code(), 4);
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("it is there")
            .count(),
        0
    );
    let running = Server::start(settings(&folder)).expect("the folder is free");
    running.stop().expect("it stops");
}

#[test]
fn a_missing_folder_is_created_and_a_restart_finds_everything() {
    let parent = tempfile::tempdir().expect("a folder can be made");
    let mut settings = settings(&parent);
    settings.data = parent.path().join("not/yet/there");
    let running = Server::start(settings.clone()).expect("it starts");
    let addr = running.addr();
    let mut client = support::Client::connect(addr);
    let put = client.put("k", b"v");
    client.put("gone", b"v");
    client.delete("gone");
    running.stop().expect("it stops");
    // The same port at once: connections of the first life do not hold it.
    settings.listen = vec![addr];
    let running = Server::start(settings).expect("the port is free again");
    let mut client = support::Client::connect(addr);
    let got = client.value("k");
    assert_eq!((got.body.as_slice(), got.etag()), (&b"v"[..], put.etag()));
    assert_eq!(client.value("gone").status, 404);
    let newer = client.put("k", b"w");
    assert!(newer.etag() > put.etag(), "the clock did not go back");
    running.stop().expect("it stops");
}

/// Stops a node that may wait for ten minutes in many places; says how long it took.
fn stop_in_time(running: Running) -> Duration {
    let (ended, has_ended) = mpsc::channel();
    let began = Instant::now();
    std::thread::spawn(move || ended.send(running.stop()));
    let stopped = has_ended.recv_timeout(PATIENCE);
    stopped.expect("nothing is waited for").expect("it stops");
    began.elapsed()
}

#[test]
fn an_idle_node_stops_without_waiting_for_its_connections() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    for _ in 0..3 {
        let began = Instant::now();
        let mut settings = settings(&folder);
        settings.drain_ms = 600_000;
        settings.timeouts.idle = Duration::from_secs(600);
        let running = Server::start(settings).expect("it starts");
        let took = began.elapsed();
        let _idle = TcpStream::connect(running.addr()).expect("it accepts");
        let stop = stop_in_time(running);
        println!("started in {took:?}, stopped in {stop:?}");
    }
}

#[test]
fn a_stop_finishes_what_is_in_flight_and_refuses_what_is_new() {
    let (mut node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            settings.drain_ms = 60_000;
        })
    });
    let addr = node.running().addr();
    let mut idle = node.client();
    assert_eq!(idle.value("k").status, 404);
    valve.hold_syncs();
    let mut busy = node.client();
    busy.send(
        b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\nContent-Length: 1\r\n\r\nv",
    );
    valve.wait_for(1);
    let mut admin = node.admin();
    let running = node.running.take().expect("the node runs");
    let stopping = std::thread::spawn(move || running.stop());
    assert!(
        idle.is_closed(),
        "a connection between two requests ends at once"
    );
    assert_eq!(admin.get("/readyz").text(), "draining\n");
    assert!(TcpStream::connect(addr).is_err(), "nothing is accepted");
    valve.let_go();
    let answer = busy.read("PUT");
    assert_eq!(answer.status, 201);
    assert!(busy.is_closed());
    stopping
        .join()
        .expect("stopping does not panic")
        .expect("it stops");
}

#[test]
fn a_stop_waits_no_longer_than_it_was_told_to() {
    let mut node = Node::with(|settings| {
        settings.drain_ms = 50;
        settings.timeouts.body = Duration::from_secs(600);
    });
    let mut stuck = node.client();
    let begin = b"PUT /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nv";
    stuck.send(begin);
    node.wait_until_metric("dendra_socket_read_bytes_total", begin.len() as f64);
    let running = node.running.take().expect("the node runs");
    assert_eq!(running.phase(), Phase::Serving);
    stop_in_time(running);
    assert!(stuck.is_closed());
}

#[test]
fn a_node_that_stops_later_is_not_ready_at_once_and_serves_meanwhile() {
    let mut node = Node::with(|settings| settings.stop_delay_ms = 600_000);
    let addr = node.running().addr();
    let mut admin = node.admin();
    let running = node.running.take().expect("the node runs");
    assert_eq!(running.turn_unready(), Some(Duration::from_secs(600)));
    assert_eq!(running.turn_unready(), None, "it is");
    assert_eq!(admin.get("/readyz").text(), "draining\n");
    let mut client = support::Client::connect(addr);
    assert_eq!(
        client.put("k", b"v").status,
        201,
        "a new connection is served"
    );
    assert_eq!(client.get("/v0/status").status, 503);
    let page = admin.get("/v0/health").text();
    assert!(page.contains("\"kind\": \"stopping\""), "{page}");
    assert_eq!(admin.get("/healthz").status, 200);
    stop_in_time(running);
}
