//! The thread that reads tables and checks them, at a rate, and tells the node which spans are
//! lost.
//!
//! ```text
//! scrub(slice) ─► More ─► pause: slice / rate, longer while the engine is behind
//!              └► Idle ─► wait
//! damaged spans differ ─► log line, loop 0 (the keeper): Lost ─► … ─► Repaired ─► engine.repaired
//! ```
//!
//! Invariants
//! 1. At most the rate that the operator set, and one slice; no slice while the node stops.
//! 2. Each damage is logged once when it is found, when it is repaired, and when it is given up as
//!    hopeless. Repairs that wait are counted by the member for which they do, and logged when a
//!    count changes, at most once in `SCRUB_WAITS_PAUSE`.
//!
//! Not here: the work of a slice (crate `engine`), repairs (crate `node`).
//! See: docs/operating.md, "Damage".

use crate::clock;
use crate::disk::owners::OtherOwners;
use crate::disk::store::OwnStore;
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::measure::profile;
use crate::settings::Settings;
use dendra_base::Space;
use dendra_engine::{DamagedSpan, Maintained, ScrubStats};
use dendra_node::step::LostSpan;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lower than compactions: a scrub is never urgent.
const NICE: i32 = 15;

/// Starts the thread, unless the rate is zero.
pub(crate) fn spawn(
    store: &Arc<OwnStore>,
    settings: &Arc<Settings>,
    owners: Option<&Arc<dyn OtherOwners>>,
) -> Option<std::io::Result<JoinHandle<()>>> {
    if settings.scrub_bytes_per_second == 0 {
        return None;
    }
    let (store, settings, owners) = (Arc::clone(store), Arc::clone(settings), owners.cloned());
    let thread = std::thread::Builder::new().name("scrub".to_owned());
    Some(thread.spawn(move || {
        let _seat = profile::register(profile::ThreadKind::Scrub);
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "scrubbing keeps its priority");
        }
        work(&store, &settings, owners.as_deref());
        if let Err(error) = store.engine.note_scrub() {
            tracing::warn!(%error, "it was not noted where the scrub stands: the next start reads some tables again");
        }
    }))
}

/// How long to wait after a slice of so many bytes.
fn pause_after(bytes: u64, bytes_per_second: u64, level: f64) -> Duration {
    let pause = Duration::from_micros(bytes.saturating_mul(1_000_000) / bytes_per_second.max(1));
    if level > 0.5 {
        pause.max(limits::SCRUB_BUSY_PAUSE)
    } else {
        pause
    }
}

fn work(store: &OwnStore, settings: &Settings, owners: Option<&dyn OtherOwners>) {
    let rate = settings.scrub_bytes_per_second;
    let every_ms = settings.scrub_every.as_millis() as u64;
    let slice_bytes = limits::SCRUB_SLICE_BYTES.min(rate);
    let mut said = ScrubLog::default();
    loop {
        let slice = store.engine.scrub(clock::wall_ms(), every_ms, slice_bytes);
        let pause = match slice {
            Ok(slice) => {
                let pause = pause_after(slice.bytes, rate, store.engine.pressure().level);
                match slice.state {
                    Maintained::More => pause,
                    Maintained::Idle => pause.max(limits::SCRUB_IDLE),
                }
            }
            Err(error) => {
                tracing::error!(%error, "a slice of the scrub failed and is tried again");
                limits::SCRUB_BUSY_PAUSE
            }
        };
        said.look(store, owners);
        if !store.poke.pause(pause) {
            return;
        }
    }
}

/// The damage that was logged so far.
#[derive(Default)]
struct ScrubLog {
    spans: Vec<DamagedSpan>,
    stats: ScrubStats,
    /// Repairs that wait, by the url of the member, and when they were named.
    waits: Vec<(String, u64)>,
    waits_at: Option<Instant>,
}

impl ScrubLog {
    fn look(&mut self, store: &OwnStore, owners: Option<&dyn OtherOwners>) {
        self.look_at_waits(store, owners);
        let stats = store.engine.stats().scrub;
        let before = std::mem::replace(&mut self.stats, stats);
        if stats.full_ended_ms != before.full_ended_ms && stats.full_ended_ms > 0 {
            let seconds = stats.full_ended_ms.saturating_sub(stats.full_began_ms) / 1_000;
            tracing::info!(
                seconds,
                bytes = stats.bytes,
                blocks = stats.blocks,
                spots_found = stats.spots_found,
                spots_mended = stats.spots_mended,
                "all tables were scrubbed; the numbers are of all passes since the start"
            );
        }
        if stats.spots_mended > before.spots_mended {
            let spots = stats.spots_mended - before.spots_mended;
            tracing::info!(
                spots,
                "damaged blocks are gone: their tables were written anew"
            );
        }
        let spans = store.engine.damaged_spans();
        if spans == self.spans {
            return;
        }
        for span in spans.iter().filter(|span| !self.spans.contains(span)) {
            let (file, offset, reason) = (span.file(), span.offset, &span.reason);
            tracing::error!(
                file,
                offset,
                reason,
                "a block is damaged: {}",
                fate(owners.is_some(), span)
            );
        }
        self.spans = spans;
        self.tell_node(store);
    }

    fn look_at_waits(&mut self, store: &OwnStore, owners: Option<&dyn OtherOwners>) {
        let Some(owners) = owners else {
            return;
        };
        let waits = owners.waiting_repairs(&store.engine);
        let is_early = |at: Instant| at.elapsed() < limits::SCRUB_WAITS_PAUSE;
        if waits == self.waits || self.waits_at.is_some_and(is_early) {
            return;
        }
        if waits.is_empty() {
            tracing::info!("no repair of a damaged block waits for another member any more");
        }
        for (member, blocks) in &waits {
            tracing::warn!(
                member,
                blocks,
                "damaged blocks are not repaired before this member answers for their keys: it is \
                 away, or damaged between the same keys"
            );
        }
        (self.waits, self.waits_at) = (waits, Some(Instant::now()));
    }

    fn tell_node(&self, store: &OwnStore) {
        let lost = self.spans.iter().map(|span| LostSpan {
            id: span.id,
            block: span.block(),
            first: span.first.clone().into(),
            last: span.last.clone().into(),
        });
        store.lanes[0].mailbox.post(LoopEvent::Lost(lost.collect()));
    }
}

/// The fate of a damaged span, for the log.
fn fate(has_owners: bool, span: &DamagedSpan) -> &'static str {
    if !has_owners {
        return "no other node has its records: reads of them fail until the folder is restored";
    }
    match span.first.first() {
        Some(byte) if *byte == Space::Meta.byte() => {
            "it holds this member's own notes: lost epochs are learnt anew from the other members, \
             the other notes are in no other folder, and the block stays: replace the member"
        }
        _ => "its records come from the other owners",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_keeps_its_rate_and_rests_while_the_engine_is_behind() {
        let mib = 1 << 20;
        assert_eq!(pause_after(mib, 4 * mib, 0.0), Duration::from_millis(250));
        assert_eq!(pause_after(0, 4 * mib, 0.5), Duration::ZERO);
        assert_eq!(pause_after(mib, 4 * mib, 0.6), limits::SCRUB_BUSY_PAUSE);
    }
}
