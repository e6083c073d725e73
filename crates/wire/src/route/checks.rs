//! The checks that come first on every route, and the options that decide about them.
//!
//! Invariants
//! 1. A check that fails is a refusal that leaves the connection open.
//!
//! Not here: parameters (`parameters.rs`), the checks of each route (`mod.rs`).
//! See: docs/api.md.

use crate::http::{Body, Expect, Head, Method};
use crate::meta;
use crate::refusal::Refusal;

/// The options of a node that decide about requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestRules {
    /// Nodes of the cluster, at least 1.
    pub nodes: u8,
    /// Copies of a record unless its writer says otherwise, at least 1.
    pub replication_factor: u8,
    /// Longest key in bytes, at most `KEY_BYTES_MAX`.
    pub key_bytes_max: usize,
    /// Largest value in bytes.
    pub value_bytes_max: u64,
}

/// The method is one of `methods`.
pub(super) fn allow(
    head: &Head<'_>,
    methods: &[Method],
    names: &'static str,
) -> Result<(), Refusal> {
    if methods.contains(&head.method) {
        Ok(())
    } else {
        Err(Refusal::method_not_allowed(names))
    }
}

/// The rules for every message, on any route.
pub(super) fn check_message(head: &Head<'_>) -> Result<(), Refusal> {
    check_coding(head)?;
    if !head.meta.named.is_empty() && (head.method != Method::Put || head.path != b"/v0/entity") {
        return Err(meta::bad("Dendra-Meta-* goes with PUT /v0/entity only"));
    }
    if head.method != Method::Put && head.body != Body::None {
        return Err(Refusal::bad("unexpected-body", "only PUT has a body here"));
    }
    Ok(())
}

/// The rules for every body.
pub(super) fn check_coding(head: &Head<'_>) -> Result<(), Refusal> {
    if head.expect == Expect::Unknown {
        return Err(Refusal::new(
            417,
            "expectation",
            "the only expectation known here is 100-continue",
        ));
    }
    if head.has_content_coding {
        return Err(Refusal::new(
            415,
            "content-coding",
            "Content-Encoding must be identity: values are stored as they come",
        ));
    }
    Ok(())
}
