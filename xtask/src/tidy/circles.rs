//! No circles among the files of a crate: each file can be read after those that it imports.
//!
//! ```text
//! mod a;                     the tree of modules, from src/lib.rs and src/main.rs down
//! use crate::a::{B, c::D};   an arrow to the file that declares B, one to the file of D
//! super::e::f()              an arrow to the file of f
//! pub use a::B;              no arrow: a face that names its parts does not lean on them,
//!                            unless the file itself uses the name
//! ```
//!
//! Invariants
//! 1. A name leads to the file that declares it, through all re-exports.
//! 2. Code of tests draws no arrows.
//!
//! Not here: arrows between crates (`imports.rs`).
//! See: docs/style.md.

use super::finding::Finding;
use crate::source::{Source, has_word, item_end, line_of};
use std::collections::BTreeMap;

const RULE: &str = "circles";

/// Re-exports that lead to each other end a search after this many steps.
const STEPS_MAX: usize = 32;

/// A module's place in its crate: its names from the root down.
type Place = Vec<String>;

/// One module: a file, or a part of one in braces.
struct Module {
    /// Index of its file among those of the crate.
    file: usize,
    /// The names that it brings into scope: name, and the path that was written.
    uses: Vec<Use>,
    /// The names that its own code uses by a path: path, and the line.
    paths: Vec<(Place, usize)>,
}

struct Use {
    path: Place,
    /// `*` for all names of a module.
    name: String,
    is_exported: bool,
    line: usize,
}

/// The modules below one root: a library, or a program.
struct Crate<'a> {
    files: Vec<&'a Source>,
    modules: BTreeMap<Place, Module>,
}

/// From file to file: the line that names it.
type Arrows = BTreeMap<usize, BTreeMap<usize, usize>>;

/// Circles in all crates, and files on the list that are in none.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut folders: Vec<&str> = sources.iter().map(Source::crate_folder).collect();
    folders.sort_unstable();
    folders.dedup();
    let mut findings = Vec::new();
    for folder in folders {
        findings.extend(check_crate(folder, sources));
    }
    findings
}

/// Pairs of top-level modules of a crate that import each other, as `server/admin`; each with a
/// file and the line that names the other one.
pub(crate) fn folder_pairs(sources: &[Source]) -> BTreeMap<(String, String), (String, usize)> {
    let mut folders: Vec<&str> = sources.iter().map(Source::crate_folder).collect();
    folders.sort_unstable();
    folders.dedup();
    let mut pairs = BTreeMap::new();
    for folder in folders {
        for root in ["lib.rs", "main.rs"] {
            if let Some(tree) = Crate::read(&format!("{folder}/src/{root}"), sources) {
                pairs.extend(tree.folder_pairs(folder));
            }
        }
    }
    pairs
}

fn check_crate(folder: &str, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for root in ["lib.rs", "main.rs"] {
        let Some(tree) = Crate::read(&format!("{folder}/src/{root}"), sources) else {
            continue;
        };
        let arrows = tree.arrows();
        for file in 0..tree.files.len() {
            let Some((line, circle)) = circle_of(file, &arrows) else {
                continue;
            };
            let path = &tree.files[file].path;
            let short =
                |other: usize| tree.files[other].path[folder.len() + "/src/".len()..].to_owned();
            let names: Vec<String> = circle.into_iter().map(short).collect();
            let message = format!(
                "{}: move down what both ends need, or join them",
                names.join(" → ")
            );
            findings.push(Finding::new(path, line + 1, RULE, message));
        }
    }
    findings
}

/// The shortest way from `file` back to itself, with the line of its first arrow.
fn circle_of(file: usize, arrows: &Arrows) -> Option<(usize, Vec<usize>)> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut front = vec![file];
    while !front.is_empty() && !came_from.contains_key(&file) {
        let mut next = Vec::new();
        for from in front {
            for to in arrows.get(&from).into_iter().flat_map(BTreeMap::keys) {
                if !came_from.contains_key(to) {
                    came_from.insert(*to, from);
                    next.push(*to);
                }
            }
        }
        front = next;
    }
    let mut circle = vec![file];
    let mut at = *came_from.get(&file)?;
    while at != file {
        circle.push(at);
        at = came_from[&at];
    }
    circle.push(file);
    circle.reverse();
    Some((arrows[&file][&circle[1]], circle))
}

