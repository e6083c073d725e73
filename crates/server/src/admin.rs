//! The admin plane: what people, probes and scrapers ask, on a port and a thread of its own.
//!
//! ```text
//! /healthz       200 while the process lives
//! /readyz        200 while it serves, 503 with the phase otherwise, or with why other members are of no use to it
//! /metrics       OpenMetrics text
//! /v0/status     JSON: node, engine, queues
//! /openapi.yaml  the contract of the data plane
//! /debug/profile/{cpu,wall,alloc,lock}  what the threads do, as folded stacks or a flame graph
//! /              links to the above
//! ```
//!
//! Invariants
//! 1. It answers from the first moment of a start, before the folder is open.
//! 2. Nothing here changes the node.
//! 3. A client that does not finish its head is dropped; at most `ADMIN_CONNECTIONS_MAX` are served.
//!
//! Not here: the data plane (`connection.rs`), which shares no thread with this.
//! See: docs/api.md, section "Admin plane".

use crate::exposition::{self, Numbers};
use crate::lifecycle::StartError;
use crate::limits;
use crate::peers::Cluster;
use crate::profile;
use crate::shared::{Phase, PhaseCell, Shared};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, watch};

struct Plane {
    phase: Arc<PhaseCell>,
    shared: Arc<OnceLock<Arc<Shared>>>,
    registry: Registry,
}

/// The running admin plane.
pub(crate) struct Admin {
    addr: SocketAddr,
    shared: Arc<OnceLock<Arc<Shared>>>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Serves on `socket` from now on.
pub(crate) fn start(socket: TcpListener, phase: Arc<PhaseCell>) -> Result<Admin, StartError> {
    let failed = |error: io::Error| StartError::System {
        reason: format!("the admin plane could not be started: {error}"),
    };
    let addr = socket.local_addr().map_err(failed)?;
    let shared = Arc::new(OnceLock::new());
    let numbers = Numbers {
        phase: Arc::clone(&phase),
        shared: Arc::clone(&shared),
    };
    let plane = Arc::new(Plane {
        phase,
        shared: Arc::clone(&shared),
        registry: exposition::registry(numbers),
    });
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            let _seat = profile::register(profile::Kind::Admin);
            runtime.block_on(accept(socket, router(plane), stopped));
        })
        .map_err(failed)?;
    tracing::info!(%addr, "admin plane");
    Ok(Admin {
        addr,
        shared,
        stop,
        thread,
    })
}

impl Admin {
    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Shows the node's numbers from now on.
    pub(crate) fn attach(&self, shared: Arc<Shared>) {
        if self.shared.set(shared).is_err() {
            tracing::error!("a node was attached to its admin plane twice");
        }
    }

    /// Stops; answers that are being written are cut.
    pub(crate) fn stop(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the admin plane ended by a panic");
        }
    }
}

