//! `make run` as a person types it: does it serve?
//!
//! ```text
//! make run DATA=target/make-run OPTIONS=… ─► "listening on http://…" ─► PUT, GET ─► SIGTERM ─► "stopped"
//! ```
//!
//! Invariants
//! 1. The command is the one of README's first screen; only the folder and the ports are others.
//! 2. Its whole process group is gone at the end, in each case.
//!
//! Not here: the work of a node (`demo`, the tests of the crates).
//! See: README.md.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A line that the node is to say, or an answer, comes within this time. The binary is built
/// already.
const PATIENCE: Duration = Duration::from_secs(120);

/// `make`, and the processes that it started.
struct Group(Child);

fn signal(signal: &str, to: &str) -> bool {
    let sent = Command::new("kill").args([signal, "--", to]).status();
    sent.is_ok_and(|status| status.success())
}

impl Drop for Group {
    fn drop(&mut self) {
        signal("-KILL", &format!("-{}", self.0.id()));
        // It cannot be waited for only when that was done before.
        drop(self.0.wait());
    }
}

/// Runs it once: why it does not serve, if so.
pub(crate) fn serves(root: &Path) -> Result<(), String> {
    let data = root.join("target/make-run");
    match fs::remove_dir_all(&data) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {e}", data.display()));
        }
        _ => {}
    }
    let mut make = Command::new("make")
        .args(["run", &format!("DATA={}", data.display())])
        .arg("OPTIONS=--listen 127.0.0.1:0 --admin 127.0.0.1:0")
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| format!("make does not start: {e}"))?;
    let stderr = make.stderr.take().ok_or("stderr is piped")?;
    let group = Group(make);
    let lines = lines_of(stderr);
    let listening = wait_for(&lines, "listening on http://")?;
    let host = listening.split_whitespace().next().unwrap_or_default();
    ask(host, "PUT", "hello", " 201 ")?;
    ask(host, "GET", "", "\r\n\r\nhello")?;
    // make hands it on; the whole group would give the node two of them.
    if !signal("-TERM", &group.0.id().to_string()) {
        return Err("it cannot be told to stop".to_owned());
    }
    wait_for(&lines, "\"message\":\"stopped\"")?;
    // To the end of their output: then the node and make are gone, and the folder is free.
    while lines.recv_timeout(PATIENCE).is_ok() {}
    fs::remove_dir_all(&data).map_err(|e| format!("{}: {e}", data.display()))
}

/// Lines of the process, as they come, until it ends.
fn lines_of(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The rest of the first line that has `wanted`.
fn wait_for(lines: &Receiver<String>, wanted: &str) -> Result<String, String> {
    let mut said = String::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        if let Some((_, rest)) = line.split_once(wanted) {
            return Ok(rest.to_owned());
        }
        said.push_str(&line);
        said.push('\n');
    }
    Err(format!("it never said {wanted:?}, but:\n{said}"))
}

/// One request on a connection of its own; the answer must have `wanted` in it.
fn ask(host: &str, method: &str, body: &str, wanted: &str) -> Result<(), String> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(
            stream,
            "{method} /v0/entity?id=greeting HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|e| format!("{method} at {host}: {e}"))?;
    if answer.contains(wanted) {
        Ok(())
    } else {
        Err(format!("{method} at {host} was answered by {answer:?}"))
    }
}
