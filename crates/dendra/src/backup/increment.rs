//! Does a backup take the tables written since the one before, or all tables?
//!
//! ```text
//! newest manifest ─► marks ─► checkpoints since ─┬─ all marks hold, the same nodes ─► its lists, and a few tables more
//!                                                └─ one does not ─────────────────► all tables of all nodes
//! ```
//!
//! Invariants
//! 1. All nodes of a backup take a list since the backup before, or none does. So each delete that
//!    came after the last full lists is in some list, above all older values in the others.
//! 2. An incremental backup needs no other one: its lists have all objects by name.
//! 3. Lists since a full one are bounded, in tables and in bytes: a restore opens all of them.
//!
//! Not here: which tables a node keeps and when its marks are void (crate `engine`, `kept`).
//! See: docs/decisions/0046-incremental-backups.md.

use super::nodes::{HeldCheckpoint, HeldIncrement};
use super::repository::Repository;
use dendra_archive::manifest::{BackupCluster, BackupFile, BackupManifest, BackupNode};
use std::io;
use std::sync::Arc;

/// Tables of one node since its last full list. A restore opens them at once, and each one costs it
/// a comparison for each record.
const TABLES_MAX: usize = 300;
/// The lists since the full ones may have one part in so many of the bytes of those.
const SHARE: u64 = 2;

/// The lists of a backup.
pub(super) enum Lists {
    /// All tables of all nodes, and why.
    Full(String),
    /// Lists of the backup before, in the order of the checkpoints, and the tables since.
    Since(Vec<BackupNode>),
}

/// The last of these backups, or why there is none to go on from.
pub(super) fn former(repository: &Repository, ids: &[String]) -> Result<BackupManifest, String> {
    match ids.last() {
        None => Err("it is the first backup here".to_owned()),
        Some(id) => repository.manifest(id).map_err(|why| why.sentence),
    }
}

/// The marks that its nodes gave.
pub(super) fn marks(former: &Result<BackupManifest, String>) -> Vec<u128> {
    let nodes = former.iter().flat_map(|manifest| &manifest.nodes);
    nodes.filter_map(|node| node.mark).collect()
}

/// The lists for checkpoints that were asked for those marks.
pub(super) fn lists(former: Result<BackupManifest, String>, held: &[&HeldCheckpoint]) -> Lists {
    match former.and_then(|former| since(&former, held)) {
        Ok(nodes) => Lists::Since(nodes),
        Err(why) => Lists::Full(why),
    }
}

fn since(former: &BackupManifest, held: &[&HeldCheckpoint]) -> Result<Vec<BackupNode>, String> {
    let id = &former.id;
    let is_same = held.len() == former.nodes.len()
        && are_alike(former.cluster.as_ref(), held[0].place.cluster.as_ref());
    if !is_same {
        return Err(format!("backup {id} is of other members"));
    }
    let nodes = held.iter().map(|checkpoint| {
        let mut nodes = former.nodes.iter();
        let node = nodes.find(|node| node.node == checkpoint.node);
        let node = node.ok_or_else(|| format!("backup {id} is of other members"))?;
        let increment = checkpoint.increment.as_ref();
        let increment = increment.filter(|it| it.since.is_some() && it.since == node.mark);
        let increment = increment.ok_or_else(|| {
            let url = &checkpoint.place.url;
            format!("{url} does not know any more what was written since backup {id}")
        })?;
        fits(node, increment).map(|()| node.clone())
    });
    nodes.collect()
}

/// Have both as many copies, on the same members? The epoch does not count: horizons raise it.
fn are_alike(one: Option<&BackupCluster>, other: Option<&BackupCluster>) -> bool {
    let without_epoch = |cluster: &BackupCluster| BackupCluster {
        epoch: 0,
        ..cluster.clone()
    };
    one.map(without_epoch) == other.map(without_epoch)
}

/// Do the tables since the last full list stay below the bounds?
fn fits(node: &BackupNode, increment: &HeldIncrement) -> Result<(), String> {
    let url = &node.url;
    let count = node.kept.len() + increment.files.len();
    if count > TABLES_MAX {
        return Err(format!(
            "{url} wrote {count} tables since its last full list"
        ));
    }
    let of = |files: &[BackupFile]| files.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
    let added = increment.files.iter().map(|it| it.bytes);
    let since = added.fold(of(&node.kept), u64::saturating_add);
    if since > of(&node.files) / SHARE {
        return Err(format!(
            "{url} wrote more than half of its size since its last full list"
        ));
    }
    let mut files = increment.files.iter();
    let clashes = files.any(|new| node.all_files().any(|old| old.name == new.name));
    if clashes {
        Err(format!("{url} names a table that is there already"))
    } else {
        Ok(())
    }
}