impl<'a> Crate<'a> {
    /// Follows the `mod` lines from the root at `path`.
    fn read(path: &str, sources: &'a [Source]) -> Option<Crate<'a>> {
        let root = sources.iter().find(|source| source.path == path)?;
        let mut tree = Crate {
            files: Vec::new(),
            modules: BTreeMap::new(),
        };
        let mut waiting = vec![(Place::new(), root)];
        while let Some((place, source)) = waiting.pop() {
            let file = tree.files.len();
            tree.files.push(source);
            let code = without_tests(source);
            let folder = source.folder_of_modules();
            for name in declared_elsewhere(&code) {
                let paths = [
                    format!("{folder}/{name}.rs"),
                    format!("{folder}/{name}/mod.rs"),
                ];
                let child = sources.iter().find(|other| paths.contains(&other.path));
                waiting.extend(child.map(|child| (below(&place, &name), child)));
            }
            tree.add_module(file, place, code);
        }
        Some(tree)
    }

    /// Takes up one module and those that stand in it in braces.
    fn add_module(&mut self, file: usize, place: Place, mut code: String) {
        while let Some((name, whole, inside)) = nested_module(&code) {
            let mut alone = blank_but_lines(&code[..inside.start]);
            alone.push_str(&code[inside.clone()]);
            self.add_module(file, below(&place, &name), alone);
            let blank = blank_but_lines(&code[whole.clone()]);
            code.replace_range(whole, &blank);
        }
        let uses = take_uses(&mut code);
        let paths = paths(&code);
        let is_named = |name: &str| {
            let mut lines = code.lines();
            lines.any(|line| declared_elsewhere(line).next().is_none() && has_word(line, name))
        };
        let mut module = Module { file, uses, paths };
        for used in &mut module.uses {
            used.is_exported &= !is_named(&used.name);
        }
        self.modules.insert(place, module);
    }

    fn folder_pairs(&self, folder: &str) -> BTreeMap<(String, String), (String, usize)> {
        let top = |file: usize| {
            let path = self.files[file].path.strip_prefix(folder)?;
            let inside = path.strip_prefix("/src/")?.trim_end_matches(".rs");
            let name = inside.split('/').next()?;
            let is_root = ["lib", "main"].contains(&name);
            let short = folder.trim_start_matches("crates/");
            (!is_root).then(|| format!("{short}/{name}"))
        };
        let mut lines = BTreeMap::new();
        for (from, ends) in &self.arrows() {
            for (to, line) in ends {
                let (Some(a), Some(b)) = (top(*from), top(*to)) else {
                    continue;
                };
                let path = self.files[*from].path.clone();
                lines.entry((a, b)).or_insert((path, *line));
            }
        }
        let is_pair =
            |(a, b): &(String, String)| a < b && lines.contains_key(&(b.clone(), a.clone()));
        let pairs = lines.iter().filter(|(pair, _)| is_pair(pair));
        pairs
            .map(|(pair, place)| (pair.clone(), place.clone()))
            .collect()
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (place, module) in &self.modules {
            let used = module.uses.iter().filter(|used| !used.is_exported);
            let used = used.map(|used| (&used.path, used.line));
            let named = module.paths.iter().map(|(path, line)| (path, *line));
            for (path, line) in used.chain(named) {
                let Some(to) = self.file_of(place, path, STEPS_MAX) else {
                    continue;
                };
                if to != module.file {
                    arrows
                        .entry(module.file)
                        .or_default()
                        .entry(to)
                        .or_insert(line);
                }
            }
        }
        arrows
    }

    /// The file that declares the item at `path`, as `from` writes it. `None` for an item that is
    /// not of this crate, and for a module as such. The paths that go on from there draw their own
    /// arrows.
    fn file_of(&self, from: &[String], path: &[String], steps: usize) -> Option<usize> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = from.to_vec();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop()?;
            }
            _ => {
                let is_here = self.modules.contains_key(&below(&at, first));
                if !is_here
                    && !self.modules[from]
                        .uses
                        .iter()
                        .any(|used| used.name == *first)
                {
                    return None;
                }
                rest = path;
            }
        }
        while let Some((name, after)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
            } else if name == "*" {
                return Some(self.modules.get(&at)?.file);
            } else if self.modules.contains_key(&below(&at, name)) {
                at.push(name.clone());
            } else {
                return self.item(&at, name, after, steps);
            }
            rest = after;
        }
        None
    }

    /// The file of `name`, which is no module, in the module `at`.
    fn item(&self, at: &[String], name: &str, after: &[String], steps: usize) -> Option<usize> {
        let module = self.modules.get(at)?;
        let written = |used: &Use| used.path.iter().chain(after).cloned().collect::<Place>();
        // `use x::x` inside of `x` itself, and `use serde;`, lead nowhere else.
        let used = module.uses.iter().find(|import| import.name == name);
        if let Some(used) = used {
            return self.file_of(at, &written(used), steps);
        }
        for glob in module.uses.iter().filter(|import| import.name == "*") {
            let mut path = glob.path.clone();
            path.pop();
            path.push(name.to_owned());
            let file = self.file_of(at, &path, steps);
            if file.is_some_and(|file| declares(&self.files[file].code, name)) {
                return file;
            }
        }
        Some(module.file)
    }
}

