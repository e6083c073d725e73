//! Two threads that give the engine its background work, slice by slice, and keep out of the way.
//!
//! ```text
//! poke or 500 ms ─► maintain(lane, 1 MiB) ─► More ─► pause by pressure ─► maintain …
//!                                            Idle ─► wait
//! pressure   0.0 … 0.5 … 1.0
//! pause      slice time … none            a calm engine compacts at half speed, a pressed one at full
//! ```
//!
//! Invariants
//! 1. One caller per engine lane, so a flush never waits behind a compaction.
//! 2. The engine learns before each merge which values have ended for everybody: about twice a
//!    second, so that a clock that is set is noticed.
//! 3. A failed slice is logged and tried again after a pause; only a final error ends the thread.
//! 4. Once a second, between slices of flushes, it looks whether the folder is still this node's.
//!
//! Not here: the work of a slice (crate `engine`).
//! See: docs/overload.md.

use crate::clock;
use crate::disk::owners::OtherOwners;
use crate::disk::store::OwnStore;
use crate::disk::{stored, wal_thread};
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::measure::profile;
use crate::rights::Rights;
use dendra_engine::vfs::Ownership;
use dendra_engine::{Maintained, Maintenance};
use dendra_node::EndedValues;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts both threads.
pub(crate) fn spawn(
    store: &Arc<OwnStore>,
    rights: Option<&Arc<Rights>>,
    owners: Option<&Arc<dyn OtherOwners>>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    [
        (Maintenance::Flush, "flush", 5),
        (Maintenance::Compact, "compact", 10),
    ]
    .into_iter()
    .map(|(lane, name, nice)| {
        let store = Arc::clone(store);
        let (rights, owners) = (rights.cloned(), owners.cloned());
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _seat = profile::register(match lane {
                    Maintenance::Flush => profile::ThreadKind::Flush,
                    Maintenance::Compact => profile::ThreadKind::Compact,
                });
                work(&store, (rights.as_deref(), owners.as_deref()), lane, nice);
            })
    })
    .collect()
}

/// How long to wait after a slice that took `took_us`, when the engine's pressure is `level`.
fn pause_after(lane: Maintenance, took_us: u64, level: f64) -> Duration {
    let calm = (1.0 - 2.0 * level).clamp(0.0, 1.0);
    // A flush frees memory and log segments: it rests a quarter as long as a compaction.
    let share = match lane {
        Maintenance::Flush => 0.25,
        Maintenance::Compact => 1.0,
    };
    Duration::from_micros((took_us as f64 * calm * share) as u64).min(limits::MAINTAIN_PAUSE_MAX)
}

/// Calls the writes that wait for the engine, when it is behind no longer.
pub(crate) fn tell_waiting_loops(store: &OwnStore) {
    if store.engine.pressure().stop.is_some() {
        return;
    }
    for lane in store.lanes.iter() {
        if lane.waits_for_engine.swap(false, Ordering::AcqRel) {
            lane.mailbox.post(LoopEvent::QueueFree);
        }
    }
}

fn work(
    store: &OwnStore,
    (rights, owners): (Option<&Rights>, Option<&dyn OtherOwners>),
    lane: Maintenance,
    nice: i32,
) {
    // On Linux this is the calling thread's own priority. Without the right to lower it the thread
    // works at the usual one.
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, ?lane, "maintenance keeps its priority");
    }
    let mut seen = 0;
    let mut looked_us = 0;
    let mut folder = FolderWatch::default();
    let mut ended = EndedValues::default();
    loop {
        if lane == Maintenance::Flush && !folder.look(store) {
            return;
        }
        if lane == Maintenance::Flush
            && let Some(rights) = rights
            && clock::monotonic_us().saturating_sub(looked_us)
                >= limits::STORED_LOOK.as_micros() as u64
        {
            looked_us = clock::monotonic_us();
            stored::look_at_stored(&store.engine, owners, rights);
        }
        if lane == Maintenance::Compact {
            let walls = owners.map(OtherOwners::walls);
            let until_ms = ended.until_ms(clock::now(), walls);
            store.engine.set_ended_ms(until_ms);
        }
        let began_us = clock::monotonic_us();
        let slice = store
            .engine
            .maintain(lane, clock::wall_ms(), limits::MAINTAIN_SLICE_BYTES);
        let took_us = clock::monotonic_us().saturating_sub(began_us);
        tell_waiting_loops(store);
        if lane == Maintenance::Flush {
            // The looks at a node's health may miss a disk that was full for a moment.
            let now = (clock::monotonic_us(), clock::wall_ms());
            store.health.note_disk(now, store.engine.stats().disk);
        }
        let goes_on = match slice {
            Ok(Maintained::More) => {
                let pause = pause_after(lane, took_us, store.engine.pressure().level);
                store.poke.pause(pause)
            }
            Ok(Maintained::Idle) => store.poke.wait(&mut seen, limits::MAINTAIN_IDLE),
            Err(error) if error.is_final() => {
                wal_thread::poison(store, &error.to_string());
                false
            }
            // A full disk is a finding, and lasts.
            Err(error) if error.is_no_space() => {
                tracing::debug!(%error, ?lane, "background work has no room and is tried again");
                store.poke.pause(limits::MAINTAIN_IDLE)
            }
            Err(error) => {
                tracing::error!(%error, ?lane, "background work failed and is tried again");
                store.poke.pause(limits::MAINTAIN_IDLE)
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// The looks at the data folder.
#[derive(Default)]
struct FolderWatch {
    looked_us: u64,
    /// The error of the last look, told once.
    told: Option<String>,
}

impl FolderWatch {
    /// Is the folder still this node's? Asks once a second; false when it is lost.
    fn look(&mut self, store: &OwnStore) -> bool {
        let now_us = clock::monotonic_us();
        if now_us.saturating_sub(self.looked_us) < limits::FOLDER_LOOK.as_micros() as u64 {
            return true;
        }
        self.looked_us = now_us;
        let told = match store.engine.look_at_folder() {
            Err(error) if error.is_final() => {
                wal_thread::poison(store, &error.to_string());
                return false;
            }
            Err(error) => Some(error.to_string()),
            Ok(Ownership::Renewed) => {
                tracing::warn!(
                    "LOCK was removed from the data folder while the node runs, and is there again: never remove it"
                );
                None
            }
            Ok(_) => None,
        };
        match &told {
            Some(error) if self.told != told => {
                tracing::error!(%error, "it cannot be told whether the data folder is still this node's");
            }
            None if self.told.is_some() => {
                tracing::info!("the data folder is this node's");
            }
            _ => {}
        }
        self.told = told;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pressed_engine_gets_no_pause_and_a_calm_one_half_of_the_time() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(Maintenance::Compact, 4_000, 0.0), ms(4));
        assert_eq!(pause_after(Maintenance::Compact, 4_000, 0.25), ms(2));
        assert_eq!(pause_after(Maintenance::Compact, 4_000, 0.5), ms(0));
        assert_eq!(pause_after(Maintenance::Compact, 4_000, 1.0), ms(0));
        assert_eq!(
            pause_after(Maintenance::Compact, 4_000_000, 0.0),
            limits::MAINTAIN_PAUSE_MAX
        );
        assert_eq!(pause_after(Maintenance::Flush, 4_000, 0.0), ms(1));
    }
}
