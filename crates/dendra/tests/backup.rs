//! `dendra backup` and `dendra restore` against real processes: the records that come back.
//!
//! ```text
//! writers ─► node, or three ─► backup ─► wiped ─► restore into one, into three ─► every byte, every ETag
//! ```
//!
//! Invariants
//! 1. The content of a backup is judged by the answers that clients got, and when.
//!
//! Not here: the folder of backups (`backup_repository.rs`), backups and restores that are cut
//! (`backup_cut_short.rs`), incremental ones (`increments.rs`), bytes of objects and manifests
//! (`../src/backup/`), what a node keeps (crate `server`). See: docs/format/backup.md.

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use support::backups::{
    all, backup, client, fill, folder, held, ok, put, refused, restore, verify,
};
use support::cluster::Cluster;
use support::http::PATIENCE;
use support::{Node, dendra, run};

fn expiry(address: SocketAddr, key: &str) -> String {
    let url = format!("http://{address}");
    let got = ok(run(&mut dendra(["get", key, "--json", "--url", &url])));
    let object: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    object["expires_ms"].to_string()
}

/// What is kept with a value, as the command line shows it.
fn metadata(address: SocketAddr, key: &str) -> [serde_json::Value; 3] {
    let url = format!("http://{address}");
    let got = ok(run(&mut dendra(["get", key, "--json", "--url", &url])));
    let object: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    ["value", "content_type", "meta"].map(|name| object[name].clone())
}

#[test]
fn a_wiped_node_comes_back_with_every_byte_etag_and_time_to_live_in_one_node_and_in_three() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    let keys = fill(node.address());
    let before = all(node.address(), &keys);
    let lines = ["Content-Type: text/css", "Dendra-Meta-Owner: ada"];
    put(&mut client(node.address()), "styled", &lines, b"a{}");
    let styled = metadata(node.address(), "styled");
    assert_eq!(
        styled[1..],
        ["text/css".into(), serde_json::json!({"owner": "ada"})]
    );
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
    assert_eq!(metadata(node.address(), "styled"), styled);
    let mut there = client(node.address());
    assert_eq!(held(&mut there, "later"), None);
    // A condition on a version that was seen before the disaster still holds, and later writes are
    // later.
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

/// Writes until it is told to stop, and notes the acknowledged writes, with a number that rises.
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
            support::rest();
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
