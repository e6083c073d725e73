//! The worlds of a seed: each is a list of draws, and one generator makes all of them.
//!
//! ```text
//! world ─► Knobs   a shape, and draws in their order: (name of a stream, draw)
//! seed  ─► each draw takes from the stream of its name, and adds its part to the plan
//! ```
//!
//! Invariants
//! 1. Streams are independent: a draw that is added, taken away or moved shifts no other one. Draws
//!    of one name take from one stream, one after the other.
//! 2. A world has streams of its own: its prefix begins their names.
//! 3. Faults and deeds are in the order of their times.
//!
//! Not here: the draws (`shapes.rs`, `wishes.rs`, `faults.rs`, `deeds.rs`, `crowd.rs`).
//! See: docs/verification.md.

use crate::plan::{RunPlan, RunShape};
use dendra_base::Prng;
use std::collections::BTreeMap;

mod crowd;
mod deeds;
mod faults;
mod shapes;
mod wishes;

pub(crate) use crowd::next_wish;

/// The worlds of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedWorld {
    /// Members are the same from the beginning to the end.
    Fixed,
    /// Members come and go; one of `CHANGING_SEEDS` seeds has this one, too.
    Changing,
    /// Horizons rise.
    Forgetting,
    /// Horizons rise, and blocks rot at several members.
    Rotten,
    /// Horizons rise, and records have more copies than the replication factor.
    MoreCopies,
    /// Horizons rise, and the factor falls.
    Lowered,
    /// Horizons rise, the factor falls, and a disk is lost behind it.
    LoweredLost,
    /// A member is lost beside damage of another one, and an operator accepts that.
    Losses,
    /// Members come and go, and the least successor number rises.
    Restored,
    /// Members come and go, and an operator looks for copies that differ.
    Looking,
    /// Values end, and one member's clock is wrong, over its starts too.
    Expiring,
    /// One of them is away while others change, and comes back with an old epoch.
    Lagging,
    /// Members come and go, and clients watch keys.
    Watched,
    /// Crowds stand in front of members.
    Overloaded,
    /// Simulated years of deletes. `world/seasons/` draws the operations, season by season.
    Deletes,
}

/// Adds its part to a plan.
type Draw = fn(&mut RunPlan, &mut Prng);
/// The name of a stream, and a draw from it.
type Draws = &'static [(&'static str, Draw)];

struct Knobs {
    /// Begins the names of the streams.
    prefix: &'static str,
    /// From the stream `shape`.
    shape: fn(&mut Prng) -> RunShape,
    /// All that comes behind it.
    draws: &'static [Draws],
}

const USUAL: Draws = &[
    ("clients", wishes::usual),
    ("comparisons", shapes::compares),
    ("scans", wishes::scans),
    ("faults", faults::usual),
    ("failing reads", faults::failing_reads),
    ("wrong clocks", faults::wrong_clocks),
    ("overloads", wishes::overloads),
    ("images", faults::image),
];
const CHANGING: Draws = &[
    ("clients", wishes::usual),
    ("comparisons", shapes::compares_of_many),
    ("scans", wishes::scans),
    ("faults", faults::of_whole_disks),
    ("failing reads", faults::failing_reads),
    ("overloads", wishes::overloads),
    ("changes", deeds::usual),
];
const HORIZONS: Draws = &[
    ("changes", deeds::among_horizons),
    ("clients", wishes::bursts),
    ("scans", wishes::scans),
];
const ROT: Draws = &[
    ("faults", faults::usual),
    ("failing reads", faults::failing_reads),
    ("rot under horizons", faults::rot_under_horizons),
];
const WHOLE_DISKS: Draws = &[
    ("faults", faults::of_whole_disks),
    ("failing reads", faults::failing_reads),
];
const LOSSES: Draws = &[
    ("comparisons", shapes::compares),
    ("compares", shapes::seldom_compares),
    ("changes", deeds::beside_a_loss),
    ("loss", deeds::loss),
    ("clients", wishes::until_a_loss),
    ("faults", faults::of_whole_disks),
];
const EXPIRING: Draws = &[
    ("clients", wishes::locks),
    ("faults", faults::of_whole_disks),
    ("wrong clock", faults::wrong_clock_of_one),
    ("faded", faults::faded),
    ("scans", wishes::scans),
];
const OVERLOADED: Draws = &[
    ("overload", crowd::usual),
    ("faults", crowd::faults),
    ("flood", crowd::flood),
];

