//! What happens when more requests arrive than one event loop serves in time: the newest are served
//! first, the oldest are refused sparingly, those whose clients have gone are not begun, and it
//! ends.
//!
//! Invariants
//! 1. The target is so small that any delay is above it; how many stand in line is real.
//!
//! Not here: how goodput holds (`standing.rs` of crate `node` simulates it; docs/lab measures it).
//! See: docs/overload.md, "When the processor is what runs out".

mod support;

use dendra_engine::Durability;
use dendra_engine::vfs::mem::MemVfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::crowd::{CLIENTS, PIPELINED, TARGET, answers, ask, holds_once, node, overload, round};
use support::valve::Valve;
use support::{Answer, Client, Node, PATIENCE};

#[test]
fn a_delay_that_stands_refuses_some_and_ends_with_its_cause() {
    let node = node(TARGET);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let refused = overload(&node, &mut clients);
    assert_eq!(node.metric("dendra_overloaded_loops "), 1.0);
    let said = "overloaded: more requests arrive than the processor serves";
    assert!(refused.text().starts_with(said), "{}", refused.text());
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(
        refused.header("Dendra-Receipt"),
        Some("outcome=not-applied")
    );
    let refused = node.metric("dendra_refused_total{by=\"delay\"}");
    let answers = round(&mut clients);
    let more = answers.iter().filter(|answer| answer.status == 503).count();
    // One for eight calls, and four for those that were served before. A connection is called again
    // behind each 32 of its requests, and behind each that was refused.
    let calls = CLIENTS * PIPELINED.div_ceil(32);
    let most = calls / 7 + 5;
    assert!(
        more <= most,
        "{more} of {} were refused",
        CLIENTS * PIPELINED
    );
    let refused_then = node.metric("dendra_refused_total{by=\"delay\"}");
    assert_eq!(refused_then - refused, more as f64);
    let of_points = "dendra_class_refused_total{class=\"points\",by=\"delay\"}";
    assert_eq!(node.metric(of_points), refused_then);
    let admitted = "dendra_class_admitted_total{class=\"points\"}";
    let answered = "dendra_requests_total{op=\"get\",class=\"2xx\"}";
    assert_eq!(node.metric(admitted), node.metric(answered));
    assert_eq!(
        node.metric("dendra_class_admitted_total{class=\"writes\"}"),
        1.0
    );
    // Each of these was called at least once before it was served in the line.
    assert!(node.metric("dendra_standing_seconds_count") > 0.0);
    let page = node.admin().get("/v0/status").text();
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    let points = &page["queues"]["classes"]["points"];
    assert_eq!(points["refused"]["delay"], refused_then as u64);
    assert_eq!(points["admitted"], node.metric(admitted) as u64);
    node.wait_for_metric("dendra_overloaded_loops ", 0.0);
    node.wait_for_metric("dendra_requests_standing ", 0.0);
    for client in &mut clients {
        assert_eq!(client.value("k").status, 200);
    }
}

