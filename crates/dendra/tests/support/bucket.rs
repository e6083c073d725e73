//! A bucket of S3-compatible storage in memory: five requests, signatures that are verified, and
//! faults.
//!
//! ```text
//! HEAD GET PUT DELETE /bucket/name        GET /bucket?list-type=2&prefix=…: three names a page
//! ```
//!
//! Invariants
//! 1. It shares no code with the client: signatures are computed anew, with another library.
//! 2. A request whose signature or body hash does not hold is refused, and changes no object.

use super::http::PATIENCE;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(crate) const KEY_ID: &str = "test-key";
pub(crate) const SECRET: &str = "a secret of tests";
const REGION: &str = "nowhere-1";
const BUCKET: &str = "bucket";
const PAGE: usize = 3;

/// The fault of the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// Every second request of each file is refused: no client meets a row of refusals by chance.
    Busy,
    /// It has no room for files above 2 KiB.
    Full,
    /// It says that it has stored, and has not.
    Loses,
    /// It flips a bit of the bytes that it gives.
    Lies,
    /// It gives fewer bytes than it says.
    Cuts,
    /// Its credentials may only read.
    ReadOnly,
    /// When a backup goes, all uses are taken for dead.
    Forgets,
}

/// Is it time to take what is put?
type Gate = Arc<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct Stored {
    gate: Option<Gate>,
    files: BTreeMap<String, Vec<u8>>,
    fault: Fault,
    /// Methods and paths of which the last request was refused.
    refused: BTreeSet<String>,
    /// Names that look as old as that, in seconds.
    ages: BTreeMap<String, i64>,
}

/// See the module. It listens until the test's process ends.
pub(crate) struct TestBucket {
    pub(crate) endpoint: String,
    stored: Arc<Mutex<Stored>>,
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn is_for_an_object(&self) -> bool {
        self.method == "PUT" && self.path.contains("/objects/")
    }
}

impl TestBucket {
    pub(crate) fn start() -> TestBucket {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        let stored: Arc<Mutex<Stored>> = Arc::default();
        let shared = Arc::clone(&stored);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(socket, &shared));
            }
        });
        TestBucket { endpoint, stored }
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.stored.lock().expect("no panic").fault = fault;
    }

    /// From now on it takes an object when `is_time`, as a slow line would.
    pub(crate) fn delay_objects(&self, is_time: impl Fn() -> bool + Send + Sync + 'static) {
        self.stored.lock().expect("no panic").gate = Some(Arc::new(is_time));
    }

    /// All names, with their bytes.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.stored.lock().expect("no panic").files.clone()
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8], age_s: i64) {
        let mut stored = self.stored.lock().expect("no panic");
        stored.files.insert(name.to_owned(), bytes.to_vec());
        stored.ages.insert(name.to_owned(), age_s);
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut stored = self.stored.lock().expect("no panic");
        stored.files.remove(name).expect("it is there");
    }

    /// What a command needs to find it.
    pub(crate) fn command(&self, mut command: std::process::Command) -> std::process::Command {
        command
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", KEY_ID)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env_remove("AWS_SESSION_TOKEN");
        command
    }
}

