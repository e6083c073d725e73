//! The wall clock of one process, bent while it runs.
//!
//! ```text
//! BentClock::new(folder) ─► of(&mut command) ─► the process starts ─► ahead(7_200), ahead(0)
//!                     bent_clock.c, preloaded ─► clock_gettime ◄─ the file, mapped by the process
//! ```
//!
//! Invariants
//! 1. Only the wall clock is bent: waits and deadlines go on as in each other process.
//!
//! Not here: other processes' clocks, and a simulated one (crate `sim`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/bent_clock.c");

pub(crate) struct BentClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl BentClock {
    /// A clock that is right, with its files in `folder`.
    pub(crate) fn new(folder: &Path) -> BentClock {
        let (library, path) = (folder.join("bent_clock.so"), folder.join("bent_clock"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
        let compiled = compiler.arg(&library).arg(SOURCE).status();
        let status = compiled.expect("a C compiler is there: the build needs it, too");
        assert!(status.success(), "{SOURCE}: {status}");
        let file = File::create_new(&path).expect("a new name");
        let clock = BentClock {
            library,
            path,
            file,
        };
        clock.ahead(0);
        clock
    }

    /// The command's process, and each later one of it, has this clock.
    pub(crate) fn of(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("BENT_CLOCK", &self.path);
    }

    /// Behind is negative.
    pub(crate) fn ahead(&self, seconds: i64) {
        let written = self.file.write_all_at(&seconds.to_ne_bytes(), 0);
        written.expect("the disk works");
    }
}
