//! The requests of clients, as a seeded pure value: the lab and the simulator ask it for request
//! `i`.
//!
//! ```text
//! request(i) = f(seed, i)      kind of operation ─► key number ─► size of the value
//!
//! inserts   blocks of 1000 requests; in each, a keyed shuffle makes exactly `share` of them
//!           inserts, so that the number of records before request i needs no counting
//! key n     prefix, 16 hex digits of mix(n)  (hashed)   or of n  (ordered)
//! absent n  the same with n + 2^63: lies between the stored keys, and never was
//! ```
//!
//! Invariants
//! 1. `request(i)` depends on the workload and on `i` alone. So threads may split the numbers as
//!    they like, and a seed gives the same requests for ever.
//! 2. A request of a hit names a key below `records_before(i)`; a miss never names a stored one.
//! 3. Keys of different numbers differ.
//!
//! Not here: when a request is due, how it is sent, its answer (crate `lab`).
//! See: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", 2010. Hörmann and
//! Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
//! 1996, which is exact for every exponent and every size. The method of Gray et al. (1994) that
//! YCSB uses needs a sum over all keys and is a few per cent off after the second one.

use crate::Prng;

/// The kinds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// Reads one key.
    Get,
    /// Writes a key of the key space.
    Put,
    /// Writes a key that is new, which joins the key space.
    Insert,
    /// Removes a key of the key space.
    Delete,
    /// Reads some records in order of keys.
    Scan,
    /// Writes a key only if it is not there.
    Create,
    /// Reads a key, then writes it.
    ReadModifyWrite,
    /// Reads a key, then writes it only if no other client has.
    CompareAndSet,
}

/// Number of kinds of operations.
pub const OPERATIONS: usize = 8;

impl RequestKind {
    /// All of them; `as usize` is the index.
    pub const ALL: [RequestKind; OPERATIONS] = [
        RequestKind::Get,
        RequestKind::Put,
        RequestKind::Insert,
        RequestKind::Delete,
        RequestKind::Scan,
        RequestKind::Create,
        RequestKind::ReadModifyWrite,
        RequestKind::CompareAndSet,
    ];

    /// For command lines and reports.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Get => "get",
            RequestKind::Put => "put",
            RequestKind::Insert => "insert",
            RequestKind::Delete => "delete",
            RequestKind::Scan => "scan",
            RequestKind::Create => "create",
            RequestKind::ReadModifyWrite => "read-modify-write",
            RequestKind::CompareAndSet => "compare-and-set",
        }
    }

    /// The operation of this name.
    pub fn named(name: &str) -> Option<RequestKind> {
        RequestKind::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// Which key of those that are there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// The k-th most popular has a share of `k^-exponent`; the popular ones lie scattered.
    Zipfian {
        /// YCSB: 0.99. Above zero.
        exponent: f64,
    },
    /// Zipfian by age: the last inserted is the most popular.
    Latest {
        /// Exponent of the Zipfian distribution. Above zero.
        exponent: f64,
    },
    /// A hot set of keys gets a share of the requests, uniform inside and outside.
    Hotspot {
        /// Hot keys, as a share of all.
        keys: f64,
        /// Requests for them, as a share of all.
        requests: f64,
    },
    /// One after the other.
    Sequential,
}

/// How large values are, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(u32),
    /// All lengths alike.
    Uniform {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// Many small, few large: the logarithm is normal.
    LogNormal {
        /// Half are smaller.
        median: u32,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
        /// Values drawn above it are cut to this.
        max: u32,
    },
}

/// How key bytes follow from key numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Neighbours in number lie far apart: the usual case for a store.
    Hashed,
    /// In the order of numbers, like time stamps and counters.
    Ordered,
}

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Weight of each operation, by `RequestKind as usize`; at least one is above zero.
    pub mix: [f64; OPERATIONS],
    /// Records that are there at the start, at least one.
    pub keys: u64,
    /// Which of them.
    pub distribution: Distribution,
    /// Bytes of values.
    pub sizes: Sizes,
    /// Share of gets that ask for a key that never was.
    pub miss_ratio: f64,
    /// A scan asks for one to this many records, uniformly.
    pub scan_records_max: u32,
    /// Key bytes.
    pub order: KeyOrder,
    /// Seed of everything.
    pub seed: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of the request.
    pub operation: RequestKind,
    /// Key number; for [`Workload::key_into`].
    pub key: u64,
    /// Bytes of the value that it writes; zero when it writes none.
    pub value_bytes: u32,
    /// Seed of that value's bytes.
    pub value_seed: u64,
    /// Records that a scan asks for; zero for others.
    pub scan_records: u32,
}

