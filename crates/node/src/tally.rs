//! The count of one round: owners that were asked, owners that answered, and whether it is decided.
//!
//! ```text
//! unasked ── ask ──► pending ── answer ─┬─ count ──► good      it counts towards the needed number
//!    ▲                  ▲               ├─ refuse ─► refused   full, if it was the only question
//!    └───── unask ──────┴── ask_again ──┴─ neither             ── an answer that does not count
//!
//! verdict(needed)   Met      as many are good
//!                   Lost     not so many, even if all that are pending or unasked became good
//!                   Pending  anything else
//! ```
//!
//! Invariants
//! 1. A place that is pending was asked. A place counts once, however often it was asked.
//! 2. `Met` stays `Met`. `Lost` becomes `Pending` again only when a place is asked again or
//!    unasked.
//! 3. A place is full only when each of its questions was refused for want of room.
//!
//! Not here: how many are needed, which answers count (`coordinator/`), the member at a place
//! (`ring/`).
//! See: docs/protocol.md.

use crate::places::Places;
use dendra_base::peer::Refused;

/// Is a round decided?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answers that may still come decide.
    Pending,
    /// Enough answers count.
    Met,
    /// There cannot be enough any more.
    Lost,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// The places that may be asked. Never changes.
    all: Places,
    asked: Places,
    /// Asked, and the answer to the last question has not come.
    pending: Places,
    /// Answered so that it counts.
    good: Places,
    /// Refused its only question with `DiskFull`.
    full: Places,
    /// Asked more than once. An earlier question may have been done although its answer never came,
    /// so `DiskFull` is no proof.
    again: Places,
    /// The refusal to name if the round fails: the last one, unless the caller kept an earlier one.
    refused: Option<(u8, Refused)>,
}

impl Tally {
    /// A round that may ask the first `count` places, and has asked none.
    pub(crate) fn new(count: u8) -> Tally {
        Tally {
            all: Places::first(count),
            asked: Places::NONE,
            pending: Places::NONE,
            good: Places::NONE,
            full: Places::NONE,
            again: Places::NONE,
            refused: None,
        }
    }

    /// The places that may be asked.
    pub(crate) fn all(&self) -> Places {
        self.all
    }

    /// The places that were asked.
    pub(crate) fn asked(&self) -> Places {
        self.asked
    }

    /// The places that were not asked.
    pub(crate) fn unasked(&self) -> Places {
        self.all.without(self.asked)
    }

    /// The places that were asked and have not answered.
    pub(crate) fn pending(&self) -> Places {
        self.pending
    }

    /// The places that answered so that it counts.
    pub(crate) fn good(&self) -> Places {
        self.good
    }

    /// The places that answered so that it counts, or may still do so.
    pub(crate) fn hoped_for(&self) -> Places {
        self.good.or(self.pending)
    }

    /// The place is asked.
    pub(crate) fn ask(&mut self, place: u8) {
        self.asked.insert(place);
        self.pending.insert(place);
    }

    /// The place is asked once more to do something that it may have done the first time.
    pub(crate) fn ask_again(&mut self, place: u8) {
        self.ask(place);
        self.again.insert(place);
        self.full.remove(place);
    }

    /// The place is to be asked anew, as if it had not been asked.
    pub(crate) fn unask(&mut self, place: u8) {
        self.asked.remove(place);
    }

    /// An answer of the place came; `false` when none is open, and then it is not to be counted.
    pub(crate) fn answer(&mut self, place: u8) -> bool {
        let is_open = self.pending.has(place);
        self.pending.remove(place);
        is_open
    }

    /// The answer of the place counts.
    pub(crate) fn count(&mut self, place: u8) {
        self.good.insert(place);
    }

    /// The answer of the place is a refusal: the one to name if the round fails.
    pub(crate) fn refuse(&mut self, place: u8, why: Refused) {
        self.refused = Some((place, why));
        if why == Refused::DiskFull && !self.again.has(place) {
            self.full.insert(place);
        }
    }

    /// Will there be enough answers that count?
    pub(crate) fn verdict(&self, needed: u8) -> Verdict {
        if self.good.len() >= needed {
            return Verdict::Met;
        }
        if self.hoped_for().or(self.unasked()).len() >= needed {
            return Verdict::Pending;
        }
        Verdict::Lost
    }

    /// Was the place asked in vain: its answer came and does not count, or none will come?
    pub(crate) fn is_counted_out(&self, place: u8) -> bool {
        self.asked.has(place) && !self.hoped_for().has(place)
    }

    /// The refusal that was named last.
    pub(crate) fn refused(&self) -> Option<(u8, Refused)> {
        self.refused
    }

    /// Why the round fails: a refusal, or else a place that did not answer in time.
    pub(crate) fn reason(&self) -> Option<(u8, Refused)> {
        let silent = self.pending.iter().next();
        self.refused.or(silent.map(|place| (place, Refused::Late)))
    }

    /// Has every place said that it has no room?
    pub(crate) fn is_full(&self) -> bool {
        self.full == self.all
    }

