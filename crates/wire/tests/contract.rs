//! The OpenAPI document and the routes say the same: every path, method and parameter of it is
//! walked.
//!
//! ```text
//! docs/openapi.yaml --> path, method, names of query parameters --> a request --> route
//! ```
//!
//! Invariants
//! 1. A method that the document lacks is 405, one that it has is not.
//! 2. A parameter that the document gives to an operation is known there, every other one is not.
//! 3. Every reference of the document leads somewhere.
//!
//! Not here: the content of the answers (crate `server`, `crates/server/tests/serving/smoke.rs`).
//! See: docs/openapi.yaml, docs/api.md.

use dendra_wire::http::{Limits, Parsed, parse_head};
use dendra_wire::{KeyBuf, Refusal, RequestRules, route};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/openapi.yaml");

/// A value for each query parameter, and the part that has to stand beside it.
const VALUES: [(&str, &str, &str); 14] = [
    ("id", "k", ""),
    ("ack", "1", "id=k"),
    ("from", "1", "id=k"),
    ("replicas", "1/1", "id=k"),
    ("ttl", "5", "id=k"),
    ("start", "a", ""),
    ("end", "b", "start=a"),
    ("prefix", "a", ""),
    ("limit", "1", "start=a"),
    ("reverse", "true", "start=a"),
    ("keys-only", "true", "start=a"),
    ("scope", "local", "start=a"),
    ("values", "false", "start=a"),
    ("heartbeat_s", "20", "start=a"),
];

/// The part that makes a path's request whole when no parameter is tried.
const PATHS: [(&str, &str); 8] = [
    ("/v0/entity", "id=k"),
    ("/v0/tokens", ""),
    ("/v0/entities", "start=a"),
    ("/v0/watch", "start=a"),
    ("/v0/count", "start=a"),
    ("/v0/batch", ""),
    ("/v0/touch", "id=k&ttl=5"),
    ("/v0/status", ""),
];

/// Query parameters by path and method. The document is written so that its indentation tells.
fn operations() -> BTreeMap<(String, String), BTreeSet<String>> {
    let names = query_parameters();
    let mut operations: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let (mut path, mut method) = (String::new(), String::new());
    let paths = DOCUMENT
        .split("\npaths:\n")
        .nth(1)
        .expect("the document has paths");
    for line in paths.lines().take_while(|line| line.starts_with(' ')) {
        let text = line.trim();
        match line.len() - line.trim_start().len() {
            2 => path = text.trim_end_matches(':').to_owned(),
            4 if ["get:", "head:", "put:", "delete:", "post:"].contains(&text) => {
                method = text.trim_end_matches(':').to_uppercase();
                operations
                    .entry((path.clone(), method.clone()))
                    .or_default();
            }
            _ => {}
        }
        if let Some(name) = text.strip_prefix("- $ref: '#/components/parameters/") {
            let name = names.get(name.trim_end_matches('\'')).cloned().flatten();
            let operation = operations.get_mut(&(path.clone(), method.clone()));
            operation
                .expect("a parameter belongs to an operation")
                .extend(name);
        }
    }
    operations
}

/// Parameters of the components by their keys: the name of one in the query, `None` for a header.
fn query_parameters() -> BTreeMap<String, Option<String>> {
    let mut parameters = BTreeMap::new();
    let (mut key, mut name) = (String::new(), String::new());
    let section = DOCUMENT
        .split("\n  parameters:\n")
        .nth(1)
        .expect("there are parameters");
    for line in section.lines().take_while(|line| line.starts_with("    ")) {
        let text = line.trim();
        if line.len() - text.len() == 4 {
            key = text.trim_end_matches(':').to_owned();
        } else if let Some(given) = text.strip_prefix("name: ") {
            name = given.to_owned();
        } else if let Some(place) = text.strip_prefix("in: ") {
            let query = (place == "query").then(|| name.clone());
            parameters.insert(key.clone(), query);
        }
    }
    parameters
}

