//! A member's metrics of the cluster: rounds of operations, hints, links, the state of the others.
//!
//! ```text
//! round_seconds{round}      clock, write, read, write_back, prepare, accept, …     every operation
//! hedges                    reads and clocks that asked another member because one was late
//! wasteful_operations       operations that asked an owner more often than one may
//! hints_kept _delivered _dropped, hint_bytes, clock_ahead_milliseconds
//! compare_age_seconds{peer} compare_sent{peer} _fetched{peer} compare_read_bytes …
//! peer_links{peer} peer_latency_seconds{peer} peer_asks{peer} …
//! ```
//!
//! Invariants
//! 1. A node by itself shows none of it.
//!
//! Not here: how the numbers come about (crate `node`, `peers/`).
//! See: docs/overload.md, docs/operating.md.

use super::page::{MetricsPage, buckets, sum};
use crate::admin::metrics::{LoopCounter, PeerTally};
use crate::event_loop::shared::Shared;
use crate::peers::{Cluster, PeerGauges};
use dendra_node::rounds::ROUND_BUCKETS_US;
use dendra_node::step::Now;
use dendra_node::{Comparisons, MemberIndex, Round};
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;
use std::fmt;

/// Rounds, hints, links and questions; no line from a node by itself.
pub(super) fn page(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let Some(cluster) = &shared.cluster else {
        return Ok(());
    };
    page.gauge(
        "operations_inflight",
        "Operations and scans of clients that the loops' nodes work on, within 100 ms.",
        sum(shared, |m| &m.operations),
    )?;
    page.gauge(
        "orders_inflight",
        "Orders of nodes that wait for the log or the store pool, and room leased for them.",
        shared.orders.used(),
    )?;
    page.gauge(
        "orders_inflight_max",
        "Orders of nodes at which the next one is refused.",
        shared.orders.limit(),
    )?;
    let now = crate::clock::now();
    clocks(page, cluster, now)?;
    hints(page, cluster)?;
    comparisons(page, cluster, now.mono_us)?;
    horizons(page, cluster)?;
    let waiting = cluster.waiting_repairs(&shared.engine).into_iter();
    page.gauges(
        "scrub_spans_waiting",
        "Damaged blocks whose repair waits for this member: it is away, or damaged between the same keys.",
        waiting.map(|(url, spans)| ([("peer", url)], spans)),
    )?;
    page.counter(
        "losses_accepted",
        "Orders since the start to repair damage without lost members.",
        cluster
            .losses_accepted
            .load(std::sync::atomic::Ordering::Relaxed),
    )?;
    page.gauge(
        "cluster_secrets",
        "Secrets of the cluster that are valid here: two while the secret is changed, none without one.",
        cluster.secrets.count() as u64,
    )?;
    unproven(page, cluster)?;
    rounds(page, shared)?;
    estimates(page, shared, cluster)?;
    links(page, cluster)
}

/// How far the clocks of versions, of this machine and of the peers are apart.
fn clocks(page: &mut MetricsPage<'_>, cluster: &Cluster, now: Now) -> fmt::Result {
    page.gauge(
        "clock_ahead_milliseconds",
        "How far the clock of versions is ahead of the wall clock of this machine.",
        dendra_node::hlc::ahead_ms(cluster.hlc.last(), crate::clock::wall_ms()),
    )?;
    page.gauge(
        "clock_doubted",
        "1 while the wall clock of this machine agrees with no majority of the members': it writes nothing then.",
        cluster.walls.is_doubted(now).into(),
    )?;
    let apart = cluster
        .other_members()
        .into_iter()
        .filter_map(|(member, url)| {
            let apart_ms = cluster.walls.ahead_ms(member, now)?.unsigned_abs();
            Some(([("peer", url)], apart_ms))
        });
    page.gauges(
        "peer_clock_apart_milliseconds",
        "How far the wall clocks of a peer and of this machine are apart, to an answer's way.",
        apart,
    )
}

