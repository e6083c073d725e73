//! Conditional writes: consensus among the owners of one key about what follows one version.
//!
//! ```text
//! (Queue) ─ nobody of this loop is ahead ─► Prepare      queue.rs
//! Prepare ─ a majority promised ─► base = newest stored
//!   │          a proposal above the base was accepted ─► ACCEPT it under the own ballot ─► Finish ─► Prepare
//!   │          the own one is known to have won         ─► Write
//!   │          the condition fails                      ─► base held by a majority ─► ConditionFailed
//!   │          the condition holds                      ─► Accept(base's successor, or a first version)
//! Accept ─ a majority accepted ─► Write ─ `ack` ─► Stored, Deleted
//! outbid ─► BackOff, with jitter ─► Prepare under a higher ballot
//! ```
//!
//! Invariants
//! 1. Nothing fits between a version and its successor: a plain write is before the base or after the
//!    proposal, never between. Nor between nothing and a first version: no clock shows a value so small.
//! 2. Rivals on one base propose the same version, and rivals on nothing each their own; the majority that
//!    accepted one of them makes every later proposer propose that one, because only what was accepted under the
//!    highest ballot is finished. Its author's ballot tells who won.
//! 3. Once an acceptance left, this operation proposes nothing else, unless its version was given to
//!    a rival for certain. When neither is certain, the outcome is "unknown".
//! 4. A ballot is used once, and leaves only once its ceiling is durable.
//!
//! Not here: promises (`replica/protocol.rs`), the last round (`write.rs`).
//! See: docs/protocol.md; Lamport, "The Part-Time Parliament"; Burke, Cheng, Lloyd, "Gryff", 2020.

use super::queue::Standing;
use super::{Fate, Op, Stage};
use crate::desk::{Desk, Turn};
use crate::hlc::{CLOCK_MIN, COUNTER_BITS};
use crate::limits::{ANCESTOR_AGE_MS, BACK_OFF_OWN_US_MAX, BACK_OFF_US_MAX, BACK_OFF_US_MIN};
use crate::outcome::Outcome;
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use dendra_base::peer::{ANCESTORS_MAX, Answer, Ask, Ballot, Condition, Line, Proposal};
use dendra_base::{Cell, Version};

/// What a conditional write knows beside its operation.
#[derive(Debug)]
pub(crate) struct Paxos {
    condition: Condition,
    /// The client's value, without a version.
    value: Cell,
    ballot: Ballot,
    pub(super) standing: Standing,
    /// Who came before this waited when the promises under way were asked for.
    before: u64,
    attempt: u32,
    is_outbid: bool,
    /// What was accepted earlier, as those who promised say.
    accepted: Vec<Proposal>,
    /// The newest version that was known to be stored when the promises under way were asked for.
    seen: Version,
    /// What this round of acceptances is about.
    proposal: Option<Proposal>,
    /// The own proposal, from the moment when the first acceptance of it left.
    own: Option<Own>,
}

/// A proposal of this operation.
#[derive(Clone, Debug)]
struct Own {
    author: Ballot,
    ancestors: Vec<Ballot>,
    version: Version,
    /// What it builds on; zero = nothing.
    base: Version,
    /// Who came before this waited when the base was asked for.
    before: u64,
}

/// What became of the own proposal.
enum Fortune {
    Won,
    Lost,
    Unknown,
}

impl Paxos {
    pub(crate) fn new(condition: Condition, value: Cell) -> Paxos {
        Paxos {
            condition,
            value,
            ballot: Ballot::ZERO,
            standing: Standing::New,
            before: 0,
            attempt: 0,
            is_outbid: false,
            accepted: Vec::new(),
            seen: Version::ZERO,
            proposal: None,
            own: None,
        }
    }

    pub(crate) fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// What the round of acceptances under way is about.
    pub(crate) fn proposal(&self) -> Option<Proposal> {
        self.proposal.clone()
    }

    /// May the own proposal be the one that is chosen?
    pub(crate) fn may_be_chosen(&self) -> bool {
        self.own.is_some()
    }

