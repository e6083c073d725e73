//! The shape of a case: names, tags and steps, read from TOML.
//!
//! ```text
//! file ─► [[case]] name, tags, steps ─► step: one request (send, raw or receive), and the answer
//! ```
//!
//! Invariants
//! 1. A field that the shape does not have is an error: a misspelt expectation would pass for ever.
//! 2. Names are unique in all files of a run.
//!
//! Not here: variables (`text.rs`), running (`mod.rs`).
//! See: docs/conformance/README.md.

use std::collections::BTreeSet;
use toml::{Table, Value};

/// One case.
#[derive(Debug)]
pub(super) struct Case {
    /// The file, for messages.
    pub(super) file: String,
    /// A sentence about behaviour.
    pub(super) name: String,
    /// Features that the store needs for it.
    pub(super) tags: Vec<String>,
    /// In order.
    pub(super) steps: Vec<CaseStep>,
}

/// The content that a step sends.
#[derive(Debug)]
pub(super) enum Sends {
    /// A request line without version; the runner adds `Host`, the token and the length.
    Request {
        line: String,
        headers: Vec<String>,
        body: Option<CaseText>,
    },
    /// Bytes as they are.
    Raw(CaseText),
    /// No request: one more answer is read from the same connection.
    Nothing,
}

/// A text, and whether it is percent-encoded.
#[derive(Clone, Debug)]
pub(super) struct CaseText {
    pub(super) text: String,
    pub(super) is_encoded: bool,
}

/// A header or trailer, of which a variable takes the text that follows `after`.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) variable: String,
    pub(super) place: FieldPlace,
    pub(super) name: String,
    pub(super) after: String,
}

/// Where a field stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldPlace {
    Header,
    Trailer,
}

/// A field with the patterns of which one must match.
#[derive(Debug)]
pub(super) struct WantedField {
    pub(super) name: String,
    pub(super) patterns: Vec<String>,
}

/// One request and its answer.
#[derive(Debug)]
pub(super) struct CaseStep {
    pub(super) sends: Sends,
    /// The step is repeated for so many seconds, until the answer is as expected.
    pub(super) within_s: Option<u64>,
    pub(super) statuses: Vec<u16>,
    /// The word in front of the first colon of the body is one of these; empty = not looked at.
    pub(super) codes: Vec<String>,
    pub(super) headers: Vec<WantedField>,
    pub(super) trailers: Vec<WantedField>,
    /// Headers that must be another text.
    pub(super) differs: Vec<WantedField>,
    /// Headers that must not be there.
    pub(super) absent: Vec<String>,
    /// The body, whole.
    pub(super) answer: Option<CaseText>,
    /// Each chunk of a chunked body.
    pub(super) chunks: Option<Vec<String>>,
    pub(super) captures: Vec<Capture>,
    /// A header that a store may leave out: then the case is skipped here.
    pub(super) needs: Option<String>,
    /// Must the store close the connection after the answer, or must it not?
    pub(super) closes: Option<bool>,
}

/// Adds the cases of one file; the error is a sentence.
pub(super) fn read(file: &str, text: &str, cases: &mut Vec<Case>) -> Result<(), String> {
    let in_file = |e: String| format!("{file}: {e}");
    let whole: Table = toml::from_str(text).map_err(|e| in_file(e.to_string()))?;
    let mut fields = CaseTable::new(whole, "the file");
    let list = fields.tables("case").map_err(in_file)?.unwrap_or_default();
    fields.end().map_err(in_file)?;
    if list.is_empty() {
        return Err(in_file("it has no [[case]]".to_owned()));
    }
    for table in list {
        let case = case(file, table).map_err(in_file)?;
        if cases.iter().any(|other| other.name == case.name) {
            return Err(in_file(format!("two cases are called {:?}", case.name)));
        }
        cases.push(case);
    }
    Ok(())
}

