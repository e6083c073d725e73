//! `dendra bench`: settings from the command line to the lab, its record to a folder.
//!
//! ```text
//! flags.rs ─► Setup ─► dendra_lab::experiment ─► Run ─► summary on stdout, run.json and report.html in --out
//!                    progress on stderr      Ctrl-C ends early; a second one at once
//! ```
//!
//! Invariants
//! 1. A folder that cannot be written is found out before the first request.
//! 2. Whatever was measured is written, cut or void.
//!
//! Not here: measuring (crate `lab`), `bench compare` (`compare.rs`).
//! See: docs/lab/run-json.md.

mod compare;
pub(crate) mod flags;

use crate::config::units::parse_bytes;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use dendra_base::Workload;
use dendra_base::workload::{Distribution, KeyOrder, OPERATIONS, Operation, Sizes};
use dendra_lab::ammo::{Ammo, Format, ndjson_line};
use dendra_lab::driver::{Idle, StopFlag};
use dendra_lab::experiment::{self, News, Setup, SetupError};
use dendra_lab::limits::VALUE_BYTES_MAX;
use dendra_lab::run::{Mode, Run, Search, Tool};
use dendra_lab::schedule::{Instants, Shape, Spacing, parse_seconds};
use dendra_lab::template::Style;
use dendra_lab::{summary, verdict};
use flags::{Bench, BenchVerb};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Of `dendra serve`.
const ADMIN_PORT_DEFAULT: u16 = 9080;

/// Measures, or does what the verb says.
pub(crate) fn bench(args: &Bench, console: Console) -> ExitResult {
    match &args.verb {
        Some(BenchVerb::Compare(args)) => compare::compare(args, console),
        None => measure(args, console),
    }
}

fn measure(args: &Bench, console: Console) -> ExitResult {
    let setup = setup(args).map_err(Failure::usage)?;
    setup.check().map_err(failure)?;
    if let Some(folder) = &args.out {
        prepare(folder)?;
    }
    let recording = match &args.record {
        Some(path) => Some((path, create(path)?)),
        None => None,
    };
    let stop = Arc::new(StopFlag::default());
    let signalled = stop_on_interrupt(&stop)?;
    let mut show = Show::new(console);
    let run = experiment::run(&setup, &stop, &mut |news| show.news(&news)).map_err(failure)?;
    if let Some((path, file)) = recording {
        record(&setup, &run, file).map_err(|e| Failure::output(&path.display().to_string(), &e))?;
    }
    let text = summary::summary(&run);
    if let Some(folder) = &args.out {
        write_run(folder, &run, &text)?;
        console.note(&format!("the record is in {}", folder.display()));
    }
    ops::print(text.as_bytes())?;
    let was_interrupted = signalled.is_asked();
    exit_of(&run, was_interrupted)
}

/// What the run says to the caller.
fn exit_of(run: &Run, was_interrupted: bool) -> ExitResult {
    if was_interrupted {
        return Err(Failure::new(
            Exit::INTERRUPTED,
            "the run was cut; what it saw until then is there",
        ));
    }
    // Before anything that blames the target: a generator without a processor hears no answers either.
    let is_limited = |search: &Search| search.generator_limit.is_some();
    if run.search.as_ref().is_some_and(is_limited) {
        return Err(Failure::new(Exit::INVALID, run.verdict.to_string()));
    }
    if !verdict::has_answers(run) {
        let trouble = run.notes.last().map_or("", String::as_str);
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "nothing was answered ({trouble}); is this the right port, and does HTTP/1.1 live there?"
            ),
        ));
    }
    if run.is_cut {
        let trouble = run.notes.last().map_or("", String::as_str);
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!("the run was cut ({trouble}); what it saw until then is there"),
        ));
    }
    if verdict::went_away(run) {
        let trouble = run.notes.last().map_or("", String::as_str);
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "the target went away, or stood still to the end ({trouble}); what was seen until then is there"
            ),
        ));
    }
    // What the target refused it refused, however late it was asked.
    if run.search.is_none() && !verdict::has_successes(run) {
        let trouble = run.notes.last().map_or("", String::as_str);
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "not one request was done as asked ({trouble}); the line of each operation counts the statuses"
            ),
        ));
    }
    if !run.verdict.is_valid() {
        return Err(Failure::new(
            Exit::INVALID,
            format!("{}; the figures must not be used", run.verdict),
        ));
    }
    match &run.search {
        Some(search) if search.knee_low == 0.0 => {
            Err(Failure::new(Exit::FAILURE, search.sentence.clone()))
        }
        _ => Ok(Exit::OK),
    }
}