    /// What became of the own proposal, now that a majority knows `base`, its version or a newer one?
    ///
    /// The majority that accepted the base has one among those who promised: of the proposals with
    /// its version the highest is the one that won, and names the authors before it. Requires: they promised when the
    /// base had been accepted (`Op::is_told`).
    fn fortune(&self, own: &Own, base: Version) -> Fortune {
        if own.base == Version::ZERO {
            return fortune_of_first(own.version, base);
        }
        let Some(winner) = self.highest(|version| version == base) else {
            return Fortune::Unknown;
        };
        fortune_behind(own, winner)
    }

    /// The same, as an owner tells that accepted `line` last. It is only certain of what `line` builds on.
    fn fortune_of_outbid(&self, line: Option<&Line>) -> Fortune {
        match (&self.own, line) {
            (Some(own), Some(line))
                if is_planted(Bug::LoseToOpenRival) && line.version == own.version =>
            {
                Fortune::Lost
            }
            (Some(own), Some(line)) => fortune_in_line(own, line.version, &line.ancestors),
            _ => Fortune::Unknown,
        }
    }

    /// Is the own proposal what was accepted last?
    fn is_last(&self, own: &Own) -> bool {
        let last = self.highest(|_| true);
        last.is_some_and(|last| last.author == own.author)
    }

    /// The same below a plain write that all who promised hold: nothing below it is finished any more, and what was
    /// accepted under the highest ballot tells. Had the own proposal been chosen, that would be itself or
    /// what was built later.
    fn fortune_below(&self, own: &Own) -> Fortune {
        match self.highest(|_| true) {
            None => Fortune::Lost,
            Some(last) if last.cell.version < own.version => Fortune::Lost,
            Some(last) if own.base == Version::ZERO => {
                fortune_of_first(own.version, last.cell.version)
            }
            Some(last) => fortune_behind(own, last),
        }
    }

    /// The authors that a proposal of `author` on `base` remembers.
    fn line_of(&self, base: Version, author: Ballot) -> Vec<Ballot> {
        let Some(winner) = self.highest(|version| version == base) else {
            return Vec::new();
        };
        if is_planted(Bug::ForgetAncestors) {
            return Vec::new();
        }
        let line = std::iter::once(winner.author).chain(winner.ancestors.iter().copied());
        let age = ANCESTOR_AGE_MS << COUNTER_BITS;
        let is_young = |of: &Ballot| of.hlc.saturating_add(age) > author.hlc;
        line.take(ANCESTORS_MAX).take_while(is_young).collect()
    }

    /// The proposal of the highest ballot among those that `wanted` lets pass.
    fn highest(&self, wanted: impl Fn(Version) -> bool) -> Option<&Proposal> {
        let passing = self.accepted.iter().filter(|p| wanted(p.cell.version));
        passing.max_by_key(|p| p.ballot)
    }
}

/// Bits of a first version that are its successors' numbers.
const FIRST_BITS: u32 = 24;

/// The version of what is built on nothing: its author's clock value, moved down by a byte within the 96 bits of
/// clock and successor. So it is below all that clocks show, whatever is written meanwhile, and nobody
/// else's: a ballot is used once. What follows it cannot reach the next one: 2^24 conditional writes of one
/// key need as many ballots, and so many clock values of at most a few thousand origins that the author's
/// clock has left the next ones behind.
fn first_version(author: Ballot) -> Version {
    let line = u128::from(author.hlc) << FIRST_BITS;
    Version {
        hlc: (line >> u32::BITS) as u64,
        origin: author.origin,
        rmw: line as u32,
    }
}

/// What became of a proposal on nothing, now that a majority knows `base`? There is one first version of a
/// key: its own line is the proof that it won, and another one that it did not.
fn fortune_of_first(own: Version, base: Version) -> Fortune {
    if base.hlc >= CLOCK_MIN {
        // A plain write came behind it, or in its place.
        return Fortune::Unknown;
    }
    let place = |version: Version| u128::from(version.hlc) << u32::BITS | u128::from(version.rmw);
    let behind = place(base).checked_sub(place(own));
    match behind {
        Some(behind) if base.origin == own.origin && behind < 1 << FIRST_BITS => Fortune::Won,
        _ => Fortune::Lost,
    }
}

