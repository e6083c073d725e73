//! The sources of one scrape, and sums of their numbers over loops, members and tokens.
//!
//! Invariants
//! 1. A reading of a part that the node lacks is `None`.
//!
//! Not here: which metrics there are (`table.rs`).

use super::process::OwnProcess;
use super::sample::{MetricReading, SummedTimes, one, rows};
use crate::audit::Audit;
use crate::clock;
use crate::event_loop::parts::NodeParts;
use crate::front::desk::FrontDesk;
use crate::front::gauges::FrontKind;
use crate::health::{HealthFinding, HealthKind};
use crate::measure::metrics::{
    CLASSES, CapacityShare, Histogram, LoopCounter, LoopMetrics, OpLabel, PeerTally, RefusalCause,
};
use crate::measure::stages::RequestStage;
use crate::member::{Cluster, PeerGauges};
use crate::rights::{GrantUse, QuotaKind, Rights};
use crate::tls::Tls;
use dendra_base::Now;
use dendra_engine::{ScrubStats, Stats};
use dendra_node::Round;
use dendra_node::rounds::ROUND_BUCKETS_US;
use dendra_ownership::MemberIndex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx", "cut"];

/// All that a scrape reads.
pub(super) struct Scrape<'a> {
    pub(super) now: Now,
    pub(super) process: OwnProcess,
    pub(super) is_ready: bool,
    /// `None` while the node starts.
    pub(super) findings: Option<Vec<HealthFinding>>,
    /// The running node; `None` while it starts.
    pub(super) node: Option<&'a NodeParts>,
    pub(super) stats: Option<Stats>,
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) front: Option<&'a FrontDesk>,
    pub(super) rights: Option<&'a Rights>,
    pub(super) audit: Option<&'a Audit>,
    pub(super) tls: Option<&'a Tls>,
}

