//! A data folder that is taken away from a running node, in each way that an operator's hand can.
//!
//! Invariants
//! 1. Two processes never write to one folder, and no write is acknowledged into one that is gone.
//!
//! Not here: the looks themselves (crate `engine`, `vfs/os.rs`).

use crate::support::mount::Mount;
use crate::support::{Node, Run, dendra, run};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Beyond this it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn second(data: &Path) -> Run {
    let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    run(command.arg("--data").arg(data))
}

fn check(data: &Path) -> Run {
    run(dendra(["check"]).arg(data))
}

/// A signal that does nothing, and the end that the node comes to by itself.
fn ended(node: Node) -> String {
    let (code, log) = node.end("CONT");
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains("ERROR"), "{log}");
    assert!(log.contains("the data folder is lost"), "{log}");
    log
}

#[test]
fn a_removed_lock_file_lets_no_second_node_in_and_comes_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path();
    let node = Node::start(data, &[]);
    assert_eq!(node.run(["put", "before", "1"]).code, Some(0));
    fs::remove_file(data.join("LOCK")).expect("it is there");
    let got = second(data);
    assert_eq!(got.code, Some(3), "{}", got.stderr);
    assert!(
        got.stderr.contains("in use by another process"),
        "{}",
        got.stderr
    );
    let got = check(data);
    assert_eq!(got.code, Some(3), "{}", got.stderr);
    assert!(
        got.stderr.contains("a node runs on this folder"),
        "{}",
        got.stderr
    );
    for n in 0..20 {
        assert_eq!(node.run(["put", &format!("x{n}"), "1"]).code, Some(0));
    }
    let until = Instant::now() + PATIENCE;
    while !data.join("LOCK").exists() {
        assert!(Instant::now() < until, "the lock file does not come back");
        std::thread::yield_now();
    }
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("LOCK was removed from the data folder"),
        "{log}"
    );
    let node = Node::start(data, &[]);
    for n in 0..20 {
        assert_eq!(node.run(["get", &format!("x{n}")]).stdout, b"1");
    }
}

#[test]
fn a_node_whose_folder_is_removed_ends_and_makes_no_new_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let node = Node::start(&data, &[]);
    assert_eq!(node.run(["put", "a", "1"]).code, Some(0));
    fs::remove_dir_all(&data).expect("it is ours");
    let log = ended(node);
    assert!(log.contains("is gone: it was removed"), "{log}");
    assert!(!data.exists());
}

#[test]
fn a_node_whose_folder_is_replaced_leaves_the_new_one_alone_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, moved) = (folder.path().join("data"), folder.path().join("moved"));
    let node = Node::start(&data, &[]);
    assert_eq!(node.run(["put", "a", "1"]).code, Some(0));
    fs::rename(&data, &moved).expect("it is ours");
    fs::create_dir(&data).expect("the name is free");
    fs::write(data.join("CURRENT"), "of another node").expect("a new file");
    let log = ended(node);
    assert!(log.contains("is another one now"), "{log}");
    assert_eq!(fs::read_dir(&data).expect("a folder").count(), 1);
    assert_eq!(check(&moved).code, Some(0));
    let node = Node::start(&moved, &[]);
    assert_eq!(node.run(["get", "a"]).stdout, b"1");
}

#[test]
fn a_node_whose_disk_is_unmounted_lazily_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path().join("disk");
    fs::create_dir(&at).expect("a new name");
    let Some(disk) = Mount::tmpfs(&at, "128m") else {
        eprintln!("not tried: this user may not mount a file system");
        return;
    };
    for is_mount_point in [false, true] {
        let data = if is_mount_point {
            at.clone()
        } else {
            at.join("data")
        };
        let node = Node::start(&data, &["--memory", "64MiB"]);
        assert_eq!(node.run(["put", "a", "1"]).code, Some(0));
        assert!(disk.detach());
        ended(node);
        assert_eq!(fs::read_dir(&at).expect("it is there").count(), 0);
        if !is_mount_point {
            let _stays = std::mem::ManuallyDrop::new(
                Mount::tmpfs(&at, "128m").expect("a moment ago it was allowed"),
            );
        }
    }
}
