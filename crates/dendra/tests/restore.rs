//! A restore whose nodes and whose command are killed in the middle: it goes on, and all is there.
//!
//! ```text
//! backup ─► dendra restore, slowly ─► node, or three of them: killed and started again on their ports
//!                ├─► AdminDoor ─► one of three members: the command is killed at a step of the end
//!                └─► a scripted node: pages that come too early, pages that are never taken, other releases
//! test ─► begin, pages, settle, finish, by hand ─► three members: reads and writes between the steps
//! ```
//!
//! Invariants
//! 1. A moment for a kill is told by the bytes of tables in the node's folder, or by the step that
//!    an admin port was asked for. No time decides it.
//! 2. Where steps of the end are tested a record has one copy: a member that lacks it has to ask
//!    its owner.
//!
//! Not here: the content of a backup, and its other ends (`backup.rs`, `backup_cut_short.rs`). See:
//! docs/format/backup.md, docs/decisions/0042-a-restore-writes-tables.md.

mod support;

use dendra_base::{CellRef, Key, Version};
use dendra_wire::restore::RestorePageWriter;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Instant, SystemTime};
use support::backups::{self, folder, ok};
use support::cluster::Cluster;
use support::http::{Client, PATIENCE, wait_until_ready};
use support::{Node, Reply, Request, Run, ScriptedNode, answer, dendra, run};

/// Values of this size, so many of them: some pages, and less than a table.
const VALUE_BYTES: usize = 100_000;
const VALUES: u64 = 100;

fn key(number: u64) -> String {
    format!("key-{number:03}")
}

fn noise(seed: u64) -> Vec<u8> {
    backups::noise(seed, VALUE_BYTES)
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
        support::rest();
    }
}

#[test]
fn a_restore_goes_on_by_itself_behind_a_kill_of_the_node_and_again_behind_one_of_the_command() {
    let (backups, data) = (folder(), folder());
    backup(backups.path());
    let node = Node::start(data.path(), &[]);
    let admin = node.admin.clone();
    // Taken, and not durable: a second command sends it again, and the node takes it once.
    let killed = start_restore(backups.path(), &admin);
    wait_for_tables(data.path(), 3 << 20);
    support::kill(killed);
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

/// The answers of a scripted node to everything but pages.
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

    // The first page is refused for a moment: later ones come too early, and none is missing.
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

// The end of a restore in a cluster.

/// An admin port with a door in front, which passes all requests on up to a step of the end.
struct AdminDoor {
    node: ScriptedNode,
    state: Arc<DoorState>,
}

#[derive(Default)]
struct DoorState {
    /// The next request for this step gets no answer. Is it passed on?
    stop: Mutex<Option<(&'static str, bool)>>,
    stopped: Condvar,
}

impl AdminDoor {
    fn before(admin: SocketAddr) -> AdminDoor {
        let state = Arc::new(DoorState::default());
        let door = Arc::clone(&state);
        let node = ScriptedNode::start(move |request, _| {
            let (method, target) = request.line.split_once(' ').expect("a request");
            let pass = || {
                let mut client = Client::open(admin).expect("it listens");
                let got = client.request(method, target, &[], &request.body);
                let got = got.expect("an answer");
                answer(&format!("{} of the node", got.status), &[], &got.body)
            };
            let stop = *door.stop.lock().expect("no panic");
            let Some((_, passes)) = stop.filter(|(step, _)| target.contains(step)) else {
                return pass();
            };
            if passes {
                pass();
            }
            *door.stop.lock().expect("no panic") = None;
            door.stopped.notify_all();
            // The command waits for the answer, and is killed.
            loop {
                std::thread::park();
            }
        });
        AdminDoor { node, state }
    }

    /// From now on the command is stopped where it sends this step.
    fn stop_at(&self, step: &'static str, passes: bool) {
        *self.state.stop.lock().expect("no panic") = Some((step, passes));
    }

    /// Waits until it is.
    fn wait(&self) {
        let stop = self.state.stop.lock().expect("no panic");
        let waited = self
            .state
            .stopped
            .wait_timeout_while(stop, PATIENCE, |it| it.is_some());
        assert!(
            !waited.expect("no panic").1.timed_out(),
            "the step never comes"
        );
    }
}

fn address_of(url: &str) -> SocketAddr {
    let address = url.strip_prefix("http://").expect("a URL");
    address.parse().expect("an address")
}

/// The answer of an admin port about its node: the status and the text.
fn told(admin: SocketAddr, path: &str) -> (u16, String) {
    let mut client = Client::open(admin).expect("it listens");
    let told = client.request("GET", path, &[], b"").expect("an answer");
    (
        told.status,
        String::from_utf8_lossy(&told.body).into_owned(),
    )
}

/// A member into which a backup is restored says so to people, probes and programs.
fn check_restoring(address: SocketAddr, admin: SocketAddr) {
    let (status, text) = told(admin, "/readyz");
    assert_eq!(status, 503);
    assert!(text.starts_with("restoring: "), "{text}");
    assert_eq!(told(address, "/v0/status"), (503, "restoring\n".to_owned()));
    let (status, text) = told(admin, "/v0/status");
    let page: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((status, &page["phase"]), (200, &"restoring".into()));
    assert_eq!(page["ready"], false);
    let why = page["why"].as_str().expect("a reason");
    assert!(why.starts_with("restoring: "), "{why}");
    assert!(page["restore"]["records"].is_u64(), "{text}");
}

/// What `dendra cluster status` shows of the members in their order, when it is this.
fn wait_for_statuses(admin: SocketAddr, of: &Cluster, expected: [&str; 3]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let url = format!("http://{admin}");
        let shown = ok(run(&mut dendra(["cluster", "status", "--url", &url])));
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let statuses: Vec<&str> = (0..3)
            .filter_map(|at| {
                let line = text.lines().find(|line| line.contains(of.url(at)))?;
                line.split_whitespace().nth(4)
            })
            .collect();
        if statuses == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{text}");
        support::rest();
    }
}

/// The least successor number that a member knows.
fn least(admin: SocketAddr) -> u64 {
    let (_, text) = told(admin, "/v0/restore");
    let page: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    page["cluster"]["least_successor"]
        .as_u64()
        .expect("a number")
}

/// Clients of this member are refused, each way.
fn check_refused(address: SocketAddr) {
    let mut client = Client::open(address).expect("it listens");
    for method in ["GET", "PUT", "DELETE"] {
        let refused = client.ask(method, &key(1), &[], b"").expect("an answer");
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.status, 503, "{method}: {said}");
        assert!(said.contains("a restore is under way"), "{method}: {said}");
    }
}

