//! A node of its own per test, and a client that sends exactly the bytes it is given.
//!
//! Invariants
//! 1. Port 0 and a folder of its own: tests run side by side.
//! 2. Every read has a timeout: a test that hangs fails.
//! 3. A request has the longest of deadlines unless the test says another one. So a claim of a test
//!    about an answer holds however long the machine takes for it.
//!
//! Not here: the expected bytes (the tests).

#![allow(
    dead_code,
    reason = "each test binary uses its own part of this module"
)]

pub(crate) mod asker;
pub(crate) mod certs;
pub(crate) mod crowd;
pub(crate) mod guest;
pub(crate) mod link;
pub(crate) mod other;
pub(crate) mod valve;
pub(crate) mod watcher;

use dendra_engine::vfs::Vfs;
use dendra_server::{Running, Server, Settings};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait for an event that comes for certain: after that the test has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const REST: Duration = Duration::from_millis(2);

/// Between two looks of a wait: the node that it waits for needs the processor.
pub(crate) fn rest() {
    std::thread::park_timeout(REST);
}

/// A client that closed its side counts as gone once its request has waited for 100 ms: the rule
/// itself is a length of time.
pub(crate) fn rest_until_clients_count_as_gone() {
    let since = Instant::now();
    while since.elapsed() < 2 * dendra_server::limits::CLIENT_LOOK {
        rest();
    }
}

/// An address that the system chose and that no other test gets.
pub(crate) fn reserved() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.set_reuse_address(true).expect("set");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a port");
    let address = socket.local_addr().expect("bound").as_socket();
    (socket, address.expect("an address"))
}

/// A node that serves from a folder which goes away with it.
pub(crate) struct Node {
    pub(crate) running: Option<Running>,
    pub(crate) folder: tempfile::TempDir,
}

/// Settings for a node in `folder` on ports that the system chooses.
pub(crate) fn settings(folder: &tempfile::TempDir) -> Settings {
    let mut settings = Settings::new(folder.path());
    // Tests that hold reads up, or count them, mean those of clients.
    settings.scrub_bytes_per_second = 0;
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    settings.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.memory_bytes = 64 << 20;
    settings.workers = 2;
    settings
}

impl Node {
    pub(crate) fn start() -> Node {
        Node::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Node {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut settings = settings(&folder);
        change(&mut settings);
        let running = Server::start(settings).expect("the node starts");
        Node {
            running: Some(running),
            folder,
        }
    }

    /// A node on a given folder.
    pub(crate) fn on(vfs: Arc<dyn Vfs>, change: impl FnOnce(&mut Settings)) -> Node {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut settings = settings(&folder);
        change(&mut settings);
        let running = Server::start_on(settings, vfs).expect("the node starts");
        Node {
            running: Some(running),
            folder,
        }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("the node runs")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.running().addr())
    }

    pub(crate) fn admin(&self) -> Client {
        Client::connect(
            self.running()
                .admin_addr()
                .expect("there is an admin plane"),
        )
    }

