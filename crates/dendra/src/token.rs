//! `dendra token`: the tokens of a cluster, made here and known there by their hashes.
//!
//! ```text
//! root    256 random bits ─► a file
//! create  GET /v0/tokens ─► the table and one line more ─► PUT, If-Match ─► the token, on stdout or in a file;
//!         or rights for the name in a certificate, and no token
//! revoke  the same with one line less                 412: another one was faster, from the start
//! ```
//!
//! Invariants
//! 1. A token is made here and leaves this machine only in requests of its holder: the cluster gets
//!    its hash.
//! 2. A change is made on the table that was read, or not at all.
//! 3. A file of a token has mode 0600 from its first byte on, and is made before the cluster knows
//!    the token.
//! 4. A change ends when every node that reaches the table has it in force: the next command may
//!    rely on it.
//!
//! Not here: the form of the table (crate `wire`, `rights.rs`).
//! See: docs/cli.md, section "Tokens"; docs/api.md, section "Tokens".

use crate::cli::{self, RoleName, TokenVerb};
use crate::client::{Client, HttpRequest, WholeAnswer};
use crate::console::{Console, show_key};
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use crate::output;
use base64::Engine;
use bytes::Bytes;
use dendra_server::limits::{TOKENS_DEADLINE, TOKENS_LOOK};
use dendra_wire::meta::MetaBuf;
use dendra_wire::rights::{Grant, Holder, Quota, TOKEN_MARK, TokenRole, TokenTable, hash_of};
use hyper::Method;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Others that change the table at the same moment.
const TRIES_MAX: usize = 16;
/// After this time a change is in force on every node.
const IN_FORCE: Duration = Duration::from_secs(1);
const _: () = assert!(
    (TOKENS_LOOK.as_millis() + TOKENS_DEADLINE.as_millis()) < IN_FORCE.as_millis(),
    "a node looks, and has an answer, within that time"
);

/// `dendra token`
pub(crate) async fn token(verb: &TokenVerb, console: Console) -> ExitResult {
    match verb {
        TokenVerb::Root { file } => {
            write(file, &fresh()?)?;
            console.note(&format!(
                "the root token is in {}: give it to every node with --root-token-file",
                file.display()
            ));
            Ok(Exit::OK)
        }
        TokenVerb::Create {
            id,
            role,
            prefix,
            out,
            certificate,
            quota,
            client,
        } => {
            let role = match role {
                RoleName::Metrics => TokenRole::Metrics,
                RoleName::Read => TokenRole::Read,
                RoleName::Write => TokenRole::Write,
                RoleName::Admin => TokenRole::Admin,
            };
            let prefix = match prefix {
                None => Vec::new(),
                Some(text) => ops::key_bytes("--prefix", text.as_os_str(), client.encoding())?,
            };
            if out.is_none() && certificate.is_none() {
                // Before the cluster knows it: it is shown once.
                drop(output::stdout()?);
            }
            let token = fresh()?;
            let hash = hash_of(token.as_bytes()).expect("it was made in this form");
            let mut grant = Grant::of_token(id, role, &prefix, hash);
            if let Some(name) = certificate {
                grant.holder = Holder::Certificate(name.clone());
            }
            grant.quota = Quota {
                requests_per_second: quota.requests_per_second,
                bytes_per_second: quota.bytes_per_second,
                stored_bytes: quota.stored_bytes,
            };
            if let Some(path) = out {
                write(path, &token)?;
            }
            let changed = change(client, console, |table| {
                table.with(grant.clone()).map_err(Failure::usage)
            });
            if let Err(failure) = changed.await {
                // A token that the cluster does not know is of no use; where it may know it, the
                // file stays.
                if failure.exit == Exit::USAGE
                    && let Some(path) = out
                    && let Err(error) = std::fs::remove_file(path)
                {
                    console.note(&format!("{} stays ({error})", path.display()));
                }
                return Err(failure);
            }
            match (out, certificate) {
                (Some(path), _) => {
                    console.note(&format!("the token {id} is in {}", path.display()));
                    Ok(Exit::OK)
                }
                (None, Some(name)) => {
                    console.note(&format!(
                        "{id}: clients that show a certificate with the name {name} have these rights, on every node that reaches the others"
                    ));
                    Ok(Exit::OK)
                }
                (None, None) => ops::print(format!("{token}\n").as_bytes()).map(|()| Exit::OK),
            }
        }
        TokenVerb::List { client } => {
            let (table, _) = read(&ops::client(client, console)?).await?;
            let mut text = String::new();
            for grant in table.by_id() {
                text.push_str(&format!("{}\t{}", grant.id, grant.role.as_str()));
                if !grant.prefix.is_empty() {
                    text.push_str(&format!("\t{}", show_key(&grant.prefix)));
                }
                text.push_str(&more_of(grant));
                text.push('\n');
            }
            ops::print(text.as_bytes()).map(|()| Exit::OK)
        }
        TokenVerb::Revoke { id, client } => {
            change(client, console, |table| {
                let none = || Failure::new(Exit::NOT_FOUND, format!("there is no token {id}"));
                table.without(id).ok_or_else(none)
            })
            .await?;
            console.note(&format!(
                "the token {id} is revoked, on every node that reaches the others"
            ));
            Ok(Exit::OK)
        }
    }
}

