//! `dendra health`: is a node well, or the whole cluster? A word, and all that is wrong.
//!
//! ```text
//! GET /v0/health of each admin port ─► its page, or no answer ─► merged ─► stdout
//! 0 healthy    1 degraded    2 not serving    3 not known: no page came, and the node is there
//! ```
//!
//! Invariants
//! 1. Words, severities and ways out are the node's: here pages are merged alone.
//! 2. A cluster serves while more than half of its members do.
//!
//! Not here: the findings (crate `server`, `health/`).
//! See: docs/health.md.

use crate::access::AccessArgs;
use crate::client::{AskedPort, BaseUrl, Client, Credentials, HttpRequest, Trouble};
use crate::cluster::cells::plain;
use crate::cluster::flags::admin_urls;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use crate::runtime::join_all;
use bytes::Bytes;
use clap::Args;
use dendra_server::pages::{FindingPage, HealthPage};
use dendra_server::{HealthKind, Severity};
use dendra_wire::meta::MetaBuf;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A node that is well answers at once.
const TIMEOUT_MS: u64 = 3_000;

/// `dendra health`
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// With --cluster: admin ports of members [default: all of DENDRA_ADMIN_URLS, or --url]
    #[arg(value_name = "ADMIN_URL", requires = "cluster")]
    members: Vec<String>,
    /// The node's admin port [default: the first of DENDRA_ADMIN_URLS, or http://127.0.0.1:9080]
    #[arg(long, env = "DENDRA_ADMIN_URL")]
    url: Option<String>,
    /// Ask the members, and say whether the cluster is well
    #[arg(long)]
    cluster: bool,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
    /// How to be let in
    #[command(flatten)]
    access: AccessArgs,
}

impl HealthArgs {
    fn urls(&self) -> Vec<String> {
        if !self.cluster {
            return vec![admin_urls(&[], self.url.as_ref()).remove(0)];
        }
        let all = admin_urls(&self.members, None);
        match &self.url {
            Some(url) if self.members.is_empty() && all.len() == 1 => vec![url.clone()],
            _ => all,
        }
    }
}

/// What came from one admin port.
struct HealthAnswer {
    url: String,
    /// The page, or why there is none.
    page: Result<HealthPage, String>,
}

/// `dendra health`
pub(crate) async fn health(args: &HealthArgs, console: Console) -> ExitResult {
    let urls = args.urls();
    let answers = join_all(urls.iter().map(|url| ask(url, &args.access, console))).await;
    let answers = urls.iter().zip(answers).collect();
    let answers = known(answers, args.cluster)?;
    let report = HealthReport::of(&answers, args.cluster);
    if args.cluster {
        for url in not_asked(&answers) {
            console.note(&format!(
                "{} was not asked: give its admin port, too",
                plain(&url)
            ));
        }
    }
    let text = if args.json {
        format!("{:#}\n", report.to_json())
    } else {
        report.to_text(args.cluster)
    };
    ops::print(text.as_bytes())?;
    Ok(match report.worst {
        None => Exit::OK,
        Some(Severity::Degraded) => Exit::DEGRADED,
        Some(Severity::NotServing) => Exit::NOT_SERVING,
    })
}

/// The answers, if there is one at all. In a cluster a port that cannot be asked, or is none, is
/// one that gave no page.
fn known(
    answers: Vec<(&String, Result<HealthAnswer, Failure>)>,
    is_of_cluster: bool,
) -> Result<Vec<HealthAnswer>, Failure> {
    let has_page = |it: &(&String, Result<HealthAnswer, Failure>)| {
        it.1.as_ref().is_ok_and(|answer| answer.page.is_ok())
    };
    let is_enough = is_of_cluster && answers.iter().any(has_page);
    let known = answers.into_iter().map(|(url, answer)| match answer {
        Err(failure) if is_enough => Ok(HealthAnswer {
            url: url.clone(),
            page: Err(failure.sentence),
        }),
        // Any other code would be a word about the node.
        Err(failure) => Err(Failure::new(Exit::UNKNOWN, failure.sentence)),
        Ok(answer) => Ok(answer),
    });
    known.collect()
}

