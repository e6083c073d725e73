//! Front doors of Cassandra: contract, the list of keys, data centres, papers, and faults.

use crate::support::cassandra::{ALL, Cassandra, QUICK};
use crate::support::clients::under_foreign_load;
use crate::support::front::{
    Front, Papers, ask, check_comes_back, check_conditions, check_contract, check_lost_front,
    check_papers, check_refused, check_time_to_live, opens,
};
use crate::support::http::{Client, PATIENCE};
use crate::support::{kill_process, signal_process};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[test]
fn one_server_has_the_contract_and_its_histories_are_linearizable() {
    let Some(cassandra) = Cassandra::start(41, 1) else {
        return;
    };
    let store = cassandra.store("one", 1);
    let fronts = [(); 2].map(|()| Front::start(&store));
    let mut client = fronts[0].client();
    let put = ask(&mut client, "PUT", "k", &[], b"one");
    let receipt = "acks=1/1; level=linearizable; durability=sync";
    assert_eq!((put.status, put.receipt.as_str()), (201, receipt));
    let mut other = fronts[1].client();
    let got = ask(&mut other, "GET", "k", &[], b"");
    assert_eq!((got.status, &got.body[..]), (200, &b"one"[..]));
    assert_eq!((got.etag, got.receipt.as_str()), (put.etag, receipt));
    let large = vec![7; 1 << 20];
    assert_eq!(ask(&mut client, "PUT", "k", &[], &large).status, 201);
    assert_eq!(ask(&mut client, "GET", "k", &[], b"").body, large);
    assert_eq!(ask(&mut client, "DELETE", "k", &[], b"").status, 202);
    assert_eq!(ask(&mut client, "DELETE", "k", &[], b"").status, 202);
    assert_eq!(ask(&mut client, "GET", "k", &[], b"").status, 404);
    check_conditions(&fronts[0]);
    check_time_to_live(&fronts[0]);
    check_scans(&fronts[0]);
    check_contract(&fronts[0]);
    check_lost_front(&store);
    let on = [(0, fronts[0].address()), (1, fronts[1].address())];
    let told = under_foreign_load("cassandra", &on, 60_000, |load| load.run_on(1_000));
    println!("{} were not answered in time", told.failed());
    let done = told.history.iter().filter(|op| op.is_done()).count();
    assert!(done > told.history.len() / 2, "{:#?}", told.said());
}

#[test]
fn keys_without_a_record_leave_the_list_and_no_write_beside_loses_its_place_there() {
    let Some(cassandra) = Cassandra::start(49, 1) else {
        return;
    };
    let store = cassandra.store("clean", 1);
    let fronts = [(); 2].map(|()| Front::start(&store));
    let mut client = fronts[0].client();
    for n in 0..200 {
        let put = ask(&mut client, "PUT", &format!("d{n:04}"), &[], b"v");
        assert_eq!(put.status, 201);
        if n % 2 == 0 {
            let gone = ask(&mut client, "DELETE", &format!("d{n:04}"), &[], b"");
            assert_eq!(gone.status, 202);
        } else if n % 4 == 1 {
            // So is a record away that has expired: no front door sees it go.
            let row: String = format!("d{n:04}")
                .bytes()
                .map(|b| format!("{b:02x}"))
                .collect();
            let text = format!("DELETE FROM clean.records WHERE key = 0x{row}");
            cassandra.order(0, &text, ALL);
        }
    }
    wait_for_keys(&cassandra, "clean", 50);
    let left: Vec<_> = (0..50).map(|n| format!("d{:04}", 4 * n + 3)).collect();
    assert_eq!(keys_of(&mut client, "prefix=d"), left);
    // Keys that come and go at both front doors, while scans find those that are away just now.
    let names: Vec<_> = (0..6).map(|n| format!("r{n}")).collect();
    std::thread::scope(|scope| {
        for front in &fronts {
            let names = &names;
            scope.spawn(move || {
                let mut client = front.client();
                for round in 0..60 {
                    for name in names {
                        let (way, value) = match round % 2 {
                            0 => ("PUT", "v"),
                            _ => ("DELETE", ""),
                        };
                        let value = value.as_bytes();
                        let status = ask(&mut client, way, name, &[], value).status;
                        assert!(matches!(status, 201 | 202), "{status}");
                    }
                    keys_of(&mut client, "prefix=r");
                }
            });
        }
    });
    for (n, name) in names.iter().enumerate() {
        let put = ask(&mut fronts[n % 2].client(), "PUT", name, &[], b"v");
        assert_eq!(put.status, 201);
    }
    // Removals that still wait are made before this one.
    ask(&mut client, "PUT", "last", &[], b"v");
    for front in &fronts {
        assert_eq!(
            ask(&mut front.client(), "PUT", "last", &[], b"v").status,
            201
        );
        let gone = ask(&mut front.client(), "DELETE", "last", &[], b"");
        assert_eq!(gone.status, 202);
        wait_for_keys(&cassandra, "clean", 50 + names.len() as u64);
    }
    assert_eq!(keys_of(&mut client, "prefix=r"), names);
}

