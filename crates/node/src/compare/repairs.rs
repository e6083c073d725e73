//! The repairs of a range that differs: the records of both members, side by side.
//!
//! ```text
//! own     k1@5  k2@3   -    k4@7  k5@6      ─►  send k1   fetch k2   fetch k3   dispute k5
//! peer    k1@4  k2@8  k3@1  k4@7  k5@6'
//! ```
//!
//! Invariants
//! 1. The newer version wins, in both directions; the rule is the merge rule and no other.
//! 2. A record goes to a member that holds none only if that member is an owner of it. It goes to
//!    each member that holds an older one.
//! 3. No repair of a record while its write may still be under way (`COMPARE_YOUNG_MS`).
//!
//! Not here: carrying it out (`compare/mod.rs`).
//! See: docs/decisions/0001-one-merge-rule.md.

use super::shared::{PairMember, SharedRecords};
use crate::disputes::is_alike;
use crate::limits::COMPARE_YOUNG_MS;
use crate::replica::record::Record;
use bytes::Bytes;
use dendra_base::peer::Ballot;
use dendra_base::{Cell, Version};
use std::cmp::Ordering;

/// One repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RepairStep {
    /// The peer takes it.
    Send { key: Bytes, cell: Cell },
    /// The peer is asked for its record, which it does not list if it has fewer copies. Then the
    /// newer one of the two goes to the other member.
    Meet { key: Bytes, cell: Cell },
    /// The peer is asked for it. The older record here has `over` copies.
    Fetch { key: Bytes, over: u8 },
    /// The own store takes it.
    Keep { key: Bytes, cell: Cell },
    /// A promise is raised at the peer.
    PromiseThere { key: Bytes, ballot: Ballot },
    /// A promise is raised here.
    PromiseHere { key: Bytes, ballot: Ballot },
    /// Two copies of one version differ.
    Dispute { key: Bytes, version: Version },
}

