//! Records that move from a node through both engines to a cluster.

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