fn hints(page: &mut MetricsPage<'_>, cluster: &Cluster) -> fmt::Result {
    let hints = &cluster.hints;
    page.gauge(
        "hint_bytes",
        "Bytes of keys and cells that hints hold, those on their way to the store included.",
        hints.bytes(),
    )?;
    page.counter(
        "hints_kept",
        "Writes kept for a member that did not confirm them.",
        hints.kept(),
    )?;
    page.counter(
        "hints_dropped",
        "Hints for which there was no room.",
        hints.dropped(),
    )?;
    page.counter(
        "hints_delivered",
        "Hints that their members confirmed.",
        hints.delivered(),
    )
}

/// Up to when deletes may be purged, and what holds it.
fn horizons(page: &mut MetricsPage<'_>, cluster: &Cluster) -> fmt::Result {
    let layout = cluster.layout();
    let seconds = |hlc: u64| dendra_node::hlc::date_ms(hlc).unwrap_or(0) / 1_000;
    page.gauge(
        "horizon_floor_seconds",
        "The newest floor of the horizons, in seconds since 1970; 0 = they have not risen.",
        seconds(layout.horizons().floor()),
    )?;
    page.gauge(
        "horizon_purge_seconds",
        "What was deleted or had ended up to this time may be purged, in seconds since 1970; 0 = nothing.",
        seconds(layout.horizons().purge()),
    )?;
    page.gauge(
        "horizon_held",
        "Members that have not confirmed the newest epoch, so that the horizons do not rise.",
        cluster
            .horizon_held
            .load(std::sync::atomic::Ordering::Relaxed),
    )?;
    page.gauge(
        "narrowing_steps_left",
        "Steps of the horizons until a lowered replication factor gives its copies back; 0 = none waits.",
        u64::from(layout.narrowing().steps_left()),
    )
}

/// Links to this node of which nothing is known yet.
fn unproven(page: &mut MetricsPage<'_>, cluster: &Cluster) -> fmt::Result {
    let unproven = &cluster.unproven;
    page.gauge(
        "peer_links_unproven",
        "Links to this node whose asker has not proven yet that it is a member.",
        unproven.now.load(std::sync::atomic::Ordering::Relaxed),
    )?;
    page.counter(
        "peer_links_unproven_ended",
        "Links that ended before their asker had proven that it is a member.",
        unproven.ended.load(std::sync::atomic::Ordering::Relaxed),
    )
}

