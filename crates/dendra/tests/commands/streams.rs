//! Signals that end nothing, and streams that take nothing.
//!
//! Not here: files that are replaced (`src/output.rs`).
//! See: docs/cli.md, "Files and streams"; docs/operating.md, "Signals".

use crate::support::{Node, Run, dendra, run, signal_process};
use std::process::Command;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Runs `command` with its stdout where the shell's words say.
fn run_into(command: &Command, redirection: &str) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirection}")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    run(&mut shell)
}

/// Commands that print, with those of a node that has the record `k`.
fn printing(node: &Node) -> Vec<Command> {
    let alone: &[&[&str]] = &[
        &["help"],
        &["--help"],
        &["-h"],
        &["--version"],
        &["help", "get"],
        &["get", "--help"],
        &["cluster", "plan", "--help"],
        &["man"],
        &["completions", "bash"],
        &["config", "print"],
        &["config", "print", "--json"],
    ];
    let asking: &[&[&str]] = &[
        &["get", "k"],
        &["get", "k", "--json"],
        &["put", "k", "v", "--json"],
        &["scan"],
        &["scan", "--json"],
        &["delete", "none", "--json"],
    ];
    let alone = alone.iter().map(|words| dendra(*words));
    let asking = asking.iter().map(|words| node.command(*words));
    alone.chain(asking).collect()
}

#[test]
fn data_that_went_nowhere_is_a_failure() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["put", "k", "v"]).code, Some(0));
    for command in printing(&node) {
        for (redirection, code) in [
            ("", 0),
            ("> /dev/null", 0),
            ("<> /dev/null >&0", 0),
            ("> /dev/full", 1),
            (">&-", 1),
        ] {
            let ran = run_into(&command, redirection);
            let said = &ran.stderr;
            assert_eq!(ran.code, Some(code), "{command:?} {redirection}: {said}");
            assert_eq!(
                said.contains("stdout cannot be written"),
                code == 1,
                "{said}"
            );
            assert_eq!(
                ran.stdout.is_empty(),
                !redirection.is_empty(),
                "{command:?}"
            );
        }
    }
    // Without data, a stdout is not needed.
    for words in [["put", "k", "w"], ["get", "k", "--out=/dev/null"]] {
        let quiet = node.command(words);
        assert_eq!(run_into(&quiet, ">&-").code, Some(0), "{quiet:?}");
    }
}

#[test]
fn a_usage_error_needs_no_stdout() {
    let ran = run_into(&dendra(["get"]), ">&-");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn signals_without_a_meaning_end_no_node() {
    let data = folder();
    let node = Node::start(data.path(), &[]);
    assert_eq!(node.run(["put", "k", "v"]).code, Some(0));
    for name in ["HUP", "USR1", "USR2"] {
        signal_process(node.pid(), name);
        assert_eq!(node.run(["get", "k"]).stdout, b"v", "behind {name}");
    }
    let (code, log) = node.end("TERM");
    assert_eq!(code, Some(0), "{log}");
    for words in [
        "SIGHUP: there is no file to read again, and the node goes on",
        "SIGUSR1 has no meaning here",
        "SIGUSR2 has no meaning here",
    ] {
        assert_eq!(log.matches(words).count(), 1, "{log}");
    }
}
