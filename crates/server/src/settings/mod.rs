//! The operator's decisions about one node, as numbers and addresses with their meaning.
//!
//! ```text
//! options of the binary ─► Settings ─► Server::start      one field per option, no defaults hidden
//!                             └─ cluster.rs               which cluster, which member, which secret
//! ```
//!
//! Invariants
//! 1. `check` refuses settings that the node cannot honour; it adjusts none in silence.
//! 2. A field is a plain value: where it came from (flag, environment, file) is the binary's
//!    business.
//!
//! Not here: parsing and precedence (crate `dendra`), bounds that are no settings (`limits.rs`).
//! See: docs/overload.md.

mod audit;
mod cluster;
mod tls;
mod token;

pub use audit::AuditSettings;
pub use cluster::{ClusterSettings, JoinSettings, PeerTransport, Secret};
pub use dendra_ownership::{
    BadMember, BadTopology, Member, MemberIndex, Partition, Ring, Topology,
};
pub use dendra_wire::{HostRule, OriginRule};
pub use tls::TlsSettings;
pub use token::RootToken;

use crate::limits;
use dendra_base::limits as base_limits;
use dendra_engine::{BadOptions, Durability, Options};
use dendra_wire::Hosts;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long a client may take for each part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a head to its end.
    pub head: Duration,
    /// Between the end of one answer and the first byte of the next request.
    pub idle: Duration,
    /// For a body, before the allowance that grows with its length
    /// (`limits::BODY_BYTES_PER_SECOND_MIN`).
    pub body: Duration,
    /// Without any progress while an answer waits for the client to read.
    pub write: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            head: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            body: Duration::from_secs(5),
            write: Duration::from_secs(10),
        }
    }
}

/// Everything an operator decides about one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses of the data plane; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin plane; `None` = no admin plane.
    pub admin: Option<SocketAddr>,
    /// The data folder, created when missing.
    pub data: PathBuf,
    /// Event loops; `None` = one for every processor the process may use.
    pub loops: Option<usize>,
    /// Threads of the store pool, for reads that would block.
    pub workers: usize,
    /// Jobs that may wait for a thread of the store pool.
    pub queue: usize,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Does another engine keep the records? Then the own one holds no value of a client.
    pub is_front_door: bool,
    /// All memory the engine may hold, in bytes.
    pub memory_bytes: usize,
    /// Size of one memtable in bytes; `None` = a share of `memory_bytes`.
    pub memtable_bytes: Option<usize>,
    /// Largest value in bytes.
    pub value_bytes_max: usize,
    /// How long a node that was asked to stop goes on serving, with readiness off, in milliseconds.
    pub stop_delay_ms: u64,
    /// How long a stop waits for requests in flight, in milliseconds.
    pub drain_ms: u64,
    /// Client connections at once.
    pub connections_max: usize,
    /// Client connections of one address at once. Zero: as many as come.
    pub connections_per_address_max: usize,
    /// Requests that may wait for the store or the log at once.
    pub requests_inflight_max: usize,
    /// Watches of clients at once.
    pub watches_max: usize,
    /// Bytes of bodies that are still arriving and of answers that are still leaving, at once.
    pub body_bytes_inflight_max: usize,
    /// How long a client may take.
    pub timeouts: Timeouts,
    /// How long requests may wait for their event loop; beyond it the newest go first. Zero: never.
    pub queue_delay_target: Duration,
    /// The bytes of tables that a scrub reads a second; 0 = no scrub.
    pub scrub_bytes_per_second: u64,
    /// A pass over all tables begins so long after the one before it.
    pub scrub_every: Duration,
    /// Hosts that requests may name beside addresses, `localhost` and the node's own names.
    pub allowed_hosts: Vec<HostRule>,
    /// Sites with pages that may ask the data port.
    pub allowed_origins: Vec<OriginRule>,
    /// The audit log; `None` = there is none.
    pub audit: Option<AuditSettings>,
    /// Which member of which cluster the node is; `None` = a node by itself.
    pub cluster: Option<ClusterSettings>,
    /// The certificates and keys for connections; `None` = clear text.
    pub tls: Option<TlsSettings>,
    /// Opens everything, and switches tokens on; `None` = no token is asked for.
    pub root_token: Option<RootToken>,
}

impl Settings {
    /// The defaults of a node, for the data folder `data`.
    pub fn new(data: impl Into<PathBuf>) -> Settings {
        Settings {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            admin: Some(SocketAddr::from(([127, 0, 0, 1], 9080))),
            data: data.into(),
            loops: None,
            workers: limits::WORKERS_DEFAULT,
            queue: limits::STORE_QUEUE_LEN_MAX_DEFAULT,
            durability: Durability::Sync,
            is_front_door: false,
            memory_bytes: limits::MEMORY_BYTES_DEFAULT,
            memtable_bytes: None,
            value_bytes_max: base_limits::VALUE_BYTES_MAX_DEFAULT,
            stop_delay_ms: 0,
            drain_ms: limits::DRAIN_MS_DEFAULT,
            connections_max: limits::CONNECTIONS_MAX_DEFAULT,
            connections_per_address_max: 0,
            requests_inflight_max: limits::REQUESTS_INFLIGHT_MAX_DEFAULT,
            watches_max: limits::WATCHES_MAX_DEFAULT,
            body_bytes_inflight_max: limits::BODY_BYTES_INFLIGHT_MAX_DEFAULT,
            timeouts: Timeouts::default(),
            queue_delay_target: Duration::from_millis(limits::QUEUE_DELAY_TARGET_MS_DEFAULT),
            scrub_bytes_per_second: limits::SCRUB_BYTES_PER_SECOND_DEFAULT,
            scrub_every: limits::SCRUB_EVERY_DEFAULT,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            audit: None,
            cluster: None,
            tls: None,
            root_token: None,
        }
    }

