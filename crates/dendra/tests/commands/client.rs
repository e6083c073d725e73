//! Client commands against a scripted node: exit codes, bytes, requests that are sent twice and
//! those that never are.

use crate::support::{Reply, ScriptedNode, answer, dendra, finish, run, run_with_input, signal};
use dendra_wire::http::records::{Decoded, decode_record};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

const RECEIPT: &str = "Dendra-Receipt: acks=1/1; level=linearizable; durability=sync";

fn created() -> Reply {
    answer(
        "201 Created",
        &["ETag: \"0123456789abcdef-7-0\"", RECEIPT],
        b"",
    )
}

#[test]
fn each_status_has_its_exit_code() {
    for (status, code) in [
        ("200 OK", 0),
        ("400 Bad Request", 1),
        ("404 Not Found", 3),
        ("412 Precondition Failed", 4),
        ("500 Internal Server Error", 1),
        ("503 Service Unavailable", 5),
        ("504 Gateway Timeout", 5),
    ] {
        let node = ScriptedNode::start(move |_, _| answer(status, &[], b"word: a sentence"));
        let got = run(&mut dendra(["get", "k", "--url", &node.url()]));
        assert_eq!(got.code, Some(code), "{status}: {}", got.stderr);
        assert_eq!(
            got.stdout.is_empty(),
            code != 0,
            "only a value goes to stdout"
        );
        assert_eq!(
            node.requests().len(),
            1,
            "{status}: a person decides about trying again"
        );
    }
}

#[test]
fn no_node_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let got = run(&mut dendra([
        "get",
        "k",
        "--url",
        &format!("http://{address}"),
    ]));
    assert_eq!(got.code, Some(5), "{}", got.stderr);
    assert!(
        got.stderr.contains("no node can be reached"),
        "{}",
        got.stderr
    );
}

#[test]
fn the_command_line_and_the_url_are_checked_before_anything_is_sent() {
    for arguments in [
        &["get"][..],
        &["get", ""],
        &["get", "k", "--hex"],
        &["get", "k", "--url", "https://somewhere"],
        &["put", "k", "v", "--if-absent", "--if-match", "*"],
        &["put", "k", "v", "--if-match", "7-1"],
        &["scan", "--prefix", "a", "--start", "b"],
        &["frobnicate"],
    ] {
        let got = run(&mut dendra(arguments));
        assert_eq!(got.code, Some(2), "{arguments:?}: {}", got.stderr);
        assert!(got.stdout.is_empty());
    }
}

