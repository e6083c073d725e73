//! Profiles of threads whose work is known. One process has one capture at a time, so these take turns.

use super::*;
use std::alloc::System;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc;

static ORDER: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: SampledAlloc<System> = SampledAlloc::over(System);

#[inline(never)]
fn burn_on_purpose(stop: &AtomicBool) -> u64 {
    let mut x = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
    }
    x
}

#[inline(never)]
fn wait_on_purpose(end: &mpsc::Receiver<()>) -> bool {
    black_box(end.recv().is_ok())
}

/// Runs `work` beside one thread that burns and one that waits, both on the roster.
fn beside_both<T>(work: impl FnOnce() -> T) -> T {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let stop = AtomicBool::new(false);
    let (end, ended) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let (ready_too, stop) = (ready.clone(), &stop);
        scope.spawn(move || {
            let _seat = register(Kind::Compact);
            ready.send(()).expect("the test listens");
            burn_on_purpose(stop);
        });
        scope.spawn(move || {
            let _seat = register(Kind::Wal);
            ready_too.send(()).expect("the test listens");
            wait_on_purpose(&ended);
        });
        is_ready.recv().expect("the first thread starts");
        is_ready.recv().expect("the second thread starts");
        let result = work();
        stop.store(true, Ordering::Relaxed);
        end.send(()).expect("the second thread listens");
        result
    })
}

fn samples_of(profile: &Profile, kind: &str, function: &str) -> u64 {
    let folded = profile.stacks.to_folded();
    let of = |line: &&str| line.starts_with(&format!("{kind};")) && line.contains(function);
    let counts = folded
        .lines()
        .filter(of)
        .filter_map(|line| line.rsplit_once(' '));
    counts
        .filter_map(|(_, count)| count.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_burning_thread_is_in_its_cpu_profile_and_a_waiting_one_is_not() {
    let profile = beside_both(|| capture(Measure::Cpu, Unit::Samples, Duration::from_millis(600)));
    let profile = profile.expect("nobody else captures");
    let burnt = samples_of(&profile, "compact", "burn_on_purpose");
    assert!(burnt >= 5, "{}", profile.stacks.to_folded());
    assert_eq!(samples_of(&profile, "wal", "wait_on_purpose"), 0);
}

#[test]
fn a_waiting_thread_is_in_the_wall_profile() {
    let profile = beside_both(|| capture(Measure::Wall, Unit::Samples, Duration::from_millis(400)));
    let profile = profile.expect("nobody else captures");
    let waited = samples_of(&profile, "wal", "wait_on_purpose");
    assert!(waited >= 5, "{}", profile.stacks.to_folded());
    assert!(samples_of(&profile, "compact", "burn_on_purpose") >= 5);
}

#[test]
fn timers_are_there_during_a_capture_and_gone_after_it() {
    beside_both(|| {
        let Some(before) = sampler::timers_of_this_process() else {
            return;
        };
        let sampler =
            Sampler::start(Measure::Cpu, SAMPLES_PER_SECOND).expect("the system has timers");
        let during = sampler::timers_of_this_process().expect("it was there a moment ago");
        sampler.stop(|_, _| {});
        let after = sampler::timers_of_this_process().expect("it was there a moment ago");
        assert_eq!(before, 0, "off means no timers");
        assert!(during >= 2, "one for each thread on the roster");
        assert_eq!(after, 0, "off again means no timers");
    });
}

#[test]
fn a_second_capture_at_once_is_refused_with_a_sentence() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let first = Turn::take(Measure::Cpu).expect("nobody else captures");
    let refused = capture(Measure::Cpu, Unit::Samples, Duration::from_millis(10))
        .expect_err("the turn is taken");
    assert!(matches!(refused, Refused::Busy));
    assert!(refused.to_string().contains("ask again when it has ended"));
    capture(Measure::Wall, Unit::Samples, Duration::from_millis(10))
        .expect("the other measure is free");
    drop(first);
    assert!(
        Turn::take(Measure::Cpu).is_some(),
        "a turn that ended can be taken again"
    );
}

#[test]
fn a_thread_that_left_is_not_signalled() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    std::thread::spawn(|| drop(register(Kind::Flush)))
        .join()
        .expect("it only registers");
    let profile = capture(Measure::Wall, Unit::Samples, Duration::from_millis(60))
        .expect("nobody else captures");
    assert_eq!(samples_of(&profile, "flush", ""), 0);
}

