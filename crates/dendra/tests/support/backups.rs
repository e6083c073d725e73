//! `dendra backup` and `dendra restore` as tests run them, and the records of a node before and
//! after.
//!
//! Not here: the cases (`../backup*.rs`, `../increments.rs`); object storage (`bucket.rs`).
//! See: docs/format/backup.md.

use super::http::{Client, PATIENCE};
use super::{Run, dendra, run};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub(crate) fn ok(run: Run) -> Run {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

/// Fails with a sentence that has these words.
pub(crate) fn refused(run: &Run, words: &str) {
    assert!(!matches!(run.code, Some(0) | None), "{}", run.stderr);
    assert!(run.stderr.contains(words), "{words:?}: {}", run.stderr);
}

pub(crate) fn client(address: SocketAddr) -> Client {
    Client::open(address).expect("it listens")
}

/// The record of a key: its ETag and its value; `None` when it is not there.
pub(crate) type Held = Option<(String, Vec<u8>)>;

pub(crate) fn held(client: &mut Client, key: &str) -> Held {
    let answer = client.ask("GET", key, &[], b"").expect("the node is there");
    match answer.status {
        404 => None,
        200 => Some((answer.etag.expect("a value has one"), answer.body)),
        other => panic!("GET {key}: {other}"),
    }
}

pub(crate) fn all(address: SocketAddr, keys: &[String]) -> BTreeMap<String, Held> {
    let mut client = client(address);
    let keys = keys.iter();
    keys.map(|key| (key.clone(), held(&mut client, key)))
        .collect()
}

pub(crate) fn put(client: &mut Client, key: &str, headers: &[&str], value: &[u8]) -> String {
    let answer = client.ask("PUT", key, headers, value).expect("it is there");
    assert_eq!(answer.status, 201, "PUT {key}");
    answer.etag.expect("a write has one")
}

/// Some of everything: values of all sizes, conditional writes, deletions, times to live.
pub(crate) fn fill(address: SocketAddr) -> Vec<String> {
    let mut client = client(address);
    let mut keys = Vec::new();
    for n in 0..300usize {
        let key = format!("key-{n:03}");
        let value: Vec<u8> = (0..n * 37).map(|at| (at * n % 251) as u8).collect();
        let etag = put(&mut client, &key, &[], &value);
        match n % 7 {
            1 => drop(put(
                &mut client,
                &key,
                &[&format!("If-Match: {etag}")],
                b"again",
            )),
            2 => {
                let gone = client.ask("DELETE", &key, &[], b"").expect("it is there");
                assert_eq!(gone.status, 202);
            }
            _ => {}
        }
        keys.push(key);
    }
    put(&mut client, "created", &["If-None-Match: *"], b"on nothing");
    put(&mut client, "large", &[], &vec![7; 900_000]);
    let ttl = client.request("PUT", "/v0/entity?id=expires&ttl=3600", &[], b"soon");
    assert_eq!(ttl.expect("it is there").status, 201);
    keys.extend(["created", "large", "expires", "never"].map(str::to_owned));
    keys
}

/// Bytes that cannot be compressed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut prng = dendra_base::Prng::new(seed);
    (0..bytes).map(|_| prng.next_u64() as u8).collect()
}

pub(crate) fn backup(admin: &str, to: &Path, flags: &[&str]) -> Run {
    let mut command = dendra(["backup", "--admin", admin]);
    run(command.args(flags).arg(to))
}

/// A backup, as `--json` describes it.
pub(crate) fn page_of(taken: &Run) -> serde_json::Value {
    serde_json::from_slice(&taken.stdout).expect("an object")
}

pub(crate) fn moved(page: &serde_json::Value) -> u64 {
    page["moved_bytes"].as_u64().expect("a number")
}

pub(crate) fn restore(from: &Path, admin: &str, flags: &[&str]) -> Run {
    let mut command = dendra(["restore", "--admin", admin]);
    run(command.args(flags).arg(from))
}

pub(crate) fn verify(of: &Path) -> Run {
    run(dendra(["backup", "verify"]).arg(of))
}

pub(crate) fn objects(of: &Path) -> Vec<PathBuf> {
    let Ok(folders) = fs::read_dir(of.join("objects")) else {
        return Vec::new();
    };
    let folders = folders.filter_map(|it| fs::read_dir(it.expect("an entry").path()).ok());
    let mut objects: Vec<PathBuf> = folders
        .flatten()
        .map(|it| it.expect("a file").path())
        .collect();
    objects.sort();
    objects
}

/// A metric of the node with this admin port; `None` when it has none of this name.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> Option<f64> {
    let page = client(admin).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.expect("a page").body).expect("text");
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Of the first thread of a process with this name; a higher one yields to others.
pub(crate) fn niceness(pid: u32, name: &str) -> i32 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of_one = |thread: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (head, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let is_it = head.split_once('(')?.1 == name;
        is_it.then(|| fields[16].parse().expect("proc(5), field 19"))
    };
    let found = threads.into_iter().find_map(of_one);
    found.unwrap_or_else(|| panic!("{pid} has no thread {name}"))
}

pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        crate::support::rest();
    }
}
