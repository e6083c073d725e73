//! Everything that release 0.1.0 stores, opened by this tree: folders, votes, hints, tokens,
//! backups.
//!
//! ```text
//! fixtures/0.1.0/alone       a data folder after SIGKILL: log, tables, manifest
//!               /member-1…3  three more, of one cluster: epochs, owners, notes, promises, hints
//!               /plain       a repository of backups; /sealed: an encrypted one
//!               /held-*.tsv  the answers to clients: key, ETag, length of the value
//! ```
//!
//! Invariants
//! 1. The fixtures of a release are written once, by that release, and never again. A test opens a
//!    copy.
//! 2. `DENDRA_FIXTURES=write` writes them and refuses to write over a file.
//! 3. Its secrets open only these fixtures.
//!
//! Not here: each format by itself, byte for byte (crates `engine` and `node`).
//! See: docs/format/README.md, docs/releasing.md.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::http::{Client, PATIENCE, wait_until_ready};
use support::{Node, dendra, run};

/// Files that others than their owner may open are refused, and git does not keep that.
const SECRETS: [&str; 4] = ["secret", "root", "app", "backup-key"];

/// Members keep their addresses: no system chooses these, and no other program listens on them.
const MEMBERS: [&str; 3] = [
    "127.77.41.1:18077",
    "127.77.41.2:18077",
    "127.77.41.3:18077",
];

/// Most of a century: times to live of the fixtures do not end before their readers.
const FOREVER_S: u64 = 3_000_000_000;

/// A fixture of a log segment ends behind its last page that was written.
const LOG_PAGE: usize = 4096;

/// ETag and length of the value, by key; none for a key that was deleted.
type Told = BTreeMap<String, Option<(String, usize)>>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/0.1.0")
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a folder can be made");
        for entry in fs::read_dir(from).expect("it can be listed") {
            let entry = entry.expect("an entry");
            copy(&entry.path(), &to.join(entry.file_name()));
        }
        return;
    }
    assert!(!to.exists(), "{} stays as it is", to.display());
    let mut bytes = fs::read(from).expect("it can be read");
    // The rest of a log segment that was allocated and not written has no meaning.
    if from.extension().is_some_and(|end| end == "log") {
        let written = bytes.iter().rposition(|byte| *byte != 0);
        let written = written.map_or(0, |last| last + 1);
        bytes.truncate(written.next_multiple_of(LOG_PAGE).max(LOG_PAGE));
    }
    fs::write(to, bytes).expect("it can be written");
    let name = to.file_name().and_then(|name| name.to_str());
    if name.is_some_and(|name| SECRETS.contains(&name)) {
        fs::set_permissions(to, PermissionsExt::from_mode(0o600)).expect("it is ours");
    }
}

/// A copy of the fixtures that may change.
fn opened() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(fixtures()).expect("the fixtures of 0.1.0 are there") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &folder.path().join(entry.file_name()));
    }
    fill_logs(folder.path());
    folder
}

/// Gives log segments the length that their heads name: its rest was left out as zeros.
fn fill_logs(folder: &Path) {
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            fill_logs(&path);
        } else if path.extension().is_some_and(|end| end == "log") {
            let bytes = fs::read(&path).expect("it can be read");
            let len = bytes[24..32].try_into().expect("eight bytes");
            let file = fs::OpenOptions::new().write(true).open(&path);
            let whole = file.and_then(|file| file.set_len(u64::from_le_bytes(len)));
            whole.expect("there is room for a hole");
        }
    }
}

/// The values of a key are known from its name and their length.
fn value(key: &str, length: usize) -> Vec<u8> {
    key.bytes().cycle().take(length).collect()
}

fn told(name: &str) -> Told {
    let text = fs::read_to_string(fixtures().join(name)).expect("it is there");
    let line = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let held = (words[1] != "-").then(|| {
            let length = words[2].parse().expect("a number");
            (words[1].to_owned(), length)
        });
        (words[0].to_owned(), held)
    };
    text.lines().map(line).collect()
}

