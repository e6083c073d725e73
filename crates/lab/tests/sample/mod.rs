//! A run that was never made: everything that a page can show, drawn from a seed.
//!
//! Not here: real runs (`dendra bench`).

#![allow(
    dead_code,
    reason = "each of the programs that include this file uses a part of it"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dendra_base::Prng;
use dendra_lab::run::*;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::collections::BTreeMap;

/// The differences of one made-up run from another.
#[derive(Clone, Copy)]
pub(crate) struct Taste {
    pub seed: u64,
    /// Median of the response time.
    pub median_us: f64,
    /// Share of refused requests.
    pub refused: f64,
    /// A second in which the server stood still, if any.
    pub frozen: Option<u64>,
}

impl Default for Taste {
    fn default() -> Taste {
        Taste {
            seed: 7,
            median_us: 420.0,
            refused: 0.004,
            frozen: Some(31),
        }
    }
}

/// The distribution of `times_us` as a run holds it.
pub(crate) fn latency(times_us: &[f64], heat: Vec<Vec<u64>>) -> Latency {
    if times_us.is_empty() {
        return Latency::default();
    }
    let mut histogram =
        Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3).expect("three digits fit");
    for us in times_us {
        histogram
            .record((us * 1e3).max(1.0) as u64)
            .expect("it is below the bound");
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&histogram, &mut bytes)
        .expect("memory takes it");
    let at = |q: f64| histogram.value_at_quantile(q) as f64 / 1e3;
    let names = [
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
    ];
    Latency {
        count: histogram.len(),
        min_us: at(0.0),
        mean_us: histogram.mean() / 1e3,
        stdev_us: histogram.stdev() / 1e3,
        max_us: histogram.max() as f64 / 1e3,
        percentiles_us: names
            .iter()
            .map(|(name, q)| ((*name).to_owned(), at(*q)))
            .collect(),
        hdr: STANDARD.encode(bytes),
        heat,
    }
}

fn bucket_of(us: f64) -> usize {
    ((us.max(1.0).log2() * 4.0) as usize).min(HEAT_BUCKETS - 1)
}

