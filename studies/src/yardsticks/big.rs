//! Row `big`: ten million keys behind 256 MiB of memory.
//!
//! ```text
//! hot      1,000 keys again and again      in the cache
//! cold     any of all keys                 on disk, in the page cache of the kernel
//! absent   keys between the stored ones    nowhere: filters should know
//! ```
//!
//! Invariants
//! 1. Keys are written in an order far from sorted, so that levels overlap and compaction works.
//! 2. Reads are measured after background work has come to rest.
//! 3. Every round starts with all tables in the page cache.
//! 4. Resident memory is the most the process ever had, the load included.
//!
//! Not here: reads that must go to the disk itself.
//! See: docs/lab/README.md.

use super::row::{Plan, Row, Variant};
use super::window;
use crate::goals::Bound;
use crate::store::Store;
use crate::tables::read_all;
use std::time::Duration;

pub(super) const QUESTION: &str = "Ten million keys of 100 bytes with `--memory 256MiB`: how much memory, \
                                   and what does a GET cost that is not in the cache?";

const HOT: &str = "hot";
const COLD: &str = "cold";
const ABSENT: &str = "absent";
const HOT_KEYS: u32 = 1000;
const RESIDENT_MIB_MAX: f64 = 400.0;
/// Windows of cold reads before the first measured one.
const FILL_WINDOWS: f64 = 3.0;
const REST_MAX: Duration = Duration::from_secs(300);

/// Memory and read cost of a data set that is much larger than `--memory`.
pub(super) fn big(plan: &Plan<'_>, row: &mut Row) -> Result<(), String> {
    let keys = plan.big_keys;
    let options = ["--durability", "os", "--memory", "256MiB"];
    let server = plan.dendra("big", &options)?;
    let loaded = server.load(plan.place, &plan.records(keys))?;
    row.note(format!(
        "{keys} keys written in {:.0} s ({:.0}/s, 256 requests in flight), {} refusals repeated",
        loaded.length_s,
        f64::from(keys) / loaded.length_s.max(1e-9),
        loaded.refused
    ));
    row.note(match server.rest(REST_MAX) {
        Some(after) => format!("background work at rest {:.0} s later", after.as_secs_f64()),
        None => format!("background work was still going on {REST_MAX:?} later"),
    });
    let get = format!("--workload get --keys {keys}");
    let hot = f64::from(HOT_KEYS.min(keys)) / f64::from(keys);
    let variants = [
        (HOT, format!("{get} --distribution hotspot:{hot},1")),
        (COLD, get.clone()),
        (ABSENT, format!("{get} --miss-ratio 1")),
    ]
    .map(|(name, asks)| Variant {
        name,
        server: &server,
        load: plan.closed(&asks),
    });
    let data = plan.data("big");
    read_all(&data)?;
    // Fills the engine's cache: as long as it grows, every block read costs a page of fresh memory.
    let length_s = plan.length_s * FILL_WINDOWS;
    window::measure(plan.place, &server, &variants[1].load, length_s)?;
    row.run(plan, &variants, plan.length_s, || read_all(&data))?;
    row.cost(COLD, HOT, "CPU a GET", Bound::AtMost(3.0));
    row.cost(ABSENT, HOT, "CPU a GET", Bound::AtMost(1.3));
    row.counted(COLD, HOT);
    row.counted(ABSENT, HOT);
    let resident = server.resident()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let most = "resident memory at its most, MiB".to_owned();
    let bound = Bound::Below(RESIDENT_MIB_MAX);
    row.goals.push((most, vec![mib(resident.peak)], bound));
    let end = "resident memory at the end, MiB".to_owned();
    row.goals.push((end, vec![mib(resident.now)], Bound::Shown));
    Ok(())
}
