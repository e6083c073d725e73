//! Licences, bans, sources and duplicate versions: the rules of `deny.toml` that need no tool.
//!
//! ```text
//! deny.toml ──────────────────────────────────────────────┐
//!                                                         ├─► findings, one sentence each
//! cargo metadata --locked, this platform, all features ───┤
//! the same with the features that are on by default ──────┘   bans without exceptions
//! ```
//!
//! Invariants
//! 1. It needs no network: the step comes after one that has built the workspace.
//! 2. An entry of `deny.toml` that matches no crate is a finding, too: lists do not rot.
//! 3. A crate without a licence expression, or with one that cannot be read, is a finding.
//! 4. A banned crate with `wrappers` may be there for these crates, in builds with a feature, and
//!    is never a part of the default build.
//!
//! Not here: advisories and other platforms, which `cargo deny` checks in the hosted workflow.
//! See: docs/decisions/0010-dependencies.md.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use toml::Table;

const FILE: &str = "deny.toml";

/// The rules of `deny.toml`, as far as this step reads it.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    /// Each with the crates that may have it all the same.
    banned: BTreeMap<String, BTreeSet<String>>,
    /// `name@version` that may stand beside another version of the same crate.
    skipped: BTreeSet<String>,
    registries: BTreeSet<String>,
}

/// One crate of the dependency graph.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None` = a member of the workspace, or a path.
    source: Option<String>,
    /// Names of the crates that depend on it.
    parents: BTreeSet<String>,
}

/// Holds the dependency graph of this platform against `deny.toml`; true when every rule holds.
pub(crate) fn run(root: &Path) -> bool {
    let findings = match (
        read_rules(root),
        packages(root, &["--all-features"]),
        packages(root, &[]),
    ) {
        (Ok(rules), Ok(all), Ok(default)) => {
            let mut findings = check(&rules, &all);
            findings.extend(check_default(&rules, &default));
            findings
        }
        (rules, all, default) => [rules.err(), all.err(), default.err()]
            .into_iter()
            .flatten()
            .collect(),
    };
    for finding in &findings {
        println!("{finding}");
    }
    println!("deny: {} findings", findings.len());
    findings.is_empty()
}

fn check(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for package in packages {
        let (name, version) = (package.name.as_str(), package.version.as_str());
        versions.entry(name).or_default().insert(version);
        if let Some(wrappers) = rules.banned.get(name)
            && (wrappers.is_empty() || !package.parents.is_subset(wrappers))
        {
            findings.push(format!("{name} {version}: banned in {FILE}"));
        }
        match package
            .licence
            .as_deref()
            .map(|text| (text, Expression::parse(text)))
        {
            None => findings.push(format!("{name} {version}: its manifest names no licence")),
            Some((text, None)) => findings.push(format!(
                "{name} {version}: the licence `{text}` is no SPDX expression"
            )),
            Some((text, Some(expression))) => {
                if !expression.is_allowed(&rules.licences, &mut used) {
                    findings.push(format!(
                        "{name} {version}: {FILE} does not allow the licence `{text}`"
                    ));
                }
            }
        }
        if let Some(source) = &package.source
            && !rules.registries.contains(registry(source))
        {
            findings.push(format!(
                "{name} {version}: {FILE} does not allow its source {source}"
            ));
        }
    }
    findings.extend(duplicates(rules, &versions));
    for licence in &rules.licences {
        if !used.contains(licence.as_str()) {
            findings.push(format!(
                "{FILE}: no crate has the licence {licence} any more"
            ));
        }
    }
    findings
}

/// Bans have no exceptions in the default build.
fn check_default(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let banned = packages
        .iter()
        .filter(|package| rules.banned.contains_key(&package.name));
    let finding = |package: &Package| {
        format!(
            "{} {}: banned in {FILE}, and a part of the default build",
            package.name, package.version
        )
    };
    banned.map(finding).collect()
}

