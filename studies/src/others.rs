//! `make lab-others`: other stores over HTTP, measured by templates with the same instrument on the
//! same machine.
//!
//! ```text
//! dendra          its own routes                       PUT, GET
//! nginx           a static file of 100 bytes           GET        (the floor of a store over HTTP)
//! webdis + redis  PUT /SET/{key}, GET /GET/{key}.txt   PUT, GET   appendfsync always: durable as ours
//! ```
//!
//! Invariants
//! 1. Each server with everything it needs (redis behind webdis, too) has the server's cores alone
//!    while measured.
//! 2. A program that is not installed is named with the package that installs it, and its rows are
//!    missing.
//!
//! Not here: CPU for a request beside them (`yardsticks/`).
//! See: docs/lab/README.md.

use super::node::{Server, free_port};
use super::place::{Held, Place, find, version};
use super::proc::Clock;
use super::report::{Report, percent, time};
use super::run::Bench;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Records of each store.
const KEYS: u32 = 100_000;

/// Requests a second at which latency and CPU are compared: below every knee.
const RATE: u32 = 5000;

/// The objective at the knee.
const OBJECTIVE: &str = "p99<10ms,errors<0.1%";

/// A store, with the flags that make requests for it.
pub(super) struct Store {
    pub(super) name: &'static str,
    /// The one that is asked comes first.
    pub(super) servers: Vec<Server>,
    /// Operation and flags, in the order to run them.
    pub(super) asks: Vec<(&'static str, &'static str)>,
}

const WEBDIS_PUT: &str =
    "--workload put --preload --method PUT --url-template /SET/{key} --body-template {value}";

/// Measures every store that is installed.
pub(super) fn run(place: &Place) -> Held {
    let programs = ["nginx", "redis-server", "webdis"].map(|name| (name, find(name, &[])));
    let mut facts = vec![("dendra", version(&place.binary, "--version"))];
    for (name, flag) in [("nginx", "-v"), ("redis-server", "--version")] {
        if let Some(program) = find(name, &[]) {
            facts.push((name, version(&program, flag)));
        }
    }
    let absent = programs.iter().filter(|(_, program)| program.is_none());
    let absent: Vec<String> = absent.map(|(name, _)| missing(name)).collect();
    let question = "What does a client of a store over HTTP get from Dendra, from nginx with a file that never changes, and from redis behind webdis?";
    let mut report = Report::new(place, "Other stores over HTTP", question, &facts)?;
    for sentence in &absent {
        report.line(format_args!("* not measured: {sentence}"));
    }
    report.line(format_args!(
        "\n{KEYS} keys, values of 100 bytes, 64 connections, one generator thread. The knee is the highest rate that held {OBJECTIVE} in every repeat. Latencies, from \
         the planned instant, and CPU of all processes of the store are at {RATE} a second."
    ));
    report.table(&[
        "store",
        "knee, requests/s",
        "p50",
        "p99",
        "p99.9",
        "CPU µs a request",
        "misses",
    ]);
    let [has_nginx, has_redis, has_webdis] = programs.map(|(_, program)| program.is_some());
    let mut stores: Vec<fn(&Place) -> Result<Store, String>> = vec![dendra];
    if has_nginx {
        stores.push(nginx_store);
    }
    if has_redis && has_webdis {
        stores.push(webdis_store);
    }
    let mut is_valid = true;
    for store in stores {
        is_valid &= rows(place, &mut report, &store(place)?)?;
    }
    report.line(
        "\nThe same requests by hand: `--url-template '/GET/{key}.txt'`, and for writes `--method PUT --url-template '/SET/{key}' --body-template '{value}'`. Dendra and \
         redis acknowledge a write when it is on the disk; nginx stores nothing.",
    );
    report.write(place, "other-stores")?;
    Ok(is_valid && absent.is_empty())
}

fn rows(place: &Place, report: &mut Report, store: &Store) -> Result<bool, String> {
    let seconds = place.options.seconds.unwrap_or(4.0);
    let url = &store.servers[0].url;
    let folder = place.folder.join("run");
    let mut is_valid = true;
    for (operation, flags) in &store.asks {
        let common = format!("--keys {KEYS} --connections 64 {flags}");
        let knee = Bench::new(place, url, &folder)
            .with(&common)
            .with(&format!(
                "--rate 4000 --duration {}s --warmup 200ms --find-max --slo {OBJECTIVE}",
                (seconds / 4.0).max(0.3)
            ))
            .run()?;
        let common = common.replace("--preload", "");
        let (figures, before) = Bench::new(place, url, &folder)
            .with(&common)
            .with(&format!("--rate {RATE} --duration {seconds}s --warmup 0s"))
            .while_running(|| {
                Ok(store
                    .servers
                    .iter()
                    .map(Server::clock)
                    .collect::<Vec<Clock>>())
            })?;
        let spent = store
            .servers
            .iter()
            .zip(&before)
            .map(|(server, before)| server.cpu_s(before));
        let cpu_s: f64 = spent.sum();
        is_valid &= figures.invalid.is_none() && knee.invalid.is_none();
        report.row(&[
            format!("{}, {operation}{}", store.name, figures.mark()),
            knee.knee
                .map_or("–".to_owned(), |rate| format!("{rate:.0}{}", knee.mark())),
            time(figures.p50_us),
            time(figures.p99_us),
            time(figures.p999_us),
            format!("{:.1}", cpu_s * 1e6 / figures.answered.max(1.0)),
            percent(figures.missed),
        ]);
    }
    Ok(is_valid)
}

