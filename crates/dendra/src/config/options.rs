//! Every option of `dendra serve`, once: flag, variable, file key, help, default and values all
//! come from the fields of one struct.
//!
//! ```text
//! key               flag                  variable                 file
//! value-bytes-max   --value-bytes-max V   DENDRA_VALUE_BYTES_MAX   value-bytes-max = "1MiB"
//! ```
//!
//! Invariants
//! 1. A parse error is the rest of a sentence that begins with where the value came from.
//! 2. A value that was parsed is within its bounds: no later place checks them again.
//!
//! Not here: sizes and times (`units.rs`); precedence when two places set one option (`mod.rs`);
//! the effect of the options (crate `server`).
//! See: docs/cli.md.

#![allow(
    rustdoc::bare_urls,
    reason = "docs of fields are help texts, as a terminal shows them"
)]

use super::units;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command};
use dendra_base::limits;
use dendra_server::settings::{HostRule, Member, OriginRule, Topology};
use dendra_stores::StorePlace;
use std::any::TypeId;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;

/// The options, in the order of the help.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeOptions {
    /// Addresses of the data port, with commas between them; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    #[arg(value_parser = addresses)]
    pub(crate) listen: Listed<SocketAddr>,
    /// Address of the admin port (health, metrics, status), or off
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9080")]
    #[arg(value_parser = address_or_off)]
    pub(crate) admin: Listed<SocketAddr>,
    /// Names of this node that requests may use beside addresses, localhost, the machine's name and
    /// --self, with commas: kv.example.com, *.example.com, or * for every name
    #[arg(long, value_name = "NAMES", default_value = "off", value_parser = listed::<HostRule>)]
    pub(crate) allowed_hosts: Listed<HostRule>,
    /// Sites whose pages may ask the data port (CORS), with commas: https://app.example.com; pages
    /// of all others are refused
    #[arg(long, value_name = "ORIGINS", default_value = "off", value_parser = listed::<OriginRule>)]
    pub(crate) allowed_origins: Listed<OriginRule>,
    /// Certificate of this node (PEM, with those between it and its CA): both ports speak TLS alone
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) tls_cert: FileOrOff,
    /// Key of the certificate (PEM); open to its owner alone
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) tls_key: FileOrOff,
    /// CA whose certificates clients must show
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) tls_client_ca: FileOrOff,
    /// CA of the members: they speak TLS with each other, and show certificates with the hosts of
    /// their URLs
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) tls_peer_ca: FileOrOff,
    /// Certificates that their CA took back (PEM, one list of each CA): they are refused
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) tls_revoked: FileOrOff,
    /// Folder with ca.crt and ca.key, as dendra cert makes them: the node renews its certificate
    /// when a third of its time is left
    #[arg(long, value_name = "FOLDER", default_value = "off", value_parser = file())]
    pub(crate) tls_renew_with: FileOrOff,
    /// on = clear text is taken beside TLS, while clients and members change over
    #[arg(long, value_name = "off|on", default_value = "off")]
    #[arg(value_parser = choice(&["off", "on"]))]
    pub(crate) tls_change_over: &'static str,
    /// File with the token that may do everything and makes the others: with it every client needs
    /// a token
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) root_token_file: FileOrOff,
    /// File of lines of JSON: failed logins, changes of tokens, calls on the admin port, restores
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) audit_log: FileOrOff,
    /// Size at which the file of the audit log is put aside
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    #[arg(value_parser = size(4 << 10, 1 << 40))]
    pub(crate) audit_log_bytes: Size,
    /// Files of the audit log that were put aside and stay
    #[arg(long, value_name = "N", default_value = "7", value_parser = count(0, 1_000))]
    pub(crate) audit_log_keep: u64,
    /// on = other machines may reach the node without a token or a certificate: every program that
    /// does can read and write all records
    #[arg(long, value_name = "off|on", default_value = "off")]
    #[arg(value_parser = choice(&["off", "on"]))]
    pub(crate) insecure_clients: &'static str,
    /// Data folder, created when missing
    #[arg(long, value_name = "FOLDER", default_value = "data", value_parser = folder())]
    pub(crate) data: PathBuf,
    /// Another engine that keeps the records instead of the data folder: etcd://HOST:PORT,…/PREFIX
    /// or cassandra://HOST:PORT,…/KEYSPACE, in a build with its driver
    #[arg(long, value_name = "URL", default_value = "off", value_parser = store)]
    pub(crate) store: String,
    /// CA that signed the certificates of the other engine's servers (PEM): they are spoken to by
    /// TLS alone
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) store_ca: FileOrOff,
    /// Certificate that is shown to the other engine's servers (PEM), where they ask for one
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) store_cert: FileOrOff,
    /// Key of that certificate (PEM), open to its owner alone
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) store_key: FileOrOff,
    /// File with USER:PASSWORD for the other engine, open to its owner alone
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) store_login_file: FileOrOff,
    /// Threads of the store pool for reads that must wait for the disk, and as many for scans
    #[arg(long, value_name = "N", default_value = "4", value_parser = count(1, 256))]
    pub(crate) workers: u64,
    /// Operations that may wait for the store pool; more are refused with 503
    #[arg(long, value_name = "N", default_value = "1024", value_parser = count(1, 1 << 16))]
    pub(crate) queue: u64,
    /// How long requests may wait for the processor: when it is longer for a while, the newest go
    /// first and some of the others are refused with 503; 0 = never
    #[arg(long, value_name = "MS", default_value = "30", value_parser = count(0, 10_000))]
    pub(crate) queue_delay_target_ms: u64,
    /// Bytes of tables that are read and checked a second, to find damage before a client does; 0 =
    /// none
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size(0, 1 << 34))]
    pub(crate) scrub_rate: Size,
    /// Seconds from the beginning of one check of all tables to the next
    #[arg(long, value_name = "S", default_value = "86400", value_parser = count(1, 31_536_000))]
    pub(crate) scrub_every_s: u64,
    /// When a write is acknowledged: sync = after fdatasync, os = after write
    #[arg(long, value_name = "sync|os", default_value = "sync")]
    #[arg(value_parser = choice(&["sync", "os"]))]
    pub(crate) durability: &'static str,
    /// Memory the engine may hold: memtables, cached blocks, indexes; at least 40MiB with values of
    /// up to 1MiB, 11MiB with up to 64KiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    #[arg(value_parser = size(4 << 20, 1 << 44))]
    pub(crate) memory: Size,
    /// Size at which a memtable is written to a table; at most a quarter of memory
    #[arg(long, value_name = "SIZE", value_parser = size(64 << 10, 1 << 32))]
    pub(crate) memtable: Option<Size>,
    /// Largest value a client may store; more is answered with 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    #[arg(value_parser = size(1, limits::VALUE_BYTES_MAX_LIMIT as u64))]
    pub(crate) value_bytes_max: Size,
    /// Event loops; 0 = one for each processor that the process may use
    #[arg(long, value_name = "N", default_value = "0", value_parser = count(0, 255))]
    pub(crate) loops: u64,
    /// Connections of clients at once; above it no connection is accepted until one closes
    #[arg(long, value_name = "N", default_value = "16384", value_parser = count(1, 1_048_576))]
    pub(crate) connections_max: u64,
    /// Connections of one client's address (of IPv6, one /64) at once; more are closed; 0 = its
    /// share of all
    #[arg(long, value_name = "N", default_value = "0", value_parser = count(0, 1_048_576))]
    pub(crate) connections_per_address_max: u64,
    /// Requests that may wait for the log or the store pool at once; more are refused with 503
    #[arg(long, value_name = "N", default_value = "4096", value_parser = count(1, 1_048_576))]
    pub(crate) requests_inflight_max: u64,
    /// Watches of clients at once; more are refused with 503
    #[arg(long, value_name = "N", default_value = "10000", value_parser = count(1, 1_048_576))]
    pub(crate) watches_max: u64,
    /// Bytes of bodies that arrive and of answers that leave, at once; at least two of the largest
    /// values
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    #[arg(value_parser = size(64 << 10, 1 << 40))]
    pub(crate) body_bytes_inflight_max: Size,
    /// Milliseconds that the head of a request may take, from its first byte
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = count(1, 3_600_000))]
    pub(crate) head_timeout_ms: u64,
    /// Milliseconds that a connection may rest between two requests
    #[arg(long, value_name = "MS", default_value = "60000", value_parser = count(1, 3_600_000))]
    pub(crate) idle_timeout_ms: u64,
    /// Milliseconds that a body may take, and another second for every 64 KiB of it that arrived
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = count(1, 3_600_000))]
    pub(crate) body_timeout_ms: u64,
    /// Milliseconds that an answer may wait for a client that does not read it
    #[arg(long, value_name = "MS", default_value = "10000", value_parser = count(1, 3_600_000))]
    pub(crate) write_timeout_ms: u64,
    /// Milliseconds that a node serves on after SIGTERM, while /readyz says 503: time for balancers
    #[arg(long, value_name = "MS", default_value = "0", value_parser = count(0, 3_600_000))]
    pub(crate) stop_delay_ms: u64,
    /// Milliseconds that requests in flight may take after SIGTERM
    #[arg(long, value_name = "MS", default_value = "5000", value_parser = count(0, 3_600_000))]
    pub(crate) drain_ms: u64,
    /// All members of the cluster, this node too, the same list on each; an entry may end in
    /// ;weight=N;zone=NAME
    #[arg(long, value_name = "URL,URL,…", default_value = "off", value_parser = listed::<Member>)]
    pub(crate) cluster: Listed<Member>,
    /// Which of the members this node is
    #[arg(long = "self", value_name = "URL", default_value = "off", value_parser = member_or_off)]
    pub(crate) own: Listed<Member>,
    /// Any member of a running cluster, which this node joins as --self; not looked at once its
    /// folder is a member's
    #[arg(long, value_name = "URL", default_value = "off", value_parser = member_or_off)]
    pub(crate) join: Listed<Member>,
    /// With --join: the lost member whose place this node takes
    #[arg(long, value_name = "URL", default_value = "off", value_parser = member_or_off)]
    pub(crate) replace: Listed<Member>,
    /// Copies of a record, as many as there are members at most; the same on each
    #[arg(long, value_name = "N", default_value = "3", value_parser = count(1, 100))]
    pub(crate) replication_factor: u64,
    /// Parts of the key space, fixed when a cluster is made: 256 for up to 10 members, 1024 for 20,
    /// 4096 for 50, 16384 for 100
    #[arg(long, value_name = "N", default_value = "256")]
    #[arg(value_parser = choice(&["256", "1024", "4096", "16384"]))]
    pub(crate) partitions: &'static str,
    /// Name of the cluster: members of another one are refused
    #[arg(long, value_name = "NAME", default_value = "dendra", value_parser = cluster_name)]
    pub(crate) cluster_name: String,
    /// File with a secret of at least 16 bytes that members prove to each other to know; not open
    /// to other users
    #[arg(long, value_name = "FILE", default_value = "off", value_parser = file())]
    pub(crate) cluster_secret_file: FileOrOff,
    /// on = a cluster beyond loopback without a secret: every program that reaches the port can be
    /// a member and destroy it
    #[arg(long, value_name = "off|on", default_value = "off")]
    #[arg(value_parser = choice(&["off", "on"]))]
    pub(crate) insecure_peers: &'static str,
    /// How this member asks the others: frames = one upgraded connection, batched; http = a plain
    /// request for each question
    #[arg(long, value_name = "frames|http", default_value = "frames")]
    #[arg(value_parser = choice(&["frames", "http"]))]
    pub(crate) peer_transport: &'static str,
    /// Keys and values that a member compares with its peers in a second, to repair differences; up
    /// to 16 times as many while deletes wait for it; 0 = no comparisons
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = size(0, 1 << 40))]
    pub(crate) compare_bytes_per_second: Size,
    /// Seconds between two steps of the horizon, at least: deletes give their space back behind six
    /// of them; 0 = never
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = count(0, 31_536_000))]
    pub(crate) forget_every_s: u64,
    /// Log levels: off, error, warn, info, debug, trace, or per target: info,dendra_engine=debug
    #[arg(long, value_name = "LEVELS", default_value = "info", value_parser = levels)]
    pub(crate) log: String,
}

