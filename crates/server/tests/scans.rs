//! Scans over real sockets: ranges, framings, limits, trailers, and readers that do not read.
//!
//! Not here: merging of tables (crate `engine`), framing byte by byte (crate `wire`).
//! See: docs/api.md, section "Many keys".

mod support;

use dendra_base::Prng;
use dendra_engine::vfs::MemVfs;
use dendra_wire::http::records::{Decoded, decode_record, split_plain};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Answer, Client, Node, PATIENCE};

fn keys(answer: &Answer) -> Vec<String> {
    let keys = answer.chunks.iter().map(|chunk| {
        let (key, _) = split_plain(chunk).expect("a record has a line feed");
        String::from_utf8_lossy(key).into_owned()
    });
    keys.collect()
}

fn fill(client: &mut Client, names: &[&str]) {
    for name in names {
        assert_eq!(client.put(name, name.as_bytes()).status, 201);
    }
}

#[test]
fn a_range_is_what_its_parameters_say() {
    let node = Node::start();
    let mut client = node.client();
    fill(&mut client, &["a", "b", "ba", "bb", "c", "%ff%ff", "%00"]);
    client.delete("ba");
    let table: &[(&str, &[&str])] = &[
        ("start=a", &["a", "b", "bb", "c", "\u{fffd}\u{fffd}"]),
        ("start=b", &["b", "bb", "c", "\u{fffd}\u{fffd}"]),
        ("start=a&end=c", &["a", "b", "bb"]),
        ("start=a&end=a", &[]),
        ("start=c&end=a", &[]),
        ("prefix=b", &["b", "bb"]),
        ("prefix=%ff", &["\u{fffd}\u{fffd}"]),
        (
            "start=%00",
            &["\0", "a", "b", "bb", "c", "\u{fffd}\u{fffd}"],
        ),
        ("prefix=b&reverse=true", &["bb", "b"]),
        ("start=a&end=c&reverse=true", &["bb", "b", "a"]),
        ("start=a&end=c&scope=local", &["a", "b", "bb"]),
        ("prefix=zz", &[]),
    ];
    for (query, expected) in table {
        let answer = client.get(&format!("/v0/entities?{query}"));
        assert_eq!(answer.status, 200, "{query}");
        assert_eq!(keys(&answer), *expected, "{query}");
        assert_eq!(answer.trailer.as_deref(), Some("complete"), "{query}");
    }
}

#[test]
fn a_limit_cuts_and_the_trailer_says_where_to_go_on() {
    let node = Node::start();
    let mut client = node.client();
    fill(&mut client, &["a", "b", "c%20d", "e"]);
    let first = client.get("/v0/entities?start=a&limit=2");
    assert_eq!(keys(&first), ["a", "b"]);
    assert_eq!(first.trailer.as_deref(), Some("stopped; next=c%20d"));
    let rest = client.get("/v0/entities?start=c%20d&limit=2");
    assert_eq!(keys(&rest), ["c d", "e"]);
    assert_eq!(rest.trailer.as_deref(), Some("complete"));
    let last = client.get("/v0/entities?start=a&reverse=true&limit=1");
    assert_eq!(keys(&last), ["e"]);
    assert_eq!(last.trailer.as_deref(), Some("stopped; next=e"));
    let next = client.get("/v0/entities?start=a&end=e&reverse=true&limit=1");
    assert_eq!(keys(&next), ["c d"]);
}

