//! Reads a backup: the checkpoints of its nodes, merged into the newest state of each key.
//!
//! ```text
//! objects ─► ArchiveVfs ─► Snapshot (crate `engine`), one for each node ─► MergedWalk ─► key, newest cell
//! ```
//!
//! Invariants
//! 1. No file is copied or written: frames are decoded where they are read. A node's files share
//!    `FRAMES_HELD_MAX` decoded frames, however many files it has.
//! 2. Keys come once each, in order, with the newest of all nodes' cells.
//! 3. Cells of one version that differ are counted: a backup proves that its nodes agree. They are
//!    compared as of the cut. A value that had ended by then is the tombstone that a node's tables
//!    make of it, sooner or later.
//!
//! Not here: the use of the records (`verify.rs`, `restore.rs`).
//! See: docs/format/backup.md.

use super::repository::Repository;
use dendra_archive::manifest::{BackupManifest, BackupNode};
use dendra_archive::object::{FrameScratch, ObjectReader};
use dendra_base::{Cell, Direction, Space, Version};
use dendra_engine::vfs::{DiskSpace, File, FolderLock, Vfs, Wait};
use dendra_engine::{Cursor, Error, Flow, Progress, Show, Snapshot};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Records of one node that are read at once.
const READ_BYTES: usize = 4 << 20;
/// Decoded frames of one node. A scan goes forward in one table of each level, and in the few of
/// level 0. In each it looks at a data frame, and now and then at an index.
const FRAMES_HELD_MAX: usize = 64;

/// A checkpoint in a repository, as a folder.
struct ArchiveVfs {
    repository: Arc<Repository>,
    /// Contents of the checkpoint's files, by name.
    files: BTreeMap<String, u128>,
    of: String,
    shelf: Arc<Mutex<FrameShelf>>,
}

fn read_only() -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "a backup is not written to",
    )
}

impl Vfs for ArchiveVfs {
    fn create(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(read_only())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let content = *self.files.get(name).ok_or(io::ErrorKind::NotFound)?;
        let place = self.repository.object_name(content);
        let object = self.repository.open_object(content);
        let object = object.map_err(|e| in_object(&place, &e))?;
        Ok(Arc::new(ArchiveFile {
            content,
            place,
            object,
            shelf: Arc::clone(&self.shelf),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(read_only())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        Err(read_only())
    }

    fn room(&self) -> io::Result<DiskSpace> {
        Err(read_only())
    }

    fn link_into(&self, _: &str, _: &Path) -> io::Result<()> {
        Err(read_only())
    }

    fn describe(&self) -> String {
        self.of.clone()
    }
}

fn in_object(place: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{place}: {error}"))
}

/// A decoded frame, and where it belongs.
#[derive(Default)]
struct DecodedFrame {
    /// Content of the file.
    content: u128,
    begins: u64,
    bytes: Vec<u8>,
}

/// The frames that were read last, newest first.
struct FrameShelf {
    frames: VecDeque<DecodedFrame>,
    scratch: FrameScratch,
}

impl FrameShelf {
    /// The frame of `file` with the byte at `offset`.
    fn frame(&mut self, file: &ArchiveFile, offset: u64) -> io::Result<&DecodedFrame> {
        let holds = |frame: &DecodedFrame| {
            let end = frame.begins + frame.bytes.len() as u64;
            frame.content == file.content && (frame.begins..end).contains(&offset)
        };
        let frame = match self.frames.iter().position(holds) {
            Some(at) => self.frames.remove(at).expect("it was found there"),
            None => {
                // Of the oldest one its memory is left.
                let mut frame = if self.frames.len() < FRAMES_HELD_MAX {
                    DecodedFrame::default()
                } else {
                    self.frames.pop_back().expect("there are some")
                };
                let object = &file.object;
                let begins = object.frame_at(offset, &mut self.scratch, &mut frame.bytes)?;
                (frame.content, frame.begins) = (file.content, begins);
                frame
            }
        };
        self.frames.push_front(frame);
        Ok(&self.frames[0])
    }
}

/// One file of it.
struct ArchiveFile {
    content: u128,
    place: String,
    object: ObjectReader,
    shelf: Arc<Mutex<FrameShelf>>,
}

impl File for ArchiveFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _: Wait) -> io::Result<usize> {
        if offset >= self.object.sum().bytes || buf.is_empty() {
            return Ok(0);
        }
        let mut shelf = self.shelf.lock().expect("no holder panics");
        let frame = shelf.frame(self, offset);
        let frame = frame.map_err(|e| in_object(&self.place, &e))?;
        let rest = &frame.bytes[(offset - frame.begins) as usize..];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync(&self) -> io::Result<()> {
        Err(read_only())
    }

    fn start_writeback(&self, _: u64, _: u64) {}

    fn forget_cached(&self) {}

    fn len(&self) -> io::Result<u64> {
        Ok(self.object.sum().bytes)
    }
}

/// One node's records in order.
struct NodeWalk {
    url: String,
    snapshot: Snapshot,
    cursor: Cursor,
    page: VecDeque<(Vec<u8>, Cell)>,
    is_done: bool,
}

impl NodeWalk {
    fn fill(&mut self) -> Result<(), String> {
        while self.page.is_empty() && !self.is_done {
            let page = &mut self.page;
            let mut damaged = None;
            let mut bytes = 0;
            let progress = self
                .snapshot
                .scan(&mut self.cursor, READ_BYTES, |key, cell| {
                    if !cell.is_intact(key) {
                        damaged = Some(key.to_vec());
                        return Flow::Pause;
                    }
                    bytes += key.len() + cell.value.len();
                    page.push_back((key.to_vec(), cell.to_owned()));
                    if bytes >= READ_BYTES {
                        Flow::Pause
                    } else {
                        Flow::Continue
                    }
                });
            if let Some(key) = damaged {
                return Err(format!(
                    "{}: the value of {} is not the one that was stored: it was damaged on the node",
                    self.url,
                    crate::console::show_key(&key[1..])
                ));
            }
            let progress = progress.map_err(|e| in_words(&self.url, &e))?;
            self.is_done = progress == Progress::Done;
        }
        Ok(())
    }
}

fn in_words(url: &str, error: &Error) -> String {
    match error {
        Error::Damaged { .. } => format!("{url}: {error}: it was damaged on the node already"),
        _ => format!("{url}: {error}"),
    }
}

/// Two cells of one version that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disagreement {
    pub(crate) raw_key: Vec<u8>,
    pub(crate) urls: [String; 2],
}

/// The newest state of each key of a range.
pub(crate) struct MergedWalk {
    nodes: Vec<NodeWalk>,
    /// The latest wall time of the cut that any clock showed.
    cut_ms: u64,
    /// Disagreements that were met since they were last taken.
    pub(crate) disagreements: Vec<Disagreement>,
}

impl MergedWalk {
    /// The records of `manifest` with `prefix`, after the key `behind` if it is not empty.
    pub(crate) fn open(
        repository: &Arc<Repository>,
        manifest: &BackupManifest,
        prefix: &[u8],
        behind: &[u8],
    ) -> Result<MergedWalk, String> {
        let nodes = manifest.nodes.iter();
        let nodes = nodes.map(|node| open_node(repository, node, prefix, behind));
        Ok(MergedWalk {
            nodes: nodes.collect::<Result<_, String>>()?,
            cut_ms: manifest.cut_ms.max(clock_ms(manifest.hlc)),
            disagreements: Vec::new(),
        })
    }

