//! One run from its settings to its record: preload, warm-up, measurement, search, overload.
//!
//! ```text
//! Setup ─► [preload] ─► [find-max: many short drives] ─► warm-up + measure ─► [overload] ─► Run
//!                                                         └ the same once more, with profiles
//!          samples of /metrics from the first to the last request
//! ```
//!
//! Invariants
//! 1. All that was measured before a failure is in the run that comes back.
//! 2. An overload and the phase after it are one drive: no queue is drained between them.
//!
//! Not here: the command line, files, the words on a terminal (crate `dendra`).
//! See: docs/lab/run-json.md.

mod again;
mod course;
mod overload;

use crate::address::Address;
use crate::ammo::Ammo;
use crate::driver::{
    ArrivalProcess, Drive, DriveError, DriverPlan, DriverTarget, Idle, QueueOrder, RunProgress,
    StopFlag, TlsTarget,
};
use crate::limits::{RATE_MAX, SEND_LAG_LIMIT_US};
use crate::recorder::Redirects;
use crate::run::{
    FORMAT, GeneratorSettings, Mode, PhaseKind, Run, SearchCourse, SearchStep, SearchWhy,
    ServerSeries, TargetProfile, TargetServer, Tool, Validity, WorkloadNote,
};
use crate::sampler::AdminPort;
use crate::schedule::{Shape, Slope, Spacing, mean_rate};
use crate::search::{Course, SearchDecision};
use crate::slo::Slo;
use crate::source::RequestSource;
use crate::summary::all_operations;
use crate::template::{RequestStyle, Templates};
use crate::{machine, sampler, verdict};
use again::Again;
use course::PhaseNews;
use dendra_base::Workload;
use dendra_base::workload::RequestKind;
use rustls::pki_types::ServerName;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pause between two steps of a search, for the target to come to itself.
const PAUSE: Duration = Duration::from_millis(300);

/// A run in which no request at all was answered for this long beyond the timeout is cut.
const SILENCE_S: f64 = 3.0;

/// A profile takes at most so many seconds: a flame graph has enough samples then.
const PROFILE_S_MAX: u64 = 10;

/// An admin port that is there says so at once.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections and caches are warm again then.
const PROFILE_DELAY: Duration = Duration::from_millis(300);

/// Everything that is set.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Base URLs of the targets.
    pub urls: Vec<String>,
    /// Admin ports by target; fewer are fine.
    pub admins: Vec<String>,
    /// How requests look.
    pub style: RequestStyle,
    /// The certificates that are trusted and shown where a URL is https.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The requests that clients send; also gives value sizes for ammo.
    pub workload: Workload,
    /// Name of the workload.
    pub workload_name: String,
    /// Requests from a file, with the file's name.
    pub ammo: Option<(Arc<Ammo>, String)>,
    /// Use the times in the file, so many times as fast.
    pub replay_speed: Option<f64>,
    /// The rate over time.
    pub shape: Shape,
    /// Even or Poisson.
    pub spacing: Spacing,
    /// Open or closed.
    pub mode: Mode,
    /// Length of the measurement.
    pub duration_s: f64,
    /// Length of the warm-up.
    pub warmup_s: f64,
    /// Write the records first.
    pub preloads: bool,
    /// Connections.
    pub connections: u32,
    /// Threads.
    pub threads: u32,
    /// Requests in flight on one connection.
    pub pipeline: u32,
    /// When a request is given up.
    pub timeout: Duration,
    /// What a redirect means.
    pub redirects: Redirects,
    /// How the generator waits.
    pub idle: Idle,
    /// Search for the highest rate that holds this.
    pub find_max: Option<Slo>,
    /// Multiples of the rate to try afterwards.
    pub overload: Vec<f64>,
    /// Kinds of profiles to take.
    pub profiles: Vec<String>,
    /// For the record.
    pub command: Vec<String>,
    /// For the record.
    pub tool: Tool,
}

/// Why there is no run at all.
#[derive(Debug)]
pub enum SetupError {
    /// The settings make no sense; a sentence.
    Unusable(String),
    /// A target does not answer; a sentence.
    Down(String),
    /// The system; a sentence.
    System(String),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Unusable(s) | SetupError::Down(s) | SetupError::System(s) => f.write_str(s),
        }
    }
}

