//! Gathers the facts about a running node, and looks at them once a second.
//!
//! ```text
//! NodeParts ─► facts ─► judge ─┬─► the log, and trends: each HEALTH_LOOK, on the listener's thread
//!                              └─► /v0/health, metrics: when they are asked for
//! ```
//!
//! Invariants
//! 1. Looking changes no state of the node but its memory of what was said.
//!
//! Not here: what follows from the facts (`health/`).
//! See: docs/health.md.

use crate::clock;
use crate::event_loop::parts::NodeParts;
use crate::health::{
    CertificateFact, DamageFacts, HealthCounts, HealthFinding, MemberFacts, NodeFacts, judge,
};
use crate::limits;
use crate::measure::metrics::{CapacityShare, RefusalCause};
use crate::member::Cluster;
use crate::phase::Phase;
use dendra_ownership::MemberIndex;
use std::sync::atomic::Ordering;

/// Refusals for want of capacity. Those of a full disk are a finding of their own; the rest is the
/// client's doing.
const CAUSES: [RefusalCause; 8] = [
    RefusalCause::Requests,
    RefusalCause::Bytes,
    RefusalCause::StoreQueue,
    RefusalCause::LogQueue,
    RefusalCause::Engine,
    RefusalCause::Deadline,
    RefusalCause::Delay,
    RefusalCause::Connections,
];

/// The findings of now.
pub(crate) fn findings(parts: &NodeParts) -> Vec<HealthFinding> {
    judge(&facts(parts, &counts(parts)))
}

/// Looks again and again, as long as the node accepts clients.
pub(crate) async fn watch_for_ever(parts: NodeParts) {
    loop {
        tokio::time::sleep(limits::HEALTH_LOOK).await;
        let counts = counts(&parts);
        let facts = facts(&parts, &counts);
        // A start and a stop are in the log anyway.
        let findings = match facts.phase {
            Phase::Serving | Phase::Poisoned => judge(&facts),
            Phase::Starting | Phase::Draining | Phase::Stopped => continue,
        };
        let now = (clock::monotonic_us(), clock::wall_ms());
        parts.store.health.note(now, counts, &findings);
    }
}

/// What a member knows of the others; `None` = the node is no member.
pub(crate) fn members(parts: &NodeParts) -> Option<MemberFacts> {
    let cluster = parts.cluster.as_ref()?;
    let is_up = |member: MemberIndex| {
        let links = &cluster.links.peers[member.at()].links;
        member == cluster.own.me || links.load(Ordering::Relaxed) > 0
    };
    let others = cluster.other_members().into_iter();
    let others: Vec<(String, bool)> = others.map(|(member, url)| (url, is_up(member))).collect();
    let all_are_up = others.iter().all(|other| other.1);
    Some(MemberFacts {
        own: cluster.own_url(),
        releases: cluster.releases(),
        partitions: usize::from(cluster.layout().ring().partitions()),
        partitions_short: if all_are_up {
            0
        } else {
            partitions_short(cluster, is_up)
        },
        plan_waits: cluster.why_plan_waits(),
        others,
    })
}

/// Partitions of which no majority of the owners is up.
fn partitions_short(cluster: &Cluster, is_up: impl Fn(MemberIndex) -> bool) -> usize {
    let layout = cluster.layout();
    let (ring, copies) = (layout.ring(), layout.topology().copies());
    let is_short = |owners: &[MemberIndex]| {
        let owners = &owners[..usize::from(copies).min(owners.len())];
        let up = owners.iter().filter(|owner| is_up(**owner)).count();
        2 * up <= owners.len()
    };
    ring.all().filter(|&it| is_short(ring.owners(it))).count()
}

fn counts(parts: &NodeParts) -> HealthCounts {
    let of = |cause: RefusalCause| {
        let lanes = parts.lanes.iter();
        let each = lanes.flat_map(|lane| {
            CapacityShare::ALL
                .map(|share| lane.metrics.refused[share as usize][cause as usize].read())
        });
        (cause.as_str(), each.sum())
    };
    let hints = parts.cluster.as_ref().map(|cluster| &cluster.upkeep.hints);
    HealthCounts {
        refused: CAUSES.map(of).to_vec(),
        hint_bytes: hints.map_or(0, |hints| hints.bytes()),
        hints_dropped: hints.map_or(0, |hints| hints.dropped()),
        free_bytes: parts.store.engine.stats().disk.free_bytes,
    }
}

fn facts(parts: &NodeParts, counts: &HealthCounts) -> NodeFacts {
    let engine = &parts.store.engine;
    let stats = engine.stats();
    let cluster = parts.cluster.iter();
    let now_s = i64::try_from(clock::wall_ms() / 1_000).unwrap_or(i64::MAX);
    let terms = parts.border.tls.iter().flat_map(|tls| tls.terms());
    NodeFacts {
        phase: parts.phase.now(),
        of_no_use: parts.of_no_use(),
        members: members(parts),
        disk: stats.disk,
        damage: DamageFacts {
            blocks: engine.damaged_spans().len(),
            tables_set_aside: stats.tables_set_aside,
            waits: cluster.flat_map(|it| it.waiting_repairs(engine)).collect(),
        },
        certificates: terms
            .map(|term| CertificateFact {
                file: term.path.display().to_string(),
                days_left: term.days_left(now_s),
                has_ended: term.of_use_until_s < now_s,
                is_short: term.is_short(now_s),
            })
            .collect(),
        hint_bytes: counts.hint_bytes,
        trends: parts.store.health.trends(clock::monotonic_us(), counts),
    }
}
