//! Records of identity: the own one of a folder, and one for each peer. A peer's claim is judged
//! against its record.
//!
//! ```text
//! key "self"         OwnNote node id, number of starts, home: cluster, url, topology, fence
//! key "peer/#<n>"    Peer    node id, highest number of starts, life of that start, clock
//!
//! at a start        OwnNote::start(remembered, …)  -> the record to persist, or a refusal
//! at a handshake    judge(url, claim, remembered)  -> known, to be persisted first, or refused
//! ```
//!
//! A member that lost its disk has forgotten its promises and confirmations. Counted as before, it
//! makes a majority of one old and one empty copy, and an acknowledged write is gone. The same is
//! true of a disk image. Two processes on copies of one folder would give one version to two
//! values. So each start has a random life, which tells the two apart.
//!
//! Invariants
//! 1. The number of starts rises by one at each start, and is durable before a peer is told. A
//!    member that shows a lower number than a peer has noted runs on an image. A start on a doubted
//!    folder is not counted.
//! 2. A folder has one home for its life: one cluster, one url. Another topology takes another
//!    epoch, and epochs only rise.
//! 3. An implausible number of starts ends no process and is not noted, so that one lie does not
//!    shut the member out. One life has one number, and a start raises the number by one.
//! 4. A member with a synced log never comes back with a clock below its confirmations. If it does,
//!    its disk is an image, or has lost data that it had synced.
//!
//! Not recognised, if the member was not started after the image was made:
//! * an image moments younger than the last confirmation: the clock's ceiling is durable ahead of
//!   its use;
//! * an image of a member that does not sync its log;
//! * an image that starts before any peer can be asked.
//!
//! Not here: reading and writing the records (crate `server`), the handshake (crate `wire`).
//! See: docs/format/notes.md, docs/protocol.md.

use crate::epoch::record::EpochRecord;
use crate::limits::STARTS_AHEAD_MAX;
use crate::member::MemberIndex;
use crate::ring::table::MemberId;
use crate::topology::Topology;
use dendra_base::clock::COUNTER_BITS;
use std::fmt;

/// Raw key, in the space of the node's own notes, of its own record.
pub const OWN_KEY: &[u8] = b"self";

/// Raw key, in the space of the node's own notes, of the record of the member with this number.
pub fn peer_key(member: MemberId) -> Vec<u8> {
    format!("peer/#{}", member.0).into_bytes()
}

/// Raw key, in the same space, of the record of an epoch: keys are in the order of epochs.
pub fn epoch_key(epoch: u64) -> Vec<u8> {
    [EPOCH_PREFIX, &epoch.to_be_bytes()].concat()
}

/// The first bytes of the keys of epochs.
pub const EPOCH_PREFIX: &[u8] = b"epoch/";

/// Raw key, in the same space, of the vote for the next epoch.
pub const VOTE_KEY: &[u8] = b"vote";

/// Raw key, in the same space, of the last order to load slower or faster.
pub const THROTTLE_KEY: &[u8] = b"throttle";

/// Raw key, in the same space, of the losses that operators accepted at this member.
pub const LOSSES_KEY: &[u8] = b"losses";

/// Format of both records.
const FORMAT: u8 = 1;

/// A folder's record of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNote {
    /// Made with the folder, at random; never zero for a folder that exists.
    pub node: u128,
    /// How often a node was started on it as a member.
    pub boot: u64,
    /// The member that it belongs to.
    pub home: FolderMembership,
}

/// The cluster, member and epoch to which a folder belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderMembership {
    /// Name of the cluster.
    pub cluster: String,
    /// Url of the member.
    pub url: String,
    /// Highest epoch that the node has taken part in: questions of a lower one are refused.
    pub fence: u64,
    /// The topology of that epoch, as `Topology::describe` puts it.
    pub topology: String,
}

/// A peer's record, or its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Id of the node.
    pub node: u128,
    /// Number of the node's starts.
    pub boot: u64,
    /// Drawn at random at that start; 0 = not known, in notes of before there was one.
    pub life: u64,
    /// In a claim: where the clock of its folder ended at that start; 0 when the folder may have
    /// lost confirmed writes. In a record: the largest clock value of a version that the peer
    /// confirmed for good.
    pub clock: u64,
}

/// The verdict of a handshake on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The claim agrees with the record.
    Known,
    /// The process is new, or was started again: make this durable, then it counts.
    Learn(Peer),
    /// The process is not the member that was known.
    Refuse(NotTheSame),
}