    /// Has every place that answered said so, and is an answer open?
    pub(crate) fn is_full_so_far(&self) -> bool {
        !self.pending.is_empty() && self.full == self.asked.without(self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The dumb twin: a list of events at each place, read from the beginning every time.
    #[derive(Clone, Copy, Debug)]
    enum Happened {
        Asked,
        AskedAgain,
        Unasked,
        Counted,
        Refused(Refused),
        Other,
    }

    struct Twin {
        places: Vec<Vec<Happened>>,
        refusals: Vec<(u8, Refused)>,
    }

    impl Twin {
        fn at(&self, place: u8) -> &[Happened] {
            &self.places[usize::from(place)]
        }

        fn is_asked(&self, place: u8) -> bool {
            self.at(place)
                .iter()
                .fold(false, |is_asked, happened| match happened {
                    Happened::Asked | Happened::AskedAgain => true,
                    Happened::Unasked => false,
                    Happened::Counted | Happened::Refused(_) | Happened::Other => is_asked,
                })
        }

        fn is_open(&self, place: u8) -> bool {
            self.at(place)
                .iter()
                .fold(false, |is_open, happened| match happened {
                    Happened::Asked | Happened::AskedAgain => true,
                    Happened::Counted | Happened::Refused(_) | Happened::Other => false,
                    Happened::Unasked => is_open,
                })
        }

        fn is_good(&self, place: u8) -> bool {
            let happened = self.at(place).iter();
            happened.into_iter().any(|h| matches!(h, Happened::Counted))
        }

        fn is_full(&self, place: u8) -> bool {
            let is_repeated = self
                .at(place)
                .iter()
                .any(|h| matches!(h, Happened::AskedAgain));
            let mut happened = self.at(place).iter();
            !is_repeated && happened.any(|h| matches!(h, Happened::Refused(Refused::DiskFull)))
        }

        /// Tries every way in which the open and the unasked places may answer.
        fn verdict(&self, needed: u8) -> Verdict {
            let all = 0..self.places.len() as u8;
            let good = all.clone().filter(|at| self.is_good(*at)).count();
            if good >= usize::from(needed) {
                return Verdict::Met;
            }
            let undecided: Vec<u8> = all
                .filter(|at| !self.is_good(*at) && (self.is_open(*at) || !self.is_asked(*at)))
                .collect();
            let ways = 0u32..1 << undecided.len();
            let is_enough = |way: u32| good + way.count_ones() as usize >= usize::from(needed);
            if ways.into_iter().any(is_enough) {
                Verdict::Pending
            } else {
                Verdict::Lost
            }
        }
    }

    fn step() -> impl Strategy<Value = (u8, u8)> {
        (0u8..7, 0u8..9)
    }

    proptest! {
        #[test]
        fn a_tally_says_what_the_list_of_all_that_happened_says(
            count in 0u8..7, steps in prop::collection::vec(step(), 0..40),
        ) {
            let mut tally = Tally::new(count);
            let places = vec![Vec::new(); usize::from(count)];
            let mut twin = Twin { places, refusals: Vec::new() };
            for (place, what) in steps {
                if place >= count {
                    continue;
                }
                let was_met: Vec<u8> =
                    (0..=count).filter(|needed| tally.verdict(*needed) == Verdict::Met).collect();
                let mut note = |happened| twin.places[usize::from(place)].push(happened);
                match what {
                    0..3 => {
                        tally.ask(place);
                        note(Happened::Asked);
                    }
                    3 => {
                        tally.ask_again(place);
                        note(Happened::AskedAgain);
                    }
                    4 => {
                        tally.unask(place);
                        note(Happened::Unasked);
                    }
                    // An answer at a place that is not pending has no effect.
                    _ if !tally.answer(place) => {}
                    5 | 6 => {
                        tally.count(place);
                        note(Happened::Counted);
                    }
                    7 => {
                        let why = [Refused::DiskFull, Refused::Busy][usize::from(place % 2)];
                        tally.refuse(place, why);
                        note(Happened::Refused(why));
                        twin.refusals.push((place, why));
                    }
                    _ => note(Happened::Other),
                }
                for at in 0..count {
                    prop_assert_eq!(tally.asked().has(at), twin.is_asked(at));
                    prop_assert_eq!(tally.unasked().has(at), !twin.is_asked(at));
                    prop_assert_eq!(tally.pending().has(at), twin.is_open(at));
                    prop_assert_eq!(tally.good().has(at), twin.is_good(at));
                    let in_vain = twin.is_asked(at) && !twin.is_open(at) && !twin.is_good(at);
                    prop_assert_eq!(tally.is_counted_out(at), in_vain);
                }
                for needed in 0..=count + 1 {
                    prop_assert_eq!(tally.verdict(needed), twin.verdict(needed), "of {}", needed);
                }
                let is_met = |needed| tally.verdict(needed) == Verdict::Met;
                prop_assert!(was_met.into_iter().all(is_met));
                prop_assert_eq!(tally.refused(), twin.refusals.last().copied());
                let silent = (0..count).find(|at| twin.is_open(*at)).map(|at| (at, Refused::Late));
                prop_assert_eq!(tally.reason(), twin.refusals.last().copied().or(silent));
                prop_assert_eq!(tally.is_full(), (0..count).all(|at| twin.is_full(at)));
                let mut answered = (0..count).filter(|at| twin.is_asked(*at) && !twin.is_open(*at));
                let open = (0..count).filter(|at| twin.is_open(*at)).count();
                let is_so_far = open > 0
                    && answered.all(|at| twin.is_full(at))
                    && (0..count)
                        .all(|at| !twin.is_full(at) || twin.is_asked(at) && !twin.is_open(at));
                prop_assert_eq!(tally.is_full_so_far(), is_so_far);
            }
        }
    }
}
