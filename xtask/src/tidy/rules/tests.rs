//! Every rule meets a sample that breaks it and one that looks as if it did.

use super::*;

fn rules_broken(path: &str, text: &str) -> Vec<&'static str> {
    check(&Source::new(path, text))
        .iter()
        .map(|finding| finding.rule)
        .collect()
}

fn engine(text: &str) -> Vec<&'static str> {
    rules_broken("crates/engine/src/a.rs", &format!("//! Purpose.\n{text}"))
}

const NOTHING: [&str; 0] = [];

fn long_body(lines: usize) -> String {
    "fn f() {}\n".repeat(lines)
}

#[test]
fn a_file_without_a_purpose_is_found() {
    assert_eq!(
        rules_broken("crates/engine/src/a.rs", "fn a() {}\n"),
        ["header"]
    );
    assert_eq!(
        rules_broken("crates/engine/src/a.rs", "//! Purpose.\nfn a() {}\n"),
        NOTHING
    );
}

#[test]
fn a_long_module_without_invariants_or_absences_is_found() {
    let body = long_body(70);
    let whole = format!("//! P.\n//!\n//! Invariants\n//! 1. A.\n//!\n//! Not here: b.\n{body}");
    assert_eq!(rules_broken("crates/engine/src/a.rs", &whole), NOTHING);
    for (part, without) in [
        (
            "Invariants",
            whole.replace("//! Invariants\n//! 1. A.\n", ""),
        ),
        ("Not here", whole.replace("//! Not here: b.\n", "")),
        ("numbers", whole.replace("//! 1. A.\n", "//! A.\n")),
    ] {
        assert_eq!(
            rules_broken("crates/engine/src/a.rs", &without),
            ["header"],
            "{part}"
        );
    }
    let turned = format!("//! P.\n//! Not here: b.\n//! Invariants\n//! 1. A.\n{body}");
    assert_eq!(rules_broken("crates/engine/src/a.rs", &turned), ["header"]);
}

#[test]
fn tests_and_included_formats_need_no_parts() {
    assert_eq!(
        rules_broken("crates/engine/tests/a.rs", &long_body(70)),
        NOTHING
    );
    let included = format!("#![doc = include_str!(\"x.md\")]\n{}", long_body(70));
    assert_eq!(rules_broken("crates/engine/src/a.rs", &included), NOTHING);
}

#[test]
fn a_mountain_of_a_file_is_found_and_comments_do_not_count() {
    let header = "//! P.\n//! Invariants\n//! 1. A.\n//! Not here: b.\n";
    let comments = "// why\n\n".repeat(900);
    let most = format!("{header}{comments}{}", long_body(LINES_MAX));
    assert_eq!(rules_broken("crates/server/src/a.rs", &most), NOTHING);
    let more = format!("{most}fn g() {{}}\n");
    assert_eq!(rules_broken("crates/server/src/a.rs", &more), ["length"]);
}

#[test]
fn every_impure_word_is_found_in_a_pure_crate_only() {
    for (word, _) in IMPURE {
        let text = format!("fn a() {{ {word}(); }}\n");
        assert!(engine(&text).contains(&"pure"), "{word}");
        let text = format!("//! P.\n{text}");
        assert_eq!(
            rules_broken("crates/server/src/a.rs", &text),
            NOTHING,
            "{word}"
        );
        assert_eq!(
            rules_broken("crates/engine/src/vfs/os.rs", &text),
            NOTHING,
            "{word}"
        );
        assert_eq!(
            rules_broken("crates/engine/examples/a.rs", &text),
            NOTHING,
            "{word}"
        );
    }
    assert_eq!(engine("use std::{fs, io};\n"), ["pure"]);
    assert_eq!(engine("use std::{fmt, io};\n"), NOTHING);
}

