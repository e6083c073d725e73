//! Nodes, their order and their hash chains: the memtable itself.
//!
//! ```text
//! node    | cell ptr 8 | chain ptr 8 | prefix 8 | key len 2, height 1 | tower 8 × height | key … |
//! record  | length 4 | encoded cell … |           behind the node that it came with, so that a
//!                                                 point read finds both in neighbouring lines
//! insert  node complete (cell null) → towers, lowest first → bucket → version bounds → cell
//! read    bucket → chain, at most CHAIN_LEN_MAX nodes, else the towers → cell
//! ```
//!
//! Invariants
//! 1. A pointer that can be loaded from a head, a tower, a chain or a bucket leads to a complete
//!    node of this table. After that only `cell` and `tower` of a node change.
//! 2. `chain` leads to older nodes only and never changes: a bucket is a stack.
//! 3. Before a node's cell is set, both version bounds include it.
//!
//! Not here: scans (`iter.rs`), memory (`arena.rs`), the atomics (`sync.rs`).
//! See: RocksDB `memtable/inlineskiplist.h` for the layout.

#![expect(
    unsafe_code,
    reason = "nodes of varying size live in arena memory behind atomic pointers"
)]

use super::arena::{self, Arena, Bump};
use super::sync::{AtomicPtr, HEIGHT_MAX, Ordering, Published, nulls};
use crate::table::key_hash;
use dendra_base::{CellRef, Kind, Version};
use std::cmp;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
// Statistics, not part of the protocol: never swapped for a model.
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// One bucket for so many bytes of the target: about as many as records of 100 bytes, for a
/// sixteenth of the memory.
const BYTES_PER_BUCKET: usize = 128;
/// Fewest buckets, for the small tables of tests.
const BUCKETS_MIN: usize = 16;
/// Most buckets: 8 MiB of pointers.
const BUCKETS_MAX: usize = 1 << 20;
/// Nodes of a chain that a point read looks at before it takes the towers instead. Chains that long
/// do not come by chance; keys chosen to collide then cost a logarithm and no more.
const CHAIN_LEN_MAX: usize = 16;

/// A fixed part of each node; tower and key follow it in memory.
#[repr(C)]
pub(super) struct ListNode {
    /// The newest record; null until the first insert is complete.
    cell: AtomicPtr<ListRecord>,
    /// The node below in the same bucket.
    chain: *mut ListNode,
    /// The key's first eight bytes as a big-endian number, zeros behind a shorter key: decides
    /// most comparisons without touching the key.
    prefix: u64,
    key_len: u16,
    height: u8,
}

/// The fixed part of a record; the encoded cell follows it in memory.
#[repr(C)]
pub(super) struct ListRecord {
    len: u32,
    published: Published,
}

const _: () = assert!(align_of::<ListNode>() <= arena::ALIGN);
const _: () = assert!(align_of::<AtomicPtr<ListNode>>() <= align_of::<ListNode>());
const _: () = assert!(align_of::<ListRecord>() <= arena::ALIGN);
const _: () = assert!(HEIGHT_MAX <= u8::MAX as usize);

/// A key to compare nodes with.
struct SearchKey<'k> {
    prefix: u64,
    key: &'k [u8],
}

impl<'k> SearchKey<'k> {
    fn new(key: &'k [u8]) -> SearchKey<'k> {
        let prefix = match key.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut padded = [0; 8];
                padded[..key.len()].copy_from_slice(key);
                u64::from_be_bytes(padded)
            }
        };
        SearchKey { prefix, key }
    }
}

