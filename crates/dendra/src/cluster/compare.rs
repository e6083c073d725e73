//! `dendra cluster compare`: members look for copies that differ, without a repair.
//!
//! ```text
//! for each admin port:  GET  /v0/cluster                    its member, and all members
//!                       POST /v0/cluster/compare            with all members that were not asked before
//!                       GET  /v0/cluster/compare?look=ID    once a second, until it has ended
//! ```
//!
//! Invariants
//! 1. Each pair of members is looked at once. Pairs of which neither member was asked are named.
//! 2. It ends with 6 if copies differ; with 0 only if all that was asked for was compared, and is
//!    equal.
//!
//! Not here: looking (crate `node`, `compare/look.rs`).
//! See: docs/cli.md, "Changing members"; docs/operating.md, "Copies that differ".

use super::cells::{plain, size, table, word};
use super::office::{LOOK, Office};
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops;
use bytes::Bytes;
use dendra_server::pages::{ClusterPage, DifferPage, LookPage, PairPage};
use hyper::Method;
use serde_json::{Value, json};

/// Names of the member's numbers, the heads of their columns, and the numbers.
const KINDS: [(&str, &str, fn(&DifferPage) -> u64); 6] = [
    ("newer_here", "newer here", |it| it.newer_here),
    ("newer_there", "newer there", |it| it.newer_there),
    ("missing_here", "missing here", |it| it.missing_here),
    ("missing_there", "missing there", |it| it.missing_there),
    ("other_content", "other bytes", |it| it.other_content),
    ("promises", "promises", |it| it.promises),
];

/// The differences that all looks have found.
#[derive(Debug, Default)]
struct Findings {
    /// The members' own pages.
    looks: Vec<Value>,
    /// The member that looked, and its pair with another one.
    pairs: Vec<(String, PairPage)>,
    /// Pairs of which neither member was asked.
    not_asked: Vec<[String; 2]>,
    differences: u64,
    /// Pairs that were not compared in full.
    unfinished: usize,
}

/// Asks one member after the other.
pub(super) async fn compare(offices: &[Office], rate: Option<u64>) -> ExitResult {
    let mut findings = Findings::default();
    let (mut asked, mut members) = (Vec::new(), Vec::new());
    for office in offices {
        let status = office.status().await?;
        let status: ClusterPage = office.read(&status)?;
        let own = status.asked.ok_or_else(|| office.strange())?;
        members = status
            .members
            .into_iter()
            .map(|member| member.url)
            .collect();
        if asked.contains(&own) {
            continue;
        }
        asked.push(own);
        let left = members.iter().filter(|member| !asked.contains(member));
        let with: Vec<&String> = left.collect();
        if !with.is_empty() {
            let (page, look) = office.look(&with, rate).await?;
            findings.add(page, look);
        }
    }
    let left = members.iter().filter(|member| !asked.contains(member));
    let left: Vec<&String> = left.collect();
    for (at, a) in left.iter().enumerate() {
        let pairs = left[at + 1..].iter().map(|b| [(*a).clone(), (*b).clone()]);
        findings.not_asked.extend(pairs);
    }
    let is_json = offices.iter().any(|office| office.is_json);
    let text = if is_json {
        let page = json!({ "looks": findings.looks, "not_asked": findings.not_asked });
        format!("{page:#}\n")
    } else {
        findings.text()
    };
    ops::print(text.as_bytes())?;
    findings.exit()
}

impl Office {
    /// Has the member look, and waits until it has ended.
    async fn look(
        &self,
        with: &[&String],
        rate: Option<u64>,
    ) -> Result<(Value, LookPage), Failure> {
        let body = json!({ "with": with, "bytes_per_second": rate });
        let mut page = self.order("compare", &body).await?;
        loop {
            let look: LookPage = self.read(&page)?;
            if look.state != "running" {
                return Ok((page, look));
            }
            self.console.detail(|| page["with"].to_string());
            let path = format!("/v0/cluster/compare?look={}", look.look);
            tokio::time::sleep(LOOK).await;
            page = self.ask(Method::GET, path, Bytes::new()).await?;
        }
    }
}

impl Findings {
    /// One member's look.
    fn add(&mut self, page: Value, look: LookPage) {
        for pair in look.with {
            self.differences += KINDS
                .iter()
                .map(|(.., count)| count(&pair.differ))
                .sum::<u64>();
            let is_whole = pair.state == "compared" && pair.left_out == 0;
            self.unfinished += usize::from(!is_whole);
            self.pairs.push((look.member.clone(), pair));
        }
        self.looks.push(page);
    }

