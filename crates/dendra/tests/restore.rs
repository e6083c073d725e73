//! A restore whose nodes and whose command are killed in the middle: it goes on, and all is there.
//!
//! ```text
//! backup ─► dendra restore, slowly ─► node, or three of them: killed and started again on their ports
//!                └─► a scripted node: pages that come too early, pages that are never taken
//! ```
//!
//! Invariants
//! 1. A moment for a kill is told by the bytes of tables in the node's folder, not by time.
//!
//! Not here: what a backup contains, and its other ends (`backup.rs`).
//! See: docs/format/backup.md, docs/decisions/0042-a-restore-writes-tables.md.

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use support::cluster::Cluster;
use support::http::{Client, PATIENCE};
use support::{Node, Reply, Request, Run, ScriptedNode, answer, dendra, run};

/// Values of this size, so many of them: some pages, and less than a table.
const VALUE_BYTES: usize = 100_000;
const VALUES: u64 = 100;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn key(number: u64) -> String {
    format!("key-{number:03}")
}

/// Bytes that cannot be compressed.
fn noise(seed: u64) -> Vec<u8> {
    let mut prng = dendra_base::Prng::new(seed);
    (0..VALUE_BYTES).map(|_| prng.next_u64() as u8).collect()
}

fn ok(run: Run) -> Run {
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run
}

/// A backup of a node with `VALUES` values.
fn backup(to: &Path) {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    let mut client = Client::open(node.address()).expect("it listens");
    for number in 0..VALUES {
        let put = client.ask("PUT", &key(number), &[], &noise(number));
        assert_eq!(put.expect("an answer").status, 201);
    }
    ok(run(dendra(["backup", "--admin", &node.admin]).arg(to)));
}

fn check_all(address: SocketAddr) {
    let mut client = Client::open(address).expect("it listens");
    for number in 0..VALUES {
        let got = client
            .ask("GET", &key(number), &[], b"")
            .expect("an answer");
        assert_eq!(got.status, 200, "{}", key(number));
        assert!(got.body == noise(number), "{}", key(number));
    }
}

/// A restore that takes some seconds.
fn start_restore(from: &Path, admin: &str) -> Child {
    dendra(["restore", "--bytes-per-second", "5MiB", "--admin", admin])
        .arg(from)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built")
}

/// Waits until the tables of a data folder have so many bytes.
fn wait_for_tables(data: &Path, bytes: u64) {
    let written = || -> u64 {
        let files = std::fs::read_dir(data).expect("a folder").flatten();
        let tables = files.filter(|it| it.file_name().to_string_lossy().ends_with(".tbl"));
        tables
            .filter_map(|it| it.metadata().ok())
            .map(|it| it.len())
            .sum()
    };
    let deadline = Instant::now() + PATIENCE;
    while written() < bytes {
        assert!(Instant::now() < deadline, "the restore hangs");
        std::thread::yield_now();
    }
}

#[test]
fn a_restore_goes_on_by_itself_behind_a_kill_of_the_node_and_again_behind_one_of_the_command() {
    let (backups, data) = (folder(), folder());
    backup(backups.path());
    let node = Node::start(data.path(), &[]);
    let admin = node.admin.clone();
    // Taken, and not durable: a second command sends it again, and the node takes it once.
    let mut killed = start_restore(backups.path(), &admin);
    wait_for_tables(data.path(), 3 << 20);
    killed.kill().expect("it is ours");
    killed.wait().expect("it is ours");
    let going_on = start_restore(backups.path(), &admin);
    wait_for_tables(data.path(), 5 << 20);
    let (listen, doors) = (node.address().to_string(), node.admin_address().to_string());
    support::kill_process(node.pid());
    node.reap();
    let node = Node::start_on(&listen, &doors, data.path(), &[]);
    let run = ok(support::finish(going_on));
    let said = &run.stderr;
    assert!(said.contains("sending again what is missing"), "{said}");
    // The first page was durable when the first command was killed.
    assert!(said.starts_with("going on behind"), "{said}");
    check_all(node.address());
    let ready = Client::open(node.admin_address()).expect("it listens");
    let ready = { ready }.request("GET", "/readyz", &[], b"");
    assert_eq!(ready.expect("an answer").status, 200);
}

