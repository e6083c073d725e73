//! `dendra get`, `put`, `touch` and `delete`: one key, one request.
//!
//! ```text
//! get     value on stdout            --json: key, value, version, expires_ms, receipt, metadata
//!         --explain: a tree          --json: the node's document
//! put     version on stderr          --json: key, version, receipt (stdout)
//! touch   version on stderr          --json: key, version, expires_ms, receipt (stdout)
//! delete  version on stderr          --json: key, version, receipt (stdout)
//! ```
//!
//! Invariants
//! 1. Without --hex, --base64 and --json, stdout gets exactly the bytes of the value.
//! 2. `--out` replaces its file only after the whole value was received.
//!
//! Not here: ranges (`scan.rs`), many keys (`load/`).
//! See: docs/cli.md.

use crate::cli::{self, ConditionArgs, Delete, Get, Put, QuorumArgs, TouchArgs};
use crate::client::{BaseUrl, Client, Credentials, HttpRequest, WholeAnswer};
use crate::console::{Console, show_key};
use crate::encoding::{self, Encoding};
use crate::exit::{Exit, ExitResult, Failure};
use bytes::Bytes;
use dendra_base::Version;
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_wire::meta::MetaBuf;
use dendra_wire::percent;
use hyper::Method;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

pub(crate) use crate::output::{can_write, print, write_whole};

/// Parts of a query, in the order they were added.
#[derive(Clone, Default)]
pub(crate) struct Query(String);

