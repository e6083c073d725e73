//! One Rust file as tidy and planted bugs see it: its code apart from its comments and strings.
//!
//! ```text
//! text      let a = "b{c"; // why      as it is on disk
//! code      let a = "   ";             comments and the insides of strings are blanks
//! is_test   true for lines inside `#[cfg(test)] { … }`, and for whole files of tests
//! ```
//!
//! Invariants
//! 1. `text` and `code` have the same lines, and every byte of code keeps its place.
//! 2. A quote inside a comment, or a comment inside a string, has no effect outside of it.
//!
//! Not here: rules (`tidy/`), a parser: braces and words are enough for all that reads it.

/// A Rust file, prepared for the rules.
pub(crate) struct Source {
    /// Path from the root of the workspace, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The file with comments and the insides of strings blanked.
    pub(crate) code: String,
    /// Per line: is it compiled for tests only?
    pub(crate) is_test: Vec<bool>,
}

impl Source {
    /// Prepares the text of the file at `path`.
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let code = blank_comments_and_strings(text);
        let lines = text.lines().count();
        let is_test = if is_test_path(path) {
            vec![true; lines]
        } else {
            test_lines(&code, lines)
        };
        Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            is_test,
        }
    }

    /// Is the whole file about tests?
    pub(crate) fn is_test_file(&self) -> bool {
        is_test_path(&self.path)
            || (!self.is_test.is_empty() && self.is_test.iter().all(|is_test| *is_test))
    }

    /// Makes the whole file one of tests: the module that declares it does so for tests only.
    pub(crate) fn mark_as_test(&mut self) {
        self.is_test.fill(true);
    }

    /// The paths of modules that this file declares for tests only, without `.rs`.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let folder = self.folder_of_modules();
        let lines = self.code.lines().zip(&self.is_test);
        lines
            .filter(|(_, is_test)| **is_test)
            .filter_map(|(line, _)| line.trim().strip_prefix("mod ")?.strip_suffix(';'))
            .map(|name| format!("{folder}/{name}"))
            .collect()
    }

    /// Where the modules that this file declares stand.
    pub(crate) fn folder_of_modules(&self) -> &str {
        match self.path.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder,
            _ => self.path.trim_end_matches(".rs"),
        }
    }

    /// Lines that hold code: neither blank nor comment alone.
    pub(crate) fn code_lines(&self) -> usize {
        self.code
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count()
    }

    /// The crate's folder, as in the import table: `crates/engine` for all that is below it.
    pub(crate) fn crate_folder(&self) -> &str {
        let mut slashes = self.path.match_indices('/').map(|(at, _)| at);
        let first = slashes.next();
        match (self.path.starts_with("crates/"), first, slashes.next()) {
            (true, _, Some(second)) => &self.path[..second],
            (_, Some(first), _) => &self.path[..first],
            _ => "",
        }
    }
}

/// Does `code` name `word`, not as a part of a longer name? `word` may hold `::`.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let starts_open = !word.starts_with(is_name) || !before.is_some_and(is_name);
        let ends_open = !word.ends_with(is_name) || !after.is_some_and(is_name);
        starts_open && ends_open
    })
}

fn is_test_path(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    path.contains("/tests/")
        || path.contains("/benches/")
        || file == "tests.rs"
        || file.ends_with("_tests.rs")
}

/// Marks the lines of every item under a `#[cfg(…test…)]`.
fn test_lines(code: &str, lines: usize) -> Vec<bool> {
    let mut marks = vec![false; lines];
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(") {
        let start = from + found;
        let Some(length) = code[start..].find(']') else {
            break;
        };
        let attribute = &code[start..=start + length];
        from = start + length + 1;
        if !has_word(attribute, "test") || has_word(attribute, "not") {
            continue;
        }
        let end = item_end(code, from);
        let first = line_of(code, start);
        let last = line_of(code, end).min(lines.saturating_sub(1));
        marks[first..=last].fill(true);
        from = end.max(from);
    }
    marks
}

/// Where the item that starts at `from` ends: its closing brace, or its semicolon.
pub(crate) fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return at,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

/// Zero-based line of the byte at `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
}

fn blank_comments_and_strings(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (from, to) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => (at, line_end(bytes, at)),
            b'/' if bytes[at..].starts_with(b"/*") => (at, block_comment_end(bytes, at)),
            b'"' => (at + 1, string_end(bytes, at + 1)),
            b'r' if !is_name_before(bytes, at) || is_byte_prefix(bytes, at) => {
                match raw_string(bytes, at) {
                    Some(inside) => inside,
                    None => (at, at),
                }
            }
            b'\'' => match char_literal_end(text, at) {
                Some(end) => (at + 1, end),
                None => (at, at),
            },
            _ => (at, at),
        };
        for byte in &mut out[from..to.min(bytes.len())] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        // A string's closing quote is code again: step over it, or it would open the next one.
        let is_comment = bytes[at] == b'/';
        at = if to > from || from > at {
            to + usize::from(!is_comment)
        } else {
            at + 1
        };
    }
    String::from_utf8(out).expect("blanks replace whole characters only")
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..]
        .iter()
        .position(|&b| b == b'\n')
        .map_or(bytes.len(), |n| from + n)
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0usize;
    let mut at = from;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// Where the string whose inside starts at `from` has its closing quote.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The inside of a raw string that starts with the `r` at `at`.
