//! Every pair of encoder and decoder has a test of all that is legal: the tables of the document,
//! held against the code.
//!
//! ```text
//! | pair      | code                                 | test                                        |
//! | cells     | `crates/base/src/cell.rs` `decode`   | `crates/base/tests/codecs.rs` `any_legal_…` |
//! | read only | code                                                                  no encoder of ours |
//! fn decode(…)   fn parse_head(…)   fn read(bytes: &[u8])      by its name, or that and its bytes
//! ```
//!
//! Invariants
//! 1. A public decoder or encoder is named in one of the two tables. Of a file with others (also
//!    those for the module above) any is named: the test of the pair reaches them.
//! 2. Every function in a table is there, and tests in a table are all that are named so.
//!
//! Not here: whether a test draws all that is legal; that takes a reader.
//! See: docs/verification.md, "Encoders and decoders".

use super::finding::Finding;
use super::tree::Tree;
use crate::source::{Source, line_of};
use std::collections::BTreeSet;

const RULE: &str = "codecs";
const DOCUMENT: &str = "docs/verification.md";
const PAIRS: &str = "| pair | code | test |";
const READ_ONLY: &str = "| read only | code |";
/// Names of tests in the table: one command runs them all.
const TEST: &str = "any_legal_";
/// First words of the names of decoders and encoders, whatever they take.
const NAMES: [&str; 7] = [
    "decode",
    "encode",
    "parse",
    "unhex",
    "from_str",
    "from_bytes",
    "from_hex",
];
/// Names of decoders that take bytes first.
const NAMES_IF_BYTES: [&str; 4] = ["open", "read", "split", "take"];

/// Functions that a cell of a table names: file and name.
type Named = BTreeSet<(String, String)>;

/// One function of the code, up to its body.
struct Signature<'a> {
    name: &'a str,
    is_public: bool,
    parameters: &'a str,
    /// Zero-based.
    line: usize,
}

/// Decoders without a row, rows without their code, and tests that no row names.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let document = tree.text(DOCUMENT).unwrap_or("");
    let (mut code, tests) = (named(document, PAIRS, 2), named(document, PAIRS, 3));
    code.extend(named(document, READ_ONLY, 2));
    let find = |path: &str, line, message| Finding::new(path, line, RULE, message);
    let mut findings = Vec::new();
    let mut there = BTreeSet::new();
    for source in sources {
        for function in functions(&source.code) {
            let is_test = source.is_test.get(function.line).is_some_and(|is| *is);
            let place = (source.path.clone(), function.name.to_owned());
            if is_test && function.name.starts_with(TEST) && !tests.contains(&place) {
                let message = format!("the table of {DOCUMENT} lacks `{}`", function.name);
                findings.push(find(&source.path, function.line + 1, message));
            }
            let is_product = source.path.starts_with("crates/")
                && source.path.contains("/src/")
                && !source.path.starts_with("crates/sim/");
            let has_row = if function.is_public {
                code.contains(&place)
            } else {
                code.iter().any(|(path, _)| *path == source.path)
            };
            if is_product && !is_test && is_codec(&function) && !has_row {
                let message = format!(
                    "`{}` reads or writes bytes: test it with all that is legal, and name it in the table of {DOCUMENT}",
                    function.name
                );
                findings.push(find(&source.path, function.line + 1, message));
            }
            there.insert((place, is_test));
        }
    }
    for (places, is_test) in [(&code, false), (&tests, true)] {
        for place in places {
            let is_named_so = !is_test || place.1.starts_with(TEST);
            if !is_named_so || !there.contains(&(place.clone(), is_test)) {
                let at = document.find(&format!("`{}`", place.1)).unwrap_or(0);
                let message = format!("{} has no such function: `{}`", place.0, place.1);
                findings.push(find(DOCUMENT, line_of(document, at) + 1, message));
            }
        }
    }
    findings
}

/// Does it turn bytes into something, or back?
fn is_codec(function: &Signature<'_>) -> bool {
    let begins = |name: &&str| {
        let rest = function.name.strip_prefix(*name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let first = function.parameters.split(',').next().unwrap_or("");
    let takes_bytes = first.contains("[u8]") && !first.contains("mut [u8]");
    NAMES.iter().any(&begins) || (takes_bytes && NAMES_IF_BYTES.iter().any(begins))
}

/// The functions in a column of the table that starts with `head`.
fn named(document: &str, head: &str, column: usize) -> Named {
    let lines = document.lines().skip_while(|line| *line != head).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let mut named = Named::new();
    for cell in rows.filter_map(|row| row.split('|').nth(column)) {
        let mut path = "";
        for word in cell.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                path = word;
            } else {
                named.insert((path.to_owned(), word.to_owned()));
            }
        }
    }
    named
}

