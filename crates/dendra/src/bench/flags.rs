//! The flags of `dendra bench` and of `dendra bench compare`, and the manual behind `--help`.
//!
//! ```text
//! dendra bench [URL…] [flags]              Bench            measure
//! dendra bench compare RUN RUN… [flags]    Bench::verb      lay runs over each other
//! ```
//!
//! Invariants
//! 1. Every flag stands under a heading that names its subject.
//!
//! Not here: the meaning of the flags for the lab (`bench.rs`).
//! See: docs/cli.md.

use super::values::{self, Mix, UrlTemplate};
use crate::access::AccessArgs;
use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand};
use dendra_base::workload::{Distribution, Sizes};
use dendra_lab::schedule::Shape;
use dendra_lab::slo::Slo;
use std::path::PathBuf;
use std::time::Duration;

/// A number of at least one.
fn up_to(most: u32) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(most))
}

/// `dendra bench`
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL, before_long_help = PURPOSE)]
#[command(args_conflicts_with_subcommands = true, subcommand_help_heading = "Or")]
pub(crate) struct Bench {
    /// Something else than measuring
    #[command(subcommand)]
    pub(crate) verb: Option<BenchVerb>,
    /// Where the store is; several are the nodes of one store, and get equal shares
    #[arg(
        value_name = "URL",
        env = "DENDRA_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) urls: Vec<String>,
    /// The workload: get, put, mixed, scan, insert, delete, create, read-modify-write,
    /// compare-and-set, or ycsb-a to ycsb-f
    #[arg(long, value_name = "NAME", default_value = "get", value_parser = values::workload)]
    #[arg(help_heading = "What to ask")]
    pub(crate) workload: String,
    /// Instead of the workload's own mix: get=0.8,put=0.2
    #[arg(long, value_name = "OP=WEIGHT,…", value_parser = values::mix)]
    #[arg(help_heading = "What to ask")]
    pub(crate) mix: Option<Mix>,
    /// Records that there are: gets ask for one of them, puts write one of them
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(help_heading = "What to ask")]
    pub(crate) keys: u64,
    /// Write all of them first; without it, a get of a record that was not written is a miss
    #[arg(long)]
    #[arg(help_heading = "What to ask")]
    pub(crate) preload: bool,
    /// Keys: uniform, zipfian, zipfian:0.8, latest, hotspot:0.2,0.8 (keys, requests), sequential
    /// [default: the workload's own]
    #[arg(long, value_name = "NAME", value_parser = values::distribution)]
    #[arg(help_heading = "What to ask")]
    pub(crate) distribution: Option<Distribution>,
    /// Records with neighbouring numbers have neighbouring keys; otherwise they lie anywhere
    #[arg(long)]
    #[arg(help_heading = "What to ask")]
    pub(crate) ordered_keys: bool,
    /// Bytes of a value: 100, 4KiB, 10..1000, or lognormal:MEDIAN,SIGMA,MAX [default: 100; YCSB:
    /// 1000]
    #[arg(long, value_name = "SIZE", value_parser = values::sizes)]
    #[arg(help_heading = "What to ask")]
    pub(crate) value_bytes: Option<Sizes>,
    /// Share of gets that ask for a key that never was
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    #[arg(help_heading = "What to ask")]
    pub(crate) miss_ratio: f64,
    /// A scan asks for one to this many records
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(help_heading = "What to ask")]
    pub(crate) scan_records: u32,
    /// Seed of keys, sizes, values and arrivals: the same seed sends the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(help_heading = "What to ask")]
    pub(crate) seed: u64,
    /// Requests from a file instead: .tsv, .ndjson, or .log (an access log)
    #[arg(long, value_name = "FILE")]
    #[arg(help_heading = "What to ask")]
    pub(crate) ammo: Option<PathBuf>,
    /// Send the file's requests when it says, this many times as fast
    #[arg(long, value_name = "SPEED", requires = "ammo", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = values::speed)]
    #[arg(help_heading = "What to ask")]
    pub(crate) replay: Option<f64>,
    /// Write the planned requests to this file (NDJSON), for --ammo: name it x.ndjson
    #[arg(long, value_name = "FILE", conflicts_with_all = ["closed", "find_max"])]
    #[arg(help_heading = "What to ask")]
    pub(crate) record: Option<PathBuf>,
    /// Requests a second, fixed in advance: 30000, 30k, steps:1000@10s,2000@10s, ramp:1000..9000,
    /// burst:1000,20000@1s/10s
    #[arg(long, value_name = "PLAN", default_value = "1000")]
    #[arg(help_heading = "When to ask it")]
    pub(crate) rate: Shape,
    /// Arrivals that do not know of each other, instead of evenly spaced ones
    #[arg(long)]
    #[arg(help_heading = "When to ask it")]
    pub(crate) poisson: bool,
    /// Each connection waits for its answer before the next request: finds a throughput, hides
    /// stalls
    #[arg(long, conflicts_with_all = ["rate", "poisson", "find_max", "overload"])]
    #[arg(help_heading = "When to ask it")]
    pub(crate) closed: bool,
    /// Length of the measurement, and of each step of --find-max and --overload
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::seconds)]
    #[arg(help_heading = "When to ask it")]
    pub(crate) duration: f64,
    /// Load of the same kind before it, not counted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::seconds)]
    #[arg(help_heading = "When to ask it")]
    pub(crate) warmup: f64,
    /// Connections, all targets together. Beyond saturation (--find-max, --overload) each stands
    /// for a client that waits: the store never sees more of them at once
    #[arg(short, long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = up_to(dendra_lab::limits::CONNECTIONS_MAX))]
    #[arg(help_heading = "With how much at once")]
    pub(crate) connections: u32,
    /// Threads of the generator; each can send about 100,000 requests a second
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = up_to(dendra_lab::limits::THREADS_MAX))]
    #[arg(help_heading = "With how much at once")]
    pub(crate) threads: u32,
    /// Requests in flight on one connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = up_to(dendra_lab::limits::PIPELINE_MAX))]
    #[arg(help_heading = "With how much at once")]
    pub(crate) pipeline: u32,
    /// Never sleep: no answer has to wake the generator, which a server on another core would pay
    /// for. Takes all of --threads cores
    #[arg(long)]
    #[arg(help_heading = "With how much at once")]
    pub(crate) spin: bool,
    /// From its planned instant until a request is given up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::timeout)]
    #[arg(help_heading = "With how much at once")]
    pub(crate) timeout: Duration,
    /// Find the highest rate that holds --slo, from --rate upwards: doubles, bisects, repeats. Give
    /// it many connections (256 or more): a request that waits for a free one never reaches the
    /// store
    #[arg(long, requires = "slo")]
    #[arg(help_heading = "Where it ends: saturation and beyond")]
    pub(crate) find_max: bool,
    /// The bounds that have to hold: p99<10ms,errors<0.1%. A percentile is one of all planned
    /// requests: one that was not done took longer than any bound
    #[arg(long, value_name = "TERMS", requires = "find_max")]
    #[arg(help_heading = "Where it ends: saturation and beyond")]
    pub(crate) slo: Option<Slo>,
    /// Afterwards, these multiples of the rate (of the one found), each followed by the rate itself
    /// until it is normal again. Needs many connections, as --find-max does
    #[arg(long, value_name = "2x,5x", value_delimiter = ',', value_parser = values::factor)]
    #[arg(help_heading = "Where it ends: saturation and beyond")]
    pub(crate) overload: Vec<f64>,
    /// Path, or whole URL, for any other store: {key}, {key_base64}, {value}, {limit} are filled in
    #[arg(long, value_name = "URL", value_parser = values::url_template)]
    #[arg(help_heading = "Any other store")]
    pub(crate) url_template: Option<UrlTemplate>,
    /// Body of every request, with the same places and {value_base64}
    #[arg(long, value_name = "TEXT")]
    #[arg(help_heading = "Any other store")]
    pub(crate) body_template: Option<String>,
    /// Method of every request
    #[arg(long, value_name = "WORD", value_parser = values::method)]
    #[arg(help_heading = "Any other store")]
    pub(crate) method: Option<String>,
    /// How targets and admin ports let the generator in
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// A header line for every request; may be repeated
    #[arg(long, value_name = "LINE", value_parser = values::header)]
    #[arg(help_heading = "Any other store")]
    pub(crate) header: Vec<String>,
    /// A redirect (3xx but 304) is an answer, too; without it, it counts as failed
    #[arg(long)]
    #[arg(help_heading = "Any other store")]
    pub(crate) redirects_ok: bool,
    /// Added to the query of Dendra's own routes: ack=1&from=1
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        conflicts_with = "url_template"
    )]
    #[arg(help_heading = "Any other store")]
    pub(crate) query: String,
    /// Folder for run.json, summary.txt and report.html; made when it is not there
    #[arg(long, value_name = "FOLDER")]
    #[arg(help_heading = "What to keep")]
    pub(crate) out: Option<PathBuf>,
    /// Admin port of each URL, in their order: its /metrics go into the record [with --profile and
    /// one URL: port 9080 of its host]
    #[arg(long, value_name = "URL")]
    #[arg(help_heading = "What to keep")]
    pub(crate) admin: Vec<String>,
    /// Profiles to take from --admin, while the same load runs once more behind the measurement:
    /// cpu,wall,alloc,lock
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    #[arg(value_parser = ["cpu", "alloc", "lock", "wall"], hide_possible_values = true)]
    #[arg(help_heading = "What to keep")]
    pub(crate) profile: Vec<String>,
}