/// Requests in a block; see the drawing.
const BLOCK: u64 = 1000;

/// Added to the number of a key that never was.
const ABSENT: u64 = 1 << 63;

/// In front of every key.
pub const KEY_PREFIX: &[u8] = b"user";

/// Bytes of every key.
pub const KEY_BYTES: usize = KEY_PREFIX.len() + 16;

/// Largest number of records, so that numbers of absent keys never meet those of stored ones.
pub const RECORDS_MAX: u64 = 1 << 48;

/// The finalizer of splitmix64: a bijection of 64-bit numbers.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A bijection of the numbers below `len`, keyed by `seed`.
fn shuffled(index: u64, len: u64, seed: u64) -> u64 {
    debug_assert!(index < len);
    let bits = u64::BITS - (len - 1).leading_zeros();
    if bits == 0 {
        return 0;
    }
    let mask = u64::MAX >> (u64::BITS - bits);
    let shift = bits.div_ceil(2);
    let mut x = index;
    // Cycle walking: each round is a bijection of the next power of two. So going on until the
    // number is in range is one of the range; it takes less than two rounds on average.
    loop {
        for round in 0..3u64 {
            x = x.wrapping_add(mix(seed ^ round)) & mask;
            x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
            x ^= x >> shift;
        }
        if x < len {
            return x;
        }
    }
}

/// Integral of `t^-exponent` from 1 to `x`.
fn power_integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let p = (1.0 - exponent) * log;
    // (e^p - 1) / (1 - exponent), steady where the exponent is close to one.
    if p.abs() < 1e-8 {
        log * (1.0 + p / 2.0)
    } else {
        p.exp_m1() / (1.0 - exponent)
    }
}

/// The inverse of `power_integral`.
fn power_integral_inverse(y: f64, exponent: f64) -> f64 {
    let p = (y * (1.0 - exponent)).max(-1.0);
    if p.abs() < 1e-8 {
        (y * (1.0 - p / 2.0)).exp()
    } else {
        (p.ln_1p() / (1.0 - exponent)).exp()
    }
}

/// A rank below `len`, zero the most likely, with probability proportional to
/// `(rank + 1)^-exponent`.
pub fn zipf_rank(prng: &mut Prng, len: u64, exponent: f64) -> u64 {
    let weight = |x: f64| (-exponent * x.ln()).exp();
    let low = power_integral(1.5, exponent) - 1.0;
    let high = power_integral(len as f64 + 0.5, exponent);
    let sure = 2.0 - power_integral_inverse(power_integral(2.5, exponent) - weight(2.0), exponent);
    loop {
        let u = high + prng.unit() * (low - high);
        let x = power_integral_inverse(u, exponent);
        let rank = (x + 0.5).floor().clamp(1.0, len as f64);
        if rank - x <= sure || u >= power_integral(rank + 0.5, exponent) - weight(rank) {
            return rank as u64 - 1;
        }
    }
}

impl Sizes {
    /// The largest that is drawn.
    pub fn max(self) -> u32 {
        match self {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Uniform { max, .. } | Sizes::LogNormal { max, .. } => max,
        }
    }

