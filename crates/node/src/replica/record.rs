//! A member's record of a key's conditional writes: its promise, and the proposal that it accepted.
//!
//! ```text
//! value of the cell under | Space::Protocol | raw key |
//!   format 1 | promised: hlc 8, origin 4 |                          nothing accepted yet
//!   format 1 | promised | ballot 12 | author 12 | count 1 | its ancestors, 12 each | encoded cell |    the proposal accepted last
//! the cell's version: 1, 2, 3 … in its clock field, one more with every change
//! ```
//!
//! Invariants
//! 1. Big-endian numbers; bytes that are no record decode to `None`, never to an empty record.
//! 2. An accepted proposal stays until another one is accepted. Only its value goes, once the key
//!    holds it: its author can still be told.
//!
//! Not here: when records change (`protocol.rs`).
//! See: docs/format/cluster.md, docs/protocol.md.

use dendra_base::peer::{ANCESTORS_MAX, Ballot, Lineage, Proposal};
use dendra_base::{Cell, CellRef, Key, Kind, Version};

const FORMAT: u8 = 1;
const BALLOT_BYTES: usize = 12;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// No ballot below this one is served.
    pub(crate) promised: Ballot,
    /// The proposal accepted last.
    pub(crate) accepted: Option<Proposal>,
}

impl Record {
    /// The record as a cell of `key`, that follows the one with version `previous`.
    pub(crate) fn to_cell(&self, key: &Key, previous: Option<Version>, origin: u32) -> Cell {
        let mut bytes = vec![FORMAT];
        put_ballot(&mut bytes, self.promised);
        if let Some(accepted) = &self.accepted {
            put_ballot(&mut bytes, accepted.ballot);
            put_ballot(&mut bytes, accepted.author);
            let known = &accepted.ancestors[..accepted.ancestors.len().min(ANCESTORS_MAX)];
            bytes.push(known.len() as u8);
            for ancestor in known {
                put_ballot(&mut bytes, *ancestor);
            }
            accepted.cell.as_ref().encode(&mut bytes);
        }
        let version = Version {
            hlc: previous.map_or(0, |version| version.hlc) + 1,
            origin,
            rmw: 0,
        };
        CellRef::value(key.as_stored(), version, &bytes).to_owned()
    }

    /// Reads the value of a record's cell.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Record> {
        let mut rest = bytes.strip_prefix(&[FORMAT])?;
        let promised = take_ballot(&mut rest)?;
        if rest.is_empty() {
            return Some(Record {
                promised,
                accepted: None,
            });
        }
        let ballot = take_ballot(&mut rest)?;
        let author = take_ballot(&mut rest)?;
        let (count, mut rest) = rest.split_first()?;
        let ancestors = (0..*count).map(|_| take_ballot(&mut rest));
        let ancestors = ancestors.collect::<Option<_>>()?;
        let cell = CellRef::decode(rest)?.to_owned();
        Some(Record {
            promised,
            accepted: Some(Proposal {
                ballot,
                author,
                ancestors,
                cell,
            }),
        })
    }

    /// The join of two owners' records: the higher promise, and the proposal that was accepted
    /// under the higher ballot.
    pub(crate) fn joined(self, other: Record) -> Record {
        let is_later = |a: &Proposal, b: &Proposal| b.ballot > a.ballot;
        let accepted = match (self.accepted, other.accepted) {
            (Some(a), Some(b)) if is_later(&a, &b) => Some(b),
            (a, b) => a.or(b),
        };
        Record {
            promised: self.promised.max(other.promised),
            accepted,
        }
    }

    /// The clock of the youngest ballot in it.
    pub(crate) fn age(&self) -> u64 {
        let accepted = self.accepted.as_ref().map(|accepted| accepted.ballot.hlc);
        self.promised.hlc.max(accepted.unwrap_or(0))
    }

    /// The proposal that was accepted last, without its value.
    pub(crate) fn line(&self) -> Option<Lineage> {
        let accepted = self.accepted.as_ref()?;
        Some(Lineage {
            version: accepted.cell.version,
            ancestors: accepted.ancestors.clone(),
        })
    }

    /// Forgets the accepted value when the key holds its version or a newer one.
    pub(crate) fn shed_value(&mut self, stored: Option<Version>) {
        if let Some(accepted) = &mut self.accepted
            && Some(accepted.cell.version) <= stored
        {
            accepted.cell.kind = Kind::Tombstone;
            accepted.cell.expiry_ms = None;
            accepted.cell.value = bytes::Bytes::new();
        }
    }
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.extend_from_slice(&ballot.hlc.to_be_bytes());
    out.extend_from_slice(&ballot.origin.to_be_bytes());
}

