//! Gates beside a plain count, and every row of the table of decisions.

use super::*;
use proptest::prelude::*;
use std::rc::Rc;
use std::sync::Arc;

fn under(level: f64, stop: Option<Stop>) -> Pressure {
    Pressure {
        level,
        memory: level,
        stop,
    }
}

#[test]
fn a_permit_gives_its_room_back_once() {
    let gate = Gate::new(10);
    let six = Gate::offer(&gate, 6).expect("an empty gate has room");
    assert!(Gate::offer(&gate, 5).is_none());
    let four = Gate::offer(&gate, 4).expect("four are left");
    assert_eq!(gate.used(), 10);
    drop(six);
    assert_eq!(gate.used(), 4);
    drop(four);
    assert_eq!(gate.used(), 0);
}

#[test]
fn a_cost_beyond_all_numbers_is_refused() {
    let gate = Gate::new(u64::MAX);
    let _one = Gate::offer(&gate, 1).expect("an empty gate has room");
    assert!(Gate::offer(&gate, u64::MAX).is_none());
}

#[test]
fn a_permit_may_travel_to_another_thread_with_its_gate() {
    let gate = Arc::new(Gate::new(1));
    let permit = Gate::offer(Arc::clone(&gate), 1).expect("an empty gate has room");
    std::thread::spawn(move || drop(permit))
        .join()
        .expect("dropping a permit does not panic");
    assert_eq!(gate.used(), 0);
}

