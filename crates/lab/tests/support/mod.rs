//! Fake servers whose behaviour is known exactly.
//!
//! ```text
//! FakeServer::start(|n| Reply::After(delay))     answer n of the whole server leaves `delay` later
//! freeze_at / freeze_for                         for that long nothing is read or written
//! took_ns()                                      what it really took: a busy machine wakes threads late
//! excesses(script, clients, work)                how much longer plain clients waited than such a server took
//! ```
//!
//! Invariants
//! 1. Ports are the system's choice; a server ends with its value.
//! 2. A time of the server lies inside of every time that a client can see of it. It begins after
//!    the read of the request, and ends in front of the write of the answer.
//!
//! Not here: the cases (`../*.rs`).

#![allow(dead_code, reason = "each test binary uses its own part")]

use dendra_base::Workload;
use dendra_lab::driver::{Idle, StopFlag};
use dendra_lab::experiment::{self, Setup};
use dendra_lab::recorder::Redirects;
use dendra_lab::run::{Mode, Run, Tool};
use dendra_lab::schedule::{Shape, Spacing};
use dendra_lab::template::RequestStyle;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How a fake server treats a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers with this status after this long.
    After(Duration, u16),
    /// Sends these bytes.
    Raw(&'static [u8]),
    /// Sends these bytes and closes.
    Last(&'static [u8]),
    /// Never answers.
    Silence,
}

type Script = dyn Fn(u64) -> Reply + Send + Sync;

/// A server with a thread for each connection: exact delays, no queue between connections.
pub(crate) struct FakeServer {
    pub address: SocketAddr,
    /// Heads of requests in the order in which they came.
    pub heads: Arc<Mutex<Vec<String>>>,
    took_ns: Arc<Mutex<Vec<u64>>>,
    is_over: Arc<AtomicBool>,
    ends: Arc<(Mutex<u64>, Condvar)>,
}

impl FakeServer {
    /// A server that answers request number `n` as `script(n)` says.
    pub(crate) fn start(script: impl Fn(u64) -> Reply + Send + Sync + 'static) -> FakeServer {
        FakeServer::start_frozen(script, Duration::MAX, Duration::ZERO)
    }

    /// The same, but from `freeze_at` after the first request on, it stands still for `freeze_for`.
    pub(crate) fn start_frozen(
        script: impl Fn(u64) -> Reply + Send + Sync + 'static,
        freeze_at: Duration,
        freeze_for: Duration,
    ) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let took_ns = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::new((Mutex::new(0), Condvar::new()));
        let shared = Arc::new(Shared {
            ends: ends.clone(),
            script: Box::new(script),
            count: AtomicU64::new(0),
            heads: heads.clone(),
            took_ns: took_ns.clone(),
            first: Mutex::new(None),
            freeze: (freeze_at, freeze_for),
            is_over: is_over.clone(),
        });
        let over = is_over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Relaxed) {
                    return;
                }
                let shared = shared.clone();
                let stream = stream.expect("accepting works");
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        FakeServer {
            address,
            heads,
            took_ns,
            is_over,
            ends,
        }
    }

    /// Waits until so many connections were closed by their clients.
    pub(crate) fn wait_for_ends(&self, count: u64) {
        let (ends, changed) = &*self.ends;
        let ends = ends.lock().expect("nobody panics with it");
        let patience = Duration::from_secs(20);
        let (ends, _) = changed
            .wait_timeout_while(ends, patience, |ends| *ends < count)
            .expect("nobody panics with it");
        assert!(*ends >= count, "{ends} of {count} connections ended");
    }

    /// How long each answer took from the read of its request to its write, sorted.
    pub(crate) fn took_ns(&self) -> Vec<u64> {
        let mut took_ns = self.took_ns.lock().expect("nobody panics with it").clone();
        took_ns.sort_unstable();
        took_ns
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the accepting thread; when that fails it is gone already.
        drop(TcpStream::connect(self.address));
    }
}

struct Shared {
    script: Box<Script>,
    count: AtomicU64,
    heads: Arc<Mutex<Vec<String>>>,
    took_ns: Arc<Mutex<Vec<u64>>>,
    first: Mutex<Option<Instant>>,
    freeze: (Duration, Duration),
    is_over: Arc<AtomicBool>,
    ends: Arc<(Mutex<u64>, Condvar)>,
}

