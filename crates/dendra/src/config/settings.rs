//! The options as the server takes them.
//!
//! ```text
//! Effective ─► node_settings ─► Settings ─► Settings::check ─► `config print` and `serve` alike
//!                                     └─ the secret of the cluster is read by `serve` alone
//! ```
//!
//! Invariants
//! 1. Options that `config print` accepts, `serve` accepts: both judge by the server's own check,
//!    in its words.
//!
//! Not here: the effect of the settings (crate `server`).
//! See: docs/cli.md.

use super::source::ValueSource;
use super::{Effective, size};
use dendra_engine::Durability;
use dendra_server::settings::{AuditSettings, Timeouts, TlsSettings};
use dendra_server::{Settings, StoreFiles};
use dendra_stores::StorePlace;
use std::path::PathBuf;
use std::time::Duration;

impl Effective {
    /// Everything that the server is told, but for the secret of the cluster.
    ///
    /// # Errors
    /// When the options of the cluster are impossible together.
    pub(crate) fn node_settings(&self) -> Result<Settings, String> {
        let options = &self.options;
        let mut settings = Settings::new(options.data.clone());
        settings.listen.clone_from(&options.listen.0);
        settings.admin = options.admin.0.first().copied();
        settings.allowed_hosts.clone_from(&options.allowed_hosts.0);
        settings
            .allowed_origins
            .clone_from(&options.allowed_origins.0);
        settings.audit = options.audit_log.0.clone().map(|path| AuditSettings {
            path,
            file_bytes: options.audit_log_bytes.0,
            keep: u32::try_from(options.audit_log_keep).unwrap_or(u32::MAX),
        });
        settings.workers = size(options.workers);
        settings.queue = size(options.queue);
        settings.queue_delay_target = Duration::from_millis(options.queue_delay_target_ms);
        settings.scrub_bytes_per_second = options.scrub_rate.0;
        settings.scrub_every = Duration::from_secs(options.scrub_every_s);
        settings.durability = match options.durability {
            "os" => Durability::Os,
            _ => Durability::Sync,
        };
        settings.is_front_door = self.store().is_some();
        settings.memory_bytes = size(options.memory.0);
        // The default follows the memory, and the disk where that is small.
        let is_said = self.setting("memtable").source != ValueSource::Default;
        settings.memtable_bytes = is_said.then(|| size(self.memtable_bytes()));
        settings.value_bytes_max = size(options.value_bytes_max.0);
        settings.loops = Some(size(options.loops)).filter(|loops| *loops > 0);
        settings.connections_max = size(options.connections_max);
        settings.connections_per_address_max = size(options.connections_per_address_max);
        settings.requests_inflight_max = size(options.requests_inflight_max);
        settings.watches_max = size(options.watches_max);
        settings.body_bytes_inflight_max = size(options.body_bytes_inflight_max.0);
        settings.timeouts = Timeouts {
            head: Duration::from_millis(options.head_timeout_ms),
            idle: Duration::from_millis(options.idle_timeout_ms),
            body: Duration::from_millis(options.body_timeout_ms),
            write: Duration::from_millis(options.write_timeout_ms),
        };
        settings.stop_delay_ms = options.stop_delay_ms;
        settings.drain_ms = options.drain_ms;
        settings.tls = self.tls()?;
        settings.cluster = self.cluster()?;
        self.check_border(&settings)?;
        self.check_store()?;
        Ok(settings)
    }

    /// The engine that keeps the records, if that is another one.
    pub(crate) fn store(&self) -> Option<StorePlace> {
        match self.options.store.as_str() {
            "off" => None,
            text => Some(StorePlace::parse(text).expect("it was read when it was given")),
        }
    }

