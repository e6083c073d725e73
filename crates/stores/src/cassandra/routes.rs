//! Which server of Cassandra is asked, and which one next.
//!
//! ```text
//! FirstServer    as the crate routes: a replica of the key, the others, those that are away
//! OtherServers   the same without the server at which a FirstServer began: second questions
//! OneForAll      by host id: the same server for every front door, while it is there
//!
//! an error ─► RetryReads ─┬─ it was not carried out, or reads: the next server
//!                         └─ else: it is told
//! ```
//!
//! Invariants
//! 1. A statement that may have changed something goes to no second server.
//!
//! Not here: the meaning of an error (`failures.rs`), when a second question is asked
//! (`session.rs`).

use super::failures;
use crate::store::OuterFailure;
use dendra_base::Known;
use scylla::cluster::{ClusterState, Node, NodeRef};
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::policies::retry::{RequestInfo, RetryDecision, RetryPolicy, RetrySession};
use scylla::routing::Shard;
use std::sync::{Arc, OnceLock};

/// The server at which a question began.
pub(super) type BegunAt = Arc<OnceLock<Arc<Node>>>;

/// Routes as the crate does, and notes where a question begins.
#[derive(Debug)]
pub(super) struct FirstServer {
    pub(super) usual: Arc<dyn LoadBalancingPolicy>,
    pub(super) begun_at: BegunAt,
}

impl LoadBalancingPolicy for FirstServer {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let picked = self.usual.pick(request, cluster)?;
        self.begun_at.get_or_init(|| Arc::clone(picked.0));
        Some(picked)
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let servers = self.usual.fallback(request, cluster);
        Box::new(servers.inspect(|(server, _)| {
            self.begun_at.get_or_init(|| Arc::clone(server));
        }))
    }

    fn name(&self) -> String {
        "FirstServer".to_owned()
    }
}

/// The servers at which a question did not begin.
#[derive(Debug)]
pub(super) struct OtherServers {
    pub(super) usual: Arc<dyn LoadBalancingPolicy>,
    pub(super) begun_at: BegunAt,
}

impl OtherServers {
    fn is_other(&self, server: NodeRef<'_>) -> bool {
        let begun_at = self.begun_at.get();
        begun_at.is_none_or(|begun_at| begun_at.host_id != server.host_id)
    }
}

impl LoadBalancingPolicy for OtherServers {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let picked = self.usual.pick(request, cluster);
        picked.filter(|(server, _)| self.is_other(server))
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let servers = self.usual.fallback(request, cluster);
        Box::new(servers.filter(|(server, _)| self.is_other(server)))
    }

    fn name(&self) -> String {
        "OtherServers".to_owned()
    }
}

/// All servers by their ids, those without a connection last. Tables are made at the first one:
/// Cassandra makes a table twice when two servers are asked at once.
#[derive(Debug)]
pub(super) struct OneForAll;

impl LoadBalancingPolicy for OneForAll {
    fn pick<'a>(
        &'a self,
        _request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let servers = cluster.get_nodes_info().iter();
        let servers = servers.filter(|server| server.is_enabled());
        let first = servers.min_by_key(|server| (!server.is_connected(), server.host_id));
        first.map(|server| (server, None))
    }

    fn fallback<'a>(
        &'a self,
        _request: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let servers = cluster.get_nodes_info().iter();
        let mut servers: Vec<_> = servers.filter(|server| server.is_enabled()).collect();
        servers.sort_by_key(|server| (!server.is_connected(), server.host_id));
        Box::new(servers.into_iter().map(|server| (server, None)))
    }

    fn name(&self) -> String {
        "OneForAll".to_owned()
    }
}

/// A statement goes on to the next server while it cannot have changed anything.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryReads;

impl RetryPolicy for RetryReads {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(RetryReads)
    }
}

impl RetrySession for RetryReads {
    fn decide_should_retry(&mut self, request: RequestInfo) -> RetryDecision {
        let known = if request.is_idempotent {
            Known::NotApplied
        } else {
            Known::Unknown
        };
        match failures::attempt(request.error, known) {
            OuterFailure::Unreachable(_) | OuterFailure::Unanswered(Known::NotApplied, _) => {
                RetryDecision::RetryNextTarget(None)
            }
            _ => RetryDecision::DontRetry,
        }
    }

    fn reset(&mut self) {}
}
