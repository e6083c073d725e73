//! Walks over many keys: each live key once, in order. No key is left out of the part that a page
//! covers, and no value is old.
//!
//! ```text
//! page      asked for [start, end) ── shown up to the rest ──► covered: the part before the rest
//! told before a page was asked for, and covered  =>  shown as new as that, or newer
//!                                                    not shown: a deletion, or an end, may have come
//! a page that stopped                            =>  shows nothing; the part that it walked over is covered
//! ```
//!
//! Invariants
//! 1. A page is no read of the default level. It may show a cell that only one copy has or will
//!    have. It is not older than any answer that a client got before.
//! 2. Freshness is demanded of keys of the default level only.
//!
//! Not here: whether a healthy cluster may stop (`world/ending.rs`).
//! See: docs/api.md, "Many keys".

use super::versions::told;
use super::{Rule, Violation};
use crate::history::{ClientEnd, ClientOp, ClientScan, Promise, ScanPage, Wish};
use bytes::Bytes;
use dendra_base::Version;
use std::collections::BTreeMap;

/// Checks all scans against the history; `name` is a key's.
pub fn check(
    history: &[ClientOp],
    scans: &[ClientScan],
    keys: usize,
    name: impl Fn(usize) -> Bytes,
) -> Vec<Violation> {
    if scans.is_empty() {
        return Vec::new();
    }
    let mut by_key: Vec<Vec<&ClientOp>> = vec![Vec::new(); keys];
    for op in history {
        by_key[op.key].push(op);
    }
    let names: Vec<Bytes> = (0..keys).map(name).collect();
    let mut violations = Vec::new();
    for scan in scans {
        form(scan, &names, &mut violations);
        for page in &scan.pages {
            for (key, ops) in by_key.iter().enumerate() {
                content(scan, page, key, &names[key], ops, &mut violations);
            }
        }
    }
    violations
}

/// Does the page cover the key: is it in the part that was asked for, and not in the rest?
fn covers(scan: &ClientScan, page: &ScanPage, key: &Bytes) -> bool {
    let is_in = |start: &Bytes, end: &Option<Bytes>| {
        key >= start && end.as_ref().is_none_or(|end| key < end)
    };
    let is_left = page.rest.as_ref().is_some_and(|(start, end)| {
        if scan.is_reverse {
            end.as_ref().is_none_or(|end| key < end)
        } else {
            key >= start
        }
    });
    is_in(&page.start, &page.end) && !is_left
}

/// Order, bounds, progress.
fn form(scan: &ClientScan, names: &[Bytes], violations: &mut Vec<Violation>) {
    let mut blame = |what: String| violations.push(Violation::new(Rule::ScanForm, what));
    let shown: Vec<usize> = scan
        .pages
        .iter()
        .flat_map(|page| page.records.iter().map(|(key, _)| *key))
        .collect();
    let is_sorted = shown.windows(2).all(|pair| {
        if scan.is_reverse {
            pair[0] > pair[1]
        } else {
            pair[0] < pair[1]
        }
    });
    if !is_sorted {
        blame(format!("out of order, or twice: {shown:?}"));
    }
    for page in &scan.pages {
        let outside = page
            .records
            .iter()
            .find(|(key, _)| !names.get(*key).is_some_and(|name| covers(scan, page, name)));
        if let Some(outside) = outside {
            blame(format!("{outside:?} is not of this page: {page:?}"));
        }
        let (start, end) = (&page.start, &page.end);
        let is_nearer = match (&page.rest, scan.is_reverse) {
            (None, _) => true,
            (Some((rest, rest_end)), false) => rest > start && rest_end == end,
            (Some((rest, Some(rest_end))), true) => {
                rest == start && end.as_ref().is_none_or(|end| rest_end < end)
            }
            (Some((_, None)), true) => false,
        };
        let asked = Some((start.clone(), end.clone()));
        let is_stop = page.rest.is_some() && page.records.is_empty();
        let is_fine = if page.is_complete {
            is_nearer
        } else {
            is_stop && (is_nearer || page.rest == asked)
        };
        if !is_fine {
            blame(format!("neither a page nor a stop: {page:?}"));
        }
    }
}

/// One key in one page.
fn content(
    scan: &ClientScan,
    page: &ScanPage,
    key: usize,
    name: &Bytes,
    ops: &[&ClientOp],
    violations: &mut Vec<Violation>,
) {
    if !covers(scan, page, name) {
        return;
    }
    let shown = page.records.iter().find(|(shown, _)| *shown == key);
    let mut blame = |rule: Rule, what: String| {
        violations.push(Violation::new(
            rule,
            format!("key {key}: {what} in {page:?}"),
        ));
    };
    if let Some((_, seen)) = shown {
        let writer = ops.iter().find(|op| op.wish.leaves() == Some(seen.value));
        match writer {
            None => blame(Rule::WrongValue, format!("no client wrote {seen:?}")),
            Some(op) if op.begun_us > page.shown_us => {
                blame(Rule::WrongValue, format!("{seen:?} is of {op:?}"));
            }
            Some(op) if matches!(op.end, ClientEnd::NotApplied | ClientEnd::Refused { .. }) => {
                blame(Rule::NotAppliedSeen, format!("{seen:?} is of {op:?}"));
            }
            Some(_) => {}
        }
        let named: BTreeMap<Version, u32> = ops.iter().filter_map(|op| value_of(op)).collect();
        if named
            .get(&seen.version)
            .is_some_and(|value| *value != seen.value)
        {
            blame(
                Rule::VersionValue,
                format!("{seen:?} is another value elsewhere"),
            );
        }
    }
    if !ops.iter().all(|op| op.promise == Promise::Linearizable) {
        return;
    }
    let before = ops.iter().filter(|op| op.ended_us < page.asked_us);
    let newest = before
        .filter_map(|op| Some((told(op)?.0, *op)))
        .max_by_key(|(version, _)| *version);
    let Some((version, op)) = newest else {
        return;
    };
    match shown {
        Some((_, seen)) if seen.version < version => {
            blame(Rule::ScanBlind, format!("{seen:?} is older than {op:?}"));
        }
        None if is_value(op) && !op.is_fleeting && !may_be_gone(ops, version, page) => {
            blame(
                Rule::ScanBlind,
                format!("the result of {op:?} is not there"),
            );
        }
        _ => {}
    }
}

/// The value that an operation was told of a version; 0 = it is a tombstone's.
fn value_of(op: &ClientOp) -> Option<(Version, u32)> {
    match op.end {
        ClientEnd::Found(seen) => Some((seen.version, seen.value)),
        ClientEnd::Written(version) => Some((version, op.wish.leaves().unwrap_or(0))),
        _ => None,
    }
}

/// Was the operation told that there is a value?
fn is_value(op: &ClientOp) -> bool {
    match op.end {
        ClientEnd::Found(_) | ClientEnd::Refused { .. } => true,
        ClientEnd::Written(_) => op.wish.leaves().is_some(),
        _ => false,
    }
}

/// May a deletion that is newer than `version` have come before the page was shown?
fn may_be_gone(ops: &[&ClientOp], version: Version, page: &ScanPage) -> bool {
    ops.iter().any(|op| {
        let is_deletion = matches!(op.wish, Wish::Delete { .. }) && op.begun_us < page.shown_us;
        is_deletion
            && match op.end {
                ClientEnd::Written(deleted) => deleted > version,
                ClientEnd::Unknown => true,
                _ => false,
            }
    })
}