impl SeedWorld {
    /// Each with its name on the command line. Deletes are no run of this kind.
    pub const NAMED: [(&'static str, SeedWorld); 13] = [
        ("changing", SeedWorld::Changing),
        ("forgetting", SeedWorld::Forgetting),
        ("rotten", SeedWorld::Rotten),
        ("more-copies", SeedWorld::MoreCopies),
        ("lowered", SeedWorld::Lowered),
        ("lowered-lost", SeedWorld::LoweredLost),
        ("losses", SeedWorld::Losses),
        ("restored", SeedWorld::Restored),
        ("looking", SeedWorld::Looking),
        ("expiring", SeedWorld::Expiring),
        ("lagging", SeedWorld::Lagging),
        ("watched", SeedWorld::Watched),
        ("overloaded", SeedWorld::Overloaded),
    ];

    fn knobs(self) -> Knobs {
        let of = |prefix, shape, draws| Knobs {
            prefix,
            shape,
            draws,
        };
        let changing = |draws| of("changing", shapes::changing, draws);
        let horizons = |prefix, draws| of(prefix, shapes::horizons, draws);
        match self {
            SeedWorld::Fixed => of("", RunShape::draw, &[USUAL]),
            SeedWorld::Changing => changing(&[CHANGING]),
            SeedWorld::Restored => changing(&[CHANGING, &[("restored", deeds::restored)]]),
            SeedWorld::Looking => changing(&[CHANGING, &[("looks", faults::looks)]]),
            SeedWorld::Lagging => changing(&[CHANGING, &[("lagging", deeds::lagging)]]),
            SeedWorld::Watched => changing(&[CHANGING, &[("watches", wishes::watches)]]),
            SeedWorld::Forgetting => horizons(
                "forgetting",
                &[HORIZONS, ROT, &[("fewer copies", wishes::fewer_copies)]],
            ),
            SeedWorld::Rotten => horizons(
                "rotten",
                &[
                    &[("", shapes::rotten)],
                    HORIZONS,
                    ROT,
                    &[("", faults::rotten)],
                ],
            ),
            SeedWorld::MoreCopies => horizons(
                "more copies",
                &[
                    &[("more copies", shapes::more_copies)],
                    HORIZONS,
                    &[("more copies", deeds::more_copies)],
                    WHOLE_DISKS,
                ],
            ),
            SeedWorld::Lowered => horizons(
                "lowered",
                &[
                    &[("lowered", shapes::lowered)],
                    HORIZONS,
                    &[("lowered", deeds::lowered)],
                    WHOLE_DISKS,
                ],
            ),
            SeedWorld::LoweredLost => horizons(
                "lowered and lost",
                &[
                    &[("lowered", shapes::lowered_lost)],
                    HORIZONS,
                    &[("lowered", deeds::lowered_lost)],
                    WHOLE_DISKS,
                ],
            ),
            SeedWorld::Losses => of("losses", shapes::losses, &[LOSSES]),
            SeedWorld::Expiring => of("expiring", shapes::expiring, &[EXPIRING]),
            SeedWorld::Overloaded => of("overloaded", shapes::overloaded, &[OVERLOADED]),
            SeedWorld::Deletes => of("deletes", shapes::deletes, &[&[("shape", deeds::of_years)]]),
        }
    }

    /// The plan of `seed` in this world.
    pub fn plan(self, seed: u64) -> RunPlan {
        let knobs = self.knobs();
        let stream = |name: &str| match (knobs.prefix, name) {
            ("", one) | (one, "") => Prng::named(seed, one),
            (prefix, name) => Prng::named(seed, &format!("{prefix}: {name}")),
        };
        let mut first = stream("shape");
        let mut plan = RunPlan {
            seed,
            shape: (knobs.shape)(&mut first),
            clients: Vec::new(),
            scans: Vec::new(),
            faults: Vec::new(),
            wrong_clocks: None,
            image: None,
            changes: None,
            watches: None,
            overload: None,
        };
        let mut streams = BTreeMap::from([("shape", first)]);
        for (name, draw) in knobs.draws.iter().copied().flatten() {
            let prng = streams.entry(name).or_insert_with(|| stream(name));
            draw(&mut plan, prng);
        }
        in_order(plan)
    }
}

fn in_order(mut plan: RunPlan) -> RunPlan {
    plan.faults.sort_by_key(|fault| fault.at_us);
    let changes = plan.changes.iter_mut();
    changes.for_each(|changes| changes.deeds.sort_by_key(|deed| deed.at_us));
    plan
}

impl RunPlan {
    /// The plan of `seed` for a cluster of fixed members.
    pub fn draw(seed: u64) -> RunPlan {
        SeedWorld::Fixed.plan(seed)
    }