/// The parts of a line of the list besides name, role and prefix.
fn more_of(grant: &Grant) -> String {
    let mut text = String::new();
    if let Holder::Certificate(name) = &grant.holder {
        text.push_str(&format!("\tcertificate={name}"));
    }
    let Quota {
        requests_per_second,
        bytes_per_second,
        stored_bytes,
    } = grant.quota;
    for (name, limit) in [
        ("requests-per-second", requests_per_second),
        ("bytes-per-second", bytes_per_second),
        ("stored-bytes", stored_bytes),
    ] {
        if let Some(limit) = limit {
            text.push_str(&format!("\t{name}={limit}"));
        }
    }
    text
}

/// A new token.
fn fresh() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let flags = rustix::rand::GetRandomFlags::empty();
    let filled = rustix::rand::getrandom(&mut bytes, flags);
    if filled != Ok(bytes.len()) {
        return Err(Failure::new(
            Exit::FAILURE,
            format!("the system gives no randomness ({filled:?})"),
        ));
    }
    let secret = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    Ok(format!("{TOKEN_MARK}{secret}"))
}

fn write(path: &Path, token: &str) -> Result<(), Failure> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(format!("{token}\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::usage(format!(
            "{} is there already, and a token is never overwritten: name another file",
            path.display()
        )),
        _ => Failure::output(&path.display().to_string(), &error),
    })
}

fn ask(method: Method, headers: Vec<(&'static str, String)>, body: Bytes) -> HttpRequest {
    HttpRequest {
        meta: MetaBuf::default(),
        method,
        path: "/v0/tokens".to_owned(),
        headers,
        body,
    }
}

async fn send(client: &Client, ask: &HttpRequest) -> Result<WholeAnswer, Failure> {
    let sent = client.send(ask).await;
    sent.map_err(|trouble| trouble.failure(client.place()))
}

/// The table, and the condition under which it is replaced.
async fn read(client: &Client) -> Result<(TokenTable, (&'static str, String)), Failure> {
    let answer = send(client, &ask(Method::GET, Vec::new(), Bytes::new())).await?;
    match answer.status.as_u16() {
        200 => {
            let table = TokenTable::parse(&answer.body);
            let table = table.map_err(|sentence| Failure::new(Exit::FAILURE, sentence))?;
            let tag = answer.header("etag").unwrap_or_default().to_owned();
            Ok((table, ("if-match", tag)))
        }
        404 => Ok((TokenTable::default(), ("if-none-match", "*".to_owned()))),
        _ => Err(answer.failure("the tokens")),
    }
}

async fn change(
    flags: &cli::ClientArgs,
    console: Console,
    how: impl Fn(&TokenTable) -> Result<TokenTable, Failure>,
) -> Result<(), Failure> {
    let client = ops::client(flags, console)?;
    for _ in 0..TRIES_MAX {
        let (table, condition) = read(&client).await?;
        let text = how(&table)?.to_text();
        let put = ask(Method::PUT, vec![condition], Bytes::from(text));
        let answer = send(&client, &put).await?;
        match answer.status.as_u16() {
            201 => {
                tokio::time::sleep(IN_FORCE).await;
                return Ok(());
            }
            412 => {}
            _ => return Err(answer.failure("the tokens")),
        }
    }
    Err(Failure::new(
        Exit::UNAVAILABLE,
        "others change the tokens all the time: try again",
    ))
}
