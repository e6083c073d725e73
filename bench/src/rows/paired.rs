//! Rows `get`, `put-os` and `put-sync`: CPU for each request beside the yardsticks.
//!
//! ```text
//! get       echo   nginx 200   hyper   dendra (memtable)   dendra (cache)    at most 1.1 x nginx
//! put-os    echo   nginx 201   hyper   dendra --durability os                at most 1.4 x nginx
//! put-sync  redis appendfsync always   dendra --durability sync              ahead of redis
//! ```
//!
//! Invariants
//! 1. All servers of a row are up during the whole row; the ones that wait cost nothing.
//!
//! Not here: rounds and ratios (`mod.rs`), how servers are started (`server.rs`).
//! See: docs/lab/README.md.

use super::{Bound, Plan, Row, Variant, preload, read_all};
use crate::Result;
use crate::keys::{Keys, VALUE_BYTES};
use crate::load::Stored;
use crate::server::Server;

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

/// GET of a key in memory.
pub(crate) fn get(plan: &Plan) -> Result<Row> {
    let question =
        "GET of 100 bytes found in memory or cache: what does a request cost the server?";
    let mut row = Row::new("get", question);
    let core = plan.server_core;
    let length = VALUE_BYTES.to_string();
    let echo = Server::own(
        ECHO,
        core,
        &["echo", "--status", "200", "--body-bytes", &length],
    )?;
    let body = "x".repeat(VALUE_BYTES);
    let nginx = Server::nginx(NGINX, core, &plan.data("nginx-get"), 200, &body);
    let nginx = row.started(nginx);
    let hyper = Server::own(HYPER, core, &["hyper-map"])?;
    preload(&hyper, plan.keys)?;
    let options = ["--durability", "os", MEMORY[0], MEMORY[1]];
    let memtable = row.started(plan.dendra(MEMTABLE, "get-memtable", &options));
    let cache = row.started(plan.dendra(CACHE, "get-cache", &options));
    if let Some(server) = &memtable {
        preload(server, plan.keys)?;
    }
    // What a restart recovers goes into a table before the node serves: from then on every read
    // comes from a block.
    let cache = match cache {
        Some(server) => {
            preload(&server, plan.keys)?;
            server.stop()?;
            row.started(plan.dendra(CACHE, "get-cache", &options))
        }
        None => None,
    };
    for server in [memtable.as_ref(), cache.as_ref()].into_iter().flatten() {
        read_all(server, plan.keys)?;
    }
    let keys = Keys::Uniform { count: plan.keys };
    let same = [Some(&echo), nginx.as_ref()].map(|server| (server, Stored::No));
    let kept = [Some(&hyper), memtable.as_ref(), cache.as_ref()].map(|s| (s, Stored::Yes));
    let variants: Vec<Variant<'_>> = same
        .into_iter()
        .chain(kept)
        .filter_map(|(server, values)| Some(plan.closed(server?, keys, 0, values)))
        .collect();
    row.run(plan, &variants, plan.length)?;
    for own in [MEMTABLE, CACHE] {
        row.ratio(own, NGINX, "CPU a GET", |w| w.cpu_us, Bound::AtMost(1.1));
        row.ratio(own, HYPER, "CPU a GET", |w| w.cpu_us, Bound::Below(1.0));
        row.ratio(own, ECHO, "CPU a GET", |w| w.cpu_us, Bound::Shown);
        row.counted(own, NGINX);
        row.counted(own, HYPER);
    }
    Ok(row)
}

/// PUT acknowledged after `write`.
pub(crate) fn put_os(plan: &Plan) -> Result<Row> {
    let question = "PUT of 100 bytes, acknowledged when the kernel has them: what does a request cost \
                    the server, flush and compaction included?";
    let mut row = Row::new("put-os", question);
    let core = plan.server_core;
    let echo = Server::own(
        ECHO,
        core,
        &["echo", "--status", "201", "--body-bytes", "0"],
    )?;
    let nginx = row.started(Server::nginx(NGINX, core, &plan.data("nginx-put"), 201, ""));
    let hyper = Server::own(HYPER, core, &["hyper-map"])?;
    let options = ["--durability", "os", MEMORY[0], MEMORY[1]];
    let dendra = row.started(plan.dendra(OS, "put-os", &options));
    for server in [Some(&hyper), dendra.as_ref()].into_iter().flatten() {
        preload(server, plan.keys)?;
    }
    let servers = [Some(&echo), nginx.as_ref(), Some(&hyper), dendra.as_ref()];
    let variants: Vec<Variant<'_>> = put_variants(plan, servers);
    row.run(plan, &variants, plan.length)?;
    row.ratio(OS, NGINX, "CPU a PUT", |w| w.cpu_us, Bound::AtMost(1.4));
    row.ratio(OS, HYPER, "CPU a PUT", |w| w.cpu_us, Bound::Shown);
    row.ratio(OS, ECHO, "CPU a PUT", |w| w.cpu_us, Bound::Shown);
    row.counted(OS, NGINX);
    Ok(row)
}

/// PUT acknowledged after `fdatasync`.
pub(crate) fn put_sync(plan: &Plan) -> Result<Row> {
    let question = "Durable PUT of 100 bytes, against redis with `appendfsync always`: how many a \
                    second, and at what CPU?";
    let mut row = Row::new("put-sync", question);
    let redis = Server::redis(REDIS, plan.server_core, &plan.data("redis"));
    let redis = row.started(redis);
    let options = ["--durability", "sync", MEMORY[0], MEMORY[1]];
    let dendra = row.started(plan.dendra(SYNC, "put-sync", &options));
    for server in [redis.as_ref(), dendra.as_ref()].into_iter().flatten() {
        preload(server, plan.keys)?;
    }
    let variants = put_variants(plan, [redis.as_ref(), dendra.as_ref(), None, None]);
    row.run(plan, &variants, plan.length)?;
    row.ratio(
        SYNC,
        REDIS,
        "writes a second",
        |w| w.rate,
        Bound::Above(1.0),
    );
    row.ratio(SYNC, REDIS, "CPU a write", |w| w.cpu_us, Bound::Below(1.0));
    row.counted(SYNC, REDIS);
    Ok(row)
}

fn put_variants<'a>(plan: &Plan, servers: [Option<&'a Server>; 4]) -> Vec<Variant<'a>> {
    let keys = Keys::Uniform { count: plan.keys };
    let servers = servers.into_iter().flatten();
    servers
        .map(|server| plan.closed(server, keys, 100, Stored::Yes))
        .collect()
}
