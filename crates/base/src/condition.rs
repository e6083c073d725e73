//! Conditions of clients, and guards of stores: the rules under which a write happens.
//!
//! ```text
//! guard           written by                         the version
//! Newest          replication, repair, hints         never changes; an older write is hidden
//! If(None)        a client without a condition       raised above every condition judged before
//! If(condition)   a client, the node's own records   raised above the cell that it replaces
//! ```
//!
//! Invariants
//! 1. An expired value and a tombstone count as absent.
//! 2. A guard is judged when its write commits, in the order of the log.
//! 3. A condition of one version has no memory of its own. Several share one piece of it.
//!
//! Not here: the header fields (crate `wire`), the commit (crate `engine`), conditions that a
//! majority of owners settles (crate `node`).
//! See: docs/decisions/0008-guards-in-commit-order.md.

use crate::Version;
use std::sync::Arc;

/// A rule about the live value of a key: under it a write happens, or a read is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    None,
    /// There is a live value (`If-Match: *`).
    Present,
    /// There is no live value (`If-None-Match: *`).
    Absent,
    /// The live value has this version (`If-Match: "…"`).
    Matches(Version),
    /// There is no live value, or it has another version (`If-None-Match: "…"`).
    Differs(Version),
    /// The live value has one of these versions (`If-Match: "…", "…"`). Of none it never holds.
    MatchesOneOf(Arc<[Version]>),
    /// There is no live value, or it has none of these versions (`If-None-Match: "…", "…"`).
    DiffersFromAll(Arc<[Version]>),
}

impl Condition {
    /// Does it hold of a key whose live value has this version?
    pub fn holds(&self, current: Option<Version>) -> bool {
        match self {
            Condition::None => true,
            Condition::Present => current.is_some(),
            Condition::Absent => current.is_none(),
            Condition::Matches(version) => current == Some(*version),
            Condition::Differs(version) => current != Some(*version),
            Condition::MatchesOneOf(versions) => current.is_some_and(|it| versions.contains(&it)),
            Condition::DiffersFromAll(versions) => current.is_none_or(|it| !versions.contains(&it)),
        }
    }

    /// The live value has one of these versions.
    pub fn matches_one_of(versions: &[Version]) -> Condition {
        match versions {
            [version] => Condition::Matches(*version),
            _ => Condition::MatchesOneOf(versions.into()),
        }
    }

    /// The live value has none of these versions.
    pub fn differs_from_all(versions: &[Version]) -> Condition {
        match versions {
            [] => Condition::None,
            [version] => Condition::Differs(*version),
            _ => Condition::DiffersFromAll(versions.into()),
        }
    }

    /// The key still has the live version that was seen, or still has none.
    pub fn unchanged(seen: Option<Version>) -> Condition {
        seen.map_or(Condition::Absent, Condition::Matches)
    }
}

/// The condition of a write to one store, judged when the write commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No condition: the newest version wins, wherever the write stands in the log. For copies of
    /// writes that were decided elsewhere: replication, repair, hints.
    Newest,
    /// The condition holds, and then the write is the newest: its version may be raised. Without a
    /// condition it becomes newer than every write whose condition was judged before it. Its
    /// version may be older than its place in the log. It must not put the write in front of a
    /// condition that did not see it.
    If(Condition),
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: Version = Version {
        hlc: 0x1f,
        origin: 2,
        rmw: 0,
    };

    #[test]
    fn conditions_hold_as_their_names_say() {
        let (other, newer) = (Version { hlc: 1, ..V }, Version { rmw: 1, ..V });
        for (condition, of_v, of_other, of_nothing) in [
            (Condition::None, true, true, true),
            (Condition::Present, true, true, false),
            (Condition::Absent, false, false, true),
            (Condition::Matches(V), true, false, false),
            (Condition::Differs(V), false, true, true),
            (Condition::matches_one_of(&[newer, V]), true, false, false),
            (Condition::matches_one_of(&[]), false, false, false),
            (Condition::differs_from_all(&[newer, V]), false, true, true),
            (Condition::differs_from_all(&[]), true, true, true),
        ] {
            assert_eq!(condition.holds(Some(V)), of_v);
            assert_eq!(condition.holds(Some(other)), of_other);
            assert_eq!(condition.holds(None), of_nothing);
        }
    }

    #[test]
    fn a_key_is_unchanged_only_while_it_has_what_was_seen() {
        let other = Version { hlc: 1, ..V };
        for (seen, now, holds) in [
            (None, None, true),
            (None, Some(V), false),
            (Some(V), Some(V), true),
            (Some(V), Some(other), false),
            (Some(V), None, false),
        ] {
            assert_eq!(Condition::unchanged(seen).holds(now), holds);
        }
    }
}
