//! The runtime in which commands wait.

use crate::exit::{Exit, Failure};

/// A runtime on the calling thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::FAILURE, format!("the runtime cannot start ({e})")))
}

/// Runs all of them, and returns their results in order.
pub(crate) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|it| (Some(Box::pin(it)), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut waiting {
            if let Some(it) = future {
                match it.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => {
                        *output = Some(value);
                        *future = None;
                    }
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    let outputs = waiting.into_iter().map(|(_, output)| output);
    outputs.map(|it| it.expect("all are done")).collect()
}
