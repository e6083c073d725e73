//! Targets that are down, silent, garbled or slow, and runs that are cut.

mod support;

use dendra_base::Workload;
use dendra_lab::driver::StopFlag;
use dendra_lab::experiment::{self, News, SetupError};
use dendra_lab::run::{PhaseKind, Run};
use dendra_lab::summary::histogram;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use support::{FakeServer, Reply, run, setup};

fn error(setup: &experiment::Setup) -> SetupError {
    experiment::run(setup, &StopFlag::default(), &mut |_| {}).expect_err("nothing can be measured")
}

#[test]
fn a_target_that_is_down_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let error = error(&setup(url.clone(), 10.0, 0.1));
    assert!(matches!(error, SetupError::Down(_)), "{error:?}");
    assert!(error.to_string().contains(&url), "{error}");
}

#[test]
fn a_plan_of_nothing_is_refused() {
    for (rate, duration_s) in [(0.0, 1.0), (10.0, 0.0)] {
        let error = error(&setup("http://127.0.0.1:1".to_owned(), rate, duration_s));
        assert!(matches!(error, SetupError::Unusable(_)), "{error:?}");
    }
}

#[test]
fn garbage_breaks_requests_and_the_reason_is_kept() {
    let server = FakeServer::start(|_| Reply::Raw(b"220 mail ready\r\n"));
    let mut setup = setup(server.url(), 200.0, 0.3);
    setup.timeout = Duration::from_secs(5);
    let run = run(&setup);
    let phase = run.headline().expect("it was measured");
    assert!(phase.counts.is_whole() && phase.counts.answered == 0);
    assert!(phase.counts.broken > 0, "{:?}", phase.counts);
    let note = run.notes.iter().find(|note| note.contains("not HTTP"));
    assert!(note.is_some(), "{:?}", run.notes);
}

#[test]
fn what_the_first_refusal_said_is_kept() {
    const SAYS: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 22\r\n\r\nunreachable: b is gone\n";
    const BINARY: &[u8] = b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\n\x00\xff\n";
    const NOTHING: &[u8] = b"HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n";
    for (reply, words) in [
        (
            &SAYS[..SAYS.len() - 1],
            "was 503, \"unreachable: b is gone\"",
        ),
        (BINARY, "was 500"),
        (NOTHING, "was 507"),
    ] {
        let server = FakeServer::start(move |_| Reply::Raw(reply));
        let run = run(&setup(server.url(), 100.0, 0.2));
        let of_refusals = run.notes.iter().filter(|note| note.contains("refused was"));
        let notes: Vec<_> = of_refusals.collect();
        assert_eq!(notes.len(), 1, "{:?}", run.notes);
        assert!(notes[0].ends_with(words), "{notes:?}");
    }
}

#[test]
fn silence_is_counted_as_timeouts_with_the_time_it_took() {
    let server = FakeServer::start(|_| Reply::Silence);
    let mut setup = setup(server.url(), 100.0, 0.3);
    setup.timeout = Duration::from_millis(200);
    setup.connections = 4;
    let run = run(&setup);
    let phase = run.headline().expect("it was measured");
    assert!(phase.counts.is_whole(), "{:?}", phase.counts);
    assert_eq!(phase.counts.timeouts + phase.counts.unsent, 30);
    assert!(phase.counts.timeouts > 0);
    assert!(phase.ops[0].response.min_us >= 199_000.0);
}

#[test]
fn a_request_with_no_time_left_for_its_answer_is_not_sent() {
    // It does 20 a second, and is asked for 200.
    let server = FakeServer::start(|_| Reply::After(Duration::from_millis(50), 200));
    let mut setup = setup(server.url(), 200.0, 2.0);
    setup.timeout = Duration::from_millis(200);
    setup.connections = 1;
    let run = run(&setup);
    let counts = &run.headline().expect("it was measured").counts;
    assert!(counts.is_whole(), "{counts:?}");
    // The first is sent before it is known how long an answer takes; on a busy machine an answer
    // takes longer than those before it. Without the rule nearly all that are sent are too late.
    assert!(counts.timeouts * 4 < counts.sent, "{counts:?}");
    assert!(counts.ok >= 30 && counts.unsent > 300, "{counts:?}");
}

#[test]
fn a_run_that_is_cut_keeps_what_it_saw() {
    let server = FakeServer::start(|_| Reply::After(Duration::ZERO, 200));
    let stop = StopFlag::default();
    let mut watch = |news: News<'_>| {
        if let News::Tick { answered, .. } = news
            && answered > 100
        {
            stop.ask();
        }
    };
    let setup = setup(server.url(), 1000.0, 60.0);
    let run = experiment::run(&setup, &stop, &mut watch).expect("it began");
    assert!(run.is_cut);
    let phase = run.headline().expect("it was measured");
    assert!(
        phase.counts.is_whole() && phase.counts.ok > 100,
        "{:?}",
        phase.counts
    );
    assert!(phase.length_s < 60.0, "{}", phase.length_s);
}