impl Shared {
    /// If the server stands still now, waits until it moves again.
    fn stand_still(&self) {
        let (at, length) = self.freeze;
        let first = *self
            .first
            .lock()
            .expect("nobody panics with it")
            .get_or_insert_with(Instant::now);
        let (Some(begin), Some(end)) = (
            first.checked_add(at),
            first
                .checked_add(at)
                .and_then(|begin| begin.checked_add(length)),
        ) else {
            return;
        };
        let now = Instant::now();
        if now >= begin && now < end {
            wait_until(end);
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).expect("a socket takes the option");
        let (mut held, mut buffer) = (Vec::new(), [0; 16 << 10]);
        loop {
            let Some((head, len)) = request(&held) else {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => {
                        let (ends, changed) = &*self.ends;
                        *ends.lock().expect("nobody panics with it") += 1;
                        changed.notify_all();
                        return;
                    }
                    Ok(len) => held.extend_from_slice(&buffer[..len]),
                }
                continue;
            };
            let came = Instant::now();
            held.drain(..len);
            self.heads.lock().expect("nobody panics with it").push(head);
            let reply = (self.script)(self.count.fetch_add(1, Relaxed));
            self.stand_still();
            let written = match reply {
                Reply::After(delay, status) => {
                    if !delay.is_zero() {
                        wait_until(came + delay);
                    }
                    let took_ns = came.elapsed().as_nanos() as u64;
                    let mut all = self.took_ns.lock().expect("nobody panics with it");
                    all.push(took_ns);
                    drop(all);
                    let head = format!("HTTP/1.1 {status} X\r\n{TOOK}{took_ns}\r\n");
                    stream.write_all(format!("{head}Content-Length: 2\r\n\r\nok").as_bytes())
                }
                Reply::Raw(bytes) => stream.write_all(bytes),
                Reply::Last(bytes) => {
                    // A client that is gone misses no answer.
                    drop(stream.write_all(bytes));
                    return;
                }
                Reply::Silence => Ok(()),
            };
            if written.is_err() || self.is_over.load(Relaxed) {
                return;
            }
        }
    }
}

/// In front of how long an answer took, in nanoseconds.
const TOOK: &str = "X-Took-Ns: ";

/// Does `work` while so many clients ask a server with this script, each one request after the
/// other. Returns how much longer each of them waited than the server took, sorted. They are plain
/// threads that block: their times are the machine's.
pub(crate) fn excesses<T>(
    script: impl Fn(u64) -> Reply + Send + Sync + 'static,
    clients: usize,
    work: impl FnOnce() -> T,
) -> (T, Vec<u64>) {
    let server = FakeServer::start(script);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (address, is_over) = (server.address, &is_over);
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("the server accepts");
                    let mut excesses = Vec::new();
                    while !is_over.load(Relaxed) {
                        excesses.push(excess(&mut stream));
                    }
                    excesses
                })
            })
            .collect();
        let result = work();
        is_over.store(true, Relaxed);
        let ended = clients.into_iter().map(|client| client.join());
        let mut all: Vec<u64> = ended
            .flat_map(|excesses| excesses.expect("a client does not panic"))
            .collect();
        all.sort_unstable();
        (result, all)
    })
}

fn excess(stream: &mut TcpStream) -> u64 {
    let began = Instant::now();
    stream
        .write_all(b"GET /control HTTP/1.1\r\n\r\n")
        .expect("the server reads");
    let mut held = Vec::new();
    while !held.ends_with(b"\r\n\r\nok") {
        let mut buffer = [0; 1024];
        let len = stream.read(&mut buffer).expect("the server answers");
        assert!(len > 0, "the server is there until all is over");
        held.extend_from_slice(&buffer[..len]);
    }
    let waited_ns = began.elapsed().as_nanos() as u64;
    let text = String::from_utf8(held).expect("the answer is ASCII");
    let took_ns = text.lines().find_map(|line| line.strip_prefix(TOOK));
    let took_ns: u64 = took_ns
        .and_then(|took_ns| took_ns.parse().ok())
        .expect("the answer says what it took");
    waited_ns - took_ns
}

/// Sleeps, and spins the end: a sleep alone is late by up to a tenth of a millisecond.
fn wait_until(end: Instant) {
    let spin = Duration::from_micros(80);
    let now = Instant::now();
    if end > now + spin {
        std::thread::sleep(end - now - spin);
    }
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// The first whole request: its head, and its length.
fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| {
            length.parse().expect("our own driver sends numbers")
        });
    (bytes.len() >= end + length).then_some((head, end + length))
}

/// A short run of `get` at `rate` against `url`. No wait is given up: a claim of a test about an
/// answer holds however late the machine lets it be.
pub(crate) fn setup(url: String, rate: f64, duration_s: f64) -> Setup {
    Setup {
        urls: vec![url],
        admins: Vec::new(),
        tls: None,
        style: RequestStyle::default(),
        workload: Workload::named("get", 1000, 1).expect("it is a name"),
        workload_name: "get".to_owned(),
        ammo: None,
        replay_speed: None,
        shape: Shape::Constant(rate),
        spacing: Spacing::Even,
        mode: Mode::Open,
        duration_s,
        warmup_s: 0.0,
        preloads: false,
        connections: 64,
        threads: 1,
        pipeline: 1,
        timeout: Duration::from_secs(60),
        redirects: Redirects::Fail,
        idle: Idle::Sleep,
        find_max: None,
        overload: Vec::new(),
        profiles: Vec::new(),
        command: Vec::new(),
        tool: Tool::default(),
    }
}

/// Runs it.
pub(crate) fn run(setup: &Setup) -> Run {
    experiment::run(setup, &StopFlag::default(), &mut |_| {}).expect("the target is there")
}