/// Kills a member and starts it again with the same admin port.
fn bounce(cluster: &mut Cluster, index: usize, admin: SocketAddr) {
    cluster.kill(index);
    cluster.admin = Box::leak(admin.to_string().into_boxed_str());
    cluster.restart_until_ready(index);
}

fn admins_of(cluster: &Cluster) -> Vec<SocketAddr> {
    let urls = cluster.admin_urls();
    urls.iter().map(|url| address_of(url)).collect()
}

#[test]
fn a_command_that_is_killed_at_a_step_of_the_end_leaves_no_key_missing_and_goes_on() {
    let backups = folder();
    backup(backups.path());
    let mut cluster = Cluster::start_with_admin(&["--replication-factor", "1"]);
    let admins = admins_of(&cluster);
    let door = AdminDoor::before(admins[2]);
    let mut urls = cluster.admin_urls();
    urls[2] = door.node.url();
    let urls = urls.join(",");

    // The last member has settled, and the command does not know: no member lets clients in.
    door.stop_at("/v0/restore/settle", true);
    let killed = start_restore(backups.path(), &urls);
    door.wait();
    cluster.listen.iter().for_each(|it| check_refused(*it));
    support::kill(killed);
    assert_eq!(least(admins[0]), 0, "not all have settled");

    // Two members have ended and ask the third one, which has not.
    door.stop_at("/v0/restore/finish", false);
    let killed = start_restore(backups.path(), &urls);
    door.wait();
    admins[..2].iter().for_each(|it| wait_until_ready(*it));
    cluster.listen[..2].iter().for_each(|it| check_all(*it));
    check_refused(cluster.listen[2]);
    support::kill(killed);
    let raised = least(admins[0]);
    assert!(raised >= 1 << 16, "{raised}");
    bounce(&mut cluster, 2, admins[2]);
    cluster.listen[..2].iter().for_each(|it| check_all(*it));
    check_refused(cluster.listen[2]);

    let run = ok(support::finish(start_restore(backups.path(), &urls)));
    assert!(
        run.stderr.contains("restored 0 values and 0"),
        "{}",
        run.stderr
    );
    cluster.listen.iter().for_each(|it| check_all(*it));
    admins.iter().for_each(|it| wait_until_ready(*it));
    for admin in &admins {
        assert_eq!(least(*admin), raised, "a command that goes on keeps it");
    }
}

/// A page of restore 1 with these records, of a version of before.
fn page(number: u64, behind: &str, records: &[(String, &[u8])], hlc: u64) -> Vec<u8> {
    let mut writer = RestorePageWriter::new(1, number, behind.as_bytes());
    let version = Version {
        hlc,
        origin: 3,
        rmw: 0,
    };
    for (raw, value) in records {
        let stored = Key::user(raw.as_bytes());
        writer.push(
            raw.as_bytes(),
            &CellRef::value(stored.as_stored(), version, value),
        );
    }
    writer.finish().to_vec()
}