fn ask(method: &str, path: &str, query: &str) -> Result<(), Refusal> {
    let text = format!("{method} {path}?{query} HTTP/1.1\r\nHost: h\r\n\r\n");
    let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
        panic!("{text:?} is not a head");
    };
    let settings = RequestRules {
        nodes: 1,
        replication_factor: 3,
        key_bytes_max: 1024,
        value_bytes_max: 1 << 20,
    };
    route(&head, &settings, &mut KeyBuf::new()).map(drop)
}

#[test]
fn a_method_is_known_exactly_where_the_document_has_it() {
    let operations = operations();
    for (path, query) in PATHS {
        for method in ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"] {
            let is_there = operations.contains_key(&(path.to_owned(), method.to_owned()));
            match ask(method, path, query) {
                Ok(()) => assert!(is_there, "{method} {path} is not in the document"),
                // The table of tokens is replaced under a condition only.
                Err(refusal) if refusal.code == "missing-condition" => assert!(is_there),
                Err(refusal) => {
                    assert!(
                        !is_there && refusal.status == 405,
                        "{method} {path}: {refusal}"
                    );
                }
            }
        }
    }
}

/// Does the document have the path on the data port? The admin port's are routes of another crate.
fn is_of_data(path: &str) -> bool {
    let start = DOCUMENT.split(&format!("\n  {path}:\n")).nth(1);
    let operations = start.and_then(|rest| rest.split("\n  /").next());
    operations
        .expect("the document has the path")
        .contains("tags: [data")
}

#[test]
fn every_path_of_the_data_plane_is_walked() {
    let data: BTreeSet<String> = operations().into_keys().map(|(path, _)| path).collect();
    let data: Vec<&str> = data
        .iter()
        .map(String::as_str)
        .filter(|path| path.starts_with("/v0/") && is_of_data(path))
        .collect();
    let mut walked = PATHS.map(|(path, _)| path);
    walked.sort_unstable();
    assert_eq!(data, walked);
}

#[test]
fn a_parameter_is_known_exactly_where_the_document_has_it() {
    for ((path, method), names) in operations() {
        let Some((_, whole)) = PATHS.iter().find(|(walked, _)| *walked == path) else {
            continue;
        };
        for (name, value, beside) in VALUES {
            let value = match (path.as_str(), name) {
                ("/v0/watch", "from") => "now",
                _ => value,
            };
            let beside = match (path.as_str(), name) {
                ("/v0/watch", "id" | "start" | "prefix") => "",
                ("/v0/watch", _) => whole,
                ("/v0/touch", "id") => "ttl=5",
                ("/v0/touch", "ttl") => "id=k",
                ("/v0/touch", _) => whole,
                // Where a request is whole without parameters, none has to stand beside another.
                _ if whole.is_empty() => "",
                _ => beside,
            };
            let query = format!("{beside}&{name}={value}");
            match ask(&method, &path, &query) {
                Ok(()) => assert!(names.contains(name), "{method} {path} takes {name}"),
                Err(refusal) => {
                    let is_right = !names.contains(name) && refusal.code == "unknown-parameter";
                    assert!(is_right, "{method} {path} with {query}: {refusal}");
                }
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let components = DOCUMENT
        .split("\ncomponents:\n")
        .nth(1)
        .expect("there are components");
    let references: Vec<&str> = DOCUMENT
        .split("'#/components/")
        .skip(1)
        .filter_map(|rest| rest.split('\'').next())
        .collect();
    assert!(references.len() > 50);
    for reference in references {
        let (section, name) = reference.split_once('/').expect("section and name");
        let start = components.find(&format!("  {section}:\n"));
        let section = &components[start.unwrap_or_else(|| panic!("no section for {reference}"))..];
        assert!(section.contains(&format!("\n    {name}:\n")), "{reference}");
    }
}
