//! Runs the real binary, and a scripted node with the answers of a test.
//!
//! ```text
//! Dendra::new(["get", "k"]).url(..).run() ─► Run { code, stdout, stderr }
//! ScriptedNode::start(|request, n| Reply) ─► url(), requests()
//! ```
//!
//! Invariants
//! 1. No variable of the caller's environment that begins with `DENDRA_` reaches the binary.
//! 2. A process that starts once takes a port of the system's choice; one that must have the same
//!    port again takes one of `free_port`. No thread waits by sleeping.
//!
//! Not here: the cases (`../*.rs`); a client without the CLI (`http.rs`), three nodes
//! (`cluster.rs`), backups (`backups.rs`), processes that come and go (`town.rs`), many clients and
//! the checkers (`clients.rs`). See: docs/cli.md.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod backups;
pub(crate) mod bent_clock;
pub(crate) mod bucket;
pub(crate) mod cassandra;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod dev;
pub(crate) mod drawn;
pub(crate) mod etcd;
pub(crate) mod front;
pub(crate) mod http;
pub(crate) mod mount;
pub(crate) mod moves;
#[path = "../../src/dev/proxy.rs"]
pub(crate) mod proxy;
pub(crate) mod town;

use dendra_engine::vfs::os::OsVfs;
use dendra_engine::{Engine, Identity};
use dendra_server::Settings;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const REST: Duration = Duration::from_millis(5);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit code; a signal is `None`.
    pub(crate) code: Option<i32>,
    /// All of stdout.
    pub(crate) stdout: Vec<u8>,
    /// All of stderr, as text.
    pub(crate) stderr: String,
}

/// Between two looks of a wait: the processes that it waits for need the processor.
pub(crate) fn rest() {
    std::thread::park_timeout(REST);
}

/// The store of a member that is stopped. A process that another test starts at this moment has a
/// copy of the lock until it runs its own program.
pub(crate) fn store_of_stopped(folder: &Path) -> Engine {
    let deadline = Instant::now() + http::PATIENCE;
    let unused = Identity { node: 0, origin: 0 };
    loop {
        let vfs = Arc::new(OsVfs::open(folder).expect("the folder is there"));
        let options = Settings::new(folder).engine_options();
        match Engine::open(vfs, options, unused) {
            Ok(engine) => return engine,
            Err(error) => {
                let is_held = error.to_string().contains("in use by another process");
                assert!(is_held && Instant::now() < deadline, "{error}");
                rest();
            }
        }
    }
}

/// A port that a process may take later, and again when it is restarted. It lies below those that
/// Linux gives to connections, so that none of these has it meanwhile.
pub(crate) fn free_port() -> (TcpListener, SocketAddr) {
    loop {
        let drawn = RandomState::new().build_hasher().finish();
        let port = 10_000 + (drawn % 22_000) as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return (listener, SocketAddr::from(([127, 0, 0, 1], port)));
        }
    }
}

/// The binary with these arguments, without the caller's options.
pub(crate) fn dendra<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dendra"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DENDRA_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Run {
    finish(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built"),
    )
}

/// Runs to the end with `input` on stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that fails before it reads closes the pipe: its exit code counts.
        drop(stdin.write_all(&input));
    });
    let run = finish(child);
    writer.join().expect("the writer does not panic");
    run
}

/// Waits for a child whose output is piped.
pub(crate) fn finish(child: Child) -> Run {
    let output = child.wait_with_output().expect("the child is ours");
    Run {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Sends a signal to a child by its name, as a person would.
pub(crate) fn signal(child: &Child, name: &str) {
    signal_process(child.id(), name);
}

/// A signal is delivered thread by thread: until the last one has stopped, the process may still
/// answer a client.
fn wait_until_stopped(pid: u32) {
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.expect("a task").path().join("stat"));
        let stat = stat.unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        stat.is_empty() || state.starts_with(['T', 't'])
    };
    let deadline = Instant::now() + http::PATIENCE;
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).expect("the child lives");
    while !tasks().all(is_stopped) {
        assert!(Instant::now() < deadline, "it does not stop");
        rest();
    }
}

/// Ends a process at once, as the kernel would.
pub(crate) fn kill_process(pid: u32) {
    signal_process(pid, "KILL");
}

/// Sends a signal: `HUP`, `KILL`. Behind `STOP` the process has stopped.
pub(crate) fn signal_process(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill is installed");
    assert!(status.success(), "the process is gone already");
    if name == "STOP" {
        wait_until_stopped(pid);
    }
}

