//! From an empty folder to tokens with the commands that the documents name.
//!
//! Not here: the rights of a token (crate `server`, `tests/tokens.rs`). See: docs/cli.md, section
//! "Tokens".

use crate::support::{Node, Run, dendra, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    let began = std::time::Instant::now();
    let made = with(&create, &as_root);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let took = began.elapsed();
    assert!(
        took.as_secs() >= 1,
        "it ended before all nodes know the token: {took:?}"
    );
    // Without the line feed, and from a variable, as well.
    let token = std::fs::read_to_string(at.join("app")).expect("it is there");
    std::fs::write(at.join("app"), token.trim()).expect("written");
    let put = |key: &str| with(&["put", key, "v"], &["--token-file", "app"]);
    let until = std::time::Instant::now() + crate::support::http::PATIENCE;
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

/// A node with the root token in `root`, on a folder of its own.
fn node_in(at: &Path, data: &str, root: &str) -> Node {
    Node::start(&at.join(data), &["--root-token-file", root])
}

/// Ends when the command succeeds: a change of tokens is in force within a second.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + crate::support::http::PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
    }
}

#[test]
fn quotas_and_certificates_are_given_and_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    call(at, &["token", "root", "root"]);
    let root = at.join("root").display().to_string();
    let node = node_in(at, "data", &root);
    let as_root = ["--url", &node.url, "--token-file", &root];
    let with = |words: &[&str]| call(at, &[words, &as_root[..]].concat());
    let made = with(&[
        "token",
        "create",
        "slow",
        "--role",
        "write",
        "--requests-per-second",
        "1",
        "--bytes-per-second",
        "1MiB",
        "--stored-bytes",
        "2GiB",
        "--out",
        "slow",
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let made = with(&[
        "token",
        "create",
        "web",
        "--role",
        "read",
        "--certificate",
        "web.internal",
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stdout.is_empty(), "no token was made");
    let list = with(&["token", "list"]);
    assert_eq!(
        String::from_utf8_lossy(&list.stdout),
        "slow\twrite\trequests-per-second=1\tbytes-per-second=1048576\tstored-bytes=2147483648\n\
         web\tread\tcertificate=web.internal\n"
    );
    for wrong in [
        &["--certificate", "a b"][..],
        &["--requests-per-second", "0"],
        &["--stored-bytes", "much"],
        &["--certificate", "a", "--out", "b"],
    ] {
        let create = ["token", "create", "no", "--role", "read"];
        let refused = with(&[&create[..], wrong].concat());
        assert_eq!(refused.code, Some(2), "{wrong:?}: {}", refused.stderr);
    }
    let get = || {
        let mut get = dendra(["get", "k", "--url", &node.url, "--token-file", "slow"]);
        run(get.current_dir(at))
    };
    until("the token is known", || !get().stderr.contains("unauth"));
    until("more than one a second", || {
        get().stderr.contains("over-quota: `slow` has 1 requests")
    });
}

#[test]
fn a_token_file_without_a_token_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("empty");
    std::fs::write(&file, " \n").expect("room");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("it is there");
    let asked = call(folder.path(), &["get", "k", "--token-file", "empty"]);
    assert_eq!(asked.code, Some(2), "{}", asked.stderr);
    assert!(asked.stderr.contains("empty, is empty"), "{}", asked.stderr);
}

#[test]
fn a_restore_brings_tokens_back_only_where_it_is_asked_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    call(at, &["token", "root", "root"]);
    let root = at.join("root").display().to_string();
    let first = node_in(at, "first", &root);
    let url = |node: &Node| node.url.clone();
    let as_root = |words: &[&str], node: &Node| {
        let url = url(node);
        call(
            at,
            &[words, &["--url", &url, "--token-file", &root][..]].concat(),
        )
    };
    let create = ["token", "create", "app", "--role", "read", "--out", "app"];
    assert_eq!(as_root(&create, &first).code, Some(0));
    assert_eq!(as_root(&["put", "k", "v"], &first).code, Some(0));
    let admin = |words: &[&str], node: &Node| {
        let all = [words, &["--admin", &node.admin, "--token-file", &root][..]].concat();
        let done = call(at, &all);
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.stderr);
        done.stderr
    };
    let left_out = "the tokens of the backup were left out";
    admin(&["backup", "copies"], &first);
    drop(first);
    let second = node_in(at, "second", &root);
    let said = admin(&["restore", "copies"], &second);
    assert!(said.contains(left_out), "{said}");
    assert_eq!(as_root(&["get", "k"], &second).stdout, b"v");
    assert!(as_root(&["token", "list"], &second).stdout.is_empty());
    let other = ["token", "create", "new", "--role", "read", "--out", "new"];
    assert_eq!(as_root(&other, &second).code, Some(0), "the table is free");
    let third = node_in(at, "third", &root);
    let said = admin(&["restore", "copies", "--with-tokens"], &third);
    assert!(!said.contains(left_out), "{said}");
    assert_eq!(as_root(&["token", "list"], &third).stdout, b"app\tread\n");
    until("the token of before opens", || {
        let mut get = dendra(["get", "k", "--url", &third.url, "--token-file", "app"]);
        run(get.current_dir(at)).stdout == b"v"
    });
}
