//! Every option of `dendra serve`, once: flag, variable, file key, help and default all come from
//! this table.
//!
//! ```text
//! key               flag                  variable                 file
//! value-bytes-max   --value-bytes-max V   DENDRA_VALUE_BYTES_MAX   value-bytes-max = "1MiB"
//! ```
//!
//! Invariants
//! 1. Keys are unique, lower case, with dashes; an option whose default derives from another stands
//!    after it.
//! 2. Every fixed default parses as its own kind.
//!
//! Not here: texts as values (`parse.rs`); precedence when two places set one option (`mod.rs`);
//! the effect of the options (crate `server`).
//! See: docs/cli.md.

use dendra_base::limits;
use dendra_server::settings::{HostRule, Member, OriginRule};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The meaning of an option's text, and its possible values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OptionKind {
    /// One or more of `host:port`, with commas.
    Addresses,
    /// One `host:port`, or `off`.
    AddressOrOff,
    /// A folder; created when missing.
    Folder,
    /// A plain number in a range.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A size in a range.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Members of a cluster, with commas, or `off`.
    Members,
    /// The address of one member, or `off`.
    MemberOrOff,
    /// The name of a cluster.
    ClusterName,
    /// A file, or `off`.
    FileOrOff,
    /// Names of hosts, with commas, or `off`.
    Hosts,
    /// Origins of pages, with commas, or `off`.
    Origins,
    /// A length of time, at least a second.
    Time,
    /// Where another engine is, or `off`.
    StoreOrOff,
    /// URLs of nodes, with commas, or `off`.
    Urls,
    /// Log levels per target: `info,dendra_engine=debug`.
    Levels,
}

/// A parsed option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionValue {
    /// Where to listen; nowhere when empty.
    Addresses(Vec<SocketAddr>),
    /// A folder.
    Folder(PathBuf),
    /// A plain number.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// One of the words of `OptionKind::Choice`.
    Choice(&'static str),
    /// Members of a cluster; none when empty.
    Members(Vec<Member>),
    /// Hosts that requests may name.
    Hosts(Vec<HostRule>),
    /// Sites whose pages may ask.
    Origins(Vec<OriginRule>),
    /// A file, or none.
    File(Option<PathBuf>),
    /// Any other text, checked.
    Text(String),
}

/// A value from the values of earlier options.
pub(crate) type Derivation = fn(&dyn Fn(&str) -> OptionValue) -> OptionValue;

