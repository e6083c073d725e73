//! A file system of a given size that a test mounts.
//!
//! Invariants
//! 1. It is gone when its test ends, however it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system, gone when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// A file system of this size, as `mount` writes it. `None`: this user may not mount.
    pub(crate) fn tmpfs(at: &Path, size: &str) -> Option<Mount> {
        let mut command = Command::new("mount");
        let options = format!("size={size}");
        command.args(["-t", "tmpfs", "-o", &options, "tmpfs"]);
        let mounted = command.arg(at).stderr(Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Mount(at.to_owned()))
    }

    /// Takes it away from under those that use it.
    pub(crate) fn detach(&self) -> bool {
        let mut command = Command::new("umount");
        let status = command
            .arg("-l")
            .arg(&self.0)
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.detach();
    }
}
