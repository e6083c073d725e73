//! The links of this member to the others: their secrets and certificates, and what is counted.
//!
//! Invariants
//! 1. The log is told an event of a peer once, however many loops see it.
//!
//! Not here: opening a link (`peers/`), which process is admitted (`cluster.rs`).

use super::link_log::LinkLog;
use super::secrets::Secrets;
use super::session::Sessions;
use super::strangers::Strangers;
use crate::settings::{ClusterSettings, PeerTransport};
use crate::tls::Tls;
use crate::waiting::unproven::UnprovenGauges;
use dendra_ownership::MemberIndex;
use dendra_ownership::limits::MEMBERS_MAX;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// Counters about one peer, and what the log was told of it, of all loops together.
#[derive(Debug, Default)]
pub(crate) struct PeerGauges {
    /// Loops with a link to it.
    pub(crate) links: AtomicU64,
    /// Questions sent.
    pub(crate) asks: AtomicU64,
    /// Answers received.
    pub(crate) answers: AtomicU64,
    /// Questions that were refused here: no link, or too much waits for it already.
    pub(crate) refused: AtomicU64,
    /// Questions of the peer that were too old when they arrived.
    pub(crate) late: AtomicU64,
    /// Links that were lost.
    pub(crate) lost: AtomicU64,
    /// Handshakes with a process at its url that is not the known member.
    pub(crate) strangers: AtomicU64,
    log: Mutex<LinkLog>,
}

/// Adds to a counter of [`PeerGauges`].
pub(crate) fn count(gauge: &AtomicU64) {
    gauge.fetch_add(1, Ordering::Relaxed);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MemberLinks {
    pub(crate) peers: Vec<PeerGauges>,
    pub(crate) strangers: Strangers,
    pub(crate) secrets: Secrets,
    /// The certificates of links between members; `None` = links in clear.
    pub(crate) tls: Option<Arc<Tls>>,
    /// How the own questions travel.
    pub(crate) transport: PeerTransport,
    /// Sessions of peers that ask over plain HTTP.
    pub(crate) sessions: Sessions,
    /// Links of askers that have not proven themselves.
    pub(crate) unproven: Arc<UnprovenGauges>,
    /// By member: told whenever a link of it was admitted.
    news: Vec<watch::Sender<()>>,
}

impl MemberLinks {
    /// No link yet.
    pub(super) fn new(settings: &ClusterSettings) -> MemberLinks {
        MemberLinks {
            peers: (0..MEMBERS_MAX).map(|_| PeerGauges::default()).collect(),
            strangers: Strangers::new(),
            secrets: Secrets::new(settings),
            tls: None,
            transport: settings.transport,
            sessions: Sessions::default(),
            unproven: Arc::default(),
            news: (0..MEMBERS_MAX).map(|_| watch::Sender::new(())).collect(),
        }
    }

    /// The lines of the log about the links to a peer.
    pub(crate) fn link_log(&self, member: MemberIndex) -> MutexGuard<'_, LinkLog> {
        let log = &self.peers[member.at()].log;
        log.lock().expect("no holder panics")
    }

    /// A process did not prove that it is `member`, or belongs to the cluster at all.
    pub(crate) fn note_stranger(&self, member: Option<MemberIndex>) {
        match member {
            Some(member) => count(&self.peers[member.at()].strangers),
            None => count(&self.strangers.unknown),
        }
    }

    /// A link of the member was admitted.
    pub(super) fn tell_news(&self, member: MemberIndex) {
        self.news[member.at()].send_replace(());
    }

    /// Changes with each `tell_news`.
    pub(crate) fn news(&self, member: MemberIndex) -> watch::Receiver<()> {
        self.news[member.at()].subscribe()
    }
}
