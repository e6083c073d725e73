//! A repository of backups: names, and the files that they stand for.
//!
//! ```text
//! dendra-backups              marks it as ours, and names its key
//! objects/<2 digits>/<32>     files of checkpoints by the name of their content
//! backups/<id>.json           one manifest for each backup, written last
//! ```
//!
//! Invariants
//! 1. A manifest is there only when everything that it names is.
//! 2. A repository has one key, or none, from its beginning: its mark says which.
//!
//! Not here: where the files are (`place/`), the bytes of objects and manifests (crate `archive`),
//! the file of a key (`key.rs`).
//! See: docs/format/backup.md.

use super::place::{self, BackupPlace, FileDraft, MARK, RepositoryUse};
use crate::exit::{Exit, Failure};
use dendra_archive::manifest::BackupManifest;
use dendra_archive::object::{ObjectReader, ObjectSum, ObjectWriter};
use dendra_archive::seal::BackupKey;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

const MARK_TEXT: &str = "backups of Dendra, format 1: see `dendra backup list`\n";
/// In front of the id of the key.
const MARK_SEALED: &str = "backups of Dendra, format 1, encrypted with the key ";
const MARK_BYTES_MAX: u64 = 4 << 10;
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// An open repository, in use until it is dropped.
#[derive(Debug)]
pub(crate) struct Repository {
    place: Box<dyn BackupPlace>,
    key: Option<BackupKey>,
}

impl Repository {
    /// Opens the repository at `path`, or makes one in a folder that is empty or missing.
    pub(crate) fn create(path: &Path, key: Option<BackupKey>) -> Result<Repository, Failure> {
        if !place::is_there(path)? {
            let place = place::found(path)?;
            let failed = |e: io::Error| Failure::output(&place.name(), &e);
            let text = match &key {
                None => MARK_TEXT.to_owned(),
                Some(key) => format!("{MARK_SEALED}{:016x}\n", key.id()),
            };
            let mut mark = place.draft().map_err(failed)?;
            mark.file.write_all(text.as_bytes()).map_err(failed)?;
            place.publish(mark, MARK).map_err(failed)?;
        }
        Repository::open(path, RepositoryUse::Shared, key)
    }

    /// Opens the repository at `path`.
    pub(crate) fn open(
        path: &Path,
        share: RepositoryUse,
        key: Option<BackupKey>,
    ) -> Result<Repository, Failure> {
        let repository = Repository {
            place: place::open(path, share)?,
            key,
        };
        repository.check_key()?;
        Ok(repository)
    }

    /// Is the key the one that the mark names?
    fn check_key(&self) -> Result<(), Failure> {
        let name = self.name();
        let failed = |e: io::Error| Failure::new(Exit::FAILURE, format!("{name}: {MARK}: {e}"));
        let mark = place::read(&*self.place, MARK, MARK_BYTES_MAX).map_err(failed)?;
        let mark = String::from_utf8_lossy(&mark);
        let named = mark.strip_prefix(MARK_SEALED).map(str::trim);
        let own = self.key.as_ref().map(|key| format!("{:016x}", key.id()));
        match (named, own) {
            (None, None) if mark == MARK_TEXT => Ok(()),
            (None, _) if mark != MARK_TEXT => Err(Failure::new(
                Exit::FAILURE,
                format!(
                    "{name}: {MARK} says {mark:?}: use the release that wrote it, or a newer one"
                ),
            )),
            (None, _) => Err(Failure::usage(format!(
                "{name} is not encrypted: leave the key out, or name a new folder"
            ))),
            (Some(named), None) => Err(Failure::usage(format!(
                "{name} is encrypted with the key {named}: give its file with --backup-key"
            ))),
            (Some(named), Some(own)) if named == own => Ok(()),
            (Some(named), Some(own)) => Err(Failure::usage(format!(
                "{name} is encrypted with the key {named}, and the file holds the key {own}"
            ))),
        }
    }

    /// Where it is, for messages.
    pub(crate) fn name(&self) -> String {
        self.place.name()
    }

    // Objects.

    /// Where the object with this content is, or would be.
    fn object(&self, content: u128) -> String {
        let stored = match &self.key {
            None => content,
            Some(key) => key.name_of(content),
        };
        let name = format!("{stored:032x}");
        format!("objects/{}/{name}", &name[..2])
    }

    /// Name of an object, for messages.
    pub(crate) fn object_name(&self, content: u128) -> String {
        format!("{}/{}", self.name(), self.object(content))
    }

    /// The object with this content.
    pub(crate) fn open_object(&self, content: u128) -> io::Result<ObjectReader> {
        let file = self.place.open(&self.object(content))?;
        ObjectReader::open(file, self.key.as_ref(), content)
    }

