//! `dendra backup` and `dendra restore` against real processes: what comes back, and what is said
//! of what does not.
//!
//! ```text
//! writers ─► node, or three ─► backup ─► wiped ─► restore into one, into three ─► every byte, every ETag
//! ```
//!
//! Invariants
//! 1. What a backup contains is judged by what clients were told, and when.
//!
//! Not here: bytes of objects and manifests (`../src/backup/`), what a node keeps (crate `server`).
//! See: docs/format/backup.md.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use support::cluster::Cluster;
use support::http::{Client, PATIENCE};
use support::{Node, Run, dendra, run};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn client(address: SocketAddr) -> Client {
    Client::open(address).expect("it listens")
}

/// What a key holds: its ETag and its value; nothing when it is not there.
type Held = Option<(String, Vec<u8>)>;

fn held(client: &mut Client, key: &str) -> Held {
    let answer = client.ask("GET", key, &[], b"").expect("the node is there");
    match answer.status {
        404 => None,
        200 => Some((answer.etag.expect("a value has one"), answer.body)),
        other => panic!("GET {key}: {other}"),
    }
}

fn all(address: SocketAddr, keys: &[String]) -> BTreeMap<String, Held> {
    let mut client = client(address);
    let keys = keys.iter();
    keys.map(|key| (key.clone(), held(&mut client, key)))
        .collect()
}

fn put(client: &mut Client, key: &str, headers: &[&str], value: &[u8]) -> String {
    let answer = client.ask("PUT", key, headers, value).expect("it is there");
    assert_eq!(answer.status, 201, "PUT {key}");
    answer.etag.expect("a write has one")
}

/// Some of everything: values of all sizes, conditional writes, deletions, times to live.
fn fill(address: SocketAddr) -> Vec<String> {
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
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut prng = dendra_base::Prng::new(seed);
    (0..bytes).map(|_| prng.next_u64() as u8).collect()
}

fn backup(admin: &str, to: &Path, flags: &[&str]) -> Run {
    let mut command = dendra(["backup", "--admin", admin]);
    run(command.args(flags).arg(to))
}

fn restore(from: &Path, admin: &str, flags: &[&str]) -> Run {
    let mut command = dendra(["restore", "--admin", admin]);
    run(command.args(flags).arg(from))
}

fn verify(of: &Path) -> Run {
    run(dendra(["backup", "verify"]).arg(of))
}

fn ok(run: Run) -> Run {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

/// Fails with a sentence that has these words.
fn refused(run: &Run, words: &str) {
    assert!(!matches!(run.code, Some(0) | None), "{}", run.stderr);
    assert!(run.stderr.contains(words), "{words:?}: {}", run.stderr);
}

fn objects(of: &Path) -> Vec<PathBuf> {
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

fn expiry(address: SocketAddr, key: &str) -> String {
    let url = format!("http://{address}");
    let got = ok(run(&mut dendra(["get", key, "--json", "--url", &url])));
    let object: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    object["expires_ms"].to_string()
}

#[test]
fn a_wiped_node_comes_back_with_every_byte_etag_and_time_to_live_in_one_node_and_in_three() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let before = all(node.address(), &keys);
    let expires = expiry(node.address(), "expires");
    let taken = ok(backup(&node.admin, backups.path(), &["--verify"]));
    assert!(taken.stderr.contains("whole: "), "{}", taken.stderr);
    assert!(
        !data
            .path()
            .join("checkpoints")
            .read_dir()
            .is_ok_and(|mut it| it.next().is_some())
    );
    // Not in it.
    put(&mut client(node.address()), "later", &[], b"later");
    drop(node);

    let (data, other) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    ok(restore(backups.path(), &node.admin, &[]));
    assert_eq!(all(node.address(), &keys), before);
    assert_eq!(expiry(node.address(), "expires"), expires);
    let mut there = client(node.address());
    assert_eq!(held(&mut there, "later"), None);
    // A condition on what was seen before the disaster still holds, and later writes are later.
    let (etag, _) = before["key-000"].clone().expect("it is there");
    let newer = put(
        &mut there,
        "key-000",
        &[&format!("If-Match: {etag}")],
        b"new",
    );
    assert!(newer > etag, "{newer} is not newer than {etag}");
    let again = restore(backups.path(), &node.admin, &[]);
    assert!(ok(again).stderr.contains("was restored here already"));
    let node = {
        drop(node);
        Node::start(data.path(), &[])
    };
    assert_eq!(
        held(&mut client(node.address()), "key-000")
            .expect("it is there")
            .0,
        newer
    );

    // A part of it, and the rest of it is refused then.
    let part = Node::start(other.path(), &[]);
    ok(restore(
        backups.path(),
        &part.admin,
        &["--prefix", "key-01"],
    ));
    let found = all(part.address(), &keys);
    for (key, value) in &found {
        let expected = before[key].as_ref().filter(|_| key.starts_with("key-01"));
        assert_eq!(value.as_ref(), expected, "{key}");
    }
    let rest = restore(backups.path(), &part.admin, &[]);
    refused(&rest, "a restore needs empty folders");

    let cluster = Cluster::start_with_admin(&[]);
    let admins = cluster.admin_urls();
    let lacking = restore(backups.path(), &admins[..2].join(","), &[]);
    refused(&lacking, "--admin does not name all members");
    ok(restore(backups.path(), &admins.join(","), &[]));
    for address in &cluster.listen {
        assert_eq!(all(*address, &keys), before);
    }
}

/// Writes until it is told to stop, and notes what was acknowledged, with a number that rises.
struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// By key: the number of the last acknowledged write, and of the last one that was begun.
    seen: Arc<Mutex<BTreeMap<String, (u64, u64)>>>,
    acked: Arc<AtomicU64>,
}

