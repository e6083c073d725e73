//! Copies of one record as owners show them: the newest, which owners hold it, and which are
//! behind.
//!
//! ```text
//! copy of a place ─┬─ newer than the best ─► the best; all earlier holders and rivals are behind
//!                  ├─ the same cell ───────► a holder
//!                  ├─ older ───────────────► behind
//!                  └─ its version, another cell ─► a rival, until `settle` decides; of a value that ends
//!                     and the tombstone left of it the value is the best
//! ```
//!
//! Invariants
//! 1. A place that showed a copy is a holder, behind, or among the rivals. A place in doubt counts
//!    as behind: it is written to before it holds anything.
//! 2. Rivals have the version of the best cell. Without a best cell there are no rivals.
//!
//! Not here: how many holders are enough (`read.rs`), the rule between rivals (`disputes.rs`).
//! See: docs/protocol.md.

use crate::disputes::{choose, is_alike};
use crate::places::Places;
use dendra_base::{Cell, CellId, Version};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The newest cell that was shown; `None` = no owner that answered has one.
    best: Option<Cell>,
    /// Places that hold `best`.
    holders: Places,
    /// Places that showed an older cell, or a rival that lost.
    behind: Places,
    /// Cells under the version of `best` that are not the same, each with its holders.
    rivals: Vec<(Cell, Places)>,
}

/// How the cells that lost to one of their version differ from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivalry {
    /// The losers are tombstones, and the cell is a value that ends: some table took it away too
    /// early.
    LeftOver,
    /// No rule but the owners' votes tells which of them is right.
    Content,
}

impl Copies {
    /// A cell that a majority accepted: which owners hold it is not known yet.
    pub(crate) fn accepted(cell: Cell) -> Copies {
        Copies {
            best: Some(cell),
            ..Copies::default()
        }
    }

    /// The newest cell that was shown.
    pub(crate) fn best(&self) -> Option<&Cell> {
        self.best.as_ref()
    }

    /// The newest cell, given away.
    pub(crate) fn into_best(self) -> Option<Cell> {
        self.best
    }

    /// The version of the newest cell; zero when there is none.
    pub(crate) fn version(&self) -> Version {
        self.best
            .as_ref()
            .map_or(Version::ZERO, |cell| cell.version)
    }

    /// The version of the newest cell, if it is a value that has not expired.
    pub(crate) fn live_version(&self, wall_ms: u64) -> Option<Version> {
        let live = self
            .best
            .as_ref()
            .filter(|cell| cell.as_ref().is_live(wall_ms));
        live.map(|cell| cell.version)
    }

    /// Places that hold the newest cell.
    pub(crate) fn holders(&self) -> Places {
        self.holders
    }

    /// Places that showed an older cell.
    pub(crate) fn behind(&self) -> Places {
        self.behind
    }

    /// Do cells of one version differ?
    pub(crate) fn is_disputed(&self) -> bool {
        !self.rivals.is_empty()
    }

    /// The owner at `place` holds the newest cell by now.
    pub(crate) fn hold(&mut self, place: u8) {
        self.holders.insert(place);
    }

    /// The owner at `place` showed a copy that is not sure to stay. Its position moves to another
    /// owner, which may not have the copy yet.
    pub(crate) fn doubt(&mut self, place: u8) {
        let mut was_there = self.holders.has(place);
        self.holders.remove(place);
        for (_, holders) in &mut self.rivals {
            was_there |= holders.has(place);
            holders.remove(place);
        }
        if was_there {
            self.behind.insert(place);
        }
    }

    /// The owner at `place` showed its copy, or that it has none. The own wall clock shows
    /// `wall_ms`.
    pub(crate) fn take(&mut self, place: u8, copy: Option<Cell>, wall_ms: u64) {
        let Some(copy) = copy else {
            return;
        };
        match &self.best {
            Some(best) if is_alike(best, &copy, wall_ms) => {
                self.holders.insert(place);
                // What is written back is the value, and not what one owner has left of it.
                if copy.is_newer_than(best) {
                    self.best = Some(copy);
                }
            }
            Some(best) if best.version == copy.version => self.take_rival(place, copy),
            Some(best) if !copy.is_newer_than(best) => {
                self.behind.insert(place);
            }
            Some(_) | None => {
                self.behind = self.behind.or(self.holders);
                for (_, holders) in self.rivals.drain(..) {
                    self.behind = self.behind.or(holders);
                }
                self.holders = Places::only(place);
                self.best = Some(copy);
            }
        }
    }

    /// The owner at `place` said that its copy is the cell `known`.
    pub(crate) fn take_same(&mut self, place: u8, known: Option<CellId>) {
        let mut rivals = self.rivals.iter_mut();
        let version = known.map(|known| known.version);
        if let Some((_, holders)) = rivals.find(|(cell, _)| Some(cell.id()) == known) {
            holders.insert(place);
        } else if self.best.as_ref().map(|best| best.version) == version {
            self.holders.insert(place);
        } else {
            self.behind.insert(place);
        }
    }

    /// A copy came that has the version of the best one, and is another cell.
    fn take_rival(&mut self, place: u8, copy: Cell) {
        if self
            .best
            .as_ref()
            .is_some_and(|best| copy.is_newer_than(best))
        {
            let holders = std::mem::replace(&mut self.holders, Places::only(place));
            let gone = self.best.replace(copy);
            self.rivals.extend(gone.map(|gone| (gone, holders)));
            return;
        }
        let mut rivals = self.rivals.iter_mut();
        match rivals.find(|(cell, _)| cell.id() == copy.id()) {
            Some((_, holders)) => {
                holders.insert(place);
            }
            None => self.rivals.push((copy, Places::only(place))),
        }
    }