fn save(name: &Path, told: &Told) {
    let line = |(key, held): (&String, &Option<(String, usize)>)| match held {
        Some((etag, length)) => format!("{key}\t{etag}\t{length}\n"),
        None => format!("{key}\t-\t0\n"),
    };
    fs::write(name, told.iter().map(line).collect::<String>()).expect("written");
}

fn client(address: SocketAddr) -> Client {
    Client::open(address).expect("it listens")
}

/// Every key holds the value that its last acknowledged write named.
fn holds(address: SocketAddr, told: &Told, headers: &[&str]) {
    let mut client = client(address);
    for (key, held) in told {
        let got = client.ask("GET", key, headers, b"").expect("it is there");
        match held {
            None => assert_eq!(got.status, 404, "{key}"),
            Some((etag, length)) => {
                assert_eq!(got.status, 200, "{key}");
                assert_eq!(got.etag.as_ref(), Some(etag), "{key}");
                assert_eq!(got.body, value(key, *length), "{key}");
            }
        }
    }
}

/// A conditional write with an ETag that the earlier release gave.
fn goes_on(address: SocketAddr, told: &Told, headers: &[&str]) {
    let mut client = client(address);
    let (key, etag) = told
        .iter()
        .find_map(|(key, held)| held.as_ref().map(|(etag, _)| (key, etag)))
        .expect("some keys are held");
    let condition = format!("If-Match: {etag}");
    let headers = [headers, &[condition.as_str()]].concat();
    let put = |client: &mut Client| client.ask("PUT", key, &headers, b"by a later release");
    assert_eq!(put(&mut client).expect("it is there").status, 201, "{key}");
    assert_eq!(put(&mut client).expect("it is there").status, 412, "{key}");
}

