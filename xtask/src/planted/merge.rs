//! All changes in one copy of the sources: each function that they change becomes a switch.
//!
//! ```text
//! fn f(a: u8) -> u8 {                 fn f(a: u8) -> u8 {
//!     a + 1                               match dendra_base::planted::bug() {
//! }                                           7 => {
//!              07: -    a + 1     ──►     a
//!                  +    a                     }
//!                                             _ => {
//!                                         a + 1
//!                                             }
//!                                         }
//!                                     }
//! ```
//!
//! Invariants
//! 1. Without a bug switched on the copy behaves as the source does.
//! 2. A change is one of bodies of functions, or adds items beside them; anything else is refused.
//!
//! `git apply` would need a build for each of more than a hundred patches. All of them in one copy
//! are built once.
//!
//! Not here: building and running the copy (`copy.rs`, `finders.rs`).

use super::patch::Edit;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A change of one file, and the number that switches it on.
pub(crate) struct Change {
    pub(crate) number: u32,
    /// From the root of the workspace.
    pub(crate) path: String,
    pub(crate) edits: Vec<Edit>,
}

/// The texts of changed files by their paths.
pub(crate) type Merged = BTreeMap<String, String>;

/// The sum of all changes to one file.
#[derive(Default)]
struct Changes {
    /// By the function's body (its lines), and by the number of the change.
    bodies: BTreeMap<(usize, usize), BTreeMap<u32, Vec<Edit>>>,
    /// Items that are added in front of a line.
    items: BTreeMap<usize, BTreeSet<Vec<String>>>,
}

/// A change that has no place in a switch: its number and the reason.
pub(crate) type Unfit = (u32, String);

/// The sources with all `changes` in them, and those that do not fit.
pub(crate) fn merge(
    changes: Vec<Change>,
    source_of: impl Fn(&str) -> Option<String>,
) -> (Merged, Vec<Unfit>) {
    let mut files: BTreeMap<String, (String, Vec<Range<usize>>, Changes)> = BTreeMap::new();
    let mut unfit = Vec::new();
    for change in changes {
        if !files.contains_key(&change.path) {
            let Some(text) = source_of(&change.path) else {
                unfit.push((change.number, format!("there is no {}", change.path)));
                continue;
            };
            let bodies = bodies(&text);
            files.insert(change.path.clone(), (text, bodies, Changes::default()));
        }
        let (text, bodies, so_far) = files.get_mut(&change.path).expect("it was inserted");
        let lines: Vec<&str> = text.lines().collect();
        let edits = change.edits.into_iter().map(|edit| slid(edit, &lines));
        if let Err(why) = so_far.add(change.number, edits.collect(), bodies) {
            unfit.push((change.number, format!("{}: {why}", change.path)));
        }
    }
    let merged = files.into_iter();
    let merged = merged.map(|(path, (text, _, of_file))| {
        let file = of_file.apply(&path, &text);
        (path, file)
    });
    (merged.collect(), unfit)
}

impl Changes {
    fn add(
        &mut self,
        number: u32,
        edits: Vec<Edit>,
        bodies: &[Range<usize>],
    ) -> Result<(), String> {
        for edit in edits {
            let body = bodies
                .iter()
                .find(|body| body.start <= edit.old.start && edit.old.end <= body.end);
            if let Some(body) = body {
                let of_body = self.bodies.entry((body.start, body.end)).or_default();
                of_body.entry(number).or_default().push(edit);
            } else if edit.old.is_empty() {
                self.items
                    .entry(edit.old.start)
                    .or_default()
                    .insert(edit.new);
            } else {
                return Err(format!(
                    "line {} is in no body of a function: only bodies change, and items are added",
                    edit.old.start + 1
                ));
            }
        }
        Ok(())
    }

    fn apply(&self, path: &str, text: &str) -> String {
        let bug = if path.starts_with("crates/base/") {
            "crate::planted::bug"
        } else {
            "dendra_base::planted::bug"
        };
        let lines: Vec<&str> = text.lines().collect();
        let mut out = String::new();
        let mut at = 0;
        while at <= lines.len() {
            for item in self.items.get(&at).into_iter().flatten().flatten() {
                push(&mut out, item);
            }
            let mut starting = self.bodies.range((at, 0)..(at + 1, 0));
            if let Some(((from, to), changed)) = starting.next() {
                let body = &lines[*from..*to];
                push(&mut out, &format!("match {bug}() {{"));
                for (number, edits) in changed {
                    push(&mut out, &format!("{number} => {{"));
                    for line in edited(body, *from, edits) {
                        push(&mut out, line);
                    }
                    push(&mut out, "}");
                }
                push(&mut out, "_ => {");
                for line in body {
                    push(&mut out, line);
                }
                push(&mut out, "}");
                push(&mut out, "}");
                at = *to;
            } else {
                if let Some(line) = lines.get(at) {
                    push(&mut out, line);
                }
                at += 1;
            }
        }
        out
    }
}

/// A diff may show a function that is added after another one as if it began with the end of that
/// one. Then it is moved down, line by line, until its braces are its own.
fn slid(mut edit: Edit, lines: &[&str]) -> Edit {
    let is_whole = |new: &[String]| {
        let code = Source::new("", &new.join("\n")).code;
        let depth = code.chars().try_fold(0usize, |depth, c| match c {
            '{' => Some(depth + 1),
            '}' => depth.checked_sub(1),
            _ => Some(depth),
        });
        depth == Some(0)
    };
    let is_same = |it: &Edit| lines.get(it.old.start) == it.new.first().map(|l| &**l).as_ref();
    while edit.old.is_empty() && !is_whole(&edit.new) && is_same(&edit) {
        edit.new.rotate_left(1);
        edit.old = edit.old.start + 1..edit.old.start + 1;
    }
    edit
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// `body`, whose first line is the file's line `from`, with `edits`.
fn edited<'a>(body: &[&'a str], from: usize, edits: &'a [Edit]) -> Vec<&'a str> {
    let mut out = Vec::new();
    let mut at = 0;
    for edit in edits {
        out.extend(&body[at..edit.old.start - from]);
        out.extend(edit.new.iter().map(String::as_str));
        at = edit.old.end - from;
    }
    out.extend(&body[at..]);
    out
}