/// What became of the own proposal, when `winner` is its rival, or was built behind it or its rival?
fn fortune_behind(own: &Own, winner: &Proposal) -> Fortune {
    let version = winner.cell.version;
    if version != own.version {
        return fortune_in_line(own, version, &winner.ancestors);
    }
    match winner.author == own.author {
        true => Fortune::Won,
        false => Fortune::Lost,
    }
}

/// What became of it, when `version` was proposed, chosen or not? All that a proposal builds on was chosen, and
/// its ancestors name the authors.
fn fortune_in_line(own: &Own, version: Version, ancestors: &[Ballot]) -> Fortune {
    let is_of_one_line = (own.version.hlc, own.version.origin) == (version.hlc, version.origin);
    if !is_of_one_line || version.rmw <= own.version.rmw {
        return Fortune::Unknown;
    }
    let later = version.rmw - own.version.rmw;
    match ancestors.get(later as usize - 1) {
        None => Fortune::Unknown,
        Some(author) if *author == own.author => Fortune::Won,
        Some(_) => Fortune::Lost,
    }
}

impl Op {
    fn paxos_mut(&mut self) -> &mut Paxos {
        self.paxos
            .as_mut()
            .expect("only conditional writes come here")
    }

    /// A new ballot, and promises for it.
    pub(crate) fn prepare(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let ballot = Ballot {
            hlc: desk.tick(turn),
            origin: desk.origin,
        };
        let stored = self.cell.as_ref().map(|cell| cell.version);
        let came = desk.turns.came();
        let paxos = self.paxos_mut();
        paxos.before = came;
        paxos.seen = paxos.seen.max(stored.unwrap_or_default());
        paxos.ballot = ballot;
        paxos.is_outbid = false;
        paxos.accepted.clear();
        self.cell = None;
        self.questions = 0;
        self.holders = Places::NONE;
        self.older = Places::NONE;
        self.send_when_covered(desk, turn)
    }

