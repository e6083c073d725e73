//! Request number `i` as bytes for the wire: from a workload or from a recording.
//!
//! ```text
//! RequestSource::ask(i) ─► RequestSpec { operation, key, value }
//!                          key into a scratch buffer, value = a slice of one random pool
//! ```
//!
//! Invariants
//! 1. Request `i` is the same bytes in every run of the same source, whichever thread asks.
//! 2. Values cannot be compressed: the pool is random. They begin at 65536 places of it.
//!
//! Not here: when (`schedule.rs`), heads and templates (`template.rs`).
//! See: crate `base`, `workload/`.

use crate::ammo::Ammo;
use dendra_base::workload::{RequestKind, Sizes};
use dendra_base::{Prng, Workload};
use std::ops::Range;
use std::sync::Arc;

/// Places of the pool where a value may begin.
const STARTS: usize = 1 << 16;

/// Where requests come from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestSource {
    kind: SourceKind,
    pool: Arc<[u8]>,
}

#[derive(Clone, Debug)]
enum SourceKind {
    Workload(Arc<Workload>),
    /// Every key once, or those of these numbers.
    Preload(Arc<Workload>, Option<Arc<[u64]>>),
    Ammo(Arc<Ammo>),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// The kind of the request.
    pub operation: RequestKind,
    /// Is the key a recorded target, path and query?
    pub is_target: bool,
    /// Records of a scan.
    pub limit: u32,
    value: RequestValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestValue {
    Pool(Range<usize>),
    Ammo(Range<usize>),
}

fn pool(sizes: Sizes, seed: u64) -> Arc<[u8]> {
    let mut bytes = vec![0; STARTS + sizes.max() as usize];
    Prng::named(seed, "values").fill(&mut bytes);
    bytes.into()
}

fn slice_of_pool(seed: u64, bytes: u32) -> RequestValue {
    let start = seed as usize % STARTS;
    RequestValue::Pool(start..start + bytes as usize)
}

impl RequestSource {
    /// Requests of `workload`.
    pub fn workload(workload: Workload) -> RequestSource {
        RequestSource {
            pool: pool(workload.sizes, workload.seed),
            kind: SourceKind::Workload(Arc::new(workload)),
        }
    }

    /// Writes that put the records in place which `workload` asks for: request `i` writes key `i`.
    pub fn preload(workload: Workload) -> RequestSource {
        RequestSource {
            pool: pool(workload.sizes, workload.seed),
            kind: SourceKind::Preload(Arc::new(workload), None),
        }
    }

    /// The number of the key that request `index` of a preload writes.
    pub fn preloaded(&self, index: u64) -> u64 {
        match &self.kind {
            SourceKind::Preload(_, Some(numbers)) => numbers[index as usize % numbers.len()],
            _ => index,
        }
    }

    /// The rest of a preload: request `i` writes key `numbers[i]`.
    pub fn again(&self, numbers: Vec<u64>) -> RequestSource {
        let kind = match &self.kind {
            SourceKind::Preload(workload, _) => {
                SourceKind::Preload(workload.clone(), Some(numbers.into()))
            }
            other => other.clone(),
        };
        RequestSource {
            kind,
            pool: self.pool.clone(),
        }
    }

    /// Requests of a file, over again from its start when it ends.
    pub fn ammo(ammo: Arc<Ammo>, sizes: Sizes, seed: u64) -> RequestSource {
        RequestSource {
            pool: pool(sizes, seed),
            kind: SourceKind::Ammo(ammo),
        }
    }

    /// Request number `index`; its key replaces the contents of `key`.
    pub fn ask(&self, index: u64, key: &mut Vec<u8>) -> RequestSpec {
        key.clear();
        match &self.kind {
            SourceKind::Workload(workload) => {
                let request = workload.request(index);
                workload.key_into(request.key, key);
                RequestSpec {
                    operation: request.operation,
                    is_target: false,
                    limit: request.scan_records,
                    value: slice_of_pool(request.value_seed, request.value_bytes),
                }
            }
            SourceKind::Preload(workload, numbers) => {
                let number = |some: &[u64]| some[index as usize % some.len()];
                let index = numbers.as_deref().map_or(index, number);
                let mut prng = Prng::new(workload.seed ^ index);
                workload.key_into(index, key);
                let bytes = workload.value_bytes(&mut prng);
                RequestSpec {
                    operation: RequestKind::Put,
                    is_target: false,
                    limit: 0,
                    value: slice_of_pool(prng.next_u64(), bytes),
                }
            }
            SourceKind::Ammo(ammo) => {
                let row = ammo.row(index);
                key.extend_from_slice(ammo.bytes(&row.key));
                let value = match (&row.value, row.operation) {
                    (Some(range), _) => RequestValue::Ammo(range.clone()),
                    (None, RequestKind::Put) => {
                        slice_of_pool(index.wrapping_mul(0x9e37_79b9), row.value_bytes)
                    }
                    (None, _) => RequestValue::Pool(0..0),
                };
                RequestSpec {
                    operation: row.operation,
                    is_target: row.is_target,
                    limit: 100,
                    value,
                }
            }
        }
    }

    /// The bytes of the value that `ask` writes.
    pub fn value(&self, ask: &RequestSpec) -> &[u8] {
        match (&ask.value, &self.kind) {
            (RequestValue::Pool(range), _) => self.pool.get(range.clone()).unwrap_or_default(),
            (RequestValue::Ammo(range), SourceKind::Ammo(ammo)) => ammo.bytes(range),
            (RequestValue::Ammo(_), _) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_is_the_same_bytes_and_others_differ() {
        let make =
            || RequestSource::workload(Workload::named("put", 100, 3).expect("it is a name"));
        let (one, two) = (make(), make());
        let bytes = |source: &RequestSource, index: u64| {
            let mut key = Vec::new();
            let ask = source.ask(index, &mut key);
            (key, source.value(&ask).to_vec())
        };
        assert_eq!(bytes(&one, 5), bytes(&two, 5));
        assert_ne!(bytes(&one, 5), bytes(&one, 6));
        assert_eq!(bytes(&one, 5).1.len(), 100);
    }

    #[test]
    fn the_preload_writes_what_the_workload_reads() {
        let workload = Workload::named("get", 50, 3).expect("it is a name");
        let preload = RequestSource::preload(workload.clone());
        let mut stored = std::collections::HashSet::new();
        let mut key = Vec::new();
        for index in 0..50 {
            preload.ask(index, &mut key);
            stored.insert(key.clone());
        }
        let reads = RequestSource::workload(workload);
        for index in 0..500 {
            reads.ask(index, &mut key);
            assert!(
                stored.contains(&key),
                "request {index} reads what nobody wrote"
            );
        }
    }
}