/// Crates of which more than one version is built, apart from those that the rules list.
fn duplicates(rules: &Rules, versions: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, all) in versions {
        let is_skipped = |version: &&&str| rules.skipped.contains(&format!("{name}@{version}"));
        if all.iter().filter(|version| !is_skipped(version)).count() > 1 {
            let all: Vec<&str> = all.iter().copied().collect();
            findings.push(format!(
                "{name}: {} are all built; update one, or list it under `skip` in {FILE}",
                all.join(" and ")
            ));
        }
    }
    for entry in &rules.skipped {
        let is_needed = entry.split_once('@').is_some_and(|(name, version)| {
            let all = versions.get(name);
            all.is_some_and(|all| all.len() > 1 && all.contains(version))
        });
        if !is_needed {
            findings.push(format!("{FILE}: `skip` needs {entry} no more"));
        }
    }
    findings
}

/// A registry's address without the kind in front: as `allow-registry` has it.
fn registry(source: &str) -> &str {
    source
        .split_once('+')
        .map_or(source, |(_, address)| address)
}

/// A licence expression of SPDX. `/` is the older spelling of `OR`.
#[derive(Debug, PartialEq, Eq)]
enum Expression {
    /// `MIT`, or `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
    Any(Vec<Expression>),
    All(Vec<Expression>),
}

impl Expression {
    /// `None` when the text is no expression.
    fn parse(text: &str) -> Option<Expression> {
        let spaced = text
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace('/', " OR ");
        let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
        let expression = Expression::any(&mut words)?;
        words.is_empty().then_some(expression)
    }

    fn any(words: &mut Vec<&str>) -> Option<Expression> {
        let mut parts = vec![Expression::all(words)?];
        while words.last() == Some(&"OR") {
            words.pop();
            parts.push(Expression::all(words)?);
        }
        Some(Expression::one_of(parts, Expression::Any))
    }

    fn all(words: &mut Vec<&str>) -> Option<Expression> {
        let mut parts = vec![Expression::licence(words)?];
        while words.last() == Some(&"AND") {
            words.pop();
            parts.push(Expression::licence(words)?);
        }
        Some(Expression::one_of(parts, Expression::All))
    }

    fn one_of(mut parts: Vec<Expression>, make: fn(Vec<Expression>) -> Expression) -> Expression {
        match parts.len() {
            1 => parts.remove(0),
            _ => make(parts),
        }
    }

    fn licence(words: &mut Vec<&str>) -> Option<Expression> {
        match words.pop()? {
            "(" => {
                let inner = Expression::any(words)?;
                (words.pop()? == ")").then_some(inner)
            }
            "AND" | "OR" | "WITH" | ")" => None,
            name if words.last() == Some(&"WITH") => {
                words.pop();
                Some(Expression::Licence(format!("{name} WITH {}", words.pop()?)))
            }
            name => Some(Expression::Licence(name.to_owned())),
        }
    }

    /// Is a licence that satisfies it allowed? Notes the allowed licences it names in `used`.
    fn is_allowed<'a>(&self, allowed: &'a BTreeSet<String>, used: &mut BTreeSet<&'a str>) -> bool {
        match self {
            Expression::Licence(name) => {
                let found = allowed.get(name);
                used.extend(found.map(String::as_str));
                found.is_some()
            }
            // Every part is looked at, so that `used` is complete.
            Expression::Any(parts) => {
                parts
                    .iter()
                    .filter(|part| part.is_allowed(allowed, used))
                    .count()
                    > 0
            }
            Expression::All(parts) => {
                parts
                    .iter()
                    .filter(|part| part.is_allowed(allowed, used))
                    .count()
                    == parts.len()
            }
        }
    }
}

fn read_rules(root: &Path) -> Result<Rules, String> {
    let text = std::fs::read_to_string(root.join(FILE))
        .map_err(|error| format!("{FILE} cannot be read: {error}"))?;
    let table: Table = text.parse().map_err(|error| format!("{FILE}: {error}"))?;
    parse_rules(&table)
}

fn parse_rules(table: &Table) -> Result<Rules, String> {
    Ok(Rules {
        licences: list(table, "licenses", "allow")?,
        banned: bans(table)?,
        skipped: list(table, "bans", "skip")?,
        registries: list(table, "sources", "allow-registry")?,
    })
}

