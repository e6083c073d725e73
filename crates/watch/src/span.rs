//! A span of raw keys.
//!
//! Invariants
//! 1. A prefix of bytes 255 alone has no end.
//!
//! Not here: ranges of stored keys (crate `base`).

use bytes::Bytes;

/// From `start` on, and below `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first raw key, inclusive; empty = the first one of all.
    pub start: Bytes,
    /// Exclusive; `None` = no end.
    pub end: Option<Bytes>,
}

impl Span {
    /// The keys that begin with `prefix`.
    pub fn of_prefix(prefix: &[u8]) -> Span {
        let kept = prefix.iter().rposition(|byte| *byte < u8::MAX);
        let end = kept.map(|at| {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            Bytes::from(end)
        });
        Span {
            start: Bytes::copy_from_slice(prefix),
            end,
        }
    }

    /// One key alone.
    pub fn of_key(key: &[u8]) -> Span {
        let mut end = key.to_vec();
        end.push(0);
        Span {
            start: Bytes::copy_from_slice(key),
            end: Some(Bytes::from(end)),
        }
    }

    /// The key, if it is one alone.
    pub(crate) fn only_key(&self) -> Option<&Bytes> {
        let end = self.end.as_ref()?;
        let is_one = end.len() == self.start.len() + 1 && end.starts_with(&self.start);
        (is_one && end.last() == Some(&0)).then_some(&self.start)
    }

    /// Is the key in it?
    pub fn has(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Is all of `other` in it?
    pub fn covers(&self, other: &Span) -> bool {
        self.start <= other.start
            && match (&self.end, &other.end) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(own), Some(end)) => own >= end,
            }
    }

    /// The least span with both of them in it.
    pub fn hull(&self, other: &Span) -> Span {
        Span {
            start: self.start.clone().min(other.start.clone()),
            end: match (&self.end, &other.end) {
                (Some(own), Some(end)) => Some(own.clone().max(end.clone())),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..4)
    }

    proptest! {
        #[test]
        fn a_prefix_spans_the_keys_that_begin_with_it(prefix in bytes(), key in bytes()) {
            prop_assert_eq!(Span::of_prefix(&prefix).has(&key), key.starts_with(&prefix));
            prop_assert_eq!(Span::of_key(&prefix).has(&key), key == prefix);
        }

        #[test]
        fn a_hull_covers_both(a in bytes(), b in bytes(), key in bytes()) {
            let (of_a, of_b) = (Span::of_prefix(&a), Span::of_prefix(&b));
            let hull = of_a.hull(&of_b);
            prop_assert!(hull.covers(&of_a) && hull.covers(&of_b));
            prop_assert!(hull.has(&key) || !(of_a.has(&key) || of_b.has(&key)));
            if of_a.covers(&of_b) && of_b.has(&key) {
                prop_assert!(of_a.has(&key));
            }
        }
    }
}
