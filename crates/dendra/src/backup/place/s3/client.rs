//! Requests to S3-compatible storage, from a thread of its own: callers may wait.
//!
//! ```text
//! ask ─► job ─► thread with its runtime: connect, sign, send, read ─► answer
//!                  └─ 5xx, 429, or no answer: again, 100 ms doubling, TRIES in all
//! ```
//!
//! Invariants
//! 1. All that is asked can be asked again: names are of content, and a file is put as a whole.
//! 2. No event loop of a node runs here: the thread belongs to the place.
//!
//! Not here: signatures (`sign.rs`), the meaning of answers (`mod.rs`).

use super::sign::{Signed, SigningKey, encode, query};
use crate::client::BaseUrl;
use crate::exit::Failure;
use bytes::Bytes;
use dendra_server::tls::{ByteStream, TlsClient, server_name};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);
/// A connection, and the head of an answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A whole request, its body included.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Each caller waits for its answer, and a runtime has at most 512 threads that may wait.
const JOBS_WAITING: usize = 1_024;
const ANSWER_BYTES_MAX: usize = 16 << 20;
const PART_BYTES: usize = 256 << 10;
/// Where systems keep the CAs that all programs trust.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The body that is sent.
#[derive(Clone)]
pub(super) enum Sent {
    Nothing,
    Bytes(Bytes),
    File(Arc<File>, u64),
}

/// One request.
#[derive(Clone)]
pub(super) struct S3Ask {
    pub(super) method: &'static str,
    /// After the bucket; empty = the bucket itself.
    pub(super) name: String,
    /// In the order of their names.
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) range: Option<(u64, u64)>,
    pub(super) body: Sent,
    pub(super) hash: String,
}

/// One answer.
pub(super) struct S3Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

struct S3Job {
    ask: S3Ask,
    answer: SyncSender<io::Result<S3Answer>>,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(super) struct S3Client {
    jobs: mpsc::Sender<S3Job>,
}

/// The state that the thread needs.
struct S3Desk {
    base: BaseUrl,
    bucket: String,
    key: SigningKey,
    tls: Option<TlsClient>,
    idle: RefCell<Vec<SendRequest<SentBody>>>,
}

impl S3Client {
    /// Client of a bucket at an endpoint.
    pub(super) fn start(
        endpoint: &str,
        bucket: String,
        key: SigningKey,
    ) -> Result<S3Client, Failure> {
        let base = BaseUrl::parse(endpoint)
            .map_err(|why| Failure::usage(format!("AWS_ENDPOINT_URL: {why}")))?;
        let tls = if base.is_tls() {
            Some(trusted()?)
        } else {
            None
        };
        let desk = S3Desk {
            base,
            bucket,
            key,
            tls,
            idle: RefCell::default(),
        };
        let (jobs, arriving) = mpsc::channel(JOBS_WAITING);
        let spawned = std::thread::Builder::new()
            .name("object storage".to_owned())
            .spawn(move || run(desk, arriving));
        spawned.map_err(|e| Failure::usage(format!("no thread for object storage: {e}")))?;
        Ok(S3Client { jobs })
    }

    /// Waits for the answer.
    pub(super) fn ask(&self, ask: S3Ask) -> io::Result<S3Answer> {
        let (answer, arrived) = std::sync::mpsc::sync_channel(1);
        let job = S3Job { ask, answer };
        let gone =
            || io::Error::other("the thread for object storage is gone, or has too much to do");
        self.jobs.try_send(job).map_err(|_| gone())?;
        arrived.recv().map_err(|_| gone())?
    }
}

/// The CAs that the system trusts, or those of `AWS_CA_BUNDLE`.
fn trusted() -> Result<TlsClient, Failure> {
    let named = std::env::var("AWS_CA_BUNDLE").ok();
    let bundle = match &named {
        Some(named) => Path::new(named),
        None => {
            let mut known = BUNDLES.iter().map(Path::new);
            known.find(|path| path.is_file()).ok_or_else(|| {
                Failure::usage("no list of CAs is on this machine: name one with AWS_CA_BUNDLE")
            })?
        }
    };
    TlsClient::read(bundle, None).map_err(Failure::usage)
}

fn run(desk: S3Desk, mut arriving: mpsc::Receiver<S3Job>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        // The callers hear that the thread is gone.
        return;
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let desk = Rc::new(desk);
        while let Some(job) = arriving.recv().await {
            let desk = Rc::clone(&desk);
            tokio::task::spawn_local(async move {
                let answer = desk.carry_out(&job.ask).await;
                // A caller that has gone wants no answer.
                drop(job.answer.send(answer));
            });
        }
    });
}