    /// The files for that engine.
    ///
    /// # Errors
    /// When one is named without the other that it goes with.
    pub(crate) fn store_files(&self) -> Result<StoreFiles, String> {
        let options = &self.options;
        let pair = match (options.store_cert.0.clone(), options.store_key.0.clone()) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("store-cert and store-key go together".to_owned()),
        };
        Ok(StoreFiles {
            ca: options.store_ca.0.clone(),
            pair,
            login: options.store_login_file.0.clone(),
        })
    }

    /// A front door is no member.
    fn check_store(&self) -> Result<(), String> {
        let is_set = |key: &&str| self.setting(key).source != ValueSource::Default;
        let wrong = ["cluster", "join"].into_iter().find(is_set);
        let options = &self.options;
        let own = [
            ("store-ca", &options.store_ca),
            ("store-cert", &options.store_cert),
            ("store-key", &options.store_key),
            ("store-login-file", &options.store_login_file),
        ];
        let given = own.into_iter().find(|(_, file)| file.0.is_some());
        if let (None, Some((key, _))) = (self.store(), given) {
            return Err(format!("{key} is for another engine: add store"));
        }
        match (self.store(), wrong) {
            (Some(_), Some(key)) => Err(format!(
                "store and {key} do not go together: the other engine has its own members"
            )),
            _ => Ok(()),
        }
    }

    /// The files of TLS.
    ///
    /// # Errors
    /// When some are named and others that they need are not.
    fn tls(&self) -> Result<Option<TlsSettings>, String> {
        let options = &self.options;
        let change_over = options.tls_change_over == "on";
        let (client_ca, peer_ca) = (
            options.tls_client_ca.0.clone(),
            options.tls_peer_ca.0.clone(),
        );
        let (revoked, renewal) = (options.tls_revoked.0.clone(), &options.tls_renew_with.0);
        if revoked.is_some() && client_ca.is_none() && peer_ca.is_none() {
            return Err(
                "tls-revoked goes with tls-client-ca or tls-peer-ca: without them no certificate is asked for"
                    .to_owned(),
            );
        }
        match (options.tls_cert.0.clone(), options.tls_key.0.clone()) {
            (Some(cert), Some(key)) => Ok(Some(TlsSettings {
                client_ca,
                peer_ca,
                revoked,
                change_over,
                ..TlsSettings::new(cert, key)
            })),
            (None, None)
                if client_ca.is_none()
                    && peer_ca.is_none()
                    && renewal.is_none()
                    && !change_over =>
            {
                Ok(None)
            }
            _ => Err(
                "tls-cert and tls-key go together, and the other options of TLS need both: \
                      dendra cert makes a pair"
                    .to_owned(),
            ),
        }
    }

    /// The folder of the CA with which the node renews its certificate.
    pub(crate) fn renewal(&self) -> Option<PathBuf> {
        self.options.tls_renew_with.0.clone()
    }

    /// Why the server would refuse the options, and the source of the one that the reason begins
    /// with.
    pub(super) fn refusal(&self) -> Option<String> {
        let settings = match self.node_settings() {
            Ok(settings) => settings,
            Err(reason) => return Some(reason),
        };
        let bad = settings.check().err()?;
        Some(match bad.option {
            Some(key) => self.sourced(key, &bad.reason),
            None => bad.reason,
        })
    }

    /// The reason, with the source of the option with which it begins.
    pub(super) fn sourced(&self, key: &str, reason: &str) -> String {
        format!("{reason} ({key}: {})", self.setting(key).source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigInputs;
    use dendra_server::settings::{ClusterSettings, Member, PeerTransport, Secret, Topology};
    use std::ffi::OsString;
    use std::io::Write;

    #[test]
    fn the_defaults_of_the_table_are_the_defaults_of_the_server() {
        let effective = ConfigInputs::default().resolve().expect("nothing was said");
        let theirs = Settings::new("data");
        let ours = Settings {
            memtable_bytes: None,
            ..effective.node_settings().expect("a node by itself")
        };
        assert_eq!(ours, theirs);
        let memtable = theirs.engine_options().memtable_bytes;
        assert_eq!(size(effective.memtable_bytes()), memtable);
    }

    #[test]
    fn every_option_reaches_the_server() {
        let flags = [
            ("listen", "127.0.0.1:1,127.0.0.1:2"),
            ("admin", "off"),
            ("allowed-hosts", "KV.example.com,*.internal"),
            (
                "allowed-origins",
                "https://a.example.com,http://localhost:3000",
            ),
            ("audit-log", "audit.log"),
            ("audit-log-bytes", "1MiB"),
            ("audit-log-keep", "3"),
            ("tls-revoked", "ca.crl"),
            ("tls-cert", "a.crt"),
            ("tls-key", "a.key"),
            ("tls-client-ca", "clients.crt"),
            ("tls-peer-ca", "ca.crt"),
            ("tls-change-over", "on"),
            ("data", "elsewhere"),
            ("workers", "7"),
            ("queue", "70"),
            ("queue-delay-target-ms", "50"),
            ("scrub-rate", "1MiB"),
            ("scrub-every-s", "60"),
            ("durability", "os"),
            ("memory", "64MiB"),
            ("memtable", "2MiB"),
            ("value-bytes-max", "2MiB"),
            ("loops", "3"),
            ("connections-max", "11"),
            ("connections-per-address-max", "10"),
            ("requests-inflight-max", "12"),
            ("watches-max", "13"),
            ("body-bytes-inflight-max", "16MiB"),
            ("head-timeout-ms", "21"),
            ("idle-timeout-ms", "22"),
            ("body-timeout-ms", "23"),
            ("write-timeout-ms", "24"),
            ("stop-delay-ms", "8"),
            ("drain-ms", "9"),
            ("cluster", "h2:1;weight=2,http://h1:1;zone=a"),
            ("self", "http://h2:1"),
            ("replication-factor", "2"),
            ("partitions", "1024"),
            ("cluster-name", "prod"),
            ("peer-transport", "http"),
            ("compare-bytes-per-second", "3MiB"),
            ("forget-every-s", "90"),
            ("insecure-peers", "on"),
            ("insecure-clients", "on"),
        ];
        let said = ConfigInputs {
            flags: flags.map(|(key, text)| (key, text.into())).to_vec(),
            ..ConfigInputs::default()
        };
        let effective = said.resolve().expect("all are fine");
        let settings = effective.node_settings().expect("a member");
        let mut expected = Settings::new("elsewhere");
        expected.listen = vec![([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
        expected.admin = None;
        let hosts = ["kv.example.com", "*.internal"].map(|text| text.parse());
        expected.allowed_hosts = hosts.into_iter().collect::<Result<_, _>>().expect("hosts");
        let origins = ["https://a.example.com", "http://localhost:3000"];
        let origins = origins.map(|text| text.parse());
        expected.allowed_origins = origins.into_iter().collect::<Result<_, _>>().expect("fine");
        expected.audit = Some(AuditSettings {
            path: "audit.log".into(),
            file_bytes: 1 << 20,
            keep: 3,
        });
        let mut tls = TlsSettings::new("a.crt", "a.key");
        tls.revoked = Some("ca.crl".into());
        tls.client_ca = Some("clients.crt".into());
        tls.peer_ca = Some("ca.crt".into());
        tls.change_over = true;
        expected.tls = Some(tls);
        expected.workers = 7;
        expected.queue = 70;
        expected.queue_delay_target = Duration::from_millis(50);
        expected.scrub_bytes_per_second = 1 << 20;
        expected.scrub_every = Duration::from_secs(60);
        expected.durability = Durability::Os;
        expected.memory_bytes = 64 << 20;
        expected.memtable_bytes = Some(2 << 20);
        expected.value_bytes_max = 2 << 20;
        expected.loops = Some(3);
        (expected.connections_max, expected.requests_inflight_max) = (11, 12);
        expected.connections_per_address_max = 10;
        expected.watches_max = 13;
        expected.body_bytes_inflight_max = 16 << 20;
        expected.timeouts = Timeouts {
            head: Duration::from_millis(21),
            idle: Duration::from_millis(22),
            body: Duration::from_millis(23),
            write: Duration::from_millis(24),
        };
        (expected.stop_delay_ms, expected.drain_ms) = (8, 9);
        let members = ["http://h1:1;zone=a", "http://h2:1;weight=2"].map(|text| text.parse());
        let members: Result<Vec<Member>, _> = members.into_iter().collect();
        let topology = Topology::new("prod", members.expect("two members"), 2).expect("a topology");
        let topology = topology.with_partitions(1024).expect("a number");
        let mut cluster = ClusterSettings::new(topology, "http://h2:1").expect("a member");
        cluster.transport = PeerTransport::Http;
        cluster.compare_bytes_per_second = 3 << 20;
        cluster.forget_every_us = 90_000_000;
        expected.cluster = Some(cluster);
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_secret_is_what_the_file_holds() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"hush, hush, hush\n").expect("written");
        let said = ConfigInputs {
            flags: vec![("cluster-secret-file", file.path().into())],
            ..ConfigInputs::default()
        };
        let effective = said.resolve().expect("all are fine");
        assert_eq!(effective.secret(), Ok(Secret::new(b"hush, hush, hush")));
    }

    #[test]
    fn what_the_server_refuses_is_refused_when_the_options_are_read() {
        let said = ConfigInputs {
            flags: vec![("memory", OsString::from("4MiB"))],
            ..ConfigInputs::default()
        };
        let problems = said.resolve().expect_err("serve would not start");
        let sentence = problems.to_string();
        let words = "memory = 4194304 bytes does not hold its parts";
        assert!(sentence.starts_with(words), "{sentence}");
        assert!(sentence.ends_with("(memory: flag)"), "{sentence}");
    }
}
