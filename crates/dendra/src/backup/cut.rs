//! The contents of a backup that was taken during writes. Drawn schedules of members, clocks,
//! writes under way and checkpoints run over real engines, a real repository and the real merge.
//!
//! ```text
//! write: a majority's clocks ─► version ─► owners, in any order, some never ─► acknowledged by a majority
//! backup:        began ─► a checkpoint on each member, at its own moment ─► cut
//! ```
//!
//! Invariants
//! 1. Each key holds a write that is not before the last one acknowledged in front of `began`, and
//!    that began in front of `cut`.
//! 2. No version is above the clock value of the manifest.
//! 3. Each wrong way to make a backup breaks one of the two, at some seed.
//!
//! Not here: processes (`tests/backup.rs`).
//! See: docs/operating.md, "Backups".

use super::archive::MergedWalk;
use super::nodes::{HeldCheckpoint, NodePlace};
use super::place::RepositoryUse;
use super::repository::Repository;
use super::take::check_members;
use crate::console::Console;
use dendra_archive::manifest::{BackupCluster, BackupFile, BackupManifest, BackupNode};
use dendra_base::{CellRef, Durability, Key, Kind, Prng, Version};
use dendra_engine::vfs::os::OsVfs;
use dendra_engine::{Batch, Engine, Guard, Identity, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

const KEYS: u64 = 4;
const STEPS: u64 = 60;
const SEEDS: u64 = 24;

/// A backup that is made wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    None,
    /// One member more is missing than may be.
    TooManyMissing,
    /// A member hands out a checkpoint that it had made before the backup began.
    OlderCheckpoint,
    /// The clock is read in front of the checkpoint.
    ClockFirst,
    /// A member's checkpoint is made when the backup has ended.
    LateCheckpoint,
    /// First copy of the members', and not the newest.
    FirstCopy,
}

struct Member {
    engine: Engine,
    folder: tempfile::TempDir,
    clock: u64,
    /// Files and clock value of its checkpoint.
    checkpoint: Option<(tempfile::TempDir, u64)>,
}

struct Write {
    key: u64,
    version: Version,
    pending: Vec<usize>,
    confirmed: usize,
    began_at: u64,
}

struct Town {
    prng: Prng,
    members: Vec<Member>,
    copies: usize,
    writes: Vec<Write>,
    step: u64,
}

fn shuffle(prng: &mut Prng, list: &mut [usize]) {
    for at in (1..list.len()).rev() {
        list.swap(at, prng.below(at as u64 + 1) as usize);
    }
}

fn key(number: u64) -> Key {
    Key::user(format!("key-{number}").as_bytes())
}

impl Town {
    fn new(seed: u64) -> Town {
        let mut prng = Prng::named(seed, "cut");
        let count = 1 + prng.below(5);
        let member = |number: u64| {
            let folder = tempfile::tempdir().expect("a folder");
            let vfs = Arc::new(OsVfs::open(folder.path()).expect("an empty folder"));
            let options = Options {
                durability: Durability::Os,
                segment_bytes: 4 << 20,
                ..Options::for_memory(64 << 20, 1 << 20)
            };
            let identity = Identity {
                node: 100 + u128::from(number),
                origin: 1 + number as u32,
            };
            Member {
                engine: Engine::open(vfs, options, identity).expect("a new folder"),
                folder,
                clock: 1_000 + prng.below(50),
                checkpoint: None,
            }
        };
        let members: Vec<Member> = (0..count).map(member).collect();
        Town {
            copies: members.len().min(3),
            members,
            writes: Vec::new(),
            step: 0,
            prng,
        }
    }

    fn owners(&self, key: u64) -> Vec<usize> {
        let count = self.members.len();
        (0..self.copies)
            .map(|at| (key as usize + at) % count)
            .collect()
    }

    fn majority(&self) -> usize {
        self.copies / 2 + 1
    }

    /// One event: a write begins, or one owner gets it.
    fn event(&mut self) {
        self.step += 1;
        let open: Vec<usize> = (0..self.writes.len())
            .filter(|at| !self.writes[*at].pending.is_empty())
            .collect();
        if open.is_empty() || self.prng.below(3) == 0 {
            return self.begin();
        }
        let at = open[self.prng.below(open.len() as u64) as usize];
        let next = self.prng.below(self.writes[at].pending.len() as u64) as usize;
        let owner = self.writes[at].pending.remove(next);
        self.deliver(at, owner);
    }

