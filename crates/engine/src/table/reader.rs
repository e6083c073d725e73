//! Open tables and point reads.
//!
//! ```text
//! get ─► newest version ─► top index ─► guide: filter, index ─► data block
//!          pinned           pinned       pinned, cache or disk   shortcut, cache or disk
//! ```
//!
//! Invariants
//! 1. `open` believes a file only when footer, properties and top index agree with each other and
//!    with the manifest's `TableMeta`.
//! 2. A point read touches no block that cannot hold a version newer than the caller already has.
//! 3. On the cached path only a block's tags are allocated, once. A block that a read had to load
//!    is kept only when complete.
//!
//! Not here: which tables a read asks (`view.rs`), scans (`iter.rs`), the full check (`verify.rs`).
//! See: docs/format/table.md.

use super::block::{Block, MalformedBlock};
use super::filter::Filter;
use super::footer::{FOOTER_BYTES, FORMAT, Footer, NotAFooter, Properties};
use super::frame::{self, FrameKind, Handle};
use super::guide::{Guide, GuideRef};
use super::index::{Index, Top};
use super::{TableMeta, file_name, id_of_file_name};
use crate::cache::{BlockCache, Cached, FillCache};
use crate::explain::{BlockSource, FilterVerdict, ReadTrace, TablePart, Untraced};
use crate::vfs::{File, Vfs, Wait, read_exact_at};
use crate::{Error, Result};
use dendra_base::{CellRef, Version};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::Xxh3Default;

/// A read buffer above this is given back after use: one huge value must not stay per thread.
const SCRATCH_BYTES_KEPT: usize = 256 << 10;
/// Bytes read at once where a whole file is read.
pub(super) const STREAM_BYTES: usize = 256 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One open table. Shared by reference; its file stays readable while it lives, even when removed.
pub struct Table {
    pub(super) file: Arc<dyn File>,
    pub(super) meta: TableMeta,
    pub(super) footer: Footer,
    pub(super) properties: Properties,
    pub(super) top: Top,
    /// One place for each partition's guide: its bytes are the cache's to grant.
    guides: Box<[OnceLock<Arc<Guide>>]>,
}

/// A cell inside a block: holds the block, and borrows no bytes.
#[derive(Clone, Debug)]
pub(crate) struct FoundCell {
    block: Arc<Block>,
    cell: Range<usize>,
    version: Version,
}

impl FoundCell {
    /// The cell.
    pub(crate) fn cell(&self) -> CellRef<'_> {
        CellRef::decode(self.block.slice(self.cell.clone())).expect("decoded when it was found")
    }

    /// The cell's version, without decoding the cell.
    pub(crate) fn version(&self) -> Version {
        self.version
    }
}

/// The first question of a point read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// The filter: most keys that are asked for lie in other tables.
    Filter,
    /// The block, where blocks are mostly found by shortcuts: no table lies below, so a key that
    /// exists at all is mostly here.
    Block,
}

impl First {
    /// In a table that is the last one to be asked, or is not.
    pub(crate) fn in_table(is_last: bool) -> First {
        if is_last { First::Block } else { First::Filter }
    }
}

/// Can no version of at most `version_max` be newer than the one that the caller has?
fn is_old(version_max: Version, newer_than: Version) -> bool {
    // ZERO asks for everything, even for a cell that carries ZERO itself.
    version_max <= newer_than && newer_than != Version::ZERO
}

impl Table {
    /// Opens the table that `meta` describes.
    pub(crate) fn open(vfs: &dyn Vfs, meta: TableMeta) -> Result<Table> {
        let name = file_name(meta.id);
        let table = load(vfs, &name, Some(meta.id))?;
        if let Some(difference) = meta.difference(&table.meta) {
            let offset = table.footer.properties.offset;
            return Err(Error::damaged(name, offset, difference));
        }
        Ok(Table { meta, ..table })
    }

    /// Opens a table by its file alone, and computes the digest: for tools without a manifest.
    pub fn open_unknown(vfs: &dyn Vfs, name: &str) -> Result<Table> {
        let mut table = load(vfs, name, id_of_file_name(name))?;
        table.meta.digest = table.digest()?;
        Ok(table)
    }

    /// Opens a table by its file alone, of a backup that has checksums of its own. The digest stays
    /// at zero.
    pub(crate) fn open_kept(vfs: &dyn Vfs, name: &str) -> Result<Table> {
        load(vfs, name, id_of_file_name(name))
    }

