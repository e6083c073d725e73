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
//! 4. Resident memory is the most the process ever had (`VmHWM`), the load included.
//!
//! Not here: reads that must go to the disk itself.
//! See: docs/lab/README.md.

use super::{Bound, Goal, Plan, Row, Variant, preload};
use crate::Result;
use crate::keys::Keys;
use crate::load::Stored;
use crate::procfs::{self, CpuSnapshot};
use crate::server::Server;
use crate::window::{self, Pace};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

const HOT: &str = "hot";
const COLD: &str = "cold";
const ABSENT: &str = "absent";
const HOT_KEYS: u64 = 1000;
const RESIDENT_MIB_MAX: f64 = 400.0;
/// Windows of cold reads before the first measured one.
const FILL_WINDOWS: u32 = 3;
const REST_MAX: Duration = Duration::from_secs(300);
/// At rest: less than this share of a core for one second.
const REST_SHARE: f64 = 0.02;

/// Memory and read cost of a data set that is much larger than `--memory`.
pub(crate) fn big(plan: &Plan) -> Result<Row> {
    let question = "Ten million keys of 100 bytes with `--memory 256MiB`: how much memory, and what \
                    does a GET cost that is not in the cache?";
    let mut row = Row::new("big", question);
    let options = ["--durability", "os", "--memory", "256MiB"];
    let Some(server) = row.started(plan.dendra("dendra", "big", &options)) else {
        return Ok(row);
    };
    let loaded = preload(&server, plan.big_keys)?;
    let seconds = loaded.elapsed.as_secs_f64();
    row.note(format!(
        "{} keys written in {seconds:.0} s ({:.0}/s, 256 requests in flight), {} refusals repeated",
        plan.big_keys,
        plan.big_keys as f64 / seconds,
        loaded.refused
    ));
    let rested = rest(&server)?;
    row.note(match rested {
        Some(after) => format!("background work at rest {:.0} s later", after.as_secs_f64()),
        None => format!("background work was still going on {REST_MAX:?} later"),
    });
    let sets = [
        (
            HOT,
            Keys::Uniform {
                count: HOT_KEYS.min(plan.big_keys),
            },
        ),
        (
            COLD,
            Keys::Uniform {
                count: plan.big_keys,
            },
        ),
        (
            ABSENT,
            Keys::Absent {
                count: plan.big_keys,
            },
        ),
    ];
    let variants = sets.map(|(name, keys)| Variant {
        name,
        server: &server,
        workload: plan.workload(&server, keys, 0, Stored::Yes),
        pace: Pace::Closed,
    });
    let data = plan.data("big");
    into_page_cache(&data)?;
    // Fills the engine's cache: as long as it grows, every block read costs a page of fresh memory.
    let filling = &variants[1];
    window::measure(
        &server,
        filling.workload,
        filling.pace,
        plan.length * FILL_WINDOWS,
    )?;
    row.run_after(plan, &variants, plan.length, || into_page_cache(&data))?;
    row.ratio(COLD, HOT, "CPU a GET", |w| w.cpu_us, Bound::AtMost(3.0));
    row.ratio(ABSENT, HOT, "CPU a GET", |w| w.cpu_us, Bound::AtMost(1.3));
    row.counted(COLD, HOT);
    row.counted(ABSENT, HOT);
    let resident = procfs::resident(server.pid())?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    row.goals.push(Goal {
        what: "resident memory at its most, MiB".to_owned(),
        values: vec![mib(resident.most)],
        bound: Bound::Below(RESIDENT_MIB_MAX),
    });
    row.goals.push(Goal {
        what: "resident memory at the end, MiB".to_owned(),
        values: vec![mib(resident.now)],
        bound: Bound::Shown,
    });
    Ok(row)
}

/// Reads every table once: what is asked here is the cost of a read from the page cache, and a kernel
/// may give the pages of files that nobody read lately to others.
fn into_page_cache(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tbl") {
            io::copy(&mut fs::File::open(path)?, &mut io::sink())?;
        }
    }
    Ok(())
}

/// Waits until the server does nothing; how long that took, or `None` when it never came to rest.
fn rest(server: &Server) -> Result<Option<Duration>> {
    const LOOK: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let mut before = CpuSnapshot::of(server.pid())?;
    while start.elapsed() < REST_MAX {
        std::thread::sleep(LOOK);
        let now = CpuSnapshot::of(server.pid())?;
        let used_ns = procfs::cpu_between(&before, &now).total_ns;
        if (used_ns as f64) < REST_SHARE * LOOK.as_nanos() as f64 {
            return Ok(Some(start.elapsed()));
        }
        before = now;
    }
    Ok(None)
}
