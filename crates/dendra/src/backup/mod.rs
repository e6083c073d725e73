//! `dendra backup` and `dendra restore`: copies of a running node or cluster, elsewhere.
//!
//! ```text
//! admin ports ─► take.rs ─► repository.rs, crate archive ─► archive.rs, pages.rs ─┬─► restore.rs, sending.rs ─► admin ports
//!    nodes.rs    pace.rs, increment.rs   a folder of backups                               └─► verify.rs
//! ```
//!
//! Invariants
//! 1. Exit 0 of `backup` means that the manifest is durable; of `verify`, that a restore's members
//!    take each page.
//! 2. Data (lists, findings) goes to stdout, all else to stderr.
//!
//! Not here: the node's side (crate `server`), bytes of manifests and objects (crate `archive`).
//! See: docs/format/backup.md, docs/cli.md, docs/operating.md.

mod archive;
#[cfg(test)]
mod cut;
pub(crate) mod flags;
mod increment;
mod key;
mod lease;
mod naming;
mod nodes;
mod pace;
mod pages;
mod place;
mod progress;
mod prune;
mod repository;
mod restore;
mod sending;
mod take;
mod verify;

use crate::console::Console;
use crate::encoding::Encoding;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use dendra_archive::manifest::BackupManifest;
use dendra_archive::seal::BackupKey;
use dendra_base::limits::VALUE_BYTES_MAX_DEFAULT;
use flags::{Backup, BackupVerb, KeyFlag, PrefixFlag, Prune, Restore, Verify};
use indicatif::HumanBytes;
use nodes::AdminNode;
use pages::RestoredPart;
use place::RepositoryUse;
use repository::Repository;
use restore::RestoreOrder;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use take::TakeOrder;
use verify::Verified;

pub(crate) use pace::TransferPace;

/// Priority of the threads that read for a backup, as on the node: below all that clients wait for.
const NICE: i32 = 15;
/// Clocks of machines that make backups and judge their age may differ by so much.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Lets everything else on this machine go first, as often a node is there. For this thread and
/// those that it starts.
fn yield_to_others() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "the backup keeps its priority");
    }
}

/// `dendra backup`
pub(crate) async fn backup(args: &Backup, console: Console) -> ExitResult {
    yield_to_others();
    match &args.verb {
        Some(BackupVerb::List {
            destination,
            key,
            max_age,
            json,
        }) => list(destination, key, *max_age, *json),
        Some(BackupVerb::Verify(args)) => verify_command(args, console),
        Some(BackupVerb::Prune(args)) => prune_command(args, console),
        Some(BackupVerb::Key { file }) => key_command(file, console),
        None => {
            let destination = args.destination.as_deref().ok_or_else(|| {
                Failure::usage("name the folder for the backup: dendra backup DESTINATION")
            })?;
            take_command(destination, args, console).await
        }
    }
}

async fn take_command(destination: &Path, args: &Backup, console: Console) -> ExitResult {
    let started = Instant::now();
    let key = args.key.read()?;
    let order = TakeOrder {
        destination,
        key: key.as_ref(),
        nodes: &AdminNode::all(&args.admin, &args.access, console)?,
        bytes_per_second: args.bytes_per_second,
        allow_missing: args.allow_missing,
        may_found: !args.existing,
    };
    let taken = take::take(&order, console).await?;
    let manifest = taken.manifest;
    if let Some(why) = &taken.full_because {
        console.note(&format!("all tables are listed anew: {why}"));
    }
    if let Some(sentence) = &taken.clock_is_behind {
        console.note(sentence);
    }
    console.note(&summary(&manifest, started.elapsed().as_secs_f64()));
    if args.verify {
        let repository = Repository::open(destination, RepositoryUse::Read, key)?;
        let ids = std::slice::from_ref(&manifest.id);
        let verified = verify::verify(&Arc::new(repository), ids, b"", console)?;
        let exit = report(&verified, false, console)?;
        if exit != Exit::OK {
            return Ok(exit);
        }
    }
    let line = if args.json {
        let mut line = manifest_line(&manifest);
        line["full_because"] = json!(taken.full_because);
        format!("{line}\n")
    } else {
        format!("{}\n", manifest.id)
    };
    ops::print(line.as_bytes())?;
    Ok(Exit::OK)
}

fn summary(manifest: &BackupManifest, seconds: f64) -> String {
    let rate = (manifest.moved_bytes as f64 / seconds.max(0.001)) as u64;
    format!(
        "backup {} of {}: {}, of which {} are new and take {}; {seconds:.1} s, {}/s",
        manifest.id,
        nodes_in_words(manifest),
        HumanBytes(manifest.bytes()),
        HumanBytes(manifest.moved_bytes),
        HumanBytes(manifest.moved_stored_bytes),
        HumanBytes(rate),
    )
}