impl S3Desk {
    async fn carry_out(&self, ask: &S3Ask) -> io::Result<S3Answer> {
        let mut pause = PAUSE;
        for tries in 1.. {
            let asked = tokio::time::timeout(TIMEOUT, self.exchange(ask)).await;
            let asked = asked.unwrap_or_else(|_| Err("no answer in 10 minutes".to_owned()));
            let place = self.base.authority();
            let why = match asked {
                Ok(answer) if !matches!(answer.status, 429 | 500..=599) => return Ok(answer),
                Ok(answer) if tries == TRIES => return Ok(answer),
                Ok(answer) => format!("{place} answered {}", answer.status),
                Err(why) => format!("{place}: {why}"),
            };
            if tries == TRIES {
                return Err(io::Error::other(why));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last try returns")
    }

    async fn exchange(&self, ask: &S3Ask) -> Result<S3Answer, String> {
        let kept = self.idle.borrow_mut().pop();
        let mut connection = match kept {
            Some(kept) if !kept.is_closed() => kept,
            _ => {
                let connecting = tokio::time::timeout(HEAD_TIMEOUT, self.connect()).await;
                connecting.map_err(|_| "no connection in 30 s".to_owned())??
            }
        };
        connection.ready().await.map_err(|e| e.to_string())?;
        let answer = connection.send_request(self.request(ask)?).await;
        let (head, body) = answer.map_err(|e| e.to_string())?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body
            .map_err(|e| format!("the answer was cut ({e})"))?
            .to_bytes();
        if !connection.is_closed() {
            self.idle.borrow_mut().push(connection);
        }
        Ok(S3Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        })
    }

    async fn connect(&self) -> Result<SendRequest<SentBody>, String> {
        let place = (self.base.host(), self.base.port());
        let socket = TcpStream::connect(place).await.map_err(|e| e.to_string())?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let stream = match &self.tls {
            None => ByteStream::Clear(socket),
            Some(TlsClient(config, _)) => {
                let name = server_name(self.base.host())?;
                let sealed = ByteStream::connect(socket, Arc::clone(config), name).await;
                sealed.map_err(|e| format!("TLS: {e}"))?
            }
        };
        let made = http1::handshake(TokioIo::new(stream)).await;
        let (connection, driver) = made.map_err(|e| e.to_string())?;
        tokio::task::spawn_local(async move {
            // The same error reaches the request; an idle connection may just end.
            drop(driver.await);
        });
        Ok(connection)
    }

    fn request(&self, ask: &S3Ask) -> Result<Request<SentBody>, String> {
        let time = jiff::Timestamp::try_from(SystemTime::now()).map_err(|e| e.to_string())?;
        let time = time.strftime("%Y%m%dT%H%M%SZ").to_string();
        let slash = if ask.name.is_empty() { "" } else { "/" };
        let path = format!(
            "{}/{}{slash}{}",
            self.base.path(),
            self.bucket,
            encode(&ask.name, "/")
        );
        let pairs = ask
            .query
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let pairs: Vec<(&str, &str)> = pairs.collect();
        let uri = if pairs.is_empty() {
            path.clone()
        } else {
            format!("{path}?{}", query(&pairs))
        };
        let host = self.base.authority();
        let signed = self.key.headers(&Signed {
            method: ask.method,
            path: &path,
            query: &pairs,
            host,
            body: &ask.hash,
            time: &time,
        });
        let body = SentBody {
            sent: ask.body.clone(),
            at: 0,
        };
        let mut request = Request::builder()
            .method(ask.method)
            .uri(uri)
            .header("host", host)
            .header("user-agent", concat!("dendra/", env!("CARGO_PKG_VERSION")));
        for (name, value) in signed {
            request = request.header(name, value);
        }
        if let Some((from, to)) = ask.range {
            request = request.header("range", format!("bytes={from}-{}", to - 1));
        }
        request.body(body).map_err(|e| e.to_string())
    }
}

/// A body that is read while it is sent: a file does not have to fit in memory.
struct SentBody {
    sent: Sent,
    at: u64,
}

impl SentBody {
    fn len(&self) -> u64 {
        match &self.sent {
            Sent::Nothing => 0,
            Sent::Bytes(bytes) => bytes.len() as u64,
            Sent::File(_, length) => *length,
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let left = self.len() - self.at;
        if left == 0 {
            return Poll::Ready(None);
        }
        let part = match &self.sent {
            Sent::Nothing => Ok(Bytes::new()),
            Sent::Bytes(bytes) => Ok(bytes.slice(self.at as usize..)),
            Sent::File(file, _) => {
                let mut part = vec![0; left.min(PART_BYTES as u64) as usize];
                file.read_exact_at(&mut part, self.at)
                    .map(|()| Bytes::from(part))
            }
        };
        if let Ok(part) = &part {
            self.at += part.len() as u64;
        }
        Poll::Ready(Some(part.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() - self.at)
    }
}
