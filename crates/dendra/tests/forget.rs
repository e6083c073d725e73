//! A cluster of real processes gives its space back: deletes and promises are purged
//! behind horizons, and no deleted value comes back.
//!
//! ```text
//! create, write under a condition, delete: keys that are never used twice ─► tables shrink to nearly nothing
//! a member is away ─► the horizon is held, and the status names it ─► it is back ─► the horizon rises
//! a member joins ─► records that moved away are dropped ─► the horizon rises
//! all are killed ─► deleted keys stay deleted, the others are there
//! a backup from before ─► into a cluster whose horizon is above all of it ─► it stays
//! the factor is lowered, and some keys get more copies than it ─► deletes of them go like others
//! a block rots that may hide purged records ─► the horizon is held ─► mended ─► it rises
//! ```
//!
//! Invariants
//! 1. No wait is for a time: each is for a state, and none gives up before `PATIENCE`.
//!
//! Not here: the rules (crate `node`, `tests/twin`), proposals (crate `ownership`,
//! `tests/steward`), the purges of a folder (crate `engine`, `ages.rs`, `foreign.rs`). See:
//! docs/protocol.md, "Horizons", docs/operating.md.

mod support;

use dendra_sim::store::table_dump::TableDump;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use support::http::{Answer, Client};
use support::town::{Town, free_address};
use support::{dendra, run};

/// Members whose horizon rises as fast as they confirm, and whose memory is small.
const FLAGS: [&str; 6] = [
    "--forget-every-s",
    "1",
    "--memtable",
    "64KiB",
    "--loops",
    "2",
];
/// Keys that are created, written under a condition and deleted.
const KEYS: usize = 1_200;
const CLIENTS: usize = 4;

fn found() -> Town {
    Town::found_with(3, &FLAGS)
}

fn doors(town: &Town) -> Vec<SocketAddr> {
    town.sites.iter().map(|site| site.listen).collect()
}

/// Does `work` with each number, on several connections through all doors.
fn for_each(doors: &[SocketAddr], keys: usize, work: impl Fn(&mut Client, usize) + Sync) {
    std::thread::scope(|threads| {
        for at in 0..CLIENTS {
            let work = &work;
            threads.spawn(move || {
                let mut client = Client::open(doors[at % doors.len()]).expect("it listens");
                for number in (at..keys).step_by(CLIENTS) {
                    work(&mut client, number);
                }
            });
        }
    });
}

fn value(number: usize) -> Vec<u8> {
    number.to_string().repeat(200).into_bytes()
}

/// A busy machine may need longer than the default of five seconds.
const PATIENT: &str = "Dendra-Timeout-Ms: 30000";

#[track_caller]
fn is_told(answer: &Answer, status: u16, key: &str) {
    let said = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{key}: {} {said}", answer.receipt);
}

/// A life of a key: all of it but the delete goes by consensus.
fn live_and_die(client: &mut Client, key: &str, number: usize) {
    let created = client.ask("PUT", key, &["If-None-Match: *", PATIENT], &value(number));
    let created = created.expect("an answer");
    is_told(&created, 201, key);
    let condition = format!("If-Match: {}", created.etag.expect("a version"));
    let written = client.ask("PUT", key, &[&condition, PATIENT], &value(number + 1));
    is_told(&written.expect("an answer"), 201, key);
    let deleted = client.ask("DELETE", key, &[PATIENT], b"");
    is_told(&deleted.expect("an answer"), 202, key);
}

fn keep(client: &mut Client, key: &str, number: usize) {
    let kept = client.ask("PUT", key, &[PATIENT], &value(number));
    is_told(&kept.expect("an answer"), 201, key);
}

/// Bytes of the tables of a member's folder.
fn table_bytes(town: &Town, at: usize) -> u64 {
    let names = std::fs::read_dir(town.path(&at.to_string())).expect("a folder");
    let tables = names.filter_map(|name| {
        // One may have been removed meanwhile.
        let name = name.ok()?;
        let is_table = name.path().extension().is_some_and(|end| end == "tbl");
        is_table.then(|| name.metadata().ok()).flatten()
    });
    tables.map(|table| table.len()).sum()
}

fn horizons(town: &Town, at: usize) -> Value {
    let status = town.status(at).unwrap_or_default();
    status["horizons"].clone()
}

fn milliseconds(horizons: &Value, field: &str) -> u64 {
    horizons[field].as_u64().unwrap_or(0)
}

