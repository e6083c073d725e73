//! `dendra conform`: runs the cases of the HTTP contract against a store, and prints the
//! differences.
//!
//! ```text
//! docs/conformance/*.toml ─► case.rs ─► for each case: a fresh prefix, one connection
//!                                          step ─► exchange.rs ─► judge.rs ─► ok | FAILED
//!                                       then: the case's keys are deleted
//! ```
//!
//! Invariants
//! 1. A case touches only keys that begin with its own prefix; a run draws new prefixes.
//! 2. A skipped case is counted and named with its tag, never passed.
//!
//! Not here: the cases (docs/conformance).
//! See: docs/conformance/README.md.

mod case;
mod exchange;
pub(crate) mod flags;
mod judge;
mod text;

use crate::client::{BaseUrl, Credentials};
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use case::{Case, CaseStep, FieldPlace, Sends};
use exchange::{BodyRule, Received, Wire};
use flags::Conform;
use judge::Mismatch;
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use text::Variables;
use tokio::time::{Instant, sleep};

/// The contract's own cases.
const OWN: [(&str, &str); 6] = [
    (
        "entity.toml",
        include_str!("../../../../docs/conformance/entity.toml"),
    ),
    (
        "refusals.toml",
        include_str!("../../../../docs/conformance/refusals.toml"),
    ),
    (
        "scans.toml",
        include_str!("../../../../docs/conformance/scans.toml"),
    ),
    (
        "batch.toml",
        include_str!("../../../../docs/conformance/batch.toml"),
    ),
    (
        "watch.toml",
        include_str!("../../../../docs/conformance/watch.toml"),
    ),
    (
        "framing.toml",
        include_str!("../../../../docs/conformance/framing.toml"),
    ),
];

/// Far more than all cases of the contract together.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Between two tries of a step that waits for something (`within-s`).
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The deadline of requests that name none: a busy machine is no wrong answer.
const TIMEOUT_MS: u32 = 30_000;

/// How a case ended.
enum CaseVerdict {
    Passed,
    Failed(String),
    /// The store leaves out this header, which it may.
    Skipped(String),
}

/// Why a case ends at a step.
enum StepEnd {
    /// The report.
    Failed(String),
    /// Skipped, as in `CaseVerdict`.
    Skipped(String),
}

impl From<String> for StepEnd {
    fn from(report: String) -> StepEnd {
        StepEnd::Failed(report)
    }
}

/// `dendra conform`
pub(crate) async fn conform(args: &Conform, console: Console) -> ExitResult {
    let cases = read(args)?;
    for tag in &args.without {
        if !case::tags(&cases).contains(tag.as_str()) {
            let all: Vec<&str> = case::tags(&cases).into_iter().collect();
            return Err(Failure::usage(format!(
                "--without {tag}: no case has this tag; the tags are {}",
                all.join(", ")
            )));
        }
    }
    if args.list {
        return list(&cases);
    }
    let base = BaseUrl::parse(&args.url).map_err(|bad| bad.of("--url"))?;
    let access = Credentials::read(&args.access, &base)?;
    let mut wire = Wire::new(&base, &access);
    reach(&mut wire, &base, &access).await?;
    let run = run_id()?;
    console.note(&format!(
        "writes records to {} and deletes them: keys begin with cf-{run}-",
        args.url
    ));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (index, case) in cases.iter().enumerate() {
        let chosen = args.only.as_ref();
        if chosen.is_some_and(|text| !case.name.contains(text.as_str())) {
            continue;
        }
        if let Some(tag) = case.tags.iter().find(|tag| args.without.contains(tag)) {
            skipped += 1;
            say(&format!("skipped  {}  (without {tag})\n", case.name))?;
            continue;
        }
        let prefix = format!("cf-{run}-{index:03}-");
        let runner = Runner::new(&base, &access, &prefix);
        match runner.run(case).await {
            CaseVerdict::Passed => {
                passed += 1;
                say(&format!("ok       {}\n", case.name))?;
            }
            CaseVerdict::Failed(report) => {
                failed += 1;
                say(&report)?;
            }
            CaseVerdict::Skipped(header) => {
                skipped += 1;
                say(&format!(
                    "skipped  {}  (the answer has no {header})\n",
                    case.name
                ))?;
            }
        }
    }
    let count = passed + failed + skipped;
    say(&format!(
        "{count} cases: {passed} passed, {failed} failed, {skipped} skipped\n"
    ))?;
    if count == 0 {
        return Err(Failure::usage(
            "--only: no case has this text in its name; --list shows all",
        ));
    }
    Ok(match failed {
        0 => Exit::OK,
        _ => Exit::FAILURE,
    })
}

