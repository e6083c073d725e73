//! The door in front of real engines of others: the contract, faults, and histories.
//!
//! ```text
//! clients ─► front door 1, front door 2 ─► etcd: one server, or three of which one is killed
//!                                       └► Cassandra: the same
//! all that clients were told ─► the simulator's checker of linearizability
//! dendra conform ─► a front door ─► either       dendra copy: node ─► Cassandra ─► etcd ─► cluster
//! ```
//!
//! Invariants
//! 1. A front door stores no records: two of them answer as one.
//! 2. Versions are the engine's own: the checker that trusts them is for our clusters alone.
//! 3. In a build without a driver, or on a machine without the engine, a test says that it was
//!    skipped.
//!
//! Not here: the queue between door and driver (crate `server`, `tests/front.rs`).
//! See: docs/stores.md.

mod support;

#[cfg(not(feature = "etcd"))]
#[test]
fn a_build_without_the_driver_says_which_build_has_it() {
    eprintln!("SKIPPED: tests with a real etcd are in a build with `--features etcd`");
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "--store", "etcd://127.0.0.1:1/p", "--data"];
    let mut command = support::dendra(arguments);
    let run = support::run(command.arg(folder.path()));
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("--features etcd"), "{}", run.stderr);
}

#[test]
fn a_store_goes_with_no_cluster() {
    let mut command = support::dendra([
        "serve",
        "--store",
        "etcd://127.0.0.1:1/p",
        "--cluster",
        "http://127.0.0.1:1",
        "--self",
        "http://127.0.0.1:1",
    ]);
    let run = support::run(&mut command);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    let sentence = "store and cluster do not go together";
    assert!(run.stderr.contains(sentence), "{}", run.stderr);
}

#[cfg(feature = "etcd")]
mod etcd {
    use crate::support::clients::under_foreign_load;
    use crate::support::etcd::Etcd;
    use crate::support::front::{
        Front, Papers, ask, check_comes_back, check_conditions, check_contract, check_lost_front,
        check_papers, check_refused, check_slow_readers, check_time_to_live,
    };
    use crate::support::http::{Client, PATIENCE};
    use crate::support::{dendra, run, signal_process};
    use std::time::Instant;

    const RECEIPT: &str = "acks=1/1; level=linearizable; durability=sync";

    #[test]
    fn one_key_has_the_contract_of_a_node() {
        let Some(etcd) = Etcd::start(1) else { return };
        let front = Front::start(&etcd.store("one/key"));
        let other = Front::start(&etcd.store("one"));
        let mut client = front.client();
        let put = ask(&mut client, "PUT", "k", &[], b"one");
        assert_eq!((put.status, put.receipt.as_str()), (201, RECEIPT));
        let got = ask(&mut client, "GET", "k", &[], b"");
        assert_eq!((got.status, &got.body[..]), (200, &b"one"[..]));
        assert_eq!((&got.etag, got.receipt.as_str()), (&put.etag, RECEIPT));
        // Bytes, not text; and no record of another prefix.
        let bytes: Vec<u8> = (0..=255).collect();
        let put = ask(&mut client, "PUT", "%00%ff%2f", &[], &bytes);
        assert_eq!(put.status, 201);
        assert_eq!(ask(&mut client, "GET", "%00%ff%2f", &[], b"").body, bytes);
        assert_eq!(ask(&mut other.client(), "GET", "k", &[], b"").status, 404);
        // A large value passes, and one that etcd does not take says so.
        let large = vec![7; 1 << 20];
        assert_eq!(ask(&mut client, "PUT", "large", &[], &large).status, 201);
        assert_eq!(ask(&mut client, "GET", "large", &[], b"").body, large);
        assert_eq!(ask(&mut client, "PUT", "empty", &[], b"").status, 201);
        assert_eq!(ask(&mut client, "GET", "empty", &[], b"").body, b"");
        assert_eq!(ask(&mut client, "DELETE", "k", &[], b"").status, 202);
        assert_eq!(ask(&mut client, "DELETE", "k", &[], b"").status, 202);
        assert_eq!(ask(&mut client, "GET", "k", &[], b"").status, 404);
    }

