//! Every change of a cluster of real processes but joining and leaving, and each refusal with its
//! sentence.
//!
//! ```text
//! shares, zones, copies, an address, the secret ─► under load, nothing acknowledged is lost
//! cancel, a throttle, restarts, a damaged epoch ─► the cluster is as before
//! another secret, another cluster, records …    ─► exit 2 or 3, and the way out
//! ```
//!
//! Invariants
//! 1. No wait is for a time: each is for a state, and none gives up before `PATIENCE`.
//!
//! Not here: joining, leaving, replacing (`members.rs`), refusals without processes (crate
//! `ownership`, `tests/steward`), a full disk (crate `server`, `tests/serving/joiner.rs`).
//! See: docs/operating.md, "Grow, shrink, replace".

use crate::support::http::{Client, PATIENCE};
use crate::support::town::{SECRET, Told, Town, free_address};
use crate::support::{Node, dendra, run, store_of_stopped};
use dendra_base::{CellRef, Key, Space, Version};
use dendra_engine::{Batch, Guard};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// As `at` sees it.
fn positions(town: &Town, at: usize, of: usize) -> u64 {
    let member = town.member(at, of).expect("a member");
    member["positions"].as_u64().expect("a number")
}

#[test]
fn shares_zones_copies_and_addresses_change_under_load() {
    let mut town = Town::found_with(4, &[]);
    let told = Told::default();
    let doors = [town.sites[0].listen, town.sites[1].listen];
    told.under_load(&doors, || {
        told.run_on(200);
        let even = positions(&town, 0, 3);
        town.change(0, &json!({ "weights": { town.url(3): 3 } }));
        town.wait_for_rest(0, |_| true);
        let more = positions(&town, 0, 3);
        assert!(more > even + 30, "{even}, then {more}");
        told.run_on(200);
        // Two of four fail together: at most one of them has a copy of a record.
        let zones =
            json!({ town.url(0): "a", town.url(1): "a", town.url(2): "b", town.url(3): "c" });
        town.change(1, &json!({ "zones": zones, "weights": { town.url(3): 1 } }));
        town.wait_for_rest(0, |_| true);
        let held: Vec<u64> = (0..4).map(|of| positions(&town, 0, of)).collect();
        assert_eq!(
            (held[0] + held[1], held[2], held[3]),
            (256, 256, 256),
            "{held:?}"
        );
        let zone = town.member(0, 1).map(|member| member["zone"].clone());
        assert_eq!(zone, Some(json!("a")));
        told.run_on(200);
        for copies in [2, 3] {
            town.change(0, &json!({ "replication_factor": copies }));
            town.wait_for_rest(0, |status| status["replication_factor"] == copies);
            let held: u64 = (0..4).map(|of| positions(&town, 0, of)).sum();
            assert_eq!(held, copies * 256);
            told.run_on(200);
        }
        // The last one moves to another port while the others go on.
        let (old, new) = (town.url(3), free_address());
        let order = json!({ "from": old, "to": format!("http://{new}") });
        town.order(0, "readdress", &order);
        town.wait_until(3, |town| {
            let own = town.status(3).unwrap_or_default();
            let members = own["members"].as_array();
            let is_new = |member: &Value| member["url"] == format!("http://{new}");
            members.is_some_and(|all| all.iter().any(is_new))
        });
        // Started as before it says how to go on.
        town.stop(3);
        town.start(3);
        assert_eq!(town.wait_for_end(3), Some(3));
        let log = town.log_of(3);
        assert!(
            log.contains(&format!("belongs to http://{new} in epoch")),
            "{log}"
        );
        town.sites[3].listen = new;
        // The list that founded the cluster is not looked at, and has to name the node itself.
        town.sites[3].flags = Vec::new();
        town.start(3);
        town.wait_until_serving(3);
        town.wait_until(0, |town| {
            town.member(0, 3).is_some_and(|member| member["up"] == true)
        });
        told.run_on(200);
    });
    let refused = told.refused();
    let most = told.acknowledged.load(std::sync::atomic::Ordering::Relaxed) / 50;
    assert!(
        refused.len() as u64 <= most,
        "{} writes failed: {:?}",
        refused.len(),
        refused.first()
    );
    let all: Vec<_> = town.sites.iter().map(|site| site.listen).collect();
    told.check(&all);
}

