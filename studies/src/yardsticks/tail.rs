//! Row `tail`: the effect of flushes and compactions on the slowest requests.
//!
//! ```text
//! calm   all written bytes fit the memtable      no table is made in a window
//! busy   a memtable of 2 MiB                     flushes and compactions all the time
//! both   the same data in tables, the same mix (one PUT in two), the same open-loop rate:
//!        70 % of the knee, which `--find-max` finds with the busy one
//! ```
//!
//! Invariants
//! 1. The rate is the same for both, fixed before the first window, and latency counts from the
//!    planned instant.
//! 2. The notes say how many tables were made meanwhile, and when the generator itself was too late
//!    for its figures to mean anything.
//! 3. The knee is a rate that was held, never an extrapolation.
//!
//! Not here: rounds and ratios (`row.rs`).
//! See: docs/lab/README.md.

use super::row::{Plan, Row, Variant};
use super::window::Load;
use crate::goals::Bound;
use crate::run::Bench;
use crate::stats::Spread;
use crate::store::Store;
use crate::tables::newest;

pub(super) const QUESTION: &str = "As many GETs as PUTs at 70 % of the knee, open loop: what do flushes \
                                   and compactions do to p99.9?";

const SHARE_OF_KNEE: f64 = 0.7;
const OBJECTIVE: &str = "p99<10ms,errors<0.1%";
/// Where the search begins, requests a second.
const RATE_FIRST: u32 = 4_000;
const MIX: &str = "--workload mixed --mix get=0.5,put=0.5";
/// Share of p99.9 that the generator's own p99.9 lateness may make up.
const LAG_SHARE_MAX: f64 = 0.1;
/// Tails need samples, and a window must hold several flushes.
const WINDOWS_LONGER: f64 = 2.0;
const CALM: [&str; 4] = ["--memory", "2GiB", "--memtable", "256MiB"];
const BUSY: [&str; 4] = ["--memory", "2GiB", "--memtable", "2MiB"];

/// p99.9 at 70 % of the knee, with and without background work.
pub(super) fn tail(plan: &Plan<'_>, row: &mut Row) -> Result<(), String> {
    tail_of(plan, row, "os", "calm os", "busy os")?;
    tail_of(plan, row, "sync", "calm sync", "busy sync")
}

fn tail_of(
    plan: &Plan<'_>,
    row: &mut Row,
    durability: &str,
    calm: &'static str,
    busy: &'static str,
) -> Result<(), String> {
    let busy_folder = format!("tail-busy-{durability}");
    let calm_folder = format!("tail-calm-{durability}");
    let with = |options: [&'static str; 4]| [&["--durability", durability], &options[..]].concat();
    let busy_server = plan.dendra(&busy_folder, &with(BUSY))?;
    busy_server.load(plan.place, &plan.records(plan.keys))?;
    // Filled and started again: its records, too, are in tables then.
    let filler = plan.dendra(&calm_folder, &with(CALM))?;
    filler.load(plan.place, &plan.records(plan.keys))?;
    filler.stop()?;
    let calm_server = plan.dendra(&calm_folder, &with(CALM))?;

    let asks = format!("{MIX} --keys {} --connections 256", plan.keys);
    let found = Bench::new(plan.place, &busy_server.url, &plan.place.folder.join("run"))
        .with(&asks)
        .with(&format!("--find-max --slo {OBJECTIVE} --rate {RATE_FIRST}"))
        .with(&format!("--warmup 200ms --duration {}s", plan.length_s))
        .attempts(1)
        .run()?;
    let knee = found.knee.filter(|knee| *knee > 0.0);
    let knee = knee.ok_or_else(|| format!("{durability}: {}", found.knee_words))?;
    let rate = SHARE_OF_KNEE * knee;
    row.note(format!(
        "{durability}: {knee:.0}/s are held with {OBJECTIVE}, so {rate:.0}/s are sent"
    ));
    let load = Load::Bench(format!("{asks} --rate {rate:.0}"));
    let variants = [(calm, &calm_server), (busy, &busy_server)].map(|(name, server)| Variant {
        name,
        server,
        load: load.clone(),
    });
    let numbers = || -> Result<[u64; 2], String> {
        Ok([
            newest(&plan.data(&calm_folder))?,
            newest(&plan.data(&busy_folder))?,
        ])
    };
    let length_s = plan.length_s * WINDOWS_LONGER;
    let before = numbers()?;
    row.run(plan, &variants, length_s, || Ok(()))?;
    let after = numbers()?;
    let made = [after[0] - before[0], after[1] - before[1]];
    row.note(format!(
        "{durability}: numbers given to new files in {:.0} s of load: calm {}, busy {}",
        length_s * f64::from(plan.rounds),
        made[0],
        made[1]
    ));
    if made[1] < u64::from(plan.rounds) {
        row.note(format!(
            "{durability}: the busy one was not busy; the ratio means nothing"
        ));
    }
    let is_late = [calm, busy].iter().any(|name| {
        let lag = row.values(name, |w| Some(w.lag_us / w.latency_us[2].max(1e-9)));
        lag.and_then(Spread::of)
            .is_some_and(|share| share.median > LAG_SHARE_MAX)
    });
    if is_late {
        row.note(format!(
            "{durability}: the generator itself was late for more than a tenth of p99.9: something \
             else ran on this machine, and the ratio means little"
        ));
    }
    row.ratio(
        busy,
        calm,
        "p99.9",
        |w| Some(w.latency_us[2]),
        Bound::AtMost(2.0),
    );
    row.ratio(busy, calm, "p99", |w| Some(w.latency_us[1]), Bound::Shown);
    row.cost(busy, calm, "CPU a request", Bound::Shown);
    Ok(())
}