    fn begin(&mut self) {
        let key = self.prng.below(KEYS);
        let mut owners = self.owners(key);
        shuffle(&mut self.prng, &mut owners);
        let asked = &owners[..self.majority()];
        let clocks = asked.iter().map(|owner| self.members[*owner].clock);
        let version = Version {
            hlc: clocks.max().expect("an owner") + 1 + self.prng.below(3),
            // Unique: no two writes have one version.
            origin: 1_000 + self.writes.len() as u32,
            rmw: 0,
        };
        self.writes.push(Write {
            key,
            version,
            pending: owners,
            confirmed: 0,
            began_at: self.step,
        });
    }

    fn deliver(&mut self, at: usize, owner: usize) {
        let write = &mut self.writes[at];
        let member = &mut self.members[owner];
        let key = key(write.key);
        member.clock = member.clock.max(write.version.hlc);
        member.engine.raise_hlc_ceiling(write.version.hlc);
        let value = format!("{at}");
        let cell = match at % 5 {
            4 => CellRef::tombstone(key.as_stored(), write.version),
            _ => CellRef::value(key.as_stored(), write.version, value.as_bytes()),
        };
        let (mut batch, mut done) = (Batch::new(), Vec::new());
        let pushed = batch.push(0, key.as_stored(), &cell, Guard::Newest, 1);
        pushed.expect("it is small");
        member.engine.submit(&mut batch).expect("there is room");
        member.engine.commit(&mut done).expect("there is room");
        write.confirmed += 1;
    }

    /// By key: the newest version that a majority has confirmed.
    fn acknowledged(&self) -> BTreeMap<u64, Version> {
        let mut newest: BTreeMap<u64, Version> = BTreeMap::new();
        for write in &self.writes {
            if write.confirmed >= self.majority() {
                let found = newest.entry(write.key).or_insert(write.version);
                *found = (*found).max(write.version);
            }
        }
        newest
    }

    fn checkpoint(&mut self, at: usize, wrong: Wrong) {
        let member = &mut self.members[at];
        let folder = tempfile::Builder::new()
            .tempdir_in(member.folder.path().parent().expect("it is in a folder"))
            .expect("a folder");
        let before = member.clock;
        let target = OsVfs::open(folder.path()).expect("an empty folder");
        // Writes go on until it is made.
        if wrong == Wrong::ClockFirst {
            for _ in 0..5 {
                self.event();
            }
        }
        let member = &mut self.members[at];
        let made = member.engine.checkpoint(&target, folder.path(), 1);
        made.expect("there is room");
        let hlc = match wrong {
            Wrong::ClockFirst => before,
            _ => member.clock,
        };
        member.checkpoint = Some((folder, hlc));
    }
}

/// The files of a checkpoint, put into a repository.
pub(super) fn files(folder: &Path, node: u128, repository: &Repository) -> Vec<BackupFile> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        if name == "LOCK" || name.starts_with("wal-") {
            continue;
        }
        let bytes = std::fs::read(&path).expect("it is there");
        let object = xxh3_128(&[&node.to_le_bytes(), name.as_bytes(), &bytes].concat());
        let mut new = repository.begin(object).expect("there is room");
        new.writer.push(&bytes).expect("there is room");
        let sum = repository.publish(new).expect("there is room");
        files.push(BackupFile {
            name,
            bytes: sum.bytes,
            object,
            checksum: sum.checksum,
        });
    }
    files
}