#[inline(never)]
fn allocate_on_purpose(bytes: usize) -> Vec<u8> {
    black_box(vec![1; black_box(bytes)])
}

/// Runs `work` on a thread of kind `kind` again and again while `length` of `measure` is captured.
fn while_captured(
    measure: Measure,
    unit: Unit,
    kind: Kind,
    work: impl Fn() + Sync,
) -> (Profile, u64) {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let stop = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let (stop_too, work) = (&stop, &work);
        let worker = scope.spawn(move || {
            let _seat = register(kind);
            let mut rounds = 0u64;
            while !stop_too.load(Ordering::Relaxed) {
                work();
                // What was done before the capture is not in it: counted from its middle on.
                rounds += u64::from(sampler::is_on(measure));
                if rounds == 1 {
                    begun.send(()).ok();
                }
            }
            rounds
        });
        let profile = capture(measure, unit, Duration::from_millis(300));
        has_begun.recv().expect("the worker worked meanwhile");
        stop.store(true, Ordering::Relaxed);
        let rounds = worker.join().expect("the work does not panic");
        (profile.expect("nobody else captures"), rounds)
    })
}

#[test]
fn allocated_bytes_are_at_the_function_that_asked_for_them_and_as_many_as_it_asked_for() {
    const BYTES: usize = 100_000;
    let work = || drop(allocate_on_purpose(BYTES));
    let (profile, rounds) = while_captured(Measure::Alloc, Unit::Bytes, Kind::Flush, work);
    let folded = profile.stacks.to_folded();
    let estimated = samples_of(&profile, "flush", "allocate_on_purpose") as f64;
    let real = (rounds * BYTES as u64) as f64;
    assert!(rounds > 1000, "{rounds} are too few to compare");
    // Rounds before and after the window count as real and are not seen: on a busy machine a third.
    assert!(
        (0.4..1.2).contains(&(estimated / real)),
        "{estimated} of {real}: {folded}"
    );
    assert!(
        !folded.contains("SampledAlloc"),
        "the hook itself is in no stack: {folded}"
    );
}

#[test]
fn allocated_objects_are_counted_when_asked_for() {
    let work = || {
        for _ in 0..100 {
            drop(allocate_on_purpose(64));
        }
    };
    let (profile, rounds) = while_captured(Measure::Alloc, Unit::Objects, Kind::Flush, work);
    let estimated = samples_of(&profile, "flush", "allocate_on_purpose") as f64;
    let real = (rounds * 100) as f64;
    assert!(
        (0.5..2.0).contains(&(estimated / real)),
        "{estimated} of {real}"
    );
}

#[test]
fn an_allocation_leaves_no_trace_while_nobody_looks() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let _seat = register(Kind::Flush);
    let before = alloc::left();
    drop(allocate_on_purpose(10 << 20));
    assert_eq!(alloc::left(), before, "nothing is counted");
    let sampler = Sampler::start(Measure::Alloc, 1).expect("a hook needs nothing of the system");
    drop(allocate_on_purpose(10 << 20));
    assert_ne!(alloc::left(), before, "and then it is");
    let mut bytes = Vec::with_capacity(64);
    sampler.stop(|_, amount| bytes.push(amount));
    assert!(bytes.contains(&(10 << 20)), "{bytes:?}");
}

