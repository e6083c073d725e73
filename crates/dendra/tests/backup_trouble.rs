//! Backups beside trouble that is not the node's. Clocks differ, a storage is slow or may only be
//! read, a prune was paused.
//!
//! Invariants
//! 1. A wait has a condition, and no test waits for a lease or a clock to pass.
//!
//! Not here: the content of a backup (`backup.rs`), storage that does wrong (`backup_places.rs`).
//! See: docs/format/backup.md, docs/operating.md.

mod support;

use dendra_archive::manifest::BackupManifest;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::bucket::{Fault, TestBucket};
use support::http::Client;
use support::{Node, Run, ScriptedNode, answer, dendra, run};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn ok(mut command: Command) -> Run {
    let run = run(&mut command);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

fn put(address: SocketAddr, key: &str, value: &str) {
    let mut client = Client::open(address).expect("it listens");
    let answer = client.ask("PUT", key, &[], value.as_bytes());
    assert_eq!(answer.expect("it is there").status, 201);
}

fn value(address: SocketAddr, key: &str) -> String {
    let mut client = Client::open(address).expect("it listens");
    let answer = client.ask("GET", key, &[], b"").expect("it is there");
    String::from_utf8(answer.body).expect("text")
}

fn backup(node: &Node, to: &str) -> Command {
    dendra(["backup", "--admin", &node.admin, to])
}

fn ids(to: &str) -> Vec<String> {
    let list = ok(dendra(["backup", "list", to]));
    let text = String::from_utf8(list.stdout).expect("text");
    let names = text.lines().map(|line| line.split('\t').next());
    names.map(|id| id.expect("a name").to_owned()).collect()
}

/// Gives the only backup the time of a machine whose clock is so far ahead.
fn made_ahead(to: &Path, by_ms: i64) {
    let manifests = to.join("backups");
    let mut files = fs::read_dir(&manifests).expect("a folder");
    let path = files.next().expect("a backup").expect("an entry").path();
    let bytes = fs::read(&path).expect("a manifest");
    let mut manifest = BackupManifest::decode(&bytes).expect("it is whole");
    manifest.began_ms = manifest.began_ms.saturating_add_signed(by_ms);
    manifest.cut_ms = manifest.cut_ms.saturating_add_signed(by_ms);
    let began = i64::try_from(manifest.began_ms).expect("a time");
    let began = jiff::Timestamp::from_millisecond(began).expect("a time");
    manifest.id = format!("{}-00000001", began.strftime("%Y%m%dT%H%M%S%.3fZ"));
    let name = format!("{}.json", manifest.id);
    fs::write(manifests.join(name), manifest.encode()).expect("room");
    fs::remove_file(path).expect("it is there");
}

#[test]
fn a_backup_from_a_clock_ahead_is_older_than_the_next_one() {
    let (data, place) = (folder(), folder());
    let to = place.path().to_str().expect("text");
    let node = Node::start(data.path(), &[]);
    put(node.address(), "key", "old");
    ok(backup(&node, to));
    made_ahead(place.path(), 24 * 3_600_000);
    put(node.address(), "key", "new");
    let second = ok(backup(&node, to));
    assert!(second.stderr.contains("ahead of this machine's clock"));
    let second = String::from_utf8(second.stdout).expect("text");
    assert_eq!(ids(to).last().map(String::as_str), Some(second.trim()));
    ok(dendra(["backup", "prune", to, "--keep", "1"]));
    assert_eq!(ids(to), [second.trim()]);
    let empty = folder();
    let restored = Node::start(empty.path(), &[]);
    ok(dendra(["restore", "--admin", &restored.admin, to]));
    assert_eq!(value(restored.address(), "key"), "new");
}

#[test]
fn the_age_of_the_newest_backup_is_judged_and_a_begin_in_the_future_is_none() {
    let (data, place) = (folder(), folder());
    let to = place.path().to_str().expect("text");
    let judged = |max_age: &str| run(&mut dendra(["backup", "list", to, "--max-age", max_age]));
    let node = Node::start(data.path(), &[]);
    ok(backup(&node, to));
    let young = judged("26h");
    assert_eq!(young.code, Some(0), "{}", young.stderr);
    made_ahead(place.path(), -27 * 3_600_000);
    let old = judged("26h");
    assert_eq!(old.code, Some(1), "{}", old.stderr);
    assert!(old.stderr.contains("s ago, and --max-age is 93600 s"));
    assert_eq!(judged("28h").code, Some(0));
    made_ahead(place.path(), 365 * 24 * 3_600_000);
    let ahead = judged("26h");
    assert_eq!(ahead.code, Some(1), "{}", ahead.stderr);
    assert!(ahead.stderr.contains("ahead of this machine's clock"));
    assert_eq!(
        ids(to).len(),
        1,
        "without --max-age it is a backup like others"
    );
    // The next one is named behind it, and its own time counts.
    ok(backup(&node, to));
    assert_eq!(judged("26h").code, Some(0));
    fs::remove_dir_all(place.path().join("backups")).expect("it is there");
    fs::create_dir(place.path().join("backups")).expect("room");
    let none = judged("26h");
    assert_eq!(none.code, Some(3), "{}", none.stderr);
    assert!(none.stderr.contains("has no backup yet"), "{}", none.stderr);
}

/// Answers as a node whose checkpoint has one table and a lease of a second.
fn node_with_a_short_lease(touches: &Arc<AtomicUsize>) -> ScriptedNode {
    let touches = Arc::clone(touches);
    let page = json!({
        "id": "c".repeat(32),
        "lease_seconds": 1,
        "node": "1".repeat(32),
        "hlc": "1",
        "wall_ms": 1,
        "cluster": null,
        "files": [{"name": "0000000000000001.tbl", "bytes": 5, "content": "7".repeat(32)}],
        "increment": null,
    });
    let page = page.to_string();
    ScriptedNode::start(move |request, _| {
        if request.line.starts_with("POST /v0/checkpoints") {
            return answer("201 Created", &[], page.as_bytes());
        }
        if request.line.starts_with("DELETE") {
            return answer("204 No Content", &[], b"");
        }
        if request.line.ends_with("bytes=5") {
            return answer("200 OK", &[], b"table");
        }
        assert!(request.line.ends_with("bytes=0"), "{}", request.line);
        touches.fetch_add(1, Ordering::SeqCst);
        answer("200 OK", &[], b"")
    })
}

#[test]
fn a_checkpoint_lives_while_a_slow_storage_takes_a_table() {
    let bucket = TestBucket::start();
    let touches = Arc::new(AtomicUsize::new(0));
    let node = node_with_a_short_lease(&touches);
    let before = Arc::clone(&touches);
    // The table is there and goes over a slow line: all that the node is asked for are touches.
    bucket.delay_objects(move || before.load(Ordering::SeqCst) >= 3);
    let url = node.url();
    let to = "s3://bucket/a";
    ok(bucket.command(dendra(["backup", "--admin", &url, to])));
    assert!(touches.load(Ordering::SeqCst) >= 3, "it was not touched");
}

#[test]
fn a_node_by_itself_gives_no_etag_of_before_the_restore_to_another_value() {
    let (data, place, empty) = (folder(), folder(), folder());
    let to = place.path().to_str().expect("text");
    let replace = |address: SocketAddr, value: &str| {
        let mut client = Client::open(address).expect("it listens");
        let read = client.ask("GET", "key", &[], b"").expect("it is there");
        let condition = format!("If-Match: {}", read.etag.expect("it has one"));
        let written = client.ask("PUT", "key", &[&condition], value.as_bytes());
        let written = written.expect("it is there");
        assert_eq!(written.status, 201);
        written.etag.expect("it has one")
    };
    let node = Node::start(data.path(), &[]);
    put(node.address(), "key", "first");
    ok(backup(&node, to));
    let before = replace(node.address(), "second");
    drop(node);
    let restored = Node::start(empty.path(), &[]);
    ok(dendra(["restore", "--admin", &restored.admin, to]));
    assert_ne!(replace(restored.address(), "other"), before);
}

fn locks(bucket: &TestBucket) -> usize {
    let files = bucket.files();
    files.keys().filter(|name| name.contains("locks/")).count()
}

#[test]
fn credentials_that_may_only_read_are_enough_to_verify_and_restore() {
    let bucket = TestBucket::start();
    let data = folder();
    let node = Node::start(data.path(), &[]);
    put(node.address(), "key", "value");
    let to = "s3://bucket/a";
    ok(bucket.command(backup(&node, to)));
    // The name of a prune that died: a command that may only read cannot remove it.
    bucket.put("a/locks/alone-00000000000000bb", b"", 3_600);
    bucket.set(Fault::ReadOnly);
    ok(bucket.command(dendra(["backup", "list", to])));
    ok(bucket.command(dendra(["backup", "verify", to])));
    let empty = folder();
    let restored = Node::start(empty.path(), &[]);
    ok(bucket.command(dendra(["restore", "--admin", &restored.admin, to])));
    assert_eq!(value(restored.address(), "key"), "value");
    for mut command in [
        bucket.command(backup(&node, to)),
        bucket.command(dendra(["backup", "prune", to, "--keep", "1"])),
    ] {
        let refused = run(&mut command);
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("403"), "{}", refused.stderr);
    }
    // A prune that lives is not overlooked.
    bucket.put("a/locks/alone-00000000000000bb", b"", 1);
    let beside = run(&mut bucket.command(dendra(["backup", "verify", to])));
    assert!(beside.stderr.contains("prune` runs"), "{}", beside.stderr);
}