impl std::error::Error for SetupError {}

/// The news for a watcher.
#[derive(Clone, Debug)]
pub enum News<'a> {
    /// A drive begins: its name, how long it takes, and how many requests that is if that is known.
    Begin {
        /// For people.
        name: &'a str,
        /// Seconds.
        length_s: f64,
        /// Requests, when their number ends the drive.
        count: Option<u64>,
    },
    /// About ten times a second.
    Tick {
        /// Seconds since the drive began.
        at_s: f64,
        /// Due so far.
        planned: u64,
        /// Answered so far.
        answered: u64,
        /// Refused, failed, broken, given up so far.
        errors: u64,
    },
    /// The drive ended.
    End,
    /// Something worth a line.
    Line(&'a str),
}

/// How a place is sealed, if its URL says so.
fn tls_of(setup: &Setup, address: &Address) -> Result<Option<TlsTarget>, SetupError> {
    if !address.is_tls {
        return Ok(None);
    }
    let unusable = |sentence: &str| SetupError::Unusable(sentence.to_owned());
    let config = setup.tls.clone().ok_or_else(|| {
        unusable(
            "an https:// URL needs --ca FILE (or DENDRA_CA): the CA that signed the node's certificate",
        )
    })?;
    let name = dendra_wire::hosts::name_of_authority(&address.authority).to_owned();
    let name = ServerName::try_from(name)
        .map_err(|_| unusable("the host of an https:// URL is no name that a certificate has"))?;
    Ok(Some(TlsTarget { config, name }))
}

/// Does a header line let one in?
fn is_token(field: &str) -> bool {
    field
        .split_once(':')
        .is_some_and(|(name, _)| name.eq_ignore_ascii_case("authorization"))
}

/// Runs an experiment.
pub struct Experiment<'a> {
    setup: &'a Setup,
    asked: Vec<DriverTarget>,
    admins: Vec<AdminPort>,
    stop: &'a StopFlag,
    watch: &'a mut dyn FnMut(News<'_>),
    run: Run,
    origin: Instant,
    next_index: u64,
    profiles: Vec<Result<TargetProfile, String>>,
}

impl fmt::Debug for Experiment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Experiment")
    }
}

/// Where requests of the measurement come from.
pub fn source_of(setup: &Setup) -> RequestSource {
    match &setup.ammo {
        Some((ammo, _)) => {
            RequestSource::ammo(ammo.clone(), setup.workload.sizes, setup.workload.seed)
        }
        None => RequestSource::workload(setup.workload.clone()),
    }
}

impl Setup {
    /// Why it cannot be run, as a sentence.
    ///
    /// # Errors
    /// `Unusable`.
    pub fn check(&self) -> Result<(), SetupError> {
        let unusable = SetupError::Unusable;
        self.workload.check().map_err(unusable)?;
        let length_s = self.duration_s;
        if self.mode == Mode::Open && self.recorded_instants().is_none() {
            self.shape.check(length_s).map_err(unusable)?;
        } else {
            Shape::Constant(1e6).check(length_s).map_err(unusable)?;
        }
        if self.urls.is_empty() {
            return Err(unusable("there is no target; give a URL".to_owned()));
        }
        if self.connections == 0 || self.connections < self.urls.len() as u32 * self.threads {
            return Err(unusable(format!(
                "{} connections do not reach {} targets from {} threads; give --connections at \
                 least the product",
                self.connections,
                self.urls.len(),
                self.threads
            )));
        }
        if !self.profiles.is_empty() && self.admins.len() < self.urls.len() {
            return Err(unusable(
                "--profile asks the admin port of each URL; give them in their order, such as --admin http://127.0.0.1:9080"
                    .to_owned(),
            ));
        }
        let constant = matches!(self.shape, Shape::Constant(_)) && self.mode == Mode::Open;
        if (self.find_max.is_some() || !self.overload.is_empty()) && !constant {
            return Err(unusable(
                "--find-max and --overload need an open loop with one --rate to start from"
                    .to_owned(),
            ));
        }
        if self
            .overload
            .iter()
            .any(|factor| !(*factor > 1.0 && factor.is_finite()))
        {
            return Err(unusable(
                "--overload takes factors above one, like 2x,5x".to_owned(),
            ));
        }
        Ok(())
    }