/// Items are refused one by one, as pipelined requests are, and the batch goes on.
#[test]
fn a_batch_stands_in_line_and_some_of_its_items_are_refused() {
    const ITEMS: usize = 200;
    let node = node(TARGET);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let body = "{\"op\":\"get\",\"key\":\"k\"}\n".repeat(ITEMS);
    let request = format!(
        "POST /v0/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let until = Instant::now() + PATIENCE;
    let (mut refused, mut served) = (0, 0);
    while refused == 0 {
        assert!(Instant::now() < until, "no item was refused");
        for client in &mut clients {
            client.send(request.as_bytes());
        }
        for client in &mut clients {
            let answer = client.read("POST");
            if answer.status == 503 {
                // Its head was called to be refused.
                continue;
            }
            assert_eq!(answer.trailer, Some(format!("complete; items={ITEMS}")));
            for line in answer.lines() {
                match line["status"].as_u64() {
                    Some(200) => served += 1,
                    Some(503) => {
                        assert_eq!(line["error"], "overloaded");
                        assert_eq!(line["receipt"], "outcome=not-applied");
                        refused += 1;
                    }
                    other => panic!("{other:?}: {line}"),
                }
            }
        }
    }
    assert!(
        refused * 4 < served,
        "{refused} were refused, {served} served"
    );
    node.wait_for_metric("dendra_overloaded_loops ", 0.0);
    node.wait_for_metric("dendra_requests_standing ", 0.0);
}

#[test]
fn scans_rest_while_a_loop_is_beyond_its_target_and_go_on() {
    const RECORDS: usize = 100;
    let node = node(TARGET);
    let mut scanning = node.client();
    for n in 0..RECORDS {
        let id = format!("scanned{n:03}");
        assert_eq!(scanning.put(&id, &[b'v'; 50_000]).status, 201);
    }
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    assert_eq!(node.metric("dendra_scan_rests_total"), 0.0);
    let until = Instant::now() + PATIENCE;
    while node.metric("dendra_scan_rests_total") == 0.0 {
        assert!(Instant::now() < until, "scans do not rest");
        overload(&node, &mut clients);
        scanning.send(b"GET /v0/entities?start=scanned HTTP/1.1\r\nHost: localhost\r\n\r\n");
        ask(&mut clients);
        let answer = scanning.read("GET");
        answers(&mut clients);
        match answer.status {
            200 => {
                assert_eq!(answer.trailer.as_deref(), Some("complete"));
                assert_eq!(answer.chunks.len(), RECORDS);
            }
            status => assert_eq!(status, 503, "{answer:?}"),
        }
    }
}

/// So many answers of a client fit into the buffers of its connection.
const ROUNDS_MAX: usize = 16;

#[test]
fn what_clients_have_given_up_is_not_begun() {
    let node = node(TARGET);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let until = Instant::now() + PATIENCE;
    let mut asked = 0;
    // A client that closes its side counts as gone once its request waited for 100 ms: how many
    // requests keep a loop busy for so long depends on the machine.
    let mut rounds = 1;
    while node.metric("dendra_abandoned_requests_total") == 0.0 {
        assert!(
            Instant::now() < until,
            "no request was found to be abandoned"
        );
        // Connected before: while a loop is overloaded, few connections are accepted.
        node.wait_for_metric("dendra_overloaded_loops ", 0.0);
        let mut impatient: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
        overload(&node, &mut clients);
        ask(&mut clients);
        for client in &mut impatient {
            let head = format!(
                "PUT /v0/entity?id=given-up-{asked} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv"
            );
            client.send(head.as_bytes());
            asked += 1;
        }
        drop(impatient);
        // They come behind those, and in front of them in a line whose newest goes first.
        for _ in 1..rounds {
            ask(&mut clients);
        }
        for _ in 0..rounds {
            answers(&mut clients);
        }
        rounds = (rounds * 2).min(ROUNDS_MAX);
    }
    node.wait_for_metric("dendra_overloaded_loops ", 0.0);
    let abandoned = node.metric("dendra_abandoned_requests_total") as usize;
    let mut client = node.client();
    let is_there = |n: &usize| client.value(&format!("given-up-{n}")).status == 200;
    let applied = (0..asked).filter(is_there).count();
    assert!(
        applied + abandoned <= asked,
        "{applied} + {abandoned} of {asked}"
    );
}

/// How many of a crowd's connections are served in front of one client that asks in their midst, in
/// hundredths. Their answers are long, so that more of them stand in line than are called at once.
fn rank_among_a_crowd(crowd: &mut [Client], client: &mut Client) -> usize {
    let gets = b"GET /v0/entity?id=long HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(31);
    let put = b"PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv";
    let batch = [&gets[..], put].concat();
    let (before, behind) = crowd.split_at_mut(CLIENTS / 3);
    for one in before {
        one.send(&batch);
    }
    client.send(put);
    for one in behind {
        one.send(&batch);
    }
    // A version is given when a write is begun.
    let version = client.read("PUT").header("ETag").map(str::to_owned);
    let crowd_is_first = |one: &mut Client| {
        let answers: Vec<_> = (0..32).map(|_| one.read("GET")).collect();
        let put = answers[31].header("ETag");
        put.is_some() && put < version.as_deref()
    };
    let first = crowd.iter_mut().map(crowd_is_first);
    first.filter(|is_first| *is_first).count() * 100 / CLIENTS
}

/// The same, while requests stand in line: on a busy machine the line may end before the test is
/// there.
fn rank_in_line(node: &Node, crowd: &mut [Client], client: &mut Client) -> usize {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        overload(node, crowd);
        let rank = rank_among_a_crowd(crowd, client);
        if node.metric("dendra_overloaded_loops ") == 1.0 {
            return rank;
        }
    }
    panic!("no line outlasts its crowd");
}

/// Requests in front of the last one of a connection that sends many at once. They are more than a
/// loop answers in a row.
const IN_ONE_GO: usize = 300;

/// The middle one of seven.
fn middle(mut ranks: Vec<usize>) -> usize {
    ranks.sort_unstable();
    ranks[3]
}