/// Waits until the list has so many keys.
fn wait_for_keys(cassandra: &Cassandra, keyspace: &str, expected: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = cassandra.count(&format!("{keyspace}.keys"));
        if listed == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{listed} keys are in the list");
        crate::support::rest();
    }
}

#[test]
fn the_list_of_keys_grows_and_no_scan_misses_a_key_meanwhile() {
    const SPLITS: u64 = 7;
    let Some(cassandra) = Cassandra::start(50, 1) else {
        return;
    };
    let store = format!("{}?partition-keys=64", cassandra.store("grown", 1));
    let [kept, reading, lost] = [(); 3].map(|()| Front::start(&store));
    let (acknowledged, is_over) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    // Creates keys at one front door. Another one, which lists none, shows each of them at once.
    let write = |front: &Front, name: &dyn Fn(u64) -> String| {
        let (mut client, mut reader) = (front.client(), reading.client());
        for key in (0..).map(name) {
            match client.ask("PUT", &key, &[], b"v") {
                Some(put) => assert_eq!(put.status, 201, "{put:?}"),
                None => return,
            }
            assert_eq!(
                keys_of(&mut reader, &format!("start={key}&limit=1")),
                [&key[..]]
            );
            acknowledged.lock().expect("no writer panics").insert(key);
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    let (write, deadline) = (&write, Instant::now() + PATIENCE);
    let are_there = |splits: u64| {
        while cassandra.count("grown.splits") < splits && Instant::now() < deadline {
            crate::support::rest();
        }
    };
    std::thread::scope(|scope| {
        // In ascending order, and in none.
        scope.spawn(|| write(&kept, &|n| format!("a{n:06}")));
        scope.spawn(|| write(&kept, &|n| format!("b{:06}", n * 7_919 % 1_000_003)));
        scope.spawn(|| write(&lost, &|n| format!("c{n:06}")));
        are_there(1);
        kill_process(lost.pid());
        let late = Front::start(&store);
        scope.spawn(move || write(&late, &|n| format!("d{:06}", n * 7_919 % 1_000_003)));
        are_there(SPLITS);
        is_over.store(true, Ordering::Relaxed);
    });
    let splits = cassandra.count("grown.splits");
    assert!(splits >= SPLITS, "{splits} splits");
    let mut keys = acknowledged.into_inner().expect("no writer panics");
    // The last write of the front door that was killed may have been stored.
    let shown = keys_of(&mut kept.client(), "");
    let unknown: Vec<_> = shown
        .into_iter()
        .filter(|key| !keys.contains(key))
        .collect();
    assert!(
        unknown.len() <= 1 && unknown.iter().all(|key| key.starts_with('c')),
        "{unknown:?}"
    );
    keys.extend(unknown);
    let check = |front: &Front, keys: &BTreeSet<String>| {
        let mut client = front.client();
        let mut expected: Vec<_> = keys.iter().cloned().collect();
        assert_eq!(keys_of(&mut client, ""), expected);
        expected.reverse();
        assert_eq!(keys_of(&mut client, "reverse=true"), expected);
    };
    check(&kept, &keys);
    check(&reading, &keys);
    let all = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15";
    let first = cassandra.count(&format!(
        "grown.keys WHERE section = 0 AND bucket IN ({all})"
    ));
    assert!(first < keys.len() as u64 / 2, "{first} of {}", keys.len());
    // As if it had been long ago: then pages ask sections only for the keys between their ends.
    for split in 1..=splits {
        let text = format!("UPDATE grown.splits SET made_ms = 0 WHERE one = 1 AND split = {split}");
        cassandra.order(0, &text, ALL);
    }
    let settled = Front::start(&store);
    let (mut client, mut n) = (settled.client(), 0);
    keys.retain(|key| {
        n += 1;
        let is_kept = n % 8 != 0;
        assert!(is_kept || ask(&mut client, "DELETE", key, &[], b"").status == 202);
        is_kept
    });
    wait_for_keys(&cassandra, "grown", keys.len() as u64);
    for front in [kept, reading, settled] {
        check(&front, &keys);
    }
}

/// The keys of a scan.
fn keys_of(client: &mut Client, range: &str) -> Vec<String> {
    let target = format!("/v0/entities?keys-only=true&{range}");
    let answer = client
        .request("GET", &target, &[], b"")
        .expect("it answers");
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn while_one_of_three_is_killed_and_comes_back_histories_stay_linearizable() {
    check_one_of_three(43, "");
}

#[test]
fn they_stay_so_with_the_second_variant_of_paxos() {
    check_one_of_three(46, "paxos_variant: v2\n");
}

fn check_one_of_three(block: u8, more: &str) {
    let Some(mut cassandra) = Cassandra::start_with(block, 3, &QUICK, more) else {
        return;
    };
    let store = cassandra.store("three", 3);
    let fronts = [(); 2].map(|()| Front::start(&store));
    let put = ask(&mut fronts[0].client(), "PUT", "k", &[], b"one");
    let receipt = "acks=2/3; level=linearizable; durability=sync";
    assert_eq!((put.status, put.receipt.as_str()), (201, receipt));
    let on = [(0, fronts[0].address()), (1, fronts[1].address())];
    let told = under_foreign_load("one-of-three-cassandras-is-killed", &on, 10_000, |load| {
        load.run_on(200);
        check_standstill(&cassandra, &fronts[0]);
        cassandra.kill(0);
        // Each client has met the fault, and goes on.
        load.run_on(300);
        cassandra.revive(0);
        // The one that was away counts again: without it there is no majority.
        cassandra.kill(1);
        load.run_on(300);
    });
    println!("{} were not answered in time", told.failed());
    let done = told.history.iter().filter(|op| op.is_done()).count();
    assert!(done > told.history.len() / 2, "{:#?}", told.said());
    // And without a majority no answer is promised.
    cassandra.kill(2);
    let deadline = Instant::now() + PATIENCE;
    while fronts[1].admin("/readyz").0 == 200 {
        assert!(Instant::now() < deadline, "it is ready without its engine");
        crate::support::rest();
    }
    let hurry = "Dendra-Timeout-Ms: 3000";
    let got = ask(&mut fronts[1].client(), "GET", "k", &[hurry], b"");
    assert!(matches!(got.status, 503 | 504), "{got:?}");
}

/// Reads of a server that stands still are answered by another one.
fn check_standstill(cassandra: &Cassandra, front: &Front) {
    cassandra.signal(2, "STOP");
    let patient = "Dendra-Timeout-Ms: 60000";
    // A linearizable read begins at the server that has the key first: each key has its own.
    for n in 0..12 {
        for id in ["k".to_owned(), "k&ack=1".to_owned(), format!("none-{n}")] {
            let got = ask(&mut front.client(), "GET", &id, &[patient], b"");
            let expected = if id.starts_with('k') { 200 } else { 404 };
            assert_eq!(got.status, expected, "{id}: {got:?}");
        }
    }
    cassandra.signal(2, "CONT");
}

#[test]
fn a_server_that_no_option_names_is_found_and_readiness_follows_the_engine() {
    let Some(mut cassandra) = Cassandra::start(48, 2) else {
        return;
    };
    let named = cassandra.store("found", 3);
    let (first, _) = named.split_once(',').expect("there are two");
    let front = Front::start(&format!("{first}/found"));
    let mut client = front.client();
    assert_eq!(ask(&mut client, "PUT", "k", &[], b"1").status, 201);
    cassandra.join();
    // The only server that is named goes away; the two others are a majority of three copies.
    cassandra.kill(0);
    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            crate::support::rest();
        }
    };
    wait_for("writes go on", &|| {
        ask(&mut front.client(), "PUT", "k", &[], b"2").status == 201
    });
    wait_for("it is ready", &|| front.admin("/readyz").0 == 200);
    // Both servers have the record: the write was acknowledged by either. Then the one that
    // came last is left alone.
    cassandra.kill(1);
    wait_for("it is not ready", &|| front.admin("/readyz").0 == 503);
    let (_, said) = front.admin("/readyz");
    assert!(said.starts_with("cassandra does not answer: "), "{said}");
    wait_for("the last server answers", &|| {
        let got = ask(&mut front.client(), "GET", "k&ack=1", &[], b"");
        (got.status, &got.body[..]) == (200, b"2")
    });
    // The first one is the only one that starts without another one.
    cassandra.revive_alone(0);
    wait_for("it is ready again", &|| front.admin("/readyz").0 == 200);
    let got = ask(&mut front.client(), "GET", "k", &[], b"");
    assert_eq!((got.status, &got.body[..]), (200, &b"2"[..]));
}

#[test]
fn with_a_data_centre_its_own_copies_decide_and_front_doors_agree_on_it() {
    let Some(mut cassandra) = Cassandra::start_in(47, &["east", "west"]) else {
        return;
    };
    for keyspace in ["house", "whole"] {
        cassandra.make_keyspace_in(keyspace, &["east", "west"]);
    }
    let [east, west] = [1, 2].map(|n| format!("cassandra://127.0.47.{n}/house"));
    let start = || Front::start(&format!("{east}?dc=east"));
    let front = start();
    let put = ask(&mut front.client(), "PUT", "k", &[], b"1");
    let receipt = "acks=1/1; level=linearizable; durability=sync";
    assert_eq!((put.status, put.receipt.as_str()), (201, receipt));
    // Another front door lets other copies decide, or cannot do what it is told.
    let differs = "ask the data centre east (?dc=east), and this one asks";
    check_refused(&east, &[], 3, differs);
    check_refused(&format!("{west}?dc=west"), &[], 3, differs);
    let nowhere = "no server is in the data centre north of ?dc=north; there are servers in: \
        east, west";
    check_refused(&format!("{east}?dc=north"), &[], 3, nowhere);
    // A server elsewhere is as good as any to find those that decide.
    let far = Front::start(&format!("{west}?dc=east"));
    assert_eq!(ask(&mut far.client(), "GET", "k", &[], b"").body, b"1");
    let both = Front::start("cassandra://127.0.47.1,127.0.47.2/whole");
    let put = ask(&mut both.client(), "PUT", "k", &[], b"1");
    let receipt = "acks=2/2; level=linearizable; durability=sync";
    assert_eq!((put.status, put.receipt.as_str()), (201, receipt));
    // The other data centre goes away.
    cassandra.kill(1);
    let hurry = "Dendra-Timeout-Ms: 3000";
    let put = ask(&mut both.client(), "PUT", "k", &[hurry], b"2");
    assert!(matches!(put.status, 503 | 504), "{put:?}");
    for front in [front, far, start()] {
        let mut client = front.client();
        assert_eq!(ask(&mut client, "PUT", "k", &[], b"2").status, 201);
        assert_eq!(ask(&mut client, "GET", "k", &[], b"").body, b"2");
    }
    // The house moves: nothing asks any more, the other data centre has it all, the note goes.
    cassandra.revive(1);
    let put = ask(&mut start().client(), "PUT", "k", &[], b"3");
    assert_eq!(put.status, 201);
    cassandra.order(0, "DELETE FROM house.home WHERE one = 1", ALL);
    let moved = Front::start(&format!("{west}?dc=west"));
    let deadline = Instant::now() + PATIENCE;
    while ask(&mut moved.client(), "GET", "k", &[], b"").body != b"3" {
        assert!(Instant::now() < deadline, "the record does not arrive");
        crate::support::rest();
    }
    let put = ask(&mut moved.client(), "PUT", "k", &[], b"4");
    assert_eq!(put.status, 201);
    let differs = "ask the data centre west (?dc=west), and this one asks";
    check_refused(&format!("{east}?dc=east"), &[], 3, differs);
}

#[test]
fn cassandra_is_asked_by_tls_and_as_a_user() {
    const BLOCK: u8 = 45;
    let papers = Papers::make();
    let Some(mut cassandra) = Cassandra::start(BLOCK, 1) else {
        return;
    };
    let store = cassandra.store("sealed", 1);
    cassandra.kill(0);
    let read = |name: &str| std::fs::read_to_string(papers.file(name)).expect("it is there");
    let own = [read("127.0.0.1.key"), read("127.0.0.1.crt")].concat();
    let own = papers.write("own.pem", &own);
    cassandra.more = format!(
        "authenticator: PasswordAuthenticator\nclient_encryption_options:\n  enabled: true\n  \
         optional: false\n  require_client_auth: true\n  keystore: {own}\n  truststore: {}\n  \
         ssl_context_factory:\n    \
         class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n",
        papers.file("ca.crt")
    );
    cassandra.revive_alone(0);
    // Cassandra makes its first user a moment after it listens, and says so in no way that
    // lasts.
    let login = "cassandra:cassandra";
    let flags = [papers.flags(login), papers.own_flags()].concat();
    let deadline = Instant::now() + PATIENCE;
    while !opens(&store, &flags) {
        assert!(Instant::now() < deadline, "its first user does not come");
    }
    check_papers(&store, &papers, login, &papers.own_flags());
    // A login that is of no use is in force as soon as it is read, and so is the next one.
    let flags = [papers.flags(login), papers.own_flags()].concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let front = Front::start_with(&store, &flags);
    let mut client = front.client();
    assert_eq!(ask(&mut client, "PUT", "k", &[], b"1").status, 201);
    papers.write("login", "cassandra:wrong");
    signal_process(front.pid(), "HUP");
    let deadline = Instant::now() + PATIENCE;
    while ask(&mut client, "PUT", "k", &[], b"2").status == 201 {
        assert!(Instant::now() < deadline, "the old login stays in force");
    }
    papers.write("login", login);
    signal_process(front.pid(), "HUP");
    check_comes_back(&front);
}

fn check_scans(front: &Front) {
    let mut client = front.client();
    // More than one page of each bucket, some deleted, some long.
    let mut expected = Vec::new();
    for n in 0..600 {
        let key = format!("s{n:04}");
        let value = "v".repeat(if n % 100 == 0 { 100_000 } else { n % 7 });
        assert_eq!(
            ask(&mut client, "PUT", &key, &[], value.as_bytes()).status,
            201
        );
        match n % 10 {
            3 => assert_eq!(ask(&mut client, "DELETE", &key, &[], b"").status, 202),
            _ => expected.push(key),
        }
    }
    let mut scan = |target: &str| {
        let target = format!("/v0/entities?{target}&keys-only=true");
        let answer = client
            .request("GET", &target, &[], b"")
            .expect("it answers");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let keys = text.split_whitespace().map(str::to_owned);
        (keys.collect::<Vec<_>>(), answer.receipt)
    };
    let complete = "Dendra-Scan: complete".to_owned();
    assert_eq!(scan("prefix=s"), (expected.clone(), complete.clone()));
    let (some, end) = scan("start=s0100&limit=5");
    assert_eq!(some, ["s0100", "s0101", "s0102", "s0104", "s0105"]);
    assert_eq!(end, "Dendra-Scan: stopped; next=s0106");
    expected.reverse();
    assert_eq!(scan("prefix=s&reverse=true"), (expected, complete));
}
