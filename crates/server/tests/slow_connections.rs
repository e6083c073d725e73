//! Ten thousand clients that begin a request and do not go on, beside one that works.
//!
//! The node runs in a process of its own, which is this test once more: two processes have
//! room for ten thousand descriptors each where one would need twice as many, and the memory of the
//! node can be looked at without the clients'.
//!
//! Invariants
//! 1. The slow half that is inside of its head is not ended while the test runs: whoever waited for one of them would
//!    wait for ten minutes, and the worker's own patience is shorter than that. Nothing else is said about time.
//!
//! Not here: what ends slow clients (`overload.rs`).
//! See: docs/overload.md.

mod support;

use dendra_server::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Client, PATIENCE};

const FOLDER: &str = "DENDRA_TEST_SLOW_CONNECTIONS_FOLDER";
const CLIENTS: usize = 10_000;
/// Of the node's own memory per slow client: its task, its half head, its seat.
const BYTES_EACH_MAX: usize = 6 << 10;

/// What the other process does: a node, until its input ends.
fn be_the_node(folder: &Path) {
    let mut settings = dendra_server::Settings::new(folder.join("data"));
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    settings.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.memory_bytes = 64 << 20;
    settings.timeouts.head = Duration::from_secs(600);
    settings.timeouts.body = Duration::from_secs(600);
    let running = Server::start(settings).expect("the node starts");
    let admin = running.admin_addr().expect("there is an admin plane");
    let text = format!("{} {admin}", running.addr());
    std::fs::write(folder.join("addr.new"), text).expect("a file can be written");
    std::fs::rename(folder.join("addr.new"), folder.join("addr")).expect("it can be renamed");
    let mut end = Vec::new();
    std::io::stdin()
        .read_to_end(&mut end)
        .expect("the other process lives or ends");
    running.stop().expect("the node stops");
}

struct Other {
    child: Child,
    addr: SocketAddr,
    admin: SocketAddr,
}

impl Other {
    fn start(folder: &Path) -> Other {
        let mut child = Command::new(std::env::current_exe().expect("we are a program"))
            .args([
                "--exact",
                "ten_thousand_slow_clients_cost_little_and_hold_up_nobody",
            ])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("we can start ourselves");
        let deadline = Instant::now() + PATIENCE;
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(folder.join("addr")) {
                break text;
            }
            let ended = child.try_wait().expect("a child has a state");
            assert!(ended.is_none(), "the node ended: {ended:?}");
            assert!(Instant::now() < deadline, "the node does not start");
            std::thread::yield_now();
        };
        let (addr, admin) = text.split_once(' ').expect("two addresses");
        Other {
            child,
            addr: addr.parse().expect("an address"),
            admin: admin.parse().expect("an address"),
        }
    }

    fn resident_bytes(&self) -> usize {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(path).expect("the node lives");
        let pages: usize = text
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse().ok())
            .expect("the second number is resident pages");
        pages * rustix::param::page_size()
    }

    fn metric(&self, name: &str) -> usize {
        let page = Client::connect(self.admin).get("/metrics").text();
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .expect("there is such a metric");
        let value = line.rsplit(' ').next().expect("with a value");
        value.parse().expect("which is a number")
    }

    fn wait_until(&self, name: &str, is_so: impl Fn(usize) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self.metric(name)) {
            assert!(Instant::now() < deadline, "{name} is {}", self.metric(name));
            std::thread::yield_now();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the node did not end: {error}");
        }
    }
}

#[test]
fn ten_thousand_slow_clients_cost_little_and_hold_up_nobody() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return be_the_node(Path::new(&folder));
    }
    let limit = getrlimit(Resource::Nofile).maximum;
    let enough = (CLIENTS + 2_000) as u64;
    if limit.is_some_and(|limit| limit < enough) {
        eprintln!("skipped: the system allows {limit:?} descriptors, {enough} are needed");
        return;
    }
    let raised = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be the hard one");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let other = Other::start(folder.path());
    let mut worker = Client::connect(other.addr);
    assert_eq!(worker.put("k", &vec![b'v'; 1_000]).status, 201);
    let before = other.resident_bytes();
    // Bodies come last: half a minute is the longest that a body may take.
    let heads: [&[u8]; 2] = [
        b"G",
        b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    ];
    let bodies: [&[u8]; 2] = [
        b"PUT /v0/entity?id=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n123",
        b"PUT /v0/entity?id=b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ];
    let mut slow = Vec::with_capacity(CLIENTS);
    for n in 0..CLIENTS {
        let mut stream = TcpStream::connect(other.addr).expect("the node accepts");
        let beginnings = if n < CLIENTS / 2 { heads } else { bodies };
        stream
            .write_all(beginnings[n % 2])
            .expect("the node is there");
        slow.push(stream);
    }
    other.wait_until("dendra_accepted_total", |accepted| accepted > CLIENTS);
    for _ in 0..200 {
        assert_eq!(worker.value("k").status, 200);
        assert_eq!(worker.put("k", &vec![b'v'; 1_000]).status, 201);
    }
    let connections = other.metric("dendra_connections");
    assert!(
        connections > CLIENTS / 2,
        "{connections}: the heads, and the worker"
    );
    let each = other.resident_bytes().saturating_sub(before) / CLIENTS;
    assert!(each < BYTES_EACH_MAX, "{each} bytes for each slow client");
    drop(slow);
    other.wait_until("dendra_connections", |connections| connections == 1);
    assert_eq!(worker.value("a").status, 404, "half a body is no value");
}
