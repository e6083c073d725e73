//! Texts of a case: variables that are filled in, and patterns that answers must match.
//!
//! ```text
//! ${name}     the variable `name`
//! ${x*5}      xxxxx: one character, so many times
//! a*b         as a pattern: a, anything, b
//! ```
//!
//! Invariants
//! 1. A variable that is not set is an error, never an empty text.
//! 2. A filled text has at most `FILLED_BYTES_MAX` bytes.
//!
//! Not here: the shape of a case (`case.rs`).
//! See: docs/conformance/README.md.

use std::collections::BTreeMap;

/// Twice the largest value of any node, so that a case can send one that is too large.
const FILLED_BYTES_MAX: usize = 2 * dendra_base::limits::VALUE_BYTES_MAX_LIMIT;

/// Variables by name.
#[derive(Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets or replaces one.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), value);
    }

    /// The names of all that are set.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// `text` with its variables; the error is a sentence.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, after)) = behind.split_once('}') else {
                return Err(format!("{text:?} opens ${{ and does not close it"));
            };
            match repeated(name) {
                Some((letter, times)) if times <= FILLED_BYTES_MAX => {
                    out.extend(std::iter::repeat_n(letter, times));
                }
                Some((_, times)) => {
                    return Err(format!("${{{name}}}: {times} is above {FILLED_BYTES_MAX}"));
                }
                None => out.push_str(self.0.get(name).ok_or_else(|| {
                    format!("the variable {name:?} is not set; capture it in an earlier step")
                })?),
            }
            if out.len() > FILLED_BYTES_MAX {
                return Err(format!("a text has more than {FILLED_BYTES_MAX} bytes"));
            }
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// `x*5` as its letter and number.
fn repeated(name: &str) -> Option<(char, usize)> {
    let (letter, times) = name.rsplit_once('*')?;
    let mut letters = letter.chars();
    match (letters.next(), letters.next()) {
        (Some(only), None) => Some((only, times.parse().ok()?)),
        _ => None,
    }
}

/// Does `text` match `pattern`, in which `*` stands for any bytes?
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_repetitions_are_filled_in() {
        let mut variables = Variables::default();
        variables.set("p", "cf-1".to_owned());
        assert_eq!(variables.fill("a${p}b${x*3}"), Ok("acf-1bxxx".to_owned()));
        assert_eq!(
            variables.fill(r#"{"key":"$"}"#),
            Ok(r#"{"key":"$"}"#.to_owned())
        );
        for bad in ["${q}", "${p", "${x*99999999}"] {
            assert!(variables.fill(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_star_stands_for_anything_and_the_rest_for_itself() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*c", "abc"),
            ("a*c", "ac"),
            ("acks=*/*; level=*", "acks=1/1; level=x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*a", "a"), ("a*c", "acd"), ("", "a")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
