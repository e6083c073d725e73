//! The server's own files in a data folder, beside the engine's, for tools that look at one without
//! a node.

use crate::disk::last_clock;
use crate::peers;
use dendra_engine::vfs::Vfs;
use std::io;

/// Names of the files. They tell why no node starts on the folder, and where the clock ended at a
/// clean stop. The others are left by a crash before one of these was whole.
pub const NAMES: [&str; 4] = [
    peers::MARK_NAME,
    peers::MARK_NAME_NEW,
    last_clock::NAME,
    last_clock::NAME_NEW,
];

/// Why no node starts on the folder: one that ran on it has left that there.
///
/// # Errors
/// The folder cannot be listed, or the file cannot be read; then no node starts on it, either.
pub fn why_no_start(vfs: &dyn Vfs) -> io::Result<Option<String>> {
    peers::marked(vfs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_engine::vfs::MemVfs;

    #[test]
    fn a_folder_keeps_why_it_was_refused_and_a_crash_between_leaves_no_half_of_it() {
        let vfs = MemVfs::new();
        // A crash between the two names.
        vfs.create(NAMES[1]).expect("it is new");
        assert_eq!(why_no_start(&vfs).expect("a folder"), None);
        peers::mark(&vfs, "nobody knows it").expect("there is room");
        peers::mark(&vfs, "nobody knows it still").expect("there is room");
        assert_eq!(vfs.list().expect("a folder"), [NAMES[0]]);
        let why = why_no_start(&vfs).expect("a folder").expect("marked");
        assert!(
            why.ends_with("REFUSED says: nobody knows it still"),
            "{why}"
        );
    }
}
