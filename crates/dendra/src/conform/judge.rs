//! Is an answer as a step expects it? Every difference, as `expected` and `got`.
//!
//! Invariants
//! 1. All expectations of a step are looked at: a report has every difference, not the first.
//!
//! Not here: reading the answer (`exchange.rs`).
//! See: docs/conformance/README.md.

use super::case::{CaseStep, CaseText, FieldPlace, WantedField};
use super::exchange::Received;
use super::text::{Variables, matches};
use dendra_wire::percent;

/// So much is shown of a long text.
const SHOWN_BYTES: usize = 300;

/// One difference.
#[derive(Debug)]
pub(super) struct Mismatch {
    pub(super) expected: String,
    pub(super) got: String,
}

/// All differences; `Err` is a fault of the case itself.
pub(super) fn differences(
    step: &CaseStep,
    answer: &Received,
    variables: &Variables,
) -> Result<Vec<Mismatch>, String> {
    let mut found = Vec::new();
    let mut differ = |expected: String, got: String| found.push(Mismatch { expected, got });
    if !step.statuses.contains(&answer.status) {
        let list: Vec<String> = step.statuses.iter().map(u16::to_string).collect();
        let got = format!("status {} {}", answer.status, show(&answer.body));
        differ(format!("status {}", list.join(" or ")), got);
    }
    let code = String::from_utf8_lossy(&answer.body);
    let code = code.split_once(':').map_or("", |(code, _)| code);
    if !step.codes.is_empty() && !step.codes.iter().any(|wanted| wanted == code) {
        let expected = format!("a body that begins with {}:", step.codes.join(": or "));
        differ(expected, show(&answer.body));
    }
    let headers = step.headers.iter().map(|field| (FieldPlace::Header, field));
    let trailers = step
        .trailers
        .iter()
        .map(|field| (FieldPlace::Trailer, field));
    for (place, field) in headers.chain(trailers) {
        let (word, got) = match place {
            FieldPlace::Header => ("header", answer.header(&field.name)),
            FieldPlace::Trailer => ("trailer", answer.trailer(&field.name)),
        };
        let patterns = filled(field, variables)?;
        if !got.is_some_and(|got| patterns.iter().any(|pattern| matches(pattern, got))) {
            differ(
                format!("{word} {}: {}", field.name, patterns.join(" or ")),
                got.map_or(format!("no {word} {}", field.name), str::to_owned),
            );
        }
    }
    for field in &step.differs {
        let got = answer.header(&field.name);
        let others = filled(field, variables)?;
        if got.is_none_or(|got| others.iter().any(|other| other == got)) {
            differ(
                format!("header {}, and not {}", field.name, others.join(" or ")),
                got.map_or("no such header".to_owned(), str::to_owned),
            );
        }
    }
    for name in &step.absent {
        if let Some(got) = answer.header(name) {
            differ(format!("no header {name}"), format!("{name}: {got}"));
        }
    }
    if let Some(wanted) = &step.answer {
        let wanted = bytes(wanted, variables)?;
        if wanted != answer.body {
            let expected = format!("a body of {} bytes: {}", wanted.len(), show(&wanted));
            let got = format!("{} bytes: {}", answer.body.len(), show(&answer.body));
            differ(expected, got);
        }
    }
    if let Some(wanted) = &step.chunks {
        let wanted: Result<Vec<String>, String> =
            wanted.iter().map(|text| variables.fill(text)).collect();
        let (wanted, got) = (wanted?, chunks(answer));
        let is_same = got.as_ref().is_some_and(|got| {
            got.len() == wanted.len() && got.iter().zip(&wanted).all(|(a, b)| *a == b.as_bytes())
        });
        if !is_same {
            let texts: Vec<String> = wanted.iter().map(|text| show(text.as_bytes())).collect();
            let expected = format!("{} chunks: {}", texts.len(), texts.join(" | "));
            let got = got.map_or("a body without chunks".to_owned(), |got| {
                let list: Vec<String> = got.iter().take(20).map(|chunk| show(chunk)).collect();
                format!("{} chunks: {}", got.len(), list.join(" | "))
            });
            differ(expected, got);
        }
    }
    Ok(found)
}

/// The body, chunk by chunk.
fn chunks(answer: &Received) -> Option<Vec<&[u8]>> {
    let lengths = answer.chunks.as_ref()?;
    let mut rest = answer.body.as_slice();
    let mut chunks = Vec::new();
    for len in lengths {
        let (chunk, behind) = rest.split_at_checked(*len)?;
        chunks.push(chunk);
        rest = behind;
    }
    Some(chunks)
}

fn filled(field: &WantedField, variables: &Variables) -> Result<Vec<String>, String> {
    let patterns = field.patterns.iter();
    patterns.map(|pattern| variables.fill(pattern)).collect()
}

/// The bytes that a text of a case stands for.
pub(super) fn bytes(text: &CaseText, variables: &Variables) -> Result<Vec<u8>, String> {
    let filled = variables.fill(&text.text)?;
    if !text.is_encoded {
        return Ok(filled.into_bytes());
    }
    let mut out = vec![0; filled.len()];
    let len = percent::decode_into(filled.as_bytes(), &mut out)
        .map_err(|_| format!("{:?} is not percent-encoded", text.text))?;
    out.truncate(len);
    Ok(out)
}

/// Bytes for a person.
pub(super) fn show(bytes: &[u8]) -> String {
    match bytes.split_at_checked(SHOWN_BYTES) {
        Some((begin, rest)) if !rest.is_empty() => format!("\"{}…\"", begin.escape_ascii()),
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}
