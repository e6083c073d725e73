//! Which cluster a node belongs to and which of its members it is.
//!
//! ```text
//! --cluster  --replication-factor  --cluster-name ─► Topology ─┐
//! --self                                          ─► me       ─┼─► ClusterSettings
//! --cluster-secret-file                           ─► Secret   ─┤  one line, or two while it is changed
//! --peer-transport                                ─► transport ┤
//! --compare-bytes-per-second                      ─► budget    ┤
//! --forget-every-s                                ─► interval  ┘
//! --join  --replace                               ─► join, and a topology of this node alone
//! ```
//!
//! Invariants
//! 1. `me` is a member of `topology`.
//! 2. A secret is never shown: not by `Debug`, not in a sentence, not in `config print`.
//! 3. A secret has at least `SECRET_BYTES_MIN` bytes, and at most `SECRETS_MAX` are valid at once.
//!
//! Not here: the text of the options (crate `dendra`), messages between members (crate `wire`).
//! See: docs/cli.md, "A cluster".

use crate::limits::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX};
use dendra_node::limits::{COMPARE_BYTES_PER_SECOND_DEFAULT, FORGET_EVERY_US_DEFAULT};
use dendra_ownership::{Member, MemberIndex, Topology};
use std::fmt;
use std::path::{Path, PathBuf};

/// How a member carries its questions to the others. It answers both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PeerTransport {
    /// Binary frames over a connection that was upgraded.
    #[default]
    Frames,
    /// A plain HTTP request for each question, for networks that pass only HTTP.
    Http,
}

/// A node's settings about its cluster at a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The facts on which all members agree.
    pub topology: Topology,
    /// Which of them this node is.
    pub me: MemberIndex,
    /// The secret that members prove to each other; `None` = every process may say that it is one.
    pub secret: Option<Secret>,
    /// The file of the secret, which a running node reads again.
    pub secret_file: Option<PathBuf>,
    /// How this one asks.
    pub transport: PeerTransport,
    /// How many bytes of keys and values a second this one compares with others; 0 = none.
    pub compare_bytes_per_second: u64,
    /// This one proposes to raise the horizons of the cluster at most this often; 0 = never.
    pub forget_every_us: u64,
    /// Was the name of the cluster said, or is it the usual one?
    pub is_named: bool,
    /// A folder that belongs to no cluster yet joins this one; `topology` is of this node alone
    /// then.
    pub join: Option<JoinSettings>,
    /// The node knows its own address alone: it founds no cluster, and no process can join it.
    pub is_single: bool,
}

/// The cluster that a node joins, and the part that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// `host:port` of any member of it.
    pub host: String,
    /// The address of the lost member that it replaces.
    pub replaces: Option<String>,
    /// Options for founders alone that were set, each with its value and its place.
    pub founding: Vec<String>,
}

impl JoinSettings {
    /// Can the process at `url`, which is no member yet, join with these options?
    ///
    /// # Errors
    /// A sentence about the option that has to be another one.
    pub(crate) fn check(&self, url: &str) -> Result<(), String> {
        if dendra_wire::hosts::authority_of_url(url) == self.host {
            return Err(format!(
                "join and self are both {url}, and a node cannot let itself in: name a running \
                 member with --join, or found a cluster with --cluster {url}"
            ));
        }
        match &*self.founding {
            [] => Ok(()),
            options => Err(format!(
                "{} would not be looked at: the cluster that this node joins has its own. Leave it \
                 out; dendra cluster plan --replication-factor N changes the copies of a running \
                 cluster, and partitions never change",
                options.join(" and ")
            )),
        }
    }
}

impl ClusterSettings {
    /// The cluster of `topology` as seen by its member at `url`.
    ///
    /// # Errors
    /// When that is none of its members; the sentence names them.
    pub fn new(topology: Topology, url: &str) -> Result<ClusterSettings, String> {
        let Some(me) = topology.index_of(url) else {
            let members = topology.members().iter();
            let urls: Vec<&str> = members.map(|member| member.url.as_str()).collect();
            return Err(format!(
                "{url} is not a member of the cluster {}: name one of {}, or add it to the list of every member",
                topology.name(),
                urls.join(", ")
            ));
        };
        Ok(ClusterSettings {
            topology,
            me,
            secret: None,
            secret_file: None,
            transport: PeerTransport::default(),
            compare_bytes_per_second: COMPARE_BYTES_PER_SECOND_DEFAULT,
            forget_every_us: FORGET_EVERY_US_DEFAULT,
            is_named: true,
            join: None,
            is_single: false,
        })
    }

    /// This node among the members.
    pub fn member(&self) -> &Member {
        self.topology.member(self.me)
    }
}

/// The secret that all members of a cluster share: one line. While it is changed, two lines are
/// valid, and a member proves that it knows the first one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<Box<[u8]>>);

