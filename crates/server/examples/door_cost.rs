//! The cost of TLS and of tokens: processor time of an event loop for each request and each
//! handshake.
//!
//! ```text
//! four nodes in one process, one loop each: clear, token, tls, tls and token
//! nginx, where there is one: a process with one worker, clear and tls, 100 bytes from its memory
//! round: each of them in turn, REQUESTS GETs of 100 bytes on kept connections ─► ns of that thread a request
//! ```
//!
//! Invariants
//! 1. The nodes are measured in turn, in each round in another order: other work of the machine
//!    meets all of them.
//! 2. Each pair of a certificate and its key has files of its own: a node reads files again when
//!    they change.
//!
//! Run: `cargo run --release -p dendra-server --example door_cost`
//!
//! Not here: the figures (docs/lab/).

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
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const CONNECTIONS: usize = 8;
const REQUESTS: usize = 4_000;
const HANDSHAKES: usize = 200;
const HANDSHAKE_ROUNDS: usize = 5;
const ROUNDS: usize = 15;
const TOKEN: &str = "dendra_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

type Fallible<T> = Result<T, Box<dyn Error>>;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// The server that answers.
enum Answerer {
    Node(Box<Running>),
    Nginx(Nginx),
}

/// A process, ended when dropped.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            eprintln!("nginx stays ({error})");
        }
    }
}

