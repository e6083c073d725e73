//! The options that name a cluster, put together.
//!
//! ```text
//! cluster      self        is
//! off          off         a node by itself
//! off          URL         a node by itself that knows its address
//! URL          off         a cluster of one, which others can join
//! URL,URL,…    one of it   a member of a cluster
//! off          URL         with join: a new member of a running cluster
//! ```
//!
//! Invariants
//! 1. A sentence begins with the option and names the place that set it.
//! 2. The file of the secret is opened only to serve: `config print` shows its name.
//! 3. A cluster beyond loopback has a secret, or the operator has said that it needs none.
//! 4. A setting that may be meant and may be a mistake is a doubt: `serve` logs it and goes on.
//!
//! Not here: the rules for a list of members (crate `ownership`), the content of the file (crate
//! `server`).
//! See: docs/cli.md, "A cluster".

use super::options::{Listed, args, default_of};
use super::{Effective, ValueSource};
use dendra_server::Settings;
use dendra_server::settings::{
    BadTopology, ClusterSettings, JoinSettings, Member, PeerTransport, RootToken, Secret, Topology,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The topology of a static list.
///
/// # Errors
/// When it is none.
pub(crate) fn topology(
    name: &str,
    members: &[Member],
    replication_factor: u64,
    partitions: &str,
) -> Result<Topology, BadTopology> {
    let replication_factor = u8::try_from(replication_factor).unwrap_or(u8::MAX);
    let topology = Topology::new(name, members.to_vec(), replication_factor)?;
    topology.with_partitions(partitions.parse().unwrap_or(0))
}

impl Effective {
    /// Which cluster and which member; `None` = a node by itself.
    ///
    /// # Errors
    /// When the options are fine alone and impossible together.
    pub(crate) fn cluster(&self) -> Result<Option<ClusterSettings>, String> {
        let options = &self.options;
        let (members, me) = (options.cluster.0.as_slice(), options.own.0.first());
        if members.is_empty() && me.is_none() && self.join()?.is_none() {
            return Ok(None);
        }
        let at = |key: &str| self.setting(key).source.to_string();
        let join = self.join()?;
        let members = match me {
            Some(me) if members.is_empty() => std::slice::from_ref(me),
            _ => members,
        };
        let topology = topology(
            &options.cluster_name,
            members,
            options.replication_factor,
            options.partitions,
        )
        .map_err(|bad| format!("cluster ({}): {bad}", at("cluster")))?;
        let me = match (members, me) {
            (_, Some(me)) => me,
            ([only], None) => only,
            (_, None) => {
                return Err(format!(
                    "self is not set, and cluster has {} members ({}): say with --self which of them this node is",
                    members.len(),
                    at("cluster")
                ));
            }
        };
        let mut cluster = ClusterSettings::new(topology, &me.url).map_err(|reason| {
            format!(
                "self ({}) and cluster ({}): {reason}",
                at("self"),
                at("cluster")
            )
        })?;
        cluster.is_named = self.setting("cluster-name").source != ValueSource::Default;
        cluster.join = join;
        cluster.is_single = options.cluster.0.is_empty() && cluster.join.is_none();
        cluster.transport = match options.peer_transport {
            "http" => PeerTransport::Http,
            _ => PeerTransport::Frames,
        };
        cluster.compare_bytes_per_second = options.compare_bytes_per_second.0;
        cluster.forget_every_us = options.forget_every_s * 1_000_000;
        Ok(Some(cluster))
    }

    /// Which cluster the node joins.
    ///
    /// # Errors
    /// When the options contradict each other.
    fn join(&self) -> Result<Option<JoinSettings>, String> {
        let at = |key: &str| self.setting(key).source.to_string();
        let options = &self.options;
        let one = |of: &Listed<Member>| of.0.first().map(|member| member.url.clone());
        let (join, replaces) = (one(&options.join), one(&options.replace));
        let Some(join) = join else {
            return match replaces {
                Some(url) => Err(format!(
                    "replace ({}) is {url}, and join is off: name a member that runs with --join",
                    at("replace")
                )),
                None => Ok(None),
            };
        };
        if !options.cluster.0.is_empty() {
            return Err(format!(
                "join ({}) and cluster ({}) are both set: a list founds a cluster, and a new member needs none; leave one of \
                 them out",
                at("join"),
                at("cluster")
            ));
        }
        if options.own.0.is_empty() {
            return Err(format!(
                "join ({}) is set, and self is not: say with --self where the other members reach this node",
                at("join")
            ));
        }
        Ok(Some(JoinSettings {
            host: join.trim_start_matches("http://").to_owned(),
            replaces,
            founding: self.founding(),
        }))
    }

    /// The options for founders alone that are not as usual. The usual ones are not named: the
    /// output of `config print` has them all.
    fn founding(&self) -> Vec<String> {
        let for_founders = ["replication_factor", "partitions"];
        let mut found = Vec::new();
        for arg in args().filter(|arg| for_founders.contains(&arg.get_id().as_str())) {
            let setting = self.setting(arg.get_long().expect("each option has a flag"));
            let (key, text, source) = (setting.key, &setting.printed, &setting.source);
            if text.to_string() != default_of(arg) {
                found.push(format!("{key} = {text} ({source})"));
            }
        }
        found
    }

    /// Settings that are possible and perhaps not meant: sentences to warn with.
    pub(crate) fn doubts(&self, settings: &Settings) -> Vec<String> {
        let admin: Vec<SocketAddr> = settings.admin.into_iter().collect();
        let open = [("listen", &settings.listen), ("admin", &admin)]
            .into_iter()
            .filter_map(|(key, addresses)| self.open_door(key, settings, addresses))
            .chain(self.change_over(settings));
        let Some(cluster) = &settings.cluster else {
            return open.collect();
        };
        let found = self.unlistened_self(cluster, &settings.listen);
        open.chain(found)
            .chain(self.open_to_strangers(settings).map(|address| {
                format!(
                    "insecure-peers ({}) is on, and there is no cluster-secret-file: every program that reaches {address} can say that it is \
                     a member, shut members out for good and change every record",
                    self.setting("insecure-peers").source
                )
            }))
            .collect()
    }

    /// Clear text gets in beside TLS.
    fn change_over(&self, settings: &Settings) -> Option<String> {
        settings.tls.as_ref().filter(|tls| tls.change_over)?;
        Some(format!(
            "tls-change-over ({}) is on: clients and members get in without TLS, too; leave it \
             away when all of them have changed over",
            self.setting("tls-change-over").source
        ))
    }

    /// Other machines reach the node, and it asks for no name and no password, or in clear.
    fn open_door(
        &self,
        key: &str,
        settings: &Settings,
        addresses: &[SocketAddr],
    ) -> Option<String> {
        let open = addresses
            .iter()
            .find(|address| !address.ip().is_loopback())?;
        let is_clear = settings.tls.as_ref().is_none_or(|tls| tls.change_over);
        let what = match (shows_certificates(settings), self.has_tokens(), is_clear) {
            (true, _, _) | (false, true, false) => return None,
            (false, true, true) => {
                "tokens and values pass it in clear: give it a certificate (--tls-cert)"
            }
            (false, false, _) => {
                "insecure-clients is on: keep it behind a proxy that asks who comes, or on a network of its own"
            }
        };
        Some(format!(
            "{key} ({}) has {open}, which other machines may reach, and {what} (SECURITY.md)",
            self.setting(key).source
        ))
    }

    /// A cluster that others than this machine can reach needs a secret.
    ///
    /// # Errors
    /// When it has none, and the operator did not say that it needs none.
    pub(crate) fn check_border(&self, settings: &Settings) -> Result<(), String> {
        self.check_join(settings)?;
        self.check_clients(settings)?;
        let is_waived = self.options.insecure_peers == "on";
        match self.open_to_strangers(settings) {
            Some(address) if !is_waived => Err(format!(
                "cluster-secret-file ({}) is off, and this cluster is reached at {address}: every program that reaches it could say that it is \
                 a member, shut members out for good and change every record; make a secret (head -c 32 /dev/urandom | base64 > \
                 FILE; chmod 600 FILE), the same file for every member, or have members show certificates (--tls-peer-ca), or say --insecure-peers on",
                self.setting("cluster-secret-file").source
            )),
            _ => Ok(()),
        }
    }

    /// A node cannot be let in by itself.
    ///
    /// # Errors
    /// When `--join` names this node.
    fn check_join(&self, settings: &Settings) -> Result<(), String> {
        let Some(cluster) = &settings.cluster else {
            return Ok(());
        };
        let Some(join) = &cluster.join else {
            return Ok(());
        };
        let is_own_url = cluster.member().url == format!("http://{}", join.host);
        let mut listen = settings.listen.iter();
        if is_own_url || listen.any(|listen| leads_to(&join.host, listen)) {
            return Err(format!(
                "join ({}) is {}, which is this node itself: name a member that runs already, or \
                 found a cluster with --cluster",
                self.setting("join").source,
                join.host
            ));
        }
        Ok(())
    }

    /// A node that other machines reach authenticates them.
    fn check_clients(&self, settings: &Settings) -> Result<(), String> {
        let has_tokens = self.has_tokens();
        if has_tokens && self.peers_are_strangers(settings) {
            return Err(format!(
                "root-token-file ({}) is set, and members prove nothing to each other: a program could ask as a member what its token does \
                 not allow. Give every member the same --cluster-secret-file, or have them show certificates (--tls-peer-ca), or say \
                 --insecure-peers on",
                self.setting("root-token-file").source
            ));
        }
        let is_waived = self.options.insecure_clients == "on";
        if is_waived || has_tokens || shows_certificates(settings) {
            return Ok(());
        }
        let admin: Vec<SocketAddr> = settings.admin.into_iter().collect();
        let doors = [("listen", &settings.listen), ("admin", &admin)];
        let open = doors.into_iter().find_map(|(key, addresses)| {
            let is_open = |address: &&SocketAddr| !address.ip().is_loopback();
            Some((key, addresses.iter().find(is_open)?))
        });
        match open {
            None => Ok(()),
            Some((key, address)) => Err(format!(
                "{key} ({}) has {address}, which other machines may reach, and the node asks nobody who they are: every program that reaches it \
                 would read and write everything. Ask for tokens (dendra token root FILE, --root-token-file FILE), or for certificates \
                 (--tls-client-ca), or say --insecure-clients on",
                self.setting(key).source
            )),
        }
    }

    fn has_tokens(&self) -> bool {
        self.options.root_token_file.0.is_some()
    }

    /// Can any program say that it is a member?
    fn peers_are_strangers(&self, settings: &Settings) -> bool {
        let is_cluster = settings
            .cluster
            .as_ref()
            .is_some_and(|cluster| !is_alone(cluster));
        let has_secret = self.options.cluster_secret_file.0.is_some();
        let is_waived = self.options.insecure_peers == "on";
        is_cluster && !has_secret && !is_waived && !has_sealed_links(settings)
    }

    /// The root token that the options name.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub(crate) fn root_token(&self) -> Result<Option<RootToken>, String> {
        let source = &self.setting("root-token-file").source;
        let path = self.options.root_token_file.0.as_deref();
        let read = path.map(RootToken::read).transpose();
        read.map_err(|reason| format!("root-token-file ({source}): {reason}"))
    }

    /// Where a program that is not on this machine reaches a cluster without a secret.
    fn open_to_strangers(&self, settings: &Settings) -> Option<String> {
        let cluster = settings.cluster.as_ref()?;
        let has_secret = self.options.cluster_secret_file.0.is_some();
        if has_secret || has_sealed_links(settings) || is_alone(cluster) {
            return None;
        }
        let is_open = |address: &&SocketAddr| !address.ip().is_loopback();
        let listen = settings.listen.iter().find(is_open);
        let members = cluster.topology.members().iter();
        let mut urls = members.map(|member| member.url.as_str());
        let listen = listen.map(SocketAddr::to_string);
        listen.or_else(|| urls.find(|url| !is_on_loopback(url)).map(str::to_owned))
    }

    /// The others look for the node at a port where it does not listen: right behind a proxy only.
    fn unlistened_self(&self, cluster: &ClusterSettings, listen: &[SocketAddr]) -> Option<String> {
        let url = &cluster.member().url;
        let (_, port) = url.rsplit_once(':')?;
        let is_its = |address: &SocketAddr| address.port().to_string() == port;
        if is_alone(cluster) || listen.iter().any(is_its) {
            return None;
        }
        let listen: Vec<String> = listen.iter().map(SocketAddr::to_string).collect();
        Some(format!(
            "self is {url}, and listen ({}) is {}: the other members look for this node on port {port}, which is right only \
             behind a proxy",
            self.setting("listen").source,
            listen.join(",")
        ))
    }

    /// Reads the secret that the options name.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, String> {
        let source = &self.setting("cluster-secret-file").source;
        let path = self.options.cluster_secret_file.0.as_deref();
        let read = path.map(Secret::read).transpose();
        read.map_err(|reason| format!("cluster-secret-file ({source}): {reason}"))
    }

    /// Where the secret is.
    pub(crate) fn secret_file(&self) -> Option<PathBuf> {
        self.options.cluster_secret_file.0.clone()
    }
}

