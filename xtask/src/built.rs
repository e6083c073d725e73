//! Executables with tests, as cargo builds and names them.
//!
//! Invariants
//! 1. A program that tests start is no test.
//!
//! Not here: running them (`ci/lanes.rs`, `planted/finders.rs`).

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An executable with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuiltTest {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) path: PathBuf,
    /// The folder of the package, in which cargo runs it.
    pub(crate) folder: PathBuf,
}

/// Builds the programs that `command`, a `cargo test`, would run.
pub(crate) fn build(mut command: Command) -> Result<Vec<BuiltTest>, String> {
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let built = command.stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cargo does not start: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let text = String::from_utf8_lossy(&built.stdout);
    Ok(text.lines().filter_map(built_test).collect())
}

/// A built test, of one line that cargo writes. A program that tests start is none.
fn built_test(line: &str) -> Option<BuiltTest> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let target = message["target"]["name"].as_str()?;
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    // `path+file:///…/crates/node#dendra-node@0.1.0`, or without the name where the folder has it.
    let (folder, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = match id.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next()?,
    };
    Some(BuiltTest {
        package: package.to_owned(),
        target: target.to_owned(),
        path: path.into(),
        folder: manifest.parent()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_tests_are_found_in_what_cargo_writes() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///a/crates/node#dendra-node@0.1.0","manifest_path":"/a/crates/node/Cargo.toml","target":{"name":"twin"},"profile":{"test":true},"executable":"/t/twin-1"}"#;
        let test = BuiltTest {
            package: "dendra-node".to_owned(),
            target: "twin".to_owned(),
            path: "/t/twin-1".into(),
            folder: "/a/crates/node".into(),
        };
        assert_eq!(built_test(line), Some(test));
        assert_eq!(built_test(&line.replace("true", "false")), None);
        let line = line.replace("node#dendra-node@0.1.0", "dendra#0.1.0");
        let package = built_test(&line).map(|test| test.package);
        assert_eq!(package, Some("dendra".to_owned()));
        assert_eq!(
            built_test(r#"{"reason":"build-finished","success":true}"#),
            None
        );
    }
}
