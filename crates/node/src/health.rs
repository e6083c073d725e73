//! Response times of the other members, as this one sees them: which to ask first, and when to ask
//! another one.
//!
//! ```text
//! answer  ──► latency = 7/8 latency + 1/8 sample        spread likewise, of the distance to it
//! no answer in time ──► counts as a sample as long as the wait
//! hedge   ──► latency + 4 spread of the one that is asked, between 1 ms and 50 ms
//! link lost, or its member opens one  ──► expected for LINK_GRACE_US
//! clock with readiness `Behind`  ──► reads count it as slower by HEDGE_US_MAX, for READINESS_FRESH_US
//! ```
//!
//! Invariants
//! 1. Health decides about order and patience, never about safety: any member may be asked, and no
//!    answer counts more than another.
//! 2. A member without a link is not asked. After a start each member counts as linked until the
//!    world says that it is not.
//!
//! Not here: retries (there are none), quorums.
//! See: Jacobson, "Congestion Avoidance and Control", 1988, for the estimate.

use crate::limits::{HEDGE_US_MAX, HEDGE_US_MIN, LINK_GRACE_US, READINESS_FRESH_US};
use dendra_base::peer::Readiness;
use dendra_ownership::limits::LINKS_SETTLE_US;
use dendra_ownership::member::MemberIndex;

/// The links and response times of one member.
#[derive(Clone, Copy, Debug)]
struct MemberHealth {
    is_up: bool,
    /// While there is no link: until when one is expected to come back.
    expected_until_us: u64,
    /// When the world first told this process about a link; `None` = it has not yet.
    told_us: Option<u64>,
    /// Was there a link in this life of the process?
    was_up: bool,
    /// Has it answered, or been late, at least once? If not, the numbers are those of a fresh link.
    is_measured: bool,
    latency_us: u64,
    spread_us: u64,
    /// Until when its word counts that it is behind.
    behind_until_us: u64,
}

/// The state of another member, for metrics and pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHealth {
    /// Is there a link?
    pub is_up: bool,
    /// How long an answer takes, about; `None` before the first one.
    pub latency_us: Option<u64>,
    /// How long is waited for it before another member is asked as well.
    pub patience_us: u64,
}

/// Links to members of which some have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// To as many as are needed.
    Enough,
    /// To too few; to enough of them if those come back that are expected, until then.
    Awaited {
        until_us: u64,
        up: u8,
        missing: MemberIndex,
    },
    /// To too few.
    Lacking { up: u8, missing: MemberIndex },
}

/// The state of all members.
#[derive(Debug)]
pub(crate) struct Health {
    peers: Vec<MemberHealth>,
}

impl Health {
    /// The state after a start: all members count as linked, with the patience of a fresh link.
    pub(crate) fn new(members: usize) -> Health {
        let fresh = MemberHealth {
            is_up: true,
            expected_until_us: 0,
            told_us: None,
            was_up: false,
            is_measured: false,
            latency_us: HEDGE_US_MIN,
            spread_us: HEDGE_US_MIN,
            behind_until_us: 0,
        };
        Health {
            peers: vec![fresh; members],
        }
    }

    /// There are as many members now. The new ones have no links yet.
    pub(crate) fn grow(&mut self, members: usize) {
        let fresh = Health::new(1).peers[0];
        let fresh = MemberHealth {
            is_up: false,
            told_us: Some(0),
            ..fresh
        };
        if members > self.peers.len() {
            self.peers.resize(members, fresh);
        }
    }

    /// Is there a link?
    pub(crate) fn is_up(&self, member: MemberIndex) -> bool {
        self.peers[member.at()].is_up
    }

    /// All that is known of a member.
    pub(crate) fn of(&self, member: MemberIndex) -> PeerHealth {
        let peer = self.peers[member.at()];
        PeerHealth {
            is_up: peer.is_up,
            latency_us: peer.is_measured.then_some(peer.latency_us),
            patience_us: self.patience_us(member),
        }
    }

    /// A link came up, or the last one went down.
    pub(crate) fn set_up(&mut self, member: MemberIndex, is_up: bool, now_us: u64) {
        let peer = &mut self.peers[member.at()];
        if peer.is_up && !is_up {
            peer.expected_until_us = now_us + LINK_GRACE_US;
        }
        peer.is_up = is_up;
        peer.was_up |= is_up;
        peer.told_us.get_or_insert(now_us);
    }

    /// Does a missing link say that the member does not answer? Right after a start it does not.
    pub(crate) fn is_settled(&self, member: MemberIndex, now_us: u64) -> bool {
        let peer = &self.peers[member.at()];
        let told = peer.told_us;
        told.is_some_and(|told_us| peer.was_up || now_us >= told_us + LINKS_SETTLE_US)
    }

