//! Where the last page of a range begins, for an engine that counts keys and walks forwards alone.
//!
//! ```text
//! start ............ low .... from ...... high ...... end
//!                     │ too many keys behind it  │ none behind it
//! count(from..end) ─► step ─► Read │ Nothing │ Again with another `from`
//! ```
//!
//! Invariants
//! 1. With `low`, more keys than a page stand in `low..end`; with `high`, none in `high..end`.
//! 2. Each step halves the distance between the two, or excludes one possible key: for keys that
//!    stay, the search ends. Its caller has a deadline for those that come and go.
//!
//! Not here: the questions (`mod.rs`).

use dendra_base::limits::KEY_BYTES_MAX;

/// The next step after a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailStep {
    /// The page begins at `from`.
    Read,
    /// There is no key in the range.
    Nothing,
    /// Count again.
    Again,
}

/// A search for the beginning of the last page of a range.
#[derive(Clone, Debug)]
pub(super) struct TailSearch {
    start: Vec<u8>,
    /// `None` = after all keys.
    end: Option<Vec<u8>>,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    from: Vec<u8>,
    /// How many bytes of `from` the next step takes off, while no key was found.
    shorten_by: usize,
}

impl TailSearch {
    /// Search in a range whose pages begin near the first `depth` bytes of its end.
    pub(super) fn new(start: &[u8], end: Option<&[u8]>, depth: usize) -> TailSearch {
        let mut from = start.to_vec();
        if let Some(end) = end {
            let guess = &end[..depth.min(end.len().saturating_sub(1))];
            if guess > start {
                from = guess.to_vec();
            }
        }
        TailSearch {
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            low: None,
            high: end.map(<[u8]>::to_vec),
            from,
            shorten_by: 1,
        }
    }

    /// Where the keys that are to be counted begin; they end with the range.
    pub(super) fn from(&self) -> &[u8] {
        &self.from
    }

    /// Does the page begin at the start of the range?
    pub(super) fn is_whole(&self) -> bool {
        self.from == self.start
    }

    /// There are `count` keys from `from` on, and a page holds `most`, at least one.
    pub(super) fn step(&mut self, count: u64, most: u64) -> TailStep {
        if count > most {
            let low = std::mem::take(&mut self.from);
            self.from = self.behind(&low);
            self.low = Some(low);
            return TailStep::Again;
        }
        if count > 0 {
            return TailStep::Read;
        }
        if self.is_whole() {
            return TailStep::Nothing;
        }
        self.high = Some(self.from.clone());
        match self.low.clone() {
            Some(low) => self.from = self.behind(&low),
            None => {
                let kept = self.from.len().saturating_sub(self.shorten_by);
                self.shorten_by *= 2;
                self.from.truncate(kept);
                if self.from < self.start {
                    self.from.clone_from(&self.start);
                }
            }
        }
        TailStep::Again
    }

    /// A place between `low` and `high`; the start, when keys have gone meanwhile.
    fn behind(&mut self, low: &[u8]) -> Vec<u8> {
        let high = self.high.as_deref();
        if let Some(middle) = between(low, high) {
            return middle;
        }
        let next = [low, &[0]].concat();
        if high.is_none_or(|high| &next[..] < high) {
            return next;
        }
        self.high.clone_from(&self.end);
        self.start.clone()
    }
}

/// Keys as fractions, with a byte for a digit: the shortest key above `low` that is at most the
/// middle. `None` when it would be longer than a key, or when only zeros part the two.
fn between(low: &[u8], high: Option<&[u8]>) -> Option<Vec<u8>> {
    let digits = low.len().max(high.map_or(0, <[u8]>::len)) + 1;
    let digit = |key: &[u8], at: usize| u16::from(key.get(at).copied().unwrap_or(0));
    let mut sum = vec![0; digits];
    let mut carry = 0;
    for at in (0..digits).rev() {
        let both = digit(low, at) + high.map_or(0, |high| digit(high, at)) + carry;
        (sum[at], carry) = (both % 256, both / 256);
    }
    // After all keys is one.
    let mut rest = carry + u16::from(high.is_none());
    let halves = sum.into_iter().map(|of_sum| {
        let both = rest * 256 + of_sum;
        rest = both % 2;
        (both / 2) as u8
    });
    let middle: Vec<u8> = halves.collect();
    let long_enough = |len: &usize| middle[..*len] > *low;
    let len = (1..=digits.min(KEY_BYTES_MAX)).find(long_enough)?;
    // Zeros alone make a longer key, and no larger fraction.
    let has_more = (0..len).any(|at| digit(&middle, at) != digit(low, at));
    has_more.then(|| middle[..len].to_vec())
}