/// Until each of three members knows it.
fn wait_for_throttle(town: &mut Town, bytes_per_second: u64) {
    for at in 0..3 {
        town.wait_until(at, |town| {
            let status = town.status(at).unwrap_or_default();
            status["load_bytes_per_second_max"] == bytes_per_second
        });
    }
}

#[test]
fn a_member_that_was_away_hears_of_its_new_address_where_it_was() {
    let mut town = Town::found();
    town.kill(2);
    let (old, new) = (town.url(2), free_address());
    let order = json!({ "from": old, "to": format!("http://{new}") });
    town.order(0, "readdress", &order);
    // The others are started anew behind it: the folder tells where the member was.
    town.kill(1);
    town.start(1);
    town.start(2);
    town.wait_until(2, |town| {
        let own = town.status(2).unwrap_or_default();
        let is_new = |member: &Value| member["url"] == format!("http://{new}");
        own["members"]
            .as_array()
            .is_some_and(|all| all.iter().any(is_new))
    });
    town.wait_until_serving(1);
    town.wait_until_serving(2);
    town.kill(0);
    for at in [1, 2] {
        let mut client = Client::open(town.sites[at].listen).expect("it listens");
        let stored = client.ask("PUT", "k", &[], b"value");
        assert!(
            matches!(stored.expect("an answer").status, 200 | 201),
            "{at}"
        );
    }
}

