//! Versions tell the order of operations: each one against everything that ended before it.
//!
//! ```text
//! one version, one value      a read that sees a version sees the value of its writer
//! time is order               a ended before b began  =>  version(a) <= version(b), < for a write
//! successor                   an applied condition stands directly behind the base it names, or at a
//!                             least successor number of the cluster
//! not-applied                 is never seen
//! ends                        a value is shown until its end and not behind it
//! locks                       what was written where there was none is not written again before its end,
//!                             which renewals move; so holders never overlap in the order of their versions
//! touches                     a value that has ended is not touched
//! quorums that meet           ack1 + ack2 > max(from1, from2)  =>  the read sees the write
//! ```
//!
//! Invariants
//! 1. Order is demanded among operations at the default level, beside any other operations on their
//!    keys. The other rules are demanded of every operation.
//! 2. One pass over the history sorted by time; O(n log n), so that every run can afford it.
//!
//! Not here: histories without trust in versions (`linear.rs`).
//! See: docs/protocol.md.

use super::{Disks, Rule, Violation};
use crate::history::{ClientEnd, ClientOp, Promise, SeenCondition, ValueId, Wish};
use dendra_base::{LeastSuccessor, Version};
use dendra_node::limits::WALL_APART_MS_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Checks a whole history.
pub fn check(history: &[ClientOp], disks: Disks) -> Vec<Violation> {
    check_changed(history, disks, u8::MAX, &[LeastSuccessor::default()])
}

/// Checks a history in which the replication factor fell to `factor`. A read below the default
/// level of more owners may miss records: the owners beyond the factor have changed, and gave
/// copies back. `leasts` are the least successor numbers of all epochs.
pub fn check_changed(
    history: &[ClientOp],
    disks: Disks,
    factor: u8,
    leasts: &[LeastSuccessor],
) -> Vec<Violation> {
    let mut violations = values(history);
    let mut keys: BTreeMap<usize, Vec<&ClientOp>> = BTreeMap::new();
    for op in history {
        keys.entry(op.key).or_default().push(op);
    }
    for ops in keys.into_values() {
        let at_default = |op: &&&ClientOp| op.promise == Promise::Linearizable;
        let default: Vec<&ClientOp> = ops.iter().filter(at_default).copied().collect();
        order(&default, &mut violations);
        vanished(&ops, &default, &mut violations);
        successors(&ops, leasts, &mut violations);
        quorums(&ops, (disks, factor), &mut violations);
        ends(&ops, &mut violations);
        locks(&ops, &mut violations);
        touches(&ops, &mut violations);
    }
    violations
}

/// One version, one value; and only values that a client may have written.
fn values(history: &[ClientOp]) -> Vec<Violation> {
    let puts = history.iter().filter(|op| renewed(op).is_none());
    let writers: BTreeMap<ValueId, &ClientOp> = puts
        .filter_map(|op| Some((op.wish.leaves()?, op)))
        .collect();
    // Each touch gives its value another version.
    let touched: BTreeSet<ValueId> = history.iter().filter_map(renewed).collect();
    // By key and version: the value, 0 for a tombstone.
    let mut known: BTreeMap<(usize, Version), ValueId> = BTreeMap::new();
    let mut versions: BTreeMap<ValueId, Version> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut bind = |op: &ClientOp, version: Version, value: ValueId, found: &mut Vec<Violation>| {
        let other = *known.entry((op.key, version)).or_insert(value);
        if other != value {
            let what = format!(
                "{version} of key {} is value {value} and value {other}: {op:?}",
                op.key
            );
            found.push(Violation::new(Rule::VersionValue, what));
        }
        if value == 0 || touched.contains(&value) {
            return;
        }
        let first = *versions.entry(value).or_insert(version);
        if first != version {
            let what = format!(
                "value {value} of key {} has the versions {first} and {version}: {op:?}",
                op.key
            );
            found.push(Violation::new(Rule::VersionValue, what));
        }
    };
    for op in history {
        match op.end {
            ClientEnd::Written(version) => {
                bind(op, version, op.wish.leaves().unwrap_or(0), &mut violations);
            }
            ClientEnd::Missing(Some(version)) => bind(op, version, 0, &mut violations),
            ClientEnd::Found(seen) => {
                bind(op, seen.version, seen.value, &mut violations);
                violations.extend(wrong_writer(op, seen.value, &writers));
            }
            _ => {}
        }
    }
    violations
}