fn raw_string(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let hashes = bytes[at + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.extend(std::iter::repeat_n(b'#', hashes));
    let inside = open + 1;
    let length = bytes[inside..]
        .windows(closing.len())
        .position(|w| w == closing);
    Some((inside, length.map_or(bytes.len(), |n| inside + n)))
}

fn is_name_before(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// Is the byte before `at` the `b` or `c` of a byte string, and not the end of a name?
fn is_byte_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at - 1], b'b' | b'c') && !is_name_before(bytes, at - 1)
}

/// Where the character literal that opens at `at` closes; `None` for a lifetime.
fn char_literal_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let first = rest.chars().next()?;
    if first == '\\' {
        let escaped = rest[1..].chars().next()?;
        let from = 1 + escaped.len_utf8();
        return rest[from..].find('\'').map(|n| at + 1 + from + n);
    }
    let close = first.len_utf8();
    rest[close..].starts_with('\'').then_some(at + 1 + close)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("crates/engine/src/a.rs", text).code
    }

    #[test]
    fn comments_and_strings_are_blanked() {
        assert_eq!(code("a(\"b\\\"c\") // d"), "a(\"    \")     ");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code("r#\"a \" b\"# + c"), "r#\"     \"# + c");
        assert_eq!(code("br\"a\" + c"), "br\" \" + c");
        assert_eq!(code("\"\" + \"x\" + y"), "\"\" + \" \" + y");
    }

    #[test]
    fn quotes_of_characters_and_lifetimes_do_not_open_strings() {
        assert_eq!(code("f('\"', 'x', \"y\")"), "f(' ', ' ', \" \")");
        assert_eq!(code("f('\\'', '\\u{41}') g"), "f('  ', '      ') g");
        assert_eq!(code("fn a<'a>(b: &'a str) {}"), "fn a<'a>(b: &'a str) {}");
        assert_eq!(code("// it's\nfoo()"), "       \nfoo()");
    }

    #[test]
    fn blanked_code_keeps_its_lines_and_places() {
        let text = "let ä = \"ö\n\"; /* ü\n */ let b = 'é';\n";
        let blanked = code(text);
        assert_eq!(blanked.len(), text.len());
        assert_eq!(blanked.find("let b"), text.find("let b"));
        assert_eq!(blanked.lines().count(), text.lines().count());
    }

    #[test]
    fn test_modules_are_marked_and_other_items_are_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() { {} }\n}\nfn c() {}\n";
        let source = Source::new("crates/engine/src/a.rs", text);
        assert_eq!(source.is_test, [false, true, true, true, true, false]);
        let text = "#[cfg(not(test))]\nfn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n";
        let source = Source::new("crates/engine/src/a.rs", text);
        assert_eq!(source.is_test, [false, false, true, true, false]);
    }

    #[test]
    fn files_of_tests_are_tests_as_a_whole() {
        for path in [
            "crates/engine/tests/model.rs",
            "crates/engine/src/wal/tests.rs",
        ] {
            assert!(Source::new(path, "fn a() {}\n").is_test_file(), "{path}");
        }
        assert!(!Source::new("crates/engine/src/latest.rs", "").is_test_file());
    }

    #[test]
    fn modules_declared_for_tests_are_named_by_their_path() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod c {}\n";
        let declared = |path| Source::new(path, text).test_modules();
        assert_eq!(
            declared("crates/engine/src/x/mod.rs"),
            ["crates/engine/src/x/b"]
        );
        assert_eq!(
            declared("crates/engine/src/x.rs"),
            ["crates/engine/src/x/b"]
        );
    }

    #[test]
    fn a_word_is_not_a_part_of_a_longer_name() {
        assert!(has_word("std::fs::read()", "fs::"));
        assert!(!has_word("vfs::os::read()", "fs::"));
        assert!(has_word("x.unsafe {", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
    }

    #[test]
    fn a_file_belongs_to_its_crate() {
        assert_eq!(
            Source::new("crates/engine/src/vfs/os.rs", "").crate_folder(),
            "crates/engine"
        );
        assert_eq!(Source::new("xtask/src/main.rs", "").crate_folder(), "xtask");
        assert_eq!(Source::new("build.rs", "").crate_folder(), "");
    }
}
