//! Which keys a workload asks for, and the bytes of each key and value.
//!
//! ```text
//! key    key-000000012346          16 bytes; even numbers are stored, odd ones never are
//! value  the key, then 84 letters   100 bytes that lz4 cannot shrink; a function of the key alone
//! ```
//!
//! Invariants
//! 1. A value can be recomputed from its key, so every answer of a store is checked byte by byte.
//! 2. An absent key lies between two stored ones: no table can exclude it by its first and last key.
//! 3. `EachOnce` names every key exactly once, in an order that is far from sorted.
//!
//! Not here: requests (`http.rs`, `resp.rs`), pacing (`load.rs`).
//! See: docs/lab/README.md.

use dendra_base::Prng;

/// Bytes of every key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of every value.
pub(crate) const VALUE_BYTES: usize = 100;

const FILLER_BYTES: usize = 1 << 16;
/// Prime, and larger than no key space it is used with shares as a factor (checked in `new`).
const STRIDE: u64 = 1_000_000_007;

/// Which keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Any of the first `count` stored keys, each as likely as the other.
    Uniform { count: u64 },
    /// As `Uniform`, of keys that look like stored ones and were never written.
    Absent { count: u64 },
    /// Every one of `count` keys once, then nothing more.
    EachOnce { count: u64 },
}

/// What is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Read.
    Get,
    /// Write the key's value.
    Put,
}

/// One request, before it is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Read or write.
    pub(crate) verb: Verb,
    /// Number in the key.
    pub(crate) id: u64,
}

/// A seeded stream of requests.
pub(crate) struct Asks {
    keys: Keys,
    put_percent: u64,
    prng: Prng,
    given: u64,
    again: Vec<Ask>,
}

impl Asks {
    /// The stream for `seed`: `put_percent` of the requests are writes.
    pub(crate) fn new(keys: Keys, put_percent: u64, seed: u64) -> Asks {
        assert!(put_percent <= 100, "a share is at most one hundred percent");
        if let Keys::EachOnce { count } = keys {
            assert!(count % STRIDE != 0, "the stride must not divide the count");
        }
        Asks {
            keys,
            put_percent,
            prng: Prng::new(seed),
            given: 0,
            again: Vec::new(),
        }
    }

    /// Hands out a refused request once more, later.
    pub(crate) fn retry(&mut self, ask: Ask) {
        self.again.push(ask);
    }

    fn verb(&mut self) -> Verb {
        match self.put_percent {
            0 => Verb::Get,
            100 => Verb::Put,
            share if self.prng.chance(share, 100) => Verb::Put,
            _ => Verb::Get,
        }
    }
}

impl Iterator for Asks {
    type Item = Ask;

    #[inline]
    fn next(&mut self) -> Option<Ask> {
        if let Some(ask) = self.again.pop() {
            return Some(ask);
        }
        let id = match self.keys {
            Keys::Uniform { count } => 2 * self.prng.below(count),
            Keys::Absent { count } => 2 * self.prng.below(count) + 1,
            Keys::EachOnce { count } => {
                if self.given == count {
                    return None;
                }
                let index = (u128::from(self.given) * u128::from(STRIDE)) % u128::from(count);
                self.given += 1;
                2 * index as u64
            }
        };
        let verb = self.verb();
        Some(Ask { verb, id })
    }
}

/// Writes the key of `id` over the first `KEY_BYTES` bytes of `out`.
#[inline]
pub(crate) fn write_key(id: u64, out: &mut [u8]) {
    out[..4].copy_from_slice(b"key-");
    let mut rest = id;
    for digit in out[4..KEY_BYTES].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Makes the values that belong to keys.
pub(crate) struct Values {
    filler: Vec<u8>,
}

impl Values {
    /// The same values in every run.
    pub(crate) fn new() -> Values {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut prng = Prng::named(1, "values");
        let filler = (0..FILLER_BYTES + VALUE_BYTES)
            .map(|_| letters[(prng.next_u64() >> 58) as usize])
            .collect();
        Values { filler }
    }

    /// Writes the value of `id` over the first `VALUE_BYTES` bytes of `out`.
    #[inline]
    pub(crate) fn write(&self, id: u64, out: &mut [u8]) {
        write_key(id, out);
        let at = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
        out[KEY_BYTES..VALUE_BYTES].copy_from_slice(&self.filler[at..at + VALUE_BYTES - KEY_BYTES]);
    }

    /// Is `body` the value of `id`?
    #[inline]
    pub(crate) fn is_of(&self, id: u64, body: &[u8]) -> bool {
        let mut expected = [0; VALUE_BYTES];
        self.write(id, &mut expected);
        body == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_key_is_its_number_behind_a_prefix() {
        let mut key = [0; KEY_BYTES];
        write_key(12_346, &mut key);
        assert_eq!(&key, b"key-000000012346");
    }

    #[test]
    fn each_once_names_every_stored_key_exactly_once() {
        let ids: Vec<u64> = Asks::new(Keys::EachOnce { count: 1000 }, 100, 1)
            .map(|ask| ask.id)
            .collect();
        let distinct: HashSet<u64> = ids.iter().copied().collect();
        assert_eq!((ids.len(), distinct.len()), (1000, 1000));
        assert!(distinct.iter().all(|id| id % 2 == 0 && *id < 2000));
        assert!(!ids.is_sorted());
    }

    #[test]
    fn a_refused_request_is_asked_again() {
        let mut asks = Asks::new(Keys::EachOnce { count: 2 }, 100, 1);
        let first = asks.next().expect("two keys");
        asks.retry(first);
        assert_eq!(asks.next(), Some(first));
        assert_eq!((asks.next().is_some(), asks.next()), (true, None));
    }

    #[test]
    fn absent_keys_are_never_stored_ones() {
        let mut asks = Asks::new(Keys::Absent { count: 50 }, 0, 1);
        assert!((0..500).all(|_| asks.next().is_some_and(|ask| ask.id % 2 == 1)));
    }

    #[test]
    fn a_mix_keeps_its_share_of_writes() {
        let asks = Asks::new(Keys::Uniform { count: 50 }, 20, 1);
        let puts = asks
            .take(10_000)
            .filter(|ask| ask.verb == Verb::Put)
            .count();
        assert!((1800..2200).contains(&puts), "{puts} of 10000 are writes");
    }

    #[test]
    fn a_value_belongs_to_one_key() {
        let values = Values::new();
        let mut value = [0; VALUE_BYTES];
        values.write(42, &mut value);
        assert!(values.is_of(42, &value));
        assert!(!values.is_of(44, &value));
        value[VALUE_BYTES - 1] ^= 1;
        assert!(!values.is_of(42, &value));
    }
}
