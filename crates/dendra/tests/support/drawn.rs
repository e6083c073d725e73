//! Records with drawn keys and values, of every shape that a key may have.
//!
//! ```text
//! DrawnRecords::new(name) ─► store(address) ─► … a way through processes … ─► check(held)
//! ```
//!
//! Invariants
//! 1. Each byte begins some key, and each length from 1 to 1,024 bytes may be drawn.
//! 2. The records follow from the seed, which each failure names. `DENDRA_DRAWN_SEED` is another
//!    seed.
//!
//! Not here: the ways (`../round_trips.rs`); pages alone (crate `wire`, `restore.rs`).

use super::backups::{Held, client, held};
use super::http::{Client, PATIENCE};
use dendra_base::Prng;
use dendra_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX_DEFAULT};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// So many keys of each shape.
const OF_A_SHAPE: u64 = 12;
/// No key of a client begins with so many of the largest byte.
const RESERVED_BYTES: usize = 16;
/// Some pages of a restore, and no more bytes than a test has time for.
const LARGE_VALUES: usize = 24;
const LARGE_BYTES: u64 = 300_000;
/// Seconds: no test takes as long.
const TTL: &str = "36000";

/// By key.
pub(crate) type Records = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) struct DrawnRecords {
    seed: u64,
    prng: Prng,
    /// The records that are stored.
    pub(crate) records: Records,
    /// Keys that were deleted behind a write.
    deleted: Vec<Vec<u8>>,
    /// Of the records these have a time to live.
    pub(crate) ending: Vec<Vec<u8>>,
}

fn percent(key: &[u8]) -> String {
    key.iter().map(|byte| format!("%{byte:02X}")).collect()
}

impl DrawnRecords {
    /// The records of one test.
    pub(crate) fn new(test: &str) -> DrawnRecords {
        let seed = std::env::var("DENDRA_DRAWN_SEED").map_or(38, |text| {
            text.parse().expect("DENDRA_DRAWN_SEED is a number")
        });
        println!("DENDRA_DRAWN_SEED={seed}");
        let mut drawn = DrawnRecords {
            seed,
            prng: Prng::named(seed, test),
            records: Records::new(),
            deleted: Vec::new(),
            ending: Vec::new(),
        };
        let keys = drawn.keys();
        let large = drawn.some_of(&keys, LARGE_VALUES);
        for key in keys {
            let value = drawn.value();
            drawn.records.insert(key, value);
        }
        for (number, key) in large.into_iter().enumerate() {
            let bytes = match number {
                0 => VALUE_BYTES_MAX_DEFAULT,
                _ => drawn.prng.below(LARGE_BYTES) as usize,
            };
            let value = drawn.noise(bytes);
            drawn.records.insert(key, value);
        }
        let keys: Vec<Vec<u8>> = drawn.records.keys().cloned().collect();
        drawn.ending = drawn.some_of(&keys, keys.len() / 8);
        drawn
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        self.prng.fill(&mut noise);
        noise
    }

    fn length(&mut self) -> usize {
        1 + self.prng.below(KEY_BYTES_MAX as u64) as usize
    }

    /// One for each first byte, and some of each shape; none that is reserved.
    fn keys(&mut self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for first in 0..=u8::MAX {
            let length = self.length();
            let mut key = self.noise(length);
            key[0] = first;
            keys.push(key);
        }
        for number in 0..OF_A_SHAPE {
            let digits: String = (0..8)
                .map(|_| format!("{:08x}", self.prng.next_u64() as u32))
                .collect();
            let rest = self.length() - 1;
            let tail = &digits[..self.prng.below(40) as usize];
            keys.push(format!("/registry/pods/default/{tail}{number}").into_bytes());
            keys.push(digits.into_bytes());
            // Runs of the smallest and the largest byte, and beginnings that are alike for long.
            keys.push(vec![0; 1 + rest]);
            let most = (1 + rest).min(RESERVED_BYTES - 1);
            keys.push(vec![u8::MAX; most]);
            let alike = KEY_BYTES_MAX - self.prng.below(20) as usize;
            let mut key = vec![b'c'; alike];
            key[alike - 1] = self.prng.next_u64() as u8;
            keys.push(key);
            // Separators of the forms in which records travel, and text beyond ASCII.
            let signs = ["\t", "\n", "\"", "\\", "%", "&", "=", " ", "é", "\u{10348}"];
            let text: String = (0..1 + self.prng.below(30))
                .map(|_| signs[self.prng.below(signs.len() as u64) as usize])
                .collect();
            keys.push(text.into_bytes());
        }
        keys.extend([vec![0; KEY_BYTES_MAX], vec![b'/'; KEY_BYTES_MAX]]);
        let largest = [&[u8::MAX; RESERVED_BYTES - 1][..], &[u8::MAX - 1]].concat();
        keys.push([largest, vec![u8::MAX; KEY_BYTES_MAX - RESERVED_BYTES]].concat());
        let is_reserved = |key: &Vec<u8>| key.starts_with(&[u8::MAX; RESERVED_BYTES]);
        keys.retain(|key| !is_reserved(key));
        keys
    }

