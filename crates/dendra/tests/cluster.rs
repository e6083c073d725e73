//! The promises of a cluster while one of three is killed or frozen, and while two do not hear each
//! other.
//!
//! ```text
//! clients ─► node 1, node 2, node 3        links between them ─► proxies: cut, stall, delay
//! calm ──► fault ──► 2 s ──► on ──► mended ──► 2 s ──► calm    all that clients were told ─► the simulator's checkers
//! ```
//!
//! Invariants
//! 1. Histories are linearizable, by both checkers of the simulator, in every attempt on every
//!    machine.
//! 2. While two members do not hear each other every operation is carried out. Clients wait for a
//!    minute there, so that a failure is one of the cluster and not of the machine.
//! 3. "No operation fails that has a second, and the 99th percentile is back within `BACK_FACTOR`
//!    times two seconds later" are claims about time. A machine that is busy with other things
//!    spoils them in bursts. So a phase is many short windows, and of their 99th percentiles the
//!    middle one counts. It is compared with the windows of the same clients before the fault and
//!    after it. No other test of this file runs meanwhile, and each claim is tried up to `ATTEMPTS`
//!    times, with its figures printed. A member that is asked and waited for makes it a hundred.
//! 4. Phases end after so many operations; the two seconds are the only time. The deadline of an
//!    operation is kept by the node that has it, on its own clock. If the node could not do it in
//!    time, it says so, and that is a failure here.
//! 5. Copies count once the kernel has them: the disk's part of a sync is not asked here.
//!
//! Not here: every schedule of messages (crate `sim`), one node (`node.rs`, `kill.rs`), `dendra
//! dev` (`dev.rs`). See: docs/verification.md.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use support::clients::{Load, under_load};
use support::cluster::{Cluster, NODES};
use support::http::{Client, PATIENCE};
use support::proxy::{Faults, LinkFault, Proxy};
use support::signal;

/// Times that a claim about time is tried.
const ATTEMPTS: usize = 3;
/// The deadline of a client whose operations must not fail.
const DEADLINE_MS: u32 = 1_000;
/// How long the others may take to get used to it.
const BACK_US: u64 = 2_000_000;
/// How many times as long as in calm the 99th percentile may be then.
const BACK_FACTOR: u64 = 2;
/// Windows of a phase that is measured: a burst of other work on the machine spoils a few of them.
const WINDOWS: usize = 15;
/// Operations of a window: some tens of milliseconds, and four of them are above the 99th
/// percentile.
const WINDOW_OPERATIONS: u64 = 400;
/// Operations before the first window: links, logs and estimates are fresh.
const WARM_OPERATIONS: u64 = 2_000;

/// Held by tests about time, and shared by all others in this file.
static QUIET: RwLock<()> = RwLock::new(());

/// Members ask each other in frames unless they are told to use HTTP.
const HTTP: [&str; 2] = ["--peer-transport", "http"];

#[test]
fn any_of_three_nodes_answers_for_any_key() {
    let _others = beside_others();
    every_kind_of_request_is_answered_by_any(&Cluster::start(&[]));
}

#[test]
fn any_of_three_nodes_answers_for_any_key_over_plain_http() {
    let _others = beside_others();
    let mut cluster = Cluster::start(&HTTP);
    every_kind_of_request_is_answered_by_any(&cluster);
    // A member that asks by frames is one of them.
    cluster.kill(0);
    cluster.flags.clear();
    cluster.start_node(0);
    cluster.wait_until_usable(0);
    cluster.wait_for_all_links();
}