/// The value of an option that is not set.
#[derive(Clone, Copy)]
pub(crate) enum Fallback {
    /// This text, parsed as any other.
    Fixed(&'static str),
    /// Computed from options that stand earlier in the table.
    Derived {
        /// For the help: how it is computed.
        rule: &'static str,
        /// The computation.
        of: Derivation,
    },
}

/// One option.
pub(crate) struct Spec {
    /// The name, as in the flag and in the file.
    pub(crate) key: &'static str,
    /// In the help: the word for the value.
    pub(crate) shape: &'static str,
    /// The values that it accepts.
    pub(crate) kind: OptionKind,
    /// When it is not set.
    pub(crate) fallback: Fallback,
    /// One sentence for the help.
    pub(crate) help: &'static str,
}

impl Spec {
    /// The environment variable of this option.
    pub(crate) fn variable(&self) -> String {
        format!("DENDRA_{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The table.
pub(crate) static OPTIONS: [Spec; 60] = [
    Spec {
        key: "listen",
        shape: "HOST:PORT",
        kind: OptionKind::Addresses,
        fallback: Fallback::Fixed("127.0.0.1:8080"),
        help: "Addresses of the data port, with commas between them; port 0 takes a free port",
    },
    Spec {
        key: "admin",
        shape: "HOST:PORT",
        kind: OptionKind::AddressOrOff,
        fallback: Fallback::Fixed("127.0.0.1:9080"),
        help: "Address of the admin port (health, metrics, status), or off",
    },
    Spec {
        key: "allowed-hosts",
        shape: "NAMES",
        kind: OptionKind::Hosts,
        fallback: Fallback::Fixed("off"),
        help: "Names of this node that requests may use beside addresses, localhost, the machine's name and --self, with commas: kv.example.com, *.example.com, or * for every name",
    },
    Spec {
        key: "allowed-origins",
        shape: "ORIGINS",
        kind: OptionKind::Origins,
        fallback: Fallback::Fixed("off"),
        help: "Sites whose pages may ask the data port (CORS), with commas: https://app.example.com; pages of all others are refused",
    },
    Spec {
        key: "tls-cert",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Certificate of this node (PEM, with those between it and its CA): both ports speak TLS alone",
    },
    Spec {
        key: "tls-key",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Key of the certificate (PEM); open to its owner alone",
    },
    Spec {
        key: "tls-client-ca",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "CA whose certificates clients must show",
    },
    Spec {
        key: "tls-peer-ca",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "CA of the members: they speak TLS with each other, and show certificates with the hosts of their URLs",
    },
    Spec {
        key: "tls-revoked",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Certificates that their CA took back (PEM, one list of each CA): they are refused",
    },
    Spec {
        key: "tls-renew-with",
        shape: "FOLDER",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Folder with ca.crt and ca.key, as dendra cert makes them: the node renews its certificate when a third of its time is left",
    },
    Spec {
        key: "tls-change-over",
        shape: "off|on",
        kind: OptionKind::Choice(&["off", "on"]),
        fallback: Fallback::Fixed("off"),
        help: "on = clear text is taken beside TLS, while clients and members change over",
    },
    Spec {
        key: "root-token-file",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "File with the token that may do everything and makes the others: with it every client needs a token",
    },
    Spec {
        key: "audit-log",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "File of lines of JSON: failed logins, changes of tokens, calls on the admin port, restores",
    },
    Spec {
        key: "audit-log-bytes",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 4 << 10,
            max: 1 << 40,
        },
        fallback: Fallback::Fixed("16MiB"),
        help: "Size at which the file of the audit log is put aside",
    },
    Spec {
        key: "audit-log-keep",
        shape: "N",
        kind: OptionKind::Count { min: 0, max: 1_000 },
        fallback: Fallback::Fixed("7"),
        help: "Files of the audit log that were put aside and stay",
    },
    Spec {
        key: "insecure-clients",
        shape: "off|on",
        kind: OptionKind::Choice(&["off", "on"]),
        fallback: Fallback::Fixed("off"),
        help: "on = other machines may reach the node without a token or a certificate: every program that does can read and write all records",
    },
    Spec {
        key: "data",
        shape: "FOLDER",
        kind: OptionKind::Folder,
        fallback: Fallback::Fixed("data"),
        help: "Data folder, created when missing",
    },
    Spec {
        key: "store",
        shape: "URL",
        kind: OptionKind::StoreOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Another engine that keeps the records instead of the data folder: etcd://HOST:PORT,…/PREFIX or cassandra://HOST:PORT,…/KEYSPACE, in a build with its driver",
    },
    Spec {
        key: "store-ca",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "CA that signed the certificates of the other engine's servers (PEM): they are spoken to by TLS alone",
    },
    Spec {
        key: "store-cert",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Certificate that is shown to the other engine's servers (PEM), where they ask for one",
    },
    Spec {
        key: "store-key",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Its key (PEM), open to its owner alone",
    },
    Spec {
        key: "store-login-file",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "File with USER:PASSWORD for the other engine, open to its owner alone",
    },
    Spec {
        key: "workers",
        shape: "N",
        kind: OptionKind::Count { min: 1, max: 256 },
        fallback: Fallback::Fixed("4"),
        help: "Threads of the store pool for reads that must wait for the disk, and as many for scans",
    },
    Spec {
        key: "queue",
        shape: "N",
        kind: OptionKind::Count {
            min: 1,
            max: 1 << 16,
        },
        fallback: Fallback::Fixed("1024"),
        help: "Operations that may wait for the store pool; more are refused with 503",
    },
    Spec {
        key: "queue-delay-target-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 0,
            max: 10_000,
        },
        fallback: Fallback::Fixed("30"),
        help: "How long requests may wait for the processor: when it is longer for a while, the newest go first and some of the others are refused with 503; 0 = never",
    },
    Spec {
        key: "scrub-rate",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 0,
            max: 1 << 34,
        },
        fallback: Fallback::Fixed("4MiB"),
        help: "Bytes of tables that are read and checked a second, to find damage before a client does; 0 = none",
    },
    Spec {
        key: "scrub-every-s",
        shape: "S",
        kind: OptionKind::Count {
            min: 1,
            max: 31_536_000,
        },
        fallback: Fallback::Fixed("86400"),
        help: "Seconds from the beginning of one check of all tables to the next",
    },
    Spec {
        key: "durability",
        shape: "sync|os",
        kind: OptionKind::Choice(&["sync", "os"]),
        fallback: Fallback::Fixed("sync"),
        help: "When a write is acknowledged: sync = after fdatasync, os = after write",
    },
    Spec {
        key: "memory",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 4 << 20,
            max: 1 << 44,
        },
        fallback: Fallback::Fixed("256MiB"),
        help: "Memory the engine may hold: memtables, cached blocks, indexes; at least 40MiB with values of up to 1MiB, 11MiB with up to 64KiB",
    },
    Spec {
        key: "memtable",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 64 << 10,
            max: 1 << 32,
        },
        fallback: Fallback::Derived {
            rule: "an eighth of memory, 1MiB to 64MiB",
            of: |earlier| match earlier("memory") {
                OptionValue::Bytes(memory) => {
                    OptionValue::Bytes((memory / 8).clamp(1 << 20, 64 << 20))
                }
                other => other,
            },
        },
        help: "Size at which a memtable is written to a table; at most a quarter of memory",
    },
    Spec {
        key: "value-bytes-max",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 1,
            max: limits::VALUE_BYTES_MAX_LIMIT as u64,
        },
        fallback: Fallback::Fixed("1MiB"),
        help: "Largest value a client may store; more is answered with 413",
    },
    Spec {
        key: "loops",
        shape: "N",
        kind: OptionKind::Count { min: 0, max: 255 },
        fallback: Fallback::Fixed("0"),
        help: "Event loops; 0 = one for each processor that the process may use",
    },
    Spec {
        key: "connections-max",
        shape: "N",
        kind: OptionKind::Count {
            min: 1,
            max: 1_048_576,
        },
        fallback: Fallback::Fixed("16384"),
        help: "Connections of clients at once; above it no connection is accepted until one closes",
    },
    Spec {
        key: "connections-per-address-max",
        shape: "N",
        kind: OptionKind::Count {
            min: 0,
            max: 1_048_576,
        },
        fallback: Fallback::Fixed("0"),
        help: "Connections of one client's address (of IPv6, one /64) at once; more are closed; 0 = its share of all",
    },
    Spec {
        key: "requests-inflight-max",
        shape: "N",
        kind: OptionKind::Count {
            min: 1,
            max: 1_048_576,
        },
        fallback: Fallback::Fixed("4096"),
        help: "Requests that may wait for the log or the store pool at once; more are refused with 503",
    },
    Spec {
        key: "body-bytes-inflight-max",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 64 << 10,
            max: 1 << 40,
        },
        fallback: Fallback::Fixed("64MiB"),
        help: "Bytes of bodies that arrive and of answers that leave, at once; at least two of the largest values",
    },
    Spec {
        key: "head-timeout-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 1,
            max: 3_600_000,
        },
        fallback: Fallback::Fixed("5000"),
        help: "Milliseconds that the head of a request may take, from its first byte",
    },
    Spec {
        key: "idle-timeout-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 1,
            max: 3_600_000,
        },
        fallback: Fallback::Fixed("60000"),
        help: "Milliseconds that a connection may rest between two requests",
    },
    Spec {
        key: "body-timeout-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 1,
            max: 3_600_000,
        },
        fallback: Fallback::Fixed("5000"),
        help: "Milliseconds that a body may take, and another second for every 64 KiB of it that arrived",
    },
    Spec {
        key: "write-timeout-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 1,
            max: 3_600_000,
        },
        fallback: Fallback::Fixed("10000"),
        help: "Milliseconds that an answer may wait for a client that does not read it",
    },
    Spec {
        key: "drain-ms",
        shape: "MS",
        kind: OptionKind::Count {
            min: 0,
            max: 3_600_000,
        },
        fallback: Fallback::Fixed("5000"),
        help: "Milliseconds that requests in flight may take after SIGTERM",
    },
    Spec {
        key: "cluster",
        shape: "URL,URL,…",
        kind: OptionKind::Members,
        fallback: Fallback::Fixed("off"),
        help: "All members of the cluster, this node too, the same list on each; an entry may end in ;weight=N;zone=NAME",
    },
    Spec {
        key: "self",
        shape: "URL",
        kind: OptionKind::MemberOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Which of the members this node is",
    },
    Spec {
        key: "join",
        shape: "URL",
        kind: OptionKind::MemberOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Any member of a running cluster, which this node joins as --self; not looked at once its folder is a member's",
    },
    Spec {
        key: "replace",
        shape: "URL",
        kind: OptionKind::MemberOrOff,
        fallback: Fallback::Fixed("off"),
        help: "With --join: the lost member whose place this node takes",
    },
    Spec {
        key: "replication-factor",
        shape: "N",
        kind: OptionKind::Count { min: 1, max: 100 },
        fallback: Fallback::Fixed("3"),
        help: "Copies of a record, as many as there are members at most; the same on each",
    },
    Spec {
        key: "partitions",
        shape: "N",
        kind: OptionKind::Choice(&["256", "1024", "4096", "16384"]),
        fallback: Fallback::Fixed("256"),
        help: "Parts of the key space, fixed when a cluster is made: 256 for up to 10 members, 1024 for 20, 4096 for 50, 16384 for 100",
    },
    Spec {
        key: "cluster-name",
        shape: "NAME",
        kind: OptionKind::ClusterName,
        fallback: Fallback::Fixed("dendra"),
        help: "Name of the cluster: members of another one are refused",
    },
    Spec {
        key: "cluster-secret-file",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "File with a secret of at least 16 bytes that members prove to each other to know; not open to other users",
    },
    Spec {
        key: "insecure-peers",
        shape: "off|on",
        kind: OptionKind::Choice(&["off", "on"]),
        fallback: Fallback::Fixed("off"),
        help: "on = a cluster beyond loopback without a secret: every program that reaches the port can be a member and destroy it",
    },
    Spec {
        key: "peer-transport",
        shape: "frames|http",
        kind: OptionKind::Choice(&["frames", "http"]),
        fallback: Fallback::Fixed("frames"),
        help: "How this member asks the others: frames = one upgraded connection, batched; http = a plain request for each question",
    },
    Spec {
        key: "backup-to",
        shape: "FOLDER",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "Folder of backups that this node makes by itself, or off",
    },
    Spec {
        key: "backup-key",
        shape: "FILE",
        kind: OptionKind::FileOrOff,
        fallback: Fallback::Fixed("off"),
        help: "File of the key with which those backups are encrypted (dendra backup key FILE makes one), or off",
    },
    Spec {
        key: "backup-every",
        shape: "TIME",
        kind: OptionKind::Time,
        fallback: Fallback::Fixed("24h"),
        help: "How long from the begin of one backup to that of the next: 1h, 24h",
    },
    Spec {
        key: "backup-keep",
        shape: "N",
        kind: OptionKind::Count {
            min: 0,
            max: 100_000,
        },
        fallback: Fallback::Fixed("0"),
        help: "How many of the newest backups stay; older ones are removed after each backup; 0 = all stay",
    },
    Spec {
        key: "backup-admin",
        shape: "URL,URL,…",
        kind: OptionKind::Urls,
        fallback: Fallback::Fixed("off"),
        help: "Admin ports of all members, with commas, for a backup of the cluster; off = this node by itself",
    },
    Spec {
        key: "backup-bytes-per-second",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 0,
            max: 1 << 44,
        },
        fallback: Fallback::Fixed("0"),
        help: "Bytes that such a backup reads a second at most, of all nodes together; 0 = no limit",
    },
    Spec {
        key: "compare-bytes-per-second",
        shape: "SIZE",
        kind: OptionKind::Bytes {
            min: 0,
            max: 1 << 40,
        },
        fallback: Fallback::Fixed("2MiB"),
        help: "Keys and values that a member compares with its peers in a second, to repair differences; up to 16 times as many while deletes wait for it; 0 = no comparisons",
    },
    Spec {
        key: "forget-every-s",
        shape: "SECONDS",
        kind: OptionKind::Count {
            min: 0,
            max: 31_536_000,
        },
        fallback: Fallback::Fixed("600"),
        help: "Seconds between two steps of the horizon, at least: deletes give their space back behind six of them; 0 = never",
    },
    Spec {
        key: "log",
        shape: "LEVELS",
        kind: OptionKind::Levels,
        fallback: Fallback::Fixed("info"),
        help: "Log levels: off, error, warn, info, debug, trace, or per target: info,dendra_engine=debug",
    },
];

