//! Backups that a node makes by itself: `--backup-to`, `--backup-every`, `--backup-keep`.
//!
//! Invariants
//! 1. No wait is for a time: each is for a sign of the node, its metrics or the folder.
//!
//! Not here: backups that a command makes (`backup.rs`, `increments.rs`).
//! See: docs/operating.md, "Backups".

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::backups::{
    all, backup, client, fill, folder, metric, niceness, noise, objects, ok, put, restore, verify,
    wait_for,
};
use support::{Node, dendra, run};

fn metric_of(node: &Node, name: &str) -> Option<f64> {
    metric(node.admin_address(), name)
}

fn made_by(node: &Node) -> f64 {
    metric_of(node, "dendra_backups_total{outcome=\"made\"}").unwrap_or(0.0)
}

fn bytes_of<'a>(files: impl Iterator<Item = &'a PathBuf>) -> u64 {
    let sizes = files.map(|path| fs::metadata(path).expect("it is there").len());
    sizes.sum()
}

/// The lines of `list --json` about each backup, the oldest first.
fn listed(of: &Path) -> Vec<serde_json::Value> {
    let list = ok(run(dendra(["backup", "list", "--json"]).arg(of)));
    let lines = String::from_utf8(list.stdout).expect("text");
    let page = |line| serde_json::from_str(line).expect("an object");
    lines.lines().map(page).collect()
}

#[test]
fn scheduled_backups_go_on_from_the_one_before_which_may_be_pruned() {
    let (data, backups) = (folder(), folder());
    let to = backups.path().to_str().expect("text");
    let node = Node::start(data.path(), &[]);
    let mut keys = fill(node.address());
    for n in 0..4 {
        let key = format!("mib-{n}");
        put(&mut client(node.address()), &key, &[], &noise(n, 900_000));
        keys.push(key);
    }
    assert_eq!(node.end("TERM").0, Some(0));
    let flags = ["--backup-every", "1s", "--backup-keep", "2", "--backup-to"];
    let node = Node::start(data.path(), &[&flags[..], &[to]].concat());
    wait_for("no backup is made", || made_by(&node) >= 1.0);
    // Those that follow without a write in between add no file.
    let full: BTreeSet<PathBuf> = objects(backups.path()).into_iter().collect();
    put(&mut client(node.address()), "later", &[], b"a little");
    keys.push("later".to_owned());
    // One may be under way; of the two behind it the first one is pruned behind the next.
    let soon = made_by(&node) + 3.0;
    wait_for("no more backups are made", || made_by(&node) >= soon);
    let before = all(node.address(), &keys);
    assert_eq!(node.end("TERM").0, Some(0));

    let list = listed(backups.path());
    // A stop may cut a prune.
    assert!((1..=3).contains(&list.len()), "{list:?}");
    for page in &list {
        assert_eq!(page["incremental"], true, "{page}");
        let moved = page["moved_bytes"].as_u64().expect("a number");
        assert!(moved * 100 < bytes_of(full.iter()), "{page}");
    }
    let is: BTreeSet<PathBuf> = objects(backups.path()).into_iter().collect();
    assert!(full.is_subset(&is), "the base of those that stay is gone");
    let new = bytes_of(is.difference(&full));
    assert!(new > 0 && new * 100 < bytes_of(full.iter()), "{new} bytes");
    ok(verify(backups.path()));
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(backups.path(), &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
}

#[test]
fn a_node_backs_itself_up_by_its_schedule_and_is_loud_when_it_cannot() {
    let (data, backups) = (folder(), folder());
    let to = backups.path().join("to");
    let flags = ["--backup-every", "1s", "--backup-keep", "2", "--backup-to"];
    let flags = [&flags[..], &[to.to_str().expect("text")]].concat();
    let node = Node::start(data.path(), &flags);
    let keys = fill(node.address());
    let made = || made_by(&node);
    let failed = || metric_of(&node, "dendra_backups_total{outcome=\"failed\"}").unwrap_or(0.0);
    let soon = made() + 4.0;
    wait_for("no backup is made", || made() >= soon);
    assert!(metric_of(&node, "dendra_backup_age_seconds").is_some());
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
    // A share that is unmounted: its mount point stays.
    fs::rename(&to, &gone).expect("a new name");
    fs::create_dir(&to).expect("room");
    // The first one may have begun before.
    wait_for("no failure is counted", || failed() > was + 1.0);
    let below = fs::read_dir(&to).expect("a folder").count();
    assert_eq!(below, 0, "files below the mount point");
    fs::remove_dir(&to).expect("it is empty");
    fs::rename(&gone, &to).expect("a new name");
    let soon = made() + 1.0;
    wait_for("the share is back", || made() >= soon);
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the backup failed"), "{log}");
    assert!(log.contains("is it mounted?"), "{log}");
    let other = folder();
    let restored = Node::start(other.path(), &[]);
    ok(restore(&to, &restored.admin, &[]));
    assert_eq!(all(restored.address(), &keys), before);
    assert_eq!(metric_of(&restored, "dendra_backup_age_seconds"), None);
}

#[test]
fn a_schedule_removes_nothing_while_a_backup_cannot_be_listed() {
    let (data, backups) = (folder(), folder());
    let to = backups.path();
    let node = Node::start(data.path(), &[]);
    fill(node.address());
    ok(backup(&node.admin, to, &[]));
    let old = listed(to)[0]["id"].as_str().expect("a name").to_owned();
    let old = to.join(format!("backups/{old}.json"));
    let before = objects(to);
    assert_eq!(node.end("TERM").0, Some(0));
    // Its bytes are of a later release, or damaged.
    let mut text = fs::read(&old).expect("it is there");
    text.truncate(text.len() - 9);
    fs::write(&old, &text).expect("room");
    let flags = ["--backup-every", "1s", "--backup-keep", "1", "--backup-to"];
    let flags = [&flags[..], &[to.to_str().expect("text")]].concat();
    let node = Node::start(data.path(), &flags);
    let unpruned = || metric_of(&node, "dendra_backup_prunes_failed_total").unwrap_or(0.0);
    wait_for("no prune fails", || unpruned() >= 2.0);
    assert_eq!(fs::read(&old).expect("it stays"), text);
    let is: BTreeSet<PathBuf> = objects(to).into_iter().collect();
    assert!(before.iter().all(|object| is.contains(object)));
    // The way out, as the log says it.
    fs::remove_file(&old).expect("it is there");
    let manifests = || fs::read_dir(to.join("backups")).expect("a folder").count();
    wait_for("old backups stay", || manifests() <= 2);
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("old backups stay: "), "{log}");
    assert!(log.contains("or remove it by hand"), "{log}");
}