fn nodes_in_words(manifest: &BackupManifest) -> String {
    match (&manifest.cluster, manifest.nodes.len()) {
        (None, _) => "one node".to_owned(),
        (Some(cluster), count) => {
            let all = cluster.members.len();
            format!("{count} of {all} members of cluster {}", cluster.name)
        }
    }
}

fn manifest_line(manifest: &BackupManifest) -> serde_json::Value {
    json!({
        "id": manifest.id,
        "began_ms": manifest.began_ms,
        "cut_ms": manifest.cut_ms,
        "cluster": manifest.cluster.as_ref().map(|cluster| &cluster.name),
        "nodes": manifest.nodes.iter().map(|node| &node.url).collect::<Vec<_>>(),
        "missing": manifest.missing(),
        "incremental": manifest.is_incremental(),
        "bytes": manifest.bytes(),
        "moved_bytes": manifest.moved_bytes,
        "moved_stored_bytes": manifest.moved_stored_bytes,
    })
}

fn of_folder(repository: &Repository, error: &std::io::Error) -> Failure {
    Failure::new(Exit::FAILURE, format!("{}: {error}", repository.name()))
}

/// `dendra backup list`
fn list(destination: &Path, key: &KeyFlag, max_age: Option<Duration>, is_json: bool) -> ExitResult {
    let repository = Repository::open(destination, RepositoryUse::Read, key.read()?)?;
    let ids = repository.ids().map_err(|e| of_folder(&repository, &e))?;
    let mut exit = Exit::OK;
    let mut text = String::new();
    let mut newest = None;
    for id in ids {
        match repository.manifest(&id) {
            Ok(manifest) => {
                text.push_str(&if is_json {
                    format!("{}\n", manifest_line(&manifest))
                } else {
                    format!(
                        "{id}\t{}\t{}\tmoved {}\n",
                        nodes_in_words(&manifest),
                        HumanBytes(manifest.bytes()),
                        HumanBytes(manifest.moved_bytes),
                    )
                });
                newest = Some(manifest);
            }
            Err(failure) => {
                crate::console::error(&failure.sentence);
                exit = Exit::FAILURE;
            }
        }
    }
    ops::print(text.as_bytes())?;
    if let Some(max_age) = max_age {
        let newest = newest.ok_or_else(|| no_backup(&repository))?;
        check_age(&newest, take::now_ms(), max_age)
            .map_err(|sentence| Failure::new(Exit::FAILURE, sentence))?;
    }
    Ok(exit)
}

/// Did the newest backup begin within `max_age`? A begin that is still to come proves nothing: it
/// would hide for ever that no later backup was made.
fn check_age(newest: &BackupManifest, now_ms: u64, max_age: Duration) -> Result<(), String> {
    let (id, began_ms) = (&newest.id, newest.began_ms);
    let ahead = Duration::from_millis(began_ms.saturating_sub(now_ms));
    let age = Duration::from_millis(now_ms.saturating_sub(began_ms));
    if ahead > AHEAD_MAX {
        return Err(format!(
            "the newest backup, {id}, began {} s ahead of this machine's clock, so its age is not \
             known: set the clock that is wrong, and make a backup",
            ahead.as_secs()
        ));
    }
    if age > max_age {
        return Err(format!(
            "the newest backup, {id}, began {} s ago, and --max-age is {} s",
            age.as_secs(),
            max_age.as_secs()
        ));
    }
    Ok(())
}

fn no_backup(repository: &Repository) -> Failure {
    let sentence = format!("{} has no backup yet", repository.name());
    Failure::new(Exit::NOT_FOUND, sentence)
}

/// The backup that is meant: the one named, or the newest.
fn chosen(repository: &Repository, id: Option<&str>) -> Result<BackupManifest, Failure> {
    let ids = repository.ids().map_err(|e| of_folder(repository, &e))?;
    let id = match (id, ids.last()) {
        (Some(id), _) => id,
        (None, Some(newest)) => newest,
        (None, None) => return Err(no_backup(repository)),
    };
    repository.manifest(id)
}

/// `dendra backup verify`
fn verify_command(args: &Verify, console: Console) -> ExitResult {
    let key = args.key.read()?;
    let repository = Repository::open(&args.destination, RepositoryUse::Read, key)?;
    let repository = Arc::new(repository);
    let ids = match &args.backup {
        Some(id) => vec![chosen(&repository, Some(id))?.id],
        None => repository.ids().map_err(|e| of_folder(&repository, &e))?,
    };
    if ids.is_empty() {
        return Err(no_backup(&repository));
    }
    let prefix = args.prefix.bytes()?;
    let verified = verify::verify(&repository, &ids, &prefix, console)?;
    report(&verified, args.json, console)
}

