//! Profiles of threads whose work is known. One process has one capture at a time, so these take turns.

use super::*;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::mpsc;

static ORDER: Mutex<()> = Mutex::new(());

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
    let profile = beside_both(|| capture(Clock::Cpu, Duration::from_millis(600)));
    let profile = profile.expect("nobody else captures");
    let burnt = samples_of(&profile, "compact", "burn_on_purpose");
    assert!(burnt >= 5, "{}", profile.stacks.to_folded());
    assert_eq!(samples_of(&profile, "wal", "wait_on_purpose"), 0);
}

#[test]
fn a_waiting_thread_is_in_the_wall_profile() {
    let profile = beside_both(|| capture(Clock::Wall, Duration::from_millis(400)));
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
            Sampler::start(Clock::Cpu, SAMPLES_PER_SECOND).expect("the system has timers");
        let during = sampler::timers_of_this_process().expect("it was there a moment ago");
        sampler.stop(|_| {});
        let after = sampler::timers_of_this_process().expect("it was there a moment ago");
        assert_eq!(before, 0, "off means no timers");
        assert!(during >= 2, "one for each thread on the roster");
        assert_eq!(after, 0, "off again means no timers");
    });
}

#[test]
fn a_second_capture_at_once_is_refused_with_a_sentence() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    let first = Turn::take(Clock::Cpu).expect("nobody else captures");
    let refused = capture(Clock::Cpu, Duration::from_millis(10)).expect_err("the turn is taken");
    assert!(matches!(refused, Refused::Busy));
    assert!(refused.to_string().contains("ask again when it has ended"));
    capture(Clock::Wall, Duration::from_millis(10)).expect("the other clock is free");
    drop(first);
    assert!(
        Turn::take(Clock::Cpu).is_some(),
        "a turn that ended can be taken again"
    );
}

#[test]
fn a_thread_that_left_is_not_signalled() {
    let _turn = ORDER.lock().expect("no test of these panics inside");
    std::thread::spawn(|| drop(register(Kind::Flush)))
        .join()
        .expect("it only registers");
    let profile = capture(Clock::Wall, Duration::from_millis(60)).expect("nobody else captures");
    assert_eq!(samples_of(&profile, "flush", ""), 0);
}