/// Items at each level, with all three members and then without one.
#[test]
fn a_batch_is_carried_out_by_any_of_three_and_without_one() {
    let _others = beside_others();
    let mut cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    let many = |from: usize, op: &str| -> String {
        let item = |n| match op {
            "put" => format!("{{\"key\":\"k{n}\",\"value\":\"v{n}\"}}\n"),
            op => format!("{{\"op\":\"{op}\",\"key\":\"k{n}\"}}\n"),
        };
        (from..from + 1_000).map(item).collect()
    };
    let batch = |address, body: &str| {
        let mut client = Client::open(address).expect("it listens");
        let answer = client.request("POST", "/v0/batch", &[], body.as_bytes());
        let answer = answer.expect("it answers");
        assert_eq!(answer.status, 200);
        let text = String::from_utf8(answer.body).expect("lines are text");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_str(line).expect("an object"))
            .collect();
        (answer.receipt, lines)
    };
    for (round, members) in [(0, 0..3), (1, 0..2)] {
        if round == 1 {
            cluster.kill(2);
        }
        for member in members {
            let from = 1_000 * (3 * round + member);
            let (end, lines) = batch(cluster.listen[member], &many(from, "put"));
            assert_eq!(end, "Dendra-Batch: complete; items=1000");
            for line in &lines {
                assert_eq!(line["status"], 201, "{line}");
                let receipt = line["receipt"].as_str().expect("a receipt");
                assert!(
                    receipt.ends_with("level=linearizable; durability=sync"),
                    "{receipt}"
                );
            }
            // From another one: what was acknowledged is what it shows, in the order of the items.
            let (_, lines) = batch(cluster.listen[1 - member.min(1)], &many(from, "get"));
            for (n, line) in lines.iter().enumerate() {
                assert_eq!(line["value"], format!("v{}", from + n), "{line}");
            }
        }
        // Items of one key see each other, and each has its own condition and level.
        let (_, lines) = batch(
            cluster.listen[0],
            "{\"key\":\"x\",\"value\":\"1\"}\n{\"key\":\"x\",\"value\":\"2\",\"if-none-match\":\"*\"}\n\
             {\"op\":\"delete\",\"key\":\"x\",\"if-match\":\"*\"}\n{\"op\":\"get\",\"key\":\"x\"}\n\
             {\"key\":\"x\",\"value\":\"3\",\"if-none-match\":\"*\",\"ack\":1}\n\
             {\"key\":\"x\",\"value\":\"4\",\"ack\":3}\n",
        );
        let statuses: Vec<_> = lines
            .iter()
            .filter_map(|line| line["status"].as_u64())
            .collect();
        let all = if round == 0 { 201 } else { 504 };
        assert_eq!(statuses, [201, 412, 202, 404, 400, all], "{lines:?}");
    }
}

fn every_kind_of_request_is_answered_by_any(cluster: &Cluster) {
    cluster.wait_for_all_links();
    let mut clients: Vec<Client> = cluster
        .listen
        .iter()
        .map(|address| Client::open(*address).expect("it listens"))
        .collect();
    let mut ask = |node: usize, method: &str, target: &str, headers: &[&str], body: &[u8]| {
        clients[node]
            .request(method, target, headers, body)
            .expect("it answers")
    };
    let stored = ask(0, "PUT", "/v0/entity?id=k", &[], b"one");
    assert_eq!(stored.status, 201);
    assert_eq!(
        stored.receipt,
        "acks=2/3; level=linearizable; durability=sync"
    );
    for node in 0..NODES {
        let found = ask(node, "GET", "/v0/entity?id=k", &[], b"");
        assert_eq!((found.status, &found.body[..]), (200, &b"one"[..]));
        assert_eq!(found.etag, stored.etag);
    }
    // Conditions hold of the newest version that the whole cluster knows.
    let tag = format!("If-Match: {}", stored.etag.expect("a version"));
    let next = ask(1, "PUT", "/v0/entity?id=k", &[&tag], b"two");
    assert_eq!(next.status, 201);
    let failed = ask(2, "PUT", "/v0/entity?id=k", &[&tag], b"three");
    assert_eq!((failed.status, failed.etag), (412, next.etag));
    let exists = ask(2, "PUT", "/v0/entity?id=k", &["If-None-Match: *"], b"three");
    assert_eq!(exists.status, 412);
    // One copy has one home, and every node knows it.
    let one = ask(0, "PUT", "/v0/entity?id=single&ack=1&from=1", &[], b"1");
    assert_eq!((one.status, &one.receipt[..8]), (201, "acks=1/1"));
    for node in 0..NODES {
        let found = ask(node, "GET", "/v0/entity?id=single&ack=1&from=1", &[], b"");
        assert_eq!((found.status, &found.body[..]), (200, &b"1"[..]));
    }
    let weak = ask(0, "PUT", "/v0/entity?id=k&ack=1&from=3", &[&tag], b"x");
    assert_eq!(weak.status, 400);
    assert!(weak.body.starts_with(b"bad-quorum: "), "{weak:?}");
    let many = ask(0, "PUT", "/v0/entity?id=k&from=4", &[], b"x");
    assert_eq!(many.status, 400);
    // A scan of the cluster shows every key once, from any node, and deletions hold everywhere.
    assert_eq!(ask(1, "DELETE", "/v0/entity?id=k", &[], b"").status, 202);
    assert_eq!(ask(2, "GET", "/v0/entity?id=k", &[], b"").status, 404);
    for (n, key) in ["a", "b", "c"].iter().enumerate() {
        let target = format!("/v0/entity?id={key}");
        assert_eq!(ask(n, "PUT", &target, &[], key.as_bytes()).status, 201);
    }
    for node in 0..NODES {
        let scan = ask(node, "GET", "/v0/entities?start=a", &[], b"");
        assert_eq!(scan.status, 200);
        assert_eq!(scan.receipt, "Dendra-Scan: complete");
        let shown = String::from_utf8_lossy(&scan.body).into_owned();
        // A scan meets a majority of the owners: not always the one owner of a single copy.
        let shown = shown.replace("single\n1\n", "");
        assert_eq!(shown, "a\na\nb\nb\nc\nc\n");
    }
}

