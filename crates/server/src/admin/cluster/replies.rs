//! The parts that orders about the cluster share: their way, their bodies, and refusals.
//!
//! Invariants
//! 1. A refusal is `{"error": CODE, "message": SENTENCE}`.
//!
//! Not here: the orders (`mod.rs`, `look.rs`), the contents of a body (`body.rs`).
//! See: docs/api.md, section "Admin plane".

use super::body::{self, BadBody};
use crate::limits::ORDER_BYTES_MAX;
use crate::member::Orders;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

/// The way to the steward of this process.
#[derive(Clone)]
pub(in crate::admin) enum StewardWay {
    /// The folder is not open yet, or this node waits until a member lets it in.
    Starting,
    /// A node by itself has no steward.
    Alone,
    Member(Orders),
}

pub(super) fn bad_body(name: &str, bad: BadBody) -> Response {
    match bad {
        BadBody::Unknown => {
            let message = format!(
                "there is no order {name:?}; they are {}, compare",
                body::ORDERS.join(", ")
            );
            refused(StatusCode::NOT_FOUND, "no-such-order", &message)
        }
        BadBody::Sentence(message) => refused(StatusCode::BAD_REQUEST, "bad-request", &message),
    }
}

/// The body of an order, or the refusal.
pub(super) async fn order_bytes(request: Request) -> Result<Bytes, Response> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let Ok(bytes) = to_bytes(request.into_body(), ORDER_BYTES_MAX).await else {
        let message = format!("the body is longer than {ORDER_BYTES_MAX} bytes, or was cut");
        return Err(refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            &message,
        ));
    };
    if !is_json {
        let message = "send the order as JSON, with the header content-type: application/json";
        return Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            message,
        ));
    }
    Ok(bytes)
}

/// The answer of a node that has no steward.
pub(super) fn no_member(way: &StewardWay) -> Response {
    match way {
        StewardWay::Alone => {
            let message = "this node is alone: it was started without --cluster and without --join";
            refused(StatusCode::NOT_FOUND, "not-a-cluster", message)
        }
        StewardWay::Starting | StewardWay::Member(_) => {
            let message =
                "this node starts, and its log says what it waits for: ask another member";
            refused(StatusCode::SERVICE_UNAVAILABLE, "starting", message)
        }
    }
}

pub(super) fn refused(status: StatusCode, code: &str, message: &str) -> Response {
    answer(status, &json!({ "error": code, "message": message }))
}

pub(super) fn answer(status: StatusCode, page: &Value) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (
        status,
        [(header::CONTENT_TYPE, kind)],
        format!("{page:#}\n"),
    )
        .into_response()
}
