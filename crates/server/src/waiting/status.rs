//! The only table from the result of a request to the bytes of its answer.
//!
//! ```text
//! Found, Touched 200   Unchanged 304   Missing 404   Stored 201   Deleted 202   ConditionFailed 412
//! Overloaded 503, disk full 507   DeadlinePassed, Abandoned 503   Unreachable, NotEnough, Overtaken 504
//! Refused (own queues) 503   damaged, failed 500
//! ```
//!
//! Invariants
//! 1. An answer is counted where it is formed: once, under its operation and its status.
//!
//! Not here: the bytes themselves (crate `wire`, `http::response`), refusals of unreadable
//! requests. See: docs/api.md.

use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::retry_after::{disk_full_after_s, retry_after_s};
use dendra_base::{CellRef, Consistency, Durability, Quorum};
use dendra_node::{Known, Outcome};
use dendra_wire::Refusal;
use dendra_wire::http::ConnectionFate;
use dendra_wire::http::response::{self, Found, Receipt, Style};
use std::sync::OnceLock;

/// The parts of an answer that do not depend on the outcome: its shape and its receipt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTerms {
    /// The shape of the answer.
    pub(crate) style: Style,
    /// The copies and the level that were achieved, if the operation succeeded.
    pub(crate) receipt: Receipt,
}

impl AnswerTerms {
    /// The terms of an operation with this quorum, in the cluster that `routes` knows.
    pub(crate) fn new(
        style: Style,
        quorum: Quorum,
        durability: Durability,
        routes: &dendra_wire::RequestRules,
    ) -> AnswerTerms {
        AnswerTerms {
            style,
            receipt: Receipt {
                acks: quorum.ack(),
                from: quorum.from(),
                level: quorum.level(routes.replication_factor, routes.nodes),
                durability,
            },
        }
    }

    /// The terms of a scan: where there are others it shows the newest that was told, and nothing
    /// waits until a majority holds that.
    pub(crate) fn of_scan(mut self, nodes: u8) -> AnswerTerms {
        if nodes > 1 {
            self.receipt.level = Consistency::Eventual;
        }
        self
    }

    /// A read or a write that got no answer in time.
    pub(crate) fn not_enough(&self, known: Known) -> Outcome {
        Outcome::NotEnough {
            got: 0,
            needed: self.receipt.acks,
            from: self.receipt.from,
            known,
            refused: None,
        }
    }
}

/// Appends the answer for `outcome`; `stored` is the value as it is stored, where there is one.
/// Returns the status.
pub(crate) fn write(
    out: &mut Vec<u8>,
    terms: &AnswerTerms,
    outcome: &Outcome,
    stored: &[u8],
) -> u16 {
    let AnswerTerms { style, receipt } = *terms;
    match *outcome {
        Outcome::Found { version, expiry_ms } => {
            let found = Found {
                version,
                expiry_ms,
                receipt,
            };
            response::value(out, style, &found, stored);
            200
        }
        Outcome::Unchanged { version } => {
            let found = Found {
                version,
                expiry_ms: None,
                receipt,
            };
            response::not_modified(out, style, &found, stored);
            304
        }
        Outcome::Missing => {
            response::absent(out, style, receipt);
            404
        }
        Outcome::Stored { version } => {
            response::created(out, style, version, receipt);
            201
        }
        Outcome::Touched { version, expiry_ms } => {
            let found = Found {
                version,
                expiry_ms,
                receipt,
            };
            response::touched(out, style, &found);
            200
        }
        Outcome::Deleted { version } => {
            response::accepted(out, style, version, receipt);
            202
        }
        Outcome::ConditionFailed { current } => {
            response::condition_failed(out, style, current);
            412
        }
        Outcome::Overloaded { refusal } => write_refusal(out, style, &refused(refusal.into())),
        Outcome::DeadlinePassed => write_refusal(out, style, &refused(RefusalCause::Deadline)),
        Outcome::Abandoned => write_refusal(out, style, &refused(RefusalCause::Abandoned)),
        Outcome::Unreachable {
            up, needed, from, ..
        } => write_refusal(out, style, &Refusal::unreachable(up, needed, from, None)),
        Outcome::NotEnough {
            got,
            needed,
            from,
            known,
            ..
        } => {
            let refusal = Refusal::too_few_answers(got, needed, from, known);
            write_refusal(out, style, &refusal)
        }
        Outcome::Overtaken { got, from } => {
            write_refusal(out, style, &Refusal::overtaken(got, from))
        }
    }
}

/// Appends a `412` with the value that is there, which the client prefers; returns its status.
pub(crate) fn write_current(out: &mut Vec<u8>, terms: &AnswerTerms, cell: CellRef<'_>) -> u16 {
    response::condition_failed_with(out, terms.style, cell.version, cell.expiry_ms, cell.value);
    412
}

/// Appends a refusal; returns its status.
pub(crate) fn write_refusal(out: &mut Vec<u8>, style: Style, refusal: &Refusal) -> u16 {
    response::refusal(out, style, refusal);
    refusal.status
}

/// Style of an answer to a program that goes on behind it.
const USUAL: Style = Style {
    connection: ConnectionFate::Persist,
    omits_body: false,
    line: None,
    page: None,
};

/// Appends the refusal of a request that was called out of its loop's line for it; returns its
/// status. The bytes of the usual style are formed once for each `Retry-After`: in an overload one
/// request in nine gets them.
pub(crate) fn write_delay(out: &mut Vec<u8>, style: Style) -> u16 {
    static FORMED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let after_s = retry_after_s();
    if style != USUAL {
        return write_refusal(out, style, &delayed(after_s));
    }
    let formed = FORMED.get_or_init(|| {
        let all = limits::RETRY_AFTER_S..limits::RETRY_AFTER_S + limits::RETRY_AFTER_SPREAD_S;
        all.map(|seconds| {
            let mut bytes = Vec::new();
            write_refusal(&mut bytes, USUAL, &delayed(seconds));
            bytes
        })
        .collect()
    });
    out.extend_from_slice(&formed[(after_s - limits::RETRY_AFTER_S) as usize]);
    503
}

