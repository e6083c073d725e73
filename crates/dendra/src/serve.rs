//! `dendra serve`: options become settings, and the server does the rest.
//!
//! ```text
//! flags, environment, file ─► Effective ─► Settings ─► dendra_server::serve ─► exit code
//! stderr, once it serves:  listening on http://127.0.0.1:8080 admin on http://127.0.0.1:9080
//! ```
//!
//! Invariants
//! 1. The line is printed when clients are accepted, with the ports that port 0 turned into.
//! 2. What the server refuses ends with its code: 2 settings, 3 folder, 4 address.
//!
//! Not here: signals, threads, sockets (crate `server`).
//! See: docs/cli.md, docs/api.md.

use crate::cli::{Colour, SettingsFlags};
use crate::config::table::Value;
use crate::config::{Effective, Said, Source};
use crate::console::Console;
use crate::exit::{Exit, Failure, Outcome};
use crate::logs;
use dendra_engine::Durability;
use dendra_server::{ExitReason, Running, Settings};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `dendra serve`
pub(crate) fn serve(flags: &SettingsFlags, colour: Colour, console: Console) -> Outcome {
    let effective = Said::gather(flags.given.clone(), flags.config.as_deref())
        .and_then(|said| said.resolve())
        .map_err(|problems| Failure::usage(problems.to_string()))?;
    let settings = settings(&effective).map_err(Failure::usage)?;
    start_log(&effective, colour, console)?;
    let reason = dendra_server::serve(settings, |running| announce(running, console));
    match reason {
        ExitReason::Stopped => Ok(Exit::OK),
        other => Err(Failure::new(Exit::from(&other), other.to_string())),
    }
}

fn start_log(effective: &Effective, colour: Colour, console: Console) -> Result<(), Failure> {
    let levels = effective.setting("log");
    // `-v` and `--quiet` are for a person in a hurry: what anybody wrote down beats them.
    let text = match (&levels.value, &levels.source) {
        (_, Source::Default) if console.is_quiet => "warn",
        (_, Source::Default) if console.verbosity > 1 => "trace",
        (_, Source::Default) if console.verbosity > 0 => "debug",
        (Value::Text(text), _) => text,
        _ => unreachable!("the table says that levels are text"),
    };
    let levels = logs::parse_levels(text).map_err(Failure::usage)?;
    let is_coloured = match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    };
    logs::start(levels, is_coloured).map_err(|sentence| Failure::new(Exit::FAILURE, sentence))
}

fn announce(running: &Running, console: Console) {
    let urls: Vec<String> = running
        .addrs()
        .iter()
        .map(|a| format!("http://{a}"))
        .collect();
    let admin = match running.admin_addr() {
        Some(address) => format!("http://{address}"),
        None => "off".to_owned(),
    };
    console.note(&format!("listening on {} admin on {admin}", urls.join(",")));
}

/// Requires: `key` is an option of addresses.
fn addresses(effective: &Effective, key: &str) -> Vec<SocketAddr> {
    match &effective.setting(key).value {
        Value::Addresses(addresses) => addresses.clone(),
        _ => unreachable!("the table says that {key} is addresses"),
    }
}

fn data(effective: &Effective) -> PathBuf {
    match &effective.setting("data").value {
        Value::Folder(path) => path.clone(),
        _ => unreachable!("the table says that data is a folder"),
    }
}

/// Everything that the server is told; the secret of the cluster is read here.
fn settings(effective: &Effective) -> Result<Settings, String> {
    let durability = match effective.setting("durability").value {
        Value::Choice("os") => Durability::Os,
        _ => Durability::Sync,
    };
    let mut settings = Settings::new(data(effective));
    settings.listen = addresses(effective, "listen");
    settings.admin = addresses(effective, "admin").first().copied();
    settings.workers = effective.size("workers");
    settings.queue = effective.size("queue");
    settings.durability = durability;
    settings.memory_bytes = effective.size("memory");
    settings.memtable_bytes = Some(effective.size("memtable"));
    settings.value_bytes_max = effective.size("value-bytes-max");
    settings.drain_ms = effective.number("drain-ms");
    settings.cluster = effective.cluster()?;
    if let Some(cluster) = &mut settings.cluster {
        cluster.secret = effective.secret()?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_server::settings::{ClusterSettings, Member, PeerTransport, Secret, Topology};
    use std::io::Write;

    #[test]
    fn the_defaults_of_the_table_are_the_defaults_of_the_server() {
        let effective = Said::default().resolve().expect("nothing was said");
        let theirs = Settings::new("data");
        let ours = Settings {
            memtable_bytes: None,
            ..settings(&effective).expect("no file is named")
        };
        assert_eq!(ours, theirs);
        let memtable = theirs.engine_options().memtable_bytes;
        assert_eq!(effective.size("memtable"), memtable);
    }

    #[test]
    fn every_option_reaches_the_server() {
        let mut secret = tempfile::NamedTempFile::new().expect("a file");
        secret.write_all(b"hush\n").expect("written");
        let path = secret.path().to_str().expect("a plain name");
        let flags = [
            ("listen", "127.0.0.1:1,127.0.0.1:2"),
            ("admin", "off"),
            ("data", "elsewhere"),
            ("workers", "7"),
            ("queue", "70"),
            ("durability", "os"),
            ("memory", "64MiB"),
            ("memtable", "2MiB"),
            ("value-bytes-max", "2MiB"),
            ("drain-ms", "9"),
            ("cluster", "h2:1;weight=2,http://h1:1;zone=a"),
            ("self", "http://h2:1"),
            ("replication-factor", "2"),
            ("partitions", "1024"),
            ("cluster-name", "prod"),
            ("cluster-secret-file", path),
            ("peer-transport", "http"),
        ];
        let said = Said {
            flags: flags.map(|(key, text)| (key, text.into())).to_vec(),
            ..Said::default()
        };
        let settings = settings(&said.resolve().expect("all are fine")).expect("a secret");
        let mut expected = Settings::new("elsewhere");
        expected.listen = vec![([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()];
        expected.admin = None;
        expected.workers = 7;
        expected.queue = 70;
        expected.durability = Durability::Os;
        expected.memory_bytes = 64 << 20;
        expected.memtable_bytes = Some(2 << 20);
        expected.value_bytes_max = 2 << 20;
        expected.drain_ms = 9;
        let members = ["http://h1:1;zone=a", "http://h2:1;weight=2"].map(|text| text.parse());
        let members: Result<Vec<Member>, _> = members.into_iter().collect();
        let topology = Topology::new("prod", members.expect("two members"), 2).expect("a topology");
        let topology = topology.with_partitions(1024).expect("a number");
        let mut cluster = ClusterSettings::new(topology, "http://h2:1").expect("a member");
        cluster.secret = Secret::new(b"hush");
        cluster.transport = PeerTransport::Http;
        expected.cluster = Some(cluster);
        assert_eq!(settings, expected);
    }
}
