//! `dendra copy` between real processes: while clients write, through kills, and against strangers'
//! writes.
//!
//! ```text
//! writers ─► FROM: a node, or three members ─► dendra copy (killed, resumed) ─► TO: three members, or a node
//! ```
//!
//! Invariants
//! 1. A test judges the copy by the stores themselves, and not by the output of the copy alone.
//! 2. No wait is for a time: a copy that must be caught in the middle is slow by its own flag.
//!
//! Not here: one index, one state (unit tests of `../../src/copy`).
//! See: docs/moving.md.

use crate::support::cluster::Cluster;
use crate::support::http::PATIENCE;
use crate::support::moves::{assert_equal, client, content, copy, delete, fill, put, urls};
use crate::support::{Node, Reply, Run, ScriptedNode, answer, dendra, finish, run, run_with_input};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Slow enough that a kill comes in the middle: the least that the flag takes.
const SLOW: [&str; 2] = ["--bytes-per-second", "64KiB"];

fn start(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary was built")
}

/// A client that writes, deletes and lets expire until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Writer {
    fn start(address: SocketAddr, keys: usize) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut client = client(address);
            let mut count = 0;
            while !asked.load(Ordering::Relaxed) {
                let key = format!("k%00{:06}%ff", (count * 7919) % keys);
                match count % 5 {
                    0 => delete(&mut client, &key),
                    1 => put(&mut client, &key, "&ttl=1", b"short"),
                    2 => put(&mut client, &key, "&ttl=1000", b"long"),
                    3 => put(&mut client, &format!("new-{count}"), "", b"new"),
                    _ => put(&mut client, &key, "", format!("changed {count}").as_bytes()),
                }
                count += 1;
            }
            count
        });
        Writer { stop, thread }
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no write failed")
    }
}

/// Waits until TO holds a few of the records, and not all: the copy is in the middle.
fn wait_until_under_way(address: SocketAddr, at_least: usize) {
    let deadline = Instant::now() + PATIENCE;
    let mut client = client(address);
    loop {
        let target = "/v0/entities?start=k&keys-only=true&limit=100000";
        let answer = client.request("GET", target, &[], b"");
        // Each record ends in a line feed, and the reader adds one for each chunk.
        let lines = answer.map_or(0, |a| a.body.iter().filter(|b| **b == b'\n').count() / 2);
        if lines >= at_least {
            return;
        }
        assert!(Instant::now() < deadline, "nothing is copied");
        crate::support::rest();
    }
}

#[test]
fn a_node_moves_to_three_members_under_writes_deletes_and_times_to_live() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(&folder.path().join("from"), &[]);
    fill(node.address(), 1500);
    let mut writes = client(node.address());
    put(&mut writes, "ttl", "&ttl=5000", b"ends");
    let cluster = Cluster::start(&[]);
    let (to, state) = (urls(&cluster), folder.path().join("state"));
    let writer = Writer::start(node.address(), 1500);
    let followed = run(&mut copy(&node.url, &to, &state, &[]));
    assert_eq!(followed.code, Some(0), "{}", followed.stderr);
    assert!(followed.stderr.contains("round 1"), "{}", followed.stderr);
    assert!(writer.end() > 100, "the copy met writes");
    // Records that the copy knows, deleted and changed behind it.
    delete(&mut writes, "k%00000002%ff");
    put(&mut writes, "k%00000003%ff", "", b"last");
    let done = run(&mut copy(
        &node.url,
        &to,
        &state,
        &["--cut-over", "--sealed"],
    ));
    let first = to.split(',').next().expect("three");
    assert_equal(&done, &node.url, first);
    let expires = |address: SocketAddr| -> u64 {
        let run = run(&mut dendra([
            "get",
            "ttl",
            "--json",
            "--url",
            &format!("http://{address}"),
        ]));
        let object: serde_json::Value = serde_json::from_slice(&run.stdout).expect("an object");
        object["expires_ms"].as_u64().expect("it ends")
    };
    let (a, b) = (expires(node.address()), expires(cluster.listen[0]));
    assert!(b >= a && b - a <= 2000, "up to a second later: {a} {b}");
    let again = run(&mut copy(&node.url, &to, &state, &[]));
    assert_eq!(again.code, Some(2), "a copy that was cut over is over");
}

