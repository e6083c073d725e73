//! Backups and restores that are cut: killed, without room, without a destination or a node. They
//! say so, and go on when they are run again.
//!
//! Not here: restores that go on by themselves (`restore.rs`).
//! See: docs/format/backup.md.

mod support;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use support::backups::{
    all, backup, client, fill, folder, niceness, noise, objects, ok, put, refused, restore, verify,
};
use support::http::PATIENCE;
use support::{Node, dendra, run};

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
            // A checkpoint makes a table of the records in memory.
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
            support::rest();
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
            let held = fs::read_dir(data.path().join("checkpoints")).expect("some are held");
            let held = held.flatten().next().expect("some are held").file_name();
            support::kill_process(node.pid());
            node.reap();
            node = Node::start(data.path(), &[]);
            assert!(!data.path().join("checkpoints").exists());
            let part = held.to_str().expect("digits");
            let part = format!("/v0/checkpoints/{part}/CURRENT?offset=0&bytes=1");
            let gone = client(node.admin_address()).request("GET", &part, &[], b"");
            let gone = String::from_utf8(gone.expect("an answer").body).expect("text");
            assert!(gone.contains("the node was started again"), "{gone}");
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
        support::rest();
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
    // A part of it goes away, or a share is unmounted and its mount point stays.
    let (share, away) = (backups.path().join("share"), backups.path().join("away"));
    let places = [share.join("objects"), share.clone()];
    for (place, is_share) in places.iter().zip([false, true]) {
        let child = dendra([
            "backup",
            "--admin",
            &node.admin,
            "--bytes-per-second",
            "256KiB",
        ])
        .arg(&share)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
        let deadline = Instant::now() + PATIENCE;
        while !share.join("dendra-backups").exists() || !is_begun(&share) {
            assert!(Instant::now() < deadline, "the backup hangs");
            support::rest();
        }
        fs::rename(place, &away).expect("a new name");
        if is_share {
            fs::create_dir(&share).expect("room");
        }
        let ended = support::finish(child);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("run the same command again"),
            "{}",
            ended.stderr
        );
        if is_share {
            assert!(ended.stderr.contains("unmounted"), "{}", ended.stderr);
            fs::remove_dir(&share).expect("nothing was made below the mount point");
        }
        fs::rename(&away, place).expect("a new name");
        // The file that was being written: the next one must be seen.
        for left in fs::read_dir(share.join("objects")).expect("a folder") {
            let left = left.expect("an entry").path();
            if left.is_file() {
                fs::remove_file(left).expect("it is there");
            }
        }
    }
    let backups = share;
    ok(backup(&node.admin, &backups, &[]));
    let data_port = backup(&node.url, &backups, &[]);
    assert_eq!(data_port.code, Some(1), "{}", data_port.stderr);
    let named = data_port.stderr.contains("address of `serve --admin`");
    assert!(named, "{}", data_port.stderr);
    let admin = node.admin.clone();
    drop(node);
    let away = backup(&admin, &backups, &[]);
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

    let disk = SmallDisk::new("56m").expect("it worked before");
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
