//! `dendra bench`: settings from the command line to the lab, its record to a folder.
//!
//! ```text
//! flags.rs (values.rs) ─► Setup ─► dendra_lab::experiment ─► Run ─► summary on stdout, run.json and report.html in --out
//!                    progress on stderr      Ctrl-C ends early; a second one at once
//! ```
//!
//! Invariants
//! 1. A folder that cannot be written is found out before the first request.
//! 2. All measurements are written, cut or void.
//!
//! Not here: measuring (crate `lab`), `bench compare` (`compare.rs`).
//! See: docs/lab/run-json.md.

mod compare;
pub(crate) mod flags;
mod values;

use crate::client::Credentials;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use crate::signals::on_signals;
use dendra_base::Workload;
use dendra_base::workload::KeyOrder;
use dendra_lab::ammo::{Ammo, AmmoFormat, ndjson_line};
use dendra_lab::driver::{Idle, StopFlag};
use dendra_lab::experiment::{self, News, Setup, SetupError};
use dendra_lab::recorder::Redirects;
use dendra_lab::run::{Mode, Run, SearchCourse, Tool};
use dendra_lab::schedule::{Instants, Shape, Spacing};
use dendra_lab::template::RequestStyle;
use dendra_lab::{summary, verdict};
use flags::{Bench, BenchVerb};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::SignalKind;

/// Admin port of `dendra serve`.
const ADMIN_PORT_DEFAULT: u16 = 9080;

/// Measures, or carries out the verb.
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
    let mut show = BenchProgress::new(console);
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

/// The exit code of a run.
fn exit_of(run: &Run, was_interrupted: bool) -> ExitResult {
    if was_interrupted {
        return Err(Failure::new(
            Exit::INTERRUPTED,
            "the run was cut; what it saw until then is there",
        ));
    }
    // Before anything that blames the target: a generator without a processor hears no answers
    // either.
    let is_limited = |search: &SearchCourse| search.generator_limit.is_some();
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
    // A refusal of the target counts as one, even if the request was late.
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

/// The first Ctrl-C asks the run to end, the second one ends the process. The value tells them from
/// a run that ended by itself.
fn stop_on_interrupt(stop: &Arc<StopFlag>) -> Result<Arc<StopFlag>, Failure> {
    let signalled = Arc::new(StopFlag::default());
    let (ask, mark) = (stop.clone(), signalled.clone());
    on_signals(&[SignalKind::interrupt()], move || {
        if mark.is_asked() {
            std::process::exit(Exit::INTERRUPTED.code());
        }
        mark.ask();
        ask.ask();
    })
    .map_err(|e| Failure::new(Exit::FAILURE, format!("signals cannot be caught ({e})")))?;
    Ok(signalled)
}

/// Progress for a person.
struct BenchProgress {
    console: Console,
    bar: ProgressBar,
    name: String,
    length_s: f64,
    count: Option<u64>,
}

impl BenchProgress {
    fn new(console: Console) -> BenchProgress {
        BenchProgress {
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

/// Admin ports. Of one node that is to be profiled the default one.
fn admins(args: &Bench) -> Vec<String> {
    let default = |url: &String| {
        let url = url.parse::<hyper::Uri>().ok()?;
        let (scheme, host) = (url.scheme_str()?, url.host()?);
        Some(format!("{scheme}://{host}:{ADMIN_PORT_DEFAULT}"))
    };
    match (&args.urls[..], &args.admin[..]) {
        ([url], []) if !args.profile.is_empty() => default(url).into_iter().collect(),
        (_, given) => given.to_vec(),
    }
}

/// The settings that the flags ask for. The error is a sentence.
fn setup(args: &Bench) -> Result<Setup, String> {
    let credentials = Credentials::of_bench(&args.access)?;
    let mut fields = args.header.clone();
    fields.extend(credentials.fields());
    let workload = workload(args)?;
    let ammo = match &args.ammo {
        Some(path) => Some(ammo(path, workload.sizes.max())?),
        None => None,
    };
    if let Some(path) = &args.record {
        check_record(path)?;
    }
    let template = args.url_template.as_ref();
    let target = template.and_then(|template| template.target.clone());
    Ok(Setup {
        urls: target.map_or_else(|| args.urls.clone(), |target| vec![target]),
        admins: admins(args),
        style: RequestStyle {
            path: template.map(|template| template.path.clone()),
            method: args.method.clone(),
            body: args.body_template.clone(),
            fields,
            query: args.query.clone(),
        },
        tls: credentials.tls().cloned(),
        workload_name: if ammo.is_some() {
            "ammo".to_owned()
        } else {
            args.workload.clone()
        },
        workload,
        ammo,
        replay_speed: args.replay,
        shape: args.rate.clone(),
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
        duration_s: args.duration,
        warmup_s: args.warmup,
        preloads: args.preload,
        connections: args.connections,
        threads: args.threads,
        pipeline: args.pipeline,
        timeout: args.timeout,
        redirects: if args.redirects_ok {
            Redirects::Pass
        } else {
            Redirects::Fail
        },
        idle: if args.spin { Idle::Spin } else { Idle::Sleep },
        find_max: args.slo.clone(),
        overload: args.overload.clone(),
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

fn workload(args: &Bench) -> Result<Workload, String> {
    let named = Workload::named(&args.workload, args.keys, args.seed);
    let mut workload = named.ok_or("--workload is not known")?;
    if let Some(mix) = args.mix {
        workload.mix = mix;
    }
    if let Some(distribution) = args.distribution {
        workload.distribution = distribution;
    }
    if let Some(sizes) = args.value_bytes {
        workload.sizes = sizes;
    }
    if args.ordered_keys {
        workload.order = KeyOrder::Ordered;
    }
    workload.miss_ratio = args.miss_ratio;
    workload.scan_records_max = args.scan_records;
    workload.check()?;
    Ok(workload)
}

/// A record is read again by its name.
fn check_record(path: &Path) -> Result<(), String> {
    let name = path.display().to_string();
    match AmmoFormat::of_name(&name) {
        Some(AmmoFormat::Tsv | AmmoFormat::AccessLog) => Err(format!(
            "--record {name}: a record is NDJSON, and --ammo takes a file of this name for \
             another format: end the name in .ndjson"
        )),
        Some(AmmoFormat::Ndjson) | None => Ok(()),
    }
}

fn ammo(path: &Path, value_bytes: u32) -> Result<(Arc<Ammo>, String), String> {
    let name = path.display().to_string();
    let format = AmmoFormat::of_name(&name)
        .ok_or_else(|| format!("--ammo {name}: the name ends in .tsv, .ndjson or .log"))?;
    let text = std::fs::read(path).map_err(|e| format!("--ammo {name} cannot be read ({e})"))?;
    let ammo = Ammo::parse(&text, format, value_bytes).map_err(|why| format!("{name}, {why}"))?;
    Ok((Arc::new(ammo), name))
}

#[cfg(test)]
mod tests;
