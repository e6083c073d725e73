//! One planted bug as its file holds it: a sentence, the tests that find it, a unified diff.
//!
//! ```text
//! A write that was only noted for an absent member counts as stored there.
//!
//! Found by: sim 18 VersionOrder
//! Found by: test dendra-node conversations
//!
//! --- a/crates/node/src/coordinator/write.rs
//! +++ b/crates/node/src/coordinator/write.rs
//! @@ -238,7 +238,7 @@
//! ```
//!
//! Invariants
//! 1. A hunk belongs where its old lines stand, once, in the file; the numbers in its head do not
//!    count.
//!
//! Not here: the use of the changes (`merge.rs`).

use super::finders::Finder;
use std::ops::Range;

/// A bug.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    /// The number in front of its name: the value of `DENDRA_PLANTED`.
    pub(crate) number: u32,
    /// The name of its file, without the end.
    pub(crate) name: String,
    pub(crate) finders: Vec<Finder>,
    pub(crate) files: Vec<FilePatch>,
    text: String,
}

/// The changes of one file.
#[derive(Clone, Debug)]
pub(crate) struct FilePatch {
    /// From the root of the workspace.
    pub(crate) path: String,
    hunks: Vec<Vec<String>>,
}

/// Lines that are replaced, counted from zero; an insertion replaces an empty range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) old: Range<usize>,
    pub(crate) new: Vec<String>,
}

const FOUND_BY: &str = "Found by: ";

impl Plant {
    /// Reads the text of the patch `name`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Plant, String> {
        let number = name
            .split('-')
            .next()
            .and_then(|digits| digits.parse().ok());
        let number = number
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("{name}: the name begins with a number from 1 on"))?;
        let mut finders = Vec::new();
        let mut files: Vec<FilePatch> = Vec::new();
        for line in text.lines() {
            let hunk = files.last_mut().and_then(|file| file.hunks.last_mut());
            if let Some(path) = line.strip_prefix("+++ b/") {
                let (path, hunks) = (path.to_owned(), Vec::new());
                files.push(FilePatch { path, hunks });
            } else if line.starts_with("--- a/") || line.starts_with("diff ") {
                continue;
            } else if line.starts_with("@@ ") {
                let file = files.last_mut();
                let file = file.ok_or_else(|| format!("{name}: a hunk without a file"))?;
                file.hunks.push(Vec::new());
            } else if let Some(hunk) = hunk {
                match line.chars().next() {
                    Some(' ' | '-' | '+') => hunk.push(line.to_owned()),
                    // Editors cut the blank of an empty line.
                    None => hunk.push(" ".to_owned()),
                    Some(_) => return Err(format!("{name}: `{line}` is no line of a hunk")),
                }
            } else if let Some(finder) = line.strip_prefix(FOUND_BY) {
                finders.push(Finder::parse(finder).map_err(|why| format!("{name}: {why}"))?);
            }
        }
        if files.iter().all(|file| file.hunks.is_empty()) {
            return Err(format!("{name}: it changes nothing"));
        }
        Ok(Plant {
            number,
            name: name.to_owned(),
            finders,
            files,
            text: text.to_owned(),
        })
    }

    /// Text of the patch with other finders.
    pub(crate) fn with_finders(&self, finders: &[Finder]) -> String {
        let (sentence, diff) = halves(&self.text);
        let found: String = finders
            .iter()
            .map(|finder| format!("{FOUND_BY}{finder}\n"))
            .collect();
        format!("{}\n\n{found}\n{diff}", sentence.trim_end())
    }
}

/// The sentence of a patch, without its finders, and its diff.
pub(crate) fn halves(text: &str) -> (String, &str) {
    let is_diff = |line: &str| line.starts_with("--- a/") || line.starts_with("diff ");
    let mut at = 0;
    let mut sentence = String::new();
    for line in text.split_inclusive('\n') {
        if is_diff(line) {
            break;
        }
        if !line.starts_with(FOUND_BY) {
            sentence.push_str(line);
        }
        at += line.len();
    }
    (sentence, &text[at..])
}