/// The times of some windows, one after the other.
fn windows(load: &Load) -> Vec<Range<u64>> {
    let window = || {
        let from_us = load.now_us();
        load.run_on(WINDOW_OPERATIONS);
        from_us..load.now_us()
    };
    (0..WINDOWS).map(|_| window()).collect()
}

/// Lets no test about time begin while the caller holds it. A test that failed is no reason to
/// stop.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    QUIET.read().unwrap_or_else(PoisonError::into_inner)
}

/// Has `fault` happen to node 3 and mends it, under clients of the two others; names each broken
/// promise.
fn try_one_in_trouble(
    cluster: &mut Cluster,
    name: &str,
    fault: impl Fn(&mut Cluster),
    mend: impl Fn(&mut Cluster),
) -> Result<(), String> {
    cluster.wait_for_all_links();
    let on = [(0, cluster.listen[0]), (1, cluster.listen[1])];
    let (mut calm, mut back) = (Vec::new(), Vec::new());
    let told = under_load(name, &on, DEADLINE_MS, |load| {
        load.run_on(WARM_OPERATIONS);
        calm = windows(load);
        fault(cluster);
        load.run_on_until(load.now_us() + BACK_US);
        back = windows(load);
        mend(cluster);
        load.run_on_until(load.now_us() + BACK_US);
        calm.extend(windows(load));
    });
    let middle_us = |windows: &[Range<u64>]| {
        let mut all_us: Vec<u64> = windows.iter().cloned().map(|w| told.p99_us(w)).collect();
        all_us.sort_unstable();
        println!("{name}: p99 of windows, µs: {all_us:?}");
        all_us[all_us.len() / 2]
    };
    let (calm_us, back_us) = (middle_us(&calm), middle_us(&back));
    let figures = format!(
        "{name}: {} operations failed; p99 {calm_us} µs in calm, {back_us} µs from 2 s after the fault on: {:.2} times",
        told.failed(),
        back_us as f64 / calm_us as f64
    );
    println!("{figures}");
    let is_kept = told.failed() == 0 && back_us <= BACK_FACTOR * calm_us;
    is_kept.then_some(()).ok_or(figures)
}

fn one_in_trouble(name: &str, transport: &[&str], fault: fn(&mut Cluster), mend: fn(&mut Cluster)) {
    let _quiet = QUIET.write().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = Cluster::start(&[&["--durability", "os"], transport].concat());
    let mut attempt = |n| try_one_in_trouble(&mut cluster, &format!("{name}-{n}"), fault, mend);
    let broken: Vec<String> = (0..ATTEMPTS).map_while(|n| attempt(n).err()).collect();
    assert!(broken.len() < ATTEMPTS, "{broken:#?}");
}

