//! The audit log: each guarded call with its actor, its address and its result. Never a value,
//! never a token.
//!
//! ```text
//! loops, admin plane ─► note: try_send ─► at most AUDIT_QUEUE_LEN_MAX wait ─► thread "audit" ─► FILE
//!                          └ full: lost, counted               FILE is full: FILE.1 … FILE.keep
//! {"at":"2026-11-25T00:47:09.123Z","event":"login-failed","who":"-","from":"10.0.0.9","port":"data",
//!  "what":"PUT /v0/entity","status":401,"code":"unauthenticated"}
//! ```
//!
//! Invariants
//! 1. `note` never waits: an event that finds the queue full is lost and counted.
//! 2. A loss stands in the log, too: the next line that is written comes after one that counts it.
//! 3. Text of a client reaches a line only as the name of a token or of a certificate, with letters
//!    that were checked. Paths that are not ours are written as `other`.
//! 4. Failed logins are at most `AUDIT_FAILURES_PER_SECOND` lines a second: a flood of them takes
//!    no other event's place in the queue. In the long run they are at most
//!    `AUDIT_FLOOD_PER_SECOND`: a flood that lasts pushes older lines out of the files only after
//!    days. Those beyond are counted, in the log as well.
//!
//! Not here: the file (`book.rs`), the rights of tokens (`rights/`).
//! See: docs/operating.md, section "The audit log".

mod book;

use crate::clock;
use crate::limits;
use crate::meter::Meter;
use crate::settings::AuditSettings;
use book::{AuditDisk, AuditGauges, Book, OsBook, when};
use dendra_wire::Refusal;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Which of the node's ports a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// The data port.
    Data,
    /// The admin port.
    Admin,
}

