//! `dendra watch`: the events of a key or a range, on stdout or to a command, until it is stopped.
//!
//! ```text
//! GET /v0/watch ─► lines ─┬─ put, delete, expire, live, reset ─► stdout, or the command (--exec)
//!    ▲                    └─ heartbeat: the token alone; end: a note
//!    └── a pause, then from the last token ◄── the stream ended, or broke
//! ```
//!
//! Invariants
//! 1. An event is printed, or its command has ended, before the token behind it counts.
//! 2. Behind a reset no earlier token is used.
//! 3. Once a watch was open it is opened again for as long as that can help. A node that is not
//!    there at the beginning is a failure, as of each command.
//!
//! Not here: the events themselves (docs/watch.md).
//! See: docs/cli.md.

use crate::cli::WatchArgs;
use crate::client::retry::pause;
use crate::client::{BodyPiece, Client, HttpRequest, Stream, Trouble};
use crate::console::{Console, show_key};
use crate::encoding::{Encoding, take_json};
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops::{self, Query};
use crate::output;
use bytes::{Bytes, BytesMut};
use dendra_base::Prng;
use dendra_wire::meta::MetaBuf;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value};
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Events that no command is run for tell nothing of a key.
const OF_KEYS: [&str; 3] = ["put", "delete", "expire"];

/// What an event says, as far as this command needs it.
struct SeenEvent {
    kind: String,
    token: Option<String>,
    object: Map<String, Value>,
}

/// Why the stream is over, and the watch goes on behind it.
struct Broken {
    why: String,
    retry_after: Option<Duration>,
}

/// One `dendra watch`.
struct WatchRun<'a> {
    client: Client,
    range: Query,
    shows_values: bool,
    exec: Option<&'a OsStr>,
    encoding: Encoding,
    /// Where the next request begins.
    from: Option<String>,
    /// A watch was open.
    was_open: bool,
    /// Requests since the last event.
    tries: u32,
}

/// `dendra watch`
pub(crate) async fn watch(args: &WatchArgs, console: Console) -> ExitResult {
    let encoding = args.client.encoding();
    let mut range = Query::default();
    let mut add = |name: &str, given: &Option<OsString>| -> Result<(), Failure> {
        if let Some(text) = given {
            range.add(name, &ops::key_bytes(&format!("--{name}"), text, encoding)?);
        }
        Ok(())
    };
    add("id", &args.id)?;
    add("prefix", &args.prefix)?;
    add("start", &args.start)?;
    add("end", &args.end)?;
    let mut run = WatchRun {
        client: ops::client(&args.client, console)?,
        range,
        shows_values: !args.no_values,
        exec: args.exec.as_deref(),
        encoding,
        from: args.from.clone(),
        was_open: false,
        tries: 0,
    };
    let mut chance = Prng::named(u64::from(std::process::id()), "watch");
    loop {
        let broken = match run.follow(console).await {
            Ok(broken) => broken,
            Err(failure) => return Err(failure),
        };
        run.tries += 1;
        let rest = pause(run.tries, broken.retry_after, chance.unit());
        let place = run.client.place();
        console.detail(|| format!("{place}: {}; again in {rest:?}", broken.why));
        tokio::time::sleep(rest).await;
    }
}