#[test]
fn a_value_comes_out_as_it_is_or_encoded() {
    let bytes: Vec<u8> = (0..=255).collect();
    let value = bytes.clone();
    let node = ScriptedNode::start(move |_, _| {
        answer(
            "200 OK",
            &["ETag: \"0123456789abcdef-7-0\"", RECEIPT],
            &value,
        )
    });
    let url = node.url();
    let raw = run(&mut dendra(["get", "k", "--url", &url]));
    assert_eq!(raw.stdout, bytes);
    let hex = run(&mut dendra(["get", "6b", "--hex", "--url", &url]));
    assert_eq!(hex.stdout.len(), 513);
    assert!(hex.stdout.starts_with(b"000102"));
    let json = run(&mut dendra(["get", "k", "--json", "--url", &url]));
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert_eq!(object["key"], "k");
    assert_eq!(object["version"], "0123456789abcdef-7-0");
    assert!(
        object["value_base64"]
            .as_str()
            .is_some_and(|text| text.starts_with("AAECAw"))
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("out");
    let mut command = dendra(["get", "k", "--url", &url, "--out"]);
    assert_eq!(run(command.arg(&file)).code, Some(0));
    assert_eq!(std::fs::read(&file).expect("it was written"), bytes);
}

#[test]
fn keys_and_values_of_any_bytes_arrive_unchanged() {
    let node = ScriptedNode::start(|_, _| created());
    let url = node.url();
    let put = |arguments: &[&OsStr], input: &[u8]| {
        let mut command = dendra(["put", "--url", &url]);
        let got = run_with_input(command.args(arguments), input);
        assert_eq!(got.code, Some(0), "{}", got.stderr);
        assert!(got.stdout.is_empty());
        got.stderr
    };
    let note = put(
        &[OsStr::from_bytes(b"\xff+/ %"), OsStr::from_bytes(b"\xfe")],
        b"",
    );
    assert_eq!(note, "0123456789abcdef-7-0\n", "the version is for stderr");
    put(&["k".as_ref()], b"from\0stdin\n");
    put(&["k".as_ref(), "-".as_ref()], b"dash");
    put(&["00ff".as_ref(), "0A0d".as_ref(), "--hex".as_ref()], b"");
    let flags = [
        "AP8=",
        "--base64",
        "--in",
        "-",
        "--if-absent",
        "--ttl",
        "60",
    ];
    let more = ["--ack", "1", "--from", "1", "--timeout-ms", "250", "-q"];
    let all: Vec<&OsStr> = flags.iter().chain(&more).map(OsStr::new).collect();
    assert_eq!(put(&all, b"Cg==\n"), "", "quiet says nothing");
    let seen = node.requests();
    let bodies: Vec<&[u8]> = seen.iter().map(|request| request.body.as_slice()).collect();
    assert_eq!(
        bodies,
        [
            b"\xfe".as_slice(),
            b"from\0stdin\n",
            b"dash",
            b"\n\r",
            b"\n"
        ]
    );
    assert_eq!(seen[0].line, "PUT /v0/entity?id=%FF%2B%2F%20%25");
    assert_eq!(seen[3].line, "PUT /v0/entity?id=%00%FF");
    assert_eq!(seen[4].line, "PUT /v0/entity?id=%00%FF&ack=1&from=1&ttl=60");
    assert_eq!(seen[4].header("if-none-match"), Some("*"));
    assert_eq!(seen[4].header("dendra-timeout-ms"), Some("250"));
}

#[test]
fn a_condition_is_sent_in_quotes_however_it_was_pasted() {
    let node = ScriptedNode::start(|_, _| {
        answer("202 Accepted", &["ETag: \"0123456789abcdf0-7-0\""], b"")
    });
    let url = node.url();
    for given in ["0123456789abcdef-7-0", "\"0123456789abcdef-7-0\"", "*"] {
        let got = run(&mut dendra([
            "delete",
            "k",
            "--if-match",
            given,
            "--url",
            &url,
        ]));
        assert_eq!(got.code, Some(0), "{}", got.stderr);
    }
    let sent: Vec<Option<String>> = node
        .requests()
        .iter()
        .map(|request| request.header("if-match").map(str::to_owned))
        .collect();
    let quoted = Some("\"0123456789abcdef-7-0\"".to_owned());
    assert_eq!(sent, [quoted.clone(), quoted, Some("*".to_owned())]);
}

#[test]
fn a_write_whose_answer_was_lost_is_not_sent_again() {
    let node = ScriptedNode::start(|_, _| Reply {
        bytes: Vec::new(),
        closes: true,
    });
    let got = run(&mut dendra(["put", "k", "v", "--url", &node.url()]));
    assert_eq!(got.code, Some(5), "{}", got.stderr);
    assert!(
        got.stderr.contains("may have been applied"),
        "{}",
        got.stderr
    );
    assert_eq!(node.requests().len(), 1);
}

#[test]
fn a_server_that_is_no_node_is_told_from_one_that_is_away() {
    let node = ScriptedNode::start(|_, _| Reply {
        bytes: b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        closes: true,
    });
    let got = run(&mut dendra(["get", "k", "--url", &node.url()]));
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    assert!(got.stderr.contains("no Dendra node"), "{}", got.stderr);
}

fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let lengths = [key.len(), value.len()].map(|n| (n as u32).to_be_bytes());
    [lengths[0].as_slice(), &lengths[1], key, value].concat()
}

const END: [u8; 8] = [0xff; 8];

