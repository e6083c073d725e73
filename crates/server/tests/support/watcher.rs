//! A client of a watch: its events one by one, and its last token.
//!
//! Not here: which events are expected (`tests/watch.rs`).

use super::{Answer, Client};
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// An open watch.
pub(crate) struct Watcher {
    pub(crate) client: Client,
    came: VecDeque<Value>,
    pub(crate) token: Option<String>,
}

impl Watcher {
    /// Opens `GET /v0/watch?query`, or gives the answer that refuses it.
    pub(crate) fn ask(addr: SocketAddr, query: &str, lines: &str) -> Result<Watcher, Answer> {
        Watcher::over(Client::connect(addr), query, lines)
    }

    /// Opens it on a connection.
    pub(crate) fn over(mut client: Client, query: &str, lines: &str) -> Result<Watcher, Answer> {
        let head = format!("GET /v0/watch?{query} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
        client.send(head.as_bytes());
        let answer = client.read_head();
        if answer.status != 200 {
            let len = answer.header("Content-Length").expect("a refusal is short");
            let body = client.exactly(len.parse().expect("a number"));
            return Err(Answer { body, ..answer });
        }
        assert_eq!(answer.header("Cache-Control"), Some("no-store"));
        assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"));
        Ok(Watcher {
            client,
            came: VecDeque::new(),
            token: None,
        })
    }

    /// Opens it on a node that serves it.
    pub(crate) fn open(addr: SocketAddr, query: &str) -> Watcher {
        Watcher::ask(addr, query, "").unwrap_or_else(|answer| panic!("{query}: {answer:?}"))
    }

    /// The next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        while self.came.is_empty() {
            let Some(chunk) = self.client.read_chunk() else {
                assert_eq!(self.client.exactly(2), b"\r\n", "there is no trailer");
                return None;
            };
            let lines = chunk.split_inclusive(|&b| b == b'\n');
            let lines = lines.filter(|line| line.starts_with(b"{") || line.starts_with(b"data: "));
            let object = |line: &[u8]| {
                let line = line.strip_prefix(b"data: ").unwrap_or(line);
                serde_json::from_slice(line).expect("a line is an object")
            };
            self.came.extend(lines.map(object));
        }
        let event = self.came.pop_front()?;
        if event["event"] == "reset" {
            self.token = None;
        }
        if let Some(token) = event["token"].as_str() {
            self.token = Some(token.to_owned());
        }
        Some(event)
    }

    /// The kind, the key and the value of the next event that is no heartbeat.
    pub(crate) fn shown(&mut self) -> (String, String, String) {
        let event = loop {
            let event = self.next().expect("the watch goes on");
            if event["event"] != "heartbeat" {
                break event;
            }
        };
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        (text("event"), text("key"), text("value"))
    }

    /// Asserts kind, key and value of the next events.
    pub(crate) fn expect(&mut self, events: &[(&str, &str, &str)]) {
        for (kind, key, value) in events {
            let wanted = (kind.to_string(), key.to_string(), value.to_string());
            assert_eq!(self.shown(), wanted);
        }
    }

    /// Reads on until there is a token that covers all that was shown.
    pub(crate) fn token(&mut self) -> String {
        while self.token.is_none() || !self.came.is_empty() {
            self.next().expect("the watch goes on");
        }
        self.token.clone().expect("there is one")
    }
}