fn one_crashes(transport: &[&str]) {
    let restart = |cluster: &mut Cluster| {
        cluster.start_node(2);
        cluster.wait_until_usable(2);
    };
    one_in_trouble("crash", transport, |cluster| cluster.kill(2), restart);
}

fn one_freezes(transport: &[&str]) {
    let freeze = |cluster: &mut Cluster| signal(cluster.child(2), "STOP");
    let go_on = |cluster: &mut Cluster| signal(cluster.child(2), "CONT");
    one_in_trouble("freeze", transport, freeze, go_on);
}

#[test]
fn one_of_three_may_crash_without_an_operation_that_fails() {
    one_crashes(&[]);
}

#[test]
#[ignore = "at length"]
fn one_of_three_may_crash_without_an_operation_that_fails_over_plain_http() {
    one_crashes(&HTTP);
}

#[test]
fn one_of_three_may_freeze_without_an_operation_that_fails() {
    one_freezes(&[]);
}

#[test]
#[ignore = "at length"]
fn one_of_three_may_freeze_without_an_operation_that_fails_over_plain_http() {
    one_freezes(&HTTP);
}

#[test]
fn two_that_do_not_hear_each_other_have_the_third_between_them() {
    two_do_not_hear_each_other(&[]);
}

#[test]
#[ignore = "at length"]
fn two_that_do_not_hear_each_other_have_the_third_between_them_over_plain_http() {
    two_do_not_hear_each_other(&HTTP);
}

fn two_do_not_hear_each_other(transport: &[&str]) {
    let _others = beside_others();
    let cluster = Cluster::start(&[&["--durability", "os"], transport].concat());
    let delay = LinkFault::Delay(Duration::from_millis(30));
    for (name, fault) in [
        ("cut", LinkFault::Cut),
        ("stall", LinkFault::Stall),
        ("delay", delay),
    ] {
        cluster.wait_for_all_links();
        let on = [(0, cluster.listen[0]), (1, cluster.listen[1])];
        let told = under_load(name, &on, 60_000, |load| {
            load.run_on(200);
            cluster.faults.set(0, 1, fault);
            load.run_on(200);
            cluster.faults.set(1, 0, fault);
            load.run_on(200);
            cluster.faults.heal();
            load.run_on(200);
        });
        assert_eq!(told.failed(), 0, "{name}: two of three are a majority");
    }
}

#[test]
fn a_member_whose_folder_was_wiped_ends_and_says_why() {
    a_wiped_member_ends(&[]);
}

#[test]
fn a_member_whose_folder_was_wiped_ends_and_says_why_over_plain_http() {
    a_wiped_member_ends(&HTTP);
}

fn a_wiped_member_ends(transport: &[&str]) {
    let _others = beside_others();
    let mut cluster = Cluster::start(transport);
    cluster.wait_for_all_links();
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let stored = client.ask("PUT", "k", &[], b"v").expect("it answers");
    assert_eq!(stored.status, 201);
    cluster.kill(2);
    let data = cluster.folder.path().join("2");
    std::fs::remove_dir_all(&data).expect("the folder of a node that is gone");
    cluster.start_node(2);
    assert_eq!(cluster.wait_for_end(2), Some(3));
    assert!(
        cluster.log_of(2).contains("other-node"),
        "{}",
        cluster.log_of(2)
    );
    let found = client.ask("GET", "k", &[], b"").expect("it answers");
    assert_eq!(found.status, 200, "the others go on");
    // It need not be told again.
    cluster.kill(0);
    cluster.kill(1);
    cluster.start_node(2);
    assert_eq!(cluster.wait_for_end(2), Some(3));
    let log = cluster.log_of(2);
    assert!(
        log.contains("no node may start on it, as its file REFUSED says"),
        "{log}"
    );
}