/// One operation at `rate` for `length_s` seconds.
fn operation(op: &str, rate: f64, length_s: u64, taste: Taste) -> OpResult {
    let mut random = Prng::named(taste.seed, op);
    let mut seconds = vec![Second::default(); length_s as usize];
    let (mut response, mut service, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut heat = vec![vec![0u64; HEAT_BUCKETS]; length_s as usize];
    let per_second = (rate as u64).max(1);
    for second in 0..length_s {
        let slot = &mut seconds[second as usize];
        slot.planned = per_second;
        slot.sent = per_second;
        for n in 0..per_second {
            if random.unit() < taste.refused * (1.0 + (second as f64 / 5.0).sin()) {
                slot.refused += 1;
                refused.push(60.0 + 40.0 * random.unit());
                continue;
            }
            let spread = (random.unit() + random.unit() + random.unit() - 1.5) * 1.4;
            let tail = if random.unit() < 0.01 {
                4.0 + 30.0 * random.unit()
            } else {
                1.0
            };
            let own = taste.median_us * spread.exp() * tail;
            let stall = if taste.frozen == Some(second) {
                1e6 - 1e6 * n as f64 / per_second as f64
            } else {
                0.0
            };
            slot.ok += 1;
            service.push(own * 0.9);
            response.push(own + stall);
            heat[second as usize][bucket_of(own + stall)] += 1;
        }
        slot.received_bytes = slot.ok * 180;
        slot.sent_bytes = slot.sent * 220;
    }
    let planned = per_second * length_s;
    let (ok, no) = (response.len() as u64, refused.len() as u64);
    let mut statuses = BTreeMap::new();
    statuses.insert(if op == "put" { 201 } else { 200 }, ok);
    if no > 0 {
        statuses.insert(503, no);
    }
    let counts = Counts {
        planned,
        sent: planned,
        answered: planned,
        ok,
        refused: no,
        statuses,
        sent_bytes: planned * 220,
        received_bytes: ok * 180,
        body_bytes: ok * 100,
        ..Counts::default()
    };
    OpResult {
        op: op.to_owned(),
        counts,
        seconds,
        response: latency(&response, heat.clone()),
        given_up: Latency::default(),
        service: latency(&service, heat),
        refused: latency(&refused, Vec::new()),
        failed: Latency::default(),
    }
}

/// A phase with these operations and rates.
pub(crate) fn phase(
    name: &str,
    kind: PhaseKind,
    start_s: f64,
    length_s: u64,
    ops: &[(&str, f64)],
    taste: Taste,
) -> PhaseResult {
    let ops: Vec<OpResult> = ops
        .iter()
        .map(|(op, rate)| operation(op, *rate, length_s, taste))
        .collect();
    let mut counts = Counts::default();
    for op in &ops {
        counts.add(&op.counts);
    }
    let lag: Vec<f64> = (0..1000).map(|i| 3.0 + f64::from(i % 40)).collect();
    let waiting = |second: u64| GeneratorSecond {
        in_flight: 9 + second % 7,
        backlog: if taste.frozen == Some(second) {
            2_900
        } else {
            0
        },
        cpu_s: 0.21,
        send_lag_us_max: 80.0,
        reconnects: 0,
    };
    PhaseResult {
        name: name.to_owned(),
        kind,
        start_s,
        length_s: length_s as f64,
        rate: counts.planned as f64 / length_s as f64,
        verdict: Validity::Valid,
        targets: vec![TargetResult {
            counts: counts.clone(),
            response: ops[0].response.clone(),
            service: ops[0].service.clone(),
        }],
        generator: Generator {
            send_lag: latency(&lag, Vec::new()),
            missed: 12,
            send_lag_limit_us: 1000.0,
            cpu_s: 12.0,
            spun_s: 1.0,
            starved_s: 0.0,
            available_s: length_s as f64,
            busiest_share: 0.21,
            cpu_us_per_request: 6.8,
            connects: 64,
            reconnects: 0,
            seconds: (0..length_s).map(waiting).collect(),
        },
        counts,
        ops,
    }
}

/// More was planned: some of it is refused, some given up after the send, most never sent.
fn overloaded(phase: &mut PhaseResult, factor: f64) {
    let op = &mut phase.ops[0];
    let rate = op.seconds[0].planned as f64;
    let more = (rate * (factor - 1.0)) as u64;
    for (at, row) in op.seconds.iter_mut().enumerate() {
        let (refused, late) = (more / 10, more / 20 * (1 + at as u64 % 2));
        row.planned += more;
        row.sent += refused + late;
        row.refused += refused;
        row.timeouts += more - refused;
        row.unsent += more - refused - late;
        phase.generator.seconds[at].reconnects = late;
    }
    let of = |count: fn(&Second) -> u64| op.seconds.iter().map(count).sum::<u64>();
    let counts = &mut op.counts;
    let (refused, given_up) = (of(|s| s.refused), of(|s| s.timeouts));
    counts.planned = of(|s| s.planned);
    counts.sent = of(|s| s.sent);
    counts.unsent = of(|s| s.unsent);
    counts.timeouts = given_up - counts.unsent;
    counts.refused = refused;
    counts.ok = of(|s| s.ok);
    counts.answered = counts.ok + refused;
    counts.statuses = [(200, counts.ok), (503, refused)].into();
    phase.counts = op.counts.clone();
    phase.targets[0].counts = op.counts.clone();
    phase.rate = rate * factor;
}

fn server(length_s: u64) -> ServerSeries {
    let mut server = ServerSeries {
        at_s: (0..=length_s).map(|s| s as f64).collect(),
        ..ServerSeries::default()
    };
    let mut series = |name: &str, of: &dyn Fn(f64) -> f64| {
        let values = (0..=length_s).map(|s| Some(of(s as f64))).collect();
        server.series.insert(name.to_owned(), values);
    };
    let mib = f64::from(1 << 20);
    series("dendra_engine_table_bytes{level=\"0\"}", &|s| {
        (s % 16.0 / 4.0).floor() * 8.0 * mib
    });
    series("dendra_engine_table_bytes{level=\"1\"}", &|s| {
        (s / 16.0).floor() * 26.0 * mib
    });
    series("dendra_engine_table_bytes{level=\"2\"}", &|s| {
        if s > 60.0 { 90.0 * mib } else { 0.0 }
    });
    series("dendra_engine_flush_bytes_total", &|s| {
        (s / 4.0).floor() * 8.0 * mib
    });
    series("dendra_engine_compaction_write_bytes_total", &|s| {
        (s / 16.0).floor() * 16.0 * mib + (s % 16.0 - 12.0).max(0.0) * 4.0 * mib
    });
    series("dendra_engine_log_bytes_total", &|s| s * 2.6 * mib);
    series("dendra_engine_commits_total", &|s| s * 820.0);
    series("dendra_engine_log_syncs_total", &|s| s * 790.0);
    series("dendra_engine_memtable_bytes", &|s| (s % 4.0) * 2.0 * mib);
    series("dendra_engine_cache_bytes", &|s| s.min(40.0) * mib);
    series("dendra_engine_pressure", &|s| (s % 16.0) / 40.0);
    let is_over = |s: f64| (115.0..=118.0).contains(&s) || (125.0..=130.0).contains(&s);
    series("dendra_queue_delay_seconds", &|s| {
        if is_over(s) {
            0.024 + 0.003 * (s % 4.0)
        } else {
            0.0004 + 0.0001 * (s % 3.0)
        }
    });
    series("dendra_requests_standing", &|s| {
        if is_over(s) {
            700.0 + 40.0 * (s % 5.0)
        } else {
            0.0
        }
    });
    series("dendra_overloaded_loops", &|s| f64::from(is_over(s)));
    for (op, stage, mean_us) in [
        ("put", "parse", 2.1),
        ("put", "queue", 31.0),
        ("put", "engine", 4.0),
        ("put", "wal_wait", 390.0),
        ("put", "write", 7.0),
        ("get", "parse", 1.9),
        ("get", "engine", 3.2),
        ("get", "write", 6.0),
    ] {
        let labels = format!("op=\"{op}\",stage=\"{stage}\"");
        series(&format!("dendra_stage_seconds_sum{{{labels}}}"), &|s| {
            s * 1e4 * mean_us / 1e6
        });
    }
    let mut buckets = BTreeMap::new();
    for name in server
        .series
        .keys()
        .filter(|name| name.starts_with("dendra_stage"))
    {
        let mean = if name.contains("wal_wait") { 3 } else { 0 };
        for (at, le) in ["0.00005", "0.0001", "0.00025", "0.0005", "0.001", "+Inf"]
            .into_iter()
            .enumerate()
        {
            let full = 1e4 * length_s as f64;
            let count = match at {
                at if at < mean => full * 0.1,
                at if at == mean => full * 0.9,
                _ => full,
            };
            let name = name
                .replace("_sum", "_bucket")
                .replace('}', &format!(",le=\"{le}\"}}"));
            buckets.insert(name, [0.0, count]);
        }
    }
    server.buckets = buckets;
    let status = serde_json::json!({ "version": "0.1.0" });
    server.status = [status.clone(), status];
    server
}

fn folded(random: &mut Prng, tilt: u64) -> String {
    let paths = [
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;dendra_wire::http::request::parse;httparse::parse_headers",
            180,
        ),
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;dendra_server::clients::connection::requests::put;dendra_engine::batch::Batch::put;memcpy",
            90,
        ),
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;dendra_server::clients::connection::requests::get;dendra_engine::engine::Engine::get;dendra_engine::memtable::list::List::seek",
            260,
        ),
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;dendra_server::clients::connection::requests::get;dendra_engine::engine::Engine::get;dendra_engine::table::reader::Reader::get;dendra_engine::table::block::Block::find",
            210,
        ),
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;dendra_server::clients::connection::requests::get;dendra_engine::engine::Engine::get;quick_cache::sync::Cache::get",
            70 + 160 * tilt,
        ),
        (
            "loop;tokio::runtime::local::run;mio::poll::Poll::poll;epoll_wait",
            150,
        ),
        (
            "loop;tokio::runtime::local::run;dendra_server::clients::connection::serve;std::net::tcp::TcpStream::write;__send",
            240,
        ),
        (
            "wal;dendra_server::disk::wal_thread::commit_until_closed;dendra_engine::engine::Engine::commit;dendra_engine::wal::writer::Writer::append;pwrite64",
            120,
        ),
        (
            "wal;dendra_server::disk::wal_thread::commit_until_closed;dendra_engine::engine::Engine::commit;dendra_engine::wal::writer::Writer::sync;fdatasync",
            60,
        ),
        (
            "wal;dendra_server::disk::wal_thread::commit_until_closed;dendra_engine::engine::Engine::commit;dendra_engine::memtable::list::List::insert",
            140,
        ),
        (
            "compact;dendra_engine::background::compact;dendra_engine::merge::Merge::next",
            80,
        ),
        (
            "compact;dendra_engine::background::compact;dendra_engine::table::writer::Writer::add;lz4_flex::block::compress",
            70,
        ),
        (
            "worker;dendra_server::disk::store_pool::work;dendra_engine::engine::Engine::get;preadv2",
            30,
        ),
        (
            "flush;dendra_engine::background::flush;dendra_engine::table::writer::Writer::add;crc32fast::Hasher::update",
            40,
        ),
    ];
    paths
        .iter()
        .map(|(path, n)| format!("{path} {}\n", n + random.below(9)))
        .collect()
}