/// The known word closest to `wrong`, when it is close enough to be the meant one.
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

    fn find(key: &str) -> Option<&'static Spec> {
        OPTIONS.iter().find(|spec| spec.key == key)
    }

    #[test]
    fn keys_are_unique_and_name_their_variable() {
        for (i, spec) in OPTIONS.iter().enumerate() {
            assert!(!OPTIONS[..i].iter().any(|other| other.key == spec.key));
        }
        let spec = find("value-bytes-max").expect("it is in the table");
        assert_eq!(spec.variable(), "DENDRA_VALUE_BYTES_MAX");
    }

    #[test]
    fn the_document_has_every_option_with_its_variable_and_default() {
        let document = include_str!("../../../../docs/cli.md");
        for spec in &OPTIONS {
            let default = match spec.fallback {
                Fallback::Fixed(text) => format!("`{text}`"),
                Fallback::Derived { rule, .. } => rule.replace("1MiB to 64MiB", "1 MiB to 64 MiB"),
            };
            let row = format!("| `--{}` | `{}` | {default} |", spec.key, spec.variable());
            assert!(document.contains(&row), "docs/cli.md lacks: {row}");
        }
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        let keys = || OPTIONS.iter().map(|spec| spec.key);
        assert_eq!(closest("memmory", keys()), Some("memory"));
        assert_eq!(closest("value_bytes_max", keys()), Some("value-bytes-max"));
        assert_eq!(closest("colour", keys()), None);
    }
}
