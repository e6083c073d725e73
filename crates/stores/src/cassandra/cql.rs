//! Frames of the native protocol of Cassandra, version 4: one question, one answer.
//!
//! ```text
//! request  | 4 | 0 | stream: i16 | opcode: u8 | length: i32 | body |      answer: 0x84 first
//! QUERY      long string, terms                PREPARE  long string
//! EXECUTE    id, terms                         terms: consistency, flags, values, serial consistency
//! RESULT     void │ rows: columns, cells │ an id │ schema change          ERROR   code, sentence
//! ```
//!
//! Invariants
//! 1. An answer that does not parse is an error, never a panic; lengths are checked before memory
//!    is taken.
//!
//! Not here: sockets (`pool.rs`), what is asked (`mod.rs`).
//! See: the file native_protocol_v4.spec of Cassandra's documentation.

use crate::dial::EngineLogin;
use crate::store::OuterFailure;
use dendra_base::Known;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a frame's head.
pub(super) const HEAD_BYTES: usize = 9;
/// The longest answer: Cassandra's own bound of a frame.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;

const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const ERROR: u8 = 0x00;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const RESULT: u8 = 0x08;
const AUTH_RESPONSE: u8 = 0x0f;
const AUTH_SUCCESS: u8 = 0x10;

/// How many replicas answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum CqlLevel {
    One = 0x0001,
    Quorum = 0x0004,
    LocalQuorum = 0x0006,
    Serial = 0x0008,
    LocalSerial = 0x0009,
    LocalOne = 0x000a,
}

impl CqlLevel {
    /// The same among the replicas of the data centre of the server that is asked.
    pub(super) fn local(self) -> CqlLevel {
        match self {
            CqlLevel::One | CqlLevel::LocalOne => CqlLevel::LocalOne,
            CqlLevel::Quorum | CqlLevel::LocalQuorum => CqlLevel::LocalQuorum,
            CqlLevel::Serial | CqlLevel::LocalSerial => CqlLevel::LocalSerial,
        }
    }
}

/// The error of a server that does not know a prepared statement (any more): it changed nothing.
pub(super) const UNPREPARED: i32 = 0x2500;

/// The values of a statement, and how many replicas answer.
pub(super) struct CqlTerms {
    pub(super) values: Vec<Vec<u8>>,
    pub(super) level: CqlLevel,
    /// `Serial` or `LocalSerial`: among which replicas a transaction is settled.
    pub(super) serial: CqlLevel,
}

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CqlAnswer {
    Ready,
    /// It asks for a user.
    AsksUser,
    /// Rows: each a cell for every name; `None` = null.
    Rows(Vec<CqlRow>),
    /// A statement is prepared, under this id.
    Prepared(Vec<u8>),
    /// Done, without rows.
    Done,
    Error(i32, String),
}

/// One row, by the names of its columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CqlRow {
    names: Arc<[String]>,
    cells: Vec<Option<Vec<u8>>>,
}

impl CqlRow {
    /// Takes the cell of a column; `None` = null, or there is none.
    pub(super) fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.names.iter().position(|own| own == name)?;
        self.cells[at].take()
    }
}

fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![4, 0, 0, 0, opcode];
    out.extend_from_slice(&(body.len() as i32).to_be_bytes());
    out.extend_from_slice(body);
    out
}

/// The first frame of a connection.
pub(super) fn startup() -> Vec<u8> {
    let mut body = 1u16.to_be_bytes().to_vec();
    for text in ["CQL_VERSION", "3.0.0"] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    frame(STARTUP, &body)
}

/// The answer to a server that asks for a user: `PasswordAuthenticator`'s, which is SASL PLAIN.
pub(super) fn login(login: &EngineLogin) -> Vec<u8> {
    let plain = [
        b"\0",
        login.user.as_bytes(),
        b"\0",
        login.password.as_bytes(),
    ]
    .concat();
    let mut body = (plain.len() as i32).to_be_bytes().to_vec();
    body.extend_from_slice(&plain);
    frame(AUTH_RESPONSE, &body)
}

/// A statement that is sent as text.
pub(super) fn query(text: &str, terms: &CqlTerms) -> Vec<u8> {
    let mut body = long_string(text);
    terms.encode(&mut body);
    frame(QUERY, &body)
}

