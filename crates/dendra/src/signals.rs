//! Signals that ask a process to stop.
//!
//! Not here: the reaction (`dev/`).

use tokio::signal::unix::{SignalKind, signal};

/// Calls `then` at each SIGINT and SIGTERM, on a thread of its own.
pub(crate) fn on_signals(then: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let signals = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = signals.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            signals.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => then(),
                        _ = terminate.recv() => then(),
                    }
                }
            });
        })?;
    Ok(())
}
