//! Commands and files, with sentences for their failures.

use std::path::Path;
use std::process::Command;

/// Runs a command, and returns its stdout.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().display().to_string();
    let ran = command.output();
    let ran = ran.map_err(|e| format!("{name} does not start ({e}); install it first"))?;
    if ran.status.success() {
        Ok(ran.stdout)
    } else {
        Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&ran.stderr).trim()
        ))
    }
}

/// The same, as text.
pub(super) fn text(command: &mut Command) -> Result<String, String> {
    let out = output(command)?;
    Ok(String::from_utf8_lossy(&out).trim().to_owned())
}

/// The sentence for a file that failed.
pub(super) fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}