/// Some of everything.
fn fill(address: SocketAddr, prefix: &str, headers: &[&str], told: &mut Told) {
    let mut client = client(address);
    for n in 0..40usize {
        let key = format!("{prefix}{n:02}");
        let length = n * n;
        let target = match n % 5 {
            3 => format!("/v0/entity?id={key}&ttl={FOREVER_S}"),
            _ => format!("/v0/entity?id={key}"),
        };
        let created = [headers, &["If-None-Match: *"]].concat();
        let first = client.request("PUT", &target, &created, &value(&key, length));
        let mut etag = first.expect("it is there").etag.expect("it was created");
        if n % 3 == 1 {
            let condition = format!("If-Match: {etag}");
            let again = [headers, &[condition.as_str()]].concat();
            let again = client.request("PUT", &target, &again, &value(&key, length));
            etag = again.expect("it is there").etag.expect("it was written");
        }
        let mut held = Some((etag, length));
        if n % 7 == 2 {
            let gone = client.ask("DELETE", &key, headers, b"");
            assert_eq!(gone.expect("it is there").status, 202);
            held = None;
        }
        told.insert(key, held);
    }
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// One member of the cluster, once it serves.
fn member(folder: &Path, number: usize) -> Node {
    let urls = MEMBERS.map(|address| format!("http://{address}"));
    let flags = [
        "--cluster",
        &urls.join(","),
        "--self",
        &urls[number - 1],
        "--cluster-secret-file",
        &path(folder, "secret"),
        "--root-token-file",
        &path(folder, "root"),
        "--loops",
        "1",
    ];
    let data = folder.join(format!("member-{number}"));
    Node::start_at(MEMBERS[number - 1], &data, &flags)
}

fn cluster(folder: &Path) -> Vec<Node> {
    std::thread::scope(|threads| {
        let starts: Vec<_> = (1..=3)
            .map(|number| threads.spawn(move || member(folder, number)))
            .collect();
        let nodes = starts.into_iter().map(|it| it.join());
        nodes.map(|node| node.expect("it starts")).collect()
    })
}

fn bearer(folder: &Path, name: &str) -> String {
    let token = fs::read_to_string(folder.join(name)).expect("it is there");
    format!("Authorization: Bearer {}", token.trim())
}

fn ok(words: &[&str]) -> String {
    let run = run(&mut dendra(words));
    assert_eq!(run.code, Some(0), "{words:?}: {}", run.stderr);
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn a_folder_of_the_first_release_opens() {
    let folder = opened();
    let told = told("held-alone.tsv");
    let node = Node::start(&folder.path().join("alone"), &[]);
    holds(node.address(), &told, &[]);
    goes_on(node.address(), &told, &[]);
}

#[test]
fn members_of_the_first_release_go_on() {
    let folder = opened();
    let told = told("held-members.tsv");
    let nodes = cluster(folder.path());
    let app = bearer(folder.path(), "app");
    for node in &nodes {
        wait_until_ready(node.admin_address());
        holds(node.address(), &told, &[&app]);
    }
    goes_on(nodes[2].address(), &told, &[&app]);
    let root = path(folder.path(), "root");
    let at = ["--url", &nodes[0].admin, "--token-file", &root];
    let status = ok(&[&["cluster"], &at[..], &["status"]].concat());
    for address in MEMBERS {
        assert!(status.contains(address), "{status}");
    }
}

#[test]
fn backups_of_the_first_release_are_restored() {
    let folder = opened();
    let told = told("held-backup.tsv");
    let key = path(folder.path(), "backup-key");
    for (name, flags) in [("plain", &[][..]), ("sealed", &["--backup-key", &key][..])] {
        let from = path(folder.path(), name);
        ok(&[&["backup", "verify"], flags, &[&from]].concat());
        let data = folder.path().join(format!("from-{name}"));
        let node = Node::start(&data, &[]);
        ok(&[&["restore", "--admin", &node.admin], flags, &[&from]].concat());
        holds(node.address(), &told, &[]);
    }
}

/// Writes the fixtures of this release. The tests above read them.
#[test]
fn fixtures_are_written_when_asked() {
    if std::env::var_os("DENDRA_FIXTURES").is_none_or(|word| word != "write") {
        return;
    }
    let temporary = tempfile::tempdir().expect("a folder");
    let at = temporary.path();
    let mut alone = Told::new();
    let node = Node::start(&at.join("alone"), &[]);
    fill(node.address(), "table-", &[], &mut alone);
    assert_eq!(node.end("TERM").0, Some(0), "its memory becomes a table");
    let node = Node::start(&at.join("alone"), &[]);
    fill(node.address(), "log-", &[], &mut alone);
    node.end("KILL");
    save(&at.join("held-alone.tsv"), &alone);

    fs::write(at.join("secret"), "known to the members alone").expect("written");
    fs::set_permissions(at.join("secret"), PermissionsExt::from_mode(0o600)).expect("ours");
    ok(&["token", "root", &path(at, "root")]);
    let mut nodes = cluster(at);
    let root = path(at, "root");
    let app = path(at, "app");
    let create = ["token", "create", "app", "--role", "write", "--out", &app];
    let url = ["--url", &nodes[0].url, "--token-file", &root];
    ok(&[&create[..], &url[..]].concat());
    let header = bearer(at, "app");
    let until = Instant::now() + PATIENCE;
    let knows = |node: &Node| {
        let got = client(node.address()).ask("GET", "none", &[&header], b"");
        got.is_some_and(|got| got.status == 404)
    };
    while !nodes.iter().all(knows) {
        assert!(Instant::now() < until, "a member does not learn the token");
    }
    let mut told = Told::new();
    fill(nodes[0].address(), "both-", &[&header], &mut told);
    save(&at.join("held-backup.tsv"), &told);
    let key = path(at, "backup-key");
    ok(&["backup", "key", &key]);
    let admin: Vec<&str> = nodes.iter().map(|node| node.admin.as_str()).collect();
    let from = ["--admin", &admin.join(","), "--token-file", &root];
    for (name, flags) in [("plain", &[][..]), ("sealed", &["--backup-key", &key][..])] {
        ok(&[&["backup"], &from[..], flags, &[&path(at, name)]].concat());
    }
    // The third member misses these: the others keep hints for it.
    nodes.pop().expect("three").end("KILL");
    fill(nodes[1].address(), "hint-", &[&header], &mut told);
    save(&at.join("held-members.tsv"), &told);
    drop(nodes);
    fs::create_dir_all(fixtures()).expect("a folder can be made");
    for name in fs::read_dir(at).expect("it can be listed") {
        let name = name.expect("an entry").file_name();
        copy(&at.join(&name), &fixtures().join(&name));
    }
}