#[test]
fn a_member_on_an_older_image_of_its_disk_ends_and_restarts_do_not_help_it() {
    let _others = beside_others();
    let mut cluster = Cluster::start(&[]);
    cluster.kill(2);
    let data = cluster.folder.path().join("2");
    let image = cluster.folder.path().join("image");
    copy_folder(&data, &image);
    // The others see two more of its starts.
    for _ in 0..2 {
        cluster.start_node(2);
        cluster.wait_until_usable(2);
        cluster.kill(2);
    }
    std::fs::remove_dir_all(&data).expect("the folder of a node that is gone");
    std::fs::rename(&image, &data).expect("names in one folder");
    for _ in 0..3 {
        cluster.start_node(2);
        assert_eq!(cluster.wait_for_end(2), Some(3));
    }
    assert!(
        cluster.log_of(2).contains("rolled-back"),
        "{}",
        cluster.log_of(2)
    );
}

/// Milliseconds in the version of an answer.
fn millisecond(etag: Option<&String>) -> u64 {
    let text = etag.expect("a version").trim_matches('"');
    let hlc = text.split('-').next().unwrap_or_default();
    u64::from_str_radix(hlc, 16).expect("a clock value") >> 16
}

/// A copy of a disk in use, and the member is not started again before the copy takes its place.
/// Only the writes that it confirmed meanwhile tell the two apart.
fn an_image_of_a_running_disk_is_refused(transport: &[&str]) {
    let _others = beside_others();
    // Each loop says at this level that it lost a member.
    let levels = ["--log", "info,dendra_server::peers::link=debug"];
    let mut cluster = Cluster::start(&[transport, &levels].concat());
    cluster.wait_for_all_links();
    let root = cluster.folder.path().to_owned();
    signal(cluster.child(2), "STOP");
    for image in ["image", "later"] {
        copy_folder(&root.join("2"), &root.join(image));
    }
    signal(cluster.child(2), "CONT");
    // The image's clock is durable up to three seconds ahead of the used one.
    write_for(&cluster, 3_100);
    cluster.kill(2);
    let (code, said) = Copy::start(&cluster, "image").wait_for_end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("rolled-back: the folder of"), "{said}");
    assert!(said.contains("ms past the end of the clock"), "{said}");
    // A process that was started again has not forgotten it: the last of its loops that lost the
    // member made a note, then said so.
    let loops = std::thread::available_parallelism().map_or(1, |n| n.get());
    let deadline = Instant::now() + PATIENCE;
    let lost = |line: &str| line.contains("the link was lost") && line.contains("this loop has no");
    while cluster.log_of(0).lines().filter(|line| lost(line)).count() < loops {
        assert!(Instant::now() < deadline, "{}", cluster.log_of(0));
        support::rest();
    }
    for node in [0, 1] {
        cluster.kill(node);
    }
    cluster.start_node(0);
    let (code, said) = Copy::start(&cluster, "later").wait_for_end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("ms past the end of the clock"), "{said}");
    // And the newest folder is the member.
    cluster.start_node(1);
    cluster.start_node(2);
    cluster.wait_until_usable(2);
}

/// Writes at member 0, acknowledged by all, until the clock is so far ahead of the first write.
fn write_for(cluster: &Cluster, ms: u64) {
    let mut client = Client::open(cluster.listen[0]).expect("it listens");
    let mut began = None;
    loop {
        let target = "/v0/entity?id=k&ack=3&from=3";
        let stored = client
            .request("PUT", target, &[], b"v")
            .expect("it answers");
        assert_eq!(stored.status, 201);
        let now = millisecond(stored.etag.as_ref());
        if now > *began.get_or_insert(now) + ms {
            return;
        }
    }
}

/// An image of member 2 while it runs, and five seconds of writes behind it. That is two more than
/// its clock is ahead, of which the last one may not be noted yet.
fn with_an_image() -> Cluster {
    let cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    let root = cluster.folder.path().to_owned();
    signal(cluster.child(2), "STOP");
    copy_folder(&root.join("2"), &root.join("image"));
    signal(cluster.child(2), "CONT");
    write_for(&cluster, 5_500);
    cluster
}

fn image_is_refused(cluster: &Cluster) {
    let (code, said) = Copy::start(cluster, "image").wait_for_end();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("ms past the end of the clock"), "{said}");
}