/// All tags of the cases.
pub(super) fn tags(cases: &[Case]) -> BTreeSet<&str> {
    let all = cases.iter().flat_map(|case| &case.tags);
    all.map(String::as_str).collect()
}

fn case(file: &str, table: Table) -> Result<Case, String> {
    let mut fields = CaseTable::new(table, "a case");
    let name = fields.text("name")?.ok_or("a case has no name")?;
    fields.of = format!("case {name:?}");
    let tags = fields.texts("tags")?.unwrap_or_default();
    let steps = fields.tables("steps")?.unwrap_or_default();
    fields.end()?;
    if steps.is_empty() {
        return Err(format!("{}: it has no steps", fields.of));
    }
    let mut read = Vec::new();
    for (index, step_table) in steps.into_iter().enumerate() {
        let of = format!("case {name:?}, step {}", index + 1);
        read.push(step(CaseTable::new(step_table, &of))?);
    }
    Ok(Case {
        file: file.to_owned(),
        name,
        tags,
        steps: read,
    })
}

fn step(mut fields: CaseTable) -> Result<CaseStep, String> {
    let line = fields.text("send")?;
    let headers = fields.texts("headers")?;
    let body = fields.encodable("body")?;
    let raw = fields.encodable("raw")?;
    let sends = match (line, raw, fields.flag("receive")?) {
        (Some(line), None, None) => Sends::Request {
            line,
            headers: headers.unwrap_or_default(),
            body,
        },
        (None, Some(raw), None) if headers.is_none() && body.is_none() => Sends::Raw(raw),
        (None, None, Some(true)) if headers.is_none() && body.is_none() => Sends::Nothing,
        _ => {
            return Err(format!(
                "{}: it needs one of send (with headers and body), raw, receive = true",
                fields.of
            ));
        }
    };
    let step = CaseStep {
        sends,
        within_s: fields.number("within-s")?,
        statuses: fields.statuses()?,
        codes: fields.texts("code")?.unwrap_or_default(),
        headers: fields.patterns("header")?,
        trailers: fields.patterns("trailer")?,
        differs: fields.patterns("differs")?,
        absent: fields.texts("absent")?.unwrap_or_default(),
        answer: fields.encodable("answer")?,
        chunks: fields.texts("chunks")?,
        captures: fields.captures()?,
        needs: fields.text("needs")?,
        closes: fields.flag("closes")?,
    };
    fields.end()?;
    Ok(step)
}

/// A table from which known fields are taken; the fields that are left are unknown.
struct CaseTable {
    table: Table,
    of: String,
}

impl CaseTable {
    fn new(table: Table, of: &str) -> CaseTable {
        let of = of.to_owned();
        CaseTable { table, of }
    }

