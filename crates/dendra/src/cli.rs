//! The command line, drawn once for parsing, help, completions and the manual page.
//!
//! ```text
//! dendra serve | get | put | delete | touch | lock | scan | watch | load | backup | restore | copy | bench | conform | profile
//!        cluster | health | dev | ring | cert | token | check | dump | config print | completions | man
//! ```
//!
//! Invariants
//! 1. The flags of `serve` and `config print` come from the options of a node, in their order.
//! 2. Keys and values are `OsString` until an encoding is known: a byte never becomes a replacement
//!    character.
//!
//! Not here: the work of the commands (one file each), options of a node (`config/`).
//! See: docs/cli.md.

use crate::access::AccessArgs;
use crate::backup::flags::{Backup, Restore};
use crate::bench::flags::Bench;
use crate::cluster::flags::ClusterFlags;
use crate::config::options::{args, default_of, keys, variable};
use crate::conform::flags::Conform;
use crate::copy::flags::CopyFlags;
use crate::dev::flags::DevArgs;
use crate::encoding::Encoding;
use crate::health::HealthArgs;
use clap::{ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// A replicated key-value store over plain HTTP: the server and its tools.
#[derive(Debug, Parser)]
#[command(
    name = "dendra",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Colours in help, errors and logs; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    #[arg(help_heading = EVERYWHERE)]
    pub(crate) color: Colour,
    /// Print errors alone on stderr
    #[arg(short, long, global = true, help_heading = EVERYWHERE)]
    pub(crate) quiet: bool,
    /// Say more: one line per request; for `serve`, log at debug
    #[arg(short, global = true, action = ArgAction::Count, help_heading = EVERYWHERE)]
    pub(crate) verbose: u8,
    /// The command
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Shown after the command's own flags.
const EVERYWHERE: &str = "Everywhere";

const EXIT_CODES: &str = "\
Exit codes: 0 done · 1 failed · 2 unusable options · 3 key not found · 4 condition failed ·
5 unavailable or no answer in time · 130 interrupted.
serve: 3 the data folder cannot be opened · 4 the address is taken.
bench: 6 the generator was the bottleneck.
health: 0 healthy · 1 degraded · 2 not serving · 3 not known.
lock: the command's own · 122 another holds the lock · 123 no node · 124 the lease was lost.
Data goes to stdout, everything else to stderr.";

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// One verb each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node until SIGTERM or SIGINT
    Serve(SettingsFlags),
    /// Print the value of one key
    Get(Get),
    /// Store one value
    Put(Put),
    /// Remove one key, whether it is there or not
    Delete(Delete),
    /// Give the value of a key another time to live, without the value
    Touch(TouchArgs),
    /// Run a command under a lock that is renewed, and stop it when the lock is lost
    Lock(LockArgs),
    /// Print a range of keys, sorted by bytes
    Scan(ScanArgs),
    /// Print how many keys a range has
    Count(CountArgs),
    /// Print the state of keys and then their changes, or run a command for each, until stopped
    Watch(WatchArgs),
    /// Store many records: a folder, NDJSON or TSV
    Load(Load),
    /// Copy a running node or cluster to a folder of backups; list, verify, prune
    Backup(Backup),
    /// Bring a backup into an empty node or cluster, of any size
    Restore(Restore),
    /// Move the records of one store to another one while clients write, and prove them equal
    Copy(Box<CopyFlags>),
    /// Measure a store over HTTP: open-loop load, percentiles, saturation, one record
    Bench(Box<Bench>),
    /// Check a store against the cases of the HTTP contract, for clients and for other stores
    Conform(Conform),
    /// Show where a running node spends its time: a flame graph, or folded stacks
    Profile(ProfileArgs),
    /// See and change the members of a running cluster: status, plan, apply, cancel, history
    Cluster {
        /// The command
        #[command(flatten)]
        flags: ClusterFlags,
        /// How to be let in
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Say in a word whether a node or a cluster is well, and what mends it
    Health(HealthArgs),
    /// Run a cluster on this machine, and hurt it: dev kill 2, dev cut 1 2, dev heal, dev add, dev
    /// replace 2
    Dev(DevArgs),
    /// Show the owners of keys in a cluster as it is founded, and compare it with another founding
    Ring(RingArgs),
    /// Make a private CA, and certificates for members and clients
    Cert(Cert),
    /// Make, show and revoke tokens
    Token {
        /// The command
        #[command(subcommand)]
        verb: TokenVerb,
    },
    /// Verify the data folder of a stopped node, byte by byte
    Check(Check),
    /// Print a table, a log segment or a manifest of a data folder readably
    Dump(Dump),
    /// Look at the options of a node
    Config {
        /// The command
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// Print the completion script of a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff): dendra man | man -l -
    Man,
}

/// `dendra profile`
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// The node's admin port
    #[arg(default_value = "http://127.0.0.1:9080")]
    pub(crate) url: String,
    /// How this client is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Where its threads work: samples of their CPU time (the default)
    #[arg(long, group = "measure")]
    pub(crate) cpu: bool,
    /// Where they work or wait: samples of all threads in wall time
    #[arg(long, group = "measure")]
    pub(crate) wall: bool,
    /// Where they ask for memory: bytes, from a sample every 512 KiB of a thread
    #[arg(long, group = "measure")]
    pub(crate) alloc: bool,
    /// Where they wait for locks that others hold: microseconds
    #[arg(long, group = "measure")]
    pub(crate) lock: bool,
    /// With --alloc: count allocations instead of bytes
    #[arg(long, requires = "alloc", conflicts_with_all = ["cpu", "wall", "lock"])]
    pub(crate) objects: bool,
    /// How long to sample
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) seconds: u64,
    /// Write to a file; one that ends in .svg gets an interactive flame graph, others folded stacks
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `dendra cert`
#[derive(Debug, Args)]
pub(crate) struct Cert {
    /// Where the files go; a CA that is there already signs
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// A member's name: the host of its URL, an address or a name; more names of it behind commas
    #[arg(long, value_name = "HOST,…")]
    pub(crate) member: Vec<String>,
    /// A client's name
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Vec<String>,
    /// How long the certificates of members and clients hold
    #[arg(long, value_name = "N", default_value_t = 365)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
    /// Replace certificates that are there
    #[arg(long)]
    pub(crate) renew: bool,
    /// Take back a certificate of the folder, named as its file without .crt: ca.crl lists it
    #[arg(long, value_name = "NAME")]
    pub(crate) revoke: Vec<String>,
}

/// `dendra ring`
#[derive(Debug, Args)]
pub(crate) struct RingArgs {
    /// All members, with commas between them; an entry may end in ;weight=N;zone=NAME
    #[arg(long, env = "DENDRA_CLUSTER", value_name = "URL,URL,…")]
    pub(crate) cluster: String,
    /// Copies of a record, as many as there are members at most
    #[arg(
        long,
        env = "DENDRA_REPLICATION_FACTOR",
        value_name = "N",
        default_value_t = 3
    )]
    pub(crate) replication_factor: u64,
    /// Parts of the key space: 256, 1024, 4096, 16384
    #[arg(
        long,
        env = "DENDRA_PARTITIONS",
        value_name = "N",
        default_value = "256"
    )]
    pub(crate) partitions: String,
    /// Name of the cluster; keys go to other partitions in a cluster with another name
    #[arg(
        long,
        env = "DENDRA_CLUSTER_NAME",
        value_name = "NAME",
        default_value = "dendra"
    )]
    pub(crate) cluster_name: String,
    /// A member that joins; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) add: Vec<String>,
    /// A member that leaves; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) remove: Vec<String>,
    /// Which members own this key
    #[arg(long)]
    pub(crate) key: Option<OsString>,
    /// Show every partition, also when there are more than 256
    #[arg(long)]
    pub(crate) table: bool,
    /// Print one JSON object instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// Commands about options.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print each effective value and its source, as a file that --config accepts
    Print {
        /// One JSON object instead
        #[arg(long)]
        json: bool,
        /// Flags as those of `serve`
        #[command(flatten)]
        settings: SettingsFlags,
    },
}