fn below(place: &[String], name: &str) -> Place {
    let mut place = place.to_vec();
    place.push(name.to_owned());
    place
}

fn declares(code: &str, name: &str) -> bool {
    let words = [
        "fn", "struct", "enum", "union", "trait", "type", "const", "static",
    ];
    words
        .iter()
        .any(|word| has_word(code, &format!("{word} {name}")))
}

/// The code of a file with the lines of tests blanked.
fn without_tests(source: &Source) -> String {
    let lines = source.code.lines().zip(&source.is_test);
    lines
        .map(|(line, is_test)| {
            if *is_test {
                "\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect()
}

fn blank_but_lines(code: &str) -> String {
    code.chars()
        .map(|c| if c == '\n' { '\n' } else { ' ' })
        .collect()
}

/// The names of modules that stand in files of their own.
fn declared_elsewhere(code: &str) -> impl Iterator<Item = String> {
    code.lines().filter_map(|line| {
        let name = line.trim().strip_suffix(';')?;
        let (before, name) = name.rsplit_once("mod ")?;
        let is_one = before.is_empty() || before.starts_with("pub");
        is_one.then(|| name.to_owned())
    })
}

/// The first `mod name { … }`: its name, where it stands, and where its inside stands.
fn nested_module(code: &str) -> Option<(String, std::ops::Range<usize>, std::ops::Range<usize>)> {
    for (at, _) in code.match_indices("mod ") {
        let is_word = code[..at]
            .chars()
            .next_back()
            .is_none_or(char::is_whitespace);
        let name: String = code[at + 4..].chars().take_while(|c| is_name(*c)).collect();
        let after = &code[at + 4 + name.len()..];
        let open = after.len() - after.trim_start().len();
        if is_word && !name.is_empty() && after[open..].starts_with('{') {
            let inside = at + 4 + name.len() + open + 1;
            let end = item_end(code, at);
            return Some((name, at..end + 1, inside..end));
        }
    }
    None
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Takes the `use` items out of the code.
fn take_uses(code: &mut String) -> Vec<Use> {
    let mut uses = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("use ") {
        let start = from + found;
        from = start + 4;
        let line_start = code[..start].rfind('\n').map_or(0, |n| n + 1);
        let before = code[line_start..start].trim();
        let is_word = !code[..start].ends_with(is_name);
        if !(is_word && (before.is_empty() || before.starts_with("pub"))) {
            continue;
        }
        let Some(length) = code[from..].find(';') else {
            break;
        };
        let end = from + length;
        let mut names = Vec::new();
        expand(&[], &code[from..end], &mut names);
        let line = line_of(code, start);
        let is_exported = before.starts_with("pub");
        uses.extend(names.into_iter().map(|(path, name)| Use {
            path,
            name,
            is_exported,
            line,
        }));
        let blank = blank_but_lines(&code[start..end]);
        code.replace_range(start..end, &blank);
        from = end;
    }
    uses
}

/// Writes out `a::{b, c as d, e::{self, f}}`: each path with the name that it gets.
fn expand(prefix: &[String], tree: &str, names: &mut Vec<(Place, String)>) {
    let tree = tree.trim();
    if let Some((head, list)) = tree.split_once('{') {
        let mut prefix = prefix.to_vec();
        let head = head.split("::").map(str::trim).filter(|s| !s.is_empty());
        prefix.extend(head.map(str::to_owned));
        let list = list.trim_end().strip_suffix('}').unwrap_or(list);
        for part in split_at_commas(list) {
            expand(&prefix, part, names);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut place = prefix.to_vec();
    place.extend(path.split("::").map(|s| s.trim().to_owned()));
    place.retain(|s| !s.is_empty());
    if place.len() > 1 && place.last().is_some_and(|last| last == "self") {
        place.pop();
    }
    let Some(last) = place.last() else {
        return;
    };
    let name = match alias.trim() {
        "" => last.clone(),
        alias => alias.to_owned(),
    };
    names.push((place, name));
}

fn split_at_commas(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0usize, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The paths of at least two names that the code holds, and the names that stand alone: one of
/// those may be a module's re-export.
fn paths(code: &str) -> Vec<(Place, usize)> {
    let mut paths = Vec::new();
    for (line, text) in code.lines().enumerate() {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| is_name(c)) {
            let from = &rest[at..];
            let end = from
                .find(|c: char| !is_name(c) && c != ':')
                .unwrap_or(from.len());
            let path = from[..end].trim_end_matches(':');
            let names: Place = path.split("::").map(str::to_owned).collect();
            if names.len() > 1 && names.iter().all(|name| !name.is_empty()) {
                paths.push((names, line));
            }
            rest = &from[end.max(1)..];
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(name, text)| Source::new(&format!("crates/x/src/{name}"), text))
            .collect();
        let findings = check_crate("crates/x", &sources);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_circle_is_found_at_each_of_its_files() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "\nuse crate::b::{B, more::C};\npub struct A;\n"),
            ("b.rs", "use super::c;\npub struct B(c::C);\n"),
            ("c.rs", "pub struct C(crate::a::A);\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 3, "{found:?}");
        let wanted = "crates/x/src/a.rs:2: [circles] a.rs → b.rs → c.rs → a.rs: ";
        assert!(
            found.iter().any(|finding| finding.starts_with(wanted)),
            "{found:?}"
        );
    }

    #[test]
    fn a_name_leads_through_re_exports_to_the_file_that_declares_it() {
        let files = [
            (
                "lib.rs",
                "mod a;\nmod b;\npub use a::A;\npub use b::deep::*;\n",
            ),
            ("a.rs", "use crate::D;\npub struct A(D);\n"),
            ("b/mod.rs", "pub mod deep;\n"),
            ("b/deep.rs", "pub struct D(crate::A);\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        let wanted = "a.rs → b/deep.rs → a.rs";
        assert!(
            found.iter().any(|finding| finding.contains(wanted)),
            "{found:?}"
        );
    }

    #[test]
    fn a_face_that_names_its_parts_makes_no_circle() {
        let face = "mod a;\nmod b;\npub use a::A;\npub fn f() {}\n";
        let b = ("b.rs", "use crate::a::A;\nfn g(a: A) { super::f() }\n");
        let a = ("a.rs", "pub struct A;\nfn h() { crate::f() }\n");
        assert_eq!(found(&[("lib.rs", face), a, b]), [""; 0]);
        let face = format!("{face}fn uses(a: A) {{}}\n");
        assert_eq!(found(&[("lib.rs", &face), a, b]).len(), 2);
    }

    #[test]
    fn tests_and_other_crates_draw_no_arrows() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            (
                "a.rs",
                "use bytes::B;\n#[cfg(test)]\nmod tests {\n use crate::b::B;\n}\n",
            ),
            (
                "b.rs",
                "use crate::a;\nuse std::fmt::{self, Debug};\nfn f() -> a::X<fmt::Error> {}\n",
            ),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_type_whose_name_ends_in_use_imports_nothing() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "pub enum Cause { One }\nuse crate::b::B;\n"),
            ("b.rs", "pub struct B(crate::a::Cause);\n"),
        ];
        assert_eq!(found(&files).len(), 2);
    }

    #[test]
    fn a_module_in_braces_belongs_to_its_file() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            (
                "a.rs",
                "mod inner {\n use super::A;\n use super::super::b::B;\n}\npub struct A;\n",
            ),
            ("b.rs", "use crate::a::A;\npub struct B;\n"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        let wanted = "crates/x/src/a.rs:3:";
        assert!(
            found.iter().any(|finding| finding.starts_with(wanted)),
            "{found:?}"
        );
    }
}
