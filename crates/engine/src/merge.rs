//! Several sorted sources as one: every key once, its newest cell.
//!
//! ```text
//! memtable   a@9      c@7
//! table 12        b@3 c@5          ─►  a@9  b@3  c@7
//! level 1    a@2      c@1
//! ```
//!
//! Invariants
//! 1. The order of the sources does not matter: `CellRef::is_newer_than` alone decides.
//! 2. Each key is shown once, in strictly rising (forward) or falling (backward) order.
//!
//! The next record is found by looking at all sources. There are rarely more than a dozen, and a
//! heap of so few costs more in moves than it saves in comparisons.
//!
//! Not here: which cells a reader may see (`scan.rs`), which may be dropped (`compact/run.rs`).

use crate::Result;
use crate::source::Source;
use dendra_base::{CellRef, Direction};
use std::cmp::Ordering;
use std::ops::Bound;

/// A source over sources.
pub(crate) struct Merge {
    sources: Vec<Box<dyn Source + Send>>,
    direction: Direction,
    /// Index of the source that holds the current record.
    best: Option<usize>,
    /// The key that is being left, kept while all sources move past it.
    leaving: Vec<u8>,
}

impl Merge {
    /// Merges `sources`; `seek` before use.
    pub(crate) fn new(sources: Vec<Box<dyn Source + Send>>) -> Merge {
        Merge {
            sources,
            direction: Direction::Forward,
            best: None,
            leaving: Vec::new(),
        }
    }

    /// The key that the last `advance` left, also when that failed.
    pub(crate) fn left(&self) -> &[u8] {
        &self.leaving
    }

    fn choose(&mut self) {
        let mut best: Option<(usize, &[u8], CellRef<'_>)> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some((key, cell)) = source.current() else {
                continue;
            };
            let is_better = match &best {
                None => true,
                Some((_, best_key, best_cell)) => {
                    let order = match self.direction {
                        Direction::Forward => key.cmp(best_key),
                        Direction::Backward => best_key.cmp(&key),
                    };
                    order == Ordering::Less
                        || (order == Ordering::Equal && cell.is_newer_than(best_cell))
                }
            };
            if is_better {
                best = Some((index, key, cell));
            }
        }
        self.best = best.map(|(index, _, _)| index);
    }
}

impl Source for Merge {
    fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
        self.direction = direction;
        for source in &mut self.sources {
            source.seek(bound, direction)?;
        }
        self.choose();
        Ok(())
    }

    fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
        self.sources[self.best?].current()
    }

    fn advance(&mut self) -> Result<()> {
        let best = self.best.expect("advance is called on a current record");
        let (key, _) = self.sources[best]
            .current()
            .expect("the best source has a record");
        self.leaving.clear();
        self.leaving.extend_from_slice(key);
        for source in &mut self.sources {
            if source.current().is_some_and(|(at, _)| at == self.leaving) {
                source.advance()?;
            }
        }
        self.choose();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Version;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A source over a sorted list: the dumb twin of memtables and tables.
    struct Listed {
        records: Vec<(Vec<u8>, Vec<u8>)>,
        at: Option<usize>,
        direction: Direction,
    }

    impl Source for Listed {
        fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<()> {
            self.direction = direction;
            let inside = |key: &[u8]| match (bound, direction) {
                (Bound::Unbounded, _) => true,
                (Bound::Included(b), Direction::Forward) => key >= b,
                (Bound::Excluded(b), Direction::Forward) => key > b,
                (Bound::Included(b), Direction::Backward) => key <= b,
                (Bound::Excluded(b), Direction::Backward) => key < b,
            };
            let mut all = self.records.iter().enumerate();
            self.at = match direction {
                Direction::Forward => all.find(|(_, (k, _))| inside(k)).map(|(i, _)| i),
                Direction::Backward => all.rfind(|(_, (k, _))| inside(k)).map(|(i, _)| i),
            };
            Ok(())
        }

        fn current(&self) -> Option<(&[u8], CellRef<'_>)> {
            let (key, cell) = &self.records[self.at?];
            Some((key, CellRef::decode(cell).expect("we encoded it")))
        }

        fn advance(&mut self) -> Result<()> {
            let at = self.at.expect("positioned");
            self.at = match self.direction {
                Direction::Forward => Some(at + 1).filter(|next| *next < self.records.len()),
                Direction::Backward => at.checked_sub(1),
            };
            Ok(())
        }
    }

    type Drawn = Vec<BTreeMap<u8, (u64, u8)>>;

    fn sources(drawn: &Drawn) -> Vec<Box<dyn Source + Send>> {
        let listed = drawn.iter().map(|records| {
            let records = records.iter().map(|(key, (hlc, value))| {
                let mut cell = Vec::new();
                let version = Version {
                    hlc: *hlc,
                    origin: 0,
                    rmw: 0,
                };
                CellRef::value(&[*key], version, &[*value]).encode(&mut cell);
                (vec![*key], cell)
            });
            Listed {
                records: records.collect(),
                at: None,
                direction: Direction::Forward,
            }
        });
        listed
            .map(|l| Box::new(l) as Box<dyn Source + Send>)
            .collect()
    }

    proptest! {
        #[test]
        fn merging_shows_each_key_once_with_its_newest_cell(
            drawn in prop::collection::vec(
                prop::collection::btree_map(0u8..30, (1u64..100, any::<u8>()), 0..12), 0..6),
            start in prop::option::of(0u8..30),
            backward in any::<bool>(),
        ) {
            let mut model: BTreeMap<u8, u64> = BTreeMap::new();
            for (key, (hlc, _)) in drawn.iter().flatten() {
                let newest = model.entry(*key).or_insert(0);
                *newest = (*newest).max(*hlc);
            }
            let direction = if backward { Direction::Backward } else { Direction::Forward };
            let mut merge = Merge::new(sources(&drawn));
            let bound_key = start.map(|s| [s]);
            let bound = bound_key.as_ref().map_or(Bound::Unbounded, |k| Bound::Included(&k[..]));
            merge.seek(bound, direction).expect("lists do not fail");
            let mut seen = Vec::new();
            while let Some((key, cell)) = merge.current() {
                seen.push((key[0], cell.version.hlc));
                merge.advance().expect("lists do not fail");
            }
            let mut expected: Vec<(u8, u64)> = model
                .into_iter()
                .filter(|(k, _)| start.is_none_or(|s| if backward { *k <= s } else { *k >= s }))
                .collect();
            if backward {
                expected.reverse();
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