#[test]
fn a_cancelled_plan_leaves_all_as_it_was_and_a_throttle_survives_restarts() {
    let mut town = Town::found();
    for key in 0..1_000 {
        let mut client = Client::open(town.sites[key % 3].listen).expect("it listens");
        let stored = client.ask("PUT", &format!("k{key}"), &[], &[7; 8_000]);
        assert_eq!(stored.expect("an answer").status, 201);
    }
    assert_eq!(town.refused(0, "cancel", &json!({})).0, "no-plan-under-way");
    town.order(1, "throttle", &json!({ "bytes_per_second": 100 }));
    wait_for_throttle(&mut town, 100);
    let fourth = town.join(free_address(), 0, &[]);
    town.wait_until_serving(fourth);
    town.wait_until(0, |town| {
        let status = town.status(0).unwrap_or_default();
        status["plan"]["moving"].as_u64() > Some(0)
    });
    // One plan at a time, and no more copies than members.
    let remove = json!({ "remove": [town.url(2)] });
    let (code, sentence) = town.refused(0, "plan", &remove);
    assert!(
        code == "plan-under-way" && sentence.contains("cancel"),
        "{code}: {sentence}"
    );
    let second = town.join(free_address(), 1, &[]);
    town.wait_until(second, |town| {
        town.log_of(second)
            .contains("is under way; wait for its end")
    });
    // A process that waits to be let in does not say that it is alone.
    let log = town.log_of(second);
    let address = log
        .split_once(r#""admin plane","addr":""#)
        .expect("a line")
        .1;
    let address = address.split_once('"').expect("an address").0;
    let mut client = Client::open(address.parse().expect("an address")).expect("it listens");
    let page = client
        .request("GET", "/v0/cluster", &[], b"")
        .expect("an answer");
    let page: Value = serde_json::from_slice(&page.body).expect("JSON");
    assert_eq!(page["error"], "starting", "{page}");
    town.kill(second);
    town.order(2, "cancel", &json!({}));
    town.wait_for_members(0, 3);
    assert_eq!(
        town.wait_for_end(fourth),
        Some(3),
        "{}",
        town.log_of(fourth)
    );
    assert!(town.log_of(fourth).contains("join with an empty one"));
    let (code, sentence) = town.refused(0, "plan", &remove);
    assert_eq!(code, "fewer-members-than-copies", "{sentence}");
    // A plan that was made before another epoch is not carried out, nor one of another member.
    let wish = json!({ "weights": { town.url(2): 2 } });
    let stale = town.order(0, "plan", &wish);
    let other = town.order(1, "plan", &json!({ "weights": { town.url(1): 2 } }));
    let (code, sentence) = town.refused(0, "apply", &json!({ "plan": other["plan"] }));
    assert!(
        code == "unknown-plan" && sentence.contains("make the plan again"),
        "{sentence}"
    );
    town.order(1, "apply", &json!({ "plan": other["plan"] }));
    town.order(1, "throttle", &json!({ "bytes_per_second": 64 << 20 }));
    town.wait_for_rest(0, |_| true);
    let (code, sentence) = town.refused(0, "apply", &json!({ "plan": stale["plan"] }));
    assert!(
        code == "other-epoch" && sentence.contains("read it"),
        "{sentence}"
    );
    // The last copy of anything stays.
    town.order(0, "throttle", &json!({ "bytes_per_second": 12345 }));
    wait_for_throttle(&mut town, 12345);
    for at in 0..3 {
        town.kill(at);
    }
    for at in 0..3 {
        town.start(at);
    }
    for at in 0..3 {
        town.wait_until_serving(at);
    }
    // The member that took the order has noted it; another one may have died before it did.
    wait_for_throttle(&mut town, 12345);
    for key in 0..1_000 {
        let mut client = Client::open(town.sites[key % 3].listen).expect("it listens");
        let read = client.ask("GET", &format!("k{key}"), &[], b"");
        assert_eq!(read.expect("an answer").body, [7; 8_000], "k{key}");
    }
}

/// A joiner ends by itself with this code, and its log has all these parts.
fn is_turned_away(town: &mut Town, at: usize, code: i32, parts: &[&str]) {
    assert_eq!(town.wait_for_end(at), Some(code), "{}", town.log_of(at));
    let log = town.log_of(at);
    for part in parts {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
}

/// A server that answers the first request with 200 and this header.
fn answers_once(header: &'static str) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let answering = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("the joiner comes");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).expect("a line of the head");
        }
        write!(
            stream.get_mut(),
            "HTTP/1.1 200 OK\r\n{header}Content-Length: 0\r\n\r\n"
        )
        .expect("the joiner reads");
    });
    (address.to_string(), answering)
}

fn ask(address: std::net::SocketAddr, method: &str, key: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut client = Client::open(address).expect("it listens");
    let answer = client.ask(method, key, &[], body).expect("an answer");
    (answer.status, answer.body)
}

