//! The files of a backup: manifests, objects, and how both are sealed.
//!
//! ```text
//! content ─► object::ObjectWriter ─► bytes of an object ─► object::ObjectReader ─► frames
//! manifest::BackupManifest ─► encode, or seal ─► bytes ─► decode, or open
//! seal.rs    what a repository's key derives, and chunks under it
//! ```
//!
//! Invariants
//! 1. No input panics, and none makes more memory than its own length and one frame. The bytes in a
//!    repository may be of any program that can write there.
//! 2. A reader takes a file as whole only if it is the file that a writer made. Its checksums tell
//!    that as far as they can; of a sealed file, its key does.
//!
//! Not here: names and places of files, the file of a key, the purpose of a backup (crate
//! `dendra`).
//! See: docs/format/backup.md, `tests/mutations.rs`, and the targets `backup_…` in `fuzz/`.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
pub mod manifest;
pub mod object;
pub mod seal;