    /// The manifest's facts about it.
    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Earliest expiry of any record, in wall milliseconds; `None` when no record expires.
    pub(crate) fn expiry_ms_min(&self) -> Option<u64> {
        (self.meta.expiring > 0).then_some(self.properties.expiry_ms_min)
    }

    /// Bytes of its stored keys and encoded cells, before compression.
    pub(crate) fn raw_bytes(&self) -> u64 {
        self.properties.raw_bytes
    }

    /// Memory it holds besides cached blocks.
    pub(crate) fn pinned_bytes(&self) -> usize {
        size_of::<Table>()
            + self.top.charge()
            + size_of_val(&self.guides[..])
            + 2 * (self.meta.smallest.capacity() + self.meta.largest.capacity())
    }

    /// The cell of `stored_key`, when it is here and newer than `newer_than` (`Version::ZERO`: any
    /// cell). `key_hash` is [`super::key_hash`] of the key. The caller has seen that the key lies
    /// in the table's range. A key outside is found absent, too, by a longer way.
    ///
    /// With `Wait::Never`, an error that `would_block` means: ask again with `Wait::Block`.
    pub(crate) fn get(
        &self,
        cache: &BlockCache,
        stored_key: &[u8],
        key_hash: u64,
        newer_than: Version,
        first: First,
        wait: Wait,
    ) -> Result<Option<FoundCell>> {
        let key = (stored_key, key_hash);
        self.traced(cache, key, newer_than, first, wait, &mut Untraced)
    }

    /// Reads like `get`, and tells `trace` each step.
    pub(crate) fn traced<T: ReadTrace>(
        &self,
        cache: &BlockCache,
        (stored_key, key_hash): (&[u8], u64),
        newer_than: Version,
        first: First,
        wait: Wait,
        trace: &mut T,
    ) -> Result<Option<FoundCell>> {
        if is_old(self.meta.version_max, newer_than) {
            trace.older();
            return Ok(None);
        }
        let at = self.top.lower_bound(stored_key);
        if at == self.top.len() {
            return Ok(None);
        }
        let partition = self.top.partition(at);
        if is_old(partition.version_max, newer_than) {
            trace.older();
            return Ok(None);
        }
        let guide = self.traced_guide(cache, at, wait, trace)?;
        let is_filtered = |told: &mut T| {
            let filter = guide.filter.as_ref();
            let is_absent = filter.is_some_and(|filter| !filter.may_hold(key_hash));
            if is_absent {
                cache.count_filter_negative();
            }
            told.filter(match filter {
                None => FilterVerdict::None,
                Some(_) if is_absent => FilterVerdict::Absent,
                Some(_) => FilterVerdict::Maybe,
            });
            is_absent
        };
        let is_block_first = first == First::Block && guide.is_at_hand();
        if !is_block_first && is_filtered(trace) {
            return Ok(None);
        }
        let entry = guide.index.lower_bound(stored_key);
        if entry == guide.index.len() {
            let reason = "the index partition ends before the key that the top index has for it";
            return Err(Error::damaged(self.name(), partition.index.offset, reason));
        }
        let (handle, version_max) = guide.index.block(entry);
        if is_old(version_max, newer_than) {
            trace.older();
            return Ok(None);
        }
        let (block, is_cached) = match guide.index.shortcut(entry).block() {
            Some(block) => {
                guide.note_at_hand(true);
                cache.count_hit();
                (block, true)
            }
            None if is_block_first && is_filtered(trace) => {
                guide.note_at_hand(false);
                return Ok(None);
            }
            None => {
                let (block, is_cached) = self.block(cache, handle, FillCache::Yes, wait)?;
                match &guide {
                    _ if !is_cached => guide.note_at_hand(false),
                    GuideRef::Pinned(guide) => guide.lead_to(entry, &block),
                    GuideRef::Shared(_) => {}
                }
                (block, is_cached)
            }
        };
        trace.block(TablePart::Data, BlockSource::of(is_cached), handle.bytes);
        let in_block = |m| self.malformed(FrameKind::Data, handle, m);
        let found = if is_cached {
            block.find_tagged(stored_key, key_hash)
        } else {
            block.find(stored_key)
        };
        let Some(range) = found.map_err(in_block)? else {
            return Ok(None);
        };
        let Some(cell) = CellRef::decode(block.slice(range.clone())) else {
            return Err(self.not_a_cell(handle));
        };
        let version = cell.version;
        if is_old(version, newer_than) {
            trace.older();
            return Ok(None);
        }
        Ok(Some(FoundCell {
            block,
            cell: range,
            version,
        }))
    }

