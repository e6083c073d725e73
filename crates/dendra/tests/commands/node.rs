//! The whole binary: a real node on a real folder, and the commands that talk to it.

use crate::support::{Node, dendra, run, run_with_input};
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{ffi::OsStr, os::unix::fs::PermissionsExt};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn serve(data: &Path, flags: &[&str]) -> crate::support::Run {
    let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
    run(command.arg("--data").arg(data).args(flags))
}

#[test]
fn a_record_lives_from_put_to_delete() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["get", "k"]).code, Some(3), "it is not there yet");
    let put = node.run(["put", "k", "v", "--json"]);
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    let object: serde_json::Value = serde_json::from_slice(&put.stdout).expect("one object");
    let version = object["version"].as_str().expect("a version").to_owned();
    assert_eq!(
        object["receipt"].as_str(),
        Some("acks=1/1; level=linearizable; durability=sync")
    );
    assert_eq!(node.run(["get", "k"]).stdout, b"v");
    assert_eq!(node.run(["put", "k", "w", "--if-absent"]).code, Some(4));
    let changed = node.run(["put", "k", "w", "--if-match", &version]);
    assert_eq!(changed.code, Some(0), "{}", changed.stderr);
    let stale = node.run(["delete", "k", "--if-match", &version]);
    assert_eq!(stale.code, Some(4));
    assert!(
        stale.stderr.contains(changed.stderr.trim()),
        "it names the current version"
    );
    assert_eq!(node.run(["get", "k"]).stdout, b"w");
    assert_eq!(node.run(["delete", "k"]).code, Some(0));
    assert_eq!(node.run(["get", "k"]).code, Some(3));
    let narrow = node.run(["get", "k", "--ack", "2", "--from", "2"]);
    assert_eq!(
        narrow.code,
        Some(1),
        "one node has one copy: {}",
        narrow.stderr
    );
}

#[test]
fn any_bytes_are_a_key_and_a_value() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let bytes: Vec<u8> = (0..=255).collect();
    let key = OsStr::from_bytes(b"\xff+%2F /\t\n?&");
    let put = run_with_input(&mut node.command([OsStr::new("put"), key]), &bytes);
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    assert_eq!(node.run([OsStr::new("get"), key]).stdout, bytes);
    assert_eq!(node.run(["put", "00", "", "--hex"]).code, Some(0));
    let scan = node.run(["scan", "--hex", "--keys-only"]);
    assert_eq!(
        scan.stdout, b"00\nff2b253246202f090a3f26\n",
        "{}",
        scan.stderr
    );
    let expiring = node.run(["put", "t", "v", "--ttl", "3600"]);
    assert_eq!(expiring.code, Some(0), "{}", expiring.stderr);
    let json = node.run(["get", "t", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert!(object["expires_ms"].as_u64().is_some(), "{object}");
}

#[test]
fn a_scan_with_a_limit_shows_that_many_and_succeeds() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(node.run(["put", key, "v"]).code, Some(0));
    }
    let scan = node.run(["scan", "--limit", "2", "--keys-only"]);
    assert_eq!(scan.stdout, b"a\nb\n", "{}", scan.stderr);
    assert_eq!(scan.code, Some(0), "{}", scan.stderr);
    let last = node.run(["scan", "--limit", "1", "--reverse", "--keys-only"]);
    assert_eq!((last.stdout.as_slice(), last.code), (&b"d\n"[..], Some(0)));
}

