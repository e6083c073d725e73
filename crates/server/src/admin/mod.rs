//! The admin plane: requests of people, probes and scrapers, on a port and a thread of its own.
//!
//! ```text
//! /healthz       200 while the process lives
//! /readyz        200 while it serves, 503 with the phase otherwise, or with why other members are of no use to it;
//!                quorum=1: 503 also without a majority of the members
//! /v0/health     JSON: a word, and all that is wrong with the way out
//! /metrics       OpenMetrics text
//! /v0/status     JSON: node, engine, queues
//! /openapi.yaml  the contract of the data plane
//! /v0/checkpoints, /v0/restore  questions of `dendra backup` and `dendra restore`
//! /debug/profile/{cpu,wall,alloc,lock}  the work of the threads, as folded stacks or a flame graph
//! /v0/cluster…   members, epochs, plans: cluster/
//! /              a page that draws /v0/status, and links to the above; /page.js and /page.css are parts of it
//! ```
//!
//! Invariants
//! 1. It answers from the first moment of a start, before the folder is open.
//! 2. No route here changes the node, apart from orders about members and a restore. A look for
//!    copies that differ is work for it, and takes an admin.
//! 3. Where there are tokens, all but health and readiness takes one, and all but looking an
//!    admin's.
//! 4. A call that changes something, and each profile, stands in the audit log with its outcome.
//! 5. No connection lasts longer than `ADMIN_CONNECTION_TIME`, and a client that does not finish
//!    its head is dropped sooner. At `ADMIN_CONNECTIONS_MAX` the oldest one without an answer in
//!    the making is closed for the next. So a probe of health is answered beside any other client.
//! 6. A request that names a foreign host, or that a browser marks as another site's, is refused
//!    before anything else. Otherwise a page could take profiles of the machine that it is shown
//!    on.
//! 7. Where clients have to show certificates, one that shows none gets health and readiness and
//!    nothing else: a load balancer has none. One with a certificate that is not good gets no
//!    session.
//!
//! Not here: the data plane (`connection/`), which shares no thread with this.
//! See: docs/api.md, section "Admin plane".

mod backup;
mod cluster;
pub(crate) mod exposition;
mod numbers;
pub mod pages;
mod profile;

use crate::audit::{self, Audit, AuditEvent, AuditKind, Port};
use crate::border::Border;
use crate::clock;
use crate::event_loop::parts::NodeParts;
use crate::front::desk::FrontDesk;
use crate::health::{self, HealthFinding};
use crate::health_watch;
use crate::limits;
use crate::measure::metrics::{CapacityShare, RefusalCause};
use crate::measure::profile::{ThreadKind, register};
use crate::member::Cluster;
use crate::phase::{Phase, PhaseCell};
use crate::rights::{AdminNeed, LoginProof, ShownNames, ShownToken};
use crate::start_error::StartError;
use crate::tls::{ByteStream, Opening};
use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use cluster::{Looker, OwnState, StewardWay};
use dendra_wire::hosts::Sender;
use dendra_wire::http::Field;
use dendra_wire::rights::bearer;
use dendra_wire::{Hosts, Refusal};
use exposition::ScrapeSources;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pages::{ComparisonsPage, HealthPage, HintsPage, OwnPage, ScrubPage, json_of};
use prometheus_client::registry::Registry;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle as Task;

struct AdminPlane {
    phase: Arc<PhaseCell>,
    parts: Arc<OnceLock<NodeParts>>,
    registry: Registry,
    hosts: Hosts,
    border: Border,
}