/// A whole run.
pub(crate) fn run(taste: Taste) -> Run {
    let ops: &[(&str, f64)] = &[("get", 1900.0), ("put", 1000.0)];
    let warmup = phase(
        "warm-up",
        PhaseKind::Warmup,
        0.0,
        10,
        ops,
        Taste {
            frozen: None,
            ..taste
        },
    );
    let measure = phase("measure", PhaseKind::Measure, 10.0, 60, ops, taste);
    let mut phases = vec![warmup, measure];
    let mut steps = Vec::new();
    let mut overload = Vec::new();
    for (at, (rate, why, p99_us)) in [
        (4_000.0, SearchWhy::Double, 1_900.0),
        (8_000.0, SearchWhy::Double, 2_400.0),
        (16_000.0, SearchWhy::Double, 5_200.0),
        (32_000.0, SearchWhy::Double, 480_000.0),
        (24_000.0, SearchWhy::Bisect, 19_000.0),
        (24_000.0, SearchWhy::Bisect, 8_100.0),
        (28_000.0, SearchWhy::Bisect, 31_000.0),
        (26_000.0, SearchWhy::Bisect, 9_400.0),
        (26_000.0, SearchWhy::Repeat, 8_800.0),
        (27_000.0, SearchWhy::Repeat, 12_300.0),
    ]
    .into_iter()
    .enumerate()
    {
        let is_met = p99_us < 10_000.0;
        // The first try of 24,000 is one that the generator spoiled.
        let is_void = p99_us == 19_000.0;
        steps.push(SearchStep {
            rate,
            why,
            phase: 1,
            is_met,
            is_void,
            p99_us,
            reason: match (is_met, is_void) {
                (true, _) => String::new(),
                (_, true) => "the generator was the bottleneck: 1.9 % of the requests left more \
                              than 1 ms late (send lag p99 3.10 ms)"
                    .to_owned(),
                _ => format!("p99 {:.1} ms > 10 ms", p99_us / 1e3),
            },
            goodput: if rate > 28_000.0 { 27_400.0 } else { rate },
        });
        let start = 70.0 + 4.0 * at as f64;
        let quiet = Taste {
            frozen: None,
            seed: at as u64,
            ..taste
        };
        phases.push(phase(
            &format!("search {}", at + 1),
            PhaseKind::Search,
            start,
            4,
            &[("get", rate / 10.0)],
            quiet,
        ));
    }
    let calm_phase = phases.len();
    let mut start_s = 110.0;
    let mut beyond = |name: &str, kind, length_s: u64, factor: f64| {
        let quiet = Taste {
            frozen: None,
            seed: start_s as u64,
            ..taste
        };
        let ops = [("get", 2_600.0 * factor.min(1.0))];
        let mut phase = phase(name, kind, start_s, length_s, &ops, quiet);
        if factor > 1.0 {
            overloaded(&mut phase, factor);
        }
        phases.push(phase);
        start_s += length_s as f64;
    };
    beyond("overload calm", PhaseKind::Overload, 4, 0.9);
    for (factor, goodput, refused, normal) in [
        (2.0, 27_100.0, 0.46, Some(0.0)),
        (5.0, 25_900.0, 0.78, Some(2.0)),
    ] {
        beyond(
            &format!("overload {factor}x"),
            PhaseKind::Overload,
            4,
            factor,
        );
        beyond(&format!("after {factor}x"), PhaseKind::Recovery, 6, 0.9);
        let phase = calm_phase + 1 + 2 * overload.len();
        overload.push(OverloadStep {
            factor,
            rate: 26_000.0 * factor,
            phase,
            recovery_phase: phase + 1,
            goodput,
            refused_share: refused,
            lost_share: 0.0,
            accepted_p99_us: 214_000.0,
            service_p99_us: 14_000.0,
            normal_after_s: normal,
        });
    }
    let mut random = Prng::named(taste.seed, "profile");
    let profile = |kind: &str, folded| TargetProfile {
        target: 0,
        kind: kind.to_owned(),
        start_s: 20.0,
        length_s: 10.0,
        folded,
    };
    let tilt = u64::from(taste.median_us > 500.0);
    Run {
        format: FORMAT,
        tool: Tool {
            name: "dendra bench".to_owned(),
            version: "0.1.0".to_owned(),
            commit: Some("ba0d573+".to_owned()),
        },
        command: [
            "dendra",
            "bench",
            "http://127.0.0.1:8080",
            "--workload",
            "mixed",
            "--rate",
            "2900",
            "--duration",
            "60s",
            "--connections",
            "64",
            "--find-max",
            "--slo",
            "p99<10ms,errors<0.1%",
            "--overload",
            "2x,5x",
            "--profile",
            "cpu,wall",
            "--out",
            "runs/today",
        ]
        .map(str::to_owned)
        .to_vec(),
        started_unix_ms: 1_795_302_300_000,
        length_s: 135.0,
        machine: Machine {
            cpus: 2,
            cpu_model: "Some Processor at 2.9 GHz".to_owned(),
            memory_bytes: 8 << 30,
            kernel: "Linux 6.1.0".to_owned(),
            system: "Debian GNU/Linux 12".to_owned(),
        },
        settings: GeneratorSettings {
            mode: Mode::Open,
            schedule: "constant".to_owned(),
            rate: 2900.0,
            duration_s: 60.0,
            warmup_s: 10.0,
            connections: 64,
            threads: 1,
            pipeline: 1,
            timeout_ms: 5000,
            seed: taste.seed,
            spins: false,
        },
        workload: WorkloadNote {
            name: "mixed".to_owned(),
            mix: [("get".to_owned(), 0.65), ("put".to_owned(), 0.35)].into(),
            keys: 1_000_000,
            distribution: "zipfian 0.99".to_owned(),
            values: "fixed 100".to_owned(),
            miss_ratio: 0.0,
            file: None,
        },
        targets: vec![TargetServer {
            url: "http://127.0.0.1:8080".to_owned(),
            template: "/v0/entity?id={key}".to_owned(),
            admin: Some("http://127.0.0.1:8081".to_owned()),
        }],
        verdict: Validity::Valid,
        is_cut: false,
        notes: vec!["Generator and server share the two processors of this machine.".to_owned()],
        phases,
        servers: vec![server(134)],
        search: Some(SearchCourse {
            slo: "p99<10ms,errors<0.1%".to_owned(),
            steps,
            knee_low: 26_000.0,
            knee_high: Some(27_000.0),
            generator_limit: None,
            sentence: "The objective p99<10ms,errors<0.1% holds up to 26 000 requests a second \
             and fails at 27 000."
                .to_owned(),
        }),
        overload: Some(OverloadCourse {
            base_rate: 26_000.0,
            calm_rate: 23_400.0,
            base_phase: calm_phase,
            calm_p99_us: 6_000.0,
            calm_service_p99_us: 5_900.0,
            peak_goodput: 27_400.0,
            steps: overload,
        }),
        profiles: vec![
            profile("cpu", folded(&mut random, tilt)),
            profile("wall", folded(&mut random, 0)),
        ],
    }
}
