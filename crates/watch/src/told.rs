//! What a watch told last of the keys that it told of lately.
//!
//! Invariants
//! 1. At most `max` keys, the latest ones. Of others a state may be told twice.
//!
//! Not here: states that are dirty (`dirty.rs`).

use bytes::Bytes;
use dendra_base::Version;
use std::collections::{BTreeMap, VecDeque};

/// A state in the order of the states of one key: a value that has ended comes behind itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) version: Version,
    pub(crate) is_ended: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Told {
    max: usize,
    states: BTreeMap<Bytes, (State, u64)>,
    /// Key and turn of each telling, the oldest first.
    order: VecDeque<(Bytes, u64)>,
    turn: u64,
}

impl Told {
    pub(crate) fn new(max: usize) -> Told {
        Told {
            max,
            states: BTreeMap::new(),
            order: VecDeque::new(),
            turn: 0,
        }
    }

    /// The state of the key that was told last, if that is still known.
    pub(crate) fn of(&self, key: &Bytes) -> Option<State> {
        self.states.get(key).map(|(state, _)| *state)
    }

    pub(crate) fn note(&mut self, key: &Bytes, state: State) {
        self.turn += 1;
        self.states.insert(key.clone(), (state, self.turn));
        self.order.push_back((key.clone(), self.turn));
        while self.order.len() > self.max
            && let Some((oldest, turn)) = self.order.pop_front()
        {
            if self
                .states
                .get(&oldest)
                .is_some_and(|(_, last)| *last == turn)
            {
                self.states.remove(&oldest);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.states.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_keys_are_remembered() {
        let mut told = Told::new(2);
        let state = |hlc| State {
            version: Version {
                hlc,
                ..Version::ZERO
            },
            is_ended: false,
        };
        let key = |name: &'static str| Bytes::from_static(name.as_bytes());
        told.note(&key("a"), state(1));
        told.note(&key("b"), state(2));
        told.note(&key("a"), state(3));
        assert_eq!(told.of(&key("a")), Some(state(3)));
        told.note(&key("c"), state(4));
        assert_eq!(told.of(&key("b")), None);
        assert_eq!(told.of(&key("a")), Some(state(3)));
        assert!(told.order.len() <= 2);
    }
}
