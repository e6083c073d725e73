//! Front doors of etcd: contract, papers, a full store, its history, and faults.

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
fn old_revisions_are_compacted_by_a_front_door_that_is_told_to_and_by_no_other() {
    let Some(etcd) = Etcd::start(1) else { return };
    let front = Front::start(&etcd.store("kept"));
    let mut client = front.client();
    for n in 0..50 {
        let value = format!("{n}");
        let put = ask(&mut client, "PUT", "k", &[], value.as_bytes());
        assert_eq!(put.status, 201);
    }
    let is_readable = |revision: u32| {
        let mut client = Client::open(etcd.address(0)).expect("it listens");
        let body = format!(r#"{{"key":"AA==","revision":"{revision}"}}"#);
        let answer = client.request("POST", "/v3/kv/range", &[], body.as_bytes());
        let answer = answer.expect("it answers");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 200 || text.contains("compacted"), "{text}");
        answer.status == 200
    };
    let wait_for = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            crate::support::rest();
        }
    };
    let kept = |front: &Front| {
        let (_, metrics) = front.admin("/metrics");
        let mut lines = metrics.lines();
        lines.find_map(|line| {
            let number = line.strip_prefix("dendra_front_revisions_kept ")?;
            number.parse::<u64>().ok()
        })
    };
    wait_for("it says how many are kept", &mut || kept(&front).is_some());
    let compacting = Front::start(&format!("{}?compact-after=2s", etcd.store("told")));
    assert!(
        is_readable(2),
        "nothing is two seconds old for the front door"
    );
    wait_for("it compacts", &mut || !is_readable(2));
    // The newest one stays, and what was written since.
    wait_for("it comes near the newest", &mut || !is_readable(50));
    assert_eq!(ask(&mut client, "GET", "k", &[], b"").body, b"49");
    assert_eq!(ask(&mut client, "PUT", "k", &[], b"50").status, 201);
    assert!(is_readable(52), "the newest revision is there");
    assert!(kept(&compacting).is_some());
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