    #[test]
    fn conditions_are_judged_by_etcd() {
        let Some(etcd) = Etcd::start(1) else { return };
        check_conditions(&Front::start(&etcd.store("conditions")));
    }

    #[test]
    fn a_record_with_a_time_to_live_ends_and_makes_room_for_a_new_one() {
        let Some(etcd) = Etcd::start(1) else { return };
        check_time_to_live(&Front::start(&etcd.store("ttl")));
    }

    #[test]
    fn a_scan_shows_every_key_once_whatever_the_length_of_values() {
        let Some(etcd) = Etcd::start(1) else { return };
        let front = Front::start(&etcd.store("scan"));
        let mut client = front.client();
        let mut expected = String::new();
        for n in 0..300 {
            // Many short ones, then some that are longer than a page.
            let value = match n % 100 {
                0..90 => "v".repeat(n),
                _ => "v".repeat(200_000),
            };
            let key = format!("k{n:03}");
            assert_eq!(
                ask(&mut client, "PUT", &key, &[], value.as_bytes()).status,
                201
            );
            expected.push_str(&format!("{key}\n{value}\n"));
        }
        let mut scan = |target: &str| {
            let target = format!("/v0/entities?{target}");
            client
                .request("GET", &target, &[], b"")
                .expect("it answers")
        };
        let all = scan("prefix=k");
        assert_eq!(all.receipt, "Dendra-Scan: complete");
        assert!(all.body == expected.as_bytes(), "{} bytes", all.body.len());
        let some = scan("start=k010&end=k020&keys-only=true");
        let keys: Vec<_> = (10..20).map(|n| format!("k{n:03}")).collect();
        let shown = String::from_utf8_lossy(&some.body);
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), keys);
        let limited = scan("start=k010&limit=5&keys-only=true");
        assert_eq!(limited.receipt, "Dendra-Scan: stopped; next=k015");
        let mut keys = |target: &str| {
            let shown = scan(&format!("{target}&keys-only=true"));
            let text = String::from_utf8_lossy(&shown.body).into_owned();
            let keys = text.split_whitespace().map(str::to_owned);
            (keys.collect::<Vec<_>>(), shown.receipt)
        };
        let (mut back, end) = keys("prefix=k&reverse=true");
        assert_eq!(end, "Dendra-Scan: complete");
        back.reverse();
        assert_eq!(back, keys("prefix=k").0);
        assert_eq!(back.len(), 300);
        let (some, end) = keys("start=k&end=k020&reverse=true&limit=3");
        assert_eq!(some, ["k019", "k018", "k017"]);
        assert_eq!(end, "Dendra-Scan: stopped; next=k017");
        let (none, end) = keys("start=l&reverse=true");
        assert_eq!((none.len(), end.as_str()), (0, "Dendra-Scan: complete"));
    }

    #[test]
    fn a_scan_from_the_end_finds_its_pages_among_keys_of_any_shape() {
        let Some(etcd) = Etcd::start(1) else { return };
        let front = Front::start(&etcd.store("back"));
        let mut client = front.client();
        let mut keys = Vec::new();
        for n in 0..400 {
            keys.push(match n % 4 {
                0 => format!("https%3A%2F%2Fexample.com%2Farticles%2F2026%2F{n:05}"),
                1 => format!("zeros{}", "%00".repeat(n / 4)),
                2 => format!("%ff%ff{n}"),
                _ => format!("{n}"),
            });
        }
        for key in &keys {
            assert_eq!(ask(&mut client, "PUT", key, &[], b"v").status, 201, "{key}");
        }
        let scan = |how: &[&str]| {
            let plain = ["scan", "--keys-only", "--hex", "--url", front.url()];
            let shown = run(dendra(plain).args(how));
            assert_eq!(shown.code, Some(0), "{}", shown.stderr);
            let text = String::from_utf8_lossy(&shown.stdout).into_owned();
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let forward = scan(&[]);
        assert_eq!(forward.len(), keys.len());
        let mut backward = scan(&["--reverse"]);
        backward.reverse();
        assert_eq!(backward, forward);
    }

    #[test]
    fn every_case_of_the_contract_passes() {
        let Some(etcd) = Etcd::start(1) else { return };
        check_contract(&Front::start(&etcd.store("contract")));
    }

    #[test]
    fn a_front_door_that_is_killed_takes_no_acknowledged_write_with_it() {
        let Some(etcd) = Etcd::start(3) else { return };
        check_lost_front(&etcd.store("lost"));
    }

    #[test]
    fn clients_that_do_not_read_their_scans_hold_up_no_other() {
        let Some(etcd) = Etcd::start(1) else { return };
        // A client that reads no byte for 10 s is cut off otherwise: a busy machine takes longer.
        let patient = ["--write-timeout-ms", "600000"];
        check_slow_readers(&Front::start_with(&etcd.store("slow"), &patient));
    }

    #[test]
    fn a_front_door_is_ready_while_a_majority_of_etcd_answers() {
        let Some(mut etcd) = Etcd::start(3) else {
            return;
        };
        let front = Front::start(&etcd.store("ready"));
        let wait_for = |status: u16| {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let (now, text) = front.admin("/readyz");
                if now == status {
                    return text;
                }
                assert!(Instant::now() < deadline, "{now}: {text}");
                crate::support::rest();
            }
        };
        wait_for(200);
        etcd.kill(0);
        etcd.kill(1);
        let said = wait_for(503);
        assert!(said.starts_with("etcd does not answer: "), "{said}");
        etcd.revive(0);
        wait_for(200);
    }

    #[test]
    fn a_read_of_a_server_that_stands_still_is_answered_by_another_one() {
        let Some(etcd) = Etcd::start(3) else { return };
        let front = Front::start(&etcd.store("hedge"));
        let mut client = front.client();
        assert_eq!(ask(&mut client, "PUT", "k", &[], b"v").status, 201);
        etcd.signal(0, "STOP");
        // An election takes a second or two; without a second question this would be `504`.
        let patient = "Dendra-Timeout-Ms: 40000";
        let got = ask(&mut client, "GET", "k", &[patient], b"");
        assert_eq!((got.status, &got.body[..]), (200, &b"v"[..]), "{got:?}");
        etcd.signal(0, "CONT");
    }

    fn order(etcd: &Etcd, path: &str, body: &str) -> String {
        order_as(etcd, &[], path, body)
    }

    fn order_as(etcd: &Etcd, head: &[&str], path: &str, body: &str) -> String {
        let mut client = Client::open(etcd.address(0)).expect("it listens");
        let answer = client.request("POST", path, head, body.as_bytes());
        let answer = answer.expect("it answers");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{path}: {text}");
        text
    }

    /// The text behind a name in an answer of etcd.
    fn text_of<'a>(answer: &'a str, name: &str) -> &'a str {
        let named = format!("\"{name}\":\"");
        let (_, rest) = answer.split_once(&named).expect("it says so");
        rest.split_once('"').expect("it ends").0
    }

    #[test]
    fn etcd_is_asked_by_tls_and_as_a_user() {
        let papers = Papers::make();
        let [cert, key, ca] = ["127.0.0.1.crt", "127.0.0.1.key", "ca.crt"];
        let [cert, key, ca] = [cert, key, ca].map(|name| papers.file(name));
        let sealed = ["--cert-file", &cert, "--key-file", &key];
        let asks = ["--client-cert-auth", "--trusted-ca-file", &ca];
        // By certificate: for etcd's gateway that goes with no user.
        let Some(etcd) = Etcd::start_with(1, &[&sealed[..], &asks].concat()) else {
            return;
        };
        let known = ["--store-ca", &ca];
        let own = papers.own_flags();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let front = Front::start_with(&etcd.store("app"), &[&known[..], &own].concat());
        assert_eq!(ask(&mut front.client(), "PUT", "k", &[], b"v").status, 201);
        check_refused(&etcd.store("app"), &known, 3, "the store cannot be opened");
        check_refused(&etcd.store("app"), &own, 2, "need store-ca");
        let etcd = Etcd::start_with(1, &sealed).expect("there was one just now");
        // The part "app" belongs to a user.
        for (path, body) in [
            ("user/add", r#"{"name":"root","password":"r"}"#),
            ("role/add", r#"{"name":"root"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("user/add", r#"{"name":"front","password":"p:w"}"#),
            ("role/add", r#"{"name":"app"}"#),
            (
                "role/grant",
                r#"{"name":"app","perm":{"permType":"READWRITE","key":"YXBwLw==","range_end":"YXBwMA=="}}"#,
            ),
            ("user/grant", r#"{"user":"front","role":"app"}"#),
            ("enable", "{}"),
        ] {
            order(&etcd, &format!("/v3/auth/{path}"), body);
        }
        check_papers(&etcd.store("app"), &papers, "front:p:w", &[]);
        // A new password, be it the same, ends the tokens: the front door asks for another one.
        let flags = papers.flags("front:p:w");
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let front = Front::start_with(&etcd.store("app"), &flags);
        let mut client = front.client();
        assert_eq!(ask(&mut client, "PUT", "k", &[], b"1").status, 201);
        let root = r#"{"name":"root","password":"r"}"#;
        let answer = order(&etcd, "/v3/auth/authenticate", root);
        let root = format!("Authorization: {}", text_of(&answer, "token"));
        let same = r#"{"name":"front","password":"p:w"}"#;
        order_as(&etcd, &[&root], "/v3/auth/user/changepw", same);
        let put = ask(&mut client, "PUT", "k", &[], b"2");
        assert_eq!(put.status, 201, "{put:?}");
        // Another password: the front door has it as soon as its file has, without a restart.
        let root = r#"{"name":"root","password":"r"}"#;
        let answer = order(&etcd, "/v3/auth/authenticate", root);
        let root = format!("Authorization: {}", text_of(&answer, "token"));
        let other = r#"{"name":"front","password":"n:w"}"#;
        order_as(&etcd, &[&root], "/v3/auth/user/changepw", other);
        assert_ne!(ask(&mut client, "PUT", "k", &[], b"3").status, 201);
        // It reads its files again, and is not ended, as a node without files would be.
        papers.write("login", "front:n:w");
        signal_process(front.pid(), "HUP");
        check_comes_back(&front);
        let elsewhere = Front::start_with(&etcd.store("app/more"), &flags);
        assert_eq!(
            ask(&mut elsewhere.client(), "GET", "k", &[], b"").status,
            404
        );
        check_refused(&etcd.store("other"), &flags, 3, "permission denied");
    }

    #[test]
    fn another_ca_is_in_force_without_a_restart_of_the_front_door() {
        let papers = Papers::make();
        let [cert, key, ca] = ["127.0.0.1.crt", "127.0.0.1.key", "ca.crt"];
        let files = [cert, key].map(|name| papers.file(name));
        let sealed = ["--cert-file", &files[0], "--key-file", &files[1]];
        let Some(mut etcd) = Etcd::start_with(1, &sealed) else {
            return;
        };
        let front = Front::start_with(&etcd.store("ca"), &["--store-ca", &papers.file(ca)]);
        assert_eq!(ask(&mut front.client(), "PUT", "k", &[], b"v").status, 201);
        // Connections of before are of no use: they are closed.
        etcd.kill(0);
        let others = Papers::make();
        for name in [cert, key, ca] {
            let text = std::fs::read_to_string(others.file(name)).expect("it is there");
            papers.write(name, &text);
        }
        etcd.revive(0);
        check_comes_back(&front);
        let (_, metrics) = front.admin("/metrics");
        assert!(
            !metrics.contains("dendra_front_files_renewed_total 0"),
            "{metrics}"
        );
    }

    #[test]
    fn a_full_etcd_refuses_writes_and_takes_them_again_when_it_has_room() {
        let quota = ["--quota-backend-bytes", "16777216"];
        let Some(etcd) = Etcd::start_with(1, &quota) else {
            return;
        };
        let front = Front::start(&etcd.store("full"));
        let mut client = front.client();
        let value = vec![b'v'; 1 << 20];
        let mut stored = 0;
        let refused = loop {
            let put = ask(&mut client, "PUT", &format!("k{stored}"), &[], &value);
            if put.status != 201 {
                break put;
            }
            stored += 1;
            assert!(stored < 64, "it is never full");
        };
        assert_eq!(refused.status, 507, "{refused:?}");
        assert_eq!(refused.receipt, "outcome=not-applied");
        assert!(stored > 4, "{stored} MiB fit");
        // A condition and a time to live are other requests to etcd, and are refused alike.
        let absent = ask(&mut client, "PUT", "new", &["If-None-Match: *"], &value);
        assert_eq!(absent.status, 507, "{absent:?}");
        let fleeting = client.request("PUT", "/v0/entity?id=new&ttl=60", &[], b"v");
        assert_eq!(fleeting.expect("it answers").status, 507);
        // It can still be read, and made smaller.
        assert_eq!(ask(&mut client, "GET", "k0", &[], b"").body, value);
        for n in 1..stored {
            let gone = ask(&mut client, "DELETE", &format!("k{n}"), &[], b"");
            assert_eq!(gone.status, 202, "{gone:?}");
        }
        let range = order(&etcd, "/v3/kv/range", r#"{"key":"AA=="}"#);
        let revision = text_of(&range, "revision");
        let member = text_of(&range, "member_id");
        let compaction = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        order(&etcd, "/v3/kv/compaction", &compaction);
        order(&etcd, "/v3/maintenance/defragment", "{}");
        let off = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
        order(&etcd, "/v3/maintenance/alarm", &off);
        assert_eq!(ask(&mut client, "PUT", "new", &[], &value).status, 201);
        assert_eq!(ask(&mut client, "GET", "k0", &[], b"").body, value);
    }

    #[test]
    fn a_store_that_is_away_is_named_at_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let away = "etcd://127.0.0.1:1,127.0.0.1:2/p";
        let mut command = dendra(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
        let command = command.args(["--store", away, "--data"]).arg(folder.path());
        let run = run(command);
        assert_eq!(run.code, Some(3), "{}", run.stderr);
        assert!(
            run.stderr.contains("the store cannot be opened"),
            "{}",
            run.stderr
        );
    }

    #[test]
    fn two_front_doors_of_one_etcd_answer_as_one_store() {
        let Some(etcd) = Etcd::start(1) else { return };
        let fronts = [(); 2].map(|()| Front::start(&etcd.store("two")));
        let on = [(0, fronts[0].address()), (1, fronts[1].address())];
        let told = under_foreign_load("two-front-doors", &on, 60_000, |load| load.run_on(2_000));
        assert_eq!(told.failed(), 0, "{:#?}", told.said());
    }

    #[test]
    fn while_one_of_three_is_killed_and_comes_back_histories_stay_linearizable() {
        let Some(mut etcd) = Etcd::start(3) else {
            return;
        };
        let fronts = [(); 2].map(|()| Front::start(&etcd.store("three")));
        let on = [(0, fronts[0].address()), (1, fronts[1].address())];
        let told = under_foreign_load("one-of-three-is-killed", &on, 2_000, |load| {
            for member in 0..3 {
                load.run_on(200);
                etcd.kill(member);
                // Each client has met the fault, and goes on.
                load.run_on(400);
                etcd.revive(member);
                load.run_on(200);
            }
        });
        println!("{} were not answered in time", told.failed());
        let done = told.history.iter().filter(|op| op.is_done()).count();
        assert!(done > told.history.len() / 2, "{:#?}", told.said());
        // And afterwards it is as before.
        let deadline = Instant::now() + PATIENCE;
        let mut client = fronts[0].client();
        while ask(&mut client, "PUT", "after", &[], b"v").status != 201 {
            assert!(Instant::now() < deadline, "it does not come back");
        }
    }
}

#[cfg(feature = "cassandra")]
mod cassandra {
    use crate::support::cassandra::{ALL, Cassandra, QUICK};
    use crate::support::clients::under_foreign_load;
    use crate::support::front::{
        Front, Papers, ask, check_comes_back, check_conditions, check_contract, check_lost_front,
        check_papers, check_refused, check_time_to_live, opens,
    };
    use crate::support::http::PATIENCE;
    use crate::support::signal_process;
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
}

#[cfg(all(feature = "etcd", feature = "cassandra"))]
mod house {
    use crate::support::cassandra::Cassandra;
    use crate::support::cluster::Cluster;
    use crate::support::etcd::Etcd;
    use crate::support::front::Front;
    use crate::support::moves::{assert_equal, client, copy, fill, put, urls};
    use crate::support::{Node, run};
    use std::sync::atomic::{AtomicBool, Ordering};

    const RECORDS: usize = 300;

    /// Writes to a node, no faster than the front door that it moves to answers.
    fn write_beside(node: &Node, front: &Front, is_over: &AtomicBool) -> usize {
        let (mut own, mut other) = (client(node.address()), front.client());
        let mut writes = 0;
        while !is_over.load(Ordering::SeqCst) {
            let key = format!("k%00{:06}%ff", (writes * 7) % RECORDS);
            put(&mut own, &key, "", format!("changed {writes}").as_bytes());
            put(&mut own, &format!("new-{writes}"), "&ttl=1000", b"new");
            other.ask("GET", &key, &[], b"").expect("it answers");
            writes += 1;
        }
        writes
    }

    #[test]
    fn records_move_from_a_node_through_both_engines_to_a_cluster() {
        let (Some(etcd), Some(cassandra)) = (Etcd::start(1), Cassandra::start(44, 1)) else {
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let state = |name: &str| folder.path().join(name);
        let node = Node::start(&folder.path().join("from"), &[]);
        fill(node.address(), RECORDS);
        let first = Front::start(&cassandra.store("house", 1));
        let second = Front::start(&etcd.store("house"));
        // Rounds beside a writer, then the cut-over behind its end.
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_beside(&node, &first, &is_over));
            let followed = run(&mut copy(&node.url, first.url(), &state("1"), &[]));
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(followed.code, Some(0), "{}", followed.stderr);
            let writes = writer.join().expect("no write failed");
            assert!(writes > 20, "the copy met {writes} writes");
        });
        let sealed = ["--cut-over", "--sealed"];
        let done = run(&mut copy(&node.url, first.url(), &state("1"), &sealed));
        assert_equal(&done, &node.url, first.url());
        let done = run(&mut copy(first.url(), second.url(), &state("2"), &sealed));
        assert_equal(&done, first.url(), second.url());
        let cluster = Cluster::start(&[]);
        let to = urls(&cluster);
        let done = run(&mut copy(second.url(), &to, &state("3"), &sealed));
        assert_equal(&done, second.url(), to.split(',').next().expect("three"));
        assert_equal(&done, &node.url, to.split(',').next().expect("three"));
    }
}
