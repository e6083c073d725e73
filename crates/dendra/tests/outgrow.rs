//! The door in front of real engines of others: the contract, faults, and histories.
//!
//! ```text
//! clients ─► front door 1, front door 2 ─► etcd: one server, or three of which one is killed
//!                                       └► Cassandra: one server
//! all that clients were told ─► the simulator's checker of linearizability
//! ```
//!
//! Invariants
//! 1. A front door keeps nothing: two of them answer as one.
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

#[cfg(any(feature = "etcd", feature = "cassandra"))]
mod front {
    use crate::support::Node;
    use crate::support::http::{Answer, Client, PATIENCE};
    use std::net::SocketAddr;
    use std::time::Instant;

    pub(crate) struct Front {
        node: Node,
        _folder: tempfile::TempDir,
    }

    impl Front {
        pub(crate) fn start(store: &str) -> Front {
            let folder = tempfile::tempdir().expect("a folder");
            let node = Node::start(&folder.path().join("none"), &["--store", store]);
            Front {
                node,
                _folder: folder,
            }
        }

        pub(crate) fn address(&self) -> SocketAddr {
            let address = self.node.url.strip_prefix("http://");
            address.and_then(|it| it.parse().ok()).expect("an address")
        }

        pub(crate) fn client(&self) -> Client {
            Client::open(self.address()).expect("it listens")
        }
    }

    pub(crate) fn ask(
        client: &mut Client,
        method: &str,
        id: &str,
        head: &[&str],
        body: &[u8],
    ) -> Answer {
        client.ask(method, id, head, body).expect("it answers")
    }

    pub(crate) fn check_conditions(front: &Front) {
        let mut client = front.client();
        let mut put = |head: &[&str], value: &[u8]| ask(&mut client, "PUT", "c", head, value);
        assert_eq!(put(&["If-Match: *"], b"0").status, 412);
        let one = put(&["If-None-Match: *"], b"1");
        assert_eq!(one.status, 201);
        let prefer = "Prefer: return=representation";
        let refused = put(&["If-None-Match: *", prefer], b"2");
        assert_eq!((refused.status, &refused.body[..]), (412, &b"1"[..]));
        assert_eq!(refused.etag, one.etag);
        let if_one = format!("If-Match: {}", one.etag.expect("a version"));
        let two = put(&[&if_one], b"2");
        assert_eq!(two.status, 201);
        assert_eq!(put(&[&if_one], b"3").status, 412);
        let two = two.etag.expect("a version");
        assert_eq!(put(&[&format!("If-None-Match: {two}")], b"3").status, 412);
        assert_eq!(put(&["If-Match: *"], b"3").status, 201);
        let mut delete = |head: &str| ask(&mut client, "DELETE", "c", &[head], b"").status;
        assert_eq!(delete(&if_one), 412);
        assert_eq!(delete("If-Match: *"), 202);
        assert_eq!(delete("If-Match: *"), 412);
    }

    pub(crate) fn check_time_to_live(front: &Front) {
        let mut client = front.client();
        let put = client.request("PUT", "/v0/entity?id=t&ttl=1", &[], b"v");
        assert_eq!(put.expect("it answers").status, 201);
        let deadline = Instant::now() + PATIENCE;
        while ask(&mut client, "GET", "t", &[], b"").status == 200 {
            assert!(Instant::now() < deadline, "it stays");
        }
        // The engine still has it, and keeps it a little longer.
        let created = ask(&mut client, "PUT", "t", &["If-None-Match: *"], b"w");
        assert_eq!(created.status, 201);
        assert_eq!(ask(&mut client, "GET", "t", &[], b"").body, b"w");
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use crate::front::{Front, ask, check_conditions, check_time_to_live};
    use crate::support::clients::under_foreign_load;
    use crate::support::etcd::Etcd;
    use crate::support::http::PATIENCE;
    use crate::support::{dendra, run};
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
        // Bytes, not text; and nothing of another prefix.
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
        let back = scan("prefix=k&reverse=true");
        assert_eq!(
            back.status,
            501,
            "{:?}",
            String::from_utf8_lossy(&back.body)
        );
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
    use crate::front::{Front, ask, check_conditions, check_time_to_live};
    use crate::support::cassandra::Cassandra;
    use crate::support::clients::under_foreign_load;

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
        let on = [(0, fronts[0].address()), (1, fronts[1].address())];
        let told = under_foreign_load("cassandra", &on, 60_000, |load| load.run_on(1_000));
        println!("{} were not answered in time", told.failed());
        let done = told.history.iter().filter(|op| op.is_done()).count();
        assert!(done > told.history.len() / 2, "{:#?}", told.said());
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
