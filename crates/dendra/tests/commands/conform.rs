//! `dendra conform`: a node and every member of a cluster keep the contract, and a store that does
//! not is found.
//!
//! ```text
//! dendra conform ─► node                        every case passes
//! dendra conform ─► relay with a fault ─► node  the cases that are about the fault fail, by name
//! ```
//!
//! Invariants
//! 1. A fault is a change of bytes on the way: the node behind it is the real one.
//!
//! Not here: the cases (docs/conformance).
//! See: docs/conformance/README.md.

use crate::support::cluster::{Cluster, NODES};
use crate::support::{Node, Run, dendra, run};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// The case that a node by itself may leave out: docs/api.md, "Prefer".
const PREFER: &str = "a failed condition may bring the current value";

fn conform(url: &str, arguments: &[&str]) -> Run {
    run(dendra(["conform", "--url", url]).args(arguments))
}

/// The last line: cases, passed, failed, skipped.
fn counts(run: &Run) -> [usize; 4] {
    let text = String::from_utf8_lossy(&run.stdout);
    let last = text.lines().last().unwrap_or_default();
    let numbers = last.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<usize> = numbers.filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|_| {
        panic!("no counts: {text} {}", run.stderr);
    })
}

fn assert_all_pass(run: &Run) {
    let [cases, passed, failed, skipped] = counts(run);
    let text = String::from_utf8_lossy(&run.stdout);
    assert_eq!((run.code, failed), (Some(0), 0), "{text} {}", run.stderr);
    assert_eq!(passed + skipped, cases);
    assert!(passed > 80, "most of the contract is looked at: {text}");
}

#[test]
fn a_node_by_itself_keeps_the_contract_and_nothing_of_a_run_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), &[]);
    let asked = conform(&node.url, &[]);
    assert_all_pass(&asked);
    let text = String::from_utf8_lossy(&asked.stdout);
    let skipped = format!("skipped  {PREFER}  (the answer has no preference-applied)\n");
    assert!(text.contains(&skipped), "{text}");
    let left = node.run(["scan", "--keys-only"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

#[test]
fn every_member_of_a_cluster_keeps_the_contract() {
    let cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    for (index, address) in cluster.listen.iter().enumerate() {
        let mut more = vec![];
        // Waits of the same length at each member would be half of the time of this test.
        if index + 1 < NODES {
            more.extend(["--without", "slow"]);
        }
        let asked = conform(&format!("http://{address}"), &more);
        assert_all_pass(&asked);
        let text = String::from_utf8_lossy(&asked.stdout);
        assert!(text.contains(&format!("ok       {PREFER}\n")), "{text}");
    }
}

#[test]
fn a_skipped_case_is_said_and_an_unknown_tag_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), &[]);
    let only = ["--only", "time to live"];
    let all = conform(&node.url, &[&only[..], &["--without", "slow"]].concat());
    let none = conform(&node.url, &[&only[..], &["--without", "ttl"]].concat());
    let [cases, passed, _, skipped] = counts(&all);
    assert!(passed > 2 && skipped == 1, "{all:?}");
    let [cases_without, passed_without, _, skipped_without] = counts(&none);
    assert_eq!(cases_without, cases);
    assert!(passed_without < passed && skipped_without > skipped);
    assert!(String::from_utf8_lossy(&none.stdout).contains("(without ttl)"));
    let unknown = conform(&node.url, &["--without", "colour"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("conditions"), "it names the tags");
    assert_eq!(conform(&node.url, &["--only", "zzz"]).code, Some(2));
}

#[test]
fn a_store_that_is_not_there_has_no_failing_cases() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let gone = conform(&format!("http://{address}"), &[]);
    assert_eq!(gone.code, Some(5), "{}", gone.stderr);
}

#[test]
fn a_file_of_cases_with_a_fault_is_refused_before_anything_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let text = "[[case]]\nname = \"n\"\nsteps = [{ send = \"GET /\", status = 200, heder = {} }]\n";
    std::fs::write(&file, text).expect("written");
    let got = run(dendra(["conform", "--cases"]).arg(&file));
    assert_eq!(got.code, Some(2));
    assert!(got.stderr.contains("heder"), "{}", got.stderr);
}