/// A list of texts, or of tables with `crate` in them, as `cargo deny` has both.
fn list(table: &Table, section: &str, key: &str) -> Result<BTreeSet<String>, String> {
    let wrong = || format!("{FILE}: `{key}` of [{section}] is no list of names");
    let entries = table.get(section).and_then(|section| section.get(key));
    let entries = entries.and_then(toml::Value::as_array).ok_or_else(wrong)?;
    let name = |entry: &toml::Value| {
        let name = entry.get("crate").unwrap_or(entry);
        name.as_str().map(str::to_owned).ok_or_else(wrong)
    };
    entries.iter().map(name).collect()
}

/// Banned crates, each with its `wrappers`.
fn bans(table: &Table) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let mut bans = BTreeMap::new();
    for name in list(table, "bans", "deny")? {
        bans.insert(name, BTreeSet::new());
    }
    let entries = table.get("bans").and_then(|bans| bans.get("deny"));
    for entry in entries
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
    {
        let Some(wrappers) = entry.get("wrappers") else {
            continue;
        };
        let name = entry.get("crate").and_then(toml::Value::as_str);
        let wrappers = wrappers.as_array().map(|all| {
            let names = all.iter().map(|one| one.as_str().map(str::to_owned));
            names.collect::<Option<BTreeSet<_>>>()
        });
        let (Some(name), Some(Some(wrappers))) = (name, wrappers) else {
            return Err(format!("{FILE}: `wrappers` is no list of names"));
        };
        bans.insert(name.to_owned(), wrappers);
    }
    Ok(bans)
}

fn packages(root: &Path, features: &[&str]) -> Result<Vec<Package>, String> {
    let host = host()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &host])
        .args(features)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata does not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "cargo metadata failed; `cargo fetch --locked` may help: {}",
            said.trim()
        ));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    parse_packages(&metadata).ok_or_else(|| "cargo metadata has another shape".to_owned())
}

