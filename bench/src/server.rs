//! The servers under test as child processes: started on one core, found, stopped.
//!
//! ```text
//! dendra, echo, hyper   bind port 0 and say `listening on http://ADDR …` on stderr
//! nginx, redis          get a free port from us and are ready when it accepts
//! ```
//!
//! Invariants
//! 1. A server and all its threads run on the server's core: it inherits the affinity that the
//!    calling thread takes on for the moment of the start.
//! 2. A server never outlives its `Server`.
//! 3. stderr of every server is read to its end, so none blocks on a full pipe; its last lines are
//!    in the error when something goes wrong.
//!
//! Not here: what is asked of them (`rows/`), options of a run (`main.rs`).
//! See: docs/lab/README.md.

use crate::Result;
use crate::protocol::Protocol;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
const LOG_LINES_KEPT: usize = 20;

/// A running server.
pub(crate) struct Server {
    /// How it is called in tables.
    pub(crate) name: &'static str,
    /// What it speaks.
    pub(crate) protocol: Protocol,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    child: Child,
    log: Log,
}

type Log = Arc<Mutex<VecDeque<String>>>;

/// Pins the calling thread to `core`.
pub(crate) fn pin_to(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot run on core {core}: {error}").into())
}

/// Cores this process may use.
pub(crate) fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Starts `command` on `core`; the calling thread is back where it was afterwards.
fn spawn_on(core: usize, command: &mut Command) -> Result<Child> {
    let before = sched_getaffinity(None)?;
    pin_to(core)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    sched_setaffinity(None, &before)?;
    child.map_err(|error| format!("{}: {error}", command.get_program().display()).into())
}

/// Reads stderr in a thread of its own; the first address announced there goes to the receiver.
fn follow(child: &mut Child, log: &Log) -> Result<mpsc::Receiver<SocketAddr>> {
    let stderr = child.stderr.take().ok_or("stderr was not piped")?;
    let (found, address) = mpsc::sync_channel(1);
    let log = Arc::clone(log);
    std::thread::Builder::new()
        .name("stderr".to_owned())
        .spawn(move || {
            for line in BufReader::new(stderr).lines() {
                // A server that prints something other than text must still be read to its end.
                let line = line.unwrap_or_else(|error| format!("({error})"));
                if let Some(at) = announced(&line) {
                    // Only the first announcement is awaited.
                    let _ = found.try_send(at);
                }
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                if log.len() == LOG_LINES_KEPT {
                    log.pop_front();
                }
                log.push_back(line);
            }
        })?;
    Ok(address)
}

/// The address in a line `… listening on http://ADDR …`.
fn announced(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http://")?;
    rest.split(|c: char| c.is_whitespace() || c == '/' || c == ',')
        .next()?
        .parse()
        .ok()
}

impl Server {
    /// One of the yardsticks in this very binary, with its subcommand and arguments.
    pub(crate) fn own(name: &'static str, core: usize, arguments: &[&str]) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Server::announcing(name, core, &mut command)
    }

    /// `dendra serve` on the data folder `data`.
    pub(crate) fn dendra(
        name: &'static str,
        core: usize,
        binary: &Path,
        data: &Path,
        options: &[&str],
    ) -> Result<Server> {
        let mut command = Command::new(binary);
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--data",
        ]);
        command.arg(data).args(options);
        Server::announcing(name, core, &mut command)
    }

    fn announcing(name: &'static str, core: usize, command: &mut Command) -> Result<Server> {
        let mut child = spawn_on(core, command)?;
        let log = Log::default();
        let found = follow(&mut child, &log)?;
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server {
            name,
            protocol: Protocol::Http,
            address: unknown,
            child,
            log,
        };
        server.address = found
            .recv_timeout(START_MAX)
            .map_err(|_| server.failure("did not start"))?;
        Ok(server)
    }

    /// nginx with a static answer: `return STATUS "body"`.
    pub(crate) fn nginx(
        name: &'static str,
        core: usize,
        folder: &Path,
        status: u16,
        body: &str,
    ) -> Result<Server> {
        fs::create_dir_all(folder)?;
        let port = free_port()?;
        let config = folder.join("nginx.conf");
        fs::write(&config, nginx_config(folder, port, status, body))?;
        let mut command = Command::new(find("nginx")?);
        command
            .arg("-e")
            .arg(folder.join("error.log"))
            .arg("-c")
            .arg(&config);
        Server::accepting(name, Protocol::Http, core, port, &mut command)
    }

    /// redis that answers a write after `fdatasync`.
    pub(crate) fn redis(name: &'static str, core: usize, folder: &Path) -> Result<Server> {
        fs::create_dir_all(folder)?;
        let port = free_port()?;
        let mut command = Command::new(find("redis-server")?);
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
        ]);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--dir"]);
        command.arg(folder);
        Server::accepting(name, Protocol::Resp, core, port, &mut command)
    }

    fn accepting(
        name: &'static str,
        protocol: Protocol,
        core: usize,
        port: u16,
        command: &mut Command,
    ) -> Result<Server> {
        let mut child = spawn_on(core, command)?;
        let log = Log::default();
        follow(&mut child, &log)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server {
            name,
            protocol,
            address,
            child,
            log,
        };
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            if server.child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(server.failure("did not start"));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end (SIGTERM) and waits.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM)?;
        let deadline = Instant::now() + STOP_MAX;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(&format!("ended with {status}"))),
                None if Instant::now() > deadline => return Err(self.failure("did not end")),
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// An error that says what the server last printed.
    pub(crate) fn failure(&self, what: &str) -> Box<dyn std::error::Error> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> = log.iter().map(String::as_str).collect();
        format!("{} {what}; its last lines:\n{}", self.name, last.join("\n")).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process has ended already, which is what is wanted here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program of a Debian package is, or the sentence that says how to get it.
pub(crate) fn find(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            format!("{program} is not installed: `make yardsticks-setup` installs it").into()
        })
}

/// A port that was free a moment ago, for programs that cannot choose one themselves.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn nginx_config(folder: &Path, port: u16, status: u16, body: &str) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 1;
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    default_type application/octet-stream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return {status} \"{body}\"; }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_address_is_the_first_one() {
        let line = "listening on http://127.0.0.1:8080 admin on http://127.0.0.1:9080";
        assert_eq!(announced(line), "127.0.0.1:8080".parse().ok());
        assert_eq!(
            announced("INFO listening on http://127.0.0.1:1/"),
            "127.0.0.1:1".parse().ok()
        );
        assert_eq!(announced("starting"), None);
    }

    #[test]
    fn a_missing_program_names_the_way_to_get_it() {
        let error = find("no-such-program")
            .expect_err("it does not exist")
            .to_string();
        assert!(error.contains("make yardsticks-setup"), "{error}");
    }
}
