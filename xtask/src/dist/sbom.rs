//! The bill of materials: which packages are in the program, in CycloneDX 1.5.
//!
//! ```text
//! cargo metadata ─► what `dendra` reaches by normal dependencies ─┬─► components, dependencies
//! Cargo.lock     ─► checksums                                      ┘
//! ```
//!
//! Invariants
//! 1. Every package that is built into the program is named; tools of the build and of tests are
//!    not.
//! 2. Equal trees give equal bytes: no time, no random number.
//!
//! Not here: the packed files (`mod.rs`).
//! See: <https://cyclonedx.org/docs/1.5/json/>.

use super::command::{failed, output};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes the bill for `target`: how many packages it names.
pub(super) fn write(root: &Path, target: &str, to: &Path) -> Result<usize, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", target])
        .current_dir(root);
    let metadata = serde_json::from_slice(&output(&mut command)?);
    let metadata: Value = metadata.map_err(|e| format!("cargo metadata is no JSON: {e}"))?;
    let lock_path = root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock_path).map_err(failed(&lock_path))?;
    let bill = bill(&metadata, &checksums(&lock)?)
        .ok_or("cargo metadata has another shape than expected")?;
    let count = bill["components"].as_array().map_or(0, Vec::len);
    fs::write(to, format!("{bill:#}\n")).map_err(failed(to))?;
    Ok(count)
}

/// By name and version.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let lock: toml::Table = lock.parse().map_err(|e| format!("Cargo.lock: {e}"))?;
    let packages = lock.get("package").and_then(|it| it.as_array());
    let found = packages.into_iter().flatten().filter_map(|package| {
        let field = |name: &str| Some(package.get(name)?.as_str()?.to_owned());
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    Ok(found.collect())
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Value> {
    let packages = metadata["packages"].as_array()?;
    let by_id: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let edges: BTreeMap<&str, BTreeSet<&str>> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, normal(node)?)))
        .collect();
    let is_root = |package: &&Value| package["name"] == "dendra";
    let root = packages.iter().find(is_root)?["id"].as_str()?;
    let (mut reached, mut next) = (BTreeSet::new(), vec![root]);
    while let Some(id) = next.pop() {
        if reached.insert(id) {
            next.extend(edges.get(id)?);
        }
    }
    let component = |id: &str| component(by_id.get(id)?, checksums);
    let others = reached.iter().filter(|id| **id != root);
    let components = others.map(|id| component(id)).collect::<Option<Vec<_>>>()?;
    let reference = |id: &str| reference(by_id.get(id)?);
    let mut dependencies = Vec::new();
    for id in &reached {
        let on = edges[id].iter().map(|id| reference(id));
        dependencies.push(json!({
            "ref": reference(id)?,
            "dependsOn": on.collect::<Option<Vec<_>>>()?,
        }));
    }
    let mut program = component(root)?;
    program["type"] = json!("application");
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages that are built into a package, procedural macros apart from those they are built
/// of.
fn normal(node: &Value) -> Option<BTreeSet<&str>> {
    let mut found = BTreeSet::new();
    for dependency in node["deps"].as_array()? {
        let kinds = dependency["dep_kinds"].as_array()?;
        if kinds.iter().any(|kind| kind["kind"].is_null()) {
            found.insert(dependency["pkg"].as_str()?);
        }
    }
    Some(found)
}

fn reference(package: &Value) -> Option<String> {
    let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
    Some(format!("pkg:cargo/{name}@{version}"))
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Option<Value> {
    let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
    let purl = reference(package)?;
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    });
    if let Some(license) = package["license"].as_str() {
        // Older packages write `MIT/Apache-2.0`.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    Some(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_names_what_is_built_in_and_nothing_else() {
        let package = |name: &str, license: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": license});
        let edge = |to: &str, kind: Value| json!({"pkg": to, "dep_kinds": [{ "kind": kind }]});
        let metadata = json!({
            "packages": [
                package("dendra", "Apache-2.0"), package("a", "MIT/Apache-2.0"),
                package("b", "MIT"), package("test", "MIT"), package("tool", "MIT"),
            ],
            "resolve": { "nodes": [
                { "id": "dendra", "deps": [
                    edge("a", Value::Null), edge("test", json!("dev")), edge("tool", json!("build")),
                ]},
                { "id": "a", "deps": [edge("b", Value::Null)] },
                { "id": "b", "deps": [] }, { "id": "test", "deps": [] },
                { "id": "tool", "deps": [] },
            ]},
        });
        let lock = "[[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"beef\"\n";
        let bill = bill(&metadata, &checksums(lock).expect("a lock")).expect("a bill");
        let names = bill["components"].as_array().expect("a list").iter();
        let names: Vec<_> = names
            .map(|it| it["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(bill["metadata"]["component"]["name"], "dendra");
        let expression = &bill["components"][0]["licenses"][0]["expression"];
        assert_eq!(expression, "MIT OR Apache-2.0");
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "beef");
        assert_eq!(
            bill["dependencies"],
            json!([
                { "ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"] },
                { "ref": "pkg:cargo/b@1.0.0", "dependsOn": [] },
                { "ref": "pkg:cargo/dendra@1.0.0", "dependsOn": ["pkg:cargo/a@1.0.0"] },
            ])
        );
    }
}