    /// Decides between cells of one version by the votes of the first `span` owners. Those that
    /// hold another one are behind. Returns the cell that stays, and against what; `None` when no
    /// cells differ.
    pub(crate) fn settle(&mut self, span: u8) -> Option<(&Cell, Rivalry)> {
        if self.rivals.is_empty() {
            return None;
        }
        let first = Places::first(span);
        let mut cells = std::mem::take(&mut self.rivals);
        cells.extend(self.best.take().map(|best| (best, self.holders)));
        let votes = cells
            .iter()
            .map(|(cell, holders)| (cell, holders.and(first).len()));
        let chosen = choose(votes, first.len());
        let (cell, holders) = cells.swap_remove(chosen);
        let mut rivalry = Rivalry::LeftOver;
        for (other, others) in cells {
            self.behind = self.behind.or(others);
            if !other.is_what_is_left_of(&cell) {
                rivalry = Rivalry::Content;
            }
        }
        self.holders = holders;
        Some((self.best.insert(cell), rivalry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::{CellRef, Key};
    use proptest::prelude::*;

    fn cell(hlc: u64, value: u8) -> Cell {
        let version = Version {
            hlc,
            origin: 1,
            rmw: 0,
        };
        CellRef::value(Key::user(b"k").as_stored(), version, &[value]).to_owned()
    }

    proptest! {
        /// The dumb twin keeps every copy and looks at all of them in the end.
        #[test]
        fn the_order_in_which_owners_show_their_copies_does_not_matter(
            shown in prop::collection::vec(prop::option::of((1u64..4, 0u8..2)), 1..7),
        ) {
            let mut copies = Copies::default();
            for (place, copy) in shown.iter().enumerate() {
                copies.take(place as u8, copy.map(|(hlc, value)| cell(hlc, value)), 0);
            }
            let newest = shown.iter().flatten().map(|(hlc, _)| *hlc).max();
            prop_assert_eq!(copies.best().map(|best| best.version.hlc), newest);
            let of_newest = |value| {
                let has = |at: &u8| {
                    let copy = shown[usize::from(*at)];
                    copy.is_some_and(|copy| Some(copy.0) == newest && copy.1 == value)
                };
                (0..shown.len() as u8).filter(has).count() as u8
            };
            let votes = [of_newest(0), of_newest(1)];
            prop_assert_eq!(copies.is_disputed(), votes[0] > 0 && votes[1] > 0);
            let owners = shown.len() as u8;
            let is_settled = copies.settle(owners).is_some();
            prop_assert!(!copies.is_disputed());
            if let Some(best) = copies.best() {
                let value = best.value[0];
                let (mine, others) = (votes[usize::from(value)], votes[1 - usize::from(value)]);
                prop_assert_eq!(is_settled, others > 0);
                prop_assert!(others <= owners / 2, "a majority decides");
                prop_assert_eq!(copies.holders().len(), mine);
                let answered = shown.iter().flatten().count() as u8;
                prop_assert_eq!(copies.behind().len(), answered - mine);
            }
        }

        /// Its end is at 9; places that show nothing have none.
        #[test]
        fn a_value_that_has_not_ended_outlasts_what_is_left_of_it_whoever_shows_it_first(
            shown in prop::collection::vec(prop::option::of(any::<bool>()), 1..7),
            wall_ms in 8u64..10,
        ) {
            let mut whole = cell(1, 0);
            whole.expiry_ms = Some(9);
            let gone = CellRef::tombstone(Key::user(b"k").as_stored(), whole.version).to_owned();
            let of = |has_value: bool| if has_value { whole.clone() } else { gone.clone() };
            let mut copies = Copies::default();
            for (place, copy) in shown.iter().enumerate() {
                copies.take(place as u8, copy.map(of), wall_ms);
            }
            let count = |wanted| shown.iter().filter(|it| **it == Some(wanted)).count() as u8;
            let (values, gone) = (count(true), count(false));
            let is_live = values > 0 && wall_ms < 9;
            prop_assert_eq!(copies.live_version(wall_ms).is_some(), is_live);
            prop_assert_eq!(copies.best().is_some_and(|it| it.expiry_ms.is_some()), values > 0);
            prop_assert_eq!(copies.is_disputed(), is_live && gone > 0);
            let rivalry = copies.settle(shown.len() as u8).map(|(_, rivalry)| rivalry);
            let expected = (is_live && gone > 0).then_some(Rivalry::LeftOver);
            prop_assert_eq!(rivalry, expected);
            let (holders, behind) = if is_live { (values, gone) } else { (values + gone, 0) };
            prop_assert_eq!((copies.holders().len(), copies.behind().len()), (holders, behind));
        }

        #[test]
        fn an_owner_that_says_the_same_counts_like_one_that_shows_it(
            known in (1u64..4, 0u8..2), other in (1u64..4, 0u8..2),
        ) {
            let known = cell(known.0, known.1);
            let both = |say: &dyn Fn(&mut Copies)| {
                let mut copies = Copies::default();
                copies.take(0, Some(known.clone()), 0);
                copies.take(1, Some(cell(other.0, other.1)), 0);
                say(&mut copies);
                (copies.holders(), copies.behind(), copies.rivals.clone())
            };
            let same = both(&|copies| copies.take_same(2, Some(known.id())));
            let shown = both(&|copies| copies.take(2, Some(known.clone()), 0));
            prop_assert_eq!(same, shown);
        }
    }
}
