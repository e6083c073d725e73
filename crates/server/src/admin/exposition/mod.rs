//! The numbers of one node as Prometheus reads them.
//!
//! ```text
//! scrape ─► sum of all loops' tallies + gauges of gates, queues, engine ─► OpenMetrics text
//! ```
//!
//! Invariants
//! 1. A scrape reads; it resets no counter and makes no request wait.
//! 2. Names end in their unit; counters in `_total`, which the encoder appends.
//!
//! Not here: a member's metrics of its cluster (`exposition/cluster.rs`), those of a front door
//! (`exposition/front.rs`), those of the process (`exposition/process.rs`), the counters themselves
//! (`metrics.rs`), the route (`admin/mod.rs`).
//! See: docs/overload.md.

mod cluster;
mod front;
mod page;
mod process;

use crate::admin::metrics::{
    CLASSES, CapacityShare, LoopCounter, LoopMetrics, OpLabel, RefusalCause,
};
use crate::admin::stages::{REQUESTS_PER_SAMPLE, RequestStage};
use crate::clock;
use crate::event_loop::shared::{Phase, PhaseCell, Shared};
use crate::rights::{GrantUse, QuotaKind, Rights};
use dendra_engine::{ScrubStats, Stats};
pub(crate) use page::sum;
use page::{MetricsPage, add};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The sources of a scrape.
pub(crate) struct ScrapeSources {
    pub(crate) phase: Arc<PhaseCell>,
    pub(crate) shared: Arc<OnceLock<Arc<Shared>>>,
}

impl fmt::Debug for ScrapeSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

/// A registry that shows `numbers`.
pub(crate) fn registry(numbers: ScrapeSources) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::OwnProcess));
    let own = registry.sub_registry_with_prefix("dendra");
    own.register_collector(Box::new(numbers));
    registry
}

/// The registry as text.
pub(crate) fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut page = String::with_capacity(96 << 10);
    text::encode(&mut page, registry)?;
    Ok(page)
}

/// The content type of `render`.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Requests of one class that one gate refused.
pub(crate) fn refused(shared: &Shared, share: CapacityShare, what: RefusalCause) -> u64 {
    sum(shared, |metrics| {
        &metrics.refused[share as usize][what as usize]
    })
}

/// The standing delay of the slowest loop.
pub(crate) fn standing_us(shared: &Shared) -> u64 {
    let lanes = shared.lanes.iter();
    let delays = lanes.map(|lane| lane.metrics.standing_us.read());
    delays.max().unwrap_or(0)
}

/// Which of a loop's tallies.
type CounterOf = fn(&LoopMetrics) -> &LoopCounter;

const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx", "cut"];

impl Collector for ScrapeSources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = MetricsPage(encoder);
        page.0
            .encode_descriptor("build", "What runs here.", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let of_no_use = self.shared.get().and_then(|shared| shared.of_no_use());
        let is_ready = self.phase.now() == Phase::Serving && of_no_use.is_none();
        page.gauge("ready", "1 while /readyz is 200.", is_ready.into())?;
        match self.shared.get() {
            Some(shared) => {
                requests(&mut page, shared)?;
                stages(&mut page, shared)?;
                sockets(&mut page, shared)?;
                queues(&mut page, shared)?;
                cluster::page(&mut page, shared)?;
                if let Some(desk) = &shared.front {
                    front::page(&mut page, desk)?;
                }
                backups(&mut page, shared)?;
                engine(&mut page, shared)
            }
            None => Ok(()),
        }
    }
}

/// Backups: checkpoints that are held.
fn backups(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let held = shared.checkpoints.len() as u64;
    page.gauge("checkpoints", "Checkpoints that backups hold.", held)
}

