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
    all, backup, client, fill, folder, held, niceness, objects, ok, page_of, put, refused, restore,
    verify,
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
fn a_prune_removes_nothing_while_a_backup_cannot_be_listed() {
    let (data, backups) = (folder(), folder());
    let to = backups.path();
    let node = Node::start(data.path(), &[]);
    let manifests = || {
        let files = fs::read_dir(to.join("backups")).expect("a folder");
        files.map(|it| it.expect("a file").path()).max()
    };
    let mut made = Vec::new();
    for n in 0..3 {
        put(&mut client(node.address()), "key", &[], &[n]);
        ok(backup(&node.admin, to, &[]));
        made.push(manifests().expect("there is one"));
    }
    let before = objects(to);
    let prune = || run(dendra(["backup", "prune", "--keep", "1"]).arg(to));
    // An old one, and the one that stays: its bytes are of a later release, or damaged.
    for path in [&made[0], &made[2]] {
        let whole = fs::read(path).expect("it is there");
        fs::write(path, &whole[..whole.len() - 9]).expect("room");
        let pruned = prune();
        assert_eq!(pruned.code, Some(1), "{}", pruned.stderr);
        refused(&pruned, "or remove it by hand");
        assert!(made.iter().all(|path| path.exists()));
        assert_eq!(objects(to), before);
        fs::write(path, whole).expect("room");
    }
    // The way out, as the sentence says it.
    fs::write(&made[0], b"{").expect("room");
    fs::remove_file(&made[0]).expect("it is there");
    ok(prune());
    assert_eq!(manifests().as_ref(), Some(&made[2]));
    assert!(!made[1].exists() && objects(to).len() < before.len());
    ok(verify(to));
}

#[test]
fn nothing_is_made_where_a_share_is_not_mounted_and_the_next_backup_goes_on() {
    let (data, backups) = (folder(), folder());
    let (to, gone) = (backups.path().join("to"), backups.path().join("gone"));
    let node = Node::start(data.path(), &[]);
    let first = backup(&node.admin, &to, &["--existing"]);
    assert_eq!(first.code, Some(2), "{}", first.stderr);
    assert!(!to.exists(), "the first one is made without the flag");
    let keys = fill(node.address());
    ok(backup(&node.admin, &to, &[]));
    fs::rename(&to, &gone).expect("a new name");
    // The mount point stays.
    fs::create_dir(&to).expect("room");
    let away = backup(&node.admin, &to, &["--existing"]);
    assert_eq!(away.code, Some(2), "{}", away.stderr);
    refused(&away, "Is it mounted?");
    let below = fs::read_dir(&to).expect("a folder").count();
    assert_eq!(below, 0, "files below the mount point");
    fs::remove_dir(&to).expect("it is empty");
    fs::rename(&gone, &to).expect("a new name");
    put(&mut client(node.address()), "later", &[], b"a little");
    let taken = ok(backup(&node.admin, &to, &["--existing", "--json"]));
    assert_eq!(page_of(&taken)["incremental"], true);
    let before = all(node.address(), &keys);
    for thread in ["checkpoints-0", "checkpoints-1"] {
        let is = niceness(node.pid(), thread);
        assert_eq!(is, 15, "{thread} yields to clients");
    }
    assert!(niceness(node.pid(), "loop-0") < 15);
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(&to, &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
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
