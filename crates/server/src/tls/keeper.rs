//! The configurations in force, and their renewal while the node runs.
//!
//! Invariants
//! 1. There is always a configuration of which every part was read whole and fits.
//! 2. A session that is open stays as it is; the next handshake uses the current files.
//! 3. A certificate that does not hold now never replaces one that does. One that will hold is read
//!    again when it does.
//! 4. A certificate that the other members would not take from this one never replaces one that
//!    they take. A list of revoked certificates comes into force, also where it has this node's
//!    own.
//!
//! Not here: reading the files (`files.rs`), when they are read again (`file_watch.rs`), the calls
//! of `look` (`clients/listener.rs`).
//! See: docs/operating.md, section "Certificates".

use super::faults::{link_fault, own_fault};
use super::file_watch::{FileLook, FileWatch};
use super::files::{self, Configs, FileTerm, LinkConfigs, OWN_FILE, server_name};
use super::stream::ByteStream;
use crate::border_watch::BorderWatch;
use crate::clock;
use crate::limits;
use crate::settings::TlsSettings;
use arc_swap::ArcSwap;
use dendra_wire::Refusal;
use dendra_wire::http::response::Style;
use rustls::ServerConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::UnixTime;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// How a record of a handshake begins, and no method of HTTP.
const HANDSHAKE: u8 = 0x16;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// With a handshake.
    Tls,
    /// With anything else.
    Clear,
}

/// 400: the port speaks TLS.
pub(crate) fn clear_text() -> Refusal {
    let sentence = "this port speaks TLS: say https:// and trust the CA of the node's certificate";
    Refusal::new(400, "tls-required", sentence).closing()
}

