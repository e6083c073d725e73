//! Cached blocks of all tables: uncompressed, checked, bounded by bytes.
//!
//! ```text
//! (table id, offset) ─► Data(Arc<Block>)    data blocks
//!                       Guide(Arc<Guide>)   filter and index of a partition
//! PinnedShare           ─► Pin              an eighth: guides that their tables hold themselves
//! ```
//!
//! Invariants
//! 1. `bytes() <= capacity` at every moment, pinned guides included. A block heavier than one shard
//!    is not kept, which is right: it would push out thousands of others.
//! 2. A cached block was complete and its checksum held. Table ids are never reused: an entry never
//!    goes stale, and removed tables just age out.
//! 3. A block that leaves takes the shortcut to it down. A read by shortcut is counted as far as
//!    the cache counts at all (`table/shortcut.rs`).
//!
//! Not here: reading and checking blocks (`table/reader.rs`).
//! See: docs/overload.md.

use crate::table::{Block, Guide, Pin, PinnedShare};
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A shard is refused blocks above its share of the memory. This size keeps blocks of 64 KiB, and a
/// few values of a mebibyte, welcome in every shard.
const SHARD_BYTES_MIN: usize = 4 << 20;
/// More shards than cores ever meet in one lock.
const SHARDS_MAX: usize = 16;
/// The usual weight of a block: sizes the tables of the cache itself.
const BLOCK_BYTES_USUAL: usize = 4 << 10;
/// Memory of an entry besides its block: key, hash slot, links, ghost entry.
const ENTRY_BYTES: usize = 96;
/// Counters are spread so that threads do not share a line.
const STRIPES: usize = 16;
/// Part of the memory in which tables pin guides. A guide is about a fortieth of its data. So an
/// eighth is enough until the data is five times the cached part, and leaves seven.
const PINNED_DIVISOR: usize = 8;

/// A block as the cache keeps it.
#[derive(Clone, Debug)]
pub(crate) enum Cached {
    /// A data block.
    Data(Arc<Block>),
    /// Filter and index of a partition.
    Guide(Arc<Guide>),
}

/// Which file, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockAddress {
    id: u64,
    offset: u64,
}

impl Hash for BlockAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.id ^ self.offset.rotate_left(40));
    }
}

/// One multiplication, folded: places are not chosen by clients, so no stronger hash is needed.
#[derive(Clone, Copy, Debug, Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        let wide = u128::from(word ^ self.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

#[derive(Clone, Copy, Debug)]
struct FoldBuilder;

impl BuildHasher for FoldBuilder {
    type Hasher = Fold;
    fn build_hasher(&self) -> Fold {
        Fold(0)
    }
}

#[derive(Clone, Copy, Debug)]
struct ByMemory;

impl Weighter<BlockAddress, Cached> for ByMemory {
    fn weight(&self, _place: &BlockAddress, cached: &Cached) -> u64 {
        let charge = match cached {
            Cached::Data(block) => block.charge(),
            Cached::Guide(guide) => guide.charge(),
        };
        (charge + ENTRY_BYTES) as u64
    }
}

/// Blocks that a call lets go, freed when the lock of their shard is given back. Mostly it is one
/// for one; those that do not fit here are freed under the lock.
#[derive(Debug, Default)]
struct LetGo([Option<Cached>; 2]);

#[derive(Clone, Copy, Debug)]
struct Farewell;

impl Lifecycle<BlockAddress, Cached> for Farewell {
    type RequestState = LetGo;

    /// Asked when the hand comes by: no block is pinned here, but a block has to know of it.
    fn is_pinned(&self, _place: &BlockAddress, cached: &Cached) -> bool {
        if let Cached::Data(block) = cached {
            block.count_again();
        }
        false
    }

    fn on_evict(&self, gone: &mut LetGo, _place: BlockAddress, cached: Cached) {
        if let Cached::Data(block) = &cached {
            block.take_down_signpost();
        }
        if let Some(room) = gone.0.iter_mut().find(|room| room.is_none()) {
            *room = Some(cached);
        }
    }
}

/// Are blocks that had to be read kept in the cache?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FillCache {
    /// Yes: the blocks will be asked for again. A scan keeps its first `FILLED_BLOCKS_MAX` and goes
    /// on as with `No`.
    Yes,
    /// No: the blocks pass by once. A long scan must not push out blocks that point reads need, nor
    /// make those that it meets look used. Guides are kept all the same.
    No,
}

/// Counters that one group of threads adds to.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
    filter_negatives: AtomicU64,
    would_block: AtomicU64,
}

/// The counts of the cache and of the reads through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    /// Blocks found in memory.
    pub hits: u64,
    /// Blocks that were not.
    pub misses: u64,
    /// Filters that said "absent".
    pub filter_negatives: u64,
    /// Reads with `Wait::Never` that would have had to wait for the disk.
    pub would_block: u64,
}

/// Blocks of all tables of one engine.
pub(crate) struct BlockCache {
    blocks: Cache<BlockAddress, Cached, ByMemory, FoldBuilder, Farewell>,
    /// Bytes for blocks while no table is open.
    blocks_bytes_max: u64,
    pinned: Arc<PinnedShare>,
    stripes: [Stripe; STRIPES],
}

