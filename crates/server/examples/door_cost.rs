//! The cost of TLS and of tokens: processor time of an event loop for each request and each handshake.
//!
//! ```text
//! four nodes in one process, one loop each: clear, token, tls, tls and token
//! round: each of them in turn, REQUESTS GETs of 100 bytes on kept connections ─► ns of the loop's thread a request
//! ```
//!
//! Invariants
//! 1. The nodes are measured in turn, in each round in another order: what the machine does besides meets all of them.
//!
//! Run: `cargo run --release -p dendra-server --example door_cost`
//!
//! Not here: what the figures were (docs/lab/).

use base64::Engine;
use dendra_server::settings::{RootToken, TlsSettings};
use dendra_server::{Running, Server, Settings};
use dendra_wire::rights::{Grant, TokenRole, TokenTable, bearer, hash_of};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::collections::HashSet;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const CONNECTIONS: usize = 8;
const REQUESTS: usize = 4_000;
const HANDSHAKES: usize = 200;
const ROUNDS: usize = 15;
const TOKEN: &str = "dendra_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

type Fallible<T> = Result<T, Box<dyn Error>>;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

struct Case {
    name: &'static str,
    has_token: bool,
    tls: Option<Arc<ClientConfig>>,
    running: Running,
    /// The thread of its loop.
    task: String,
    ns: Vec<f64>,
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// A pair for 127.0.0.1 in `folder`, and a client that trusts it.
fn pair(folder: &Path, resumption: Resumption) -> Fallible<(TlsSettings, Arc<ClientConfig>)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca = params.self_signed(&ca_key)?;
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate()?;
    let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let (cert_path, key_path) = (folder.join("n.crt"), folder.join("n.key"));
    std::fs::write(&cert_path, pem("CERTIFICATE", cert.der()))?;
    std::fs::write(&key_path, pem("PRIVATE KEY", key.serialized_der()))?;
    std::fs::set_permissions(&key_path, std::fs::Permissions::from_mode(0o600))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ca.der().to_vec()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = resumption;
    Ok((TlsSettings::new(cert_path, key_path), Arc::new(config)))
}

fn tasks() -> Fallible<HashSet<String>> {
    let entries = std::fs::read_dir("/proc/self/task")?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

impl Case {
    fn start(
        name: &'static str,
        folder: &Path,
        tls: Option<(TlsSettings, Arc<ClientConfig>)>,
        has_token: bool,
    ) -> Fallible<Case> {
        let mut settings = Settings::new(folder.join(name));
        settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        settings.admin = None;
        settings.loops = Some(1);
        let (own, client) = tls.unzip();
        settings.tls = own;
        settings.root_token = match has_token {
            true => RootToken::new(TOKEN.as_bytes()),
            false => None,
        };
        let before = tasks()?;
        let running = Server::start(settings)?;
        let task = tasks()?.into_iter().find(|task| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{task}/comm"));
            !before.contains(task) && name.is_ok_and(|name| name.trim() == "loop-0")
        });
        let case = Case {
            name,
            has_token,
            tls: client,
            running,
            task: task.ok_or("a node has a loop")?,
            ns: Vec::new(),
        };
        let value = "v".repeat(100);
        let put = case.request(&format!(
            "PUT /v0/entity?id=k HTTP/1.1\r\nContent-Length: {}\r\n",
            value.len()
        ));
        let mut stream = case.connect()?;
        stream.write_all(format!("{put}{value}").as_bytes())?;
        read_answer(&mut *stream, 0)?;
        Ok(case)
    }

    fn request(&self, lines: &str) -> String {
        let token = match self.has_token {
            true => format!("Authorization: Bearer {TOKEN}\r\n"),
            false => String::new(),
        };
        format!("{lines}Host: localhost\r\n{token}\r\n")
    }

    fn connect(&self) -> Fallible<Box<dyn Stream>> {
        let tcp = TcpStream::connect(self.running.addr())?;
        tcp.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(tcp),
            Some(config) => {
                let name = ServerName::try_from("127.0.0.1")?;
                let connection = ClientConnection::new(Arc::clone(config), name)?;
                Box::new(StreamOwned::new(connection, tcp))
            }
        })
    }

    /// Nanoseconds that its loop has had a processor.
    fn cpu_ns(&self) -> Fallible<f64> {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.task))?;
        let first = stat
            .split(' ')
            .next()
            .ok_or("a schedstat has three numbers")?;
        Ok(first.parse()?)
    }

    fn requests(&mut self) -> Fallible<()> {
        let mut streams = (0..CONNECTIONS)
            .map(|_| self.connect())
            .collect::<Fallible<Vec<_>>>()?;
        let get = self.request("GET /v0/entity?id=k HTTP/1.1\r\n");
        for stream in &mut streams {
            stream.write_all(get.as_bytes())?;
            read_answer(&mut **stream, 100)?;
        }
        let before = self.cpu_ns()?;
        for _ in 0..REQUESTS / CONNECTIONS {
            for stream in &mut streams {
                stream.write_all(get.as_bytes())?;
            }
            for stream in &mut streams {
                read_answer(&mut **stream, 100)?;
            }
        }
        self.ns.push((self.cpu_ns()? - before) / REQUESTS as f64);
        Ok(())
    }

    fn handshakes(&self) -> Fallible<f64> {
        let get = self.request("GET /v0/entity?id=k HTTP/1.1\r\n");
        let before = self.cpu_ns()?;
        for _ in 0..HANDSHAKES {
            let mut stream = self.connect()?;
            stream.write_all(get.as_bytes())?;
            read_answer(&mut *stream, 100)?;
        }
        Ok((self.cpu_ns()? - before) / HANDSHAKES as f64)
    }
}