fn wall_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("behind 1970").as_millis() as u64
}

/// Waits until all that was deleted by now may be purged, as `at` knows it.
fn wait_for_horizon(town: &mut Town, at: usize) {
    let now_ms = wall_ms();
    town.wait_until(at, |town| {
        milliseconds(&horizons(town, at), "purge_ms") >= now_ms
    });
}

fn gone(town: &Town, prefix: &str, keys: usize) {
    for door in doors(town) {
        for_each(&[door], keys, |client, number| {
            let key = format!("{prefix}{number}");
            let got = client.ask("GET", &key, &[], b"").expect("an answer");
            assert_eq!(got.status, 404, "{key} at {door}");
        });
    }
}

fn kept(town: &Town, prefix: &str, keys: usize) {
    for door in doors(town) {
        for_each(&[door], keys, |client, number| {
            let key = format!("{prefix}{number}");
            let got = client.ask("GET", &key, &[], b"").expect("an answer");
            assert_eq!(got.status, 200, "{key} at {door}");
            assert_eq!(got.body, value(number), "{key} at {door}");
        });
    }
}

#[test]
#[ignore = "at length"]
fn keys_that_are_never_used_twice_give_their_space_back() {
    // At first none of them raises the horizon.
    let mut flags = FLAGS;
    flags[1] = "0";
    let mut town = Town::found_with(3, &flags);
    let doors = doors(&town);
    for_each(&doors, 50, |client, number| {
        keep(client, &format!("kept-{number}"), number);
    });
    for_each(&doors, KEYS, |client, number| {
        live_and_die(client, &format!("once-{number}"), number);
    });
    // Some end by themselves. They keep their bytes for an hour, which is little here.
    for_each(&doors, 100, |client, number| {
        let target = format!("/v0/entity?id=ends-{number}&ttl=1");
        let put = client.request("PUT", &target, &[], &value(number));
        assert_eq!(put.expect("an answer").status, 201);
    });
    // A clean stop makes tables of all of it: a delete, a promise and an accepted value of each
    // key.
    (0..3).for_each(|at| town.stop(at));
    let peak: Vec<u64> = (0..3).map(|at| table_bytes(&town, at)).collect();
    assert!(peak.iter().all(|bytes| *bytes > 120_000), "{peak:?}");
    for site in &mut town.sites {
        let flag = site.flags.iter().position(|flag| flag == FLAGS[0]);
        site.flags[flag.expect("it is there") + 1] = FLAGS[1].to_owned();
    }
    (0..3).for_each(|at| town.start(at));
    (0..3).for_each(|at| town.wait_until_serving(at));
    let status = town.status(0).expect("a status");
    assert!(status["horizons"]["purge_ms"].is_null(), "{status}");
    for at in 0..3 {
        wait_for_horizon(&mut town, at);
        // The kept records take a few kilobytes.
        town.wait_until(at, |town| table_bytes(town, at) < 60_000);
    }
    let left: Vec<u64> = (0..3).map(|at| table_bytes(&town, at)).collect();
    println!("bytes of tables: {peak:?}, and then {left:?}");
    gone(&town, "once-", KEYS);
    gone(&town, "ends-", 100);
    kept(&town, "kept-", 50);
    // A key of before may be used again.
    for_each(&doors, 40, |client, number| {
        live_and_die(client, &format!("once-{number}"), number);
        let key = format!("once-{number}");
        let created = client.ask("PUT", &key, &["If-None-Match: *"], &value(number));
        assert_eq!(created.expect("an answer").status, 201, "{key}");
    });
    kept(&town, "once-", 40);
}

#[test]
fn a_member_that_is_away_holds_the_horizon_and_is_named() {
    let mut town = found();
    wait_for_horizon(&mut town, 0);
    town.kill(2);
    let (url, is_away) = (town.url(2), |held: &Value| held["code"] == "away");
    town.wait_until(0, |town| {
        let held = horizons(town, 0)["held"].clone();
        let held = held.as_array().cloned().unwrap_or_default();
        held.iter().any(|held| is_away(held) && held["url"] == url)
    });
    // It may have confirmed the last epoch in front of that: one step, and no second one.
    let before = town.status(0).expect("a status")["epoch"].as_u64();
    let before = before.expect("a number");
    let doors = [town.sites[0].listen, town.sites[1].listen];
    for_each(&doors, 300, |client, number| {
        live_and_die(client, &format!("away-{number}"), number);
    });
    let status = town.status(0).expect("a status");
    assert!(status["epoch"].as_u64() <= Some(before + 1), "{status}");
    let purge_ms = milliseconds(&status["horizons"], "purge_ms");
    let held = milliseconds(&status["horizons"], "floor_ms");
    assert!(purge_ms < held, "{status}");
    town.start(2);
    town.wait_until_serving(2);
    for at in 0..3 {
        wait_for_horizon(&mut town, at);
    }
    gone(&town, "away-", 300);
}

