//! One measured stretch of load on one server: what it answered and what that cost.
//!
//! ```text
//! connect ─► warm-up, not counted ─► snapshot ─► measured seconds ─► snapshot ─► drain, close
//! ```
//!
//! Invariants
//! 1. Cost = CPU time of all threads of the server, user and system, flush and compaction included,
//!    divided by the answers of the same stretch.
//! 2. Instructions and cycles are of the same threads and the same stretch, where the machine counts.
//! 3. A window says how quiet the machine was: time stolen by the hypervisor, and CPU that neither
//!    the server nor the generator used.
//!
//! Not here: pairing and rounds (`rows/`).
//! See: docs/lab/README.md.

use crate::Result;
use crate::counters::Counters;
use crate::load::{Load, Tally, Workload};
use crate::procfs::{self, CpuSnapshot};
use crate::server::Server;
use std::collections::BTreeMap;
use std::time::Duration;

/// Unmeasured load in front of every window: connections, caches, CPU frequency.
const WARM_UP: Duration = Duration::from_millis(400);
/// Share of one core that others may use, or the hypervisor may take, in a quiet window. The
/// kernel's own threads, that write a server's dirty pages, count as others.
const QUIET_SHARE_MAX: f64 = 0.10;
/// Share of its time above which the generator may have been the bottleneck.
const GENERATOR_SHARE_MAX: f64 = 0.90;

/// How requests are paced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// The next one when the last is answered.
    Closed,
    /// So many a second, whatever happens.
    Open { rate: f64 },
}

/// What one window measured.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Answers a second.
    pub(crate) rate: f64,
    /// Server CPU for each answer, in µs.
    pub(crate) cpu_us: f64,
    /// The same by kind of thread.
    pub(crate) cpu_us_by_name: BTreeMap<String, f64>,
    /// Thousands of instructions and of cycles for each answer, user and kernel mode.
    pub(crate) kinstructions: Option<f64>,
    pub(crate) kcycles: Option<f64>,
    /// Latency in µs: median, 99 %, 99.9 %.
    pub(crate) latency_us: [f64; 3],
    /// Open loop: 99.9 % of the generator's own lateness in µs.
    pub(crate) lag_us: f64,
    /// Share of the window in which the generator had something to do; it spins for the rest.
    pub(crate) generator_share: f64,
    /// Share of one core that neither server nor generator used.
    pub(crate) other_share: f64,
    /// Share of one core that the hypervisor took.
    pub(crate) steal_share: f64,
}

impl Window {
    /// Was nothing else going on?
    pub(crate) fn is_quiet(&self) -> bool {
        self.other_share <= QUIET_SHARE_MAX && self.steal_share <= QUIET_SHARE_MAX
    }

    /// Could the server have gone faster with another generator?
    pub(crate) fn is_generator_bound(&self) -> bool {
        self.generator_share > GENERATOR_SHARE_MAX
    }
}

/// Runs one window of `length` on `server`.
pub(crate) fn measure(
    server: &Server,
    workload: Workload,
    pace: Pace,
    length: Duration,
) -> Result<Window> {
    measure_load(server, workload, pace, length).map_err(|error| server.failure(&error.to_string()))
}

fn measure_load(
    server: &Server,
    workload: Workload,
    pace: Pace,
    length: Duration,
) -> Result<Window> {
    let mut load = Load::connect(workload)?;
    let mut run = |length| match pace {
        Pace::Closed => load.closed(length),
        Pace::Open { rate } => load.open(rate, length),
    };
    run(WARM_UP)?;
    let generator = procfs::own_thread_ns()?;
    let machine = procfs::machine_ticks()?;
    let mut counters = Counters::of(server.pid());
    let cpu = CpuSnapshot::of(server.pid())?;
    let tally = run(length)?;
    let cpu = procfs::cpu_between(&cpu, &CpuSnapshot::of(server.pid())?);
    let counted = counters.as_mut().and_then(Counters::read);
    let machine_after = procfs::machine_ticks()?;
    let generator_ns = procfs::own_thread_ns()? - generator;
    load.drain()?;

    let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let window_ns = tally.elapsed.as_nanos() as f64;
    let busy_ns = (machine_after.busy - machine.busy) * ns_per_tick;
    let other_ns = busy_ns.saturating_sub(cpu.total_ns + generator_ns);
    let steal_ns = (machine_after.steal - machine.steal) * ns_per_tick;
    let by_answer = |ns: u64| ns as f64 / 1000.0 / tally.answers as f64;
    let thousands = |count: f64| count / 1000.0 / tally.answers as f64;
    Ok(Window {
        rate: tally.answers as f64 / tally.elapsed.as_secs_f64(),
        cpu_us: by_answer(cpu.total_ns),
        cpu_us_by_name: cpu
            .by_name
            .iter()
            .map(|(name, ns)| (name.clone(), by_answer(*ns)))
            .collect(),
        kinstructions: counted.map(|counted| thousands(counted.instructions)),
        kcycles: counted.map(|counted| thousands(counted.cycles)),
        latency_us: latencies(&tally),
        lag_us: tally.lag_ns.value_at_quantile(0.999) as f64 / 1000.0,
        generator_share: 1.0 - tally.idle.as_nanos() as f64 / window_ns,
        other_share: other_ns as f64 / window_ns,
        steal_share: steal_ns as f64 / window_ns,
    })
}

fn latencies(tally: &Tally) -> [f64; 3] {
    [0.5, 0.99, 0.999].map(|share| tally.latency_ns.value_at_quantile(share) as f64 / 1000.0)
}