fn requests(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let rows = OpLabel::ALL.into_iter().flat_map(|op| {
        CLASS_NAMES
            .into_iter()
            .enumerate()
            .map(move |(class, name)| {
                let value = sum(shared, |metrics| &metrics.requests[op as usize][class]);
                ([("op", op.as_str()), ("class", name)], value)
            })
    });
    page.counters(
        "requests",
        "Answers by operation and status class; cut: scans that ended before their range did.",
        rows,
    )?;
    let rows = RefusalCause::ALL.into_iter().map(|what| {
        let value = CapacityShare::ALL.map(|share| refused(shared, share, what));
        ([("by", what.as_str())], value.into_iter().sum())
    });
    page.counters("refused", "Requests refused, by what refused them.", rows)?;
    let rows = CapacityShare::ALL.into_iter().flat_map(|share| {
        RefusalCause::ALL.into_iter().map(move |what| {
            let labels = [("class", share.as_str()), ("by", what.as_str())];
            (labels, refused(shared, share, what))
        })
    });
    page.counters(
        "class_refused",
        "Requests of clients and orders of members refused, by class and by what refused them.",
        rows,
    )?;
    let rows = CapacityShare::ALL.into_iter().map(|share| {
        let value = sum(shared, |metrics| &metrics.admitted[share as usize]);
        ([("class", share.as_str())], value)
    });
    page.counters(
        "class_admitted",
        "Requests of clients and orders of members that were let in, by class.",
        rows,
    )?;
    let mut family = page.0.encode_descriptor(
        "request_seconds",
        "From the first look at a request to its formed answer, by operation; every request.",
        None,
        MetricType::Histogram,
    )?;
    for op in OpLabel::ALL {
        let lanes = shared.lanes.iter();
        let (buckets, count, sum_s) = add(lanes.map(|lane| &lane.metrics.latency[op as usize]));
        family
            .encode_family(&[("op", op.as_str())])?
            .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
    }
    let lanes = shared.lanes.iter();
    let (buckets, count, sum_s) = add(lanes.map(|lane| &lane.metrics.write_pauses));
    page.0
        .encode_descriptor(
            "write_pause_seconds",
            "Pauses of writes under the engine's pressure; each is in request_seconds, too.",
            None,
            MetricType::Histogram,
        )?
        .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
    let lanes = shared.lanes.iter();
    let (buckets, count, sum_s) = add(lanes.map(|lane| &lane.metrics.stood));
    page.0
        .encode_descriptor(
            "standing_seconds",
            "Time that requests stood in their loop's line before they were served; each call.",
            None,
            MetricType::Histogram,
        )?
        .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)
}

fn stages(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    page.gauge(
        "stage_requests_per_sample",
        "One request in so many, at random, is in stage_seconds.",
        REQUESTS_PER_SAMPLE.into(),
    )?;
    let mut family = page.0.encode_descriptor(
        "stage_seconds",
        "Time in each stage of a request, by operation; a sample of the requests.",
        None,
        MetricType::Histogram,
    )?;
    for op in OpLabel::ALL {
        for stage in RequestStage::of(op) {
            let lanes = shared.lanes.iter().map(|lane| &lane.metrics.stages);
            let all = lanes.chain(shared.pool.stages.iter());
            let (buckets, count, sum_s) = add(all.map(|one| one.of(op, *stage)));
            family
                .encode_family(&[("op", op.as_str()), ("stage", stage.as_str())])?
                .encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
        }
    }
    Ok(())
}

fn sockets(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    page.gauge(
        "connections",
        "Client connections now.",
        shared.connections() as u64,
    )?;
    page.gauge(
        "connections_max",
        "Client connections at which accepting stops.",
        shared.settings.connections_max as u64,
    )?;
    page.gauge(
        "connections_beyond",
        "Of them those without a place among the clients': only members may ask there.",
        shared.gate.beyond(),
    )?;
    page.counter(
        "connections_over_address_bound",
        "Connections without a place because their address had as many as it may have.",
        shared.addresses.refused(),
    )?;
    let rows = shared.lanes.iter().enumerate().map(|(index, lane)| {
        let connections = lane.connections.load(std::sync::atomic::Ordering::Relaxed);
        ([("loop", index.to_string())], connections as u64)
    });
    page.gauges(
        "loop_connections",
        "Client connections by event loop.",
        rows,
    )?;
    let counters: [(&str, &str, CounterOf); 11] = [
        ("accepted", "Connections accepted.", |m| &m.accepted),
        ("timed_out", "Connections ended by a deadline.", |m| {
            &m.timed_out
        }),
        ("socket_reads", "Reads that returned bytes.", |m| &m.reads),
        ("socket_read_bytes", "Bytes read.", |m| &m.read_bytes),
        ("socket_writes", "Writes that took bytes.", |m| &m.writes),
        ("socket_write_bytes", "Bytes written.", |m| &m.write_bytes),
        ("pooled_reads", "Reads given to the store pool.", |m| {
            &m.pooled
        }),
        (
            "damaged_answers",
            "Values whose checksum did not fit.",
            |m| &m.damaged,
        ),
        (
            "abandoned_requests",
            "Requests whose client had gone when their turn came, and that were not begun.",
            |m| &m.abandoned,
        ),
        (
            "hung_up_operations",
            "Operations of the cluster whose client hung up while they waited.",
            |m| &m.hung_up,
        ),
        (
            "cancelled_orders",
            "Orders of members in the store queue or in line for the log, withdrawn unbegun.",
            |m| &m.cancelled,
        ),
    ];
    for (name, help, of) in counters {
        page.counter(name, help, sum(shared, of))?;
    }
    door(page, shared)?;
    page.counter(
        "scan_rests",
        "Chunks of scans behind which scans rested, because an event loop was near its target.",
        shared.pool.scan_rests(),
    )
}