impl WatchRun<'_> {
    fn request(&self) -> HttpRequest {
        let mut query = self.range.clone();
        if let Some(from) = &self.from {
            query.add("from", from.as_bytes());
        }
        if !self.shows_values {
            query.add("values", b"false");
        }
        HttpRequest {
            meta: MetaBuf::default(),
            method: Method::GET,
            path: query.behind("/v0/watch"),
            headers: vec![("accept", "application/x-ndjson".to_owned())],
            body: Bytes::new(),
        }
    }

    /// One request, to its end. `Err` where another one would not help.
    async fn follow(&mut self, console: Console) -> Result<Broken, Failure> {
        let stream = match self.client.stream(&self.request()).await {
            Ok(stream) => stream,
            Err(trouble) => return self.unanswered(&trouble),
        };
        if stream.head.status != StatusCode::OK {
            let answer = match stream.into_answer().await {
                Ok(answer) => answer,
                Err(trouble) => return self.unanswered(&trouble),
            };
            let failure = answer.failure("watch");
            if self.was_open && failure.exit == Exit::UNAVAILABLE {
                return Ok(Broken {
                    why: failure.sentence,
                    retry_after: answer.retry_after(),
                });
            }
            return Err(failure);
        }
        self.was_open = true;
        self.read(stream, console).await
    }

    fn unanswered(&self, trouble: &Trouble) -> Result<Broken, Failure> {
        let failure = trouble.failure(self.client.place());
        if !self.was_open || failure.exit != Exit::UNAVAILABLE {
            return Err(failure);
        }
        Ok(Broken {
            why: failure.sentence,
            retry_after: None,
        })
    }

    /// Takes line after line until the stream ends.
    async fn read(&mut self, mut stream: Stream, console: Console) -> Result<Broken, Failure> {
        let mut waiting = BytesMut::new();
        let mut searched = 0;
        loop {
            let data = match stream.next().await {
                Ok(Some(BodyPiece::Data(data))) => data,
                Ok(Some(BodyPiece::Trailers(_))) => continue,
                Ok(None) => {
                    return Ok(Broken {
                        why: "the watch ended".to_owned(),
                        retry_after: None,
                    });
                }
                Err(trouble) => return self.unanswered(&trouble),
            };
            waiting.extend_from_slice(&data);
            while let Some(at) = waiting[searched..].iter().position(|&b| b == b'\n') {
                let line = waiting.split_to(searched + at + 1);
                searched = 0;
                self.take(&line, console)?;
            }
            searched = waiting.len();
        }
    }

    fn take(&mut self, line: &[u8], console: Console) -> Result<(), Failure> {
        let event = seen_in(line).ok_or_else(|| {
            let place = self.client.place();
            let sentence = format!("{place}: what answers there tells no events; see --url");
            Failure::new(Exit::FAILURE, sentence)
        })?;
        self.tries = 0;
        match event.kind.as_str() {
            "heartbeat" => {}
            "end" => {
                let text = |name: &str| event.object.get(name).and_then(Value::as_str);
                let reason = text("reason").unwrap_or("no reason");
                let message = text("message").unwrap_or_default();
                console.note(&format!("the node ended the watch, {reason}: {message}"));
            }
            kind if self.exec.is_none() => {
                if kind == "reset" {
                    self.from = None;
                }
                output::print(line)?;
            }
            "reset" => self.from = None,
            kind if OF_KEYS.contains(&kind) => self.run(&event)?,
            _ => {}
        }
        if event.token.is_some() {
            self.from = event.token;
        }
        Ok(())
    }

    /// Runs the command for an event, to its end.
    fn run(&self, event: &SeenEvent) -> Result<(), Failure> {
        let Some(exec) = self.exec else { return Ok(()) };
        let mut object = event.object.clone();
        let mut bytes = |name: &str| {
            take_json(&mut object, name)
                .map_err(|why| Failure::new(Exit::FAILURE, format!("an event {why}")))
        };
        let key = bytes("key")?;
        let value = match event.kind.as_str() {
            "put" if self.shows_values => bytes("value")?,
            _ => Vec::new(),
        };
        let version = event.object.get("version").and_then(Value::as_str);
        let shown = self.encoding.encode(&key);
        let failed = |why: String, exit: Exit| {
            let name = show_key(&key);
            let again = match &self.from {
                Some(token) => format!("; it goes on with --from {token}"),
                None => String::new(),
            };
            let kind = &event.kind;
            let sentence = format!("the command for {kind} of {name} {why}{again}");
            Failure::new(exit, sentence)
        };
        if shown.contains(&0) {
            let why = "cannot have its key, which has a byte 0: take --hex or --base64";
            return Err(failed(why.to_owned(), Exit::USAGE));
        }
        let child = Command::new("sh")
            .arg("-c")
            .arg(exec)
            .env("DENDRA_EVENT", &event.kind)
            .env("DENDRA_KEY", OsStr::from_bytes(&shown))
            .env("DENDRA_VERSION", version.unwrap_or_default())
            .stdin(Stdio::piped())
            .spawn();
        let no_start = |e: std::io::Error| failed(format!("was not run ({e})"), Exit::FAILURE);
        let mut child = child.map_err(no_start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command need not read the value.
            match stdin.write_all(&value) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(no_start(error)),
                _ => {}
            }
        }
        let status = child.wait().map_err(no_start)?;
        if status.success() {
            Ok(())
        } else {
            Err(failed(format!("failed ({status})"), Exit::of(status)))
        }
    }
}

/// Reads a line of the stream; `None` = it is no event.
fn seen_in(line: &[u8]) -> Option<SeenEvent> {
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else {
        return None;
    };
    let text = |name: &str| Some(object.get(name)?.as_str()?.to_owned());
    Some(SeenEvent {
        kind: text("event")?,
        token: text("token"),
        object,
    })
}