#[test]
fn a_node_by_itself_becomes_a_cluster_of_one_which_others_join() {
    let mut town = Town::empty();
    // The second process of this test goes on with this folder.
    let data = town.path("1");
    // A node that knows no cluster, with records, a conditional write and a deletion.
    let alone = Node::start(&data, &[]);
    for key in 0..200 {
        assert_eq!(
            ask(alone.address(), "PUT", &format!("k{key}"), b"old").0,
            201
        );
    }
    let mut client = Client::open(alone.address()).expect("it listens");
    let first = client.ask("GET", "k0", &[], b"").expect("an answer");
    let tag = format!("If-Match: {}", first.etag.expect("a tag"));
    let replaced = client.ask("PUT", "k0", &[&tag], b"new").expect("an answer");
    assert_eq!(replaced.status, 201);
    assert_eq!(ask(alone.address(), "DELETE", "k1", b"").0, 202);
    // As it is, it cannot be joined, and names the way out.
    let host = alone.address().to_string();
    let flags = |host: &str| vec!["--join".to_owned(), format!("http://{host}")];
    let early = town.add(free_address(), flags(&host));
    let parts = ["runs by itself", "start it again with --cluster"];
    is_turned_away(&mut town, early, 2, &parts);
    assert_eq!(alone.end("TERM").0, Some(0));
    let first = free_address();
    let own = format!("http://{first}");
    let zero = town.add(first, vec!["--cluster".to_owned(), own]);
    town.wait_until_serving(zero);
    let (status, body) = ask(first, "GET", "k0", b"");
    assert_eq!((status, &body[..]), (200, &b"new"[..]));
    let status = town.status(zero).expect("it is a cluster");
    assert_eq!(status["members"].as_array().map(Vec::len), Some(1));

    // Processes that may not come in, and why.
    let host = first.to_string();
    let stranger =
        town.add_with_secret(free_address(), flags(&host), "a secret of another cluster");
    let parts = [
        "does not know the secret",
        "start both with the same --cluster-secret-file",
    ];
    is_turned_away(&mut town, stranger, 2, &parts);
    let mut named = flags(&host);
    named.extend(["--cluster-name".to_owned(), "other".to_owned()]);
    let other = town.add(free_address(), named);
    is_turned_away(
        &mut town,
        other,
        2,
        &["cluster dendra", "check --cluster-name"],
    );
    let mut replacing = flags(&host);
    replacing.extend(["--replace".to_owned(), town.url(zero)]);
    let replacing = town.add(free_address(), replacing);
    is_turned_away(
        &mut town,
        replacing,
        2,
        &["so it is not lost", "stop its process first"],
    );
    // The admin port is no member, and a folder that ran by itself under an address is used, too.
    let mut elsewhere = flags(&host);
    let log = town.log_of(zero);
    let admin = log.rsplit_once("admin on ").expect("a line").1;
    elsewhere[1] = admin.lines().next().expect("an address").to_owned();
    let lost = town.add(free_address(), elsewhere);
    is_turned_away(
        &mut town,
        lost,
        2,
        &["no member answers there", "not its admin port"],
    );
    // Another server, and a release that this one does not know.
    let header = "Dendra-Peer: nonsense\r\n";
    for (header, part) in [("", "no member answers there"), (header, "cannot be read")] {
        let (other, answering) = answers_once(header);
        let elsewhere = town.add(free_address(), flags(&other));
        is_turned_away(&mut town, elsewhere, 2, &[part]);
        answering.join().expect("it has answered");
    }
    let single = town.add(free_address(), Vec::new());
    town.wait_until_serving(single);
    town.stop(single);
    town.sites[single].flags = flags(&host);
    town.start(single);
    let parts = ["ran before", "join with an empty folder"];
    is_turned_away(&mut town, single, 3, &parts);
    let used = town.path("9");
    let node = Node::start(&used, &[]);
    assert_eq!(ask(node.address(), "PUT", "k", b"v").0, 201);
    assert_eq!(node.end("TERM").0, Some(0));
    let full = town.add(free_address(), flags(&host));
    assert_eq!(full, 9);
    is_turned_away(
        &mut town,
        full,
        3,
        &["holds records", "join with an empty folder"],
    );

    // Two come in, and each has a copy of everything.
    let second = town.join(free_address(), zero, &[]);
    town.wait_until_serving(second);
    town.wait_for_members(zero, 2);
    let third = town.join(free_address(), second, &[]);
    town.wait_until_serving(third);
    for at in [zero, second, third] {
        town.wait_for_members(at, 3);
    }
    let held: u64 = [zero, second, third]
        .iter()
        .map(|of| positions(&town, zero, *of))
        .sum();
    assert_eq!(held, 3 * 256);
    town.kill(zero);
    for at in [second, third] {
        let address = town.sites[at].listen;
        for key in 0..200 {
            let deadline = Instant::now() + PATIENCE;
            let (status, body) = loop {
                let read = ask(address, "GET", &format!("k{key}"), b"");
                if read.0 < 500 {
                    break read;
                }
                assert!(Instant::now() < deadline, "k{key}: {}", read.0);
            };
            let expected: (u16, &[u8]) = match key {
                0 => (200, b"new"),
                1 => (404, b""),
                _ => (200, b"old"),
            };
            assert_eq!(status, expected.0, "k{key}");
            assert!(status == 404 || body == expected.1, "k{key}: {body:?}");
        }
    }
    // A folder that joined once is no joiner any more, and needs no member to start.
    town.start(zero);
    town.wait_until_serving(zero);
    // It was founded with one member, and has three: each start would say something wrong.
    let said = town
        .log_of(zero)
        .matches("fewer members than --replication-factor")
        .count();
    assert_eq!(said, 1, "{}", town.log_of(zero));
    town.stop(second);
    town.start(second);
    town.wait_until_serving(second);
    assert!(town.log_of(second).contains("--join is not looked at"));
}

