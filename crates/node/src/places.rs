//! A set of places: positions in the list of a key's owners, as bits.
//!
//! Invariants
//! 1. A place is below `MEMBERS_MAX`, which fits the bits.
//!
//! Not here: which member stands at a place (`ring/`).

use dendra_ownership::limits::MEMBERS_MAX;

const _: () = assert!(MEMBERS_MAX <= u128::BITS as usize);

/// A set of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(u128);

impl Places {
    /// No place.
    pub(crate) const NONE: Places = Places(0);

    /// One place.
    pub(crate) fn only(place: u8) -> Places {
        Places(1 << place)
    }

    /// The first `count` places.
    pub(crate) fn first(count: u8) -> Places {
        match count {
            0 => Places(0),
            count => Places(u128::MAX >> (128 - u32::from(count))),
        }
    }

    /// Adds a place; `false` when it was there.
    pub(crate) fn insert(&mut self, place: u8) -> bool {
        let before = self.0;
        self.0 |= 1 << place;
        self.0 != before
    }

    /// Takes a place out.
    pub(crate) fn remove(&mut self, place: u8) {
        self.0 &= !(1 << place);
    }

    /// Is the place in the set?
    pub(crate) fn has(self, place: u8) -> bool {
        self.0 >> place & 1 == 1
    }

    /// How many there are.
    pub(crate) fn len(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Is there none?
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Places in both sets.
    pub(crate) fn and(self, other: Places) -> Places {
        Places(self.0 & other.0)
    }

    /// Places in one of the sets.
    pub(crate) fn or(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }

    /// Places that are not in the other set.
    pub(crate) fn without(self, other: Places) -> Places {
        Places(self.0 & !other.0)
    }

    /// In ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let place = left.trailing_zeros() as u8;
            (left != 0).then(|| {
                left &= left - 1;
                place
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_set() {
        let mut set = Places::NONE;
        assert!(set.insert(3) && set.insert(0) && set.insert(99) && !set.insert(3));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 99]);
        assert_eq!((set.len(), set.has(3), set.has(4)), (3, true, false));
        set.remove(3);
        assert_eq!(
            set.without(Places::first(1)).iter().collect::<Vec<_>>(),
            [99]
        );
        assert_eq!(Places::first(0), Places::NONE);
        assert_eq!(Places::first(100).len(), 100);
        assert_eq!(
            Places::first(3).and(set).or(Places::first(2)),
            Places::first(2)
        );
    }
}