/// Ends a child as a power loss would, and waits for its end.
pub(crate) fn kill(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// One request as the scripted node saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `PUT /v0/entity?id=k`
    pub(crate) line: String,
    /// Lower-case names.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The way in which the scripted node treats a request.
pub(crate) struct Reply {
    /// Written as they are.
    pub(crate) bytes: Vec<u8>,
    /// Then the connection is closed.
    pub(crate) closes: bool,
}

/// A whole answer on a kept connection.
pub(crate) fn answer(status: &str, headers: &[&str], body: &[u8]) -> Reply {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    Reply {
        bytes,
        closes: false,
    }
}

/// A listener that answers by script, one thread per connection.
pub(crate) struct ScriptedNode {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl ScriptedNode {
    /// `script` gets each request and how many came before it.
    pub(crate) fn start(
        script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> ScriptedNode {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&seen));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                std::thread::spawn(move || serve(socket, &log, &*script));
            }
        });
        ScriptedNode { address, seen }
    }

    /// For `--url`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Everything that was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().expect("no holder panics").clone()
    }
}

fn serve(
    socket: TcpStream,
    log: &Mutex<Vec<Request>>,
    script: &(dyn Fn(&Request, usize) -> Reply + Send + Sync),
) {
    let mut reader = BufReader::new(socket.try_clone().expect("a second handle"));
    let mut writer = socket;
    while let Some(request) = read_request(&mut reader) {
        let before = {
            let mut log = log.lock().expect("no holder panics");
            log.push(request.clone());
            log.len() - 1
        };
        let reply = script(&request, before);
        if writer.write_all(&reply.bytes).is_err() || reply.closes {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, n)| n.parse().expect("hyper writes numbers"))];
    reader.read_exact(&mut body).ok()?;
    let line = lines[0].trim_end_matches(" HTTP/1.1").to_owned();
    Some(Request {
        line,
        headers,
        body,
    })
}

/// Reads the output of a child from now on, to its end: otherwise the pipe would fill, and the
/// child would wait for it.
pub(crate) fn read_on(mut stderr: BufReader<ChildStderr>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut rest = String::new();
        drop(stderr.read_to_string(&mut rest));
        rest
    })
}

/// A real node on a folder, on ports of the system's choice. Killed when dropped.
pub(crate) struct Node {
    child: Child,
    /// `http://…` of the data port.
    pub(crate) url: String,
    /// `http://…` of the admin port.
    pub(crate) admin: String,
    log: Option<JoinHandle<String>>,
}

impl Node {
    /// Starts `dendra serve` on `data` and waits until it listens.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Node {
        Node::start_at("127.0.0.1:0", data, flags)
    }

    /// The same, with its data port at this address.
    pub(crate) fn start_at(listen: &str, data: &Path, flags: &[&str]) -> Node {
        Node::start_on(listen, "127.0.0.1:0", data, flags)
    }

    /// The same, with its admin port at this address, too.
    pub(crate) fn start_on(listen: &str, admin: &str, data: &Path, flags: &[&str]) -> Node {
        let mut command = dendra(["serve", "--listen", listen, "--admin", admin]);
        command.arg("--data").arg(data).args(flags);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut said = String::new();
        let line = loop {
            let from = said.len();
            let read = stderr.read_line(&mut said).expect("stderr is text");
            assert!(read > 0, "the node ended: {said}");
            if said[from..].starts_with("listening on ") {
                break said[from..].trim_end().to_owned();
            }
        };
        let words: Vec<&str> = line.split(' ').collect();
        let (url, admin) = (words[2].to_owned(), words[5].to_owned());
        Node {
            child,
            url,
            admin,
            log: Some(read_on(stderr)),
        }
    }

    /// Sends a signal and waits for the end: exit code and the rest of its log.
    pub(crate) fn end(mut self, name: &str) -> (Option<i32>, String) {
        signal(&self.child, name);
        let status = self.child.wait().expect("the child is ours");
        let log = self.log.take().expect("it is taken once");
        (
            status.code(),
            log.join().expect("the reader does not panic"),
        )
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of a node that was killed.
    pub(crate) fn reap(mut self) {
        let status = self.child.wait().expect("the child is ours");
        assert_eq!(status.code(), None, "it was killed, it did not exit");
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        let address = self.url.strip_prefix("http://").expect("a URL");
        address.parse().expect("the node says where it listens")
    }

    /// Where its admin plane listens.
    pub(crate) fn admin_address(&self) -> SocketAddr {
        let address = self.admin.strip_prefix("http://").expect("a URL");
        address.parse().expect("the node says where it listens")
    }

    /// A client command against this node, whose requests have a minute: none fails because the
    /// machine is busy.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut arguments = arguments.into_iter();
        let verb = arguments.next().expect("there is a subcommand");
        let mut command = dendra([verb]);
        command.args(["--timeout-ms", "60000"]).args(arguments);
        command.env("DENDRA_URL", &self.url);
        command
    }

    /// Runs a client command to the end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Run {
        run(&mut self.command(arguments))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // After `end` it is gone already; after a failed assertion it must not stay.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
