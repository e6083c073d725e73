//! The rules about planted bugs: their patches apply, and the product's source knows none of them.
//!
//! ```text
//! found      is_planted(Bug::B) in the product      a patch whose lines are others now
//! ```
//!
//! Not here: whether tests find the bugs (`cargo xtask planted`).
//! See: docs/verification.md, "Planted bugs".

use super::finding::Finding;
use super::tree::Tree;
use crate::planted;
use crate::source::Source;

/// Traces of planted bugs in the product, and patches that no longer apply.
pub(crate) fn check(tree: &Tree, sources: &[Source]) -> Vec<Finding> {
    let mut findings = traces(sources);
    let patches = tree.texts.iter().filter_map(|(path, text)| {
        let name = path.strip_prefix(planted::FOLDER)?.strip_prefix('/')?;
        Some((name.strip_suffix(".patch")?.to_owned(), text.clone()))
    });
    let source_of = |path: &str| tree.text(path).map(str::to_owned);
    for reason in planted::stale(patches, source_of) {
        findings.push(Finding::new(
            planted::FOLDER,
            1,
            "planted",
            format!("{reason}; make the change by hand, then cargo xtask planted --record NAME"),
        ));
    }
    findings
}

fn traces(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_product = |source: &&Source| {
        let path = &source.path;
        path.starts_with("crates/") && path.contains("/src/") && !path.starts_with("crates/sim/")
    };
    for source in sources.iter().filter(is_product) {
        for (at, line) in source.code.lines().enumerate() {
            if line.to_lowercase().contains("planted") {
                findings.push(Finding::new(
                    &source.path,
                    at + 1,
                    "planted",
                    format!("a planted bug is a patch in {}", planted::FOLDER),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_in_the_product_is_found() {
        let lines = |path| traces(&[Source::new(path, "fn a() {\n    is_planted(B);\n}\n")]);
        assert_eq!(lines("crates/node/src/a.rs").len(), 1);
        assert!(lines("crates/sim/src/planted.rs").is_empty());
        assert!(lines("crates/node/tests/twin/main.rs").is_empty());
    }
}
