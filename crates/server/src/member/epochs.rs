//! The newest durable epoch, as all threads of this member see it.
//!
//! Invariants
//! 1. The fence rises before the newest epoch is replaced, and loops get its layout after that.
//!
//! Not here: making an epoch durable (`peers/home.rs`), its bytes (`disk/epochs.rs`).

use super::former::FormerAddresses;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::{Fence, Layout, MemberIndex, Topology};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// The newest epoch that is durable at this member, for all its threads.
#[derive(Debug)]
pub(super) struct NewestEpoch {
    pub(super) record: Arc<EpochRecord>,
    pub(super) layout: Arc<Layout>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Epochs {
    newest: RwLock<NewestEpoch>,
    /// Former addresses of members that were not reached since they moved.
    pub(super) former: FormerAddresses,
    /// The newest durable epoch, for all loops.
    pub(crate) fence: Arc<Fence>,
    /// The epoch that this member lacks: one that it has taken part in, or one that another member
    /// has had for `EPOCH_PATIENCE_US`. 0 = none.
    pub(crate) lacked: AtomicU64,
}

impl Epochs {
    /// The newest epoch of a folder that lacks another one, or none: 0.
    pub(super) fn new(
        (record, layout): (Arc<EpochRecord>, Arc<Layout>),
        former: FormerAddresses,
        lacked: u64,
    ) -> Epochs {
        Epochs {
            fence: Arc::new(Fence::noted(&layout, lacked)),
            newest: RwLock::new(NewestEpoch { record, layout }),
            former,
            lacked: AtomicU64::new(lacked),
        }
    }

    /// The newest epoch.
    pub(super) fn newest(&self) -> RwLockReadGuard<'_, NewestEpoch> {
        self.newest.read().expect("no holder panics")
    }

    /// A later epoch is the newest one.
    pub(super) fn replace(&self, record: &Arc<EpochRecord>, layout: &Arc<Layout>) {
        self.former.follow(&self.record(), record);
        *self.newest.write().expect("no holder panics") = NewestEpoch {
            record: Arc::clone(record),
            layout: Arc::clone(layout),
        };
    }

    /// Members and owners of the newest durable epoch.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.newest().layout)
    }

    fn record(&self) -> Arc<EpochRecord> {
        Arc::clone(&self.newest().record)
    }

    /// Members of the newest epoch.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(self.newest().layout.topology())
    }

    /// The number of a member.
    pub(crate) fn id_of(&self, member: MemberIndex) -> Option<MemberId> {
        self.newest().layout.id_of(member)
    }

    /// The url of a member; empty for the place of one that was removed.
    pub(crate) fn url(&self, member: MemberIndex) -> String {
        let topology = self.topology();
        let found = topology.members().get(member.at());
        found.map_or_else(String::new, |found| found.url.clone())
    }

    /// The url that a member had before its newest one, until it was reached there.
    pub(crate) fn former_url(&self, member: MemberIndex) -> Option<String> {
        self.former.get(self.id_of(member)?)
    }

    /// A member was reached at this host and port.
    pub(crate) fn reached_at(&self, member: MemberIndex, host: &str) {
        let newest = self.newest();
        let members = newest.layout.topology().members();
        let is_newest = |url: &str| host_of(url) == host;
        if members
            .get(member.at())
            .is_some_and(|it| is_newest(&it.url))
            && let Some(id) = newest.layout.id_of(member)
        {
            self.former.forget(id);
        }
    }

    /// A member opened a link, and proved that it is the one at `url` in its newest epoch.
    pub(crate) fn is_called_at(&self, member: MemberIndex, url: &str, epoch: u64) {
        let newest = self.newest();
        if let Some(id) = newest.layout.id_of(member) {
            self.former.told(&newest.record, id, url, epoch);
        }
    }
}

/// Host and port of a member's url.
pub(crate) fn host_of(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches('/')
}
