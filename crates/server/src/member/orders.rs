//! Orders of operators, on their way from the admin plane's thread to the steward, and the answers.
//!
//! ```text
//! admin plane ─ carry_out(order) ─► | at most ORDERS_OF_OPERATORS_MAX | ─► steward ─► answer
//!                    └─ full, or the steward has gone ─► NoSteward
//! ```
//!
//! Invariants
//! 1. Every order gets one answer, or its asker is told that there is no steward.
//!
//! Not here: the meaning of an order (crate `ownership`, `steward/`), its bytes (`admin/cluster/`).
//! See: docs/operating.md.

use crate::limits::ORDERS_OF_OPERATORS_MAX;
use dendra_ownership::steward::face::{ClusterAnswer, ClusterOrder};
use tokio::sync::{mpsc, oneshot};

/// An order on its way, and where its answer goes.
#[derive(Debug)]
pub(crate) struct OrderCall {
    pub(crate) order: ClusterOrder,
    /// An asker that has gone drops the other end.
    pub(crate) answer: oneshot::Sender<ClusterAnswer>,
}

/// Takes orders to the steward.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    steward: mpsc::Sender<OrderCall>,
}

/// Why an order has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSteward {
    /// So many other orders wait.
    Busy,
    /// The process stops.
    Gone,
}

/// The way of orders, and its end at the steward.
pub(crate) fn orders() -> (Orders, mpsc::Receiver<OrderCall>) {
    let (steward, ordered) = mpsc::channel(ORDERS_OF_OPERATORS_MAX);
    (Orders { steward }, ordered)
}

impl Orders {
    /// Has an order carried out.
    pub(crate) async fn carry_out(&self, order: ClusterOrder) -> Result<ClusterAnswer, NoSteward> {
        let (answer, answered) = oneshot::channel();
        self.steward
            .try_send(OrderCall { order, answer })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => NoSteward::Busy,
                mpsc::error::TrySendError::Closed(_) => NoSteward::Gone,
            })?;
        answered.await.map_err(|_gone| NoSteward::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_is_answered_refused_when_many_wait_and_at_the_end() {
        let (orders, mut ordered) = orders();
        let asked = orders.carry_out(ClusterOrder::Cancel);
        let steward = async {
            let OrderCall { order, answer } = ordered.recv().await.expect("an order");
            assert_eq!(order, ClusterOrder::Cancel);
            answer
                .send(ClusterAnswer::Done { epoch: 3 })
                .expect("its asker waits");
        };
        let (answered, ()) = tokio::join!(asked, steward);
        assert_eq!(answered, Ok(ClusterAnswer::Done { epoch: 3 }));

        let waiting: Vec<_> = (0..ORDERS_OF_OPERATORS_MAX)
            .map(|_| {
                tokio::spawn({
                    let orders = orders.clone();
                    async move { orders.carry_out(ClusterOrder::Status).await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let further = orders.carry_out(ClusterOrder::Status).await;
        assert_eq!(further, Err(NoSteward::Busy));
        drop(ordered);
        for asked in waiting {
            assert_eq!(asked.await.expect("it ends"), Err(NoSteward::Gone));
        }
        let late = orders.carry_out(ClusterOrder::Status).await;
        assert_eq!(late, Err(NoSteward::Gone));
    }
}
