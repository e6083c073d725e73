//! Backups that a node makes by itself: `--backup-to`, `--backup-every`, `--backup-keep`.
//!
//! ```text
//! serving ─► newest backup of the folder + every ─► take ─► prune ─► …      failed: soon again, loudly
//! ```
//!
//! Invariants
//! 1. The schedule counts from the last good backup in the folder. So a restart of the node begins
//!    none too early, and one that was due is made at once.
//! 2. A failure is an error in the log and a count, and the age of the last good backup rises. The
//!    next try is after a tenth of the time, at most `RETRY_MAX`.
//! 3. The thread ends with the process: a backup that a stop cuts goes on after the next start.
//! 4. A destination that was a repository is one for as long as the process runs: behind a share
//!    that was unmounted no new one begins below the mount point.
//! 5. Backups go only from a repository in which all can be listed, the one just made among them.
//!
//! Not here: the options (`config/`), the metric (crate `server`).
//! See: docs/operating.md.

use super::key;
use super::nodes::AdminNode;
use super::place::{self, RepositoryUse};
use super::prune::prune;
use super::repository::Repository;
use super::take::{TakeOrder, now_ms, take};
use crate::access::AccessArgs;
use crate::client::{BaseUrl, Credentials};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use dendra_archive::seal::BackupKey;
use dendra_server::BackupGauge;
use dendra_server::settings::TlsSettings;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// The options of the schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupSchedule {
    pub(crate) destination: PathBuf,
    /// The file of the key of the backups; `None` = they are not encrypted.
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) every: Duration,
    /// How many backups stay; 0 = all.
    pub(crate) keep: usize,
    /// Admin ports of all members; `None` = of this node by itself.
    pub(crate) admin: Option<String>,
    /// How those let this node in.
    pub(crate) access: AccessArgs,
    /// The files with which the own admin port speaks TLS.
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) bytes_per_second: Option<u64>,
}

/// Makes backups from now on, on a thread of its own.
pub(crate) fn start(schedule: BackupSchedule, own_admin: SocketAddr, gauge: Arc<BackupGauge>) {
    let scheme = if schedule.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let own_admin = format!("{scheme}://{own_admin}");
    let spawned = std::thread::Builder::new()
        .name("backups".to_owned())
        .spawn(move || {
            super::yield_to_others();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => runtime.block_on(run(&schedule, &own_admin, &gauge)),
                Err(error) => tracing::error!(%error, "no backups are made: no runtime"),
            }
        });
    if let Err(error) = spawned {
        tracing::error!(%error, "no backups are made: no thread");
    }
}

async fn run(schedule: &BackupSchedule, own_admin: &str, gauge: &BackupGauge) {
    let started_ms = now_ms();
    let last_ms = newest(schedule);
    gauge.scheduled(last_ms.unwrap_or(started_ms));
    let every_ms = u64::try_from(schedule.every.as_millis()).unwrap_or(u64::MAX);
    let mut due_ms = last_ms.map_or(started_ms, |last_ms| last_ms.saturating_add(every_ms));
    let mut is_founded = last_ms.is_some();
    loop {
        tokio::time::sleep(wait(schedule.every, due_ms, now_ms())).await;
        let began_ms = now_ms();
        is_founded |= place::is_there(&schedule.destination).unwrap_or(false);
        match once(schedule, own_admin, is_founded, gauge).await {
            Ok(()) => {
                gauge.made(began_ms);
                due_ms = began_ms.saturating_add(every_ms);
            }
            Err(failure) => {
                gauge.failed();
                let retry = (schedule.every / 10).clamp(RETRY_MIN, RETRY_MAX);
                let again_s = retry.as_secs();
                tracing::error!(
                    destination = %schedule.destination.display(),
                    again_s,
                    "the backup failed: {}",
                    failure.sentence
                );
                due_ms = now_ms() + u64::try_from(retry.as_millis()).unwrap_or(u64::MAX);
            }
        }
    }
}

/// How long to wait for a moment, at most from one backup to the next. A backup that was made while
/// the clock was ahead stops no later one.
fn wait(every: Duration, due_ms: u64, now_ms: u64) -> Duration {
    every.min(Duration::from_millis(due_ms.saturating_sub(now_ms)))
}

/// When the newest good backup of the folder began.
fn newest(schedule: &BackupSchedule) -> Option<u64> {
    let key = key(schedule).ok()?;
    let repository = Repository::open(&schedule.destination, RepositoryUse::Read, key).ok()?;
    let ids = repository.ids().ok()?;
    let manifest = repository.manifest(ids.last()?).ok()?;
    Some(manifest.began_ms)
}

/// Read each time: a file that is put right counts from the next try on.
fn key(schedule: &BackupSchedule) -> Result<Option<BackupKey>, Failure> {
    schedule.key_file.as_deref().map(key::read).transpose()
}

async fn once(
    schedule: &BackupSchedule,
    own_admin: &str,
    is_founded: bool,
    gauge: &BackupGauge,
) -> Result<(), Failure> {
    let destination = &schedule.destination;
    if is_founded && !place::is_there(destination)? {
        return Err(Failure::new(
            Exit::FAILURE,
            format!(
                "{} was a folder of backups, and is none now: is it mounted? A restart of this \
                 node lets it begin a new one there",
                destination.display()
            ),
        ));
    }
    let quiet = Console {
        is_quiet: true,
        verbosity: 0,
    };
    let key = key(schedule)?;
    // Read each time, as the key is.
    let nodes = match &schedule.admin {
        Some(urls) => AdminNode::all(urls, &schedule.access, quiet)?,
        None => {
            let base = BaseUrl::parse(own_admin).map_err(|bad| bad.of("--admin"))?;
            let own = Credentials::of_node(&schedule.access, schedule.tls.as_ref())?;
            vec![AdminNode::at(base, own, quiet)]
        }
    };
    let order = TakeOrder {
        destination,
        key: key.as_ref(),
        nodes: &nodes,
        bytes_per_second: schedule.bytes_per_second,
        allow_missing: false,
        may_found: !is_founded,
    };
    let taken = take(&order, quiet).await?;
    let manifest = &taken.manifest;
    tracing::info!(
        id = manifest.id,
        bytes = manifest.bytes(),
        moved_bytes = manifest.moved_bytes,
        full_because = taken.full_because.as_deref(),
        "a backup is made"
    );
    if let Some(sentence) = &taken.clock_is_behind {
        tracing::warn!("{sentence}");
    }
    if schedule.keep > 0 {
        // Beside another backup no backup is removed; the next one is soon enough.
        let pruned = Repository::open(&schedule.destination, RepositoryUse::Alone, key)
            .and_then(|repository| prune(&repository, schedule.keep, Some(&manifest.id), false));
        match pruned {
            Ok(pruned) => tracing::debug!(?pruned, "old backups are removed"),
            Err(failure) => {
                if failure.exit != Exit::UNAVAILABLE {
                    gauge.kept();
                }
                tracing::warn!("old backups stay: {}", failure.sentence);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_from_the_future_stops_no_later_one() {
        let every = Duration::from_secs(60);
        assert_eq!(wait(every, 61_000, 60_000), Duration::from_secs(1));
        assert_eq!(wait(every, 60_000, 61_000), Duration::ZERO);
        let in_a_year_ms = 365 * 86_400_000;
        assert_eq!(wait(every, in_a_year_ms, 60_000), every);
    }
}
