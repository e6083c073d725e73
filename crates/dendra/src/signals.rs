//! Signals that ask a process to stop.
//!
//! Not here: the reaction (`bench/`, `dev/`, `main.rs`).

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{SignalKind, signal};

/// Calls `then` at each signal of these kinds, on a thread of its own. None is missed from the
/// return on.
pub(crate) fn on_signals(
    kinds: &[SignalKind],
    mut then: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _inside = runtime.enter();
        let signals = kinds.iter().map(|kind| signal(*kind));
        signals.collect::<io::Result<Vec<_>>>()?
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                loop {
                    poll_fn(|cx| {
                        let mut came = signals.iter_mut().map(|it| it.poll_recv(cx).is_ready());
                        if came.any(|came| came) {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    })
                    .await;
                    then();
                }
            });
        })?;
    Ok(())
}