    fn draw(self, prng: &mut Prng) -> u32 {
        match self {
            Sizes::Fixed(bytes) => bytes,
            Sizes::Uniform { min, max } => {
                min + prng.below(u64::from(max.saturating_sub(min)) + 1) as u32
            }
            Sizes::LogNormal { median, sigma, max } => {
                // Box and Muller; one of the pair is enough.
                let radius = (-2.0 * (1.0 - prng.unit()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * prng.unit()).cos();
                // A float out of range becomes the nearest integer in range.
                ((f64::from(median) * (sigma * normal).exp()) as u32).min(max)
            }
        }
    }
}

impl Workload {
    /// The workload of this name over `keys` records: `get`, `put`, `mixed`, `delete`, `scan`,
    /// `insert`, `create`, `read-modify-write`, `compare-and-set`, or `ycsb-a` to `ycsb-f`.
    pub fn named(name: &str, keys: u64, seed: u64) -> Option<Workload> {
        let zipfian = Distribution::Zipfian { exponent: 0.99 };
        let latest = Distribution::Latest { exponent: 0.99 };
        use RequestKind::{Get, Insert, Put, ReadModifyWrite, Scan};
        let (shares, distribution): (&[(RequestKind, f64)], _) = match name {
            "mixed" => (&[(Get, 0.8), (Put, 0.2)], Distribution::Uniform),
            "ycsb-a" => (&[(Get, 0.5), (Put, 0.5)], zipfian),
            "ycsb-b" => (&[(Get, 0.95), (Put, 0.05)], zipfian),
            "ycsb-c" => (&[(Get, 1.0)], zipfian),
            "ycsb-d" => (&[(Get, 0.95), (Insert, 0.05)], latest),
            "ycsb-e" => (&[(Scan, 0.95), (Insert, 0.05)], zipfian),
            "ycsb-f" => (&[(Get, 0.5), (ReadModifyWrite, 0.5)], zipfian),
            other => (&[(RequestKind::named(other)?, 1.0)], Distribution::Uniform),
        };
        let mut weights = [0.0; OPERATIONS];
        for &(operation, share) in shares {
            weights[operation as usize] = share;
        }
        // YCSB: ten fields of 100 bytes.
        let bytes = if name.starts_with("ycsb-") { 1000 } else { 100 };
        Some(Workload {
            mix: weights,
            keys,
            distribution,
            sizes: Sizes::Fixed(bytes),
            miss_ratio: 0.0,
            scan_records_max: 100,
            order: KeyOrder::Hashed,
            seed,
        })
    }

    /// The names that `named` knows.
    pub const NAMES: [&'static str; 15] = [
        "get",
        "put",
        "mixed",
        "scan",
        "insert",
        "delete",
        "create",
        "read-modify-write",
        "compare-and-set",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
    ];