#[test]
fn a_prune_that_was_taken_for_dead_removes_no_object() {
    let bucket = TestBucket::start();
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let to = "s3://bucket/a";
    for value in ["old", "new"] {
        put(node.address(), "key", value);
        ok(bucket.command(backup(&node, to)));
    }
    let objects = || {
        let files = bucket.files().into_keys();
        files.filter(|name| name.contains("objects/")).count()
    };
    let before = objects();
    let prune = || bucket.command(dendra(["backup", "prune", to, "--keep", "1"]));
    bucket.set(Fault::Forgets);
    let stopped = run(&mut prune());
    assert_eq!(stopped.code, Some(1), "{}", stopped.stderr);
    assert!(
        stopped.stderr.contains("taken for dead"),
        "{}",
        stopped.stderr
    );
    assert_eq!(objects(), before);
    bucket.set(Fault::None);
    ok(prune());
    assert!(objects() < before);
    // A backup removes the name of a prune that died, so that it cannot go on.
    bucket.put("a/locks/alone-00000000000000bb", b"", 3_600);
    ok(bucket.command(backup(&node, to)));
    assert_eq!(locks(&bucket), 0);
}

#[test]
fn the_variable_with_all_admin_ports_names_one_for_the_cluster_as_well() {
    let node = ScriptedNode::start(|_, _| answer("404 Not Found", &[], b"it is asked"));
    let mut status = dendra(["cluster", "status"]);
    status.env(
        "DENDRA_ADMIN_URLS",
        format!("{},http://[::1]:1", node.url()),
    );
    let said = run(&mut status);
    assert!(!node.requests().is_empty(), "{}", said.stderr);
}