impl Port {
    fn as_str(self) -> &'static str {
        match self {
            Port::Data => "data",
            Port::Admin => "admin",
        }
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditKind {
    /// A client was not let in, or not to the thing that it asked for.
    LoginFailed,
    /// A program was not let in as a member.
    MemberRefused,
    /// The table of tokens was to be replaced.
    TokensPut,
    /// Another table of tokens is in force on this node.
    TokensInForce,
    /// A call on the admin port that needs an admin.
    Admin,
    /// An order about the members of the cluster.
    Topology,
    /// Records that came around the API of clients: a restore.
    BulkLoad,
    /// The log begins, or goes on.
    Started,
    /// The log ends.
    Stopped,
}

impl AuditKind {
    fn as_str(self) -> &'static str {
        match self {
            AuditKind::LoginFailed => "login-failed",
            AuditKind::MemberRefused => "member-refused",
            AuditKind::TokensPut => "tokens-put",
            AuditKind::TokensInForce => "tokens-in-force",
            AuditKind::Admin => "admin",
            AuditKind::Topology => "topology",
            AuditKind::BulkLoad => "bulk-load",
            AuditKind::Started => "started",
            AuditKind::Stopped => "stopped",
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct AuditEvent {
    pub(crate) kind: AuditKind,
    pub(crate) wall_ms: u64,
    /// The name of a token, `certificate:` and a name, or `-`.
    pub(crate) who: Cow<'static, str>,
    /// The address and port that the call came from; `None` for events of the node itself.
    pub(crate) from: Option<(IpAddr, Port)>,
    /// Method and path, without parameters.
    pub(crate) what: Cow<'static, str>,
    /// Status of the answer; 0 where there was none.
    pub(crate) status: u16,
    /// The code word of a refusal.
    pub(crate) code: Option<Cow<'static, str>>,
    /// Names of tokens, by their fate: added, changed, removed.
    pub(crate) tokens: Vec<(&'static str, Vec<String>)>,
}

impl AuditEvent {
    /// An event of now.
    pub(crate) fn new(kind: AuditKind, what: impl Into<Cow<'static, str>>) -> AuditEvent {
        AuditEvent {
            kind,
            wall_ms: clock::wall_ms(),
            who: Cow::Borrowed("-"),
            from: None,
            what: what.into(),
            status: 0,
            code: None,
            tokens: Vec::new(),
        }
    }

    /// With this actor.
    #[must_use]
    pub(crate) fn by(self, who: impl Into<Cow<'static, str>>) -> AuditEvent {
        let who = who.into();
        AuditEvent { who, ..self }
    }

    /// From where.
    #[must_use]
    pub(crate) fn from(self, source: IpAddr, port: Port) -> AuditEvent {
        let from = Some((source.to_canonical(), port));
        AuditEvent { from, ..self }
    }

    /// With this answer.
    #[must_use]
    pub(crate) fn ending(self, status: u16) -> AuditEvent {
        AuditEvent { status, ..self }
    }

    /// With this refusal.
    #[must_use]
    pub(crate) fn refused(self, refusal: &Refusal) -> AuditEvent {
        AuditEvent {
            status: refusal.status,
            code: Some(Cow::Borrowed(refusal.code)),
            ..self
        }
    }

    /// The line, with its end.
    fn to_line(&self) -> String {
        let mut line = serde_json::Map::new();
        let mut put = |name: &str, value: serde_json::Value| {
            line.insert(name.to_owned(), value);
        };
        put("at", when(self.wall_ms).into());
        put("event", self.kind.as_str().into());
        put("who", (*self.who).into());
        if let Some((source, port)) = self.from {
            put("from", source.to_string().into());
            put("port", port.as_str().into());
        }
        put("what", (*self.what).into());
        if self.status > 0 {
            put("status", self.status.into());
        }
        if let Some(code) = &self.code {
            put("code", (**code).into());
        }
        for (name, tokens) in &self.tokens {
            put(name, tokens.clone().into());
        }
        format!("{}\n", serde_json::Value::Object(line))
    }
}

enum AuditLetter {
    Event(Box<AuditEvent>),
    /// Tells that everything before it was taken.
    #[cfg(test)]
    Reached(SyncSender<()>),
    Stop,
}

/// See the module.
pub(crate) struct Audit {
    letters: SyncSender<AuditLetter>,
    failures: Meter,
    flood: Meter,
    pub(crate) gauges: Arc<AuditGauges>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

impl Audit {
    /// Opens the file, and starts the thread that writes it.
    ///
    /// # Errors
    /// A sentence: the file cannot be opened.
    pub(crate) fn start(settings: &AuditSettings) -> Result<Audit, String> {
        Audit::start_on(OsBook::open(settings)?, settings.file_bytes)
    }

    fn start_on(disk: impl AuditDisk + Send + 'static, file_bytes: u64) -> Result<Audit, String> {
        let (letters, inbox) = sync_channel(limits::AUDIT_QUEUE_LEN_MAX);
        let gauges = Arc::new(AuditGauges::default());
        let book = Book::new(disk, file_bytes, Arc::clone(&gauges));
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(&inbox, book))
            .map_err(|error| format!("the audit log has no thread: {error}"))?;
        let audit = Audit {
            letters,
            failures: Meter::new(limits::AUDIT_FAILURES_PER_SECOND),
            flood: Meter::with_burst(limits::AUDIT_FLOOD_PER_SECOND, limits::AUDIT_FLOOD_BURST),
            gauges,
            thread: Mutex::new(Some(thread)),
        };
        audit.note(AuditEvent::new(AuditKind::Started, "the node starts"));
        Ok(audit)
    }

    /// Has the event written soon.
    pub(crate) fn note(&self, event: AuditEvent) {
        if self
            .letters
            .try_send(AuditLetter::Event(Box::new(event)))
            .is_err()
        {
            self.gauges.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Is there room for one more failure in the log? One that finds none is counted.
    pub(crate) fn takes_failure(&self) -> bool {
        self.takes_failure_at(clock::monotonic_ns())
    }

    fn takes_failure_at(&self, now_ns: u64) -> bool {
        let meters = [&self.failures, &self.flood];
        let takes = meters.iter().all(|it| it.admit(1, now_ns).is_ok());
        if !takes {
            self.gauges.left_out.fetch_add(1, Ordering::Relaxed);
        }
        takes
    }

    /// Ends when all that was noted before is written, or lost.
    pub(crate) fn stop(&self) {
        self.note(AuditEvent::new(AuditKind::Stopped, "the node stops"));
        let thread = self.thread.lock().expect("no holder panics").take();
        let Some(thread) = thread else { return };
        // The thread lives: it takes the events that wait, and then this one.
        let told = self.letters.send(AuditLetter::Stop);
        if told.is_err() || thread.join().is_err() {
            tracing::error!("the audit log ended by a panic");
        }
    }
}

/// The thread: ends with `Stop`.
fn write_all(inbox: &Receiver<AuditLetter>, mut book: Book<impl AuditDisk>) {
    loop {
        match inbox.recv_timeout(limits::AUDIT_SYNC) {
            Ok(AuditLetter::Event(event)) => book.write(&event.to_line()),
            #[cfg(test)]
            Ok(AuditLetter::Reached(told)) => told.send(()).expect("the test waits"),
            Ok(AuditLetter::Stop) => break,
            Err(_idle_or_gone) => {}
        }
        book.look();
    }
    book.end();
}

/// Notes that a client was not let in, or not to the thing that it asked for.
pub(crate) fn note_login(
    audit: Option<&Audit>,
    who: String,
    (source, port): (IpAddr, Port),
    what: impl FnOnce() -> String,
    refusal: &Refusal,
) {
    if let Some(audit) = audit
        && audit.takes_failure()
    {
        let event = AuditEvent::new(AuditKind::LoginFailed, what()).by(who);
        audit.note(event.from(source, port).refused(refusal));
    }
}

/// Notes that a TLS handshake led to no session.
pub(crate) fn note_handshake(audit: Option<&Audit>, source: IpAddr, port: Port) {
    if let Some(audit) = audit
        && audit.takes_failure()
    {
        let mut event = AuditEvent::new(AuditKind::LoginFailed, "TLS handshake");
        event.code = Some(Cow::Borrowed("tls-handshake"));
        audit.note(event.from(source, port));
    }
}

/// The path of a request as the log has it: one of ours, or `other`.
pub(crate) fn what_of(method: &str, path: &str) -> String {
    const KNOWN: [&str; 21] = [
        "/v0/entity",
        "/v0/touch",
        "/v0/batch",
        "/v0/entities",
        "/v0/count",
        "/v0/watch",
        "/v0/tokens",
        "/v0/status",
        "/v0/health",
        "/v0/cluster",
        "/v0/cluster/history",
        "/v0/peer",
        "/v0/peer/hello",
        "/v0/peer/ask",
        "/v0/checkpoints",
        "/v0/restore",
        "/v0/restore/page",
        "/v0/restore/settle",
        "/v0/restore/successors",
        "/v0/restore/finish",
        "/metrics",
    ];
    const BELOW: [(&str, &[&str]); 3] = [
        (
            "/v0/cluster/",
            &[
                "plan",
                "apply",
                "cancel",
                "rekey",
                "readdress",
                "throttle",
                "finalize",
                "accept-loss",
                "compare",
            ],
        ),
        ("/debug/profile/", &["cpu", "wall", "alloc", "lock"]),
        ("/v0/checkpoints/", &[]),
    ];
    const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "DELETE", "POST", "OPTIONS"];
    let method = METHODS.iter().find(|known| **known == method);
    let method = method.unwrap_or(&"OTHER");
    if let Some(path) = KNOWN.iter().find(|known| **known == path) {
        return format!("{method} {path}");
    }
    for (folder, names) in BELOW {
        let Some(rest) = path.strip_prefix(folder) else {
            continue;
        };
        return match names.iter().find(|name| **name == rest) {
            Some(name) => format!("{method} {folder}{name}"),
            None => format!("{method} {folder}*"),
        };
    }
    format!("{method} other")
}

#[cfg(test)]
mod tests {
    use super::*;
    use book::testing::FillingDisk;
    use std::net::Ipv4Addr;

    fn failed(n: u8) -> AuditEvent {
        let refusal = Refusal::unauthenticated("no");
        AuditEvent::new(AuditKind::LoginFailed, what_of("GET", "/v0/entity"))
            .from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), Port::Data)
            .refused(&refusal)
    }

    fn parsed(text: &str) -> Vec<serde_json::Value> {
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn a_line_says_who_what_from_where_and_how_it_ended() {
        let mut event = failed(7).by("app");
        event.wall_ms = 1_795_567_629_123;
        event.tokens = vec![("added", vec!["a".to_owned(), "b".to_owned()])];
        let line = event.to_line();
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let expected = serde_json::json!({
            "at": "2026-11-25T00:47:09.123Z",
            "event": "login-failed",
            "who": "app",
            "from": "10.0.0.7",
            "port": "data",
            "what": "GET /v0/entity",
            "status": 401,
            "code": "unauthenticated",
            "added": ["a", "b"],
        });
        assert_eq!(read, expected);
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn text_of_a_client_does_not_reach_the_log() {
        for (method, path, expected) in [
            ("GET", "/v0/entity", "GET /v0/entity"),
            ("POST", "/v0/cluster/apply", "POST /v0/cluster/apply"),
            ("POST", "/v0/cluster/dendra_secret", "POST /v0/cluster/*"),
            ("DELETE", "/v0/checkpoints/00ff", "DELETE /v0/checkpoints/*"),
            ("GET", "/dendra_secret", "GET other"),
            ("dendra_secret", "/metrics", "OTHER /metrics"),
        ] {
            assert_eq!(what_of(method, path), expected);
        }
    }

    #[test]
    fn a_full_disk_loses_lines_counts_them_and_says_so_when_there_is_room_again() {
        let disk = FillingDisk::new(1_000);
        let audit = Audit::start_on(disk.clone(), u64::MAX).expect("a thread");
        for n in 0..100 {
            audit.note(failed(n));
        }
        let (told, reached) = sync_channel(1);
        audit
            .letters
            .send(AuditLetter::Reached(told))
            .expect("a thread");
        reached.recv().expect("it comes to that");
        let lost = audit.gauges.lost.load(Ordering::Relaxed);
        assert!(lost > 80, "{lost}");
        let before = disk.text();
        assert!(before.ends_with('\n'), "no half line: {before}");
        let (gaps, lines): (Vec<_>, Vec<_>) = parsed(&before)
            .into_iter()
            .partition(|line| line["event"] == "lost");
        assert_eq!(lines.len() as u64 + lost, 101);
        let said: u64 = gaps.iter().filter_map(|gap| gap["count"].as_u64()).sum();
        disk.make_room();
        audit.note(failed(200));
        audit.stop();
        let text = disk.text();
        let behind = parsed(&text[before.len()..]);
        assert_eq!(behind[0]["event"], "lost");
        assert_eq!(behind[0]["count"], lost - said);
        assert_eq!(behind[1]["from"], "10.0.0.200");
        assert_eq!(behind[2]["event"], "stopped");
        assert_eq!(behind.len(), 3);
    }

    #[test]
    fn a_disk_that_hangs_makes_nobody_wait() {
        let disk = FillingDisk::new(u64::MAX as usize);
        let held = disk.hold();
        let audit = Audit::start_on(disk.clone(), u64::MAX).expect("a thread");
        let many = 2 * limits::AUDIT_QUEUE_LEN_MAX as u64;
        for _ in 0..many {
            audit.note(failed(1));
        }
        let lost = audit.gauges.lost.load(Ordering::Relaxed);
        let room = limits::AUDIT_QUEUE_LEN_MAX as u64;
        // One is in the hands of the thread, which may not have come for it yet.
        assert!((many - room..=many - room + 1).contains(&lost), "{lost}");
        drop(held);
        audit.stop();
        assert!(disk.text().contains("\"event\":\"lost\""));
    }

    #[test]
    fn a_flood_of_failed_logins_is_counted_and_not_written() {
        let disk = FillingDisk::new(1 << 20);
        let audit = Audit::start_on(disk.clone(), u64::MAX).expect("a thread");
        let most = limits::AUDIT_FAILURES_PER_SECOND;
        let taken = (0..3 * most).filter(|_| audit.takes_failure()).count() as u64;
        // A slow machine may be in its second second.
        assert!((most..2 * most).contains(&taken), "{taken}");
        assert_eq!(
            audit.gauges.left_out.load(Ordering::Relaxed),
            3 * most - taken
        );
        audit.stop();
        assert!(disk.text().contains("\"event\":\"left-out\""));
    }

    #[test]
    fn a_flood_that_lasts_writes_few_lines() {
        let disk = FillingDisk::new(1 << 20);
        let audit = Audit::start_on(disk, u64::MAX).expect("a thread");
        let second_ns = 1_000_000_000;
        // A day of ten failed logins a second.
        let day = 24 * 60 * 60;
        let tries = (0..day * 10).map(|n| second_ns + n * second_ns / 10);
        let taken = tries.filter(|at| audit.takes_failure_at(*at)).count() as u64;
        let burst = limits::AUDIT_FLOOD_PER_SECOND * limits::AUDIT_FLOOD_BURST.as_secs();
        let lasting = limits::AUDIT_FLOOD_PER_SECOND * day;
        assert!((lasting..=lasting + burst).contains(&taken), "{taken}");
        audit.stop();
    }
}