/// The flags of the options of a node, and the file.
#[derive(Debug)]
pub(crate) struct SettingsFlags {
    /// The values that were given, by option key.
    pub(crate) given: Vec<(&'static str, OsString)>,
    /// `--config`, or `DENDRA_CONFIG`.
    pub(crate) config: Option<PathBuf>,
}

impl Args for SettingsFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let config = clap::Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file of options: `key = value`, keys as the flags [env: DENDRA_CONFIG]");
        // Flags are texts here: all places are read together, with their own complaints.
        let flags = args().map(|arg| {
            let (key, default) = (arg.get_long().unwrap_or_default(), default_of(arg));
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = format!("{help} [env: {}] [default: {default}]", variable(key));
            let flag = clap::Arg::new(key).long(key).help(help);
            let shape = arg.get_value_names().unwrap_or_default()[0].clone();
            flag.value_name(shape)
                .value_parser(clap::value_parser!(OsString))
        });
        command.args(flags).arg(config)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        SettingsFlags::augment_args(command)
    }
}

impl FromArgMatches for SettingsFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingsFlags, clap::Error> {
        let given = keys()
            .filter_map(|key| Some((key, matches.get_one::<OsString>(key)?.clone())))
            .collect();
        let variable = || std::env::var_os("DENDRA_CONFIG").filter(|text| !text.is_empty());
        let config = matches.get_one::<PathBuf>("config").cloned();
        Ok(SettingsFlags {
            given,
            config: config.or_else(|| variable().map(PathBuf::from)),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SettingsFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flags of every command that talks to a node: which node, and how keys and values are
/// written.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    /// Keys and values are hexadecimal, in and out
    #[arg(long, conflicts_with = "base64")]
    hex: bool,
    /// Keys and values are base64, in and out
    #[arg(long)]
    base64: bool,
    /// The node's data port
    #[arg(long, env = "DENDRA_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// How it is let in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// The request's deadline on the server, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) timeout_ms: u64,
}

impl ClientArgs {
    /// How keys and values are written.
    pub(crate) fn encoding(&self) -> Encoding {
        match (self.hex, self.base64) {
            (true, _) => Encoding::Hex,
            (_, true) => Encoding::Base64,
            _ => Encoding::Raw,
        }
    }
}

/// `dendra token`
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make the root token, for --root-token-file of every node
    Root {
        /// Where it goes, with mode 0600; a file that is there stays
        file: PathBuf,
    },
    /// Make a token that the cluster knows from now on
    Create {
        /// Name of the token
        id: String,
        /// Role of the token
        #[arg(long, value_enum)]
        role: RoleName,
        /// Only for keys that begin with this
        #[arg(long, value_name = "KEY")]
        prefix: Option<OsString>,
        /// Write it to this file, with mode 0600, instead of stdout; a file that is there stays
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Make no token: give the rights to clients that show a certificate with this name
        #[arg(long, value_name = "NAME", conflicts_with = "out")]
        certificate: Option<String>,
        /// How much of it
        #[command(flatten)]
        quota: QuotaArgs,
        /// Node and encoding
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Show the tokens of the cluster: names, roles, prefixes
    List {
        /// Node and encoding
        #[command(flatten)]
        client: ClientArgs,
    },
    /// Make a token useless, on every node within a second
    Revoke {
        /// Name of the token
        id: String,
        /// Node and encoding
        #[command(flatten)]
        client: ClientArgs,
    },
}

/// How much the holder of a token may do.
#[derive(Clone, Debug, Args)]
pub(crate) struct QuotaArgs {
    /// Requests a second on each node; more get 429
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1_000_000_000))]
    pub(crate) requests_per_second: Option<u64>,
    /// Bytes of requests and answers a second on each node, like 10MiB; behind more, 429
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) bytes_per_second: Option<u64>,
    /// About how much all keys with its prefix may take, like 1GiB; behind more, 507 for new values
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) stored_bytes: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    match crate::config::units::parse_bytes(text)? {
        bytes @ 1..=999_999_999_999_999 => Ok(bytes),
        _ => Err(format!("{text:?} is no size from 1 byte to 900 TiB")),
    }
}

