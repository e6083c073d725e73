//! The admin ports that a backup reads and a restore writes.
//!
//! ```text
//! --admin URL,URL ─► AdminNode, one for each ─► checkpoint, part, release │ standing, begin, page, settle, raise, finish
//! ```
//!
//! Invariants
//! 1. A read is tried again for a while; a refusal that asks for it is, too. Further tries are a
//!    tenth of the requests, and a burst; then each waits for 5 s. One after a `Retry-After` waits
//!    for at least that. A try without a connection is free.
//! 2. A sentence about a node begins with its address.
//!
//! Not here: the use of the answers (`take.rs`, `restore.rs`).
//! See: docs/api.md, section "Admin plane".

use crate::access::AccessArgs;
use crate::client::retry::{Budget, FailedTry, pause};
use crate::client::{AskedPort, BaseUrl, Client, Credentials, HttpRequest, Trouble, WholeAnswer};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use dendra_archive::manifest::{self, BackupCluster};
use dendra_base::{LeastSuccessor, Prng};
use dendra_wire::meta::MetaBuf;
use hyper::Method;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// A checkpoint needs a flush, and a page of a restore may wait for compactions.
const TIMEOUT_MS: u64 = 120_000;
/// How long a read or a refused request is tried again.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// How long a read or a refused request is tried again once a restore is under way: a machine
/// starts again, and a node reads its log.
const RESTART_FOR: Duration = Duration::from_secs(600);
/// How long a full disk is asked again: a node looks at it twice a second.
const ROOM_FOR: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(200);
/// A node that is waited for longer than this is named.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// One file of a checkpoint that a node holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) content: u128,
}

/// A checkpoint that a node holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldCheckpoint {
    pub(crate) id: String,
    /// The node removes it when it was not read for so long.
    pub(crate) lease: Duration,
    pub(crate) node: u128,
    pub(crate) hlc: u64,
    /// By the node's own clock, when the checkpoint was there.
    pub(crate) wall_ms: u64,
    pub(crate) place: NodePlace,
    pub(crate) files: Vec<HeldFile>,
    /// `None`: the node has a release that knows no marks.
    pub(crate) increment: Option<HeldIncrement>,
}

/// The tables that a node wrote since a mark.
#[derive(Clone, Debug)]
pub(crate) struct HeldIncrement {
    /// The mark of this checkpoint, if it has one.
    pub(crate) mark: Option<u128>,
    /// The mark that holds, of those that were asked for.
    pub(crate) since: Option<u128>,
    /// The tables after it.
    pub(crate) files: Vec<HeldFile>,
}

/// A mark in an answer; the outer `None` when it is unreadable.
fn mark(value: &Value) -> Option<Option<u128>> {
    match value {
        Value::Null => Some(None),
        mark => manifest::digits(mark).map(Some),
    }
}

/// Which member of which cluster a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePlace {
    /// URL of the node as a member; that of its admin port for a node by itself.
    pub(crate) url: String,
    pub(crate) cluster: Option<BackupCluster>,
}

/// How far a restore is on one node.
#[derive(Clone, Debug)]
pub(crate) struct RestoreStanding {
    pub(crate) node: u128,
    pub(crate) place: NodePlace,
    pub(crate) is_empty: bool,
    /// Last restore of the node: its id, is it finished, and the position.
    pub(crate) restore: Option<(u128, bool, Vec<u8>)>,
    /// The largest successor number of its records; `None` at a node by itself.
    pub(crate) successors: Option<u32>,
}

/// Why a node did not take a page, or the end of a restore.
#[derive(Debug)]
pub(crate) enum PageRefusal {
    /// The node lacks something in front of it: it started again, or its disk failed.
    Behind(Failure),
    /// Anything else.
    Failed(Failure),
}

/// How long a node that does not answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodePatience {
    /// A moment: no work was done yet.
    Usual,
    /// Until its machine could have started again: a restore is under way.
    Restart,
    /// For so long, as a test wants it.
    #[cfg(test)]
    Of(Duration),
}

/// One admin port.
pub(crate) struct AdminNode {
    client: Client,
    scheme: &'static str,
    patience: Cell<NodePatience>,
    /// Was it said that this node is waited for, since it answered last?
    is_told: Cell<bool>,
    console: Console,
    budget: RefCell<Budget>,
    chance: RefCell<Prng>,
}