#[test]
fn an_image_is_refused_after_all_members_were_killed_at_once() {
    let _others = beside_others();
    let mut cluster = with_an_image();
    cluster.kill_all();
    cluster.start_node(1);
    image_is_refused(&cluster);
    // The newest folder is the member.
    cluster.start_node(0);
    cluster.start_node(2);
    cluster.wait_until_usable(2);
}

#[test]
fn an_image_is_refused_after_the_others_were_restarted_one_by_one() {
    let _others = beside_others();
    let mut cluster = with_an_image();
    for node in [0, 1] {
        signal(cluster.child(node), "TERM");
        assert_eq!(cluster.wait_for_end(node), Some(0));
        cluster.restart_until_ready(node);
    }
    cluster.kill(2);
    image_is_refused(&cluster);
    cluster.start_node(2);
    cluster.wait_until_usable(2);
}

#[test]
fn an_image_of_a_running_disk_does_not_pass_for_the_member() {
    an_image_of_a_running_disk_is_refused(&[]);
}

#[test]
#[ignore = "at length"]
fn an_image_of_a_running_disk_does_not_pass_for_the_member_over_plain_http() {
    an_image_of_a_running_disk_is_refused(&HTTP);
}

#[test]
fn a_member_that_is_killed_again_and_again_stays_near_the_wall_clock() {
    let _others = beside_others();
    let mut cluster = Cluster::start(&[]);
    let mut farthest = 0;
    // Each life takes three seconds of the clock and lasts for a fraction of one.
    for _ in 0..8 {
        cluster.kill(2);
        cluster.start_node(2);
        cluster.wait_until_usable(2);
        let mut client = Client::open(cluster.listen[2]).expect("it listens");
        let stored = client.ask("PUT", "k", &[], b"v").expect("it answers");
        let said = String::from_utf8_lossy(&stored.body).into_owned();
        assert_eq!(stored.status, 201, "{said}{}", cluster.log_of(2));
        let wall = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let wall_ms = wall.expect("it is later than 1970").as_millis() as u64;
        farthest = farthest.max(millisecond(stored.etag.as_ref()).saturating_sub(wall_ms));
    }
    assert!(farthest < 6_000, "{farthest} ms");
}

#[test]
fn quick_clean_restarts_take_nothing_of_the_clock_and_need_no_wait() {
    let _others = beside_others();
    let mut cluster = Cluster::start(&[]);
    cluster.wait_for_all_links();
    for round in 0..8 {
        signal(cluster.child(2), "TERM");
        assert_eq!(cluster.wait_for_end(2), Some(0));
        cluster.restart_until_ready(2);
        // A write of the member that was restarted, and then one of another member: the later one
        // is the newer one.
        let target = format!("restarted-{round}");
        let put = |node: usize| {
            let mut client = Client::open(cluster.listen[node]).expect("it listens");
            let stored = client.ask("PUT", &target, &[], b"v").expect("it answers");
            assert_eq!(stored.status, 201, "{}", cluster.log_of(node));
            let wall = std::time::SystemTime::UNIX_EPOCH.elapsed();
            let wall_ms = wall.expect("it is later than 1970").as_millis() as u64;
            millisecond(stored.etag.as_ref()).saturating_sub(wall_ms)
        };
        let ahead_ms = put(2).max(put(0));
        assert!(ahead_ms < 100, "{ahead_ms} ms in round {round}");
    }
}