/// Writes the refusal, and reads at most `LINGER_BYTES_MAX` of the client's bytes after it: unread
/// ones make the system throw away the answer. Returns how many were read.
async fn say_clear_text(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> usize {
    let mut answer = Vec::new();
    dendra_wire::http::response::refusal(&mut answer, Style::CLOSING, &clear_text());
    drop(stream.write_all(&answer).await);
    drop(stream.shutdown().await);
    let (mut rest, mut read) = ([0; 4096], 0);
    while read < limits::LINGER_BYTES_MAX {
        match stream.read(&mut rest).await {
            Ok(n) if n > 0 => read += n,
            Ok(_) | Err(_) => break,
        }
    }
    read
}

/// Counters of the door.
#[derive(Debug, Default)]
pub(crate) struct TlsGauges {
    /// Sessions that were made.
    pub(crate) handshakes: AtomicU64,
    /// Handshakes that led to none.
    pub(crate) failed: AtomicU64,
    /// Connections that spoke clear text to a port of TLS.
    pub(crate) clear: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: TlsSettings,
    /// The host of this member's URL; `None` = other members never call it.
    member: Option<String>,
    configs: ArcSwap<Configs>,
    pub(crate) files: FileWatch,
    /// From when the certificate in the file holds, in seconds since 1970; 0 = none is waited for.
    holds_from_s: AtomicI64,
    /// When it was said last that a certificate ends soon.
    warned: Mutex<Option<Instant>>,
    watch: Arc<BorderWatch>,
    pub(crate) gauges: TlsGauges,
}

impl FileTerm {
    /// Whole days that are left of it.
    pub(crate) fn days_left(&self, now_s: i64) -> u64 {
        u64::try_from((self.until_s - now_s) / DAY_S).unwrap_or(0)
    }

    /// Is it time for another one? When a quarter is left of a short term, and a month of a long
    /// one.
    pub(crate) fn is_short(&self, now_s: i64) -> bool {
        self.until_s - now_s < ((self.until_s - self.from_s) / 4).min(30 * DAY_S)
    }
}

const DAY_S: i64 = 86_400;
/// Between two warnings that a certificate ends soon.
const WARN_EVERY: Duration = Duration::from_secs(DAY_S as u64);

impl Tls {
    /// Reads the files for the first time. `member`: the host of this member's URL.
    ///
    /// # Errors
    /// A sentence about the one that is of no use.
    pub(crate) fn new(
        settings: &TlsSettings,
        member: Option<String>,
        watch: Arc<BorderWatch>,
    ) -> Result<Tls, String> {
        let files = FileWatch::new("certificates and keys", settings.files());
        let tls = Tls {
            settings: settings.clone(),
            member,
            configs: ArcSwap::from_pointee(files::read(settings)?),
            files,
            holds_from_s: AtomicI64::new(0),
            warned: Mutex::new(None),
            watch,
            gauges: TlsGauges::default(),
        };
        tls.warn_of_begin((clock::wall_ms() / 1_000) as i64);
        Ok(tls)
    }

    /// May clients and members still come in clear?
    pub(crate) fn takes_clear(&self) -> bool {
        self.settings.change_over
    }

    /// Waits for the first byte of a connection: does it begin with a handshake?
    ///
    /// # Errors
    /// The other side went away.
    pub(crate) async fn first_of(&self, tcp: &TcpStream) -> io::Result<Opening> {
        let mut first = [0];
        let n = poll_fn(|cx| tcp.poll_peek(cx, &mut ReadBuf::new(&mut first))).await?;
        match (n, first) {
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (_, [HANDSHAKE]) => Ok(Opening::Tls),
            (_, [_]) => Ok(Opening::Clear),
        }
    }

    /// The session of a client of the data port that begins one. The socket comes back when there
    /// is none.
    ///
    /// # Errors
    /// It speaks another TLS, shows no certificate that is asked for, or went away.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> Result<ByteStream, TcpStream> {
        let config = Arc::clone(&self.configs.load().server);
        self.accept_by(tcp, config).await
    }

    /// Accepts like `accept` on the admin port: the client may show no certificate.
    ///
    /// # Errors
    /// It speaks another TLS, shows a certificate that is not good, or went away.
    pub(crate) async fn accept_admin(&self, tcp: TcpStream) -> Result<ByteStream, TcpStream> {
        let config = Arc::clone(&self.configs.load().admin);
        self.accept_by(tcp, config).await
    }

    /// Does this session lack the certificate that clients have to show?
    pub(crate) fn lacks_certificate(&self, stream: &ByteStream) -> bool {
        self.settings.client_ca.is_some()
            && stream.is_tls()
            && stream.with_certificates(|shown| shown.is_empty())
    }

    async fn accept_by(
        &self,
        tcp: TcpStream,
        config: Arc<ServerConfig>,
    ) -> Result<ByteStream, TcpStream> {
        match ByteStream::accept(tcp, config).await {
            Ok(stream) => {
                self.gauges.handshakes.fetch_add(1, Ordering::Relaxed);
                Ok(stream)
            }
            Err((error, tcp)) => {
                self.gauges.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "a TLS handshake led to no session");
                Err(tcp)
            }
        }
    }

    /// Tells a client of the admin port that it has to speak TLS.
    pub(crate) async fn refuse_clear(&self, tcp: TcpStream) {
        self.gauges.clear.fetch_add(1, Ordering::Relaxed);
        let read = say_clear_text(tcp).await;
        tracing::debug!(read, "a client of the admin port spoke clear text");
    }

    /// The certificates by which members know each other, if links are sealed.
    fn links(&self) -> Option<LinkConfigs> {
        self.configs.load().links.clone()
    }

    /// Seals a connection to the member at `host`, or leaves it in clear where links are not
    /// sealed.
    ///
    /// # Errors
    /// A sentence: the other side is not that member, or does not take this one.
    pub(crate) async fn seal(&self, tcp: TcpStream, host: &str) -> Result<ByteStream, String> {
        let Some(links) = self.links() else {
            return Ok(ByteStream::Clear(tcp));
        };
        let name = server_name(host)?;
        let sealed = ByteStream::connect(tcp, links.client, name).await;
        sealed.map_err(|error| format!("tls: {}", link_fault(&error)))
    }

    /// Does the other side of `stream` show a certificate of the member at `host`?
    ///
    /// # Errors
    /// A sentence about why not.
    pub(crate) fn check_member(&self, stream: &ByteStream, host: &str) -> Result<(), String> {
        let Some(links) = self.links() else {
            return Ok(());
        };
        if !stream.is_tls() && self.takes_clear() {
            return Ok(());
        }
        let name = server_name(host)?;
        stream.with_certificates(|shown| {
            let Some((own, between)) = shown.split_first() else {
                return Err("it shows no certificate".to_owned());
            };
            let now = UnixTime::now();
            let checked = links
                .members
                .verify_server_cert(own, between, &name, &[], now);
            checked.map(|_| ()).map_err(|bad| bad.to_string())
        })
    }

    /// How long the files in force hold.
    pub(crate) fn terms(&self) -> Vec<FileTerm> {
        self.configs.load().terms.clone()
    }

    /// Warns of certificates that end soon, once a day.
    fn warn_of_end(&self, now_s: i64) {
        let terms = self.terms();
        let Some(first) = terms.iter().min_by_key(|term| term.until_s) else {
            return;
        };
        let mut warned = self.warned.lock().expect("no holder panics");
        let is_said = warned.is_some_and(|at| at.elapsed() < WARN_EVERY);
        if is_said || !first.is_short(now_s) {
            return;
        }
        *warned = Some(Instant::now());
        let (file, days) = (first.path.display(), first.days_left(now_s));
        if first.until_s < now_s {
            tracing::error!(%file, "a certificate has ended: put a new one in its place")
        } else {
            tracing::warn!(
                %file,
                days,
                "a certificate ends soon: put a new one in its place, it is read without a restart"
            )
        }
    }

    /// Warns of certificates in force that do not hold yet.
    fn warn_of_begin(&self, now_s: i64) {
        for term in self.terms().iter().filter(|term| term.from_s > now_s) {
            tracing::warn!(
                file = %term.path.display(),
                seconds = term.from_s - now_s,
                "a certificate does not hold yet, and no client and no member takes it until it \
                 does: put one there that holds, or compare the clock of this machine with that \
                 of the machine that made it"
            );
        }
    }

    /// Refuses files with which the other members would not take this one's certificate, where they
    /// take the one in force. A renewal of a certificate that no member asks for goes on. A list
    /// that takes the one in force back is not refused: it is about others, too.
    fn not_shut_out(&self, read: Configs, now_s: i64) -> Result<Configs, String> {
        let Some(host) = &self.member else {
            return Ok(read);
        };
        let Err(fault) = read.check_own(host, now_s) else {
            return Ok(read);
        };
        let current = self.configs.load();
        let sentence = own_fault(&fault, &self.settings, host);
        let is_taken_back = fault.is_revoked() && read.own.cert == current.own.cert;
        if is_taken_back || current.check_own(host, now_s).is_err() {
            tracing::warn!(
                sentence,
                "the other members refuse the certificate in force"
            );
            return Ok(read);
        }
        Err(sentence)
    }

    /// Refuses a certificate of this node that does not hold now in the place of one that does.
    fn not_worse(&self, read: Configs, now_s: i64) -> Result<Configs, String> {
        let own = |terms: &[FileTerm]| terms.iter().find(|it| it.file == OWN_FILE).cloned();
        let holds = |it: &FileTerm| (it.from_s..=it.until_s).contains(&now_s);
        let current = own(&self.terms()).filter(holds);
        let next = own(&read.terms).filter(|it| !holds(it));
        let (Some(_), Some(next)) = (current, next) else {
            return Ok(read);
        };
        let cert = self.settings.cert.display();
        if next.until_s < now_s {
            return Err(format!(
                "the certificate {cert} has ended: put one there that holds"
            ));
        }
        self.holds_from_s.store(next.from_s, Ordering::Relaxed);
        Err(format!(
            "the certificate {cert} does not hold yet, for another {} s: it is read again then; if \
             that is wrong, compare the clock of the machine that made it",
            next.from_s - now_s
        ))
    }

    /// Reads the files again, if they have changed or `is_asked`.
    pub(crate) fn look(&self, is_asked: bool) {
        let now_s = (clock::wall_ms() / 1_000) as i64;
        self.warn_of_end(now_s);
        let holds_from_s = self.holds_from_s.load(Ordering::Relaxed);
        let holds_now = holds_from_s > 0 && now_s >= holds_from_s;
        let is_due = is_asked || holds_now;
        let read = || self.renew(now_s);
        match self.files.look(self.settings.files(), is_due, read) {
            FileLook::NotDue => {}
            FileLook::Taken => self.watch.note(|state| state.files_taken += 1),
            FileLook::Refused => self.watch.note(|state| state.files_refused += 1),
        }
    }

    /// Reads the files and puts them into force.
    fn renew(&self, now_s: i64) -> Result<(), String> {
        self.holds_from_s.store(0, Ordering::Relaxed);
        let configs = files::read(&self.settings)?;
        let configs = self.not_shut_out(configs, now_s)?;
        let configs = self.not_worse(configs, now_s)?;
        self.configs.store(Arc::new(configs));
        self.warn_of_begin(now_s);
        *self.warned.lock().expect("no holder panics") = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_clear_that_sends_without_end_is_read_to_a_bound() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let (mut client, node) = tokio::io::duplex(1 << 10);
            let refusing = tokio::spawn(say_clear_text(node));
            let mut answer = [0; 12];
            client.read_exact(&mut answer).await.expect("an answer");
            assert_eq!(&answer, b"HTTP/1.1 400");
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.expect("its end");
            // As long as the node reads.
            while client.write_all(&[b'x'; 1 << 10]).await.is_ok() {}
            let read = refusing.await.expect("it ends");
            let most = limits::LINGER_BYTES_MAX;
            assert!((most..most + 4096).contains(&read), "{read}");
        });
    }
}