    /// The content of this object, if it is there and has its end.
    pub(crate) fn sum(&self, content: u128) -> io::Result<Option<ObjectSum>> {
        match self.open_object(content) {
            Ok(reader) => Ok(Some(reader.sum())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            // It is written anew.
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sums an object on a thread that may wait: a storage may take minutes for an answer.
    pub(crate) async fn sum_beside(
        self: &Arc<Repository>,
        content: u128,
    ) -> io::Result<Option<ObjectSum>> {
        let repository = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || repository.sum(content));
        read.await.map_err(io::Error::other)?
    }

    /// Begins an object; it has no name yet.
    pub(crate) fn begin(&self, content: u128) -> io::Result<NewObject> {
        let draft = self.place.draft()?;
        Ok(NewObject {
            writer: ObjectWriter::new(draft, self.key.as_ref(), content)?,
            content,
        })
    }

    /// Gives an object its name, durably.
    pub(crate) fn publish(&self, new: NewObject) -> io::Result<ObjectSum> {
        let (sum, draft) = new.writer.finish()?;
        self.place.publish(draft, &self.object(new.content))?;
        Ok(sum)
    }

    /// All objects by the names under which they are stored, with their lengths.
    pub(crate) fn objects(&self) -> io::Result<BTreeMap<String, u64>> {
        let listed = self.place.list("objects")?.into_iter();
        let is_object = |name: &str| {
            let digits = name.rsplit('/').next().unwrap_or_default();
            digits.len() == 32 && u128::from_str_radix(digits, 16).is_ok()
        };
        let objects = listed.filter(|it| is_object(&it.name));
        Ok(objects.map(|it| (it.name, it.bytes)).collect())
    }

    /// The names under which the objects of a backup are stored.
    pub(crate) fn names_of<'a>(
        &'a self,
        manifest: &'a BackupManifest,
    ) -> impl Iterator<Item = String> + 'a {
        manifest.files().map(|(_, file)| self.object(file.object))
    }

    /// Does this use of the repository still count?
    pub(crate) fn check_use(&self) -> io::Result<()> {
        self.place.check_use()
    }

    /// Removes an object by the name under which it is stored.
    pub(crate) fn remove_object(&self, name: &str) -> io::Result<()> {
        self.place.remove(name)
    }

    /// Removes the files that killed backups left under no name. Requires: it is used alone.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        self.place.tidy()
    }

    // Manifests.

    fn manifest_name(id: &str) -> String {
        format!("backups/{id}.json")
    }

    /// Names of all backups, oldest first.
    pub(crate) fn ids(&self) -> io::Result<Vec<String>> {
        let listed = self.place.list("backups")?.into_iter();
        let ids = listed.filter_map(|it| {
            let id = it.name.strip_prefix("backups/")?.strip_suffix(".json")?;
            Some(id.to_owned())
        });
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        Ok(ids)
    }

    /// Reads the manifest of a backup.
    pub(crate) fn manifest(&self, id: &str) -> Result<BackupManifest, Failure> {
        let name = Repository::manifest_name(id);
        let whole = format!("{}/{name}", self.name());
        let bytes = place::read(&*self.place, &name, MANIFEST_BYTES_MAX);
        let bytes = bytes.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::NOT_FOUND,
                format!(
                    "{} has no backup {id}: see `dendra backup list`",
                    self.name()
                ),
            ),
            _ => Failure::new(Exit::FAILURE, format!("{whole} ({e})")),
        })?;
        let read = match &self.key {
            None => BackupManifest::decode(&bytes),
            Some(key) => BackupManifest::open(&bytes, key, id),
        };
        read.and_then(|manifest| {
            if manifest.id == id {
                Ok(manifest)
            } else {
                Err(format!("it is the manifest of {}", manifest.id))
            }
        })
        .map_err(|why| Failure::new(Exit::FAILURE, format!("{whole}: {why}")))
    }

    /// Writes the manifest of a backup, durably: from now on it counts.
    pub(crate) fn add(&self, manifest: &BackupManifest) -> io::Result<()> {
        self.check_use()?;
        let bytes = match &self.key {
            None => manifest.encode(),
            Some(key) => manifest.seal(key)?,
        };
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the list of its files has {} bytes, and none is read that has more than \
                 {MANIFEST_BYTES_MAX}",
                bytes.len()
            )));
        }
        let mut draft = self.place.draft()?;
        draft.file.write_all(&bytes)?;
        self.place
            .publish(draft, &Repository::manifest_name(&manifest.id))
    }

    /// Removes backups. Their objects stay until `remove_object`.
    pub(crate) fn remove(&self, ids: &[String]) -> io::Result<()> {
        let mut names = ids.iter().map(|id| Repository::manifest_name(id));
        names.try_for_each(|name| self.place.remove(&name))
    }
}

/// An object that is being written.
pub(crate) struct NewObject {
    pub(crate) writer: ObjectWriter<FileDraft>,
    content: u128,
}