async fn accept(socket: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "the admin plane cannot listen");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS_MAX));
    let serving = async {
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            let stream = match socket.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "the admin plane could not accept");
                    tokio::time::sleep(limits::SWEEP).await;
                    continue;
                }
            };
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let _permit = permit;
                // Without a timer the head's deadline would be silently off.
                let served = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits::ADMIN_HEAD_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                if let Err(error) = served {
                    tracing::debug!(%error, "an admin connection ended early");
                }
            });
        }
    };
    tokio::select! {
        () = serving => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

fn router(plane: Arc<Plane>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v0/status", get(status))
        .route("/openapi.yaml", get(openapi))
        .route("/debug/profile/{kind}", get(profile::routes::profile))
        .with_state(plane)
}

async fn ready(State(plane): State<Arc<Plane>>) -> Response {
    let phase = plane.phase.now();
    let shut_out = plane.shared.get().and_then(|shared| shared.shut_out());
    let (code, said) = match (phase, shut_out) {
        (Phase::Serving, None) => (StatusCode::OK, phase.as_str().to_owned()),
        (Phase::Serving, Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, why),
        _ => (StatusCode::SERVICE_UNAVAILABLE, phase.as_str().to_owned()),
    };
    (code, format!("{said}\n")).into_response()
}

async fn metrics(State(plane): State<Arc<Plane>>) -> Response {
    match exposition::render(&plane.registry) {
        Ok(page) => ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn openapi() -> Response {
    let document = include_str!("../../../docs/openapi.yaml");
    ([(header::CONTENT_TYPE, "application/yaml")], document).into_response()
}

async fn index(State(plane): State<Arc<Plane>>) -> Html<String> {
    let links = [
        "/readyz",
        "/v0/status",
        "/metrics",
        "/openapi.yaml",
        "/healthz",
    ]
    .map(|path| format!("<li><a href=\"{path}\">{path}</a></li>"))
    .concat();
    let phase = plane.phase.now().as_str();
    Html(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Dendra</title></head>\
         <body><h1>Dendra {}</h1><p>This node is <b>{phase}</b>.</p><ul>{links}</ul></body></html>\n",
        env!("CARGO_PKG_VERSION")
    ))
}

async fn status(State(plane): State<Arc<Plane>>) -> Response {
    let phase = plane.phase.now();
    let mut page = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "phase": phase.as_str(),
        "ready": phase == Phase::Serving,
    });
    if let (Some(shared), Some(page)) = (plane.shared.get(), page.as_object_mut()) {
        page.insert("node".to_owned(), node(shared));
        page.insert("engine".to_owned(), engine(shared));
        page.insert("queues".to_owned(), queues(shared));
        if let Some(cluster) = &shared.cluster {
            page.insert("cluster".to_owned(), members(cluster));
        }
    }
    let page = format!("{page:#}\n");
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

fn node(shared: &Shared) -> serde_json::Value {
    let identity = shared.engine.identity();
    let settings = &shared.settings;
    serde_json::json!({
        "id": format!("{:032x}", identity.node),
        "origin": identity.origin,
        "nodes": shared.cluster.as_ref().map_or(1, |cluster| cluster.topology.len()),
        "replication_factor": shared.cluster.as_ref().map_or(1, |cluster| cluster.topology.replication_factor()),
        "durability": settings.durability.as_str(),
        "loops": shared.lanes.len(),
        "workers": settings.workers,
        "value_bytes_max": settings.value_bytes_max,
        "memory_bytes": settings.memory_bytes,
    })
}

fn members(cluster: &Cluster) -> serde_json::Value {
    use std::sync::atomic::Ordering::Relaxed;
    let peers: Vec<_> = cluster
        .others()
        .map(|(url, gauges)| {
            serde_json::json!({
                "url": url,
                "links": gauges.links.load(Relaxed),
                "links_lost": gauges.lost.load(Relaxed),
                "asks": gauges.asks.load(Relaxed),
                "answers": gauges.answers.load(Relaxed),
                "refused": gauges.refused.load(Relaxed),
                "late": gauges.late.load(Relaxed),
            })
        })
        .collect();
    serde_json::json!({
        "name": cluster.topology.name(),
        "epoch": cluster.topology.epoch(),
        "digest": format!("{:016x}", cluster.topology.digest()),
        "self": cluster.url(cluster.me),
        "hints": {
            "bytes": cluster.hints.bytes(),
            "kept": cluster.hints.kept(),
            "dropped": cluster.hints.dropped(),
            "delivered": cluster.hints.delivered(),
        },
        "peers": peers,
    })
}

fn engine(shared: &Shared) -> serde_json::Value {
    let stats = shared.engine.stats();
    let pressure = shared.engine.pressure();
    let levels: Vec<_> = stats
        .levels
        .iter()
        .map(|(tables, bytes)| serde_json::json!({ "tables": tables, "bytes": bytes }))
        .collect();
    let damaged: Vec<_> = shared
        .engine
        .damaged_tables()
        .into_iter()
        .map(|table| {
            serde_json::json!({
                "file": table.file,
                "offset": table.offset,
                "reason": table.reason,
                "set_aside": table.is_set_aside,
            })
        })
        .collect();
    serde_json::json!({
        "pressure": pressure.level,
        "stopped_by": pressure.stop.map(|stop| format!("{stop:?}")),
        "levels": levels,
        "memtable_bytes": stats.memtable_bytes,
        "memtables_sealed": stats.memtables_sealed,
        "cache_bytes": stats.cache_bytes,
        "log_segments": stats.log_segments,
        "disk_free_bytes": stats.disk_free_bytes,
        "damaged_reads": stats.damaged_reads,
        "damaged_tables": damaged,
    })
}

fn queues(shared: &Shared) -> serde_json::Value {
    let (points, scans) = shared.pool.queued();
    serde_json::json!({
        "connections": { "used": shared.connections(), "max": shared.settings.connections_max },
        "requests": { "used": exposition::sum(shared, |m| &m.requests_held), "max": shared.requests.limit() },
        "bytes": { "used": exposition::sum(shared, |m| &m.bytes_held), "max": shared.bytes.limit() },
        "store": { "points": points, "scans": scans, "max": shared.settings.queue },
    })
}
