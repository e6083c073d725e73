//! A hint as it stands in the own store: its key, its bytes, and how it is deleted.
//!
//! ```text
//! key     | Space::Hint | label of the member: 8 | raw key |
//! value   the cell that the member did not confirm
//! ```
//!
//! Invariants
//! 1. A hint of any cell that a client may write can be stored.
//!
//! Not here: which hints are kept, delivered or deleted (`hints/mod.rs`, `hints/orphans.rs`).
//! See: docs/format/cluster.md.

use crate::desk::{Desk, Order, Turn};
use dendra_base::limits::KEY_LABEL_BYTES;
use dendra_base::{Cell, CellRef, Condition, Guard, Key, Space, Version};
use dendra_ownership::member::MemberIndex;
use dendra_ownership::topology::Topology;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Bytes in front of the raw key: which member.
pub(super) const MEMBER_BYTES: usize = KEY_LABEL_BYTES;

/// The label under which a member's hints are stored: it survives changes of the member list.
pub(super) fn label(topology: &Topology, member: MemberIndex) -> [u8; MEMBER_BYTES] {
    let mut hasher = SipHasher13::new_with_key(&topology.hash_key());
    hasher.write(topology.member(member).url.as_bytes());
    hasher.finish().to_be_bytes()
}

/// The labels of all other members. A member that was replaced at its own address has had the label
/// of the one that replaced it: what that one kept for it is delivered to no member.
pub(super) fn labels(topology: &Topology, me: MemberIndex) -> Vec<[u8; MEMBER_BYTES]> {
    let members = (0..topology.len()).map(MemberIndex);
    let members = members.filter(|member| topology.has(*member) && *member != me);
    members.map(|member| label(topology, member)).collect()
}

/// The first label after one.
pub(super) fn following(label: &[u8; MEMBER_BYTES]) -> Option<[u8; MEMBER_BYTES]> {
    let next = u64::from_be_bytes(*label).checked_add(1)?;
    Some(next.to_be_bytes())
}

/// The first key after a label, or of all hints.
pub(super) fn start(label: [u8; MEMBER_BYTES]) -> Key {
    Key::new(Space::Hint, &label)
}

/// Is it a hint for a member that was removed? `labels` are those of all others.
pub(super) fn is_orphan(labels: &[[u8; MEMBER_BYTES]], key: &Key) -> bool {
    let is_its = |label: &[u8; MEMBER_BYTES]| key.raw().starts_with(label);
    !labels.iter().any(is_its)
}

/// The write of `cell` under `raw_key`, as it is kept for the member with this label.
pub(super) fn hint(label: [u8; MEMBER_BYTES], raw_key: &[u8], cell: &Cell) -> (Key, Cell) {
    let mut key = Vec::with_capacity(MEMBER_BYTES + raw_key.len());
    key.extend_from_slice(&label);
    key.extend_from_slice(raw_key);
    let key = Key::new(Space::Hint, &key);
    let mut value = Vec::with_capacity(cell.as_ref().encoded_len());
    cell.as_ref().encode(&mut value);
    let hint = CellRef::value(key.as_stored(), cell.version, &value).to_owned();
    (key, hint)
}

/// How many bytes of the room a hint takes.
pub(super) fn size(key: &Key, hint: &Cell) -> u64 {
    (key.as_stored().len() + hint.as_ref().encoded_len()) as u64
}

/// Orders the deletion of a hint of this version, unless a newer one took its place.
pub(super) fn delete(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    order: Order,
    key: Key,
    version: Version,
) {
    let cell = CellRef::tombstone(key.as_stored(), version.successor()).to_owned();
    let guard = Guard::If(Condition::Matches(version));
    desk.write(turn, order, key, cell, guard);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use dendra_base::limits::{STORED_KEY_BYTES_MAX, STORED_VALUE_BYTES_MAX};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(legal::cases(128))]

        #[test]
        fn any_legal_hint_is_read_as_it_was_kept_and_can_be_stored(
            label: [u8; MEMBER_BYTES], (raw_key, cell) in legal::record(),
        ) {
            let (key, hint) = hint(label, &raw_key, &cell);
            prop_assert!(key.as_stored().len() <= STORED_KEY_BYTES_MAX);
            prop_assert!(hint.value.len() <= STORED_VALUE_BYTES_MAX);
            prop_assert!(hint.as_ref().is_intact(key.as_stored()));
            prop_assert_eq!(&key.raw()[MEMBER_BYTES..], &raw_key);
            prop_assert!(!is_orphan(&[label], &key));
            prop_assert!(CellRef::decode(&hint.value) == Some(cell.as_ref()));
        }
    }

    #[test]
    fn the_labels_of_members_do_not_overlap() {
        assert_eq!(
            following(&[0, 0, 0, 0, 0, 0, 0, 255]),
            Some([0, 0, 0, 0, 0, 0, 1, 0])
        );
        assert_eq!(following(&[255; 8]), None, "the end of the space");
    }
}
