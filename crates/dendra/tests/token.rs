//! From nothing to tokens with the commands that the documents name.
//!
//! Not here: what a token allows (crate `server`, `tests/tokens.rs`).
//! See: docs/cli.md, section "Tokens".

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::{Node, Run, dendra, run};

fn call(folder: &Path, words: &[&str]) -> Run {
    run(dendra(words).current_dir(folder))
}

#[test]
fn tokens_are_made_used_shown_and_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let made = call(at, &["token", "root", "root"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let mode = std::fs::metadata(at.join("root")).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let again = call(at, &["token", "root", "root"]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    let root = at.join("root").display().to_string();
    let node = Node::start(&at.join("data"), &["--root-token-file", &root]);
    let (url, as_root) = (["--url", &node.url], ["--token-file", &root]);
    let with = |words: &[&str], token: &[&str]| call(at, &[words, &url[..], token].concat());
    let nobody = with(&["get", "k"], &[]);
    assert_eq!(nobody.code, Some(1));
    assert!(
        nobody.stderr.contains("unauthenticated: "),
        "{}",
        nobody.stderr
    );
    let create = [
        "token", "create", "app", "--role", "write", "--prefix", "a/", "--out", "app",
    ];
    let made = with(&create, &as_root);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    // Without the line feed, and from a variable, as well.
    let token = std::fs::read_to_string(at.join("app")).expect("it is there");
    std::fs::write(at.join("app"), token.trim()).expect("written");
    let put = |key: &str| with(&["put", key, "v"], &["--token-file", "app"]);
    let until = std::time::Instant::now() + support::http::PATIENCE;
    while put("a/1").code != Some(0) {
        assert!(std::time::Instant::now() < until, "{}", put("a/1").stderr);
    }
    let outside = put("b");
    assert!(outside.stderr.contains("forbidden: "), "{}", outside.stderr);
    let get = run(dendra(["get", "a/1", "--url", &node.url]).env("DENDRA_TOKEN", token.trim()));
    assert_eq!(get.stdout, b"v", "{}", get.stderr);
    let taken = with(
        &[
            "token", "create", "app", "--role", "read", "--out", "second",
        ],
        &as_root,
    );
    assert_eq!(taken.code, Some(2), "{}", taken.stderr);
    assert!(
        !at.join("second").exists(),
        "a token that the cluster does not know"
    );
    let printed = with(&["token", "create", "other", "--role", "read"], &as_root);
    assert!(printed.stdout.starts_with(b"dendra_"), "{}", printed.stderr);
    let list = with(&["token", "list"], &as_root);
    assert_eq!(
        String::from_utf8_lossy(&list.stdout),
        "app\twrite\ta/\nother\tread\n"
    );
    assert_eq!(
        with(&["token", "list"], &["--token-file", "app"]).code,
        Some(1)
    );
    let revoked = with(&["token", "revoke", "app"], &as_root);
    assert_eq!(revoked.code, Some(0), "{}", revoked.stderr);
    assert_eq!(with(&["token", "revoke", "app"], &as_root).code, Some(3));
    while put("a/1").code == Some(0) {
        assert!(std::time::Instant::now() < until, "it is still known");
    }
    std::fs::set_permissions(at.join("app"), PermissionsExt::from_mode(0o644)).expect("changed");
    assert!(
        put("a/1").stderr.contains("chmod 600"),
        "a file that others read"
    );
}
