//! The flags of `dendra backup` and `dendra restore`.
//!
//! Invariants
//! 1. A key file is named, a key is never a flag.
//! 2. A rate below `RATE_MIN` is refused: a checkpoint would expire before its files were read.
//!
//! Not here: the work of the commands (`mod.rs`).
//! See: docs/cli.md.

use super::pace::RATE_MIN;
use crate::access::AccessArgs;
use crate::config::units::{parse_bytes, parse_duration};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `dendra backup`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Backup {
    /// The folder of backups, made when missing
    pub(crate) destination: Option<PathBuf>,
    /// The admin ports of all members, with commas
    #[arg(long, env = "DENDRA_ADMIN_URLS", value_name = "URL,URL,…")]
    #[arg(default_value = "http://127.0.0.1:9080")]
    pub(crate) admin: String,
    /// How this client is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// How it is encrypted
    #[command(flatten)]
    pub(crate) key: KeyFlag,
    /// Read at most so much, of all nodes together: 20MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) bytes_per_second: Option<u64>,
    /// Only into a folder of backups that is there already: a share may not be mounted
    #[arg(long)]
    pub(crate) existing: bool,
    /// Go without members that are away, if fewer than half of the copies are
    #[arg(long)]
    pub(crate) allow_missing: bool,
    /// Read the backup back when it is there
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print one JSON object instead of the backup's name
    #[arg(long)]
    pub(crate) json: bool,
    /// A command about backups that are there
    #[command(subcommand)]
    pub(crate) verb: Option<BackupVerb>,
}

/// The key of a folder of backups.
#[derive(Debug, Args)]
pub(crate) struct KeyFlag {
    /// The file of the key with which these backups are encrypted; `dendra backup key` makes one
    #[arg(long, env = "DENDRA_BACKUP_KEY_FILE", value_name = "FILE")]
    pub(crate) backup_key: Option<PathBuf>,
}

/// The keys of a part of a backup.
#[derive(Debug, Args)]
pub(crate) struct PrefixFlag {
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", default_value = "")]
    pub(crate) prefix: OsString,
    /// The prefix is hexadecimal
    #[arg(long)]
    pub(crate) hex: bool,
}

/// Commands about backups.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupVerb {
    /// Print all backups, oldest first
    List {
        /// The folder of backups
        destination: PathBuf,
        /// How they are encrypted
        #[command(flatten)]
        key: KeyFlag,
        /// Fail if the newest one began longer ago than this: 26h
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        max_age: Option<Duration>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Read everything back as a restore does, and compare the nodes with each other
    Verify(Verify),
    /// Remove old backups, and the objects that no other one needs
    Prune(Prune),
    /// Make a file with a new key, for --backup-key
    Key {
        /// The file; it must not be there yet
        file: PathBuf,
    },
}

/// `dendra backup verify`
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder of backups
    pub(crate) destination: PathBuf,
    /// How they are encrypted
    #[command(flatten)]
    pub(crate) key: KeyFlag,
    /// Only this backup
    #[arg(long, value_name = "NAME")]
    pub(crate) backup: Option<String>,
    /// Which keys a restore would bring back; every file is read all the same
    #[command(flatten)]
    pub(crate) prefix: PrefixFlag,
    /// Print one JSON object: findings, backups
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dendra backup prune`
#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// The folder of backups
    pub(crate) destination: PathBuf,
    /// How they are encrypted
    #[command(flatten)]
    pub(crate) key: KeyFlag,
    /// How many of the newest backups stay
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keep: u64,
    /// Print the backups that would be removed, and keep them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `dendra restore`
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The folder of backups
    pub(crate) source: PathBuf,
    /// How they are encrypted
    #[command(flatten)]
    pub(crate) key: KeyFlag,
    /// Which backup [default: the newest]
    #[arg(long, value_name = "NAME")]
    pub(crate) backup: Option<String>,
    /// The admin ports of all members of the empty cluster, with commas
    #[arg(long, env = "DENDRA_ADMIN_URLS", value_name = "URL,URL,…")]
    #[arg(default_value = "http://127.0.0.1:9080")]
    pub(crate) admin: String,
    /// How this client is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Which keys
    #[command(flatten)]
    pub(crate) prefix: PrefixFlag,
    /// Tokens too: those that were revoked since the backup open again
    #[arg(long)]
    pub(crate) with_tokens: bool,
    /// Write at most so much to each node: 20MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) bytes_per_second: Option<u64>,
}

/// A number of bytes a second.
fn rate(text: &str) -> Result<u64, String> {
    let rate = parse_bytes(text)?;
    if rate >= RATE_MIN {
        Ok(rate)
    } else {
        Err(format!(
            "{text} is too slow: at least {RATE_MIN} bytes a second, or a checkpoint would expire"
        ))
    }
}
