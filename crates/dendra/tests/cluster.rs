//! Three real processes, a proxy in front of each, and a checker: what a cluster promises while one of
//! three is killed, frozen or cut off.
//!
//! ```text
//! writers, readers ─► node 1, node 2, node 3        links between them ─► proxies: cut, stall, delay
//! key = one writer, numbers that grow ─► every read is checked against what was answered before it began
//! ```
//!
//! Invariants
//! 1. A read returns no less than the newest write that was answered, and than the newest read that
//!    ended, before it began; and nothing that nobody began to write. For keys with one writer whose values grow this
//!    is linearizability.
//! 2. With one of three in trouble no operation at the default level fails: the other two are a majority.
//! 3. Phases end after so many operations, not after a time.
//!
//! Not here: every schedule of messages (crate `sim`), one node (`node.rs`, `kill.rs`).
//! See: docs/consistency.md.

mod support;

#[path = "../src/dev/proxy.rs"]
#[allow(dead_code, reason = "shared with `dendra dev`")]
mod proxy;

use proxy::{Fault, Faults, Proxy};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 3;

struct Cluster {
    folder: tempfile::TempDir,
    urls: Vec<String>,
    listen: Vec<SocketAddr>,
    children: Vec<Option<Child>>,
    faults: Arc<Faults>,
    _proxies: Vec<Proxy>,
    flags: Vec<String>,
}

fn free_port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

impl Cluster {
    fn start(flags: &[&str]) -> Cluster {
        let faults = Faults::new(NODES);
        let doors: Vec<_> = (0..NODES).map(|_| free_port()).collect();
        let listen: Vec<SocketAddr> = {
            let held: Vec<_> = (0..NODES).map(|_| free_port()).collect();
            held.iter().map(|(_, address)| *address).collect()
        };
        let urls: Vec<String> = doors.iter().map(|(_, a)| format!("http://{a}")).collect();
        let proxies = doors
            .into_iter()
            .enumerate()
            .map(|(index, (door, _))| {
                let faults = Arc::clone(&faults);
                Proxy::start(door, index, listen[index], urls.clone(), faults).expect("a thread")
            })
            .collect();
        let mut cluster = Cluster {
            folder: tempfile::tempdir().expect("a folder"),
            urls,
            listen,
            children: (0..NODES).map(|_| None).collect(),
            faults,
            _proxies: proxies,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        for index in 0..NODES {
            cluster.start_node(index);
        }
        for index in 0..NODES {
            cluster.wait_until_usable(index);
        }
        cluster
    }

    fn start_node(&mut self, index: usize) {
        let log = self.folder.path().join(format!("{index}.log"));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let mut command = support::dendra(["serve", "--admin", "off"]);
        command
            .args(["--listen", &self.listen[index].to_string()])
            .args(["--cluster", &self.urls.join(",")])
            .args(["--self", &self.urls[index]])
            .arg("--data")
            .arg(self.folder.path().join(index.to_string()))
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log);
        self.children[index] = Some(command.spawn().expect("the binary was built"));
    }

    /// Waits until an operation through this node is answered by a majority.
    fn wait_until_usable(&self, index: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Ok(mut client) = Client::open(self.listen[index])
                && client
                    .ask("GET", "nothing", &[], b"")
                    .is_some_and(|a| a.status == 404)
            {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "node {index} is of no use: {}",
                log_of(self.folder.path(), index)
            );
            std::thread::yield_now();
        }
    }

    /// Waits until all three answer, whichever loop of a node is asked: a connection goes to the loop
    /// with the fewest.
    fn wait_for_all_links(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        for address in &self.listen {
            let clients = (0..8).map(|_| Client::open(*address).expect("it listens"));
            for mut client in clients.collect::<Vec<_>>() {
                let target = "/v0/entity?id=nothing&ack=3&from=3";
                while client
                    .request("GET", target, &[], b"")
                    .is_none_or(|answer| answer.status != 404)
                {
                    assert!(Instant::now() < deadline, "the links stay down");
                }
            }
        }
    }

    fn child(&self, index: usize) -> &Child {
        self.children[index].as_ref().expect("it runs")
    }

    fn kill(&mut self, index: usize) {
        let mut child = self.children[index].take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            // After a failed assertion they must not stay; a stopped one is killed as well.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn log_of(folder: &Path, index: usize) -> String {
    std::fs::read_to_string(folder.join(format!("{index}.log"))).unwrap_or_default()
}

