//! Profiles of threads with known work. One process has one capture at a time, so these take turns.
//!
//! ```text
//! work      a fixed number of rounds, and a capture that lasts as long: never a fixed time
//! truth     the thread's own count, or the clock read around and inside of each wait
//! ```
//!
//! Invariants
//! 1. The assertions hold on a machine of any speed that gives the threads some processor time. A
//!    profile is compared with its thread's work and measurements in the same interval.
//!
//! Not here: marks and weights (`stride.rs`), slots (`slots.rs`).

use super::*;
use crate::clock;
use std::alloc::System;
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest wait for an event that comes for certain: after it the test has hung.
const PATIENCE: Duration = Duration::from_secs(60);

static ORDER: Mutex<()> = Mutex::new(());

/// One test at a time; one that failed does not make the others fail.
fn turn() -> MutexGuard<'static, ()> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[global_allocator]
static ALLOCATOR: SampledAlloc<System> = SampledAlloc::over(System);

/// Works until told to stop, and says how much CPU time its thread has had.
#[inline(never)]
fn burn_on_purpose(stop: &AtomicBool, cpu_ns: &AtomicU64) -> u64 {
    let mut x = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            x = black_box(x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let own_ns = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
        cpu_ns.store(own_ns, Ordering::SeqCst);
    }
    x
}

#[inline(never)]
fn wait_on_purpose(end: &mpsc::Receiver<()>) -> bool {
    black_box(end.recv().is_ok())
}