/// The default of `memtable`, which has none of its own.
pub(crate) const MEMTABLE_RULE: &str = "an eighth of memory, 1MiB to 64MiB";

/// Parts with commas between them; none = `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed<T>(pub(crate) Vec<T>);

impl<T: fmt::Display> fmt::Display for Listed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("off");
        }
        let texts: Vec<String> = self.0.iter().map(T::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

/// A file; none = `off`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileOrOff(pub(crate) Option<PathBuf>);

impl fmt::Display for FileOrOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => path.display().fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// The types of TOML that an option may have beside text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Count,
    Size,
    List,
    Text,
}

impl ValueKind {
    pub(super) fn of(arg: &Arg) -> ValueKind {
        let of = arg.get_value_parser().type_id();
        let is_list = of == TypeId::of::<Listed<HostRule>>()
            || of == TypeId::of::<Listed<OriginRule>>()
            || arg.get_id() == "cluster";
        match () {
            () if of == TypeId::of::<u64>() => ValueKind::Count,
            () if of == TypeId::of::<Size>() => ValueKind::Size,
            () if is_list => ValueKind::List,
            () => ValueKind::Text,
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let fix = "write an address and a port, like 127.0.0.1:8080 or [::1]:8080";
    match text.to_socket_addrs() {
        Ok(mut found) => found
            .next()
            .ok_or_else(|| format!("{text:?} names no address; {fix}")),
        Err(e) => Err(format!("{text:?} is not an address ({e}); {fix}")),
    }
}

fn addresses(text: &str) -> Result<Listed<SocketAddr>, String> {
    text.split(',')
        .map(address)
        .collect::<Result<_, _>>()
        .map(Listed)
}

fn address_or_off(text: &str) -> Result<Listed<SocketAddr>, String> {
    match text {
        "off" => Ok(Listed(Vec::new())),
        text => address(text).map(|address| Listed(vec![address])),
    }
}

fn listed<T: FromStr<Err: ToString>>(text: &str) -> Result<Listed<T>, String> {
    if text == "off" {
        return Ok(Listed(Vec::new()));
    }
    let parts = text.split(',').map(str::parse);
    let parts: Result<_, T::Err> = parts.collect();
    parts.map(Listed).map_err(|bad| bad.to_string())
}

fn member_or_off(text: &str) -> Result<Listed<Member>, String> {
    if text == "off" {
        return Ok(Listed(Vec::new()));
    }
    let member = Member::new(text).map_err(|bad| bad.to_string())?;
    Ok(Listed(vec![member]))
}

fn folder() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        if text.is_empty() {
            Err("is empty; name a folder")
        } else {
            Ok(PathBuf::from(text))
        }
    })
}

