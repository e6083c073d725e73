//! Row `tail`: what flushes and compactions do to the slowest requests.
//!
//! ```text
//! calm   all written bytes fit the memtable      no table is made in a window
//! busy   a memtable of 2 MiB                     flushes and compactions all the time
//! both   the same data in tables, the same mix (one PUT in two), the same open-loop rate:
//!        70 % of the knee, which is searched with the busy one in an open loop
//! ```
//!
//! Invariants
//! 1. The rate is the same for both, fixed before the first window, and latency counts from the
//!    planned instant.
//! 2. The notes say how many tables were made meanwhile, and when the generator itself was too late
//!    for its figures to mean anything.
//!
//! 3. The knee is a rate that was held, never an extrapolation.
//!
//! Not here: the search with confidence under any objective: that is the lab's work, not a yardstick's.
//! See: docs/lab/README.md.

use super::{Bound, Plan, Row, Variant, preload};
use crate::Result;
use crate::keys::Keys;
use crate::load::{Stored, Workload};
use crate::server::Server;
use crate::stats::Spread;
use crate::window::{self, Pace};
use std::fs;
use std::path::Path;
use std::time::Duration;

const SHARE_OF_KNEE: f64 = 0.7;
/// The knee is searched downwards from what a closed loop reaches, in steps of a twentieth of it. A
/// closed loop waits for the server and so collects larger batches: no schedule can be held at its rate.
const KNEE_STEPS: u32 = 20;
/// A step is held when p99 stays below this and all that was planned was answered.
const KNEE_P99_US: f64 = 10_000.0;
const KNEE_ANSWERED: f64 = 0.99;
/// A step counts as not held when it failed so often: a neighbour's burst is not the server's limit.
const KNEE_ATTEMPTS: u32 = 2;
const PUT_PERCENT: u64 = 50;
/// Share of p99.9 that the generator's own p99.9 lateness may make up.
const LAG_SHARE_MAX: f64 = 0.1;
/// Tails need samples, and a window must hold several flushes.
const WINDOWS_LONGER: u32 = 2;
const CALM: [&str; 4] = ["--memory", "2GiB", "--memtable", "256MiB"];
const BUSY: [&str; 4] = ["--memory", "2GiB", "--memtable", "2MiB"];

/// p99.9 at 70 % of the knee, with and without background work.
pub(crate) fn tail(plan: &Plan) -> Result<Row> {
    let question = "As many GETs as PUTs at 70 % of the knee, open loop: what do flushes and \
                    compactions do to p99.9?";
    let mut row = Row::new("tail", question);
    for (durability, calm, busy) in [
        ("os", "calm os", "busy os"),
        ("sync", "calm sync", "busy sync"),
    ] {
        tail_for(plan, &mut row, durability, calm, busy)?;
    }
    Ok(row)
}

fn tail_for(
    plan: &Plan,
    row: &mut Row,
    durability: &str,
    calm: &'static str,
    busy: &'static str,
) -> Result<()> {
    let busy_folder = format!("tail-busy-{durability}");
    let calm_folder = format!("tail-calm-{durability}");
    let with = |options: [&'static str; 4]| [&["--durability", durability], &options[..]].concat();
    let Some(busy_server) = row.started(plan.dendra(busy, &busy_folder, &with(BUSY))) else {
        return Ok(());
    };
    preload(&busy_server, plan.keys)?;
    // Filled and started again: what the calm one reads lies in tables too.
    let filler = plan.dendra(calm, &calm_folder, &with(CALM))?;
    preload(&filler, plan.keys)?;
    filler.stop()?;
    let calm_server = plan.dendra(calm, &calm_folder, &with(CALM))?;

    let length = plan.length * WINDOWS_LONGER;
    let keys = Keys::Uniform { count: plan.keys };
    let workload = |server: &Server| plan.workload(server, keys, PUT_PERCENT, Stored::Yes);
    let closed = window::measure(&busy_server, workload(&busy_server), Pace::Closed, length)?.rate;
    let knee = knee(&busy_server, workload(&busy_server), closed, plan.length)?;
    let rate = SHARE_OF_KNEE * knee;
    row.note(format!(
        "{durability}: {} connections in a closed loop reach {closed:.0}/s; on a schedule {knee:.0}/s \
         are held with p99 below {:.0} ms, so {rate:.0}/s are sent",
        plan.connections,
        KNEE_P99_US / 1000.0
    ));
    let pace = Pace::Open { rate };
    let variants = [&calm_server, &busy_server].map(|server| Variant {
        name: server.name,
        server,
        workload: workload(server),
        pace,
    });
    let before = [&calm_folder, &busy_folder].map(|folder| newest_table(&plan.data(folder)));
    row.run(plan, &variants, length)?;
    let after = [&calm_folder, &busy_folder].map(|folder| newest_table(&plan.data(folder)));
    let made = [after[0] - before[0], after[1] - before[1]];
    row.note(format!(
        "{durability}: numbers given to new files in {:.0} s of load: calm {}, busy {}",
        (length * plan.rounds as u32).as_secs_f64(),
        made[0],
        made[1]
    ));
    if made[1] < plan.rounds as u64 {
        row.note(format!(
            "{durability}: the busy one was not busy; the ratio means nothing"
        ));
    }
    let late = [calm, busy].iter().any(|name| {
        let lag = row.values(name, |w| Some(w.lag_us / w.latency_us[2]));
        lag.and_then(Spread::of)
            .is_some_and(|share| share.median > LAG_SHARE_MAX)
    });
    if late {
        row.note(format!(
            "{durability}: the generator itself was late for more than a tenth of p99.9: something \
             else ran on this machine, and the ratio means little"
        ));
    }
    row.ratio(busy, calm, "p99.9", |w| w.latency_us[2], Bound::AtMost(2.0));
    row.ratio(busy, calm, "p99", |w| w.latency_us[1], Bound::Shown);
    row.ratio(busy, calm, "CPU a request", |w| w.cpu_us, Bound::Shown);
    Ok(())
}

/// The highest rate on a schedule that `server` holds, searched downwards from `closed`.
fn knee(server: &Server, workload: Workload, closed: f64, length: Duration) -> Result<f64> {
    for step in (1..=KNEE_STEPS).rev() {
        let rate = closed * f64::from(step) / f64::from(KNEE_STEPS);
        for _ in 0..KNEE_ATTEMPTS {
            let window = window::measure(server, workload, Pace::Open { rate }, length)?;
            if window.latency_us[1] <= KNEE_P99_US && window.rate >= KNEE_ANSWERED * rate {
                return Ok(rate);
            }
        }
    }
    Err(format!(
        "no rate down to {:.0}/s is held with p99 below {:.0} ms",
        closed / f64::from(KNEE_STEPS),
        KNEE_P99_US / 1000.0
    )
    .into())
}

/// Largest number in the name of a table of this folder; tables are numbered as they are made.
fn newest_table(folder: &Path) -> u64 {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            u64::from_str_radix(name.strip_suffix(".tbl")?, 16).ok()
        })
        .max()
        .unwrap_or(0)
}
