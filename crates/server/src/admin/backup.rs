//! The admin routes of `dendra backup` and `dendra restore`.
//!
//! ```text
//! POST   /v0/checkpoints?since=                          201: a checkpoint, its files, this node's place
//! GET    /v0/checkpoints/{id}/{file}?offset=&bytes=      200: a part of a file
//! DELETE /v0/checkpoints/{id}                            204
//! GET    /v0/restore                                     200: how far a restore is, is the store empty
//! POST   /v0/restore?id=&hlc=                            200: begun, or goes on
//! PUT    /v0/restore/page                                200: the page is taken
//! POST   /v0/restore/settle?id=                          200: all of it is in tables; the body: the last key that was sent
//! POST   /v0/restore/successors?id=&least=               200: an epoch gives the cluster this least successor number
//! POST   /v0/restore/finish?id=&least=                   200: clients are let in; the body as of settle
//! 400 unusable   404 gone   409 not empty, another restore   412 a page is missing, or the begin   500 failed   503 try again   507 disk full
//! ```
//!
//! Invariants
//! 1. No work that waits for the disk runs on the admin thread. Parts of a checkpoint are read by
//!    threads that yield to all others: a backup is never urgent.
//! 2. A member keeps a record if it is one of its owners, and skips the others without a word.
//! 3. Pages in memory are bounded: `RESTORE_PAGES_BYTES_MAX`, each at most `PAGE_BYTES_MAX`.
//!
//! Not here: checkpoints (`disk/checkpoints.rs`), the way into the store (`disk/import/`).
//! See: docs/format/backup.md, docs/api.md, section "Admin plane".

use super::numbers;
use crate::clock;
use crate::disk::changes;
use crate::disk::checkpoint_readers::CheckpointReaders;
use crate::disk::checkpoints::{Checkpoint, CheckpointEnd, CheckpointFile, NoCheckpoint};
use crate::disk::import::{self, CommitPath, KeptPage, NotImported, Numbering, RestoreState};
use crate::event_loop::parts::NodeParts;
use crate::limits::{
    CHECKPOINT_LEASE, CHECKPOINT_READ_BYTES_MAX, CHECKPOINTS_MAX, RESTORE_PAGES_BYTES_MAX,
};
use crate::member::NoSteward;
use crate::phase::Phase;
use crate::retry_after::retry_after_s;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_base::{CellRef, LeastSuccessor};
use dendra_engine::Stop;
use dendra_ownership::steward::declined::Declined;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder};
use dendra_wire::restore::{PAGE_BYTES_MAX, RestorePage, page_room};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;

/// The node, once its folder is open.
type ServedNode = Arc<OnceLock<NodeParts>>;

struct BackupDesk {
    node: ServedNode,
    pages: Semaphore,
    readers: CheckpointReaders,
}

/// A refusal: one sentence that names the way out.
type NoAnswer = (StatusCode, String);

/// The routes. They check no right: the caller's layers do.
pub(super) fn routes(node: &ServedNode) -> Router {
    let desk = Arc::new(BackupDesk {
        node: Arc::clone(node),
        pages: Semaphore::new(RESTORE_PAGES_BYTES_MAX),
        readers: CheckpointReaders::default(),
    });
    Router::new()
        .route("/v0/checkpoints", post(make))
        .route("/v0/checkpoints/{id}", axum::routing::delete(release))
        .route("/v0/checkpoints/{id}/{file}", get(read))
        .route("/v0/restore", get(standing).post(begin))
        .route("/v0/restore/page", put(page))
        .route("/v0/restore/settle", post(settle))
        .route("/v0/restore/successors", post(successors))
        .route("/v0/restore/finish", post(finish))
        .with_state(desk)
}

/// Removes checkpoints without a reader, once a second, for as long as it is polled.
pub(super) async fn expire(node: ServedNode) {
    let mut ticks = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        ticks.tick().await;
        let Some(parts) = node.get().filter(|it| it.store.checkpoints.len() > 0) else {
            continue;
        };
        let parts = parts.clone();
        let expired = tokio::task::spawn_blocking(move || {
            let stop = parts.store.engine.pressure().stop;
            let is_full = matches!(stop, Some(Stop::DiskFull | Stop::DiskAndMemoryFull));
            parts
                .store
                .checkpoints
                .expire(clock::monotonic_us(), is_full);
        });
        if let Err(error) = expired.await {
            tracing::error!(%error, "checkpoints could not be looked at");
        }
    }
}

