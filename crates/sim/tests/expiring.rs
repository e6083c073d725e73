//! Clusters in which values end, and are renewed, while one member's clock is wrong, over its
//! starts too: no value is gone before its end, no lock is given twice, and none is renewed after
//! its end.
//!
//! ```text
//! DENDRA_SIM_FIRST=17 DENDRA_SIM_SEEDS=1 cargo test -p dendra-sim --test expiring    one seed
//! ```

use dendra_base::Version;
use dendra_node::limits::WALL_APART_MS_MAX;
use dendra_sim::check::{Disks, Rule, versions};
use dendra_sim::draws::SeedWorld;
use dendra_sim::history::{ClientEnd, ClientOp, Promise, SeenCondition, SeenValue, Wish};
use dendra_sim::runner::run_plan;
use dendra_sim::trace::Tracing;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn no_seed_takes_a_value_or_a_lock_away_before_its_end() {
    let first = number("DENDRA_SIM_FIRST", 0);
    let seeds = number("DENDRA_SIM_SEEDS", 300);
    let (mut given, mut refused) = (0, 0);
    let (mut renewed, mut lost) = (0, 0);
    for seed in first..first + seeds {
        let report = run_plan(&SeedWorld::Expiring.plan(seed), None, Tracing::Off);
        if let Some(violation) = report.violations.first() {
            panic!("seed {seed}: {violation}");
        }
        let touches = report.history.iter();
        for touch in touches.filter(|op| matches!(op.wish, Wish::Touch { .. })) {
            renewed += u64::from(matches!(touch.end, ClientEnd::Written(_)));
            lost += u64::from(matches!(touch.end, ClientEnd::Refused { .. }));
        }
        let locks = report.history.iter().filter(|op| {
            let is_lock = matches!(
                op.wish,
                Wish::Put {
                    base: SeenCondition::Absent,
                    ..
                }
            );
            is_lock && op.expiry_ms.is_some()
        });
        for lock in locks {
            given += u64::from(matches!(lock.end, ClientEnd::Written(_)));
            refused += u64::from(matches!(lock.end, ClientEnd::Refused { .. }));
        }
    }
    println!("{given} locks given, {refused} refused; {renewed} renewed, {lost} lost");
    if seeds >= 100 {
        assert!(given > seeds && refused > seeds, "{given} {refused}");
        assert!(renewed > seeds && lost > seeds, "{renewed} {lost}");
    }
}

/// The only owner of a lock started with a clock that was ahead, and gave it away once more: no
/// other owner's clock was there to judge by.
#[test]
fn the_only_owner_of_a_lock_judges_its_end_by_the_clocks_of_all_members() {
    for seed in [101_126, 102_295, 105_102] {
        let report = run_plan(&SeedWorld::Expiring.plan(seed), None, Tracing::Off);
        assert!(
            report.violations.is_empty(),
            "{seed}: {:?}",
            report.violations
        );
    }
}

/// The clock of the only owner was ahead by a second, and so was its last reading of a clock that
/// had been put right since. By both of them the value had ended. At no moment two clocks said so.
#[test]
fn a_reading_of_a_clock_that_was_put_right_a_moment_ago_may_still_end_a_value() {
    let report = run_plan(&SeedWorld::Expiring.plan(892), None, Tracing::Off);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
}

/// The end of the first lock.
const END_MS: u64 = 1_000_000;

/// A lock that is given at `at_us`, by a member whose clock shows `own_ms` while a majority of the
/// clocks have passed `most_ms`.
fn lock(number: u32, at_us: u64, own_ms: u64, most_ms: u64) -> ClientOp {
    ClientOp {
        number,
        client: number as usize,
        key: 0,
        wish: Wish::Put {
            value: number,
            base: SeenCondition::Absent,
        },
        ack: 2,
        from: 3,
        promise: Promise::Linearizable,
        is_fleeting: true,
        expiry_ms: Some(END_MS + u64::from(number - 1)),
        wall_ms: (own_ms, own_ms),
        passed_ms: most_ms,
        member: 0,
        begun_us: at_us,
        ended_us: at_us + 1,
        end: ClientEnd::Written(Version {
            hlc: u64::from(number) << 60,
            origin: 1,
            rmw: 0,
        }),
    }
}

#[test]
fn the_checker_sees_a_lock_that_is_given_twice_and_no_other() {
    let first = lock(1, 10, 1, 1);
    let faults = |second: &ClientOp, between: Option<ClientOp>| {
        let mut history = vec![first.clone()];
        history.extend(between);
        history.push(second.clone());
        let found = versions::check(&history, Disks::Whole);
        let expiry = found.iter().filter(|it| it.rule == Rule::Expiry);
        expiry.count()
    };
    for (own_ms, most_ms, is_early) in [
        (END_MS - 1, END_MS - 1, true),
        (END_MS, END_MS - 1, false),
        (END_MS - 1, END_MS, false),
        // Ahead by a minute, and by more.
        (END_MS, END_MS - WALL_APART_MS_MAX, false),
        (END_MS, END_MS - WALL_APART_MS_MAX - 1, true),
        (END_MS + 7_200_000, 5, true),
    ] {
        let second = lock(3, 50, own_ms, most_ms);
        assert_eq!(faults(&second, None) > 0, is_early, "{own_ms} {most_ms}");
    }
    let second = lock(3, 50, 1, 1);
    let mut removed = lock(2, 20, 1, 1);
    removed.wish = Wish::Delete {
        base: SeenCondition::Any,
    };
    assert_eq!(faults(&second, Some(removed.clone())), 0, "it was free");
    removed.end = ClientEnd::NotApplied;
    assert!(faults(&second, Some(removed)) > 0, "it was not");
}

/// A holder whose renewal moved the end, and one whose value had ended.
#[test]
fn the_checker_knows_the_end_that_a_renewal_left_and_sees_one_that_came_too_late() {
    let first = lock(1, 10, 1, 1);
    let seen = SeenValue {
        version: match first.end {
            ClientEnd::Written(version) => version,
            _ => unreachable!("it was given"),
        },
        value: 1,
    };
    let renewal = |at_us, own_ms| ClientOp {
        wish: Wish::Touch { seen },
        expiry_ms: Some(2 * END_MS),
        end: ClientEnd::Written(seen.version.successor()),
        ..lock(2, at_us, own_ms, own_ms)
    };
    let faults = |renewal: ClientOp, second_ms| {
        let history = [first.clone(), renewal, lock(3, 50, second_ms, second_ms)];
        let found = versions::check(&history, Disks::Whole);
        let expiry = found.iter().filter(|it| it.rule == Rule::Expiry);
        expiry.count()
    };
    assert_eq!(faults(renewal(20, 1), 2 * END_MS), 0);
    assert!(faults(renewal(20, 1), END_MS) > 0, "the lock was renewed");
    assert!(faults(renewal(20, END_MS), 2 * END_MS) > 0, "it had ended");
    let mut unknown = renewal(20, 1);
    unknown.end = ClientEnd::Unknown;
    assert_eq!(faults(unknown, END_MS), 0, "perhaps it was not renewed");
    // Behind the second holder's token: the order of versions forbids it.
    let late = renewal(60, 1);
    let history = [first.clone(), lock(3, 50, END_MS, END_MS), late];
    let found = versions::check(&history, Disks::Whole);
    assert!(found.iter().any(|it| it.rule == Rule::VersionOrder));
}