/// Asks a server to prepare a statement.
pub(super) fn prepare(text: &str) -> Vec<u8> {
    frame(PREPARE, &long_string(text))
}

/// A statement that the server has prepared under `id`.
pub(super) fn execute(id: &[u8], terms: &CqlTerms) -> Vec<u8> {
    let mut body = (id.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(id);
    terms.encode(&mut body);
    frame(EXECUTE, &body)
}

fn long_string(text: &str) -> Vec<u8> {
    let mut body = (text.len() as i32).to_be_bytes().to_vec();
    body.extend_from_slice(text.as_bytes());
    body
}

impl CqlTerms {
    fn encode(&self, body: &mut Vec<u8>) {
        const WITH_VALUES: u8 = 0x01;
        const WITH_SERIAL: u8 = 0x10;
        body.extend_from_slice(&(self.level as u16).to_be_bytes());
        body.push(WITH_VALUES | WITH_SERIAL);
        body.extend_from_slice(&(self.values.len() as u16).to_be_bytes());
        for value in &self.values {
            body.extend_from_slice(&(value.len() as i32).to_be_bytes());
            body.extend_from_slice(value);
        }
        body.extend_from_slice(&(self.serial as u16).to_be_bytes());
    }
}

/// The opcode and the length of the body behind a head.
pub(super) fn head(bytes: [u8; HEAD_BYTES]) -> Result<(u8, usize), String> {
    let [version, _, _, _, opcode, length @ ..] = bytes;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if version != 0x84 || length > ANSWER_BYTES_MAX {
        return Err("does not speak version 4 of Cassandra's protocol".to_owned());
    }
    Ok((opcode, length))
}

/// The answer in a body.
pub(super) fn decode(opcode: u8, body: &[u8]) -> Result<CqlAnswer, String> {
    let mut reader = CqlReader(body);
    let answer = match opcode {
        READY => Some(CqlAnswer::Ready),
        ERROR => reader
            .int()
            .and_then(|code| Some(CqlAnswer::Error(code, reader.string()?))),
        AUTHENTICATE => Some(CqlAnswer::AsksUser),
        AUTH_SUCCESS => Some(CqlAnswer::Ready),
        RESULT => match reader.int() {
            Some(2) => reader.rows().map(CqlAnswer::Rows),
            Some(4) => reader.short_bytes().map(CqlAnswer::Prepared),
            Some(_) => Some(CqlAnswer::Done),
            None => None,
        },
        _ => None,
    };
    answer.ok_or_else(|| "gives an answer that does not parse".to_owned())
}

struct CqlReader<'a>(&'a [u8]);

impl<'a> CqlReader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<String> {
        let len = self.short()?;
        let bytes = self.take(usize::from(len))?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn short_bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.short()?;
        self.take(usize::from(len)).map(<[u8]>::to_vec)
    }

    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.int()?) {
            Err(_) => Some(None),
            Ok(len) => self.take(len).map(Some),
        }
    }

    /// Passes the type of a column: plain ones, lists, sets and maps of them.
    fn pass_type(&mut self, depth: u8) -> Option<()> {
        const CUSTOM: u16 = 0x00;
        const LIST: u16 = 0x20;
        const MAP: u16 = 0x21;
        const SET: u16 = 0x22;
        if depth > 3 {
            return None;
        }
        match self.short()? {
            CUSTOM => _ = self.string()?,
            LIST | SET => self.pass_type(depth + 1)?,
            MAP => {
                self.pass_type(depth + 1)?;
                self.pass_type(depth + 1)?;
            }
            _ => {}
        }
        Some(())
    }

    fn rows(&mut self) -> Option<Vec<CqlRow>> {
        const GLOBAL_TABLE: i32 = 1;
        const MORE_PAGES: i32 = 2;
        let (flags, columns) = (self.int()?, self.int()?);
        // Rows without cells would take no bytes, so that nothing would bound their number.
        if columns <= 0 {
            return None;
        }
        if flags & MORE_PAGES != 0 {
            self.bytes()?;
        }
        if flags & GLOBAL_TABLE != 0 {
            self.string()?;
            self.string()?;
        }
        let mut names = Vec::new();
        for _ in 0..columns {
            if flags & GLOBAL_TABLE == 0 {
                self.string()?;
                self.string()?;
            }
            names.push(self.string()?);
            self.pass_type(0)?;
        }
        let names: Arc<[String]> = names.into();
        let mut rows = Vec::new();
        for _ in 0..self.int()? {
            let cells = names
                .iter()
                .map(|_| Some(self.bytes()?.map(<[u8]>::to_vec)));
            rows.push(CqlRow {
                cells: cells.collect::<Option<_>>()?,
                names: Arc::clone(&names),
            });
        }
        Some(rows)
    }
}

