//! The plan of one seed: members, delays, and deeds that put membership to the test.
//!
//! ```text
//! Rolling    members are restarted one after the other, each when the one before is ready
//! Honest     restarts, also in a row; blackouts, cuts, lies and forged refusals
//! Impostors  the same, and processes on images, on copies and on wiped folders
//! ```
//!
//! Invariants
//! 1. The same seed gives the same plan for ever.
//!
//! Not here: how deeds are done (`mod.rs`).
//! See: docs/verification.md.

use crate::plan::pick;
use dendra_base::Prng;

/// Chaos is over at this time.
pub(super) const CHAOS_US: u64 = 40_000_000;

/// Which deeds a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// A rolling restart only.
    Rolling,
    /// One process for each member at a time, each on its own folder.
    Honest,
    /// Several processes say to be one member.
    Impostors,
}

/// Something that is done to the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The process of a member ends, and starts again.
    Restart {
        /// The member.
        member: usize,
        /// How long it is away.
        down_us: u64,
    },
    /// All processes end, and start again.
    Blackout {
        /// How long they are away.
        down_us: u64,
    },
    /// Two hosts do not reach each other.
    Cut {
        /// One.
        a: usize,
        /// The other one.
        b: usize,
        /// How long.
        length_us: u64,
    },
    /// An image is taken of the folder of a member.
    Snapshot {
        /// The member.
        member: usize,
    },
    /// A process starts on the image: on another host, beside the member.
    CopyBeside {
        /// The member.
        member: usize,
    },
    /// The member ends, and a process starts on its image in its place.
    CopyInPlace {
        /// The member.
        member: usize,
    },
    /// The member ends, and a process starts on an empty folder in its place.
    Wipe {
        /// The member.
        member: usize,
    },
    /// A stranger says to be a member that has started a trillion times.
    Lie {
        /// Which member.
        member: usize,
        /// The member that it says so to.
        to: usize,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct MemberPlan {
    /// For the rest of the randomness.
    pub seed: u64,
    /// Members of the cluster.
    pub members: usize,
    /// Event loops of each.
    pub loops: u16,
    /// Which deeds there are.
    pub weather: Weather,
    /// Deeds, and when they are done.
    pub deeds: Vec<(u64, Deed)>,
    /// One way of a message takes up to this.
    pub delay_us: u64,
    /// A commit takes up to this.
    pub commit_us: u64,
    /// So many of a thousand hellos are answered by a program that forges refusals.
    pub forged_permille: u64,
}

impl MemberPlan {
    /// Plan of a seed.
    pub fn draw(seed: u64) -> MemberPlan {
        let mut prng = Prng::named(seed, "members");
        let members = pick(&mut prng, &[2, 3, 3, 3, 3, 4, 5]);
        let (honest, impostors) = (Weather::Honest, Weather::Impostors);
        let weathers = [
            Weather::Rolling,
            honest,
            honest,
            impostors,
            impostors,
            impostors,
        ];
        let weather = pick(&mut prng, &weathers);
        let is_rolling = weather == Weather::Rolling;
        let mut plan = MemberPlan {
            seed,
            members,
            loops: pick(&mut prng, &[1, 2]),
            weather,
            deeds: Vec::new(),
            delay_us: pick(&mut prng, &[200, 2_000, 10_000]),
            commit_us: pick(&mut prng, &[500, 5_000, 40_000]),
            forged_permille: 0,
        };
        if !is_rolling {
            plan.forged_permille = pick(&mut prng, &[0, 20]);
            for _ in 0..3 + prng.below(12) {
                plan.draw_deed(&mut prng);
            }
            plan.deeds.sort_by_key(|(at_us, _)| *at_us);
        }
        plan
    }

    fn draw_deed(&mut self, prng: &mut Prng) {
        let at_us = 2_000_000 + prng.below(CHAOS_US - 12_000_000);
        let member = prng.below(self.members as u64) as usize;
        let other = (member + 1 + prng.below(self.members as u64 - 1) as usize) % self.members;
        let down_us = pick(prng, &[1_000, 50_000, 400_000, 3_000_000]);
        let is_honest = self.weather == Weather::Honest;
        let deed = match prng.below(if is_honest { 6 } else { 12 }) {
            0 => Deed::Restart { member, down_us },
            1 => {
                // In a row, each as soon as the one before is about to be admitted.
                for round in 0..2 + prng.below(4) {
                    let at_us = at_us + round * (down_us.min(50_000) + prng.below(60_000));
                    let down_us = down_us.min(50_000);
                    self.deeds.push((at_us, Deed::Restart { member, down_us }));
                }
                return;
            }
            2 => Deed::Blackout { down_us },
            3 | 4 => Deed::Cut {
                a: member,
                b: other,
                length_us: 100_000 + prng.below(6_000_000),
            },
            5 => Deed::Lie { member, to: other },
            6 | 7 => Deed::Wipe { member },
            kind => {
                let before_us = pick(prng, &[0, 100_000, 2_500_000, 8_000_000]);
                let taken_us = at_us.saturating_sub(before_us);
                self.deeds.push((taken_us, Deed::Snapshot { member }));
                if kind < 10 {
                    Deed::CopyBeside { member }
                } else {
                    Deed::CopyInPlace { member }
                }
            }
        };
        self.deeds.push((at_us, deed));
    }
}
