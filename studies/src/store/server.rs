//! Servers as processes: a node of the release binary, or any other program that listens.
//!
//! ```text
//! Server::node     reads "listening on URL admin on URL"; ports are the system's choice
//! Server::other    waits until the port answers
//! ─► freeze, thaw (SIGSTOP, SIGCONT)   clock, spent (proc.rs)  gone when dropped
//! ```
//!
//! Invariants
//! 1. The process is gone when its `Server` is dropped, frozen or not.
//! 2. Waiting for a port ends: after `PATIENCE`, or with the process.
//!
//! Not here: the requests to them (`run.rs`, `foreign.rs`).
//! See: docs/cli.md.

use super::{Parts, Store};
use crate::place::{Place, Side};
use crate::proc::{self, Clock, Resident};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server that is told to end may take.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A server is at rest below this share of a core for [`REST_LOOK`].
const REST_SHARE: f64 = 0.02;
const REST_LOOK: Duration = Duration::from_secs(1);

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Base of its data port.
    pub(crate) url: String,
    /// Base of its admin port; empty when it has none.
    pub(crate) admin: String,
}

impl Server {
    /// A node on `data`, with more options, on a port that the system chooses.
    pub(crate) fn node(place: &Place, data: &Path, options: &[&str]) -> Result<Server, String> {
        Server::node_at(place, data, "127.0.0.1:0", options)
    }

    /// A node that listens on `address`: a member of a cluster, whose address the others know.
    pub(crate) fn node_at(
        place: &Place,
        data: &Path,
        address: &str,
        options: &[&str],
    ) -> Result<Server, String> {
        let mut command = Command::new(&place.binary);
        command
            .args(["serve", "--admin", "127.0.0.1:0", "--listen", address])
            .arg("--data")
            .arg(data)
            .args(options);
        Server::telling(place, &mut command, data)
    }

    /// A program that tells its addresses as `dendra serve` does; the rest of its output goes into
    /// a file beside `data`.
    pub(crate) fn telling(
        place: &Place,
        command: &mut Command,
        data: &Path,
    ) -> Result<Server, String> {
        let mut held = place.in_share(command);
        let command = held.as_mut().unwrap_or(command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = place.spawn(Side::Server, command)?;
        let mut stderr = BufReader::new(child.stderr.take().ok_or("stderr is piped")?);
        let mut said = String::new();
        let words = loop {
            let mut line = String::new();
            if stderr.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                drop(child.wait());
                return Err(format!("the node did not start: {said}"));
            }
            if let Some(rest) = line.strip_prefix("listening on ") {
                break rest.trim().to_owned();
            }
            said.push_str(&line);
        };
        let log = data.with_extension("log");
        // Read on, or the node would wait for room in the pipe.
        std::thread::spawn(move || {
            let mut file = fs::File::create(log)?;
            std::io::copy(&mut stderr, &mut file)
        });
        let (url, admin) = words
            .split_once(" admin on ")
            .unwrap_or((words.as_str(), ""));
        Ok(Server {
            child,
            url: url.to_owned(),
            admin: admin.to_owned(),
        })
    }

    /// Another program that listens on `address`.
    pub(crate) fn other(
        place: &Place,
        command: &mut Command,
        address: SocketAddr,
    ) -> Result<Server, String> {
        let named = format!("{:?}", command.get_program());
        let mut held = place.in_share(command);
        let command = held.as_mut().unwrap_or(command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Server {
            child: place.spawn(Side::Server, command)?,
            url: format!("http://{address}"),
            admin: String::new(),
        };
        let until = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{named} ended with {status} instead of listening"));
            }
            if Instant::now() > until {
                return Err(format!("{named} does not listen on {address}"));
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn freeze(&self) -> Result<(), String> {
        signal(&self.child, Signal::STOP)
    }

    /// After [`Server::freeze`].
    pub(crate) fn thaw(&self) -> Result<(), String> {
        signal(&self.child, Signal::CONT)
    }

    /// Tells it to end (SIGTERM), and waits until it has.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        signal(&self.child, Signal::TERM)?;
        let until = Instant::now() + STOP_MAX;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{} ended with {status}", self.url)),
                Ok(None) if Instant::now() > until => {
                    return Err(format!("{} does not end", self.url));
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => return Err(format!("{}: {e}", self.url)),
            }
        }
    }

    /// Waits until it has no work; how long that took, or `None` when it still works then.
    pub(crate) fn rest(&self, longest: Duration) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < longest {
            let clock = self.clock();
            std::thread::sleep(REST_LOOK);
            if self.cpu_s(&clock) < REST_SHARE * REST_LOOK.as_secs_f64() {
                return Some(start.elapsed());
            }
        }
        None
    }

    /// CPU of each of its threads so far.
    pub(crate) fn clock(&self) -> Clock {
        Clock::of(self.id())
    }

    /// CPU seconds since then by name of thread.
    pub(crate) fn spent(&self, since: &Clock) -> BTreeMap<String, f64> {
        self.clock().since(since)
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu_s(&self, since: &Clock) -> f64 {
        self.spent(since).values().sum()
    }

    /// Resident memory of the server.
    pub(crate) fn resident(&self) -> Result<Resident, String> {
        proc::resident(self.id())
    }

    /// Memory that was resident before now does not count for the peak any more.
    pub(crate) fn forget_peak(&self) -> Result<(), String> {
        proc::forget_peak(self.id())
    }
}

impl Store for Server {
    fn urls(&self) -> Vec<&str> {
        vec![&self.url]
    }

    fn parts(&self) -> Parts {
        vec![("server", vec![self.id()])]
    }

    fn stop(self: Box<Self>) -> Result<(), String> {
        Server::stop(*self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it is gone already, and that is the wish.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal to a child that was not waited for yet.
pub(crate) fn signal(child: &Child, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(child), signal)
        .map_err(|e| format!("a signal could not be sent ({e})"))
}

/// A port of the loopback that is free now.
pub(crate) fn free_port() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port ({e})"))?;
    listener.local_addr().map_err(|e| e.to_string())
}