/// Runs one seed, and returns the claim that does not hold, if any.
fn run(seed: u64, wrong: Wrong) -> Result<(), String> {
    let mut town = Town::new(seed);
    for _ in 0..STEPS {
        town.event();
    }
    let count = town.members.len();
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut town.prng, &mut order);
    let mut missing = town.prng.below((town.copies as u64 - 1) / 2 + 1) as usize;
    if wrong == Wrong::TooManyMissing {
        missing = (town.copies - 1) / 2 + 1;
    }
    let (away, there) = order.split_at(missing.min(count - 1));
    if wrong == Wrong::OlderCheckpoint {
        town.checkpoint(there[0], wrong);
        for _ in 0..STEPS {
            town.event();
        }
    }
    let acknowledged = town.acknowledged();
    for at in there {
        for _ in 0..town.prng.below(12) {
            town.event();
        }
        let is_made = town.members[*at].checkpoint.is_some();
        let is_late = wrong == Wrong::LateCheckpoint && at == &there[there.len() - 1];
        if !is_made && !is_late {
            town.checkpoint(*at, wrong);
        }
    }
    let cut_at = town.step;
    for _ in 0..STEPS {
        town.event();
    }
    if wrong == Wrong::LateCheckpoint {
        town.checkpoint(there[there.len() - 1], wrong);
    }
    let url = |at: usize| format!("http://h{at}:1");
    let cluster = (count > 1).then(|| BackupCluster {
        name: "town".to_owned(),
        epoch: 1,
        replication_factor: town.copies as u64,
        members: (0..count).map(url).collect(),
        least_successor: 0,
    });
    let place = tempfile::tempdir().expect("a folder");
    let repository = Repository::create(place.path(), None).expect("an empty folder");
    let (mut nodes, mut held) = (Vec::new(), Vec::new());
    for at in there {
        let member = &town.members[*at];
        let (folder, hlc) = member.checkpoint.as_ref().expect("it was made");
        let node = member.engine.identity().node;
        nodes.push(BackupNode {
            url: url(*at),
            node,
            hlc: *hlc,
            files: files(folder.path(), node, &repository),
            kept: Vec::new(),
            mark: None,
        });
        held.push(HeldCheckpoint {
            id: String::new(),
            lease: std::time::Duration::from_secs(60),
            node,
            hlc: *hlc,
            wall_ms: 2,
            place: NodePlace {
                url: url(*at),
                cluster: cluster.clone(),
            },
            files: Vec::new(),
            increment: None,
        });
    }
    let quiet = Console {
        is_quiet: true,
        verbosity: 0,
    };
    let held: Vec<&HeldCheckpoint> = held.iter().collect();
    let judged = check_members(&held, !away.is_empty(), quiet);
    // Too many missing: the rule refuses, and the wrong goes on without it.
    assert_eq!(judged.is_err(), wrong == Wrong::TooManyMissing && count > 1);
    let manifest = BackupManifest {
        id: "20260102T030405.000Z-00c0ffee".to_owned(),
        began_ms: 1,
        cut_ms: 2,
        hlc: nodes.iter().map(|node| node.hlc).max().unwrap_or(0),
        cluster,
        nodes,
        moved_bytes: 0,
        moved_stored_bytes: 0,
    };
    repository.add(&manifest).expect("there is room");
    drop(repository);
    let repository = Repository::open(place.path(), RepositoryUse::Shared, None);
    let repository = Arc::new(repository.expect("it was written"));
    let mut manifest = repository.manifest(&manifest.id).expect("it was written");
    if wrong == Wrong::FirstCopy {
        manifest.nodes.truncate(1);
    }
    let mut walk = MergedWalk::open(&repository, &manifest, b"", b"").expect("it is whole");
    judge(&town, &mut walk, cut_at, manifest.hlc, acknowledged)
}

/// The claim that does not hold of the records of a backup, if any.
fn judge(
    town: &Town,
    walk: &mut MergedWalk,
    cut_at: u64,
    hlc: u64,
    acknowledged: BTreeMap<u64, Version>,
) -> Result<(), String> {
    let mut found = BTreeMap::new();
    while let Some((raw, cell)) = walk.next().expect("it is whole") {
        let at = town.writes.iter().position(|it| it.version == cell.version);
        let at = at.ok_or_else(|| format!("{raw:?} holds a version that no write had"))?;
        let write = &town.writes[at];
        if key(write.key).as_stored()[1..] != raw[..] {
            return Err(format!("{raw:?} holds a write of key {}", write.key));
        }
        let is_its = match cell.kind {
            Kind::Tombstone => at % 5 == 4,
            Kind::Value => cell.value[..] == *format!("{at}").as_bytes(),
        };
        if !is_its {
            return Err(format!("{raw:?} does not hold what write {at} wrote"));
        }
        if write.began_at > cut_at {
            return Err(format!(
                "write {at} began behind the cut, and is in the backup"
            ));
        }
        if write.version.hlc > hlc {
            return Err(format!("write {at} is above the clock of the manifest"));
        }
        found.insert(write.key, write.version);
    }
    for (key, version) in acknowledged {
        match found.get(&key) {
            Some(newer) if *newer >= version => {}
            other => {
                return Err(format!(
                    "key {key} holds {other:?}, and {version} was acknowledged before the backup began"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn a_backup_during_writes_has_all_that_was_acknowledged_before_and_nothing_begun_after() {
    for seed in 0..SEEDS {
        if let Err(why) = run(seed, Wrong::None) {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn each_wrong_way_to_make_a_backup_is_found() {
    for wrong in [
        Wrong::TooManyMissing,
        Wrong::OlderCheckpoint,
        Wrong::ClockFirst,
        Wrong::LateCheckpoint,
        Wrong::FirstCopy,
    ] {
        let found = (0..4 * SEEDS).find(|seed| run(*seed, wrong).is_err());
        assert!(found.is_some(), "{wrong:?} is not found");
    }
}