/// A complete node of a table that lives for `'a`.
///
/// Made only from pointers that the table's own links hold (invariant 1), hence every method may
/// read the node, its tower and its key.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'a> {
    node: NonNull<ListNode>,
    table: PhantomData<&'a Memtable>,
}

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `node` was loaded from a link of a table that lives for `'a`.
    pub(super) unsafe fn new(node: NonNull<ListNode>) -> NodeRef<'a> {
        NodeRef {
            node,
            table: PhantomData,
        }
    }

    /// The node's address, for a caller that keeps the table alive by other means.
    pub(super) fn as_ptr(self) -> NonNull<ListNode> {
        self.node
    }

    fn fixed(self) -> &'a ListNode {
        // SAFETY: the node is complete, lives for `'a`, and only its atomics change.
        unsafe { self.node.as_ref() }
    }

    fn tower(self) -> &'a [AtomicPtr<ListNode>] {
        let height = usize::from(self.fixed().height);
        // SAFETY: `height` initialised links follow the fixed part (`ListNode` is `repr(C)` and its
        // size is a multiple of the links' alignment). They live for `'a` and are atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.node.as_ptr().add(1).cast::<AtomicPtr<ListNode>>(),
                height,
            )
        }
    }

    /// The stored key.
    pub(super) fn key(self) -> &'a [u8] {
        let fixed = self.fixed();
        let at = key_offset(usize::from(fixed.height));
        // SAFETY: `key_len` initialised bytes follow the tower; they live for `'a` unchanged.
        unsafe {
            std::slice::from_raw_parts(
                self.node.as_ptr().cast::<u8>().add(at),
                usize::from(fixed.key_len),
            )
        }
    }

    /// The newest record; `None` while the node's first insert is under way.
    pub(super) fn record(self) -> Option<RecordRef<'a>> {
        let record = NonNull::new(self.fixed().cell.load(Ordering::Acquire))?;
        // SAFETY: the acquire pairs with the release that set the pointer after its record was
        // complete; the record lives as long as the table.
        Some(unsafe { RecordRef::new(record) })
    }

    /// The node behind this one.
    pub(super) fn next(self) -> Option<NodeRef<'a>> {
        follow(&self.tower()[0])
    }

    fn chain(self) -> Option<NodeRef<'a>> {
        let node = NonNull::new(self.fixed().chain)?;
        // SAFETY: `chain` was a bucket's link when this node was made.
        Some(unsafe { NodeRef::new(node) })
    }

    fn compare(self, probe: &SearchKey<'_>) -> cmp::Ordering {
        self.fixed()
            .prefix
            .cmp(&probe.prefix)
            .then_with(|| self.key().cmp(probe.key))
    }

    fn has_key(self, probe: &SearchKey<'_>) -> bool {
        self.fixed().prefix == probe.prefix && self.key() == probe.key
    }
}

/// Where the key starts behind the node's address.
const fn key_offset(height: usize) -> usize {
    size_of::<ListNode>() + height * size_of::<AtomicPtr<ListNode>>()
}

/// Loads a link of the table that `link` belongs to.
fn follow(link: &AtomicPtr<ListNode>) -> Option<NodeRef<'_>> {
    let node = NonNull::new(link.load(Ordering::Acquire))?;
    // SAFETY: links hold complete nodes only; the acquire pairs with the release that linked it.
    // The borrow of the link keeps the table alive.
    Some(unsafe { NodeRef::new(node) })
}

/// A complete record of a table that lives for `'a`.
#[derive(Clone, Copy)]
pub(super) struct RecordRef<'a> {
    record: NonNull<ListRecord>,
    table: PhantomData<&'a Memtable>,
}

impl<'a> RecordRef<'a> {
    /// # Safety
    /// `record` is complete and belongs to a table that lives for `'a`.
    pub(super) unsafe fn new(record: NonNull<ListRecord>) -> RecordRef<'a> {
        RecordRef {
            record,
            table: PhantomData,
        }
    }

    /// The record's address, for a caller that keeps the table alive by other means.
    pub(super) fn as_ptr(self) -> NonNull<ListRecord> {
        self.record
    }

    /// The cell, borrowed from the arena.
    pub(super) fn cell(self) -> CellRef<'a> {
        // SAFETY: the record is complete: `len` initialised bytes follow its fixed part, and no
        // thread writes to them any more.
        let encoded = unsafe {
            let fixed = self.record.as_ref();
            fixed.published.read();
            let len = fixed.len as usize;
            std::slice::from_raw_parts(self.record.as_ptr().add(1).cast::<u8>(), len)
        };
        CellRef::decode(encoded).expect("insert takes decodable cells only")
    }
}

/// The result of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The key was not in the table.
    New,
    /// The key's cell was older and is replaced.
    Replaced,
    /// The table already holds this cell or a newer one: no change.
    Older,
}