    /// Mostly short ones, some that are empty, some that are alike.
    fn value(&mut self) -> Vec<u8> {
        match self.prng.below(5) {
            0 => Vec::new(),
            1 => vec![b'v'; self.prng.below(5_000) as usize],
            _ => {
                let bytes = self.prng.below(300) as usize;
                self.noise(bytes)
            }
        }
    }

    fn some_of(&mut self, keys: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
        let drawn = (0..count).map(|_| self.prng.below(keys.len() as u64) as usize);
        drawn.map(|at| keys[at].clone()).collect()
    }

    /// The half of the records with the smaller numbers, and the other one: two tests' worth of
    /// keys that lie between each other.
    pub(crate) fn halves(&self) -> [Records; 2] {
        let mut halves = [Records::new(), Records::new()];
        for (number, (key, value)) in self.records.iter().enumerate() {
            halves[number % 2].insert(key.clone(), value.clone());
        }
        halves
    }

    /// Writes these records through a node.
    pub(crate) fn write(&self, records: &Records, address: SocketAddr) {
        let mut client = client(address);
        for (key, value) in records {
            let ttl = if self.ending.contains(key) {
                format!("&ttl={TTL}")
            } else {
                String::new()
            };
            let target = format!("/v0/entity?id={}{ttl}", percent(key));
            let answer = client.request("PUT", &target, &[], value);
            let status = answer.expect("the node is there").status;
            assert_eq!(status, 201, "{}", self.named(key));
        }
    }

    /// Writes some of them anew, and deletes others.
    pub(crate) fn change(&mut self, address: SocketAddr) {
        let keys: Vec<Vec<u8>> = self.records.keys().cloned().collect();
        let mut changed = Records::new();
        for key in self.some_of(&keys, keys.len() / 8) {
            let value = self.value();
            changed.insert(key, value);
        }
        self.write(&changed, address);
        self.records.extend(changed);
        let mut client = client(address);
        for key in self.some_of(&keys, keys.len() / 8) {
            if self.records.remove(&key).is_some() {
                let gone = client.ask("DELETE", &percent(&key), &[], b"");
                assert_eq!(gone.expect("the node is there").status, 202);
                self.ending.retain(|ending| *ending != key);
                self.deleted.push(key);
            }
        }
    }

    /// The answers of a node for every key that was ever written: ETags and values.
    pub(crate) fn answers(&self, address: SocketAddr) -> BTreeMap<Vec<u8>, Held> {
        let mut client = client(address);
        let keys = self.records.keys().chain(&self.deleted);
        let answers = keys.map(|key| (key.clone(), held(&mut client, &percent(key))));
        answers.collect()
    }

    fn named(&self, key: &[u8]) -> String {
        let (seed, bytes) = (self.seed, key.len());
        let shown = &key[..bytes.min(60)];
        format!(
            "DENDRA_DRAWN_SEED={seed}: {} ({bytes} bytes)",
            shown.escape_ascii()
        )
    }

    /// The first key on which they differ, if any.
    fn difference(&self, held: &Records, expected: &Records) -> Option<String> {
        let keys = expected.keys().chain(held.keys());
        let mut apart = keys.filter(|key| held.get(*key) != expected.get(*key));
        apart.next().map(|key| {
            let length = |of: &Records| of.get(key).map(Vec::len);
            let (has, should) = (length(held), length(expected));
            format!("{} has {has:?}, not {should:?} bytes", self.named(key))
        })
    }

    /// Fails unless these are the records.
    #[track_caller]
    pub(crate) fn check(&self, held: &Records) {
        let difference = self.difference(held, &self.records);
        assert!(difference.is_none(), "{}", difference.unwrap_or_default());
    }

    /// Waits until a member holds these records itself.
    #[track_caller]
    pub(crate) fn wait_for_copies(&self, address: SocketAddr, expected: &Records) {
        let deadline = Instant::now() + PATIENCE;
        while let Some(difference) = self.difference(&records(address, "local"), expected) {
            assert!(Instant::now() < deadline, "{difference}");
            super::rest();
        }
    }
}

/// All records of a node or, with `local`, those that it holds itself.
pub(crate) fn records(address: SocketAddr, scope: &str) -> Records {
    let mut client = Client::open(address).expect("it listens");
    let target = format!("/v0/entities?start=%00&scope={scope}");
    let framing = ["Accept: application/vnd.dendra.records"];
    let answer = client.request("GET", &target, &framing, b"");
    let answer = answer.expect("the node is there");
    assert_eq!(answer.status, 200);
    assert!(answer.receipt.contains("complete"), "{}", answer.receipt);
    let mut rest = &answer.body[..];
    let mut records = Records::new();
    loop {
        let (head, behind) = rest.split_first_chunk::<8>().expect("it has an end");
        let [key, value] = [&head[..4], &head[4..]]
            .map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")));
        if (key, value) == (u32::MAX, u32::MAX) {
            return records;
        }
        let (key, behind) = behind.split_at(key as usize);
        let (value, behind) = behind.split_at(value as usize);
        records.insert(key.to_vec(), value.to_vec());
        // The client puts a line feed behind each chunk.
        rest = behind.strip_prefix(b"\n").expect("a record is a chunk");
    }
}