fn failure(error: SetupError) -> Failure {
    match error {
        SetupError::Unusable(sentence) => Failure::usage(sentence),
        SetupError::Down(sentence) => Failure::new(Exit::UNAVAILABLE, sentence),
        SetupError::System(sentence) => Failure::new(Exit::FAILURE, sentence),
    }
}

/// Makes the folder, and makes sure that a file can be written to it.
fn prepare(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(".dendra-bench");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&probe, b""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|e| Failure::output(&format!("the folder {}", folder.display()), &e))
}

fn create(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create(path).map_err(|e| Failure::output(&path.display().to_string(), &e))
}

fn write_run(folder: &Path, run: &Run, text: &str) -> Result<(), Failure> {
    let json = serde_json::to_vec(run)
        .map_err(|e| Failure::new(Exit::FAILURE, format!("the run is not JSON ({e})")))?;
    let page = dendra_lab::report::render_run(run);
    let files = [
        ("run.json", &json[..]),
        ("summary.txt", text.as_bytes()),
        ("report.html", page.as_bytes()),
    ];
    for (name, bytes) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes)
            .map_err(|e| Failure::output(&path.display().to_string(), &e))?;
    }
    Ok(())
}

/// Writes the requests that were planned, as far as the run went.
fn record(setup: &Setup, run: &Run, file: std::fs::File) -> std::io::Result<()> {
    let source = experiment::source_of(setup);
    let mut out = BufWriter::new(file);
    let mut key = Vec::new();
    let planned = run.headline().map_or(0, |phase| phase.counts.planned);
    let mut stages = setup.shape.stages(setup.duration_s);
    let warm = stages.first().map_or(0.0, |stage| stage.from);
    // The warm-up took requests off the front of the same plan; a replay has none.
    let warmup_ns = (setup.warmup_s * 1e9) as u64;
    stages.splice(0..0, Shape::Constant(warm).stages(setup.warmup_s));
    let instants = Instants::new(stages, setup.spacing, setup.workload.seed);
    let measured = (0..)
        .zip(instants)
        .filter(|(_, due_ns)| *due_ns >= warmup_ns);
    for (index, due_ns) in measured.take(planned as usize) {
        let ask = source.ask(index, &mut key);
        let bytes = source.value(&ask).len();
        let line = ndjson_line(ask.operation, &key, bytes, due_ns - warmup_ns);
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// The first Ctrl-C asks the run to end, the second one ends the process. The value tells them from a run
/// that ended by itself.
fn stop_on_interrupt(stop: &Arc<StopFlag>) -> Result<Arc<StopFlag>, Failure> {
    let signalled = Arc::new(StopFlag::default());
    let (ask, mark) = (stop.clone(), signalled.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::FAILURE, format!("the runtime cannot start ({e})")))?;
    let watch = move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                mark.ask();
                ask.ask();
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
    };
    std::thread::Builder::new()
        .name("interrupt".to_owned())
        .spawn(watch)
        .map_err(|e| Failure::new(Exit::FAILURE, format!("no thread could be started ({e})")))?;
    Ok(signalled)
}

/// Progress for a person.
struct Show {
    console: Console,
    bar: ProgressBar,
    name: String,
    length_s: f64,
    count: Option<u64>,
}

impl Show {
    fn new(console: Console) -> Show {
        Show {
            console,
            bar: ProgressBar::hidden(),
            name: String::new(),
            length_s: 0.0,
            count: None,
        }
    }

    fn news(&mut self, news: &News<'_>) {
        match *news {
            News::Begin {
                name,
                length_s,
                count,
            } => {
                self.name = name.to_owned();
                self.length_s = length_s;
                self.count = count;
                if self.console.is_quiet || !std::io::stderr().is_terminal() {
                    return;
                }
                let total = count.unwrap_or((length_s * 1000.0) as u64);
                let shape = "{msg} [{bar:30}] {percent:>3} %  {prefix}";
                let style = ProgressStyle::with_template(shape)
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("=> ");
                self.bar = ProgressBar::new(total)
                    .with_style(style)
                    .with_message(self.name.clone());
            }
            News::Tick {
                at_s,
                planned,
                answered,
                errors,
            } => {
                let rate = answered as f64 / at_s.max(0.001);
                self.bar.set_prefix(format!(
                    "{rate:.0}/s, {errors} errors, {} outstanding",
                    planned.saturating_sub(answered)
                ));
                self.bar
                    .set_position(self.count.map_or((at_s * 1000.0) as u64, |_| answered));
            }
            News::End => self.bar.finish_and_clear(),
            News::Line(line) => {
                let console = self.console;
                self.bar.suspend(|| console.note(line));
            }
        }
    }
}

