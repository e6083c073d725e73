//! A read of a member that is explained: its own engine's part, and then the owners' answers.
//!
//! Invariants
//! 1. The look at the own engine comes first: behind the read, its blocks would be in the cache.
//! 2. The read itself is that of any `GET`, and no question to another owner is longer for it.
//!
//! Not here: the fields of the engine's part (`exchange/explain.rs`), the account (crate `node`).
//! See: docs/explain.md.

use super::operation::{ClusterBackend, words};
use super::waiting;
use crate::exchange::explain::{
    ExplainRequest, NoDocument, ReadDocument, head_of, look, page_of, page_of_engine,
};
use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::measure::metrics::RefusalCause;
use crate::member::cluster::Cluster;
use crate::waiting::finished::Finished;
use bytes::Bytes;
use dendra_node::Outcome;
use dendra_node::account::{CopyFacts, OwnerAccount, OwnerAnswer, ReadAccount, WriteBack};
use dendra_node::step::Event;
use dendra_ownership::MemberIndex;
use serde_json::{Value, json};
use std::rc::Rc;

impl ClusterBackend {
    /// Reads, and tells how.
    pub(crate) async fn explain_read(
        &self,
        socket: &mut Socket,
        request: &ExplainRequest,
    ) -> Result<Result<ReadDocument, NoDocument>, ConnectionEnd> {
        let (lane, seat) = (Rc::clone(socket.lane()), Rc::clone(socket.seat()));
        let cluster = &self.agent.cluster;
        let key = Bytes::copy_from_slice(&request.key.as_stored()[1..]);
        let engine = if is_owner(cluster, &key, request.entity.quorum.from()) {
            match look(socket, request).await? {
                Ok(own) => page_of_engine(&own, lane.wall_ms()),
                Err(ended) => return Ok(Err(ended)),
            }
        } else {
            Value::Null
        };
        let Some(permit) = lane.rooms.hold_request(&seat) else {
            return Ok(Err(Some(Finished::Refused(RefusalCause::Requests))));
        };
        let client = self.agent.ticket(&seat, permit);
        self.agent.post(Event::Explain {
            client,
            key,
            quorum: request.entity.quorum,
            deadline_us: request.deadline_us,
        });
        let clients = std::iter::once(client);
        // A wait that ends early leaves the place empty: that is no outcome in time.
        let _waited = waiting::wait(&self.agent, socket, clients, request.deadline_us).await?;
        let finished = seat.take(0);
        seat.next_round();
        let Some(Finished::Account {
            outcome,
            acks,
            account,
        }) = finished
        else {
            return Ok(Err(finished));
        };
        let (status, word) = match outcome {
            Outcome::Found { .. } => (200, "found"),
            Outcome::Missing => (200, "missing"),
            Outcome::NotEnough { .. } => (504, "too-few-answers"),
            other => {
                return Ok(Err(Some(Finished::Outcome {
                    outcome: other,
                    acks,
                    cell: None,
                })));
            }
        };
        let mut page = head_of(&request.key, word);
        let wall_ms = lane.wall_ms();
        page.insert("record".to_owned(), page_of_copy(account.newest, wall_ms));
        page.insert("engine".to_owned(), engine);
        let quorum = request.entity.quorum;
        let of_cluster = page_of_account(cluster, &account, (quorum.ack(), quorum.from()), wall_ms);
        page.insert("cluster".to_owned(), of_cluster);
        Ok(Ok(ReadDocument { status, acks, page }))
    }
}

/// Is this member one of the owners that are addressed?
fn is_owner(cluster: &Cluster, raw_key: &[u8], from: u8) -> bool {
    let layout = cluster.layout();
    let ring = layout.ring();
    let owners = ring.owners(ring.partition(raw_key));
    owners
        .iter()
        .take(usize::from(from))
        .any(|owner| *owner == cluster.own.me)
}

fn page_of_copy(shown: Option<CopyFacts>, wall_ms: u64) -> Value {
    let page = |copy: CopyFacts| {
        let what = (copy.version, copy.kind);
        page_of(what, copy.expiry_ms, copy.value_bytes, wall_ms)
    };
    shown.map_or(Value::Null, page)
}

fn page_of_account(
    cluster: &Cluster,
    account: &ReadAccount,
    (ack, from): (u8, u8),
    wall_ms: u64,
) -> Value {
    let owners = account.owners.iter();
    let owners = owners.map(|owner| page_of_owner(cluster, owner, wall_ms));
    let was_written =
        |how: &[WriteBack]| account.owners.iter().any(|it| how.contains(&it.write_back));
    let write_back = if was_written(&[WriteBack::Awaited, WriteBack::Confirmed]) {
        "awaited"
    } else if was_written(&[WriteBack::Beside]) {
        "beside"
    } else {
        "none"
    };
    json!({
        "coordinator": page_of_member(cluster, cluster.own.me),
        "ack": ack,
        "from": from,
        "tries": account.tries,
        "took_us": account.took_us,
        "write_back": write_back,
        "owners": owners.collect::<Vec<_>>(),
    })
}

fn page_of_member(cluster: &Cluster, member: MemberIndex) -> Value {
    let number = cluster.id_of(member).map(|id| id.0);
    json!({ "member": number, "url": cluster.url(member) })
}

fn page_of_owner(cluster: &Cluster, owner: &OwnerAccount, wall_ms: u64) -> Value {
    let mut why = None;
    let (answer, copy) = match owner.answer {
        OwnerAnswer::NotAsked => ("not-asked", None),
        OwnerAnswer::Pending => ("pending", None),
        OwnerAnswer::Absent => ("absent", None),
        OwnerAnswer::Copy(copy) => ("copy", Some(copy)),
        OwnerAnswer::Refused(refused) => {
            why = Some(words(refused));
            ("refused", None)
        }
    };
    let asked_us = (owner.answer != OwnerAnswer::NotAsked).then_some(owner.asked_us);
    let mut page = page_of_member(cluster, owner.member);
    let fields = [
        ("own", Value::from(owner.member == cluster.own.me)),
        ("answer", Value::from(answer)),
        ("why", Value::from(why)),
        ("record", page_of_copy(copy, wall_ms)),
        ("asked_us", Value::from(asked_us)),
        ("took_us", Value::from(owner.took_us)),
        ("counts", Value::from(owner.counts)),
        ("write_back", Value::from(word_of(owner.write_back))),
    ];
    for (name, value) in fields {
        page[name] = value;
    }
    page
}

fn word_of(write_back: WriteBack) -> &'static str {
    match write_back {
        WriteBack::None => "none",
        WriteBack::Beside => "beside",
        WriteBack::Awaited => "awaited",
        WriteBack::Confirmed => "confirmed",
    }
}