#[test]
fn answers_do_not_wait_while_the_requests_behind_them_stand_in_line() {
    let node = one_loop(TARGET);
    let addr = node.running().addr();
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let mut client = node.client();
    let mut other = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), addr);
    let get = b"GET /v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let put = b"PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv";
    // A loop answers so many of one connection in eight turns: the other client has seven of them.
    const READS: usize = 255;
    let batch = [&get.repeat(READS)[..], put].concat();
    holds_once(|| {
        overload(&node, &mut crowd);
        ask(&mut crowd);
        client.send(&batch);
        client.read("GET");
        // If the answers came together, then the last request was begun before this one.
        let asked_then = other.put("c", b"v");
        for _ in 1..READS {
            client.read("GET");
        }
        let last = client.read("PUT");
        answers(&mut crowd);
        let versions = [&asked_then, &last].map(|answer| answer.header("ETag"));
        versions[0].is_some() && versions[0] < versions[1]
    });
}

/// A node with one loop and a long value.
fn one_loop(target: Duration) -> Node {
    let node = Node::with(|settings| {
        settings.loops = Some(1);
        settings.queue_delay_target = target;
        settings.durability = Durability::Os;
    });
    assert_eq!(node.client().put("k", b"v").status, 201);
    assert_eq!(node.client().put("long", &[b'v'; 2_000]).status, 201);
    node
}

#[test]
fn one_connection_of_another_address_is_served_in_front_of_a_crowd() {
    let node = one_loop(TARGET);
    let addr = node.running().addr();
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let mut alike = node.client();
    let mut other = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), addr);
    overload(&node, &mut crowd);
    holds_once(|| {
        let mut ranks = [Vec::new(), Vec::new()];
        for _ in 0..7 {
            for (client, ranks) in [&mut other, &mut alike].into_iter().zip(&mut ranks) {
                ranks.push(rank_in_line(&node, &mut crowd, client));
            }
        }
        let [other, alike] = ranks.map(middle);
        println!("of another address {other} %, of the same {alike} %");
        2 * other < alike
    });
}

#[test]
fn first_requests_of_new_connections_come_behind_those_of_connections_that_work() {
    let node = one_loop(Duration::ZERO);
    let mut works = node.client();
    assert_eq!(works.value("k").status, 200);
    holds_once(|| {
        let mut ranks = [Vec::new(), Vec::new()];
        for _ in 0..7 {
            for (is_new, ranks) in [false, true].into_iter().zip(&mut ranks) {
                let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
                let mut new = node.client();
                node.wait_for_metric("dendra_connections ", (CLIENTS + 2) as f64);
                let client = if is_new { &mut new } else { &mut works };
                ranks.push(rank_among_a_crowd(&mut crowd, client));
            }
        }
        let [works, new] = ranks.map(middle);
        println!("of one that works {works} %, of a new one {new} %");
        2 * works < new
    });
}

#[test]
fn bytes_of_a_head_that_drips_come_behind_connections_that_work() {
    let node = one_loop(Duration::ZERO);
    let mut works = node.client();
    assert_eq!(works.value("k").status, 200);
    let put = "PUT /v0/entity?id=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n";
    // Their last reads were small parts of a head.
    let dripping = || {
        let mut crowd: Vec<_> = (0..=CLIENTS).map(|_| node.client()).collect();
        for part in [&put[..10], &put[10..20], &put[20..]] {
            let before = node.metric("dendra_socket_read_bytes_total");
            for one in &mut crowd {
                one.send(part.as_bytes());
            }
            let more = (part.len() * crowd.len()) as f64;
            node.wait_for_metric("dendra_socket_read_bytes_total", before + more);
        }
        crowd
    };
    let gets = b"GET /v0/entity?id=long HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(31);
    let end = [b"\r\nv", &gets[..]].concat();
    let version = |client: &mut Client| client.read("PUT").header("ETag").map(str::to_owned);
    holds_once(|| {
        let mut ranks = [Vec::new(), Vec::new()];
        for _ in 0..7 {
            let mut crowd = dripping();
            let mut drips = crowd.pop().expect("there is one more");
            for one in &mut crowd[..CLIENTS / 3] {
                one.send(&end);
            }
            works.send([put.as_bytes(), b"\r\nv"].concat().as_slice());
            drips.send(&end);
            for one in &mut crowd[CLIENTS / 3..] {
                one.send(&end);
            }
            let versions = [version(&mut works), version(&mut drips)];
            let of_crowd: Vec<_> = crowd.iter_mut().map(version).collect();
            for (ranks, version) in ranks.iter_mut().zip(versions) {
                let in_front = of_crowd.iter().filter(|other| **other < version);
                ranks.push(in_front.count() * 100 / CLIENTS);
            }
        }
        let [works, drips] = ranks.map(middle);
        println!("of one that works {works} %, of one that drips {drips} %");
        2 * works < drips
    });
}