#[test]
fn metadata_moves_with_its_value_and_its_loss_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    let state = folder.path().join("state");
    let lines = ["Content-Type: text/css", "Dendra-Meta-Owner: Zo\u{eb}"];
    let mut writes = client(from.address());
    let wrapped = b"\xf5dm\xff\x01\0\0 looks wrapped";
    for (key, headers, value) in [("a", &lines[..], &b"a{}"[..]), ("b", &[], wrapped)] {
        let stored = writes.ask("PUT", key, headers, value).expect("an answer");
        assert_eq!(stored.status, 201);
    }
    let done = run(&mut copy(&from.url, &to.url, &state, &[]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let compare = || run(&mut copy(&from.url, &to.url, &state, &["--compare"]));
    assert_equal(&compare(), &from.url, &to.url);
    let got = run(&mut dendra(["get", "a", "--json", "--url", &to.url]));
    let object: serde_json::Value = serde_json::from_slice(&got.stdout).expect("an object");
    assert_eq!(object["content_type"], "text/css");
    assert_eq!(object["meta"], serde_json::json!({"owner": "Zo\u{eb}"}));
    put(&mut client(to.address()), "a", "", b"a{}");
    let found = compare();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(
        found.code == Some(1) && text.contains("a\tanother value"),
        "{text}"
    );
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    let state = folder.path().join("state");
    fill(from.address(), 3000);
    let mut writes = client(from.address());
    for (kill, at_least) in [50, 700, 900].into_iter().enumerate() {
        let child = start(&mut copy(&from.url, &to.url, &state, &SLOW));
        wait_until_under_way(to.address(), at_least);
        crate::support::kill_process(child.id());
        let ended = finish(child);
        assert_eq!(ended.code, None, "{}", ended.stderr);
        assert!(content(&to.url).len() < 3000, "it was in the middle");
        // Records that the killed run may have copied without a note change and go.
        for i in (kill..at_least).step_by(5) {
            put(
                &mut writes,
                &format!("k%00{i:06}%ff"),
                "",
                format!("{kill}").as_bytes(),
            );
            delete(&mut writes, &format!("k%00{:06}%ff", i + 2));
        }
    }
    let done = run(&mut copy(
        &from.url,
        &to.url,
        &state,
        &["--cut-over", "--sealed"],
    ));
    assert!(done.stderr.contains("going on in round"), "{}", done.stderr);
    assert_equal(&done, &from.url, &to.url);
}

#[test]
fn the_copy_goes_on_when_a_member_of_the_source_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(&[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    fill(cluster.listen[1], 700);
    let state = folder.path().join("state");
    let flags = [&SLOW[..], &["--cut-over", "--sealed"]].concat();
    let child = start(&mut copy(&urls(&cluster), &to.url, &state, &flags));
    wait_until_under_way(to.address(), 100);
    cluster.kill(0);
    let done = finish(child);
    assert_equal(&done, &format!("http://{}", cluster.listen[1]), &to.url);
}

#[test]
fn a_comparison_finds_what_was_planted_and_the_copy_replaces_no_strangers_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    fill(from.address(), 600);
    let state = folder.path().join("state");
    let followed = run(&mut copy(&from.url, &to.url, &state, &[]));
    assert_eq!(followed.code, Some(0), "{}", followed.stderr);
    let compare = || run(&mut copy(&from.url, &to.url, &state, &["--compare"]));
    assert_equal(&compare(), &from.url, &to.url);
    let mut stranger = client(to.address());
    put(&mut stranger, "k%00000010%ff", "", b"planted");
    delete(&mut stranger, "k%00000020%ff");
    put(&mut stranger, "zzz", "", b"planted");
    let found = compare();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.code, Some(1), "{text}");
    for line in [
        "k%00000010%FF\tanother value",
        "k%00000020%FF\tonly at FROM",
        "zzz\tonly at TO",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(found.stderr.contains("3 records"), "{}", found.stderr);
    // FROM writes the same key: the copy may not replace a record that it did not write.
    put(&mut client(from.address()), "k%00000010%ff", "", b"newer");
    // A second run is as careful as the first one.
    for _ in 0..2 {
        let refused = run(&mut copy(&from.url, &to.url, &state, &[]));
        let text = refused.stderr;
        assert_eq!(refused.code, Some(4), "{text}");
        let is_named = |key: &str| text.contains(&format!("k\\x00{key}"));
        assert!(is_named("000010") || is_named("000020"), "{text}");
        let there = content(&to.url);
        assert_eq!(there["6b00303030303130ff"], "706c616e746564", "untouched");
        assert_eq!(there["7a7a7a"], "706c616e746564", "untouched");
    }
    let flags = ["--overwrite", "--cut-over", "--sealed"];
    let done = run(&mut copy(&from.url, &to.url, &state, &flags));
    assert_equal(&done, &from.url, &to.url);
}

#[test]
fn a_stranger_that_writes_to_the_target_during_the_last_steps_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    fill(from.address(), 300);
    let state = folder.path().join("state");
    assert_eq!(
        run(&mut copy(&from.url, &to.url, &state, &[])).code,
        Some(0)
    );
    // The same value, so that only the version tells.
    put(&mut client(to.address()), "k%00000002%ff", "", &[b'v'; 100]);
    let done = run(&mut copy(
        &from.url,
        &to.url,
        &state,
        &["--cut-over", "--sealed"],
    ));
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("k%00000002%FF\twritten to TO"), "{text}");
}

