//! Lines of Rust within 100 columns.
//!
//! ```text
//! comment   counts as a whole, unless it is a drawing, a table, or one long address
//! code      counts without the insides of its strings: rustfmt cannot break those
//! ```
//!
//! Invariants
//! 1. No file is excepted.
//!
//! Not here: the layout of code (rustfmt), lines of Markdown (`documents.rs`).
//! See: docs/style.md.

use super::finding::Finding;
use crate::source::Source;

const RULE: &str = "width";

/// Columns as in `rustfmt.toml`.
const COLUMNS_MAX: usize = 100;

/// Lines that are too wide.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        for line in wide_lines(source) {
            let message = format!("wider than {COLUMNS_MAX} columns: break the line");
            findings.push(Finding::new(&source.path, line + 1, RULE, message));
        }
    }
    findings
}

/// Zero-based.
fn wide_lines(source: &Source) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut is_drawing = false;
    let mut in_string = false;
    for (at, (text, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        let is_comment = text.trim_start().starts_with("//") && code.trim().is_empty();
        let columns = width_of_code(code, &mut in_string);
        let words = text.trim_start().trim_start_matches(['/', '!']).trim();
        if is_comment && words.starts_with("```") {
            is_drawing = !is_drawing;
        }
        let is_wide = if is_comment {
            let is_free = is_drawing || words.starts_with('|') || words.contains("://");
            text.chars().count() > COLUMNS_MAX && !is_free
        } else {
            columns > COLUMNS_MAX
        };
        if is_wide {
            lines.push(at);
        }
    }
    lines
}

/// Columns of a line of code whose strings are empty. A string may go on from the line before.
fn width_of_code(code: &str, in_string: &mut bool) -> usize {
    let mut columns = 0;
    for c in code.trim_end().chars() {
        *in_string ^= c == '"';
        columns += usize::from(!*in_string || c != ' ');
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<usize> {
        wide_lines(&Source::new("crates/x/src/a.rs", text))
    }

    #[test]
    fn wide_comments_and_wide_code_are_found() {
        let long = "word ".repeat(20);
        assert_eq!(wide(&format!("// a\n/// {long}\n")), [1]);
        assert_eq!(wide(&format!("fn {}() {{}}\n", "a".repeat(95))), [0]);
        assert_eq!(wide(&format!("fn {}() {{}}\n", "a".repeat(92))), [0; 0]);
        assert_eq!(
            wide(&format!("f(\"{long}\", {});\n", "a + ".repeat(25))),
            [0]
        );
    }

    #[test]
    fn drawings_tables_addresses_and_strings_may_be_wide() {
        let long = "word ".repeat(20);
        assert_eq!(wide(&format!("//! ```text\n//! {long}\n//! ```\n")), [0; 0]);
        assert_eq!(wide(&format!("//! | {long} |\n")), [0; 0]);
        assert_eq!(wide(&format!("// https://x.org/{long}\n")), [0; 0]);
        assert_eq!(wide(&format!("f(\"{long}\");\n")), [0; 0]);
        assert_eq!(wide(&format!("f(\"a\\\n{long}\");\n")), [0; 0]);
    }
}
