//! The former addresses of members that have moved, until they are reached at their new ones.
//!
//! ```text
//! epoch n    h3:8080 ─┐ readdress                 a member that does not know it yet, and still
//! epoch n+1  h3b:8080 ┘ ─► former: h3:8080 ──►    listens at h3:8080, is called there
//!                          met at h3b:8080 ──►    forgotten
//! ```
//!
//! Messages to a member go over links that are opened to its address. A member that does not know
//! its new address does not listen there, and would never learn it.
//!
//! The other way round, this member may not know the move of another one, because its folder lost
//! that epoch. It could not ask for it. A member that opens a link here says its address, and is
//! called there as well.
//!
//! Invariants
//! 1. Of two moves that a member does not know yet, the address before the first one is kept.
//! 2. An address is only a place to call: the process there has to prove that it is the member.
//!
//! Not here: the order of a readdress (crate `ownership`, `steward/`), opening a link
//! (`handshake.rs`).
//! See: docs/operating.md, "Grow, shrink, replace".

use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::MemberId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FormerAddresses(Mutex<HashMap<MemberId, String>>);

impl FormerAddresses {
    /// The former addresses by these epochs, the newest last.
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a EpochRecord>) -> FormerAddresses {
        let former = FormerAddresses::default();
        let mut before: Option<&EpochRecord> = None;
        for record in records {
            if let Some(before) = before {
                former.follow(before, record);
            }
            before = Some(record);
        }
        former
    }

    /// The epoch `after` is there.
    pub(crate) fn follow(&self, before: &EpochRecord, after: &EpochRecord) {
        let mut former = self.former();
        former.retain(|id, url| {
            let is = after.member(*id).map(|member| &member.place.url);
            is.is_some_and(|is| is != url)
        });
        for member in after.members() {
            let was = before.member(member.id).map(|was| &was.place.url);
            let is_free =
                |url: &String| after.members().iter().all(|other| other.place.url != *url);
            // At an address that another member has now, that one answers.
            if let Some(was) = was.filter(|was| **was != member.place.url && is_free(was)) {
                former.entry(member.id).or_insert_with(|| was.clone());
            }
        }
    }

    pub(crate) fn get(&self, member: MemberId) -> Option<String> {
        self.former().get(&member).cloned()
    }

    /// The member opened a link, and proved that it is the one at `url` in its newest epoch. Its
    /// move to there may be in an epoch that this member does not know: `newest` is its own.
    pub(crate) fn told(&self, newest: &EpochRecord, member: MemberId, url: &str, epoch: u64) {
        let known = newest.member(member);
        let is_elsewhere = known.is_some_and(|known| known.place.url != url);
        if is_elsewhere && epoch > newest.epoch() {
            self.former().insert(member, url.to_owned());
        }
    }

    /// The member was reached at its newest address.
    pub(crate) fn forget(&self, member: MemberId) {
        self.former().remove(&member);
    }

    fn former(&self) -> MutexGuard<'_, HashMap<MemberId, String>> {
        self.0.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_ownership::{Member, Topology};

    fn moved(record: &EpochRecord, member: MemberId, url: &str) -> EpochRecord {
        record.readdressed(member, url).expect("a member moves")
    }

    /// The epoch in which the founders with these addresses are enrolled.
    fn enrolled(urls: &[&str]) -> EpochRecord {
        let members = urls.iter().map(|url| Member::new(url).expect("a url"));
        let topology = Topology::new("dendra", members.collect(), 2).expect("few members");
        let founded = EpochRecord::founded(&topology);
        let ids = founded.members().iter().map(|member| member.id);
        let nodes: Vec<_> = ids.map(|id| (id, u128::from(id.0) + 1)).collect();
        founded.enrolled(&nodes).expect("all are new")
    }

    #[test]
    fn the_address_of_before_is_kept_until_the_member_is_met() {
        let first = enrolled(&["http://a:1", "http://b:1", "http://c:1"]);
        let [a, b, c] = [0, 1, 2].map(|at| first.members()[at].id);
        let second = moved(&first, b, "http://b:2");
        let third = moved(&second, b, "http://b:3");
        let former = FormerAddresses::of([&first, &second, &third]);
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
        assert_eq!((former.get(a), former.get(c)), (None, None));
        former.forget(b);
        assert_eq!(former.get(b), None);
        // Another one moves, and it stays forgotten.
        let fourth = moved(&third, c, "http://c:2");
        former.follow(&third, &fourth);
        assert_eq!(former.get(b), None);
        assert_eq!(former.get(c).as_deref(), Some("http://c:1"));
    }

    #[test]
    fn a_member_that_moves_back_may_be_where_it_was_between() {
        let first = enrolled(&["http://a:1", "http://b:1"]);
        let b = first.members()[1].id;
        let second = moved(&first, b, "http://b:2");
        let back = moved(&second, b, "http://b:1");
        // It is called at b:1 anyway: that is its address.
        let former = FormerAddresses::of([&first, &second, &back]);
        assert_eq!(former.get(b).as_deref(), Some("http://b:2"));
    }

    #[test]
    fn a_member_is_called_where_it_says_to_be_until_its_move_is_known() {
        let first = enrolled(&["http://a:1", "http://b:1"]);
        let b = first.members()[1].id;
        let second = moved(&first, b, "http://b:2");
        let former = FormerAddresses::of([&first, &second]);
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
        // It knows no later epoch: it has not heard of its move.
        former.told(&second, b, "http://b:0", second.epoch());
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
        // It is where this member calls it.
        former.told(&second, b, "http://b:2", second.epoch() + 1);
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
        former.told(&second, b, "http://b:4", second.epoch() + 1);
        assert_eq!(former.get(b).as_deref(), Some("http://b:4"));
        former.told(&second, b, "http://b:5", second.epoch() + 2);
        assert_eq!(former.get(b).as_deref(), Some("http://b:5"));
        // Of the moves to there this member learns one after the other.
        let third = moved(&second, b, "http://b:3");
        former.follow(&second, &third);
        assert_eq!(former.get(b).as_deref(), Some("http://b:5"));
        former.follow(&third, &moved(&third, b, "http://b:5"));
        assert_eq!(former.get(b).as_deref(), Some("http://b:3"));
    }

    #[test]
    fn a_removed_member_is_called_nowhere() {
        let first = enrolled(&["http://a:1", "http://b:1", "http://c:1"]);
        let [b, c] = [1, 2].map(|at| first.members()[at].id);
        let second = moved(&first, b, "http://b:2");
        let third = moved(&second, c, "http://c:2");
        let former = FormerAddresses::of([&first, &second, &third]);
        // As after the plan that removes it.
        let without_c = moved(&enrolled(&["http://a:1", "http://b:1"]), b, "http://b:2");
        former.follow(&third, &without_c);
        assert_eq!(former.get(c), None);
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
    }
}