/// The value that an operation gives another end.
fn renewed(op: &ClientOp) -> Option<ValueId> {
    match op.wish {
        Wish::Touch { seen } => Some(seen.value),
        Wish::Get | Wish::Put { .. } | Wish::Delete { .. } => None,
    }
}

fn wrong_writer(
    read: &ClientOp,
    value: ValueId,
    writers: &BTreeMap<ValueId, &ClientOp>,
) -> Option<Violation> {
    let Some(writer) = writers.get(&value) else {
        let what = format!("no client wrote value {value}: {read:?}");
        return Some(Violation::new(Rule::WrongValue, what));
    };
    if writer.key != read.key || writer.begun_us > read.ended_us {
        let what = format!("{read:?} sees {writer:?}");
        return Some(Violation::new(Rule::WrongValue, what));
    }
    if matches!(
        writer.end,
        ClientEnd::NotApplied | ClientEnd::Refused { .. }
    ) {
        let what = format!("{read:?} sees {writer:?}");
        return Some(Violation::new(Rule::NotAppliedSeen, what));
    }
    None
}

/// The version that an operation was told, and whether it made it.
pub(super) fn told(op: &ClientOp) -> Option<(Version, bool)> {
    match op.end {
        ClientEnd::Found(seen) => Some((seen.version, false)),
        ClientEnd::Missing(version) => Some((version?, false)),
        ClientEnd::Written(version) => Some((version, true)),
        ClientEnd::Refused { current } => Some((current?, false)),
        ClientEnd::NotApplied | ClientEnd::Unknown => None,
    }
}

fn order(ops: &[&ClientOp], violations: &mut Vec<Violation>) {
    let mut by_end: Vec<&ClientOp> = ops
        .iter()
        .copied()
        .filter(|op| told(op).is_some())
        .collect();
    by_end.sort_by_key(|op| op.ended_us);
    let mut by_begin = by_end.clone();
    by_begin.sort_by_key(|op| op.begun_us);
    let mut newest: Option<(Version, &ClientOp)> = None;
    let mut ended = by_end.into_iter().peekable();
    for op in by_begin {
        while let Some(before) = ended.next_if(|before| before.ended_us < op.begun_us) {
            let (version, _) = told(before).expect("filtered above");
            if newest.is_none_or(|(newest, _)| newest < version) {
                newest = Some((version, before));
            }
        }
        let (version, is_own) = told(op).expect("filtered above");
        let Some((newest, before)) = newest else {
            continue;
        };
        if version < newest || (is_own && version == newest) {
            let what = format!("{before:?} ended before {op:?} began");
            violations.push(Violation::new(Rule::VersionOrder, what));
        }
    }
}

/// A value that a read at the default level has shown is there for the next one, unless it was
/// deleted or has ended.
fn vanished(ops: &[&ClientOp], default: &[&ClientOp], violations: &mut Vec<Violation>) {
    let shown = default
        .iter()
        .filter(|op| matches!(op.end, ClientEnd::Found(_)));
    let Some(first) = shown.min_by_key(|op| op.ended_us) else {
        return;
    };
    let may_go = |until_us: u64| {
        ops.iter()
            .any(|op| matches!(op.wish, Wish::Delete { .. }) && op.begun_us <= until_us)
    };
    for op in default {
        let is_gone = matches!(op.end, ClientEnd::Missing(None)) && op.wish == Wish::Get;
        if is_gone && op.begun_us > first.ended_us && !op.is_fleeting && !may_go(op.ended_us) {
            let what = format!("{first:?} ended before {op:?} began");
            violations.push(Violation::new(Rule::VersionOrder, what));
        }
    }
}

