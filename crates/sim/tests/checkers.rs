//! The checkers, held against histories that are known to be good or bad.
//!
//! Handwritten ones first: each line of a promise that can be broken is broken once. Then drawn
//! ones. A register that does every operation at one instant is never blamed. A register that
//! answers old values is blamed exactly when an exhaustive search finds no order.

use bytes::Bytes;
use dendra_base::{Prng, Version};
use dendra_sim::check::linear::{PendingRule, SearchVerdict, key_verdict};
use dendra_sim::check::store::{OwnerCopy, check_convergence, check_key};
use dendra_sim::check::{Disks, Rule, linear, scans, versions};
use dendra_sim::history::{
    ClientEnd, ClientOp, ClientScan, Promise, ScanPage, SeenCondition, SeenValue, Wish,
};

fn version(hlc: u64) -> Version {
    Version {
        hlc,
        origin: 1,
        rmw: 0,
    }
}

fn op(number: u32, wish: Wish, begun_us: u64, ended_us: u64, end: ClientEnd) -> ClientOp {
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
        ended_us,
        end,
    }
}

fn put(number: u32, begun: u64, ended: u64, end: ClientEnd) -> ClientOp {
    op(
        number,
        Wish::Put {
            value: number,
            base: SeenCondition::Any,
        },
        begun,
        ended,
        end,
    )
}

fn swap(number: u32, base: SeenValue, begun: u64, ended: u64, end: ClientEnd) -> ClientOp {
    op(
        number,
        Wish::Put {
            value: number,
            base: SeenCondition::Matches(base),
        },
        begun,
        ended,
        end,
    )
}

fn delete(number: u32, begun: u64, ended: u64, end: ClientEnd) -> ClientOp {
    op(
        number,
        Wish::Delete {
            base: SeenCondition::Any,
        },
        begun,
        ended,
        end,
    )
}

fn get(number: u32, begun: u64, ended: u64, end: ClientEnd) -> ClientOp {
    op(number, Wish::Get, begun, ended, end)
}

fn found(hlc: u64, value: u32) -> ClientEnd {
    ClientEnd::Found(SeenValue {
        version: version(hlc),
        value,
    })
}

fn written(hlc: u64) -> ClientEnd {
    ClientEnd::Written(version(hlc))
}

/// The rule that the black box names, whatever versions say.
fn linear(ops: &[ClientOp]) -> Option<Rule> {
    linear::check(ops, PendingRule::EndsWhenReplaced)
        .0
        .first()
        .map(|violation| violation.rule)
}

fn by_version(ops: &[ClientOp]) -> Option<Rule> {
    versions::check(ops, Disks::Whole)
        .first()
        .map(|violation| violation.rule)
}