    /// The guide of partition `i`: pinned, from the cache, or from the file.
    pub(super) fn guide(&self, cache: &BlockCache, i: usize, wait: Wait) -> Result<GuideRef<'_>> {
        self.traced_guide(cache, i, wait, &mut Untraced)
    }

    fn traced_guide(
        &self,
        cache: &BlockCache,
        i: usize,
        wait: Wait,
        trace: &mut impl ReadTrace,
    ) -> Result<GuideRef<'_>> {
        let partition = self.top.partition(i);
        let mut tell = |from| {
            let filter_bytes = partition.filter.map_or(0, |filter| filter.bytes);
            trace.block(TablePart::Guide, from, filter_bytes + partition.index.bytes);
        };
        if let Some(guide) = self.pinned(i) {
            tell(BlockSource::Pinned);
            return Ok(GuideRef::Pinned(guide));
        }
        let at = partition.index.offset;
        if let Some(Cached::Guide(guide)) = cache.find(self.meta.id, at) {
            tell(BlockSource::Cache);
            return Ok(GuideRef::Shared(guide));
        }
        let read = || -> Result<Guide> {
            let filter = partition
                .filter
                .map(|handle| self.read_filter(handle, wait));
            Ok(Guide::new(filter.transpose()?, self.read_index(i, wait)?))
        };
        let mut guide = read().inspect_err(|e| note_would_block(cache, e))?;
        tell(BlockSource::File);
        guide.pin = cache.pin(guide.charge());
        if guide.pin.is_some() {
            // A second thread that was here first has the same guide: then this one goes.
            let pinned = self.guides[i].get_or_init(|| Arc::new(guide));
            return Ok(GuideRef::Pinned(pinned));
        }
        let guide = Arc::new(guide);
        cache.keep(self.meta.id, at, Cached::Guide(Arc::clone(&guide)));
        Ok(GuideRef::Shared(guide))
    }

    /// The guide of partition `i`, when it is pinned.
    pub(super) fn pinned(&self, i: usize) -> Option<&Arc<Guide>> {
        self.guides[i].get()
    }

    /// A data block, and whether it was in the cache.
    pub(super) fn block(
        &self,
        cache: &BlockCache,
        handle: Handle,
        fill: FillCache,
        wait: Wait,
    ) -> Result<(Arc<Block>, bool)> {
        let found = match fill {
            FillCache::Yes => cache.find(self.meta.id, handle.offset),
            FillCache::No => cache.glance(self.meta.id, handle.offset),
        };
        if let Some(Cached::Data(block)) = found {
            return Ok((block, true));
        }
        let read = self.read_block(FrameKind::Data, handle, wait);
        let block = Arc::new(read.inspect_err(|e| note_would_block(cache, e))?);
        if fill == FillCache::Yes {
            let kept = Cached::Data(Arc::clone(&block));
            cache.keep(self.meta.id, handle.offset, kept);
        }
        Ok((block, false))
    }

    /// Reads the index of partition `i` from the file.
    pub(super) fn read_index(&self, i: usize, wait: Wait) -> Result<Index> {
        let handle = self.top.partition(i).index;
        self.read_frame(handle, wait, |frame| self.parse_index(handle, frame))
    }

    /// Reads a block of entries from the file.
    pub(super) fn read_block(&self, kind: FrameKind, handle: Handle, wait: Wait) -> Result<Block> {
        self.read_frame(handle, wait, |frame| self.parse_block(kind, handle, frame))
    }

    /// Reads a filter from the file.
    pub(super) fn read_filter(&self, handle: Handle, wait: Wait) -> Result<Filter> {
        self.read_frame(handle, wait, |frame| self.parse_filter(handle, frame))
    }

    /// Checks and takes apart the filter that lies at `handle`.
    pub(super) fn parse_filter(&self, handle: Handle, frame: &[u8]) -> Result<Filter> {
        let payload = open_frame(&self.name(), self.meta.id, FrameKind::Filter, handle, frame)?;
        Filter::parse(&payload).map_err(|m| self.malformed(FrameKind::Filter, handle, m))
    }

    /// Checks and takes apart the index partition that lies at `handle`.
    pub(super) fn parse_index(&self, handle: Handle, frame: &[u8]) -> Result<Index> {
        let block = self.parse_block(FrameKind::Index, handle, frame)?;
        Index::parse(&block).map_err(|m| self.malformed(FrameKind::Index, handle, m))
    }

    /// Checks and takes apart the bytes that lie at `handle`.
    pub(super) fn parse_block(
        &self,
        kind: FrameKind,
        handle: Handle,
        frame: &[u8],
    ) -> Result<Block> {
        let payload = frame::open(frame, kind, self.meta.id, handle.offset)
            .map_err(|reason| Error::damaged(self.name(), handle.offset, reason))?;
        Block::parse(payload).map_err(|m| self.malformed(kind, handle, m))
    }

    pub(super) fn read_frame<R>(
        &self,
        handle: Handle,
        wait: Wait,
        parse: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        read_frame(
            &*self.file,
            self.footer.top.offset,
            handle,
            wait,
            &|| self.name(),
            parse,
        )
    }

    /// xxh3-64 over all bytes of the file as they are on disk now.
    pub(super) fn digest(&self) -> Result<u64> {
        let mut digest = Xxh3Default::new();
        let mut buffer = vec![0; STREAM_BYTES];
        let mut at = 0;
        while at < self.meta.bytes {
            let len = STREAM_BYTES.min((self.meta.bytes - at) as usize);
            read_exact_at(&*self.file, &mut buffer[..len], at, Wait::Block)
                .map_err(|e| io_error(&self.name(), at, e))?;
            digest.update(&buffer[..len]);
            at += len as u64;
        }
        Ok(digest.digest())
    }

    pub(super) fn name(&self) -> String {
        file_name(self.meta.id)
    }

    /// The error for damage at `offset`.
    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::damaged(self.name(), offset, reason)
    }

    /// The error for a block whose checksum held and whose content does not.
    pub(super) fn malformed(&self, kind: FrameKind, handle: Handle, m: MalformedBlock) -> Error {
        malformed(&self.name(), kind, handle, m)
    }

    /// The error for an entry of a data block that is not a cell.
    pub(super) fn not_a_cell(&self, handle: Handle) -> Error {
        self.damaged(handle.offset, "an entry of a data block is not a cell")
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

fn note_would_block(cache: &BlockCache, error: &Error) {
    if error.would_block() {
        cache.count_would_block();
    }
}

pub(super) fn io_error(name: &str, offset: u64, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Error::damaged(name, offset, "the file ends too early")
    } else if error.raw_os_error() == Some(libc::EIO) {
        // A sector that cannot be read is damage like one that reads wrongly.
        Error::damaged(name, offset, format!("the disk cannot read it: {error}"))
    } else {
        Error::io(format!("read {name} at byte {offset}"), error)
    }
}