#[test]
fn a_restore_goes_on_by_itself_behind_a_kill_of_one_member_of_three() {
    let backups = folder();
    backup(backups.path());
    let mut cluster = Cluster::start_with_admin(&[]);
    let admins = cluster.admin_urls();
    let restore = start_restore(backups.path(), &admins.join(","));
    wait_for_tables(&cluster.folder.path().join("1"), 3 << 20);
    cluster.kill(1);
    let door = admins[1].strip_prefix("http://").expect("a URL").to_owned();
    cluster.admin = Box::leak(door.into_boxed_str());
    cluster.restart_until_ready(1);
    let run = ok(support::finish(restore));
    let said = &run.stderr;
    assert!(said.contains("sending again what is missing"), "{said}");
    assert!(said.contains("restored 100 values and 0"), "{said}");
    for address in &cluster.listen {
        check_all(*address);
    }
}

const NODE: &str = "\"node\":\"0000000000000000000000000000002a\",\"cluster\":null";

/// What a scripted node answers to everything but pages.
fn scripted(request: &Request) -> Reply {
    let standing = match request.line.as_str() {
        "GET /v0/restore" => "null".to_owned(),
        _ => r#"{"id":"1","finished":false,"hlc":"1","pages":0,"position":""}"#.to_owned(),
    };
    let page = format!("{{{NODE},\"empty\":true,\"restore\":{standing}}}");
    answer("200 OK", &[], page.as_bytes())
}

fn begins(node: &ScriptedNode) -> usize {
    let requests = node.requests();
    let begun = requests.iter();
    begun
        .filter(|it| it.line.starts_with("POST /v0/restore?"))
        .count()
}

fn restore_into(from: &Path, node: &ScriptedNode) -> Run {
    run(dendra(["restore", "--admin", &node.url()]).arg(from))
}

#[test]
fn a_node_that_never_takes_a_page_ends_a_restore_with_a_sentence_and_one_that_waits_does_not() {
    let backups = folder();
    backup(backups.path());
    let missing = || answer("412 Precondition Failed", &[], b"pages are missing here\n");
    let node = ScriptedNode::start(move |request, _| match request.line.as_str() {
        "PUT /v0/restore/page" => missing(),
        _ => scripted(request),
    });
    let ended = restore_into(backups.path(), &node);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let words = "pages are missing here; 5 tries in a row began at the first key and brought";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(ended.stderr.contains("repeat the command"));
    assert_eq!(begins(&node), 5);

    // The first page is refused for a moment: later ones come too early, and nothing is missing.
    let taken: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let early = Arc::new(Mutex::new(0));
    let (seen, refused) = (Arc::clone(&taken), Arc::clone(&early));
    let node = ScriptedNode::start(move |request, _| {
        if request.line != "PUT /v0/restore/page" {
            return scripted(request);
        }
        let number = request.body[24..32].try_into().expect("eight bytes");
        let number = u64::from_le_bytes(number);
        let (mut seen, mut refused) = (seen.lock().expect("no panic"), refused.lock());
        let refused = refused.as_mut().expect("no panic");
        match number {
            // Until another one has come too early.
            0 if **refused == 0 => answer("503 Service Unavailable", &[], b"the store is behind\n"),
            1.. if !seen.contains(&(number - 1)) => {
                **refused += 1;
                answer("412 Precondition Failed", &[], b"pages are missing here\n")
            }
            _ => {
                seen.insert(number);
                answer("200 OK", &[], b"{}")
            }
        }
    });
    ok(restore_into(backups.path(), &node));
    assert_eq!(begins(&node), 1, "one round is enough");
    let pages = taken.lock().expect("no panic").len();
    assert!(
        *early.lock().expect("no panic") > 0 && pages > 5,
        "{pages} pages"
    );
}