/// The running admin plane.
pub(crate) struct Admin {
    addr: SocketAddr,
    parts: Arc<OnceLock<NodeParts>>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// Serves on `socket` from now on.
pub(crate) fn start(
    socket: TcpListener,
    phase: Arc<PhaseCell>,
    hosts: Hosts,
    border: Border,
) -> Result<Admin, StartError> {
    let failed = |error: io::Error| StartError::System {
        reason: format!("the admin plane could not be started: {error}"),
    };
    let addr = socket.local_addr().map_err(failed)?;
    let parts = Arc::new(OnceLock::new());
    let numbers = ScrapeSources {
        phase: Arc::clone(&phase),
        parts: Arc::clone(&parts),
    };
    let plane = Arc::new(AdminPlane {
        phase,
        parts: Arc::clone(&parts),
        registry: exposition::registry(numbers),
        hosts,
        border: border.clone(),
    });
    let node = Arc::clone(&parts);
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let thread = std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            let _seat = register(ThreadKind::Admin);
            runtime.block_on(accept(socket, router(plane), node, border, stopped));
        })
        .map_err(failed)?;
    tracing::info!(%addr, "admin plane");
    Ok(Admin {
        addr,
        parts,
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
    pub(crate) fn attach(&self, parts: NodeParts) {
        if self.parts.set(parts).is_err() {
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

async fn accept(
    socket: TcpListener,
    router: Router,
    node: Arc<OnceLock<NodeParts>>,
    border: Border,
    mut stopped: watch::Receiver<bool>,
) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "the admin plane cannot listen");
            return;
        }
    };
    let mut guests = Guests::default();
    let expiring = backup::expire(node);
    let serving = async {
        loop {
            match socket.accept().await {
                Ok((stream, _)) => guests.welcome(stream, &router, &border),
                Err(error) => {
                    tracing::debug!(%error, "the admin plane could not accept");
                    tokio::time::sleep(limits::SWEEP).await;
                }
            }
        }
    };
    tokio::select! {
        () = serving => {}
        () = expiring => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

/// The connections that are open, oldest first.
#[derive(Default)]
struct Guests(VecDeque<AdminConnection>);

struct AdminConnection {
    /// Is an answer being computed?
    is_at_work: Arc<AtomicBool>,
    task: Task<()>,
}

impl Guests {
    /// Serves `stream`, and makes room for it before.
    fn welcome(&mut self, stream: TcpStream, router: &Router, border: &Border) {
        self.0.retain(|guest| !guest.task.is_finished());
        if self.0.len() >= limits::ADMIN_CONNECTIONS_MAX {
            let is_idle = |guest: &AdminConnection| !guest.is_at_work.load(Ordering::Relaxed);
            // At work are profiles at most, one of each kind.
            let oldest = self.0.iter().position(is_idle).unwrap_or(0);
            if let Some(guest) = self.0.remove(oldest) {
                tracing::debug!("an admin connection made room for another one");
                guest.task.abort();
            }
        }
        let is_at_work = Arc::new(AtomicBool::new(false));
        // Its address, for counts by address.
        let source = stream
            .peer_addr()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |at| at.ip());
        let mark = middleware::from_fn_with_state(Arc::clone(&is_at_work), mark_work);
        let router = router.clone().layer(axum::Extension(source));
        let border = border.clone();
        let task = tokio::spawn(enter(stream, source, border, router.layer(mark)));
        self.0.push_back(AdminConnection { is_at_work, task });
    }
}

/// Does the client lack the certificate that clients have to show?
#[derive(Clone, Copy)]
struct LacksCertificate(bool);

async fn mark_work(
    State(is_at_work): State<Arc<AtomicBool>>,
    request: Request,
    next: Next,
) -> Response {
    is_at_work.store(true, Ordering::Relaxed);
    let answer = next.run(request).await;
    is_at_work.store(false, Ordering::Relaxed);
    answer
}

/// Seals one connection where the port is sealed, and serves it.
async fn enter(tcp: TcpStream, source: IpAddr, border: Border, router: Router) {
    let entering = async {
        let Some(tls) = &border.tls else {
            return Some(ByteStream::Clear(tcp));
        };
        match tls.first_of(&tcp).await {
            Ok(Opening::Tls) => {
                let entered = tls.accept_admin(tcp).await.ok();
                if entered.is_none() {
                    audit::note_handshake(border.audit.as_deref(), source, Port::Admin);
                }
                entered
            }
            Ok(Opening::Clear) if tls.takes_clear() => Some(ByteStream::Clear(tcp)),
            Ok(Opening::Clear) => {
                tls.refuse_clear(tcp).await;
                None
            }
            Err(_gone) => None,
        }
    };
    match tokio::time::timeout(limits::ADMIN_HEAD_TIMEOUT, entering).await {
        Ok(Some(stream)) => {
            let names = match &border.rights {
                Some(_) => ShownNames::of(&stream),
                None => ShownNames::default(),
            };
            let lacks = border.tls.as_ref();
            let lacks = lacks.is_some_and(|tls| tls.lacks_certificate(&stream));
            let router = router.layer(axum::Extension(Arc::new(names)));
            serve(
                stream,
                router.layer(axum::Extension(LacksCertificate(lacks))),
            )
            .await;
        }
        Ok(None) | Err(_) => tracing::debug!("an admin connection has no TLS session"),
    }
}

/// Serves one connection: for a while, then to the end of the answer that is under way, then no
/// longer.
async fn serve(stream: ByteStream, router: Router) {
    let service = TowerToHyperService::new(router);
    // Without a timer the head's deadline would be silently off.
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::ADMIN_HEAD_TIMEOUT)
        // The end of the input is no end of interest.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut served = tokio::time::timeout(limits::ADMIN_CONNECTION_TIME, connection.as_mut()).await;
    if served.is_err() {
        connection.as_mut().graceful_shutdown();
        served = tokio::time::timeout(limits::ADMIN_LAST_ANSWER_TIME, connection).await;
    }
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin connection ended early"),
        Err(_late) => tracing::debug!("an admin connection was cut: its client does not read"),
    }
}