fn say(text: &str) -> Result<(), Failure> {
    ops::print(text.as_bytes())
}

fn list(cases: &[Case]) -> ExitResult {
    for case in cases {
        say(&format!(
            "{}\t{}\t{}\n",
            case.file,
            case.tags.join(","),
            case.name
        ))?;
    }
    Ok(Exit::OK)
}

fn read(args: &Conform) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    if args.cases.is_empty() {
        for (name, text) in OWN {
            case::read(name, text, &mut cases).map_err(Failure::usage)?;
        }
    }
    for path in &args.cases {
        let text = read_file(path)
            .map_err(|e| Failure::usage(format!("{}: cannot be read ({e})", path.display())))?;
        case::read(&path.display().to_string(), &text, &mut cases).map_err(Failure::usage)?;
    }
    Ok(cases)
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        Err(std::io::Error::other("it is larger than 4 MiB"))
    } else {
        Ok(text)
    }
}

/// Eight digits that no other run has.
fn run_id() -> Result<String, Failure> {
    let mut bytes = [0; 4];
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut bytes, flags) {
        Ok(4) => Ok(format!("{:08x}", u32::from_ne_bytes(bytes))),
        other => Err(Failure::new(
            Exit::FAILURE,
            format!("the system gives no randomness ({other:?})"),
        )),
    }
}

/// A store that cannot be reached at all has no failing cases: it has none.
async fn reach(wire: &mut Wire<'_>, base: &BaseUrl, access: &Credentials) -> Result<(), Failure> {
    let variables = variables(base, access, "cf-");
    let line = "GET /v0/entity?id=cf-is-it-there";
    let unavailable = |e| {
        Failure::new(
            Exit::UNAVAILABLE,
            format!("{}: {e}; see --url", base.authority()),
        )
    };
    let bytes = request(line, &[], None, &variables, base).map_err(Failure::usage)?;
    wire.send(&bytes).await.map_err(unavailable)?;
    wire.receive(BodyRule::Expected)
        .await
        .map_err(unavailable)?;
    wire.drop_connection();
    Ok(())
}

fn variables(base: &BaseUrl, access: &Credentials, prefix: &str) -> Variables {
    let mut variables = Variables::default();
    variables.set("p", prefix.to_owned());
    variables.set("host", base.authority().to_owned());
    variables.set("base", base.path().to_owned());
    let token = access.fields();
    variables.set("token", token.map_or(String::new(), |line| line + "\r\n"));
    variables
}

/// The bytes of a request that the runner writes itself.
fn request(
    line: &str,
    headers: &[String],
    body: Option<&[u8]>,
    variables: &Variables,
    base: &BaseUrl,
) -> Result<Vec<u8>, String> {
    let line = variables.fill(line)?;
    let (method, target) = line
        .split_once(' ')
        .ok_or_else(|| format!("send = {line:?} is no method and target"))?;
    let mut head = format!("{method} {}{target} HTTP/1.1\r\n", base.path());
    head.push_str(&variables.fill("Host: ${host}\r\n${token}")?);
    let mut has_deadline = false;
    for header in headers {
        has_deadline |= header.to_ascii_lowercase().starts_with("dendra-timeout-ms");
        write!(head, "{}\r\n", variables.fill(header)?).map_err(|e| e.to_string())?;
    }
    if !has_deadline {
        write!(head, "Dendra-Timeout-Ms: {TIMEOUT_MS}\r\n").map_err(|e| e.to_string())?;
    }
    if let Some(body) = body {
        write!(head, "Content-Length: {}\r\n", body.len()).map_err(|e| e.to_string())?;
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body.unwrap_or_default());
    Ok(bytes)
}

/// One case under way.
struct Runner<'a> {
    wire: Wire<'a>,
    base: &'a BaseUrl,
    variables: Variables,
    /// The target of the last `PUT` that was sent.
    last_put: Option<String>,
    /// Targets that were written with success.
    written: Vec<String>,
}