/// Why a peer is not the member that was known at its url. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTheSame {
    /// Another folder.
    OtherNode {
        /// URL of the member.
        url: String,
        /// Node id that is remembered.
        was: u128,
        /// Node id that is claimed.
        is: u128,
    },
    /// An older state of the folder.
    RolledBack {
        /// URL of the member.
        url: String,
        /// Starts that were seen.
        seen: u64,
        /// Starts as claimed.
        is: u64,
    },
    /// The folder's clock ends before the member's last confirmation.
    Behind {
        /// URL of the member.
        url: String,
        /// By how much.
        ms: u64,
    },
    /// A number of starts that the member cannot have.
    Implausible {
        /// URL of the member.
        url: String,
        /// Starts that were seen.
        seen: u64,
        /// Starts as claimed.
        is: u64,
    },
    /// Another process with this number of starts has done a handshake.
    Twin {
        /// URL of the member.
        url: String,
        /// Starts of both.
        boot: u64,
    },
}

pub(super) const OTHER_NODE: &str = "other-node";
pub(super) const ROLLED_BACK: &str = "rolled-back";
pub(super) const TWIN: &str = "twin";
pub(super) const IMPLAUSIBLE: &str = "implausible";

/// Code word of the refusal of a member that was removed.
pub const REMOVED: &str = "removed";

/// Code words of the refusals after which a folder must not be used any more.
pub const DISOWNING: [&str; 4] = [OTHER_NODE, ROLLED_BACK, TWIN, REMOVED];

/// Refusals that an epoch tells: which folder is the member's. The others tell of its starts, which
/// is true in every epoch.
pub const OF_AN_EPOCH: [&str; 2] = [OTHER_NODE, REMOVED];

impl NotTheSame {
    /// The stable code word of the refusal.
    pub fn code(&self) -> &'static str {
        match self {
            NotTheSame::OtherNode { .. } => OTHER_NODE,
            NotTheSame::RolledBack { .. } | NotTheSame::Behind { .. } => ROLLED_BACK,
            NotTheSame::Implausible { .. } => IMPLAUSIBLE,
            NotTheSame::Twin { .. } => TWIN,
        }
    }
}

impl fmt::Display for NotTheSame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTheSame::OtherNode { url, was, is } => write!(
                f,
                "the folder of {url} is not the one that this cluster knew (node {was:032x}, now {is:032x}): it was wiped or \
                 replaced, and an empty folder must not vote for what it has forgotten; give the member its folder back; \
                 when it is lost, docs/operating.md says what to do"
            ),
            NotTheSame::RolledBack { url, seen, is } => write!(
                f,
                "the folder of {url} is older than the one that this cluster knew (start {is} after start {seen} was seen): an \
                 image of its disk was restored, and what was acknowledged since is not in it; give the member its newest \
                 folder back; when it is lost, docs/operating.md says what to do"
            ),
            NotTheSame::Behind { url, ms } => write!(
                f,
                "the folder of {url} is older than the one that this cluster knew (the member confirmed a write {ms} ms past the \
                 end of the clock that the folder has): an image of its disk was restored, or the disk lost what it had said to \
                 have; give the member its newest folder back; when it is lost, docs/operating.md says what to do"
            ),
            NotTheSame::Implausible { url, seen, is } => write!(
                f,
                "{url} cannot have started {is} times: start {seen} is the last one that was seen, one process has one number, and \
                 none gets {STARTS_AHEAD_MAX} starts ahead unseen; nothing of this claim was noted; find out which program made it"
            ),
            NotTheSame::Twin { url, boot } => write!(
                f,
                "another process was {url} at start {boot} already, on a copy or an image of this folder, or this one is a copy \
                 of its folder: two of them would acknowledge different values under one version; the cluster goes on with the \
                 folder that it let in first, so run the member on that one only"
            ),
        }
    }
}

/// Is the member that claims to be at `url` the one that is remembered?
pub fn judge(url: &str, claim: Peer, remembered: Option<Peer>) -> ClaimVerdict {
    let url = url.to_owned();
    let seen = remembered.map_or(0, |known| known.boot);
    let is_same_process =
        remembered.is_some_and(|known| known.life != 0 && claim.life == known.life);
    let is_implausible = claim.boot.saturating_sub(seen) > STARTS_AHEAD_MAX
        || (is_same_process && claim.boot != seen);
    let is_of_folder = remembered.is_none_or(|known| known.node == claim.node);
    if is_implausible && is_of_folder {
        let is = claim.boot;
        return ClaimVerdict::Refuse(NotTheSame::Implausible { url, seen, is });
    }
    let Some(known) = remembered else {
        return ClaimVerdict::Learn(Peer { clock: 0, ..claim });
    };
    if claim.node != known.node {
        return ClaimVerdict::Refuse(NotTheSame::OtherNode {
            url,
            was: known.node,
            is: claim.node,
        });
    }
    if claim.boot < known.boot {
        return ClaimVerdict::Refuse(NotTheSame::RolledBack {
            url,
            seen: known.boot,
            is: claim.boot,
        });
    }
    // For the process that is known already, the claim is older than its latest confirmations.
    let is_behind = claim.clock != 0 && claim.clock < known.clock;
    if is_behind && claim.life != known.life {
        let ms = (known.clock >> COUNTER_BITS) - (claim.clock >> COUNTER_BITS);
        return ClaimVerdict::Refuse(NotTheSame::Behind { url, ms });
    }
    if claim.boot > known.boot || known.life == 0 {
        return ClaimVerdict::Learn(Peer {
            clock: known.clock,
            ..claim
        });
    }
    if claim.life != known.life {
        return ClaimVerdict::Refuse(NotTheSame::Twin {
            url,
            boot: claim.boot,
        });
    }
    ClaimVerdict::Known
}