/// What a verify found, on stdout, and in words.
fn report(verified: &Verified, is_json: bool, console: Console) -> ExitResult {
    let mut text = String::new();
    for found in &verified.findings {
        let (backup, file, reason) = (&found.backup, &found.file, &found.reason);
        if !is_json {
            text.push_str(&format!("{backup}\t{file}\t{reason}\n"));
        }
    }
    if is_json {
        let findings = verified.findings.iter();
        let findings: Vec<_> = findings
            .map(|it| json!({"backup": it.backup, "file": it.file, "reason": it.reason}))
            .collect();
        let contents = verified.contents.iter().map(|(id, it)| {
            let of = json!({
                "live": it.live,
                "tombstones": it.tombstones,
                "expired": it.expired,
                "largest_value_bytes": it.largest_value_bytes,
            });
            (id.clone(), of)
        });
        let page = json!({
            "findings": findings,
            "objects": verified.objects,
            "bytes": verified.bytes,
            "backups": contents.collect::<serde_json::Map<_, _>>(),
        });
        text = format!("{page:#}\n");
    }
    ops::print(text.as_bytes())?;
    for (id, it) in &verified.contents {
        console.note(&format!(
            "{id}: {} live records, {} tombstones, {} expired values",
            it.live, it.tombstones, it.expired
        ));
        let largest = it.largest_value_bytes;
        if largest > VALUE_BYTES_MAX_DEFAULT {
            console.note(&format!(
                "{id}: its largest value has {largest} bytes: a restore needs nodes with \
                 --value-bytes-max {largest} or more"
            ));
        }
    }
    let state = match verified.findings.len() {
        0 => "whole".to_owned(),
        1 => "1 damage".to_owned(),
        count => format!("{count} damages"),
    };
    console.note(&format!(
        "{state}: {} objects read back, {}",
        verified.objects,
        HumanBytes(verified.bytes)
    ));
    Ok(if verified.findings.is_empty() {
        Exit::OK
    } else {
        Exit::FAILURE
    })
}

impl KeyFlag {
    /// The key that the flag names.
    fn read(&self) -> Result<Option<BackupKey>, Failure> {
        self.backup_key.as_deref().map(key::read).transpose()
    }
}

impl PrefixFlag {
    /// The bytes that the keys begin with.
    fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let encoding = if self.hex {
            Encoding::Hex
        } else {
            Encoding::Raw
        };
        let decoded = encoding.decode(self.prefix.as_bytes());
        decoded.map_err(|rest| Failure::usage(format!("--prefix {rest}")))
    }
}

/// `dendra backup key`
fn key_command(file: &Path, console: Console) -> ExitResult {
    let key = key::create(file)?;
    console.note(&format!(
        "{} holds the new key {:016x}. Keep a copy elsewhere: without it no backup can be read",
        file.display(),
        key.id()
    ));
    Ok(Exit::OK)
}

/// `dendra backup prune`
fn prune_command(args: &Prune, console: Console) -> ExitResult {
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    let key = args.key.read()?;
    let repository = Repository::open(&args.destination, RepositoryUse::Alone, key)?;
    let pruned = prune::prune(&repository, keep, args.dry_run)?;
    let text: String = pruned.backups.iter().map(|id| format!("{id}\n")).collect();
    ops::print(text.as_bytes())?;
    let verb = if args.dry_run {
        "would remove"
    } else {
        "removed"
    };
    console.note(&format!(
        "{verb} {} backups and {} objects, {}",
        pruned.backups.len(),
        pruned.objects,
        HumanBytes(pruned.bytes)
    ));
    Ok(Exit::OK)
}

/// `dendra restore`
pub(crate) async fn restore(args: &Restore, console: Console) -> ExitResult {
    let started = Instant::now();
    let part = RestoredPart {
        prefix: args.prefix.bytes()?,
        with_tokens: args.with_tokens,
    };
    let key = args.key.read()?;
    let repository = Repository::open(&args.source, RepositoryUse::Read, key)?;
    let manifest = chosen(&repository, args.backup.as_deref())?;
    let id = manifest.id.clone();
    let order = RestoreOrder {
        admin: &args.admin,
        access: &args.access,
        part,
        bytes_per_second: args.bytes_per_second,
    };
    let repository = Arc::new(repository);
    let restored = restore::restore(repository, manifest, &order, console).await?;
    let seconds = started.elapsed().as_secs_f64();
    console.note(&if restored.was_done {
        format!("backup {id} was restored here already")
    } else {
        format!(
            "restored {} values and {} tombstones of backup {id}: {} in {seconds:.1} s, {}/s",
            restored.values,
            restored.tombstones,
            HumanBytes(restored.bytes),
            HumanBytes((restored.bytes as f64 / seconds.max(0.001)) as u64),
        )
    });
    if restored.left_tokens_out {
        console.note(
            "the tokens of the backup were left out: make new ones with dendra token create, or \
             restore into empty folders again with --with-tokens",
        );
    }
    Ok(Exit::OK)
}