#[test]
fn a_preload_writes_every_record_although_some_are_refused_at_first() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let server = FakeServer::start(move |n| {
        count.store(n + 1, Relaxed);
        let status = if n < 300 && n % 3 == 0 { 503 } else { 201 };
        Reply::After(Duration::ZERO, status)
    });
    let mut setup = setup(server.url(), 100.0, 0.1);
    setup.preloads = true;
    setup.workload = Workload::named("get", 400, 1).expect("it is a name");
    let run = run(&setup);
    let counts: Vec<&dendra_lab::run::Counts> = run
        .phases
        .iter()
        .filter(|phase| phase.kind == PhaseKind::Preload)
        .map(|phase| &phase.counts)
        .collect();
    assert_eq!(counts.iter().map(|c| c.ok).sum::<u64>(), 400);
    assert_eq!(counts.iter().map(|c| c.refused).sum::<u64>(), 100);
    assert_eq!(seen.load(Relaxed), 400 + 100 + 10);
}

#[test]
fn a_preload_of_a_store_that_refuses_all_ends_with_its_budget() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    // It relents where no budget is in the way.
    let server = FakeServer::start(move |n| {
        count.store(n + 1, Relaxed);
        let status = if n < 2_000 { 503 } else { 201 };
        Reply::After(Duration::ZERO, status)
    });
    let mut setup = setup(server.url(), 100.0, 0.1);
    setup.preloads = true;
    setup.workload = Workload::named("get", 100, 1).expect("it is a name");
    let run = run(&setup);
    // Each record once, half of them and 64 again, which is all of them; then the measurement.
    assert_eq!(seen.load(Relaxed), 100 + 100 + 14 + 10);
    let missing = "86 records could not be written";
    let is_said = |note: &String| note.starts_with(missing);
    assert!(run.notes.iter().any(is_said), "{:?}", run.notes);
}

#[test]
fn a_read_modify_write_is_one_request_in_two_halves() {
    let server = FakeServer::start(|_| Reply::After(Duration::from_millis(2), 200));
    let mut setup = setup(server.url(), 100.0, 0.3);
    setup.workload = Workload::named("compare-and-set", 10, 1).expect("it is a name");
    let run = run(&setup);
    let phase = run.headline().expect("it was measured");
    assert_eq!((phase.counts.planned, phase.counts.ok), (30, 30));
    let heads = server.heads.lock().expect("nobody panics with it");
    let puts = heads.iter().filter(|head| head.starts_with("PUT ")).count();
    assert_eq!((heads.len(), puts), (60, 30));
    assert!(phase.ops[0].service.min_us >= 4000.0);
}

#[test]
fn a_compare_and_set_names_what_its_read_found_in_the_words_of_the_server() {
    for (found, condition) in [
        (
            &b"HTTP/1.1 200 OK\r\nETag: \"its own\"\r\nContent-Length: 2\r\n\r\nok"[..],
            "\r\nIf-Match: \"its own\"\r\n",
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "\r\nIf-None-Match: *\r\n",
        ),
    ] {
        let server = FakeServer::start(move |_| Reply::Raw(found));
        let mut setup = setup(server.url(), 100.0, 0.1);
        setup.workload = Workload::named("compare-and-set", 10, 1).expect("it is a name");
        run(&setup);
        let heads = server.heads.lock().expect("nobody panics with it");
        let mut puts = heads.iter().filter(|head| head.starts_with("PUT "));
        assert_eq!(puts.clone().count(), 10);
        assert!(puts.all(|head| head.contains(condition)), "{heads:?}");
    }
}

#[test]
fn the_search_finds_the_rate_that_connections_and_delay_allow() {
    // Two connections at 10 ms: 200 a second, and not more, on any machine.
    let server = FakeServer::start(|_| Reply::After(Duration::from_millis(10), 200));
    let mut setup = setup(server.url(), 60.0, 0.25);
    setup.connections = 2;
    setup.find_max = Some("p99<60ms,errors<1%".parse().expect("it is an objective"));
    // One that is busy elsewhere makes the server slow, or the generator late, which it says: it
    // gets two attempts to show the lower end.
    for _ in 0..2 {
        let run = run(&setup);
        let search = run.search.as_ref().expect("it was searched");
        assert!(search.knee_low < 260.0, "{}", search.sentence);
        let void = search.steps.iter().filter(|step| step.is_void);
        assert!(void.clone().all(|step| !step.is_met));
        match search.generator_limit {
            Some(_) => assert!(void.count() > 0 && !run.verdict.is_valid()),
            None => assert!(search.knee_high.is_some(), "{}", search.sentence),
        }
        if search.knee_low >= 60.0 && search.knee_high.is_some_and(|high| high <= 420.0) {
            return;
        }
    }
    println!("this machine is too busy to show the lower end");
}