#[cfg(test)]
thread_local! {
    /// How often this thread has formed the refusal of a delay.
    pub(crate) static DELAYS_FORMED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn delayed(after_s: u32) -> Refusal {
    #[cfg(test)]
    DELAYS_FORMED.set(DELAYS_FORMED.get() + 1);
    Refusal::overloaded("more requests arrive than the processor serves", after_s)
}

/// The answer for a refusal by a gate, a queue or the engine.
pub(crate) fn refused(what: RefusalCause) -> Refusal {
    let message = match what {
        RefusalCause::Requests => "too many requests are in flight",
        RefusalCause::Bytes => "too many bytes of values are under way",
        RefusalCause::StoreQueue => "the queue of the store pool is full",
        RefusalCause::LogQueue => "the queue of the log is full",
        RefusalCause::Engine => "flushes or compactions are behind",
        RefusalCause::Disk => return Refusal::disk_full(disk_full_after_s()),
        RefusalCause::Deadline => return Refusal::expired_in_queue(retry_after_s()),
        RefusalCause::Unfit => return failed(),
        RefusalCause::Delay => return delayed(retry_after_s()),
        RefusalCause::Abandoned => return abandoned(),
        RefusalCause::Connections => "there are as many connections as there may be",
    };
    Refusal::overloaded(message, retry_after_s())
}

/// For a client that ended its sending side alone, and reads on.
fn abandoned() -> Refusal {
    Refusal::overloaded(
        "the client had closed its side of the connection",
        retry_after_s(),
    )
}

/// The engine failed in a way that is not the client's to mend.
pub(crate) fn failed() -> Refusal {
    Refusal::new(
        500,
        "failed",
        "the store could not do it; the node's log has the reason",
    )
    .knowing(Known::NotApplied)
}

impl From<dendra_node::RefusedBy> for RefusalCause {
    fn from(refusal: dendra_node::RefusedBy) -> RefusalCause {
        match refusal {
            dendra_node::RefusedBy::Requests => RefusalCause::Requests,
            dendra_node::RefusedBy::BodyBytes => RefusalCause::Bytes,
            dendra_node::RefusedBy::EngineBehind => RefusalCause::Engine,
            dendra_node::RefusedBy::DiskFull => RefusalCause::Disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_base::Version;

    fn line(outcome: Outcome) -> (u16, String) {
        let terms = AnswerTerms::new(
            USUAL,
            Quorum::ONE,
            Durability::Sync,
            &dendra_wire::RequestRules {
                nodes: 1,
                replication_factor: 1,
                key_bytes_max: 1,
                value_bytes_max: 1,
            },
        );
        let mut out = Vec::new();
        let status = write(&mut out, &terms, &outcome, b"v");
        let text = String::from_utf8(out).expect("heads are ASCII and the value is too");
        let first = text.lines().next().expect("there is a status line");
        (status, first.to_owned())
    }

    #[test]
    fn a_refusal_that_was_formed_before_is_the_one_that_would_be_formed() {
        let styles = [
            USUAL,
            USUAL.closing(),
            Style {
                omits_body: true,
                ..USUAL
            },
        ];
        for style in styles {
            let spread = limits::RETRY_AFTER_SPREAD_S;
            let told = |_| {
                let mut out = b"before".to_vec();
                assert_eq!(write_delay(&mut out, style), 503);
                out
            };
            let mut told: Vec<_> = (0..2 * spread).map(told).collect();
            told.sort_unstable();
            let formed = (0..2 * spread).map(|n| {
                let mut out = b"before".to_vec();
                write_refusal(&mut out, style, &delayed(limits::RETRY_AFTER_S + n / 2));
                out
            });
            assert_eq!(told, formed.collect::<Vec<_>>(), "{style:?}");
        }
    }

    #[test]
    fn each_outcome_has_its_status() {
        let version = Version::ZERO;
        let known = Known::Unknown;
        let refusal = |refusal| Outcome::Overloaded { refusal };
        let expiry_ms = None;
        let table = [
            (Outcome::Found { version, expiry_ms }, 200),
            (Outcome::Unchanged { version }, 304),
            (Outcome::Missing, 404),
            (Outcome::Stored { version }, 201),
            (Outcome::Deleted { version }, 202),
            (Outcome::Touched { version, expiry_ms }, 200),
            (Outcome::ConditionFailed { current: None }, 412),
            (refusal(dendra_node::RefusedBy::Requests), 503),
            (refusal(dendra_node::RefusedBy::DiskFull), 507),
            (Outcome::DeadlinePassed, 503),
            (Outcome::Abandoned, 503),
            (
                Outcome::NotEnough {
                    got: 0,
                    needed: 1,
                    from: 1,
                    known,
                    refused: None,
                },
                504,
            ),
            (
                Outcome::Unreachable {
                    up: 2,
                    needed: 3,
                    from: 3,
                    missing: dendra_ownership::MemberIndex(1),
                },
                504,
            ),
            (Outcome::Overtaken { got: 2, from: 3 }, 504),
        ];
        for (outcome, status) in table {
            let (counted, first) = line(outcome);
            assert_eq!(counted, status, "{outcome:?}");
            let prefix = format!("HTTP/1.1 {status} ");
            assert!(first.starts_with(&prefix), "{outcome:?}: {first}");
        }
    }
}