/// Is the request meant for this node, and not another site's page?
async fn check_sender(
    State(plane): State<Arc<AdminPlane>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let authority = request.uri().authority().map(|it| it.as_str().as_bytes());
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let sender = Sender {
        authority: authority.or(host),
        origin: field(headers, &header::ORIGIN),
        site: field(headers, &FETCH_SITE),
    };
    let checked = plane.hosts.check_host(&sender);
    let checked = checked.and_then(|()| plane.hosts.check_page(&sender));
    let checked = checked.and_then(|()| check_certificate(&plane, &request));
    let checked = checked.and_then(|()| check_token(&plane, &request));
    let checked = checked.and_then(|who| check_store(&plane, &request).map(|()| who));
    let mut answer = match checked {
        Ok(who) => match AuditedCall::of(&plane, &request, who) {
            None => next.run(request).await,
            Some(recorded) => {
                let answer = next.run(request).await;
                recorded.note(answer.status().as_u16());
                answer
            }
        },
        Err(refusal) => refused(&refusal),
    };
    let nosniff = HeaderValue::from_static("nosniff");
    answer
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    answer
}

/// A front door has no record of its own to be copied or replaced.
fn check_store(plane: &AdminPlane, request: &Request) -> Result<(), Refusal> {
    let path = request.uri().path();
    let is_of_records = path.starts_with("/v0/checkpoints") || path.starts_with("/v0/restore");
    let parts = plane.parts.get();
    let Some(desk) = parts.and_then(|parts| parts.front.as_ref()) else {
        return Ok(());
    };
    if is_of_records {
        Err(Refusal::new(
            501,
            "not-offered",
            format!(
                "this front door keeps no records: use the tools of {} for that",
                desk.shape.engine
            ),
        ))
    } else {
        Ok(())
    }
}

/// A call that goes into the audit log with its outcome.
struct AuditedCall {
    audit: Arc<Audit>,
    event: AuditEvent,
    /// Is it one of many of the same work, of which only failures are written?
    is_one_of_many: bool,
}