/// Seconds from `90`, `90s`, `15m`, `12h` or `30d`; the contract knows whole seconds alone.
fn time_to_live(text: &str) -> Result<u64, String> {
    let length = text.trim();
    let (number, scale) = match length.strip_suffix('d') {
        Some(days) => (days.trim_end(), 24 * 3600),
        None => (length, 1),
    };
    let seconds = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(scale),
        Err(_) if scale > 1 => None,
        Err(_) => crate::config::units::parse_duration(length)
            .ok()
            .filter(|length| length.subsec_nanos() == 0)
            .map(|length| length.as_secs()),
    };
    seconds.filter(|seconds| *seconds > 0).ok_or_else(|| {
        format!("{text:?} is no time of one second or more; write 30, 90s, 15m, 12h or 30d")
    })
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Read the metrics of nodes, and no key.
    Metrics,
    /// Read keys.
    Read,
    /// Read and write keys.
    Write,
    /// Everything, tokens and the admin port too.
    Admin,
}

/// How many copies an operation addresses and how many must answer.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct QuorumArgs {
    /// Copies that must answer; the server's default is a majority
    #[arg(long, value_name = "N")]
    pub(crate) ack: Option<u32>,
    /// Copies that the operation addresses; the server's default is its replication factor
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u32>,
}

