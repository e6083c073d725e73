//! The other members, as a steward knows them: their folders, links, and last news.
//!
//! Invariants
//! 1. There is a view of each member of the newest epoch, and of each member that this epoch
//!    removed. No other process has one.
//!
//! Not here: which process may be which member (`membership/mod.rs`).

use super::messages::{ForgetNews, LoadGauges, MemberProgress};
use crate::epoch::chain::ChainPeer;
use crate::epoch::record::EpochRecord;
use crate::ring::table::MemberId;
use dendra_base::ClusterVersions;
use std::collections::BTreeMap;

/// One other member.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerSight {
    /// The folder that it showed; 0 = none yet.
    pub(super) node: u128,
    pub(super) is_up: bool,
    /// Since when there is no link to it; `None` while there is one, and before the first one.
    pub(super) missed_since_us: Option<u64>,
    /// The members that it reaches, as it told last, and when it did.
    pub(super) reaches: Option<(Vec<MemberId>, u64)>,
    /// `None` until it told of them.
    pub(super) gauges: Option<LoadGauges>,
    pub(super) release: Option<String>,
    /// The versions that its process knows; `None` until a link came up.
    pub(super) versions: Option<ClusterVersions>,
    /// Since when it tells that its disk is full.
    pub(super) full_since_us: Option<u64>,
    /// Last news of the member about horizons, and the epoch that they are about.
    pub(super) forgets: Option<(u64, ForgetNews)>,
}

/// Since when a disk is full.
pub(super) fn full_since(before_us: Option<u64>, is_full: bool, now_us: u64) -> Option<u64> {
    is_full.then(|| before_us.unwrap_or(now_us))
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct PeerSights {
    by_id: BTreeMap<MemberId, PeerSight>,
}

impl PeerSights {
    /// Takes over the members of a new epoch.
    pub(super) fn adopt(&mut self, before: &EpochRecord, after: &EpochRecord) {
        let is_known = |id: &MemberId| before.member(*id).is_some() || after.member(*id).is_some();
        self.by_id.retain(|id, _| is_known(id));
    }

    /// A link came up or the last one went down.
    pub(super) fn reached(
        &mut self,
        record: &EpochRecord,
        peer: ChainPeer,
        is_up: bool,
        versions: ClusterVersions,
        now_us: u64,
    ) {
        if let Some(view) = self.of_peer(record, peer) {
            view.node = peer.node;
            view.is_up = is_up;
            view.missed_since_us = if is_up {
                None
            } else {
                view.missed_since_us.or(Some(now_us))
            };
            view.versions = Some(versions);
        }
    }

    /// A member told how it does.
    pub(super) fn told(
        &mut self,
        record: &EpochRecord,
        peer: ChainPeer,
        news: &MemberProgress,
        now_us: u64,
    ) {
        if let Some(view) = self.of_peer(record, peer) {
            view.gauges = Some(news.gauges);
            view.release = Some(news.release.clone());
            view.full_since_us = full_since(view.full_since_us, news.is_disk_full, now_us);
            view.forgets = news.forgets.map(|forgets| (news.epoch, forgets));
            view.reaches = Some((news.reaches.clone(), now_us));
        }
    }

    /// A message came from it.
    pub(super) fn seen(&mut self, record: &EpochRecord, peer: ChainPeer) {
        if let Some(view) = self.of_peer(record, peer) {
            view.node = peer.node;
        }
    }

    fn of_peer(&mut self, record: &EpochRecord, peer: ChainPeer) -> Option<&mut PeerSight> {
        let is_member = record.is_member(peer.member, peer.node);
        is_member.then(|| self.by_id.entry(peer.member).or_default())
    }

    /// One of them.
    pub(super) fn of(&self, member: MemberId) -> Option<&PeerSight> {
        self.by_id.get(&member)
    }

    /// The first member that is reached from here, and told since `since_us` that it reaches
    /// `member`.
    pub(super) fn reached_by(&self, member: MemberId, since_us: u64) -> Option<MemberId> {
        let reaches = |view: &PeerSight| {
            let told = view
                .reaches
                .as_ref()
                .filter(|(_, told_us)| *told_us >= since_us);
            view.is_up && told.is_some_and(|(reached, _)| reached.contains(&member))
        };
        let mut others = self.by_id.iter().filter(|(id, _)| **id != member);
        others.find(|(_, view)| reaches(view)).map(|(id, _)| *id)
    }

    /// Is there a link to it?
    pub(super) fn is_up(&self, member: MemberId) -> bool {
        self.of(member).is_some_and(|view| view.is_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn record(members: u32) -> EpochRecord {
        let urls = (0..members).map(|number| format!("http://h{number}:1").parse());
        let listed = urls.collect::<Result<_, _>>().expect("addresses");
        let topology = Topology::new("peers", listed, 1).expect("members");
        let founded = EpochRecord::founded(&topology);
        let nodes: Vec<_> = (0..members)
            .map(|number| (MemberId(number), u128::from(number) + 1))
            .collect();
        founded.enrolled(&nodes).expect("all are new")
    }

    #[test]
    fn a_member_is_known_until_the_epoch_behind_the_one_that_removed_it() {
        let (all, fewer) = (record(3), record(2));
        let (member, node) = (MemberId(2), 3);
        let mut sights = PeerSights::default();
        let peer = ChainPeer { member, node };
        sights.reached(&all, peer, true, ClusterVersions::OWN, 1);
        sights.adopt(&all, &fewer);
        assert!(sights.is_up(member), "it is told of its removal");
        sights.adopt(&fewer, &fewer);
        assert!(!sights.is_up(member));
    }
}
