//! The files of a backup: manifests, objects, and how both are sealed.
//!
//! ```text
//! content ─► object::ObjectWriter ─► bytes of an object ─► object::ObjectReader ─► frames
//! manifest::BackupManifest ─► encode, or seal ─► bytes ─► decode, or open
//! seal.rs    what a repository's key derives, and chunks under it
//! ```
//!
//! Invariants
//! 1. No input panics, and none makes more memory than its own length and one frame: what is in a
//!    repository may be of anybody who can write there.
//! 2. A reader takes a file as whole only if it is what a writer made, as far as its checksums can
//!    tell; of a sealed file, as far as its key can.
//!
//! Not here: names and places of files, the file of a key, what a backup is for (crate `dendra`).
//! See: docs/format/backup.md, `tests/mutations.rs`, and the targets `backup_…` in `fuzz/`.

#![forbid(unsafe_code)]

pub mod manifest;
pub mod object;
pub mod seal;