/// Every function of a file whose comments and strings are blanks.
fn functions(code: &str) -> Vec<Signature<'_>> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let rest = &code[at + 3..];
        let Some(end) = rest.find(|c: char| !c.is_alphanumeric() && c != '_') else {
            continue;
        };
        let before = code[..at].rsplit('\n').next().unwrap_or("").trim_start();
        let Some((open, close)) = parentheses(rest, end) else {
            continue;
        };
        functions.push(Signature {
            name: &rest[..end],
            is_public: before.starts_with("pub") && !before.starts_with("pub(super)"),
            parameters: &rest[open..close],
            line: line_of(code, at),
        });
    }
    functions
}

/// Where the parameters open and close, behind type parameters.
fn parentheses(text: &str, from: usize) -> Option<(usize, usize)> {
    let (mut open, mut depth, mut angles) = (None, 0, 0);
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < from) {
        match c {
            '<' if open.is_none() => angles += 1,
            '>' if open.is_none() && !text[..at].ends_with('-') => angles -= 1,
            '(' if angles == 0 => {
                open = open.or(Some(at));
                depth += 1;
            }
            ')' if angles == 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some((open?, at));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/wire/src/a.rs";

    /// What is found in one file, beside a document with these rows.
    fn found(code: &str, pairs: &[&str], read_only: &[&str]) -> Vec<String> {
        let table = |head: &str, rows: &[&str]| format!("{head}\n|---|\n{}\n", rows.join("\n"));
        let document = table(PAIRS, pairs) + "\n" + &table(READ_ONLY, read_only);
        let tree = Tree {
            texts: vec![(DOCUMENT.to_owned(), document)],
            paths: Vec::new(),
        };
        let findings = check(&tree, &[Source::new(PATH, code)]);
        findings.iter().map(|it| it.to_string()).collect()
    }

    const CODE: &str = "pub fn encode(&self) -> Vec<u8> {}\n\
        pub fn decode<'a, T: Fn(u8) -> u8>(bytes: &'a [u8]) -> Option<A> {}\n\
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {}\n\
        #[cfg(test)]\nmod tests {\n    fn any_legal_a_is_read() {}\n}\n";
    const ROW: &str = "| a | `crates/wire/src/a.rs` `encode` `decode` | `crates/wire/src/a.rs` `any_legal_a_is_read` |";

    #[test]
    fn a_decoder_without_a_row_is_found() {
        assert_eq!(found(CODE, &[ROW], &[]), Vec::<String>::new());
        let without = found(CODE, &[], &[]);
        // Both public ones, the private one, and the test.
        assert_eq!(without.len(), 4, "{without:?}");
        let read_only = "| a | `crates/wire/src/a.rs` `parse_it` |";
        let code = "pub fn parse_it(text: &str) -> A {}\nfn parse(text: &str) -> B {}\n";
        assert_eq!(found(code, &[], &[read_only]), Vec::<String>::new());
        let code = format!("{code}pub(crate) fn read(\n    bytes: &[u8],\n) -> C {{}}\n");
        assert_eq!(found(&code, &[], &[read_only]).len(), 1);
    }

    #[test]
    fn a_row_without_its_code_or_its_test_is_found() {
        let renamed = CODE.replace("any_legal_a_is_read", "a_is_read");
        assert_eq!(found(&renamed, &[ROW], &[]).len(), 1);
        let gone = CODE.replace("fn decode", "fn form");
        assert_eq!(found(&gone, &[ROW], &[]).len(), 1);
        let other = ROW.replace("any_legal_a_is_read", "a_is_read");
        assert!(
            !found(&renamed, &[&other], &[]).is_empty(),
            "no command runs it"
        );
    }

    #[test]
    fn bytes_that_are_filled_and_other_names_are_no_decoders() {
        let code = "pub fn read_at(&self, buf: &mut [u8]) {}\npub fn open(name: &str) {}\n\
                    pub fn parser() {}\npub fn opened(bytes: &[u8]) {}\n";
        assert_eq!(found(code, &[], &[]), Vec::<String>::new());
    }
}