/// Histories with a name and the rule that each of them breaks.
type Bad = Vec<(&'static str, Rule, Vec<ClientOp>)>;

fn each_is_blamed(bad: Bad, by: impl Fn(&[ClientOp]) -> Option<Rule>) {
    for (what, rule, ops) in bad {
        assert_eq!(by(&ops), Some(rule), "{what}");
    }
}

#[test]
fn what_may_happen_is_not_blamed() {
    let seen = SeenValue {
        version: version(1),
        value: 1,
    };
    let good: Vec<(&str, Vec<ClientOp>)> = vec![
        (
            "nothing at all",
            vec![get(1, 0, 5, ClientEnd::Missing(None))],
        ),
        (
            "a read beside a write sees either",
            vec![
                put(1, 0, 9, written(1)),
                get(2, 1, 2, ClientEnd::Missing(None)),
                get(3, 4, 5, found(1, 1)),
            ],
        ),
        (
            "an unknown write that was never seen",
            vec![
                put(1, 0, 1, written(1)),
                put(2, 2, 3, ClientEnd::Unknown),
                get(3, 4, 5, found(1, 1)),
            ],
        ),
        (
            "an unknown write that is seen later and stays",
            vec![
                put(1, 0, 1, written(1)),
                put(2, 2, 3, ClientEnd::Unknown),
                get(3, 4, 5, found(1, 1)),
                get(4, 6, 7, found(2, 2)),
                get(5, 8, 9, found(2, 2)),
            ],
        ),
        (
            "a swap on what was read",
            vec![
                put(1, 0, 1, written(1)),
                swap(2, seen, 2, 3, ClientEnd::Written(version(1).successor())),
                op(
                    3,
                    Wish::Get,
                    4,
                    5,
                    ClientEnd::Found(SeenValue {
                        version: version(1).successor(),
                        value: 2,
                    }),
                ),
            ],
        ),
        (
            "a swap that lost",
            vec![
                put(1, 0, 1, written(1)),
                put(2, 2, 3, written(2)),
                swap(
                    3,
                    seen,
                    4,
                    5,
                    ClientEnd::Refused {
                        current: Some(version(2)),
                    },
                ),
            ],
        ),
        (
            "a refusal after an unknown delete",
            vec![
                put(1, 0, 1, written(1)),
                delete(2, 2, 3, ClientEnd::Unknown),
                swap(3, seen, 4, 5, ClientEnd::Refused { current: None }),
            ],
        ),
        (
            "writes whose answers cross",
            vec![
                put(1, 0, 9, written(2)),
                put(2, 1, 8, written(1)),
                get(3, 10, 11, found(2, 1)),
            ],
        ),
    ];
    for (what, ops) in good {
        assert_eq!(linear(&ops), None, "{what}");
        assert_eq!(by_version(&ops), None, "{what}");
    }
}

#[test]
fn the_black_box_blames_what_no_order_explains() {
    let seen = SeenValue {
        version: version(1),
        value: 1,
    };
    let bad: Bad = vec![
        (
            "a lost write",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, written(1)),
                get(2, 2, 3, ClientEnd::Missing(None)),
            ],
        ),
        (
            "an old value behind a new one",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, written(1)),
                put(2, 2, 9, written(2)),
                get(3, 3, 4, found(2, 2)),
                get(4, 5, 6, found(1, 1)),
            ],
        ),
        (
            "a deleted value comes back",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, written(1)),
                delete(2, 2, 3, written(2)),
                get(3, 4, 5, found(1, 1)),
            ],
        ),
        (
            "an unknown write takes effect twice",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, ClientEnd::Unknown),
                get(2, 2, 3, found(1, 1)),
                put(3, 4, 5, written(3)),
                get(4, 6, 7, found(1, 1)),
            ],
        ),
        (
            "two swaps on one base",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, written(1)),
                swap(2, seen, 2, 9, ClientEnd::Written(version(1).successor())),
                swap(3, seen, 3, 8, ClientEnd::Written(version(1).successor())),
            ],
        ),
        (
            "a swap is refused although its base is there",
            Rule::NotLinearizable,
            vec![
                put(1, 0, 1, written(1)),
                swap(
                    2,
                    seen,
                    2,
                    3,
                    ClientEnd::Refused {
                        current: Some(version(1)),
                    },
                ),
            ],
        ),
        (
            "an unknown write behind an acknowledged later one",
            Rule::LateUnknown,
            vec![
                put(1, 0, 1, ClientEnd::Unknown),
                put(2, 2, 3, written(2)),
                get(3, 4, 5, found(3, 1)),
            ],
        ),
    ];
    each_is_blamed(bad, linear);
}

#[test]
fn versions_that_contradict_are_blamed() {
    let seen = SeenValue {
        version: version(1),
        value: 1,
    };
    let mut weak = vec![
        put(1, 0, 1, written(5)),
        get(2, 2, 3, found(4, 9)),
        put(9, 0, 9, written(4)),
    ];
    weak.iter_mut()
        .for_each(|op| op.promise = Promise::Eventual);
    let bad: Bad = vec![
        (
            "a later write has an older version",
            Rule::VersionOrder,
            vec![put(1, 0, 1, written(2)), put(2, 2, 3, written(1))],
        ),
        (
            "a later write has the same version",
            Rule::VersionValue,
            vec![put(1, 0, 1, written(2)), put(2, 2, 3, written(2))],
        ),
        (
            "a read is older than what was acknowledged",
            Rule::VersionOrder,
            vec![
                put(1, 0, 1, written(1)),
                put(2, 2, 3, written(2)),
                get(3, 4, 5, found(1, 1)),
            ],
        ),
        (
            "a write was repeated under another version",
            Rule::VersionValue,
            vec![put(1, 0, 1, written(1)), get(2, 2, 3, found(4, 1))],
        ),
        (
            "what was not applied is seen",
            Rule::NotAppliedSeen,
            vec![
                put(1, 0, 1, ClientEnd::NotApplied),
                get(2, 2, 3, found(4, 1)),
            ],
        ),
        (
            "what failed its condition is seen",
            Rule::NotAppliedSeen,
            vec![
                swap(1, seen, 0, 1, ClientEnd::Refused { current: None }),
                get(2, 2, 3, found(4, 1)),
            ],
        ),
        (
            "a value of nobody",
            Rule::WrongValue,
            vec![get(2, 2, 3, found(4, 77))],
        ),
        (
            "a swap that is not next to its base",
            Rule::NotSuccessor,
            vec![put(1, 0, 1, written(1)), swap(2, seen, 2, 3, written(7))],
        ),
        (
            "quorums that meet below the default level",
            Rule::QuorumBlind,
            weak,
        ),
    ];
    each_is_blamed(bad, by_version);
}

