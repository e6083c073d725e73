//! How far comparisons are: for all loops of a member, and for its faces.
//!
//! Invariants
//! 1. A comparison counts as full when each record that both members share was compared, and each
//!    difference was repaired. It never does when a part was left out.
//!
//! Not here: the comparison itself (`compare/mod.rs`).
//! See: docs/operating.md.

use dendra_ownership::limits::MEMBERS_MAX;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The comparisons with one peer.
#[derive(Debug, Default)]
struct PeerComparison {
    /// When the last full comparison ended, on the monotonic clock; 0 = there was none.
    full_us: AtomicU64,
    /// The epoch in which that comparison began and ended; 0 = there was none.
    full_epoch: AtomicU64,
    sent: AtomicU64,
    fetched: AtomicU64,
}

/// Shared by the loops of a member.
///
/// The orderings are relaxed: these are counters, and no other memory hangs on them.
#[derive(Debug)]
pub struct Comparisons {
    peers: Vec<PeerComparison>,
    pub(super) read: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) left_out: AtomicU64,
    pub(super) promises: AtomicU64,
    /// Bytes a second of own comparisons; 0 = there was none.
    speed: AtomicU64,
    /// The last epoch in which this member saw a stray, and the partitions of those; 0 = none.
    foreign: Mutex<(u64, BTreeSet<Partition>)>,
}

impl Default for Comparisons {
    fn default() -> Comparisons {
        Comparisons {
            peers: (0..MEMBERS_MAX)
                .map(|_| PeerComparison::default())
                .collect(),
            read: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            promises: AtomicU64::new(0),
            speed: AtomicU64::new(0),
            foreign: Mutex::default(),
        }
    }
}

impl Comparisons {
    /// When the last full comparison with a peer ended, on the monotonic clock.
    pub fn full_us(&self, peer: MemberIndex) -> Option<u64> {
        let full_us = self.peers[peer.at()].full_us.load(Ordering::Relaxed);
        (full_us > 0).then_some(full_us)
    }

    /// Seconds since then.
    pub fn full_age_s(&self, peer: MemberIndex, now_us: u64) -> Option<u64> {
        Some(now_us.saturating_sub(self.full_us(peer)?) / 1_000_000)
    }

    /// Records that the peer lacked, or had an older version of, and that it took.
    pub fn sent(&self, peer: MemberIndex) -> u64 {
        self.peers[peer.at()].sent.load(Ordering::Relaxed)
    }

    /// Records that this member lacked, or had an older version of, and that it took.
    pub fn fetched(&self, peer: MemberIndex) -> u64 {
        self.peers[peer.at()].fetched.load(Ordering::Relaxed)
    }

    /// Promises that were raised, here or at a peer.
    pub fn promises(&self) -> u64 {
        self.promises.load(Ordering::Relaxed)
    }

    /// Bytes of keys and cells that were read here, for own comparisons and for those of peers.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of questions and answers of own comparisons, repairs included, about.
    pub fn moved_bytes(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// How many bytes a second own comparisons read; 0 = there was none.
    pub fn speed(&self) -> u64 {
        self.speed.load(Ordering::Relaxed)
    }

    /// Own comparisons read so many bytes a second from now on.
    pub(super) fn note_speed(&self, bytes_per_second: u64) {
        self.speed.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Ranges that could not be compared because a copy is damaged.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// A full comparison with `peer` has ended.
    pub(crate) fn note_full(&self, peer: MemberIndex, now_us: u64, epoch: u64) {
        let full_epoch = &self.peers[peer.at()].full_epoch;
        full_epoch.store(epoch, Ordering::Relaxed);
        let full_us = &self.peers[peer.at()].full_us;
        full_us.store(now_us.max(1), Ordering::Relaxed);
    }

    /// Another member has this index now.
    pub(crate) fn forget(&self, peer: MemberIndex) {
        self.peers[peer.at()].full_us.store(0, Ordering::Relaxed);
        self.peers[peer.at()].full_epoch.store(0, Ordering::Relaxed);
    }

    /// Did a full comparison with `peer` begin and end in this epoch?
    pub(crate) fn is_full_in(&self, peer: MemberIndex, epoch: u64) -> bool {
        self.peers[peer.at()].full_epoch.load(Ordering::Relaxed) == epoch
    }

    /// A look at own copies has found these strays.
    pub(crate) fn note_strays(&self, strays: &BTreeSet<Partition>, epoch: u64) {
        if strays.is_empty() {
            return;
        }
        let mut foreign = self.foreign();
        if foreign.0 < epoch {
            *foreign = (epoch, BTreeSet::new());
        }
        foreign.1.extend(strays);
    }

    /// The partitions of which this member was seen to hold records in this epoch, without being an
    /// owner of them.
    pub fn foreign_in(&self, epoch: u64) -> BTreeSet<Partition> {
        let foreign = self.foreign();
        if foreign.0 == epoch {
            foreign.1.clone()
        } else {
            BTreeSet::new()
        }
    }

    fn foreign(&self) -> MutexGuard<'_, (u64, BTreeSet<Partition>)> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The strays of this member were dropped: its copies have to be looked at once more, from the
    /// beginning.
    pub fn dropped_strays(&self) {
        *self.foreign() = (0, BTreeSet::new());
        for peer in &self.peers {
            peer.full_epoch.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_strays_in(&self, epoch: u64) -> bool {
        self.foreign().0 >= epoch
    }

    pub(crate) fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_sent(&self, peer: MemberIndex) {
        self.peers[peer.at()].sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_fetched(&self, peer: MemberIndex) {
        let fetched = &self.peers[peer.at()].fetched;
        fetched.fetch_add(1, Ordering::Relaxed);
    }
}

/// The findings and repairs of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareReport {
    /// The member that was compared with.
    pub peer: MemberIndex,
    /// Records that the peer took.
    pub sent: u64,
    /// Records that this member took.
    pub fetched: u64,
    /// Promises that were raised.
    pub promises: u64,
    /// Repairs that failed: the next comparison tries them again.
    pub failed: u64,
    /// Ranges that were left out because a copy is damaged.
    pub left_out: u64,
    /// How long it took.
    pub took_us: u64,
}
