//! `dendra backup prune`: removes old backups, and the objects that no other backup needs.
//!
//! Invariants
//! 1. A manifest goes before its objects: an interrupted prune leaves objects without a backup,
//!    never a backup without objects.
//! 2. While any manifest cannot be read nothing is removed. It may need any object, and an old
//!    backup goes only if it can be listed. Objects without any manifest stay, too: the manifests
//!    may be lost, or on a disk that is not mounted.
//! 3. The newest backup stays, with any flags.
//! 4. A prune that was taken for dead removes one file more, or `UNCHECKED_MAX` within
//!    `UNCHECKED_FOR`; old manifests count as one.
//!
//! Not here: which objects a manifest needs (`repository.rs`).
//! See: docs/cli.md.

use super::repository::Repository;
use crate::exit::{Exit, Failure};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, SystemTime};

/// Objects that are removed between two looks at the own use of the repository. A look costs as
/// much as a removal.
const UNCHECKED_MAX: usize = 100;
/// The longest time between two looks.
const UNCHECKED_FOR: Duration = Duration::from_secs(60);

/// The files that a prune removed, or would remove.
#[derive(Debug, Default)]
pub(crate) struct Pruned {
    pub(crate) backups: Vec<String>,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

/// Keeps the newest `keep` backups. Requires: the repository is locked alone.
pub(crate) fn prune(
    repository: &Repository,
    keep: usize,
    is_dry_run: bool,
) -> Result<Pruned, Failure> {
    let failed = |e: io::Error| {
        let name = repository.name();
        Failure::new(Exit::FAILURE, format!("{name}: {e}; run prune again"))
    };
    let ids = repository.ids().map_err(failed)?;
    let objects = repository.objects().map_err(failed)?;
    if ids.is_empty() && !objects.is_empty() {
        return Err(Failure::new(
            Exit::NOT_FOUND,
            format!(
                "{0} has {1} objects, and {0}/backups has no manifest, so no object is removed: put \
                 the manifests back, or make a backup first (the next prune behind it removes each \
                 object that it does not need)",
                repository.name(),
                objects.len()
            ),
        ));
    }
    let (old, kept) = ids.split_at(ids.len().saturating_sub(keep.max(1)));
    for id in old {
        repository.manifest(id).map_err(stays)?;
    }
    let mut needed = BTreeSet::new();
    for id in kept {
        let manifest = repository.manifest(id).map_err(stays)?;
        needed.extend(repository.names_of(&manifest));
    }
    let mut pruned = Pruned {
        backups: old.to_vec(),
        ..Pruned::default()
    };
    if !is_dry_run {
        repository.check_use().map_err(failed)?;
        repository.remove(old).map_err(failed)?;
        // Left by backups that were killed: no backup runs now.
        repository.tidy().map_err(failed)?;
    }
    let needless = objects.iter().filter(|(name, _)| !needed.contains(*name));
    let mut looked = SystemTime::now();
    for (at, (name, bytes)) in needless.enumerate() {
        if !is_dry_run {
            // A process that was stopped counts no objects: wall time goes on.
            let is_recent = looked.elapsed().is_ok_and(|since| since < UNCHECKED_FOR);
            if at % UNCHECKED_MAX == 0 || !is_recent {
                repository.check_use().map_err(failed)?;
                looked = SystemTime::now();
            }
            repository.remove_object(name).map_err(failed)?;
        }
        pruned.bytes += bytes;
        pruned.objects += 1;
    }
    Ok(pruned)
}

/// Why nothing is removed, with the way out.
fn stays(unreadable: Failure) -> Failure {
    let sentence = format!(
        "{}; nothing is removed while a backup cannot be listed: restore that file from a copy, or \
         remove it by hand if the backup is not needed",
        unreadable.sentence
    );
    Failure::new(unreadable.exit, sentence)
}