/// Damages the record of an epoch in the folder of a member that is stopped.
fn damage_epoch(folder: &Path, epoch: u64) {
    let engine = store_of_stopped(folder);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let version = Version {
        hlc: (now.expect("behind 1970").as_millis() as u64) << 16,
        origin: 77,
        rmw: 0,
    };
    let name = [b"epoch/", &epoch.to_be_bytes()[..]].concat();
    let key = Key::new(Space::Meta, &name);
    let cell = CellRef::value(key.as_stored(), version, b"what a disk made of it");
    let mut batch = Batch::new();
    batch
        .push(0, key.as_stored(), &cell, Guard::Newest, 1)
        .expect("it fits");
    assert!(engine.submit(&mut batch).is_ok(), "there is room");
    engine.commit(&mut Vec::new()).expect("the disk works");
    engine.close(1).expect("the disk works");
}

#[test]
fn a_damaged_record_of_the_topology_is_learnt_anew() {
    let mut town = Town::found();
    town.change(
        0,
        &json!({ "weights": { town.url(0): 2 }, "replication_factor": 2 }),
    );
    town.wait_for_rest(0, |status| status["replication_factor"] == 2);
    let newest = |town: &Town, at: usize| {
        let status = town.status(at).unwrap_or_default();
        status["epoch"].as_u64().unwrap_or(0)
    };
    let epoch = newest(&town, 0);
    town.wait_until(1, |town| newest(town, 1) == epoch);
    for damaged in [vec![epoch], (2..=epoch).collect()] {
        town.stop(1);
        for epoch in &damaged {
            damage_epoch(&town.path("1"), *epoch);
        }
        let before = town.log_of(1).matches("learnt anew").count();
        town.start(1);
        town.wait_until_serving(1);
        town.wait_until(1, |town| newest(town, 1) == epoch);
        let after = town.log_of(1).matches("learnt anew").count();
        assert_eq!(after - before, damaged.len(), "{}", town.log_of(1));
        // It is whole again: the next start finds all of it.
        town.stop(1);
        town.start(1);
        town.wait_until_serving(1);
        assert_eq!(newest(&town, 1), epoch);
        assert_eq!(town.log_of(1).matches("learnt anew").count(), after);
    }
}

#[test]
fn the_secret_is_changed_member_by_member_under_load() {
    const NEW: &str = "known to them from today on";
    for transport in ["frames", "http"] {
        let mut town = Town::found_with(3, &["--peer-transport", transport]);
        let told = Told::default();
        let doors = [town.sites[0].listen, town.sites[1].listen];
        told.under_load(&doors, || {
            let again = "the secret of the cluster was read again and is in force";
            for (step, text) in [(1, format!("{SECRET}\n{NEW}\n")), (2, NEW.to_owned())] {
                for at in 0..3 {
                    town.write_secret(at, &text);
                    town.wait_until(at, |town| town.log_of(at).matches(again).count() == 1);
                    told.run_on(50);
                    // Links of a process that starts are made with the secret that is valid now.
                    town.stop(at);
                    std::fs::remove_file(town.path(&format!("{at}.log"))).expect("it is there");
                    town.start(at);
                    town.wait_until_serving(at);
                    for other in 0..3 {
                        town.wait_until(other, |town| {
                            let status = town.status(other).unwrap_or_default();
                            let members = status["members"].as_array();
                            members.is_some_and(|all| all.iter().all(|one| one["up"] == true))
                        });
                    }
                    told.run_on(50);
                }
                let metric = step_metric(&town);
                assert_eq!(metric, if step == 1 { 2.0 } else { 1.0 });
            }
        });
        let refused = told.refused();
        let most = told.acknowledged.load(std::sync::atomic::Ordering::Relaxed) / 50;
        assert!(
            refused.len() as u64 <= most,
            "{} failed: {:?}",
            refused.len(),
            refused.first()
        );
        told.check(&doors);
        let late = town.join(free_address(), 0, &[]);
        is_turned_away(&mut town, late, 2, &["does not know the secret"]);
    }
}