impl Writers {
    fn start(addresses: &[SocketAddr]) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let seen: Arc<Mutex<BTreeMap<String, (u64, u64)>>> = Arc::default();
        let acked = Arc::new(AtomicU64::new(0));
        let threads = addresses.iter().enumerate().map(|(index, address)| {
            let (stop, seen, address) = (Arc::clone(&stop), Arc::clone(&seen), *address);
            let acked = Arc::clone(&acked);
            std::thread::spawn(move || {
                let mut client = client(address);
                for number in 1.. {
                    let key = format!("w{index}-{}", number % 50);
                    seen.lock()
                        .expect("no panic")
                        .entry(key.clone())
                        .or_default()
                        .1 = number;
                    put(&mut client, &key, &[], number.to_string().as_bytes());
                    seen.lock().expect("no panic").entry(key).or_default().0 = number;
                    acked.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        });
        Writers {
            threads: threads.collect(),
            stop,
            seen,
            acked,
        }
    }

    fn seen(&self) -> BTreeMap<String, (u64, u64)> {
        self.seen.lock().expect("no panic").clone()
    }

    fn wait_for(&self, more: u64) {
        let (goal, deadline) = (
            self.acked.load(Ordering::Relaxed) + more,
            Instant::now() + PATIENCE,
        );
        while self.acked.load(Ordering::Relaxed) < goal {
            assert!(Instant::now() < deadline, "the writers hang");
            std::thread::yield_now();
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every write is acknowledged");
        }
    }
}

/// Each key holds a write between the last one acknowledged before the backup began and the last
/// one that was begun before it ended.
fn check_cut(
    address: SocketAddr,
    before: &BTreeMap<String, (u64, u64)>,
    after: &BTreeMap<String, (u64, u64)>,
) {
    let mut client = client(address);
    assert!(!before.is_empty());
    for (key, (_, last_begun)) in after {
        let (acked, _) = before.get(key).copied().unwrap_or_default();
        let number = match held(&mut client, key) {
            None => 0,
            Some((_, value)) => String::from_utf8_lossy(&value).parse().expect("a number"),
        };
        assert!(
            (acked..=*last_begun).contains(&number),
            "{key} holds {number}: {acked} was acknowledged before, {last_begun} was begun until the end"
        );
    }
}

#[test]
fn a_backup_under_writes_has_all_that_was_acknowledged_before_and_nothing_begun_after() {
    let backups = folder();
    let cluster = Cluster::start_with_admin(&[]);
    let keys = fill(cluster.listen[0]);
    let admins = cluster.admin_urls();
    let lacking = backup(&admins[..2].join(","), backups.path(), &[]);
    refused(&lacking, "--admin does not name all members");
    refused(
        &backup(&format!("{0},{0}", admins[0]), backups.path(), &[]),
        "twice",
    );
    let writers = Writers::start(&cluster.listen);
    let mut cuts = Vec::new();
    for _ in 0..2 {
        writers.wait_for(300);
        let before = writers.seen();
        ok(backup(&admins.join(","), backups.path(), &[]));
        cuts.push((before, writers.seen()));
    }
    // One of three copies may be away.
    let before = writers.seen();
    let without = backup(
        &admins[..2].join(","),
        backups.path(),
        &["--allow-missing", "--json"],
    );
    let said: serde_json::Value = serde_json::from_slice(&ok(without).stdout).expect("an object");
    assert_eq!(said["missing"].as_array().map(Vec::len), Some(1));
    refused(
        &backup(&admins[0], backups.path(), &["--allow-missing"]),
        "at most 1 may be",
    );
    cuts.push((before, writers.seen()));
    writers.end();
    let before = all(cluster.listen[1], &keys);
    drop(cluster);
    ok(verify(backups.path()));

    let list = ok(run(dendra(["backup", "list"]).arg(backups.path())));
    let list = String::from_utf8(list.stdout).expect("text");
    let ids: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(ids.len(), 3, "{list}");
    for (id, (was, is)) in ids.iter().zip(&cuts) {
        let data = folder();
        let node = Node::start(data.path(), &[]);
        ok(restore(backups.path(), &node.admin, &["--backup", id]));
        check_cut(node.address(), was, is);
        assert_eq!(all(node.address(), &keys), before);
    }
    let cluster = Cluster::start_with_admin(&[]);
    ok(restore(
        backups.path(),
        &cluster.admin_urls().join(","),
        &[],
    ));
    for address in &cluster.listen {
        check_cut(*address, &cuts[2].0, &cuts[2].1);
        assert_eq!(all(*address, &keys), before);
    }
}

#[test]
fn only_new_tables_move_and_prune_leaves_what_others_need() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let moved = |flags: &[&str]| {
        let taken = ok(backup(&node.admin, backups.path(), flags));
        let page: serde_json::Value = serde_json::from_slice(&taken.stdout).expect("an object");
        let number = |name: &str| page[name].as_u64().expect("a number");
        (number("bytes"), number("moved_bytes"))
    };
    let (bytes, first) = moved(&["--json"]);
    assert_eq!(bytes, first, "all is new");
    put(&mut client(node.address()), "one", &[], b"more");
    let (_, second) = moved(&["--json"]);
    assert!(
        second * 10 < first,
        "{second} of {first} moved for one record"
    );
    let (_, third) = moved(&["--json", "--bytes-per-second", "1MiB"]);
    assert!(
        third < second,
        "nothing was written in between, but a manifest"
    );
    let before = all(node.address(), &keys);
    let dry = ok(run(
        dendra(["backup", "prune", "--keep", "1", "--dry-run"]).arg(backups.path())
    ));
    assert_eq!(String::from_utf8_lossy(&dry.stdout).lines().count(), 2);
    fs::write(backups.path().join("objects/new-1-0"), b"left by a kill").expect("room");
    ok(run(
        dendra(["backup", "prune", "--keep", "1"]).arg(backups.path())
    ));
    assert!(!backups.path().join("objects/new-1-0").exists());
    assert!(ok(verify(backups.path())).stderr.contains("whole"));
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(backups.path(), &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
    assert!(held(&mut client(restored.address()), "one").is_some());
}

#[test]
fn damage_is_named_and_never_restored() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    ok(backup(&node.admin, backups.path(), &[]));
    let other = folder();
    let empty = Node::start(other.path(), &[]);
    let manifests: Vec<PathBuf> = fs::read_dir(backups.path().join("backups"))
        .expect("a folder")
        .map(|it| it.expect("a file").path())
        .collect();
    for path in objects(backups.path()).into_iter().chain(manifests) {
        let whole = fs::read(&path).expect("it is there");
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for damaged in [Some(&flipped[..]), Some(&whole[..whole.len() - 9]), None] {
            match damaged {
                Some(bytes) => fs::write(&path, bytes).expect("there is room"),
                None if name.ends_with("json") => continue,
                None => fs::remove_file(&path).expect("it is there"),
            }
            let found = verify(backups.path());
            assert_eq!(found.code, Some(1), "{name}: {}", found.stderr);
            let said = String::from_utf8_lossy(&found.stdout).into_owned();
            assert!(said.contains(&name), "{name}: {said}");
            let json = run(dendra(["backup", "verify", "--json"]).arg(backups.path()));
            assert_eq!(json.code, Some(1));
            assert!(String::from_utf8_lossy(&json.stdout).contains(&name));
        }
        let refused = restore(backups.path(), &empty.admin, &[]);
        // One of the small files may be read no more than once: whatever is restored is right.
        assert_ne!(refused.code, Some(0), "{name}: {}", refused.stderr);
        fs::write(&path, &whole).expect("there is room");
    }
    assert!(ok(verify(backups.path())).stderr.contains("whole"));
    // A damaged object is written anew by the next backup, where it can be seen without reading all
    // of it.
    let all = objects(backups.path());
    let first = all
        .iter()
        .max_by_key(|path| fs::metadata(path).expect("it is there").len())
        .expect("there are some");
    let whole = fs::read(first).expect("it is there");
    fs::write(first, &whole[..whole.len() - 1]).expect("there is room");
    ok(backup(&node.admin, backups.path(), &[]));
    ok(verify(backups.path()));
    refused(
        &backup(&node.admin, other.path(), &[]),
        "is no folder of backups",
    );
    refused(&verify(data.path()), "is no folder of backups");
}

/// Objects of large tables.
fn tables(of: &Path) -> usize {
    let sizes = objects(of)
        .into_iter()
        .filter_map(|path| fs::metadata(path).ok());
    sizes.filter(|it| it.len() > 1 << 20).count()
}

/// Something being written, without its name.
fn is_begun(of: &Path) -> bool {
    let entries = fs::read_dir(of.join("objects"));
    entries.is_ok_and(|mut it| {
        it.any(|it| it.is_ok_and(|it| it.file_name().to_string_lossy().starts_with("new-")))
    })
}

#[test]
fn a_backup_that_is_killed_at_any_moment_goes_on_where_it_was() {
    let (data, backups) = (folder(), folder());
    let to = backups.path();
    let mut node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let mut there = client(node.address());
    let mut admin = client(node.admin_address());
    for n in 0..18 {
        put(&mut there, &format!("mib-{n}"), &[], &noise(n, 700_000));
        if n % 6 == 5 {
            // A checkpoint makes a table of what is in memory.
            let made = admin
                .request("POST", "/v0/checkpoints", &[], b"")
                .expect("an answer");
            let made: serde_json::Value = serde_json::from_slice(&made.body).expect("JSON");
            let path = format!("/v0/checkpoints/{}", made["id"].as_str().expect("an id"));
            let gone = admin.request("DELETE", &path, &[], b"").expect("an answer");
            assert_eq!(gone.status, 204);
        }
    }
    drop((there, admin));
    let mut kills = 0;
    for stage in 0..5 {
        let before = objects(to).len();
        let mut child = dendra([
            "backup",
            "--admin",
            &node.admin,
            "--bytes-per-second",
            "3MiB",
        ])
        .arg(to)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_reached = match stage % 3 {
                0 => to.join("objects").exists(),
                1 => is_begun(to),
                _ => tables(to) > before,
            };
            if is_reached || child.try_wait().expect("it is ours").is_some() {
                break;
            }
            assert!(Instant::now() < deadline, "the backup hangs");
            std::thread::yield_now();
        }
        if child.try_wait().expect("it is ours").is_none() {
            if stage == 2 {
                assert_eq!(niceness(child.id(), "dendra"), 15, "it yields to a node");
            }
            child.kill().expect("it is ours");
            kills += 1;
        }
        child.wait().expect("it is ours");
        if to.join("dendra-backups").exists() {
            let listed = ok(run(dendra(["backup", "list"]).arg(to)));
            assert!(listed.stdout.is_empty(), "a killed backup is none");
        }
        if stage == 2 {
            // No more than four are held: those of the killed backups go with the node.
            support::kill_process(node.pid());
            node.reap();
            node = Node::start(data.path(), &[]);
            assert!(!data.path().join("checkpoints").exists());
        }
    }
    assert!(kills > 2, "{kills} backups were killed");
    let taken = ok(backup(&node.admin, to, &["--json"]));
    let page: serde_json::Value = serde_json::from_slice(&taken.stdout).expect("an object");
    let (bytes, moved) = (page["bytes"].as_u64(), page["moved_bytes"].as_u64());
    assert!(moved < bytes, "{page}: what was there was taken");
    ok(verify(to));
    let before = all(node.address(), &keys);
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(to, &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
}

#[test]
fn two_backups_at_once_and_a_prune_beside_them_harm_nothing() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    let start = || {
        dendra([
            "backup",
            "--admin",
            &node.admin,
            "--bytes-per-second",
            "1MiB",
        ])
        .arg(backups.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built")
    };
    let children = [start(), start()];
    let deadline = Instant::now() + PATIENCE;
    while objects(backups.path()).is_empty() {
        assert!(Instant::now() < deadline, "the backup hangs");
        std::thread::yield_now();
    }
    let prune = run(dendra(["backup", "prune", "--keep", "1"]).arg(backups.path()));
    // It may come behind them on a busy machine.
    let least = match prune.code {
        Some(0) => 1,
        _ => {
            refused(&prune, "prune when it is done");
            2
        }
    };
    for child in children {
        ok(support::finish(child));
    }
    ok(verify(backups.path()));
    let list = ok(run(dendra(["backup", "list"]).arg(backups.path())));
    let listed = String::from_utf8_lossy(&list.stdout).lines().count();
    assert!((least..=2).contains(&listed), "{listed} of {least} to 2");
}

#[test]
fn a_restore_goes_on_behind_a_kill_of_either_side_and_the_node_is_not_ready_meanwhile() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let before = all(node.address(), &keys);
    ok(backup(&node.admin, backups.path(), &[]));
    let other = folder();
    let empty = Node::start(other.path(), &[]);
    let standing = |node: &Node| {
        let mut admin = client(node.admin_address());
        let page = admin
            .request("GET", "/v0/restore", &[], b"")
            .expect("a page");
        let page: serde_json::Value = serde_json::from_slice(&page.body).expect("JSON");
        page["restore"]["pages"].as_u64()
    };
    let child = dendra([
        "restore",
        "--admin",
        &empty.admin,
        "--bytes-per-second",
        "64KiB",
    ])
    .arg(backups.path())
    .stderr(Stdio::null())
    .spawn()
    .expect("the binary was built");
    let deadline = Instant::now() + PATIENCE;
    while standing(&empty).is_none_or(|pages| pages == 0) {
        assert!(Instant::now() < deadline, "the restore hangs");
        std::thread::yield_now();
    }
    support::kill(child);
    support::kill_process(empty.pid());
    empty.reap();
    let empty = Node::start(other.path(), &[]);
    let ready = client(empty.admin_address()).request("GET", "/readyz", &[], b"");
    let ready = ready.expect("an answer");
    assert_eq!(ready.status, 503);
    assert!(String::from_utf8_lossy(&ready.body).contains("restoring"));
    // A part of the records is there, and no client is told that others are missing.
    let mut early = client(empty.address());
    let range = ("GET", "/v0/entities?start=key");
    let of_key = ["GET", "PUT", "DELETE"].map(|method| (method, "/v0/entity?id=key-299"));
    for (method, target) in of_key.into_iter().chain([range]) {
        let refused = early.request(method, target, &[], b"");
        let refused = refused.expect("an answer");
        assert_eq!(refused.status, 503, "{method} {target}");
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(
            said.contains("not-serving: a restore is under way"),
            "{said}"
        );
    }
    refused(
        &restore(backups.path(), &empty.admin, &["--prefix", "key"]),
        "a restore of another backup or prefix is under way",
    );
    let resumed = ok(restore(backups.path(), &empty.admin, &[]));
    assert!(
        resumed.stderr.contains("going on behind"),
        "{}",
        resumed.stderr
    );
    assert_eq!(all(empty.address(), &keys), before);
    let ready = client(empty.admin_address()).request("GET", "/readyz", &[], b"");
    assert_eq!(ready.expect("an answer").status, 200);
}

