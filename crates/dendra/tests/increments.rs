//! Incremental backups against real processes: how much moves behind merges, and the records that
//! come back.
//!
//! ```text
//! full ─► 1 % written anew, some deleted ─► backup ─► … merges … ─► backup ─► prune ─► restore
//! ```
//!
//! Invariants
//! 1. A backup is judged by a restore of it, not by its lists alone.
//!
//! Not here: which tables a node keeps, and crashes (crate `engine`, `tests/kept.rs`).
//! See: docs/decisions/0046-incremental-backups.md.

mod support;

use dendra_base::Prng;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use support::backups::{
    backup, client, folder, metric, moved, objects, ok, page_of, restore, verify, wait_for,
};
use support::cluster::Cluster;
use support::http::Client;
use support::town::Town;
use support::{Node, dendra, run};

/// A backup, as `--json` describes it.
fn taken(admin: &str, to: &Path) -> serde_json::Value {
    page_of(&ok(backup(admin, to, &["--json"])))
}

/// Keys and their values, as clients were told; deleted ones have none.
type Told = BTreeMap<String, Option<Vec<u8>>>;

struct Writer {
    prng: Prng,
    told: Told,
}

impl Writer {
    fn new() -> Writer {
        Writer {
            prng: Prng::new(7),
            told: Told::new(),
        }
    }

    fn put(&mut self, client: &mut Client, key: &str) {
        let mut value = vec![0; 1_000];
        self.prng.fill(&mut value);
        let answer = client.ask("PUT", key, &[], &value).expect("it is there");
        assert_eq!(answer.status, 201, "PUT {key}");
        self.told.insert(key.to_owned(), Some(value));
    }

    /// Writes so many random keys anew, and deletes as many that are named.
    fn change(&mut self, client: &mut Client, writes: u64, deletes: &[u64]) {
        for _ in 0..writes {
            let key = name(self.prng.below(KEYS));
            if self.told[&key].is_some() {
                self.put(client, &key);
            }
        }
        for number in deletes {
            let key = name(*number);
            let gone = client.ask("DELETE", &key, &[], b"").expect("it is there");
            assert_eq!(gone.status, 202, "DELETE {key}");
            self.told.insert(key, None);
        }
    }

    fn check(&self, address: SocketAddr) {
        let mut client = client(address);
        for (key, told) in &self.told {
            let answer = client.ask("GET", key, &[], b"").expect("it is there");
            let shown = (answer.status == 200).then_some(answer.body);
            assert!(shown == *told, "{key}: {}", answer.status);
        }
    }
}

const KEYS: u64 = 3_000;

fn name(number: u64) -> String {
    format!("key-{number:05}")
}

fn filled(address: SocketAddr) -> Writer {
    let mut writer = Writer::new();
    let mut client = client(address);
    for number in 0..KEYS {
        writer.put(&mut client, &name(number * 7 % KEYS));
    }
    writer
}

fn restored_is(backups: &Path, writer: &Writer) {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    ok(restore(backups, &node.admin, &[]));
    writer.check(node.address());
}

#[test]
fn one_in_a_hundred_of_changes_moves_little_whatever_is_merged_and_all_comes_back() {
    let (data, backups) = (folder(), folder());
    let node = Node::start(data.path(), &["--durability", "os"]);
    let mut writer = filled(node.address());
    let first = taken(&node.admin, backups.path());
    let all = moved(&first);
    assert!(first["full_because"].is_string() && all > KEYS * 1_000);
    let admin = node.admin_address();
    let merged = |name: &str| metric(admin, name).expect("each node has it");
    let before = merged("dendra_engine_compaction_write_bytes");
    for round in 0..8 {
        let goal = merged("dendra_engine_compactions") + 1.0;
        let gone = [round * 3, round * 3 + 1, 2_000 + round];
        writer.change(&mut client(node.address()), KEYS / 100, &gone);
        let page = taken(&node.admin, backups.path());
        assert_eq!(page["full_because"], serde_json::Value::Null, "{round}");
        assert!(page["incremental"] == true);
        let share = moved(&page) as f64 / all as f64;
        assert!(share <= 0.03, "round {round}: {share}");
        // Four tables of level 0 are merged with all others.
        if round % 4 == 3 {
            let is_merged = || merged("dendra_engine_compactions") >= goal;
            wait_for("a merge", is_merged);
        }
    }
    let written = merged("dendra_engine_compaction_write_bytes") - before;
    assert!(written > all as f64, "{written} bytes were merged");
    assert!(merged("dendra_engine_kept_bytes") > 0.0);
    // Merges alone move no file.
    assert_eq!(moved(&taken(&node.admin, backups.path())), 0);
    let prune = ["backup", "prune", "--keep", "1"];
    ok(run(dendra(prune).arg(backups.path())));
    let verified = ok(verify(backups.path()));
    assert!(verified.stderr.contains("whole"), "{}", verified.stderr);
    restored_is(backups.path(), &writer);
}

