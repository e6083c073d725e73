//! What `dendra dev` shows: addresses once, then a line whenever something changed.
//!
//! ```text
//! node 1 http://127.0.0.1:40001  admin http://127.0.0.1:40002  up       1204 ops/s
//! ```
//!
//! Invariants
//! 1. Everything goes to stderr; a node that does not answer costs at most `ASK_TIMEOUT` a look.
//!
//! Not here: the page with charts (the node's own dashboard on its admin port).

use super::proxy::{Fault, Faults};
use super::{Member, State};
use crate::console::Console;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A page of numbers on this machine is there at once, or its node is in trouble.
const ASK_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Screen {
    is_quiet: bool,
    counted: Vec<Option<(u64, Instant)>>,
    shown: String,
}

impl Screen {
    pub(super) fn new(console: Console) -> Screen {
        Screen {
            is_quiet: console.is_quiet,
            counted: Vec::new(),
            shown: String::new(),
        }
    }

    fn say(&self, line: &str) {
        if !self.is_quiet {
            eprintln!("{line}");
        }
    }

    /// Addresses, and what can be done.
    pub(super) fn hello(&mut self, members: &[Member], folder: &Path) {
        self.counted = vec![None; members.len()];
        for (index, member) in members.iter().enumerate() {
            self.say(&format!(
                "node {}  http://{}  admin http://{}",
                index + 1,
                member.listen,
                member.admin
            ));
        }
        self.say(&format!("data and logs in {}", folder.display()));
        self.say("in another terminal: dendra dev kill 2 | start 2 | pause 1 | resume 1 | cut 1 2 | heal");
        self.say("Ctrl-C ends the cluster");
    }

    /// One line about all nodes, when it differs from the last one.
    pub(super) fn draw(&mut self, members: &[Member], faults: &Faults) {
        let mut parts = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let state = match member.state {
                State::Up => {
                    let rate = self.rate(index, member.admin);
                    rate.map_or("starting".to_owned(), |rate| format!("up {rate} ops/s"))
                }
                State::Paused => "paused".to_owned(),
                State::Down => "down".to_owned(),
            };
            parts.push(format!("{}: {state}", index + 1));
        }
        let cuts = (0..members.len())
            .flat_map(|a| (a + 1..members.len()).map(move |b| (a, b)))
            .filter_map(|(a, b)| {
                let word = match faults.of(a, b) {
                    Fault::None => return None,
                    Fault::Delay(_) => "slow",
                    Fault::Stall => "stalled",
                    Fault::Cut => "cut",
                };
                Some(format!("{}-{} {word}", a + 1, b + 1))
            });
        parts.extend(cuts);
        let line = parts.join("   ");
        if line != self.shown {
            self.say(&line);
            self.shown = line;
        }
    }

    /// Answers a second since the last look.
    fn rate(&mut self, index: usize, admin: SocketAddr) -> Option<u64> {
        let total = requests(admin)?;
        let now = Instant::now();
        let before = self.counted[index].replace((total, now));
        let (count, at) = before?;
        let seconds = now.duration_since(at).as_secs_f64().max(0.1);
        Some((total.saturating_sub(count) as f64 / seconds) as u64)
    }
}

/// All requests that a node has answered.
fn requests(admin: SocketAddr) -> Option<u64> {
    let mut stream = TcpStream::connect_timeout(&admin, ASK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(ASK_TIMEOUT)).ok()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: dev\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page).ok()?;
    let page = String::from_utf8_lossy(&page);
    let rows = page.lines().filter(|line| {
        line.starts_with("dendra_requests_total{") && !line.contains("op=\"status\"")
    });
    let mut total = 0.0;
    for row in rows {
        total += row.rsplit(' ').next()?.parse::<f64>().ok()?;
    }
    Some(total as u64)
}
