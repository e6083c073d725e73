//! `GET /v0/entity?explain=1`: how a read is found, in place of the value.
//!
//! Invariants
//! 1. It waits alone, behind the answers of the requests in front of it.
//!
//! Not here: the fields of the document (`exchange/explain.rs`, `peers/explain.rs`).
//! See: docs/explain.md.

use super::Connection;
use crate::clients::answers::Answers;
use crate::exchange::explain::{ExplainRequest, ReadDocument};
use crate::exchange::socket::ConnectionEnd;
use crate::measure::metrics::OpLabel;
use dendra_wire::http::response;
use serde_json::Value;

impl Connection {
    /// Reads, and answers with the document about it.
    pub(super) async fn explain(&mut self, request: ExplainRequest) -> Result<(), ConnectionEnd> {
        self.socket.flush().await?;
        let _held = self.socket.hold_input();
        let (backend, mut terms) = (self.backend.clone(), request.terms);
        let explained = backend.explain_read(&mut self.socket, &request).await?;
        self.lane.refresh();
        let status = match explained {
            Ok(ReadDocument {
                status,
                acks,
                mut page,
            }) => {
                let took_us = self.lane.now_ns().saturating_sub(request.began_ns) / 1_000;
                page.insert("took_us".to_owned(), Value::from(took_us));
                terms.receipt.acks = acks;
                let receipt = (status == 200).then_some(terms.receipt);
                let document = format!("{}\n", Value::Object(page));
                let out = self.socket.out();
                response::explained(out, terms.style, status, receipt, document.as_bytes());
                status
            }
            Err(ended) => {
                let mut answers = Answers {
                    lane: &self.lane,
                    backend: &backend,
                    out: self.socket.out(),
                };
                answers.fail(OpLabel::Get, &terms, ended.as_ref())
            }
        };
        self.lane
            .finish_since(OpLabel::Get, status, request.began_ns);
        Ok(())
    }
}