/// Sorted cells in memory, one per key. Readers share it behind an `Arc`; its [`Inserter`] writes.
pub(crate) struct Memtable {
    arena: Arena,
    /// The links in front of the first node, one per level.
    head: [AtomicPtr<ListNode>; HEIGHT_MAX],
    /// Tops of the hash chains; the length is a power of two.
    buckets: Box<[AtomicPtr<ListNode>]>,
    /// The record with the largest version that was ever inserted; null when there is none.
    newest: AtomicPtr<ListRecord>,
    /// The record with the smallest version that was ever inserted; null when there is none.
    oldest: AtomicPtr<ListRecord>,
    records: AtomicUsize,
    /// Tombstones that were ever inserted, those included that a newer cell replaced.
    tombstones: AtomicUsize,
    /// The earliest end of a value that the log has by reference, in the records of this table.
    referred_end_ms: AtomicU64,
}

/// The one writer of a [`Memtable`].
pub(crate) struct Inserter {
    table: Arc<Memtable>,
    bump: Bump,
    heights: Heights,
}

impl Memtable {
    /// An empty table for about `bytes_target` bytes, and its writer. The target sizes chunks and
    /// buckets; it is no limit: the caller seals the table when `bytes` says so.
    pub(crate) fn new(bytes_target: usize) -> (Arc<Memtable>, Inserter) {
        let buckets = (bytes_target / BYTES_PER_BUCKET)
            .clamp(BUCKETS_MIN, BUCKETS_MAX)
            .next_power_of_two();
        let table = Arc::new(Memtable {
            arena: Arena::new(bytes_target),
            head: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            buckets: nulls(buckets),
            newest: AtomicPtr::new(ptr::null_mut()),
            oldest: AtomicPtr::new(ptr::null_mut()),
            records: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
            referred_end_ms: AtomicU64::new(u64::MAX),
        });
        let inserter = Inserter {
            table: Arc::clone(&table),
            bump: Bump::new(),
            heights: Heights::new(),
        };
        (table, inserter)
    }

    /// Values that end at this time or later are needed by a replay of the log; `u64::MAX` = none.
    pub(crate) fn referred_end_ms(&self) -> u64 {
        self.referred_end_ms.load(Ordering::Acquire)
    }