#[test]
fn a_cut_over_whose_writers_go_on_is_never_called_equal() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    fill(from.address(), 400);
    let state = folder.path().join("state");
    let writer = Writer::start(from.address(), 400);
    let flags = ["--cut-over", "--sealed"];
    let refused = run(&mut copy(&from.url, &to.url, &state, &flags));
    writer.end();
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    // Short times to live of the writer end by themselves.
    let done = run(&mut copy(&from.url, &to.url, &state, &flags));
    assert_equal(&done, &from.url, &to.url);
}

#[test]
fn what_cannot_be_copied_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    fill(from.address(), 20);
    put(&mut client(from.address()), "other", "", b"x");
    let state = |name: &str| folder.path().join(name);
    let code = |run: &Run, code: i32, word: &str| {
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
    };
    let same = run(&mut copy(&from.url, &from.url, &state("a"), &[]));
    code(&same, 2, "the same store");
    // Another name of the same node, and no record in the range that would tell.
    let alias = from.url.replace("127.0.0.1", "localhost");
    let flags = ["--prefix", "nothing-yet"];
    let same = run(&mut copy(&from.url, &alias, &state("b"), &flags));
    code(&same, 2, "the same store");
    let unconfirmed = run(&mut copy(&from.url, &to.url, &state("c"), &["--cut-over"]));
    code(&unconfirmed, 2, "type sealed");
    let used = run(&mut copy(&from.url, &to.url, &state("d"), &[]));
    code(&used, 2, "not empty");
    let other = run(&mut copy(&to.url, &from.url, &state("c"), &[]));
    code(&other, 2, "between other stores");
    let short = ["--cut-over", "--sealed", "--pause-max", "1ms"];
    let late = run(&mut copy(&from.url, &to.url, &state("c"), &short));
    code(&late, 5, "--pause-max");
    let gone = Node::start(&folder.path().join("gone"), &[]);
    let gone_url = gone.url.clone();
    gone.end("KILL");
    let away = run(&mut copy(
        &from.url,
        &gone_url,
        &state("e"),
        &["--retry-for", "100ms"],
    ));
    code(&away, 5, "TO: ");
}

#[test]
fn a_prefix_is_copied_alone_once_the_operator_has_said_that_it_is_sealed() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    let to = Node::start(&folder.path().join("to"), &[]);
    let mut writes = client(from.address());
    for key in ["a", "b/", "b/1", "b/%ff", "b0", "c"] {
        put(&mut writes, key, "", key.as_bytes());
    }
    put(&mut client(to.address()), "mine", "", b"stays");
    let flags = ["--prefix", "b/", "--cut-over"];
    let mut command = copy(&from.url, &to.url, &folder.path().join("state"), &flags);
    let done = run_with_input(&mut command, b"sealed\n");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let keys: Vec<String> = content(&to.url).into_keys().collect();
    assert_eq!(keys, ["622f", "622f31", "622fff", "6d696e65"]);
}

