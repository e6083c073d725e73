//! The rule about first words: the doc of an item names its noun at once.
//!
//! ```text
//! /// Its answer to a write now.            whose?   found
//! /// The member's answer to a write now.            good
//! ```
//!
//! Invariants
//! 1. Only the first line of a `///` block is judged, in every crate. Test code is free.
//!
//! Not here: headers of modules (`rules/`), sentences of documents (no tool reads these).
//! See: docs/style.md, "Public items".

use super::finding::Finding;
use crate::source::Source;

/// First words that lean on a neighbour: a reader of one item alone cannot tell their noun.
const OPENERS: [&str; 10] = [
    "The same", "Those", "These", "That", "They", "Their", "It", "Its", "Of", "As",
];

/// Docs of items that begin with one of `OPENERS`.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if !source.is_test_file() {
            findings.extend(check_file(source));
        }
    }
    findings
}

fn check_file(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut was_doc = false;
    for (at, line) in source.text.lines().enumerate() {
        let doc = line.trim_start().strip_prefix("///");
        let is_first = doc.is_some() && !was_doc;
        was_doc = doc.is_some();
        let (true, false, Some(doc)) = (is_first, source.is_test[at], doc) else {
            continue;
        };
        if let Some(opener) = opener(doc.trim_start()) {
            let message = format!("a doc begins with `{opener}`: say what the item is");
            findings.push(Finding::new(&source.path, at + 1, "openers", message));
        }
    }
    findings
}

/// The opener that `doc` begins with, as a whole word.
fn opener(doc: &str) -> Option<&'static str> {
    OPENERS.into_iter().find(|opener| {
        let rest = doc.strip_prefix(opener);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&[Source::new(path, text)]);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn docs_that_hide_their_noun_are_found() {
        let text = "/// Its length.\nlet a = 1;\n    /// As above.\n/// Of the log,\n/// The same.\n\n\
                    /// The same, closed.\n/// It\n";
        assert_eq!(lines("crates/base/src/x.rs", text), [1, 3, 7]);
    }

    #[test]
    fn docs_that_name_their_noun_pass() {
        let text = "/// Length of the key.\n/// Its unit is a byte.\n\n/// Often called.\n\
                    /// Items.\n/// The sameness.\n// Its owner.\n//! Of all.\n";
        assert_eq!(lines("crates/base/src/x.rs", text), [0; 0]);
    }

    #[test]
    fn tests_are_free() {
        let text = "/// Its length.\n";
        assert_eq!(lines("crates/base/tests/x.rs", text), [0; 0]);
        let test = "#[cfg(test)]\nmod tests {\n    /// Its length.\n    fn a() {}\n}\n";
        assert_eq!(lines("crates/base/src/x.rs", test), [0; 0]);
    }
}
