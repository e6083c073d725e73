//! Seeded randomness for tests, simulation and workloads: xoshiro256++ started by splitmix64.
//!
//! Invariants
//! 1. The same seed gives the same numbers on every machine, for ever: recorded seeds depend on it.
//! 2. `named` derives an independent stream, so that a new consumer does not shift the others.
//!
//! Not here: secrets. No number that must not be guessed comes from this file. See: Blackman and
//! Vigna, "Scrambled linear pseudorandom number generators", 2021.

/// A small, fast, seeded generator.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Prng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Prng {
        let mut s = seed;
        Prng {
            state: std::array::from_fn(|_| splitmix(&mut s)),
        }
    }

    /// A stream of its own for one consumer of the same seed.
    pub fn named(seed: u64, name: &str) -> Prng {
        Prng::new(seed ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `bound`. Requires: `bound > 0`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut prng = Prng::new(1);
        let first: Vec<u64> = (0..3).map(|_| prng.next_u64()).collect();
        assert_eq!(
            first,
            [
                14971601782005023387,
                13781649495232077965,
                1847458086238483744
            ]
        );
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut prng = Prng::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[usize::try_from(prng.below(5)).expect("below five")] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