struct Case {
    name: &'static str,
    has_token: bool,
    tls: Option<Arc<ClientConfig>>,
    address: SocketAddr,
    answerer: Answerer,
    /// `schedstat` of the thread that answers.
    schedstat: String,
    ns: Vec<f64>,
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// A pair for 127.0.0.1 in `folder`, and a client that trusts it.
fn pair(
    folder: &Path,
    stem: &str,
    resumption: Resumption,
) -> Fallible<(TlsSettings, Arc<ClientConfig>)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate()?;
    let ca = params.self_signed(&ca_key)?;
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate()?;
    let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let cert_path = folder.join(format!("{stem}.crt"));
    let key_path = folder.join(format!("{stem}.key"));
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
        settings.root_token = if has_token {
            RootToken::new(TOKEN.as_bytes())
        } else {
            None
        };
        let before = tasks()?;
        let running = Server::start(settings)?;
        // A thread has its name when it has run for the first time.
        let until = Instant::now() + std::time::Duration::from_secs(10);
        let task = loop {
            let found = tasks()?.into_iter().find(|task| {
                let name = std::fs::read_to_string(format!("/proc/self/task/{task}/comm"));
                !before.contains(task) && name.is_ok_and(|name| name.trim() == "loop-0")
            });
            match found {
                Some(task) => break task,
                None if Instant::now() > until => return Err("a node has a loop".into()),
                None => std::thread::yield_now(),
            }
        };
        let case = Case {
            name,
            has_token,
            tls: client,
            address: running.addr(),
            answerer: Answerer::Node(Box::new(running)),
            schedstat: format!("/proc/self/task/{task}/schedstat"),
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

    /// nginx with the same answer; `None` where there is none.
    fn nginx(
        name: &'static str,
        folder: &Path,
        tls: Option<(TlsSettings, Arc<ClientConfig>)>,
    ) -> Fallible<Option<Case>> {
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
        let Some(program) = program.iter().find(|path| Path::new(path).exists()) else {
            return Ok(None);
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = free.local_addr()?;
        drop(free);
        let (own, client) = tls.unzip();
        let (word, lines) = match &own {
            None => ("", String::new()),
            Some(own) => (
                " ssl",
                format!(
                    "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;",
                    own.cert.display(),
                    own.key.display()
                ),
            ),
        };
        let value = "v".repeat(100);
        // Paths in its file have no spaces.
        let at = folder.join(name.replace(' ', "-"));
        std::fs::create_dir_all(&at)?;
        let config = at.join("nginx.conf");
        std::fs::write(
            &config,
            format!(
                "daemon off; master_process off; worker_processes 1; pid {0}/pid; error_log {0}/error.log;\n\
                 events {{ worker_connections 512; }}\n\
                 http {{ access_log off; keepalive_requests 1000000000; default_type application/octet-stream;\n\
                 client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
                 uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
                 server {{ listen {address}{word}; {lines} location / {{ return 200 \"{value}\"; }} }} }}\n",
                at.display()
            ),
        )?;
        let child = Command::new(program)
            .args(["-e", "stderr", "-c"])
            .arg(&config)
            .stderr(Stdio::null())
            .spawn()?;
        let case = Case {
            name,
            has_token: false,
            tls: client,
            address,
            schedstat: format!("/proc/{}/schedstat", child.id()),
            answerer: Answerer::Nginx(Nginx(child)),
            ns: Vec::new(),
        };
        let until = Instant::now() + std::time::Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > until {
                return Err("nginx does not listen".into());
            }
            std::thread::yield_now();
        }
        Ok(Some(case))
    }

    fn request(&self, lines: &str) -> String {
        let token = if self.has_token {
            format!("Authorization: Bearer {TOKEN}\r\n")
        } else {
            String::new()
        };
        format!("{lines}Host: localhost\r\n{token}\r\n")
    }

    fn connect(&self) -> Fallible<Box<dyn Stream>> {
        let tcp = TcpStream::connect(self.address)?;
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

    fn end(self) -> Fallible<()> {
        match self.answerer {
            Answerer::Node(running) => Ok(running.stop()?),
            Answerer::Nginx(process) => {
                drop(process);
                Ok(())
            }
        }
    }

    /// Nanoseconds that its thread has had a processor.
    fn cpu_ns(&self) -> Fallible<f64> {
        let stat = std::fs::read_to_string(&self.schedstat)?;
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

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}

fn token_check() -> Fallible<f64> {
    let mut table = TokenTable::default();
    let mut tokens = Vec::new();
    for n in 0..dendra_wire::limits::TOKENS_MAX {
        let token = format!("dendra_{n:043}");
        let hash = hash_of(token.as_bytes()).ok_or("a token")?;
        tokens.push(format!("Bearer {token}"));
        table = table.with(Grant::of_token(&n.to_string(), TokenRole::Read, b"", hash))?;
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
    let kept = |stem: &str| pair(at, stem, Resumption::default());
    let mut cases = vec![
        Case::start("clear", at, None, false)?,
        Case::start("token", at, None, true)?,
        Case::start("tls", at, Some(kept("a")?), false)?,
        Case::start("tls and token", at, Some(kept("b")?), true)?,
    ];
    cases.extend(Case::nginx("nginx clear", at, None)?);
    cases.extend(Case::nginx("nginx tls", at, Some(kept("c")?))?);
    let len = cases.len();
    for round in 0..ROUNDS {
        for n in 0..len {
            cases[(round + n) % len].requests()?;
        }
    }
    println!("GET of 100 bytes on {CONNECTIONS} kept connections, {ROUNDS} rounds of {REQUESTS}:");
    for (n, case) in cases.iter().enumerate() {
        // nginx beside itself, too.
        let base = if n < 4 { 0 } else { 4 };
        let pairs = case.ns.iter().zip(&cases[base].ns);
        let ratios: Vec<f64> = pairs.map(|(one, clear)| one / clear).collect();
        let spread = (quantile(&ratios, 0.25), quantile(&ratios, 0.75));
        println!(
            "  {:14} {:7.0} ns a request, {:.3} times clear (quartiles {:.3} to {:.3}), {:+.0} ns",
            case.name,
            quantile(&case.ns, 0.5),
            quantile(&ratios, 0.5),
            spread.0,
            spread.1,
            quantile(&case.ns, 0.5) - quantile(&cases[base].ns, 0.5),
        );
    }
    let full = Case::start(
        "full",
        at,
        Some(pair(at, "d", Resumption::disabled())?),
        false,
    )?;
    let mut rows = vec![
        ("clear", &cases[0]),
        ("resumed", &cases[2]),
        ("full", &full),
    ];
    let nginx_full = Case::nginx(
        "nginx full",
        at,
        Some(pair(at, "e", Resumption::disabled())?),
    )?;
    rows.extend(nginx_full.iter().map(|case| ("nginx full", case)));
    let mut costs = vec![Vec::new(); rows.len()];
    for round in 0..HANDSHAKE_ROUNDS {
        for n in 0..rows.len() {
            let at = (round + n) % rows.len();
            costs[at].push(rows[at].1.handshakes()?);
        }
    }
    println!("a connection with one GET, {HANDSHAKE_ROUNDS} rounds of {HANDSHAKES}:");
    let clear = quantile(&costs[0], 0.5);
    for ((name, _), costs) in rows.iter().zip(&costs) {
        let cost = quantile(costs, 0.5);
        let rate = match *name {
            "clear" => String::new(),
            _ => format!(
                ", {:.0} handshakes a second of one processor",
                1e9 / (cost - clear)
            ),
        };
        println!("  {name:14} {:7.0} µs{rate}", cost / 1e3);
    }
    println!(
        "a token check in a table of {}: {:.0} ns",
        dendra_wire::limits::TOKENS_MAX,
        token_check()?
    );
    for case in cases.into_iter().chain([full]) {
        case.end()?;
    }
    Ok(())
}