#[test]
fn a_connection_that_sends_many_at_once_gives_others_their_turn() {
    let (node, valve) = Valve::before(MemVfs::new(), |disk| {
        Node::on(disk, |settings| {
            settings.loops = Some(1);
            settings.queue_delay_target = Duration::ZERO;
        })
    });
    let mut first = node.client();
    let mut crowd: Vec<_> = (0..20).map(|_| node.client()).collect();
    let mut client = node.client();
    for one in crowd.iter_mut().chain([&mut first, &mut client]) {
        assert_eq!(one.put("k", b"v").status, 201);
    }
    let request = |method: &str, end: &str| {
        let head = "/v0/entity?id=k HTTP/1.1\r\nHost: localhost\r\nDendra-Timeout-Ms: 60000\r\n";
        format!("{method} {head}{end}").into_bytes()
    };
    let put = &request("PUT", "Content-Length: 1\r\n\r\nv")[..];
    let get = &request("GET", "\r\n")[..];
    let few = [put, get, put].concat();
    let many = [put, &get.repeat(IN_ONE_GO), put].concat();
    let version = |answer: Answer| answer.header("ETag").map(str::to_owned);
    let inflight = "dendra_requests_inflight ";
    holds_once(|| {
        // All wait for one commit, so that all are there when the loop goes on.
        valve.hold_syncs();
        first.send(put);
        node.wait_for_metric(inflight, 1.0);
        crowd.iter_mut().for_each(|one| one.send(&many));
        node.wait_for_metric(inflight, 21.0);
        client.send(&few);
        node.wait_for_metric(inflight, 22.0);
        valve.let_go();
        first.read("PUT");
        client.read("PUT");
        client.read("GET");
        let second = version(client.read("PUT"));
        let is_in_front = |one: &mut Client| {
            one.read("PUT");
            (0..IN_ONE_GO).for_each(|_| assert_eq!(one.read("GET").status, 200));
            version(one.read("PUT")) < second
        };
        let in_front = crowd.iter_mut().map(is_in_front).filter(|it| *it).count();
        println!("{in_front} of 20 ended in front of it");
        in_front <= 12
    });
}

/// How long a stranger waits for its connection: the kernel asks again after a second when its
/// first packet was dropped.
const STRANGERS_PATIENCE: Duration = Duration::from_millis(300);
const STRANGERS: usize = 300;
/// The backlog near the target, and behind connections that were given up in it: above the target
/// it is shorter.
const BACKLOG_NEAR: usize = 32;

#[test]
fn while_requests_stand_in_line_a_storm_of_connections_waits_outside() {
    let node = node(TARGET);
    let addr = node.running().addr();
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let connect = |_| TcpStream::connect_timeout(&addr, STRANGERS_PATIENCE).ok();
    holds_once(|| {
        overload(&node, &mut crowd);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    round(&mut crowd);
                }
            });
            // They hold their places until the last one has tried.
            let let_in: Vec<_> = (0..STRANGERS).map_while(connect).collect();
            ended.store(true, Ordering::SeqCst);
            println!("{} of {STRANGERS} were let in", let_in.len());
            let_in.len() < BACKLOG_NEAR
        })
    });
    assert_eq!(node.client().value("k").status, 200, "it is over");
}

#[test]
fn without_a_target_none_is_refused_for_its_delay() {
    let node = node(Duration::ZERO);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    for _ in 0..3 {
        assert!(
            round(&mut clients)
                .iter()
                .all(|answer| answer.status == 200)
        );
    }
    assert_eq!(node.metric("dendra_overloaded_loops "), 0.0);
}

/// Clients that hang up at once, while another one asks.
const HANGING_UP: usize = 3_000;

#[test]
fn a_request_does_not_wait_until_thousands_of_sockets_are_closed() {
    let limit = getrlimit(Resource::Nofile).maximum;
    let enough = (2 * HANGING_UP + 1_500) as u64;
    if limit.is_some_and(|limit| limit < enough) {
        eprintln!("skipped: the system allows {limit:?} descriptors, {enough} are needed");
        return;
    }
    let raised = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be the hard one");
    let node = node(Duration::ZERO);
    let mut client = node.client();
    // A busy machine may let the loop close all of them before it lets the test look.
    let is_in_front = (0..20).any(|_| {
        let crowd: Vec<_> = (0..HANGING_UP).map(|_| node.client()).collect();
        node.wait_for_metric("dendra_connections ", (HANGING_UP + 1) as f64);
        drop(crowd);
        assert_eq!(client.value("k").status, 200);
        let left = node.metric("dendra_connections ");
        node.wait_for_metric("dendra_connections ", 1.0);
        left > 100.0
    });
    assert!(is_in_front, "it waited for all of them");
}