#[test]
fn a_destination_that_goes_away_and_a_node_that_is_not_there_end_with_a_sentence() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    let child = dendra([
        "backup",
        "--admin",
        &node.admin,
        "--bytes-per-second",
        "256KiB",
    ])
    .arg(backups.path())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the binary was built");
    let deadline = Instant::now() + PATIENCE;
    while !backups.path().join("dendra-backups").exists() {
        assert!(Instant::now() < deadline, "the backup hangs");
        std::thread::yield_now();
    }
    fs::rename(backups.path().join("objects"), backups.path().join("gone")).expect("a new name");
    let ended = support::finish(child);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("run the same command again"),
        "{}",
        ended.stderr
    );
    fs::rename(backups.path().join("gone"), backups.path().join("objects")).expect("a new name");
    ok(backup(&node.admin, backups.path(), &[]));
    let admin = node.admin.clone();
    drop(node);
    let away = backup(&admin, backups.path(), &[]);
    assert_eq!(away.code, Some(5), "{}", away.stderr);
    assert!(away.stderr.contains("see --admin"), "{}", away.stderr);
}

/// A small disk of its own, for tests that run as root.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(bytes: &str) -> Option<SmallDisk> {
        let disk = folder();
        mount(disk.path(), &format!("size={bytes}")).then_some(SmallDisk(disk))
    }

    fn grow(&self, bytes: &str) {
        assert!(mount(self.0.path(), &format!("remount,size={bytes}")));
    }
}

