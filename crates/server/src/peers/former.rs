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
//! Not here: the order of a readdress (crate `node`, `steward/`), opening a link (`handshake.rs`).
//! See: docs/operating.md, "Grow, shrink, replace".

use dendra_node::ring::table::MemberId;
use dendra_node::topology::record::EpochRecord;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FormerAddresses(Mutex<HashMap<MemberId, String>>);

impl FormerAddresses {
    /// The former addresses by these epochs, the newest last.
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a EpochRecord>) -> FormerAddresses {
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
    pub(super) fn follow(&self, before: &EpochRecord, after: &EpochRecord) {
        let mut former = self.former();
        former.retain(|id, url| {
            let is = after.member(*id).map(|member| &member.place.url);
            is.is_some_and(|is| is != url)
        });
        for member in after.members() {
            let was = before.member(member.id).map(|was| &was.place.url);
            if let Some(was) = was.filter(|was| **was != member.place.url) {
                former.entry(member.id).or_insert_with(|| was.clone());
            }
        }
    }

    pub(super) fn get(&self, member: MemberId) -> Option<String> {
        self.former().get(&member).cloned()
    }

    /// The member opened a link. It knows a later epoch than this one, and this address of itself.
    pub(super) fn told(&self, member: MemberId, url: &str) {
        self.former().insert(member, url.to_owned());
    }

    /// The member was reached at its newest address.
    pub(super) fn forget(&self, member: MemberId) {
        self.former().remove(&member);
    }

    fn former(&self) -> MutexGuard<'_, HashMap<MemberId, String>> {
        self.0.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_node::{Member, Topology};

    fn moved(record: &EpochRecord, member: MemberId, url: &str) -> EpochRecord {
        record.readdressed(member, url).expect("a member moves")
    }

    #[test]
    fn the_address_of_before_is_kept_until_the_member_is_met() {
        let urls = ["http://a:1", "http://b:1", "http://c:1"];
        let members = urls.map(|url| Member::new(url).expect("a url")).to_vec();
        let topology = Topology::new("dendra", members, 3).expect("three members");
        let first = EpochRecord::founded(&topology);
        let [a, b, c] = [0, 1, 2].map(|at| first.members()[at].id);
        let second = moved(&first, b, "http://b:2");
        let third = moved(&second, b, "http://b:3");
        let former = FormerAddresses::of([&first, &second, &third]);
        assert_eq!(former.get(b).as_deref(), Some("http://b:1"));
        assert_eq!((former.get(a), former.get(c)), (None, None));
        former.forget(b);
        assert_eq!(former.get(b), None);
        // It moves back before it has learnt the first move.
        let fourth = moved(&third, c, "http://c:2");
        former.follow(&third, &fourth);
        assert_eq!(former.get(c).as_deref(), Some("http://c:1"));
        // Or it has learnt more than this member, and says where it is.
        former.told(c, "http://c:3");
        assert_eq!(former.get(c).as_deref(), Some("http://c:3"));
        former.follow(&fourth, &moved(&fourth, c, "http://c:3"));
        assert_eq!(former.get(c).as_deref(), Some("http://c:2"));
        let fifth = moved(&fourth, c, "http://c:1");
        former.follow(&fourth, &fifth);
        assert_eq!(former.get(c).as_deref(), Some("http://c:2"));
    }
}