    /// A member is alive: if there is no link to it, one is about to come up.
    pub(crate) fn alive(&mut self, member: MemberIndex, now_us: u64) {
        self.peers[member.at()].expected_until_us = now_us + LINK_GRACE_US;
    }

    /// Are there links to `needed` of these members?
    pub(crate) fn links(&self, members: &[MemberIndex], needed: u8, now_us: u64) -> Links {
        let up = members.iter().filter(|member| self.is_up(**member)).count();
        let up = u8::try_from(up).expect("there are at most MEMBERS_MAX members");
        let missing = members.iter().copied().find(|member| !self.is_up(*member));
        let Some(missing) = missing.filter(|_| up < needed) else {
            return Links::Enough;
        };
        let peers = members.iter().map(|member| self.peers[member.at()]);
        let down = peers.filter(|peer| !peer.is_up);
        let mut expected_us: Vec<u64> = down.map(|peer| peer.expected_until_us).collect();
        expected_us.sort_unstable_by(|a, b| b.cmp(a));
        // So many have to come, and those do first that are expected the longest.
        let last = expected_us.get(usize::from(needed - up) - 1).copied();
        match last.filter(|until| *until > now_us) {
            Some(until_us) => Links::Awaited {
                until_us,
                up,
                missing,
            },
            None => Links::Lacking { up, missing },
        }
    }

    /// A member answered a question that was sent at `sent_us`.
    pub(crate) fn answered(&mut self, member: MemberIndex, sent_us: u64, now_us: u64) {
        self.peers[member.at()].sample(now_us.saturating_sub(sent_us));
    }

    /// A member did not answer in the time that was given to it.
    pub(crate) fn late(&mut self, member: MemberIndex, sent_us: u64, now_us: u64) {
        self.peers[member.at()].sample(now_us.saturating_sub(sent_us));
    }

    /// A question to a member was given up early. That is news only if the member had taken longer
    /// than usual by then.
    pub(crate) fn withdrawn(&mut self, member: MemberIndex, sent_us: u64, now_us: u64) {
        let us = now_us.saturating_sub(sent_us);
        if us > self.peers[member.at()].latency_us {
            self.peers[member.at()].sample(us);
        }
    }

    /// The smaller, the sooner it is asked.
    pub(crate) fn cost(&self, member: MemberIndex) -> u64 {
        let peer = self.peers[member.at()];
        // Whole steps of an eighth of a millisecond: noise does not change the order of the ring.
        let down = if peer.is_up { 0 } else { 1 << 40 };
        down + ((peer.latency_us + 2 * peer.spread_us) >> 7)
    }

    /// A member told its readiness for a write beside its clock.
    pub(crate) fn told(&mut self, member: MemberIndex, readiness: Readiness, now_us: u64) {
        let is_behind = readiness == Readiness::Behind;
        self.peers[member.at()].behind_until_us = if is_behind {
            now_us + READINESS_FRESH_US
        } else {
            0
        };
    }

    /// Cost of a read, as `cost` tells that of a write: a read would wait at a member that is
    /// behind. A write asks that member for its clock all the same, to learn when it is behind no
    /// longer.
    pub(crate) fn read_cost(&self, member: MemberIndex, now_us: u64) -> u64 {
        let is_behind = now_us < self.peers[member.at()].behind_until_us;
        self.cost(member) + ((u64::from(is_behind) * HEDGE_US_MAX) >> 7)
    }

    /// How long to wait for this member before another one is asked as well.
    pub(crate) fn patience_us(&self, member: MemberIndex) -> u64 {
        let peer = self.peers[member.at()];
        (peer.latency_us + 4 * peer.spread_us).clamp(HEDGE_US_MIN, HEDGE_US_MAX)
    }
}