#[test]
fn members_go_on_together_also_behind_a_kill_and_begin_anew_together() {
    let backups = folder();
    let mut cluster = Cluster::start_with_admin(&["--durability", "os"]);
    let ports = |cluster: &Cluster| {
        let urls = cluster.admin_urls();
        urls.join(",")
    };
    let mut writer = filled(cluster.listen[0]);
    let all = moved(&taken(&ports(&cluster), backups.path()));
    let round = |cluster: &Cluster, writer: &mut Writer, number: u64| {
        let mut client = client(cluster.listen[0]);
        writer.change(&mut client, KEYS / 100, &[number * 2, 2_000 + number]);
        taken(&ports(cluster), backups.path())
    };
    let page = round(&cluster, &mut writer, 0);
    assert_eq!(page["full_because"], serde_json::Value::Null);
    assert!(moved(&page) * 100 <= all * 3, "{page} of {all}");
    // Records that were only in its log are in a table that its next start makes.
    cluster.kill(2);
    writer.change(&mut client(cluster.listen[0]), 10, &[100]);
    cluster.restart_until_ready(2);
    cluster.wait_for_all_links();
    let page = round(&cluster, &mut writer, 1);
    assert_eq!(page["full_because"], serde_json::Value::Null);
    // One member has lost its mark: all begin anew.
    cluster.kill(1);
    fs::remove_file(cluster.folder.path().join("1").join("KEPT")).expect("it has a mark");
    cluster.restart_until_ready(1);
    cluster.wait_for_all_links();
    let page = round(&cluster, &mut writer, 2);
    let why = page["full_because"].as_str().expect("it is full");
    assert!(why.contains("does not know any more"), "{why}");
    assert!(page["incremental"] == false);
    let page = round(&cluster, &mut writer, 3);
    assert_eq!(page["full_because"], serde_json::Value::Null);
    let verified = ok(verify(backups.path()));
    assert!(verified.stderr.contains("whole"), "{}", verified.stderr);
    restored_is(backups.path(), &writer);
}

/// The first backup behind a change of the members is a full one, and the next goes on from it.
#[test]
fn a_member_that_is_replaced_between_two_backups_loses_no_key() {
    let backups = folder();
    let mut town = Town::found_with(3, &["--durability", "os"]);
    let ports = |town: &Town, sites: [usize; 3]| {
        let urls = sites.map(|at| format!("http://{}", town.admin_address(at).expect("it runs")));
        urls.join(",")
    };
    let door = town.sites[0].listen;
    let mut writer = filled(door);
    let first = taken(&ports(&town, [0, 1, 2]), backups.path());
    assert!(first["full_because"].is_string(), "{first}");
    writer.change(&mut client(door), 30, &[1, 2_001]);
    let page = taken(&ports(&town, [0, 1, 2]), backups.path());
    assert_eq!(page["full_because"], serde_json::Value::Null, "{page}");
    // The third member loses its disk. Another one takes its place, at its address.
    town.kill(2);
    writer.change(&mut client(door), 30, &[3, 2_003]);
    let (lost, address) = (town.url(2), town.sites[2].listen);
    let new = town.join(address, 0, &["--durability", "os", "--replace", &lost]);
    town.wait_until_serving(new);
    for at in [0, 1, new] {
        town.wait_for_members(at, 3);
    }
    writer.change(&mut client(door), 30, &[5, 2_005]);
    let page = taken(&ports(&town, [0, 1, new]), backups.path());
    let why = page["full_because"].as_str().expect("it is full");
    assert!(why.contains("is of other members"), "{why}");
    writer.change(&mut client(door), 30, &[7, 2_007]);
    let page = taken(&ports(&town, [0, 1, new]), backups.path());
    assert_eq!(page["full_because"], serde_json::Value::Null, "{page}");
    let verified = ok(verify(backups.path()));
    assert!(verified.stderr.contains("whole"), "{}", verified.stderr);
    restored_is(backups.path(), &writer);
}

#[test]
fn a_backup_that_lost_an_object_is_not_gone_on_from() {
    for lost in ["of the full list", "of the tables since"] {
        let (data, backups) = (folder(), folder());
        let node = Node::start(data.path(), &["--durability", "os"]);
        let mut writer = filled(node.address());
        taken(&node.admin, backups.path());
        let full = objects(backups.path());
        writer.change(&mut client(node.address()), 30, &[1]);
        let page = taken(&node.admin, backups.path());
        assert_eq!(page["full_because"], serde_json::Value::Null, "{page}");
        let all = objects(backups.path()).into_iter();
        let mut chosen = all.filter(|it| full.contains(it) == (lost == "of the full list"));
        fs::remove_file(chosen.next().expect("there is one")).expect("it is there");
        writer.change(&mut client(node.address()), 30, &[3]);
        let page = taken(&node.admin, backups.path());
        let why = page["full_because"].as_str().unwrap_or_default();
        assert!(why.contains("lacks some of its objects"), "{lost}: {page}");
        let id = page["id"].as_str().expect("an id");
        let mut verify = dendra(["backup", "verify", "--backup", id]);
        ok(run(verify.arg(backups.path())));
        restored_is(backups.path(), &writer);
    }
}
