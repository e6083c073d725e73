//! A client on one connection, one request at a time, that shows answers as they came.
//!
//! ```text
//! Client::open(address) ─► ask("PUT", "k", &["If-Match: …"], b"v") ─► Answer { status, etag, receipt, body }
//! ```
//!
//! Invariants
//! 1. A request has a deadline of a minute, unless a header says another one, and the client waits
//!    longer than that. So no request fails because the machine is busy.
//! 2. A connection that breaks is `None`, never a panic: tests kill nodes.
//!
//! Not here: many clients at once (`clients.rs`), the CLI's own client (`../../src/client/`).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest wait for an event that comes for certain: after that the test has hung. A repair
/// begins 65 s after the damage was seen, and a busy machine needs a multiple of the rest.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    /// The receipt, or the trailer of a scan.
    pub(crate) receipt: String,
    /// Records of a scan are joined by line feeds.
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            reader: BufReader::new(stream),
        })
    }

    /// One key; `None` when the connection broke before the answer was whole.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        id: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<Answer> {
        let target = format!("/v0/entity?id={id}");
        self.request(method, &target, headers, body)
    }

    /// Any target.
    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<Answer> {
        self.send(method, target, headers, body)?;
        self.read()
    }

    /// The first half of a request: its answer is still to be read.
    pub(crate) fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<()> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
        let has_deadline = |header: &&str| header.starts_with("Dendra-Timeout-Ms");
        if !headers.iter().any(has_deadline) {
            head.push_str("Dendra-Timeout-Ms: 60000\r\n");
        }
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        if method != "GET" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.reader.get_mut().write_all(&bytes).ok()
    }

    /// Is there a part of an answer already?
    pub(crate) fn has_answer(&mut self) -> bool {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true).expect("a socket can be asked");
        let seen = stream.peek(&mut [0; 1]).is_ok();
        stream.set_nonblocking(false).expect("and waited for");
        seen || !self.reader.buffer().is_empty()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line).ok()?;
        (length > 0).then(|| line.trim_end().to_owned())
    }

    /// The receipt in the head of an answer, for a scan whose trailer takes its place: the
    /// connection is of no use then.
    pub(crate) fn head_receipt(mut self) -> Option<String> {
        loop {
            let line = self.line()?;
            if let Some(receipt) = line.strip_prefix("Dendra-Receipt: ") {
                return Some(receipt.to_owned());
            }
        }
    }

    /// The second half.
    pub(crate) fn read(&mut self) -> Option<Answer> {
        let first = self.line()?;
        let mut answer = Answer {
            status: first.get(9..12)?.parse().ok()?,
            etag: None,
            receipt: String::new(),
            body: Vec::new(),
        };
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                break;
            };
            // The admin plane writes names in lower case.
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "transfer-encoding" => is_chunked = true,
                "etag" => answer.etag = Some(value.to_owned()),
                "dendra-receipt" => value.clone_into(&mut answer.receipt),
                _ => {}
            }
        }
        if !is_chunked {
            answer.body = vec![0; length];
            self.reader.read_exact(&mut answer.body).ok()?;
            return Some(answer);
        }
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).ok()?;
            if size == 0 {
                break;
            }
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            answer.body.extend_from_slice(&chunk[..size]);
            answer.body.push(b'\n');
        }
        loop {
            match self.line()?.as_str() {
                "" => return Some(answer),
                trailer => trailer.clone_into(&mut answer.receipt),
            }
        }
    }
}

/// Waits until the node at this admin port serves clients: a member listens before it has met the
/// others.
pub(crate) fn wait_until_ready(admin: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Client::open(admin).expect("it listens");
        let told = client
            .request("GET", "/readyz", &[], b"")
            .expect("an answer");
        if told.status == 200 {
            return;
        }
        let why = String::from_utf8_lossy(&told.body).into_owned();
        assert!(Instant::now() < deadline, "it is never ready: {why}");
        crate::support::rest();
    }
}