/// A chunked answer of `chunks`; `tail` follows the last chunk.
fn chunked(chunks: &[&[u8]], tail: &[u8]) -> Reply {
    let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/vnd.dendra.records\r\n\r\n".to_vec();
    for chunk in chunks {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(tail);
    Reply {
        bytes,
        closes: true,
    }
}

const COMPLETE: &[u8] = b"0\r\nDendra-Scan: complete\r\n\r\n";

#[test]
fn a_scan_prints_records_however_they_are_cut_into_chunks() {
    let body = [record(b"a", b"1"), record(b"b\xff", b""), END.to_vec()].concat();
    for cut in 1..body.len() {
        let body = body.clone();
        let node =
            ScriptedNode::start(move |_, _| chunked(&[&body[..cut], &body[cut..]], COMPLETE));
        let got = run(&mut dendra(["scan", "--prefix", "a", "--url", &node.url()]));
        assert_eq!(got.code, Some(0), "cut at {cut}: {}", got.stderr);
        assert_eq!(got.stdout, b"a\t1\nb\xff\t\n");
        if cut > 1 {
            continue;
        }
        let json = run(&mut dendra(["scan", "--json", "--url", &node.url()]));
        let text = "{\"key\":\"a\",\"value\":\"1\"}\n{\"key_base64\":\"Yv8=\",\"value\":\"\"}\n";
        assert_eq!(String::from_utf8_lossy(&json.stdout), text);
        let arguments = [
            "scan",
            "--keys-only",
            "--hex",
            "--start",
            "00",
            "--end",
            "ff",
        ];
        let mut command = dendra(arguments);
        let hex = run(command.args(["--limit", "9", "--reverse", "--url", &node.url()]));
        assert_eq!(hex.stdout, b"61\n62ff\n");
        let lines: Vec<String> = node
            .requests()
            .into_iter()
            .map(|request| request.line)
            .collect();
        let all = "GET /v0/entities?start=%00";
        let range = "GET /v0/entities?start=%00&end=%FF&limit=9&reverse=true&keys-only=true";
        assert_eq!(lines, ["GET /v0/entities?prefix=a", all, range]);
    }
}

#[test]
fn a_count_asks_until_nothing_is_left_out() {
    let node = ScriptedNode::start(|_, at| {
        let body = match at {
            0 => r#"{"count":2,"complete":false,"next":"a%2Fb"}"#,
            1 => r#"{"count":0,"complete":false,"next":"a%2Fc"}"#,
            _ => r#"{"count":3,"complete":true}"#,
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        Reply {
            bytes: (head + body).into_bytes(),
            closes: true,
        }
    });
    let got = run(&mut dendra([
        "count",
        "--prefix",
        "a/",
        "--url",
        &node.url(),
    ]));
    assert_eq!(
        (got.code, got.stdout.as_slice()),
        (Some(0), &b"5\n"[..]),
        "{}",
        got.stderr
    );
    let requests = node.requests();
    let lines: Vec<&str> = requests.iter().map(|it| it.line.as_str()).collect();
    let wanted =
        ["a%2F", "a%2Fb", "a%2Fc"].map(|start| format!("GET /v0/count?start={start}&end=a0"));
    assert_eq!(lines, wanted);
}

#[test]
fn a_cut_scan_is_a_failure_however_it_was_cut() {
    let some = record(b"a", b"1");
    let whole = [some.clone(), END.to_vec()].concat();
    let cases: [(&str, Reply); 5] = [
        ("no end marker", chunked(&[&some], b"0\r\n\r\n")),
        ("no last chunk", chunked(&[&some], b"")),
        ("half a record", chunked(&[&some, &some[..5]], b"0\r\n\r\n")),
        (
            "the node stopped at a damaged key",
            chunked(&[&some], b"0\r\nDendra-Scan: stopped; next=b\r\n\r\n"),
        ),
        ("bytes behind the end", chunked(&[&whole, &some], COMPLETE)),
    ];
    for (name, reply) in cases {
        let reply = Mutex::new(Some(reply));
        let node = ScriptedNode::start(move |_, _| {
            let reply = reply.lock().expect("no holder panics").take();
            // Where the node stopped, it is asked why.
            reply.unwrap_or_else(|| answer("504 Gateway Timeout", &[], b"h2 has a damaged copy\n"))
        });
        let got = run(&mut dendra(["scan", "--url", &node.url()]));
        assert_eq!(got.code, Some(1), "{name}: {}", got.stderr);
        let is_told = got.stderr.contains("next=b: 504 h2 has a damaged copy");
        assert_eq!(is_told, name.contains("damaged"), "{}", got.stderr);
        assert!(
            got.stderr.contains("cut after 1 records"),
            "{name}: {}",
            got.stderr
        );
        assert_eq!(got.stdout, b"a\t1\n", "{name}: what arrived is printed");
    }
}

#[test]
fn a_reader_that_goes_away_ends_a_scan_quietly() {
    let many: Vec<u8> = (0..4000)
        .flat_map(|_| record(b"key", &[b'v'; 1000]))
        .collect();
    let body = [many, END.to_vec()].concat();
    let node = ScriptedNode::start(move |_, _| chunked(&[&body], COMPLETE));
    let mut command = dendra(["scan", "--url", &node.url()]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    drop(child.stdout.take());
    let got = finish(child);
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
}

fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }
    folder
}

fn load(folder: &std::path::Path, node: &ScriptedNode, flags: &[&str]) -> std::process::Command {
    let mut command = dendra([OsStr::new("load"), folder.as_os_str()]);
    command.args(["--url", &node.url()]).args(flags);
    command
}

#[test]
fn a_load_stores_a_folder_and_lists_what_was_acknowledged() {
    let folder = tree(&[("a/b c.txt", b"1"), ("a/\u{e9}", b"\0\xff"), ("z", b"")]);
    let files = tempfile::tempdir().expect("a temporary folder");
    let acked = files.path().join("acked");
    let node = ScriptedNode::start(|_, _| created());
    let mut command = load(
        folder.path(),
        &node,
        &["--prefix", "p/", "--in-flight", "1", "--json"],
    );
    let got = run(command.arg("--acked").arg(&acked));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    let summary: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    assert_eq!(
        (summary["records"].as_u64(), summary["bytes"].as_u64()),
        (Some(3), Some(3))
    );
    let seen: Vec<(String, Vec<u8>)> = node
        .requests()
        .into_iter()
        .map(|request| (request.line, request.body))
        .collect();
    assert_eq!(
        seen,
        [
            (
                "PUT /v0/entity?id=p%2Fa%2Fb%20c.txt".to_owned(),
                b"1".to_vec()
            ),
            (
                "PUT /v0/entity?id=p%2Fa%2F%C3%A9".to_owned(),
                b"\0\xff".to_vec()
            ),
            ("PUT /v0/entity?id=p%2Fz".to_owned(), b"".to_vec()),
        ]
    );
    let listed = std::fs::read_to_string(&acked).expect("it was written");
    assert_eq!(listed, "p%2Fa%2Fb%20c.txt\np%2Fa%2F%C3%A9\np%2Fz\n");
    assert!(!got.stderr.contains('\r'), "no bar without a terminal");
}

#[test]
fn a_load_reports_what_failed_and_goes_on() {
    let folder = tree(&[("big", b"123"), ("refused", b"1"), ("z", b"2")]);
    let files = tempfile::tempdir().expect("a temporary folder");
    let failures = files.path().join("failures");
    let node = ScriptedNode::start(|request, _| match request.line.as_str() {
        "PUT /v0/entity?id=z" => created(),
        "PUT /v0/entity?id=big" => answer(
            "413 Content Too Large",
            &[],
            b"value-too-large: 3 bytes, at most 2\n",
        ),
        _ => answer("400 Bad Request", &[], b"bad: no"),
    });
    let got = run(load(folder.path(), &node, &[])
        .arg("--failures")
        .arg(&failures));
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    assert!(
        got.stderr
            .contains("big: 413 value-too-large: 3 bytes, at most 2"),
        "{}",
        got.stderr
    );
    assert!(got.stderr.contains("1 records"), "{}", got.stderr);
    let requests = node.requests();
    let alone = requests.iter().filter(|it| it.line.starts_with("PUT "));
    assert_eq!(alone.count(), 3, "what cannot work is not tried again");
    let listed = std::fs::read_to_string(&failures).expect("it was written");
    assert_eq!(listed.lines().count(), 2);
    assert!(listed.contains("\"key\":\"refused\""), "{listed}");
}

/// A batch's lines decide about its records one by one.
#[test]
fn records_travel_together_and_each_has_its_own_end() {
    let node = ScriptedNode::start(|request, _| {
        if request.line != "POST /v0/batch" {
            return created();
        }
        let (mut rest, mut lines) = (&request.body[..], Vec::new());
        while let Decoded::Record { key, consumed, .. } = decode_record(rest) {
            let line: &[u8] = match key {
                b"7" => b"{\"status\":400,\"error\":\"bad\",\"message\":\"no\"}\n",
                b"70" => b"{\"status\":503,\"error\":\"overloaded\",\"retry_after\":0}\n",
                _ => b"{\"status\":201}\n",
            };
            lines.extend_from_slice(line);
            rest = &rest[consumed..];
        }
        answer("200 OK", &[], &lines)
    });
    let mut command = dendra([
        "load",
        "-",
        "--format",
        "tsv",
        "--json",
        "--url",
        &node.url(),
    ]);
    let text: String = (0..2_000).map(|n| format!("{n}\tv\n")).collect();
    let got = run_with_input(&mut command, text.as_bytes());
    let summary: serde_json::Value = serde_json::from_slice(&got.stdout).expect("one object");
    let stored = summary["records"].as_u64().expect("a count");
    let failed = summary["failed"].as_u64().expect("a count");
    assert_eq!(stored + failed, 2_000, "{}", got.stderr);
    let requests = node.requests();
    let has_alone = |key: &str| {
        let line = format!("PUT /v0/entity?id={key}");
        requests.iter().any(|request| request.line == line)
    };
    assert!(requests.len() < 1_500, "{} requests", requests.len());
    assert!(has_alone("70"), "what is refused for a while is sent again");
    // Alone from the start, or in a batch whose line failed it.
    assert_eq!(
        (failed == 0, got.code),
        (has_alone("7"), Some(i32::from(failed > 0)))
    );
    if failed > 0 {
        assert!(got.stderr.contains("7: 400 bad: no"), "{}", got.stderr);
    }
}

#[test]
fn a_load_tries_refused_records_again() {
    let folder = tree(&[("a", b"1"), ("b", b"2")]);
    let node = ScriptedNode::start(|_, before| match before {
        0..3 => answer(
            "503 Service Unavailable",
            &["Retry-After: 0"],
            b"overloaded: later",
        ),
        _ => created(),
    });
    let got = run(&mut load(folder.path(), &node, &["--in-flight", "2"]));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    assert_eq!(node.requests().len(), 5);
}

#[test]
fn a_load_sends_a_tenth_more_than_its_records_and_a_burst_to_a_node_that_refuses_all() {
    const RECORDS: usize = 300;
    const BURST: usize = 64;
    const MOST: usize = RECORDS + RECORDS / 10 + BURST;
    let names: Vec<String> = (0..RECORDS).map(|n| n.to_string()).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b"v"[..])).collect();
    let folder = tree(&files);
    // It relents where no budget is in the way: a load without one would try for half a minute.
    let node = ScriptedNode::start(|_, before| match before {
        0..=MOST => answer(
            "503 Service Unavailable",
            &["Retry-After: 0"],
            b"overloaded: later",
        ),
        _ => created(),
    });
    let got = run(&mut load(folder.path(), &node, &["--in-flight", "8"]));
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    assert!(
        got.stderr.contains("retries are at most a tenth"),
        "{}",
        got.stderr
    );
    let asked = node.requests().len();
    // The first requests earn no token while the burst is whole.
    assert!((MOST - 8..=MOST).contains(&asked), "{asked} of {MOST}");
}