impl AuditedCall {
    /// All that changes something, and profiles.
    fn of(plane: &AdminPlane, request: &Request, who: Option<String>) -> Option<AuditedCall> {
        let audit = plane.border.audit.clone()?;
        let path = request.uri().path();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && !path.starts_with("/debug/profile/") {
            return None;
        }
        let kind = match path {
            _ if path.starts_with("/v0/cluster/") => AuditKind::Topology,
            _ if path.starts_with("/v0/restore") => AuditKind::BulkLoad,
            _ => AuditKind::Admin,
        };
        let what = audit::what_of(request.method().as_str(), path);
        let who = who.unwrap_or_else(|| "-".to_owned());
        let event = AuditEvent::new(kind, what).by(who);
        Some(AuditedCall {
            audit,
            event: event.from(source_of(request), Port::Admin),
            is_one_of_many: path == "/v0/restore/page",
        })
    }

    fn note(self, status: u16) {
        if !self.is_one_of_many || status >= 400 {
            self.audit.note(self.event.ending(status));
        }
    }
}

fn source_of(request: &Request) -> IpAddr {
    let source = request.extensions().get::<IpAddr>().copied();
    source.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// May every client that reaches the port ask for this?
fn is_open(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Where clients have to show certificates, all but health and readiness takes one.
fn check_certificate(plane: &AdminPlane, request: &Request) -> Result<(), Refusal> {
    let path = request.uri().path();
    // A request whose connection was not looked at has none.
    let lacks = request.extensions().get::<LacksCertificate>();
    if is_open(path) || lacks.is_some_and(|lacks| !lacks.0) {
        return Ok(());
    }
    let sentence = "this port wants a client certificate (--tls-client-ca) for all but /healthz \
                    and /readyz: show one with --cert and --key-file";
    let refusal = Refusal::new(403, "certificate-required", sentence);
    let source = source_of(request);
    let what = || audit::what_of(request.method().as_str(), path);
    let audit = plane.border.audit.as_deref();
    audit::note_login(audit, "-".to_owned(), (source, Port::Admin), what, &refusal);
    Err(refusal)
}

/// Once there are tokens, all but health and readiness takes one. Returns its name, where one was
/// needed.
fn check_token(plane: &AdminPlane, request: &Request) -> Result<Option<String>, Refusal> {
    let path = request.uri().path();
    let Some(rights) = &plane.border.rights else {
        return Ok(None);
    };
    if is_open(path) {
        return Ok(None);
    }
    let value = request.headers().get(header::AUTHORIZATION);
    let names = request.extensions().get::<Arc<ShownNames>>();
    let proof = LoginProof {
        token: value.map_or(ShownToken::Absent, |value| {
            ShownToken::of(token_of(value.as_bytes()).as_deref())
        }),
        names: names.map_or(&[][..], |names| names.at(clock::wall_ms())),
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let need = match path {
        "/metrics" if is_read => AdminNeed::Metrics,
        "/" | "/page.js" | "/page.css" | "/v0/status" | "/v0/health" | "/openapi.yaml"
            if is_read =>
        {
            AdminNeed::Look
        }
        // Checkpoints hold every record: a path that is not named here takes an admin.
        _ => AdminNeed::More,
    };
    let judged = rights.judge_admin(proof, need);
    judged.map(Some).map_err(|denied| {
        let source = source_of(request);
        let who = denied.who();
        let mut refusal = rights.refuse(denied, source, clock::monotonic_us());
        let what = || audit::what_of(request.method().as_str(), path);
        let audit = plane.border.audit.as_deref();
        audit::note_login(audit, who, (source, Port::Admin), what, &refusal);
        // A browser asks its user for a name, which is not read, and for a password: the token.
        refusal.challenge = refusal
            .challenge
            .map(|_| "Basic realm=\"dendra: the token is the password\"");
        refusal
    })
}

/// The token as a bearer's, or as the password of a browser's user.
fn token_of(value: &[u8]) -> Option<Vec<u8>> {
    if let Some(token) = bearer(value) {
        return Some(token.to_vec());
    }
    let (scheme, text) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = base64::engine::general_purpose::STANDARD.decode(text.trim_ascii());
    let pair = pair.ok()?;
    let at = pair.iter().position(|&b| b == b':')?;
    Some(pair[at + 1..].to_vec())
}

static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Field<'a> {
    let mut found = headers.get_all(name).iter();
    match (found.next(), found.next()) {
        (None, _) => Field::Absent,
        (Some(value), None) => Field::Once(value.as_bytes()),
        (Some(_), Some(_)) => Field::Repeated,
    }
}

fn refused(refusal: &Refusal) -> Response {
    let code = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let text = format!("{}: {}\n", refusal.code, refusal.message);
    let mut answer = (code, text).into_response();
    if let Some(challenge) = refusal.challenge {
        let challenge = HeaderValue::from_static(challenge);
        answer
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = refusal.retry_after_s {
        let seconds = HeaderValue::from(seconds);
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    answer
}

impl FromRef<Arc<AdminPlane>> for StewardWay {
    fn from_ref(plane: &Arc<AdminPlane>) -> StewardWay {
        match plane.parts.get().map(|parts| parts.cluster.as_ref()) {
            None => StewardWay::Starting,
            Some(None) => StewardWay::Alone,
            Some(Some(cluster)) => StewardWay::Member(cluster.steward.orders.clone()),
        }
    }
}

impl FromRef<Arc<AdminPlane>> for Looker {
    fn from_ref(plane: &Arc<AdminPlane>) -> Looker {
        Looker(plane.parts.get().and_then(|parts| parts.cluster.clone()))
    }
}

impl FromRef<Arc<AdminPlane>> for OwnState {
    fn from_ref(plane: &Arc<AdminPlane>) -> OwnState {
        let parts = plane.parts.get();
        let own = parts.and_then(|parts| {
            let cluster = parts.cluster.as_ref()?;
            Some(OwnPage::from((parts, &**cluster)))
        });
        OwnState(own)
    }
}

fn router(plane: Arc<AdminPlane>) -> Router {
    let backup = backup::routes(&plane.parts);
    Router::new()
        .route("/", get(index))
        .route("/page.js", get(script))
        .route("/page.css", get(style))
        .route("/healthz", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v0/status", get(status))
        .route("/v0/health", get(health))
        .merge(cluster::routes())
        .route("/openapi.yaml", get(openapi))
        .route("/debug/profile/{kind}", get(profile::profile))
        .with_state(Arc::clone(&plane))
        .merge(backup)
        .layer(middleware::from_fn_with_state(plane, check_sender))
}

async fn ready(State(plane): State<Arc<AdminPlane>>, request: Request) -> Response {
    let phase = plane.phase.now();
    let parts = plane.parts.get();
    let of_no_use = parts.and_then(NodeParts::of_no_use).map(|(_, why)| why);
    let mut wishes = request.uri().query().unwrap_or("").split('&');
    let cut_off = || health_watch::members(parts?)?.cut_off();
    let cut_off = || cut_off().filter(|_| wishes.any(|wish| wish == "quorum=1"));
    let (code, said) = match (phase, of_no_use.or_else(cut_off)) {
        (Phase::Serving, None) => {
            // Reads and deletes are served: a balancer that took it away would lose them.
            let cluster = parts.and_then(|parts| parts.cluster.as_ref());
            let waits = cluster.and_then(|cluster| cluster.why_plan_waits());
            let further = full_disk(parts).into_iter().chain(waits);
            let said = further.fold(phase.as_str().to_owned(), |said, it| {
                format!("{said}, and {it}")
            });
            (StatusCode::OK, said)
        }
        (Phase::Serving | Phase::Poisoned, Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, why),
        _ => (StatusCode::SERVICE_UNAVAILABLE, phase.as_str().to_owned()),
    };
    (code, format!("{said}\n")).into_response()
}

fn full_disk(parts: Option<&NodeParts>) -> Option<String> {
    health::disk_full(parts?.store.engine.stats().disk)
}

async fn health(State(plane): State<Arc<AdminPlane>>) -> Response {
    let parts = plane.parts.get();
    let findings = parts.map_or_else(|| vec![HealthFinding::of_start()], health_watch::findings);
    let members = parts.and_then(health_watch::members);
    let memory = parts.map(|parts| &parts.store.health);
    let page = json_of(HealthPage::from((&findings[..], members.as_ref(), memory)));
    let page = format!("{page:#}\n");
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

async fn metrics(State(plane): State<Arc<AdminPlane>>) -> Response {
    match exposition::render(&plane.registry) {
        Ok(page) => ([(header::CONTENT_TYPE, exposition::CONTENT_TYPE)], page).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A document that is a part of the program.
fn document(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn openapi() -> Response {
    let text = include_str!("../../../../docs/openapi.yaml");
    document("application/yaml", text)
}

async fn index() -> Response {
    // Only its own parts, and the numbers of this node.
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let policy = (header::CONTENT_SECURITY_POLICY, POLICY);
    ([policy], Html(include_str!("page.html"))).into_response()
}

async fn script() -> Response {
    document("text/javascript; charset=utf-8", include_str!("page.js"))
}

async fn style() -> Response {
    document("text/css; charset=utf-8", include_str!("page.css"))
}

async fn status(State(plane): State<Arc<AdminPlane>>) -> Response {
    let phase = plane.phase.now();
    let parts = plane.parts.get();
    let of_no_use = parts.and_then(NodeParts::of_no_use).map(|(_, why)| why);
    let mut page = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "phase": parts.map_or(phase.as_str(), |parts| parts.phase_in_a_word()),
        "ready": phase == Phase::Serving && of_no_use.is_none(),
        "why": of_no_use,
        "disk": full_disk(parts),
    });
    if let Some(parts) = parts {
        page["restore"] = restore(parts);
        page["node"] = node(parts);
        page["engine"] = engine(parts);
        page["queues"] = queues(parts);
        if let Some(desk) = &parts.front {
            page["store"] = store(desk);
        }
        if let Some(cluster) = &parts.cluster {
            page["cluster"] = members(cluster);
        }
    }
    let page = format!("{page:#}\n");
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

/// How far the restore is that is under way.
fn restore(parts: &NodeParts) -> Value {
    let progress = parts.store.import.progress().map(|progress| {
        json!({
            "id": format!("{:032x}", progress.id),
            "position": backup::digits_of(&progress.position),
            "records": progress.records,
            "bytes": progress.bytes,
        })
    });
    progress.into()
}

fn node(parts: &NodeParts) -> Value {
    let identity = parts.store.engine.identity();
    let settings = &parts.settings;
    json!({
        "id": format!("{:032x}", identity.node),
        "origin": identity.origin,
        "nodes": parts.cluster.as_ref().map_or(1, |cluster| cluster.topology().live()),
        "replication_factor": parts.cluster.as_ref().map_or(1, |cluster| cluster.topology().replication_factor()),
        "durability": settings.durability.as_str(),
        "loops": parts.lanes.len(),
        "workers": settings.workers,
        "value_bytes_max": settings.value_bytes_max,
        "memory_bytes": settings.memory_bytes,
    })
}

fn members(cluster: &Cluster) -> Value {
    use std::sync::atomic::Ordering::Relaxed;
    let topology = cluster.topology();
    let peers = cluster.others().into_iter().map(|(url, gauges)| {
        json!({
            "url": url,
            "links": gauges.links.load(Relaxed),
            "links_lost": gauges.lost.load(Relaxed),
            "asks": gauges.asks.load(Relaxed),
            "answers": gauges.answers.load(Relaxed),
            "refused": gauges.refused.load(Relaxed),
            "late": gauges.late.load(Relaxed),
        })
    });
    json!({
        "name": topology.name(),
        "epoch": topology.epoch(),
        "digest": format!("{:016x}", cluster.own.digest()),
        "self": cluster.own_url(),
        "hints": HintsPage::from(cluster),
        "comparisons": ComparisonsPage::from(cluster),
        "peers": peers.collect::<Vec<_>>(),
    })
}

fn store(desk: &FrontDesk) -> Value {
    json!({
        "engine": desk.shape.engine,
        "copies": desk.shape.copies,
        "queued": desk.queued(),
        "under_way": desk.gauges.under_way(),
        "silence": desk.gauges.silence(),
    })
}

fn engine(parts: &NodeParts) -> Value {
    let stats = parts.store.engine.stats();
    let pressure = parts.store.engine.pressure();
    let levels = stats.levels.iter();
    let levels = levels.map(|(tables, bytes)| json!({ "tables": tables, "bytes": bytes }));
    let damaged = parts
        .store
        .engine
        .damaged_tables()
        .into_iter()
        .map(|table| {
            json!({
                "file": table.file,
                "offset": table.offset,
                "reason": table.reason,
                "set_aside": table.is_set_aside,
            })
        });
    json!({
        "pressure": pressure.level,
        "stopped_by": pressure.stop.map(|stop| format!("{stop:?}")),
        "levels": levels.collect::<Vec<_>>(),
        "memtable_bytes": stats.memtable_bytes,
        "memtables_sealed": stats.memtables_sealed,
        "cache_bytes": stats.cache_bytes,
        "log_segments": stats.log_segments,
        "disk_free_bytes": stats.disk.free_bytes,
        "disk_total_bytes": stats.disk.total_bytes,
        "disk_used_bytes": stats.disk.used_bytes,
        "disk_reserve_bytes": stats.disk.reserve_bytes,
        "disk_full": stats.disk.is_full,
        "kept_bytes": stats.kept_bytes,
        "damaged_reads": stats.damaged_reads,
        "damaged_tables": damaged.collect::<Vec<_>>(),
        "scrub": ScrubPage::from((stats.scrub, parts)),
    })
}

fn queues(parts: &NodeParts) -> Value {
    let (points, scans) = parts.store.pool.queued();
    let requests_max = parts.budgets.requests.limit();
    json!({
        "connections": { "used": parts.lanes.connections(), "max": parts.settings.connections_max },
        "requests": { "used": exposition::sum(parts, |m| &m.requests_held), "max": requests_max },
        "bytes": { "used": exposition::sum(parts, |m| &m.bytes_held), "max": parts.budgets.bytes.limit() },
        "processor": {
            "standing_delay_us": exposition::standing_us(parts),
            "standing": exposition::sum(parts, |m| &m.standing),
            "overloaded_loops": exposition::sum(parts, |m| &m.is_standing),
            "abandoned": exposition::sum(parts, |m| &m.abandoned),
            "scan_rests": parts.store.pool.scan_rests(),
        },
        "classes": classes(parts),
        "store": { "points": points, "scans": scans, "max": parts.settings.queue },
        "writes_in_line": {
            "clients": exposition::sum(parts, |m| &m.log_line),
            "members": exposition::sum(parts, |m| &m.order_line),
        },
    })
}

/// Requests of each class that were let in and refused since the start.
fn classes(parts: &NodeParts) -> Value {
    let classes = CapacityShare::ALL.map(|share| {
        let refused = RefusalCause::ALL.map(|what| {
            let count = exposition::refused(parts, share, what);
            (what.as_str().to_owned(), json!(count))
        });
        let refused: Map<_, _> = refused.into_iter().collect();
        let admitted = exposition::sum(parts, |m| &m.admitted[share as usize]);
        let class = json!({ "admitted": admitted, "refused": refused });
        (share.as_str().to_owned(), class)
    });
    Value::Object(classes.into_iter().collect())
}
