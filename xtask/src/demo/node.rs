//! The node of the demonstration: the release binary as a process, and a client that trusts no code
//! of ours.
//!
//! ```text
//! Node::start ─► reads stderr until "listening on http://…" ─► kill (SIGKILL) | stop (SIGTERM)
//! Connection    one socket, GET and DELETE, Content-Length only
//! ```
//!
//! Invariants
//! 1. The node's ports are the system's choice; no other process is met by mistake.
//! 2. The process is gone when its `Node` is dropped.
//! 3. The client shares no code with the product: a common mistake cannot hide.
//!
//! Not here: the requests (`mod.rs`).
//! See: docs/api.md.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An answer that takes longer than this is a failure of the demonstration.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between a refusal and the next try: shorter than the second that `Retry-After` asks of many
/// clients.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// A running node.
pub(super) struct Node {
    child: Child,
    binary: PathBuf,
    url: String,
}

impl Node {
    /// Starts a node on `data` and waits until it listens. Its output goes to the file `log`.
    pub(super) fn start(binary: &Path, data: &Path, log: &Path) -> Result<Node, String> {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(|e| format!("{}: {e}", log.display()))?;
        let mut child = Command::new(binary)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", binary.display()))?;
        let mut stderr = BufReader::new(child.stderr.take().ok_or("stderr is piped")?);
        let mut said = String::new();
        let url = loop {
            let mut line = String::new();
            if stderr.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
                drop(child.wait());
                return Err(format!("the node did not start: {said}"));
            }
            if let Some(rest) = line.strip_prefix("listening on ") {
                break rest
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
            }
            said.push_str(&line);
        };
        // Read on, or the node would wait for room in the pipe.
        std::thread::spawn(move || {
            drop(log.write_all(said.as_bytes()));
            std::io::copy(&mut stderr, &mut log)
        });
        Ok(Node {
            child,
            binary: binary.to_owned(),
            url,
        })
    }

    /// Where its data port is.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The program it runs.
    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    /// A client command against it.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        client(&self.binary, &self.url, arguments)
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        // Fails only when it is gone already, and that is the wish.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// SIGTERM; the node must end with 0.
    pub(super) fn stop(mut self) -> Result<(), String> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        if !sent.is_ok_and(|status| status.success()) {
            return Err("kill -TERM failed".to_owned());
        }
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the node ended with {status}")),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A client command against the node at `url`.
pub(super) fn client(binary: &Path, url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .env("DENDRA_URL", url)
        .stdin(Stdio::null());
    command
}

/// One kept connection.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    host: String,
}

impl Connection {
    /// Connects to the node's data port.
    pub(super) fn open(node: &Node) -> Result<Connection, String> {
        let host = node.url.trim_start_matches("http://").to_owned();
        let open = || -> std::io::Result<TcpStream> {
            let socket = TcpStream::connect(&host)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let socket = open().map_err(|e| format!("{host}: {e}"))?;
        Ok(Connection {
            reader: BufReader::with_capacity(64 << 10, socket),
            host,
        })
    }

    /// Sends a request for one key.
    pub(super) fn send(&mut self, method: &str, key: &[u8]) -> Result<(), String> {
        let request = format!(
            "{method} /v0/entity?id={} HTTP/1.1\r\nHost: {}\r\n\r\n",
            percent(key),
            self.host
        );
        let sent = self.reader.get_mut().write_all(request.as_bytes());
        sent.map_err(|e| format!("{method} {}: {e}", key.escape_ascii()))
    }

    /// Sends a request and reads the answer: status and body. A request that was refused for the
    /// load (503: no write was applied) is asked again, until the node's time is over.
    pub(super) fn ask(&mut self, method: &str, key: &[u8]) -> Result<(u16, Vec<u8>), String> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.send(method, key)?;
            let answer = self.answer();
            let answer = answer.map_err(|e| format!("{method} {}: {e}", key.escape_ascii()))?;
            if answer.0 != 503 || Instant::now() > until {
                return Ok(answer);
            }
            std::thread::sleep(REFUSED_PAUSE);
        }
    }

    fn answer(&mut self) -> Result<(u16, Vec<u8>), String> {
        let mut line = String::new();
        let mut read_line = |reader: &mut BufReader<TcpStream>| -> Result<String, String> {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) => Err("the connection ended".to_owned()),
                Ok(_) => Ok(line.trim_end().to_owned()),
                Err(e) => Err(e.to_string()),
            }
        };
        let first = read_line(&mut self.reader)?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| format!("{first:?} is no status line"))?;
        let mut length = None;
        loop {
            let header = read_line(&mut self.reader)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            }
        }
        let length = length.ok_or("the answer has no Content-Length")?;
        let mut body = vec![0; length];
        self.reader
            .read_exact(&mut body)
            .map_err(|e| e.to_string())?;
        Ok((status, body))
    }
}

/// Every byte but letters and digits as `%XX`.
fn percent(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b if b.is_ascii_alphanumeric() => char::from(*b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

/// The bytes of a percent-encoded line. Requires: `dendra load --acked` wrote it.
pub(super) fn unpercent(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let escaped = match (first, behind) {
            (b'%', [high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                u8::from_str_radix(digits, 16).ok()
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        if escaped.is_some() {
            rest = &rest[2..];
        }
    }
    bytes
}

/// Two lower-case digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_reads_back_for_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unpercent(&percent(&bytes)), bytes);
        assert_eq!(unpercent("a/b%20c"), b"a/b c");
        assert_eq!(hex(b"\x00\xffA"), "00ff41");
    }
}