#[test]
fn metadata_is_put_shown_scanned_and_loaded() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let put = node.run([
        "put",
        "page",
        "<p>",
        "--content-type",
        "text/html",
        "--meta",
        "Owner=Zo\u{eb}",
        "--meta",
        "eq=a=b",
    ]);
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    assert_eq!(node.run(["put", "plain", "v"]).code, Some(0));
    assert_eq!(node.run(["get", "page"]).stdout, b"<p>");
    let object = |run: crate::support::Run| -> serde_json::Value {
        serde_json::from_slice(&run.stdout).expect("an object")
    };
    let meta = serde_json::json!({"owner": "Zo\u{eb}", "eq": "a=b"});
    let shown = object(node.run(["get", "page", "--json"]));
    assert_eq!(
        (&shown["content_type"], &shown["meta"]),
        (&"text/html".into(), &meta)
    );
    let plain = object(node.run(["get", "plain", "--json"]));
    assert!(plain.get("meta").is_none() && plain.get("content_type").is_none());
    let text = node.run(["scan", "--prefix", "page"]);
    assert_eq!(text.stdout, b"page\t<p>\n");
    let lines = node.run(["scan", "--json"]).stdout;
    // One travels alone, the others together.
    let large = format!(
        "{{\"key\":\"large\",\"value\":\"{}\",\"meta\":{{\"n\":\"c\"}}}}\n",
        "v".repeat(70_000)
    );
    let input = [&lines[..], large.as_bytes()].concat();
    let mut load = node.command(["load", "-", "--format", "ndjson", "--prefix", "again/"]);
    let loaded = run_with_input(&mut load, &input);
    assert_eq!(loaded.code, Some(0), "{}", loaded.stderr);
    let again = object(node.run(["get", "again/page", "--json"]));
    assert_eq!(
        (&again["content_type"], &again["meta"]),
        (&"text/html".into(), &meta)
    );
    assert_eq!(again["value"], "<p>");
    let large = object(node.run(["get", "again/large", "--json"]));
    assert_eq!(large["meta"], serde_json::json!({"n": "c"}));
    let wrong = node.run(["put", "page", "v", "--meta", "a b=c"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert!(
        wrong.stderr.contains("`a b` is no name"),
        "{}",
        wrong.stderr
    );
    assert_eq!(node.run(["put", "page", "v", "--meta", "c"]).code, Some(2));
}

#[test]
fn a_folder_is_loaded_and_scanned_back() {
    let data = folder();
    let tree = folder();
    for n in 0..300 {
        let path = tree.path().join(format!("{:02}/{n:03}", n % 7));
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, vec![n as u8; n * 13]).expect("a file");
    }
    fs::write(tree.path().join("large"), vec![1; (1 << 20) + 1]).expect("a file");
    fs::write(tree.path().join("largest"), vec![2; 1 << 20]).expect("a file");
    fs::write(tree.path().join("secret"), b"1").expect("a file");
    fs::set_permissions(
        tree.path().join("secret"),
        fs::Permissions::from_mode(0o000),
    )
    .expect("it is ours");
    // A process that runs as root reads it anyway.
    let unreadable = u64::from(fs::read(tree.path().join("secret")).is_err());
    let node = Node::start(data.path(), &[]);
    let mut command = node.command(["load", "--prefix", "p/", "--json"]);
    let got = run(command.arg(tree.path()));
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    let summary: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    assert_eq!(
        summary["records"].as_u64(),
        Some(302 - unreadable),
        "{}",
        got.stderr
    );
    assert_eq!(
        summary["failed"].as_u64(),
        Some(1 + unreadable),
        "{}",
        got.stderr
    );
    assert!(
        got.stderr.contains("p/large: 413"),
        "the server says why: {}",
        got.stderr
    );
    let scan = node.run(["scan", "--prefix", "702f30332f", "--hex"]);
    assert_eq!(scan.code, Some(0), "{}", scan.stderr);
    let keys = String::from_utf8(scan.stdout).expect("it is hexadecimal");
    assert_eq!(
        keys.lines().count(),
        (0..300).filter(|n| n % 7 == 3).count()
    );
    let got = node.run(["get", "p/03/296"]);
    assert_eq!(got.code, Some(3), "296 stands in another folder");
    assert_eq!(node.run(["get", "p/06/006"]).stdout, vec![6; 78]);
    assert_eq!(node.run(["get", "p/largest"]).stdout.len(), 1 << 20);
    let text = node.run(["scan", "--start", "p/00/", "--end", "p/00/010", "--json"]);
    let lines = String::from_utf8(text.stdout).expect("it is JSON");
    assert_eq!(lines.lines().count(), 2, "000 and 007");
    let back = run_with_input(
        &mut node.command(["load", "-", "--format", "ndjson", "--prefix", "again/"]),
        lines.as_bytes(),
    );
    assert_eq!(
        back.code,
        Some(0),
        "what scan prints, load reads: {}",
        back.stderr
    );
    assert_eq!(node.run(["get", "again/p/00/007"]).stdout, vec![7; 91]);
}

#[test]
fn a_signal_ends_a_node_with_0_and_nothing_is_lost() {
    let data = folder();
    for name in ["TERM", "INT"] {
        let node = Node::start(data.path(), &[]);
        assert_eq!(node.run(["put", name, "v"]).code, Some(0));
        let (code, log) = node.end(name);
        assert_eq!(code, Some(0), "{log}");
    }
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["scan", "--keys-only"]).stdout, b"INT\nTERM\n");
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["put", "k", "v"]).code, Some(0));
    assert_eq!(node.run(["put", "gone", "v"]).code, Some(0));
    assert_eq!(node.run(["delete", "gone"]).code, Some(0));
    assert_eq!(node.end("KILL").0, None);
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["get", "k"]).stdout, b"v");
    assert_eq!(node.run(["get", "gone"]).code, Some(3));
}

#[test]
fn options_that_make_no_sense_end_with_2() {
    let data = folder();
    let file = data.path().join("d.toml");
    fs::write(&file, "queue = 5\nmemmory = \"1GiB\"\n").expect("a file");
    let got = serve(
        data.path(),
        &["--config", file.to_str().expect("it is text")],
    );
    assert_eq!(got.code, Some(2));
    assert!(
        got.stderr.contains("d.toml:2: unknown key \"memmory\""),
        "{}",
        got.stderr
    );
    let got = serve(data.path(), &["--workers", "0"]);
    assert_eq!(got.code, Some(2), "{}", got.stderr);
}

#[test]
fn a_folder_that_cannot_be_opened_ends_with_3() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let got = serve(data.path(), &[]);
    assert_eq!(got.code, Some(3), "{}", got.stderr);
    assert!(got.stderr.contains("in use"), "{}", got.stderr);
    drop(node);
    let foreign = folder();
    fs::write(foreign.path().join("thesis.doc"), b"important").expect("a file");
    let got = serve(foreign.path(), &[]);
    assert_eq!(got.code, Some(3), "{}", got.stderr);
    assert!(got.stderr.contains("thesis.doc"), "{}", got.stderr);
}