fn file() -> impl TypedValueParser<Value = FileOrOff> {
    OsStringValueParser::new().try_map(|text| match text.to_str() {
        Some("off") => Ok(FileOrOff(None)),
        Some("") => Err("is empty; name a file, or off"),
        _ => Ok(FileOrOff(Some(PathBuf::from(text)))),
    })
}

fn count(min: u64, max: u64) -> impl TypedValueParser<Value = u64> {
    move |text: &str| match text.trim().replace('_', "").parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        Ok(n) => Err(format!("{n} is outside {min} to {max}")),
        Err(_) => Err(format!(
            "{text:?} is not a number; write one from {min} to {max}"
        )),
    }
}

fn size(min: u64, max: u64) -> impl TypedValueParser<Value = Size> {
    move |text: &str| match units::parse_bytes(text)? {
        n if (min..=max).contains(&n) => Ok(Size(n)),
        n => {
            let [n, min, max] = [n, min, max].map(units::show_bytes);
            Err(format!("{n} is outside {min} to {max}"))
        }
    }
}

fn choice(words: &'static [&'static str]) -> impl TypedValueParser<Value = &'static str> {
    move |text: &str| {
        let meant = words.iter().find(|word| **word == text).copied();
        meant.ok_or_else(|| format!("{text:?} is not one of: {}", words.join(", ")))
    }
}