impl<'a> Runner<'a> {
    fn new(base: &'a BaseUrl, access: &'a Credentials, prefix: &str) -> Runner<'a> {
        Runner {
            wire: Wire::new(base, access),
            base,
            variables: variables(base, access, prefix),
            last_put: None,
            written: Vec::new(),
        }
    }

    async fn run(mut self, case: &Case) -> CaseVerdict {
        let mut verdict = CaseVerdict::Passed;
        for (index, step) in case.steps.iter().enumerate() {
            if let Err(end) = self.step(step).await {
                let place = format!("{}, step {}", case.file, index + 1);
                verdict = match end {
                    StepEnd::Skipped(header) => CaseVerdict::Skipped(header),
                    StepEnd::Failed(report) => {
                        CaseVerdict::Failed(format!("FAILED   {}  ({place})\n{report}", case.name))
                    }
                };
                break;
            }
        }
        self.wire.drop_connection();
        for target in std::mem::take(&mut self.written) {
            if let Err(e) = self.delete(&target).await {
                let place = format!("{}, tidying up", case.file);
                verdict = CaseVerdict::Failed(format!(
                    "FAILED   {}  ({place})\n  request   DELETE {target}\n  got       {e}\n",
                    case.name
                ));
                break;
            }
        }
        verdict
    }

    async fn delete(&mut self, target: &str) -> Result<(), String> {
        let line = format!("DELETE {target}");
        let bytes = request(&line, &[], None, &self.variables, self.base)?;
        self.wire.drop_connection();
        self.wire.send(&bytes).await?;
        let answer = self.wire.receive(BodyRule::Expected).await?;
        match answer.status {
            202 => Ok(()),
            status => Err(format!("status {status} {}", judge::show(&answer.body))),
        }
    }

    async fn step(&mut self, step: &CaseStep) -> Result<(), StepEnd> {
        let until = Instant::now() + Duration::from_secs(step.within_s.unwrap_or(0));
        let (bytes, shown, body) = self.bytes(step).map_err(|e| format!("  case      {e}\n"))?;
        loop {
            let outcome = self.once(step, &bytes, &shown, body).await;
            match outcome {
                Err(StepEnd::Failed(_)) if Instant::now() < until => sleep(RETRY_PAUSE).await,
                Err(end) => return Err(end),
                Ok(answer) => {
                    return self.take(step, &answer).map_err(|e| {
                        format!("  request   {shown}\n  {e}\n{}", tell(&answer)).into()
                    });
                }
            }
        }
    }

    /// The bytes of a step, a line for people, and whether its answer has a body.
    fn bytes(&self, step: &CaseStep) -> Result<(Vec<u8>, String, BodyRule), String> {
        let (bytes, shown) = match &step.sends {
            Sends::Request {
                line,
                headers,
                body,
            } => {
                let body = body
                    .as_ref()
                    .map(|body| judge::bytes(body, &self.variables));
                let body = body.transpose()?;
                let bytes = request(line, headers, body.as_deref(), &self.variables, self.base)?;
                let mut shown = self.variables.fill(line)?;
                shown.truncate(shown.floor_char_boundary(300));
                for header in headers {
                    write!(shown, "\n            {}", self.variables.fill(header)?)
                        .map_err(|e| e.to_string())?;
                }
                if let Some(body) = &body {
                    write!(shown, "\n            body of {} bytes", body.len())
                        .map_err(|e| e.to_string())?;
                }
                (bytes, shown)
            }
            Sends::Raw(text) => {
                let bytes = judge::bytes(text, &self.variables)?;
                // The token is for the store alone.
                let shown = Variables::fill(&self.variables_shown()?, &text.text)?;
                let shown = format!("bytes {}", judge::show(shown.as_bytes()));
                (bytes, shown)
            }
            Sends::Nothing => (Vec::new(), "(nothing: the next answer)".to_owned()),
        };
        let body = if bytes.starts_with(b"HEAD ") {
            BodyRule::Never
        } else {
            BodyRule::Expected
        };
        Ok((bytes, shown, body))
    }

    fn variables_shown(&self) -> Result<Variables, String> {
        let mut shown = Variables::default();
        for name in self.variables.names() {
            let value = self.variables.fill(&format!("${{{name}}}"))?;
            let is_token = name == "token" && !value.is_empty();
            let value = if is_token {
                "Authorization: …\r\n".to_owned()
            } else {
                value
            };
            shown.set(&name, value);
        }
        Ok(shown)
    }

    async fn once(
        &mut self,
        step: &CaseStep,
        bytes: &[u8],
        shown: &str,
        body: BodyRule,
    ) -> Result<Received, StepEnd> {
        let broken = |e: String| format!("  request   {shown}\n  got       {e}\n");
        if !bytes.is_empty() {
            self.wire.send(bytes).await.map_err(broken)?;
        }
        let answer = self.wire.receive(body).await.map_err(broken)?;
        if let Some(target) = self.put_target(step).map_err(broken)? {
            self.last_put = Some(target);
        }
        // The answer to a body that came a step later is for the head in front of it.
        if answer.status == 201
            && let Some(target) = &self.last_put
            && !self.written.contains(target)
        {
            self.written.push(target.clone());
        }
        // With another status it has more than that one fault.
        if let Some(header) = &step.needs
            && step.statuses.contains(&answer.status)
            && answer.header(header).is_none()
        {
            return Err(StepEnd::Skipped(header.clone()));
        }
        let found = judge::differences(step, &answer, &self.variables);
        let mut found = found.map_err(broken)?;
        let wanted = step.closes.unwrap_or(false);
        if let Some(expected) = step.closes {
            let is_closed = self.wire.is_closed(expected).await.map_err(broken)?;
            if is_closed != expected || (!expected && answer.says_close()) {
                found.push(Mismatch {
                    expected: format!("the connection {}", closing(expected)),
                    got: format!("it {}", closing(!expected)),
                });
            }
        }
        // After a refusal the next step begins afresh, unless the case is about the connection.
        let stays = step.closes == Some(false) || (answer.status < 400 && !answer.says_close());
        if wanted || !stays {
            self.wire.drop_connection();
        }
        if found.is_empty() {
            return Ok(answer);
        }
        let mut report = format!("  request   {shown}\n");
        for Mismatch { expected, got } in &found {
            write!(report, "  expected  {expected}\n  got       {got}\n")
                .map_err(|e| e.to_string())?;
        }
        report.push_str(&tell(&answer));
        Err(report.into())
    }

    /// The target of a step that stores a value.
    fn put_target(&self, step: &CaseStep) -> Result<Option<String>, String> {
        let line = match &step.sends {
            Sends::Request { line, .. } => self.variables.fill(line)?,
            Sends::Raw(text) => self
                .variables
                .fill(text.text.lines().next().unwrap_or_default())?,
            Sends::Nothing => return Ok(None),
        };
        let id = line.strip_prefix("PUT ").and_then(|rest| {
            let (_, query) = rest.split(' ').next()?.split_once('?')?;
            query.split('&').find_map(|part| part.strip_prefix("id="))
        });
        Ok(id.map(|id| format!("/v0/entity?id={id}")))
    }

    /// Sets the variables that a step captures.
    fn take(&mut self, step: &CaseStep, answer: &Received) -> Result<(), String> {
        for capture in &step.captures {
            let (word, found) = match capture.place {
                FieldPlace::Header => ("header", answer.header(&capture.name)),
                FieldPlace::Trailer => ("trailer", answer.trailer(&capture.name)),
            };
            let behind = found.and_then(|text| match capture.after.as_str() {
                "" => Some(text),
                after => text.split_once(after).map(|(_, behind)| behind),
            });
            let Some(value) = behind else {
                return Err(format!(
                    "expected  {word} {} with {:?} in it",
                    capture.name, capture.after
                ));
            };
            self.variables.set(&capture.variable, value.to_owned());
        }
        Ok(())
    }
}

fn closing(closes: bool) -> &'static str {
    if closes {
        "closes behind the answer"
    } else {
        "stays open"
    }
}

/// The head of an answer, for a person.
fn tell(answer: &Received) -> String {
    let mut text = format!("  answer    {}", answer.status);
    for (name, value) in answer.headers.iter().chain(&answer.trailers) {
        text.push_str(&format!("; {name}: {value}"));
    }
    text.push('\n');
    text
}