fn serve(socket: TcpStream, stored: &Mutex<Stored>) {
    let mut reader = BufReader::new(socket.try_clone().expect("a second handle"));
    let mut writer = socket;
    while let Some(request) = read(&mut reader) {
        let gate = stored.lock().expect("no panic").gate.clone();
        if let Some(is_time) = gate.filter(|_| request.is_for_an_object()) {
            let deadline = Instant::now() + PATIENCE;
            while !is_time() && Instant::now() < deadline {
                crate::support::rest();
            }
        }
        let answer = answer(&request, stored);
        if writer.write_all(&answer).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(Ok(0), |it| it.parse());
    let mut body = vec![0; length.ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        query,
        headers,
        body,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC-SHA256, as RFC 2104 writes it.
fn mac(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key))
    } else {
        block[..key.len()].copy_from_slice(key)
    }
    let pad = |with: u8| block.map(|byte| byte ^ with).to_vec();
    let inner = Sha256::digest([pad(0x36), bytes.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

/// Does `Authorization` sign this request?
fn is_signed(request: &Request) -> bool {
    let Some(authorization) = request.headers.get("authorization") else {
        return false;
    };
    let part = |name: &str| {
        let (_, rest) = authorization.split_once(&format!("{name}="))?;
        Some(rest.split(',').next().unwrap_or_default().to_owned())
    };
    let (Some(credential), Some(names), Some(signature)) =
        (part("Credential"), part("SignedHeaders"), part("Signature"))
    else {
        return false;
    };
    let time = &request.headers["x-amz-date"];
    let scope = format!("{}/{REGION}/s3/aws4_request", &time[..8]);
    let hash = hex(&Sha256::digest(&request.body));
    if credential != format!("{KEY_ID}/{scope}") || request.headers["x-amz-content-sha256"] != hash
    {
        return false;
    }
    let must = ["host", "x-amz-content-sha256", "x-amz-date"];
    if !must
        .iter()
        .all(|name| names.split(';').any(|it| it == *name))
    {
        return false;
    }
    let lines = names.split(';').map(|name| {
        let value = request.headers.get(name).cloned().unwrap_or_default();
        format!("{name}:{value}\n")
    });
    let lines: String = lines.collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{hash}",
        request.method, request.path, request.query
    );
    let canonical = hex(&Sha256::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}");
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in [&time[..8], REGION, "s3", "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    hex(&mac(&key, text.as_bytes())) == signature
}

fn whole(status: &str, headers: &[String], body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        answer.push_str(&format!("{header}\r\n"));
    }
    answer.push_str("\r\n");
    [answer.as_bytes(), body].concat()
}

fn refused(status: &str, code: &str) -> Vec<u8> {
    let page = format!("<Error><Code>{code}</Code><Message>a test</Message></Error>");
    whole(status, &[], page.as_bytes())
}

fn answer(request: &Request, stored: &Mutex<Stored>) -> Vec<u8> {
    let mut stored = stored.lock().expect("no panic");
    if !is_signed(request) {
        return refused("403 Forbidden", "SignatureDoesNotMatch");
    }
    if stored.fault == Fault::Busy {
        let asked = format!("{} {}", request.method, request.path);
        if !stored.refused.remove(&asked) {
            stored.refused.insert(asked);
            return refused("503 Slow Down", "SlowDown");
        }
    }
    let root = format!("/{BUCKET}");
    let Some(name) = request.path.strip_prefix(&root) else {
        return refused("404 Not Found", "NoSuchBucket");
    };
    if name.is_empty() && request.method == "GET" {
        return list(&request.query, &stored);
    }
    let name = name.trim_start_matches('/').to_owned();
    if stored.fault == Fault::ReadOnly && !matches!(request.method.as_str(), "GET" | "HEAD") {
        return refused("403 Forbidden", "AccessDenied");
    }
    match request.method.as_str() {
        "PUT" => {
            if stored.fault == Fault::Full && request.body.len() > 2048 {
                return refused("507 Insufficient Storage", "XMinioStorageFull");
            }
            if stored.fault != Fault::Loses {
                stored.files.insert(name, request.body.clone());
            }
            whole("200 OK", &[], b"")
        }
        "DELETE" => {
            stored.files.remove(&name);
            if stored.fault == Fault::Forgets && name.contains("backups/") {
                stored.files.retain(|name, _| !name.contains("locks/"));
            }
            whole("204 No Content", &[], b"")
        }
        method => match stored.files.get(&name) {
            None => refused("404 Not Found", "NoSuchKey"),
            Some(bytes) if method == "HEAD" => {
                let length = bytes.len();
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes()
            }
            Some(bytes) => {
                let range = request
                    .headers
                    .get("range")
                    .expect("files are read by ranges");
                let (from, to) = range
                    .strip_prefix("bytes=")
                    .and_then(|it| it.split_once('-'))
                    .expect("a range");
                let (from, to): (usize, usize) = (
                    from.parse().expect("a number"),
                    to.parse().expect("a number"),
                );
                let mut part = bytes[from..=to].to_vec();
                match stored.fault {
                    Fault::Lies => {
                        let middle = part.len() / 2;
                        part[middle] ^= 1;
                    }
                    Fault::Cuts => drop(part.pop()),
                    _ => {}
                }
                whole("206 Partial Content", &[], &part)
            }
        },
    }
}

fn list(query: &str, stored: &Stored) -> Vec<u8> {
    let field = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(found, _)| *found == name)?;
        Some(value.replace("%2F", "/"))
    };
    assert_eq!(field("list-type").as_deref(), Some("2"));
    let prefix = field("prefix").expect("one");
    let behind = field("continuation-token").unwrap_or_default();
    let matching = stored.files.iter();
    let mut matching = matching.filter(|(name, _)| name.starts_with(&prefix) && **name > behind);
    let mut page = "<ListBucketResult>".to_owned();
    let now = jiff::Timestamp::now();
    let mut last = String::new();
    for (name, bytes) in matching.by_ref().take(PAGE) {
        let age = stored.ages.get(name).copied().unwrap_or(0);
        let changed = now - jiff::SignedDuration::from_secs(age);
        page.push_str(&format!(
            "<Contents><Key>{name}</Key><LastModified>{changed}</LastModified><Size>{}</Size></Contents>",
            bytes.len()
        ));
        last.clone_from(name);
    }
    if matching.next().is_some() {
        page.push_str(&format!(
            "<NextContinuationToken>{last}</NextContinuationToken>"
        ));
    }
    page.push_str("</ListBucketResult>");
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT");
    whole("200 OK", &[format!("Date: {date}")], page.as_bytes())
}