fn door(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    use std::sync::atomic::Ordering::Relaxed;
    if let Some(rights) = &shared.rights {
        let gauges = &rights.gauges;
        for (name, help, counter) in [
            (
                "logins_missing",
                "Requests without a token.",
                &gauges.missing,
            ),
            (
                "logins_unknown",
                "Requests with a token that is not known.",
                &gauges.unknown,
            ),
            (
                "logins_forbidden",
                "Requests whose token does not allow the operation.",
                &gauges.forbidden,
            ),
            (
                "logins_too_many",
                "Requests refused with 429 because their address showed many unknown tokens.",
                &gauges.too_many,
            ),
        ] {
            page.counter(name, help, counter.load(Relaxed))?;
        }
        quotas(page, rights)?;
    }
    if let Some(audit) = &shared.audit {
        let gauges = &audit.gauges;
        for (name, help, counter) in [
            ("audit_lines", "Lines of the audit log.", &gauges.written),
            (
                "audit_lost",
                "Events that are not in the audit log: its queue or its disk was full.",
                &gauges.lost,
            ),
            (
                "audit_left_out",
                "Failed logins beyond those that the audit log takes a second.",
                &gauges.left_out,
            ),
            (
                "audit_rotated",
                "Files of the audit log that were put aside.",
                &gauges.rotated,
            ),
        ] {
            page.counter(name, help, counter.load(Relaxed))?;
        }
    }
    let Some(tls) = &shared.tls else {
        return Ok(());
    };
    page.gauge(
        "tls_handshakes_under_way",
        "Connections whose TLS handshake is under way.",
        shared.handshakes.now.load(Relaxed),
    )?;
    let gauges = &tls.gauges;
    let counters = [
        ("tls_handshakes", "TLS sessions made.", &gauges.handshakes),
        (
            "tls_handshakes_failed",
            "TLS handshakes that led to no session.",
            &gauges.failed,
        ),
        (
            "tls_clear_refused",
            "Connections that spoke clear text to a port of TLS.",
            &gauges.clear,
        ),
        (
            "tls_files_renewed",
            "Readings of changed certificates and keys that are in force.",
            &tls.files.taken,
        ),
        (
            "tls_files_refused",
            "Readings of changed certificates and keys that were of no use: the old ones stay in force.",
            &tls.files.refused,
        ),
    ];
    for (name, help, counter) in counters {
        page.counter(name, help, counter.load(Relaxed))?;
    }
    let now_s = (clock::wall_ms() / 1_000) as i64;
    let terms = tls.terms();
    let rows = terms
        .iter()
        .map(|term| ([("file", term.file.to_owned())], term.days_left(now_s)));
    page.gauges(
        "tls_days_left",
        "Whole days that the certificate in force holds, and the CAs.",
        rows,
    )
}

/// The use of tokens with a quota on this node.
fn quotas(page: &mut MetricsPage<'_>, rights: &Rights) -> fmt::Result {
    use std::sync::atomic::Ordering::Relaxed;
    let limited = rights.limited();
    let of = |used: &GrantUse| [("token", used.id.clone())];
    page.counters_by(
        "quota_requests",
        "Requests that a token's quota let in.",
        limited
            .iter()
            .map(|used| (of(used), used.admitted.load(Relaxed))),
    )?;
    page.counters_by(
        "quota_bytes",
        "Bytes of requests and answers under a token with a quota.",
        limited
            .iter()
            .map(|used| (of(used), used.moved.load(Relaxed))),
    )?;
    page.counters_by(
        "quota_refused",
        "Requests that a token's quota refused, by which.",
        limited.iter().flat_map(|used| {
            QuotaKind::ALL.map(|kind| {
                let labels = [("token", used.id.clone()), ("by", kind.as_str().to_owned())];
                (labels, used.refused[kind as usize].load(Relaxed))
            })
        }),
    )?;
    let stored = limited.iter().filter(|used| used.stored_max().is_some());
    page.gauges(
        "quota_stored_bytes",
        "About what the keys of a token with such a quota take, at the last look.",
        stored.map(|used| (of(used), used.stored.load(Relaxed))),
    )
}