impl Query {
    /// Adds `name=value`, percent-encoding the value.
    pub(crate) fn add(&mut self, name: &str, value: &[u8]) {
        let mark = if self.0.is_empty() { '?' } else { '&' };
        self.0.push(mark);
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&percent::encode(value));
    }

    /// Adds `ack` and `from` where they were given.
    pub(crate) fn add_quorum(&mut self, quorum: QuorumArgs) {
        for (name, given) in [("ack", quorum.ack), ("from", quorum.from)] {
            if let Some(number) = given {
                self.add(name, number.to_string().as_bytes());
            }
        }
    }

    /// `path` with this query after it.
    pub(crate) fn behind(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// The client that the flags describe.
pub(crate) fn client(flags: &cli::ClientArgs, console: Console) -> Result<Client, Failure> {
    let base = BaseUrl::parse(&flags.url).map_err(|bad| bad.of("--url"))?;
    let access = Credentials::read(&flags.access, &base)?;
    Ok(Client::new(base, access, flags.timeout_ms, console))
}

/// A key from the command line.
pub(crate) fn key_bytes(name: &str, text: &OsStr, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let key = encoding
        .decode(text.as_bytes())
        .map_err(|rest| Failure::usage(format!("{name} {rest}")))?;
    let what = match key.len() {
        0 => "is empty".to_owned(),
        1..=KEY_BYTES_MAX => return Ok(key),
        len => format!("has {len} bytes"),
    };
    Err(Failure::usage(format!(
        "{name} {what}; a key has 1 to {KEY_BYTES_MAX} bytes"
    )))
}

fn entity(key: &[u8], quorum: QuorumArgs, ttl: Option<u64>) -> String {
    let mut query = Query::default();
    query.add("id", key);
    query.add_quorum(quorum);
    if let Some(seconds) = ttl {
        query.add("ttl", seconds.to_string().as_bytes());
    }
    query.behind("/v0/entity")
}

/// `If-Match` from `--if-match`: the version in quotes, however it was pasted.
fn if_match(condition: &ConditionArgs) -> Result<Option<(&'static str, String)>, Failure> {
    let Some(given) = condition.if_match.as_deref() else {
        return Ok(None);
    };
    if given == "*" {
        return Ok(Some(("if-match", "*".to_owned())));
    }
    let version: Version = given.trim_matches('"').parse().map_err(|e| {
        Failure::usage(format!(
            "--if-match {given:?}: {e}; paste what `put` or `get --json` printed, or *"
        ))
    })?;
    let value = format!("\"{version}\"");
    Ok(Some(("if-match", value)))
}

/// The JSON object all three commands print.
fn described(key: &[u8], answer: &WholeAnswer) -> Result<Map<String, Value>, Failure> {
    let mut object = Map::new();
    encoding::put_json(&mut object, "key", key);
    for (name, header) in [
        ("version", answer.version()),
        ("receipt", answer.header("dendra-receipt")),
    ] {
        if let Some(text) = header {
            object.insert(name.to_owned(), Value::from(text));
        }
    }
    let expires = answer.header("dendra-expires");
    if let Some(unix_ms) = expires.and_then(|text| text.parse::<u64>().ok()) {
        object.insert("expires_ms".to_owned(), Value::from(unix_ms));
    }
    let meta = answer.meta();
    let meta = meta.map_err(|why| Failure::new(Exit::FAILURE, show_key(key) + ": " + &why))?;
    encoding::put_meta(&mut object, meta.as_meta());
    Ok(object)
}

fn print_json(object: Map<String, Value>) -> Result<(), Failure> {
    print(format!("{}\n", Value::Object(object)).as_bytes())
}

/// `dendra get`
pub(crate) async fn get(args: &Get, console: Console) -> ExitResult {
    let encoding = args.client.encoding();
    let key = key_bytes("the key", &args.key, encoding)?;
    let client = client(&args.client, console)?;
    let mut target = entity(&key, args.quorum, None);
    if args.explain {
        target += "&explain=1";
    }
    let ask = HttpRequest {
        meta: MetaBuf::default(),
        method: Method::GET,
        path: target,
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let answer = client
        .send(&ask)
        .await
        .map_err(|trouble| trouble.failure(client.place()))?;
    if args.explain {
        return print_explanation(&answer, &show_key(&key), args.json);
    }
    if answer.status != hyper::StatusCode::OK {
        return Err(answer.failure(&show_key(&key)));
    }
    if args.json {
        let mut object = described(&key, &answer)?;
        if args.out.is_none() {
            encoding::put_json(&mut object, "value", &answer.body);
        }
        print_json(object)?;
    }
    let mut text = encoding.encode(&answer.body);
    if encoding != Encoding::Raw {
        text.push(b'\n');
    }
    match &args.out {
        Some(path) => write_whole(path, &text)?,
        None if args.json => {}
        None => print(&text)?,
    }
    Ok(Exit::OK)
}

/// Prints how a read was found. A read that failed on its way has a document, too.
fn print_explanation(answer: &WholeAnswer, key: &str, is_json: bool) -> ExitResult {
    let is_document = answer.header("content-type") == Some("application/json");
    let page = is_document.then(|| serde_json::from_slice::<Value>(&answer.body).ok());
    let Some(page) = page.flatten() else {
        return Err(answer.failure(key));
    };
    if is_json {
        print(&answer.body)?;
    } else {
        print(crate::explain::tree(&page).as_bytes())?;
    }
    if answer.status == hyper::StatusCode::OK {
        return Ok(Exit::OK);
    }
    let mut failure = answer.failure(key);
    let outcome = page["outcome"].as_str().unwrap_or("no outcome");
    failure.sentence = format!("{key}: {} {outcome}", answer.status.as_u16());
    Err(failure)
}

/// The bytes to store: argument, file or stdin, in that order.
fn value_bytes(args: &Put) -> Result<Vec<u8>, Failure> {
    let encoding = args.client.encoding();
    let dash = OsStr::new("-");
    let raw = match (&args.value, &args.input) {
        (Some(text), _) if text != dash => text.as_bytes().to_vec(),
        (_, Some(path)) if path.as_os_str() != dash => {
            let opened = File::open(path).and_then(read_bounded);
            opened.map_err(|e| {
                Failure::new(
                    Exit::FAILURE,
                    format!("{}: cannot be read ({e})", path.display()),
                )
            })?
        }
        (None, None) if std::io::stdin().is_terminal() => {
            return Err(Failure::usage(
                "there is no value; give one after the key, with --in FILE, or on stdin",
            ));
        }
        _ => read_bounded(std::io::stdin().lock())
            .map_err(|e| Failure::new(Exit::FAILURE, format!("stdin cannot be read ({e})")))?,
    };
    encoding
        .decode(&raw)
        .map_err(|rest| Failure::usage(format!("the value {rest}")))
}

/// Reads to the end, or fails past the largest value that any node can store in any encoding.
fn read_bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let most = 2 * dendra_base::limits::VALUE_BYTES_MAX_LIMIT + 2;
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(std::io::Error::other(format!(
            "it has more than {most} bytes, and no node stores that in one value; split it"
        )));
    }
    Ok(bytes)
}