/// Does the folder hold records of clients?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderContent {
    /// Not one.
    Empty,
    /// At least one, a tombstone perhaps.
    Records,
}

/// Why a folder is not opened. `Display` names both sides and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotItsFolder(String);

impl fmt::Display for NotItsFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotItsFolder {}

impl OwnNote {
    /// May a folder that remembers this be started without a cluster?
    ///
    /// # Errors
    /// When it belongs to one.
    pub fn start_alone(remembered: Option<&OwnNote>) -> Result<(), NotItsFolder> {
        match remembered {
            None => Ok(()),
            Some(own) => Err(NotItsFolder(format!(
                "the folder belongs to {} of the cluster {}, and no cluster is named: start it with --cluster and --self {}, \
                 or take another folder",
                own.home.url, own.home.cluster, own.home.url
            ))),
        }
    }

    /// The record of the next start of node `node` as the member `me` of `topology`. It must be
    /// durable before any peer is told.
    ///
    /// # Errors
    /// When the folder belongs elsewhere, to another topology, or holds records that the members
    /// would not find.
    pub fn start(
        remembered: Option<&OwnNote>,
        node: u128,
        topology: &Topology,
        me: MemberIndex,
        content: FolderContent,
    ) -> Result<OwnNote, NotItsFolder> {
        let home = FolderMembership {
            cluster: topology.name().to_owned(),
            url: topology.member(me).url.clone(),
            fence: topology.epoch(),
            topology: topology.describe(),
        };
        let Some(own) = remembered else {
            if content == FolderContent::Records && topology.len() > 1 {
                return Err(NotItsFolder(format!(
                    "the folder was used by a node without a cluster and holds records, which the {} members of {} would not \
                     find where they look: start {} on an empty folder and load the records through the cluster (dendra scan | \
                     dendra load)",
                    topology.len(),
                    home.cluster,
                    home.url
                )));
            }
            return Ok(OwnNote {
                node,
                boot: 1,
                home,
            });
        };
        own.check(node, &home, topology)?;
        Ok(OwnNote {
            boot: own.boot + 1,
            node,
            home,
        })
    }

    /// The record of the next start on a folder that knows the epochs of its cluster. `url` is the
    /// option's value, if it was given.
    ///
    /// # Errors
    /// When the folder is none of a member of the newest one, or is another member's.
    pub fn resume(
        &self,
        node: u128,
        newest: &EpochRecord,
        cluster: Option<&str>,
        url: Option<&str>,
    ) -> Result<(OwnNote, MemberId), NotItsFolder> {
        if self.node != node {
            return Err(self.mixed(node));
        }
        if let Some(other) = cluster.filter(|name| *name != newest.name()) {
            return Err(NotItsFolder(format!(
                "the folder belongs to the cluster {} and not to {other}: check --cluster-name, or take another folder",
                newest.name()
            )));
        }
        let mut members = newest.members().iter();
        let own = members.find(|member| match member.node {
            // A founder that was not enrolled yet.
            0 => member.place.url == self.home.url,
            other => other == node,
        });
        // The epoch with the member's newest address may be one that cannot be read any more.
        let is_behind = newest.epoch() < self.home.fence;
        let is_removed = newest.removed().iter().any(|gone| gone.node == node);
        if own.is_none() && is_behind && !is_removed {
            return Err(NotItsFolder(format!(
                "the newest epoch that the folder of {} can read is {}, and that epoch does not name it: later ones are damaged; \
                 replace the member (dendra serve --join … --self {} --replace {}, on an empty folder)",
                self.home.url,
                newest.epoch(),
                self.home.url,
                self.home.url
            )));
        }
        let Some(own) = own else {
            return Err(NotItsFolder(format!(
                "the folder of {} was removed from the cluster {} by epoch {} or an earlier one, and never comes back: it has \
                 forgotten what was written since; join with an empty folder",
                self.home.url,
                newest.name(),
                newest.epoch()
            )));
        };
        let noted = Some(&self.home.url).filter(|_| is_behind);
        let is_own = |at: &str| at == own.place.url || noted.is_some_and(|noted| at == noted);
        if let Some(url) = url.filter(|at| !is_own(at)) {
            return Err(NotItsFolder(format!(
                "the folder belongs to {} in epoch {} of the cluster {}, and not to {url}: check --self and --data; a member \
                 gets another address by an order to the others first (dendra cluster readdress {} {url})",
                own.place.url,
                newest.epoch(),
                newest.name(),
                own.place.url
            )));
        }
        let home = FolderMembership {
            cluster: newest.name().to_owned(),
            url: noted.unwrap_or(&own.place.url).clone(),
            // The record of the fence may be one that cannot be read any more.
            fence: newest.epoch().max(self.home.fence),
            topology: self.home.topology.clone(),
        };
        let boot = self.boot + 1;
        Ok((OwnNote { node, boot, home }, own.id))
    }

