//! `dendra copy` as tests run it: records to be moved, and a look at both ends.
//!
//! Not here: the cases (`../commands/copy.rs`, `../outgrow/`).
//! See: docs/moving.md.

use super::cluster::Cluster;
use super::http::{Client, PATIENCE};
use super::{Run, dendra, run};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(crate) fn put(client: &mut Client, key: &str, rest: &str, value: &[u8]) {
    let target = format!("/v0/entity?id={key}{rest}");
    let answer = client.request("PUT", &target, &[], value);
    let status = answer.map(|answer| answer.status);
    assert_eq!(status, Some(201), "{key}");
}

pub(crate) fn delete(client: &mut Client, key: &str) {
    let answer = client.ask("DELETE", key, &[], b"");
    assert_eq!(answer.map(|answer| answer.status), Some(202), "{key}");
}

pub(crate) fn client(address: SocketAddr) -> Client {
    Client::open(address).expect("it listens")
}

/// Records of different sizes, some of bytes that are no text, some empty.
pub(crate) fn fill(address: SocketAddr, count: usize) {
    let mut client = client(address);
    for i in 0..count {
        let value = match i % 4 {
            0 => Vec::new(),
            1 => vec![0xff, 0, b'\n', i as u8],
            2 => vec![b'v'; 100],
            _ => vec![i as u8; 2000],
        };
        put(&mut client, &format!("k%00{i:06}%ff"), "", &value);
    }
}

pub(crate) fn urls(cluster: &Cluster) -> String {
    let urls = cluster.listen.iter().map(|a| format!("http://{a}"));
    urls.collect::<Vec<String>>().join(",")
}

pub(crate) fn copy(from: &str, to: &str, state: &Path, more: &[&str]) -> Command {
    let mut command = dendra(["copy", from, to, "--timeout-ms", "60000", "--state"]);
    command.arg(state).args(more);
    command
}

/// All records as a client of the store sees them.
pub(crate) fn content(url: &str) -> BTreeMap<String, String> {
    let got = run(&mut dendra([
        "scan",
        "--hex",
        "--timeout-ms",
        "60000",
        "--url",
        url,
    ]));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    let text = String::from_utf8_lossy(&got.stdout).into_owned();
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

pub(crate) fn assert_equal(run: &Run, from: &str, to: &str) {
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.code, Some(0), "{text} {}", run.stderr);
    let digests: Vec<&str> = text
        .lines()
        .filter_map(|l| l.split("sha256 ").nth(1))
        .collect();
    assert_eq!(digests.len(), 2, "{text}");
    assert_eq!(digests[0], digests[1]);
    // Records that are about to end do so a moment apart.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (a, b) = (content(from), content(to));
        if !a.is_empty() && a == b {
            return;
        }
        let counts = (a.len(), b.len());
        assert!(Instant::now() < deadline, "{counts:?} records: {text}");
    }
}
