//! Fake servers whose behaviour is known exactly.
//!
//! ```text
//! FakeServer::start(|n| Reply::After(delay))     answer n of the whole server leaves `delay` later
//! freeze_at / freeze_for                         for that long nothing is read or written
//! ```
//!
//! Invariants
//! 1. Ports are the system's choice; a server ends with its value.
//!
//! Not here: the cases (`../*.rs`).

#![allow(dead_code, reason = "each test binary uses its own part")]

use dendra_base::Workload;
use dendra_lab::driver::Stop;
use dendra_lab::experiment::{self, Setup};
use dendra_lab::run::{Mode, Run, Tool};
use dendra_lab::schedule::{Shape, Spacing};
use dendra_lab::template::Style;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a fake server does with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Answers with this status after this long.
    After(Duration, u16),
    /// Sends these bytes.
    Raw(&'static [u8]),
    /// Never answers.
    Silence,
}

type Script = dyn Fn(u64) -> Reply + Send + Sync;

/// A server with a thread for each connection: exact delays, no queue between connections.
pub struct FakeServer {
    pub address: SocketAddr,
    /// Request lines in the order in which they came.
    pub lines: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
}

impl FakeServer {
    /// A server that answers request number `n` as `script(n)` says.
    pub fn start(script: impl Fn(u64) -> Reply + Send + Sync + 'static) -> FakeServer {
        FakeServer::start_frozen(script, Duration::MAX, Duration::ZERO)
    }

    /// The same, but from `freeze_at` after the first request on, it stands still for `freeze_for`.
    pub fn start_frozen(
        script: impl Fn(u64) -> Reply + Send + Sync + 'static,
        freeze_at: Duration,
        freeze_for: Duration,
    ) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            script: Box::new(script),
            count: AtomicU64::new(0),
            lines: lines.clone(),
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
            lines,
            is_over,
        }
    }

    pub fn url(&self) -> String {
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
    lines: Arc<Mutex<Vec<String>>>,
    first: Mutex<Option<Instant>>,
    freeze: (Duration, Duration),
    is_over: Arc<AtomicBool>,
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
            let Some((line, len)) = request(&held) else {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(len) => held.extend_from_slice(&buffer[..len]),
                }
                continue;
            };
            let came = Instant::now();
            held.drain(..len);
            self.lines.lock().expect("nobody panics with it").push(line);
            let reply = (self.script)(self.count.fetch_add(1, Relaxed));
            self.stand_still();
            let written = match reply {
                Reply::After(delay, status) => {
                    if !delay.is_zero() {
                        wait_until(came + delay);
                    }
                    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                    stream.write_all(text.as_bytes())
                }
                Reply::Raw(bytes) => stream.write_all(bytes),
                Reply::Silence => Ok(()),
            };
            if written.is_err() || self.is_over.load(Relaxed) {
                return;
            }
        }
    }
}

/// How late this machine woke a thread that slept, at worst, since it was started: what every time that is
/// measured meanwhile may be longer by, once for each thread that takes part in it.
pub struct Canary {
    worst_ns: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Canary {
    pub fn start() -> Canary {
        let canary = Canary {
            worst_ns: Arc::new(AtomicU64::new(0)),
            is_over: Arc::new(AtomicBool::new(false)),
        };
        let (worst_ns, is_over) = (canary.worst_ns.clone(), canary.is_over.clone());
        std::thread::spawn(move || {
            let nap = Duration::from_millis(1);
            while !is_over.load(Relaxed) {
                let before = Instant::now();
                std::thread::sleep(nap);
                let late = before.elapsed().saturating_sub(nap);
                worst_ns.fetch_max(late.as_nanos() as u64, Relaxed);
            }
        });
        canary
    }

    /// Allowance for a time that four threads had a hand in, milliseconds: the generator twice, the server
    /// twice.
    pub fn allowance_ms(&self) -> f64 {
        4.0 * self.worst_ns.load(Relaxed) as f64 / 1e6
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
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

/// The first whole request: its line, and its length.
fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .map_or(0, |length| {
            length.parse().expect("our own driver sends numbers")
        });
    let line = head.lines().next()?.to_owned();
    (bytes.len() >= end + length).then_some((line, end + length))
}

/// A short run of `get` at `rate` against `url`.
pub fn setup(url: String, rate: f64, duration_s: f64) -> Setup {
    Setup {
        urls: vec![url],
        admins: Vec::new(),
        style: Style::default(),
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
        timeout: Duration::from_secs(5),
        find_max: None,
        overload: Vec::new(),
        profiles: Vec::new(),
        command: Vec::new(),
        tool: Tool::default(),
    }
}

/// Runs it.
pub fn run(setup: &Setup) -> Run {
    experiment::run(setup, &Stop::default(), &mut |_| {}).expect("the target is there")
}