/// Runs `work` beside one thread that burns and one that waits, both on the roster. `work` can see
/// how much CPU time the first one has had.
fn beside_both<T>(work: impl FnOnce(&AtomicU64) -> T) -> T {
    let _turn = turn();
    let (stop, cpu_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let (end, ended) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let (ready_too, stop, cpu_ns) = (ready.clone(), &stop, &cpu_ns);
        scope.spawn(move || {
            let _seat = register(ThreadKind::Compact);
            ready.send(()).expect("the test listens");
            burn_on_purpose(stop, cpu_ns);
        });
        scope.spawn(move || {
            let _seat = register(ThreadKind::Wal);
            ready_too.send(()).expect("the test listens");
            wait_on_purpose(&ended);
        });
        is_ready.recv().expect("the first thread starts");
        is_ready.recv().expect("the second thread starts");
        // A failed assertion ends both threads as well, or the test would hang instead of fail.
        let ended = catch_unwind(AssertUnwindSafe(|| work(cpu_ns)));
        stop.store(true, Ordering::Relaxed);
        end.send(()).expect("the second thread listens");
        ended.unwrap_or_else(|panic| resume_unwind(panic))
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

/// Captures again and again until there are five samples of each of these kinds and functions.
/// Their number in a second depends on the machine.
fn captured_until_seen(of: &[(&str, &str)], mut one: impl FnMut() -> Profile) -> Vec<Profile> {
    let mut profiles = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let seen = |profiles: &[Profile], (kind, function): &(&str, &str)| -> u64 {
        let counts = profiles.iter().map(|p| samples_of(p, kind, function));
        counts.sum()
    };
    while !of.iter().all(|place| seen(&profiles, place) >= 5) {
        let all: Vec<_> = profiles.iter().map(|p| p.stacks.to_folded()).collect();
        assert!(Instant::now() < deadline, "not five of {of:?}: {all:?}");
        profiles.push(one());
    }
    profiles
}

#[test]
fn a_burning_thread_is_in_its_cpu_profile_and_a_waiting_one_is_not() {
    const BURNT_NS: u64 = 300_000_000;
    let of = [("compact", "burn_on_purpose")];
    let (profiles, cpu_ns) = beside_both(|cpu_ns| {
        let before = cpu_ns.load(Ordering::SeqCst);
        let profiles = captured_until_seen(&of, || {
            let (begun_ns, deadline) = (cpu_ns.load(Ordering::SeqCst), Instant::now() + PATIENCE);
            let mut left = || match cpu_ns.load(Ordering::SeqCst) - begun_ns {
                _ if Instant::now() > deadline => Duration::ZERO,
                burnt_ns => Duration::from_nanos(BURNT_NS.saturating_sub(burnt_ns)),
            };
            let profile = capture_while(Measure::Cpu, Unit::Samples, &mut left);
            profile.expect("nobody else captures")
        });
        (profiles, cpu_ns.load(Ordering::SeqCst) - before)
    });
    let burnt = profiles
        .iter()
        .map(|p| samples_of(p, "compact", "burn_on_purpose"));
    let burnt = burnt.sum::<u64>() as f64;
    // One more for each capture: the part of a period that was on the clock before it.
    let most = cpu_ns as f64 / 1e9 * f64::from(SAMPLES_PER_SECOND) + profiles.len() as f64 + 1.0;
    assert!(burnt <= most, "{burnt} samples in {cpu_ns} ns of CPU time");
    for profile in &profiles {
        assert_eq!(samples_of(profile, "wal", "wait_on_purpose"), 0);
    }
}

#[test]
fn a_waiting_thread_is_in_the_wall_profile() {
    let both = [("wal", "wait_on_purpose"), ("compact", "burn_on_purpose")];
    beside_both(|_| {
        captured_until_seen(&both, || {
            let profile = capture(Measure::Wall, Unit::Samples, Duration::from_millis(400));
            profile.expect("nobody else captures")
        })
    });
}

#[test]
fn timers_are_there_during_a_capture_and_gone_after_it() {
    beside_both(|_| {
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
    let _turn = turn();
    let first = CaptureTurn::take(Measure::Cpu).expect("nobody else captures");
    let refused = capture(Measure::Cpu, Unit::Samples, Duration::from_millis(10))
        .expect_err("the turn is taken");
    assert!(matches!(refused, NoProfile::Busy));
    assert!(refused.to_string().contains("ask again when it has ended"));
    assert!(
        CaptureTurn::take(Measure::Cpu).is_none(),
        "a capture that was refused does not end the one that runs"
    );
    capture(Measure::Wall, Unit::Samples, Duration::from_millis(10))
        .expect("the other measure is free");
    drop(first);
    assert!(
        CaptureTurn::take(Measure::Cpu).is_some(),
        "a turn that ended can be taken again"
    );
}

#[test]
fn a_thread_that_left_is_not_signalled() {
    let _turn = turn();
    std::thread::spawn(|| drop(register(ThreadKind::Flush)))
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

/// Runs `work` on a thread of kind `kind` while a capture of `measure` is taken, which begins
/// before it and ends after it.
fn while_captured(
    measure: Measure,
    unit: Unit,
    kind: ThreadKind,
    work: impl FnOnce() + Send,
) -> Profile {
    let _turn = turn();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let _seat = register(kind);
            while !sampler::is_on(measure) {
                std::thread::yield_now();
            }
            work();
        });
        let mut left = || {
            if worker.is_finished() {
                Duration::ZERO
            } else {
                LOOK_HOOKS
            }
        };
        let profile = capture_while(measure, unit, &mut left);
        worker.join().expect("the work does not panic");
        profile.expect("nobody else captures")
    })
}

/// Allocates so many times so many bytes. Returns the profile's estimate divided by the real
/// amount, in `unit`. Samples that found no room are counted, and all are of this one size: they
/// are added to the estimate.
fn estimated_by_real(unit: Unit, rounds: u64, bytes: u64) -> (f64, Profile) {
    let work = || {
        for _ in 0..rounds {
            drop(allocate_on_purpose(bytes as usize));
        }
    };
    let profile = while_captured(Measure::Alloc, unit, ThreadKind::Flush, work);
    let seen = samples_of(&profile, "flush", "allocate_on_purpose") as f64;
    let lost = profile.lost as f64 * estimate(Measure::Alloc, unit, bytes);
    let each = if unit == Unit::Bytes { bytes } else { 1 };
    ((seen + lost) / (rounds * each) as f64, profile)
}

#[test]
fn allocated_bytes_are_at_the_function_that_asked_for_them_and_as_many_as_it_asked_for() {
    // One in 5.7 is a sample: 5200 of them, so the estimate has a deviation of 1.3 %.
    let (share, profile) = estimated_by_real(Unit::Bytes, 30_000, 100_000);
    let folded = profile.stacks.to_folded();
    assert!(
        (0.9..1.1).contains(&share),
        "{share}, {} lost: {folded}",
        profile.lost
    );
    assert!(
        !folded.contains("SampledAlloc"),
        "the hook itself is in no stack: {folded}"
    );
}

#[test]
fn allocated_objects_are_counted_when_asked_for() {
    // One in 512 is a sample: 1200 of them, so the estimate has a deviation of 2.9 %.
    let (share, profile) = estimated_by_real(Unit::Objects, 600_000, 1 << 10);
    assert!(
        (0.8..1.2).contains(&share),
        "{share}, {} lost",
        profile.lost
    );
}

#[test]
fn an_allocation_leaves_no_trace_while_nobody_looks() {
    let _turn = turn();
    let _seat = register(ThreadKind::Flush);
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
    let _turn = turn();
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
    let _turn = turn();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let _seat = register(ThreadKind::Worker);
                let mut kept: Vec<Vec<u8>> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    kept.push(allocate_on_purpose(4 << 10));
                    if kept.len() > 1000 {
                        kept.clear();
                    }
                }
            });
        }
        for _ in 0..2 {
            for measure in Measure::ALL {
                let profile = capture(measure, measure.units()[0], Duration::from_millis(5));
                profile.expect("each has its turn");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[inline(never)]
fn queue_up_on_purpose(lock: &Lock<u64>) -> MutexGuard<'_, u64> {
    let guard = lock.hold();
    black_box(&guard);
    guard
}

/// Spins for so long by the clock, and says how long that was.
fn spin_for(ns: u64) -> u64 {
    let began_ns = clock::monotonic_ns();
    loop {
        let took_ns = clock::monotonic_ns() - began_ns;
        if took_ns >= ns {
            return took_ns;
        }
        std::hint::spin_loop();
    }
}

/// Where the kernel tells how the calling thread is.
fn own_state() -> std::path::PathBuf {
    let own = std::fs::read_link("/proc/thread-self").expect("Linux has threads there");
    std::path::Path::new("/proc").join(own).join("stat")
}

fn is_asleep(state: &std::path::Path) -> bool {
    let text = std::fs::read_to_string(state).expect("the thread lives");
    // Behind the name, which is in brackets and may have any letters.
    let (_, behind) = text.rsplit_once(") ").expect("a name in brackets");
    behind.starts_with('S')
}

/// Returns when the thread whose state this is sleeps at the lock that it took a step towards.
/// Requires: between its sign and the lock there is nothing else to sleep at.
fn until_asleep(is_coming: &AtomicBool, state: &std::path::Path) {
    let deadline = Instant::now() + PATIENCE;
    while !is_coming.load(Ordering::SeqCst) || !is_asleep(state) {
        assert!(Instant::now() < deadline, "the waiter does not come");
        std::thread::yield_now();
    }
}

/// A wait of 20 means between marks: of a thousand million, two are not seen.
const HELD_NS: u64 = 20 * lock::NS_PER_SAMPLE;

/// Has a worker wait `rounds` times for a lock that is handed over once it sleeps there. With the
/// profile comes the range that it may show, in nanoseconds. The least is how long the lock was
/// held while the worker slept, by the holder's clock. The most is how long taking it took, by the
/// worker's.
fn while_contended(unit: Unit, rounds: u64) -> (Profile, RangeInclusive<u64>) {
    let _turn = turn();
    let lock = Lock::new(0);
    let is_coming = AtomicBool::new(false);
    let (go, goes) = mpsc::channel();
    let (had, has_had) = mpsc::channel();
    std::thread::scope(|scope| {
        let (lock, is_coming) = (&lock, &is_coming);
        let waiter = scope.spawn(move || {
            let _seat = register(ThreadKind::Worker);
            had.send(Some(own_state())).expect("the holder listens");
            let mut waited_ns = 0;
            for () in goes {
                let began_ns = clock::monotonic_ns();
                is_coming.store(true, Ordering::SeqCst);
                let held = queue_up_on_purpose(lock);
                waited_ns += clock::monotonic_ns() - began_ns;
                drop(held);
                had.send(None).expect("the holder listens");
            }
            waited_ns
        });
        let holder = scope.spawn(move || {
            let next = || has_had.recv_timeout(PATIENCE).expect("the waiter goes on");
            let state = next().expect("first it says who it is");
            while !sampler::is_on(Measure::Lock) {
                std::thread::yield_now();
            }
            let mut held_ns = 0;
            for _ in 0..rounds {
                let held = lock.hold();
                is_coming.store(false, Ordering::SeqCst);
                go.send(()).expect("the waiter listens");
                until_asleep(is_coming, &state);
                held_ns += spin_for(HELD_NS);
                drop(held);
                next();
            }
            held_ns
        });
        let mut left = || {
            if holder.is_finished() {
                Duration::ZERO
            } else {
                LOOK_HOOKS
            }
        };
        let profile = capture_while(Measure::Lock, unit, &mut left);
        let held_ns = holder.join().expect("the waiter comes each time");
        let waited_ns = waiter.join().expect("the waiter does not panic");
        (profile.expect("nobody else captures"), held_ns..=waited_ns)
    })
}

#[test]
fn time_waited_for_a_lock_is_at_the_function_that_waited() {
    let (profile, waited_ns) = while_contended(Unit::Us, 25);
    let folded = profile.stacks.to_folded();
    let told_us = samples_of(&profile, "worker", "queue_up_on_purpose") as f64;
    let least_us = *waited_ns.start() as f64 / 1e3;
    let most_us = *waited_ns.end() as f64 / 1e3;
    // One more each way: microseconds are rounded.
    assert!(
        (least_us - 1.0..=most_us + 1.0).contains(&told_us),
        "{told_us} µs of {least_us} to {most_us}: {folded}"
    );
    assert_the_waiter_is_innermost(&folded);
}

fn assert_the_waiter_is_innermost(folded: &str) {
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

/// The waits of threads of kind worker in a capture around `work`, and the range for one that
/// waited all the time. The least is the time that `work` tells. The most is the time of the
/// capture with its begin and its end.
fn waits_captured_around(work: impl FnOnce() -> u64) -> (Vec<u64>, RangeInclusive<u64>) {
    let began_ns = clock::monotonic_ns();
    lock::forget_waits();
    let sampler = Sampler::start(Measure::Lock, 1).expect("a hook needs nothing of the system");
    let inside_ns = work();
    let mut seen = Vec::new();
    let mut take = |frames: &[usize], ns| {
        if frames[0] == ThreadKind::Worker as usize {
            seen.push(ns);
        }
    };
    lock::take_waits(&mut take);
    sampler.stop(take);
    (seen, inside_ns..=clock::monotonic_ns() - began_ns)
}

#[test]
fn each_capture_counts_the_part_of_a_wait_that_lies_within_it() {
    let _turn = turn();
    let lock = Lock::new(0);
    let is_coming = AtomicBool::new(false);
    let (says, said) = mpsc::channel();
    std::thread::scope(|scope| {
        let (lock, is_coming) = (&lock, &is_coming);
        // Inside: a failed assertion lets the waiter go.
        let held = lock.hold();
        let waiter = scope.spawn(move || {
            let _seat = register(ThreadKind::Worker);
            says.send(own_state()).expect("the test listens");
            is_coming.store(true, Ordering::SeqCst);
            drop(queue_up_on_purpose(lock));
        });
        let state = said.recv_timeout(PATIENCE).expect("the waiter says it");
        until_asleep(is_coming, &state);
        // Long enough to be seen if it were counted.
        spin_for(4 * HELD_NS);
        for capture in ["the first", "the second"] {
            let (seen, range_ns) = waits_captured_around(|| spin_for(HELD_NS));
            assert!(
                seen.len() == 1 && range_ns.contains(&seen[0]),
                "{capture}: {seen:?} of {range_ns:?}, though the wait began before and goes on"
            );
            spin_for(4 * HELD_NS);
        }
        let (seen, range_ns) = waits_captured_around(|| {
            let held_ns = spin_for(HELD_NS);
            drop(held);
            waiter.join().expect("the waiter does not panic");
            held_ns
        });
        assert!(
            seen.len() == 1 && range_ns.contains(&seen[0]),
            "the last: {seen:?} of {range_ns:?}, though the wait began before"
        );
    });
    let (seen, _) = waits_captured_around(|| spin_for(HELD_NS));
    assert!(seen.is_empty(), "nobody waits: {seen:?}");
}

#[test]
fn a_lock_that_is_not_let_go_while_a_capture_runs_is_in_it() {
    let _turn = turn();
    let lock = Lock::new(0);
    let is_coming = AtomicBool::new(false);
    let (says, said) = mpsc::channel();
    std::thread::scope(|scope| {
        let (lock, is_coming) = (&lock, &is_coming);
        let held = lock.hold();
        let waiter = scope.spawn(move || {
            let _seat = register(ThreadKind::Worker);
            while !sampler::is_on(Measure::Lock) {
                std::thread::yield_now();
            }
            says.send(own_state()).expect("the capture listens");
            let began_ns = clock::monotonic_ns();
            is_coming.store(true, Ordering::SeqCst);
            drop(queue_up_on_purpose(lock));
            clock::monotonic_ns() - began_ns
        });
        let mut held_ns = 0;
        let mut left = || {
            let state = said.recv_timeout(PATIENCE).expect("the waiter says it");
            until_asleep(is_coming, &state);
            held_ns = spin_for(HELD_NS);
            Duration::ZERO
        };
        let profile = capture_while(Measure::Lock, Unit::Us, &mut left);
        drop(held);
        let waited_ns = waiter.join().expect("the waiter does not panic");
        let profile = profile.expect("nobody else captures");
        let folded = profile.stacks.to_folded();
        let told_us = samples_of(&profile, "worker", "queue_up_on_purpose");
        let range_us = held_ns / 1_000..=waited_ns / 1_000 + 1;
        assert!(
            range_us.contains(&told_us),
            "{told_us} µs of {range_us:?}: {folded}"
        );
        assert_the_waiter_is_innermost(&folded);
    });
}

#[test]
fn waits_for_a_lock_are_counted_when_asked_for() {
    let (profile, _) = while_contended(Unit::Waits, 10);
    assert_eq!(samples_of(&profile, "worker", "queue_up_on_purpose"), 10);
}

#[test]
fn a_free_lock_is_in_no_profile_and_reads_no_clock() {
    let work = || {
        let lock = Lock::new(1);
        for _ in 0..100_000 {
            black_box(*queue_up_on_purpose(&lock));
        }
    };
    let profile = while_captured(Measure::Lock, Unit::Waits, ThreadKind::Worker, work);
    assert_eq!(
        profile.stacks.samples(),
        0,
        "{}",
        profile.stacks.to_folded()
    );
}

#[test]
fn a_wait_inside_of_the_engine_is_seen_by_its_observer() {
    let _turn = turn();
    let _seat = register(ThreadKind::Flush);
    let mut waits = 0;
    watched(&mut || waits += 1);
    assert_eq!(waits, 1, "while nobody looks it is just done");
    lock::forget_waits();
    let sampler = Sampler::start(Measure::Lock, 1).expect("a hook needs nothing of the system");
    let mut inside_ns = 0;
    let began_ns = clock::monotonic_ns();
    watched(&mut || {
        waits += 1;
        inside_ns = spin_for(HELD_NS);
    });
    let outside_ns = clock::monotonic_ns() - began_ns;
    let mut seen = Vec::new();
    sampler.stop(|_, ns| seen.push(ns));
    assert_eq!(waits, 2);
    assert!(
        seen.len() == 1 && (inside_ns..=outside_ns).contains(&seen[0]),
        "{seen:?} in {inside_ns} to {outside_ns}"
    );
}
