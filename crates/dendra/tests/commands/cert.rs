//! From an empty folder to a node that speaks TLS alone, with the commands that the documents name.
//!
//! Not here: faults of certificates (crate `server`, `tests/serving/tls.rs`).
//! See: docs/cli.md, section "TLS".

use crate::support::Node;
use base64::Engine;
use dendra_server::tls::{PemObject, PrivateKeyDer};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

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
    let unnamed = dendra(at, &["get", "k", "--url", &url, "--ca", &ca]);
    assert_eq!(unnamed.status.code(), Some(5), "{}", said(&unnamed));
    assert!(
        said(&unnamed).contains("wants a certificate: show one with --cert"),
        "{}",
        said(&unnamed)
    );
    // Another CA on either side: each names the way out.
    let made = dendra(at, &["cert", "other", "--client", "app"]);
    assert!(made.status.success(), "{}", said(&made));
    let foreign = |name: &str| at.join("other").join(name).display().to_string();
    let (foreign_ca, foreign_app) = (foreign("ca.crt"), foreign("client-app.crt"));
    let foreign_key = foreign("client-app.key");
    let foreign_own = ["--cert", &foreign_app, "--key-file", &foreign_key];
    for (ca, own, remedy) in [
        (&foreign_ca, &own, "name that one with --ca"),
        (&ca, &foreign_own, "show one of the CA"),
    ] {
        let refused = dendra(
            at,
            &[&["put", "k", "v", "--url", &url, "--ca", ca][..], own].concat(),
        );
        assert_eq!(refused.status.code(), Some(5), "{}", said(&refused));
        assert!(said(&refused).contains(remedy), "{}", said(&refused));
        assert!(!said(&refused).contains("applied"), "{}", said(&refused));
    }
    let blind = dendra(at, &["get", "k", "--url", &url]);
    assert_eq!(blind.status.code(), Some(2));
    assert!(said(&blind).contains("needs --ca FILE"), "{}", said(&blind));
    let in_clear = node.url.replace("https://", "http://");
    let clear = dendra(at, &["get", "k", "--url", &in_clear]);
    assert!(said(&clear).contains("tls-required: "), "{}", said(&clear));
    let blind = dendra(at, &["bench", &url]);
    assert_eq!(blind.status.code(), Some(2), "{}", said(&blind));
    assert!(said(&blind).contains("needs --ca FILE"), "{}", said(&blind));
    let short = ["--duration", "300ms", "--warmup", "0s", "--rate", "200"];
    let sealed = ["bench", &url, "--ca", &ca, "--keys", "10", "--preload"];
    let bench = dendra(at, &[&sealed[..], &short, &own].concat());
    // A busy machine may void the run; answers there must be.
    assert!(
        matches!(bench.status.code(), Some(0 | 6)),
        "{}",
        said(&bench)
    );
    let text = String::from_utf8_lossy(&bench.stdout).into_owned();
    assert!(text.contains("Requests/sec:"), "{text}");
    assert!(!text.contains("Non-2xx"), "{text}");
    let too_short = dendra(at, &[&sealed[..], &short].concat());
    assert_eq!(too_short.status.code(), Some(5), "{}", said(&too_short));
}

