//! A store that a study measures: one way to load it, to read its costs, and to stop it.
//!
//! ```text
//! server.rs    one process: a node, or a program of others    members.rs   a cluster of nodes
//! others.rs    nginx, redis, redis behind webdis              fronts.rs    an engine behind a front door
//!
//! start ─► load(…) ─► requests to urls() ─► clocks, spent, resident by part ─► stop, or dropped
//! ```
//!
//! Invariants
//! 1. A store is asked at its first URL when a study does not say otherwise.
//! 2. Every process of a store belongs to one part of it, and is gone when the store is dropped.
//!
//! Not here: the requests (`run.rs`), the figures of the kernel (`proc.rs`).

pub(crate) mod fronts;
pub(crate) mod members;
pub(crate) mod others;
pub(crate) mod server;

pub(crate) use members::{Members, metric};
pub(crate) use server::{Server, free_port};

use crate::place::Place;
use crate::proc::{self, Clock};
use crate::run::{Bench, record};
use serde_json::Value;
use std::path::Path;

/// Processes of one part of a store, by its name.
pub(crate) type Parts = Vec<(&'static str, Vec<u32>)>;

/// A store that runs.
pub(crate) trait Store {
    /// The bases of its data ports.
    fn urls(&self) -> Vec<&str>;

    /// All its processes.
    fn parts(&self) -> Parts;

    /// Ends it, and says whether it ended well.
    fn stop(self: Box<Self>) -> Result<(), String>;

    /// A run against all its data ports.
    fn bench<'a>(&self, place: &'a Place, folder: &Path) -> Bench<'a> {
        let urls = self.urls();
        let bench = Bench::new(place, urls[0], folder);
        urls[1..].iter().fold(bench, |bench, url| bench.word(url))
    }

    /// Writes the records of a workload once, as fast as it goes; `records` are flags of the bench.
    fn load(&self, place: &Place, records: &str) -> Result<Loaded, String> {
        let folder = place.folder.join("load");
        // The bench measures something behind a preload: two requests.
        self.bench(place, &folder)
            .with(records)
            .with("--preload --rate 10 --duration 0.2s --warmup 0s")
            .attempts(1)
            .run()?;
        Ok(Loaded::of(&record(&folder)?))
    }

    /// CPU of each of its processes so far.
    fn clocks(&self) -> Clocks {
        let clock = |pids: Vec<u32>| pids.into_iter().map(|id| (id, Clock::of(id))).collect();
        let parts = self.parts().into_iter();
        Clocks(parts.map(|(_, pids)| clock(pids)).collect())
    }

    /// Resident bytes of each part.
    fn resident(&self) -> Result<Vec<u64>, String> {
        let of = |pids: Vec<u32>| pids.into_iter().map(|id| Ok(proc::resident(id)?.now)).sum();
        self.parts().into_iter().map(|(_, pids)| of(pids)).collect()
    }
}

/// CPU of all processes of a store at some moment, by part.
pub(crate) struct Clocks(Vec<Vec<(u32, Clock)>>);

impl Clocks {
    /// CPU seconds of each part since then.
    pub(crate) fn spent(&self) -> Vec<f64> {
        let of =
            |(id, before): &(u32, Clock)| -> f64 { Clock::of(*id).since(before).values().sum() };
        self.0
            .iter()
            .map(|part| part.iter().map(of).sum())
            .collect()
    }
}

/// How a load went.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Loaded {
    pub(crate) length_s: f64,
    /// Writes that were refused, and made again.
    pub(crate) refused: u64,
}

impl Loaded {
    fn of(record: &Value) -> Loaded {
        let phases = record["phases"].as_array().map_or(&[][..], Vec::as_slice);
        let mut loaded = Loaded::default();
        for phase in phases.iter().filter(|phase| phase["kind"] == "preload") {
            loaded.length_s += phase["length_s"].as_f64().unwrap_or(0.0);
            loaded.refused += phase["counts"]["refused"].as_u64().unwrap_or(0);
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_the_sum_of_its_preloads() {
        let phase = |kind: &str, length_s: f64, refused: u64| {
            let counts = serde_json::json!({ "refused": refused });
            serde_json::json!({"kind": kind, "length_s": length_s, "counts": counts})
        };
        let phases = [
            phase("preload", 1.5, 2),
            phase("preload", 0.5, 1),
            phase("measure", 9.0, 9),
        ];
        let loaded = Loaded {
            length_s: 2.0,
            refused: 3,
        };
        assert_eq!(Loaded::of(&serde_json::json!({ "phases": phases })), loaded);
    }
}
