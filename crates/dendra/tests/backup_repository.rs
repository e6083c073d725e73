//! The folder of backups: the files that move into it, those that a prune leaves, and the reports
//! of damage.
//!
//! Invariants
//! 1. No backup with damage is restored.
//!
//! Not here: the restored records (`backup.rs`), object storage (`backup_places.rs`). See:
//! docs/format/backup.md.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;
use support::backups::{
    all, backup, client, fill, folder, held, objects, ok, put, refused, restore, verify,
};
use support::http::PATIENCE;
use support::{Node, dendra, run};

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
fn without_a_manifest_a_prune_removes_no_object() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    ok(backup(&node.admin, backups.path(), &[]));
    let before = objects(backups.path());
    let (manifests, aside) = (backups.path().join("backups"), data.path().join("aside"));
    fs::rename(&manifests, &aside).expect("a folder");
    fs::create_dir(&manifests).expect("room");
    let pruned = run(dendra(["backup", "prune", "--keep", "1"]).arg(backups.path()));
    assert_eq!(pruned.code, Some(3), "{}", pruned.stderr);
    assert!(
        pruned.stderr.contains("has no manifest"),
        "{}",
        pruned.stderr
    );
    assert_eq!(objects(backups.path()), before);
    fs::remove_dir(&manifests).expect("it is empty");
    fs::rename(&aside, &manifests).expect("a folder");
    assert!(ok(verify(backups.path())).stderr.contains("whole"));
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
        // One of the small files may be read no more than once. The records that the command
        // restores are right.
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
        support::rest();
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