/// A restart of a member when the one before says that it serves costs clients no answer. A node
/// says so with a warning when it has waited for the others for a second: then it is tried again.
fn members_are_restarted_one_after_the_other(transport: &[&str]) {
    let _others = beside_others();
    let is_kept = (0..ATTEMPTS).any(|n| {
        let mut cluster = Cluster::start(&[&["--durability", "os"], transport].concat());
        cluster.wait_for_all_links();
        let on: Vec<_> = cluster.listen.iter().copied().enumerate().collect();
        let told = under_load(&format!("restarts-{n}"), &on, 60_000, |load| {
            for node in (0..NODES).cycle().take(2 * NODES) {
                signal(cluster.child(node), "TERM");
                assert_eq!(cluster.wait_for_end(node), Some(0));
                cluster.restart_until_ready(node);
            }
            load.run_on(200);
        });
        let mut logs = (0..NODES).map(|node| cluster.log_of(node));
        let has_waited = logs.any(|log| log.contains("have not opened all links"));
        // Conditional writes overtake each other, with restarts or without.
        let refused = |said: &&String| !said.contains("overtaken: ");
        let refused: Vec<_> = told.said().iter().filter(refused).collect();
        assert!(has_waited || refused.is_empty(), "{refused:#?}");
        !has_waited
    });
    assert!(is_kept, "the others do not come back within a second");
}

#[test]
fn members_are_restarted_one_after_the_other_and_nothing_is_refused() {
    members_are_restarted_one_after_the_other(&[]);
}

#[test]
#[ignore = "at length"]
fn members_are_restarted_one_after_the_other_and_nothing_is_refused_over_plain_http() {
    members_are_restarted_one_after_the_other(&HTTP);
}

/// How late bytes are that are sent while the ones before them are held up: the first and the last
/// of them. A proxy is told to hold them up for `delay`.
fn lateness(delay: Duration) -> (Duration, Duration) {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (door, behind) = (listen(), listen());
    let address = door.local_addr().expect("it is bound");
    let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2"].map(str::to_owned);
    let faults = Faults::new(urls.to_vec());
    let to = behind.local_addr().expect("it is bound");
    let proxy = Proxy::start(door, 1, to, Arc::clone(&faults));
    let _proxy = proxy.expect("a thread");
    let mut client = TcpStream::connect(address).expect("it listens");
    let head = b"POST / HTTP/1.1\r\nUser-Agent: dendra-peer/1 (http://127.0.0.1:1)\r\n\r\n";
    client.write_all(head).expect("it is taken");
    let (mut server, _) = behind.accept().expect("it is connected");
    server.read_exact(&mut head.to_vec()).expect("the head");
    faults.set(0, 1, LinkFault::Delay(delay));
    let (mut sent, mut came) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                server.read_exact(&mut [0]).expect("it comes");
                came.push(Instant::now());
            }
        });
        let began = Instant::now();
        for n in 0..3 {
            while began.elapsed() < delay * n / 6 {
                support::rest();
            }
            sent.push(Instant::now());
            client.write_all(b"x").expect("it is taken");
        }
    });
    (came[0] - sent[0], came[2] - sent[2])
}

#[test]
fn what_a_proxy_holds_up_is_late_by_the_delay_and_no_more() {
    let _others = beside_others();
    let delay = Duration::from_millis(600);
    let late: Vec<_> = (0..ATTEMPTS).map(|_| lateness(delay)).collect();
    let is_right = |(first, last): &(Duration, Duration)| {
        *first >= delay && *last >= delay && *last < delay * 3 / 2
    };
    assert!(late.iter().any(is_right), "{late:?}");
}

/// A client that finds the door open is answered on any loop: links are up before it opens.
fn a_member_that_opens_its_door_reaches_the_others(transport: &[&str]) {
    let _others = beside_others();
    let mut cluster = Cluster::start(transport);
    cluster.wait_for_all_links();
    cluster.kill(2);
    for other in [0, 1] {
        let far = LinkFault::Delay(Duration::from_millis(50));
        cluster.faults.set(2, other, far);
        cluster.faults.set(other, 2, far);
    }
    let before = cluster.times_served(2);
    cluster.admin = "127.0.0.1:0";
    cluster.start_node(2);
    cluster.wait_for_door(2);
    let loops = std::thread::available_parallelism().map_or(1, |n| n.get());
    let clients = (0..2 * loops).map(|_| Client::open(cluster.listen[2]).expect("it listens"));
    // All of them at once: a connection goes to the loop with the fewest.
    for client in &mut clients.collect::<Vec<_>>() {
        let stored = client.ask("PUT", "k", &[], b"v").expect("it answers");
        let said = String::from_utf8_lossy(&stored.body).into_owned();
        assert_eq!(stored.status, 201, "{said}{}", cluster.log_of(2));
    } // None of them had to wait for a link.
    let count = |cluster: &Cluster, round: &str| {
        let name = format!("dendra_round_seconds_count{{round=\"{round}\"}}");
        cluster.metric(2, &name)
    };
    let deadline = Instant::now() + PATIENCE;
    cluster.wait_until_served(2, before + 1);
    while count(&cluster, "write") < 2.0 * loops as f64 {
        let writes = count(&cluster, "write");
        let log = cluster.log_of(2);
        assert!(
            Instant::now() < deadline,
            "{writes} writes on {loops} loops: {log}"
        );
        support::rest();
    }
    let log = cluster.log_of(2);
    let (_, last_life) = log.rsplit_once("the data folder is open").expect("it is");
    // A machine that stands still spoils a handshake, and the node says so.
    let is_spoilt = last_life.contains("no link to a peer");
    assert!(is_spoilt || count(&cluster, "links") == 0.0, "{log}");
}

