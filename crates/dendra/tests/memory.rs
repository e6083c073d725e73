//! The memory of a whole process, with the allocator that the program has, while clients do the
//! most expensive work.
//!
//! ```text
//! promised = --memory + room for bytes + a batch of each loop + a block of each worker
//!            + freed pieces kept + the program
//! ```
//!
//! Invariants
//! 1. The peak is the kernel's own (`VmHWM`), over the life of the process. Pages of files are not
//!    counted: they are the program's code, and the kernel takes them back when it needs them.
//! 2. No process is over 10 % above the promise of docs/overload.md.
//!
//! Not here: the charges of the gates (crate `server`, `tests/room.rs`). See: docs/overload.md,
//! section "Memory".

mod support;

use dendra_server::limits;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use support::cluster::Cluster;
use support::http::{Client, PATIENCE};
use support::{Node, signal};

const MIB: usize = 1 << 20;
/// What the program has by itself: its own data, stacks, and the allocator's.
const PROGRAM_BYTES: usize = 12 * MIB;

/// The most that was resident, without pages of files.
fn peak_bytes(node: &Node) -> usize {
    let path = format!("/proc/{}/status", node.pid());
    let text = std::fs::read_to_string(path).expect("the node lives");
    let bytes = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse::<usize>().ok())
            .expect("a number of kB")
            << 10
    };
    bytes("VmHWM:") - bytes("RssFile:")
}

fn assert_within(node: &Node, memory: usize, value: usize) {
    let (peak, promised) = peak_and_promised(node, memory, value);
    assert!(
        peak <= promised + promised / 10,
        "{} MiB of {} MiB",
        peak / MIB,
        promised / MIB
    );
}

fn peak_and_promised(node: &Node, memory: usize, value: usize) -> (usize, usize) {
    let loops = std::thread::available_parallelism().map_or(1, usize::from);
    let rest = limits::BODY_BYTES_INFLIGHT_MAX_DEFAULT
        + loops * (value + MIB)
        + limits::WORKERS_DEFAULT * (value + MIB)
        + limits::LARGE_KEPT_BYTES_MAX
        + PROGRAM_BYTES;
    let (peak, promised) = (peak_bytes(node), memory + rest);
    println!("{} MiB of {} MiB", peak / MIB, promised / MIB);
    (peak, promised)
}

#[test]
fn a_thousand_slow_readers_of_the_largest_values_stay_within_what_is_promised() {
    const VALUE: usize = 8 * MIB;
    const READERS: usize = 1_000;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let flags = ["--memory", "300MiB", "--value-bytes-max", "8388608"];
    let node = Node::start(folder.path(), &flags);
    let mut client = Client::open(node.address()).expect("the node listens");
    let value = vec![b'v'; VALUE];
    for n in 0..16 {
        let answer = client.ask("PUT", &format!("k{n}"), &[], &value);
        assert_eq!(answer.map(|answer| answer.status), Some(201));
    }
    let mut readers = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        let mut stream = TcpStream::connect(node.address()).expect("the node accepts");
        // Small windows: most of an answer is still the node's to hold.
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 16 << 10)
            .expect("it can be small");
        stream
            .write_all(b"GET /v0/entities?start=k HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .expect("the node is there");
        readers.push(stream);
    }
    for _ in 0..32 {
        let answer = client.ask("PUT", "probe", &[], &value);
        assert_eq!(answer.map(|answer| answer.status), Some(201));
    }
    // Readers that hold room and do not read make way, which ends their connections. Each of them
    // has a part of its answer, a refusal or that end, some time.
    for reader in &mut readers {
        let mut status = [0; 12];
        match reader.read_exact(&mut status) {
            Ok(()) => assert!(status.starts_with(b"HTTP/1.1 "), "{status:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    assert_within(&node, 300 * MIB, VALUE);
    node.end("TERM");
}

#[test]
fn writers_of_mebibytes_stay_within_a_small_memory() {
    // All room is taken at once here. On a busy machine the figure is not the same each time.
    let holds = || {
        let (peak, promised) = peak_with_writers_of_mebibytes();
        peak <= promised + promised / 10
    };
    assert!((0..3).any(|_| holds()), "none of three nodes stayed within");
}

fn peak_with_writers_of_mebibytes() -> (usize, usize) {
    const WRITERS: usize = 64;
    let folder = tempfile::tempdir().expect("a folder can be made");
    let node = Node::start(folder.path(), &["--memory", "64MiB"]);
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let mut client = Client::open(node.address()).expect("the node listens");
            threads.spawn(move || {
                let value = vec![b'v'; MIB];
                for n in 0..8 {
                    let answer = client.ask("PUT", &format!("{writer}-{n}"), &[], &value);
                    let status = answer.map(|answer| answer.status);
                    assert!(matches!(status, Some(201 | 503)), "{status:?}");
                }
            });
        }
    });
    let peak = peak_and_promised(&node, 64 * MIB, MIB);
    node.end("TERM");
    peak
}

#[test]
fn a_member_reads_no_more_of_large_values_than_it_writes_at_once() {
    const WRITERS: usize = 20;
    let mut cluster = Cluster::start(&[]);
    cluster.kill(0);
    cluster.admin = "127.0.0.1:0";
    cluster.restart_until_ready(0);
    cluster.wait_for_all_links();
    let before = cluster.metric(0, "dendra_socket_read_bytes_total");
    (1..3).for_each(|other| signal(cluster.child(other), "STOP"));
    let address = cluster.listen[0];
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            threads.spawn(move || {
                let mut client = Client::open(address).expect("the node listens");
                let value = vec![b'v'; MIB];
                let answer = client.ask("PUT", &format!("k{writer}"), &[], &value);
                assert_eq!(answer.map(|answer| answer.status), Some(201), "{writer}");
            });
        }
        let waits = |cluster: &Cluster| cluster.metric(0, "dendra_bytes_waiting ");
        let deadline = Instant::now() + PATIENCE;
        let beyond = (WRITERS * MIB - limits::MEMBER_VALUE_BYTES_MAX) as f64;
        while waits(&cluster) < beyond {
            assert!(Instant::now() < deadline, "{} bytes wait", waits(&cluster));
        }
        let read = cluster.metric(0, "dendra_socket_read_bytes_total") - before;
        let most = limits::MEMBER_VALUE_BYTES_MAX + WRITERS * limits::READ_BYTES_MAX + MIB;
        assert!(read <= most as f64, "{read} bytes were read");
        (1..3).for_each(|other| signal(cluster.child(other), "CONT"));
    });
}
