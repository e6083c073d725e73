//! A fast search for histories that one register could not have shown: thousands of seeds a second,
//! on one key, with real nodes in a small made-up world.
//!
//! ```text
//! DENDRA_TWIN_SEEDS=1000000 cargo test -p dendra-node --test twin no_seed     a long search
//! DENDRA_TWIN_FIRST=17      …                                                 from this seed on
//! ```
//!
//! Invariants
//! 1. A seed gives the same run for ever.
//! 2. The search itself is searched: planted bugs must be found.
//!
//! Not here: the large simulator, with real frames and a real engine.
//! See: docs/consistency.md.

mod history;
mod world;

use dendra_node::planted::{Bug, plant};
use history::is_linearizable;
use world::{Ground, World};

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// The first seed from `first` on that shows a fault, and which.
fn first_fault(ground: &Ground, first: u64, seeds: u64) -> Option<(u64, String)> {
    (first..first + seeds).find_map(|seed| {
        let run = World::run(ground, seed);
        if let Some(broken) = run.broken {
            return Some((seed, broken));
        }
        let is_fine = is_linearizable(&run.entries, &run.states);
        let lines = run.entries.iter().map(|entry| format!("{entry:?}\n"));
        (!is_fine).then(|| (seed, lines.collect()))
    })
}

#[test]
fn no_seed_shows_what_one_register_could_not() {
    let ground = Ground::new();
    let (first, seeds) = (
        number("DENDRA_TWIN_FIRST", 0),
        number("DENDRA_TWIN_SEEDS", 6_000),
    );
    if let Some((seed, fault)) = first_fault(&ground, first, seeds) {
        panic!("seed {seed}:\n{fault}");
    }
}

/// Bugs that this world cannot show, and who does.
const ELSEWHERE: [Bug; 2] = [
    Bug::NoFence,          // one epoch only: scripts/stale-epoch.txt
    Bug::HintDroppedEarly, // hints hurry, and never count: scripts/hints.txt
];

#[test]
fn planted_bugs_are_found_by_few_seeds() {
    let ground = Ground::new();
    let seeds = number("DENDRA_TWIN_SEEDS", 20_000);
    let mut missed = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| !ELSEWHERE.contains(bug)) {
        plant(Some(bug));
        let found = first_fault(&ground, 0, seeds);
        plant(None);
        match found {
            Some((seed, _)) => println!("{bug:?}: seed {seed}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "{seeds} seeds do not show {missed:?}");
}
