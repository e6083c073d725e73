//! Logs of `dendra serve`: text on a terminal, one JSON object a line otherwise, always on stderr.
//!
//! ```text
//! --log info,dendra_engine=debug      default level, then exceptions by target
//! ```
//!
//! Invariants
//! 1. No log line goes to stdout: that is for data.
//! 2. Levels are checked when options are read, so that a typo stops the start and not the log.
//!
//! Not here: rotation (the supervisor's), messages of client commands (`console.rs`).
//! See: docs/cli.md.

use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The filter that `text` describes, or how to write it instead.
pub(crate) fn parse_levels(text: &str) -> Result<Targets, String> {
    let fix = "write a level (off, error, warn, info, debug, trace), or levels by target like info,dendra_engine=debug";
    if text.trim().is_empty() {
        return Err(format!("is empty; {fix}"));
    }
    // `Targets` reads an unknown bare word as the name of a target: `--log loud` would mean
    // "everything of `loud`" and silence the rest.
    for part in text.split(',').map(str::trim) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        // The empty word parses, as `error`.
        if level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("{level:?} is not a log level; {fix}"));
        }
    }
    text.parse::<Targets>()
        .map_err(|e| format!("{text:?} is not a list of log levels ({e}); {fix}"))
}

/// Starts logging for the rest of the process.
pub(crate) fn start(levels: Targets, is_coloured: bool) -> Result<(), String> {
    let registry = tracing_subscriber::registry().with(levels);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = if std::io::stderr().is_terminal() {
        registry.with(layer.with_ansi(is_coloured)).try_init()
    } else {
        registry.with(layer.json().flatten_event(true)).try_init()
    };
    started.map_err(|e| format!("the log cannot start: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_by_target_are_read() {
        let levels = parse_levels("warn,dendra_engine=debug").expect("it is well formed");
        assert!(levels.would_enable("dendra_engine", &tracing::Level::DEBUG));
        assert!(!levels.would_enable("dendra_server", &tracing::Level::INFO));
        assert!(levels.would_enable("dendra_server", &tracing::Level::WARN));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in ["", "loud", "info,dendra_engine=loud", "info,,"] {
            assert!(parse_levels(text).is_err(), "{text:?} must be refused");
        }
    }
}
