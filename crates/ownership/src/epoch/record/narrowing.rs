//! Copies that a lowered replication factor gives back: which records have fewer than their cells
//! say.
//!
//! ```text
//! factor     4 ─► 3
//! epochs     Planned … Finished   Forgot n   Forgot n+1   Forgot n+2
//! steps      3         3          2          1            0: age = F(n), copies = 3
//! ```
//!
//! A record that was written before the factor fell may have more copies than the factor. No byte
//! of it tells whether a client asked for them. So the order to lower the factor takes both back.
//! From epoch `n+2` on a record up to this age has at most so many copies. Owners beyond them are
//! owners of it no more, and drop it as they drop other records after a change of the owners.
//!
//! Invariants
//! 1. The age was a floor two steps before. So no operation lives that drew such an age, and each
//!    of the first owners has each of these records, or a newer one.
//! 2. Any other change of the record begins the count of steps anew: there are three in a row.
//! 3. It is kept for ever. A later one takes its place, for all records up to a later age.
//!
//! Not here: floors (`horizons.rs`), how such copies go (`layout.rs`, `compare/shared.rs`).
//! See: docs/decisions/0045-a-lowered-factor.md.

use super::horizons::Horizons;
use dendra_base::CellRef;

/// So many steps of the horizons in a row before copies are given back.
pub(super) const STEPS: u8 = 3;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// Records up to this age have at most `copies`; 0 = none was ever given back.
    pub(super) age: u64,
    pub(super) copies: u8,
    /// The replication factor before it was lowered; 0 = no lowering waits for its steps.
    pub(super) before: u8,
    /// Steps that it waits for.
    pub(super) steps_left: u8,
}

impl Narrowing {
    /// Records up to this age have at most so many copies.
    pub fn up_to(age: u64, copies: u8) -> Narrowing {
        Narrowing {
            age,
            copies,
            ..Narrowing::default()
        }
    }

    /// How many copies the record has in this epoch: as many as its cell says, or fewer.
    pub fn copies_of(&self, cell: &CellRef<'_>) -> u8 {
        if self.age > 0 && cell.age() <= self.age {
            cell.copies.min(self.copies)
        } else {
            cell.copies
        }
    }

    /// Up to which age records have fewer copies than their cells may say, and how many; `None` =
    /// each has as many as its cell says.
    pub fn given_back(&self) -> Option<(u64, u8)> {
        (self.age > 0).then_some((self.age, self.copies))
    }

    /// Steps of the horizons until copies beyond the replication factor are given back; 0 = no
    /// lowering waits.
    pub fn steps_left(&self) -> u8 {
        self.steps_left
    }

    /// The replication factor of before, while a lowering waits for its steps; 0 = none waits.
    /// Until then a record may be at any majority of so many owners alone.
    pub fn copies_before(&self) -> u8 {
        self.before
    }

    /// A plan begins that lowers the replication factor from `before`.
    pub(super) fn lowered(self, before: u8) -> Narrowing {
        Narrowing {
            before: self.before.max(before),
            steps_left: STEPS,
            ..self
        }
    }

    /// The record changes otherwise.
    pub(super) fn interrupted(self) -> Narrowing {
        let steps_left = match self.before {
            0 => 0,
            _ => STEPS,
        };
        Narrowing { steps_left, ..self }
    }

    /// The horizons rise to these, while there are so many copies.
    pub(super) fn risen(self, horizons: &Horizons, copies: u8) -> Narrowing {
        match self.steps_left {
            0 => self,
            1 if copies < self.before => Narrowing::up_to(horizons.spent(), copies),
            // It was raised again.
            1 => Narrowing::up_to(self.age, self.copies),
            left => Narrowing {
                steps_left: left - 1,
                ..self
            },
        }
    }

    /// Can there be such a value?
    pub(super) fn is_sound(&self) -> bool {
        (self.age == 0) == (self.copies == 0)
            && (self.before == 0) == (self.steps_left == 0)
            && self.steps_left <= STEPS
    }
}
