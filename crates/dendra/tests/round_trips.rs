//! Drawn records on every way through real processes: what comes out is what went in.
//!
//! ```text
//! node ─► backup, increment ─► verify ─► wiped ─► restore, whole and by prefix     every byte, every ETag
//! three ─► encrypted backup in a bucket ─► verify ─► restore into two
//! node ─► copy, and scan in each form ─► load ─► nodes
//! three ─► one is away: hints ─► its disk is lost: replaced ─► each one's own copies
//! ```
//!
//! Invariants
//! 1. Keys are of all bytes and lengths (`support/drawn.rs`); a test judges the records by the
//!    stores alone.
//!
//! Not here: writes meanwhile, kills and faults (`backup*.rs`, `restore.rs`, `commands/copy.rs`,
//! `clusters/`), the front doors (`outgrow/`), encoders alone (each crate's own tests).
//! See: docs/format/backup.md, docs/moving.md.

mod support;

use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use support::backups::{self, folder, ok, restore, verify};
use support::bucket::TestBucket;
use support::drawn::{DrawnRecords, Records, records};
use support::moves::copy;
use support::town::{Town, free_address};
use support::{Node, dendra, run, run_with_input};

/// The moment at which a value ends.
fn expires_ms(address: SocketAddr, key: &[u8]) -> Value {
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let url = format!("http://{address}");
    let got = ["get", &digits, "--hex", "--json", "--url", &url];
    let got = ok(run(&mut dendra(got)));
    let object: Value = serde_json::from_slice(&got.stdout).expect("an object");
    assert!(object["expires_ms"].is_u64(), "{object}");
    object["expires_ms"].clone()
}

#[test]
fn drawn_records_come_back_from_a_backup_and_from_an_increment() {
    let mut drawn = DrawnRecords::new("backup");
    let (data, to) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    drawn.write(&drawn.records, node.address());
    ok(backups::backup(&node.admin, to.path(), &["--verify"]));
    drawn.change(node.address());
    let taken = ok(backups::backup(&node.admin, to.path(), &["--json"]));
    let is_incremental = &backups::page_of(&taken)["incremental"];
    assert_eq!(*is_incremental, Value::Bool(true), "{}", taken.stderr);
    let whole = ok(verify(to.path()));
    assert!(whole.stderr.contains("whole: "), "{}", whole.stderr);
    let before = drawn.answers(node.address());
    let ending = drawn.ending[0].clone();
    let expires = expires_ms(node.address(), &ending);
    drop(node);

    let wiped = folder();
    let node = Node::start(wiped.path(), &[]);
    ok(restore(to.path(), &node.admin, &[]));
    drawn.check(&records(node.address(), "cluster"));
    assert!(drawn.answers(node.address()) == before, "ETags differ");
    assert_eq!(expires_ms(node.address(), &ending), expires);

    // A part of them: keys of digests and long paths, and those that begin with a zero byte.
    for prefix in ["00", "2f", "33"] {
        let part = ["--prefix", prefix, "--hex"];
        let mut command = dendra(["backup", "verify"]);
        ok(run(command.args(part).arg(to.path())));
        let data = folder();
        let node = Node::start(data.path(), &[]);
        ok(restore(to.path(), &node.admin, &part));
        let first = u8::from_str_radix(prefix, 16).expect("digits");
        let mut expected = drawn.records.clone();
        expected.retain(|key, _| key[0] == first);
        assert!(records(node.address(), "cluster") == expected, "{prefix}");
    }
}

/// Addresses of admin ports, with commas.
fn admins(town: &Town) -> String {
    let sites = 0..town.sites.len();
    let urls = sites.map(|at| format!("http://{}", town.admin_address(at).expect("it serves")));
    urls.collect::<Vec<String>>().join(",")
}

#[test]
fn drawn_records_of_three_members_come_back_in_two_from_an_encrypted_bucket() {
    let mut drawn = DrawnRecords::new("bucket");
    let (town, bucket, keys) = (Town::found(), TestBucket::start(), folder());
    drawn.write(&drawn.records, town.sites[0].listen);
    drawn.change(town.sites[1].listen);
    let key = keys.path().join("key");
    ok(run(dendra(["backup", "key"]).arg(&key)));
    let with_key = |mut command: Command| {
        command.arg("--backup-key").arg(&key).arg("s3://bucket/a");
        ok(run(&mut bucket.command(command)))
    };
    with_key(dendra(["backup", "--admin", &admins(&town)]));
    with_key(dendra(["backup", "verify"]));
    let before = drawn.answers(town.sites[2].listen);
    drop(town);
    let two = Town::found_with(2, &[]);
    with_key(dendra(["restore", "--admin", &admins(&two)]));
    for site in &two.sites {
        drawn.check(&records(site.listen, "cluster"));
        drawn.check(&records(site.listen, "local"));
        assert!(drawn.answers(site.listen) == before, "ETags differ");
    }
}

fn scan(node: &Node, form: &str) -> Vec<u8> {
    ok(node.run(["scan", form])).stdout
}

/// Loads what a scan printed into a new node.
fn loaded(data: &Path, text: &[u8], flags: &[&str]) -> Records {
    let node = Node::start(data, &[]);
    let mut command = node.command(["load", "-"]);
    ok(run_with_input(command.args(flags), text));
    records(node.address(), "cluster")
}

#[test]
fn drawn_records_are_copied_and_scanned_and_loaded_in_each_form() {
    let mut drawn = DrawnRecords::new("copy");
    let (place, data) = (folder(), folder());
    let node = Node::start(data.path(), &[]);
    drawn.write(&drawn.records, node.address());
    let to = place.path().join("to");
    let copied = Node::start(&to, &[]);
    let state = place.path().join("state");
    ok(run(&mut copy(&node.url, &copied.url, &state, &[])));
    drawn.check(&records(copied.address(), "cluster"));
    drawn.change(node.address());
    let sealed = ["--cut-over", "--sealed"];
    ok(run(&mut copy(&node.url, &copied.url, &state, &sealed)));
    drawn.check(&records(copied.address(), "cluster"));
    expires_ms(copied.address(), &drawn.ending[0]);

    for (form, flags) in [
        ("--json", &["--format", "ndjson"][..]),
        ("--hex", &["--format", "tsv", "--hex"]),
        ("--base64", &["--format", "tsv", "--base64"]),
    ] {
        let text = scan(&node, form);
        drawn.check(&loaded(&place.path().join(form), &text, flags));
    }
}

#[test]
fn drawn_records_reach_a_member_that_was_away_and_one_that_takes_its_place() {
    let drawn = DrawnRecords::new("replace");
    let [early, late] = drawn.halves();
    let mut town = Town::found();
    drawn.write(&early, town.sites[0].listen);
    drawn.wait_for_copies(town.sites[2].listen, &early);
    town.kill(2);
    drawn.write(&late, town.sites[0].listen);
    // Hints bring the writes that it missed.
    town.start(2);
    town.wait_until_serving(2);
    drawn.wait_for_copies(town.sites[2].listen, &drawn.records);
    town.kill(2);
    let (lost, address) = (town.url(2), free_address());
    let fourth = town.join(address, 0, &["--replace", &lost]);
    town.wait_until_serving(fourth);
    town.wait_for_members(0, 3);
    town.wait_for_members(fourth, 3);
    drawn.check(&records(address, "local"));
    let url = format!("http://{}", town.admin_address(0).expect("it serves"));
    ok(run(&mut dendra(["cluster", "compare", &url])));
}
