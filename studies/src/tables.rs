//! The tables of a data folder, seen from outside: files that end in `.tbl`.
//!
//! Not here: their contents (`docs/format/`).

use std::fs;
use std::path::{Path, PathBuf};

/// Every table below a data folder.
pub(super) fn tables(data: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![data.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "tbl") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Reads every table once, so that all are in the page cache. A kernel may give the pages of files
/// that were not read lately to others.
pub(super) fn read_all(data: &Path) -> Result<(), String> {
    for table in tables(data)? {
        let copied = fs::File::open(&table)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        copied.map_err(|e| format!("{}: {e}", table.display()))?;
    }
    Ok(())
}

/// The largest number in the name of a table; tables are numbered as they are made.
pub(super) fn newest(data: &Path) -> Result<u64, String> {
    let number = |path: &PathBuf| u64::from_str_radix(path.file_stem()?.to_str()?, 16).ok();
    Ok(tables(data)?.iter().filter_map(number).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_below_the_folder_and_numbered_in_hex() {
        let data = std::env::temp_dir().join(format!("dendra-tables-{}", std::process::id()));
        let inner = data.join("engine");
        fs::create_dir_all(&inner).expect("the folder for temporary files can be written");
        for name in ["1f.tbl", "0a.tbl", "wal-ff.log"] {
            fs::write(inner.join(name), name).expect("it was just made");
        }
        let found = (
            tables(&data).map(|all| all.len()),
            newest(&data),
            read_all(&data),
        );
        fs::remove_dir_all(&data).expect("it was made here");
        assert_eq!(found, (Ok(2), Ok(0x1f), Ok(())));
    }
}