#[test]
fn a_load_outlives_connections_that_close_after_each_answer() {
    let folder = tree(&[("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]);
    let node = ScriptedNode::start(|_, _| Reply {
        closes: true,
        ..created()
    });
    let got = run(&mut load(folder.path(), &node, &["--in-flight", "1"]));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    assert_eq!(node.requests().len(), 4, "each record arrived once");
}

#[test]
fn a_load_gives_up_when_nobody_answers() {
    let files: Vec<String> = (0..500).map(|n| format!("{n}")).collect();
    let records: Vec<(&str, &[u8])> = files
        .iter()
        .map(|n| (n.as_str(), b"v".as_slice()))
        .collect();
    let folder = tree(&records);
    let node = ScriptedNode::start(|_, _| Reply {
        bytes: Vec::new(),
        closes: true,
    });
    let got = run(&mut load(
        folder.path(),
        &node,
        &["--retry-for", "50ms", "--in-flight", "2"],
    ));
    assert_eq!(got.code, Some(5), "{}", got.stderr);
    assert!(got.stderr.contains("ended early"), "{}", got.stderr);
}

#[test]
fn an_interrupted_load_waits_for_what_is_in_flight() {
    let folder = tree(&[("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]);
    let files = tempfile::tempdir().expect("a temporary folder");
    let acked = files.path().join("acked");
    let (arrived, arrivals) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let arrived = Mutex::new(arrived);
    let node = ScriptedNode::start(move |_, _| {
        arrived
            .lock()
            .expect("no holder panics")
            .send(())
            .expect("the test listens");
        gate.lock()
            .expect("no holder panics")
            .recv()
            .expect("the test releases");
        created()
    });
    let mut command = load(folder.path(), &node, &["--in-flight", "2"]);
    let mut child = command
        .arg("--acked")
        .arg(&acked)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    for _ in 0..2 {
        arrivals.recv().expect("two records are in flight");
    }
    signal(&child, "INT");
    // The note says that the signal was seen; only then may the answers come.
    let mut said = std::io::BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).expect("it says so");
    assert!(line.contains("waiting for what is in flight"), "{line}");
    for _ in 0..2 {
        release.send(()).expect("the node waits");
    }
    let got = finish(child);
    assert_eq!(got.code, Some(130));
    assert_eq!(
        node.requests().len(),
        2,
        "nothing was sent after the signal"
    );
    let listed = std::fs::read_to_string(&acked).expect("it was written");
    assert_eq!(listed.lines().count(), 2, "what was in flight was awaited");
}

#[test]
fn a_command_that_waits_is_interrupted_with_130() {
    let (arrived, arrivals) = mpsc::channel();
    let arrived = Mutex::new(arrived);
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let node = ScriptedNode::start(move |_, _| {
        let told = arrived.lock().expect("no holder panics").send(());
        told.expect("the test listens");
        // The test releases no connection: it drops its end when it is over.
        let waited = gate.lock().expect("no holder panics").recv();
        waited.expect("the test is over");
        created()
    });
    let child = dendra(["put", "k", "v", "--url", &node.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    arrivals.recv().expect("the request is in flight");
    signal(&child, "INT");
    assert_eq!(finish(child).code, Some(130));
    drop(release);
}

#[test]
fn lines_from_stdin_are_loaded() {
    let node = ScriptedNode::start(|_, _| created());
    let mut command = dendra(["load", "-", "--format", "ndjson", "--url", &node.url()]);
    let text =
        b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key_base64\":\"/w==\",\"value\":\"2\"}\nbroken\n";
    let got = run_with_input(command.args(["--in-flight", "1"]), text);
    assert_eq!(got.code, Some(1), "{}", got.stderr);
    assert!(
        got.stderr.contains("stdin:3: is not a JSON object"),
        "{}",
        got.stderr
    );
    let lines: Vec<String> = node
        .requests()
        .into_iter()
        .map(|request| request.line)
        .collect();
    assert_eq!(lines, ["PUT /v0/entity?id=a", "PUT /v0/entity?id=%FF"]);
}

#[test]
fn an_explanation_is_a_tree_or_the_document_and_a_refusal_is_a_failure() {
    const PAGE: &str = r#"{"id":"k","found":null,"outcome":"damaged","took_us":9,"record":null,
        "engine":{"end":"damaged","took_us":7,"file_bytes":4096,"found_in":null,"tables_left_out":2,
        "memtables":[{"memtable":"active","record":null}],
        "levels":[{"level":0,"tables":3,"in_range":1},{"level":2,"tables":1,"in_range":0}],
        "tables":[{"level":0,"table":"00a\u001b","filter":"maybe","answer":"damaged",
        "blocks":[{"part":"index","from":"memory","bytes":512},{"part":"data","from":"file","bytes":4096}]}]}}"#;
    let tree = "k: damaged, no record, in 9 us
└─ engine: damaged, nothing found, 4096 bytes from files, 7 us
   ├─ memtable active: no record
   ├─ level 0: 3 tables, 1 in range
   │  └─ table 00a?: filter maybe, index from memory (512 bytes), data from file (4096 bytes): damaged
   ├─ level 2: 1 tables, 0 in range
   └─ 2 more tables are not listed
";
    let json = "Content-Type: application/json";
    for (status, code) in [("200 OK", 0), ("500 Internal Server Error", 1)] {
        let node = ScriptedNode::start(move |_, _| answer(status, &[json], PAGE.as_bytes()));
        let url = node.url();
        let got = run(&mut dendra(["get", "k", "--explain", "--url", &url]));
        assert_eq!(got.code, Some(code), "{}", got.stderr);
        assert_eq!(String::from_utf8_lossy(&got.stdout), tree);
        assert_eq!(
            got.stderr.contains("500 damaged"),
            code == 1,
            "{}",
            got.stderr
        );
        let got = run(&mut dendra([
            "get",
            "k",
            "--explain",
            "--json",
            "--url",
            &url,
        ]));
        assert_eq!(got.stdout, PAGE.as_bytes());
        let asked = "GET /v0/entity?id=k&explain=1";
        assert!(node.requests().iter().all(|request| request.line == asked));
    }
    let refusal = b"not-offered: explain=1 is not offered here";
    let node = ScriptedNode::start(move |_, _| answer("501 Not Implemented", &[], refusal));
    let got = run(&mut dendra(["get", "k", "--explain", "--url", &node.url()]));
    assert!(
        got.code == Some(1) && got.stdout.is_empty(),
        "{:?}",
        got.code
    );
    assert!(got.stderr.contains("not-offered"), "{}", got.stderr);
}