fn take_ballot(bytes: &mut &[u8]) -> Option<Ballot> {
    let (head, rest) = bytes.split_first_chunk::<BALLOT_BYTES>()?;
    *bytes = rest;
    let (hlc, origin) = head.split_first_chunk::<8>()?;
    Some(Ballot {
        hlc: u64::from_be_bytes(*hlc),
        origin: u32::from_be_bytes(origin.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use dendra_base::Space;
    use dendra_base::limits::{STORED_KEY_BYTES_MAX, STORED_VALUE_BYTES_MAX};
    use proptest::prelude::*;

    fn ballot(hlc: u64) -> Ballot {
        Ballot { hlc, origin: 7 }
    }

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            origin: 1,
            rmw: 2,
        }
    }

    fn record() -> Record {
        Record {
            promised: ballot(9),
            accepted: Some(Proposal {
                ballot: ballot(8),
                author: ballot(3),
                ancestors: (1..=5).rev().map(|at| ballot(20 + at)).collect(),
                cell: CellRef::value(b"\x10k", version(5), b"v").to_owned(),
            }),
        }
    }

    #[test]
    fn a_record_reads_back() {
        let key = Key::new(Space::Protocol, b"k");
        let bare = Record {
            promised: ballot(1),
            accepted: None,
        };
        for record in [bare, record()] {
            let cell = record.to_cell(&key, Some(version(41)), 6);
            assert_eq!(cell.version.hlc, 42);
            assert!(cell.as_ref().is_intact(key.as_stored()));
            assert_eq!(Record::decode(&cell.value), Some(record));
        }
    }

    #[test]
    fn a_record_of_a_later_format_is_none() {
        let key = Key::new(Space::Protocol, b"k");
        let mut bytes = record().to_cell(&key, None, 6).value.to_vec();
        bytes[0] = FORMAT + 1;
        assert_eq!(Record::decode(&bytes), None);
    }

    #[test]
    fn a_value_is_shed_once_the_key_holds_it_and_its_author_stays() {
        let mut kept = record();
        kept.shed_value(Some(version(4)));
        kept.shed_value(None);
        assert_eq!(kept, record());
        kept.shed_value(Some(version(5)));
        let left = kept.accepted.as_ref().expect("the proposal stays");
        assert_eq!((left.author, left.cell.version), (ballot(3), version(5)));
        assert!(left.cell.value.is_empty());
        let key = Key::new(Space::Protocol, b"k");
        let cell = kept.to_cell(&key, None, 6);
        assert_eq!(Record::decode(&cell.value), Some(kept));
    }

    fn any_ballot() -> impl Strategy<Value = Ballot> {
        (1..=u64::MAX, any::<u32>()).prop_map(|(hlc, origin)| Ballot { hlc, origin })
    }

    fn any_proposal() -> impl Strategy<Value = Proposal> {
        let ancestors = prop::collection::vec(any_ballot(), 0..=ANCESTORS_MAX);
        (any_ballot(), any_ballot(), ancestors, legal::cell()).prop_map(
            |(ballot, author, ancestors, cell)| Proposal {
                ballot,
                author,
                ancestors,
                cell,
            },
        )
    }

    proptest! {
        #![proptest_config(legal::cases(128))]

        #[test]
        fn any_legal_promise_is_read_as_it_was_written_and_can_be_stored(
            raw_key in legal::raw_key(),
            promised in any_ballot(),
            accepted in prop::option::weighted(0.9, any_proposal()),
        ) {
            let key = Key::new(Space::Protocol, &raw_key);
            let record = Record { promised, accepted };
            let cell = record.to_cell(&key, None, 6);
            prop_assert!(cell.value.len() <= STORED_VALUE_BYTES_MAX, "{}", cell.value.len());
            prop_assert!(key.as_stored().len() <= STORED_KEY_BYTES_MAX);
            prop_assert!(cell.as_ref().is_intact(key.as_stored()));
            prop_assert!(Record::decode(&cell.value) == Some(record));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_record(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(record) = Record::decode(&bytes) {
                prop_assert!(bytes.len() >= 13 && bytes[0] == FORMAT);
                prop_assert_eq!(record.accepted.is_some(), bytes.len() > 13);
            }
        }
    }
}
