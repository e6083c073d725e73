//! Profiles of a real node that works: every kind of thread is there, all measures at once, one of
//! each at a time.

use crate::support::http::Client;
use crate::support::{Node, Run, dendra, finish, run};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts values of 16 KiB over one connection until told to stop. Refusals under pressure are fine.
fn write_on(node: &Node, own: usize, stop: &AtomicBool) {
    let mut client = Client::open(node.address()).expect("the node listens");
    let value = vec![b'v'; 16 << 10];
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let answer = client.ask("PUT", &format!("{own}-{n}"), &[], &value);
        answer.expect("the node answers");
    }
}

fn folded(run: &Run) -> String {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    String::from_utf8(run.stdout.clone()).expect("folded stacks are text")
}

fn node(data: &Path) -> Node {
    let flags = [
        "--memory",
        "16MiB",
        "--durability",
        "os",
        "--value-bytes-max",
        "64KiB",
    ];
    Node::start(data, &flags)
}

/// Takes all four measures of `node` at once under load; returns the missing parts.
fn missing(node: &Node) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let runs = std::thread::scope(|scope| {
        let stop = &stop;
        for own in 0..4 {
            scope.spawn(move || write_on(node, own, stop));
        }
        let children = ["--cpu", "--wall", "--alloc", "--lock"].map(|measure| {
            dendra(["profile", &node.admin, measure, "--seconds", "3"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary was built")
        });
        let runs = children.map(finish);
        stop.store(true, Ordering::Relaxed);
        runs
    });
    let [cpu, wall, alloc, lock] = runs.each_ref().map(folded);
    // Locks are waited for or not; the profile is taken, and that is all.
    drop(lock);
    assert!(!alloc.contains("note_watched"), "the hook is cut: {alloc}");
    let is_there = |folded: &str, kind: &str, place: &str| {
        let mut lines = folded.lines();
        lines.any(|line| line.starts_with(&format!("{kind};")) && line.contains(place))
    };
    for (profile, kind, place) in [
        (&wall, "loop", "epoll_wait"),
        (&wall, "worker", "dendra_server::disk::store_pool::"),
        (&wall, "wal", "dendra_server::disk::wal_thread::"),
        // Of the server's `maintenance` or the engine's `maintain`: an inlined function has no path
        // in its name.
        (&wall, "flush", "maint"),
        (&wall, "compact", "maint"),
        (&wall, "admin", ""),
        (&cpu, "loop", ""),
        (&alloc, "loop", ""),
        (&alloc, "loop", "dendra_engine::"),
    ] {
        if !is_there(profile, kind, place) {
            return Err(format!("{place:?} of {kind} is not in {profile}"));
        }
    }
    let bytes = alloc
        .lines()
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    let bytes: u64 = bytes.sum();
    // One sample stands for so many at least.
    assert!(bytes >= 512 << 10, "{alloc}");
    Ok(())
}

#[test]
fn all_measures_of_a_node_under_load_can_be_taken_at_once() {
    let data = tempfile::tempdir().expect("there is room");
    let node = node(data.path());
    assert_eq!(node.run(["put", "kept", "v"]).code, Some(0));
    // How much a node does in three seconds, and so which thread is seen, is the machine's affair.
    let errors: Vec<String> = (0..5).map_while(|_| missing(&node).err()).collect();
    assert!(errors.len() < 5, "{errors:#?}");
    assert_eq!(node.run(["get", "kept"]).code, Some(0), "it serves on");
}

#[test]
fn a_second_profile_of_a_kind_is_refused_while_the_first_is_taken() {
    let data = tempfile::tempdir().expect("there is room");
    let node = node(data.path());
    let mut admin = Client::open(node.admin_address()).expect("the admin plane listens");
    // The second one is refused; which of the two that is, the machine decides.
    let refused = (0..20).find_map(|_| {
        let long = "/debug/profile/alloc?seconds=5";
        admin.send("GET", long, &[], b"").expect("it listens");
        let short = run(&mut dendra([
            "profile",
            &node.admin,
            "--alloc",
            "--seconds",
            "1",
        ]));
        let first = admin.read().expect("it answers");
        assert!(matches!(first.status, 200 | 409), "{first:?}");
        assert!(matches!(short.code, Some(0 | 5)), "{}", short.stderr);
        (short.code == Some(5)).then_some(short)
    });
    let refused = refused.expect("one of twenty comes while another one is taken");
    assert!(
        refused.stderr.contains("ask again when it has ended"),
        "{}",
        refused.stderr
    );
}