/// Are all objects of these lists in the repository?
pub(super) async fn are_there(
    repository: &Arc<Repository>,
    nodes: &[BackupNode],
) -> io::Result<bool> {
    for file in nodes.iter().flat_map(BackupNode::all_files) {
        match repository.sum_beside(file.object).await? {
            Some(sum) if (sum.bytes, sum.checksum) == (file.bytes, file.checksum) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::nodes::{HeldFile, NodePlace};
    use super::*;
    use std::time::Duration;

    fn file(number: u64, bytes: u64) -> BackupFile {
        BackupFile {
            name: format!("{number:016x}.tbl"),
            bytes,
            object: u128::from(number),
            checksum: 1,
        }
    }

    fn cluster(epoch: u64, members: &[&str]) -> Option<BackupCluster> {
        Some(BackupCluster {
            name: "town".to_owned(),
            epoch,
            replication_factor: 3,
            members: members.iter().map(|it| (*it).to_owned()).collect(),
            least_successor: 0,
        })
    }

    /// A backup of nodes 1 and 2, with the marks 11 and 12.
    fn backup() -> BackupManifest {
        let node = |number: u128| BackupNode {
            url: format!("http://h{number}:1"),
            node: number,
            hlc: 1,
            files: vec![file(1, 1_000)],
            kept: vec![file(2, 100)],
            mark: Some(10 + number),
        };
        BackupManifest {
            id: "20260102T030405.000Z-00c0ffee".to_owned(),
            began_ms: 1,
            cut_ms: 2,
            hlc: 1,
            cluster: cluster(4, &["a", "b"]),
            nodes: vec![node(1), node(2)],
            moved_bytes: 0,
            moved_stored_bytes: 0,
        }
    }

    /// The answer of node `number` to those marks, with one table more.
    fn answer(number: u128, more: (u64, u64)) -> HeldCheckpoint {
        let (table, bytes) = more;
        HeldCheckpoint {
            id: String::new(),
            lease: Duration::from_secs(60),
            node: number,
            hlc: 1,
            wall_ms: 2,
            place: NodePlace {
                url: format!("http://h{number}:1"),
                cluster: cluster(9, &["a", "b"]),
            },
            files: Vec::new(),
            increment: Some(HeldIncrement {
                mark: Some(20 + number),
                since: Some(10 + number),
                files: vec![HeldFile {
                    name: file(table, bytes).name,
                    bytes,
                    content: u128::from(table),
                }],
            }),
        }
    }

    /// Why the lists are full, or how many are not.
    fn judged(held: &[HeldCheckpoint]) -> Result<usize, String> {
        let held: Vec<&HeldCheckpoint> = held.iter().collect();
        match lists(Ok(backup()), &held) {
            Lists::Since(nodes) => Ok(nodes.len()),
            Lists::Full(why) => Err(why),
        }
    }

    #[test]
    fn all_nodes_go_on_or_none_does() {
        // In the order of the checkpoints, and after a horizon, which is an epoch.
        let (two, one) = (answer(2, (3, 10)), answer(1, (3, 10)));
        assert_eq!(judged(&[two.clone(), one.clone()]), Ok(2));
        let full = |held: &[HeldCheckpoint], words: &str| {
            let why = judged(held).expect_err(words);
            assert!(why.contains(words), "{why}");
        };
        full(std::slice::from_ref(&one), "other members");
        full(&[one.clone(), answer(3, (3, 10))], "other members");
        let mut moved = [one.clone(), two.clone()];
        moved[0].place.cluster = cluster(9, &["a", "c"]);
        full(&moved, "other members");
        let mut lowered = [one.clone(), two.clone()];
        let factor = lowered[0].place.cluster.as_mut().expect("it is a member");
        factor.replication_factor = 2;
        full(&lowered, "other members");
        for since in [None, Some(99), Some(11)] {
            let mut void = two.clone();
            void.increment.as_mut().expect("it was asked").since = since;
            full(&[one.clone(), void], "http://h2:1 does not know any more");
        }
        let older = HeldCheckpoint {
            increment: None,
            ..two
        };
        full(&[one, older], "http://h2:1 does not know any more");
    }

    #[test]
    fn too_much_since_the_full_lists_makes_new_ones() {
        let with = |more: HeldCheckpoint| judged(&[answer(1, (3, 10)), more]);
        assert_eq!(with(answer(2, (3, 400))), Ok(2));
        let why = with(answer(2, (3, 401))).expect_err("it is more than half");
        assert!(why.contains("half"), "{why}");
        let mut many = answer(2, (3, 0));
        let increment = many.increment.as_mut().expect("it was asked");
        let more = (3..2 + TABLES_MAX as u64).map(|table| HeldFile {
            name: file(table, 0).name,
            bytes: 0,
            content: 1,
        });
        increment.files = more.collect();
        assert_eq!(with(many.clone()), Ok(2));
        let increment = many.increment.as_mut().expect("it was asked");
        increment.files.push(HeldFile {
            name: file(9_999, 0).name,
            bytes: 0,
            content: 1,
        });
        assert!(with(many).expect_err("one more").contains("301 tables"));
        assert!(with(answer(2, (1, 1))).is_err(), "the name is taken");
    }

    #[test]
    fn a_backup_without_marks_is_followed_by_a_full_one() {
        let mut before = backup();
        before.nodes[0].mark = None;
        assert_eq!(marks(&Ok(before.clone())), [12]);
        let (mut one, two) = (answer(1, (3, 10)), answer(2, (3, 10)));
        one.increment.as_mut().expect("it was asked").since = None;
        assert!(matches!(lists(Ok(before), &[&one, &two]), Lists::Full(_)));
        assert!(marks(&Err(String::new())).is_empty());
    }
}