#[test]
fn a_member_that_has_ended_reads_and_writes_at_those_that_have_settled() {
    let mut cluster = Cluster::start_with_admin(&["--replication-factor", "1"]);
    let admins = admins_of(&cluster);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let hlc = (since.expect("after 1970").as_millis() as u64) << 16;
    let send = |at: usize, method: &str, target: &str, body: &[u8]| {
        let mut client = Client::open(admins[at]).expect("it listens");
        client
            .request(method, target, &[], body)
            .expect("an answer")
    };
    for at in 0..3 {
        let begin = format!("/v0/restore?id=1&hlc={hlc:x}");
        let deadline = Instant::now() + PATIENCE;
        // Until it has links to all others.
        while send(at, "POST", &begin, b"").status != 200 {
            assert!(Instant::now() < deadline, "it never begins");
            support::rest();
        }
    }
    // The first page is durable at once, and the table of the others stays open.
    let keys: Vec<String> = (0..60).map(key).collect();
    let records: Vec<(String, &[u8])> = keys.iter().map(|it| (it.clone(), &b"old"[..])).collect();
    let pages = [
        page(0, "", &records[..1], hlc),
        page(1, &keys[0], &records[1..], hlc),
    ];
    let last = keys.last().expect("there are some").as_bytes();
    for at in 0..3 {
        for page in &pages {
            assert_eq!(send(at, "PUT", "/v0/restore/page", page).status, 200);
        }
    }
    for _again in 0..2 {
        for at in 0..3 {
            let settled = send(at, "POST", "/v0/restore/settle?id=1", last);
            let page: serde_json::Value = serde_json::from_slice(&settled.body).expect("JSON");
            assert_eq!(page["restore"]["finished"], false, "{page}");
        }
    }
    for (address, admin) in cluster.listen.iter().zip(&admins) {
        check_refused(*address);
        check_restoring(*address, *admin);
        wait_for_statuses(*admin, &cluster, ["restoring"; 3]);
    }
    let (_, text) = told(admins[0], "/v0/status");
    let page: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let (records, bytes) = (&page["restore"]["records"], &page["restore"]["bytes"]);
    let records = records.as_u64().expect("a number");
    assert!((1..60).contains(&records), "it has its own ones: {text}");
    assert_eq!(
        bytes.as_u64(),
        Some(records * 10),
        "7 of a key, 3 of a value"
    );
    // A restore that does not raise the least successor number lets no client in.
    assert_eq!(send(0, "POST", "/v0/restore/finish?id=1", last).status, 400);
    let finish = "/v0/restore/finish?id=1&least=70000";
    assert_eq!(send(0, "POST", finish, last).status, 503, "not raised yet");
    let raise = send(0, "POST", "/v0/restore/successors?id=1&least=70000", b"");
    assert_eq!(raise.status, 200);
    assert_eq!(send(0, "POST", finish, last).status, 200);
    wait_for_statuses(admins[0], &cluster, ["member", "restoring", "restoring"]);

    // Every third key is on each of the others: all are read, some are written, some deleted.
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let read = |client: &mut Client, key: &str| {
        let got = client.ask("GET", key, &[], b"").expect("an answer");
        (got.status, got.body)
    };
    for key in &keys {
        assert_eq!(read(&mut client, key), (200, b"old".to_vec()), "{key}");
    }
    let listed = client.request("GET", "/v0/entities?prefix=key&keys-only=true", &[], b"");
    let listed = listed.expect("an answer").body;
    let listed = String::from_utf8_lossy(&listed).matches("key-").count();
    assert_eq!(listed, keys.len(), "a scan finds all of them, too");
    let (written, rest) = keys.split_at(20);
    let (deleted, kept) = rest.split_at(20);
    for key in written {
        let put = client.ask("PUT", key, &[], b"new").expect("an answer");
        assert_eq!(put.status, 201);
    }
    for key in deleted {
        let gone = client.ask("DELETE", key, &[], b"").expect("an answer");
        assert_eq!(gone.status, 202);
    }
    let check = |address: SocketAddr| {
        let mut client = Client::open(address).expect("it listens");
        for key in written {
            assert_eq!(read(&mut client, key), (200, b"new".to_vec()), "{key}");
        }
        for key in deleted {
            assert_eq!(read(&mut client, key).0, 404, "{key}");
        }
        for key in kept {
            assert_eq!(read(&mut client, key), (200, b"old".to_vec()), "{key}");
        }
    };
    bounce(&mut cluster, 1, admins[1]);
    check_refused(cluster.listen[1]);
    check_restoring(cluster.listen[1], admins[1]);
    check(cluster.listen[0]);
    // Pages of a second command, and those of the first one that were under way.
    for at in 1..3 {
        for page in &pages {
            assert_eq!(send(at, "PUT", "/v0/restore/page", page).status, 200);
        }
        assert_eq!(
            send(at, "POST", "/v0/restore/settle?id=1", last).status,
            200
        );
    }
    check(cluster.listen[0]);
    let deadline = Instant::now() + PATIENCE;
    for at in 1..3 {
        // Until it knows the epoch that raised the number.
        while send(at, "POST", finish, last).status != 200 {
            assert!(Instant::now() < deadline, "it never ends");
            support::rest();
        }
    }
    cluster.listen.iter().for_each(|it| check(*it));
    let (_, text) = told(admins[1], "/v0/status");
    let page: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&page["phase"], &page["ready"]),
        (&"serving".into(), &true.into())
    );
    assert!(page["restore"].is_null() && page["why"].is_null(), "{text}");
}