struct Client {
    reader: BufReader<TcpStream>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    etag: Option<String>,
    receipt: String,
    body: Vec<u8>,
}

impl Client {
    fn open(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Client {
            reader: BufReader::new(stream),
        })
    }

    fn ask(&mut self, method: &str, id: &str, headers: &[&str], body: &[u8]) -> Option<Answer> {
        let target = format!("/v0/entity?id={id}");
        self.request(method, &target, headers, body)
    }

    fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<Answer> {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n");
        for header in headers {
            request.push_str(header);
            request.push_str("\r\n");
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut bytes = request.into_bytes();
        if method == "GET" {
            bytes = String::from_utf8(bytes)
                .expect("it is ASCII")
                .replace("Content-Length: 0\r\n", "")
                .into_bytes();
        }
        bytes.extend_from_slice(body);
        self.reader.get_mut().write_all(&bytes).ok()?;
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut answer = Answer {
            status: line.get(9..12)?.parse().ok()?,
            etag: None,
            receipt: String::new(),
            body: Vec::new(),
        };
        let (mut length, mut is_chunked) = (0, false);
        loop {
            line.clear();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", n)) => length = n.parse().ok()?,
                Some(("Transfer-Encoding", _)) => is_chunked = true,
                Some(("ETag", tag)) => answer.etag = Some(tag.to_owned()),
                Some(("Dendra-Receipt", text)) => text.clone_into(&mut answer.receipt),
                Some(_) => {}
                None => break,
            }
        }
        if !is_chunked {
            answer.body = vec![0; length];
            self.reader.read_exact(&mut answer.body).ok()?;
            return Some(answer);
        }
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
            if size == 0 {
                break;
            }
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            answer.body.extend_from_slice(&chunk[..size]);
            answer.body.push(b'\n');
        }
        loop {
            line.clear();
            self.reader.read_line(&mut line).ok()?;
            match line.trim_end() {
                "" => return Some(answer),
                trailer => trailer.clone_into(&mut answer.receipt),
            }
        }
    }
}

/// What is known of one key: numbers of one writer.
#[derive(Default)]
struct Known {
    begun: AtomicU64,
    /// The newest that was answered to its writer or to a reader.
    seen: AtomicU64,
}

/// Load on nodes `on`, until `is_over`; latencies of all operations in microseconds.
struct Load {
    /// In front of every key, so that no load meets the numbers of another one.
    name: String,
    keys: Vec<Known>,
    is_over: AtomicBool,
    operations: AtomicU64,
}