/// The lines between the braces of each function that is in no other one. Functions on one line
/// have none, and neither do constant ones: they cannot look at a switch.
fn bodies(text: &str) -> Vec<Range<usize>> {
    let code = Source::new("", text).code;
    let line_of: Vec<usize> = code
        .bytes()
        .scan(0, |line, byte| {
            let of_byte = *line;
            *line += usize::from(byte == b'\n');
            Some(of_byte)
        })
        .collect();
    let mut bodies = Vec::new();
    let mut at = 0;
    while let Some(found) = code[at..].find("fn ") {
        let start = at + found;
        at = start + 3;
        let before = code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line_start = code[..start].rfind('\n').map_or(0, |end| end + 1);
        let is_constant = code[line_start..start]
            .split(' ')
            .any(|word| word == "const");
        let Some((open, close)) = braces(&code, at) else {
            continue;
        };
        at = close;
        if !is_constant && line_of[open] < line_of[close] {
            bodies.push(line_of[open] + 1..line_of[close]);
        }
    }
    bodies
}

/// Where the body of the function whose head goes on at `from` opens and closes; `None` if it has
/// none.
fn braces(code: &str, from: usize) -> Option<(usize, usize)> {
    let (mut open, mut depth, mut around) = (None, 0usize, 0usize);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' if open.is_none() => around += 1,
            b')' | b']' if open.is_none() => around = around.checked_sub(1)?,
            b';' if open.is_none() && around == 0 => return None,
            b'{' if around == 0 => {
                open.get_or_insert(at);
                depth += 1;
            }
            b'}' if around == 0 => {
                depth = depth.checked_sub(1)?;
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
    use crate::planted::patch::Plant;

    const SOURCE: &str = "\
const fn c() -> u8 {
    1
}
trait T {
    fn no_body(&self, of: [u8; 2]);
}
fn f(a: u8) -> u8 {
    let b = a;
    b + 1
}
fn last() {}
";

    fn change(number: u32, hunk: &str) -> Change {
        let head = "--- a/crates/node/src/a.rs\n+++ b/crates/node/src/a.rs\n@@ @@\n";
        let plant = Plant::parse("1-a", &format!("{head}{hunk}")).expect("it is a patch");
        let lines: Vec<&str> = SOURCE.lines().collect();
        Change {
            number,
            path: plant.files[0].path.clone(),
            edits: plant.files[0].edits(&lines).expect("it has a place"),
        }
    }

    fn merged(changes: Vec<Change>) -> Result<String, Vec<Unfit>> {
        let (merged, unfit) = merge(changes, |_| Some(SOURCE.to_owned()));
        if unfit.is_empty() {
            Ok(merged["crates/node/src/a.rs"].clone())
        } else {
            Err(unfit)
        }
    }

    #[test]
    fn bodies_are_the_lines_between_braces() {
        assert_eq!(bodies(SOURCE), vec![Range { start: 7, end: 9 }]);
    }

    #[test]
    fn each_patch_has_its_own_body_and_the_rest_stays() {
        let first = change(1, "     let b = a;\n-    b + 1\n+    b\n }\n");
        let other = change(
            2,
            " fn f(a: u8) -> u8 {\n-    let b = a;\n+    let b = 9;\n",
        );
        let text = merged(vec![first, other]).expect("both apply");
        let switch = "\
fn f(a: u8) -> u8 {
match dendra_base::planted::bug() {
1 => {
    let b = a;
    b
}
2 => {
    let b = 9;
    b + 1
}
_ => {
    let b = a;
    b + 1
}
}
}
";
        let (start, end) = SOURCE.split_at(SOURCE.find("fn f").expect("it is there"));
        let (_, end) = end.split_at(end.find("fn last").expect("it is there"));
        assert_eq!(text, format!("{start}{switch}{end}"));
    }

    #[test]
    fn items_are_added_once() {
        let hunk = " }\n+fn g() {}\n fn last() {}\n";
        let text = merged(vec![change(1, hunk), change(2, hunk)]).expect("both apply");
        assert_eq!(text.matches("fn g() {}").count(), 1);
    }

    #[test]
    fn an_item_behind_a_function_is_none_of_its_lines() {
        let hunk = "     b + 1\n+}\n+fn g() {\n+    2;\n }\n fn last() {}\n";
        let text = merged(vec![change(1, hunk)]).expect("it applies");
        assert!(
            text.contains("    b + 1\n}\nfn g() {\n    2;\n}\nfn last"),
            "{text}"
        );
        assert!(!text.contains("match"), "{text}");
    }

    #[test]
    fn changes_outside_of_bodies_are_refused() {
        let head = change(1, "-fn f(a: u8) -> u8 {\n+fn f(a: u16) -> u8 {\n");
        assert!(
            merged(vec![head]).expect_err("no body")[0]
                .1
                .contains("line 7 is in no body")
        );
        let constant = change(1, " const fn c() -> u8 {\n-    1\n+    2\n");
        assert!(merged(vec![constant]).is_err());
    }
}