#[test]
fn allocations_of_threads_that_are_not_on_the_roster_are_not_counted() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let sampler = Sampler::start(Measure::Alloc, 1).expect("a hook needs nothing of the system");
    std::thread::spawn(|| drop(allocate_on_purpose(10 << 20)))
        .join()
        .expect("it only allocates");
    let mut seen = Vec::with_capacity(64);
    sampler.stop(|frames, amount| seen.push((frames.len(), amount)));
    assert!(
        !seen.iter().any(|(_, bytes)| *bytes == 10 << 20),
        "{seen:?}"
    );
}

#[test]
fn captures_begin_and_end_under_allocating_threads_without_harm() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _seat = register(Kind::Worker);
                let mut kept: Vec<Vec<u8>> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    kept.push(allocate_on_purpose(4 << 10));
                    if kept.len() > 1000 {
                        kept.clear();
                    }
                }
            });
        }
        for _ in 0..8 {
            for measure in Measure::ALL {
                let profile = capture(measure, measure.units()[0], Duration::from_millis(5));
                profile.expect("each has its turn");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Profiles three workers that take one lock in turn and hold it for a while.
fn while_contended(unit: Unit, hold: fn(&Lock<u64>) -> std::sync::MutexGuard<'_, u64>) -> Profile {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let stop = AtomicBool::new(false);
    let lock = Lock::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _seat = register(Kind::Worker);
                while !stop.load(Ordering::Relaxed) {
                    let mut held = hold(&lock);
                    // Long enough that the others come meanwhile.
                    let until = Instant::now() + Duration::from_micros(500);
                    while Instant::now() < until {
                        *held = black_box(*held + 1);
                    }
                }
            });
        }
        let profile = capture(Measure::Lock, unit, Duration::from_millis(400));
        stop.store(true, Ordering::Relaxed);
        profile.expect("nobody else captures")
    })
}

#[inline(never)]
fn queue_up_on_purpose(lock: &Lock<u64>) -> std::sync::MutexGuard<'_, u64> {
    let guard = lock.hold();
    black_box(&guard);
    guard
}

#[test]
fn time_waited_for_a_lock_is_at_the_function_that_waited() {
    let profile = while_contended(Unit::Us, queue_up_on_purpose);
    let folded = profile.stacks.to_folded();
    let waited_us = samples_of(&profile, "worker", "queue_up_on_purpose");
    // Two of three threads wait at any moment, as far as the machine lets them run.
    assert!(
        (50_000..=1_300_000).contains(&waited_us),
        "{waited_us} µs: {folded}"
    );
    let leaf = folded
        .lines()
        .find(|line| line.contains("queue_up_on_purpose"));
    let leaf = leaf.and_then(|line| line.rsplit(';').next());
    let leaf = leaf.unwrap_or_default();
    assert!(
        leaf.contains("queue_up_on_purpose"),
        "the waiter is innermost: {folded}"
    );
}

#[test]
fn a_free_lock_is_in_no_profile_and_reads_no_clock() {
    let work = || {
        let lock = Lock::new(1);
        for _ in 0..1000 {
            black_box(*queue_up_on_purpose(&lock));
        }
    };
    let (profile, rounds) = while_captured(Measure::Lock, Unit::Waits, Kind::Worker, work);
    assert!(rounds > 10, "{rounds}");
    assert_eq!(
        profile.stacks.samples(),
        0,
        "{}",
        profile.stacks.to_folded()
    );
}

#[test]
fn a_wait_inside_of_the_engine_is_seen_by_its_observer() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let _seat = register(Kind::Flush);
    let mut waits = 0;
    watched(&mut || waits += 1);
    assert_eq!(waits, 1, "while nobody looks it is just done");
    let sampler = Sampler::start(Measure::Lock, 1).expect("a hook needs nothing of the system");
    watched(&mut || {
        waits += 1;
        std::thread::park_timeout(Duration::from_millis(20));
    });
    let mut seen = Vec::new();
    sampler.stop(|_, ns| seen.push(ns));
    assert_eq!(waits, 2);
    assert!(seen.len() == 1 && seen[0] > 1_000_000, "{seen:?}");
}