fn answer(result: Result<Value, NoAnswer>, ok: StatusCode) -> Response {
    match result {
        Ok(page) => {
            let kind = (header::CONTENT_TYPE, "application/json");
            (ok, [kind], format!("{page}\n")).into_response()
        }
        Err(refused) => refusal(refused),
    }
}

fn refusal((status, sentence): NoAnswer) -> Response {
    let busy = status == StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = (status, format!("{sentence}\n")).into_response();
    if busy {
        let second = axum::http::HeaderValue::from(retry_after_s());
        answer.headers_mut().insert(header::RETRY_AFTER, second);
    }
    answer
}

/// The node, if it serves.
fn serving(desk: &BackupDesk) -> Result<NodeParts, NoAnswer> {
    let parts = desk.node.get();
    let serving = parts.filter(|parts| parts.phase.now() == Phase::Serving);
    serving.cloned().ok_or_else(|| {
        let sentence = "the node does not serve yet, or no longer: ask again when /readyz says so";
        (StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned())
    })
}

/// Runs `work` on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NoAnswer> + Send + 'static,
) -> Result<T, NoAnswer> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

fn unusable(sentence: impl Into<String>) -> NoAnswer {
    (StatusCode::BAD_REQUEST, sentence.into())
}

/// A number in hexadecimal, as ids and clocks are written.
fn hexadecimal(query: &HashMap<String, String>, name: &str) -> Result<u128, NoAnswer> {
    let text = query.get(name).map(String::as_str);
    let number = text.and_then(numbers::hexadecimal);
    number.ok_or_else(|| unusable(format!("{name} is a hexadecimal number.")))
}

fn number(query: &HashMap<String, String>, name: &str) -> Result<u64, NoAnswer> {
    let text = query.get(name).map(String::as_str);
    let number = text.and_then(numbers::whole);
    number.ok_or_else(|| unusable(format!("{name} is a whole number.")))
}

// Checkpoints.

fn no_checkpoint(why: NoCheckpoint) -> NoAnswer {
    match why {
        NoCheckpoint::TooMany => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "{CHECKPOINTS_MAX} checkpoints are held already: wait until a backup ends, or {} s after its end if it was killed",
                CHECKPOINT_LEASE.as_secs()
            ),
        ),
        NoCheckpoint::Gone(end) => (
            StatusCode::NOT_FOUND,
            format!(
                "{}; a backup that is begun again goes on where it was",
                why_gone(end)
            ),
        ),
        NoCheckpoint::NoSuchPart => (
            StatusCode::NOT_FOUND,
            "the checkpoint has no such file, or the file ends before the offset".to_owned(),
        ),
        NoCheckpoint::Failed(reason) => (StatusCode::INTERNAL_SERVER_ERROR, reason),
    }
}

fn why_gone(end: CheckpointEnd) -> String {
    match end {
        CheckpointEnd::Process => {
            "the checkpoint ended with its process: the node was started again since then"
                .to_owned()
        }
        CheckpointEnd::Lease => format!(
            "the checkpoint was removed: it was not read for {} s",
            CHECKPOINT_LEASE.as_secs()
        ),
        CheckpointEnd::DiskFull => {
            "the checkpoint was removed: the disk of the node was full".to_owned()
        }
        CheckpointEnd::Released => {
            "there is no such checkpoint: its reader released it, or it never was".to_owned()
        }
    }
}

/// The marks in `since=`, with commas; none is a list, too. `None` without the word.
fn marks(query: &HashMap<String, String>) -> Result<Option<Vec<u128>>, NoAnswer> {
    let Some(list) = query.get("since") else {
        return Ok(None);
    };
    let marks = list.split(',').filter(|mark| !mark.is_empty());
    let marks: Option<Vec<u128>> = marks.map(numbers::hexadecimal).collect();
    let sentence = || unusable("since is marks of earlier checkpoints, with commas.");
    marks.map(Some).ok_or_else(sentence)
}

async fn make(
    State(desk): State<Arc<BackupDesk>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let asked = || Ok((serving(&desk)?, marks(&query)?));
    let made = match asked() {
        Ok((parts, since)) => {
            blocking(move || {
                let made = parts.store.checkpoints.make(&parts.store.engine, since);
                let made = made.map_err(no_checkpoint)?;
                Ok(described(&parts, &made))
            })
            .await
        }
        Err(refused) => Err(refused),
    };
    answer(made, StatusCode::CREATED)
}

