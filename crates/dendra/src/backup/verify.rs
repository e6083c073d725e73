//! `dendra backup verify`: reads everything back, and names the damage.
//!
//! ```text
//! manifests ─► each object once: every frame, its content against each manifest
//!          └─► each backup: the records of all nodes, merged; every value against its key
//! findings on stdout, one a line: BACKUP TAB FILE TAB REASON      summary on stderr
//! ```
//!
//! Invariants
//! 1. One damage hides no other: a backup with damaged objects is not merged, and the next one is.
//! 2. A backup without a finding can be restored, and its nodes agree on every key.
//!
//! Not here: the walk itself (`archive.rs`), frames (crate `archive`).
//! See: docs/cli.md.

use super::archive::MergedWalk;
use super::progress;
use super::repository::Repository;
use super::take::now_ms;
use crate::console::{Console, show_key};
use crate::exit::Failure;
use dendra_archive::manifest::BackupManifest;
use dendra_base::Kind;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Disagreements of one backup that are named one by one.
const NAMED_MAX: usize = 20;

/// One thing that is not as it should be.
#[derive(Clone, Debug)]
pub(crate) struct BackupFinding {
    pub(crate) backup: String,
    pub(crate) file: String,
    pub(crate) reason: String,
}

/// The content of a backup.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) live: u64,
    pub(crate) tombstones: u64,
    pub(crate) expired: u64,
}

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) findings: Vec<BackupFinding>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) contents: BTreeMap<String, Contents>,
}

/// Verifies the backups `ids`.
pub(crate) fn verify(
    repository: &Arc<Repository>,
    ids: &[String],
    console: Console,
) -> Result<Verified, Failure> {
    let mut verified = Verified::default();
    let mut manifests = Vec::new();
    for id in ids {
        match repository.manifest(id) {
            Ok(manifest) => manifests.push(manifest),
            Err(failure) => verified.findings.push(BackupFinding {
                backup: id.clone(),
                file: format!("backups/{id}.json"),
                reason: failure.sentence,
            }),
        }
    }
    // By object: its bytes and content, or why it is not whole.
    let mut seen: BTreeMap<u128, Result<(u64, u128), String>> = BTreeMap::new();
    let sizes = manifests.iter().map(BackupManifest::bytes);
    let total = sizes.fold(0, u64::saturating_add);
    let bar = progress::bar(total, console);
    for manifest in &manifests {
        let before = verified.findings.len();
        for (node, file) in manifest.files() {
            let new = !seen.contains_key(&file.object);
            let state = seen.entry(file.object).or_insert_with(|| {
                let read = read(repository, file.object, |bytes| bar.inc(bytes));
                read.map_err(|e| match e.kind() {
                    io::ErrorKind::NotFound => "it is missing".to_owned(),
                    _ => e.to_string(),
                })
            });
            match state {
                Ok(_) if new => {
                    verified.objects += 1;
                    verified.bytes += file.bytes;
                }
                Ok(_) => bar.inc(file.bytes),
                Err(_) => {}
            }
            let reason = match state {
                Ok(held) if *held == (file.bytes, file.checksum) => continue,
                Ok(_) => "its content is not what the manifest says".to_owned(),
                Err(why) => why.clone(),
            };
            let object = repository.object_name(file.object);
            verified.findings.push(BackupFinding {
                backup: manifest.id.clone(),
                file: object,
                reason: format!("{reason} ({} of {})", file.name, node.url),
            });
        }
        if verified.findings.len() == before {
            merge(repository, manifest, &mut verified);
        }
    }
    bar.finish_and_clear();
    Ok(verified)
}

fn read(
    repository: &Repository,
    object: u128,
    on_bytes: impl FnMut(u64),
) -> io::Result<(u64, u128)> {
    let reader = repository.open_object(object)?;
    reader.verify(on_bytes)?;
    Ok((reader.sum().bytes, reader.sum().checksum))
}