#[test]
fn nothing_comes_back_and_nothing_is_lost_when_all_are_killed_in_the_middle() {
    let mut town = found();
    for round in 0..3 {
        let doors = doors(&town);
        for_each(&doors, 200, |client, number| {
            let number = number + round * 200;
            keep(client, &format!("kept-{number}"), number);
            live_and_die(client, &format!("once-{number}"), number);
        });
        // Each round in another step of the horizon.
        let floor = milliseconds(&horizons(&town, 0), "floor_ms");
        town.wait_until(0, |town| {
            milliseconds(&horizons(town, 0), "floor_ms") > floor
        });
        (0..3).for_each(|at| town.kill(at));
        (0..3).for_each(|at| town.start(at));
        (0..3).for_each(|at| town.wait_until_serving(at));
        kept(&town, "kept-", 200 * (round + 1));
        gone(&town, "once-", 200 * (round + 1));
    }
    wait_for_horizon(&mut town, 1);
    (0..3).for_each(|at| town.kill(at));
    (0..3).for_each(|at| town.start(at));
    (0..3).for_each(|at| town.wait_until_serving(at));
    kept(&town, "kept-", 600);
    gone(&town, "once-", 600);
}

/// Records that a member holds itself.
fn held_by(town: &Town, at: usize) -> usize {
    held_of(town, at, "kept-")
}

/// The same of keys with this prefix.
fn held_of(town: &Town, at: usize, prefix: &str) -> usize {
    let mut client = Client::open(town.sites[at].listen).expect("it listens");
    let all = "/v0/entities?scope=local&start=a&end=z";
    let ndjson = ["Accept: application/x-ndjson"];
    let answer = client.request("GET", all, &ndjson, b"").expect("a scan");
    assert_eq!(answer.status, 200);
    let records = String::from_utf8_lossy(&answer.body).into_owned();
    records.lines().filter(|line| line.contains(prefix)).count()
}

#[test]
#[ignore = "at length"]
fn a_lowered_factor_takes_copies_back_and_the_horizon_rises_above_those_that_clients_want() {
    const RECORDS: usize = 240;
    const LATE: usize = 40;
    let mut flags = FLAGS.to_vec();
    flags.extend(["--replication-factor", "4"]);
    let mut town = Town::found_with(4, &flags);
    let all = doors(&town);
    // With four copies each.
    for_each(&all, RECORDS, |client, number| {
        keep(client, &format!("kept-{number}"), number);
        keep(client, &format!("old-{number}"), number);
    });
    // Clients go on while a position of each partition is taken away.
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for_each(&all, RECORDS, |client, number| {
                live_and_die(client, &format!("once-{number}"), number);
            });
        });
        town.change(0, &json!({ "replication_factor": 3 }));
    });
    town.wait_for_rest(0, |status| status["replication_factor"] == 3);
    let delete = |client: &mut Client, key: &str| {
        let deleted = client.ask("DELETE", key, &[PATIENT], b"");
        is_told(&deleted.expect("an answer"), 202, key);
    };
    for_each(&all, RECORDS, |client, number| {
        // The delete has three copies.
        delete(client, &format!("old-{number}"));
        // More copies than the factor, as the client wants it.
        let target = format!("/v0/entity?id=wide-{number}&ack=3&from=4");
        let put = client.request("PUT", &target, &[PATIENT], &value(number));
        is_told(&put.expect("an answer"), 201, &target);
        if number % 2 == 0 {
            delete(client, &format!("wide-{number}"));
        }
    });
    // A start knows the former factor, too.
    town.kill(1);
    town.start(1);
    town.wait_until_serving(1);
    let check = |town: &Town| {
        kept(town, "kept-", RECORDS);
        gone(town, "old-", RECORDS);
        gone(town, "once-", RECORDS);
        let held = |prefix: &str| (0..4).map(|at| held_of(town, at, prefix)).sum::<usize>();
        assert_eq!(held("kept-"), 3 * RECORDS, "fourth copies are gone");
        assert_eq!((held("old-"), held("once-")), (0, 0));
        // Some were written before the step that takes fourth copies back, and some behind it.
        let wide = held("wide-");
        assert!(
            (3 * RECORDS / 2..=4 * RECORDS / 2).contains(&wide),
            "{wide}"
        );
    };
    for round in 0..2 {
        (0..4).for_each(|at| wait_for_horizon(&mut town, at));
        check(&town);
        let late: Vec<usize> = (0..4).map(|at| held_of(&town, at, "late-")).collect();
        assert_eq!(late, [round * LATE; 4], "more copies, as clients want them");
        if round == 0 {
            for_each(&all, LATE, |client, number| {
                let target = format!("/v0/entity?id=late-{number}&ack=3&from=4");
                let put = client.request("PUT", &target, &[PATIENT], &value(number));
                is_told(&put.expect("an answer"), 201, &target);
            });
            (0..4).for_each(|at| town.kill(at));
            (0..4).for_each(|at| town.start(at));
            (0..4).for_each(|at| town.wait_until_serving(at));
        }
    }
    // The records that are left take some kilobytes.
    for at in 0..4 {
        town.wait_until(at, |town| table_bytes(town, at) < 90_000);
    }
}