fn described(parts: &NodeParts, made: &Checkpoint) -> Value {
    let increment = made.increment.as_ref().map(|it| {
        json!({
            "mark": it.mark.map(|mark| format!("{mark:032x}")),
            "since": it.since.map(|mark| format!("{mark:032x}")),
            "files": listed(&it.files),
        })
    });
    json!({
        "id": format!("{:032x}", made.id),
        "lease_seconds": CHECKPOINT_LEASE.as_secs(),
        "node": format!("{:032x}", parts.store.engine.identity().node),
        "hlc": format!("{:x}", last_hlc(parts)),
        "wall_ms": clock::wall_ms(),
        "cluster": place(parts),
        "files": listed(&made.files),
        "increment": increment,
    })
}

fn listed(files: &[CheckpointFile]) -> Vec<Value> {
    let listed = files.iter().map(|file| {
        json!({
            "name": file.name,
            "bytes": file.bytes,
            "content": format!("{:032x}", file.content),
        })
    });
    listed.collect()
}

/// No version of this node has a larger clock value now.
fn last_hlc(parts: &NodeParts) -> u64 {
    let of_cluster = parts.cluster.as_ref().map_or(0, |it| it.hlc.last());
    parts.store.versions.last().max(of_cluster)
}

/// Which member of which cluster answers; null for a node by itself.
fn place(parts: &NodeParts) -> Value {
    let Some(cluster) = &parts.cluster else {
        return Value::Null;
    };
    let layout = cluster.layout();
    let topology = layout.topology();
    let members = layout.members();
    let members: Vec<&str> = members.map(|m| topology.member(m).url.as_str()).collect();
    json!({
        "name": topology.name(),
        "epoch": layout.epoch(),
        "replication_factor": topology.copies(),
        "least_successor": layout.least_successor().number(),
        "self": cluster.url(cluster.own.me),
        "members": members,
    })
}

async fn read(
    State(desk): State<Arc<BackupDesk>>,
    Path((id, file)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let asked = || -> Result<_, NoAnswer> {
        let id = numbers::hexadecimal(&id)
            .ok_or_else(|| no_checkpoint(NoCheckpoint::Gone(CheckpointEnd::Released)))?;
        let bytes = usize::try_from(number(&query, "bytes")?).unwrap_or(usize::MAX);
        if bytes > CHECKPOINT_READ_BYTES_MAX {
            let sentence = format!("bytes is at most {CHECKPOINT_READ_BYTES_MAX}.");
            return Err(unusable(sentence));
        }
        Ok((serving(&desk)?, id, number(&query, "offset")?, bytes))
    };
    let part = match asked() {
        Ok((parts, checkpoint, offset, bytes)) => {
            let read = move || {
                parts
                    .store
                    .checkpoints
                    .read(checkpoint, &file, offset, bytes)
            };
            let part = desk.readers.run(read).await;
            part.unwrap_or_else(|e| Err(NoCheckpoint::Failed(e.to_string())))
                .map_err(no_checkpoint)
        }
        Err(refused) => Err(refused),
    };
    match part {
        Ok(part) => ([(header::CONTENT_TYPE, "application/octet-stream")], part).into_response(),
        Err(refused) => refusal(refused),
    }
}

async fn release(State(desk): State<Arc<BackupDesk>>, Path(id): Path<String>) -> Response {
    let released = match (serving(&desk), numbers::hexadecimal(&id)) {
        (Ok(parts), Some(id)) => {
            blocking(move || parts.store.checkpoints.release(id).map_err(no_checkpoint)).await
        }
        (Err(refused), _) => Err(refused),
        (Ok(_), None) => Err(no_checkpoint(NoCheckpoint::Gone(CheckpointEnd::Released))),
    };
    match released {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => refusal(refused),
    }
}

// Restore.

fn not_imported(why: NotImported) -> NoAnswer {
    match why {
        NotImported::NotEmpty => (
            StatusCode::CONFLICT,
            "this node holds records, tombstones of some, or tokens: a restore needs empty folders, \
             and tokens are made behind it"
                .to_owned(),
        ),
        NotImported::Another(id) => (
            StatusCode::CONFLICT,
            format!(
                "restore {id:032x} is under way here: go on with it by the same command, or start with empty folders"
            ),
        ),
        NotImported::NoneSuch => (
            StatusCode::PRECONDITION_FAILED,
            "no such restore is under way here: begin it first".to_owned(),
        ),
        NotImported::Gap => (
            StatusCode::PRECONDITION_FAILED,
            "pages in front of this one are missing here: the node started again, or its disk failed"
                .to_owned(),
        ),
        NotImported::Wrong(reason) => unusable(reason),
        NotImported::DiskFull => (
            StatusCode::INSUFFICIENT_STORAGE,
            "the disk is full: make room and go on with the restore".to_owned(),
        ),
        NotImported::Busy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the store is behind: try again".to_owned(),
        ),
        NotImported::Failed(reason) => (StatusCode::INTERNAL_SERVER_ERROR, reason),
    }
}

