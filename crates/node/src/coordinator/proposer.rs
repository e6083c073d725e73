//! The memory of a conditional write: its ballot, its own proposal, and the fate of that proposal.
//!
//! ```text
//! ballot ── a majority promised ─► own proposal (author = that ballot, successor of the base)
//!        ── outbid ──────────────► another ballot, the same own proposal
//! fate   Won      the version that is stored names the own ballot as author or ancestor
//!        Lost     it names another author for that version
//!        Unknown  the proposals that were accepted do not tell
//! ```
//!
//! Invariants
//! 1. A ballot is drawn once per attempt, from the clock, and never used by another operation.
//! 2. From the first question that carries it, `own` stays the same until it has won, or has lost
//!    for certain.
//! 3. No clock shows a value between a version and its successor, nor one below a first version.
//! 4. Rivals on one base propose one version in one epoch. Between two epochs the least successor
//!    number may rise, and then they propose two. One of them is chosen all the same. A proposer
//!    finishes the accepted proposal of the highest ballot first, also if another has a higher
//!    version.
//!
//! Not here: questions and answers (`paxos.rs`), the records of acceptors (`replica/record.rs`).
//! See: docs/protocol.md; Burke, Cheng, Lloyd, "Gryff", 2020.

use crate::limits::ANCESTOR_AGE_MS;
use crate::write_queues::QueueStanding;
use dendra_base::clock::{CLOCK_MIN, COUNTER_BITS};
use dendra_base::peer::{ANCESTORS_MAX, Ballot, Condition, Lineage, Proposal};
use dendra_base::{Cell, LeastSuccessor, Version};

/// The memory of a conditional write: valid in all of its stages.
#[derive(Debug)]
pub(crate) struct Proposer {
    pub(crate) condition: Condition,
    /// The client's value. Its version is zero: each proposal has one of its own.
    pub(crate) value: Cell,
    /// Is `value` that of the base, with another end? Then it has no bytes until a base is chosen.
    pub(crate) is_touch: bool,
    /// Standing among the conditional writes of the same key and loop.
    pub(crate) standing: QueueStanding,
    /// Ballot of the attempt under way; zero before the first one.
    pub(crate) ballot: Ballot,
    /// How many writes had come to this loop when `ballot` was drawn: those that wait share the
    /// verdict of its promises.
    pub(crate) before: u64,
    /// Did an owner say that it promised a higher ballot than this one?
    pub(crate) is_outbid: bool,
    /// How many pauses (`BackOff`) it made.
    pub(crate) attempt: u32,
    /// The newest version of which this write knows that it is stored, or accepted by a majority.
    /// In stage `Prepare`: when `ballot` was drawn.
    pub(crate) seen: Version,
    /// The own proposal, from the moment when the first question with it leaves.
    pub(crate) own: Option<OwnProposal>,
}

/// A proposal of this operation.
#[derive(Clone, Debug)]
pub(crate) struct OwnProposal {
    /// The ballot under which it was proposed first: it names the proposal for ever.
    pub(crate) author: Ballot,
    /// The authors of the proposals that it builds on, the nearest first.
    pub(crate) ancestors: Vec<Ballot>,
    pub(crate) version: Version,
    /// The version that it builds on; zero = no record.
    pub(crate) base: Version,
    /// `Proposer::before` of the attempt that made it.
    pub(crate) before: u64,
}

impl OwnProposal {
    /// Is it a first version that no rival can propose? Behind a horizon rivals without a base
    /// propose the same version, as they do on a base.
    fn is_named_by_ballot(&self) -> bool {
        self.base == Version::ZERO && self.version.hlc < CLOCK_MIN
    }
}

/// The end of the own proposal, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProposalFate {
    Won,
    Lost,
    Unknown,
}

impl Proposer {
    pub(crate) fn new(condition: Condition, value: Cell) -> Proposer {
        Proposer {
            condition,
            value,
            is_touch: false,
            standing: QueueStanding::New,
            ballot: Ballot::ZERO,
            before: 0,
            is_outbid: false,
            attempt: 0,
            seen: Version::ZERO,
            own: None,
        }
    }

    /// A proposer that gives the value which is there another end: that of `empty`.
    pub(crate) fn of_touch(condition: Condition, empty: Cell) -> Proposer {
        Proposer {
            is_touch: true,
            ..Proposer::new(condition, empty)
        }
    }