fn successors(ops: &[&ClientOp], leasts: &[LeastSuccessor], violations: &mut Vec<Violation>) {
    for op in ops {
        let (ClientEnd::Written(version), SeenCondition::Matches(seen)) = (op.end, op.wish.base())
        else {
            continue;
        };
        // On one copy the owner's log is the order, and a version only has to be later.
        let follows = match op.from {
            1 => version > seen.version,
            _ => {
                let mut leasts = leasts.iter();
                leasts.any(|least| version == seen.version.successor_from(*least))
            }
        };
        if !follows {
            violations.push(Violation::new(Rule::NotSuccessor, format!("{op:?}")));
        }
    }
}

fn quorums(ops: &[&ClientOp], (disks, factor): (Disks, u8), violations: &mut Vec<Violation>) {
    // A damaged copy is mended from the owners that a read addresses: further ones may hold a newer
    // version.
    let narrowest = ops.iter().map(|op| op.from).min().unwrap_or(0);
    let may_be_lost =
        |op: &ClientOp| disks == Disks::Damaged && (op.ack == 1 || op.from > narrowest);
    let writes = ops.iter().filter_map(|op| match op.end {
        ClientEnd::Written(_) if may_be_lost(op) => None,
        ClientEnd::Written(version) if op.wish.is_write() => Some((op, version)),
        _ => None,
    });
    for (write, version) in writes {
        let later = ops.iter().filter(|read| {
            let is_beyond = read.promise == Promise::Eventual && read.from > factor;
            read.wish == Wish::Get
                && !is_beyond
                && read.begun_us > write.ended_us
                && u32::from(read.ack) + u32::from(write.ack) > u32::from(read.from.max(write.from))
        });
        for read in later {
            let is_blind = match read.end {
                ClientEnd::Found(seen) => seen.version < version,
                ClientEnd::Missing(Some(seen)) => seen < version,
                // Without a version: only if no other state than this could have been there.
                ClientEnd::Missing(None) => {
                    write.wish.leaves().is_some()
                        && !write.is_fleeting
                        && !may_have_been_removed(ops, read)
                }
                _ => false,
            };
            if is_blind {
                let what = format!("{read:?} does not see {write:?}");
                violations.push(Violation::new(Rule::QuorumBlind, what));
            }
        }
    }
}

/// A value with an end is shown until then, by the clock of the member that was asked and by those
/// of a majority; and not after, by the first one.
fn ends(ops: &[&ClientOp], violations: &mut Vec<Violation>) {
    let reads = ops
        .iter()
        .filter(|op| op.is_fleeting && op.wish == Wish::Get);
    for read in reads {
        let writers = ops
            .iter()
            .filter(|op| op.wish.is_write() && op.end != ClientEnd::NotApplied);
        let before: Vec<&&ClientOp> = writers.filter(|op| op.begun_us < read.ended_us).collect();
        match read.end {
            ClientEnd::Found(seen) => {
                let of_value = before
                    .iter()
                    .filter(|op| op.wish.leaves() == Some(seen.value));
                // The one of this version, or those that do not know theirs.
                let is_of = |op: &&&&ClientOp| op.end == ClientEnd::Written(seen.version);
                let other = |op: &&&&ClientOp| !matches!(op.end, ClientEnd::Written(_));
                let of_version = of_value.clone().find(is_of);
                let unknown = of_value.filter(other).filter(|_| of_version.is_none());
                let shown: Vec<_> = of_version.into_iter().chain(unknown).collect();
                let has_ended = |op: &&&&ClientOp| {
                    let now_ms = read.wall_ms.0.min(read.wall_ms.1);
                    op.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= now_ms)
                };
                if !shown.is_empty() && shown.iter().all(has_ended) {
                    violations.push(Violation::new(
                        Rule::Expiry,
                        format!("{read:?} is shown a value that had ended: {shown:?}"),
                    ));
                }
            }
            ClientEnd::Missing(_) => {
                // The last write, if one is the last for certain.
                let Some(last) = before.iter().max_by_key(|op| op.begun_us) else {
                    continue;
                };
                let is_last = matches!(last.end, ClientEnd::Written(_))
                    && last.ended_us < read.begun_us
                    && before.iter().all(|op| {
                        op.number == last.number || (op.is_done() && op.ended_us < last.begun_us)
                    });
                let ended_ms = read.wall_ms.0.max(read.wall_ms.1).max(read.passed_ms);
                let is_there = last.expiry_ms.is_some_and(|expiry_ms| expiry_ms > ended_ms);
                if is_last && is_there && last.wish.leaves().is_some() {
                    violations.push(Violation::new(
                        Rule::Expiry,
                        format!("{read:?} does not see {last:?}"),
                    ));
                }
            }
            _ => {}
        }
    }
}

