//! The options that name a cluster, put together.
//!
//! ```text
//! cluster      self        is
//! off          off         a node by itself
//! off          URL         a cluster of one
//! URL          off         a cluster of one
//! URL,URL,…    one of it   a member of a cluster
//! ```
//!
//! Invariants
//! 1. A sentence begins with the option and says who set it.
//! 2. The file of the secret is opened only to serve: `config print` shows its name.
//!
//! Not here: what a list of members may be (crate `node`), what is in the file (crate `server`).
//! See: docs/cli.md, "A cluster".

use super::Effective;
use super::table::Value;
use dendra_server::settings::{
    BadTopology, ClusterSettings, Member, PeerTransport, Secret, Topology,
};

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
        let (members, me) = (self.members("cluster"), self.members("self").first());
        if members.is_empty() && me.is_none() {
            return Ok(None);
        }
        let at = |key: &str| self.setting(key).source.to_string();
        let members = match me {
            Some(me) if members.is_empty() => std::slice::from_ref(me),
            _ => members,
        };
        let topology = topology(
            self.text("cluster-name"),
            members,
            self.number("replication-factor"),
            match self.setting("partitions").value {
                Value::Choice(word) => word,
                _ => panic!("the table says that partitions is a choice"),
            },
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
        cluster.transport = match self.setting("peer-transport").value {
            Value::Choice("http") => PeerTransport::Http,
            _ => PeerTransport::Frames,
        };
        Ok(Some(cluster))
    }

    /// Reads the secret that the options name.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, String> {
        let setting = self.setting("cluster-secret-file");
        match &setting.value {
            Value::File(Some(path)) => Secret::read(path)
                .map(Some)
                .map_err(|reason| format!("cluster-secret-file ({}): {reason}", setting.source)),
            _ => Ok(None),
        }
    }

    fn members(&self, key: &str) -> &[Member] {
        match &self.setting(key).value {
            Value::Members(members) => members,
            _ => panic!("{key} is not a list of members"),
        }
    }

    fn text(&self, key: &str) -> &str {
        match &self.setting(key).value {
            Value::Text(text) => text,
            _ => panic!("{key} is not text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Said;
    use super::*;

    fn cluster(flags: &[(&'static str, &str)]) -> Result<Option<ClusterSettings>, String> {
        let said = Said {
            flags: flags.iter().map(|(k, v)| (*k, v.into())).collect(),
            ..Said::default()
        };
        let effective = said.resolve().map_err(|problems| problems.to_string())?;
        effective.cluster()
    }

    #[test]
    fn nothing_one_and_many() {
        assert_eq!(cluster(&[]), Ok(None));
        let one = |flags| {
            let cluster = cluster(flags).expect("fine").expect("a cluster");
            (cluster.topology.len(), cluster.member().url.clone())
        };
        let url = || "http://h1:1".to_owned();
        assert_eq!(one(&[("self", "h1:1")]), (1, url()));
        assert_eq!(one(&[("cluster", "http://h1:1")]), (1, url()));
        assert_eq!(
            one(&[("cluster", "h2:1,h1:1,h3:1"), ("self", "H1:1/")]),
            (3, url())
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
                &[("cluster-name", "a b")],
                "--cluster-name: the cluster's name",
            ),
        ] {
            let sentence = cluster(flags).expect_err("impossible");
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