fn malformed(name: &str, kind: FrameKind, handle: Handle, m: MalformedBlock) -> Error {
    Error::damaged(
        name,
        handle.offset,
        format!(
            "{} (byte {} of the uncompressed {})",
            m.what,
            m.at,
            kind.as_str()
        ),
    )
}

fn open_frame(
    name: &str,
    id: u64,
    kind: FrameKind,
    handle: Handle,
    frame: &[u8],
) -> Result<Box<[u8]>> {
    frame::open(frame, kind, id, handle.offset)
        .map_err(|reason| Error::damaged(name, handle.offset, reason))
}

/// The error for a frame that is longer or shorter than a writer makes one.
pub(super) fn misfit(name: String, handle: Handle) -> Error {
    let reason = format!("a block of {} bytes cannot be here", handle.bytes);
    Error::damaged(name, handle.offset, reason)
}

/// Reads the bytes at `handle`, which must end at or before `limit`, into a buffer of this thread.
pub(super) fn read_frame<R>(
    file: &dyn File,
    limit: u64,
    handle: Handle,
    wait: Wait,
    name: &dyn Fn() -> String,
    parse: impl FnOnce(&[u8]) -> Result<R>,
) -> Result<R> {
    if !handle.fits(limit) {
        return Err(misfit(name(), handle));
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let len = handle.bytes as usize;
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        let read = read_exact_at(file, &mut scratch[..len], handle.offset, wait);
        let parsed = match read {
            Ok(()) => parse(&scratch[..len]),
            Err(e) => Err(io_error(&name(), handle.offset, e)),
        };
        if scratch.len() > SCRATCH_BYTES_KEPT {
            *scratch = Vec::new();
        }
        parsed
    })
}

/// Reads and checks footer, properties and top index. The digest is left at zero.
fn load(vfs: &dyn Vfs, name: &str, id: Option<u64>) -> Result<Table> {
    let file = vfs
        .open(name)
        .map_err(|e| Error::io(format!("open {name}"), e))?;
    let TableEnd {
        meta,
        footer,
        properties,
        top,
    } = read_end(&*file, name, id)?;
    Ok(Table {
        meta,
        guides: (0..top.len()).map(|_| OnceLock::new()).collect(),
        file,
        footer,
        properties,
        top,
    })
}