#[test]
fn an_address_that_is_taken_ends_with_4() {
    let data = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let mut command = dendra(["serve", "--admin", "off", "--listen", &address, "--data"]);
    let got = run(command.arg(data.path()));
    assert_eq!(got.code, Some(4), "{}", got.stderr);
    assert!(got.stderr.contains(&address), "{}", got.stderr);
}

/// The largest file of the folder whose name ends in `suffix`.
fn file_of(data: &Path, suffix: &str) -> std::path::PathBuf {
    let mut files: Vec<_> = fs::read_dir(data)
        .expect("it is a folder")
        .map(|entry| entry.expect("it is listed").path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    files.sort_by_key(|path| fs::metadata(path).expect("it is there").len());
    files.pop().expect("there is one")
}

#[test]
fn a_stopped_folder_is_checked_and_dumped() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    for n in 0..20 {
        let key = format!("key {n}");
        assert_eq!(node.run(["put", &key, &"v".repeat(500)]).code, Some(0));
    }
    let check = |flags: &[&str]| {
        let mut command = dendra([OsStr::new("check"), data.path().as_os_str()]);
        run(command.args(flags))
    };
    let got = check(&[]);
    assert_eq!(got.code, Some(3), "a node runs on it: {}", got.stderr);
    assert_eq!(node.end("TERM").0, Some(0));
    let got = check(&[]);
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    assert!(
        got.stdout.is_empty() && got.stderr.contains("whole:"),
        "{}",
        got.stderr
    );
    let table = file_of(data.path(), ".tbl");
    let dump = run(dendra(["dump", "--records", "3"]).arg(&table));
    assert_eq!(dump.code, Some(0), "{}", dump.stderr);
    let text = String::from_utf8(dump.stdout).expect("it is text");
    assert_eq!(text.matches("value of 500 bytes").count(), 3, "{text}");
    let current = run(dendra(["dump"]).arg(data.path().join("CURRENT")));
    assert!(current.stdout.starts_with(b"manifest-"));
    let mut bytes = fs::read(&table).expect("it is there");
    bytes[100] ^= 1;
    fs::write(&table, bytes).expect("it is ours");
    let got = check(&[]);
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    let line = String::from_utf8(got.stdout).expect("it is text");
    let name = table.file_name().expect("it has one").to_string_lossy();
    assert!(line.starts_with(&format!("{name}\t")), "{line}");
    let json = check(&["--json"]);
    assert_eq!(json.code, Some(1));
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert_eq!(object["findings"][0]["file"].as_str(), Some(&*name));
}

#[test]
fn a_folder_that_was_refused_is_whole_and_its_check_says_that_no_node_starts_on_it() {
    let data = folder();
    let (code, log) = Node::start(data.path(), &[]).end("TERM");
    assert_eq!(code, Some(0), "{log}");
    let why = "http://h1:1 does not let this folder in: other-node: it was another one";
    fs::write(
        data.path().join("REFUSED"),
        format!("{why}\n\nMore of it.\n"),
    )
    .expect("written");
    for name in ["REFUSED.new", "thesis.doc"] {
        fs::write(data.path().join(name), "half a").expect("written");
    }
    let got = run(dendra(["check"]).arg(data.path()));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    let note = format!("no node may start on it, as its file REFUSED says: {why}\n");
    assert!(got.stderr.contains(&note), "{}", got.stderr);
    assert!(got.stderr.contains("whole:"), "{}", got.stderr);
    let strange: Vec<&str> = got
        .stderr
        .lines()
        .filter(|line| line.contains("is not a file of Dendra"))
        .collect();
    let thesis = "note: thesis.doc is not a file of Dendra; the node does not touch it";
    assert_eq!(strange, [thesis]);
}

#[test]
fn nothing_is_created_by_looking() {
    let data = folder();
    let missing = data.path().join("missing");
    let got = run(dendra(["check"]).arg(&missing));
    assert_eq!(got.code, Some(2), "{}", got.stderr);
    assert!(!missing.exists());
    let got = run(dendra(["check"]).arg(data.path()));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    assert_eq!(
        fs::read_dir(data.path()).expect("it is a folder").count(),
        0
    );
    let got = run(dendra(["dump"]).arg(&missing));
    assert_eq!(got.code, Some(2), "{}", got.stderr);
}

#[test]
fn a_node_that_was_told_to_wait_before_it_stops_waits_and_one_that_never_served_does_not() {
    let data = folder();
    let began = Instant::now();
    let node = Node::start(data.path(), &["--stop-delay-ms", "300"]);
    assert_eq!(node.end("TERM").0, Some(0));
    assert!(began.elapsed() >= Duration::from_millis(300));
    // Its address is taken: it was never ready.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut command = dendra(["serve", "--admin", "off", "--stop-delay-ms", "3600000"]);
    let ended = run(command
        .args(["--listen", &address])
        .arg("--data")
        .arg(data.path()));
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}