fn counted(client: &mut Client, query: &str) -> (u64, Option<String>) {
    let answer = client.get(&format!("/v0/count?{query}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let object: serde_json::Value = serde_json::from_str(&answer.text()).expect("it is JSON");
    let next = object["next"].as_str().map(str::to_owned);
    assert_eq!(object["complete"], next.is_none());
    (object["count"].as_u64().expect("a number"), next)
}

#[test]
fn a_count_is_exact_and_goes_on_where_its_work_ended() {
    let node = Node::start();
    let mut client = node.client();
    fill(&mut client, &["a", "b", "ba", "c"]);
    client.delete("ba");
    assert_eq!(counted(&mut client, ""), (3, None));
    assert_eq!(counted(&mut client, "prefix=b"), (1, None));
    assert_eq!(counted(&mut client, "start=b&end=c"), (1, None));
    // Each of these values is a chunk of its own.
    let value = vec![b'v'; 300 << 10];
    let many = 100;
    for number in 0..many {
        assert_eq!(client.put(&format!("k{number:03}"), &value).status, 201);
    }
    let (mut sum, mut requests, mut query) = (0, 0, "prefix=k".to_owned());
    loop {
        let (count, next) = counted(&mut client, &query);
        assert!(
            count > 0 && count < many,
            "a request counts a part: {count}"
        );
        sum += count;
        requests += 1;
        let Some(next) = next else { break };
        query = format!("start={next}&end=l");
    }
    assert_eq!(sum, many);
    assert!(requests > 1, "it has a bound");
}

/// A client that asks again gets there: a walk that was begun is ended, though it takes longer than
/// the request has.
#[test]
fn a_scan_over_many_deletions_ends_whatever_its_deadline() {
    const DEAD: usize = 60_000;
    let node = Node::start();
    let mut client = node.client();
    for first in (0..DEAD).step_by(1_000) {
        let deletes = (first..first + 1_000).fold(String::new(), |mut body, n| {
            let _ = writeln!(body, "{{\"op\":\"delete\",\"key\":\"k{n:0200}\"}}");
            body
        });
        assert_eq!(client.batch("", deletes.as_bytes()).0.status, 200);
    }
    fill(&mut client, &["z"]);
    let mut scan = |timeout_ms: u128| {
        let head = "GET /v0/entities?limit=1 HTTP/1.1\r\nHost: localhost\r\n";
        client.send(format!("{head}Dendra-Timeout-Ms: {timeout_ms}\r\n\r\n").as_bytes());
        client.read("GET")
    };
    let mut took_ms = || {
        let began = Instant::now();
        assert_eq!(keys(&scan(60_000)), ["z"]);
        began.elapsed().as_millis()
    };
    let quickest_ms = (0..5).map(|_| took_ms()).min().expect("there are some");
    let short_ms = (quickest_ms / 6).max(1);
    let ended = (0..50).any(|_| {
        let answer = scan(short_ms);
        match answer.status {
            200 => assert_eq!(keys(&answer), ["z"]),
            status => assert!([503, 504].contains(&status), "{}", answer.text()),
        }
        answer.status == 200
    });
    assert!(ended, "no scan of {short_ms} ms ended");
}

#[test]
fn each_framing_holds_the_same_records() {
    let node = Node::start();
    let mut client = node.client();
    client.put("k", b"line\nline");
    client.put("%fe", b"\xff");
    let accept = |kind: &str| format!("Accept: {kind}\r\n");
    let ask = |client: &mut Client, kind: &str, more: &str| {
        client.ask(
            "GET",
            &format!("/v0/entities?start=a{more}"),
            &accept(kind),
            b"",
        )
    };
    let plain = ask(&mut client, "text/plain", "");
    assert_eq!(plain.chunks, [&b"k\nline\nline"[..], b"\xfe\n\xff"]);
    let ndjson = ask(&mut client, "application/x-ndjson", "");
    let lines: Vec<serde_json::Value> = ndjson
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    assert_eq!(
        lines[0],
        serde_json::json!({ "key": "k", "value": "line\nline" })
    );
    assert_eq!(
        lines[1],
        serde_json::json!({ "key_base64": "/g==", "value_base64": "/w==" })
    );
    let records = ask(&mut client, "application/vnd.dendra.records", "");
    let Decoded::Record {
        key,
        value,
        consumed,
    } = decode_record(&records.body)
    else {
        panic!("a record comes first");
    };
    assert_eq!((key, value), (&b"k"[..], &b"line\nline"[..]));
    let Decoded::Record {
        key,
        consumed: more,
        ..
    } = decode_record(&records.body[consumed..])
    else {
        panic!("a second record follows");
    };
    assert_eq!(key, b"\xfe");
    assert!(matches!(
        decode_record(&records.body[consumed + more..]),
        Decoded::End { .. }
    ));
    let limited = ask(&mut client, "application/vnd.dendra.records", "&limit=1");
    assert!(matches!(
        decode_record(&limited.body[consumed..]),
        Decoded::End { .. }
    ));
    let keys_only = ask(&mut client, "text/plain", "&keys-only=true");
    assert_eq!(keys_only.chunks, [&b"k\n"[..], b"\xfe\n"]);
}

#[test]
fn a_scan_of_many_chunks_is_whole_in_both_directions() {
    let node = Node::start();
    let mut client = node.client();
    let value = vec![b'v'; 1_000];
    let names: Vec<String> = (0..600).map(|n| format!("k{n:04}")).collect();
    for name in &names {
        client.put(name, &value);
    }
    let forward = client.get("/v0/entities?start=k");
    assert_eq!(keys(&forward), names);
    assert!(forward.chunks.iter().all(|chunk| chunk.len() == 1_006));
    let backward = client.get("/v0/entities?start=k&reverse=true&keys-only=true");
    let reversed: Vec<String> = names.iter().rev().cloned().collect();
    assert_eq!(keys(&backward), reversed);
    assert_eq!(backward.trailer.as_deref(), Some("complete"));
}

#[test]
fn a_reader_that_does_not_read_slows_nobody_and_is_cut() {
    let node = Node::with(|settings| {
        settings.timeouts.write = Duration::from_millis(300);
        settings.loops = Some(1);
    });
    let mut client = node.client();
    let value = vec![b'v'; 500_000];
    for n in 0..40 {
        assert_eq!(client.put(&format!("k{n:03}"), &value).status, 201);
    }
    assert_eq!(client.put("small", b"v").status, 201);
    let mut slow = node.client();
    slow.send(b"GET /v0/entities?start=k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    slow.stream.read_exact(&mut [0; 100]).expect("it begins");
    let deadline = Instant::now() + PATIENCE;
    while node.metric("dendra_timed_out_total") < 1.0 {
        // One that fits into the kernel's buffers: the time of this reader is short, too.
        assert_eq!(client.value("small").status, 200);
        assert!(Instant::now() < deadline, "the slow reader is not cut");
    }
    let mut rest = Vec::new();
    // Whether the cut looks like an end or like a reset depends on what the kernel still held.
    if slow.stream.read_to_end(&mut rest).is_ok() {
        assert!(!rest.ends_with(b"Dendra-Scan: complete\r\n\r\n"));
    }
    assert!(rest.len() < 40 * 500_000);
    node.wait_for_metric("dendra_bytes_inflight ", 0.0);
}

#[test]
fn a_scan_that_meets_damage_shows_all_records_in_front_of_where_it_says_to_go_on() {
    const RECORDS: usize = 300;
    let disk = MemVfs::new();
    let node = Node::on(Arc::new(disk.clone()), |_| {});
    let mut client = node.client();
    let mut prng = Prng::new(7);
    let name = |n: usize| format!("k{n:03}");
    for n in 0..RECORDS {
        // No two alike, so that no compression makes chunks of the table shorter.
        let value: Vec<u8> = (0..1_000).map(|_| prng.next_u64() as u8).collect();
        assert_eq!(client.put(&name(n), &value).status, 201);
    }
    node.stop();
    let table = disk.names().into_iter().find(|name| name.ends_with(".tbl"));
    disk.flip_bit(&table.expect("a stop flushes"), 8 * 200_000);
    let node = Node::on(Arc::new(disk), |_| {});
    let answer = node.client().get("/v0/entities?start=a");
    assert_eq!(answer.status, 200, "the first chunk is intact");
    let shown = keys(&answer);
    let wanted: Vec<String> = (0..shown.len()).map(name).collect();
    assert_eq!(shown, wanted);
    let ends = [
        format!("stopped; next={}%00", name(shown.len() - 1)),
        format!("stopped; next={}", name(shown.len())),
    ];
    let trailer = answer.trailer.expect("the connection is whole");
    assert!(ends.contains(&trailer), "{trailer} behind {}", shown.len());
}

const THREADS: [&str; 6] = ["loop", "scan", "store", "flush", "compact", "scrub"];

/// Names of threads of this process, without their numbers, and how nice they are: 19 yields most.
fn niceness() -> BTreeSet<(String, String)> {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux");
    let of_one = |thread: std::io::Result<std::fs::DirEntry>| {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
        let (head, fields) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1;
        let kind = name.trim_end_matches(|c: char| c == '-' || c.is_ascii_digit());
        let nice = fields.split_whitespace().nth(16)?;
        Some((kind.to_owned(), nice.to_owned()))
    };
    let all = threads.filter_map(of_one);
    all.filter(|(kind, _)| THREADS.contains(&kind.as_str()))
        .collect()
}

#[test]
fn threads_that_scan_or_maintain_leave_the_processor_to_loops_and_reads_of_one_key() {
    let _node = Node::with(|settings| settings.scrub_bytes_per_second = 1);
    let usual = rustix::process::getpriority_process(None).expect("our own");
    let nice = [usual, 10, usual, 5, 10, 15];
    let expected = std::array::from_fn::<_, 6, _>(|n| (THREADS[n].to_owned(), nice[n].to_string()));
    let deadline = Instant::now() + PATIENCE;
    // Threads of other tests' nodes are just about to start now and then.
    while niceness() != BTreeSet::from(expected.clone()) {
        assert!(Instant::now() < deadline, "{:?}", niceness());
        support::rest();
    }
}
