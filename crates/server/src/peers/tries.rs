//! Links of all loops, seen from a start: has each own loop tried its own, and has each loop of the others opened its one?
//!
//! ```text
//! start    own loop ─► first try to member ─ up, or not ─► over ─► all loops'? ─► the door opens
//!          loop of a member ─► its link to us ─► heard ─► all of its loops'? ─► the node is ready
//! restart  member ─► its link to us ─► heard ─► our loops try at once, and soon again: its door is about to open
//! ```
//!
//! Invariants
//! 1. A first try is over once, however the task that made it ends.
//! 2. News that comes during a try that fails is not missed: it counts for the one that follows.
//! 3. What is noted of a member is bounded by its loops, which `LOOPS_MAX` bounds.
//!
//! Not here: what a try is (`link.rs`), whom a start waits for (`meeting.rs`).
//! See: docs/peer.md.

use dendra_node::MemberIndex;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;

/// A member that let this one in, and how many loops it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(super) member: MemberIndex,
    pub(super) loops: u16,
}

#[derive(Debug)]
struct OfMember {
    /// Own loops whose first try is not over.
    untried: usize,
    /// Its loops that opened a link since this process began.
    heard: BTreeSet<u16>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tries {
    members: Mutex<Vec<OfMember>>,
    /// Told whenever `members` changes.
    changed: watch::Sender<()>,
    /// By member: told whenever a link of it was let in.
    news: Vec<watch::Sender<()>>,
}

impl Tries {
    /// Before the first try of each of so many loops.
    pub(super) fn new(members: usize, loops: usize) -> Arc<Tries> {
        let of_member = |_| OfMember {
            untried: loops,
            heard: BTreeSet::new(),
        };
        Arc::new(Tries {
            members: Mutex::new((0..members).map(of_member).collect()),
            changed: watch::Sender::new(()),
            news: (0..members).map(|_| watch::Sender::new(())).collect(),
        })
    }

    fn members(&self) -> MutexGuard<'_, Vec<OfMember>> {
        self.members.lock().expect("no holder panics")
    }

    /// The first try of a loop. Requires: one for each loop.
    pub(super) fn first(self: &Arc<Tries>, member: MemberIndex) -> FirstTry {
        FirstTry {
            tries: Arc::clone(self),
            member,
        }
    }

    /// Waits until the first tries to these members are over, but not longer than `at_most`: are they?
    pub(super) async fn wait_for_tries(&self, hosts: &[Host], at_most: Duration) -> bool {
        self.wait(at_most, |members| {
            hosts
                .iter()
                .all(|host| members[host.member.at()].untried == 0)
        })
        .await
    }

    /// Waits until all loops of these members have opened a link, but not longer than `at_most`: have they?
    pub(super) async fn wait_for_others(&self, hosts: &[Host], at_most: Duration) -> bool {
        self.wait(at_most, |members| {
            let heard = |host: &Host| members[host.member.at()].heard.len();
            hosts
                .iter()
                .all(|host| heard(host) >= usize::from(host.loops))
        })
        .await
    }

    async fn wait(&self, at_most: Duration, is_so: impl Fn(&[OfMember]) -> bool) -> bool {
        let mut changed = self.changed.subscribe();
        let waiting = changed.wait_for(|()| is_so(&self.members()));
        tokio::time::timeout(at_most, waiting).await.is_ok()
    }

    /// A link of this member's loop was let in: it is there.
    pub(super) fn hear(&self, member: MemberIndex, lane: u16) {
        self.members()[member.at()].heard.insert(lane);
        self.changed.send_replace(());
        self.news[member.at()].send_replace(());
    }

    /// Changes with each `hear`.
    pub(super) fn news(&self, member: MemberIndex) -> watch::Receiver<()> {
        self.news[member.at()].subscribe()
    }
}

/// A first try that is not over before this is dropped.
#[derive(Debug)]
pub(super) struct FirstTry {
    tries: Arc<Tries>,
    member: MemberIndex,
}

impl Drop for FirstTry {
    fn drop(&mut self) {
        self.tries.members()[self.member.at()].untried -= 1;
        self.tries.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberIndex = MemberIndex(1);
    const B: MemberIndex = MemberIndex(2);
    const AT_ONCE: Duration = Duration::ZERO;

    fn host(member: MemberIndex) -> Host {
        Host { member, loops: 2 }
    }

    #[tokio::test]
    async fn a_start_waits_for_the_first_try_of_every_loop_to_those_it_asks_about() {
        let tries = Tries::new(3, 2);
        assert!(tries.wait_for_tries(&[], AT_ONCE).await);
        assert!(!tries.wait_for_tries(&[host(A)], AT_ONCE).await);
        let (first, second) = (tries.first(A), tries.first(A));
        drop(first);
        assert!(
            !tries.wait_for_tries(&[host(A)], AT_ONCE).await,
            "one loop of two"
        );
        drop(second);
        assert!(tries.wait_for_tries(&[host(A)], AT_ONCE).await);
        let both = [host(A), host(B)];
        assert!(
            !tries.wait_for_tries(&both, AT_ONCE).await,
            "another member"
        );
    }

    #[tokio::test]
    async fn a_node_is_ready_when_every_loop_of_the_others_has_its_link() {
        let tries = Tries::new(3, 1);
        assert!(tries.wait_for_others(&[], AT_ONCE).await);
        tries.hear(A, 1);
        tries.hear(A, 1);
        assert!(
            !tries.wait_for_others(&[host(A)], AT_ONCE).await,
            "one loop of two"
        );
        tries.hear(A, 0);
        assert!(tries.wait_for_others(&[host(A)], AT_ONCE).await);
        let both = [host(A), host(B)];
        assert!(
            !tries.wait_for_others(&both, AT_ONCE).await,
            "another member"
        );
    }

    #[tokio::test]
    async fn the_last_try_wakes_who_waits() {
        let tries = Tries::new(2, 1);
        let first = tries.first(A);
        let trying = std::thread::spawn(move || drop(first));
        assert!(
            tries
                .wait_for_tries(&[host(A)], Duration::from_secs(60))
                .await
        );
        trying.join().expect("it ends");
    }

    #[test]
    fn news_of_a_member_is_seen_once() {
        let tries = Tries::new(3, 1);
        let mut news = tries.news(A);
        tries.hear(B, 0);
        assert!(!news.has_changed().expect("the tries are there"));
        tries.hear(A, 0);
        tries.hear(A, 0);
        assert!(news.has_changed().expect("the tries are there"));
        news.mark_unchanged();
        assert!(!news.has_changed().expect("the tries are there"));
    }
}