/// One of three scripted members.
fn scripted_member(number: usize, request: &Request) -> Reply {
    let urls = ["http://a:1", "http://b:1", "http://c:1"];
    let standing = match request.line.as_str() {
        "GET /v0/restore" => serde_json::Value::Null,
        _ => serde_json::json!({
            "id": "1", "finished": false, "hlc": "1", "pages": 0, "position": "",
        }),
    };
    let page = serde_json::json!({
        "node": format!("{:032x}", 42 + number),
        "cluster": {
            "name": "x", "epoch": 1, "replication_factor": 3, "least_successor": 0,
            "self": urls[number], "members": urls,
        },
        "empty": true,
        "restore": standing,
    });
    answer("200 OK", &[], page.to_string().as_bytes())
}

/// The steps of the end that members were asked for, in their order: `settle 0`.
type Steps = Arc<Mutex<Vec<String>>>;

/// Restores into three members, whose answers to steps of the end are `script`'s.
fn restore_into_three(
    from: &Path,
    script: impl Fn(&str, usize) -> Option<Reply> + Send + Sync + Clone + 'static,
) -> (Run, Vec<String>, Vec<ScriptedNode>) {
    let steps = Steps::default();
    let nodes: Vec<ScriptedNode> = (0..3)
        .map(|number| {
            let (steps, script) = (Arc::clone(&steps), script.clone());
            ScriptedNode::start(move |request, _| {
                let step = request.line.strip_prefix("POST /v0/restore/");
                let Some(step) = step.and_then(|it| it.split('?').next()) else {
                    return scripted_member(number, request);
                };
                let mut steps = steps.lock().expect("no panic");
                steps.push(format!("{step} {number}"));
                let scripted = script(step, number);
                scripted.unwrap_or_else(|| scripted_member(number, request))
            })
        })
        .collect();
    let urls: Vec<String> = nodes.iter().map(ScriptedNode::url).collect();
    let run = run(dendra(["restore", "--admin", &urls.join(",")]).arg(from));
    let steps = steps.lock().expect("no panic").clone();
    (run, steps, nodes)
}

fn sorted(steps: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = steps.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted
}

#[test]
fn no_member_is_told_to_let_clients_in_before_all_have_settled() {
    let backups = folder();
    backup(backups.path());
    let (run, steps, _) = restore_into_three(backups.path(), |_, _| None);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(sorted(&steps[..3]), ["settle 0", "settle 1", "settle 2"]);
    assert_eq!(sorted(&steps[3..]), ["finish 0", "finish 1", "finish 2"]);

    let (run, steps, _) = restore_into_three(backups.path(), |step, number| {
        let is_full = (step, number) == ("settle", 1);
        is_full.then(|| answer("507 Insufficient Storage", &[], b"the disk is full\n"))
    });
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let words = "the disk is full; repeat the command";
    assert!(run.stderr.contains(words), "{}", run.stderr);
    assert!(steps.iter().all(|it| it.starts_with("settle")), "{steps:?}");
}

#[test]
fn a_member_that_forgets_the_restore_before_it_has_settled_gets_the_pages_again() {
    let backups = folder();
    backup(backups.path());
    // All are asked again, and none was let in.
    let (run, steps, nodes) = restore_into_three(backups.path(), |step, number| {
        ((step, number) == ("settle", 2)).then(|| answer("412 Precondition Failed", &[], b""))
    });
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("sending again what is missing"),
        "{}",
        run.stderr
    );
    assert_eq!(begins(&nodes[0]), 5);
    assert!(steps.iter().all(|it| it.starts_with("settle")), "{steps:?}");
}