    /// The newest cell of `stored_key`, by reference.
    #[cfg(test)]
    pub(crate) fn get(&self, stored_key: &[u8]) -> Option<CellRef<'_>> {
        self.find_hashed(stored_key, key_hash(stored_key))
    }

    /// The newest cell of `stored_key`; `hash` is the [`key_hash`] of it.
    pub(crate) fn find_hashed(&self, stored_key: &[u8], hash: u64) -> Option<CellRef<'_>> {
        self.find(&SearchKey::new(stored_key), hash)
            .and_then(NodeRef::record)
            .map(RecordRef::cell)
    }

    /// Memory that the table holds for itself: the pieces handed out, and its buckets.
    pub(crate) fn bytes(&self) -> usize {
        self.arena.bytes() + self.buckets.len() * size_of::<AtomicPtr<ListNode>>()
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    /// Number of deletes that were ever inserted.
    pub(crate) fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// Was no record ever inserted?
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No cell in the table is older than this. `None` when it is empty.
    pub(crate) fn version_min(&self) -> Option<Version> {
        version_of(&self.oldest)
    }

    /// No cell in the table is newer than this. `None` when it is empty.
    pub(crate) fn version_max(&self) -> Option<Version> {
        version_of(&self.newest)
    }

    /// The key's node, complete or with its first insert under way.
    fn find(&self, probe: &SearchKey<'_>, hash: u64) -> Option<NodeRef<'_>> {
        // Without a record no bucket is looked at: they are far apart, and in no cache.
        self.first()?;
        let mut link = follow(self.bucket(hash));
        for _ in 0..CHAIN_LEN_MAX {
            let node = link?;
            if node.has_key(probe) {
                return Some(node);
            }
            link = node.chain();
        }
        let (_, from) = self.split(|node| node.compare(probe).is_lt(), |_, _| ());
        from.filter(|node| node.has_key(probe))
    }

    fn bucket(&self, hash: u64) -> &AtomicPtr<ListNode> {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// The first node of all.
    pub(super) fn first(&self) -> Option<NodeRef<'_>> {
        follow(&self.head[0])
    }

    /// The last node of all.
    pub(super) fn last(&self) -> Option<NodeRef<'_>> {
        self.split(|_| true, |_, _| ()).0
    }

    /// The last node before `key` and the first one from `key` on.
    pub(super) fn split_before(&self, key: &[u8]) -> (Option<NodeRef<'_>>, Option<NodeRef<'_>>) {
        let probe = SearchKey::new(key);
        self.split(|node| node.compare(&probe).is_lt(), |_, _| ())
    }

    /// The last node up to `key` and the first one behind it.
    pub(super) fn split_after(&self, key: &[u8]) -> (Option<NodeRef<'_>>, Option<NodeRef<'_>>) {
        let probe = SearchKey::new(key);
        self.split(|node| node.compare(&probe).is_le(), |_, _| ())
    }

    /// The last node for which `is_before` holds and the first for which it does not; `is_before`
    /// must be monotonic in key order. Shows `at_level` the link between the two on each level.
    fn split<'a>(
        &'a self,
        is_before: impl Fn(NodeRef<'a>) -> bool,
        mut at_level: impl FnMut(usize, &'a AtomicPtr<ListNode>),
    ) -> (Option<NodeRef<'a>>, Option<NodeRef<'a>>) {
        let mut tower: &'a [AtomicPtr<ListNode>] = &self.head;
        let mut before = None;
        let mut after: Option<NodeRef<'a>> = None;
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                let next = follow(&tower[level]);
                // A node that stopped the level above need not be compared again.
                match next {
                    Some(node)
                        if after.is_none_or(|after| after.node != node.node) && is_before(node) =>
                    {
                        before = next;
                        tower = node.tower();
                    }
                    _ => {
                        after = next;
                        break;
                    }
                }
            }
            at_level(level, &tower[level]);
        }
        (before, after)
    }
}

/// The version in the record behind `bound`.
fn version_of(bound: &AtomicPtr<ListRecord>) -> Option<Version> {
    let record = NonNull::new(bound.load(Ordering::Acquire))?;
    // SAFETY: a bound holds complete records only (release, acquire); the borrow of the bound
    // keeps the table alive.
    Some(unsafe { RecordRef::new(record) }.cell().version)
}

impl Inserter {
    /// The log has a record of this table by a reference to a value that ends at `end_ms`: until
    /// the table is flushed, a replay needs that value.
    pub(crate) fn refer_to(&self, end_ms: Option<u64>) {
        let end_ms = end_ms.unwrap_or(u64::MAX);
        self.table
            .referred_end_ms
            .fetch_min(end_ms, Ordering::AcqRel);
    }

    /// Makes `encoded_cell` the cell of `stored_key` unless the table holds it or a newer one.
    ///
    /// # Panics
    /// When the bytes are not an encoded cell, or the key is longer than 65535 bytes.
    pub(crate) fn insert(&mut self, stored_key: &[u8], encoded_cell: &[u8]) -> Inserted {
        let cell = CellRef::decode(encoded_cell).expect("insert takes encoded cells");
        let kind = cell.kind;
        let Inserter {
            table,
            bump,
            heights,
        } = self;
        let probe = SearchKey::new(stored_key);
        let hash = key_hash(stored_key);
        let node = match table.find(&probe, hash) {
            Some(node) => node,
            None => table.link(bump, heights, &probe, hash),
        };
        let inserted = match node.record() {
            None => Inserted::New,
            Some(current) if cell.is_newer_than(&current.cell()) => Inserted::Replaced,
            Some(_) => return Inserted::Older,
        };
        let record = table.copy_cell(bump, encoded_cell);
        table.widen_bounds(record, cell.version);
        if inserted == Inserted::New {
            table.records.fetch_add(1, Ordering::Relaxed);
        }
        if kind == Kind::Tombstone {
            table.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        node.fixed().cell.store(record.as_ptr(), Ordering::Release);
        inserted
    }
}

/// The writer's half. Called by the `Inserter` only, hence by one thread at a time, and always with
/// the one bump of this table's arena.
impl Memtable {
    /// A new node without a cell, linked everywhere.
    fn link(
        &self,
        bump: &mut Bump,
        heights: &mut Heights,
        probe: &SearchKey<'_>,
        hash: u64,
    ) -> NodeRef<'_> {
        let mut splice = [&self.head[0]; HEIGHT_MAX];
        self.split(
            |node| node.compare(probe).is_lt(),
            |level, link| splice[level] = link,
        );
        let bucket = self.bucket(hash);
        let splice = &splice[..heights.next()];
        let node = self.make_node(bump, probe, splice, bucket.load(Ordering::Relaxed));
        // Lowest level first: a reader that meets the node high up can go on below it.
        for link in splice {
            link.store(node.as_ptr(), Ordering::Release);
        }
        bucket.store(node.as_ptr(), Ordering::Release);
        // SAFETY: the node is complete and linked into this table.
        unsafe { NodeRef::new(node) }
    }