impl Load {
    fn new(name: String, keys: usize) -> Load {
        Load {
            name,
            keys: (0..keys).map(|_| Known::default()).collect(),
            is_over: AtomicBool::new(false),
            operations: AtomicU64::new(0),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Waits until so many more operations were answered.
    fn run_on(&self, operations: u64) {
        let until = self.operations.load(Ordering::SeqCst) + operations;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.operations.load(Ordering::SeqCst) < until {
            assert!(Instant::now() < deadline, "the load does not go on");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn write(&self, address: SocketAddr, key: usize) -> Vec<u64> {
        let mut client = Client::open(address).expect("a node listens");
        let known = &self.keys[key];
        let mut took = Vec::new();
        while !self.is_over() {
            let number = known.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let began = Instant::now();
            let value = number.to_string();
            let answer = client.ask(
                "PUT",
                &format!("{}-{key}", self.name),
                &[],
                value.as_bytes(),
            );
            let answer = answer.expect("the node answers");
            assert_eq!(
                answer.status,
                201,
                "{answer:?}: {}",
                String::from_utf8_lossy(&answer.body)
            );
            known.seen.fetch_max(number, Ordering::SeqCst);
            took.push(began.elapsed().as_micros() as u64);
            self.operations.fetch_add(1, Ordering::SeqCst);
        }
        took
    }

    fn read(&self, address: SocketAddr, offset: usize) -> Vec<u64> {
        let mut client = Client::open(address).expect("a node listens");
        let mut took = Vec::new();
        let mut key = offset;
        while !self.is_over() {
            key = (key + 1) % self.keys.len();
            let known = &self.keys[key];
            let at_least = known.seen.load(Ordering::SeqCst);
            let began = Instant::now();
            let answer = client.ask("GET", &format!("{}-{key}", self.name), &[], b"");
            let answer = answer.expect("the node answers");
            let found: u64 = match answer.status {
                200 => String::from_utf8_lossy(&answer.body)
                    .parse()
                    .expect("a number"),
                404 => 0,
                other => panic!("{other}: {answer:?}"),
            };
            let at_most = known.begun.load(Ordering::SeqCst);
            assert!(
                (at_least..=at_most).contains(&found),
                "key {key} shows {found}, although {at_least} was shown before and {at_most} was begun last"
            );
            known.seen.fetch_max(found, Ordering::SeqCst);
            took.push(began.elapsed().as_micros() as u64);
            self.operations.fetch_add(1, Ordering::SeqCst);
        }
        took
    }
}

fn percentiles(took: &mut [u64]) -> String {
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1000] as f64 / 1000.0;
    format!(
        "{} operations, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        took.len(),
        at(500),
        at(990),
        at(1000)
    )
}

/// Runs `trouble` while nodes `on` serve a load; prints how long operations took.
fn under_load(
    cluster: &mut Cluster,
    name: &str,
    on: [usize; 2],
    trouble: impl FnOnce(&mut Cluster, &Load),
) {
    let load = Load::new(name.to_owned(), 4);
    let addresses = on.map(|index| cluster.listen[index]);
    let mut took: Vec<u64> = std::thread::scope(|scope| {
        let load = &load;
        let mut clients = Vec::new();
        for key in 0..4 {
            clients.push(scope.spawn(move || load.write(addresses[key % 2], key)));
            clients.push(scope.spawn(move || load.read(addresses[(key + 1) % 2], key)));
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            load.run_on(200);
            trouble(cluster, load);
        }));
        load.is_over.store(true, Ordering::SeqCst);
        let took = clients
            .into_iter()
            .flat_map(|client| client.join().expect("every answer is as promised"))
            .collect();
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
        took
    });
    println!("{name}: {}", percentiles(&mut took));
    let longest = took.last().expect("there were operations");
    assert!(*longest < 2_000_000, "an operation took {longest} us");
}

const HTTP: [&str; 2] = ["--peer-transport", "http"];

#[test]
fn any_of_three_nodes_answers_for_any_key() {
    every_kind_of_request_is_answered_by_any(&Cluster::start(&[]));
}

#[test]
fn any_of_three_nodes_answers_for_any_key_over_plain_http() {
    let mut cluster = Cluster::start(&HTTP);
    every_kind_of_request_is_answered_by_any(&cluster);
    // A member that asks by frames is one of them.
    cluster.kill(0);
    cluster.flags.clear();
    cluster.start_node(0);
    cluster.wait_until_usable(0);
    cluster.wait_for_all_links();
}

fn every_kind_of_request_is_answered_by_any(cluster: &Cluster) {
    let mut clients: Vec<Client> = cluster
        .listen
        .iter()
        .map(|address| Client::open(*address).expect("it listens"))
        .collect();
    let mut ask = |node: usize, method: &str, target: &str, headers: &[&str], body: &[u8]| {
        clients[node]
            .request(method, target, headers, body)
            .expect("it answers")
    };
    let stored = ask(0, "PUT", "/v0/entity?id=k", &[], b"one");
    assert_eq!(stored.status, 201);
    assert_eq!(
        stored.receipt,
        "acks=2/3; level=linearizable; durability=sync"
    );
    for node in 0..NODES {
        let found = ask(node, "GET", "/v0/entity?id=k", &[], b"");
        assert_eq!((found.status, &found.body[..]), (200, &b"one"[..]));
        assert_eq!(found.etag, stored.etag);
    }
    // Conditions hold of what the whole cluster knows.
    let tag = format!("If-Match: {}", stored.etag.expect("a version"));
    let next = ask(1, "PUT", "/v0/entity?id=k", &[&tag], b"two");
    assert_eq!(next.status, 201);
    let failed = ask(2, "PUT", "/v0/entity?id=k", &[&tag], b"three");
    assert_eq!((failed.status, failed.etag), (412, next.etag));
    let exists = ask(2, "PUT", "/v0/entity?id=k", &["If-None-Match: *"], b"three");
    assert_eq!(exists.status, 412);
    // One copy has one home, and every node knows it.
    let one = ask(0, "PUT", "/v0/entity?id=single&ack=1&from=1", &[], b"1");
    assert_eq!((one.status, &one.receipt[..8]), (201, "acks=1/1"));
    for node in 0..NODES {
        let found = ask(node, "GET", "/v0/entity?id=single&ack=1&from=1", &[], b"");
        assert_eq!((found.status, &found.body[..]), (200, &b"1"[..]));
    }
    let weak = ask(0, "PUT", "/v0/entity?id=k&ack=1&from=3", &[&tag], b"x");
    assert_eq!(weak.status, 400);
    assert!(weak.body.starts_with(b"bad-quorum: "), "{weak:?}");
    let many = ask(0, "PUT", "/v0/entity?id=k&from=4", &[], b"x");
    assert_eq!(many.status, 400);
    // A scan of the cluster shows every key once, from any node, and deletions hold everywhere.
    assert_eq!(ask(1, "DELETE", "/v0/entity?id=k", &[], b"").status, 202);
    assert_eq!(ask(2, "GET", "/v0/entity?id=k", &[], b"").status, 404);
    for (n, key) in ["a", "b", "c"].iter().enumerate() {
        let target = format!("/v0/entity?id={key}");
        assert_eq!(ask(n, "PUT", &target, &[], key.as_bytes()).status, 201);
    }
    for node in 0..NODES {
        let scan = ask(node, "GET", "/v0/entities?start=a", &[], b"");
        assert_eq!(scan.status, 200);
        assert_eq!(scan.receipt, "Dendra-Scan: complete");
        let shown = String::from_utf8_lossy(&scan.body).into_owned();
        assert_eq!(shown, "a\na\nb\nb\nc\nc\nsingle\n1\n");
    }
}

#[test]
fn one_of_three_may_crash_or_freeze_without_a_failed_operation() {
    one_crashes_and_freezes(&[]);
}

#[test]
fn one_of_three_may_crash_or_freeze_without_a_failed_operation_over_plain_http() {
    one_crashes_and_freezes(&HTTP);
}

fn one_crashes_and_freezes(transport: &[&str]) {
    let mut cluster = Cluster::start(&[&["--durability", "os"], transport].concat());
    under_load(&mut cluster, "crash", [0, 1], |cluster, load| {
        cluster.kill(2);
        load.run_on(300);
        cluster.start_node(2);
        cluster.wait_until_usable(2);
        load.run_on(200);
    });
    under_load(&mut cluster, "freeze", [0, 1], |cluster, load| {
        support::signal(cluster.child(2), "STOP");
        load.run_on(300);
        support::signal(cluster.child(2), "CONT");
        load.run_on(200);
    });
}

#[test]
fn two_that_do_not_hear_each_other_have_the_third_between_them() {
    two_do_not_hear_each_other(&[]);
}

#[test]
fn two_that_do_not_hear_each_other_have_the_third_between_them_over_plain_http() {
    two_do_not_hear_each_other(&HTTP);
}

fn two_do_not_hear_each_other(transport: &[&str]) {
    let mut cluster = Cluster::start(&[&["--durability", "os"], transport].concat());
    let delay = Fault::Delay(Duration::from_millis(30));
    for (name, fault) in [
        ("cut", Fault::Cut),
        ("stall", Fault::Stall),
        ("delay", delay),
    ] {
        cluster.wait_for_all_links();
        under_load(&mut cluster, name, [0, 1], |cluster, load| {
            cluster.faults.set(0, 1, fault);
            load.run_on(200);
            cluster.faults.set(1, 0, fault);
            load.run_on(200);
            cluster.faults.heal();
            load.run_on(100);
        });
    }
}

#[test]
fn a_member_whose_folder_was_wiped_is_not_let_in() {
    let mut cluster = Cluster::start(&[]);
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let stored = client.ask("PUT", "k", &[], b"v").expect("it answers");
    assert_eq!(stored.status, 201);
    cluster.kill(2);
    let data = cluster.folder.path().join("2");
    std::fs::remove_dir_all(&data).expect("the folder of a node that is gone");
    cluster.start_node(2);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !log_of(cluster.folder.path(), 2).contains("other-node") {
        assert!(Instant::now() < deadline, "nobody said why");
        std::thread::yield_now();
    }
    // The others go on, and the stranger has no majority.
    let found = client.ask("GET", "k", &[], b"").expect("it answers");
    assert_eq!(found.status, 200);
    let mut stranger = Client::open(cluster.listen[2]).expect("it listens");
    let alone = stranger.ask("GET", "k", &[], b"").expect("it answers");
    assert_eq!(alone.status, 504, "{alone:?}");
}