fn cluster_name(text: &str) -> Result<String, String> {
    Topology::check_name(text).map_err(|bad| bad.to_string())?;
    Ok(text.to_owned())
}

fn store(text: &str) -> Result<String, String> {
    if text == "off" {
        return Ok(text.to_owned());
    }
    let place = StorePlace::parse(text).map_err(|bad| format!("{text:?} {bad}"))?;
    Ok(place.to_string())
}

fn levels(text: &str) -> Result<String, String> {
    crate::logs::parse_levels(text).map(|_| text.to_owned())
}

static OPTIONS: LazyLock<Command> = LazyLock::new(|| {
    let command = Command::new("options").no_binary_name(true);
    NodeOptions::augment_args(command.disable_help_flag(true))
});

/// All options.
pub(crate) fn args() -> impl Iterator<Item = &'static Arg> {
    OPTIONS.get_arguments()
}

/// Names of the options, as in the flags and in the file.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    args().filter_map(Arg::get_long)
}

/// The environment variable of an option.
pub(crate) fn variable(key: &str) -> String {
    format!("DENDRA_{}", key.to_ascii_uppercase().replace('-', "_"))
}

/// The text that stands for an option that is not set.
pub(crate) fn default_of(arg: &'static Arg) -> &'static str {
    let text = arg.get_default_values().first();
    text.and_then(|text| text.to_str()).unwrap_or(MEMTABLE_RULE)
}

/// Reads options, each of them at most once.
pub(super) fn read<'a>(
    given: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
) -> Result<ArgMatches, clap::Error> {
    let flags = given.into_iter().map(|(key, text)| {
        let mut flag = OsString::from(format!("--{key}="));
        flag.push(text);
        flag
    });
    OPTIONS.clone().try_get_matches_from(flags)
}