    /// A long run of `founders` members with so many deeds: for soaks.
    pub fn draw_soak(seed: u64, founders: usize, deeds: usize) -> RunPlan {
        let mut plan = SeedWorld::Changing.plan(seed);
        let prng = &mut Prng::named(seed, "changing: soak");
        deeds::soak(&mut plan, founders, deeds, prng);
        in_order(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::OperatorDeed;
    use crate::overload::Crowd;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_means_the_same_for_ever_and_no_other_seed_does() {
        let all = SeedWorld::NAMED.map(|(_, world)| world);
        for world in all
            .into_iter()
            .chain([SeedWorld::Fixed, SeedWorld::Deletes])
        {
            let drawn = |seed| format!("{:?}", world.plan(seed));
            for seed in 0..20 {
                assert_eq!(drawn(seed), drawn(seed));
            }
            assert_ne!(drawn(1), drawn(2));
        }
    }

    #[test]
    fn seeds_reach_every_deed_and_every_size() {
        let plans: Vec<RunPlan> = (0..400)
            .map(|seed| SeedWorld::Changing.plan(seed))
            .collect();
        let deeds = plans.iter().flat_map(|plan| &plan.changes);
        let deeds = deeds.flat_map(|changes| &changes.deeds);
        let deeds: BTreeSet<OperatorDeed> = deeds.map(|planned| planned.deed).collect();
        assert_eq!(deeds.len(), OperatorDeed::ALL.len());
        let members: BTreeSet<usize> = plans.iter().map(|plan| plan.shape.members).collect();
        assert_eq!(members, [3, 4, 5, 6, 7, 9].into());
        let copies: BTreeSet<usize> = plans.iter().map(|plan| plan.shape.copies).collect();
        assert_eq!(copies, [1, 2, 3, 4, 5].into());
    }

    #[test]
    fn three_founders_have_parts_of_their_own() {
        for seed in 0..200 {
            let changes = SeedWorld::Losses.plan(seed).changes;
            let loss = changes.and_then(|changes| changes.loss).expect("a loss");
            assert_ne!(loss.lost, loss.damaged);
            assert_ne!(loss.lost, loss.kept);
            assert_ne!(loss.damaged, loss.kept);
        }
    }

    #[test]
    fn a_burst_touches_the_keys_of_its_time() {
        let plan = SeedWorld::Forgetting.plan(3);
        for todo in &plan.clients {
            let keys: Vec<usize> = todo.iter().map(|planned| planned.key).collect();
            assert!(keys.windows(2).all(|two| two[0] <= two[1] + 1), "{keys:?}");
        }
    }

    #[test]
    fn seeds_draw_crowds_of_one_source_and_of_many_with_small_values_and_large() {
        let plans: Vec<RunPlan> = (0..300)
            .map(|seed| SeedWorld::Overloaded.plan(seed))
            .collect();
        let crowds: Vec<&Crowd> = plans
            .iter()
            .filter_map(|plan| plan.overload.as_ref())
            .collect();
        assert!(crowds.iter().any(|crowd| crowd.sources() < 4));
        assert!(crowds.iter().any(|crowd| crowd.sources() > 30));
        let has_large = |crowd: &&&Crowd| crowd.habits.iter().any(|it| it.value_bytes > 10_000);
        assert!(crowds.iter().filter(has_large).count() > 20);
        assert!(plans.iter().any(|plan| plan.shape.members == 1));
        assert!(plans.iter().any(|plan| plan.shape.members == 4));
    }
}
