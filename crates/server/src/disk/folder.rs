//! The server's own files in a data folder, beside the engine's, for tools that look at one without
//! a node.

use crate::disk::{last_clock, mark};
use dendra_engine::vfs::Vfs;
use std::io;

/// Names of the files. They tell why no node starts on the folder, that some members refused it,
/// and where the clock ended at a clean stop. The others are left by a crash before one of these
/// was whole.
pub const NAMES: [&str; 6] = [
    mark::MARK_NAME,
    mark::MARK_NAME_NEW,
    mark::DOUBT_NAME,
    mark::DOUBT_NAME_NEW,
    last_clock::NAME,
    last_clock::NAME_NEW,
];

/// Why no node starts on the folder: one that ran on it has left that there.
///
/// # Errors
/// The folder cannot be listed, or the file cannot be read; then no node starts on it, either.
pub fn why_no_start(vfs: &dyn Vfs) -> io::Result<Option<String>> {
    mark::marked(vfs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_engine::vfs::MemVfs;
    use dendra_ownership::membership::{Disowned, FolderVerdict};

    fn disowned(sentence: &str, folder: FolderVerdict) -> Disowned {
        let sentence = sentence.to_owned();
        Disowned { sentence, folder }
    }

    #[test]
    fn a_doubted_folder_may_start_and_a_sound_one_keeps_no_trace() {
        let vfs = MemVfs::new();
        let why = disowned("beside another one", FolderVerdict::Usable);
        mark::mark(&vfs, &why).expect("there is room");
        assert!(vfs.list().expect("a folder").is_empty());
        let why = disowned("one of two does not know it", FolderVerdict::Doubted);
        mark::mark(&vfs, &why).expect("there is room");
        assert_eq!(why_no_start(&vfs).expect("a folder"), None);
        assert!(mark::is_doubted(&vfs).expect("a folder"));
        mark::trust(&vfs).expect("a folder");
        assert!(!mark::is_doubted(&vfs).expect("a folder"));
    }

    #[test]
    fn a_folder_keeps_why_it_was_refused_and_a_crash_between_leaves_no_half_of_it() {
        let vfs = MemVfs::new();
        // A crash between the two names.
        vfs.create(NAMES[1]).expect("it is new");
        assert_eq!(why_no_start(&vfs).expect("a folder"), None);
        for sentence in ["nobody knows it", "nobody knows it still"] {
            let why = disowned(sentence, FolderVerdict::Refused);
            mark::mark(&vfs, &why).expect("there is room");
        }
        assert_eq!(vfs.list().expect("a folder"), [NAMES[0]]);
        let why = why_no_start(&vfs).expect("a folder").expect("marked");
        assert!(
            why.ends_with("REFUSED says: nobody knows it still"),
            "{why}"
        );
    }
}