impl MemberHealth {
    fn sample(&mut self, us: u64) {
        // A pause of the whole process is no news about the peer: at most a second counts.
        let us = us.min(1_000_000);
        self.is_measured = true;
        self.spread_us = (7 * self.spread_us + us.abs_diff(self.latency_us)) / 8;
        self.latency_us = (7 * self.latency_us + us) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberIndex = MemberIndex(0);
    const B: MemberIndex = MemberIndex(1);

    #[test]
    fn a_slow_member_is_asked_last_and_comes_back() {
        let mut health = Health::new(2);
        assert_eq!(health.cost(A), health.cost(B));
        let mut now = 0;
        for _ in 0..60 {
            now += 100_000;
            health.answered(A, now - 200, now);
            health.answered(B, now - 40_000, now);
        }
        assert!(health.cost(B) > 10 * health.cost(A));
        assert_eq!(
            health.patience_us(A),
            HEDGE_US_MIN,
            "a fifth of a millisecond"
        );
        assert!((40_000..=HEDGE_US_MAX).contains(&health.patience_us(B)));
        for _ in 0..120 {
            now += 100_000;
            health.answered(B, now - 200, now);
        }
        assert_eq!(health.cost(B), health.cost(A));
    }

    #[test]
    fn nothing_is_said_of_a_member_that_was_never_asked() {
        let mut health = Health::new(2);
        health.answered(A, 0, 1_000);
        assert_eq!(health.of(A).latency_us, Some(HEDGE_US_MIN));
        assert_eq!(health.of(B).latency_us, None);
        assert_eq!(health.of(B).patience_us, 5 * HEDGE_US_MIN);
    }

    #[test]
    fn a_read_goes_to_a_member_that_is_not_behind_unless_that_is_far_away() {
        let (mut health, now_us) = (Health::new(2), 1_000_000);
        let first = |health: &Health, now_us| {
            let cost = |member: &MemberIndex| health.read_cost(*member, now_us);
            [A, B].into_iter().min_by_key(cost)
        };
        health.answered(B, 0, 20_000);
        assert_eq!(first(&health, now_us), Some(A));
        health.told(A, Readiness::Behind, now_us);
        assert_eq!(first(&health, now_us), Some(B));
        assert!(
            health.cost(A) < health.cost(B),
            "of writes it is asked first"
        );
        assert_eq!(first(&health, now_us + READINESS_FRESH_US), Some(A));
        health.told(A, Readiness::DiskFull, now_us);
        assert_eq!(first(&health, now_us), Some(A), "it serves reads");
        health.told(A, Readiness::Behind, now_us);
        (0..20).for_each(|_| health.answered(B, 0, 200_000));
        assert_eq!(first(&health, now_us), Some(A), "the other one is far away");
    }

    #[test]
    fn silence_counts_as_slowness() {
        let mut health = Health::new(2);
        for wait in 1..10 {
            health.late(A, 0, wait * 10_000);
        }
        assert!(health.cost(A) > health.cost(B));
    }

    #[test]
    fn a_question_that_is_given_up_early_tells_nothing_of_a_quick_member() {
        let mut health = Health::new(2);
        health.answered(A, 0, 10_000);
        let before = health.cost(A);
        health.withdrawn(A, 0, 1_000);
        assert_eq!(health.cost(A), before);
        health.withdrawn(A, 0, 900_000);
        assert!(health.cost(A) > before);
    }

    #[test]
    fn a_member_that_joins_has_no_link_yet() {
        let mut health = Health::new(1);
        health.grow(2);
        assert!(health.is_up(A) && !health.is_up(B));
    }

    #[test]
    fn a_member_without_a_link_comes_last() {
        let mut health = Health::new(2);
        health.answered(B, 0, 1_000_000);
        health.set_up(A, false, 0);
        assert!(health.cost(A) > health.cost(B));
        assert!(!health.is_up(A) && health.is_up(B));
    }

    #[test]
    fn a_member_is_expected_for_a_while_when_its_link_is_lost_and_again_when_it_opens_one() {
        const C: MemberIndex = MemberIndex(2);
        let all = [A, B, C];
        let mut health = Health::new(3);
        assert_eq!(health.links(&all, 3, 0), Links::Enough);
        let lost_us = 1_000;
        health.set_up(B, false, lost_us);
        assert_eq!(health.links(&all, 2, lost_us), Links::Enough);
        let awaited = |until_us, up| Links::Awaited {
            until_us,
            up,
            missing: B,
        };
        let until_us = lost_us + LINK_GRACE_US;
        assert_eq!(health.links(&all, 3, lost_us), awaited(until_us, 2));
        // Told once more, it is not lost once more.
        health.set_up(B, false, lost_us + 7);
        assert_eq!(health.links(&all, 3, until_us - 1), awaited(until_us, 2));
        let lacking = |up| Links::Lacking { up, missing: B };
        assert_eq!(health.links(&all, 3, until_us), lacking(2));
        // Both have to come for three, one for two: then the one that is expected counts.
        health.set_up(C, false, until_us);
        let later_us = until_us + LINK_GRACE_US;
        assert_eq!(health.links(&all, 3, until_us), lacking(1));
        assert_eq!(health.links(&all, 2, until_us), awaited(later_us, 1));
        health.alive(B, until_us + 9);
        assert_eq!(health.links(&all, 3, until_us + 9), awaited(later_us, 1));
        assert_eq!(
            health.links(&all, 2, until_us + 9),
            awaited(later_us + 9, 1)
        );
        assert_eq!(
            health.links(&all, 4, 0),
            lacking(1),
            "so many there are not"
        );
    }
}