    pub(crate) fn send_prepare(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::Prepare);
        let ballot = self.paxos_mut().ballot;
        for place in self.everybody().iter() {
            let key = self.key.clone();
            self.ask(desk, turn, place, Ask::Prepare { key, ballot });
        }
        Fate::Goes
    }

    /// An owner promised, or did not.
    pub(crate) fn prepare_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: Answer,
    ) -> Fate {
        if let Answer::Promised { stored, accepted } = answer {
            self.good.insert(place);
            if !is_planted(Bug::ConditionOnStaleBase) || self.good.len() == 1 {
                self.take_copy(place, stored);
            }
            if let (Some(base), false) = (&self.cell, self.rivals.is_empty()) {
                desk.disputes
                    .noticed(turn.now.mono_us, &self.key, base.version);
            }
            self.paxos_mut().accepted.extend(accepted);
            if self.good.len() >= self.majority() {
                return self.decide(desk, turn);
            }
            return Fate::Goes;
        }
        self.not_served(desk, turn, &answer)
    }

    /// An owner neither promised nor accepted.
    fn not_served(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, answer: &Answer) -> Fate {
        if let Answer::Outbid { promised, line } = answer {
            self.paxos_mut().is_outbid = true;
            desk.follow(promised.hlc);
            match self.paxos_mut().fortune_of_outbid(line.as_ref()) {
                Fortune::Won => return self.write_own(desk, turn),
                Fortune::Lost => {
                    self.paxos_mut().own = None;
                    return self.back_off(desk, turn);
                }
                Fortune::Unknown => {}
            }
            // The others may do; but nobody waits long for those who may never answer.
            self.alarm_us = self.alarm_us.min(turn.now.mono_us + BACK_OFF_US_MIN);
        }
        if self.can_reach(self.majority()) {
            return Fate::Goes;
        }
        if self.paxos_mut().is_outbid {
            return self.back_off(desk, turn);
        }
        self.fail_or_wait(desk, turn)
    }

    /// Rests, so that a rival can finish.
    pub(crate) fn back_off(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        self.begin_round(Stage::BackOff);
        let paxos = self.paxos_mut();
        let pause_us = BACK_OFF_US_MIN << paxos.attempt.min(16);
        paxos.attempt += 1;
        let longest_us = match paxos.own {
            Some(_) => BACK_OFF_OWN_US_MAX,
            None => BACK_OFF_US_MAX,
        };
        let pause_us = desk.prng.below(pause_us.min(longest_us));
        self.alarm_us = turn.now.mono_us + 1 + pause_us;
        Fate::Goes
    }

    /// Do those who promised tell under which ballot the stored version `base` was accepted, and so by whom it is? Not for
    /// certain when one of them promised before it was: the ballot may be a higher one than was promised, and another
    /// owner, who took no part in it, may have shown the stored version later.
    fn is_told(&mut self, base: Version) -> bool {
        let is_held = self.holders.len() >= self.majority();
        is_held || base <= self.paxos_mut().seen
    }

    /// Is the stored version `base` what a plain write left? Then no proposal is behind it.
    fn is_plain(base: Version) -> bool {
        base == Version::ZERO || base.rmw == 0 && base.hlc >= CLOCK_MIN
    }

    /// A majority promised: what is the base, and what follows it?
    fn decide(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let base = self
            .cell
            .as_ref()
            .map_or(Version::ZERO, |cell| cell.version);
        let live = self
            .cell
            .as_ref()
            .filter(|cell| cell.as_ref().is_live(turn.now.wall_ms))
            .map(|cell| cell.version);
        let is_told = self.is_told(base);
        let is_everywhere = self.holders.len() >= self.majority();
        let paxos = self.paxos_mut();
        // What a majority accepted is under the highest ballot of any majority, or was built on since.
        let open = paxos
            .highest(|version| version > base || !is_planted(Bug::FinishLowerBallot))
            .filter(|last| last.cell.version > base)
            .cloned();
        if let Some(mut open) = open.filter(|_| !is_planted(Bug::ForgetForeignProposal)) {
            if is_planted(Bug::FinishUnderNewVersion) {
                open.cell.version = open.cell.version.successor();
            }
            return self.propose(desk, turn, open);
        }
        if let Some(own) = paxos.own.clone() {
            let is_first_now = own.base != Version::ZERO || base == Version::ZERO;
            if own.version > base && is_first_now {
                // Nobody of a majority accepted it, and nothing newer came: it is proposed again.
                let proposal = paxos.own_proposal(&own);
                return self.propose(desk, turn, proposal);
            }
            if !is_told {
                // The next promises are given behind its acceptance.
                return self.prepare(desk, turn);
            }
            let is_covered = base != Version::ZERO && Op::is_plain(base);
            let fortune = match paxos.fortune(&own, base) {
                _ if is_planted(Bug::WinnerByVersionAlone) && own.version == base => Fortune::Won,
                Fortune::Unknown if is_covered && !is_everywhere => {
                    // What lies above it has to be held before the promises tell what became of it.
                    return self.write_back(desk, turn, Stage::Finish);
                }
                Fortune::Unknown if is_covered && paxos.is_last(&own) => {
                    // Nothing was accepted instead: a majority decides, below what lies above it.
                    let proposal = paxos.own_proposal(&own);
                    return self.propose(desk, turn, proposal);
                }
                Fortune::Unknown if is_covered => paxos.fortune_below(&own),
                fortune => fortune,
            };
            match fortune {
                Fortune::Won => return self.write_own(desk, turn),
                // Its version is a rival's, for ever: the own proposal never happened.
                Fortune::Lost => paxos.own = None,
                Fortune::Unknown => {
                    let outcome = Outcome::Overtaken {
                        got: self.good.len(),
                        from: self.quorum.from(),
                    };
                    self.tell(turn, outcome, None);
                    return Fate::Over;
                }
            }
        }
        if !paxos.condition.holds(live) {
            let is_settled =
                self.cell.is_none() || self.is_held(desk) || is_planted(Bug::SkipBaseSettlement);
            if is_settled {
                return self.tell_condition_failed(turn);
            }
            return self.write_back(desk, turn, Stage::WriteBack);
        }
        if !is_told && !Op::is_plain(base) {
            // Whoever is built on has to be named: the next promises tell.
            return self.prepare(desk, turn);
        }
        let own = Own {
            author: paxos.ballot,
            ancestors: paxos.line_of(base, paxos.ballot),
            before: paxos.before,
            version: match base {
                Version::ZERO => first_version(paxos.ballot),
                base => base.successor(),
            },
            base,
        };
        let proposal = paxos.own_proposal(&own);
        paxos.own = Some(own);
        self.propose(desk, turn, proposal)
    }

    /// The own proposal was chosen: it is written, below what was built on it since.
    fn write_own(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Fate {
        let paxos = self.paxos_mut();
        let own = paxos.own.clone().expect("it won");
        self.cell = Some(paxos.own_proposal(&own).cell);
        self.send_write(desk, turn)
    }

    /// Asks all owners to accept a proposal under the own ballot.
    fn propose(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, mut proposal: Proposal) -> Fate {
        self.begin_round(Stage::Accept);
        let paxos = self.paxos_mut();
        proposal.ballot = paxos.ballot;
        paxos.proposal = Some(proposal.clone());
        for place in self.everybody().iter() {
            let (key, proposal) = (self.key.clone(), proposal.clone());
            self.ask(desk, turn, place, Ask::Accept { key, proposal });
        }
        Fate::Goes
    }

    /// An owner accepted, or did not.
    pub(crate) fn accept_answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        place: u8,
        answer: &Answer,
    ) -> Fate {
        if *answer != Answer::Accepted {
            return self.not_served(desk, turn, answer);
        }
        self.good.insert(place);
        if self.good.len() < self.majority() {
            return Fate::Goes;
        }
        let paxos = self.paxos_mut();
        let chosen = paxos.proposal.take().expect("a proposal is under way");
        let is_own = paxos
            .own
            .as_ref()
            .is_some_and(|own| own.author == chosen.author);
        self.cell = Some(chosen.cell);
        if is_own {
            return self.send_write(desk, turn);
        }
        self.holders = Places::NONE;
        self.older = Places::NONE;
        self.write_back(desk, turn, Stage::Finish)
    }

    /// Tells the client that the condition does not hold of a base that a majority holds.
    pub(crate) fn tell_condition_failed(&mut self, turn: &mut Turn<'_>) -> Fate {
        let live = self
            .cell
            .as_ref()
            .filter(|cell| cell.as_ref().is_live(turn.now.wall_ms));
        let current = live.map(|cell| cell.version);
        let live = live.cloned();
        self.good = self.good.or(self.holders);
        // A value may have expired since it was judged: then it is gone, and the condition that
        // wanted it gone failed a moment too early. Both are true at some point of the operation.
        self.tell(turn, Outcome::ConditionFailed { current }, live);
        Fate::Over
    }
}

impl Paxos {
    /// What those who waited are judged by once this is told: who came before which operation.
    pub(super) fn before(&self, is_stored: bool) -> Option<u64> {
        match (is_stored, &self.own) {
            (true, Some(own)) => Some(own.before),
            (true, None) => None,
            (false, _) => Some(self.before),
        }
    }

    pub(super) fn condition(&self) -> Condition {
        self.condition
    }

    fn own_proposal(&self, own: &Own) -> Proposal {
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
        fn who_built_on_nothing_knows_who_won(a in ballot(), b in ballot(), steps in 0u32..1000) {
            let (own, other) = (first_version(a), first_version(b));
            let later = (0..steps).fold(own, |version, _| version.successor());
            prop_assert!(matches!(fortune_of_first(own, later), Fortune::Won));
            let is_lost = matches!(fortune_of_first(own, other), Fortune::Lost);
            prop_assert_eq!(is_lost, a != b);
            let plain = Version { hlc: CLOCK_MIN, ..own };
            prop_assert!(matches!(fortune_of_first(own, plain), Fortune::Unknown));
        }
    }
}