async fn ask(url: &str, access: &AccessArgs, console: Console) -> Result<HealthAnswer, Failure> {
    let base = BaseUrl::parse(url).map_err(|bad| bad.of("--url"))?;
    let client = Client::new(
        base.clone(),
        Credentials::read(access, &base)?,
        TIMEOUT_MS,
        console,
    );
    let request = HttpRequest {
        meta: MetaBuf::default(),
        method: Method::GET,
        path: "/v0/health".to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    let unknown = |why: String| Failure::new(Exit::UNKNOWN, format!("{}: {why}", client.place()));
    let page = match client.send(&request).await {
        Ok(answer) if answer.status == StatusCode::OK => {
            let page: Result<HealthPage, _> = serde_json::from_slice(&answer.body);
            Ok(page.map_err(|_| unknown(format!("{NO_ADMIN_PORT}, or of another release")))?)
        }
        Ok(answer)
            if matches!(
                answer.status,
                StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST
            ) =>
        {
            return Err(unknown(NO_ADMIN_PORT.to_owned()));
        }
        Ok(answer) => return Err(unknown(answer.sentence())),
        Err(trouble @ (Trouble::Foreign(_) | Trouble::NotTrusted(_))) => {
            let failure = trouble.failure_at(AskedPort::AdminUrl, client.place());
            return Err(Failure::new(Exit::UNKNOWN, failure.sentence));
        }
        Err(trouble) => {
            let failure = trouble.failure_at(AskedPort::AdminUrl, client.place());
            Err(failure.sentence)
        }
    };
    Ok(HealthAnswer {
        url: url.to_owned(),
        page,
    })
}

const NO_ADMIN_PORT: &str = "this is not the admin port of a node (its log says `admin plane`)";

/// A finding, and the admin ports that have it.
struct MergedFinding {
    page: FindingPage,
    at: Vec<String>,
}

/// All pages together.
struct HealthReport {
    worst: Option<Severity>,
    findings: Vec<MergedFinding>,
}

/// Members by URL: is this one reached by another one that was asked?
fn reached(answers: &[HealthAnswer]) -> BTreeMap<String, bool> {
    let mut reached = BTreeMap::new();
    for page in answers.iter().filter_map(|it| it.page.as_ref().ok()) {
        for other in &page.others {
            *reached.entry(other.url.clone()).or_insert(false) |= other.up;
        }
    }
    reached
}

/// Members whose own page did not come, by URL, though all ports that were asked gave one.
fn not_asked(answers: &[HealthAnswer]) -> Vec<String> {
    let is_known = |it: &HealthAnswer| it.page.as_ref().is_ok_and(|page| page.member.is_some());
    if !answers.iter().all(is_known) {
        return Vec::new();
    }
    let asked = answers.iter().filter_map(|it| it.page.as_ref().ok());
    let asked: Vec<&String> = asked.filter_map(|page| page.member.as_ref()).collect();
    let mut all: Vec<String> = reached(answers).into_keys().collect();
    all.retain(|url| !asked.contains(&url));
    all
}

fn is_serving(page: &HealthPage) -> bool {
    page.health != Severity::NotServing.as_str()
}

/// Do more than half of the members serve? One without a page does when another one reaches it.
fn most_serve(answers: &[HealthAnswer]) -> bool {
    let mut members = reached(answers);
    let mut others = (0, 0);
    for answer in answers {
        match &answer.page {
            Ok(page) => {
                let serves = is_serving(page);
                match &page.member {
                    Some(url) => drop(members.insert(url.clone(), serves)),
                    // A member that starts: which one it is, the others know.
                    None if !members.is_empty() => {}
                    // A node by itself.
                    None => others = (others.0 + 1, others.1 + usize::from(serves)),
                }
            }
            // Which member this is, the others know.
            Err(_) if !members.is_empty() => {}
            Err(_) => others.0 += 1,
        }
    }
    let serving = members.values().filter(|serves| **serves).count() + others.1;
    2 * serving > members.len() + others.0
}

impl HealthReport {
    fn of(answers: &[HealthAnswer], is_of_cluster: bool) -> HealthReport {
        let mut findings: Vec<MergedFinding> = Vec::new();
        for answer in answers {
            let pages = match &answer.page {
                Ok(page) => page.findings.clone(),
                Err(why) => vec![no_answer(why)],
            };
            for page in pages {
                let is_same = |it: &&mut MergedFinding| {
                    (&it.page.kind, &it.page.sentence) == (&page.kind, &page.sentence)
                };
                match findings.iter_mut().find(is_same) {
                    Some(known) => known.at.push(answer.url.clone()),
                    None => findings.push(MergedFinding {
                        page,
                        at: vec![answer.url.clone()],
                    }),
                }
            }
        }
        findings.sort_by_key(|it| it.page.severity != Severity::NotServing.as_str());
        let serves = if is_of_cluster {
            most_serve(answers)
        } else {
            answers
                .iter()
                .all(|it| it.page.as_ref().is_ok_and(is_serving))
        };
        let worst = if !serves {
            Some(Severity::NotServing)
        } else {
            (!findings.is_empty()).then_some(Severity::Degraded)
        };
        HealthReport { worst, findings }
    }

    fn to_text(&self, is_of_cluster: bool) -> String {
        let mut text = format!("{}\n", Severity::word(self.worst));
        for it in &self.findings {
            let (kind, sentence) = (plain(&it.page.kind), plain(&it.page.sentence));
            text += &format!("{kind}: {sentence}");
            if is_of_cluster {
                text += &format!(" (says {})", it.at.join(" "));
            }
            text += &format!("\n  {}\n", plain(&it.page.command));
        }
        text
    }

    fn to_json(&self) -> Value {
        let findings = self.findings.iter().map(|it| {
            let mut page = json!(it.page);
            page["at"] = json!(it.at);
            page
        });
        let findings: Vec<Value> = findings.collect();
        json!({ "health": Severity::word(self.worst), "findings": findings })
    }
}

fn no_answer(why: &str) -> FindingPage {
    let kind = HealthKind::NoAnswer;
    FindingPage {
        kind: kind.as_str().to_owned(),
        severity: kind.severity().as_str().to_owned(),
        sentence: why.to_owned(),
        command: kind.way_out("", ""),
        ..FindingPage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_server::pages::ReachedPage;

    const URLS: [&str; 3] = ["http://h1:1", "http://h2:1", "http://h3:1"];

    /// The page of a member that reaches these others, with these findings.
    fn page(me: usize, up: &[usize], findings: &[(HealthKind, &str)]) -> HealthAnswer {
        let others = (0..3).filter(|at| *at != me);
        let findings: Vec<FindingPage> = findings
            .iter()
            .map(|(kind, sentence)| FindingPage {
                kind: kind.as_str().to_owned(),
                severity: kind.severity().as_str().to_owned(),
                sentence: (*sentence).to_owned(),
                ..FindingPage::default()
            })
            .collect();
        let is_bad = |it: &FindingPage| it.severity == Severity::NotServing.as_str();
        let worst = findings.iter().any(is_bad).then_some(Severity::NotServing);
        let page = HealthPage {
            health: Severity::word(worst.or(Some(Severity::Degraded))).to_owned(),
            member: Some(URLS[me].to_owned()),
            others: others
                .map(|at| ReachedPage {
                    url: URLS[at].to_owned(),
                    up: up.contains(&at),
                })
                .collect(),
            findings,
            ..HealthPage::default()
        };
        HealthAnswer {
            url: format!("http://admin{me}"),
            page: Ok(page),
        }
    }

    fn silent(me: usize) -> HealthAnswer {
        HealthAnswer {
            url: format!("http://admin{me}"),
            page: Err("refused".to_owned()),
        }
    }

    fn worst(answers: &[HealthAnswer]) -> Option<Severity> {
        HealthReport::of(answers, true).worst
    }

    const AWAY: (HealthKind, &str) = (HealthKind::MemberAway, "h3 is not reached");
    const ALONE: (HealthKind, &str) = (HealthKind::NoMajority, "alone");

    #[test]
    fn a_cluster_serves_while_more_than_half_of_its_members_do() {
        let all = [
            page(0, &[1, 2], &[]),
            page(1, &[0, 2], &[]),
            page(2, &[0, 1], &[]),
        ];
        assert_eq!(worst(&all), None);
        let one_away = [page(0, &[1], &[AWAY]), page(1, &[0], &[AWAY]), silent(2)];
        assert_eq!(worst(&one_away), Some(Severity::Degraded));
        let mut starting = page(2, &[], &[]);
        starting.page = Ok(HealthPage {
            health: Severity::NotServing.as_str().to_owned(),
            ..HealthPage::default()
        });
        let one_starts = [page(0, &[1], &[AWAY]), page(1, &[0], &[AWAY]), starting];
        assert_eq!(worst(&one_starts), Some(Severity::Degraded));
        let two_away = [page(0, &[], &[ALONE]), silent(1), silent(2)];
        assert_eq!(worst(&two_away), Some(Severity::NotServing));
        assert_eq!(worst(&[silent(0), silent(1)]), Some(Severity::NotServing));
        // A member whose admin port alone is gone serves.
        let hidden = [page(0, &[1, 2], &[]), page(1, &[0, 2], &[]), silent(2)];
        assert_eq!(worst(&hidden), Some(Severity::Degraded));
        let one_of_three = [page(0, &[1, 2], &[(HealthKind::ClockOff, "off")])];
        assert_eq!(worst(&one_of_three), Some(Severity::Degraded));
        let itself = HealthReport::of(&one_of_three, false).worst;
        assert_eq!(
            itself,
            Some(Severity::NotServing),
            "it was asked about itself"
        );
    }

    #[test]
    fn a_finding_of_several_members_is_shown_once_and_the_worst_comes_first() {
        let answers = [page(0, &[1], &[AWAY]), page(1, &[0], &[AWAY]), silent(2)];
        let text = HealthReport::of(&answers, true).to_text(true);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "degraded");
        assert_eq!(lines[1], "no-answer: refused (says http://admin2)");
        assert_eq!(
            lines[3],
            "member-away: h3 is not reached (says http://admin0 http://admin1)"
        );
        assert_eq!(lines.len(), 5, "{text}");
    }

    #[test]
    fn members_that_were_not_asked_are_named_when_the_others_answered() {
        let two = [page(0, &[1, 2], &[]), page(1, &[0, 2], &[])];
        assert_eq!(not_asked(&two), ["http://h3:1"]);
        assert!(not_asked(&[page(0, &[1, 2], &[]), silent(1)]).is_empty());
    }

    #[test]
    fn one_port_that_cannot_be_asked_hides_no_cluster() {
        let urls: Vec<String> = (0..2).map(|at| format!("http://admin{at}")).collect();
        let bad = || Err(Failure::new(Exit::USAGE, "no admin port"));
        let two = || vec![(&urls[0], Ok(page(0, &[1, 2], &[]))), (&urls[1], bad())];
        let answers = known(two(), true).expect("one page came");
        assert_eq!(
            answers[1].page.as_ref().err().map(String::as_str),
            Some("no admin port")
        );
        let code = |it: Result<Vec<HealthAnswer>, Failure>| it.err().map(|failure| failure.exit);
        assert_eq!(code(known(two(), false)), Some(Exit::UNKNOWN));
        assert_eq!(
            code(known(vec![(&urls[1], bad())], true)),
            Some(Exit::UNKNOWN)
        );
    }
}
