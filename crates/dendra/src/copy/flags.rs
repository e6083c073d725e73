//! The flags of `dendra copy`.
//!
//! Invariants
//! 1. TO is let in with the credentials of FROM, but for those that are given for TO.
//!
//! Not here: the work of the command (`mod.rs`).
//! See: docs/moving.md.

use crate::access::AccessArgs;
use crate::config::units::{parse_bytes, parse_duration};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Slower than this a pause would never end.
const RATE_MIN: u64 = 64 << 10;

/// `dendra copy`
#[derive(Debug, Args)]
pub(crate) struct CopyFlags {
    /// Data port of the store that is copied; of a cluster several members, with commas
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// Data port of the store that gets the copy; of a cluster several members, with commas
    #[arg(value_name = "TO")]
    pub(crate) to: String,
    /// How this client is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// For TO, in place of --ca
    #[arg(long, value_name = "FILE")]
    pub(crate) to_ca: Option<PathBuf>,
    /// For TO, in place of --cert
    #[arg(long, value_name = "FILE", requires = "to_key_file")]
    pub(crate) to_cert: Option<PathBuf>,
    /// For TO, in place of --key-file
    #[arg(long, value_name = "FILE", requires = "to_cert")]
    pub(crate) to_key_file: Option<PathBuf>,
    /// For TO, in place of --token-file
    #[arg(long, value_name = "FILE")]
    pub(crate) to_token_file: Option<PathBuf>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", default_value = "")]
    pub(crate) prefix: OsString,
    /// The prefix is hexadecimal
    #[arg(long)]
    pub(crate) hex: bool,
    /// The folder in which the copy remembers how far it is; a later run goes on there
    #[arg(long, value_name = "FOLDER", default_value = "dendra-copy")]
    pub(crate) state: PathBuf,
    /// Make TO equal to FROM although TO holds records: others are replaced, further ones removed
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Rounds end when one of them changed at most so many records
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) rest: u64,
    /// Behind the rounds: ask for the stop of FROM's writers, copy the rest, and prove equality
    #[arg(long)]
    pub(crate) cut_over: bool,
    /// With --cut-over: the writers of FROM were stopped, do not ask
    #[arg(long, requires = "cut_over")]
    pub(crate) sealed: bool,
    /// With --cut-over: give up when writers had to wait so long; they may go on at FROM then
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub(crate) pause_max: Duration,
    /// Compare both stores and print the differences, without copying
    #[arg(long, conflicts_with_all = ["cut_over", "overwrite"])]
    pub(crate) compare: bool,
    /// Records under way at once, each in memory
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) in_flight: u64,
    /// Read at most so many bytes of keys and values from each store: 20MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) bytes_per_second: Option<u64>,
    /// How long a request is tried again while a store refuses or is away
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) retry_for: Duration,
    /// A request's deadline on the server, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) timeout_ms: u64,
}

fn rate(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        rate @ RATE_MIN.. => Ok(rate),
        _ => Err(format!(
            "{text} is too slow: at least {RATE_MIN} bytes a second"
        )),
    }
}

impl CopyFlags {
    /// The credentials for TO.
    pub(super) fn to_access(&self) -> AccessArgs {
        let own = |given: &Option<PathBuf>, other: &Option<PathBuf>| {
            given.clone().or_else(|| other.clone())
        };
        AccessArgs {
            ca: own(&self.to_ca, &self.access.ca),
            cert: own(&self.to_cert, &self.access.cert),
            key_file: own(&self.to_key_file, &self.access.key_file),
            token_file: own(&self.to_token_file, &self.access.token_file),
        }
    }
}
