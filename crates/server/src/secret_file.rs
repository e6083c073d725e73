//! Files that an operator names: read whole, to a bound, and those with secrets only where nobody
//! else may open them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The content of a file that only its owner may open; `what` is its name in sentences.
///
/// # Errors
/// When it cannot be read, is longer than `bytes_max`, or others may open it.
pub fn secret(path: &Path, what: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
    let name = path.display();
    let unreadable = |e| format!("{what}, {name}, cannot be read ({e}): check its path and rights");
    let file = File::open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if found.is_dir() {
        return Err(format!("{what}, {name}, is a folder: name a file"));
    }
    let mode = found.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!(
            "{what}, {name}, is open to others than its owner (mode {:04o}): chmod 600 {name}",
            mode & 0o7777
        ));
    }
    let read = content(file, bytes_max).map_err(unreadable)?;
    read.ok_or_else(|| too_long(path, what, bytes_max))
}

/// All bytes of a file; `None` = it has more than `bytes_max`.
pub(crate) fn content(file: File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

pub(crate) fn too_long(path: &Path, what: &str, bytes_max: u64) -> String {
    let name = path.display();
    format!(
        "{what}, {name}, has more than {bytes_max} bytes, so it is something else: check its path"
    )
}