fn key_name(key: usize) -> Bytes {
    Bytes::from(format!("key-{key}"))
}

/// A page over all keys, asked for at 10 and shown at 20.
fn page(records: &[(usize, u64, u32)], rest: Option<usize>) -> ScanPage {
    let seen = |(key, hlc, value): &(usize, u64, u32)| {
        let (version, value) = (version(*hlc), *value);
        (*key, SeenValue { version, value })
    };
    ScanPage {
        start: key_name(0),
        end: None,
        asked_us: 10,
        shown_us: 20,
        records: records.iter().map(seen).collect(),
        rest: rest.map(|key| (key_name(key), None)),
        is_complete: true,
    }
}

/// The rule that a scan of these pages breaks, against `ops` on three keys.
fn by_scan(ops: &[ClientOp], pages: Vec<ScanPage>) -> Option<Rule> {
    let scan = ClientScan {
        member: 0,
        is_reverse: false,
        pages,
    };
    let found = scans::check(ops, &[scan], 3, key_name);
    found.first().map(|violation| violation.rule)
}

fn on(key: usize, op: ClientOp) -> ClientOp {
    ClientOp { key, ..op }
}

#[test]
fn scans_show_what_was_told_once_and_in_order() {
    let ops = [
        put(1, 0, 1, written(1)),
        on(1, put(2, 0, 1, written(2))),
        on(1, put(3, 5, 15, written(3))),
        on(2, put(4, 0, 1, written(4))),
        on(2, delete(5, 12, 18, written(5))),
        on(2, put(6, 30, 40, written(6))),
    ];
    let stop = ScanPage {
        rest: Some((key_name(0), None)),
        is_complete: false,
        ..page(&[], None)
    };
    let good = [
        (
            "old and new of what runs beside",
            vec![page(&[(0, 1, 1), (1, 2, 2), (2, 4, 4)], None)],
        ),
        (
            "what is deleted meanwhile",
            vec![page(&[(0, 1, 1), (1, 3, 3)], None)],
        ),
        ("a stop", vec![stop.clone()]),
        (
            "two pages",
            vec![
                page(&[(0, 1, 1)], Some(1)),
                ScanPage {
                    start: key_name(1),
                    ..page(&[(1, 3, 3)], None)
                },
            ],
        ),
    ];
    for (what, pages) in good {
        assert_eq!(by_scan(&ops, pages), None, "{what}");
    }
    let bad = [
        (
            "out of order",
            Rule::ScanForm,
            vec![page(&[(1, 2, 2), (0, 1, 1)], None)],
        ),
        (
            "twice",
            Rule::ScanForm,
            vec![page(&[(0, 1, 1), (0, 1, 1), (1, 2, 2)], None)],
        ),
        (
            "beyond the rest",
            Rule::ScanForm,
            vec![page(&[(0, 1, 1), (1, 2, 2)], Some(1))],
        ),
        ("no progress", Rule::ScanForm, vec![page(&[], Some(0))]),
        (
            "a stop that shows something",
            Rule::ScanForm,
            vec![ScanPage {
                records: page(&[(0, 1, 1)], None).records,
                ..stop
            }],
        ),
        ("left out", Rule::ScanBlind, vec![page(&[(1, 2, 2)], None)]),
        (
            "older than told",
            Rule::ScanBlind,
            vec![page(&[(0, 0, 1), (1, 2, 2)], None)],
        ),
        (
            "nobody's",
            Rule::WrongValue,
            vec![page(&[(0, 1, 9), (1, 2, 2)], None)],
        ),
        (
            "not yet written",
            Rule::WrongValue,
            vec![page(&[(0, 1, 1), (1, 2, 2), (2, 6, 6)], None)],
        ),
        (
            "two values of one version",
            Rule::VersionValue,
            vec![page(&[(0, 1, 1), (1, 3, 2)], None)],
        ),
    ];
    for (what, rule, pages) in bad {
        assert_eq!(by_scan(&ops, pages), Some(rule), "{what}");
    }
}

