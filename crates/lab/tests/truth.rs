//! The proof: what a server with known behaviour looks like through the lab.

mod support;

use dendra_base::Workload;
use dendra_lab::run::{Mode, Verdict};
use dendra_lab::summary::all_operations;
use std::time::Duration;
use support::{Canary, FakeServer, Reply, run, setup};

const MS: f64 = 1000.0;

#[test]
fn a_server_frozen_for_one_second_shows_it_in_the_tail() {
    let canary = Canary::start();
    let at_once = |_| Reply::After(Duration::ZERO, 200);
    let freeze_at = Duration::from_secs(1);
    let server = FakeServer::start_frozen(at_once, freeze_at, Duration::from_secs(1));
    let run = run(&setup(server.url(), 1000.0, 3.0));
    let allowance_ms = canary.allowance_ms();
    let phase = run.headline().expect("it was measured");
    assert_eq!((phase.counts.planned, phase.counts.ok), (3000, 3000));
    let op = &phase.ops[0];
    // A third of the requests were due while it stood still, evenly over the second.
    for (percentile, from_ms, to_ms) in [("p99.9", 900.0, 1300.0), ("p90", 600.0, 1000.0)] {
        let ms = op.response.percentiles_us[percentile] / MS;
        assert!(ms >= from_ms, "{percentile}: {ms} ms");
        assert!(
            ms < to_ms + allowance_ms,
            "{percentile}: {ms} ms, allowance {allowance_ms} ms"
        );
    }
    // From the send, only the 64 that were in flight saw it: this is what a closed loop would report. Half a
    // second from the plan saw 500.
    let slow = |latency| {
        let histogram = dendra_lab::summary::histogram(latency).expect("there are times");
        histogram.len() - histogram.count_between(0, 500_000_000)
    };
    let (response, service) = (slow(&op.response), slow(&op.service));
    assert!(response >= 450, "{response} of them");
    assert!(2 * service < response, "{service} and {response}");
}

#[test]
fn a_known_distribution_is_measured_within_one_per_cent() {
    // In every thousand: 500 × 200 ms, 400 × 300 ms, 90 × 450 ms, 8 × 700 ms, 2 × 1 s.
    let delay_ms = |n: u64| match n % 1000 {
        0..500 => 200,
        500..900 => 300,
        900..990 => 450,
        990..998 => 700,
        _ => 1000,
    };
    let server = FakeServer::start(move |n| Reply::After(Duration::from_millis(delay_ms(n)), 200));
    let mut setup = setup(server.url(), 400.0, 2.5);
    setup.connections = 256;
    // On a machine that wakes threads late by milliseconds one per cent cannot be seen: it gets five
    // attempts, and what is left over has to be that lateness.
    let mut too_long = Vec::new();
    for _ in 0..5 {
        let canary = Canary::start();
        let run = run(&setup);
        let allowance_ms = canary.allowance_ms();
        let phase = run.headline().expect("it was measured");
        assert_eq!(phase.counts.ok, 1000);
        let seen = all_operations(phase, |op| &op.response).expect("there are times");
        too_long.clear();
        for (percentile, truth_ms) in [
            (10.0, 200.0),
            (49.0, 200.0),
            (51.0, 300.0),
            (89.0, 300.0),
            (91.0, 450.0),
            (98.5, 450.0),
            (99.5, 700.0),
            (99.9, 1000.0),
        ] {
            let seen_ms = seen.value_at_percentile(percentile) as f64 / 1e6;
            let words = format!("p{percentile}: {seen_ms:.3} ms for {truth_ms} ms");
            // No answer comes before its time, on any machine.
            assert!(seen_ms >= 0.999 * truth_ms, "{words}");
            assert!(
                seen_ms <= 1.01 * truth_ms + allowance_ms,
                "{words}, allowance {allowance_ms} ms"
            );
            if seen_ms > 1.01 * truth_ms {
                too_long.push(words);
            }
        }
        if too_long.is_empty() {
            return;
        }
    }
    println!("this machine is too busy to show one per cent: {too_long:?}");
}

#[test]
fn a_generator_that_cannot_keep_up_voids_its_run() {
    let server = FakeServer::start(|_| Reply::After(Duration::ZERO, 200));
    let mut setup = setup(server.url(), 5_000_000.0, 0.5);
    setup.connections = 4;
    setup.timeout = Duration::from_millis(300);
    let run = run(&setup);
    let Verdict::Invalid { reason } = &run.verdict else {
        panic!(
            "five million a second were not sent, and the verdict is {}",
            run.verdict
        );
    };
    assert!(
        reason.starts_with("the generator was the bottleneck"),
        "{reason}"
    );
    let phase = run.headline().expect("it was measured");
    assert!(phase.counts.is_whole(), "{:?}", phase.counts);
    assert_eq!(phase.counts.planned, 2_500_000);
}

#[test]
fn the_same_seed_sends_the_same_requests_whatever_the_threads() {
    let lines = |threads: u32, seed: u64| {
        let server = FakeServer::start(|_| Reply::After(Duration::ZERO, 200));
        let mut setup = setup(server.url(), 2000.0, 0.25);
        setup.threads = threads;
        setup.workload = Workload::named("ycsb-a", 1000, seed).expect("it is a name");
        let run = run(&setup);
        let phase = run.headline().expect("it was measured");
        assert_eq!(phase.counts.sent, 500, "{:?}", phase.counts);
        let mut lines = server.lines.lock().expect("nobody panics with it").clone();
        lines.sort_unstable();
        lines
    };
    let first = lines(1, 7);
    assert_eq!(first, lines(1, 7));
    assert_eq!(first, lines(3, 7));
    assert_ne!(first, lines(1, 8));
}

#[test]
fn refusals_and_failures_stand_apart_and_nothing_is_left_out() {
    let server = FakeServer::start(|n| match n % 10 {
        0 => Reply::After(Duration::ZERO, 503),
        1 => Reply::After(Duration::ZERO, 500),
        2 => Reply::After(Duration::ZERO, 404),
        _ => Reply::After(Duration::from_millis(20), 200),
    });
    let run = run(&setup(server.url(), 500.0, 1.0));
    let phase = run.headline().expect("it was measured");
    let counts = &phase.counts;
    assert!(counts.is_whole(), "{counts:?}");
    assert_eq!((counts.ok, counts.misses), (400, 50));
    assert_eq!((counts.refused, counts.failed), (50, 50));
    assert_eq!(phase.ops[0].refused.count, 50);
    // The quick refusals do not make the median look better.
    assert!(phase.ops[0].response.percentiles_us["p50"] >= 20.0 * MS);
    let planned: u64 = phase.ops[0]
        .seconds
        .iter()
        .map(|second| second.planned)
        .sum();
    assert_eq!(planned, counts.planned);
}

#[test]
fn a_closed_loop_says_that_it_is_one() {
    let server = FakeServer::start(|_| Reply::After(Duration::from_millis(5), 200));
    let mut setup = setup(server.url(), 1.0, 0.5);
    setup.mode = Mode::Closed;
    setup.connections = 8;
    let run = run(&setup);
    let phase = run.headline().expect("it was measured");
    assert!(phase.counts.is_whole(), "{:?}", phase.counts);
    // Eight clients, five milliseconds: at most 1600 a second, on any machine.
    assert!((1..=808).contains(&phase.counts.ok), "{}", phase.counts.ok);
    assert!(dendra_lab::summary::summary(&run).contains("CLOSED LOOP"));
}
