//! A loss that an operator accepted: the history of a key before it and after it.
//!
//! ```text
//!             ───── before ─────┤ a block is repaired without a lost owner ├──── after ─────►
//! ended before                  judged as ever
//! under way   a write           may have taken effect                       may take effect
//! written     newer than left                                               may take effect, or never
//!             the cell left                                                 is there from the beginning
//!             older                                                         never comes back
//! refused     but accepted                                                  may take effect
//! ```
//!
//! Invariants
//! 1. A key is cut only if a client was told something newer than the cell that is left. All others
//!    are judged from the beginning to the end. Absence is told without a version: it is newer than
//!    a value that is left if no order of the operations ends with that value.
//! 2. Each part is judged by the same rules as a whole history.
//!
//! Not here: which keys, and which cells are left of them (`world/town/losses.rs`).
//! See: docs/decisions/0044-a-loss-is-accepted.md.

use super::linear::{self, PendingRule};
use super::versions::told;
use crate::history::{ClientEnd, ClientOp, SeenCondition, SeenValue, ValueId, Wish};
use dendra_base::Version;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The newest cell of a key: its version, and its value, `None` of a tombstone.
pub type LeftCell = (Version, Option<ValueId>);

/// A key of which something that was told may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenLoss {
    /// The key.
    pub key: usize,
    /// When the repair ended.
    pub at_us: u64,
    /// The newest cell at the owners on which the repair counted. Where no client was told of that
    /// one, the newest one when the loss was accepted, or told since.
    pub left: Option<LeftCell>,
    /// Operations that were refused, and that one of these owners has accepted.
    pub accepted: BTreeSet<u32>,
}

/// Was something newer told of a key than the cell that is left, or another value of that version?
pub fn is_taken(ops: &[&ClientOp], at_us: u64, left: Option<LeftCell>) -> bool {
    is_newer_told(ops, at_us, left) || is_absence_taken(ops, at_us, left)
}

fn is_newer_told(ops: &[&ClientOp], at_us: u64, left: Option<LeftCell>) -> bool {
    let ended = ops.iter().filter(|op| op.ended_us <= at_us);
    let news = ended.filter_map(|op| Some((told(op)?.0, value(op))));
    let mut news = news.filter(|(version, _)| left.is_none_or(|(left, _)| left <= *version));
    news.any(|(version, value)| {
        let is_same = left.is_some_and(|(left, _)| left == version);
        !is_same || value.is_some_and(|value| left.is_some_and(|(_, left)| left != value))
    })
}

/// Was this version told until then?
pub fn is_told(ops: &[&ClientOp], at_us: u64, version: Version) -> bool {
    let mut ended = ops.iter().filter(|op| op.ended_us <= at_us);
    ended.any(|op| told(op).is_some_and(|(told, _)| told == version))
}

/// The newest cell up to `most` of which operations were told that began after `from_us`.
pub fn newest_told(
    ops: &[&ClientOp],
    (from_us, at_us): (u64, u64),
    most: Version,
) -> Option<LeftCell> {
    let since = |op: &&&ClientOp| op.begun_us > from_us && op.ended_us <= at_us;
    let cells = ops.iter().filter(since);
    let cells = cells.filter_map(|op| Some((told(op)?.0, value(op)?)));
    let cells = cells.filter(|(version, _)| *version <= most);
    cells.max_by_key(|(version, _)| *version)
}

/// Was a value gone that is left? A client that finds no record is not told the tombstone's
/// version. So the history until then is asked whether a read of that value may follow it.
fn is_absence_taken(ops: &[&ClientOp], at_us: u64, left: Option<LeftCell>) -> bool {
    let Some((version, Some(value))) = left else {
        return false;
    };
    let is_absence = |op: &&&ClientOp| match op.end {
        ClientEnd::Missing(delete) => delete.is_none(),
        ClientEnd::Refused { current } => current.is_none(),
        _ => false,
    };
    let mut ended = ops.iter().filter(|op| op.ended_us <= at_us);
    let Some(told) = ended.find(is_absence) else {
        return false;
    };
    let read = ClientOp {
        wish: Wish::Get,
        begun_us: at_us + 1,
        ended_us: at_us + 1,
        end: ClientEnd::Found(SeenValue { version, value }),
        ..(*told).clone()
    };
    let mut history = in_front(ops.iter().copied(), at_us);
    history.push(read);
    let (violations, _) = linear::check(&history, PendingRule::StaysOpen);
    !violations.is_empty()
}

