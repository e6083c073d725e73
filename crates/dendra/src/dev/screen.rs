//! The screen of `dendra dev`: addresses once, then a line at every change.
//!
//! ```text
//! node 1  http://127.0.0.1:40001  admin http://127.0.0.1:40002  known to the others as http://127.0.0.1:40003
//! 1: up 1204 ops/s, 3.1 kB of hints wait   2: down   3: up 1198 ops/s   1-3 slow   last order: kill 2
//! ```
//!
//! Invariants
//! 1. Everything goes to stderr; a node that does not answer costs at most `ASK_TIMEOUT` a look.
//!
//! Not here: the page with charts (the node's own dashboard on its admin port).

use super::addresses::default_folder;
use super::member::{DevNode, NodeState};
use super::proxy::{Faults, LinkFault};
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

    /// Addresses, and the possible orders.
    pub(super) fn hello(&mut self, members: &[DevNode], folder: &Path) {
        self.counted = vec![None; members.len()];
        for (index, member) in members.iter().enumerate() {
            self.say(&format!(
                "node {}  http://{}  admin http://{}  known to the others as {}",
                index + 1,
                member.addresses.listen,
                member.addresses.admin,
                member.url
            ));
        }
        self.say(&format!("data and logs in {}", folder.display()));
        self.say("in another terminal: dendra dev kill 2 | start 2 | pause 1 | resume 1 | cut 1 2 | heal | add | remove 3 | replace 2");
        if folder != default_folder() {
            self.say(&format!("with --folder {} each time", folder.display()));
        }
        self.say("Ctrl-C ends the cluster");
    }

    /// One line about all nodes, when it differs from the last one. `last` is the order that was
    /// carried out last.
    pub(super) fn draw(&mut self, members: &[DevNode], faults: &Faults, last: Option<&str>) {
        self.counted.resize(members.len(), None);
        let mut parts = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let state = match member.state {
                NodeState::Up if member.is_leaving => {
                    format!("{}, leaves", self.running(index, member.addresses.admin))
                }
                NodeState::Up => self.running(index, member.addresses.admin),
                NodeState::Paused => "paused".to_owned(),
                _ if member.addresses.life.has_left => "left".to_owned(),
                NodeState::Down => "down".to_owned(),
                NodeState::Ended(code) => ended(index, code),
            };
            parts.push(format!("{}: {state}", index + 1));
        }
        let cuts = (0..members.len())
            .flat_map(|a| (a + 1..members.len()).map(move |b| (a, b)))
            .filter_map(|(a, b)| {
                let word = match faults.of(a, b) {
                    LinkFault::None => return None,
                    LinkFault::Delay(_) => "slow",
                    LinkFault::Stall => "stalled",
                    LinkFault::Cut => "cut",
                };
                Some(format!("{}-{} {word}", a + 1, b + 1))
            });
        parts.extend(cuts);
        parts.extend(last.map(|order| format!("last order: {order}")));
        let line = parts.join("   ");
        if line != self.shown {
            self.say(&line);
            self.shown = line;
        }
    }

    /// The figures of a running node: answers a second since the last look, and hints that wait.
    fn running(&mut self, index: usize, admin: SocketAddr) -> String {
        let Some(now) = page(admin).and_then(|page| NodeFigures::of(&page)) else {
            return "starting".to_owned();
        };
        let at = Instant::now();
        let Some((before, begun)) = self.counted[index].replace((now.requests, at)) else {
            return "starting".to_owned();
        };
        let seconds = at.duration_since(begun).as_secs_f64().max(0.1);
        let rate = now.requests.saturating_sub(before) as f64 / seconds;
        match now.hint_bytes {
            0 => format!("up {rate:.0} ops/s"),
            bytes => format!("up {rate:.0} ops/s, {} of hints wait", size(bytes)),
        }
    }
}

/// The line about a node that ended without an order.
fn ended(index: usize, code: Option<i32>) -> String {
    let how = match code {
        Some(code) => format!("with {code}"),
        None => "by a signal".to_owned(),
    };
    format!("ended {how}, see node-{}.log", index + 1)
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// The numbers that the screen takes from a page.
#[derive(Debug, PartialEq, Eq)]
struct NodeFigures {
    /// All requests that the node has answered.
    requests: u64,
    /// Hints for members that did not confirm a write.
    hint_bytes: u64,
}

impl NodeFigures {
    fn of(page: &str) -> Option<NodeFigures> {
        let (mut requests, mut hint_bytes) = (None, 0);
        for line in page.lines() {
            let value = || line.rsplit(' ').next()?.parse::<f64>().ok();
            if line.starts_with("dendra_requests_total{") {
                let count = value()? as u64;
                let is_probe = line.contains("op=\"status\"");
                *requests.get_or_insert(0) += if is_probe { 0 } else { count };
            } else if line.starts_with("dendra_hint_bytes ") {
                hint_bytes = value()? as u64;
            }
        }
        Some(NodeFigures {
            requests: requests?,
            hint_bytes,
        })
    }
}

/// The page of numbers of a node.
fn page(admin: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&admin, ASK_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(ASK_TIMEOUT)).ok()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut page = Vec::new();
    stream.read_to_end(&mut page).ok()?;
    String::from_utf8(page).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_hints_are_read_from_a_page() {
        let page = "dendra_requests_total{op=\"get\",class=\"2xx\"} 7\n\
                    dendra_requests_total{op=\"put\",class=\"2xx\"} 5\n\
                    dendra_requests_total{op=\"status\",class=\"2xx\"} 100\n\
                    # HELP dendra_hint_bytes Bytes that hints hold, about.\n\
                    dendra_hint_bytes 2048\n";
        let numbers = NodeFigures {
            requests: 12,
            hint_bytes: 2048,
        };
        assert_eq!(NodeFigures::of(page), Some(numbers));
        assert_eq!(NodeFigures::of("HTTP/1.1 404 Not Found"), None);
        assert_eq!([size(999), size(2048)], ["999 B", "2.0 kB"]);
    }

    #[test]
    fn a_node_that_ended_by_itself_is_told_from_one_that_was_stopped() {
        let shown = [ended(1, Some(3)), ended(0, None)];
        let wanted = [
            "ended with 3, see node-2.log",
            "ended by a signal, see node-1.log",
        ];
        assert_eq!(shown, wanted);
    }
}