/// A token as `dendra token create` writes it to a file.
fn token(node: &Node, root: &Path, name: &str, role: &str) -> std::path::PathBuf {
    let file = root.with_file_name(name);
    let mut command = dendra(["token", "create", name, "--role", role, "--url", &node.url]);
    command
        .args(["--timeout-ms", "60000", "--prefix", "app/", "--token-file"])
        .arg(root);
    let made = run(command.arg("--out").arg(&file));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    file
}

#[test]
fn each_end_has_its_own_token_for_the_prefix_that_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |name: &str| {
        let root = folder.path().join(format!("{name}-root"));
        let made = run(dendra(["token", "root"]).arg(&root));
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let text = root.to_str().expect("a name").to_owned();
        let node = Node::start(&folder.path().join(name), &["--root-token-file", &text]);
        (node, root)
    };
    let ((from, from_root), (to, to_root)) = (start("from"), start("to"));
    let mut stored = from.command(["put", "app/k", "v", "--token-file"]);
    assert_eq!(run(stored.arg(&from_root)).code, Some(0));
    let reads = token(&from, &from_root, "reads", "read");
    let writes = token(&to, &to_root, "writes", "write");
    let state = folder.path().join("state");
    let flags = ["--prefix", "app/", "--cut-over", "--sealed"];
    let run_with = |to_token: &Path| {
        let mut command = copy(&from.url, &to.url, &state, &flags);
        command.arg("--token-file").arg(&reads);
        run(command.arg("--to-token-file").arg(to_token))
    };
    let refused = run_with(&reads);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("TO: "), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--to-token-file"),
        "{}",
        refused.stderr
    );
    // A new token is known within a second.
    let deadline = Instant::now() + PATIENCE;
    let mut done = run_with(&writes);
    while done.stderr.contains("401") && Instant::now() < deadline {
        done = run_with(&writes);
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.code, Some(0), "{text} {}", done.stderr);
    assert!(text.contains("TO\t1 records"), "{text}");
}

#[test]
fn a_target_without_room_or_rights_ends_the_copy_with_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = Node::start(&folder.path().join("from"), &[]);
    fill(from.address(), 5);
    for (status, body, word) in [
        (
            "507 Insufficient Storage",
            "disk-full: no room",
            "make room there",
        ),
        (
            "403 Forbidden",
            "forbidden: this token reads",
            "--to-token-file",
        ),
        (
            "413 Payload Too Large",
            "value-too-large: x",
            "--value-bytes-max",
        ),
    ] {
        let to = ScriptedNode::start(move |request, _| scripted(&request.line, status, body));
        let state = folder.path().join(&status[..3]);
        let got = run(&mut copy(&from.url, &to.url(), &state, &["--overwrite"]));
        assert_eq!(got.code, Some(1), "{}", got.stderr);
        assert!(got.stderr.contains(word), "{word}: {}", got.stderr);
        assert!(
            got.stderr.contains(body),
            "the store's own words: {}",
            got.stderr
        );
    }
}

/// An empty store that refuses the writes of records, and takes the mark of the copy.
fn scripted(line: &str, status: &'static str, body: &'static str) -> Reply {
    if line.starts_with("GET /v0/entities") {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.dendra.records\r\n\
                    Transfer-Encoding: chunked\r\n\r\n8\r\n";
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(&[0xff; 8]);
        bytes.extend_from_slice(b"\r\n0\r\nDendra-Scan: complete\r\n\r\n");
        return Reply {
            bytes,
            closes: false,
        };
    }
    match line.split(' ').next() {
        Some("PUT") if !line.contains("dendra-copy-mark") => answer(status, &[], body.as_bytes()),
        Some("PUT") => answer("201 Created", &["ETag: \"1\""], b""),
        Some("DELETE") => answer("202 Accepted", &[], b""),
        _ => answer("404 Not Found", &[], b""),
    }
}
