//! The members of the cluster on the admin plane: their state, plans, and orders.
//!
//! ```text
//! GET  /v0/cluster                       the members, the epoch, the plan under way
//! GET  /v0/cluster/history?entries=20    the newest epochs
//! POST /v0/cluster/plan                  {"remove": [URL], "weights": {URL: N}, …} ─► a plan with an id
//! POST /v0/cluster/apply                 {"plan": ID} ─► {"epoch": N}
//! POST /v0/cluster/cancel, rekey         nothing
//! POST /v0/cluster/finalize              nothing
//! POST /v0/cluster/readdress             {"from": URL, "to": URL}
//! POST /v0/cluster/throttle              {"bytes_per_second": N}
//! POST /v0/cluster/accept-loss           {"member": URL} ─► what may be lost, with an id
//!                                        {"member": URL, "confirm": ID} ─► {"epoch": N}
//! /v0/cluster/compare                    look.rs
//! refused ─► {"error": CODE, "message": SENTENCE}
//! ```
//!
//! Invariants
//! 1. A body is an object of at most `ORDER_BYTES_MAX` bytes. A name in it that no order has is
//!    refused: a misspelt one would be ignored otherwise.
//! 2. `GET` changes no state. An order comes by `POST` with a body of JSON, which no page of
//!    another site can send without asking first.
//!
//! Not here: carrying orders out (crate `ownership`, `steward/`).
//! See: docs/api.md, section "Admin plane"; docs/operating.md.

mod body;
mod look;
mod replies;

use super::numbers;
use super::pages::{ClusterPage, DonePage, DraftPage, HistoryPage, LossPage, OwnPage, json_of};
use crate::member::NoSteward;
use axum::Router;
use axum::extract::{FromRef, Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use dendra_ownership::steward::declined::{Declined, NotAccepted};
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder};
use replies::{answer, bad_body, no_member, order_bytes, refused};

pub(super) use look::Looker;
pub(super) use replies::StewardWay;

/// Epochs that are shown unless more are asked for.
const ENTRIES_DEFAULT: usize = 20;

/// The part that the asked member alone knows of itself, for its status: hints, comparisons,
/// scrubs.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnState(pub(super) Option<OwnPage>);

/// The paths of this file.
pub(super) fn routes<Plane>() -> Router<Plane>
where
    Plane: Clone + Send + Sync + 'static,
    StewardWay: FromRef<Plane>,
    OwnState: FromRef<Plane>,
    Looker: FromRef<Plane>,
{
    Router::new()
        .route("/v0/cluster", get(status))
        .route("/v0/cluster/history", get(history))
        .route("/v0/cluster/compare", get(look::seen).post(look::begin))
        .route("/v0/cluster/{order}", post(order))
}

async fn status(State(way): State<StewardWay>, State(own): State<OwnState>) -> Response {
    carry_out(&way, ClusterOrder::Status, own).await
}

async fn history(State(way): State<StewardWay>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or("");
    let entries = match query.strip_prefix("entries=") {
        None if query.is_empty() => Some(ENTRIES_DEFAULT),
        None => None,
        Some(number) => {
            let entries = numbers::whole(number).and_then(|number| usize::try_from(number).ok());
            entries.filter(|entries| *entries > 0)
        }
    };
    match entries {
        Some(entries) => {
            carry_out(&way, ClusterOrder::History { entries }, OwnState::default()).await
        }
        None => {
            let message = format!("{query:?} is not entries=N with a number above 0");
            refused(StatusCode::BAD_REQUEST, "bad-request", &message)
        }
    }
}

async fn order(
    State(way): State<StewardWay>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let bytes = match order_bytes(request).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    match body::order(&name, &bytes) {
        Ok(order) => carry_out(&way, order, OwnState::default()).await,
        Err(bad) => bad_body(&name, bad),
    }
}

async fn carry_out(way: &StewardWay, order: ClusterOrder, OwnState(own): OwnState) -> Response {
    let StewardWay::Member(orders) = way else {
        return no_member(way);
    };
    let page = match orders.carry_out(order).await {
        Ok(ClusterAnswer::Status(status)) => json_of(ClusterPage::from((&*status, own))),
        Ok(ClusterAnswer::Planned(draft)) => json_of(DraftPage::from(&*draft)),
        Ok(ClusterAnswer::Done { epoch }) => json_of(DonePage::from(epoch)),
        Ok(ClusterAnswer::Loss(draft)) => json_of(LossPage::from(&*draft)),
        Ok(ClusterAnswer::History { epochs, losses }) => {
            json_of(HistoryPage::from((&epochs[..], &losses[..])))
        }
        Ok(ClusterAnswer::Declined(declined)) => return decline(&declined),
        Err(NoSteward::Busy) => return decline(&Declined::Busy),
        Err(NoSteward::Gone) => {
            let message = "this node stops: ask another member";
            return refused(StatusCode::SERVICE_UNAVAILABLE, "stopping", message);
        }
    };
    answer(StatusCode::OK, &page)
}

fn decline(declined: &Declined) -> Response {
    refused(status_of(declined), declined.code(), &declined.to_string())
}

/// A wrong order is the asker's fault; an order that may be right later is a conflict; no majority
/// is no answer.
fn status_of(declined: &Declined) -> StatusCode {
    match declined {
        Declined::Member(_)
        | Declined::NothingAsked
        | Declined::Contradiction { .. }
        | Declined::NotAMember { .. }
        | Declined::NotAccepted(NotAccepted::OtherMember { .. }) => StatusCode::BAD_REQUEST,
        Declined::Busy | Declined::NoMajority { .. } => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[tokio::test]
    async fn a_history_is_asked_for_with_a_whole_number_of_entries() {
        for (query, status) in [
            ("", StatusCode::NOT_FOUND),
            ("?entries=5", StatusCode::NOT_FOUND),
            ("?entries=+5", StatusCode::BAD_REQUEST),
            ("?entries=0", StatusCode::BAD_REQUEST),
            ("?entries=", StatusCode::BAD_REQUEST),
            ("?epochs=5", StatusCode::BAD_REQUEST),
        ] {
            let request = Request::get(format!("/v0/cluster/history{query}"));
            let request = request.body(Body::empty()).expect("an address");
            let answer = history(State(StewardWay::Alone), request).await;
            assert_eq!(answer.status(), status, "{query:?}");
        }
    }
}