#[test]
#[ignore = "at length"]
fn the_horizon_rises_behind_a_join_a_replacement_and_a_removal() {
    const RECORDS: usize = 600;
    let mut town = found();
    for_each(&doors(&town), RECORDS, |client, number| {
        keep(client, &format!("kept-{number}"), number);
        live_and_die(client, &format!("once-{number}"), number);
    });
    let fourth = town.join(free_address(), 0, &FLAGS);
    town.wait_until_serving(fourth);
    town.wait_for_members(0, 4);
    town.wait_for_members(fourth, 4);
    wait_for_horizon(&mut town, 0);
    // Each record stands at three members, and at no former owner.
    let held: Vec<usize> = (0..4).map(|at| held_by(&town, at)).collect();
    assert_eq!(held.iter().sum::<usize>(), 3 * RECORDS, "{held:?}");
    assert!(held.iter().all(|held| *held < RECORDS), "{held:?}");
    let log = town.log_of(0);
    assert!(log.contains("are gone from this folder"), "{log}");
    kept(&town, "kept-", RECORDS);
    gone(&town, "once-", RECORDS);
    // Another folder takes the place of the fourth.
    town.kill(fourth);
    let lost = town.url(fourth);
    let address = town.sites[fourth].listen;
    let mut flags = vec!["--replace", &lost];
    flags.extend(FLAGS);
    let fifth = town.join(address, 0, &flags);
    town.wait_until_serving(fifth);
    town.wait_for_members(0, 4);
    wait_for_horizon(&mut town, 0);
    // And it leaves again: positions that were dropped come back to the others.
    town.remove(0, fifth);
    assert_eq!(town.wait_for_end(fifth), Some(3));
    town.wait_for_members(0, 3);
    wait_for_horizon(&mut town, 0);
    town.sites.truncate(3);
    let held: Vec<usize> = (0..3).map(|at| held_by(&town, at)).collect();
    assert_eq!(held, [RECORDS; 3]);
    kept(&town, "kept-", RECORDS);
    gone(&town, "once-", RECORDS);
}

/// The admin ports of all members, as `--admin` takes them.
fn admin(town: &Town) -> String {
    let of = |at| {
        let log = town.log_of(at);
        let said = log.rsplit_once("admin on ").expect("it serves").1;
        said.lines().next().expect("an address").to_owned()
    };
    let urls: Vec<String> = (0..town.sites.len()).map(of).collect();
    urls.join(",")
}