    fn recorded_instants(&self) -> Option<Vec<u64>> {
        let speed = self.replay_speed?;
        self.ammo.as_ref()?.0.instants(speed)
    }

    fn note(&self) -> WorkloadNote {
        let workload = &self.workload;
        let total: f64 = workload.mix.iter().sum();
        let shares = RequestKind::ALL
            .iter()
            .zip(workload.mix)
            .filter(|(_, weight)| *weight > 0.0)
            .map(|(operation, weight)| (operation.name().to_owned(), weight / total));
        WorkloadNote {
            name: self.workload_name.clone(),
            mix: if self.ammo.is_some() {
                Default::default()
            } else {
                shares.collect()
            },
            keys: workload.keys,
            distribution: format!("{:?}", workload.distribution),
            values: format!("{:?}", workload.sizes),
            miss_ratio: workload.miss_ratio,
            file: self.ammo.as_ref().map(|(_, name)| name.clone()),
        }
    }

    fn settings(&self) -> GeneratorSettings {
        GeneratorSettings {
            mode: self.mode,
            schedule: match (self.mode, self.spacing) {
                (Mode::Closed, _) => "closed".to_owned(),
                (_, Spacing::Even) => self.shape.to_string(),
                (_, Spacing::Poisson) => format!("{} poisson", self.shape),
            },
            rate: match self.mode {
                Mode::Open => mean_rate(&self.shape.stages(self.duration_s)),
                Mode::Closed => 0.0,
            },
            duration_s: self.duration_s,
            warmup_s: self.warmup_s,
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            timeout_ms: self.timeout.as_millis() as u64,
            seed: self.workload.seed,
            spins: self.idle == Idle::Spin,
        }
    }
}