fn seconds(name: &str, text: &str) -> Result<f64, String> {
    parse_seconds(text)
        .ok_or_else(|| format!("--{name} {text:?} is no length of time; write 500ms, 10s or 2m"))
}

/// Admin ports. Of one node that is to be profiled the default one.
fn admins(args: &Bench) -> Vec<String> {
    let host = |url: &String| url.parse::<hyper::Uri>().ok()?.host().map(str::to_owned);
    match (&args.urls[..], &args.admin[..]) {
        ([url], []) if !args.profile.is_empty() => host(url)
            .map(|host| format!("http://{host}:{ADMIN_PORT_DEFAULT}"))
            .into_iter()
            .collect(),
        (_, given) => given.to_vec(),
    }
}

/// The settings that the flags ask for. The error is a sentence.
fn setup(args: &Bench) -> Result<Setup, String> {
    let workload = workload(args)?;
    let ammo = match &args.ammo {
        Some(path) => Some(ammo(path, workload.sizes.max())?),
        None => None,
    };
    if args
        .replay
        .is_some_and(|speed| !(speed > 0.0 && speed.is_finite()))
    {
        return Err("--replay takes a speed above zero; 1 is as recorded".to_owned());
    }
    let (urls, path) = targets(args)?;
    for line in &args.header {
        if !line.contains(':') || !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(format!("--header {line:?} is no header; write Name: value"));
        }
    }
    let is_word = |text: &String| !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase());
    if let Some(method) = args.method.as_ref().filter(|method| !is_word(method)) {
        return Err(format!(
            "--method {method:?} is no method; write one like POST"
        ));
    }
    for kind in &args.profile {
        if !["cpu", "alloc", "lock", "wall"].contains(&kind.as_str()) {
            return Err(format!(
                "--profile {kind:?} is not known; use cpu,alloc,lock,wall"
            ));
        }
    }
    let find_max = match (&args.slo, args.find_max) {
        (Some(slo), true) => Some(slo.parse().map_err(|why: String| format!("--slo: {why}"))?),
        (Some(_), false) => return Err("--slo goes with --find-max".to_owned()),
        (None, _) => None,
    };
    let timeout_s = seconds("timeout", &args.timeout)?;
    if timeout_s <= 0.0 {
        return Err("--timeout of zero would give up everything; write 1ms or more".to_owned());
    }
    Ok(Setup {
        urls,
        admins: admins(args),
        style: Style {
            path,
            method: args.method.clone(),
            body: args.body_template.clone(),
            fields: args.header.clone(),
            query: args.query.clone(),
        },
        workload_name: if ammo.is_some() {
            "ammo".to_owned()
        } else {
            args.workload.clone()
        },
        workload,
        ammo,
        replay_speed: args.replay,
        shape: args
            .rate
            .parse()
            .map_err(|why: String| format!("--rate: {why}"))?,
        spacing: if args.poisson {
            Spacing::Poisson
        } else {
            Spacing::Even
        },
        mode: if args.closed {
            Mode::Closed
        } else {
            Mode::Open
        },
        duration_s: seconds("duration", &args.duration)?,
        warmup_s: seconds("warmup", &args.warmup)?,
        preloads: args.preload,
        connections: args.connections,
        threads: args.threads,
        pipeline: args.pipeline,
        timeout: Duration::from_secs_f64(timeout_s),
        idle: if args.spin { Idle::Spin } else { Idle::Sleep },
        find_max,
        overload: factors(args.overload.as_deref())?,
        profiles: args.profile.clone(),
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        tool: Tool {
            name: "dendra bench".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: Some(env!("BUILT_FROM_COMMIT").to_owned()),
        },
    })
}

/// URLs of the targets, and the template of the path. A whole URL as template names the one target.
fn targets(args: &Bench) -> Result<(Vec<String>, Option<String>), String> {
    let Some(template) = &args.url_template else {
        return Ok((args.urls.clone(), None));
    };
    if let Some(place) = dendra_lab::template::unknown_place(template) {
        return Err(format!(
            "--url-template {template:?} has {place}, which nothing fills; there are {}",
            dendra_lab::template::places()
        ));
    }
    if let Some(rest) = template.strip_prefix("http://") {
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = if path.is_empty() { "/" } else { path };
        return Ok((vec![format!("http://{authority}")], Some(path.to_owned())));
    }
    if template.starts_with('/') && template.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok((args.urls.clone(), Some(template.clone())));
    }
    Err(format!(
        "--url-template {template:?} is no path; write one like /kv/{{key}}"
    ))
}

