//! Backups in object storage, and encrypted ones: the records that come back, and the reports about
//! a storage that is busy, full, loses, lies, or cuts.
//!
//! Invariants
//! 1. No command ends with 0 when the storage did wrong.
//!
//! Not here: backups in folders (`backup.rs`), bytes of objects (`../src/backup/`).
//! See: docs/format/backup.md, docs/operating.md.

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use support::backups::folder;
use support::bucket::{Fault, TestBucket};
use support::http::Client;
use support::{Node, Run, dendra, run};

const KEYS: usize = 150;

/// A value that can be found in the stored bytes, unless it is encrypted.
fn value(n: usize) -> Vec<u8> {
    let mut prng = dendra_base::Prng::new(n as u64);
    let mut value = format!("the value of {n} ").into_bytes();
    value.extend((0..n * 40).map(|_| prng.next_u64() as u8));
    value
}

fn fill(address: SocketAddr) {
    let mut client = Client::open(address).expect("it listens");
    for n in 0..KEYS {
        let answer = client.ask("PUT", &format!("key-{n}"), &[], &value(n));
        assert_eq!(answer.expect("it is there").status, 201);
    }
}

fn check(address: SocketAddr) {
    let mut client = Client::open(address).expect("it listens");
    for n in 0..KEYS {
        let answer = client.ask("GET", &format!("key-{n}"), &[], b"");
        assert_eq!(answer.expect("it is there").body, value(n), "key-{n}");
    }
}

fn ok(mut command: Command) -> Run {
    let run = run(&mut command);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

fn refused(mut command: Command, words: &str) {
    let run = run(&mut command);
    assert!(!matches!(run.code, Some(0) | None), "{}", run.stderr);
    let said = format!("{}{}", run.stderr, String::from_utf8_lossy(&run.stdout));
    assert!(said.contains(words), "{words:?}: {said}");
}

fn backup(node: &Node, to: &str) -> Command {
    dendra(["backup", "--admin", &node.admin, "--json", to])
}

fn moved(run: &Run) -> (u64, u64) {
    let page: serde_json::Value = serde_json::from_slice(&run.stdout).expect("an object");
    let number = |name: &str| page[name].as_u64().expect("a number");
    (number("bytes"), number("moved_bytes"))
}

const TO: &str = "s3://bucket/a/b";

#[test]
fn a_backup_in_object_storage_is_listed_verified_pruned_and_restored() {
    let bucket = TestBucket::start();
    bucket.put("a/other", b"of someone else", 0);
    let data = folder();
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    let (bytes, first) = moved(&ok(bucket.command(backup(&node, TO))));
    assert_eq!(bytes, first);
    let (bytes, second) = moved(&ok(bucket.command(backup(&node, TO))));
    assert!(second < bytes / 2, "{second} of {bytes} moved again");
    let list = ok(bucket.command(dendra(["backup", "list", TO])));
    assert_eq!(String::from_utf8_lossy(&list.stdout).lines().count(), 2);
    let whole = ok(bucket.command(dendra(["backup", "verify", TO])));
    assert!(whole.stderr.contains("whole: "), "{}", whole.stderr);
    let before = bucket.files().len();
    ok(bucket.command(dendra(["backup", "prune", TO, "--keep", "1"])));
    assert!(bucket.files().len() < before);
    let restored = folder();
    let restored = Node::start(restored.path(), &[]);
    ok(bucket.command(dendra(["restore", "--admin", &restored.admin, TO])));
    check(restored.address());
    let files = bucket.files();
    assert!(files.contains_key("a/other"));
    let uses = files.keys().filter(|name| name.contains("locks/"));
    assert_eq!(uses.count(), 0, "no use is left");
}

#[test]
fn a_storage_that_does_wrong_is_named_and_a_busy_one_is_asked_again() {
    let bucket = TestBucket::start();
    let data = folder();
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    let mut stranger = bucket.command(backup(&node, TO));
    stranger.env("AWS_SECRET_ACCESS_KEY", "a guess");
    refused(stranger, "403");
    let mut without_key = bucket.command(backup(&node, TO));
    without_key.env_remove("AWS_ACCESS_KEY_ID");
    refused(without_key, "AWS_ACCESS_KEY_ID is not set");
    refused(bucket.command(backup(&node, "s3://")), "names no bucket");
    refused(
        bucket.command(dendra(["backup", "list", TO])),
        "is no folder of backups",
    );
    refused(bucket.command(backup(&node, "s3://elsewhere/a")), "404");

    bucket.set(Fault::Full);
    refused(bucket.command(backup(&node, TO)), "it is full: make room");
    bucket.set(Fault::None);
    let listed = ok(bucket.command(dendra(["backup", "list", TO])));
    assert!(listed.stdout.is_empty(), "a backup without its files");
    bucket.set(Fault::Loses);
    refused(bucket.command(backup(&node, TO)), "");
    bucket.set(Fault::Busy);
    ok(bucket.command(backup(&node, TO)));
    ok(bucket.command(dendra(["backup", "verify", TO])));
    let restore = |admin: &str| bucket.command(dendra(["restore", "--admin", admin, TO]));
    for fault in [Fault::Lies, Fault::Cuts] {
        bucket.set(fault);
        refused(bucket.command(dendra(["backup", "verify", TO])), "");
        let empty = folder();
        let empty = Node::start(empty.path(), &[]);
        refused(restore(&empty.admin), "");
    }
    bucket.set(Fault::None);
    // Objects that vanished are named, and copied anew.
    let files = bucket.files().into_iter();
    let objects = files.filter(|(name, _)| name.contains("objects/"));
    // A table: this backup needs it, and the next one, too.
    let object = objects.max_by_key(|(_, bytes)| bytes.len());
    let (object, _) = object.expect("there are some");
    bucket.remove(&object);
    refused(
        bucket.command(dendra(["backup", "verify", TO])),
        "it is missing",
    );
    ok(bucket.command(backup(&node, TO)));
    ok(bucket.command(dendra(["backup", "verify", TO])));
    let empty = folder();
    let empty = Node::start(empty.path(), &[]);
    ok(restore(&empty.admin));
    check(empty.address());
    // A storage that is gone.
    let mut gone = bucket.command(backup(&node, TO));
    gone.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
    refused(gone, "127.0.0.1:9");
}

#[test]
fn a_prune_waits_for_what_uses_the_storage_and_not_for_what_died() {
    let bucket = TestBucket::start();
    let data = folder();
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    ok(bucket.command(backup(&node, TO)));
    let prune = || bucket.command(dendra(["backup", "prune", TO, "--keep", "1"]));
    bucket.put("a/b/locks/shared-00000000000000aa", b"", 300);
    refused(prune(), "prune when it is done");
    ok(bucket.command(dendra(["backup", "verify", TO])));
    bucket.put("a/b/locks/shared-00000000000000aa", b"", 3_600);
    ok(prune());
    assert!(!bucket.files().keys().any(|name| name.contains("locks/")));
    bucket.put("a/b/locks/alone-00000000000000bb", b"", 1);
    refused(bucket.command(backup(&node, TO)), "runs; try again");
}

fn holds(files: impl Iterator<Item = Vec<u8>>, part: &[u8]) -> bool {
    let mut files = files;
    files.any(|file| file.windows(part.len()).any(|it| it == part))
}

fn files_of(of: &Path) -> Vec<Vec<u8>> {
    let (mut folders, mut found) = (vec![of.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(std::fs::read(path).expect("it is there"))
            }
        }
    }
    found
}