impl FilePatch {
    /// The edits that it makes in `lines`.
    pub(crate) fn edits(&self, lines: &[&str]) -> Result<Vec<Edit>, String> {
        let mut edits = Vec::new();
        for hunk in &self.hunks {
            edits.extend(edits_at(hunk, place(hunk, lines)?));
        }
        Ok(edits)
    }

    /// Does each hunk have one place in `lines`?
    pub(crate) fn is_placed(&self, lines: &[&str]) -> bool {
        self.edits(lines).is_ok()
    }
}

/// The line at which the old lines of `hunk` begin.
fn place(hunk: &[String], lines: &[&str]) -> Result<usize, String> {
    let old: Vec<&str> = hunk
        .iter()
        .filter(|line| !line.starts_with('+'))
        .map(|line| &line[1..])
        .collect();
    let first = hunk.iter().find(|line| !line.starts_with(' '));
    let near = first.map_or("", |line| line[1..].trim());
    if old.is_empty() {
        return Err(format!("no line stands around `{near}`"));
    }
    let mut places = (0..lines.len()).filter(|at| lines[*at..].starts_with(&old));
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(format!("the lines around `{near}` are others now")),
        (Some(a), Some(b)) => Err(format!(
            "the lines around `{near}` stand at {} and at {}: show more of them",
            a + 1,
            b + 1
        )),
    }
}

/// The changes of a hunk whose old lines begin at `at`.
fn edits_at(hunk: &[String], mut at: usize) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut is_open = false;
    for line in hunk {
        let (sign, rest) = line.split_at(1);
        if sign == " " {
            (at, is_open) = (at + 1, false);
            continue;
        }
        if !is_open {
            let new = Vec::new();
            edits.push(Edit { old: at..at, new });
            is_open = true;
        }
        let edit = edits.last_mut().expect("one was pushed");
        if sign == "-" {
            at += 1;
            edit.old.end = at;
        } else {
            edit.new.push(rest.to_owned());
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
It forgets.

Found by: sim 3
Found by: test dendra-node compare

--- a/crates/node/src/a.rs
+++ b/crates/node/src/a.rs
@@ -1,4 +1,4 @@
 fn a() {
-    keep();
+    forget();
+    twice();
 }
";

    #[test]
    fn a_patch_is_read_and_placed_by_its_lines() {
        let plant = Plant::parse("07-forgets", TEXT).expect("it is a patch");
        assert_eq!((plant.number, plant.finders.len()), (7, 2));
        let lines = ["// new", "fn a() {", "    keep();", "}"];
        let edits = plant.files[0].edits(&lines).expect("there is one place");
        let new = vec!["    forget();".to_owned(), "    twice();".to_owned()];
        assert_eq!(edits, [Edit { old: 2..3, new }]);
    }

    #[test]
    fn a_patch_without_a_place_or_with_two_says_so() {
        let plant = Plant::parse("07-forgets", TEXT).expect("it is a patch");
        let edits = |lines: &[&str]| plant.files[0].edits(lines).expect_err("no one place");
        assert!(edits(&["fn a() {", "    kept();", "}"]).contains("are others now"));
        let twice = [
            "fn a() {",
            "    keep();",
            "}",
            "fn a() {",
            "    keep();",
            "}",
        ];
        assert!(edits(&twice).contains("at 1 and at 4"));
    }

    #[test]
    fn finders_are_written_anew_and_nothing_else_changes() {
        let plant = Plant::parse("07-forgets", TEXT).expect("it is a patch");
        let finder = Finder::parse("twin 9").expect("it is one");
        let text = plant.with_finders(&[finder]);
        let wanted = TEXT
            .replace("Found by: sim 3\n", "Found by: twin 9\n")
            .replace("Found by: test dendra-node compare\n", "");
        assert_eq!(text, wanted);
    }

    #[test]
    fn names_begin_with_numbers_and_patches_change_something() {
        assert!(Plant::parse("forgets", TEXT).is_err());
        assert!(Plant::parse("07-forgets", "It forgets.\n").is_err());
    }
}
