//! Numbers with one writer, and the labels of requests.
//!
//! Invariants
//! 1. An addition is a plain load and store, never a locked instruction.
//!
//! Not here: which numbers an event loop keeps (`metrics.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

/// A number with one writer and any number of readers.
#[derive(Debug, Default)]
pub(crate) struct LoopCounter(AtomicU64);

impl LoopCounter {
    /// Adds `n`. Requires: called by the one writer.
    pub(crate) fn add(&self, n: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces the number. Requires: called by the one writer.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number as of a moment ago.
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// An enum whose variants are values of a label.
macro_rules! labels {
    ($(#[$of_enum:meta])* pub(crate) enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum $name { $($(#[$of_variant])* $variant,)* }

        impl $name {
            pub(crate) const ALL: [$name; [$($word),*].len()] = [$($name::$variant),*];

            pub(crate) fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}
pub(crate) use labels;

labels! {
    /// The operation of a request, as a label.
    pub(crate) enum OpLabel {
        Get = "get",
        Put = "put",
        Delete = "delete",
        Touch = "touch",
        Scan = "scan",
        Status = "status",
        Other = "other",
    }
}

/// Upper bounds of the buckets, in nanoseconds; one more bucket holds the rest. A read from memory
/// is answered in two microseconds, and its stages take a part of that.
pub(crate) const BUCKETS_NS: [u64; 24] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// How long something took, with one writer.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [LoopCounter; BUCKETS_NS.len() + 1],
    pub(crate) sum_ns: LoopCounter,
}

impl Histogram {
    /// Notes that it took `took_ns`, `times` times. Requires: called by the one writer.
    pub(crate) fn note(&self, took_ns: u64, times: u64) {
        let bucket = BUCKETS_NS.partition_point(|&bound| bound < took_ns);
        self.buckets[bucket].add(times);
        self.sum_ns.add(took_ns.saturating_mul(times));
    }

    /// How often it was noted.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(LoopCounter::read).sum()
    }
}