/// A condition on the present version of the key.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConditionArgs {
    /// Only if the key holds this version (as `put` and `get --json` print it), or * for any
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_match: Option<String>,
}

/// `dendra get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The key
    pub(crate) key: OsString,
    /// Write the value to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object: key, value, version, receipt, metadata
    #[arg(long)]
    pub(crate) json: bool,
    /// Print how the value is found instead of the value: owners, memtables, tables, filters
    #[arg(long, conflicts_with = "out")]
    pub(crate) explain: bool,
    /// Copies
    #[command(flatten)]
    pub(crate) quorum: QuorumArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra put`
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The key
    pub(crate) key: OsString,
    /// The value; - reads stdin, which is also the default when stdin is no terminal
    pub(crate) value: Option<OsString>,
    /// Read the value from this file; - is stdin
    #[arg(long = "in", value_name = "FILE", conflicts_with = "value")]
    pub(crate) input: Option<PathBuf>,
    /// Only if the key is not there
    #[arg(long, conflicts_with = "if_match")]
    pub(crate) if_absent: bool,
    /// Forget the record after this time: seconds, or with a unit as 90s, 15m, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    pub(crate) ttl: Option<u64>,
    /// Keep this content type with the value
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Keep this metadata with the value; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) meta: Vec<String>,
    /// Print one JSON object: key, version, receipt
    #[arg(long)]
    pub(crate) json: bool,
    /// Condition
    #[command(flatten)]
    pub(crate) condition: ConditionArgs,
    /// Copies
    #[command(flatten)]
    pub(crate) quorum: QuorumArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra delete`
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The key
    pub(crate) key: OsString,
    /// Print one JSON object: key, version, receipt
    #[arg(long)]
    pub(crate) json: bool,
    /// Condition
    #[command(flatten)]
    pub(crate) condition: ConditionArgs,
    /// Copies
    #[command(flatten)]
    pub(crate) quorum: QuorumArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra touch`
#[derive(Debug, Args)]
pub(crate) struct TouchArgs {
    /// The key
    pub(crate) key: OsString,
    /// Forget the record so long from now: seconds, or with a unit as 90s, 15m, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = time_to_live)]
    pub(crate) ttl: u64,
    /// Print one JSON object: key, version, expires_ms, receipt
    #[arg(long)]
    pub(crate) json: bool,
    /// Condition
    #[command(flatten)]
    pub(crate) condition: ConditionArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra lock`
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// The key of the lock
    pub(crate) name: OsString,
    /// How long the lock stays without a renewal: it is renewed at a third of it
    #[arg(long, value_name = "TIME", value_parser = time_to_live, default_value = "30")]
    pub(crate) ttl: u64,
    /// How long to wait for a lock that another process holds [default: for ever]
    #[arg(long, value_name = "TIME")]
    #[arg(value_parser = crate::config::units::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The command; it finds the fencing token in DENDRA_FENCING_TOKEN
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A range of keys; all of them without a flag.
#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    /// First key, inclusive; without it and --prefix, all keys
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub(crate) start: Option<OsString>,
    /// Where to stop, exclusive
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub(crate) end: Option<OsString>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<OsString>,
}

