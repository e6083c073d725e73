//! Servers of others that a node is measured beside: nginx, redis, redis behind webdis.
//!
//! Invariants
//! 1. A program that is not installed is named with the command that installs it.
//!
//! Not here: engines behind a front door (`fronts.rs`).
//! See: docs/lab/README.md.

use super::{Server, free_port};
use crate::place::{Place, find};
use std::fs;
use std::path::Path;
use std::process::Command;

fn written(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// nginx with one worker, which does as `location` says; its files are in this folder of the place.
pub(crate) fn nginx(place: &Place, folder: &str, location: &str) -> Result<Server, String> {
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
pub(crate) fn redis(place: &Place, folder: &Path) -> Result<Server, String> {
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
    format!("{program} is not installed: `make yardsticks-setup`")
}

/// Redis with a sync for each write, and webdis in front of it, which is asked.
pub(crate) struct Webdis {
    pub(crate) door: Server,
    pub(crate) redis: Server,
}

impl Webdis {
    /// Both, in one folder.
    pub(crate) fn start(place: &Place) -> Result<Webdis, String> {
        let program = find("webdis", &[]).ok_or_else(|| missing("webdis"))?;
        let folder = place.folder.join("webdis");
        let redis = redis(place, &folder)?;
        let port = redis.url.rsplit(':').next();
        let port: u16 = port
            .and_then(|port| port.parse().ok())
            .ok_or_else(|| format!("{} has no port", redis.url))?;
        let address = free_port()?;
        let config = folder.join("webdis.json");
        let text = serde_json::json!({
            "redis_host": "127.0.0.1", "redis_port": port, "redis_auth": null,
            "http_host": "127.0.0.1", "http_port": address.port(), "threads": 1, "pool_size": 20,
            "daemonize": false, "websockets": false, "database": 0, "verbosity": 0,
            "logfile": folder.join("webdis.log").display().to_string(),
        });
        written(&config, &text.to_string())?;
        let mut command = Command::new(program);
        command.arg(&config).current_dir(&folder);
        let door = Server::other(place, &mut command, address)?;
        Ok(Webdis { door, redis })
    }
}