    fn wrong(&self, name: &str, wanted: &str) -> String {
        format!("{}: {name} is {wanted}", self.of)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.table.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a text")),
        }
    }

    /// `NAME` or `NAME-percent`.
    fn encodable(&mut self, name: &str) -> Result<Option<CaseText>, String> {
        let encoded = format!("{name}-percent");
        let of = |text: Option<String>, is_encoded| text.map(|text| CaseText { text, is_encoded });
        match (self.text(name)?, self.text(&encoded)?) {
            (Some(_), Some(_)) => Err(self.wrong(name, "there twice: keep one of the two")),
            (None, text) => Ok(of(text, true)),
            (text, None) => Ok(of(text, false)),
        }
    }

    /// One text, or a list of them.
    fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, String> {
        let found = self.table.remove(name);
        found
            .map(|value| texts(value).ok_or_else(|| self.wrong(name, "a text or a list of texts")))
            .transpose()
    }

    fn tables(&mut self, name: &str) -> Result<Option<Vec<Table>>, String> {
        let wrong = self.wrong(name, "a list of tables");
        let Some(value) = self.table.remove(name) else {
            return Ok(None);
        };
        let Value::Array(list) = value else {
            return Err(wrong);
        };
        let tables = list.into_iter().map(|item| match item {
            Value::Table(table) => Ok(table),
            _ => Err(wrong.clone()),
        });
        tables.collect::<Result<Vec<Table>, String>>().map(Some)
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, String> {
        match self.table.remove(name) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, String> {
        match self.table.remove(name) {
            None => Ok(None),
            Some(Value::Integer(number)) if (1..=600).contains(&number) => {
                Ok(Some(number.unsigned_abs()))
            }
            Some(_) => Err(self.wrong(name, "a number from 1 to 600")),
        }
    }

    fn statuses(&mut self) -> Result<Vec<u16>, String> {
        let wrong = self.wrong("status", "needed: a status, or a list of them");
        let list = match self.table.remove("status") {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(one) => vec![one],
            None => return Err(wrong),
        };
        let number = |value: Value| {
            let number = u16::try_from(value.as_integer()?).ok()?;
            (100..600).contains(&number).then_some(number)
        };
        let numbers = list.into_iter().map(|v| number(v).ok_or(wrong.clone()));
        numbers.collect()
    }

    fn patterns(&mut self, name: &str) -> Result<Vec<WantedField>, String> {
        let wrong = self.wrong(name, "a table of names and texts, or lists of texts");
        let Some(value) = self.table.remove(name) else {
            return Ok(Vec::new());
        };
        let Value::Table(table) = value else {
            return Err(wrong);
        };
        let fields = table.into_iter().map(|(field, wanted)| {
            let patterns = texts(wanted).ok_or_else(|| wrong.clone())?;
            Ok(WantedField {
                name: field,
                patterns,
            })
        });
        fields.collect()
    }

    fn captures(&mut self) -> Result<Vec<Capture>, String> {
        let Some(value) = self.table.remove("capture") else {
            return Ok(Vec::new());
        };
        let wrong = self.wrong("capture", "a table: NAME = { header | trailer, after }");
        let Value::Table(table) = value else {
            return Err(wrong);
        };
        let mut captures = Vec::new();
        for (variable, place_value) in table {
            let Value::Table(place_table) = place_value else {
                return Err(wrong);
            };
            let mut fields = CaseTable::new(place_table, &self.of);
            let (place, name) = match (fields.text("header")?, fields.text("trailer")?) {
                (Some(name), None) => (FieldPlace::Header, name),
                (None, Some(name)) => (FieldPlace::Trailer, name),
                _ => return Err(wrong),
            };
            let after = fields.text("after")?.unwrap_or_default();
            fields.end()?;
            captures.push(Capture {
                variable,
                place,
                name,
                after,
            });
        }
        Ok(captures)
    }

    fn end(&self) -> Result<(), String> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(name) => Err(format!("{}: no field is called {name:?}", self.of)),
        }
    }
}

/// One text, or a list of them.
fn texts(value: Value) -> Option<Vec<String>> {
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    let text = |item: Value| match item {
        Value::String(text) => Some(text),
        _ => None,
    };
    list.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        read("f.toml", text, &mut Vec::new()).expect_err("it has a fault")
    }

    #[test]
    fn a_field_that_is_misspelt_or_missing_is_named() {
        let with = |step: &str| problem(&format!("[[case]]\nname='n'\nsteps=[{{{step}}}]"));
        assert!(with("send='GET /', status=200, haeder={}").contains("haeder"));
        assert!(with("send='GET /'").contains("status"));
        assert!(with("status=200").contains("needs one of"));
        assert!(with("raw='x', headers=['a: b'], status=200").contains("needs one of"));
        assert!(with("send='GET /', status=200, body='a', body-percent='a'").contains("twice"));
        assert!(problem("[[case]]\nname='n'").contains("no steps"));
        assert!(problem("").contains("no [[case]]"));
        let twice = "[[case]]\nname='n'\nsteps=[{raw='x', status=200}]\n".repeat(2);
        assert!(problem(&twice).contains("two cases"));
    }
}
