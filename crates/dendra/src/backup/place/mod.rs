//! Where a repository is kept: a folder, or a bucket, by the form of its name.
//!
//! Not here: the duties of a place (`shelf.rs`).

mod folder;
mod s3;
mod shelf;

use crate::exit::Failure;
use folder::FolderPlace;
use s3::S3Place;
pub(crate) use shelf::{BackupPlace, FileDraft, MARK, RepositoryUse, read};
use std::path::Path;

/// Is there a repository at `path`?
pub(crate) fn is_there(path: &Path) -> Result<bool, Failure> {
    if s3::is_s3(path) {
        S3Place::is_there(path)
    } else {
        Ok(FolderPlace::is_there(path))
    }
}

/// A place for a new repository: there is no other one in it, and it is not in use yet.
pub(crate) fn found(path: &Path) -> Result<Box<dyn BackupPlace>, Failure> {
    Ok(if s3::is_s3(path) {
        Box::new(S3Place::found(path)?)
    } else {
        Box::new(FolderPlace::found(path)?)
    })
}

/// The repository at `path`, in use until it is dropped.
pub(crate) fn open(path: &Path, share: RepositoryUse) -> Result<Box<dyn BackupPlace>, Failure> {
    Ok(if s3::is_s3(path) {
        Box::new(S3Place::open(path, share)?)
    } else {
        Box::new(FolderPlace::open(path, share)?)
    })
}