#[test]
#[ignore = "at length"]
fn a_backup_comes_back_into_a_cluster_whose_horizon_is_above_it() {
    const RECORDS: usize = 200;
    let source = found();
    let from = doors(&source);
    for_each(&from, RECORDS, |client, number| {
        keep(client, &format!("kept-{number}"), number);
        live_and_die(client, &format!("once-{number}"), number);
    });
    let mut target = found();
    let folder = target.path("backup");
    let made = run(dendra(["backup", "--admin", &admin(&source)]).arg(&folder));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    drop(source);
    for at in 0..3 {
        wait_for_horizon(&mut target, at);
    }
    // One that was begun and left holds the horizon, and is named.
    let begin = format!("/v0/restore?id=1&hlc={:x}", wall_ms() << 16);
    for at in 0..3 {
        let begun = target.admin(at, "POST", &begin, "").expect("an answer");
        assert!(begun["restore"].is_object(), "{begun}");
    }
    for at in 0..3 {
        target.wait_until(at, |town| {
            let held = horizons(town, at)["held"].clone();
            let held = held.as_array().cloned().unwrap_or_default();
            held.len() == 3 && held.iter().all(|held| held["code"] == "restoring")
        });
    }
    let raised = target.admin(0, "POST", "/v0/restore/successors?id=1&least=70000", "");
    assert!(raised.expect("an answer")["epoch"].is_u64());
    for at in 0..3 {
        target.wait_until(at, |town| {
            let finish = "/v0/restore/finish?id=1&least=70000";
            let finished = town.admin(at, "POST", finish, "");
            finished.is_some_and(|page| page["restore"]["finished"] == true)
        });
    }
    let restored = run(dendra(["restore", "--admin", &admin(&target)]).arg(&folder));
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    kept(&target, "kept-", RECORDS);
    gone(&target, "once-", RECORDS);
    // Behind further steps, and a compaction of all that came.
    for round in 0..2 {
        wait_for_horizon(&mut target, round);
        kept(&target, "kept-", RECORDS);
        gone(&target, "once-", RECORDS);
    }
    // Clients go on with what they know of it.
    for_each(&doors(&target), RECORDS, |client, number| {
        let key = format!("kept-{number}");
        let got = client.ask("GET", &key, &[], b"").expect("an answer");
        let condition = format!("If-Match: {}", got.etag.expect("a version"));
        let written = client.ask("PUT", &key, &[&condition], &value(number + 1));
        assert_eq!(written.expect("an answer").status, 201, "{key}");
        let deleted = client.ask("DELETE", &key, &[], b"");
        assert_eq!(deleted.expect("an answer").status, 202, "{key}");
    });
    wait_for_horizon(&mut target, 2);
    gone(&target, "kept-", RECORDS);
}

/// An incremental backup: its lists go on from the one before.
fn goes_on(town: &Town, folder: &Path) {
    let mut command = dendra(["backup", "--json", "--admin", &admin(town)]);
    let made = run(command.arg(folder));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let page: Value = serde_json::from_slice(&made.stdout).expect("an object");
    assert_eq!(page["full_because"], Value::Null, "{page}");
}

#[test]
#[ignore = "at length"]
fn backups_that_go_on_over_a_horizon_bring_no_deleted_key_back_and_lose_no_new_one() {
    const RECORDS: usize = 100;
    let mut source = found();
    let from = doors(&source);
    for_each(&from, RECORDS, |client, number| {
        keep(client, &format!("kept-{number}"), number);
        keep(client, &format!("gone-{number}"), number);
        keep(client, &format!("again-{number}"), number);
        // So the lists since stay below half of the full ones.
        let parts = 20 * number..20 * (number + 1);
        let ballast: Vec<u8> = parts.flat_map(noise).collect();
        let put = client.ask("PUT", &format!("ballast-{number}"), &[PATIENT], &ballast);
        is_told(&put.expect("an answer"), 201, "ballast");
    });
    let target = found();
    let folder = target.path("backup");
    let made = run(dendra(["backup", "--admin", &admin(&source)]).arg(&folder));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    for_each(&from, RECORDS, |client, number| {
        for prefix in ["gone", "again"] {
            let key = format!("{prefix}-{number}");
            let deleted = client.ask("DELETE", &key, &[PATIENT], b"");
            is_told(&deleted.expect("an answer"), 202, &key);
        }
    });
    goes_on(&source, &folder);
    for at in 0..3 {
        wait_for_horizon(&mut source, at);
    }
    // The deletes may be gone, and the backups have them still: a new record is above them.
    for_each(&from, RECORDS, |client, number| {
        let key = format!("again-{number}");
        let condition = ["If-None-Match: *", PATIENT];
        let created = client.ask("PUT", &key, &condition, &value(number));
        is_told(&created.expect("an answer"), 201, &key);
    });
    goes_on(&source, &folder);
    drop(source);
    let restored = run(dendra(["restore", "--admin", &admin(&target)]).arg(&folder));
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    kept(&target, "kept-", RECORDS);
    kept(&target, "again-", RECORDS);
    gone(&target, "gone-", RECORDS);
}