    /// A touch takes the value of its base, before it becomes a proposal.
    pub(crate) fn take_value(&mut self, base: &Cell) {
        self.value.checksum = base.checksum;
        self.value.value = base.value.clone();
    }

    /// May the own proposal be the one that is chosen?
    pub(crate) fn may_be_chosen(&self) -> bool {
        self.own.is_some()
    }

    /// Takes note of a version that is stored, or accepted by a majority.
    pub(crate) fn saw(&mut self, version: Version) {
        self.seen = self.seen.max(version);
    }

    /// The own proposal under the ballot of this attempt.
    pub(crate) fn proposal(&self, own: &OwnProposal) -> Proposal {
        Proposal {
            ballot: self.ballot,
            author: own.author,
            ancestors: own.ancestors.clone(),
            cell: Cell {
                version: own.version,
                ..self.value.clone()
            },
        }
    }

    /// The fate of the own proposal, as an owner tells it that refused a promise or an acceptance.
    /// `line` is the proposal that the owner accepted last. Only the proposals on which `line`
    /// builds are certain.
    pub(crate) fn fate_by_outbid(&self, line: Option<&Lineage>) -> ProposalFate {
        match (&self.own, line) {
            (Some(own), Some(line)) => fate_in_line(own, line.version, &line.ancestors),
            (None, _) | (_, None) => ProposalFate::Unknown,
        }
    }
}

/// The proposals that owners accepted earlier, as they told with their promises.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    accepted: Vec<Proposal>,
    /// Proposals up to this clock value are spent: see `ownership/src/epoch/record/horizons.rs`.
    spent: u64,
}

impl Promises {
    /// Promises of a round in an epoch in which proposals up to `spent` are.
    pub(crate) fn above(spent: u64) -> Promises {
        Promises {
            accepted: Vec::new(),
            spent,
        }
    }

    /// An owner promised, and told the proposal that it had accepted last.
    pub(crate) fn add(&mut self, accepted: Option<Proposal>) {
        let accepted = accepted.filter(|accepted| accepted.ballot.hlc > self.spent);
        self.accepted.extend(accepted);
    }

    /// The proposal of the highest ballot among those that `wanted` lets pass.
    pub(crate) fn highest(&self, wanted: impl Fn(Version) -> bool) -> Option<&Proposal> {
        let passing = self.accepted.iter().filter(|p| wanted(p.cell.version));
        passing.max_by_key(|p| p.ballot)
    }

    /// The fate of `own`, now that a majority knows `base`: its version or a newer one.
    ///
    /// The majority that accepted the base has one among the owners that promised. Of the proposals
    /// with its version the highest is the one that won, and names the authors before it.
    ///
    /// Requires: they promised when the base had been accepted (`Op::proof_of`).
    pub(crate) fn fate(&self, own: &OwnProposal, base: Version) -> ProposalFate {
        if own.is_named_by_ballot() {
            return fate_of_first(own.version, base);
        }
        let Some(winner) = self.highest(|version| version == base) else {
            return ProposalFate::Unknown;
        };
        fate_behind(own, winner)
    }

    /// Is `own` the proposal that was accepted last?
    pub(crate) fn is_last(&self, own: &OwnProposal) -> bool {
        let last = self.highest(|_| true);
        last.is_some_and(|last| last.author == own.author)
    }

    /// The fate of `own`, when all owners that promised hold a plain write above it. No proposal
    /// below that write is finished any more. The accepted proposal of the highest ballot tells:
    /// had `own` been chosen, that proposal would be `own` itself or a later one built on it.
    pub(crate) fn fate_below(&self, own: &OwnProposal) -> ProposalFate {
        match self.highest(|_| true) {
            None => ProposalFate::Lost,
            Some(last) if last.cell.version < own.version => ProposalFate::Lost,
            Some(last) if own.is_named_by_ballot() => fate_of_first(own.version, last.cell.version),
            Some(last) => fate_behind(own, last),
        }
    }

    /// The authors that a proposal of `author` on `base` remembers.
    pub(crate) fn line_of(&self, base: Version, author: Ballot) -> Vec<Ballot> {
        let Some(winner) = self.highest(|version| version == base) else {
            return Vec::new();
        };
        let line = std::iter::once(winner.author).chain(winner.ancestors.iter().copied());
        let age = ANCESTOR_AGE_MS << COUNTER_BITS;
        let is_young = |of: &Ballot| of.hlc.saturating_add(age) > author.hlc;
        line.take(ANCESTORS_MAX).take_while(is_young).collect()
    }
}

