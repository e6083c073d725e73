//! `dendra lock` beside real nodes: one holder at a time, a command that outlives no lease, and
//! exit codes. Touches of large values in a cluster.
//!
//! Invariants
//! 1. No test measures a time: each waits for what must come.
//!
//! See: docs/locks.md.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use support::cluster::Cluster;
use support::{Node, dendra, finish, run, signal, signal_process};

/// A command under a lock, whose lines can be read.
struct Held {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Held {
    fn start(node: &Node, flags: &[&str], script: &str) -> Held {
        Held::at(&node.url, flags, script)
    }

    fn at(url: &str, flags: &[&str], script: &str) -> Held {
        let mut child = locked(url, flags, script);
        let mut child = child.stdin(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Held { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the pipe works");
        line.trim_end().to_owned()
    }

    /// The rest of what the command printed, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.lines
            .read_to_string(&mut rest)
            .expect("the pipe works");
        (rest, finish(self.child).code)
    }
}

/// `dendra lock` with a shell script as the command.
fn locked(url: &str, flags: &[&str], script: &str) -> Command {
    let before = ["lock", "--url", url, "--timeout-ms", "60000", "job"];
    let mut command = dendra([&before, flags, &["--", "sh", "-c", script]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn code(node: &Node, flags: &[&str], script: &str) -> Option<i32> {
    code_at(&node.url, flags, script)
}

fn code_at(url: &str, flags: &[&str], script: &str) -> Option<i32> {
    finish(locked(url, flags, script).spawn().expect("it starts")).code
}

fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Node::start(folder.path(), &[]);
    (folder, node)
}

#[test]
fn a_second_holder_begins_when_the_first_has_ended_and_its_token_is_larger() {
    let (_folder, node) = node();
    let say = "echo $DENDRA_FENCING_TOKEN; read line";
    let mut first = Held::start(&node, &[], say);
    let token = first.line();
    assert_eq!(code(&node, &["--wait", "0s"], "exit 9"), Some(122));
    let mut second = Held::start(&node, &[], "echo $DENDRA_FENCING_TOKEN");
    // The end of its input ends the first command.
    drop(first.child.stdin.take());
    assert_eq!(first.end().1, Some(1), "`read` met the end");
    let later = second.line();
    assert_eq!(second.end().1, Some(0));
    assert_eq!((token.trim().len(), later.len()), (32, 32));
    assert!(
        later.as_str() > token.trim(),
        "{later} is not above {token}"
    );
    // Both gave the lock back.
    let left = node.run(["get", "job"]);
    assert_eq!(left.code, Some(3), "{left:?}");
}

#[test]
fn the_code_of_the_command_is_handed_on_and_others_say_why_there_is_none() {
    let (_folder, node) = node();
    assert_eq!(code(&node, &[], "exit 0"), Some(0));
    assert_eq!(code(&node, &[], "exit 77"), Some(77));
    assert_eq!(code(&node, &[], "kill -KILL $$"), Some(128 + 9));
    let run = |words: &[&str]| node.run([&["lock", "job", "--"], words].concat()).code;
    assert_eq!(run(&["/no/such/command"]), Some(127));
    assert_eq!(run(&["/"]), Some(126));
    assert_eq!(node.run(["lock", "job"]).code, Some(2), "no command");
    assert_eq!(
        code(&node, &["--wait", "0s"], "exit 5"),
        Some(5),
        "given back"
    );
    let nowhere = code_at("http://127.0.0.1:1", &["--wait", "0s"], "exit 0");
    assert_eq!(nowhere, Some(123));
}

#[test]
fn a_lease_that_is_renewed_outlasts_its_time_to_live() {
    let (_folder, node) = node();
    let mut held = Held::start(&node, &["--ttl", "1s"], "echo in; sleep 3; echo out");
    assert_eq!(held.line(), "in");
    assert_eq!(
        code(&node, &["--ttl", "1s", "--wait", "1500ms"], "exit 0"),
        Some(122)
    );
    assert_eq!(held.end(), ("out\n".to_owned(), Some(0)));
}

#[test]
fn a_command_is_stopped_when_its_node_is_frozen_or_its_record_is_gone() {
    let (_folder, node) = node();
    let loops = "trap 'echo told' TERM; echo in; while :; do sleep 0.1; done";
    let mut held = Held::start(&node, &["--ttl", "2s"], loops);
    assert_eq!(held.line(), "in");
    signal_process(node.pid(), "STOP");
    // SIGTERM is not enough for this one: SIGKILL ends it, when the lease is over.
    assert_eq!(held.end(), ("told\n".to_owned(), Some(124)));
    signal_process(node.pid(), "CONT");
    let mut held = Held::start(&node, &["--ttl", "2s"], "echo in; sleep 1000 & wait");
    assert_eq!(held.line(), "in");
    assert_eq!(node.run(["delete", "job"]).code, Some(0));
    assert_eq!(held.end(), (String::new(), Some(124)));
}

#[test]
fn signals_reach_the_command_and_all_that_it_started() {
    let (_folder, node) = node();
    let script = "trap 'echo one' USR1; trap 'echo stop; exit 3' TERM; echo in; \
                  while :; do sleep 0.1; done";
    let mut held = Held::start(&node, &[], script);
    assert_eq!(held.line(), "in");
    signal(&held.child, "USR1");
    assert_eq!(held.line(), "one");
    signal(&held.child, "TERM");
    assert_eq!(held.end(), ("stop\n".to_owned(), Some(3)));
    let mut held = Held::start(&node, &[], "echo in; sleep 1000 & sleep 1000");
    assert_eq!(held.line(), "in");
    signal(&held.child, "INT");
    // The pipe ends: no process that holds it is left.
    let (rest, code) = held.end();
    assert_eq!(rest, "");
    assert!(code.is_some_and(|code| code >= 128), "{code:?}");
    assert_eq!(node.run(["get", "job"]).code, Some(3), "given back");
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    let (_folder, node) = node();
    let mut held = Held::start(&node, &[], "echo in; sleep 1000");
    assert_eq!(held.line(), "in");
    let mut waits = locked(&node.url, &["-v"], "echo never");
    let mut waits = waits.spawn().expect("it starts");
    let mut told = BufReader::new(waits.stderr.take().expect("a pipe"));
    let mut line = String::new();
    // With -v there is a line for each request: it waits now.
    told.read_line(&mut line).expect("the pipe works");
    assert!(line.contains("412"), "{line}");
    let rest = std::thread::spawn(move || told.read_to_string(&mut String::new()));
    signal(&waits, "TERM");
    assert_eq!(finish(waits).code, Some(128 + 15));
    rest.join().expect("no panic").expect("the pipe works");
    signal(&held.child, "TERM");
    assert_eq!(held.end(), (String::new(), Some(128 + 15)));
}

#[test]
fn a_lock_of_three_members_outlasts_one_of_them_and_is_one_lock_at_all_of_them() {
    let mut cluster = Cluster::start(&[]);
    let say = "echo $DENDRA_FENCING_TOKEN; read line";
    let mut held = Held::at(cluster.url(0), &["--ttl", "2s"], say);
    let token = held.line();
    cluster.kill(2);
    let refused = code_at(cluster.url(1), &["--wait", "3s"], "exit 0");
    assert_eq!(refused, Some(122), "it is renewed by two members");
    drop(held.child.stdin.take());
    assert_eq!(held.end().1, Some(1));
    let mut next = Held::at(cluster.url(1), &[], "echo $DENDRA_FENCING_TOKEN");
    let later = next.line();
    assert!(later > token, "{later} is not above {token}");
    assert_eq!(next.end().1, Some(0));
}

#[test]
fn a_large_value_is_touched_through_any_member_and_one_that_was_away_has_it_too() {
    let mut cluster = Cluster::start(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("value");
    let value: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &value).expect("there is room");
    let name = file.to_str().expect("text");
    let ask = |cluster: &Cluster, at: usize, words: &[&str]| {
        let mut command = dendra(words);
        let run = run(command.args(["--timeout-ms", "60000", "--url", cluster.url(at)]));
        assert_eq!(run.code, Some(0), "{words:?} at {at}: {}", run.stderr);
        run
    };
    ask(&cluster, 0, &["put", "large", "--in", name, "--ttl", "60s"]);
    let version = |cluster: &Cluster, at: usize| {
        let run = ask(cluster, at, &["touch", "large", "--ttl", "1h"]);
        run.stderr.trim().to_owned()
    };
    let mut before = version(&cluster, 1);
    cluster.kill(2);
    for at in [0, 1, 0] {
        let after = version(&cluster, at);
        assert_ne!(after, before);
        before = after;
    }
    cluster.restart_until_ready(2);
    cluster.wait_for_all_links();
    let last = version(&cluster, 2);
    let got = ask(&cluster, 2, &["get", "large"]);
    assert!(got.stdout == value, "another value");
    let got = ask(
        &cluster,
        2,
        &["get", "large", "--json", "--out", "/dev/null"],
    );
    let text = String::from_utf8_lossy(&got.stdout).into_owned();
    assert!(text.contains(&last), "{text} {last}");
}
