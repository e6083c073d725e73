//! The progress bar of a backup, a verify and a restore.

use crate::console::Console;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of bytes on a terminal.
pub(crate) fn bar(total: u64, console: Console) -> ProgressBar {
    let target = if console.is_quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let template = "{spinner} {bytes} of {total_bytes} {wide_bar} {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