#[test]
fn a_name_that_is_refused_changes_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let made = dendra(at, &["cert", "c", "--member", "h1", "--client", "app"]);
    assert!(made.status.success(), "{}", said(&made));
    let files = || {
        let found = std::fs::read_dir(at.join("c")).expect("it is there");
        let paths = found.map(|it| it.expect("a file").path());
        let mut files: Vec<_> = paths
            .map(|path| (path.clone(), std::fs::read(path).expect("a file")))
            .collect();
        files.sort();
        files
    };
    let before = files();
    for (words, why) in [
        ("--renew --member ca", "the names of the CA"),
        ("--renew --member client-app", "the names of a client"),
        ("--member h2,ca --member h2", "is asked for twice"),
        ("--member h2 --client a/b", "is no client's name"),
        ("--member h2 --member h1", "c/h1.crt is there already"),
    ] {
        let words: Vec<&str> = ["cert", "c"].into_iter().chain(words.split(' ')).collect();
        let refused = dendra(at, &words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(said(&refused).contains(why), "{}", said(&refused));
        assert!(files() == before, "{words:?} changed a file");
    }
    let other = ["cert", "c", "--member", "10.0.0.1,ca"];
    assert!(dendra(at, &other).status.success());
    let bare = dendra(at, &["cert", "c"]);
    assert!(said(&bare).contains("--member HOST"), "{}", said(&bare));
    let words = ["cert", "c", "--revoke", "client-app", "--client", "app"];
    let anew = dendra(at, &words);
    assert!(anew.status.success(), "{}", said(&anew));
}

#[test]
fn a_certificate_that_is_taken_back_opens_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let call = |words: &[&str]| {
        let made = dendra(at, &[&["cert", "c"], words].concat());
        assert!(made.status.success(), "{}", said(&made));
    };
    call(&[
        "--member",
        "127.0.0.1",
        "--client",
        "app",
        "--client",
        "web",
    ]);
    let file = |name: &str| at.join("c").join(name).display().to_string();
    std::fs::copy(file("client-app.crt"), file("kept.crt")).expect("copied");
    std::fs::copy(file("client-app.key"), file("kept.key")).expect("copied");
    call(&["--revoke", "client-app"]);
    assert!(!at.join("c/client-app.key").exists());
    let again = dendra(at, &["cert", "c", "--revoke", "client-app"]);
    assert_eq!(again.status.code(), Some(2), "{}", said(&again));
    for name in ["ca", "../c/client-web", ""] {
        let refused = dendra(at, &["cert", "c", "--revoke", name]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
    }
    // The same name again is another certificate.
    call(&["--client", "app"]);
    let (cert, key) = (file("127.0.0.1.crt"), file("127.0.0.1.key"));
    let (ca, list) = (file("ca.crt"), file("ca.crl"));
    let flags = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
        "--tls-revoked",
        &list,
    ];
    let node = Node::start(&at.join("data"), &flags);
    let get = |stem: &str| {
        let (own, key) = (file(&format!("{stem}.crt")), file(&format!("{stem}.key")));
        let base = ["get", "k", "--url", &node.url, "--ca", &ca];
        let got = dendra(
            at,
            &[&base[..], &["--cert", &own, "--key-file", &key]].concat(),
        );
        got.status.code()
    };
    assert_eq!(get("kept"), Some(5));
    assert_eq!(get("client-app"), Some(3), "no such key, and let in");
    assert_eq!(get("client-web"), Some(3));
}