fn queues(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let (points, scans) = shared.pool.queued();
    let letters: usize = shared.lanes.iter().map(|lane| lane.mailbox.len()).sum();
    let gauges = [
        (
            "overloaded_loops",
            "Event loops with more requests than they serve in time: the newest go first.",
            sum(shared, |m| &m.is_standing),
        ),
        (
            "requests_standing",
            "Requests that wait unread in their sockets, within 100 ms.",
            sum(shared, |m| &m.standing),
        ),
        (
            "requests_inflight",
            "Requests that wait for the log or the store pool, within 100 ms.",
            sum(shared, |m| &m.requests_held),
        ),
        (
            "requests_inflight_max",
            "Their bound.",
            shared.requests.limit(),
        ),
        (
            "bytes_inflight",
            "Bytes of bodies and answers under way, within 100 ms.",
            sum(shared, |m| &m.bytes_held),
        ),
        ("bytes_inflight_max", "Their bound.", shared.bytes.limit()),
        (
            "bytes_waiting",
            "Bytes of bodies and answers that wait for room, within 100 ms.",
            sum(shared, |m| &m.bytes_waiting),
        ),
        (
            "store_queue_points",
            "Point reads waiting for the store pool.",
            points as u64,
        ),
        (
            "store_queue_scans",
            "Reads of ranges, for scans and comparisons, waiting for the store pool.",
            scans as u64,
        ),
        (
            "store_queue_max",
            "Bound of both together.",
            shared.settings.queue as u64,
        ),
        (
            "mailbox_events",
            "Events waiting for event loops.",
            letters as u64,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value)?;
    }
    let rows = [
        ("clients", sum(shared, |m| &m.log_line)),
        ("members", sum(shared, |m| &m.order_line)),
    ];
    page.gauges(
        "writes_in_line",
        "Writes of clients, and members' orders, that wait for the log or the engine, within 100 ms.",
        rows.map(|(of, count)| ([("of", of.to_owned())], count)),
    )?;
    page.0
        .encode_descriptor(
            "queue_delay_seconds",
            "How long requests wait for their event loop, the slowest loop, within 100 ms.",
            None,
            MetricType::Gauge,
        )?
        .encode_gauge(&(standing_us(shared) as f64 / 1e6))
}

fn engine(page: &mut MetricsPage<'_>, shared: &Shared) -> fmt::Result {
    let stats = shared.engine.stats();
    page.0
        .encode_descriptor(
            "engine_pressure",
            "0 = calm, 1 = new values are refused.",
            None,
            MetricType::Gauge,
        )?
        .encode_gauge(&shared.engine.pressure().level)?;
    page.gauge(
        "ended_values_seconds",
        "Values that ended up to this time leave their bytes in merges, in seconds since 1970; 0 = none: this clock was set, or too few others are known.",
        shared.engine.ended_ms() / 1_000,
    )?;
    levels(page, &stats)?;
    engine_gauges(page, &stats, shared.engine.damaged_spans().len() as u64)?;
    engine_counters(page, &stats)
}

/// The tables of the engine.
fn levels(page: &mut MetricsPage<'_>, stats: &Stats) -> fmt::Result {
    let levels = stats.levels.iter().enumerate();
    let rows = levels
        .clone()
        .map(|(level, (tables, _))| ([("level", level.to_string())], *tables as u64));
    page.gauges("engine_tables", "Tables by level.", rows)?;
    let rows = levels.map(|(level, (_, bytes))| ([("level", level.to_string())], *bytes));
    page.gauges("engine_table_bytes", "Bytes of tables by level.", rows)
}