#[test]
fn impure_words_in_comments_strings_tests_and_longer_names_are_fine() {
    assert_eq!(engine("// Instant::now is not here\n"), NOTHING);
    assert_eq!(engine("fn a() { b(\"std::fs\") }\n"), NOTHING);
    assert_eq!(
        engine("#[cfg(test)]\nmod tests {\n fn a() { std::fs::read(); }\n}\n"),
        NOTHING
    );
    assert_eq!(engine("use crate::vfs::os;\nfn operand::b() {}\n"), NOTHING);
}

#[test]
fn queues_without_a_bound_are_found() {
    for call in [
        "mpsc::channel()",
        "mpsc::channel::<u8>()",
        "unbounded_channel()",
        "unbounded()",
    ] {
        let text = format!("fn a() {{ b({call}); }}\n");
        assert_eq!(engine(&text), ["bounded"], "{call}");
        let text = format!("#[cfg(test)]\nmod tests {{ {text} }}\n");
        assert_eq!(engine(&text), NOTHING, "{call}");
    }
    assert_eq!(
        engine("fn a() { b(mpsc::channel(8), Bound::Unbounded) }\n"),
        NOTHING
    );
    assert_eq!(engine("fn a() { mpsc::sync_channel(8) }\n"), NOTHING);
}

#[test]
fn names_that_say_nothing_are_found() {
    for text in [
        "struct CacheManager;\n",
        "pub(crate) enum ReadHelper {}\n",
        "pub trait Inner {}\n",
        "type KeyUtils = u8;\n",
        "mod common;\n",
        "pub fn get_key() {}\n",
    ] {
        assert_eq!(engine(text), ["names"], "{text}");
    }
    for text in [
        "struct Spinner;\n",
        "fn get() {}\n",
        "fn forget_key() {}\n",
        "mod commonly;\n",
    ] {
        assert_eq!(engine(text), NOTHING, "{text}");
    }
    assert_eq!(
        rules_broken("crates/engine/src/util.rs", "//! P.\n"),
        ["names"]
    );
    assert_eq!(
        rules_broken("crates/engine/tests/common/mod.rs", "fn a() {}\n"),
        ["names"]
    );
}

#[test]
fn unfinished_work_is_found() {
    for mark in LEFTOVERS {
        assert_eq!(
            engine(&format!("// {mark}: later\n")),
            ["leftover"],
            "{mark}"
        );
    }
    for text in [
        "fn a() { dbg!(1); }\n",
        "fn a() { todo!() }\n",
        "#[ignore]\nfn a() {}\n",
        "#[ignore = \"slow\"]\nfn a() {}\n",
    ] {
        assert_eq!(engine(text), ["leftover"], "{text}");
    }
    for text in [
        "fn a() { b(\"todo!\") } // dbg! is not here\n",
        "#[ignore = \"at length\"]\nfn a() {}\n",
    ] {
        assert_eq!(engine(text), NOTHING, "{text}");
    }
}

#[test]
fn unsafe_is_found_outside_its_modules_and_without_its_proof() {
    let text = "fn a() { unsafe { b() } }\n";
    assert_eq!(engine(text), ["unsafe"]);
    let place = "crates/engine/src/memtable/arena.rs";
    assert_eq!(rules_broken(place, &format!("//! P.\n{text}")), ["unsafe"]);
    assert_eq!(
        rules_broken(place, &format!("//! P.\n// SAFETY: b is safe.\n{text}")),
        NOTHING
    );
    assert_eq!(engine("#![forbid(unsafe_code)] // unsafe\n"), NOTHING);
}

#[test]
fn paths_of_one_machine_are_found() {
    for place in MACHINE {
        let text = format!("first\nlook into `{place}x`\n");
        let findings = machine_paths("docs/a.md", &text);
        assert_eq!(
            findings.iter().map(|f| f.line).collect::<Vec<_>>(),
            [2],
            "{place}"
        );
        let text = format!("see https://example.org{place}x\n");
        assert!(machine_paths("docs/a.md", &text).is_empty(), "{place}");
    }
}
