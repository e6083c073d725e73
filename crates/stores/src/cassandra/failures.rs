//! The meaning of the errors of the crate `scylla` for a statement that changes something, or does
//! not.
//!
//! ```text
//! no connection, an empty plan            Unreachable: nothing was sent
//! overloaded, starting: of a read         Busy
//! timeouts, failures, broken connections  Unanswered, with what is known of the statement
//! syntax, rights, values                  Failed: nothing changed
//! ```
//!
//! Invariants
//! 1. An error of a kind that is not known here leaves the outcome of a write open.
//!
//! Not here: which server is asked next (`routes.rs`).

use crate::store::OuterFailure;
use dendra_base::Known;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};

/// Failure of a statement whose fate is `known` when it has no answer: `NotApplied` = it reads.
pub(super) fn failure_of(error: &ExecutionError, known: Known) -> OuterFailure {
    let sentence = error.to_string();
    match error {
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => {
            OuterFailure::Unreachable(sentence)
        }
        ExecutionError::PrepareError(error) => failure_to_prepare(error),
        ExecutionError::LastAttemptError(error) => attempt(error, known),
        ExecutionError::BadQuery(_) => OuterFailure::Failed(sentence),
        _ => OuterFailure::Unanswered(known, sentence),
    }
}

/// A statement that no server prepared was not sent.
pub(super) fn failure_to_prepare(error: &PrepareError) -> OuterFailure {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => {
            match attempt(first_attempt, Known::NotApplied) {
                OuterFailure::Unanswered(_, why) => OuterFailure::Unreachable(why),
                failure => failure,
            }
        }
        error => OuterFailure::Unreachable(error.to_string()),
    }
}

/// Failure of one question to one server.
pub(super) fn attempt(error: &RequestAttemptError, known: Known) -> OuterFailure {
    let sentence = error.to_string();
    match error {
        RequestAttemptError::DbError(error, said) => {
            let sentence = if said.is_empty() {
                sentence
            } else {
                said.clone()
            };
            said_by_server(error, sentence, known)
        }
        // 32,768 requests are under way on this connection.
        RequestAttemptError::UnableToAllocStreamId => OuterFailure::Busy(sentence),
        RequestAttemptError::SerializationError(_)
        | RequestAttemptError::CqlRequestSerialization(_)
        | RequestAttemptError::RepreparedIdChanged { .. }
        | RequestAttemptError::RepreparedIdMissingInBatch => OuterFailure::Failed(sentence),
        _ => OuterFailure::Unanswered(known, sentence),
    }
}

fn said_by_server(error: &DbError, sentence: String, known: Known) -> OuterFailure {
    match (error, known) {
        (
            DbError::Overloaded | DbError::IsBootstrapping | DbError::RateLimitReached { .. },
            Known::NotApplied,
        ) => OuterFailure::Busy(sentence),
        // These come before a server begins to carry out the statement.
        (
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::Unprepared { .. }
            | DbError::ProtocolError,
            _,
        ) => OuterFailure::Failed(sentence),
        // A transaction has phases, and any of the others may come from its last one: timeouts,
        // failures, too few replicas, too much to do.
        (_, known) => OuterFailure::Unanswered(known, sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;
    use scylla::statement::Consistency;

    fn of(error: DbError, known: Known) -> OuterFailure {
        let error = RequestAttemptError::DbError(error, "said".to_owned());
        failure_of(&ExecutionError::LastAttemptError(error), known)
    }

    #[test]
    fn an_error_that_may_follow_the_write_leaves_it_open() {
        let open = OuterFailure::Unanswered(Known::Unknown, "said".to_owned());
        let timeout = DbError::WriteTimeout {
            consistency: Consistency::Quorum,
            received: 1,
            required: 2,
            write_type: WriteType::Cas,
        };
        let too_few = DbError::Unavailable {
            consistency: Consistency::Quorum,
            required: 2,
            alive: 1,
        };
        for error in [
            timeout,
            too_few,
            DbError::ServerError,
            DbError::Overloaded,
            DbError::IsBootstrapping,
            DbError::Other(0x1700),
        ] {
            assert_eq!(of(error.clone(), Known::Unknown), open, "{error}");
        }
        let busy = OuterFailure::Busy("said".to_owned());
        assert_eq!(of(DbError::Overloaded, Known::NotApplied), busy);
        let failed = OuterFailure::Failed("said".to_owned());
        assert_eq!(of(DbError::Unauthorized, Known::Unknown), failed);
    }

    #[test]
    fn what_was_not_sent_changed_nothing() {
        let failure = failure_of(&ExecutionError::EmptyPlan, Known::Unknown);
        assert!(matches!(failure, OuterFailure::Unreachable(_)), "{failure}");
        let prepared = PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(DbError::ServerError, String::new()),
        };
        let failure = failure_of(&ExecutionError::PrepareError(prepared), Known::Unknown);
        assert!(matches!(failure, OuterFailure::Unreachable(_)), "{failure}");
    }
}