/// What the engine holds, and how far scrubs are.
fn engine_gauges(page: &mut MetricsPage<'_>, stats: &Stats, spans_lost: u64) -> fmt::Result {
    let gauges = [
        (
            "engine_memtable_bytes",
            "Bytes in memtables.",
            stats.memtable_bytes,
        ),
        (
            "engine_memtables_sealed",
            "Memtables that wait for a flush.",
            stats.memtables_sealed as u64,
        ),
        (
            "engine_cache_bytes",
            "Bytes of cached blocks.",
            stats.cache_bytes,
        ),
        (
            "engine_log_segments",
            "Log segments on disk.",
            stats.log_segments as u64,
        ),
        (
            "engine_disk_free_bytes",
            "Room on the disk.",
            stats.disk.free_bytes,
        ),
        (
            "disk_free_bytes",
            "Room on the disk.",
            stats.disk.free_bytes,
        ),
        (
            "disk_total_bytes",
            "Size of the disk.",
            stats.disk.total_bytes,
        ),
        (
            "disk_used_bytes",
            "Bytes of the data folder, about.",
            stats.disk.used_bytes,
        ),
        (
            "disk_reserve_bytes",
            "With less room than this, new values are refused.",
            stats.disk.reserve_bytes,
        ),
        (
            "disk_full",
            "1 while new values are refused for lack of room.",
            u64::from(stats.disk.is_full),
        ),
        (
            "engine_kept_bytes",
            "Bytes of tables that the next incremental backup reads, live ones included.",
            stats.kept_bytes,
        ),
        (
            "engine_tables_damaged",
            "Live tables in which damage was met since the start.",
            stats.tables_damaged as u64,
        ),
        (
            "engine_tables_set_aside",
            "Damaged tables that no compaction reads any more.",
            stats.tables_set_aside as u64,
        ),
        (
            "scrub_full_age_seconds",
            "How long ago all tables had been scrubbed; 0 while that never was.",
            scrub_age_s(&stats.scrub),
        ),
        (
            "scrub_spans_lost",
            "Damaged blocks whose records are not repaired.",
            spans_lost,
        ),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help, value)?;
    }
    Ok(())
}

/// What the engine has done since the start.
fn engine_counters(page: &mut MetricsPage<'_>, stats: &Stats) -> fmt::Result {
    let counters = [
        (
            "engine_cache_hits",
            "Blocks found in the cache.",
            stats.cache_hits,
        ),
        (
            "engine_cache_misses",
            "Blocks that had to be read.",
            stats.cache_misses,
        ),
        (
            "engine_reads_would_block",
            "Reads that the kernel would have made wait.",
            stats.reads_would_block,
        ),
        (
            "engine_filter_negatives",
            "Reads that a filter ended.",
            stats.filter_negatives,
        ),
        ("engine_commits", "Log writes.", stats.commits),
        (
            "engine_commit_writes",
            "Writes in them.",
            stats.commit_writes,
        ),
        (
            "engine_log_bytes",
            "Bytes written to the log.",
            stats.log_bytes,
        ),
        ("engine_log_syncs", "Syncs of the log.", stats.log_syncs),
        ("engine_flushes", "Memtables flushed.", stats.flushes),
        (
            "engine_flush_bytes",
            "Bytes written by flushes.",
            stats.flush_bytes,
        ),
        (
            "engine_ingest_bytes",
            "Bytes of tables that a restore wrote.",
            stats.ingest_bytes,
        ),
        ("engine_compactions", "Compactions done.", stats.compactions),
        (
            "engine_compaction_read_bytes",
            "Bytes read by compactions.",
            stats.compaction_read_bytes,
        ),
        (
            "engine_compaction_write_bytes",
            "Bytes written by compactions.",
            stats.compaction_write_bytes,
        ),
        (
            "engine_damaged_reads",
            "Damaged blocks met by reads.",
            stats.damaged_reads,
        ),
        (
            "scrub_bytes",
            "Bytes of tables read by scrubs.",
            stats.scrub.bytes,
        ),
        (
            "scrub_blocks",
            "Blocks of tables read by scrubs.",
            stats.scrub.blocks,
        ),
        (
            "scrub_spots_found",
            "Damaged spots of tables found by scrubs.",
            stats.scrub.spots_found,
        ),
        (
            "scrub_spots_mended",
            "Damaged spots that went with a table that was written anew.",
            stats.scrub.spots_mended,
        ),
    ];
    for (name, help, value) in counters {
        page.counter(name, help, value)?;
    }
    Ok(())
}

/// Seconds since the last whole scrub.
pub(super) fn scrub_age_s(scrub: &ScrubStats) -> u64 {
    match scrub.full_ended_ms {
        0 => 0,
        ended_ms => clock::wall_ms().saturating_sub(ended_ms) / 1_000,
    }
}