#[test]
fn stores_are_held_against_what_was_told() {
    let at = |hlc, value| OwnerCopy::Cell(version(hlc), value);
    let acknowledged = put(1, 0, 1, written(5));
    let ops = [&acknowledged];
    assert!(
        check_key(
            0,
            &[at(5, Some(1)), OwnerCopy::Nothing, OwnerCopy::Nothing],
            &ops,
            Disks::Whole
        )
        .is_empty()
    );
    assert!(
        check_key(
            0,
            &[at(6, None), OwnerCopy::Nothing, OwnerCopy::Nothing],
            &ops,
            Disks::Whole
        )
        .is_empty()
    );
    let lost = check_key(
        0,
        &[OwnerCopy::Gone, OwnerCopy::Nothing, OwnerCopy::Nothing],
        &ops,
        Disks::Whole,
    );
    assert_eq!(
        lost[0].rule,
        Rule::Lost,
        "two copies were promised and one disk is gone"
    );
    assert!(
        check_key(
            0,
            &[OwnerCopy::Gone, OwnerCopy::Damaged, OwnerCopy::Nothing],
            &ops,
            Disks::Whole
        )
        .is_empty()
    );
    let refused = put(1, 0, 1, ClientEnd::NotApplied);
    let seen = check_key(
        0,
        &[at(5, Some(1)), OwnerCopy::Nothing, OwnerCopy::Nothing],
        &[&refused],
        Disks::Whole,
    );
    assert_eq!(seen[0].rule, Rule::NotAppliedSeen);
    let alone = ClientOp {
        ack: 1,
        ..acknowledged.clone()
    };
    let mended = [at(4, None), at(4, None), at(4, None)];
    assert!(check_key(0, &mended, &[&alone], Disks::Damaged).is_empty());
    assert_eq!(
        check_key(0, &mended, &[&alone], Disks::Whole)[0].rule,
        Rule::Lost
    );
    assert_eq!(
        check_key(0, &mended, &ops, Disks::Damaged)[0].rule,
        Rule::Lost
    );
    assert!(check_convergence(0, &[at(5, Some(1)), OwnerCopy::Gone, at(5, Some(1))]).is_none());
    assert!(check_convergence(0, &[at(5, Some(1)), OwnerCopy::Nothing]).is_some());
    assert!(check_convergence(0, &[at(5, Some(1)), OwnerCopy::Damaged]).is_some());
}

/// The shape of a drawn history.
struct Drawn {
    operations: u32,
    /// When the last one begins, about.
    span_us: u64,
    /// Reads of a hundred that answer an earlier value.
    stale: u64,
    /// Writes of a hundred of which the client does not hear; one in two of these did not happen.
    unheard: u64,
}