/// The part behind the data of a table.
pub(super) struct TableEnd {
    pub(super) meta: TableMeta,
    footer: Footer,
    properties: Properties,
    top: Top,
}

/// Reads and checks footer, properties and top index of `file`. The digest is left at zero.
pub(super) fn read_end(file: &dyn File, name: &str, id: Option<u64>) -> Result<TableEnd> {
    let bytes = file
        .len()
        .map_err(|e| Error::io(format!("ask for the length of {name}"), e))?;
    let footer = read_footer(file, name, bytes)?;
    let at = bytes - FOOTER_BYTES as u64;
    let is_in_place = footer.file_bytes == bytes
        && footer.properties.end() == at
        && footer.top.end() == footer.properties.offset;
    if !is_in_place {
        let reason = format!(
            "the footer was written for a file of {} bytes, this one has {bytes}",
            footer.file_bytes
        );
        return Err(Error::damaged(name, at, reason));
    }
    if id.is_some_and(|id| id != footer.id) {
        let reason = format!("the file holds table {:016x}", footer.id);
        return Err(Error::damaged(name, at, reason));
    }
    let block = |kind, handle| {
        read_frame(
            file,
            at,
            handle,
            Wait::Block,
            &|| name.to_owned(),
            |frame| {
                let payload = open_frame(name, footer.id, kind, handle, frame)?;
                Block::parse(payload).map_err(|m| malformed(name, kind, handle, m))
            },
        )
    };
    let properties = Properties::decode(block(FrameKind::Properties, footer.properties)?)
        .map_err(|reason| Error::damaged(name, footer.properties.offset, reason))?;
    let top = Top::parse(&block(FrameKind::Top, footer.top)?, footer.top.offset)
        .map_err(|m| malformed(name, FrameKind::Top, footer.top, m))?;
    check_top(&top, &footer, &properties)
        .map_err(|reason| Error::damaged(name, footer.top.offset, reason))?;
    Ok(TableEnd {
        meta: properties.meta(footer.id, bytes, 0),
        footer,
        properties,
        top,
    })
}

fn read_footer(file: &dyn File, name: &str, bytes: u64) -> Result<Footer> {
    let Some(at) = bytes.checked_sub(FOOTER_BYTES as u64) else {
        let reason = format!("a table has at least {FOOTER_BYTES} bytes, this file has {bytes}");
        return Err(Error::damaged(name, 0, reason));
    };
    let mut footer = [0; FOOTER_BYTES];
    read_exact_at(file, &mut footer, at, Wait::Block).map_err(|e| io_error(name, at, e))?;
    Footer::decode(&footer).map_err(|e| match e {
        NotAFooter::Damaged(reason) => Error::damaged(name, at, reason),
        NotAFooter::Unknown(what) => Error::Unusable {
            reason: format!(
                "{name} has {what}, this program reads format {FORMAT}: \
                 open the folder with the program that wrote it, or a newer one"
            ),
        },
    })
}

/// Do top index, footer and properties tell the same story?
fn check_top(
    top: &Top,
    footer: &Footer,
    properties: &Properties,
) -> std::result::Result<(), String> {
    let Some(last) = top.len().checked_sub(1) else {
        return Err("the top index is empty".to_owned());
    };
    if top.len() as u64 != properties.partitions {
        return Err(format!(
            "the top index has {} partitions, the properties say {}",
            top.len(),
            properties.partitions
        ));
    }
    if top.partition(last).index.end() != footer.top.offset {
        return Err("the last partition does not end where the top index starts".to_owned());
    }
    if top.key(last) != properties.largest || properties.smallest > properties.largest {
        return Err("the last key of the top index is not the largest key".to_owned());
    }
    let version_max = (0..top.len()).map(|i| top.partition(i).version_max).max();
    if version_max != Some(properties.version_max) {
        return Err("the newest version differs from the properties".to_owned());
    }
    let wants_filters = footer.has_filters;
    if (0..top.len()).any(|i| top.partition(i).filter.is_some() != wants_filters) {
        return Err("the footer and the top index disagree about filters".to_owned());
    }
    if properties.tombstones > properties.records
        || properties.expiring > properties.records
        || properties.version_min > properties.version_max
    {
        return Err("the properties contradict each other".to_owned());
    }
    Ok(())
}
