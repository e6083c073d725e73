//! Precedence and complaints of the four places options come from.

use super::{ConfigInputs, Effective, Problems, ValueSource};
use crate::cli::Cli;
use clap::{Command, CommandFactory};
use std::ffi::OsString;
use std::path::PathBuf;

fn said(
    flags: &[(&'static str, &str)],
    environment: &[(&str, &str)],
    file: Option<&str>,
) -> ConfigInputs {
    ConfigInputs {
        flags: flags.iter().map(|(k, v)| (*k, OsString::from(v))).collect(),
        environment: environment
            .iter()
            .map(|(k, v)| (OsString::from(k), OsString::from(v)))
            .collect(),
        file: file.map(|text| (PathBuf::from("d.toml"), text.to_owned())),
    }
}

fn resolve(
    flags: &[(&'static str, &str)],
    environment: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Effective, Problems> {
    said(flags, environment, file).resolve()
}

fn problem(environment: &[(&str, &str)], file: &str) -> String {
    resolve(&[], environment, Some(file))
        .expect_err("the options are unusable")
        .to_string()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = "workers = 3\nqueue = 30\ndrain-ms = 300\n";
    let environment = [("DENDRA_WORKERS", "2"), ("DENDRA_QUEUE", "20")];
    let effective = resolve(&[("workers", "1")], &environment, Some(file)).expect("all are fine");
    assert_eq!(effective.options.workers, 1);
    assert_eq!(effective.setting("workers").source, ValueSource::Flag);
    assert_eq!(effective.options.queue, 20);
    assert_eq!(
        effective.setting("queue").source,
        ValueSource::Environment("DENDRA_QUEUE".to_owned())
    );
    assert_eq!(effective.options.drain_ms, 300);
    assert_eq!(
        effective.setting("drain-ms").source,
        ValueSource::File {
            path: PathBuf::from("d.toml"),
            line: 3
        }
    );
    assert_eq!(effective.options.memory.0, 256 << 20);
    assert_eq!(effective.setting("memory").source, ValueSource::Default);
}

#[test]
fn the_memtable_follows_the_memory_unless_it_is_set() {
    let effective = resolve(&[("memory", "64MiB")], &[], None).expect("all are fine");
    assert_eq!(effective.memtable_bytes(), 8 << 20);
    let both = [("memory", "64MiB"), ("memtable", "1MiB")];
    let effective = resolve(&both, &[], None).expect("all are fine");
    assert_eq!(effective.memtable_bytes(), 1 << 20);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_its_neighbour() {
    let sentence = problem(&[], "# a comment\n\nmemmory = \"1GiB\"\n");
    assert!(
        sentence.starts_with("d.toml:3: unknown key \"memmory\""),
        "{sentence}"
    );
    assert!(sentence.contains("did you mean memory?"), "{sentence}");
}

#[test]
fn a_wrong_type_and_a_wrong_value_are_named_with_their_lines() {
    let sentence = problem(&[], "queue = 1\nmemory = true\nworkers = 0\ndata = 5\n");
    let lines: Vec<&str> = sentence.lines().collect();
    assert_eq!(lines.len(), 3, "{sentence}");
    assert!(lines[0].starts_with("d.toml:2: memory: is a boolean; write a size"));
    assert!(lines[1].starts_with("d.toml:3: workers: 0 is outside 1 to"));
    assert!(lines[2].starts_with("d.toml:4: data: is a number; write text in quotes"));
}

#[test]
fn a_table_in_the_file_is_an_unknown_key() {
    let sentence = problem(&[], "[server]\nqueue = 1\n");
    assert!(
        sentence.starts_with("d.toml:1: unknown key \"server\""),
        "{sentence}"
    );
}

#[test]
fn broken_toml_is_named_with_its_line() {
    let sentence = problem(&[], "queue = 1\nmemory = \"1GiB\nworkers = 2\n");
    assert!(sentence.starts_with("d.toml:2: "), "{sentence}");
    let sentence = problem(&[], "queue = 1\nqueue = 2\n");
    assert!(sentence.starts_with("d.toml:2: "), "{sentence}");
}

#[test]
fn an_overridden_mistake_is_still_a_mistake() {
    let wrong = [("DENDRA_WORKERS", "many")];
    let problems = resolve(&[("workers", "2")], &wrong, None).expect_err("many is no number");
    assert!(problems.to_string().starts_with("DENDRA_WORKERS: \"many\""));
}

#[test]
fn an_unknown_variable_is_an_error_and_a_client_variable_is_not() {
    let problems = resolve(&[], &[("DENDRA_MEMROY", "1GiB")], None).expect_err("a typo");
    assert!(problems.to_string().contains("did you mean DENDRA_MEMORY?"));
    let fine = [
        ("DENDRA_URL", "http://x"),
        ("DENDRA_CONFIG", "d.toml"),
        ("DENDRA_QUEUE", ""),
        ("PATH", "/bin"),
    ];
    let effective = resolve(&[], &fine, None).expect("none of these is an option");
    assert_eq!(effective.setting("queue").source, ValueSource::Default);
}

#[test]
fn values_that_contradict_each_other_name_both_sources() {
    let flags = [("memtable", "64MiB")];
    let problems = resolve(&flags, &[("DENDRA_MEMORY", "128MiB")], None).expect_err("too large");
    let sentence = problems.to_string();
    assert!(sentence.contains("memtable = 64MiB (flag)"), "{sentence}");
    assert!(
        sentence.contains("memory = 128MiB (environment DENDRA_MEMORY)"),
        "{sentence}"
    );
}

#[test]
fn what_config_print_prints_is_a_file_with_the_same_meaning() {
    let flags = [
        ("data", "a \"quoted\\ folder"),
        ("memory", "100000000"),
        ("durability", "os"),
        ("listen", "127.0.0.1:0,[::1]:0"),
        ("admin", "off"),
        ("log", "info,dendra_engine=debug"),
    ];
    let effective = resolve(&flags, &[], None).expect("all are fine");
    let again = resolve(&[], &[], Some(&effective.to_toml())).expect("it reads back");
    let values =
        |e: &Effective| -> Vec<_> { e.settings.iter().map(|s| s.printed.clone()).collect() };
    assert_eq!(values(&effective), values(&again));
}

#[test]
fn json_has_numbers_and_sources() {
    let json = resolve(&[("queue", "7")], &[], Some("memory = \"1GiB\""))
        .expect("all are fine")
        .to_json();
    assert_eq!(json["queue"]["value"], 7);
    assert_eq!(json["queue"]["source"], "flag");
    assert_eq!(json["memory"]["value"], 1u64 << 30);
    assert_eq!(json["memory"]["from"], "d.toml:1");
}

/// The variables that a command and those below it read.
fn variables(command: &Command, found: &mut Vec<String>) {
    let named = command.get_arguments().filter_map(|arg| arg.get_env());
    found.extend(named.map(|name| name.to_string_lossy().into_owned()));
    for below in command.get_subcommands() {
        variables(below, found);
    }
}

#[test]
fn a_node_starts_in_an_environment_that_has_the_clients_variables() {
    let mut named = Vec::new();
    variables(&Cli::command(), &mut named);
    assert!(named.iter().any(|name| name == "DENDRA_URL"), "{named:?}");
    for name in named {
        let said = resolve(&[], &[(&name, "x")], None).map(|_| ());
        let said = said.map_err(|problems| problems.to_string());
        let is_unknown = said.is_err_and(|text| text.contains("no such option"));
        assert!(!is_unknown, "{name}");
    }
}
