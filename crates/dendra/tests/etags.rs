//! ETags of a cluster and of clusters that its backup was restored into. No value of the one has
//! the ETag of another value of the other.
//!
//! ```text
//! three members ─► backup ─► conditional writes on what it has ─► ETags of the old cluster
//!                    ├─► restored into three ─► the same writes ─► other ETags; the old ones: 412
//!                    └─► again, into three others ─► other ETags again ─► backup ─► restored: a higher number
//! ```
//!
//! Not here: restores that are interrupted (`restore.rs`), all else that a backup brings back
//! (`backup.rs`), numbers without processes (crates `base` and `node`).
//! See: docs/decisions/0047-another-clusters-etags.md.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use support::backups::{backup, client, folder, held, ok, put, restore};
use support::cluster::Cluster;

const KEYS: [&str; 3] = ["written", "changed", "created"];

/// One conditional write behind the other on each key, each at another member: their ETags.
fn rows(cluster: &Cluster, value: &[u8]) -> Vec<Vec<String>> {
    let mut members: Vec<_> = cluster.listen.iter().map(|it| client(*it)).collect();
    let row = |key: &str| {
        let (mut etag, _) = held(&mut members[0], key).expect("it is there");
        let write = |member: &mut _| {
            etag = put(member, key, &[&format!("If-Match: {etag}")], value);
            etag.clone()
        };
        members.iter_mut().map(write).collect()
    };
    KEYS.map(row).into()
}

/// No condition on these ETags holds at any member.
fn check_foreign(cluster: &Cluster, etags: &[Vec<String>]) {
    for (key, etags) in KEYS.iter().zip(etags) {
        for (address, etag) in cluster.listen.iter().zip(etags) {
            let condition = format!("If-Match: {etag}");
            for (method, body) in [("PUT", &b"blind"[..]), ("DELETE", b"")] {
                let refused = client(*address).ask(method, key, &[&condition], body);
                let refused = refused.expect("it is there");
                assert_eq!(refused.status, 412, "{method} {key} {condition}");
            }
        }
    }
}

fn restored(from: &Path) -> Cluster {
    let cluster = Cluster::start_with_admin(&[]);
    ok(restore(from, &cluster.admin_urls().join(","), &[]));
    cluster
}

/// The least successor number, which is the same at all members.
fn least(cluster: &Cluster) -> u64 {
    let of = |url: &String| {
        let address = url.strip_prefix("http://").expect("a URL");
        let mut admin = client(address.parse().expect("an address"));
        let page = admin.request("GET", "/v0/restore", &[], b"");
        let page: serde_json::Value =
            serde_json::from_slice(&page.expect("an answer").body).expect("JSON");
        page["cluster"]["least_successor"]
            .as_u64()
            .expect("a number")
    };
    let all: BTreeSet<u64> = cluster.admin_urls().iter().map(of).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    *all.first().expect("there are members")
}

#[test]
fn conditional_writes_of_a_restored_cluster_share_no_etag_with_the_old_one_or_another_restore() {
    let (backups, next_backups) = (folder(), folder());
    let old = Cluster::start_with_admin(&[]);
    let mut there = client(old.listen[0]);
    put(&mut there, "written", &[], b"v");
    let first = put(&mut there, "changed", &[], b"v");
    put(
        &mut there,
        "changed",
        &[&format!("If-Match: {first}")],
        b"w",
    );
    put(&mut there, "created", &["If-None-Match: *"], b"v");
    let before = KEYS.map(|key| held(&mut there, key));
    let admins = old.admin_urls().join(",");
    ok(backup(&admins, backups.path(), &[]));
    let old_etags = rows(&old, b"old");
    assert_eq!(least(&old), 0);
    drop((there, old));

    let new = restored(backups.path());
    assert!(least(&new) >= 1 << 16);
    let mut there = client(new.listen[1]);
    assert_eq!(
        KEYS.map(|key| held(&mut there, key)),
        before,
        "its ETag stays"
    );
    let new_etags = rows(&new, b"new");
    check_foreign(&new, &old_etags);
    drop((there, new));

    let other = restored(backups.path());
    let other_etags = rows(&other, b"other");
    check_foreign(&other, &old_etags);
    check_foreign(&other, &new_etags);
    // The next restore goes on above it.
    let number = least(&other);
    let admins = other.admin_urls().join(",");
    ok(backup(&admins, next_backups.path(), &[]));
    let last_etags = rows(&other, b"last");
    drop(other);
    let next = restored(next_backups.path());
    assert!(least(&next) > number + (1 << 16), "above {number}");
    rows(&next, b"next");
    for etags in [&old_etags, &new_etags, &other_etags, &last_etags] {
        check_foreign(&next, etags);
    }
}
