//! A bucket of S3-compatible storage: `s3://BUCKET/PREFIX`.
//!
//! ```text
//! AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_CA_BUNDLE
//! PREFIX/locks/shared-<random>, alone-<random>     this place is in use; put again every minute
//! ```
//!
//! A bucket has no locks. So a use puts its own name first, and lists the others' afterwards. Of
//! two that exclude each other at least one sees the other, and gives way. A name that was not put
//! again for ten minutes, by the clock of the storage, is of a process that died. Those that it
//! would exclude remove it. So a process that was only paused finds its name gone. A backup asks
//! for it before its manifest, and prune again and again while it removes.
//!
//! Invariants
//! 1. A file is put by one request, with the SHA-256 of its bytes: the storage refuses other bytes.
//! 2. An answer to a read has the length that was asked for; its checksums tell whether its bytes
//!    are right.
//! 3. No secret comes from a flag.
//!
//! Not here: requests (`client.rs`), signatures (`sign.rs`).
//! See: docs/operating.md, "Backups".

mod client;
mod sign;

use super::shelf::{BackupPlace, FileDraft, MARK, RepositoryUse, StoredBytes, StoredName};
use super::shelf::{in_use, no_repository};
use crate::backup::key;
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use client::{S3Answer, S3Ask, S3Client, Sent};
use sign::{SigningKey, sha256, sha256_of};
use std::io::{self, Seek};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const SCHEME: &str = "s3://";
/// How often a use puts its name again.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// A use that was not put again for so long is over.
const DEAD_AFTER_S: i64 = 600;
/// Bytes that are fetched at once, at least: a reader goes forward.
const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes that are fetched in front of the end: index and footer come together.
const TAIL_BYTES: u64 = 64 << 10;

/// See the module; in use until it is dropped.
#[derive(Debug)]
pub(crate) struct S3Place {
    bucket: Bucket,
    in_use: Option<InUse>,
}

/// A part of a bucket.
#[derive(Clone, Debug)]
struct Bucket {
    client: S3Client,
    /// For messages.
    name: String,
    /// With a slash at its end, unless it is empty.
    prefix: String,
}