    /// The record of a start on a doubted folder: it has the number of the start before. Else the
    /// numbers of an image would catch up with those of the member, start by start.
    #[must_use]
    pub fn not_counted(self) -> OwnNote {
        OwnNote {
            boot: self.boot.saturating_sub(1).max(1),
            ..self
        }
    }

    fn mixed(&self, node: u128) -> NotItsFolder {
        NotItsFolder(format!(
            "the folder is of node {node:032x} and its notes are of node {:032x}: its files were mixed with those of another \
             folder; restore it from a copy",
            self.node
        ))
    }

    fn check(
        &self,
        node: u128,
        home: &FolderMembership,
        topology: &Topology,
    ) -> Result<(), NotItsFolder> {
        let was = &self.home;
        if self.node != node {
            return Err(self.mixed(node));
        }
        if was.cluster != home.cluster {
            return Err(NotItsFolder(format!(
                "the folder belongs to the cluster {} and not to {}: check --cluster-name, or take another folder",
                was.cluster, home.cluster
            )));
        }
        if was.url != home.url {
            return Err(NotItsFolder(format!(
                "the folder belongs to {} and not to {}: check --self and --data, or take another folder",
                was.url, home.url
            )));
        }
        if was.fence > home.fence {
            return Err(NotItsFolder(format!(
                "the folder has taken part in epoch {} of the cluster {}, and the options name epoch {}: start the node with the \
                 members of that epoch",
                was.fence, was.cluster, home.fence
            )));
        }
        let changed = topology.difference(&was.topology);
        match changed.filter(|_| was.fence == home.fence) {
            Some(changed) => Err(NotItsFolder(format!(
                "the folder was filled under another topology of the cluster {} (here = the options, there = the folder): \
                 {changed}; nothing would be where the members look for it, so start the node with the former list",
                was.cluster
            ))),
            None => Ok(()),
        }
    }

    /// Format 1 of docs/format/notes.md.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.node.to_le_bytes());
        out.extend_from_slice(&self.boot.to_le_bytes());
        out.extend_from_slice(&self.home.fence.to_le_bytes());
        for text in [&self.home.cluster, &self.home.url, &self.home.topology] {
            let len = u32::try_from(text.len()).expect("a topology is a few kilobytes");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// Reads it back; `None` = the bytes are not this record.
    pub fn decode(bytes: &[u8]) -> Option<OwnNote> {
        let mut rest = bytes.strip_prefix(&[FORMAT])?;
        let rest = &mut rest;
        let own = OwnNote {
            node: u128::from_le_bytes(take(rest)?),
            boot: u64::from_le_bytes(take(rest)?),
            home: FolderMembership {
                fence: u64::from_le_bytes(take(rest)?),
                cluster: text(rest)?,
                url: text(rest)?,
                topology: text(rest)?,
            },
        };
        rest.is_empty().then_some(own)
    }
}

impl Peer {
    /// The record of a member with this folder that was never seen.
    pub fn unseen(node: u128) -> Peer {
        Peer {
            node,
            boot: 0,
            life: 0,
            clock: 0,
        }
    }

    /// Format 1 of docs/format/notes.md.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.node.to_le_bytes());
        out.extend_from_slice(&self.boot.to_le_bytes());
        out.extend_from_slice(&self.life.to_le_bytes());
        out.extend_from_slice(&self.clock.to_le_bytes());
        out
    }

    /// Reads it back; `None` = the bytes are not this record.
    pub fn decode(bytes: &[u8]) -> Option<Peer> {
        let mut rest = bytes.strip_prefix(&[FORMAT])?;
        let peer = Peer {
            node: u128::from_le_bytes(take(&mut rest)?),
            boot: u64::from_le_bytes(take(&mut rest)?),
            life: u64::from_le_bytes(take(&mut rest)?),
            clock: u64::from_le_bytes(take(&mut rest)?),
        };
        rest.is_empty().then_some(peer)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(std::str::from_utf8(head).ok()?.to_owned())
}

#[cfg(test)]
mod tests;
