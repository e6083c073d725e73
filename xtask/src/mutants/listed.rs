//! The mutants that cargo-mutants lists.
//!
//! Invariants
//! 1. A mutant replaces only the letters that the list names.
//!
//! Not here: which of them are drawn (`mod.rs`).

use crate::planted::patch::Edit;
use std::path::Path;
use std::process::{Command, Stdio};

/// One small change.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// `FILE:LINE:COLUMN: change`.
    pub(super) name: String,
    pub(super) package: String,
    pub(super) file: String,
    /// Line and column of the first letter that is replaced, and of the one after the last; from 1.
    from: (usize, usize),
    to: (usize, usize),
    replacement: String,
}

impl Mutant {
    /// The change in the text of its file; `None` if the text is another one.
    pub(super) fn edit(&self, text: &str) -> Option<Edit> {
        let lines: Vec<&str> = text.lines().collect();
        let cut = |(line, column): (usize, usize)| {
            let line = lines.get(line.checked_sub(1)?)?;
            let at = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            line.split_at_checked(at.clone().nth(column.checked_sub(1)?)?)
        };
        let ((head, _), (_, tail)) = (cut(self.from)?, cut(self.to)?);
        let new = format!("{head}{}{tail}", self.replacement);
        Some(Edit {
            old: self.from.0 - 1..self.to.0,
            new: new.lines().map(str::to_owned).collect(),
        })
    }
}

/// All mutants.
pub(super) fn list(root: &Path) -> Result<Vec<Mutant>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let listed = Command::new(cargo)
        .args(["mutants", "--list", "--json"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo does not start: {error}"))?;
    if !listed.status.success() {
        return Err("cargo-mutants lists nothing: is it there? (make mutants-setup)".to_owned());
    }
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout)
        .map_err(|error| format!("the list of cargo-mutants: {error}"))?;
    let mutants = listed.as_array().map(|list| list.iter().map(mutant));
    let mutants: Option<Vec<Mutant>> = mutants.and_then(Iterator::collect);
    mutants.ok_or_else(|| "the list of cargo-mutants has other fields than expected".to_owned())
}

fn mutant(value: &serde_json::Value) -> Option<Mutant> {
    let word = |name: &str| value[name].as_str().map(str::to_owned);
    let place = |end: &str| {
        let number = |name: &str| usize::try_from(value["span"][end][name].as_u64()?).ok();
        Some((number("line")?, number("column")?))
    };
    Some(Mutant {
        name: word("name")?,
        package: word("package")?,
        file: word("file")?,
        from: place("start")?,
        to: place("end")?,
        replacement: word("replacement")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_mutant_replaces_its_letters() {
        let listed = r#"{"name": "a.rs:2:7: replace + with -", "package": "dendra-node",
            "file": "a.rs", "replacement": "-",
            "span": {"start": {"line": 2, "column": 7}, "end": {"line": 2, "column": 8}}}"#;
        let value = serde_json::from_str(listed).expect("it is JSON");
        let mutant = mutant(&value).expect("it is a mutant");
        let edit = mutant
            .edit("fn f() {\n    é + 1\n}\n")
            .expect("the line is there");
        let new = vec!["    é - 1".to_owned()];
        assert_eq!(edit, Edit { old: 1..2, new });
        assert_eq!(mutant.edit("fn f() {\n"), None);
    }
}