/// `dendra bench VERB`
#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// Lay runs over each other: which figures differ by more than the noise of the repeats?
    Compare(Compare),
}

/// `dendra bench compare`
#[derive(Debug, Args)]
#[command(after_long_help = COMPARE_MANUAL)]
pub(crate) struct Compare {
    /// Folders of --out, run.json files, or folders that hold several runs of one side
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where the page goes: curves over each other, tables, differential flame graphs
    #[arg(short, long, value_name = "FILE", default_value = "compare.html")]
    pub(crate) out: PathBuf,
}

const PURPOSE: &str = "\
Sends requests at instants that were fixed in advance, however the store answers (an open
loop), and records the outcome of each of them. Any HTTP/1.1 server can be the target. The
generator needs Linux 5.11 or later.

Start here, with a node on 127.0.0.1:8080 (dendra serve)
  dendra bench --workload put --rate 5000
         ten seconds of writes: how long does one take?
  dendra bench --preload --keys 100000 --rate 5000 --out runs/get
         reads of records that were written first, and a page to open: runs/get/report.html
  dendra bench --preload --keys 100000 --connections 256 --duration 2s \\
         --find-max --slo 'p99<10ms,errors<0.1%' --out runs/knee
         how many reads a second does it hold?";

const MANUAL: &str = "\
What the figures are
  Latency counts from the instant at which a request was due by the plan, not from its
  send: a server that stalls for a second shows it. Service time, from the send, stands
  beside it. Requests that were given up are in the response time, with the time that they
  had waited. Refused ones (429, 503, 507) and failed ones stand apart. A get of a key that
  is not there is a miss: write the keys first (--preload) or look at the share of misses.