fn read_answer(stream: &mut dyn Stream, body: usize) -> Fallible<()> {
    let mut buffer = [0; 4096];
    let mut at = 0;
    loop {
        let n = stream.read(&mut buffer[at..])?;
        at += n;
        let head = buffer[..at].windows(4).position(|four| four == b"\r\n\r\n");
        match head {
            Some(end) if at >= end + 4 + body => {
                let is_fine = buffer.starts_with(b"HTTP/1.1 20");
                return if is_fine {
                    Ok(())
                } else {
                    Err(String::from_utf8_lossy(&buffer[..at]).into())
                };
            }
            _ if n == 0 => return Err("the connection ended".into()),
            _ => {}
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn token_check() -> Fallible<f64> {
    let mut table = TokenTable::default();
    let mut tokens = Vec::new();
    for n in 0..dendra_wire::limits::TOKENS_MAX {
        let token = format!("dendra_{n:043}");
        let hash = hash_of(token.as_bytes()).ok_or("a token")?;
        tokens.push(format!("Bearer {token}"));
        table = table.with(Grant {
            id: n.to_string(),
            role: TokenRole::Read,
            prefix: Vec::new(),
            hash,
        })?;
    }
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut found = 0;
        for _ in 0..200 {
            for token in &tokens {
                let hash = bearer(std::hint::black_box(token.as_bytes())).and_then(hash_of);
                found += usize::from(hash.and_then(|hash| table.find(&hash)).is_some());
            }
        }
        assert_eq!(found, 200 * tokens.len());
        best = best.min(began.elapsed().as_nanos() as f64 / found as f64);
    }
    Ok(best)
}

fn main() -> Fallible<()> {
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    let kept = || pair(at, Resumption::default());
    let mut cases = [
        Case::start("clear", at, None, false)?,
        Case::start("token", at, None, true)?,
        Case::start("tls", at, Some(kept()?), false)?,
        Case::start("tls and token", at, Some(kept()?), true)?,
    ];
    for round in 0..ROUNDS {
        for n in 0..cases.len() {
            cases[(round + n) % 4].requests()?;
        }
    }
    println!("GET of 100 bytes on {CONNECTIONS} kept connections, {ROUNDS} rounds of {REQUESTS}:");
    for case in &cases {
        let pairs = case.ns.iter().zip(&cases[0].ns);
        let ratio = median(pairs.map(|(one, clear)| one / clear).collect());
        println!(
            "  {:14} {:7.0} ns a request, {ratio:.3} times clear",
            case.name,
            median(case.ns.clone())
        );
    }
    let resumed = cases[2].handshakes()?;
    let full = Case::start("full", at, Some(pair(at, Resumption::disabled())?), false)?;
    let clear = cases[0].handshakes()?;
    let whole = full.handshakes()?;
    println!(
        "a connection with one GET: clear {:.0} µs, resumed {:.0} µs, full {:.0} µs: {:.0} full handshakes a second of one processor",
        clear / 1e3,
        resumed / 1e3,
        whole / 1e3,
        1e9 / (whole - clear)
    );
    println!(
        "a token check in a table of {}: {:.0} ns",
        dendra_wire::limits::TOKENS_MAX,
        token_check()?
    );
    for case in cases.into_iter().chain([full]) {
        case.running.stop()?;
    }
    Ok(())
}
