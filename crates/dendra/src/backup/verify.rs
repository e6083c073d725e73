//! `dendra backup verify`: does what a restore does, short of writing, and names the damage.
//!
//! ```text
//! manifests ─► each object once: every frame, its content against each manifest
//!          └─► each backup: the pages of its restore ─► read as a member reads them
//! findings on stdout, one a line: BACKUP TAB FILE TAB REASON      summary on stderr
//! ```
//!
//! Invariants
//! 1. One damage hides no other: a backup with damaged objects makes no pages, and the next one
//!    does. A page that is refused stops none of those after it.
//! 2. A backup without a finding can be restored: its pages are those that a restore sends, and
//!    each was taken by the check that members make. Its nodes agree on every key.
//!
//! Not here: how pages are made and taken (`pages.rs`), frames (crate `archive`), members that
//! refuse a restore for what they are (`restore.rs`).
//! See: docs/cli.md.

use super::pages::{PageSource, PageTaker, RestoredPart};
use super::progress;
use super::repository::Repository;
use super::take::now_ms;
use crate::console::{Console, show_key};
use crate::exit::Failure;
use dendra_archive::manifest::BackupManifest;
use dendra_base::Kind;
use dendra_wire::restore::RestorePage;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Disagreements of one backup, and pages of it, that are named one by one.
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
    pub(crate) largest_value_bytes: usize,
}

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    pub(crate) findings: Vec<BackupFinding>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) contents: BTreeMap<String, Contents>,
}

/// Verifies the backups `ids`; of their records those whose keys begin with `prefix`.
pub(crate) fn verify(
    repository: &Arc<Repository>,
    ids: &[String],
    prefix: &[u8],
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
            let part = RestoredPart {
                prefix: prefix.to_vec(),
                with_tokens: true,
            };
            restore_nowhere(repository, manifest, &part, &mut verified);
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

/// Findings of one kind about a backup: the first ones one by one, the others by their number.
struct FindingsOfKind {
    named: Vec<String>,
    more: usize,
}

impl FindingsOfKind {
    fn new() -> FindingsOfKind {
        FindingsOfKind {
            named: Vec::new(),
            more: 0,
        }
    }

    fn add(&mut self, reason: String) {
        if self.named.len() < NAMED_MAX {
            self.named.push(reason)
        } else {
            self.more += 1
        }
    }

    /// `rest` says what the others are.
    fn reasons(self, rest: &str) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more {rest}", self.more));
        self.named.into_iter().chain(more)
    }
}

/// Restores a backup to a member that takes all pages and keeps none.
fn restore_nowhere(
    repository: &Arc<Repository>,
    manifest: &BackupManifest,
    part: &RestoredPart,
    verified: &mut Verified,
) {
    let mut contents = Contents::default();
    let (mut refusals, mut disagreements) = (FindingsOfKind::new(), FindingsOfKind::new());
    let mut walk = || -> Result<(), String> {
        let mut source = PageSource::open(repository, manifest, part, b"", Vec::new())?;
        let mut member = PageTaker::of(&source);
        let now_ms = now_ms();
        while let Some(page) = source.next_page()? {
            match member.take(&page) {
                Ok(taken) => contents.add(&taken, now_ms),
                Err(why) => refusals.add(format!(
                    "a restore is refused at the page that ends with {}: {why}. The files are \
                     whole: keep them, and report this",
                    show_key(&page.position)
                )),
            }
            for found in page.disagreements {
                let key = show_key(&found.raw_key);
                let [one, other] = found.urls;
                disagreements.add(format!(
                    "{one} and {other} hold different values of {key} under one version"
                ));
            }
        }
        Ok(())
    };
    let walked = walk();
    let is_whole = walked.is_ok();
    let reasons = disagreements.reasons("keys on which nodes differ");
    let reasons = reasons.chain(refusals.reasons("pages that a restore is refused at"));
    let id = &manifest.id;
    let finding = |reason: String| BackupFinding {
        backup: id.clone(),
        file: format!("backups/{id}.json"),
        reason,
    };
    let findings = reasons.chain(walked.err()).map(finding);
    verified.findings.extend(findings);
    if is_whole {
        verified.contents.insert(id.clone(), contents);
    }
}

impl Contents {
    fn add(&mut self, page: &RestorePage<'_>, now_ms: u64) {
        for (_, cell) in &page.records {
            match cell.kind {
                Kind::Tombstone => self.tombstones += 1,
                Kind::Value if cell.is_live(now_ms) => self.live += 1,
                Kind::Value => self.expired += 1,
            }
            let (_, value) = dendra_wire::meta::unwrap(cell.value);
            self.largest_value_bytes = self.largest_value_bytes.max(value.len());
        }
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

    /// A backup of one node for each of `held`: the cell of `key` that it took, and the time up to
    /// which values had ended for it when it made the checkpoint. Returns the findings of `verify`.
    fn findings_of(key: &Key, held: &[(CellRef<'_>, u64)], cut_ms: u64, hlc: u64) -> Vec<String> {
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
            let engine = Engine::open(vfs, options, identity).expect("a new folder");
            let mut batch = Batch::new();
            let pushed = batch.push(0, key.as_stored(), cell, Guard::Newest, 1);
            pushed.expect("it is small");
            engine.submit(&mut batch).expect("there is room");
            engine.commit(&mut Vec::new()).expect("there is room");
            engine.set_ended_ms(*now_ms);
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
        let verified = verify(&repository, &[manifest.id], b"", quiet).expect("it can be read");
        let findings = verified.findings.into_iter();
        findings.map(|found| found.reason).collect()
    }

    fn findings(held: &[(CellRef<'_>, u64)], cut_ms: u64, hlc: u64) -> Vec<String> {
        findings_of(&Key::user(b"key"), held, cut_ms, hlc)
    }

    #[test]
    fn a_page_that_a_member_would_refuse_is_found_although_every_file_is_whole() {
        // No client can write it, and no page of a restore can have it.
        let nameless = Key::user(b"");
        let cell = CellRef::value(nameless.as_stored(), VERSION, b"v");
        let found = findings_of(&nameless, &[(cell, 1)], 1, 7);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("a key has no length that keys have"),
            "{found:?}"
        );
    }

    #[test]
    fn a_manifest_without_nodes_is_no_backup() {
        assert_eq!(findings(&[], 1, 7), ["its manifest names no node"]);
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