/// Walks over two sorted lists at once.
fn side_by_side<'a>(
    own: &'a [(Bytes, Cell)],
    peer: &'a [(Bytes, Cell)],
    mut meet: impl FnMut(&'a Bytes, Option<&'a Cell>, Option<&'a Cell>),
) {
    let (mut own, mut peer) = (own.iter().peekable(), peer.iter().peekable());
    loop {
        let order = match (own.peek(), peer.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let here = own.next_if(|_| order != Ordering::Greater);
        let there = peer.next_if(|_| order != Ordering::Less);
        if let Some((key, _)) = here.or(there) {
            meet(key, here.map(|(_, cell)| cell), there.map(|(_, cell)| cell));
        }
    }
}

/// Steps for records of clients. Cells of the peer have no values.
pub(super) fn of_records(
    own: &[(Bytes, Cell)],
    peer: &[(Bytes, Cell)],
    shared: &SharedRecords,
    now_ms: u64,
    clock: u64,
) -> Vec<RepairStep> {
    let mut steps = Vec::new();
    let copies_of = |cell: &Cell| shared.copies_of(&cell.as_ref());
    let is_young = |cell: &Cell| {
        // Successors have the clock value of their base, which does not tell their own age.
        let apart_ms = cell.version.wall_ms().abs_diff(now_ms);
        cell.version.rmw == 0 && apart_ms < COMPARE_YOUNG_MS && !shared.is_settled(cell)
    };
    side_by_side(own, peer, |key, here, there| {
        let fetch = |over| RepairStep::Fetch {
            key: key.clone(),
            over,
        };
        let (newer, step) = match (here, there) {
            // One of the two may be a value and the other what is left of it: that is settled as a
            // dispute, so that all owners have the value again.
            (Some(here), Some(there)) if here.version == there.version => {
                if !is_alike(here, there, now_ms) {
                    let (key, version) = (key.clone(), here.version);
                    steps.push(RepairStep::Dispute { key, version });
                }
                return;
            }
            (Some(here), Some(there)) if there.is_newer_than(here) => {
                (there, fetch(copies_of(here)))
            }
            (None, Some(there)) if shared.has(key, copies_of(there)) => (there, fetch(0)),
            (Some(here), Some(there)) => {
                let older = copies_of(there);
                let cell = shared.over(here.clone(), older, PairMember::Peer, key, clock);
                let key = key.clone();
                (here, RepairStep::Send { key, cell })
            }
            (Some(here), None) if shared.has(key, copies_of(here)) => {
                let (key, cell) = (key.clone(), here.clone());
                if shared.is_own_beyond(&key) {
                    (here, RepairStep::Meet { key, cell })
                } else {
                    (here, RepairStep::Send { key, cell })
                }
            }
            _ => return,
        };
        if !is_young(newer) {
            steps.push(step);
        }
    });
    steps
}

/// Steps for records of the protocol: the higher promise of each key. `None` when one cannot be
/// read.
pub(super) fn of_promises(
    own: &[(Bytes, Cell)],
    peer: &[(Bytes, Cell)],
    shared: &SharedRecords,
) -> Option<Vec<RepairStep>> {
    let (mut steps, mut is_readable) = (Vec::new(), true);
    side_by_side(own, peer, |key, here, there| {
        if !shared.has_promise(key) {
            return;
        }
        let mut promised = |cell: Option<&Cell>| match cell.map(|cell| Record::decode(&cell.value))
        {
            None => Ballot::ZERO,
            Some(Some(record)) => record.promised,
            Some(None) => {
                is_readable = false;
                Ballot::ZERO
            }
        };
        let (here, there) = (promised(here), promised(there));
        let key = key.clone();
        match here.cmp(&there) {
            Ordering::Less => steps.push(RepairStep::PromiseHere { key, ballot: there }),
            Ordering::Greater => steps.push(RepairStep::PromiseThere { key, ballot: here }),
            Ordering::Equal => {}
        }
    });
    is_readable.then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{CellRef, Key, Space};
    use dendra_ownership::layout::Layout;
    use dendra_ownership::member::MemberIndex;
    use dendra_ownership::topology::{Member, Topology};
    use std::sync::Arc;

    const NOW_MS: u64 = 1_000_000;

    fn shared() -> SharedRecords {
        let listed = (0..3).map(|at| Member::new(&format!("http://10.0.0.{at}:8080")));
        let listed: Vec<Member> = listed.collect::<Result<_, _>>().expect("addresses");
        let topology = Topology::new("t", listed, 3).expect("small");
        let layout = Layout::of_list(&Arc::new(topology));
        SharedRecords::of(&layout, MemberIndex(0), MemberIndex(1))
    }

    fn cell(key: &str, wall_ms: u64, value: &[u8], copies: u8) -> (Bytes, Cell) {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let version = Version {
            hlc: wall_ms << 16,
            origin: 1,
            rmw: 0,
        };
        let stored = Key::user(&key);
        let mut cell = CellRef::value(stored.as_stored(), version, value).to_owned();
        cell.copies = copies;
        (key, cell)
    }

    fn at_home((key, mut cell): (Bytes, Cell)) -> (Bytes, Cell) {
        cell.value = Bytes::new();
        (key, cell)
    }

    #[test]
    fn the_newer_copy_goes_where_the_older_one_or_none_is() {
        let own = [
            cell("k1", 5, b"a", 3),
            cell("k2", 3, b"b", 3),
            cell("k4", 7, b"d", 3),
            cell("k5", 6, b"e", 3),
            cell("k6", 9, b"f", 3),
            cell("k8", 9, b"h", 1),
            cell("k9", 9, b"i", 1),
        ];
        let peer = [
            cell("k1", 4, b"x", 3),
            cell("k2", 8, b"y", 3),
            cell("k3", 1, b"z", 3),
            cell("k4", 7, b"d", 3),
            cell("k5", 6, b"other", 3),
            cell("k8", 8, b"older, of more copies", 3),
        ];
        let peer = peer.map(at_home);
        let steps = of_records(&own, &peer, &shared(), NOW_MS, 0);
        let name = |step: &RepairStep| match step {
            RepairStep::Send { key, .. } => format!("send {key:?}"),
            RepairStep::Fetch { key, .. } => format!("fetch {key:?}"),
            RepairStep::Dispute { key, .. } => format!("dispute {key:?}"),
            other => format!("{other:?}"),
        };
        let steps: Vec<String> = steps.iter().map(name).collect();
        let wanted = [
            "send b\"k1\"",
            "fetch b\"k2\"",
            "fetch b\"k3\"",
            "dispute b\"k5\"",
            "send b\"k6\"",
            "send b\"k8\"",
        ];
        assert_eq!(steps, wanted);
    }

    #[test]
    fn a_value_and_what_is_left_of_it_differ_until_it_has_ended() {
        let (key, mut whole) = cell("k", 5, b"v", 3);
        whole.expiry_ms = Some(NOW_MS + 1);
        let gone = CellRef::tombstone(Key::user(&key).as_stored(), whole.version).to_owned();
        let (own, peer) = ([(key.clone(), whole)], [(key, gone)]);
        for (own, peer) in [(&own, &peer), (&peer, &own)] {
            let steps = |now_ms| of_records(own, peer, &shared(), now_ms, 0);
            assert!(matches!(steps(NOW_MS)[..], [RepairStep::Dispute { .. }]));
            assert_eq!(steps(NOW_MS + 1), []);
        }
    }

    #[test]
    fn a_write_that_may_be_under_way_is_left_alone() {
        for (wall_ms, steps) in [
            (NOW_MS - COMPARE_YOUNG_MS, 1),
            (NOW_MS - COMPARE_YOUNG_MS + 1, 0),
            (NOW_MS, 0),
            (NOW_MS + COMPARE_YOUNG_MS, 1),
        ] {
            let one = [cell("k", wall_ms, b"v", 3)];
            assert_eq!(of_records(&one, &[], &shared(), NOW_MS, 0).len(), steps);
            assert_eq!(of_records(&[], &one, &shared(), NOW_MS, 0).len(), steps);
        }
        let mut successor = cell("k", NOW_MS, b"v", 3);
        successor.1.version.rmw = 1;
        assert_eq!(of_records(&[successor], &[], &shared(), NOW_MS, 0).len(), 1);
    }

    #[test]
    fn the_higher_promise_goes_to_the_other_member() {
        let record = |key: &str, hlc| {
            let promised = Ballot { hlc, origin: 1 };
            let record = Record {
                promised,
                accepted: None,
            };
            let stored = Key::new(Space::Protocol, key.as_bytes());
            let cell = record.to_cell(&stored, None, 6);
            (Bytes::copy_from_slice(key.as_bytes()), cell)
        };
        let own = [record("a", 5), record("b", 3), record("d", 4)];
        let mut peer = [record("a", 4), record("c", 7), record("d", 4)];
        let steps = of_promises(&own, &peer, &shared()).expect("readable");
        let ballot = |hlc| Ballot { hlc, origin: 1 };
        let there = |key, hlc| RepairStep::PromiseThere {
            key: Bytes::from_static(key),
            ballot: ballot(hlc),
        };
        let here = RepairStep::PromiseHere {
            key: Bytes::from_static(b"c"),
            ballot: ballot(7),
        };
        assert_eq!(steps, [there(b"a", 5), there(b"b", 3), here]);
        peer[2].1.value = Bytes::from_static(b"no record");
        assert_eq!(of_promises(&own, &peer, &shared()), None);
    }
}