/// The text of a value, with addresses for names of hosts, so that they are looked up once.
///
/// # Errors
/// The fault of the value: the rest of a sentence.
pub(super) fn checked(key: &str, text: &OsStr) -> Result<OsString, String> {
    let found = read([(key, text)]).map_err(|bad| {
        let reason = bad.source().map(ToString::to_string);
        reason.unwrap_or_else(|| format!("{text:?} is not UTF-8; write plain text"))
    })?;
    Ok(match found.try_get_one::<Listed<SocketAddr>>(key) {
        Ok(Some(addresses)) => addresses.to_string().into(),
        _ => text.to_owned(),
    })
}

/// The option that was probably meant.
pub(crate) fn closest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|word| (strsim::levenshtein(wrong, word), word))
        .filter(|(distance, word)| *distance <= 2.max(word.len() / 3))
        .min()
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_every_option_with_its_variable_and_default() {
        let document = include_str!("../../../../docs/cli.md");
        for arg in args() {
            let default = match default_of(arg) {
                MEMTABLE_RULE => "an eighth of memory, 1 MiB to 64 MiB".to_owned(),
                text => format!("`{text}`"),
            };
            let key = arg.get_long().expect("each has a flag");
            let row = format!("| `--{key}` | `{}` | {default} |", variable(key));
            assert!(document.contains(&row), "docs/cli.md lacks: {row}");
        }
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        assert_eq!(closest("memmory", keys()), Some("memory"));
        assert_eq!(closest("value_bytes_max", keys()), Some("value-bytes-max"));
        assert_eq!(closest("colour", keys()), None);
    }

    #[test]
    fn ranges_are_enforced() {
        for (key, text) in [
            ("workers", "0"),
            ("workers", "2000"),
            ("memory", "1MiB"),
            ("value-bytes-max", "9MiB"),
            ("durability", "maybe"),
            ("listen", "nowhere"),
            ("listen", "127.0.0.1"),
            ("listen", "127.0.0.1:80,"),
            ("listen", "off"),
            ("admin", "127.0.0.1:80,127.0.0.1:81"),
            ("data", ""),
            ("log", "loud"),
            ("cluster", ""),
            ("cluster", "http://h1:1,"),
            ("cluster", "http://h1:1;weight=0"),
            ("self", "http://h1"),
            ("self", "http://h1:1;weight=2"),
            ("self", "http://h1:1,http://h2:1"),
            ("replication-factor", "0"),
            ("replication-factor", "101"),
            ("cluster-name", "a b"),
            ("cluster-secret-file", ""),
            ("insecure-peers", "yes"),
            ("peer-transport", "smoke"),
        ] {
            let said = checked(key, OsStr::new(text)).expect_err(text);
            assert!(!said.contains("UTF-8"), "{key}={text}: {said}");
        }
    }
}
