//! A process joins, and its disk is full: the plan ends with a reason, and no record is lost.
//!
//! ```text
//! a cluster of one, on its folder ◄─ joins ─ a node on a disk in memory ─► its room is taken away
//! the plan is cancelled ─► the joiner is told and ends        the first one has all records, and takes more
//! ```
//!
//! Invariants
//! 1. No wait is for a time: each is for a state.
//!
//! Not here: the rule (crate `ownership`, `tests/steward`), joiners with room (crate `dendra`,
//! `members.rs`). See: docs/operating.md, "Grow, shrink, replace".

use crate::support::{self, Node, PATIENCE, reserved};
use dendra_engine::vfs::Vfs;
use dendra_engine::vfs::mem::MemVfs;
use dendra_server::Server;
use dendra_server::settings::{ClusterSettings, JoinSettings, Member, Secret, Settings, Topology};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const KEYS: u32 = 300;
const JSON: &str = "Content-Type: application/json\r\n";

fn of_cluster(settings: &mut Settings, address: SocketAddr, join: Option<SocketAddr>) {
    let url = format!("http://{address}");
    let member = Member::new(&url).expect("an address");
    let topology = Topology::new("dendra", vec![member], 3).expect("one member");
    let mut cluster = ClusterSettings::new(topology, &url).expect("a member");
    cluster.secret = Secret::new(b"hush, sixteen bytes at least");
    cluster.join = join.map(|host| JoinSettings {
        host: host.to_string(),
        replaces: None,
        founding: Vec::new(),
    });
    settings.cluster = Some(cluster);
    settings.listen = vec![address];
    settings.loops = Some(1);
    settings.memory_bytes = 16 << 20;
    settings.value_bytes_max = 64 << 10;
}

fn status(node: &Node) -> Value {
    let page = node.admin().get("/v0/cluster");
    serde_json::from_slice(&page.body).expect("JSON")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        support::rest();
    }
}

#[test]
fn a_joiner_with_a_full_disk_ends_its_plan_and_harms_nothing() {
    let (_first, first) = reserved();
    let (_second, second) = reserved();
    let host = Node::with(|settings| of_cluster(settings, first, None));
    let mut client = host.client();
    for key in 0..KEYS {
        assert_eq!(client.put(&format!("k{key}"), &[7; 8_000]).status, 201);
    }
    // So slowly that the plan is under way for as long as is wanted.
    let order = "/v0/cluster/throttle";
    let slow = host
        .admin()
        .ask("POST", order, JSON, b"{\"bytes_per_second\":100}");
    assert_eq!(slow.status, 200, "{}", slow.text());
    let disk = MemVfs::new();
    let joiner = Node::on(Arc::new(disk.clone()), |settings| {
        of_cluster(settings, second, Some(first));
    });
    wait_until("nothing moves", || {
        status(&host)["plan"]["moving"].as_u64() > Some(0)
    });
    let room = disk.room().expect("it says");
    disk.set_capacity(room.total_bytes - room.free_bytes);
    wait_until("it is not said", || {
        let waits = status(&host)["waits"].clone();
        let waits = waits.as_str().unwrap_or_default();
        waits.contains(&second.to_string()) && waits.contains("is full")
    });
    wait_until("the plan goes on", || {
        let status = status(&host);
        status["plan"].is_null() && status["members"].as_array().map(Vec::len) == Some(1)
    });
    let page = host.admin().get("/v0/cluster/history");
    let page: Value = serde_json::from_slice(&page.body).expect("JSON");
    let epochs = page["epochs"].as_array().expect("a list");
    let cancelled = epochs.iter().find(|epoch| epoch["change"] == "cancelled");
    let why = cancelled
        .and_then(|epoch| epoch["why"].as_str())
        .unwrap_or_default();
    assert!(
        why.contains(&second.to_string()) && why.contains("full"),
        "{page}"
    );
    wait_until("the joiner goes on", || {
        joiner.running().disowned().is_some()
    });
    let sentence = joiner.running().disowned().unwrap_or_default().to_owned();
    assert!(
        sentence.contains("its disk is full") && sentence.contains("an empty one"),
        "{sentence}"
    );
    for key in 0..KEYS {
        let read = client.value(&format!("k{key}"));
        assert_eq!(
            (read.status, &read.body[..]),
            (200, &[7; 8_000][..]),
            "k{key}"
        );
    }
    assert_eq!(client.put("after", b"v").status, 201);
}

#[test]
fn a_join_that_cannot_be_is_refused_and_the_folder_of_a_member_goes_on_with_it() {
    let (_place, address) = reserved();
    let folder = tempfile::tempdir().expect("a folder");
    let joins = |folder: &tempfile::TempDir, founding: &[&str], host: SocketAddr| {
        let mut settings = support::settings(folder);
        of_cluster(&mut settings, address, Some(host));
        let cluster = settings.cluster.as_mut().expect("it has one");
        let join = cluster.join.as_mut().expect("it joins");
        join.founding = founding.iter().map(|it| (*it).to_owned()).collect();
        let (told, started) = std::sync::mpsc::channel();
        // Without the refusal the start waits for ever.
        std::thread::spawn(move || {
            let is_waited_for = told.send(Server::start(settings)).is_ok();
            assert!(is_waited_for, "the start took too long");
        });
        started.recv_timeout(PATIENCE).expect("no start that waits")
    };
    let factor = ["replication-factor = 2 (flag)"];
    let (_other_place, other) = reserved();
    for (founding, host, why) in [
        (&[][..], address, "name a running member"),
        (&factor, other, "dendra cluster plan"),
    ] {
        let empty = tempfile::tempdir().expect("a folder");
        let refused = joins(&empty, founding, host).expect_err("it cannot join");
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let mut settings = support::settings(&folder);
    of_cluster(&mut settings, address, None);
    let founder = Server::start(settings).expect("it starts");
    founder.stop().expect("it stops");
    let member = joins(&folder, &factor, address).expect("it is a member already");
    member.stop().expect("it stops");
}