/// The value of the version that an operation was told; `None` when it was not told.
fn value(op: &ClientOp) -> Option<Option<ValueId>> {
    match op.end {
        ClientEnd::Found(seen) => Some(Some(seen.value)),
        ClientEnd::Missing(_) => Some(None),
        ClientEnd::Written(_) => Some(op.wish.leaves()),
        _ => None,
    }
}

/// The parts of a history that are judged one by one. The first one has all of it. Keys with a loss
/// are in as many as they need.
pub fn parts<'a>(history: &'a [ClientOp], losses: &[TakenLoss]) -> Vec<Cow<'a, [ClientOp]>> {
    if losses.is_empty() {
        return vec![Cow::Borrowed(history)];
    }
    let mut by_key: BTreeMap<usize, Vec<&TakenLoss>> = BTreeMap::new();
    for loss in losses {
        by_key.entry(loss.key).or_default().push(loss);
    }
    let whole = history.iter().filter(|op| !by_key.contains_key(&op.key));
    let mut parts = vec![whole.cloned().collect::<Vec<_>>()];
    for (key, of_key) in by_key {
        let ops = history.iter().filter(|op| op.key == key);
        let mut rest: Vec<ClientOp> = ops.cloned().collect();
        parts.resize_with(parts.len().max(of_key.len() + 1), Vec::new);
        for (at, loss) in of_key.iter().enumerate() {
            let (front, behind) = cut(&rest, loss);
            parts[at].extend(front);
            rest = behind;
        }
        parts[of_key.len()].extend(rest);
    }
    parts.into_iter().map(Cow::Owned).collect()
}

/// The operations on one key after its last loss; all of them without one.
pub fn behind_all<'a>(
    history: &'a [ClientOp],
    key: usize,
    losses: &[TakenLoss],
) -> Vec<Cow<'a, ClientOp>> {
    let ops = history.iter().filter(|op| op.key == key);
    let own = losses.iter().filter(|loss| loss.key == key);
    own.fold(ops.map(Cow::Borrowed).collect(), |ops, loss| {
        let ops: Vec<ClientOp> = ops.into_iter().map(Cow::into_owned).collect();
        cut(&ops, loss).1.into_iter().map(Cow::Owned).collect()
    })
}

/// The operations on one key before its loss, and those after it.
pub fn cut(ops: &[ClientOp], loss: &TakenLoss) -> (Vec<ClientOp>, Vec<ClientOp>) {
    let begun = ops.iter().filter(|op| op.begun_us <= loss.at_us);
    let earlier = begun.filter_map(|op| behind(op, loss));
    let later = ops.iter().filter(|op| op.begun_us > loss.at_us).cloned();
    let front = in_front(ops.iter(), loss.at_us);
    (front, earlier.chain(later).collect())
}

/// The operations that began until then. A write that is under way then may still take effect.
fn in_front<'a>(ops: impl Iterator<Item = &'a ClientOp>, at_us: u64) -> Vec<ClientOp> {
    let begun = ops.filter(|op| op.begun_us <= at_us);
    let front = begun.filter_map(|op| match op.ended_us {
        ended_us if ended_us <= at_us => Some(op.clone()),
        _ if op.wish.is_write() => Some(ClientOp {
            end: ClientEnd::Unknown,
            ..op.clone()
        }),
        _ => None,
    });
    front.collect()
}

