//! The schedule of backups that a node makes by itself.
//!
//! ```text
//! backup-to, backup-every, backup-keep, backup-admin, backup-key, … ─► BackupSchedule
//! ```
//!
//! Invariants
//! 1. A schedule that could never make a backup is refused when the options are read.
//!
//! Not here: making them (`backup/schedule.rs`).
//! See: docs/cli.md, docs/operating.md.

use super::{Effective, size, units};
use crate::access::AccessArgs;
use crate::backup::pace::RATE_MIN;
use crate::backup::schedule::BackupSchedule;
use dendra_server::Settings;
use dendra_server::tls::check_lets_itself_in;

impl Effective {
    /// The schedule of `--backup-to` and its kin; `None` = no backups.
    ///
    /// # Errors
    /// When the options are impossible together, or beside `settings`.
    pub(crate) fn backup_schedule(
        &self,
        settings: &Settings,
    ) -> Result<Option<BackupSchedule>, String> {
        let options = &self.options;
        let Some(destination) = &options.backup_to.0 else {
            return Ok(None);
        };
        let admin = Some(options.backup_admin.clone()).filter(|admin| admin != "off");
        if admin.is_none() && settings.admin.is_none() {
            return Err(
                "backup-to needs the admin port, which is off: give --admin an address".to_owned(),
            );
        }
        if admin.is_none() && settings.cluster.is_some() {
            return Err("backup-to on a member needs backup-admin: \
                 the admin ports of all members, with commas"
                .to_owned());
        }
        let tls = settings.tls.as_ref();
        let ca = tls.and_then(|tls| tls.peer_ca.clone().or_else(|| tls.client_ca.clone()));
        match &admin {
            // The node asks itself, and trusts its own certificate.
            None => tls.map_or(Ok(()), check_lets_itself_in).map_err(|why| {
                format!(
                    "backup-to asks this node's admin port, which lets the node's own certificate \
                     in under no CA: {why}. Sign it with the CA of tls-client-ca, or name its CA \
                     with tls-peer-ca"
                )
            })?,
            Some(urls) if urls.contains("https://") && ca.is_none() => {
                return Err(
                    "backup-admin with https:// needs tls-peer-ca or tls-client-ca: \
                     the CA that signed the certificates of all members"
                        .to_owned(),
                );
            }
            Some(_) => {}
        }
        let rate = options.backup_bytes_per_second.0;
        if rate > 0 && rate < RATE_MIN {
            let reason = format!(
                "backup-bytes-per-second = {} is too slow: at least {}, or 0 for no limit",
                units::show_bytes(rate),
                units::show_bytes(RATE_MIN)
            );
            return Err(self.sourced("backup-bytes-per-second", &reason));
        }
        Ok(Some(BackupSchedule {
            destination: destination.clone(),
            key_file: options.backup_key.0.clone(),
            every: units::parse_duration(&options.backup_every)?,
            keep: size(options.backup_keep),
            admin,
            access: AccessArgs {
                ca,
                cert: tls.map(|tls| tls.cert.clone()),
                key_file: tls.map(|tls| tls.key.clone()),
                // The node asks itself and the others, as the operator may.
                token_file: options.root_token_file.0.clone(),
            },
            tls: tls.cloned(),
            bytes_per_second: Some(rate).filter(|rate| *rate > 0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigInputs;
    use std::time::Duration;

    fn schedule(flags: &[(&'static str, &str)]) -> Result<Option<BackupSchedule>, String> {
        let said = ConfigInputs {
            flags: flags
                .iter()
                .map(|(key, text)| (*key, text.into()))
                .collect(),
            ..ConfigInputs::default()
        };
        let effective = said.resolve().map_err(|problems| problems.to_string())?;
        let settings = effective.node_settings()?;
        effective.backup_schedule(&settings)
    }

    #[test]
    fn a_schedule_is_read_and_an_impossible_one_is_refused_with_the_way_out() {
        assert_eq!(schedule(&[("backup-every", "1h")]), Ok(None));
        let flags = [
            ("backup-to", "/b"),
            ("backup-every", "90m"),
            ("backup-keep", "7"),
            ("backup-bytes-per-second", "20MiB"),
        ];
        let read = schedule(&flags).expect("possible").expect("there is one");
        assert_eq!(read.every, Duration::from_secs(5_400));
        assert_eq!((read.keep, read.bytes_per_second), (7, Some(20 << 20)));
        assert_eq!((read.admin, read.tls), (None, None));
        let member = [
            ("cluster", "h1:1,h2:1"),
            ("self", "h1:1"),
            ("insecure-peers", "on"),
        ];
        for (more, words) in [
            (&[("admin", "off")][..], "needs the admin port"),
            (&member, "the admin ports of all members"),
            (&[("backup-every", "5")], "is not a length of time"),
            (&[("backup-every", "10ms")], "at least a second"),
            (&[("backup-bytes-per-second", "1KiB")], "is too slow"),
            (&[("backup-admin", "h1:9080")], "is neither http nor https"),
            (
                &[("backup-admin", "https://h1:9080")],
                "needs tls-peer-ca or tls-client-ca",
            ),
        ] {
            let mut flags = vec![("backup-to", "/b")];
            flags.extend_from_slice(more);
            let refused = schedule(&flags).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }
}