/// Runs `setup` to its end, or until `stop`.
///
/// # Errors
/// When no sample was measured at all; see [`SetupError`].
pub fn run(
    setup: &Setup,
    stop: &StopFlag,
    watch: &mut dyn FnMut(News<'_>),
) -> Result<Run, SetupError> {
    setup.check()?;
    let mut targets = Vec::new();
    let mut asked = Vec::new();
    let mut admins = Vec::new();
    for (index, url) in setup.urls.iter().enumerate() {
        let address = Address::parse(url).map_err(SetupError::Unusable)?;
        let admin_url = setup.admins.get(index).filter(|text| !text.is_empty());
        if let Some(admin_url) = admin_url {
            let admin_address = Address::parse(admin_url).map_err(SetupError::Unusable)?;
            let fields = setup.style.fields.iter();
            let admin = AdminPort {
                tls: tls_of(setup, &admin_address)?,
                address: admin_address,
                fields: fields.filter(|field| is_token(field)).cloned().collect(),
            };
            if !setup.profiles.is_empty() {
                sampler::fetch(&admin, "/healthz", ADMIN_TIMEOUT).map_err(|sentence| {
                    SetupError::Down(format!(
                        "--profile asks the admin port, and {sentence}; give that port with --admin"
                    ))
                })?;
            }
            admins.push(admin);
        }
        targets.push(TargetServer {
            url: url.clone(),
            template: setup.style.path.clone().unwrap_or_default(),
            admin: admin_url.cloned(),
        });
        asked.push(DriverTarget {
            socket: address.socket,
            tls: tls_of(setup, &address)?,
            templates: Templates::new(&setup.style, &address.authority, &address.path),
        });
    }
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let run = Run {
        format: FORMAT,
        tool: setup.tool.clone(),
        command: setup.command.clone(),
        started_unix_ms: since_1970.as_millis() as u64,
        length_s: 0.0,
        machine: machine::machine(),
        settings: setup.settings(),
        workload: setup.note(),
        targets,
        verdict: Validity::Valid,
        is_cut: false,
        notes: Vec::new(),
        phases: Vec::new(),
        servers: Vec::new(),
        search: None,
        overload: None,
        profiles: Vec::new(),
    };
    let experiment = Experiment {
        setup,
        asked,
        admins,
        stop,
        watch,
        run,
        origin: Instant::now(),
        next_index: 0,
        profiles: Vec::new(),
    };
    experiment.run_with_samples()
}

impl Experiment<'_> {
    fn run_with_samples(mut self) -> Result<Run, SetupError> {
        let is_over = AtomicBool::new(false);
        let admins = self.admins.clone();
        let origin = self.origin;
        let outcome = std::thread::scope(|scope| {
            let samplers: Vec<_> = admins
                .iter()
                .enumerate()
                .map(|(target, address)| {
                    let is_over = &is_over;
                    scope.spawn(move || sampler::sample(target, address, origin, is_over))
                })
                .collect();
            let outcome = self.stages();
            is_over.store(true, Relaxed);
            let joined = samplers.into_iter().map(|thread| thread.join());
            let servers: Vec<ServerSeries> = joined
                .map(|server| server.expect("a sampler does not panic"))
                .collect();
            (outcome, servers)
        });
        let (outcome, servers) = outcome;
        for server in &servers {
            if server.at_s.is_empty() {
                self.run.notes.push(format!(
                    "the admin port of target {} gave no samples; is --admin right?",
                    server.target
                ));
            }
        }
        self.run.servers = servers;
        for profile in std::mem::take(&mut self.profiles) {
            match profile {
                Ok(profile) => self.run.profiles.push(profile),
                Err(sentence) => self.run.notes.push(format!("no profile: {sentence}")),
            }
        }
        self.run.length_s = self.origin.elapsed().as_secs_f64();
        self.run.verdict = verdict::judge_run(&self.run.phases, self.run.search.as_ref());
        match outcome {
            Ok(()) => Ok(self.run),
            // Earlier measurements are kept.
            Err(error) if self.run.phases.is_empty() => Err(error),
            Err(error) => {
                self.run.notes.push(error.to_string());
                self.run.is_cut = true;
                Ok(self.run)
            }
        }
    }

    fn stages(&mut self) -> Result<(), SetupError> {
        if self.setup.preloads {
            self.preload()?;
        }
        let mut base_rate = 0.0;
        if let Some(slo) = &self.setup.find_max {
            if !self.is_cut() {
                base_rate = self.find_max(slo)?;
            }
        } else if !self.is_cut() {
            base_rate = self.measure()?;
        }
        self.profile(base_rate)?;
        if self.setup.overload.is_empty() || self.is_cut() || base_rate <= 0.0 {
            return Ok(());
        }
        let is_limited = |search: &SearchCourse| search.generator_limit.is_some();
        if self.run.search.as_ref().is_some_and(is_limited) {
            let note = "no overload was tried: the generator cannot even reach the knee";
            self.run.notes.push(note.to_owned());
            return Ok(());
        }
        self.overload(base_rate)?;
        Ok(())
    }

    fn is_cut(&self) -> bool {
        self.run.is_cut || self.stop.is_asked()
    }

    fn plan(
        &self,
        phases: Vec<Vec<Slope>>,
        pace: ArrivalProcess,
        source: RequestSource,
    ) -> DriverPlan {
        DriverPlan {
            phases,
            pace,
            source,
            first_index: self.next_index,
            targets: self.asked.clone(),
            connections: self.setup.connections,
            threads: self.setup.threads,
            pipeline: self.setup.pipeline,
            timeout: self.setup.timeout,
            order: QueueOrder::OldestFirst,
            idle: self.setup.idle,
            lag_limit_us: SEND_LAG_LIMIT_US,
            seed: self
                .setup
                .workload
                .seed
                .wrapping_add(self.run.phases.len() as u64),
            keeps_failures: false,
            redirects: self.setup.redirects,
        }
    }

    /// Drives a plan while the watcher is told; adds its phases to the run under these names and
    /// kinds.
    fn drive(
        &mut self,
        plan: &DriverPlan,
        names: &[(String, PhaseKind)],
    ) -> Result<Drive, SetupError> {
        let length_s = plan.ends_ns().last().map_or(0.0, |&ns| ns as f64 / 1e9);
        let count = match plan.pace {
            ArrivalProcess::Closed(count) => count,
            ArrivalProcess::Open(_) | ArrivalProcess::Recorded(_) => None,
        };
        let is_overload =
            |kind: PhaseKind| matches!(kind, PhaseKind::Overload | PhaseKind::Recovery);
        let name = match names.last() {
            Some((_, kind)) if is_overload(*kind) => "overload",
            Some((name, _)) => name.as_str(),
            None => "",
        };
        let mut course = PhaseNews::new(plan.ends_ns(), names);
        (self.watch)(News::Begin {
            name,
            length_s,
            count,
        });
        let progress = RunProgress::default();
        let silence_s = self.setup.timeout.as_secs_f64() + SILENCE_S;
        let silence = StopFlag::default();
        let mut origin_s = None;
        let driven = {
            let (watch, stop, origin) = (&mut self.watch, self.stop, self.origin);
            plan.drive(&silence, &progress, |at_s| {
                origin_s.get_or_insert_with(|| origin.elapsed().as_secs_f64() - at_s);
                let answered = progress.answered.load(Relaxed);
                if stop.is_asked() || (answered == 0 && at_s > silence_s) {
                    silence.ask();
                }
                let (planned, errors) = (
                    progress.planned.load(Relaxed),
                    progress.errors.load(Relaxed),
                );
                if let Some(line) = course.passed(at_s, [planned, answered, errors]) {
                    watch(News::Line(&line));
                }
                watch(News::Tick {
                    at_s,
                    planned,
                    answered,
                    errors,
                });
            })
        };
        (self.watch)(News::End);
        let drive = driven.map_err(|error| match error {
            DriveError::Down { target, reason } => SetupError::Down(format!(
                "{} cannot be reached ({reason}); is the server running, and is the port right?",
                self.setup.urls[target]
            )),
            DriveError::System(_) => SetupError::System(error.to_string()),
        })?;
        let origin_s = origin_s.unwrap_or_else(|| self.origin.elapsed().as_secs_f64());
        self.next_index = drive.next_index;
        self.add_phases(plan, &drive, names, origin_s);
        self.note_end(&drive, name);
        Ok(drive)
    }

    /// Adds the phases of a drive to the run.
    fn add_phases(
        &mut self,
        plan: &DriverPlan,
        drive: &Drive,
        names: &[(String, PhaseKind)],
        origin_s: f64,
    ) {
        for ((record, (name, kind)), stages) in drive.phases.iter().zip(names).zip(&plan.phases) {
            if *kind == PhaseKind::Warmup {
                continue;
            }
            let mut phase = record.finish(name.clone(), *kind, origin_s, plan.lag_limit_us);
            let mode = match plan.pace {
                ArrivalProcess::Closed(_) => Mode::Closed,
                ArrivalProcess::Open(_) | ArrivalProcess::Recorded(_) => Mode::Open,
            };
            if matches!(plan.pace, ArrivalProcess::Closed(Some(_))) {
                phase.length_s = drive.length_s;
            }
            phase.rate = match &plan.pace {
                ArrivalProcess::Open(_) => mean_rate(stages),
                ArrivalProcess::Recorded(_) => {
                    phase.counts.planned as f64 / phase.length_s.max(1e-9)
                }
                ArrivalProcess::Closed(_) => 0.0,
            };
            phase.verdict = verdict::of(mode, phase.counts.sent, &phase.generator);
            self.run.phases.push(phase);
        }
    }

    /// Notes what went wrong in a drive.
    fn note_end(&mut self, drive: &Drive, name: &str) {
        if drive.is_cut {
            self.run.is_cut = true;
            if !self.stop.is_asked() {
                let note = "the run was cut: nothing was answered";
                self.run.notes.push(note.to_owned());
            }
        }
        if let Some(refusal) = &drive.refusal {
            let note = format!("the first answer that refused was {refusal}");
            // A search meets the same one in many steps.
            if !self.run.notes.iter().any(|known| known.ends_with(&note)) {
                self.run.notes.push(format!("{name}: {note}"));
            }
        }
        if let Some(trouble) = &drive.trouble {
            self.run
                .notes
                .push(format!("{name}: the first trouble was: {trouble}"));
        }
    }

    /// Writes every record once; refused ones are written again.
    fn preload(&mut self) -> Result<(), SetupError> {
        let workload = &self.setup.workload;
        let mut source = RequestSource::preload(workload.clone());
        let mut count = workload.keys;
        let day = vec![vec![Slope {
            length_s: 86_400.0,
            from: 0.0,
            to: 0.0,
        }]];
        let name = format!("preload of {count} records");
        let mut again = Again::of(count, workload.seed);
        for pass in 1.. {
            self.next_index = 0;
            let mut plan = self.plan(
                day.clone(),
                ArrivalProcess::Closed(Some(count)),
                source.clone(),
            );
            plan.pipeline = 1;
            plan.keeps_failures = true;
            let name = match pass {
                1 => name.clone(),
                _ => format!("preload, pass {pass}"),
            };
            let drive = self.drive(&plan, &[(name, PhaseKind::Preload)])?;
            self.next_index = 0;
            let refused = drive.failures.len() as u64;
            if refused == 0 || self.is_cut() {
                return Ok(());
            }
            let (taken, pause) = again.take(refused).unwrap_or_default();
            if taken < refused {
                let missing = refused - taken;
                let words = "records could not be written, and were not tried again; reads of them are misses";
                self.run.notes.push(format!("{missing} {words}"));
            }
            if taken == 0 {
                return Ok(());
            }
            let failures = drive.failures.iter().take(taken as usize);
            let numbers: Vec<u64> = failures.map(|&index| source.preloaded(index)).collect();
            count = taken;
            source = source.again(numbers);
            std::thread::sleep(pause);
        }
        Ok(())
    }

    /// The planned rate, where there is one.
    fn measure(&mut self) -> Result<f64, SetupError> {
        let setup = self.setup;
        let flat = |length_s: f64, rate: f64| {
            vec![Slope {
                length_s,
                from: rate,
                to: rate,
            }]
        };
        let mut names = vec![("measure".to_owned(), PhaseKind::Measure)];
        let stages = setup.shape.stages(setup.duration_s);
        let (pace, mut phases) = match (setup.mode, setup.recorded_instants()) {
            (Mode::Closed, _) => (
                ArrivalProcess::Closed(None),
                vec![flat(setup.duration_s, 0.0)],
            ),
            (Mode::Open, None) => (ArrivalProcess::Open(setup.spacing), vec![stages.clone()]),
            (Mode::Open, Some(instants)) => {
                let length_s = instants.last().map_or(0.0, |&ns| ns as f64 / 1e9 + 1e-3);
                let length_s = length_s.min(setup.duration_s);
                (
                    ArrivalProcess::Recorded(instants.into()),
                    vec![flat(length_s, 0.0)],
                )
            }
        };
        if setup.warmup_s > 0.0 && !matches!(pace, ArrivalProcess::Recorded(_)) {
            let first = stages.first().map_or(0.0, |stage| stage.from);
            phases.insert(0, flat(setup.warmup_s, first));
            names.insert(0, ("warm-up".to_owned(), PhaseKind::Warmup));
        }
        let plan = self.plan(phases, pace, source_of(setup));
        self.drive(&plan, &names)?;
        Ok(self.run.phases.last().map_or(0.0, |phase| phase.rate))
    }

    /// The load of before once more, at `rate` in an open loop, while profiles are taken. So their
    /// cost to the target is not in the figures of before.
    fn profile(&mut self, rate: f64) -> Result<(), SetupError> {
        let setup = self.setup;
        let is_open = setup.mode == Mode::Open;
        if setup.profiles.is_empty() || self.is_cut() || (is_open && rate <= 0.0) {
            return Ok(());
        }
        let seconds = (setup.duration_s as u64).clamp(1, PROFILE_S_MAX);
        let length_s = PROFILE_DELAY.as_secs_f64() + seconds as f64;
        let pace = if is_open {
            ArrivalProcess::Open(setup.spacing)
        } else {
            ArrivalProcess::Closed(None)
        };
        let phases = vec![Shape::Constant(rate).stages(length_s)];
        let plan = self.plan(phases, pace, source_of(setup));
        let name = "with profiles".to_owned();
        self.with_profiles(seconds, |experiment| {
            experiment
                .drive(&plan, &[(name, PhaseKind::Profiled)])
                .map(drop)
        })
    }

    /// Does `work` while profiles of so many seconds are taken, soon after its beginning.
    fn with_profiles(
        &mut self,
        seconds: u64,
        work: impl FnOnce(&mut Self) -> Result<(), SetupError>,
    ) -> Result<(), SetupError> {
        let setup = self.setup;
        let origin = self.origin;
        let admins = self.admins.clone();
        let is_over = AtomicBool::new(false);
        let (outcome, profiles) = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (target, address) in admins.iter().enumerate() {
                for kind in &setup.profiles {
                    let is_over = &is_over;
                    threads.push(scope.spawn(move || {
                        let begin = Instant::now() + PROFILE_DELAY;
                        while Instant::now() < begin {
                            if is_over.load(Relaxed) {
                                return Err("the load was over before it began".to_owned());
                            }
                            std::thread::park_timeout(Duration::from_millis(20));
                        }
                        sampler::profile(target, address, kind, seconds, origin)
                    }));
                }
            }
            let outcome = work(self);
            is_over.store(true, Relaxed);
            let joined = threads.into_iter().map(|thread| thread.join());
            let profiles: Vec<_> = joined
                .map(|profile| profile.expect("a profiler's thread does not panic"))
                .collect();
            (outcome, profiles)
        });
        self.profiles.extend(profiles);
        outcome
    }

    /// The highest rate that holds the objective in all its runs. Its course is in the run, however
    /// it ends.
    fn find_max(&mut self, slo: &Slo) -> Result<f64, SetupError> {
        let start = self.run.settings.rate;
        let mut course = Course::new(&slo.to_string(), start, RATE_MAX);
        let (mut is_cut, mut trouble) = (false, None);
        while let SearchDecision::Try(rate, why) = course.decide() {
            match self.try_rate(slo, rate, why) {
                Ok(Some(step)) => course.saw(step),
                Ok(None) => is_cut = true,
                Err(error) => (is_cut, trouble) = (true, Some(error)),
            }
            if is_cut {
                break;
            }
        }
        let found = course.search(is_cut);
        (self.watch)(News::Line(&format!("saturation: {}", found.sentence)));
        let low = found.knee_low;
        self.run.search = Some(found);
        trouble.map_or(Ok(low), Err)
    }

    fn try_rate(
        &mut self,
        slo: &Slo,
        rate: f64,
        why: SearchWhy,
    ) -> Result<Option<SearchStep>, SetupError> {
        if self.is_cut() {
            return Ok(None);
        }
        let setup = self.setup;
        let number = self
            .run
            .phases
            .iter()
            .filter(|p| p.kind == PhaseKind::Search)
            .count()
            + 1;
        let name = format!("search {number}: {rate:.0}/s");
        let flat = |length_s: f64| Shape::Constant(rate).stages(length_s);
        let warmup_s = setup.warmup_s.max(0.2).min(setup.duration_s);
        let phases = vec![flat(warmup_s), flat(setup.duration_s)];
        let plan = self.plan(
            phases,
            ArrivalProcess::Open(setup.spacing),
            source_of(setup),
        );
        let names = [
            ("warm-up".to_owned(), PhaseKind::Warmup),
            (name, PhaseKind::Search),
        ];
        self.drive(&plan, &names)?;
        if self.is_cut() {
            return Ok(None);
        }
        let index = self.run.phases.len() - 1;
        let phase = &self.run.phases[index];
        let judged = match &phase.verdict {
            Validity::Valid => slo.check(phase),
            Validity::Invalid { reason } => Err(reason.clone()),
        };
        let p99_us = all_operations(phase, |op| &op.response).map_or(0.0, |histogram| {
            histogram.value_at_percentile(99.0) as f64 / 1000.0
        });
        let step = SearchStep {
            rate,
            why,
            phase: index,
            is_met: judged.is_ok(),
            is_void: !phase.verdict.is_valid(),
            reason: judged.err().unwrap_or_default(),
            goodput: phase.counts.ok as f64 / phase.length_s.max(1e-9),
            p99_us,
        };
        let word = match (step.is_met, step.is_void) {
            (true, _) => "holds",
            (_, true) => "void",
            (_, false) => "fails",
        };
        let mut line = format!(
            "{:>9.0}/s {word}: goodput {:.0}/s, p99 {:.2} ms",
            rate,
            step.goodput,
            step.p99_us / 1000.0
        );
        // Without the advice, which the answer repeats.
        if let Some(reason) = step.reason.split(';').next().filter(|r| !r.is_empty()) {
            line.push_str("; ");
            line.push_str(reason);
        }
        (self.watch)(News::Line(&line));
        std::thread::sleep(PAUSE.min(Duration::from_secs_f64(setup.duration_s)));
        Ok(Some(step))
    }
}