fn mount(path: &Path, options: &str) -> bool {
    let mut command = std::process::Command::new("mount");
    command
        .args(["-t", "tmpfs", "-o", options, "tmpfs"])
        .arg(path);
    let mounted = command.stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success())
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(
            std::process::Command::new("umount")
                .arg(self.0.path())
                .status(),
        );
    }
}

#[test]
fn a_full_destination_and_a_full_disk_at_restore_say_so_and_go_on_when_there_is_room() {
    let Some(backups) = SmallDisk::new("1m") else {
        eprintln!("skipped: only root can mount a small disk");
        return;
    };
    let to = backups.0.path();
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let mut there = client(node.address());
    for n in 0..60 {
        put(&mut there, &format!("large-{n}"), &[], &noise(n, 900_000));
    }
    refused(&backup(&node.admin, to, &[]), "it is full: make room");
    let listed = ok(run(dendra(["backup", "list"]).arg(to)));
    assert!(listed.stdout.is_empty(), "a backup without its files");
    backups.grow("200m");
    ok(backup(&node.admin, to, &["--verify"]));

    let disk = SmallDisk::new("150m").expect("it worked before");
    let small = disk.0.path().join("data");
    let empty = Node::start(&small, &["--memory", "64MiB", "--memtable", "1MiB"]);
    let full = restore(to, &empty.admin, &[]);
    refused(&full, "the disk is full: make room");
    disk.grow("600m");
    let resumed = ok(restore(to, &empty.admin, &[]));
    assert!(
        resumed.stderr.contains("going on behind"),
        "{}",
        resumed.stderr
    );
    assert_eq!(all(empty.address(), &keys), all(node.address(), &keys));
    // Nodes go before their disks.
    drop(empty);
}