/// A raw key in hexadecimal.
pub(super) fn digits_of(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn state_page(parts: &NodeParts, state: Option<&RestoreState>, is_empty: bool) -> Value {
    let restore = state.map(|state| {
        json!({
            "id": format!("{:032x}", state.id),
            "finished": state.is_finished,
            "hlc": format!("{:x}", state.hlc),
            "successors": state.successors,
            "pages": state.pages,
            "position": digits_of(&state.position),
        })
    });
    json!({
        "node": format!("{:032x}", parts.store.engine.identity().node),
        "cluster": place(parts),
        "empty": is_empty,
        // A release without this word knows no `settle`.
        "restore": restore,
    })
}

async fn standing(State(desk): State<Arc<BackupDesk>>) -> Response {
    let state = match serving(&desk) {
        Ok(parts) => {
            blocking(move || {
                let is_empty = import::is_empty(&parts.store.engine);
                let is_empty =
                    is_empty.map_err(|e| not_imported(NotImported::Failed(e.to_string())))?;
                let state = parts.store.import.state();
                Ok(state_page(&parts, state.as_ref(), is_empty))
            })
            .await
        }
        Err(refused) => Err(refused),
    };
    answer(state, StatusCode::OK)
}

/// Runs `work` with the way into the log.
fn on_road<T>(parts: &NodeParts, work: impl FnOnce(&CommitPath<'_>) -> T) -> T {
    work(&CommitPath {
        engine: &parts.store.engine,
        ring: &|| parts.store.bell.ring(),
        is_poisoned: &|| parts.phase.now() == Phase::Poisoned,
        wall_ms: clock::wall_ms(),
    })
}

async fn begin(
    State(desk): State<Arc<BackupDesk>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let asked = || -> Result<_, NoAnswer> {
        let id = hexadecimal(&query, "id")?;
        let hlc = u64::try_from(hexadecimal(&query, "hlc")?);
        let hlc = hlc.map_err(|_| unusable("hlc is a clock value of 64 bits."))?;
        Ok((serving(&desk)?, id, hlc))
    };
    let begun = match asked() {
        Ok((parts, id, hlc)) => {
            blocking(move || {
                all_members_are_there(&parts)?;
                let numbering = numbering(&parts);
                let begun = on_road(&parts, |road| {
                    let raise = || raise_clock(&parts, hlc);
                    parts.store.import.begin(road, id, hlc, numbering, raise)
                });
                let begun = begun.map_err(not_imported)?;
                tracing::info!(
                    id = format!("{id:032x}"),
                    pages = begun.pages,
                    "a restore is under way"
                );
                Ok(state_page(&parts, Some(&begun), begun.pages == 0))
            })
            .await
        }
        Err(refused) => Err(refused),
    };
    answer(begun, StatusCode::OK)
}

fn numbering(parts: &NodeParts) -> Numbering {
    match &parts.cluster {
        Some(_) => Numbering::Raised,
        None => Numbering::Kept,
    }
}

/// A member that this one has not met could come later with an old folder and be let in.
fn all_members_are_there(parts: &NodeParts) -> Result<(), NoAnswer> {
    let Some(cluster) = &parts.cluster else {
        return Ok(());
    };
    let away = cluster
        .others()
        .into_iter()
        .find(|(_, gauges)| gauges.links.load(Ordering::Relaxed) == 0);
    match away {
        None => Ok(()),
        Some((url, _)) => Err((
            StatusCode::SERVICE_UNAVAILABLE,
            format!("there is no link to {url}: a restore needs all members, so start it first"),
        )),
    }
}

/// Later versions are above everything that is restored.
fn raise_clock(parts: &NodeParts, hlc: u64) -> Result<(), String> {
    let raised = parts.store.versions.observe(hlc);
    raised.map_err(|implausible| implausible.to_string())?;
    if let Some(cluster) = &parts.cluster {
        let of_cluster = cluster.hlc.observe(hlc);
        of_cluster.map_err(|implausible| implausible.to_string())?;
    }
    // The note of the restore takes it to the log.
    parts.store.engine.raise_hlc_ceiling(hlc);
    Ok(())
}

async fn page(State(desk): State<Arc<BackupDesk>>, body: Body) -> Response {
    // A length that is not told, or is a lie, counts as the largest: `to_bytes` takes no more.
    let told = body.size_hint().upper();
    let told = told.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let Ok(_permit) = desk.pages.try_acquire_many(page_room(told)) else {
        let sentence = "as many pages as there is room for are being written already: try again";
        return refusal((StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned()));
    };
    let bytes = match axum::body::to_bytes(body, PAGE_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let sentence =
                format!("a page has at most {PAGE_BYTES_MAX} bytes, all of them: {error}");
            return refusal(unusable(sentence));
        }
    };
    let written = match serving(&desk) {
        Ok(parts) => blocking(move || write_page(&parts, &bytes)).await,
        Err(refused) => Err(refused),
    };
    answer(written, StatusCode::OK)
}

fn write_page(parts: &NodeParts, bytes: &[u8]) -> Result<Value, NoAnswer> {
    let page = RestorePage::decode(bytes).map_err(|bad| unusable(bad.to_string()))?;
    let kept: Vec<(&[u8], CellRef<'_>)> = page
        .records
        .iter()
        .filter_map(|(raw, cell)| {
            let copies = copies_here(parts, raw, cell.copies)?;
            Some((*raw, CellRef { copies, ..*cell }))
        })
        .collect();
    let count = kept.len();
    let too_large = kept
        .iter()
        .map(|(_, cell)| dendra_wire::meta::unwrap(cell.value).1.len())
        .find(|len| *len > parts.settings.value_bytes_max);
    if let Some(len) = too_large {
        return Err(unusable(format!(
            "a value has {len} bytes, and this node takes {}: raise --value-bytes-max",
            parts.settings.value_bytes_max
        )));
    }
    let kept = KeptPage {
        restore: page.restore,
        number: page.number,
        behind: page.behind,
        position: page.position,
        records: &kept,
    };
    on_road(parts, |road| parts.store.import.page(road, &kept)).map_err(not_imported)?;
    Ok(json!({ "kept": count }))
}

/// On how many owners a record lives here; `None` when this member is none of them. A record may
/// have had fewer owners than the replication factor, or another number of them. It gets as many as
/// a record of this cluster has.
fn copies_here(parts: &NodeParts, raw_key: &[u8], copies: u8) -> Option<u8> {
    let Some(cluster) = &parts.cluster else {
        return Some(1);
    };
    let layout = cluster.layout();
    let (least, most) = (layout.topology().copies(), layout.topology().live());
    let copies = copies.clamp(least.min(most), most);
    let partition = layout.ring().partition(raw_key);
    layout
        .owns(cluster.own.me, partition, copies)
        .then_some(copies)
}

async fn settle(
    State(desk): State<Arc<BackupDesk>>,
    Query(query): Query<HashMap<String, String>>,
    body: Body,
) -> Response {
    let settled = at_the_end(&desk, &query, body, |parts, id, position| {
        let settled = on_road(parts, |road| parts.store.import.settle(road, id, position))?;
        tracing::info!(id = format!("{id:032x}"), "a restore is settled here");
        Ok(settled)
    });
    answer(settled.await, StatusCode::OK)
}

/// Chooses an epoch with this least successor number. Requires of the asker: all members have
/// settled.
async fn successors(
    State(desk): State<Arc<BackupDesk>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    answer(raised(&desk, &query).await, StatusCode::OK)
}

async fn raised(desk: &BackupDesk, query: &HashMap<String, String>) -> Result<Value, NoAnswer> {
    let parts = serving(desk)?;
    let (id, least) = (hexadecimal(query, "id")?, least_of(query)?);
    let look = parts.clone();
    blocking(move || {
        let state = look.store.import.state();
        let state = state.filter(|state| state.id == id && !state.is_finished);
        state.ok_or_else(|| not_imported(NotImported::NoneSuch))
    })
    .await?;
    let least = least.ok_or_else(|| unusable("least is missing."))?;
    let alone = "this node is alone: it has no least successor number";
    let cluster = parts.cluster.as_ref().ok_or_else(|| unusable(alone))?;
    let order = ClusterOrder::Restored { least };
    let busy = |sentence: String| (StatusCode::SERVICE_UNAVAILABLE, sentence);
    match cluster.steward.orders.carry_out(order).await {
        Ok(ClusterAnswer::Done { epoch }) => {
            tracing::info!(epoch, %least, "a restore raised the least successor number");
            Ok(json!({ "epoch": epoch }))
        }
        Ok(ClusterAnswer::Declined(why @ (Declined::Busy | Declined::NoMajority { .. }))) => {
            Err(busy(why.to_string()))
        }
        Ok(ClusterAnswer::Declined(why)) => Err((StatusCode::CONFLICT, why.to_string())),
        Ok(other) => {
            let sentence = format!("the steward answered something else: {other:?}");
            Err((StatusCode::INTERNAL_SERVER_ERROR, sentence))
        }
        Err(NoSteward::Busy) => Err(busy(Declined::Busy.to_string())),
        Err(NoSteward::Gone) => Err(busy("this node stops: ask another member".to_owned())),
    }
}

/// `least=`, if it is there.
fn least_of(query: &HashMap<String, String>) -> Result<Option<LeastSuccessor>, NoAnswer> {
    if !query.contains_key("least") {
        return Ok(None);
    }
    let least = u32::try_from(number(query, "least")?).ok();
    let sentence = || {
        let most = LeastSuccessor::MAX;
        unusable(format!("least is a successor number, at most {most}."))
    };
    let least = least.and_then(LeastSuccessor::new).ok_or_else(sentence)?;
    Ok(Some(least))
}

/// Does this member know the epoch with this least successor number? Else conditional writes that
/// it coordinates could get versions that the old cluster gives, too.
fn knows_least(parts: &NodeParts, least: LeastSuccessor) -> Result<(), NoAnswer> {
    let cluster = parts.cluster.as_ref();
    let known = cluster.map_or(LeastSuccessor::default(), |it| {
        it.layout().least_successor()
    });
    if known >= least {
        Ok(())
    } else {
        Err((
            StatusCode::SERVICE_UNAVAILABLE,
            "this member does not know yet that conditional writes give other versions behind the \
         restore: try again"
                .to_owned(),
        ))
    }
}

/// May clients be let in, as far as successor numbers go?
async fn may_finish(desk: &BackupDesk, query: &HashMap<String, String>) -> Result<(), NoAnswer> {
    let (parts, least) = (serving(desk)?, least_of(query)?);
    let look = parts.clone();
    let state = blocking(move || Ok(look.store.import.state())).await?;
    match (state.and_then(|state| state.successors), least) {
        (None, _) => Ok(()),
        (Some(_), Some(least)) => knows_least(&parts, least),
        (Some(_), None) => Err(unusable(
            "least is missing: use the `dendra restore` of this release.",
        )),
    }
}

async fn finish(
    State(desk): State<Arc<BackupDesk>>,
    Query(query): Query<HashMap<String, String>>,
    body: Body,
) -> Response {
    if let Err(refused) = may_finish(&desk, &query).await {
        return refusal(refused);
    }
    let finished = at_the_end(&desk, &query, body, |parts, id, position| {
        let finished = on_road(parts, |road| parts.store.import.finish(road, id, position))?;
        changes::forget(&parts.store);
        tracing::info!(id = format!("{id:032x}"), "a restore is finished");
        Ok(finished)
    });
    answer(finished.await, StatusCode::OK)
}

/// A step after the last page; its body is the last key.
async fn at_the_end(
    desk: &BackupDesk,
    query: &HashMap<String, String>,
    body: Body,
    step: fn(&NodeParts, u128, &[u8]) -> Result<RestoreState, NotImported>,
) -> Result<Value, NoAnswer> {
    let position = axum::body::to_bytes(body, KEY_BYTES_MAX).await;
    let position =
        position.map_err(|_| unusable("the body is the key behind which nothing more comes."))?;
    let (parts, id) = (serving(desk)?, hexadecimal(query, "id")?);
    blocking(move || {
        let state = step(&parts, id, &position).map_err(not_imported)?;
        Ok(state_page(&parts, Some(&state), false))
    })
    .await
}