fn merge(repository: &Arc<Repository>, manifest: &BackupManifest, verified: &mut Verified) {
    let mut contents = Contents::default();
    let mut disagreements = 0;
    let now_ms = now_ms();
    let id = &manifest.id;
    let finding = |reason: String| BackupFinding {
        backup: id.clone(),
        file: format!("backups/{id}.json"),
        reason,
    };
    let merged = MergedWalk::open(repository, manifest, b"", b"").and_then(|mut walk| {
        while let Some((_, cell)) = walk.next()? {
            match cell.kind {
                Kind::Tombstone => contents.tombstones += 1,
                Kind::Value if cell.as_ref().is_live(now_ms) => contents.live += 1,
                Kind::Value => contents.expired += 1,
            }
            for found in walk.disagreements.drain(..) {
                disagreements += 1;
                if disagreements <= NAMED_MAX {
                    let key = show_key(&found.raw_key);
                    let [one, other] = found.urls;
                    let reason = format!(
                        "{one} and {other} hold different values of {key} under one version"
                    );
                    verified.findings.push(finding(reason));
                }
            }
        }
        Ok(())
    });
    if disagreements > NAMED_MAX {
        let more = disagreements - NAMED_MAX;
        verified
            .findings
            .push(finding(format!("{more} more keys on which nodes differ")));
    }
    match merged {
        Ok(()) => {
            verified.contents.insert(id.clone(), contents);
        }
        Err(reason) => verified.findings.push(finding(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cut::files;
    use super::super::place::RepositoryUse;
    use super::*;
    use dendra_archive::manifest::BackupNode;
    use dendra_base::{CellRef, Guard, Key, Version};
    use dendra_engine::vfs::os::OsVfs;
    use dendra_engine::{Batch, Engine, Identity, Options};

    const VERSION: Version = Version {
        hlc: 7,
        origin: 7,
        rmw: 0,
    };

    /// A backup of one node for each of `held`: the cell that it took, and its own time when it
    /// made the checkpoint. Returns the findings of `verify`.
    fn findings(held: &[(CellRef<'_>, u64)], cut_ms: u64, hlc: u64) -> Vec<String> {
        let key = Key::user(b"key");
        let place = tempfile::tempdir().expect("a folder");
        let repository = Repository::create(place.path(), None).expect("an empty folder");
        let mut nodes = Vec::new();
        for (number, (cell, now_ms)) in held.iter().enumerate() {
            let folder = tempfile::tempdir().expect("a folder");
            let (data, target) = (folder.path().join("data"), folder.path().join("target"));
            let vfs = Arc::new(OsVfs::open(&data).expect("an empty folder"));
            let identity = Identity {
                node: 1 + number as u128,
                origin: 1 + number as u32,
            };
            let options = Options::for_memory(64 << 20, 1 << 20);
            let engine = Engine::open(vfs, options, identity, 1).expect("a new folder");
            let mut batch = Batch::new();
            let pushed = batch.push(0, key.as_stored(), cell, Guard::Newest, 1);
            pushed.expect("it is small");
            engine.submit(&mut batch).expect("there is room");
            engine.commit(&mut Vec::new()).expect("there is room");
            let made = OsVfs::open(&target).expect("an empty folder");
            let made = engine.checkpoint(&made, &target, *now_ms);
            made.expect("there is room");
            nodes.push(BackupNode {
                url: format!("http://h{number}:1"),
                node: identity.node,
                hlc,
                files: files(&target, identity.node, &repository),
                kept: Vec::new(),
                mark: None,
            });
        }
        let manifest = BackupManifest {
            id: "20260102T030405.000Z-00c0ffee".to_owned(),
            began_ms: 1,
            cut_ms,
            hlc,
            cluster: None,
            nodes,
            moved_bytes: 0,
            moved_stored_bytes: 0,
        };
        repository.add(&manifest).expect("there is room");
        drop(repository);
        let repository = Repository::open(place.path(), RepositoryUse::Shared, None);
        let repository = Arc::new(repository.expect("it was written"));
        let quiet = Console {
            is_quiet: true,
            verbosity: 0,
        };
        let verified = verify(&repository, &[manifest.id], quiet).expect("it can be read");
        let findings = verified.findings.into_iter();
        findings.map(|found| found.reason).collect()
    }

    #[test]
    fn a_value_that_ended_before_the_cut_agrees_with_the_tombstone_of_another_node() {
        let key = Key::user(b"key");
        let ends = CellRef {
            expiry_ms: Some(1_000),
            ..CellRef::value(key.as_stored(), VERSION, b"v")
        };
        // The first node has made a tombstone of it, by its own clock; the second one has not yet.
        let held = [(ends, 2_000), (ends, 500)];
        let none = Vec::<String>::new();
        assert_eq!(findings(&held, 2_000, 7), none);
        assert_eq!(findings(&held, 900, 1_000 << 16), none, "by another clock");
        // As of the cut it lived, so one of them is wrong.
        let found = findings(&held, 999, 999 << 16);
        assert!(found.len() == 1 && found[0].contains("key"), "{found:?}");
        // Two values that live are compared, also if both end later.
        let other = CellRef {
            expiry_ms: Some(1_000),
            ..CellRef::value(key.as_stored(), VERSION, b"w")
        };
        assert_eq!(findings(&[(ends, 500), (other, 500)], 900, 7).len(), 1);
        let lasts = CellRef::value(key.as_stored(), VERSION, b"v");
        let gone = CellRef::tombstone(key.as_stored(), VERSION);
        assert_eq!(findings(&[(lasts, 500), (gone, 500)], 2_000, 7).len(), 1);
    }
}