    /// The value of a metric, by the start of its line.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.admin().get("/metrics");
        let text = page.text();
        let line = text
            .lines()
            .find(|line| line.starts_with(name) && !line.starts_with('#'))
            .unwrap_or_else(|| panic!("no metric {name} in\n{text}"));
        let value = line.rsplit(' ').next().expect("a line has a value");
        value.parse().expect("a value is a number")
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for_metric(&self, name: &str, value: f64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name) != value {
            assert!(
                Instant::now() < deadline,
                "{name} stays {}",
                self.metric(name)
            );
            rest();
        }
    }

    /// Waits until a metric is at least so large.
    pub(crate) fn wait_until_metric(&self, name: &str, least: f64) {
        let deadline = Instant::now() + PATIENCE;
        while self.metric(name) < least {
            assert!(
                Instant::now() < deadline,
                "{name} stays {}",
                self.metric(name)
            );
            rest();
        }
    }

    pub(crate) fn stop(mut self) {
        let running = self.running.take().expect("the node runs");
        running.stop().expect("the node stops");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(running) = self.running.take()
            && let Err(error) = running.stop()
        {
            eprintln!("the node did not stop: {error}");
        }
    }
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The records of a chunked body, one per chunk.
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) trailer: Option<String>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn etag(&self) -> &str {
        self.header("ETag").expect("there is an ETag")
    }

    /// The JSON objects of its lines.
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        let lines = self.body.split_inclusive(|&b| b == b'\n');
        let object = |line| serde_json::from_slice(line).expect("a line is an object");
        lines.map(object).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection that sends the bytes of a test and reads one answer at a time.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Client {
        Client::over(TcpStream::connect(addr).expect("the node accepts"))
    }

    /// From another address of this machine.
    pub(crate) fn connect_from(source: Ipv4Addr, addr: SocketAddr) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let source = SocketAddr::from((source, 0));
        socket.bind(&source.into()).expect("loopback has it");
        socket.connect(&addr.into()).expect("the node accepts");
        Client::over(socket.into())
    }

    fn over(stream: TcpStream) -> Client {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        stream.set_nodelay(true).expect("no delay can be set");
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The socket. Requires: everything that came was looked at.
    pub(crate) fn into_stream(self) -> TcpStream {
        assert!(self.buffer.is_empty(), "bytes came that were not looked at");
        self.stream
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the node reads");
    }

    fn more(&mut self) -> usize {
        let mut chunk = [0; 64 << 10];
        let n = self
            .stream
            .read(&mut chunk)
            .expect("the node answers in time");
        self.buffer.extend_from_slice(&chunk[..n]);
        n
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8(self.buffer[..at].to_vec()).expect("ASCII");
                self.buffer.drain(..at + 2);
                return line;
            }
            assert!(self.more() > 0, "the connection ended inside a head");
        }
    }

    pub(crate) fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.buffer.len() < n {
            assert!(self.more() > 0, "the connection ended inside a body");
        }
        self.buffer.drain(..n).collect()
    }

    /// Reads the head of an answer.
    pub(crate) fn read_head(&mut self) -> Answer {
        let first = self.line();
        let status: u16 = first
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("not a status line: {first}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").expect("a header has a value");
            headers.push((name.to_owned(), value.to_owned()));
        }
        Answer {
            status,
            headers,
            body: Vec::new(),
            chunks: Vec::new(),
            trailer: None,
        }
    }

    /// Reads one answer; `method` decides whether it has a body.
    pub(crate) fn read(&mut self, method: &str) -> Answer {
        let mut answer = self.read_head();
        let status = answer.status;
        if status <= 101 || status == 304 || method == "HEAD" {
            return answer;
        }
        if answer.header("Transfer-Encoding") == Some("chunked") {
            self.read_chunks(&mut answer);
        } else {
            let length = answer
                .header("Content-Length")
                .expect("an answer has a length")
                .parse()
                .expect("a length is a number");
            answer.body = self.exactly(length);
        }
        answer
    }

    /// Reads one chunk of a body; `None` = the last one.
    pub(crate) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.line();
        let size = usize::from_str_radix(&size, 16).expect("a chunk size is hexadecimal");
        (size > 0).then(|| {
            let chunk = self.exactly(size);
            assert_eq!(self.exactly(2), b"\r\n");
            chunk
        })
    }

    fn read_chunks(&mut self, answer: &mut Answer) {
        while let Some(chunk) = self.read_chunk() {
            answer.body.extend_from_slice(&chunk);
            answer.chunks.push(chunk);
        }
        loop {
            let line = self.line();
            if line.is_empty() {
                return;
            }
            let scan = line.strip_prefix("Dendra-Scan: ");
            if let Some(trailer) = scan.or(line.strip_prefix("Dendra-Batch: ")) {
                answer.trailer = Some(trailer.to_owned());
            }
        }
    }

    /// Reads to the end of the connection, and then gives what came as answers.
    pub(crate) fn read_all(mut self) -> Client {
        while self.more() > 0 {}
        self
    }

    /// Was everything that came looked at, of a connection that has ended?
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.buffer.is_empty() && self.more() == 0
    }

    /// Waits for the end of the connection: did it come, and no byte in front of it?
    pub(crate) fn is_closed(&mut self) -> bool {
        let is_over = |error: std::io::Error| {
            !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        };
        let end = self.stream.read(&mut [0; 1]);
        self.buffer.is_empty() && end.map_or_else(is_over, |n| n == 0)
    }

    pub(crate) fn ask(&mut self, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
        let length = if method == "PUT" || !body.is_empty() {
            format!("Content-Length: {}\r\n", body.len())
        } else {
            String::new()
        };
        let deadline = if headers.contains("Dendra-Timeout-Ms") {
            ""
        } else {
            "Dendra-Timeout-Ms: 60000\r\n"
        };
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{deadline}{headers}{length}\r\n"
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes);
        self.read(method)
    }

    /// Sends a batch of lines; returns the answer and its lines.
    pub(crate) fn batch(&mut self, headers: &str, body: &[u8]) -> (Answer, Vec<serde_json::Value>) {
        let answer = self.ask("POST", "/v0/batch", headers, body);
        let lines = answer.lines();
        (answer, lines)
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "", b"")
    }

    pub(crate) fn put(&mut self, id: &str, value: &[u8]) -> Answer {
        self.ask("PUT", &format!("/v0/entity?id={id}"), "", value)
    }

    pub(crate) fn value(&mut self, id: &str) -> Answer {
        self.get(&format!("/v0/entity?id={id}"))
    }

    pub(crate) fn delete(&mut self, id: &str) -> Answer {
        self.ask("DELETE", &format!("/v0/entity?id={id}"), "", b"")
    }
}
