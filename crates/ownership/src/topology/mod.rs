//! The facts that all nodes of a cluster must agree on before any record is moved. Each node
//! computes the same table of owners from them.
//!
//! ```text
//! --cluster http://h1:8080;weight=2;zone=a,http://h2:8080 ─► Vec<Member> ─► Topology ─► Ring
//! describe()  cluster=dendra epoch=1 copies=3 partitions=256 layout=1 members=http://h1:8080;weight=2;zone=a,…
//! digest()    64 bits of the line above: equal on all nodes, or they do not talk to each other
//! ```
//!
//! Invariants
//! 1. The order in which members were named is forgotten: they are sorted by URL.
//! 2. Two topologies are equal exactly when their descriptions are, and a description is one line
//!    of printable ASCII.
//! 3. A `Topology` that exists has 1 to `MEMBERS_MAX` members, none twice, and 1 to that many
//!    copies.
//!
//! Not here: the table of owners (`ring/`), members that change (`epoch/`), where the list comes
//! from (crate `dendra`), a folder's record of it (`membership/identity/`).
//! See: docs/cli.md, "A cluster".

mod member;

pub use member::{BadMember, Member};

use crate::limits::{CLUSTER_NAME_BYTES_MAX, MEMBERS_MAX};
use crate::member::MemberIndex;
use member::is_word;
use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;

/// Partitions of a cluster unless it was made with another number. A partition is the unit of
/// ownership, repair and statistics, so few are good. With 256 a member of ten has 77 of 768
/// copies: enough to cut shares to within 5 %.
pub const PARTITIONS_DEFAULT: u16 = 256;

/// The numbers that a cluster can be made with, once and for all. Four times as many partitions
/// carry it to two or three times as many members before each change moves more than it must.
pub const PARTITIONS: [u16; 4] = [PARTITIONS_DEFAULT, 1024, 4096, 16384];

/// Which rule turns members into owners. Raised whenever the same members would get another table:
/// nodes with different rules must not share a cluster.
const LAYOUT: u16 = 1;

/// The facts that all nodes of a cluster must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    name: String,
    id: u64,
    epoch: u64,
    members: Vec<Member>,
    /// Indexes of members that were removed since the process started, as bits.
    removed: u128,
    replication_factor: u8,
    partitions: u16,
    hash_key: [u8; 16],
}

/// Why a list of members is no topology. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTopology {
    /// No member at all.
    Empty,
    /// More members than a cluster may have.
    TooMany {
        /// How many were named.
        members: usize,
    },
    /// One member stands in the list twice.
    Duplicate {
        /// Normalised URL of the member.
        url: String,
    },
    /// `replication_factor` is 0.
    NoCopy,
    /// More copies than a cluster can have members.
    TooManyCopies {
        /// Copies asked for.
        replication_factor: u8,
    },
    /// The name has characters that a one-line description cannot carry, or too many, or none.
    Name {
        /// The name as given.
        name: String,
    },
    /// A number of partitions that no cluster is made with.
    Partitions {
        /// Number of partitions as given.
        partitions: u16,
    },
    /// One entry makes no sense.
    Member(BadMember),
}

