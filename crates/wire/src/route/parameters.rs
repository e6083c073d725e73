//! Query parameters and single header fields: found, decoded, refused.
//!
//! ```text
//! id=a%20b&ack=1  --parameters(names)-->  [Some("a%20b"), Some("1"), None, …]   in the names' order
//! ```
//!
//! Invariants
//! 1. A name is known, written as it is documented, and there at most once; or the request is
//!    refused.
//! 2. Numbers are plain digits; words are exactly those that the contract lists.
//!
//! Not here: which parameters a path has (`route/mod.rs`, `scan.rs`).
//! See: docs/api.md.

use super::checks::RequestRules;
use crate::http::request::{any_byte, digits};
use crate::http::{Field, Head};
use crate::limits::{TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX};
use crate::percent::{self, DecodeError};
use crate::refusal::{Refusal, echo};
use dendra_base::{BadQuorum, Quorum};

/// Longest number, word or pair of numbers in a parameter, decoded.
pub(super) const SHORT_BYTES_MAX: usize = 24;

/// Decodes a parameter that is not a key.
pub(super) fn short<'b>(
    name: &str,
    raw: &[u8],
    room: &'b mut [u8; SHORT_BYTES_MAX],
) -> Result<&'b [u8], Refusal> {
    match percent::decode_into(raw, room) {
        Ok(len) => Ok(&room[..len]),
        Err(DecodeError::Broken) => Err(broken_escape(name)),
        Err(DecodeError::TooLong) => Err(Refusal::bad(
            "bad-number",
            format!("{name} has more than {SHORT_BYTES_MAX} bytes"),
        )),
    }
}

pub(super) fn number(name: &str, raw: &[u8]) -> Result<u32, Refusal> {
    let mut room = [0; SHORT_BYTES_MAX];
    number_of(name, short(name, raw, &mut room)?)
}

pub(super) fn number_of(name: &str, text: &[u8]) -> Result<u32, Refusal> {
    let number = digits(text).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| {
        Refusal::bad(
            "bad-number",
            format!("{name}: `{}` is not a whole number below 2^32", echo(text)),
        )
    })
}

/// The raw values of the known parameters, in the order of `names`. Empty pieces (`a=1&&b=2`) are
/// skipped, as everywhere on the web.
pub(super) fn parameters<'q, const N: usize>(
    query: Option<&'q [u8]>,
    names: &[&str; N],
) -> Result<[Option<&'q [u8]>; N], Refusal> {
    let mut values = [None; N];
    let mut rest = query.unwrap_or_default();
    while !rest.is_empty() {
        let piece;
        (piece, rest) = first_piece(rest);
        if piece.is_empty() {
            continue;
        }
        let (name, value) = match piece.iter().position(|&b| b == b'=') {
            Some(at) => (&piece[..at], &piece[at + 1..]),
            None => (piece, &piece[piece.len()..]),
        };
        let at = place_of(name, names)?;
        if values[at].replace(value).is_some() {
            return Err(Refusal::bad(
                "repeated-parameter",
                format!("{} is there more than once", names[at]),
            ));
        }
    }
    Ok(values)
}

/// The part before the first `&`, and the part behind. Most queries have one piece: to see that
/// takes a few wide comparisons.
fn first_piece(query: &[u8]) -> (&[u8], &[u8]) {
    if !any_byte(query, |b| b == b'&') {
        return (query, &[]);
    }
    let end = query.iter().position(|&b| b == b'&');
    let end = end.expect("one of them is an ampersand");
    (&query[..end], &query[end + 1..])
}

/// Which of `names` this is. A name with escapes is refused, also where it decodes to a known one.
/// A rule in front of this node (`id=` of a proxy, say) would look for the plain name and find
/// none.
fn place_of<const N: usize>(name: &[u8], names: &[&str; N]) -> Result<usize, Refusal> {
    if let Some(at) = names.iter().position(|known| known.as_bytes() == name) {
        return Ok(at);
    }
    if any_byte(name, |b| b == b'%') {
        return Err(Refusal::bad(
            "encoded-parameter",
            format!(
                "the name `{}` is percent-encoded: write names of parameters as they are, and encode values only",
                echo(name)
            ),
        ));
    }
    Err(unknown_parameter(name, names))
}

pub(super) fn unknown_parameter<const N: usize>(name: &[u8], names: &[&str; N]) -> Refusal {
    let known = match names.join(", ") {
        none if none.is_empty() => "no parameters".to_string(),
        some => some,
    };
    Refusal::bad(
        "unknown-parameter",
        format!(
            "`{}` is not known here; this path takes {known}",
            echo(name)
        ),
    )
}

