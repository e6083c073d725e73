//! The file of a repository's key: 64 hexadecimal digits, for its owner alone.
//!
//! Invariants
//! 1. A file that others may read is refused, and none is written over.
//!
//! Not here: the keys that are derived from a key (crate `archive`).
//! See: docs/format/backup.md, "Encryption".

use crate::exit::{Exit, Failure};
use dendra_archive::seal::{self, BackupKey, KEY_BYTES};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file with a key has one line.
const FILE_BYTES_MAX: u64 = 1 << 10;

/// Reads the file of a key.
pub(crate) fn read(path: &Path) -> Result<BackupKey, Failure> {
    let what = "the key of the backups";
    let bytes = dendra_server::secret(path, what, FILE_BYTES_MAX);
    let bytes = bytes.map_err(Failure::usage)?;
    let text = String::from_utf8_lossy(&bytes);
    match parse(text.trim()) {
        Some(key) => Ok(BackupKey::new(key)),
        None => Err(Failure::usage(format!(
            "{} holds no key: 64 hexadecimal digits, as `dendra backup key` writes them",
            path.display()
        ))),
    }
}

/// Makes a file with a new key.
pub(crate) fn create(path: &Path) -> Result<BackupKey, Failure> {
    let bytes: [u8; KEY_BYTES] = random()?;
    let failed = |e: std::io::Error| Failure::output(&path.display().to_string(), &e);
    let opened = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::usage(format!(
            "{} is there already, and a key is never overwritten: name another file",
            path.display()
        )),
        _ => failed(error),
    })?;
    let line = digits(&bytes) + "\n";
    file.write_all(line.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(BackupKey::new(bytes))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let pairs = text.as_bytes().chunks(2);
    let bytes = pairs.map(|it| dendra_base::hex::pair(*it.first()?, *it.get(1)?));
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    seal::random().map_err(|e| Failure::new(Exit::FAILURE, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_legal_backup_key_is_read_from_its_digits(bytes: [u8; KEY_BYTES]) {
            prop_assert_eq!(parse(&digits(&bytes)), Some(bytes));
            prop_assert_eq!(parse(&digits(&bytes).to_uppercase()), Some(bytes));
        }
    }

    #[test]
    fn a_key_file_is_private_made_once_and_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let made = create(&path).expect("it is new");
        assert_eq!(read(&path).expect("a key").id(), made.id());
        let again = create(&path).expect_err("it is there");
        assert_eq!(again.exit, Exit::USAGE);
        let sentence = again.sentence;
        assert!(sentence.contains("name another file"), "{sentence}");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&path, mode).expect("it is ours");
        assert!(read(&path).is_err(), "others may read it");
        let short = folder.path().join("short");
        let mut file = fs::OpenOptions::new();
        let mut file = file
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&short)
            .expect("new");
        file.write_all(b"beef\n").expect("there is room");
        assert!(read(&short).is_err(), "too short");
    }
}