    /// A row for each pair, examples, and the verdict.
    fn text(&self) -> String {
        let head = ["member", "with", "state", "read", "left out"].into_iter();
        let head = head.chain(KINDS.iter().map(|(_, title, _)| *title));
        let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
        let mut examples = String::new();
        for (member, pair) in &self.pairs {
            let (member, there) = (word(member), word(&pair.url));
            let state = match pair.state.as_str() {
                "compared" => "compared",
                _ => "not reached",
            };
            let state = state.to_owned();
            let (read, left_out) = (size(pair.read_bytes), pair.left_out.to_string());
            let cells = [member.clone(), there.clone(), state, read, left_out];
            let counts = KINDS
                .iter()
                .map(|(.., count)| count(&pair.differ).to_string());
            rows.push(cells.into_iter().chain(counts).collect());
            for example in &pair.examples {
                let title = KINDS.iter().find(|(code, ..)| *code == example.difference);
                let title = title.map_or("-", |(_, title, _)| title);
                let key = plain(&example.key);
                examples += &format!("  {title}: {key} ({member} with {there})\n");
            }
        }
        let mut text = String::new();
        if rows.len() > 1 {
            table(&mut text, &rows);
            text.push('\n');
        }
        if !examples.is_empty() {
            text += &format!("for example:\n{examples}\n");
        }
        let (pairs, differences) = (self.pairs.len(), self.differences);
        text += &match (differences, self.unfinished) {
            (0, 0) => format!("equal: {pairs} pairs of members were compared\n"),
            (0, _) => "nothing that was compared differs\n".to_owned(),
            _ => format!("{differences} differences in {pairs} pairs of members\n"),
        };
        for [a, b] in &self.not_asked {
            let (a, b) = (plain(a), plain(b));
            text += &format!("not asked: {a} with {b}; name the admin port of one of them, too\n");
        }
        text
    }

    fn exit(&self) -> ExitResult {
        match (self.differences, self.unfinished) {
            (0, 0) => Ok(Exit::OK),
            (0, unfinished) => {
                let sentence = format!(
                    "{unfinished} of {} pairs of members were not compared in full: look at \
                     dendra cluster status and at the members' logs, and try again",
                    self.pairs.len()
                );
                Err(Failure::new(Exit::FAILURE, sentence))
            }
            _ => Ok(Exit::DIFFER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    fn look(state: &str, missing_there: u64, left_out: u64) -> Value {
        let differ = json!({
            "newer_here": 0, "newer_there": 0, "missing_here": 0,
            "missing_there": missing_there, "other_content": 0, "promises": 0,
        });
        let examples = match missing_there {
            0 => json!([]),
            _ => json!([{ "key": "a%20key", "difference": "missing_there" }]),
        };
        json!({
            "look": "000000000000000a", "member": "http://h1:8080", "state": "ended",
            "with": [{
                "url": "http://h2:8080", "state": state, "read_bytes": 2048,
                "left_out": left_out, "differ": differ, "examples": examples,
            }],
        })
    }

    fn findings(page: Value) -> Findings {
        let mut findings = Findings::default();
        let look = LookPage::deserialize(&page).expect("a good page");
        findings.add(page, look);
        findings
    }

    #[test]
    fn equal_copies_end_well_differing_ones_with_a_code_and_a_part_with_a_failure() {
        let exit = |page| match findings(page).exit() {
            Ok(exit) => exit,
            Err(failure) => failure.exit,
        };
        assert_eq!(exit(look("compared", 0, 0)), Exit::OK);
        assert_eq!(exit(look("compared", 2, 0)), Exit::DIFFER);
        assert_eq!(exit(look("unreached", 2, 0)), Exit::DIFFER);
        assert_eq!(exit(look("unreached", 0, 0)), Exit::FAILURE);
        assert_eq!(exit(look("compared", 0, 1)), Exit::FAILURE);
        assert_eq!(
            exit(look("running", 0, 0)),
            Exit::FAILURE,
            "it was given up"
        );
    }

    #[test]
    fn a_table_shows_each_pair_and_keys_and_which_pairs_were_not_asked() {
        let mut findings = findings(look("compared", 2, 0));
        let pair = ["http://h2:8080", "http://h3:8080"].map(str::to_owned);
        findings.not_asked.push(pair);
        let text = findings.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("http://h1:8080  http://h2:8080  compared"),
            "{text}"
        );
        let key = "  missing there: a%20key (http://h1:8080 with http://h2:8080)";
        assert!(lines.contains(&key), "{text}");
        assert!(
            lines.contains(&"2 differences in 1 pairs of members"),
            "{text}"
        );
        let last = lines.last().expect("a line");
        assert!(
            last.starts_with("not asked: http://h2:8080 with http://h3:8080;"),
            "{text}"
        );
    }

    #[test]
    fn a_page_of_another_shape_is_not_taken() {
        let mut page = look("compared", 0, 0);
        page["with"][0]["differ"] = json!({});
        assert!(LookPage::deserialize(page).is_err());
        assert!(LookPage::deserialize(json!({})).is_err());
    }
}