    /// The hosts that the node answers for: the machine's name and that of its own URL are among
    /// them.
    pub(crate) fn hosts(&self) -> Hosts {
        let machine = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let member = self.cluster.as_ref().map(|cluster| {
            let url = &cluster.member().url;
            dendra_wire::hosts::authority_of_url(url).to_owned()
        });
        Hosts::new(std::iter::once(machine).chain(member), &self.allowed_hosts)
            .with_origins(&self.allowed_origins)
    }

    /// Largest value with its metadata, in bytes.
    pub fn wrapped_value_bytes_max(&self) -> usize {
        self.value_bytes_max + base_limits::WRAPPER_BYTES_MAX
    }

    /// The engine's share of the settings.
    pub fn engine_options(&self) -> Options {
        if self.is_front_door {
            let (memory_bytes, value_bytes) =
                (limits::FRONT_ENGINE_BYTES, limits::FRONT_ENGINE_VALUE_BYTES);
            return Options::for_memory(memory_bytes, value_bytes);
        }
        let mut options = Options::for_memory(self.memory_bytes, self.wrapped_value_bytes_max());
        if let Some(bytes) = self.memtable_bytes {
            options = options.with_memtable(bytes);
        }
        options.durability = self.durability;
        options
    }

    /// Members that speak TLS alone must be asked over TLS.
    fn check_tls(&self) -> Result<(), BadOptions> {
        let (Some(tls), Some(cluster)) = (&self.tls, &self.cluster) else {
            return Ok(());
        };
        if tls.peer_ca.is_none() && !tls.change_over && cluster.topology.len() > 1 {
            Err(
            "tls-cert is set, and tls-peer-ca is not: the other members would speak clear text to a port that takes none. \
             Name the CA of the members with --tls-peer-ca, or say --tls-change-over on while members change over"
                .to_owned()
                .into(),
        )
        } else {
            Ok(())
        }
    }

    /// The first reason why these settings cannot work, with the way out.
    pub fn check(&self) -> Result<(), BadOptions> {
        let at_least_one = [
            ("workers", self.workers),
            ("queue", self.queue),
            ("loops", self.loops.unwrap_or(1)),
            ("connections-max", self.connections_max),
            ("requests-inflight-max", self.requests_inflight_max),
            ("watches-max", self.watches_max),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                let reason = format!("{name} = 0 would serve no client: give at least 1");
                return Err(BadOptions::of(name, reason));
            }
        }
        if self.listen.is_empty() {
            let reason = "listen names no address: give at least one";
            return Err(reason.to_owned().into());
        }
        let addresses: Vec<&SocketAddr> = self.listen.iter().chain(&self.admin).collect();
        for (at, address) in addresses.iter().enumerate() {
            if address.port() != 0 && addresses[..at].contains(address) {
                let reason =
                    format!("{address} is named twice: listen and admin need an address each");
                return Err(reason.into());
            }
        }
        let most = [
            ("workers", self.workers, limits::WORKERS_MAX),
            ("queue", self.queue, limits::STORE_QUEUE_LEN_MAX_LIMIT),
            ("loops", self.loops.unwrap_or(1), limits::LOOPS_MAX),
            (
                "queue-delay-target-ms",
                self.queue_delay_target.as_millis() as usize,
                limits::QUEUE_DELAY_TARGET_MS_MAX as usize,
            ),
        ];
        for (name, value, max) in most {
            if value > max {
                let reason = format!("{name} = {value} is more than {max}");
                return Err(BadOptions::of(name, reason));
            }
        }
        self.check_tls()?;
        self.engine_options().check()?;
        // Loops lease room in pieces, so that up to a quarter may lie idle in the wrong place.
        if self.body_bytes_inflight_max < 2 * self.value_bytes_max {
            let reason = format!(
                "body-bytes-inflight-max = {} does not fit two values of value-bytes-max = {}",
                self.body_bytes_inflight_max, self.value_bytes_max
            );
            return Err(BadOptions::of("body-bytes-inflight-max", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work_together() {
        assert_eq!(Settings::new("data").check(), Ok(()));
    }

    #[test]
    fn a_front_door_takes_long_values_without_memory_for_them() {
        let mut settings = Settings::new("data");
        settings.value_bytes_max = 8 << 20;
        let reason = settings.check().expect_err("its engine keeps them").reason;
        assert!(reason.contains("does not hold its parts"), "{reason}");
        settings.is_front_door = true;
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn a_setting_that_serves_nobody_is_refused_by_name() {
        let mut settings = Settings::new("data");
        settings.workers = 0;
        let reason = settings.check().expect_err("no workers").reason;
        assert!(reason.starts_with("workers = 0"), "{reason}");
    }

    #[test]
    fn one_address_is_not_bound_twice() {
        let mut settings = Settings::new("data");
        settings.admin = Some(settings.listen[0]);
        let reason = settings.check().expect_err("twice").reason;
        assert!(reason.contains("is named twice"), "{reason}");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        (settings.listen, settings.admin) = (vec![any, any], Some(any));
        assert_eq!(settings.check(), Ok(()), "free ports differ");
    }

    #[test]
    fn a_value_that_the_engine_cannot_store_is_refused() {
        let mut settings = Settings::new("data");
        settings.value_bytes_max = base_limits::VALUE_BYTES_MAX_LIMIT + 1;
        let reason = settings.check().expect_err("too large").reason;
        assert!(reason.starts_with("value-bytes-max"), "{reason}");
    }
}
