//! Answers of Cassandra as rows, versions and outcomes.
//!
//! Not here: errors (`failures.rs`), values of records (`mod.rs`).

use crate::store::OuterFailure;
use dendra_base::{Known, Version};
use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row};

/// The rows of an answer; none, where it has no rows at all.
pub(super) fn rows<R>(answer: QueryResult) -> Result<Vec<R>, OuterFailure>
where
    R: for<'a> DeserializeRow<'a, 'a>,
{
    if !answer.is_rows() {
        return Ok(Vec::new());
    }
    let strange = |error: &dyn std::error::Error| {
        OuterFailure::Failed(format!("gives rows of another shape: {error}"))
    };
    let answer = answer.into_rows_result().map_err(|error| strange(&error))?;
    let rows = answer.rows::<R>().map_err(|error| strange(&error))?;
    rows.collect::<Result<_, _>>()
        .map_err(|error| strange(&error))
}

pub(super) fn first<R>(answer: QueryResult) -> Result<Option<R>, OuterFailure>
where
    R: for<'a> DeserializeRow<'a, 'a>,
{
    Ok(rows(answer)?.into_iter().next())
}

/// A row of `records` that no front door wrote.
pub(super) fn foreign() -> OuterFailure {
    let sentence = "a row of the table `records` was not written by a front door";
    OuterFailure::Damaged(sentence.to_owned())
}

pub(super) fn version_of(bytes: &[u8]) -> Result<Version, OuterFailure> {
    let version = <[u8; Version::BYTES]>::try_from(bytes).map_err(|_| foreign())?;
    Ok(Version::from_bytes(version))
}

/// The first column of the answer to a light-weight transaction: was it applied?
pub(super) fn is_applied(row: &Row) -> Option<bool> {
    match row.columns.first()? {
        Some(CqlValue::Boolean(is_applied)) => Some(*is_applied),
        _ => None,
    }
}

/// Was a light-weight transaction applied?
pub(super) fn changed(answer: QueryResult) -> Result<bool, OuterFailure> {
    // The columns after the first one depend on the outcome, and on the engine.
    let said = first::<Row>(answer).ok().flatten();
    said.as_ref().and_then(is_applied).ok_or_else(|| {
        let sentence = "the answer does not say whether it was applied".to_owned();
        OuterFailure::Unanswered(Known::Unknown, sentence)
    })
}