/// Is this the name of such a place?
pub(crate) fn is_s3(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(SCHEME))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Bucket {
    fn of(path: &Path) -> Result<Bucket, Failure> {
        let name = path.display().to_string();
        let rest = name.strip_prefix(SCHEME).unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        let is_plain = |text: &str, more: &str| {
            let mut bytes = text.bytes();
            bytes.all(|b| b.is_ascii_alphanumeric() || more.as_bytes().contains(&b))
        };
        if bucket.is_empty() || !is_plain(bucket, ".-_") || !is_plain(prefix, "/.-_") {
            return Err(Failure::usage(format!(
                "{name} names no bucket: write it as s3://BUCKET/PREFIX, of letters, digits, and . - _"
            )));
        }
        let region = variable("AWS_REGION").unwrap_or_else(|| "us-east-1".to_owned());
        let endpoint = variable("AWS_ENDPOINT_URL")
            .unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let needed = |variable_name: &str| {
            variable(variable_name).ok_or_else(|| {
                Failure::usage(format!(
                    "{variable_name} is not set: object storage needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                ))
            })
        };
        let key = SigningKey {
            id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            session: variable("AWS_SESSION_TOKEN"),
            region,
        };
        Ok(Bucket {
            client: S3Client::start(&endpoint, bucket.to_owned(), key)?,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            name,
        })
    }

    fn ask(&self, method: &'static str, name: &str) -> S3Ask {
        S3Ask {
            method,
            name: format!("{}{name}", self.prefix),
            query: Vec::new(),
            range: None,
            body: Sent::Nothing,
            hash: sha256(b""),
        }
    }

    /// The answer, if its status is one of these.
    fn get(&self, ask: S3Ask, wanted: &[u16]) -> io::Result<S3Answer> {
        let name = ask.name.clone();
        let answer = self.client.ask(ask)?;
        if wanted.contains(&answer.status) {
            Ok(answer)
        } else {
            Err(refusal(&name, &answer))
        }
    }

    fn put(&self, name: &str, body: Sent, hash: String) -> io::Result<()> {
        let ask = S3Ask {
            body,
            hash,
            ..self.ask("PUT", name)
        };
        self.get(ask, &[200]).map(|_| ())
    }

    fn put_bytes(&self, name: &str, bytes: &'static [u8]) -> io::Result<()> {
        self.put(name, Sent::Bytes(Bytes::from_static(bytes)), sha256(bytes))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let gone = self.get(self.ask("DELETE", name), &[200, 204]);
        gone.map(|_| ())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let answer = self.get(self.ask("HEAD", name), &[200])?;
        let length = answer.headers.get("content-length");
        let length = length.and_then(|it| it.to_str().ok()?.parse().ok());
        length.ok_or_else(|| io::Error::other(format!("{name}: the storage tells no length")))
    }

    /// All names below `folder`, with their lengths and ages in seconds.
    fn listed(&self, folder: &str) -> io::Result<Vec<(StoredName, i64)>> {
        let (mut found, mut token) = (Vec::new(), None);
        loop {
            let mut ask = self.ask("GET", "");
            ask.name = String::new();
            if let Some(token) = token.take() {
                ask.query.push(("continuation-token", token));
            }
            ask.query.push(("list-type", "2".to_owned()));
            ask.query
                .push(("prefix", format!("{}{folder}/", self.prefix)));
            let answer = self.get(ask, &[200])?;
            let date = answer.headers.get("date").and_then(|it| it.to_str().ok());
            let now = date.and_then(|it| jiff::fmt::rfc2822::parse(it).ok());
            let now = now.map(|it| it.timestamp());
            let page = String::from_utf8_lossy(&answer.body);
            // Of a list that is cut, files look as if they were not there, and prune trusts it.
            let is_list =
                page.contains("<ListBucketResult") && page.contains("</ListBucketResult>");
            if !is_list {
                return Err(io::Error::other(
                    "the storage answered a list with something else",
                ));
            }
            for part in page.split("<Contents>").skip(1) {
                let strange = || io::Error::other("the storage lists files in a strange shape");
                let key = element(part, "Key").ok_or_else(strange)?;
                let size = element(part, "Size").and_then(|it| it.parse().ok());
                let changed = element(part, "LastModified");
                let changed: Option<jiff::Timestamp> = changed.and_then(|it| it.parse().ok());
                let age = match (now, changed) {
                    (Some(now), Some(changed)) => now.as_second() - changed.as_second(),
                    _ => 0,
                };
                let name = key.strip_prefix(&self.prefix).ok_or_else(strange)?;
                let bytes = size.ok_or_else(strange)?;
                let name = name.to_owned();
                found.push((StoredName { name, bytes }, age));
            }
            token = element(&page, "NextContinuationToken");
            let is_cut = element(&page, "IsTruncated").is_some_and(|it| it == "true");
            match &token {
                None if is_cut => {
                    let sentence = "the storage cut a list, and does not say how it goes on";
                    return Err(io::Error::other(sentence));
                }
                None => return Ok(found),
                Some(_) => {}
            }
        }
    }
}

/// The text of the first element of this name.
fn element(page: &str, name: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let mut plain = text.to_owned();
    for (escape, is) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ] {
        plain = plain.replace(escape, is);
    }
    Some(plain)
}

fn refusal(name: &str, answer: &S3Answer) -> io::Error {
    let page = String::from_utf8_lossy(&answer.body);
    let code = element(&page, "Code").unwrap_or_default();
    let message = element(&page, "Message").unwrap_or_default();
    let kind = match (answer.status, code.as_str()) {
        (404, _) => io::ErrorKind::NotFound,
        (403, _) => io::ErrorKind::PermissionDenied,
        (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    let status = answer.status;
    io::Error::new(
        kind,
        format!("{name}: the storage answered {status} {code} {message}"),
    )
}

impl S3Place {
    /// Is there a repository?
    pub(crate) fn is_there(path: &Path) -> Result<bool, Failure> {
        let bucket = Bucket::of(path)?;
        match bucket.length(MARK) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Failure::new(Exit::FAILURE, format!("{}: {e}", bucket.name))),
        }
    }

    /// A place without a repository. It is not in use yet.
    pub(crate) fn found(path: &Path) -> Result<S3Place, Failure> {
        Ok(S3Place {
            bucket: Bucket::of(path)?,
            in_use: None,
        })
    }

    /// The repository at `path`, in use.
    pub(crate) fn open(path: &Path, share: RepositoryUse) -> Result<S3Place, Failure> {
        let mut place = S3Place::found(path)?;
        let name = place.name();
        if !S3Place::is_there(path)? {
            return Err(no_repository(&name));
        }
        place.in_use = InUse::begin(&place.bucket, share)?;
        Ok(place)
    }
}

/// A name that says that the place is in use, put again by a thread until it is dropped.
#[derive(Debug)]
struct InUse {
    name: String,
    bucket: Bucket,
    stop: Option<SyncSender<()>>,
    beating: Option<JoinHandle<()>>,
}

impl InUse {
    /// `None`: the credentials may not write, so that other commands do not see this reader.
    fn begin(bucket: &Bucket, share: RepositoryUse) -> Result<Option<InUse>, Failure> {
        let failed = |e: io::Error| Failure::new(Exit::FAILURE, format!("{}: {e}", bucket.name));
        let random = u64::from_le_bytes(key::random()?);
        let kind = match share {
            RepositoryUse::Read | RepositoryUse::Shared => "shared",
            RepositoryUse::Alone => "alone",
        };
        let name = format!("locks/{kind}-{random:016x}");
        match bucket.put_bytes(&name, b"in use\n") {
            Err(e)
                if share == RepositoryUse::Read && e.kind() == io::ErrorKind::PermissionDenied =>
            {
                return InUse::give_way(bucket, share, "").map(|()| None);
            }
            put => put.map_err(failed)?,
        }
        let (stop, stopped) = std::sync::mpsc::sync_channel(1);
        let mut in_use_now = InUse {
            name: name.clone(),
            bucket: bucket.clone(),
            stop: Some(stop),
            beating: None,
        };
        InUse::give_way(bucket, share, &name)?;
        let beating = bucket.clone();
        let spawned = std::thread::Builder::new()
            .name("in use".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                    // One that was taken for dead must not come back. It is looked at before it is
                    // put again, and the backup looks at it before its manifest.
                    if beating.length(&name).is_ok() {
                        drop(beating.put_bytes(&name, b"in use\n"));
                    }
                }
            });
        in_use_now.beating = Some(spawned.map_err(failed)?);
        Ok(Some(in_use_now))
    }

    /// Refuses beside a living use that this one excludes, and removes the names of dead ones.
    fn give_way(bucket: &Bucket, share: RepositoryUse, own: &str) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::new(Exit::FAILURE, format!("{}: {e}", bucket.name));
        for (other, age) in bucket.listed("locks").map_err(failed)? {
            let excludes = share == RepositoryUse::Alone || other.name.starts_with("locks/alone-");
            if other.name == own || !excludes {
                continue;
            }
            if age < DEAD_AFTER_S {
                return Err(Failure::new(Exit::UNAVAILABLE, in_use(&bucket.name, share)));
            }
            match bucket.remove(&other.name) {
                // A reader changes no file that another one relies on.
                Err(e)
                    if share == RepositoryUse::Read
                        && e.kind() == io::ErrorKind::PermissionDenied => {}
                removed => removed.map_err(failed)?,
            }
        }
        Ok(())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(beating) = self.beating.take() {
            // It panics never.
            drop(beating.join());
        }
        // A name that stays counts for ten minutes.
        drop(self.bucket.remove(&self.name));
    }
}

