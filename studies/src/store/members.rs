//! Members of a cluster as processes of this machine.
//!
//! ```text
//! Members::start ─► joined: every loop of every member gets answers from all ─► a Store
//! ```
//!
//! Invariants
//! 1. All members share the cores that one node has for itself.
//!
//! Not here: members that join and go (`members.rs` of the studies).
//! See: docs/protocol.md.

use super::{Parts, Server, Store, free_port};
use crate::place::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long members may take to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections that are held while members find each other: some for each event loop.
const DOORS: usize = 16;

/// A cluster that runs, or one node by itself.
pub(crate) struct Members {
    pub(crate) nodes: Vec<Server>,
}

impl Members {
    /// Starts members of these weights; one weight is a node by itself.
    pub(crate) fn start(
        place: &Place,
        name: &str,
        weights: &[u16],
        factor: usize,
        options: &[&str],
    ) -> Result<Members, String> {
        let ports = weights.iter().map(|_| free_port());
        let ports = ports.collect::<Result<Vec<_>, _>>()?;
        Members::at(place, name, &ports, weights, factor, options)
    }

    /// Members at addresses that are known, on folders that may have data.
    pub(crate) fn at(
        place: &Place,
        name: &str,
        ports: &[SocketAddr],
        weights: &[u16],
        factor: usize,
        options: &[&str],
    ) -> Result<Members, String> {
        let folder = |i: usize| place.folder.join(format!("{name}-{i}"));
        let list: Vec<String> = ports
            .iter()
            .zip(weights)
            .map(|(port, weight)| format!("http://{port};weight={weight}"))
            .collect();
        let (list, factor) = (list.join(","), factor.to_string());
        let one = |(i, port): (usize, &SocketAddr)| {
            let own = format!("http://{port}");
            let mut words = options.to_vec();
            if ports.len() > 1 {
                words.extend(["--cluster", &list, "--self", &own]);
                words.extend(["--replication-factor", &factor]);
            }
            Server::node_at(place, &folder(i), &port.to_string(), &words)
        };
        let nodes = ports.iter().enumerate().map(one);
        Ok(Members {
            nodes: nodes.collect::<Result<_, _>>()?,
        })
    }

    /// Waits until all reach all: as many as there are copies.
    pub(crate) fn joined(self, copies: usize) -> Result<Members, String> {
        for node in &self.nodes {
            wait_for_answers(&node.url, &format!("{copies}/{copies}"))?;
        }
        Ok(self)
    }
}

impl Store for Members {
    fn urls(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.url.as_str()).collect()
    }

    fn parts(&self) -> Parts {
        vec![("members", self.nodes.iter().map(Server::id).collect())]
    }

    fn stop(self: Box<Self>) -> Result<(), String> {
        let mut nodes = self.nodes.into_iter();
        nodes.try_for_each(Server::stop)
    }
}

/// The sum of all rows of a metric of the node with this admin port.
pub(crate) fn metric(admin: &str, name: &str) -> Result<f64, String> {
    let address = admin.trim_start_matches("http://");
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    let page = ask().map_err(|e| format!("the metrics of {admin}: {e}"))?;
    Ok(sum_of(&page, name))
}

/// Sum of all rows of a metric.
fn sum_of(page: &str, name: &str) -> f64 {
    page.lines()
        .filter_map(|line| {
            line.strip_prefix(name)?
                .rsplit_once(' ')?
                .1
                .parse::<f64>()
                .ok()
        })
        .sum()
}

/// Waits until a node gets an answer from as many members as `replicas` says, on each of its loops.
/// A connection goes to the loop with the fewest.
fn wait_for_answers(url: &str, replicas: &str) -> Result<(), String> {
    let address = url.trim_start_matches("http://");
    let until = Instant::now() + PATIENCE;
    let open = || TcpStream::connect(address).map_err(|e| format!("{url}: {e}"));
    let doors = (0..DOORS).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let request = format!(
        "GET /v0/entity?id=nothing&replicas={replicas} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    );
    for door in doors {
        let failed = |e: std::io::Error| format!("{url}: {e}");
        door.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut door = BufReader::new(door);
        loop {
            door.get_mut()
                .write_all(request.as_bytes())
                .map_err(failed)?;
            let said = answer(&mut door).map_err(failed)?;
            if said.starts_with("HTTP/1.1 404") {
                break;
            }
            if Instant::now() > until {
                return Err(format!(
                    "{url} does not reach the other members: the last answer was {said:?}"
                ));
            }
        }
    }
    Ok(())
}

/// The status line of one answer, whose body is read and dropped.
fn answer(door: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    door.read_line(&mut first)?;
    loop {
        line.clear();
        if door.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", n)) => length = n.parse().unwrap_or(0),
            Some(_) => {}
            None => break,
        }
    }
    std::io::copy(&mut door.take(length), &mut std::io::sink())?;
    Ok(first.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_rows() {
        let page = "# HELP a b\nasks_total{peer=\"x\"} 3\nasks_total{peer=\"y\"} 4\nother 9\n";
        assert_eq!(sum_of(page, "asks_total"), 7.0);
    }
}