/// Links to peers, and the questions on them.
fn links(page: &mut MetricsPage<'_>, cluster: &Cluster) -> fmt::Result {
    let rows = cluster.others().into_iter().map(|(url, gauges)| {
        let links = gauges.links.load(std::sync::atomic::Ordering::Relaxed);
        ([("peer", url.to_owned())], links)
    });
    page.gauges(
        "peer_links",
        "Event loops whose link to a peer is up.",
        rows,
    )?;
    let counters: [(&str, &str, OfPeer); 6] = [
        ("peer_asks", "Questions sent to a peer.", |g| &g.asks),
        ("peer_answers", "Answers of a peer.", |g| &g.answers),
        (
            "peer_refused",
            "Questions refused here: no link to the peer, or too much waits for it.",
            |g| &g.refused,
        ),
        (
            "peer_late",
            "Questions of a peer that were too old when they arrived.",
            |g| &g.late,
        ),
        ("peer_links_lost", "Links to a peer that were lost.", |g| {
            &g.lost
        }),
        (
            "peer_strangers",
            "Handshakes with a process at a peer's url that is not the known member.",
            |g| &g.strangers,
        ),
    ];
    for (name, help, of) in counters {
        let mut family = page
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (url, gauges) in cluster.others() {
            let value = of(gauges).load(std::sync::atomic::Ordering::Relaxed);
            family
                .encode_family(&[("peer", url.as_str())])?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
    }
    page.counter(
        "unknown_strangers",
        "Handshakes of processes that named no member and proved nothing.",
        cluster
            .strangers
            .unknown
            .load(std::sync::atomic::Ordering::Relaxed),
    )
}

/// How far comparisons of copies are, and how many records they repaired.
fn comparisons(page: &mut MetricsPage<'_>, cluster: &Cluster, now_us: u64) -> fmt::Result {
    let comparisons = &cluster.comparisons;
    page.counter(
        "compare_read_bytes",
        "Bytes of keys and values read to compare copies, for this member and for its peers.",
        comparisons.read_bytes(),
    )?;
    page.counter(
        "compare_moved_bytes",
        "Bytes of questions, answers and repairs of the comparisons that this member leads, about.",
        comparisons.moved_bytes(),
    )?;
    page.counter(
        "compare_left_out",
        "Ranges that were not compared because a copy is damaged.",
        comparisons.left_out(),
    )?;
    page.gauge(
        "compare_bytes_per_second",
        "Bytes that own comparisons read in a second: more than told while deletes wait for them.",
        comparisons.speed(),
    )?;
    page.counter(
        "compare_promises",
        "Promises of conditional writes that comparisons raised.",
        comparisons.promises(),
    )?;
    let age = |(member, url): (MemberIndex, String)| {
        let full_us = comparisons.full_us(member)?;
        let age_s = now_us.saturating_sub(full_us) / 1_000_000;
        Some(([("peer", url)], age_s))
    };
    page.gauges(
        "compare_age_seconds",
        "Since the last full comparison with a peer; not shown before the first one of this process.",
        cluster.other_members().into_iter().filter_map(age),
    )?;
    let repairs: [(&str, &str, OfComparison); 2] = [
        (
            "compare_sent",
            "Records that a peer lacked, or had an older version of, and took from this member.",
            Comparisons::sent,
        ),
        (
            "compare_fetched",
            "Records that this member lacked, or had an older version of, and took from a peer.",
            Comparisons::fetched,
        ),
    ];
    for (name, help, of) in repairs {
        let mut family = page
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (member, url) in cluster.other_members() {
            let value = of(comparisons, member);
            family
                .encode_family(&[("peer", url)])?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
    }
    Ok(())
}

/// Which number of comparisons with a peer.
type OfComparison = fn(&Comparisons, MemberIndex) -> u64;

/// Which counter of a peer.
type OfPeer = fn(&PeerGauges) -> &std::sync::atomic::AtomicU64;

/// How long the rounds took, all loops together, within a sweep.
fn rounds(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let mut family = page.0.encode_descriptor(
        "round_seconds",
        "From the questions of a round to enough answers, by kind of round; every operation.",
        None,
        MetricType::Histogram,
    )?;
    for round in Round::ALL {
        let all = shared
            .lanes
            .iter()
            .map(|lane| lane.metrics.rounds.of(round));
        let bounds = ROUND_BUCKETS_US.iter().map(|&us| us as f64 / 1e6);
        let buckets = buckets(bounds, |at| {
            all.clone().map(|one| one.buckets[at].read()).sum()
        });
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum_us: u64 = all.map(|one| one.sum_us.read()).sum();
        family
            .encode_family(&[("round", round.as_str())])?
            .encode_histogram::<NoLabelSet>(sum_us as f64 / 1e6, count, &buckets, None)?;
    }
    page.counter(
        "disputes",
        "Sightings of copies of a record that have one version and different bytes.",
        sum(shared, |m| &m.disputes),
    )?;
    page.counter(
        "hedges",
        "Questions to a further owner because one that was asked was late.",
        sum(shared, |m| &m.rounds.hedges),
    )?;
    page.counter(
        "wasteful_operations",
        "Operations that asked an owner more often than an operation may.",
        sum(shared, |m| &m.rounds.wasteful),
    )
}

/// The loops' expectations of the other members: the most patient one is shown, of those that ever
/// asked.
fn estimates(page: &mut MetricsPage<'_>, shared: &Shared, cluster: &Cluster) -> fmt::Result {
    let gauges: [(&str, &str, fn(&PeerTally) -> &LoopCounter); 2] = [
        (
            "peer_latency_seconds",
            "How long an answer of a peer takes, about: the longest estimate of a loop.",
            |peer| &peer.latency_us,
        ),
        (
            "peer_patience_seconds",
            "After how long a read asks another owner beside a peer: the longest of a loop.",
            |peer| &peer.patience_us,
        ),
    ];
    for (name, help, of) in gauges {
        let mut family = page
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (member, url) in cluster.other_members() {
            let loops = shared.lanes.iter();
            let us = loops.map(|lane| of(lane.metrics.peers.of(member)).read());
            if let Some(us) = us.filter(|&us| us > 0).max() {
                let seconds = us as f64 / 1e6;
                family
                    .encode_family(&[("peer", url.as_str())])?
                    .encode_gauge(&seconds)?;
            }
        }
    }
    Ok(())
}