/// A file of the bucket.
struct S3File {
    bucket: Bucket,
    name: String,
    length: u64,
    /// The bytes that were fetched last, and where they begin.
    window: Mutex<(u64, Bytes)>,
}

impl StoredBytes for S3File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        if end > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if buf.is_empty() {
            return Ok(());
        }
        let mut window = self.window.lock().expect("no holder panics");
        let (held_from, held) = &*window;
        if offset < *held_from || end > held_from + held.len() as u64 {
            let from = offset.min(if end == self.length {
                self.length.saturating_sub(TAIL_BYTES)
            } else {
                offset
            });
            let to = end.max(from + WINDOW_BYTES).min(self.length);
            let ask = S3Ask {
                range: Some((from, to)),
                ..self.bucket.ask("GET", &self.name)
            };
            let answer = self.bucket.get(ask, &[206])?;
            if answer.body.len() as u64 != to - from {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "the storage gave {} bytes for the {} from {from} on",
                        answer.body.len(),
                        to - from
                    ),
                ));
            }
            *window = (from, answer.body);
        }
        let (begins, bytes) = &*window;
        let at = (offset - begins) as usize;
        buf.copy_from_slice(&bytes[at..at + buf.len()]);
        Ok(())
    }
}

impl BackupPlace for S3Place {
    fn name(&self) -> String {
        self.bucket.name.clone()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredBytes>> {
        Ok(Box::new(S3File {
            length: self.bucket.length(name)?,
            bucket: self.bucket.clone(),
            name: name.to_owned(),
            window: Mutex::default(),
        }))
    }

    fn draft(&self) -> io::Result<FileDraft> {
        FileDraft::unnamed(&std::env::temp_dir(), "dendra-backup")
    }

    fn publish(&self, draft: FileDraft, name: &str) -> io::Result<()> {
        let mut file = draft.file.try_clone()?;
        file.rewind()?;
        let hash = sha256_of(&file)?;
        let length = file.metadata()?.len();
        self.bucket
            .put(name, Sent::File(Arc::new(file), length), hash)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<StoredName>> {
        let listed = self.bucket.listed(folder)?.into_iter();
        Ok(listed.map(|(stored, _)| stored).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.bucket.remove(name)
    }

    fn tidy(&self) -> io::Result<()> {
        // Names of uses that died went when this one began.
        Ok(())
    }

    fn check_use(&self) -> io::Result<()> {
        let Some(in_use) = &self.in_use else {
            return Ok(());
        };
        match self.bucket.length(&in_use.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::Error::other(
                "this command was taken for dead, and others may have changed the files there",
            )),
            looked => looked.map(|_| ()),
        }
    }
}