/// `dendra scan`
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// Which keys
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// At most this many records
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// Largest key first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Keys without their values
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// One JSON object a line instead of KEY TAB VALUE
    #[arg(long)]
    pub(crate) json: bool,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra watch`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("range").required(true).args(["id", "prefix", "start"]))]
pub(crate) struct WatchArgs {
    /// One key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["prefix", "start", "end"])]
    pub(crate) id: Option<OsString>,
    /// All keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "end"])]
    pub(crate) prefix: Option<OsString>,
    /// First key of a range, inclusive
    #[arg(long, value_name = "KEY")]
    pub(crate) start: Option<OsString>,
    /// Where the range stops, exclusive
    #[arg(long, value_name = "KEY", requires = "start")]
    pub(crate) end: Option<OsString>,
    /// Go on behind the token of an event; or now, for changes alone [default: the state first]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) from: Option<String>,
    /// Events without values
    #[arg(long)]
    pub(crate) no_values: bool,
    /// Run this in a shell for each put, delete and expire, one after the other. It finds
    /// DENDRA_EVENT, DENDRA_KEY and DENDRA_VERSION, and the value on stdin
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<OsString>,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra count`
#[derive(Debug, Args)]
pub(crate) struct CountArgs {
    /// Which keys
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// How the records of `dendra load` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFormat {
    /// A folder: path = key, content = value.
    Folder,
    /// One JSON object a line: key or key_base64, value or value_base64, as `scan --json` prints.
    Ndjson,
    /// KEY TAB VALUE a line, as `scan` prints; with --hex or --base64 binary-safe.
    Tsv,
}

/// `dendra load`
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// A folder, an NDJSON or TSV file, or - for stdin
    pub(crate) source: PathBuf,
    /// How records are written [default: a folder is a folder, a file by its extension]
    #[arg(long, value_enum)]
    pub(crate) format: Option<RecordFormat>,
    /// Put this in front of every key
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: OsString,
    /// Records in flight, in batches on up to 8 connections
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) in_flight: u64,
    /// How long one record is tried again while the node refuses or is away
    #[arg(long, value_name = "TIME", default_value = "30s")]
    #[arg(value_parser = crate::config::units::parse_duration)]
    pub(crate) retry_for: Duration,
    /// Append each acknowledged key to this file, percent-encoded, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) acked: Option<PathBuf>,
    /// Write every record that failed to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) failures: Option<PathBuf>,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Copies
    #[command(flatten)]
    pub(crate) quorum: QuorumArgs,
    /// Node and encoding
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `dendra check`
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The data folder
    pub(crate) folder: PathBuf,
    /// Print one JSON object: summary, findings, notes
    #[arg(long)]
    pub(crate) json: bool,
}

/// `dendra dump`
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// A file inside a data folder; its name tells its kind
    pub(crate) file: PathBuf,
    /// Show at most this many records
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) records: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_to_live_is_whole_seconds_with_or_without_a_unit() {
        let seen = [
            "30", "90s", "15m", "12h", "30d", "1.5m", "2000ms", " 7 ", "007",
        ]
        .map(time_to_live);
        let wanted = [30, 90, 900, 43_200, 2_592_000, 90, 2, 7, 7].map(Ok);
        assert_eq!(seen, wanted);
        let most = u64::MAX.to_string();
        assert_eq!(time_to_live(&most), Ok(u64::MAX));
        for text in [
            "",
            "0",
            "0s",
            "-1",
            "1w",
            "1500ms",
            "h",
            "1.5d",
            "d",
            "999999999999999999d",
        ] {
            let error = time_to_live(text).expect_err(text);
            assert!(error.contains("15m"), "{error}");
        }
    }

    #[test]
    fn every_option_of_the_table_is_a_flag() {
        let given = [
            "dendra",
            "config",
            "print",
            "--drain-ms",
            "5",
            "--listen",
            "x",
        ];
        let cli = Cli::try_parse_from(given).expect("both are flags");
        let Command::Config {
            verb: ConfigVerb::Print { settings, .. },
        } = cli.command
        else {
            panic!("config print was given");
        };
        let keys: Vec<&str> = settings.given.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["listen", "drain-ms"]);
    }
}
