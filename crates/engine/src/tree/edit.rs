//! Edits: changes of a folder, as small facts that are written before they take effect.
//!
//! ```text
//! edit   = fact*          fact = | tag 1 | body … |        little-endian; drawn in manifest.md
//!   1 identity  2 add table  3 remove table  4 log floor  5 clock ceiling  6 hole  7 hole gone
//! ```
//!
//! Invariants
//! 1. `Folder::apply` is pure and total: it accepts an edit or says why it cannot be one.
//! 2. Replaying all edits from an empty `Folder` gives the folder as it was after the last.
//!
//! Not here: framing and files (`manifest.rs`).

use super::LEVELS_MAX;
use crate::hole::Hole;
use crate::identity::Identity;
use crate::table::TableMeta;

/// One small change.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The folder's owner.
    Identity(Identity),
    /// A table is live in a level.
    AddTable {
        /// Level it joins.
        level: usize,
        /// Properties of the table.
        meta: TableMeta,
    },
    /// A table is not live any more; its file may be removed once this is durable.
    RemoveTable {
        /// Id of the table.
        id: u64,
    },
    /// Log segments below this one are not needed any more.
    LogFloor {
        /// Id of the first segment needed.
        segment: u64,
    },
    /// Clock values up to this may have been used.
    HlcCeiling {
        /// The hybrid clock's bits.
        hlc: u64,
    },
    /// A span of keys has a hole, in the place of that of the same block.
    Hole(Hole),
    /// A span has no hole any more.
    HoleGone {
        /// The table that had the block.
        table: u64,
        /// Where the block began in it.
        offset: u64,
    },
}

/// Facts that become true together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// In order.
    pub facts: Vec<Fact>,
}

/// The content of a folder, as its manifest says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folder {
    /// The folder's owner; `None` only before the first edit.
    pub identity: Option<Identity>,
    /// Live tables per level.
    pub levels: Vec<Vec<TableMeta>>,
    /// First log segment needed.
    pub log_floor: u64,
    /// Clock values up to this may have been used.
    pub hlc_ceiling: u64,
    /// Spans of keys in which old records were dropped, or are about to be.
    pub holes: Vec<Hole>,
}

const TAG_IDENTITY: u8 = 1;
const TAG_ADD: u8 = 2;
const TAG_REMOVE: u8 = 3;
const TAG_FLOOR: u8 = 4;
const TAG_CEILING: u8 = 5;
const TAG_HOLE: u8 = 6;
const TAG_HOLE_GONE: u8 = 7;