impl AdminNode {
    /// Nodes that `--admin` names.
    pub(crate) fn all(
        urls: &str,
        access: &AccessArgs,
        console: Console,
    ) -> Result<Vec<AdminNode>, Failure> {
        let mut nodes = Vec::new();
        for url in urls.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let base = BaseUrl::parse(url).map_err(|bad| bad.of("--admin"))?;
            let credentials = Credentials::read(access, &base)?;
            nodes.push(AdminNode::at(base, credentials, console));
        }
        if nodes.is_empty() {
            Err(Failure::usage(
                "--admin names no node: write the admin addresses of all members, with commas",
            ))
        } else {
            Ok(nodes)
        }
    }

    /// The node at this address.
    fn at(base: BaseUrl, credentials: Credentials, console: Console) -> AdminNode {
        AdminNode {
            scheme: if base.is_tls() { "https" } else { "http" },
            patience: Cell::new(NodePatience::Usual),
            is_told: Cell::new(false),
            console,
            budget: RefCell::new(Budget::new()),
            chance: RefCell::new(Prng::named(u64::from(std::process::id()), "backup")),
            client: Client::new(base, credentials, TIMEOUT_MS, console),
        }
    }

    /// Address of the admin port.
    pub(crate) fn address(&self) -> String {
        format!("{}://{}", self.scheme, self.client.place())
    }

    fn failure(&self, trouble: &Trouble) -> Failure {
        trouble.failure_at(AskedPort::Admin, &self.address())
    }

    fn refused(&self, answer: &WholeAnswer) -> Failure {
        let exit = if answer.is_refusal() {
            Exit::UNAVAILABLE
        } else {
            Exit::FAILURE
        };
        let said = answer.sentence();
        let hint = match answer.status.as_u16() {
            404 | 405 if answer.body.is_empty() => {
                "; is it the admin port of a node of this version?"
            }
            400 if answer.code().as_deref() == Some("unknown-path") => {
                "; this is the data port: name the address of `serve --admin`"
            }
            _ => "",
        };
        Failure::new(exit, format!("{}: {said}{hint}", self.address()))
    }

    async fn once(&self, method: Method, path: &str, body: Bytes) -> Result<WholeAnswer, Trouble> {
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            method,
            path: path.to_owned(),
            headers: Vec::new(),
            body,
        };
        self.client.send(&ask).await
    }

    /// A request that may be repeated: until it is answered with 2xx, refused for good, or too
    /// late.
    async fn again(&self, method: Method, path: &str, body: Bytes) -> Result<WholeAnswer, Failure> {
        let answer = self.answered(method, path, body).await?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(self.refused(&answer))
        }
    }

    /// Asks, and takes all answers that are for good: the caller looks at the status.
    async fn answered(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<WholeAnswer, Failure> {
        let begun = Instant::now();
        self.budget.borrow_mut().sent();
        loop {
            let mut patience = match self.patience.get() {
                NodePatience::Usual => RETRY_FOR,
                NodePatience::Restart => RESTART_FOR,
                #[cfg(test)]
                NodePatience::Of(time) => time,
            };
            let (failure, failed) = match self.once(method.clone(), path, body.clone()).await {
                Ok(answer) if answer.is_refusal() => {
                    (self.refused(&answer), FailedTry::refused(&answer))
                }
                Ok(answer) if answer.status.as_u16() == 507 => {
                    patience = ROOM_FOR;
                    (self.refused(&answer), FailedTry::refused(&answer))
                }
                Ok(answer) => {
                    self.is_told.set(false);
                    return Ok(answer);
                }
                Err(trouble @ Trouble::Foreign(_)) => return Err(self.failure(&trouble)),
                Err(trouble) => (self.failure(&trouble), FailedTry::unanswered(&trouble)),
            };
            let wait = self.wait_after(failed);
            if begun.elapsed() + wait >= patience {
                return Err(failure);
            }
            let is_late = patience == RESTART_FOR && begun.elapsed() >= TOLD_AFTER;
            if is_late && !self.is_told.replace(true) {
                let (reason, minutes) = (&failure.sentence, RESTART_FOR.as_secs() / 60);
                let note = format!("{reason}; trying again, for {minutes} minutes");
                self.console.note(&note);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// How long the next try waits, which the budget pays for.
    fn wait_after(&self, failed: FailedTry) -> Duration {
        let chance = self.chance.borrow_mut().unit();
        let asked = self.budget.borrow_mut().pay(failed);
        let asked = asked.map_or(Duration::ZERO, |asked| pause(1, Some(asked), chance));
        asked.max(PAUSE.mul_f64(0.5 + chance))
    }

    fn json(&self, answer: &WholeAnswer) -> Result<Value, Failure> {
        serde_json::from_slice(&answer.body).map_err(|_| self.unreadable())
    }

    fn unreadable(&self) -> Failure {
        let address = self.address();
        let sentence =
            format!("{address}: the answer cannot be read: is it an admin port of this version?");
        Failure::new(Exit::FAILURE, sentence)
    }

    fn place(&self, page: &Value) -> Option<NodePlace> {
        let cluster = manifest::cluster(&page["cluster"])?;
        let url = match &cluster {
            Some(_) => page["cluster"]["self"].as_str()?.to_owned(),
            None => self.address(),
        };
        Some(NodePlace { url, cluster })
    }

    // Backup.

    /// Makes a checkpoint, and asks for the tables since that of these marks which is the node's.
    /// Asked once: each call makes another one.
    pub(crate) async fn checkpoint(&self, since: &[u128]) -> Result<HeldCheckpoint, Failure> {
        let since: Vec<String> = since.iter().map(|mark| format!("{mark:032x}")).collect();
        let path = format!("/v0/checkpoints?since={}", since.join(","));
        let answer = self.once(Method::POST, &path, Bytes::new()).await;
        let answer = answer.map_err(|trouble| self.failure(&trouble))?;
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        let page = self.json(&answer)?;
        let file = |file: &Value| {
            Some(HeldFile {
                name: file["name"].as_str()?.to_owned(),
                bytes: file["bytes"].as_u64()?,
                content: manifest::digits(&file["content"])?,
            })
        };
        let listed = |files: &Value| files.as_array()?.iter().map(file).collect::<Option<_>>();
        let increment = |one: &Value| {
            Some(HeldIncrement {
                mark: mark(&one["mark"])?,
                since: mark(&one["since"])?,
                files: listed(&one["files"])?,
            })
        };
        let read = || {
            Some(HeldCheckpoint {
                id: page["id"].as_str()?.to_owned(),
                lease: Duration::from_secs(page["lease_seconds"].as_u64()?),
                node: manifest::digits(&page["node"])?,
                hlc: u64::try_from(manifest::digits(&page["hlc"])?).ok()?,
                wall_ms: page["wall_ms"].as_u64()?,
                place: self.place(&page)?,
                files: listed(&page["files"])?,
                increment: match &page["increment"] {
                    Value::Null => None,
                    it => Some(increment(it)?),
                },
            })
        };
        read().ok_or_else(|| self.unreadable())
    }

    /// A part of a file.
    pub(crate) async fn part(
        &self,
        checkpoint: &str,
        file: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<Bytes, Failure> {
        let path = format!("/v0/checkpoints/{checkpoint}/{file}?offset={offset}&bytes={bytes}");
        let answer = self.again(Method::GET, &path, Bytes::new()).await?;
        if answer.body.len() as u64 == bytes {
            Ok(answer.body)
        } else {
            Err(self.unreadable())
        }
    }

    /// Gives a checkpoint back. Where that fails it expires.
    pub(crate) async fn release(&self, checkpoint: &str) {
        let path = format!("/v0/checkpoints/{checkpoint}");
        drop(self.once(Method::DELETE, &path, Bytes::new()).await);
    }

    // Restore.

    fn standing_of(&self, answer: &WholeAnswer) -> Result<RestoreStanding, Failure> {
        let page = self.json(answer)?;
        let restore = |restore: &Value| {
            let position = restore["position"].as_str()?.as_bytes();
            let pair = |pair: &[u8]| dendra_base::hex::pair(pair[0], *pair.get(1)?);
            Some((
                manifest::digits(&restore["id"])?,
                restore["finished"].as_bool()?,
                position.chunks(2).map(pair).collect::<Option<_>>()?,
            ))
        };
        let read = || {
            Some(RestoreStanding {
                node: manifest::digits(&page["node"])?,
                place: self.place(&page)?,
                is_empty: page["empty"].as_bool()?,
                restore: match &page["restore"] {
                    Value::Null => None,
                    it => Some(restore(it)?),
                },
                successors: match &page["restore"]["successors"] {
                    Value::Null => None,
                    number => Some(u32::try_from(number.as_u64()?).ok()?),
                },
            })
        };
        read().ok_or_else(|| self.unreadable())
    }

    /// How far a restore is.
    pub(crate) async fn standing(&self) -> Result<RestoreStanding, Failure> {
        let answer = self.again(Method::GET, "/v0/restore", Bytes::new()).await?;
        self.standing_of(&answer)
    }

    /// Begins a restore, or goes on with it.
    pub(crate) async fn begin(&self, id: u128, hlc: u64) -> Result<RestoreStanding, Failure> {
        let path = format!("/v0/restore?id={id:032x}&hlc={hlc:x}");
        let answer = self.again(Method::POST, &path, Bytes::new()).await?;
        self.standing_of(&answer)
    }

    /// A restore is under way: from now on a node that does not answer is waited for until its
    /// machine could have started again.
    pub(crate) fn await_restarts(&self) {
        self.patience.set(NodePatience::Restart);
    }

    /// Writes a page; to write it twice has the same effect.
    pub(crate) async fn page(&self, page: Bytes) -> Result<(), PageRefusal> {
        self.taken(Method::PUT, "/v0/restore/page", page).await
    }

    /// Everything was sent, up to `position`: the node makes it durable, and lets no client in yet.
    pub(crate) async fn settle(&self, id: u128, position: &[u8]) -> Result<(), PageRefusal> {
        let path = format!("/v0/restore/settle?id={id:032x}");
        let position = Bytes::copy_from_slice(position);
        self.taken(Method::POST, &path, position).await
    }

    /// The members choose an epoch with this least successor number. False when it cannot follow
    /// the newest one, perhaps because a repeated order was carried out before.
    pub(crate) async fn raise(&self, id: u128, least: LeastSuccessor) -> Result<bool, PageRefusal> {
        let path = format!("/v0/restore/successors?id={id:032x}&least={least}");
        let answer = self.answered(Method::POST, &path, Bytes::new()).await;
        let answer = answer.map_err(PageRefusal::Failed)?;
        match answer.status.as_u16() {
            200..300 => Ok(true),
            409 => Ok(false),
            404 | 412 => Err(PageRefusal::Behind(self.refused(&answer))),
            _ => Err(PageRefusal::Failed(self.refused(&answer))),
        }
    }

    /// The node lets clients in, once it knows the epoch with this least successor number.
    pub(crate) async fn finish(
        &self,
        id: u128,
        position: &[u8],
        least: Option<LeastSuccessor>,
    ) -> Result<(), PageRefusal> {
        let least = least.map_or(String::new(), |least| format!("&least={least}"));
        let path = format!("/v0/restore/finish?id={id:032x}{least}");
        let position = Bytes::copy_from_slice(position);
        self.taken(Method::POST, &path, position).await
    }

    async fn taken(&self, method: Method, path: &str, body: Bytes) -> Result<(), PageRefusal> {
        let answer = self.answered(method, path, body).await;
        let answer = answer.map_err(PageRefusal::Failed)?;
        match answer.status.as_u16() {
            200..300 => Ok(()),
            412 => Err(PageRefusal::Behind(self.refused(&answer))),
            _ => Err(PageRefusal::Failed(self.refused(&answer))),
        }
    }
}

/// Members learn a new epoch one after the other: waits until they can be asked again. Begun when
/// the first answers came.
pub(crate) struct EpochPatience(Instant);

impl EpochPatience {
    pub(crate) fn new() -> EpochPatience {
        EpochPatience(Instant::now())
    }

    /// True, a moment later, when some of them know another epoch of the same cluster than others.
    /// It must not be too late to ask again.
    pub(crate) async fn asks_again(&self, places: &[&NodePlace]) -> bool {
        let is_apart = epochs_apart(places).is_some() && self.0.elapsed() + PAUSE < RETRY_FOR;
        if is_apart {
            tokio::time::sleep(PAUSE).await;
        }
        is_apart
    }
}

/// Two members of one cluster that know different epochs.
fn epochs_apart(places: &[&NodePlace]) -> Option<String> {
    let known = |place: &NodePlace| {
        let cluster = place.cluster.as_ref()?;
        Some((cluster.name.clone(), cluster.epoch))
    };
    let (first_url, (name, epoch)) = (&places.first()?.url, known(places[0])?);
    let others = places
        .iter()
        .filter_map(|place| Some((&place.url, known(place)?)));
    let mut apart = others.filter(|(_, other)| other.0 == name && other.1 != epoch);
    let (url, (_, other)) = apart.next()?;
    Some(format!(
        "{first_url} knows epoch {epoch} of the cluster, and {url} epoch {other}: \
         repeat the command when `dendra cluster status` shows one epoch"
    ))
}

/// Checks that the nodes are members of one cluster, each once: the members that are not among
/// them.
pub(crate) fn missing_members<'a>(places: &[&'a NodePlace]) -> Result<Vec<&'a str>, Failure> {
    if let Some(apart) = epochs_apart(places) {
        return Err(Failure::new(Exit::FAILURE, apart));
    }
    let first = places[0];
    let mut urls = BTreeSet::new();
    for place in places {
        let is_same = place.cluster == first.cluster;
        if !is_same || (first.cluster.is_none() && places.len() > 1) {
            return Err(Failure::usage(format!(
                "{} and {} are not members of one cluster: name the admin ports of one cluster's members",
                first.url, place.url
            )));
        }
        if !urls.insert(place.url.as_str()) {
            return Err(Failure::usage(format!("--admin names {} twice", place.url)));
        }
    }
    let members = first.cluster.iter().flat_map(|cluster| &cluster.members);
    let missing = members
        .map(String::as_str)
        .filter(|url| !urls.contains(url));
    Ok(missing.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::played::PlayedNode;
    use crate::client::played::PlayedReply::{self, Nothing, Refusal, Value};
    use crate::client::retry::{BURST, RETRY_AFTER_MAX};
    use crate::runtime::runtime;

    const QUIET: Console = Console {
        is_quiet: true,
        verbosity: 0,
    };
    /// Of the burst, these are left.
    const RETRIES: u64 = 3;

    async fn with_retries_left(
        script: fn(u64) -> PlayedReply,
        retries: u64,
    ) -> (PlayedNode, AdminNode) {
        let played = PlayedNode::start(script).await;
        let access = AccessArgs::default();
        let credentials = Credentials::read(&access, &played.base());
        let credentials = credentials.expect("none are needed");
        let node = AdminNode::at(played.base(), credentials, QUIET);
        (retries..BURST).for_each(|_| assert!(node.budget.borrow_mut().try_again()));
        (played, node)
    }

    #[test]
    fn a_retry_of_a_backup_waits_as_it_was_asked_to_and_is_always_paid_for() {
        let asking = async {
            // The patience ends before the second request may be sent.
            let rows: [(fn(u64) -> PlayedReply, u64, u64); 4] = [
                (|_| Refusal(Some(3)), 1, 3),
                (|_| Refusal(None), 0, 5),
                (|_| Nothing, 0, 5),
                (|_| Refusal(Some(0)), 0, 5),
            ];
            for (script, retries, patience_s) in rows {
                let (played, node) = with_retries_left(script, retries).await;
                node.patience
                    .set(NodePatience::Of(Duration::from_secs(patience_s)));
                let part = node.part("checkpoint", "file", 0, 1).await;
                assert_eq!(part.expect_err("too late").exit, Exit::UNAVAILABLE);
                assert_eq!(played.requests(), 1, "{patience_s}");
            }
        };
        runtime().expect("a runtime").block_on(asking);
    }

    #[test]
    fn a_node_that_refuses_gets_the_retries_that_are_left_from_a_backup_and_then_a_restore() {
        let asking = async {
            let script = |number| match number {
                RETRIES => Value,
                _ => Refusal(Some(0)),
            };
            let (played, node) = with_retries_left(script, RETRIES).await;
            let part = node.part("checkpoint", "file", 0, 1).await;
            assert_eq!(part.expect("the last retry is answered"), "v");
            assert_eq!(played.requests(), 1 + RETRIES);
            // The patience is not longer than the rest before a retry that nothing pays for.
            node.patience.set(NodePatience::Of(RETRY_AFTER_MAX));
            let page = node.page(Bytes::new()).await;
            assert!(matches!(page, Err(PageRefusal::Failed(_))), "{page:?}");
            assert_eq!(played.requests(), 1 + RETRIES + 1);
        };
        runtime().expect("a runtime").block_on(asking);
    }
}