/// A lock, written where there was none and with an end, is not given to another client before its
/// end by any clock that counts. That is the clock of the member which gives it a second time; and
/// no clock more than a minute ahead of a majority gives locks at all.
fn locks(ops: &[&ClientOp], violations: &mut Vec<Violation>) {
    let is_lock = |op: &&&ClientOp| {
        let is_absent = matches!(
            op.wish,
            Wish::Put {
                base: SeenCondition::Absent,
                ..
            }
        );
        is_absent && op.is_fleeting && op.promise == Promise::Linearizable
    };
    let mut given: Vec<&ClientOp> = ops
        .iter()
        .filter(is_lock)
        .filter(|op| matches!(op.end, ClientEnd::Written(_)))
        .copied()
        .collect();
    given.sort_by_key(|op| op.ended_us);
    for (at, first) in given.iter().enumerate() {
        let later = given[at + 1..].iter();
        for second in later.filter(|second| second.begun_us > first.ended_us) {
            let may_end_first = |op: &&&ClientOp| {
                let is_other = ![first.number, second.number].contains(&op.number)
                    && renewed(op) != first.wish.leaves();
                let has_effect = op.wish.is_write()
                    && !matches!(op.end, ClientEnd::NotApplied | ClientEnd::Refused { .. });
                let is_over = op.is_done() && op.ended_us < first.begun_us;
                is_other && has_effect && !is_over && op.begun_us < second.ended_us
            };
            if ops.iter().any(|op| may_end_first(&op)) {
                continue;
            }
            let renewals = ops.iter().filter(|op| {
                renewed(op) == first.wish.leaves()
                    && op.begun_us < second.ended_us
                    && !matches!(op.end, ClientEnd::NotApplied | ClientEnd::Refused { .. })
            });
            let is_open = |op: &&&ClientOp| {
                op.ended_us >= second.begun_us || !matches!(op.end, ClientEnd::Written(_))
            };
            if renewals.clone().any(|op| is_open(&op)) {
                // It may have moved the end to an earlier time.
                continue;
            }
            let last = renewals.copied().max_by_key(|op| told(op));
            let first = last.unwrap_or(first);
            let own_ms = second.wall_ms.0.max(second.wall_ms.1);
            let most_ms = second.passed_ms;
            let is_early = |expiry_ms: u64| {
                expiry_ms > own_ms.max(most_ms)
                    || expiry_ms > most_ms.saturating_add(WALL_APART_MS_MAX)
            };
            if first.expiry_ms.is_some_and(is_early) {
                let what = format!("{first:?} is given again: {second:?}");
                violations.push(Violation::new(Rule::Expiry, what));
            }
        }
    }
}

/// A touch is of a value that lives by the clock of the member that was asked.
fn touches(ops: &[&ClientOp], violations: &mut Vec<Violation>) {
    for op in ops {
        let (Wish::Touch { seen }, ClientEnd::Written(_)) = (op.wish, op.end) else {
            continue;
        };
        let mut writers = ops.iter();
        let base = writers.find(|it| it.end == ClientEnd::Written(seen.version));
        let now_ms = op.wall_ms.0.min(op.wall_ms.1);
        let end_ms = base.and_then(|base| base.expiry_ms);
        if end_ms.is_some_and(|it| it <= now_ms) {
            let what = format!("{op:?} renews what had ended: {base:?}");
            violations.push(Violation::new(Rule::Expiry, what));
        }
    }
}

fn may_have_been_removed(ops: &[&ClientOp], read: &ClientOp) -> bool {
    ops.iter().any(|op| {
        matches!(op.wish, Wish::Delete { .. })
            && op.end != ClientEnd::NotApplied
            && op.begun_us < read.ended_us
    })
}