/// Do certificates of members alone open a link?
fn has_sealed_links(settings: &Settings) -> bool {
    let tls = settings.tls.as_ref();
    tls.is_some_and(|tls| tls.peer_ca.is_some() && !tls.change_over)
}

/// Do certificates of clients alone open a port?
fn shows_certificates(settings: &Settings) -> bool {
    let tls = settings.tls.as_ref();
    tls.is_some_and(|tls| tls.client_ca.is_some() && !tls.change_over)
}

/// Can there be no other member, as far as the options say?
fn is_alone(cluster: &ClusterSettings) -> bool {
    cluster.is_single
}

/// Does the url of a member lead to the machine it is used on?
fn is_on_loopback(url: &str) -> bool {
    let address = url.strip_prefix("http://").unwrap_or(url);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Does `host:port` lead to a listener at this address, on the machine where both are used?
fn leads_to(address: &str, listen: &SocketAddr) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // A machine has many addresses on loopback, and `localhost` is one of two.
    let names: Vec<IpAddr> = match host.parse() {
        Ok(ip) => vec![ip],
        Err(_) if host == "localhost" => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        Err(_) => Vec::new(),
    };
    let is_every = |ip: &IpAddr| listen.ip().is_unspecified() && ip.is_loopback();
    let leads = names.iter().any(|ip| *ip == listen.ip() || is_every(ip));
    leads && port == listen.port().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::ConfigInputs;
    use super::*;

    fn effective(flags: &[(&'static str, &str)]) -> Result<Effective, String> {
        let said = ConfigInputs {
            flags: flags.iter().map(|(k, v)| (*k, v.into())).collect(),
            ..ConfigInputs::default()
        };
        said.resolve().map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_joiner_is_told_which_options_are_for_founders() {
        let join = |more: &[(&'static str, &str)]| {
            let mut flags = vec![("join", "h1:1"), ("self", "h2:1"), ("insecure-peers", "on")];
            flags.extend(more);
            let cluster = cluster(&flags).expect("fine").expect("a cluster");
            cluster.join.expect("it joins").founding
        };
        assert_eq!(join(&[]), [""; 0]);
        let usual = [("replication-factor", "3"), ("partitions", "256")];
        assert_eq!(join(&usual), [""; 0], "config print writes them all");
        let both = [("replication-factor", "2"), ("partitions", "1024")];
        let named = ["replication-factor = 2 (flag)", "partitions = 1024 (flag)"];
        assert_eq!(join(&both), named);
    }

    #[test]
    fn a_joiner_that_would_ask_itself_is_refused() {
        let check = |join: &str, own: &str, listen: &str| {
            let flags = [
                ("join", join),
                ("self", own),
                ("listen", listen),
                ("insecure-peers", "on"),
                ("insecure-clients", "on"),
            ];
            effective(&flags).map(drop)
        };
        for (join, own, listen) in [
            ("h1:1", "h1:1", "10.0.0.1:1"),
            ("localhost:1", "h1:1", "127.0.0.1:1"),
            ("localhost:1", "h1:1", "[::1]:1"),
            ("127.0.0.1:1", "h1:1", "0.0.0.0:1"),
            ("[::1]:1", "h1:1", "[::1]:1"),
        ] {
            let sentence = check(join, own, listen).expect_err("itself");
            assert!(sentence.contains("is this node itself"), "{sentence}");
        }
        for (join, own, listen) in [
            ("h2:1", "h1:1", "10.0.0.1:1"),
            ("localhost:2", "localhost:1", "127.0.0.1:1"),
            ("127.0.0.2:1", "127.0.0.1:1", "127.0.0.1:1"),
            ("10.0.0.2:1", "10.0.0.1:1", "0.0.0.0:1"),
        ] {
            assert_eq!(check(join, own, listen), Ok(()), "{join}");
        }
    }

    fn cluster(flags: &[(&'static str, &str)]) -> Result<Option<ClusterSettings>, String> {
        effective(flags)?.cluster()
    }

    #[test]
    fn a_port_that_the_others_do_not_find_is_doubted() {
        let doubts = |flags: &[(&'static str, &str)]| {
            let effective = effective(flags).expect("fine");
            effective.doubts(&effective.node_settings().expect("fine"))
        };
        let three = ("cluster", "127.0.0.1:1,localhost:2,[::1]:3");
        let me = ("self", "localhost:2");
        let elsewhere = ("listen", "127.0.0.1:1,127.0.0.1:3");
        let here = ("listen", "127.0.0.1:1,127.0.0.1:2");
        assert_eq!(doubts(&[]), [""; 0], "no cluster");
        let waived = ("insecure-clients", "on");
        let open = doubts(&[("listen", "0.0.0.0:1"), ("admin", "[::]:2"), waived]);
        assert!(open[0].contains("listen (flag) has 0.0.0.0:1"), "{open:?}");
        assert!(open[1].contains("admin (flag) has [::]:2"), "{open:?}");
        let pair = [("tls-cert", "a.crt"), ("tls-key", "a.key")];
        assert_eq!(doubts(&pair), [""; 0]);
        let both = doubts(&[pair[0], pair[1], ("tls-change-over", "on")]);
        assert!(
            both.len() == 1 && both[0].starts_with("tls-change-over (flag) is on: "),
            "{both:?}"
        );
        assert_eq!(doubts(&[three, me, here]), [""; 0]);
        let found = doubts(&[three, me, elsewhere]);
        let sentence = "self is http://localhost:2, and listen (flag) is 127.0.0.1:1,127.0.0.1:3: the other members look";
        assert!(
            found.len() == 1 && found[0].starts_with(sentence),
            "{found:?}"
        );
        // No other member looks for one that is the only one.
        assert_eq!(doubts(&[("self", "h2:2")]), [""; 0]);
    }

    #[test]
    fn a_cluster_that_strangers_reach_needs_a_secret_or_the_operators_word() {
        let three = ("cluster", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        let (me, everywhere) = (("self", "127.0.0.1:1"), ("listen", "0.0.0.0:1"));
        let waived = ("insecure-clients", "on");
        let far = ("cluster", "10.0.0.1:1,10.0.0.2:1,10.0.0.3:1");
        let far_me = ("self", "10.0.0.1:1");
        let own = ("listen", "127.0.0.1:1");
        assert!(effective(&[three, me, own]).is_ok(), "loopback alone");
        assert!(
            effective(&[("self", "10.0.0.1:1"), everywhere, waived]).is_ok(),
            "no peers"
        );
        for (flags, address) in [
            (&[three, me, everywhere, waived][..], "at 0.0.0.0:1:"),
            (&[far, far_me, own], "at http://10.0.0.1:1:"),
        ] {
            let sentence = effective(flags).expect_err("open");
            assert!(
                sentence.starts_with("cluster-secret-file (default) is off"),
                "{sentence}"
            );
            assert!(sentence.contains(address), "{sentence}");
            let with = |more| {
                let effective = effective(&[flags, &[more]].concat()).expect("said");
                effective.doubts(&effective.node_settings().expect("fine"))
            };
            let words = "insecure-peers (flag) is on, and there is no cluster-secret-file";
            let said = |doubts: Vec<String>| doubts.iter().filter(|d| d.starts_with(words)).count();
            assert_eq!(said(with(("cluster-secret-file", "/a/secret"))), 0);
            assert_eq!(said(with(("insecure-peers", "on"))), 1);
        }
    }

    #[test]
    fn a_node_that_other_machines_reach_asks_who_they_are() {
        let open = ("listen", "0.0.0.0:1");
        let pair = [("tls-cert", "a.crt"), ("tls-key", "a.key")];
        let refused = |flags: &[(&'static str, &str)]| effective(flags).err().unwrap_or_default();
        assert!(refused(&[open]).starts_with("listen (flag) has 0.0.0.0:1"));
        assert!(refused(&[("admin", "0.0.0.0:2")]).starts_with("admin (flag) has 0.0.0.0:2"));
        assert!(refused(&[open, pair[0], pair[1]]).starts_with("listen (flag)"));
        let certificates = [open, pair[0], pair[1], ("tls-client-ca", "ca.crt")];
        assert_eq!(refused(&certificates), "");
        let both = [&certificates[..], &[("tls-change-over", "on")]].concat();
        assert!(
            refused(&both).starts_with("listen (flag)"),
            "clear text opens it"
        );
        let token = ("root-token-file", "root");
        for way in [token, ("insecure-clients", "on")] {
            assert_eq!(refused(&[open, way]), "");
        }
        let three = ("cluster", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        let me = ("self", "127.0.0.1:1");
        let sentence = refused(&[three, me, token]);
        assert!(
            sentence.starts_with("root-token-file (flag) is set, and members"),
            "{sentence}"
        );
        for way in [("cluster-secret-file", "secret"), ("insecure-peers", "on")] {
            assert_eq!(refused(&[three, me, token, way]), "");
        }
    }

    #[test]
    fn nothing_one_and_many() {
        assert_eq!(cluster(&[]), Ok(None));
        let one = |flags: &[(&'static str, &str)]| {
            let cluster = cluster(flags).expect("fine").expect("a cluster");
            let url = &cluster.member().url;
            assert_eq!(url, "http://h1:1");
            (cluster.topology.len(), cluster.is_single)
        };
        assert_eq!(one(&[("self", "h1:1")]), (1, true));
        let waived = ("insecure-peers", "on");
        assert_eq!(one(&[("cluster", "http://h1:1"), waived]), (1, false));
        assert_eq!(
            one(&[("cluster", "h2:1,h1:1,h3:1"), ("self", "H1:1/"), waived]),
            (3, false)
        );
        let open = effective(&[("cluster", "http://h1:1")]).expect_err("any program could join it");
        assert!(
            open.starts_with("cluster-secret-file (default) is off"),
            "{open}"
        );
    }

    #[test]
    fn what_is_impossible_names_the_options() {
        for (flags, part) in [
            (
                &[("cluster", "h1:1,h2:1")][..],
                "self is not set, and cluster has 2 members (flag)",
            ),
            (
                &[("cluster", "h1:1,h2:1"), ("self", "h3:1")],
                "self (flag) and cluster (flag): http://h3:1 is not a member",
            ),
            (
                &[("cluster", "h1:1,http://H1:1/")],
                "cluster (flag): http://h1:1 is in the list twice",
            ),
            (
                &[("cluster", "h1:1"), ("self", "h2:1")],
                "http://h2:1 is not a member",
            ),
            (&[("replication-factor", "0")], "0 is outside 1 to 100"),
            (
                &[("replace", "h1:1")],
                "replace (flag) is http://h1:1, and join is off",
            ),
            (
                &[("join", "h1:1"), ("cluster", "h1:1,h2:1"), ("self", "h2:1")],
                "join (flag) and cluster (flag) are both set",
            ),
            (&[("join", "h1:1")], "join (flag) is set, and self is not"),
            (
                &[("cluster-name", "a b")],
                "--cluster-name: the cluster's name",
            ),
        ] {
            let sentence = cluster(flags).expect_err("impossible");
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
