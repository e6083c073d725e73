//! The answers that clients got for one key, and whether one register could have given them.
//!
//! ```text
//! Entry    start ──────── end          a write, a read, a failed condition
//!          start ───────────────── ∞   a write of unknown outcome: at one point, or never
//! states   the versions that were seen, the first one = nothing was ever stored
//! ```
//!
//! The search takes an entry that may be first among those that are left, applies it to the state,
//! and goes on. A choice that was tried once is not tried again (Wing and Gong; Lowe).

use dendra_base::Version;
use std::collections::{BTreeMap, HashSet};

/// A state: a version that the key had.
pub(crate) type State = u16;
/// No record was ever stored.
pub(crate) const NOTHING: State = 0;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Anything,
    Live,
    Dead,
    Is(State),
    IsNot(State),
    Either(State, State),
}

#[derive(Clone, Debug)]
pub(crate) enum Did {
    /// A write: the state that must hold before, and which states it may lead to.
    Write { wanted: Wanted, to: Vec<State> },
    /// A read, or a failed condition: the states that must hold, and those that must not.
    Saw {
        wanted: Wanted,
        failed: Option<Wanted>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub start: u64,
    /// `u64::MAX`: unknown, and it may be never.
    pub end: u64,
    pub did: Did,
}

/// Versions by number, and whether they are live values.
#[derive(Debug)]
pub(crate) struct States {
    numbers: BTreeMap<Version, State>,
    is_live: Vec<bool>,
}

impl States {
    pub(crate) fn new() -> States {
        States {
            numbers: BTreeMap::new(),
            is_live: vec![false],
        }
    }

    pub(crate) fn number(&mut self, version: Version, is_live: bool) -> State {
        let next = State::try_from(self.is_live.len()).expect("short histories");
        let number = *self.numbers.entry(version).or_insert(next);
        if number == next {
            self.is_live.push(is_live);
        }
        number
    }

    /// A state that no client ever saw.
    pub(crate) fn unseen(&mut self, is_live: bool) -> State {
        self.is_live.push(is_live);
        State::try_from(self.is_live.len() - 1).expect("short histories")
    }

    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        self.numbers.keys()
    }

    pub(crate) fn find(&self, version: Version) -> Option<State> {
        self.numbers.get(&version).copied()
    }

    fn holds(&self, wanted: Wanted, state: State) -> bool {
        let is_live = self.is_live[usize::from(state)];
        match wanted {
            Wanted::Anything => true,
            Wanted::Live => is_live,
            Wanted::Dead => !is_live,
            Wanted::Is(other) => is_live && state == other,
            Wanted::IsNot(other) => !(is_live && state == other),
            Wanted::Either(one, other) => is_live && (state == one || state == other),
        }
    }
}

/// Could one register have done this?
pub(crate) fn is_linearizable(entries: &[Entry], states: &States) -> bool {
    assert!(entries.len() <= 64, "histories are short");
    let mut tried = HashSet::new();
    search(entries, states, 0, NOTHING, &mut tried)
}

fn search(
    entries: &[Entry],
    states: &States,
    done: u64,
    state: State,
    tried: &mut HashSet<(u64, State)>,
) -> bool {
    let open = || {
        entries
            .iter()
            .enumerate()
            .filter(|(i, _)| done >> i & 1 == 0)
    };
    let Some(first_end) = open().map(|(_, e)| e.end).min() else {
        return true;
    };
    if first_end == u64::MAX {
        return true; // Whatever is left may never have happened.
    }
    if !tried.insert((done, state)) {
        return false;
    }
    for (i, entry) in open().filter(|(_, e)| e.start <= first_end) {
        let done = done | 1 << i;
        match &entry.did {
            Did::Saw { wanted, failed } => {
                let is_so = states.holds(*wanted, state)
                    && failed.is_none_or(|failed| !states.holds(failed, state));
                if is_so && search(entries, states, done, state, tried) {
                    return true;
                }
            }
            Did::Write { wanted, to } => {
                if !states.holds(*wanted, state) {
                    continue;
                }
                if to
                    .iter()
                    .any(|to| search(entries, states, done, *to, tried))
                {
                    return true;
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(start: u64, end: u64, to: State) -> Entry {
        let (wanted, to) = (Wanted::Anything, vec![to]);
        let did = Did::Write { wanted, to };
        Entry { start, end, did }
    }

    fn read(start: u64, end: u64, state: State) -> Entry {
        let (wanted, failed) = (Wanted::Is(state), None);
        let did = Did::Saw { wanted, failed };
        Entry { start, end, did }
    }

    fn two() -> States {
        let mut states = States::new();
        states.unseen(true);
        states.unseen(true);
        states
    }

    #[test]
    fn a_read_that_goes_back_is_found() {
        let good = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 1), read(5, 6, 2)];
        assert!(is_linearizable(&good, &two()));
        let bad = [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)];
        assert!(!is_linearizable(&bad, &two()));
    }

    #[test]
    fn an_unknown_write_happens_late_or_never_but_not_before_it_began() {
        let late = [write(0, u64::MAX, 1), write(2, 3, 2), read(4, 5, 1)];
        assert!(is_linearizable(&late, &two()));
        let never = [write(0, u64::MAX, 1), write(2, 3, 2), read(4, 5, 2)];
        assert!(is_linearizable(&never, &two()));
        let early = [write(6, u64::MAX, 1), write(2, 3, 2), read(4, 5, 1)];
        assert!(!is_linearizable(&early, &two()));
    }

    #[test]
    fn two_winners_of_one_condition_are_found() {
        let won = |to| Entry {
            start: 0,
            end: 9,
            did: Did::Write {
                wanted: Wanted::Dead,
                to: vec![to],
            },
        };
        assert!(is_linearizable(&[won(1)], &two()));
        assert!(!is_linearizable(&[won(1), won(2)], &two()));
        assert!(
            !is_linearizable(&[won(1), won(1)], &two()),
            "under one version, too"
        );
    }
}