    /// A complete node that points to the same nodes as `splice` and the bucket.
    fn make_node(
        &self,
        bump: &mut Bump,
        probe: &SearchKey<'_>,
        splice: &[&AtomicPtr<ListNode>],
        chain: *mut ListNode,
    ) -> NonNull<ListNode> {
        let height = splice.len();
        let key_len = u16::try_from(probe.key.len()).expect("a stored key is at most 1033 bytes");
        let key_at = key_offset(height);
        let node = self
            .arena
            .take(bump, key_at + probe.key.len())
            .cast::<ListNode>();
        let fixed = ListNode {
            cell: AtomicPtr::new(ptr::null_mut()),
            chain,
            prefix: probe.prefix,
            key_len,
            height: height as u8,
        };
        // SAFETY: the piece is `key_at + key.len()` bytes long, aligned for a `ListNode`, and no
        // other thread knows it yet. Fixed part, tower and key lie in it one after the other.
        unsafe {
            node.write(fixed);
            let tower = node.as_ptr().add(1).cast::<AtomicPtr<ListNode>>();
            for (level, link) in splice.iter().enumerate() {
                tower
                    .add(level)
                    .write(AtomicPtr::new(link.load(Ordering::Relaxed)));
            }
            let key = node.as_ptr().cast::<u8>().add(key_at);
            key.copy_from_nonoverlapping(probe.key.as_ptr(), probe.key.len());
        }
        node
    }

    /// A complete record with a copy of `encoded_cell`.
    fn copy_cell(&self, bump: &mut Bump, encoded_cell: &[u8]) -> NonNull<ListRecord> {
        let len = u32::try_from(encoded_cell.len()).expect("a value is at most 8 MiB");
        let record = self
            .arena
            .take(bump, size_of::<ListRecord>() + encoded_cell.len())
            .cast::<ListRecord>();
        // SAFETY: the piece is large enough for the fixed part and the cell behind it, aligned, and
        // no other thread knows it yet.
        unsafe {
            record.write(ListRecord {
                len,
                published: Published::new(),
            });
            let bytes = record.as_ptr().add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(encoded_cell.as_ptr(), encoded_cell.len());
        }
        record
    }

    /// Takes `record` into the version bounds where it lies outside them.
    fn widen_bounds(&self, record: NonNull<ListRecord>, version: Version) {
        if self.version_max().is_none_or(|max| version > max) {
            self.newest.store(record.as_ptr(), Ordering::Release);
        }
        if self.version_min().is_none_or(|min| version < min) {
            self.oldest.store(record.as_ptr(), Ordering::Release);
        }
    }
}

/// Tower heights: xorshift64*, the same for every table, so that a run can be repeated.
struct Heights(u64);

impl Heights {
    fn new() -> Heights {
        Heights(0x2545_f491_4f6c_dd1d)
    }

    /// 1 with probability 3/4, 2 with 3/16, and so on, at most `HEIGHT_MAX`.
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        // Two bits per level: each pair of trailing zeros is one climb.
        let climbs = (drawn as u32 | 1 << 30).trailing_zeros() as usize / 2;
        (1 + climbs).min(HEIGHT_MAX)
    }
}