fn metric(node: &Node, name: &str) -> Option<f64> {
    let page = client(node.admin_address()).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.expect("a page").body).expect("text");
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Of the first thread of a process with this name; a higher one yields to others.
fn niceness(pid: u32, name: &str) -> i32 {
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

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_node_backs_itself_up_by_its_schedule_and_is_loud_when_it_cannot() {
    let (data, backups) = (folder(), folder());
    let to = backups.path().join("to");
    let flags = ["--backup-every", "1s", "--backup-keep", "2", "--backup-to"];
    let flags = [&flags[..], &[to.to_str().expect("text")]].concat();
    let node = Node::start(data.path(), &flags);
    let keys = fill(node.address());
    let made = || metric(&node, "dendra_backups_total{outcome=\"made\"}").unwrap_or(0.0);
    let failed = || metric(&node, "dendra_backups_total{outcome=\"failed\"}").unwrap_or(0.0);
    let soon = made() + 4.0;
    wait_for("no backup is made", || made() >= soon);
    assert!(metric(&node, "dendra_backup_age_seconds").is_some());
    for thread in ["checkpoints-0", "checkpoints-1", "backups"] {
        assert_eq!(
            niceness(node.pid(), thread),
            15,
            "{thread} yields to clients"
        );
    }
    assert!(niceness(node.pid(), "loop-0") < 15);
    wait_for("old backups stay", || {
        let list = run(dendra(["backup", "list"]).arg(&to));
        // While the node prunes, a list finds the folder locked.
        list.code == Some(0) && String::from_utf8_lossy(&list.stdout).lines().count() <= 2
    });
    let before = all(node.address(), &keys);
    let (gone, was) = (backups.path().join("gone"), failed());
    fs::rename(&to, &gone).expect("a new name");
    fs::write(&to, b"no folder").expect("a file");
    wait_for("no failure is counted", || failed() > was);
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the backup failed"), "{log}");
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(&gone, &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
    assert_eq!(metric(&restored, "dendra_backup_age_seconds"), None);
}