#[test]
fn threads_together_never_exceed_the_limit() {
    let gate = Gate::new(7);
    let held = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for cost in 1..=4 {
            let (gate, held) = (&gate, &held);
            threads.spawn(move || {
                for _ in 0..20_000 {
                    if let Some(permit) = Gate::offer(gate, cost) {
                        let now = held.fetch_add(cost, Ordering::SeqCst) + cost;
                        assert!(now <= 7, "{now} units are under way");
                        held.fetch_sub(cost, Ordering::SeqCst);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert_eq!(gate.used(), 0);
}

#[test]
fn a_limit_too_small_for_leases_is_still_shared_by_all_loops() {
    let gate = Gate::new(1);
    let (a, b) = (LocalGate::new(&gate, 2), LocalGate::new(&gate, 2));
    for _ in 0..3 {
        let permit = LocalGate::offer(&a, 1).expect("nothing is under way");
        assert!(LocalGate::offer(&b, 1).is_none());
        drop(permit);
        drop(LocalGate::offer(&b, 1).expect("the room came back to the node's gate"));
    }
}

#[test]
fn idle_leases_keep_at_most_a_quarter_of_the_limit_from_another_loop() {
    for burst in (100..=1500).step_by(100) {
        let gate = Gate::new(6400);
        let loops: Vec<LocalGate<&Gate>> = (0..4).map(|_| LocalGate::new(&gate, 4)).collect();
        for idle in &loops[1..] {
            let permits: Vec<_> = (0..burst).map(|_| LocalGate::offer(idle, 1)).collect();
            drop(permits);
            assert_eq!(idle.used(), 0);
        }
        let permits: Vec<_> = std::iter::from_fn(|| LocalGate::offer(&loops[0], 1)).collect();
        assert!(
            permits.len() >= 4800,
            "after bursts of {burst}, {} fit beside idle leases",
            permits.len()
        );
    }
}

#[test]
fn a_quiet_loop_keeps_one_piece_so_that_the_next_request_asks_nobody() {
    let gate = Gate::new(6400);
    let door = LocalGate::new(&gate, 4);
    let permits: Vec<_> = (0..1000).map(|_| LocalGate::offer(&door, 1)).collect();
    drop(permits);
    assert!(
        (200..=400).contains(&gate.used()),
        "{} are leased",
        gate.used()
    );
    let before = gate.used();
    drop(LocalGate::offer(&door, 100).expect("the piece has room"));
    assert_eq!(gate.used(), before);
}

#[test]
fn a_loop_that_ends_returns_its_leases() {
    let gate = Arc::new(Gate::new(1000));
    let door = Rc::new(LocalGate::new(Arc::clone(&gate), 1));
    let permit = LocalGate::offer(Rc::clone(&door), 3).expect("an empty gate has room");
    drop(door);
    assert!(gate.used() >= 3, "the permit keeps the door");
    drop(permit);
    assert_eq!(gate.used(), 0);
}

#[test]
fn reads_always_pass() {
    for stop in [
        None,
        Some(Stop::MemtablesFull),
        Some(Stop::CompactionBehind),
        Some(Stop::DiskFull),
    ] {
        for level in [0.0, 0.9, 1.0, 7.0, f64::NAN] {
            assert_eq!(admit(under(level, stop), Class::Read), Admission::Granted);
        }
    }
}

#[test]
fn a_stop_refuses_writes_and_says_why() {
    let refused = |stop, class| match admit(under(1.0, Some(stop)), class) {
        Admission::Refused { refusal } => Some(refusal),
        _ => None,
    };
    assert_eq!(
        refused(Stop::CompactionBehind, Class::Write),
        Some(RefusedBy::EngineBehind)
    );
    assert_eq!(
        refused(Stop::CompactionBehind, Class::Delete),
        Some(RefusedBy::EngineBehind)
    );
    assert_eq!(
        refused(Stop::DiskFull, Class::Write),
        Some(RefusedBy::DiskFull)
    );
    assert_eq!(refused(Stop::CompactionBehind, Class::Scan), None);
    assert_eq!(refused(Stop::DiskFull, Class::Scan), None);
}

#[test]
fn a_full_disk_lets_deletes_pass_at_once() {
    let admission = admit(under(1.0, Some(Stop::DiskFull)), Class::Delete);
    assert_eq!(admission, Admission::Granted);
}

#[test]
fn a_full_disk_refuses_deletes_too_once_memory_is_full() {
    for class in [Class::Write, Class::Delete] {
        let admission = admit(under(1.0, Some(Stop::DiskAndMemoryFull)), class);
        let refusal = RefusedBy::DiskFull;
        assert_eq!(admission, Admission::Refused { refusal });
    }
}

#[test]
fn a_calm_engine_delays_nobody() {
    for class in [Class::Read, Class::Scan, Class::Delete, Class::Write] {
        assert_eq!(admit(under(0.5, None), class), Admission::Granted);
    }
    assert_eq!(admit(under(-1.0, None), Class::Write), Admission::Granted);
}

#[test]
fn the_longest_delay_is_bounded_whatever_the_level_says() {
    let longest = Admission::Delayed { us: DELAY_US_MAX };
    for level in [1.0, 50.0, f64::INFINITY, f64::NAN] {
        assert_eq!(admit(under(level, None), Class::Write), longest);
    }
}

#[test]
fn a_full_disk_asks_for_more_patience_than_a_full_gate() {
    assert!(RefusedBy::DiskFull.retry_after_s() > RefusedBy::Requests.retry_after_s());
    assert!(
        RefusedBy::Requests.retry_after_s() >= 1,
        "zero would be an invitation to hammer"
    );
}

proptest! {
    #[test]
    fn the_delay_grows_without_a_jump(level in 0.0f64..1.0) {
        let step = 0.001;
        let (here, next) = (delay_us(level), delay_us(level + step));
        prop_assert!(next >= here);
        // The slope of the square at its end: 2 * max / (1 - DELAY_LEVEL_MIN).
        let steepest = 2.0 * DELAY_US_MAX as f64 / (1.0 - DELAY_LEVEL_MIN) * step;
        prop_assert!((next - here) as f64 <= steepest + 1.0);
    }

    /// Several doors in one gate, beside a plain count: never beyond the limit, nothing lost.
    #[test]
    fn doors_never_exceed_the_node_and_lose_nothing(
        limit in 1u64..200,
        steps in prop::collection::vec((0usize..3, 0u64..60, 0u8..6), 0..200),
    ) {
        let gate = Gate::new(limit);
        {
            let doors: Vec<LocalGate<&Gate>> = (0..3).map(|_| LocalGate::new(&gate, 3)).collect();
            let mut held: [Vec<(u64, LocalPermit<_, _>)>; 3] = Default::default();
            for (door, cost, what) in steps {
                if what == 0 {
                    doors[door].release_idle();
                } else if what == 1 {
                    if let Some((known, permit)) = held[door].last_mut() {
                        *known = cost.min(*known);
                        permit.keep(cost);
                    }
                } else if what < 4 {
                    held[door].pop();
                } else if let Some(permit) = LocalGate::offer(&doors[door], cost) {
                    held[door].push((cost, permit));
                }
                let sum = |permits: &Vec<(u64, LocalPermit<_, _>)>| -> u64 {
                    permits.iter().map(|(cost, _)| cost).sum()
                };
                let under_way: u64 = held.iter().map(sum).sum();
                prop_assert!(under_way <= gate.used() && gate.used() <= limit);
                for (door, permits) in doors.iter().zip(&held) {
                    prop_assert_eq!(door.used(), sum(permits));
                }
            }
        }
        prop_assert_eq!(gate.used(), 0);
    }
}
