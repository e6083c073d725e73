//! Profiles of a real node that works: every kind of thread is there, all measures at once, one of each at a time.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::{Node, Run, dendra, finish};

/// Puts values of 16 KiB over one connection until told to stop, and counts them.
fn write_on(url: &str, stop: &AtomicBool, written: &AtomicU64) {
    let place = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(place).expect("the node accepts");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket can be shared"));
    let value = vec![b'v'; 16 << 10];
    while !stop.load(Ordering::Relaxed) {
        let n = written.fetch_add(1, Ordering::Relaxed);
        let head = format!(
            "PUT /v0/entity?id=k{n} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
            value.len()
        );
        stream.write_all(head.as_bytes()).expect("the node reads");
        stream.write_all(&value).expect("the node reads");
        let (mut line, mut length) = (String::new(), 0);
        // Refusals under pressure are fine, and have a body.
        while line != "\r\n" {
            line.clear();
            assert!(answers.read_line(&mut line).expect("an answer") > 0);
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body).expect("a whole answer");
    }
}

fn folded(run: &Run) -> String {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    String::from_utf8(run.stdout.clone()).expect("folded stacks are text")
}

#[test]
fn all_measures_of_a_node_under_load_at_once_and_a_second_one_of_a_kind_is_refused() {
    let data = tempfile::tempdir().expect("there is room");
    let node = Node::start(
        data.path(),
        &[
            "--memory",
            "16MiB",
            "--durability",
            "os",
            "--value-bytes-max",
            "64KiB",
        ],
    );
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let runs = std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| write_on(&node.url, &stop, &written));
        }
        let measures = ["--cpu", "--wall", "--alloc", "--lock", "--alloc"];
        let children = measures.map(|measure| {
            dendra(["profile", &node.admin, measure, "--seconds", "3"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary was built")
        });
        let runs = children.map(finish);
        stop.store(true, Ordering::Relaxed);
        runs
    });
    let [cpu, wall, alloc, lock, other] = &runs;

    let wall = folded(wall);
    for kind in ["loop", "worker", "wal", "flush", "compact", "admin"] {
        let line = wall
            .lines()
            .find(|line| line.starts_with(&format!("{kind};")));
        assert!(line.is_some(), "{kind} is not in {wall}");
    }
    for (kind, place) in [
        ("loop;", "epoll_wait"),
        ("worker;", "dendra_server::store_pool::"),
        ("wal;", "dendra_server::wal_thread::"),
        ("flush;", "dendra_server::maintenance::work"),
        ("compact;", "dendra_server::maintenance::work"),
    ] {
        let is_there = |line: &str| line.starts_with(kind) && line.contains(place);
        assert!(
            wall.lines().any(is_there),
            "{place} of {kind} is not in {wall}"
        );
    }
    let cpu = folded(cpu);
    assert!(cpu.contains("loop;"), "{cpu}");
    folded(lock);

    let (taken, refused) = match alloc.code {
        Some(0) => (alloc, other),
        _ => (other, alloc),
    };
    let alloc = folded(taken);
    assert!(alloc.contains("loop;"), "{alloc}");
    assert!(alloc.contains("dendra_engine::"), "{alloc}");
    assert!(!alloc.contains("note_watched"), "the hook is cut: {alloc}");
    let bytes = alloc
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let bytes: u64 = bytes.sum();
    assert!(bytes > 512 << 10, "{alloc}");
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("ask again when it has ended"),
        "{}",
        refused.stderr
    );

    assert!(written.load(Ordering::Relaxed) > 100);
    assert_eq!(node.run(["get", "k0"]).code, Some(0), "it serves on");
}
