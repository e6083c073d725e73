//! Servers as processes: a node of the release binary, or any other program that listens.
//!
//! ```text
//! Server::node     reads "listening on URL admin on URL"; ports are the system's choice
//! Server::other    waits until the port answers
//! ─► freeze, thaw (SIGSTOP, SIGCONT)   clock, spent, rests (/proc/PID/task)   gone when dropped
//! ```
//!
//! Invariants
//! 1. The process is gone when its `Server` is dropped, frozen or not.
//! 2. Waiting for a port ends: after `PATIENCE`, or with the process.
//!
//! Not here: what is asked of them (`run.rs`, `foreign.rs`).
//! See: docs/cli.md.

use super::place::{Place, Side};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the threads of a server had spent at some moment. Threads come and go: a sum would go back.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    threads: BTreeMap<PathBuf, (String, f64)>,
}

/// A running server.
pub(super) struct Server {
    child: Child,
    /// Base of its data port.
    pub(super) url: String,
    /// Base of its admin port; empty when it has none.
    pub(super) admin: String,
}

impl Server {
    /// A node on `data`, with more options, on a port that the system chooses.
    pub(super) fn node(place: &Place, data: &Path, options: &[&str]) -> Result<Server, String> {
        Server::node_at(place, data, "127.0.0.1:0", options)
    }

    /// A node that listens on `address`: a member of a cluster, whose address the others know.
    pub(super) fn node_at(
        place: &Place,
        data: &Path,
        address: &str,
        options: &[&str],
    ) -> Result<Server, String> {
        Server::node_of(place, &place.binary, data, address, options)
    }

    /// The same of another build.
    pub(super) fn node_of(
        place: &Place,
        binary: &Path,
        data: &Path,
        address: &str,
        options: &[&str],
    ) -> Result<Server, String> {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--admin", "127.0.0.1:0", "--listen", address])
            .arg("--data")
            .arg(data)
            .args(options);
        Server::telling(place, &mut command, data)
    }

    /// A program that tells its addresses as `dendra serve` does; what else it says goes into a file beside `data`.
    pub(super) fn telling(
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
    pub(super) fn other(
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

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it is, or lets it go on.
    pub(super) fn freeze(&self) -> Result<(), String> {
        signal(&self.child, Signal::STOP)
    }

    /// After [`Server::freeze`].
    pub(super) fn thaw(&self) -> Result<(), String> {
        signal(&self.child, Signal::CONT)
    }

    /// CPU seconds of each of its threads so far.
    pub(super) fn clock(&self) -> Clock {
        let of = |thread: PathBuf| {
            // A thread that ended meanwhile has no files.
            let name = fs::read_to_string(thread.join("comm")).ok()?;
            let spent = fs::read_to_string(thread.join("schedstat")).ok()?;
            let ns: f64 = spent.split_ascii_whitespace().next()?.parse().ok()?;
            let is_number = |c: char| c.is_ascii_digit() || c == '-';
            let name = name.trim().trim_end_matches(is_number).to_owned();
            Some((thread, (name, ns / 1e9)))
        };
        Clock {
            threads: threads(self.id()).into_iter().filter_map(of).collect(),
        }
    }

    /// CPU seconds since then of the threads that there are now, by name, numbers at its end left out.
    pub(super) fn spent(&self, since: &Clock) -> BTreeMap<String, f64> {
        let mut by_name = BTreeMap::new();
        for (thread, (name, now_s)) in self.clock().threads {
            let before_s = since.threads.get(&thread).map_or(0.0, |(_, s)| *s);
            *by_name.entry(name).or_default() += now_s - before_s;
        }
        by_name
    }

    /// The same of all of them.
    pub(super) fn cpu_s(&self, since: &Clock) -> f64 {
        self.spent(since).values().sum()
    }

    /// The most that was resident since it started or since [`Server::forget_peak`], bytes.
    pub(super) fn peak_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.id());
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let kib = text.lines().find_map(|line| {
            let rest = line.strip_prefix("VmHWM:")?;
            rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        kib.map(|kib| kib * 1024)
            .ok_or_else(|| format!("{path} has no VmHWM"))
    }

    /// What was resident before now does not count for the peak any more.
    pub(super) fn forget_peak(&self) -> Result<(), String> {
        let path = format!("/proc/{}/clear_refs", self.id());
        fs::write(&path, "5").map_err(|e| format!("{path}: {e}"))
    }

    /// How often its threads gave up a core because they had nothing to do.
    pub(super) fn rests(&self) -> f64 {
        sum_of_threads(self.id(), "status", |text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<f64>().ok()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only when it is gone already, which is what is asked for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal to a child that was not waited for yet.
pub(super) fn signal(child: &Child, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(child), signal)
        .map_err(|e| format!("a signal could not be sent ({e})"))
}

/// Folders of the threads of a process.
fn threads(id: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{id}/task"));
    let paths = entries.map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    paths.unwrap_or_default()
}

fn sum_of_threads(id: u32, file: &str, number: impl Fn(&str) -> Option<f64>) -> f64 {
    // A thread that ended meanwhile has no file.
    let of = |thread: PathBuf| number(&fs::read_to_string(thread.join(file)).ok()?);
    threads(id).into_iter().filter_map(of).sum()
}

/// A port of the loopback that nobody has now.
pub(super) fn free_port() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port ({e})"))?;
    listener.local_addr().map_err(|e| e.to_string())
}
