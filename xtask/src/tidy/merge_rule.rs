//! The rule about the merge rule: code of the product compares versions of copies by calling it.
//!
//! ```text
//! found      a.version > b      a < b.version      Some(a.version) <= b      a.version().cmp(&b)
//!            max_by_key(|a| a.version)             a.max(b.version)
//! not found  a.version == b     a.version.hlc > 3  a.version_max > b         |a| -> B { a.version }
//! ```
//!
//! Invariants
//! 1. Every comparison of a version with something else is listed in `ALLOWED`, with its reason.
//! 2. An entry of `ALLOWED` that no line needs is itself a finding: the list only shrinks.
//!
//! Not here: the rule itself (`crates/base/src/version.rs`); the simulator, whose checkers judge by
//! a comparison of their own. See: docs/decisions/0001-one-merge-rule.md.

use super::finding::Finding;
use crate::source::{Source, line_of};

/// The crates in which copies meet.
const CRATES: [&str; 5] = [
    "crates/engine",
    "crates/ownership",
    "crates/watch",
    "crates/node",
    "crates/server",
];

const BOUND: &str = "a bound over the records of a block, table or batch";
const PROPOSAL: &str = "a proposal and the version that it builds on";

/// Comparisons of a version with something that is no other copy: file, text of the line, reason.
const ALLOWED: [(&str, &str, &str); 10] = [
    (
        "crates/engine/src/compact/run.rs",
        "cell.version <= self.horizon",
        BOUND,
    ),
    (
        "crates/engine/src/compact/run.rs",
        "cell.version <= self.log_min",
        BOUND,
    ),
    (
        "crates/engine/src/table/footer.rs",
        "version_min.min(cell.version)",
        BOUND,
    ),
    (
        "crates/engine/src/table/footer.rs",
        "version_max.max(cell.version)",
        BOUND,
    ),
    (
        "crates/engine/src/table/walk.rs",
        "found_max.max(cell.version)",
        BOUND,
    ),
    (
        "crates/engine/src/table/writer.rs",
        "version_max.max(cell.version)",
        BOUND,
    ),
    (
        "crates/node/src/coordinator/proposer.rs",
        "last.cell.version < own.version",
        PROPOSAL,
    ),
    (
        "crates/node/src/coordinator/paxos.rs",
        "last.cell.version > base",
        PROPOSAL,
    ),
    (
        "crates/node/src/coordinator/paxos.rs",
        "own.version > base",
        PROPOSAL,
    ),
    (
        "crates/node/src/replica/record.rs",
        "Some(accepted.cell.version) <= stored",
        PROPOSAL,
    ),
];

/// Comparisons of versions by hand, and entries of the list that allow no line.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_used = [false; ALLOWED.len()];
    for source in sources {
        if !CRATES.contains(&source.crate_folder()) {
            continue;
        }
        let lines: Vec<&str> = source.code.lines().collect();
        for at in comparisons(&source.code) {
            let line = line_of(&source.code, at);
            if source.is_test[line] {
                continue;
            }
            let allowed = ALLOWED
                .iter()
                .position(|(path, text, _)| source.path == *path && lines[line].contains(text));
            if let Some(allowed) = allowed {
                is_used[allowed] = true;
                continue;
            }
            let message = "versions compared by hand: call `is_newer_than`, `newest` or \
                           `newest_first`, the merge rule of decision 0001";
            findings.push(Finding::new(&source.path, line + 1, "merge rule", message));
        }
    }
    for ((path, text, _), _) in ALLOWED.iter().zip(is_used).filter(|(_, used)| !used) {
        let message = format!("`{text}` is allowed in merge_rule.rs and is not there: delete it");
        findings.push(Finding::new(*path, 0, "merge rule", message));
    }
    findings
}

/// Where `code` compares a `.version` by its order.
fn comparisons(code: &str) -> impl Iterator<Item = usize> {
    const FIELD: &str = ".version";
    code.match_indices(FIELD)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let behind = &code[at + FIELD.len()..];
            if behind.starts_with(is_name) {
                return false;
            }
            let behind = behind.strip_prefix("()").unwrap_or(behind);
            let path = before_path(&code[..at]);
            let behind = if path.ends_with("Some(") {
                behind.strip_prefix(')').unwrap_or(behind)
            } else {
                behind
            };
            let before = path.strip_suffix("Some(").unwrap_or(path);
            // `.version.rmw` is a number, in any comparison.
            let is_whole = !behind.starts_with('.');
            is_compared_behind(behind)
                || is_whole && (is_compared_before(before) || is_argument(path))
        })
}