When not to believe them
  The generator watches itself. It was the bottleneck when more than 1 % of the requests
  left over 1 ms late, or when one of its threads had no time left. Then the verdict says
  so, and the exit code is 6: give it more --threads, its own cores, or a lower rate. At a
  rate that the store cannot hold, latency has no meaning: find the rate that it can hold
  (--find-max), and look below it.

How --find-max looks for it
  It doubles --rate until a run of --duration fails --slo (or halves it until one holds).
  It bisects until the two ends are within 5 %, and repeats the lower one twice. One line
  has the result of each run. The answer is an interval: the highest rate that held in
  every run, and the lowest that did not. A run in which the generator was the bottleneck
  is void: it is tried twice more, and never taken for a failure of the store. When the
  generator gives up before the store does, the answer is \"at least\", and exit code 6.

Rates          30000, 30k · steps:1000@10s,2000@10s · ramp:1000..9000 · burst:1000,20000@1s/10s
Times          500ms, 10s, 2m, 1h; a number alone is seconds
Objectives     p50<TIME, p99.9<TIME … · mean<TIME · max<TIME · errors<SHARE% · misses<SHARE%

Examples
  dendra bench --workload put --rate 30k --duration 60s --keys 1000000 --out runs/today
  dendra bench --workload get --preload --keys 100000 --rate 20k --admin http://127.0.0.1:9080 \\
         --profile cpu,wall --out runs/today
  dendra bench --workload ycsb-b --preload --keys 100000 --connections 512 --duration 3s \\
         --find-max --slo 'p99<10ms,errors<0.1%' --overload 2x,5x --out runs/knee
  dendra bench http://127.0.0.1:80 --url-template '/{key}' --rate 5000
  dendra bench http://127.0.0.1:2379 --workload put --method POST --url-template /v3/kv/put \\
         --body-template '{\"key\":\"{key_base64}\",\"value\":\"{value_base64}\"}'
  dendra bench compare runs/before runs/after

Exit codes: 0 done · 1 the record cannot be written, or no rate held the objective · 2
unusable options · 5 the target is down, went away, or answered no request as asked · 6 the
generator was the bottleneck: the figures must not be used, or --find-max ended before the
store did · 130 cut by Ctrl-C. With each code --out has all that was measured.";

const COMPARE_MANUAL: &str = "\
A side is one measured store or setting, with its repeats. A folder without a run.json
whose subfolders have one is a side, and then every RUN is a side of its own, named as it
was given. Otherwise runs with the same command (apart from --out and --seed), target and
versions are repeats of one side. When all are the same, each run is a side. The others are
compared with the first side.

A difference counts when each side has three valid runs or more, no run of one side lies
among those of the other, and the medians are further apart than the widest range within a
side. Take the repeats of the sides in turns: machines drift.

  for i in 1 2 3; do
    dendra bench http://127.0.0.1:8081 --rate 20k --out runs/old/$i
    dendra bench http://127.0.0.1:8082 --rate 20k --out runs/new/$i
  done
  dendra bench compare runs/old runs/new --out compare.html

Exit codes: 0 compared, with any result · 1 the page cannot be written · 2 a run cannot be
read: it is not there, of another format, or no run.json · 6 a side has no valid run.";