#[test]
fn a_member_that_opens_its_door_reaches_the_others_from_every_loop() {
    a_member_that_opens_its_door_reaches_the_others(&[]);
}

#[test]
fn a_member_that_opens_its_door_reaches_the_others_from_every_loop_over_plain_http() {
    a_member_that_opens_its_door_reaches_the_others(&HTTP);
}

/// A process on another folder that says it is member 2, and its output to its end.
struct Copy {
    child: std::process::Child,
    log: std::path::PathBuf,
}

impl Copy {
    fn start(cluster: &Cluster, folder: &str) -> Copy {
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        Copy {
            child: cluster.start_as(2, folder, anywhere),
            log: cluster.folder.path().join(format!("{folder}.log")),
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn wait_until_it_says(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(words) {
            assert!(Instant::now() < deadline, "{}", self.said());
            support::rest();
        }
    }

    fn wait_for_end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                break status;
            }
            assert!(Instant::now() < deadline, "{}", self.said());
            support::rest();
        };
        (status.code(), self.said())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn two_processes_are_not_one_member(transport: &[&str]) {
    let _others = beside_others();
    let mut cluster = Cluster::start(transport);
    let root = cluster.folder.path().to_owned();
    let place = |name: &str| root.join(name);
    let refused = |name: &str| place(name).join("REFUSED").exists();
    cluster.kill_all();
    for copy in ["copy", "image", "asked"] {
        copy_folder(&place("2"), &place(copy));
    }
    cluster.start_all();
    cluster.wait_for_all_links();
    // Beside the member: the folder is sound, it is in use elsewhere.
    let (code, said) = Copy::start(&cluster, "copy").wait_for_end();
    assert_eq!(code, Some(3), "{said}");
    let words = "does not let this process in: still-there";
    assert!(said.contains(words), "{said}");
    assert!(!refused("copy"));
    // A start that waits for the other one to go away obeys a signal.
    let copy = Copy::start(&cluster, "asked");
    copy.wait_until_it_says("the data folder is open");
    signal(&copy.child, "TERM");
    let (code, said) = copy.wait_for_end();
    assert_eq!(code, Some(0), "{said}");
    cluster.wait_for_all_links();
    // In its place, started as often as it, and started more often: its clock ends before that of
    // the member.
    cluster.kill(2);
    for copy in ["image", "copy"] {
        let (code, said) = Copy::start(&cluster, copy).wait_for_end();
        assert_eq!(code, Some(3), "{said}");
        let is_told = said.contains("twin: another process was") || said.contains("rolled-back: ");
        assert!(is_told, "{said}");
        assert!(refused(copy));
    }
    // And the member is still the member.
    cluster.start_node(2);
    cluster.wait_until_usable(2);
}

#[test]
fn two_processes_on_copies_of_a_folder_are_not_one_member() {
    two_processes_are_not_one_member(&[]);
}

#[test]
#[ignore = "at length"]
fn two_processes_on_copies_of_a_folder_are_not_one_member_over_plain_http() {
    two_processes_are_not_one_member(&HTTP);
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).expect("a new name");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("it is read");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("there is room");
    }
}
