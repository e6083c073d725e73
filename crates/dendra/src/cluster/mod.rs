//! `dendra cluster`: members that come and go, seen and ordered at the admin port of any member.
//!
//! ```text
//! status  [--follow]          GET  /v0/cluster            a table, and the plan under way
//! plan    --remove URL …      POST /v0/cluster/plan       the moves it would make, and the id for apply
//! apply   PLAN [--follow]     POST /v0/cluster/apply
//! cancel  readdress  throttle POST /v0/cluster/…
//! accept-loss URL [--confirm ID]   POST /v0/cluster/accept-loss   what may be lost, and the id
//! finalize                    POST /v0/cluster/finalize
//! history                     GET  /v0/cluster/history
//! compare  [ADMIN_URL …]      POST, GET /v0/cluster/compare     compare.rs
//! ```
//!
//! Invariants
//! 1. With --json stdout gets the member's own answer; without it a table for people.
//! 2. A refusal ends with 1 and the member's own sentence; no majority and no answer end with 5.
//!
//! Not here: which change may follow which (crate `ownership`), joining (`dendra serve --join`).
//! See: docs/cli.md, "Changing members"; docs/operating.md.

pub(crate) mod cells;
mod compare;
pub(crate) mod flags;
mod loss;
mod office;
mod words;

use crate::access::AccessArgs;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use bytes::Bytes;
use dendra_server::pages::DraftPage;
use flags::{ClusterFlags, ClusterVerb, PlanFlags};
use hyper::Method;
use office::{LOOK, Office};
use serde_json::{Map, Value, json};

/// A member that is followed may be away for so many looks, because it starts again.
const LOOKS_AWAY_MAX: u32 = 60;

/// Carries out one order, or shows the state.
pub(crate) async fn cluster(
    args: &ClusterFlags,
    access: &AccessArgs,
    console: Console,
) -> ExitResult {
    let open = |url: &String| Office::open(url, access, args.json, console);
    let office = open(&args.url())?;
    match &args.verb {
        ClusterVerb::Compare { members, rate } => {
            let offices: Result<Vec<Office>, Failure> =
                args.urls(members).iter().map(open).collect();
            compare::compare(&offices?, *rate).await
        }
        ClusterVerb::Status { follow: false } => {
            let status = office.status().await?;
            office.show(&status, words::status)
        }
        ClusterVerb::Status { follow: true } => follow_plan(&office).await,
        ClusterVerb::Plan(flags) => {
            let draft = office.order("plan", &wish(flags)?).await?;
            office.show(&draft, words::draft)
        }
        ClusterVerb::Apply { plan, follow } => {
            let done = office.order("apply", &json!({ "plan": plan })).await?;
            match follow {
                true => follow_plan(&office).await,
                false => office.show(&done, words::begun),
            }
        }
        ClusterVerb::Cancel => office.carry_out("cancel", &json!({})).await,
        ClusterVerb::History { entries } => {
            let path = format!("/v0/cluster/history?entries={entries}");
            let page = office.ask(Method::GET, path, Bytes::new()).await?;
            office.show(&page, words::history)
        }
        ClusterVerb::Readdress { from, to } => {
            let body = json!({ "from": from, "to": to });
            office.carry_out("readdress", &body).await
        }
        ClusterVerb::AcceptLoss { member, confirm } => {
            let body = json!({ "member": member, "confirm": confirm });
            let page = office.order("accept-loss", &body).await?;
            match confirm {
                None => office.show(&page, loss::loss),
                Some(_) => office.show(&page, loss::accepted_loss),
            }
        }
        ClusterVerb::Finalize => office.carry_out("finalize", &json!({})).await,
        ClusterVerb::Throttle { bytes } => {
            let body = json!({ "bytes_per_second": bytes });
            office.carry_out("throttle", &body).await
        }
    }
}

impl Office {
    /// An order whose answer is that it is done.
    async fn carry_out(&self, name: &str, body: &Value) -> ExitResult {
        let done = self.order(name, body).await?;
        self.show(&done, words::done)
    }
}

/// Plans that a member leaves, and begins with it: the plan's id.
pub(crate) async fn remove(admin: &str, url: &str, console: Console) -> Result<String, Failure> {
    let office = Office::open(admin, &AccessArgs::default(), false, console)?;
    let draft = office.order("plan", &json!({ "remove": [url] })).await?;
    let draft: DraftPage = office.read(&draft)?;
    office
        .order("apply", &json!({ "plan": draft.plan }))
        .await?;
    Ok(draft.plan)
}