/// How many bytes the keys of a page share, and one more: where the next page may begin.
pub(super) fn depth_of(smallest: &[u8], largest: &[u8]) -> usize {
    let pairs = smallest.iter().zip(largest);
    pairs.take_while(|(a, b)| a == b).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Prng;
    use std::collections::BTreeSet;

    fn key(prng: &mut Prng, shared: &[u8]) -> Vec<u8> {
        const BYTES: [u8; 5] = [0, 1, b'a', 0xfe, 0xff];
        let len = prng.below(5) as usize;
        let own = (0..len).map(|_| BYTES[prng.below(5) as usize]);
        shared.iter().copied().chain(own).collect()
    }

    #[test]
    fn a_middle_lies_between() {
        let prng = &mut Prng::new(1);
        for _ in 0..20_000 {
            let (low, high) = (key(prng, b""), key(prng, b""));
            let high = (prng.below(8) > 0).then_some(high);
            let is_pair = high.as_ref().is_none_or(|high| low < *high);
            let middle = between(&low, high.as_deref());
            if let Some(middle) = middle.filter(|_| is_pair) {
                assert!(middle > low, "{low:?} {high:?} {middle:?}");
                let is_below = high.as_ref().is_none_or(|high| middle < *high);
                assert!(is_below, "{low:?} {high:?} {middle:?}");
            }
        }
        assert_eq!(between(b"a", Some(b"a\0\0")), None);
        assert_eq!(between(b"a", Some(b"c")), Some(b"b".to_vec()));
        assert_eq!(between(b"", None), Some(vec![0x80]));
    }

    /// Walks a range backwards by pages, as the driver does; returns its keys and the counts.
    fn walk(
        keys: &BTreeSet<Vec<u8>>,
        start: &[u8],
        end: Option<&[u8]>,
        most: u64,
    ) -> (Vec<Vec<u8>>, usize) {
        let (mut shown, mut asked) = (Vec::new(), 0);
        let (mut end, mut depth) = (end.map(<[u8]>::to_vec), 0);
        loop {
            let mut search = TailSearch::new(start, end.as_deref(), depth);
            let page: Vec<_> = loop {
                let is_in = |key: &&Vec<u8>| {
                    &key[..] >= search.from() && end.as_ref().is_none_or(|end| *key < end)
                };
                let page: Vec<_> = keys.iter().filter(is_in).cloned().collect();
                asked += 1;
                match search.step(page.len() as u64, most) {
                    TailStep::Read => break page,
                    TailStep::Nothing => return (shown, asked),
                    TailStep::Again => {}
                }
            };
            assert!(page.len() as u64 <= most);
            depth = depth_of(&page[0], page.last().expect("it has one"));
            end = Some(page[0].clone());
            shown.extend(page.into_iter().rev());
            if search.is_whole() {
                return (shown, asked);
            }
        }
    }

    #[test]
    fn pages_from_the_end_show_every_key_once() {
        for seed in 0..300 {
            let prng = &mut Prng::new(seed);
            let shared = &b"user/profile"[..prng.below(12) as usize];
            let keys: BTreeSet<_> = (0..prng.below(200)).map(|_| key(prng, shared)).collect();
            let (start, end) = (key(prng, shared), key(prng, shared));
            let start = if prng.below(2) == 0 { vec![] } else { start };
            let end = (prng.below(2) == 0).then_some(end);
            if end.as_ref().is_some_and(|end| *end <= start) {
                continue;
            }
            let is_in =
                |key: &&Vec<u8>| **key >= start && end.as_ref().is_none_or(|end| *key < end);
            let expected: Vec<_> = keys.iter().rev().filter(is_in).cloned().collect();
            let most = 1 + prng.below(20);
            let (shown, _) = walk(&keys, &start, end.as_deref(), most);
            assert_eq!(shown, expected, "seed {seed}");
        }
    }

    #[test]
    fn a_page_of_usual_keys_takes_few_counts() {
        let keys = (0..20_000).map(|n| format!("user{n:08}").into_bytes());
        let keys: BTreeSet<_> = keys.collect();
        let (shown, asked) = walk(&keys, b"user", Some(b"uses"), 500);
        assert_eq!(shown.len(), keys.len());
        let pages = keys.len().div_ceil(500);
        // Digits use 10 of 256 values of a byte: halving takes 8 steps for each that is not shared.
        assert!(asked < 20 * pages, "{asked} counts for {pages} pages");
    }

    #[test]
    fn keys_that_vanish_do_not_stop_the_search() {
        let mut search = TailSearch::new(b"a", Some(b"b"), 0);
        assert_eq!(search.step(10, 1), TailStep::Again);
        let mut asked = 0;
        while search.step(0, 1) == TailStep::Again {
            asked += 1;
            assert!(asked < 20_000, "it goes on for ever");
        }
    }
}
