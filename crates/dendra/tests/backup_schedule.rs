//! Backups that a node makes by itself: `--backup-to`, `--backup-every`, `--backup-keep`.
//!
//! Invariants
//! 1. Nothing waits for a time: each wait is for what the node shows, its metrics or the folder.
//!
//! Not here: backups that a command makes (`backup.rs`, `increments.rs`).
//! See: docs/operating.md, "Backups".

mod support;

use std::fs;
use support::backups::{all, fill, folder, metric, niceness, ok, restore, wait_for};
use support::{Node, dendra, run};

fn metric_of(node: &Node, name: &str) -> Option<f64> {
    metric(node.admin_address(), name)
}

fn made_by(node: &Node) -> f64 {
    metric_of(node, "dendra_backups_total{outcome=\"made\"}").unwrap_or(0.0)
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
    assert_eq!(metric_of(&restored, "dendra_backup_age_seconds"), None);
}