impl Secret {
    /// The lines of a file, without white space at their ends.
    ///
    /// # Errors
    /// When it cannot be read, is too long to be one, or open to others than its owner. When a line
    /// is shorter than `SECRET_BYTES_MIN`, or there are more than `SECRETS_MAX`.
    pub fn read(path: &Path) -> Result<Secret, String> {
        let name = path.display();
        let most = SECRET_BYTES_MAX as u64;
        let bytes = crate::secret_file::secret(path, "the secret of the cluster", most)?;
        let lines = lines(&bytes).count();
        if lines > SECRETS_MAX {
            return Err(format!(
                "the secret of the cluster, {name}, has {lines} lines, and at most {SECRETS_MAX} are valid at once: the old \
                 one and the new one, while members are changed one after the other"
            ));
        }
        Secret::new(&bytes).ok_or_else(|| {
            format!(
                "the secret of the cluster, {name}, has fewer than {SECRET_BYTES_MIN} bytes in a line and could be guessed: \
                 head -c 32 /dev/urandom | base64 > {name}, and the same file for every member"
            )
        })
    }

    /// Secrets in the lines of a file, without white space at their ends; `None` when one has fewer
    /// than `SECRET_BYTES_MIN` bytes, or there are none, or more than `SECRETS_MAX`.
    pub fn new(bytes: &[u8]) -> Option<Secret> {
        let lines: Vec<Box<[u8]>> = lines(bytes).map(Box::from).collect();
        let is_one = (1..=SECRETS_MAX).contains(&lines.len());
        let is_long = lines.iter().all(|line| line.len() >= SECRET_BYTES_MIN);
        (is_one && is_long).then_some(Secret(lines))
    }

    /// The valid ones, for the proofs that handshakes carry; the own one first.
    pub fn expose(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter().map(|line| &**line)
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn topology() -> Topology {
        let members = ["h1:1", "h2:1"].map(|url| Member::new(url).expect("an address"));
        Topology::new("dendra", members.to_vec(), 3).expect("two members")
    }

    #[test]
    fn a_node_joins_another_one_and_founds_nothing_by_the_way() {
        let mut join = JoinSettings {
            host: "h1:1".to_owned(),
            replaces: None,
            founding: Vec::new(),
        };
        assert_eq!(join.check("http://h2:1"), Ok(()));
        let itself = join.check("http://h1:1").expect_err("itself");
        assert!(itself.contains("name a running member"), "{itself}");
        join.founding = vec!["replication-factor = 2 (flag)".to_owned()];
        let founder = join.check("http://h2:1").expect_err("a founder's");
        assert!(founder.starts_with("replication-factor = 2"), "{founder}");
        assert!(founder.contains("dendra cluster plan"), "{founder}");
    }

    fn secret(content: &[u8], mode: u32) -> Result<Secret, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
        Secret::read(&path)
    }

    #[test]
    fn a_node_finds_itself_among_the_members() {
        let settings = ClusterSettings::new(topology(), "HTTP://h2:1/").expect("a member");
        assert_eq!(settings.me, MemberIndex(1));
        assert_eq!(settings.member().url, "http://h2:1");
        let reason = ClusterSettings::new(topology(), "http://h3:1").expect_err("a stranger");
        assert!(
            reason.contains("name one of http://h1:1, http://h2:1"),
            "{reason}"
        );
    }

    #[test]
    fn a_secret_is_a_file_that_not_everybody_reads() {
        let fine = secret(b"hush, hush, hush\n", 0o600).expect("a secret");
        assert!(fine.expose().eq([&b"hush, hush, hush"[..]]));
        assert!(secret(b"hush, hush, hush", 0o400).is_ok());
        let two = secret(b"hush, hush, hush \n\nhush, hush, shush\r\n", 0o600).expect("two");
        assert!(
            two.expose()
                .eq([&b"hush, hush, hush"[..], b"hush, hush, shush"])
        );
        for (content, mode, part) in [
            (&b"hush"[..], 0o644, "(mode 0644): chmod 600"),
            (b"hush", 0o602, "open to others than its owner"),
            (b"hush", 0o640, "(mode 0640): chmod 600"),
            (b"", 0o600, "fewer than 16 bytes"),
            (
                b"hush, hush,hush\n\n",
                0o600,
                "could be guessed: head -c 32",
            ),
            (
                b"hush, hush, hush\nhush",
                0o600,
                "fewer than 16 bytes in a line",
            ),
            (
                b"hush, hush, hush\nhush, hush, hush\nhush, hush, hush",
                0o600,
                "has 3 lines, and at most 2",
            ),
            (&[b'x'; SECRET_BYTES_MAX + 1], 0o600, "something else"),
        ] {
            let reason = secret(content, mode).expect_err("no secret");
            assert!(reason.contains(part), "{reason}");
            assert!(!reason.contains("hush"), "{reason}");
        }
        let missing = Secret::read(Path::new("/nowhere/secret")).expect_err("no file");
        assert!(missing.contains("cannot be read"), "{missing}");
        let folder = tempfile::tempdir().expect("a folder");
        let folder = Secret::read(folder.path()).expect_err("no file");
        assert!(folder.contains("is a folder: name a file"), "{folder}");
    }

    #[test]
    fn a_secret_is_never_shown() {
        let mut settings = ClusterSettings::new(topology(), "h1:1").expect("a member");
        settings.secret = Secret::new(b"hush, hush, hush");
        assert!(settings.secret.is_some());
        assert!(!format!("{settings:?}").contains("hush"));
        let bytes = format!("{:?}", b"hush, hush, hush");
        assert!(!format!("{settings:?}").contains(&bytes[1..bytes.len() - 1]));
    }
}