/// How many secrets the first member takes.
fn step_metric(town: &Town) -> f64 {
    let log = town.log_of(0);
    let (_, admin) = log.rsplit_once("admin on http://").expect("it serves");
    let address = admin
        .lines()
        .next()
        .and_then(|line| line.trim().parse().ok());
    let mut client = Client::open(address.expect("an address")).expect("it listens");
    let page = client.request("GET", "/metrics", &[], b"").expect("a page");
    let page = String::from_utf8(page.body).expect("text");
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix("dendra_cluster_secrets "));
    value
        .and_then(|value| value.parse().ok())
        .expect("a number")
}

/// `dendra` with the certificates and the token of an operator.
struct Operator {
    ca: String,
    token: String,
}

impl Operator {
    fn call(&self, words: &[&str], url: &str) -> crate::support::Run {
        let access = ["--ca", &self.ca, "--token-file", &self.token];
        let (command, rest) = words.split_first().expect("a command");
        run(dendra([command])
            .args(access)
            .args(rest)
            .args(["--url", url]))
    }

    fn status(&self, town: &Town, at: usize) -> Option<Value> {
        let log = town.log_of(at);
        let admin = log
            .rsplit_once("admin on ")?
            .1
            .lines()
            .next()?
            .trim()
            .to_owned();
        let run = self.call(&["cluster", "status", "--json"], &admin);
        serde_json::from_slice(&run.stdout).ok()
    }
}

#[test]
fn a_member_joins_over_tls_with_tokens() {
    let mut town = Town::empty();
    let certs = town.path("certs").display().to_string();
    let made = run(&mut dendra(["cert", &certs, "--member", "127.0.0.1"]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = town.path("root").display().to_string();
    let made = run(&mut dendra(["token", "root", &token]));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let file = |name: &str| format!("{certs}/{name}");
    let sealed: Vec<String> = [
        ("--tls-cert", file("127.0.0.1.crt")),
        ("--tls-key", file("127.0.0.1.key")),
        ("--tls-peer-ca", file("ca.crt")),
        ("--root-token-file", token.clone()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect();
    let operator = Operator {
        ca: file("ca.crt"),
        token,
    };
    let first = free_address();
    let founding = ["--cluster".to_owned(), format!("http://{first}")];
    let zero = town.add(first, [&founding[..], &sealed].concat());
    let is_up = |town: &Town, members: usize, at: usize| {
        let status = operator.status(town, at).unwrap_or_default();
        let count = status["members"].as_array().map_or(0, Vec::len);
        status["plan"].is_null() && count == members
    };
    town.wait_until(zero, |town| is_up(town, 1, zero));
    let put = operator.call(&["put", "k", "sealed"], &format!("https://{first}"));
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    // One that shows no certificate of the members' CA is not let in.
    let bare = town.join(free_address(), zero, &[]);
    is_turned_away(&mut town, bare, 2, &["this port speaks TLS"]);
    for members in [2, 3] {
        let flags = [&["--join".to_owned(), town.url(zero)][..], &sealed].concat();
        let next = town.add(free_address(), flags);
        for at in [zero, next] {
            town.wait_until(at, |town| is_up(town, members, at));
        }
        let url = format!("https://{}", town.sites[next].listen);
        let read = operator.call(&["get", "k"], &url);
        assert_eq!(
            (read.code, &read.stdout[..]),
            (Some(0), &b"sealed"[..]),
            "{}",
            read.stderr
        );
    }
}