    /// Why the workload makes no sense, as a sentence that names the fix.
    ///
    /// # Errors
    /// The sentence.
    pub fn check(&self) -> Result<(), String> {
        let is_share = |x: f64| (0.0..=1.0).contains(&x);
        if !self.mix.iter().all(|w| w.is_finite() && *w >= 0.0)
            || self.mix.iter().sum::<f64>() <= 0.0
        {
            return Err("the mix of operations sums to nothing; give one a weight".to_owned());
        }
        if self.keys == 0 || self.keys > RECORDS_MAX {
            return Err(format!(
                "{} keys make no key space; give 1 to {RECORDS_MAX}",
                self.keys
            ));
        }
        if !is_share(self.miss_ratio) {
            return Err(format!(
                "a miss ratio of {} is no share; give one from 0 to 1",
                self.miss_ratio
            ));
        }
        match self.distribution {
            Distribution::Zipfian { exponent } | Distribution::Latest { exponent }
                if !(exponent > 0.0 && exponent <= 10.0) =>
            {
                return Err(format!(
                    "an exponent of {exponent} is out of range; YCSB uses 0.99, give 0.01 to 10"
                ));
            }
            Distribution::Hotspot { keys, requests }
                if !(is_share(keys) && is_share(requests) && keys > 0.0) =>
            {
                return Err(
                    "a hot spot is a share of keys and a share of requests, both from 0 to 1"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if let Sizes::Uniform { min, max } = self.sizes
            && min > max
        {
            return Err(format!("values of {min} to {max} bytes: swap the two"));
        }
        if let Sizes::LogNormal { sigma, .. } = self.sizes
            && !(sigma.is_finite() && sigma >= 0.0)
        {
            return Err("sigma of value sizes is zero or more".to_owned());
        }
        Ok(())
    }

    fn total(&self) -> f64 {
        self.mix.iter().sum()
    }

    /// Inserts in every block of requests.
    fn inserts_by_block(&self) -> u64 {
        let share = self.mix[RequestKind::Insert as usize] / self.total();
        (share * BLOCK as f64).round() as u64
    }

    /// Records that are surely there when request `index` is due, if all before its block were
    /// done.
    pub fn records_before(&self, index: u64) -> u64 {
        self.keys + index / BLOCK * self.inserts_by_block()
    }

    /// Request number `index`.
    pub fn request(&self, index: u64) -> Request {
        let mut prng = Prng::new(self.seed ^ mix(index));
        let inserts = self.inserts_by_block();
        let block = index / BLOCK;
        if inserts > 0 {
            let rank = shuffled(index % BLOCK, BLOCK, mix(self.seed ^ block));
            if rank < inserts {
                let key = self.keys + block * inserts + rank;
                return self.finish(RequestKind::Insert, key, &mut prng);
            }
        }
        let operation = self.pick_operation(&mut prng);
        if operation == RequestKind::Get && self.miss_ratio > 0.0 && prng.unit() < self.miss_ratio {
            let key = prng.below(self.keys) + ABSENT;
            return self.finish(operation, key, &mut prng);
        }
        let key = self.pick_key(index, &mut prng);
        self.finish(operation, key, &mut prng)
    }

    fn finish(&self, operation: RequestKind, key: u64, prng: &mut Prng) -> Request {
        let writes = !matches!(
            operation,
            RequestKind::Get | RequestKind::Delete | RequestKind::Scan
        );
        let is_scan = operation == RequestKind::Scan;
        Request {
            operation,
            key,
            value_bytes: if writes { self.sizes.draw(prng) } else { 0 },
            value_seed: if writes { prng.next_u64() } else { 0 },
            scan_records: if is_scan {
                1 + prng.below(u64::from(self.scan_records_max.max(1))) as u32
            } else {
                0
            },
        }
    }

    /// Any but an insert: those were dealt out by block.
    fn pick_operation(&self, prng: &mut Prng) -> RequestKind {
        let total = self.total() - self.mix[RequestKind::Insert as usize];
        let mut left = prng.unit() * total;
        let mut last = RequestKind::Insert;
        for operation in RequestKind::ALL {
            let weight = self.mix[operation as usize];
            if operation == RequestKind::Insert || weight == 0.0 {
                continue;
            }
            last = operation;
            if left < weight {
                break;
            }
            left -= weight;
        }
        last
    }

    fn pick_key(&self, index: u64, prng: &mut Prng) -> u64 {
        match self.distribution {
            Distribution::Uniform => prng.below(self.records_before(index)),
            // Over the records of the start: were the range to grow, the popular keys would change.
            Distribution::Zipfian { exponent } => {
                let rank = zipf_rank(prng, self.keys, exponent);
                shuffled(rank, self.keys, self.seed)
            }
            Distribution::Latest { exponent } => {
                let records = self.records_before(index);
                records - 1 - zipf_rank(prng, records, exponent)
            }
            Distribution::Hotspot { keys, requests } => {
                let hot = ((self.keys as f64 * keys) as u64).clamp(1, self.keys);
                let is_hot = prng.unit() < requests || hot == self.keys;
                let rank = if is_hot {
                    prng.below(hot)
                } else {
                    hot + prng.below(self.keys - hot)
                };
                shuffled(rank, self.keys, self.seed)
            }
            Distribution::Sequential => index % self.keys,
        }
    }

    /// Bytes of one value.
    pub fn value_bytes(&self, prng: &mut Prng) -> u32 {
        self.sizes.draw(prng)
    }

    /// Appends the bytes of key `number`.
    pub fn key_into(&self, number: u64, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let word = match self.order {
            KeyOrder::Hashed => mix(number),
            // The absent one of a number comes right after it, not after all the others.
            KeyOrder::Ordered => number.rotate_left(1),
        };
        out.extend_from_slice(KEY_PREFIX);
        for nibble in (0..16).rev() {
            out.push(DIGITS[(word >> (4 * nibble)) as usize & 15]);
        }
    }
}

#[cfg(test)]
mod tests;