/// The platform of this compiler: `x86_64-unknown-linux-gnu`.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output();
    let output = output.map_err(|error| format!("rustc does not start: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn parse_packages(metadata: &Value) -> Option<Vec<Package>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array()?.iter();
    let mut parents = parents(metadata)?;
    let package = |package: &Value| {
        Some(Package {
            name: text(&package["name"])?,
            version: text(&package["version"])?,
            licence: text(&package["license"]),
            source: text(&package["source"]),
            parents: parents.remove(package["id"].as_str()?).unwrap_or_default(),
        })
    };
    packages.map(package).collect()
}

/// The names of the crates that depend on each package, by its id.
fn parents(metadata: &Value) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let mut names = BTreeMap::new();
    for package in metadata["packages"].as_array()? {
        names.insert(package["id"].as_str()?, package["name"].as_str()?);
    }
    let mut parents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array()? {
        let own = *names.get(node["id"].as_str()?)?;
        for dependency in node["dependencies"].as_array()? {
            let of = parents.entry(dependency.as_str()?.to_owned()).or_default();
            of.insert(own.to_owned());
        }
    }
    Some(parents)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [licenses]
        allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
        [bans]
        deny = [
          { crate = "cmake", reason = "not everywhere" },
          { crate = "sealed", wrappers = ["tls"], reason = "where there is no other way" },
        ]
        skip = [{ crate = "syn@2.0.0", reason = "a while" }, "old@1.0.0"]
        [sources]
        allow-registry = ["https://index.example"]
    "#;

    fn package(name: &str, version: &str, licence: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: Some(licence.to_owned()),
            source: Some("registry+https://index.example".to_owned()),
            parents: BTreeSet::new(),
        }
    }

    /// Every rule of the sample holds for these, and every entry of it is needed.
    fn good() -> Vec<Package> {
        vec![
            package("syn", "2.0.0", "MIT OR Apache-2.0"),
            package("syn", "3.0.0", "MIT"),
            package("old", "1.0.0", "Apache-2.0 WITH LLVM-exception"),
            package("old", "2.0.0", "MIT/GPL-3.0"),
        ]
    }

    fn findings(packages: &[Package]) -> Vec<String> {
        let table = RULES.parse().expect("the sample is TOML");
        check(
            &parse_rules(&table).expect("the sample has every list"),
            packages,
        )
    }

    #[test]
    fn a_graph_that_keeps_the_rules_has_no_findings() {
        assert_eq!(findings(&good()), [""; 0]);
    }

    #[test]
    fn each_broken_rule_is_found() {
        let broken = [
            (
                package("a", "1.0.0", "GPL-3.0-only"),
                "does not allow the licence",
            ),
            (
                package("a", "1.0.0", "MIT AND GPL-3.0-only"),
                "does not allow the licence",
            ),
            (package("a", "1.0.0", "MIT OR OR MIT"), "no SPDX expression"),
            (
                Package {
                    licence: None,
                    ..package("a", "1.0.0", "")
                },
                "names no licence",
            ),
            (package("cmake", "0.1.0", "MIT"), "banned"),
            (
                Package {
                    source: Some("git+https://else.example".to_owned()),
                    ..package("a", "1.0.0", "MIT")
                },
                "does not allow its source",
            ),
            (package("syn", "4.0.0", "MIT"), "are all built"),
        ];
        for (package, sentence) in broken {
            let mut packages = good();
            packages.push(package);
            let found = findings(&packages);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(sentence), "{found:?}");
        }
    }

    #[test]
    fn a_banned_crate_is_there_for_its_wrappers_alone_and_never_by_default() {
        let table = RULES.parse().expect("the sample is TOML");
        let rules = parse_rules(&table).expect("the sample has every list");
        let of = |parents: &[&str]| Package {
            parents: parents.iter().map(|&name| name.to_owned()).collect(),
            ..package("sealed", "1.0.0", "MIT")
        };
        for (parents, count) in [(&["tls"][..], 0), (&["tls", "other"], 1)] {
            let mut packages = good();
            packages.push(of(parents));
            assert_eq!(check(&rules, &packages).len(), count, "{parents:?}");
        }
        let found = check_default(&rules, &[of(&["tls"])]);
        assert!(found[0].contains("the default build"), "{found:?}");
        assert_eq!(check_default(&rules, &good()), [""; 0]);
    }

    #[test]
    fn parents_are_named_for_each_package() {
        let text = r#"{
            "packages": [{"id": "1", "name": "tls", "version": "1"}, {"id": "2", "name": "sealed", "version": "1"}],
            "resolve": {"nodes": [{"id": "1", "dependencies": ["2"]}, {"id": "2", "dependencies": []}]}
        }"#;
        let metadata = serde_json::from_str(text).expect("it is JSON");
        let packages = parse_packages(&metadata).expect("it has the shape");
        assert_eq!(packages[0].parents, BTreeSet::new());
        assert_eq!(packages[1].parents, BTreeSet::from(["tls".to_owned()]));
    }

    #[test]
    fn entries_that_match_nothing_any_more_are_found() {
        let mut packages = good();
        packages.retain(|package| package.version != "2.0.0");
        let found = findings(&packages);
        assert!(
            found.iter().any(|line| line.contains("syn@2.0.0")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|line| line.contains("old@1.0.0")),
            "{found:?}"
        );
        let found = findings(&[package("a", "1.0.0", "MIT")]);
        assert!(
            found
                .iter()
                .any(|line| line.contains("licence Apache-2.0 any")),
            "{found:?}"
        );
    }

    #[test]
    fn expressions_are_read_as_spdx_reads_them() {
        let allowed = ["MIT", "Apache-2.0"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        for (text, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("GPL-3.0-only/MIT", Some(true)),
            ("(MIT OR GPL-3.0-only) AND Apache-2.0", Some(true)),
            ("MIT OR Apache-2.0 AND GPL-3.0-only", Some(true)),
            ("(MIT OR Apache-2.0) AND GPL-3.0-only", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT AND", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT Apache-2.0", None),
        ] {
            let read = Expression::parse(text);
            let verdict = read.map(|read| read.is_allowed(&allowed, &mut BTreeSet::new()));
            assert_eq!(verdict, expected, "{text}");
        }
    }

    #[test]
    fn a_file_without_a_list_is_refused() {
        let table = "[licenses]\nallow = [1]\n"
            .parse()
            .expect("the sample is TOML");
        assert!(parse_rules(&table).is_err());
    }
}