/// The metadata that the flags give.
fn metadata(args: &Put) -> Result<MetaBuf, Failure> {
    let pair = |given: &'_ String| match given.split_once('=') {
        Some((name, content)) => Ok((name.to_owned(), content.to_owned())),
        None => Err(Failure::usage(format!(
            "--meta {given:?} has no =; write NAME=VALUE"
        ))),
    };
    let named = args.meta.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let content_type = args.content_type.as_deref().map(str::as_bytes);
    let meta = MetaBuf::new(content_type, &named);
    meta.map_err(|refusal| Failure::usage(format!("--content-type, --meta: {}", refusal.message)))
}

/// `dendra put`
pub(crate) async fn put(args: &Put, console: Console) -> ExitResult {
    let key = key_bytes("the key", &args.key, args.client.encoding())?;
    let mut headers: Vec<_> = if_match(&args.condition)?.into_iter().collect();
    if args.if_absent {
        headers.push(("if-none-match", "*".to_owned()));
    }
    let client = client(&args.client, console)?;
    let ask = HttpRequest {
        meta: metadata(args)?,
        method: Method::PUT,
        path: entity(&key, args.quorum, args.ttl),
        headers,
        body: Bytes::from(value_bytes(args)?),
    };
    write(&client, &ask, &key, args.json, console).await
}

/// `dendra delete`
pub(crate) async fn delete(args: &Delete, console: Console) -> ExitResult {
    let key = key_bytes("the key", &args.key, args.client.encoding())?;
    let client = client(&args.client, console)?;
    let ask = HttpRequest {
        meta: MetaBuf::default(),
        method: Method::DELETE,
        path: entity(&key, args.quorum, None),
        headers: if_match(&args.condition)?.into_iter().collect(),
        body: Bytes::new(),
    };
    write(&client, &ask, &key, args.json, console).await
}

/// `dendra touch`
pub(crate) async fn touch(args: &TouchArgs, console: Console) -> ExitResult {
    let key = key_bytes("the key", &args.key, args.client.encoding())?;
    let client = client(&args.client, console)?;
    let mut query = Query::default();
    query.add("id", &key);
    query.add("ttl", args.ttl.to_string().as_bytes());
    let ask = HttpRequest {
        meta: MetaBuf::default(),
        method: Method::POST,
        path: query.behind("/v0/touch"),
        headers: if_match(&args.condition)?.into_iter().collect(),
        body: Bytes::new(),
    };
    write(&client, &ask, &key, args.json, console).await
}

async fn write(
    client: &Client,
    ask: &HttpRequest,
    key: &[u8],
    is_json: bool,
    console: Console,
) -> ExitResult {
    let answer = client
        .send(ask)
        .await
        .map_err(|trouble| trouble.failure(client.place()))?;
    if !answer.status.is_success() {
        return Err(answer.failure(&show_key(key)));
    }
    if is_json {
        print_json(described(key, &answer)?)?;
    } else if let Some(version) = answer.version() {
        console.note(version);
    }
    Ok(Exit::OK)
}