impl BlockCache {
    /// A cache that holds at most `bytes` bytes of blocks, their bookkeeping included.
    pub(crate) fn new(bytes: usize) -> BlockCache {
        let pinned = PinnedShare::new(bytes / PINNED_DIVISOR);
        let shards = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let bytes = bytes - pinned.bytes_max();
        // quick_cache rounds the number of shards up to a power of two: round down first.
        let shards = 1 << shards.ilog2();
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity((bytes / BLOCK_BYTES_USUAL).max(32))
            .weight_capacity((bytes / shards * shards) as u64)
            .build()
            .expect("capacity and estimate are set");
        BlockCache {
            blocks: Cache::with_options(options, ByMemory, FoldBuilder, Farewell),
            blocks_bytes_max: (bytes / shards * shards) as u64,
            pinned: Arc::new(pinned),
            stripes: std::array::from_fn(|_| Stripe::default()),
        }
    }

    /// Bytes it holds now.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.weight() + self.pinned.bytes() as u64
    }

    /// Bytes it may hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.blocks.capacity() + self.pinned.bytes_max() as u64
    }

    /// Room for a guide that its table wants to hold itself; `None` when there is none left.
    pub(crate) fn pin(&self, bytes: usize) -> Option<Pin> {
        PinnedShare::pin(&self.pinned, bytes + ENTRY_BYTES)
    }

    /// Gives `bytes` of its memory to the top indexes of open tables, which are never evicted.
    pub(crate) fn make_room(&self, bytes: usize) {
        let blocks = self.blocks_bytes_max.saturating_sub(bytes as u64);
        self.blocks.set_capacity(blocks);
    }

    /// Everything counted since it was made.
    pub(crate) fn counts(&self) -> CacheCounts {
        let mut sum = CacheCounts::default();
        for stripe in &self.stripes {
            sum.hits += stripe.hits.load(Ordering::Relaxed);
            sum.misses += stripe.misses.load(Ordering::Relaxed);
            sum.filter_negatives += stripe.filter_negatives.load(Ordering::Relaxed);
            sum.would_block += stripe.would_block.load(Ordering::Relaxed);
        }
        sum
    }

    /// The block at `offset` of table `id`, if it is here; it is noted as used.
    pub(crate) fn find(&self, id: u64, offset: u64) -> Option<Cached> {
        self.counted(self.blocks.get(&BlockAddress { id, offset }))
    }

    /// Finds a block for a reader that passes by once: the block is not noted as used.
    pub(crate) fn glance(&self, id: u64, offset: u64) -> Option<Cached> {
        self.counted(self.blocks.peek(&BlockAddress { id, offset }))
    }

    fn counted(&self, found: Option<Cached>) -> Option<Cached> {
        let stripe = self.stripe();
        let counter = match found {
            Some(_) => &stripe.hits,
            None => &stripe.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// A read found its block without asking here.
    pub(crate) fn count_hit(&self) {
        self.stripe().hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a block that was read and checked.
    pub(crate) fn keep(&self, id: u64, offset: u64, cached: Cached) {
        self.blocks.insert(BlockAddress { id, offset }, cached);
    }

    /// A filter answered a read.
    pub(crate) fn count_filter_negative(&self) {
        let counter = &self.stripe().filter_negatives;
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A read would have had to wait.
    pub(crate) fn count_would_block(&self) {
        self.stripe().would_block.fetch_add(1, Ordering::Relaxed);
    }

    fn stripe(&self) -> &Stripe {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static MINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        &self.stripes[MINE.get()]
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache")
            .field("bytes", &self.bytes())
            .field("capacity", &self.capacity())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> Cached {
        Cached::Guide(Arc::new(Guide::of_bytes(bytes)))
    }

    #[test]
    fn the_bound_holds_whatever_is_kept() {
        for capacity in [0, 64 << 10, 1 << 20, 9 << 20, 64 << 20] {
            let cache = BlockCache::new(capacity);
            assert!(cache.capacity() <= capacity as u64);
            let mut pins = Vec::new();
            for i in 0..2000 {
                cache.keep(i % 7, i * 4096, block(1 << (6 + i % 13)));
                pins.extend(cache.pin(1 << (6 + i % 13)));
                assert!(cache.bytes() <= capacity as u64, "{i}");
            }
            drop(pins);
            assert_eq!(cache.bytes(), cache.blocks.weight(), "pins are given back");
            if capacity > 0 {
                assert!(cache.bytes() > capacity as u64 / 2, "{cache:?}");
            }
        }
    }

    #[test]
    fn a_block_of_a_mebibyte_is_kept_in_every_shard() {
        let cache = BlockCache::new(64 << 20);
        assert_eq!(cache.blocks.num_shards(), SHARDS_MAX);
        for i in 0..100 {
            cache.keep(i, 0, block(1 << 20));
            assert!(cache.find(i, 0).is_some(), "{i}");
        }
    }

    #[test]
    fn a_small_cache_keeps_blocks_of_64_kib() {
        let cache = BlockCache::new(256 << 10);
        cache.keep(1, 0, block(64 << 10));
        assert!(cache.find(1, 0).is_some());
        assert!(cache.find(1, 1).is_none());
        assert!(cache.find(2, 0).is_none());
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses), (1, 2));
    }

    #[test]
    fn places_spread_over_all_shards() {
        let cache = BlockCache::new(64 << 20);
        let mut shards = [0; SHARDS_MAX];
        for id in 0..50 {
            for offset in (0..100).map(|i| i * 2048 + id) {
                shards[cache.blocks.shard_index(&BlockAddress { id, offset })] += 1;
            }
        }
        let (least, most) = (shards.iter().min(), shards.iter().max());
        assert!(least > Some(&200) && most < Some(&450), "{shards:?}");
    }
}