fn dendra(place: &Place) -> Result<Store, String> {
    Ok(Store {
        name: "dendra",
        servers: vec![Server::node(place, &place.folder.join("data"), &[])?],
        asks: vec![
            ("PUT", "--workload put --preload"),
            ("GET", "--workload get"),
        ],
    })
}

fn written(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// nginx with a file that never changes.
fn nginx_store(place: &Place) -> Result<Store, String> {
    let body = place.folder.join("nginx").join("body");
    let www = body.parent().expect("it was just joined");
    fs::create_dir_all(www).map_err(|e| format!("{}: {e}", www.display()))?;
    written(&body, &"v".repeat(100))?;
    let location = format!("root {}; try_files /body =404;", www.display());
    Ok(Store {
        name: "nginx, static file",
        servers: vec![nginx(place, "nginx", &location)?],
        asks: vec![("GET", "--workload get --url-template /{key}")],
    })
}

/// A server of another house, or why there is none.
pub(super) type Found = Result<Server, String>;

/// nginx with one worker, which does as `location` says; its files are in this folder of the place.
pub(super) fn nginx(place: &Place, folder: &str, location: &str) -> Found {
    let program = find("nginx", &[]).ok_or_else(|| missing("nginx"))?;
    let folder = place.folder.join(folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let address = free_port()?;
    let here = folder.display();
    let config = folder.join("nginx.conf");
    // One process: the one that we end is the one that serves.
    let text = format!(
        "user root;\ndaemon off;\nmaster_process off;\nworker_processes 1;\n\
         worker_rlimit_nofile 20000;\npid {here}/pid;\nerror_log {here}/error.log crit;\n\
         events {{ worker_connections 18000; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n\
         \x20 open_file_cache max=16;\n  default_type application/octet-stream;\n\
         \x20 client_body_temp_path {here}/a;\n  proxy_temp_path {here}/b;\n\
         \x20 fastcgi_temp_path {here}/c;\n  uwsgi_temp_path {here}/d;\n  scgi_temp_path {here}/e;\n\
         \x20 server {{ listen {address} backlog=4096; location / {{ {location} }} }}\n}}\n"
    );
    written(&config, &text)?;
    let mut command = Command::new(program);
    command.arg("-e").arg(folder.join("error.log"));
    command.arg("-p").arg(&folder).arg("-c").arg(&config);
    Server::other(place, &mut command, address)
}

/// redis that acknowledges a write after its sync; its data is in `folder`.
pub(super) fn redis(place: &Place, folder: &Path) -> Found {
    let program = find("redis-server", &[]).ok_or_else(|| missing("redis-server"))?;
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let address = free_port()?;
    let port = address.port().to_string();
    let mut command = Command::new(program);
    command
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(folder);
    Server::other(place, &mut command, address)
}

fn missing(program: &str) -> String {
    format!("{program} is not installed: `make lab-others-setup`")
}

/// Redis with a sync for each write, and webdis in front of it.
pub(super) fn webdis_store(place: &Place) -> Result<Store, String> {
    let program = find("webdis", &[]).ok_or_else(|| missing("webdis"))?;
    let folder = place.folder.join("webdis");
    let redis = redis(place, &folder)?;
    let port: u16 = redis
        .url
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .ok_or_else(|| format!("{} has no port", redis.url))?;
    let door = free_port()?;
    let config = folder.join("webdis.json");
    let text = serde_json::json!({
        "redis_host": "127.0.0.1", "redis_port": port, "redis_auth": null,
        "http_host": "127.0.0.1", "http_port": door.port(), "threads": 1, "pool_size": 20,
        "daemonize": false, "websockets": false, "database": 0, "verbosity": 0,
        "logfile": folder.join("webdis.log").display().to_string(),
    });
    written(&config, &text.to_string())?;
    let mut command = Command::new(program);
    command.arg(&config).current_dir(&folder);
    Ok(Store {
        name: "redis behind webdis",
        servers: vec![Server::other(place, &mut command, door)?, redis],
        asks: vec![
            ("PUT", WEBDIS_PUT),
            ("GET", "--workload get --url-template /GET/{key}.txt"),
        ],
    })
}
