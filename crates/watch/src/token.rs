//! A token: how far the changes of each member were told to a client.
//!
//! ```text
//! | format 1 = 1 | epoch 8 | wall ms 8 | members 2 | member … | checksum 8 |   little-endian
//!   member    id 4, life 8, next 8, epoch 8
//!   checksum  xxh3-64 of the bytes before it, seeded with the cluster's id
//! ```
//!
//! Invariants
//! 1. Equal tokens have equal bytes: members stand in the order of their ids.
//! 2. A token of another cluster, or with a flipped bit, is refused; it cannot be forged by
//!    mistake. It is no secret, and gives no rights.
//!
//! Not here: the text form that clients get (crate `wire`).

use crate::owners::FeedId;
use dendra_base::peer::FeedCursor;
use std::collections::BTreeMap;
use std::fmt;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 8 + 2;
const ENTRY_BYTES: usize = 4 + 8 + 8 + 8;
const CHECKSUM_BYTES: usize = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchToken {
    /// The epoch of the owners.
    pub epoch: u64,
    /// Values that had ended by this wall clock, in milliseconds, were told.
    pub wall_ms: u64,
    /// Where the changes of each member go on.
    pub feeds: BTreeMap<FeedId, TokenFeed>,
}

/// How far the changes of a member were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenFeed {
    /// Where they go on.
    pub cursor: FeedCursor,
    /// Changes before this epoch were all told.
    pub epoch: u64,
}

/// Why bytes are no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The length is not that of a token.
    Length,
    /// The checksum is another one: cut, changed, or of another cluster.
    Checksum,
    /// A later release wrote it.
    Format(u8),
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenFault::Length => f.write_str("it is too short or too long"),
            TokenFault::Checksum => {
                f.write_str("it was changed on its way, or is of another cluster")
            }
            TokenFault::Format(format) => write!(f, "a later release wrote it (format {format})"),
        }
    }
}

impl WatchToken {
    /// The bytes, for a client of this cluster.
    pub fn encode(&self, cluster: u64) -> Vec<u8> {
        let members = u16::try_from(self.feeds.len()).unwrap_or(u16::MAX);
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.wall_ms.to_le_bytes());
        out.extend_from_slice(&members.to_le_bytes());
        for (source, feed) in self.feeds.iter().take(usize::from(members)) {
            out.extend_from_slice(&source.0.to_le_bytes());
            out.extend_from_slice(&feed.cursor.life.to_le_bytes());
            out.extend_from_slice(&feed.cursor.next.to_le_bytes());
            out.extend_from_slice(&feed.epoch.to_le_bytes());
        }
        let checksum = xxh3_64_with_seed(&out, cluster);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads a token of this cluster.
    ///
    /// # Errors
    /// The bytes are no token of this cluster.
    pub fn decode(bytes: &[u8], cluster: u64) -> Result<WatchToken, TokenFault> {
        let (body, checksum) = bytes
            .split_last_chunk::<CHECKSUM_BYTES>()
            .ok_or(TokenFault::Length)?;
        if xxh3_64_with_seed(body, cluster) != u64::from_le_bytes(*checksum) {
            return Err(TokenFault::Checksum);
        }
        let (head, entries) = body
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(TokenFault::Length)?;
        if head[0] != FORMAT {
            return Err(TokenFault::Format(head[0]));
        }
        let number = |field: &[u8]| {
            let mut all = [0; 8];
            all[..field.len()].copy_from_slice(field);
            u64::from_le_bytes(all)
        };
        let members = usize::try_from(number(&head[17..])).unwrap_or(usize::MAX);
        if entries.len() != members * ENTRY_BYTES {
            return Err(TokenFault::Length);
        }
        let feeds = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let source = u32::try_from(number(&entry[..4])).unwrap_or(u32::MAX);
            let cursor = FeedCursor {
                life: number(&entry[4..12]),
                next: number(&entry[12..20]),
            };
            let epoch = number(&entry[20..]);
            (FeedId(source), TokenFeed { cursor, epoch })
        });
        Ok(WatchToken {
            epoch: number(&head[1..9]),
            wall_ms: number(&head[9..17]),
            feeds: feeds.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_token() -> impl Strategy<Value = WatchToken> {
        let feed = any::<[u64; 3]>().prop_map(|[life, next, epoch]| TokenFeed {
            cursor: FeedCursor { life, next },
            epoch,
        });
        let feeds = prop::collection::btree_map(any::<u32>().prop_map(FeedId), feed, 0..9);
        (any::<u64>(), any::<u64>(), feeds).prop_map(|(epoch, wall_ms, feeds)| WatchToken {
            epoch,
            wall_ms,
            feeds,
        })
    }

    proptest! {
        #[test]
        fn any_legal_token_reads_back(token in any_token(), cluster in any::<u64>()) {
            let bytes = token.encode(cluster);
            prop_assert_eq!(WatchToken::decode(&bytes, cluster), Ok(token));
        }

        #[test]
        fn a_token_with_a_flipped_bit_or_of_another_cluster_is_refused(
            token in any_token(), cluster in any::<u64>(), bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = token.encode(cluster);
            prop_assert!(WatchToken::decode(&bytes, cluster ^ 1).is_err());
            let at = bit.index(bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(WatchToken::decode(&bytes, cluster), Err(TokenFault::Checksum));
        }

        #[test]
        fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(WatchToken::decode(&bytes, 1).is_err());
        }
    }
}