/// Bytes that no compression makes small.
fn noise(number: usize) -> Vec<u8> {
    let mut prng = dendra_base::Prng::new(number as u64);
    let mut bytes = vec![0; 1_000];
    prng.fill(&mut bytes);
    bytes
}

/// Offsets of the data blocks of a table that hold records of clients alone, if it has deletes.
fn blocks_beside_deletes(folder: &Path, table: &str) -> Vec<u64> {
    let dumped = run(dendra(["dump", "--records", "1000000"]).arg(folder.join(table)));
    assert_eq!(dumped.code, Some(0), "{}", dumped.stderr);
    let dump = TableDump::read(&String::from_utf8_lossy(&dumped.stdout)).expect("a dump");
    if !dump.records.iter().any(|record| record.is_delete) {
        return Vec::new();
    }
    let blocks = dump.blocks.iter().filter(|block| block.is_of_clients());
    // The first one may begin with other records.
    blocks.skip(1).map(|block| block.offset).collect()
}

/// Flips a bit in each table of a stopped member that has deletes; how many there were.
fn rot_deletes(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).expect("a folder");
    let names = names.map(|name| name.expect("a name").file_name());
    let mut rotten = 0;
    for name in names.filter_map(|name| name.into_string().ok()) {
        if !name.ends_with(".tbl") {
            continue;
        }
        let blocks = blocks_beside_deletes(folder, &name);
        if let Some(offset) = blocks.get(blocks.len() / 2) {
            let path = folder.join(&name);
            let mut bytes = std::fs::read(&path).expect("a table");
            bytes[*offset as usize + 20] ^= 1;
            std::fs::write(&path, bytes).expect("there is room");
            rotten += 1;
        }
    }
    rotten
}

