//! Looks for copies that differ, on the admin plane.
//!
//! ```text
//! POST /v0/cluster/compare          {"with": [URL], "bytes_per_second": N} ─► a look, with its id
//! GET  /v0/cluster/compare?look=ID  ─► how far it is, and what differs
//! ```
//!
//! Invariants
//! 1. A look that no client asks for ends by itself: its client asks again and again.
//!
//! Not here: looking (crate `node`, `compare/look.rs`), its life (`member/looks.rs`).
//! See: docs/api.md, section "Admin plane"; docs/operating.md, "Copies that differ".

use super::body;
use super::replies::{StewardWay, answer, bad_body, no_member, order_bytes, refused};
use crate::admin::numbers;
use crate::admin::pages::{LookPage, json_of};
use crate::clock;
use crate::member::Cluster;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use dendra_node::limits::COMPARE_BYTES_PER_SECOND_DEFAULT;
use dendra_ownership::MemberIndex;
use std::sync::Arc;

/// The member of a cluster whose copies are looked at; `None` = this node is none.
#[derive(Clone)]
pub(in crate::admin) struct Looker(pub(in crate::admin) Option<Arc<Cluster>>);

pub(super) async fn begin(
    State(way): State<StewardWay>,
    State(Looker(cluster)): State<Looker>,
    request: Request,
) -> Response {
    let bytes = match order_bytes(request).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let Some(cluster) = cluster else {
        return no_member(&way);
    };
    let wish = match body::look(&bytes) {
        Ok(wish) => wish,
        Err(bad) => return bad_body("compare", bad),
    };
    let peers = match peers(&cluster, &wish.with) {
        Ok(peers) => peers,
        Err(message) => return refused(StatusCode::BAD_REQUEST, "not-a-member", &message),
    };
    let told = wish.bytes_per_second;
    let usual = || match cluster.upkeep.compare_bytes_per_second {
        0 => COMPARE_BYTES_PER_SECOND_DEFAULT,
        set => set,
    };
    let bytes_per_second = told.unwrap_or_else(usual);
    let begun = cluster
        .upkeep
        .looks
        .begin(peers, bytes_per_second, clock::monotonic_us());
    match begun {
        Ok(seen) => answer(StatusCode::OK, &json_of(LookPage::from((&*cluster, &seen)))),
        Err(id) => {
            let message = format!(
                "the look {id:016x} is under way at this member: wait until it ends; one that \
                 nothing asks for ends after half a minute"
            );
            refused(StatusCode::CONFLICT, "look-under-way", &message)
        }
    }
}

pub(super) async fn seen(
    State(way): State<StewardWay>,
    State(Looker(cluster)): State<Looker>,
    request: Request,
) -> Response {
    let Some(cluster) = cluster else {
        return no_member(&way);
    };
    let query = request.uri().query().unwrap_or("");
    let id = query.strip_prefix("look=").and_then(numbers::hexadecimal);
    let Some(id) = id.and_then(|id| u64::try_from(id).ok()) else {
        let message = format!("{query:?} is not look=ID with the id of a look that was begun");
        return refused(StatusCode::BAD_REQUEST, "bad-request", &message);
    };
    match cluster.upkeep.looks.seen(id, clock::monotonic_us()) {
        Some(seen) => answer(StatusCode::OK, &json_of(LookPage::from((&*cluster, &seen)))),
        None => {
            let message = format!(
                "this member has no look {id:016x}: it was started again, or another look has \
                 begun since; begin one again"
            );
            refused(StatusCode::NOT_FOUND, "no-such-look", &message)
        }
    }
}

/// The members with these URLs; without one all others.
fn peers(cluster: &Cluster, with: &[String]) -> Result<Vec<MemberIndex>, String> {
    let others = cluster.other_members();
    if with.is_empty() {
        return Ok(others.into_iter().map(|(member, _)| member).collect());
    }
    let mut peers = Vec::new();
    for url in with {
        let Some((member, _)) = others.iter().find(|(_, known)| known == url) else {
            let known: Vec<&str> = others.iter().map(|(_, other)| other.as_str()).collect();
            return Err(format!(
                "{url} is no other member of this cluster; they are {}",
                known.join(", ")
            ));
        };
        if !peers.contains(member) {
            peers.push(*member);
        }
    }
    Ok(peers)
}