/// How many copies, how many answers.
pub(super) fn quorum(
    ack: Option<&[u8]>,
    from: Option<&[u8]>,
    replicas: Option<&[u8]>,
    settings: &RequestRules,
) -> Result<Quorum, Refusal> {
    let (ack, from) = match replicas {
        None => (
            ack.map(|raw| number("ack", raw)).transpose()?,
            from.map(|raw| number("from", raw)).transpose()?,
        ),
        Some(_) if ack.is_some() || from.is_some() => {
            return Err(Refusal::bad(
                BadQuorum::CODE,
                "give replicas=<ack>/<from>, or ack and from, not both",
            ));
        }
        Some(raw) => {
            let mut room = [0; SHORT_BYTES_MAX];
            let text = short("replicas", raw, &mut room)?;
            let parts = text
                .iter()
                .position(|&b| b == b'/')
                .map(|at| text.split_at(at));
            let Some((ack_text, from_text)) = parts else {
                return Err(Refusal::bad(
                    BadQuorum::CODE,
                    format!("replicas={} is not <ack>/<from>, as in 2/3", echo(text)),
                ));
            };
            let from_number = number_of("replicas", &from_text[1..])?;
            (Some(number_of("replicas", ack_text)?), Some(from_number))
        }
    };
    Quorum::resolve(ack, from, settings.replication_factor, settings.nodes)
        .map_err(|error| Refusal::bad(BadQuorum::CODE, error.to_string()))
}

/// Which of these words a parameter is; the first when it is not there.
pub(super) fn choice<const N: usize>(
    name: &str,
    raw: Option<&[u8]>,
    words: [&str; N],
) -> Result<usize, Refusal> {
    let Some(raw) = raw else { return Ok(0) };
    let mut room = [0; SHORT_BYTES_MAX];
    let text = short(name, raw, &mut room)?;
    words
        .iter()
        .position(|word| word.as_bytes() == text)
        .ok_or_else(|| {
            Refusal::bad(
                "bad-choice",
                match &words[..] {
                    [only] => format!("{name}={} is not {only}", echo(text)),
                    _ => format!("{name}={} is neither {}", echo(text), words.join(" nor ")),
                },
            )
        })
}

pub(super) fn key_error(name: &str, error: DecodeError, key_bytes_max: usize) -> Refusal {
    match error {
        DecodeError::Broken => broken_escape(name),
        DecodeError::TooLong => Refusal::new(
            414,
            "key-too-long",
            format!("{name} has more than {key_bytes_max} bytes"),
        ),
    }
}

pub(super) fn broken_escape(name: &str) -> Refusal {
    Refusal::bad(
        "bad-escape",
        format!("{name} holds a % without two hexadecimal digits behind it; a percent sign is %25"),
    )
}

/// The one value of a field that may be there once.
pub(super) fn once<'a>(
    name: &str,
    field: Field<'a>,
    code: &'static str,
) -> Result<Option<&'a [u8]>, Refusal> {
    match field {
        Field::Absent => Ok(None),
        Field::Once(value) => Ok(Some(value)),
        Field::Repeated => Err(Refusal::bad(
            code,
            format!("{name} is there more than once"),
        )),
    }
}

/// The length of the request's time.
pub(super) fn timeout_ms(head: &Head<'_>) -> Result<u32, Refusal> {
    let refuse = || {
        Refusal::bad(
            "bad-timeout",
            format!("Dendra-Timeout-Ms is 1 to {TIMEOUT_MS_MAX} milliseconds"),
        )
    };
    match once("Dendra-Timeout-Ms", head.timeout_ms, "bad-timeout")? {
        None => Ok(TIMEOUT_MS_DEFAULT),
        Some(value) => match digits(value).and_then(|ms| u32::try_from(ms).ok()) {
            Some(ms @ 1..=TIMEOUT_MS_MAX) => Ok(ms),
            _ => Err(refuse()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_those_between_ampersands(
            query in prop::collection::vec(prop_oneof![Just(b'&'), any::<u8>()], 1..40),
        ) {
            let wanted: Vec<&[u8]> = query.split(|&b| b == b'&').collect();
            let (mut rest, mut pieces) = (query.as_slice(), Vec::new());
            while !rest.is_empty() {
                let piece;
                (piece, rest) = first_piece(rest);
                pieces.push(piece);
            }
            // The empty rest behind the last ampersand is a piece for `split`, and none here.
            let is_cut = query.last() == Some(&b'&');
            prop_assert_eq!(&pieces[..], &wanted[..wanted.len() - usize::from(is_cut)]);
        }
    }
}