#[test]
fn an_encrypted_backup_tells_nothing_without_its_key_and_everything_with_it() {
    let (data, place) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    let path = |name: &str| place.path().join(name).to_str().expect("text").to_owned();
    let (key, other, to) = (path("key"), path("other"), path("backups"));
    ok(dendra(["backup", "key", &key]));
    ok(dendra(["backup", "key", &other]));
    refused(dendra(["backup", "key", &key]), "is there already");
    let with = |mut command: Command, key: &str| {
        command.args(["--backup-key", key]);
        command
    };
    let (bytes, first) = moved(&ok(with(backup(&node, &to), &key)));
    assert_eq!(bytes, first);
    let (_, second) = moved(&ok(with(backup(&node, &to), &key)));
    assert!(
        second < bytes / 2,
        "tables that are there do not move again"
    );
    let told = node.admin.trim_start_matches("http://").as_bytes();
    for part in [&b"the value of 1"[..], b"key-149", told] {
        assert!(!holds(files_of(Path::new(&to)).into_iter(), part));
    }
    ok(with(dendra(["backup", "verify", &to]), &key));
    for verb in ["list", "verify"] {
        refused(
            dendra(["backup", verb, &to]),
            "give its file with --backup-key",
        );
        let wrong = with(dendra(["backup", verb, &to]), &other);
        refused(wrong, "and the file holds the key");
    }
    refused(backup(&node, &to), "give its file with --backup-key");
    refused(
        with(dendra(["backup", "verify", &to]), &path("none")),
        "cannot be read",
    );
    let plain = path("plain");
    ok(backup(&node, &plain));
    refused(with(backup(&node, &plain), &key), "is not encrypted");
    ok(with(dendra(["backup", "prune", &to, "--keep", "1"]), &key));
    ok(with(dendra(["backup", "verify", &to]), &key));
    let empty = folder();
    let empty = Node::start(empty.path(), &[]);
    refused(
        dendra(["restore", "--admin", &empty.admin, &to]),
        "--backup-key",
    );
    ok(with(
        dendra(["restore", "--admin", &empty.admin, &to]),
        &key,
    ));
    check(empty.address());

    // In a bucket it is the same.
    let bucket = TestBucket::start();
    let to = "s3://bucket";
    ok(bucket.command(with(backup(&node, to), &key)));
    assert!(!holds(bucket.files().into_values(), b"the value of 1"));
    ok(bucket.command(with(dendra(["backup", "verify", to]), &key)));
    // The storage exchanges two objects of one length, and a manifest for another one.
    let whole = bucket.files();
    let mut objects = whole
        .iter()
        .filter(|(name, _)| name.starts_with("objects/"));
    let (first, second) = (objects.next(), objects.next());
    let (first, second) = (first.expect("one"), second.expect("another"));
    bucket.put(first.0, second.1, 0);
    let verify = || bucket.command(with(dendra(["backup", "verify", to]), &key));
    refused(verify(), "is another object's");
    bucket.put(first.0, first.1, 0);
    ok(verify());
    let manifest = whole.iter().find(|(name, _)| name.starts_with("backups/"));
    let (_, bytes) = manifest.expect("one");
    bucket.put("backups/20990101T000000.000Z-00000001.json", bytes, 0);
    refused(verify(), "is another backup's");
}