/// The version of the own proposal on `base`.
///
/// `void` is the version of "no record" where deletes may have been purged. An owner that still has
/// such a delete must take a version that is built on "no record" for newer.
pub(crate) fn version_behind(
    base: Version,
    author: Ballot,
    void: Option<Version>,
    least: LeastSuccessor,
) -> Version {
    match (base, void) {
        (Version::ZERO, None) => first_version(author),
        (Version::ZERO, Some(void)) => void.successor_from(least),
        (base, _) => base.successor_from(least),
    }
}

/// Is the stored version `base` that of a plain write? Then no proposal made it.
pub(crate) fn is_plain(base: Version) -> bool {
    base == Version::ZERO || base.rmw == 0 && base.hlc >= CLOCK_MIN
}

/// Bits of a first version that are its successors' numbers.
const FIRST_BITS: u32 = 24;

/// The first version of a record: its author's clock value, moved down by a byte within the 96 bits
/// of clock and successor. So it is below all values that clocks show, even later ones. It belongs
/// to this author alone: a ballot is used once. Its successors cannot reach the next first version:
/// 2^24 conditional writes of one key need as many ballots. With at most a few thousand origins,
/// that takes so many clock values that the author's clock has moved past the next versions.
fn first_version(author: Ballot) -> Version {
    let line = u128::from(author.hlc) << FIRST_BITS;
    Version {
        hlc: (line >> u32::BITS) as u64,
        origin: author.origin,
        rmw: line as u32,
    }
}

/// The fate of a proposal without a base, now that a majority knows `base`. There is one first
/// version of a key: its own line is the proof that it won, and another one that it did not.
fn fate_of_first(own: Version, base: Version) -> ProposalFate {
    if base.hlc >= CLOCK_MIN {
        // A plain write came after it, or in its place.
        return ProposalFate::Unknown;
    }
    let place = |version: Version| u128::from(version.hlc) << u32::BITS | u128::from(version.rmw);
    let behind = place(base).checked_sub(place(own));
    match behind {
        Some(behind) if base.origin == own.origin && behind < 1 << FIRST_BITS => ProposalFate::Won,
        _ => ProposalFate::Lost,
    }
}

/// The fate of the own proposal, when `winner` is its rival, or was built on it or on its rival.
fn fate_behind(own: &OwnProposal, winner: &Proposal) -> ProposalFate {
    let version = winner.cell.version;
    if version != own.version {
        return fate_in_line(own, version, &winner.ancestors);
    }
    if winner.author == own.author {
        ProposalFate::Won
    } else {
        ProposalFate::Lost
    }
}