/// `code` without the path at its end: names, dots, borrows, calls without arguments.
fn before_path(code: &str) -> &str {
    let mut rest = code;
    loop {
        rest = rest.trim_end_matches(|c| is_name(c) || ".&*?".contains(c));
        match rest.strip_suffix("()") {
            Some(shorter) => rest = shorter,
            None => return rest,
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `.version > x`, `.version.cmp(x)`, `Some(a.version) < x`.
fn is_compared_behind(behind: &str) -> bool {
    let calls = [".max(", ".min(", ".cmp(", ".partial_cmp("];
    let is_operator = |text: &str| {
        let sign = text.trim_start();
        let mut signs = sign.chars();
        // An operator stands between blanks; a shift is none.
        matches!(signs.next(), Some('<' | '>')) && matches!(signs.next(), Some(' ' | '='))
    };
    calls.iter().any(|call| behind.starts_with(call)) || is_operator(behind)
}

/// `x > a.version`, with the path in front of the field taken away.
fn is_compared_before(before: &str) -> bool {
    [" <", " >", " <=", " >="]
        .iter()
        .any(|sign| before.trim_end().ends_with(sign) && before.ends_with([' ', '\n']))
}

/// `x.max(a.version`, `max_by_key(|a| a.version`, with the path in front of the field taken away.
fn is_argument(path: &str) -> bool {
    let is_call = [".max(", ".min(", ".cmp(", ".partial_cmp("]
        .iter()
        .any(|call| path.ends_with(call));
    let closure = path.trim_end().strip_suffix('|');
    let closure = closure.map(|rest| rest.trim_end_matches(|c| is_name(c) || " &(),".contains(c)));
    let is_key = closure
        .and_then(|rest| rest.strip_suffix('|'))
        .is_some_and(|rest| rest.ends_with("_by_key("));
    is_call || is_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> usize {
        comparisons(code).count()
    }

    #[test]
    fn every_comparison_by_order_is_found() {
        for code in [
            "if a.version > b {",
            "if a.version\n    >= b {",
            "if b.version() < c {",
            "if a > b.version {",
            "if a <= x.cell().version {",
            "if stored >= Some(a.version) {",
            "&& Some(a.cell.version) <= stored",
            "let a = b.max(c.version);",
            "let a = c.version.max(b);",
            "by_key.then(a.cmp(&b.version))",
            "cells.max_by_key(|cell| cell.version)",
            "cells.sort_by_key(|(_, cell)| cell.version)",
            "cells.sort_unstable_by_key(|cell| cell.version())",
        ] {
            assert!(found(code) > 0, "{code}");
        }
    }

    #[test]
    fn nothing_else_is_found() {
        for code in [
            "if a.version == b.version {",
            "if a.version.hlc > b.version.hlc {",
            "if meta.version_max > b {",
            "fn f(a: &A) -> Version { a.version }",
            "Some(x) => a.version,",
            "let v: Option<Version> = a.version;",
            "map(|cell| cell.version)",
            "let a = Some(b.version);",
            "let hlc = a.version >> 16;",
            "f(a.version).max(3)",
            "a.version.is_newer_than(b.version)",
        ] {
            assert_eq!(found(code), 0, "{code}");
        }
    }

    #[test]
    fn a_comparison_is_a_finding_in_the_product_and_not_in_its_tests() {
        let text =
            "fn f() { a.version > b; }\n#[cfg(test)]\nmod tests { fn g() { a.version > b; } }\n";
        let messages = |path: &str| {
            let found = check(&[Source::new(path, text)]);
            found.iter().filter(|finding| finding.path == path).count()
        };
        assert_eq!(messages("crates/engine/src/a.rs"), 1);
        assert_eq!(messages("crates/node/tests/a.rs"), 0);
        assert_eq!(messages("crates/sim/src/a.rs"), 0);
        assert_eq!(messages("crates/base/src/version.rs"), 0);
    }

    #[test]
    fn an_allowed_place_is_no_finding_and_an_unused_one_is() {
        let (path, text, _) = ALLOWED[0];
        let source = Source::new(path, &format!("fn f() {{ {text}; }}\n"));
        let found = check(&[source]);
        assert!(found.iter().all(|finding| finding.line == 0));
        assert_eq!(found.len(), ALLOWED.len() - 1);
    }
}
