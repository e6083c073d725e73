//! Rows `get`, `put-os` and `put-sync`: CPU for each request beside the yardsticks.
//!
//! ```text
//! get       echo   nginx 200   hyper   dendra (memtable)   dendra (cache)    at most 1.1 x nginx
//! put-os    echo   nginx 201   hyper   dendra --durability os                at most 1.4 x nginx
//! put-sync  redis appendfsync always   dendra --durability sync              ahead of redis
//! ```
//!
//! Invariants
//! 1. All servers of a row are up during the whole row; the ones that wait use no processor.
//!
//! Not here: rounds and ratios (`row.rs`), how other servers are started (`others.rs`).
//! See: docs/lab/README.md.

use super::row::{Plan, Row, Variant};
use super::window::{self, Load};
use crate::goals::Bound;
use crate::store::{Server, Store, others};
use std::process::Command;

pub(super) const GET: &str =
    "GET of 100 bytes found in memory or cache: what does a request cost the server?";
pub(super) const PUT_OS: &str = "PUT of 100 bytes, acknowledged when the kernel has them: what does a \
                                 request cost the server, flush and compaction included?";
pub(super) const PUT_SYNC: &str = "Durable PUT of 100 bytes, against redis with `appendfsync always`: \
                                   how many a second, and at what CPU?";

const ECHO: &str = "echo (floor)";
const NGINX: &str = "nginx";
const HYPER: &str = "hyper map";
const REDIS: &str = "redis always";
const MEMTABLE: &str = "dendra memtable";
const CACHE: &str = "dendra cache";
const OS: &str = "dendra os";
const SYNC: &str = "dendra sync";

/// Enough for every key of the small rows in the memtable and in the cache.
const MEMORY: [&str; 2] = ["--memory", "1GiB"];

const VALUE_BYTES: usize = 100;

/// Writes of redis before the first window: its rate follows from them.
const REDIS_TRIED: u32 = 2_000;

/// One of the yardsticks in this very binary, with its task and words.
fn own(plan: &Plan<'_>, name: &str, words: &[&str]) -> Result<Server, String> {
    let binary = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
    let mut command = Command::new(binary);
    command.args(words);
    Server::telling(plan.place, &mut command, &plan.data(name))
}

/// GET of a key in memory.
pub(super) fn get(plan: &Plan<'_>, row: &mut Row) -> Result<(), String> {
    let echo = own(plan, "echo", &["echo", "200", &VALUE_BYTES.to_string()])?;
    let answer = format!("return 200 \"{}\";", "x".repeat(VALUE_BYTES));
    let nginx = row.started(others::nginx(plan.place, "nginx-get", &answer));
    let hyper = own(plan, "hyper", &["hyper-map"])?;
    let options = ["--durability", "os", MEMORY[0], MEMORY[1]];
    let memtable = plan.dendra("get-memtable", &options)?;
    let loaded = plan.dendra("get-cache", &options)?;
    for server in [&hyper, &memtable, &loaded] {
        server.load(plan.place, &plan.records(plan.keys))?;
    }
    // The log that a start recovers goes into a table before the node serves: from then on every
    // read comes from a block.
    loaded.stop()?;
    let cache = plan.dendra("get-cache", &options)?;
    for server in [&memtable, &cache] {
        plan.read_all(server)?;
    }
    let load = plan.closed(&format!("--workload get --keys {}", plan.keys));
    let variants: Vec<Variant<'_>> = [
        (ECHO, Some(&echo)),
        (NGINX, nginx.as_ref()),
        (HYPER, Some(&hyper)),
        (MEMTABLE, Some(&memtable)),
        (CACHE, Some(&cache)),
    ]
    .into_iter()
    .filter_map(|(name, server)| variant(name, server, &load))
    .collect();
    row.run(plan, &variants, plan.length_s, || Ok(()))?;
    for own in [MEMTABLE, CACHE] {
        row.cost(own, NGINX, "CPU a GET", Bound::AtMost(1.1));
        row.cost(own, HYPER, "CPU a GET", Bound::Below(1.0));
        row.cost(own, ECHO, "CPU a GET", Bound::Shown);
        row.counted(own, NGINX);
        row.counted(own, HYPER);
    }
    Ok(())
}

/// PUT acknowledged after `write`.
pub(super) fn put_os(plan: &Plan<'_>, row: &mut Row) -> Result<(), String> {
    let echo = own(plan, "echo", &["echo", "201", "0"])?;
    let nginx = row.started(others::nginx(plan.place, "nginx-put", "return 201;"));
    let hyper = own(plan, "hyper", &["hyper-map"])?;
    let options = ["--durability", "os", MEMORY[0], MEMORY[1]];
    let dendra = plan.dendra("put-os", &options)?;
    for server in [&hyper, &dendra] {
        server.load(plan.place, &plan.records(plan.keys))?;
    }
    let load = plan.closed(&format!("--workload put --keys {}", plan.keys));
    let variants: Vec<Variant<'_>> = [
        (ECHO, Some(&echo)),
        (NGINX, nginx.as_ref()),
        (HYPER, Some(&hyper)),
        (OS, Some(&dendra)),
    ]
    .into_iter()
    .filter_map(|(name, server)| variant(name, server, &load))
    .collect();
    row.run(plan, &variants, plan.length_s, || Ok(()))?;
    row.cost(OS, NGINX, "CPU a PUT", Bound::AtMost(1.4));
    row.cost(OS, HYPER, "CPU a PUT", Bound::Shown);
    row.cost(OS, ECHO, "CPU a PUT", Bound::Shown);
    row.counted(OS, NGINX);
    Ok(())
}

/// PUT acknowledged after `fdatasync`. Both generators sleep here: redis's own cannot do otherwise.
pub(super) fn put_sync(plan: &Plan<'_>, row: &mut Row) -> Result<(), String> {
    let (keys, connections) = (plan.keys, plan.connections);
    let redis = row.started(others::redis(plan.place, &plan.data("redis")));
    let dendra = plan.dendra("put-sync", &["--durability", "sync", MEMORY[0], MEMORY[1]])?;
    dendra.load(plan.place, &plan.records(keys))?;
    let writes = |requests: u32| Load::RedisBenchmark {
        requests,
        keys,
        connections,
    };
    let mut variants = Vec::new();
    if let Some(redis) = &redis {
        let tried = window::measure(plan.place, redis, &writes(REDIS_TRIED), 0.0)?;
        let requests = (tried.rate * plan.length_s).max(1.0) as u32;
        variants.extend(variant(REDIS, Some(redis), &writes(requests)));
    }
    let load = format!("--workload put --keys {keys} --closed --connections {connections}");
    variants.extend(variant(SYNC, Some(&dendra), &Load::Bench(load)));
    row.run(plan, &variants, plan.length_s, || Ok(()))?;
    let rate = |window: &window::Window| Some(window.rate);
    row.ratio(SYNC, REDIS, "writes a second", rate, Bound::Above(1.0));
    row.cost(SYNC, REDIS, "CPU a write", Bound::Below(1.0));
    row.counted(SYNC, REDIS);
    Ok(())
}

fn variant<'a>(name: &'static str, server: Option<&'a Server>, load: &Load) -> Option<Variant<'a>> {
    Some(Variant {
        name,
        server: server?,
        load: load.clone(),
    })
}
