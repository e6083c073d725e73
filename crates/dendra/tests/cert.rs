//! From nothing to a node that speaks TLS alone, with the commands that the documents name.
//!
//! Not here: faults of certificates (crate `server`, `tests/tls.rs`).
//! See: docs/cli.md, section "TLS".

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use support::Node;

fn dendra(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dendra"));
    command.current_dir(folder).args(words);
    command.output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_command_makes_what_a_node_and_its_clients_need() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let made = dendra(
        at,
        &[
            "cert",
            "c",
            "--member",
            "127.0.0.1,localhost",
            "--client",
            "app",
        ],
    );
    assert!(made.status.success(), "{}", said(&made));
    for key in ["ca.key", "127.0.0.1.key", "client-app.key"] {
        let found = std::fs::metadata(at.join("c").join(key)).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{key}");
    }
    let file = |name: &str| at.join("c").join(name).display().to_string();
    let (cert, key, ca) = (file("127.0.0.1.crt"), file("127.0.0.1.key"), file("ca.crt"));
    let flags = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
    ];
    let node = Node::start(&at.join("data"), &flags);
    let url = &node.url;
    let url = url.replace("127.0.0.1", "localhost");
    let (app, app_key) = (file("client-app.crt"), file("client-app.key"));
    let own = ["--cert", &app, "--key-file", &app_key];
    let put = dendra(
        at,
        &[&["put", "k", "v", "--url", &url, "--ca", &ca][..], &own].concat(),
    );
    assert!(put.status.success(), "{}", said(&put));
    let get = dendra(
        at,
        &[&["get", "k", "--url", &url, "--ca", &ca][..], &own].concat(),
    );
    assert_eq!(get.stdout, b"v");
    let nobody = dendra(at, &["get", "k", "--url", &url, "--ca", &ca]);
    assert_eq!(nobody.status.code(), Some(5), "{}", said(&nobody));
    let blind = dendra(at, &["get", "k", "--url", &url]);
    assert_eq!(blind.status.code(), Some(2));
    assert!(said(&blind).contains("needs --ca FILE"), "{}", said(&blind));
    let in_clear = node.url.replace("https://", "http://");
    let clear = dendra(at, &["get", "k", "--url", &in_clear]);
    assert!(said(&clear).contains("tls-required: "), "{}", said(&clear));
    let bench = dendra(at, &["bench", &url]);
    assert_eq!(bench.status.code(), Some(2), "{}", said(&bench));
    assert!(
        said(&bench).contains("clear text alone"),
        "{}",
        said(&bench)
    );
}

#[test]
fn a_second_call_signs_with_the_same_ca_and_replaces_nothing_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let first = dendra(at, &["cert", "c", "--member", "h1"]);
    assert!(first.status.success(), "{}", said(&first));
    let ca = std::fs::read(at.join("c/ca.crt")).expect("it is there");
    let again = dendra(at, &["cert", "c", "--member", "h1"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("--renew"), "{}", said(&again));
    let before = std::fs::read(at.join("c/h1.crt")).expect("it is there");
    let renewed = dendra(at, &["cert", "c", "--member", "h1", "--renew"]);
    assert!(renewed.status.success(), "{}", said(&renewed));
    assert_ne!(
        before,
        std::fs::read(at.join("c/h1.crt")).expect("it is there")
    );
    assert_eq!(ca, std::fs::read(at.join("c/ca.crt")).expect("it is there"));
    for (flag, name) in [("--member", "http://h2:1"), ("--client", "a/../b")] {
        let refused = dendra(at, &["cert", "c", flag, name]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
    }
}