#[test]
#[ignore = "at length"]
fn a_damaged_block_that_may_hide_what_others_purged_is_mended_and_horizons_rise_again() {
    const RECORDS: usize = 240;
    let mut flags = FLAGS.to_vec();
    flags.extend(["--scrub-every-s", "1", "--scrub-rate", "64MiB"]);
    let mut town = Town::found_with(3, &flags);
    let put = |client: &mut Client, number: usize, body: usize| {
        let key = format!("rot-{number:04}");
        let written = client.ask("PUT", &key, &[], &noise(body));
        assert_eq!(written.expect("an answer").status, 201, "{key}");
    };
    let all = doors(&town);
    for_each(&all, RECORDS, |client, number| put(client, number, number));
    for at in 0..3 {
        wait_for_horizon(&mut town, at);
    }
    // A delete for every second one, and a newer value for a quarter of them: above old values.
    for_each(&all, RECORDS, |client, number| match number % 4 {
        0 | 2 => {
            let key = format!("rot-{number:04}");
            let deleted = client.ask("DELETE", &key, &[], b"");
            assert_eq!(deleted.expect("an answer").status, 202, "{key}");
        }
        1 => put(client, number, number + RECORDS),
        _ => {}
    });
    // A clean stop makes tables of all of it.
    town.stop(1);
    let folder = town.path("1");
    assert!(rot_deletes(&folder) > 0, "a table has deletes");
    town.start(1);
    town.wait_until_serving(1);
    let scrub = |town: &Town, field: &str| {
        let status = town.admin(1, "GET", "/v0/status", "");
        status.unwrap_or_default()["engine"]["scrub"][field].as_u64()
    };
    town.wait_until(1, |town| scrub(town, "spans_lost") > Some(0));
    let is_held = |held: &Value| held["code"] == "damage";
    town.wait_until(0, |town| {
        let held = horizons(town, 0)["held"].clone();
        let held = held.as_array().cloned().unwrap_or_default();
        held.iter().any(is_held)
    });
    // A repair begins a minute behind the damage, and once more behind the drop.
    town.wait_until(1, |town| town.log_of(1).contains("may have hidden records"));
    town.wait_until(1, |town| scrub(town, "spans_lost") == Some(0));
    for at in 0..3 {
        wait_for_horizon(&mut town, at);
    }
    for door in doors(&town) {
        for_each(&[door], RECORDS, |client, number| {
            let key = format!("rot-{number:04}");
            let got = client.ask("GET", &key, &[], b"").expect("an answer");
            let body = match number % 4 {
                0 | 2 => None,
                1 => Some(noise(number + RECORDS)),
                _ => Some(noise(number)),
            };
            assert_eq!(got.status, body.as_ref().map_or(404, |_| 200), "{key}");
            assert!(body.is_none_or(|body| body == got.body), "{key}");
        });
    }
    town.stop(1);
    let checked = run(dendra(["check"]).arg(&folder));
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

/// Turns a bit over in each block of tables that ends with the record of an epoch, but for the
/// first `spared` of them. How many blocks rot. Requires: no two records fit in one block, so that
/// the last epoch of a table is alone in its block. That block ends with a part of the next key.
fn rot_epochs(folder: &Path, spared: usize, most: usize) -> usize {
    let names = std::fs::read_dir(folder).expect("a folder");
    let names = names.map(|name| name.expect("a name").file_name());
    let mut blocks = Vec::new();
    for name in names.filter_map(|name| name.into_string().ok()) {
        let path = folder.join(&name);
        if name.ends_with(".tbl") {
            let dumped = run(dendra(["dump"]).arg(&path));
            let dump = TableDump::read(&String::from_utf8_lossy(&dumped.stdout)).expect("a dump");
            // An epoch may be the first record of a table.
            let mut is_behind_epoch = true;
            for block in dump.blocks {
                let ends_with_epoch = block.up_to.starts_with("\\x01epoch/");
                let is_last = is_behind_epoch && matches!(&*block.up_to, "\\x01p" | "\\x01s");
                // `e` is in front of the first epoch of a table.
                is_behind_epoch = ends_with_epoch || block.up_to == "\\x01e";
                if ends_with_epoch || is_last {
                    blocks.push((block.up_to, block.offset, path.clone()));
                }
            }
        }
    }
    blocks.sort_unstable();
    let rotten = blocks.iter().skip(spared).take(most);
    for (_, offset, path) in rotten.clone() {
        let mut bytes = std::fs::read(path).expect("a table");
        bytes[*offset as usize + 20] ^= 1;
        std::fs::write(path, bytes).expect("there is room");
    }
    rotten.count()
}

fn epoch(town: &Town, at: usize) -> u64 {
    let status = town.status(at).unwrap_or_default();
    status["epoch"].as_u64().unwrap_or(0)
}

#[test]
fn rotten_blocks_of_epochs_do_not_leave_a_member_behind() {
    let mut town = Town::found_with(3, &["--forget-every-s", "1", "--partitions", "1024"]);
    let rise = |town: &mut Town| {
        let aim = epoch(town, 0) + 1;
        for at in 0..3 {
            town.wait_until(at, |town| epoch(town, at) >= aim);
        }
    };
    // Each member has dropped steps: a hole in front of the newest ones.
    town.wait_until(0, |town| epoch(town, 0) >= 14);
    let newest = epoch(&town, 0);
    town.stop(2);
    assert_eq!(rot_epochs(&town.path("2"), 0, 1), 1, "an old epoch rots");
    town.start(2);
    town.wait_until_serving(2);
    let log = town.log_of(2);
    assert!(log.contains("records of epochs are damaged"), "{log}");
    assert!(epoch(&town, 2) >= newest, "{log}");
    rise(&mut town);

    // At another one all blocks of epochs but the first rot.
    let newest = epoch(&town, 0);
    town.stop(1);
    assert!(rot_epochs(&town.path("1"), 1, usize::MAX) > 1);
    town.start(1);
    town.wait_until_serving(1);
    town.wait_until(1, |town| epoch(town, 1) >= newest);
    rise(&mut town);
    let page = town.admin(1, "GET", "/v0/status", "").unwrap_or_default();
    assert_eq!(page["ready"], true, "{page}");
}

#[test]
fn a_lone_member_goes_on_behind_epochs_that_rot() {
    let mut town = Town::found_with(1, &["--forget-every-s", "1", "--partitions", "4096"]);
    for_each(&doors(&town), 20, |client, number| {
        keep(client, &format!("kept-{number}"), number);
    });
    town.wait_until(0, |town| epoch(town, 0) >= 14);
    let newest = epoch(&town, 0);
    town.stop(0);
    assert!(rot_epochs(&town.path("0"), 1, usize::MAX) > 1);
    town.start(0);
    town.wait_until_serving(0);
    let log = town.log_of(0);
    assert!(
        log.contains("that this folder has taken part in cannot be read"),
        "{log}"
    );
    assert!(epoch(&town, 0) >= newest, "{log}");
    kept(&town, "kept-", 20);
    let aim = epoch(&town, 0) + 2;
    town.wait_until(0, |town| epoch(town, 0) >= aim);
}

#[test]
fn the_member_that_is_left_of_two_goes_on_behind_lost_epochs_by_an_order() {
    let mut flags = vec!["--forget-every-s", "0", "--replication-factor", "2"];
    flags.extend(["--partitions", "4096"]);
    let mut town = Town::found_with(2, &flags);
    for_each(&doors(&town), 20, |client, number| {
        keep(client, &format!("kept-{number}"), number);
    });
    let (left, gone) = (town.url(0), town.url(1));
    town.change(0, &json!({ "remove": [gone], "replication_factor": 1 }));
    assert_eq!(town.wait_for_end(1), Some(3));
    town.wait_for_members(0, 1);
    let newest = epoch(&town, 0);
    town.stop(0);
    assert!(rot_epochs(&town.path("0"), 1, usize::MAX) > 1);
    town.start(0);
    let why = |town: &Town| {
        let status = town.admin(0, "GET", "/v0/status", "").unwrap_or_default();
        status["why"].as_str().unwrap_or_default().to_owned()
    };
    let order = format!("dendra cluster accept-loss {left} shows");
    town.wait_until(0, |town| why(town).contains(&order));
    let admin = |town: &Town| format!("http://{}", town.admin_address(0).expect("it listens"));
    let accept = |town: &Town, words: &[&str]| {
        let mut command = dendra(["cluster", "accept-loss", &left, "--url"]);
        run(command.arg(admin(town)).args(words))
    };
    let shown = accept(&town, &[]);
    let text = String::from_utf8(shown.stdout).expect("it is text");
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let parts = [
        format!("to {newest} of the cluster, and answers no client"),
        format!("Is {gone} still a member?"),
    ];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let other = accept(&town, &["--confirm", "0123456789abcdef"]);
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    let id = text.trim_end().rsplit(' ').next().expect("an id");
    let done = accept(&town, &["--confirm", id]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    town.wait_until_serving(0);
    assert_eq!(epoch(&town, 0), newest);
    town.sites.truncate(1);
    std::fs::remove_dir_all(town.path("1")).expect("the removed folder is gone");
    kept(&town, "kept-", 20);
    // Its next process misses no lost epoch either.
    town.kill(0);
    town.start(0);
    town.wait_until_serving(0);
    assert_eq!(epoch(&town, 0), newest);
    kept(&town, "kept-", 20);
    // Others can join again.
    let joined = town.join(free_address(), 0, &[]);
    town.wait_until_serving(joined);
    town.wait_for_members(0, 2);
    kept(&town, "kept-", 20);
}

#[test]
fn a_member_that_lost_the_epoch_of_a_move_finds_the_other_one_and_is_found() {
    let mut town = Town::found_with(2, &["--forget-every-s", "0", "--partitions", "4096"]);
    let cluster = town.sites[1]
        .flags
        .iter()
        .position(|flag| flag == "--cluster");
    let cluster = cluster.expect("it is there");
    town.sites[1].flags.drain(cluster..cluster + 2);
    // The second one moves twice. First the other one loses that epoch, then it does itself.
    for loser in [0, 1] {
        let (from, address) = (town.url(1), free_address());
        let body = json!({ "from": from, "to": format!("http://{address}") });
        town.order(0, "readdress", &body);
        let newest = epoch(&town, 0);
        town.wait_until(1, |town| epoch(town, 1) >= newest);
        // Founders are known by their folders from the second epoch on.
        let rot = |town: &Town| {
            let rotten = rot_epochs(&town.path(&loser.to_string()), 2, usize::MAX);
            assert!(rotten >= 1, "no block rots");
        };
        town.stop(1);
        // Its address is in the own note since it has adopted the epoch.
        if loser == 1 {
            rot(&town);
        }
        town.sites[1].listen = address;
        town.start(1);
        town.wait_until_serving(1);
        if loser == 0 {
            town.stop(0);
            rot(&town);
            town.start(0);
            town.wait_until_serving(0);
        }
        let log = town.log_of(loser);
        assert!(
            log.contains("that this folder has taken part in cannot be read"),
            "{log}"
        );
        assert!(epoch(&town, loser) >= newest, "{log}");
    }
}