impl Edit {
    /// Appends the encoded facts to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for fact in &self.facts {
            match fact {
                Fact::Identity(identity) => {
                    out.push(TAG_IDENTITY);
                    out.extend_from_slice(&identity.node.to_le_bytes());
                    out.extend_from_slice(&identity.origin.to_le_bytes());
                }
                Fact::AddTable { level, meta } => {
                    out.push(TAG_ADD);
                    out.push(u8::try_from(*level).expect("there are ten levels"));
                    meta.encode(out);
                }
                Fact::RemoveTable { id } => {
                    out.push(TAG_REMOVE);
                    out.extend_from_slice(&id.to_le_bytes());
                }
                Fact::LogFloor { segment } => {
                    out.push(TAG_FLOOR);
                    out.extend_from_slice(&segment.to_le_bytes());
                }
                Fact::HlcCeiling { hlc } => {
                    out.push(TAG_CEILING);
                    out.extend_from_slice(&hlc.to_le_bytes());
                }
                Fact::Hole(hole) => {
                    out.push(TAG_HOLE);
                    hole.encode(out);
                }
                Fact::HoleGone { table, offset } => {
                    out.push(TAG_HOLE_GONE);
                    out.extend_from_slice(&table.to_le_bytes());
                    out.extend_from_slice(&offset.to_le_bytes());
                }
            }
        }
    }

    /// Reads encoded facts; the error names the fault in them.
    pub fn decode(mut bytes: &[u8]) -> Result<Edit, String> {
        let mut facts = Vec::new();
        while let Some((tag, rest)) = bytes.split_first() {
            bytes = rest;
            let fact = match *tag {
                TAG_IDENTITY => {
                    let node = u128::from_le_bytes(take(&mut bytes)?);
                    let origin = u32::from_le_bytes(take(&mut bytes)?);
                    Fact::Identity(Identity { node, origin })
                }
                TAG_ADD => {
                    let [level] = take(&mut bytes)?;
                    let Some(meta) = TableMeta::decode(&mut bytes) else {
                        return Err("a table's description cannot be read".to_owned());
                    };
                    Fact::AddTable {
                        level: usize::from(level),
                        meta,
                    }
                }
                TAG_REMOVE => Fact::RemoveTable {
                    id: u64::from_le_bytes(take(&mut bytes)?),
                },
                TAG_FLOOR => Fact::LogFloor {
                    segment: u64::from_le_bytes(take(&mut bytes)?),
                },
                TAG_CEILING => Fact::HlcCeiling {
                    hlc: u64::from_le_bytes(take(&mut bytes)?),
                },
                TAG_HOLE => match Hole::decode(&mut bytes) {
                    Some(hole) => Fact::Hole(hole),
                    None => return Err("a hole cannot be read".to_owned()),
                },
                TAG_HOLE_GONE => Fact::HoleGone {
                    table: u64::from_le_bytes(take(&mut bytes)?),
                    offset: u64::from_le_bytes(take(&mut bytes)?),
                },
                other => return Err(format!("fact {other} is not known to this format")),
            };
            facts.push(fact);
        }
        Ok(Edit { facts })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let Some((head, rest)) = bytes.split_first_chunk::<N>() else {
        return Err(format!("{N} bytes expected, {} left", bytes.len()));
    };
    *bytes = rest;
    Ok(*head)
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Folder {
        Folder {
            levels: vec![Vec::new(); LEVELS_MAX],
            ..Folder::default()
        }
    }

    /// Makes `edit` true; the error says which fact does not fit.
    pub fn apply(&mut self, edit: Edit) -> Result<(), String> {
        for fact in edit.facts {
            match fact {
                Fact::Identity(identity) => self.identity = Some(identity),
                Fact::AddTable { level, meta } => {
                    let known = self.levels.iter().flatten().any(|t| t.id == meta.id);
                    let Some(tables) = self.levels.get_mut(level).filter(|_| !known) else {
                        return Err(format!(
                            "table {:016x} is added twice or to level {level}",
                            meta.id
                        ));
                    };
                    tables.push(meta);
                }
                Fact::RemoveTable { id } => {
                    let before: usize = self.levels.iter().map(Vec::len).sum();
                    for tables in &mut self.levels {
                        tables.retain(|t| t.id != id);
                    }
                    if before == self.levels.iter().map(Vec::len).sum::<usize>() {
                        return Err(format!("table {id:016x} is removed but was never added"));
                    }
                }
                Fact::LogFloor { segment } => self.log_floor = self.log_floor.max(segment),
                Fact::HlcCeiling { hlc } => self.hlc_ceiling = self.hlc_ceiling.max(hlc),
                Fact::Hole(hole) => {
                    self.holes.retain(|it| !it.is_of(hole.table, hole.offset));
                    self.holes.push(hole);
                }
                Fact::HoleGone { table, offset } => {
                    let before = self.holes.len();
                    self.holes.retain(|hole| !hole.is_of(table, offset));
                    if before == self.holes.len() {
                        return Err(format!(
                            "the hole of table {table:016x} at {offset} ends and never began"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// One edit that makes an empty folder equal to this one.
    pub fn snapshot(&self) -> Edit {
        let mut facts: Vec<Fact> = self.identity.map(Fact::Identity).into_iter().collect();
        facts.push(Fact::LogFloor {
            segment: self.log_floor,
        });
        facts.push(Fact::HlcCeiling {
            hlc: self.hlc_ceiling,
        });
        for (level, tables) in self.levels.iter().enumerate() {
            facts.extend(tables.iter().map(|meta| Fact::AddTable {
                level,
                meta: meta.clone(),
            }));
        }
        facts.extend(self.holes.iter().cloned().map(Fact::Hole));
        Edit { facts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use bytes::Bytes;
    use dendra_base::Version;
    use proptest::prelude::*;

    fn meta(id: u64) -> TableMeta {
        TableMeta {
            id,
            bytes: 10,
            digest: 11,
            records: 12,
            tombstones: 1,
            expiring: 2,
            smallest: b"a".to_vec(),
            largest: b"b".to_vec(),
            version_min: Version::ZERO,
            version_max: Version::MAX,
        }
    }

    fn any_fact() -> impl Strategy<Value = Fact> {
        prop_oneof![
            (any::<u128>(), any::<u32>())
                .prop_map(|(node, origin)| Fact::Identity(Identity { node, origin })),
            (0usize..LEVELS_MAX, 0u64..6).prop_map(|(level, id)| Fact::AddTable {
                level,
                meta: meta(id)
            }),
            (0u64..6).prop_map(|id| Fact::RemoveTable { id }),
            any::<u64>().prop_map(|segment| Fact::LogFloor { segment }),
            any::<u64>().prop_map(|hlc| Fact::HlcCeiling { hlc }),
            (0u64..3, 0u64..3, any::<bool>(), any::<u64>()).prop_map(
                |(table, offset, is_dropped, clock)| Fact::Hole(Hole {
                    table,
                    offset,
                    first: b"a".to_vec(),
                    last: b"b".to_vec(),
                    below: Version::MAX,
                    clock,
                    is_dropped,
                })
            ),
            (0u64..3, 0u64..3).prop_map(|(table, offset)| Fact::HoleGone { table, offset }),
        ]
    }

    /// A table with any keys, versions and numbers.
    fn any_meta() -> impl Strategy<Value = TableMeta> {
        let keys = (
            legal::stored_record_of(Just(Bytes::new())),
            legal::raw_key(),
        );
        let versions = (legal::version(), legal::version());
        let numbers = any::<[u64; 6]>();
        (keys, versions, numbers).prop_map(|(((key, _), other), (one, two), numbers)| {
            let [id, bytes, digest, a, b, expiring] = numbers;
            TableMeta {
                id,
                bytes,
                digest,
                records: a.max(b),
                tombstones: a.min(b),
                expiring,
                smallest: key.clone().min(other.clone()),
                largest: key.max(other),
                version_min: one.min(two),
                version_max: one.max(two),
            }
        })
    }

    /// A hole between any two keys: the second one may be the smallest behind a key.
    fn any_hole() -> impl Strategy<Value = Hole> {
        let parts = (
            any_meta(),
            legal::version(),
            any::<u64>(),
            any::<(bool, bool)>(),
        );
        parts.prop_map(|(meta, below, clock, (is_dropped, is_behind))| {
            let mut last = meta.largest;
            if is_behind {
                last.push(0);
            }
            Hole {
                table: meta.id,
                offset: meta.bytes,
                first: meta.smallest,
                last,
                below,
                clock,
                is_dropped,
            }
        })
    }

    proptest! {
        #[test]
        fn any_legal_edit_is_read_as_it_was_written(
            facts in prop::collection::vec(
                prop_oneof![
                    2 => any_fact(),
                    1 => (0..LEVELS_MAX, any_meta())
                        .prop_map(|(level, meta)| Fact::AddTable { level, meta }),
                    1 => any_hole().prop_map(Fact::Hole),
                    1 => any::<u64>().prop_map(|id| Fact::RemoveTable { id }),
                ],
                0..8,
            ),
        ) {
            let edit = Edit { facts };
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            prop_assert_eq!(Edit::decode(&bytes), Ok(edit));
        }

        #[test]
        fn decoding_garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(edit) = Edit::decode(&bytes) {
                // Every edit is applied or refused with a sentence.
                let _ = Folder::new().apply(edit);
            }
        }

        #[test]
        fn a_snapshot_makes_the_same_folder(edits in prop::collection::vec(any_fact(), 0..20)) {
            let mut folder = Folder::new();
            for fact in edits {
                let before = folder.clone();
                if folder.apply(Edit { facts: vec![fact] }).is_err() {
                    folder = before;
                }
            }
            let mut copy = Folder::new();
            prop_assert_eq!(copy.apply(folder.snapshot()), Ok(()));
            prop_assert_eq!(copy, folder);
        }
    }

    #[test]
    fn a_table_is_added_once_and_removed_only_when_it_is_there() {
        let mut folder = Folder::new();
        let add = |level| Edit {
            facts: vec![Fact::AddTable {
                level,
                meta: meta(1),
            }],
        };
        folder.apply(add(0)).expect("the first time");
        assert!(folder.apply(add(1)).is_err());
        let moved = vec![
            Fact::RemoveTable { id: 1 },
            Fact::AddTable {
                level: 1,
                meta: meta(1),
            },
        ];
        folder
            .apply(Edit { facts: moved })
            .expect("a move is a removal and an addition");
        assert!(
            folder
                .apply(Edit {
                    facts: vec![Fact::RemoveTable { id: 2 }]
                })
                .is_err()
        );
        assert!(folder.apply(add(LEVELS_MAX)).is_err());
    }
}