/// The rest of an operation that began before the loss.
fn behind(op: &ClientOp, loss: &TakenLoss) -> Option<ClientOp> {
    let wish = match op.wish {
        Wish::Get => return None,
        Wish::Put { value, .. } => Wish::Put {
            value,
            base: SeenCondition::Any,
        },
        Wish::Delete { .. } => Wish::Delete {
            base: SeenCondition::Any,
        },
        // No world of losses touches, and a touch changes no value.
        Wish::Touch { seen } => Wish::Touch { seen },
    };
    let op = ClientOp { wish, ..op.clone() };
    let value = op.wish.leaves();
    let is_left = match op.end {
        ClientEnd::NotApplied => false,
        ClientEnd::Written(version) => loss.left == Some((version, value)),
        _ => value.is_some() && loss.left.is_some_and(|(_, left)| left == value),
    };
    if let Some((version, _)) = loss.left.filter(|_| is_left) {
        return Some(ClientOp {
            begun_us: 0,
            ended_us: 0,
            end: ClientEnd::Written(version),
            ..op
        });
    }
    let is_older = |version| loss.left.is_some_and(|(left, _)| version < left);
    let end = match op.end {
        ClientEnd::Written(version) if is_older(version) => ClientEnd::NotApplied,
        ClientEnd::Refused { .. } if !loss.accepted.contains(&op.number) => ClientEnd::NotApplied,
        ClientEnd::NotApplied => ClientEnd::NotApplied,
        _ => ClientEnd::Unknown,
    };
    Some(ClientOp { end, ..op })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Disks, Rule, versions};
    use crate::history::Promise;

    const LOSS_US: u64 = 100;

    fn version(hlc: u64) -> Version {
        Version {
            hlc,
            origin: 1,
            rmw: 0,
        }
    }

    fn op(number: u32, wish: Wish, begun_us: u64, end: ClientEnd) -> ClientOp {
        ClientOp {
            number,
            client: number as usize,
            key: 0,
            wish,
            ack: 2,
            from: 3,
            promise: Promise::Linearizable,
            is_fleeting: false,
            expiry_ms: None,
            wall_ms: (0, 0),
            passed_ms: 0,
            member: 0,
            begun_us,
            ended_us: begun_us + 1,
            end,
        }
    }

    fn put(number: u32, begun_us: u64, end: ClientEnd) -> ClientOp {
        let base = SeenCondition::Any;
        let value = number;
        op(number, Wish::Put { value, base }, begun_us, end)
    }

    fn get(number: u32, begun_us: u64, seen: Option<(u64, ValueId)>) -> ClientOp {
        let end = match seen {
            None => ClientEnd::Missing(None),
            Some((hlc, value)) => ClientEnd::Found(SeenValue {
                version: version(hlc),
                value,
            }),
        };
        op(number, Wish::Get, begun_us, end)
    }

    fn written(hlc: u64) -> ClientEnd {
        ClientEnd::Written(version(hlc))
    }

    fn loss(left: Option<(u64, ValueId)>) -> TakenLoss {
        TakenLoss {
            key: 0,
            at_us: LOSS_US,
            left: left.map(|(hlc, value)| (version(hlc), Some(value))),
            accepted: BTreeSet::new(),
        }
    }

    /// The rule that a history breaks although a loss is excused.
    fn rule(history: &[ClientOp], loss: &TakenLoss) -> Option<Rule> {
        let parts = parts(history, std::slice::from_ref(loss));
        let found = parts.iter().flat_map(|part| {
            let linear = linear::check(part, PendingRule::StaysOpen).0;
            versions::check(part, Disks::Whole)
                .into_iter()
                .chain(linear)
        });
        let mut found: Vec<Rule> = found.map(|violation| violation.rule).collect();
        found.drain(..).next()
    }

    /// Two writes, and the first one is left.
    fn two() -> Vec<ClientOp> {
        vec![put(1, 10, written(1)), put(2, 20, written(2))]
    }

    #[test]
    fn a_write_that_is_taken_is_there_or_gone_and_then_stays_so() {
        let left = loss(Some((1, 1)));
        let then = |seen: &[(u64, ValueId)]| {
            let reads = seen.iter().zip(0u32..);
            let reads = reads.map(|(seen, at)| get(10 + at, 200 + 10 * u64::from(at), Some(*seen)));
            rule(&two().into_iter().chain(reads).collect::<Vec<_>>(), &left)
        };
        assert_eq!(then(&[(1, 1), (1, 1)]), None, "gone");
        assert_eq!(then(&[(2, 2), (2, 2)]), None, "there");
        assert_eq!(then(&[(1, 1), (2, 2)]), None, "an owner brings it up later");
        assert_eq!(
            then(&[(2, 2), (1, 1)]),
            Some(Rule::VersionOrder),
            "there and gone"
        );
    }

    #[test]
    fn nothing_is_excused_but_what_was_newer_than_what_is_left() {
        let mut history = two();
        history.push(get(3, 200, None));
        let left = loss(Some((1, 1)));
        assert_eq!(
            rule(&history, &left),
            Some(Rule::QuorumBlind),
            "the cell left"
        );
        assert_eq!(rule(&history, &loss(None)), None, "nothing was left");
        let mut history = two();
        history.push(get(3, 200, Some((1, 1))));
        let left = loss(Some((2, 2)));
        assert_eq!(
            rule(&history, &left),
            Some(Rule::NotAppliedSeen),
            "an older one"
        );
        let of_other = TakenLoss {
            key: 1,
            ..loss(Some((1, 1)))
        };
        assert_eq!(
            rule(&history, &of_other),
            Some(Rule::VersionOrder),
            "another key"
        );
    }

    #[test]
    fn before_and_behind_a_loss_the_rules_are_those_of_any_history() {
        let left = loss(Some((1, 1)));
        let mut history = two();
        history.push(get(3, 50, Some((1, 1))));
        assert_eq!(rule(&history, &left), Some(Rule::VersionOrder), "before");
        let mut history = two();
        history.push(put(3, 200, written(3)));
        history.push(get(4, 210, Some((1, 1))));
        assert_eq!(rule(&history, &left), Some(Rule::VersionOrder), "behind");
    }

    #[test]
    fn a_refused_write_is_seen_only_if_an_owner_had_accepted_it() {
        let mut history = two();
        let (value, base) = (3, SeenCondition::Absent);
        let current = Some(version(2));
        let refused = ClientEnd::Refused { current };
        history.push(op(3, Wish::Put { value, base }, 30, refused));
        history.push(get(4, 200, Some((2, 3))));
        let mut left = loss(Some((1, 1)));
        assert_eq!(rule(&history, &left), Some(Rule::NotAppliedSeen));
        left.accepted.insert(3);
        assert_eq!(rule(&history, &left), None);
    }

    #[test]
    fn a_key_is_touched_only_if_less_is_left_than_was_told() {
        let history = two();
        let ops: Vec<&ClientOp> = history.iter().collect();
        let left = |hlc, value| Some((version(hlc), Some(value)));
        assert!(is_taken(&ops, LOSS_US, None));
        assert!(is_taken(&ops, LOSS_US, left(1, 1)));
        assert!(!is_taken(&ops, LOSS_US, left(2, 2)));
        assert!(
            is_taken(&ops, LOSS_US, left(2, 9)),
            "a rival of one version"
        );
        assert!(!is_taken(&ops, 15, left(1, 1)), "it was not told yet");
    }

    /// A value, a delete, and the answer to a client that looked again.
    fn seen_absent(look_us: u64, delete_end: ClientEnd, look: ClientOp) -> Vec<ClientOp> {
        let base = SeenCondition::Any;
        let look = ClientOp {
            begun_us: look_us,
            ended_us: look_us + 1,
            ..look
        };
        let delete = op(2, Wish::Delete { base }, 20, delete_end);
        vec![put(1, 10, written(1)), delete, look]
    }

    #[test]
    fn an_absence_is_taken_if_no_order_ends_with_the_value_that_is_left() {
        let left = Some((version(1), Some(1)));
        let is_it = |history: &[ClientOp], at_us, left| {
            let ops: Vec<&ClientOp> = history.iter().collect();
            is_taken(&ops, at_us, left)
        };
        let absent = get(3, 0, None);
        let base = SeenCondition::Present;
        let refused = ClientEnd::Refused { current: None };
        let refused = op(3, Wish::Delete { base }, 0, refused);
        for look in [&absent, &refused] {
            let looked = |look_us| seen_absent(look_us, ClientEnd::Unknown, look.clone());
            assert!(is_it(&looked(30), LOSS_US, left), "{look:?}");
            assert!(!is_it(&looked(30), 25, left), "it was not told yet");
            assert!(!is_it(&looked(5), LOSS_US, left), "in front: {look:?}");
            assert!(!is_it(&looked(10), LOSS_US, left), "beside: {look:?}");
        }
        let found = get(3, 0, Some((1, 1)));
        let unseen = seen_absent(30, ClientEnd::Unknown, found);
        assert!(!is_it(&unseen, LOSS_US, left), "no client saw the delete");
        let history = seen_absent(30, ClientEnd::Unknown, absent);
        let tombstone = Some((version(2), None));
        assert!(!is_it(&history, LOSS_US, tombstone), "it is left");
    }

    #[test]
    fn a_value_comes_back_whose_delete_was_seen_and_is_taken() {
        let mut history = seen_absent(30, ClientEnd::Unknown, get(3, 0, None));
        history.push(get(4, 200, Some((1, 1))));
        assert_eq!(rule(&history, &loss(Some((1, 1)))), None);
        let of_other = TakenLoss {
            key: 1,
            ..loss(Some((1, 1)))
        };
        assert_eq!(rule(&history, &of_other), Some(Rule::NotLinearizable));
        history.push(get(5, 300, None));
        history.push(get(6, 400, Some((1, 1))));
        assert_eq!(
            rule(&history, &loss(Some((1, 1)))),
            Some(Rule::NotLinearizable),
            "behind"
        );
    }
}