/// The faults of a wrong store: bytes that it takes for others, or says in place of others.
#[derive(Clone, Copy)]
enum Fault {
    Hears(&'static str, &'static str),
    Says(&'static str, &'static str),
}

#[test]
fn a_store_that_breaks_the_contract_is_found_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Node::start(folder.path(), &[]);
    let faults = [
        (
            Fault::Says("201 Created", "200 Created"),
            "a value comes back as it was stored",
        ),
        (
            Fault::Says("ETag: \"", "ETag: \"0"),
            "If-Match replaces this version alone",
        ),
        (
            Fault::Hears("If-Match: \"", "If-Nothing: \""),
            "If-Match replaces this version alone",
        ),
        (
            Fault::Hears("If-None-Match: *", "If-Nothing: *"),
            "If-None-Match: * creates, and does not replace",
        ),
        (
            Fault::Hears("&ttl=1 ", "&ttl=9999 "),
            "a record ends with its time to live",
        ),
        (
            Fault::Says("outcome=not-applied", "outcome=unknown"),
            "a failed condition says that nothing was applied",
        ),
        (
            Fault::Says("Dendra-Scan: complete", "Dendra-Scan: whatever"),
            "a scan shows keys and values, sorted by bytes, one chunk each, and its end",
        ),
        (
            Fault::Hears("&reverse=true", "&reverse=false"),
            "a reversed scan shows the same range, largest key first, and goes on by its end",
        ),
        (
            Fault::Hears("&limit=", "&&&keys-only=false&limit=9"),
            "a limit stops a scan and names the way on",
        ),
        (
            Fault::Says("Allow: ", "Verbs: "),
            "other methods are 405 and say which ones there are",
        ),
        (Fault::Hears("%FF", "%FE"), "a key is bytes, not text"),
        (
            Fault::Hears(
                "Content-Length: 1\r\nContent-Length: 1\r\n",
                "Content-Length: 1\r\n",
            ),
            "a body with two lengths, or with a length and chunks, is refused",
        ),
        (
            Fault::Says("Dendra-Receipt: ", "Dendra-Receive: "),
            "a write that was acknowledged says on how many copies and how durably",
        ),
    ];
    for (fault, case) in faults {
        let relay = relay(node.address(), fault);
        let got = conform(&format!("http://{relay}"), &["--only", case]);
        let text = String::from_utf8_lossy(&got.stdout).into_owned();
        assert_eq!(got.code, Some(1), "{case}: {text} {}", got.stderr);
        assert!(text.contains(&format!("FAILED   {case}")), "{text}");
        assert!(text.contains("request ") && text.contains("got "), "{text}");
        let right = conform(&node.url, &["--only", case]);
        assert_eq!(
            right.code,
            Some(0),
            "without the fault it passes: {right:?}"
        );
    }
}

/// A store that is the node behind it, but for a fault.
fn relay(node: SocketAddr, fault: Fault) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(node).expect("the node listens");
            let (hears, says) = match fault {
                Fault::Hears(from, to) => (Some((from, to)), None),
                Fault::Says(from, to) => (None, Some((from, to))),
            };
            let twice = |stream: &TcpStream| stream.try_clone().expect("a second handle");
            let (to, back) = ((twice(&client), twice(&server)), (server, client));
            std::thread::spawn(move || pump(to.0, to.1, hears));
            std::thread::spawn(move || pump(back.0, back.1, says));
        }
    });
    address
}

/// Hands bytes on, read by read: a request of a case and an answer to it come in one.
fn pump(mut from: TcpStream, mut to: TcpStream, change: Option<(&str, &str)>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let bytes = match change {
            Some((old, new)) => replaced(&buffer[..len], old.as_bytes(), new.as_bytes()),
            None => buffer[..len].to_vec(),
        };
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    drop(to.shutdown(Shutdown::Write));
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(at) = rest.windows(old.len()).position(|part| part == old) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    out
}
