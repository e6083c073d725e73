//! Which files of this machine the demonstration loads.
//!
//! ```text
//! candidates in order, whole folders, until there are 10,000 files and 200 MB:
//! /usr/share/doc ─► each folder of /usr/share ─► the toolchain's share ─► each of /usr/lib ─►
//! cargo's registry ─► files made from a seed (said in the output)
//! ```
//!
//! Invariants
//! 1. Only files that a node can store count: readable, at most 1 MiB, key of at most 1024 bytes.
//! 2. Symlinks are not followed, as `dendra load` does not.
//! 3. No file is under two roots.
//!
//! Not here: loading (`mod.rs`).
//! See: docs/cli.md.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES_MIN: usize = 10_000;
const BYTES_MIN: u64 = 200_000_000;
/// The sizes that a node stores unless told otherwise.
const VALUE_BYTES_MAX: u64 = 1 << 20;
const KEY_BYTES_MAX: usize = 1024;
/// Under this prefix the second load stores everything once more.
pub(crate) const AGAIN: &str = "again/";
/// Room in front of a key for it.
const PREFIX_ROOM: usize = AGAIN.len();
/// More from one candidate folder makes the demonstration long and no better.
const ROOT_BYTES_MAX: u64 = 400_000_000;
const SEED: u64 = 20_251_121;

/// One file.
pub(super) struct Record {
    /// The root's prefix and the path below the root.
    pub(super) key: Vec<u8>,
    /// Where it is.
    pub(super) path: PathBuf,
}

/// One folder that is loaded as a whole.
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) prefix: String,
    /// Files that a node stores.
    pub(super) records: usize,
    /// Files that it refuses, or that cannot be read.
    pub(super) unstorable: usize,
}

/// All of it.
pub(super) struct Corpus {
    pub(super) roots: Vec<Root>,
    pub(super) records: Vec<Record>,
    bytes: u64,
    generated: usize,
}

impl Corpus {
    /// One sentence for the output.
    pub(super) fn describe(&self) -> String {
        let first = self.roots.first().map_or("", |root| &root.prefix);
        let last = self.roots.last().map_or("", |root| &root.prefix);
        let made = match self.generated {
            0 => String::new(),
            n => format!("; this machine has too few, so {n} of them are made from seed {SEED}"),
        };
        format!(
            "{} files, {} bytes, from {} folders: /{first} … /{last}{made}",
            self.records.len(),
            self.bytes,
            self.roots.len()
        )
    }

    /// Files that a node refuses.
    pub(super) fn unstorable(&self) -> usize {
        self.roots.iter().map(|root| root.unstorable).sum()
    }

    fn is_enough(&self) -> bool {
        self.records.len() >= FILES_MIN && self.bytes >= BYTES_MIN
    }

    fn add(&mut self, path: &Path) {
        let mut root = Root {
            path: path.to_owned(),
            prefix: format!("{}/", path.display().to_string().trim_start_matches('/')),
            records: 0,
            unstorable: 0,
        };
        let (mut records, mut bytes) = (Vec::new(), 0);
        if walk(path, &mut root, &mut records, &mut bytes).is_err() || bytes > ROOT_BYTES_MAX {
            return;
        }
        if !records.is_empty() {
            self.bytes += bytes;
            self.records.append(&mut records);
            self.roots.push(root);
        }
    }
}

/// Adds the files below `path`. A folder that cannot be listed makes the root unusable: `dendra
/// load` would report it, and the counts here would not be comparable.
fn walk(path: &Path, root: &mut Root, found: &mut Vec<Record>, bytes: &mut u64) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            walk(&path, root, found, bytes)?;
        } else if metadata.is_file() {
            let below = path.strip_prefix(&root.path).unwrap_or(&path);
            let key = [root.prefix.as_bytes(), below.as_os_str().as_bytes()].concat();
            let is_storable = metadata.len() <= VALUE_BYTES_MAX
                && key.len() + PREFIX_ROOM <= KEY_BYTES_MAX
                && fs::File::open(&path).is_ok();
            if is_storable {
                *bytes += metadata.len();
                root.records += 1;
                found.push(Record { key, path });
            } else {
                root.unstorable += 1;
            }
        }
    }
    Ok(())
}

/// Whole folders of this machine, and made files under `place` when they are not enough.
pub(super) fn gather(place: &Path) -> Result<Corpus, String> {
    let mut corpus = Corpus {
        roots: Vec::new(),
        records: Vec::new(),
        bytes: 0,
        generated: 0,
    };
    for candidate in candidates() {
        if corpus.is_enough() {
            break;
        }
        corpus.add(&candidate);
    }
    if !corpus.is_enough() {
        let made = place.join("made");
        let files = FILES_MIN.saturating_sub(corpus.records.len()).max(1000);
        let bytes = BYTES_MIN.saturating_sub(corpus.bytes);
        make_files(&made, files, bytes).map_err(|e| format!("{}: {e}", made.display()))?;
        corpus.add(&made);
        corpus.generated = files;
    }
    Ok(corpus)
}

fn candidates() -> Vec<PathBuf> {
    let doc = PathBuf::from("/usr/share/doc");
    let mut all = vec![doc.clone()];
    all.extend(
        folders_of("/usr/share")
            .into_iter()
            .filter(|path| *path != doc),
    );
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    if let Ok(output) = sysroot {
        let root = String::from_utf8_lossy(&output.stdout);
        all.extend(folders_of(format!("{}/share/doc/rust/html", root.trim())));
    }
    all.extend(folders_of("/usr/lib"));
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    if let Some(home) = home {
        all.extend(folders_of(home.join("registry/src")));
    }
    all
}

/// Real folders directly below `path`, sorted; none when it cannot be read.
fn folders_of(path: impl AsRef<Path>) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    folders
}

/// `files` files that together have at least `bytes` bytes, the same in every run.
fn make_files(place: &Path, files: usize, bytes: u64) -> io::Result<()> {
    let len = (bytes / files as u64 + 1).min(VALUE_BYTES_MAX) as usize;
    let mut state = SEED;
    let mut content = vec![0u8; len];
    for n in 0..files {
        for piece in content.chunks_mut(8) {
            // splitmix64: good enough to be neither compressible nor repeated.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            piece.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..piece.len()]);
        }
        let folder = place.join(format!("{:03}", n / 1000));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("{n:06}")), &content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_files_are_enough_and_the_same_in_every_run() {
        let place = std::env::temp_dir().join(format!("dendra-demo-test-{}", std::process::id()));
        make_files(&place.join("a"), 12, 10_000).expect("the disk has room");
        make_files(&place.join("b"), 12, 10_000).expect("the disk has room");
        let mut corpus = Corpus {
            roots: Vec::new(),
            records: Vec::new(),
            bytes: 0,
            generated: 0,
        };
        corpus.add(&place.join("a"));
        let first = fs::read(place.join("a/000/000007")).expect("it was made");
        let again = fs::read(place.join("b/000/000007")).expect("it was made");
        fs::remove_dir_all(&place).expect("it is ours");
        assert_eq!(corpus.records.len(), 12);
        assert!(corpus.bytes >= 10_000);
        assert_eq!(first, again);
    }
}