#[test]
fn a_generator_that_cannot_keep_up_ends_the_search_and_blames_nobody_else() {
    let server = FakeServer::start(|_| Reply::After(Duration::ZERO, 200));
    let mut setup = setup(server.url(), 10_000_000.0, 0.1);
    setup.connections = 4;
    setup.timeout = Duration::from_millis(100);
    setup.find_max = Some("p99<1s".parse().expect("it is an objective"));
    setup.overload = vec![2.0];
    // On a machine that is busy elsewhere the generator waits for the server, which then is the
    // bottleneck. It gets some attempts to find itself too slow. No run holds that rate in any of
    // them.
    for _ in 0..5 {
        let run = run(&setup);
        let search = run.search.as_ref().expect("it was searched");
        assert_eq!(search.knee_low, 0.0, "{}", search.sentence);
        assert!(run.overload.is_none(), "there is no rate to start from");
        if !search.steps.iter().all(|step| step.is_void) {
            continue;
        }
        assert_eq!(search.knee_high, None);
        assert_eq!(search.generator_limit, Some(10_000_000.0));
        assert!(search.steps.iter().all(|step| step.rate == 1e7));
        let sentence = run.verdict.to_string();
        assert!(
            sentence.starts_with("invalid: the generator was the bottleneck"),
            "{sentence}"
        );
        return;
    }
    println!("this machine is too busy to show it");
}

#[test]
fn an_overload_is_shown_with_what_follows_it() {
    let server = FakeServer::start(|_| Reply::After(Duration::from_millis(5), 200));
    let mut setup = setup(server.url(), 200.0, 1.0);
    setup.connections = 2;
    setup.timeout = Duration::from_millis(300);
    setup.overload = vec![5.0];
    let run = run(&setup);
    let overload = run.overload.as_ref().expect("it was tried");
    let step = &overload.steps[0];
    // Two connections at 5 ms are 400 a second; the other 600 are lost, not hidden.
    assert!(step.lost_share > 0.2, "{step:?}");
    assert!(step.goodput < 600.0, "{step:?}");
    let phase = &run.phases[step.phase];
    assert!(phase.counts.unsent > 100, "{:?}", phase.counts);
    let rows = phase.ops[0].seconds.iter();
    let unsent: u64 = rows.map(|row| row.unsent).sum();
    assert_eq!(unsent, phase.counts.unsent, "the rows tell them apart, too");
    // Before and after it 0.9 of the rate, and after it for as long as a request lives.
    let calm = &run.phases[overload.base_phase];
    assert_eq!((overload.calm_rate, calm.rate), (180.0, 180.0));
    let behind = &run.phases[step.recovery_phase];
    assert_eq!((behind.rate, behind.length_s), (180.0, 2.0));
    assert!(overload.peak_goodput >= step.goodput, "{overload:?}");
    // A free connection goes to the request that is due last: half of those that were done waited
    // for no other one.
    let op = &phase.ops[0];
    let mut done = histogram(&op.response).expect("some were done");
    let given_up = histogram(&op.given_up).expect("some were given up");
    done.subtract(&given_up).expect("they are a part of all");
    let served = histogram(&op.service).expect("those that were done");
    let median_ms = |of: &hdrhistogram::Histogram<u64>| of.value_at_percentile(50.0) / 1_000_000;
    let waited_ms = median_ms(&done) - median_ms(&served);
    assert!(waited_ms < 100, "{waited_ms} ms");
    assert!(step.service_p99_us <= step.accepted_p99_us, "{step:?}");
}

#[test]
fn a_client_that_gave_up_closes_and_comes_back_and_both_are_seen() {
    let server = FakeServer::start(|_| Reply::Silence);
    let mut setup = setup(server.url(), 20.0, 1.0);
    setup.timeout = Duration::from_millis(100);
    setup.connections = 1;
    let run = run(&setup);
    let phase = run.headline().expect("it was measured");
    assert!(phase.counts.timeouts >= 3, "{:?}", phase.counts);
    let generator = &phase.generator;
    // The last one may have no request to come back for.
    let given_up = phase.counts.timeouts;
    assert!(
        (given_up - 1..=given_up).contains(&generator.reconnects),
        "{generator:?}"
    );
    assert_eq!(generator.connects, generator.reconnects + 1);
    let rows = generator.seconds.iter().map(|row| row.reconnects);
    assert_eq!(rows.sum::<u64>(), generator.reconnects);
    server.wait_for_ends(given_up);
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let server = FakeServer::start(|_| Reply::After(Duration::ZERO, 200));
    let run = run(&setup(server.url(), 200.0, 0.2));
    let text = serde_json::to_vec(&run).expect("a run is plain");
    assert_eq!(Run::parse(&text).expect("our own text reads"), run);
}
