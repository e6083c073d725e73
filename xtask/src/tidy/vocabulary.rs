//! The rule about names of types: one name, one type in the whole product.
//!
//! ```text
//! counted      struct, enum, trait, union and type at the level of items, in crates/*/src
//! not counted  test code, associated types, other folders of the workspace
//! ```
//!
//! Invariants
//! 1. A name is declared once. There is no exception: a second type takes a word of its own, or is
//!    the first one, shared.
//!
//! Not here: the meaning of a name (the glossary of ARCHITECTURE.md), names without a meaning
//! (`rules/`). See: docs/style.md, "Names".

use super::finding::Finding;
use super::rules::declared;
use crate::source::Source;
use std::collections::BTreeMap;

const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// Names that more than one type has.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, places) in places(sources) {
        let [(first, first_line), .., (path, line)] = places[..] else {
            continue;
        };
        let message = format!(
            "a type called `{name}` is declared {} times, first in {first}:{first_line}: \
             one name, one type; take another word",
            places.len()
        );
        findings.push(Finding::new(path, line, "vocabulary", message));
    }
    findings
}

/// Where each type of the product is declared: path and line, in the order of the files.
fn places(sources: &[Source]) -> BTreeMap<&str, Vec<(&str, usize)>> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for source in sources {
        if !source.path.starts_with("crates/") || !source.path.contains("/src/") {
            continue;
        }
        for (at, line) in source.code.lines().enumerate() {
            if source.is_test[at] {
                continue;
            }
            if let Some(name) = type_of(line) {
                places.entry(name).or_default().push((&source.path, at + 1));
            }
        }
    }
    places
}

/// The type that this line declares.
fn type_of(line: &str) -> Option<&str> {
    let start = line.trim_start();
    let item = match start.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, item)| item),
        Some(rest) => rest,
        None => start,
    };
    let item = item.trim_start();
    let item = item.strip_prefix("unsafe ").unwrap_or(item);
    let keyword = KEYWORDS.into_iter().find(|keyword| {
        item.strip_prefix(keyword)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    // An indented `type` belongs to a trait or to its implementation.
    if keyword == "type" && start.len() < line.len() {
        return None;
    }
    declared(item, keyword)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(texts: &[(&str, &str)]) -> Vec<Source> {
        let source = |(path, text): &(&str, &str)| Source::new(path, text);
        texts.iter().map(source).collect()
    }

    #[test]
    fn every_way_to_declare_a_type_is_seen() {
        for line in [
            "struct A;",
            "pub struct A<T> {",
            "pub(crate) enum A {",
            "pub(in crate::b) union A {",
            "    pub unsafe trait A {",
            "type A = Vec<u8>;",
        ] {
            assert_eq!(type_of(line), Some("A"), "{line}");
        }
        for line in [
            "    type A = u8;",
            "impl A {",
            "use a::A;",
            "structure A",
            "let enums = A;",
        ] {
            assert_eq!(type_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_name_that_is_declared_twice_is_found_wherever_the_second_is() {
        let twice = [
            ("crates/a/src/x.rs", "pub struct One;\n"),
            ("crates/b/src/y.rs", "\nenum One {}\n"),
        ];
        let found = check(&sources(&twice));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].path.as_str(), found[0].line),
            ("crates/b/src/y.rs", 2)
        );
        let in_one_file = [(
            "crates/a/src/x.rs",
            "struct One;\nmod b {\n    struct One;\n}\n",
        )];
        assert_eq!(check(&sources(&in_one_file)).len(), 1);
    }

    #[test]
    fn tests_and_other_folders_may_say_it_again() {
        let texts = [
            (
                "crates/a/src/x.rs",
                "struct One;\n#[cfg(test)]\nmod tests {\n    struct One;\n}\n",
            ),
            ("crates/a/tests/y.rs", "struct One;\n"),
            ("crates/a/src/x/tests.rs", "struct One;\n"),
            ("xtask/src/z.rs", "struct One;\n"),
        ];
        assert!(check(&sources(&texts)).is_empty());
    }
}