impl fmt::Display for BadTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadTopology::Empty => f.write_str(
                "a cluster needs a member; name at least one, like http://10.0.0.1:8080",
            ),
            BadTopology::TooMany { members } => write!(
                f,
                "{members} members are more than the {MEMBERS_MAX} that a cluster may have; leave some out"
            ),
            BadTopology::Duplicate { url } => {
                write!(f, "{url} is in the list twice; name each member once")
            }
            BadTopology::NoCopy => {
                f.write_str("a replication factor of 0 keeps no copy; give at least 1")
            }
            BadTopology::TooManyCopies { replication_factor } => write!(
                f,
                "a replication factor of {replication_factor} is more than the {MEMBERS_MAX} members that a cluster may have; give at most {MEMBERS_MAX}"
            ),
            BadTopology::Name { name } => write!(
                f,
                "the cluster's name {name:?} is not 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits, dots, dashes and underscores; choose one that is"
            ),
            BadTopology::Partitions { partitions } => {
                let [first, rest @ ..] = PARTITIONS;
                write!(f, "{partitions} is no number of partitions; choose {first}")?;
                rest.iter().try_for_each(|other| write!(f, ", {other}"))
            }
            BadTopology::Member(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for BadTopology {}

impl From<BadMember> for BadTopology {
    fn from(bad: BadMember) -> BadTopology {
        BadTopology::Member(bad)
    }
}

impl Topology {
    /// The topology of a static list: epoch 1, [`PARTITIONS_DEFAULT`] partitions.
    ///
    /// # Errors
    /// Each kind a sentence that names the way out.
    pub fn new(
        name: &str,
        members: Vec<Member>,
        replication_factor: u8,
    ) -> Result<Topology, BadTopology> {
        Topology::check_name(name)?;
        if replication_factor == 0 {
            return Err(BadTopology::NoCopy);
        }
        if usize::from(replication_factor) > MEMBERS_MAX {
            return Err(BadTopology::TooManyCopies { replication_factor });
        }
        let mut members: Vec<Member> = members
            .into_iter()
            .map(Member::checked)
            .collect::<Result<_, _>>()?;
        if members.is_empty() {
            return Err(BadTopology::Empty);
        }
        if members.len() > MEMBERS_MAX {
            return Err(BadTopology::TooMany {
                members: members.len(),
            });
        }
        members.sort_by(|a, b| a.url.cmp(&b.url));
        if let Some(twice) = members.windows(2).find(|pair| pair[0].url == pair[1].url) {
            return Err(BadTopology::Duplicate {
                url: twice[0].url.clone(),
            });
        }
        Ok(Topology {
            id: cluster_id(name),
            hash_key: hash_wide(b"dendra hash key1", name.as_bytes()),
            name: name.to_owned(),
            epoch: 1,
            members,
            removed: 0,
            replication_factor,
            partitions: PARTITIONS_DEFAULT,
        })
    }

    /// The topology of an epoch. `members` are in the order of their indexes in this process;
    /// `None` = the index of a member that was removed.
    pub(crate) fn of_epoch(
        name: &str,
        epoch: u64,
        members: Vec<Option<Member>>,
        replication_factor: u8,
        partitions: u16,
    ) -> Topology {
        let is_removed = (0..).zip(&members).filter(|(_, member)| member.is_none());
        let removed = is_removed.fold(0, |all, (at, _): (u32, _)| all | 1 << at);
        Topology {
            id: cluster_id(name),
            hash_key: hash_wide(b"dendra hash key1", name.as_bytes()),
            name: name.to_owned(),
            epoch,
            members: members.into_iter().map(Option::unwrap_or_default).collect(),
            removed,
            replication_factor,
            partitions,
        }
    }

    /// Topology of the same members with another number of partitions.
    ///
    /// # Errors
    /// When it is none of [`PARTITIONS`].
    pub fn with_partitions(self, partitions: u16) -> Result<Topology, BadTopology> {
        if PARTITIONS.contains(&partitions) {
            return Ok(Topology { partitions, ..self });
        }
        Err(BadTopology::Partitions { partitions })
    }

    /// Can a cluster have this name?
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_name(name: &str) -> Result<(), BadTopology> {
        if is_word(name, CLUSTER_NAME_BYTES_MAX) {
            return Ok(());
        }
        Err(BadTopology::Name {
            name: name.to_owned(),
        })
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster's id: the name as a number, for every message between nodes.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Which topology of the cluster's life this is; 1 for a static list.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Topology of the same members in another epoch.
    #[must_use]
    pub fn at_epoch(self, epoch: u64) -> Topology {
        Topology { epoch, ..self }
    }

    /// The members by `MemberIndex`: founders sorted by URL, later members after them, or in the
    /// place of one that was removed. The place of a removed member is empty until then.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// One member. Requires: `index` is of this topology.
    pub fn member(&self, index: MemberIndex) -> &Member {
        &self.members[index.at()]
    }

    /// Is there a member with this index?
    pub fn has(&self, index: MemberIndex) -> bool {
        index.at() < self.members.len() && self.removed >> index.0 & 1 == 0
    }

    /// How many members there are, the empty places not counted.
    pub fn live(&self) -> u8 {
        self.len() - self.removed.count_ones() as u8
    }

    /// How many indexes there are: 1 to [`MEMBERS_MAX`].
    pub fn len(&self) -> u8 {
        u8::try_from(self.members.len()).expect("a topology has at most MEMBERS_MAX members")
    }

    /// Never: a topology has a member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Copies of a record unless its request says otherwise, as configured: it may be more than
    /// there are members.
    pub fn replication_factor(&self) -> u8 {
        self.replication_factor
    }

    /// Copies of a record unless its request says otherwise, as many as there can be.
    pub fn copies(&self) -> u8 {
        self.replication_factor.min(self.live())
    }

    /// Partitions of the key space.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// The key of the hash that sends keys to partitions.
    pub fn hash_key(&self) -> [u8; 16] {
        self.hash_key
    }

    /// The member with this URL, however it is spelt.
    pub fn index_of(&self, url: &str) -> Option<MemberIndex> {
        let url = member::normalised(url).ok()?;
        let mut members = (0u8..).map(MemberIndex).zip(&self.members);
        let found = members.find(|(index, member)| member.url == url && self.has(*index));
        found.map(|(index, _)| index)
    }

    /// Digest of everything that must be equal on all nodes.
    pub fn digest(&self) -> u64 {
        Topology::digest_of(&self.describe())
    }

    /// The digest of a topology with this description, or `digest=` and the digest itself.
    pub fn digest_of(description: &str) -> u64 {
        let digest = description.strip_prefix("digest=");
        let known = digest.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        known.unwrap_or_else(|| hash(b"dendra topology1", description.as_bytes()))
    }

    /// Everything that must be equal on all nodes, in one line.
    pub fn describe(&self) -> String {
        let members = (0u8..).map(MemberIndex).zip(&self.members);
        let members = members.filter(|(index, _)| self.has(*index));
        let mut members: Vec<String> = members.map(|(_, member)| member.to_string()).collect();
        members.sort_unstable();
        format!(
            "cluster={} epoch={} copies={} partitions={} layout={LAYOUT} members={}",
            self.name,
            self.epoch,
            self.replication_factor,
            self.partitions,
            members.join(","),
        )
    }

    /// The difference between this topology and another node's description: one sentence with both
    /// sides; `None` when they are equal.
    pub fn difference(&self, other_description: &str) -> Option<String> {
        Topology::difference_of(&self.describe(), other_description)
    }

    /// Difference of two descriptions of topologies.
    pub fn difference_of(ours: &str, other_description: &str) -> Option<String> {
        if ours == other_description {
            return None;
        }
        let (here, there) = (fields(ours), fields(other_description));
        let mut parts = Vec::new();
        for (name, words) in [
            ("cluster", "the cluster's name"),
            ("epoch", "the epoch"),
            ("copies", "the replication factor"),
            ("partitions", "the number of partitions"),
            ("layout", "the layout rule of the release"),
        ] {
            let value =
                |side: &BTreeMap<&str, &str>| side.get(name).copied().unwrap_or("?").to_owned();
            if here.get(name) != there.get(name) {
                parts.push(format!(
                    "{words} is {} here, {} there",
                    value(&here),
                    value(&there)
                ));
            }
        }
        parts.extend(member_differences(
            here.get("members").copied().unwrap_or(""),
            there.get("members").copied().unwrap_or(""),
        ));
        if parts.is_empty() {
            parts.push(format!(
                "the descriptions are {ours:?} here, {other_description:?} there"
            ));
        }
        Some(parts.join("; "))
    }
}

fn member_differences(here: &str, there: &str) -> Vec<String> {
    let by_url = |list: &'_ str| -> BTreeMap<String, String> {
        let entries = list.split(',').filter(|entry| !entry.is_empty());
        entries
            .map(|entry| {
                let (url, rest) = entry.split_once(';').unwrap_or((entry, ""));
                (url.to_owned(), rest.to_owned())
            })
            .collect()
    };
    let (here, there) = (by_url(here), by_url(there));
    let only = |side: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        let found = side.keys().filter(|url| !other.contains_key(*url));
        found.cloned().collect::<Vec<String>>().join(", ")
    };
    let mut parts = Vec::new();
    for (urls, words) in [
        (only(&here, &there), "only here a member"),
        (only(&there, &here), "only there a member"),
    ] {
        if !urls.is_empty() {
            parts.push(format!("{words}: {urls}"));
        }
    }
    for (url, ours) in &here {
        let shown = |rest: &str| match rest {
            "" => "weight=1 and no zone".to_owned(),
            rest => rest.replace(';', " "),
        };
        if let Some(theirs) = there.get(url).filter(|theirs| *theirs != ours) {
            parts.push(format!(
                "{url} has {} here, {} there",
                shown(ours),
                shown(theirs)
            ));
        }
    }
    parts
}

fn fields(description: &str) -> BTreeMap<&str, &str> {
    description
        .split(' ')
        .filter_map(|field| field.split_once('='))
        .collect()
}

/// The id of the cluster with this name.
pub(crate) fn cluster_id(name: &str) -> u64 {
    hash(b"dendra cluster 1", name.as_bytes())
}

fn hash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(bytes);
    hasher.finish()
}

fn hash_wide(key: &[u8; 16], bytes: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13Wide::new_with_key(key);
    hasher.write(bytes);
    hasher.finish128().as_bytes()
}

#[cfg(test)]
mod tests;