impl Scrape<'_> {
    pub(super) fn stats(&self) -> Option<&Stats> {
        self.stats.as_ref()
    }

    /// A counter of all loops.
    pub(super) fn sum(&self, of: fn(&LoopMetrics) -> &LoopCounter) -> MetricReading {
        one(sum(self.node?, of))
    }

    /// A histogram of all loops.
    pub(super) fn times(
        &self,
        of: impl Fn(&LoopMetrics) -> &Histogram + Clone,
    ) -> Option<SummedTimes> {
        let lanes = self.node?.lanes.iter();
        Some(SummedTimes::add(lanes.map(|lane| of(&lane.metrics))))
    }

    pub(super) fn answers(&self) -> MetricReading {
        let node = self.node?;
        rows(OpLabel::ALL.into_iter().flat_map(|op| {
            let classes = CLASS_NAMES.into_iter().enumerate();
            classes.map(move |(class, name)| {
                let count = sum(node, |metrics| &metrics.requests[op as usize][class]);
                ([op.as_str(), name], count)
            })
        }))
    }

    pub(super) fn refused_by(&self) -> MetricReading {
        let node = self.node?;
        rows(RefusalCause::ALL.map(|by| {
            let counts = CapacityShare::ALL.map(|share| refused(node, share, by));
            ([by.as_str()], counts.iter().sum::<u64>())
        }))
    }

    pub(super) fn refused_by_class(&self) -> MetricReading {
        let node = self.node?;
        rows(CapacityShare::ALL.into_iter().flat_map(|share| {
            let causes = RefusalCause::ALL.into_iter();
            causes.map(move |by| ([share.as_str(), by.as_str()], refused(node, share, by)))
        }))
    }

    pub(super) fn admitted_by_class(&self) -> MetricReading {
        let node = self.node?;
        let admitted = |share| sum(node, |metrics| &metrics.admitted[share as usize]);
        rows(CapacityShare::ALL.map(|share| ([share.as_str()], admitted(share))))
    }

    pub(super) fn request_times(&self) -> MetricReading {
        self.node?;
        rows(OpLabel::ALL.into_iter().filter_map(|op| {
            let times = self.times(move |metrics| &metrics.latency[op as usize])?;
            Some(([op.as_str()], times))
        }))
    }

    pub(super) fn stage_times(&self) -> MetricReading {
        let node = self.node?;
        let lanes = node.lanes.iter().map(|lane| &lane.metrics.stages);
        let all = lanes.chain(node.store.pool.stages.iter());
        rows(OpLabel::ALL.into_iter().flat_map(|op| {
            let all = all.clone();
            RequestStage::of(op).iter().map(move |&stage| {
                let times = SummedTimes::add(all.clone().map(|one| one.of(op, stage)));
                ([op.as_str(), stage.as_str()], times)
            })
        }))
    }

    pub(super) fn loop_connections(&self) -> MetricReading {
        let lanes = self.node?.lanes.iter().enumerate();
        rows(lanes.map(|(index, lane)| ([index.to_string()], lane.connections.load(Relaxed))))
    }

    pub(super) fn writes_in_line(&self) -> MetricReading {
        let node = self.node?;
        rows([
            (["clients"], sum(node, |metrics| &metrics.log_line)),
            (["members"], sum(node, |metrics| &metrics.order_line)),
        ])
    }

    pub(super) fn tls_days_left(&self) -> MetricReading {
        let now_s = (clock::wall_ms() / 1_000) as i64;
        let terms = self.tls?.terms();
        rows(
            terms
                .iter()
                .map(|term| ([term.file], term.days_left(now_s))),
        )
    }

    /// A number of each token with a quota that has it.
    pub(super) fn by_token(&self, of: fn(&GrantUse) -> Option<&AtomicU64>) -> MetricReading {
        let limited = self.rights?.limited();
        let row = |used: &GrantUse| Some(([used.id.clone()], of(used)?.load(Relaxed)));
        rows(limited.iter().filter_map(|used| row(used)))
    }

    pub(super) fn refused_by_token(&self) -> MetricReading {
        let limited = self.rights?.limited();
        rows(limited.iter().flat_map(|used| {
            QuotaKind::ALL.map(|kind| {
                let labels = [used.id.clone(), kind.as_str().to_owned()];
                (labels, used.refused[kind as usize].load(Relaxed))
            })
        }))
    }

    /// Each kind of finding, and whether there is one.
    pub(super) fn by_finding(&self) -> MetricReading {
        let findings = self.findings.as_ref()?;
        // A node answers its own scrape.
        let kinds = HealthKind::ALL
            .iter()
            .filter(|kind| **kind != HealthKind::NoAnswer);
        rows(kinds.map(|&kind| {
            let is_there = findings.iter().any(|it| it.kind == kind);
            ([kind.as_str(), kind.severity().as_str()], is_there)
        }))
    }

    pub(super) fn by_level(&self, of: fn((usize, u64)) -> u64) -> MetricReading {
        let levels = self.stats()?.levels.iter().enumerate();
        rows(levels.map(|(level, &numbers)| ([level.to_string()], of(numbers))))
    }

    /// A number about each other member; `None` = it is not known of this one.
    pub(super) fn by_member(
        &self,
        of: impl Fn(&Cluster, MemberIndex) -> Option<u64>,
    ) -> MetricReading {
        let cluster = self.cluster?;
        let others = cluster.other_members().into_iter();
        rows(others.filter_map(|(member, url)| Some(([url], of(cluster, member)?))))
    }

    /// A counter of each other member.
    pub(super) fn by_peer(&self, of: fn(&PeerGauges) -> &AtomicU64) -> MetricReading {
        let others = self.cluster?.others().into_iter();
        rows(others.map(|(url, gauges)| ([url], of(gauges).load(Relaxed))))
    }

    /// The longest estimate of a loop about each other member, of loops that ever asked it.
    pub(super) fn by_estimate(&self, of: fn(&PeerTally) -> &LoopCounter) -> MetricReading {
        let node = self.node?;
        let others = self.cluster?.other_members().into_iter();
        rows(others.filter_map(|(member, url)| {
            let loops = node.lanes.iter();
            let us = loops.map(|lane| of(lane.metrics.peers.of(member)).read());
            let us = us.filter(|&us| us > 0).max()?;
            Some(([url], us as f64 / 1e6))
        }))
    }

    pub(super) fn waiting_repairs(&self) -> MetricReading {
        let waiting = self.cluster?.waiting_repairs(&self.node?.store.engine);
        rows(waiting.into_iter().map(|(url, spans)| ([url], spans)))
    }

    pub(super) fn round_times(&self) -> MetricReading {
        self.cluster?;
        let lanes = self.node?.lanes.iter();
        rows(Round::ALL.into_iter().map(|round| {
            let all = lanes.clone().map(|lane| lane.metrics.rounds.of(round));
            let parts = all.map(|one| (&one.buckets[..], &one.sum_us));
            (
                [round.as_str()],
                SummedTimes::sum(&ROUND_BUCKETS_US, 1e6, parts),
            )
        }))
    }

    pub(super) fn front_times(&self) -> MetricReading {
        let gauges = &self.front?.gauges;
        rows(FrontKind::ALL.map(|kind| {
            let times = gauges.read_times(kind, |times| SummedTimes::add(std::iter::once(times)));
            ([kind.as_str()], times)
        }))
    }
}

/// Requests of one class that one gate refused.
pub(crate) fn refused(parts: &NodeParts, share: CapacityShare, what: RefusalCause) -> u64 {
    sum(parts, |metrics| {
        &metrics.refused[share as usize][what as usize]
    })
}

/// The standing delay of the slowest loop.
pub(crate) fn standing_us(parts: &NodeParts) -> u64 {
    let lanes = parts.lanes.iter();
    let delays = lanes.map(|lane| lane.metrics.standing_us.read());
    delays.max().unwrap_or(0)
}

/// The sum of one tally over all loops.
pub(crate) fn sum(parts: &NodeParts, of: impl Fn(&LoopMetrics) -> &LoopCounter) -> u64 {
    let lanes = parts.lanes.iter();
    lanes.map(|lane| of(&lane.metrics).read()).sum()
}

/// Seconds since the last whole scrub; `None` = there was none.
pub(crate) fn scrub_age_s(scrub: &ScrubStats) -> Option<u64> {
    let ended_ms = scrub.full_ended_ms;
    (ended_ms > 0).then(|| clock::wall_ms().saturating_sub(ended_ms) / 1_000)
}