/// A map of text to text.
pub(super) fn text_map(bytes: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut reader = CqlReader(bytes);
    let mut map = BTreeMap::new();
    for _ in 0..reader.int()? {
        let (name, value) = (reader.bytes()??, reader.bytes()??);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        map.insert(text(name), text(value));
    }
    Some(map)
}

/// The meaning of an error for a statement that changes something, or does not.
pub(super) fn said(code: i32, sentence: String, known: Known) -> OuterFailure {
    match (code, known) {
        (0x1001 | 0x1002, Known::NotApplied) => OuterFailure::Busy(sentence),
        // A transaction has phases, and any of these may come from its last one: timeouts,
        // failures, too few replicas, too much to do.
        (0x0000 | 0x1000..=0x1fff, known) => OuterFailure::Unanswered(known, sentence),
        _ => OuterFailure::Failed(sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_body() -> Vec<u8> {
        let mut body = Vec::new();
        for int in [2, 1, 2] {
            body.extend_from_slice(&i32::to_be_bytes(int));
        }
        for text in ["ks", "t", "key"] {
            body.extend_from_slice(&(text.len() as u16).to_be_bytes());
            body.extend_from_slice(text.as_bytes());
        }
        body.extend_from_slice(&[0, 3, 0, 1, b'm', 0, 0x21, 0, 13, 0, 13]);
        body.extend_from_slice(&1i32.to_be_bytes());
        body.extend_from_slice(&[0, 0, 0, 2, b'a', b'b', 0xff, 0xff, 0xff, 0xff]);
        body
    }

    #[test]
    fn rows_come_with_their_names_and_a_cut_answer_is_none() {
        let body = rows_body();
        let Ok(CqlAnswer::Rows(mut rows)) = decode(RESULT, &body) else {
            panic!("these are rows");
        };
        let row = &mut rows[0];
        assert_eq!(row.take("key"), Some(b"ab".to_vec()));
        assert_eq!((row.take("m"), row.take("none")), (None, None));
        assert_eq!(rows.len(), 1);
        for len in 0..body.len() {
            assert!(decode(RESULT, &body[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn rows_without_columns_are_none() {
        let body = [2, 1, 0, i32::MAX].map(i32::to_be_bytes).concat();
        let body = [&body[..8], &[0; 4], &[0; 4], &body[8..]].concat();
        assert!(decode(RESULT, &body).is_err());
    }

    #[test]
    fn a_statement_that_was_prepared_has_an_id() {
        let mut body = 4i32.to_be_bytes().to_vec();
        body.extend_from_slice(b"\0\x02id and its columns");
        let id = b"id".to_vec();
        assert_eq!(decode(RESULT, &body), Ok(CqlAnswer::Prepared(id.clone())));
        assert!(decode(RESULT, &body[..7]).is_err());
        let terms = CqlTerms {
            values: vec![b"v".to_vec()],
            level: CqlLevel::One,
            serial: CqlLevel::LocalSerial,
        };
        let frame = execute(&id, &terms);
        let (head, body) = frame.split_at(HEAD_BYTES);
        assert_eq!((head[4], usize::from(head[8])), (EXECUTE, body.len()));
        assert_eq!(body, b"\0\x02id\0\x01\x11\0\x01\0\0\0\x01v\0\x09");
    }

    #[test]
    fn an_error_that_may_follow_the_write_leaves_it_open() {
        for code in [0x0000, 0x1000, 0x1001, 0x1100, 0x1200, 0x1500, 0x1700] {
            let failure = said(code, String::new(), Known::Unknown);
            let open = OuterFailure::Unanswered(Known::Unknown, String::new());
            assert_eq!(failure, open, "{code:x}");
        }
        let busy = said(0x1001, String::new(), Known::NotApplied);
        assert_eq!(busy, OuterFailure::Busy(String::new()));
        assert!(matches!(
            said(0x2200, String::new(), Known::Unknown),
            OuterFailure::Failed(_)
        ));
    }
}