fn workload(args: &Bench) -> Result<Workload, String> {
    let known = Workload::named(&args.workload, args.keys, args.seed);
    let mut workload = known.ok_or_else(|| {
        format!(
            "--workload {:?} is not known; use one of {}",
            args.workload,
            Workload::NAMES.join(", ")
        )
    })?;
    if let Some(mix) = &args.mix {
        workload.mix = parse_mix(mix)?;
    }
    if let Some(name) = &args.distribution {
        workload.distribution = parse_distribution(name)
            .ok_or_else(|| format!("--distribution {name:?} is not known; see --help"))?;
    }
    if let Some(size) = &args.value_bytes {
        workload.sizes = parse_sizes(size)
            .ok_or_else(|| format!("--value-bytes {size:?} is no size; write 100, 4KiB, 100..4KiB or lognormal:100,1.5,64KiB"))?;
    }
    if workload.sizes.max() > VALUE_BYTES_MAX {
        return Err(format!("--value-bytes is at most {VALUE_BYTES_MAX}"));
    }
    if args.ordered_keys {
        workload.order = KeyOrder::Ordered;
    }
    workload.miss_ratio = args.miss_ratio;
    workload.scan_records_max = args.scan_records;
    workload.check()?;
    Ok(workload)
}

fn parse_mix(text: &str) -> Result<[f64; OPERATIONS], String> {
    let mut mix = [0.0; OPERATIONS];
    for part in text.split(',') {
        let parsed = part.split_once('=').and_then(|(name, weight)| {
            let weight: f64 = weight.trim().parse().ok()?;
            Some((Operation::named(name.trim())?, weight))
        });
        let Some((operation, weight)) = parsed else {
            return Err(format!(
                "--mix {part:?} is no OPERATION=WEIGHT; write get=0.8,put=0.2"
            ));
        };
        mix[operation as usize] = weight;
    }
    Ok(mix)
}

fn parse_distribution(text: &str) -> Option<Distribution> {
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) => (name, Some(rest)),
        None => (text, None),
    };
    let exponent = || rest.map_or(Some(0.99), |rest| rest.parse().ok());
    match name {
        "uniform" => Some(Distribution::Uniform),
        "sequential" => Some(Distribution::Sequential),
        "zipfian" => exponent().map(|exponent| Distribution::Zipfian { exponent }),
        "latest" => exponent().map(|exponent| Distribution::Latest { exponent }),
        "hotspot" => {
            let (keys, requests) = rest.unwrap_or("0.2,0.8").split_once(',')?;
            Some(Distribution::Hotspot {
                keys: keys.parse().ok()?,
                requests: requests.parse().ok()?,
            })
        }
        _ => None,
    }
}

fn bytes(text: &str) -> Option<u32> {
    u32::try_from(parse_bytes(text).ok()?).ok()
}

fn parse_sizes(text: &str) -> Option<Sizes> {
    if let Some(rest) = text.strip_prefix("lognormal:") {
        let mut parts = rest.split(',');
        let median = bytes(parts.next()?)?;
        let sigma = parts.next()?.parse().ok()?;
        let max = bytes(parts.next()?)?;
        return Some(Sizes::LogNormal { median, sigma, max });
    }
    match text.split_once("..") {
        Some((min, max)) => Some(Sizes::Uniform {
            min: bytes(min)?,
            max: bytes(max)?,
        }),
        None => bytes(text).map(Sizes::Fixed),
    }
}

fn factors(text: Option<&str>) -> Result<Vec<f64>, String> {
    let parse = |part: &str| part.trim().trim_end_matches('x').parse::<f64>().ok();
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    let factors: Option<Vec<f64>> = text.split(',').map(parse).collect();
    factors.ok_or_else(|| format!("--overload {text:?} is no list of factors; write 2x,5x"))
}

fn ammo(path: &Path, value_bytes: u32) -> Result<(Arc<Ammo>, String), String> {
    let name = path.display().to_string();
    let format = Format::of_name(&name)
        .ok_or_else(|| format!("--ammo {name}: the name ends in .tsv, .ndjson or .log"))?;
    let text = std::fs::read(path).map_err(|e| format!("--ammo {name} cannot be read ({e})"))?;
    let ammo = Ammo::parse(&text, format, value_bytes).map_err(|why| format!("{name}, {why}"))?;
    Ok((Arc::new(ammo), name))
}

#[cfg(test)]
mod tests;