/// A register that does each operation at one instant between its begin and its end.
fn drawn_history(prng: &mut Prng, drawn: &Drawn) -> Vec<ClientOp> {
    let mut planned: Vec<(u64, u32, u64, u64)> = (1..=drawn.operations)
        .map(|number| {
            let begun = prng.below(drawn.span_us);
            let point = begun + prng.below(12);
            (point, number, begun, point + prng.below(12))
        })
        .collect();
    planned.sort_unstable();
    let (mut state, mut before) = (None, None);
    let mut ops = Vec::new();
    for (hlc, (_, number, begun, ended)) in (1..).zip(planned) {
        let now = Version {
            hlc,
            origin: 1,
            rmw: 0,
        };
        let shown = if prng.chance(drawn.stale, 100) {
            before
        } else {
            state
        };
        let end_of_read =
            |shown: Option<SeenValue>| shown.map_or(ClientEnd::Missing(None), ClientEnd::Found);
        let write = |state: &mut Option<SeenValue>, before: &mut Option<SeenValue>, next| {
            *before = *state;
            *state = next;
        };
        let next = Some(SeenValue {
            version: now,
            value: number,
        });
        ops.push(match prng.below(6) {
            0 | 1 => get(number, begun, ended, end_of_read(shown)),
            2 | 3 => {
                let is_told = !prng.chance(drawn.unheard, 100);
                if is_told || prng.chance(1, 2) {
                    write(&mut state, &mut before, next);
                }
                let end = if is_told {
                    ClientEnd::Written(now)
                } else {
                    ClientEnd::Unknown
                };
                put(number, begun, if is_told { ended } else { begun + 24 }, end)
            }
            4 => {
                write(&mut state, &mut before, None);
                delete(number, begun, ended, ClientEnd::Written(now))
            }
            _ => match shown {
                Some(seen) if state == Some(seen) => {
                    write(&mut state, &mut before, next);
                    swap(number, seen, begun, ended, ClientEnd::Written(now))
                }
                Some(seen) => {
                    let current = state.map(|seen| seen.version);
                    swap(number, seen, begun, ended, ClientEnd::Refused { current })
                }
                None => get(number, begun, ended, ClientEnd::Missing(None)),
            },
        });
    }
    ops
}

/// The slow twin: tries every order of every choice of unknown operations.
fn has_order(
    left: &[&ClientOp],
    state: Option<u32>,
    versions: &dyn Fn(Version) -> Option<u32>,
) -> bool {
    if left.iter().all(|op| op.end == ClientEnd::Unknown) {
        return true;
    }
    let first_end = left
        .iter()
        .filter(|op| op.end != ClientEnd::Unknown)
        .map(|op| op.ended_us)
        .min();
    left.iter().enumerate().any(|(at, op)| {
        if op.begun_us > first_end.unwrap_or(u64::MAX) {
            return false;
        }
        let rest: Vec<&ClientOp> = left
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != at)
            .map(|(_, op)| *op)
            .collect();
        let holds = match op.wish.base() {
            SeenCondition::Matches(seen) => state == Some(seen.value),
            _ => true,
        };
        let after = match op.end {
            ClientEnd::Found(seen) => (state == Some(seen.value)).then_some(state),
            ClientEnd::Missing(_) => state.is_none().then_some(state),
            ClientEnd::Written(_) => holds.then(|| op.wish.leaves()),
            ClientEnd::Unknown => Some(if holds { op.wish.leaves() } else { state }),
            ClientEnd::Refused { current } => {
                (!holds && state == current.and_then(versions)).then_some(state)
            }
            ClientEnd::NotApplied => Some(state),
        };
        after.is_some_and(|after| has_order(&rest, after, versions))
    })
}

#[test]
fn the_search_agrees_with_every_order_tried() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..4_000 {
        let mut prng = Prng::new(seed);
        let stale = [0, 30][prng.below(2) as usize];
        let drawn = Drawn {
            operations: 2 + prng.below(7) as u32,
            span_us: 60,
            stale,
            unheard: 25,
        };
        let ops = drawn_history(&mut prng, &drawn);
        let refs: Vec<&ClientOp> = ops.iter().collect();
        let versions = |version: Version| {
            ops.iter().find_map(|op| match op.end {
                ClientEnd::Written(written) if written == version => op.wish.leaves(),
                ClientEnd::Found(seen) if seen.version == version => Some(seen.value),
                _ => None,
            })
        };
        // A refusal with a version that no client was told: it only shows that there is a value.
        let is_nameless = ops.iter().any(
            |op| matches!(op.end, ClientEnd::Refused { current: Some(v) } if versions(v).is_none()),
        );
        if is_nameless {
            continue;
        }
        let expected = has_order(&refs, None, &versions);
        assert!(
            expected || stale > 0,
            "seed {seed}: the register itself is wrong"
        );
        let verdict = key_verdict(&refs, PendingRule::StaysOpen);
        assert_eq!(
            verdict == SearchVerdict::Good,
            expected,
            "seed {seed}: {ops:#?}"
        );
        *if expected { &mut good } else { &mut bad } += 1;
    }
    assert!(
        good > 1_000 && bad > 100,
        "{good} good and {bad} bad histories"
    );
}