/// The fate of the own proposal, when `version` was proposed, chosen or not. All that a proposal
/// builds on was chosen, and its ancestors name the authors. There are at most as many proposals
/// between the two as numbers: a least successor number leaves some out.
fn fate_in_line(own: &OwnProposal, version: Version, ancestors: &[Ballot]) -> ProposalFate {
    let is_of_one_line = (own.version.hlc, own.version.origin) == (version.hlc, version.origin);
    if !is_of_one_line || version.rmw <= own.version.rmw {
        return ProposalFate::Unknown;
    }
    let later = (version.rmw - own.version.rmw) as usize;
    let known = ancestors.len().min(later);
    match ancestors[..known].contains(&own.author) {
        true => ProposalFate::Won,
        false if known == later => ProposalFate::Lost,
        false => ProposalFate::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ballot() -> impl Strategy<Value = Ballot> {
        // Near each other as well as far apart.
        let hlc = prop_oneof![any::<u64>(), CLOCK_MIN..CLOCK_MIN + 600];
        (hlc, prop_oneof![any::<u32>(), 1u32..4]).prop_map(|(hlc, origin)| Ballot { hlc, origin })
    }

    fn of(hlc: u64) -> Ballot {
        Ballot { hlc, origin: 1 }
    }

    /// A version with this successor number.
    fn version(rmw: u32) -> Version {
        Version {
            hlc: CLOCK_MIN + 5,
            origin: 1,
            rmw,
        }
    }

    /// The second proposal on one plain write.
    fn second_of(author: Ballot) -> OwnProposal {
        OwnProposal {
            author,
            ancestors: Vec::new(),
            version: version(2),
            base: version(1),
            before: 0,
        }
    }

    #[test]
    fn the_last_proposal_below_a_plain_write_tells_what_became_of_the_own_one() {
        let (mine, other) = (of(70), of(80));
        let own = second_of(mine);
        let key = dendra_base::Key::user(b"k");
        let last = |version, author, ancestors: &[Ballot]| Proposal {
            ballot: of(90),
            author,
            ancestors: ancestors.to_vec(),
            cell: dendra_base::CellRef::value(key.as_stored(), version, b"v").to_owned(),
        };
        let another_line = Version {
            hlc: CLOCK_MIN + 6,
            ..version(0)
        };
        let rows = [
            (None, ProposalFate::Lost),
            (Some(last(version(1), other, &[])), ProposalFate::Lost),
            (Some(last(version(2), mine, &[])), ProposalFate::Won),
            (Some(last(version(2), other, &[])), ProposalFate::Lost),
            (Some(last(version(3), other, &[mine])), ProposalFate::Won),
            (Some(last(version(3), other, &[other])), ProposalFate::Lost),
            (Some(last(version(3), other, &[])), ProposalFate::Unknown),
            (
                Some(last(another_line, other, &[mine])),
                ProposalFate::Unknown,
            ),
        ];
        for (accepted, expected) in rows {
            let mut promises = Promises::above(0);
            promises.add(accepted.clone());
            assert_eq!(promises.fate_below(&own), expected, "{accepted:?}");
        }
    }

    #[test]
    fn numbers_that_a_restore_left_out_are_no_proposals() {
        let (mine, other, third) = (of(70), of(80), of(85));
        let own = second_of(mine);
        // The number rose from 3 to 5, after the own proposal or beside it.
        for (later, ancestors, expected) in [
            (version(5), &[mine][..], ProposalFate::Won),
            (version(6), &[other, mine], ProposalFate::Won),
            (version(5), &[other], ProposalFate::Unknown),
            (version(5), &[other, third], ProposalFate::Unknown),
            (version(5), &[other, third, of(1)], ProposalFate::Lost),
            // Only the first ancestor is between the two.
            (version(3), &[other, mine], ProposalFate::Lost),
        ] {
            let fate = fate_in_line(&own, later, ancestors);
            assert_eq!(fate, expected, "{later} {ancestors:?}");
        }
        let least = LeastSuccessor::new(5).expect("a small one");
        let void = Version {
            hlc: CLOCK_MIN + 9,
            origin: u32::MAX,
            rmw: 0,
        };
        let behind = |base, void| version_behind(base, mine, void, least);
        assert_eq!(behind(version(1), None), version(5));
        assert_eq!(behind(version(5), Some(void)), version(6));
        assert_eq!(behind(Version::ZERO, Some(void)).rmw, 5);
        assert_eq!(behind(Version::ZERO, None), first_version(mine));
    }

    proptest! {
        #[test]
        fn first_versions_are_unique_with_all_that_follows_them(
            a in ballot(), b in ballot(), steps in 0u32..1 << FIRST_BITS,
        ) {
            let follows = |first: Version| Version { rmw: first.rmw.wrapping_add(steps), ..first };
            let (first, other) = (first_version(a), first_version(b));
            prop_assert!(first > Version::ZERO || a == Ballot::ZERO);
            prop_assert_eq!(first == other, a == b);
            prop_assert_eq!(follows(first) == other, a == b && steps == 0);
            prop_assert!(follows(first) >= first, "the low bits have room for the steps");
        }

        #[test]
        fn first_versions_are_below_all_that_clocks_show(a in ballot(), origin: u32) {
            let plain = Version { hlc: CLOCK_MIN, origin, rmw: 0 };
            prop_assert!(first_version(a) < plain);
        }

        #[test]
        fn who_built_on_nothing_knows_who_won(
            a in ballot(), b in ballot(), steps in 0u32..1000,
            least in 0..=LeastSuccessor::MAX.number(),
        ) {
            let (own, other) = (first_version(a), first_version(b));
            let least = LeastSuccessor::new(least).expect("at most the largest");
            let later = (0..steps).fold(own, |version, _| version.successor_from(least));
            prop_assert!(matches!(fate_of_first(own, later), ProposalFate::Won));
            let is_lost = matches!(fate_of_first(own, other), ProposalFate::Lost);
            prop_assert_eq!(is_lost, a != b);
            let plain = Version { hlc: CLOCK_MIN, ..own };
            prop_assert!(matches!(fate_of_first(own, plain), ProposalFate::Unknown));
        }
    }
}