#[test]
fn a_revocation_whose_list_cannot_be_written_is_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let call = |words: &[&str]| dendra(at, &[&["cert", "c"], words].concat());
    let made = call(&["--client", "app"]);
    assert!(made.status.success(), "{}", said(&made));
    let list = at.join("c/ca.crl");
    std::fs::create_dir(&list).expect("a folder in the place of the list");
    let failed = call(&["--revoke", "client-app"]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    std::fs::remove_dir(&list).expect("it is empty");
    let done = call(&["--revoke", "client-app"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("ca.crl has 1"), "{}", said(&done));
    assert!(!at.join("c/client-app.crt").exists());
    assert!(!at.join("c/client-app.key").exists());
}

#[test]
fn a_node_that_has_the_ca_renews_its_certificate() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let made = dendra(at, &["cert", "c", "--member", "127.0.0.1,localhost"]);
    assert!(made.status.success(), "{}", said(&made));
    let file = |name: &str| at.join("c").join(name).display().to_string();
    let (cert, key, ca) = (file("127.0.0.1.crt"), file("127.0.0.1.key"), file("ca.crt"));
    // With less than a third of its time left: it ends in ten minutes.
    short_lived(&at.join("c"), Path::new(&cert), Path::new(&key));
    let before = std::fs::read(&cert).expect("it is there");
    let flags = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-renew-with",
        "c",
    ];
    let with = at.join("c").display().to_string();
    let flags = [&flags[..5], &[&with]].concat();
    let node = Node::start(&at.join("data"), &flags);
    let after = std::fs::read(&cert).expect("it is there");
    assert_ne!(before, after);
    let url = node.url.replace("127.0.0.1", "localhost");
    let get = dendra(at, &["get", "k", "--url", &url, "--ca", &ca]);
    assert_eq!(get.status.code(), Some(3), "{}", said(&get));
    drop(node);
    // A CA that is not its own, and a folder without one.
    let other = dendra(at, &["cert", "other"]);
    assert!(other.status.success(), "{}", said(&other));
    for (folder, words) in [
        ("other", "did not sign"),
        ("none", "dendra cert makes them"),
    ] {
        let with = at.join(folder).display().to_string();
        let serve = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--data",
            "d",
        ];
        let flags = [&flags[..5], &[&with]].concat();
        let refused = dendra(at, &[&serve[..], &flags].concat());
        assert_eq!(refused.status.code(), Some(2), "{folder}");
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// A pair of this CA for 127.0.0.1 and localhost that ends soon.
fn short_lived(ca: &Path, cert: &Path, key: &Path) {
    use std::time::{Duration, SystemTime};
    let ca_pem = std::fs::read(ca.join("ca.key")).expect("it is there");
    let der = PrivateKeyDer::from_pem_slice(&ca_pem).expect("a key");
    let ca_key = KeyPair::try_from(&der).expect("a key");
    let mut of_ca = CertificateParams::default();
    of_ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    of_ca.distinguished_name = DistinguishedName::new();
    of_ca
        .distinguished_name
        .push(DnType::CommonName, "Dendra CA");
    let issuer = Issuer::new(of_ca, ca_key);
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = CertificateParams::new(names).expect("names");
    params.not_before = (SystemTime::now() - Duration::from_secs(86_400)).into();
    params.not_after = (SystemTime::now() + Duration::from_secs(600)).into();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let own = KeyPair::generate().expect("a key");
    let signed = params.signed_by(&own, &issuer).expect("signed");
    std::fs::write(cert, pem("CERTIFICATE", signed.der())).expect("written");
    std::fs::write(key, pem("PRIVATE KEY", own.serialized_der())).expect("written");
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

#[test]
fn a_start_names_the_file_of_a_certificate_that_does_not_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = (folder.path().join("own.crt"), folder.path().join("own.key"));
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    for (from, until, why) in [
        (now + day, now + 9 * day, "does not hold yet"),
        (now - 9 * day, now - day, "has ended"),
    ] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a host");
        (params.not_before, params.not_after) = (from.into(), until.into());
        let pair = KeyPair::generate().expect("a key");
        let made = params.self_signed(&pair).expect("signed");
        std::fs::write(&cert, pem("CERTIFICATE", made.der())).expect("room");
        std::fs::write(&key, pem("PRIVATE KEY", pair.serialized_der())).expect("room");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&key, mode).expect("it is there");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_dendra"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "off"]);
        serve.arg("--data").arg(folder.path().join("data"));
        serve
            .arg("--tls-cert")
            .arg(&cert)
            .arg("--tls-key")
            .arg(&key);
        let mut child = serve
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("it runs");
        let log = BufReader::new(child.stderr.take().expect("it is piped"));
        let lines = log.lines().map(|line| line.expect("text"));
        // The first look at the time that is left is a second behind the start.
        let mut lines =
            lines.take_while(|line| why == "has ended" || !line.starts_with("listening"));
        let found = lines.find(|line| line.contains(why)).unwrap_or_default();
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert!(found.contains("own.crt"), "{why}: {found:?}");
    }
}