#[test]
fn a_history_of_many_thousand_operations_is_decided() {
    for seed in 0..10 {
        // Eight under way at any moment, as with a key that all clients want.
        let drawn = Drawn {
            operations: 12_000,
            span_us: 18_000,
            stale: 0,
            unheard: 1,
        };
        let ops = drawn_history(&mut Prng::new(seed), &drawn);
        let refs: Vec<&ClientOp> = ops.iter().collect();
        let verdict = key_verdict(&refs, PendingRule::StaysOpen);
        assert_eq!(verdict, SearchVerdict::Good, "seed {seed}");
        // One answer in the middle that is true of no moment near it.
        let known = Drawn {
            unheard: 0,
            ..drawn
        };
        let mut ops = drawn_history(&mut Prng::new(seed), &known);
        let is_late_read =
            |op: &ClientOp| op.begun_us > 9_000 && matches!(op.end, ClientEnd::Found(_));
        let old = ops[..1_000].iter().rev().find_map(|op| match op.end {
            ClientEnd::Found(seen) => Some(seen),
            _ => None,
        });
        let read = ops.iter().position(is_late_read).expect("there are reads");
        ops[read].end = ClientEnd::Found(old.expect("there are reads"));
        let refs: Vec<&ClientOp> = ops.iter().collect();
        let verdict = key_verdict(&refs, PendingRule::StaysOpen);
        // To prove it may take more states than there are allowed.
        assert_ne!(verdict, SearchVerdict::Good, "seed {seed}");
    }
}

/// The same history after another one.
fn later(ops: &[ClientOp], by_us: u64, numbers: u32) -> Vec<ClientOp> {
    let seen = |seen: SeenValue| SeenValue {
        version: version(seen.version.hlc + u64::from(numbers)),
        value: seen.value + numbers,
    };
    let one = |op: &ClientOp| {
        let mut op = op.clone();
        (op.number, op.begun_us, op.ended_us) = (
            op.number + numbers,
            op.begun_us + by_us,
            op.ended_us + by_us,
        );
        op.wish = match op.wish {
            Wish::Put { value, base } => Wish::Put {
                value: value + numbers,
                base: match base {
                    SeenCondition::Matches(known) => SeenCondition::Matches(seen(known)),
                    other => other,
                },
            },
            other => other,
        };
        op.end = match op.end {
            ClientEnd::Found(known) => ClientEnd::Found(seen(known)),
            ClientEnd::Written(at) => ClientEnd::Written(version(at.hlc + u64::from(numbers))),
            ClientEnd::Refused { current: Some(at) } => ClientEnd::Refused {
                current: Some(version(at.hlc + u64::from(numbers))),
            },
            other => other,
        };
        op
    };
    ops.iter().map(one).collect()
}

#[test]
fn an_unknown_write_that_only_a_refusal_shows_is_found_among_thousands() {
    // Two under way at most moments: those of eight clients and six keys.
    let drawn = Drawn {
        operations: 5_000,
        span_us: 30_000,
        stale: 0,
        unheard: 1,
    };
    for seed in 0..5 {
        let part = |seed| drawn_history(&mut Prng::new(seed), &drawn);
        let create = |number, end| {
            let base = SeenCondition::Absent;
            let value = number;
            op(number, Wish::Put { value, base }, 0, 0, end)
        };
        let at = |begun_us, ended_us, op: ClientOp| ClientOp {
            begun_us,
            ended_us,
            ..op
        };
        let mut ops = part(seed);
        let shown = Some(version(900_000));
        ops.extend([
            at(
                40_000,
                40_010,
                delete(6_001, 0, 0, ClientEnd::Written(version(800_000))),
            ),
            at(40_020, 40_030, create(6_002, ClientEnd::Unknown)),
            at(
                40_040,
                40_050,
                create(6_003, ClientEnd::Refused { current: shown }),
            ),
            at(
                40_060,
                40_070,
                delete(6_004, 0, 0, ClientEnd::Written(version(900_001))),
            ),
        ]);
        ops.extend(later(&part(seed + 100), 50_000, 1_000_000));
        let refs: Vec<&ClientOp> = ops.iter().collect();
        let verdict = key_verdict(&refs, PendingRule::StaysOpen);
        assert_eq!(verdict, SearchVerdict::Good, "seed {seed}");
    }
}