/// The body of an order to plan.
fn wish(flags: &PlanFlags) -> Result<Value, Failure> {
    Ok(json!({
        "remove": flags.remove,
        "weights": by_url("--weight", &flags.weight)?,
        "zones": by_url("--zone", &flags.zone)?,
        "replication_factor": flags.replication_factor,
    }))
}

/// An object has room for one value of each member.
fn by_url<T>(flag: &str, pairs: &[(String, T)]) -> Result<Map<String, Value>, Failure>
where
    T: Clone + Into<Value>,
{
    let mut values = Map::new();
    for (url, value) in pairs {
        if values.insert(url.clone(), value.clone().into()).is_some() {
            let sentence = format!("{flag} names {url} twice: name it once");
            return Err(Failure::usage(sentence));
        }
    }
    Ok(values)
}

/// Shows the plan under way until it has ended: a line whenever something changed.
async fn follow_plan(office: &Office) -> ExitResult {
    let (mut shown, mut away) = (String::new(), 0);
    loop {
        let status = match office.status().await {
            Err(failure) if failure.exit == Exit::UNAVAILABLE && away < LOOKS_AWAY_MAX => {
                away += 1;
                office.console.detail(|| failure.sentence);
                tokio::time::sleep(LOOK).await;
                continue;
            }
            status => status?,
        };
        away = 0;
        let (line, is_over) = words::progress(&office.read(&status)?);
        if office.is_json {
            ops::print(format!("{status}\n").as_bytes())?;
        } else if line != shown {
            ops::print(format!("{line}\n").as_bytes())?;
            shown = line;
        }
        if is_over {
            return Ok(Exit::OK);
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn flags(line: &str) -> Result<ClusterFlags, clap::Error> {
        let words = "dendra cluster".split(' ').chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Cluster { flags, .. } => Ok(flags),
            other => panic!("{other:?} is of another command"),
        }
    }

    #[test]
    fn a_plan_names_what_shall_change() {
        let line = "plan --remove http://a:1 --weight http://b:1=2 --zone http://c:1=z \
                    --zone http://d:1= --replication-factor 3";
        let ClusterVerb::Plan(plan) = flags(line).expect("a good line").verb else {
            panic!("a plan");
        };
        assert_eq!(
            wish(&plan).expect("each is named once"),
            json!({
                "remove": ["http://a:1"],
                "weights": { "http://b:1": 2 },
                "zones": { "http://c:1": "z", "http://d:1": "" },
                "replication_factor": 3,
            })
        );
    }

    #[test]
    fn a_member_has_one_weight_and_one_zone() {
        for (line, said) in [
            (
                "plan --weight http://b:1=2 --weight http://b:1=3",
                "--weight names http://b:1 twice",
            ),
            (
                "plan --zone http://b:1=y --zone http://b:1=z",
                "--zone names http://b:1 twice",
            ),
        ] {
            let ClusterVerb::Plan(plan) = flags(line).expect("each flag is fine").verb else {
                panic!("a plan");
            };
            let failure = wish(&plan).expect_err("the last one would win");
            assert!(failure.sentence.starts_with(said), "{}", failure.sentence);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_the_door() {
        for line in [
            "plan",
            "plan --weight http://b:1",
            "plan --weight http://b:1=many",
            "plan --zone zone",
            "plan --replication-factor 0",
            "throttle 0",
            "throttle 5k",
            "compare --rate 0",
            "history --entries 0",
            "apply",
            "accept-loss",
            "accept-loss http://a:1 --confirm",
        ] {
            assert!(flags(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_lets_a_client_in_may_stand_on_either_side_of_the_verb() {
        for line in [
            "--ca ca.crt --token-file token status",
            "status --ca ca.crt --token-file token",
        ] {
            let words = "dendra cluster".split(' ').chain(line.split_whitespace());
            match Cli::try_parse_from(words).expect("a good line").command {
                Command::Cluster { access, .. } => {
                    assert_eq!(access.ca, Some("ca.crt".into()), "{line}");
                    assert_eq!(access.token_file, Some("token".into()), "{line}");
                }
                other => panic!("{other:?} is of another command"),
            }
        }
    }
}