    /// The largest clock value that any of its nodes may have used.
    pub(crate) fn hlc(&self) -> u64 {
        let nodes = self.nodes.iter();
        nodes.map(|node| node.snapshot.hlc()).max().unwrap_or(0)
    }

    /// Records of all nodes' tables, older copies included: the most that a walk reads.
    pub(crate) fn records(&self) -> u64 {
        self.nodes.iter().map(|node| node.snapshot.records()).sum()
    }

    /// The next raw key and its newest cell.
    pub(crate) fn next(&mut self) -> Result<Option<(Vec<u8>, Cell)>, String> {
        for node in &mut self.nodes {
            node.fill()?;
        }
        let firsts = self.nodes.iter().filter_map(|node| node.page.front());
        let Some(key) = firsts.map(|(key, _)| key).min().cloned() else {
            return Ok(None);
        };
        let cut_ms = self.cut_ms;
        let state = |cell: &Cell| cell.as_ref().is_live(cut_ms).then(|| cell.id());
        let mut newest: Option<(Cell, usize)> = None;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            if node.page.front().is_none_or(|(other, _)| *other != key) {
                continue;
            }
            let (_, cell) = node.page.pop_front().expect("it was looked at");
            match &newest {
                Some((best, of)) if cell.version == best.version => {
                    if state(&cell) != state(best) {
                        self.disagreements.push(Disagreement {
                            raw_key: key[1..].to_vec(),
                            urls: [self.nodes[*of].url.clone(), self.nodes[at].url.clone()],
                        });
                    }
                    // A value that ends, and what another node has left of it.
                    if cell.is_newer_than(best) {
                        newest = Some((cell, at));
                    }
                }
                Some((best, _)) if !cell.is_newer_than(best) => {}
                _ => newest = Some((cell, at)),
            }
        }
        let (cell, _) = newest.expect("the key is some node's first");
        Ok(Some((key[1..].to_vec(), cell)))
    }
}

/// The wall time of a clock value.
fn clock_ms(hlc: u64) -> u64 {
    let version = Version {
        hlc,
        ..Version::ZERO
    };
    version.wall_ms()
}

fn open_node(
    repository: &Arc<Repository>,
    node: &BackupNode,
    prefix: &[u8],
    behind: &[u8],
) -> Result<NodeWalk, String> {
    let files = node.all_files();
    let vfs = ArchiveVfs {
        repository: Arc::clone(repository),
        files: files.map(|file| (file.name.clone(), file.object)).collect(),
        of: format!("the checkpoint of {}", node.url),
        shelf: Arc::new(Mutex::new(FrameShelf {
            frames: VecDeque::new(),
            scratch: FrameScratch::new().map_err(|e| e.to_string())?,
        })),
    };
    let kept: Vec<String> = node.kept.iter().map(|file| file.name.clone()).collect();
    let snapshot = Snapshot::open_with(&vfs, &kept).map_err(|e| in_words(&node.url, &e))?;
    let stored = |raw: &[u8]| [&[Space::User.byte()], raw].concat();
    let start = if behind.is_empty() {
        Bound::Included(stored(prefix))
    } else {
        Bound::Excluded(stored(behind))
    };
    let end = Bound::Excluded(behind_prefix(stored(prefix)));
    Ok(NodeWalk {
        url: node.url.clone(),
        snapshot,
        cursor: Cursor::new(start, end, Direction::Forward, Show::All),
        page: VecDeque::new(),
        is_done: false,
    })
}

/// The first key after all that begin with `prefix`. Its first byte is a space's, which is not the
/// last byte there is.
fn behind_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while prefix.last() == Some(&u8::MAX) {
        prefix.pop();
    }
    let last = prefix.last_mut().expect("the space's byte is left");
    *last += 1;
    prefix
}
